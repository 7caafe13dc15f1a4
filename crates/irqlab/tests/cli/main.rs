//! The command as a user runs it: its output, its refusals, and the files that it leaves. No assertion is on a
//! time.
//!
//! All tests are one program. A waiting test leaves the processor to others, and tests that measure take turns
//! ([`support::alone`]).

mod affinity;
mod agreement;
mod bench;
mod compare;
mod docs;
mod ends;
mod export;
mod faults;
mod fleet;
mod fleet_ssh;
mod footprint;
mod journal;
mod limits;
mod memory;
mod model;
mod noise;
mod noise_collective;
mod output;
mod outputs;
mod process_limit;
mod report;
mod reproduce;
mod rights;
mod services;
mod signal;
mod signal_apply;
mod signal_nic;
mod signal_run;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
mod sweep_faults;
mod sweep_slurm;
mod test_program;
mod usage;
mod wakeup;
mod watch;
