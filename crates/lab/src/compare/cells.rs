//! The cells of two runs, side by side.

use std::collections::BTreeMap;
use std::rc::Rc;

use record::interval::{Bounds, Ends, Freedom};
use record::{Column, IntervalColumns, Role, Run, Table, Value};
use stats::interval::{BATCHES_MIN, Uncertainty, half_width_of_difference, t_quantile};

use super::series::Repeats;
use crate::quantiles::WIDE_TAIL;

/// Degrees of freedom of an interval whose table does not say them: as with the fewest batches that give an interval.
const FREEDOM_UNKNOWN: f64 = (BATCHES_MIN - 1) as f64;

/// A figure with its intervals, where it has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The figure, in the unit of its column.
    pub value: f64,
    /// Lower and upper end of its 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// Degrees of freedom of that interval.
    pub degrees_of_freedom: f64,
    /// Standard deviation between windows because of what changes slowly; 0 where it is not known.
    pub drift: f64,
    /// Ends of its 99.99 % interval, which quantiles have: how wide theirs are does not follow from a standard
    /// error.
    pub wide: Option<(f64, f64)>,
}

impl Figure {
    /// The figure if it had changed by this part of itself; its intervals keep their width.
    #[must_use]
    pub fn changed(self, by_ratio: f64) -> Figure {
        let shift = self.value.abs() * by_ratio;
        let moved =
            |interval: Option<(f64, f64)>| interval.map(|(low, high)| (low + shift, high + shift));
        let (interval, wide) = (moved(self.interval), moved(self.wide));
        Figure { value: self.value + shift, interval, wide, ..self }
    }

    /// How far the lower end of an interval of that side is from the figure.
    fn down(&self, interval: (f64, f64)) -> f64 {
        (self.value - interval.0).max(0.0)
    }

    /// How far the upper end of an interval is from the figure.
    fn up(&self, interval: (f64, f64)) -> f64 {
        (interval.1 - self.value).max(0.0)
    }

    /// Its uncertainty with this half width, as a part of `unit`.
    fn uncertainty(&self, half_width: f64, unit: f64) -> Uncertainty {
        let Figure { degrees_of_freedom, drift, .. } = *self;
        Uncertainty { half_width: half_width / unit, degrees_of_freedom, drift: drift / unit }
    }
}

/// How far the ends of the interval of `new` less `base` are below and above the difference of both, where the
/// difference is beyond each end with the probability `tail`. `None` where a figure has no interval.
///
/// For quantiles, the distances of both figures to their ends are squared and added (MOVER). For other figures, the
/// interval is Student's t of the logarithm of their ratio: rates and costs differ by factors. On a scale of
/// differences, the small error of a small figure would count for nothing. Where a figure is not above 0, the interval
/// is of their difference.
#[must_use]
pub fn distances(base: &Figure, new: &Figure, tail: f64) -> Option<(f64, f64)> {
    if let (Some(of_base), Some(of_new)) = (base.wide, new.wide) {
        let factor = t_quantile(f64::INFINITY, tail)? / t_quantile(f64::INFINITY, WIDE_TAIL)?;
        let down = new.down(of_new).hypot(base.up(of_base));
        let up = new.up(of_new).hypot(base.down(of_base));
        return Some((factor * down, factor * up));
    }
    let (of_base, of_new) = (base.interval?, new.interval?);
    let is_ratio = base.value > 0.0 && new.value > 0.0;
    let units = if is_ratio { [base.value, new.value] } else { [1.0, 1.0] };
    let both = |base_side: f64, new_side: f64| {
        let figures = [base.uncertainty(base_side, units[0]), new.uncertainty(new_side, units[1])];
        half_width_of_difference(figures, tail)
    };
    let down = both(base.up(of_base), new.down(of_new))?;
    let up = both(base.down(of_base), new.up(of_new))?;
    if is_ratio {
        Some((-new.value * (-down).exp_m1(), new.value * up.exp_m1()))
    } else {
        Some((down, up))
    }
}

/// A cell that the runs of both sides have.
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    pub table: &'a Table,
    /// The values of the key columns; one list for all cells of the row.
    pub row: Rc<[(&'a str, String)]>,
    pub column: &'a Column,
    /// The first run's figure; of several runs, their mean.
    pub base: Figure,
    /// The second run's figure, or `None` where it lacks the row or the figure.
    pub new: Option<Figure>,
    /// The larger of both rows' shares of CPU time, or `None` where the table has no such column.
    pub cpu_share: Option<f64>,
    /// Whether its intervals are too narrow because they take the values of a window as independent. True for a quantile
    /// whose table does not know the sections of the window.
    pub takes_independent: bool,
    /// How much pairs of runs differ, where each side has several runs.
    pub repeats: Option<Repeats>,
}

impl Pair<'_> {
    /// This pair with the second figure changed by a part of itself.
    #[must_use]
    pub fn changed(&self, by_ratio: f64) -> Self {
        let new = self.new.map(|new| new.changed(by_ratio));
        let added = new.zip(self.new).map_or(0.0, |(changed, new)| changed.value - new.value);
        let repeats = self.repeats.as_ref().map(|repeats| repeats.changed(by_ratio, added));
        Pair { new, repeats, ..self.clone() }
    }

    /// How far the ends of the interval of the difference are below and above it, as the function `distances` says.
    #[must_use]
    pub fn distances(&self, tail: f64) -> Option<(f64, f64)> {
        match &self.repeats {
            Some(repeats) => repeats.distances(self.base.value, tail),
            None => distances(&self.base, &self.new?, tail),
        }
    }

    /// Whether the difference has an interval.
    #[must_use]
    pub fn has_interval(&self) -> bool {
        match &self.repeats {
            Some(repeats) => repeats.has_interval(),
            None => {
                self.base.interval.is_some() && self.new.is_some_and(|new| new.interval.is_some())
            }
        }
    }
}

/// The column with the share of CPU time that a row took.
fn cpu_share_column(table: &Table) -> Option<usize> {
    table.columns.iter().position(|column| column.is_cpu_share)
}

/// Whether the interval is that of a quantile, from the order of its values alone. Means have half widths.
fn is_quantile_by_order(column: &Column) -> bool {
    column.interval.as_ref().is_some_and(|interval| {
        matches!(interval.ends, Ends::Bounds(_))
            && interval.freedom.is_none()
            && interval.wide.is_none()
    })
}

/// The figure of `row` in a column, with the intervals that the column links to.
fn figure(table: &Table, row: &[Value], column: &Column) -> Option<Figure> {
    let cell = |name: &str| table.get(row, name).and_then(Value::number);
    let bounds = |Bounds { low, high }: &Bounds| cell(low).zip(cell(high));
    let value = cell(&column.name)?;
    let mut figure = Figure {
        value,
        interval: None,
        degrees_of_freedom: FREEDOM_UNKNOWN,
        drift: 0.0,
        wide: None,
    };
    let Some(IntervalColumns { ends, freedom, drift, wide, .. }) = &column.interval else {
        return Some(figure);
    };
    figure.wide = wide.as_ref().and_then(bounds);
    // Where a table has wide intervals, one that is absent is not known: the narrow one may take values as
    // independent.
    if wide.is_none() || figure.wide.is_some() {
        figure.interval = match ends {
            Ends::HalfWidth(half) => cell(half).map(|half| (value - half, value + half)),
            Ends::Bounds(ends) => bounds(ends),
        };
    }
    let degrees_of_freedom = freedom.as_ref().and_then(|freedom| match freedom {
        Freedom::Degrees(column) => cell(column),
        Freedom::Repetitions(column) => cell(column).map(|repetitions| repetitions - 1.0),
    });
    figure.degrees_of_freedom = degrees_of_freedom.unwrap_or(FREEDOM_UNKNOWN);
    figure.drift = drift.as_deref().and_then(cell).unwrap_or(0.0);
    Some(figure)
}

/// The rows of a table by the values of its key columns; `None` where the keys do not name them.
fn by_key<'t>(table: &'t Table, keys: &[&str]) -> Option<BTreeMap<Vec<String>, &'t [Value]>> {
    let places: Vec<Option<usize>> = keys.iter().map(|name| table.column(name)).collect();
    let mut rows = BTreeMap::new();
    for row in table.rows() {
        let text = |at: &Option<usize>| match at.and_then(|at| row.get(at)) {
            Some(Value::Text(text)) => text.clone(),
            Some(Value::Bool(is)) => is.to_string(),
            Some(value) => value.number().map(|number| number.to_string()).unwrap_or_default(),
            None => String::new(),
        };
        if rows.insert(places.iter().map(text).collect(), row.as_slice()).is_some() {
            return None;
        }
    }
    Some(rows)
}

/// Names of the columns that name a row.
pub fn keys(table: &Table) -> Vec<&str> {
    let keys = table.columns.iter().filter(|column| column.role == Role::Key);
    keys.map(|column| column.name.as_str()).collect()
}

/// The cells that two runs have in common, and the rest.
#[derive(Debug, Default)]
pub struct Matched<'a> {
    /// Cells of rows that the first run has.
    pub pairs: Vec<Pair<'a>>,
    /// Rows that only the second run has.
    pub added: usize,
    /// Tables that cannot be compared: name, and why.
    pub left_out: Vec<(String, &'static str)>,
}

/// The numbers of the two runs that `wanted` asks for, row by row.
pub fn matched<'a>(
    base: &'a Run,
    new: &Run,
    wanted: impl Fn(&Table, &Column, &[Value]) -> bool,
) -> Matched<'a> {
    let mut found = Matched::default();
    for table in &base.tables {
        let keys = keys(table);
        let mut leave_out = |why| found.left_out.push((table.name.clone(), why));
        let Some(other) = new.table(&table.name) else {
            leave_out("the second run does not have it");
            continue;
        };
        if keys.is_empty() {
            leave_out("no column of it names its rows");
            continue;
        }
        let (Some(rows), Some(others)) = (by_key(table, &keys), by_key(other, &keys)) else {
            leave_out("several rows have the same name");
            continue;
        };
        found.added += others.keys().filter(|key| !rows.contains_key(*key)).count();
        let figures = table.columns.iter().filter(|column| column.role != Role::Key);
        let figures: Vec<_> = figures
            .map(|column| (column, other.column(&column.name).map(|index| &other.columns[index])))
            .collect();
        let (share_at, other_share_at) = (cpu_share_column(table), cpu_share_column(other));
        let share = |row: &[Value], at: Option<usize>| row.get(at?).and_then(Value::number);
        for (key, row) in &rows {
            let names = keys.iter().copied().zip(key.iter().cloned());
            let names: Rc<[(&str, String)]> = names.collect();
            let counterpart = others.get(key);
            let other_share = counterpart.and_then(|row| share(row, other_share_at));
            let cpu_share = share(row, share_at).map(|base| base.max(other_share.unwrap_or(0.0)));
            for (column, other_column) in &figures {
                if !wanted(table, column, row) {
                    continue;
                }
                let Some(base) = figure(table, row, column) else { continue };
                let new = counterpart.zip(*other_column);
                let new = new.and_then(|(row, column)| figure(other, row, column));
                let row = Rc::clone(&names);
                let takes_independent = is_quantile_by_order(column);
                let repeats = None;
                let pair =
                    Pair { table, row, column, base, new, cpu_share, takes_independent, repeats };
                found.pairs.push(pair);
            }
        }
    }
    found
}
