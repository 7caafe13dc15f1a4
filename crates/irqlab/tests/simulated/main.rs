//! Experiments on simulated machines. Without QEMU the tests say so and pass.
//!
//! All tests are one program, so that one machine runs per processor.

mod affinity;
mod bare;
mod bench_kernel;
mod block_trace;
mod callbacks;
mod command_output;
mod delays;
mod dma;
mod drive;
mod ended_early;
mod exact_causes;
mod footprint;
mod guest_limit;
mod hotplug;
mod identity;
mod machine;
mod misses;
mod model;
mod noise;
mod preempt_rt;
mod sampled;
mod senders;
mod sent_causes;
mod services;
mod signal;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
mod threaded;
mod timeline;
mod user_functions;
mod verify_probes;
mod victims;
mod wakeup;
mod window_ends;
