//! [`WaitOutcome`], which `wait` returns and `command` uses.

/// How a window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The window reached its planned end.
    Completed,
    /// The user requested a stop.
    Stopped,
}
