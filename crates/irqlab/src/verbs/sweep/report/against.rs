//! The figures of another sweep, with which `--against` compares: an older kernel, another version of irqlab, a machine
//! before it was changed. Combinations of both sweeps belong together if they have the same value on each axis.

use std::collections::HashMap;
use std::path::Path;

use anyhow::bail;
use lab::compare::Reading;
use report::shell_word;
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
    /// How the commands of the two sweeps differ, apart from the axes. `None` if they are equal.
    pub command_difference: Option<String>,
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
        let status = Status::read(&sweep).map_err(usage)?;
        let mut reader = Reader { sweep: &sweep, wanted, facts: None };
        let combinations = reader.read(&status, &is_in_both)?;
        let facts = reader.facts.take();
        let with_values = combinations.into_iter().filter_map(|mut combination| {
            let reading = combination.readings.drain(..).next().flatten()?;
            Some((axis_values(other_plan, combination.task), reading))
        });
        let command_difference = command_difference(plan, other_plan, &path);
        Ok(Against { path, readings: with_values.collect(), facts, command_difference })
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

/// A sentence with the arguments that only one of the two plans' commands has, and with files whose contents differ.
/// `None` if there are none. The order of options does not count.
fn command_difference(plan: &Plan, other_plan: &Plan, path: &str) -> Option<String> {
    let (mut here, mut there) = (options(&plan.command), options(&other_plan.command));
    here.retain(|option| match there.iter().position(|other| other == option) {
        Some(position) => {
            there.swap_remove(position);
            false
        }
        None => true,
    });
    there.sort_unstable();
    let changed_files = plan.files.iter().filter(|(name, hash)| {
        other_plan.files.get(*name).is_some_and(|other_hash| other_hash != *hash)
    });
    let changed_files: Vec<&str> = changed_files.map(|(name, _)| name.as_str()).collect();
    let builds = if plan.build == other_plan.build { Vec::new() } else { vec!["[build]"] };
    let parts = [
        ("differ".to_owned(), builds),
        (format!("only in {path}"), there.iter().map(String::as_str).collect()),
        ("only here".to_owned(), here.iter().map(String::as_str).collect()),
        ("other contents".to_owned(), changed_files),
    ];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> =
        parts.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "the commands of the two sweeps differ, so the changes may be due to that ({})",
            parts.join("; ")
        )
    })
}

/// The options of a command, each with its values. Words before the first option are one part.
fn options(command: &[String]) -> Vec<String> {
    let starts_option = |word: &&String| word.starts_with('-') && word.len() > 1;
    let mut parts: Vec<String> = Vec::new();
    for word in command {
        match parts.last_mut() {
            Some(part) if !starts_option(&word) => *part += &format!(" {}", shell_word(word)),
            _ => parts.push(shell_word(word)),
        }
    }
    parts
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn plan(command: &str, hash: &str) -> Plan {
        let files: BTreeMap<String, String> = [("bzImage".to_owned(), hash.to_owned())].into();
        Plan {
            schema: String::new(),
            version: String::new(),
            directory: String::new(),
            measures_this_machine: false,
            command: command.split(' ').map(str::to_owned).collect(),
            axes: Vec::new(),
            excluded_count: 0,
            baseline: None,
            build: None,
            files,
            tasks: Vec::new(),
        }
    }

    #[test]
    fn commands_that_differ_are_named() {
        let difference = |here: &str, there: &str| {
            command_difference(&plan(here, "a"), &plan(there, "a"), "sunday")
        };
        let same = "handlers --on sim:zen3 -d 1s";
        assert_eq!(difference(same, same), None);
        assert_eq!(difference(same, "handlers -d 1s --on sim:zen3"), None);
        let differ = "the commands of the two sweeps differ, so the changes may be due to that";
        assert_eq!(
            difference(same, "handlers --on sim:zen3 -d 5s --warm-up 2s"),
            Some(format!("{differ} (only in sunday: --warm-up 2s, -d 5s; only here: -d 1s)"))
        );
        assert_eq!(
            command_difference(&plan(same, "a"), &plan(same, "b"), "sunday"),
            Some(format!("{differ} (other contents: bzImage)"))
        );
    }
}
