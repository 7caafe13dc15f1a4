//! Settings of a network interface that decide how it signals: read, changed with a journal, checked,
//! restored.
//!
//! [`Interface`] is one that was found and identified, [`Setting`] one of its settings,
//! [`Session`] changes several of them or none, and [`scheme`] says which ones make a scheme.

mod identity;
pub mod scheme;
mod session;
mod setting;

pub use identity::{Identity, Interface, NotFound};
pub use session::{InForce, Refusal, Session};
pub use setting::Setting;

pub(crate) use identity::is_elsewhere;
