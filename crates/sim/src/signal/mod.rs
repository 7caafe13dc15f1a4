//! The simulated bench of the experiment `signal`. The irqlab in the guest sends and receives, and the simulator
//! counts what the receiving CPU executes, cycle by cycle.

mod bench;
mod count;

pub use bench::{SimSignal, SimSignalSettings};
