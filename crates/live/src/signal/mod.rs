//! The live bench of the experiment `signal`: events from one CPU to another, by several schemes.

mod arrivals;
mod background;
mod bench;
mod counts;
mod events;
pub mod in_guest;
mod packets;
mod threads;
mod window;
mod work;

pub use bench::{LiveSignal, SignalSettings};
pub use window::Observer;
