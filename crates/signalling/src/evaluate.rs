//! The entry point for predictions: a closed form where one holds, else the event simulation. The models in
//! `lab::signal` call [`evaluate`] for each scheme and rate.

use crate::arrivals::Arrivals;
use crate::predict::{NoPrediction, Prediction, Workload, capacity_hz, predict};
use crate::simulate::{Simulation, SimulationError, simulate};

/// How a [`Prediction`] was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    ClosedForm,
    /// The event simulation.
    Simulation,
}

impl Method {
    /// The name used in tables: `closed-form` or `simulation`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Method::ClosedForm => "closed-form",
            Method::Simulation => "simulation",
        }
    }
}

/// Whether a figure is within its limit, judged by the error of the simulation and the intervals of the costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// The whole 95 % interval is within the limit.
    Yes,
    /// The limit lies in the interval: more events, more precise costs, or another limit would decide.
    Undecided,
    /// The whole 95 % interval is beyond the limit.
    No,
}

/// The ends of a 95 % interval, in the unit of the figure. `None`: the figure has no bound at this end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IntervalEnds {
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl IntervalEnds {
    /// The interval of a figure without an error, such as one of a closed form.
    #[must_use]
    pub fn exact(value: f64) -> IntervalEnds {
        IntervalEnds { low: Some(value), high: Some(value) }
    }

    /// The smallest interval that contains both. An end that either lacks is `None`.
    #[must_use]
    pub fn hull(self, other: IntervalEnds) -> IntervalEnds {
        let both = |first: Option<f64>, second: Option<f64>, choose: fn(f64, f64) -> f64| {
            first.zip(second).map(|(first, second)| choose(first, second))
        };
        IntervalEnds {
            low: both(self.low, other.low, f64::min),
            high: both(self.high, other.high, f64::max),
        }
    }

    /// Whether the figure is at most `limit`.
    #[must_use]
    pub fn is_at_most(self, limit: f64) -> Decision {
        if self.high.is_some_and(|high| high <= limit) {
            Decision::Yes
        } else if self.low.is_some_and(|low| low > limit) {
            Decision::No
        } else {
            Decision::Undecided
        }
    }
}

/// The 95 % intervals of simulated figures. They account for the correlation of successive events (batch means).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedIntervals {
    /// Median latency, ns. The interval of a quantile includes the error of the histogram, up to 1/16 of the latency.
    pub p50_ns: IntervalEnds,
    /// 99th percentile of the latency, ns.
    pub p99_ns: IntervalEnds,
    /// 99.9th percentile of the latency, ns.
    pub p999_ns: IntervalEnds,
    /// Half the width of the interval of the CPU use. `None` with too few events.
    pub cpu_half_width_ratio: Option<f64>,
    /// Part of the events that is lost.
    pub lost_ratio: IntervalEnds,
}

impl Answer {
    /// The interval of a figure over the costs' intervals: the hull of `interval` for this answer and for
    /// [`Answer::at_cost_ends`].
    #[must_use]
    pub fn over_costs(&self, interval: impl Fn(&Answer) -> IntervalEnds) -> IntervalEnds {
        self.at_cost_ends.iter().map(&interval).fold(interval(self), IntervalEnds::hull)
    }
}

/// A prediction and how it was computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The figures of the scheme.
    pub prediction: Prediction,
    pub method: Method,
    /// Half the width of the 95 % interval of the simulated mean latency, ns. `None` for a closed form, and
    /// where the simulation has no interval.
    pub latency_half_width_ns: Option<f64>,
    /// The intervals of the other simulated figures. `None` for a closed form.
    pub intervals: Option<SimulatedIntervals>,
    /// The answers with all costs at the lower ends of their intervals, and with all at the upper ends. Empty if the costs
    /// are exact. [`evaluate`] leaves it empty.
    pub at_cost_ends: Vec<Answer>,
    /// Why the simulation answered. `None`: the closed form answered.
    pub reason: Option<String>,
    /// Whether more events arrive than the scheme can handle, by its capacity or in the simulation. The latency then
    /// includes only events that found a place in the ring, and grows with the ring and with the number of events.
    pub is_over_capacity: bool,
}

/// Predicts what a scheme does: by the closed form, or by the simulation where no form holds or
/// `always_simulate` is set.
///
/// Fails when a value of the simulation is out of its range.
pub fn evaluate(simulation: &Simulation, always_simulate: bool) -> Result<Answer, SimulationError> {
    simulation.check()?;
    let rate_hz = simulation.arrivals.trace_rate_hz()?.unwrap_or(simulation.rate_hz);
    let Simulation { scheme, ref costs, ring, user_slice_ns, .. } = *simulation;
    let form = predict(scheme, costs, &Workload { rate_hz, ring, user_slice_ns });
    let is_over_capacity = match simulation.arrivals.exact_trace_rate_hz()? {
        Some(rate_hz) => rate_hz >= capacity_hz(scheme, costs, user_slice_ns),
        None => matches!(form, Err(NoPrediction::CapacityExceeded { .. })),
    };
    let reason = if simulation.arrivals != Arrivals::Poisson {
        Some("arrivals are not at random times, independent of one another".to_owned())
    } else if simulation.application.is_some() || simulation.quota.is_some() {
        Some("an application or a quota shares the CPU".to_owned())
    } else {
        match &form {
            Ok(_) if always_simulate => Some("simulation requested".to_owned()),
            Ok(_) => None,
            Err(NoPrediction::CapacityExceeded { .. }) => Some("over capacity".to_owned()),
            Err(NoPrediction::NoClosedForm { reason }) => Some((*reason).to_owned()),
        }
    };
    if let (Ok(prediction), None) = (form, &reason) {
        return Ok(Answer {
            prediction,
            method: Method::ClosedForm,
            latency_half_width_ns: None,
            intervals: None,
            at_cost_ends: Vec::new(),
            reason,
            is_over_capacity,
        });
    }
    let simulated = simulate(simulation)?;
    Ok(Answer {
        prediction: simulated.prediction(),
        method: Method::Simulation,
        latency_half_width_ns: simulated.latency_half_width_ns(),
        intervals: Some(simulated.intervals()),
        at_cost_ends: Vec::new(),
        reason,
        is_over_capacity: is_over_capacity || simulated.fell_behind(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::{Costs, Times};
    use crate::scheme::Scheme;
    use crate::simulate::Application;

    fn simulation(scheme: Scheme, rate_hz: u64) -> Simulation<'static> {
        Simulation {
            scheme,
            costs: Costs::constant(4_000, 1_000),
            arrivals: Arrivals::Poisson,
            rate_hz,
            ring: 65_536,
            user_slice_ns: None,
            application: None,
            quota: None,
            events: 20_000,
            warm_up: 1_000,
            seed: 1,
        }
    }

    /// An event every 10 s: the span from the first to the last event has one event less than the trace.
    #[test]
    fn a_slow_trace_has_its_own_rate() {
        let trace: Vec<u64> = (0..10).map(|number| number * 10_000_000_000).collect();
        let arrivals = Arrivals::Trace(&trace);
        let slow = Simulation {
            arrivals,
            events: 10,
            warm_up: 0,
            ..simulation(Scheme::Drain { budget: 64 }, 1)
        };
        let prediction = evaluate(&slow, false).unwrap().prediction;
        assert!((prediction.throughput_hz - 0.1).abs() < 1e-6, "{prediction:?}");
        assert!((prediction.interrupts_hz - 0.1).abs() < 1e-6, "{prediction:?}");
        assert_eq!(prediction.events_per_interrupt, Some(1.0));
    }

    fn falls_behind(simulation: &Simulation) -> (bool, Option<f64>) {
        let answer = evaluate(simulation, true).unwrap();
        assert!(answer.prediction.drops_ratio < Some(1e-4), "{answer:?}");
        (answer.is_over_capacity, answer.prediction.capacity_hz)
    }

    /// 8 events a millisecond are 8,000 a second.
    #[test]
    fn a_quota_below_the_rate_makes_a_clock_fall_behind() {
        let clocked = Scheme::Clocked { period_ns: 1_000_000 };
        let with_quota =
            |rate_hz| falls_behind(&Simulation { quota: Some(8), ..simulation(clocked, rate_hz) });
        assert_eq!(with_quota(20_000), (true, None));
        assert_eq!(with_quota(4_000), (false, None));
        assert!(falls_behind(&simulation(clocked, 20_000)).1.is_some());
    }

    /// An application that takes 20 us an event keeps up with 50,000 a second, less the handler's share.
    #[test]
    fn events_that_wait_for_the_application_count() {
        let application = Application { event: Times::Constant(20_000), queue: 10_000_000 };
        let with_application = |rate_hz| {
            let simulation = simulation(Scheme::Interrupt, rate_hz);
            falls_behind(&Simulation { application: Some(application.clone()), ..simulation }).0
        };
        assert!(with_application(100_000));
        assert!(!with_application(10_000));
    }

    /// The last tick handles the events that came since the tick before: 70 of 2,000.
    #[test]
    fn a_long_period_in_a_short_simulation_does_not_fall_behind() {
        for period_ns in [300_000, 700_000, 1_500_000] {
            let clocked = Scheme::Clocked { period_ns };
            let short = Simulation { events: 2_000, warm_up: 0, ..simulation(clocked, 100_000) };
            assert!(!falls_behind(&short).0, "{period_ns}");
        }
    }
}
