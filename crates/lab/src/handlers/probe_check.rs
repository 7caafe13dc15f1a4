//! Compares the live bench with exact values: its probes measure in a simulated machine, and the simulator gives the
//! exact values for the same spans. `irqlab sim verify-probes` prints these tables. Users' programs read the columns:
//! names and order must not change.

use record::limits::ROWS_MAX;
use record::{Columns, Format, Table, TableDisplay, column};

use super::sample::SpanOverhead;
use super::senders::SenderRow;

/// The measured and the exact values of one context in one condition.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedContext {
    /// Label of the condition.
    pub condition: String,
    /// Label of the [`attribution::ContextKind`].
    pub kind: String,
    /// Number of the [`attribution::Context`].
    pub number: u32,
    /// Name of the [`attribution::Context`].
    pub name: String,
    /// Spans that the probes counted.
    pub probed_count: u64,
    /// Sum of the self times by the probes, ns, with the probe overhead subtracted.
    pub probed_self_ns: i64,
    /// Sum of the probe overhead that the live bench subtracted from these spans, ns.
    pub probe_overhead_total_ns: u64,
    /// The live bench's probe overhead within a span in warm caches, ns.
    pub warm_overhead_ns: u64,
    /// Exact number of spans.
    pub true_count: u64,
    /// Exact sum of the self times, ns, without the time of the probes.
    pub true_self_ns: f64,
    /// Exact sum of the instructions, without nested spans and without the probes.
    pub true_self_instructions: u64,
    /// Spans whose events the probes read, in a second window.
    pub probed_event_spans: u64,
    /// Exact number of spans in the second window.
    pub true_event_spans: u64,
    pub instructions: CheckedEvent,
    pub cycles: CheckedEvent,
}

/// The measured and the exact sum of one event over the spans of the second window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CheckedEvent {
    /// Sum by the probes, with the overhead of reading subtracted; `None` if not read.
    pub probed: Option<f64>,
    /// Exact sum by the simulator.
    pub truth: u64,
}

/// A sender in one condition, by the probes and by the simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedSender {
    /// Label of the condition.
    pub condition: String,
    /// The row of the live bench. `None`: it has no such row.
    pub measured: Option<SenderRow>,
    /// The exact row. `None`: the simulator has no such row.
    pub exact: Option<SenderRow>,
}

impl CheckedSender {
    /// The row that names the sender: both rows have the same names.
    fn row(&self) -> Option<&SenderRow> {
        self.exact.as_ref().or(self.measured.as_ref())
    }

    /// Mean time of a joined run. `None` without such runs.
    fn run_mean_ns(row: &SenderRow) -> Option<f64> {
        let runs = if row.kind == "run" { Some(row.count) } else { row.joined_count };
        mean(row.run_total_ns as f64, runs.filter(|_| row.kind != "interrupt")?)
    }

    /// Mean time from the queueing to the end of the function. `None` if the sender does not wait.
    fn wait_mean_ns(row: &SenderRow) -> Option<f64> {
        let joined = row.joined_count.filter(|_| row.waits == Some(true));
        mean(row.completion_total_ns as f64, joined?)
    }

    /// The measured and the exact value of a time, and the relative error: measured over exact, minus 1.
    fn compare(&self, time: impl Fn(&SenderRow) -> Option<f64>) -> [Option<f64>; 3] {
        let [measured, exact] =
            [&self.measured, &self.exact].map(|row| row.as_ref().and_then(&time));
        let error = measured.zip(exact.filter(|exact| *exact > 0.0));
        [measured, exact, error.map(|(measured, exact)| measured / exact - 1.0)]
    }
}

/// The measured and the exact delays of one kind of work in one condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckedDelays {
    /// Label of the condition.
    pub condition: String,
    /// Label of the [`attribution::ContextKind`].
    pub kind: String,
    /// Number of the [`attribution::Context`].
    pub number: u32,
    /// Name of the [`attribution::Context`].
    pub name: String,
    /// Delays that the probes counted.
    pub probed_count: u64,
    pub probed_total_ns: u64,
    pub probed_max_ns: u64,
    /// Exact number of delays.
    pub true_count: u64,
    pub true_total_ns: f64,
    pub true_max_ns: f64,
}

impl CheckedDelays {
    fn probed_mean_ns(&self) -> Option<f64> {
        mean(self.probed_total_ns as f64, self.probed_count)
    }

    fn true_mean_ns(&self) -> Option<f64> {
        mean(self.true_total_ns, self.true_count)
    }

    /// Error of the mean: measured minus exact, ns. `None` if one side has no delays.
    fn error_ns(&self) -> Option<f64> {
        Some(self.probed_mean_ns()? - self.true_mean_ns()?)
    }

    /// Relative error of the mean. `None` if one side has no delays, or the exact mean is 0.
    fn error_ratio(&self) -> Option<f64> {
        let truth = self.true_mean_ns().filter(|truth| *truth > 0.0)?;
        Some(self.error_ns()? / truth)
    }
}

/// Cost of the BPF programs at one class of tracepoints, in one condition.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeCost {
    /// Label of the condition.
    pub condition: String,
    /// The kernel function that calls the programs.
    pub function: String,
    pub calls: u64,
    /// Sum of the instructions of all calls.
    pub instructions: u64,
    /// Sum of the cycles of all calls.
    pub cycles: u64,
    /// Sum of the times of all calls, ns.
    pub ns: f64,
}

impl CheckedContext {
    fn probed_mean_ns(&self) -> Option<f64> {
        mean(self.probed_self_ns as f64, self.probed_count)
    }

    fn true_mean_ns(&self) -> Option<f64> {
        mean(self.true_self_ns, self.true_count)
    }

    /// Mean probe overhead that the live bench subtracted from a span. `None` without probed spans.
    fn overhead_ns(&self) -> Option<f64> {
        mean(self.probe_overhead_total_ns as f64, self.probed_count)
    }

    /// The detection limit of the mean self time by the probes: the error of the overhead that they subtract, as table handlers
    /// has it. `None` without probed spans.
    fn limit_ns(&self) -> Option<f64> {
        let warm_ns = self.warm_overhead_ns as f64;
        self.overhead_ns().map(|mean_ns| SpanOverhead { mean_ns, warm_ns }.half_width_95_ns())
    }

    /// The mean probe overhead that would have given the exact mean self time: the subtracted overhead, plus the error
    /// of the mean. `None` if one side has no spans.
    fn exact_overhead_ns(&self) -> Option<f64> {
        let (measured, exact) = self.probed_mean_ns().zip(self.true_mean_ns())?;
        Some(self.overhead_ns()? + (measured - exact))
    }

    /// Mean of an event per span by the probes, the exact mean, and the relative error: measured over exact, minus 1.
    fn event_means(&self, event: CheckedEvent) -> [Option<f64>; 3] {
        let probed = event.probed.and_then(|sum| mean(sum, self.probed_event_spans));
        let truth = probed.and_then(|_| mean(event.truth as f64, self.true_event_spans));
        let error = probed
            .zip(truth.filter(|truth| *truth > 0.0))
            .map(|(probed, truth)| probed / truth - 1.0);
        [probed, truth, error]
    }

    /// Relative error of the mean self time: measured over exact, minus 1. `None` without spans or exact time, and for a measured
    /// mean below its detection limit: the live bench tells such a mean from nothing no better than its limit.
    #[must_use]
    pub fn error_ratio(&self) -> Option<f64> {
        let (probed, truth) = self.probed_mean_ns().zip(self.true_mean_ns())?;
        let is_below_limit = probed <= self.limit_ns()?;
        (truth > 0.0 && !is_below_limit).then(|| probed / truth - 1.0)
    }
}

fn mean(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// Display hints of both tables: rows grouped by condition.
fn display_by_condition() -> TableDisplay {
    TableDisplay {
        group_by: vec!["condition".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    }
}

/// Table `probes`: one row per context and condition.
#[must_use]
pub fn probes(checked: &[CheckedContext]) -> Table {
    let doc = "Each handler of an IRQ line, system vector and softirq in the guest: measurements of the live bench's probes, and \
               the exact values of the simulator. A context that one side lacks has count 0 there.";
    let ns = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let columns = Columns::all([
        column("condition", "Condition: load/rate/stimulus.")
            .text(|context: &CheckedContext| context.condition.clone()),
        column("kind", "Kind of context.")
            .priority(90)
            .text(|context: &CheckedContext| context.kind.clone()),
        column("number", "IRQ number, index of the vector or softirq number.")
            .detail()
            .uint(|context: &CheckedContext| context.number),
        column("name", "Name of the context.")
            .prefixed("number", "kind", "irq")
            .priority(100)
            .text(|context: &CheckedContext| context.name.clone()),
        column("measured_count", "Spans that the probes counted.")
            .shown_as("measured", 80)
            .uint(|context: &CheckedContext| context.probed_count),
        column("exact_count", "Spans between the markers, by the simulator.")
            .shown_as("exact", 79)
            .uint(|context: &CheckedContext| context.true_count),
        ns("measured_self_mean_ns", "Mean self time by the probes, probe overhead subtracted.")
            .shown_as("measured mean", 98)
            .real(|context: &CheckedContext| context.probed_mean_ns()),
        ns("exact_self_mean_ns", "Exact mean self time, without the time of the probes.")
            .shown_as("exact mean", 97)
            .real(|context: &CheckedContext| context.true_mean_ns()),
        column(
            "self_mean_error_ratio",
            "measured_self_mean_ns over exact_self_mean_ns, minus 1. Absent if measured_self_mean_ns is at most \
             self_mean_limit_ns.",
        )
        .shown_as("error", 99)
        .real(|context: &CheckedContext| context.error_ratio()),
        ns(
            "self_mean_limit_ns",
            "Detection limit of measured_self_mean_ns: error of the overhead that the live bench subtracts from a span, as it \
             states it. A mean up to the limit may be negative.",
        )
        .shown_as("limit", 75)
        .real(|context: &CheckedContext| context.limit_ns()),
        ns(
            "probe_overhead_mean_ns",
            "Probe overhead that the live bench subtracted from a span on average.",
        )
        .shown_as("subtracted", 70)
        .real(|context: &CheckedContext| context.overhead_ns()),
        ns(
            "exact_probe_overhead_mean_ns",
            "Exact mean probe overhead of a span: probe_overhead_mean_ns plus the error of the \
             mean.",
        )
        .detail()
        .real(|context: &CheckedContext| context.exact_overhead_ns()),
        column("exact_self_mean_instructions", "Exact mean of the instructions of a span.")
            .shown_as("instructions", 60)
            .real(|context: &CheckedContext| {
                mean(context.true_self_instructions as f64, context.true_count)
            }),
        column(
            "measured_event_span_count",
            "Spans whose PMU events the probes read, in a second window.",
        )
        .detail()
        .uint(|context: &CheckedContext| {
            (context.probed_event_spans > 0).then_some(context.probed_event_spans)
        }),
        column("exact_event_span_count", "Exact number of spans in the second window.")
            .detail()
            .uint(|context: &CheckedContext| {
                (context.probed_event_spans > 0).then_some(context.true_event_spans)
            }),
        column(
            "measured_mean_instructions",
            "Mean instructions per span in the second window, by the probes.",
        )
        .detail()
        .real(|context: &CheckedContext| context.event_means(context.instructions)[0]),
        column("exact_mean_instructions", "Exact mean instructions per span in the second window.")
            .detail()
            .real(|context: &CheckedContext| context.event_means(context.instructions)[1]),
        column("instructions_error_ratio", "measured over exact mean instructions, minus 1.")
            .detail()
            .real(|context: &CheckedContext| context.event_means(context.instructions)[2]),
        column("measured_mean_cycles", "Mean cycles per span in the second window, by the probes.")
            .detail()
            .real(|context: &CheckedContext| context.event_means(context.cycles)[0]),
        column("exact_mean_cycles", "Exact mean cycles per span in the second window.")
            .detail()
            .real(|context: &CheckedContext| context.event_means(context.cycles)[1]),
        column("cycles_error_ratio", "measured over exact mean cycles, minus 1.")
            .detail()
            .real(|context: &CheckedContext| context.event_means(context.cycles)[2]),
    ]);
    columns.table("probes", doc, checked).displayed(display_by_condition())
}

/// Table `probe_senders`: one row per sender and condition.
#[must_use]
pub fn probe_senders(checked: &[CheckedSender]) -> Table {
    let doc = "Each sender of function calls and interrupts in the guest: measurements of the live bench's probes, and the \
               exact values of the simulator. Names are those of table senders of handlers.";
    let text = |name: &str, doc: &str, value: fn(&SenderRow) -> Option<String>| {
        column(name, doc).text(move |sender: &CheckedSender| value(sender.row()?))
    };
    let count = |name: &str, doc: &str| column(name, doc);
    let ns = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let columns = Columns::all([
        column("condition", "Condition: load/rate/stimulus.")
            .text(|sender: &CheckedSender| sender.condition.clone()),
        text("kind", "call, interrupt or run.", |row| Some(row.kind.clone())),
        text("name", "The called function, or the vector.", |row| row.name.clone()),
        text("sender_kind", "Where the sender's code runs.", |row| row.sender_kind.clone()),
        text("sender", "The task, interrupt or softirq that sends.", |row| Some(row.sender.clone())),
        text("call_site", "The kernel function that sends.", |row| row.call_site.clone()),
        column("waits", "Whether the sender of a call waits for the end of the function.")
            .detail()
            .bool(|sender: &CheckedSender| sender.row()?.waits),
        count("measured_count", "Calls, interrupts or runs that the probes counted.")
            .shown_as("measured", 96)
            .uint(|sender: &CheckedSender| sender.measured.as_ref().map(|row| row.count)),
        count("exact_count", "The same by the simulator.")
            .shown_as("exact", 95)
            .uint(|sender: &CheckedSender| sender.exact.as_ref().map(|row| row.count)),
        count("measured_joined_count", "Calls that the probes joined to their run.")
            .detail()
            .uint(|sender: &CheckedSender| sender.measured.as_ref()?.joined_count),
        count("exact_joined_count", "Calls, and reschedule interrupts, that the simulator joined.")
            .detail()
            .uint(|sender: &CheckedSender| sender.exact.as_ref()?.joined_count),
        ns("measured_run_mean_ns", "Mean time of the function by the probes, their overhead subtracted.")
            .shown_as("run measured", 90)
            .real(|sender: &CheckedSender| sender.compare(CheckedSender::run_mean_ns)[0]),
        ns("exact_run_mean_ns", "Exact mean time of the function.")
            .shown_as("run exact", 89)
            .real(|sender: &CheckedSender| sender.compare(CheckedSender::run_mean_ns)[1]),
        column("run_mean_error_ratio", "measured_run_mean_ns over exact_run_mean_ns, minus 1.")
            .shown_as("run error", 98)
            .real(|sender: &CheckedSender| sender.compare(CheckedSender::run_mean_ns)[2]),
        ns(
            "run_mean_limit_ns",
            "Error of the overhead that the live bench subtracts from a run, as it states it: its detection limit.",
        )
        .shown_as("limit", 85)
        .uint(|sender: &CheckedSender| {
            let measured = sender.measured.as_ref()?;
            CheckedSender::run_mean_ns(measured).map(|_| measured.run_error_ns)
        }),
        ns(
            "measured_wait_mean_ns",
            "Mean time from the queueing to the end of the function by the probes, if the sender waits.",
        )
        .shown_as("wait measured", 88)
        .real(|sender: &CheckedSender| sender.compare(CheckedSender::wait_mean_ns)[0]),
        ns(
            "exact_wait_mean_ns",
            "Exact mean of this time, from the kernel's call of the programs at the queueing on.",
        )
        .shown_as("wait exact", 87)
        .real(|sender: &CheckedSender| sender.compare(CheckedSender::wait_mean_ns)[1]),
        column("wait_mean_error_ratio", "measured_wait_mean_ns over exact_wait_mean_ns, minus 1.")
            .shown_as("wait error", 97)
            .real(|sender: &CheckedSender| sender.compare(CheckedSender::wait_mean_ns)[2]),
    ]);
    columns.table("probe_senders", doc, checked).displayed(display_by_condition())
}

/// Table `probe_delays`: one row per kind of delayed work and condition.
#[must_use]
pub fn probe_delays(checked: &[CheckedDelays]) -> Table {
    let doc = "Delays in the guest: measurements of the live bench's probes, and the exact values of the simulator, which \
               end where the first probe starts.";
    let ns = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let columns = Columns::all([
        column("condition", "Condition: load/rate/stimulus.")
            .text(|delays: &CheckedDelays| delays.condition.clone()),
        column("kind", "Kind of the delayed work: hrtimer, timer or irq_thread.")
            .priority(90)
            .text(|delays: &CheckedDelays| delays.kind.clone()),
        column("number", "Number of the thread's IRQ line; 0 for timers.")
            .detail()
            .uint(|delays: &CheckedDelays| delays.number),
        column("name", "Name of the thread's handler, or of the timers' function.")
            .priority(100)
            .text(|delays: &CheckedDelays| delays.name.clone()),
        column("measured_count", "Delays that the probes counted.")
            .shown_as("measured", 80)
            .uint(|delays: &CheckedDelays| delays.probed_count),
        column("exact_count", "Delays within the probes' window, by the simulator.")
            .shown_as("exact", 79)
            .uint(|delays: &CheckedDelays| delays.true_count),
        ns("measured_mean_ns", "Mean delay by the probes.")
            .shown_as("measured mean", 98)
            .real(|delays: &CheckedDelays| delays.probed_mean_ns()),
        ns("exact_mean_ns", "Exact mean delay.")
            .shown_as("exact mean", 97)
            .real(|delays: &CheckedDelays| delays.true_mean_ns()),
        ns("mean_error_ns", "measured_mean_ns minus exact_mean_ns.")
            .shown_as("error", 96)
            .real(|delays: &CheckedDelays| delays.error_ns()),
        column("mean_error_ratio", "mean_error_ns over exact_mean_ns.")
            .shown_as("error ratio", 99)
            .real(|delays: &CheckedDelays| delays.error_ratio()),
        ns("measured_max_ns", "The longest delay by the probes.")
            .shown_as("measured max", 70)
            .uint(|delays: &CheckedDelays| {
                (delays.probed_count > 0).then_some(delays.probed_max_ns)
            }),
        ns("exact_max_ns", "The longest exact delay.")
            .shown_as("exact max", 69)
            .real(|delays: &CheckedDelays| (delays.true_count > 0).then_some(delays.true_max_ns)),
    ]);
    columns.table("probe_delays", doc, checked).displayed(display_by_condition())
}

/// Table `probe_costs`: one row per class of tracepoints and condition.
#[must_use]
pub fn probe_costs(costs: &[ProbeCost]) -> Table {
    let doc = "Cost of one call of the BPF programs, for each class of tracepoints.";
    let columns = Columns::all([
        column("condition", "Condition: load/rate/stimulus.")
            .text(|cost: &ProbeCost| cost.condition.clone()),
        column("function", "Kernel function that calls the programs.")
            .priority(100)
            .text(|cost: &ProbeCost| cost.function.clone()),
        column("call_count", "Calls in the window.")
            .shown_as("calls", 90)
            .uint(|cost: &ProbeCost| cost.calls),
        column("mean_instructions", "Instructions per call.")
            .shown_as("instructions", 80)
            .real(|cost: &ProbeCost| mean(cost.instructions as f64, cost.calls)),
        column("mean_cycles", "Cycles per call.")
            .priority(85)
            .real(|cost: &ProbeCost| mean(cost.cycles as f64, cost.calls)),
        column("mean_ns", "Time per call.")
            .priority(95)
            .real(|cost: &ProbeCost| mean(cost.ns, cost.calls)),
    ]);
    columns.table("probe_costs", doc, costs).displayed(display_by_condition())
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::*;

    /// A context with the measured and the exact number of spans and sum of self times, ns.
    fn checked(probed: (u64, u64), truth: (u64, f64)) -> CheckedContext {
        CheckedContext {
            condition: "idle/low/timer".to_owned(),
            kind: "vector".to_owned(),
            number: 0,
            name: "local_timer".to_owned(),
            probed_count: probed.0,
            probed_self_ns: probed.1 as i64,
            probe_overhead_total_ns: 60,
            warm_overhead_ns: 6,
            true_count: truth.0,
            true_self_ns: truth.1,
            true_self_instructions: 70,
            probed_event_spans: 4,
            true_event_spans: 5,
            instructions: CheckedEvent { probed: Some(440.0), truth: 500 },
            cycles: CheckedEvent::default(),
        }
    }

    #[test]
    fn means_of_events_use_the_spans_of_the_second_window() {
        let context = checked((10, 1_050), (9, 900.0));
        let [probed, truth, error] = context.event_means(context.instructions);
        assert_eq!((probed, truth), (Some(110.0), Some(100.0)));
        assert!((error.unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(context.event_means(context.cycles), [None; 3], "not read is not zero");
    }

    #[test]
    fn the_error_compares_the_means() {
        let error = checked((10, 1_050), (9, 900.0)).error_ratio().unwrap();
        assert!((error - 0.05).abs() < 1e-9, "{error}");
    }

    /// The overhead is 6 ns a span, also in warm caches, so the limit is 1.5 ns.
    #[test]
    fn a_mean_below_its_limit_has_no_relative_error() {
        let with_mean = |self_ns: i64| CheckedContext {
            probed_self_ns: self_ns,
            ..checked((10, 0), (10, 20.0))
        };
        assert_eq!(with_mean(-8).limit_ns(), Some(1.5));
        assert_eq!([-8, 15].map(|self_ns| with_mean(self_ns).error_ratio()), [None, None]);
        assert!((with_mean(16).error_ratio().unwrap() + 0.2).abs() < 1e-9);
        assert_eq!(checked((0, 0), (9, 900.0)).limit_ns(), None);
    }

    #[test]
    fn times_of_a_sender_are_compared_where_both_sides_have_them() {
        let call = |joined, run_total_ns, completion_total_ns| SenderRow {
            kind: "call".to_owned(),
            name: Some("ipi_mb".to_owned()),
            waits: Some(true),
            count: 10,
            joined_count: Some(joined),
            run_total_ns,
            completion_total_ns,
            ..SenderRow::default()
        };
        let interrupt = SenderRow {
            kind: "interrupt".to_owned(),
            count: 3,
            joined_count: Some(3),
            ..SenderRow::default()
        };
        let condition = || "command".to_owned();
        let rows = [
            CheckedSender {
                condition: condition(),
                measured: Some(call(10, 1_100, 4_200)),
                exact: Some(call(5, 500, 2_000)),
            },
            CheckedSender { condition: condition(), measured: None, exact: Some(interrupt) },
        ];
        let table = probe_senders(&rows);
        assert_eq!(table.check_display(), Ok(()));
        let cells = |column: &str| -> Vec<Option<f64>> {
            let cell = |row: &Vec<Value>| table.get(row, column).and_then(Value::number);
            table.rows().iter().map(cell).collect()
        };
        assert_eq!(cells("measured_count"), [Some(10.0), None]);
        assert_eq!(cells("exact_joined_count"), [Some(5.0), Some(3.0)]);
        assert_eq!(cells("measured_run_mean_ns"), [Some(110.0), None]);
        assert_eq!(cells("exact_run_mean_ns"), [Some(100.0), None]);
        let run_error = cells("run_mean_error_ratio")[0].unwrap();
        let wait_error = cells("wait_mean_error_ratio")[0].unwrap();
        assert!((run_error - 0.1).abs() < 1e-9 && (wait_error - 0.05).abs() < 1e-9);
    }

    #[test]
    fn a_context_without_spans_has_no_error() {
        assert_eq!(checked((0, 0), (9, 900.0)).error_ratio(), None);
        assert_eq!(checked((3, 30), (0, 0.0)).error_ratio(), None);
        let table = probes(&[checked((0, 0), (9, 900.0))]);
        assert_eq!((table.check_display(), probe_costs(&[]).check_display()), (Ok(()), Ok(())));
        let error = table.columns.iter().position(|column| column.name == "self_mean_error_ratio");
        assert_eq!(table.rows()[0][error.unwrap()], Value::Absent);
    }

    #[test]
    fn delays_are_compared_by_their_means() {
        let delays = CheckedDelays {
            probed_count: 2,
            probed_total_ns: 220,
            true_count: 3,
            true_total_ns: 300.0,
            ..CheckedDelays::default()
        };
        assert!((delays.error_ratio().unwrap() - 0.1).abs() < 1e-9);
        let without = CheckedDelays { true_count: 3, ..CheckedDelays::default() };
        assert_eq!((without.error_ns(), without.error_ratio()), (None, None));
        let table = probe_delays(&[delays, without]);
        assert_eq!(table.check_display(), Ok(()));
        let error = table.columns.iter().position(|column| column.name == "mean_error_ns");
        assert_eq!(table.rows()[1][error.unwrap()], Value::Absent);
    }
}
