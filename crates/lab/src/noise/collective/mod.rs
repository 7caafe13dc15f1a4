//! `noise collective`: what detours cost a real parallel job, and which rank, CPU and cause each slow collective has.
//!
//! Each rank of the job repeats a *step*: it computes for a fixed amount of work, and then takes part in a barrier or an
//! allreduce. A rank records when it started, arrived at the collective and left it, and its detours, all on its own
//! clock. Rank 0 gathers a [`RankSample`] of each rank, and [`run`] makes the result.
//!
//! `clock` compares the clocks of two ranks, `wire` encodes a sample for the network, `steps` finds the rank that
//! delayed each step and splits the step's time, `messages` finds the kernel's activity that the messages cause, `causes`
//! divides the lost time among its causes, `model` applies `noise scale` to the detours of the same run, and `tables`
//! makes the other tables.
//!
//! Time runs from the last arrival at a collective to the last arrival at the next:
//!
//! ```text
//! rank 0   ...wait|leave|------ computation ------|arrives, waits ............|leave|
//! rank 1   ......|leave|---- computation ---[detour]-------- computation -----|leave|
//!                ^ last arrival at the collective before       last arrival ^
//!                |<--------------------------- step ----------------------->|
//! ```
//!
//! The time of the last rank in a step adds up exactly: the collective's own time until the rank has left it, the
//! computation without detours, and the detours.

mod causes;
pub mod clock;
mod messages;
mod model;
mod report;
pub mod sample;
pub mod steps;
mod tables;
pub mod wire;

pub use clock::{ClockOfRank, Exchange, Offset};
pub use report::{Job, run};
pub use sample::{Cause, Interruption, Operation, RankSample, StepTimes};
