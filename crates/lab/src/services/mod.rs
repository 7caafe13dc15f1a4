//! The experiment `services`: where does kernel time go, service by service? (paper `simos-1995`)
//!
//! A plan is one command. A bench runs the command and measures the time of each kernel service in the meantime.
//! `tables` makes the tables from this sample.

pub mod bench;
mod class;
pub mod counters;
pub mod experiment;
pub mod in_guest;
pub mod misses;
pub mod sample;
mod syscall_name;
mod tables;

use record::Table;

pub use bench::ServicesBench;
pub use class::{Class, PAGE_WALKS};
pub use experiment::{Plan, Samples};
pub use sample::{
    Agreement, CpuTimes, LockMethod, LockStats, LockWaiter, ProfileMode, ProfileSlot, ServiceStats,
    ServicesSample, TimePart, Times, Undelivered, WaitStats,
};
pub use syscall_name::syscall_name;

/// The tables of cache misses of a window. Empty if the bench did not measure misses. Other experiments that
/// measure services use this function, too.
pub(crate) fn miss_tables(window: &ServicesSample) -> Vec<Table> {
    window.misses.iter().flat_map(|misses| tables::misses(window, misses)).collect()
}
