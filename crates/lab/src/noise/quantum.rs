//! A quantum of fixed work: one repetition of the loop `fwq`.

use super::split::Part;

/// One quantum of fixed work on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantum {
    /// Start of the quantum, ns.
    pub start_ns: u64,
    /// Duration of the quantum, ns.
    pub time_ns: u64,
    /// Time that kernel events name in the quantum, ns. `None` without tracing.
    pub named_ns: Option<u64>,
    /// The largest part that kernel events name in the quantum. `None` if they name none, and without tracing.
    pub main: Option<Part>,
    /// Whether the loop had a page fault in the quantum. `None` without tracing.
    pub faulted: Option<bool>,
}
