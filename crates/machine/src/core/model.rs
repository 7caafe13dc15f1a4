//! Cores as data: the `[core]` table of a machine model. `check` has the ranges of the fields.
//!
//! serde reads these structures from the text of a model (`machines/*.toml`, `--set core.width=4`): the names of
//! fields are the names of keys, so a rename breaks models. A new field needs a default and a range in
//! [`CoreModel::check`]. The cores of this module read it once, when they are made.

mod blocking;
mod check;

use serde::{Deserialize, Serialize};

use super::instruction::{Layout, OPERATIONS, OPERATIONS_WITH_INTERVAL, UNITS, Unit};
use crate::model::{CacheModel, Replacement};
use crate::predict::PredictorModel;

/// Maximum number of ports with operations bound to them.
pub(super) const PORTS_MAX: usize = 5;

/// A core. With a `window` it executes out of order; with `threads` several threads share its
/// pipeline cycle by cycle; otherwise it executes in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreModel {
    /// Maximum number of instructions that are fetched, renamed and retired per cycle.
    pub width: u32,
    /// Maximum number of operations that issue per cycle, on all units together. `None`: `width`. At most `width` in an
    /// in-order core. A multithreaded core issues one.
    #[serde(default)]
    pub issue_width: Option<u32>,
    /// Fetch, decode and renaming.
    pub front: FrontModel,
    /// The out-of-order window. `None`: the core executes in order.
    #[serde(default)]
    pub window: Option<WindowModel>,
    /// Number of threads that share the pipeline; one thread issues per cycle, and each waits for its misses
    /// ([`DataModel::blocking`]). `None`: a single thread.
    #[serde(default)]
    pub threads: Option<u32>,
    pub units: UnitsModel,
    /// Loads and stores, up to the first data cache.
    pub data: DataModel,
    /// Rare, expensive events.
    pub events: EventsModel,
    pub predictor: PredictorModel,
    /// How repeated string instructions copy and fill memory. `None`: the core executes each repetition as an
    /// instruction.
    #[serde(default)]
    pub strings: Option<StringsModel>,
}

/// Repeated string instructions (`rep movs`, `rep stos`) of a core that executes them as microcode
/// of wide accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StringsModel {
    /// Cycles before and after the accesses of a copy. No other instruction enters in these cycles.
    pub copy_start_cycles: u32,
    /// Like `copy_start_cycles`, for a fill.
    pub fill_start_cycles: u32,
    /// Maximum number of bytes per access, within one line. An access has fewer bytes where source and destination
    /// are not aligned to each other.
    pub chunk_bytes: u32,
    /// Number of accesses that enter per cycle; for a copy, the number of pairs of a load and a store.
    #[serde(default = "default_one")]
    pub chunks_per_cycle: u32,
    /// Maximum length of a short string, in bytes. Short strings start after `short_copy_start_cycles` or
    /// `short_fill_start_cycles`. A longer string pays the difference to the long start when it exceeds this length.
    #[serde(default)]
    pub short_bytes: u32,
    /// Maximum element size of a short string, in bytes. 1: only strings of `movsb` and `stosb` can be short.
    #[serde(default = "default_one")]
    pub short_element_bytes: u32,
    /// Like `copy_start_cycles`, for a short string.
    #[serde(default)]
    pub short_copy_start_cycles: u32,
    /// Like `fill_start_cycles`, for a short string.
    #[serde(default)]
    pub short_fill_start_cycles: u32,
    /// Cycles before `rep lods`. `None`: the core executes each repetition as an instruction.
    #[serde(default)]
    pub load_start_cycles: Option<u32>,
    /// Cycles per repetition of `rep lods`.
    #[serde(default)]
    pub load_cycles: u32,
    /// Cycles before `rep scas` and `rep cmps`. `None`: the core executes each repetition as an instruction.
    #[serde(default)]
    pub compare_start_cycles: Option<u32>,
    /// Cycles per repetition of `rep cmps`. Zero: its accesses are as wide as a copy's.
    #[serde(default)]
    pub compare_cycles: u32,
    /// Cycles per repetition of `rep scas`. Zero: its accesses are as wide as a copy's.
    #[serde(default)]
    pub scan_cycles: u32,
}

/// The front end: fetch and decode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontModel {
    /// Entries of the queue between fetch and renaming, in instructions. `None` only in a multithreaded core, which fetches
    /// an instruction when it issues.
    #[serde(default)]
    pub queue_entries: Option<u32>,
    /// Cycles from the resolution of a mispredicted branch until the first instruction of the right path enters.
    pub mispredict_cycles: u32,
    /// Cycles without fetch after a taken direct branch that missed the BTB (resteer at decode).
    pub btb_miss_cycles: u32,
    /// Cost of a branch whose target only the second level of the BTB holds.
    #[serde(default)]
    pub btb_second_cycles: u32,
    /// Cost of a branch whose direction the tagged tables of a TAGE predictor correct. The bimodal table answers
    /// earlier, with the other direction.
    #[serde(default)]
    pub overruled_cycles: u32,
    /// Cost of a predicted indirect branch in addition to the cost of any taken branch.
    #[serde(default)]
    pub indirect_cycles: u32,
    /// Cost of a predicted indirect branch in addition to `indirect_cycles`, where its target differs from its last
    /// target.
    #[serde(default)]
    pub indirect_overruled_cycles: u32,
    /// Cost of a predicted return in addition to the cost of any taken branch.
    #[serde(default)]
    pub return_cycles: u32,
    /// How far the predictor runs ahead of fetch, in code lines and branch targets. It requests each line that it
    /// reaches. Zero: a line is requested after the previous line was fetched.
    #[serde(default)]
    pub ahead_lines: u32,
    /// Whether a taken branch ends the fetch of its cycle. Only in cores that fetch more than one instruction per cycle.
    #[serde(default)]
    pub taken_ends_cycle: bool,
    /// Whether the core tracks the stack pointer before execution (stack engine). Pushes, pops, calls and returns
    /// then do not wait for each other.
    #[serde(default)]
    pub follows_stack: bool,
    /// Whether renaming executes moves between registers of the same kind, without a unit or latency.
    #[serde(default)]
    pub eliminates_moves: bool,
    /// Whether operations with a result that is always zero, such as `xor %eax, %eax`, need no unit.
    #[serde(default)]
    pub eliminates_zeroing: bool,
    /// Whether renaming executes additions and subtractions of a constant between -1,024 and 1,023 to a 64-bit
    /// register, without a unit or latency. `inc`, `dec` and `lea` with such a constant are included. Their flags are
    /// ready a cycle later.
    #[serde(default)]
    pub eliminates_constants: bool,
    /// Extra latency of shifts, rotations, bit tests, `bswap` and moves to vector registers that read the result of
    /// an addition executed by renaming. Only cores with a window and bound ports have it.
    #[serde(default)]
    pub constant_cycles: u32,
    /// Whether flag-setting arithmetic on registers fuses with the conditional branch after it. The fused operation
    /// takes one slot of the width and one entry of the reorder buffer. Only out-of-order cores fuse.
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
    /// Number of lines: `ways` times a power of two.
    pub lines: u32,
    pub ways: u32,
    /// Maximum number of instructions in a line.
    pub line_instructions: u32,
    /// Maximum number of instructions per cycle that the cache supplies. `None`: the width of the core.
    #[serde(default)]
    pub width: Option<u32>,
    /// Whether the cache supplies instructions of one line per cycle.
    #[serde(default)]
    pub one_line_per_cycle: bool,
    /// Maximum number of instructions per cycle that are decoded because the cache lacks them.
    pub decode_width: u32,
    /// Maximum number of instruction bytes that are decoded per cycle. `None`: no limit.
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
    /// Entries of the scheduler: instructions in the reorder buffer that have not issued.
    pub scheduler_entries: u32,
    /// Entries of a separate scheduler for vector operations. `None`: one scheduler serves all operations. A load
    /// takes an entry of the other scheduler, unless it is part of a vector operation.
    #[serde(default)]
    pub vector_scheduler_entries: Option<u32>,
    /// Maximum number of unresolved branches. `None`: only the window limits them.
    #[serde(default)]
    pub unresolved_branches: Option<u32>,
    /// Whether a load may issue before the addresses of earlier stores are known.
    pub loads_pass_stores: bool,
    /// Whether a store that missed delays retirement, because the core has no store buffer after retirement.
    pub stores_hold_retirement: bool,
}

/// Execution units of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitModel {
    pub count: u32,
    /// Cycles from issue until other operations can use the result. For loads: the latency of an L1 hit.
    pub latency_cycles: u32,
    /// Cycles that an operation occupies its unit.
    #[serde(default = "default_one")]
    pub interval_cycles: u32,
}

fn default_one() -> u32 {
    1
}

fn default_access_bytes() -> u8 {
    16
}

/// Execution units, by kind of operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitsModel {
    /// Integer arithmetic, logic, shifts and moves.
    pub integer: UnitModel,
    /// Integer multiplication.
    pub multiply: UnitModel,
    pub divide: UnitModel,
    /// Floating point: additions, comparisons, conversions.
    pub float_add: UnitModel,
    /// Floating point: multiplications, with or without an addition.
    pub float_multiply: UnitModel,
    /// Floating point: divisions and roots.
    pub float_divide: UnitModel,
    /// All other operations on vector registers.
    pub vector: UnitModel,
    pub branch: UnitModel,
    pub load: UnitModel,
    /// Stores, until they can retire. The number of units also limits the stores that drain to the cache per cycle. Without
    /// a window, stores retire after their issue, and the latency is 1.
    pub store: UnitModel,
    /// Shuffles, AES, SHA, moves between integer and vector registers. `None`: `vector` executes them.
    #[serde(default)]
    pub shuffle: Option<UnitModel>,
    /// Ports for integer operations and branches. An out-of-order core binds each operation, when it enters the
    /// scheduler, to the allowed port with the fewest waiting operations. `None`: an operation takes any free unit.
    #[serde(default)]
    pub ports: Option<PortsModel>,
    /// Latencies of single operations.
    #[serde(default)]
    pub of: OperationLatencies,
}

/// The operations that each integer port can execute. Each port executes one operation per cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortsModel {
    /// How many ports execute shifts, rotates, bit tests and three-operand `lea`: ports 0 to `shift - 1`.
    pub shift: u32,
    /// How many ports execute `cmov` and `setcc`: the last `select` ports.
    pub select: u32,
    /// How many ports also execute branches: the last `branch` ports. The remaining branch units execute nothing
    /// else.
    pub branch: u32,
}

/// Latencies of single operations. `None`: the latency of the operation's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationLatencies {
    /// `lea` of three operands.
    pub lea_three_cycles: Option<u32>,
    /// `lea` of two operands with a scaled index. `None`: `lea_three_cycles`.
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
    /// Extra latency of `cmov` and `setcc` that read the flags of a logic operation. Only cores with a window and
    /// bound ports have it.
    pub select_after_logic_cycles: Option<u32>,
    /// Floating-point additions whose result another kind of operation reads; at least the latency of an addition.
    /// `None`: the latency of an addition. Only cores with a window have it.
    pub float_add_to_others_cycles: Option<u32>,
    /// `tzcnt`, `lzcnt`.
    pub bit_count_cycles: Option<u32>,
    /// `bsf`, `bsr`.
    pub bit_scan_cycles: Option<u32>,
    /// `pdep`, `pext`.
    pub bit_deposit_cycles: Option<u32>,
    pub crc32_cycles: Option<u32>,
    /// Integer division of 32 bits or less.
    pub divide32_cycles: Option<u32>,
    /// Multiplication of floating point without an addition.
    pub float_multiply_only_cycles: Option<u32>,
    pub float_root_cycles: Option<u32>,
    /// Cycles that a square root occupies its unit. `None`: the interval of a division. Only cores with a window have
    /// it.
    pub float_root_interval_cycles: Option<u32>,
    /// Floating-point comparisons that set flags, such as `comisd`.
    pub float_flags_cycles: Option<u32>,
    /// Cycles that a flag-setting comparison occupies its unit. `None`: the interval of an addition. Only cores with a
    /// window have it.
    pub float_flags_interval_cycles: Option<u32>,
    /// Conversions between integer and floating-point registers.
    pub convert_cycles: Option<u32>,
    /// Moves between integer and vector registers.
    pub cross_cycles: Option<u32>,
    /// AES rounds, such as `aesenc`.
    pub aes_cycles: Option<u32>,
    /// SHA rounds, such as `sha256rnds2`.
    pub sha_cycles: Option<u32>,
    /// Cycles that a SHA round occupies its unit. `None`: the interval of the unit. Only cores with a window have it.
    pub sha_interval_cycles: Option<u32>,
    /// `pcmpistri`, `pcmpistrm`, `pcmpestri`, `pcmpestrm`.
    pub string_compare_cycles: Option<u32>,
    /// Cycles that `pcmpistri` and the like occupy their unit. `None`: the interval of the unit. Only cores with a window
    /// have it.
    pub string_compare_interval_cycles: Option<u32>,
    /// `psadbw`, `mpsadbw`, `phminposuw`.
    pub byte_sum_cycles: Option<u32>,
    /// `dpps`.
    pub dot_product_cycles: Option<u32>,
    /// `dppd`. `None`: `dot_product_cycles`.
    pub dot_product_double_cycles: Option<u32>,
    /// Cycles that `dpps` and `dppd` occupy their unit. `None`: the interval of a multiplication. Only cores with a window
    /// have it.
    pub dot_product_interval_cycles: Option<u32>,
    /// Horizontal additions and subtractions of floating point, such as `haddps`.
    pub horizontal_add_cycles: Option<u32>,
    /// Cycles that `haddps` and the like occupy their unit. `None`: the interval of an addition. Only cores with a window
    /// have it.
    pub horizontal_add_interval_cycles: Option<u32>,
    /// Minima, maxima and comparisons of floating point that write a vector register, such as `minps`, `cmpps`.
    pub float_compare_cycles: Option<u32>,
    /// Conversions between vector registers, such as `cvtss2sd`.
    pub vector_convert_cycles: Option<u32>,
    /// `roundps` and the like.
    pub round_cycles: Option<u32>,
    /// Approximations of reciprocals and of reciprocal roots: `rcpps`, `rsqrtps`.
    pub reciprocal_cycles: Option<u32>,
    /// `pmulld`. `None`: `vector_multiply_cycles`.
    pub vector_multiply32_cycles: Option<u32>,
    /// Cycles that `pmulld` occupies its unit. `None`: the interval of a multiplication. Only cores with a window have it.
    pub vector_multiply32_interval_cycles: Option<u32>,
    /// `ptest`, `vtestps`, `vtestpd`.
    pub vector_test_cycles: Option<u32>,
    /// Moves between halves of 256 bits: `vperm2i128`, `vextracti128` and the like.
    pub lane_move_cycles: Option<u32>,
    /// Permutations of elements between halves of 256 bits: `vpermd` and the like.
    pub lane_permute_cycles: Option<u32>,
    /// Operations that spread 128 bits over 256: `vinserti128`, `vpbroadcastd`, `vpmovzxbw` and the like.
    pub lane_widen_cycles: Option<u32>,
    /// `pcmpgtq`.
    pub vector_compare64_cycles: Option<u32>,
    /// `aesimc`, `aeskeygenassist`. `None`: `aes_cycles`.
    pub aes_key_cycles: Option<u32>,
    /// `sha1nexte`, `sha1msg1`, `sha256msg1` and the like. `None`: `sha_cycles`.
    pub sha_message_cycles: Option<u32>,
    /// Shuffles within 128 bits that the instruction or its constant selects, such as `pshufd` and `punpcklbw`.
    pub shuffle_simple_cycles: Option<u32>,
    /// Blends by a mask in a fourth register, such as `vpblendvb`. Blends of SSE take the latency of `vector`.
    pub variable_blend_cycles: Option<u32>,
    /// Cycles that such a blend occupies its unit. `None`: the interval of the unit. Only cores with a window have it.
    pub variable_blend_interval_cycles: Option<u32>,
}

impl OperationLatencies {
    /// Name, latency and executing unit of each operation, in the order of [`Operation`](super::Operation): its number
    /// is the index.
    pub(super) fn named_latencies(&self) -> [(&'static str, Option<u32>, Unit); OPERATIONS] {
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
            ("string_compare_cycles", self.string_compare_cycles, Unit::Shuffle),
            ("byte_sum_cycles", self.byte_sum_cycles, Unit::Vector),
            ("dot_product_cycles", self.dot_product_cycles, Unit::FloatMultiply),
            (
                "dot_product_double_cycles",
                self.dot_product_double_cycles.or(self.dot_product_cycles),
                Unit::FloatMultiply,
            ),
            ("horizontal_add_cycles", self.horizontal_add_cycles, Unit::FloatAdd),
            ("float_compare_cycles", self.float_compare_cycles, Unit::FloatAdd),
            ("vector_convert_cycles", self.vector_convert_cycles, Unit::FloatAdd),
            ("round_cycles", self.round_cycles, Unit::FloatAdd),
            ("reciprocal_cycles", self.reciprocal_cycles, Unit::FloatMultiply),
            (
                "vector_multiply32_cycles",
                self.vector_multiply32_cycles.or(self.vector_multiply_cycles),
                Unit::FloatMultiply,
            ),
            ("vector_test_cycles", self.vector_test_cycles, Unit::Vector),
            ("lane_move_cycles", self.lane_move_cycles, Unit::Shuffle),
            ("lane_permute_cycles", self.lane_permute_cycles, Unit::Shuffle),
            ("lane_widen_cycles", self.lane_widen_cycles, Unit::Shuffle),
            ("vector_compare64_cycles", self.vector_compare64_cycles, Unit::Vector),
            ("aes_key_cycles", self.aes_key_cycles.or(self.aes_cycles), Unit::Shuffle),
            ("sha_message_cycles", self.sha_message_cycles.or(self.sha_cycles), Unit::Shuffle),
            ("shuffle_simple_cycles", self.shuffle_simple_cycles, Unit::Shuffle),
            ("variable_blend_cycles", self.variable_blend_cycles, Unit::Vector),
        ]
    }

    /// Name and cycles of each interval of a single operation, in the order of [`OPERATIONS_WITH_INTERVAL`].
    pub(super) fn intervals(
        &self,
    ) -> [(&'static str, Option<u32>); OPERATIONS_WITH_INTERVAL.len()] {
        [
            ("float_root_interval_cycles", self.float_root_interval_cycles),
            ("float_flags_interval_cycles", self.float_flags_interval_cycles),
            ("string_compare_interval_cycles", self.string_compare_interval_cycles),
            ("dot_product_interval_cycles", self.dot_product_interval_cycles),
            ("dot_product_interval_cycles", self.dot_product_interval_cycles),
            ("horizontal_add_interval_cycles", self.horizontal_add_interval_cycles),
            ("vector_multiply32_interval_cycles", self.vector_multiply32_interval_cycles),
            ("sha_interval_cycles", self.sha_interval_cycles),
            ("variable_blend_interval_cycles", self.variable_blend_interval_cycles),
        ]
    }
}

/// Loads and stores in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataModel {
    /// Entries of the load queue: loads that have entered and not retired. In an in-order core, loads whose data has not
    /// arrived. `None` only in a multithreaded core, which has no limit.
    #[serde(default)]
    pub load_entries: Option<u32>,
    /// Entries of the store queue: stores that have entered and not drained to the cache.
    pub store_entries: u32,
    /// Line fill buffers: maximum number of outstanding misses.
    pub mshrs: u32,
    /// Latency of store-to-load forwarding. `None` only in a multithreaded core, which forwards nothing.
    #[serde(default)]
    pub forward_cycles: Option<u32>,
    /// Latency of forwarding into a vector register. `None`: `forward_cycles`.
    #[serde(default)]
    pub forward_vector_cycles: Option<u32>,
    /// Latency of forwarding more than 16 bytes. `None`: `forward_vector_cycles`. An in-order core has none.
    #[serde(default)]
    pub forward_wide_cycles: Option<u32>,
    /// Cycles after which a load retries that issued too early: at most one cycle after the address of the store that
    /// it depends on was known. Zero: no load retries. An in-order core has none.
    #[serde(default)]
    pub forward_again_cycles: u32,
    /// Cycles that a load waits where no single store can forward the whole value. The wait starts when all
    /// overlapping stores have drained. An in-order core has none.
    #[serde(default)]
    pub forward_fail_cycles: u32,
    /// Whether a load takes its value from the register of an earlier store with the same address operands, without a
    /// wait (memory renaming). Only out-of-order cores can.
    #[serde(default)]
    pub renames_memory: bool,
    /// Whether memory renaming is limited to addresses without an index.
    #[serde(default)]
    pub renames_without_index: bool,
    /// Width of the widest access, in bytes. QEMU splits a wide access; the core joins its parts up to this width. An
    /// in-order core joins no parts.
    #[serde(default = "default_access_bytes")]
    pub access_bytes: u8,
    /// Extra latency of a load with a scaled index. An in-order core has none.
    #[serde(default)]
    pub scaled_index_cycles: u32,
    /// Extra latency of a load into a vector register. An in-order core has none.
    #[serde(default)]
    pub vector_load_cycles: u32,
    /// Maximum number of loads of more than 16 bytes that start per cycle. `None`: no limit of their own. An in-order
    /// core has none.
    #[serde(default)]
    pub wide_loads: Option<u32>,
    /// Maximum number of vector stores that drain to the cache per cycle. `None`: no limit of their own. An in-order
    /// core has none.
    #[serde(default)]
    pub vector_stores: Option<u32>,
    /// Maximum number of loads per cycle in one bank of the cache. A bank holds the same 4 bytes of every line.
    /// `None`: no limit. An in-order core has none.
    #[serde(default)]
    pub bank_loads: Option<u32>,
    /// Whether a load that crosses a line boundary takes two load units. Only with a window.
    #[serde(default)]
    pub splits_take_two: bool,
    /// Minimum distance between loads that cross a line boundary, in cycles. Zero: they may start together. An
    /// in-order core has none.
    #[serde(default)]
    pub split_load_cycles: u32,
    /// Like `split_load_cycles`, for loads that cross a page boundary. An in-order core has none.
    #[serde(default)]
    pub page_split_load_cycles: u32,
    /// Whether all stores that drain in a cycle go to one line, and to different bytes: two stores of up to 16 bytes,
    /// or one wider store. A store that crosses a line boundary then takes two cycles. Otherwise only the number of
    /// store units limits the drain. Only with a window.
    #[serde(default)]
    pub stores_one_line_per_cycle: bool,
    /// Whether stores to one line may have any width, and go to the same bytes.
    #[serde(default)]
    pub stores_any_of_line: bool,
    /// Cycles that a store across a page boundary holds back later stores. An in-order core has none.
    #[serde(default)]
    pub page_split_store_cycles: u32,
    /// Cycles that a load waits for 4K aliasing: an earlier store in the store queue has the same offset within a
    /// 4 KiB page, but another address. An in-order core has none.
    #[serde(default)]
    pub alias_cycles: u32,
    /// Whether an in-order core stalls while a miss is served.
    #[serde(default)]
    pub blocking: bool,
}

/// Rare, expensive events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsModel {
    /// Cycles from the last instruction before an interrupt or exception to the first instruction of its handler. The
    /// core discards fetched instructions and saves its state.
    pub interrupt_cycles: u32,
    /// `iret`.
    pub interrupt_return_cycles: u32,
    /// `syscall`.
    pub system_call_cycles: u32,
    /// `sysret`.
    pub system_return_cycles: u32,
    /// Instructions that wait for all earlier ones and delay all later ones.
    pub serialise_cycles: u32,
    /// Locked instructions, in addition to their waits.
    pub atomic_cycles: u32,
    pub pause_cycles: u32,
    /// Instructions of many steps, such as `xsave`.
    pub microcode_cycles: u32,
    /// Whether an interrupt waits until all earlier stores are in the cache, as on x86 (Intel's
    /// manual, volume 3, 11.10).
    #[serde(default)]
    pub interrupt_drains_stores: bool,
    /// Single instructions with a cost other than the cost of their class.
    #[serde(default)]
    pub of: SingleCosts,
}

/// Cycles of single instructions. `None`: the cost of the instruction's class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SingleCosts {
    /// A locked instruction whose access crosses the boundary between two lines (split lock), in addition to
    /// `atomic_cycles`. `None`: 0. A multithreaded core has none.
    pub split_lock_cycles: Option<u32>,
    /// `mfence`. `None`: the cost of a locked instruction.
    pub mfence_cycles: Option<u32>,
    /// `lfence`, in addition to its wait. `None`: 0.
    pub lfence_cycles: Option<u32>,
    /// `clflush`, `clflushopt`, `clwb`, until the line is written back. `None`: 0. An in-order core has none.
    pub clflush_cycles: Option<u32>,
    /// `rdtsc`. `None`: `microcode_cycles`.
    pub rdtsc_cycles: Option<u32>,
    /// `rdtscp`, after all earlier instructions. `None`: the cost of `rdtsc`.
    pub rdtscp_cycles: Option<u32>,
    /// `rdmsr`, `rdpmc`. `None`: `microcode_cycles`.
    pub rdmsr_cycles: Option<u32>,
    /// `wrmsr`. `None`: `serialise_cycles`.
    pub wrmsr_cycles: Option<u32>,
    /// Writes of control and debug registers. `None`: `serialise_cycles`.
    pub mov_cr_cycles: Option<u32>,
    /// `invlpg`, `invpcid`. `None`: `serialise_cycles`.
    pub invlpg_cycles: Option<u32>,
    /// `swapgs`. `None`: `microcode_cycles`.
    pub swapgs_cycles: Option<u32>,
    /// `cli`, `sti`, `popf`. `None`: they cost what any integer operation costs.
    pub popf_cycles: Option<u32>,
    /// `in`, `out`, in addition to the time of the device. `None`: `microcode_cycles`.
    pub port_cycles: Option<u32>,
    /// `sfence`, between the stores before it and the stores after it. `None`: 0, and it takes an entry of the store
    /// queue. An in-order core has none.
    pub sfence_cycles: Option<u32>,
    /// `cld`, `std`. `None`: they cost what any integer operation costs.
    pub cld_cycles: Option<u32>,
    /// `xgetbv`, `xsetbv`. `None`: `microcode_cycles`.
    pub xgetbv_cycles: Option<u32>,
}

impl SingleCosts {
    /// Name and cycles of each cost, for checks.
    fn named_costs(&self) -> [(&'static str, Option<u32>); 16] {
        [
            ("split_lock_cycles", self.split_lock_cycles),
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

impl DecodedModel {
    /// The geometry of the tag array for this cache. Only sets and ways matter; the line size is the smallest that a
    /// [`CacheModel`] allows.
    pub(super) fn as_cache(&self) -> CacheModel {
        let line_bytes = 4;
        CacheModel {
            size_bytes: u64::from(self.lines) * line_bytes,
            ways: self.ways,
            line_bytes,
            replacement: Replacement::Lru,
        }
    }
}

impl UnitsModel {
    /// Name and model of each kind of unit, in the order of [`Unit`]: its number is the index.
    pub(super) fn named_units(&self) -> [(&'static str, UnitModel); UNITS] {
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
}

impl CoreModel {
    /// Maximum number of operations that issue per cycle.
    #[must_use]
    pub fn issue_width(&self) -> u32 {
        self.issue_width.unwrap_or(self.width)
    }

    /// The properties on which templates depend. `line_bytes`: size of a line of L1I, a power of two.
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
            decoded_instructions: decoded.map_or(0, |cache| cache.line_instructions),
            decoded_by_lines: decoded.is_some_and(|cache| !cache.traces),
        }
    }
}
