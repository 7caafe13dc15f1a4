//! `noise`: how much of a CPU does the operating system take, when, and who took it? (paper
//! `noise-t1`)
//!
//! A loop runs on each CPU. A bench returns the loop's gaps and the kernel's events in them. This module splits each
//! gap into causes, and states the remainder.
//!
//! [`Plan`] is the experiment. `bench` has the trait of the benches, and `loops` the loops. `split` attributes the time
//! of a gap, `ledger` sums up the gaps of a CPU, `sample` has the results, and `tables` makes the tables. `scale`
//! applies the detours of a run to a parallel job.

pub mod bench;
pub mod collective;
pub mod experiment;
pub mod in_guest;
pub mod ledger;
pub mod loops;
pub mod lost_time;
pub mod placement;
mod quantum;
pub mod sample;
pub mod scale;
pub mod sent;
pub mod split;
mod tables;
mod undisturbed;
mod work;

pub use bench::{NoiseBench, Visibility};
pub use experiment::Plan;
pub use ledger::{GapLedger, KeepDetours};
pub use loops::{Body, Loop};
pub use placement::{BusyInterval, BusyIntervals, CpuActivity, Place, Relation};
pub use quantum::Quantum;
pub use sample::{
    ContextName, CpuNoise, IDLE, Injected, LoopResult, NoiseSample, PairedWindows, Traced,
    kind_and_name,
};
pub use sent::{InterruptSender, Processes, SentInterrupt};
pub use split::{AttributionParameters, Class, Gap, Mark, Part, SplitFaults, What, split};
pub use work::{Block, Fixed, PARTS_PER_SLOT, QuantumCycles, Shortest, Slots};
