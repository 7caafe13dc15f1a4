//! The experiment `signal`: what it costs to learn of events by interrupts, by polling, or by a clock
//! (Smith, Chung and Traw: Interrupts; `papers/`).

mod bench;
mod experiment;
pub mod in_guest;
pub mod observations;
pub mod paper;
mod rig;
mod sample;
mod tables;

pub use bench::SignalBench;
pub use experiment::{Part, Plan, Window};
pub use rig::Rig;
pub use sample::{
    Activity, CountedUse, Leftover, Load, RatePoint, RateWindow, RoundTripPoint, RoundTripWindow,
    Samples, TransferPoint, TransferWindow,
};
pub use tables::{cost_table, region_table};
