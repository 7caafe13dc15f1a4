//! `cargo xtask bench signal`: measures the speed of the event simulation of `irqlab signal`, on one core. The table
//! compares each scheme's speed with a target.

use std::process::ExitCode;

use anyhow::Context;
use record::{Columns, Table, column};
use rustix::time::{ClockId, clock_gettime};
use signalling::{Arrivals, Costs, Scheme, Simulation, simulate};

use crate::results::{PrintArgs, Results};

/// Schemes to simulate, one of each kind.
const SCHEMES: &str =
    "interrupt,drain,spin,yield,clocked:1ms,deferred:50us,coalesced:32,50us,hybrid:8,20us";
/// Simulated rate of events, per second. At this rate, a scheme with an interrupt of 5 us per event queues some events.
const RATE_HZ: u64 = 100_000;
/// Target: simulated events per second on one core.
const TARGET_HZ: f64 = 10e6;

#[derive(Debug, clap::Args)]
pub struct SignalArgs {
    /// Number of events in each simulation
    #[arg(long, default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(10_000..=1_000_000_000), value_name = "N")]
    events: u64,
    /// How often to simulate each scheme; the shortest time is the result
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    printing: PrintArgs,
}

pub fn run(args: &SignalArgs) -> anyhow::Result<ExitCode> {
    let mut results = Results::start("signal", &args.printing)?;
    results.setting("events", args.events);
    results.setting("rounds", args.rounds);
    results.setting("rate_hz", RATE_HZ);
    results.table(table(&measure(args)?));
    if cfg!(debug_assertions) {
        results.warn("built without optimisation, so it is slower than a release".to_owned());
    }
    results.finish(&args.printing)
}

/// The speed of the fastest simulation of a scheme, in CPU time.
struct Speed {
    scheme: Scheme,
    ns_per_event: f64,
}

impl Speed {
    fn events_hz(&self) -> f64 {
        1e9 / self.ns_per_event
    }
}

fn measure(args: &SignalArgs) -> anyhow::Result<Vec<Speed>> {
    let schemes = Scheme::list(SCHEMES).context("schemes")?;
    schemes.into_iter().map(|scheme| measure_scheme(args, scheme)).collect()
}

/// Simulates a scheme `args.rounds` times. Returns its highest speed.
fn measure_scheme(args: &SignalArgs, scheme: Scheme) -> anyhow::Result<Speed> {
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
    Ok(Speed { scheme, ns_per_event: min_ns as f64 / args.events as f64 })
}

/// Table `speed`, with a row for each scheme.
fn table(speeds: &[Speed]) -> Table {
    let columns = Columns::all([
        column("scheme", "Scheme that was simulated.").text(|row: &Speed| row.scheme.to_string()),
        column("events_hz", "Events simulated per second of CPU time, in the fastest round.")
            .real(Speed::events_hz),
        column("cpu_per_event_ns", "CPU time for each event, ns.")
            .real(|row: &Speed| row.ns_per_event),
        column("limit_hz", "Smallest rate that meets the target.").real(|_: &Speed| TARGET_HZ),
        column("kept", "Whether events_hz is at least limit_hz.")
            .bool(|row: &Speed| row.events_hz() >= TARGET_HZ),
    ]);
    columns.table("speed", "Speed of the event simulation on one core.", speeds)
}

/// CPU time of this thread, ns. Other work on the machine does not add to it.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use record::Value;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: SignalArgs,
    }

    #[test]
    fn each_scheme_has_a_speed() {
        let arguments = ["signal", "--events", "20000", "--rounds", "1"];
        let table = table(&measure(&Command::parse_from(arguments).args).unwrap());
        assert_eq!(table.rows().len(), 8);
        let speed = |row: &Vec<Value>| table.get(row, "events_hz").and_then(Value::number);
        assert!(table.rows().iter().all(|row| speed(row) > Some(1e3)));
    }
}
