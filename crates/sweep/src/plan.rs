//! The plan of a sweep: its tasks, each with an id that is the hash of everything that determines the task.
//! `irqlab sweep plan` makes it, [`SweepDirectory`](crate::SweepDirectory) keeps it, and every other verb reads it.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;

use record::limits::is_name;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::arguments::{AxisForm, arguments, placeholder};
use crate::build::{Build, FILE_PLACEHOLDER, ValueBuild};
use crate::error::SweepError;
use crate::files::{FileHashes, hash_of_bytes};
use crate::names::COLUMN_PREFIX;
use crate::spec::{COMBINATIONS_MAX, Selection, Spec};

/// Version of the format of a plan.
pub const SCHEMA: &str = "irqlab.sweep/1";
/// Maximum size of a plan's file, bytes.
pub(crate) const PLAN_BYTES_MAX: u64 = 256 << 20;
/// Hexadecimal digits of an id. 64 bits: two of 10^6 tasks share an id with a probability of 3 in 10^8.
const ID_DIGITS: usize = 16;

/// The id of a task: the start of the SHA-256 of its plan, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(String);

/// An axis with its values as texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedAxis {
    /// The name in the specification.
    pub name: String,
    #[serde(flatten)]
    pub form: AxisForm,
    /// The column of a merged data set.
    pub column: String,
    pub values: Vec<String>,
}

/// One execution of irqlab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    /// For each axis, the position of the task's value.
    pub values: Vec<u32>,
}

/// All tasks of a sweep. Two plans of the same specification, files and version are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub schema: String,
    /// The version of irqlab that planned the sweep. No other version executes it.
    pub version: String,
    /// The working directory of the planning. Relative paths in arguments start there.
    pub directory: String,
    /// Whether a task measures the machine that it runs on. Such tasks disturb each other.
    pub measures_this_machine: bool,
    /// Arguments that all tasks share. The axes add their arguments to these.
    pub command: Vec<String>,
    pub axes: Vec<PlannedAxis>,
    /// Number of combinations without a task.
    pub excluded_count: u64,
    pub baseline: Option<Vec<(usize, Vec<usize>)>>,
    /// The command that builds a file for each value of an axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// SHA-256 of each file that arguments name.
    pub files: BTreeMap<String, String>,
    pub tasks: Vec<Task>,
}

impl fmt::Display for TaskId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TaskId {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of a task with these arguments. `build`: the command that builds the task's file. `files`: the files that
    /// both name, with the hashes of their contents.
    fn for_arguments(
        version: &str,
        arguments: &[String],
        build: Option<&[String]>,
        files: &BTreeMap<String, String>,
    ) -> TaskId {
        let mut plan = json!({ "version": version, "arguments": arguments, "files": files });
        // Without a build, ids stay as in earlier versions.
        if let Some(words) = build {
            plan["build"] = json!(words);
        }
        let mut hash = hash_of_bytes(plan.to_string().as_bytes());
        hash.truncate(ID_DIGITS);
        TaskId(hash)
    }

    /// Whether `name` has the form of an id. Such a name is a safe file name.
    pub(crate) fn is_id(name: &str) -> bool {
        let is_digit = |sign: u8| sign.is_ascii_digit() || (b'a'..=b'f').contains(&sign);
        name.len() == ID_DIGITS && name.bytes().all(is_digit)
    }
}

impl Plan {
    /// Plans a sweep. `command`: the specification's command without the options that an axis sets. `axes`: a form and
    /// a column for each axis of the specification. `measures_this_machine` starts as `false`.
    ///
    /// Fails if a file cannot be read, a placeholder is not in the command, or no task remains.
    pub fn new(
        spec: &Spec,
        command: Vec<String>,
        axes: Vec<(AxisForm, String)>,
        version: &str,
        directory: &Path,
    ) -> Result<Plan, SweepError> {
        let planned = spec.axes.iter().zip(axes).map(|(axis, (form, column))| PlannedAxis {
            name: axis.name.clone(),
            form,
            column,
            values: axis.values.texts(),
        });
        let mut plan = Plan {
            schema: SCHEMA.to_owned(),
            version: version.to_owned(),
            directory: directory.display().to_string(),
            measures_this_machine: false,
            command,
            axes: planned.collect(),
            excluded_count: 0,
            baseline: spec.baseline.clone().map(|selection| selection.values),
            build: spec.build.clone(),
            files: BTreeMap::new(),
            tasks: Vec::new(),
        };
        plan.check_axes().map_err(SweepError::Invalid)?;
        plan.add_tasks(spec)?;
        Ok(plan)
    }

    /// Adds a task for each combination that is not excluded. The last axis changes fastest.
    fn add_tasks(&mut self, spec: &Spec) -> Result<(), SweepError> {
        let mut hashes = FileHashes::default();
        let mut ids = HashSet::new();
        for index in 0..spec.combination_count() {
            let values = self.combination(index);
            if spec.excluded.iter().any(|selection| selection.selects(&values)) {
                self.excluded_count += 1;
                continue;
            }
            let arguments = self.arguments(&values);
            let build = self.build_words(&values);
            let files = hashes.named_by(&self.words_that_may_name_files(&values))?;
            let id = TaskId::for_arguments(&self.version, &arguments, build.as_deref(), &files);
            self.files.extend(files);
            if !ids.insert(id.clone()) {
                let line = arguments.join(" ");
                return Err(SweepError::Invalid(format!("two tasks are equal: irqlab {line}")));
            }
            self.tasks.push(Task { id, values });
        }
        if self.tasks.is_empty() {
            return Err(SweepError::Invalid("every combination is excluded".to_owned()));
        }
        Ok(())
    }

    /// The positions of values of the combination with this number.
    fn combination(&self, mut index: u64) -> Vec<u32> {
        let mut values = vec![0; self.axes.len()];
        for (value, axis) in values.iter_mut().zip(&self.axes).rev() {
            let count = axis.values.len() as u64;
            *value = (index % count) as u32;
            index /= count;
        }
        values
    }

    /// The arguments of a combination. Executing a task adds further arguments.
    #[must_use]
    pub fn arguments(&self, values: &[u32]) -> Vec<String> {
        self.arguments_with(values, None)
    }

    /// The arguments of a task whose file is built: `file` replaces the value of the built axis.
    #[must_use]
    pub fn arguments_with_file(&self, task: &Task, file: &str) -> Vec<String> {
        self.arguments_with(&task.values, Some(file))
    }

    /// The arguments of a combination. `built`: replaces the value of the built axis.
    fn arguments_with(&self, values: &[u32], built: Option<&str>) -> Vec<String> {
        let built_axis = self.build.as_ref().map(|build| build.axis);
        let value_of = |(position, (axis, value)): (usize, (&PlannedAxis, &u32))| {
            let text = axis.values.get(*value as usize).map_or("", String::as_str);
            built.filter(|_| Some(position) == built_axis).unwrap_or(text).to_owned()
        };
        let texts: Vec<String> = self.axes.iter().zip(values).enumerate().map(value_of).collect();
        let forms = self.axes.iter().map(|axis| &axis.form);
        arguments(&self.command, forms.zip(texts.iter().map(String::as_str)))
    }

    /// The command that builds the file of a combination. `None` if the plan builds no files.
    fn build_words(&self, values: &[u32]) -> Option<Vec<String>> {
        let build = self.build.as_ref()?;
        let value = *values.get(build.axis)? as usize;
        Some(build.words(self.axes.get(build.axis)?.values.get(value)?))
    }

    /// The words of a combination that may name files: of the arguments and of the command that builds its file. The value
    /// for which a file is built names none.
    fn words_that_may_name_files(&self, values: &[u32]) -> Vec<String> {
        let mut words = self.arguments_with(values, Some(""));
        words.extend(self.build.iter().flat_map(|build| build.command.iter().cloned()));
        words
    }

    /// The hashes of the files that a task's words name now.
    ///
    /// Fails if a file exists but cannot be read.
    pub(crate) fn present_files(
        &self,
        task: &Task,
        hashes: &mut FileHashes,
    ) -> Result<BTreeMap<String, String>, SweepError> {
        hashes.named_by(&self.words_that_may_name_files(&task.values))
    }

    /// How the file of a task is built in the directory `parent`. `None` if the plan builds no files.
    pub(crate) fn value_build(&self, task: &Task, parent: &Path) -> Option<ValueBuild> {
        let files = self.planned_files(&self.build.as_ref()?.command);
        Some(ValueBuild::new(self.build_words(&task.values)?, files, parent))
    }

    /// The name and the value of each axis in a task. A value that the axis does not have is empty; the check of a plan refuses it.
    pub fn named_values<'a>(&'a self, task: &'a Task) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.axes.iter().zip(&task.values).map(|(axis, value)| {
            (axis.name.as_str(), axis.values.get(*value as usize).map_or("", String::as_str))
        })
    }

    /// Whether a task is part of the baseline. False for all tasks if the specification has no baseline.
    #[must_use]
    pub fn is_baseline(&self, task: &Task) -> bool {
        let selection = self.baseline.clone().map(|values| Selection { values });
        selection.is_some_and(|selection| selection.selects(&task.values))
    }

    /// The values of the task with which a task is compared: those of the baseline on each axis that it names, and the
    /// task's own values on all other axes. If the baseline names several values of an axis, the first of them on the axis counts.
    /// `None` without a baseline.
    #[must_use]
    pub fn baseline_values(&self, task: &Task) -> Option<Vec<u32>> {
        let mut values = task.values.clone();
        for (axis, positions) in self.baseline.as_ref()? {
            let first = positions.iter().min().and_then(|position| u32::try_from(*position).ok());
            if let (Some(value), Some(first)) = (values.get_mut(*axis), first) {
                *value = first;
            }
        }
        Some(values)
    }

    /// The files that a task's arguments and its build name, by path, with the hashes that they had when the sweep was
    /// planned. Files that did not exist then are not among them.
    #[must_use]
    pub fn files_of(&self, task: &Task) -> BTreeMap<String, String> {
        self.planned_files(&self.words_that_may_name_files(&task.values))
    }

    /// The planned files that words name, by path, with their hashes.
    fn planned_files(&self, words: &[String]) -> BTreeMap<String, String> {
        let parts = words.iter().flat_map(|word| FileHashes::parts(word));
        let named = parts.filter_map(|part| self.files.get_key_value(part));
        named.map(|(path, hash)| (path.clone(), hash.clone())).collect()
    }

    /// Checks a plan that was read from a file: its axes, the number of tasks, and each task's values and id. The error is a
    /// reason.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_axes()?;
        if self.tasks.is_empty() || self.tasks.len() as u64 > COMBINATIONS_MAX {
            return Err(format!("it has {} tasks", self.tasks.len()));
        }
        let mut ids = HashSet::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let is_complete = task.values.len() == self.axes.len();
            let exists =
                |(value, axis): (&u32, &PlannedAxis)| (*value as usize) < axis.values.len();
            if !is_complete || !task.values.iter().zip(&self.axes).all(exists) {
                return Err(format!("task {index} has a value that its axis lacks"));
            }
            if !TaskId::is_id(task.id.as_str()) || !ids.insert(&task.id) {
                return Err(format!("task {index} has the id {:?}", task.id.as_str()));
            }
        }
        Ok(())
    }

    /// Checks that a task's id is the hash of its plan.
    ///
    /// Fails if the plan was edited, because its results would have the wrong ids.
    pub(crate) fn check_id(&self, task: &Task) -> Result<(), String> {
        let (arguments, build) = (self.arguments(&task.values), self.build_words(&task.values));
        let files = self.files_of(task);
        if TaskId::for_arguments(&self.version, &arguments, build.as_deref(), &files) == task.id {
            return Ok(());
        }
        Err(format!(
            "the plan was edited: {} is not the id of irqlab {}",
            task.id,
            arguments.join(" ")
        ))
    }

    /// Checks that axes and `[build]` of a plan that was read from a file fit together: each axis has values, a column
    /// of its own, and its placeholder in the command.
    fn check_axes(&self) -> Result<(), String> {
        if let Some(build) = &self.build {
            build.check(self.axes.len())?;
            let axis = &self.axes[build.axis];
            if matches!(axis.form, AxisForm::Flag { .. }) {
                return Err(format!("[build]: {:?} is an option without a value", axis.name));
            }
            if let Some(value) = axis.values.iter().find(|value| value.contains(FILE_PLACEHOLDER)) {
                return Err(format!("[build]: the value {value:?} contains {FILE_PLACEHOLDER}"));
            }
        }
        let mut columns = HashSet::new();
        for PlannedAxis { name, form, column, values } in &self.axes {
            if values.is_empty() {
                return Err(format!("axis {name:?} has no values"));
            }
            // The prefix keeps the columns of axes apart from all others.
            let is_valid = is_name(column) && column.starts_with(COLUMN_PREFIX);
            if !is_valid || !columns.insert(column.as_str()) {
                return Err(format!(
                    "axis {name:?}: {column:?} cannot be the name of its column, or is the column of another axis"
                ));
            }
            let AxisForm::Placeholder { placeholder: inner } = form else { continue };
            let text = placeholder(inner);
            if !self.command.iter().any(|word| word.contains(&text)) {
                return Err(format!(
                    "axis {name:?}: an option starts with a dash, and {text} is not in the command"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::BuildStart;

    fn plan(text: &str) -> Result<Plan, SweepError> {
        plan_by(text, "0.1.0")
    }

    fn plan_by(text: &str, version: &str) -> Result<Plan, SweepError> {
        let spec = Spec::parse(text)?;
        let form = |name: &str| match name.strip_prefix("--") {
            Some(_) => AxisForm::Option { option: name.to_owned() },
            None => AxisForm::Placeholder { placeholder: name.to_owned() },
        };
        let column = |name: &str| crate::column_name(name).unwrap();
        let axes = spec.axes.iter().map(|axis| (form(&axis.name), column(&axis.name))).collect();
        Plan::new(&spec, spec.command.clone(), axes, version, Path::new("/"))
    }

    const SPEC: &str = "command = ['noise', '--on', 'sim']\n[axes]\n'--seed' = [1, 2, 3]\n'--vcpus' = [1, 2]\n\
        [[exclude]]\n'--seed' = 3\n'--vcpus' = 2\n[baseline]\n'--seed' = 1\n";

    #[test]
    fn every_combination_that_is_not_excluded_is_a_task() {
        let plan = plan(SPEC).unwrap();
        let lines: Vec<String> =
            plan.tasks.iter().map(|task| plan.arguments(&task.values).join(" ")).collect();
        let expected = [
            "--seed=1 --vcpus=1",
            "--seed=1 --vcpus=2",
            "--seed=2 --vcpus=1",
            "--seed=2 --vcpus=2",
            "--seed=3 --vcpus=1",
        ];
        assert_eq!(lines, expected.map(|options| format!("noise --on sim {options}")));
        assert_eq!(plan.excluded_count, 1);
        let baseline = plan.tasks.iter().filter(|task| plan.is_baseline(task)).count();
        assert_eq!(baseline, 2);
        let compared_with: Vec<_> =
            plan.tasks.iter().map(|task| plan.baseline_values(task)).collect();
        assert_eq!(compared_with, [[0, 0], [0, 1], [0, 0], [0, 1], [0, 0]].map(|v| Some(v.into())));
        assert_eq!(plan.check(), Ok(()));
        assert!(plan.tasks.iter().all(|task| plan.check_id(task).is_ok()));
    }

    #[test]
    fn ids_depend_on_arguments_and_version_alone() {
        let first = plan(SPEC).unwrap();
        // These digits must stay: they name results on disks.
        assert_eq!(first.tasks[0].id.as_str(), "0c63a6032d8a05c3");
        assert_eq!(plan(SPEC).unwrap(), first);
        let more = plan(&SPEC.replace("[1, 2, 3]", "[3, 2, 1, 4]")).unwrap();
        let is_kept = |task: &Task| more.tasks.iter().any(|new_task| new_task.id == task.id);
        assert!(first.tasks.iter().all(is_kept), "the same combinations have the same ids");
        let upgraded = plan_by(SPEC, "0.2.0").unwrap();
        assert!(first.tasks.iter().zip(&upgraded.tasks).all(|(old, new)| old.id != new.id));
    }

    #[test]
    fn a_built_file_takes_the_place_of_its_value() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("build-kernel");
        std::fs::write(&script, "1").unwrap();
        let text = format!(
            "command = ['handlers', '--on', 'sim']\n[axes]\n'--kernel' = ['a1', 'b2']\n'--seed' = [1, 2]\n\
             [build]\n'--kernel' = ['{}', '{{value}}', '{{file}}']\n",
            script.display()
        );
        let planned = plan(&text).unwrap();
        assert_eq!(planned.check(), Ok(()));
        let task = &planned.tasks[2];
        assert_eq!(planned.arguments(&task.values)[3..], ["--kernel=b2", "--seed=1"]);
        let with_file = planned.arguments_with_file(task, "x/file");
        assert_eq!(with_file[3..], ["--kernel=x/file", "--seed=1"]);
        // The script is a part of what determines a task.
        assert_eq!(planned.files_of(task).len(), 1);
        assert!(planned.check_id(task).is_ok());
        let start =
            |task: &Task| planned.value_build(task, directory.path()).unwrap().start().unwrap();
        let BuildStart::Ready(first) = start(task) else { panic!("it can be built") };
        let command = first.command().unwrap();
        assert_eq!(command[1], "b2");
        std::fs::write(&command[2], "kernel").unwrap();
        let built = first.finish().unwrap().unwrap();
        let is_built = |task: &Task| matches!(start(task), BuildStart::Done(path) if path == built);
        assert!(is_built(task) && is_built(&planned.tasks[3]), "one file for both seeds");
        assert!(matches!(start(&planned.tasks[0]), BuildStart::Ready(_)));
        std::fs::write(&script, "2").unwrap();
        assert_ne!(plan(&text).unwrap().tasks[2].id, task.id);
        let error = plan(&text.replace("'a1'", "'a{file}'")).unwrap_err().to_string();
        assert!(error.contains("contains {file}"), "{error}");
    }

    #[test]
    fn ids_depend_on_the_content_of_files() {
        let directory = tempfile::tempdir().unwrap();
        let kernel = directory.path().join("bzImage");
        let text = format!(
            "command = ['sim', 'boot', '--kernel', '{}']\n[axes]\n'--vcpus' = [1]\n",
            kernel.display()
        );
        std::fs::write(&kernel, "a").unwrap();
        let first = plan(&text).unwrap();
        std::fs::write(&kernel, "b").unwrap();
        let second = plan(&text).unwrap();
        assert_ne!(first.tasks[0].id, second.tasks[0].id);
        assert_eq!(first.files_of(&first.tasks[0]).len(), 1);
        assert!(first.check_id(&first.tasks[0]).is_ok());
        let mut edited = first.clone();
        edited.command.push("--quiet".to_owned());
        assert!(edited.check_id(&edited.tasks[0]).unwrap_err().contains("edited"));
    }

    #[test]
    fn plans_without_a_task_or_with_ambiguous_columns_are_refused() {
        let error = |text: &str| plan(text).unwrap_err().to_string();
        let text = "command = ['x']\n[axes]\n'--a' = [1]\n[[exclude]]\n'--a' = 1\n";
        assert!(error(text).contains("every combination is excluded"));
        let text = "command = ['x']\n[axes]\n'--a.b' = [1]\n'--a-b' = [1]\n";
        assert!(error(text).contains("column of another axis"));
        assert!(error("command = ['x']\n[axes]\nwork = [1]\n").contains("{work} is not in"));
    }
}
