//! The costs of signalling as options of the command line.

use std::path::Path;

use anyhow::Context;
use record::{Run, Value, read_run};
use serde_json::{Map, Value as Json, json};
use signalling::{Costs, Empirical, TimeText, Times, parse_time_ns};

use crate::options::Usage;

/// The costs of signalling.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Costs")]
pub struct CostArgs {
    /// CPU time of an interrupt without the handling of events (C): TIME, exponential:TIME for a
    /// distribution, or RUN:NAME for the self times of context NAME in a run of `handlers --histograms`
    #[arg(long, default_value = "4us", value_name = "COST")]
    interrupt_cost: String,
    /// CPU time of a clock tick, in the same forms [default: --interrupt-cost]
    #[arg(long, value_name = "COST")]
    tick_cost: Option<String>,
    /// CPU time of handling an event (alpha), in the same forms
    #[arg(long, default_value = "1us", value_name = "COST")]
    event_cost: String,
    /// CPU time of a poll that finds nothing
    #[arg(long, value_parser = parse_time_ns, default_value = "100ns", value_name = "TIME")]
    poll_cost: u64,
    /// CPU time of yielding the CPU
    #[arg(long, value_parser = parse_time_ns, default_value = "500ns", value_name = "TIME")]
    yield_cost: u64,
    /// Time from an event to the first instruction of its interrupt on an idle CPU
    #[arg(long, value_parser = parse_time_ns, default_value = "0ns", value_name = "TIME")]
    wake_latency: u64,
    /// Latency that every event has in every scheme
    #[arg(long, value_parser = parse_time_ns, default_value = "0ns", value_name = "TIME")]
    fixed_latency: u64,
}

impl CostArgs {
    /// Parses and checks the costs.
    ///
    /// # Errors
    /// When a cost is not a time or out of range, or a run does not have the context.
    pub fn costs(&self) -> anyhow::Result<Costs> {
        let costs = Costs {
            interrupt: times(&self.interrupt_cost).context("--interrupt-cost")?,
            tick: self.tick_cost.as_deref().map(times).transpose().context("--tick-cost")?,
            event: times(&self.event_cost).context("--event-cost")?,
            poll_ns: self.poll_cost,
            yield_ns: self.yield_cost,
            wake_ns: self.wake_latency,
            fixed_ns: self.fixed_latency,
        };
        costs.check().map_err(|error| Usage(error.to_string()))?;
        Ok(costs)
    }
}

/// Parses a cost: a time, a distribution, or a context of a run.
pub fn times(text: &str) -> anyhow::Result<Times> {
    if let Some(mean) = text.strip_prefix("exponential:") {
        return Ok(Times::Exponential { mean_ns: parse_time_ns(mean).map_err(Usage)? });
    }
    match text.rsplit_once(':') {
        None => Ok(Times::Constant(parse_time_ns(text).map_err(Usage)?)),
        Some((run, name)) => measured(&read_run(Path::new(run))?, name),
    }
}

/// The distribution of a context's self times in a run of `handlers`, over all conditions.
fn measured(run: &Run, name: &str) -> anyhow::Result<Times> {
    let cannot =
        |reason: &str| Usage(format!("cannot take the times of {name:?} from the run: {reason}"));
    let table = run.table("histograms");
    let table = table.ok_or_else(|| {
        cannot("it has no table histograms (give a run of irqlab handlers --histograms)")
    })?;
    let mut buckets = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for row in table.rows() {
        let value = |column: &str| table.get(row, column);
        let (Some(Value::Text(row_name)), Some(Value::Text(quantity))) =
            (value("name"), value("quantity"))
        else {
            continue;
        };
        if quantity != "self" {
            continue;
        }
        if !names.contains(&row_name.as_str()) {
            names.push(row_name);
        }
        let bucket = (value("bucket_min"), value("bucket_max"), value("count"));
        if let (Some(Value::Uint(low)), Some(Value::Uint(high)), Some(Value::Uint(count))) = bucket
            && row_name == name
        {
            buckets.push((*low, *high, *count));
        }
    }
    let empirical = Empirical::from_buckets(&buckets);
    let empirical =
        empirical.ok_or_else(|| cannot(&format!("it has times of: {}", names.join(", "))))?;
    Ok(Times::Empirical(empirical))
}

/// Costs as settings of a run.
pub fn settings(costs: &Costs) -> Map<String, Json> {
    Map::from_iter([
        ("interrupt_cost".to_owned(), json!(text(&costs.interrupt))),
        ("tick_cost".to_owned(), json!(costs.tick.as_ref().map(text))),
        ("event_cost".to_owned(), json!(text(&costs.event))),
        ("poll_cost_ns".to_owned(), json!(costs.poll_ns)),
        ("yield_cost_ns".to_owned(), json!(costs.yield_ns)),
        ("wake_latency_ns".to_owned(), json!(costs.wake_ns)),
        ("fixed_latency_ns".to_owned(), json!(costs.fixed_ns)),
    ])
}

fn text(times: &Times) -> String {
    match times {
        Times::Constant(ns) => TimeText(*ns).to_string(),
        Times::Exponential { mean_ns } => format!("exponential:{}", TimeText(*mean_ns)),
        Times::Empirical(_) => {
            let deviation_ns = times.variance_ns2().sqrt();
            format!(
                "measured: mean {:.1}ns, standard deviation {deviation_ns:.1}ns",
                times.mean_ns()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Column, Kind, SCHEMA, Table};

    /// A run with the columns of the table `histograms` that `measured` reads.
    fn run(rows: &[(&str, &str, u64, u64, u64)]) -> Run {
        let text = |name: &str| Column::new(name, Kind::Text, "Text.");
        let uint = |name: &str| Column::new(name, Kind::Uint, "Number.");
        let columns = vec![
            text("name"),
            text("quantity"),
            uint("bucket_min"),
            uint("bucket_max"),
            uint("count"),
        ];
        let mut table = Table::new("histograms", "Buckets.", columns);
        for &(name, quantity, low, high, count) in rows {
            table.push(vec![name.into(), quantity.into(), low.into(), high.into(), count.into()]);
        }
        Run {
            schema: SCHEMA.to_owned(),
            experiment: "handlers".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: Map::new(),
            settings: Map::new(),
            observer: Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: vec![table],
        }
    }

    #[test]
    fn the_self_times_of_a_context_are_taken_over_all_conditions() {
        let run = run(&[
            ("disk", "self", 100, 100, 3),
            ("disk", "inclusive", 9_000, 9_000, 5),
            ("net", "self", 700, 700, 1),
            ("disk", "self", 200, 200, 1),
        ]);
        assert_eq!(measured(&run, "disk").unwrap().mean_ns(), 125.0);
        let error = measured(&run, "usb").unwrap_err().to_string();
        assert!(error.contains("it has times of: disk, net"), "{error}");
        let without = Run { tables: Vec::new(), ..run };
        assert!(measured(&without, "disk").unwrap_err().to_string().contains("--histograms"));
    }
}
