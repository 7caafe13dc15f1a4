//! A measurement window on this machine. All experiments of the live bench share this module:
//! - [`set_windows`] opens and closes the window on each CPU;
//! - [`wait`] sleeps until the window ends, and [`Stop`] is the request to end it early;
//! - [`HeldCommand`] is the command that a window measures;
//! - [`ThrottlingWindow`] finds out how much time a CPU quota took from the window.

mod command;
mod gates;
mod on_stop;
mod outcome;
mod stop;
mod throttling;
mod wait;

pub use command::{HeldCommand, RunningCommand, is_program, shell_status};
pub use gates::{BenchPhase, WindowEdge, set_all_windows, set_windows};
pub use on_stop::OnStop;
pub use outcome::WaitOutcome;
pub use stop::Stop;
pub use throttling::{
    THROTTLED_NS, THROTTLED_NS_BY_GROUP, THROTTLED_PERIODS, THROTTLED_PERIODS_BY_GROUP,
    ThrottlingWindow,
};
pub use wait::{WindowEnd, wait};

pub(crate) use gates::leave_cpu;
