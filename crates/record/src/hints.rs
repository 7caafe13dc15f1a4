//! Display hints: methods that set them in the definition of a table, their check, and the filter of
//! rows. The types are in [`crate::display`].

use crate::display::{
    ColumnDisplay, Combine, DIGITS_MAX, Format, Keep, Piece, RowFilter, TableDisplay, Template,
};
use crate::interval::IntervalColumns;
use crate::limits::{GROUP_COLUMNS_MAX, NOTES_MAX, TEMPLATE_BYTES_MAX, TITLE_BYTES_MAX};
use crate::table::{Column, Kind, Table, Value};

impl RowFilter {
    /// Whether the filter keeps a row of `table`. A lower limit keeps a row whose cell has no number.
    #[must_use]
    pub fn keeps(&self, table: &Table, row: &[Value]) -> bool {
        match (&self.keep, table.get(row, &self.column)) {
            (Keep::Text(wanted), Some(Value::Text(text))) => wanted == text,
            (Keep::Bool(wanted), Some(Value::Bool(value))) => wanted == value,
            (Keep::AtLeast(limit), value) => {
                value.and_then(Value::number).is_none_or(|number| number >= *limit)
            }
            (Keep::Text(_) | Keep::Bool(_), _) => false,
        }
    }
}

/// The builder of a column's hints: `Column::new(...).title("p99").priority(80)`.
impl Column {
    #[must_use]
    pub fn title(mut self, title: &str) -> Column {
        self.display.title = title.to_owned();
        self
    }

    /// Sets the priority, 1 to 255. Columns with a higher priority stay longer when the terminal gets narrower.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Column {
        self.display.priority = priority;
        self
    }

    /// Sets the heading and the priority.
    #[must_use]
    pub fn shown_as(self, title: &str, priority: u8) -> Column {
        self.title(title).priority(priority)
    }

    /// Shows the column on request only.
    #[must_use]
    pub fn detail(self) -> Column {
        self.priority(0)
    }

    /// Sets the unit or notation of shown numbers.
    #[must_use]
    pub fn format(mut self, format: Format) -> Column {
        self.display.format = format;
        self
    }

    /// Sets the number of significant digits.
    #[must_use]
    pub fn digits(mut self, digits: u8) -> Column {
        self.display.digits = digits;
        self
    }

    /// Makes a narrow terminal show fewer columns rather than a part of this column's text.
    #[must_use]
    pub fn uncut(mut self) -> Column {
        self.display.is_uncut = true;
        self
    }

    /// Makes a terminal wrap this column's text instead of cutting it.
    #[must_use]
    pub fn wrapped(mut self) -> Column {
        self.display.is_wrapped = true;
        self
    }

    /// Shows the half width of an interval in the same cell (`1.28 ± 0.02`). Also links the column to this interval,
    /// unless [`Column::interval`] has linked it before.
    #[must_use]
    pub fn plus_minus(mut self, half_width: &str) -> Column {
        self.display.combine = Some(Combine::PlusMinus(half_width.to_owned()));
        self.interval.get_or_insert_with(|| IntervalColumns::half_width(half_width));
        self
    }

    /// Shows an error in the same cell (`1.28 ± 0.02`). The error is no confidence interval: comparisons do not use it.
    #[must_use]
    pub fn plus_minus_error(mut self, error: &str) -> Column {
        self.display.combine = Some(Combine::PlusMinus(error.to_owned()));
        self
    }

    /// Marks the numbers of the rows whose column `flag` is true as below the detection limit. A column with an interval
    /// ([`Column::plus_minus`]) then shows only the upper end. Formats without marks leave the number out.
    #[must_use]
    pub fn below_limit(mut self, flag: &str) -> Column {
        self.display.below_limit = Some(flag.to_owned());
        self
    }

    /// Shows this column and the upper end of an interval in one cell.
    #[must_use]
    pub fn up_to(mut self, high: &str) -> Column {
        self.display.combine = Some(Combine::UpTo(high.to_owned()));
        self
    }

    /// The column as it stands in a table without its half widths: the title `mean ± ci95` becomes `mean`.
    #[must_use]
    pub fn without_half_width(mut self) -> Column {
        if let Some((title, _)) = self.display.title.split_once(" ±") {
            self.display.title = title.to_owned();
        }
        if matches!(self.display.combine, Some(Combine::PlusMinus(_))) {
            self.display.combine = None;
        }
        self
    }

    /// Writes `sign` before the number where the column `flag` is true.
    #[must_use]
    pub fn bound(mut self, flag: &str, sign: &str) -> Column {
        let (flag, sign) = (flag.to_owned(), sign.to_owned());
        self.display.combine = Some(Combine::Bound { flag, sign });
        self
    }

    /// Whether the mark of this column decides if the numbers of `column` are measurements. This holds for the column
    /// itself, and for a column with the same quantity in another unit. For a column that describes intervals, such as half
    /// widths, it holds for the column with the intervals.
    #[must_use]
    pub fn marks(&self, column: &Column) -> bool {
        fn quantity(column: &Column) -> Option<&str> {
            column.name.rsplit_once('_').map(|(quantity, _)| quantity)
        }
        let has_half_width = matches!(
            &self.display.combine,
            Some(Combine::PlusMinus(half_width)) if *half_width == column.name
        );
        let is_same_quantity = quantity(self).is_some() && quantity(self) == quantity(column);
        let has_interval =
            self.interval.iter().any(|interval| interval.columns().contains(&&*column.name));
        self.name == column.name || is_same_quantity || has_half_width || has_interval
    }

    /// Writes the column `prefix` before the text where the column `when` holds `equals`, or a kind of it such as `equals_thread`.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str, when: &str, equals: &str) -> Column {
        let [prefix, when, equals] = [prefix, when, equals].map(str::to_owned);
        self.display.combine = Some(Combine::Prefix { prefix, when, equals });
        self
    }
}

impl Table {
    /// Replaces the display hints of the table.
    #[must_use]
    pub fn displayed(mut self, display: TableDisplay) -> Table {
        self.display = display;
        self
    }

    /// Checks the hints of the table and its columns, which [`crate::write_run`] also does. For tests of definitions.
    ///
    /// Fails if a hint is too long, or names a column that the table does not have.
    pub fn check_display(&self) -> Result<(), String> {
        check(&self.columns, &self.display)
    }
}

/// Checks that the hints of a table are within their limits and name only columns of the table.
pub(crate) fn check(columns: &[Column], display: &TableDisplay) -> Result<(), String> {
    let exists = |name: &str| {
        if columns.iter().any(|column| column.name == name) {
            Ok(())
        } else {
            Err(format!("display: there is no column {name:?}"))
        }
    };
    let check_length = |text: &str, max: usize| {
        if text.len() <= max {
            Ok(())
        } else {
            Err(format!("display: text of {} bytes, more than {max}", text.len()))
        }
    };
    for ColumnDisplay { title, digits, combine, below_limit, .. } in
        columns.iter().map(|column| &column.display)
    {
        check_length(title, TITLE_BYTES_MAX)?;
        if *digits > DIGITS_MAX {
            return Err(format!("display: {digits} digits, more than {DIGITS_MAX}"));
        }
        if let Some(Combine::Bound { sign: text, .. } | Combine::Prefix { equals: text, .. }) =
            combine
        {
            check_length(text, TITLE_BYTES_MAX)?;
        }
        combine.iter().flat_map(Combine::columns).try_for_each(exists)?;
        below_limit.iter().map(String::as_str).try_for_each(exists)?;
    }
    for column in columns {
        check_interval(column, columns)
            .map_err(|error| format!("column {}: interval: {error}", column.name))?;
    }
    let TableDisplay { title, headline, group_by, sort_by, filter, notes, .. } = display;
    check_length(title, TEMPLATE_BYTES_MAX)?;
    for (subject, count, max) in [
        ("columns that form groups", group_by.len(), GROUP_COLUMNS_MAX),
        ("notes", notes.len(), NOTES_MAX),
    ] {
        if count > max {
            return Err(format!("display: {count} {subject}, more than {max}"));
        }
    }
    group_by.iter().chain(sort_by).try_for_each(|column| exists(column))?;
    if let Some(RowFilter { column, keep, others }) = filter {
        exists(column)?;
        check_length(others, TITLE_BYTES_MAX)?;
        match keep {
            Keep::Text(text) => check_length(text, TITLE_BYTES_MAX)?,
            Keep::AtLeast(limit) if !limit.is_finite() => {
                return Err(format!("display: {limit} is not finite"));
            }
            Keep::Bool(_) | Keep::AtLeast(_) => {}
        }
    }
    for template in notes.iter().chain([headline]) {
        check_length(template, TEMPLATE_BYTES_MAX)?;
        let Template(pieces) =
            Template::parse(template).map_err(|error| format!("display: {error}"))?;
        for piece in pieces {
            if let Piece::Column(name) = piece {
                exists(name)?;
            }
        }
    }
    Ok(())
}

/// Checks that the columns of an interval exist, are other columns, and have a kind that can hold their figures.
fn check_interval(column: &Column, columns: &[Column]) -> Result<(), String> {
    let Some(interval) = &column.interval else { return Ok(()) };
    for name in interval.columns() {
        let linked = columns.iter().find(|candidate| candidate.name == name);
        let linked = linked.ok_or_else(|| format!("there is no column {name:?}"))?;
        if linked.name == column.name {
            return Err("it is the column itself".to_owned());
        }
        let is_method = interval.method.as_deref() == Some(name);
        match linked.kind {
            Kind::Uint | Kind::Int | Kind::Real if !is_method => {}
            Kind::Text if is_method => {}
            kind => return Err(format!("column {name} is {kind}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_without_its_half_width_has_a_title_without_it() {
        let mean = Column::new("mean_ns", Kind::Real, "").plus_minus("ci95_ns");
        let alone = mean.title("mean ± ci95").without_half_width();
        assert_eq!((alone.display.title.as_str(), alone.display.combine), ("mean", None));
        let high = Column::new("low_ns", Kind::Real, "").up_to("high_ns").title("range");
        assert_eq!(high.clone().without_half_width(), high);
    }

    #[test]
    fn hints_are_bounded_and_about_columns_that_exist() {
        let column = || Column::new("a", Kind::Real, "A.");
        let plain = TableDisplay::default;
        let texts = || vec!["a".to_owned(); NOTES_MAX + 1];
        let long = || "x".repeat(TEMPLATE_BYTES_MAX + 1);
        let other = |kind| Column::new("other", kind, "Another.");
        assert_eq!(
            check(&[column().plus_minus("other").title("mean"), other(Kind::Uint)], &plain()),
            Ok(())
        );
        for (interval, kind, expected) in [
            (IntervalColumns::half_width("other"), Kind::Text, "column other is text"),
            (IntervalColumns::half_width("other"), Kind::Bool, "column other is bool"),
            (IntervalColumns::bounds("other", "b"), Kind::Real, "there is no column \"b\""),
            (IntervalColumns::bounds("other", "a"), Kind::Real, "it is the column itself"),
            (IntervalColumns::half_width("other").method("c"), Kind::Real, "no column \"c\""),
            (IntervalColumns::half_width("other").method("other"), Kind::Real, "other is real"),
        ] {
            let columns = [column().interval(interval), other(kind)];
            let error = check(&columns, &plain()).unwrap_err();
            assert!(error.starts_with("column a: interval: "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        for (columns, display, expected) in [
            (column().plus_minus("b"), plain(), "no column \"b\""),
            (column().below_limit("b"), plain(), "no column \"b\""),
            (column().bound("a", &long()), plain(), "bytes, more than"),
            (column().title(&long()), plain(), "bytes, more than"),
            (column().digits(16), plain(), "16 digits"),
            (column(), TableDisplay { title: long(), ..plain() }, "bytes, more than"),
            (column(), TableDisplay { sort_by: Some("b".to_owned()), ..plain() }, "no column"),
            (column(), TableDisplay { group_by: vec!["b".to_owned()], ..plain() }, "no column"),
            (column(), TableDisplay { group_by: texts(), ..plain() }, "form groups"),
            (column(), TableDisplay { notes: texts(), ..plain() }, "notes"),
            (column(), TableDisplay { headline: "{b}".to_owned(), ..plain() }, "no column"),
            (column(), TableDisplay { headline: "{".to_owned(), ..plain() }, "without"),
            (
                column(),
                TableDisplay { filter: Some(RowFilter::sums_over_cpus()), ..plain() },
                "no column \"cpu\"",
            ),
        ] {
            let error = check(&[columns], &display).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
