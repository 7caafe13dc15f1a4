//! The footprint experiment on this machine: loops that fill a cache, and interrupts between.

pub mod bench;
mod counters;
pub mod geometry;
pub mod in_guest;
mod loops;
mod route;
mod seen;
mod sources;
mod tick;
mod touch;
mod trace;
mod window;

pub use bench::{FootprintSettings, LiveFootprint};
pub use sources::{FarEnd, echo};
pub use trace::Watcher;
