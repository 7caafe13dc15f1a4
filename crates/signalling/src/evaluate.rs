//! The entry point for predictions: a closed form where one holds, else the event simulation. The models in
//! `lab::signal` call [`evaluate`] for each scheme and rate.

use crate::arrivals::Arrivals;
use crate::predict::{NoPrediction, Prediction, Workload, predict};
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

/// A prediction and how it was computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The figures of the scheme.
    pub prediction: Prediction,
    pub method: Method,
    /// Half the width of the 95 % interval of the simulated mean latency, ns. `None` for a closed form, and
    /// where the simulation has no interval.
    pub latency_half_width_ns: Option<f64>,
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
    let is_over_capacity = matches!(form, Err(NoPrediction::CapacityExceeded { .. }));
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
        let method = Method::ClosedForm;
        let latency_half_width_ns = None;
        return Ok(Answer { prediction, method, latency_half_width_ns, reason, is_over_capacity });
    }
    let simulated = simulate(simulation)?;
    Ok(Answer {
        prediction: simulated.prediction(),
        method: Method::Simulation,
        latency_half_width_ns: simulated.latency.interval().map(|interval| interval.half_width),
        reason,
        is_over_capacity: is_over_capacity || simulated.fell_behind(),
    })
}
