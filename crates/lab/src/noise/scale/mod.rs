//! `noise scale`: the effect of a run's detours on a parallel job.
//!
//! The verb `noise scale` reads a run of `noise` and calls [`run`], which measures nothing. `trace` reads the detours
//! from the run's tables, `delays` computes the delay of a node, `job` the delay of all nodes, and `table` makes the
//! new run.
//!
//! The model: every node repeatedly computes for a phase, and then waits at a barrier for all other nodes. A node is a
//! CPU like the measured CPUs. The detours in a phase delay the node, and the barrier waits for the largest delay of
//! all nodes. The distribution of a delay is computed from the measured detours, not sampled ([`delays`]). The largest
//! delay is computed, too ([`stats::barrier`]), so a million nodes cost no more than two. Time grows
//! with the number of rows.
//!
//! The last node to arrive opens the barrier, so it is at work when it arrives. Each other node may be in a detour that
//! began while it waited. If detours are coscheduled, all nodes arrive together, and are at work then.
//!
//! The barrier is a dissemination barrier (Hensgen, Finkel, Manber, 1988) with log2(nodes) rounds, rounded up. Each
//! round takes the latency of a message. An allreduce by recursive doubling takes equally many rounds. Detours while
//! messages travel do not count: the network forwards messages by itself.

mod delays;
mod job;
mod table;
mod trace;

pub use delays::delays;
pub use job::{Job, Row, scale};
pub use table::run;
pub use trace::{Arrivals, GRANULARITY_NS, ScaleError, Trace, traces};
