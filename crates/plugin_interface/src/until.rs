//! A rule that ends a window early, as soon as the window has measured enough. Users write the rule on the command
//! line, `sim` passes it to the plugin, and the plugin applies it (`plugin/src/guest/enough.rs`).

use std::fmt;
use std::str::FromStr;

/// The most spans of a rule.
pub const SPANS_MAX: u32 = 1_000_000;
/// The most instructions of a rule.
pub const INSTRUCTIONS_MAX: u64 = 1_000_000_000_000_000;
/// The largest half of an interval in a rule, in millionths of the mean.
pub const INTERVAL_PPM_MAX: u32 = 500_000;

/// No window ends before this time after its warm-up, in nanoseconds: five ticks of a kernel with 250 ticks a second.
pub const EARLY_END_NS_MIN: u64 = 20_000_000;

/// When a window has measured enough. For `Spans` and `Interval`: when well measured contexts take nine tenths of the time
/// of all interrupts, softirqs and exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRule {
    /// A context is well measured if it has at least this number of spans, from 1 to [`SPANS_MAX`].
    Spans(u32),
    /// A context is well measured if half of the 95 % confidence interval of its mean time is at most `half_ppm` millionths
    /// of the mean, from 1 to [`INTERVAL_PPM_MAX`].
    Interval { half_ppm: u32 },
    /// All vCPUs together have executed this number of instructions in the window, from 1 to [`INSTRUCTIONS_MAX`].
    Instructions(u64),
}

impl StopRule {
    fn spans(text: &str) -> Option<StopRule> {
        let spans = text.parse().ok().filter(|spans| (1..=SPANS_MAX).contains(spans))?;
        Some(StopRule::Spans(spans))
    }

    fn interval(half_ppm: u32) -> Option<StopRule> {
        (1..=INTERVAL_PPM_MAX).contains(&half_ppm).then_some(StopRule::Interval { half_ppm })
    }

    fn instructions(count: u64) -> Option<StopRule> {
        (1..=INSTRUCTIONS_MAX).contains(&count).then_some(StopRule::Instructions(count))
    }

    /// Parses the form for instructions of the command line, as in `200M-instructions`, `2G-instructions`, `9-instructions`.
    ///
    /// Fails with the allowed forms.
    pub fn parse_instructions(text: &str) -> Result<StopRule, String> {
        let parse = || {
            let amount = text.strip_suffix("-instructions")?;
            let units = [("M", 1_000_000), ("G", 1_000_000_000)];
            let (number, unit) = units
                .into_iter()
                .find_map(|(suffix, unit)| Some((amount.strip_suffix(suffix)?, unit)))
                .unwrap_or((amount, 1));
            StopRule::instructions(number.parse::<u64>().ok()?.checked_mul(unit)?)
        };
        parse().ok_or_else(|| {
            "allowed: N-instructions with N from 1 to 1000000G, as in 200M-instructions".to_owned()
        })
    }

    /// Whether the rule is about the spans of contexts.
    #[must_use]
    pub fn needs_spans(self) -> bool {
        match self {
            StopRule::Spans(_) | StopRule::Interval { .. } => true,
            StopRule::Instructions(_) => false,
        }
    }
}

/// Parses the forms for spans of the command line: `200-spans` or `5%`.
impl FromStr for StopRule {
    type Err = String;

    fn from_str(text: &str) -> Result<StopRule, String> {
        let percent = |text: &str| {
            let percent =
                text.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent))?;
            StopRule::interval((percent * 10_000.0).round() as u32)
        };
        let spans = text.strip_suffix("-spans").and_then(StopRule::spans);
        let rule = spans.or_else(|| text.strip_suffix('%').and_then(percent));
        rule.ok_or_else(|| {
            format!("allowed: N-spans with N from 1 to {SPANS_MAX}, as in 200-spans, or P% with P up to 50, as in 5%")
        })
    }
}

impl fmt::Display for StopRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopRule::Spans(spans) => write!(out, "{spans}-spans"),
            StopRule::Interval { half_ppm } => write!(out, "{}%", f64::from(*half_ppm) / 10_000.0),
            StopRule::Instructions(count) => {
                let (number, unit) = match count {
                    count if count.is_multiple_of(1_000_000_000) => (count / 1_000_000_000, "G"),
                    count if count.is_multiple_of(1_000_000) => (count / 1_000_000, "M"),
                    count => (*count, ""),
                };
                write!(out, "{number}{unit}-instructions")
            }
        }
    }
}

/// A rule that ends windows before their time, as the plugin's option `until` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    pub enough: StopRule,
    /// How long the guest keeps a window open, in nanoseconds, at least 1. When a window ends early, the
    /// guest's clock jumps to the end of this time, so that the guest also ends its window.
    pub window_ns: u64,
    /// The first part of the window, in nanoseconds: the guest still warms up in it, so its spans do not count.
    pub warm_up_ns: u64,
}

impl Until {
    /// Parses `spans:N:WINDOW_NS:WARM_UP_NS`, `interval:PPM:WINDOW_NS:WARM_UP_NS` or
    /// `instructions:N:WINDOW_NS:WARM_UP_NS`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Until> {
        let mut parts = text.split(':');
        let (kind, amount) = (parts.next()?, parts.next()?);
        let (window, warm_up) = (parts.next()?, parts.next()?);
        let enough = match kind {
            "spans" => StopRule::spans(amount),
            "interval" => StopRule::interval(amount.parse().ok()?),
            "instructions" => StopRule::instructions(amount.parse().ok()?),
            _ => None,
        }?;
        let allowed = |ns: &u64| *ns <= i64::MAX as u64;
        let window_ns = window.parse().ok().filter(allowed).filter(|ns| *ns > 0)?;
        let warm_up_ns = warm_up.parse().ok().filter(allowed)?;
        parts.next().is_none().then_some(Until { enough, window_ns, warm_up_ns })
    }
}

impl fmt::Display for Until {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, amount) = match self.enough {
            StopRule::Spans(spans) => ("spans", spans.into()),
            StopRule::Interval { half_ppm } => ("interval", half_ppm.into()),
            StopRule::Instructions(count) => ("instructions", count),
        };
        write!(out, "{kind}:{amount}:{}:{}", self.window_ns, self.warm_up_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write_reads_back() {
        for text in ["1-spans", "200-spans", "1000000-spans", "5%", "0.5%", "50%"] {
            assert_eq!(text.parse::<StopRule>().unwrap().to_string(), text);
        }
        for wrong in ["", "200", "0-spans", "1000001-spans", "-1%", "0%", "51%", "NaN%", "end", "%"]
        {
            assert!(wrong.parse::<StopRule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_of_instructions_read_back() {
        for text in ["1-instructions", "200M-instructions", "1001M-instructions", "3G-instructions"]
        {
            assert_eq!(StopRule::parse_instructions(text).unwrap().to_string(), text);
        }
        let same = StopRule::parse_instructions("3000000-instructions").unwrap();
        assert_eq!(same.to_string(), "3M-instructions");
        for wrong in [
            "",
            "M-instructions",
            "0-instructions",
            "5-spans",
            "5%",
            "1K-instructions",
            "1000001G-instructions",
            "99999999999G-instructions",
            "-1-instructions",
        ] {
            assert!(StopRule::parse_instructions(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_plugins_option_reads_back() {
        for enough in [
            StopRule::Spans(200),
            StopRule::Interval { half_ppm: 50_000 },
            StopRule::Instructions(200_000_000),
        ] {
            let until = Until { enough, window_ns: 200_000_000, warm_up_ns: 5 };
            assert_eq!(Until::parse(&until.to_string()), Some(until));
        }
        for wrong in [
            "",
            "spans:1:1",
            "spans:0:1:0",
            "spans:1:0:0",
            "spans:1:1:-1",
            "time:1:1:0",
            "spans:1:1:0:1",
            "interval:500001:1:0",
            "instructions:0:1:0",
        ] {
            assert_eq!(Until::parse(wrong), None, "{wrong}");
        }
    }
}
