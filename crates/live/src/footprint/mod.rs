//! The live bench of the experiment `footprint`: loops that fill a cache, interrupted by
//! one interrupt at a time.

pub mod bench;
mod counters;
pub mod geometry;
pub mod in_guest;
mod interrupt_line;
mod kernel_counts;
mod route;
mod stimulus;
mod tick;
mod trace;
mod watcher;

pub use bench::{FootprintSettings, LiveFootprint};
pub use stimulus::FarEnd;
pub use watcher::Watcher;
