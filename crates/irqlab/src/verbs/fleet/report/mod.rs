//! `irqlab fleet report`: outliers among the hosts, groups of hosts by kernel, microcode and settings, and what differs
//! between the best and the worst host.
//!
//! `metric` chooses a figure of each run. This file reads the runs one after the other and keeps only figures, facts and
//! caveats (`host_warnings`). `analysis` judges them, `tables` makes the tables, and `report` prints them and makes the page.

mod analysis;
mod host_warnings;
mod metric;
mod tables;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::fleet::{Facts, FleetDirectory, HostRecord, HostState, facts_of};
use anyhow::{Context, bail};
use record::{Part, Run};
use report::{FleetPage, fleet_page, shell_word};

use self::analysis::Analysis;
use self::host_warnings::Caveats;
use self::metric::{HostFigure, Metric};
use super::super::sweep::print_with_answers;
use super::usage;
use crate::console;
use crate::options::Usage;
use crate::output_file::{self, ForceArgs};
use crate::run::stop_on_signals;

/// Report outliers among the hosts, groups by kernel, microcode and settings, and the best and the worst host
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab fleet report monday
  irqlab fleet report monday -o monday.html
  irqlab fleet report monday --metric max:noise.detour_max_ns
  irqlab fleet report monday --metric 'handlers[name=NET_RX].self_mean_ns' --all

A metric is one figure of each host: TABLE.COLUMN, with [KEY=VALUE] for the row. With sum:, mean:, max: or min: before
it, several rows become one figure. Without --metric: the time lost and the longest detour of noise, the share of CPU
time of all handlers, the 99th percentile and the maximum of wakeup; of other experiments, their headline column.

Exit codes: 0 reported, also if hosts are not done; 1 failed; 2 the command line is wrong, or no host has the figure.")]
pub struct ReportArgs {
    /// Directory of the fleet
    #[arg(value_name = "DIR")]
    fleet: PathBuf,
    /// Figure of each host, as in max:noise.detour_max_ns; may be repeated [default: by the experiment]
    #[arg(long = "metric", value_name = "TABLE.COLUMN")]
    metrics: Vec<Metric>,
    /// Also write an HTML page to this file
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

/// A host of the report.
struct Host {
    record: HostRecord,
    /// The figure of each metric, or why it is absent.
    figures: Vec<Result<HostFigure, String>>,
    facts: Facts,
    /// The reasons that its run gives to doubt its figures.
    caveats: Caveats,
}

pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    if let Some(output) = &args.output {
        output_file::check(output, args.force)?;
    }
    let fleet = FleetDirectory::open(&args.fleet).map_err(usage)?;
    let records = fleet.records().map_err(usage)?;
    let first = first_run(&fleet, &records)?;
    let metrics = if args.metrics.is_empty() {
        Metric::defaults(&first)?
    } else {
        args.metrics.iter().try_for_each(|metric| metric.check(&first))?;
        args.metrics.clone()
    };
    let (hosts, started_utc) = read_hosts(&fleet, records, &metrics, &first)?;
    let analyses: Vec<Analysis> = metrics
        .iter()
        .enumerate()
        .map(|(index, metric)| Analysis::new(metric, index, &first, &hosts))
        .collect();
    refuse_without_figures(&metrics, &hosts)?;
    let report = tables::report(&fleet, &first.experiment, started_utc, &hosts, &analyses);
    let answers = tables::answers(&hosts, &analyses);
    let command = command(args);
    if let Some(output) = &args.output {
        let page_command = format!("{command} -o {}", shell_word(&output.display().to_string()));
        // The page has room for all hosts.
        let all_rows = report.tables.iter().cloned().map(|mut table| {
            table.display.rows_max = None;
            table
        });
        let page = FleetPage {
            report: &report.with_tables(all_rows.collect()),
            answers: &answers,
            print_command: &command,
            command: &page_command,
        };
        output_file::write(output, fleet_page(page).as_bytes(), args.force)
            .context("cannot write the page")?;
    }
    print_with_answers(
        &report,
        &answers,
        args.json,
        args.all,
        format!("{command} with --all or --json"),
    )?;
    if let Some(output) = &args.output {
        console::say(&format!("report: {}", output.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The run of the first host that is done, with rows.
fn first_run(fleet: &FleetDirectory, records: &[HostRecord]) -> anyhow::Result<Run> {
    let done = records.iter().filter(|record| record.state == HostState::Done);
    for record in done {
        if let Ok(run) = record::read_run(&fleet.run_path(&record.host)) {
            return Ok(run);
        }
    }
    let path = shell_word(&fleet.path().display().to_string());
    bail!(Usage(format!(
        "no host has a run that can be read: {} are listed in {path}/hosts.json (irqlab fleet collect takes the missing \
         ones)",
        records.len()
    )));
}

/// Reads figures and facts of all hosts. Also returns the start of the first run.
fn read_hosts(
    fleet: &FleetDirectory,
    records: Vec<HostRecord>,
    metrics: &[Metric],
    first: &Run,
) -> anyhow::Result<(Vec<Host>, String)> {
    let stop = stop_on_signals()?;
    let mut started_utc = first.started_utc.clone();
    let mut hosts = Vec::with_capacity(records.len());
    for record in records {
        if stop.is_requested() {
            bail!("stopped; nothing was written");
        }
        let absent = |reason: &str| {
            (vec![Err(reason.to_owned()); metrics.len()], Facts::new(), Caveats::default())
        };
        let (figures, facts, caveats) = match record.state {
            HostState::Done => match read_run(&fleet.run_path(&record.host), metrics) {
                Ok(run) if run.experiment == first.experiment => {
                    started_utc = started_utc.min(run.started_utc.clone());
                    let figures = metrics.iter().map(|metric| metric.figure(&run)).collect();
                    (figures, facts_of(&run), Caveats::of_run(&run, metrics))
                }
                Ok(run) => absent(&format!("its run has the experiment {}", run.experiment)),
                Err(error) => absent(&format!("its run cannot be read: {error}")),
            },
            state => absent(record.reason.as_deref().unwrap_or(state.word())),
        };
        hosts.push(Host { record, figures, facts, caveats });
    }
    Ok((hosts, started_utc))
}

/// The run with the rows of the metrics' tables.
fn read_run(path: &Path, metrics: &[Metric]) -> Result<Run, record::ReadError> {
    record::read_run_parts(path, |table| {
        let is_needed = metrics.iter().any(|metric| metric.table == table.name);
        if is_needed { Part::All } else { Part::Outline }
    })
}

/// Refuses a metric that no host has, with the reason of the first host that is done.
fn refuse_without_figures(metrics: &[Metric], hosts: &[Host]) -> anyhow::Result<()> {
    for (index, metric) in metrics.iter().enumerate() {
        if hosts.iter().any(|host| host.figures[index].is_ok()) {
            continue;
        }
        let done = hosts.iter().find(|host| host.record.state == HostState::Done);
        let reason = done.and_then(|host| host.figures[index].as_ref().err());
        bail!(Usage(format!(
            "no host has {metric}: {}",
            reason.map_or("no host is done", String::as_str)
        )));
    }
    Ok(())
}

/// The command line that prints the report again.
fn command(args: &ReportArgs) -> String {
    let path = shell_word(&args.fleet.display().to_string());
    let metrics =
        args.metrics.iter().map(|metric| format!(" --metric {}", shell_word(&metric.to_string())));
    format!("irqlab fleet report {path}{}", metrics.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Columns, RowFilter, TableDisplay, column};

    /// A host that is done, without figures and facts.
    pub fn host(name: &str) -> Host {
        let record = HostRecord {
            host: name.to_owned(),
            state: HostState::Done,
            reason: None,
            exit_code: Some(0),
            version: None,
            address: None,
            clock: None,
            clock_method: None,
            started_utc: String::new(),
            log_end: String::new(),
        };
        let (figures, facts, caveats) = (Vec::new(), Facts::new(), Caveats::default());
        Host { record, figures, facts, caveats }
    }

    struct Row(&'static str, &'static str, f64);

    /// A run of `handlers` with one table.
    pub fn run_of_table() -> Run {
        let columns = Columns::all([
            column("cpu", "CPU.").key().text(|row: &Row| row.0),
            column("name", "Name.").key().text(|row: &Row| row.1),
            column("self_cpu_ratio", "Share.").cost().real(|row: &Row| row.2),
        ]);
        let rows = [
            Row("all", "timer", 0.01),
            Row("all", "net", 0.02),
            Row("0", "net", 0.5),
            Row("all", "page_fault", f64::NAN),
        ];
        let filter = Some(RowFilter::sums_over_cpus());
        let table = columns
            .table("handlers", "Handlers.", rows)
            .displayed(TableDisplay { filter, ..TableDisplay::default() });
        Run {
            schema: record::SCHEMA.to_owned(),
            experiment: "handlers".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: serde_json::Map::new(),
            settings: serde_json::Map::new(),
            observer: serde_json::Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: vec![table],
        }
    }
}
