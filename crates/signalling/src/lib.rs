//! The costs of learning of events by interrupts, by polling, or by a clock. Closed forms compute them where these
//! forms hold, and an event simulation computes them elsewhere. A fit finds the costs that explain measurements.
//!
//! Pure: no IO, no clock, no globals. `irqlab signal`, the tables of the experiment `signal` (`lab`) and
//! `papers` use it.
//!
//! The model: events arrive in a ring, and one CPU handles them. A [`Scheme`] decides when the CPU looks at
//! the ring; [`Costs`] has the costs of looking and handling. C is the cost of an interrupt or a clock tick,
//! alpha the cost of an event (Smith, Chung and Traw, Interrupts, sections 4 and 5, in `papers/`).

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
mod verdict;

pub use arrivals::{Arrivals, TRACE_MAX, TraceError};
pub use choice::{
    Crossover, Curve, Kept, LOST_RATIO_MAX, Offer, RateRange, Region, Statistic, crossovers,
    curves, curves_at, kept_ranges, regions, regions_at,
};
pub use costs::{COST_MAX_NS, Costs, CostsError, Empirical, Times};
pub use evaluate::{Answer, Decision, IntervalEnds, Method, SimulatedIntervals, evaluate};
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
pub use verdict::{Demand, Verdict, evaluate_for_demand, evaluate_over_costs, judge};
