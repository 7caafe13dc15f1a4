//! The paper `signal-afterburner`: its figures next to measured figures, and its findings.

mod findings;
mod measured;
mod published;
mod tables;

pub use findings::findings;
pub use published::Paper;
pub use tables::{round_trips, throughput};
