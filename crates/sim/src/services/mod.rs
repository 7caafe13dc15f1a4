//! `services` on the simulated machine.

mod bench;
mod convert;

pub use bench::{SimServices, SimServicesSettings, Work};
