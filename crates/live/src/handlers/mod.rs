//! The live bench of the experiment `handlers`: BPF programs at entry and exit of every context.

pub mod agreement;
pub mod bench;
pub mod calibrate;
mod convert;
mod event_costs;
mod faults;
pub(crate) mod gates;
pub mod in_guest;
mod in_place;
mod passes;
pub mod perf;
pub(crate) mod programs;
mod settings;
mod stimuli;
mod stop;
pub mod syscall_loop;
pub(crate) mod tsc;
pub(crate) mod wait;

pub use bench::LiveBench;
pub use settings::{LiveSettings, WindowEdge};
pub use stop::Stop;
pub use wait::Until;
