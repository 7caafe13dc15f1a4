//! The model of a machine: processors, caches, TLBs, memory. Its fields are the fields of the text that
//! [`schema`](crate::schema) reads: each is defined here alone, with its range and its default.

use serde::Deserialize;

use crate::core::CoreModel;
use crate::model::{CacheModel, ModelError, Replacement, TlbModel};
use crate::processor::ProcessorRange;
use crate::schema::fields::{
    cache_size, clock, guest_page, line_size, number, optional, page_sizes, short_text, sub_block,
    within, yes,
};

/// The longest latency of a model, cycles.
pub(crate) const CYCLES_MAX: u64 = 1_000_000;
/// The most processors: a set of cores is one word.
const CPUS_MAX: u64 = 64;
/// The most misses under way at the same time.
const MSHRS_MAX: u64 = 64;
/// The longest distance of a prefetch: the lines of 64 bytes in a page.
const PREFETCH_DISTANCE_MAX: u64 = 64;
/// The most prefetches under way at the same time.
const PREFETCH_BUFFERS_MAX: u64 = 256;
/// The most entries of a page walk cache.
const WALK_ENTRIES_MAX: u64 = 4096;
/// The most page walkers of a core.
const WALKERS_MAX: u64 = 64;
/// The most ways of a cache or a TLB.
const WAYS_MAX: u64 = crate::model::WAYS_MAX as u64;
/// The most entries of a TLB.
const TLB_ENTRIES_MAX: u64 = crate::model::TLB_ENTRIES_MAX as u64;
/// Ways for lines of devices in models without that field: the ways of Intel's processors, unless firmware
/// changes them (Farshin et al., "Reexamining Direct Cache Access", USENIX ATC 2020).
const DMA_WAYS: u32 = 2;
/// Entries of a nested TLB in models without that field: the best number of Bhargava et al., "Accelerating
/// Two-Dimensional Page Walks for Virtualized Systems" (ASPLOS 2008).
const NESTED_ENTRIES: u32 = 16;

/// When a store that hits is written to the next level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WritePolicy {
    /// When the line is evicted: until then it is dirty.
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
    /// The line after one that missed, or after a prefetched one at its first use.
    NextLine,
    /// The next address of an instruction whose misses have a constant stride.
    Stride,
    /// Streams: the next lines of a page whose lines are requested one after the other, upwards or downwards.
    Stream,
}

/// The lines of the levels above that a level holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inclusion {
    /// All of them: when it evicts a line, the levels above lose the line, too.
    Inclusive,
    /// The level holds only lines that the levels above evicted.
    Exclusive,
    /// A miss fills the level, and nothing else relates it to the levels above.
    #[default]
    NonInclusive,
}

/// The coherence protocol between the caches of several cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Invalid, shared, dirty, as in the paper `simos-1995`, section 3.5.
    Msi,
    /// With an exclusive clean state: a core writes a line that no other core holds without a
    /// request.
    #[default]
    Mesi,
}

/// The treatment of cached lines that a device writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dma {
    /// Caches drop them.
    #[default]
    Invalidate,
    /// Caches keep them, with the new content.
    Update,
    /// Intel's DDIO: the last level keeps the lines with the new content, and allocates lines that it does not
    /// hold in a few of its ways. Other caches drop the lines.
    Allocate,
}

/// How a TLB miss is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walk {
    /// In a fixed time.
    #[default]
    Fixed,
    /// Page walks load page table entries through the caches.
    Caches,
}

/// One level of cache.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct LevelModel {
    /// Capacity, bytes.
    #[serde(rename = "size", alias = "size_bytes", deserialize_with = "cache_size")]
    pub size_bytes: u64,
    #[serde(deserialize_with = "within::<_, _, 1, WAYS_MAX>")]
    pub ways: u32,
    /// Line size, bytes; a power of two.
    #[serde(rename = "line", alias = "line_bytes", deserialize_with = "line_size")]
    pub line_bytes: u64,
    #[serde(default)]
    pub replacement: Replacement,
    /// Stores that hit. For L1D.
    #[serde(default)]
    pub write: WritePolicy,
    /// Whether a store that misses fills the line. For L1D.
    #[serde(default = "yes")]
    pub allocate: bool,
    /// The address that selects the set. For L1.
    #[serde(default)]
    pub index: Index,
    /// The bytes that a miss fills, if they are a part of a line: see [`LevelModel::fill_bytes`]. For L1D.
    #[serde(
        default,
        rename = "sub_block",
        alias = "sub_block_bytes",
        deserialize_with = "sub_block"
    )]
    pub sub_block_bytes: Option<u64>,
    /// Misses that can be under way at the same time. For L1D.
    #[serde(default = "number::<1, u32>", deserialize_with = "within::<_, _, 1, MSHRS_MAX>")]
    pub mshrs: u32,
    #[serde(default)]
    pub prefetch: Prefetch,
    /// How far ahead of an access it prefetches: lines, or strides.
    #[serde(
        default = "number::<1, u32>",
        deserialize_with = "within::<_, _, 1, PREFETCH_DISTANCE_MAX>"
    )]
    pub prefetch_distance: u32,
    /// The distance for a stream of instructions, for L2. `None`: the distance for data.
    #[serde(default, deserialize_with = "optional::<_, _, 1, PREFETCH_DISTANCE_MAX>")]
    pub code_prefetch_distance: Option<u32>,
    /// How many prefetches can be under way at the same time; further ones are dropped.
    #[serde(
        default = "number::<16, u32>",
        deserialize_with = "within::<_, _, 1, PREFETCH_BUFFERS_MAX>"
    )]
    pub prefetch_buffers: u32,
    /// Cycles that a line occupies the path from this level to the level above; 0 for no limit.
    /// For L2 and L3.
    #[serde(default, deserialize_with = "within::<_, _, 0, CYCLES_MAX>")]
    pub line_cycles: u64,
    /// The lines of the levels above that this level holds. For L2 and L3.
    #[serde(default)]
    pub inclusion: Inclusion,
    /// Whether all processors share it. If not, each core has its own. For L2 and L3.
    #[serde(default)]
    pub shared: bool,
    /// Whether it is a trace cache: it holds decoded code by the address at which the code was
    /// entered, and code that is entered at two addresses twice. For L1I.
    #[serde(default)]
    pub trace: bool,
}

impl LevelModel {
    /// Geometry and replacement.
    #[must_use]
    pub fn cache(&self) -> CacheModel {
        CacheModel {
            size_bytes: self.size_bytes,
            ways: self.ways,
            line_bytes: self.line_bytes,
            replacement: self.replacement,
        }
    }

    /// The bytes that a miss fills: a whole line or a sub-block.
    #[must_use]
    pub fn fill_bytes(&self) -> u64 {
        self.sub_block_bytes.unwrap_or(self.line_bytes)
    }
}

/// A TLB, and which pages it holds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct TlbLevel {
    #[serde(deserialize_with = "within::<_, _, 1, TLB_ENTRIES_MAX>")]
    pub entries: u32,
    /// `None`: the TLB is fully associative.
    #[serde(default, deserialize_with = "optional::<_, _, 1, WAYS_MAX>")]
    pub ways: Option<u32>,
    /// Page sizes, bytes, the smallest first.
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
    /// Entries, ways and replacement. Its page is the smallest.
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

/// Nested paging: the processor runs a virtual machine, whose physical addresses are translated a
/// second time by the hypervisor's page tables. A page walk then translates the place of each of the
/// guest's entries, and in the end the page itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct NestedModel {
    /// The hypervisor's pages, bytes: one of the guest's page sizes. A TLB holds a larger page of the
    /// guest in parts of this size.
    #[serde(
        default = "small_page",
        rename = "page",
        alias = "page_bytes",
        deserialize_with = "guest_page"
    )]
    pub page_bytes: u64,
    /// Entries of the nested TLB, which holds where the guest's page tables lie; 0 for none.
    #[serde(
        default = "number::<NESTED_ENTRIES, u32>",
        deserialize_with = "within::<_, _, 0, WALK_ENTRIES_MAX>"
    )]
    pub entries: u32,
}

/// A machine: processors, caches, TLBs, memory. Latencies are in cycles; miss latencies are in addition to
/// the latency of an L1 hit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct SystemModel {
    #[serde(deserialize_with = "short_text")]
    pub name: String,
    /// A one-line description.
    #[serde(default, deserialize_with = "short_text")]
    pub about: String,
    /// The processors that it is a model of, where CPUID can name them.
    #[serde(default, rename = "cpuid")]
    pub processors: Vec<ProcessorRange>,
    #[serde(rename = "clock", alias = "clock_hz", deserialize_with = "clock")]
    pub clock_hz: u64,
    /// Processors that the kernel sees.
    #[serde(default = "number::<1, u32>", deserialize_with = "within::<_, _, 1, CPUS_MAX>")]
    pub cpus: u32,
    /// Number of processors that share a core, with its L1 and everything that is not `shared`.
    #[serde(default = "number::<1, u32>", deserialize_with = "within::<_, _, 1, CPUS_MAX>")]
    pub threads_per_core: u32,
    /// The core; absent if it executes one instruction after the other.
    #[serde(default)]
    pub core: Option<CoreModel>,
    /// Cycles of an instruction that waits for nothing, on a core that executes one at a time.
    #[serde(default = "number::<1, u64>", deserialize_with = "within::<_, _, 1, CYCLES_MAX>")]
    pub instruction_cycles: u64,
    /// L1 instruction cache.
    pub l1i: LevelModel,
    pub l1d: LevelModel,
    pub l2: LevelModel,
    /// L3, if there is one.
    #[serde(default)]
    pub l3: Option<LevelModel>,
    pub itlb: TlbLevel,
    /// Instruction TLB for large pages, if it is separate.
    #[serde(default)]
    pub itlb_large: Option<TlbLevel>,
    pub dtlb: TlbLevel,
    /// Data TLB for large pages, if it is separate.
    #[serde(default)]
    pub dtlb_large: Option<TlbLevel>,
    /// Second TLB, for instructions and data, if there is one.
    #[serde(default)]
    pub stlb: Option<TlbLevel>,
    /// How TLB misses are served.
    #[serde(default)]
    pub walk: Walk,
    /// Entries of the page walk cache, for walks through the caches; 0 for none.
    #[serde(default, deserialize_with = "within::<_, _, 0, WALK_ENTRIES_MAX>")]
    pub walk_entries: u32,
    /// Page walks that a core makes at the same time, with walks through the caches; 0 for any number.
    #[serde(default, deserialize_with = "within::<_, _, 0, WALKERS_MAX>")]
    pub walkers: u32,
    /// The second translation of a machine that is a virtual one, if it is.
    #[serde(default)]
    pub nested: Option<NestedModel>,
    /// From a load that hits L1 to the first instruction that can use it.
    #[serde(default = "number::<1, u64>", deserialize_with = "within::<_, _, 1, CYCLES_MAX>")]
    pub l1_hit_cycles: u64,
    /// An L1 miss that hits L2.
    #[serde(deserialize_with = "within::<_, _, 0, CYCLES_MAX>")]
    pub l2_hit_cycles: u64,
    /// An L2 miss that hits L3. `None` without an L3.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub l3_hit_cycles: Option<u64>,
    /// A miss that memory supplies.
    #[serde(deserialize_with = "within::<_, _, 0, CYCLES_MAX>")]
    pub memory_cycles: u64,
    /// From when a line that stores around the caches have completed is sent to memory until memory has it, and its
    /// buffer is free. `None`: `memory_cycles`.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub memory_write_cycles: Option<u64>,
    /// Cycles that a line occupies the memory bus; 0 for no limit.
    #[serde(default, deserialize_with = "within::<_, _, 0, CYCLES_MAX>")]
    pub memory_line_cycles: u64,
    /// A miss that another core's cache supplies. `None`: `memory_cycles`.
    #[serde(default, deserialize_with = "optional::<_, _, 0, CYCLES_MAX>")]
    pub cache_to_cache_cycles: Option<u64>,
    /// A store to a line that other cores hold, too. `None`: `memory_cycles`.
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
    /// A TLB miss; with a walk through the caches, without its loads.
    #[serde(deserialize_with = "within::<_, _, 0, CYCLES_MAX>")]
    pub tlb_miss_cycles: u64,
    /// The coherence protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// The effect of device writes on caches.
    #[serde(default)]
    pub dma: Dma,
    /// The ways of a set of the last level that lines of devices can take, with [`Dma::Allocate`].
    #[serde(default = "number::<DMA_WAYS, u32>", deserialize_with = "within::<_, _, 1, WAYS_MAX>")]
    pub dma_ways: u32,
}

impl SystemModel {
    /// The levels below L1, L2 first.
    pub fn outer(&self) -> impl Iterator<Item = &LevelModel> {
        std::iter::once(&self.l2).chain(&self.l3)
    }

    #[must_use]
    pub fn cores(&self) -> u32 {
        self.cpus / self.threads_per_core
    }

    /// A latency that is the latency of memory in models without it.
    #[must_use]
    pub fn or_memory(&self, cycles: Option<u64>) -> u64 {
        cycles.unwrap_or(self.memory_cycles)
    }

    /// This machine as a [`BlockingMachine`](crate::BlockingMachine), which is faster and more limited: a
    /// blocking core, two levels, fixed latencies. Each processor has its own caches, without coherence.
    ///
    /// Fails with [`ModelError`], which names everything that the fast path does not have.
    pub fn blocking(&self) -> Result<BlockingModel, ModelError> {
        let excess = self.beyond_blocking();
        if !excess.is_empty() {
            let problem = format!(
                "has {}, which the timed level does not run; it runs one core with blocking, \
                 write-back, physically indexed L1I, L1D and L2, and pages of one size",
                excess.join(", ")
            );
            return Err(ModelError::new("", problem));
        }
        let model = BlockingModel {
            name: self.name.clone(),
            clock_hz: self.clock_hz,
            instruction_cycles: self.instruction_cycles,
            l1i: self.l1i.cache(),
            l1d: self.l1d.cache(),
            l2: self.l2.cache(),
            itlb: self.itlb.tlb(),
            dtlb: self.dtlb.tlb(),
            l2_hit_cycles: self.l2_hit_cycles,
            memory_cycles: self.memory_cycles,
            tlb_miss_cycles: self.tlb_miss_cycles,
            dma: self.dma,
        };
        model.check()?;
        Ok(model)
    }

    /// The features that [`BlockingMachine`](crate::BlockingMachine) does not have.
    fn beyond_blocking(&self) -> Vec<&'static str> {
        let caches = [&self.l1i, &self.l1d, &self.l2];
        let any = |has: fn(&LevelModel) -> bool| caches.iter().any(|level| has(level));
        let excess = [
            ("cpus", self.cpus > 1),
            ("core", self.core.as_ref().is_some_and(|core| !is_blocking(core))),
            ("l3", self.l3.is_some()),
            ("stlb", self.stlb.is_some()),
            ("TLBs of large pages", self.itlb_large.is_some() || self.dtlb_large.is_some()),
            ("TLBs of several page sizes", {
                self.itlb.pages_bytes.len() > 1 || self.dtlb.pages_bytes.len() > 1
            }),
            ("walk = \"caches\"", self.walk == Walk::Caches),
            ("device_read_cycles", self.device_read_cycles.is_some()),
            ("local_device_cycles", self.local_device_cycles.is_some()),
            ("device_write_cycles", self.device_write_cycles.is_some()),
            ("memory_line_cycles", self.memory_line_cycles > 0),
            ("write = \"through\"", any(|level| level.write == WritePolicy::Through)),
            ("allocate = false", any(|level| !level.allocate)),
            ("index = \"virtual\"", any(|level| level.index == Index::Virtual)),
            ("sub_block", any(|level| level.fill_bytes() != level.line_bytes)),
            ("mshrs", any(|level| level.mshrs > 1)),
            ("prefetch", any(|level| level.prefetch != Prefetch::None)),
            ("line_cycles", any(|level| level.line_cycles > 0)),
            ("inclusion", any(|level| level.inclusion != Inclusion::NonInclusive)),
            ("trace", any(|level| level.trace)),
            ("dma = \"allocate\"", self.dma == Dma::Allocate),
        ];
        excess.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect()
    }
}

/// A blocking processor with two levels of caches. A latency is the time in cycles that the
/// processor waits for a miss that is served there.
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

/// Whether a core executes one instruction at a time and waits for each miss, as the processor of
/// the level `timed` does.
fn is_blocking(core: &CoreModel) -> bool {
    core.width == 1 && core.data.blocking && core.window.is_none() && core.threads.is_none()
}
