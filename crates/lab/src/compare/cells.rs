//! The cells of two runs, side by side: finds the figures of both runs, with their intervals, and computes the
//! interval of a difference. The parent module and `series` judge these pairs.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use attribution::ContextKind;
use record::interval::{Bounds, Ends, Freedom};
use record::{Column, Combine, IntervalColumns, Role, Run, Table, Value};
use stats::IntervalMethod;
use stats::interval::{BATCHES_MIN, Uncertainty, half_width_of_difference, t_quantile};

use super::bounds::{Bound, OpenSides};
use super::buckets::{bucket, may_be_bucketed, row_fingerprint};
use super::decision::Distances;
use super::estimates::EstimateSource;
use super::series::Repeats;
use super::windows::{RunWindows, WindowLengths, is_total};
use crate::handlers::DELAYS;
use crate::quantiles::WIDE_TAIL;

/// Degrees of freedom of an interval whose table has no column for them. This is the smallest possible number: that of
/// an interval from the fewest batches.
const FREEDOM_UNKNOWN: f64 = (BATCHES_MIN - 1) as f64;

/// A figure with its intervals, where it has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The figure, in the unit of its column. Below the detection limit: the upper end of its 95 % interval, if known.
    pub value: f64,
    /// Distance from the measured number up to `value`: half the width of the 95 % interval below the
    /// detection limit, and 0 above it.
    pub(super) above_measured: f64,
    /// Lower and upper end of its 95 % interval. For a bound: of the quantity, so an end is infinite.
    pub interval: Option<(f64, f64)>,
    /// Degrees of freedom of that interval.
    pub degrees_of_freedom: f64,
    /// Standard deviation between windows that slow changes of the machine cause, in the
    /// unit of the column; 0 if it is not known.
    pub drift: f64,
    /// Lower and upper end of the 99.99 % interval of a quantile. A standard error does not give the width of a
    /// quantile's interval. `None` for other figures.
    pub wide: Option<(f64, f64)>,
    /// Lower and upper end of the histogram's bucket that the figure stands for. `None` for a figure of no histogram.
    pub bucket: Option<(f64, f64)>,
    /// `None` for a measurement.
    pub bound: Option<Bound>,
}

impl Figure {
    /// The figure after a change by the part `by_ratio` of itself. The intervals keep their widths.
    #[must_use]
    pub fn changed_by(self, by_ratio: f64) -> Figure {
        let shift = self.value.abs() * by_ratio;
        let shifted =
            |interval: Option<(f64, f64)>| interval.map(|(low, high)| (low + shift, high + shift));
        let (interval, wide) = (shifted(self.interval), shifted(self.wide));
        let bucket = shifted(self.bucket);
        Figure { value: self.value + shift, interval, wide, bucket, ..self }
    }

    /// This number below the detection limit, as a bound. `half_width`: half the width of its 95 % interval. The upper end of
    /// the interval is the bound. A time or a share of time is not negative: an end that is negative bounds nothing.
    fn below_limit(self, half_width: Option<f64>) -> Figure {
        let above = half_width.filter(|half_width| self.value + half_width > 0.0);
        let Some(above_measured) = above else {
            return Figure { interval: None, bound: Some(Bound::BelowLimit), ..self };
        };
        let value = self.value + above_measured;
        let interval = Some((f64::NEG_INFINITY, value));
        Figure { value, above_measured, interval, bound: Some(Bound::Upper), ..self }
    }

    /// The figure for readers. `None` if it is below the detection limit and has no known upper end.
    #[must_use]
    pub fn shown_value(&self) -> Option<f64> {
        (self.bound != Some(Bound::BelowLimit)).then_some(self.value)
    }

    /// The lower and the upper end of the values that the figure stands for: its bucket, or the figure itself.
    pub(super) fn bucket_ends(&self) -> (f64, f64) {
        self.bucket.unwrap_or((self.value, self.value))
    }

    /// Distance from the figure down to the lower end of `interval`, at least 0.
    fn distance_down(&self, interval: (f64, f64)) -> f64 {
        (self.value - interval.0).max(0.0)
    }

    /// Distance from the figure up to the upper end of `interval`, at least 0.
    fn distance_up(&self, interval: (f64, f64)) -> f64 {
        (interval.1 - self.value).max(0.0)
    }

    /// The part of [`Figure::distance_down`] that chance causes: without the figure's bucket, which `interval` contains.
    fn chance_down(&self, interval: (f64, f64)) -> f64 {
        (self.distance_down(interval) - self.distance_down(self.bucket_ends())).max(0.0)
    }

    /// The part of [`Figure::distance_up`] that chance causes. Below the detection limit, the measured number is the start.
    fn chance_up(&self, interval: (f64, f64)) -> f64 {
        let above_value = self.distance_up(interval) - self.distance_up(self.bucket_ends());
        above_value.max(0.0) + self.above_measured
    }

    /// The figure's uncertainty if its interval has this half width; both in multiples of `unit`.
    fn uncertainty(&self, half_width: f64, unit: f64) -> Uncertainty {
        let Figure { degrees_of_freedom, drift, .. } = *self;
        Uncertainty { half_width: half_width / unit, degrees_of_freedom, drift: drift / unit }
    }
}

/// Distances from the difference `new` less `base` down and up to the ends of the differences that the buckets of both
/// figures allow. 0 for figures of no histogram.
fn bucket_distances(base: &Figure, new: &Figure) -> (f64, f64) {
    // The difference is smallest where `new` is at its lower end and `base` at its upper end.
    let down = new.distance_down(new.bucket_ends()) + base.distance_up(base.bucket_ends());
    let up = new.distance_up(new.bucket_ends()) + base.distance_down(base.bucket_ends());
    (down, up)
}

/// Distances from the difference `new` less `base` down and up to the ends of its interval. The true difference is beyond
/// each end with the probability `tail`. `with_buckets`: whether the interval includes the buckets of the figures.
/// `None` if a figure has no interval.
///
/// For quantiles, the distance of the difference is the root of the squared distances of both figures (MOVER). For
/// other figures, the interval is Student's t of the logarithm of their ratio, because rates and costs differ by
/// factors. On a linear scale, the larger figure's error would hide the smaller figure's error. If a figure is 0 or
/// negative, the interval is Student's t of the difference itself.
fn interval_distances(
    base: &Figure,
    new: &Figure,
    tail: f64,
    with_buckets: bool,
) -> Option<Distances> {
    let (bucket_down, bucket_up) =
        if with_buckets { bucket_distances(base, new) } else { (0.0, 0.0) };
    if let (Some(base_wide), Some(new_wide)) = (base.wide, new.wide) {
        let factor = t_quantile(f64::INFINITY, tail)? / t_quantile(f64::INFINITY, WIDE_TAIL)?;
        let down = new.chance_down(new_wide).hypot(base.chance_up(base_wide));
        let up = new.chance_up(new_wide).hypot(base.chance_down(base_wide));
        let (down, up) = (factor * down + bucket_down, factor * up + bucket_up);
        return Some(Distances::Linear { down, up });
    }
    let (base_interval, new_interval) = (base.interval?, new.interval?);
    let is_ratio = [base, new]
        .into_iter()
        .all(|figure| figure.bucket_ends().0 > 0.0 && figure.above_measured == 0.0);
    let [base_unit, new_unit] = if is_ratio { [base.value, new.value] } else { [1.0, 1.0] };
    let half_width = |base_half: f64, new_half: f64, is_open: bool| {
        // The half width of an open side would be infinite: the caller opens this side of the interval.
        let halves = if is_open { (0.0, 0.0) } else { (base_half, new_half) };
        let figures = [base.uncertainty(halves.0, base_unit), new.uncertainty(halves.1, new_unit)];
        half_width_of_difference(figures, tail)
    };
    let open = OpenSides::of_difference(base, new);
    let down =
        half_width(base.chance_up(base_interval), new.chance_down(new_interval), open.below)?;
    let up = half_width(base.chance_down(base_interval), new.chance_up(new_interval), open.above)?;
    if !is_ratio {
        // The half widths are around the measured numbers. Below the detection limit, the figure is the upper end of its
        // interval instead, and one side of the difference is closer by the distance between both.
        let (above_base, above_new) = (base.above_measured, new.above_measured);
        let down = if open.below { down } else { (down - above_base).max(0.0) } + bucket_down;
        let up = if open.above { up } else { (up - above_new).max(0.0) } + bucket_up;
        return Some(Distances::Linear { down, up });
    }
    let (bucket_down, bucket_up) =
        if with_buckets { bucket_log_distances(base, new) } else { (0.0, 0.0) };
    Some(Distances::Logarithmic { down: down + bucket_down, up: up + bucket_up })
}

/// [`bucket_distances`] of the logarithms of the figures.
fn bucket_log_distances(base: &Figure, new: &Figure) -> (f64, f64) {
    let down = |figure: &Figure| figure.value.ln() - figure.bucket_ends().0.ln();
    let up = |figure: &Figure| figure.bucket_ends().1.ln() - figure.value.ln();
    (down(new) + up(base), up(new) + down(base))
}

/// In how many pairs of runs a figure is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairCounts {
    /// Pairs in which both runs have the figure.
    pub compared: usize,
    /// All pairs of runs.
    pub all: usize,
}

/// A cell of the first run, and the cell of the second run in the row with the same keys. At least
/// one of both has a figure.
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    /// The table of the first run, or of the second run if only that has the cell.
    pub table: &'a Table,
    /// Names and values of the key columns. All cells of a row share one list.
    pub row: Rc<[(&'a str, String)]>,
    pub column: &'a Column,
    /// The first run's figure. With several runs on each side: the mean over the first side's runs, which is geometric if
    /// all figures of both sides are above 0. `None` if they lack the row or the figure.
    pub base: Option<Figure>,
    /// The second run's figure, or the mean over the second side's runs, of the kind of `base`. `None` if they
    /// lack the row or the figure.
    pub new: Option<Figure>,
    /// The larger of both rows' shares of CPU time, or `None` if the table has no such column.
    pub cpu_share: Option<f64>,
    /// The share of CPU time of the row's context: `cpu_share`, or that of the same context in another table.
    /// `None` if no table has one.
    pub context_share: Option<f64>,
    /// The smallest number of spans of the row in any run, or of the same context in another table.
    /// `None` if no table counts them.
    pub span_count: Option<u64>,
    /// Whether the intervals are too narrow because they assume that the values of a window are independent. True for a
    /// quantile whose table has no figures of the window's sections, for a mean whose table has neither degrees of
    /// freedom nor drift, and for a mean of a row in either run that says so.
    pub assumes_independence: bool,
    /// Whether the row is the delay of work items, which end when the scheduler runs a worker thread.
    pub waits_for_the_scheduler: bool,
    /// Whether a figure is an estimate, though its run is repeatable: it follows from a sample or from random numbers.
    pub is_estimate: bool,
    /// Whether both rows have the same value in each figure. A repeatable run and its repetition have such rows:
    /// quantiles of a histogram are then equal, wherever they are in their buckets. False if a run lacks the row, or
    /// the table has no quantiles.
    pub has_equal_rows: bool,
    /// The differences between pairs of runs, or `None` with one run on each side.
    pub repeats: Option<Repeats>,
    /// In how many pairs of runs the figure is compared. `None` with one run on each side, and if
    /// all pairs have the figure.
    pub pair_counts: Option<PairCounts>,
    /// The windows of a total. With several runs on each side: those of the pair of runs whose windows differ most. `None`
    /// if the figure is no total, or if the lengths do not matter, as for windows that end with a command.
    pub windows: Option<WindowLengths>,
}

impl Pair<'_> {
    /// This pair with the second figure changed by the part `by_ratio` of itself.
    #[must_use]
    pub fn changed_by(&self, by_ratio: f64) -> Self {
        let new = self.new.map(|new| new.changed_by(by_ratio));
        let added = new.zip(self.new).map_or(0.0, |(changed, new)| changed.value - new.value);
        let repeats = self.repeats.as_ref().map(|repeats| repeats.changed_by(by_ratio, added));
        let has_equal_rows = self.has_equal_rows && by_ratio == 0.0;
        Pair { new, repeats, has_equal_rows, ..self.clone() }
    }

    /// Distances from the difference down and up to the ends of its interval, with the probability `tail` beyond each
    /// end. They follow from the pairs of runs or, with one run on each side, from the intervals of both figures. They
    /// include the buckets of a histogram. They do not tell on which sides bounds leave the difference open. `None` if a figure is missing, has no interval, or has too few pairs.
    #[must_use]
    pub fn distances(&self, tail: f64) -> Option<Distances> {
        match &self.repeats {
            Some(repeats) => repeats.distances(tail, !self.has_equal_rows),
            None => interval_distances(&self.base?, &self.new?, tail, !self.has_equal_rows),
        }
    }

    /// Whether the figures are totals over windows of different lengths. Two totals of 0 are comparable.
    pub(super) fn has_other_windows(&self) -> bool {
        let is_zero = |figure: Option<Figure>| figure.is_none_or(|figure| figure.value == 0.0);
        let are_zero = is_zero(self.base) && is_zero(self.new);
        !are_zero && self.windows.is_some_and(|windows| windows.differ())
    }

    /// Distances from the difference of the figures down and up to the ends of the differences that their histogram's
    /// buckets allow. 0 for figures of no histogram, for a repetition, and for several runs on each side.
    pub(super) fn bucket_distances(&self) -> (f64, f64) {
        match (&self.base, &self.new) {
            (Some(base), Some(new)) if !self.has_equal_rows => bucket_distances(base, new),
            _ => (0.0, 0.0),
        }
    }

    /// On which sides bounds leave the difference open. The default if a figure is missing.
    pub(super) fn open_sides(&self) -> OpenSides {
        match (&self.repeats, &self.base, &self.new) {
            (Some(repeats), ..) => repeats.open_sides(),
            (None, Some(base), Some(new)) => OpenSides::of_difference(base, new),
            _ => OpenSides::default(),
        }
    }

    #[must_use]
    pub fn has_interval(&self) -> bool {
        match &self.repeats {
            Some(repeats) => repeats.has_interval(),
            None => {
                let has_interval =
                    |figure: Option<Figure>| figure.is_some_and(|figure| figure.interval.is_some());
                has_interval(self.base) && has_interval(self.new)
            }
        }
    }
}

/// The column with the share of CPU time that a row took.
pub(super) fn cpu_share_column(table: &Table) -> Option<usize> {
    table.columns.iter().position(|column| column.is_cpu_share)
}

/// Whether the column's interval follows from the values of the window as if they were independent. This is true for a
/// quantile without degrees of freedom and without a wide interval: its interval follows from the order of the values
/// alone. It is also true for a mean without degrees of freedom and without drift: its interval follows from the
/// variance of the values alone. Means have half widths, and quantiles have bounds.
fn column_assumes_independence(column: &Column) -> bool {
    column.interval.as_ref().is_some_and(|interval| {
        let has_more_evidence = match interval.ends {
            Ends::Bounds(_) => interval.wide.is_some(),
            Ends::HalfWidth(_) => interval.drift.is_some(),
        };
        interval.freedom.is_none() && !has_more_evidence
    })
}

/// Whether the interval of the figure of `row` follows from the values of the window as if they were independent: the
/// column says so for all rows, or the row for itself. A mean over too few batches falls back to such an interval.
pub(super) fn assumes_independence(table: &Table, row: &[Value], column: &Column) -> bool {
    let method = column.interval.as_ref().and_then(|interval| interval.method.as_deref());
    let row_method = method.and_then(|name| table.get(row, name));
    let is_independent = row_method == Some(&Value::from(IntervalMethod::Independent.label()));
    is_independent || column_assumes_independence(column)
}

/// Whether `row` is the delay of work items. It ends when the scheduler runs a worker thread, so other work on the
/// machine decides it. Between runs of the same thing, the mean of this row differed by a factor of 11.
pub(super) fn waits_for_the_scheduler(table: &Table, row: &[Value]) -> bool {
    let work = Value::from(ContextKind::Work.label());
    table.name == DELAYS && table.get(row, "kind") == Some(&work)
}

/// The figure of `row` in a column, with the intervals that the column links to. `None` if the
/// cell is empty or no number.
pub(super) fn figure(table: &Table, row: &[Value], column: &Column) -> Option<Figure> {
    let cell = |name: &str| table.get(row, name).and_then(Value::number);
    let bounds = |Bounds { low, high }: &Bounds| cell(low).zip(cell(high));
    let value = cell(&column.name)?;
    let mut figure = Figure {
        value,
        above_measured: 0.0,
        interval: None,
        degrees_of_freedom: FREEDOM_UNKNOWN,
        drift: 0.0,
        wide: None,
        bucket: bucket(table, row, column, value),
        bound: Bound::of_cell(table, row, column),
    };
    let Some(IntervalColumns { ends, freedom, drift, wide, .. }) = &column.interval else {
        if figure.bound == Some(Bound::BelowLimit) {
            let half_width = match &column.display.combine {
                Some(Combine::PlusMinus(half_width)) => cell(half_width),
                _ => None,
            };
            figure = figure.below_limit(half_width);
        }
        return Some(figure);
    };
    figure.wide = wide.as_ref().and_then(bounds);
    // In a table with wide intervals, a row without a wide interval has no known uncertainty: its narrow interval may
    // assume independent values.
    if wide.is_none() || figure.wide.is_some() {
        let (low, high) = match ends {
            Ends::HalfWidth(column) => {
                cell(column).map(|half| (value - half, value + half)).unzip()
            }
            Ends::Bounds(Bounds { low, high }) => (cell(low), cell(high)),
        };
        match figure.bound {
            None => figure.interval = low.zip(high),
            Some(Bound::BelowLimit) => figure = figure.below_limit(high.map(|high| high - value)),
            Some(bound) => figure.interval = bound.interval(low, high),
        }
    }
    let degrees_of_freedom = freedom.as_ref().and_then(|freedom| match freedom {
        Freedom::Degrees(column) => cell(column),
        Freedom::Repetitions(column) => cell(column).map(|repetitions| repetitions - 1.0),
    });
    figure.degrees_of_freedom = degrees_of_freedom.unwrap_or(FREEDOM_UNKNOWN);
    figure.drift = drift.as_deref().and_then(cell).unwrap_or(0.0);
    Some(figure)
}

/// The rows of a table by the values of its key columns, as text. `None` if two rows have the same keys.
fn rows_by_key<'t>(table: &'t Table, keys: &[&str]) -> Option<BTreeMap<Vec<String>, &'t [Value]>> {
    let positions: Vec<Option<usize>> = keys.iter().map(|name| table.column(name)).collect();
    let mut rows = BTreeMap::new();
    for row in table.rows() {
        let key = positions.iter().map(|position| text(position.and_then(|index| row.get(index))));
        if rows.insert(key.collect(), row.as_slice()).is_some() {
            return None;
        }
    }
    Some(rows)
}

/// The value of a key column as text. Empty if it is absent.
fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::Text(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(value) => value.number().map(|number| number.to_string()).unwrap_or_default(),
        None => String::new(),
    }
}

/// Gives rows the condition `new` instead of their own, so that they match rows with that condition.
fn with_condition<'t>(
    rows: BTreeMap<Vec<String>, &'t [Value]>,
    keys: &[&str],
    new: &str,
) -> BTreeMap<Vec<String>, &'t [Value]> {
    let Some(position) = keys.iter().position(|key| *key == CONDITION) else { return rows };
    let renamed = rows.into_iter().map(|(mut key, row)| {
        new.clone_into(&mut key[position]);
        (key, row)
    });
    renamed.collect()
}

/// Names of the key columns, whose values together name a row.
pub fn keys(table: &Table) -> Vec<&str> {
    let keys = table.columns.iter().filter(|column| column.role == Role::Key);
    keys.map(|column| column.name.as_str()).collect()
}

/// The condition of a run: the only value in its key columns `condition`. `None` if there are several or none.
pub fn sole_condition(run: &Run) -> Option<&str> {
    let mut found = None;
    for table in &run.tables {
        let is_condition = |column: &Column| column.role == Role::Key && column.name == CONDITION;
        let Some(index) = table.columns.iter().position(is_condition) else { continue };
        for row in table.rows() {
            match row.get(index) {
                Some(Value::Text(text)) if found.is_none_or(|name| name == text.as_str()) => {
                    found = Some(text.as_str());
                }
                _ => return None,
            }
        }
    }
    found
}

/// What ranks a row of any table with a context: the context's share of CPU time and its number of spans, from
/// the tables that have them.
#[derive(Default)]
pub(super) struct ContextFacts(BTreeMap<Vec<String>, (Option<f64>, Option<u64>)>);

/// Key columns that name a context. A table may lack some of them.
const CONTEXT_KEYS: [&str; 4] = [CONDITION, "kind", "number", "name"];
/// The key column that names a context of `sim boot` and `sim workload`.
const SIMULATED_CONTEXT: &str = "context";
/// The key column that names the condition.
const CONDITION: &str = "condition";

impl ContextFacts {
    /// The facts of a run. `ignores_condition`: whether its condition is left out of the names.
    pub(super) fn of_run(run: &Run, ignores_condition: bool) -> ContextFacts {
        let mut facts = ContextFacts::default();
        for table in &run.tables {
            let is_sum = |row: &&Vec<Value>| {
                table.get(row, "cpu").is_none_or(|cpu| *cpu == Value::from("all"))
            };
            let Some(shares) = Shares::of_table(table, table.rows().iter().filter(is_sum)) else {
                continue;
            };
            for row in table.rows().iter().filter(is_sum) {
                if let Some(name) = context_name(table, row, ignores_condition) {
                    facts.0.entry(name).or_insert((shares.of_row(row), span_count(table, row)));
                }
            }
        }
        facts
    }

    pub(super) fn get(&self, name: Option<&Vec<String>>) -> (Option<f64>, Option<u64>) {
        name.and_then(|name| self.0.get(name)).copied().unwrap_or_default()
    }
}

/// The share of each context of a table in the CPU time of all.
enum Shares {
    /// The column with the share.
    Column(usize),
    /// The column with cycles or instructions, and its sum over all contexts.
    PartOf(usize, f64),
}

impl Shares {
    /// `rows`: the rows that sum up all CPUs. `None` if the table has no column for the shares, or nothing was counted.
    fn of_table<'t>(table: &Table, rows: impl Iterator<Item = &'t Vec<Value>>) -> Option<Shares> {
        if let Some(column) = cpu_share_column(table) {
            return Some(Shares::Column(column));
        }
        table.column(SIMULATED_CONTEXT)?;
        let position = |name: &str| table.columns.iter().position(|column| column.name == name);
        let column = position("self_cycles").or_else(|| position("self_instructions"))?;
        let all: f64 = rows
            .filter(|row| table.get(row, SIMULATED_CONTEXT) != Some(&Value::from("all")))
            .filter_map(|row| row.get(column)?.number())
            .sum();
        (all > 0.0).then_some(Shares::PartOf(column, all))
    }

    fn of_row(&self, row: &[Value]) -> Option<f64> {
        match self {
            Shares::Column(column) => row.get(*column)?.number(),
            Shares::PartOf(column, all) => Some(row.get(*column)?.number()? / all),
        }
    }
}

/// The values that name the context of a row. `None` if the table has no contexts.
pub(super) fn context_name(
    table: &Table,
    row: &[Value],
    ignores_condition: bool,
) -> Option<Vec<String>> {
    if table.column(SIMULATED_CONTEXT).is_some() {
        return Some(["region", SIMULATED_CONTEXT].map(|key| text(table.get(row, key))).to_vec());
    }
    table.column("name")?;
    let keys = CONTEXT_KEYS.iter().skip(usize::from(ignores_condition));
    Some(keys.map(|key| text(table.get(row, key))).collect())
}

pub(super) fn span_count(table: &Table, row: &[Value]) -> Option<u64> {
    match table.get(row, "count") {
        Some(Value::Uint(count)) => Some(*count),
        _ => None,
    }
}

/// A table that is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutTable {
    pub name: String,
    /// Why it is not compared.
    pub reason: String,
    /// Whether it has costs, benefits, or figures with an interval. A list of single events has none.
    pub has_judged_figures: bool,
}

/// The cells of two runs, and the tables that are not compared.
#[derive(Debug, Default)]
pub struct Matched<'a> {
    /// Cells that at least one of both runs has: first those of the first run's tables.
    pub pairs: Vec<Pair<'a>>,
    pub left_out: Vec<LeftOutTable>,
}

/// The tables, columns and rows that a comparison includes.
pub(super) trait Wanted {
    /// Whether the comparison includes the cells of `column` in shown rows.
    fn includes(&self, table: &Table, column: &Column) -> bool;

    /// Whether a rule is about this column. The comparison then includes its cells in all rows.
    fn is_ruled(&self, table: &Table, column: &Column) -> bool;

    /// Whether the table shows the row, or the comparison includes rows that tables hide.
    fn shows(&self, table: &Table, row: &[Value]) -> bool;
}

/// The rows that at least one run of a series shows: the table's name, and the values of the key columns. Whether a row
/// is shown can depend on its measured figures. A row that only some of the runs show is compared in all pairs: the pairs
/// with large figures alone would differ where nothing has changed.
#[derive(Default)]
pub(super) struct ShownRows(BTreeSet<(String, Vec<String>)>);

impl ShownRows {
    /// The shown rows of all runs. The runs of both sides are in pairs.
    pub(super) fn of_series(base: &[Run], new: &[Run], wanted: &impl Wanted) -> ShownRows {
        let mut shown = ShownRows::default();
        for (base, new) in base.iter().zip(new) {
            let condition = common_condition(base, new);
            for (table, new_table) in table_pairs(base, new) {
                shown.add(table, new_table, condition, wanted);
            }
        }
        shown
    }

    fn add(
        &mut self,
        table: Option<&Table>,
        new_table: Option<&Table>,
        condition: Option<&str>,
        wanted: &impl Wanted,
    ) {
        let Some(named) = table.or(new_table) else { return };
        let tables = [table, new_table];
        // A table without a filter shows all rows.
        if tables.into_iter().flatten().all(|table| table.display.filter.is_none()) {
            return;
        }
        let Some(rows) = keyed_rows(tables, &keys(named), condition) else { return };
        for (table, rows) in tables.into_iter().zip(rows) {
            let Some(table) = table else { continue };
            let shown = rows.into_iter().filter(|(_, row)| wanted.shows(table, row));
            self.0.extend(shown.map(|(key, _)| (named.name.clone(), key)));
        }
    }

    fn contains(&self, table: &Table, key: &[String]) -> bool {
        self.0.contains(&(table.name.clone(), key.to_vec()))
    }
}

/// The condition of the first run, if each run has one only: the conditions then match whatever their names are. `None`
/// if a run has no condition, or several.
fn common_condition<'r>(base: &'r Run, new: &'r Run) -> Option<&'r str> {
    sole_condition(new).and(sole_condition(base))
}

/// Pairs the tables of both runs by name, the first run's tables first. A table is `None` if the run lacks it.
fn table_pairs<'a>(
    base: &'a Run,
    new: &'a Run,
) -> impl Iterator<Item = (Option<&'a Table>, Option<&'a Table>)> {
    let of_base = base.tables.iter().map(|table| (Some(table), new.table(&table.name)));
    let of_new_alone = new.tables.iter().filter(|table| base.table(&table.name).is_none());
    of_base.chain(of_new_alone.map(|table| (None, Some(table))))
}

/// The rows of a table of both runs by the values of `keys`. Rows of the second run get the `condition` of the first.
/// `None` if rows of a run have the same keys.
fn keyed_rows<'a>(
    [table, new_table]: [Option<&'a Table>; 2],
    keys: &[&str],
    condition: Option<&str>,
) -> Option<[Rows<'a>; 2]> {
    let rows_of = |table: Option<&'a Table>| -> Option<Rows<'a>> {
        table.map_or_else(|| Some(Rows::default()), |table| rows_by_key(table, keys))
    };
    let (rows, new_rows) = (rows_of(table)?, rows_of(new_table)?);
    let new_rows = match condition {
        Some(condition) => with_condition(new_rows, keys, condition),
        None => new_rows,
    };
    Some([rows, new_rows])
}

/// Matches the figures of `base` with the figures of `new` by table, row keys and column. If each run has one condition, the
/// conditions match whatever their names are. Of a table that only one of the runs has, only columns with a rule count.
///
/// A row counts if a run shows it. `shown`: with several runs on each side, the rows that any of them shows.
pub(super) fn matched<'a>(
    base: &'a Run,
    new: &'a Run,
    wanted: &impl Wanted,
    shown: Option<&ShownRows>,
) -> Matched<'a> {
    let condition = common_condition(base, new);
    let side = |run| Side {
        facts: ContextFacts::of_run(run, condition.is_some()),
        estimates: EstimateSource::of_run(run),
        windows: RunWindows::of_run(run),
    };
    let sides = BothRuns { condition, base: side(base), new: side(new), shown };
    let mut found = Matched::default();
    for (table, new_table) in table_pairs(base, new) {
        sides.match_table(table, new_table, wanted, &mut found);
    }
    found
}

/// What matching needs to know of one run as a whole.
struct Side {
    facts: ContextFacts,
    estimates: EstimateSource,
    windows: RunWindows,
}

/// What matching needs to know of two runs.
struct BothRuns<'a, 's> {
    /// The first run's condition, if each run has one only.
    condition: Option<&'a str>,
    base: Side,
    new: Side,
    /// The rows that any run of a series shows. `None` with one run on each side.
    shown: Option<&'s ShownRows>,
}

/// A cell with its table, column and row.
#[derive(Clone, Copy)]
struct Cell<'a> {
    table: &'a Table,
    column: &'a Column,
    row: &'a [Value],
}

impl<'a> Cell<'a> {
    /// The cell in the row and the column of a table, if all exist.
    fn of(
        table: Option<&'a Table>,
        column: Option<&'a Column>,
        row: Option<&'a [Value]>,
    ) -> Option<Cell<'a>> {
        Some(Cell { table: table?, column: column?, row: row? })
    }

    fn figure(&self) -> Option<Figure> {
        figure(self.table, self.row, self.column)
    }

    fn assumes_independence(&self) -> bool {
        assumes_independence(self.table, self.row, self.column)
    }
}

/// The rows of a table by their keys. Empty for a table that the run lacks.
type Rows<'a> = BTreeMap<Vec<String>, &'a [Value]>;

/// The figure columns of a table of both runs, by name: first those of the first run.
fn column_pairs<'a>(
    table: Option<&'a Table>,
    new_table: Option<&'a Table>,
) -> Vec<(Option<&'a Column>, Option<&'a Column>)> {
    let figures = |table: Option<&'a Table>| {
        let columns = table.map_or(&[][..], |table| &table.columns);
        columns.iter().filter(|column| column.role != Role::Key)
    };
    let named = |table: Option<&'a Table>, name: &str| {
        let table = table?;
        table.column(name).map(|index| &table.columns[index])
    };
    let of_base = figures(table).map(|column| (Some(column), named(new_table, &column.name)));
    let of_new_alone = figures(new_table).filter(|column| named(table, &column.name).is_none());
    of_base.chain(of_new_alone.map(|column| (None, Some(column)))).collect()
}

impl<'a> BothRuns<'a, '_> {
    /// Matches the rows of a table that at least one of both runs has, or leaves the table out.
    fn match_table(
        &self,
        table: Option<&'a Table>,
        new_table: Option<&'a Table>,
        wanted: &impl Wanted,
        found: &mut Matched<'a>,
    ) {
        let Some(named) = table.or(new_table) else { return };
        let keys = keys(named);
        let mut leave_out = |reason: &str| {
            let is_judged = |column: &Column| {
                matches!(column.role, Role::Cost | Role::Benefit) || column.interval.is_some()
            };
            found.left_out.push(LeftOutTable {
                name: named.name.clone(),
                reason: reason.to_owned(),
                has_judged_figures: named.columns.iter().any(is_judged),
            });
        };
        if new_table.is_none() {
            leave_out("the second run does not have it");
        } else if table.is_none() {
            leave_out("the first run does not have it");
        }
        let is_in_both = table.is_some() && new_table.is_some();
        if keys.is_empty() {
            if is_in_both {
                leave_out("none of its columns names a row");
            }
            return;
        }
        let Some([rows, new_rows]) = keyed_rows([table, new_table], &keys, self.condition) else {
            if is_in_both {
                leave_out(&format!("several of its rows have the same {}", keys.join(", ")));
            }
            return;
        };
        let columns = column_pairs(table, new_table);
        let has_buckets = named.columns.iter().any(may_be_bucketed);
        let of_new_alone = new_rows.keys().filter(|key| !rows.contains_key(*key));
        for key in rows.keys().chain(of_new_alone) {
            let row_of = |rows: &Rows<'a>| rows.get(key).copied();
            let (row, new_row) = (row_of(&rows), row_of(&new_rows));
            let names = keys.iter().copied().zip(key.iter().cloned());
            let names: Rc<[(&str, String)]> = names.collect();
            let facts = self.row_facts((table, row), (new_table, new_row));
            let shows = |table: Option<&Table>, row: Option<&[Value]>| {
                table.zip(row).is_some_and(|(table, row)| wanted.shows(table, row))
            };
            let is_shown = shows(table, row)
                || shows(new_table, new_row)
                || self.shown.is_some_and(|shown| shown.contains(named, key));
            let fingerprint = |table: Option<&Table>, row: Option<&[Value]>| {
                has_buckets.then(|| Some(row_fingerprint(table?, row?))).flatten()
            };
            let fingerprints = fingerprint(table, row).zip(fingerprint(new_table, new_row));
            let has_equal_rows = fingerprints.is_some_and(|(base, new)| base == new);
            let window = |side: &Side, table: Option<&Table>, row: Option<&[Value]>| {
                table.zip(row).and_then(|(table, row)| side.windows.of_row(table, row))
            };
            let windows = WindowLengths::of_total(
                window(&self.base, table, row),
                window(&self.new, new_table, new_row),
            );
            for (column, new_column) in &columns {
                let cell = Cell::of(table, *column, row);
                let new_cell = Cell::of(new_table, *new_column, new_row);
                let Some(named) = cell.or(new_cell) else { continue };
                let is_included =
                    is_in_both && is_shown && wanted.includes(named.table, named.column);
                if !is_included && !wanted.is_ruled(named.table, named.column) {
                    continue;
                }
                let figure = |cell: Option<Cell<'_>>| cell.and_then(|cell| cell.figure());
                let (base, new) = (figure(cell), figure(new_cell));
                if base.is_none() && new.is_none() {
                    continue;
                }
                let is_compared_total =
                    base.is_some() && new.is_some() && is_total(named.table, named.column);
                let is_estimate = |side: &Side, cell: Option<Cell<'_>>, figure: Option<Figure>| {
                    cell.zip(figure).is_some_and(|(Cell { table, row, column }, figure)| {
                        side.estimates.is_estimate(table, row, column, figure.interval)
                    })
                };
                found.pairs.push(Pair {
                    table: named.table,
                    row: Rc::clone(&names),
                    column: named.column,
                    base,
                    new,
                    cpu_share: facts.cpu_share,
                    context_share: facts.context_share,
                    span_count: facts.span_count,
                    assumes_independence: [cell, new_cell]
                        .iter()
                        .flatten()
                        .any(Cell::assumes_independence),
                    waits_for_the_scheduler: [cell, new_cell]
                        .iter()
                        .flatten()
                        .any(|cell| waits_for_the_scheduler(cell.table, cell.row)),
                    is_estimate: is_estimate(&self.base, cell, base)
                        || is_estimate(&self.new, new_cell, new),
                    has_equal_rows,
                    repeats: None,
                    pair_counts: None,
                    windows: if is_compared_total { windows } else { None },
                });
            }
        }
    }

    /// The facts of a row that at least one of both runs has: each its table, and the row if the run has it.
    fn row_facts(
        &self,
        (table, row): (Option<&Table>, Option<&[Value]>),
        (new_table, new_row): (Option<&Table>, Option<&[Value]>),
    ) -> RowFacts {
        let share = |table: Option<&Table>, row: Option<&[Value]>| {
            row?.get(cpu_share_column(table?)?).and_then(Value::number)
        };
        let name = |table: Option<&Table>, row: Option<&[Value]>| {
            context_name(table?, row?, self.condition.is_some())
        };
        let name = name(table, row).or_else(|| name(new_table, new_row));
        let [base_fact, new_fact] =
            [&self.base.facts, &self.new.facts].map(|facts| facts.get(name.as_ref()));
        let count = |table: Option<&Table>, row: Option<&[Value]>| span_count(table?, row?);
        let larger = |shares: [Option<f64>; 2]| shares.into_iter().flatten().reduce(f64::max);
        let cpu_share = larger([share(table, row), share(new_table, new_row)]);
        let counts = [count(table, row).or(base_fact.1), count(new_table, new_row).or(new_fact.1)];
        RowFacts {
            cpu_share,
            context_share: cpu_share.or_else(|| larger([base_fact.0, new_fact.0])),
            span_count: counts.into_iter().flatten().min(),
        }
    }
}

/// The facts of a row that all of its pairs share: see the fields of [`Pair`].
struct RowFacts {
    cpu_share: Option<f64>,
    context_share: Option<f64>,
    span_count: Option<u64>,
}
