//! What a bench hands in: each service with its counters and times.

use serde_json::{Map, Value as Json};
use stats::Distribution;

use super::class::Class;
use super::counters::{CYCLES, DATA_STALL, FETCH_STALL};
use super::misses::MissSample;

/// Times of the completed requests of a service, in the bench's [`ServicesSample::ticks_hz`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// From start to end.
    pub latency: Distribution,
    /// The service itself; absent where the bench knows no more than the sum.
    pub computation: Option<Distribution>,
    /// Sum of the times of the service itself.
    pub computation_ticks: Option<u64>,
    /// Sum of the times for which tasks were blocked; absent where they are not known.
    pub blocked_ticks: Option<u64>,
    /// Sum of the times for which tasks could have run but did not.
    pub descheduled_ticks: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ServiceStats {
    pub class: Class,
    /// Its name, as the kernel spells it.
    pub name: String,
    /// CPU time of the service itself, without what interrupted it or was nested in it; absent where the
    /// bench does not know it.
    pub self_ticks: Option<u64>,
    /// Time of page walks for it, for instructions and for data, which is in the rows of
    /// [`Class::PageWalk`] and not in [`ServiceStats::self_ticks`]; absent where the bench does not know
    /// it.
    pub page_walk_ticks: Option<[u64; 2]>,
    /// Requests that started in the window; absent where the word has no meaning (user mode, idle).
    pub requests: Option<u64>,
    /// Times of those that completed in it.
    pub times: Option<Times>,
    /// Counters of the service itself, in the order of [`ServicesSample::counters`].
    pub counters: Vec<u64>,
}

/// For what tasks were blocked in a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitStats {
    /// The class of the service.
    pub class: Class,
    /// Its name.
    pub service: String,
    /// What they waited for; absent where it is not known.
    pub wait: Option<String>,
    /// How often.
    pub count: u64,
    /// How long, sum.
    pub blocked_ticks: u64,
}

/// A place of the kernel that takes locks of one kind and name, for one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStats {
    /// What the service is.
    pub class: Class,
    /// Its name.
    pub service: String,
    pub kind: String,
    /// Whether a CPU that waits for it spins: it does not leave its task.
    pub spins: bool,
    /// The function that takes it, and how far in it.
    pub place: String,
    /// The name of the lock: its symbol, or the structure that it is in and the member or distance. Absent
    /// where it is not known.
    pub lock: Option<String>,
    /// How often it takes one.
    pub acquires: u64,
    /// How often another has it.
    pub contended: u64,
    /// How long it waits for it then, sum.
    pub waited_ticks: u64,
    /// How long it has it, sum; absent where several can.
    pub held_ticks: Option<u64>,
}

/// What a CPU executes for, in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileMode {
    /// A program.
    User,
    Kernel,
    /// The kernel waits for a lock that another has.
    Sync,
    /// The idle task.
    Idle,
}

impl ProfileMode {
    /// The name in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            ProfileMode::User => "user",
            ProfileMode::Kernel => "kernel",
            ProfileMode::Sync => "sync",
            ProfileMode::Idle => "idle",
        }
    }
}

/// A mode in a slot of the window, of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileSlot {
    pub mode: ProfileMode,
    /// When the slot starts, since the window opened.
    pub start_ticks: u64,
    /// How long it is.
    pub length_ticks: u64,
    /// Time in the mode.
    pub ticks: u64,
    /// That of waiting for instructions.
    pub fetch_stall_ticks: u64,
    /// That of waiting for data.
    pub data_stall_ticks: u64,
    /// That lost in the pipeline otherwise.
    pub pipeline_stall_ticks: u64,
}

/// Two counts of the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// What is counted.
    pub what: String,
    /// By the bench.
    pub counted: u64,
    /// By the kernel itself; absent where it does not say.
    pub kernel: Option<u64>,
    /// Where the kernel's count comes from.
    pub source: String,
    /// By how much they may differ: what was counted between reading the kernel's count and the window's
    /// edge next to it.
    pub edge_max: u64,
}

/// A part of the time of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimePart {
    /// What the CPU did.
    pub name: String,
    /// For how long, in the bench's [`ServicesSample::ticks_hz`].
    pub ticks: u64,
    /// How that is measured.
    pub method: String,
}

/// What a CPU did for the whole window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    /// Its number.
    pub cpu: u32,
    /// Length of its window.
    pub window_ticks: u64,
    /// The parts, the same for each CPU and in the same order. They add up to the window.
    pub parts: Vec<TimePart>,
}

/// A window: a command, and what services took while it ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServicesSample {
    /// How long the window was open, in ticks of each CPU, sum over the CPUs.
    pub window_ticks: u64,
    /// Its length on the clock, ns.
    pub window_ns: u64,
    pub cpus: u32,
    /// Ticks per second: cycles of the model, or nanoseconds.
    pub ticks_hz: u64,
    /// Names of the counters.
    pub counters: Vec<String>,
    /// The services, user mode and idle with them.
    pub services: Vec<ServiceStats>,
    /// The time of each CPU in parts, where each part has a method of its own; empty on a bench that counts the
    /// cycles of all services in one way.
    pub cpu_times: Vec<CpuTimes>,
    /// For what tasks were blocked.
    pub waits: Vec<WaitStats>,
    /// Places that take locks, each for each service; absent if they were not measured.
    pub locks: Option<Vec<LockStats>>,
    /// What all CPUs together did over time, in slots of equal length; empty if the bench does not know it.
    pub profile: Vec<ProfileSlot>,
    /// Misses; absent if they were not measured.
    pub misses: Option<MissSample>,
    /// Comparisons with the kernel's own counts.
    pub agreement: Vec<Agreement>,
    /// What was in force.
    pub facts: Map<String, Json>,
    /// What measuring cost.
    pub observer: Map<String, Json>,
    /// What a reader must know.
    pub warnings: Vec<String>,
    /// Whether the user ended the window.
    pub interrupted: bool,
}

impl ServiceStats {
    /// Time of page walks for it.
    #[must_use]
    pub fn page_walks(&self) -> Option<u64> {
        self.page_walk_ticks.map(|[fetch, data]| fetch + data)
    }
}

impl ServicesSample {
    /// Ticks in nanoseconds; exact where a tick is one.
    #[must_use]
    pub fn ns_of(&self, ticks: f64) -> f64 {
        if self.ticks_hz == 1_000_000_000 {
            return ticks;
        }
        ticks * 1e9 / self.ticks_hz.max(1) as f64
    }

    /// The same with page walks as part of the services whose accesses caused them, not as rows of their own:
    /// what was moved is moved again, and no cycle is lost.
    #[must_use]
    pub fn with_page_walks_in_services(mut self) -> ServicesSample {
        let at = [CYCLES, FETCH_STALL, DATA_STALL].map(|name| self.counter(name));
        self.services.retain(|service| service.class != Class::PageWalk);
        for service in &mut self.services {
            let Some([fetch, data]) = service.page_walk_ticks.take() else { continue };
            service.self_ticks = service.self_ticks.map(|ticks| ticks + fetch + data);
            for (at, ticks) in at.into_iter().zip([fetch + data, fetch, data]) {
                if let Some(count) = at.and_then(|at| service.counters.get_mut(at)) {
                    *count += ticks;
                }
            }
        }
        self
    }

    /// The position of a counter.
    #[must_use]
    pub fn counter(&self, name: &str) -> Option<usize> {
        self.counters.iter().position(|counter| counter == name)
    }
}
