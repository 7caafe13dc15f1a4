//! A performance monitoring unit for the guest: TCG has none, so the plugin emulates it.
//!
//! It is that of an AMD processor of family 17h with six counters, as stock kernels know it. What
//! its counters count are the plugin's own counts, so a read of a counter is exact. See
//! docs/guest-pmu.md.
//!
//! [`core`] is the state of one vCPU, [`events`] what event numbers mean; both know nothing of
//! QEMU.
//! [`machine`] has the PMUs of all vCPUs, and [`msr`] the instructions by which the guest uses
//! them.
//! [`state`] is their content as text, next to a checkpoint.

pub(crate) mod core;
pub(crate) mod events;
pub(crate) mod machine;
pub(crate) mod msr;
pub(crate) mod state;
