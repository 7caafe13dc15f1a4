//! Repeated string instructions (`rep movs` and others): microcode that copies, fills or reads memory by wide accesses.
//! The out-of-order core uses this for models with [`StringsModel`]; see `out_of_order/repeat.rs`.
//!
//! QEMU executes each repetition as an instruction. The first repetition of a string takes the start-up time. Each
//! repetition that starts a chunk is an instruction with the chunk's accesses; a limited number of chunks enters per
//! cycle. All other repetitions belong to the access before them, and cost nothing. A chunk ends at its maximum length,
//! and where source or destination reach another line. So each line is accessed, and strings that are not aligned to
//! each other take more cycles.
//!
//! The length of a string is not known at its start. The extra cost of a long string is added when the string turns
//! out to be long.

use super::Access;
use super::instruction::StringOperation;
use super::model::StringsModel;
use crate::address::VirtualAddress;
use crate::counts::Instructions;

/// The logarithm of the line size at which chunks end.
const LINE_SHIFT: u32 = 6;

/// The position of a repetition in its string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    /// The first repetition of a string.
    First,
    /// The first repetition of a later chunk.
    Chunk,
    /// A repetition whose bytes belong to the access of an earlier repetition.
    Within,
}

/// How far a processor has come: tells whether anything executed between two repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of instructions that have executed.
    pub(super) instructions: Instructions,
    /// Number of interrupts and exceptions that were taken.
    pub(super) interrupts: u64,
}

impl Progress {
    /// The progress after another instruction.
    pub(super) fn after_instruction(self) -> Progress {
        Progress { instructions: self.instructions + Instructions(1), ..self }
    }
}

/// The state of the string that executes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strings {
    model: StringsModel,
    /// The address of the instruction.
    address: VirtualAddress,
    /// The progress after the string's last repetition. If the processor is further, the string is over.
    after: Option<Progress>,
    /// The lines of the chunk's source and destination.
    lines: [u64; 2],
    /// The bytes of the chunk so far.
    bytes: u32,
    /// The chunks that have entered in the current cycle.
    chunks: u32,
    /// How many more bytes the string may have to stay short. `None`: the string is long.
    short_bytes_left: Option<u32>,
    /// Whether the last repetition turned the string from short to long.
    has_become_long: bool,
}

impl Strings {
    pub(super) fn new(model: StringsModel) -> Strings {
        Strings {
            model,
            address: VirtualAddress::default(),
            after: None,
            lines: [0; 2],
            bytes: 0,
            chunks: 0,
            short_bytes_left: None,
            has_become_long: false,
        }
    }

    /// Whether microcode executes an operation. Otherwise each repetition is an ordinary instruction.
    #[inline]
    pub(super) fn executes(&self, operation: StringOperation) -> bool {
        match operation {
            StringOperation::Copy | StringOperation::Fill => true,
            StringOperation::Load => self.model.load_start_cycles.is_some(),
            StringOperation::Compare | StringOperation::Scan => {
                self.model.compare_start_cycles.is_some()
            }
        }
    }

    /// Cycles that each repetition takes. Zero: the repetitions of a chunk take no time of their own.
    fn repetition_cycles(&self, operation: StringOperation) -> u32 {
        match operation {
            StringOperation::Copy | StringOperation::Fill => 0,
            StringOperation::Load => self.model.load_cycles,
            StringOperation::Compare => self.model.compare_cycles,
            StringOperation::Scan => self.model.scan_cycles,
        }
    }

    /// Classifies the next repetition, of the instruction at `address`, when the processor has come to `now`.
    #[inline]
    pub(super) fn next(
        &mut self,
        operation: StringOperation,
        address: VirtualAddress,
        accesses: &[Access],
        now: Progress,
    ) -> Repetition {
        let mut lines = [u64::MAX; 2];
        let mut bytes = 0;
        for (number, access) in accesses.iter().enumerate() {
            let stream = match operation {
                StringOperation::Compare => number.min(1),
                _ => usize::from(access.write),
            };
            lines[stream] = access.virtual_address.block_number(LINE_SHIFT);
            bytes = u32::from(access.bytes);
        }
        let continues = self.address == address && self.after == Some(now);
        if !continues {
            let is_short = bytes <= self.model.short_element_bytes && self.model.short_bytes > 0;
            self.short_bytes_left = is_short.then_some(self.model.short_bytes);
        }
        self.has_become_long = self.take_short_bytes(bytes);
        let may_share =
            operation != StringOperation::Load && self.repetition_cycles(operation) == 0;
        if continues && (accesses.is_empty() || may_share && self.has_room(lines, bytes)) {
            self.bytes += bytes;
            return Repetition::Within;
        }
        (self.address, self.lines, self.bytes) = (address, lines, bytes);
        if continues {
            return Repetition::Chunk;
        }
        self.chunks = 0;
        Repetition::First
    }

    /// Adds `bytes` to the string. Returns whether they turn a short string into a long one.
    fn take_short_bytes(&mut self, bytes: u32) -> bool {
        let Some(bytes_left) = self.short_bytes_left else { return false };
        self.short_bytes_left = bytes_left.checked_sub(bytes);
        self.short_bytes_left.is_none()
    }

    /// Whether `bytes` in these lines still belong to the current chunk.
    fn has_room(&self, lines: [u64; 2], bytes: u32) -> bool {
        self.lines == lines && self.bytes + bytes <= self.model.chunk_bytes
    }

    /// Enters a chunk: call it once for each repetition that is not [`Repetition::Within`]. Returns whether the chunk
    /// is the last that enters in its cycle, so that the next one needs a new cycle.
    #[inline]
    pub(super) fn enter_chunk(&mut self) -> bool {
        self.chunks += 1;
        let is_last_of_cycle = self.chunks >= self.model.chunks_per_cycle;
        if is_last_of_cycle {
            self.chunks = 0;
        }
        is_last_of_cycle
    }

    /// Cycles that the next instruction waits after the repetition that was classified last. `None`: no wait.
    #[inline]
    pub(super) fn wait_cycles(
        &self,
        operation: StringOperation,
        repetition: Repetition,
    ) -> Option<u64> {
        let (model, is_first) = (&self.model, repetition == Repetition::First);
        let (long, short) = match operation {
            StringOperation::Copy => (model.copy_start_cycles, model.short_copy_start_cycles),
            StringOperation::Fill => (model.fill_start_cycles, model.short_fill_start_cycles),
            StringOperation::Load | StringOperation::Compare | StringOperation::Scan => {
                let start = match operation {
                    StringOperation::Load => model.load_start_cycles,
                    _ => model.compare_start_cycles,
                };
                let start = if is_first { start.unwrap_or(0) } else { 0 };
                let is_within = repetition == Repetition::Within;
                let own = if is_within { 0 } else { self.repetition_cycles(operation) };
                let wait = u64::from(start + own);
                return (wait > 0).then_some(wait);
            }
        };
        if self.has_become_long {
            return Some(long.saturating_sub(short).into());
        }
        let start = if self.short_bytes_left.is_some() { short } else { long };
        is_first.then_some(start.into())
    }

    /// Notes that a repetition has executed, and that the processor has come to `now`.
    #[inline]
    pub(super) fn executed(&mut self, now: Progress) {
        self.after = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::PhysicalAddress;

    const OF: StringOperation = StringOperation::Copy;

    const STRING: VirtualAddress = VirtualAddress(0x1000);

    fn access(address: u64, write: bool) -> Access {
        let virtual_address = VirtualAddress(address);
        let physical = Some(PhysicalAddress(address));
        Access { virtual_address, physical, instruction: 0, bytes: 8, write }
    }

    fn model(chunk_bytes: u32) -> StringsModel {
        StringsModel {
            copy_start_cycles: 30,
            fill_start_cycles: 20,
            chunk_bytes,
            chunks_per_cycle: 2,
            short_bytes: 4,
            short_element_bytes: 1,
            short_copy_start_cycles: 9,
            short_fill_start_cycles: 8,
            load_start_cycles: Some(50),
            load_cycles: 2,
            compare_start_cycles: None,
            compare_cycles: 0,
            scan_cycles: 0,
        }
    }

    fn progress(instructions: u64, interrupts: u64) -> Progress {
        Progress { instructions: Instructions(instructions), interrupts }
    }

    /// Copies `times` elements of 8 bytes, and returns how each repetition executes.
    fn copy(from: u64, to: u64, times: u64) -> Vec<Repetition> {
        let mut strings = Strings::new(model(32));
        let each = |number: u64| {
            let accesses = [access(from + 8 * number, false), access(to + 8 * number, true)];
            let kind = strings.next(OF, STRING, &accesses, progress(number, 0));
            strings.executed(progress(number + 1, 0));
            kind
        };
        (0..times).map(each).collect()
    }

    #[test]
    fn chunks_end_at_their_length_and_at_lines() {
        use Repetition::{Chunk, First, Within};
        let three_within = [Within; 3];
        assert_eq!(
            copy(0, 0x2000, 8),
            [&[First][..], &three_within, &[Chunk], &three_within].concat()
        );
        // The destination comes to a line after two, and then the source.
        let apart = [First, Within, Chunk, Within, Within, Within, Chunk, Within, Chunk, Within];
        assert_eq!(copy(0, 0x2030, 10), apart);
    }

    #[test]
    fn another_instruction_or_an_interrupt_ends_a_string() {
        let mut strings = Strings::new(model(32));
        let store = [access(0x2000, true)];
        assert_eq!(strings.next(OF, STRING, &store, progress(5, 0)), Repetition::First);
        strings.executed(progress(6, 0));
        // The last one, with a count of zero, accesses nothing.
        assert_eq!(strings.next(OF, STRING, &[], progress(6, 0)), Repetition::Within);
        assert_eq!(strings.next(OF, STRING, &store, progress(7, 0)), Repetition::First);
        strings.executed(progress(8, 0));
        assert_eq!(strings.next(OF, STRING, &store, progress(8, 1)), Repetition::First);
        strings.executed(progress(9, 1));
        let next_string = VirtualAddress(0x3000);
        assert_eq!(strings.next(OF, next_string, &store, progress(9, 1)), Repetition::First);
    }

    /// The wait of each repetition in a string instruction on `times` bytes.
    fn waits(operation: StringOperation, times: u64) -> Vec<Option<u64>> {
        let mut strings = Strings::new(model(32));
        let write = operation == StringOperation::Fill;
        let each = |number: u64| {
            // The last one, with a count of zero, accesses nothing.
            let all = [Access { bytes: 1, ..access(0x2000 + number, write) }];
            let accesses = if number < times { &all[..] } else { &[] };
            let which = strings.next(operation, STRING, accesses, progress(number, 0));
            strings.executed(progress(number + 1, 0));
            strings.wait_cycles(operation, which)
        };
        (0..=times).map(each).collect()
    }

    #[test]
    fn a_string_that_is_not_short_waits_for_the_rest_where_it_turns_out() {
        assert_eq!(waits(OF, 4), [Some(9), None, None, None, None]);
        assert_eq!(waits(OF, 5), [Some(9), None, None, None, Some(21), None]);
        assert_eq!(waits(StringOperation::Fill, 5), [Some(8), None, None, None, Some(12), None]);
    }

    #[test]
    fn a_string_that_is_loaded_waits_at_each_repetition() {
        assert_eq!(waits(StringOperation::Load, 2), [Some(52), Some(2), None]);
        let strings = Strings::new(model(32));
        assert!(
            strings.executes(StringOperation::Load) && !strings.executes(StringOperation::Compare)
        );
    }

    #[test]
    fn a_string_that_is_scanned_waits_at_each_repetition_unless_chunks_are_scanned() {
        let waits = |scan_cycles| {
            let start = Some(20);
            let mut strings = Strings::new(StringsModel {
                compare_start_cycles: start,
                scan_cycles,
                ..model(32)
            });
            let each = |number: u64| {
                let load = [Access { bytes: 1, ..access(0x2000 + number, false) }];
                let operation = StringOperation::Scan;
                let which = strings.next(operation, STRING, &load, progress(number, 0));
                strings.executed(progress(number + 1, 0));
                strings.wait_cycles(operation, which)
            };
            (0..3).map(each).collect::<Vec<_>>()
        };
        assert_eq!(waits(2), [Some(22), Some(2), Some(2)]);
        assert_eq!(waits(0), [Some(20), None, None]);
    }

    #[test]
    fn chunks_per_cycle_are_limited() {
        let mut strings = Strings::new(model(32));
        let ends: Vec<bool> = (0..4).map(|_| strings.enter_chunk()).collect();
        assert_eq!(ends, [false, true, false, true]);
    }
}
