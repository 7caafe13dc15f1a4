//! `services`: where does kernel time go, service by service? (paper `simos-1995`)
//!
//! A plan is a command; a bench measures what each service of the kernel took while it ran; the tables are
//! made here.

pub mod bench;
mod class;
mod counters;
pub mod experiment;
pub mod in_guest;
pub mod misses;
pub mod paper;
pub mod sample;
mod tables;

use record::Table;

pub use bench::ServicesBench;
pub use class::Class;
pub use experiment::{Plan, Samples};
pub use sample::{
    Agreement, CpuTimes, LockStats, ProfileMode, ProfileSlot, ServiceStats, ServicesSample,
    TimePart, Times, WaitStats,
};

/// The tables of misses of a window, for experiments that measure services, too; none if they were not measured.
pub(crate) fn miss_tables(window: &ServicesSample) -> Vec<Table> {
    window.misses.iter().flat_map(|misses| tables::misses(window, misses)).collect()
}
