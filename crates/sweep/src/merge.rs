//! One data set of all results of a sweep: a directory for each table with a Parquet file in it. The axes are columns.
//!
//! The results are read twice, one after the other. The first pass checks them and collects the columns of each table;
//! the second pass copies the rows. So the memory does not grow with the number of tasks.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use outputs::{Existing, NewDirectory, NewFile};
use record::{Column, Kind, ParquetFile, Rows, Run, StoredRun, Value, keys};
use serde_json::json;

use crate::directory::SweepDirectory;
use crate::error::{SweepError, making};
use crate::plan::{Plan, PlannedAxis, Task};
use crate::result::{RUN, ResultManifest};
use crate::widening::{common_kind, widened};

/// Name of the table with a row for each task.
const TASKS_TABLE: &str = "tasks";
/// Name of the column with a task's id.
const TASK_COLUMN: &str = "task_id";
/// Name of the only Parquet file of a table.
const FILE: &str = "data.parquet";
/// Name of the file that documents all columns.
const COLUMNS_FILE: &str = "columns.json";
/// Maximum number of tables in a data set.
const TABLES_MAX: usize = 256;

/// How a merge treats tasks without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingTasks {
    Refused,
    /// Their rows are left out. Only the table of tasks names them.
    LeftOut,
}

/// The size of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeSummary {
    /// Machines of the live runs, each once. With several, a difference of two tasks can be one of machines.
    pub live_machines: BTreeSet<String>,
    pub task_count: usize,
    pub missing_count: usize,
    /// Names of tables, each with its number of rows.
    pub tables: Vec<(String, u64)>,
}

/// A task of the plan, with the directory of its result if there is one.
struct MergedTask<'a> {
    index: usize,
    task: &'a Task,
    result: Option<PathBuf>,
}

/// A table of the data set.
struct MergedTable {
    name: String,
    /// Columns that any run has in this table, without axis columns. A run may lack some of these columns.
    columns: Vec<Column>,
}

/// Merges the results of sweeps with the same tasks into the new directory `out`. Several sweeps are parts of one plan
/// that was executed in several places.
///
/// `is_stopped` ends the merging early, with an error.
///
/// Fails if a result was edited or comes from another version of irqlab, if two results of a task differ, if tasks are
/// missing and `missing` refuses that, or if the system refuses. Nothing is left then.
pub fn merge(
    sweeps: &[SweepDirectory],
    out: &Path,
    missing: MissingTasks,
    is_stopped: &dyn Fn() -> bool,
) -> Result<MergeSummary, SweepError> {
    let plan = common_plan(sweeps)?;
    let axes = AxisColumns::new(plan);
    let mut tables = Vec::new();
    let mut tasks = Vec::new();
    let mut live_machines = BTreeSet::new();
    for (index, task) in plan.tasks.iter().enumerate() {
        refuse_stop(is_stopped)?;
        let result = checked_result(sweeps, task)?;
        if let Some(directory) = &result {
            let run = StoredRun::open(&directory.join(RUN))?;
            add_columns(&mut tables, run.outline(), &axes)
                .map_err(|reason| SweepError::damaged(&directory.join(RUN), reason))?;
            live_machines.extend(live_machine(run.outline()));
        }
        tasks.push(MergedTask { index, task, result });
    }
    let missing_count = tasks.iter().filter(|task| task.result.is_none()).count();
    if missing_count > 0 && missing == MissingTasks::Refused {
        return Err(SweepError::Invalid(format!(
            "{missing_count} of {} tasks have no result (irqlab sweep status lists them; --allow-missing merges the others)",
            tasks.len()
        )));
    }
    let tables = write_tables(plan, &axes, &tables, &tasks, out, is_stopped)?;
    Ok(MergeSummary { live_machines, task_count: tasks.len(), missing_count, tables })
}

/// The plan of all sweeps.
fn common_plan(sweeps: &[SweepDirectory]) -> Result<&Plan, SweepError> {
    let [first, others @ ..] = sweeps else {
        return Err(SweepError::Invalid("no sweep is named".to_owned()));
    };
    for other in others {
        let (here, there) = (first.path().display(), other.path().display());
        let (plan, other_plan) = (first.plan(), other.plan());
        if plan.version != other_plan.version {
            return Err(SweepError::Invalid(format!(
                "{here} was planned by irqlab {}, and {there} by {}",
                plan.version, other_plan.version
            )));
        }
        if plan.tasks != other_plan.tasks || plan.axes != other_plan.axes {
            return Err(SweepError::Invalid(format!("{here} and {there} have different plans")));
        }
    }
    Ok(first.plan())
}

/// The directory of a task's result, after its files were checked against its manifest. `None` if no sweep has a result.
fn checked_result(sweeps: &[SweepDirectory], task: &Task) -> Result<Option<PathBuf>, SweepError> {
    let mut found: Option<(PathBuf, ResultManifest)> = None;
    for sweep in sweeps.iter().filter(|sweep| sweep.is_done(task)) {
        let directory = sweep.task_path(&task.id);
        let manifest = ResultManifest::read(&directory)?;
        check_manifest(&manifest, &directory, sweep.plan(), task)?;
        match &found {
            None => found = Some((directory, manifest)),
            Some((first, first_manifest))
                if first_manifest.tables_hash() != manifest.tables_hash() =>
            {
                return Err(SweepError::Invalid(format!(
                    "task {} has two different results: {} and {} (remove one of them)",
                    task.id,
                    first.display(),
                    directory.display()
                )));
            }
            Some(_) => {}
        }
    }
    Ok(found.map(|(directory, _)| directory))
}

/// The run directory of a task's result, after the result was checked against its manifest. `None` if the task has no
/// result.
///
/// Fails if the result was edited, or comes from another version of irqlab.
pub fn checked_run(sweep: &SweepDirectory, task: &Task) -> Result<Option<PathBuf>, SweepError> {
    let result = checked_result(std::slice::from_ref(sweep), task)?;
    Ok(result.map(|directory| directory.join(RUN)))
}

fn check_manifest(
    manifest: &ResultManifest,
    directory: &Path,
    plan: &Plan,
    task: &Task,
) -> Result<(), SweepError> {
    if manifest.version != plan.version {
        return Err(SweepError::Invalid(format!(
            "{} is a result of irqlab {}, and the sweep was planned by {}",
            directory.display(),
            manifest.version,
            plan.version
        )));
    }
    if manifest.id != task.id || manifest.arguments != plan.arguments(&task.values) {
        return Err(SweepError::damaged(directory, "is the result of another task"));
    }
    manifest.check(directory)
}

/// The machine of a live run: its processor and the release of its kernel. `None` for a simulated run, which has the same
/// figures on each machine.
#[must_use]
pub fn live_machine(run: &Run) -> Option<String> {
    let fact = |name| host_text(run, name).unwrap_or_else(|| "unknown".to_owned());
    (run.bench == "live")
        .then(|| format!("{}, kernel {}", fact(keys::CPU_MODEL), fact(keys::KERNEL)))
}

/// A fact of the run's machine that is a text.
fn host_text(run: &Run, name: &str) -> Option<String> {
    run.host.get(name).and_then(|value| value.as_str()).map(str::to_owned)
}

/// Adds the tables and columns of a run to those of the data set. A column of numbers whose kind differs between tasks gets
/// the kind that holds the numbers of all of them.
///
/// The error is a reason: a table has the name of the table of tasks, there are more than [`TABLES_MAX`] tables, a column
/// has the name of a column of an axis, or no kind holds the values of a column in all tasks.
fn add_columns(
    tables: &mut Vec<MergedTable>,
    run: &Run,
    axes: &AxisColumns<'_>,
) -> Result<(), String> {
    for table in &run.tables {
        let in_table = |reason: String| format!("table {}: {reason}", table.name);
        let merged = merged_table(tables, &table.name).map_err(in_table)?;
        for column in &table.columns {
            if axes.has(&column.name) {
                let reason = format!("column {} has the name of a column of the axes", column.name);
                return Err(in_table(reason));
            }
            merged.merge_column(column).map_err(in_table)?;
        }
    }
    Ok(())
}

/// The table of the data set with this name; a new one if there is none. The error is a reason.
fn merged_table<'t>(
    tables: &'t mut Vec<MergedTable>,
    name: &str,
) -> Result<&'t mut MergedTable, String> {
    let position = match tables.iter().position(|merged| merged.name == name) {
        Some(position) => position,
        None if name == TASKS_TABLE => return Err("this name is reserved".to_owned()),
        None if tables.len() >= TABLES_MAX => {
            return Err(format!("the results have more than {TABLES_MAX} tables"));
        }
        None => {
            tables.push(MergedTable { name: name.to_owned(), columns: Vec::new() });
            tables.len() - 1
        }
    };
    Ok(&mut tables[position])
}

impl MergedTable {
    /// Adds a column, or widens the kind of the known column with its name. The error is a reason.
    fn merge_column(&mut self, column: &Column) -> Result<(), String> {
        let Some(known) = self.columns.iter_mut().find(|known| known.name == column.name) else {
            self.columns.push(column.clone());
            return Ok(());
        };
        known.kind = common_kind(known.kind, column.kind).ok_or_else(|| {
            format!(
                "column {} is {} here and {} in another task",
                column.name, column.kind, known.kind
            )
        })?;
        Ok(())
    }
}

/// The columns in front of every table: the id of the task, and its value on each axis.
struct AxisColumns<'a> {
    axes: &'a [PlannedAxis],
    columns: Vec<Column>,
}

impl<'a> AxisColumns<'a> {
    fn new(plan: &'a Plan) -> AxisColumns<'a> {
        let mut columns = vec![Column::new(TASK_COLUMN, Kind::Text, "Id of the task.").key()];
        for axis in &plan.axes {
            let doc = format!("The task's value of {}.", axis.name);
            columns.push(Column::new(&axis.column, kind_of(&axis.values), &doc).key());
        }
        AxisColumns { axes: &plan.axes, columns }
    }

    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }

    /// The task's values in the columns of the axes, in the order of `columns`.
    fn values(&self, task: &Task) -> Vec<Value> {
        let mut values = vec![Value::from(task.id.as_str())];
        for ((axis, position), column) in self.axes.iter().zip(&task.values).zip(&self.columns[1..])
        {
            let text = axis.values.get(*position as usize).map_or("", String::as_str);
            values.push(match column.kind {
                Kind::Uint => text.parse().map_or(Value::Absent, Value::Uint),
                Kind::Int => text.parse().map_or(Value::Absent, Value::Int),
                _ => Value::from(text),
            });
        }
        values
    }
}

/// Integers if every value is one in its usual form, else text.
fn kind_of(values: &[String]) -> Kind {
    let all = |is_kind: fn(&str) -> bool| values.iter().all(|value| is_kind(value));
    if all(|text| text.parse::<u64>().is_ok_and(|number| number.to_string() == text)) {
        Kind::Uint
    } else if all(|text| text.parse::<i64>().is_ok_and(|number| number.to_string() == text)) {
        Kind::Int
    } else {
        Kind::Text
    }
}

/// Writes the data set to the new directory `out`: table `tasks` with a row for each task, and the tables of all
/// results. Opens one result at a time. Returns name and number of rows of each table.
///
/// Fails if `out` exists, a result is damaged, or the user asks to stop; `out` then does not appear.
fn write_tables(
    plan: &Plan,
    axes: &AxisColumns<'_>,
    tables: &[MergedTable],
    tasks: &[MergedTask<'_>],
    out: &Path,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<(String, u64)>, SweepError> {
    let directory = NewDirectory::create(out).map_err(making(out))?;
    let task_columns = task_columns();
    let task_columns_all = [&axes.columns[..], &task_columns[..]].concat();
    let mut task_file = TableFile::create(&directory, TASKS_TABLE, task_columns_all, out)?;
    let mut files = HashMap::new();
    for table in tables {
        let columns = [&axes.columns[..], &table.columns[..]].concat();
        files
            .insert(table.name.as_str(), TableFile::create(&directory, &table.name, columns, out)?);
    }
    for merged in tasks {
        refuse_stop(is_stopped)?;
        let values = axes.values(merged.task);
        let mut row = values.clone();
        let run =
            merged.result.as_ref().map(|result| StoredRun::open(&result.join(RUN))).transpose()?;
        let exit_code = merged
            .result
            .as_deref()
            .map(ResultManifest::read)
            .transpose()?
            .map(|manifest| manifest.exit_code);
        row.extend(task_values(plan, merged, run.as_ref().map(StoredRun::outline), exit_code));
        task_file.push(row)?;
        if let Some(run) = &run {
            let path = merged.result.as_deref().unwrap_or(out);
            copy_rows(run, path, tables, &mut files, &values)?;
        }
    }
    let mut sizes = vec![task_file.finish()?];
    for table in tables {
        if let Some(file) = files.remove(table.name.as_str()) {
            sizes.push(file.finish()?);
        }
    }
    let named = tables.iter().map(|table| (table.name.as_str(), &table.columns));
    let named = named.chain([(TASKS_TABLE, &task_columns)]);
    directory.write(COLUMNS_FILE, documentation(axes, named).as_bytes()).map_err(making(out))?;
    directory.finish().map_err(making(out))?;
    Ok(sizes)
}

/// Copies all rows of a run. `path`: the directory of its result.
///
/// Fails if the kind of a column, which other tasks make another one, does not have exactly a number of this task.
fn copy_rows(
    run: &StoredRun,
    path: &Path,
    tables: &[MergedTable],
    files: &mut HashMap<&str, TableFile>,
    values: &[Value],
) -> Result<(), SweepError> {
    for table in &run.outline().tables {
        let Some(merged) = tables.iter().find(|merged| merged.name == table.name) else { continue };
        let Some(file) = files.get_mut(table.name.as_str()) else { continue };
        let positions: Vec<Option<usize>> =
            merged.columns.iter().map(|column| table.column(&column.name)).collect();
        let mut inexact = None;
        let copy = &mut |row: &[Value]| {
            let cell = |(position, column): (&Option<usize>, &Column)| {
                let value = position.and_then(|position| row.get(position));
                let value = value.unwrap_or(&Value::Absent);
                widened(value, column.kind).unwrap_or_else(|| {
                    inexact.get_or_insert((column.name.clone(), column.kind, value.clone()));
                    Value::Absent
                })
            };
            let cells = positions.iter().zip(&merged.columns).map(cell);
            let row = values.iter().cloned().chain(cells).collect();
            file.file.push(row).map(|()| file.row_count += 1)
        };
        let copied = run.for_each_row(table, copy);
        if let Some((column, kind, value)) = inexact {
            let reason = format!(
                "table {}: column {column} has {} here, which is no number of the kind {kind} that the merged column has \
                 because of other tasks",
                table.name,
                value.to_json()
            );
            return Err(SweepError::damaged(path, reason));
        }
        copied.map_err(|error| SweepError::reading(Path::new(&table.name))(error))?;
    }
    Ok(())
}

/// Columns of the table of tasks. They follow the axis columns.
fn task_columns() -> Vec<Column> {
    vec![
        Column::new("task_index", Kind::Uint, "Position of the task in the plan, as for --index."),
        Column::new("is_done", Kind::Bool, "Whether the task has a result."),
        Column::new(
            "is_baseline",
            Kind::Bool,
            "Whether the specification's baseline selects the task.",
        ),
        Column::new("experiment", Kind::Text, "Experiment of the run."),
        Column::new("bench", Kind::Text, "Bench of the run."),
        Column::new("started_utc", Kind::Text, "Start of the run, UTC."),
        Column::new(
            "host_cpu_model",
            Kind::Text,
            "Processor of the run's machine, as the run names it.",
        ),
        Column::new("host_kernel", Kind::Text, "Release of the kernel of the run's machine."),
        Column::new("exit_code", Kind::Int, "Exit code of irqlab."),
        Column::new("warning_count", Kind::Uint, "Number of warnings of the run."),
        Column::new(
            "absent_count",
            Kind::Uint,
            "Number of results that the run lacks, with reasons.",
        ),
    ]
}

fn task_values(
    plan: &Plan,
    merged: &MergedTask<'_>,
    run: Option<&Run>,
    exit_code: Option<i32>,
) -> Vec<Value> {
    vec![
        Value::Uint(merged.index as u64),
        run.is_some().into(),
        plan.is_baseline(merged.task).into(),
        run.map(|run| run.experiment.clone()).into(),
        run.map(|run| run.bench.clone()).into(),
        run.map(|run| run.started_utc.clone()).into(),
        run.and_then(|run| host_text(run, keys::CPU_MODEL)).into(),
        run.and_then(|run| host_text(run, keys::KERNEL)).into(),
        exit_code.map_or(Value::Absent, |code| Value::Int(i64::from(code))),
        run.map(|run| run.warnings.len() as u64).into(),
        run.map(|run| run.absent.len() as u64).into(),
    ]
}

/// The meaning of every column, as JSON.
fn documentation<'t>(
    axes: &AxisColumns<'_>,
    tables: impl Iterator<Item = (&'t str, &'t Vec<Column>)>,
) -> String {
    let mut entries = serde_json::Map::new();
    for (name, columns) in tables {
        let all = axes.columns.iter().chain(columns);
        let columns: Vec<_> = all
            .map(|column| json!({ "name": column.name, "kind": column.kind, "doc": column.doc }))
            .collect();
        entries.insert(name.to_owned(), columns.into());
    }
    format!("{:#}\n", serde_json::Value::Object(entries))
}

/// The Parquet file of a table that is being written.
struct TableFile {
    name: String,
    path: PathBuf,
    row_count: u64,
    file: ParquetFile<NewFile>,
}

impl TableFile {
    fn create(
        directory: &NewDirectory,
        name: &str,
        columns: Vec<Column>,
        out: &Path,
    ) -> Result<TableFile, SweepError> {
        directory.create_directory(name).map_err(making(out))?;
        let path = directory.hidden_path().join(name).join(FILE);
        let failed = SweepError::writing(&path);
        let file = NewFile::create(&path, Existing::Stays).map_err(&failed)?;
        let file = ParquetFile::new(file, columns).map_err(&failed)?;
        drop(failed);
        Ok(TableFile { name: name.to_owned(), path, row_count: 0, file })
    }

    fn push(&mut self, row: Vec<Value>) -> Result<(), SweepError> {
        self.row_count += 1;
        self.file.push(row).map_err(SweepError::writing(&self.path))
    }

    /// Completes the file. Returns the table's name and its number of rows.
    fn finish(self) -> Result<(String, u64), SweepError> {
        let written = self.file.finish().and_then(NewFile::finish);
        written.map_err(SweepError::writing(&self.path))?;
        Ok((self.name, self.row_count))
    }
}

fn refuse_stop(is_stopped: &dyn Fn() -> bool) -> Result<(), SweepError> {
    if is_stopped() {
        return Err(SweepError::Invalid("stopped; nothing was written".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;

    #[test]
    fn an_axis_of_whole_numbers_has_numbers_in_its_column() {
        let kind = |values: &[&str]| {
            kind_of(&values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(kind(&["1", "20"]), Kind::Uint);
        assert_eq!(kind(&["-1", "20"]), Kind::Int);
        assert_eq!(kind(&["1", "02"]), Kind::Text);
        assert_eq!(kind(&["1", "2k"]), Kind::Text);
        assert_eq!(kind(&["0.5"]), Kind::Text);
    }

    #[test]
    fn a_table_that_cannot_be_merged_is_refused_with_its_reason() {
        let run = |table: &str, columns: &[(&str, Kind)]| {
            let columns = columns.iter().map(|(name, kind)| Column::new(name, *kind, ""));
            let tables = vec![record::Table::new(table, "", columns.collect())];
            Run { tables, ..live_run(json!({})) }
        };
        let columns = vec![Column::new(TASK_COLUMN, Kind::Text, "").key()];
        let axes = AxisColumns { axes: &[], columns };
        let mut tables = Vec::new();
        add_columns(&mut tables, &run("times", &[("ns", Kind::Uint)]), &axes).unwrap();
        let mut reason = |table: &str, column: &str, kind: Kind| {
            add_columns(&mut tables, &run(table, &[(column, kind)]), &axes).unwrap_err()
        };
        let other_kind = reason("times", "ns", Kind::Text);
        assert_eq!(other_kind, "table times: column ns is text here and uint in another task");
        let axis = reason("times", TASK_COLUMN, Kind::Text);
        assert_eq!(axis, "table times: column task_id has the name of a column of the axes");
        assert_eq!(reason(TASKS_TABLE, "ns", Kind::Uint), "table tasks: this name is reserved");
        for number in 1..TABLES_MAX {
            merged_table(&mut tables, &format!("table_{number}")).unwrap();
        }
        let too_many = merged_table(&mut tables, "one_more").err();
        assert_eq!(too_many.as_deref(), Some("the results have more than 256 tables"));
    }

    /// A live run with these facts of its machine.
    fn live_run(host: Json) -> Run {
        let Json::Object(host) = host else { panic!("it has facts") };
        Run {
            schema: record::SCHEMA.to_owned(),
            experiment: "handlers".to_owned(),
            bench: "live".to_owned(),
            started_utc: "2026-11-29T00:00:00Z".to_owned(),
            complete: true,
            host,
            settings: Default::default(),
            observer: Default::default(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: Vec::new(),
        }
    }

    #[test]
    fn live_runs_name_their_machine_and_simulated_runs_name_none() {
        let machine = |bench: &str, host: Json| {
            live_machine(&Run { bench: bench.to_owned(), ..live_run(host) })
        };
        let host = json!({ "cpu_model": "A 1", "kernel": "6.18" });
        assert_eq!(machine("live", host.clone()).as_deref(), Some("A 1, kernel 6.18"));
        assert_eq!(machine("live", json!({})).as_deref(), Some("unknown, kernel unknown"));
        assert_eq!(machine("sim", host), None);
    }
}
