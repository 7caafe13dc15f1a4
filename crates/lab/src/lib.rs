//! The experiments: plan, bench trait, samples, tables. This crate knows neither Linux nor QEMU: the crates
//! `live` and `sim` implement the bench traits. Both benches report samples of the same types, so an
//! experiment's tables do not depend on the bench.

#![forbid(unsafe_code)]

mod added_cost;
pub mod affinity;
mod amounts;
pub mod compare;
mod container;
pub mod cpu_warnings;
pub mod cpus;
pub mod exceedances;
mod expected_time;
pub mod experiment;
pub mod flight_recorder;
pub mod flight_table;
pub mod footprint;
pub mod guest_protocol;
pub mod handlers;
pub mod kernel_costs;
pub mod kernel_options;
pub mod kernels;
pub mod noise;
mod quantiles;
pub mod services;
pub mod signal;
pub mod targets;
pub mod timeline;
pub mod wakeup;
pub mod wall_clock;
pub mod words;

pub use expected_time::ExpectedTime;
pub use record::keys;
