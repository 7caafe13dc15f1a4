//! Cores as data: the `[core]` table of a machine model.

use serde::{Deserialize, Serialize};

use super::instruction::{Layout, OPERATIONS, UNITS, Unit};
use crate::model::{CacheModel, ModelError, Replacement};
use crate::predict::PredictorModel;

/// A core. With a `window` it executes out of order; with `threads` several threads share its
/// pipeline cycle by cycle; otherwise it executes in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreModel {
    /// The most instructions that are fetched, enter and retire per cycle.
    pub width: u32,
    /// The most operations that issue per cycle, on all units.
    pub issue_width: u32,
    /// What lies before execution.
    pub front: FrontModel,
    /// What executes out of order; absent in a core that doesn't.
    #[serde(default)]
    pub window: Option<WindowModel>,
    /// Threads that share the pipeline, one of which issues in a cycle; absent where there is one.
    #[serde(default)]
    pub threads: Option<u32>,
    /// Units that execute.
    pub units: UnitsModel,
    /// The way to the first data cache.
    pub data: DataModel,
    /// What happens seldom, and takes long.
    pub events: EventsModel,
    /// Branch prediction.
    pub predictor: PredictorModel,
    /// How repeated string instructions copy and fill memory; absent in a core that executes each
    /// repetition as an instruction.
    #[serde(default)]
    pub strings: Option<StringsModel>,
}

/// Repeated string instructions (`rep movs`, `rep stos`) of a core that executes them as microcode
/// of wide accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StringsModel {
    /// Cycles before and after the accesses of a copy, in which nothing else enters.
    pub copy_start_cycles: u32,
    /// The same of a fill.
    pub fill_start_cycles: u32,
    /// The most bytes of an access, of one line: where source and destination are not aligned to each
    /// other, there are fewer.
    pub chunk_bytes: u32,
    /// Accesses, of a copy pairs of them, that enter in a cycle.
    #[serde(default = "one")]
    pub chunks_per_cycle: u32,
    /// Strings up to this length, bytes, start as two of the next fields say. What a longer one takes more is added
    /// where it exceeds this length.
    #[serde(default)]
    pub short_bytes: u32,
    /// The largest elements, bytes, of such strings: 1 if only those of `movsb` and `stosb` are short.
    #[serde(default = "one")]
    pub short_element_bytes: u32,
    /// See [`StringsModel::copy_start_cycles`].
    #[serde(default)]
    pub short_copy_start_cycles: u32,
    /// See [`StringsModel::fill_start_cycles`].
    #[serde(default)]
    pub short_fill_start_cycles: u32,
    /// Cycles before `rep lods`; absent in a core that executes each repetition as an instruction.
    #[serde(default)]
    pub load_start_cycles: Option<u32>,
    /// Cycles of each of its repetitions.
    #[serde(default)]
    pub load_cycles: u32,
    /// Cycles before `rep scas` and `rep cmps`, which read as many bytes at once as a copy; absent in a core that
    /// executes each repetition as an instruction.
    #[serde(default)]
    pub compare_start_cycles: Option<u32>,
}

/// Fetch and decode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontModel {
    /// Instructions that are fetched ahead of those that have entered.
    pub queue_entries: u32,
    /// From the resolution of a mispredicted branch until the right instruction enters.
    pub mispredict_cycles: u32,
    /// Cycles without fetch after a taken direct branch that missed the BTB (resteer at decode).
    pub btb_miss_cycles: u32,
    /// Cycles that a branch costs whose target only the second level of the BTB knows.
    #[serde(default)]
    pub btb_second_cycles: u32,
    /// Cycles that a branch costs whose direction the tagged tables of a TAGE predictor know, and its bimodal
    /// table, which answers earlier, does not.
    #[serde(default)]
    pub overruled_cycles: u32,
    /// Cycles that a predicted indirect branch costs beyond any taken one.
    #[serde(default)]
    pub indirect_cycles: u32,
    /// Cycles that it costs beyond that if it does not lead where it led the last time.
    #[serde(default)]
    pub indirect_overruled_cycles: u32,
    /// Cycles that a predicted return costs beyond any taken branch.
    #[serde(default)]
    pub return_cycles: u32,
    /// Lines of code, and targets of branches, that the predictor runs ahead of fetch: they are
    /// requested then. Zero: a line is requested when the one before was fetched.
    #[serde(default)]
    pub ahead_lines: u32,
    /// Whether nothing more is fetched in the cycle of a taken branch.
    pub taken_ends_cycle: bool,
    /// Whether pushes, pops, calls and returns follow the stack pointer before execution, so that
    /// they don't wait for each other.
    #[serde(default)]
    pub follows_stack: bool,
    /// Whether moves between registers of a kind are done by renaming: without a unit or latency.
    #[serde(default)]
    pub eliminates_moves: bool,
    /// Whether operations whose result is always zero, such as `xor %eax, %eax`, need no unit.
    #[serde(default)]
    pub eliminates_zeroing: bool,
    /// Whether additions and subtractions of a constant of -1,024 to 1,023 to a register of 64 bits, `inc`, `dec`
    /// and such a `lea` among them, are done by renaming: without a unit or latency. Their flags come a cycle later.
    #[serde(default)]
    pub eliminates_constants: bool,
    /// Cycles that shifts, rotations, bit tests, `bswap` and moves to vector registers take longer which read the
    /// result of such an addition. Of cores with a window and bound ports.
    #[serde(default)]
    pub constant_cycles: u32,
    /// Whether a comparison, or other arithmetic on registers that sets flags, and a conditional branch
    /// after it are one operation, which takes one place of the width and of the reorder buffer. Only an
    /// out-of-order core does it.
    #[serde(default)]
    pub fuses_branches: bool,
    /// A cache of decoded instructions: a trace cache or a micro-operation cache.
    #[serde(default)]
    pub decoded: Option<DecodedModel>,
}

/// A cache of decoded instructions, looked up by physical address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodedModel {
    /// The number of lines: ways times a power of two.
    pub lines: u32,
    /// Associativity.
    pub ways: u32,
    /// Instructions that a line holds.
    pub line_instructions: u32,
    /// Most instructions of a cycle that come from it; absent if as many as the core is wide.
    #[serde(default)]
    pub width: Option<u32>,
    /// Whether they come from one of its lines in a cycle.
    #[serde(default)]
    pub one_line_per_cycle: bool,
    /// Most instructions of a cycle that are not in it, and have to be decoded.
    pub decode_width: u32,
    /// Most bytes of such instructions of a cycle; absent if as many as there are.
    #[serde(default)]
    pub decode_bytes: Option<u32>,
    /// Whether lines continue after taken branches, as in a trace cache.
    pub traces: bool,
}

/// The window of an out-of-order core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowModel {
    /// Entries of the reorder buffer: instructions that have entered and not retired.
    pub reorder_entries: u32,
    /// Entries of the scheduler: those of them that have not issued.
    pub scheduler_entries: u32,
    /// Entries of a scheduler of vector operations alone; absent where one scheduler serves all. A load has a
    /// place in the other one, unless it is part of a vector operation.
    #[serde(default)]
    pub vector_scheduler_entries: Option<u32>,
    /// Branches that may be unresolved; absent where it is the window that limits them.
    #[serde(default)]
    pub unresolved_branches: Option<u32>,
    /// Whether a load may issue before the addresses of earlier stores are known.
    pub loads_pass_stores: bool,
    /// Whether a store that missed delays retirement, for lack of a store buffer after retirement.
    pub stores_hold_retirement: bool,
}

/// Units of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitModel {
    /// How many.
    pub count: u32,
    /// From issue until others can use the result; for loads, of an L1 hit.
    pub latency_cycles: u32,
    /// How long an operation occupies its unit.
    #[serde(default = "one")]
    pub interval_cycles: u32,
}

fn one() -> u32 {
    1
}

fn sixteen() -> u8 {
    16
}

/// Units by what they do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitsModel {
    /// Integer arithmetic, logic, shifts and moves.
    pub integer: UnitModel,
    /// Integer multiplication.
    pub multiply: UnitModel,
    /// Integer division.
    pub divide: UnitModel,
    /// Floating point: additions, comparisons, conversions.
    pub float_add: UnitModel,
    /// Floating point: multiplications, with or without an addition.
    pub float_multiply: UnitModel,
    /// Floating point: divisions and roots.
    pub float_divide: UnitModel,
    /// Vector registers: all else.
    pub vector: UnitModel,
    /// Branches.
    pub branch: UnitModel,
    /// Loads.
    pub load: UnitModel,
    /// Stores, until they can retire. As many leave for the cache per cycle.
    pub store: UnitModel,
    /// Shuffles, AES, SHA, moves between integer and vector registers; else as `vector`.
    #[serde(default)]
    pub shuffle: Option<UnitModel>,
    /// Ports to which integer operations and branches are bound when they enter the scheduler of an
    /// out-of-order core, each to the one with the fewest that wait; else each takes any unit that is free.
    #[serde(default)]
    pub ports: Option<PortsModel>,
    /// Latencies of single operations.
    #[serde(default)]
    pub of: OperationLatencies,
}

/// What the ports of integer units can do: each executes an operation a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortsModel {
    /// Ports that shift, rotate, test bits and add three parts (`lea`): so many of the first.
    pub shift: u32,
    /// Ports that choose by flags (`cmov`, `setcc`): so many of the last.
    pub select: u32,
    /// Ports that execute branches, too: so many of the last. The other units of branches do nothing else.
    pub branch: u32,
}

/// Latencies of single operations; absent ones take that of their unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationLatencies {
    /// `lea` of three parts.
    pub lea_three_cycles: Option<u32>,
    /// `lea` of two parts with a scaled index; else as of three parts.
    pub lea_scaled_cycles: Option<u32>,
    /// `popcnt`.
    pub population_count_cycles: Option<u32>,
    /// `bswap`.
    pub byte_swap_cycles: Option<u32>,
    /// `shld`, `shrd`.
    pub double_shift_cycles: Option<u32>,
    /// Multiplications of integers in vector registers.
    pub vector_multiply_cycles: Option<u32>,
    /// `and`, `or`, `xor`, `test`, `andn`.
    pub logic_cycles: Option<u32>,
    /// Cycles that `cmov` and `setcc` take longer which read the flags of one of these. Of cores with a window and
    /// bound ports.
    pub select_after_logic_cycles: Option<u32>,
    /// Additions of floating point whose result is read by another sort of operation; else as where an addition
    /// reads it, and not less. Of cores with a window.
    pub float_add_to_others_cycles: Option<u32>,
    /// `tzcnt`, `lzcnt`.
    pub bit_count_cycles: Option<u32>,
    /// `bsf`, `bsr`.
    pub bit_scan_cycles: Option<u32>,
    /// `pdep`, `pext`.
    pub bit_deposit_cycles: Option<u32>,
    /// `crc32`.
    pub crc32_cycles: Option<u32>,
    /// Integer division of 32 bits or less.
    pub divide32_cycles: Option<u32>,
    /// Multiplication of floating point without an addition.
    pub float_multiply_only_cycles: Option<u32>,
    /// Roots.
    pub float_root_cycles: Option<u32>,
    /// How long a root occupies its unit; else as long as a division.
    pub float_root_interval_cycles: Option<u32>,
    /// Comparisons of floating point that set flags: `comisd` and the like.
    pub float_flags_cycles: Option<u32>,
    /// How long one of these occupies its unit; else as long as an addition.
    pub float_flags_interval_cycles: Option<u32>,
    /// Conversions between integer and floating-point registers.
    pub convert_cycles: Option<u32>,
    /// Moves between integer and vector registers.
    pub cross_cycles: Option<u32>,
    /// `aesenc` and the like.
    pub aes_cycles: Option<u32>,
    /// `sha256rnds2` and the like.
    pub sha_cycles: Option<u32>,
}

impl OperationLatencies {
    /// Each with its name and the unit that executes it, in the order of
    /// [`Operation`](super::Operation).
    pub(super) fn all(&self) -> [(&'static str, Option<u32>, Unit); OPERATIONS] {
        [
            ("lea_three_cycles", self.lea_three_cycles, Unit::Integer),
            ("bit_count_cycles", self.bit_count_cycles, Unit::Integer),
            ("bit_scan_cycles", self.bit_scan_cycles, Unit::Integer),
            ("bit_deposit_cycles", self.bit_deposit_cycles, Unit::Integer),
            ("crc32_cycles", self.crc32_cycles, Unit::Integer),
            ("divide32_cycles", self.divide32_cycles, Unit::Divide),
            ("float_multiply_only_cycles", self.float_multiply_only_cycles, Unit::FloatMultiply),
            ("float_root_cycles", self.float_root_cycles, Unit::FloatDivide),
            ("convert_cycles", self.convert_cycles, Unit::FloatAdd),
            ("cross_cycles", self.cross_cycles, Unit::Shuffle),
            ("aes_cycles", self.aes_cycles, Unit::Shuffle),
            ("sha_cycles", self.sha_cycles, Unit::Shuffle),
            ("lea_scaled_cycles", self.lea_scaled_cycles.or(self.lea_three_cycles), Unit::Integer),
            ("float_flags_cycles", self.float_flags_cycles, Unit::FloatAdd),
            ("population_count_cycles", self.population_count_cycles, Unit::Integer),
            ("byte_swap_cycles", self.byte_swap_cycles, Unit::Integer),
            ("double_shift_cycles", self.double_shift_cycles, Unit::Integer),
            ("vector_multiply_cycles", self.vector_multiply_cycles, Unit::FloatMultiply),
            ("logic_cycles", self.logic_cycles, Unit::Integer),
        ]
    }
}

/// Loads and stores that are under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataModel {
    /// Loads that have entered and not retired. An in-order core has no limit.
    pub load_entries: u32,
    /// Stores that have entered and are not in the cache yet.
    pub store_entries: u32,
    /// Line fill buffers: misses that can be under way at the same time.
    pub mshrs: u32,
    /// The latency of store-to-load forwarding.
    pub forward_cycles: u32,
    /// The same into a vector register; else `forward_cycles`.
    #[serde(default)]
    pub forward_vector_cycles: Option<u32>,
    /// The same of more than 16 bytes; else `forward_vector_cycles`. An in-order core has none.
    #[serde(default)]
    pub forward_wide_cycles: Option<u32>,
    /// Cycles after which a load tries again that issued before the address of the store was known from which it
    /// gets its value, or at most a cycle after. Zero: no load has to. An in-order core has none.
    #[serde(default)]
    pub forward_again_cycles: u32,
    /// Cycles that a load waits, after the stores that it needs have left, if none of them can
    /// forward all of it. An in-order core has none.
    #[serde(default)]
    pub forward_fail_cycles: u32,
    /// Whether a load takes the register of a store whose address has the same form, without a
    /// wait (memory renaming). Only an out-of-order core can.
    #[serde(default)]
    pub renames_memory: bool,
    /// Whether it does so only where the address has no index.
    #[serde(default)]
    pub renames_without_index: bool,
    /// The widest access, bytes: QEMU makes several of a wide one.
    #[serde(default = "sixteen")]
    pub access_bytes: u8,
    /// Cycles that a load takes longer whose address has a scaled index. An in-order core has none.
    #[serde(default)]
    pub scaled_index_cycles: u32,
    /// Cycles that a load into a vector register takes longer. An in-order core has none.
    #[serde(default)]
    pub vector_load_cycles: u32,
    /// Loads of more than 16 bytes that can start in a cycle; absent if as many as others.
    #[serde(default)]
    pub wide_loads: Option<u32>,
    /// Stores of vector registers that can leave for the cache in a cycle; absent if as many as others.
    #[serde(default)]
    pub vector_stores: Option<u32>,
    /// Loads of a cycle that may start at the same 4 bytes of a line, whichever line it is: banks of the cache. Absent
    /// without such a limit. An in-order core has none.
    #[serde(default)]
    pub bank_loads: Option<u32>,
    /// Whether a load that crosses lines takes two of the load units.
    #[serde(default)]
    pub splits_take_two: bool,
    /// Cycles from one load that crosses lines to the next; zero if they may start together. An in-order core has
    /// none.
    #[serde(default)]
    pub split_load_cycles: u32,
    /// The same of loads that cross pages.
    #[serde(default)]
    pub page_split_load_cycles: u32,
    /// Whether the stores of a cycle go to one line, and to different bytes: two of up to 16 bytes,
    /// or a wider one; one that crosses lines takes two cycles. Without, all that units permit.
    #[serde(default)]
    pub stores_one_line_per_cycle: bool,
    /// Whether these may be of any width, and to the same bytes.
    #[serde(default)]
    pub stores_any_of_line: bool,
    /// Cycles for which a store that crosses pages keeps later ones from leaving. An in-order core has
    /// none.
    #[serde(default)]
    pub page_split_store_cycles: u32,
    /// Cycles that a load waits if an earlier store that has not left has the same address within a
    /// page of 4 KiB, and another one in all. An in-order core has none.
    #[serde(default)]
    pub alias_cycles: u32,
    /// Whether an in-order core stalls while a miss is served.
    #[serde(default)]
    pub blocking: bool,
}

/// What happens seldom, and takes long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsModel {
    /// From the last instruction before an interrupt or exception to the first of its handler: what
    /// was fetched is thrown away, and state saved.
    pub interrupt_cycles: u32,
    /// `iret`.
    pub interrupt_return_cycles: u32,
    /// `syscall`.
    pub system_call_cycles: u32,
    /// `sysret`.
    pub system_return_cycles: u32,
    /// Instructions that wait for all earlier ones and delay all later ones.
    pub serialise_cycles: u32,
    /// Locked instructions, besides what they wait for.
    pub atomic_cycles: u32,
    /// `pause`.
    pub pause_cycles: u32,
    /// Instructions of many steps, such as `xsave`.
    pub microcode_cycles: u32,
    /// Whether an interrupt waits until all earlier stores are in the cache, as on x86 (Intel's
    /// manual, volume 3, 11.10).
    #[serde(default)]
    pub interrupt_drains_stores: bool,
    /// Single instructions that take something else than their class.
    #[serde(default)]
    pub of: SingleCosts,
}

/// Cycles of single instructions; absent ones take those of their class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SingleCosts {
    /// `mfence`; else as a locked instruction.
    pub mfence_cycles: Option<u32>,
    /// `lfence`; else 0: no more than it waits for.
    pub lfence_cycles: Option<u32>,
    /// `clflush`, `clflushopt`, `clwb`, until the line is written back; else 0.
    pub clflush_cycles: Option<u32>,
    /// `rdtsc`; else `microcode_cycles`.
    pub rdtsc_cycles: Option<u32>,
    /// `rdtscp`, after all earlier instructions; else that of `rdtsc`.
    pub rdtscp_cycles: Option<u32>,
    /// `rdmsr`, `rdpmc`; else `microcode_cycles`.
    pub rdmsr_cycles: Option<u32>,
    /// `wrmsr`; else `serialise_cycles`.
    pub wrmsr_cycles: Option<u32>,
    /// A write of a control or debug register; else `serialise_cycles`.
    pub mov_cr_cycles: Option<u32>,
    /// `invlpg`, `invpcid`; else `serialise_cycles`.
    pub invlpg_cycles: Option<u32>,
    /// `swapgs`; else `microcode_cycles`.
    pub swapgs_cycles: Option<u32>,
    /// `cli`, `sti`, `popf`; else 0: as any operation.
    pub popf_cycles: Option<u32>,
    /// `in`, `out`, besides what the device takes; else `microcode_cycles`.
    pub port_cycles: Option<u32>,
    /// `sfence`, between the stores before it and those after it; else 0: it takes a store's place. An in-order core
    /// has none.
    pub sfence_cycles: Option<u32>,
    /// `cld`, `std`; else 0: as any operation.
    pub cld_cycles: Option<u32>,
    /// `xgetbv`, `xsetbv`; else `microcode_cycles`.
    pub xgetbv_cycles: Option<u32>,
}

impl SingleCosts {
    fn all(&self) -> [(&'static str, Option<u32>); 15] {
        [
            ("mfence_cycles", self.mfence_cycles),
            ("lfence_cycles", self.lfence_cycles),
            ("clflush_cycles", self.clflush_cycles),
            ("rdtsc_cycles", self.rdtsc_cycles),
            ("rdtscp_cycles", self.rdtscp_cycles),
            ("rdmsr_cycles", self.rdmsr_cycles),
            ("wrmsr_cycles", self.wrmsr_cycles),
            ("mov_cr_cycles", self.mov_cr_cycles),
            ("invlpg_cycles", self.invlpg_cycles),
            ("swapgs_cycles", self.swapgs_cycles),
            ("popf_cycles", self.popf_cycles),
            ("port_cycles", self.port_cycles),
            ("sfence_cycles", self.sfence_cycles),
            ("cld_cycles", self.cld_cycles),
            ("xgetbv_cycles", self.xgetbv_cycles),
        ]
    }
}

/// The widest core: a count of what issues in a cycle has four bits.
const WIDTH_MAX: u32 = 15;
/// The most ports that operations are bound to.
pub(super) const PORTS_MAX: usize = 5;
/// Most instructions in a window.
const WINDOW_MAX: u32 = 4096;
/// The largest scheduler, and the largest whose operations are bound to ports: their counts have 12 and 8 bits.
const SCHEDULER_MAX: u32 = 4095;
const BOUND_MAX: u32 = 255;
/// Most lines that are waited for.
const MISSES_MAX: u32 = 256;
/// Longest latency of a unit.
const LATENCY_MAX: u32 = 1000;
/// Longest event.
const EVENT_CYCLES_MAX: u32 = 1_000_000;
/// Most threads of a core.
const THREADS_MAX: u32 = 64;
/// Most lines of decoded instructions.
const DECODED_LINES_MAX: u32 = 1 << 20;

fn refuse(field: String, problem: impl Into<String>) -> Result<(), ModelError> {
    Err(ModelError::new(field, problem))
}

fn in_range(field: String, value: u32, least: u32, most: u32) -> Result<(), ModelError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    refuse(field, format!("{value} is not in {least}..={most}"))
}

impl DecodedModel {
    /// Its lines as a cache's: a "line" of it is the name of one of its own.
    pub(super) fn as_cache(&self) -> CacheModel {
        let line_bytes = 4;
        CacheModel {
            size_bytes: u64::from(self.lines) * line_bytes,
            ways: self.ways,
            line_bytes,
            replacement: Replacement::Lru,
        }
    }

    fn check(&self, name: &str) -> Result<(), ModelError> {
        in_range(format!("{name}.ways"), self.ways, 1, 64)?;
        let whole = self.lines.is_multiple_of(self.ways) && self.lines <= DECODED_LINES_MAX;
        if !whole || !(self.lines / self.ways).is_power_of_two() {
            let problem = format!(
                "{} is not ways times a power of two, up to {DECODED_LINES_MAX}",
                self.lines
            );
            return refuse(format!("{name}.lines"), problem);
        }
        in_range(format!("{name}.line_instructions"), self.line_instructions, 1, 64)?;
        in_range(format!("{name}.width"), self.width.unwrap_or(1), 1, WIDTH_MAX)?;
        let bytes = self.decode_bytes.unwrap_or(1);
        in_range(format!("{name}.decode_bytes"), bytes, 1, 256)?;
        in_range(format!("{name}.decode_width"), self.decode_width, 1, WIDTH_MAX)
    }
}

impl StringsModel {
    fn check(&self, name: &str) -> Result<(), ModelError> {
        let cycles = [
            ("copy_start_cycles", self.copy_start_cycles),
            ("fill_start_cycles", self.fill_start_cycles),
            ("short_copy_start_cycles", self.short_copy_start_cycles),
            ("short_fill_start_cycles", self.short_fill_start_cycles),
            ("load_start_cycles", self.load_start_cycles.unwrap_or(0)),
            ("load_cycles", self.load_cycles),
            ("compare_start_cycles", self.compare_start_cycles.unwrap_or(0)),
        ];
        for (field, cycles) in cycles {
            in_range(format!("{name}.{field}"), cycles, 0, LATENCY_MAX)?;
        }
        in_range(format!("{name}.short_bytes"), self.short_bytes, 0, 4_096)?;
        in_range(format!("{name}.short_element_bytes"), self.short_element_bytes, 1, 8)?;
        in_range(format!("{name}.chunk_bytes"), self.chunk_bytes, 1, 64)?;
        in_range(format!("{name}.chunks_per_cycle"), self.chunks_per_cycle, 1, WIDTH_MAX)
    }
}

impl UnitsModel {
    /// Each with its name, in the order of [`Unit`](super::Unit).
    pub(super) fn all(&self) -> [(&'static str, UnitModel); UNITS] {
        [
            ("integer", self.integer),
            ("multiply", self.multiply),
            ("divide", self.divide),
            ("float_add", self.float_add),
            ("float_multiply", self.float_multiply),
            ("float_divide", self.float_divide),
            ("vector", self.vector),
            ("branch", self.branch),
            ("load", self.load),
            ("store", self.store),
            ("shuffle", self.shuffle.unwrap_or(self.vector)),
        ]
    }

    fn check_ports(&self, name: &str) -> Result<(), ModelError> {
        let Some(ports) = &self.ports else { return Ok(()) };
        let (integer, branch) = (self.integer.count, self.branch.count);
        in_range(format!("{name}.shift"), ports.shift, 1, integer)?;
        in_range(format!("{name}.select"), ports.select, 1, integer)?;
        in_range(format!("{name}.branch"), ports.branch, 0, integer.min(branch))?;
        if integer + branch - ports.branch > PORTS_MAX as u32 {
            return refuse(name.to_owned(), "are more than five, with the branch units");
        }
        if self.integer.interval_cycles.max(self.branch.interval_cycles) > 1 {
            return refuse(name.to_owned(), "are for units that an operation occupies for a cycle");
        }
        Ok(())
    }
}

impl CoreModel {
    /// What decoding depends on, of a core whose L1I has lines of `line_bytes`, a power of two.
    #[must_use]
    pub fn layout(&self, line_bytes: u64) -> Layout {
        let decoded = self.front.decoded.as_ref();
        Layout {
            line_shift: line_bytes.ilog2(),
            follows_stack: self.front.follows_stack,
            eliminates_moves: self.front.eliminates_moves,
            eliminates_zeroing: self.front.eliminates_zeroing,
            eliminates_constants: self.front.eliminates_constants,
            fuses_branches: self.front.fuses_branches && self.window.is_some(),
            has_shuffle_unit: self.units.shuffle.is_some(),
            binds_to_ports: self.units.ports.is_some() && self.window.is_some(),
            sets_direction_slowly: self.events.of.cld_cycles.is_some(),
            decoded_instructions: decoded.map_or(0, |of| of.line_instructions),
            decoded_by_lines: decoded.is_some_and(|of| !of.traces),
        }
    }

    /// Refuses what cannot be built; `name` is the table it stands in, such as `core`.
    ///
    /// # Errors
    /// [`ModelError`], naming the field and what is allowed.
    pub fn check(&self, name: &str) -> Result<(), ModelError> {
        let field = |field: &str| format!("{name}.{field}");
        in_range(field("width"), self.width, 1, WIDTH_MAX)?;
        in_range(field("issue_width"), self.issue_width, 1, WIDTH_MAX)?;
        self.check_front(&field("front"))?;
        for (unit, model) in self.units.all() {
            let field = |part: &str| format!("{name}.units.{unit}.{part}");
            in_range(field("count"), model.count, 1, WIDTH_MAX)?;
            in_range(field("latency_cycles"), model.latency_cycles, 1, LATENCY_MAX)?;
            in_range(field("interval_cycles"), model.interval_cycles, 1, LATENCY_MAX)?;
        }
        self.units.check_ports(&format!("{name}.units.ports"))?;
        for (operation, cycles, _) in self.units.of.all() {
            let field = format!("{name}.units.of.{operation}");
            in_range(field, cycles.unwrap_or(1), 1, LATENCY_MAX)?;
        }
        let after_logic = self.units.of.select_after_logic_cycles.unwrap_or(0);
        in_range(field("units.of.select_after_logic_cycles"), after_logic, 0, LATENCY_MAX)?;
        let add = self.units.float_add.latency_cycles;
        let to_others = self.units.of.float_add_to_others_cycles.unwrap_or(add);
        in_range(field("units.of.float_add_to_others_cycles"), to_others, 1, LATENCY_MAX)?;
        let root = self.units.of.float_root_interval_cycles.unwrap_or(1);
        in_range(field("units.of.float_root_interval_cycles"), root, 1, LATENCY_MAX)?;
        let flags = self.units.of.float_flags_interval_cycles.unwrap_or(1);
        in_range(field("units.of.float_flags_interval_cycles"), flags, 1, LATENCY_MAX)?;
        in_range(field("data.load_entries"), self.data.load_entries, 1, WINDOW_MAX)?;
        in_range(field("data.store_entries"), self.data.store_entries, 1, WINDOW_MAX)?;
        in_range(field("data.mshrs"), self.data.mshrs, 1, MISSES_MAX)?;
        in_range(field("data.forward_cycles"), self.data.forward_cycles, 0, LATENCY_MAX)?;
        let data = &self.data;
        let vector = data.forward_vector_cycles.unwrap_or(0);
        in_range(field("data.forward_vector_cycles"), vector, 0, LATENCY_MAX)?;
        let wide = data.forward_wide_cycles.unwrap_or(0);
        in_range(field("data.forward_wide_cycles"), wide, 0, LATENCY_MAX)?;
        in_range(field("data.forward_again_cycles"), data.forward_again_cycles, 0, LATENCY_MAX)?;
        in_range(field("data.forward_fail_cycles"), data.forward_fail_cycles, 0, LATENCY_MAX)?;
        let (split, pages) = (data.split_load_cycles, data.page_split_load_cycles);
        in_range(field("data.split_load_cycles"), split, 0, LATENCY_MAX)?;
        in_range(field("data.page_split_load_cycles"), pages, 0, LATENCY_MAX)?;
        in_range(field("data.bank_loads"), data.bank_loads.unwrap_or(1), 1, WIDTH_MAX)?;
        let page_split = data.page_split_store_cycles;
        in_range(field("data.page_split_store_cycles"), page_split, 0, LATENCY_MAX)?;
        in_range(field("data.alias_cycles"), data.alias_cycles, 0, LATENCY_MAX)?;
        let (scaled, vector) = (data.scaled_index_cycles, data.vector_load_cycles);
        in_range(field("data.scaled_index_cycles"), scaled, 0, LATENCY_MAX)?;
        in_range(field("data.vector_load_cycles"), vector, 0, LATENCY_MAX)?;
        in_range(field("data.access_bytes"), data.access_bytes.into(), 8, 64)?;
        in_range(field("data.wide_loads"), data.wide_loads.unwrap_or(1), 1, WIDTH_MAX)?;
        in_range(field("data.vector_stores"), data.vector_stores.unwrap_or(1), 1, WIDTH_MAX)?;
        if let Some(strings) = &self.strings {
            if self.window.is_none() {
                return refuse(field("strings"), "is for cores with a window");
            }
            strings.check(&field("strings"))?;
        }
        self.check_order(name)?;
        self.check_events(&field("events"))?;
        self.predictor.check(&field("predictor"))
    }

    fn check_front(&self, name: &str) -> Result<(), ModelError> {
        let front = &self.front;
        in_range(format!("{name}.queue_entries"), front.queue_entries, self.width, WINDOW_MAX)?;
        let waits = [
            ("mispredict_cycles", front.mispredict_cycles),
            ("btb_miss_cycles", front.btb_miss_cycles),
            ("btb_second_cycles", front.btb_second_cycles),
            ("overruled_cycles", front.overruled_cycles),
            ("indirect_cycles", front.indirect_cycles),
            ("indirect_overruled_cycles", front.indirect_overruled_cycles),
            ("constant_cycles", front.constant_cycles),
            ("return_cycles", front.return_cycles),
            ("ahead_lines", front.ahead_lines),
        ];
        for (field, cycles) in waits {
            in_range(format!("{name}.{field}"), cycles, 0, LATENCY_MAX)?;
        }
        let decoded = front.decoded.as_ref();
        decoded.map_or(Ok(()), |model| model.check(&format!("{name}.decoded")))
    }

    /// What goes with execution in order, out of order, or of threads.
    fn check_order(&self, name: &str) -> Result<(), ModelError> {
        if let Some(window) = &self.window {
            let field = |field: &str| format!("{name}.window.{field}");
            in_range(field("reorder_entries"), window.reorder_entries, self.width, WINDOW_MAX)?;
            let most = if self.units.ports.is_some() { BOUND_MAX } else { SCHEDULER_MAX };
            let most = most.min(window.reorder_entries);
            in_range(field("scheduler_entries"), window.scheduler_entries, 1, most)?;
            if let Some(entries) = window.vector_scheduler_entries {
                in_range(field("vector_scheduler_entries"), entries, 1, most)?;
            }
            if let Some(branches) = window.unresolved_branches {
                in_range(field("unresolved_branches"), branches, 1, 64)?;
            }
            if self.data.blocking {
                return refuse(format!("{name}.data.blocking"), "is for cores without a window");
            }
        }
        let Some(threads) = self.threads else { return Ok(()) };
        in_range(format!("{name}.threads"), threads, 1, THREADS_MAX)?;
        if self.window.is_some() {
            return refuse(format!("{name}.threads"), "is for cores without a window");
        }
        in_range(format!("{name}.width"), self.width, 1, 1)
    }

    fn check_events(&self, name: &str) -> Result<(), ModelError> {
        let events = &self.events;
        let all = [
            ("interrupt_cycles", events.interrupt_cycles),
            ("interrupt_return_cycles", events.interrupt_return_cycles),
            ("system_call_cycles", events.system_call_cycles),
            ("system_return_cycles", events.system_return_cycles),
            ("serialise_cycles", events.serialise_cycles),
            ("atomic_cycles", events.atomic_cycles),
            ("pause_cycles", events.pause_cycles),
            ("microcode_cycles", events.microcode_cycles),
        ];
        let single = events.of.all().map(|(field, cycles)| (field, cycles.unwrap_or(0)));
        let all = all.map(|(field, cycles)| (field.to_owned(), cycles)).into_iter();
        let mut each = all.chain(single.map(|(field, cycles)| (format!("of.{field}"), cycles)));
        each.try_for_each(|(field, cycles)| {
            in_range(format!("{name}.{field}"), cycles, 0, EVENT_CYCLES_MAX)
        })
    }
}
