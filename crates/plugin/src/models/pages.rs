//! The physical addresses of the virtual pages that a vCPU used last. Most accesses are then translated without a call
//! to QEMU.

use machine::memory::TlbFlush;
use machine::{PhysicalAddress, VirtualAddress};

use crate::models::translations::Change;

/// Pages that are remembered, a power of two.
const PAGES: usize = 1024;
const PAGE_SHIFT: u32 = 12;
const LARGE_SHIFT: u32 = 21;
const IN_PAGE: u64 = (1 << PAGE_SHIFT) - 1;
/// No page has this number.
const NOTHING: u64 = u64::MAX;

/// The pages of a vCPU. An entry holds until the guest changes its translations.
#[derive(Clone, Debug)]
pub(crate) struct Pages(Box<[KnownPage; PAGES]>);

/// A virtual page and where it lies.
#[derive(Clone, Copy, Debug)]
struct KnownPage {
    number: u64,
    /// The first byte of the page.
    physical: PhysicalAddress,
}

const NO_PAGE: KnownPage = KnownPage { number: NOTHING, physical: PhysicalAddress(0) };

impl Pages {
    /// No page is known yet.
    pub(crate) fn new() -> Pages {
        Pages(Box::new([NO_PAGE; PAGES]))
    }

    /// The physical address of a virtual one, if its page is known.
    #[inline(always)]
    pub(crate) fn get(&self, address: VirtualAddress) -> Option<PhysicalAddress> {
        let page = address.page();
        let KnownPage { number, physical } = self.0[entry_of(page)];
        let offset = address.offset_in_block(PAGE_SHIFT);
        (number == page).then_some(PhysicalAddress(physical.0 | offset))
    }

    pub(crate) fn put(&mut self, address: VirtualAddress, physical: PhysicalAddress) {
        let page = address.page();
        let physical = PhysicalAddress(physical.0 & !IN_PAGE);
        self.0[entry_of(page)] = KnownPage { number: page, physical };
    }

    /// Forgets the translations that the guest drops, and the translations of another address space.
    pub(crate) fn change(&mut self, change: Change) {
        match change {
            Change { flush: Some(TlbFlush::Page { virtual_address, .. }), space: None } => {
                // The dropped page may have 2 MiB, so all small pages in that range are forgotten.
                let first = virtual_address.block_number(LARGE_SHIFT) << (LARGE_SHIFT - PAGE_SHIFT);
                for page in first..first + (1 << (LARGE_SHIFT - PAGE_SHIFT)) {
                    if self.0[entry_of(page)].number == page {
                        self.0[entry_of(page)] = NO_PAGE;
                    }
                }
            }
            _ => self.0.fill(NO_PAGE),
        }
    }
}

#[inline(always)]
fn entry_of(page: u64) -> usize {
    page as usize & (PAGES - 1)
}

/// The number of an access's bytes in its first page.
#[inline(always)]
pub(crate) fn bytes_in_first(address: VirtualAddress, bytes: u64) -> u64 {
    bytes.min(IN_PAGE + 1 - address.offset_in_block(PAGE_SHIFT))
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
