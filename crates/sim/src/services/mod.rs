//! The simulated bench of the experiment `services`: the time and the misses of system calls, faults and interrupts,
//! for a command or a workload.

mod bench;
mod convert;
mod misses;
mod names;
mod page_walks;
mod structures;

pub use bench::{SimServices, SimServicesSettings, Work};
pub(crate) use convert::{KernelNames, sample_of};
