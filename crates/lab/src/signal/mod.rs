//! The experiment `signal`: what it costs to learn of events by interrupts, by polling, or by a clock
//! (Smith, Chung and Traw: Interrupts; `papers/`).

mod bench;
mod experiment;
pub mod in_guest;
pub mod observations;
mod plan;
mod rig;
mod sample;
mod tables;
mod text;

pub use bench::SignalBench;
pub use plan::{Part, Plan, Window};
pub use rig::Rig;
pub use sample::{
    Activity, CountedUse, Leftover, Load, RatePoint, RateWindow, RoundTripPoint, RoundTripWindow,
    Samples, TransferPoint, TransferWindow,
};
pub use tables::{cost_table, region_table};
