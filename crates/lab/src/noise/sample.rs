//! The results that a bench of `noise` returns for one window of a loop on all CPUs. The tables are computed from them.

use attribution::{Context, ContextKind};
use serde_json::{Map, Value as Json};
use stats::Distribution;
use stats::interval::quantile_ranks_95;

use super::ledger::GapLedger;
use super::loops::Loop;
use super::placement::CpuActivity;
use super::quantum::Quantum;
use super::sent::SentInterrupt;
use super::split::Part;
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

/// The result of a loop on one CPU.
#[derive(Clone, Debug)]
pub struct CpuNoise {
    pub cpu: u32,
    /// Start of the loop, ns.
    pub start_ns: u64,
    /// How long the loop ran, ns.
    pub window_ns: u64,
    pub result: LoopResult,
    /// Number of interrupts of the local timer in the window. `None` without tracing.
    pub tick_count: Option<u64>,
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
            tick_count: None,
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

/// Quanta of fixed work.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// The times of all quanta, ns.
    pub times: Distribution,
    /// The first quanta, at most 10,000.
    pub first: Vec<Quantum>,
    /// The minimum time of a quantum in each block of the window, ns.
    pub least_ns: Vec<u64>,
    /// Number of quanta in each block of `least_ns`. Empty if the bench does not count them.
    pub block_counts: Vec<u64>,
    /// How the cycles of each quantum were used. Empty unless the bench sees every cycle.
    pub cycles: Vec<QuantumCycles>,
}

/// How the cycles of a quantum were used, and how often other contexts interrupted the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantumCycles {
    /// Cycles of the loop itself.
    pub own: u64,
    /// Cycles of other contexts in the quantum.
    pub taken: u64,
    /// How often other contexts took the CPU in the quantum.
    pub departures: u64,
    /// How often other contexts took the CPU between the previous quantum and this quantum.
    pub departures_before: u64,
    /// The first context that took the CPU in the quantum. `None` if no context did.
    pub first: Option<Part>,
    /// Whether another task ran in the quantum.
    pub switched: bool,
}

/// The work in slots of fixed time.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Length of a slot, ns: a whole number of cycles of the loop's clock.
    pub slot_length_ns: f64,
    /// Number of slots that passed.
    pub count: u64,
    /// Total work of all slots, in units of work. A unit is 1/64 of a slot without interference.
    pub work_sum: u64,
    /// Maximum work of a slot.
    pub work_max: u64,
    /// Number of slots without any work.
    pub empty: u64,
    /// The work of each of the first slots, at most 65,536.
    pub first: Vec<u64>,
}

/// Maximum number of quanta that are stored one by one.
const QUANTA_MAX: usize = 10_000;
/// Maximum number of slots that are stored one by one.
const SLOTS_MAX: usize = 1 << 16;
/// Number of blocks in a window. [`Fixed::least_ns`] has the minimum time of a quantum in each block.
const BLOCKS: usize = 10;

impl Fixed {
    /// Number of quanta of a block, if a window has `expected` quanta.
    #[must_use]
    pub fn quanta_per_block(expected: u64) -> u64 {
        expected.div_ceil(BLOCKS as u64).max(1)
    }

    /// Adds the next quantum. `quanta_per_block`: see [`Fixed::quanta_per_block`]. Quanta beyond the expected number
    /// belong to the last block.
    pub fn add(&mut self, quantum: Quantum, quanta_per_block: u64) {
        let block = (self.times.count / quanta_per_block.max(1)).min(BLOCKS as u64 - 1) as usize;
        match self.least_ns.get_mut(block) {
            Some(min_ns) => *min_ns = quantum.time_ns.min(*min_ns),
            None => self.least_ns.push(quantum.time_ns),
        }
        match self.block_counts.get_mut(block) {
            Some(count) => *count += 1,
            None => self.block_counts.push(1),
        }
        self.times.record(quantum.time_ns, quantum.start_ns);
        if self.first.len() < QUANTA_MAX {
            self.first.push(quantum);
        }
    }

    /// The minimum time of a quantum, ns. `None` without quanta.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        self.least_ns.iter().min().copied()
    }

    /// The quantile of the times at `per_100k` of 100,000, ns. Exact if all quanta are stored one by one. Otherwise it is
    /// within 1/32, and neither below the shortest nor above the longest time. `None` with too few quanta.
    #[must_use]
    pub fn quantile(&self, per_100k: u32) -> Option<u64> {
        let rank = self.times.histogram.quantile_rank(per_100k)?;
        match self.sorted_times_ns() {
            Some(times_ns) => time_of_rank(&times_ns, rank),
            None => self.times.quantile(per_100k).map(|ns| self.at_least_min(ns)),
        }
    }

    /// The 95 % interval of [`Fixed::quantile`], from the order of the times alone. An end that the
    /// times do not bound is `None`.
    #[must_use]
    pub fn quantile_interval(&self, per_100k: u32) -> (Option<u64>, Option<u64>) {
        let Some(times_ns) = self.sorted_times_ns() else {
            let (low_ns, high_ns) = self.times.quantile_interval(per_100k);
            return (low_ns.map(|ns| self.at_least_min(ns)), high_ns);
        };
        if self.times.histogram.quantile_rank(per_100k).is_none() {
            return (None, None);
        }
        let (low, high) = quantile_ranks_95(self.times.count, per_100k);
        let time_ns = |rank: Option<u64>| time_of_rank(&times_ns, rank?);
        (time_ns(low), time_ns(high))
    }

    /// The times of all quanta in ascending order, ns. `None` if some quanta are not stored one by one.
    fn sorted_times_ns(&self) -> Option<Vec<u64>> {
        if self.first.len() as u64 != self.times.count {
            return None;
        }
        let mut times_ns: Vec<u64> = self.first.iter().map(|quantum| quantum.time_ns).collect();
        times_ns.sort_unstable();
        Some(times_ns)
    }

    /// A time from the histogram, or the minimum time if the histogram's bucket reaches below it.
    fn at_least_min(&self, time_ns: u64) -> u64 {
        time_ns.max(self.min_ns().unwrap_or(0))
    }
}

/// The time of a rank, from 1, among sorted times.
fn time_of_rank(times_ns: &[u64], rank: u64) -> Option<u64> {
    times_ns.get(usize::try_from(rank).ok()?.checked_sub(1)?).copied()
}

impl Slots {
    /// Adds the slot with this number, from 0. Skipped slots since the last added slot had no work. Ignores a slot that
    /// is not after the last one.
    pub fn add(&mut self, slot: u64, work: u64) {
        if slot < self.count {
            return;
        }
        self.empty += slot - self.count + u64::from(work == 0);
        let position = usize::try_from(slot).unwrap_or(usize::MAX);
        // Skipped slots become slots without work.
        if position < SLOTS_MAX {
            self.first.resize(position, 0);
            self.first.push(work);
        }
        self.work_sum = self.work_sum.saturating_add(work);
        self.work_max = self.work_max.max(work);
        self.count = slot.saturating_add(1);
    }

    /// Ends a window in which `passed` whole slots of `slot_length_ns` passed. Slots since the
    /// last added slot had no work.
    pub fn finish(&mut self, passed: u64, slot_length_ns: f64) {
        let passed = passed.max(self.count);
        self.slot_length_ns = slot_length_ns;
        self.empty += passed - self.count;
        self.count = passed;
        let stored = usize::try_from(passed).unwrap_or(usize::MAX).min(SLOTS_MAX);
        self.first.resize(stored, 0);
    }

    /// Start of a slot, ns since the opening of the window.
    #[must_use]
    pub fn start_ns(&self, slot: u64) -> u64 {
        (slot as f64 * self.slot_length_ns).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_quantum_counts_also_beyond_the_expected_number() {
        let mut fixed = Fixed::default();
        let quanta_per_block = Fixed::quanta_per_block(10);
        for time_ns in (0..10).map(|_| 100).chain([90, 80, 95]) {
            fixed.add(Quantum::untraced(0, time_ns), quanta_per_block);
        }
        assert_eq!((fixed.least_ns.len(), fixed.least_ns.iter().min()), (BLOCKS, Some(&80)));
        assert_eq!(fixed.block_counts, [1, 1, 1, 1, 1, 1, 1, 1, 1, 4]);
    }

    #[test]
    fn the_window_opens_with_the_first_loop() {
        let slots = || LoopResult::Slots(Box::default());
        let cpus = vec![CpuNoise::new(0, 1_900, 50, slots()), CpuNoise::new(1, 23, 50, slots())];
        assert_eq!(NoiseSample::in_exact_clock(Loop::Ftq, cpus).opened_ns(), 23);
        assert_eq!(NoiseSample::in_exact_clock(Loop::Ftq, vec![]).opened_ns(), 0);
    }

    fn fixed_of(times_ns: impl IntoIterator<Item = u64>) -> Fixed {
        let mut fixed = Fixed::default();
        for (start_ns, time_ns) in (0..).zip(times_ns) {
            fixed.add(Quantum::untraced(start_ns, time_ns), 100);
        }
        fixed
    }

    #[test]
    fn quantiles_of_quanta_that_are_stored_one_by_one_are_exact() {
        // The buckets of these times are 4,096 ns wide.
        let slow_ns = [100_000, 100_004, 101_217, 104_373];
        let fixed = fixed_of((99_997..100_000).cycle().take(76).chain(slow_ns));
        assert_eq!((fixed.quantile(50_000), fixed.quantile(99_000)), (Some(99_998), None));
        assert_eq!(fixed.quantile(90_000), Some(99_999));
        assert_eq!(fixed.quantile(98_000), Some(101_217));
        assert_eq!(fixed.quantile_interval(50_000), (Some(99_998), Some(99_998)));
        assert_eq!(fixed.quantile_interval(99_000), (None, None));
    }

    #[test]
    fn quantiles_from_the_histogram_are_not_below_the_shortest_quantum() {
        let fixed = fixed_of(std::iter::repeat_n(101_000, QUANTA_MAX + 1));
        assert_eq!(fixed.quantile(50_000), Some(101_000));
        assert_eq!(fixed.quantile_interval(50_000), (Some(101_000), Some(101_000)));
    }

    #[test]
    fn slots_without_work_are_counted() {
        let mut slots = Slots::default();
        for (slot, work) in [(0, 9), (1, 10), (4, 3)] {
            slots.add(slot, work);
        }
        assert_eq!(slots.first, [9, 10, 0, 0, 3]);
        assert_eq!((slots.empty, slots.work_sum, slots.work_max, slots.count), (2, 22, 10, 5));
        slots.finish(7, 100.4);
        assert_eq!((slots.empty, slots.count, slots.start_ns(5)), (4, 7, 502));
        assert_eq!(slots.first, [9, 10, 0, 0, 3, 0, 0], "the last slots had no work either");
    }
}
