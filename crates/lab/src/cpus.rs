//! CPUs of a plan that a run did not measure, or did not measure to the end of the window. All experiments report them
//! by these warnings and absences.

use record::Absence;

use crate::cpu_warnings::CpuWarning;

const WENT_OFFLINE: &str =
    "went offline in the window: measured until then; its rates and shares cover this time";
const CAME_ONLINE: &str = "came online in the window: not measured after that";

/// The warning about a CPU that went offline `after_s` seconds after the window opened. The CPU's window ended then.
#[must_use]
pub fn went_offline(cpu: u32, after_s: f64) -> CpuWarning {
    CpuWarning::new(cpu, WENT_OFFLINE).with_extent(after_s, format!("after {after_s:.3} s"))
}

/// The warning about a CPU that came online while the window was open.
#[must_use]
pub fn came_online(cpu: u32) -> CpuWarning {
    CpuWarning::new(cpu, CAME_ONLINE)
}

/// A CPU of the plan that was not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmeasuredCpu {
    pub cpu: u32,
    /// Why it was not measured, in words.
    pub reason: String,
}

impl UnmeasuredCpu {
    /// The absence of this CPU from a table.
    #[must_use]
    pub fn absence(&self, table: &str) -> Absence {
        Absence::new(table, format!("CPU {}", self.cpu), &self.reason)
    }
}

/// Adds the items that `all` does not contain yet.
pub fn add_once<T: PartialEq>(all: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for item in more {
        if !all.contains(&item) {
            all.push(item);
        }
    }
}
