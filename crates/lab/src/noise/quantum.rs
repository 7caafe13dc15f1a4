//! A quantum of the loop of fixed work.

use super::split::Part;

/// One quantum of fixed work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantum {
    /// When it started, ns.
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
