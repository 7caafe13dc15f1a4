//! `irqlab sweep report`: one figure of every combination, its change against the baseline or another sweep, and the best
//! combination.
//!
//! `selection` chooses combinations, table, column and row. This file reads the runs one after the other and keeps only
//! readings of them. `lab::compare` judges the changes, `tables` makes the table, and `report`
//! prints it and draws the page.

mod against;
mod best;
mod page;
pub mod selection;
mod tables;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use lab::compare::{self, Change, Reading, Verdict};
use record::{Column, Part, Role, Run, StoredRun, Table};
use report::shell_word;
use sweep::{Failure, Plan, Status, SweepDirectory, Task, checked_run, live_machine};

use self::against::Against;
use self::best::{Candidate, Goal, best_sentences};
use self::selection::{AxisValue, ChosenColumn, chosen_column, chosen_row, offered_rows, row_name};
use super::{open, print_with_answers, usage, values_text};
use crate::console;
use crate::options::Usage;
use crate::output_file::{self, ForceArgs};
use crate::run::{DIFFERS, stop_on_signals};

/// Figures that are not exact and differ by less than this ratio count as equal. `compare` has this default, too.
pub const MARGIN_RATIO: f64 = 0.02;
/// Other tables than the reported one are read for shares of CPU time, unless they have more rows.
const OTHER_TABLE_ROWS_MAX: u64 = 100_000;

/// Report one figure of every combination, its change against the baseline, and the best combination
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep report caches --row RCU
  irqlab sweep report caches --row RCU --column self_max_ns -o caches.html
  irqlab sweep report caches --row RCU --where on=sim:zen3
  irqlab sweep report caches --row RCU --best 'min self_mean_ns subject to self_max_ns<=5us'
  irqlab sweep report monday --row RCU --against sunday --fail-on worse

Changes are judged as irqlab compare judges them. A combination without a result is listed, and is never zero.

Exit codes: 0 reported, also if combinations have no result; 1 failed, or a result was edited; 2 the command line is
wrong, or no combination has the figure; 3 --fail-on found a change, or a combination without a verdict.")]
pub struct ReportArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR")]
    sweep: PathBuf,
    /// Table of the runs [default: the first table with the column]
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Column with the figure [default: the headline column of the experiment]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Row of the table: NAME, or KEY=VALUE of a key column; may be repeated
    #[arg(long, value_name = "ROW")]
    row: Vec<String>,
    /// Report only combinations with this value of an axis; may be repeated
    #[arg(long = "where", value_name = "AXIS=VALUE")]
    conditions: Vec<String>,
    /// Compare each combination with the same one of this sweep instead of the baseline
    #[arg(long, value_name = "BASE")]
    against: Option<PathBuf>,
    /// Exit with 3 if a combination changed for the worse (or at all), or cannot be judged: it has no
    /// other figure, or no interval
    #[arg(long, value_name = "CHANGE")]
    fail_on: Option<FailOn>,
    /// Name the best combination: 'min COLUMN' or 'max COLUMN', perhaps with 'subject to COLUMN<=NUMBER, ...'
    #[arg(long, value_name = "GOAL")]
    best: Option<Goal>,
    /// Also write an HTML page with pictures over the axes to this file
    #[arg(short, long, visible_alias = "out", value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// Print all rows and columns
    #[arg(long)]
    all: bool,
    /// Print one JSON document
    #[arg(long, conflicts_with = "all")]
    json: bool,
}

/// Changes that `--fail-on` finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// A cost grew, or a benefit shrank
    Worse,
    /// The figure changed
    Changed,
}

/// The state of a combination.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// The run was read.
    Done,
    Failed(String),
    Running,
    Missing,
}

/// A combination of the report.
struct Combination<'a> {
    index: usize,
    task: &'a Task,
    state: State,
    /// A reading of each column in [`Wanted::columns`]. Empty if there is no run.
    readings: Vec<Option<Reading>>,
    /// Why a run lacks the reported figure.
    why_absent: Option<String>,
    is_baseline: bool,
    /// The figure that this one is compared with. `None` without such a figure.
    base: Option<f64>,
    change: Option<Change>,
}

impl Combination<'_> {
    /// The reading of the reported column. `None` if the combination has no result, or not this figure.
    fn reading(&self) -> Option<&Reading> {
        self.readings.first()?.as_ref()
    }
}

/// What is read of each run.
struct Wanted {
    table: String,
    /// The reported column, then the goal's column, then the columns of its limits.
    columns: Vec<String>,
    row: Vec<String>,
    experiment: String,
}

/// What all runs together say.
struct Facts {
    /// The chosen table of the first run with the chosen row, without its rows.
    table: Table,
    column: Column,
    goal_column: Option<Column>,
    /// Name of the row. Empty for a table with one row.
    row_name: String,
    experiment: String,
    benches: Vec<String>,
    /// Start of the last run, UTC.
    started_utc: String,
    runs: usize,
    runs_with_warnings: usize,
    first_warning: Option<String>,
    cut_short: usize,
    /// Machines of the live runs, each once.
    live_machines: BTreeSet<String>,
    /// Path of the sweep with which figures are compared. `None` if that is the baseline.
    against: Option<String>,
    /// Notes on that sweep's command and runs.
    base_notes: Vec<String>,
}

pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    if let Some(output) = &args.output {
        output_file::check(output, args.force)?;
    }
    let sweep = open(&args.sweep)?;
    let plan = sweep.plan();
    let conditions = AxisValue::parse_all(&args.conditions, plan)?;
    let is_selected = |task: &Task| conditions.iter().all(|condition| condition.selects(task));
    let status = Status::read(&sweep).map_err(usage)?;
    let Some(first) = status.done.iter().find(|index| is_selected(&plan.tasks[**index])) else {
        bail!(Usage(format!(
            "none of the combinations has a result yet: {} failed, {} are running, {} are missing (irqlab sweep run {} \
             executes them)",
            status.failed.len(),
            status.running.len(),
            status.missing.len(),
            args.sweep.display()
        )));
    };
    let outline = outline_of(&sweep, &plan.tasks[*first])?;
    let chosen = chosen_column(&outline, args.table.as_deref(), args.column.as_deref())?;
    let wanted = wanted_columns(args, &outline, &chosen)?;
    let mut reader = Reader { sweep: &sweep, wanted: &wanted, facts: None };
    let mut combinations = reader.read(&status, &is_selected)?;
    let Some(mut facts) = reader.facts else {
        let table = read_run(&sweep, &plan.tasks[*first], &wanted)?;
        let offered = table.as_ref().and_then(|run| run.table(&wanted.table)).map(offered_rows);
        bail!(Usage(format!(
            "no run has the row {} in table {}. {}",
            args.row.join(", "),
            wanted.table,
            offered.unwrap_or_default()
        )));
    };
    let against =
        args.against.as_ref().map(|base| Against::read(base, plan, &wanted)).transpose()?;
    if let Some(against) = &against {
        facts.compare_with(against);
    }
    refuse_unknown_direction(args.fail_on, &facts)?;
    judge(plan, &facts, against.as_ref(), &mut combinations);
    combinations.retain(|combination| is_selected(combination.task));
    let report = tables::report(&sweep, &chosen, &facts, &mut combinations);
    let mut answers: Vec<String> =
        largest_change(plan, &facts, &combinations).into_iter().collect();
    if let Some(goal) = &args.best {
        match &facts.goal_column {
            Some(column) => {
                // The report's own warnings name its column.
                if column.name != facts.column.name {
                    answers.extend(windows_warning(&facts, column, 1, &combinations));
                }
                answers.extend(best_sentences(goal, column, &candidates(plan, &combinations)));
            }
            None => answers.push(format!("No best: the first run has no column {}.", goal.column)),
        }
    }
    if let Some(output) = &args.output {
        let print_command = command(args);
        let page_command = format!("{print_command} -o {}", shell_word(&path_text(output)));
        let commands = (print_command.as_str(), page_command.as_str());
        let page = page::page(plan, &facts, &combinations, &report, &answers, commands)?;
        output_file::write(output, page.as_bytes(), args.force)?;
    }
    let found = args.fail_on.and_then(|fail_on| found_by(fail_on, &facts, &combinations));
    answers.extend(found.clone());
    let command = format!("irqlab sweep report {} with --all or --json", args.sweep.display());
    print_with_answers(&report, &answers, args.json, args.all, command)?;
    if let Some(output) = &args.output {
        console::say(&format!("report: {}", output.display()));
    }
    Ok(if found.is_some() { ExitCode::from(DIFFERS) } else { ExitCode::SUCCESS })
}

/// Refuses `--fail-on worse` for a figure that is neither a cost nor a benefit.
fn refuse_unknown_direction(fail_on: Option<FailOn>, facts: &Facts) -> anyhow::Result<()> {
    let has_direction = matches!(facts.column.role, Role::Cost | Role::Benefit);
    if fail_on == Some(FailOn::Worse) && !has_direction {
        bail!(Usage(format!(
            "--fail-on worse: {} is neither a cost nor a benefit (--fail-on changed)",
            facts.column.name
        )));
    }
    Ok(())
}

/// A sentence with the number of combinations that changed, and of those that cannot be judged. `None` if
/// `--fail-on` finds neither.
fn found_by(fail_on: FailOn, facts: &Facts, combinations: &[Combination<'_>]) -> Option<String> {
    let fails = |verdict: Verdict| match fail_on {
        FailOn::Worse => verdict == Verdict::Worse,
        FailOn::Changed => verdict.is_difference(),
    };
    // The baseline itself has no verdict, and needs none.
    let is_base = |combination: &Combination<'_>| {
        facts.against.is_none() && combination.is_baseline && combination.reading().is_some()
    };
    let (mut failed, mut unjudged) = (0, 0);
    for combination in combinations {
        match combination.change {
            Some(change) if !change.is_judged() => unjudged += 1,
            Some(change) => failed += usize::from(fails(change.verdict)),
            None if is_base(combination) => {}
            None => unjudged += 1,
        }
    }
    let word = if fail_on == FailOn::Worse { "worse" } else { "changed" };
    let parts = [
        (failed > 0).then(|| format!("{failed} of {} combinations are {word}", combinations.len())),
        (unjudged > 0).then(|| {
            format!(
                "{unjudged} of {} combinations cannot be compared with {}",
                combinations.len(),
                facts.compared_with()
            )
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("--fail-on {word}: {}.", parts.join("; ")))
}

/// The combination with the largest change that is known to be one, as a sentence. `combinations`: sorted, so that it
/// is the first. `None` if no combination has a change.
fn largest_change(plan: &Plan, facts: &Facts, combinations: &[Combination<'_>]) -> Option<String> {
    let compared_with = facts.compared_with();
    let first = combinations.first()?;
    let change = first.change.filter(|change| change.verdict.is_difference());
    let is_judged = combinations.iter().any(|combination| combination.change.is_some());
    let Some(change) = change else {
        return is_judged.then(|| format!("No change against {compared_with} is known to be one."));
    };
    let difference = change.least_difference()?;
    let direction = if difference < 0.0 { "less" } else { "more" };
    let at_least = if change.difference.is_none() { "at least " } else { "" };
    let amount = match change.ratio(difference) {
        Some(ratio) => format!("{at_least}{} {direction}", report::human::percent(ratio.abs())),
        None => format!("{direction} than 0"),
    };
    Some(format!(
        "The largest change against {compared_with}: {}, {amount} ({}).",
        values_text(plan, first.task),
        change.verdict.word()
    ))
}

/// The command line that prints the report again.
fn command(args: &ReportArgs) -> String {
    let mut command_words =
        vec!["irqlab sweep report".to_owned(), shell_word(&path_text(&args.sweep))];
    let mut add = |option: &str, value: &str| {
        command_words.push(format!("{option} {}", shell_word(value)));
    };
    args.table.iter().for_each(|name| add("--table", name));
    args.column.iter().for_each(|name| add("--column", name));
    args.row.iter().for_each(|row| add("--row", row));
    args.conditions.iter().for_each(|condition| add("--where", condition));
    args.against.iter().for_each(|base| add("--against", &path_text(base)));
    args.best.iter().for_each(|goal| add("--best", &goal.text));
    command_words.join(" ")
}

/// The columns to read, after a check that the goal's columns exist.
fn wanted_columns(
    args: &ReportArgs,
    outline: &Run,
    chosen: &ChosenColumn,
) -> Result<Wanted, Usage> {
    let mut columns = vec![chosen.column.clone()];
    if let Some(goal) = &args.best {
        let limits = goal.limits.iter().map(|limit| &limit.column);
        for column in std::iter::once(&goal.column).chain(limits) {
            chosen_column(outline, Some(&chosen.table), Some(column))
                .map_err(|Usage(what)| Usage(format!("--best: {what}")))?;
            columns.push(column.clone());
        }
    }
    let (table, experiment) = (chosen.table.clone(), outline.experiment.clone());
    Ok(Wanted { table, columns, row: args.row.clone(), experiment })
}

fn outline_of(sweep: &SweepDirectory, task: &Task) -> anyhow::Result<Run> {
    match checked_run(sweep, task).map_err(usage)? {
        Some(path) => Ok(StoredRun::open(&path)?.outline().clone()),
        None => bail!("the result of task {} has vanished", task.id),
    }
}

/// The run of a task with the rows of the chosen table, and of tables with shares of CPU time or with windows.
fn read_run(sweep: &SweepDirectory, task: &Task, wanted: &Wanted) -> anyhow::Result<Option<Run>> {
    let Some(path) = checked_run(sweep, task).map_err(usage)? else { return Ok(None) };
    let part = |table: &Table| {
        let has_shares = table.columns.iter().any(|column| column.is_cpu_share)
            || table.column("context").is_some();
        let is_needed = (has_shares || compare::has_windows(table))
            && table.row_count() <= OTHER_TABLE_ROWS_MAX;
        if table.name == wanted.table || is_needed { Part::All } else { Part::Outline }
    };
    Ok(Some(record::read_run_parts(&path, part)?))
}

/// Reads the runs of a sweep.
struct Reader<'a> {
    sweep: &'a SweepDirectory,
    wanted: &'a Wanted,
    /// `None` until a run has the chosen row.
    facts: Option<Facts>,
}

impl<'a> Reader<'a> {
    /// Reads the selected combinations, and the combinations with which they are compared.
    fn read(
        &mut self,
        status: &Status,
        is_selected: &dyn Fn(&Task) -> bool,
    ) -> anyhow::Result<Vec<Combination<'a>>> {
        let plan = self.sweep.plan();
        let mut is_needed: Vec<bool> = plan.tasks.iter().map(is_selected).collect();
        let by_values = tasks_by_values(plan);
        for task in plan.tasks.iter().filter(|task| is_selected(task)) {
            let baseline =
                plan.baseline_values(task).and_then(|values| by_values.get(&values[..]).copied());
            if let Some(index) = baseline {
                is_needed[index] = true;
            }
        }
        let stop = stop_on_signals()?;
        let states = states(plan, status);
        let mut combinations = Vec::new();
        for ((index, task), state) in plan.tasks.iter().enumerate().zip(states) {
            if !is_needed[index] {
                continue;
            }
            if stop.is_requested() {
                bail!("stopped; nothing was written");
            }
            let run =
                if state == State::Done { read_run(self.sweep, task, self.wanted)? } else { None };
            let is_baseline = plan.is_baseline(task);
            let (readings, why_absent) = match &run {
                Some(run) => self.readings(task, run)?,
                None => (Vec::new(), None),
            };
            combinations.push(Combination {
                index,
                task,
                state,
                readings,
                why_absent,
                is_baseline,
                base: None,
                change: None,
            });
        }
        Ok(combinations)
    }

    /// A reading of each wanted column. If the reported figure is absent: why.
    fn readings(
        &mut self,
        task: &Task,
        run: &Run,
    ) -> anyhow::Result<(Vec<Option<Reading>>, Option<String>)> {
        let Wanted { table: table_name, columns, row: choice, experiment } = self.wanted;
        let absent = |reason: String| Ok((Vec::new(), Some(reason)));
        if run.experiment != *experiment {
            return absent(format!("its run is of experiment {}", run.experiment));
        }
        let Some(table) = run.table(table_name) else {
            return absent(format!("its run has no table {table_name}"));
        };
        let row = chosen_row(table, choice).map_err(|Usage(what)| {
            let values = values_text(self.sweep.plan(), task);
            Usage(format!("in the run of {values}, {what}"))
        })?;
        let Some(row) = row else {
            let what = if choice.is_empty() { "row".to_owned() } else { choice.join(", ") };
            return absent(format!("its run has no {what} in table {table_name}"));
        };
        let column_of = |name: &String| table.columns.iter().find(|column| column.name == *name);
        let readings: Vec<Option<Reading>> =
            columns.iter().map(|name| Reading::new(run, table, row, column_of(name)?)).collect();
        let is_absent = readings.first().is_none_or(Option::is_none);
        let why_absent = is_absent.then(|| {
            let reason = run.absent.iter().find(|absence| {
                absence.table == *table_name && columns.first() == Some(&absence.what)
            });
            let column = columns.first().and_then(column_of);
            match reason {
                Some(absence) => format!("not measured: {}", absence.reason),
                None if column
                    .is_some_and(|column| compare::is_below_limit(table, row, column)) =>
                {
                    "below the detection limit".to_owned()
                }
                None => "its run has no number there".to_owned(),
            }
        });
        if self.facts.is_none()
            && let Some(column) = column_of(&columns[0])
        {
            let mut empty = Table::new(&table.name, &table.doc, table.columns.clone());
            empty.display = table.display.clone();
            self.facts = Some(Facts {
                table: empty,
                column: column.clone(),
                goal_column: columns.get(1).and_then(column_of).cloned(),
                row_name: row_name(table, row, choice),
                experiment: run.experiment.clone(),
                benches: Vec::new(),
                started_utc: String::new(),
                runs: 0,
                runs_with_warnings: 0,
                first_warning: None,
                cut_short: 0,
                live_machines: BTreeSet::new(),
                against: None,
                base_notes: Vec::new(),
            });
        }
        if let Some(facts) = &mut self.facts {
            facts.add(run);
        }
        Ok((readings, why_absent))
    }
}

impl Facts {
    /// The figure with its row, such as `self_mean_ns of RCU`.
    fn figure_name(&self) -> String {
        if self.row_name.is_empty() {
            return self.column.name.clone();
        }
        format!("{} of {}", self.column.name, self.row_name)
    }

    /// The figures with which the figures are compared, in words.
    fn compared_with(&self) -> &str {
        self.against.as_deref().unwrap_or("the baseline")
    }

    /// Sentences on runs that were cut short or have warnings, each with `prefix`.
    fn notes_of_runs(&self, prefix: &str) -> Vec<String> {
        let cut_short = (self.cut_short > 0)
            .then(|| format!("{prefix}{} of {} runs were cut short", self.cut_short, self.runs));
        let warnings = self.first_warning.as_ref().map(|first| {
            format!(
                "{prefix}{} of {} runs have warnings (irqlab show RUN prints them); the first: {first}",
                self.runs_with_warnings, self.runs
            )
        });
        [cut_short, warnings].into_iter().flatten().collect()
    }

    /// Makes the figures of another sweep those to compare with.
    fn compare_with(&mut self, against: &Against) {
        self.against = Some(against.path.clone());
        if let Some(facts) = &against.facts {
            self.live_machines.extend(facts.live_machines.iter().cloned());
            self.base_notes = facts.notes_of_runs(&format!("in {}, ", against.path));
        }
        self.base_notes.extend(against.command_difference.clone());
    }

    fn add(&mut self, run: &Run) {
        self.runs += 1;
        if !self.benches.contains(&run.bench) {
            self.benches.push(run.bench.clone());
        }
        if run.started_utc > self.started_utc {
            self.started_utc.clone_from(&run.started_utc);
        }
        self.runs_with_warnings += usize::from(!run.warnings.is_empty());
        if self.first_warning.is_none() {
            self.first_warning = run.warnings.first().cloned();
        }
        self.cut_short += usize::from(!run.complete);
        self.live_machines.extend(live_machine(run));
    }
}

/// The position of each task in the plan, by its values.
fn tasks_by_values(plan: &Plan) -> HashMap<&[u32], usize> {
    plan.tasks.iter().enumerate().map(|(index, task)| (&task.values[..], index)).collect()
}

/// The state of each task of the plan.
fn states(plan: &Plan, status: &Status) -> Vec<State> {
    let mut states = vec![State::Missing; plan.tasks.len()];
    for index in &status.done {
        states[*index] = State::Done;
    }
    for index in &status.running {
        states[*index] = State::Running;
    }
    for (index, Failure { reason, .. }) in &status.failed {
        states[*index] = State::Failed(reason.clone());
    }
    states
}

/// Judges the change of each combination against its combination of the baseline, or of another sweep, all in one family.
fn judge(
    plan: &Plan,
    facts: &Facts,
    against: Option<&Against>,
    combinations: &mut [Combination<'_>],
) {
    let by_values: HashMap<&[u32], usize> = combinations
        .iter()
        .enumerate()
        .map(|(position, combination)| (&combination.task.values[..], position))
        .collect();
    let base_of = |combination: &Combination<'_>| {
        if let Some(against) = against {
            return against.reading(plan, combination.task);
        }
        let values = plan.baseline_values(combination.task)?;
        if values == combination.task.values {
            return None;
        }
        combinations[by_values.get(&values[..]).copied()?].reading()
    };
    let mut judged = Vec::new();
    let mut pairs = Vec::new();
    for (position, combination) in combinations.iter().enumerate() {
        if let Some(pair) = base_of(combination).zip(combination.reading()) {
            judged.push((position, pair.0.value()));
            pairs.push(pair);
        }
    }
    let rules = compare::Plan { all_rows: false, margin_ratio: MARGIN_RATIO, rules: Vec::new() };
    let changes = compare::changes(&facts.table, &facts.column, &pairs, &rules);
    for ((position, base), change) in judged.into_iter().zip(changes) {
        combinations[position].base = Some(base);
        combinations[position].change = Some(change);
    }
}

/// A warning if the figures of a column are totals over windows of different lengths. `position`: that of the column
/// among [`Wanted::columns`].
fn windows_warning(
    facts: &Facts,
    column: &Column,
    position: usize,
    combinations: &[Combination<'_>],
) -> Option<String> {
    let readings: Vec<&Reading> = combinations
        .iter()
        .filter_map(|combination| combination.readings.get(position)?.as_ref())
        .collect();
    compare::windows_warning(&facts.table, column, &readings)
}

/// The combinations as candidates for the goal.
fn candidates<'c>(plan: &Plan, combinations: &'c [Combination<'_>]) -> Vec<Candidate<'c>> {
    let candidate = |combination: &'c Combination<'_>| {
        let mut readings = combination.readings.iter().skip(1).map(Option::as_ref);
        Candidate {
            name: values_text(plan, combination.task),
            goal: readings.next().flatten(),
            limits: readings.collect(),
        }
    };
    combinations.iter().map(candidate).collect()
}

/// The path of the sweep as the page's command names it.
fn path_text(path: &Path) -> String {
    path.display().to_string()
}
