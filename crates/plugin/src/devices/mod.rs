//! Devices: their writes to memory, and the guest time at which their requests complete. Aim: the guest sees devices
//! act at the same guest time in each run.
//!
//! - `drain`: serves a CPU's request to a device before the CPU continues.
//! - `delay`: the latency of disks: which requests are held, and until when. `disk_events` pauses and wakes these
//!   requests in QEMU.
//! - `coalescing`: completions of a disk that wait for one another, so that one interrupt reports several.
//! - `dma`: passes the writes of devices to the caches of the models.
//! - `held`: stops the machine at an annotation, so that its state can be saved as a checkpoint.

mod coalescing;
pub(crate) mod delay;
pub(crate) mod disk_events;
pub(crate) mod dma;
pub(crate) mod drain;
pub(crate) mod held;
