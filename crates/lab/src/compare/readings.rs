//! Changes of one figure against baselines, over many runs. `irqlab sweep report` uses it: a sweep has too many runs to
//! keep them in memory, so a [`Reading`] keeps only what [`changes`] needs to judge a figure.
//!
//! The rules are those of a comparison of two runs. All changes of a report are one family: in 95 % of reports, all of
//! their intervals hold together.

use std::rc::Rc;

use record::{Column, Run, Table, Value};

use super::bounds::Bound;
use super::buckets::row_fingerprint;
use super::cells::{
    ContextFacts, Figure, Pair, assumes_independence, context_name, cpu_share_column, figure,
    sole_condition, span_count, waits_for_the_scheduler,
};
use super::estimates::EstimateSource;
use super::judge::{Clocks, EVENT_KEY, Exactness, Judge, is_repeatable};
use super::run_totals::clock_ghz;
use super::windows::{RunWindows, Window, WindowLengths, is_total};
use super::{CPU_SHARE_MIN_RATIO, Method, Plan, Verdict};

/// A figure of a run, with the facts that decide how a change of it is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    figure: Figure,
    /// Whether another run gives the same figure, unless it is an estimate.
    is_repeatable: bool,
    /// See [`Pair::is_estimate`].
    is_estimate: bool,
    cpu_share: Option<f64>,
    context_share: Option<f64>,
    span_count: Option<u64>,
    clock_ghz: Option<f64>,
    /// Whether the interval follows from the values of one window as if they were independent.
    assumes_independence: bool,
    /// See [`waits_for_the_scheduler`].
    waits_for_the_scheduler: bool,
    /// The row's event of the processor. `None` if its table has no such key.
    event: Option<String>,
    /// See [`row_fingerprint`].
    row_fingerprint: u64,
    /// The window of the row. `None` if the figure is no total, or the run has no windows.
    window: Option<Window>,
}

/// The change of a figure from its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The baseline's figure, in the unit of the column.
    pub base: f64,
    /// The figure less the baseline's figure, in the unit of the column. `None` if one of them is only a bound.
    pub difference: Option<f64>,
    /// Lower and upper end of the simultaneous interval of the difference. An end is infinite where a bound leaves the
    /// difference open. `None` if the change cannot be judged.
    pub interval: Option<(f64, f64)>,
    pub method: Method,
    pub verdict: Verdict,
}

impl Reading {
    /// Reads the figure of `row` in `column`. Both belong to `table`, which belongs to `run`. `None`
    /// if the cell has no number, or one below the detection limit without an upper bound.
    #[must_use]
    pub fn new(run: &Run, table: &Table, row: &[Value], column: &Column) -> Option<Reading> {
        let figure = figure(table, row, column).filter(|figure| figure.shown_value().is_some())?;
        let ignores_condition = sole_condition(run).is_some();
        let facts = ContextFacts::of_run(run, ignores_condition);
        let context = context_name(table, row, ignores_condition);
        let (context_share, context_spans) = facts.get(context.as_ref());
        let cpu_share = cpu_share_column(table).and_then(|index| row.get(index)?.number());
        let event = match table.get(row, EVENT_KEY) {
            Some(Value::Text(event)) => Some(event.clone()),
            _ => None,
        };
        let window =
            if is_total(table, column) { RunWindows::of_run(run).of_row(table, row) } else { None };
        Some(Reading {
            figure,
            is_repeatable: is_repeatable(run),
            is_estimate: EstimateSource::of_run(run).is_estimate(
                table,
                row,
                column,
                figure.interval,
            ),
            cpu_share,
            context_share: cpu_share.or(context_share),
            span_count: span_count(table, row).or(context_spans),
            clock_ghz: clock_ghz(run),
            assumes_independence: assumes_independence(table, row, column),
            waits_for_the_scheduler: waits_for_the_scheduler(table, row),
            event,
            row_fingerprint: row_fingerprint(table, row),
            window,
        })
    }

    /// Whether the figure changes from run to run by more than its interval, so that one run does not rank it.
    #[must_use]
    pub fn needs_runs(&self) -> bool {
        let share = self.cpu_share.or(self.context_share);
        let is_small = share.is_some_and(|share| share < CPU_SHARE_MIN_RATIO);
        let has_wide_spread = self.assumes_independence || self.waits_for_the_scheduler;
        !self.is_repeatable && (has_wide_spread || is_small)
    }

    /// The figure, in the unit of its column. Below the detection limit: its upper bound.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.figure.value
    }

    /// Lower and upper end of the figure's 95 % interval. If the figure is exact, both are the figure itself, or the ends of
    /// its histogram's bucket. For a bound, an end is infinite. `None` if its uncertainty is not known.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        if !self.is_exact() {
            return self.figure.interval;
        }
        let (low, high) = self.figure.bucket_ends();
        match self.figure.bound {
            Some(bound) => bound.interval(Some(low), Some(high)),
            None => Some((low, high)),
        }
    }

    /// The bound that the figure is. `None` for a measurement.
    #[must_use]
    pub fn bound(&self) -> Option<Bound> {
        self.figure.bound
    }

    /// Whether another run gives exactly this figure.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.is_repeatable && !self.is_estimate
    }
}

/// Whether the number of `row` in `column` is below the detection limit, and has no known upper bound.
#[must_use]
pub fn is_below_limit(table: &Table, row: &[Value], column: &Column) -> bool {
    figure(table, row, column).is_some_and(|figure| figure.shown_value().is_none())
}

/// Judges the change in each pair of a baseline's reading and another reading. `column`: the column of
/// all readings, in `table`.
#[must_use]
pub fn changes(
    table: &Table,
    column: &Column,
    pairs: &[(&Reading, &Reading)],
    plan: &Plan,
) -> Vec<Change> {
    let are_repeatable = pairs.iter().all(|(base, new)| base.is_repeatable && new.is_repeatable);
    let exactness = if are_repeatable { Exactness::Repeatable } else { Exactness::Noisy };
    let pair = |(base, new): &(&Reading, &Reading)| {
        let larger = |first: Option<f64>, second: Option<f64>| {
            first.into_iter().chain(second).reduce(f64::max)
        };
        let events = [base, new].into_iter().filter_map(|reading| reading.event.clone());
        let row: Rc<[(&str, String)]> = events.map(|event| (EVENT_KEY, event)).collect();
        Pair {
            table,
            row,
            column,
            base: Some(base.figure),
            new: Some(new.figure),
            cpu_share: larger(base.cpu_share, new.cpu_share),
            context_share: larger(base.context_share, new.context_share),
            span_count: base.span_count.into_iter().chain(new.span_count).min(),
            assumes_independence: base.assumes_independence || new.assumes_independence,
            waits_for_the_scheduler: base.waits_for_the_scheduler || new.waits_for_the_scheduler,
            is_estimate: base.is_estimate || new.is_estimate,
            has_equal_rows: base.row_fingerprint == new.row_fingerprint,
            repeats: None,
            pair_counts: None,
            windows: if is_total(table, column) {
                WindowLengths::of_total(base.window, new.window)
            } else {
                None
            },
        }
    };
    let matched: Vec<Pair<'_>> = pairs.iter().map(pair).collect();
    let judge = Judge::new(&matched, (exactness, Clocks::Same), plan);
    let judged = pairs.iter().zip(matched).map(|((base, new), pair)| {
        // A run without a model has no clock, and differs from none.
        let clock_pair = base.clock_ghz.zip(new.clock_ghz);
        let have_equal_clocks = clock_pair.is_none_or(|(base, new)| base == new);
        let clocks = if have_equal_clocks { Clocks::Same } else { Clocks::Differ };
        let difference = judge.with_clocks(clocks).judge(pair);
        Change {
            base: base.value(),
            difference: difference.measured_change(),
            interval: difference.interval,
            method: difference.method,
            verdict: difference.verdict,
        }
    });
    judged.collect()
}

/// A warning if the readings of a column are totals over windows of different lengths: a longer window has a larger total.
#[must_use]
pub fn windows_warning(table: &Table, column: &Column, readings: &[&Reading]) -> Option<String> {
    if !is_total(table, column) {
        return None;
    }
    let (first, others) = readings.split_first()?;
    let lengths = others
        .iter()
        .filter_map(|other| WindowLengths::of_total(first.window, other.window))
        .filter(WindowLengths::differ)
        .reduce(WindowLengths::more_different)?;
    Some(format!(
        "{}.{} is a total over a window, and the windows differ in length ({}): a longer window has a larger total (report \
         a rate, a share of CPU time or a mean)",
        table.name,
        column.name,
        lengths.text()
    ))
}

impl Change {
    /// The difference or, if a figure is only a bound, the smallest difference that the bounds allow. `None` if the
    /// bounds allow no difference.
    #[must_use]
    pub fn least_difference(&self) -> Option<f64> {
        let by_bounds = || match self.interval? {
            (low, _) if low > 0.0 => Some(low),
            (_, high) if high < 0.0 => Some(high),
            _ => None,
        };
        self.difference.or_else(by_bounds)
    }

    /// Whether the change is known on both sides.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low.is_finite() && high.is_finite())
            || self.verdict.is_difference()
    }

    /// `difference` as a part of the baseline's figure. `None` if that figure is 0.
    #[must_use]
    pub fn ratio(&self, difference: f64) -> Option<f64> {
        (self.base != 0.0).then(|| difference / self.base.abs())
    }
}

#[cfg(test)]
mod tests {
    use record::{IntervalColumns, Kind};
    use serde_json::Map;

    use super::*;
    use crate::compare::compare;

    /// A run with one context: its mean and half width.
    fn run(bench: &str, mean: f64, half_width: f64) -> Run {
        let columns = vec![
            Column::new("name", Kind::Text, "").key(),
            Column::new("count", Kind::Uint, ""),
            Column::new("self_mean_ns", Kind::Real, "")
                .cost()
                .plus_minus("ci95_ns")
                .interval(IntervalColumns::half_width("ci95_ns").degrees_of_freedom("freedom")),
            Column::new("ci95_ns", Kind::Real, ""),
            Column::new("freedom", Kind::Uint, ""),
            Column::new("self_cpu_ratio", Kind::Real, "").cpu_share(),
        ];
        let mut table = Table::new("handlers", "", columns);
        let (count, freedom) = (1_000_u64.into(), 7_u64.into());
        let row = vec!["RCU".into(), count, mean.into(), half_width.into(), freedom, 0.05.into()];
        table.push(row);
        Run {
            schema: String::new(),
            experiment: "handlers".to_owned(),
            bench: bench.to_owned(),
            started_utc: String::new(),
            complete: true,
            host: Map::new(),
            settings: Map::new(),
            observer: Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: vec![table],
        }
    }

    fn reading(run: &Run) -> Reading {
        let table = &run.tables[0];
        Reading::new(run, table, &table.rows()[0], &table.columns[2]).unwrap()
    }

    fn judged(base: &Run, news: &[Run]) -> Vec<Change> {
        let plan = Plan { all_rows: false, margin_ratio: 0.02, rules: Vec::new() };
        let (base_reading, readings) =
            (reading(base), news.iter().map(reading).collect::<Vec<_>>());
        let pairs: Vec<(&Reading, &Reading)> =
            readings.iter().map(|new| (&base_reading, new)).collect();
        changes(&base.tables[0], &base.tables[0].columns[2], &pairs, &plan)
    }

    #[test]
    fn one_change_is_judged_as_compare_judges_it() {
        for (bench, new_mean) in [("sim", 110.0), ("live", 110.0), ("live", 100.5), ("sim", 100.0)]
        {
            let (base, new) = (run(bench, 100.0, 1.0), run(bench, new_mean, 1.0));
            let change = judged(&base, std::slice::from_ref(&new))[0];
            let plan = Plan { all_rows: false, margin_ratio: 0.02, rules: Vec::new() };
            let (mut base, mut new) = (base, new);
            // Otherwise compare also judges the share of CPU time, and gives each figure a wider interval.
            for run in [&mut base, &mut new] {
                run.tables[0].columns[5].role = record::Role::Figure;
                run.tables[0].columns[5].display.priority = 0;
            }
            let found = compare(&base, &new, &plan).unwrap();
            let is_mean = |difference: &&crate::compare::Difference<'_>| {
                difference.pair.column.name == "self_mean_ns"
            };
            let expected = found.differences.iter().find(is_mean).unwrap();
            assert_eq!(
                (change.verdict, change.method, change.interval),
                (expected.verdict, expected.method, expected.interval),
                "{bench} {new_mean}"
            );
        }
    }

    #[test]
    fn many_changes_have_wider_intervals_than_one() {
        let base = run("live", 100.0, 1.0);
        let width = |news: &[Run]| {
            let (low, high) = judged(&base, news)[0].interval.unwrap();
            high - low
        };
        let new = || run("live", 110.0, 1.0);
        let many: Vec<Run> = (0..1_000).map(|_| new()).collect();
        assert!(width(&many) > 1.2 * width(&[new()]));
    }

    /// A run with one row: a clock, an event, its mean, and the mean's method; and a histogram's quantile.
    fn run_of_event(bench: &str, clock: &str, mean: f64, method: &str, quantile: u64) -> Run {
        let interval = IntervalColumns::half_width("ci95").degrees_of_freedom("freedom");
        let columns = vec![
            Column::new("event", Kind::Text, "").key(),
            Column::new("self_mean", Kind::Real, "").interval(interval.method("how")).cost(),
            Column::new("p99_ns", Kind::Uint, "Exact within 1/16.").cost(),
            Column::new("ci95", Kind::Real, ""),
            Column::new("freedom", Kind::Uint, ""),
            Column::new("how", Kind::Text, ""),
        ];
        let mut table = Table::new("events", "", columns);
        let uncertainty = [0.01.into(), 7_u64.into(), method.into()];
        let figures = [mean.into(), quantile.into()];
        table.push(["cycles".into()].into_iter().chain(figures).chain(uncertainty).collect());
        let mut run = run(bench, 1.0, 1.0);
        run.tables = vec![table];
        run.settings.insert("model".to_owned(), serde_json::json!({ "clock": clock }));
        run
    }

    /// The change of a column of [`run_of_event`], after a check that `compare` judges it in the same way.
    fn change_of(base: &Run, new: &Run, column: usize) -> Change {
        let plan = Plan { all_rows: false, margin_ratio: 0.02, rules: Vec::new() };
        let table = &base.tables[0];
        let of_column = |run: &Run| {
            let table = &run.tables[0];
            Reading::new(run, table, &table.rows()[0], &table.columns[column]).unwrap()
        };
        let (base_reading, new_reading) = (of_column(base), of_column(new));
        let pairs = [(&base_reading, &new_reading)];
        let change = changes(table, &table.columns[column], &pairs, &plan)[0];
        let found = compare(base, new, &plan).unwrap();
        let is_column = |difference: &&crate::compare::Difference<'_>| {
            difference.pair.column.name == table.columns[column].name
        };
        let expected = found.differences.iter().find(is_column).unwrap();
        assert_eq!((change.verdict, change.method), (expected.verdict, expected.method));
        change
    }

    #[test]
    fn a_change_of_a_quantile_within_its_buckets_is_undecided() {
        let [base, near, far] = [(1.0, 1_007), (1.1, 1_055), (1.1, 1_183)]
            .map(|(mean, quantile)| run_of_event("sim", "1 GHz", mean, "batch-means", quantile));
        assert_eq!(change_of(&base, &near, 2).verdict, Verdict::Undecided);
        assert_eq!(change_of(&base, &far, 2).verdict, Verdict::Worse);
        let same = change_of(&base, &base, 2);
        assert_eq!((same.verdict, same.interval), (Verdict::Equal, Some((0.0, 0.0))));
    }

    #[test]
    fn an_interval_as_if_values_were_independent_needs_several_runs() {
        for (base, new) in [("independent", "batch-means"), ("batch-means", "independent")] {
            let base = run_of_event("live", "1 GHz", 1.0, base, 10);
            let new = run_of_event("live", "1 GHz", 2.0, new, 10);
            assert_eq!(change_of(&base, &new, 1).method, Method::OneRun);
        }
        let [base, new] =
            [1.0, 2.0].map(|mean| run_of_event("live", "1 GHz", mean, "batch-means", 10));
        assert_eq!(change_of(&base, &new, 1).verdict, Verdict::Worse);
    }

    #[test]
    fn fewer_cycles_of_an_event_on_a_slower_clock_are_not_better() {
        let base = run_of_event("sim", "4 GHz", 900.0, "batch-means", 10);
        let slower = run_of_event("sim", "2 GHz", 800.0, "batch-means", 10);
        assert_eq!(change_of(&base, &slower, 1).verdict, Verdict::Changed);
        let same = run_of_event("sim", "4 GHz", 800.0, "batch-means", 10);
        assert_eq!(change_of(&base, &same, 1).verdict, Verdict::Better);
    }

    #[test]
    fn an_exact_figure_has_an_interval_without_width() {
        assert_eq!(reading(&run("sim", 5.0, 1.0)).interval(), Some((5.0, 5.0)));
        assert_eq!(reading(&run("live", 5.0, 1.0)).interval(), Some((4.0, 6.0)));
    }
}
