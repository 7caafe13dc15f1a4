//! The memory side as a core sees it.

use super::system::{Access, PageSize, System};
use crate::core::Memory;
use crate::hierarchy::AccessKind;

/// One processor's way into a [`System`], for the cores of [`core`](crate::core).
///
/// A core says no page sizes: pages are of the size that was set last, 4 KiB at first.
#[derive(Debug)]
pub struct Port<'s> {
    system: &'s mut System,
    cpu: usize,
    page: PageSize,
    /// Address of the code that was fetched last: where an access comes from, to within a line.
    pc: u64,
}

impl<'s> Port<'s> {
    /// Of a processor that the system has.
    pub fn new(system: &'s mut System, cpu: usize) -> Self {
        Port { system, cpu, page: PageSize::Small, pc: 0 }
    }

    /// Pages of the accesses that follow.
    pub fn set_page(&mut self, page: PageSize) {
        self.page = page;
    }

    fn data(&mut self, access: &crate::core::Access, kind: AccessKind, now_cycles: u64) -> u64 {
        let asked = Access {
            cpu: self.cpu,
            kind,
            virtual_address: access.virtual_address,
            physical: access.physical.unwrap_or(0),
            bytes: u32::from(access.bytes.max(1)),
            // Instructions of a block are told apart by their numbers.
            pc: self.pc + u64::from(access.instruction),
            page: self.page,
            now_cycles,
        };
        let answer = match access.physical {
            Some(_) => self.system.request(&asked),
            None => self.system.device(&asked),
        };
        answer.ready_cycles - now_cycles
    }
}

impl Memory for Port<'_> {
    fn fetch(&mut self, virtual_address: u64, physical: u64, now_cycles: u64) -> u64 {
        self.pc = virtual_address;
        let answer = self.system.request(&Access {
            cpu: self.cpu,
            kind: AccessKind::Fetch,
            virtual_address,
            physical,
            bytes: 1,
            pc: virtual_address,
            page: self.page,
            now_cycles,
        });
        answer.ready_cycles - now_cycles
    }

    fn load(&mut self, access: &crate::core::Access, now_cycles: u64) -> u64 {
        self.data(access, AccessKind::Load, now_cycles)
    }

    fn store(&mut self, access: &crate::core::Access, now_cycles: u64) -> u64 {
        self.data(access, AccessKind::Store, now_cycles)
    }
}
