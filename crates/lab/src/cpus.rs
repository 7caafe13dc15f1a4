//! CPUs that a plan asks for and a run lacks.

use record::Absence;

/// A CPU of the plan that was not measured, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmeasuredCpu {
    pub cpu: u32,
    /// Why it was not measured.
    pub reason: String,
}

impl UnmeasuredCpu {
    /// Its absence from a table.
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

/// Adds absences, each once.
pub fn add_once(absent: &mut Vec<Absence>, more: impl IntoIterator<Item = Absence>) {
    for absence in more {
        if !absent.contains(&absence) {
            absent.push(absence);
        }
    }
}
