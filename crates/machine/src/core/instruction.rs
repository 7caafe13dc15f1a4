//! Instructions and blocks as a core sees them. [`decode`](crate::decode) describes each instruction with the builder
//! methods of [`Instruction`]; the plugin makes a [`Template`] of each block when QEMU translates it. All cores read
//! templates at each execution, so their size and layout matter for speed.

mod operation;
mod register;
mod template;
mod unit;

use crate::predict::BranchKind;
pub(super) use operation::{OPERATIONS, OPERATIONS_WITH_INTERVAL, SPECIALS};
pub use operation::{Operation, Special, StringOperation};
pub use register::Register;
pub(super) use register::{REGISTERS, register_index};
pub(crate) use template::CODE_LINE_SHIFT;
pub use template::{Layout, Template};
pub use unit::Unit;
pub(super) use unit::{UNIT_KINDS, UNITS};

/// Fills unused entries of lists of read registers: never written, so always ready.
const NOTHING: u8 = 126;
/// Fills unused entries of lists of written registers: never read.
const NOWHERE: u8 = 127;

/// The number of the general register that counts the iterations of `loop`.
const COUNTER: u8 = 1;

/// Maximum number of registers of an instruction that form addresses, that change as a side effect, that are read
/// otherwise, and that are written. An instruction with more registers waits for all instructions before it.
const ADDRESSES: usize = 3;
const MOVES: usize = 2;
const READS: usize = 4;
const WRITES: usize = 3;

// The bits of `Instruction::flags`.
const LOADS: u16 = 1;
const STORES: u16 = 2;
/// The instruction moves the stack pointer implicitly.
pub(super) const STACK: u16 = 4;
/// The instruction is the first of its block in a line of L1I.
pub(super) const NEW_LINE: u16 = 8;
/// See [`Instruction::is_plain`].
const PLAIN: u16 = 16;
/// A move between two registers of one kind.
const MOVES_REGISTER: u16 = 32;
/// The result is always zero.
const ZEROES: u16 = 64;
/// A small constant is added to a register. Both bits together, because all 16 bits are in use.
const ADDS_CONSTANT: u16 = MOVES_REGISTER | ZEROES;
/// The instruction loads or stores a vector register.
const VECTOR: u16 = 128;
/// A repeated string instruction that copies (`rep movs`), fills (`rep stos`), or, with both bits, reads.
const COPIES: u16 = 256;
const FILLS: u16 = 512;
const READS_STRING: u16 = COPIES | FILLS;
/// The instruction starts a line of the cache of decoded instructions.
const NEW_DECODED_LINE: u16 = 1024;
/// The instruction's stores bypass the caches.
const STREAMS: u16 = 2048;
/// The instruction only operates on registers and sets flags. Some cores fuse it with the next branch.
const FUSIBLE: u16 = 4096;
/// The instruction is fused with the next branch. Only instructions of a [`Template`] have this flag.
const FUSED: u16 = 8192;
/// The instruction's address has a scaled index.
const SCALED: u16 = 16384;
/// The instruction reads or writes more registers than [`Instruction::first_registers`] returns, or changes a
/// register as a side effect.
const MANY: u16 = 32768;

/// The bit of [`Instruction::address_form`] that is set if the address has an index.
pub(crate) const ADDRESS_HAS_INDEX: u16 = 4;

/// The stages of an out-of-order core that an instruction needs: chooses a specialised copy of its timing rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Class {
    /// All stages: the general rule, which fits every instruction and is the slowest.
    #[default]
    AllStages,
    /// A repetition of a string instruction.
    Repetition,
    /// An operation that is fused with the branch after it.
    Fused,
    /// An operation on registers, or a branch that depends on registers.
    Operation,
    Load,
    Store,
    LoadAndStore,
}

/// An instruction as a core sees it. Unused entries of register lists are `NOTHING` or `NOWHERE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Registers that form addresses.
    pub(super) addresses: [u8; ADDRESSES],
    /// Registers that are read for the operation, or stored.
    pub(super) reads: [u8; READS],
    pub(super) writes: [u8; WRITES],
    /// Address registers that change as a side effect, before a load is ready.
    pub(super) moves: [u8; MOVES],
    pub(crate) unit: Option<Unit>,
    /// The index of its latency in [`Latencies`](super::Latencies): the unit's number, or [`UNITS`] plus the number of
    /// an [`Operation`].
    pub(super) latency: u8,
    pub(super) special: Special,
    pub(super) branch: Option<BranchKind>,
    pub(super) flags: u16,
    pub(super) bytes: u8,
    /// A number for how its address is formed, for memory renaming: equal forms have equal numbers. Zero unless the
    /// value has 32 or 64 bits and is in a general register or an immediate.
    pub(super) address_form: u16,
    /// The offset from the start of its block, in bytes.
    pub(super) offset: u16,
    /// Set only in instructions of a template.
    pub(super) class: Class,
}

/// Adds registers to a list whose unused entries are `unused`. Returns whether they fit.
fn add_registers(list: &mut [u8], unused: u8, registers: &[Register]) -> bool {
    registers.iter().all(|register| {
        if list.contains(&register.0) {
            return true;
        }
        let free = list.iter_mut().find(|entry| **entry == unused);
        free.map(|entry| *entry = register.0).is_some()
    })
}

impl Instruction {
    /// Returns an instruction of `bytes` that does nothing.
    #[must_use]
    pub fn nothing(bytes: u8) -> Instruction {
        Instruction {
            addresses: [NOTHING; ADDRESSES],
            reads: [NOTHING; READS],
            writes: [NOWHERE; WRITES],
            moves: [NOWHERE; MOVES],
            unit: None,
            latency: 0,
            special: Special::None,
            branch: None,
            flags: 0,
            bytes,
            address_form: 0,
            offset: 0,
            class: Class::AllStages,
        }
    }

    /// Returns an operation of a unit, of 4 bytes.
    #[must_use]
    pub fn of_unit(unit: Unit) -> Instruction {
        Instruction {
            unit: Some(unit),
            latency: unit.kind_in_model() as u8,
            ..Instruction::nothing(4)
        }
    }

    /// Sets the latency to the latency of `operation`.
    #[must_use]
    pub fn as_operation(mut self, operation: Operation) -> Instruction {
        self.latency = (UNITS + operation as usize) as u8;
        self
    }

    /// Sets the latency to the latency of `other`.
    pub(crate) fn with_latency_of(mut self, other: Instruction) -> Instruction {
        self.latency = other.latency;
        self
    }

    /// Marks the instruction as a move between two registers of one kind.
    #[must_use]
    pub fn moving_register(mut self) -> Instruction {
        self.flags |= MOVES_REGISTER;
        self
    }

    /// Marks the instruction as zeroing: its result is 0, whatever the register held.
    #[must_use]
    pub fn zeroing(mut self) -> Instruction {
        self.flags |= ZEROES;
        self
    }

    /// Marks the instruction as an addition or subtraction of a small constant.
    #[must_use]
    pub fn adding_constant(mut self) -> Instruction {
        self.flags |= ADDS_CONSTANT;
        self
    }

    /// Makes an instruction with too many registers wait for all earlier instructions: the list would miss dependences.
    fn or_serialise(mut self, fits: bool) -> Instruction {
        if !fits && !self.special.drains() {
            self.special = Special::Fence;
        }
        self
    }

    /// Adds registers that the instruction reads for its operation, or stores.
    #[must_use]
    pub fn reading(mut self, registers: &[Register]) -> Instruction {
        let fits = add_registers(&mut self.reads, NOTHING, registers);
        self.or_serialise(fits)
    }

    /// Adds registers that the instruction writes.
    #[must_use]
    pub fn writing(mut self, registers: &[Register]) -> Instruction {
        let fits = add_registers(&mut self.writes, NOWHERE, registers);
        self.or_serialise(fits)
    }

    /// Adds registers that the instruction changes as a side effect. They form its address, and have
    /// their new values before the load is ready.
    #[must_use]
    pub fn moving(mut self, registers: &[Register]) -> Instruction {
        let fits = add_registers(&mut self.moves, NOWHERE, registers);
        self.or_serialise(fits)
    }

    /// Adds a load from an address that these registers form.
    #[must_use]
    pub fn loading(mut self, address: &[Register]) -> Instruction {
        self.flags |= LOADS;
        let fits = add_registers(&mut self.addresses, NOTHING, address);
        self.or_serialise(fits)
    }

    /// Adds a store to an address that these registers form.
    #[must_use]
    pub fn storing(mut self, address: &[Register]) -> Instruction {
        self.flags |= STORES;
        let fits = add_registers(&mut self.addresses, NOTHING, address);
        self.or_serialise(fits)
    }

    #[must_use]
    pub fn branching(mut self, kind: BranchKind) -> Instruction {
        self.branch = Some(kind);
        self
    }

    #[must_use]
    pub fn doing(mut self, special: Special) -> Instruction {
        self.special = special;
        self
    }

    /// Marks the instruction as a move of 32 or 64 bits to or from memory, at an address of this form. The other
    /// operand is a general register or an immediate.
    #[must_use]
    pub fn with_address_form(mut self, form: u16) -> Instruction {
        self.address_form = form;
        self
    }

    #[inline]
    pub(crate) fn address_has_index(&self) -> bool {
        self.address_form & ADDRESS_HAS_INDEX != 0
    }

    /// Marks the load as a load into vector registers.
    #[must_use]
    pub fn loading_vector(mut self) -> Instruction {
        self.flags |= VECTOR;
        self
    }

    /// Marks the instruction as one repetition of a string instruction. A comparison and a scan write the flags, a load
    /// does not. A comparison has two addresses, a scan has one.
    #[must_use]
    pub fn repeating(mut self, operation: StringOperation) -> Instruction {
        self.flags |= match operation {
            StringOperation::Copy => COPIES,
            StringOperation::Fill => FILLS,
            StringOperation::Load | StringOperation::Compare | StringOperation::Scan => {
                READS_STRING
            }
        };
        self
    }

    /// Marks the instruction as fusible with a following conditional branch.
    #[must_use]
    pub fn fusible(mut self) -> Instruction {
        self.flags |= FUSIBLE;
        self
    }

    /// Whether the instruction is fused with the branch after it.
    #[inline]
    pub(super) fn is_fused(&self) -> bool {
        self.flags & FUSED != 0
    }

    /// Whether the instruction may occupy its unit for another time than other operations of the unit.
    fn may_have_interval(&self) -> bool {
        OPERATIONS_WITH_INTERVAL.iter().any(|operation| self.is_operation(*operation))
    }

    /// Whether the instruction is this operation.
    #[inline]
    pub(super) fn is_operation(&self, operation: Operation) -> bool {
        usize::from(self.latency) == UNITS + operation as usize
    }

    /// Whether the instruction adds a small constant to a register.
    #[inline(always)]
    pub(crate) fn adds_constant(&self) -> bool {
        self.flags & ADDS_CONSTANT == ADDS_CONSTANT
    }

    /// Marks the address as one with a scaled index.
    #[must_use]
    pub fn with_scaled_index(mut self) -> Instruction {
        self.flags |= SCALED;
        self
    }

    /// The index of the load's latency. Bit 0: with a scaled index. Bit 1: into a vector register.
    #[inline]
    pub(super) fn load_form(&self) -> usize {
        usize::from(self.flags & SCALED != 0) | usize::from(self.flags & VECTOR != 0) << 1
    }

    /// Whether the loaded value goes to a vector register.
    #[inline]
    pub(super) fn loads_vector(&self) -> bool {
        self.flags & VECTOR != 0
    }

    /// Whether the stored value comes from a vector register.
    #[inline]
    pub(super) fn stores_vector(&self) -> bool {
        self.flags & (VECTOR | STORES) == VECTOR | STORES
    }

    /// The operation of a repeated string instruction, or `None` for another instruction.
    #[inline]
    pub(super) fn repetition_of(&self) -> Option<StringOperation> {
        match self.flags & READS_STRING {
            COPIES => Some(StringOperation::Copy),
            FILLS => Some(StringOperation::Fill),
            READS_STRING if self.writes.contains(&Register::FLAGS.0) => {
                let has_two_addresses = self.addresses[1] != NOTHING;
                Some(if has_two_addresses {
                    StringOperation::Compare
                } else {
                    StringOperation::Scan
                })
            }
            READS_STRING => Some(StringOperation::Load),
            _ => None,
        }
    }

    /// Whether the instruction is one repetition of a string instruction.
    #[inline]
    pub(super) fn repeats(&self) -> bool {
        self.flags & READS_STRING != 0
    }

    /// Marks the instruction as moving the stack pointer implicitly, as a push does.
    #[must_use]
    pub fn moving_stack(mut self) -> Instruction {
        self.flags |= STACK;
        self
    }

    #[must_use]
    pub fn with_bytes(mut self, bytes: u8) -> Instruction {
        self.bytes = bytes;
        self
    }

    #[must_use]
    #[inline]
    pub fn loads(&self) -> bool {
        self.flags & LOADS != 0
    }

    #[must_use]
    #[inline]
    pub fn stores(&self) -> bool {
        self.flags & STORES != 0
    }

    /// Whether the instruction itself uses the data that it loads: in its unit, or as the value that it stores.
    #[inline]
    pub(super) fn uses_loaded_data(&self) -> bool {
        self.loads() && (self.unit.is_some() || self.stores())
    }

    /// Marks the instruction's stores as non-temporal: they bypass the caches.
    #[must_use]
    pub fn streaming(mut self) -> Instruction {
        self.flags |= STREAMS;
        self
    }

    /// Whether the instruction's stores are non-temporal.
    #[inline]
    #[must_use]
    pub fn streams(&self) -> bool {
        self.flags & STREAMS != 0
    }

    /// Whether the instruction only operates on registers. Valid only in a [`Template`].
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.flags & PLAIN != 0
    }

    /// The instruction with the flags and the class that depend on its other properties. For a template.
    pub(super) fn classified(mut self) -> Instruction {
        let is_plain = !self.loads()
            && !self.stores()
            && self.special == Special::None
            && self.branch.is_none()
            && self.addresses == [NOTHING; ADDRESSES]
            && self.moves == [NOWHERE; MOVES];
        let has_many = self.reads[2..] != [NOTHING; READS - 2]
            || self.addresses[2..] != [NOTHING; ADDRESSES - 2]
            || self.writes[2..] != [NOWHERE; WRITES - 2]
            || self.moves != [NOWHERE; MOVES];
        let kept = self.flags & !(PLAIN | MANY);
        self.flags = kept | if is_plain { PLAIN } else { 0 } | if has_many { MANY } else { 0 };
        self.class = self.most_specialised_class();
        self
    }

    /// The most specialised timing rule that fits the instruction alone. [`Class::Fused`] is for pairs: a template sets it.
    fn most_specialised_class(&self) -> Class {
        if self.repeats() {
            return Class::Repetition;
        }
        if self.special != Special::None || self.streams() || self.may_have_interval() {
            return Class::AllStages;
        }
        match (self.loads(), self.stores()) {
            (true, false) => Class::Load,
            (false, true) => Class::Store,
            (true, true) => Class::LoadAndStore,
            // The registers in `moves` change as soon as the address is known, and `Operation` has no address stage.
            (false, false) if self.moves != [NOWHERE; MOVES] => Class::AllStages,
            (false, false) if self.addresses != [NOTHING; ADDRESSES] => Class::AllStages,
            // A branch without a unit: `Operation` would leave it to the renaming of registers, which executes no branch.
            (false, false) if self.branch.is_some() && self.unit.is_none() => Class::AllStages,
            (false, false) => Class::Operation,
        }
    }

    /// Whether the instruction reads or writes more registers than [`Instruction::first_registers`] returns.
    #[inline(always)]
    pub(super) fn has_many(&self) -> bool {
        self.flags & MANY != 0
    }

    /// The first two address registers, the first two read registers, and the first two written registers. Almost no
    /// instruction has more.
    #[inline(always)]
    pub(super) fn first_registers(&self) -> [[u8; 2]; 3] {
        let [base, index, ..] = self.addresses;
        let [first_read, second_read, ..] = self.reads;
        let [first_written, second_written, ..] = self.writes;
        [[base, index], [first_read, second_read], [first_written, second_written]]
    }

    /// Whether the instruction is the first of its block in a line of L1I, or the first of a line of decoded
    /// instructions.
    #[inline(always)]
    pub(super) fn starts(&self) -> bool {
        self.flags & (NEW_LINE | NEW_DECODED_LINE) != 0
    }

    /// Whether the instruction is the first of its block in a line of L1I.
    #[inline]
    pub(super) fn starts_line(&self) -> bool {
        self.flags & NEW_LINE != 0
    }

    /// Whether the instruction is the first of a line of decoded instructions.
    #[inline]
    pub(super) fn starts_decoded(&self) -> bool {
        self.flags & NEW_DECODED_LINE != 0
    }

    #[must_use]
    pub fn bytes(&self) -> u8 {
        self.bytes
    }

    #[must_use]
    pub fn special(&self) -> Special {
        self.special
    }

    #[must_use]
    pub fn branch(&self) -> Option<BranchKind> {
        self.branch
    }

    pub(super) fn writes_register(&self, register: Register) -> bool {
        self.writes.contains(&register.0)
    }

    /// The instruction, where it reads `replacement` in place of `register`.
    pub(super) fn with_read_replaced(
        mut self,
        register: Register,
        replacement: Register,
    ) -> Instruction {
        if replacement == register {
            return self;
        }
        let replacement = if self.reads.contains(&replacement.0) { NOTHING } else { replacement.0 };
        let read = self.reads.iter_mut().filter(|read| **read == register.0);
        read.for_each(|read| *read = replacement);
        self
    }

    /// The instruction, where it writes [`Register::FLAGS`] in place of [`Register::CARRY`].
    pub(super) fn with_carry_as_flags(mut self) -> Instruction {
        let written = self.writes.iter_mut().filter(|written| **written == Register::CARRY.0);
        written.for_each(|written| *written = Register::FLAGS.0);
        self
    }

    /// The instruction, where it also writes `register`. `None` if its list of written registers is full.
    pub(super) fn also_writing(mut self, register: Register) -> Option<Instruction> {
        add_registers(&mut self.writes, NOWHERE, &[register]).then_some(self)
    }

    /// Whether a branch tests condition flags only. `loop` and `jrcxz` also read a counter.
    fn tests_only_flags(&self) -> bool {
        !self.reads.contains(&Register::general(COUNTER).0)
    }

    /// The instruction without its dependences on the stack pointer, for a core whose front end tracks the stack
    /// pointer ([`Layout::follows_stack`]).
    fn without_stack_pointer(mut self) -> Instruction {
        let stack_pointer = Register::STACK_POINTER.0;
        let read = self.addresses.iter_mut().chain(&mut self.reads);
        read.filter(|register| **register == stack_pointer)
            .for_each(|register| *register = NOTHING);
        let written = self.writes.iter_mut().chain(&mut self.moves);
        written
            .filter(|register| **register == stack_pointer)
            .for_each(|register| *register = NOWHERE);
        self
    }
}

/// For tests of the decoder.
#[cfg(test)]
impl Instruction {
    /// Without what only some cores make use of.
    pub(crate) fn without_hints(mut self) -> Instruction {
        self.flags &= LOADS | STORES | STACK;
        self.address_form = 0;
        self
    }

    /// Whether the instruction moves a register, and whether it zeroes one.
    pub(crate) fn moves_or_zeroes(&self) -> (bool, bool) {
        let sort = self.flags & ADDS_CONSTANT;
        (sort == MOVES_REGISTER, sort == ZEROES)
    }

    /// The operation of a repeated string instruction.
    pub(crate) fn string_operation(&self) -> Option<StringOperation> {
        self.repetition_of()
    }

    pub(crate) fn takes_latency_of(&self, operation: Operation) -> bool {
        usize::from(self.latency) == UNITS + operation as usize
    }

    pub(crate) fn address_form(&self) -> u16 {
        self.address_form
    }

    pub(crate) fn with_sorted_operands(mut self) -> Instruction {
        self.addresses.sort_unstable();
        self.reads.sort_unstable();
        self.writes.sort_unstable();
        self.moves.sort_unstable();
        self
    }

    pub(crate) fn reads(&self) -> Vec<Register> {
        let reads = self.reads.iter().filter(|register| **register != NOTHING);
        reads.map(|register| Register(*register)).collect()
    }

    pub(crate) fn writes(&self) -> Vec<Register> {
        let writes = self.writes.iter().filter(|register| **register != NOWHERE);
        writes.map(|register| Register(*register)).collect()
    }

    pub(crate) fn moves(&self) -> Vec<Register> {
        let moves = self.moves.iter().filter(|register| **register != NOWHERE);
        moves.map(|register| Register(*register)).collect()
    }
}
