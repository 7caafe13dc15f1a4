//! A measurement window on this machine: how it opens on each CPU, how it ends, and the request to
//! stop early. All experiments of this bench share this module.

mod command;
mod gates;
mod on_stop;
mod outcome;
mod stop;
mod throttling;
mod wait;

pub use command::{HeldCommand, RunningCommand, shell_status};
pub use gates::{BenchPhase, WindowEdge, move_all_gates, move_gates};
pub use on_stop::OnStop;
pub use outcome::WaitOutcome;
pub use stop::Stop;
pub use throttling::{THROTTLED_NS, THROTTLED_PERIODS, ThrottlingWindow};
pub use wait::{WindowEnd, wait};

pub(crate) use gates::leave_cpu;
