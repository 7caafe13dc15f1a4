//! The physical addresses of the virtual pages that a vCPU used last. Most accesses are then translated without a call
//! to QEMU.

use machine::memory::TlbFlush;

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
pub(crate) struct Pages(Box<[(u64, u64); PAGES]>);

impl Pages {
    /// No page is known yet.
    pub(crate) fn new() -> Pages {
        Pages(Box::new([(NOTHING, 0); PAGES]))
    }

    /// The physical address of a virtual one, if its page is known.
    #[inline(always)]
    pub(crate) fn get(&self, address: u64) -> Option<u64> {
        let page = address >> PAGE_SHIFT;
        let (known, physical) = self.0[entry_of(page)];
        (known == page).then_some(physical | address & IN_PAGE)
    }

    pub(crate) fn put(&mut self, address: u64, physical: u64) {
        let page = address >> PAGE_SHIFT;
        self.0[entry_of(page)] = (page, physical & !IN_PAGE);
    }

    /// Forgets the translations that the guest drops, and the translations of another address space.
    pub(crate) fn change(&mut self, change: Change) {
        match change {
            Change { flush: Some(TlbFlush::Page { virtual_address, .. }), space: None } => {
                // The dropped page may have 2 MiB, so all small pages in that range are forgotten.
                let first = virtual_address >> LARGE_SHIFT << (LARGE_SHIFT - PAGE_SHIFT);
                for page in first..first + (1 << (LARGE_SHIFT - PAGE_SHIFT)) {
                    if self.0[entry_of(page)].0 == page {
                        self.0[entry_of(page)] = (NOTHING, 0);
                    }
                }
            }
            _ => self.0.fill((NOTHING, 0)),
        }
    }
}

#[inline(always)]
fn entry_of(page: u64) -> usize {
    page as usize & (PAGES - 1)
}

/// The number of an access's bytes in its first page.
#[inline(always)]
pub(crate) fn bytes_in_first(address: u64, bytes: u64) -> u64 {
    bytes.min(IN_PAGE + 1 - (address & IN_PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_until_another_takes_its_place_or_all_is_forgotten() {
        let mut pages = Pages::new();
        assert_eq!(pages.get(0x1234), None);
        pages.put(0x1234, 0x7_0fff);
        assert_eq!((pages.get(0x1000), pages.get(0x1fff)), (Some(0x7_0000), Some(0x7_0fff)));
        let conflicting = 0x1000 + ((PAGES as u64) << PAGE_SHIFT);
        assert_eq!(pages.get(conflicting), None);
        pages.put(conflicting, 0x9000);
        assert_eq!((pages.get(0x1234), pages.get(conflicting)), (None, Some(0x9000)));
        let page = |virtual_address| Change {
            flush: Some(TlbFlush::Page { virtual_address, space: 0, global: true }),
            space: None,
        };
        pages.change(page(0xf0_0000_1fff));
        assert_eq!(pages.get(conflicting), Some(0x9000));
        pages.change(page(conflicting + 5));
        assert_eq!(pages.get(conflicting), None);
        pages.put(conflicting, 0x9000);
        pages.change(Change { flush: None, space: Some((1, 0x5000)) });
        assert_eq!(pages.get(conflicting), None);
    }

    #[test]
    fn accesses_are_cut_at_the_border_of_pages() {
        assert_eq!(bytes_in_first(0x1ff8, 8), 8);
        assert_eq!(bytes_in_first(0x1ff9, 8), 7);
        assert_eq!(bytes_in_first(0x1fff, 64), 1);
        assert_eq!(bytes_in_first(0x1000, 64), 64);
    }
}
