//! The simulated bench of the experiment `handlers`. Each condition has its own machine: the irqlab in the guest
//! makes load and stimulus, and the plugin outside counts.

pub(crate) mod agreement;
mod bench;
mod causes;
mod convert;
mod delays;
mod events;
mod parties;
mod senders;
mod verify;
mod verify_delays;
mod verify_senders;
mod victims;

pub use bench::{SimBench, SimSettings};
pub use verify::Verified;
