//! `irqlab footprint`: what does an interrupt evict from the caches?
//!
//! Makes the plan of `lab::footprint` from the options, and measures it on the live bench or in a simulated machine.
//! `reproduce footprint-1999` uses [`prepare`] for its machines.

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
use crate::dry_run::print_plan;
use crate::options::{
    LIVE, On, ResultArgs, SIMULATED, Usage, duration_between, guest_cpus, help_with_exit_codes, ns,
    one_cpu, unique, usable_cpus,
};
use crate::pictures::PictureArgs;
use crate::run::{OpenRun, STATUS_LIMIT, stop_on_signals};
use crate::simulated::{
    GuestArgs, JobsArgs, MachineFacts, Simulated, SimulatedArgs, add_disk, add_word,
};

/// What does an interrupt evict from the caches, and what does that cost after the return?
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[STATUS_LIMIT], "Examples:
  irqlab footprint                               timer, IPI and disk interrupts; L1d, L1i, L2
  irqlab footprint -c 1 --stimulus disk --level l1d,l2
  irqlab footprint --stimulus timer --method basic,refined
  irqlab footprint --on sim:r4400-1994           in a simulated machine, with its counters"))]
pub struct FootprintArgs {
    /// Where to measure: live or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// The CPU that runs the loop: exactly one [default: the last one]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// Stimuli that interrupt the loop: timer, ipi, disk, disk-event, net, net-signal
    #[arg(
        long,
        alias = "source",
        value_delimiter = ',',
        default_value = "timer,ipi,disk",
        value_name = "LIST"
    )]
    stimulus: Vec<Stimulus>,
    /// Caches and TLBs to fill: l1d, l1i, l2, l3, dtlb, itlb
    #[arg(long, value_delimiter = ',', default_value = "l1d,l1i,l2", value_name = "LIST")]
    level: Vec<Level>,
    /// refined: touch all lines again and again until the interrupt must have happened; basic: fill, wait, touch
    #[arg(long, value_delimiter = ',', default_value = "refined", value_name = "LIST")]
    method: Vec<Method>,
    /// Size of a level that the machine does not report: l1d=48KiB:12:64 (size, ways, line),
    /// dtlb=64:64 (entries, ways)
    #[arg(long, value_parser = live::footprint::geometry::parse, value_name = "LEVEL=SIZE")]
    geometry: Vec<(Level, Geometry)>,
    /// Maximum number of treatment repetitions, and of control repetitions; 16 to 100000
    #[arg(long, value_parser = clap::value_parser!(u32).range(16..=100_000), default_value_t = 512, value_name = "N")]
    repetitions: u32,
    /// Number of rounds, each with new memory and stimuli, so that the confidence interval includes changes
    /// over seconds; 1 to 100 [default: 5; on sim, where nothing changes, always 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N",
          help_heading = LIVE)]
    rounds: Option<u32>,
    /// Longest wait for an interrupt, up to 1s; the basic method always waits this long
    #[arg(long, allow_hyphen_values = true, value_parser = duration_between("1us", "1s"), default_value = "2ms",
          value_name = "TIME")]
    window: Duration,
    /// Machine on which `irqlab echo` runs: it echoes the messages of the stimuli net and net-signal
    #[arg(long, value_name = "HOST:PORT", help_heading = LIVE)]
    peer: Option<String>,
    /// Also record which task or handler ran when, in one repetition of each series: trace.pftrace in the
    /// run's directory, for Perfetto (ui.perfetto.dev)
    #[arg(long)]
    trace: bool,
    /// Move the device's interrupt to the loop's CPU during the run, and back afterwards
    #[arg(long, help_heading = LIVE)]
    move_irq: bool,
    /// Skip the estimate by time where counters count misses; levels with a long pass finish sooner
    #[arg(long)]
    counters_only: bool,
    /// Allow ticks in windows, equally many for treatment and control, for levels whose pass exceeds a tick
    #[arg(long, requires = "counters_only")]
    ticks: bool,
    /// Seed of the order of lines and of the times of interrupts
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    simulated: SimulatedArgs,
}

/// Default number of rounds on live.
const ROUNDS: u32 = 5;
/// Default number of CPUs of the simulated machine: one for the loop, one for the source of interrupts.
pub const VCPUS: u32 = 2;
/// Default memory of the simulated machine, MiB.
pub const MEMORY_MIB: u32 = 1024;
/// The disk that the disk stimuli read without `--disk`. Its latency lets the loop fill a cache before a read ends.
const DISK: &str = "virtio-blk,latency=1ms";
/// Kernel option that disables the watchdog, which would occupy one of the counters.
const NO_WATCHDOG: &str = "nmi_watchdog=0";
/// Name of the trace's file in the run's directory.
const TRACE: &str = "trace.pftrace";

impl FootprintArgs {
    /// Refuses `--peer` where no stimulus sends messages.
    fn check(&self) -> anyhow::Result<()> {
        let is_net = |stimulus: &Stimulus| matches!(stimulus, Stimulus::Net | Stimulus::NetSignal);
        if self.peer.is_some() && !self.stimulus.iter().any(is_net) {
            bail!(Usage(
                "--peer works only with the stimuli net and net-signal; add --stimulus net"
                    .to_owned()
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

    /// Number of rounds. Nothing changes between rounds of a simulated machine, so it has one.
    fn rounds(&self) -> u32 {
        match self.on {
            On::Live => self.rounds.unwrap_or(ROUNDS),
            On::Sim(_) => 1,
        }
    }

    /// The options of the command, for the settings of the run.
    fn settings(&self) -> Map<String, Json> {
        let settings = [
            ("rounds", json!(self.rounds())),
            ("version", json!(crate::VERSION)),
            ("repetitions_max", json!(self.repetitions)),
            ("seed", json!(self.seed)),
            ("move_irq", json!(self.move_irq)),
            ("counters_only", json!(self.counters_only)),
            ("ticks", json!(self.ticks)),
        ];
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

pub fn run(args: &FootprintArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    match &args.on {
        On::Live => run_live(args),
        On::Sim(model) => run_simulated(args, model.as_deref()),
    }
}

/// Measures on a CPU of this machine.
fn run_live(args: &FootprintArgs) -> anyhow::Result<ExitCode> {
    let all_cpus = usable_cpus(None)?;
    let cpu = one_cpu(args.cpus.as_deref(), &usable_cpus(args.cpus.as_deref())?)?;
    let host = host_facts(&Root::default());
    let open = OpenRun::new("footprint", &args.results)?;
    let context = open.context(run_host_block(&host), args.settings());
    let mut bench = LiveFootprint::new(FootprintSettings {
        cpu,
        others: all_cpus,
        by_hand: args.geometry.iter().copied().collect(),
        window_max: args.window,
        device: None,
        far: args.peer.clone().map_or(FarEnd::Veth, FarEnd::Peer),
        move_irq: args.move_irq,
        is_virtual: host.hypervisor.present == Some(true),
        seed: args.seed,
        watcher: Watcher::Probes,
        counters_only: args.counters_only,
        allows_ticks: args.ticks,
        mark: None,
        stop: stop_on_signals()?,
    })?;
    let plan = args.plan();
    let attachments = |run: &Run, samples: &Samples| attachments(run, samples, args.pictures);
    Ok(open.measure(&plan, context, &mut bench, Redraw::EachStep, attachments)?.0)
}

/// A footprint measurement in a simulated machine.
pub struct SimulatedFootprint<'a> {
    pub guest: &'a GuestArgs,
    /// Number of the guest's CPUs.
    pub vcpus: u32,
    /// Name of the measurement in progress lines; the name of a level follows it.
    pub label: &'a str,
    /// How many levels are measured at the same time.
    pub jobs: JobsArgs,
    pub model: &'a Model,
    /// How the plugin observes the model.
    pub watch: Watch,
    /// Disk that the guest gets if a stimulus reads one and `guest` has none.
    pub disk: &'a str,
    /// Sizes that replace the model's sizes of some levels.
    pub geometry: &'a [(Level, Geometry)],
    /// Request to the guest. [`prepare`] sets its geometry.
    pub request: FootprintRequest,
}

/// Prepares the machine of a footprint measurement. Returns the bench, and what a run says about the machine.
pub fn prepare(
    cache: Cache,
    footprint: SimulatedFootprint<'_>,
    stop: Stop,
) -> anyhow::Result<(SimFootprint, MachineFacts)> {
    let SimulatedFootprint { label, jobs, guest, vcpus, model, watch, disk, geometry, .. } =
        footprint;
    let mut request = footprint.request;
    let reads_disk = |stimulus: &Stimulus| matches!(stimulus, Stimulus::Disk | Stimulus::DiskEvent);
    let watch = Watch { transitions: request.plan.trace, ..watch };
    let prepared = Simulated::prepare(cache, guest, vcpus, watch, stop, |machine| {
        machine.pmu = true;
        // With less memory the kernel provides no huge pages (mm/huge_memory.c, hugepage_init).
        machine.memory_mib = guest.mem.unwrap_or(MEMORY_MIB);
        add_word(&mut machine.append, NO_WATCHDOG);
        add_disk(machine, request.plan.stimuli.iter().any(reads_disk), disk)
    })?;
    request.geometry = geometries(&model.model);
    request.geometry.retain(|(level, _)| !geometry.iter().any(|(replaced, _)| replaced == level));
    request.geometry.extend(geometry);
    let facts = prepared.machine_facts()?;
    let jobs = jobs.choose(request.plan.levels.len(), prepared.guest.machine.memory_mib);
    let bench = SimFootprint {
        guest: prepared.guest,
        jobs,
        label: label.to_owned(),
        request,
        on_host: Map::new(),
        facts: BenchFacts::default(),
    };
    Ok((bench, facts))
}

/// Measures in a simulated machine, or prints the plan with `--dry-run`.
fn run_simulated(args: &FootprintArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let simulated = &args.simulated;
    simulated.guest.refuse_free_running()?;
    let vcpus = simulated.vcpus.unwrap_or(VCPUS);
    let all_cpus: Vec<u32> = (0..vcpus).collect();
    let listed = args.cpus.as_deref().map(|list| guest_cpus(list, vcpus)).transpose()?;
    let cpu = one_cpu(args.cpus.as_deref(), listed.as_ref().unwrap_or(&all_cpus))?;
    let cache = Cache::from_environment()?;
    let Some(model) = simulated.model(&cache, model)? else {
        bail!(Usage("--on sim has no caches to fill; name a model (--on sim:MODEL)".into()))
    };
    let open = OpenRun::new("footprint", &args.results)?;
    let footprint = SimulatedFootprint {
        label: "",
        jobs: simulated.jobs,
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
    let (mut bench, facts) = prepare(cache, footprint, stop_on_signals()?)?;
    if simulated.dry_run {
        return print_plan(open.format(), bench.jobs.count, &bench.planned()?);
    }
    bench.on_host.insert("out".to_owned(), json!(open.directory()));
    let context = facts.context(&open, args.settings());
    let attachments = |run: &Run, samples: &Samples| attachments(run, samples, args.pictures);
    let measured =
        open.measure(&args.plan(), context, &mut bench, Redraw::EverySecond, attachments);
    Ok(measured?.0)
}

/// The files of a run next to its tables: its trace and its pictures.
fn attachments(run: &Run, samples: &Samples, pictures: PictureArgs) -> Vec<Attachment> {
    [trace(run, samples), pictures.draw(run)].concat()
}

/// The file with the trace of one repetition of each series, for Perfetto. Empty if no trace was recorded.
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
