//! Parses rates of events on the command line: `1k..1M`, `500`, `2.5k`.

use signalling::RateRange;

/// Allowed rates, events per second.
const RATE_HZ: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Maximum length of a list of rates.
const RATES_MAX: usize = 200;

/// Rates in events per second, sorted and without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates(pub Vec<u64>);

/// Parses a list of rates. A..B stands for A, the numbers 1, 2 and 5 of each decade in between, and B.
pub fn rates(text: &str) -> Result<Rates, String> {
    let mut list = Vec::new();
    for part in text.split(',') {
        let Some((low, high)) = part.split_once("..") else {
            list.push(rate(part)?);
            continue;
        };
        let (low, high) = (rate(low)?, rate(high)?);
        if low > high {
            return Err(format!("{part:?}: the lower rate comes first"));
        }
        let decades = (0..10).map(|exponent| 10_u64.pow(exponent));
        let steps = decades.flat_map(|ten| [ten, 2 * ten, 5 * ten]);
        list.extend(steps.filter(|step| low < *step && *step < high));
        list.extend([low, high]);
    }
    list.sort_unstable();
    list.dedup();
    if list.len() > RATES_MAX {
        return Err(format!("allowed: at most {RATES_MAX} rates"));
    }
    Ok(Rates(list))
}

/// Parses `LO..HI`, or a single rate.
pub fn rate_range(text: &str) -> Result<RateRange, String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let (low_hz, high_hz) = (rate(low)?, rate(high)?);
    if low_hz > high_hz {
        return Err(format!("{text:?}: the lower rate comes first"));
    }
    Ok(RateRange { low_hz, high_hz })
}

/// Parses a rate in events per second, rounded to a whole number.
pub fn rate(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is not a rate from 1 to 1G events per second, as in 500, 2.5k or 1M");
    let (number, factor) = match text.char_indices().last() {
        Some((index, 'k' | 'K')) => (&text[..index], 1e3),
        Some((index, 'M')) => (&text[..index], 1e6),
        Some((index, 'G')) => (&text[..index], 1e9),
        _ => (text, 1.0),
    };
    let is_decimal = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !is_decimal {
        return Err(wrong());
    }
    let number = number.parse::<f64>().map_err(|_| wrong())?;
    let rate_hz = (number * factor).round();
    // 0 is no allowed rate: it stands for a rate that is too large.
    let rate_hz = if rate_hz <= 1e9 { rate_hz as u64 } else { 0 };
    if RATE_HZ.contains(&rate_hz) { Ok(rate_hz) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_prefixes_and_ranges() {
        let parsed = |text: &str| rates(text).map(|rates| rates.0);
        assert_eq!(parsed("1k..20k").unwrap(), [1_000, 2_000, 5_000, 10_000, 20_000]);
        assert_eq!(parsed("700..3k,2.5k,700").unwrap(), [700, 1_000, 2_000, 2_500, 3_000]);
        assert_eq!(parsed("1..1G").unwrap().len(), 28);
        for nonsense in ["", "0", "-1", "1e3", "1k..", "5k..1k", "2G", "k", "1,,2", "nan", "1µ"] {
            assert!(parsed(nonsense).is_err(), "{nonsense}");
        }
        assert_eq!(rate_range("1k..2M").unwrap(), RateRange { low_hz: 1_000, high_hz: 2_000_000 });
        assert_eq!(rate_range("7").unwrap(), RateRange { low_hz: 7, high_hz: 7 });
        assert!(rate_range("2..1").is_err());
    }
}
