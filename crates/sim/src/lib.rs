//! The simulated bench: a stock Linux kernel on QEMU, observed by a plugin. The command `irqlab` uses it for the verb
//! `sim` and for experiments with `--on sim`; `sim_tables` and `lab` make tables of its results.
//!
//! Design constraints:
//! - The host is not changed: QEMU, kernels and images are in the user's cache directory ([`Cache`]),
//!   each keyed by its content, and renamed into place when complete. Machines that are up are kept there,
//!   too, so that no experiment boots twice.
//! - The same versions, guest and seed give the same run. Whatever the guest can observe comes from the
//!   command line ([`Machine`]) and never depends on when the host does something.
//! - Nothing outlives irqlab: the kernel kills QEMU when the thread that started it ends.
//! - Data from the guest or a file is bounded and checked before it is used.
//!
//! Modules; each uses only the modules above it:
//! - [`qemu`] finds the simulator and [`setup`] installs missing parts;
//! - `guest` finds a kernel, packs its initramfs, and reads symbols and types;
//! - `machine` is the hardware as QEMU's command line, and the process that runs it; [`boot`] follows a machine
//!   to its end, and [`guest_facts`] boots a kernel once to read its symbols and types;
//! - [`annotate`] translates annotations for the plugin, [`watch`] loads the plugin, and an
//!   [`Accounting`] is the plugin's record, checked and summed up: only `accounting` reads records, and
//!   [`divergence`], which compares two of them;
//! - [`checkpoint`] saves and restores a machine;
//! - [`handlers`], [`noise`], [`footprint`], [`services`] and [`signal`] are the benches of the experiments, [`bare`]
//!   is the machine without a kernel; [`repeat`] runs machines again and again; [`hostile`] disturbs a machine, which
//!   must not change its run.

mod accounting;
pub mod annotate;
pub mod bare;
pub mod boot;
mod cache;
pub mod checkpoint;
mod contexts;
pub mod divergence;
mod error;
mod facts;
pub mod footprint;
pub mod forecast;
mod guest;
mod guest_run;
pub mod handlers;
mod hash;
pub mod hostile;
mod kept_times;
pub mod kernels;
mod machine;
mod machine_times;
pub mod measured;
pub mod models;
pub mod noise;
pub mod parallel;
mod process;
pub mod qemu;
mod regular_file;
pub mod repeat;
pub mod rootfs;
mod sent_interrupts;
pub mod services;
pub mod setup;
pub mod signal;
mod text;
mod timeline;
pub mod wakeup;
pub mod watch;
pub mod workload;

pub use ::machine::memory::MissClass;
/// A CPU executes in one of these contexts at a time.
pub use attribution::KernelContext;

pub use accounting::{
    Accounting, AnnotationUse, CACHE_NAMES, ContextTransition, ContextUse, CpuUse, Hit, KernelUse,
    RecordedValues, RegionUse, SampledCycles, SampledPartUse, ServiceUse, ServiceWaitUse,
    ServicesUse, ShadowCacheUse, SpanUse, WARMING_ERROR,
};
pub use boot::EarlyReason;
pub use cache::{Cache, CacheEntry, EntryKind, LIMIT_BYTES_DEFAULT, ONLY as CACHE_ONLY};
pub use error::SimError;
pub use facts::{GuestFacts, guest_facts};
pub use guest::loaded::LoadedModule;
pub use guest::symbols::{Symbol, Symbols};
pub use guest::{btf, image, kernel};
pub use guest_run::{
    Deadline, GuestRun, MachinePhase, MachineProgress, MachineState, PlannedMachines, StopRequest,
};
pub use kept_times::KeptTimes;
pub use machine::agent::GuestReport;
pub use machine::found::FoundDevice;
pub use machine::vm::{GuestText, Instrumentation, Stream, Vm, VmEvent};
pub use machine::{CPUS_MAX, Held, Machine, Timing, devices, identity, mitigations};
pub use machine_times::{MachineTimes, TimedMachine};
pub use process::{children_cpu_ns, name_process_limits_by};
/// The counters of each context, and their names.
pub use simrecord::counters;
/// Writes a marker to the record of the simulator, if there is one; see `simrecord::marker`.
pub use simrecord::marker;
/// The progress of a running guest, as the plugin writes it.
pub use simrecord::progress::GuestProgress;
/// Kinds of accesses that shadow caches count, and kinds of misses.
pub use simrecord::record::{
    AccessStream, ELSEWHERE, Group, MissCount, MissCurvePoint, MissKind, UNKNOWN_FUNCTION,
};

/// The result of a fallible function of this crate.
pub type Result<T> = std::result::Result<T, SimError>;

/// Receives lines about the progress of long work, for the user.
pub type Progress<'a> = &'a dyn Fn(&str);
