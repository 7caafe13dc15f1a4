//! Numbers with units, such as `16 KiB` and `200 MHz`: parsing for the fields of a model, and printing for the drawing.

/// The units of a quantity, the smallest first, each with its value in the smallest unit.
pub(crate) type Units = &'static [(&'static str, u64)];

/// Units of sizes. KB is not among them because it is ambiguous: 1,000 or 1,024 bytes.
pub(crate) const BYTES: Units = &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
/// Units of frequencies.
pub(crate) const HZ: Units =
    &[("Hz", 1), ("kHz", 1_000), ("MHz", 1_000_000), ("GHz", 1_000_000_000)];

/// Maximum length of a number with its unit, in bytes.
const TEXT_BYTES_MAX: usize = 32;
/// Maximum number of digits after the decimal point.
const DECIMALS_MAX: usize = 9;

/// Parses `16 KiB` as bytes, or `1.7 GHz` as hertz.
///
/// The error is a description of the problem. A number that is not whole in the smallest unit, such
/// as half a byte, is refused.
pub(crate) fn parse(text: &str, units: Units) -> Result<u64, String> {
    let known = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("longer than {TEXT_BYTES_MAX} characters"));
    }
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    if unit.is_empty() {
        return Err(format!("{text:?} has no unit; units: {}", known()));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("{text:?} has an unknown unit; units: {}", known()));
    };
    scaled(number, *factor).ok_or_else(|| format!("{text:?} is no whole number of {}", units[0].0))
}

/// A decimal number times `factor`. `None` if the product is not whole or too large, or the text is no number.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let decimals = decimals.trim_end_matches('0');
    if decimals.len() > DECIMALS_MAX {
        return None;
    }
    let denominator = 10u128.pow(decimals.len() as u32);
    let fraction: u128 = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    let number = whole.parse::<u64>().ok()? as u128 * denominator + fraction;
    let total = number.checked_mul(u128::from(factor))?;
    if total % denominator != 0 {
        return None;
    }
    u64::try_from(total / denominator).ok()
}

/// A size in the largest fitting unit, such as `16 KiB`.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    in_largest(bytes, BYTES)
}

/// A frequency in the largest fitting unit, such as `1.7 GHz`.
#[must_use]
pub fn frequency_text(hz: u64) -> String {
    in_largest(hz, HZ)
}

/// A number in the largest unit that is not larger than the number.
fn in_largest(number: u64, units: Units) -> String {
    let largest = units.iter().rev().find(|(_, factor)| *factor <= number);
    let (name, factor) = largest.unwrap_or(&units[0]);
    let (whole, remainder) = (number / factor, number % factor);
    // Three decimals are exact for all values of real machines, such as 1.25 MiB and 1.266 GHz.
    let decimals = format!("{:03}", u128::from(remainder) * 1000 / u128::from(*factor));
    match decimals.trim_end_matches('0') {
        "" => format!("{whole} {name}"),
        decimals => format!("{whole}.{decimals} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_read() {
        assert_eq!(parse("16 KiB", BYTES), Ok(16 << 10));
        assert_eq!(parse("4MiB", BYTES), Ok(4 << 20));
        assert_eq!(parse("1.25 MiB", BYTES), Ok(5 << 18));
        assert_eq!(parse("64 B", BYTES), Ok(64));
        assert_eq!(parse("1.266 GHz", HZ), Ok(1_266_000_000));
        for bad in
            ["16", "", "KiB", "16 KB", "16 kib", "0.3 B", "-1 B", "1e3 B", "1.2.3 B", "9 PiB"]
        {
            assert!(parse(bad, BYTES).is_err(), "{bad}");
        }
        assert!(parse("16384", BYTES).unwrap_err().contains("no unit"));
        assert!(parse("99999999999999999999 GiB", BYTES).is_err());
    }

    #[test]
    fn the_largest_unit_is_written() {
        assert_eq!(size_text(1536 << 10), "1.5 MiB");
        assert_eq!((size_text(64), size_text(0)), ("64 B".to_owned(), "0 B".to_owned()));
        assert_eq!(frequency_text(1_266_000_000), "1.266 GHz");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(eighths in 8u64..8192, unit in 1u32..3) {
            let bytes = eighths << (10 * unit - 3);
            prop_assert_eq!(parse(&size_text(bytes), BYTES), Ok(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9. KMGiBHz]{0,40}") {
            let _ = parse(&text, BYTES);
            let _ = parse(&text, HZ);
        }
    }
}
