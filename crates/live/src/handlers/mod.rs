//! The live bench of the experiment `handlers`: BPF programs at the entry and exit of
//! every interrupt context.

pub mod agreement;
pub mod bench;
mod convert;
pub mod in_guest;
mod known_contexts;
mod open_window;
mod passes;
mod settings;
mod stimuli;
mod window_cpus;

pub use bench::LiveBench;
pub use open_window::OpenWindow;
pub use settings::LiveSettings;
