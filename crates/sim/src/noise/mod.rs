//! The simulated bench of the experiment `noise`: the irqlab in the guest runs the loops, and the
//! simulator's own stack of contexts has what used the CPU, cycle by cycle.

mod bench;
mod concurrent;
mod early_close;
mod inject;
mod join;
mod names;
mod timeline;

pub use bench::{SimNoise, SimNoiseSettings};
