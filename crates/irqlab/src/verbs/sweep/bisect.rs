//! `irqlab sweep bisect`: finds the first value of an axis that breaks a rule, such as the kernel with which an interrupt
//! became slower. It executes only the tasks that the search needs. `sweep::Search` chooses them, and `lab::compare` judges
//! each run against that of the good value.

use std::path::PathBuf;
use std::process::ExitCode;
use std::slice::from_ref;

use anyhow::bail;
use clap::Command;
use lab::compare::{CompareError, Plan as Comparing, Rule, Ruling, compare_series};
use live::host::process_cpus;
use live::window::Stop;
use record::{Columns, Format, Run, SCHEMA, Table, TableDisplay, column, read_run};
use report::escape::plain;
use report::{human, shell_word};
use serde_json::{Map, json};
use sweep::{FileHashes, Judgement, Plan, PlannedAxis, Search, SweepDirectory, Task, checked_run};

use super::pool::Pool;
use super::report::MARGIN_RATIO;
use super::report::selection::{AxisValue, is_named};
use super::run::task_options;
use super::{open, usage};
use crate::VERSION;
use crate::console;
use crate::options::Usage;
use crate::run::{stop_on_signals, terminal_options};

/// Name of the table.
const BISECT: &str = "bisect";

/// Find the first value of an axis that breaks a rule, and execute only the tasks that this needs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep bisect kernels --rule 'handlers[name=NET_RX].self_mean_ns>+5%'
  irqlab sweep bisect kernels --good v6.1 --bad v6.6 --rule 'handlers[name=TIMER].self_mean_ns>+2%'

The values are taken in the order of the specification, from the good one to the bad one. Each run is compared with that of
the good value by the rule, as irqlab compare --fail-on does. A value whose task fails, or that the rule leaves in doubt, is
passed over. Results are kept: a search that is stopped goes on from there.

Exit codes: 0 the first bad value is found, or a range that has it; 1 failed or stopped, or the bad value does not break
the rule; 2 the command line is wrong.")]
pub struct BisectArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR")]
    sweep: PathBuf,
    /// What the good value keeps and the bad one breaks, such as 'handlers[name=NET_RX].self_mean_ns>+5%'
    #[arg(long, value_name = "RULE")]
    rule: Rule,
    /// The axis to search [default: the only one with several values]
    #[arg(long, value_name = "AXIS")]
    axis: Option<String>,
    /// A value that keeps the rule [default: the first one]
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    good: Option<String>,
    /// A value that breaks the rule [default: the last one]
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    bad: Option<String>,
    /// Search only combinations with this value of another axis; may be repeated
    #[arg(long = "where", value_name = "AXIS=VALUE")]
    conditions: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A value with its task and what is known about it.
#[derive(Clone)]
struct Value {
    /// Text of the value.
    text: String,
    /// Position of the task in the plan.
    task: usize,
    /// `None` if the search did not need the value.
    judged: Option<Judged>,
}

/// What the rule says about a value.
#[derive(Clone)]
struct Judged {
    judgement: Judgement,
    /// The row that is farthest from keeping the rule.
    row: Option<String>,
    /// Change of the rule's figure in this row, as a part of the good value's figure.
    change_ratio: Option<f64>,
    /// Why it is not known whether the value is good or bad.
    reason: Option<String>,
}

impl Judged {
    /// The good value itself.
    const GOOD: Judged =
        Judged { judgement: Judgement::Good, row: None, change_ratio: None, reason: None };

    fn unknown(reason: String) -> Judged {
        Judged {
            judgement: Judgement::Unknown,
            row: None,
            change_ratio: None,
            reason: Some(reason),
        }
    }

    fn word(&self) -> &'static str {
        match self.judgement {
            Judgement::Good => "good",
            Judgement::Bad => "bad",
            Judgement::Unknown => "can't tell",
        }
    }

    /// The change in brackets, as in ` (+21.7 % in row NET_RX)`. Empty without a change.
    fn change_text(&self) -> String {
        let Some(ratio) = self.change_ratio else { return String::new() };
        let sign = if ratio < 0.0 { "-" } else { "+" };
        let row = self.row.iter().filter(|row| !row.is_empty());
        let row: String = row.map(|row| format!(" in row {}", plain(row))).collect();
        format!(" ({sign}{}{row})", human::percent(ratio.abs()))
    }
}

pub fn run(args: &BisectArgs, command: Command) -> anyhow::Result<ExitCode> {
    let sweep = open(&args.sweep)?;
    sweep.check_version(VERSION).map_err(usage)?;
    let plan = sweep.plan();
    let axis = chosen_axis(args, plan)?;
    let mut values = chosen_values(args, plan, axis)?;
    let stop = stop_on_signals()?;
    let executor = Executor { sweep: &sweep, command, stop: &stop };
    let last = values.len() - 1;
    executor.execute(&[values[0].task, values[last].task])?;
    let good = executor.run_of(values[0].task)?.map_err(|reason| {
        anyhow::anyhow!("{} {}: {reason}", plan.axes[axis].name, values[0].text)
    })?;
    values[0].judged = Some(Judged::GOOD);
    let judge = Judge { good: &good, rule: &args.rule };
    let bad = executor.judged(&judge, values[last].task)?;
    if bad.judgement != Judgement::Bad {
        let name = format!("{} {}", plan.axes[axis].name, values[last].text);
        let keeps = format!("keeps the rule{}", bad.change_text());
        bail!("there is no change to search: {name} {}", bad.reason.unwrap_or(keeps));
    }
    values[last].judged = Some(bad);
    let mut search = Search::new(values.len());
    while let Some(position) = search.next() {
        let value = &mut values[position];
        executor.execute(&[value.task])?;
        let judged = executor.judged(&judge, value.task)?;
        search.note(position, judged.judgement);
        let more = match search.next() {
            None => String::new(),
            Some(_) => format!("; at most {} more", search.steps_max()),
        };
        let (word, change) = (judged.word(), judged.change_text());
        console::say(&format!("{} {}: {word}{change}{more}", plan.axes[axis].name, value.text));
        value.judged = Some(judged);
    }
    print(args, &sweep, &plan.axes[axis], &values, &search, &good)?;
    Ok(ExitCode::SUCCESS)
}

/// Position of the axis to search.
fn chosen_axis(args: &BisectArgs, plan: &Plan) -> Result<usize, Usage> {
    let names = |axes: &[&PlannedAxis]| {
        axes.iter().map(|axis| axis.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = &args.axis {
        return plan.axes.iter().position(|axis| is_named(axis, name)).ok_or_else(|| {
            let all: Vec<&PlannedAxis> = plan.axes.iter().collect();
            Usage(format!("--axis: there is no axis {name:?}; the axes: {}", names(&all)))
        });
    }
    let has_several = |axis: &&PlannedAxis| axis.values.len() > 1;
    let candidates: Vec<&PlannedAxis> = plan.axes.iter().filter(has_several).collect();
    match candidates[..] {
        [only] => Ok(plan.axes.iter().position(|axis| axis.name == only.name).unwrap_or_default()),
        [] => Err(Usage("no axis of the sweep has several values".to_owned())),
        _ => Err(Usage(format!("choose an axis with --axis: {}", names(&candidates)))),
    }
}

/// The values of the axis from the good one to the bad one, each with its task.
fn chosen_values(args: &BisectArgs, plan: &Plan, axis: usize) -> Result<Vec<Value>, Usage> {
    let conditions = args.conditions.iter().map(|text| AxisValue::parse(text, plan));
    let conditions: Vec<AxisValue> = conditions.collect::<Result<_, _>>()?;
    let is_selected = |task: &Task| conditions.iter().all(|condition| condition.selects(task));
    let mut values: Vec<Value> = Vec::new();
    for (position, text) in plan.axes[axis].values.iter().enumerate() {
        let has_value = |task: &Task| task.values.get(axis) == Some(&(position as u32));
        let mut tasks = plan.tasks.iter().enumerate();
        let mut found = tasks.by_ref().filter(|(_, task)| has_value(task) && is_selected(task));
        // An excluded combination has no task.
        let Some((task, _)) = found.next() else { continue };
        if found.next().is_some() {
            return Err(Usage(format!(
                "several combinations have {} {text}: choose the values of the other axes with --where",
                plan.axes[axis].name
            )));
        }
        values.push(Value { text: text.clone(), task, judged: None });
    }
    let end = |option: &str, wanted: Option<&String>, default: usize| match wanted {
        None => Ok(default),
        Some(wanted) => values.iter().position(|value| value.text == *wanted).ok_or_else(|| {
            Usage(format!(
                "{option}: axis {} has no value {wanted:?} to search",
                plan.axes[axis].name
            ))
        }),
    };
    let good = end("--good", args.good.as_ref(), 0)?;
    let bad = end("--bad", args.bad.as_ref(), values.len().saturating_sub(1))?;
    if good == bad || values.is_empty() {
        return Err(Usage("the good and the bad value must differ".to_owned()));
    }
    Ok(if good < bad {
        values[good..=bad].to_vec()
    } else {
        values[bad..=good].iter().rev().cloned().collect()
    })
}

/// Executes tasks and reads their runs.
struct Executor<'a> {
    sweep: &'a SweepDirectory,
    command: Command,
    stop: &'a Stop,
}

impl Executor<'_> {
    /// Executes those of the tasks that have neither a result nor a failure.
    ///
    /// Fails if the search was stopped, or if another irqlab executes one of the tasks.
    fn execute(&self, tasks: &[usize]) -> anyhow::Result<()> {
        let plan = self.sweep.plan();
        let mut open_tasks = Vec::new();
        let mut hashes = FileHashes::default();
        for index in tasks {
            let task = &plan.tasks[*index];
            if !self.sweep.is_done(task) && self.sweep.failure(task)?.is_none() {
                self.sweep.check_task(task, &mut hashes).map_err(usage)?;
                open_tasks.push(*index);
            }
        }
        if open_tasks.is_empty() {
            return Ok(());
        }
        let cpus = if plan.measures_this_machine { 1 } else { process_cpus().started_with.len() };
        let jobs = cpus.clamp(1, open_tasks.len());
        let options = task_options(self.sweep, &open_tasks, jobs, self.command.clone())?;
        let pool = Pool {
            sweep: self.sweep,
            tasks: &open_tasks,
            jobs,
            options: &options,
            stop: self.stop,
        };
        let counts = pool.execute()?;
        if counts.elsewhere > 0 {
            bail!(
                "another irqlab executes a task that the search needs (start again when it has ended)"
            );
        }
        if counts.stopped > 0 || self.stop.is_requested() {
            bail!("stopped (the same command goes on from here)");
        }
        Ok(())
    }

    /// The run of a task, or why it has none.
    fn run_of(&self, task: usize) -> anyhow::Result<Result<Run, String>> {
        let task = &self.sweep.plan().tasks[task];
        if let Some(path) = checked_run(self.sweep, task).map_err(usage)? {
            return Ok(Ok(read_run(&path)?));
        }
        let failure = self.sweep.failure(task)?;
        let reason = failure.map_or_else(
            || "it has no result".to_owned(),
            |failure| format!("failed: {}", failure.reason),
        );
        Ok(Err(reason))
    }

    fn judged(&self, judge: &Judge<'_>, task: usize) -> anyhow::Result<Judged> {
        match self.run_of(task)? {
            Ok(run) => Ok(judge.judge(&run)?),
            Err(reason) => Ok(Judged::unknown(reason)),
        }
    }
}

/// Judges runs by a rule.
struct Judge<'a> {
    /// The run of the good value.
    good: &'a Run,
    rule: &'a Rule,
}

impl Judge<'_> {
    /// Fails if the rule fits no figure, or the runs cannot be compared.
    fn judge(&self, run: &Run) -> Result<Judged, Usage> {
        let rules = vec![self.rule.clone()];
        let comparing = Comparing { all_rows: false, margin_ratio: MARGIN_RATIO, rules };
        let comparison = match compare_series(from_ref(self.good), from_ref(run), &comparing) {
            Ok(comparison) => comparison,
            // The figures of this run alone are the reason.
            Err(error @ (CompareError::AllMissing(_) | CompareError::NoInterval(_))) => {
                return Ok(Judged::unknown(error.to_string()));
            }
            Err(error) => return Err(Usage(error.to_string())),
        };
        let Some(outcome) = comparison.outcomes.first() else {
            return Err(Usage("--rule: it was not judged".to_owned()));
        };
        let (judgement, reason) = match outcome.ruling {
            Ruling::Broken => (Judgement::Bad, None),
            Ruling::Holds => (Judgement::Good, None),
            Ruling::InDoubt => {
                let absent = outcome.missing + outcome.added;
                let reason = if absent > 0 {
                    format!("only one of the two runs has {absent} of the rule's figures")
                } else {
                    "the interval of the change has the rule's limit in it".to_owned()
                };
                (Judgement::Unknown, Some(reason))
            }
        };
        let (row, change_ratio) = outcome.worst.clone().unzip();
        Ok(Judged { judgement, row, change_ratio: change_ratio.flatten(), reason })
    }
}

/// The table of the values that were executed, in their order.
fn table(axis: &PlannedAxis, rule: &Rule, values: &[Value]) -> Table {
    let judged: Vec<(&Value, &Judged)> =
        values.iter().filter_map(|value| Some((value, value.judged.as_ref()?))).collect();
    let has_reasons = judged.iter().any(|(_, judged)| judged.reason.is_some());
    type Row<'a> = (&'a Value, &'a Judged);
    let columns = Columns::all([
        column(&axis.column, &format!("Value of the axis {}.", axis.name))
            .key()
            .title("value")
            .text(|(value, _): &Row<'_>| value.text.clone()),
        column("judgement", "What the rule says about the value: good, bad, or can't tell.")
            .text(|(_, judged): &Row<'_>| judged.word()),
        column("change_ratio", "Change of the rule's figure from the good value, as a part of the good value's figure, in the row that is farthest from keeping the rule.")
            .format(Format::Auto)
            .title("change")
            .real(|(_, judged): &Row<'_>| judged.change_ratio),
        column("row", "The row that is farthest from keeping the rule.")
            .text(|(_, judged): &Row<'_>| judged.row.clone()),
        column("reason", "Why it is not known whether the value is good or bad.")
            .wrapped()
            .priority(if has_reasons { 90 } else { 0 })
            .text(|(_, judged): &Row<'_>| judged.reason.clone()),
        column("task_index", "Position of the task in the plan.")
            .title("task")
            .uint(|(value, _): &Row<'_>| value.task),
    ]);
    let display = TableDisplay {
        title: format!("values of {} that were executed, from good to bad", axis.name),
        notes: vec![format!("judged by {}", rule.text)],
        ..TableDisplay::default()
    };
    let doc = "The values of an axis that a search for the first bad one has executed.";
    columns.table(BISECT, doc, &judged).displayed(display)
}

/// The result in sentences.
fn answers(
    sweep: &SweepDirectory,
    axis: &PlannedAxis,
    rule: &Rule,
    values: &[Value],
    search: &Search,
) -> Vec<String> {
    let (good, bad) = (&values[search.last_good()], &values[search.first_bad()]);
    let between = &values[search.last_good() + 1..search.first_bad()];
    let change = |value: &Value| value.judged.as_ref().map(Judged::change_text).unwrap_or_default();
    let found = if between.is_empty() {
        format!(
            "The first value that breaks {}: {} {}{}. The value before it, {}, keeps the rule{}.",
            rule.text,
            axis.name,
            bad.text,
            change(bad),
            good.text,
            change(good)
        )
    } else {
        let names: Vec<&str> = between.iter().map(|value| value.text.as_str()).collect();
        format!(
            "The first value that breaks {} is one of {}, {}: nothing is known about those before {}. The last value that \
             keeps the rule: {}{}.",
            rule.text,
            names.join(", "),
            bad.text,
            bad.text,
            good.text,
            change(good)
        )
    };
    let path = |value: &Value| {
        let directory = sweep.task_path(&sweep.plan().tasks[value.task].id).join("run");
        shell_word(&directory.display().to_string())
    };
    let executed = values.iter().filter(|value| value.judged.is_some()).count();
    vec![
        found,
        format!("What else changed: irqlab compare {} {}", path(good), path(bad)),
        format!("{executed} of {} values were executed.", values.len()),
    ]
}

fn print(
    args: &BisectArgs,
    sweep: &SweepDirectory,
    axis: &PlannedAxis,
    values: &[Value],
    search: &Search,
    good: &Run,
) -> anyhow::Result<()> {
    let report = Run {
        schema: SCHEMA.to_owned(),
        experiment: format!("search in a sweep of {}", good.experiment),
        bench: good.bench.clone(),
        started_utc: good.started_utc.clone(),
        complete: true,
        host: Map::new(),
        settings: Map::new(),
        observer: Map::new(),
        warnings: Vec::new(),
        absent: Vec::new(),
        tables: vec![table(axis, &args.rule, values)],
    };
    let answers = answers(sweep, axis, &args.rule, values, search);
    if args.json {
        let mut document = report.to_json();
        document["answers"] = json!(answers);
        return console::print(&format!("{document:#}\n"));
    }
    let mut options = terminal_options(None, false);
    let path = sweep.path().display();
    options.whole_command = Some(format!("irqlab sweep bisect {path} with --json"));
    let mut text = report::terminal(&report, options);
    for answer in &answers {
        text += &format!("\n{}\n", plain(answer));
    }
    console::print(&text)
}
