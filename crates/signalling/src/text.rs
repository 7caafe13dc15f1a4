//! Times as text, printed and parsed: `1500ns`, `50us`, `1.5ms`, `2s`. Users write this form, and tables
//! contain it.

use std::fmt;

/// Units in ns. The longest must be first: [`TimeText`] takes the first unit that fits.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Prints a time in the longest unit that gives a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeText(
    /// Nanoseconds.
    pub u64,
);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, ns)| self.0 >= *ns && self.0.is_multiple_of(*ns));
        let (name, ns) = unit.unwrap_or(&("ns", 1));
        write!(f, "{}{name}", self.0 / ns)
    }
}

/// Parses a time such as `1.5ms`, with the units ns, us, ms and s. Returns it in ns, rounded.
///
/// The error states the allowed form.
pub fn parse_time_ns(text: &str) -> Result<u64, String> {
    let digits =
        text.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let not_a_time =
        || format!("{text:?} is no time (write a number and ns, us, ms or s, as in 50us)");
    let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(not_a_time)?;
    decimal_times(number, *unit_ns).ok_or_else(not_a_time)
}

/// A decimal number times `factor`, rounded. `None` if the text is no number, or the product is over 2^53.
pub(crate) fn decimal_times(number: &str, factor: u64) -> Option<u64> {
    // `f64::parse` also accepts signs, `.5`, `inf` and `nan`.
    let starts_with_digit = number.starts_with(|sign: char| sign.is_ascii_digit());
    if !starts_with_digit || number.ends_with('.') || number.len() > 20 {
        return None;
    }
    let value = number.parse::<f64>().ok()? * factor as f64;
    (value <= (1_u64 << 53) as f64).then_some(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_have_units() {
        for (text, ns) in
            [("50us", 50_000), ("1.5ms", 1_500_000), ("2s", 2_000_000_000), ("0ns", 0)]
        {
            assert_eq!(parse_time_ns(text), Ok(ns), "{text}");
        }
        for nonsense in ["", "5", "us", ".5us", "5.us", "1.2.3us", "-1us", "1e3us", "1h", "1 us"] {
            assert!(parse_time_ns(nonsense).is_err(), "{nonsense}");
        }
        assert!(parse_time_ns("99999999999999999999s").is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(ns in 0u64..1 << 53) {
            prop_assert_eq!(parse_time_ns(&TimeText(ns).to_string()), Ok(ns));
        }
    }
}
