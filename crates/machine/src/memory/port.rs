//! The memory port of one processor: adapts the [`MemorySystem`] to the [`Memory`] that a core calls. Each fetch,
//! load and store of the level `ooo` passes here, so the paths of hits matter for speed.

use super::classification::Instruction;
use super::times::Ready;
use super::{Access, AccessKind, MemorySystem, PageSize};
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::core::{AccessMode, Memory, PlainAccesses, Template, WaitParts};
use crate::cycle::Cycle;

/// The memory port of one processor, for a [core](crate::core). The [`MemorySystem`] must be made
/// [`without_mshr_limit`](super::without_mshr_limit), because the core limits its misses itself.
#[derive(Debug)]
pub struct MemoryPort<'s> {
    /// The memory system of all processors.
    pub system: &'s mut MemorySystem,
    /// The processor that executes.
    pub cpu: usize,
    /// The executed block, which knows the addresses of its instructions.
    pub code: Option<&'s Template>,
    /// Without `code`: the address of instruction 0. Instruction N counts as `pc` + N. Prefetchers and the list of
    /// misses distinguish instructions by these addresses.
    pub pc: VirtualAddress,
    /// The page size of the next access. The caller sets it, because a core does not know it.
    pub page: PageSize,
}

/// The result of the fast path of a load or store.
enum FoundHit {
    /// A hit that waits for nothing.
    Arrived,
    /// A hit whose line or translation may still be under way.
    UnderWay,
    /// The slow path must look up the access.
    NotAtOnce,
}

impl MemoryPort<'_> {
    /// The fast path of [`Memory::look_up`], for a load, or a store if `write`. Returns whether the access hits and is
    /// complete. Otherwise the caller sets `page` and calls [`Memory::look_up`]. `page_size` returns the size of an
    /// address's page.
    ///
    /// Not inlined: one copy serves loads and stores, because this code shares the host's L1I with QEMU's translated
    /// code.
    #[inline(never)]
    pub fn hits_at_once(
        &mut self,
        access: &crate::core::Access,
        write: bool,
        page_size: impl FnOnce(VirtualAddress) -> PageSize,
    ) -> bool {
        let Some(physical) = access.physical else { return false };
        let addresses = (access.virtual_address, physical);
        self.system.tags.hits_at_once(self.cpu, addresses, (access.bytes, write), page_size)
    }

    /// [`MemoryPort::hits_at_once`] for an access that starts at `now`. Returns how many cycles a hit waits. `None`:
    /// the caller sets `page` and calls [`Memory::access`].
    #[inline(always)]
    pub fn hit_wait_cycles(
        &mut self,
        access: &crate::core::Access,
        (write, now): (bool, Cycle),
        page_size: impl FnOnce(VirtualAddress) -> PageSize,
    ) -> Option<u64> {
        match self.find_hit(access, write, now, page_size) {
            FoundHit::Arrived => Some(0),
            FoundHit::UnderWay => Some(self.wait_under_way(access, now)),
            FoundHit::NotAtOnce => None,
        }
    }

    #[inline(never)]
    fn find_hit(
        &mut self,
        access: &crate::core::Access,
        write: bool,
        now: Cycle,
        page_size: impl FnOnce(VirtualAddress) -> PageSize,
    ) -> FoundHit {
        let Some(physical) = access.physical else { return FoundHit::NotAtOnce };
        let addresses = (access.virtual_address, physical);
        let MemorySystem { tags, times, .. } = &mut *self.system;
        if !tags.hits_at_once(self.cpu, addresses, (access.bytes, write), page_size) {
            return FoundHit::NotAtOnce;
        }
        let core = tags.core_of(self.cpu);
        if times.has_arrived(core, physical, now) { FoundHit::Arrived } else { FoundHit::UnderWay }
    }

    /// How many cycles a hit waits for its line or its page. Only after `find_hit` returned `UnderWay`.
    #[inline(never)]
    fn wait_under_way(&mut self, access: &crate::core::Access, now: Cycle) -> u64 {
        let addresses = (access.virtual_address, access.physical.unwrap_or_default());
        let ready = self.system.times.data_hit_ready((self.cpu, now), addresses);
        self.data_wait(ready, now)
    }

    /// The wait, in cycles, of a load or store that starts at `now` and is ready at `ready`. Counts the wait, and keeps
    /// its parts for [`Memory::last_wait`].
    fn data_wait(&mut self, ready: Ready, now: Cycle) -> u64 {
        let Ready { cycle, under_way, translation_cycles } = ready;
        self.system.last_wait = WaitParts { translation_cycles, under_way };
        let wait_cycles = cycle - now;
        self.system.tags.cpus[self.cpu].counts.data_wait_cycles += wait_cycles;
        wait_cycles
    }
}

impl MemoryPort<'_> {
    /// The fast path of [`Memory::look_up_fetch`]: returns whether the fetch is complete.
    #[inline(always)]
    pub(super) fn fetch_hits_at_once(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
    ) -> bool {
        self.system.tags.fetch_hits_at_once(self.cpu, (virtual_address, physical))
    }

    /// See [`Memory::filter`]. `page_size` returns the size of an address's page.
    #[inline(always)]
    pub(super) fn filter(
        &mut self,
        accesses: &[crate::core::Access],
        plain: &PlainAccesses,
        page_size: impl Fn(VirtualAddress) -> PageSize,
    ) -> usize {
        self.system.tags.filter(self.cpu, accesses, plain, page_size)
    }
}

impl Memory for MemoryPort<'_> {
    fn look_up_fetch(&mut self, virtual_address: VirtualAddress, physical: PhysicalAddress) {
        self.system.tags.look_up(&Access {
            cpu: self.cpu,
            kind: AccessKind::Fetch,
            virtual_address,
            physical,
            bytes: 1,
            pc: virtual_address,
            page: self.page,
            start: Cycle::START,
        });
    }

    fn set_fetched_instruction(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
    ) {
        self.system.tags.classifier.set_instruction(|| Instruction {
            fetched_at: Some(virtual_address),
            physical: Some(physical),
        });
    }

    fn look_up(&mut self, access: &crate::core::Access, mode: AccessMode) {
        let code = self.code;
        let tags = &mut self.system.tags;
        tags.classifier.set_instruction(|| {
            let physical = code.and_then(|code| code.instruction_physical(access.instruction));
            Instruction { fetched_at: None, physical }
        });
        let request = Access {
            cpu: self.cpu,
            kind: match mode {
                AccessMode::Load => AccessKind::Load,
                AccessMode::LoadLocked => AccessKind::LoadLocked,
                AccessMode::Store | AccessMode::StoreAround => AccessKind::Store,
            },
            virtual_address: access.virtual_address,
            physical: access.physical.unwrap_or_default(),
            bytes: u32::from(access.bytes.max(1)),
            pc: match self.code {
                Some(code) => code.address_at(access.instruction),
                None => self.pc.plus(access.instruction.into()),
            },
            page: self.page,
            start: Cycle::START,
        };
        match access.physical {
            None => tags.look_up_device(&request),
            Some(_) if mode == AccessMode::StoreAround => tags.store_around(&request),
            Some(_) => {
                tags.look_up(&request);
            }
        }
    }

    fn fetch(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
        now: Cycle,
    ) -> u64 {
        self.look_up_fetch(virtual_address, physical);
        let ready = self.system.fetch_ready((self.cpu, now), physical);
        let wait_cycles = ready.cycle - now;
        self.system.tags.cpus[self.cpu].counts.fetch_wait_cycles += wait_cycles;
        wait_cycles
    }

    fn access(&mut self, access: &crate::core::Access, mode: AccessMode, now: Cycle) -> u64 {
        self.look_up(access, mode);
        let addresses = (access.virtual_address, access.physical.unwrap_or_default());
        let ready = self.system.data_ready((self.cpu, now), addresses);
        self.data_wait(ready, now)
    }

    fn last_wait(&self) -> WaitParts {
        self.system.last_wait
    }
}
