//! Pictures of `wakeup`: how late threads woke up, and what delayed the worst wake-ups.

mod lateness;
mod worst;

pub use lateness::lateness;
pub use worst::worst;
