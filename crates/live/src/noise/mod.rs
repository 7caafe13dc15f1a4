//! The live bench of the experiment `noise`: loops on pinned threads, joined with the kernel's
//! events.

pub mod bench;
mod body;
mod companion;
mod concurrent;
mod entry_latency;
mod external_counts;
pub mod in_guest;
mod inject;
mod join;
mod loops;
mod ring;
mod runner;
mod settings;

pub use bench::LiveNoise;
pub use settings::{Length, NoiseSettings};
