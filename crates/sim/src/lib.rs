//! The bench that is a simulated machine: a stock Linux kernel on QEMU.
//!
//! Design constraints:
//! - Nothing of the host is changed: QEMU, kernels and images live in the user's cache directory
//!   ([`Cache`]), each thing keyed by what it is made of, made aside and renamed into place.
//! - Same versions, same guest, same seed: the same run. What the guest can see comes from the
//!   command line ([`Machine`]) and never from a moment at which the host does something.
//! - Nothing outlives irqlab: QEMU is killed by the kernel when its starter goes.
//! - What comes from the guest or out of a file is bounded and checked before it is used.
//!
//! From top to bottom: [`qemu`] finds or installs the simulator, [`kernel`] gets a kernel,
//! [`image`] packs an initramfs around our static first process, [`Machine`] says what the machine
//! is made of, [`Vm`] runs it, [`boot`] and [`checkpoint`] use that, [`guest_facts`] asks a kernel
//! for its symbols and types, [`watch`] puts the plugin into QEMU, and an [`Account`] is what comes
//! of its record.

mod account;
mod agent;
pub mod annotate;
mod apt;
pub mod bare;
mod beside;
pub mod boot;
pub mod btf;
mod cache;
mod channel;
pub mod checkpoint;
pub mod devices;
mod error;
mod facts;
pub mod footprint;
pub mod handlers;
mod hash;
mod held;
pub mod image;
pub mod kernel;
mod layer;
mod machine;
mod mirror;
pub mod models;
mod modules;
mod near;
pub mod noise;
mod ordered;
mod process;
pub mod qemu;
mod qmp;
mod record_file;
pub mod setup;
mod symbols;
mod tail;
mod vm;
pub mod watch;

pub use ::machine::memory::MissClass;
/// For whom a CPU executes, and why it misses a line.
pub use attribution::KernelContext;

pub use account::{Account, ContextUse, CpuUse, KernelUse, RegionUse, SpanUse, TurnUse};
pub use agent::GuestReport;
pub use beside::BesideUse;
pub use cache::Cache;
pub use error::SimError;
pub use facts::{GuestFacts, guest_facts};
pub use held::Held;
pub use machine::{CPUS_MAX, Machine, Timing};
/// What is counted of each context, and its names.
pub use plugin::counters;
/// Leaves a marker in the record of the simulator, if there is one; see `plugin::marker`.
pub use plugin::marker;
/// What caches beside are asked for, and for whom; and how misses are told apart.
pub use plugin::record::{Curve, ELSEWHERE, Group, MissCount, MissSort, Stream};
pub use process::children_cpu_ns;
pub use symbols::{Symbol, Symbols};
pub use vm::{More, Vm, VmEvent};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, SimError>;

/// Takes lines of progress.
pub type Progress<'a> = &'a dyn Fn(&str);
