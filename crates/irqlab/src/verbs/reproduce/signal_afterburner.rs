//! `irqlab reproduce signal-afterburner`: throughput and round trips by scheme, on this machine.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use lab::experiment::{Bench, BenchError, Experiment, Outcome, finish};
use lab::signal::paper::{Published, findings, round_trips, throughput};
use lab::signal::{Load, Part, Plan, Rig};
use live::host::{Root, host_facts, run_host_block};
use live::signal::{LiveSignal, SignalSettings, VethPolling};
use serde_json::{Map, json};

use super::ReproduceArgs;
use crate::console::{ProgressLine, Redraw};
use crate::run::{OpenRun, STOPPED, stop_on_signals};
use crate::verbs::signal::run::two_cpus;

/// Length of a window, unless another is given.
const WINDOW: Duration = Duration::from_millis(200);
/// Packets per second at which the schemes' CPU use is measured.
const RATE_HZ: u64 = 20_000;

/// Measures, prints, records.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    let paper = Published::signal_afterburner().context("papers/signal-afterburner.toml")?;
    let (sender_cpu, receiver_cpu) = two_cpus(args.cpus.as_deref(), None)?;
    let transfers = Plan {
        parts: vec![Part::Transfers, Part::RoundTrips],
        schemes: paper.schemes(),
        loads: vec![Load::Idle, Load::Busy],
        rates_hz: Vec::new(),
        socket_buffers_bytes: paper.socket_buffers_bytes(),
        repetitions: args.repetitions()?,
        seed: args.seed,
    };
    let rates = Plan {
        parts: vec![Part::Rates],
        loads: vec![Load::Background],
        rates_hz: vec![RATE_HZ],
        ..transfers.clone()
    };
    let open = OpenRun::new("reproduce", &args.results)?;
    let settings = [("version", json!(env!("CARGO_PKG_VERSION"))), ("paper", json!(paper.title))];
    let settings: Map<_, _> =
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let host = host_facts(&Root::default());
    let context = open.context(run_host_block(&host), settings);
    let mut bench = LiveSignal::new(SignalSettings {
        rig: Rig::Veth,
        polling: VethPolling::default(),
        card: None,
        sender_cpu,
        receiver_cpu,
        length: args.duration.unwrap_or(WINDOW),
        work_additions: 0,
        stop: stop_on_signals()?,
    })?;
    let mut progress = ProgressLine::new(Redraw::EachStep);
    let mut measured = transfers.measure(&mut bench, &mut progress)?;
    if !bench.stop_requested() {
        let more = rates.measure(&mut bench, &mut progress)?;
        measured.samples.rates = more.samples.rates;
        measured.complete &= more.complete;
        measured.absent.extend(more.absent);
        measured.failure = measured.failure.or(more.failure);
    }
    drop(progress);
    match finish(&transfers, context, bench.facts(), measured)? {
        Outcome::Run { mut run, samples } => {
            let paper_tables = [
                findings(&paper, &samples),
                throughput(&paper, &samples),
                round_trips(&paper, &samples),
            ];
            run.tables.splice(..0, paper_tables);
            let words = "two network namespaces of this machine, and its kernel: other hardware and another \
                         system than the paper measured, so that ratios are compared; the receiver alone uses \
                         the scheme, in the paper both ends";
            run.warnings.insert(0, words.to_owned());
            open.finish(&run, &args.pictures.of(&run))
        }
        Outcome::NothingMeasurable { reason, remedy } => {
            bail!(BenchError::NothingMeasurable { reason, remedy })
        }
        Outcome::Stopped => bail!(STOPPED),
    }
}
