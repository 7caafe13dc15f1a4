//! The live bench of the experiment `signal`: events from one CPU to another, by several schemes.

mod arrivals;
mod background;
mod bench;
mod counts;
mod events;
mod threads;
mod veth;
mod window;
mod work;

pub use bench::{LiveSignal, SignalSettings};
