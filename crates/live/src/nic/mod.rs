//! Settings that determine how one of the machine's network interfaces signals: by interrupts, delayed interrupts, or
//! polling. irqlab reads the settings, changes them with a journal, reads them back, and restores them.
//!
//! [`Interface`] is an interface that was found and identified, and [`Setting`] one of its settings. A
//! [`Session`] changes several settings, or none if one of them fails. [`scheme`] says which settings make a
//! signalling scheme. Users: `irqlab signal advise` and `undo`, the rig `signal::card`, and the journal,
//! which restores settings after a kill.

mod identity;
pub mod scheme;
mod session;
mod setting;

pub use identity::{Identity, Interface, NotFound};
pub use session::{InForce, Refusal, Session};
pub use setting::Setting;

pub(crate) use identity::may_still_exist;
