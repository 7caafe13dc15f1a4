//! The live bench compared with exact values: what its probes measured in a simulated machine, and
//! what the simulator saw.

use record::limits::ROWS_MAX;
use record::{Column, Format, Kind, Table, TableDisplay, Value};

/// A context in a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedContext {
    /// The condition's label.
    pub condition: String,
    /// [`attribution::ContextKind::label`].
    pub kind: String,
    /// As in [`attribution::Context`].
    pub number: u32,
    /// As in [`attribution::Context`].
    pub name: String,
    /// Spans that the probes saw.
    pub probed_count: u64,
    /// Their self times, ns, what the probes add subtracted.
    pub probed_self_ns: i64,
    /// What the live bench subtracted for the probes inside them, sum, ns.
    pub probe_overhead_total_ns: u64,
    /// Spans that there were.
    pub true_count: u64,
    /// Their self times, ns, without what probes used.
    pub true_self_ns: f64,
    /// The same in instructions.
    pub true_self_instructions: u64,
    /// Spans whose events the probes have read, in a window of their own.
    pub probed_event_spans: u64,
    /// Spans that there were in that window.
    pub true_event_spans: u64,
    pub instructions: CheckedEvent,
    pub cycles: CheckedEvent,
}

/// An event of a context in a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CheckedEvent {
    /// Sum over the spans by the probes, what reading adds subtracted; `None` if not read.
    pub probed: Option<f64>,
    /// Sum over the spans that there were.
    pub truth: u64,
}

/// What the BPF programs at a class of tracepoints used in a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeCost {
    /// The condition's label.
    pub condition: String,
    /// The function that calls them.
    pub function: String,
    pub calls: u64,
    /// Instructions of all calls.
    pub instructions: u64,
    /// Cycles of all calls.
    pub cycles: u64,
    /// Time of all calls, ns.
    pub ns: f64,
}

impl CheckedContext {
    fn probed_mean_ns(&self) -> Option<f64> {
        mean(self.probed_self_ns as f64, self.probed_count)
    }

    fn true_mean_ns(&self) -> Option<f64> {
        mean(self.true_self_ns, self.true_count)
    }

    /// Mean of an event by the probes, the true one, and by which part the first is off.
    fn event(&self, event: CheckedEvent) -> [Option<f64>; 3] {
        let probed = event.probed.and_then(|sum| mean(sum, self.probed_event_spans));
        let truth = probed.and_then(|_| mean(event.truth as f64, self.true_event_spans));
        let both = probed.zip(truth).filter(|(_, truth)| *truth > 0.0);
        [probed, truth, both.map(|(probed, truth)| probed / truth - 1.0)]
    }

    /// By which part the probes' mean is off the true one.
    #[must_use]
    pub fn error_ratio(&self) -> Option<f64> {
        let (probed, truth) = self.probed_mean_ns().zip(self.true_mean_ns())?;
        (truth > 0.0).then(|| probed / truth - 1.0)
    }
}

fn mean(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// Hints of both tables.
fn by_condition() -> TableDisplay {
    TableDisplay {
        group_by: vec!["condition".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    }
}

/// Table `probes`: one row per context and condition.
#[must_use]
pub fn probes(checked: &[CheckedContext]) -> Table {
    let doc = "What the live bench's probes measured of each context in the guest, and the exact values \
               of the simulator.";
    let ns =
        |name: &str, doc: &str| Column::new(name, Kind::Real, doc).format(Format::Microseconds);
    let uint = |name: &str, doc: &str| Column::new(name, Kind::Uint, doc);
    let real = |name: &str, doc: &str| Column::new(name, Kind::Real, doc);
    let columns = vec![
        Column::new("condition", Kind::Text, "Condition: load/rate/stimulus."),
        Column::new("kind", Kind::Text, "Kind of context.").priority(90),
        uint("number", "IRQ number, index of the vector or softirq number.").detail(),
        Column::new("name", Kind::Text, "Name of the context.")
            .prefixed("number", "kind", "irq")
            .priority(100),
        uint("measured_count", "Spans that the probes counted.").title("measured").priority(80),
        uint("exact_count", "Spans between the markers, by the simulator.")
            .title("exact")
            .priority(79),
        ns("measured_self_mean_ns", "Mean self time by the probes, probe overhead subtracted.")
            .title("measured mean")
            .priority(98),
        ns("exact_self_mean_ns", "Exact mean self time, without the time of the probes.")
            .title("exact mean")
            .priority(97),
        real("self_mean_error_ratio", "measured_self_mean_ns over exact_self_mean_ns, minus 1.")
            .title("error")
            .priority(99),
        ns(
            "probe_overhead_mean_ns",
            "What the live bench subtracted from a span on average for the probes inside it.",
        )
        .title("subtracted")
        .priority(70),
        ns(
            "exact_probe_overhead_mean_ns",
            "What it had to subtract: probe_overhead_mean_ns plus the error of the mean.",
        )
        .detail(),
        real("exact_self_mean_instructions", "Exact mean of the instructions of a span.")
            .title("instructions")
            .priority(60),
        uint(
            "measured_event_span_count",
            "Spans whose PMU events the probes read, in a window of its own.",
        )
        .detail(),
        uint("exact_event_span_count", "Spans in that window, by the simulator.").detail(),
        real("measured_mean_instructions", "Mean instructions per span there, by the probes.")
            .detail(),
        real("exact_mean_instructions", "Exact mean of the instructions per span there.").detail(),
        real("instructions_error_ratio", "measured over exact mean instructions, minus 1.")
            .detail(),
        real("measured_mean_cycles", "Mean cycles per span there, by the probes.").detail(),
        real("exact_mean_cycles", "Exact mean of the cycles per span there.").detail(),
        real("cycles_error_ratio", "measured over exact mean cycles, minus 1.").detail(),
    ];
    let mut table = Table::new("probes", doc, columns).displayed(by_condition());
    for one in checked {
        let overhead = mean(one.probe_overhead_total_ns as f64, one.probed_count);
        let error_ns =
            one.probed_mean_ns().zip(one.true_mean_ns()).map(|(mean, exact)| mean - exact);
        let instructions = mean(one.true_self_instructions as f64, one.true_count);
        let mut row: Vec<Value> = vec![
            one.condition.as_str().into(),
            one.kind.as_str().into(),
            u64::from(one.number).into(),
            one.name.as_str().into(),
            one.probed_count.into(),
            one.true_count.into(),
            one.probed_mean_ns().into(),
            one.true_mean_ns().into(),
            one.error_ratio().into(),
            overhead.into(),
            overhead.zip(error_ns).map(|(overhead, error)| overhead + error).into(),
            instructions.into(),
            Some(one.probed_event_spans).filter(|spans| *spans > 0).into(),
            Some(one.true_event_spans).filter(|_| one.probed_event_spans > 0).into(),
        ];
        row.extend(one.event(one.instructions).map(Value::from));
        row.extend(one.event(one.cycles).map(Value::from));
        table.push(row);
    }
    table
}

/// Table `probe_costs`: one row per class of tracepoints and condition.
#[must_use]
pub fn probe_costs(costs: &[ProbeCost]) -> Table {
    let doc = "What one call of the BPF programs at a class of tracepoints costs.";
    let columns = vec![
        Column::new("condition", Kind::Text, "Condition: load/rate/stimulus."),
        Column::new("function", Kind::Text, "Kernel function that calls the programs.")
            .priority(100),
        Column::new("call_count", Kind::Uint, "Calls in the window.").title("calls").priority(90),
        Column::new("mean_instructions", Kind::Real, "Instructions per call.")
            .title("instructions")
            .priority(80),
        Column::new("mean_cycles", Kind::Real, "Cycles per call.").priority(85),
        Column::new("mean_ns", Kind::Real, "Time per call.").priority(95),
    ];
    let mut table = Table::new("probe_costs", doc, columns).displayed(by_condition());
    for one in costs {
        let row: Vec<Value> = vec![
            one.condition.as_str().into(),
            one.function.as_str().into(),
            one.calls.into(),
            mean(one.instructions as f64, one.calls).into(),
            mean(one.cycles as f64, one.calls).into(),
            mean(one.ns, one.calls).into(),
        ];
        table.push(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(probed: (u64, u64), truth: (u64, f64)) -> CheckedContext {
        CheckedContext {
            condition: "idle/low/timer".to_owned(),
            kind: "vector".to_owned(),
            number: 0,
            name: "local_timer".to_owned(),
            probed_count: probed.0,
            probed_self_ns: probed.1 as i64,
            probe_overhead_total_ns: 60,
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
    fn events_are_of_another_window() {
        let one = checked((10, 1_050), (9, 900.0));
        let [probed, truth, error] = one.event(one.instructions);
        assert_eq!((probed, truth), (Some(110.0), Some(100.0)));
        assert!((error.unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(one.event(one.cycles), [None; 3], "not read is not zero");
    }

    #[test]
    fn the_error_is_that_of_the_means() {
        let error = checked((10, 1_050), (9, 900.0)).error_ratio().unwrap();
        assert!((error - 0.05).abs() < 1e-9, "{error}");
    }

    #[test]
    fn what_was_not_seen_has_no_error() {
        assert_eq!(checked((0, 0), (9, 900.0)).error_ratio(), None);
        assert_eq!(checked((3, 30), (0, 0.0)).error_ratio(), None);
        let table = probes(&[checked((0, 0), (9, 900.0))]);
        assert_eq!((table.check_display(), probe_costs(&[]).check_display()), (Ok(()), Ok(())));
        let error = table.columns.iter().position(|column| column.name == "self_mean_error_ratio");
        assert_eq!(table.rows()[0][error.unwrap()], Value::Absent);
    }
}
