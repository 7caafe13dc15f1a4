//! The lines of the touch loop: data lines (a ring of pointers) and instruction lines (a chain of jumps). Each touches
//! every line of a cache once per pass, and does nothing else.
//!
//! Both orders come from [`lab::footprint::order::two_passes`]: a pass in each direction of a set's lines.

use std::io;

use lab::footprint::order::{Place, two_passes};

use crate::memory::{Pages, Region};

/// Touches lines, a chunk at a time.
pub trait Touch {
    /// Touches the lines of the next chunk.
    fn touch_next_chunk(&mut self);
    /// Number of chunks in a pass over all lines.
    fn chunk_count(&self) -> u64;
    /// Number of lines in each chunk. Multiplied by [`Touch::chunk_count`], this is the number of all lines.
    fn chunk_lines(&self) -> u64;
    /// Makes the next chunk the first one.
    fn rewind(&mut self);
}

/// The placement of a cache's lines in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub sets: u32,
    /// Touched lines of each set.
    pub ways: u32,
    /// Distance of the lines of two neighbouring sets; of a TLB, the size of a page.
    pub line_bytes: u32,
    /// Additional offset of each line, so that the lines for a TLB's entries use different sets of the
    /// caches. 0 for caches. With an offset, lines are in small pages.
    pub skew_bytes: u32,
    /// Unused bytes before the first line. Two loops of one level that both start at a huge page would conflict in
    /// the levels below, too. This offset makes them conflict only in their own level.
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

    /// Allocates the memory: contiguous for caches, in small pages for TLBs.
    fn memory(self) -> io::Result<Region> {
        let is_tlb = self.skew_bytes > 0;
        if is_tlb { Region::in_small_pages(self.bytes()) } else { Region::new(self.bytes()) }
    }

    /// The offset of a line in the memory, bytes.
    fn offset(self, place: Place) -> usize {
        let line = place.way as usize * self.sets as usize + place.set as usize;
        let skew = line * self.skew_bytes as usize % (self.line_bytes as usize).max(1);
        self.from_bytes as usize + line * self.line_bytes as usize + skew / 64 * 64
    }

    /// The smallest divisor of the number of lines that is not below `minimum`. All lines if there is none.
    fn chunk_lines(self, minimum: usize) -> usize {
        let lines = self.lines().max(1) as usize;
        (minimum.max(1)..=lines).find(|size| lines.is_multiple_of(*size)).unwrap_or(lines)
    }
}

/// Data lines: a ring of pointers over two passes.
#[derive(Debug)]
pub struct DataLines {
    /// The slot that the next chunk reads first.
    next: *const u8,
    /// The first slot of the ring.
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
            // A line holds two pointers, one for each of the two passes.
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
        let chunks = (half / chunk_lines) as u64;
        Ok(DataLines { next: start, start, chunk_lines, chunks, region })
    }

    #[must_use]
    pub fn pages(&self) -> Pages {
        self.region.pages
    }
}

impl Touch for DataLines {
    #[inline(always)]
    fn touch_next_chunk(&mut self) {
        let mut next = self.next;
        for _ in 0..self.chunk_lines {
            // SAFETY: `next` is a slot of the ring, and `new` wrote the address of the following slot into each slot.
            // Nothing writes later, and `self` owns the region. Volatile: the compiler keeps each read.
            next = unsafe { next.cast::<*const u8>().read_volatile() };
        }
        self.next = next;
    }

    fn chunk_count(&self) -> u64 {
        self.chunks
    }

    fn chunk_lines(&self) -> u64 {
        self.chunk_lines as u64
    }

    fn rewind(&mut self) {
        self.next = self.start;
    }
}

/// Instruction lines: jumps from line to line, over two passes. Each chunk is a function that returns the next chunk's
/// address.
#[derive(Debug)]
pub struct CodeLines {
    /// Address of the next chunk's code.
    next: usize,
    /// Address of the first chunk's code.
    start: usize,
    chunk_lines: u64,
    chunks: u64,
    region: Region,
}

/// Bytes of a jump with a distance of 32 bits (x86: E9, then the distance from its end).
const JUMP_BYTES: usize = 5;
/// Bytes of the end of a chunk: `lea rax, [rip + distance]` with the start of the next chunk, then `ret`
/// (x86: 48 8D 05, the distance from its end, C3). The code itself has the next address: a table of addresses would
/// displace data lines, and different ones in the two passes.
const END_BYTES: usize = 8;

impl CodeLines {
    /// Writes the code, with about `chunk_lines` lines in a chunk. A line holds two jumps, one for each of the two
    /// passes, so it must have at least 16 bytes.
    ///
    /// Fails when there is no memory, or the kernel forbids executable memory.
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
    /// Does nothing on architectures other than x86-64: [`CodeLines::new`] writes x86 code.
    #[inline(always)]
    fn touch_next_chunk(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `next` is the start of a chunk that `new` wrote into executable memory, which lives as
        // long as `self`: jumps, the address of the next chunk into rax, and a return. The code changes no
        // other register and no flag. It uses the stack for the return address alone, and asm! without
        // `nostack` leaves no red zone in use.
        unsafe {
            std::arch::asm!("call rax", inlateout("rax") self.next);
        }
    }

    fn chunk_count(&self) -> u64 {
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
            let start = lines.next;
            assert_eq!(lines.chunks * lines.chunk_lines as u64, u64::from(shape.lines()));
            for _ in 0..2 * lines.chunk_count() {
                lines.touch_next_chunk();
            }
            assert_eq!(lines.next, start);
        }
    }

    #[test]
    fn code_is_executed_and_returns() {
        let mut lines = CodeLines::new(SHAPE, 1, 32).unwrap();
        for _ in 0..4 * lines.chunk_count() {
            lines.touch_next_chunk();
        }
        assert_eq!((lines.next, lines.chunk_count()), (lines.start, 768 / 32));
    }
}
