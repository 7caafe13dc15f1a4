//! The noise experiment on this machine: loops on pinned threads, and the kernel's marks meanwhile.

pub mod bench;
mod beside;
mod body;
pub(crate) mod clock;
mod collect;
pub(crate) mod core_clock;
pub mod in_guest;
mod inject;
mod join;
mod loops;
mod marks;
pub(crate) mod place;
pub(crate) mod probes;
mod ring;
mod seen;
mod settings;
mod way;

pub use bench::LiveNoise;
pub use settings::{Length, NoiseSettings};
