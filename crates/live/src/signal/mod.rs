//! The live bench of the experiment `signal`: events from one CPU to another, by several schemes.

mod arrivals;
mod background;
mod bench;
mod card;
mod counts;
mod events;
mod socket;
mod threads;
mod veth;
mod window;
mod work;

pub use bench::{LiveSignal, SignalSettings};
pub use card::{CardSettings, WINDOW_MAX as CARD_WINDOW_MAX};
pub use veth::How as VethPolling;
