//! Finds out how an instruction changes the guest's address translations, and applies the change to the TLBs of a
//! memory system. `translation_points.rs` calls it before the instruction executes.
//!
//! Without PCIDs, which QEMU's own translator does not offer, a write of cr3 drops all pages that are not global.
//! Guests with and without PCIDs are handled.

use machine::decode::{MemoryOperand, TranslationChange};
use machine::memory::{MemorySystem, TlbFlush};
use machine::{PhysicalAddress, VirtualAddress};

use crate::qemu::{Qemu, Registers};
use plugin_interface::annotations::REGISTERS;

/// Bit of cr4: pages can be global.
const CR4_PGE: u64 = 1 << 7;
/// Bit of cr4: PCIDs are enabled.
const CR4_PCIDE: u64 = 1 << 17;
/// The bit of a new cr3 that keeps the translations of its address space.
const KEEPS_TRANSLATIONS: u64 = 1 << 63;
/// The bits of cr3 with the number of the address space, the PCID.
const SPACE_MASK: u64 = 0xfff;

/// An instruction's change of translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The translations that are dropped. `None`: none are.
    pub(crate) flush: Option<TlbFlush>,
    /// The new address space, and the address of its page tables. `None`: the address space stays.
    pub(crate) space: Option<(u16, PhysicalAddress)>,
}

/// Applies a change to the TLBs of processor `cpu`.
pub(crate) fn apply(change: Change, system: &mut MemorySystem, cpu: usize) {
    if let Some((space, cr3)) = change.space {
        system.set_address_space(cpu, space, cr3);
    }
    if let Some(flush) = change.flush {
        system.flush_tlbs(cpu, flush);
    }
}

/// The change that is assumed if operands cannot be read: drops everything.
const EVERYTHING: Change = Change { flush: Some(TlbFlush::All), space: None };

/// Reads the registers and memory that an instruction's operands name.
trait Guest {
    fn general(&mut self, number: u8) -> Option<u64>;
    fn cr3(&mut self) -> Option<u64>;
    fn cr4(&mut self) -> Option<u64>;
    fn memory(&mut self, address: VirtualAddress) -> Option<[u8; 16]>;

    fn address(&mut self, operand: MemoryOperand) -> Option<VirtualAddress> {
        let base = operand.base.map_or(Some(0), |number| self.general(number))?;
        let index = operand.index.map_or(Some(0), |number| self.general(number))?;
        let scaled = index.wrapping_mul(operand.scale.into());
        Some(VirtualAddress(base).plus(scaled).plus(operand.displacement))
    }
}

/// Reads operands from the running vCPU.
struct Operands<'q>(&'q mut Qemu, Registers);

impl Operands<'_> {
    /// The value of a register. `None` if QEMU has no register of this name, or gives no access to it.
    fn register_value(&mut self, name: &str) -> Option<u64> {
        let position = REGISTERS.iter().position(|known| *known == name)?;
        Some(self.0.register_value(self.1.named[position]?))
    }
}

/// The names of the general registers, in the order of their numbers.
const GENERAL: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

impl Guest for Operands<'_> {
    fn general(&mut self, number: u8) -> Option<u64> {
        self.register_value(GENERAL.get(usize::from(number))?)
    }

    fn cr3(&mut self) -> Option<u64> {
        self.register_value("cr3")
    }

    fn cr4(&mut self) -> Option<u64> {
        self.register_value("cr4")
    }

    fn memory(&mut self, address: VirtualAddress) -> Option<[u8; 16]> {
        self.0.memory::<16>(address.0)
    }
}

/// The change that the next instruction of the running vCPU makes. Without `registers`, it drops all translations.
pub(crate) fn next_change(
    qemu: &mut Qemu,
    registers: Option<Registers>,
    change: TranslationChange,
) -> Change {
    registers.map_or(EVERYTHING, |registers| change_of(&mut Operands(qemu, registers), change))
}

/// The values of cr3 before and after the running vCPU loads it from general register `from`. `None` if QEMU does not
/// give access to one of the registers.
pub(crate) fn cr3_before_and_after(
    qemu: &mut Qemu,
    registers: Registers,
    from: u8,
) -> Option<(u64, u64)> {
    let mut operands = Operands(qemu, registers);
    operands.cr3().zip(operands.general(from))
}

/// The address of an operand of the next instruction of the running vCPU. `None` if a register is not known.
pub(crate) fn address(
    qemu: &mut Qemu,
    registers: Registers,
    operand: MemoryOperand,
) -> Option<VirtualAddress> {
    Operands(qemu, registers).address(operand)
}

fn change_of(guest: &mut impl Guest, change: TranslationChange) -> Change {
    known_change_of(guest, change).unwrap_or(EVERYTHING)
}

/// The change that an instruction makes, or `None` if an operand cannot be read.
fn known_change_of(guest: &mut impl Guest, change: TranslationChange) -> Option<Change> {
    let cr4 = guest.cr4()?;
    let (is_global, has_spaces) = (cr4 & CR4_PGE != 0, cr4 & CR4_PCIDE != 0);
    let space = if has_spaces { (guest.cr3()? & SPACE_MASK) as u16 } else { 0 };
    let flush_only = |flush| Some(Change { flush: Some(flush), space: None });
    match change {
        TranslationChange::Mode => flush_only(TlbFlush::All),
        TranslationChange::PageTables { from } => {
            let cr3 = guest.general(from)?;
            let space = if has_spaces { (cr3 & SPACE_MASK) as u16 } else { 0 };
            let keeps = has_spaces && cr3 & KEEPS_TRANSLATIONS != 0;
            let flush = if keeps {
                None
            } else if is_global {
                Some(TlbFlush::Space(space))
            } else {
                Some(TlbFlush::All)
            };
            let page_tables = PhysicalAddress(cr3 & !KEEPS_TRANSLATIONS);
            Some(Change { flush, space: Some((space, page_tables)) })
        }
        TranslationChange::Page(operand) => {
            let virtual_address = guest.address(operand?)?;
            flush_only(TlbFlush::Page { virtual_address, space, global: true })
        }
        TranslationChange::Described { kind, at } => {
            let kind = guest.general(kind)?;
            let descriptor_address = guest.address(at?)?;
            let descriptor = guest.memory(descriptor_address)?;
            let (low, high) = descriptor.split_at(8);
            let [low, high] = [low, high].map(|half| half.try_into().map(u64::from_le_bytes));
            let (space, virtual_address) =
                ((low.ok()? & SPACE_MASK) as u16, VirtualAddress(high.ok()?));
            flush_only(match kind {
                0 => TlbFlush::Page { virtual_address, space, global: false },
                1 => TlbFlush::Space(space),
                3 => TlbFlush::NonGlobal,
                _ => TlbFlush::All,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use machine::decode::Decoder;

    use super::*;

    /// A vCPU with the fields' values. Each further register holds 16 times its number.
    struct Fake {
        cr3: u64,
        cr4: u64,
        rax: u64,
        rcx: u64,
        descriptor: Option<(u64, [u64; 2])>,
    }

    impl Guest for Fake {
        fn general(&mut self, number: u8) -> Option<u64> {
            Some(match number {
                0 => self.rax,
                1 => self.rcx,
                _ => u64::from(number) * 16,
            })
        }

        fn cr3(&mut self) -> Option<u64> {
            Some(self.cr3)
        }

        fn cr4(&mut self) -> Option<u64> {
            Some(self.cr4)
        }

        fn memory(&mut self, address: VirtualAddress) -> Option<[u8; 16]> {
            let (at, [low, high]) = self.descriptor?;
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&low.to_le_bytes());
            bytes[8..].copy_from_slice(&high.to_le_bytes());
            (at == address.0).then_some(bytes)
        }
    }

    fn changed(bytes: &[u8], guest: &mut Fake) -> Change {
        let change = Decoder::default().decode(bytes, VirtualAddress(0)).translation_change();
        change_of(guest, change.expect("an instruction that changes translations"))
    }

    const MOV_RAX_CR3: [u8; 3] = [0x0f, 0x22, 0xd8];

    #[test]
    fn operands_say_what_is_dropped() {
        let new = || Fake { cr3: 7, cr4: CR4_PGE, rax: 0x5123_4003, rcx: 1, descriptor: None };
        let flush = |flush| Change { flush: Some(flush), space: None };
        // Without PCIDs the low bits of cr3 are no address space.
        let expected =
            Change { space: Some((0, PhysicalAddress(0x5123_4003))), ..flush(TlbFlush::Space(0)) };
        assert_eq!(changed(&MOV_RAX_CR3, &mut new()), expected);
        let mut plain = Fake { cr4: 0, ..new() };
        assert_eq!(changed(&MOV_RAX_CR3, &mut plain).flush, Some(TlbFlush::All));
        let mut with_spaces = Fake { cr4: CR4_PGE | CR4_PCIDE, ..new() };
        let expected =
            Change { space: Some((3, PhysicalAddress(0x5123_4003))), ..flush(TlbFlush::Space(3)) };
        assert_eq!(changed(&MOV_RAX_CR3, &mut with_spaces), expected);
        with_spaces.rax |= KEEPS_TRANSLATIONS;
        assert_eq!(changed(&MOV_RAX_CR3, &mut with_spaces), Change { flush: None, ..expected });
        // invlpg 8(%rdi,%rbx,4): of the address space in cr3.
        let page = |address, space, global| {
            let virtual_address = VirtualAddress(address);
            flush(TlbFlush::Page { virtual_address, space, global })
        };
        let invlpg = [0x0f, 0x01, 0x7c, 0x9f, 8];
        let address = 7 * 16 + 3 * 16 * 4 + 8;
        assert_eq!(changed(&invlpg, &mut new()), page(address, 0, true));
        assert_eq!(changed(&invlpg, &mut with_spaces), page(address, 7, true));
        // invpcid (%rsp), %rcx
        let invpcid = [0x66, 0x0f, 0x38, 0x82, 0x0c, 0x24];
        with_spaces.descriptor = Some((4 * 16, [9, 0x7000]));
        let kinds = [0, 1, 2, 3].map(|kind| {
            with_spaces.rcx = kind;
            changed(&invpcid, &mut with_spaces)
        });
        let others = [TlbFlush::Space(9), TlbFlush::All, TlbFlush::NonGlobal].map(flush);
        assert_eq!((kinds[0], &kinds[1..]), (page(0x7000, 9, false), &others[..]));
        // mov %rax, %cr4; and what cannot be read.
        assert_eq!(changed(&[0x0f, 0x22, 0xe0], &mut new()), EVERYTHING);
        assert_eq!(changed(&invpcid, &mut new()), EVERYTHING);
    }
}
