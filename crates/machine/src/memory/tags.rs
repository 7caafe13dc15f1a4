//! The caches and TLBs of a machine, and which core holds which line: all state that decides what hits. `l1`, `fill`,
//! `evict`, `coherence` and `translation` implement the methods of [`Tags`]. No method may read a time.

use super::CpuCounts;
use super::classification::{CacheName, Classifier, ClassifierConfig};
use super::coherence::Directory;
use super::combining::CombiningBuffers;
use super::config::Config;
use super::evict::DmaCounts;
use super::global_pages::GlobalPages;
use super::outcome::Outcome;
use super::prefetch::{self, PrefetchBuffers, StreamPrefetcher, StridePrefetcher};
use super::translation::{ThreadPage, Tlbs};

use crate::address::LineAddress;
use crate::system_model::{Inclusion, LevelModel, Prefetch, SystemModel};
use crate::tag_array::TagArray;

/// Identifies one cache of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheId {
    pub(super) name: CacheName,
    /// The number of the cache among the caches with this name: its core, or 0 for a shared level.
    pub(super) number: usize,
}

/// State that the threads of a core share.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub(super) l1i: TagArray,
    pub(super) l1d: TagArray,
    /// For each slot of L1D, a bit per valid sub-block. Empty if misses fill whole lines.
    pub(super) valid_sub_blocks: Vec<u64>,
    /// For each slot of L1D, the parts of the granule that were written, for the classifier. Empty unless misses of
    /// several cores are classified.
    pub(super) written: Vec<u64>,
    pub(super) combining: CombiningBuffers,
    pub(super) strides: StridePrefetcher,
    pub(super) streams: StreamPrefetcher,
    pub(super) tlbs: Tlbs,
    /// The page of the last data access. Another access to the page needs no TLB lookup, because the page is already
    /// the most recently used one.
    pub(super) last_data_page: ThreadPage,
}

/// The core of a processor, and the processor's number among the threads of the core.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreThread {
    pub(super) core: usize,
    pub(super) thread: u64,
}

/// A cache level below L1: L2 or L3.
#[derive(Clone, Debug)]
pub(super) struct OuterLevel {
    /// A single shared cache, or a cache for each core.
    pub(super) caches: Vec<TagArray>,
    pub(super) line_shift: u32,
    pub(super) inclusion: Inclusion,
    pub(super) is_shared: bool,
    pub(super) prefetch: Prefetch,
    pub(super) prefetch_distance: u64,
    pub(super) code_prefetch_distance: u64,
}

impl OuterLevel {
    /// The number of the cache that a core uses.
    pub(super) fn number_for(&self, core: usize) -> usize {
        if self.is_shared { 0 } else { core }
    }

    /// The cache that a core uses.
    pub(super) fn cache_for(&mut self, core: usize) -> &mut TagArray {
        let number = self.number_for(core);
        &mut self.caches[number]
    }
}

/// A processor: a hardware thread of a core.
#[derive(Clone, Debug, Default)]
pub(super) struct Cpu {
    pub(super) core: usize,
    pub(super) thread: u64,
    pub(super) counts: CpuCounts,
    /// The page and line of the last fetch. `None`: the next fetch is counted in any case.
    pub(super) last_fetch: Option<(u64, LineAddress)>,
    /// The current address space: its PCID.
    pub(super) space: u16,
    /// The pages that stay over a write of cr3.
    pub(super) global_pages: GlobalPages,
    /// Identifies the page tables in use: a hash of their address.
    pub(super) page_tables: u64,
    /// See [`MemorySystem::latency_cycles`](super::MemorySystem::latency_cycles).
    pub(super) latency_cycles: u64,
    /// The processor's prefetches into L1D, L1I and L2.
    pub(super) data_prefetches: PrefetchBuffers,
    pub(super) code_prefetches: PrefetchBuffers,
    pub(super) l2_prefetches: PrefetchBuffers,
}

/// The caches and TLBs of a machine, and what each access finds in them, in program order.
#[derive(Clone, Debug)]
pub(super) struct Tags {
    pub(super) config: Config,
    pub(super) cpus: Vec<Cpu>,
    pub(super) cores: Vec<Core>,
    pub(super) outer: Vec<OuterLevel>,
    /// `None` with a single core: there is nothing to keep coherent.
    pub(super) directory: Option<Directory>,
    pub(super) dma: DmaCounts,
    pub(super) classifier: Classifier,
    /// Whether a store that hits must do more than mark its line dirty: write through, check its sub-block, or note the
    /// written parts for the classifier.
    pub(super) slow_stores: bool,
    /// Whether hits of L1D may take the fast path [`Tags::hits_at_once`]: see [`Tags::can_hit_at_once`].
    pub(super) may_hit_at_once: bool,
    /// The virtual page of the local APIC; `u64::MAX` until it is known.
    pub(super) local_device_page: u64,
    /// The steps of the last access.
    pub(super) outcome: Outcome,
}

impl Tags {
    pub(super) fn new(model: &SystemModel, config: &Config, cpus: u32) -> Tags {
        let threads = model.threads_per_core.min(cpus);
        let cores = cpus.div_ceil(threads) as usize;
        let cpu = |cpu: u32| Cpu {
            core: (cpu / threads) as usize,
            thread: u64::from(cpu % threads),
            data_prefetches: PrefetchBuffers::new(model.l1d.prefetch_buffers),
            code_prefetches: PrefetchBuffers::new(model.l1i.prefetch_buffers),
            l2_prefetches: PrefetchBuffers::new(
                model.outer().next().map_or(0, |l2| l2.prefetch_buffers),
            ),
            ..Cpu::default()
        };
        let mut tags = Tags {
            cpus: (0..cpus).map(cpu).collect(),
            cores: (0..cores).map(|_| new_core(model, config)).collect(),
            outer: model.outer().map(|level| new_level(level, cores)).collect(),
            directory: (cores > 1).then(Directory::default),
            dma: DmaCounts::default(),
            local_device_page: u64::MAX,
            classifier: Classifier::default(),
            slow_stores: config.writes_through || model.l1d.fill_bytes() != model.l1d.line_bytes,
            may_hit_at_once: false,
            outcome: Outcome::default(),
            config: config.clone(),
        };
        tags.may_hit_at_once = tags.can_hit_at_once();
        tags
    }

    /// Classifies misses from now on, and forgets earlier classifications. Shadow caches start with the lines that the
    /// caches hold: else every line from before would count as a capacity miss when it is missed.
    pub(super) fn classify_misses(&mut self, config: ClassifierConfig) {
        let lines = [
            self.cores.iter().map(|core| core.l1i.capacity()).collect(),
            self.cores.iter().map(|core| core.l1d.capacity()).collect(),
            self.lines_of_level(0),
            self.lines_of_level(1),
        ];
        let has_several_cores = self.cores.len() > 1;
        for core in &mut self.cores {
            core.written = vec![0; if has_several_cores { core.l1d.capacity() } else { 0 }];
        }
        self.slow_stores |= has_several_cores;
        self.classifier = Classifier::new(config, lines, self.cpus.len());
        if config.shadow_caches {
            self.fill_shadow_caches();
        }
        self.may_hit_at_once = self.can_hit_at_once();
    }

    /// Fills the shadow cache of each cache with the cache's lines, in the order of their use.
    fn fill_shadow_caches(&mut self) {
        let Tags { cores, outer, classifier, .. } = self;
        let mut fill = |name: CacheName, number: usize, cache: &TagArray| {
            classifier.fill_shadow(CacheId { name, number }, &cache.lines_by_use());
        };
        for (number, core) in cores.iter().enumerate() {
            fill(CacheName::L1i, number, &core.l1i);
            fill(CacheName::L1d, number, &core.l1d);
        }
        for (level, caches) in outer.iter().map(|level| &level.caches).enumerate() {
            for (number, cache) in caches.iter().enumerate() {
                fill(CacheName::outer(level), number, cache);
            }
        }
    }

    /// The core and the thread of each processor.
    pub(super) fn core_threads(&self) -> Vec<CoreThread> {
        let core_thread = |cpu: &Cpu| CoreThread { core: cpu.core, thread: cpu.thread };
        self.cpus.iter().map(core_thread).collect()
    }

    /// The number of combining buffers of each core.
    pub(super) fn combining_buffer_count(&self) -> usize {
        self.cores[0].combining.len()
    }

    /// Whether the fast path of hits does everything that the slow path would do for this model.
    fn can_hit_at_once(&self) -> bool {
        !(self.slow_stores || self.config.is_l1d_virtual || self.classifier.is_on())
    }

    /// The number of lines of each cache of a level below L1. Empty if the level does not exist.
    fn lines_of_level(&self, level: usize) -> Vec<usize> {
        let caches = self.outer.get(level).map_or(&[][..], |level| &level.caches[..]);
        caches.iter().map(TagArray::capacity).collect()
    }

    /// Adds to the sum that [`MemorySystem::latency_cycles`](super::MemorySystem::latency_cycles) returns.
    #[inline]
    pub(super) fn add_latency(&mut self, cpu: usize, latency_cycles: u64) {
        self.cpus[cpu].latency_cycles += latency_cycles;
    }

    /// A processor's progress, the clock of its prefetch buffers: see [`prefetch::progress`].
    pub(super) fn progress(&self, cpu: usize) -> u64 {
        let Cpu { counts, latency_cycles, .. } = &self.cpus[cpu];
        let accesses = counts.basic.fetches + counts.basic.loads + counts.basic.stores;
        prefetch::progress(accesses, *latency_cycles)
    }

    pub(super) fn core_of(&self, cpu: usize) -> usize {
        self.cpus[cpu].core
    }

    /// The cache of a level below L1 that a core uses.
    pub(super) fn outer_id(&self, level: usize, core: usize) -> CacheId {
        CacheId { name: CacheName::outer(level), number: self.outer[level].number_for(core) }
    }

    #[inline(always)]
    pub(super) fn cache(&self, id: CacheId) -> &TagArray {
        match id.name {
            CacheName::L1i => &self.cores[id.number].l1i,
            CacheName::L1d => &self.cores[id.number].l1d,
            CacheName::L2 => &self.outer[0].caches[id.number],
            CacheName::L3 => &self.outer[1].caches[id.number],
        }
    }

    #[inline(always)]
    pub(super) fn cache_mut(&mut self, id: CacheId) -> &mut TagArray {
        match id.name {
            CacheName::L1i => &mut self.cores[id.number].l1i,
            CacheName::L1d => &mut self.cores[id.number].l1d,
            CacheName::L2 => &mut self.outer[0].caches[id.number],
            CacheName::L3 => &mut self.outer[1].caches[id.number],
        }
    }

    /// The logarithm of the line size of the caches with this name.
    #[inline(always)]
    pub(super) fn line_shift(&self, name: CacheName) -> u32 {
        match name {
            CacheName::L1i => self.config.l1i_shift,
            CacheName::L1d => self.config.l1d_shift,
            CacheName::L2 => self.outer[0].line_shift,
            CacheName::L3 => self.outer[1].line_shift,
        }
    }

    /// The caches of a core whose lines can be removed by physical address: L1D, L1I unless it is a trace cache, and
    /// the first `levels` levels below.
    pub(super) fn caches_of(
        &self,
        core: usize,
        levels: usize,
    ) -> impl DoubleEndedIterator<Item = CacheId> + use<> {
        let l1d = CacheId { name: CacheName::L1d, number: core };
        let l1i = (!self.config.is_l1i_trace_cache)
            .then_some(CacheId { name: CacheName::L1i, number: core });
        let [l2, l3] = [0, 1].map(|level| (level < levels).then(|| self.outer_id(level, core)));
        [Some(l1d), l1i, l2, l3].into_iter().flatten()
    }
}

fn new_core(model: &SystemModel, config: &Config) -> Core {
    let l1d = TagArray::indexed(&model.l1d.cache(), model.l1d.index);
    let has_sub_blocks = model.l1d.fill_bytes() != model.l1d.line_bytes;
    Core {
        l1i: TagArray::indexed(&model.l1i.cache(), model.l1i.index),
        valid_sub_blocks: vec![0; if has_sub_blocks { l1d.capacity() } else { 0 }],
        written: Vec::new(),
        l1d,
        combining: CombiningBuffers::new(
            // A core model limits its misses itself; the limit of L1D is then removed.
            model.core.as_ref().map_or(model.l1d.mshrs, |core| core.data.mshrs),
            1 << config.memory_line_shift,
        ),
        strides: StridePrefetcher::default(),
        streams: StreamPrefetcher::default(),
        tlbs: Tlbs::new(model),
        last_data_page: ThreadPage::NONE,
    }
}

fn new_level(level: &LevelModel, cores: usize) -> OuterLevel {
    let caches = if level.shared { 1 } else { cores };
    OuterLevel {
        caches: (0..caches).map(|_| TagArray::new(&level.cache())).collect(),
        line_shift: level.line_bytes.ilog2(),
        inclusion: level.inclusion,
        is_shared: level.shared,
        prefetch: level.prefetch,
        prefetch_distance: level.prefetch_distance.into(),
        code_prefetch_distance: level
            .code_prefetch_distance
            .unwrap_or(level.prefetch_distance)
            .into(),
    }
}
