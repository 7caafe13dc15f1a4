//! `services` on the simulated machine.

mod bench;
mod convert;
mod misses;
mod names;
mod page_walks;
mod structures;

pub use bench::{SimServices, SimServicesSettings, Work};
pub(crate) use convert::{KernelNames, sample_of};
