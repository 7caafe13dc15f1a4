//! Prefetches into L1D: by stride, or the next line.

use super::bring::{Bringing, For};
use super::miss::CacheName;
use super::store::{PREFETCHED, WRITABLE, only_if};
use super::system::{Access, MemorySystem};

/// Instructions whose strides are followed.
const INSTRUCTIONS: usize = 64;
/// Times that a stride has to be seen again before it is believed.
const SURE: u8 = 2;

/// An instruction, and where it goes.
#[derive(Clone, Copy, Debug, Default)]
struct Walker {
    pc: u64,
    last: u64,
    stride: i64,
    seen: u8,
}

/// Strides of instructions, learned from what they miss.
#[derive(Clone, Debug)]
pub(super) struct Strides {
    walkers: Box<[Walker]>,
}

impl Default for Strides {
    fn default() -> Self {
        Strides { walkers: vec![Walker::default(); INSTRUCTIONS].into() }
    }
}

impl Strides {
    /// An instruction went to an address; where it will go next, if that is known.
    pub(super) fn next(&mut self, pc: u64, physical: u64) -> Option<u64> {
        let walker = &mut self.walkers[(pc ^ pc >> 6) as usize % INSTRUCTIONS];
        if walker.pc != pc {
            *walker = Walker { pc, last: physical, ..Walker::default() };
            return None;
        }
        let stride = physical.wrapping_sub(walker.last) as i64;
        walker.last = physical;
        if stride == 0 || stride != walker.stride {
            (walker.stride, walker.seen) = (stride, 0);
            return None;
        }
        walker.seen = (walker.seen + 1).min(SURE);
        (walker.seen == SURE).then(|| physical.wrapping_add_signed(stride))
    }
}

impl MemorySystem {
    /// Brings the line of `physical` into L1D, if it lies in the page of the access.
    pub(super) fn prefetch_l1d(&mut self, access: &Access, physical: u64, now: u64) {
        let core = self.core_of(access.cpu);
        let shift = self.plan.l1d_shift;
        let line = physical >> shift;
        let of = &mut self.cores[core];
        if (physical ^ access.physical) >> 12 != 0
            || of.l1d.find_physical(line, shift).is_some()
            || !of.flights.takes_prefetch(now)
        {
            return;
        }
        self.cpus[access.cpu].counts.prefetches += 1;
        let brought = self.bring(&Bringing {
            cpu: access.cpu,
            physical,
            mask: 0,
            exclusive: false,
            from: 0,
            what: For::Prefetch,
            at_cycles: now,
        });
        let index = match self.plan.l1d_virtual {
            // In the same page, so in its colour.
            true => {
                let distance = physical.wrapping_sub(access.physical);
                access.virtual_address.wrapping_add(distance) >> shift
            }
            false => line,
        };
        let flags = brought.flags | PREFETCHED | only_if(brought.writable, WRITABLE);
        let (slot, old) = self.cores[core].l1d.place(index, line, flags);
        if let Some(old) = old {
            self.leave_l1d(access.cpu, slot, old);
        }
        let part = self.plan.part(physical);
        let of = &mut self.cores[core];
        if let Some(parts) = of.parts.get_mut(slot) {
            *parts = part;
        }
        if let Some(written) = of.written.get_mut(slot) {
            *written = 0;
        }
        of.flights.prefetch(line, brought.ready_cycles);
        self.filled(CacheName::L1d, core, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_is_believed_when_it_came_again() {
        let mut strides = Strides::default();
        let next: Vec<_> = (0..5).map(|n| strides.next(0x400, 1000 + n * 256)).collect();
        assert_eq!(next, [None, None, None, Some(1000 + 4 * 256), Some(1000 + 5 * 256)]);
        assert_eq!(strides.next(0x400, 7), None);
        let back: Vec<_> = (0..4).map(|n| strides.next(0x400, 9000 - n * 64)).collect();
        assert_eq!(back[3], Some(9000 - 4 * 64));
    }
}
