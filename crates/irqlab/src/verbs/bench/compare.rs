//! `irqlab bench compare`: how often does `irqlab compare` report a difference where there is none, and how often
//! does it find one that was planted?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use lab::compare::{Comparison, Method, Plan, Verdict, compare, verdict_if_changed};
use record::{Kind, Run, Table, read_run};
use serde_json::{Map, json};

use super::{Measured, columns, open, run_of};
use crate::console::{ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, Usage, percent};
use crate::run::stop_on_signals;

/// Largest share of pairs in which a difference may be reported that is none.
const FALSE_RATIO_MAX: f64 = 0.05;
/// What is run, unless something else is asked for.
const USUAL: [&str; 5] = ["handlers", "--stimulus", "timer", "--rate", "high"];

/// How often compare reports a difference that is none, and finds one that was planted
#[derive(Debug, clap::Args)]
pub struct CompareBenchArgs {
    /// Pairs of runs of the same thing
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pairs: u64,
    /// Change that is planted into the means of the second run of each pair
    #[arg(long, value_parser = percent, default_value = "5%", value_name = "PERCENT")]
    plant: f64,
    /// Directory of the runs, which must not exist; those that it has are compared with --again
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
    let usual = USUAL.map(str::to_owned);
    let words = if args.experiment.is_empty() { &usual[..] } else { &args.experiment };
    if !args.again {
        std::fs::create_dir(&args.keep)
            .with_context(|| format!("cannot create {} (--keep)", args.keep.display()))?;
    }
    let stop = stop_on_signals()?;
    let mut progress = ProgressLine::new(Redraw::EachStep);
    let mut found = Found::default();
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
        let [base, new] = directories.map(|directory| read_run(&directory));
        found.add(pair, &base?, &new?, args.plant)?;
    }
    drop(progress);
    if found.pairs == 0 {
        bail!(Usage(format!("{} has no pair of runs", args.keep.display())));
    }
    let mut settings = Map::new();
    settings.insert("experiment".into(), json!(words.join(" ")));
    settings.insert("planted_change_ratio".into(), json!(args.plant));
    let measured = Measured {
        settings,
        interrupted: found.pairs < args.pairs,
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
    let status = command.status().context("cannot start irqlab")?;
    if !status.success() {
        bail!("irqlab {} ended with {status}", words.join(" "));
    }
    Ok(())
}

/// A figure: its table, its row and its column.
type Name = (String, String, String);

/// What the comparisons of pairs came to.
#[derive(Default)]
struct Found {
    pairs: u64,
    figures: u64,
    /// Pairs in which a difference was reported.
    false_pairs: u64,
    reported: Vec<(u64, Name, [Option<f64>; 3])>,
    /// Of each mean: pairs that have it, and those in which the planted change was found.
    planted: BTreeMap<Name, (u64, u64)>,
}

impl Found {
    fn add(&mut self, pair: u64, base: &Run, new: &Run, plant: f64) -> anyhow::Result<()> {
        let plan = Plan { all_rows: false, margin_ratio: 0.02, rules: Vec::new() };
        let comparison = compare(base, new, &plan)?;
        self.pairs += 1;
        let before = self.reported.len();
        self.add_figures(pair, &comparison, (&plan, plant));
        self.false_pairs += u64::from(self.reported.len() > before);
        Ok(())
    }

    fn add_figures(&mut self, pair: u64, of: &Comparison<'_>, (plan, plant): (&Plan, f64)) {
        for one in of.differences.iter().filter(|one| one.method == Method::Intervals) {
            self.figures += 1;
            let column = &one.pair.column.name;
            let name = (one.pair.table.name.clone(), one.row_name(), column.clone());
            if one.verdict.is_difference() {
                let ratio = |difference: Option<f64>| one.ratio(difference?);
                let (low, high) = one.interval.unzip();
                self.reported.push((pair, name.clone(), [one.change, low, high].map(ratio)));
            }
            if column.contains("_mean") {
                let verdict = verdict_if_changed(one, plant, of, plan);
                let (pairs, found) = self.planted.entry(name).or_default();
                *pairs += 1;
                *found += u64::from(verdict == Verdict::Worse || verdict == Verdict::Changed);
            }
        }
    }

    fn summary(&self) -> Table {
        let columns = columns(&[
            ("quantity", Kind::Text, "What was found."),
            ("value", Kind::Real, "Its value."),
            ("limit", Kind::Real, "Largest value that meets the target."),
            ("met", Kind::Bool, "Whether the target is met."),
        ]);
        let doc = "Pairs of runs of the same thing: differences that are reported are none.";
        let mut table = Table::new("pairs", doc, columns);
        let share = self.false_pairs as f64 / self.pairs as f64;
        for (quantity, value, limit) in [
            ("pairs of runs", self.pairs as f64, None),
            ("figures with an interval in a pair", self.figures as f64 / self.pairs as f64, None),
            ("figures reported as different", self.reported.len() as f64, None),
            ("share of pairs with such a figure", share, Some(FALSE_RATIO_MAX)),
        ] {
            let met = limit.map(|limit| value <= limit);
            table.push(vec![quantity.into(), value.into(), limit.into(), met.into()]);
        }
        table
    }

    fn planted_table(&self) -> Table {
        let columns = columns(&[
            ("table", Kind::Text, "Table of the runs."),
            ("row", Kind::Text, "Its row."),
            ("column", Kind::Text, "Its column, a mean."),
            ("pairs", Kind::Uint, "Pairs of runs in which both have it."),
            ("found_ratio", Kind::Real, "Share of them in which the planted change is reported."),
        ]);
        let doc = "Each mean of the second run made larger by planted_change_ratio: how often that is reported.";
        let mut table = Table::new("planted", doc, columns);
        for ((name, row, column), (pairs, found)) in &self.planted {
            let share = *found as f64 / *pairs as f64;
            table.push(vec![
                name.clone().into(),
                row.clone().into(),
                column.clone().into(),
                (*pairs).into(),
                share.into(),
            ]);
        }
        table
    }

    fn reported_table(&self) -> Table {
        let columns = columns(&[
            ("pair", Kind::Uint, "Number of the pair."),
            ("table", Kind::Text, "Table of the runs."),
            ("row", Kind::Text, "Its row."),
            ("column", Kind::Text, "Its column."),
            ("change_ratio", Kind::Real, "Second less first, as a part of the first."),
            ("change_low_ratio", Kind::Real, "Lower end of its simultaneous 95 % interval."),
            ("change_high_ratio", Kind::Real, "Upper end of it."),
        ]);
        let doc = "Figures that were reported as different.";
        let mut table = Table::new("reported", doc, columns);
        for (pair, (name, row, column), ratios) in &self.reported {
            let mut values = vec![
                (*pair).into(),
                name.clone().into(),
                row.clone().into(),
                column.clone().into(),
            ];
            values.extend(ratios.map(Into::into));
            table.push(values);
        }
        table
    }
}
