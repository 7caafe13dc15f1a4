//! Models of processors and memory hierarchies.
//!
//! Pure: no IO, no clock, no globals. A model is text (TOML) that the caller reads; what it feeds
//! a model (instructions, lines, addresses) is its own affair.
//!
//! Two sorts of machines exist.
//!
//! - Blocking caches of two levels, as of the paper's 1994 machine (`simos-1995`, section 3.1): what the
//!   simulated bench's `timed` level runs on. It is there twice: [`Hierarchy`] is written to be read,
//!   [`BlockingMachine`] to be fast, and tests hold their counts equal. It is of one processor: several have one
//!   each, not coherent, so that misses that processors cause each other are not counted.
//! - Any memory side that a model describes ([`SystemModel`]): [`memory::MemorySystem`], of all processors of a
//!   machine, coherent, with classes of misses. With two blocking levels it counts what [`Hierarchy`]
//!   counts; tests hold that, too.
//!
//! [`core`] has processors that do more than one thing at once, on caches of the caller's; [`predict`]
//! their branch predictors, [`decode`] the way from bytes to them. See docs/cores.md.

#![forbid(unsafe_code)]

pub mod cache;
pub mod code;
pub mod core;
pub mod counts;
pub mod decode;
mod hash;
pub mod hierarchy;
pub mod in_order;
mod lines;
pub mod memory;
pub mod model;
mod pages;
pub mod predict;
pub mod schema;
pub mod tlb;

pub use cache::{Cache, Evicted, Outcome};
pub use code::{CodeBlock, CodeSpan};
pub use counts::Counts;
pub use hierarchy::{AccessKind, Hierarchy};
pub use in_order::BlockingMachine;
pub use model::{BlockingModel, CacheModel, ModelError, Replacement, TlbModel};
pub use schema::SystemModel;
pub use tlb::Tlb;
