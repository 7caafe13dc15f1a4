//! The memory port of a processor that runs Linux: adds page sizes and the common time of processors.
//! The plugin makes one per executed block; a replayed block trace uses it, too. It is on the hot path:
//! each load and store first tries the port's fast path.

use super::{MemoryPort, PageSize};
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::core::{Access, AccessMode, Memory, PlainAccesses, WaitParts};
use crate::cycle::Cycle;

impl PageSize {
    /// The assumed size of the page of an address, because QEMU does not export it. Linux maps three areas of the
    /// kernel's addresses in pages of 2 MiB: all memory, the array of page structures, and the kernel's image
    /// (Documentation/arch/x86/x86_64/mm.rst, four levels). All other pages count as 4 KiB.
    #[inline(always)]
    #[must_use]
    pub fn in_linux(VirtualAddress(address): VirtualAddress) -> PageSize {
        const LARGE: [std::ops::Range<u64>; 3] = [
            0xffff_8880_0000_0000..0xffff_c880_0000_0000,
            0xffff_ea00_0000_0000..0xffff_eb00_0000_0000,
            0xffff_ffff_8000_0000..0xffff_ffff_a000_0000,
        ];
        let is_large = address >> 63 == 1 && LARGE.iter().any(|range| range.contains(&address));
        if is_large { PageSize::Large } else { PageSize::Small }
    }
}

/// A memory port for one core. It adds the [page size](PageSize::in_linux), and converts the core's time into the
/// common time of all processors.
#[derive(Debug)]
pub struct LinuxPort<'s> {
    pub port: MemoryPort<'s>,
    /// The common time of all processors minus the core's time.
    pub skew_cycles: u64,
}

impl LinuxPort<'_> {
    /// Tells the port the page size of the address that is accessed next.
    fn set_page(&mut self, virtual_address: VirtualAddress) {
        self.port.page = PageSize::in_linux(virtual_address);
    }
}

/// `now` is in the core's time.
impl Memory for LinuxPort<'_> {
    fn look_up_fetch(&mut self, virtual_address: VirtualAddress, physical: PhysicalAddress) {
        if !self.port.fetch_hits_at_once(virtual_address, physical) {
            self.set_page(virtual_address);
            self.port.look_up_fetch(virtual_address, physical);
        }
    }

    #[inline(always)]
    fn look_up(&mut self, access: &Access, mode: AccessMode) {
        if mode.may_hit_at_once()
            && self.port.hits_at_once(access, mode == AccessMode::Store, PageSize::in_linux)
        {
            return;
        }
        self.set_page(access.virtual_address);
        self.port.look_up(access, mode);
    }

    #[inline(always)]
    fn filter(&mut self, accesses: &[Access], plain: &PlainAccesses) -> usize {
        self.port.filter(accesses, plain, PageSize::in_linux)
    }

    fn fetch(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
        now: Cycle,
    ) -> u64 {
        self.set_page(virtual_address);
        self.port.fetch(virtual_address, physical, now + self.skew_cycles)
    }

    fn set_fetched_instruction(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
    ) {
        self.port.set_fetched_instruction(virtual_address, physical);
    }

    #[inline(always)]
    fn access(&mut self, access: &Access, mode: AccessMode, now: Cycle) -> u64 {
        let now = now + self.skew_cycles;
        if mode.may_hit_at_once() {
            let start = (mode == AccessMode::Store, now);
            if let Some(wait) = self.port.hit_wait_cycles(access, start, PageSize::in_linux) {
                return wait;
            }
        }
        self.set_page(access.virtual_address);
        self.port.access(access, mode, now)
    }

    fn last_wait(&self) -> WaitParts {
        self.port.last_wait()
    }
}
