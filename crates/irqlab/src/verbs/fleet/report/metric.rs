//! A metric of a fleet: one figure of each host, from the rows of a table of its run.

use std::str::FromStr;

use record::{Absence, Column, Role, Run, Table, Value, column};
use report::Bound;
use report::escape::plain;

use super::super::super::sweep::report::selection::{chosen_column, key_text, keys};
use crate::options::Usage;

/// How several rows become one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// There must be a single row.
    Only,
    Sum,
    Mean,
    Max,
    Min,
}

/// Names of the combinations, as the user writes them.
const COMBINATIONS: [(&str, Combination); 4] = [
    ("sum", Combination::Sum),
    ("mean", Combination::Mean),
    ("max", Combination::Max),
    ("min", Combination::Min),
];
/// The metrics of an experiment without `--metric`. Shares of CPU time of contexts add up. For
/// latencies, the worst CPU counts.
const DEFAULTS: [(&str, &[&str]); 3] = [
    ("handlers", &["sum:handlers.self_cpu_ratio"]),
    ("noise", &["mean:noise.lost_ratio", "max:noise.detour_max_ns"]),
    ("wakeup", &["max:wakeup.late_p99_ns", "max:wakeup.late_max_ns"]),
];
/// The key column that differs between runs with different load or stimulus. Rows of two conditions are not combined.
const CONDITION: &str = "condition";

/// The figure of one host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostFigure {
    pub value: f64,
    /// Rows that are not in the figure, because they are bounds or below their detection limit.
    pub left_out_count: usize,
}

/// One figure of each host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    pub combination: Combination,
    pub table: String,
    /// Values of key columns that the rows must have.
    pub rows: Vec<(String, String)>,
    pub column: String,
}

impl FromStr for Metric {
    type Err = String;

    /// Parses `TABLE.COLUMN`, `TABLE[KEY=VALUE,...].COLUMN`, or one of them after `sum:`, `mean:`, `max:` or `min:`.
    fn from_str(text: &str) -> Result<Metric, String> {
        let wrong = || {
            "write TABLE.COLUMN, TABLE[KEY=VALUE].COLUMN, or one of them after sum:, mean:, max: or min:".to_owned()
        };
        let (combination, path) = match text.split_once(':') {
            Some((word, path)) if !word.contains('[') => {
                let found = COMBINATIONS.iter().find(|(name, _)| *name == word);
                (found.ok_or_else(wrong)?.1, path)
            }
            _ => (Combination::Only, text),
        };
        let (place, column) = path.rsplit_once('.').ok_or_else(wrong)?;
        let (table, rows) = match place.split_once('[') {
            None => (place, Vec::new()),
            Some((table, rows)) => {
                let rows = rows.strip_suffix(']').ok_or_else(wrong)?;
                let pairs = rows.split(',').map(|pair| {
                    let (key, value) = pair.split_once('=')?;
                    Some((key.trim().to_owned(), value.trim().to_owned()))
                });
                (table, pairs.collect::<Option<Vec<_>>>().ok_or_else(wrong)?)
            }
        };
        if !record::limits::is_name(table) || !record::limits::is_name(column) {
            return Err(wrong());
        }
        Ok(Metric { combination, table: table.to_owned(), rows, column: column.to_owned() })
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let combination = COMBINATIONS.iter().find(|(_, known)| *known == self.combination);
        if let Some((name, _)) = combination {
            write!(formatter, "{name}:")?;
        }
        formatter.write_str(&self.table)?;
        if !self.rows.is_empty() {
            let pairs: Vec<String> =
                self.rows.iter().map(|(key, value)| format!("{key}={value}")).collect();
            write!(formatter, "[{}]", pairs.join(","))?;
        }
        write!(formatter, ".{}", self.column)
    }
}

impl Metric {
    /// The metrics of an experiment without `--metric`. `run`: one of its runs, with rows.
    pub fn defaults(run: &Run) -> Result<Vec<Metric>, Usage> {
        let known = DEFAULTS.iter().find(|(experiment, _)| *experiment == run.experiment);
        if let Some((_, texts)) = known {
            let metrics = texts.iter().filter_map(|text| text.parse::<Metric>().ok());
            return Ok(metrics.map(|metric| metric.of_first_condition(run)).collect());
        }
        let chosen = chosen_column(run, None, None)?;
        let (table, column) = (chosen.table, chosen.column);
        let metric = Metric { combination: Combination::Mean, table, rows: Vec::new(), column };
        Ok(vec![metric.of_first_condition(run)])
    }

    /// The metric for the rows of one condition, if the run has several.
    fn of_first_condition(mut self, run: &Run) -> Metric {
        let Some(table) = run.table(&self.table) else { return self };
        let Some(index) = table.column(CONDITION) else { return self };
        let texts = || table.rows().iter().map(|row| key_text(&row[index]));
        if let Some(first) = texts().next()
            && texts().any(|text| text != first)
        {
            self.rows.push((CONDITION.to_owned(), first));
        }
        self
    }

    /// Checks that a run has the table and the column.
    ///
    /// Fails with the nearest names.
    pub fn check(&self, run: &Run) -> Result<(), Usage> {
        let named = chosen_column(run, Some(&self.table), Some(&self.column));
        named.map_err(|Usage(what)| Usage(format!("--metric {self}: {what}")))?;
        let table = run.table(&self.table);
        let keys: Vec<&str> =
            table.iter().flat_map(|table| keys(table)).map(|(_, key)| key.name.as_str()).collect();
        match self.rows.iter().find(|(key, _)| !keys.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => Err(Usage(format!(
                "--metric {self}: {key:?} is no key of table {}; its keys: {}",
                self.table,
                keys.join(", ")
            ))),
        }
    }

    /// The figure of a run, or why it has none.
    pub fn figure(&self, run: &Run) -> Result<HostFigure, String> {
        let Some(table) = run.table(&self.table) else {
            return Err(format!("its run has no table {}", self.table));
        };
        let Some(index) = table.column(&self.column) else {
            return Err(format!("its run has no column {}.{}", self.table, self.column));
        };
        let rows: Vec<&[Value]> = self.rows_of(table);
        let column = &table.columns[index];
        let (mut numbers, mut bounds) = (Vec::new(), Vec::new());
        for row in &rows {
            // A row without a number was counted and not measured: it is no zero.
            let Some(number) = row[index].number() else { continue };
            match report::bound(table, row, column) {
                Some(bound) => bounds.push(bound),
                None => numbers.push(number),
            }
        }
        if numbers.is_empty() && bounds.is_empty() {
            let absence = run.absent.iter().find(|absence| {
                absence.table == self.table
                    && [&self.column, "all"].contains(&absence.what.as_str())
            });
            return Err(match absence {
                Some(absence) => format!("not measured: {}", plain(&absence.reason)),
                None if rows.is_empty() => "its run has no such row".to_owned(),
                None => "its run has no number there".to_owned(),
            });
        }
        let value = self.combined(&numbers, &bounds, table)?;
        Ok(HostFigure { value, left_out_count: bounds.len() })
    }

    /// Whether an absence concerns the metric: its column or rows of its table, and not another column.
    pub fn lacks(&self, run: &Run, absence: &Absence) -> bool {
        let is_other_column = run.table(&self.table).is_some_and(|table| {
            absence.what != self.column && table.column(&absence.what).is_some()
        });
        absence.table == self.table && !is_other_column
    }

    /// One figure of the measured numbers. Fails if a bound may be the figure.
    fn combined(&self, numbers: &[f64], bounds: &[Bound], table: &Table) -> Result<f64, String> {
        let count = numbers.len() + bounds.len();
        if self.combination == Combination::Only && count > 1 {
            let keys: Vec<&str> = keys(table).map(|(_, key)| key.name.as_str()).collect();
            return Err(format!(
                "{count} rows fit: write sum:, mean:, max: or min: before the metric, or choose a row as in \
                 {}[KEY=VALUE].{} (keys: {})",
                self.table,
                self.column,
                keys.join(", ")
            ));
        }
        if numbers.is_empty() {
            return Err(match bounds {
                [only] => only.text.clone(),
                _ => format!("all {count} rows are bounds or below their detection limit"),
            });
        }
        let sum: f64 = numbers.iter().sum();
        let max = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let min = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let has_no_end = bounds.iter().find(|bound| bound.high == f64::INFINITY);
        let may_be_larger = bounds.iter().find(|bound| bound.high > max);
        let may_be_smaller = bounds.iter().find(|bound| bound.low < min);
        if let (Combination::Sum | Combination::Mean, Some(bound)) = (self.combination, has_no_end)
        {
            return Err(format!("a row is {}", bound.text));
        }
        match (self.combination, may_be_larger, may_be_smaller) {
            (Combination::Only | Combination::Sum, ..) => Ok(sum),
            (Combination::Mean, ..) => Ok(sum / numbers.len() as f64),
            (Combination::Max, Some(bound), _) => {
                Err(format!("the row that may be the largest is {}", bound.text))
            }
            (Combination::Max, None, _) => Ok(max),
            (Combination::Min, _, Some(bound)) => {
                Err(format!("the row that may be the smallest is {}", bound.text))
            }
            (Combination::Min, _, None) => Ok(min),
        }
    }

    /// The rows of the metric. Where a table has rows for CPUs and sums over them, only the sums count.
    fn rows_of<'t>(&self, table: &'t Table) -> Vec<&'t [Value]> {
        let chosen = |row: &[Value]| {
            self.rows.iter().all(|(key, value)| {
                table.get(row, key).is_some_and(|cell| key_text(cell) == *value)
            })
        };
        let is_key = |name: &str| keys(table).any(|(_, key)| key.name == name);
        let filter = table.display.filter.as_ref().filter(|filter| {
            is_key(&filter.column) && self.rows.iter().all(|(key, _)| *key != filter.column)
        });
        let rows = table.rows().iter().map(Vec::as_slice);
        rows.filter(|row| filter.is_none_or(|filter| filter.keeps(table, row)) && chosen(row))
            .collect()
    }

    /// The column that describes the figure.
    pub fn figure_column(&self, run: &Run) -> Column {
        let known = run.table(&self.table).and_then(|table| {
            table.columns.iter().find(|column| column.name == self.column).cloned()
        });
        // The figure stands without the interval that the title of the runs' column names.
        let mut figure = known.unwrap_or_else(|| column(&self.column, "")).without_half_width();
        figure.doc = format!(
            "{self}, of the rows that have a number above their detection limit. {}",
            figure.doc
        );
        if figure.role == Role::Key {
            figure.role = Role::Figure;
        }
        figure
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_of_table;
    use super::*;
    use record::Columns;

    fn figure(text: &str) -> Result<f64, String> {
        let figure = text.parse::<Metric>().unwrap().figure(&run_of_table())?;
        assert_eq!(figure.left_out_count, 0);
        Ok(figure.value)
    }

    /// A run with means of reschedule interrupts: a measured one on CPU 0, and one below its limit on CPU 1.
    fn run_with_a_bound() -> Run {
        struct Row(&'static str, f64, bool);
        let columns = Columns::all([
            column("cpu", "CPU.").key().text(|row: &Row| row.0),
            column("self_mean_ns", "Mean.")
                .shown_as("mean ± ci95", 90)
                .plus_minus("self_mean_ci95_ns")
                .below_limit("self_mean_below_limit")
                .cost()
                .real(|row: &Row| row.1),
            column("self_mean_ci95_ns", "Half width.").real(|_: &Row| 2_290.0),
            column("self_mean_below_limit", "Whether it is.").bool(|row: &Row| row.2),
        ]);
        let rows = [Row("0", 9_000.0, false), Row("1", -1_060.0, true)];
        Run { tables: vec![columns.table("handlers", "Handlers.", rows)], ..run_of_table() }
    }

    #[test]
    fn a_row_below_its_detection_limit_is_no_figure() {
        let figure = |text: &str| text.parse::<Metric>().unwrap().figure(&run_with_a_bound());
        let below = figure("handlers[cpu=1].self_mean_ns").unwrap_err();
        assert_eq!(below, "below the detection limit (< 1.23 µs)");
        let measured = figure("handlers[cpu=0].self_mean_ns").unwrap();
        assert_eq!((measured.value, measured.left_out_count), (9_000.0, 0));
        for combination in ["sum", "mean", "max"] {
            let figure = figure(&format!("{combination}:handlers.self_mean_ns")).unwrap();
            assert_eq!((figure.value, figure.left_out_count), (9_000.0, 1), "{combination}");
        }
        let smallest = figure("min:handlers.self_mean_ns").unwrap_err();
        assert!(smallest.contains("may be the smallest is below"), "{smallest}");
        assert!(figure("handlers.self_mean_ns").unwrap_err().contains("2 rows fit"));
        let metric: Metric = "handlers.self_mean_ns".parse().unwrap();
        assert_eq!(metric.figure_column(&run_with_a_bound()).display.title, "mean");
    }

    /// Nobody knows how far the row is above its bound.
    #[test]
    fn a_row_with_a_lower_bound_has_no_sum_and_no_mean() {
        let text = "only a bound: ≥ 5.00".to_owned();
        let bounds = [Bound { text, low: 5.0, high: f64::INFINITY }];
        let table = &run_of_table().tables[0];
        for combination in ["sum", "mean"] {
            let metric: Metric = format!("{combination}:handlers.self_mean_ns").parse().unwrap();
            let error = metric.combined(&[1.1], &bounds, table).unwrap_err();
            assert_eq!(error, "a row is only a bound: ≥ 5.00");
            assert!(metric.combined(&[1.1], &[], table).is_ok());
        }
    }

    #[test]
    fn a_metric_is_a_figure_of_some_rows() {
        assert_eq!(figure("sum:handlers.self_cpu_ratio"), Ok(0.03));
        assert_eq!(figure("mean:handlers.self_cpu_ratio"), Ok(0.015));
        assert_eq!(figure("max:handlers.self_cpu_ratio"), Ok(0.02));
        assert_eq!(figure("min:handlers.self_cpu_ratio"), Ok(0.01));
        assert_eq!(figure("handlers[name=net].self_cpu_ratio"), Ok(0.02));
        assert_eq!(figure("handlers[name=net,cpu=0].self_cpu_ratio"), Ok(0.5));
        assert!(figure("handlers.self_cpu_ratio").unwrap_err().contains("2 rows fit"));
        assert!(figure("handlers[name=disk].self_cpu_ratio").unwrap_err().contains("no such row"));
        let absent = figure("handlers[name=page_fault].self_cpu_ratio");
        assert!(absent.unwrap_err().contains("no number there"));
        assert!(figure("noise.lost_ratio").unwrap_err().contains("no table noise"));
    }

    #[test]
    fn texts_that_are_no_metric_are_refused() {
        for text in ["noise", "avg:noise.x", "noise[cpu].x", "noise[cpu=0.x", ".x", "A.b", ""] {
            assert!(text.parse::<Metric>().is_err(), "{text}");
        }
        for text in ["noise.lost_ratio", "max:noise[cpu=0,loop=a:b].lost_ratio"] {
            assert_eq!(text.parse::<Metric>().unwrap().to_string(), text);
        }
        let unknown: Metric = "sum:handlers.self_cpu_rato".parse().unwrap();
        let Usage(what) = unknown.check(&run_of_table()).unwrap_err();
        assert!(what.contains("near: self_cpu_ratio"), "{what}");
        let no_key: Metric = "handlers[kind=irq].self_cpu_ratio".parse().unwrap();
        let Usage(what) = no_key.check(&run_of_table()).unwrap_err();
        assert!(what.contains("its keys: cpu, name"), "{what}");
    }

    #[test]
    fn the_defaults_are_metrics() {
        for (_, texts) in DEFAULTS {
            texts.iter().for_each(|text| drop(text.parse::<Metric>().unwrap()));
        }
        assert_eq!(
            Metric::defaults(&run_of_table()).unwrap()[0].to_string(),
            "sum:handlers.self_cpu_ratio"
        );
    }
}
