//! The simulated bench of the experiment `handlers`: each condition is made in a machine of its own
//! by the irqlab that is in the guest, and counted from outside.

pub(crate) mod agreement;
mod bench;
mod convert;
mod events;
mod verify;

pub use bench::{SimBench, SimSettings};
pub use verify::Verified;
