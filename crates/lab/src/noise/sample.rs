//! What a bench hands in of one pass over the CPUs.

use attribution::Context;
use serde_json::{Map, Value as Json};
use stats::Distribution;

use super::ledger::GapLedger;
use super::loops::Loop;
use super::placement::CpuActivity;
use super::quantum::Quantum;
use super::split::Part;
use crate::cpu_warnings::CpuWarning;
use crate::cpus::UnmeasuredCpu;

/// The name of what a bench numbers: a context or a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextName {
    /// A context of the kernel.
    Context(Context),
    Task(String),
    /// What only a bench that sees every cycle sees: kind and name.
    Other(&'static str, String),
}

/// One loop on all measured CPUs, for one window of time.
#[derive(Clone, Debug)]
pub struct NoiseSample {
    pub looping: Loop,
    /// One for each CPU.
    pub cpus: Vec<CpuNoise>,
    /// CPUs of the plan without a loop.
    pub unmeasured: Vec<UnmeasuredCpu>,
    /// What ran apart from the loops on each CPU that was watched; empty where none was, or where the
    /// topology of the CPUs is unknown.
    pub activity: Vec<CpuActivity>,
    /// Names of contexts and tasks, by number.
    pub names: Vec<ContextName>,
    /// What the kernel's side saw; absent when it was not watched.
    pub traced: Option<Traced>,
    /// The largest error of the rate of the clock in which times are given, relative to the second: 0 in a
    /// simulated machine; absent where it is unknown.
    pub clock_rate_error: Option<f64>,
    /// What the probes change: the loop without and with them, in pairs of short windows. Empty where that
    /// was not compared.
    pub pairs: Vec<PairedWindows>,
    /// Timers that were set for known times, to see whether the loop finds them.
    pub injected: Vec<Injected>,
    /// Cut short by the user.
    pub interrupted: bool,
    /// What a reader must know of this window.
    pub warnings: Vec<String>,
    /// What a reader must know of single CPUs in it.
    pub cpu_warnings: Vec<CpuWarning>,
    /// Figures of this window, for the settings.
    pub facts: Map<String, Json>,
}

impl NoiseSample {
    /// A whole window of a loop in a clock without error, such as that of a simulated machine; nothing else is
    /// known of it yet.
    #[must_use]
    pub fn in_exact_clock(looping: Loop, cpus: Vec<CpuNoise>) -> NoiseSample {
        NoiseSample {
            looping,
            cpus,
            unmeasured: Vec::new(),
            activity: Vec::new(),
            names: Vec::new(),
            traced: None,
            clock_rate_error: Some(0.0),
            pairs: Vec::new(),
            injected: Vec::new(),
            interrupted: false,
            warnings: Vec::new(),
            cpu_warnings: Vec::new(),
            facts: Map::new(),
        }
    }
}

impl NoiseSample {
    /// Whether the loop ran on each CPU of the plan until the window's end.
    #[must_use]
    pub fn has_all_cpus(&self) -> bool {
        self.unmeasured.is_empty() && self.cpus.iter().all(|cpu| !cpu.left)
    }
}

/// Timers that were set for one time on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    pub cpu: u32,
    pub timers: u32,
    /// When they were set for, ns.
    pub planned_ns: u64,
    /// When their interrupt came, ns; absent when none did that soon.
    pub interrupt_ns: Option<u64>,
    /// For how long the loop did not run from there on, ns.
    pub stalled_ns: u64,
    /// The length of the detour in which that lies; absent when the loop recorded none.
    pub found_ns: Option<u64>,
    /// The part of it that is the loop's own time.
    pub own_ns: u64,
}

/// What the kernel's side saw, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    pub marks: u64,
    /// Marks for which there was no room.
    pub lost: u64,
    /// Marks outside of every gap: gaps below the threshold.
    pub outside: u64,
    /// Whether every cycle was seen: nothing is bounded or concluded then, but known.
    pub whole: bool,
}

/// The detour loop without and with probes, in two short windows one after the other; over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PairedWindows {
    /// Share of the CPUs' time that detours took, without probes and with them.
    pub lost_ratio: [f64; 2],
    /// Median length of a detour, ns; absent where there was none.
    pub detour_p50_ns: [Option<u64>; 2],
}

/// One CPU's part.
#[derive(Clone, Debug)]
pub struct CpuNoise {
    /// Its number.
    pub cpu: u32,
    /// When its loop started, ns.
    pub start_ns: u64,
    /// How long it ran, ns.
    pub window_ns: u64,
    /// What it saw.
    pub result: LoopResult,
    /// Records for which there was no room.
    pub lost_records: u64,
    /// Records made on another CPU than this.
    pub migrated: u64,
    /// Whether the kernel moved the loop's thread to another CPU, as when this one goes offline: the window
    /// ended there.
    pub left: bool,
    /// Page faults that the kernel counted for the loop; absent when it does not say.
    pub page_faults: Option<u64>,
    /// Switches away from the loop that the kernel counted; absent when it does not say.
    pub switches: Option<u64>,
    /// Time that the host says it took from this CPU, ns, in steps of /proc/stat; absent when it
    /// does not say.
    pub steal_ns: Option<u64>,
    /// System management interrupts that the processor counted; absent when it does not, or may not
    /// be asked.
    pub smi_count: Option<u64>,
}

impl CpuNoise {
    /// A loop that ran without losses, on a bench that counts none of the other figures.
    #[must_use]
    pub fn new(cpu: u32, start_ns: u64, window_ns: u64, result: LoopResult) -> Self {
        CpuNoise {
            cpu,
            start_ns,
            window_ns,
            result,
            lost_records: 0,
            migrated: 0,
            left: false,
            page_faults: None,
            switches: None,
            steal_ns: None,
            smi_count: None,
        }
    }
}

/// What a loop saw.
#[derive(Clone, Debug)]
pub enum LoopResult {
    /// The detour loop.
    Gaps(Box<GapLedger>),
    /// Fixed work.
    Quanta(Box<Fixed>),
    /// Fixed time.
    Slots(Box<Slots>),
}

/// Quanta of fixed work.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// The time of all of them, ns.
    pub times: Distribution,
    /// The first of them.
    pub first: Vec<Quantum>,
    /// The minimum time, ns, of each block of the window, in order.
    pub least_ns: Vec<u64>,
    /// What used the cycles of each quantum; empty if not every cycle was seen.
    pub cycles: Vec<QuantumCycles>,
}

/// What used the cycles of a quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantumCycles {
    /// The loop itself.
    pub own: u64,
    /// Others.
    pub taken: u64,
    /// How often others took the CPU in it.
    pub departures: u64,
    /// How often between it and the quantum before.
    pub departures_before: u64,
    /// What took it first.
    pub first: Option<Part>,
    /// Whether another task ran.
    pub switched: bool,
}

/// Slots of fixed time.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Length of a slot, ns.
    pub slot_ns: u64,
    /// Slots that passed.
    pub count: u64,
    /// The work done in them, all together.
    pub work_sum: u64,
    /// Maximum work done in one.
    pub work_max: u64,
    /// Slots in which no work was done at all.
    pub empty: u64,
    /// The work of the first slots.
    pub first: Vec<u64>,
}

/// Maximum number of quanta that are stored one by one.
const QUANTA_MAX: usize = 10_000;
/// Maximum number of slots that are stored one by one.
const SLOTS_MAX: usize = 1 << 16;
/// Blocks of a window; the minimum time of a quantum is found in each.
const BLOCKS: usize = 10;

impl Fixed {
    /// Quanta of a block in a window of `expected` quanta.
    #[must_use]
    pub fn quanta_per_block(expected: u64) -> u64 {
        expected.div_ceil(BLOCKS as u64).max(1)
    }

    /// Adds the next quantum, in blocks of `quanta_per_block`.
    pub fn add(&mut self, quantum: Quantum, quanta_per_block: u64) {
        let at = (self.times.count / quanta_per_block.max(1)) as usize;
        match self.least_ns.get_mut(at) {
            Some(least) => *least = quantum.time_ns.min(*least),
            None if at < BLOCKS => self.least_ns.push(quantum.time_ns),
            None => {}
        }
        self.times.record(quantum.time_ns, quantum.start_ns);
        if self.first.len() < QUANTA_MAX {
            self.first.push(quantum);
        }
    }
}

impl Slots {
    /// Adds the slot of that number with its work; those since the last one had none. The first one
    /// started late: no matter.
    pub fn add(&mut self, slot: u64, work: u64) {
        if slot < self.count {
            return;
        }
        self.empty += slot - self.count + u64::from(work == 0);
        let place = usize::try_from(slot).unwrap_or(usize::MAX);
        if place < SLOTS_MAX {
            self.first.resize(place, 0);
            self.first.push(work);
        }
        self.work_sum = self.work_sum.saturating_add(work);
        self.work_max = self.work_max.max(work);
        self.count = slot.saturating_add(1);
    }

    /// Ends a window: slots that passed at its end had no work.
    pub fn finish(&mut self, window_ns: u64, slot_ns: u64) {
        let passed = (window_ns / slot_ns.max(1)).max(self.count);
        self.slot_ns = slot_ns;
        self.empty += passed - self.count;
        self.count = passed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_without_work_are_counted() {
        let mut slots = Slots::default();
        for (slot, work) in [(0, 9), (1, 10), (4, 3)] {
            slots.add(slot, work);
        }
        assert_eq!(slots.first, [9, 10, 0, 0, 3]);
        assert_eq!((slots.empty, slots.work_sum, slots.work_max, slots.count), (2, 22, 10, 5));
        slots.finish(700, 100);
        assert_eq!((slots.empty, slots.count, slots.slot_ns), (4, 7, 100));
    }
}
