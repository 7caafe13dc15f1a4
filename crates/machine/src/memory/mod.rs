//! The memory side of any machine that a model describes: caches, TLBs, coherence, the way to memory.
//!
//! [`System`] is of all processors of a machine. It says when an access is ready; whether a processor
//! waits for it is that processor's affair. Caches hold line numbers, not data.

mod bring;
mod classes;
mod coherence;
mod counts;
mod data;
mod devices;
mod fetch;
mod flight;
mod leave;
mod miss;
mod port;
mod prefetch;
mod sharing;
mod stack;
mod store;
mod system;
mod translate;
mod twin;

pub use classes::{ClassCounts, Context, MissClass, Mode};
pub use counts::CpuCounts;
pub use devices::DeviceCounts;
pub use miss::{CacheName, Miss, Places, Watch};
pub use port::{Port, without_miss_limit};
pub use stack::{SetDepths, StackDistances};
pub use system::{Access, Answer, PageSize, Served, System};
