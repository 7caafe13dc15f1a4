//! The simulated bench of the experiment `noise`. The irqlab in the guest runs the loops, and the simulator's stack of
//! contexts shows what used the CPU in each cycle.

mod bench;
mod concurrent;
mod early_close;
mod inject;
mod join;
mod names;
mod timeline;

pub use bench::{SimNoise, SimNoiseSettings};
