//! `services`: where does kernel time go, service by service? (paper `simos-1995`)
//!
//! A plan is a command; a bench measures what each service of the kernel took while it ran; the tables are
//! made here.

pub mod bench;
pub mod experiment;
pub mod in_guest;
pub mod misses;
pub mod paper;
pub mod sample;
mod tables;

pub use bench::ServicesBench;
pub use experiment::{Plan, Samples};
pub use sample::{
    Agreement, Class, LockStats, ProfileMode, ProfileSlot, ServiceStats, ServicesSample, Times,
    WaitStats,
};
