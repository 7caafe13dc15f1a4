//! `irqlab footprint`: what does an interrupt evict from the caches?

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::experiment::BenchFacts;
use lab::footprint::in_guest::FootprintRequest;
use lab::footprint::{Geometry, Level, Method, Plan, Samples, Stimulus};
use live::footprint::{FarEnd, FootprintSettings, LiveFootprint, Watcher};
use live::host::{Root, host_facts, run_host_block};
use live::window::Stop;
use record::{Attachment, Run};
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::footprint::{SimFootprint, geometries};
use sim::models::Model;
use sim::watch::Watch;

use crate::console::{self, Redraw};
use crate::options::{
    LIVE, On, ResultArgs, SIMULATED, Usage, duration_between, guest_cpus, help_with_exit_codes, ns,
    one_cpu, unique, usable_cpus,
};
use crate::run::{OpenRun, stop_on_signals};
use crate::simulated::{GuestArgs, Simulated, SimulatedArgs, add_disk};

/// What does an interrupt evict from the caches, and what does that cost after the return?
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes("Examples:
  irqlab footprint                               timer, IPI and disk interrupts; L1d, L1i, L2
  irqlab footprint -c 1 --stimulus disk --level l1d,l2
  irqlab footprint --stimulus timer --method basic,refined
  irqlab footprint --on sim:r4400-1994           in a simulated machine, by its counters"))]
pub struct FootprintArgs {
    /// Where to measure: live or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// The CPU that runs the loop: exactly one [default: the last one]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// What interrupts: timer, ipi, disk, disk-event, net, net-signal
    #[arg(
        long,
        alias = "source",
        value_delimiter = ',',
        default_value = "timer,ipi,disk",
        value_name = "LIST"
    )]
    stimulus: Vec<Stimulus>,
    /// What is filled: l1d, l1i, l2, l3, dtlb, itlb
    #[arg(long, value_delimiter = ',', default_value = "l1d,l1i,l2", value_name = "LIST")]
    level: Vec<Level>,
    /// refined: touch all lines until the interrupt must have happened; basic: fill, wait, touch
    #[arg(long, value_delimiter = ',', default_value = "refined", value_name = "LIST")]
    method: Vec<Method>,
    /// Size of a level, where the machine does not say it: l1d=48KiB:12:64 (size, ways, line),
    /// dtlb=64:64 (entries, ways)
    #[arg(long, value_parser = live::footprint::geometry::parse, value_name = "LEVEL=SIZE")]
    geometry: Vec<(Level, Geometry)>,
    /// Maximum number of treatment repetitions, and of control repetitions; 16 to 100000
    #[arg(long, value_parser = clap::value_parser!(u32).range(16..=100_000), default_value_t = 512, value_name = "N")]
    repetitions: u32,
    /// Number of rounds, each with new memory and stimuli: changes over seconds are then part of the
    /// confidence interval; 1 to 100 [default: 5; on sim, where nothing changes, always 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N",
          help_heading = LIVE)]
    rounds: Option<u32>,
    /// Longest wait for an interrupt, up to 1s; the basic method always waits this long
    #[arg(long, allow_hyphen_values = true, value_parser = duration_between("1us", "1s"), default_value = "2ms",
          value_name = "TIME")]
    window: Duration,
    /// Let another machine, on which `irqlab echo` runs, echo the messages of net and net-signal
    #[arg(long, value_name = "HOST:PORT", help_heading = LIVE)]
    peer: Option<String>,
    /// Also record one repetition of each series: which task or handler ran when, as trace.pftrace in the
    /// run's directory, for Perfetto (ui.perfetto.dev)
    #[arg(long)]
    trace: bool,
    /// Move a device's interrupt to the loop's CPU for the run; it goes back afterwards
    #[arg(long, help_heading = LIVE)]
    move_irq: bool,
    /// Where misses are counted, skip the estimate by time: levels with a long pass are ready sooner
    #[arg(long)]
    counters_only: bool,
    /// Allow ticks in windows: treatment and control have equally many. For levels with a pass longer
    /// than a tick; by counters only
    #[arg(long, requires = "counters_only")]
    ticks: bool,
    /// Chooses the order of lines and the times of interrupts
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    simulated: SimulatedArgs,
}

/// Rounds on live, unless another number is given.
const ROUNDS: u32 = 5;
/// CPUs of the simulated machine, unless another number is given: one for the loop, one for what
/// interrupts it.
pub const VCPUS: u32 = 2;
/// Its memory, unless another size is given.
pub const MEMORY_MIB: u32 = 1024;
/// The disk of the disk stimuli, unless one is asked for: with a latency, so that a cache is filled
/// before the read completes.
const DISK: &str = "virtio-blk,latency=1ms";
/// The kernel's watchdog would keep one of the counters for itself.
const NO_WATCHDOG: &str = "nmi_watchdog=0";
/// The trace's file in the run's directory.
const TRACE: &str = "trace.pftrace";

impl FootprintArgs {
    fn check(&self) -> anyhow::Result<()> {
        let is_net = |stimulus: &Stimulus| matches!(stimulus, Stimulus::Net | Stimulus::NetSignal);
        if self.peer.is_some() && !self.stimulus.iter().any(is_net) {
            bail!(Usage(
                "--peer is for the stimuli net and net-signal; add --stimulus net".to_owned()
            ));
        }
        Ok(())
    }

    fn plan(&self) -> Plan {
        Plan {
            levels: unique(&self.level),
            stimuli: unique(&self.stimulus),
            methods: unique(&self.method),
            repetitions_max: self.repetitions as usize,
            trace: self.trace,
            rounds: self.rounds() as usize,
            seed: self.seed,
        }
    }

    fn rounds(&self) -> u32 {
        match self.on {
            On::Live => self.rounds.unwrap_or(ROUNDS),
            On::Sim(_) => 1,
        }
    }

    fn settings(&self) -> Map<String, Json> {
        let settings = [
            ("rounds", json!(self.rounds())),
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("repetitions_max", json!(self.repetitions)),
            ("seed", json!(self.seed)),
            ("move_irq", json!(self.move_irq)),
            ("counters_only", json!(self.counters_only)),
            ("ticks", json!(self.ticks)),
        ];
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Measures, prints, records.
pub fn run(args: &FootprintArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    match &args.on {
        On::Live => run_live(args),
        On::Sim(model) => run_simulated(args, model.as_deref()),
    }
}

fn run_live(args: &FootprintArgs) -> anyhow::Result<ExitCode> {
    let all = usable_cpus(None)?;
    let cpu = one_cpu(args.cpus.as_deref(), &usable_cpus(args.cpus.as_deref())?)?;
    let host = host_facts(&Root::default());
    let open = OpenRun::new("footprint", &args.results)?;
    let context = open.context(run_host_block(&host), args.settings());
    let mut bench = LiveFootprint::new(FootprintSettings {
        cpu,
        others: all,
        by_hand: args.geometry.iter().copied().collect(),
        window: args.window,
        device: None,
        far: args.peer.clone().map_or(FarEnd::Veth, FarEnd::Peer),
        move_irq: args.move_irq,
        is_virtual: host.hypervisor.present == Some(true),
        seed: args.seed,
        watcher: Watcher::Probes,
        counters_only: args.counters_only,
        ticks: args.ticks,
        mark: None,
        stop: stop_on_signals()?,
    })?;
    let plan = args.plan();
    Ok(open.measure(&plan, context, &mut bench, Redraw::EachStep, trace)?.0)
}

/// A footprint to be measured in a simulated machine.
pub struct SimulatedFootprint<'a> {
    /// What the guest is made of.
    pub guest: &'a GuestArgs,
    /// Its CPUs.
    pub vcpus: u32,
    /// What is measured, for progress.
    pub label: &'a str,
    /// The model, and how it is watched.
    pub model: &'a Model,
    pub watch: Watch,
    /// Its disk, if the guest has no other and a stimulus reads one.
    pub disk: &'a str,
    /// Sizes of levels that are not the model's.
    pub geometry: &'a [(Level, Geometry)],
    /// The guest's part. Its sizes are added here.
    pub request: FootprintRequest,
}

/// Prepares the machine; gives the bench and what a run says about the machine.
pub fn prepare(
    cache: Cache,
    footprint: SimulatedFootprint<'_>,
    stop: Stop,
) -> anyhow::Result<(SimFootprint, Map<String, Json>)> {
    let SimulatedFootprint { label, guest, vcpus, model, watch, disk, geometry, mut request } =
        footprint;
    let reads = |one: &Stimulus| matches!(one, Stimulus::Disk | Stimulus::DiskEvent);
    let watch = Watch { transitions: request.plan.trace, ..watch };
    let prepared = Simulated::prepare(cache, guest, vcpus, watch, stop, |machine| {
        machine.pmu = true;
        // With less the kernel gives no huge pages (mm/huge_memory.c, hugepage_init).
        machine.memory_mib = guest.mem.unwrap_or(MEMORY_MIB);
        machine.append.push(NO_WATCHDOG.to_owned());
        add_disk(machine, request.plan.stimuli.iter().any(reads), disk)
    })?;
    request.geometry = geometries(&model.model);
    request.geometry.retain(|(level, _)| !geometry.iter().any(|(given, _)| given == level));
    request.geometry.extend(geometry);
    let host = prepared.host();
    let bench = SimFootprint {
        guest: prepared.guest,
        label: label.to_owned(),
        request,
        on_host: Map::new(),
        facts: BenchFacts::default(),
    };
    Ok((bench, host))
}

fn run_simulated(args: &FootprintArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let simulated = &args.simulated;
    if simulated.guest.free_running {
        let why = "the loops' clock must be the machine's, not the host's";
        bail!(Usage(format!("--free-running: {why}")));
    }
    let vcpus = simulated.vcpus.unwrap_or(VCPUS);
    let all: Vec<u32> = (0..vcpus).collect();
    let given = args.cpus.as_deref().map(|list| guest_cpus(list, vcpus)).transpose()?;
    let cpu = one_cpu(args.cpus.as_deref(), given.as_ref().unwrap_or(&all))?;
    let cache = Cache::from_environment()?;
    let Some(model) = simulated.model(&cache, model)? else {
        bail!(Usage("--on sim: the caches to fill are a model's; name one (--on sim:MODEL)".into()))
    };
    let open = OpenRun::new("footprint", &args.results)?;
    let footprint = SimulatedFootprint {
        label: "all series",
        guest: &simulated.guest,
        vcpus,
        model: &model,
        watch: simulated.watch(Some(model.clone())),
        disk: DISK,
        geometry: &args.geometry,
        request: FootprintRequest {
            plan: args.plan(),
            cpu,
            window_ns: ns(args.window),
            seed: args.seed,
            counters_only: args.counters_only,
            ticks: args.ticks,
            ..FootprintRequest::default()
        },
    };
    let (mut bench, host) = prepare(cache, footprint, stop_on_signals()?)?;
    bench.on_host.insert("out".to_owned(), json!(open.directory()));
    let context = open.context(host, args.settings());
    Ok(open.measure(&args.plan(), context, &mut bench, Redraw::EverySecond, trace)?.0)
}

/// The trace of one repetition of each series, for Perfetto; none unless it was recorded.
fn trace(run: &Run, samples: &Samples) -> Vec<Attachment> {
    if samples.traces.is_empty() {
        return Vec::new();
    }
    match report::perfetto(run) {
        Ok(contents) => {
            console::say_more(&format!("{TRACE} opens in https://ui.perfetto.dev"));
            vec![Attachment { name: TRACE.to_owned(), contents }]
        }
        Err(_) => Vec::new(), // no repetition was traced to its end
    }
}
