//! Writes the blocks of the kernel that one vCPU starts in a short time (the option `blocks=`), with the vCPU's counters.
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
    /// The address in the last record. Consecutive blocks of user mode have one record.
    last_address: Option<VirtualAddress>,
}

impl ExecutedBlocks {
    pub(crate) fn new(window: Option<BlockWindow>) -> ExecutedBlocks {
        ExecutedBlocks { window, room: EXECUTED_BLOCKS_MAX, last_address: None }
    }

    /// The vCPU whose blocks are written, and the count of its cycles from which on they are. `None`: no blocks are
    /// written, or not any more.
    pub(crate) fn awaited(&self) -> Option<(u32, u64)> {
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
        let is_last = tsc >= window.until_tsc || self.room <= 1;
        let is_same_user_mode = !block.in_kernel && self.last_address == Some(address);
        if !is_same_user_mode || is_last {
            let sum =
                |positions: &[usize]| positions.iter().map(|position| counts[*position]).sum();
            writer.write(&Record::ExecutedBlock(ExecutedBlock {
                cpu: window.cpu,
                region,
                address: address.0,
                tsc,
                cycles: counts[CYCLES],
                instructions: counts[INSTRUCTIONS],
                l1_misses: sum(&L1_MISSES),
                l2_misses: sum(&L2_MISSES),
            }));
            self.room -= 1;
            self.last_address = Some(address);
        }
        if is_last {
            self.window = None;
        }
        is_last
    }
}
