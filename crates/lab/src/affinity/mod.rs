//! Where device interrupts should run, by their measured cost. [`costs`] reads costs from a run of `handlers`,
//! [`planner`] places the lines, [`tables`] shows both. Pure functions: `live` reads the machine and changes it.

pub mod costs;
pub mod planner;
pub mod tables;

pub use costs::{Costs, CostsError, DeviceLines, Load};
pub use planner::{Placement, PlanMeasure, PlannedCpu, PlannedLine, Problem, Reason, plan};
pub use tables::{
    AffinityReport, AppliedChange, Busiest, CpuReport, CpuRole, LineAfter, LineReport,
    affinity_cpu_table, affinity_table,
};
