//! The paper `simos-1995`: workloads on its machines, simulated and published.

mod findings;
mod published;
mod runs;
mod tables;
#[cfg(test)]
mod tests;

pub use findings::findings;
pub use published::Paper;
pub use runs::{ClassifiedMisses, MachineRun, MissCosts, Role};
pub use tables::{absent_from_every_run, tables};
