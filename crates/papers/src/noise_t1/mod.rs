//! The figures of the paper `noise-t1` compared with simulated ones, and its findings as statements.

mod findings;
mod peaks;
mod published;
mod tables;

pub use findings::findings;
pub use peaks::PlacedRun;
pub use published::{Paper, Tick};
pub use tables::paper;
