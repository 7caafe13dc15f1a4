//! `irqlab compare`: what changed between two runs, or two series of runs, and a gate for CI.
//!
//! Reads the runs and checks the options; `lab::compare` compares them and makes the tables. `irqlab report` uses
//! [`run_of`] for its page.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::compare::{
    CompareError, Comparison, Listed, Plan, Rule, Ruling, compare_series, self_test, tables,
};
use record::{
    Absence, Part, ReadError, Role, Run, SCHEMA, Table, is_run_directory, read_run, read_run_parts,
};
use serde_json::{Map, Value as Json, json};

use crate::options::{Format, OptionalResultArgs, Usage, percent};
use crate::run::{OpenRun, made_by};

/// Exit code when a rule is broken.
const BROKEN: u8 = 3;

/// Compare two runs, or several runs on each side, and check rules on what changed
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A rule is TABLE.COLUMN>+2% or TABLE[KEY=VALUE,...].COLUMN<-5%; without %, the limit is in the unit of
the column. On a live bench, a rule is broken if the whole 95 % interval of a difference is beyond the limit.
On a simulated machine, where runs are exact, it is broken if the difference is beyond the limit.

Examples:
  irqlab compare BASE NEW
  irqlab compare BASE NEW --fail-on 'handlers.self_mean_ns>+5%'
  irqlab compare BASE NEW --fail-on 'events[event=instructions].self_mean>+1%' --format markdown
  irqlab compare BASE --self-test --fail-on 'handlers[name=TIMER].self_mean_ns>+5%'
  for i in $(seq 8); do irqlab handlers --out base/$i; irqlab handlers --load busy --out new/$i; done
  irqlab compare base new                         eight live runs on each side, taken alternately

Exit codes: 0 compared, and no rule is broken; 1 failed; 2 the command line is wrong, or a rule matches nothing;
3 a rule is broken, or with --self-test, a rule cannot be broken."
)]
pub struct CompareArgs {
    /// Run directory to compare with, or a directory that holds several of them
    base: PathBuf,
    /// Run directory to judge, or a directory that holds as many of them
    #[arg(required_unless_present = "self_test", conflicts_with = "self_test")]
    new: Option<PathBuf>,
    /// Exit with 3 if a figure changes by more than this rule allows; may be repeated
    #[arg(long, value_name = "RULE")]
    fail_on: Vec<Rule>,
    /// Test the rules: compare BASE with itself and with changed figures, to prove that each rule can be broken
    #[arg(long, requires = "fail_on")]
    self_test: bool,
    /// Figures that are not exact count as equal if they differ by less
    #[arg(long, allow_hyphen_values = true, value_parser = percent, default_value = "2%",
          value_name = "PERCENT")]
    margin: f64,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// A table with more rows is long: [`read`] looks at its key columns first. A comparison of more figures than this
/// lists only the figures that differ.
const LONG: u64 = 100_000;

/// Reads a run: whole if one of its long tables can be compared, else only the key columns of its long tables.
///
/// A table whose keys do not identify its rows cannot be compared. The comparison needs its keys to say so.
fn read(path: &Path) -> Result<Run, ReadError> {
    let is_key = |column: &&record::Column| column.role == Role::Key;
    let run = read_run_parts(path, |table| {
        let keys = table.columns.iter().filter(is_key).map(|column| column.name.clone());
        if table.row_count() > LONG { Part::Columns(keys.collect()) } else { Part::All }
    })?;
    // Long tables have only their key columns here, so a row is its key.
    let has_unique_keys = |table: &Table| {
        let mut seen = HashSet::new();
        !table.columns.is_empty() && table.rows().iter().all(|row| seen.insert(format!("{row:?}")))
    };
    let is_long = |table: &&Table| table.row_count() > LONG;
    let can_be_compared = run.tables.iter().filter(is_long).any(has_unique_keys);
    if can_be_compared { read_run(path) } else { Ok(run) }
}

/// The figures that a comparison lists for people: all figures, or only differing figures if there are too many.
pub(super) fn listed_for_people(figures: usize) -> Listed {
    if figures as u64 <= LONG { Listed::All } else { Listed::Differing }
}

/// Maximum number of runs on one side of a comparison.
const RUNS_MAX: usize = 1_000;

/// Reads the runs of one side, sorted by their start. `path`: a run directory, or a directory with run directories.
fn read_side(path: &Path) -> anyhow::Result<Vec<Run>> {
    if is_run_directory(path) || !path.is_dir() {
        return Ok(vec![read(path)?]);
    }
    let entries = std::fs::read_dir(path)
        .with_context(|| format!("cannot read the directory {}", path.display()))?;
    let mut directories = Vec::new();
    for entry in entries {
        let directory = entry.with_context(|| format!("cannot read {}", path.display()))?.path();
        if is_run_directory(&directory) {
            directories.push(directory);
        }
        if directories.len() > RUNS_MAX {
            bail!(Usage(format!("{} holds more than {RUNS_MAX} runs", path.display())));
        }
    }
    if directories.is_empty() {
        return Ok(vec![read(path)?]);
    }
    let runs: Result<Vec<Run>, ReadError> = directories.iter().map(|path| read(path)).collect();
    let mut runs = runs?;
    // As times, because a text without a fraction of a second would come after those with one.
    runs.sort_by_key(|run| run.started_utc.parse::<record::Timestamp>().ok());
    Ok(runs)
}

/// The figures that a comparison lists with these options. Recorded runs and formats for programs list all figures.
fn listed(results: &OptionalResultArgs, figures: usize) -> Listed {
    let is_for_people = matches!(results.printing.format(), Format::Table | Format::Markdown);
    let needs_all = results.out.is_some() || results.printing.all || !is_for_people;
    if needs_all { Listed::All } else { listed_for_people(figures) }
}

/// Makes the complete run of a comparison, with bench and host of `base`. Its settings are `settings` and the counts of
/// the comparison. Moves the warnings out of `comparison`.
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

pub fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let open = OpenRun::if_asked(&args.results)?;
    let bases = read_side(&args.base)?;
    let news = args.new.as_deref().map(read_side).transpose()?;
    let base = &bases[0];
    if args.self_test && bases.len() > 1 {
        bail!(Usage("--self-test takes one run".to_owned()));
    }
    let plan = Plan {
        all_rows: args.results.printing.all,
        margin_ratio: args.margin,
        rules: args.fail_on.clone(),
    };
    let usage = |error: CompareError| Usage(error.to_string());
    let mut comparison =
        compare_series(&bases, news.as_ref().unwrap_or(&bases), &plan).map_err(usage)?;
    let tests = if args.self_test { self_test(base, &plan).map_err(usage)? } else { Vec::new() };
    let cannot_fail =
        |test: &lab::compare::SelfTest| !test.holds_for_itself || test.breaks_from_ratio.is_none();
    let is_broken = tests.iter().any(cannot_fail)
        || comparison.outcomes.iter().any(|outcome| outcome.ruling == Ruling::Broken);
    let (tables, absent) =
        tables(&comparison, &tests, listed(&args.results, comparison.differences.len()));
    let name = |path: &PathBuf| path.display().to_string();
    let mut settings: Map<String, Json> = made_by().collect();
    for (key, value) in [
        ("base", json!(name(&args.base))),
        ("new", json!(args.new.as_ref().map(name))),
        ("runs_on_each_side", json!(bases.len())),
        ("experiment", json!(base.experiment)),
        ("rules", json!(args.fail_on.iter().map(ToString::to_string).collect::<Vec<_>>())),
        ("margin_ratio", json!(args.margin)),
        ("self_test", json!(args.self_test)),
    ] {
        settings.insert(key.to_owned(), value);
    }
    let run = run_of(base, open.started().to_string(), &mut comparison, settings, (tables, absent));
    let exit = open.finish(&run, &[])?;
    Ok(if is_broken { ExitCode::from(BROKEN) } else { exit })
}
