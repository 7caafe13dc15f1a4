//! The QEMU plugin of the simulated bench.
//!
//! Design constraints:
//! - Observation changes nothing: no callback writes registers or memory of the guest. The one
//!   exception is the guest's PMU ([`options::Options::pmu`]), which is off unless it is asked for.
//! - Same guest, same options: the same record, byte for byte. It holds no wall clock, no address
//!   of the host, nothing in the order of a hash.
//! - Each block costs a few loads and stores on the state of one CPU: no lock, no hash, no
//!   allocation. Rarer events (interrupts, annotations, markers) may take a lock.
//! - All vCPUs run in one thread (`-accel tcg,thread=single`); the plugin refuses another.
//! - No panic crosses into C: callbacks are `extern "C"` functions, in which a panic aborts the
//!   process. QEMU is gone then, and the record has no end record, so its run is incomplete.
//!
//! `sim` starts QEMU with the plugin and reads the record (crate `simrecord`); the guest leaves
//! markers. See docs/plugin.md.

pub mod guest;
pub mod models;
pub mod options;

mod check;
mod cpu;
mod devices;
mod files;
mod pmu;
mod qemu;
mod session;
mod time;
mod writer;
