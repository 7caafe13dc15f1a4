//! `footprint`: what does an interrupt evict from the caches? (paper `footprint-1999`)
//!
//! A loop fills a cache and touches all of its lines repeatedly. What an interrupt displaces is
//! missing after it, and touching it takes longer, or is counted as a miss. A bench hands in
//! repetitions with and without the interrupt; here they become lines with intervals.

pub mod bench;
pub mod contexts;
#[cfg(test)]
mod coverage;
pub mod curve;
pub mod estimate;
pub mod experiment;
pub mod in_guest;
pub mod order;
pub mod paper;
pub mod rounds;
pub mod sample;
mod sums;
mod tables;
#[cfg(test)]
pub(crate) mod tests;
pub mod trace;
pub mod what;

pub use bench::{FootprintBench, Ready, SeriesBench};
pub use curve::Curve;
pub use experiment::{Plan, Round, Samples, Series, measure_series};
pub use sample::{Repetition, Verdict};
pub use what::{Geometry, Level, Method, Stimulus};
