//! Accesses to memory that no instruction of translated code makes, and that no callback reports. The plugin
//! finds them ([`crate::devices::dma`], [`crate::models::entry`]), and passes them to the caches.

use machine::{BlockingMachine, PhysicalAddress, VirtualAddress};

/// A write that the caches have not seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) physical: PhysicalAddress,
    pub(crate) bytes: u64,
    /// Whether a device wrote. Otherwise a vCPU stored to a page with code.
    pub(crate) by_device: bool,
}

/// An access that a processor makes by itself, within one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnAccess {
    pub(crate) virtual_address: VirtualAddress,
    pub(crate) physical: PhysicalAddress,
    pub(crate) bytes: u8,
    pub(crate) write: bool,
    /// Whether its address comes from the data that the previous access read.
    pub(crate) depends: bool,
}

impl OwnAccess {
    /// Has the processor of the level `timed` make this access.
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
