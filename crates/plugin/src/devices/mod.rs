//! Devices: their accesses to memory, and when their requests complete.

pub(crate) mod delay;
pub(crate) mod disk_events;
pub(crate) mod dma;
pub(crate) mod drain;
pub(crate) mod held;
