//! The live bench of the experiment `signal`: one CPU sends events, another CPU learns of them by interrupts,
//! polling or a clock, and handles them.
//!
//! `irqlab signal run` uses [`LiveSignal`] on this machine; [`in_guest`] runs it in a simulated machine. A
//! *rig* carries the events: a ring between threads (`threads`), network namespaces (`packets`), a network
//! card with an echo on another machine (`card`), or an NVMe disk (`disk`, `disk_reads`). `events` sends at a rate on any rig; `window` runs the
//! threads of one measured window.

mod arrivals;
mod background;
mod bench;
mod card;
mod counts;
mod disk;
mod disk_reads;
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
