//! What a bench hands in: one window of one condition.

use attribution::{Context, ContextKind};
use serde::{Deserialize, Serialize};
use stats::{Batches, Distribution, JointBatch};

use crate::cpu_warnings::CpuWarning;
use crate::cpus::UnmeasuredCpu;
use crate::services::ServicesSample;

/// Where the time of a context comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Probes at entry and exit.
    Probes,
    /// The kernel's own measurement, handed to the probe.
    Kernel,
    /// A simulator, which sees entry and exit and adds nothing.
    Simulator,
    /// A count alone: the kernel has no exit event.
    CountOnly,
    /// No time: the value is the number of packets of a poll.
    Packets,
}

impl Timing {
    /// Whether entry and exit of each span were seen.
    #[must_use]
    pub fn has_spans(self) -> bool {
        matches!(self, Timing::Probes | Timing::Simulator)
    }

    /// The name used in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Timing::Probes => "probes",
            Timing::Kernel => "kernel",
            Timing::Simulator => "simulator",
            Timing::CountOnly => "none",
            Timing::Packets => "packets",
        }
    }
}

/// PMU events of one context on one CPU, summed over spans.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventSums {
    /// Spans whose events were read at both ends.
    pub spans: u64,
    /// Per event of the pass: the sum of self deltas.
    pub own: Vec<u64>,
    /// Per event of the pass: the sum of inclusive deltas.
    pub inclusive: Vec<u64>,
    /// Per event of the pass: what reading added to `own`, as measured for this context; empty where
    /// what [`super::ProbeOverhead::events`] says stands for all.
    pub added: Vec<u64>,
    /// Per event of the pass: half of the 95 % interval of what reading adds to `own` of a span; `None` or
    /// no element where it is not known.
    pub added_mean_ci95: Vec<Option<f64>>,
    /// The spans, and the sums of their self deltas per event of the pass, in batches of the window; without
    /// cells when they were not kept.
    pub batches: Batches<JointBatch>,
}

impl EventSums {
    /// What reading added to `own` of an event of the pass; `overhead` a span, where nothing better
    /// is known. `None` if that isn't known either.
    #[must_use]
    pub fn added(&self, event: usize, overhead: Option<f64>) -> Option<f64> {
        let by_source = self.added.get(event).map(|added| *added as f64);
        by_source.or_else(|| Some(overhead? * self.spans as f64))
    }
}

/// Statistics of one context on one CPU, in one window. Times are in ns, what the probes add subtracted.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextStats {
    pub cpu: u32,
    pub context: Context,
    /// Where its times come from.
    pub timing: Timing,
    /// Spans that ended, polls, or faults.
    pub count: u64,
    /// Self time of each span; or packets of each poll.
    pub own: Distribution,
    /// Inclusive time of each span.
    pub inclusive: Distribution,
    /// Spans with another span inside.
    pub nested_count: u64,
    /// irq: not this device's interrupt. napi: budget used up.
    pub special_count: u64,
    /// Spans that were shorter than what the probes add: 0 ns in all distributions.
    pub clamped_count: u64,
    /// By how much they were shorter, sum, ns.
    pub clamped_total_ns: u64,
    /// What was subtracted for the probes inside the spans, sum, ns.
    pub probe_overhead_total_ns: u64,
    /// Entries whose exit was not seen.
    pub abandoned_count: u64,
    /// Whether this is an action after the first of a shared line.
    pub shared: bool,
    /// PMU events, in a pass that reads any.
    pub events: EventSums,
}

/// Half of the 95 % interval of what is subtracted for probes: `mean_ns` of a span, where it is `warm_ns` in warm
/// caches. How far off both parts are of the exact values of the simulator: the warm one by up to a
/// quarter, from build to build; the other, which is learned from the exit program, by a factor of two (`irqlab sim
/// verify-probes`; docs/validation.md).
#[must_use]
pub fn probe_overhead_error(mean_ns: f64, warm_ns: f64) -> f64 {
    0.25 * mean_ns.min(warm_ns) + (mean_ns - warm_ns).max(0.0)
}

impl ContextStats {
    /// A context that was entered `count` times, of whose spans nothing else is known yet.
    #[must_use]
    pub fn new(cpu: u32, context: Context, timing: Timing, count: u64) -> ContextStats {
        ContextStats {
            cpu,
            context,
            timing,
            count,
            own: Distribution::default(),
            inclusive: Distribution::default(),
            nested_count: 0,
            special_count: 0,
            clamped_count: 0,
            clamped_total_ns: 0,
            probe_overhead_total_ns: 0,
            abandoned_count: 0,
            shared: false,
            events: EventSums::default(),
        }
    }

    /// Sum of the self times, ns, with the probe overhead subtracted: negative where more was subtracted
    /// than was measured.
    #[must_use]
    pub fn self_total_ns(&self) -> i64 {
        (i128::from(self.own.sum) - i128::from(self.clamped_total_ns))
            .clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// The window on one CPU, and what could not be attributed in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuWindow {
    pub cpu: u32,
    /// When it opened, in the clock of this CPU's peaks, ns; `None` where that clock is not known to
    /// be the window's.
    pub start_ns: Option<u64>,
    /// How long it was open, ns.
    pub length_ns: u64,
    /// Whether it closed early because the kernel took the CPU offline.
    pub went_offline: bool,
    /// Spans that started before the window: their exits found no entry. `None` where they are not
    /// counted.
    pub unmatched_exits: Option<u64>,
    /// Entries whose exit was not seen. `None` where they are not counted.
    pub abandoned: Option<u64>,
    /// Entries that found the stack full: lost.
    pub overflows: u64,
    /// Spans that found no row: lost.
    pub unattributed: u64,
}

/// One counter of the kernel compared with what the bench counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    pub cpu: u32,
    /// Line of /proc/interrupts or /proc/softirqs, such as `LOC`, `36` or `NET_RX`.
    pub line: String,
    /// What it is, such as the action's name.
    pub name: String,
    /// What the bench counted; `None` where it has no probe.
    pub counted: Option<u64>,
    /// The kernel's counter, read on that CPU at the very edges of the window.
    pub kernel_exact: Option<u64>,
    /// Minimum by the files: last reading inside the window minus first reading inside.
    pub kernel_min: Option<u64>,
    /// The most: first reading after the window less last reading before.
    pub kernel_max: Option<u64>,
    /// How much the edges alone can make `counted` differ from `kernel_exact`; of all IRQ lines together,
    /// also how many nested threaded interrupts the kernel may have counted, which no probe can see.
    pub edge_max: u64,
}

/// The line of all device interrupts together, which no file has.
pub const ALL_DEVICES: &str = "devices";

impl Agreement {
    /// By how much the kernel's exact count exceeds the bench's: events that no probe was called for. `None`
    /// where one of the two counts is not known.
    #[must_use]
    pub fn undelivered(&self) -> Option<u64> {
        let (counted, kernel) = (self.counted?, self.kernel_exact?);
        Some(kernel.saturating_sub(counted.saturating_add(self.edge_max)))
    }

    /// At most how many events of this line no probe was called for; `None` where nothing bounds them.
    fn undelivered_max(&self) -> Option<u64> {
        self.undelivered().or_else(|| Some(self.kernel_max?.saturating_sub(self.counted?)))
    }

    /// Whether the kernel's counter includes the entries of a context.
    #[must_use]
    pub fn includes(&self, context: &Context) -> bool {
        match context.kind {
            ContextKind::HardIrq => {
                self.line == ALL_DEVICES || self.line == context.number.to_string()
            }
            ContextKind::Vector => self.name.split(", ").any(|name| name == context.name),
            ContextKind::Softirq => self.name == "softirq" && self.line == context.name,
            _ => false,
        }
    }
}

/// What one window gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowSample {
    /// The window on each measured CPU.
    pub windows: Vec<CpuWindow>,
    /// CPUs that were to be measured and have no window.
    pub unmeasured: Vec<UnmeasuredCpu>,
    /// CPUs that came online after the window had opened.
    pub came_online: Vec<u32>,
    /// The statistics of each context on each CPU.
    pub contexts: Vec<ContextStats>,
    /// The kernel's counters.
    pub agreement: Vec<Agreement>,
    /// Events that the kernel dropped because a probe was running.
    pub missed: u64,
    /// CPU time that the measuring process used meanwhile, ns.
    pub user_cpu_ns: u64,
    /// CPU time that the probes used meanwhile, by what they cost where they ran, ns; `None` where that was
    /// not measured.
    pub probe_ns: Option<u64>,
    /// What the load did meanwhile: operations, ns.
    pub load_work: Option<StimulusStats>,
    /// What the stimulus did meanwhile.
    pub stimulus_work: Option<StimulusStats>,
    /// What services of the kernel took meanwhile, with what they missed in caches; absent where that was not
    /// measured.
    pub services: Option<Box<ServicesSample>>,
    /// Whether it was cut short.
    pub interrupted: bool,
    /// What a reader must know.
    pub warnings: Vec<String>,
    /// What a reader must know of single CPUs.
    pub cpu_warnings: Vec<CpuWarning>,
    /// Settings in force that only the bench knows, such as the file read or the interface.
    pub facts: serde_json::Map<String, serde_json::Value>,
}

/// Statistics of what a load or a stimulus did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StimulusStats {
    /// Reads, pings, sends, wake-ups or compressed chunks.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// How long it ran, ns.
    pub elapsed_ns: u64,
}

impl WindowSample {
    /// Events handed to the probes: two for a span, one for a poll, a fault or an NMI.
    #[must_use]
    pub fn events(&self) -> u64 {
        let per_span = |stats: &ContextStats| match stats.timing {
            timing if timing.has_spans() => 2 * stats.count,
            _ => stats.count,
        };
        self.contexts.iter().map(per_span).sum()
    }

    /// Events that were lost: dropped by the kernel, or without a place.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let cpu = |window: &CpuWindow| window.overflows + window.unattributed;
        self.missed + self.windows.iter().map(cpu).sum::<u64>()
    }

    /// Interrupts that the kernel counted and did not hand to the probes.
    #[must_use]
    pub fn undelivered(&self) -> u64 {
        self.agreement.iter().filter_map(Agreement::undelivered).sum()
    }

    /// At most how many entries of a context the kernel counted on a CPU, or on all (`None`), and did not hand
    /// to the probes. It counts some contexts together: then each of them may lack all that is missing.
    /// `None` where the kernel has no exact counter that includes the context.
    #[must_use]
    pub fn undelivered_max(&self, context: &Context, cpu: Option<u32>) -> Option<u64> {
        let on_cpu = |cpu: u32| {
            let lines = || {
                let of_cpu = self.agreement.iter().filter(move |line| line.cpu == cpu);
                of_cpu.filter(|line| line.includes(context))
            };
            lines().find_map(Agreement::undelivered)?;
            lines().filter_map(Agreement::undelivered_max).min()
        };
        match cpu {
            Some(cpu) => on_cpu(cpu),
            None if self.windows.is_empty() => None,
            None => self.windows.iter().map(|window| on_cpu(window.cpu)).sum(),
        }
    }

    /// The open time of all CPUs together, ns.
    #[must_use]
    pub fn cpu_time_ns(&self) -> u64 {
        self.windows.iter().map(|window| window.length_ns).sum()
    }

    /// The mean open time, ns, of the CPUs that stayed online; of all where none did. Counts of several CPUs
    /// together are rates over this time: a CPU that was measured for a part of it adds what it counted.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        let stayed = || self.windows.iter().filter(|window| !window.went_offline);
        let whole = stayed().count() as u64;
        match whole {
            0 => self.windows.iter().map(|window| window.length_ns).max().unwrap_or(0),
            _ => stayed().map(|window| window.length_ns).sum::<u64>() / whole,
        }
    }

    /// Whether each CPU of the plan was measured until the window's end.
    #[must_use]
    pub fn has_all_cpus(&self) -> bool {
        self.unmeasured.is_empty() && self.windows.iter().all(|window| !window.went_offline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of a CPU: counted by the bench, exactly by the kernel, and at most by the files.
    fn line(
        (cpu, line, name): (u32, &str, &str),
        counted: u64,
        kernel_exact: Option<u64>,
        kernel_max: Option<u64>,
    ) -> Agreement {
        Agreement {
            cpu,
            line: line.to_owned(),
            name: name.to_owned(),
            counted: Some(counted),
            kernel_exact,
            kernel_min: None,
            kernel_max,
            edge_max: u64::from(name == "softirq"),
        }
    }

    fn context(kind: ContextKind, number: u32, name: &str) -> Context {
        Context { kind, number, name: name.to_owned() }
    }

    #[test]
    fn each_context_lacks_at_most_what_its_counters_say() {
        let calls = "call_function, call_function_single";
        let agreement = vec![
            line((0, "LOC", "local_timer"), 90, Some(100), None),
            line((1, "LOC", "local_timer"), 50, Some(50), None),
            line((0, "CAL", calls), 7, Some(10), None),
            line((0, "NET_RX", "softirq"), 7, Some(10), None),
            line((0, ALL_DEVICES, "all IRQ lines"), 90, Some(95), None),
            line((0, "36", "disk"), 40, None, Some(42)),
            line((0, "37", "card"), 50, None, Some(59)),
        ];
        let windows = [0, 1].map(|cpu| CpuWindow { cpu, ..CpuWindow::default() }).to_vec();
        let sample = WindowSample { agreement, windows, ..WindowSample::default() };
        let lacks = |kind, number, name: &str, cpu| {
            sample.undelivered_max(&context(kind, number, name), cpu)
        };
        let (vector, irq) = (ContextKind::Vector, ContextKind::HardIrq);
        assert_eq!(lacks(vector, 0, "local_timer", Some(0)), Some(10));
        assert_eq!(lacks(vector, 0, "local_timer", Some(1)), Some(0));
        assert_eq!(lacks(vector, 0, "local_timer", None), Some(10), "both CPUs");
        for name in ["call_function", "call_function_single"] {
            assert_eq!(lacks(vector, 1, name, Some(0)), Some(3), "counted together");
        }
        assert_eq!(lacks(ContextKind::Softirq, 3, "NET_RX", Some(0)), Some(2), "less the edge");
        // All lines lack 5 together; the files say that line 36 lacks 2 at most.
        assert_eq!(
            [lacks(irq, 36, "disk", Some(0)), lacks(irq, 37, "card", Some(0))],
            [Some(2), Some(5)]
        );
        // Without a counter nothing is known: of a CPU, and so of all.
        assert_eq!(lacks(ContextKind::Softirq, 3, "NET_RX", None), None);
        assert_eq!(lacks(ContextKind::NapiPoll, 1, "NET_RX", Some(0)), None);
        assert_eq!(lacks(vector, 0, "thermal_apic", Some(0)), None);
        assert_eq!(WindowSample::default().undelivered_max(&context(vector, 0, ""), None), None);
        assert_eq!(sample.undelivered(), 10 + 3 + 2 + 5);
    }
}
