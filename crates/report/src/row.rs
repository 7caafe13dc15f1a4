//! A row of a table, with access to its values by the names of the columns. Also fills the templates of display
//! hints, such as headlines and notes, with values of a row or of the run.

use record::display::{Piece, Template};
use record::{Column, Combine, Format, Run, Table, Value};
use serde_json::Value as Json;

use crate::escape::plain;
use crate::human::{self, Unit, unbroken};
use crate::winner::{Extreme, Figure, candidates};

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    table: &'a Table,
    values: &'a [Value],
}

impl<'a> Row<'a> {
    pub fn new(table: &'a Table, values: &'a [Value]) -> Self {
        Row { table, values }
    }

    /// The value in a column, or [`Value::Absent`] if there is no such column.
    pub fn get(&self, column: &str) -> &'a Value {
        self.table.get(self.values, column).unwrap_or(&Value::Absent)
    }

    /// Whether the value in a column is this text.
    pub fn has_text(&self, column: &str, text: &str) -> bool {
        matches!(self.get(column), Value::Text(value) if value == text)
    }

    /// The definition of a column, or `None` if there is no such column.
    pub fn column(&self, name: &str) -> Option<&'a Column> {
        self.table.columns.iter().find(|column| column.name == name)
    }

    pub fn number(&self, column: &str) -> Option<f64> {
        self.get(column).number()
    }

    /// The value in a column as text, with the unit that suits this value. A number below the detection limit is the upper
    /// end of its interval: `< 230 ns`.
    pub fn value_text(&self, column: &str) -> String {
        self.value_text_as(column, Format::Auto)
    }

    /// The value in a column as text in a given format. A number below the detection limit is the upper end of its interval.
    fn value_text_as(&self, column: &str, format: Format) -> String {
        match self.bound_below_limit(column) {
            Some(bound) if bound > 0.0 => {
                format!("< {}", human::value_text(column, format, &Value::Real(bound)))
            }
            Some(_) => human::BELOW_LIMIT.to_owned(),
            None => human::value_text(column, format, self.get(column)),
        }
    }

    /// The upper end of the interval of a number below the detection limit; negative infinity if the interval is unknown.
    /// `None` for numbers above the limit.
    pub fn bound_below_limit(&self, column: &str) -> Option<f64> {
        let definition = self.column(column)?;
        let Some(Combine::PlusMinus(half_width)) = &definition.display.combine else { return None };
        let number = self.number(column).filter(|_| self.is_below_limit(definition))?;
        Some(self.number(half_width).map_or(f64::NEG_INFINITY, |half_width| number + half_width))
    }

    /// The cell of a column as text, without the symbol of `unit`. Includes the values of columns that complete the
    /// cell.
    pub fn cell(&self, column: &Column, unit: Unit) -> String {
        let value = self.get(&column.name);
        let text = human::cell(column, unit, value);
        let number = self.number(&column.name);
        match (&column.display.combine, number) {
            (Some(Combine::PlusMinus(half_width)), Some(number)) if self.is_below_limit(column) => {
                human::upper_end(column, unit, number, self.number(half_width))
            }
            (Some(Combine::PlusMinus(half_width)), Some(number)) => {
                human::with_half_width(column, unit, number, self.number(half_width))
            }
            (Some(Combine::UpTo(high)), Some(_)) => match self.get(high) {
                Value::Absent => format!("{text} to ?"),
                high => format!("{text} to {}", human::cell(column, unit, high)),
            },
            (Some(Combine::Bound { .. }), Some(_)) => match self.bound_sign(column) {
                Some(sign) => format!("{sign} {text}"),
                None => text,
            },
            (Some(Combine::Prefix { prefix, when, equals }), _) => {
                let needs_prefix = *value == Value::Absent
                    || matches!(self.get(when), Value::Text(text) if is_kind(text, equals));
                if needs_prefix { self.with_prefix(text, prefix) } else { text }
            }
            _ => text,
        }
    }

    /// Whether the number in a column is a bound, or below the detection limit, and so no measurement.
    pub fn is_bound(&self, column: &Column) -> bool {
        self.bound_sign(column).is_some() || self.is_below_limit(column)
    }

    /// The sign before the number in a column, such as `≥`, if the number is a bound.
    fn bound_sign(&self, column: &Column) -> Option<String> {
        let Some(Combine::Bound { flag, sign }) = &column.display.combine else { return None };
        (*self.get(flag) == Value::Bool(true)).then(|| plain(sign))
    }

    fn is_below_limit(&self, column: &Column) -> bool {
        let flag = column.display.below_limit.as_ref();
        flag.is_some_and(|flag| *self.get(flag) == Value::Bool(true))
    }

    /// The text after the value of column `prefix`, or that value alone if the text stands for an absent value.
    fn with_prefix(&self, text: String, prefix: &str) -> String {
        match self.get(prefix) {
            Value::Absent => text,
            _ if text == human::ABSENT => self.value_text(prefix),
            _ => format!("{} {text}", self.value_text(prefix)),
        }
    }

    /// The text in a column, with the column that its hint puts before it: `36 virtio1-req.0`.
    pub fn text_with_prefix(&self, column: &str) -> String {
        match self.column(column) {
            Some(definition) => self.cell(definition, human::unit_of(definition, [].into_iter())),
            None => self.value_text(column),
        }
    }

    /// Fills a template with the values of this row. `None` if one of them is absent.
    pub fn fill(&self, template: &str) -> Option<String> {
        fill(template, |piece| match piece {
            Piece::Column(name) => {
                let value = self.get(name);
                if *value == Value::Absent {
                    return None;
                }
                let column = self.column(name)?;
                Some(match value {
                    Value::Text(_) => self.cell(column, human::unit_of(column, [].into_iter())),
                    _ => {
                        let number = self.value_text_as(name, column.display.format);
                        let sign = self.bound_sign(column).map(|sign| format!("{sign} "));
                        unbroken(&(sign.unwrap_or_default() + &number))
                    }
                })
            }
            _ => None,
        })
    }
}

/// The rows whose figure may be the extreme one, within the errors. The first row has the extreme value.
pub(crate) fn possible_extremes<'r>(
    rows: impl Iterator<Item = Row<'r>>,
    extreme: Extreme,
    figure: impl Fn(&Row<'r>) -> Option<Figure>,
) -> Vec<Row<'r>> {
    let (figures, rows): (Vec<Figure>, Vec<Row<'_>>) =
        rows.filter_map(|row| Some((figure(&row)?, row))).unzip();
    candidates(&figures, extreme).into_iter().map(|index| rows[index]).collect()
}

/// Whether a text is `kind`, or a kind of it: `irq_thread` is an `irq`.
fn is_kind(text: &str, kind: &str) -> bool {
    text.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Fills a template with a run's settings and values of its block `observer`. `None` if one of them is absent.
pub(crate) fn fill_from_run(template: &str, run: &Run) -> Option<String> {
    fill(template, |piece| match piece {
        Piece::Setting(key) => setting_text(key, run.settings.get(key)?),
        Piece::Observer(key) => setting_text(key, run.observer.get(key)?),
        Piece::Column(_) | Piece::Text(_) => None,
    })
}

/// A setting as text. A number gets the unit that the end of its key names, such as `_ns`; an end of an interval
/// (`_ns_ci95_low`) has the unit of its figure. `None` for an empty text, and for a value that is neither text nor number.
fn setting_text(key: &str, value: &Json) -> Option<String> {
    let interval_end = ["_ci95_low", "_ci95_high"];
    let key = interval_end.iter().find_map(|end| key.strip_suffix(end)).unwrap_or(key);
    match value {
        Json::String(text) if text.is_empty() => None,
        Json::String(text) => Some(plain(text)),
        value => {
            let number = value.as_u64().map(Value::from);
            let number = number.or_else(|| value.as_f64().map(Value::real))?;
            Some(unbroken(&human::value_text(key, Format::Auto, &number)))
        }
    }
}

/// Fills a template. `value` returns the text of a piece that is no text itself. `None` if the template is malformed, or
/// `value` has no text for a piece.
fn fill(template: &str, value: impl Fn(Piece<'_>) -> Option<String>) -> Option<String> {
    let Template(pieces) = Template::parse(template).ok()?;
    let pieces = pieces.into_iter().map(|piece| match piece {
        Piece::Text(text) => Some(plain(text)),
        piece => value(piece),
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Kind;

    fn table() -> Table {
        let columns = vec![
            Column::new("name", Kind::Text, "").prefixed("number", "kind", "irq"),
            Column::new("number", Kind::Uint, ""),
            Column::new("kind", Kind::Text, ""),
            Column::new("low_ns", Kind::Real, "").up_to("high_ns"),
            Column::new("high_ns", Kind::Real, ""),
            Column::new("lines", Kind::Real, "").bound("is_bound", "≤"),
            Column::new("is_bound", Kind::Bool, ""),
        ];
        let mut table = Table::new("t", "", columns);
        table.push(vec![
            "disk".into(),
            36.into(),
            "irq".into(),
            1000.0.into(),
            2000.0.into(),
            7.0.into(),
            true.into(),
        ]);
        table.push(vec![
            "TIMER".into(),
            1.into(),
            "softirq".into(),
            1000.0.into(),
            Value::Absent,
            7.0.into(),
            false.into(),
        ]);
        table.push(vec![Value::Absent; 7]);
        table
    }

    #[test]
    fn the_end_of_an_interval_has_the_unit_of_its_figure() {
        let ratio = serde_json::json!(-0.0015);
        let unbroken = |text: &str| Some(text.replace(' ', "\u{a0}"));
        for key in ["added_lost_ratio", "added_lost_ratio_ci95_low", "added_lost_ratio_ci95_high"] {
            assert_eq!(setting_text(key, &ratio), unbroken("-0.150 %"), "{key}");
        }
        let time = serde_json::json!(1_500.0);
        assert_eq!(setting_text("added_late_p50_ns_ci95_high", &time), unbroken("1.50 µs"));
    }

    #[test]
    fn of_a_value_below_the_limit_the_upper_end_is_shown() {
        let mean =
            Column::new("mean_ns", Kind::Real, "").plus_minus("ci95_ns").below_limit("is_below");
        let ci95 = Column::new("ci95_ns", Kind::Real, "");
        let mut table =
            Table::new("t", "", vec![mean, ci95, Column::new("is_below", Kind::Bool, "")]);
        table.push(vec![20.0.into(), 5.0.into(), false.into()]);
        table.push(vec![(-4.0).into(), 40.0.into(), true.into()]);
        table.push(vec![(-4.0).into(), 2.0.into(), true.into()]);
        table.push(vec![(-4.0).into(), Value::Absent, true.into()]);
        table.push(vec![Value::Absent; 3]);
        let cell = |index: usize| {
            let unit = human::unit_of(&table.columns[0], [20.0].into_iter());
            Row::new(&table, &table.rows()[index]).cell(&table.columns[0], unit)
        };
        let cells = [0, 1, 2, 3, 4].map(cell);
        assert_eq!(cells, ["20.0 ± 5.0", "< 36.0", "below the limit", "below the limit", "–"]);
        let alone =
            [0, 1, 2, 3].map(|index| Row::new(&table, &table.rows()[index]).value_text("mean_ns"));
        assert_eq!(alone, ["20.0 ns", "< 36.0 ns", "below the limit", "below the limit"]);
        let headline = Row::new(&table, &table.rows()[1]).fill("mean {mean_ns}").unwrap();
        assert_eq!(headline, "mean <\u{a0}36.0\u{a0}ns");
    }

    #[test]
    fn other_columns_complete_a_cell() {
        let table = table();
        let cells = |index: usize| -> Vec<String> {
            let row = Row::new(&table, &table.rows()[index]);
            let unit = |column| human::unit_of(column, [1500.0].into_iter());
            let shown = [0, 3, 5].map(|index| &table.columns[index]);
            shown.map(|column| row.cell(column, unit(column))).to_vec()
        };
        assert_eq!(cells(0), ["36 disk", "1.00 to 2.00", "≤ 7.00"]);
        assert_eq!(cells(1), ["TIMER", "1.00 to ?", "7.00"]);
        assert_eq!(cells(2), ["–", "–", "–"]);
    }

    #[test]
    fn a_headline_marks_bounds() {
        let table = table();
        let headline = |index: usize| Row::new(&table, &table.rows()[index]).fill("at {lines}");
        assert_eq!(headline(0).as_deref(), Some("at ≤\u{a0}7.00"));
        assert_eq!(headline(1).as_deref(), Some("at 7.00"));
    }

    #[test]
    fn the_thread_of_an_interrupt_has_the_number_of_the_line() {
        let mut table = table();
        for kind in ["irq_thread", "irqs"] {
            let mut row = table.rows()[0].clone();
            row[2] = kind.into();
            table.push(row);
        }
        let name = |index: usize| Row::new(&table, &table.rows()[index]).text_with_prefix("name");
        assert_eq!([0, 3, 4].map(name), ["36 disk", "36 disk", "disk"]);
    }

    #[test]
    fn templates_are_filled_or_left_out() {
        let table = table();
        let row = |index: usize| Row::new(&table, &table.rows()[index]);
        let template = "largest: {name}, {low_ns}";
        assert_eq!(row(0).fill(template).unwrap(), "largest: 36 disk, 1.00\u{a0}µs");
        assert_eq!(row(2).fill(template), None);
        assert_eq!(row(0).fill("{settings.x}"), None);
    }
}
