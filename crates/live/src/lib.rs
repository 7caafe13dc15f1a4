//! The bench that is this machine.
//!
//! The experiments have a room each: [`handlers`], [`noise`], [`footprint`],
//! [`services`], [`signal`]. What several of them need
//! has a room of its own: [`bpf`] (the programs), [`clock`] (the time-stamp counter), [`window`] (the
//! window, its end, the stop request), [`threads`], [`spawn`] (threads, and which limit refuses one), [`perf`] (performance events),
//! [`probe_overhead`], [`marks`] (the kernel's events as a stream), [`syscall_loop`], [`echo`] (the far end of another machine's measurement), `network` (namespaces and their interfaces), [`nic`] (settings of one interface), [`stimulus`],
//! [`host`] and [`journal`]. [`selfbench`] measures irqlab itself and runs the experiments' benches.
//!
//! **Architecture invariant:** no experiment's room imports from another experiment's room.

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
