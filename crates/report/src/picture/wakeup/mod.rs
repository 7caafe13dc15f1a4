//! Pictures of `wakeup`: how late threads woke up, and what delayed the latest wake-ups.

mod lateness;
mod latest;

pub use lateness::lateness;
pub use latest::latest;
