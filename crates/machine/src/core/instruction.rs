//! Instructions and blocks as a core sees them. [`decode`](crate::decode) describes each instruction with the builder
//! methods of [`Instruction`]; the plugin makes a [`Template`] of each block when QEMU translates it. All cores read
//! templates at each execution, so their size and layout matter for speed.

use super::ExecutedBlock;
use super::code_tags::decoded_tag;
use super::flags::resolve_flags;
use super::summary::{BlockSummary, CodeStart};
use crate::CodeSpan;
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::predict::BranchKind;

/// The size of a line of code, as a power of two, whose decoded instructions share a set of the cache of decoded
/// instructions.
pub(crate) const CODE_LINE_SHIFT: u32 = 6;

/// A kind of execution unit. The first `UNITS` kinds are in the order of [`UnitsModel`](super::UnitsModel); their
/// numbers index tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Integer arithmetic, logic, shifts and moves.
    Integer,
    /// Integer multiplication.
    Multiply,
    Divide,
    /// Floating point: additions, comparisons, conversions.
    FloatAdd,
    /// Floating point: multiplications.
    FloatMultiply,
    /// Floating point: divisions and roots.
    FloatDivide,
    /// Vector registers: all other operations.
    Vector,
    Branch,
    Load,
    Store,
    /// Vector registers: shuffles, AES, SHA, and moves from and to other registers.
    Shuffle,
    /// Integer units that also execute shifts, rotates, bit tests and three-operand `lea`. Some cores have fewer of
    /// them than integer units.
    Shift,
    /// Integer units that also execute `cmov` and `setcc`. Some cores have fewer of them than integer units.
    Select,
}

/// The number of kinds of units that a model describes: all before [`Unit::Shift`].
pub(super) const UNITS: usize = 11;
/// The number of all kinds of units.
pub(super) const UNIT_KINDS: usize = 13;

impl Unit {
    /// The kind of unit in a model that describes this kind.
    pub(super) fn kind_in_model(self) -> Unit {
        match self {
            Unit::Shift | Unit::Select => Unit::Integer,
            other => other,
        }
    }

    /// Whether the unit operates on vector registers.
    #[inline(always)]
    pub(crate) fn is_vector(self) -> bool {
        const VECTOR: u32 = 1 << Unit::FloatAdd as u32
            | 1 << Unit::FloatMultiply as u32
            | 1 << Unit::FloatDivide as u32
            | 1 << Unit::Vector as u32
            | 1 << Unit::Shuffle as u32;
        VECTOR >> self as u32 & 1 == 1
    }
}

/// Operations that may have another latency than the unit that executes them. `OperationLatencies::all` has the same
/// order: the numbers index tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `lea` of three operands.
    LeaThree,
    /// `tzcnt`, `lzcnt`.
    BitCount,
    /// `bsf`, `bsr`.
    BitScan,
    /// `pdep`, `pext`.
    BitDeposit,
    Crc32,
    /// An integer division of 32 bits or less.
    Divide32,
    /// A multiplication of floating point without an addition.
    FloatMultiplyOnly,
    FloatRoot,
    /// A conversion between integer and floating-point registers.
    Convert,
    /// A move between integer and vector registers.
    Cross,
    /// `aesenc` and the like.
    Aes,
    /// `sha256rnds2` and the like.
    Sha,
    /// `lea` of two operands with a scaled index.
    LeaScaled,
    /// A comparison of floating point that sets flags.
    FloatFlags,
    /// `popcnt`.
    PopulationCount,
    /// `bswap`.
    ByteSwap,
    /// `shld`, `shrd`.
    DoubleShift,
    /// A multiplication of integers in vector registers.
    VectorMultiply,
    /// `and`, `or`, `xor`, `test`, `andn`.
    Logic,
    /// `pcmpistri`, `pcmpistrm`, `pcmpestri`, `pcmpestrm`.
    StringCompare,
    /// `psadbw`, `mpsadbw`, `phminposuw`.
    ByteSum,
    /// `dpps`.
    DotProduct,
    /// `dppd`.
    DotProductDouble,
    /// Horizontal additions and subtractions of floating point, such as `haddps`.
    HorizontalAdd,
    /// Minima, maxima and comparisons of floating point that write a vector register, such as `minps`.
    FloatCompare,
    /// A conversion between vector registers, such as `cvtss2sd`.
    VectorConvert,
    /// `roundps` and the like.
    Round,
    /// Approximations of reciprocals and of reciprocal roots: `rcpps`, `rsqrtps`.
    Reciprocal,
    /// `pmulld`.
    VectorMultiply32,
    /// `ptest`, `vtestps`, `vtestpd`.
    VectorTest,
    /// Moves between halves of 256 bits: `vperm2i128`, `vextracti128` and the like.
    LaneMove,
    /// Permutations of elements between halves of 256 bits: `vpermd` and the like.
    LanePermute,
    /// Operations that spread 128 bits over 256: `vinserti128`, `vpbroadcastd`, `vpmovzxbw` and the like.
    LaneWiden,
    /// `pcmpgtq`.
    VectorCompare64,
    /// `aesimc`, `aeskeygenassist`.
    AesKey,
    /// `sha1nexte`, `sha1msg1`, `sha256msg1` and the like.
    ShaMessage,
    /// Shuffles within 128 bits that the instruction or its constant selects, such as `pshufd` and `punpcklbw`.
    SimpleShuffle,
    /// Blends by a mask in a fourth register, such as `vpblendvb`.
    VariableBlend,
}

/// The number of kinds of [`Operation`].
pub(super) const OPERATIONS: usize = 38;

/// The operations that may occupy their unit for another time than the unit's other operations. The order is that of
/// [`OperationLatencies::intervals`](super::OperationLatencies).
pub(super) const OPERATIONS_WITH_INTERVAL: [Operation; 9] = [
    Operation::FloatRoot,
    Operation::FloatFlags,
    Operation::StringCompare,
    Operation::DotProduct,
    Operation::DotProductDouble,
    Operation::HorizontalAdd,
    Operation::VectorMultiply32,
    Operation::Sha,
    Operation::VariableBlend,
];

/// The effect of an instruction other than reading and writing registers and memory.
///
/// The order of the variants matters: `drains`, `drains_stores` and `stops_fetch` compare their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Special {
    #[default]
    None,
    /// Takes many micro-operations. No other instruction enters between them.
    Microcode,
    /// Reads the clock: `rdtsc`.
    ReadClock,
    /// Reads a model-specific register: `rdmsr`, `rdpmc`.
    ReadMsr,
    /// Reads or writes an extended control register: `xgetbv`, `xsetbv`.
    ExtendedControl,
    /// Exchanges the kernel's and the user's GS base.
    SwapGs,
    /// Enables or disables interrupts: `cli`, `sti`, `popf`.
    WriteFlags,
    /// Sets the direction of string instructions: `cld`, `std`.
    Direction,
    /// Stops fetch for a while.
    Pause,
    /// Takes an entry of the store buffer: `sfence`.
    StoreFence,
    /// Writes a line back and drops it, in order with the stores: `clflush`.
    FlushLine,
    /// A locked access: it is ordered after all earlier stores and before all later loads.
    Atomic,
    /// A barrier without an access, such as `mfence`.
    Barrier,
    /// Waits for all earlier instructions, and delays all later ones: `lfence`.
    Fence,
    /// Reads the clock after all earlier instructions: `rdtscp`.
    ReadClockOrdered,
    SystemCall,
    SystemReturn,
    /// Waits for all earlier instructions and stores, delays all later ones, and takes long, such
    /// as `cpuid`.
    Serialise,
    /// Serialises: a write of a control register.
    WriteControl,
    /// Serialises: `wrmsr`.
    WriteMsr,
    /// Serialises: `invlpg`, `invpcid`.
    InvalidatePage,
    /// Serialises: `in`, `out`. I/O drains the store buffer (Intel's manual, volume 3, 11.10).
    Port,
    /// Serialises: `iret`, which leaves an interrupt.
    InterruptReturn,
}

/// Length of tables by [`Special`]: at least the number of its variants.
pub(super) const SPECIALS: usize = 24;

impl Special {
    /// Whether the instruction waits for all earlier instructions and delays all later ones.
    pub(super) fn drains(self) -> bool {
        self as u8 >= Special::Fence as u8
    }

    /// Whether the instruction also waits until all earlier stores are in the cache.
    pub(super) fn drains_stores(self) -> bool {
        self as u8 >= Special::Serialise as u8
    }

    /// Whether execution continues elsewhere, without a prediction.
    pub(crate) fn ends_flow(self) -> bool {
        matches!(self, Special::SystemCall | Special::SystemReturn | Special::InterruptReturn)
    }

    /// Whether the instruction is ordered after all earlier stores and before all later loads.
    pub(super) fn orders_memory(self) -> bool {
        matches!(self, Special::Atomic | Special::Barrier)
    }

    /// Whether nothing else is fetched while its micro-operations enter.
    pub(super) fn stops_fetch(self) -> bool {
        (Special::Microcode as u8..=Special::Pause as u8).contains(&(self as u8))
    }
}

/// A register, or a group of registers that dependences treat as one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(u8);

/// Length of the tables of ready times. Every `u8` is a valid index, so that no index needs a check.
pub(super) const REGISTERS: usize = 256;

/// The index of a register in a table of ready times.
#[inline(always)]
pub(super) fn register_index(register: u8) -> usize {
    usize::from(register)
}

/// Fills unused entries of lists of read registers: never written, so always ready.
const NOTHING: u8 = 126;
/// Fills unused entries of lists of written registers: never read.
const NOWHERE: u8 = 127;

/// The number of the general register that counts the iterations of `loop`.
const COUNTER: u8 = 1;

impl Register {
    /// The condition flags. An instruction that reads the carry reads this register. An instruction that keeps the carry
    /// writes [`Register::FLAGS_BUT_CARRY`] instead, and one that writes the carry alone writes [`Register::CARRY`].
    pub const FLAGS: Register = Register(16);
    /// The whole x87 stack.
    pub const X87: Register = Register(17);
    /// The condition codes of x87, which comparisons set and `fnstsw` reads.
    pub const X87_CONDITIONS: Register = Register(18);
    /// The condition flags without the carry: written by instructions that keep the carry, such as `inc`. A [`Template`]
    /// makes readers read the register where the last writer left these flags.
    pub const FLAGS_BUT_CARRY: Register = Register(19);
    /// The carry alone: written by instructions that keep the zero flag, such as `stc`, `bt` and `adcx`. A [`Template`]
    /// makes them write [`Register::FLAGS`].
    pub const CARRY: Register = Register(20);
    /// The condition flags without the carry, as earlier blocks left them. Cores write it at the end of each block.
    pub(super) const EARLIER_FLAGS: Register = Register(21);
    pub const STACK_POINTER: Register = Register(4);

    /// The register's number in an instruction's lists.
    pub(super) fn number(self) -> u8 {
        self.0
    }

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
    /// All stages.
    #[default]
    Any,
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

/// The operation of a repeated string instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringOperation {
    /// `rep movs`.
    Copy,
    /// `rep stos`.
    Fill,
    /// `rep lods`.
    Load,
    /// `rep cmps`.
    Compare,
    /// `rep scas`.
    Scan,
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
            class: Class::Any,
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
        self.class = self.class_of();
        self
    }

    fn class_of(&self) -> Class {
        if self.repeats() {
            return Class::Repetition;
        }
        if self.special != Special::None || self.streams() || self.may_have_interval() {
            return Class::Any;
        }
        match (self.loads(), self.stores()) {
            (true, false) => Class::Load,
            (false, true) => Class::Store,
            (true, true) => Class::LoadAndStore,
            // Its registers change when the address is known, which the fast path does not compute.
            (false, false) if self.moves != [NOWHERE; MOVES] => Class::Any,
            (false, false) if self.addresses != [NOTHING; ADDRESSES] => Class::Any,
            // Renaming registers does not execute a branch.
            (false, false) if self.branch.is_some() && self.unit.is_none() => Class::Any,
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

/// Whether a block ends in an operation on registers and a conditional branch that some cores fuse. They decode and
/// execute the pair as one instruction. No core fuses `loop` or `jrcxz`.
fn ends_in_pair(instructions: &[Instruction]) -> bool {
    let [.., before, branch] = instructions else { return false };
    let before = before.classified();
    branch.branch == Some(BranchKind::Conditional)
        && branch.tests_only_flags()
        && before.flags & (FUSIBLE | PLAIN) == FUSIBLE | PLAIN
}

/// The properties of a core that templates depend on. A template serves only cores with an equal layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Size of a line of L1I, as a power of two.
    pub line_shift: u32,
    /// See [`FrontModel::follows_stack`](super::FrontModel::follows_stack).
    pub follows_stack: bool,
    /// See [`FrontModel::eliminates_moves`](super::FrontModel::eliminates_moves).
    pub eliminates_moves: bool,
    /// See [`FrontModel::eliminates_zeroing`](super::FrontModel::eliminates_zeroing).
    pub eliminates_zeroing: bool,
    /// See [`FrontModel::eliminates_constants`](super::FrontModel::eliminates_constants).
    pub eliminates_constants: bool,
    /// See [`FrontModel::fuses_branches`](super::FrontModel::fuses_branches).
    pub fuses_branches: bool,
    /// See [`UnitsModel::shuffle`](super::UnitsModel::shuffle).
    pub has_shuffle_unit: bool,
    /// See [`UnitsModel::ports`](super::UnitsModel::ports).
    pub binds_to_ports: bool,
    /// Whether `cld` and `std` take longer than other integer operations; see
    /// [`SingleCosts::cld_cycles`](super::SingleCosts::cld_cycles).
    pub sets_direction_slowly: bool,
    /// Maximum instructions in a line of the cache of decoded instructions; 0 without this cache.
    pub decoded_instructions: u32,
    /// Whether lines of decoded instructions end where a line of code of 64 bytes ends. Traces do not.
    pub decoded_by_lines: bool,
}

impl Layout {
    /// Whether renaming registers executes an instruction with these flags.
    fn eliminates(self, flags: u16) -> bool {
        match flags & ADDS_CONSTANT {
            ADDS_CONSTANT => self.eliminates_constants,
            MOVES_REGISTER => self.eliminates_moves,
            ZEROES => self.eliminates_zeroing,
            _ => false,
        }
    }
}

/// A block of instructions that execute one after the other, prepared for one [`Layout`]. Only the last instruction may
/// be a branch. The block lies in one page or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub(super) instructions: Box<[Instruction]>,
    /// The part of the block in its first page.
    first: CodeSpan,
    /// The part of the block in its second page.
    second: Option<CodeSpan>,
    line_shift: u32,
    /// Whether lines of decoded instructions are traces.
    has_traces: bool,
    /// The address after the block.
    pub(super) fall_through: VirtualAddress,
    /// The target of the branch at its end, if the branch is direct.
    pub(super) target: Option<VirtualAddress>,
    /// The register with the condition flags but the carry at its end. [`Register::EARLIER_FLAGS`] if the block does not
    /// write them.
    pub(super) flags_but_carry: Register,
    pub(super) summary: BlockSummary,
}

impl Template {
    /// The address of the instruction with this number, or the block's address if it has fewer instructions.
    #[inline]
    #[must_use]
    pub fn address_at(&self, number: u16) -> VirtualAddress {
        let offset =
            self.instructions.get(usize::from(number)).map_or(0, |instruction| instruction.offset);
        self.first.virtual_address.plus(offset.into())
    }

    /// The physical address of the instruction with this number. `None` if the block has fewer instructions.
    #[inline]
    #[must_use]
    pub fn instruction_physical(&self, number: u16) -> Option<PhysicalAddress> {
        self.instructions.get(usize::from(number)).map(|instruction| self.physical_of(instruction))
    }

    /// Prepares a block for cores with this layout. The spans are its parts in one page or two. `target` is the target
    /// of the branch at its end, if the branch is direct.
    #[must_use]
    pub fn new(
        layout: Layout,
        (first, second): (CodeSpan, Option<CodeSpan>),
        instructions: &[Instruction],
        target: Option<VirtualAddress>,
    ) -> Template {
        let address = first.virtual_address;
        let line = |offset: u64| address.plus(offset).block_number(layout.line_shift);
        let line_of_code = |offset: u64| address.plus(offset).block_number(CODE_LINE_SHIFT);
        let (mut offset, mut last_line, mut in_decoded) = (0_u16, None, (0, 0));
        let fuses = layout.fuses_branches && ends_in_pair(instructions);
        let (resolved, flags_but_carry) = resolve_flags(instructions);
        let mut prepare = |(number, mut instruction): (usize, Instruction)| {
            let is_second = fuses && number + 1 == instructions.len();
            if layout.follows_stack && instruction.flags & STACK != 0 {
                instruction = instruction.without_stack_pointer();
            }
            if instruction.special == Special::Direction && !layout.sets_direction_slowly {
                instruction.special = Special::None;
            }
            if layout.eliminates(instruction.flags) {
                instruction.unit = None;
            }
            if !layout.binds_to_ports {
                instruction.unit = instruction.unit.map(Unit::kind_in_model);
            }
            if instruction.unit == Some(Unit::Shuffle) && !layout.has_shuffle_unit {
                instruction.unit = Some(Unit::Vector);
            }
            instruction.offset = offset;
            // `in_decoded`: the line of code where the last line of decoded instructions starts, and its number of
            // instructions.
            let code_line = line_of_code(offset.into());
            if layout.decoded_instructions > 0
                && !is_second
                && (in_decoded.1 == 0
                    || in_decoded.1 == layout.decoded_instructions
                    || layout.decoded_by_lines && in_decoded.0 != code_line)
            {
                instruction.flags |= NEW_DECODED_LINE;
                in_decoded = (code_line, 0);
            }
            in_decoded.1 += u32::from(!is_second);
            offset = offset.saturating_add(instruction.bytes.into());
            // Where the instruction ends: one that crosses lines starts a line, too.
            let end_line = Some(line(u64::from(offset.max(1)) - 1));
            instruction.flags |= if end_line == last_line { 0 } else { NEW_LINE };
            last_line = end_line;
            instruction.classified()
        };
        let mut instructions: Box<[Instruction]> =
            resolved.into_iter().enumerate().map(&mut prepare).collect();
        if fuses && let [.., before, _] = &mut *instructions {
            // A fused operation must not take the fast path of plain instructions.
            before.flags = before.flags & !PLAIN | FUSED;
            before.class = Class::Fused;
        }
        let decoded_tag = |instruction: &Instruction| {
            let physical = physical_at(&first, second.as_ref(), instruction.offset);
            decoded_tag(physical, !layout.decoded_by_lines)
        };
        Template {
            summary: BlockSummary::new(&instructions, address, decoded_tag),
            has_traces: !layout.decoded_by_lines,
            instructions,
            fall_through: address.plus(offset.into()),
            first,
            second,
            line_shift: layout.line_shift,
            target,
            flags_but_carry,
        }
    }

    /// The bytes of the host's memory that hold the instructions, so that a caller can prefetch them.
    #[inline(always)]
    #[must_use]
    pub fn host_range(&self) -> std::ops::Range<*const u8> {
        let instructions = self.instructions.as_ptr_range();
        instructions.start.cast()..instructions.end.cast()
    }

    /// The bytes of the host's memory, apart from the template itself, that functional warming needs for most blocks.
    #[inline(always)]
    #[must_use]
    pub fn warming_range(&self) -> std::ops::Range<*const u8> {
        let starts = self.summary.starts.as_ptr_range();
        starts.start.cast()..starts.end.cast()
    }

    /// The executed instructions from number `first` on, and the kind of the branch at the end of the block if it has
    /// executed.
    #[inline(always)]
    pub(super) fn executed_from(
        &self,
        first: usize,
        executed: &ExecutedBlock,
    ) -> (&[Instruction], Option<BranchKind>) {
        let number = self.len().min(executed.instructions as usize);
        let instructions = self.instructions.get(first..number).unwrap_or_default();
        let last = if number == self.len() { instructions.last() } else { None };
        (instructions, last.and_then(|last| last.branch))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    #[must_use]
    pub fn ends_in_branch(&self) -> bool {
        self.instructions.last().is_some_and(|last| last.branch.is_some())
    }

    #[must_use]
    pub fn address(&self) -> VirtualAddress {
        self.first.virtual_address
    }

    pub(super) fn address_of(&self, instruction: &Instruction) -> VirtualAddress {
        self.first.virtual_address.plus(instruction.offset.into())
    }

    /// The lines of an instruction's first and last byte, each as a virtual and a physical address.
    #[inline]
    pub(super) fn lines_of(&self, start: &CodeStart) -> [(VirtualAddress, PhysicalAddress); 2] {
        [self.line_at(start.first_byte), self.line_at(start.last_byte)]
    }

    /// The line of L1I of the byte at an offset, as a virtual and a physical address.
    fn line_at(&self, offset: u16) -> (VirtualAddress, PhysicalAddress) {
        let virtual_address = self.first.virtual_address.plus(offset.into());
        let physical = self.physical_at(offset);
        (virtual_address.block_start(self.line_shift), physical.block_start(self.line_shift))
    }

    #[inline]
    pub(super) fn physical_of(&self, instruction: &Instruction) -> PhysicalAddress {
        self.physical_at(instruction.offset)
    }

    /// The virtual and the physical address of the byte at an offset.
    #[inline]
    pub(super) fn addresses_at(&self, offset: u16) -> (VirtualAddress, PhysicalAddress) {
        (self.first.virtual_address.plus(offset.into()), self.physical_at(offset))
    }

    /// The physical address of the byte at an offset.
    #[inline(always)]
    pub(super) fn physical_at(&self, offset: u16) -> PhysicalAddress {
        physical_at(&self.first, self.second.as_ref(), offset)
    }

    /// The instruction, as a start of a line of code or of decoded instructions. `number`: of the instruction.
    #[inline(always)]
    pub(super) fn code_start(&self, number: u16, instruction: &Instruction) -> CodeStart {
        let decoded_tag = decoded_tag(self.physical_of(instruction), self.has_traces);
        CodeStart::new(number, instruction, decoded_tag)
    }
}

/// The physical address of the byte at an offset of a block with these parts.
#[inline(always)]
fn physical_at(first: &CodeSpan, second: Option<&CodeSpan>, offset: u16) -> PhysicalAddress {
    let offset = u64::from(offset);
    match second {
        Some(second) if offset >= u64::from(first.bytes) => {
            second.physical.plus(offset - u64::from(first.bytes))
        }
        _ => first.physical.plus(offset),
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
