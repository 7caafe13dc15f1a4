//! The experiment `signal`: what it costs to learn of events by interrupts, by polling, or by a clock
//! (Smith, Chung and Traw: Interrupts; `papers/`).

mod bench;
mod experiment;
pub mod paper;
mod sample;
mod tables;

pub use bench::SignalBench;
pub use experiment::{Part, Plan};
pub use sample::{
    Activity, Leftover, Load, RatePoint, RateWindow, Rig, RoundTripPoint, RoundTripWindow, Samples,
    TransferPoint, TransferWindow,
};
pub use tables::{cost_table, region_table};
