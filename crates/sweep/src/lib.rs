//! Sweeps: one irqlab command, executed with every combination of the values of some axes.
//!
//! A [`Spec`] states the command and the axes. A [`Plan`] lists the tasks: one for each combination that is not
//! excluded, with an id that is the hash of its arguments, of irqlab's version and of the files that the arguments
//! name. A [`SweepDirectory`] holds the plan and the results. Each result is whole or absent, and is found again by its
//! id. [`merge`] makes one Parquet data set of all results. A [`Search`] chooses which values of an axis to execute, to find the
//! first one that breaks a rule.
//!
//! This crate starts no process and knows no option of irqlab: the command resolves axes to options and executes tasks.

#![forbid(unsafe_code)]

mod arguments;
mod axis;
mod bisect;
mod build;
mod cost;
mod directory;
mod error;
mod execution;
mod files;
mod merge;
mod names;
mod plan;
mod result;
mod spec;
mod status;
mod submit;
mod widening;

pub use arguments::{AxisForm, replace_in_command};
pub use axis::{Axis, Values};
pub use bisect::{Judgement, Search};
pub use build::{Build, BuildExecution, BuildStart, ValueBuild};
pub use cost::MeasuredCosts;
pub use directory::{SweepDirectory, TaskState};
pub use error::SweepError;
pub use execution::{Execution, Recorded, Start, TaskEnd};
pub use files::FileHashes;
pub use merge::{MergeSummary, MissingTasks, checked_run, live_machine, merge};
pub use names::{column_name, nearest};
pub use plan::{Plan, PlannedAxis, Task, TaskId};
pub use result::{Failure, TaskCost};
pub use spec::{COMBINATIONS_MAX, SPEC_BYTES_MAX, Spec};
pub use status::{Status, index_ranges};
pub use submit::{KubernetesJob, Resources, kubernetes_manifest, slurm_script};
