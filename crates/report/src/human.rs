//! Values as people read them: the unit is the suffix of the column's name.

use record::Value;

use crate::escape;

/// What stands for a value that could not be measured.
pub const ABSENT: &str = "–";

/// Units and their sizes, ascending.
type Scale = &'static [(&'static str, f64)];

const TIME: Scale = &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
const RATE: Scale = &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9)];
const SIZE: Scale = &[
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

/// Suffixes that the formatted value makes superfluous in a heading.
const SHOWN_UNITS: [&str; 4] = ["_ns", "_hz", "_bytes", "_ratio"];

/// Columns (or last words of their names) whose numbers name something: no thousands separators.
const NAMES: [&str; 10] =
    ["number", "cpu", "core", "node", "socket", "pid", "tid", "irq", "vector", "seed"];

/// A cell of the column of that name. Text is made [`escape::plain`].
#[must_use]
pub fn cell(column: &str, value: &Value) -> String {
    match value {
        Value::Absent => ABSENT.to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Text(text) => escape::plain(text),
        Value::Uint(number) => integer(column, false, *number),
        Value::Int(number) => integer(column, *number < 0, number.unsigned_abs()),
        Value::Real(number) if *number < 0.0 => format!("-{}", real(column, -number)),
        Value::Real(number) => real(column, *number),
    }
}

/// The column's name without the unit that its formatted values carry.
#[must_use]
pub fn without_unit(column: &str) -> &str {
    let stem = SHOWN_UNITS.iter().find_map(|unit| column.strip_suffix(unit));
    stem.filter(|stem| !stem.is_empty()).unwrap_or(column)
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

/// A time with its confidence interval, both in the unit of the time: `1.28 ± 0.02 µs`; `1.28 ± –
/// µs` when one value alone gives no interval.
#[must_use]
pub fn ns_with_half_width(mean: f64, half_width: Option<f64>) -> String {
    let sign = if mean < 0.0 { "-" } else { "" };
    let mean = mean.abs();
    let (unit, size) = pick(mean, TIME);
    let value = mean / size;
    let Some(half_width) = half_width else {
        return format!("{sign}{} ± {ABSENT} {unit}", significant(value));
    };
    let half_width = half_width.abs() / size;
    let places = decimals(value).min(decimals(half_width));
    let least = 10_f64.powi(-i32::try_from(places).unwrap_or(3));
    let half_width = if half_width > 0.0 && half_width < least / 2.0 {
        format!("<{least:.places$}")
    } else {
        format!("{half_width:.places$}")
    };
    format!("{sign}{} ± {half_width} {unit}", significant(value))
}

fn integer(column: &str, negative: bool, number: u64) -> String {
    let sign = if negative { "-" } else { "" };
    let magnitude = number as f64;
    match scale(column) {
        // A whole number of the smallest unit is exact: no decimals to add.
        Some(scale) if number < 1000 => format!("{sign}{number} {}", scale[0].0),
        Some(scale) => format!("{sign}{}", scaled(magnitude, scale)),
        None if column.ends_with("_ratio") => format!("{sign}{}", percent(magnitude)),
        None if is_naming(column) => format!("{sign}{number}"),
        None => format!("{sign}{}", count(number)),
    }
}

fn real(column: &str, number: f64) -> String {
    match scale(column) {
        Some(scale) => scaled(number, scale),
        None if column.ends_with("_ratio") => percent(number),
        None => significant(number),
    }
}

fn scale(column: &str) -> Option<Scale> {
    let scales = [("_ns", TIME), ("_hz", RATE), ("_bytes", SIZE)];
    scales.iter().find(|(suffix, _)| column.ends_with(suffix)).map(|(_, scale)| *scale)
}

fn is_naming(column: &str) -> bool {
    let last = column.rsplit('_').next().unwrap_or(column);
    NAMES.contains(&last) || last == "id"
}

/// A share of 1 as per cent.
#[must_use]
pub fn percent(ratio: f64) -> String {
    format!("{} %", significant(ratio * 100.0))
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
    significant(number)
}

fn scaled(number: f64, scale: Scale) -> String {
    let (unit, size) = pick(number, scale);
    format!("{} {unit}", significant(number / size))
}

/// The smallest unit in which the number, once rounded, has not yet become one of the next.
fn pick(number: f64, scale: Scale) -> (&'static str, f64) {
    let fits = |pair: &&[(&str, f64)]| number / pair[0].1 < pair[1].1 / pair[0].1 - 0.5;
    let found = scale.windows(2).find(fits).map(|pair| pair[0]);
    found.unwrap_or(scale[scale.len() - 1])
}

/// Decimals that make three significant digits, and never more than three.
fn decimals(number: f64) -> usize {
    match number {
        _ if number < 0.9995 => 3,
        _ if number < 9.995 => 2,
        _ if number < 99.95 => 1,
        _ => 0,
    }
}

/// Three significant digits, or a whole number with separators; not negative.
fn significant(number: f64) -> String {
    if number == 0.0 {
        "0".to_owned()
    } else if number < 0.0005 {
        "<0.001".to_owned()
    } else if number < 999.5 {
        format!("{number:.*}", decimals(number))
    } else if number < 1e15 {
        count(number.round() as u64)
    } else {
        format!("{number:.2e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_unit_of_their_column() {
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
            ("self_share_ratio", Value::Real(0.0123), "1.23 %"),
            ("self_share_ratio", Value::Uint(1), "100 %"),
            ("self_mean_cycles", Value::Real(12_345.6), "12,346"),
            ("cache_bytes", Value::Uint(1000), "1,000 B"),
            ("cache_bytes", Value::Uint(32_768), "32.0 KiB"),
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
            assert_eq!(cell(column, &value), expected, "{column} {value:?}");
        }
    }

    #[test]
    fn a_mean_and_its_interval_share_a_unit() {
        for (mean, half_width, expected) in [
            (1280.5, Some(21.0), "1.28 ± 0.02 µs"),
            (920.4, Some(12.3), "920 ± 12 ns"),
            (920.4, None, "920 ± – ns"),
            (1280.5, Some(0.1), "1.28 ± <0.01 µs"),
            (1280.5, Some(0.0), "1.28 ± 0.00 µs"),
            (999.7, Some(4.0), "1.00 ± <0.01 µs"),
            (1280.5, Some(13_500.0), "1.28 ± 13.5 µs"),
        ] {
            assert_eq!(ns_with_half_width(mean, half_width), expected);
        }
    }

    #[test]
    fn headings_lose_only_what_the_values_show() {
        for (column, expected) in [
            ("self_max_ns", "self_max"),
            ("rate_hz", "rate"),
            ("self_mean_cycles", "self_mean_cycles"),
            ("count", "count"),
            ("_ns", "_ns"),
        ] {
            assert_eq!(without_unit(column), expected);
        }
    }
}
