//! `footprint --on sim:MODEL`: a simulated machine.

use std::process::ExitCode;

use anyhow::bail;
use lab::footprint::Source;
use lab::footprint::in_guest::FootprintOrder;
use serde_json::{Map, json};
use sim::footprint::{SimFootprint, geometries};
use sim::image::Tools;
use sim::watch::{self, Detail, Watch};
use sim::{Cache, SimError, models, qemu};

use super::super::handlers::sim::host;
use super::super::handlers::stop_on_signals;
use super::{Begun, FootprintArgs, nothing_or};
use crate::args::Usage;
use crate::output;

/// CPUs of the machine, unless said otherwise: one for the loop, one for what interrupts it.
const CPUS: u32 = 2;
/// Its memory, unless said otherwise.
const MEMORY_MIB: u32 = 1024;
/// The disk of the disk sources, unless one is asked for: with a latency, so that a cache is filled
/// before the read completes.
const DISK: &str = "virtio-blk,latency=1ms";
/// The kernel's watchdog would keep one of the counters for itself.
const NO_WATCHDOG: &str = "nmi_watchdog=0";

/// Measures, prints, records.
pub fn run(args: &FootprintArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let cpus = check(args)?;
    let Some(name) = model else {
        bail!(Usage("--on sim: the caches to fill are a model's; name one (--on sim:MODEL)".into()))
    };
    let cache = Cache::from_environment()?;
    let usage = |error: SimError| Usage(error.to_string());
    // What blocks at each miss is timed as such; what does not has a core of its own.
    let blocks = models::changed(name, &args.set).map_err(usage)?.1.blocking().is_ok();
    let detail = if blocks { Detail::Timed } else { Detail::Ooo };
    let model = models::find(&cache, name, &args.set, detail).map_err(usage)?;
    let qemu = match qemu::find(&cache) {
        Ok(qemu) => qemu,
        Err(SimError::Missing { what, remedy }) => {
            return Ok(output::nothing(&what, Some(&remedy)));
        }
        Err(error) => return Err(error.into()),
    };
    let stop = stop_on_signals()?;
    let say = |text: &str| output::say(args.printing.quiet, text);
    let (mut machine, kernel) = args.guest.machine(&cache, cpus, Tools::Irqlab)?;
    machine.pmu = true;
    // With less the kernel gives no huge pages (mm/huge_memory.c, hugepage_init).
    machine.memory_mib = args.guest.mem.unwrap_or(MEMORY_MIB);
    machine.append.push(NO_WATCHDOG.to_owned());
    let reads = args.source.iter().any(|one| matches!(one, Source::Disk | Source::DiskEvent));
    if reads && machine.disks.is_empty() {
        machine.disks = vec![DISK.parse().map_err(Usage)?];
    }
    let annotated = watch::annotated(&cache, &qemu, &kernel, &say)?;
    let facts = sim::guest_facts(&cache, &qemu, &kernel, &say)?;
    let mut geometry = geometries(&model.model);
    geometry.retain(|(level, _)| !args.geometry.iter().any(|(by_hand, _)| by_hand == level));
    geometry.extend(&args.geometry);
    let order = FootprintOrder {
        plan: args.plan(),
        cpu: cpus - 1,
        geometry,
        window_ns: args.window.as_nanos() as u64,
        seed: args.seed,
    };
    let watch = Watch {
        detail,
        model: Some(model),
        start_fast: true,
        turns: args.trace,
        ..Watch::default()
    };
    let begun = Begun::new(args, host(&machine, &facts))?;
    let bench = SimFootprint {
        cache,
        qemu,
        machine,
        annotated,
        from: args.guest.from.clone(),
        limits: args.guest.limits(),
        watch,
        order,
        on_host: Map::from_iter([("out".to_owned(), json!(begun.directory))]),
        stop: Box::new(move || stop.is_requested()),
    };
    match bench.measure() {
        Ok(Some((facts, measured))) => begun.finish(args, facts, &measured),
        Ok(None) => bail!("stopped before anything was measured; nothing was written"),
        Err(error) => nothing_or(error),
    }
}

/// Refuses what this bench cannot do; the number of CPUs.
fn check(args: &FootprintArgs) -> anyhow::Result<u32> {
    if args.guest.free_running {
        let why = "the loops' clock must be the machine's, not the host's";
        bail!(Usage(format!("--free-running: {why}")));
    }
    if args.peer.is_some() {
        bail!(Usage("--peer: nothing outside of a simulated machine can be reached".to_owned()));
    }
    if args.rounds.is_some() {
        bail!(Usage("--rounds: one like the other; more --repetitions are as good".to_owned()));
    }
    let allowed = format!("on sim, how many CPUs the machine has: 1 to {}", sim::CPUS_MAX);
    match &args.cpu {
        None => Ok(CPUS),
        Some(text) => {
            let cpus = text.parse().ok().filter(|cpus| (1..=sim::CPUS_MAX).contains(cpus));
            Ok(cpus.ok_or_else(|| Usage(format!("--cpu {text:?}: allowed: {allowed}")))?)
        }
    }
}
