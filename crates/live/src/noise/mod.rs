//! The live bench of the experiment `noise`: loops on pinned threads, joined with the kernel's events.

pub mod bench;
mod beside;
mod body;
mod collect;
pub mod in_guest;
mod inject;
mod join;
mod loops;
mod ring;
mod seen;
mod settings;
mod way;

pub use bench::LiveNoise;
pub use settings::{Length, NoiseSettings};
