//! The results that a bench of `noise` returns for one window of a loop on all CPUs. The tables are computed from them.

use attribution::{Context, ContextKind};
use serde_json::{Map, Value as Json};

use super::ledger::GapLedger;
use super::loops::Loop;
use super::placement::CpuActivity;
use super::sent::SentInterrupt;
use super::split::Part;
use super::work::{Fixed, Slots};
use crate::added_cost::AddedCost;
use crate::cpu_warnings::CpuWarning;
use crate::cpus::UnmeasuredCpu;
use crate::flight_recorder::FlightRecorder;
use crate::wall_clock::WallClock;

/// Name of the task that runs when a CPU has nothing to do. No other task has this name.
pub const IDLE: &str = "idle";

/// The name of a context or task. In marks and parts, a number represents the context or task: see
/// [`NoiseSample::names`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextName {
    Context(Context),
    Task(String),
    /// An interrupt that another CPU sent, with its sender.
    Sent(SentInterrupt),
    /// Kind and name of a context that only a bench that sees every cycle can observe.
    Other(&'static str, String),
}

impl ContextName {
    /// Kind and name, in words.
    #[must_use]
    pub fn kind_and_name(&self) -> (&str, String) {
        match self {
            ContextName::Context(context) => {
                let name = match context.kind {
                    ContextKind::HardIrq => format!("{} {}", context.number, context.name),
                    _ => context.name.clone(),
                };
                (context.kind.label(), name)
            }
            ContextName::Task(name) => ("task", name.clone()),
            ContextName::Sent(sent) => (sent.context.kind.label(), sent.label()),
            ContextName::Other(kind, name) => (kind, name.clone()),
        }
    }

    /// Kind and name, in words that are the same in all runs of the same programs: without numbers of processes and CPUs.
    #[must_use]
    pub fn stable_kind_and_name(&self) -> (&str, String) {
        match self {
            ContextName::Sent(sent) => (sent.context.kind.label(), sent.name()),
            other => other.kind_and_name(),
        }
    }

    /// Whether the name contains a sender.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        matches!(self, ContextName::Sent(_))
    }
}

/// Kind and name of the cause of a part of a detour, in words. `None` for a context without a name.
#[must_use]
pub fn kind_and_name(part: Part, names: &[ContextName]) -> Option<(&str, String)> {
    let in_words = |kind: &'static str, name: &str| Some((kind, name.to_owned()));
    match part {
        Part::Context(number) => names.get(number as usize).map(ContextName::kind_and_name),
        Part::Fault => in_words("exception", "page fault of the loop"),
        Part::Entry => in_words("entry/exit", "kernel entry"),
        Part::Exit => in_words("entry/exit", "kernel exit"),
        Part::NoEvent => in_words("unattributed", "no kernel event"),
        Part::Late => in_words("unattributed", "before the first event"),
        Part::Between => in_words("remainder", "between two events"),
        Part::Tail => in_words("remainder", "after the last event"),
        Part::Own => in_words("indirect", "the loop itself"),
        Part::Unknown => in_words("remainder", "unknown"),
    }
}

/// One loop on all measured CPUs, for one window.
#[derive(Clone, Debug)]
pub struct NoiseSample {
    pub looping: Loop,
    /// The results of each CPU.
    pub cpus: Vec<CpuNoise>,
    /// CPUs of the plan without a loop.
    pub unmeasured: Vec<UnmeasuredCpu>,
    /// Activity outside of the loops on each traced CPU. Empty without tracing, or if the topology is unknown.
    pub activity: Vec<CpuActivity>,
    /// Online CPUs whose activity is unknown, because no loop runs on them. Empty in a simulated machine.
    pub unobserved_cpus: Vec<u32>,
    /// Names of contexts and tasks. The position is the number of [`Part::Context`].
    pub names: Vec<ContextName>,
    /// Statistics of the trace of kernel events. `None` without tracing.
    pub traced: Option<Traced>,
    /// Frequency of the kernel's tick, Hz. `None` if it is unknown, and without a kernel.
    pub tick_hz: Option<f64>,
    /// Bound on the relative error of the clock's rate: 0 in a simulated machine. `None` if the bound is unknown.
    pub clock_rate_error: Option<f64>,
    /// Pairs of short windows of the loop, without and with probes, which show the cost of the probes. `experiment.rs`
    /// adds them. Empty if they were not measured.
    pub pairs: Vec<PairedWindows>,
    /// Timers that were set for known times, to check that the loop detects their interrupts.
    pub injected: Vec<Injected>,
    /// Whether a request to stop ended the window early.
    pub interrupted: bool,
    /// Whether the window ended before its time because it had measured enough.
    pub had_enough: bool,
    /// Whether a detour that reached the threshold of `--on-threshold` ended the window.
    pub ended_by_threshold: bool,
    /// Warnings about this window.
    pub warnings: Vec<String>,
    /// Warnings about single CPUs in this window.
    pub cpu_warnings: Vec<CpuWarning>,
    /// Facts about this window, for the settings of the report.
    pub facts: Map<String, Json>,
    /// The kernel's events of the last seconds. `None` without `--flight-record`.
    pub flight_record: Option<FlightRecorder>,
    /// Relates the times of the window to UTC. `None` in a simulated machine.
    pub wall_clock: Option<WallClock>,
}

impl NoiseSample {
    /// A complete window of a loop, measured by an exact clock, as in a simulated machine. All other fields are empty.
    #[must_use]
    pub fn in_exact_clock(looping: Loop, cpus: Vec<CpuNoise>) -> NoiseSample {
        NoiseSample {
            looping,
            cpus,
            unmeasured: Vec::new(),
            activity: Vec::new(),
            unobserved_cpus: Vec::new(),
            names: Vec::new(),
            traced: None,
            tick_hz: None,
            clock_rate_error: Some(0.0),
            pairs: Vec::new(),
            injected: Vec::new(),
            interrupted: false,
            had_enough: false,
            ended_by_threshold: false,
            warnings: Vec::new(),
            cpu_warnings: Vec::new(),
            facts: Map::new(),
            flight_record: None,
            wall_clock: None,
        }
    }
}

impl NoiseSample {
    /// When the window opened: the start of the first CPU's loop, ns.
    #[must_use]
    pub fn opened_ns(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.start_ns).min().unwrap_or(0)
    }

    /// Whether the loop ran on each CPU of the plan until the end of the window.
    #[must_use]
    pub fn has_all_cpus(&self) -> bool {
        self.unmeasured.is_empty() && self.cpus.iter().all(|cpu| !cpu.left)
    }
}

/// The timers that were set for one time on one CPU, and the detour that the loop found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    pub cpu: u32,
    pub timers: u32,
    /// The time that the timers were set for, ns.
    pub planned_ns: u64,
    /// Start of the timers' interrupt, ns. `None` if no interrupt came soon enough.
    pub interrupt_ns: Option<u64>,
    /// How long the interrupt stalled the loop, ns.
    pub stalled_ns: u64,
    /// Length of the detour that the loop recorded at the interrupt, ns. `None` if the loop recorded no detour.
    pub found_ns: Option<u64>,
    /// The part of the detour that is the loop's own time, ns.
    pub own_ns: u64,
}

/// Statistics of the trace of kernel events, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Number of marks in the windows.
    pub marks: u64,
    /// Number of marks that were dropped because the buffer was full.
    pub lost: u64,
    /// Number of marks outside of every recorded gap. They belong to gaps below the threshold.
    pub outside: u64,
    /// Whether the bench saw every cycle. Then all parts of gaps are known exactly.
    pub whole: bool,
}

/// The detour loop on all CPUs in two consecutive short windows, one without probes and one with probes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PairedWindows {
    /// Share of the CPUs' time that detours took: without probes, with probes.
    pub lost_ratio: [f64; 2],
    /// Median length of a detour, ns: without probes, with probes. `None` if there was no detour.
    pub detour_p50_ns: [Option<u64>; 2],
}

impl PairedWindows {
    /// The median length of a detour without and with probes, ns. `None` if a window had no detour.
    pub(super) fn p50_of_both_ns(&self) -> Option<[f64; 2]> {
        Some([self.detour_p50_ns[0]? as f64, self.detour_p50_ns[1]? as f64])
    }

    /// What the probes add to the lost share of the CPUs. `None` without pairs.
    pub(super) fn added_lost(pairs: &[PairedWindows]) -> Option<AddedCost> {
        let difference = |pair: &PairedWindows| pair.lost_ratio[1] - pair.lost_ratio[0];
        AddedCost::new("added_lost_ratio", pairs.iter().map(difference))
    }

    /// What the probes add to the median detour. `None` without pairs of windows with detours.
    pub(super) fn added_length(pairs: &[PairedWindows]) -> Option<AddedCost> {
        let lengths = pairs.iter().filter_map(PairedWindows::p50_of_both_ns);
        AddedCost::new("added_per_detour_p50_ns", lengths.map(|[bare, traced]| traced - bare))
    }
}

/// The result of a loop on one CPU.
#[derive(Clone, Debug)]
pub struct CpuNoise {
    pub cpu: u32,
    /// Start of the loop, ns.
    pub start_ns: u64,
    /// How long the loop ran, ns.
    pub window_ns: u64,
    pub result: LoopResult,
    /// Number of interrupts of the local timer while the loop had the CPU: ticks, and expired timers of programs. `None`
    /// without tracing.
    pub timer_count: Option<u64>,
    /// How long the time lasted that `steal_ns` and `smi_count` cover, ns: the window, what precedes it (warm-up,
    /// trials), and its end. `None` if neither was counted.
    pub external_ns: Option<u64>,
    /// Number of records that were dropped because the buffer was full.
    pub lost_records: u64,
    /// Whether the kernel moved the loop's thread to another CPU, for example because this CPU went offline. The
    /// window ended at that time.
    pub left: bool,
    /// Page faults of the loop by the kernel's count. `None` if the kernel does not report them.
    pub page_faults: Option<u64>,
    /// Context switches away from the loop by the kernel's count. `None` if the kernel does not report them.
    pub switches: Option<u64>,
    /// Time that the host reports as stolen from this CPU in `external_ns`, ns, in steps of
    /// /proc/stat. `None` if it is unknown.
    pub steal_ns: Option<u64>,
    /// System management interrupts in `external_ns` by the processor's count. `None` if the processor does not count
    /// them, or if irqlab may not read the count.
    pub smi_count: Option<u64>,
}

impl CpuNoise {
    /// A loop that ran without losses. All optional counts are `None`.
    #[must_use]
    pub fn new(cpu: u32, start_ns: u64, window_ns: u64, result: LoopResult) -> Self {
        CpuNoise {
            cpu,
            start_ns,
            window_ns,
            result,
            timer_count: None,
            external_ns: None,
            lost_records: 0,
            left: false,
            page_faults: None,
            switches: None,
            steal_ns: None,
            smi_count: None,
        }
    }
}

/// The observations of a loop.
#[derive(Clone, Debug)]
pub enum LoopResult {
    /// The gaps of the detour loop.
    Gaps(Box<GapLedger>),
    /// The quanta of fixed work.
    Quanta(Box<Fixed>),
    /// The slots of fixed time.
    Slots(Box<Slots>),
}

impl LoopResult {
    /// The result of a loop whose quantum of fixed work takes `quantum_ns` without interference, by its calibration.
    #[must_use]
    pub fn calibrated_for(mut self, quantum_ns: u64) -> LoopResult {
        if let LoopResult::Quanta(fixed) = &mut self {
            fixed.calibrated_ns = Some(quantum_ns);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_opens_with_the_first_loop() {
        let slots = || LoopResult::Slots(Box::default());
        let cpus = vec![CpuNoise::new(0, 1_900, 50, slots()), CpuNoise::new(1, 23, 50, slots())];
        assert_eq!(NoiseSample::in_exact_clock(Loop::Ftq, cpus).opened_ns(), 23);
        assert_eq!(NoiseSample::in_exact_clock(Loop::Ftq, vec![]).opened_ns(), 0);
    }
}
