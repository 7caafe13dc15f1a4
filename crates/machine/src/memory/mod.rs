//! The memory side of a machine: caches, TLBs, coherence, memory bus.
//!
//! [`MemorySystem`] serves all processors of a machine. An [`Access`] goes in, and a [`Response`]
//! says when it is ready and which level supplied the line. The core decides whether it waits.
//! Caches hold line numbers, not data. The plugin calls it in QEMU's vCPU threads: at the level `ooo`
//! through a [`LinuxPort`] per core, for shadow caches directly.
//!
//! Invariant: *tags* say what an access finds, from the order of accesses alone; *times* say when it is ready, from
//! what it has found and when it starts. What an access finds never depends on times. Sums of waits are kept with the
//! tags' counts, but no lookup reads them. How one access travels through the modules:
//!
//! - `tags` has the caches and TLBs;
//! - `translation` looks the page up in the TLBs and walks the page tables;
//! - `filter` counts accesses that would change next to nothing, in front of `translation` and `l1`;
//! - `l1` looks the line up in L1, and turns a miss into a `FillRequest`;
//! - `fill` serves a `FillRequest`: it looks the line up level by level, asks the other cores or
//!   memory, fills the levels that missed, and answers with a `FillResponse`;
//! - `evict` removes lines: victims, write-backs, back-invalidations, DMA; `combining` has the buffers of
//!   non-temporal stores;
//! - `coherence` keeps the directory of the lines that each core holds, and invalidates and downgrades;
//! - `prefetch` predicts the lines of the next accesses, and limits how many prefetches are under way;
//! - `classification` says why lines miss. It observes, and has no influence on the rest;
//! - `outcome` holds the steps: the modules above write down here what the access has found;
//! - `times` reads the steps, and computes when the access is ready; `mshr` has the resources that accesses wait for.
//!
//! `port` and `linux_port` adapt the memory system to the [`Memory`](crate::core::Memory) of a core. `stack_distances`
//! needs no memory system.

mod classification;
mod coherence;
mod combining;
mod config;
mod evict;
mod fill;
mod filter;
mod global_pages;
mod l1;
mod linux_port;
mod mshr;
mod outcome;
mod port;
mod prefetch;
mod stack_distances;
mod tags;
mod times;
mod translation;

pub use classification::{
    CacheName, ClassCounts, ClassifierConfig, Context, LocationCount, LocationCounts, Miss,
    MissClass, Mode,
};
pub use evict::DmaCounts;
pub(crate) use evict::TRANSFER_BYTES_MAX;
pub use global_pages::GlobalPages;
pub use linux_port::LinuxPort;
pub use port::MemoryPort;
pub use stack_distances::{SetStackDistances, StackDistances};
pub use translation::TlbFlush;

use std::ops::Range;

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
    /// The load of a locked instruction that stores to the same place: one request for the line
    /// and the right to write it.
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

/// A fetch, load or store. It lies in one page of 4 KiB, and may cross lines. The caller splits an
/// access that crosses pages.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The processor, from 0.
    pub cpu: usize,
    pub kind: AccessKind,
    pub virtual_address: VirtualAddress,
    /// The physical address, below 2^52.
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

/// The level that supplied a line. The order of the variants is the distance from the core, which `l1` compares.
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
    /// When the line is ready, without the latency of an L1 hit. A hit whose line and translation have arrived is ready
    /// at its `start`. A store that misses is ready when its line is filled; the processor may go on earlier.
    pub ready_at: Cycle,
    /// The level that supplied the line, or the farthest one if the access crosses lines.
    pub supplier: SupplyingLevel,
    /// Whether the line was already under way, for a prefetch or another access.
    pub under_way: bool,
    /// Part of the wait that the translation took. 0 for fetches and for accesses that cross lines.
    pub translation_cycles: u64,
}

/// Defines the counts from one list, so that fields, names and values agree. The names are public: they
/// reach records and tables.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counts of a processor. All are sums since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CpuCounts {
            /// The counts that a blocking machine has, too. `l2_writebacks` are the dirty lines that L2 evicted.
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
    /// Stores to lines of this core's caches that invalidated the line in other cores. Locked loads count as stores.
    /// Stores that miss the core's caches do not count; with a write-through first level, stores that miss L2.
    upgrades,
    /// Misses of fetches, loads and stores that another core's cache supplied. Page walks and prefetches do not count.
    cache_to_cache,
    /// Lines of this core's caches that stores of other cores invalidated.
    invalidated,
    /// Lines that left caches because an inclusive level below evicted them.
    back_invalidated,
    /// Lines that were prefetched.
    prefetches,
    /// Prefetched lines that an access used later.
    prefetches_used,
    /// Cycles that misses waited for an MSHR. This count and the other counts of wait cycles need accesses that get times.
    mshr_wait_cycles,
    /// Cycles that misses waited for the memory bus.
    bus_wait_cycles,
    /// Cycles that the fetches of a [`MemoryPort`] took beyond hits of L1, page walks included.
    fetch_wait_cycles,
    /// Cycles that the loads and stores of a [`MemoryPort`] took beyond hits of L1, page walks included.
    data_wait_cycles,
}

/// The memory side of a machine.
#[derive(Clone, Debug)]
pub struct MemorySystem {
    tags: Tags,
    times: Times,
    /// The parts of the wait of the last load or store that any [`MemoryPort`] timed. A hit without a wait
    /// leaves the value as it was.
    last_wait: WaitParts,
}

impl MemorySystem {
    /// Returns a memory system with cold caches for `cpus` processors of a model, 1 to 64. `cpus` may exceed the
    /// model's number of processors: the further cores are equal. [`SystemModel::check_cpus`] must accept them.
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

    /// Serves a fetch, load or store that starts at `access.start`.
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

    /// When the fetch that was looked up last is ready. `start`: its processor, and the cycle of its start.
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

    /// When the load or store that was looked up last is ready. `start`: its processor, and the cycle of its start.
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

    /// Serves an access of a blocking processor. The access starts at the processor's own cycle; `access.start` is
    /// ignored. The processor stalls until the access is ready. Returns and counts the stall, in cycles.
    #[inline]
    pub fn access_blocking(&mut self, access: &Access) -> u64 {
        let start = Cycle(self.tags.cpus[access.cpu].counts.basic.cycles);
        let response = self.access(&Access { start, ..*access });
        self.stall(access, response.ready_at - start)
    }

    /// Serves a load or store of a device, which bypasses the caches. A processor's accesses to devices come one after
    /// the other: they are neither reordered nor combined. A load waits for the round trip, and thus for all earlier
    /// device stores. A posted store waits only for its translation and for the processor's earlier device accesses.
    pub fn access_device(&mut self, access: &Access) -> Response {
        self.tags.look_up_device(access);
        let start = (access.cpu, access.start);
        let ready = self.data_ready(start, (access.virtual_address, access.physical));
        Response::new(ready, SupplyingLevel::Memory)
    }

    /// Tells the address at which the local APIC is mapped: accesses to its page have a latency of their own.
    pub fn set_local_device_page(&mut self, virtual_address: VirtualAddress) {
        self.tags.local_device_page = virtual_address.page();
    }

    /// Serves a device access of a blocking processor. The access starts at the processor's own cycle; `access.start` is
    /// ignored. Returns and counts the stall, in cycles.
    pub fn access_device_blocking(&mut self, access: &Access) -> u64 {
        let start = Cycle(self.tags.cpus[access.cpu].counts.basic.cycles);
        let response = self.access_device(&Access { start, ..*access });
        self.stall(access, response.ready_at - start)
    }

    /// Counts a stall of a blocking processor, and advances the processor's cycle. Returns the stall.
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

    /// Sum of the latencies of a processor's accesses, as if they waited one after the other. Included are
    /// suppliers of lines and page table entries, the second TLB, the start of walks, upgrades, devices, and the
    /// remaining time of prefetched lines. Prefetches, posted stores and write-through fills add nothing. Accesses
    /// that were only looked up count, too.
    #[must_use]
    pub fn latency_cycles(&self, cpu: usize) -> u64 {
        self.tags.cpus[cpu].latency_cycles
    }

    #[must_use]
    pub fn cpus(&self) -> usize {
        self.tags.cpus.len()
    }

    /// Whether the model has a second level of TLBs.
    #[must_use]
    pub fn has_second_tlb(&self) -> bool {
        self.tags.cores.iter().any(|core| core.tlbs.has_second())
    }

    /// How many levels of caches the model has below L1: 0 to 2.
    #[must_use]
    pub fn outer_caches(&self) -> usize {
        self.tags.outer.len()
    }

    /// Classifies misses from now on, and forgets earlier classifications.
    pub fn classify_misses(&mut self, config: ClassifierConfig) {
        self.tags.classify_misses(config);
    }

    /// Sets the context that a processor executes in from now on.
    pub fn set_context(&mut self, cpu: usize, context: Context) {
        self.tags.classifier.set_context(cpu, context);
    }

    /// The classes of misses, summed over all caches of a name.
    #[must_use]
    pub fn class_counts(&self, name: CacheName) -> ClassCounts {
        self.tags.classifier.class_counts(name)
    }

    /// Takes the single misses since the last call, and the number of misses that found no room.
    pub fn take_misses(&mut self) -> (Vec<Miss>, u64) {
        self.tags.classifier.take_misses()
    }

    /// A processor drops translations, as it does when its page tables change. The next fetch is counted, even if it
    /// is from the line of the last fetch.
    pub fn flush_tlbs(&mut self, cpu: usize, flush: TlbFlush) {
        self.tags.flush_tlbs(cpu, flush);
    }

    /// Sets the pages that a processor keeps over a write of cr3. If they change, the processor drops all translations.
    pub fn set_global_pages(&mut self, cpu: usize, pages: GlobalPages) {
        self.tags.set_global_pages(cpu, pages);
    }

    /// The pages that a processor keeps over a write of cr3.
    #[must_use]
    pub fn global_pages(&self, cpu: usize) -> GlobalPages {
        self.tags.cpus[cpu].global_pages
    }

    /// A processor switches to another address space. `space` is its PCID, at most 4,095, and 0 without PCIDs.
    /// `page_tables` identifies its page tables, such as cr3. Translations stay: see [`MemorySystem::flush_tlbs`].
    pub fn set_address_space(&mut self, cpu: usize, space: u16, page_tables: PhysicalAddress) {
        self.tags.set_address_space(cpu, space, page_tables);
    }

    /// Applies a device's write. Caches drop the lines, or keep them with the new content, as the model says. Dirty data in
    /// these lines is lost, because the device's content is newer. Bytes beyond the first GiB have no effect.
    pub fn dma_write(&mut self, physical: PhysicalAddress, bytes: u64) {
        self.tags.dma_write(physical, bytes);
    }

    /// Applies a device's read. Caches supply their dirty lines, and keep them. Bytes beyond the first GiB have no effect.
    pub fn dma_read(&mut self, physical: PhysicalAddress, bytes: u64) {
        self.tags.dma_read(physical, bytes);
    }

    /// The effects of DMA since the start.
    #[must_use]
    pub fn dma_counts(&self) -> DmaCounts {
        self.tags.dma
    }

    /// Makes the L1I caches drop lines of code that a processor has stored to. A trace cache drops the traces that start in
    /// these lines. It keeps traces that start elsewhere and run through the lines.
    pub fn code_written(&mut self, cpu: usize, physical: PhysicalAddress, bytes: u64) {
        self.tags.code_written(cpu, physical, bytes);
    }

    /// Flushes the line of an address from all caches (`clflush`). If `keeps_line`, the line is written back and the caches
    /// keep it (`clwb`). Returns the memory of the flushed line: a line of the machine's longest size.
    pub fn flush_line(
        &mut self,
        cpu: usize,
        physical: PhysicalAddress,
        keeps_line: bool,
    ) -> Range<PhysicalAddress> {
        if self.tags.flush_line(cpu, physical, keeps_line) {
            self.times.write_back(cpu);
        }
        self.tags.flushed_range(physical)
    }

    /// Whether the private caches of a core hold any line of the coherence granule that an address lies in.
    #[must_use]
    pub fn holds(&self, core: usize, physical: PhysicalAddress) -> bool {
        self.tags.holds(core, physical)
    }

    /// The caches with a dirty copy of an address's line: newer than memory. Each has its name and its number: the
    /// number of its core, or 0 for a shared level.
    #[must_use]
    pub fn dirty_copies(&self, physical: PhysicalAddress) -> Vec<(CacheName, usize)> {
        self.tags.dirty_copies(physical)
    }

    /// Checks the invariants, for tests. A core that may write a granule is the only core that holds it. The directory
    /// knows all granules that cores hold. Inclusive levels hold all lines of the levels above.
    ///
    /// The error describes the broken invariant.
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

/// Returns the model with L1 caches whose number of outstanding misses has no limit. For memory systems that a core
/// model uses: the core limits its misses itself, because it knows when each access starts. A second limit would
/// delay some misses twice.
#[must_use]
pub fn without_mshr_limit(model: &SystemModel) -> SystemModel {
    let mut model = model.clone();
    (model.l1d.mshrs, model.l1i.mshrs) = (UNLIMITED, UNLIMITED);
    model
}
