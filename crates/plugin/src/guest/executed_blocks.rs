//! Writes the blocks of the kernel that one vCPU starts in a short time (the option `blocks=`), with the vCPU's counters. Of
//! the blocks before the due time it writes the last one only, which runs at the due time.
//! `sim` finds the functions of these blocks. The work before a block calls [`ExecutedBlocks::start`]; the vCPU finds that
//! work due at each block of this time.

use machine::VirtualAddress;

use crate::qemu::block::Block;
use crate::writer::Writer;
use plugin_interface::options::BlockWindow;
use simrecord::counters::{CYCLES, Counts, INSTRUCTIONS, L1_MISSES, L2_MISSES};
use simrecord::record::{EXECUTED_BLOCKS_MAX, ExecutedBlock, Record, USER_MODE};

/// The blocks of a recording that are written.
#[derive(Debug)]
pub(crate) struct ExecutedBlocks {
    /// `None`: no further blocks are written.
    window: Option<BlockWindow>,
    /// How many further blocks may be written.
    room: u32,
    /// The last block before the due time.
    before_due: Option<ExecutedBlock>,
    /// The address in the last record. Consecutive blocks of user mode have one record.
    last_address: Option<VirtualAddress>,
}

impl ExecutedBlocks {
    pub(crate) fn new(window: Option<BlockWindow>) -> ExecutedBlocks {
        ExecutedBlocks { window, room: EXECUTED_BLOCKS_MAX, before_due: None, last_address: None }
    }

    /// The vCPU whose blocks are written, and the count of its cycles from which on they are. `None`: no blocks are
    /// written, or not any more.
    pub(crate) fn awaited_cycles(&self) -> Option<(u32, u64)> {
        self.window.map(|window| (window.cpu, window.from_cycles))
    }

    /// The vCPU starts `block` at `tsc`, with these counts. Writes a record, and returns whether it was the last one.
    pub(crate) fn start(
        &mut self,
        block: &Block,
        (tsc, counts): (u64, &Counts),
        region: u32,
        writer: &mut Writer,
    ) -> bool {
        let Some(window) = self.window else { return true };
        let address = if block.in_kernel { block.address } else { VirtualAddress(USER_MODE) };
        let sum = |positions: &[usize]| positions.iter().map(|position| counts[*position]).sum();
        let record = ExecutedBlock {
            cpu: window.cpu,
            region,
            address: address.0,
            tsc,
            cycles: counts[CYCLES],
            instructions: counts[INSTRUCTIONS],
            l1_misses: sum(&L1_MISSES),
            l2_misses: sum(&L2_MISSES),
        };
        for record in self.due_records(window, record) {
            writer.write(&Record::ExecutedBlock(record));
        }
        self.window.is_none()
    }

    /// The records to write when a block starts. The last block ends the recording.
    fn due_records(
        &mut self,
        window: BlockWindow,
        record: ExecutedBlock,
    ) -> impl Iterator<Item = ExecutedBlock> + use<> {
        if record.tsc < window.due_tsc {
            self.before_due = Some(record);
            return None.into_iter().chain(None);
        }
        let before_due = self.before_due.take();
        if let Some(before_due) = before_due {
            self.room = self.room.saturating_sub(1);
            self.last_address = Some(VirtualAddress(before_due.address));
        }
        let is_last = record.tsc >= window.until_tsc || self.room <= 1;
        let address = VirtualAddress(record.address);
        let is_same_user_mode = record.address == USER_MODE && self.last_address == Some(address);
        let is_written = !is_same_user_mode || is_last;
        if is_written {
            self.room = self.room.saturating_sub(1);
            self.last_address = Some(address);
        }
        if is_last {
            self.window = None;
        }
        before_due.into_iter().chain(is_written.then_some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: BlockWindow =
        BlockWindow { cpu: 0, from_cycles: 0, due_tsc: 5_000_000, until_tsc: 5_000_300 };

    fn block(tsc: u64, address: u64) -> ExecutedBlock {
        ExecutedBlock {
            cpu: 0,
            region: 1,
            address,
            tsc,
            cycles: tsc,
            instructions: tsc,
            l1_misses: 0,
            l2_misses: 0,
        }
    }

    fn written(blocks: impl Iterator<Item = ExecutedBlock>) -> Vec<(u64, u64)> {
        let mut executed = ExecutedBlocks::new(Some(WINDOW));
        let mut written = Vec::new();
        for block in blocks {
            let Some(window) = executed.window else { break };
            written.extend(executed.due_records(window, block).map(|row| (row.tsc, row.address)));
        }
        written
    }

    /// As with `idle=poll`: more blocks before the due time than a recording has room for.
    #[test]
    fn blocks_before_the_due_time_leave_room_for_those_after_it() {
        let idle =
            (0..2 * u64::from(EXECUTED_BLOCKS_MAX)).map(|number| block(number, 100 + number % 2));
        let late = [(5_000_000, 200), (5_000_100, 201), (5_000_300, 202), (5_000_400, 203)];
        let last_idle = 2 * u64::from(EXECUTED_BLOCKS_MAX) - 1;
        let written = written(idle.chain(late.map(|(tsc, address)| block(tsc, address))));
        let expected = [(last_idle, 101), (5_000_000, 200), (5_000_100, 201), (5_000_300, 202)];
        assert_eq!(written, expected);
    }

    #[test]
    fn user_mode_at_the_due_time_has_one_record() {
        let blocks = [
            (10, 100),
            (20, USER_MODE),
            (30, USER_MODE),
            (5_000_010, USER_MODE),
            (5_000_300, USER_MODE),
        ];
        let written = written(blocks.into_iter().map(|(tsc, address)| block(tsc, address)));
        assert_eq!(written, [(30, USER_MODE), (5_000_300, USER_MODE)]);
    }
}
