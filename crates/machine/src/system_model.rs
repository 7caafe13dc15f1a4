//! The model of a machine: processors, caches, TLBs, memory.
//!
//! Its fields are the fields of the text that [`schema`](crate::schema) reads (`machines/*.toml`). Each is defined only
//! here, with its range and its default. A rename of a field, or of a `rename` or `alias`, breaks models of users.

use serde::Deserialize;

use crate::core::CoreModel;
use crate::identity::IdentityModel;
use crate::model::{CacheModel, ModelError, Replacement, TlbModel};
use crate::processor::ProcessorRange;
use crate::schema::fields::{
    cache_size, clock, guest_page, line_size, number, optional, page_sizes, short_text, sub_block,
    whole_number_within, yes,
};

/// Maximum latency of a model, in cycles.
pub(crate) const CYCLES_MAX: u64 = 1_000_000;
/// Maximum number of processors: a set of cores must fit one word.
const CPUS_MAX: u64 = 64;
/// Maximum number of outstanding misses.
const MSHRS_MAX: u64 = 64;
/// Maximum distance of a prefetch: the number of 64-byte lines in a page.
const PREFETCH_DISTANCE_MAX: u64 = 64;
/// Maximum number of outstanding prefetches.
const PREFETCH_BUFFERS_MAX: u64 = 256;
/// Maximum entries of a page walk cache or nested TLB.
const WALK_ENTRIES_MAX: u64 = 4096;
/// Maximum number of page walkers of a core.
const WALKERS_MAX: u64 = 64;
/// Maximum ways of a cache or a TLB.
const WAYS_MAX: u64 = crate::model::WAYS_MAX as u64;
/// Maximum entries of a TLB.
const TLB_ENTRIES_MAX: u64 = crate::model::TLB_ENTRIES_MAX as u64;
/// Default of `dma_ways`: the number in Intel's processors, unless firmware changes it (Farshin et al., "Reexamining
/// Direct Cache Access", USENIX ATC 2020).
const DMA_WAYS: u32 = 2;
/// Default entries of a nested TLB: the best number of Bhargava et al., "Accelerating Two-Dimensional Page Walks for
/// Virtualized Systems" (ASPLOS 2008).
const NESTED_ENTRIES: u32 = 16;

/// When a store that hits is written to the next level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WritePolicy {
    /// When the line is evicted. Until then, the line is dirty.
    #[default]
    Back,
    /// At once, through a buffer that the processor does not wait for.
    Through,
}

/// The address that selects the set of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Index {
    /// The physical address.
    #[default]
    Physical,
    /// The virtual address. Tags are physical, and a cache holds a line in one set at a time.
    Virtual,
}

/// The prefetcher of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefetch {
    #[default]
    None,
    /// The next line: after a line that missed, and after a prefetched line at its first use.
    NextLine,
    /// The next address of an instruction whose misses have a constant stride.
    Stride,
    /// Streams: the next lines of a page whose lines are requested one after the other, upwards or downwards.
    Stream,
}

/// The lines of the levels above that a level also holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inclusion {
    /// All lines. When the level evicts a line, the levels above also lose it.
    Inclusive,
    /// None: the level holds only lines that the levels above evicted.
    Exclusive,
    /// A miss fills the level, and nothing else relates it to the levels above.
    #[default]
    NonInclusive,
}

/// The coherence protocol between the caches of several cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Three states: invalid, shared, dirty (paper `simos-1995`, section 3.5).
    Msi,
    /// A fourth state, exclusive: a core may write a clean line without a request if no other core holds it.
    #[default]
    Mesi,
}

/// The treatment of cached lines that a device writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dma {
    /// Caches drop the written lines.
    #[default]
    Invalidate,
    /// Caches keep the written lines, with the new content.
    Update,
    /// Intel's DDIO: the last level keeps the lines with the new content, and allocates lines that it does not
    /// hold in a few of its ways. Other caches drop the lines.
    Allocate,
}

/// How a TLB miss is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walk {
    /// Each page walk takes a fixed time.
    #[default]
    Fixed,
    /// Page walks load page table entries through the caches.
    Caches,
}

/// The parameters of a cache level.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct LevelModel {
    /// Capacity in bytes.
    #[serde(rename = "size", alias = "size_bytes", deserialize_with = "cache_size")]
    pub size_bytes: u64,
    #[serde(deserialize_with = "whole_number_within::<_, _, 1, WAYS_MAX>")]
    pub ways: u32,
    /// Line size in bytes; a power of two.
    #[serde(rename = "line", alias = "line_bytes", deserialize_with = "line_size")]
    pub line_bytes: u64,
    #[serde(default)]
    pub replacement: Replacement,
    /// When stores that hit reach the next level. For L1D.
    #[serde(default)]
    pub write: WritePolicy,
    /// Whether a store that misses fills the line. For L1D.
    #[serde(default = "yes")]
    pub allocate: bool,
    /// The address that selects the set. For L1.
    #[serde(default)]
    pub index: Index,
    /// The number of bytes that a miss fills, if it is only a part of a line. `None`: the whole line. For L1D.
    #[serde(
        default,
        rename = "sub_block",
        alias = "sub_block_bytes",
        deserialize_with = "sub_block"
    )]
    pub sub_block_bytes: Option<u64>,
    /// Maximum number of outstanding misses. For L1D.
    #[serde(
        default = "number::<1, u32>",
        deserialize_with = "whole_number_within::<_, _, 1, MSHRS_MAX>"
    )]
    pub mshrs: u32,
    #[serde(default)]
    pub prefetch: Prefetch,
    /// How far ahead of an access the cache prefetches, in lines or strides.
    #[serde(
        default = "number::<1, u32>",
        deserialize_with = "whole_number_within::<_, _, 1, PREFETCH_DISTANCE_MAX>"
    )]
    pub prefetch_distance: u32,
    /// Like `prefetch_distance`, for instructions. `None`: `prefetch_distance`. For L2.
    #[serde(default, deserialize_with = "optional::<_, _, 1, PREFETCH_DISTANCE_MAX>")]
    pub code_prefetch_distance: Option<u32>,
    /// Maximum number of outstanding prefetches. Further prefetches are dropped.
    #[serde(
        default = "number::<16, u32>",
        deserialize_with = "whole_number_within::<_, _, 1, PREFETCH_BUFFERS_MAX>"
    )]
    pub prefetch_buffers: u32,
    /// Cycles that a line occupies the path from this level to the level above. 0: no limit. For L2 and L3.
    #[serde(default, deserialize_with = "whole_number_within::<_, _, 0, CYCLES_MAX>")]
    pub line_cycles: u64,
    /// The lines of the levels above that this level also holds. For L2 and L3.
    #[serde(default)]
    pub inclusion: Inclusion,
    /// Whether all processors share the level. Otherwise each core has its own cache. For L2 and L3.
    #[serde(default)]
    pub shared: bool,
    /// Whether the cache is a trace cache. It identifies code by the address where execution entered it, so code that
    /// is entered at two addresses is held twice. For L1I.
    #[serde(default)]
    pub trace: bool,
}

impl LevelModel {
    /// The geometry and the replacement policy.
    #[must_use]
    pub fn cache(&self) -> CacheModel {
        CacheModel {
            size_bytes: self.size_bytes,
            ways: self.ways,
            line_bytes: self.line_bytes,
            replacement: self.replacement,
        }
    }

    /// The number of bytes that a miss fills: a whole line or a sub-block.
    #[must_use]
    pub fn fill_bytes(&self) -> u64 {
        self.sub_block_bytes.unwrap_or(self.line_bytes)
    }
}

/// A TLB, and the page sizes that it holds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct TlbLevel {
    #[serde(deserialize_with = "whole_number_within::<_, _, 1, TLB_ENTRIES_MAX>")]
    pub entries: u32,
    /// `None`: the TLB is fully associative.
    #[serde(default, deserialize_with = "optional::<_, _, 1, WAYS_MAX>")]
    pub ways: Option<u32>,
    /// Page sizes in bytes, the smallest first. At least one.
    #[serde(
        default = "small_pages",
        rename = "pages",
        alias = "page",
        alias = "page_bytes",
        deserialize_with = "page_sizes"
    )]
    pub pages_bytes: Vec<u64>,
    #[serde(default)]
    pub replacement: Replacement,
}

impl TlbLevel {
    /// The geometry and the replacement policy, with the smallest page size.
    #[must_use]
    pub fn tlb(&self) -> TlbModel {
        TlbModel {
            entries: self.entries,
            ways: self.ways.unwrap_or(self.entries),
            page_bytes: self.pages_bytes[0],
            replacement: self.replacement,
        }
    }
}

fn small_pages() -> Vec<u64> {
    vec![small_page()]
}

fn small_page() -> u64 {
    4096
}

/// Nested paging: the processor runs a virtual machine, and the hypervisor's page tables translate its physical
/// addresses a second time. A page walk then translates the address of each of the guest's page table entries, and in
/// the end the address of the page.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct NestedModel {
    /// The hypervisor's page size in bytes: one of the guest's page sizes. A TLB holds a larger page of the guest in
    /// parts of this size.
    #[serde(
        default = "small_page",
        rename = "page",
        alias = "page_bytes",
        deserialize_with = "guest_page"
    )]
    pub page_bytes: u64,
    /// Entries of the nested TLB, which translates the addresses of the guest's page tables. 0: there is none.
    #[serde(
        default = "number::<NESTED_ENTRIES, u32>",
        deserialize_with = "whole_number_within::<_, _, 0, WALK_ENTRIES_MAX>"
    )]
    pub entries: u32,
}

/// The costs of exits to a hypervisor, which belong to a host and not to its processor: two hosts with the same processor
/// differ by an order of magnitude. Each is in addition to what the instruction or event costs the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct HostExitsModel {
    /// Whether the simulated machine has these costs. Otherwise the table only states them.
    #[serde(default)]
    pub applied: bool,
    /// `cpuid`. `None`: nobody measured it, as for the other costs.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub cpuid_cycles: Option<u64>,
    /// Setting the local timer.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub timer_cycles: Option<u64>,
    /// Sending an interrupt to another processor.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub ipi_cycles: Option<u64>,
    /// Receiving an interrupt: the exit that it causes, its injection, and its end.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub interrupt_cycles: Option<u64>,
}

/// The costs of exits that a simulated machine has, in cycles: [`HostExitsModel`] says what each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostExits {
    pub cpuid_cycles: u64,
    pub timer_cycles: u64,
    pub ipi_cycles: u64,
    pub interrupt_cycles: u64,
}

impl HostExitsModel {
    /// All costs. `None` if one is not stated.
    #[must_use]
    pub fn costs(&self) -> Option<HostExits> {
        Some(HostExits {
            cpuid_cycles: self.cpuid_cycles?,
            timer_cycles: self.timer_cycles?,
            ipi_cycles: self.ipi_cycles?,
            interrupt_cycles: self.interrupt_cycles?,
        })
    }
}

/// A machine: processors, caches, TLBs, memory. Latencies are in cycles. Latencies of misses are in addition to the
/// latency of an L1 hit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct SystemModel {
    #[serde(deserialize_with = "short_text")]
    pub name: String,
    /// A one-line description.
    #[serde(default, deserialize_with = "short_text")]
    pub about: String,
    /// The processors that the model describes, by their CPUID signatures.
    #[serde(default, rename = "cpuid")]
    pub processors: Vec<ProcessorRange>,
    /// The processor's identity, as the guest sees it. `None`: the guest sees a processor without mitigations.
    #[serde(default)]
    pub identity: Option<IdentityModel>,
    #[serde(rename = "clock", alias = "clock_hz", deserialize_with = "clock")]
    pub clock_hz: u64,
    /// Number of processors that the kernel sees.
    #[serde(
        default = "number::<1, u32>",
        deserialize_with = "whole_number_within::<_, _, 1, CPUS_MAX>"
    )]
    pub cpus: u32,
    /// Number of processors that share a core, its L1, and all levels that are not `shared`.
    #[serde(
        default = "number::<1, u32>",
        deserialize_with = "whole_number_within::<_, _, 1, CPUS_MAX>"
    )]
    pub threads_per_core: u32,
    /// The core. `None`: a processor that executes one instruction after the other, for the level `timed`.
    #[serde(default)]
    pub core: Option<CoreModel>,
    /// Cycles of an instruction that waits for nothing, on a processor that executes one instruction after the other.
    #[serde(
        default = "number::<1, u64>",
        deserialize_with = "whole_number_within::<_, _, 1, CYCLES_MAX>"
    )]
    pub instruction_cycles: u64,
    /// L1 instruction cache.
    pub l1i: LevelModel,
    pub l1d: LevelModel,
    /// L2. `None`: memory supplies all misses of L1. Such a machine has no L3.
    #[serde(default)]
    pub l2: Option<LevelModel>,
    /// L3. `None`: L2 is the last level.
    #[serde(default)]
    pub l3: Option<LevelModel>,
    pub itlb: TlbLevel,
    /// A separate instruction TLB for large pages.
    #[serde(default)]
    pub itlb_large: Option<TlbLevel>,
    pub dtlb: TlbLevel,
    /// A separate data TLB for large pages.
    #[serde(default)]
    pub dtlb_large: Option<TlbLevel>,
    /// The second TLB, for instructions and data.
    #[serde(default)]
    pub stlb: Option<TlbLevel>,
    /// How TLB misses are served.
    #[serde(default)]
    pub walk: Walk,
    /// Entries of the page walk cache, with `walk = "caches"`. 0: there is none.
    #[serde(default, deserialize_with = "whole_number_within::<_, _, 0, WALK_ENTRIES_MAX>")]
    pub walk_entries: u32,
    /// Maximum number of simultaneous page walks of a core, with `walk = "caches"`. 0: no limit.
    #[serde(default, deserialize_with = "whole_number_within::<_, _, 0, WALKERS_MAX>")]
    pub walkers: u32,
    /// Nested paging, if the machine is a virtual machine. `None`: a real machine.
    #[serde(default)]
    pub nested: Option<NestedModel>,
    /// Costs of exits to a hypervisor. `None`: nobody measured them, or the machine is not virtual.
    #[serde(default)]
    pub host_exits: Option<HostExitsModel>,
    /// From the issue of a load that hits L1 to the issue of an instruction that uses the value.
    #[serde(
        default = "number::<1, u64>",
        deserialize_with = "whole_number_within::<_, _, 1, CYCLES_MAX>"
    )]
    pub l1_hit_cycles: u64,
    /// An L1 miss that hits L2. `None` without an L2.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub l2_hit_cycles: Option<u64>,
    /// An L2 miss that hits L3. `None` without an L3.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub l3_hit_cycles: Option<u64>,
    /// A miss that memory supplies.
    #[serde(deserialize_with = "whole_number_within::<_, _, 0, CYCLES_MAX>")]
    pub memory_cycles: u64,
    /// The time that memory takes to receive a line of non-temporal stores. The line's combining buffer is free then.
    /// `None`: `memory_cycles`.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub memory_write_cycles: Option<u64>,
    /// Cycles that a line occupies the memory bus. 0: no limit.
    #[serde(default, deserialize_with = "whole_number_within::<_, _, 0, CYCLES_MAX>")]
    pub memory_line_cycles: u64,
    /// A miss that another core's cache supplies. `None`: `memory_cycles`.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub cache_to_cache_cycles: Option<u64>,
    /// A store to a line that other cores also hold. `None`: `memory_cycles`.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub upgrade_cycles: Option<u64>,
    /// A load from a device: a round trip. `None`: `memory_cycles`.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub device_read_cycles: Option<u64>,
    /// A load from the local APIC, which belongs to the core. `None`: `device_read_cycles`.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub local_device_cycles: Option<u64>,
    /// Cycles from a posted store to a device until the next access to a device can start. The processor does
    /// not wait for a posted store. `None`: stores to devices wait like loads.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub device_write_cycles: Option<u64>,
    /// A miss of the first TLB that hits the second. `None` without a second TLB.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub stlb_hit_cycles: Option<u64>,
    /// A TLB miss. With `walk = "caches"`, without the loads of the walk.
    #[serde(deserialize_with = "whole_number_within::<_, _, 0, CYCLES_MAX>")]
    pub tlb_miss_cycles: u64,
    /// The coherence protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// The effect of device writes on caches.
    #[serde(default)]
    pub dma: Dma,
    /// Number of ways of a set of the last level that lines of devices can take, with [`Dma::Allocate`].
    #[serde(
        default = "number::<DMA_WAYS, u32>",
        deserialize_with = "whole_number_within::<_, _, 1, WAYS_MAX>"
    )]
    pub dma_ways: u32,
}

impl SystemModel {
    /// The levels below L1, L2 first. Empty if memory supplies all misses of L1.
    pub fn outer(&self) -> impl Iterator<Item = &LevelModel> {
        self.l2.iter().chain(&self.l3)
    }

    #[must_use]
    pub fn cores(&self) -> u32 {
        self.cpus / self.threads_per_core
    }

    /// The costs of exits that a simulated machine of this model has. `None`: no costs.
    #[must_use]
    pub fn applied_exits(&self) -> Option<HostExits> {
        self.host_exits.filter(|exits| exits.applied)?.costs()
    }

    /// An optional latency with its default: the latency of memory.
    #[must_use]
    pub fn or_memory(&self, cycles: Option<u64>) -> u64 {
        cycles.unwrap_or(self.memory_cycles)
    }

    /// The model of this machine for a [`BlockingMachine`](crate::BlockingMachine), which is faster and more limited: a
    /// blocking core, two levels, fixed latencies. Each processor has its own caches, without coherence.
    ///
    /// Fails with [`ModelError`], which lists all features of the model that the fast path does not have.
    pub fn blocking(&self) -> Result<BlockingModel, ModelError> {
        let excess = self.beyond_blocking();
        if !excess.is_empty() {
            let problem = format!(
                "has {}, which the timed level does not run; it runs one core, an instruction at a time, with blocking, \
                 write-back, physically indexed L1I, L1D and L2, and pages of one size",
                excess.join(", ")
            );
            return Err(ModelError::new("", problem));
        }
        let (Some(l2), Some(l2_hit_cycles)) = (&self.l2, self.l2_hit_cycles) else {
            return Err(ModelError::new("l2", "is missing"));
        };
        let model = BlockingModel {
            name: self.name.clone(),
            clock_hz: self.clock_hz,
            instruction_cycles: self.instruction_cycles,
            l1i: self.l1i.cache(),
            l1d: self.l1d.cache(),
            l2: l2.cache(),
            itlb: self.itlb.tlb(),
            dtlb: self.dtlb.tlb(),
            l2_hit_cycles,
            memory_cycles: self.memory_cycles,
            tlb_miss_cycles: self.tlb_miss_cycles,
            dma: self.dma,
        };
        model.check()?;
        Ok(model)
    }

    /// The features of the model that [`BlockingMachine`](crate::BlockingMachine) does not have, as users name them. A
    /// new field of a model that changes counts or times belongs here.
    fn beyond_blocking(&self) -> Vec<&'static str> {
        let caches = || [&self.l1i, &self.l1d].into_iter().chain(&self.l2);
        let any_cache = |has: fn(&LevelModel) -> bool| caches().any(has);
        let excess = [
            ("cpus", self.cpus > 1),
            ("no l2", self.l2.is_none()),
            ("l3", self.l3.is_some()),
            ("stlb", self.stlb.is_some()),
            ("TLBs of large pages", self.itlb_large.is_some() || self.dtlb_large.is_some()),
            ("TLBs of several page sizes", {
                self.itlb.pages_bytes.len() > 1 || self.dtlb.pages_bytes.len() > 1
            }),
            ("walk = \"caches\"", self.walk == Walk::Caches),
            ("device_read_cycles", self.device_read_cycles.is_some()),
            ("memory_write_cycles", self.memory_write_cycles.is_some()),
            ("cache_to_cache_cycles", self.cache_to_cache_cycles.is_some()),
            ("upgrade_cycles", self.upgrade_cycles.is_some()),
            ("protocol = \"msi\"", self.protocol == Protocol::Msi),
            ("l1_hit_cycles", self.l1_hit_cycles > 1),
            ("local_device_cycles", self.local_device_cycles.is_some()),
            ("device_write_cycles", self.device_write_cycles.is_some()),
            ("memory_line_cycles", self.memory_line_cycles > 0),
            ("write = \"through\"", any_cache(|level| level.write == WritePolicy::Through)),
            ("allocate = false", any_cache(|level| !level.allocate)),
            ("index = \"virtual\"", any_cache(|level| level.index == Index::Virtual)),
            ("sub_block", any_cache(|level| level.fill_bytes() != level.line_bytes)),
            ("mshrs", any_cache(|level| level.mshrs > 1)),
            ("prefetch", any_cache(|level| level.prefetch != Prefetch::None)),
            ("line_cycles", any_cache(|level| level.line_cycles > 0)),
            ("inclusion", any_cache(|level| level.inclusion != Inclusion::NonInclusive)),
            ("shared", any_cache(|level| level.shared)),
            ("trace", any_cache(|level| level.trace)),
            ("dma = \"allocate\"", self.dma == Dma::Allocate),
            ("host_exits.applied = true", self.applied_exits().is_some()),
        ];
        let of_core = self.core.as_ref().map(CoreModel::beyond_blocking).unwrap_or_default();
        let others = excess.iter().filter(|(_, has)| *has).map(|(name, _)| *name);
        others.chain(of_core).collect()
    }
}

/// A blocking processor with two levels of caches, for [`BlockingMachine`](crate::BlockingMachine). The latency of a
/// level is the time, in cycles, that the processor waits for a miss that this level serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockingModel {
    pub name: String,
    pub clock_hz: u64,
    /// Cycles of an instruction that waits for nothing.
    pub instruction_cycles: u64,
    /// L1 instruction cache.
    pub l1i: CacheModel,
    pub l1d: CacheModel,
    /// L2 cache, of instructions and data. Its lines are no shorter than the lines of L1.
    pub l2: CacheModel,
    pub itlb: TlbModel,
    pub dtlb: TlbModel,
    /// The wait for an L1 miss that hits L2, cycles.
    pub l2_hit_cycles: u64,
    /// The wait for an L2 miss, cycles.
    pub memory_cycles: u64,
    /// The wait for a TLB miss, cycles.
    pub tlb_miss_cycles: u64,
    /// The effect of device writes on cached lines.
    pub dma: Dma,
}

impl BlockingModel {
    /// Refuses a model that cannot be built. [`BlockingModel::parse`] calls it.
    ///
    /// Fails with [`ModelError`], naming the field.
    pub fn check(&self) -> Result<(), ModelError> {
        let refuse = |field: &str, problem: &str| Err(ModelError::new(field, problem));
        self.l1i.check("l1i")?;
        self.l1d.check("l1d")?;
        self.l2.check("l2")?;
        self.itlb.check("itlb")?;
        self.dtlb.check("dtlb")?;
        if self.l2.line_bytes < self.l1i.line_bytes.max(self.l1d.line_bytes) {
            return refuse("l2.line_bytes", "shorter than a line of L1");
        }
        if !(1_000_000..=100_000_000_000).contains(&self.clock_hz) {
            return refuse("clock_hz", "not in 1 MHz..=100 GHz");
        }
        Ok(())
    }
}
