//! Experiments on simulated machines, by the command. Where there is no QEMU, the tests say so and pass.
//!
//! One program, so that as many machines run at once as there are processors.

mod bare;
mod block_trace;
mod dma;
mod footprint;
mod guest_limit;
mod hotplug;
mod machine;
mod misses;
mod model;
mod noise;
mod preempt_rt;
mod sampled;
mod services;
mod signal;
#[path = "../support/mod.rs"]
mod support;
mod threaded;
mod verify_probes;
