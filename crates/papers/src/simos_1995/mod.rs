//! The paper `simos-1995`: its workloads on models of its machines, simulated and published, and its findings judged on
//! both. `irqlab reproduce simos-1995` fills [`MachineRun`]s from the experiment `services`.

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
