//! Devices that read and write memory: caches take notice.

use super::miss::CacheName;
use super::store::DIRTY;
use super::system::MemorySystem;
use crate::schema::Dma;

/// What devices did to caches. All are sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaCounts {
    /// Lines that a device wrote and a cache dropped.
    pub dropped: u64,
    /// Lines that a device wrote and a cache kept, with the new content.
    pub updated: u64,
    /// Dirty lines that a device read from a cache.
    pub supplied: u64,
}

/// Longest transfer that is looked at line by line.
const TRANSFER_BYTES_MAX: u64 = 1 << 30;

impl MemorySystem {
    /// A device writes memory. What caches hold of it is dropped, or updated, as the model says; what
    /// they had not written back of it is lost, as the device's is newer. At most the first GiB is
    /// looked at.
    pub fn dma_write(&mut self, physical: u64, bytes: u64) {
        let update = self.plan.dma == Dma::Update;
        self.each_line(physical, bytes, |system, name, at, line_start| {
            if update {
                let held = system.flags_at(name, at, line_start).is_some();
                system.devices.updated += u64::from(held);
                return;
            }
            let taken = match name {
                CacheName::L1i => system.take_l1i(at, line_start),
                CacheName::L1d => system.take_l1d(at, line_start),
                CacheName::L2 => system.take_outer(0, at, line_start),
                CacheName::L3 => system.take_outer(1, at, line_start),
            };
            if let Some(held) = taken {
                system.devices.dropped += 1;
                system.dropped(name, at, held.line);
            }
        });
        if !update {
            let step = 1 << self.plan.unit_shift;
            for at in lines(physical, bytes, step) {
                (0..self.cores.len()).for_each(|core| self.gone(core, at));
            }
        }
    }

    /// A device reads memory. Caches supply what they have dirty, and keep it. At most the first GiB is
    /// looked at.
    pub fn dma_read(&mut self, physical: u64, bytes: u64) {
        self.each_line(physical, bytes, |system, name, at, line_start| {
            let flags = system.flags_at(name, at, line_start).unwrap_or(0);
            system.devices.supplied += u64::from(flags & DIRTY != 0);
        });
    }

    /// What devices did so far.
    #[must_use]
    pub fn dma_counts(&self) -> DmaCounts {
        self.devices
    }

    /// Calls `with` for each line of each cache that a range touches.
    fn each_line(
        &mut self,
        physical: u64,
        bytes: u64,
        mut with: impl FnMut(&mut MemorySystem, CacheName, usize, u64),
    ) {
        for core in 0..self.cores.len() {
            for at in lines(physical, bytes, 1 << self.plan.l1d_shift) {
                with(self, CacheName::L1d, core, at);
            }
            // Decoded code is not kept by the address of its memory.
            let code = if self.plan.trace { 0 } else { bytes };
            for at in lines(physical, code, 1 << self.plan.l1i_shift) {
                with(self, CacheName::L1i, core, at);
            }
        }
        for k in 0..self.outer.len() {
            for number in 0..self.outer[k].stores.len() {
                for at in lines(physical, bytes, 1 << self.outer[k].shift) {
                    with(self, CacheName::outer(k), number, at);
                }
            }
        }
    }

    fn flags_at(&self, name: CacheName, at: usize, physical: u64) -> Option<u8> {
        let (store, shift) = match name {
            CacheName::L1i => (&self.cores[at].l1i, self.plan.l1i_shift),
            CacheName::L1d => (&self.cores[at].l1d, self.plan.l1d_shift),
            CacheName::L2 => (&self.outer[0].stores[at], self.outer[0].shift),
            CacheName::L3 => (&self.outer[1].stores[at], self.outer[1].shift),
        };
        store.find_physical(physical >> shift, shift).map(|slot| store.flags(slot))
    }
}

/// The beginnings of all lines that a range touches.
fn lines(physical: u64, bytes: u64, step: u64) -> impl Iterator<Item = u64> + use<> {
    let first = if bytes == 0 { physical } else { physical & !(step - 1) };
    let end = physical.saturating_add(bytes.min(TRANSFER_BYTES_MAX));
    (first..end).step_by(step as usize)
}
