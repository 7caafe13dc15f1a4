//! A rule that ends a window early, as soon as the window has measured enough. Users write the rule on the command
//! line, `sim` passes it to the plugin, and the plugin applies it (`plugin/src/guest/enough.rs`).

use std::fmt;
use std::str::FromStr;

/// The most spans of a rule.
pub const SPANS_MAX: u32 = 1_000_000;
/// The largest half of an interval in a rule, in millionths of the mean.
pub const INTERVAL_PPM_MAX: u32 = 500_000;

/// No window ends before this time after its warm-up, in nanoseconds: five ticks of a kernel with 250 ticks a second.
pub const EARLY_END_NS_MIN: u64 = 20_000_000;

/// The condition on a context that makes it well measured. A window ends when the well measured contexts take nine
/// tenths of the time of all interrupts, softirqs and exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRule {
    /// The context has at least this number of spans, from 1 to [`SPANS_MAX`].
    Spans(u32),
    /// Half of the 95 % confidence interval of the context's mean time is at most `half_ppm` millionths of the mean,
    /// from 1 to [`INTERVAL_PPM_MAX`].
    Interval { half_ppm: u32 },
}

impl StopRule {
    fn spans(text: &str) -> Option<StopRule> {
        let spans = text.parse().ok().filter(|spans| (1..=SPANS_MAX).contains(spans))?;
        Some(StopRule::Spans(spans))
    }

    fn interval(half_ppm: u32) -> Option<StopRule> {
        (1..=INTERVAL_PPM_MAX).contains(&half_ppm).then_some(StopRule::Interval { half_ppm })
    }
}

/// Parses the form of the command line: `200-spans` or `5%`.
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
    /// Parses `spans:N:WINDOW_NS:WARM_UP_NS` or `interval:PPM:WINDOW_NS:WARM_UP_NS`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Until> {
        let mut parts = text.split(':');
        let (kind, amount) = (parts.next()?, parts.next()?);
        let (window, warm_up) = (parts.next()?, parts.next()?);
        let enough = match kind {
            "spans" => StopRule::spans(amount),
            "interval" => StopRule::interval(amount.parse().ok()?),
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
            StopRule::Spans(spans) => ("spans", spans),
            StopRule::Interval { half_ppm } => ("interval", half_ppm),
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
    fn the_plugins_option_reads_back() {
        for enough in [StopRule::Spans(200), StopRule::Interval { half_ppm: 50_000 }] {
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
        ] {
            assert_eq!(Until::parse(wrong), None, "{wrong}");
        }
    }
}
