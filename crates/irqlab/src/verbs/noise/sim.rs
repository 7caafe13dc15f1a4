//! `noise --on sim`: a simulated machine.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::noise::in_guest::{Inject, NoiseOrder, RECORDS_MAX, TIMERS_MAX};
use live::host::parse_cpu_list;
use serde_json::{Map, json};
use sim::boot::Limits;
use sim::image::Tools;
use sim::noise::{SimNoise, SimNoiseSettings};
use sim::watch::{self, Detail, Watch};
use sim::{Cache, SimError, models, qemu};

use super::super::handlers::sim::host;
use super::super::handlers::stop_on_signals;
use super::{Begun, Length, NoiseArgs};
use crate::args::{Usage, short_time_ns};
use crate::output;

/// Reads `TIMERS:TIME`.
pub fn inject(text: &str) -> Result<Inject, String> {
    let allowed = || format!("allowed: TIMERS:TIME, as in 4:1.7ms; 1 to {TIMERS_MAX} timers");
    let (timers, every) = text.split_once(':').ok_or_else(allowed)?;
    let timers = timers.parse().ok().filter(|timers| (1..=TIMERS_MAX).contains(timers));
    let every_ns = short_time_ns(every)?;
    match timers {
        Some(timers) if every_ns > 0 => Ok(Inject { timers, every_ns }),
        _ => Err(allowed()),
    }
}

/// Measures, prints, records.
pub fn run(args: &NoiseArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let cpus = check(args, model)?;
    let loops_on = loops_on(args, cpus)?;
    let cache = Cache::from_environment()?;
    let model = model.map(|name| models::find_level(&cache, name)).transpose();
    let model = model.map_err(|error| Usage(error.to_string()))?;
    let qemu = match qemu::find(&cache) {
        Ok(qemu) => qemu,
        Err(SimError::Missing { what, remedy }) => {
            return Ok(output::nothing(&what, Some(&remedy)));
        }
        Err(error) => return Err(error.into()),
    };
    let stop = stop_on_signals()?;
    let say = |text: &str| output::say(args.printing.quiet, text);
    let (machine, kernel) = args.guest.machine(&cache, cpus, Tools::Irqlab)?;
    let annotated = watch::annotated(&cache, &qemu, &kernel, &say)?;
    let facts = sim::guest_facts(&cache, &qemu, &kernel, &say)?;
    let watch = Watch {
        detail: model.as_ref().map_or(Detail::Count, |model| model.detail),
        model,
        start_fast: true,
        turns: true,
        ..Watch::default()
    };
    let begun = Begun::new(args, host(&machine, &facts))?;
    let mut bench = SimNoise::new(SimNoiseSettings {
        cache,
        qemu,
        machine,
        annotated,
        from: args.guest.from.clone(),
        limits: limits(args),
        watch,
        order: order(args, loops_on),
        seed: args.seed,
        on_host: Map::from_iter([("out".to_owned(), json!(begun.directory))]),
        stop: Box::new(move || stop.is_requested()),
    });
    begun.measure(args, &mut bench)
}

/// Refuses what this bench cannot do; the number of CPUs.
fn check(args: &NoiseArgs, model: Option<&str>) -> anyhow::Result<u32> {
    for (flag, given, why) in [
        ("-H", args.housekeeping.is_some(), "nothing of irqlab runs beside the loops"),
        ("--no-trace", args.no_trace, "what is seen is seen from outside, and costs nothing"),
    ] {
        if given {
            bail!(Usage(format!("{flag} is for --on live: {why}")));
        }
    }
    if args.guest.free_running {
        bail!(Usage(
            "--free-running: the loops' clock must be the machine's, not the host's".to_owned()
        ));
    }
    let quanta = match args.length() {
        Length::Repetitions(number) => number,
        Length::Time(time) => time.as_nanos() as u64 / args.quantum.max(1),
    };
    if quanta > RECORDS_MAX as u64 {
        let words = "the guest keeps all records until the end: at most";
        bail!(Usage(format!("{quanta} quanta; {words} {RECORDS_MAX}")));
    }
    let allowed = format!("on sim, how many CPUs the machine has: 1 to {}", sim::CPUS_MAX);
    let cpus = match &args.cpus {
        None => 1,
        Some(text) => {
            let cpus = text.parse().ok().filter(|cpus| (1..=sim::CPUS_MAX).contains(cpus));
            cpus.ok_or_else(|| Usage(format!("--cpus {text:?}: allowed: {allowed}")))?
        }
    };
    if cpus > 1 && model.is_none() {
        bail!(Usage(format!(
            "--cpus {cpus}: without a model CPUs take turns in one time, and each would be the other's \
             noise; name one (--on sim:r4400-1994)"
        )));
    }
    Ok(cpus)
}

/// CPUs of the machine that run loops, if not all do.
fn loops_on(args: &NoiseArgs, cpus: u32) -> anyhow::Result<Option<Vec<u32>>> {
    let Some(list) = &args.loops_on else { return Ok(None) };
    let bad = |why: String| Usage(format!("--loops-on {list:?}: {why}"));
    let wanted = parse_cpu_list(list).map_err(|error| bad(error.to_string()))?;
    if let Some(absent) = wanted.iter().find(|cpu| **cpu >= cpus) {
        bail!(bad(format!("the machine has no CPU {absent}; it has {cpus} (-c)")));
    }
    if wanted.is_empty() {
        bail!(bad("no CPU".to_owned()));
    }
    Ok(Some(wanted))
}

/// The guest needs as long as it is asked to.
fn limits(args: &NoiseArgs) -> Limits {
    let mut limits = args.guest.limits();
    if args.guest.guest_limit.is_none() {
        let asked =
            args.loops().len() as u32 * (args.warm_up + Duration::from_nanos(window_ns(args)));
        let asked = u32::try_from(asked.as_secs()).unwrap_or(u32::MAX);
        limits.guest_s = limits.guest_s.saturating_add(asked);
    }
    limits
}

fn window_ns(args: &NoiseArgs) -> u64 {
    match args.length() {
        Length::Repetitions(number) => number.saturating_mul(args.quantum),
        Length::Time(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
    }
}

fn order(args: &NoiseArgs, cpus: Option<Vec<u32>>) -> NoiseOrder {
    NoiseOrder {
        loops: args.loops(),
        cpus,
        body: args.body,
        quantum_ns: args.quantum,
        repetitions: match args.length() {
            Length::Repetitions(number) => Some(number),
            Length::Time(_) => None,
        },
        duration_ns: window_ns(args),
        warm_up_ns: u64::try_from(args.warm_up.as_nanos()).unwrap_or(u64::MAX),
        threshold_ns: args.threshold,
        fifo: args.fifo,
        inject: args.inject,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_and_their_distance() {
        assert_eq!(inject("4:1ms"), Ok(Inject { timers: 4, every_ns: 1_000_000 }));
        for nonsense in ["", "4", "0:1ms", "65:1ms", "4:", "4:0ns", "x:1ms", "4:1"] {
            assert!(inject(nonsense).is_err(), "{nonsense}");
        }
    }
}
