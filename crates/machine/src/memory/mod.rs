//! The memory side of a machine: caches, TLBs, coherence, memory bus.
//!
//! [`MemorySystem`] serves all processors of a machine. An [`Access`] goes in, and a [`Response`]
//! says when it is ready and which level supplied the line. Whether the processor waits for that is
//! the processor's affair. Caches hold line numbers, not data.
//!
//! How one access travels through the modules:
//!
//! - `translation` looks the page up in the TLBs and walks the page tables;
//! - `l1` looks the line up in L1, and makes a `FillRequest` of a miss;
//! - `fill` serves a `FillRequest`: it looks the line up level by level, asks the other cores or
//!   memory, fills the levels that missed, and answers with a `FillResponse`;
//! - `evict` takes lines out: victims, write-backs, back-invalidations, DMA;
//! - `coherence` keeps the directory of the lines that each core holds, and invalidates and downgrades;
//! - `classification` says why lines miss. It observes, and has no influence on the rest.
//!
//! `prefetch` predicts the lines of the next accesses. `mshr` has the shared resources that misses wait for.
//! `stack` has the stack distances, which need no memory system.

mod classification;
mod coherence;
mod evict;
mod fill;
mod l1;
mod linux_port;
mod mshr;
mod prefetch;
mod stack;
mod translation;

pub use classification::{
    CacheName, ClassCounts, ClassifierConfig, Context, LocationCounts, Miss, MissClass, Mode,
};
pub use evict::DmaCounts;
pub(crate) use evict::TRANSFER_BYTES_MAX;
pub use linux_port::LinuxPort;
pub use stack::{SetStackDistances, StackDistances};
pub use translation::TlbFlush;
pub(crate) use translation::is_global;

use std::ops::Range;

use classification::{Classifier, Instruction};
use coherence::Directory;
use mshr::{
    Arrivals, BUS_SLOTS, CombiningBuffers, MemoryBus, MshrFile, UNLIMITED, WAY_SLOTS, Walkers,
};
use prefetch::{StreamPrefetcher, StridePrefetcher};
use translation::Tlbs;

use crate::address::{PhysicalAddress, VirtualAddress};
use crate::core::{Memory, Template, WaitParts};
use crate::counts::Counts;
use crate::system_model::{
    Dma, Inclusion, Index, LevelModel, Prefetch, Protocol, SystemModel, WritePolicy,
};
use crate::tag_array::TagArray;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// An instruction fetch.
    Fetch,
    Load,
    /// The load of a locked instruction that stores to the same place: one request for the line and
    /// the right to write it.
    LoadLocked,
    Store,
}

/// The size of the guest's page that an access lies in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB.
    #[default]
    Small,
    /// 2 MiB.
    Large,
    /// 1 GiB.
    Huge,
}

/// A fetch, load or store. It lies in one page of 4 KiB, and may cross lines.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The processor, from 0.
    pub cpu: usize,
    pub kind: AccessKind,
    pub virtual_address: VirtualAddress,
    /// The physical address: any below 2^52.
    pub physical: PhysicalAddress,
    /// The length in bytes, at least 1.
    pub bytes: u32,
    /// The address of the instruction, for prefetchers and for the list of misses.
    pub pc: VirtualAddress,
    /// The page that the access lies in.
    pub page: PageSize,
    /// When the access starts, in cycles of the processor.
    pub now_cycles: u64,
}

/// The level that supplied a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupplyingLevel {
    /// L1, or the line of the last fetch.
    L1,
    L2,
    L3,
    /// A cache of another core.
    OtherCore,
    Memory,
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The ready time, beyond the latency of an L1 hit: `now_cycles` for a hit. A store that misses
    /// is ready when its line is filled; the processor may go on earlier.
    pub ready_cycles: u64,
    /// The level that supplied the line.
    pub supplier: SupplyingLevel,
    /// Whether the line was under way before, by a prefetch or for another access.
    pub under_way: bool,
    /// The part of the wait that was for the translation.
    pub translation_cycles: u64,
}

/// Defines the counts from one list, so that fields, names and values agree.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counts of a processor. All are sums since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CpuCounts {
            /// The counts that a blocking machine has, too. `l2_writebacks` are the dirty lines
            /// that L2 evicted.
            pub basic: Counts,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CpuCounts {
            /// The names of all counts except the basic ones.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// All counts except the basic ones, in the order of their names.
            #[must_use]
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),*]
            }
        }
    };
}

counts! {
    /// L2 misses of fetches, loads and stores that missed L3, too; zero without an L3.
    l3_misses,
    /// Lines read from memory, prefetched lines and page tables included.
    memory_reads,
    /// Dirty lines written to memory.
    memory_writes,
    /// Misses of the first TLB that hit the second.
    stlb_hits,
    /// Loads of page table entries.
    walk_loads,
    /// Stores to lines that other cores held and had to give up.
    upgrades,
    /// Misses that another core's cache supplied.
    cache_to_cache,
    /// Lines of its caches that stores of other cores invalidated.
    invalidated,
    /// Lines of its caches that were evicted because an inclusive level evicted them.
    back_invalidated,
    /// Lines that were prefetched.
    prefetches,
    /// Prefetched lines that were used later.
    prefetches_used,
    /// Cycles that misses waited for an MSHR.
    mshr_wait_cycles,
    /// Cycles that misses waited for the memory bus.
    bus_wait_cycles,
    /// Cycles that the fetches of a [`MemoryPort`] took beyond hits of L1, page walks included.
    fetch_wait_cycles,
    /// Cycles that its loads and stores took beyond hits of L1, likewise.
    data_wait_cycles,
}

/// Names one of the caches of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CacheId {
    name: CacheName,
    /// The number of the cache among the caches of that name: its core, or 0 for a shared level.
    number: usize,
}

/// State that the threads of a core share.
#[derive(Clone, Debug)]
struct Core {
    l1i: TagArray,
    l1d: TagArray,
    /// For each slot of L1D, the sub-blocks that are valid; empty if lines are filled whole.
    valid_sub_blocks: Vec<u64>,
    /// For each slot of L1D, the bytes that were written; empty unless misses are classified.
    written: Vec<u64>,
    mshrs: MshrFile,
    combining: CombiningBuffers,
    strides: StridePrefetcher,
    streams: StreamPrefetcher,
    /// When translations are there that are under way, by page.
    translations: Arrivals,
    walkers: Walkers,
    /// When lines arrive in L1I that are under way.
    code_arrivals: Arrivals,
    tlbs: Tlbs,
    /// The thread and page of the last data access, which need no lookup in the TLB.
    last_data_page: u64,
}

/// A level below L1.
#[derive(Clone, Debug)]
struct OuterLevel {
    /// One cache, or one for each core.
    caches: Vec<TagArray>,
    line_shift: u32,
    inclusion: Inclusion,
    shared: bool,
    prefetch: Prefetch,
    prefetch_distance: u64,
    code_prefetch_distance: u64,
    /// For each cache, when lines arrive that are under way.
    arrivals: Vec<Arrivals>,
    /// For each cache, its way to the level above.
    ways_up: Vec<MemoryBus>,
    hit_cycles: u64,
}

impl OuterLevel {
    /// The number of the cache that a core uses.
    fn number_for(&self, core: usize) -> usize {
        if self.shared { 0 } else { core }
    }

    /// The cache that a core uses.
    fn cache_for(&mut self, core: usize) -> &mut TagArray {
        let number = self.number_for(core);
        &mut self.caches[number]
    }
}

/// A processor: a thread of a core.
#[derive(Clone, Debug, Default)]
struct Cpu {
    core: usize,
    thread: u64,
    counts: CpuCounts,
    /// The page and line of the last fetch.
    last_fetch: Option<(u64, u64)>,
    /// The address space that it executes in: its PCID.
    space: u16,
    /// The page tables in use.
    page_tables: u64,
    /// When its next access to a device can start.
    device_free_cycles: u64,
    /// When its last fill started, which is also when that fill's write-backs reach the bus.
    fill_cycles: u64,
}

/// The constants of a model.
#[derive(Clone, Debug)]
struct Config {
    l1i_shift: u32,
    l1d_shift: u32,
    sub_block_shift: u32,
    l1i_virtual: bool,
    l1d_virtual: bool,
    l1i_prefetch: Prefetch,
    l1i_prefetch_distance: u64,
    l1d_prefetch: Prefetch,
    l1d_prefetch_distance: u64,
    /// L1I is a trace cache: lines are named by the address at which they are entered.
    trace: bool,
    write_through: bool,
    write_allocate: bool,
    l1_hit_cycles: u64,
    stlb_hit_cycles: u64,
    tlb_miss_cycles: u64,
    memory_cycles: u64,
    memory_write_cycles: u64,
    cache_to_cache_cycles: u64,
    upgrade_cycles: u64,
    device_read_cycles: u64,
    local_device_cycles: u64,
    device_write_cycles: Option<u64>,
    instruction_cycles: u64,
    protocol: Protocol,
    dma: Dma,
    /// Ways of the last level that lines of devices can take.
    dma_ways: usize,
    /// The coherence granule, as a power of two: the longest line of a private cache.
    granule_shift: u32,
    /// How many levels below L1 are private to a core.
    private_levels: usize,
}

impl Config {
    fn new(model: &SystemModel) -> Config {
        let shift = |level: &LevelModel| level.line_bytes.ilog2();
        let private_levels = model.outer().take_while(|level| !level.shared).count();
        let private = model.outer().take(private_levels).map(shift);
        Config {
            l1i_shift: shift(&model.l1i),
            l1d_shift: shift(&model.l1d),
            sub_block_shift: model.l1d.fill_bytes().ilog2(),
            l1i_virtual: model.l1i.index == Index::Virtual,
            l1d_virtual: model.l1d.index == Index::Virtual,
            l1i_prefetch: model.l1i.prefetch,
            l1i_prefetch_distance: model.l1i.prefetch_distance.into(),
            l1d_prefetch: model.l1d.prefetch,
            l1d_prefetch_distance: model.l1d.prefetch_distance.into(),
            trace: model.l1i.trace,
            write_through: model.l1d.write == WritePolicy::Through,
            write_allocate: model.l1d.allocate,
            l1_hit_cycles: model.l1_hit_cycles,
            stlb_hit_cycles: model.stlb_hit_cycles.unwrap_or(0),
            tlb_miss_cycles: model.tlb_miss_cycles,
            memory_cycles: model.memory_cycles,
            memory_write_cycles: model.or_memory(model.memory_write_cycles),
            cache_to_cache_cycles: model.or_memory(model.cache_to_cache_cycles),
            upgrade_cycles: model.or_memory(model.upgrade_cycles),
            device_read_cycles: model.or_memory(model.device_read_cycles),
            local_device_cycles: model
                .or_memory(model.local_device_cycles.or(model.device_read_cycles)),
            device_write_cycles: model.device_write_cycles,
            instruction_cycles: model.instruction_cycles,
            protocol: model.protocol,
            dma: model.dma,
            dma_ways: model.dma_ways as usize,
            granule_shift: private.fold(shift(&model.l1i).max(shift(&model.l1d)), u32::max),
            private_levels,
        }
    }

    /// The coherence granule of an address.
    fn granule(&self, physical: PhysicalAddress) -> u64 {
        physical.line(self.granule_shift)
    }

    /// The bit of the sub-block that an address lies in.
    fn sub_block_bit(&self, physical: PhysicalAddress) -> u64 {
        let in_line = physical.offset_in_line(self.l1d_shift);
        1 << (in_line >> self.sub_block_shift)
    }

    /// The parts of a coherence granule that an access touches: a bit for each 64th, at least a
    /// byte.
    fn granule_mask(&self, physical: PhysicalAddress, bytes: u32) -> u64 {
        let part_shift = self.granule_shift.saturating_sub(6);
        let in_granule = physical.offset_in_line(self.granule_shift);
        let first = in_granule >> part_shift;
        let last = ((in_granule + u64::from(bytes) - 1) >> part_shift).min(63);
        (u64::MAX >> (63 - last)) & (u64::MAX << first)
    }
}

/// The memory side of a machine.
#[derive(Clone, Debug)]
pub struct MemorySystem {
    config: Config,
    cpus: Vec<Cpu>,
    cores: Vec<Core>,
    outer: Vec<OuterLevel>,
    /// The directory of granules. `None` with one core.
    directory: Option<Directory>,
    bus: MemoryBus,
    dma: DmaCounts,
    classifier: Classifier,
    /// Whether a store that hits has more to do than to mark its line dirty.
    slow_stores: bool,
    /// Whether a hit of L1D may have nothing to do but to touch its page and its line.
    may_hit_at_once: bool,
    /// The virtual page of the local APIC.
    local_device_page: u64,
    /// The parts of the wait of a [`MemoryPort`]'s last access.
    last_wait: WaitParts,
}

impl MemorySystem {
    /// Returns a memory system with cold caches for the first `cpus` processors of a model, at
    /// least one and at most 64. That may be more than the model has: then there are more of the
    /// same cores.
    ///
    /// # Panics
    /// With no processor or more than 64.
    #[must_use]
    pub fn new(model: &SystemModel, cpus: u32) -> Self {
        assert!((1..=64).contains(&cpus), "{cpus} processors");
        let threads = model.threads_per_core.min(cpus);
        let cores = cpus.div_ceil(threads) as usize;
        let config = Config::new(model);
        let hit_cycles = [model.l2_hit_cycles, model.l3_hit_cycles.unwrap_or(0)];
        let cpu = |cpu: u32| Cpu {
            core: (cpu / threads) as usize,
            thread: u64::from(cpu % threads),
            ..Cpu::default()
        };
        MemorySystem {
            cpus: (0..cpus).map(cpu).collect(),
            cores: (0..cores).map(|_| new_core(model)).collect(),
            outer: (model.outer().zip(hit_cycles))
                .map(|(level, hit_cycles)| new_level(level, cores, hit_cycles))
                .collect(),
            directory: (cores > 1).then(Directory::default),
            bus: MemoryBus::new(model.memory_line_cycles, BUS_SLOTS),
            dma: DmaCounts::default(),
            last_wait: WaitParts::default(),
            local_device_page: u64::MAX,
            classifier: Classifier::default(),
            slow_stores: config.write_through || model.l1d.fill_bytes() != model.l1d.line_bytes,
            may_hit_at_once: false,
            config,
        }
        .with_quick_hits()
    }

    #[inline]
    pub fn access(&mut self, access: &Access) -> Response {
        match access.kind {
            AccessKind::Fetch => self.fetch(access),
            AccessKind::Load | AccessKind::LoadLocked => self.data(access, false),
            AccessKind::Store => self.data(access, true),
        }
    }

    /// Serves an access of a blocking processor: it starts at the processor's own cycle, whatever
    /// `now_cycles` says, and the processor stalls until it is ready. Returns and counts the stall.
    #[inline]
    pub fn access_blocking(&mut self, access: &Access) -> u64 {
        let now_cycles = self.cpus[access.cpu].counts.basic.cycles;
        let response = self.access(&Access { now_cycles, ..*access });
        self.stall(access, response.ready_cycles - now_cycles)
    }

    /// Serves a load or store of a device: it bypasses the caches. A processor's accesses to devices
    /// come one after the other: they are neither reordered nor combined. A load waits for the round
    /// trip, and with it for all stores before it; a store does not wait where the bus posts it.
    pub fn access_device(&mut self, access: &Access) -> Response {
        let write = access.kind == AccessKind::Store;
        let cpu = &mut self.cpus[access.cpu];
        *(if write { &mut cpu.counts.basic.stores } else { &mut cpu.counts.basic.loads }) += 1;
        cpu.counts.basic.device_accesses += 1;
        let page = access.virtual_address.page() | cpu.thread << 58;
        let now = self.translate_data(access, page);
        let is_local = access.virtual_address.page() == self.local_device_page;
        let config = &self.config;
        let read_cycles =
            if is_local { config.local_device_cycles } else { config.device_read_cycles };
        let free_cycles = &mut self.cpus[access.cpu].device_free_cycles;
        let start = now.max(*free_cycles);
        // The processor does not wait for a posted write.
        let ready_cycles = if let (true, Some(posted)) = (write, config.device_write_cycles) {
            *free_cycles = start + posted;
            start
        } else {
            *free_cycles = start + read_cycles;
            *free_cycles
        };
        Response {
            ready_cycles,
            supplier: SupplyingLevel::Memory,
            under_way: false,
            translation_cycles: now - access.now_cycles,
        }
    }

    /// The local APIC is mapped at this address.
    pub fn set_local_device_page(&mut self, virtual_address: VirtualAddress) {
        self.local_device_page = virtual_address.page();
    }

    /// Serves a device access of a blocking processor, like [`MemorySystem::access_blocking`].
    pub fn access_device_blocking(&mut self, access: &Access) -> u64 {
        let now_cycles = self.cpus[access.cpu].counts.basic.cycles;
        let response = self.access_device(&Access { now_cycles, ..*access });
        self.stall(access, response.ready_cycles - now_cycles)
    }

    #[inline]
    fn stall(&mut self, access: &Access, stall_cycles: u64) -> u64 {
        if stall_cycles > 0 {
            let counts = &mut self.cpus[access.cpu].counts.basic;
            counts.cycles += stall_cycles;
            match access.kind {
                AccessKind::Fetch => counts.fetch_stall_cycles += stall_cycles,
                _ => counts.data_stall_cycles += stall_cycles,
            }
        }
        stall_cycles
    }

    /// Counts `number` instructions of a blocking processor.
    #[inline]
    pub fn execute(&mut self, cpu: usize, number: u64) {
        let counts = &mut self.cpus[cpu].counts.basic;
        counts.instructions += number;
        counts.cycles += number * self.config.instruction_cycles;
    }

    /// The counts of a processor so far. Cycles and stalls come from
    /// [`MemorySystem::access_blocking`] and [`MemorySystem::execute`].
    #[must_use]
    pub fn counts(&self, cpu: usize) -> CpuCounts {
        self.cpus[cpu].counts
    }

    /// The number of processors.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Classifies misses from now on, and forgets earlier classifications.
    pub fn classify_misses(&mut self, config: ClassifierConfig) {
        let lines = [
            self.cores.iter().map(|core| core.l1i.capacity()).collect(),
            self.cores.iter().map(|core| core.l1d.capacity()).collect(),
            self.lines_of_level(0),
            self.lines_of_level(1),
        ];
        let several = self.cores.len() > 1;
        for core in &mut self.cores {
            core.written = vec![0; if several { core.l1d.capacity() } else { 0 }];
        }
        self.slow_stores |= several;
        self.classifier = Classifier::new(config, lines, self.cpus.len());
        self.may_hit_at_once = self.has_quick_hits();
    }

    fn with_quick_hits(mut self) -> Self {
        self.may_hit_at_once = self.has_quick_hits();
        self
    }

    fn has_quick_hits(&self) -> bool {
        !(self.slow_stores || self.config.l1d_virtual || self.classifier.is_on())
    }

    fn lines_of_level(&self, level: usize) -> Vec<usize> {
        let caches = self.outer.get(level).map_or(&[][..], |level| &level.caches[..]);
        caches.iter().map(TagArray::capacity).collect()
    }

    /// Sets the context that a processor executes in from now on.
    pub fn set_context(&mut self, cpu: usize, context: Context) {
        self.classifier.set_context(cpu, context);
    }

    /// The classes of all misses in the caches of a name, of all cores.
    #[must_use]
    pub fn class_counts(&self, name: CacheName) -> ClassCounts {
        self.classifier.class_counts(name)
    }

    /// The misses since the last call, and how many more there were than are kept.
    pub fn take_misses(&mut self) -> (Vec<Miss>, u64) {
        self.classifier.take_misses()
    }

    fn core_of(&self, cpu: usize) -> usize {
        self.cpus[cpu].core
    }

    fn outer_id(&self, level: usize, core: usize) -> CacheId {
        CacheId { name: CacheName::outer(level), number: self.outer[level].number_for(core) }
    }

    #[inline(always)]
    fn cache(&self, id: CacheId) -> &TagArray {
        match id.name {
            CacheName::L1i => &self.cores[id.number].l1i,
            CacheName::L1d => &self.cores[id.number].l1d,
            CacheName::L2 => &self.outer[0].caches[id.number],
            CacheName::L3 => &self.outer[1].caches[id.number],
        }
    }

    #[inline(always)]
    fn cache_mut(&mut self, id: CacheId) -> &mut TagArray {
        match id.name {
            CacheName::L1i => &mut self.cores[id.number].l1i,
            CacheName::L1d => &mut self.cores[id.number].l1d,
            CacheName::L2 => &mut self.outer[0].caches[id.number],
            CacheName::L3 => &mut self.outer[1].caches[id.number],
        }
    }

    #[inline(always)]
    fn line_shift(&self, name: CacheName) -> u32 {
        match name {
            CacheName::L1i => self.config.l1i_shift,
            CacheName::L1d => self.config.l1d_shift,
            CacheName::L2 => self.outer[0].line_shift,
            CacheName::L3 => self.outer[1].line_shift,
        }
    }

    /// The caches of a core that lines can be taken out of by their physical address: L1D, L1I
    /// unless it is a trace cache, and the first `levels` levels below.
    fn caches_of(
        &self,
        core: usize,
        levels: usize,
    ) -> impl DoubleEndedIterator<Item = CacheId> + use<> {
        let l1d = CacheId { name: CacheName::L1d, number: core };
        let l1i = (!self.config.trace).then_some(CacheId { name: CacheName::L1i, number: core });
        let [l2, l3] = [0, 1].map(|level| (level < levels).then(|| self.outer_id(level, core)));
        [Some(l1d), l1i, l2, l3].into_iter().flatten()
    }
}

fn new_core(model: &SystemModel) -> Core {
    let l1d = TagArray::indexed(&model.l1d.cache(), model.l1d.index);
    let has_sub_blocks = model.l1d.fill_bytes() != model.l1d.line_bytes;
    Core {
        l1i: TagArray::indexed(&model.l1i.cache(), model.l1i.index),
        valid_sub_blocks: vec![0; if has_sub_blocks { l1d.capacity() } else { 0 }],
        written: Vec::new(),
        l1d,
        mshrs: MshrFile::new(model.l1d.mshrs, model.l1d.prefetch_buffers),
        combining: CombiningBuffers::new(
            // A core limits its misses itself, and then L1D has no limit.
            model.core.as_ref().map_or(model.l1d.mshrs, |core| core.data.mshrs),
            model.l1d.line_bytes,
        ),
        strides: StridePrefetcher::default(),
        streams: StreamPrefetcher::default(),
        translations: Arrivals::new(0),
        walkers: Walkers::new(model.walkers),
        code_arrivals: Arrivals::new(model.l1i.prefetch_buffers),
        tlbs: Tlbs::new(model),
        last_data_page: u64::MAX,
    }
}

fn new_level(level: &LevelModel, cores: usize, hit_cycles: u64) -> OuterLevel {
    let caches = if level.shared { 1 } else { cores };
    OuterLevel {
        caches: (0..caches).map(|_| TagArray::new(&level.cache())).collect(),
        line_shift: level.line_bytes.ilog2(),
        inclusion: level.inclusion,
        shared: level.shared,
        prefetch: level.prefetch,
        prefetch_distance: level.prefetch_distance.into(),
        code_prefetch_distance: level
            .code_prefetch_distance
            .unwrap_or(level.prefetch_distance)
            .into(),
        arrivals: (0..caches).map(|_| Arrivals::new(level.prefetch_buffers)).collect(),
        ways_up: (0..caches).map(|_| MemoryBus::new(level.line_cycles, WAY_SLOTS)).collect(),
        hit_cycles,
    }
}

/// The lines that a range touches.
#[inline]
pub(crate) fn lines_of(start: PhysicalAddress, bytes: u64, line_shift: u32) -> Range<u64> {
    let first = start.line(line_shift);
    let Some(to_last) = bytes.checked_sub(1) else { return first..first };
    first..(start.0.saturating_add(to_last) >> line_shift) + 1
}

/// Returns the model with L1 caches that wait for any number of lines at a time.
///
/// A core model limits the misses under way itself, because it knows when each access starts. A
/// [`MemorySystem`] that limits them, too, would delay some of them twice.
#[must_use]
pub fn without_mshr_limit(model: &SystemModel) -> SystemModel {
    let mut model = model.clone();
    (model.l1d.mshrs, model.l1i.mshrs) = (UNLIMITED, UNLIMITED);
    model
}

/// The memory port of one processor: adapts a [`MemorySystem`], which is made
/// [`without_mshr_limit`], to what a [core](crate::core) asks of its memory.
#[derive(Debug)]
pub struct MemoryPort<'s> {
    /// The memory system of all processors.
    pub system: &'s mut MemorySystem,
    /// The processor that executes.
    pub cpu: usize,
    /// The block of the accesses, which has the addresses of their instructions.
    pub code: Option<&'s Template>,
    /// Without it: the address from which instructions are numbered. Prefetchers distinguish
    /// instructions by their addresses, and misses are counted by them.
    pub pc: VirtualAddress,
    /// The size of the pages that it accesses, which a core does not know.
    pub page: PageSize,
}

impl MemoryPort<'_> {
    /// Tries a load, or a store if `write`. Returns whether it hit at once. Otherwise [`Memory::load`] or
    /// [`Memory::store`] must make the access, with `page` set. `page_size` returns the size of an address's
    /// page.
    ///
    /// One copy serves loads and stores, because the code that a core executes per instruction shares the
    /// host's L1I with the translated code.
    #[inline(never)]
    pub fn hits_at_once(
        &mut self,
        access: &crate::core::Access,
        write: bool,
        page_size: impl FnOnce(VirtualAddress) -> PageSize,
        now_cycles: u64,
    ) -> bool {
        let Some(physical) = access.physical else { return false };
        let addresses = (VirtualAddress(access.virtual_address), PhysicalAddress(physical));
        let bytes_and_write = (access.bytes, write);
        let hits =
            self.system.hits_at_once(self.cpu, addresses, bytes_and_write, page_size, now_cycles);
        if hits {
            self.system.last_wait = WaitParts::default();
        }
        hits
    }

    fn request(
        &mut self,
        access: &crate::core::Access,
        kind: AccessKind,
        now_cycles: u64,
    ) -> Access {
        let code = self.code;
        self.system.classifier.set_instruction(|| {
            let physical = code.and_then(|code| code.instruction_physical(access.instruction));
            Instruction { fetched_at: None, physical }
        });
        Access {
            cpu: self.cpu,
            kind,
            virtual_address: VirtualAddress(access.virtual_address),
            physical: PhysicalAddress(access.physical.unwrap_or(0)),
            bytes: u32::from(access.bytes.max(1)),
            pc: match self.code {
                Some(code) => code.address_at(access.instruction),
                None => self.pc.plus(access.instruction.into()),
            },
            page: self.page,
            now_cycles,
        }
    }

    fn data(&mut self, access: &crate::core::Access, kind: AccessKind, now_cycles: u64) -> u64 {
        let request = self.request(access, kind, now_cycles);
        let response = match access.physical {
            Some(_) => self.system.access(&request),
            None => self.system.access_device(&request),
        };
        self.answer(response, now_cycles)
    }

    fn answer(&mut self, response: Response, now_cycles: u64) -> u64 {
        let Response { translation_cycles, under_way, .. } = response;
        self.system.last_wait = WaitParts { translation_cycles, under_way };
        let wait_cycles = response.ready_cycles - now_cycles;
        self.system.cpus[self.cpu].counts.data_wait_cycles += wait_cycles;
        wait_cycles
    }
}

impl Memory for MemoryPort<'_> {
    fn fetch(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
        now_cycles: u64,
    ) -> u64 {
        let response = self.system.access(&Access {
            cpu: self.cpu,
            kind: AccessKind::Fetch,
            virtual_address,
            physical,
            bytes: 1,
            pc: virtual_address,
            page: self.page,
            now_cycles,
        });
        let wait_cycles = response.ready_cycles - now_cycles;
        self.system.cpus[self.cpu].counts.fetch_wait_cycles += wait_cycles;
        wait_cycles
    }

    fn set_fetched_instruction(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
    ) {
        self.system.classifier.set_instruction(|| Instruction {
            fetched_at: Some(virtual_address),
            physical: Some(physical),
        });
    }

    fn store_around(&mut self, access: &crate::core::Access, now_cycles: u64) -> u64 {
        if access.physical.is_none() {
            return self.store(access, now_cycles);
        }
        let request = self.request(access, AccessKind::Store, now_cycles);
        let response = self.system.store_around(&request);
        self.answer(response, now_cycles)
    }

    fn load(&mut self, access: &crate::core::Access, now_cycles: u64) -> u64 {
        self.data(access, AccessKind::Load, now_cycles)
    }

    fn load_locked(&mut self, access: &crate::core::Access, now_cycles: u64) -> u64 {
        self.data(access, AccessKind::LoadLocked, now_cycles)
    }

    fn store(&mut self, access: &crate::core::Access, now_cycles: u64) -> u64 {
        self.data(access, AccessKind::Store, now_cycles)
    }

    fn last_wait(&self) -> WaitParts {
        self.system.last_wait
    }
}
