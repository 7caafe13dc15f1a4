//! Finds out whether the guest's kernel isolates its page tables (`pti=on`), and which of its pages are then global.
//!
//! The entry code of such a kernel, and no other, writes cr3. Whether user mode's page tables map the kernel's other code,
//! too, depends on the kernel's options and on the processor (arch/x86/mm/pti.c, `pti_kernel_image_global_ok`). The guest's
//! memory tells: a vCPU that is about to leave user mode's page tables can read that code only if they map it.

use machine::VirtualAddress;
use machine::memory::GlobalPages;
use plugin_interface::symbols::KernelCode;

use crate::guest::memory::GuestMemory;

/// The bit of cr3 that user mode's page tables have, and the kernel's lack (`PTI_USER_PGTABLE_BIT`).
const USER_TABLES: u64 = 1 << 12;
/// Size of the pages that map the kernel's image.
const IMAGE_PAGE_BYTES: u64 = 2 << 20;

/// The isolation that the guest's kernel has shown so far.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    /// `None`: the kernel has not entered from isolated page tables.
    pages: Option<GlobalPages>,
}

/// An instruction that is about to write cr3.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTablesWrite {
    /// The address of the instruction.
    pub(crate) instruction: VirtualAddress,
    pub(crate) old_cr3: u64,
    pub(crate) new_cr3: u64,
}

impl Isolation {
    /// The kernel's global pages. `None` if `write` is not in the kernel's entry code, or no vCPU has left user
    /// mode's page tables so far.
    pub(crate) fn pages_at(
        &mut self,
        write: PageTablesWrite,
        code: &KernelCode,
        memory: &mut impl GuestMemory,
    ) -> Option<GlobalPages> {
        if !code.entry.contains(&write.instruction.0) {
            return None;
        }
        let leaves_user_tables =
            write.old_cr3 & USER_TABLES != 0 && write.new_cr3 & USER_TABLES == 0;
        if self.pages.is_none() && leaves_user_tables {
            let before_entry = code.entry.start / IMAGE_PAGE_BYTES * IMAGE_PAGE_BYTES - 1;
            let maps_all_code =
                code.all.contains(&before_entry) && memory.bytes_at::<1>(before_entry).is_some();
            let global_code = if maps_all_code { &code.all } else { &code.entry };
            self.pages = Some(GlobalPages::isolated(global_code.clone()));
        }
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::memory::tests::TestMemory;

    const ENTRY: u64 = 0xffff_ffff_81c0_0010;

    fn code() -> KernelCode {
        let all = 0xffff_ffff_8100_0000..0xffff_ffff_81e0_1cf2;
        KernelCode { all, entry: ENTRY..ENTRY + 0x1ac7 }
    }

    fn write(instruction: u64, old_cr3: u64, new_cr3: u64) -> PageTablesWrite {
        PageTablesWrite { instruction: VirtualAddress(instruction), old_cr3, new_cr3 }
    }

    const TO_KERNEL: (u64, u64) = (0x12_3000, 0x12_2000);

    #[test]
    fn only_a_write_of_the_entry_code_shows_isolation() {
        let (mut isolation, mut memory) = (Isolation::default(), TestMemory::default());
        let (old, new) = TO_KERNEL;
        let mut pages = |write| isolation.pages_at(write, &code(), &mut memory);
        // A switch between two processes, whose tables may differ in the same bit.
        assert_eq!(pages(write(0xffff_ffff_8107_0000, old, new)), None);
        // The first write that was seen goes to user mode: the kernel's tables map everything.
        assert_eq!(pages(write(ENTRY + 0x80, new, old)), None);
        let entry_only = Some(GlobalPages::isolated(code().entry));
        assert_eq!(pages(write(ENTRY + 0x40, old, new)), entry_only);
        assert_eq!(pages(write(ENTRY + 0x80, new, old)), entry_only);
    }

    #[test]
    fn code_that_user_mode_maps_is_global() {
        let (mut isolation, mut memory) = (Isolation::default(), TestMemory::default());
        memory.write(0xffff_ffff_81bf_ffff, &[0x90]);
        let (old, new) = TO_KERNEL;
        let pages = isolation.pages_at(write(ENTRY, old, new), &code(), &mut memory);
        assert_eq!(pages, Some(GlobalPages::isolated(code().all)));
    }
}
