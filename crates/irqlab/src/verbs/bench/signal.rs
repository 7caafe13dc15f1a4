//! `irqlab bench signal`: how many events per second the event simulation of `irqlab signal` handles.

use std::process::ExitCode;

use anyhow::Context;
use record::{Kind, Table};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, json};
use signalling::{Arrivals, Costs, Scheme, Simulation, simulate};

use super::{Measured, columns, open, run_of};
use crate::options::OptionalResultArgs;

/// A scheme of each kind.
const SCHEMES: &str =
    "interrupt,drain,spin,yield,clocked:1ms,deferred:50us,coalesced:32,50us,hybrid:8,20us";
/// Events per second that are simulated: some queueing for an interrupt per event, of 5 us each.
const RATE_HZ: u64 = 100_000;
/// What one core must handle.
const PROMISED_HZ: f64 = 10e6;

/// How fast is the event simulation of `irqlab signal`?
#[derive(Debug, clap::Args)]
pub struct SignalBenchArgs {
    /// Events of each simulation
    #[arg(long, default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(10_000..=1_000_000_000), value_name = "N")]
    events: u64,
    /// How often each scheme is simulated; the minimum time counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// Measures and prints.
pub fn run(args: &SignalBenchArgs) -> anyhow::Result<ExitCode> {
    let open = open(&args.results)?;
    let columns = columns(&[
        ("scheme", Kind::Text, "Scheme that was simulated."),
        ("events_hz", Kind::Real, "Events simulated per second of CPU time, in the fastest round."),
        ("cpu_per_event_ns", Kind::Real, "CPU time for each, ns."),
        ("limit_hz", Kind::Real, "What was promised."),
        ("kept", Kind::Bool, "Whether events_hz is at least limit_hz."),
    ]);
    let mut table = Table::new("speed", "Speed of the event simulation on one core.", columns);
    for scheme in Scheme::list(SCHEMES).context("schemes")? {
        let simulation = Simulation {
            scheme,
            costs: Costs::constant(4_000, 1_000),
            arrivals: Arrivals::Poisson,
            rate_hz: RATE_HZ,
            ring: 256,
            user_slice_ns: None,
            application: None,
            quota: None,
            events: args.events,
            warm_up: 0,
            seed: 1,
        };
        let mut min_ns = u64::MAX;
        for _ in 0..args.rounds {
            let started_ns = cpu_ns();
            simulate(&simulation)?;
            min_ns = min_ns.min(cpu_ns() - started_ns);
        }
        let per_event_ns = min_ns as f64 / args.events as f64;
        let events_hz = 1e9 / per_event_ns;
        table.push(vec![
            scheme.to_string().into(),
            events_hz.into(),
            per_event_ns.into(),
            PROMISED_HZ.into(),
            (events_hz >= PROMISED_HZ).into(),
        ]);
    }
    let settings = Map::from_iter([
        ("events".to_owned(), json!(args.events)),
        ("rounds".to_owned(), json!(args.rounds)),
        ("rate_hz".to_owned(), json!(RATE_HZ)),
    ]);
    let warnings = Vec::from_iter(
        cfg!(debug_assertions)
            .then(|| "built without optimisation: slower than a release".to_owned()),
    );
    let measured = Measured { settings, warnings, tables: vec![table], ..Measured::default() };
    open.finish(&run_of("bench-signal", open.started(), measured), &[])
}

/// CPU time of this thread, ns: other work on the machine does not count.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
