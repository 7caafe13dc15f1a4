//! `noise scale`: what the detours of a run would do to a parallel job.
//!
//! Every node repeatedly computes for a phase and then waits for all others. A node is a
//! CPU like those measured; the delay of its phase is the length of the detours that fall into it,
//! and the barrier waits for the largest of all nodes' delays. Its distribution is computed from
//! the measured detours, not drawn ([`delays`]), and so is the mean of its largest
//! ([`stats::Extremes`]): a million nodes cost no more than one. The node that was last, for which the
//! others waited, is at work when the barrier opens; each of the others may be in a detour then. Where
//! all have their detours at the same times, all are at work.
//!
//! The barrier is one of dissemination (Hensgen, Finkel, Manber, 1988): log2 rounds, rounded up,
//! each the latency of a message; an allreduce by recursive doubling takes as many. Detours while
//! messages travel are left out: that is a network that forwards messages by itself.

mod delays;
mod job;
mod table;
mod trace;

pub use delays::delays;
pub use job::{Job, Row, scale};
pub use table::run;
pub use trace::{Arrivals, GRANULARITY_NS, ScaleError, Trace, traces};
