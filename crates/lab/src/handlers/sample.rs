//! One window of one condition, as a bench reports it. `live/src/handlers/convert.rs` and `sim/src/handlers/convert.rs`
//! make these samples; the tables of `handlers`, the papers and `irqlab watch` read them.

use std::sync::Arc;

use attribution::{Context, ContextKind};
use serde::{Deserialize, Serialize};
use stats::{Batches, Distribution, JointBatch};

use super::delays::DelayStats;
use super::senders::SenderStats;
use super::victims::Victims;
use crate::cpu_warnings::CpuWarning;
use crate::cpus::UnmeasuredCpu;
use crate::services::ServicesSample;
use crate::timeline::Timeline;

/// The source of a context's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Probes at entry and exit.
    Probes,
    /// The kernel's own measurement, which it passes to the probe.
    Kernel,
    /// A simulator. It observes entry and exit without overhead.
    Simulator,
    /// None: the spans are only counted, because the kernel has no exit event.
    CountOnly,
    /// None: the values are packets per poll, not times.
    Packets,
}

impl Timing {
    /// Whether the bench observes entry and exit of each span.
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

/// PMU events of one context on one CPU, summed over spans. All lists have the order of the pass's events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventSums {
    /// Spans whose events were read at both ends.
    pub spans: u64,
    /// For each event of the pass: the sum over spans, without nested spans.
    pub own: Vec<u64>,
    /// For each event of the pass: the sum over spans, with nested spans.
    pub inclusive: Vec<u64>,
    /// For each event of the pass: events that reading the counters added to `own`, measured for this context.
    /// Empty if [`super::ProbeOverhead::events`] holds for all contexts.
    pub added: Vec<u64>,
    /// For each event of the pass: half width of the 95 % confidence interval of the events that reading adds to
    /// a span. Unknown if `None` or missing.
    pub added_mean_ci95: Vec<Option<f64>>,
    /// Batches of the window: in each cell, the number of spans and the sum of each event of the pass, without nested
    /// spans. No cells if the bench did not keep them.
    pub batches: Batches<JointBatch>,
}

impl EventSums {
    /// The events that reading the counters added to `own`, for the event with this index in the pass. Without a
    /// measurement for this context: `overhead` per span, times the spans. `None` if `overhead` is unknown, too.
    #[must_use]
    pub fn added_by_reading(&self, event: usize, overhead: Option<f64>) -> Option<f64> {
        let measured = self.added.get(event).map(|added| *added as f64);
        measured.or_else(|| Some(overhead? * self.spans as f64))
    }
}

/// Statistics of one context on one CPU, in one window. Times are in ns; the probe overhead is subtracted.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextStats {
    pub cpu: u32,
    pub context: Context,
    pub timing: Timing,
    /// Spans that ended, polls, or faults.
    pub count: u64,
    /// Self time of each span, or packets of each poll.
    pub own: Distribution,
    /// Inclusive time of each span.
    pub inclusive: Distribution,
    /// Spans that a nested span interrupted.
    pub nested_count: u64,
    /// For an IRQ: handlers that returned `IRQ_NONE`. For NAPI: polls that used up their budget.
    pub special_count: u64,
    /// Spans shorter than the probe overhead. They are 0 ns in all distributions.
    pub clamped_count: u64,
    /// Sum over the clamped spans: probe overhead minus the span's time, ns.
    pub clamped_total_ns: u64,
    /// Sum of the probe overhead that was subtracted from the spans, ns.
    pub probe_overhead_total_ns: u64,
    /// Entries without a matching exit.
    pub abandoned_count: u64,
    /// Whether this is an action of a shared IRQ line, but not the line's first action.
    pub shared: bool,
    /// PMU events; default in the timing pass.
    pub events: EventSums,
}

/// The mean probe overhead of a span, ns.
#[derive(Clone, Copy, Debug)]
pub struct SpanOverhead {
    /// The overhead that was subtracted from a span, in the caches of the run.
    pub mean_ns: f64,
    /// The overhead in warm caches.
    pub warm_ns: f64,
}

impl SpanOverhead {
    /// Half width of the 95 % confidence interval of `mean_ns`.
    ///
    /// It is the sum of two limits: a quarter of the warm part, and all of the part that cold caches add. Comparisons
    /// with the simulator's exact values gave both (`irqlab sim verify-probes`; docs/validation.md). The warm part
    /// depends on the build. The live bench learns the cold part from the exit program only.
    #[must_use]
    pub fn half_width_95_ns(self) -> f64 {
        let SpanOverhead { mean_ns, warm_ns } = self;
        0.25 * mean_ns.min(warm_ns) + (mean_ns - warm_ns).max(0.0)
    }
}

impl ContextStats {
    /// A context with `count` spans, without any times or events yet.
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

    /// Sum of the self times, ns, with the probe overhead subtracted. Can be negative: a span shorter than its overhead
    /// has a negative time here, although the distribution has 0. Sums of the distribution would be too large, because
    /// the overhead is a mean: spans scatter around it.
    #[must_use]
    pub fn self_total_ns(&self) -> i64 {
        self.total_with_clamped(&self.own)
    }

    /// Sum of the inclusive times, ns, like [`ContextStats::self_total_ns`].
    #[must_use]
    pub fn inclusive_total_ns(&self) -> i64 {
        self.total_with_clamped(&self.inclusive)
    }

    fn total_with_clamped(&self, times: &Distribution) -> i64 {
        (i128::from(times.sum) - i128::from(self.clamped_total_ns))
            .clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// The window on one CPU, and the entries, exits and spans on this CPU that no context has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuWindow {
    pub cpu: u32,
    /// When the window opened, by the clock of this CPU's peaks, ns. `None` if the window may have another clock.
    pub start_ns: Option<u64>,
    /// How long the window was open, ns.
    pub length_ns: u64,
    /// Whether the window closed early because the kernel took the CPU offline.
    pub went_offline: bool,
    /// Exits of spans that started before the window opened. `None` if the bench does not count them.
    pub unmatched_exits: Option<u64>,
    /// Entries without a matching exit. `None` if the bench does not count them.
    pub abandoned: Option<u64>,
    /// Entries lost because the probes' stack was full.
    pub overflows: u64,
    /// Spans lost because the probes' map had no room for their context.
    pub unattributed: u64,
}

/// A counter of the kernel, compared with the bench's count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    pub cpu: u32,
    /// Line of /proc/interrupts or /proc/softirqs, such as `LOC`, `36` or `NET_RX`.
    pub line: String,
    /// Name of the interrupt or softirq, such as the action's name.
    pub name: String,
    /// The bench's count; `None` without a probe.
    pub counted: Option<u64>,
    /// The kernel's count in the window, exact: the counter is read on this CPU when the window opens and closes.
    pub kernel_exact: Option<u64>,
    /// Lower bound by the files in /proc: last reading inside the window minus first reading inside.
    pub kernel_min: Option<u64>,
    /// Upper bound by the files in /proc: first reading after the window minus last reading before.
    pub kernel_max: Option<u64>,
    /// Maximum difference between `counted` and `kernel_exact` that interrupts at the edges of the window can cause.
    /// For [`ALL_DEVICES`], it includes the nested threaded interrupts, which the kernel counts and no probe sees.
    pub edge_max: u64,
}

/// The line of all device interrupts together. No file contains this line.
pub const ALL_DEVICES: &str = "devices";

impl Agreement {
    /// Undelivered events: the kernel counted them but called no probe. This is the kernel's exact count minus the
    /// bench's count and the edge tolerance. `None` if either count is unknown.
    #[must_use]
    pub fn undelivered(&self) -> Option<u64> {
        let (counted, kernel) = (self.counted?, self.kernel_exact?);
        Some(kernel.saturating_sub(counted.saturating_add(self.edge_max)))
    }

    /// Lower bound of the undelivered events of the line; `None` without a bound.
    fn undelivered_min(&self) -> Option<u64> {
        let (counted, kernel) = (self.counted?, self.kernel_exact.or(self.kernel_min)?);
        Some(kernel.saturating_sub(counted.saturating_add(self.edge_max)))
    }

    /// Whether the line counts interrupts of one IRQ line.
    fn is_irq_line(&self) -> bool {
        self.line.parse::<u32>().is_ok()
    }

    /// Upper bound of the undelivered events of the line; `None` without a bound.
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

/// The measurements of one window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowSample {
    /// The window on each measured CPU.
    pub windows: Vec<CpuWindow>,
    /// CPUs of the plan without a window.
    pub unmeasured: Vec<UnmeasuredCpu>,
    /// CPUs that came online after the window opened.
    pub came_online: Vec<u32>,
    pub contexts: Vec<ContextStats>,
    /// The kernel's counters, compared with the bench's counts.
    pub agreement: Vec<Agreement>,
    /// Events that the kernel dropped because a probe was running.
    pub missed: u64,
    /// CPU time of the measuring process in the window, ns; `None` if it was not measured.
    pub user_cpu_ns: Option<u64>,
    /// CPU time of the probes in the window, measured in situ, ns; `None` if not measured.
    pub probe_ns: Option<u64>,
    /// Statistics of the load in the window.
    pub load_work: Option<StimulusStats>,
    /// Statistics of the stimulus in the window.
    pub stimulus_work: Option<StimulusStats>,
    /// Times and cache misses of kernel services in the window; `None` if not measured.
    pub services: Option<Box<ServicesSample>>,
    /// Delays from raise or queueing to run. `None` if they were not measured.
    pub delays: Option<Vec<DelayStats>>,
    /// Senders of function calls and interrupts to the measured CPUs. `None` if they were not measured.
    pub senders: Option<Vec<SenderStats>>,
    /// Who pays for interrupts and who causes them. `None` if it was not measured.
    pub victims: Option<Victims>,
    /// Single events of the window. `None` if they were not recorded.
    pub timeline: Option<Arc<Timeline>>,
    /// Whether a request to stop or a limit ended the window early.
    pub interrupted: bool,
    /// Whether the window ended early because it had measured enough (`--until`).
    pub had_enough: bool,
    /// Warnings about this window.
    pub warnings: Vec<String>,
    /// Warnings about single CPUs.
    pub cpu_warnings: Vec<CpuWarning>,
    /// Settings that only the bench knows, such as the file that was read, or the interface.
    pub facts: serde_json::Map<String, serde_json::Value>,
}

/// Statistics of a load or a stimulus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StimulusStats {
    /// Reads, pings, sends, wake-ups or compressed chunks.
    pub operations: u64,
    /// Number of bytes moved.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Running time, ns.
    pub elapsed_ns: u64,
}

impl WindowSample {
    /// Events that the probes handled: two per span, one per poll, fault or NMI.
    #[must_use]
    pub fn events(&self) -> u64 {
        let per_span = |stats: &ContextStats| match stats.timing {
            timing if timing.has_spans() => 2 * stats.count,
            _ => stats.count,
        };
        self.contexts.iter().map(per_span).sum()
    }

    /// Events lost: the kernel dropped them, or they had no room in a map.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let lost_on_cpu = |window: &CpuWindow| window.overflows + window.unattributed;
        self.missed + self.windows.iter().map(lost_on_cpu).sum::<u64>()
    }

    /// Whether the kernel's exact count of all device interrupts on a CPU is known. Each IRQ line of the CPU is in it.
    fn has_exact_devices(&self, cpu: u32) -> bool {
        let on_cpu = |line: &Agreement| line.cpu == cpu && line.line == ALL_DEVICES;
        self.agreement.iter().any(|line| on_cpu(line) && line.undelivered().is_some())
    }

    /// Undelivered interrupts and softirqs: the kernel counted them but called no probe. `None` if the kernel's exact
    /// count of some line that has probes is unknown.
    #[must_use]
    pub fn undelivered(&self) -> Option<u64> {
        let is_unknown = |line: &Agreement| {
            let has_kernel_count = line.kernel_min.is_some() || line.kernel_max.is_some();
            let is_in_devices = line.is_irq_line() && self.has_exact_devices(line.cpu);
            line.counted.is_some()
                && line.kernel_exact.is_none()
                && has_kernel_count
                && !is_in_devices
        };
        if self.agreement.iter().any(is_unknown) {
            return None;
        }
        let known: Vec<u64> = self.agreement.iter().filter_map(Agreement::undelivered).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    /// Lower bound of the undelivered interrupts and softirqs, by the exact counts and the files in /proc.
    #[must_use]
    pub fn undelivered_min(&self) -> u64 {
        let is_counted_once =
            |line: &&Agreement| !line.is_irq_line() || !self.has_exact_devices(line.cpu);
        let lines = self.agreement.iter().filter(is_counted_once);
        lines.filter_map(Agreement::undelivered_min).sum()
    }

    /// Upper bound of a context's undelivered entries, on `cpu` or, for `None`, on all CPUs. The kernel counts some
    /// contexts together: each context of such a group may lack all missing entries of the group.
    ///
    /// Returns `None` if the kernel has no counter that includes the context.
    #[must_use]
    pub fn undelivered_max(&self, context: &Context, cpu: Option<u32>) -> Option<u64> {
        let on_cpu = |cpu: u32| {
            let lines = || {
                let cpu_lines = self.agreement.iter().filter(move |line| line.cpu == cpu);
                cpu_lines.filter(|line| line.includes(context))
            };
            lines().filter_map(Agreement::undelivered_max).min()
        };
        match cpu {
            Some(cpu) => on_cpu(cpu),
            None if self.windows.is_empty() => None,
            None => self.windows.iter().map(|window| on_cpu(window.cpu)).sum(),
        }
    }

    /// Sum of the windows' lengths over the CPUs, ns.
    #[must_use]
    pub fn cpu_time_ns(&self) -> u64 {
        self.windows.iter().map(|window| window.length_ns).sum()
    }

    /// Mean length of the window over the CPUs that stayed online, ns. If no CPU stayed online: the maximum length.
    ///
    /// The rate of several CPUs together is the sum of their counts over this length.
    /// The sum includes CPUs that went offline.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        let online = || self.windows.iter().filter(|window| !window.went_offline);
        match online().count() as u64 {
            0 => self.windows.iter().map(|window| window.length_ns).max().unwrap_or(0),
            count => online().map(|window| window.length_ns).sum::<u64>() / count,
        }
    }

    /// Whether each CPU of the plan was measured to the end of the window.
    #[must_use]
    pub fn has_all_cpus(&self) -> bool {
        self.unmeasured.is_empty() && self.windows.iter().all(|window| !window.went_offline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter line of a CPU: the bench's count, the kernel's exact count, and the upper bound by the files.
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
    fn the_counters_bound_the_missing_entries_of_each_context() {
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
        let missing_max = |kind, number, name: &str, cpu| {
            sample.undelivered_max(&context(kind, number, name), cpu)
        };
        let (vector, irq) = (ContextKind::Vector, ContextKind::HardIrq);
        assert_eq!(missing_max(vector, 0, "local_timer", Some(0)), Some(10));
        assert_eq!(missing_max(vector, 0, "local_timer", Some(1)), Some(0));
        assert_eq!(missing_max(vector, 0, "local_timer", None), Some(10), "both CPUs");
        for name in ["call_function", "call_function_single"] {
            assert_eq!(missing_max(vector, 1, name, Some(0)), Some(3), "counted together");
        }
        assert_eq!(
            missing_max(ContextKind::Softirq, 3, "NET_RX", Some(0)),
            Some(2),
            "less the edge"
        );
        // All IRQ lines together lack 5. The files bound the missing entries of line 36 by 2.
        assert_eq!(
            [missing_max(irq, 36, "disk", Some(0)), missing_max(irq, 37, "card", Some(0))],
            [Some(2), Some(5)]
        );
        // Without a counter on one CPU, the bound is unknown on that CPU and on all CPUs together.
        assert_eq!(missing_max(ContextKind::Softirq, 3, "NET_RX", None), None);
        assert_eq!(missing_max(ContextKind::NapiPoll, 1, "NET_RX", Some(0)), None);
        assert_eq!(missing_max(vector, 0, "thermal_apic", Some(0)), None);
        assert_eq!(WindowSample::default().undelivered_max(&context(vector, 0, ""), None), None);
        assert_eq!(sample.undelivered(), Some(10 + 3 + 2 + 5));
        assert_eq!(sample.undelivered_min(), 10 + 3 + 2 + 5);
    }

    /// Without the exact counters, the files bound the missing entries from both sides.
    #[test]
    fn without_exact_counters_the_number_of_missing_entries_is_absent() {
        let bounded = |place, counted, kernel_min, kernel_max| Agreement {
            kernel_min: Some(kernel_min),
            ..line(place, counted, None, Some(kernel_max))
        };
        let agreement = vec![
            line((0, ALL_DEVICES, "all IRQ lines"), 125, None, None),
            bounded((0, "36", "disk"), 125, 130, 132),
            bounded((0, "LOC", "local_timer"), 90, 100, 108),
            bounded((0, "BLOCK", "softirq"), 125, 130, 132),
            line((0, "THR", "threshold_apic"), 0, None, None),
        ];
        let windows = vec![CpuWindow::default()];
        let mut sample = WindowSample { agreement, windows, ..WindowSample::default() };
        assert_eq!((sample.undelivered(), sample.undelivered_min()), (None, 5 + 10 + 4));
        let missing_max = |sample: &WindowSample, kind, number, name: &str| {
            sample.undelivered_max(&context(kind, number, name), Some(0))
        };
        assert_eq!(missing_max(&sample, ContextKind::Vector, 0, "local_timer"), Some(18));
        assert_eq!(missing_max(&sample, ContextKind::HardIrq, 36, "disk"), Some(7));
        assert_eq!(missing_max(&sample, ContextKind::Vector, 1, "threshold_apic"), None);
        // The exact count of all devices has the disk's interrupts, too.
        sample.agreement[0].kernel_exact = Some(131);
        assert_eq!((sample.undelivered(), sample.undelivered_min()), (None, 6 + 10 + 4));
        sample.agreement.truncate(2);
        assert_eq!((sample.undelivered(), sample.undelivered_min()), (Some(6), 6));
        assert_eq!(WindowSample::default().undelivered(), None, "nothing is compared");
    }
}
