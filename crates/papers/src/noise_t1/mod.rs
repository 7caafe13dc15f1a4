//! The paper `noise-t1`: its published figures compared with simulated figures, and its findings judged on both.

mod findings;
mod peaks;
mod published;
mod tables;

pub use findings::{MODEL, findings};
pub use peaks::PlacedRun;
pub use published::{Paper, Tick};
pub use tables::paper;
