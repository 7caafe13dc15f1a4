//! Kernels of group `caches`: latency and bandwidth of loads and stores, by the size of the memory. Group `tlbs` uses
//! the chains of loads of this file too.

use std::arch::asm;

use stats::Random;

use crate::memory::{Kind, Pages};
use crate::{Body, Executed, Group, Kernel, Made, Rounds};

const LINE_BYTES: usize = 64;
/// Links that an iteration of the unrolled loop follows.
const UNROLLED: u64 = 16;
/// Seed of the random order of lines.
const SEED: u64 = 1;
const KIB: usize = 1 << 10;
/// A ring or stream of at most this number of lines is walked once before the first window, to fill the caches.
const WARMED_LINES: u64 = (16 << 20) / LINE_BYTES as u64;

pub(crate) fn kernels() -> Vec<Kernel> {
    chases().into_iter().chain(parallel()).chain(streams()).collect()
}

/// Chains of loads, which show the latency.
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

/// Several chains at the same time, which show how many misses overlap.
fn parallel() -> Vec<Kernel> {
    let kernel = |(name, kib): (&'static str, usize)| {
        let about = "Loads in eight chains at the same time, in pages of 2 MiB.";
        let make = move || Ok(Box::new(Chains::new(kib * KIB)?) as Box<dyn Body>);
        Kernel::new(Group::Caches, (name, "load", about), make).shared()
    };
    [("parallel_4m_2m", 4096), ("parallel_128m_2m", 131_072)].map(kernel).into()
}

/// Lines read, written or copied in order, which show the bandwidth.
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

/// A ring of slots in memory. Each slot holds the address of the next slot, so a walk is a chain of dependent loads.
pub(crate) struct Ring {
    /// Owns the memory of the slots.
    _memory: Pages,
    /// Where the next walk starts.
    slot: *const u8,
    slots: u64,
}

impl Ring {
    /// A ring of `count` slots in random order. `offset` gives the byte in the memory of slots 0 to `count` - 1.
    pub(crate) fn new(mut memory: Pages, count: usize, offset: impl Fn(usize) -> usize) -> Ring {
        let mut order: Vec<u32> = (0..count as u32).collect();
        Random::new(SEED).shuffle(&mut order);
        let base = memory.base().as_ptr();
        let nth_offset = |index: usize| offset(order[index % count] as usize);
        let bytes = memory.bytes_mut();
        for index in 0..count {
            let next = (base as usize + nth_offset(index + 1)).to_ne_bytes();
            bytes[nth_offset(index)..][..next.len()].copy_from_slice(&next);
        }
        let first = base.wrapping_add(nth_offset(0));
        Ring { _memory: memory, slot: first, slots: count as u64 }
    }

    /// Follows this number of links, rounded up to a multiple of [`UNROLLED`]. Returns the rounded number.
    pub(crate) fn walk(&mut self, links: u64) -> u64 {
        let rounds = links.div_ceil(UNROLLED);
        // SAFETY: the address is that of a slot. `new` wrote the address of the next slot into each. This value owns
        // the memory.
        unsafe {
            asm!(
                ".p2align 6", "2:", ".rept 16", "mov {at}, [{at}]", ".endr", "dec {rounds}", "jnz 2b",
                at = inout(reg) self.slot,
                rounds = inout(reg) rounds => _,
                options(readonly, nostack),
            );
        }
        rounds * UNROLLED
    }

    /// Fills caches and TLBs: walks the ring twice, or 20,000 links of a ring that does not fit into caches.
    pub(crate) fn warm(&mut self) {
        self.walk(if self.slots <= WARMED_LINES { self.slots * 2 } else { 20_000 });
    }

    /// Links that a window follows: all slots of a small ring several times, or some slots of a large one.
    pub(crate) fn links(&self) -> u64 {
        if self.slots <= 1024 { 16_000 } else { 4_800 }
    }
}

/// The body of a kernel with one chain of loads.
pub(crate) struct Chase {
    ring: Ring,
    is_warm: bool,
}

impl Chase {
    /// A chain through all lines of memory of this size.
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

/// The body of a kernel with eight chains of loads at the same time. All walk one ring, from different slots.
struct Chains {
    ring: Ring,
    is_warm: bool,
    /// Where the chains' next loads are.
    slots: [*const u8; 8],
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
        Ok(Chains { ring, is_warm: false, slots: starts, links: 1_000 })
    }
}

impl Body for Chains {
    fn prepare(&mut self) {
        if !std::mem::replace(&mut self.is_warm, true) {
            self.ring.warm();
        }
    }

    fn run(&mut self, rounds: u64) -> Executed {
        let [a, b, c, d, e, f, g, h] = &mut self.slots;
        // SAFETY: each address is that of a slot of the ring, which is the start of a line and holds the address of
        // the next slot.
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

/// The operation of a stream on each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    Read,
    Write,
    Copy,
}

/// The body of a kernel that goes through lines in order. Each window continues where the window before it ended.
struct Stream {
    memory: Pages,
    /// Length of the memory that is read or written. A copy's destination is directly after the source.
    bytes: usize,
    transfer: Transfer,
    /// Where the next window starts, in bytes.
    offset: usize,
    is_warm: bool,
}

/// Bytes that a window goes through, if the stream is as long.
const STREAM_WINDOW_BYTES: usize = 256 * KIB;
/// Bytes at the start of a large stream, which its first windows use, that are flushed from the caches. A simulated
/// machine prepares memory without simulating its caches: these could still hold lines from an earlier use of the
/// pages.
const FLUSHED_BYTES: usize = 8 << 20;

impl Stream {
    fn new(bytes: usize, kind: Kind, transfer: Transfer) -> Result<Stream, String> {
        let memory = Pages::new(bytes, kind)?;
        let bytes = if transfer == Transfer::Copy { bytes / 2 } else { bytes };
        Ok(Stream { memory, bytes, transfer, offset: 0, is_warm: false })
    }

    /// Removes the start of the stream from all caches.
    fn flush(&self) {
        for line in (0..self.bytes.min(FLUSHED_BYTES)).step_by(LINE_BYTES) {
            // SAFETY: the line is within the memory, and its content stays.
            unsafe { std::arch::x86_64::_mm_clflush(self.memory.base().as_ptr().add(line)) };
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Reads, writes or copies the lines of `bytes` from the present offset. The sum must not exceed `self.bytes`.
    fn transfer_lines(&self, bytes: usize) {
        let start = self.memory.base().as_ptr().wrapping_add(self.offset);
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
        if (self.bytes / LINE_BYTES) as u64 <= WARMED_LINES {
            self.transfer_lines(self.bytes);
        } else {
            self.flush();
        }
    }

    fn run(&mut self, rounds: u64) -> Executed {
        let bytes = self.bytes.min(STREAM_WINDOW_BYTES);
        for _ in 0..rounds {
            self.transfer_lines(bytes);
            self.offset = (self.offset + bytes) % self.bytes;
        }
        Executed::whole(rounds * (bytes / LINE_BYTES) as u64)
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed((STREAM_WINDOW_BYTES / self.bytes).clamp(1, 8) as u64)
    }
}

/// The body of a kernel with a chain of loads, one from each 4 KiB of memory. `pages` counts pages of 4 KiB.
pub(crate) fn chase_of_pages(pages: usize, kind: Kind) -> Made {
    let memory = Pages::new(pages * 4096, kind)?;
    // The line differs from page to page. Otherwise all slots would fall into the same few sets of a cache.
    let offset = |page: usize| page * 4096 + (page * 5 + (page >> 6)) % 64 * LINE_BYTES;
    Ok(Box::new(Chase::through(Ring::new(memory, pages, offset))))
}
