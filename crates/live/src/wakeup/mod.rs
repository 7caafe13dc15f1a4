//! The live bench of the experiment `wakeup`: a thread on each CPU that sleeps until a time and reads the clock, and the
//! kernel's marks around each wake-up.
//!
//! `bench` is the bench, `thread` the measured thread, `schedule` its times, `join` joins its records with the marks, and
//! `settings` has the configuration. `waker` is the thread that wakes a measured thread through a `channel`; without it, a
//! timer does, or the `disk` that the thread reads. `sleeper` waits for due times, and `thread_class` sets the scheduling class. `in_guest` runs the same
//! threads in a simulated machine, and `hog` delays them there.

mod bench;
mod channel;
mod disk;
mod hog;
mod idle_states;
pub mod in_guest;
mod join;
mod schedule;
mod settings;
mod sleeper;
mod thread;
mod thread_class;
mod waker;

pub use bench::LiveWakeup;
pub use disk::DiskFile;
pub use settings::{Length, Policy, Wait, WakerPlace, WakeupSettings};
