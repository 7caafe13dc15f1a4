//! `irqlab bench signal`: measures the speed of the event simulation of `irqlab signal`.

use std::process::ExitCode;

use anyhow::Context;
use record::{Kind, Table};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, json};
use signalling::{Arrivals, Costs, Scheme, Simulation, simulate};

use super::{Measured, columns, open, run_of};
use crate::options::OptionalResultArgs;

/// Schemes to simulate, one of each kind.
const SCHEMES: &str =
    "interrupt,drain,spin,yield,clocked:1ms,deferred:50us,coalesced:32,50us,hybrid:8,20us";
/// Simulated rate of events, per second. At this rate, a scheme with an interrupt of 5 us per event queues some events.
const RATE_HZ: u64 = 100_000;
/// Target: simulated events per second on one core.
const PROMISED_HZ: f64 = 10e6;

/// Measure the speed of the event simulation of `irqlab signal`
#[derive(Debug, clap::Args)]
pub struct SignalBenchArgs {
    /// Number of events in each simulation
    #[arg(long, default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(10_000..=1_000_000_000), value_name = "N")]
    events: u64,
    /// How often to simulate each scheme; the shortest time is the result
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    results: OptionalResultArgs,
}

pub fn run(args: &SignalBenchArgs) -> anyhow::Result<ExitCode> {
    let open = open(&args.results)?;
    let columns = columns(&[
        ("scheme", Kind::Text, "Scheme that was simulated."),
        ("events_hz", Kind::Real, "Events simulated per second of CPU time, in the fastest round."),
        ("cpu_per_event_ns", Kind::Real, "CPU time for each event, ns."),
        ("limit_hz", Kind::Real, "Smallest rate that meets the target."),
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
    let warnings = Vec::from_iter(cfg!(debug_assertions).then(|| {
        "irqlab was built without optimisation, so it is slower than a release".to_owned()
    }));
    let measured = Measured { settings, warnings, tables: vec![table], ..Measured::default() };
    open.finish(&run_of("bench-signal", open.started(), measured), &[])
}

/// CPU time of this thread, ns. Other work on the machine does not add to it.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
