//! Settings of a network interface that determine how it signals: irqlab reads them, changes them
//! with a journal, checks and restores them.
//!
//! [`Interface`] is an interface that was found and identified, and [`Setting`] one of
//! its settings. [`Session`] changes several settings or none. [`scheme`] says which
//! settings make a scheme.

mod identity;
pub mod scheme;
mod session;
mod setting;

pub use identity::{Identity, Interface, NotFound};
pub use session::{InForce, Refusal, Session};
pub use setting::Setting;

pub(crate) use identity::is_elsewhere;
