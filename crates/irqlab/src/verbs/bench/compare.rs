//! `irqlab bench compare`: how often does `irqlab compare` report a difference where there is none, and how often
//! does it find one that was planted?

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use lab::compare::{
    Comparison, Difference, Method, PAIRS_MIN, Plan, Verdict, compare_series, verdict_if_changed,
};
use record::{Columns, IntervalColumns, Run, Table, column, read_run};
use serde_json::{Map, json};

use super::target::{Target, target_columns};
use super::{Measured, open, run_of};
use crate::console::{ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, Usage, percent};
use crate::run::stop_on_signals;

/// Largest share of comparisons that may report a false difference.
const FALSE_RATIO_MAX: f64 = 0.05;
/// The experiment that is run by default.
const DEFAULT_EXPERIMENT: [&str; 5] = ["handlers", "--stimulus", "timer", "--rate", "high"];

/// How often compare reports a false difference, and how often it finds a planted one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab bench compare --keep series                100 pairs of runs
  sudo irqlab bench compare --keep series --again --runs 8
  sudo irqlab bench compare --keep quiet --pairs 20 -- noise -c 1 -d 2s")]
pub struct CompareBenchArgs {
    /// Pairs of runs of the same thing
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pairs: u64,
    /// Runs on each side of a comparison: 1, or 3 and more. Each N pairs that follow one another are compared as series
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000), value_name = "N")]
    runs: u64,
    /// Change that is planted into the means of the second run of each pair
    #[arg(long, value_parser = percent, default_value = "5%", value_name = "PERCENT")]
    plant: f64,
    /// New directory for the runs; with --again, the directory of an earlier series
    #[arg(long, value_name = "DIR")]
    keep: PathBuf,
    /// Measure nothing: compare the runs in the directory of --keep again
    #[arg(long)]
    again: bool,
    /// Verb and options of an experiment on the live bench [default: handlers --stimulus timer --rate high]
    #[arg(last = true, value_name = "VERB")]
    experiment: Vec<String>,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// Measures, compares, prints.
pub fn run(args: &CompareBenchArgs) -> anyhow::Result<ExitCode> {
    let open = open(&args.results)?;
    let default = DEFAULT_EXPERIMENT.map(str::to_owned);
    let words = if args.experiment.is_empty() { &default[..] } else { &args.experiment };
    let runs = args.runs as usize;
    if runs > 1 && runs < PAIRS_MIN {
        bail!(Usage(format!(
            "--runs {runs} says too little of how much runs differ: take 1, or {PAIRS_MIN} and more"
        )));
    }
    if !args.again {
        std::fs::create_dir(&args.keep)
            .with_context(|| format!("cannot create {} (--keep)", args.keep.display()))?;
    }
    let stop = stop_on_signals()?;
    let mut progress = ProgressLine::new(Redraw::EachStep);
    let mut found = Found::default();
    let (mut base, mut new) = (VecDeque::new(), VecDeque::new());
    let mut measured_pairs = 0;
    for pair in 1..=args.pairs {
        if stop.is_requested() {
            break;
        }
        progress.step(pair as usize, args.pairs as usize, "a pair of runs");
        let directories = ["a", "b"].map(|run| args.keep.join(format!("{pair}-{run}")));
        if args.again && !directories.iter().all(|directory| directory.exists()) {
            break;
        }
        for directory in directories.iter().filter(|_| !args.again) {
            measure(words, directory)?;
        }
        base.push_back(read_run(&directories[0])?);
        new.push_back(read_run(&directories[1])?);
        measured_pairs = pair;
        if base.len() > runs {
            base.pop_front();
            new.pop_front();
        }
        if base.len() == runs {
            found.add(pair, base.make_contiguous(), new.make_contiguous(), args.plant)?;
        }
    }
    drop(progress);
    if found.comparisons == 0 {
        bail!(Usage(format!("{} has fewer than {runs} pairs of runs", args.keep.display())));
    }
    let mut settings = Map::new();
    settings.insert("experiment".into(), json!(words.join(" ")));
    settings.insert("runs_on_each_side".into(), json!(args.runs));
    settings.insert("planted_change_ratio".into(), json!(args.plant));
    let measured = Measured {
        settings,
        interrupted: measured_pairs < args.pairs,
        tables: vec![found.summary(), found.planted_table(), found.reported_table()],
        ..Measured::default()
    };
    open.finish(&run_of("bench-compare", open.started(), measured), &[])
}

/// Runs the experiment by this program, with a run directory.
fn measure(words: &[String], directory: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find irqlab's own file")?;
    let mut command = Command::new(program);
    command.args(words).arg("--quiet").arg("--out").arg(directory).stdout(Stdio::null());
    let status = command.status().map_err(live::spawn::with_reached_limit);
    let status = status.context("cannot start irqlab")?;
    if !status.success() {
        bail!("irqlab {} ended with {status}", words.join(" "));
    }
    Ok(())
}

/// The name of a figure.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    table: String,
    row: String,
    column: String,
}

/// The results of all comparisons.
#[derive(Default)]
struct Found {
    comparisons: u64,
    /// Figures that were judged.
    figures: u64,
    /// Comparisons that reported a difference.
    false_comparisons: u64,
    reported: Vec<Reported>,
    planted: BTreeMap<Name, Planted>,
}

/// A figure that a comparison reported as different.
struct Reported {
    /// Number of the last pair of the comparison, from 1.
    pair: u64,
    name: Name,
    /// Second less first, as a part of the first.
    change: Option<f64>,
    /// Ends of the interval of `change`.
    low: Option<f64>,
    high: Option<f64>,
}

/// Comparisons of a mean to which a change was planted.
#[derive(Default)]
struct Planted {
    judged: u64,
    /// Comparisons that report the change.
    found: u64,
}

fn is_judged(difference: &&Difference<'_>) -> bool {
    matches!(difference.method, Method::Intervals | Method::Runs)
}

impl Found {
    fn add(&mut self, pair: u64, base: &[Run], new: &[Run], plant: f64) -> anyhow::Result<()> {
        let plan = Plan { all_rows: false, margin_ratio: 0.02, rules: Vec::new() };
        let comparison = compare_series(base, new, &plan)?;
        self.comparisons += 1;
        let before = self.reported.len();
        self.add_figures(pair, &comparison, &plan, plant);
        self.false_comparisons += u64::from(self.reported.len() > before);
        Ok(())
    }

    fn add_figures(&mut self, pair: u64, comparison: &Comparison<'_>, plan: &Plan, plant: f64) {
        for difference in comparison.differences.iter().filter(is_judged) {
            self.figures += 1;
            let column = &difference.pair.column.name;
            let name = Name {
                table: difference.pair.table.name.clone(),
                row: difference.row_name(),
                column: column.clone(),
            };
            if difference.verdict.is_difference() {
                let ratio = |change: Option<f64>| difference.ratio(change?);
                let (low, high) = difference.interval.unzip();
                let [change, low, high] = [difference.change, low, high].map(ratio);
                self.reported.push(Reported { pair, name: name.clone(), change, low, high });
            }
            if column.contains("_mean") {
                let verdict = verdict_if_changed(difference, plant, plan);
                let planted = self.planted.entry(name).or_default();
                planted.judged += 1;
                planted.found +=
                    u64::from(verdict == Verdict::Worse || verdict == Verdict::Changed);
            }
        }
    }

    fn summary(&self) -> Table {
        let share = |count: u64| count as f64 / self.comparisons as f64;
        let rows = [
            Target::unlimited("comparisons", self.comparisons as f64),
            Target::unlimited("figures judged in a comparison", share(self.figures)),
            Target::unlimited("figures reported as different", self.reported.len() as f64),
            Target::limited(
                "share of comparisons with such a figure",
                share(self.false_comparisons),
                FALSE_RATIO_MAX,
            ),
        ];
        let columns = target_columns(
            column("quantity", "Number or share that was found."),
            column("value", "Value of the quantity."),
            column("limit", "Largest value that meets the target."),
        );
        let doc =
            "Comparisons of runs of the same thing: every reported difference is a false one.";
        columns.table("pairs", doc, rows)
    }

    fn planted_table(&self) -> Table {
        type Row<'a> = (&'a Name, &'a Planted);
        let columns =
            name_columns("Its column, a mean.").of_ref(|(name, _): &Row<'_>| *name).and([
                column("comparisons", "Comparisons that judge it.")
                    .uint(|(_, planted): &Row<'_>| planted.judged),
                column("found_ratio", "Share of these comparisons that report the planted change.")
                    .real(|(_, planted): &Row<'_>| planted.found as f64 / planted.judged as f64),
            ]);
        let doc = "Each mean of the second run made larger by planted_change_ratio: how often that is reported.";
        columns.table("planted", doc, &self.planted)
    }

    fn reported_table(&self) -> Table {
        let [low, high] = ["change_low_ratio", "change_high_ratio"];
        let columns = Columns::all([
            column("pair", "Number of the last pair of the comparison.")
                .uint(|row: &Reported| row.pair),
            name_columns("Its column.").of_ref(|row: &Reported| &row.name),
            column("change_ratio", "Second less first, as a part of the first.")
                .interval(IntervalColumns::bounds(low, high))
                .real(|row: &Reported| row.change),
            column(low, "Lower end of its simultaneous 95 % interval.")
                .real(|row: &Reported| row.low),
            column(high, "Upper end of it.").real(|row: &Reported| row.high),
        ]);
        let doc = "Figures that were reported as different.";
        columns.table("reported", doc, &self.reported)
    }
}

/// The columns that name a figure. `column_doc` describes the column `column`.
fn name_columns<'a>(column_doc: &str) -> Columns<'a, Name> {
    Columns::all([
        column("table", "Table of the runs.").text(|name: &Name| name.table.clone()),
        column("row", "Its row.").text(|name: &Name| name.row.clone()),
        column("column", column_doc).text(|name: &Name| name.column.clone()),
    ])
}
