//! Models of processors and memory hierarchies. The plugin in QEMU feeds them the instructions and addresses of a
//! guest; `sim`, `irqlab` and `xtask` read, draw and measure them.
//!
//! Pure: no IO, no clock, no globals. A model is text (TOML) that the caller reads.
//!
//! - [`system_model`] has the parameters of a machine, the [`SystemModel`]; [`schema`] reads it from text.
//! - [`identity`] has what the processor tells its software about itself.
//! - [`memory`] has the caches, TLBs, coherence and memory bus: a
//!   [`MemorySystem`](memory::MemorySystem) serves all processors of a machine.
//! - [`core`] has the processors: out of order, in order, multithreaded. They ask a memory system
//!   how long each access waits. [`predict`] has their branch predictors, [`decode`] decodes
//!   x86-64.
//! - [`BlockingMachine`] is a fast path for one kind of machine, the machine of the paper `simos-1995`
//!   (section 3.1): an in-order, blocking processor with two levels of caches. The simulator's level
//!   `timed` runs on it. It counts exactly what a [`MemorySystem`](memory::MemorySystem) counts.
//! - [`drive`] has disk drives with an arm and rotating platters.
//! - [`block_trace`] is a format for the execution of a guest, to execute it again without the guest.
//!
//! Addresses have types: [`VirtualAddress`], [`PhysicalAddress`], and [`LineAddress`] for the number of a line.
//! A point in time is a [`Cycle`]; a number of cycles is a `u64`; a number of executed instructions is
//! [`Instructions`].
//! All caches and TLBs keep their tags in a [`TagArray`]. See docs/cores.md and docs/machines.md.

#![forbid(unsafe_code)]

mod address;
pub mod block_trace;
mod blocking;
mod compact_lru;
pub mod core;
mod counts;
mod cycle;
pub mod decode;
pub mod drive;
pub mod identity;
pub mod memory;
mod model;
pub mod predict;
mod processor;
pub mod schema;
pub mod system_model;
mod tag_array;

pub use address::{LineAddress, LineRange, PhysicalAddress, VirtualAddress};
pub use blocking::{BlockingMachine, CodeBlock, CodeSpan};
pub use counts::{Counts, Instructions};
pub use cycle::Cycle;
pub use identity::IdentityModel;
pub use memory::AccessKind;
pub use model::{CacheModel, ModelError, Replacement, TlbModel};
pub use processor::ProcessorRange;
pub use system_model::{BlockingModel, HostExits, HostExitsModel, SystemModel};
pub use tag_array::{Evicted, Outcome, TagArray};
