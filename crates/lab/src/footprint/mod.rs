//! `footprint`: what does an interrupt evict from the caches? (paper `footprint-1999`)
//!
//! A loop fills a cache and touches all of its lines repeatedly. An interrupt displaces some lines. The loop's
//! next pass misses them: it takes longer, and a counter counts the misses. A bench measures repetitions with
//! and without the interrupt. This module estimates the number of displaced lines from them, with intervals.

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
