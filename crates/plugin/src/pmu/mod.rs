//! A performance monitoring unit for the guest. QEMU's translator (TCG) has none, so the plugin emulates one. It
//! changes registers of the guest, and is off by default.
//!
//! The guest sees the PMU of an AMD processor of family 17h with six counters, or the architectural PMU of an Intel
//! processor. Stock kernels support both. The counters hold the plugin's own counts, so a read of a counter is exact.
//! See docs/guest-pmu.md.
//!
//! - [`core`]: the PMU of one vCPU. [`layout`]: the registers of each vendor. [`events`]: the meaning of event numbers.
//!   These three modules do not depend on QEMU.
//! - [`machine`]: the PMUs of all vCPUs. [`msr`]: the instructions that use them.
//! - [`state`]: the content of all PMUs as text, which is stored next to a checkpoint.

pub(crate) mod core;
pub(crate) mod events;
pub(crate) mod layout;
pub(crate) mod machine;
pub(crate) mod msr;
pub(crate) mod state;
