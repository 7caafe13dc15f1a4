//! The statistics of the experiments: histograms, intervals of means and quantiles, periods, samples of streams.
//!
//! The benches (`live`, `sim`) fill these types, and `lab`, `signalling` and `papers` compute tables and findings from
//! them. An invariant of the workspace: this crate uses no other crate of irqlab. Its functions are pure: no IO, no
//! clock, no globals. Random numbers come from a seed.

#![forbid(unsafe_code)]

pub mod barrier;
#[cfg(test)]
mod coverage;
pub mod distribution;
mod fourier;
pub mod histogram;
pub mod interval;
pub mod largest;
pub mod median;
pub mod periodicity;
pub mod random;
pub mod rank;
pub mod regression;
pub mod reservoir;
pub mod sections;
pub mod spectrum;

pub use distribution::{Distribution, Peak, QuantileMethod};
pub use histogram::LogLinear;
pub use interval::{Batch, Batches, Interval, IntervalMethod, JointBatch, Term};
pub use largest::Largest;
pub use median::{median, median_error};
pub use random::Random;
pub use rank::{quantile_rank, sorted_quantile};
pub use reservoir::Reservoir;
pub use sections::{Inflation, SectionCounts, Sections};
