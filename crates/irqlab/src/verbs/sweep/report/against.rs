//! The figures of another sweep, with which `--against` compares: an older kernel, another version of irqlab, a machine
//! before it was changed. Combinations of both sweeps belong together if they have the same value on each axis.

use std::collections::HashMap;
use std::path::Path;

use anyhow::bail;
use lab::compare::Reading;
use sweep::{Plan, Status, Task};

use super::super::{open, usage};
use super::{Facts, Reader, Wanted};
use crate::options::Usage;

/// The name of each axis with the value of a combination on it, sorted by name. Two plans can have the axes and their
/// values in another order.
type AxisValues = Vec<(String, String)>;

/// The figures of the other sweep.
pub struct Against {
    /// The sweep's directory, as the command line names it.
    pub path: String,
    readings: HashMap<AxisValues, Reading>,
    /// Facts about all of its runs. `None` if no run has the figure.
    pub facts: Option<Facts>,
}

impl Against {
    /// Reads the combinations that `plan` has, too.
    ///
    /// Fails if the sweep in `directory` has other axes than `plan`, if one of its results was edited, or if the system
    /// refuses.
    pub fn read(directory: &Path, plan: &Plan, wanted: &Wanted) -> anyhow::Result<Against> {
        let path = directory.display().to_string();
        let sweep = open(directory)?;
        let other_plan = sweep.plan();
        refuse_other_axes(plan, other_plan, &path)?;
        let in_both: HashMap<AxisValues, &Task> =
            plan.tasks.iter().map(|task| (axis_values(plan, task), task)).collect();
        let is_in_both = |task: &Task| in_both.contains_key(&axis_values(other_plan, task));
        let status = Status::of(&sweep).map_err(usage)?;
        let mut reader = Reader { sweep: &sweep, wanted, facts: None };
        let combinations = reader.read(&status, &is_in_both)?;
        let facts = reader.facts.take();
        let with_values = combinations.into_iter().filter_map(|mut combination| {
            let reading = combination.readings.drain(..).next().flatten()?;
            Some((axis_values(other_plan, combination.task), reading))
        });
        Ok(Against { path, readings: with_values.collect(), facts })
    }

    /// The figure of the combination with the task's values. `None` if the other sweep does not have it.
    pub fn reading(&self, plan: &Plan, task: &Task) -> Option<&Reading> {
        self.readings.get(&axis_values(plan, task))
    }
}

fn axis_values(plan: &Plan, task: &Task) -> AxisValues {
    let mut values: AxisValues =
        plan.named_values(task).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    values.sort();
    values
}

/// Refuses plans whose combinations cannot belong together.
fn refuse_other_axes(plan: &Plan, other_plan: &Plan, path: &str) -> anyhow::Result<()> {
    let names = |plan: &Plan| {
        let mut names: Vec<String> = plan.axes.iter().map(|axis| axis.name.clone()).collect();
        names.sort();
        names
    };
    let (names, other_names) = (names(plan), names(other_plan));
    if names != other_names {
        bail!(Usage(format!(
            "--against: {path} has the axes {}, and this sweep {}",
            other_names.join(", "),
            names.join(", ")
        )));
    }
    Ok(())
}
