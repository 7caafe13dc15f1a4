//! `irqlab wakeup`: how late does a periodic thread run, and what delayed it?
//!
//! Makes the plan of `lab::wakeup` from the options, and measures it on the live bench or in a simulated machine.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use lab::experiment::RunContext;
use lab::handlers::{Condition, Load, Rate, Stimulus};
use lab::noise::KeepDetours;
use lab::noise::ledger::{LONGEST_DEFAULT, LONGEST_MAX};
use lab::wakeup::in_guest::{RECORDS_MAX, WakeupRequest};
use lab::wakeup::{Plan, WakeBy, WakeupBench, WakeupSamples};
use live::host::{HostFacts, Root, format_cpu_list, host_facts, run_host_block};
use live::marks::Senders;
use live::wakeup::{DiskFile, Length, LiveWakeup, Policy, Wait, WakerPlace, WakeupSettings};
use live::window::shell_status;
use record::Run;
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::boot::Limits;
use sim::wakeup::{SimWakeup, SimWakeupSettings};
use sim::watch::Watch;

use crate::console::{self, Redraw};
use crate::dry_run::print_plan;
use crate::expected_time;
use crate::options::{
    Format, LIVE, On, ResultArgs, SIMULATED, Usage, any_duration, duration, duration_between,
    guest_cpus, help_with_exit_codes, measured_and_housekeeping_cpus, ns, usable_cpus,
};
use crate::pictures::PictureArgs;
use crate::run::{DIFFERS, EVENTS_LOST, OpenRun, STATUS_LIMIT, stop_on_signals};
use crate::simulated::{Simulated, SimulatedArgs, UserMode, UserModeArgs, add_disk};
use crate::threshold::{Threshold, conclude};

/// How late does a periodic thread run, and what delayed it?
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[DIFFERS, EVENTS_LOST, STATUS_LIMIT], "Examples:
  irqlab wakeup                             10 s of a thread on every CPU, due every ms, with causes
  irqlab wakeup -c 1 -p 250us -d 60s        one CPU, four times as often, for a minute
  irqlab wakeup --policy other --no-trace   a usual thread, without probes
  irqlab wakeup -d 1h --on-threshold 1ms:stop    until a thread is 1 ms late
  irqlab wakeup -c 1 -- make -j4            while a command runs, until it ends
  irqlab wakeup --wake-by futex             how late a thread runs that another thread wakes
  irqlab wakeup --wake-by packet            how late a thread runs that a packet wakes
  irqlab wakeup --wake-by disk              how late a thread runs that a disk's interrupt wakes
  irqlab wakeup --on sim:zen3               in a simulated machine: each cycle has its cause
  irqlab wakeup --on sim:zen3 --load busy --stimulus net --seeds 200    the worst case of 200 machines"))]
pub struct WakeupArgs {
    /// Where to measure: live, sim or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// CPUs that run a thread, as in 0-3,8 [default: all CPUs that are not in -H]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// Time between two due times of a thread; 10us to 10s
    #[arg(short, long, allow_hyphen_values = true, value_parser = duration_between("10us", "10s"),
          default_value = "1ms", value_name = "TIME")]
    period: Duration,
    /// Length of the window [default: 10s; with a command, until it ends; on sim 500ms]
    #[arg(short, long, allow_hyphen_values = true, value_parser = duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// How long the threads run before irqlab measures them [default: 100ms; with a model 10ms]
    #[arg(long, allow_hyphen_values = true, value_parser = any_duration, value_name = "TIME")]
    warm_up: Option<Duration>,
    /// Scheduling class of the threads: other, fifo:PRIO or rr:PRIO (without the rights for it, other, with a warning), or
    /// deadline:RUNTIME,DEADLINE,PERIOD, as in deadline:200us,1ms,1ms (refused where the kernel refuses it)
    #[arg(long, default_value = "fifo:95", value_name = "CLASS")]
    policy: Policy,
    /// How the threads, or their wakers, sleep until they are due: nanosleep (clock_nanosleep) or timerfd
    #[arg(long, default_value = "nanosleep", value_name = "HOW")]
    wait: Wait,
    /// What wakes the threads: timer (each thread sleeps until it is due), or futex, eventfd or packet (another thread, the
    /// waker, sleeps until then and wakes it, with packet by a UDP packet over loopback; the lateness begins when the waker
    /// reads the clock), or disk (each thread sleeps until it is due and then reads a disk; the lateness begins when the
    /// handler of the disk's interrupt begins)
    #[arg(long, default_value = "timer", value_name = "HOW")]
    wake_by: WakeBy,
    /// File or block device that --wake-by disk reads [default: a scratch file]
    #[arg(long, value_name = "FILE", help_heading = LIVE)]
    disk_file: Option<PathBuf>,
    /// CPU of the wakers, one for each thread [default: one that is not measured]
    #[arg(long, value_name = "CPU")]
    waker_cpu: Option<u32>,
    /// All threads are due at the same time; otherwise their due times are spread over the period
    #[arg(long)]
    aligned: bool,
    /// Let the CPUs use only idle states that take at most this long to leave (0us: none), through
    /// /dev/cpu_dma_latency; for the time of the run
    #[arg(long, allow_hyphen_values = true, value_parser = exit_latency, value_name = "TIME", help_heading = LIVE)]
    idle_exit_max: Option<u32>,
    /// When a thread is late by TIME or more, end the window, unless an ACTION is continue, and perform ACTION: stop (nothing more), run=COMMAND
    /// (without a shell; {cpu}, {latency_ns} and {cause} are replaced), signal=NAME,PID, trace (keep the flight record, of 5 s if --flight-record
    /// gives no other length), or continue (the window goes on,
    /// and such wake-ups are counted). Several may be given; the exit code is 3
    #[arg(long, allow_hyphen_values = true, value_name = "TIME:ACTION", help_heading = LIVE)]
    on_threshold: Vec<Threshold>,
    /// Keep what ran in the last TIME on each measured CPU, for table flight_record and export --format perfetto; 10ms to
    /// 1h, and at most 2,097,152 events. With --seeds, TIME before the worst wake-up [default with --seeds: 10ms]
    #[arg(long, allow_hyphen_values = true, value_parser = duration_between("10ms", "1h"),
          conflicts_with = "no_trace", value_name = "TIME")]
    flight_record: Option<Duration>,
    /// How many of the worst wake-ups of each CPU are kept with every part: 1 to 1000
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MAX as u64),
          default_value_t = LONGEST_DEFAULT as u64, value_name = "N")]
    keep_worst: u64,
    /// Seed of the order in the comparison of short windows without and with recorded events [default: 1]; on sim, of
    /// the phases of threads, load and stimulus [default: all start at once]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Search the worst case: run the machine with N seeds, from --seed on, and report the one with the latest wake-up. It
    /// runs once more, with a record of what ran before and in this wake-up, and must be the same again
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=SEEDS_MAX), value_name = "N", help_heading = SIMULATED)]
    seeds: Option<u32>,
    /// Load on every measured CPU: idle, or busy (zlib compression)
    #[arg(long, default_value = "idle", value_name = "LOAD", help_heading = SIMULATED)]
    load: Load,
    /// What interrupts beside the threads: disk, net, timer, ipi or none
    #[arg(long, default_value = "none", value_name = "SOURCE", help_heading = SIMULATED)]
    stimulus: Stimulus,
    /// How often the stimulus interrupts: low, or high
    #[arg(long, default_value = "high", value_name = "RATE", help_heading = SIMULATED)]
    rate: Rate,
    /// Time between two operations at the low rate
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "50ms",
          value_name = "TIME", help_heading = SIMULATED)]
    low_interval: Duration,
    /// CPUs for irqlab's own thread [default: those not measured]
    #[arg(short = 'H', long, value_name = "LIST", help_heading = LIVE)]
    housekeeping: Option<String>,
    /// Run without probes: lateness then has no causes
    #[arg(long, help_heading = LIVE)]
    no_trace: bool,
    /// Do not record who woke the threads (column wakers of table worst, table wakers)
    #[arg(long, conflicts_with = "no_trace", help_heading = LIVE)]
    no_wakers: bool,
    /// Name the task or interrupt on another CPU that sent an interrupt, its process and its reason. On live this needs Linux
    /// 6.4 or later, and the probes for it cost time on the CPUs that send to measured ones, and in each such interrupt
    #[arg(long, conflicts_with = "no_trace")]
    senders: bool,
    /// Do not compare short windows without and with recorded events first, which takes up to 10 s
    #[arg(long, help_heading = LIVE)]
    no_comparison: bool,
    /// Run this command from the opening of the window on, and end it after the window
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    user_mode: UserModeArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    simulated: SimulatedArgs,
}

/// Length of the window without -d and without a command.
const DURATION: Duration = Duration::from_secs(10);
/// Like `DURATION`, in a simulated machine, which needs host time for each instruction.
const SIMULATED_DURATION: Duration = Duration::from_millis(500);
/// Maximum number of wake-ups of all CPUs of a simulated machine: they fit into the guest's response.
const ALL_RECORDS_MAX: u64 = 500_000;
/// Length of the flight record before the due time of the worst wake-up of all seeds, without `--flight-record`.
const BEFORE_WORST: Duration = Duration::from_millis(10);
/// The most machines of `--seeds`.
const SEEDS_MAX: i64 = 10_000;
/// The disk that the disk stimulus and threads with `--wake-by disk` read without `--disk`.
const DISK: &str = "virtio-blk,latency=100us";
/// How long the threads run before the window.
const WARM_UP: Duration = Duration::from_millis(100);
/// Like `WARM_UP`, with a model, whose frequency never changes: caches and predictors learn the threads in this time.
const WARM_UP_WITH_MODEL: Duration = Duration::from_millis(10);

impl WakeupArgs {
    fn warm_up(&self) -> Duration {
        let default = match self.on {
            On::Sim(Some(_)) => WARM_UP_WITH_MODEL,
            On::Sim(None) | On::Live => WARM_UP,
        };
        self.warm_up.unwrap_or(default)
    }

    /// Length of the window in a simulated machine.
    fn simulated_duration(&self) -> Duration {
        self.duration.unwrap_or(SIMULATED_DURATION)
    }

    fn length(&self) -> Length {
        match self.duration {
            None if self.on != On::Live => Length::Time(SIMULATED_DURATION),
            Some(time) => Length::Time(time),
            None if self.command.is_empty() => Length::Time(DURATION),
            None => Length::Command,
        }
    }

    fn seed_or_first(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    /// Load and stimulus next to the threads of a simulated machine.
    fn condition(&self) -> Condition {
        let (load, rate, stimulus) = (self.load, self.rate, self.stimulus);
        match (load, stimulus) {
            (Load::Idle, Stimulus::None) => Condition::Ambient,
            _ => Condition::Made { load, rate, stimulus },
        }
    }

    /// Length of the flight record, ns. `None`: nothing is recorded.
    fn flight_record_ns(&self) -> Option<u64> {
        let length_ns = Threshold::flight_record_ns(&self.on_threshold, self.flight_record);
        length_ns.or_else(|| self.seeds.map(|_| ns(BEFORE_WORST)))
    }

    /// The options of the command, for the settings of the run.
    fn settings(&self) -> Map<String, Json> {
        let duration_ns = match self.length() {
            Length::Time(time) => Some(ns(time)),
            Length::Command => None,
        };
        let thresholds = Threshold::lengths(&self.on_threshold);
        let has_seed = self.seed.is_some() || self.seeds.is_some() || self.on == On::Live;
        let seed = has_seed.then(|| self.seed_or_first());
        let settings = [
            ("version", json!(crate::VERSION)),
            ("period_ns", json!(ns(self.period))),
            ("duration_ns", json!(duration_ns)),
            ("warm_up_ns", json!(ns(self.warm_up()))),
            ("policy", json!(self.policy.to_string())),
            ("wait", json!(self.wait.word())),
            ("wake_by", json!(self.wake_by.word())),
            ("disk_file", json!(self.disk_file)),
            ("aligned", json!(self.aligned)),
            ("idle_exit_max_ns", json!(self.idle_exit_max.map(|us| u64::from(us) * 1_000))),
            ("threshold_ns", json!(thresholds.map(|thresholds| thresholds.counted_ns))),
            ("flight_record_ns", json!(self.flight_record_ns())),
            ("threshold_stop_ns", json!(thresholds.and_then(|thresholds| thresholds.stop_ns))),
            ("trace", json!(!self.no_trace)),
            ("no_wakers", json!(self.no_wakers)),
            ("senders", json!(self.senders)),
            ("seed", json!(seed)),
            ("keep_worst", json!(self.keep_worst)),
            ("command", json!(self.command)),
        ];
        let simulated = [
            ("seeds", json!(self.seeds)),
            ("condition", json!(self.condition())),
            ("low_interval_ns", json!(ns(self.low_interval))),
        ];
        let simulated = simulated.into_iter().filter(|_| self.on != On::Live);
        settings.into_iter().chain(simulated).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn plan(&self) -> Plan {
        // A simulator observes from outside, and delays nothing.
        let compare = !self.no_comparison && self.on == On::Live;
        Plan { trace: !self.no_trace, compare, seed: self.seed_or_first() }
    }

    fn cpus(&self, host: &HostFacts) -> anyhow::Result<ChosenCpus> {
        let (list, housekeeping) = (self.cpus.as_deref(), self.housekeeping.as_deref());
        let (mut measured, housekeeping) =
            measured_and_housekeeping_cpus(list, housekeeping, host)?;
        if let Some(cpu) = self.waker_cpu {
            usable_cpus(Some(&cpu.to_string()))?;
        }
        let usable = usable_cpus(None)?;
        let waker = self.choose_waker_cpu(&mut measured, &usable, &housekeeping)?;
        Ok(ChosenCpus { measured, housekeeping, waker })
    }

    /// Chooses the CPU of the wakers, among the `usable` ones without a measured thread, and prefers those outside of
    /// `housekeeping`. Without `-c`, leaves a CPU out of `measured` for the wakers if possible. `None` without wakers.
    ///
    /// Fails if `-c` leaves no CPU for the wakers, unless the machine has only one.
    fn choose_waker_cpu(
        &self,
        measured: &mut Vec<u32>,
        usable: &[u32],
        housekeeping: &[u32],
    ) -> Result<Option<u32>, Usage> {
        if !self.wake_by.has_waker() {
            return match self.waker_cpu {
                Some(_) => {
                    Err(Usage("--waker-cpu needs --wake-by futex, eventfd or packet".to_owned()))
                }
                None => Ok(None),
            };
        }
        let is_free = |cpu: &&u32| !measured.contains(cpu);
        let is_own = |cpu: &&u32| is_free(cpu) && !housekeeping.contains(cpu);
        let free = usable.iter().find(is_own).or_else(|| usable.iter().find(is_free)).copied();
        let cpu = match (self.waker_cpu.or(free), &self.cpus) {
            (Some(cpu), _) => cpu,
            (None, Some(_)) if usable.len() > 1 => {
                return Err(Usage(format!(
                    "-c has all CPUs, so none is left for the thread that wakes the measured ones by {} (leave one out \
                     of -c, or let them share a CPU, as in --waker-cpu {})",
                    self.wake_by.word(),
                    usable[0]
                )));
            }
            (None, _) => measured[0],
        };
        if self.cpus.is_none() && measured.len() > 1 {
            measured.retain(|measured_cpu| *measured_cpu != cpu);
        }
        Ok(Some(cpu))
    }

    fn bench(&self, host: &HostFacts) -> anyhow::Result<LiveWakeup> {
        let ChosenCpus { measured: cpus, housekeeping, waker } = self.cpus(host)?;
        let keep = KeepDetours::new(self.keep_worst as usize, cpus.len(), self.seed_or_first());
        let open_disk = || DiskFile::open(&Root::default(), self.disk_file.as_deref());
        let disk = (self.wake_by == WakeBy::Disk).then(open_disk).transpose()?.map(Arc::new);
        Ok(LiveWakeup::new(WakeupSettings {
            waker: WakerPlace::choose(self.wake_by, waker, self.policy, &cpus),
            disk,
            cpus,
            housekeeping,
            period_ns: ns(self.period),
            length: self.length(),
            warm_up: self.warm_up(),
            policy: self.policy,
            wait: self.wait,
            aligned: self.aligned,
            idle_exit_max_us: self.idle_exit_max,
            trace: !self.no_trace,
            wakers: !self.no_wakers,
            senders: if self.senders { Senders::Named } else { Senders::NotNamed },
            keep,
            keeps_readings: false,
            command: self.command.clone(),
            command_to_stderr: self.results.printing.format() != Format::Table,
            stop: stop_on_signals()?,
        })?)
    }
}

/// The CPUs of a measurement.
struct ChosenCpus {
    measured: Vec<u32>,
    housekeeping: Vec<u32>,
    /// CPU of the wakers. `None` without wakers.
    waker: Option<u32>,
}

/// Parses the value of `--idle-exit-max`: whole microseconds, as in `0us`.
fn exit_latency(text: &str) -> Result<u32, String> {
    let exit_ns = ns(any_duration(text)?);
    let exit_us = u32::try_from(exit_ns / 1_000).ok().filter(|us| *us <= 1_000_000);
    match exit_us {
        Some(us) if exit_ns.is_multiple_of(1_000) => Ok(us),
        _ => Err("allowed: whole microseconds with a unit, 0us to 1s".to_owned()),
    }
}

pub fn run(args: &WakeupArgs) -> anyhow::Result<ExitCode> {
    if args.duration.is_some_and(|duration| duration < args.period) {
        bail!(Usage("-d is shorter than the period -p, so no thread would wake up".to_owned()));
    }
    if args.policy.holds_back_threads_of_period(ns(args.period)) {
        bail!(Usage(
            "--policy deadline: with a DEADLINE below PERIOD, and a PERIOD of -p or more, the kernel holds a thread back \
             that wakes less late than before (choose DEADLINE = PERIOD, or a PERIOD below -p)"
                .to_owned()
        ));
    }
    if args.wake_by == WakeBy::Disk && args.no_trace {
        bail!(Usage(
            "--wake-by disk: the lateness begins with an event of the probes (leave --no-trace out)"
                .to_owned()
        ));
    }
    if args.disk_file.is_some() && (args.wake_by != WakeBy::Disk || args.on != On::Live) {
        bail!(Usage(
            "--disk-file needs --wake-by disk on the live bench (on sim, --disk has the disk)"
                .to_owned()
        ));
    }
    match &args.on {
        On::Live => run_live(args),
        On::Sim(model) => run_simulated(args, model.as_deref()),
    }
}

/// Measures on CPUs of this machine. Returns the status of the user's command if the command ended with an error before
/// the window did, or ended the window with one.
fn run_live(args: &WakeupArgs) -> anyhow::Result<ExitCode> {
    Threshold::check_traced(&args.on_threshold, args.no_trace)?;
    let thresholds = Threshold::watch(&args.on_threshold)?;
    let host = host_facts(&Root::default());
    // Refuses wrong CPUs before the run's directory is created.
    let chosen = args.cpus(&host)?;
    if let Some(cpu) = chosen.waker.filter(|_| args.waker_cpu.is_none()) {
        let measured = format_cpu_list(&chosen.measured);
        console::say(&format!(
            "wakers on CPU {cpu} (--waker-cpu), measured threads on CPUs {measured} (-c)"
        ));
    }
    let open = OpenRun::new("wakeup", &args.results)?;
    let context = open.context(run_host_block(&host), args.settings());
    let mut bench = args.bench(&host)?;
    bench.watch_for(thresholds);
    if let Some(length_ns) = args.flight_record_ns() {
        bench.record_flight(length_ns)?;
    }
    if let Some(time) = args.plan().expected_time(&bench) {
        console::say(&expected_time::text(&time, "window"));
    }
    // All CPUs may be measured, and drawing a line every second would delay threads.
    let mut exit = measure(args, &open, context, &mut bench, Redraw::EachStep)?;
    let mut ended_by_threshold = false;
    if let Some((over, ended_window)) = bench.over_threshold() {
        let event = format!("the thread on CPU {} was {} ns late", over.cpu, over.length_ns);
        exit = conclude(&event, over, ended_window, exit);
        ended_by_threshold = ended_window;
    }
    let status = bench.end_command()?;
    let Some(status) = (if ended_by_threshold { None } else { status }) else { return Ok(exit) };
    let code = u8::try_from(shell_status(status)).unwrap_or(1);
    Ok(if code == 0 { exit } else { ExitCode::from(code) })
}

/// Measures the plan, prints and records the run.
fn measure(
    args: &WakeupArgs,
    open: &OpenRun,
    context: RunContext,
    bench: &mut (dyn WakeupBench + 'static),
    redraw: Redraw,
) -> anyhow::Result<ExitCode> {
    let draw = |run: &Run, _: &WakeupSamples| args.pictures.draw(run);
    Ok(open.measure(&args.plan(), context, bench, redraw, draw)?.0)
}

/// Measures in a simulated machine, or prints the plan with `--dry-run`.
fn run_simulated(args: &WakeupArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let vcpus = args.simulated.vcpus.unwrap_or(1);
    check_simulated(args, model, vcpus)?;
    let mut cpus = args.cpus.as_deref().map(|list| guest_cpus(list, vcpus)).transpose()?;
    let all_cpus: Vec<u32> = (0..vcpus).collect();
    if let Some(cpu) = args.waker_cpu {
        guest_cpus(&cpu.to_string(), vcpus)?;
    }
    let mut measured = cpus.clone().unwrap_or_else(|| all_cpus.clone());
    let waker_cpu = args.choose_waker_cpu(&mut measured, &all_cpus, &[])?;
    if waker_cpu.is_some() {
        cpus = Some(measured);
    }
    let cache = Cache::from_environment()?;
    let model = args.simulated.model(&cache, model)?;
    let open = OpenRun::new("wakeup", &args.results)?;
    // A load executes mostly user mode, which delays nobody.
    let has_load = args.condition() != Condition::Ambient;
    let default = if has_load { UserMode::Sampled } else { UserMode::Detailed };
    let user = args.user_mode.choose(model.as_ref(), default)?;
    let watch = Watch {
        transitions: true,
        reschedules: true,
        senders: args.senders,
        user,
        ..args.simulated.watch(model)
    };
    let stop = stop_on_signals()?;
    let mut prepared =
        Simulated::prepare(cache, &args.simulated.guest, vcpus, watch, stop, |machine| {
            let has_disk = args.stimulus == Stimulus::Disk || args.wake_by == WakeBy::Disk;
            add_disk(machine, has_disk, DISK)
        })?;
    prepared.guest.limits = limits(args);
    let machines = args.seeds.map_or(1, |seeds| seeds as usize);
    let jobs = args.simulated.jobs.choose(machines, prepared.guest.machine.memory_mib);
    let context = prepared.machine_facts()?.context(&open, args.settings());
    let mut bench = SimWakeup::new(SimWakeupSettings {
        request: WakeupRequest {
            cpus,
            period_ns: ns(args.period),
            duration_ns: ns(args.simulated_duration()),
            warm_up_ns: ns(args.warm_up()),
            policy: args.policy.word(),
            wait: args.wait.word().to_owned(),
            wake_by: args.wake_by,
            waker_cpu,
            aligned: args.aligned,
            condition: args.condition(),
            low_interval_ns: ns(args.low_interval),
            seed: args.seed,
            probed: false,
            has_hog: false,
        },
        seeds: args.seeds,
        jobs,
        flight_record_ns: args.flight_record_ns(),
        symbols: prepared.facts.symbols,
        keep: KeepDetours::new(args.keep_worst as usize, vcpus as usize, args.seed_or_first()),
        on_host: Map::from_iter([("out".to_owned(), json!(open.directory()))]),
        guest: prepared.guest,
    });
    if args.simulated.dry_run {
        return print_plan(open.format(), jobs.count, &bench.planned()?);
    }
    measure(args, &open, context, &mut bench, Redraw::EverySecond)
}

/// Refuses options that a simulated machine cannot measure.
fn check_simulated(args: &WakeupArgs, model: Option<&str>, vcpus: u32) -> Result<(), Usage> {
    let refused = |reason: String| Err(Usage(reason));
    if !args.command.is_empty() {
        return refused(
            "-- CMD works only with --on live: a guest runs only the threads".to_owned(),
        );
    }
    if !args.on_threshold.is_empty() || args.idle_exit_max.is_some() {
        return refused("--on-threshold and --idle-exit-max work only with --on live".to_owned());
    }
    args.simulated.guest.refuse_free_running()?;
    let wakeups = ns(args.simulated_duration()).div_ceil(ns(args.period).max(1));
    let wakeups_max = (RECORDS_MAX as u64).min(ALL_RECORDS_MAX / u64::from(vcpus.max(1)));
    if wakeups > wakeups_max {
        return refused(format!(
            "a window would have {wakeups} wake-ups of each CPU; the guest keeps all of them until the end, and has room for \
             {wakeups_max} (choose a shorter -d or a longer -p)"
        ));
    }
    if vcpus > 1 && args.policy.is_deadline() {
        return refused(
            "--policy deadline needs a machine with one CPU (without --vcpus): the kernel lets no thread of this class \
             stay on one CPU of several"
                .to_owned(),
        );
    }
    if vcpus > 1 && model.is_none() {
        return refused(format!(
            "--vcpus {vcpus}: without a model, virtual CPUs share one clock and disturb each other; name \
             a model (--on sim:r4400-1994)"
        ));
    }
    Ok(())
}

/// The time limits of the machine. Without `--guest-limit`, warm-up and window are added to the default limit.
fn limits(args: &WakeupArgs) -> Limits {
    let guest = &args.simulated.guest;
    let mut limits = guest.limits();
    if guest.guest_limit.is_none() {
        let measurement_s = (args.warm_up() + args.simulated_duration()).as_secs();
        let measurement_s = u32::try_from(measurement_s).unwrap_or(u32::MAX);
        limits.guest_s = limits.guest_s.saturating_add(measurement_s);
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_latencies_are_whole_microseconds() {
        assert_eq!(exit_latency("0us"), Ok(0));
        assert_eq!(exit_latency("2ms"), Ok(2_000));
        for nonsense in ["", "1.5", "1500ns", "2s", "-1us"] {
            assert!(exit_latency(nonsense).is_err(), "{nonsense}");
        }
    }
}
