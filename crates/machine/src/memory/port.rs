//! The memory side as a core sees it.

use super::flight::WITHOUT_LIMIT;
use super::system::{Access, MemorySystem, PageSize};
use crate::core::Memory;
use crate::hierarchy::AccessKind;
use crate::schema::SystemModel;

/// A model whose first caches wait for any number of lines.
///
/// How many lines are waited for at once is the core's affair, because it knows when each access begins;
/// a [`MemorySystem`] that limits them, too, would have some wait twice.
#[must_use]
pub fn without_mshr_limit(model: &SystemModel) -> SystemModel {
    let mut model = model.clone();
    (model.l1d.mshrs, model.l1i.mshrs) = (WITHOUT_LIMIT, WITHOUT_LIMIT);
    model
}

/// One processor's way into a [`MemorySystem`], for the cores of [`core`](crate::core), while a block
/// executes. The system is made [`without_mshr_limit`].
#[derive(Debug)]
pub struct MemoryPort<'s> {
    /// The memory side of all processors.
    pub system: &'s mut MemorySystem,
    /// Which processor executes.
    pub cpu: usize,
    /// Address of the block, from which prefetchers tell instructions apart.
    pub pc: u64,
    /// The pages that it accesses: a core says no page sizes.
    pub page: PageSize,
}

impl MemoryPort<'_> {
    fn data(&mut self, access: &crate::core::Access, kind: AccessKind, now_cycles: u64) -> u64 {
        let asked = Access {
            cpu: self.cpu,
            kind,
            virtual_address: access.virtual_address,
            physical: access.physical.unwrap_or(0),
            bytes: u32::from(access.bytes.max(1)),
            pc: self.pc.wrapping_add(access.instruction.into()),
            page: self.page,
            now_cycles,
        };
        let answer = match access.physical {
            Some(_) => self.system.access(&asked),
            None => self.system.access_device(&asked),
        };
        answer.ready_cycles - now_cycles
    }
}

impl Memory for MemoryPort<'_> {
    fn fetch(&mut self, virtual_address: u64, physical: u64, now_cycles: u64) -> u64 {
        let answer = self.system.access(&Access {
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
