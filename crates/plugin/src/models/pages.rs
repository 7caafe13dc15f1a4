//! A cache of the physical addresses of the pages that a vCPU used last. It saves most accesses a call to QEMU. The
//! pipelines of the level `ooo` and the shadow caches have one for each vCPU.

use machine::memory::TlbFlush;
use machine::{PhysicalAddress, VirtualAddress};

use crate::models::translations::Change;

/// Entries of the cache, a power of two.
const PAGES: usize = 1024;
const PAGE_SHIFT: u32 = 12;
const LARGE_PAGE_SHIFT: u32 = 21;
/// No page has this number.
const NO_PAGE_NUMBER: u64 = u64::MAX;

/// The pages of a vCPU. An entry holds until the guest changes its translations.
#[derive(Clone, Debug)]
pub(crate) struct Pages(Box<[KnownPage; PAGES]>);

/// A virtual page and its physical address.
#[derive(Clone, Copy, Debug)]
struct KnownPage {
    /// The number of the virtual page, or [`NO_PAGE_NUMBER`] in an empty entry.
    number: u64,
    /// The physical address of the page's first byte.
    physical: PhysicalAddress,
}

const NO_PAGE: KnownPage = KnownPage { number: NO_PAGE_NUMBER, physical: PhysicalAddress(0) };

impl Pages {
    /// A cache without pages.
    pub(crate) fn new() -> Pages {
        Pages(Box::new([NO_PAGE; PAGES]))
    }

    /// The physical address of a virtual one, if its page is known.
    #[inline(always)]
    pub(crate) fn get(&self, address: VirtualAddress) -> Option<PhysicalAddress> {
        let page = address.page();
        let KnownPage { number, physical } = self.0[entry_index(page)];
        (number == page).then_some(physical.plus(address.offset_in_page()))
    }

    /// Remembers the page of `address`, which lies at the page of `physical`.
    pub(crate) fn put(&mut self, address: VirtualAddress, physical: PhysicalAddress) {
        let page = address.page();
        let physical = physical.block_start(PAGE_SHIFT);
        self.0[entry_index(page)] = KnownPage { number: page, physical };
    }

    /// Forgets the translations that `change` drops. A change of the address space drops all.
    pub(crate) fn change(&mut self, change: Change) {
        match change {
            Change { flush: Some(TlbFlush::Page { virtual_address, .. }), space: None } => {
                // The dropped page may have 2 MiB, so all small pages in that range are forgotten.
                let first = virtual_address.block_number(LARGE_PAGE_SHIFT)
                    << (LARGE_PAGE_SHIFT - PAGE_SHIFT);
                for page in first..first + (1 << (LARGE_PAGE_SHIFT - PAGE_SHIFT)) {
                    if self.0[entry_index(page)].number == page {
                        self.0[entry_index(page)] = NO_PAGE;
                    }
                }
            }
            _ => self.0.fill(NO_PAGE),
        }
    }
}

#[inline(always)]
fn entry_index(page: u64) -> usize {
    page as usize & (PAGES - 1)
}

/// How many of an access's bytes lie in its first page.
#[inline(always)]
pub(crate) fn bytes_in_first(address: VirtualAddress, bytes: u64) -> u64 {
    bytes.min((1 << PAGE_SHIFT) - address.offset_in_page())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_until_another_takes_its_place_or_all_is_forgotten() {
        let mut pages = Pages::new();
        let (first, physical) = (VirtualAddress(0x1234), PhysicalAddress(0x7_0fff));
        assert_eq!(pages.get(first), None);
        pages.put(first, physical);
        assert_eq!(pages.get(VirtualAddress(0x1000)), Some(PhysicalAddress(0x7_0000)));
        assert_eq!(pages.get(VirtualAddress(0x1fff)), Some(physical));
        let conflicting = VirtualAddress(0x1000 + ((PAGES as u64) << PAGE_SHIFT));
        let other = PhysicalAddress(0x9000);
        assert_eq!(pages.get(conflicting), None);
        pages.put(conflicting, other);
        assert_eq!((pages.get(first), pages.get(conflicting)), (None, Some(other)));
        let page = |virtual_address| Change {
            flush: Some(TlbFlush::Page { virtual_address, space: 0, global: true }),
            space: None,
        };
        pages.change(page(VirtualAddress(0xf0_0000_1fff)));
        assert_eq!(pages.get(conflicting), Some(other));
        pages.change(page(conflicting.plus(5)));
        assert_eq!(pages.get(conflicting), None);
        pages.put(conflicting, other);
        pages.change(Change { flush: None, space: Some((1, PhysicalAddress(0x5000))) });
        assert_eq!(pages.get(conflicting), None);
    }

    #[test]
    fn accesses_are_cut_at_the_border_of_pages() {
        let cases = [(0x1ff8, 8, 8), (0x1ff9, 8, 7), (0x1fff, 64, 1), (0x1000, 64, 64)];
        for (address, bytes, first) in cases {
            assert_eq!(bytes_in_first(VirtualAddress(address), bytes), first, "{address:#x}");
        }
    }
}
