//! `footprint --on sim:MODEL`: a simulated machine.

use std::process::ExitCode;

use anyhow::bail;
use lab::footprint::in_guest::FootprintOrder;
use lab::footprint::{Geometry, Level, Source};
use lab::handlers::BenchError;
use live::handlers::Stop;
use serde_json::{Map, Value as Json, json};
use sim::footprint::{SimFootprint, geometries};
use sim::image::Tools;
use sim::watch::{self, Detail, Watch};
use sim::{Cache, SimError, models, qemu};

use super::super::handlers::sim::host;
use super::super::handlers::stop_on_signals;
use super::super::machine::GuestArgs;
use super::{Begun, FootprintArgs, nothing_or};
use crate::args::Usage;
use crate::output;

/// CPUs of the machine, unless said otherwise: one for the loop, one for what interrupts it.
pub const CPUS: u32 = 2;
/// Its memory, unless said otherwise.
const MEMORY_MIB: u32 = 1024;
/// The disk of the disk sources, unless one is asked for: with a latency, so that a cache is filled
/// before the read completes.
const DISK: &str = "virtio-blk,latency=1ms";
/// The kernel's watchdog would keep one of the counters for itself.
const NO_WATCHDOG: &str = "nmi_watchdog=0";

/// A machine, and what is to be measured on it.
pub struct Wanted<'a> {
    /// What the guest is made of.
    pub guest: &'a GuestArgs,
    /// The model's name, and changes of it.
    pub model: &'a str,
    pub set: &'a [String],
    /// Its disk, if the guest has no other and a source reads one.
    pub disk: &'a str,
    /// Sizes by hand.
    pub geometry: &'a [(Level, Geometry)],
    /// What is asked of the guest. Its CPU is the last one; its sizes are the model's.
    pub order: FootprintOrder,
    /// Whether there is no news on stderr.
    pub quiet: bool,
}

/// A machine that waits to be measured.
pub struct Prepared {
    /// The machine.
    pub bench: SimFootprint,
    /// What a run tells of it.
    pub host: Map<String, Json>,
}

/// Makes a machine ready.
pub fn prepare(wanted: Wanted<'_>, stop: Stop) -> anyhow::Result<Prepared> {
    let cache = Cache::from_environment()?;
    let usage = |error: SimError| Usage(error.to_string());
    let (name, set) = (wanted.model, wanted.set);
    // What blocks at each miss is timed as such; what does not has a core of its own.
    let blocks = models::changed(name, set).map_err(usage)?.1.blocking().is_ok();
    let detail = if blocks { Detail::Timed } else { Detail::Ooo };
    let model = models::find(&cache, name, set, detail).map_err(usage)?;
    let qemu = match qemu::find(&cache) {
        Ok(qemu) => qemu,
        Err(SimError::Missing { what, remedy }) => {
            bail!(BenchError::NothingMeasurable { reason: what, remedy: Some(remedy) })
        }
        Err(error) => return Err(error.into()),
    };
    let mut order = wanted.order;
    let say = |text: &str| output::say(wanted.quiet, text);
    let (mut machine, kernel) = wanted.guest.machine(&cache, order.cpu + 1, Tools::Irqlab)?;
    machine.pmu = true;
    // With less the kernel gives no huge pages (mm/huge_memory.c, hugepage_init).
    machine.memory_mib = wanted.guest.mem.unwrap_or(MEMORY_MIB);
    machine.append.push(NO_WATCHDOG.to_owned());
    let reads = |one: &Source| matches!(one, Source::Disk | Source::DiskEvent);
    if order.plan.sources.iter().any(reads) && machine.disks.is_empty() {
        machine.disks = vec![wanted.disk.parse().map_err(Usage)?];
    }
    let annotated = watch::annotated(&cache, &qemu, &kernel, &say)?;
    let facts = sim::guest_facts(&cache, &qemu, &kernel, &say)?;
    order.geometry = geometries(&model.model);
    order.geometry.retain(|(level, _)| !wanted.geometry.iter().any(|(hand, _)| hand == level));
    order.geometry.extend(wanted.geometry);
    let watch = Watch {
        detail,
        model: Some(model),
        start_fast: true,
        turns: order.plan.trace,
        ..Watch::default()
    };
    let host = host(&machine, &facts);
    let bench = SimFootprint {
        cache,
        qemu,
        machine,
        annotated,
        from: wanted.guest.from.clone(),
        limits: wanted.guest.limits(),
        watch,
        order,
        on_host: Map::new(),
        stop: Box::new(move || stop.is_requested()),
    };
    Ok(Prepared { bench, host })
}

/// Measures, prints, records.
pub fn run(args: &FootprintArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let cpus = check(args)?;
    let Some(model) = model else {
        bail!(Usage("--on sim: the caches to fill are a model's; name one (--on sim:MODEL)".into()))
    };
    let order = FootprintOrder {
        plan: args.plan(),
        cpu: cpus - 1,
        window_ns: args.window.as_nanos() as u64,
        seed: args.seed,
        counters_only: args.counters_only,
        ticks: args.ticks,
        ..FootprintOrder::default()
    };
    let wanted = Wanted {
        guest: &args.guest,
        model,
        set: &args.set,
        disk: DISK,
        geometry: &args.geometry,
        order,
        quiet: args.printing.quiet,
    };
    let Prepared { mut bench, host } = match prepare(wanted, stop_on_signals()?) {
        Ok(prepared) => prepared,
        Err(error) => return nothing_or(error.downcast()?),
    };
    let begun = Begun::new(args, host)?;
    bench.on_host.insert("out".to_owned(), json!(begun.directory));
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
