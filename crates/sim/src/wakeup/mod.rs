//! The simulated bench of the experiment `wakeup`. The irqlab in the guest runs the threads, and the simulator's stack of
//! contexts shows what used the CPU while a thread was late.

mod bench;
mod functions;
mod join;

pub use bench::{SimWakeup, SimWakeupSettings};
