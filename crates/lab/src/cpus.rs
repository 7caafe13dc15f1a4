//! CPUs that a plan asks for, but a run did not measure.

use record::Absence;

/// A CPU of the plan that was not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmeasuredCpu {
    pub cpu: u32,
    /// Why it was not measured.
    pub reason: String,
}

impl UnmeasuredCpu {
    /// The absence of this CPU from a table.
    #[must_use]
    pub fn absence(&self, table: &str) -> Absence {
        Absence {
            table: table.to_owned(),
            what: format!("CPU {}", self.cpu),
            reason: self.reason.clone(),
            remedy: None,
        }
    }
}

/// Adds the absences that `absent` does not contain yet.
pub fn add_once(absent: &mut Vec<Absence>, more: impl IntoIterator<Item = Absence>) {
    for absence in more {
        if !absent.contains(&absence) {
            absent.push(absence);
        }
    }
}
