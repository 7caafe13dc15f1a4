//! `wakeup`: how late does a periodic thread run, and what delayed it?
//!
//! A thread on each CPU sleeps until a time, and reads the clock when it runs again. A bench returns the due time and
//! the time of that reading, and the kernel's events between them. This module splits each wake-up into its causes. With
//! [`WakeBy::Futex`], [`WakeBy::Eventfd`] and [`WakeBy::Packet`], another thread, the waker, sleeps until that time and
//! wakes the measured thread. With [`WakeBy::Disk`], the thread reads a disk at that time, and the disk's interrupt wakes it.
//!
//! [`Plan`] is the experiment. `wake_by` says what wakes the threads. `split` attributes the time of a wake-up, `disk` that
//! of a wake-up by a disk, `class` has the classes of causes, `ledger` sums up the wake-ups of a CPU, `wakers` has the chains of wakers of the worst
//! ones, `sample` has the results, and `tables` makes the tables. `probe_check` and `delay_check` compare
//! the live bench with exact values.

mod class;
pub mod delay_check;
pub mod disk;
pub mod experiment;
pub mod in_guest;
pub mod ledger;
pub mod probe_check;
pub mod sample;
pub mod split;
mod tables;
mod wake_by;
pub mod wakers;
mod wakers_table;

pub use class::{Class, cause_in_words};
pub use disk::{DiskReads, WatchedCpu};
pub use experiment::{Plan, WakeupBench, WakeupSamples};
pub use ledger::WakeupLedger;
pub use sample::{
    CpuWakeups, DiskCounts, FunctionTime, NOT_RECORDED, OTHER_FUNCTIONS, ProbeCost, SeedOutcome,
    ThreadReadings, WakerCounts, WakeupSample, WorstFunctions, kind_and_name,
};
pub use split::{CpuState, Part, Running, Stage, Wakeup};
pub use wake_by::{WakeBy, shared_waker_warning};
pub use wakers::Waker;
