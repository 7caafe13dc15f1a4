//! The results that a bench of `wakeup` returns for one window of all threads. The tables are computed from them.

use std::cmp::Reverse;

use serde_json::{Map, Value as Json};

use super::ledger::WakeupLedger;
use super::split::{Part, Running};
use crate::cpu_warnings::CpuWarning;
use crate::cpus::UnmeasuredCpu;
use crate::experiment::Absence;
use crate::flight_recorder::FlightRecorder;
use crate::noise::ContextName;
use crate::wall_clock::WallClock;

/// The threads of all measured CPUs, for one window.
#[derive(Clone, Debug)]
pub struct WakeupSample {
    pub cpus: Vec<CpuWakeups>,
    /// CPUs of the plan without a thread.
    pub unmeasured: Vec<UnmeasuredCpu>,
    /// Names of contexts and tasks. The position is the number in [`super::Running`].
    pub names: Vec<ContextName>,
    /// Number of kernel events that were dropped. `None` without tracing.
    pub lost_events: Option<u64>,
    /// Number of kernel events on the measured CPUs in the window. `None` without tracing.
    pub events: Option<u64>,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// Whether a request to stop ended the window early, or irqlab's own thread got no CPU time.
    pub interrupted: bool,
    /// Whether a wake-up that reached the threshold of `--on-threshold` ended the window.
    pub ended_by_threshold: bool,
    /// Whether the end of the command ended the window.
    pub ended_by_command: bool,
    /// Warnings about this window.
    pub warnings: Vec<String>,
    /// Warnings about single CPUs in this window.
    pub cpu_warnings: Vec<CpuWarning>,
    /// Facts about this window, for the settings of the run.
    pub facts: Map<String, Json>,
    /// The kernel's events of the last seconds. `None` without `--flight-record`.
    pub flight_record: Option<FlightRecorder>,
    /// The worst wake-ups of simulated machines with different seeds, of which this is the window of the
    /// worst. Empty without `--seeds`.
    pub seeds: Vec<SeedOutcome>,
    /// The functions of the kernel in the worst wake-up. `None` if they were not recorded.
    pub worst_functions: Option<WorstFunctions>,
    /// What this window lacks, with the reasons.
    pub absent: Vec<Absence>,
    /// Relates the times of the window to UTC. `None` in a simulated machine.
    pub wall_clock: Option<WallClock>,
}

/// The functions of the kernel that ran in the worst wake-up of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorstFunctions {
    pub cpu: u32,
    /// In the order of their first time. Their self times add up to the lateness.
    pub functions: Vec<FunctionTime>,
}

/// Name of the row that sums the functions without a row of their own.
pub const OTHER_FUNCTIONS: &str = "others";
/// Stands for the functions of a time in which no blocks were recorded.
pub const NOT_RECORDED: &str = "not recorded";

/// A function in one stage and context of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTime {
    pub part: Part,
    /// Name of the function, `user mode`, [`OTHER_FUNCTIONS`], or [`NOT_RECORDED`].
    pub function: String,
    /// When the function first ran, or a function that it called, from the due time, ns.
    pub first_ns: u64,
    /// Time of the function itself, ns.
    pub self_ns: u64,
    /// Time of the function and of the functions that it called, without interrupts, ns.
    pub total_ns: Option<u64>,
    /// How often the CPU executed the function's first instruction after other code.
    pub calls: Option<u64>,
    pub instructions: Option<u64>,
    /// Misses of L1I and L1D. `None` without a model.
    pub l1_misses: Option<u64>,
    /// Misses of L2. `None` without a model with an L2.
    pub l2_misses: Option<u64>,
}

impl FunctionTime {
    /// Adds another function of the same part, which has no total time in common with this one.
    pub fn add(&mut self, other: &FunctionTime) {
        let sum = |left: Option<u64>, right: Option<u64>| Some(left? + right?);
        self.first_ns = self.first_ns.min(other.first_ns);
        self.self_ns += other.self_ns;
        self.total_ns = sum(self.total_ns, other.total_ns);
        self.calls = sum(self.calls, other.calls);
        self.instructions = sum(self.instructions, other.instructions);
        self.l1_misses = sum(self.l1_misses, other.l1_misses);
        self.l2_misses = sum(self.l2_misses, other.l2_misses);
    }
}

/// The worst wake-up of the machine with a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedOutcome {
    pub seed: u64,
    /// Number of wake-ups of all threads.
    pub wakeups: u64,
    pub cpu: u32,
    /// How late the thread was, ns.
    pub late_ns: u64,
    /// When it was due, from the opening of the window, ns.
    pub due_ns: u64,
    /// The parts of the lateness in the order of time, ns, with the kind and the name of what ran.
    pub parts: Vec<NamedPart>,
    /// The part that took the most time, as the table of the worst wake-ups adds up its pieces. `None` without tracing.
    pub largest: Option<NamedPart>,
}

/// A part of a lateness: the kind and the name of what ran, if it has a name, and the time, ns.
pub type NamedPart = (Option<(String, String)>, u64);

impl SeedOutcome {
    /// The worst wake-up of a window. `None` if no thread woke up.
    #[must_use]
    pub fn worst_of_window(seed: u64, sample: &WakeupSample) -> Option<SeedOutcome> {
        let worst_of = |cpu: &CpuWakeups| {
            Some((cpu.cpu, cpu.start_ns, (*cpu.ledger.worst.sorted().first()?).clone()))
        };
        // A tie goes to the lowest CPU.
        let all = sample.cpus.iter().filter_map(worst_of);
        let (cpu, start_ns, worst) =
            all.min_by_key(|(cpu, _, worst)| (Reverse(worst.wakeup.late_ns()), *cpu))?;
        let named = |(part, ns): &(Part, u64)| {
            let name = sample.kind_and_name(part.running);
            (name.map(|(kind, name)| (kind.to_owned(), name)), *ns)
        };
        Some(SeedOutcome {
            seed,
            wakeups: sample.cpus.iter().map(|cpu| cpu.ledger.late.count).sum(),
            cpu,
            late_ns: worst.wakeup.late_ns(),
            due_ns: worst.wakeup.due_ns.saturating_sub(start_ns),
            parts: worst.parts.iter().chain(&worst.later).map(named).collect(),
            largest: worst.largest_part().as_ref().map(named),
        })
    }
}

impl WakeupSample {
    /// Kind and name of what ran, in words. `None` for a context without a name.
    #[must_use]
    pub fn kind_and_name(&self, running: Running) -> Option<(&str, String)> {
        kind_and_name(running, &self.names)
    }

    /// Whether the window has a thread on every CPU of the plan, until its end.
    #[must_use]
    pub fn has_all_cpus(&self) -> bool {
        self.unmeasured.is_empty() && self.cpus.iter().all(|cpu| !cpu.left)
    }
}

/// Kind and name of what ran, in words. `None` for a context without a name. `names`: see [`WakeupSample::names`].
#[must_use]
pub fn kind_and_name(running: Running, names: &[ContextName]) -> Option<(&str, String)> {
    match running {
        Running::Context(number) | Running::Task(number) => {
            names.get(number as usize).map(ContextName::kind_and_name)
        }
        Running::Thread => Some(("thread", "the measured thread".to_owned())),
        Running::Waker => Some(("thread", "the waker".to_owned())),
        Running::Unknown => Some(("unknown", "no kernel event".to_owned())),
    }
}

/// The thread of one CPU.
#[derive(Clone, Debug)]
pub struct CpuWakeups {
    pub cpu: u32,
    /// When the window opened, ns.
    pub start_ns: u64,
    pub ledger: WakeupLedger,
    /// Number of periods that were over before the thread ran again. With a disk, the time of the read counts, too. With a
    /// waker: number of sent wake-ups that came
    /// before the thread had run after an earlier one.
    pub missed: u64,
    /// The thread that wakes this one. `None` if a timer does.
    pub waker: Option<WakerCounts>,
    /// The counts of reads if a disk wakes the thread.
    pub disk: Option<DiskCounts>,
    /// Number of wake-ups that were dropped because the buffer was full.
    pub lost: u64,
    /// Page faults of the thread in the window; `None` if the kernel does not report them.
    pub page_faults: Option<u64>,
    /// Whether the kernel moved the thread or its waker to another CPU, and the thread was measured until then.
    pub left: bool,
    /// The thread's own readings, which serve to check the bench. `None` unless the bench was asked for them.
    pub readings: Option<ThreadReadings>,
}

impl CpuWakeups {
    /// Whether the timer of its own sleep wakes the thread.
    #[must_use]
    pub fn is_woken_by_timer(&self) -> bool {
        self.waker.is_none() && self.disk.is_none()
    }

    /// Number of wake-ups that found the thread not yet asleep. `None` if a timer wakes it.
    #[must_use]
    pub fn not_asleep(&self) -> Option<u64> {
        let of_waker = self.waker.map(|waker| waker.not_asleep);
        of_waker.or(self.disk.map(|disk| disk.not_asleep))
    }
}

/// The readings of a thread at its wake-ups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadReadings {
    /// The kernel's number of the thread.
    pub thread: u32,
    /// Due time and time of the reading, ns, and the time-stamp counter after the reading, of each wake-up.
    pub records: Vec<[u64; 3]>,
}

/// Counts of a waker in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakerCounts {
    /// CPU of the waker.
    pub cpu: u32,
    /// Number of periods in which the waker sent nothing, because it was late itself.
    pub missed: u64,
    /// Number of wake-ups that found the measured thread not yet asleep. They have no lateness.
    pub not_asleep: u64,
}

/// Counts of a thread that a disk wakes, in the window. [`WakeupLedger::reads`] has the counts that follow from the disk's interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCounts {
    /// Number of reads that were over before the thread slept. They have no lateness.
    pub not_asleep: u64,
}

/// Median lateness in a pair of short windows, ns: without and with marks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeCost {
    pub bare_p50_ns: f64,
    pub traced_p50_ns: f64,
}
