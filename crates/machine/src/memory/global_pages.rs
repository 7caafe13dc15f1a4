//! The pages that the guest's kernel marks as global. A write of cr3 does not drop their translations.

use std::ops::Range;

use crate::address::VirtualAddress;

/// Size of the pages that map the kernel's image.
const IMAGE_PAGE_BYTES: u64 = 2 << 20;
/// The area with the descriptor tables and entry stacks of each CPU
/// (Documentation/arch/x86/x86_64/mm.rst, `cpu_entry_area`).
const ENTRY_AREA: Range<u64> = 0xffff_fe00_0000_0000..0xffff_fe80_0000_0000;

/// The global pages of a Linux guest. Intel SDM, volume 3, 4.10.2.4; AMD64 manual, volume 2, 5.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GlobalPages {
    /// All pages in the kernel's half of the addresses: the kernel does not isolate page tables.
    #[default]
    KernelHalf,
    /// The kernel isolates page tables (`pti=on`). Global are the area of CPU entries, and the pages of the image from
    /// `start` to `end`: the kernel's entry code, or with `pti=auto` all its code (arch/x86/mm/pti.c).
    Isolated { start: VirtualAddress, end: VirtualAddress },
}

impl GlobalPages {
    /// The global pages of a kernel that isolates page tables. `code`: the part of its code that is mapped in user mode.
    #[must_use]
    pub fn isolated(code: Range<u64>) -> GlobalPages {
        let start = VirtualAddress(code.start / IMAGE_PAGE_BYTES * IMAGE_PAGE_BYTES);
        let end = VirtualAddress(code.end.next_multiple_of(IMAGE_PAGE_BYTES));
        GlobalPages::Isolated { start, end }
    }

    /// Whether the page of an address is global. `address`: may lack the sign extension above bit 47.
    #[inline]
    pub(crate) fn contain(self, address: VirtualAddress) -> bool {
        if !is_in_kernel_half(address) {
            return false;
        }
        match self {
            GlobalPages::KernelHalf => true,
            GlobalPages::Isolated { start, end } => {
                let address = VirtualAddress(address.0 | 0xffff << 48);
                ENTRY_AREA.contains(&address.0) || start <= address && address < end
            }
        }
    }
}

/// Whether an address is in the upper half of the addresses, which all address spaces share.
pub(crate) fn is_in_kernel_half(address: VirtualAddress) -> bool {
    address.block_number(47) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolated_page_tables_have_few_global_pages() {
        let entry_code = 0xffff_ffff_81a0_1000..0xffff_ffff_81c0_2000;
        let isolated = GlobalPages::isolated(entry_code);
        let is_global = |address| isolated.contain(VirtualAddress(address));
        // The entry code, with the rest of its pages of 2 MiB.
        assert!(is_global(0xffff_ffff_81a0_0000) && is_global(0xffff_ffff_81df_ffff));
        assert!(!is_global(0xffff_ffff_819f_ffff) && !is_global(0xffff_ffff_81e0_0000));
        // The area of CPU entries, also without sign extension; the direct map.
        assert!(is_global(0xffff_fe00_0000_1000) && is_global(0xfe00_0000_1000));
        assert!(!is_global(0xffff_8880_0000_0000));
        let all = GlobalPages::KernelHalf;
        assert!(all.contain(VirtualAddress(0xffff_8880_0000_0000)));
        for pages in [all, isolated] {
            assert!(!pages.contain(VirtualAddress(0x7fff_ffff_f000)));
        }
    }
}
