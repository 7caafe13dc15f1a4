//! Repeated string instructions: microcode that copies or fills memory by wide accesses.
//!
//! QEMU executes each repetition as an instruction. The first one of a string takes the start-up
//! time; each one that starts a chunk is an instruction with its accesses, one per cycle; all others
//! are a part of the access before them, and cost nothing. A chunk ends at its length, and where the
//! source or the destination comes to another line: so each line is accessed, and strings that are
//! not aligned to each other take more cycles.

use super::Access;
use super::model::StringsModel;

/// The lines of a string's accesses.
const LINE_SHIFT: u32 = 6;

/// What a repetition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    /// The first one of a string.
    First,
    /// The first one of a chunk.
    Chunk,
    /// One whose bytes an earlier one of its chunk has accessed.
    Within,
}

/// The string that executes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strings {
    pub(super) model: StringsModel,
    /// The address of the instruction.
    address: u64,
    /// How many instructions had retired, and interrupts been taken, after its last repetition: if
    /// there are more, the string is over.
    after: (u64, u64),
    /// The lines of source and destination of the chunk.
    lines: [u64; 2],
    /// The bytes of the chunk so far.
    bytes: u32,
}

impl Strings {
    pub(super) fn new(model: StringsModel) -> Strings {
        Strings { model, address: 0, after: (u64::MAX, 0), lines: [0; 2], bytes: 0 }
    }

    /// What the next repetition is, of the instruction at `address`; `now` counts instructions and
    /// interrupts so far.
    #[inline]
    pub(super) fn next(
        &mut self,
        address: u64,
        accesses: &[Access],
        now: (u64, u64),
    ) -> Repetition {
        let mut lines = [u64::MAX; 2];
        let mut bytes = 0;
        for access in accesses {
            lines[usize::from(access.write)] = access.virtual_address >> LINE_SHIFT;
            bytes = u32::from(access.bytes);
        }
        let goes_on = self.address == address && self.after == now;
        if goes_on && (accesses.is_empty() || self.has_room(lines, bytes)) {
            self.bytes += bytes;
            return Repetition::Within;
        }
        (self.address, self.lines, self.bytes) = (address, lines, bytes);
        if goes_on { Repetition::Chunk } else { Repetition::First }
    }

    fn has_room(&self, lines: [u64; 2], bytes: u32) -> bool {
        self.lines == lines && self.bytes + bytes <= self.model.chunk_bytes
    }

    /// A repetition has executed; `now` as in [`Strings::next`].
    #[inline]
    pub(super) fn executed(&mut self, now: (u64, u64)) {
        self.after = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(virtual_address: u64, write: bool) -> Access {
        Access { virtual_address, physical: Some(virtual_address), instruction: 0, bytes: 8, write }
    }

    /// The repetitions of a copy from one address to another, of which each is recorded as executed.
    fn copy(from: u64, to: u64, times: u64) -> Vec<Repetition> {
        let model = StringsModel { copy_start_cycles: 9, fill_start_cycles: 9, chunk_bytes: 32 };
        let mut strings = Strings::new(model);
        let each = |number: u64| {
            let accesses = [access(from + 8 * number, false), access(to + 8 * number, true)];
            let kind = strings.next(0x1000, &accesses, (number, 0));
            strings.executed((number + 1, 0));
            kind
        };
        (0..times).map(each).collect()
    }

    #[test]
    fn chunks_end_at_their_length_and_at_lines() {
        use Repetition::{Chunk, First, Within};
        let rest = [Within; 3];
        assert_eq!(copy(0, 0x2000, 8), [&[First][..], &rest, &[Chunk], &rest].concat());
        // The destination comes to a line after two, and then the source.
        let apart = [First, Within, Chunk, Within, Within, Within, Chunk, Within, Chunk, Within];
        assert_eq!(copy(0, 0x2030, 10), apart);
    }

    #[test]
    fn another_instruction_or_an_interrupt_ends_a_string() {
        let model = StringsModel { copy_start_cycles: 9, fill_start_cycles: 9, chunk_bytes: 32 };
        let mut strings = Strings::new(model);
        let store = [access(0x2000, true)];
        assert_eq!(strings.next(0x1000, &store, (5, 0)), Repetition::First);
        strings.executed((6, 0));
        // The last one, with a count of zero, accesses nothing.
        assert_eq!(strings.next(0x1000, &[], (6, 0)), Repetition::Within);
        assert_eq!(strings.next(0x1000, &store, (7, 0)), Repetition::First);
        strings.executed((8, 0));
        assert_eq!(strings.next(0x1000, &store, (8, 1)), Repetition::First);
        strings.executed((9, 1));
        assert_eq!(strings.next(0x3000, &store, (9, 1)), Repetition::First);
    }
}
