//! The figures that a rule of `irqlab watch --alert` can be about, and their values in an interval.

use lab::handlers::ContextRates;
use report::human;

use crate::options::{any_duration, ns, percent};
use crate::verbs::signal::rates::rate;

/// A figure of a context in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Spans per second.
    Rate,
    /// Self time over CPU time.
    CpuShare,
    /// Mean self time, ns.
    Mean,
    /// 99th percentile of the self time, ns.
    P99,
    /// Longest self time in the interval, ns.
    Max,
}

impl Figure {
    pub const ALL: [(&str, Figure); 5] = [
        ("rate", Figure::Rate),
        ("cpu", Figure::CpuShare),
        ("mean", Figure::Mean),
        ("p99", Figure::P99),
        ("max", Figure::Max),
    ];

    /// The figure of a context. `None` if it was not measured, or if no span ended. Also `None` below the detection limit if
    /// there is no upper bound above 0.
    pub fn measured(self, rates: &ContextRates) -> Option<Measured> {
        let times = rates.times;
        let bounded = |value: Option<f64>, bound: Option<f64>| match bound {
            Some(bound) => (bound > 0.0).then_some(Measured { value: bound, is_upper_bound: true }),
            None => value.map(Measured::exact),
        };
        match self {
            Figure::Rate => Some(Measured::exact(rates.rate_hz)),
            Figure::CpuShare => bounded(Some(times?.cpu_ratio), times?.cpu_bound_ratio()),
            Figure::Mean => bounded(times?.mean_ns, times?.mean_bound_ns()),
            Figure::P99 => times?.p99_ns.map(|p99| Measured::exact(p99 as f64)),
            Figure::Max => times?.max_ns.map(|max| Measured::exact(max as f64)),
        }
    }

    /// Parses a limit: `50k` (per second), `20%` (of CPU time), or a time.
    pub fn limit(self, text: &str) -> Result<f64, String> {
        match self {
            Figure::Rate => rate(text).map(|rate_hz| rate_hz as f64),
            Figure::CpuShare => {
                percent(text).map_err(|_| format!("{text:?} is no share, as in 20%"))
            }
            Figure::Mean | Figure::P99 | Figure::Max => {
                any_duration(text).map(|time| ns(time) as f64)
            }
        }
    }

    /// A figure in words, with its unit. An upper bound follows `<`.
    pub fn text(self, Measured { value, is_upper_bound }: Measured) -> String {
        let sign = if is_upper_bound { "<" } else { "" };
        match self {
            Figure::Rate => human::rate(value),
            Figure::CpuShare => format!("{sign}{} of CPU time", human::percent(value)),
            Figure::Mean => format!("{sign}{} in the mean", human::ns(value)),
            Figure::P99 => format!("p99 {}", human::ns(value)),
            Figure::Max => format!("longest {}", human::ns(value)),
        }
    }
}

/// The value of a figure in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub value: f64,
    /// Whether the figure is below the detection limit, and `value` is its upper bound.
    pub is_upper_bound: bool,
}

impl Measured {
    fn exact(value: f64) -> Measured {
        Measured { value, is_upper_bound: false }
    }
}
