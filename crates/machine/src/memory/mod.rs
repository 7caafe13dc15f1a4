//! The memory side of any machine that a model describes: caches, TLBs, coherence, the way to memory.
//!
//! [`MemorySystem`] is of all processors of a machine. It says when an access is ready; whether a processor
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
pub use devices::DmaCounts;
pub use miss::{CacheName, ClassifierConfig, LocationCounts, Miss};
pub use port::{MemoryPort, without_mshr_limit};
pub use stack::{SetStackDistances, StackDistances};
pub use system::{Access, MemorySystem, PageSize, Response, SupplyingLevel};
