//! The combining buffers of non-temporal stores (write-combining buffers). `evict` fills them for
//! [`Tags::store_around`](super::tags::Tags::store_around). Only the stored bytes are tracked here;
//! `times` computes how long a store waits for a buffer.

use std::ops::Range;

use crate::address::LineAddress;

/// No line has this number.
const NO_LINE: LineAddress = LineAddress(u64::MAX);

/// A combining buffer: it collects the non-temporal stores to one line.
#[derive(Clone, Copy, Debug)]
struct CombiningBuffer {
    line: LineAddress,
    /// The stored bytes: a bit for each byte, or for each 64th of a longer line.
    stored: u64,
    /// Whether the line is still incomplete.
    is_open: bool,
    /// Sequence number of the buffer's last opening or closing. 0: never used.
    changed: u64,
}

/// The combining buffers of a core.
#[derive(Clone, Debug)]
pub(super) struct CombiningBuffers {
    buffers: Vec<CombiningBuffer>,
    /// The number of openings and closings of all buffers so far.
    changes: u64,
    line_bytes: u64,
}

/// Maximum number of buffers of a core: it bounds a model with unlimited MSHRs. Buffer numbers are a `u8`.
const COMBINING_MAX: u32 = 64;

impl CombiningBuffers {
    pub(super) fn new(buffers: u32, line_bytes: u64) -> Self {
        let free = CombiningBuffer { line: NO_LINE, stored: 0, is_open: false, changed: 0 };
        let buffers = vec![free; buffers.clamp(1, COMBINING_MAX) as usize];
        CombiningBuffers { buffers, changes: 0, line_bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.buffers.len()
    }

    /// The number of the open buffer of a line. `None` if no open buffer combines the line.
    pub(super) fn find(&self, line: LineAddress) -> Option<u8> {
        let combines_line = |buffer: &CombiningBuffer| buffer.line == line && buffer.is_open;
        self.buffers.iter().position(combines_line).map(|index| index as u8)
    }

    /// Gives a buffer to a line. In this order of preference: the line's last buffer, a buffer that was never used,
    /// the buffer that closed first, the buffer that opened first. Returns the buffer's number, and the incomplete line
    /// that it still held, which must be written now.
    pub(super) fn open(&mut self, line: LineAddress) -> (u8, Option<LineAddress>) {
        let preference =
            |buffer: &CombiningBuffer| (buffer.line != line, buffer.is_open, buffer.changed);
        let buffers = self.buffers.iter().enumerate();
        let index =
            buffers.min_by_key(|(_, buffer)| preference(buffer)).map_or(0, |(index, _)| index);
        self.changes += 1;
        let opened = CombiningBuffer { line, stored: 0, is_open: true, changed: self.changes };
        let before = std::mem::replace(&mut self.buffers[index], opened);
        (index as u8, before.is_open.then_some(before.line))
    }

    /// Stores bytes of the line of a buffer. `bytes`: offsets within the line, not empty. Returns whether the line is
    /// now complete; the buffer is then closed. A line longer than 64 bytes has 64 parts, and a part counts as stored
    /// once any of its bytes is.
    pub(super) fn store(&mut self, buffer: u8, bytes: Range<u64>) -> bool {
        let part = (self.line_bytes / 64).max(1);
        let (first, last) = (bytes.start / part, (bytes.end - 1) / part);
        let mask = (u64::MAX << first) & (u64::MAX >> (63 - last.min(63)));
        let all = u64::MAX >> (64 - self.line_bytes.min(64));
        let buffer = &mut self.buffers[usize::from(buffer)];
        buffer.stored |= mask;
        let is_complete = buffer.stored & all == all;
        if is_complete {
            self.changes += 1;
            (buffer.is_open, buffer.changed) = (false, self.changes);
        }
        is_complete
    }
}
