//! `reproduce noise-t1`: how much the tick delays a loop of fixed work.
//!
//! The loop runs on the hardware thread that ticks, on another thread of its core, and on another core. The tick is
//! on every CPU or on one CPU, and in the last run there is no operating system. `papers::noise_t1` makes the tables.

use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::experiment::{BenchError, Experiment, Measured, Step, missing_warning};
use lab::noise::in_guest::NoiseRequest;
use lab::noise::{Body, KeepDetours, Loop, NoiseSample, Plan, Relation};
use live::window::Stop;
use papers::Selection;
use papers::noise_t1::{MODEL, Paper, PlacedRun, Tick, findings, paper};
use record::{Absence, Run, SCHEMA, keys};
use serde_json::{Map, Value as Json, json};
use sim::bare::{BareNoise, BareNoiseSettings};
use sim::boot::Limits;
use sim::noise::{SimNoise, SimNoiseSettings};
use sim::parallel::Jobs;
use sim::watch::Watch;
use sim::{Cache, qemu};

use super::ReproduceArgs;
use crate::console::{ProgressLine, Redraw};
use crate::options::Usage;
use crate::run::{OpenRun, STOPPED, command_line, is_time_limit, stop_on_signals};
use crate::simulated::{GuestArgs, Simulated, model};

/// Number of CPUs. The domains of the paper's machine had two cores of four threads each.
const VCPUS: u32 = 8;
const THREADS_PER_CORE: u32 = 4;
/// Length of a repetition of the paper's loop.
const QUANTUM_NS: u64 = 100_000;
const REPETITIONS: u64 = 1_000;
const WARM_UP_NS: u64 = 10_000_000;
/// CPUs on which the loop runs in turn, with their relation to CPU 0.
const PLACEMENTS: [(u32, Relation); 3] =
    [(0, Relation::SameThread), (1, Relation::SameCore), (4, Relation::OtherCore)];
/// Kernel options with which only CPU 0 ticks, as under Solaris.
const ONE_CPU: [&str; 3] = ["nohz_full=1-7", "rcu_nocbs=1-7", "isolcpus=1-7"];
/// Kernel options with which every CPU ticks. All tick at the same time, as the kernel's default is: with `skew_tick=1`,
/// the ticks of the other threads of a core would delay the loop at times of their own.
const EVERY_CPU: [&str; 1] = ["nohz=off"];
/// Time slice of the machine without a kernel, cycles. Its clock advances at the end of each slice.
const BARE_SLICE_CYCLES: u64 = 1_000;

pub fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    let published = Paper::built_in().context("papers/noise-t1.toml")?;
    let name = match args.models.as_slice() {
        [] => MODEL,
        [name] => name,
        _ => bail!(Usage("--models takes exactly one model for this paper".to_owned())),
    };
    let cache = Cache::from_environment()?;
    let model = model(&cache, name, &[], None)?;
    let threads = model.model.threads_per_core;
    if threads != THREADS_PER_CORE {
        bail!(Usage(format!(
            "--models {name}: the model has {threads} threads per core, but the paper's machine has \
             {THREADS_PER_CORE} (t1)"
        )));
    }
    let open = OpenRun::new("reproduce", &args.results)?;
    let stop = stop_on_signals()?;
    let mut progress = ProgressLine::new(Redraw::EachStep);
    let (mut runs, mut host, mut tick_hz) = (Vec::new(), Map::new(), None);
    let mut time_limit = None;
    let count = 2 * PLACEMENTS.len() + 1;
    for (tick, append) in [(Tick::EveryCpu, &EVERY_CPU[..]), (Tick::OneCpu, &ONE_CPU)] {
        for (cpu, placement) in PLACEMENTS {
            if stop.is_requested() {
                break;
            }
            let label = format!("tick on {}, loop on CPU {cpu}", tick.word());
            progress.step(runs.len() + 1, count, &label);
            let measured = measure_under_kernel(args, name, append, cpu, &stop);
            let sample = measured.map(|(sample, facts)| {
                tick_hz = facts.get("hz").and_then(Json::as_f64).or(tick_hz);
                host = facts;
                sample
            });
            let sample =
                sample.map_err(|error| reason_without_sample(&error, &label, &mut time_limit));
            runs.push(PlacedRun { tick, placement, cpu, step_ns: 0, sample });
        }
    }
    if !stop.is_requested() {
        let label = "no operating system";
        progress.step(count, count, label);
        let sample = measure_without_kernel(args, name, &stop);
        let sample = sample.map_err(|error| reason_without_sample(&error, label, &mut time_limit));
        let step_ns = BARE_SLICE_CYCLES * 1_000_000_000 / model.model.clock_hz;
        let placement = Relation::SameThread;
        runs.push(PlacedRun { tick: Tick::None, placement, cpu: 0, step_ns, sample });
    }
    drop(progress);
    // Without any sample the run fails: with the time limit, with the first error, or because the user stopped it.
    let failures: Vec<&String> = runs.iter().filter_map(|run| run.sample.as_ref().err()).collect();
    if failures.len() == runs.len() {
        match (failures.first(), time_limit) {
            (_, Some(limit)) => bail!(BenchError::TimeLimit(limit)),
            (Some(reason), None) if !stop.is_requested() => bail!("{reason}"),
            _ => bail!(STOPPED),
        }
    }
    // Some models cannot run without a kernel. Their run without one is absent, but the reproduction is complete.
    let has_failed = |run: &PlacedRun| run.tick != Tick::None && run.sample.is_err();
    let ended_early = time_limit.is_some() || (stop.is_requested() && !failures.is_empty());
    let complete = !runs.iter().any(has_failed) && runs.len() == count && !ended_early;
    let tick_ns = 1e9 / tick_hz.context("the guest's kernel does not state its tick rate")?;
    let mut run =
        assemble((name, args.selection()), &published, &runs, tick_ns, (host, complete), &open);
    if let Some(limit) = time_limit {
        run.settings.insert(keys::TIME_LIMIT.to_owned(), limit.into());
    }
    open.finish(&run, &[])
}

/// The reason why a loop has no sample. If the loop reached a time limit and `time_limit` is empty, stores the reason
/// there.
fn reason_without_sample(
    error: &anyhow::Error,
    label: &str,
    time_limit: &mut Option<String>,
) -> String {
    let reason = format!("{error:#}");
    if is_time_limit(error) {
        time_limit.get_or_insert_with(|| format!("{label}: {reason}"));
    }
    reason
}

/// A CPU of the core on which the loop of `cpu` does not run: irqlab's own thread would delay the loop as a tick does.
fn other_core(cpu: u32) -> u32 {
    if cpu < THREADS_PER_CORE { VCPUS - 1 } else { THREADS_PER_CORE - 1 }
}

/// Runs the loop on one CPU of a machine with a kernel. `append`: kernel options that place the tick. Also returns the
/// block `host` of the run.
fn measure_under_kernel(
    args: &ReproduceArgs,
    name: &str,
    append: &[&str],
    cpu: u32,
    stop: &Stop,
) -> anyhow::Result<(NoiseSample, Map<String, Json>)> {
    let cache = Cache::from_environment()?;
    let model = model(&cache, name, &[], None)?;
    let watch = Watch {
        transitions: true,
        detail: model.detail,
        model: Some(model),
        start_fast: true,
        ..Watch::default()
    };
    let guest = GuestArgs {
        append: append.iter().map(|&word| word.to_owned()).collect(),
        machine_limit: Some(args.limit()),
        ..GuestArgs::default()
    };
    let prepared = Simulated::prepare(cache, &guest, VCPUS, watch, stop.clone(), |_| Ok(()))?;
    let host = prepared.host();
    let request = NoiseRequest {
        loops: vec![Loop::Fwq],
        cpus: Some(vec![cpu]),
        body: Body::Add,
        quantum_ns: QUANTUM_NS,
        repetitions: Some(REPETITIONS),
        duration_ns: QUANTUM_NS * REPETITIONS,
        warm_up_ns: WARM_UP_NS,
        threshold_ns: None,
        fifo: None,
        inject: None,
        housekeeping_cpu: Some(other_core(cpu)),
        command: None,
    };
    let mut bench = SimNoise::new(SimNoiseSettings {
        guest: prepared.guest,
        request,
        jobs: Jobs { count: 1, limited_by_memory: false },
        keep: KeepDetours::with_seed(args.seed),
        tick_hz: None,
        symbols: None,
        quanta_window_ns_max: None,
        on_host: Map::new(),
    });
    let plan = Plan { loops: vec![Loop::Fwq], trace: true, seed: args.seed };
    let mut measured = plan.measure(&mut bench, &mut |_: &Step| {})?;
    measured.note_limit(&bench);
    Ok((single_sample(measured)?, host))
}

/// Runs the loop on a machine without a kernel.
fn measure_without_kernel(
    args: &ReproduceArgs,
    name: &str,
    stop: &Stop,
) -> anyhow::Result<NoiseSample> {
    let cache = Cache::from_environment()?;
    let model = model(&cache, name, &[], None)?;
    let qemu = qemu::find(&cache)?;
    let settings = BareNoiseSettings {
        body: Body::Add,
        quantum_ns: QUANTUM_NS,
        iterations: None,
        repetitions: REPETITIONS,
        threshold_ns: QUANTUM_NS,
        model: Some(model),
        limits: Limits { wall: args.limit(), ..Limits::default() },
        keep: KeepDetours::with_seed(args.seed),
    };
    let stop = stop.clone();
    let mut bench = BareNoise::new(cache, qemu, settings, Box::new(move || stop.is_requested()));
    let plan = Plan { loops: vec![Loop::Fwq], trace: false, seed: args.seed };
    let mut measured = plan.measure(&mut bench, &mut |_: &Step| {})?;
    measured.note_limit(&bench);
    single_sample(measured)
}

/// The sample of a loop that ran to its end.
///
/// Fails when a request to stop or a failure ended the loop, and with [`BenchError::TimeLimit`] when a limit did.
fn single_sample(measured: Measured<Vec<NoiseSample>>) -> anyhow::Result<NoiseSample> {
    let Measured { samples, absent, failure, time_limit, missing, .. } = measured;
    if let Some(limit) = time_limit {
        bail!(BenchError::TimeLimit(limit));
    }
    if let Some(warning) = missing_warning(&missing) {
        bail!(warning);
    }
    match samples.into_iter().next() {
        Some(sample) => Ok(sample),
        None => {
            let reason =
                failure.or_else(|| absent.into_iter().next().map(|absence| absence.reason));
            bail!(reason.unwrap_or_else(|| "nothing was measured".to_owned()))
        }
    }
}

/// Makes the run from all placements of the tick: the tables compare them with the paper's figures.
fn assemble(
    (name, selection): (&str, Selection),
    published: &Paper,
    runs: &[PlacedRun],
    tick_ns: f64,
    (host, complete): (Map<String, Json>, bool),
    open: &OpenRun,
) -> Run {
    let settings = json!({
        "version": crate::VERSION, "paper": published.title, "model": name, "vcpus": VCPUS,
        "quantum_ns": QUANTUM_NS, "repetitions": REPETITIONS, "warm_up_ns": WARM_UP_NS, "body": "add",
        "tick_period_ns": tick_ns, "command_lines": { "every_cpu": EVERY_CPU, "one_cpu": ONE_CPU },
    });
    let absent = runs.iter().filter_map(|run| {
        let reason = run.sample.as_ref().err()?.clone();
        let run_name = format!("tick on {}, {}", run.tick.word(), run.placement.word());
        Some(Absence::new("paper", run_name, reason))
    });
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "noise".to_owned(),
        bench: "sim".to_owned(),
        started_utc: open.started().to_string(),
        complete,
        host,
        settings: settings
            .as_object()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .chain(command_line())
            .collect(),
        observer: Map::new(),
        warnings: vec![
            "the guest is Linux on x86-64 with the core, the caches and the clock of the model; Linux with a tick \
             on one CPU stands for Solaris, and a program without a kernel for Netra DPS"
                .to_owned(),
        ],
        absent: absent.collect(),
        tables: vec![paper(published, runs), findings(published, runs, (name, tick_ns), selection)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loop_that_ran_to_its_end_is_a_sample() {
        let sample = || NoiseSample::in_exact_clock(Loop::Fwq, Vec::new());
        let measured = || Measured::new(vec![sample()]);
        assert!(single_sample(measured()).is_ok());
        // A CPU that went offline leaves a run incomplete, but did not cut the loop short.
        assert!(single_sample(Measured { complete: false, ..measured() }).is_ok());
        let mut stopped = measured();
        stopped.left_out("loop fwq after 3.0 ms of its window");
        let mut time_limit = None;
        let error = single_sample(stopped).unwrap_err();
        assert!(
            reason_without_sample(&error, "CPU 1", &mut time_limit)
                .ends_with("after 3.0 ms of its window")
        );
        assert_eq!(time_limit, None);
        let limit = Some("1h are over".to_owned());
        let limited = Measured { complete: false, time_limit: limit, ..measured() };
        let error = single_sample(limited).unwrap_err();
        assert_eq!(reason_without_sample(&error, "CPU 1", &mut time_limit), "1h are over");
        assert_eq!(time_limit.as_deref(), Some("CPU 1: 1h are over"));
    }
}
