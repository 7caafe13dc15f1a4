//! Latencies of instructions of each class, through the decoder and a core, next to published figures.
//!
//! Figures: scheduling models of LLVM 19 (`llvm-mca -instruction-tables`, processors `znver3`, `znver4` and
//! `sapphirerapids`), and for single instructions uops.info, or OSACA's data of a Zen 4. Sources of the models' own fields
//! are next to them in `machines/*.toml`: most fields have their values from the same figures, so the test checks that
//! decoder and core apply them. One field serves several instructions: `MISSED` lists the figures that a model misses.

use crate::kernels::{ZEN3, ZEN4, code, thousandths};

const EMERALD_RAPIDS: &str = include_str!("../../../../machines/emerald-rapids.toml");

/// Instructions whose results are their own operands, with the latency on Zen 3, Zen 4 and Emerald Rapids, in cycles.
#[rustfmt::skip]
const LATENCIES: &[(&str, &[u8], [u64; 3])] = &[
    ("crc32q %rax,%rax", &[0xf2, 0x48, 0x0f, 0x38, 0xf1, 0xc0], [3, 3, 3]),
    ("popcntq %rax,%rax", &[0xf3, 0x48, 0x0f, 0xb8, 0xc0], [1, 1, 3]),
    ("pdepq %rax,%rax,%rax", &[0xc4, 0xe2, 0xfb, 0xf5, 0xc0], [3, 3, 3]),
    ("pextq %rax,%rax,%rax", &[0xc4, 0xe2, 0xfa, 0xf5, 0xc0], [3, 3, 3]),
    ("imulq %rax,%rax", &[0x48, 0x0f, 0xaf, 0xc0], [3, 3, 3]),
    ("tzcntq %rax,%rax", &[0xf3, 0x48, 0x0f, 0xbc, 0xc0], [2, 1, 3]),
    ("bswapq %rax", &[0x48, 0x0f, 0xc8], [1, 1, 2]),
    ("adcxq %rbx,%rax", &[0x66, 0x48, 0x0f, 0x38, 0xf6, 0xc3], [1, 1, 1]),
    ("shldq $3,%rax,%rax", &[0x48, 0x0f, 0xa4, 0xc0, 0x03], [2, 2, 3]),
    ("psadbw %xmm0,%xmm0", &[0x66, 0x0f, 0xf6, 0xc0], [3, 3, 3]),
    ("mpsadbw $1,%xmm0,%xmm0", &[0x66, 0x0f, 0x3a, 0x42, 0xc0, 0x01], [4, 4, 4]),
    ("phminposuw %xmm0,%xmm0", &[0x66, 0x0f, 0x38, 0x41, 0xc0], [3, 3, 4]),
    ("dpps $1,%xmm0,%xmm0", &[0x66, 0x0f, 0x3a, 0x40, 0xc0, 0x01], [15, 11, 14]),
    ("dppd $1,%xmm0,%xmm0", &[0x66, 0x0f, 0x3a, 0x41, 0xc0, 0x01], [9, 7, 9]),
    ("haddps %xmm0,%xmm0", &[0xf2, 0x0f, 0x7c, 0xc0], [6, 4, 6]),
    ("hsubpd %xmm0,%xmm0", &[0x66, 0x0f, 0x7d, 0xc0], [6, 4, 6]),
    ("minps %xmm1,%xmm0", &[0x0f, 0x5d, 0xc1], [1, 2, 4]),
    ("maxsd %xmm1,%xmm0", &[0xf2, 0x0f, 0x5f, 0xc1], [1, 2, 4]),
    ("cmpps $1,%xmm1,%xmm0", &[0x0f, 0xc2, 0xc1, 0x01], [1, 2, 4]),
    ("roundps $1,%xmm0,%xmm0", &[0x66, 0x0f, 0x3a, 0x08, 0xc0, 0x01], [3, 3, 8]),
    ("rcpps %xmm0,%xmm0", &[0x0f, 0x53, 0xc0], [3, 4, 4]),
    ("rsqrtss %xmm0,%xmm0", &[0xf3, 0x0f, 0x52, 0xc0], [3, 4, 4]),
    ("cvtdq2ps %xmm0,%xmm0", &[0x0f, 0x5b, 0xc0], [3, 3, 4]),
    ("cvtss2sd %xmm0,%xmm0", &[0xf3, 0x0f, 0x5a, 0xc0], [3, 3, 5]),
    ("cvtps2pd %xmm0,%xmm0", &[0x0f, 0x5a, 0xc0], [3, 3, 5]),
    ("addps %xmm0,%xmm0", &[0x0f, 0x58, 0xc0], [3, 3, 2]),
    ("mulps %xmm0,%xmm0", &[0x0f, 0x59, 0xc0], [3, 3, 4]),
    ("vfmadd231ps %xmm1,%xmm2,%xmm0", &[0xc4, 0xe2, 0x69, 0xb8, 0xc1], [4, 4, 4]),
    ("pmulld %xmm0,%xmm0", &[0x66, 0x0f, 0x38, 0x40, 0xc0], [3, 3, 10]),
    ("pmuludq %xmm0,%xmm0", &[0x66, 0x0f, 0xf4, 0xc0], [3, 3, 5]),
    ("pmaddwd %xmm0,%xmm0", &[0x66, 0x0f, 0xf5, 0xc0], [3, 3, 5]),
    ("pcmpistrm $0,%xmm0,%xmm0", &[0x66, 0x0f, 0x3a, 0x62, 0xc0, 0x00], [6, 7, 11]),
    ("pcmpestrm $0,%xmm0,%xmm0", &[0x66, 0x0f, 0x3a, 0x60, 0xc0, 0x00], [6, 7, 11]),
    ("pcmpgtq %xmm1,%xmm0", &[0x66, 0x0f, 0x38, 0x37, 0xc1], [1, 2, 3]),
    ("pcmpeqd %xmm1,%xmm0", &[0x66, 0x0f, 0x76, 0xc1], [1, 1, 1]),
    ("paddd %xmm0,%xmm0", &[0x66, 0x0f, 0xfe, 0xc0], [1, 1, 1]),
    ("vpermd %ymm0,%ymm0,%ymm0", &[0xc4, 0xe2, 0x7d, 0x36, 0xc0], [5, 4, 3]),
    ("vpermq $1,%ymm0,%ymm0", &[0xc4, 0xe3, 0xfd, 0x00, 0xc0, 0x01], [6, 4, 3]),
    ("vpermps %ymm0,%ymm0,%ymm0", &[0xc4, 0xe2, 0x7d, 0x16, 0xc0], [7, 4, 3]),
    ("vperm2i128 $1,%ymm0,%ymm0,%ymm0", &[0xc4, 0xe3, 0x7d, 0x46, 0xc0, 0x01], [3, 3, 3]),
    ("vextracti128 $1,%ymm0,%xmm0", &[0xc4, 0xe3, 0x7d, 0x39, 0xc0, 0x01], [4, 4, 3]),
    ("vinserti128 $1,%xmm0,%ymm0,%ymm0", &[0xc4, 0xe3, 0x7d, 0x38, 0xc0, 0x01], [2, 1, 3]),
    ("vpbroadcastd %xmm0,%ymm0", &[0xc4, 0xe2, 0x7d, 0x58, 0xc0], [2, 1, 3]),
    ("pshufd $1,%xmm0,%xmm0", &[0x66, 0x0f, 0x70, 0xc0, 0x01], [1, 1, 1]),
    ("punpckldq %xmm0,%xmm0", &[0x66, 0x0f, 0x62, 0xc0], [1, 1, 1]),
    ("pshufb %xmm0,%xmm0", &[0x66, 0x0f, 0x38, 0x00, 0xc0], [1, 2, 1]),
    ("psrldq $1,%xmm0", &[0x66, 0x0f, 0x73, 0xd8, 0x01], [1, 2, 1]),
    ("vpblendvb %xmm0,%xmm0,%xmm0,%xmm0", &[0xc4, 0xe3, 0x79, 0x4c, 0xc0, 0x00], [1, 1, 3]),
    ("aesenc %xmm0,%xmm0", &[0x66, 0x0f, 0x38, 0xdc, 0xc0], [4, 4, 3]),
    ("aesimc %xmm0,%xmm0", &[0x66, 0x0f, 0x38, 0xdb, 0xc0], [4, 4, 8]),
    ("pclmulqdq $1,%xmm0,%xmm0", &[0x66, 0x0f, 0x3a, 0x44, 0xc0, 0x01], [4, 4, 3]),
    ("sha256rnds2 %xmm0,%xmm1,%xmm1", &[0x0f, 0x38, 0xcb, 0xc9], [4, 4, 4]),
    ("sha256msg1 %xmm0,%xmm0", &[0x0f, 0x38, 0xcc, 0xc0], [2, 2, 5]),
    ("sha1msg2 %xmm0,%xmm0", &[0x0f, 0x38, 0xca, 0xc0], [1, 1, 6]),
];

/// The model, the instruction and its cycles, where a model has one field for instructions with different latencies.
const MISSED: &[(&str, &str, u64)] = &[
    ("zen3", "mpsadbw $1,%xmm0,%xmm0", 3),
    ("zen3", "vpermd %ymm0,%ymm0,%ymm0", 6),
    ("zen3", "vpermps %ymm0,%ymm0,%ymm0", 6),
    ("zen3", "vextracti128 $1,%ymm0,%xmm0", 3),
    ("zen3", "vinserti128 $1,%xmm0,%ymm0,%ymm0", 1),
    ("zen3", "vpbroadcastd %xmm0,%ymm0", 1),
    ("zen3", "sha1msg2 %xmm0,%xmm0", 2),
    ("zen4", "mpsadbw $1,%xmm0,%xmm0", 3),
    ("zen4", "pcmpistrm $0,%xmm0,%xmm0", 6),
    ("zen4", "pcmpestrm $0,%xmm0,%xmm0", 6),
    ("zen4", "vextracti128 $1,%ymm0,%xmm0", 3),
    ("zen4", "sha1msg2 %xmm0,%xmm0", 2),
    ("emerald-rapids", "mpsadbw $1,%xmm0,%xmm0", 3),
    ("emerald-rapids", "phminposuw %xmm0,%xmm0", 3),
    ("emerald-rapids", "cvtdq2ps %xmm0,%xmm0", 5),
    ("emerald-rapids", "aesimc %xmm0,%xmm0", 7),
    ("emerald-rapids", "sha1msg2 %xmm0,%xmm0", 5),
];

#[test]
fn a_chain_of_an_instruction_takes_its_published_latency() {
    let mut wrong = Vec::new();
    for (index, (name, text)) in
        [("zen3", ZEN3), ("zen4", ZEN4), ("emerald-rapids", EMERALD_RAPIDS)].into_iter().enumerate()
    {
        for (instruction, bytes, latencies) in LATENCIES {
            let (cycles, published) =
                (thousandths(text, &code(&[bytes])), latencies[index] * 1_000);
            let missed = MISSED.iter().find(|row| (row.0, row.1) == (name, *instruction));
            let expected = missed.map_or(published, |row| row.2 * 1_000);
            if cycles.abs_diff(expected) > 100 {
                wrong.push(format!(
                    "{name}: {instruction}: {cycles}, expected {expected}, published {published}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "thousandths of a cycle: {wrong:#?}");
}

/// Instructions, and the thousandths of a cycle that they take on each processor. `None`: no source has a figure.
type Throughput<'a> = (&'a [&'a [u8]], [Option<u64>; 3]);

/// Operations that occupy their unit for several cycles: one in so many cycles, in thousandths.
#[test]
fn independent_instructions_take_their_published_throughput() {
    // pcmpistri $0, %xmm1, %xmm0; dpps $1, %xmm1, %xmm0 with another destination each time is a chain, so a copy cuts it.
    let compare: &[u8] = &[0x66, 0x0f, 0x3a, 0x63, 0xc1, 0x00];
    let copy: &[u8] = &[0x0f, 0x28, 0xc2]; // movaps %xmm2, %xmm0
    let dot: &[u8] = &[0x66, 0x0f, 0x3a, 0x40, 0xc1, 0x01];
    let horizontal: &[u8] = &[0xf2, 0x0f, 0x7c, 0xc1]; // haddps %xmm1, %xmm0
    let multiply: &[u8] = &[0x66, 0x0f, 0x38, 0x40, 0xc1]; // pmulld %xmm1, %xmm0
    let blend: &[u8] = &[0xc4, 0xe3, 0x71, 0x4c, 0xc2, 0x30]; // vpblendvb %xmm3, %xmm2, %xmm1, %xmm0
    let sha_copy: &[u8] = &[0x0f, 0x28, 0xca]; // movaps %xmm2, %xmm1
    let sha: &[u8] = &[0x0f, 0x38, 0xcb, 0xcb]; // sha256rnds2 %xmm0, %xmm3, %xmm1
    let kernels: [Throughput<'_>; 6] = [
        (&[compare], [Some(2_000), Some(2_000), Some(3_000)]),
        (&[copy, dot], [Some(4_000), Some(4_000), Some(1_670)]),
        (&[copy, horizontal], [Some(2_000), Some(2_000), Some(2_000)]),
        (&[copy, multiply], [Some(500), Some(500), Some(1_000)]),
        (&[blend], [Some(250), Some(250), Some(1_000)]),
        (&[sha_copy, sha], [Some(2_000), Some(2_000), None]), // no source for Intel's cores
    ];
    for (index, text) in [ZEN3, ZEN4, EMERALD_RAPIDS].into_iter().enumerate() {
        for (body, published) in &kernels {
            let Some(published) = published[index] else { continue };
            let cycles = thousandths(text, &code(body));
            let distance = cycles.abs_diff(published);
            assert!(distance * 6 <= published, "{index}: {body:02x?}: {cycles}");
        }
    }
}
