//! The simulated bench of the experiment `wakeup`. The irqlab in the guest runs the threads, and the simulator's stack of
//! contexts shows what used the CPU while a thread was late. `verify` and `truth` check the live bench in the guest.

mod bench;
mod functions;
mod join;
mod truth;
mod verify;

pub use bench::{SimWakeup, SimWakeupSettings};
pub use verify::{VerifiedWakeups, WakeupVerification};
