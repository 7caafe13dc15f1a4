//! `irqlab affinity`: where interrupt lines should run, by their measured cost.
//!
//! `machine` reads the lines and makes the planner's problem; `lab::affinity` plans and makes the tables; `apply` moves
//! lines and undoes that. The costs come from the experiment `handlers`, measured here or taken from a run.

mod apply;
mod machine;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use lab::affinity::{
    AffinityReport, AppliedChange, Costs, Placement, affinity_cpu_table, affinity_table, plan,
};
use lab::experiment::{self, BenchError, Outcome, RunContext};
use lab::handlers::{Condition, Plan};
use live::handlers::{LiveBench, LiveSettings};
use live::host::{Root, format_cpu_list, host_facts, process_cpus, run_host_block};
use live::irq_lines::{boot_id, lines_of_interfaces};
use live::window::{Stop, WindowEnd};
use record::{Run, SCHEMA, keys, read_run};
use serde_json::{Map, Value as Json, json};

use self::machine::Machine;
use crate::console::{self, ProgressLine, Redraw};
use crate::options::{ResultArgs, Usage, duration, ns, percent};
use crate::run::{NothingSet, OpenRun, STOPPED, made_by, stop_on_signals, without_output_options};

/// Where should interrupts run, by their measured cost?
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab affinity                        lines, their cost, where they run and where they should
  sudo irqlab affinity --run RUN              the same, with the costs of a run of irqlab handlers
  sudo irqlab affinity -c 0-3                 only CPUs 0 to 3 take lines
  sudo irqlab affinity --apply                move the lines, and measure again
  sudo irqlab affinity --undo                 give the lines their former CPUs

Without --apply, no line is moved. With it, lines stay moved until --undo or a reboot. If irqlab is killed while it
moves lines, no undo is needed: the next start of any verb gives them their former CPUs.

Exit codes: 0 done; 1 failed; 2 the command line is wrong; 4 nothing can be measured, or no line can be moved here.")]
pub struct AffinityArgs {
    /// Take the costs from this run of `irqlab handlers`, which must be of this boot [default: measure]
    #[arg(long, value_name = "RUN")]
    run: Option<PathBuf>,
    /// How long to measure
    #[arg(short, long, allow_hyphen_values = true, value_parser = duration, default_value = "10s",
          value_name = "TIME")]
    duration: Duration,
    /// CPUs that may take lines, as in 0-3,8 [default: all online CPUs that are not isolated]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// Move a line for balance, or to its device, only for at least this part of a CPU
    #[arg(long, allow_hyphen_values = true, value_parser = percent, default_value = "0.5%",
          value_name = "PERCENT")]
    materiality: f64,
    /// Move the lines as planned, and measure again
    #[arg(long)]
    apply: bool,
    /// Give the lines that --apply moved their former CPUs
    #[arg(long, conflicts_with_all = ["run", "duration", "cpus", "materiality", "apply", "out"])]
    undo: bool,
    #[command(flatten)]
    results: ResultArgs,
}

pub fn run(args: &AffinityArgs) -> anyhow::Result<ExitCode> {
    if args.undo {
        return apply::undo();
    }
    let root = Root::default();
    let stored_run = args.run.as_deref().map(run_of_this_boot).transpose()?;
    let machine = Machine::read(&root, args.cpus.as_deref())?;
    if args.apply {
        apply::check_rights(&machine.lines)?;
    }
    let open = OpenRun::new("affinity", &args.results)?;
    let mut bench = match &stored_run {
        Some(_) if !args.apply => None,
        _ => Some(bench(&machine, args.duration, stop_on_signals()?)?),
    };
    let first = match (stored_run, &mut bench) {
        (Some(run), _) => run,
        (None, Some(bench)) => measure(bench)?,
        (None, None) => bail!("there is no bench to measure with"),
    };
    let devices = lines_of_interfaces(&machine.lines);
    let costs = Costs::of_run(&first, &devices)
        .map_err(|error| Usage(format!("{} has no costs of lines: {error}", source(args))))?;
    machine.check_cpus(&costs, &source(args))?;
    let problem = machine.problem(&costs, args.materiality);
    let placements = plan(&problem);
    let mut report = machine.report(&costs, &problem, &placements);
    let mut warnings = machine.warnings(&costs, args.apply);
    warnings.extend(first.warnings.iter().cloned());
    let is_moved = args.apply && first.complete;
    if args.apply && !first.complete {
        warnings.push("no line was moved, because the measurement was stopped".to_owned());
    }
    let (mut complete, mut moved_count) = (first.complete, 0);
    if let (true, Some(bench)) = (is_moved && has_moves(&placements), &mut bench) {
        let applied = apply::apply(&placements)?;
        moved_count = applied.moved_count;
        warnings.extend(applied.warnings);
        let in_force = placements_in_force(&placements, &applied.changes);
        report = machine.report(&costs, &problem, &in_force);
        restore_plan(&mut report, &placements, &applied.changes);
        let undo = "the lines are moved; to undo it: sudo irqlab affinity --undo";
        let second = measure(bench).with_context(|| format!("not measured again ({undo})"))?;
        complete &= second.complete;
        let after = Costs::of_run(&second, &devices).context(undo)?;
        warnings.extend(machine.note_after(&root, &after, &in_force, &mut report));
        warnings.extend(second.warnings.iter().map(|warning| format!("measured again: {warning}")));
    }
    let run = record_of(args, &open, &machine, (report, complete, warnings));
    let exit = open.finish(&run, &[])?;
    say_next_step(&placements, moved_count, is_moved)?;
    Ok(exit)
}

/// Reads a run and checks that it was measured in this boot.
fn run_of_this_boot(path: &Path) -> anyhow::Result<Run> {
    let run = read_run(path)?;
    let shown = path.display();
    let again = "measure again: sudo irqlab affinity";
    match run.settings.get(keys::BOOT_ID).and_then(Json::as_str) {
        Some(boot) if Some(boot) == boot_id(&Root::default()).as_deref() => Ok(run),
        Some(_) => bail!(Usage(format!(
            "{shown} was measured on another machine, or before this machine's last boot: its interrupt numbers may be \
             those of other devices here ({again})"
        ))),
        None => bail!(Usage(format!(
            "{shown} does not name its boot, as live runs of irqlab handlers do ({again})"
        ))),
    }
}

/// The source of the costs, in words.
fn source(args: &AffinityArgs) -> String {
    args.run.as_ref().map_or_else(
        || format!("the measurement of {:?}", args.duration),
        |run| format!("the run {}", run.display()),
    )
}

/// The bench of `handlers` on all CPUs, without events.
fn bench(machine: &Machine, duration: Duration, stop: Stop) -> anyhow::Result<LiveBench> {
    let permitted = &process_cpus().permitted;
    if let Some(cpu) = machine.online.iter().find(|cpu| !permitted.contains(cpu)) {
        let permitted = format_cpu_list(permitted);
        bail!(BenchError::nothing_measurable(format!(
            "CPU {cpu} is not in this process's cpuset, which has {permitted}, and the interrupts of all CPUs are needed"
        )));
    }
    console::say_more("calibrating the probes");
    let settings = LiveSettings::new(machine.online.clone(), WindowEnd::Elapsed(duration), stop);
    Ok(LiveBench::new(settings)?)
}

/// Measures the machine as it is, by the experiment `handlers`.
fn measure(bench: &mut LiveBench) -> anyhow::Result<Run> {
    let plan = Plan { conditions: vec![Condition::Ambient], histograms: false };
    let mut progress = ProgressLine::new(Redraw::EverySecond);
    match experiment::run(&plan, RunContext::default(), bench, &mut progress)? {
        Outcome::Run { run, .. } => Ok(*run),
        Outcome::NothingMeasurable { reason, remedy } => {
            bail!(BenchError::NothingMeasurable { reason, remedy })
        }
        Outcome::Stopped => bail!(STOPPED),
    }
}

fn has_moves(placements: &[Placement]) -> bool {
    placements.iter().any(|placement| placement.target.is_some())
}

/// The placements without the moves that the kernel refused.
fn placements_in_force(
    placements: &[Placement],
    changes: &[(u32, AppliedChange)],
) -> Vec<Placement> {
    let is_refused = |irq: u32| {
        changes
            .iter()
            .any(|(number, change)| *number == irq && matches!(change, AppliedChange::Refused(_)))
    };
    let in_force = placements.iter().map(|placement| Placement {
        target: placement.target.filter(|_| !is_refused(placement.irq)),
        ..*placement
    });
    in_force.collect()
}

/// Adds the plan and the kernel's answers to the report of the placements in force.
fn restore_plan(
    report: &mut AffinityReport,
    placements: &[Placement],
    changes: &[(u32, AppliedChange)],
) {
    for (line, placement) in report.lines.iter_mut().zip(placements) {
        line.target = placement.target;
        let change = changes.iter().find(|(irq, _)| *irq == line.irq);
        line.applied = change.map(|(_, change)| change.clone());
    }
}

/// The run of this call.
fn record_of(
    args: &AffinityArgs,
    open: &OpenRun,
    machine: &Machine,
    (report, complete, warnings): (AffinityReport, bool, Vec<String>),
) -> Run {
    let [before, predicted, after] = report.busiest();
    let ratio = |busiest: Option<lab::affinity::Busiest>| busiest.map(|busiest| busiest.load_ratio);
    let share =
        |busiest: Option<lab::affinity::Busiest>| busiest.map(|busiest| busiest.share_ratio);
    let mut settings: Map<String, Json> = made_by().collect();
    let entries = [
        ("duration_ns", json!(args.run.is_none().then(|| ns(args.duration)))),
        ("run", json!(args.run)),
        ("cost_source", json!(source(args))),
        ("materiality_ratio", json!(args.materiality)),
        ("cpus_for_lines", json!(format_cpu_list(&machine.usable))),
        ("apply", json!(args.apply)),
        (keys::BOOT_ID, json!(boot_id(&Root::default()))),
        ("irqbalance_processes", json!(machine.irqbalance)),
        ("busiest_before_ratio", json!(ratio(before))),
        ("busiest_predicted_ratio", json!(ratio(predicted))),
        ("busiest_after_ratio", json!(ratio(after))),
        ("busiest_before_share_ratio", json!(share(before))),
        ("busiest_predicted_share_ratio", json!(share(predicted))),
        ("busiest_after_share_ratio", json!(share(after))),
    ];
    // An absent figure has no key, so that no note names it.
    let known = entries.into_iter().filter(|(_, value)| !value.is_null());
    settings.extend(known.map(|(key, value)| (key.to_owned(), value)));
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "affinity".to_owned(),
        bench: "live".to_owned(),
        started_utc: open.started().to_string(),
        complete,
        host: run_host_block(&host_facts(&Root::default())),
        settings,
        observer: Map::new(),
        warnings,
        absent: Vec::new(),
        tables: vec![affinity_table(&report), affinity_cpu_table(&report)],
    }
}

/// Prints the outcome and the command that continues.
///
/// Fails with [`NothingSet`] if lines were to be moved, and the kernel refused all moves.
fn say_next_step(
    placements: &[Placement],
    moved_count: usize,
    is_moved: bool,
) -> anyhow::Result<()> {
    let planned = placements.iter().filter(|placement| placement.target.is_some()).count();
    let lines =
        |count: usize| if count == 1 { "1 line".to_owned() } else { format!("{count} lines") };
    match (planned, is_moved) {
        (0, _) => console::say("no line needs to move"),
        (_, false) => console::say(&format!(
            "{} would move; to move and measure again: sudo irqlab affinity --apply{}",
            lines(planned),
            given_options(),
        )),
        (_, true) if moved_count == 0 => {
            let reason = "the kernel refused all moves (table affinity has the reasons)".to_owned();
            bail!(NothingSet { reason, remedy: None });
        }
        (_, true) => console::say(&format!(
            "{} moved, until a reboot; to undo it: sudo irqlab affinity --undo",
            lines(moved_count)
        )),
    }
    Ok(())
}

/// The options of this call that determine the plan, to be given again with `--apply`. Empty if a word cannot be quoted.
fn given_options() -> String {
    let arguments =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let mut arguments = without_output_options(arguments);
    if let Some(verb) = arguments.iter().position(|argument| argument == "affinity") {
        arguments.remove(verb);
    }
    arguments.retain(|argument| argument != "--apply");
    let line = shlex::try_join(arguments.iter().map(String::as_str)).unwrap_or_default();
    if line.is_empty() { line } else { format!(" {line}") }
}
