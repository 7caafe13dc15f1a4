//! The memory side of a machine: caches, TLBs, coherence, memory bus.
//!
//! [`MemorySystem`] serves all processors of a machine. An [`Access`] goes in, and a [`Response`]
//! says when it is ready and which level supplied the line. Whether the processor waits for that is
//! the processor's affair. Caches hold line numbers, not data.
//!
//! It has two halves. *Tags* say what an access finds, from the order of accesses alone; *times* say when it is ready,
//! from what it has found and from when it starts. What an access finds never depends on times: sums of waits are kept
//! with the tags' counts, but no lookup reads them. How one access travels through the modules:
//!
//! - `tags` has the caches and TLBs;
//! - `translation` looks the page up in the TLBs and walks the page tables;
//! - `l1` looks the line up in L1, and makes a `FillRequest` of a miss;
//! - `fill` serves a `FillRequest`: it looks the line up level by level, asks the other cores or
//!   memory, fills the levels that missed, and answers with a `FillResponse`;
//! - `evict` takes lines out: victims, write-backs, back-invalidations, DMA; `combining` has the buffers of
//!   non-temporal stores;
//! - `coherence` keeps the directory of the lines that each core holds, and invalidates and downgrades;
//! - `prefetch` predicts the lines of the next accesses, and limits how many prefetches are under way;
//! - `classification` says why lines miss. It observes, and has no influence on the rest;
//! - `outcome`: all of these write down what the access has found, step by step;
//! - `times` reads the steps, and computes when the access is ready; `mshr` has the resources that it waits for.
//!
//! `port` and `linux_port` adapt the memory system to what a core asks. `stack` has the stack distances, which need no
//! memory system.

mod classification;
mod coherence;
mod combining;
mod config;
mod evict;
mod fill;
mod l1;
mod linux_port;
mod mshr;
mod outcome;
mod port;
mod prefetch;
mod stack;
mod tags;
mod times;
mod translation;

pub use classification::{
    CacheName, ClassCounts, ClassifierConfig, Context, LocationCount, LocationCounts, Miss,
    MissClass, Mode,
};
pub use evict::DmaCounts;
pub(crate) use evict::TRANSFER_BYTES_MAX;
pub use linux_port::LinuxPort;
pub use port::MemoryPort;
pub use stack::{SetStackDistances, StackDistances};
pub use translation::TlbFlush;
pub(crate) use translation::is_global;

use config::Config;
use mshr::UNLIMITED;
use tags::Tags;
use times::{Ready, Times};

use crate::address::{PhysicalAddress, VirtualAddress};
use crate::core::WaitParts;
use crate::counts::{Counts, Instructions};
use crate::cycle::Cycle;
use crate::system_model::SystemModel;

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
    /// When the access starts.
    pub start: Cycle,
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
    /// When the line is ready, not counting the latency of an L1 hit. This is the `start` of a hit whose line and
    /// translation have arrived. A store that misses is ready when its line is filled; the processor may go on earlier.
    pub ready_at: Cycle,
    /// The level that supplied the line, or the farthest one if the access crosses lines.
    pub supplier: SupplyingLevel,
    /// Whether the line was under way before, by a prefetch or for another access.
    pub under_way: bool,
    /// Cycles of the wait that the translation took. 0 for fetches and for accesses that cross lines.
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
    /// Lines written to memory: dirty lines, and combining buffers of non-temporal stores.
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
    /// Cycles that misses waited for an MSHR. Accesses that were only looked up add nothing to this and to the next
    /// three.
    mshr_wait_cycles,
    /// Cycles that misses waited for the memory bus.
    bus_wait_cycles,
    /// Cycles that the fetches of a [`MemoryPort`] took beyond hits of L1, page walks included.
    fetch_wait_cycles,
    /// Cycles that its loads and stores took beyond hits of L1, likewise.
    data_wait_cycles,
}

/// The memory side of a machine.
#[derive(Clone, Debug)]
pub struct MemorySystem {
    tags: Tags,
    times: Times,
    /// The parts of the wait of the last load or store that any [`MemoryPort`] timed. A hit without a wait leaves the
    /// value as it was.
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
        let config = Config::new(model);
        let tags = Tags::new(model, &config, cpus);
        let times = Times::new(model, &config, &tags.core_threads(), tags.combining_buffer_count());
        MemorySystem { tags, times, last_wait: WaitParts::default() }
    }

    #[inline]
    pub fn access(&mut self, access: &Access) -> Response {
        let supplier = self.tags.look_up(access);
        let start = (access.cpu, access.start);
        let ready = match access.kind {
            AccessKind::Fetch => self.fetch_ready(start, access.physical),
            _ => self.data_ready(start, (access.virtual_address, access.physical)),
        };
        Response::new(ready, supplier)
    }

    /// When the fetch is ready that was looked up last. `start`: its processor, and its cycle there.
    #[inline]
    fn fetch_ready(&mut self, start: (usize, Cycle), physical: PhysicalAddress) -> Ready {
        let Tags { outcome, classifier, .. } = &mut self.tags;
        match outcome.steps() {
            [] => self.times.code_hit_ready(start, physical),
            steps => {
                let ready = self.times.ready(start, steps, classifier);
                Ready { translation_cycles: 0, ..ready }
            }
        }
    }

    /// When the load or store is ready that was looked up last. `start`: its processor, and its cycle there.
    #[inline]
    fn data_ready(
        &mut self,
        start: (usize, Cycle),
        addresses: (VirtualAddress, PhysicalAddress),
    ) -> Ready {
        let Tags { outcome, classifier, .. } = &mut self.tags;
        match outcome.steps() {
            [] => self.times.data_hit_ready(start, addresses),
            steps => self.times.ready(start, steps, classifier),
        }
    }

    /// Serves an access of a blocking processor: it starts at the processor's own cycle, whatever
    /// `start` says, and the processor stalls until it is ready. Returns and counts the stall.
    #[inline]
    pub fn access_blocking(&mut self, access: &Access) -> u64 {
        let start = Cycle(self.tags.cpus[access.cpu].counts.basic.cycles);
        let response = self.access(&Access { start, ..*access });
        self.stall(access, response.ready_at - start)
    }

    /// Serves a load or store of a device: it bypasses the caches. A processor's accesses to devices
    /// come one after the other: they are neither reordered nor combined. A load waits for the round
    /// trip, and so for all device stores before it. A store that the bus posts waits only for its translation and for
    /// the processor's earlier device accesses.
    pub fn access_device(&mut self, access: &Access) -> Response {
        self.tags.look_up_device(access);
        let start = (access.cpu, access.start);
        let ready = self.data_ready(start, (access.virtual_address, access.physical));
        Response::new(ready, SupplyingLevel::Memory)
    }

    /// The local APIC is mapped at this address.
    pub fn set_local_device_page(&mut self, virtual_address: VirtualAddress) {
        self.tags.local_device_page = virtual_address.page();
    }

    /// Serves a device access of a blocking processor, like [`MemorySystem::access_blocking`].
    pub fn access_device_blocking(&mut self, access: &Access) -> u64 {
        let start = Cycle(self.tags.cpus[access.cpu].counts.basic.cycles);
        let response = self.access_device(&Access { start, ..*access });
        self.stall(access, response.ready_at - start)
    }

    #[inline]
    fn stall(&mut self, access: &Access, stall_cycles: u64) -> u64 {
        if stall_cycles > 0 {
            let counts = &mut self.tags.cpus[access.cpu].counts.basic;
            counts.cycles += stall_cycles;
            match access.kind {
                AccessKind::Fetch => counts.fetch_stall_cycles += stall_cycles,
                _ => counts.data_stall_cycles += stall_cycles,
            }
        }
        stall_cycles
    }

    /// Counts instructions that a blocking processor has executed.
    #[inline]
    pub fn execute(&mut self, cpu: usize, instructions: Instructions) {
        let counts = &mut self.tags.cpus[cpu].counts.basic;
        counts.instructions += instructions.0;
        counts.cycles += instructions.0 * self.tags.config.instruction_cycles;
    }

    /// The counts of a processor so far. Cycles and stalls come from
    /// [`MemorySystem::access_blocking`] and [`MemorySystem::execute`].
    #[must_use]
    pub fn counts(&self, cpu: usize) -> CpuCounts {
        let mut counts = self.tags.cpus[cpu].counts;
        let time_counts = self.times.counts(cpu);
        counts.basic.fetch_walk_cycles = time_counts.fetch_walk_cycles;
        counts.basic.data_walk_cycles = time_counts.data_walk_cycles;
        counts.mshr_wait_cycles = time_counts.mshr_wait_cycles;
        counts.bus_wait_cycles = time_counts.bus_wait_cycles;
        counts
    }

    /// Sum of the latencies that a processor's accesses would wait for one after the other: suppliers of lines and page
    /// table entries, the second TLB, the start of walks, upgrades, devices, and the rest of prefetches under way.
    /// Prefetches, posted stores and write-through fills add nothing. Accesses that were only looked up count, too.
    #[must_use]
    pub fn latency_cycles(&self, cpu: usize) -> u64 {
        self.tags.cpus[cpu].latency_cycles
    }

    /// The number of processors.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.tags.cpus.len()
    }

    /// Classifies misses from now on, and forgets earlier classifications.
    pub fn classify_misses(&mut self, config: ClassifierConfig) {
        self.tags.classify_misses(config);
    }

    /// Sets the context that a processor executes in from now on.
    pub fn set_context(&mut self, cpu: usize, context: Context) {
        self.tags.classifier.set_context(cpu, context);
    }

    /// The classes of all misses in the caches of a name, of all cores.
    #[must_use]
    pub fn class_counts(&self, name: CacheName) -> ClassCounts {
        self.tags.classifier.class_counts(name)
    }

    /// The misses since the last call, and how many more there were than are kept.
    pub fn take_misses(&mut self) -> (Vec<Miss>, u64) {
        self.tags.classifier.take_misses()
    }

    /// A processor drops translations, as it does when its page tables change. The next fetch is counted whichever
    /// line it is from.
    pub fn flush_tlbs(&mut self, cpu: usize, flush: TlbFlush) {
        self.tags.flush_tlbs(cpu, flush);
    }

    /// A processor switches to another address space: `space` is its PCID, at most 4,095 and 0 without PCIDs, and
    /// `page_tables` is any number that names where its page tables lie, such as cr3. Translations stay: see
    /// [`MemorySystem::flush_tlbs`].
    pub fn set_address_space(&mut self, cpu: usize, space: u16, page_tables: PhysicalAddress) {
        self.tags.set_address_space(cpu, space, page_tables);
    }

    /// A device writes memory. Caches drop the lines, or keep them with the new content, as the model says.
    /// Dirty data in these lines is lost, because the device's content is newer. Only the first GiB is looked
    /// up.
    pub fn dma_write(&mut self, physical: PhysicalAddress, bytes: u64) {
        self.tags.dma_write(physical, bytes);
    }

    /// A device reads memory. Caches supply their dirty lines, and keep them. Only the first GiB is
    /// looked up.
    pub fn dma_read(&mut self, physical: PhysicalAddress, bytes: u64) {
        self.tags.dma_read(physical, bytes);
    }

    /// The effects of DMA since the start.
    #[must_use]
    pub fn dma_counts(&self) -> DmaCounts {
        self.tags.dma
    }

    /// A processor has stored to memory that instructions were fetched from: L1I caches drop the
    /// lines. A trace cache, whose lines are not named by what they hold, keeps them.
    pub fn code_written(&mut self, cpu: usize, physical: PhysicalAddress, bytes: u64) {
        self.tags.code_written(cpu, physical, bytes);
    }

    /// A processor flushes the line of an address from all caches, or writes it back and has caches
    /// keep it, if `keeps`.
    pub fn flush_line(&mut self, cpu: usize, physical: PhysicalAddress, keeps: bool) {
        if self.tags.flush_line(cpu, physical, keeps) {
            self.times.write_back(cpu);
        }
    }

    /// Whether the private caches of a core hold anything of the granule of an address.
    #[must_use]
    pub fn holds(&self, core: usize, physical: PhysicalAddress) -> bool {
        self.tags.holds(core, physical)
    }

    /// Where a line that holds an address is dirty: newer than in memory. Each cache by its name and
    /// its number, which is that of the core, or 0 for a shared level.
    #[must_use]
    pub fn dirty_copies(&self, physical: PhysicalAddress) -> Vec<(CacheName, usize)> {
        self.tags.dirty_copies(physical)
    }

    /// Checks the invariants: a core that may write a granule is the only one that holds it, the
    /// directory knows all granules that cores hold, and inclusive levels include.
    ///
    /// The error is the invariant that is broken, in words.
    pub fn verify(&self) -> Result<(), String> {
        self.tags.verify()
    }
}

impl Response {
    #[inline(always)]
    fn new(ready: Ready, supplier: SupplyingLevel) -> Response {
        let Ready { cycle, under_way, translation_cycles } = ready;
        Response { ready_at: cycle, supplier, under_way, translation_cycles }
    }
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
