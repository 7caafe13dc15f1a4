//! What a bench hands in of one pass over the CPUs.

use attribution::Context;
use serde_json::{Map, Value as Json};
use stats::Distribution;

use super::ledger::GapLedger;
use super::loops::Loop;
use super::split::Part;

/// The name behind a source's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceName {
    /// A context of the kernel.
    Context(Context),
    /// A task, by its name.
    Task(String),
}

/// One loop on all measured CPUs, for one window of time.
#[derive(Clone, Debug)]
pub struct NoiseSample {
    /// Which loop.
    pub looping: Loop,
    /// One for each CPU.
    pub cpus: Vec<CpuNoise>,
    /// Names of the sources, by number.
    pub names: Vec<SourceName>,
    /// What the kernel's side saw; absent when it was not watched.
    pub traced: Option<Traced>,
    /// Cut short by the user.
    pub interrupted: bool,
    /// What a reader must know of this window.
    pub warnings: Vec<String>,
    /// Figures of this window, for the settings.
    pub facts: Map<String, Json>,
}

/// What the kernel's side saw, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Marks.
    pub marks: u64,
    /// Marks for which there was no room.
    pub lost: u64,
    /// Marks outside of every gap: gaps below the threshold.
    pub outside: u64,
}

/// One CPU's part.
#[derive(Clone, Debug)]
pub struct CpuNoise {
    /// Its number.
    pub cpu: u32,
    /// When its loop began, ns.
    pub start_ns: u64,
    /// How long it ran, ns.
    pub window_ns: u64,
    /// What it saw.
    pub work: Work,
    /// Records for which there was no room.
    pub lost_records: u64,
    /// Records made on another CPU than this.
    pub migrated: u64,
    /// Page faults that the kernel counted for the loop; absent when it does not say.
    pub page_faults: Option<u64>,
    /// Switches away from the loop that the kernel counted; absent when it does not say.
    pub switches: Option<u64>,
    /// Time that the host says it took from this CPU, ns, in steps of /proc/stat; absent when it
    /// does not say.
    pub steal_ns: Option<u64>,
}

/// What a loop saw.
#[derive(Clone, Debug)]
pub enum Work {
    /// The detour loop.
    Gaps(Box<GapLedger>),
    /// Fixed work.
    Quanta(Box<Fixed>),
    /// Fixed time.
    Slots(Box<Slots>),
}

/// Quanta of fixed work.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// The time of all of them, ns.
    pub times: Distribution,
    /// The first of them.
    pub first: Vec<Quantum>,
    /// The least time, ns, in each of some stretches of equal number, in order.
    pub least_ns: Vec<u64>,
}

/// One quantum of fixed work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantum {
    /// When it began, ns.
    pub start_ns: u64,
    /// What it took, ns.
    pub time_ns: u64,
    /// Time that the kernel named in it, ns; absent when nobody watched.
    pub named_ns: Option<u64>,
    /// The largest named part of it.
    pub main: Option<Part>,
    /// Whether the loop took a page fault in it; absent when nobody watched.
    pub faulted: Option<bool>,
    /// Whether it ended on another CPU.
    pub migrated: bool,
}

/// Slots of fixed time.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Length of a slot, ns.
    pub slot_ns: u64,
    /// Slots that passed.
    pub count: u64,
    /// The work done in them, all together.
    pub work_sum: u64,
    /// The most work done in one.
    pub work_max: u64,
    /// Slots in which no work was done at all.
    pub empty: u64,
    /// The work of the first slots.
    pub first: Vec<u64>,
}
