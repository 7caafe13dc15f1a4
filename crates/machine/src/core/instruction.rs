//! Instructions as a core sees them: prepared once, read on each execution.

use crate::predict::BranchKind;

/// A unit that executes operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Integer arithmetic, logic, shifts and moves.
    Integer,
    /// Integer multiplication.
    Multiply,
    /// Integer division.
    Divide,
    /// Floating point: additions, comparisons, conversions.
    FloatAdd,
    /// Floating point: multiplications.
    FloatMultiply,
    /// Floating point: divisions and roots.
    FloatDivide,
    /// Vector registers: all else.
    Vector,
    /// Branches.
    Branch,
    /// Loads.
    Load,
    /// Stores.
    Store,
}

/// How many sorts of units there are.
pub(super) const UNITS: usize = 10;

/// What an instruction does besides reading and writing registers and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Special {
    /// Nothing.
    #[default]
    None,
    /// Takes many steps.
    Microcode,
    /// Keeps fetch from going on for a while.
    Pause,
    /// A locked access: after all stores before it, and before all loads behind it.
    Atomic,
    /// As that, without an access.
    Barrier,
    /// Waits for all before it, and has all behind it wait; no more.
    Fence,
    /// As that, and takes long.
    Serialise,
    /// Enters the kernel.
    SystemCall,
    /// Leaves it.
    SystemReturn,
    /// Leaves an interrupt.
    InterruptReturn,
}

/// How many sorts of [`Special`] there are.
pub(super) const SPECIALS: usize = 10;

impl Special {
    /// Whether it waits for all before it, and has all behind it wait.
    pub(super) fn drains(self) -> bool {
        self as u8 >= Special::Fence as u8
    }

    /// Whether what executes behind it is elsewhere, and nothing foresees where.
    pub(crate) fn ends_flow(self) -> bool {
        self as u8 >= Special::SystemCall as u8
    }

    /// Whether it comes after all stores before it, and before all loads behind it.
    pub(super) fn orders_memory(self) -> bool {
        matches!(self, Special::Atomic | Special::Barrier)
    }
}

/// A register, or what dependences treat as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(u8);

/// How many registers the tables of ready times have.
pub(super) const REGISTERS: usize = 128;

/// Where a register is in such a table.
#[inline]
pub(super) fn place(register: u8) -> usize {
    usize::from(register) % REGISTERS
}

/// Read where nothing is: always ready.
const NOTHING: u8 = 126;
/// Written where nothing is: never read.
const NOWHERE: u8 = 127;

impl Register {
    /// The condition flags, all of them.
    pub const FLAGS: Register = Register(16);
    /// The x87 stack, all of it.
    pub const X87: Register = Register(17);
    /// The stack pointer.
    pub const STACK_POINTER: Register = Register(4);

    /// A general register, 0 to 15 in the order of their encoding.
    #[must_use]
    pub const fn general(number: u8) -> Register {
        Register(number & 15)
    }

    /// A mask register, 0 to 7.
    #[must_use]
    pub const fn mask(number: u8) -> Register {
        Register(24 + (number & 7))
    }

    /// An MMX register, 0 to 7.
    #[must_use]
    pub const fn mmx(number: u8) -> Register {
        Register(32 + (number & 7))
    }

    /// A vector register of any width, 0 to 31.
    #[must_use]
    pub const fn vector(number: u8) -> Register {
        Register(64 + (number & 31))
    }
}

/// Most registers that form addresses, that are moved by the way, that are read besides, and that are
/// written. An instruction that has more is taken for one that waits for all before it.
const ADDRESSES: usize = 3;
const MOVES: usize = 2;
const READS: usize = 4;
const WRITES: usize = 3;

const LOADS: u8 = 1;
const STORES: u8 = 2;
pub(super) const STACK: u8 = 4;
pub(super) const NEW_LINE: u8 = 8;
const PLAIN: u8 = 16;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub(super) addresses: [u8; ADDRESSES],
    pub(super) reads: [u8; READS],
    pub(super) writes: [u8; WRITES],
    pub(super) moves: [u8; MOVES],
    pub(crate) unit: Option<Unit>,
    pub(super) special: Special,
    pub(super) branch: Option<BranchKind>,
    pub(super) flags: u8,
    pub(super) bytes: u8,
    /// From the start of its block.
    pub(super) offset: u16,
}

/// Puts `registers` where there is `nothing`; false if there are too many.
fn put(places: &mut [u8], nothing: u8, registers: &[Register]) -> bool {
    registers.iter().all(|register| {
        if places.contains(&register.0) {
            return true;
        }
        let free = places.iter_mut().find(|place| **place == nothing);
        free.map(|place| *place = register.0).is_some()
    })
}

impl Instruction {
    /// One of `bytes` that does nothing.
    #[must_use]
    pub fn nothing(bytes: u8) -> Instruction {
        Instruction {
            addresses: [NOTHING; ADDRESSES],
            reads: [NOTHING; READS],
            writes: [NOWHERE; WRITES],
            moves: [NOWHERE; MOVES],
            unit: None,
            special: Special::None,
            branch: None,
            flags: 0,
            bytes,
            offset: 0,
        }
    }

    /// An operation of a unit, of 4 bytes.
    #[must_use]
    pub fn of(unit: Unit) -> Instruction {
        Instruction { unit: Some(unit), ..Instruction::nothing(4) }
    }

    fn or_serialise(mut self, fits: bool) -> Instruction {
        if !fits && !self.special.drains() {
            self.special = Special::Fence;
        }
        self
    }

    /// It reads these for its operation, or for what it stores.
    #[must_use]
    pub fn reading(mut self, registers: &[Register]) -> Instruction {
        let fits = put(&mut self.reads, NOTHING, registers);
        self.or_serialise(fits)
    }

    /// It writes these.
    #[must_use]
    pub fn writing(mut self, registers: &[Register]) -> Instruction {
        let fits = put(&mut self.writes, NOWHERE, registers);
        self.or_serialise(fits)
    }

    /// It moves these on by the way: they form its address, and are new before what it loads is
    /// there.
    #[must_use]
    pub fn moving(mut self, registers: &[Register]) -> Instruction {
        let fits = put(&mut self.moves, NOWHERE, registers);
        self.or_serialise(fits)
    }

    /// It loads from an address that is formed of these.
    #[must_use]
    pub fn loading(mut self, address: &[Register]) -> Instruction {
        self.flags |= LOADS;
        let fits = put(&mut self.addresses, NOTHING, address);
        self.or_serialise(fits)
    }

    /// It stores to an address that is formed of these.
    #[must_use]
    pub fn storing(mut self, address: &[Register]) -> Instruction {
        self.flags |= STORES;
        let fits = put(&mut self.addresses, NOTHING, address);
        self.or_serialise(fits)
    }

    /// It is a branch.
    #[must_use]
    pub fn branching(mut self, kind: BranchKind) -> Instruction {
        self.branch = Some(kind);
        self
    }

    /// It does something besides.
    #[must_use]
    pub fn doing(mut self, special: Special) -> Instruction {
        self.special = special;
        self
    }

    /// It moves the stack pointer by itself, as a push does.
    #[must_use]
    pub fn moving_stack(mut self) -> Instruction {
        self.flags |= STACK;
        self
    }

    /// Its length.
    #[must_use]
    pub fn with_bytes(mut self, bytes: u8) -> Instruction {
        self.bytes = bytes;
        self
    }

    /// Whether it loads.
    #[must_use]
    #[inline]
    pub fn loads(&self) -> bool {
        self.flags & LOADS != 0
    }

    /// Whether it stores.
    #[must_use]
    #[inline]
    pub fn stores(&self) -> bool {
        self.flags & STORES != 0
    }

    /// Whether it does nothing but an operation on registers: known of those in a template.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.flags & PLAIN != 0
    }

    /// As one of a template.
    pub(super) fn classified(mut self) -> Instruction {
        let plain = !self.loads()
            && !self.stores()
            && self.special == Special::None
            && self.branch.is_none()
            && self.unit.is_some()
            && self.addresses == [NOTHING; ADDRESSES]
            && self.moves == [NOWHERE; MOVES];
        self.flags = self.flags & !PLAIN | if plain { PLAIN } else { 0 };
        self
    }

    /// Whether it is the first of its block in a line of instructions.
    #[inline]
    pub(super) fn begins_line(&self) -> bool {
        self.flags & NEW_LINE != 0
    }

    /// Its length, bytes.
    #[must_use]
    pub fn bytes(&self) -> u8 {
        self.bytes
    }

    /// What it does besides.
    #[must_use]
    pub fn special(&self) -> Special {
        self.special
    }

    /// What sort of branch it is.
    #[must_use]
    pub fn branch(&self) -> Option<BranchKind> {
        self.branch
    }

    /// As the one that leaves the stack pointer to the front.
    pub(super) fn without_stack(mut self) -> Instruction {
        let pointer = Register::STACK_POINTER.0;
        let read = self.addresses.iter_mut().chain(&mut self.reads);
        read.filter(|place| **place == pointer).for_each(|place| *place = NOTHING);
        let written = self.writes.iter_mut().chain(&mut self.moves);
        written.filter(|place| **place == pointer).for_each(|place| *place = NOWHERE);
        self
    }
}

/// For tests of what prepares instructions.
#[cfg(test)]
impl Instruction {
    pub(crate) fn sorted(mut self) -> Instruction {
        self.addresses.sort_unstable();
        self.reads.sort_unstable();
        self.writes.sort_unstable();
        self.moves.sort_unstable();
        self
    }

    pub(crate) fn reads(&self) -> Vec<Register> {
        let reads = self.reads.iter().filter(|place| **place != NOTHING);
        reads.map(|place| Register(*place)).collect()
    }

    pub(crate) fn writes(&self) -> Vec<Register> {
        let writes = self.writes.iter().filter(|place| **place != NOWHERE);
        writes.map(|place| Register(*place)).collect()
    }

    pub(crate) fn moves(&self) -> Vec<Register> {
        let moves = self.moves.iter().filter(|place| **place != NOWHERE);
        moves.map(|place| Register(*place)).collect()
    }
}
