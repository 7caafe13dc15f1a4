//! The live bench of the experiment `handlers`: BPF programs at the entry and exit of every interrupt context count
//! and time its spans, in maps of each CPU.
//!
//! [`LiveBench`] is the bench on this machine. [`in_guest`] creates the same conditions in a simulated machine, where
//! the simulator measures. [`OpenWindow`] is for `irqlab watch`.
//!
//! Invariant: while a window is open, irqlab sleeps, and reads no map (but for `OpenWindow`).

pub mod agreement;
pub mod bench;
mod convert;
mod delays;
mod function_names;
pub mod in_guest;
mod known_contexts;
mod open_window;
mod passes;
mod senders;
pub(crate) mod settings;
pub(crate) mod stimuli;
mod trace;
mod victims;
mod window_cpus;

pub use bench::LiveBench;
pub use open_window::OpenWindow;
pub use settings::LiveSettings;
pub(crate) use victims::position_of_subsystem;
