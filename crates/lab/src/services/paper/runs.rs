//! Measurements of a workload on a machine, and the figures of the paper that follow from them.

use super::super::class::Class;
use super::super::counters::{CYCLES, DATA_STALL, FETCH_STALL, INSTRUCTIONS, PIPELINE_STALL};
use super::super::misses::{CLASSES, MissRow};
use super::super::sample::{ServiceStats, ServicesSample};
use super::published::Here;

/// What a machine is measured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The machine itself.
    Machine,
    /// The in-order core of the first machine with the caches and the memory of this model (Figure 4.5).
    InOrder,
    /// The first machine, or the multiprocessor, with caches of these sizes: L1I and L1D each, and L2
    /// (Figures 4.6, 4.7 and 5.3).
    Caches {
        /// Size of L1I, and of L1D.
        l1_bytes: u64,
        /// Size of L2.
        l2_bytes: u64,
    },
}

/// What a miss costs on a core that waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissCosts {
    /// Cycles of a miss of L1 that hits L2.
    pub l2_hit_cycles: u64,
    /// Cycles of a miss that memory supplies.
    pub memory_cycles: u64,
    /// Cycles of a miss that another core's cache supplies.
    pub transfer_cycles: u64,
    /// Cycles of a store for which others invalidate the line.
    pub upgrade_cycles: u64,
    /// Whether the core waits for each miss, and for nothing else.
    pub is_blocking: bool,
}

/// Misses of a cache by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifiedMisses {
    /// The cache: L1I, L1D, L2.
    pub cache: String,
    /// Whether user mode missed, or the kernel.
    pub is_user: bool,
    /// Why: cold, self, other, true sharing, false sharing, device, untracked.
    pub class: String,
    pub count: u64,
}

/// A workload on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineRun {
    pub workload: String,
    pub model: String,
    pub cpus: u32,
    /// What it was measured for.
    pub role: Role,
    pub costs: MissCosts,
    /// What its kernel did, page walks in the services whose accesses caused them.
    pub sample: ServicesSample,
    /// The rows of page walks, which stand for the paper's refills of the TLB by software; empty where the model
    /// does not count them.
    pub page_walks: Vec<ServiceStats>,
    /// Misses by class, if they were classified.
    pub misses: Vec<ClassifiedMisses>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    User,
    Kernel,
    Idle,
}

impl Mode {
    pub(super) const ALL: [Mode; 3] = [Mode::User, Mode::Kernel, Mode::Idle];

    pub(super) fn word(self) -> &'static str {
        match self {
            Mode::User => "user",
            Mode::Kernel => "kernel",
            Mode::Idle => "idle",
        }
    }

    pub(super) fn holds(self, service: &ServiceStats) -> bool {
        match self {
            Mode::User => service.class == Class::User,
            Mode::Kernel => service.class.is_kernel(),
            Mode::Idle => service.class == Class::Idle,
        }
    }
}

/// Where instructions and data wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Instructions,
    Data,
}

impl Stream {
    pub(super) const ALL: [Stream; 2] = [Stream::Instructions, Stream::Data];

    pub(super) fn word(self) -> &'static str {
        match self {
            Stream::Instructions => "instructions",
            Stream::Data => "data",
        }
    }

    pub(super) fn stall(self) -> &'static str {
        match self {
            Stream::Instructions => FETCH_STALL,
            Stream::Data => DATA_STALL,
        }
    }

    /// The counters of its misses of L1 and of L2.
    fn misses(self) -> (&'static [&'static str], &'static str) {
        match self {
            Stream::Instructions => (&["l1i_misses"], "l2_fetch_misses"),
            Stream::Data => (&["l1d_load_misses", "l1d_store_misses"], "l2_data_misses"),
        }
    }
}

/// Stall cycles by the level that supplied the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StallLevels {
    /// Cycles of misses of L1 that hit L2.
    pub(super) l1: u64,
    /// Cycles of misses of L2.
    pub(super) l2: u64,
    /// Cycles of page walks and devices.
    pub(super) other: u64,
}

/// Parts of the time of a service or a mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Parts {
    /// Neither waiting nor lost in the pipeline.
    pub(super) execution: u64,
    pub(super) fetch: u64,
    pub(super) data: u64,
    /// 0 of an in-order core that has none.
    pub(super) pipeline: u64,
}

impl MachineRun {
    /// Instructions that all CPUs executed.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        self.sum(INSTRUCTIONS, |_| true).unwrap_or(0)
    }

    /// The sum of a counter; absent if it is not counted.
    pub(super) fn sum(&self, name: &str, of: impl Fn(&ServiceStats) -> bool) -> Option<u64> {
        self.sample.sum(name, of)
    }

    pub(super) fn mode_sum(&self, name: &str, mode: Mode) -> Option<u64> {
        self.sum(name, |service| mode.holds(service))
    }

    /// Time of a mode, in cycles of all CPUs.
    pub(super) fn ticks(&self, mode: Mode) -> u64 {
        self.sample.ticks(|service| mode.holds(service)).unwrap_or(0)
    }

    /// Time that is not idle, in cycles of all CPUs.
    pub(super) fn busy_ticks(&self) -> u64 {
        self.ticks(Mode::User) + self.ticks(Mode::Kernel)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.sample.window_ns as f64 / 1e9
    }

    /// Idle time as a share of all; absent of an empty window.
    pub(super) fn idle_ratio(&self) -> Option<f64> {
        ratio(self.ticks(Mode::Idle) as f64, self.sample.window_ticks as f64)
    }

    /// The kernel's part of the time that is not idle.
    pub(super) fn kernel_ratio(&self) -> Option<f64> {
        ratio(self.ticks(Mode::Kernel) as f64, self.busy_ticks() as f64)
    }

    /// Seconds of some cycles for each instruction that user mode executes: the time of the same work.
    pub(super) fn seconds_per_user_instruction(&self, ticks: u64) -> Option<f64> {
        let instructions = self.mode_sum(INSTRUCTIONS, Mode::User)?;
        ratio(self.sample.ns_of(ticks as f64) / 1e9, instructions as f64)
    }

    /// What the time was spent on that a mode executed, without the time for which CPUs are halted.
    pub(super) fn parts(&self, of: impl Fn(&ServiceStats) -> bool) -> Option<Parts> {
        let sum = |name| self.sum(name, &of);
        let (cycles, fetch, data) = (sum(CYCLES)?, sum(FETCH_STALL)?, sum(DATA_STALL)?);
        let pipeline = sum(PIPELINE_STALL).unwrap_or(0);
        let execution = cycles.checked_sub(fetch + data + pipeline)?;
        Some(Parts { execution, fetch, data, pipeline })
    }

    /// The share of the memory's stalls in the time of a mode.
    pub(super) fn stall_ratio(&self, mode: Mode) -> Option<f64> {
        let parts = self.parts(|service| mode.holds(service))?;
        ratio((parts.fetch + parts.data) as f64, self.ticks(mode) as f64)
    }

    /// Stall cycles of a stream by level, where the core waits for each miss: only then is a cycle the wait for
    /// one miss.
    pub(super) fn stall_levels(&self, stream: Stream, mode: Mode) -> Option<StallLevels> {
        if !self.costs.is_blocking {
            return None;
        }
        let (of_l1, of_l2) = stream.misses();
        let l1: u64 = of_l1.iter().map(|name| self.mode_sum(name, mode)).sum::<Option<u64>>()?;
        let l2 = self.mode_sum(of_l2, mode)?;
        let stall = self.mode_sum(stream.stall(), mode)?;
        let l2_cycles = l2 * self.costs.memory_cycles;
        let l1_cycles = l1.checked_sub(l2)? * self.costs.l2_hit_cycles;
        let other = stall.checked_sub(l1_cycles + l2_cycles)?;
        Some(StallLevels { l1: l1_cycles, l2: l2_cycles, other })
    }

    /// The services that stand for one of the paper, joined.
    pub(super) fn joined(&self, here: &Here<'_>) -> Option<Joined<'_>> {
        let services: Vec<&ServiceStats> = self
            .sample
            .services
            .iter()
            .chain(&self.page_walks)
            .filter(|service| here.holds(service))
            .collect();
        (!services.is_empty()).then_some(Joined { run: self, services })
    }

    /// Misses of a cache of classes by services; absent where they were not classified by service.
    pub(super) fn misses_by_service(
        &self,
        cache: &str,
        classes: &[&str],
        of: impl Fn(&MissRow) -> bool,
    ) -> Option<u64> {
        let rows = self.sample.misses.as_ref()?.rows.iter();
        let count = |row: &MissRow| -> u64 {
            let counts = CLASSES.iter().zip(row.classes);
            counts.filter(|(class, _)| classes.contains(class)).map(|(_, count)| count).sum()
        };
        Some(rows.filter(|row| row.cache == cache && of(row)).map(count).sum())
    }

    /// The number of locks that a service takes, and how long it waits for those that spin; absent where
    /// locks were not followed.
    fn locks_of(&self, service: &ServiceStats) -> Option<(u64, u64)> {
        let locks = self.sample.locks.as_ref()?.iter();
        let own = locks.filter(|one| (one.class, &one.service) == (service.class, &service.name));
        Some(own.fold((0, 0), |(acquires, waited), one| {
            let spun = if one.spins { one.waited_ticks } else { 0 };
            (acquires + one.acquires, waited + spun)
        }))
    }

    /// Misses of a cache in a mode, of classes.
    pub(super) fn misses_of(&self, cache: &str, is_user: bool, classes: &[&str]) -> u64 {
        let all = self.misses.iter().filter(|one| one.cache == cache && one.is_user == is_user);
        all.filter(|one| classes.contains(&one.class.as_str())).map(|one| one.count).sum()
    }
}

/// Services that stand together for one of the paper.
pub(super) struct Joined<'a> {
    run: &'a MachineRun,
    services: Vec<&'a ServiceStats>,
}

impl Joined<'_> {
    fn sum(&self, of: impl Fn(&ServiceStats) -> Option<u64>) -> Option<u64> {
        self.services.iter().map(|service| of(service)).sum()
    }

    /// The sum of a counter; absent of page walks where it is not their time.
    pub(super) fn count(&self, name: &str) -> Option<u64> {
        let is_time = [CYCLES, FETCH_STALL, DATA_STALL].contains(&name);
        let is_known = is_time || !self.is_page_walk();
        self.sum(|service| self.run.sample.count(service, name).filter(|_| is_known))
    }

    pub(super) fn ticks(&self) -> Option<u64> {
        self.sum(|service| service.self_ticks)
    }

    /// Its share of the kernel's time; that of page walks for user mode is of both together, as the paper's kernel
    /// refills the TLB itself.
    pub(super) fn kernel_ratio(&self) -> Option<f64> {
        let ticks = self.ticks()?;
        let more = if self.is_page_walk() { ticks } else { 0 };
        ratio(ticks as f64, (self.run.ticks(Mode::Kernel) + more) as f64)
    }

    /// How often it takes a lock, sum.
    pub(super) fn lock_acquires(&self) -> Option<u64> {
        self.sum(|service| Some(self.run.locks_of(service)?.0))
    }

    /// How long it waits for locks that spin, in cycles, sum; no part of [`Joined::ticks`].
    pub(super) fn spin_ticks(&self) -> Option<u64> {
        self.sum(|service| Some(self.run.locks_of(service)?.1))
    }

    pub(super) fn requests(&self) -> Option<u64> {
        self.sum(|service| service.requests)
    }

    pub(super) fn rate_hz(&self) -> Option<f64> {
        ratio(self.requests()? as f64, self.run.seconds())
    }

    /// Mean of a sum over the completed requests, ns.
    fn mean_ns(&self, of: impl Fn(&ServiceStats) -> Option<u64>) -> Option<f64> {
        let count = self.sum(|service| Some(service.times.as_ref()?.latency.count))?;
        let ticks = self.sum(of)?;
        ratio(self.run.sample.ns_of(ticks as f64), count as f64)
    }

    /// Whether the hardware does it, which has no requests that start and end.
    fn is_page_walk(&self) -> bool {
        self.services.iter().all(|service| service.class == Class::PageWalk)
    }

    /// Mean time of a page walk, ns: nothing interrupts it. Absent of other services.
    fn walk_ns(&self) -> Option<f64> {
        let ticks = self.ticks().filter(|_| self.is_page_walk())?;
        ratio(self.run.sample.ns_of(ticks as f64), self.requests()? as f64)
    }

    pub(super) fn computation_ns(&self) -> Option<f64> {
        self.walk_ns().or_else(|| self.mean_ns(|service| service.times.as_ref()?.computation_ticks))
    }

    pub(super) fn latency_ns(&self) -> Option<f64> {
        self.walk_ns().or_else(|| self.mean_ns(|service| Some(service.times.as_ref()?.latency.sum)))
    }

    /// Misses of a cache of some classes; absent where they were not classified, and of page walks.
    pub(super) fn misses(&self, cache: &str, classes: &[&str]) -> Option<u64> {
        if self.is_page_walk() {
            return None;
        }
        let is_of = |row: &MissRow| {
            let key = (row.service.class, row.service.name.as_str());
            self.services.iter().any(|one| (one.class, one.name.as_str()) == key)
        };
        self.run.misses_by_service(cache, classes, is_of)
    }

    pub(super) fn blocked_ns(&self) -> Option<f64> {
        self.mean_ns(|service| service.times.as_ref()?.blocked_ticks)
    }

    pub(super) fn descheduled_ns(&self) -> Option<f64> {
        self.mean_ns(|service| service.times.as_ref()?.descheduled_ticks)
    }

    /// A counter per instruction.
    pub(super) fn per_instruction(&self, name: &str) -> Option<f64> {
        ratio(self.count(name)? as f64, self.count(INSTRUCTIONS)? as f64)
    }

    /// A counter, times the cycles of each, as a share of the service's time.
    pub(super) fn time_ratio(&self, name: &str, cycles: u64) -> Option<f64> {
        ratio((self.count(name)? * cycles) as f64, self.ticks()? as f64)
    }
}

/// A quotient; absent where nothing is the divisor.
pub(super) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
