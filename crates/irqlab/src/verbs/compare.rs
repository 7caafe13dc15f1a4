//! `irqlab compare`: what changed between two runs, and a gate for CI.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lab::compare::{
    CompareError, Comparison, Listed, Plan, Rule, Ruling, compare, self_test, tables,
};
use record::{Absence, Part, ReadError, Role, Run, SCHEMA, Table, read_run, read_run_parts};
use serde_json::{Map, Value as Json, json};

use crate::options::{Format, OptionalResultArgs, Usage, percent};
use crate::run::OpenRun;

/// A rule of the gate is broken.
const BROKEN: u8 = 3;

/// What changed between two runs, and whether a rule is broken
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A rule is TABLE.COLUMN>+2% or TABLE[KEY=VALUE,...].COLUMN<-5%; without %, the limit is in the unit of
the column. On a live bench a rule is broken when the whole 95 % interval of a difference is beyond the
limit; on a simulated machine, where runs are exact, when the difference is.

Examples:
  irqlab compare BASE NEW
  irqlab compare BASE NEW --fail-on 'handlers.self_mean_ns>+5%'
  irqlab compare BASE NEW --fail-on 'events[event=instructions].self_mean>+1%' --format markdown
  irqlab compare BASE --self-test --fail-on 'handlers[name=TIMER].self_mean_ns>+5%'

Exit codes: 0 compared, and no rule is broken; 1 failed; 2 a mistake in what was typed, or a rule that is about
nothing; 3 a rule is broken, or with --self-test cannot be."
)]
pub struct CompareArgs {
    /// Run directory that is compared with
    base: PathBuf,
    /// Run directory that is judged
    #[arg(required_unless_present = "self_test", conflicts_with = "self_test")]
    new: Option<PathBuf>,
    /// Exit with 3 where a figure changes by more
    #[arg(long, value_name = "RULE")]
    fail_on: Vec<Rule>,
    /// Prove that each rule can be broken: compare BASE with itself and with changed figures
    #[arg(long, requires = "fail_on")]
    self_test: bool,
    /// On a live bench: figures that differ by less are equal
    #[arg(long, allow_hyphen_values = true, value_parser = percent, default_value = "2%",
          value_name = "PERCENT")]
    margin: f64,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// A table of more rows is first looked at by its key columns; a comparison of more figures lists those that differ.
const LONG: u64 = 100_000;

/// Reads a run. A long table whose keys do not name its rows is not compared: only its keys are read, so
/// that the comparison says why.
fn read(path: &Path) -> Result<Run, ReadError> {
    let is_key = |column: &&record::Column| column.role == Role::Key;
    let run = read_run_parts(path, |table| {
        let keys = table.columns.iter().filter(is_key).map(|column| column.name.clone());
        if table.row_count() > LONG { Part::Columns(keys.collect()) } else { Part::All }
    })?;
    let has_names = |table: &Table| {
        let mut seen = HashSet::new();
        !table.columns.is_empty() && table.rows().iter().all(|row| seen.insert(format!("{row:?}")))
    };
    let is_long = |table: &&Table| table.row_count() > LONG;
    let is_compared = run.tables.iter().filter(is_long).any(has_names);
    if is_compared { read_run(path) } else { Ok(run) }
}

/// What is listed of a comparison that people see: of a long one, what differs.
pub(super) fn listed_for_people(figures: usize) -> Listed {
    if figures as u64 <= LONG { Listed::All } else { Listed::Differing }
}

fn listed(results: &OptionalResultArgs, figures: usize) -> Listed {
    let is_for_people = matches!(results.printing.format(), Format::Table | Format::Markdown);
    let is_whole = results.out.is_some() || results.printing.all || !is_for_people;
    if is_whole { Listed::All } else { listed_for_people(figures) }
}

/// The run of a comparison with `base`; `settings` are those that the verb adds to the counts.
pub(super) fn run_of(
    base: &Run,
    started_utc: String,
    comparison: &mut Comparison<'_>,
    mut settings: Map<String, Json>,
    (tables, absent): (Vec<Table>, Vec<Absence>),
) -> Run {
    settings.extend(comparison.counts().map(|(key, count)| (key.to_owned(), json!(count))));
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "compare".to_owned(),
        bench: base.bench.clone(),
        started_utc,
        complete: true,
        host: base.host.clone(),
        settings,
        observer: Map::new(),
        warnings: std::mem::take(&mut comparison.warnings),
        absent,
        tables,
    }
}

/// Reads the runs, compares and prints.
pub fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let open = OpenRun::if_asked(&args.results)?;
    let base = read(&args.base)?;
    let new = args.new.as_deref().map(read).transpose()?;
    let plan = Plan {
        all_rows: args.results.printing.all,
        margin_ratio: args.margin,
        rules: args.fail_on.clone(),
    };
    let usage = |error: CompareError| Usage(error.to_string());
    let mut comparison = compare(&base, new.as_ref().unwrap_or(&base), &plan).map_err(usage)?;
    let tests = match args.self_test {
        true => self_test(&base, &plan).map_err(usage)?,
        false => Vec::new(),
    };
    let cannot_fail =
        |test: &lab::compare::SelfTest| !test.holds_for_itself || test.breaks_from_ratio.is_none();
    let is_broken = tests.iter().any(cannot_fail)
        || comparison.outcomes.iter().any(|outcome| outcome.ruling == Ruling::Broken);
    let (tables, absent) =
        tables(&comparison, &tests, listed(&args.results, comparison.differences.len()));
    let name = |path: &PathBuf| path.display().to_string();
    let mut settings = Map::new();
    for (key, value) in [
        ("base", json!(name(&args.base))),
        ("new", json!(args.new.as_ref().map(name))),
        ("experiment", json!(base.experiment)),
        ("rules", json!(args.fail_on.iter().map(ToString::to_string).collect::<Vec<_>>())),
        ("margin_ratio", json!(args.margin)),
        ("self_test", json!(args.self_test)),
    ] {
        settings.insert(key.to_owned(), value);
    }
    let run =
        run_of(&base, open.started().to_string(), &mut comparison, settings, (tables, absent));
    let exit = open.finish(&run, &[])?;
    Ok(if is_broken { ExitCode::from(BROKEN) } else { exit })
}
