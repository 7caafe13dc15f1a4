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

pub mod annotations;
pub mod options;
pub mod symbols;

mod accesses;
mod before_block;
mod block;
mod block_trace;
mod callbacks;
mod check;
mod clock;
mod cores;
mod counters;
mod cpu;
mod delay;
mod disk_events;
mod dma;
mod drain;
mod entry;
mod ffi;
mod files;
mod held;
mod idle;
mod install;
mod irq;
mod level;
mod limit;
mod markers;
mod memory_context;
pub mod misses;
mod models;
mod pages;
mod pause;
mod physical;
mod pipeline;
mod pmu;
mod processors;
mod progress;
mod qemu;
mod qemu_internals;
mod region_rows;
mod regions;
mod rounds;
pub mod sampling;
mod service_misses;
mod service_sums;
mod services;
mod session;
pub mod shadow_caches;
mod spans;
mod structures;
mod template;
mod tracker;
mod translate;
mod translation_points;
mod translations;
mod tsc;
mod user_functions;
mod writer;
