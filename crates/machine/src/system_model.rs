//! The model of a machine: processors, caches, TLBs, memory. The text that it is read from is that of
//! [`schema`](crate::schema).

use serde::{Deserialize, Serialize};

use crate::core::CoreModel;
use crate::model::{CacheModel, ModelError, TlbModel};
use crate::processor::ProcessorRange;

/// When a store that hits is written to the next level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// When the line is evicted: until then it is dirty.
    #[default]
    Back,
    /// At once, through a buffer that the processor does not wait for.
    Through,
}

/// The address that selects the set of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Index {
    /// The physical address.
    #[default]
    Physical,
    /// The virtual address. Tags are physical, and a cache holds a line in one set at a time.
    Virtual,
}

/// The prefetcher of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Invalid, shared, dirty, as in the paper `simos-1995`, section 3.5.
    Msi,
    /// With an exclusive clean state: a core writes a line that no other core holds without a
    /// request.
    #[default]
    Mesi,
}

/// The treatment of cached lines that a device writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walk {
    /// In a fixed time.
    #[default]
    Fixed,
    /// Page walks load page table entries through the caches.
    Caches,
}

/// One level of cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelModel {
    /// Geometry and replacement.
    pub cache: CacheModel,
    /// Stores that hit.
    pub write: WritePolicy,
    /// Whether a store that misses fills the line.
    pub allocate: bool,
    /// The address that selects the set.
    pub index: Index,
    /// The bytes that a miss fills: a whole line or a sub-block.
    pub sub_block_bytes: u64,
    /// Misses that can be under way at the same time.
    pub mshrs: u32,
    pub prefetch: Prefetch,
    /// How far ahead of an access it prefetches: lines, or strides.
    pub prefetch_distance: u32,
    /// The distance for a stream of instructions, for L2. `None`: the distance for data.
    pub code_prefetch_distance: Option<u32>,
    /// How many prefetches can be under way at the same time; further ones are dropped.
    pub prefetch_buffers: u32,
    /// Cycles that a line occupies the path from this level to the level above; 0 for no limit.
    /// For L2 and L3.
    pub line_cycles: u64,
    /// The lines of the levels above that this level holds.
    pub inclusion: Inclusion,
    /// Whether all processors share it. If not, each core has its own.
    pub shared: bool,
    /// Whether it is a trace cache: it holds decoded code by the address at which the code was
    /// entered, and code that is entered at two addresses twice.
    pub trace: bool,
}

/// A TLB, and which pages it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlbLevel {
    /// Entries, ways and replacement; its page is the smallest of `pages_bytes`.
    pub tlb: TlbModel,
    /// Page sizes, bytes, the smallest first.
    pub pages_bytes: Vec<u64>,
}

/// Nested paging: the processor runs a virtual machine, whose physical addresses are translated a
/// second time by the hypervisor's page tables. A page walk then translates the place of each of the
/// guest's entries, and in the end the page itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedModel {
    /// The hypervisor's pages, bytes: one of the guest's page sizes. A TLB holds a larger page of the
    /// guest in parts of this size.
    pub page_bytes: u64,
    /// Entries of the nested TLB, which holds where the guest's page tables lie; 0 for none.
    pub entries: u32,
}

/// Latencies in cycles. Miss latencies are in addition to the latency of an L1 hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// From a load that hits L1 to the first instruction that can use it.
    pub l1_hit_cycles: u64,
    /// An L1 miss that hits L2.
    pub l2_hit_cycles: u64,
    /// An L2 miss that hits L3; zero without an L3.
    pub l3_hit_cycles: u64,
    /// A miss that memory supplies.
    pub memory_cycles: u64,
    /// From when a line that stores around the caches have completed is sent to memory until memory has it, and its
    /// buffer is free; that of a miss if it is absent.
    pub memory_write_cycles: Option<u64>,
    /// Cycles that a line occupies the memory bus; 0 for no limit.
    pub memory_line_cycles: u64,
    /// A miss that another core's cache supplies.
    pub cache_to_cache_cycles: u64,
    /// A store to a line that other cores hold, too.
    pub upgrade_cycles: u64,
    /// A load from a device: a round trip; that of memory if it is absent.
    pub device_read_cycles: Option<u64>,
    /// A load from the local APIC, which belongs to the core; as from other devices if it is absent.
    pub local_device_cycles: Option<u64>,
    /// Cycles from a posted store to a device until the next access to a device can start. The processor does
    /// not wait for a posted store. `None`: stores to devices wait like loads.
    pub device_write_cycles: Option<u64>,
    /// A miss of the first TLB that hits the second; zero without one.
    pub stlb_hit_cycles: u64,
    /// A TLB miss; with a walk through the caches, without its loads.
    pub tlb_miss_cycles: u64,
}

/// A machine: processors, caches, TLBs, memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemModel {
    pub name: String,
    /// A one-line description.
    pub about: String,
    /// The processors that it is a model of, where CPUID can name them.
    pub processors: Vec<ProcessorRange>,
    pub clock_hz: u64,
    /// Processors that the kernel sees.
    pub cpus: u32,
    /// Number of processors that share a core, with its L1 and everything that is not `shared`.
    pub threads_per_core: u32,
    /// The core; absent if it executes one instruction after the other.
    pub core: Option<CoreModel>,
    /// Cycles of an instruction that waits for nothing, on a core that executes one at a time.
    pub instruction_cycles: u64,
    /// L1 instruction cache.
    pub l1i: LevelModel,
    pub l1d: LevelModel,
    pub l2: LevelModel,
    /// L3, if there is one.
    pub l3: Option<LevelModel>,
    pub itlb: TlbLevel,
    /// Instruction TLB for large pages, if it is separate.
    pub itlb_large: Option<TlbLevel>,
    pub dtlb: TlbLevel,
    /// Data TLB for large pages, if it is separate.
    pub dtlb_large: Option<TlbLevel>,
    /// Second TLB, for instructions and data, if there is one.
    pub stlb: Option<TlbLevel>,
    /// How TLB misses are served.
    pub walk: Walk,
    /// Entries of the page walk cache, for walks through the caches; 0 for none.
    pub walk_entries: u32,
    /// Page walks that a core makes at the same time, with walks through the caches; 0 for any number.
    pub walkers: u32,
    /// The second translation of a machine that is a virtual one, if it is.
    pub nested: Option<NestedModel>,
    pub latencies: Latencies,
    /// The coherence protocol.
    pub protocol: Protocol,
    /// The effect of device writes on caches.
    pub dma: Dma,
    /// The ways of a set of the last level that lines of devices can take, with [`Dma::Allocate`].
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

    /// This machine as a [`BlockingMachine`](crate::BlockingMachine), which is faster and more limited: a
    /// blocking core, two levels, fixed latencies. Each processor has its own caches, without coherence.
    ///
    /// # Errors
    /// [`ModelError`] with everything that the fast path does not have.
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
            l1i: self.l1i.cache.clone(),
            l1d: self.l1d.cache.clone(),
            l2: self.l2.cache.clone(),
            itlb: self.itlb.tlb.clone(),
            dtlb: self.dtlb.tlb.clone(),
            l2_hit_cycles: self.latencies.l2_hit_cycles,
            memory_cycles: self.latencies.memory_cycles,
            tlb_miss_cycles: self.latencies.tlb_miss_cycles,
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
            ("device_read_cycles", self.latencies.device_read_cycles.is_some()),
            ("local_device_cycles", self.latencies.local_device_cycles.is_some()),
            ("device_write_cycles", self.latencies.device_write_cycles.is_some()),
            ("memory_line_cycles", self.latencies.memory_line_cycles > 0),
            ("write = \"through\"", any(|level| level.write == WritePolicy::Through)),
            ("allocate = false", any(|level| !level.allocate)),
            ("index = \"virtual\"", any(|level| level.index == Index::Virtual)),
            ("sub_block", any(|level| level.sub_block_bytes != level.cache.line_bytes)),
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    #[serde(default)]
    pub dma: Dma,
}

impl BlockingModel {
    /// Refuses a model that cannot be built. [`BlockingModel::parse`] calls it.
    ///
    /// # Errors
    /// [`ModelError`], naming the field.
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
