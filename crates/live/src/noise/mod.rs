//! The live bench of the experiment `noise`: which interruptions (*detours*) a CPU-bound loop sees, and which kernel
//! activity causes them.
//!
//! `loops` are the measured loops, one pinned thread per CPU (`runner`). Each writes records into a `ring`; irqlab's
//! own thread, the *observer*, reads the rings and the kernel's marks, and `join` attributes gaps to contexts while
//! both arrive. [`LiveNoise`] is the bench on this machine; [`in_guest`] runs the loops in a simulated machine, where
//! the simulator sees the causes.

pub mod bench;
mod body;
pub mod collective;
mod concurrent;
mod entry_latency;
mod external_counts;
pub mod in_guest;
mod inject;
mod join;
mod loops;
mod runner;
mod settings;

pub use bench::LiveNoise;
pub use settings::{Length, NoiseSettings};
