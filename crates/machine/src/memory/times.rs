//! How long accesses wait: for lines and translations under way, MSHRs, page walkers, the paths between caches, and
//! the memory bus. [`Tags`](super::tags::Tags) looked up the access before, and wrote down its [steps](Step); here each
//! step moves the access's times. Cycles are in the common time of all processors.

use super::classification::Classifier;
use super::config::Config;
use super::mshr::{Arrivals, BUS_SLOTS, MemoryBus, MshrFile, PATH_SLOTS, Translations, Walkers};
use super::outcome::{FillEnd, FillStart, Step};
use super::tags::CoreThread;
use super::translation::ThreadPage;
use crate::address::{LineAddress, PhysicalAddress, VirtualAddress};
use crate::cycle::Cycle;
use crate::system_model::{LevelModel, SystemModel};

/// When an access is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) cycle: Cycle,
    /// Whether the line was already under way for another access.
    pub(super) under_way: bool,
    /// Part of the wait that the translation took. 0 for fetches and for accesses that cross lines.
    pub(super) translation_cycles: u64,
}

/// Sums of waits since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeCounts {
    pub(super) mshr_wait_cycles: u64,
    pub(super) bus_wait_cycles: u64,
    pub(super) fetch_walk_cycles: u64,
    pub(super) data_walk_cycles: u64,
}

/// Resources that only one processor waits for.
#[derive(Clone, Debug, Default)]
struct CpuTimes {
    core: usize,
    thread: u64,
    counts: TimeCounts,
    /// When the processor's next access to a device can start.
    device_free: Cycle,
    /// When the processor's last fill started. Write-backs reach the bus then.
    fill_start: Cycle,
}

/// Resources that the threads of a core share.
#[derive(Clone, Debug)]
struct CoreTimes {
    mshrs: MshrFile,
    /// When the translations of data pages that are under way arrive in the first TLB.
    translations: Translations,
    /// When the translations that are under way arrive in the second TLB.
    second_translations: Translations,
    walkers: Walkers,
    /// When the lines that are under way arrive in L1I.
    code_arrivals: Arrivals<LineAddress>,
    combining: Box<[CombiningTimes]>,
}

/// The times of a combining buffer.
#[derive(Clone, Copy, Debug, Default)]
struct CombiningTimes {
    /// The buffer serves its line from this cycle on.
    opened: Cycle,
    /// When memory has the buffer's last complete line.
    written: Cycle,
}

/// Resources of a level below L1.
#[derive(Clone, Debug)]
struct LevelTimes {
    is_shared: bool,
    hit_cycles: u64,
    /// For each cache, when the lines that are under way arrive.
    arrivals: Vec<Arrivals<LineAddress>>,
    /// For each cache, its path to the level above.
    paths_up: Vec<MemoryBus>,
}

/// A fill that has started, with its times.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    start: Cycle,
    ready: Cycle,
    /// Whether the supplying level was itself still waiting for the line.
    under_way: bool,
}

/// How deep fills nest. A fill may cause a prefetch into L2; that prefetch causes no further prefetch.
const NESTED_FILLS: usize = 2;

/// The times of an access while its steps are applied. An access that crosses lines has one current line at a time.
#[derive(Clone, Copy, Debug)]
struct LineTimes {
    /// When the access to the current line started.
    asked: Cycle,
    /// When the translation steps so far are done; in the end, when the current line is translated.
    translated: Cycle,
    /// When the current line, and all lines before it, are ready.
    ready: Cycle,
    under_way: bool,
    /// Whether the access has had only one line so far.
    is_one_line: bool,
    walk_start: Cycle,
    fills: [Fill; NESTED_FILLS],
    /// The number of fills under way.
    depth: usize,
}

impl LineTimes {
    fn new(now: Cycle) -> LineTimes {
        LineTimes {
            asked: now,
            translated: now,
            ready: now,
            under_way: false,
            is_one_line: true,
            walk_start: now,
            fills: [Fill::default(); NESTED_FILLS],
            depth: 0,
        }
    }

    /// The innermost fill under way. There is one between `Step::Fill` and `Step::Filled`.
    fn fill(&mut self) -> &mut Fill {
        debug_assert!((1..=NESTED_FILLS).contains(&self.depth));
        &mut self.fills[(self.depth - 1) % NESTED_FILLS]
    }

    /// The current line hits. It is ready at `ready`, which is later than the translation if the line is under way.
    fn hit(&mut self, ready: Cycle) {
        self.ready = ready;
        self.under_way |= ready > self.translated;
    }

    fn start_next_line(&mut self) {
        self.is_one_line = false;
        (self.asked, self.translated) = (self.ready, self.ready);
    }
}

/// All resources that the accesses of a machine wait for.
#[derive(Clone, Debug)]
pub(super) struct Times {
    config: Config,
    cpus: Vec<CpuTimes>,
    cores: Vec<CoreTimes>,
    levels: Vec<LevelTimes>,
    bus: MemoryBus,
}

impl Times {
    /// `core_threads`: the core and the thread of each processor. `combining_buffers`: their number per core.
    pub(super) fn new(
        model: &SystemModel,
        config: &Config,
        core_threads: &[CoreThread],
        combining_buffers: usize,
    ) -> Times {
        let cores = core_threads.iter().map(|cpu| cpu.core + 1).max().unwrap_or(0);
        let core = || CoreTimes {
            mshrs: MshrFile::new(model.l1d.mshrs),
            translations: Translations::new(),
            second_translations: Translations::new(),
            walkers: Walkers::new(model.walkers),
            code_arrivals: Arrivals::new(),
            combining: vec![CombiningTimes::default(); combining_buffers].into(),
        };
        let cpu_times = |cpu: &CoreThread| CpuTimes {
            core: cpu.core,
            thread: cpu.thread,
            ..CpuTimes::default()
        };
        let levels = model.outer().zip(&config.hit_cycles);
        Times {
            cpus: core_threads.iter().map(cpu_times).collect(),
            cores: (0..cores).map(|_| core()).collect(),
            levels: levels
                .map(|(level, hit_cycles)| new_level(level, cores, *hit_cycles))
                .collect(),
            bus: MemoryBus::new(model.memory_line_cycles, BUS_SLOTS),
            config: config.clone(),
        }
    }

    pub(super) fn counts(&self, cpu: usize) -> TimeCounts {
        self.cpus[cpu].counts
    }

    /// Whether a hit of a core's L1D at `now` certainly waits for nothing. `false` does not mean that it waits: the
    /// translation under way may be of another page.
    #[inline(always)]
    pub(super) fn has_arrived(&self, core: usize, physical: PhysicalAddress, now: Cycle) -> bool {
        let CoreTimes { mshrs, translations, .. } = &self.cores[core];
        now >= translations.all_arrived_at()
            && mshrs.is_filled(physical.line(self.config.l1d_shift), now)
    }

    /// When a common hit of L1D is ready: its page is translated and its line has arrived. The access starts on
    /// processor `cpu` at `now`.
    pub(super) fn data_hit_ready(
        &self,
        (cpu, now): (usize, Cycle),
        (virtual_address, physical): (VirtualAddress, PhysicalAddress),
    ) -> Ready {
        let CpuTimes { core, thread, .. } = self.cpus[cpu];
        let CoreTimes { mshrs, translations, .. } = &self.cores[core];
        let page = ThreadPage::new(virtual_address, thread);
        let translated = translations.ready_at(page, now);
        let cycle = mshrs.ready_at(physical.line(self.config.l1d_shift), translated);
        let under_way = cycle > translated;
        Ready { cycle, under_way, translation_cycles: translated - now }
    }

    /// When a common hit of L1I is ready: its line has arrived. The fetch starts on processor `cpu` at `now`.
    pub(super) fn code_hit_ready(
        &self,
        (cpu, now): (usize, Cycle),
        physical: PhysicalAddress,
    ) -> Ready {
        let line = self.config.code_line(physical);
        let arrivals = &self.cores[self.cpus[cpu].core].code_arrivals;
        let cycle = arrivals.ready_at(line, now);
        Ready { cycle, under_way: cycle > now, translation_cycles: 0 }
    }

    /// Reserves the bus for a line that a flush writes to memory, outside of any access. The transfer starts no earlier
    /// than the processor's last fill.
    pub(super) fn write_back(&mut self, cpu: usize) {
        self.bus.reserve(self.cpus[cpu].fill_start);
    }

    /// When an access with these steps is ready. It starts on processor `cpu` at `now`. Tells the classifier the waits
    /// of the access's misses.
    #[inline(never)]
    pub(super) fn ready(
        &mut self,
        (cpu, now): (usize, Cycle),
        steps: &[Step],
        classifier: &mut Classifier,
    ) -> Ready {
        let Times { config, cpus, cores, levels, bus } = self;
        let processor = &mut cpus[cpu];
        let core = &mut cores[processor.core];
        let mut access_times =
            AccessTimes { config, processor, core, levels, bus, line_times: LineTimes::new(now) };
        for step in steps {
            if let Step::Missed { first, end } = *step {
                let LineTimes { ready, translated, .. } = access_times.line_times;
                classifier.set_waits(first..end, ready.cycles_since(translated));
            } else {
                access_times.apply(*step);
            }
        }
        let LineTimes { asked, translated, ready, under_way, is_one_line, .. } =
            access_times.line_times;
        let translation_cycles = if is_one_line { translated - asked } else { 0 };
        Ready { cycle: ready, under_way, translation_cycles }
    }
}

/// The computation of an access's times.
struct AccessTimes<'t> {
    config: &'t Config,
    processor: &'t mut CpuTimes,
    core: &'t mut CoreTimes,
    levels: &'t mut [LevelTimes],
    bus: &'t mut MemoryBus,
    line_times: LineTimes,
}

impl AccessTimes<'_> {
    /// Applies the effect of a step on the access's times and on the resources.
    #[inline(always)]
    fn apply(&mut self, step: Step) {
        let AccessTimes { config, core, line_times, .. } = self;
        match step {
            Step::Missed { .. } => {}
            Step::NextLine => line_times.start_next_line(),
            Step::Page(page) => {
                line_times.translated = core.translations.ready_at(page, line_times.translated);
            }
            Step::SecondTlb => line_times.translated += config.stlb_hit_cycles,
            Step::SecondTlbHit(page) => {
                line_times.translated =
                    core.second_translations.ready_at(page, line_times.translated);
            }
            Step::StartWalk => {
                let earliest = line_times.translated + config.tlb_miss_cycles;
                line_times.walk_start =
                    if config.has_page_walks { core.walkers.free_at(earliest) } else { earliest };
                line_times.translated = line_times.walk_start;
            }
            Step::TableHit(line) => {
                let found = line_times.translated + config.l1_hit_cycles;
                line_times.translated = core.mshrs.ready_at(line, found);
            }
            Step::EndWalk { is_fetch } => self.end_walk(is_fetch),
            Step::IntoSecondTlb { page, held_shift } => {
                core.second_translations.note(page, held_shift, line_times.translated);
            }
            Step::Translated { page, held_shift } => {
                core.translations.note(page, held_shift, line_times.translated);
            }
            Step::Hit(line) => line_times.hit(core.mshrs.ready_at(line, line_times.translated)),
            Step::CodeHit(line) => {
                line_times.hit(core.code_arrivals.ready_at(line, line_times.translated))
            }
            Step::Posted => line_times.ready = line_times.translated,
            Step::Upgrade => line_times.ready += config.upgrade_cycles,
            Step::IntoL1d(line) => core.mshrs.allocate(line, line_times.ready),
            Step::WriteBack => {
                self.bus.reserve(self.processor.fill_start);
            }
            Step::Device { is_local, is_store } => self.access_device(is_local, is_store),
            Step::Combine(buffer) => {
                let opened = core.combining[usize::from(buffer)].opened;
                line_times.ready = line_times.ready.max(opened);
            }
            Step::OpenCombining { buffer, writes } => self.open_combining(buffer, writes),
            Step::CloseCombining(buffer) => {
                core.combining[usize::from(buffer)].written =
                    self.bus.reserve(line_times.ready) + config.memory_write_cycles;
            }
            Step::Fill(start) => self.start_fill(start),
            Step::FromLevel { level, line } => {
                let asked = line_times.fill().start;
                let (level, number) = self.level(level);
                let start = level.paths_up[number].reserve(asked);
                // A line that hits may be under way.
                let arrives = level.arrivals[number].ready_at(line, start);
                let hits = start + level.hit_cycles;
                let fill = self.line_times.fill();
                (fill.ready, fill.under_way) = (arrives.max(hits), arrives > hits);
            }
            Step::FromCore => {
                let fill = line_times.fill();
                fill.ready = fill.start + config.cache_to_cache_cycles;
            }
            Step::FromMemory { is_prefetch } => {
                let fill = line_times.fill();
                let start = self.bus.reserve(fill.start);
                if !is_prefetch {
                    self.processor.counts.bus_wait_cycles += start - fill.start;
                }
                fill.ready = start + config.memory_cycles;
            }
            Step::FillUpgrade => line_times.fill().ready += config.upgrade_cycles,
            Step::IntoLevel { level, line } => {
                let ready = line_times.fill().ready;
                let (level, number) = self.level(level);
                level.arrivals[number].note(line, ready);
            }
            Step::Filled(end) => self.end_fill(end),
        }
    }

    /// A level below L1, and the number of the cache of that level that the core uses.
    fn level(&mut self, level: u8) -> (&mut LevelTimes, usize) {
        let level = &mut self.levels[usize::from(level)];
        let number = if level.is_shared { 0 } else { self.processor.core };
        (level, number)
    }

    /// Occupies a page walker for the walk, and counts the cycles from the start of the access to the walk's end.
    fn end_walk(&mut self, is_fetch: bool) {
        let LineTimes { asked, translated, walk_start, .. } = self.line_times;
        if self.config.has_page_walks {
            self.core.walkers.walk(walk_start, translated);
        }
        let counts = &mut self.processor.counts;
        *(if is_fetch { &mut counts.fetch_walk_cycles } else { &mut counts.data_walk_cycles }) +=
            translated - asked;
    }

    /// Accesses of a processor to devices come one after the other.
    fn access_device(&mut self, is_local: bool, is_store: bool) {
        let config = self.config;
        let read_cycles =
            if is_local { config.local_device_cycles } else { config.device_read_cycles };
        let start = self.line_times.translated.max(self.processor.device_free);
        // The processor does not wait for the transfer of a posted write.
        let posted = if is_store { config.device_write_cycles } else { None };
        self.processor.device_free = start + posted.unwrap_or(read_cycles);
        self.line_times.ready = if posted.is_some() { start } else { start + read_cycles };
    }

    /// Waits until memory has the buffer's previous line, if that line was complete. An incomplete line (`writes`) is
    /// sent to memory now.
    fn open_combining(&mut self, buffer: u8, writes: bool) {
        let times = &mut self.core.combining[usize::from(buffer)];
        let free = if writes { Cycle::START } else { times.written };
        times.opened = self.line_times.ready.max(free);
        self.line_times.ready = times.opened;
        if writes {
            self.bus.reserve(self.line_times.ready);
        }
    }

    fn start_fill(&mut self, start: FillStart) {
        let line_times = &mut self.line_times;
        let start = match start {
            FillStart::Translated => line_times.translated,
            FillStart::FreeMshr => {
                let free = self.core.mshrs.free_at(line_times.translated);
                self.processor.counts.mshr_wait_cycles += free - line_times.translated;
                free
            }
            FillStart::Asked => line_times.asked,
            FillStart::TableMissed => line_times.translated + self.config.l1_hit_cycles,
            FillStart::WithOuter => line_times.fill().start,
        };
        self.processor.fill_start = start;
        line_times.depth += 1;
        *line_times.fill() = Fill { start, ready: start, under_way: false };
    }

    /// Ends the innermost fill: its line is ready for the access, the walk, or later accesses, as `end` says.
    fn end_fill(&mut self, end: FillEnd) {
        let AccessTimes { core, line_times, .. } = self;
        let Fill { ready, under_way, .. } = *line_times.fill();
        line_times.depth -= 1;
        match end {
            FillEnd::Access => {
                line_times.ready = ready;
                line_times.under_way |= under_way;
            }
            FillEnd::Code(line) => {
                line_times.ready = ready;
                line_times.under_way |= under_way;
                core.code_arrivals.note(line, ready);
            }
            FillEnd::Walk(line) => {
                core.mshrs.note_walk(line, ready);
                line_times.translated = ready;
            }
            FillEnd::DataPrefetch(line) => {
                core.mshrs.allocate_prefetch(line, line_times.translated, ready)
            }
            FillEnd::CodePrefetch(line) => core.code_arrivals.note(line, ready),
            FillEnd::Below => {}
        }
    }
}

fn new_level(level: &LevelModel, cores: usize, hit_cycles: u64) -> LevelTimes {
    let caches = if level.shared { 1 } else { cores };
    LevelTimes {
        is_shared: level.shared,
        hit_cycles,
        arrivals: (0..caches).map(|_| Arrivals::new()).collect(),
        paths_up: (0..caches).map(|_| MemoryBus::new(level.line_cycles, PATH_SLOTS)).collect(),
    }
}
