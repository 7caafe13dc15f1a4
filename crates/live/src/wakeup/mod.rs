//! The live bench of the experiment `wakeup`: a thread on each CPU that sleeps until a time and reads the clock, and the
//! kernel's marks around each wake-up.
//!
//! `bench` is the bench, `thread` the measured thread, `join` joins its records with the marks, and `settings` has the
//! configuration.

mod bench;
mod idle_states;
mod join;
mod settings;
mod thread;

pub use bench::{LiveWakeup, OverThreshold};
pub use settings::{Length, Policy, Wait, WakeupSettings};
