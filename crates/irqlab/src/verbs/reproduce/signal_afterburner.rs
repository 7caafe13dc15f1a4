//! `reproduce signal-afterburner`: throughput and round trips by scheme, on this machine or in simulated machines.
//!
//! Measures three plans of the experiment `signal`: transfers, round trips, then the schemes' CPU use at one rate.
//! `papers::signal_afterburner` makes the paper's tables.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use lab::experiment::{BenchError, Experiment, Outcome, finish};
use lab::signal::{Load, Part, Plan, Rig, SignalBench};
use live::host::{Root, host_facts, run_host_block};
use live::signal::{LiveSignal, SignalSettings, VethPolling};
use papers::signal_afterburner::{Paper, findings, round_trips, throughput};
use serde_json::{Map, Value as Json, json};

use super::ReproduceArgs;
use crate::console::{ProgressLine, Redraw};
use crate::options::On;
use crate::run::{OpenRun, STOPPED, stop_on_signals};
use crate::simulated::SimulatedArgs;
use crate::verbs::signal::run::{REQUEST_RATE_HZ, SimulatedSignal, two_cpus};

/// Default length of a window on this machine.
const WINDOW: Duration = Duration::from_millis(200);
/// Default length of a window in a simulated machine.
const WINDOW_SIMULATED: Duration = Duration::from_millis(100);
/// Packets per second at which the schemes' CPU use is measured.
const RATE_HZ: u64 = 20_000;
/// Cycles from one packet to the next on a simulated machine. The rate follows the model's clock, because old machines
/// are slow.
const PACKET_CYCLES: u64 = 400_000;
/// Cycles from one request to the next on a simulated machine.
const REQUEST_CYCLES: u64 = 2_000_000;

/// Default number of repetitions of round trips and of CPU use: with fewer, intervals are so wide that few claims are
/// judged. Transfers have many more points, so they are repeated less often in a simulated machine.
const REPETITIONS: u32 = 5;

/// A bench that is ready to measure.
struct Prepared {
    bench: Box<dyn SignalBench>,
    /// The block `host` of the run.
    host: Map<String, Json>,
    /// Warning of the run: how the bench differs from the paper's machine.
    warning: &'static str,
    rate_hz: u64,
    request_rate_hz: u64,
}

/// Prepares the live bench: a veth pair between two network namespaces of this machine.
fn prepare_live(args: &ReproduceArgs) -> anyhow::Result<Prepared> {
    let (sender_cpu, receiver_cpu) = two_cpus(args.cpus.as_deref(), None)?;
    let bench = LiveSignal::new(SignalSettings {
        rig: Rig::Veth,
        polling: VethPolling::default(),
        card: None,
        sender_cpu,
        receiver_cpu,
        length: args.duration.unwrap_or(WINDOW),
        work_additions: 0,
        stop: stop_on_signals()?,
        observer: None,
    })?;
    Ok(Prepared {
        bench: Box::new(bench),
        host: run_host_block(&host_facts(&Root::default())),
        warning: "measured between two network namespaces of this machine: hardware and system are not those of the \
                  paper, so compare ratios; only the receiver uses the scheme, in the paper both ends do",
        rate_hz: RATE_HZ,
        request_rate_hz: REQUEST_RATE_HZ,
    })
}

/// Boots a simulated machine with two cards. Its rates follow from the model's clock.
fn prepare_simulated(
    args: &ReproduceArgs,
    model: Option<&str>,
    windows: usize,
    open: &OpenRun,
) -> anyhow::Result<Prepared> {
    let machine = SimulatedSignal {
        model,
        rig: Rig::VirtioNet,
        cpus: args.cpus.as_deref(),
        sender_cpu: None,
        length: args.duration.unwrap_or(WINDOW_SIMULATED),
        work_additions: 0,
        windows,
    };
    let (bench, facts) = machine.bench(&SimulatedArgs::plain(args.jobs, args.limit()), open)?;
    let clock_hz = bench.clock_hz().context("the model has no clock")?;
    Ok(Prepared {
        bench: Box::new(bench),
        host: facts.host,
        warning: "measured with two cards of a simulated machine under Linux: system and network are not those \
                  of the paper, and the network takes no time, so compare ratios; only the receiver uses the \
                  scheme, in the paper both ends do",
        rate_hz: (clock_hz / PACKET_CYCLES).max(1),
        request_rate_hz: (clock_hz / REQUEST_CYCLES).max(1),
    })
}

/// Measures all plans on one bench, and writes their results as one run with the paper's tables. If a later plan fails,
/// the run has the results of the others.
///
/// Fails if nothing can be measured, or if the first plan was stopped.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    let paper = Paper::built_in().context("papers/signal-afterburner.toml")?;
    // The bench is prepared for the number of windows of this plan, the largest.
    let transfers = Plan {
        rig: match &args.on {
            None | Some(On::Live) => Rig::Veth,
            Some(On::Sim(_)) => Rig::VirtioNet,
        },
        parts: vec![Part::Transfers],
        schemes: paper.schemes(),
        loads: vec![Load::Idle, Load::Busy],
        rates_hz: Vec::new(),
        request_rate_hz: REQUEST_RATE_HZ,
        socket_buffers_bytes: paper.socket_buffers_bytes(),
        repetitions: args.repetitions()?,
        seed: args.seed,
    };
    let open = OpenRun::new("reproduce", &args.results)?;
    let prepared = match &args.on {
        None | Some(On::Live) => prepare_live(args),
        Some(On::Sim(model)) => {
            let windows = transfers.window_count();
            prepare_simulated(args, model.as_deref(), windows, &open)
        }
    };
    let Prepared { mut bench, host, warning, rate_hz, request_rate_hz } = prepared?;
    let repetitions = args.repetitions.unwrap_or(REPETITIONS);
    // The paper's round trips have no CPU-bound job on the receiver (section 8.3).
    let round_trips_plan = Plan {
        parts: vec![Part::RoundTrips],
        loads: vec![Load::Idle],
        request_rate_hz,
        repetitions,
        ..transfers.clone()
    };
    let rates = Plan {
        parts: vec![Part::Rates],
        loads: vec![Load::Background],
        rates_hz: vec![rate_hz],
        repetitions,
        ..transfers.clone()
    };
    // Table, subject in messages, and plan.
    let later_plans = [
        ("round_trips", "the round trips", round_trips_plan),
        ("rates", "the schemes' CPU use", rates),
    ];
    let settings = [
        ("version", json!(crate::VERSION)),
        ("paper", json!(paper.title)),
        ("repetitions_of_round_trips_and_rates", json!(repetitions)),
    ];
    let settings: Map<_, _> =
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let context = open.context(host, settings);
    let bench = bench.as_mut();
    let mut progress = ProgressLine::new(Redraw::EachStep);
    let mut measured = transfers.measure(bench, &mut progress)?;
    for (table, subject, plan) in later_plans {
        if bench.stop_requested() {
            measured.left_out(subject);
            continue;
        }
        match plan.measure(bench, &mut progress) {
            Ok(more) => {
                measured.samples.round_trips.extend(more.samples.round_trips);
                measured.samples.rates.extend(more.samples.rates);
                measured.complete &= more.complete;
                measured.absent.extend(more.absent);
                measured.missing.extend(more.missing);
                measured.failure = measured.failure.or(more.failure);
                measured.time_limit = measured.time_limit.or(more.time_limit);
            }
            // The results of the other plans are kept.
            Err(error) => measured.part_failed(table, subject.to_owned(), error)?,
        }
    }
    measured.note_limit(bench);
    drop(progress);
    match finish(&transfers, context, bench.facts(), measured)? {
        Outcome::Run { mut run, samples } => {
            let paper_tables = [
                findings(&paper, &samples, args.selection()),
                throughput(&paper, &samples),
                round_trips(&paper, &samples),
            ];
            run.tables.splice(..0, paper_tables);
            run.warnings.insert(0, warning.to_owned());
            open.finish(&run, &args.pictures.draw(&run))
        }
        Outcome::NothingMeasurable { reason, remedy } => {
            bail!(BenchError::NothingMeasurable { reason, remedy })
        }
        Outcome::Stopped => bail!(STOPPED),
    }
}
