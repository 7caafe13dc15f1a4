//! The QEMU plugin of the simulated bench.
//!
//! Where to look:
//! - `qemu`: what QEMU calls and what the plugin calls in QEMU. The entry point is `qemu/install.rs`.
//! - `session.rs`: a recording. It holds one value of each part below and passes the machine's events to them.
//! - `cpu`: the counts of each vCPU, and the callbacks that run at every block and memory access.
//! - `models`: the models of processors and caches that count and time.
//! - `time`: guest time: when a vCPU's time slice ends, how QEMU's clock follows a model, how long vCPUs are halted.
//! - `devices`: the latency of disks, and what makes devices act at the same guest time in each run.
//! - `guest`: the software in the guest: contexts, tasks, services, regions, symbols and annotations.
//! - `pmu`: the performance monitoring unit that the guest sees.
//! - `files.rs`: the files that the plugin's options name. `writer.rs`: the record. `check.rs`: compares the plugin's
//!   counts with QEMU's.
//!
//! Design constraints:
//! - Observation changes nothing: no callback writes registers or memory of the guest. There are two exceptions. Where
//!   guest time follows a model, a value that the guest reads from its time-stamp counter is corrected (`time/tsc.rs`).
//!   The guest's PMU ([`Options::pmu`](plugin_interface::options::Options::pmu)), which is off by default, writes
//!   registers.
//! - The same guest with the same options gives the same record, byte for byte. The record holds no time or address of
//!   the host, and nothing in the order of a hash table.
//! - Each block costs a few loads and stores on the state of one CPU: no lock, no hash, no allocation. Rarer events
//!   (interrupts, annotations, markers) may take a lock.
//! - All vCPUs run in one thread (`-accel tcg,thread=single`). The plugin aborts if a vCPU runs in another thread.
//! - No panic crosses into C: a panic in an `extern "C"` callback aborts QEMU. The record then lacks its end
//!   record, and the run counts as incomplete.
//!
//! The crate `sim` starts QEMU with the plugin, passes options and files to it (crate `plugin_interface`), and reads
//! its record (crate `simrecord`). The guest executes markers, which open and close regions. See docs/plugin.md.

mod check;
mod cpu;
mod devices;
mod files;
mod guest;
mod models;
mod pmu;
mod qemu;
mod session;
mod time;
mod writer;
