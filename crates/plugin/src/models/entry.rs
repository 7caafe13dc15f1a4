//! Finds the accesses that a processor makes by itself when it enters a handler. QEMU makes these accesses outside of
//! translated code, so no callback reports them. [`Models::enter_handler`](super::Models::enter_handler) passes them to
//! the caches.
//!
//! In 64-bit mode (Intel SDM, volume 3, 6.14; AMD64 manual, volume 2, 8.9) a processor reads the gate in the IDT and
//! the descriptor of the code segment in the GDT. If the privilege changes or the gate names a stack, it reads the
//! stack pointer in the TSS. Then it pushes five words, and an error code for some exceptions. The reads of `iret` are
//! inside translated code, where callbacks report them.

use std::collections::BTreeMap;

use machine::VirtualAddress;

use crate::guest::tracker::{Discontinuity, is_kernel};
use crate::models::accesses::ProcessorAccess;
use crate::models::pages::bytes_in_first;
use crate::models::physical;
use crate::qemu::Qemu;
use crate::qemu::qemu_internals::tables::{CpuStates, DescriptorTables};

const VECTORS: u64 = 256;
const GATE_BYTES: u64 = 16;
const DESCRIPTOR_BYTES: u64 = 8;
/// Offset in the TSS of the kernel's stack pointer.
const TSS_KERNEL_STACK: u64 = 4;
/// Offset in the TSS of the stack pointers that gates name, minus 8 bytes, because the numbers in gates start at 1.
const TSS_GATE_STACKS: u64 = 0x24 - 8;
/// Vectors of the exceptions that push an error code.
const VECTORS_WITH_ERROR_CODE: [u64; 10] = [8, 10, 11, 12, 13, 14, 17, 21, 29, 30];

/// An entry of the IDT: the handler of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gate {
    vector: u64,
    /// The selector of the handler's code segment.
    selector: u16,
    /// The number of the stack that the gate names, from 1. 0: it names none.
    stack: u8,
    /// The virtual address of the handler.
    handler: u64,
}

impl Gate {
    /// Parses the gate of a vector (Intel SDM, volume 3, 6.14.1).
    fn parse(vector: u64, bytes: [u8; 16]) -> Gate {
        let number_at = |offset: usize, length: usize| {
            bytes[offset..offset + length]
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        Gate {
            vector,
            selector: number_at(2, 2) as u16,
            stack: bytes[4] & 7,
            handler: number_at(0, 2) | number_at(6, 2) << 16 | number_at(8, 4) << 32,
        }
    }

    /// The accesses of an entry through this gate. `tables` holds the stack pointer after the pushes. `from_user`:
    /// whether user mode was interrupted.
    fn accesses(&self, tables: &DescriptorTables, from_user: bool) -> Vec<EntryAccess> {
        let gate = EntryAccess::load(tables.idt + self.vector * GATE_BYTES, GATE_BYTES);
        let descriptor = tables.gdt + u64::from(self.selector & !7);
        let descriptor = EntryAccess {
            depends_on_previous: true,
            ..EntryAccess::load(descriptor, DESCRIPTOR_BYTES)
        };
        let mut accesses = vec![gate, descriptor];
        let stack = match self.stack {
            0 if from_user => Some(TSS_KERNEL_STACK),
            0 => None,
            number => Some(TSS_GATE_STACKS + 8 * u64::from(number)),
        };
        accesses.extend(stack.map(|offset| EntryAccess::load(tables.tss + offset, 8)));
        let pushed_words = 5 + u64::from(VECTORS_WITH_ERROR_CODE.contains(&self.vector));
        let pushed = EntryAccess::load(tables.stack_pointer, 8 * pushed_words);
        accesses.push(EntryAccess { write: true, ..pushed });
        accesses
    }
}

/// An access that the processor itself makes as it enters a handler. It can span two pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntryAccess {
    address: VirtualAddress,
    bytes: u64,
    write: bool,
    /// See [`ProcessorAccess::depends_on_previous`].
    depends_on_previous: bool,
}

impl EntryAccess {
    fn load(address: u64, bytes: u64) -> EntryAccess {
        let address = VirtualAddress(address);
        EntryAccess { address, bytes, write: false, depends_on_previous: false }
    }
}

/// Finds the accesses of entries into handlers.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// Finds a vCPU's descriptor tables. `None`: this QEMU does not show them.
    states: Option<CpuStates>,
    /// The address of the IDT that `gates` was read from.
    idt: u64,
    /// Gates by the address of the handler. `None` for an address that no gate has.
    gates: BTreeMap<u64, Option<Gate>>,
}

impl Entries {
    /// Finds out whether this QEMU shows where the descriptor tables are.
    pub(crate) fn find() -> Entries {
        Entries { states: CpuStates::find(), ..Entries::default() }
    }

    /// Whether this QEMU shows where the descriptor tables are.
    pub(crate) fn are_followed(&self) -> bool {
        self.states.is_some()
    }

    /// The accesses that a vCPU has made as it entered a handler of the kernel. Call it between two blocks, right after
    /// the entry. Empty if they cannot be found.
    pub(crate) fn enter(
        &mut self,
        vcpu: u32,
        Discontinuity { interrupted, handler, .. }: Discontinuity,
        qemu: &mut Qemu,
    ) -> Vec<ProcessorAccess> {
        if !is_kernel(handler) {
            return Vec::new(); // firmware
        }
        let tables = self.states.and_then(|states| states.tables(vcpu));
        let Some(tables) = tables else { return Vec::new() };
        if tables.idt != self.idt {
            (self.idt, self.gates) = (tables.idt, BTreeMap::new());
        }
        let idt = tables.idt;
        let gate = *self.gates.entry(handler).or_insert_with(|| {
            let gate = |vector| Some(Gate::parse(vector, qemu.memory(idt + vector * GATE_BYTES)?));
            (0..VECTORS).filter_map(gate).find(|gate| gate.handler == handler)
        });
        let Some(gate) = gate else { return Vec::new() };
        let mut accesses = Vec::new();
        for access in gate.accesses(&tables, !is_kernel(interrupted)) {
            let EntryAccess { address, bytes, .. } = access;
            let first = bytes_in_first(address, bytes);
            accesses.extend(access_in_page(access, address, first));
            if first < bytes {
                accesses.extend(access_in_page(access, address.plus(first), bytes - first));
            }
        }
        accesses
    }
}

/// The part of `access` in the page of `virtual_address`. `None` if no memory is mapped there.
fn access_in_page(
    access: EntryAccess,
    virtual_address: VirtualAddress,
    bytes: u64,
) -> Option<ProcessorAccess> {
    let EntryAccess { write, depends_on_previous, .. } = access;
    let physical = physical::translate(virtual_address)?;
    let bytes = bytes as u8;
    Some(ProcessorAccess { virtual_address, physical, bytes, write, depends_on_previous })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: DescriptorTables =
        DescriptorTables { tss: 0x3000, gdt: 0x1000, idt: 0x0, stack_pointer: 0x8fd0 };

    #[test]
    fn a_gate_is_read_as_the_processor_reads_it() {
        let bytes = [0xe0, 0x0b, 0x10, 0, 3, 0x8e, 0xc0, 0x81, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        let gate = Gate::parse(14, bytes);
        let handler = 0xffff_ffff_81c0_0be0;
        assert_eq!(gate, Gate { vector: 14, selector: 0x10, stack: 3, handler });
    }

    #[test]
    fn entries_read_the_tables_and_push_a_frame() {
        let gate = |vector, stack| Gate { vector, selector: 0x10, stack, handler: 0 };
        let accesses_of = |gate: Gate, from_user| gate.accesses(&TABLES, from_user);
        let load = EntryAccess::load;
        let push = |address, bytes| EntryAccess { write: true, ..load(address, bytes) };
        let descriptor = EntryAccess { depends_on_previous: true, ..load(0x1010, 8) };
        let tables = [load(14 * 16, 16), descriptor];
        let fault = accesses_of(gate(14, 0), true);
        assert_eq!(fault[..2], tables);
        assert_eq!(fault[2..], [load(0x3004, 8), push(0x8fd0, 48)]);
        // An interrupt of the kernel stays on its stack; a gate with a stack of its own does not.
        assert_eq!(accesses_of(gate(0xec, 0), false)[2..], [push(0x8fd0, 40)]);
        assert_eq!(accesses_of(gate(2, 1), false)[2], load(0x3024, 8));
    }
}
