//! Measured values, each with the limit that it must keep if there is one. The tables of `irqlab bench` use them.

use record::{Column, Columns, column};

/// A measured value, and the limit that it must keep if there is one.
pub struct Target {
    name: &'static str,
    value: Option<f64>,
    /// Largest value that meets the target; `None`: there is no target.
    limit: Option<f64>,
}

impl Target {
    /// A value without a target.
    #[must_use]
    pub fn unlimited(name: &'static str, value: impl Into<Option<f64>>) -> Target {
        Target { name, value: value.into(), limit: None }
    }

    /// A value that meets its target if it is at most `limit`.
    #[must_use]
    pub fn at_most(name: &'static str, value: impl Into<Option<f64>>, limit: f64) -> Target {
        Target { name, value: value.into(), limit: Some(limit) }
    }

    fn is_met(&self) -> Option<bool> {
        self.value.zip(self.limit).map(|(value, limit)| value <= limit)
    }
}

/// The columns of a target's name, value and limit, and the column `met`.
#[must_use]
pub fn target_columns<'a>(name: Column, value: Column, limit: Column) -> Columns<'a, Target> {
    Columns::all([
        name.text(|target: &Target| target.name),
        value.real(|target: &Target| target.value),
        limit.real(|target: &Target| target.limit),
        column("met", "Whether the target is met.").bool(Target::is_met),
    ])
}
