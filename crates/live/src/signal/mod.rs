//! The live bench of the experiment `signal`: signals events from one CPU to
//! another, by several schemes.

mod arrivals;
mod background;
mod bench;
mod card;
mod counts;
mod events;
pub mod in_guest;
mod packets;
mod socket;
mod threads;
mod window;
mod work;

pub use bench::{LiveSignal, SignalSettings};
pub use card::{CardSettings, WINDOW_MAX as CARD_WINDOW_MAX};
pub use packets::VethPolling;
pub use window::Observer;
