//! The live bench of the experiment `footprint`: how many cache lines an interrupt displaces. A loop fills a cache
//! level, one interrupt comes, and the next pass of the loop shows the displaced lines by time or by counted misses.
//!
//! [`LiveFootprint`] is the bench, on this machine and (by [`in_guest`]) in a simulated one. The crate `touch_loop`
//! has the measured loops. `stimulus` raises the interrupts, `route` brings them to the loop's CPU,
//! `raised_lines` finds the lines of /proc/interrupts that count them, and `kernel_counts` judges whether a repetition was undisturbed.

pub mod bench;
mod counters;
pub mod geometry;
pub mod in_guest;
mod interrupt_line;
mod kernel_counts;
mod raised_lines;
mod route;
mod stimulus;
pub(crate) mod tick;
mod trace;
mod watcher;

pub use bench::{FootprintSettings, LiveFootprint};
pub use stimulus::FarEnd;
pub use watcher::Watcher;
