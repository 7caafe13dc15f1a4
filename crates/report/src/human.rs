//! Values as people read them: numbers with three significant digits, in the unit that suits them. All output for
//! people uses it. The unit of a column is the suffix of its name (`_ns`), unless the column's display hints choose
//! another.

use record::{Column, Format, Value};

use crate::escape;

/// Stands for a value that could not be measured.
pub const ABSENT: &str = "–";

/// Significant digits of a number whose column has no hint.
const DIGITS: usize = 3;

/// The unit of the numbers in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Symbol of the unit, which is written after a number or above a column: `µs`. Empty for a count.
    pub label: &'static str,
    /// The size of one unit, in the unit of the column's name.
    pub size: f64,
}

const fn unit(label: &'static str, size: f64) -> Unit {
    Unit { label, size }
}

/// Units of one quantity, ascending.
type Scale = &'static [Unit];

const NS: Unit = unit("ns", 1.0);
const US: Unit = unit("µs", 1e3);
const MS: Unit = unit("ms", 1e6);
const S: Unit = unit("s", 1e9);
const TIME: Scale = &[NS, US, MS, S];
const RATE: Scale = &[unit("/s", 1.0), unit("k/s", 1e3), unit("M/s", 1e6), unit("G/s", 1e9)];
const SIZE: Scale = &[
    unit("B", 1.0),
    unit("KiB", 1024.0),
    unit("MiB", 1_048_576.0),
    unit("GiB", 1_073_741_824.0),
    unit("TiB", 1_099_511_627_776.0),
];
const SIZE_RATE: Scale = &[
    unit("B/s", 1.0),
    unit("KiB/s", 1024.0),
    unit("MiB/s", 1_048_576.0),
    unit("GiB/s", 1_073_741_824.0),
];
const PERCENT: Scale = &[unit("%", 0.01)];
const CYCLES: Scale = &[unit("cycles", 1.0)];
const NONE: Scale = &[unit("", 1.0)];

const FREQUENCY: Scale = &[unit("Hz", 1.0), unit("kHz", 1e3), unit("MHz", 1e6), unit("GHz", 1e9)];

/// The physical quantity of an axis of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// A time in nanoseconds.
    Time,
    /// A number of events per second.
    Rate,
    /// A frequency in hertz.
    Frequency,
    /// A part of 1, shown in per cent.
    Share,
    /// A number of bytes.
    Size,
    /// A number of bytes per second.
    SizeRate,
    /// A number of objects or events, or a factor.
    Count,
}

impl Quantity {
    /// The units of the quantity, from small to large.
    pub(crate) fn scale(self) -> Scale {
        match self {
            Quantity::Time => TIME,
            Quantity::Rate => RATE,
            Quantity::Frequency => FREQUENCY,
            Quantity::Share => PERCENT,
            Quantity::Size => SIZE,
            Quantity::SizeRate => SIZE_RATE,
            Quantity::Count => NONE,
        }
    }

    /// The unit that suits a number.
    pub(crate) fn unit(self, number: f64) -> Unit {
        pick(number, self.scale())
    }

    /// A round number with its unit, as in [`tick`].
    pub(crate) fn round_text(self, number: f64) -> String {
        tick(number, self.unit(number))
    }

    /// The texts of numbers: to three digits, or all digits if a different number has the same text.
    pub(crate) fn distinct_texts(self, numbers: &[f64]) -> Vec<String> {
        let texts: Vec<String> = numbers.iter().map(|number| self.text(*number)).collect();
        let text_of = |number: &f64, text: &String| {
            let is_shared = numbers.iter().zip(&texts).any(|(n, t)| n != number && t == text);
            if is_shared { self.round_text(*number) } else { text.clone() }
        };
        numbers.iter().zip(&texts).map(|(number, text)| text_of(number, text)).collect()
    }

    /// A number with its unit, to three digits.
    pub(crate) fn text(self, number: f64) -> String {
        scaled(number, self.scale())
    }
}

/// A round number with its unit and without trailing zeros, for the tick of an axis: `20 µs`, `0.5 %`. The number is
/// not negative.
pub(crate) fn tick(number: f64, unit: Unit) -> String {
    // Ten digits hide the rounding error of the division.
    let rounded: f64 = format!("{:.9e}", number / unit.size).parse().unwrap_or(0.0);
    let is_whole = rounded.fract() == 0.0 && rounded < 1e15;
    let text = if is_whole { count(rounded as u64) } else { format!("{rounded}") };
    with_label(text, unit)
}

/// Suffixes of the names of columns, and the units that they mean.
const SUFFIXES: [(&str, Scale); 6] = [
    ("_ns", TIME),
    ("_hz", RATE),
    ("_bytes_per_second", SIZE_RATE),
    ("_bytes", SIZE),
    ("_ratio", PERCENT),
    ("_cycles", CYCLES),
];

/// Names of columns, or last words of names, whose numbers identify something. They are shown without thousands
/// separators.
const IDENTIFIERS: [&str; 11] =
    ["number", "cpu", "core", "node", "socket", "pid", "tid", "irq", "vector", "seed", "id"];

/// The heading of a column: its title or, without one, its name without the unit.
#[must_use]
pub fn heading(column: &Column) -> String {
    if !column.display.title.is_empty() {
        return escape::plain(&column.display.title);
    }
    escape::plain(&without_unit(&column.name).replace('_', " "))
}

/// The column's name without its unit, because the heading or the values show the unit.
fn without_unit(column: &str) -> &str {
    let stem = SUFFIXES.iter().find_map(|(suffix, _)| column.strip_suffix(suffix));
    stem.filter(|stem| !stem.is_empty()).unwrap_or(column)
}

/// The units in which a column's numbers can be shown.
fn scale(name: &str, format: Format) -> Scale {
    match format {
        Format::Nanoseconds => &[NS],
        Format::Microseconds => &[US],
        Format::Milliseconds => &[MS],
        Format::Seconds => &[S],
        Format::Factor | Format::Identifier => NONE,
        Format::Auto => {
            let found = SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix));
            found.map_or(NONE, |(_, scale)| scale)
        }
    }
}

/// The unit for all numbers of a column: the unit that suits their median. Rates are always in `/s`.
#[must_use]
pub fn unit_of(column: &Column, numbers: impl Iterator<Item = f64>) -> Unit {
    let mut numbers: Vec<f64> = numbers.map(f64::abs).filter(|number| *number > 0.0).collect();
    numbers.sort_by(f64::total_cmp);
    let median = numbers.get(numbers.len() / 2).copied().unwrap_or(0.0);
    let is_rate = column.display.format == Format::Auto && column.name.ends_with("_hz");
    pick(if is_rate { 0.0 } else { median }, scale(&column.name, column.display.format))
}

/// A cell of a column: a number in `unit` without the symbol, or text after [`escape::plain`].
#[must_use]
pub fn cell(column: &Column, unit: Unit, value: &Value) -> String {
    let digits = significant_digits(column);
    let is_identifier = column.display.format == Format::Identifier
        || (column.display.format == Format::Auto && is_identifier(&column.name));
    show(value, unit, digits, is_identifier)
}

/// The significant digits of a column's numbers.
fn significant_digits(column: &Column) -> usize {
    match column.display.digits {
        0 => DIGITS,
        digits => digits.into(),
    }
}

/// A value in `unit`, without the symbol.
fn show(value: &Value, unit: Unit, digits: usize, is_identifier: bool) -> String {
    let (is_negative, magnitude) = match value {
        Value::Absent => return ABSENT.to_owned(),
        Value::Bool(true) => return "yes".to_owned(),
        Value::Bool(false) => return "no".to_owned(),
        Value::Text(text) => return escape::plain(text),
        Value::Uint(number) => (false, *number),
        Value::Int(number) => (*number < 0, number.unsigned_abs()),
        Value::Real(number) => {
            let magnitude = significant(in_unit(number.abs(), unit, digits), digits);
            return with_sign(*number, magnitude);
        }
    };
    let sign = if is_negative { "-" } else { "" };
    match unit.size {
        _ if is_identifier => format!("{sign}{magnitude}"),
        // A whole number in the smallest unit is exact, so it gets no decimals.
        1.0 => format!("{sign}{}", count(magnitude)),
        _ => {
            let text = significant(in_unit(magnitude as f64, unit, digits), digits);
            with_sign(if is_negative { -1.0 } else { 1.0 }, text)
        }
    }
}

/// The text of a number from the text of its magnitude. A negative number that rounds to nothing is above a limit:
/// `>-0.001`.
fn with_sign(number: f64, magnitude: String) -> String {
    match magnitude.strip_prefix('<') {
        _ if number >= 0.0 => magnitude,
        Some(limit) => format!(">-{limit}"),
        None => format!("-{magnitude}"),
    }
}

/// A number with the half width of its interval, both in `unit`: `1.28 ± 0.02`. Without an interval: `1.28 ± –`.
#[must_use]
pub fn with_half_width(
    column: &Column,
    unit: Unit,
    number: f64,
    half_width: Option<f64>,
) -> String {
    let digits = significant_digits(column);
    let value = in_unit(number.abs(), unit, digits);
    let value_text = with_sign(number, significant(value, digits));
    let Some(half_width) = half_width else { return format!("{value_text} ± {ABSENT}") };
    let width_in_unit = half_width.abs() / unit.size;
    // The half width has no more decimals than the value.
    let places = decimals(value, digits).min(decimals(width_in_unit, digits));
    let last_place = 10_f64.powi(-i32::try_from(places).unwrap_or(3));
    let width_text = if width_in_unit > 0.0 && width_in_unit < last_place / 2.0 {
        format!("<{last_place:.places$}")
    } else {
        format!("{width_in_unit:.places$}")
    };
    format!("{value_text} ± {width_text}")
}

/// Text for a value below the detection limit whose interval has no positive upper end.
pub const BELOW_LIMIT: &str = "below the limit";

/// The upper end of the interval of a value below the detection limit: `< 0.23`.
pub fn upper_end(column: &Column, unit: Unit, number: f64, half_width: Option<f64>) -> String {
    let digits = significant_digits(column);
    match half_width.map(|half_width| (number + half_width) / unit.size) {
        Some(end) if end > 0.0 => format!("< {}", significant(end, digits)),
        _ => BELOW_LIMIT.to_owned(),
    }
}

/// A value outside of a table, with the unit that suits it: `1.28 µs`.
#[must_use]
pub fn value_text(name: &str, format: Format, value: &Value) -> String {
    let number = match value {
        Value::Uint(number) => *number as f64,
        Value::Int(number) => *number as f64,
        Value::Real(number) => *number,
        Value::Absent | Value::Bool(_) | Value::Text(_) => {
            return show(value, NONE[0], DIGITS, false);
        }
    };
    let unit = pick(number.abs(), scale(name, format));
    let is_identifier = format == Format::Identifier || is_identifier(name);
    with_label(show(value, unit, DIGITS, is_identifier), unit)
}

/// The text of a number with the symbol of its unit, if that has one.
fn with_label(number: String, unit: Unit) -> String {
    if unit.label.is_empty() { number } else { format!("{number} {}", unit.label) }
}

/// A number of events or rows, with thousands separators.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Whether the numbers of a column with this name identify something.
fn is_identifier(column: &str) -> bool {
    let last_word = column.rsplit('_').next().unwrap_or(column);
    IDENTIFIERS.contains(&last_word)
}

/// A part of 1 in per cent.
#[must_use]
pub fn percent(ratio: f64) -> String {
    scaled(ratio, PERCENT)
}

/// A change as a part of 1, in per cent and with its sign, also if it rounds to nothing: `+12.0 %`, `−0.320 %`, `<+0.001 %`,
/// `>−0.001 %`. No change is `+0 %`.
#[must_use]
pub fn signed_percent(change: f64) -> String {
    let (sign, relation) = if change < 0.0 { ("−", ">") } else { ("+", "<") };
    let magnitude = percent(change.abs());
    match magnitude.strip_prefix('<') {
        Some(limit) => format!("{relation}{sign}{limit}"),
        None => format!("{sign}{magnitude}"),
    }
}

/// A time in nanoseconds, in its unit.
#[must_use]
pub fn ns(time: f64) -> String {
    scaled(time, TIME)
}

/// A rate per second, in its unit.
#[must_use]
pub fn rate(hz: f64) -> String {
    scaled(hz, RATE)
}

/// A number of bytes, in its unit.
#[must_use]
pub fn bytes(number: f64) -> String {
    scaled(number, SIZE)
}

/// A number that is not negative, with three significant digits.
#[must_use]
pub fn number(number: f64) -> String {
    significant(number, DIGITS)
}

/// A number with its sign and the unit of `scale` that suits it, to three digits.
fn scaled(number: f64, scale: Scale) -> String {
    let unit = pick(number.abs(), scale);
    let magnitude = significant(in_unit(number.abs(), unit, DIGITS), DIGITS);
    with_label(with_sign(number, magnitude), unit)
}

/// The smallest unit of the scale in which the rounded number is less than 1 of the next larger unit.
fn pick(number: f64, scale: Scale) -> Unit {
    let fits = |pair: &&[Unit]| number / pair[0].size < pair[1].size / pair[0].size - 0.5;
    let fitting_unit = scale.windows(2).find(fits).map(|pair| pair[0]);
    fitting_unit.unwrap_or(scale[scale.len() - 1])
}

/// The number of decimals with which a number has `digits` significant digits. At most `digits`.
fn decimals(number: f64, digits: usize) -> usize {
    let mut limit = 1.0;
    for decimals in (1..=digits).rev() {
        let half = 0.5 * 10_f64.powi(-i32::try_from(decimals).unwrap_or(0));
        if number < limit - half {
            return decimals;
        }
        limit *= 10.0;
    }
    0
}

/// A share is a whole if it lacks less than this, %. The sum of all parts may lack a rounding error.
const WHOLE_ERROR_PERCENT: f64 = 1e-7;

/// A number as a multiple of a unit, to be shown with `digits` significant digits. A share below 100 % is limited so that
/// rounding makes no 100 % of it: 100 % means that nothing else is left. The number is not negative.
fn in_unit(number: f64, unit: Unit, digits: usize) -> f64 {
    let value = number / unit.size;
    let is_part_of_whole = unit == PERCENT[0] && value < 100.0 - WHOLE_ERROR_PERCENT;
    if !is_part_of_whole {
        return value;
    }
    let decimals = i32::try_from(digits.saturating_sub(2)).unwrap_or(1);
    value.min(100.0 - 10_f64.powi(-decimals))
}

/// A number with `digits` significant digits, or as a whole number with thousands separators if it has more. The
/// number is not negative.
fn significant(number: f64, digits: usize) -> String {
    let minimum = 10_f64.powi(-i32::try_from(digits).unwrap_or(3));
    let decimals = decimals(number, digits);
    if number == 0.0 {
        "0".to_owned()
    } else if number < minimum / 2.0 {
        format!("<{minimum:.digits$}")
    } else if decimals > 0 {
        format!("{number:.decimals$}")
    } else if number < 1e15 {
        count(number.round() as u64)
    } else {
        format!("{number:.2e}")
    }
}

/// The text with spaces at which no line breaks, for a number with its unit or for a command.
pub(crate) fn unbroken(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Kind;

    #[test]
    fn a_negative_share_keeps_its_sign() {
        let texts = [-0.0032, -1e-6, 1e-6, 0.0].map(percent);
        assert_eq!(texts, ["-0.320 %", ">-0.001 %", "<0.001 %", "0 %"]);
    }

    #[test]
    fn a_tiny_negative_number_is_above_a_limit() {
        let column = Column::new("misses", Kind::Real, "");
        let cell_of = |number: f64| cell(&column, NONE[0], &Value::Real(number));
        assert_eq!([-1e-6, 1e-6, -2.0].map(cell_of), [">-0.001", "<0.001", "-2.00"]);
        let with_error = |number, half| with_half_width(&column, NONE[0], number, half);
        assert_eq!(with_error(-1e-6, None), ">-0.001 ± –");
        assert_eq!(with_error(-1e-6, Some(0.5)), ">-0.001 ± 0.500");
        assert_eq!(with_error(-2.0, Some(0.5)), "-2.00 ± 0.50");
        let seconds = cell(&Column::new("time_ns", Kind::Int, ""), S, &Value::Int(-1));
        assert_eq!(seconds, ">-0.001");
        assert_eq!(value_text("share_ratio", Format::Auto, &Value::Real(-1e-6)), ">-0.001 %");
    }

    #[test]
    fn a_tiny_change_keeps_its_sign() {
        let texts = [0.12, -0.0032, 1e-6, -1e-6, 0.0].map(signed_percent);
        assert_eq!(texts, ["+12.0 %", "−0.320 %", "<+0.001 %", ">−0.001 %", "+0 %"]);
    }

    #[test]
    fn only_a_whole_is_100_percent_and_only_nothing_is_0_percent() {
        let texts = [0.9996, 0.999_999_9, 0.9994, 1.0 - 1e-15, 1.0, 1.0004].map(percent);
        assert_eq!(texts, ["99.9 %", "99.9 %", "99.9 %", "100 %", "100 %", "100 %"]);
        let column = Column::new("lost_ratio", Kind::Real, "");
        let cell_of = |column: &Column, ratio: f64| cell(column, PERCENT[0], &Value::Real(ratio));
        assert_eq!(
            [0.9996, 4e-6, 0.0].map(|ratio| cell_of(&column, ratio)),
            ["99.9", "<0.001", "0"]
        );
        assert_eq!(cell_of(&column.clone().digits(5), 0.999_999), "99.999");
        assert_eq!(with_half_width(&column, PERCENT[0], 0.9996, Some(0.001)), "99.9 ± 0.1");
        assert_eq!(value_text("lost_ratio", Format::Auto, &Value::Real(0.9996)), "99.9 %");
        assert_eq!(percent(-0.9996), "-99.9 %");
    }

    #[test]
    fn a_value_alone_has_the_unit_that_suits_it() {
        for (column, value, expected) in [
            ("self_max_ns", Value::Uint(0), "0 ns"),
            ("self_max_ns", Value::Uint(920), "920 ns"),
            ("self_max_ns", Value::Uint(999), "999 ns"),
            ("self_max_ns", Value::Uint(1_283), "1.28 µs"),
            ("self_max_ns", Value::Uint(999_499), "999 µs"),
            ("self_max_ns", Value::Uint(999_500), "1.00 ms"),
            ("self_max_ns", Value::Uint(2_100_000_000), "2.10 s"),
            ("self_max_ns", Value::Uint(4_321_000_000_000), "4,321 s"),
            ("difference_ns", Value::Int(-1_283), "-1.28 µs"),
            ("self_mean_ns", Value::Real(12.34), "12.3 ns"),
            ("self_mean_ns", Value::Real(999.6), "1.00 µs"),
            ("self_mean_ns", Value::Real(9.996), "10.0 ns"),
            ("self_mean_ns", Value::Real(0.0001), "<0.001 ns"),
            ("self_mean_ns", Value::Real(-12.34), "-12.3 ns"),
            ("rate_hz", Value::Real(14_210.0), "14.2 k/s"),
            ("rate_hz", Value::Real(0.5), "0.500 /s"),
            ("self_cpu_ratio", Value::Real(0.0123), "1.23 %"),
            ("self_cpu_ratio", Value::Uint(1), "100 %"),
            ("self_mean_cycles", Value::Real(12_345.6), "12,346 cycles"),
            ("cache_bytes", Value::Uint(1000), "1,000 B"),
            ("cache_bytes", Value::Uint(32_768), "32.0 KiB"),
            ("load_bytes_per_second", Value::Real(2048.0), "2.00 KiB/s"),
            ("count", Value::Uint(1_234_567), "1,234,567"),
            ("count", Value::Uint(u64::MAX), "18,446,744,073,709,551,615"),
            ("change", Value::Int(i64::MIN), "-9,223,372,036,854,775,808"),
            ("factor", Value::Real(1e300), "1.00e300"),
            ("number", Value::Uint(4096), "4096"),
            ("source_id", Value::Uint(4096), "4096"),
            ("shared", Value::Bool(true), "yes"),
            ("name", Value::Text("a\u{1b}b".to_owned()), "a\\u{1b}b"),
            ("self_max_ns", Value::Absent, "–"),
        ] {
            assert_eq!(value_text(column, Format::Auto, &value), expected, "{column} {value:?}");
        }
        let ratio = Value::Real(1.234);
        assert_eq!(value_text("over_host_ratio", Format::Factor, &ratio), "1.23");
    }

    #[test]
    fn all_numbers_of_a_column_have_one_unit() {
        let column = |name: &str| Column::new(name, Kind::Real, "");
        let shown = |column: &Column, numbers: &[f64]| {
            let unit = unit_of(column, numbers.iter().copied());
            let cells = numbers.iter().map(|number| cell(column, unit, &Value::Real(*number)));
            (unit.label, cells.collect::<Vec<_>>().join(" "))
        };
        let times = [85.0, 1_280.5, 3_400_000.0, 0.0];
        assert_eq!(shown(&column("max_ns"), &times), ("µs", "0.085 1.28 3,400 0".to_owned()));
        let fixed = column("max_ns").format(Format::Milliseconds);
        assert_eq!(shown(&fixed, &times), ("ms", "<0.001 0.001 3.40 0".to_owned()));
        let precise = column("period_ns").digits(5);
        assert_eq!(shown(&precise, &[4_000_012.0]), ("ms", "4.0000".to_owned()));
        assert_eq!(shown(&column("lost_ratio"), &[0.0123]), ("%", "1.23".to_owned()));
        assert_eq!(shown(&column("x_cycles"), &[]), ("cycles", String::new()));
    }

    #[test]
    fn a_mean_and_its_interval_share_a_unit() {
        for (mean, half_width, unit, expected) in [
            (1280.5, Some(21.0), US, "1.28 ± 0.02"),
            (920.4, Some(12.3), NS, "920 ± 12"),
            (920.4, None, NS, "920 ± –"),
            (1280.5, Some(0.1), US, "1.28 ± <0.01"),
            (1280.5, Some(0.0), US, "1.28 ± 0.00"),
            (1280.5, Some(13_500.0), US, "1.28 ± 13.5"),
            (-1280.5, Some(21.0), US, "-1.28 ± 0.02"),
        ] {
            let column = Column::new("mean_ns", Kind::Real, "");
            assert_eq!(with_half_width(&column, unit, mean, half_width), expected);
        }
    }

    #[test]
    fn headings_lose_only_what_the_values_show() {
        for (column, expected) in [
            ("self_max_ns", "self max"),
            ("rate_hz", "rate"),
            ("self_mean_cycles", "self mean"),
            ("count", "count"),
            ("_ns", " ns"),
        ] {
            assert_eq!(heading(&Column::new(column, Kind::Uint, "")), expected);
        }
        assert_eq!(heading(&Column::new("self_max_ns", Kind::Uint, "").title("max")), "max");
    }
}
