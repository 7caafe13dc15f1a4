//! The combining buffers of non-temporal stores.

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
    /// Whether the line is being combined.
    is_open: bool,
    /// Sequence number of its last opening or closing; 0 if it was never used.
    changed: u64,
}

/// The combining buffers of a core.
#[derive(Clone, Debug)]
pub(super) struct CombiningBuffers {
    buffers: Vec<CombiningBuffer>,
    /// Openings and closings so far, of all buffers.
    changes: u64,
    line_bytes: u64,
}

/// The most buffers of a core. It bounds a model with unlimited MSHRs; numbers fit a `u8`.
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

    /// The number of the buffer that combines a line, if one does.
    pub(super) fn find(&self, line: LineAddress) -> Option<u8> {
        let combines_line = |buffer: &CombiningBuffer| buffer.line == line && buffer.is_open;
        self.buffers.iter().position(combines_line).map(|index| index as u8)
    }

    /// Gives a buffer to a line: the one that the line had last, or else one that was never used, or else the one that
    /// was completed first, or else the one that was opened first. Returns the buffer's number, and whether it still
    /// held an incomplete line, which is written now.
    pub(super) fn open(&mut self, line: LineAddress) -> (u8, bool) {
        let order =
            |buffer: &CombiningBuffer| (buffer.line != line, buffer.is_open, buffer.changed);
        let buffers = self.buffers.iter().enumerate();
        let index = buffers.min_by_key(|(_, buffer)| order(buffer)).map_or(0, |(index, _)| index);
        self.changes += 1;
        let opened = CombiningBuffer { line, stored: 0, is_open: true, changed: self.changes };
        let before = std::mem::replace(&mut self.buffers[index], opened);
        (index as u8, before.is_open)
    }

    /// Stores these bytes of the line of a buffer: not empty, offsets within the line. If that completes the line, the
    /// buffer is closed. Returns whether it does. In lines longer than 64 bytes, a 64th counts as stored once any of its
    /// bytes is.
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
