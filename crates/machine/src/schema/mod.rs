//! Machine models as data: TOML text to a checked structure, drawn as text.

mod check;
mod draw;
mod parse;
mod reader;
mod set;
pub mod units;

pub use draw::draw;
pub use set::set;

use crate::core::CoreModel;
use crate::model::{BlockingModel, CacheModel, ModelError, TlbModel};

/// Whether a store that hits is passed on at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// The line becomes dirty, and is written when it leaves.
    #[default]
    Back,
    /// It goes on to the next level, through a buffer that the processor does not wait for.
    Through,
}

/// Which address picks the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Index {
    /// The physical one.
    #[default]
    Physical,
    /// The virtual one. Tags are physical, and a line is in one place at a time.
    Virtual,
}

/// What is fetched before it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// Nothing.
    #[default]
    None,
    /// The line behind one that missed, or that was prefetched and is used for the first time.
    NextLine,
    /// What an instruction's constant stride leads to.
    Stride,
}

/// What a level holds of what the levels above it hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inclusion {
    /// All of it: a line that leaves takes its copies above along.
    Inclusive,
    /// None of it: it holds what left them.
    Exclusive,
    /// A miss fills it, and nothing more is promised.
    #[default]
    NonInclusive,
}

/// How caches of several processors agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Invalid, shared, dirty, as in the paper `simos-1995`, section 3.5.
    Msi,
    /// With an exclusive clean state: a line that nobody else has is written without asking.
    #[default]
    Mesi,
}

/// What happens to cached lines that a device writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dma {
    /// They are dropped.
    #[default]
    Invalidate,
    /// They stay, and hold what the device wrote.
    Update,
}

/// How a TLB miss is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walk {
    /// In a fixed time.
    #[default]
    Fixed,
    /// By loads of the tables, through the caches.
    Caches,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelModel {
    /// Geometry and replacement.
    pub cache: CacheModel,
    /// Stores that hit.
    pub write: WritePolicy,
    /// Whether a store that misses brings the line in.
    pub allocate: bool,
    /// Which address picks the set.
    pub index: Index,
    /// What a miss brings in, bytes: a line, or a part of it.
    pub sub_block_bytes: u64,
    /// Misses that may wait for their lines at the same time.
    pub mshrs: u32,
    /// Prefetching.
    pub prefetch: Prefetch,
    /// What it holds of the levels above.
    pub inclusion: Inclusion,
    /// Whether all processors share it. If not, each core has its own.
    pub shared: bool,
    /// Whether it holds decoded code under the addresses at which it was entered, so that what is
    /// entered at two addresses is in it twice.
    pub trace: bool,
}

/// A TLB, and which pages it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlbLevel {
    /// Entries, ways, replacement; its page is the smallest that it holds.
    pub tlb: TlbModel,
    /// Page sizes, bytes, the smallest first.
    pub pages_bytes: Vec<u64>,
}

/// Cycles that a processor waits. Of a miss they are counted beyond an L1 hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// From a load that hits L1 to the first instruction that can use it.
    pub l1_hit_cycles: u64,
    /// An L1 miss that hits L2.
    pub l2_hit_cycles: u64,
    /// An L2 miss that hits L3; zero without an L3.
    pub l3_hit_cycles: u64,
    /// A miss that memory serves.
    pub memory_cycles: u64,
    /// Cycles for which a line occupies the way to memory; 0 for no limit.
    pub memory_line_cycles: u64,
    /// A miss that another core's cache serves.
    pub cache_to_cache_cycles: u64,
    /// A store to a line that others have, too.
    pub upgrade_cycles: u64,
    /// A miss of the first TLB that hits the second; zero without one.
    pub stlb_hit_cycles: u64,
    /// A TLB miss; with a walk through the caches, what it takes besides its loads.
    pub tlb_miss_cycles: u64,
}

/// A machine: processors, caches, TLBs, memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemModel {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
    /// Clock, Hz.
    pub clock_hz: u64,
    /// Processors that the kernel sees.
    pub cpus: u32,
    /// How many of these share a core, and with it L1 and what is not `shared`.
    pub threads_per_core: u32,
    /// What executes; absent for a core that executes one instruction after the other.
    pub core: Option<CoreModel>,
    /// Cycles of an instruction that waits for nothing, of a core that executes one at a time.
    pub instruction_cycles: u64,
    /// L1 instruction cache.
    pub l1i: LevelModel,
    /// L1 data cache.
    pub l1d: LevelModel,
    /// L2.
    pub l2: LevelModel,
    /// L3, if there is one.
    pub l3: Option<LevelModel>,
    /// Instruction TLB.
    pub itlb: TlbLevel,
    /// Instruction TLB of large pages, if that is another one.
    pub itlb_large: Option<TlbLevel>,
    /// Data TLB.
    pub dtlb: TlbLevel,
    /// Data TLB of large pages, if that is another one.
    pub dtlb_large: Option<TlbLevel>,
    /// Second TLB, of both, if there is one.
    pub stlb: Option<TlbLevel>,
    /// How TLB misses are served.
    pub walk: Walk,
    /// Entries of the cache of upper tables that a walk through the caches has; 0 for none.
    pub walk_entries: u32,
    /// All latencies.
    pub latencies: Latencies,
    /// How caches agree.
    pub protocol: Protocol,
    /// What devices do to caches.
    pub dma: Dma,
}

/// Longest model text that is read.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

impl SystemModel {
    /// Parses and checks a model.
    ///
    /// # Errors
    /// [`ModelError`], with line, field and what is allowed.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        parse::parse(text)
    }

    /// Its levels below L1, the first first.
    pub fn outer(&self) -> impl Iterator<Item = &LevelModel> {
        std::iter::once(&self.l2).chain(&self.l3)
    }

    /// Cores.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.cpus / self.threads_per_core
    }

    /// The same machine for [`BlockingMachine`](crate::BlockingMachine), which is fast and knows less: two levels,
    /// one processor (of several, each has its own, not coherent), blocking, fixed latencies.
    ///
    /// # Errors
    /// [`ModelError`], with all that is too much for it.
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
        };
        model.check()?;
        Ok(model)
    }

    /// What [`BlockingMachine`](crate::BlockingMachine) would leave out.
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
            ("memory_line_cycles", self.latencies.memory_line_cycles > 0),
            ("write = \"through\"", any(|level| level.write == WritePolicy::Through)),
            ("allocate = false", any(|level| !level.allocate)),
            ("index = \"virtual\"", any(|level| level.index == Index::Virtual)),
            ("sub_block", any(|level| level.sub_block_bytes != level.cache.line_bytes)),
            ("mshrs", any(|level| level.mshrs > 1)),
            ("prefetch", any(|level| level.prefetch != Prefetch::None)),
            ("inclusion", any(|level| level.inclusion != Inclusion::NonInclusive)),
            ("trace", any(|level| level.trace)),
        ];
        excess.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect()
    }
}

/// Whether a core does what the timed level's processor does: an instruction at a time, waiting for each
/// miss.
fn is_blocking(core: &CoreModel) -> bool {
    core.width == 1 && core.data.blocking && core.window.is_none() && core.threads.is_none()
}
