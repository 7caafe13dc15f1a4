//! The experiment `signal`: what it costs to learn of events by interrupts, by polling, or by a clock (Smith, Chung and
//! Traw: Interrupts; `papers/`).
//!
//! [`Plan`] is the experiment of `signal run`: `bench` has the trait of the benches, `sample` the measured windows,
//! `tables` the tables. The other verbs of `signal` compute without a measurement: `model`, `advice` and `fitting` have
//! their results.

mod advice;
mod bench;
mod card_settings;
mod computed;
mod costs;
mod experiment;
mod fitting;
pub mod in_guest;
mod model;
pub mod observations;
mod plan;
mod rig;
mod sample;
mod tables;
mod text;

pub use advice::{Advice, AdvicePlan, candidates, undecided_remedy};
pub use bench::SignalBench;
pub use card_settings::{ChangedSetting, SettingLine, changed_setting_table, setting_line_table};
pub use computed::Computed;
pub use costs::{FittedCosts, cost_settings, costs_of_run, self_times};
pub use fitting::{FitPlan, FittedRows};
pub use model::ModelPlan;
pub use plan::{Part, Plan, Window};
pub use rig::Rig;
pub use sample::{
    Activity, CountedUse, Leftover, Load, RatePoint, RateWindow, RoundTripPoint, RoundTripWindow,
    Samples, TransferPoint, TransferWindow, is_mostly_overloaded,
};
