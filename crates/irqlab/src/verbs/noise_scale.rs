//! `irqlab noise scale`: how the detours of a recorded run would delay a parallel job. `lab::noise::scale` computes
//! it; this file reads the run and parses the options.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::noise::scale::{Arrivals, GRANULARITY_NS, Job, ScaleError};
use serde_json::{Map, json};

use crate::options::{ResultArgs, Usage, any_duration, duration_between, ns};
use crate::run::{OpenRun, made_by};

/// Allowed numbers of nodes.
const NODES: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Maximum length of the lists `--nodes` and `--granularity`.
const VALUES_MAX: usize = 32;

/// How a run's detours would delay a parallel job whose nodes compute, then wait at a barrier, again and again
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab noise scale --run irqlab-runs/RUN
  irqlab noise scale --run irqlab-runs/RUN --nodes 1,512 --granularity 250us,1ms --latency 2us
  irqlab noise scale --run irqlab-runs/RUN --without local_timer

Every node is assumed to behave like the measured CPUs. The mean delay of the slowest node is computed from
the delays of the measured detours, not simulated at random. Events that were too rare to be measured are
unknown: rows that depend on them are marked as lower bounds, and have no upper end.")]
pub struct ScaleArgs {
    /// Run directory of `irqlab noise`, measured with the loop detour
    #[arg(long, value_name = "RUN")]
    run: PathBuf,
    /// Numbers of nodes, each 1 to 1000000000
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,64,4096,1048576",
        value_parser = node_count,
        value_name = "LIST"
    )]
    nodes: Vec<u64>,
    /// Times of work between two barriers, a list; A..B stands for A, 10 A, 100 A and so on, and B
    #[arg(long, value_parser = granularities, default_value = "100us..10ms", value_name = "LIST")]
    granularity: Granularities,
    /// Latency of a message, or 0; a barrier takes log2(nodes) messages, rounded up
    #[arg(long, value_parser = duration_between("0", "10s"), default_value = "1us", value_name = "TIME")]
    latency: Duration,
    /// When detours come: measured (as in the run), or random (at independent times) [default: measured, if
    /// the run has all detours]
    #[arg(long, value_name = "HOW")]
    arrivals: Option<Arrivals>,
    /// Also computes the slowdown without the detours that begin with this context, for example local_timer; may
    /// be given several times
    #[arg(long, value_name = "CONTEXT")]
    without: Vec<String>,
    /// Seed of the resamples and of the times of random detours
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    results: ResultArgs,
}

/// Times of work between two barriers, ns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Granularities(Vec<u64>);

/// Parses a list of times. A..B stands for A, 10 A, 100 A and so on, and B.
fn granularities(text: &str) -> Result<Granularities, String> {
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once("..") {
            Some((first, last)) => (ns(any_duration(first)?), ns(any_duration(last)?)),
            None => (ns(any_duration(part)?), ns(any_duration(part)?)),
        };
        if first > last || !GRANULARITY_NS.contains(&first) || !GRANULARITY_NS.contains(&last) {
            return Err("allowed: times of 1us to 10s; in A..B, the shorter one first".to_owned());
        }
        let mut next = first;
        while next < last {
            list.push(next);
            next *= 10;
        }
        list.push(last);
    }
    if list.len() > VALUES_MAX {
        return Err(format!("allowed: at most {VALUES_MAX} granularities"));
    }
    Ok(Granularities(list))
}

/// A number of nodes. A part of a number with thousands separators, such as the second part of `100,000`, is an error.
fn node_count(text: &str) -> Result<u64, String> {
    if text.len() > 1 && text.starts_with('0') {
        return Err("commas separate the numbers of the list: write 100000, not 100,000".to_owned());
    }
    let count = text.parse().map_err(|error| format!("{error}"))?;
    let (min, max) = NODES.into_inner();
    let is_allowed = (min..=max).contains(&count);
    is_allowed.then_some(count).ok_or_else(|| format!("allowed: {min} to {max}"))
}

pub fn run(args: &ScaleArgs) -> anyhow::Result<ExitCode> {
    if args.nodes.len() > VALUES_MAX {
        bail!(Usage(format!("--nodes takes at most {VALUES_MAX} numbers")));
    }
    if args.without.len() > VALUES_MAX {
        bail!(Usage(format!("--without may be given at most {VALUES_MAX} times")));
    }
    let measured = record::read_run(&args.run)?;
    let open = OpenRun::new("scale", &args.results)?;
    let job = Job {
        nodes: sorted(&args.nodes),
        granularities_ns: sorted(&args.granularity.0),
        latency_ns: ns(args.latency),
        without: each_once(&args.without),
        seed: args.seed,
    };
    let mut settings = Map::new();
    settings.insert("run".into(), json!(args.run));
    settings.extend(made_by());
    let scaled = lab::noise::scale::run(
        &measured,
        &job,
        args.arrivals,
        open.started().to_string(),
        settings,
    );
    let run = scaled.map_err(|error| match error {
        ScaleError::Damaged { .. } => anyhow::Error::new(error),
        ScaleError::Missing(_)
        | ScaleError::Thinned { .. }
        | ScaleError::Sampled { .. }
        | ScaleError::NoSuchCause { .. }
        | ScaleError::Granularity { .. } => Usage(error.to_string()).into(),
    })?;
    open.finish(&run, &[])
}

/// The names in their order, each once.
fn each_once(names: &[String]) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    names.iter().for_each(|name| {
        if !once.contains(name) {
            once.push(name.clone());
        }
    });
    once
}

/// The numbers in ascending order, each once.
fn sorted(numbers: &[u64]) -> Vec<u64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_nodes_has_no_separators() {
        assert_eq!(node_count("100000"), Ok(100_000));
        for (text, words) in [("000", "write 100000"), ("0", "allowed: 1 to"), ("x", "invalid")] {
            assert!(node_count(text).unwrap_err().contains(words), "{text}");
        }
    }

    #[test]
    fn a_range_of_granularities_goes_by_tens() {
        let parsed = |text: &str| granularities(text).map(|list| list.0);
        assert_eq!(parsed("100us..10ms").unwrap(), [100_000, 1_000_000, 10_000_000]);
        assert_eq!(parsed("100us..5ms,7us").unwrap(), [100_000, 1_000_000, 5_000_000, 7_000]);
        for nonsense in ["", "..", "1ms..1us", "100ns", "1ms..", "1us..11s", "11"] {
            assert!(parsed(nonsense).is_err(), "{nonsense}");
        }
        assert!(parsed(&vec!["1us"; 33].join(",")).is_err());
    }
}
