//! The cost of learning of events by interrupts, by polling, or by a clock: closed forms, an event simulation
//! where no form holds, and a fit of the costs to measurements. Pure: no IO, no clock, no globals.
//!
//! One CPU learns of events that arrive in a ring, and handles them. A [`Scheme`] decides when it looks;
//! [`Costs`] has the cost of looking and handling. The model comes from Smith, Chung and Traw (Interrupts,
//! sections 4 and 5, in `papers/`): C for each interrupt or clock tick, alpha for each event.

#![forbid(unsafe_code)]

mod arrivals;
mod choice;
mod costs;
mod evaluate;
mod fit;
mod predict;
mod scheme;
mod simulate;
mod text;

pub use arrivals::{Arrivals, TRACE_MAX, TraceError};
pub use choice::{
    Crossover, Curve, Demand, Kept, Offer, RateRange, Region, Statistic, Verdict, crossovers,
    curves, curves_at, judge, kept, regions, regions_at,
};
pub use costs::{COST_MAX_NS, Costs, CostsError, Empirical, Times};
pub use evaluate::{Answer, Method, evaluate};
pub use fit::{
    Estimate, Fit, FitError, KEEPS_UP_RATIO, OBSERVATIONS_MAX, Observation, Residual, Start, fit,
    hold_out,
};
pub use predict::{NoPrediction, Prediction, Quantiles, Workload, capacity_hz, predict};
pub use scheme::{BUDGET_DEFAULT, COUNT_MAX, PERIOD_NS, Scheme, SchemeError};
pub use simulate::{
    APPLICATION_SLICE_NS, Application, EVENTS_MAX, Simulated, Simulation, SimulationError, simulate,
};
pub use text::{TimeText, parse_time_ns};
