//! Compares the plugin's counts with QEMU's own, where the options ask for it.

use machine::Instructions;
use simrecord::counters::INSTRUCTIONS;
use simrecord::record::{Check, Record};

use crate::cpu::level::Level;
use crate::qemu::qemu_internals::Icount;
use crate::writer::Writer;

/// The comparison of counts.
pub(crate) struct CountCheck {
    /// QEMU's count of instructions, if a comparison is wanted and this QEMU shows it.
    icount: Option<Icount>,
    is_due: bool,
}

impl CountCheck {
    /// Compares after each marker, if `wanted`.
    pub(crate) fn new(wanted: bool) -> CountCheck {
        CountCheck { icount: if wanted { Icount::find() } else { None }, is_due: false }
    }

    /// A marker was executed: counts are compared at the next discontinuity.
    pub(crate) fn request(&mut self) {
        self.is_due = true;
    }

    /// Makes a comparison, if one is due. Call it between two blocks. `unclocked`: how many instructions QEMU has not
    /// counted.
    pub(crate) fn compare(&mut self, level: &Level, unclocked: Instructions, writer: &mut Writer) {
        if std::mem::take(&mut self.is_due)
            && let Some(icount) = self.icount
        {
            let counted = level.counted(0, 0);
            let counted = counted.iter().map(|counts| counts[INSTRUCTIONS]).sum::<u64>();
            let counted = counted - unclocked.0;
            writer.write(&Record::Check(Check { counted, icount: icount.get() }));
        }
    }
}
