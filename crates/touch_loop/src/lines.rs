//! Loops that touch each line of a cache once a pass, and do nothing else.

use std::io;

use lab::footprint::order::{Place, two_passes};

use crate::memory::{Pages, Region};

/// Touches lines, a few at a time.
pub trait Touch {
    /// Touches the lines of the next chunk.
    fn chunk(&mut self);
    /// Chunks of a pass over all lines.
    fn chunks(&self) -> u64;
    /// Lines of a chunk, the same in each: times [`Touch::chunks`], it is the number of all lines.
    fn chunk_lines(&self) -> u64;
    /// Starts at the first line again.
    fn rewind(&mut self);
}

/// The placement of a cache's lines in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub sets: u32,
    /// Touched lines of a set.
    pub ways: u32,
    /// Bytes from a set's line to that of the next set.
    pub line_bytes: u32,
    /// Additional offset of each line, so that the lines for a TLB's entries use different sets of the
    /// caches; 0 for caches. With an offset, lines are in small pages.
    pub skew_bytes: u32,
    /// Unused bytes before the first line. With it, two loops of the same level that run in turn conflict
    /// in that level, and not also in the levels below, as they would at the start of a huge page each.
    pub from_bytes: u64,
}

impl Shape {
    #[must_use]
    pub fn lines(self) -> u32 {
        self.sets * self.ways
    }

    #[must_use]
    pub fn bytes(self) -> usize {
        self.from_bytes as usize + self.lines() as usize * self.line_bytes as usize
    }

    /// Allocates the memory: contiguous for caches, in small pages for TLBs, which have one entry a page.
    fn memory(self) -> io::Result<Region> {
        let pages = self.skew_bytes > 0;
        if pages { Region::in_small_pages(self.bytes()) } else { Region::new(self.bytes()) }
    }

    /// The offset of a line.
    fn offset(self, place: Place) -> usize {
        let line = place.way as usize * self.sets as usize + place.set as usize;
        let skew = line * self.skew_bytes as usize % (self.line_bytes as usize).max(1);
        self.from_bytes as usize + line * self.line_bytes as usize + skew / 64 * 64
    }

    /// The smallest divisor of the number of lines that is at least `at_least`; all lines if there is none.
    fn chunk_lines(self, at_least: usize) -> usize {
        let lines = self.lines().max(1) as usize;
        (at_least.max(1)..=lines).find(|size| lines.is_multiple_of(*size)).unwrap_or(lines)
    }
}

/// Data lines: a ring of pointers.
#[derive(Debug)]
pub struct DataLines {
    at: *const u8,
    start: *const u8,
    chunk_lines: usize,
    chunks: u64,
    region: Region,
}

// SAFETY: the pointers point into the region that this value owns.
unsafe impl Send for DataLines {}

impl DataLines {
    /// Writes the ring into new memory, with about `chunk_lines` lines in a chunk.
    ///
    /// Fails when there is no memory.
    pub fn new(shape: Shape, seed: u64, chunk_lines: usize) -> io::Result<Self> {
        let mut region = shape.memory()?;
        let base = region.base() as usize;
        let passes = two_passes(shape.sets, shape.ways, seed);
        let half = passes.len() / 2;
        let slot = |index: usize| {
            let position = passes[index % passes.len()];
            // Each of the two passes has its own pointer in each line.
            shape.offset(position) + usize::from(index % passes.len() >= half) * size_of::<usize>()
        };
        let bytes = region.bytes_mut();
        for index in 0..passes.len() {
            let next = (base + slot(index + 1)).to_ne_bytes();
            let from = slot(index);
            bytes[from..from + next.len()].copy_from_slice(&next);
        }
        let chunk_lines = shape.chunk_lines(chunk_lines);
        let start = (base + slot(0)) as *const u8;
        Ok(DataLines { at: start, start, chunk_lines, chunks: (half / chunk_lines) as u64, region })
    }

    #[must_use]
    pub fn pages(&self) -> Pages {
        self.region.pages
    }
}

impl Touch for DataLines {
    #[inline(always)]
    fn chunk(&mut self) {
        let mut next = self.at;
        for _ in 0..self.chunk_lines {
            // SAFETY: `next` is a slot of the ring, and `new` wrote the address of the next slot into each.
            // Nothing writes later, and `self` owns the region. Volatile: the compiler keeps each read.
            next = unsafe { next.cast::<*const u8>().read_volatile() };
        }
        self.at = next;
    }

    fn chunks(&self) -> u64 {
        self.chunks
    }

    fn chunk_lines(&self) -> u64 {
        self.chunk_lines as u64
    }

    fn rewind(&mut self) {
        self.at = self.start;
    }
}

/// Instruction lines: jumps from line to line.
#[derive(Debug)]
pub struct CodeLines {
    next: usize,
    start: usize,
    chunk_lines: u64,
    chunks: u64,
    region: Region,
}

/// Bytes of a jump with a distance of 32 bits (x86: E9, then the distance from its end).
const JUMP_BYTES: usize = 5;
/// Bytes of the end of a chunk: `lea rax, [rip + distance]` with the start of the next chunk, then `ret`
/// (x86: 48 8D 05, the distance from its end, C3). So no table is read, which would displace data lines,
/// and other ones in a forward pass than in a backward pass.
const END_BYTES: usize = 8;

impl CodeLines {
    /// Writes the code, with about `chunk_lines` lines in a chunk. A line holds two jumps, so it has at least
    /// 16 bytes.
    ///
    /// Fails when there is no memory, or the system forbids to execute it.
    pub fn new(shape: Shape, seed: u64, chunk_lines: usize) -> io::Result<Self> {
        let mut region = shape.memory()?;
        let base = region.base() as usize;
        let passes = two_passes(shape.sets, shape.ways, seed);
        let half = passes.len() / 2;
        let chunk_lines = shape.chunk_lines(chunk_lines);
        let slot = |index: usize| {
            let position = passes[index % passes.len()];
            shape.offset(position) + usize::from(index % passes.len() >= half) * 8
        };
        let bytes = region.bytes_mut();
        for index in 0..passes.len() {
            let (from, to) = (slot(index), slot(index + 1) as i64);
            let distance = |end: usize| i32::try_from(to - end as i64).map_err(io::Error::other);
            if index % chunk_lines == chunk_lines - 1 {
                bytes[from..from + 3].copy_from_slice(&[0x48, 0x8d, 0x05]);
                let distance = distance(from + END_BYTES - 1)?.to_le_bytes();
                bytes[from + 3..from + END_BYTES - 1].copy_from_slice(&distance);
                bytes[from + END_BYTES - 1] = 0xc3;
            } else {
                bytes[from] = 0xe9;
                let distance = distance(from + JUMP_BYTES)?.to_le_bytes();
                bytes[from + 1..from + JUMP_BYTES].copy_from_slice(&distance);
            }
        }
        region.make_executable()?;
        let start = base + slot(0);
        let chunks = (half / chunk_lines) as u64;
        Ok(CodeLines { next: start, start, chunk_lines: chunk_lines as u64, chunks, region })
    }

    #[must_use]
    pub fn pages(&self) -> Pages {
        self.region.pages
    }
}

impl Touch for CodeLines {
    #[inline(always)]
    fn chunk(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `next` is the start of a chunk that `new` wrote into executable memory, which lives as
        // long as `self`: jumps, the address of the next chunk into rax, and a return. The code changes no
        // other register and no flag. It uses the stack for the return address alone, and asm! without
        // `nostack` leaves no red zone in use.
        unsafe {
            std::arch::asm!("call rax", inlateout("rax") self.next);
        }
    }

    fn chunks(&self) -> u64 {
        self.chunks
    }

    fn chunk_lines(&self) -> u64 {
        self.chunk_lines
    }

    fn rewind(&mut self) {
        self.next = self.start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { sets: 64, ways: 12, line_bytes: 64, skew_bytes: 0, from_bytes: 0 };

    #[test]
    fn a_ring_returns_to_its_start_after_two_passes() {
        for shape in
            [SHAPE, Shape { sets: 1, ways: 64, line_bytes: 4096, skew_bytes: 64, from_bytes: 8192 }]
        {
            let mut lines = DataLines::new(shape, 1, 1).unwrap();
            let start = lines.at;
            assert_eq!(lines.chunks * lines.chunk_lines as u64, u64::from(shape.lines()));
            for _ in 0..2 * lines.chunks() {
                lines.chunk();
            }
            assert_eq!(lines.at, start);
        }
    }

    #[test]
    fn code_is_executed_and_returns() {
        let mut lines = CodeLines::new(SHAPE, 1, 32).unwrap();
        for _ in 0..4 * lines.chunks() {
            lines.chunk();
        }
        assert_eq!((lines.next, lines.chunks()), (lines.start, 768 / 32));
    }
}
