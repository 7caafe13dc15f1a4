//! How a window ended.

/// How a window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// It reached its planned end.
    Completed,
    /// The user requested a stop.
    Stopped,
}
