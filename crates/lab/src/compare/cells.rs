//! The cells of two runs, side by side.

use std::collections::BTreeMap;
use std::rc::Rc;

use record::{Column, Combine, Role, Run, Table, Value};

/// A figure with its 95 % interval, where it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The figure, in the unit of its column.
    pub value: f64,
    /// Lower and upper end of its interval.
    pub interval: Option<(f64, f64)>,
}

impl Figure {
    /// The figure if it had changed by this part of itself; its interval keeps its width.
    #[must_use]
    pub fn changed(self, by_ratio: f64) -> Figure {
        let by = self.value.abs() * by_ratio;
        let interval = self.interval.map(|(low, high)| (low + by, high + by));
        Figure { value: self.value + by, interval }
    }
}

/// The same cell of two runs.
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    /// Its table.
    pub table: &'a Table,
    /// The values of the key columns; one list for all cells of the row.
    pub row: Rc<[(&'a str, String)]>,
    /// Its column.
    pub column: &'a Column,
    /// What the first run has.
    pub base: Figure,
    /// What the second run has; absent where it lacks the row or the figure.
    pub new: Option<Figure>,
}

impl Pair<'_> {
    /// The same with the second run's figure changed by this part of itself.
    #[must_use]
    pub fn changed(&self, by_ratio: f64) -> Self {
        Pair { new: self.new.map(|new| new.changed(by_ratio)), ..self.clone() }
    }
}

/// Units that a column's name may end in; the longest first.
const UNITS: [&str; 7] = ["_cycles", "_bytes", "_ratio", "_lines", "_ns", "_hz", ""];

/// Where the interval of a column is.
enum Place {
    /// The column that holds half of its width.
    HalfWidth(usize),
    /// The columns of its ends.
    Ends(usize, usize),
}

fn place(table: &Table, column: &Column) -> Option<Place> {
    if let Some(Combine::PlusMinus(half_width)) = &column.display.combine {
        return table.column(half_width).map(Place::HalfWidth);
    }
    let unit = UNITS.into_iter().find(|unit| column.name.ends_with(unit))?;
    let stem = column.name.strip_suffix(unit)?;
    let of = |what: &str| table.column(&format!("{stem}_{what}{unit}"));
    match (of("ci95_low"), of("ci95_high")) {
        (Some(low), Some(high)) => Some(Place::Ends(low, high)),
        _ => of("ci95").map(Place::HalfWidth),
    }
}

fn figure(row: &[Value], at: usize, place: Option<&Place>) -> Option<Figure> {
    let value = row.get(at)?.number()?;
    let cell = |at: usize| row.get(at).and_then(Value::number);
    let interval = match place {
        Some(Place::HalfWidth(half)) => cell(*half).map(|half| (value - half, value + half)),
        Some(Place::Ends(low, high)) => cell(*low).zip(cell(*high)),
        None => None,
    };
    Some(Figure { value, interval })
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

/// What one table of two runs has in common, and what it has not.
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
        let figures = figures(table, other);
        for (key, row) in &rows {
            let names = keys.iter().copied().zip(key.iter().cloned());
            let names: Rc<[(&str, String)]> = names.collect();
            let counterpart = others.get(key);
            for FigureColumn { column, at, place, other_at, other_place } in &figures {
                if !wanted(table, column, row) {
                    continue;
                }
                let Some(base) = figure(row, *at, place.as_ref()) else { continue };
                let new = counterpart.zip(*other_at);
                let new = new.and_then(|(row, at)| figure(row, at, other_place.as_ref()));
                found.pairs.push(Pair { table, row: Rc::clone(&names), column, base, new });
            }
        }
    }
    found
}

/// A column of figures, and where it is in both tables.
struct FigureColumn<'a> {
    column: &'a Column,
    at: usize,
    place: Option<Place>,
    other_at: Option<usize>,
    other_place: Option<Place>,
}

fn figures<'a>(table: &'a Table, other: &Table) -> Vec<FigureColumn<'a>> {
    let columns = table.columns.iter().enumerate().filter(|(_, column)| column.role != Role::Key);
    let figure_column = |(at, column): (usize, &'a Column)| FigureColumn {
        column,
        at,
        place: place(table, column),
        other_at: other.column(&column.name),
        other_place: place(other, column),
    };
    columns.map(figure_column).collect()
}
