//! The filter in front of the data side, for accesses that get no times: completes loads and stores that hit and change
//! nothing but the order of lines and pages. Functional warming passes nearly all accesses here, block by block.

use super::PageSize;
use super::tags::Tags;
use super::translation::ThreadPage;
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::core::{Access, PlainAccesses};
use crate::tag_array::{DIRTY, PREFETCHED, WRITABLE};

impl Tags {
    /// Completes and counts the leading accesses of a processor. Stops before an access that shares its instruction
    /// with another access, is not plain, misses, or changes a flag of its line. Returns how many accesses are complete.
    /// The next access may already have touched its page and its line, which changes no result.
    ///
    /// Pages and lines are compared with the TLB's and the cache's own tags, so no fill, flush or invalidation can be
    /// missed. The first comparison is with the last page, and with the most recently used line of the set: most
    /// accesses need no other.
    #[inline(never)]
    pub(super) fn filter(
        &mut self,
        cpu: usize,
        accesses: &[Access],
        plain: &PlainAccesses,
        page_size: impl Fn(VirtualAddress) -> PageSize,
    ) -> usize {
        let Tags { config, cpus, cores, may_hit_at_once: true, .. } = self else { return 0 };
        let Some(processor) = cpus.get_mut(cpu) else { return 0 };
        let Some(core) = cores.get_mut(processor.core) else { return 0 };
        let shift = config.l1d_shift % u64::BITS;
        let thread = ThreadPage::new(VirtualAddress(0), processor.thread);
        let (mut loads, mut remaining) = (0, accesses);
        while let [access, later @ ..] = remaining {
            let is_only = later.first().is_none_or(|next| next.instruction != access.instruction);
            let Some(physical) = access.physical else { break };
            if !is_only || !plain.contains(access.instruction.into(), access.write) {
                break;
            }
            // An access without bytes may count as the byte before, if both are in one line.
            let line = physical.line(shift);
            let end = physical.0.wrapping_add(access.bytes.into());
            if PhysicalAddress(end.wrapping_sub(1)).line(shift) != line {
                break;
            }
            let page = thread.with_page_of(access.virtual_address);
            if core.last_data_page != page
                && !core.holds_known_page(page)
                && !core.holds_page(
                    processor,
                    access.virtual_address,
                    page,
                    page_size(access.virtual_address),
                )
            {
                break;
            }
            let flags = match core.l1d.mru_flags(line) {
                Some(flags) => flags,
                None => match core.l1d.lookup_line(line) {
                    Some(slot) => core.l1d.flags(slot),
                    None => break,
                },
            };
            // A lookup makes a line dirty, and handles the first use of a prefetched line.
            let needed = if access.write { WRITABLE | DIRTY } else { 0 };
            if flags & (needed | PREFETCHED) != needed {
                break;
            }
            loads += u64::from(!access.write);
            remaining = later;
        }
        let passed = accesses.len() - remaining.len();
        processor.counts.basic.loads += loads;
        processor.counts.basic.stores += passed as u64 - loads;
        passed
    }
}
