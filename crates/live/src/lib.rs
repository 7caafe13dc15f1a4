//! The bench that is this machine.
//!
//! Each experiment has a module: [`handlers`], [`noise`], [`footprint`], [`services`], [`signal`].
//! Parts that several experiments share are modules of their own:
//!
//! - [`bpf`]: the BPF programs
//! - [`clock`]: the time-stamp counter
//! - [`window`]: the window, its end, the stop request
//! - [`threads`] and [`spawn`]: threads, and the limit that refuses one
//! - [`perf`]: performance events
//! - [`probe_overhead`]: the cost of the probes
//! - [`marks`]: the kernel's events as a stream
//! - [`syscall_loop`]: a loop of system calls
//! - [`echo`]: the far end of a measurement on another machine
//! - `network`: network namespaces and their interfaces
//! - [`nic`]: settings of one interface
//! - [`stimulus`]: load and stimuli
//! - [`host`]: facts about the machine
//! - [`journal`]: changes to undo
//!
//! [`selfbench`] measures irqlab itself and runs the experiments' benches.
//!
//! **Architecture invariant:** no experiment's module imports from another experiment's module.

pub mod bpf;
pub mod clock;
pub mod echo;
pub mod footprint;
pub mod handlers;
pub mod host;
pub mod journal;
pub mod kernels;
pub mod marks;
mod network;
pub mod nic;
pub mod noise;
pub mod perf;
pub mod probe_overhead;
pub mod program_rights;
pub mod selfbench;
pub mod services;
pub mod signal;
pub mod spawn;
pub mod stimulus;
pub mod syscall_loop;
pub mod threads;
pub mod window;
