//! Models of processors and memory hierarchies.
//!
//! Pure: no IO, no clock, no globals. A model is text (TOML) that the caller reads; what it feeds
//! a model (instructions, lines, addresses) is its own affair.
//!
//! What exists so far is the paper's 1994 machine (`simos-1995`, section 3.1): one instruction a
//! cycle, blocking caches, a TLB. It is what the simulated bench's `timed` level runs on. It is there
//! twice: [`Hierarchy`] is written to be read, [`InOrder`] to be fast, and tests hold their counts
//! equal.
//!
//! A model is of one processor. Several have a model each, whose caches are private and not coherent:
//! a line that one of them writes stays in the caches of the others, and a miss never finds it there.
//! So misses that processors cause each other are not counted. That is left to a later model.

pub mod cache;
pub mod code;
pub mod counts;
pub mod hierarchy;
pub mod in_order;
mod lines;
pub mod model;
mod pages;
pub mod schema;
pub mod tlb;

pub use cache::{Cache, Evicted, Outcome};
pub use code::{CodeBlock, CodeSpan};
pub use counts::Counts;
pub use hierarchy::{AccessKind, Hierarchy};
pub use in_order::InOrder;
pub use model::{CacheModel, MachineModel, ModelError, Replacement, TlbModel};
pub use schema::SystemModel;
pub use tlb::Tlb;
