//! Measurements of a workload on a machine, and figures computed from them as the paper defines them. The tables and
//! the findings use these figures. A tick is a cycle of the machine's model.

use lab::services::counters::{CYCLES, DATA_STALL, FETCH_STALL, INSTRUCTIONS, PIPELINE_STALL};
use lab::services::misses::{CLASSES, MissRow};
use lab::services::{Class, ServiceStats, ServicesSample};

use super::published::MatchingServices;

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Measures one of the paper's machines.
    Machine,
    /// Measures the in-order core of the paper's first machine with the caches and
    /// the memory of another model (Figure 4.5).
    InOrder,
    /// Measures the first machine, or the multiprocessor, with other sizes of its caches (Figures 4.6, 4.7, 5.3).
    Caches {
        /// Size of L1I and of L1D, each.
        l1_bytes: u64,
        l2_bytes: u64,
    },
}

/// The cost of a miss on a core that waits for the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissCosts {
    /// Cycles of a miss of L1 that hits L2.
    pub l2_hit_cycles: u64,
    /// Cycles of a miss that memory supplies.
    pub memory_cycles: u64,
    /// Cycles of a miss that another core's cache supplies.
    pub transfer_cycles: u64,
    /// Cycles of a store that invalidates the line in other caches.
    pub upgrade_cycles: u64,
    /// Whether the core waits for each miss, and for nothing else.
    pub is_blocking: bool,
}

/// Misses of a cache by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifiedMisses {
    /// The cache: L1I, L1D, L2.
    pub cache: String,
    /// Whether user mode missed. If not, the kernel missed.
    pub is_user: bool,
    /// The cause: cold, self, other, true sharing, false sharing, device or untracked.
    pub class: String,
    pub count: u64,
}

/// A workload on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineRun {
    pub workload: String,
    pub model: String,
    pub cpus: u32,
    pub role: Role,
    pub costs: MissCosts,
    /// The measured services. The time of page walks is charged to the services whose accesses caused them.
    pub sample: ServicesSample,
    /// The rows of page walks. They correspond to the TLB refills by software in the paper. Empty if the model does
    /// not count page walks.
    pub page_walks: Vec<ServiceStats>,
    /// Misses by class. Empty if the misses were not classified.
    pub misses: Vec<ClassifiedMisses>,
}

/// The modes of a CPU that the paper distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    User,
    Kernel,
    Idle,
}

impl Mode {
    pub(super) fn label(self) -> &'static str {
        match self {
            Mode::User => "user",
            Mode::Kernel => "kernel",
            Mode::Idle => "idle",
        }
    }

    /// Whether the time of `service` is time in this mode. Page walks are in no mode.
    pub(super) fn includes(self, service: &ServiceStats) -> bool {
        match self {
            Mode::User => service.class == Class::User,
            Mode::Kernel => service.class.is_kernel(),
            Mode::Idle => service.class == Class::Idle,
        }
    }
}

/// The two streams of memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Instructions,
    Data,
}

impl Stream {
    pub(super) const ALL: [Stream; 2] = [Stream::Instructions, Stream::Data];

    pub(super) fn label(self) -> &'static str {
        match self {
            Stream::Instructions => "instructions",
            Stream::Data => "data",
        }
    }

    /// Name of the counter of the stream's stall cycles.
    pub(super) fn stall_counter(self) -> &'static str {
        match self {
            Stream::Instructions => FETCH_STALL,
            Stream::Data => DATA_STALL,
        }
    }

    /// Names of the counters of the stream's misses of L1 and of L2.
    fn miss_counters(self) -> (&'static [&'static str], &'static str) {
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

/// The time of services or of a mode, in parts, in cycles of all CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Parts {
    /// Cycles without waits for memory and losses in the pipeline.
    pub(super) execution: u64,
    /// Cycles that wait for instructions.
    pub(super) fetch: u64,
    /// Cycles that wait for data.
    pub(super) data: u64,
    /// Cycles lost in the pipeline. 0 on an in-order core that does not count them.
    pub(super) pipeline: u64,
}

impl MachineRun {
    /// Instructions that all CPUs executed.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        self.sum(INSTRUCTIONS, |_| true).unwrap_or(0)
    }

    /// The sum of a counter over the included services, or `None` if the model does not count it.
    pub(super) fn sum(
        &self,
        name: &str,
        is_included: impl Fn(&ServiceStats) -> bool,
    ) -> Option<u64> {
        self.sample.sum(name, is_included)
    }

    /// The sum of a counter over a mode, or `None` if the model does not count it.
    pub(super) fn mode_sum(&self, name: &str, mode: Mode) -> Option<u64> {
        self.sum(name, |service| mode.includes(service))
    }

    /// Time of a mode, in cycles of all CPUs.
    pub(super) fn ticks(&self, mode: Mode) -> u64 {
        self.sample.ticks(|service| mode.includes(service)).unwrap_or(0)
    }

    /// Time that is not idle, in cycles of all CPUs.
    pub(super) fn busy_ticks(&self) -> u64 {
        self.ticks(Mode::User) + self.ticks(Mode::Kernel)
    }

    /// Length of the window, seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.sample.window_ns as f64 / 1e9
    }

    /// Idle time as a share of the window, or `None` if the window is empty.
    pub(super) fn idle_ratio(&self) -> Option<f64> {
        ratio(self.ticks(Mode::Idle) as f64, self.sample.window_ticks as f64)
    }

    /// The kernel's share of the time that is not idle. `None` if no CPU was busy.
    pub(super) fn kernel_ratio(&self) -> Option<f64> {
        ratio(self.ticks(Mode::Kernel) as f64, self.busy_ticks() as f64)
    }

    /// `ticks` in seconds, per instruction of user mode. `None` if user mode executed no instructions. Machines can be compared
    /// by this number, because user mode does the same work on each machine.
    pub(super) fn seconds_per_user_instruction(&self, ticks: u64) -> Option<f64> {
        let instructions = self.mode_sum(INSTRUCTIONS, Mode::User)?;
        ratio(self.sample.ns_of(ticks as f64) / 1e9, instructions as f64)
    }

    /// The parts of the time of the included services, without the time that CPUs are halted.
    /// `None` if the model does not count stalls.
    pub(super) fn parts(&self, is_included: impl Fn(&ServiceStats) -> bool) -> Option<Parts> {
        let sum = |name| self.sum(name, &is_included);
        let (cycles, fetch, data) = (sum(CYCLES)?, sum(FETCH_STALL)?, sum(DATA_STALL)?);
        let pipeline = sum(PIPELINE_STALL).unwrap_or(0);
        let execution = cycles.checked_sub(fetch + data + pipeline)?;
        Some(Parts { execution, fetch, data, pipeline })
    }

    /// The share of memory stalls in the time of a mode, 0 to 1. `None` if the model does not count stalls.
    pub(super) fn stall_ratio(&self, mode: Mode) -> Option<f64> {
        let parts = self.parts(|service| mode.includes(service))?;
        ratio((parts.fetch + parts.data) as f64, self.ticks(mode) as f64)
    }

    /// Stall cycles of a stream by level. `None` unless the core waits for each miss: only then each stall cycle
    /// belongs to a single miss.
    pub(super) fn stall_levels(&self, stream: Stream, mode: Mode) -> Option<StallLevels> {
        if !self.costs.is_blocking {
            return None;
        }
        let (l1_counters, l2_counter) = stream.miss_counters();
        let l1: u64 =
            l1_counters.iter().map(|name| self.mode_sum(name, mode)).sum::<Option<u64>>()?;
        let l2 = self.mode_sum(l2_counter, mode)?;
        let stall = self.mode_sum(stream.stall_counter(), mode)?;
        let l2_cycles = l2 * self.costs.memory_cycles;
        let l1_cycles = l1.checked_sub(l2)? * self.costs.l2_hit_cycles;
        let other_cycles = stall.checked_sub(l1_cycles + l2_cycles)?;
        Some(StallLevels { l1: l1_cycles, l2: l2_cycles, other: other_cycles })
    }

    /// Joins the services that correspond to one service of the paper. `None` if the run measured no such service.
    pub(super) fn join_services(&self, matching: &MatchingServices<'_>) -> Option<Joined<'_>> {
        let services: Vec<&ServiceStats> = self
            .sample
            .services
            .iter()
            .chain(&self.page_walks)
            .filter(|service| matching.includes(service))
            .collect();
        (!services.is_empty()).then_some(Joined { run: self, services })
    }

    /// Joins all services of the kernel except those that correspond to the paper's `listed` services. `None` if there
    /// are none.
    pub(super) fn joined_others<'a>(
        &'a self,
        listed: &[MatchingServices<'_>],
    ) -> Option<Joined<'a>> {
        let is_other = |service: &&ServiceStats| {
            Mode::Kernel.includes(service) && !listed.iter().any(|row| row.includes(service))
        };
        let services: Vec<&ServiceStats> = self.sample.services.iter().filter(is_other).collect();
        (!services.is_empty()).then_some(Joined { run: self, services })
    }

    /// The sum of a cache's misses in `classes`, over the included rows. `None` if
    /// misses were not classified by service.
    pub(super) fn misses_by_service(
        &self,
        cache: &str,
        classes: &[&str],
        is_included: impl Fn(&MissRow) -> bool,
    ) -> Option<u64> {
        let rows = self.sample.misses.as_ref()?.rows.iter();
        let count = |row: &MissRow| -> u64 {
            let counts = CLASSES.iter().zip(row.classes);
            counts.filter(|(class, _)| classes.contains(class)).map(|(_, count)| count).sum()
        };
        Some(rows.filter(|row| row.cache == cache && is_included(row)).map(count).sum())
    }

    /// How many locks a service takes, and how many ticks it spins for locks. `None` if locks were not
    /// measured, or if only waits were seen.
    fn service_locks(&self, service: &ServiceStats) -> Option<(u64, u64)> {
        let locks = self.sample.locks.as_ref()?.iter();
        let mut service_locks =
            locks.filter(|lock| (lock.class, &lock.service) == (service.class, &service.name));
        service_locks.try_fold((0, 0), |(acquires, spin_ticks), lock| {
            let lock_spin_ticks = if lock.spins { lock.waited_ticks } else { 0 };
            Some((acquires + lock.acquires?, spin_ticks + lock_spin_ticks))
        })
    }

    /// The sum of a cache's misses in `classes`, by user mode or by the kernel. 0 if misses were not classified.
    pub(super) fn class_misses(&self, cache: &str, is_user: bool, classes: &[&str]) -> u64 {
        let rows = self.misses.iter().filter(|row| row.cache == cache && row.is_user == is_user);
        rows.filter(|row| classes.contains(&row.class.as_str())).map(|row| row.count).sum()
    }
}

/// Services that together correspond to one service of the paper.
pub(super) struct Joined<'a> {
    run: &'a MachineRun,
    services: Vec<&'a ServiceStats>,
}

impl Joined<'_> {
    /// The sum of `value` over the services, or `None` if a service has no value.
    fn sum(&self, value: impl Fn(&ServiceStats) -> Option<u64>) -> Option<u64> {
        self.services.iter().map(|service| value(service)).sum()
    }

    /// The sum of a counter. `None` if the model does not count it. For page walks, only the counters of their time are known.
    pub(super) fn count(&self, name: &str) -> Option<u64> {
        let is_time = [CYCLES, FETCH_STALL, DATA_STALL].contains(&name);
        if !is_time && self.is_page_walk() {
            return None;
        }
        self.sum(|service| self.run.sample.count(service, name))
    }

    /// Time of the services themselves, in cycles of all CPUs. `None` if the time of a service is unknown.
    pub(super) fn ticks(&self) -> Option<u64> {
        self.sum(|service| service.self_ticks)
    }

    /// The services' share of the kernel's time, 0 to 1. For page walks, the total is the kernel's time plus the walks,
    /// because the paper's kernel refills the TLB itself. `None` if the time is unknown.
    pub(super) fn kernel_ratio(&self) -> Option<f64> {
        let ticks = self.ticks()?;
        let walk_ticks = if self.is_page_walk() { ticks } else { 0 };
        ratio(ticks as f64, (self.run.ticks(Mode::Kernel) + walk_ticks) as f64)
    }

    /// The share of the stall cycles of a counter in all stall cycles of the kernel, 0 to 1. `None` if the model does not count
    /// stalls. For page walks, the total is the kernel's stalls plus the stalls of the walks, because the paper's kernel
    /// refills the TLB itself.
    pub(super) fn stall_ratio(&self, counter: &str) -> Option<f64> {
        let mut total = 0;
        for stall in [FETCH_STALL, DATA_STALL] {
            total += self.run.mode_sum(stall, Mode::Kernel)?;
            total += if self.is_page_walk() { self.count(stall)? } else { 0 };
        }
        ratio(self.count(counter)? as f64, total as f64)
    }

    /// How often the services take a lock. `None` if the run did not count that.
    pub(super) fn lock_acquires(&self) -> Option<u64> {
        self.sum(|service| Some(self.run.service_locks(service)?.0))
    }

    /// How many cycles the services spin for locks. `None` if the run did not count that. [`Joined::ticks`] does not
    /// include these cycles.
    pub(super) fn spin_ticks(&self) -> Option<u64> {
        self.sum(|service| Some(self.run.service_locks(service)?.1))
    }

    /// Requests that started in the window. For page walks: the walks. `None` if a service does not count its requests.
    pub(super) fn requests(&self) -> Option<u64> {
        self.sum(|service| service.requests)
    }

    /// Requests per second of the window. `None` if a service does not count its requests.
    pub(super) fn rate_hz(&self) -> Option<f64> {
        ratio(self.requests()? as f64, self.run.seconds())
    }

    /// The mean of a time over the completed requests, ns. `None` if no request completed, or the time is unknown.
    fn mean_ns(&self, total_ticks: impl Fn(&ServiceStats) -> Option<u64>) -> Option<f64> {
        let count = self.sum(|service| Some(service.times.as_ref()?.latency.count))?;
        let ticks = self.sum(total_ticks)?;
        ratio(self.run.sample.ns_of(ticks as f64), count as f64)
    }

    /// Whether the services are page walks of the hardware, which have no requests with start and end.
    fn is_page_walk(&self) -> bool {
        self.services.iter().all(|service| service.class == Class::PageWalk)
    }

    /// Mean time of a page walk, ns. `None` for other services. Nothing interrupts a walk, so this is both its
    /// computation and its latency.
    fn walk_ns(&self) -> Option<f64> {
        if !self.is_page_walk() {
            return None;
        }
        ratio(self.run.sample.ns_of(self.ticks()? as f64), self.requests()? as f64)
    }

    /// Mean time of the service itself in a completed request, ns. `None` if no request completed.
    pub(super) fn computation_ns(&self) -> Option<f64> {
        self.walk_ns().or_else(|| self.mean_ns(|service| service.times.as_ref()?.computation_ticks))
    }

    /// Mean time of a completed request from start to end, ns. `None` if no request completed.
    pub(super) fn latency_ns(&self) -> Option<f64> {
        self.walk_ns().or_else(|| self.mean_ns(|service| Some(service.times.as_ref()?.latency.sum)))
    }

    /// The sum of a cache's misses in `classes`. `None` for page walks, or if the misses were not classified.
    pub(super) fn misses(&self, cache: &str, classes: &[&str]) -> Option<u64> {
        if self.is_page_walk() {
            return None;
        }
        let is_included = |row: &MissRow| {
            let key = (row.service.class, row.service.name.as_str());
            self.services.iter().any(|stats| (stats.class, stats.name.as_str()) == key)
        };
        self.run.misses_by_service(cache, classes, is_included)
    }

    /// Mean time per completed request that the task is blocked, ns. `None` for page walks, and if no request completed.
    pub(super) fn blocked_ns(&self) -> Option<f64> {
        self.mean_ns(|service| service.times.as_ref()?.blocked_ticks)
    }

    /// Mean time per completed request that the task is runnable but does not run, ns. `None` without completed
    /// requests, as for page walks.
    pub(super) fn descheduled_ns(&self) -> Option<f64> {
        self.mean_ns(|service| service.times.as_ref()?.descheduled_ticks)
    }

    /// A counter per instruction. `None` for page walks, whose instructions are unknown, and if the model does not count it.
    pub(super) fn per_instruction(&self, name: &str) -> Option<f64> {
        ratio(self.count(name)? as f64, self.count(INSTRUCTIONS)? as f64)
    }

    /// The time of all events of a counter, each with this number of cycles, as a share of the services' time.
    /// `None` if the counter or the time is unknown.
    pub(super) fn time_ratio(&self, name: &str, cycles_per_event: u64) -> Option<f64> {
        ratio((self.count(name)? * cycles_per_event) as f64, self.ticks()? as f64)
    }
}

/// `dividend / divisor`, or `None` if the divisor is not positive.
pub(super) fn ratio(dividend: f64, divisor: f64) -> Option<f64> {
    (divisor > 0.0).then(|| dividend / divisor)
}
