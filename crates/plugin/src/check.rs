//! Compares the plugin's counts of instructions with QEMU's own, if the option `check` asks for it. The record gets
//! both counts, and `sim` checks them.

use machine::Instructions;
use simrecord::counters::INSTRUCTIONS;
use simrecord::record::{Check, Record};

use crate::cpu::level::Level;
use crate::qemu::qemu_internals::Icount;
use crate::writer::Writer;

/// The comparison of counts.
pub(crate) struct CountCheck {
    /// QEMU's count of instructions. `None`: no comparison is wanted, or this QEMU does not show its count.
    icount: Option<Icount>,
    /// Whether counts are compared at the next discontinuity.
    is_due: bool,
}

impl CountCheck {
    /// `is_wanted`: whether counts are compared after each marker.
    pub(crate) fn new(is_wanted: bool) -> CountCheck {
        CountCheck { icount: if is_wanted { Icount::find() } else { None }, is_due: false }
    }

    /// Requests a comparison at the next discontinuity, because a marker was executed. At the marker itself, inside a
    /// block, QEMU does not show its count.
    pub(crate) fn request(&mut self) {
        self.is_due = true;
    }

    /// Writes both counts, if a comparison is due. Call it between two blocks. `unclocked`: how many executed
    /// instructions QEMU has not counted.
    pub(crate) fn compare(&mut self, level: &Level, unclocked: Instructions, writer: &mut Writer) {
        if std::mem::take(&mut self.is_due)
            && let Some(icount) = self.icount
        {
            let vcpu_counts = level.counts_between_blocks();
            let counted = vcpu_counts.iter().map(|counts| counts[INSTRUCTIONS]).sum::<u64>();
            let counted = counted - unclocked.0;
            writer.write(&Record::Check(Check { counted, icount: icount.get() }));
        }
    }
}
