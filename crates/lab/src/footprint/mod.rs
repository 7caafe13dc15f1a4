//! `footprint`: what does an interrupt evict from the caches? (paper `footprint-1999`)
//!
//! A loop fills a cache and touches all lines of the cache repeatedly. An interrupt displaces some lines. The loop's
//! next pass misses these lines: the pass takes longer, and a counter counts the misses. A bench measures repetitions
//! with the interrupt (treatment) and without it (control). This module estimates the number of displaced lines from
//! the repetitions, with intervals.
//!
//! [`Plan`] is the experiment. `bench` has the traits of the benches, `sample` and `series` the measurements, `curve`,
//! `estimate` and `rounds` the estimates, and the other private modules the tables.

pub mod bench;
mod columns;
pub mod contexts;
#[cfg(test)]
mod coverage;
pub mod curve;
pub mod estimate;
pub mod experiment;
pub mod in_guest;
pub mod order;
mod plan;
mod reasons;
pub mod rounds;
pub mod sample;
mod samples;
mod series;
mod sums;
mod tables;
#[cfg(test)]
pub(crate) mod tests;
pub mod trace;
pub mod what;

pub use bench::{FootprintBench, SeriesBench};
pub use curve::Curve;
pub use experiment::measure_series;
pub use plan::Plan;
pub use sample::{Repetition, Verdict};
pub use samples::Samples;
pub use series::{Ready, Round, Series};
pub use what::{Geometry, Level, Method, Stimulus};
