//! A measurement window on this machine: how it opens on each CPU, how it ends, and the request to
//! stop early. All experiments of this bench share it.

mod gates;
mod stop;
mod wait;

pub use gates::{BenchPhase, WindowEdge, move_gates};
pub use stop::Stop;
pub use wait::{WaitOutcome, WindowEnd, Workload, shell_status, wait};
