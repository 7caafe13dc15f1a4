//! One rank of `noise collective`: it computes, takes part in a collective, and records its detours, again and again.
//!
//! The process's first thread is the *observer*: it loads the probes, reads the kernel's marks, and watches that the rank
//! gets on ([`measure`], in `observer`). The rank's own thread (`rank`) exchanges messages by a [`Transport`], `tcp` or
//! `mpi`, and runs the computation (`computation`). `sample` joins both threads' records to the sample that rank 0 gets.
//!
//! Invariant: every wait has a time limit, so a rank that dies or hangs ends the job with a reason.

mod computation;
pub mod mpi;
mod observer;
mod rank;
mod sample;
pub mod tcp;
mod transport;

pub use observer::{RankSettings, measure};
pub use rank::{Gathered, JobPlan};
pub use transport::{Connect, Transport};
