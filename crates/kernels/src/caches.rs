//! Latency and bandwidth by the size of the memory.

use std::arch::asm;

use stats::Random;

use crate::memory::{Kind, Pages};
use crate::{Body, Executed, Group, Kernel, Made, Rounds};

const LINE_BYTES: usize = 64;
/// Links followed by an unrolled step.
const UNROLLED: u64 = 16;
/// Seed of all orders.
const SEED: u64 = 1;
const KIB: usize = 1 << 10;
/// Memory of at most this number of lines is read before it is timed.
const WARMED_PLACES: u64 = (16 << 20) / LINE_BYTES as u64;

pub(crate) fn kernels() -> Vec<Kernel> {
    chases().into_iter().chain(parallel()).chain(streams()).collect()
}

fn chases() -> Vec<Kernel> {
    use Kind::{Large, Small};
    let about_small = "Loads in a chain through lines in no order, in pages of 4 KiB.";
    let about_large = "Loads in a chain through lines in no order, in pages of 2 MiB.";
    let list = [
        ("chase_4k", 4, Small, false),
        ("chase_16k", 16, Small, false),
        ("chase_24k", 24, Small, false),
        ("chase_64k", 64, Small, false),
        ("chase_128k_2m", 128, Large, false),
        ("chase_256k", 256, Small, false),
        ("chase_256k_2m", 256, Large, false),
        ("chase_384k_2m", 384, Large, false),
        ("chase_768k_2m", 768, Large, false),
        ("chase_2m_2m", 2048, Large, true),
        ("chase_4m", 4096, Small, true),
        ("chase_4m_2m", 4096, Large, true),
        ("chase_16m_2m", 16384, Large, true),
        ("chase_128m", 131_072, Small, true),
        ("chase_128m_2m", 131_072, Large, true),
    ];
    let kernel = |(name, kib, kind, is_shared): (&'static str, usize, Kind, bool)| {
        let about = if kind == Large { about_large } else { about_small };
        let make = move || Ok(Box::new(Chase::new(kib * KIB, kind)?) as Box<dyn Body>);
        let kernel = Kernel::new(Group::Caches, (name, "load", about), make);
        if is_shared { kernel.shared() } else { kernel }
    };
    list.map(kernel).into()
}

fn parallel() -> Vec<Kernel> {
    let kernel = |(name, kib): (&'static str, usize)| {
        let about = "Loads in eight chains at the same time, in pages of 2 MiB.";
        let make = move || Ok(Box::new(Chains::new(kib * KIB)?) as Box<dyn Body>);
        Kernel::new(Group::Caches, (name, "load", about), make).shared()
    };
    [("parallel_4m_2m", 4096), ("parallel_128m_2m", 131_072)].map(kernel).into()
}

fn streams() -> Vec<Kernel> {
    use Kind::{Large, Small};
    use Transfer::{Copy, Read, Write};
    let list = [
        ("read_16k", 16, Small, Read, false),
        ("read_256k", 256, Small, Read, false),
        ("read_4m", 4096, Large, Read, true),
        ("read_128m", 131_072, Small, Read, true),
        ("read_128m_2m", 131_072, Large, Read, true),
        ("write_16k", 16, Small, Write, false),
        ("write_256k", 256, Small, Write, false),
        ("write_4m", 4096, Large, Write, true),
        ("write_128m_2m", 131_072, Large, Write, true),
        ("copy_16k", 16, Small, Copy, false),
        ("copy_4m", 4096, Large, Copy, true),
    ];
    let kernel =
        |(name, kib, kind, transfer, is_shared): (&'static str, usize, Kind, Transfer, bool)| {
            let about = match transfer {
                Read => "Lines read in order, by 16 bytes.",
                Write => "Lines written in order, by 16 bytes.",
                Copy => {
                    "Lines copied in order from one half of the memory to the other, by 16 bytes."
                }
            };
            let make =
                move || Ok(Box::new(Stream::new(kib * KIB, kind, transfer)?) as Box<dyn Body>);
            let kernel = Kernel::new(Group::Caches, (name, "line", about), make);
            if is_shared { kernel.shared() } else { kernel }
        };
    list.map(kernel).into()
}

/// A ring of addresses: each place holds the address of the next one.
pub(crate) struct Ring {
    _memory: Pages,
    at: *const u8,
    places: u64,
}

impl Ring {
    /// A ring through `place(0)` to `place(number - 1)` of the memory, in no order.
    pub(crate) fn new(mut memory: Pages, number: usize, place: impl Fn(usize) -> usize) -> Ring {
        let mut order: Vec<u32> = (0..number as u32).collect();
        Random::new(SEED).shuffle(&mut order);
        let base = memory.base().as_ptr();
        let nth_place = |index: usize| place(order[index % number] as usize);
        let bytes = memory.bytes_mut();
        for index in 0..number {
            let next = (base as usize + nth_place(index + 1)).to_ne_bytes();
            bytes[nth_place(index)..][..next.len()].copy_from_slice(&next);
        }
        let first = base.wrapping_add(nth_place(0));
        Ring { _memory: memory, at: first, places: number as u64 }
    }

    /// Follows this number of links, rounded up to a multiple of [`UNROLLED`].
    pub(crate) fn walk(&mut self, links: u64) -> u64 {
        let rounds = links.div_ceil(UNROLLED);
        // SAFETY: `at` is a place of the ring. `new` wrote the address of the next place into each. This value
        // owns the memory.
        unsafe {
            asm!(
                ".p2align 6", "2:", ".rept 16", "mov {at}, [{at}]", ".endr", "dec {rounds}", "jnz 2b",
                at = inout(reg) self.at,
                rounds = inout(reg) rounds => _,
                options(readonly, nostack),
            );
        }
        rounds * UNROLLED
    }

    /// Fills caches and TLBs with the ring: walks it twice, or 20,000 links of a ring too large to warm.
    pub(crate) fn warm(&mut self) {
        self.walk(if self.places <= WARMED_PLACES { self.places * 2 } else { 20_000 });
    }

    /// Links of a window: all places a few times, or a part of them.
    pub(crate) fn links(&self) -> u64 {
        if self.places <= 1024 { 16_000 } else { 4_800 }
    }
}

pub(crate) struct Chase {
    ring: Ring,
    is_warm: bool,
}

impl Chase {
    fn new(bytes: usize, kind: Kind) -> Result<Chase, String> {
        let ring =
            Ring::new(Pages::new(bytes, kind)?, bytes / LINE_BYTES, |line| line * LINE_BYTES);
        Ok(Chase::through(ring))
    }

    pub(crate) fn through(ring: Ring) -> Chase {
        Chase { ring, is_warm: false }
    }
}

impl Body for Chase {
    fn prepare(&mut self) {
        if !std::mem::replace(&mut self.is_warm, true) {
            self.ring.warm();
        }
    }

    fn run(&mut self, rounds: u64) -> Executed {
        Executed::whole(self.ring.walk(rounds))
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(self.ring.links())
    }
}

/// Loads in eight chains.
struct Chains {
    ring: Ring,
    is_warm: bool,
    at: [*const u8; 8],
    links: u64,
}

impl Chains {
    fn new(bytes: usize) -> Result<Chains, String> {
        let memory = Pages::new(bytes, Kind::Large)?;
        let (base, lines) = (memory.base().as_ptr(), bytes / LINE_BYTES);
        let ring = Ring::new(memory, lines, |line| line * LINE_BYTES);
        let starts = [0, 1, 2, 3, 4, 5, 6, 7].map(|chain: usize| {
            base.wrapping_add((lines / 8 * chain + chain * 37) % lines * LINE_BYTES).cast_const()
        });
        Ok(Chains { ring, is_warm: false, at: starts, links: 1_000 })
    }
}

impl Body for Chains {
    fn prepare(&mut self) {
        if !std::mem::replace(&mut self.is_warm, true) {
            self.ring.warm();
        }
    }

    fn run(&mut self, rounds: u64) -> Executed {
        let [a, b, c, d, e, f, g, h] = &mut self.at;
        // SAFETY: each address is a place of the ring, which is a line's first bytes and holds the
        // address of the next one.
        unsafe {
            asm!(
                ".p2align 6", "2:",
                "mov {a}, [{a}]", "mov {b}, [{b}]", "mov {c}, [{c}]", "mov {d}, [{d}]",
                "mov {e}, [{e}]", "mov {f}, [{f}]", "mov {g}, [{g}]", "mov {h}, [{h}]",
                "dec {rounds}", "jnz 2b",
                a = inout(reg) *a, b = inout(reg) *b, c = inout(reg) *c, d = inout(reg) *d,
                e = inout(reg) *e, f = inout(reg) *f, g = inout(reg) *g, h = inout(reg) *h,
                rounds = inout(reg) rounds.max(1) => _,
                options(readonly, nostack),
            );
        }
        Executed::whole(rounds.max(1) * 8)
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(self.links)
    }
}

/// The operation on each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    Read,
    Write,
    Copy,
}

/// Lines in order: each window goes on where the one before it ended.
struct Stream {
    memory: Pages,
    bytes: usize,
    transfer: Transfer,
    at: usize,
    is_warm: bool,
}

/// Bytes that a window goes through.
const STREAM_WINDOW_BYTES: usize = 256 * KIB;
/// Bytes at the start of a stream from memory that are removed from the caches: what its first windows go through. A
/// simulated machine prepares memory without its caches, which may have lines of an earlier use of the same pages.
const FLUSHED_BYTES: usize = 8 << 20;

impl Stream {
    fn new(bytes: usize, kind: Kind, transfer: Transfer) -> Result<Stream, String> {
        let memory = Pages::new(bytes, kind)?;
        let bytes = if transfer == Transfer::Copy { bytes / 2 } else { bytes };
        Ok(Stream { memory, bytes, transfer, at: 0, is_warm: false })
    }

    fn flush(&self) {
        for line in (0..self.bytes.min(FLUSHED_BYTES)).step_by(LINE_BYTES) {
            // SAFETY: the line is within the memory, and its content stays.
            unsafe { std::arch::x86_64::_mm_clflush(self.memory.base().as_ptr().add(line)) };
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    fn part(&self, bytes: usize) {
        let start = self.memory.base().as_ptr().wrapping_add(self.at);
        let end = start.wrapping_add(bytes);
        // SAFETY: from `start` to `end`, a multiple of 64 bytes, is within the memory, and for a copy
        // so is the same range `self.bytes` later. Vector registers are declared.
        unsafe {
            match self.transfer {
                Transfer::Read => asm!(
                    ".p2align 6", "2:",
                    "movdqa xmm0, [{at}]", "movdqa xmm1, [{at} + 16]",
                    "movdqa xmm2, [{at} + 32]", "movdqa xmm3, [{at} + 48]",
                    "add {at}, 64", "cmp {at}, {end}", "jb 2b",
                    at = inout(reg) start => _, end = in(reg) end,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    options(nostack),
                ),
                Transfer::Write => asm!(
                    "pxor xmm0, xmm0", ".p2align 6", "2:",
                    "movdqa [{at}], xmm0", "movdqa [{at} + 16], xmm0",
                    "movdqa [{at} + 32], xmm0", "movdqa [{at} + 48], xmm0",
                    "add {at}, 64", "cmp {at}, {end}", "jb 2b",
                    at = inout(reg) start => _, end = in(reg) end, out("xmm0") _,
                    options(nostack),
                ),
                Transfer::Copy => asm!(
                    ".p2align 6", "2:",
                    "movdqa xmm0, [{at}]", "movdqa xmm1, [{at} + 16]",
                    "movdqa xmm2, [{at} + 32]", "movdqa xmm3, [{at} + 48]",
                    "movdqa [{at} + {by}], xmm0", "movdqa [{at} + {by} + 16], xmm1",
                    "movdqa [{at} + {by} + 32], xmm2", "movdqa [{at} + {by} + 48], xmm3",
                    "add {at}, 64", "cmp {at}, {end}", "jb 2b",
                    at = inout(reg) start => _, end = in(reg) end, by = in(reg) self.bytes,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    options(nostack),
                ),
            }
        }
    }
}

impl Body for Stream {
    fn prepare(&mut self) {
        if std::mem::replace(&mut self.is_warm, true) {
            return;
        }
        if (self.bytes / LINE_BYTES) as u64 <= WARMED_PLACES {
            self.part(self.bytes);
        } else {
            self.flush();
        }
    }

    fn run(&mut self, rounds: u64) -> Executed {
        let bytes = self.bytes.min(STREAM_WINDOW_BYTES);
        for _ in 0..rounds {
            self.part(bytes);
            self.at = (self.at + bytes) % self.bytes;
        }
        Executed::whole(rounds * (bytes / LINE_BYTES) as u64)
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed((STREAM_WINDOW_BYTES / self.bytes).clamp(1, 8) as u64)
    }
}

/// A chase through lines of pages, one a page.
pub(crate) fn chase_of_pages(pages: usize, kind: Kind) -> Made {
    let memory = Pages::new(pages * 4096, kind)?;
    // Another line in each page, so that not all are in the same sets of a cache.
    let offset = |page: usize| page * 4096 + (page * 5 + (page >> 6)) % 64 * LINE_BYTES;
    Ok(Box::new(Chase::through(Ring::new(memory, pages, offset))))
}
