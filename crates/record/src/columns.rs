//! Definitions of tables: each column has its name, meaning, hints and value in one place.
//!
//! ```
//! use record::{Column, Columns, column};
//!
//! struct Span {
//!     name: String,
//!     length_ns: Option<u64>,
//! }
//!
//! let columns = Columns::all([
//!     column("name", "Name of the context.").key().text(|span: &Span| span.name.clone()),
//!     column("length_ns", "Time of the span.").cost().uint(|span: &Span| span.length_ns),
//! ]);
//! let spans = [Span { name: "timer".to_owned(), length_ns: Some(7) }];
//! let table = columns.table("spans", "One row per span.", &spans);
//! assert_eq!(table.rows().len(), 1);
//! ```
//!
//! The last call ([`Column::uint`], [`Column::real`], ...) sets the column's kind and its value. A value of another
//! type does not compile; `None` is absent.
//!
//! Several columns are [`Columns`], too. A group that several tables share is a function that returns `Columns` of a
//! small type, such as an interval. A table includes the group with [`Columns::of`], which takes a function from the
//! table's row to the small type.
//!
//! [`Column::interval`] and [`Column::plus_minus`] link a column to the columns that hold its interval.
//! [`Column::cpu_share`] marks the share of CPU time of a row. A comparison of two runs finds intervals and shares by
//! these links only, not by names.

use std::borrow::Borrow;
use std::iter;

use crate::table::{Column, Kind, Table, Value};

/// A column whose kind and value are not yet set: the definition ends in [`Column::uint`] or another kind.
pub fn column(name: &str, doc: &str) -> Column {
    Column::new(name, Kind::Text, doc)
}

/// A value that fits into a column of the kind `K`: `u64`, `i64`, `f64`, `bool` or `str`.
pub trait Cell<K: ?Sized> {
    fn into_value(self) -> Value;
}

impl<K: ?Sized, T: Cell<K>> Cell<K> for Option<T> {
    fn into_value(self) -> Value {
        self.map_or(Value::Absent, Cell::into_value)
    }
}

macro_rules! cells {
    ($($kind:ty: $($source:ty)* => $value:expr;)*) => {
        $($(impl Cell<$kind> for $source {
            fn into_value(self) -> Value {
                $value(self)
            }
        })*)*
    };
}

cells! {
    u64: u64 => Value::Uint;
    u64: u8 u16 u32 => |number| Value::Uint(u64::from(number));
    u64: usize => |count| Value::Uint(count as u64);
    i64: i64 => Value::Int;
    f64: f64 => Value::real;
    bool: bool => Value::Bool;
    str: &str String => Value::from;
}

/// Appends the values of a row to the list, one for each column, in the order of the columns.
type AppendValues<'a, R> = Box<dyn Fn(&R, &mut Vec<Value>) + 'a>;

/// Columns of a table, and the function that gives their values. `R`: the type of the data behind a row.
pub struct Columns<'a, R> {
    columns: Vec<Column>,
    append_values: AppendValues<'a, R>,
}

/// The end of a column's definition: its kind and its value in a row.
impl Column {
    /// A column of counts, times or other numbers that are never negative.
    pub fn uint<'a, R, V: Cell<u64>>(self, value: impl Fn(&R) -> V + 'a) -> Columns<'a, R> {
        self.cells(Kind::Uint, move |row| value(row).into_value())
    }

    /// A column of differences of counts or times.
    pub fn int<'a, R, V: Cell<i64>>(self, value: impl Fn(&R) -> V + 'a) -> Columns<'a, R> {
        self.cells(Kind::Int, move |row| value(row).into_value())
    }

    /// A column of statistics. A number that is not finite is recorded as absent.
    pub fn real<'a, R, V: Cell<f64>>(self, value: impl Fn(&R) -> V + 'a) -> Columns<'a, R> {
        self.cells(Kind::Real, move |row| value(row).into_value())
    }

    /// A column of yes or no.
    pub fn bool<'a, R, V: Cell<bool>>(self, value: impl Fn(&R) -> V + 'a) -> Columns<'a, R> {
        self.cells(Kind::Bool, move |row| value(row).into_value())
    }

    /// A column of text. A value that borrows from the row is cloned.
    pub fn text<'a, R, V: Cell<str>>(self, value: impl Fn(&R) -> V + 'a) -> Columns<'a, R> {
        self.cells(Kind::Text, move |row| value(row).into_value())
    }

    /// A column of values whose kind is known only at run time. [`Columns::table`] panics if a value has another kind.
    pub fn cells<'a, R>(mut self, kind: Kind, value: impl Fn(&R) -> Value + 'a) -> Columns<'a, R> {
        self.kind = kind;
        let append_values =
            Box::new(move |row: &R, values: &mut Vec<Value>| values.push(value(row)));
        Columns { columns: vec![self], append_values }
    }
}

impl<'a, R: 'a> Columns<'a, R> {
    /// The columns of several definitions, in order.
    pub fn all(parts: impl IntoIterator<Item = Columns<'a, R>>) -> Columns<'a, R> {
        let (columns, appends): (Vec<_>, Vec<AppendValues<'a, R>>) =
            parts.into_iter().map(|part| (part.columns, part.append_values)).unzip();
        let append_values = Box::new(move |row: &R, values: &mut Vec<Value>| {
            appends.iter().for_each(|append_values| append_values(row, values));
        });
        Columns { columns: columns.concat(), append_values }
    }

    /// These columns, and further columns after them.
    #[must_use]
    pub fn and(self, further: impl IntoIterator<Item = Columns<'a, R>>) -> Columns<'a, R> {
        Columns::all(iter::once(self).chain(further))
    }

    /// These columns for a table with rows of another type. `part` computes the value of
    /// type `R` from the table's row, once per row.
    #[must_use]
    pub fn of<Row>(self, part: impl Fn(&Row) -> R + 'a) -> Columns<'a, Row> {
        let Columns { columns, append_values } = self;
        let append_values =
            Box::new(move |row: &Row, values: &mut Vec<Value>| append_values(&part(row), values));
        Columns { columns, append_values }
    }

    /// These columns for a table with rows of another type, which store the value of type `R`: `part` borrows it.
    #[must_use]
    pub fn of_ref<Row>(self, part: impl Fn(&Row) -> &R + 'a) -> Columns<'a, Row> {
        let Columns { columns, append_values } = self;
        let append_values =
            Box::new(move |row: &Row, values: &mut Vec<Value>| append_values(part(row), values));
        Columns { columns, append_values }
    }

    /// These columns for a table with rows of another type, if some rows store no value of type `R`. `part` borrows the
    /// value. In a row without the value, all these columns are absent.
    #[must_use]
    pub fn of_optional<Row>(self, part: impl Fn(&Row) -> Option<&R> + 'a) -> Columns<'a, Row> {
        let Columns { columns, append_values } = self;
        let count = columns.len();
        let append_values = Box::new(move |row: &Row, values: &mut Vec<Value>| match part(row) {
            Some(part) => append_values(part, values),
            None => values.extend(iter::repeat_n(Value::Absent, count)),
        });
        Columns { columns, append_values }
    }

    /// The columns of a part that some rows lack: all of these columns are absent for `None`.
    #[must_use]
    pub fn optional(self) -> Columns<'a, Option<R>> {
        self.of_optional(|part: &Option<R>| part.as_ref())
    }

    /// The columns, each with its value in a row.
    pub fn cells_of(&self, row: &R) -> Vec<(Column, Value)> {
        let mut values = Vec::with_capacity(self.columns.len());
        (self.append_values)(row, &mut values);
        self.columns.iter().cloned().zip(values).collect()
    }

    /// A table with these columns and a row for each of `rows`: values of the type `R`, or references to them.
    pub fn table<Row: Borrow<R>>(
        &self,
        name: &str,
        doc: &str,
        rows: impl IntoIterator<Item = Row>,
    ) -> Table {
        let mut table = Table::new(name, doc, self.columns.clone());
        for row in rows {
            let mut values = Vec::with_capacity(self.columns.len());
            (self.append_values)(row.borrow(), &mut values);
            table.push(values);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mean with the half width of its interval, if there is one.
    struct Mean {
        mean: f64,
        half_width: Option<f64>,
    }

    fn mean_columns<'a>(stem: &str) -> Columns<'a, Mean> {
        let half_width = format!("{stem}_half_ns");
        Columns::all([
            column(&format!("{stem}_ns"), "Mean.")
                .plus_minus(&half_width)
                .real(|mean: &Mean| mean.mean),
            column(&half_width, "Half width.").detail().real(|mean: &Mean| mean.half_width),
        ])
    }

    struct Row {
        name: String,
        count: u32,
        own: Mean,
        nested: Option<u64>,
    }

    #[test]
    fn a_group_of_columns_describes_a_part_of_each_row() {
        let offset = 1.0;
        let nested = |row: &Row| {
            row.nested.map(|mean| Mean { mean: mean as f64 + offset, half_width: None })
        };
        let columns = column("name", "Name.").key().text(|row: &Row| row.name.clone()).and([
            column("count", "Spans.").uint(|row: &Row| row.count),
            mean_columns("self").of_ref(|row: &Row| &row.own),
            mean_columns("nested").optional().of(nested),
            column("is_rare", "Whether there are few.").bool(|row: &Row| row.count < 2),
            column("error", "Difference.").int(|row: &Row| Some(3 - i64::from(row.count))),
        ]);
        let own = |half_width| Mean { mean: 2.5, half_width };
        let rows = [
            Row { name: "timer".to_owned(), count: 1, own: own(Some(f64::NAN)), nested: Some(4) },
            Row { name: "disk".to_owned(), count: 9, own: own(Some(0.5)), nested: None },
        ];
        let table = columns.table("spans", "Spans.", &rows);
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let all = "name count self_ns self_half_ns nested_ns nested_half_ns is_rare error";
        assert_eq!(names.join(" "), all);
        let timer = [
            Value::from("timer"),
            Value::Uint(1),
            Value::Real(2.5),
            Value::Absent,
            Value::Real(5.0),
            Value::Absent,
            Value::Bool(true),
            Value::Int(2),
        ];
        assert_eq!(table.rows()[0], timer);
        assert_eq!(table.rows()[1][3..6], [Value::Real(0.5), Value::Absent, Value::Absent]);
        assert_eq!(columns.table("spans", "Spans.", rows), table, "owned rows");
        assert_eq!(table.check_display(), Ok(()));
    }
}
