//! `irqlab signal model`: computes the CPU use and the latency of each scheme at each rate, by closed forms or by
//! simulation. `signal advise` shares [`LoadArgs`] and the parsers.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::signal::{ModelPlan, cost_settings};
use serde_json::json;
use signalling::{
    Application, Arrivals, Scheme, Simulation, SimulationError, Statistic, parse_time_ns,
};

use super::costs::{self, CostArgs};
use super::rates::{Rates, rates};
use super::{run_of, with_leading_settings};
use crate::options::{ResultArgs, Usage};
use crate::pictures::PictureArgs;
use crate::run::OpenRun;

/// Largest trace file that is read, bytes.
const TRACE_BYTES_MAX: u64 = 256 << 20;
/// Allowed numbers of events in a simulation. The largest takes about a minute.
const EVENTS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000;
/// Default number of events in each simulation of `model`.
const EVENTS_DEFAULT: u64 = 200_000;
/// The first events of a simulation are warm-up and not counted: one part in this number of all events.
const WARM_UP_PART: u64 = 20;

/// Compute CPU use and latency of interrupts, polling and a clock from the costs of each step
#[derive(Debug, clap::Args)]
#[command(after_help = "Schemes:
  interrupt              an interrupt for each event
  drain, drain:BUDGET    an interrupt, then events are handled until none is left (NAPI)
  spin                   polling all the time
  yield                  polling, with a yield of the CPU after each poll that finds nothing
  clocked:PERIOD         a periodic clock interrupt; also as a frequency, clocked:1khz
  deferred:TIME          a clock that restarts after each handling (gro_flush_timeout)
  coalesced:COUNT,TIME   an interrupt after COUNT events, or TIME after the first (ethtool -C)
  hybrid:COUNT,TIME      interrupts; after COUNT events at once polling, until TIME passes without events

Examples:
  irqlab signal model
  irqlab signal model --interrupt-cost 2us --event-cost 300ns --rates 10k..2M --latency-bound 100us
  irqlab signal model --schemes interrupt,clocked:1ms --application 20us,128 --quota 16 --rates 1k..50k
  irqlab signal model --arrivals bursty:1ms,9ms --ring 1024")]
pub struct ModelArgs {
    /// Schemes to compare
    #[arg(
        long,
        value_parser = schemes,
        default_value = "interrupt,drain,spin,clocked:1ms,deferred:50us,coalesced:32,50us,hybrid:8,20us",
        value_name = "LIST"
    )]
    schemes: Schemes,
    /// Events per second, a list; A..B stands for A, the numbers 1, 2 and 5 of each decade, and B [default: 1k..1M]
    #[arg(long, value_parser = rates, value_name = "LIST")]
    rates: Option<Rates>,
    #[command(flatten)]
    costs: CostArgs,
    #[command(flatten)]
    load: LoadArgs,
    /// Simulate everything, even where there is a closed form
    #[arg(long)]
    simulate: bool,
    /// Bound of the latency: table `bounds` lists the rates at which each scheme stays within it
    #[arg(long, value_parser = parse_time_ns, value_name = "TIME")]
    latency_bound: Option<u64>,
    /// Figure of the latency for the bound: mean, p50, p99 or p99.9; all but the mean make irqlab simulate
    /// everything
    #[arg(long, value_parser = statistic, default_value = "mean", value_name = "FIGURE")]
    statistic: Statistic,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
}

/// How events arrive and how they are handled.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Events")]
pub struct LoadArgs {
    /// How events arrive: poisson, periodic, bursty:ON,OFF (mean times), or trace:FILE (lines with a time in ns)
    #[arg(long, value_parser = arrival_kind, default_value = "poisson", value_name = "KIND")]
    arrivals: ArrivalKind,
    /// Slots of the ring for waiting events
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 24),
          value_name = "N")]
    ring: u32,
    /// Assume that user programs always want the CPU, and get this time slice beside a polling thread
    #[arg(long, value_parser = parse_time_ns, value_name = "TIME")]
    user_slice: Option<u64>,
    /// Assume that an application at user priority takes events from the handler: its CPU time for each
    /// event, and the length of its queue
    #[arg(long, value_parser = application, value_name = "COST,QUEUE")]
    application: Option<Application>,
    /// Number of events after which the handler gives up the CPU to other tasks
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    quota: Option<u32>,
    /// Number of events in each simulation [default: 200000 for model, 50000 for advise]
    #[arg(long, value_parser = clap::value_parser!(u64).range(EVENTS),
          value_name = "N")]
    events: Option<u64>,
    /// Seed of the simulations
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

/// The schemes of a list on the command line, without duplicates.
#[derive(Clone, Debug)]
pub struct Schemes(pub Vec<Scheme>);

/// Maximum length of a list of schemes.
const SCHEMES_MAX: usize = 64;

/// Parses a list of schemes, and removes duplicates.
pub fn schemes(text: &str) -> Result<Schemes, String> {
    let list = Scheme::list(text).map_err(|error| error.to_string())?;
    if list.len() > SCHEMES_MAX {
        return Err(format!("allowed: at most {SCHEMES_MAX} schemes"));
    }
    Ok(Schemes(crate::options::unique(&list)))
}

/// Parses the name of a latency figure.
pub fn statistic(text: &str) -> Result<Statistic, String> {
    let named = Statistic::ALL.iter().find(|(_, label)| *label == text);
    named
        .map(|(statistic, _)| *statistic)
        .ok_or_else(|| "allowed: mean, p50, p99, p99.9".to_owned())
}

/// The value of `--arrivals`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ArrivalKind {
    Poisson,
    Periodic,
    Bursty { on_ns: u64, off_ns: u64 },
    Trace(String),
}

/// Parses the value of `--arrivals`.
fn arrival_kind(text: &str) -> Result<ArrivalKind, String> {
    let wrong =
        || "allowed: poisson, periodic, bursty:ON,OFF as in bursty:1ms,9ms, trace:FILE".to_owned();
    match text.split_once(':').unwrap_or((text, "")) {
        ("poisson", "") => Ok(ArrivalKind::Poisson),
        ("periodic", "") => Ok(ArrivalKind::Periodic),
        ("bursty", times) => {
            let (on, off) = times.split_once(',').ok_or_else(wrong)?;
            Ok(ArrivalKind::Bursty { on_ns: parse_time_ns(on)?, off_ns: parse_time_ns(off)? })
        }
        ("trace", file) if !file.is_empty() => Ok(ArrivalKind::Trace(file.to_owned())),
        _ => Err(wrong()),
    }
}

/// Parses the value of `--application`: the cost of an event, and the length of the queue.
fn application(text: &str) -> Result<Application, String> {
    let wrong = || "write a cost and the length of the queue, as in 20us,128".to_owned();
    let (cost, queue) = text.split_once(',').ok_or_else(wrong)?;
    let event = costs::times(cost).map_err(|error| format!("{error:#}"))?;
    Ok(Application { event, queue: queue.parse().map_err(|_| wrong())? })
}

/// Reads the times of a trace, ns, from a file with a whole number on each line. Ignores empty lines and lines that
/// start with #.
fn read_trace(path: &Path) -> anyhow::Result<Vec<u64>> {
    let cannot = || format!("cannot read the trace {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    if file.metadata().with_context(cannot)?.len() > TRACE_BYTES_MAX {
        bail!(Usage(format!("{}: more than {TRACE_BYTES_MAX} bytes", cannot())));
    }
    let mut times = Vec::new();
    let lines = BufReader::new(file.take(TRACE_BYTES_MAX)).lines();
    for (index, line) in lines.enumerate() {
        let line = line.with_context(cannot)?;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || Usage(format!("{}: line {} is not a time in whole ns", cannot(), index + 1));
        times.push(line.parse().map_err(|_| wrong())?);
    }
    Ok(times)
}

impl LoadArgs {
    /// Reads the times of the trace, ns. Empty unless the arrivals are a trace.
    ///
    /// Fails when the file cannot be read or is not a trace.
    pub fn trace(&self) -> anyhow::Result<Vec<u64>> {
        match &self.arrivals {
            ArrivalKind::Trace(_) if self.events.is_some() => Err(Usage(
                "--events cannot be combined with a trace, which lists its events".to_owned(),
            )
            .into()),
            ArrivalKind::Trace(file) => read_trace(Path::new(file)),
            _ => Ok(Vec::new()),
        }
    }

    /// Fails when the arrivals are a trace.
    pub fn no_trace(&self) -> Result<(), Usage> {
        match self.arrivals {
            ArrivalKind::Trace(_) => Err(Usage(
                "--arrivals: a trace has one rate, so it works only with signal model".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Whether the handler gives up the CPU after some events.
    pub fn has_quota(&self) -> bool {
        self.quota.is_some()
    }

    /// The simulation of one scheme at one rate. `default_events`: number of events without `--events` and without a
    /// trace.
    pub fn simulation<'a>(
        &self,
        trace: &'a [u64],
        costs: &signalling::Costs,
        scheme: Scheme,
        rate_hz: u64,
        default_events: u64,
    ) -> Simulation<'a> {
        let arrivals = match self.arrivals {
            ArrivalKind::Poisson => Arrivals::Poisson,
            ArrivalKind::Periodic => Arrivals::Periodic,
            ArrivalKind::Bursty { on_ns, off_ns } => Arrivals::Bursty { on_ns, off_ns },
            ArrivalKind::Trace(_) => Arrivals::Trace(trace),
        };
        // A trace has no warm-up, because it may be short and start with the interesting part.
        let (events, warm_up) = if trace.is_empty() {
            let events = self.events.unwrap_or(default_events);
            (events, events / WARM_UP_PART)
        } else {
            (trace.len() as u64, 0)
        };
        Simulation {
            scheme,
            costs: costs.clone(),
            arrivals,
            rate_hz,
            ring: self.ring,
            user_slice_ns: self.user_slice,
            application: self.application.clone(),
            quota: self.quota,
            events,
            warm_up,
            seed: self.seed,
        }
    }

    /// The options as settings of a run. `default_events`: number of events without `--events`.
    pub fn settings(&self, default_events: u64) -> serde_json::Map<String, serde_json::Value> {
        let arrivals = match &self.arrivals {
            ArrivalKind::Poisson => "poisson".to_owned(),
            ArrivalKind::Periodic => "periodic".to_owned(),
            ArrivalKind::Bursty { on_ns, off_ns } => format!("bursty:{on_ns}ns,{off_ns}ns"),
            ArrivalKind::Trace(file) => format!("trace:{file}"),
        };
        let application = self.application.as_ref();
        let has_trace = matches!(self.arrivals, ArrivalKind::Trace(_));
        let events = (!has_trace).then(|| self.events.unwrap_or(default_events));
        let pairs = [
            ("arrivals", json!(arrivals)),
            ("ring", json!(self.ring)),
            ("user_slice_ns", json!(self.user_slice)),
            (
                "application_event_mean_ns",
                json!(application.map(|program| program.event.mean_ns())),
            ),
            ("application_queue", json!(application.map(|program| program.queue))),
            ("quota", json!(self.quota)),
            // A trace has the events that it lists; table `model` says how many there are.
            ("events", json!(events)),
            ("seed", json!(self.seed)),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Turns the error of a simulation into an error of the command line.
pub fn usage(error: SimulationError) -> anyhow::Error {
    Usage(error.to_string()).into()
}

pub fn run(args: &ModelArgs) -> anyhow::Result<ExitCode> {
    let costs = args.costs.costs()?;
    let trace = args.load.trace()?;
    let trace_rate = match &args.load.arrivals {
        ArrivalKind::Trace(_) => Arrivals::Trace(&trace).trace_rate_hz(),
        _ => Ok(None),
    };
    let trace_rate = trace_rate.map_err(|error| usage(error.into()))?;
    let rates = match (trace_rate, &args.rates) {
        (Some(_), Some(_)) => bail!(Usage(
            "--rates cannot be combined with a trace, which has its own rate".to_owned()
        )),
        (Some(rate_hz), None) => vec![rate_hz],
        (None, Some(rates)) => rates.0.clone(),
        (None, None) => super::rates::rates("1k..1M").map_err(Usage)?.0,
    };
    let simulation = |scheme: Scheme, rate_hz: u64| {
        args.load.simulation(&trace, &costs, scheme, rate_hz, EVENTS_DEFAULT)
    };
    // Refuses wrong values before the run's directory is created.
    for scheme in &args.schemes.0 {
        simulation(*scheme, rates[0]).check().map_err(usage)?;
    }
    let open = OpenRun::new("signal-model", &args.results)?;
    let plan = ModelPlan {
        schemes: args.schemes.0.clone(),
        rates_hz: rates,
        simulate: args.simulate,
        latency_bound_ns: args.latency_bound,
        statistic: args.statistic,
    };
    let mut computed = plan.compute(&simulation).map_err(usage)?;
    computed.warnings.extend(args.costs.assumed());
    let computed = with_leading_settings(
        [cost_settings(&costs), args.load.settings(EVENTS_DEFAULT)],
        computed,
    );
    let run = run_of("signal-model", &open, computed);
    open.finish(&run, &args.pictures.draw(&run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_named() {
        assert_eq!(arrival_kind("poisson"), Ok(ArrivalKind::Poisson));
        assert_eq!(
            arrival_kind("bursty:1ms,9ms"),
            Ok(ArrivalKind::Bursty { on_ns: 1_000_000, off_ns: 9_000_000 })
        );
        assert_eq!(arrival_kind("trace:a:b"), Ok(ArrivalKind::Trace("a:b".to_owned())));
        for nonsense in ["", "poisson:1", "bursty", "bursty:1ms", "bursty:1,2", "trace:", "trace"] {
            assert!(arrival_kind(nonsense).is_err(), "{nonsense}");
        }
    }
}
