//! The accesses that a processor makes by itself when it enters a handler. QEMU makes them outside of translated code,
//! so no callback reports them.
//!
//! In 64-bit mode (Intel SDM, volume 3, 6.14; AMD64 manual, volume 2, 8.9) a processor reads the gate in the IDT
//! and the descriptor of the code segment in the GDT. If the privilege changes or the gate names a
//! stack, it reads the stack pointer in the TSS. Then it pushes five words, and an error code for some
//! exceptions. The reads of `iret` are inside translated code, where callbacks report them.

use std::collections::BTreeMap;

use machine::VirtualAddress;

use crate::guest::tracker::{Discontinuity, is_kernel};
use crate::models::accesses::OwnAccess;
use crate::models::pages::bytes_in_first;
use crate::models::physical;
use crate::qemu::Qemu;
use crate::qemu::qemu_internals::tables::{CpuStates, DescriptorTables};

const VECTORS: u64 = 256;
const GATE_BYTES: u64 = 16;
const DESCRIPTOR_BYTES: u64 = 8;
/// Offsets in the TSS: of the kernel's stack pointer, and 8 bytes before the stack pointers of gates, which count
/// from 1.
const TSS_KERNEL_STACK: u64 = 4;
const TSS_GATE_STACKS: u64 = 0x24 - 8;
/// Exceptions that push an error code.
const WITH_ERROR_CODE: [u64; 10] = [8, 10, 11, 12, 13, 14, 17, 21, 29, 30];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gate {
    vector: u64,
    selector: u16,
    /// The number of its stack, 0 for none.
    stack: u8,
    handler: u64,
}

impl Gate {
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

    /// The accesses of an entry. `stack_pointer` in `tables` is the value after the pushes.
    fn accesses(&self, tables: &DescriptorTables, from_user: bool) -> Vec<EntryAccess> {
        let gate = EntryAccess::load(tables.idt + self.vector * GATE_BYTES, GATE_BYTES);
        let descriptor = tables.gdt + u64::from(self.selector & !7);
        let descriptor =
            EntryAccess { depends: true, ..EntryAccess::load(descriptor, DESCRIPTOR_BYTES) };
        let mut accesses = vec![gate, descriptor];
        let stack = match self.stack {
            0 if from_user => Some(TSS_KERNEL_STACK),
            0 => None,
            number => Some(TSS_GATE_STACKS + 8 * u64::from(number)),
        };
        accesses.extend(stack.map(|offset| EntryAccess::load(tables.tss + offset, 8)));
        let pushed_words = 5 + u64::from(WITH_ERROR_CODE.contains(&self.vector));
        let pushed = EntryAccess::load(tables.stack_pointer, 8 * pushed_words);
        accesses.push(EntryAccess { write: true, ..pushed });
        accesses
    }
}

/// An access that the processor itself makes as it enters a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntryAccess {
    address: VirtualAddress,
    bytes: u64,
    write: bool,
    /// Whether its address comes from the previous access.
    depends: bool,
}

impl EntryAccess {
    fn load(address: u64, bytes: u64) -> EntryAccess {
        EntryAccess { address: VirtualAddress(address), bytes, write: false, depends: false }
    }
}

/// Follows entries of handlers.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    states: Option<CpuStates>,
    /// The table that gates were read from.
    idt: u64,
    /// Gates by the address of the handler; `None` for addresses that no gate has.
    gates: BTreeMap<u64, Option<Gate>>,
}

impl Entries {
    /// Follows entries if this QEMU shows where the descriptor tables are.
    pub(crate) fn find() -> Entries {
        Entries { states: CpuStates::find(), ..Entries::default() }
    }

    /// Whether this QEMU shows where the descriptor tables are.
    pub(crate) fn are_followed(&self) -> bool {
        self.states.is_some()
    }

    /// The accesses that a vCPU makes as it enters a handler.
    pub(crate) fn enter(
        &mut self,
        vcpu: u32,
        Discontinuity { from, to }: Discontinuity,
        qemu: &mut Qemu,
    ) -> Vec<OwnAccess> {
        if !is_kernel(to) {
            return Vec::new(); // firmware
        }
        let tables = self.states.and_then(|states| states.tables(vcpu));
        let Some(tables) = tables else { return Vec::new() };
        if tables.idt != self.idt {
            (self.idt, self.gates) = (tables.idt, BTreeMap::new());
        }
        let idt = tables.idt;
        let gate = *self.gates.entry(to).or_insert_with(|| {
            let gate = |vector| Some(Gate::parse(vector, qemu.memory(idt + vector * GATE_BYTES)?));
            (0..VECTORS).filter_map(gate).find(|gate| gate.handler == to)
        });
        let Some(gate) = gate else { return Vec::new() };
        let mut accesses = Vec::new();
        for access in gate.accesses(&tables, !is_kernel(from)) {
            let EntryAccess { address, bytes, write, depends } = access;
            let first = bytes_in_first(address, bytes);
            accesses.extend(own_access(address, first, write, depends));
            if first < bytes {
                accesses.extend(own_access(address.plus(first), bytes - first, write, depends));
            }
        }
        accesses
    }
}

/// An access of the processor, or `None` where no memory is mapped.
fn own_access(
    virtual_address: VirtualAddress,
    bytes: u64,
    write: bool,
    depends: bool,
) -> Option<OwnAccess> {
    let physical = physical::of_address(virtual_address)?;
    Some(OwnAccess { virtual_address, physical, bytes: bytes as u8, write, depends })
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
        let descriptor = EntryAccess { depends: true, ..load(0x1010, 8) };
        let tables = [load(14 * 16, 16), descriptor];
        let fault = accesses_of(gate(14, 0), true);
        assert_eq!(fault[..2], tables);
        assert_eq!(fault[2..], [load(0x3004, 8), push(0x8fd0, 48)]);
        // An interrupt of the kernel stays on its stack; a gate with a stack of its own does not.
        assert_eq!(accesses_of(gate(0xec, 0), false)[2..], [push(0x8fd0, 40)]);
        assert_eq!(accesses_of(gate(2, 1), false)[2], load(0x3024, 8));
    }
}
