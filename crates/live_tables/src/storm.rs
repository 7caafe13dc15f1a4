//! Tables `storm`, `contexts` and `counts` of `irqlab bench storm`: interrupts at a high rate,
//! counted by irqlab and by the kernel.

use std::collections::BTreeMap;

use attribution::Context;
use lab::handlers::sample::SpanOverhead;
use lab::handlers::{Agreement, ContextStats, Timing};
use lab::targets::{Target, target_columns};
use live::selfbench::storm::Storm;
use record::{Columns, Table, column};

/// Largest growth of the process during the window that meets the target. A few pages are not a leak.
const GROWTH_BYTES_MAX: u64 = 256 << 10;
/// Largest share of a CPU in user mode that meets the target.
const USER_SHARE_MAX: f64 = 0.01;

#[must_use]
pub fn tables(storm: &Storm) -> Vec<Table> {
    vec![window(storm), contexts(storm), counts(storm)]
}

/// Table `storm`: figures of the complete window, with irqlab's targets.
fn window(storm: &Storm) -> Table {
    let sample = &storm.sample;
    let seconds = sample.length_ns() as f64 / 1e9;
    let (first, last) = (storm.resident_bytes.first(), storm.resident_bytes.last());
    let growth = first.zip(last).map(|(first, last)| last.saturating_sub(*first) as f64);
    let rows = [
        Target::unlimited("length, s", seconds),
        Target::unlimited("entry and exit events", sample.events() as f64),
        Target::unlimited("events per second", sample.events() as f64 / seconds),
        Target::unlimited("interrupts and softirqs per second", storm.spans() as f64 / seconds),
        Target::at_most("events lost", sample.lost() as f64, 0.0),
        Target::unlimited(
            "interrupts and softirqs not handed to BPF by the kernel",
            sample.undelivered().map(|count| count as f64),
        ),
        Target::unlimited("resident set at the start, bytes", first.map(|bytes| *bytes as f64)),
        Target::at_most("growth of the resident set, bytes", growth, GROWTH_BYTES_MAX as f64),
        Target::at_most("user-space share of a CPU", storm.user_share(), USER_SHARE_MAX),
    ];
    let columns = target_columns(
        column("quantity", "The measured quantity, with its unit."),
        column("value", "Measured value."),
        column("limit", "Largest value that meets the target."),
    );
    columns.table("storm", "The whole window, all CPUs together.", rows)
}

/// The spans of a context on all CPUs.
#[derive(Default)]
struct Spans {
    count: u64,
    /// Sum of the self times, ns. Spans shorter than the probe overhead are negative in it.
    self_ns: i64,
    /// Sum of the probe overhead that was subtracted, ns.
    overhead_ns: u64,
}

impl Spans {
    fn mean_ns(&self) -> f64 {
        self.self_ns as f64 / self.count as f64
    }

    /// Half width of the 95 % confidence interval of the overhead that was subtracted from a span, ns.
    fn overhead_error_ns(&self, storm: &Storm) -> f64 {
        let mean_ns = self.overhead_ns as f64 / self.count as f64;
        let warm_ns = storm.overhead.in_span_ns as f64;
        SpanOverhead { mean_ns, warm_ns }.half_width_95_ns()
    }
}

/// Table `contexts`: the interrupts and softirqs that were counted, summed over all CPUs.
fn contexts(storm: &Storm) -> Table {
    let mut sums: BTreeMap<&Context, Spans> = BTreeMap::new();
    let is_timed = |stats: &&ContextStats| stats.timing == Timing::Probes;
    for stats in storm.sample.contexts.iter().filter(is_timed) {
        let sum = sums.entry(&stats.context).or_default();
        sum.count += stats.count;
        sum.self_ns = sum.self_ns.saturating_add(stats.self_total_ns());
        sum.overhead_ns = sum.overhead_ns.saturating_add(stats.probe_overhead_total_ns);
    }
    type Row<'a> = (&'a Context, Spans);
    let seconds = storm.sample.length_ns() as f64 / 1e9;
    let columns = Columns::all([
        column("kind", "Kind of context.").text(|(context, _): &Row<'_>| context.kind.label()),
        column("name", "Name of the action, vector or softirq.")
            .text(|(context, _): &Row<'_>| context.name.clone()),
        column("count", "Spans on all CPUs together.").uint(|(_, spans): &Row<'_>| spans.count),
        column("rate_hz", "Spans per second.")
            .real(|(_, spans): &Row<'_>| spans.count as f64 / seconds),
        column("mean_ns", "Mean self time; the probe overhead is subtracted.")
            .plus_minus_error("mean_error_ns")
            .below_limit("mean_below_limit")
            .real(|(_, spans): &Row<'_>| spans.mean_ns()),
        column(
            "mean_error_ns",
            "Half width of the 95 % confidence interval of the probe overhead that was subtracted from a span.",
        )
        .detail()
        .real(|(_, spans): &Row<'_>| spans.overhead_error_ns(storm)),
        column(
            "mean_below_limit",
            "Whether mean_ns is below the detection limit, mean_error_ns. The sum of both is an upper bound.",
        )
        .detail()
        .bool(|(_, spans): &Row<'_>| spans.mean_ns() <= spans.overhead_error_ns(storm)),
    ]);
    columns.table("contexts", "Interrupts and softirqs that were counted.", sums)
}

/// Table `counts`: irqlab's counts, and the kernel's counts of the same lines. Leaves out lines without
/// interrupts, and lines without a probe.
fn counts(storm: &Storm) -> Table {
    let missing = |line: &Agreement| {
        let counts = line.counted.zip(line.kernel_exact);
        counts.map(|(counted, kernel)| kernel as i64 - counted as i64)
    };
    let columns = Columns::all([
        column("cpu", "CPU.").uint(|line: &Agreement| line.cpu),
        column("line", "Line of /proc/interrupts or /proc/softirqs.")
            .text(|line: &Agreement| line.line.clone()),
        column("name", "Name of the line's interrupt or softirq.")
            .text(|line: &Agreement| line.name.clone()),
        column("irqlab_count", "Entries that irqlab counted.")
            .uint(|line: &Agreement| line.counted),
        column("kernel_count", "The kernel's counter, read at the edges of the window.")
            .uint(|line: &Agreement| line.kernel_exact),
        column("kernel_min_count", "Lower bound by the files in /proc.")
            .uint(|line: &Agreement| line.kernel_min),
        column("kernel_max_count", "Upper bound by the files in /proc.")
            .uint(|line: &Agreement| line.kernel_max),
        column("missing_count", "kernel_count minus irqlab_count.").int(missing),
    ]);
    let has_interrupts = |line: &&Agreement| {
        let counts = [line.counted, line.kernel_exact, line.kernel_min];
        // Without a probe there is nothing to compare.
        line.counted.is_some()
            && counts.into_iter().flatten().any(|count| count > 0)
            && line.kernel_max != Some(0)
    };
    let rows = storm.sample.agreement.iter().filter(has_interrupts);
    columns.table("counts", "irqlab's counts compared with the kernel's own.", rows)
}

#[cfg(test)]
mod tests {
    use attribution::ContextKind;
    use lab::handlers::{CpuWindow, ProbeOverhead, WindowSample};
    use record::Value;

    use super::*;

    fn storm() -> Storm {
        let stats = |cpu, count, total_ns| {
            let kind = ContextKind::HardIrq;
            let context = Context { kind, number: 36, name: "nvme".to_owned() };
            let mut stats = ContextStats::new(cpu, context, Timing::Probes, count);
            stats.own.sum = total_ns;
            stats.probe_overhead_total_ns = count * 40;
            stats
        };
        let line = |line: &str, counted, kernel_max| Agreement {
            cpu: 0,
            line: line.to_owned(),
            name: "nvme".to_owned(),
            counted: Some(counted),
            kernel_exact: Some(9),
            kernel_min: None,
            kernel_max,
            edge_max: 0,
        };
        let sample = WindowSample {
            windows: vec![CpuWindow { length_ns: 2_000_000_000, ..CpuWindow::default() }],
            contexts: vec![stats(0, 4, 100), stats(1, 6, 50)],
            agreement: vec![line("36", 7, None), line("37", 3, Some(0)), line("38", 0, Some(4))],
            missed: 2,
            ..WindowSample::default()
        };
        let overhead = ProbeOverhead { in_span_ns: 40, ..ProbeOverhead::default() };
        Storm { sample, overhead, resident_bytes: vec![5_000, 1_000, 9_000], ..Storm::default() }
    }

    #[test]
    fn a_lost_event_misses_the_target() {
        let table = window(&storm());
        let row = |quantity: &str| {
            let row = table.rows().iter().find(|row| row[0] == Value::from(quantity)).unwrap();
            ["value", "met"].map(|name| table.get(row, name).cloned().unwrap())
        };
        assert_eq!(row("events lost"), [2.0.into(), false.into()]);
        assert_eq!(row("growth of the resident set, bytes"), [4_000.0.into(), true.into()]);
        assert_eq!(row("events per second"), [10.0.into(), Value::Absent]);
    }

    #[test]
    fn a_mean_within_the_error_of_the_overhead_is_no_measurement() {
        let is_below = |overhead_ns: u64| {
            let mut storm = storm();
            let contexts_of_storm = storm.sample.contexts.iter_mut();
            contexts_of_storm
                .for_each(|stats| stats.probe_overhead_total_ns = stats.count * overhead_ns);
            storm.overhead.in_span_ns = overhead_ns;
            let contexts = contexts(&storm);
            contexts.get(&contexts.rows()[0], "mean_below_limit").cloned()
        };
        // A quarter of the overhead is the error of a mean of 15 ns.
        assert_eq!([40, 80].map(is_below), [false, true].map(|is| Some(Value::Bool(is))));
    }

    #[test]
    fn contexts_are_summed_over_cpus_and_lines_without_interrupts_left_out() {
        let contexts = contexts(&storm());
        let cells = ["count", "rate_hz", "mean_ns", "mean_error_ns"]
            .map(|name| contexts.get(&contexts.rows()[0], name).cloned().unwrap());
        let [mean, error] = [15.0, 10.0].map(Value::Real);
        assert_eq!(cells, [Value::Uint(10), Value::Real(5.0), mean, error]);
        let counts = counts(&storm());
        let missing: Vec<_> =
            counts.rows().iter().map(|row| counts.get(row, "missing_count").cloned()).collect();
        assert_eq!(
            missing,
            [Some(Value::Int(2)), Some(Value::Int(9))],
            "none of line 38 was handed over"
        );
    }
}
