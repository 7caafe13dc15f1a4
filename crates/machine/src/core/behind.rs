//! The memory side of a machine model behind a core.

use super::memory::{Access, Memory};
use crate::hierarchy::AccessKind;
use crate::memory::{Access as Request, PageSize, System};
use crate::schema::SystemModel;

/// Registers for misses that no core uses up.
const REGISTERS: u32 = 256;

/// One processor's side of a [`System`], for as long as a block executes.
///
/// How many lines are waited for at once is the core's affair, because it knows when each access begins;
/// the system is made for it by [`without_miss_limit`].
#[derive(Debug)]
pub struct Behind<'a> {
    /// The memory side of all processors.
    pub system: &'a mut System,
    /// Which processor executes.
    pub cpu: usize,
    /// Address of the block, from which instructions are told apart by prefetchers.
    pub pc: u64,
    /// The pages that it accesses.
    pub page: PageSize,
}

/// A model whose first caches wait for any number of lines.
#[must_use]
pub fn without_miss_limit(model: &SystemModel) -> SystemModel {
    let mut model = model.clone();
    (model.l1d.mshrs, model.l1i.mshrs) = (REGISTERS, REGISTERS);
    model
}

impl Behind<'_> {
    fn data(&mut self, access: &Access, kind: AccessKind, now_cycles: u64) -> u64 {
        let mut request = Request {
            cpu: self.cpu,
            kind,
            virtual_address: access.virtual_address,
            physical: 0,
            bytes: u32::from(access.bytes.max(1)),
            pc: self.pc.wrapping_add(access.instruction.into()),
            page: self.page,
            now_cycles,
        };
        let answer = match access.physical {
            Some(physical) => {
                request.physical = physical;
                self.system.request(&request)
            }
            None => self.system.device(&request),
        };
        answer.ready_cycles - now_cycles
    }
}

impl Memory for Behind<'_> {
    fn fetch(&mut self, virtual_address: u64, physical: u64, now_cycles: u64) -> u64 {
        let request = Request {
            cpu: self.cpu,
            kind: AccessKind::Fetch,
            virtual_address,
            physical,
            bytes: 1,
            pc: virtual_address,
            page: self.page,
            now_cycles,
        };
        self.system.request(&request).ready_cycles - now_cycles
    }

    fn load(&mut self, access: &Access, now_cycles: u64) -> u64 {
        self.data(access, AccessKind::Load, now_cycles)
    }

    fn store(&mut self, access: &Access, now_cycles: u64) -> u64 {
        self.data(access, AccessKind::Store, now_cycles)
    }
}
