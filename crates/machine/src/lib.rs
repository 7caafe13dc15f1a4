//! Models of processors and memory hierarchies.
//!
//! Pure: no IO, no clock, no globals. A model is text (TOML) that the caller reads; what it feeds
//! a model (instructions, lines, addresses) is its own affair.
//!
//! What exists so far is the paper's 1994 machine (`simos-1995`, section 3.1): one instruction a
//! cycle, blocking caches, a TLB. It is what the simulated bench's `timed` level runs on.

pub mod cache;
pub mod hierarchy;
pub mod model;
pub mod tlb;

pub use cache::{Cache, Evicted, Outcome};
pub use hierarchy::{AccessKind, Counts, Hierarchy};
pub use model::{CacheModel, MachineModel, ModelError, Replacement, TlbModel};
pub use tlb::Tlb;
