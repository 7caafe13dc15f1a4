//! Schemes for learning of events, and their text form. The text form is public: users write it on the command line,
//! and tables contain it.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::text::{TimeText, decimal_times, parse_time_ns};

/// Default budget of [`Scheme::Drain`]: NAPI_POLL_WEIGHT of Linux (netdevice.h).
pub const BUDGET_DEFAULT: u32 = 64;
/// Largest number of events that a scheme counts to.
pub const COUNT_MAX: u32 = 1_000_000;
/// Periods and delays that a scheme can have, ns.
pub const PERIOD_NS: RangeInclusive<u64> = 100..=10_000_000_000;

/// How a CPU learns of events. Each variant's comment starts with its text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// `interrupt`: an interrupt for each event.
    Interrupt,
    /// `drain`, `drain:64`: after an interrupt the CPU handles events until the ring is empty (NAPI of
    /// Linux). The interrupt is masked meanwhile.
    Drain {
        /// Events after which the handler is rescheduled, at the cost of an empty poll.
        budget: u32,
    },
    /// `spin`: the CPU looks for events all the time, and does nothing else.
    Spin,
    /// `yield`: the CPU polls like `spin`, but yields after each look that finds nothing.
    SpinYield,
    /// `poll`: the CPU sleeps until a request to a device starts. Then it looks all the time until the request
    /// completes (IORING_SETUP_IOPOLL of Linux). Only a device with requests has this scheme: packets come without one.
    Poll,
    /// `clocked:1ms`, `clocked:1khz`: the device does not interrupt. At each tick of a periodic clock the CPU
    /// handles events until the ring is empty. The ticks keep their period, whatever the handler does
    /// (section 5 of the paper).
    Clocked {
        /// Time from tick to tick, within [`PERIOD_NS`].
        period_ns: u64,
    },
    /// `deferred:50us`: a timer makes the CPU look, and is set again whenever the ring is empty: NAPI of Linux
    /// with `napi_defer_hard_irqs` and `gro_flush_timeout`.
    Deferred {
        /// Time from the end of handling to the next look, within [`PERIOD_NS`].
        delay_ns: u64,
    },
    /// `coalesced:32,50us`: the device interrupts when `count` events wait, or `delay_ns` after the first of
    /// them came. Then the CPU handles events until the ring is empty (`rx-frames`, `rx-usecs` of ethtool).
    Coalesced {
        /// Events that wait, 1 to [`COUNT_MAX`].
        count: u32,
        /// Time since the first event, within [`PERIOD_NS`].
        delay_ns: u64,
    },
    /// `hybrid:8,20us`: after each interrupt the CPU handles events until the ring is empty. If it handled
    /// `threshold` events or more, it then spins. It returns to interrupts after `suspend_ns` without an event
    /// (Mogul and Ramakrishnan 1996; `irq-suspend-timeout` of Linux is close to a threshold of 1).
    Hybrid {
        /// Least number of events per interrupt after which the CPU spins, 1 to [`COUNT_MAX`].
        threshold: u32,
        /// Time without events after which the CPU returns to interrupts, within [`PERIOD_NS`].
        suspend_ns: u64,
    },
}

/// Why the text of a scheme cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read scheme {text:?}: {reason} ({remedy})")]
pub struct SchemeError {
    text: String,
    reason: String,
    remedy: &'static str,
}

const FORMS: &str = "write interrupt, drain, drain:64, spin, yield, poll, clocked:1ms, clocked:1khz, \
    deferred:50us, coalesced:32,50us or hybrid:8,20us";

impl Scheme {
    /// The name without its parameters: `clocked` for `clocked:1ms`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Interrupt => "interrupt",
            Scheme::Drain { .. } => "drain",
            Scheme::Spin => "spin",
            Scheme::SpinYield => "yield",
            Scheme::Poll => "poll",
            Scheme::Clocked { .. } => "clocked",
            Scheme::Deferred { .. } => "deferred",
            Scheme::Coalesced { .. } => "coalesced",
            Scheme::Hybrid { .. } => "hybrid",
        }
    }

    /// Whether the CPU looks for events without a signal from the device or a timer.
    #[must_use]
    pub fn is_by_polling(self) -> bool {
        matches!(self, Scheme::Spin | Scheme::SpinYield | Scheme::Poll)
    }

    /// Whether a timer instead of the device makes the CPU look.
    #[must_use]
    pub fn is_by_clock(self) -> bool {
        matches!(self, Scheme::Clocked { .. } | Scheme::Deferred { .. })
    }

    /// Parses several schemes, separated by blanks or commas: `interrupt,coalesced:32,50us,spin`. A separator
    /// before a digit belongs to the parameters of a scheme.
    ///
    /// The error names the first word that is not a scheme.
    pub fn list(text: &str) -> Result<Vec<Scheme>, SchemeError> {
        let mut parts: Vec<String> = Vec::new();
        for (index, part) in text.split([',', ' ']).enumerate() {
            let is_parameter =
                index > 0 && part.starts_with(|character: char| character.is_ascii_digit());
            match parts.last_mut() {
                Some(word) if is_parameter => *word = format!("{word},{part}"),
                _ => parts.push(part.to_owned()),
            }
        }
        parts.iter().map(|word| word.parse()).collect()
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match *self {
            Scheme::Interrupt | Scheme::Spin | Scheme::SpinYield | Scheme::Poll => {
                f.write_str(name)
            }
            Scheme::Drain { budget: BUDGET_DEFAULT } => f.write_str(name),
            Scheme::Drain { budget } => write!(f, "{name}:{budget}"),
            Scheme::Clocked { period_ns: ns } | Scheme::Deferred { delay_ns: ns } => {
                write!(f, "{name}:{}", TimeText(ns))
            }
            Scheme::Coalesced { count, delay_ns: ns }
            | Scheme::Hybrid { threshold: count, suspend_ns: ns } => {
                write!(f, "{name}:{count},{}", TimeText(ns))
            }
        }
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Scheme, SchemeError> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (text, None),
        };
        let parsed = match (name, parameters) {
            ("interrupt", None) => Ok(Scheme::Interrupt),
            ("drain", None) => Ok(Scheme::Drain { budget: BUDGET_DEFAULT }),
            ("drain", Some(budget)) => parse_count(budget).map(|budget| Scheme::Drain { budget }),
            ("spin", None) => Ok(Scheme::Spin),
            ("yield", None) => Ok(Scheme::SpinYield),
            ("poll", None) => Ok(Scheme::Poll),
            ("clocked", Some(period)) => {
                parse_period_or_rate(period).map(|period_ns| Scheme::Clocked { period_ns })
            }
            ("deferred", Some(delay)) => {
                parse_period_or_rate(delay).map(|delay_ns| Scheme::Deferred { delay_ns })
            }
            ("coalesced", Some(parameters)) => parse_count_and_time(parameters)
                .map(|(count, delay_ns)| Scheme::Coalesced { count, delay_ns }),
            ("hybrid", Some(parameters)) => parse_count_and_time(parameters)
                .map(|(threshold, suspend_ns)| Scheme::Hybrid { threshold, suspend_ns }),
            ("interrupt" | "spin" | "yield" | "poll", Some(_)) => {
                Err("it has no parameters".to_owned())
            }
            ("clocked" | "deferred" | "coalesced" | "hybrid", None) => {
                Err("its parameters are missing".to_owned())
            }
            _ => Err("there is no such scheme".to_owned()),
        };
        parsed.map_err(|reason| SchemeError { text: text.to_owned(), reason, remedy: FORMS })
    }
}

/// A number of events, 1 to [`COUNT_MAX`]. Like the parsers below, it returns the reason as its error.
fn parse_count(text: &str) -> Result<u32, String> {
    let number = text.parse::<u32>().ok().filter(|number| (1..=COUNT_MAX).contains(number));
    number.ok_or_else(|| format!("{text:?} is no number of events from 1 to {COUNT_MAX}"))
}

/// A time within [`PERIOD_NS`], ns.
fn parse_time(text: &str) -> Result<u64, String> {
    let ns = parse_time_ns(text)?;
    if PERIOD_NS.contains(&ns) { Ok(ns) } else { Err(format!("{text} is not within 100ns to 10s")) }
}

/// A period, ns, from a time such as `1ms`, or from a frequency such as `1khz`.
fn parse_period_or_rate(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let Some(number) = lower.strip_suffix("hz") else { return parse_time(text) };
    let (number, factor) = match number.strip_suffix(['k', 'm']) {
        Some(digits) if number.ends_with('k') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000_000_000),
        None => (number, 1_000),
    };
    let not_a_frequency = || format!("{text:?} is no frequency from 0.1hz to 10mhz");
    // In millihertz: whole hertz could not represent 0.5hz.
    let millihertz =
        decimal_times(number, factor).filter(|rate| *rate > 0).ok_or_else(not_a_frequency)?;
    let period_ns = (1e12 / millihertz as f64).round() as u64;
    if PERIOD_NS.contains(&period_ns) { Ok(period_ns) } else { Err(not_a_frequency()) }
}

/// `COUNT,TIME`: a number of events and a time, ns.
fn parse_count_and_time(text: &str) -> Result<(u32, u64), String> {
    let count_and_time = text.split_once(',');
    let (count, time) = count_and_time.ok_or_else(|| format!("{text:?} is not COUNT,TIME"))?;
    Ok((parse_count(count)?, parse_time(time)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn schemes_have_a_text_form() {
        for (text, scheme, written) in [
            ("interrupt", Scheme::Interrupt, "interrupt"),
            ("drain", Scheme::Drain { budget: 64 }, "drain"),
            ("drain:64", Scheme::Drain { budget: 64 }, "drain"),
            ("poll", Scheme::Poll, "poll"),
            ("spin", Scheme::Spin, "spin"),
            ("yield", Scheme::SpinYield, "yield"),
            ("clocked:1000us", Scheme::Clocked { period_ns: 1_000_000 }, "clocked:1ms"),
            ("clocked:1khz", Scheme::Clocked { period_ns: 1_000_000 }, "clocked:1ms"),
            ("clocked:500Hz", Scheme::Clocked { period_ns: 2_000_000 }, "clocked:2ms"),
            ("clocked:0.5hz", Scheme::Clocked { period_ns: 2_000_000_000 }, "clocked:2s"),
            ("clocked:3khz", Scheme::Clocked { period_ns: 333_333 }, "clocked:333333ns"),
            ("deferred:50us", Scheme::Deferred { delay_ns: 50_000 }, "deferred:50us"),
            (
                "coalesced:32,50us",
                Scheme::Coalesced { count: 32, delay_ns: 50_000 },
                "coalesced:32,50us",
            ),
            (
                "hybrid:8,1.5us",
                Scheme::Hybrid { threshold: 8, suspend_ns: 1_500 },
                "hybrid:8,1500ns",
            ),
        ] {
            assert_eq!(text.parse(), Ok(scheme), "{text}");
            assert_eq!(scheme.to_string(), written);
        }
    }

    #[test]
    fn what_is_no_scheme_is_refused_with_what_to_write() {
        for (text, reason) in [
            ("", "no such scheme"),
            ("iopoll", "no such scheme"),
            ("spin:5us", "no parameters"),
            ("poll:5us", "no parameters"),
            ("clocked", "missing"),
            ("clocked:1", "is no time"),
            ("clocked:0hz", "no frequency"),
            ("clocked:50mhz", "no frequency"),
            ("clocked:1ns", "not within"),
            ("coalesced:32", "COUNT,TIME"),
            ("coalesced:0,50us", "number of events"),
            ("hybrid:8,11s", "not within"),
            ("drain:0", "number of events"),
        ] {
            let error = text.parse::<Scheme>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("clocked:1khz"), "{text}: {error}");
        }
    }

    #[test]
    fn a_list_has_commas_inside_of_schemes_too() {
        let list = Scheme::list("interrupt,coalesced:32,50us,hybrid:1,20us,spin").unwrap();
        let text: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["interrupt", "coalesced:32,50us", "hybrid:1,20us", "spin"]);
        assert_eq!(Scheme::list("spin drain").unwrap().len(), 2);
        assert!(Scheme::list("spin,,drain").is_err());
        assert!(Scheme::list("").is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(kind in 0..9, count in 1..=COUNT_MAX, ns in PERIOD_NS) {
            let scheme = match kind {
                0 => Scheme::Interrupt,
                1 => Scheme::Drain { budget: count },
                2 => Scheme::Spin,
                3 => Scheme::SpinYield,
                4 => Scheme::Clocked { period_ns: ns },
                5 => Scheme::Deferred { delay_ns: ns },
                6 => Scheme::Coalesced { count, delay_ns: ns },
                7 => Scheme::Poll,
                _ => Scheme::Hybrid { threshold: count, suspend_ns: ns },
            };
            prop_assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }

        #[test]
        fn no_text_is_a_panic(text in ".{0,40}") {
            let _ = text.parse::<Scheme>();
            let _ = Scheme::list(&text);
        }
    }
}
