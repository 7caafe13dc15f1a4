//! Guest time: how it passes, how vCPUs share it, and when it ends.
//!
//! - `clock`: the clock of a machine. It plans time slices, sets QEMU's clock at the end of each slice, and counts how
//!   long vCPUs halt.
//! - `rounds`: computes each vCPU's guest time. The host runs vCPUs one after the other, and the guest sees them at
//!   once.
//! - `idle`: the jump to the next timer when all vCPUs are halted.
//! - `pause`: the time of a `pause` instruction at the level `fast`.
//! - `tsc`: corrects the guest's reads of its time-stamp counter.
//! - `limit`: ends the machine when its guest time is up.
//! - `withheld`: when the simulated host withholds a vCPU.
//! - `progress`: reports guest time to the host.

pub(crate) mod clock;
pub(crate) mod idle;
pub(crate) mod limit;
pub(crate) mod pause;
pub(crate) mod progress;
pub(crate) mod rounds;
pub(crate) mod tsc;
pub(crate) mod withheld;
