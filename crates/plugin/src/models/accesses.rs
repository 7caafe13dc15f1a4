//! Descriptions of the accesses to memory that no callback of QEMU reports. [`crate::devices::dma`] and
//! [`crate::models::entry`] find these accesses; the session passes them to the caches of the models.

use std::ops::Range;

use machine::{BlockingMachine, PhysicalAddress, VirtualAddress};

/// A write to memory that the caches have not seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) physical: PhysicalAddress,
    pub(crate) bytes: u64,
    /// Whether a device wrote. Otherwise a vCPU stored to a page with code.
    pub(crate) by_device: bool,
}

impl Write {
    /// The written memory. Bytes beyond the last address are ignored.
    pub(crate) fn range(&self) -> Range<PhysicalAddress> {
        self.physical..PhysicalAddress(self.physical.0.saturating_add(self.bytes))
    }
}

/// An access that a processor makes by itself as it enters a handler. It lies within one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessorAccess {
    pub(crate) virtual_address: VirtualAddress,
    pub(crate) physical: PhysicalAddress,
    pub(crate) bytes: u8,
    pub(crate) write: bool,
    /// Whether the address comes from the data that the previous access has read. Such an access waits for that data.
    pub(crate) depends_on_previous: bool,
}

impl ProcessorAccess {
    /// Makes this access on the model of the level `timed`.
    pub(crate) fn execute(&self, model: &mut BlockingMachine) {
        for line in model.data_lines(self.virtual_address, self.bytes.into()) {
            let offset = line.bytes_after(self.virtual_address);
            let translate = |_| Some(self.physical.plus(offset));
            if self.write {
                model.store(line, translate);
            } else {
                model.load(line, translate);
            }
        }
    }
}
