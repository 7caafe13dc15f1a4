//! `irqlab noise scale`: what the detours of a run would do to a parallel job.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::noise::scale::{Arrivals, GRANULARITY_NS, Job, ScaleError};
use serde_json::{Map, json};

use crate::options::{ResultArgs, Usage, any_duration, duration_between, help_with_exit_codes, ns};
use crate::run::OpenRun;

/// Numbers of nodes that can be asked for.
const NODES: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Maximum length of the list of nodes, and of granularities.
const VALUES_MAX: usize = 32;

/// What the detours of a run would do to a parallel job: compute phases with a barrier after each
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes("Examples:
  irqlab noise scale --run irqlab-runs/RUN
  irqlab noise scale --run irqlab-runs/RUN --nodes 1,512 --granularity 250us,1ms --latency 2us

Every node is a CPU like those measured. The mean delay of the slowest of all nodes is computed from
the delays of the measured detours, not drawn. Events rarer than any that was measured are not known:
rows that would need them are marked as lower bounds, and have no upper end."))]
pub struct ScaleArgs {
    /// Run directory of `irqlab noise` with the loop detour
    #[arg(long, value_name = "RUN")]
    run: PathBuf,
    /// Numbers of nodes, each 1 to 1000000000
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,64,4096,1048576",
        value_parser = clap::value_parser!(u64).range(NODES),
        value_name = "LIST"
    )]
    nodes: Vec<u64>,
    /// Work between two barriers, a list; A..B stands for A, ten times as much, and so on up to B
    #[arg(long, value_parser = granularities, default_value = "100us..10ms", value_name = "LIST")]
    granularity: Granularities,
    /// Time of a message, or 0; a barrier takes log2 of the number of nodes, rounded up
    #[arg(long, value_parser = duration_between("0", "10s"), default_value = "1us", value_name = "TIME")]
    latency: Duration,
    /// When detours come: measured, or at random times, independent of one another [default:
    /// measured, if the run has all of them]
    #[arg(long, value_name = "HOW")]
    arrivals: Option<Arrivals>,
    /// Chooses resamples, and the times of detours that come at random
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    results: ResultArgs,
}

/// Times of work, ns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Granularities(Vec<u64>);

fn granularities(text: &str) -> Result<Granularities, String> {
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once("..") {
            Some((first, last)) => (ns(any_duration(first)?), ns(any_duration(last)?)),
            None => (ns(any_duration(part)?), ns(any_duration(part)?)),
        };
        if first > last || !GRANULARITY_NS.contains(&first) || !GRANULARITY_NS.contains(&last) {
            return Err("allowed: 1us to 10s, the shorter first".to_owned());
        }
        let mut next = first;
        while next < last {
            list.push(next);
            next *= 10;
        }
        list.push(last);
    }
    if list.len() > VALUES_MAX {
        return Err(format!("at most {VALUES_MAX} granularities"));
    }
    Ok(Granularities(list))
}

/// Reads the run, computes, prints and records.
pub fn run(args: &ScaleArgs) -> anyhow::Result<ExitCode> {
    if args.nodes.len() > VALUES_MAX {
        bail!(Usage(format!("--nodes: at most {VALUES_MAX} numbers")));
    }
    let measured = record::read_run(&args.run)?;
    let open = OpenRun::new("scale", &args.results)?;
    let job = Job {
        nodes: args.nodes.clone(),
        granularities_ns: args.granularity.0.clone(),
        latency_ns: ns(args.latency),
        seed: args.seed,
    };
    let mut settings = Map::new();
    settings.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
    let scaled = lab::noise::scale::run(
        &measured,
        &job,
        args.arrivals,
        open.started().to_string(),
        settings,
    );
    let run = scaled.map_err(|error| match error {
        ScaleError::Damaged { .. } => anyhow::Error::new(error),
        ScaleError::Missing(_) | ScaleError::Thinned { .. } | ScaleError::Granularity { .. } => {
            Usage(error.to_string()).into()
        }
    })?;
    open.finish(&run, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_granularities_goes_by_tens() {
        let of = |text: &str| granularities(text).map(|list| list.0);
        assert_eq!(of("100us..10ms").unwrap(), [100_000, 1_000_000, 10_000_000]);
        assert_eq!(of("100us..5ms,7us").unwrap(), [100_000, 1_000_000, 5_000_000, 7_000]);
        for nonsense in ["", "..", "1ms..1us", "100ns", "1ms..", "1us..11s", "11"] {
            assert!(of(nonsense).is_err(), "{nonsense}");
        }
        assert!(of(&vec!["1us"; 33].join(",")).is_err());
    }
}
