//! The time to decode an instruction, and the special instructions of real code: this executable's.
//!
//! `cargo bench -p machine --bench decode`. Times are CPU times of this process.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that measures the pure crate: it reads files and the clock, and prints"
)]

use std::collections::BTreeMap;

use machine::VirtualAddress;
use machine::core::Special;
use machine::decode::Decoder;

/// The CPU time of this process.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("a Linux");
    let ns = text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
    ns.expect("nanoseconds first") as f64 / 1e9
}

/// The code of a 64-bit ELF file: its longest executable section.
fn code(file: &[u8]) -> &[u8] {
    let number = |offset: usize, bytes: usize| {
        let bytes = file[offset..offset + bytes].iter().rev();
        bytes.fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (sections, size, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let executable = (0..count).map(|index| sections + index * size);
    let executable = executable.filter(|section| number(section + 8, 8) & 4 != 0);
    let longest =
        executable.max_by_key(|section| number(section + 0x20, 8)).expect("a section of code");
    let start = number(longest + 0x18, 8);
    &file[start..start + number(longest + 0x20, 8)]
}

fn main() {
    let path = std::env::current_exe().expect("its name");
    let file = std::fs::read(path).expect("its bytes");
    let code = code(&file);
    let mut decoder = Decoder::default();
    let (mut at, mut number) = (0, 0u64);
    let mut specials: BTreeMap<String, u64> = BTreeMap::new();
    let start = cpu_seconds();
    while at < code.len() {
        let decoded = decoder.decode(&code[at..], VirtualAddress(at as u64));
        let decoded = decoder.core_instruction(&decoded);
        at += usize::from(decoded.bytes()).max(1);
        number += 1;
        if decoded.special() != Special::None {
            *specials.entry(format!("{:?}", decoded.special())).or_default() += 1;
        }
    }
    let ns = (cpu_seconds() - start) * 1e9 / number as f64;
    println!("{number} instructions, {ns:.0} ns each; special: {specials:?}");
}
