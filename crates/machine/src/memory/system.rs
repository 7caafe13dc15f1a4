//! A machine's memory side: what it is made of, and the way in.

use super::coherence::Directory;
use super::counts::CpuCounts;
use super::devices::DmaCounts;
use super::flight::{Bus, Flights};
use super::miss::Watcher;
use super::prefetch::Strides;
use super::store::Store;
use super::translate::Tlbs;
use crate::hierarchy::AccessKind;
use crate::schema::{
    Dma, Inclusion, Index, Latencies, LevelModel, Prefetch, Protocol, SystemModel, WritePolicy,
};

/// Size of the page of the guest that an access lies in.
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

/// A fetch, load or store. It lies in one page of 4 KiB; it may cross lines.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The processor, from 0.
    pub cpu: usize,
    /// What it is.
    pub kind: AccessKind,
    /// Its virtual address.
    pub virtual_address: u64,
    /// Its physical address: any below 2^52.
    pub physical: u64,
    /// Length, bytes, at least 1.
    pub bytes: u32,
    /// Address of the instruction, for prefetchers, and for who asks where misses are.
    pub pc: u64,
    /// The page that it lies in.
    pub page: PageSize,
    /// When it sets out, in cycles of the processor.
    pub now_cycles: u64,
}

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupplyingLevel {
    /// The first cache, or the line of the last fetch.
    L1,
    /// The second level.
    L2,
    /// The third.
    L3,
    /// A cache of another core.
    OtherCore,
    /// Memory, or a device.
    Memory,
}

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// When it is done, beyond what an L1 hit takes: `now_cycles` of a hit. Stores that miss are done
    /// when their line is there; that a processor may go on before is its affair.
    pub ready_cycles: u64,
    /// Who had it.
    pub supplier: SupplyingLevel,
}

/// A core: what its threads share and others don't.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub(super) l1i: Store,
    pub(super) l1d: Store,
    /// Parts of each line of L1D that are in; empty if lines come whole.
    pub(super) parts: Vec<u64>,
    /// Bytes of each line of L1D that were written here; empty if nobody asks.
    pub(super) written: Vec<u64>,
    pub(super) flights: Flights,
    pub(super) strides: Strides,
    pub(super) tlbs: Tlbs,
    /// Thread and page of the last data access; see [`MemorySystem::page_of_data`].
    pub(super) last_page: u64,
}

/// A level below L1.
#[derive(Clone, Debug)]
pub(super) struct Outer {
    /// One, or one for each core.
    pub(super) stores: Vec<Store>,
    pub(super) shift: u32,
    pub(super) inclusion: Inclusion,
    pub(super) shared: bool,
    pub(super) prefetch: Prefetch,
    pub(super) hit_cycles: u64,
}

impl Outer {
    /// The cache that a core uses, and which it is of those of this level.
    pub(super) fn at(&self, core: usize) -> usize {
        if self.shared { 0 } else { core }
    }

    pub(super) fn of(&mut self, core: usize) -> &mut Store {
        let at = self.at(core);
        &mut self.stores[at]
    }
}

/// A processor.
#[derive(Clone, Debug, Default)]
pub(super) struct Cpu {
    pub(super) core: usize,
    pub(super) thread: u64,
    pub(super) counts: CpuCounts,
    /// Page and line of the last fetch.
    pub(super) last_fetch: Option<(u64, u64)>,
    /// Which address space it is in.
    pub(super) space: u64,
    /// When its last line was asked for behind L1.
    pub(super) now_cycles: u64,
}

/// What never changes of a model, at hand.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) l1i_shift: u32,
    pub(super) l1d_shift: u32,
    pub(super) part_shift: u32,
    pub(super) l1i_virtual: bool,
    pub(super) l1d_virtual: bool,
    pub(super) l1i_prefetch: Prefetch,
    pub(super) l1d_prefetch: Prefetch,
    pub(super) trace: bool,
    pub(super) through: bool,
    pub(super) allocate: bool,
    pub(super) latencies: Latencies,
    pub(super) instruction_cycles: u64,
    pub(super) protocol: Protocol,
    pub(super) dma: Dma,
    /// Line in which cores agree.
    pub(super) unit_shift: u32,
    /// The first level that all cores share: how many are private below L1.
    pub(super) private_levels: usize,
}

/// The memory side of a machine.
#[derive(Clone, Debug)]
pub struct MemorySystem {
    pub(super) plan: Plan,
    pub(super) cpus: Vec<Cpu>,
    pub(super) cores: Vec<Core>,
    pub(super) outer: Vec<Outer>,
    /// Who has what, if there are several cores.
    pub(super) directory: Option<Directory>,
    pub(super) bus: Bus,
    pub(super) devices: DmaCounts,
    pub(super) watcher: Option<Box<Watcher>>,
    /// Whether hits of stores have more to do than to make a line dirty.
    pub(super) slow_stores: bool,
}

impl MemorySystem {
    /// Cold caches of the first `cpus` processors of a model, at least one and at most 64. It may be
    /// more than the model has: then there are more of the same cores.
    ///
    /// # Panics
    /// With no processor or more than 64.
    #[must_use]
    pub fn new(model: &SystemModel, cpus: u32) -> Self {
        assert!((1..=64).contains(&cpus), "{cpus} processors");
        let threads = model.threads_per_core.min(cpus);
        let cores = cpus.div_ceil(threads) as usize;
        let plan = plan(model);
        let outer =
            model.outer().zip([model.latencies.l2_hit_cycles, model.latencies.l3_hit_cycles]);
        let cpu = |cpu: u32| Cpu {
            core: (cpu / threads) as usize,
            thread: u64::from(cpu % threads),
            ..Cpu::default()
        };
        MemorySystem {
            cpus: (0..cpus).map(cpu).collect(),
            cores: (0..cores).map(|_| core(model)).collect(),
            outer: outer.map(|(level, wait)| outer_level(level, cores, wait)).collect(),
            directory: (cores > 1).then(Directory::default),
            bus: Bus::new(model.latencies.memory_line_cycles),
            devices: DmaCounts::default(),
            watcher: None,
            slow_stores: plan.through || model.l1d.sub_block_bytes != model.l1d.cache.line_bytes,
            plan,
        }
    }

    /// Serves an access.
    #[inline]
    pub fn access(&mut self, access: &Access) -> Response {
        match access.kind {
            AccessKind::Fetch => self.fetch(access),
            AccessKind::Load => self.data(access, false),
            AccessKind::Store => self.data(access, true),
        }
    }

    /// Serves an access of a processor that waits for it: it sets out at the processor's own cycle,
    /// whatever `now_cycles` says. Returns the wait, which is counted.
    #[inline]
    pub fn access_blocking(&mut self, access: &Access) -> u64 {
        let now_cycles = self.cpus[access.cpu].counts.basic.cycles;
        let answer = self.access(&Access { now_cycles, ..*access });
        self.waited(access, answer.ready_cycles - now_cycles)
    }

    /// As [`MemorySystem::wait`], of a device's register; see [`MemorySystem::device`].
    pub fn access_device_blocking(&mut self, access: &Access) -> u64 {
        let now_cycles = self.cpus[access.cpu].counts.basic.cycles;
        let answer = self.access_device(&Access { now_cycles, ..*access });
        self.waited(access, answer.ready_cycles - now_cycles)
    }

    #[inline]
    fn waited(&mut self, access: &Access, wait: u64) -> u64 {
        if wait > 0 {
            let counts = &mut self.cpus[access.cpu].counts.basic;
            counts.cycles += wait;
            match access.kind {
                AccessKind::Fetch => counts.fetch_stall_cycles += wait,
                AccessKind::Load | AccessKind::Store => counts.data_stall_cycles += wait,
            }
        }
        wait
    }

    /// Counts `number` instructions of a processor that waits for each access.
    #[inline]
    pub fn execute(&mut self, cpu: usize, number: u64) {
        let counts = &mut self.cpus[cpu].counts.basic;
        counts.instructions += number;
        counts.cycles += number * self.plan.instruction_cycles;
    }

    /// What was counted of a processor so far. Cycles and stalls are of [`MemorySystem::wait`] and
    /// [`MemorySystem::execute`].
    #[must_use]
    pub fn counts(&self, cpu: usize) -> CpuCounts {
        self.cpus[cpu].counts
    }

    /// Processors.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Latencies of the model.
    #[must_use]
    pub fn latencies(&self) -> &Latencies {
        &self.plan.latencies
    }

    pub(super) fn core_of(&self, cpu: usize) -> usize {
        self.cpus[cpu].core
    }
}

fn plan(model: &SystemModel) -> Plan {
    let shift = |level: &LevelModel| level.cache.line_bytes.ilog2();
    let private_levels = model.outer().take_while(|level| !level.shared).count();
    let private = model.outer().take(private_levels).map(shift);
    Plan {
        l1i_shift: shift(&model.l1i),
        l1d_shift: shift(&model.l1d),
        part_shift: model.l1d.sub_block_bytes.ilog2(),
        l1i_virtual: model.l1i.index == Index::Virtual,
        l1d_virtual: model.l1d.index == Index::Virtual,
        l1i_prefetch: model.l1i.prefetch,
        l1d_prefetch: model.l1d.prefetch,
        trace: model.l1i.trace,
        through: model.l1d.write == WritePolicy::Through,
        allocate: model.l1d.allocate,
        latencies: model.latencies,
        instruction_cycles: model.instruction_cycles,
        protocol: model.protocol,
        dma: model.dma,
        unit_shift: private.fold(shift(&model.l1i).max(shift(&model.l1d)), u32::max),
        private_levels,
    }
}

fn core(model: &SystemModel) -> Core {
    let l1d = Store::new(&model.l1d.cache, model.l1d.index);
    let in_parts = model.l1d.sub_block_bytes != model.l1d.cache.line_bytes;
    Core {
        l1i: Store::new(&model.l1i.cache, model.l1i.index),
        parts: vec![0; if in_parts { l1d.slots() } else { 0 }],
        written: Vec::new(),
        l1d,
        flights: Flights::new(model.l1d.mshrs),
        strides: Strides::default(),
        tlbs: Tlbs::new(model),
        last_page: u64::MAX,
    }
}

fn outer_level(level: &LevelModel, cores: usize, hit_cycles: u64) -> Outer {
    let caches = if level.shared { 1 } else { cores };
    Outer {
        stores: (0..caches).map(|_| Store::new(&level.cache, Index::Physical)).collect(),
        shift: level.cache.line_bytes.ilog2(),
        inclusion: level.inclusion,
        shared: level.shared,
        prefetch: level.prefetch,
        hit_cycles,
    }
}
