//! Experiments on simulated machines, by the command. Where there is no QEMU, the tests say so and pass.
//!
//! One program, so that as many machines run at once as there are processors.

mod bare;
#[path = "../cli_support/mod.rs"]
mod cli_support;
mod dma;
mod guest_limit;
mod machine;
mod misses;
mod model;
mod noise;
mod sampled;
mod services;
mod signal;
mod threaded;
mod verify_probes;
