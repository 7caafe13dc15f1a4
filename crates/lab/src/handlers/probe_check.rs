//! The live bench held against the truth: what its probes said in a simulated machine, and what was.

use record::{Column, Kind, Table, Value};

/// A source in a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedSource {
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
    pub probed_self_ns: u64,
    /// Spans that there were.
    pub true_count: u64,
    /// Their self times, ns, without what probes used.
    pub true_self_ns: f64,
    /// The same in instructions.
    pub true_self_instructions: u64,
}

/// What the BPF programs at a class of tracepoints used in a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeCost {
    /// The condition's label.
    pub condition: String,
    /// The function that calls them.
    pub function: String,
    /// Calls.
    pub calls: u64,
    /// Instructions of all calls.
    pub instructions: u64,
    /// Cycles of all calls.
    pub cycles: u64,
    /// Time of all calls, ns.
    pub ns: f64,
}

impl CheckedSource {
    fn probed_mean_ns(&self) -> Option<f64> {
        mean(self.probed_self_ns as f64, self.probed_count)
    }

    fn true_mean_ns(&self) -> Option<f64> {
        mean(self.true_self_ns, self.true_count)
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

/// Table `probes`: one row a source and condition.
#[must_use]
pub fn probes(checked: &[CheckedSource]) -> Table {
    let doc = "What the live bench's probes said of each source in the guest, beside the truth.";
    let columns = [
        ("condition", Kind::Text, "Load, rate and source."),
        ("kind", Kind::Text, "Kind of the source."),
        ("number", Kind::Uint, "IRQ line, vector or softirq."),
        ("name", Kind::Text, "Name of the source."),
        ("probed_count", Kind::Uint, "Spans that the probes saw."),
        ("true_count", Kind::Uint, "Spans that there were between the markers."),
        ("probed_self_mean_ns", Kind::Real, "Mean self time by the probes, their cost subtracted."),
        ("true_self_mean_ns", Kind::Real, "True mean self time, without what the probes used."),
        ("error_ratio", Kind::Real, "Probed over true mean, less one."),
        ("true_self_mean_instructions", Kind::Real, "True mean of instructions."),
    ];
    let columns = columns.map(|(name, kind, doc)| Column::new(name, kind, doc));
    let mut table = Table::new("probes", doc, columns.to_vec());
    for one in checked {
        let instructions = mean(one.true_self_instructions as f64, one.true_count);
        let row: Vec<Value> = vec![
            one.condition.as_str().into(),
            one.kind.as_str().into(),
            u64::from(one.number).into(),
            one.name.as_str().into(),
            one.probed_count.into(),
            one.true_count.into(),
            one.probed_mean_ns().into(),
            one.true_mean_ns().into(),
            one.error_ratio().into(),
            instructions.into(),
        ];
        table.push(row);
    }
    table
}

/// Table `probe_costs`: one row a class of tracepoints and condition.
#[must_use]
pub fn probe_costs(costs: &[ProbeCost]) -> Table {
    let doc = "What a call of the BPF programs at a class of tracepoints used.";
    let columns = [
        ("condition", Kind::Text, "Load, rate and source."),
        ("function", Kind::Text, "The kernel's function that calls the programs."),
        ("calls", Kind::Uint, "Calls in the window."),
        ("mean_instructions", Kind::Real, "Instructions of a call."),
        ("mean_cycles", Kind::Real, "Cycles of a call."),
        ("mean_ns", Kind::Real, "Time of a call."),
    ];
    let columns = columns.map(|(name, kind, doc)| Column::new(name, kind, doc));
    let mut table = Table::new("probe_costs", doc, columns.to_vec());
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

    fn checked(probed: (u64, u64), truth: (u64, f64)) -> CheckedSource {
        CheckedSource {
            condition: "idle/low/timer".to_owned(),
            kind: "vector".to_owned(),
            number: 0,
            name: "local_timer".to_owned(),
            probed_count: probed.0,
            probed_self_ns: probed.1,
            true_count: truth.0,
            true_self_ns: truth.1,
            true_self_instructions: 70,
        }
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
        let error = table.columns.iter().position(|column| column.name == "error_ratio");
        assert_eq!(table.rows()[0][error.unwrap()], Value::Absent);
    }
}
