//! The result of a bench: each service with its counters and times, in one window. Times are in ticks of
//! [`ServicesSample::ticks_hz`]. The live and the simulated bench make these samples; tables and papers read them.

use std::sync::Arc;

use serde_json::{Map, Value as Json};
use stats::Distribution;

use super::class::Class;
use super::counters::{CYCLES, DATA_STALL, FETCH_STALL};
use super::misses::MissSample;
use crate::cpu_warnings::CpuWarning;
use crate::handlers::Cgroup;
use crate::timeline::Timeline;

/// Times of the completed requests of a service, in ticks of [`ServicesSample::ticks_hz`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// Time of each request from its start to its end.
    pub latency: Distribution,
    /// Time of the service itself in each request. `None` if the bench knows only the sum.
    pub computation: Option<Distribution>,
    /// Total time of the service itself.
    pub computation_ticks: Option<u64>,
    /// Total time that tasks were blocked. `None` if it is not known.
    pub blocked_ticks: Option<u64>,
    /// Total time that tasks were runnable but did not run. `None` if it is not known.
    pub descheduled_ticks: Option<u64>,
    /// Requests that completed without known times, because a switch of their task was not seen. No other field has
    /// them. `None` if the bench sees every switch.
    pub unseen: Option<u64>,
}

/// The requests, times and counters of one service, on all CPUs together.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceStats {
    pub class: Class,
    /// The service's name, as the kernel spells it.
    pub name: String,
    /// CPU time of the service itself, without interrupts and nested services. `None` if it is unknown.
    pub self_ticks: Option<u64>,
    /// Time of page walks for the service: for instructions, and for data. The rows of [`Class::PageWalk`] contain
    /// this time; [`ServiceStats::self_ticks`] does not. `None` if the bench does not know the time.
    pub page_walk_ticks: Option<[u64; 2]>,
    /// Requests that started in the window. `None` for user mode and idle, which have no requests.
    pub requests: Option<u64>,
    /// Times of the requests that completed in the window.
    pub times: Option<Times>,
    /// Counters of the service itself, in the order of [`ServicesSample::counters`].
    pub counters: Vec<u64>,
}

/// Waits of tasks that were blocked in a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitStats {
    pub class: Class,
    pub service: String,
    /// The event that the tasks waited for. `None` if it is not known.
    pub wait: Option<String>,
    pub count: u64,
    /// Total time of the waits.
    pub blocked_ticks: u64,
}

/// How a bench finds locks, and names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMethod {
    /// The bench sees each call of a function that takes a lock.
    Calls,
    /// The bench sees contended locks. The lock is a variable with a symbol.
    WaitsBySymbol,
    /// The bench sees contended locks. The lock has no symbol, and only the call site is known.
    WaitsByCaller,
}

impl LockMethod {
    /// The method in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            LockMethod::Calls => "calls of lock functions",
            LockMethod::WaitsBySymbol => {
                "tracepoints of contention; lock by symbol, place by the first caller outside lock functions"
            }
            LockMethod::WaitsByCaller => {
                "tracepoints of contention; place by the first caller outside lock functions"
            }
        }
    }
}

/// The tasks or interrupts that wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockWaiter {
    /// Tasks of a control group.
    Cgroup(Cgroup),
    /// Interrupts and softirqs, or tasks whose group is not known.
    NoCgroup,
}

/// A call site in the kernel that takes locks of one kind and name, for one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStats {
    pub class: Class,
    pub service: String,
    /// `None` if the bench does not know the control groups of tasks.
    pub waiter: Option<LockWaiter>,
    pub kind: String,
    /// Whether a CPU that waits for the lock spins, rather than switching to another task.
    pub spins: bool,
    /// The call site: the function, and the offset of the call in the function.
    pub place: String,
    /// The name of the lock: its symbol, or its structure with the member or offset. `None` if it is not known.
    pub lock: Option<String>,
    pub method: LockMethod,
    /// How often the call site takes a lock. `None` if only contended locks are seen.
    pub acquires: Option<u64>,
    /// How often another context holds the lock when the call site takes it. If only waits are seen, the waits that ended.
    pub contended: u64,
    /// How many of the ended waits ended without the lock. `None` if it is not known.
    pub interrupted: Option<u64>,
    /// How many waits had not ended when the window closed. No other field has them. `None` if it is not known.
    pub unfinished: Option<u64>,
    /// Total time that the call site waits for the lock.
    pub waited_ticks: u64,
    /// The longest wait. `None` if it is not known.
    pub waited_max_ticks: Option<u64>,
    /// Waiting time in which the CPU spins. `None` if it is not known.
    pub spun_ticks: Option<u64>,
    /// How often the release of a lock that the call site has taken was seen. `None` if the bench sees no releases.
    pub releases: Option<u64>,
    /// Total time that the locks in `releases` were held. `None` if several can hold the lock at once, or if
    /// the bench sees no releases.
    pub held_ticks: Option<u64>,
}

/// The mode of a CPU in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileMode {
    User,
    Kernel,
    /// The kernel waits for a lock that another context holds.
    Sync,
    Idle,
    /// It is not known what the CPU does.
    Unknown,
}

impl ProfileMode {
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            ProfileMode::User => "user",
            ProfileMode::Kernel => "kernel",
            ProfileMode::Sync => "sync",
            ProfileMode::Idle => "idle",
            ProfileMode::Unknown => "unknown",
        }
    }
}

/// The time of one mode in one slot of the window, over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileSlot {
    pub mode: ProfileMode,
    /// Time from the opening of the window to the start of the slot.
    pub start_ticks: u64,
    pub length_ticks: u64,
    /// Time in the mode, summed over the CPUs. [`ProfileMode::Idle`] includes the time of halted CPUs.
    pub ticks: u64,
    /// Part of `ticks` that the CPUs wait for instructions.
    pub fetch_stall_ticks: u64,
    /// Part of `ticks` that the CPUs wait for data.
    pub data_stall_ticks: u64,
    /// Part of `ticks` that the pipeline loses for other reasons.
    pub pipeline_stall_ticks: u64,
}

/// Two counts of the same events: one by the bench, one by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The events, such as `page faults`.
    pub what: String,
    /// Number of events by the bench's count.
    pub counted: u64,
    /// The kernel's count. `None` if the kernel does not count these events.
    pub kernel: Option<u64>,
    /// Where the kernel's count comes from.
    pub source: String,
    /// Largest allowed difference: events between the edges of the window and the nearest readings of
    /// the kernel's own counter.
    pub edge_max: u64,
}

/// Requests of a service that the kernel counted, but for which it may not have called a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub class: Class,
    /// The service.
    pub service: String,
    /// Upper bound of these requests. The kernel counts some services together: each service of such a group may lack
    /// all missing requests of the group.
    pub max: u64,
    /// Whether `max` is larger than the uncertainty at the edges of the window explains.
    pub is_beyond_edges: bool,
}

/// A part of the time of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimePart {
    pub name: String,
    /// The part's time, in ticks of [`ServicesSample::ticks_hz`].
    pub ticks: u64,
    /// How the bench measures the part.
    pub method: String,
}

/// The time of one CPU in the window, divided into parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    pub cpu: u32,
    /// Length of the CPU's window.
    pub window_ticks: u64,
    /// All CPUs have the same parts in the same order. The parts add up to the window.
    pub parts: Vec<TimePart>,
}

/// One window: the services of the kernel while a command ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServicesSample {
    /// How long the window was open, in ticks, summed over the CPUs.
    pub window_ticks: u64,
    /// How long the window was open, ns.
    pub window_ns: u64,
    /// Number of measured CPUs.
    pub cpus: u32,
    /// Ticks per second. A tick is a cycle of the model, or a nanosecond.
    pub ticks_hz: u64,
    /// Names of the counters; see [`super::counters`].
    pub counters: Vec<String>,
    /// The services, including user mode and idle.
    pub services: Vec<ServiceStats>,
    /// The time of each CPU in parts that are measured by different methods. Empty if the bench measures all
    /// services by one method.
    pub cpu_times: Vec<CpuTimes>,
    /// Waits of blocked tasks.
    pub waits: Vec<WaitStats>,
    /// One entry for each call site that takes locks and each service. `None` if locks were not measured.
    pub locks: Option<Vec<LockStats>>,
    /// Modes of all CPUs together over time, in slots of equal length. Empty if the bench has no profile.
    pub profile: Vec<ProfileSlot>,
    /// Cache misses of services, or `None` if they were not measured.
    pub misses: Option<MissSample>,
    /// Single events of the window. `None` if they were not recorded.
    pub timeline: Option<Arc<Timeline>>,
    /// Comparisons with the kernel's own counts.
    pub agreement: Vec<Agreement>,
    /// Services whose requests the kernel counts, too. Empty on a bench that observes all requests.
    pub undelivered: Vec<Undelivered>,
    /// Settings of the measurement that only the bench knows.
    pub facts: Map<String, Json>,
    /// The overhead of the measurement.
    pub observer: Map<String, Json>,
    /// Warnings for the reader of the numbers.
    pub warnings: Vec<String>,
    /// Warnings about single CPUs.
    pub cpu_warnings: Vec<CpuWarning>,
    /// Whether a CPU was measured for a part of the window only, or not at all.
    pub lacks_cpus: bool,
    /// Whether the user ended the window early.
    pub interrupted: bool,
}

impl ServiceStats {
    /// Time of page walks for the service, for instructions and data together.
    #[must_use]
    pub fn page_walks(&self) -> Option<u64> {
        self.page_walk_ticks.map(|[fetch, data]| fetch + data)
    }
}

impl ServicesSample {
    /// Converts ticks to nanoseconds. The result is exact if a tick is a nanosecond.
    #[must_use]
    pub fn ns_of(&self, ticks: f64) -> f64 {
        if self.ticks_hz == 1_000_000_000 {
            return ticks;
        }
        ticks * 1e9 / self.ticks_hz.max(1) as f64
    }

    /// Charges page walks to the services whose accesses caused them: removes the services of [`Class::PageWalk`], and
    /// adds their time and stalls to the other services. The totals do not change.
    #[must_use]
    pub fn with_page_walks_in_services(mut self) -> ServicesSample {
        let positions = [CYCLES, FETCH_STALL, DATA_STALL].map(|name| self.counter(name));
        self.services.retain(|service| service.class != Class::PageWalk);
        for service in &mut self.services {
            let Some([fetch, data]) = service.page_walk_ticks.take() else { continue };
            service.self_ticks = service.self_ticks.map(|ticks| ticks + fetch + data);
            for (position, ticks) in positions.into_iter().zip([fetch + data, fetch, data]) {
                if let Some(count) =
                    position.and_then(|position| service.counters.get_mut(position))
                {
                    *count += ticks;
                }
            }
        }
        self
    }

    /// The position of a counter in [`ServicesSample::counters`]. `None` if the bench does not have the counter.
    #[must_use]
    pub fn counter(&self, name: &str) -> Option<usize> {
        self.counters.iter().position(|counter| counter == name)
    }
}
