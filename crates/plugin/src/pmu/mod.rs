//! A performance monitoring unit for the guest: TCG has none, so the plugin emulates one.
//!
//! It is the PMU of an AMD processor of family 17h with six counters, which stock kernels know. Its counters
//! hold the plugin's own counts, so a read of a counter is exact. See docs/guest-pmu.md.
//!
//! [`core`] is the state of one vCPU, and [`events`] the meaning of event numbers; both know nothing of QEMU.
//! [`machine`] has the PMUs of all vCPUs, and [`msr`] the instructions that use them. [`state`] is their
//! content as text, next to a checkpoint.

pub(crate) mod core;
pub(crate) mod events;
pub(crate) mod machine;
pub(crate) mod msr;
pub(crate) mod state;
