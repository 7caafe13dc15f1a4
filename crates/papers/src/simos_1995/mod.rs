//! The paper `simos-1995`: workloads on its machines, simulated and published.

mod findings;
mod published;
mod runs;
mod tables;
#[cfg(test)]
mod tests;

pub use findings::findings;
pub use published::{ModePercent, Paper, Validation};
pub use runs::{ClassifiedMisses, MachineRun, MissCosts, Role};
pub use tables::tables;
