//! What an instruction does beyond its unit: operations with a latency of their own, special effects, and string
//! operations.

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
pub(in crate::core) const OPERATIONS: usize = 38;

/// The operations that may occupy their unit for another time than the unit's other operations. The order is that of
/// [`OperationLatencies::intervals`](crate::core::OperationLatencies).
pub(in crate::core) const OPERATIONS_WITH_INTERVAL: [Operation; 9] = [
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
pub(in crate::core) const SPECIALS: usize = 24;

impl Special {
    /// Whether the instruction waits for all earlier instructions and delays all later ones.
    pub(in crate::core) fn drains(self) -> bool {
        self as u8 >= Special::Fence as u8
    }

    /// Whether the instruction also waits until all earlier stores are in the cache.
    pub(in crate::core) fn drains_stores(self) -> bool {
        self as u8 >= Special::Serialise as u8
    }

    /// Whether execution continues elsewhere, without a prediction.
    pub(crate) fn ends_flow(self) -> bool {
        matches!(self, Special::SystemCall | Special::SystemReturn | Special::InterruptReturn)
    }

    /// Whether the instruction is ordered after all earlier stores and before all later loads.
    pub(in crate::core) fn orders_memory(self) -> bool {
        matches!(self, Special::Atomic | Special::Barrier)
    }

    /// Whether nothing else is fetched while its micro-operations enter.
    pub(in crate::core) fn stops_fetch(self) -> bool {
        (Special::Microcode as u8..=Special::Pause as u8).contains(&(self as u8))
    }
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
