//! `handlers --on sim`: a simulated machine.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::handlers::in_guest::GuestOrder;
use lab::handlers::{Condition, Source};
use live::host::parse_cpu_list;
use serde_json::{Map, Value as Json, json};
use sim::boot::Limits;
use sim::handlers::{SimBench, SimSettings};
use sim::image::Tools;
use sim::watch::{self, Detail, QUANTUM_DEFAULT, QUANTUM_MAX, Watch};
use sim::{Cache, GuestFacts, Machine, SimError, models, qemu};

use super::stop::stop_on_signals;
use super::{Attach, HandlersArgs};
use crate::args::Usage;
use crate::output;
use crate::shell;

/// The disk of the disk source, unless one is asked for: with a latency, so that reads wait.
const DISK: &str = "virtio-blk,latency=100us";

/// Measures, prints, records.
pub fn run(args: &HandlersArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let cpus = check(args)?;
    if model.is_none() && (args.detail.is_some() || !args.set.is_empty()) {
        bail!(Usage("--detail and --set are for a model: --on sim:MODEL".to_owned()));
    }
    let cache = Cache::from_environment()?;
    let detail = Detail::from(args.detail.unwrap_or_default());
    let model = model.map(|name| models::find(&cache, name, &args.set, detail)).transpose();
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
    let (mut machine, kernel) = args.guest.machine(&cache, cpus, Tools::Irqlab)?;
    if args.source.contains(&Source::Disk) && machine.disks.is_empty() {
        machine.disks = vec![DISK.parse().map_err(Usage)?];
    }
    let annotated = watch::annotated(&cache, &qemu, &kernel, &say)?;
    let facts = sim::guest_facts(&cache, &qemu, &kernel, &say)?;
    let watch = Watch {
        detail: if model.is_some() { detail } else { Detail::Count },
        model,
        start_fast: true,
        spans: true,
        quantum: args.quantum.unwrap_or(QUANTUM_DEFAULT),
        ..Watch::default()
    };
    let run = args.begin(host(&machine, &facts))?;
    let settings = SimSettings {
        cache,
        qemu,
        machine,
        annotated,
        from: args.guest.from.clone(),
        limits: limits(args),
        watch,
        order: order(args, cpus)?,
        events: args.events.clone(),
        on_host: Map::from_iter([("out".to_owned(), json!(run.directory))]),
        stop: Box::new(move || stop.is_requested()),
    };
    run.measure(args, &mut SimBench::new(settings))
}

/// Refuses what this bench cannot do; the number of CPUs.
fn check(args: &HandlersArgs) -> anyhow::Result<u32> {
    for (flag, given, why) in [
        ("--attach", args.attach != Attach::Auto, "nothing is attached to the guest's kernel"),
        ("--peer", args.peer.is_some(), "the guest has no network but its own"),
    ] {
        if given {
            bail!(Usage(format!("{flag} is for --on live: {why}")));
        }
    }
    if let Some(quantum) = args.quantum.filter(|quantum| !(1..=QUANTUM_MAX).contains(quantum)) {
        bail!(Usage(format!("--quantum {quantum}: allowed: 1 to {QUANTUM_MAX}")));
    }
    let Some(text) = &args.cpus else { return Ok(1) };
    let cpus = text.parse().ok().filter(|cpus| (1..=sim::CPUS_MAX).contains(cpus));
    cpus.ok_or_else(|| {
        let allowed = format!("on sim, how many CPUs the machine has: 1 to {}", sim::CPUS_MAX);
        Usage(format!("--cpus {text:?}: allowed: {allowed}")).into()
    })
}

/// The guest needs as long as it is asked to, and what stimuli take to start.
fn limits(args: &HandlersArgs) -> Limits {
    let mut limits = args.guest.limits();
    if args.guest.guest_limit.is_none() {
        let asked = (args.warm_up + args.duration).as_secs();
        let asked = u32::try_from(asked).unwrap_or(u32::MAX);
        limits.guest_s = limits.guest_s.saturating_add(asked);
    }
    limits
}

fn order(args: &HandlersArgs, cpus: u32) -> anyhow::Result<GuestOrder> {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let list = args.housekeeping.as_deref().unwrap_or_default();
    let bad = |why: String| Usage(format!("CPU list {list:?}: {why}"));
    let housekeeping = match &args.housekeeping {
        Some(list) => parse_cpu_list(list).map_err(|error| bad(error.to_string()))?,
        None => Vec::new(),
    };
    if let Some(absent) = housekeeping.iter().find(|cpu| **cpu >= cpus) {
        bail!(bad(format!("the machine has no CPU {absent}; it has {cpus} (--cpus)")));
    }
    Ok(GuestOrder {
        condition: Condition::AsFound,
        warm_up_ns: ns(args.warm_up),
        duration_ns: ns(args.duration),
        command: (!args.command.is_empty()).then(|| shell::line(&args.command)),
        low_interval_ns: ns(args.low_interval),
        housekeeping,
        disk_file: args.disk_file.clone(),
        probed: false,
        events: Vec::new(),
    })
}

/// The machine, as a run tells of the one that was measured.
pub fn host(machine: &Machine, facts: &GuestFacts) -> Map<String, Json> {
    let last = machine.cpus.saturating_sub(1);
    let online = if last == 0 { "0".to_owned() } else { format!("0-{last}") };
    let pairs = [
        ("cpu_model", json!(format!("{} as QEMU has it", machine.cpu_model))),
        ("cpus_online", json!(online)),
        ("virtualized", json!(true)),
        ("hypervisor", json!("QEMU (TCG)")),
        ("kernel", json!(facts.release)),
        ("arch", json!("x86_64")),
        ("hz", json!(facts.hz)),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
