//! The answer of a comparison of `sim boot` and `sim workload`: what the whole run executed. The table `run_totals` comes
//! before all other results.

use record::{Columns, Run, Table, TableDisplay, Value, column};

/// The table whose rows are contexts of the guest.
const CONTEXTS: &str = "contexts";
/// The table with estimated cycles, and the name of its sum over all contexts.
const SAMPLED: (&str, &str) = ("sampled_cycles", "all");

/// A total of both runs, or of the means over the runs of each side.
#[derive(Clone, Debug, PartialEq)]
pub struct RunTotal {
    /// Name of the total, such as `instructions`.
    pub name: String,
    /// The total of the first run in all regions.
    pub base: f64,
    /// The total of the second run.
    pub new: f64,
}

impl RunTotal {
    /// (second - first) / first. `None` if the first is 0.
    fn change_ratio(&self) -> Option<f64> {
        (self.base != 0.0).then(|| self.new / self.base - 1.0)
    }

    fn is_ratio(&self) -> bool {
        self.name.starts_with("kernel")
    }
}

/// A figure of one run, by its name.
type Figure = (&'static str, Option<f64>);

/// The totals that all runs of both sides have. Empty if the runs have no table of contexts.
pub(super) fn totals(base: &[Run], new: &[Run]) -> Vec<RunTotal> {
    let mean = |figures: &[Vec<Figure>], index: usize| -> Option<f64> {
        let values: Option<Vec<f64>> = figures.iter().map(|run| run[index].1).collect();
        let values = values?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    };
    let [base, new] = [base, new].map(|runs| runs.iter().map(of_run).collect::<Vec<_>>());
    let Some(first) = base.first() else { return Vec::new() };
    let total = |(index, (name, _)): (usize, &Figure)| {
        let (base, new) = (mean(&base, index)?, mean(&new, index)?);
        Some(RunTotal { name: (*name).to_owned(), base, new })
    };
    first.iter().enumerate().filter_map(total).collect()
}

/// The totals of a run, each `None` if its tables lack it.
fn of_run(run: &Run) -> Vec<Figure> {
    let contexts = run.table(CONTEXTS);
    let sum = |column: &str, is_wanted: &dyn Fn(&Table, &[Value]) -> bool| -> Option<f64> {
        let table = contexts?;
        table.column(column)?;
        let is_sum = |row: &&[Value]| table.get(row, "cpu") == Some(&Value::from("all"));
        let rows = table.rows().iter().map(Vec::as_slice).filter(is_sum);
        let values = rows.filter(|row| is_wanted(table, row));
        let values: Option<Vec<f64>> =
            values.map(|row| table.get(row, column).and_then(Value::number)).collect();
        values.map(|values| values.iter().sum())
    };
    let is_kernel =
        |table: &Table, row: &[Value]| table.get(row, "mode") == Some(&Value::from("kernel"));
    let share = |column: &str| -> Option<f64> {
        contexts?.column("mode")?;
        let (kernel, all) = (sum(column, &is_kernel)?, sum(column, &|_, _| true)?);
        (all > 0.0).then(|| kernel / all)
    };
    let cycles = sum("self_cycles", &|_, _| true).or_else(|| sampled_cycles(run));
    let mut figures = vec![
        ("instructions", sum("self_instructions", &|_, _| true)),
        ("cycles", cycles),
        ("time of these cycles, ns", cycles.zip(clock_ghz(run)).map(|(cycles, ghz)| cycles / ghz)),
        ("kernel share of the instructions", share("self_instructions")),
        ("kernel share of the cycles", share("self_cycles")),
    ];
    figures.extend(REASONS.map(|(name, column)| (name, sum(column, &|_, _| true))));
    figures
}

/// Totals that may explain a change of the cycles: their names, and the columns that have them.
const REASONS: [(&str, &str); 9] = [
    ("cycles that wait for instructions", "self_fetch_stall_cycles"),
    ("cycles that wait for data", "self_data_stall_cycles"),
    ("cycles lost in the pipeline", "self_pipeline_stall_cycles"),
    ("L1I misses", "self_l1i_misses"),
    ("L1D load misses", "self_l1d_load_misses"),
    ("L2 misses of instructions", "self_l2_fetch_misses"),
    ("L2 misses of data", "self_l2_data_misses"),
    ("L3 misses", "self_l3_misses"),
    ("mispredicted branches", "self_branch_misses"),
];

/// The clock of the run's model, as in the setting `4.7 GHz`. `None` without a model, or if its clock is no such text.
pub(super) fn clock_ghz(run: &Run) -> Option<f64> {
    let text = run.settings.get("model")?.get("clock")?.as_str()?;
    let (number, unit) = text.split_once(' ')?;
    let per_ghz = match unit {
        "GHz" => 1.0,
        "MHz" => 1e3,
        "kHz" => 1e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number / per_ghz).filter(|ghz| *ghz > 0.0)
}

/// The estimated cycles of all contexts together. `None` if the run was not sampled, or a context has no estimate.
fn sampled_cycles(run: &Run) -> Option<f64> {
    let table = run.table(SAMPLED.0)?;
    let is_sum = |row: &&Vec<Value>| table.get(row, "context") == Some(&Value::from(SAMPLED.1));
    let sums = table.rows().iter().filter(is_sum);
    let cycles: Option<Vec<f64>> =
        sums.map(|row| table.get(row, "self_cycles").and_then(Value::number)).collect();
    cycles.filter(|cycles| !cycles.is_empty()).map(|cycles| cycles.iter().sum())
}

/// Table `run_totals`. `None` if there are no totals.
pub(super) fn table(totals: &[RunTotal]) -> Option<Table> {
    if totals.is_empty() {
        return None;
    }
    let figure = |total: &RunTotal, value: f64| (!total.is_ratio()).then_some(value);
    let ratio = |total: &RunTotal, value: f64| total.is_ratio().then_some(value);
    let columns = Columns::all([
        column("total", "What the runs executed, in all regions and on all CPUs.")
            .priority(100)
            .uncut()
            .key()
            .text(|total: &RunTotal| total.name.clone()),
        column("base", "The first run's number, or the mean over the first side's runs.")
            .priority(90)
            .real(move |total: &RunTotal| figure(total, total.base)),
        column("new", "The second run's number, or the mean over the second side's runs.")
            .priority(89)
            .real(move |total: &RunTotal| figure(total, total.new)),
        column("base_ratio", "The first run's share.")
            .shown_as("base share", 88)
            .real(move |total: &RunTotal| ratio(total, total.base)),
        column("new_ratio", "The second run's share.")
            .shown_as("new share", 87)
            .real(move |total: &RunTotal| ratio(total, total.new)),
        column(
            "change_ratio",
            "(new - base) / base; absent where base is 0. Cycles of a sampled run are \
             estimates: table `differences` has their interval.",
        )
        .shown_as("change", 95)
        .real(RunTotal::change_ratio),
    ]);
    let display = TableDisplay {
        title: "What the whole runs executed".to_owned(),
        ..TableDisplay::default()
    };
    let doc = "Instructions, cycles and the kernel's shares of both runs.";
    Some(columns.table("run_totals", doc, totals).displayed(display))
}

#[cfg(test)]
mod tests {
    use record::{Column, Kind};

    use super::super::tests::run_of_table;
    use super::*;

    /// A run of `sim boot`. Rows: CPU, mode, instructions, cycles.
    fn run(rows: &[(&str, Option<&str>, u64, Option<u64>)]) -> Run {
        let columns = vec![
            Column::new("cpu", Kind::Text, "").key(),
            Column::new("mode", Kind::Text, ""),
            Column::new("self_instructions", Kind::Uint, "").cost(),
            Column::new("self_cycles", Kind::Uint, "").cost(),
        ];
        let mut table = Table::new(CONTEXTS, "", columns);
        for (cpu, mode, instructions, cycles) in rows {
            table.push(vec![
                (*cpu).into(),
                (*mode).into(),
                (*instructions).into(),
                (*cycles).into(),
            ]);
        }
        run_of_table("sim", table)
    }

    #[test]
    fn totals_are_sums_over_the_rows_of_all_cpus() {
        let base = run(&[
            ("all", Some("kernel"), 300, Some(900)),
            ("all", Some("user"), 90, Some(90)),
            ("all", None, 10, Some(10)),
            ("0", Some("kernel"), 300, Some(900)),
        ]);
        let new =
            run(&[("all", Some("kernel"), 100, Some(100)), ("all", Some("user"), 100, Some(400))]);
        let found = totals(&[base], &[new]);
        let numbers: Vec<(f64, f64)> = found.iter().map(|total| (total.base, total.new)).collect();
        assert_eq!(numbers, [(400.0, 200.0), (1000.0, 500.0), (0.75, 0.5), (0.9, 0.2)]);
        let table = table(&found).unwrap();
        assert_eq!(table.check_display(), Ok(()));
        // Models with different clocks: fewer cycles may take more time.
        let [slow, fast] = [("800 MHz", 900), ("4 GHz", 1000)].map(|(clock, cycles)| {
            let mut run = run(&[("all", Some("user"), 100, Some(cycles))]);
            run.settings.insert("model".to_owned(), serde_json::json!({ "clock": clock }));
            run
        });
        let found = totals(&[fast], &[slow]);
        let time = found.iter().find(|total| total.name.starts_with("time")).unwrap();
        assert_eq!((time.base, time.new), (250.0, 1125.0));
        assert_eq!(table.get(&table.rows()[0], "change_ratio"), Some(&Value::Real(-0.5)));
    }

    #[test]
    fn a_run_without_contexts_has_no_totals() {
        let table = Table::new("handlers", "", vec![Column::new("name", Kind::Text, "").key()]);
        let run = run_of_table("sim", table);
        assert_eq!(totals(std::slice::from_ref(&run), std::slice::from_ref(&run)), []);
    }
}
