//! The tool that reports which contexts ran in a traced repetition.

/// Reports which contexts ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// BPF probes, attached for this repetition only, because they displace lines too.
    Probes,
    /// A simulator outside this machine, which needs only the times of the window.
    Outside,
}
