//! The statistics of the experiments. Pure: no IO, no clock, no globals.

pub mod distribution;
pub mod histogram;
pub mod interval;

pub use distribution::{Distribution, Peak};
pub use histogram::LogLinear;
pub use interval::{Batch, Batches, Interval, IntervalMethod};
