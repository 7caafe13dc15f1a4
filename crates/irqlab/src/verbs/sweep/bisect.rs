//! `irqlab sweep bisect`: finds the first value of an axis that breaks a rule, such as the kernel with which an interrupt
//! became slower. It executes only the tasks that the search needs. `sweep::Search` chooses them, and `lab::compare` judges
//! each run against that of the good value.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::slice::from_ref;

use anyhow::bail;
use clap::Command;
use lab::compare::{CompareError, Plan as ComparePlan, Rule, Ruling, compare_series};
use live::window::Stop;
use record::{Columns, Format, Run, SCHEMA, Table, TableDisplay, column, read_run};
use report::escape::plain;
use report::{human, shell_word};
use serde_json::{Map, json};
use sweep::{
    AxisForm, FileHashes, Judgement, Plan, PlannedAxis, Search, SweepDirectory, Task, checked_run,
    live_machine,
};

use super::axis_settings;
use super::pool::Pool;
use super::report::MARGIN_RATIO;
use super::report::selection::{AxisValue, axis_position};
use super::run::{default_jobs, task_options};
use super::{open, print_with_answers, usage};
use crate::VERSION;
use crate::console;
use crate::options::Usage;
use crate::run::stop_on_signals;

/// Name of the table.
const BISECT: &str = "bisect";

/// Find the first value of an axis that breaks a rule, and execute only the tasks that this needs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep bisect kernels --rule 'handlers[name=NET_RX].self_mean_ns>+5%'
  irqlab sweep bisect kernels --good v6.1 --bad v6.6 --rule 'handlers[name=TIMER].self_mean_ns>+2%'

The values are taken in the order of the specification, from the good one to the bad one. The rule compares each value's run
with the run of the good value, as irqlab compare --fail-on does. A value whose task fails, or that the rule leaves in doubt,
is passed over. The search assumes one change: all values before it are good, and all values after it are bad. Results are
kept: a search that is stopped goes on from there.

Exit codes: 0 the first bad value, or a range with it, is found; 1 failed or stopped, or the bad value does not break
the rule; 2 the command line is wrong.")]
pub struct BisectArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR")]
    sweep: PathBuf,
    /// Rule that the good value keeps and the bad value breaks, such as 'handlers[name=NET_RX].self_mean_ns>+5%'
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
    /// `None`: not judged.
    finding: Option<Finding>,
}

/// The judgement of the rule about a value, with its reasons.
#[derive(Clone)]
struct Finding {
    judgement: Judgement,
    /// The row whose change is farthest beyond the limit, or else closest to it.
    row: Option<String>,
    /// Change of the rule's figure in this row, divided by the good value's figure.
    change_ratio: Option<f64>,
    /// Why it is not known whether the value is good or bad.
    reason: Option<String>,
}

impl Finding {
    /// The finding about the good value, which is not compared.
    const GOOD: Finding =
        Finding { judgement: Judgement::Good, row: None, change_ratio: None, reason: None };

    fn unknown(reason: String) -> Finding {
        let reason = Some(reason);
        Finding { judgement: Judgement::Unknown, row: None, change_ratio: None, reason }
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
        let row = self.row.iter().filter(|row| !row.is_empty());
        let row: String = row.map(|row| format!(" in row {}", plain(row))).collect();
        format!(" ({}{row})", human::signed_percent(ratio))
    }
}

pub fn run(args: &BisectArgs, command: Command) -> anyhow::Result<ExitCode> {
    let sweep = open(&args.sweep)?;
    sweep.check_version(VERSION).map_err(usage)?;
    let plan = sweep.plan();
    let axis = chosen_axis(args, plan)?;
    let mut values = chosen_values(args, plan, axis)?;
    let name = &plan.axes[axis].name;
    let stop = stop_on_signals()?;
    let executor = Executor { sweep: &sweep, command, stop: &stop };
    let last = values.len() - 1;
    executor.execute(&[values[0].task, values[last].task])?;
    let good = executor.run_of(values[0].task)?.map_err(|reason| {
        anyhow::anyhow!("the good value, {name} {}, cannot be judged: {reason}", values[0].text)
    })?;
    values[0].finding = Some(Finding::GOOD);
    let mut check = RuleCheck::new(&good, &args.rule, &plan.axes[axis].form);
    let bad = check.judge_task(&executor, values[last].task)?;
    let bad_text = format!("{name} {}", values[last].text);
    match bad.judgement {
        Judgement::Bad => {}
        Judgement::Good => bail!(
            "there is no change to search: the bad value, {bad_text}, keeps the rule{}",
            bad.change_text()
        ),
        Judgement::Unknown => {
            bail!("the bad value, {bad_text}, cannot be judged: {}", bad.reason.unwrap_or_default())
        }
    }
    values[last].finding = Some(bad);
    let mut search = Search::new(values.len());
    while let Some(position) = search.next_position() {
        let value = &mut values[position];
        executor.execute(&[value.task])?;
        let finding = check.judge_task(&executor, value.task)?;
        search.record(position, finding.judgement);
        let more = match search.steps_max() {
            0 => String::new(),
            steps => format!("; at most {steps} more"),
        };
        let (word, change) = (finding.word(), finding.change_text());
        console::say(&plain(&format!("{name} {}: {word}{change}{more}", value.text)));
        value.finding = Some(finding);
    }
    let result =
        SearchResult { sweep: &sweep, axis: &plan.axes[axis], values: &values, search: &search };
    let report = result.report(&check);
    let command = format!("irqlab sweep bisect {} with --json", args.sweep.display());
    print_with_answers(&report, &result.answers(&args.rule), args.json, false, command)?;
    Ok(ExitCode::SUCCESS)
}

/// Position of the axis to search.
fn chosen_axis(args: &BisectArgs, plan: &Plan) -> Result<usize, Usage> {
    if let Some(name) = &args.axis {
        return axis_position("--axis", name, plan);
    }
    let has_several = |(_, axis): &(usize, &PlannedAxis)| axis.values.len() > 1;
    let candidates: Vec<(usize, &PlannedAxis)> =
        plan.axes.iter().enumerate().filter(has_several).collect();
    match candidates[..] {
        [(only, _)] => Ok(only),
        [] => Err(Usage("no axis of the sweep has several values".to_owned())),
        _ => {
            let names: Vec<&str> = candidates.iter().map(|(_, axis)| axis.name.as_str()).collect();
            Err(Usage(format!("choose an axis with --axis: {}", names.join(", "))))
        }
    }
}

/// The values of the axis from the good one to the bad one, each with its task.
fn chosen_values(args: &BisectArgs, plan: &Plan, axis: usize) -> Result<Vec<Value>, Usage> {
    let name = &plan.axes[axis].name;
    let conditions = AxisValue::parse_all(&args.conditions, plan)?;
    if conditions.iter().any(|condition| condition.axis() == axis) {
        return Err(Usage(format!("--where: {name} is the axis that is searched")));
    }
    let is_selected = |task: &Task| conditions.iter().all(|condition| condition.selects(task));
    let mut values: Vec<Value> = Vec::new();
    for (position, text) in plan.axes[axis].values.iter().enumerate() {
        let has_value = |task: &Task| task.values.get(axis) == Some(&(position as u32));
        let mut found = (plan.tasks.iter().enumerate())
            .filter(|(_, task)| has_value(task) && is_selected(task))
            .map(|(index, _)| index);
        // An excluded combination has no task.
        let Some(task) = found.next() else { continue };
        if found.next().is_some() {
            return Err(Usage(format!(
                "several combinations have {name} {text}: choose the values of the other axes with --where"
            )));
        }
        values.push(Value { text: text.clone(), task, finding: None });
    }
    if values.len() < 2 {
        return Err(Usage(format!(
            "axis {name}: a search needs at least two values, and the chosen combinations have {}",
            values.len()
        )));
    }
    let position_of = |option: &str, wanted: Option<&String>, default: usize| match wanted {
        None => Ok(default),
        Some(wanted) => values.iter().position(|value| value.text == *wanted).ok_or_else(|| {
            let is_known = plan.axes[axis].values.contains(wanted);
            let what = if is_known {
                "has no task: it is excluded, or --where leaves it out"
            } else {
                "is no value of the axis"
            };
            Usage(format!("{option}: {name} {wanted} {what}"))
        }),
    };
    let good = position_of("--good", args.good.as_ref(), 0)?;
    let bad = position_of("--bad", args.bad.as_ref(), values.len() - 1)?;
    if good == bad {
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
        let mut missing = Vec::new();
        let mut hashes = FileHashes::default();
        for index in tasks {
            let task = &plan.tasks[*index];
            if !self.sweep.is_done(task) && self.sweep.failure(task)?.is_none() {
                self.sweep.check_task(task, &mut hashes).map_err(usage)?;
                missing.push(*index);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let (sweep, stop) = (self.sweep, self.stop);
        let jobs = default_jobs(plan).clamp(1, missing.len());
        let options = task_options(sweep, &missing, jobs, self.command.clone())?;
        let pool = Pool { sweep, tasks: &missing, jobs, options: &options, stop };
        let counts = pool.execute()?;
        if counts.elsewhere > 0 {
            bail!(
                "another irqlab executes a task that the search needs (start the search again when that irqlab has ended)"
            );
        }
        if counts.stopped > 0 || stop.is_requested() {
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
            |failure| {
                let path = shell_word(&self.sweep.path().display().to_string());
                format!(
                    "failed: {} (irqlab sweep retry {path} allows another execution)",
                    failure.reason
                )
            },
        );
        Ok(Err(reason))
    }
}

/// Judges runs by a rule, against the run of the good value.
struct RuleCheck<'a> {
    good: &'a Run,
    rule: &'a Rule,
    axis: &'a AxisForm,
    /// Warnings of the comparisons. Differences that the axis explains are left out.
    warnings: BTreeSet<String>,
    /// Hosts of the live runs that were judged, the good one included.
    live_machines: BTreeSet<String>,
}

impl<'a> RuleCheck<'a> {
    fn new(good: &'a Run, rule: &'a Rule, axis: &'a AxisForm) -> RuleCheck<'a> {
        let live_machines = live_machine(good).into_iter().collect();
        RuleCheck { good, rule, axis, warnings: BTreeSet::new(), live_machines }
    }

    fn judge_task(&mut self, executor: &Executor<'_>, task: usize) -> anyhow::Result<Finding> {
        match executor.run_of(task)? {
            Ok(run) => Ok(self.judge_run(&run)?),
            Err(reason) => Ok(Finding::unknown(reason)),
        }
    }

    /// Judges a run by the rule, and collects its warnings and its host. A run without figures of the rule is
    /// [`Judgement::Unknown`].
    ///
    /// Fails if the rule names no figure of any run, or if the runs cannot be compared.
    fn judge_run(&mut self, run: &Run) -> Result<Finding, Usage> {
        self.live_machines.extend(live_machine(run));
        let rules = vec![self.rule.clone()];
        let plan = ComparePlan { all_rows: false, margin_ratio: MARGIN_RATIO, rules };
        let comparison = match compare_series(from_ref(self.good), from_ref(run), &plan) {
            Ok(comparison) => comparison,
            Err(CompareError::AllMissing(_)) => {
                return Ok(Finding::unknown("its run has none of the rule's figures".to_owned()));
            }
            Err(CompareError::NoInterval(_)) => {
                return Ok(Finding::unknown("no figure of the rule has an interval".to_owned()));
            }
            Err(CompareError::Bounds(..)) => {
                return Ok(Finding::unknown("the rule's figures are only bounds".to_owned()));
            }
            Err(CompareError::Windows(_, example)) => {
                return Ok(Finding::unknown(format!(
                    "the rule's figures are totals over windows of different lengths ({example})"
                )));
            }
            Err(error) => return Err(Usage(error.to_string())),
        };
        let explained: Vec<&str> = (comparison.setting_differences.iter())
            .filter(|difference| axis_settings::explains(self.axis, difference))
            .map(|difference| difference.warning.as_str())
            .collect();
        let is_explained = |warning: &&String| explained.contains(&warning.as_str());
        self.warnings
            .extend(comparison.warnings.iter().filter(|text| !is_explained(text)).cloned());
        let Some(outcome) = comparison.outcomes.first() else {
            return Err(Usage(
                "--rule: the comparison has no result for it (please report this)".to_owned(),
            ));
        };
        let (judgement, reason) = match outcome.ruling {
            Ruling::Broken => (Judgement::Bad, None),
            Ruling::Holds => (Judgement::Good, None),
            Ruling::InDoubt => {
                let absent = outcome.missing + outcome.added;
                let reason = if absent > 0 {
                    format!("{absent} of the rule's figures are in only one of the two runs")
                } else if outcome.other_windows() > 0 {
                    format!(
                        "{} of the rule's figures are totals over windows of different lengths",
                        outcome.other_windows()
                    )
                } else if outcome.open_bounds() > 0 {
                    format!("{} of the rule's figures are only bounds", outcome.open_bounds())
                } else {
                    "the limit of the rule is within the interval of the change".to_owned()
                };
                (Judgement::Unknown, Some(reason))
            }
        };
        let (row, change_ratio) = match &outcome.worst {
            Some((row, change_ratio)) => (Some(row.clone()), *change_ratio),
            None => (None, None),
        };
        Ok(Finding { judgement, row, change_ratio, reason })
    }

    /// The warnings about all runs.
    fn warnings(&self) -> Vec<String> {
        let machines: Vec<&str> = self.live_machines.iter().map(String::as_str).collect();
        let several = (machines.len() > 1).then(|| {
            format!(
                "live runs of several machines, which may differ for that alone: {}",
                machines.join("; ")
            )
        });
        self.warnings.iter().cloned().chain(several).collect()
    }
}

/// A finished search.
struct SearchResult<'a> {
    sweep: &'a SweepDirectory,
    axis: &'a PlannedAxis,
    values: &'a [Value],
    search: &'a Search,
}

impl SearchResult<'_> {
    fn last_good(&self) -> &Value {
        &self.values[self.search.last_good()]
    }

    fn first_bad(&self) -> &Value {
        &self.values[self.search.first_bad()]
    }

    /// The values between the last good and the first bad one, which could not be judged.
    fn unknown_values(&self) -> &[Value] {
        &self.values[self.search.last_good() + 1..self.search.first_bad()]
    }

    /// The result as a run with one table.
    fn report(&self, check: &RuleCheck<'_>) -> Run {
        let unknown: Vec<&str> =
            self.unknown_values().iter().map(|value| value.text.as_str()).collect();
        let settings = [
            ("rule", json!(check.rule.text)),
            ("axis", json!(self.axis.name)),
            ("last_good", json!(self.last_good().text)),
            ("first_bad", json!(self.first_bad().text)),
            ("unknown_between", json!(unknown)),
        ];
        Run {
            schema: SCHEMA.to_owned(),
            experiment: format!("search in a sweep of {}", check.good.experiment),
            bench: check.good.bench.clone(),
            started_utc: check.good.started_utc.clone(),
            complete: true,
            host: Map::new(),
            settings: settings.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
            observer: Map::new(),
            warnings: check.warnings(),
            absent: Vec::new(),
            tables: vec![self.table(check.rule)],
        }
    }

    /// The table of the values that were executed, in their order.
    fn table(&self, rule: &Rule) -> Table {
        type Row<'a> = (&'a Value, &'a Finding);
        let judged: Vec<Row<'_>> =
            self.values.iter().filter_map(|value| Some((value, value.finding.as_ref()?))).collect();
        let has_reasons = judged.iter().any(|(_, finding)| finding.reason.is_some());
        let columns = Columns::all([
            column(&self.axis.column, &format!("Value of the axis {}.", self.axis.name))
                .key()
                .title("value")
                .text(|(value, _): &Row<'_>| value.text.clone()),
            column("judgement", "What the rule says about the value: good, bad, or can't tell.")
                .text(|(_, finding): &Row<'_>| finding.word()),
            column(
                "change_ratio",
                "Change of the rule's figure from the good value, as a part of the good value's figure, in the row whose \
                 change is farthest beyond the limit, or else closest to it.",
            )
            .format(Format::Auto)
            .title("change")
            .real(|(_, finding): &Row<'_>| finding.change_ratio),
            column("row", "The row of this change.")
                .text(|(_, finding): &Row<'_>| finding.row.clone()),
            column("reason", "Why it is not known whether the value is good or bad.")
                .wrapped()
                .priority(if has_reasons { 90 } else { 0 })
                .text(|(_, finding): &Row<'_>| finding.reason.clone()),
            column("task_index", "Position of the task in the plan.")
                .title("task")
                .uint(|(value, _): &Row<'_>| value.task),
        ]);
        let display = TableDisplay {
            title: format!("values of {} that were executed, from good to bad", self.axis.name),
            notes: vec![format!("judged by {}", rule.text)],
            ..TableDisplay::default()
        };
        let doc = "The values of an axis that a search for the first bad one has executed.";
        columns.table(BISECT, doc, &judged).displayed(display)
    }

    /// The result in sentences.
    fn answers(&self, rule: &Rule) -> Vec<String> {
        let (good, bad, name) = (self.last_good(), self.first_bad(), &self.axis.name);
        let change =
            |value: &Value| value.finding.as_ref().map(Finding::change_text).unwrap_or_default();
        let found = if self.unknown_values().is_empty() {
            format!(
                "{name} {} breaks {}{}, and the value before it, {}, keeps it{}.",
                bad.text,
                rule.text,
                change(bad),
                good.text,
                change(good)
            )
        } else {
            let names: Vec<&str> =
                self.unknown_values().iter().map(|value| value.text.as_str()).collect();
            format!(
                "{name}: the first value that breaks {} is one of {}, {}: those before {} could not be judged. The last \
                 value that keeps it: {}{}.",
                rule.text,
                names.join(", "),
                bad.text,
                bad.text,
                good.text,
                change(good)
            )
        };
        let path = |value: &Value| {
            let task = &self.sweep.plan().tasks[value.task];
            shell_word(&self.sweep.task_path(&task.id).join("run").display().to_string())
        };
        let executed = self.values.iter().filter(|value| value.finding.is_some()).count();
        vec![
            found,
            format!("What else changed: irqlab compare {} {}", path(good), path(bad)),
            format!("{executed} of {} values were executed.", self.values.len()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of the live bench with one figure.
    fn live_run(kernel: &str, duration_ns: u64) -> Run {
        let columns = Columns::all([
            column("name", "Name.").key().text(|(name, _): &(&str, f64)| (*name).to_owned()),
            column("self_mean_ns", "Mean.")
                .plus_minus("self_mean_ci95_ns")
                .real(|(_, mean): &(&str, f64)| *mean),
            column("self_mean_ci95_ns", "Half of the interval.").detail().real(|_| 1.0),
        ]);
        Run {
            schema: SCHEMA.to_owned(),
            experiment: "handlers".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: Map::from_iter([("kernel".to_owned(), json!(kernel))]),
            settings: Map::from_iter([("duration_ns".to_owned(), json!(duration_ns))]),
            observer: Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: vec![columns.table("handlers", "Rows.", [("TIMER", 100.0)])],
        }
    }

    #[test]
    fn a_difference_of_the_hosts_is_a_warning_unless_the_axis_explains_it() {
        let (good, bad) = (live_run("6.1", 1), live_run("6.6", 2));
        let rule: Rule = "handlers.self_mean_ns>+5%".parse().unwrap();
        let axis = AxisForm::Option { option: "--duration".to_owned() };
        let mut check = RuleCheck::new(&good, &rule, &axis);
        check.judge_run(&bad).unwrap();
        let warnings = check.warnings();
        let is_named = |text: &str| warnings.iter().any(|warning| warning.contains(text));
        assert!(is_named("the host's kernel differs: \"6.1\" and \"6.6\""), "{warnings:?}");
        assert!(!is_named("duration_ns"), "the axis sets it: {warnings:?}");
    }

    /// A run with the totals of contexts. Each has its own condition, with a window of its own: name, total,
    /// and the window's length, ns.
    fn run_with_totals(rows: &[(&str, u64, u64)]) -> Run {
        type Row<'a> = (&'a str, u64, u64);
        let condition = || column("condition", "").key().text(|row: &Row<'_>| row.0.to_owned());
        let handlers = Columns::all([
            condition(),
            column("name", "").key().text(|row: &Row<'_>| row.0.to_owned()),
            column("self_total_ns", "").cost().uint(|row: &Row<'_>| row.1),
        ]);
        let conditions = Columns::all([
            condition(),
            column("window_ns", "").detail().uint(|row: &Row<'_>| row.2),
            column("ended_by", "").text(|_: &Row<'_>| "time"),
        ]);
        let tables =
            vec![handlers.table("handlers", "", rows), conditions.table("conditions", "", rows)];
        Run { bench: "sim".to_owned(), tables, ..live_run("6.1", 1) }
    }

    fn finding(good: &Run, run: &Run, rule: &str) -> Finding {
        let rule: Rule = rule.parse().unwrap();
        let axis = AxisForm::Option { option: "--duration".to_owned() };
        RuleCheck::new(good, &rule, &axis).judge_run(run).map_err(|usage| usage.0).unwrap()
    }

    #[test]
    fn a_value_with_a_window_of_another_length_is_passed_over() {
        let rule = "handlers.self_total_ns>+5%";
        let good = run_with_totals(&[("TIMER", 100, 1_000_000)]);
        let reason = |good: &Run, run: &Run| {
            let found = finding(good, run, rule);
            assert_eq!(found.judgement, Judgement::Unknown);
            found.reason.unwrap()
        };
        let found = reason(&good, &run_with_totals(&[("TIMER", 300, 3_000_000)]));
        let expected = "the rule's figures are totals over windows of different lengths (handlers.self_total_ns of TIMER \
                        TIMER: 1.0 ms and 3.0 ms)";
        assert_eq!(found, expected);
        let good = run_with_totals(&[("TIMER", 100, 1_000_000), ("RCU", 100, 1_000_000)]);
        let found =
            reason(&good, &run_with_totals(&[("TIMER", 300, 3_000_000), ("RCU", 100, 1_000_000)]));
        assert_eq!(found, "1 of the rule's figures are totals over windows of different lengths");
    }

    #[test]
    fn figures_below_the_detection_limit_decide_no_value() {
        let below = |mean: f64| {
            let columns = Columns::all([
                column("name", "Name.").key().text(|_: &f64| "call_function_single"),
                column("self_mean_ns", "Mean.")
                    .plus_minus("self_mean_ci95_ns")
                    .interval(record::IntervalColumns::half_width("self_mean_ci95_ns"))
                    .below_limit("self_mean_below_limit")
                    .cost()
                    .real(|mean: &f64| *mean),
                column("self_mean_ci95_ns", "Half of the interval.").detail().real(|_| 2_300.0),
                column("self_mean_below_limit", "Whether it is.").detail().bool(|_| true),
            ]);
            Run { tables: vec![columns.table("handlers", "", [mean])], ..live_run("6.1", 1) }
        };
        for bad in [-982.0, 300.0] {
            let found = finding(&below(-253.0), &below(bad), "handlers.self_mean_ns>+5%");
            assert_eq!((found.judgement, found.change_ratio), (Judgement::Unknown, None));
            assert_eq!(found.reason.unwrap(), "the rule's figures are only bounds");
        }
    }
}
