//! `irqlab noise`: how much of each CPU does the system take, when, and who took it?
//!
//! Makes the plan of `lab::noise` from the options, and measures it on the live bench or in a simulated machine. The
//! file `noise_scale` has `noise scale`, which measures nothing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::builder::ArgPredicate;
use lab::experiment::RunContext;
use lab::noise::in_guest::{Inject, NoiseRequest, RECORDS_MAX, TIMERS_MAX};
use lab::noise::ledger::{LONGEST_DEFAULT, LONGEST_MAX};
use lab::noise::{Body, KeepDetours, Loop, NoiseBench, Plan};
use live::host::{HostFacts, Root, host_facts, run_host_block};
use live::marks::Senders;
use live::noise::{Length, LiveNoise, NoiseSettings};
use live::window::shell_status;
use record::{Run, keys};
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::boot::Limits;
use sim::noise::{SimNoise, SimNoiseSettings};
use sim::watch::{Detail, StopRule, Until, User, Watch};

use super::{noise_collective, noise_scale};
use crate::console::{self, Redraw};
use crate::dry_run::print_plan;
use crate::expected_time;
use crate::options::{
    Format, LIVE, On, ResultArgs, SIMULATED, Usage, any_duration, duration, duration_between,
    guest_cpus, help_with_exit_codes, measured_and_housekeeping_cpus, ns, unique,
};
use crate::output_file::{self, ForceArgs};
use crate::pictures::PictureArgs;
use crate::run::{DIFFERS, EVENTS_LOST, OpenRun, STATUS_LIMIT, stop_on_signals};
use crate::simulated::{Simulated, SimulatedArgs, UserMode, UserModeArgs, shell_line};
use crate::threshold::{Threshold, conclude};
use crate::until::{NEEDS_MODEL, UntilArg};

/// How much of each CPU does the system take, when, and who took it?
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = help_with_exit_codes(&[DIFFERS, EVENTS_LOST, STATUS_LIMIT], "Examples:
  irqlab noise                              1,000 quanta of 100 us, as in the paper, on every CPU
  irqlab noise -c 1 -d 60s --loop detour    a minute of one CPU's detours, with their causes
  irqlab noise --no-trace --body memory     without probes, with loops that use the memory
  irqlab noise -c 1 -d 1h --on-threshold 1ms:stop    until a detour takes 1 ms
  irqlab noise -c 1 -d 10s -- dd if=/dev/sda of=/dev/null     while a command runs
  irqlab noise scale --run RUN              what a run's detours do to a parallel job
  irqlab noise collective                   the same, measured: ranks that compute and meet at a barrier
  irqlab noise --on sim:r4400-1994          in a simulated machine: each cycle has its cause"))]
pub struct NoiseArgs {
    #[command(subcommand)]
    verb: Option<NoiseVerb>,
    /// Where to measure: live, sim or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// CPUs that run the loops, as in 0-3,8 [default: all CPUs that are not in -H]
    #[arg(short = 'c', long, alias = "loops-on", value_name = "LIST")]
    cpus: Option<String>,
    /// Loops to run: fwq (fixed work), ftq (fixed time), detour (each gap with its causes; the only one with
    /// --on-threshold and --flight-record)
    #[arg(
        long = "loop",
        value_delimiter = ',',
        default_value = "detour,fwq,ftq",
        default_value_ifs([
            ("on_threshold", ArgPredicate::IsPresent, "detour"),
            ("flight_record", ArgPredicate::IsPresent, "detour"),
        ]),
        value_name = "LIST"
    )]
    loops: Vec<Loop>,
    /// Work of the loops fwq and ftq: add, alu, load, branch, memory
    #[arg(long, default_value = "add", value_name = "BODY")]
    body: Body,
    /// Length of a quantum of work (fwq) or of time (ftq); 10us to 1s
    #[arg(long, allow_hyphen_values = true, value_parser = duration_between("10us", "1s"),
          default_value = "100us", value_name = "TIME")]
    quantum: Duration,
    /// Length of each loop in quanta [default: 1000, as in the paper]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000),
          conflicts_with = "duration", value_name = "N")]
    repetitions: Option<u64>,
    /// Length of each loop in time
    #[arg(short, long, allow_hyphen_values = true, value_parser = duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// How long each loop runs before irqlab measures it [default: 100ms; with a model 5ms, because a simulated
    /// processor's frequency never changes]
    #[arg(long, allow_hyphen_values = true, value_parser = duration, value_name = "TIME")]
    warm_up: Option<Duration>,
    /// Shortest gap that counts as a detour [default: 100ns, or longer if the clock needs it]
    #[arg(long, allow_hyphen_values = true, value_parser = duration_between("1ns", "10s"),
          value_name = "TIME")]
    threshold: Option<Duration>,
    /// Run the loops under SCHED_FIFO at this priority, 1 to 99. The loops never sleep, so the kernel takes
    /// their CPUs away for 50 ms of each second (kernel.sched_rt_runtime_us), and the run shows these gaps
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99), value_name = "PRIO")]
    fifo: Option<u32>,
    /// Seed that chooses which detours are recorded one by one if there are too many
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// How many of the longest detours of each CPU are kept with every part: 1 to 1000
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MAX as u64),
          default_value_t = LONGEST_DEFAULT as u64, value_name = "N")]
    keep_longest: u64,
    /// At a detour of TIME or longer, end the window, unless an ACTION is continue, and perform ACTION: stop (nothing more), run=COMMAND (without a
    /// shell; {cpu}, {latency_ns} and {cause} are replaced), signal=NAME,PID, trace (keep the flight record, of 5 s if --flight-record
    /// gives no other length), or continue (the window goes on, and such
    /// detours are counted). Several may be given; the exit code is 3
    #[arg(long, allow_hyphen_values = true, value_name = "TIME:ACTION", help_heading = LIVE)]
    on_threshold: Vec<Threshold>,
    /// Keep the kernel's events of the last TIME of each measured CPU, for table flight_record and export --format
    /// perfetto; 10ms to 1h, and at most 2,097,152 events
    #[arg(long, allow_hyphen_values = true, value_parser = duration_between("10ms", "1h"),
          conflicts_with = "no_trace", value_name = "TIME", help_heading = LIVE)]
    flight_record: Option<Duration>,
    /// CPUs for irqlab's own thread [default: those not measured]
    #[arg(short = 'H', long, value_name = "LIST", help_heading = LIVE)]
    housekeeping: Option<String>,
    /// Run without probes: detours then have no causes
    #[arg(long, help_heading = LIVE)]
    no_trace: bool,
    /// Name the task or interrupt on another CPU that sent an interrupt, its process and its reason. On live this needs Linux
    /// 6.4 or later, and the probes for it cost time on the CPUs that send to measured ones, and in each such interrupt
    #[arg(long, conflicts_with = "no_trace")]
    senders: bool,
    /// Run this command while the loops run, and end it after them: how much does it disturb other programs?
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
    #[command(flatten)]
    results: ResultArgs,
    /// Draw the length of each fwq repetition, coloured by cause, into this SVG file
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    picture: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Results")]
    force: ForceArgs,
    #[command(flatten)]
    pictures: PictureArgs,
    /// End each loop's window once contexts with nine tenths of the time of all interrupts, softirqs and exceptions are
    /// measured well: a 95 % interval of each mean of at most +-`5%`, or `200-spans` of each, but not before 20 ms; `end`:
    /// measure for the whole -d [default: with a model and -d 5%, but end with --fifo or --inject; else end. At --detail ooo
    /// by default, fwq and ftq end after 1,000 quanta and 100 ms instead of at 5%]
    #[arg(long, value_name = "WHEN", help_heading = SIMULATED)]
    until: Option<UntilArg>,
    /// Check the bench: set one timer, then two, up to TIMERS, and again, TIME apart, while the detour loop
    /// runs. Table `injected` says whether the loop found each of them
    #[arg(long, allow_hyphen_values = true, value_parser = inject, value_name = "TIMERS:TIME",
          help_heading = SIMULATED)]
    inject: Option<Inject>,
    #[command(flatten, next_help_heading = SIMULATED)]
    user_mode: UserModeArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    simulated: SimulatedArgs,
}

#[derive(Debug, clap::Subcommand)]
enum NoiseVerb {
    Collective(noise_collective::CollectiveArgs),
    Scale(noise_scale::ScaleArgs),
}

/// Default length of a loop in quanta, as in the paper.
const REPETITIONS: u64 = 1000;
/// The rule that ends a loop's window early, with a model.
const UNTIL: StopRule = StopRule::Interval { half_ppm: 50_000 };
/// At level `ooo`, the windows of `fwq` and `ftq` end by default after this number of quanta, but not before this time: 25 ticks of
/// a kernel with 250 ticks a second. A millisecond of these loops takes half a second of the host.
const QUANTA_WINDOW: (u64, Duration) = (REPETITIONS, Duration::from_millis(100));
/// The loops begin at most this long after the window opened and their warm-up, on the guest's clock, for each CPU of the
/// machine: threads start one after the other, and the detour loop measures its iteration.
const LOOPS_START_WITHIN_PER_CPU: Duration = Duration::from_millis(5);
/// How long each loop runs before irqlab measures it: a real processor needs this time to reach its frequency.
const WARM_UP: Duration = Duration::from_millis(100);
/// Like [`WARM_UP`], with a model, whose frequency never changes: caches and predictors learn a loop in this time.
const WARM_UP_WITH_MODEL: Duration = Duration::from_millis(5);

impl NoiseArgs {
    fn warm_up(&self) -> Duration {
        let default = match self.on {
            On::Sim(Some(_)) => WARM_UP_WITH_MODEL,
            On::Sim(None) | On::Live => WARM_UP,
        };
        self.warm_up.unwrap_or(default)
    }

    fn length(&self) -> Length {
        match self.duration {
            Some(time) => Length::Time(time),
            None => Length::Repetitions(self.repetitions.unwrap_or(REPETITIONS)),
        }
    }

    /// The rule that ends each window before its time. `None`: windows last their time. By default also with `--fifo`,
    /// because the kernel throttles the loops only once a second, and with `--inject`, whose timers are counted.
    fn until(&self) -> Option<StopRule> {
        if let Some(UntilArg(rule)) = self.until {
            return rule;
        }
        let is_rule_enough = self.fifo.is_none() && self.inject.is_none();
        (self.has_model() && self.duration.is_some() && is_rule_enough).then_some(UNTIL)
    }

    /// The longest window of the loops `fwq` and `ftq`, ns. `None`: they end like the loop `detour`. `detail`: that of the model;
    /// `None` without a model.
    fn quanta_window_ns_max(&self, detail: Option<Detail>) -> Option<u64> {
        let is_by_default = self.until.is_none() && self.until().is_some();
        let (quanta, time) = QUANTA_WINDOW;
        let window_ns = ns(self.quantum).saturating_mul(quanta).max(ns(time));
        (is_by_default && detail == Some(Detail::Ooo)).then_some(window_ns)
    }

    /// Whether a model decides how guest time advances: `--on sim:MODEL`.
    fn has_model(&self) -> bool {
        matches!(&self.on, On::Sim(Some(_)))
    }

    fn loops(&self) -> Vec<Loop> {
        unique(&self.loops)
    }

    /// The CPUs to measure, and the CPUs of `--housekeeping` for irqlab's own thread.
    fn cpus(&self, host: &HostFacts) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
        measured_and_housekeeping_cpus(self.cpus.as_deref(), self.housekeeping.as_deref(), host)
    }

    /// Checks `--until`, `--on-threshold` and `--flight-record`, and that the picture of `--picture` can be drawn and written.
    fn check(&self) -> anyhow::Result<()> {
        let only_detours = !self.on_threshold.is_empty() || self.flight_record.is_some();
        if only_detours && self.loops() != [Loop::Detour] {
            let reason = "--on-threshold and --flight-record are for detours: --loop detour";
            bail!(Usage(reason.to_owned()));
        }
        let counted = Threshold::lengths(&self.on_threshold).map(|lengths| lengths.counted_ns);
        if let Some(shortest_ns) = self.threshold.map(ns)
            && counted.is_some_and(|counted_ns| counted_ns < shortest_ns)
        {
            bail!(Usage(format!(
                "--on-threshold is shorter than --threshold, under which no gap is a detour; allowed: at least \
                 {shortest_ns}ns"
            )));
        }
        if self.until.is_some_and(|UntilArg(rule)| rule.is_some()) {
            if !self.has_model() {
                bail!(Usage(NEEDS_MODEL.to_owned()));
            }
            if self.duration.is_none() {
                bail!(Usage(
                    "--until ends a window before -d; add -d TIME, or give --until end".to_owned()
                ));
            }
        }
        let Some(file) = &self.picture else { return Ok(()) };
        if !self.loops.contains(&Loop::Fwq) {
            bail!(Usage("--picture draws the loop fwq; add fwq to --loop".to_owned()));
        }
        Ok(output_file::check(file, self.force)?)
    }

    /// Length of the flight record, ns. `None`: nothing is recorded.
    fn flight_record_ns(&self) -> Option<u64> {
        Threshold::flight_record_ns(&self.on_threshold, self.flight_record)
    }

    /// The options of the command, for the settings of the run.
    fn settings(&self) -> Map<String, Json> {
        let repetitions = match self.length() {
            Length::Repetitions(number) => Some(number),
            Length::Time(_) => None,
        };
        let loop_names: Vec<&str> = self.loops().iter().map(|kind| kind.word()).collect();
        let scheduler = match self.fifo {
            Some(priority) => format!("SCHED_FIFO {priority}"),
            None => "SCHED_OTHER".to_owned(),
        };
        let thresholds = Threshold::lengths(&self.on_threshold);
        let settings = [
            ("version", json!(crate::VERSION)),
            ("loops", json!(loop_names)),
            ("quantum_ns", json!(ns(self.quantum))),
            ("repetitions", json!(repetitions)),
            ("duration_ns", json!(self.duration.map(ns))),
            ("warm_up_ns", json!(ns(self.warm_up()))),
            ("until", json!(self.until().map(|enough| enough.to_string()))),
            (keys::SCHEDULER, json!(scheduler)),
            ("trace", json!(!self.no_trace)),
            ("senders", json!(self.senders)),
            ("seed", json!(self.seed)),
            ("keep_longest", json!(self.keep_longest)),
            ("on_threshold_ns", json!(thresholds.map(|thresholds| thresholds.counted_ns))),
            ("flight_record_ns", json!(self.flight_record_ns())),
            ("threshold_stop_ns", json!(thresholds.and_then(|thresholds| thresholds.stop_ns))),
            ("command", json!(self.command)),
        ];
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn keep(&self, cpus: usize) -> KeepDetours {
        KeepDetours::new(self.keep_longest as usize, cpus, self.seed)
    }

    fn plan(&self) -> Plan {
        Plan { loops: self.loops(), trace: !self.no_trace, seed: self.seed }
    }

    /// Makes the live bench. Fails if `--threshold` is shorter than the loop can resolve.
    fn live_bench(&self, host: &HostFacts) -> anyhow::Result<LiveNoise> {
        let (cpus, housekeeping) = self.cpus(host)?;
        let keep = self.keep(cpus.len());
        let bench = LiveNoise::new(NoiseSettings {
            cpus,
            housekeeping,
            body: self.body,
            quantum_ns: ns(self.quantum),
            length: self.length(),
            warm_up: self.warm_up(),
            threshold_ns: self.threshold.map(ns),
            fifo: self.fifo,
            trace: !self.no_trace,
            senders: if self.senders { Senders::Named } else { Senders::NotNamed },
            cache_bytes: host.last_level_cache_bytes(),
            keep,
            command: self.command.clone(),
            command_to_stderr: self.results.printing.format() != Format::Table,
            stop: stop_on_signals()?,
        })?;
        match bench.threshold_too_low() {
            Some(shortest_ns) => bail!(Usage(format!(
                "--threshold is shorter than an iteration of the loop on this clock; allowed: from \
                 {shortest_ns}ns"
            ))),
            None => Ok(bench),
        }
    }

    /// Length of the measurement of each loop, ns.
    fn window_ns(&self) -> u64 {
        match self.length() {
            Length::Repetitions(number) => number.saturating_mul(ns(self.quantum)),
            Length::Time(time) => ns(time),
        }
    }
}

pub fn run(args: &NoiseArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Some(NoiseVerb::Collective(args)) => return noise_collective::run(args),
        Some(NoiseVerb::Scale(args)) => return noise_scale::run(args),
        None => {}
    }
    args.check()?;
    match &args.on {
        On::Live => run_live(args),
        On::Sim(model) => run_simulated(args, model.as_deref()),
    }
}

/// Measures the plan, prints and records the run, and draws the picture.
fn measure(
    args: &NoiseArgs,
    open: &OpenRun,
    context: RunContext,
    bench: &mut (dyn NoiseBench + 'static),
) -> anyhow::Result<ExitCode> {
    // On live, all CPUs may run loops, and drawing a line every second would itself be noise.
    let redraw = if args.on == On::Live { Redraw::EachStep } else { Redraw::EverySecond };
    let measured =
        open.measure(&args.plan(), context, bench, redraw, |run, _| args.pictures.draw(run));
    let (exit, run) = measured?;
    if let Some(file) = &args.picture {
        draw(&run, file, args.force)?;
    }
    Ok(exit)
}

/// Writes the picture of the repetitions (`--picture`) to a file outside the run.
fn draw(run: &Run, file: &Path, force: ForceArgs) -> anyhow::Result<()> {
    let svg = report::repetitions_svg(run).context("cannot draw the picture")?;
    let svg = svg.context("cannot draw the picture: the run has no repetitions")?;
    output_file::write(file, svg.as_bytes(), force)
        .context("the run is recorded, its picture is not")
}

/// Measures on CPUs of this machine. Returns the status of the user's command if the command
/// ended too early with an error.
fn run_live(args: &NoiseArgs) -> anyhow::Result<ExitCode> {
    Threshold::check_traced(&args.on_threshold, args.no_trace)?;
    let thresholds = Threshold::watch(&args.on_threshold)?;
    let host = host_facts(&Root::default());
    // Refuses wrong CPUs before the run's directory is created.
    args.cpus(&host)?;
    let open = OpenRun::new("noise", &args.results)?;
    let context = open.context(run_host_block(&host), args.settings());
    let mut bench = args.live_bench(&host)?;
    bench.watch_for(thresholds);
    if let Some(length_ns) = args.flight_record_ns() {
        bench.record_flight(length_ns)?;
    }
    if let Some(time) = args.plan().expected_time(&bench) {
        let fewer = if time.windows > 1 { " (less with fewer --loop)" } else { "" };
        console::say(&format!("{}{fewer}", expected_time::text(&time, "loop")));
    }
    let mut exit = measure(args, &open, context, &mut bench)?;
    let mut ended_by_threshold = false;
    if let Some((over, ended_window)) = bench.over_threshold() {
        let event = format!("a detour on CPU {} took {} ns", over.cpu, over.length_ns);
        exit = conclude(&event, over, ended_window, exit);
        ended_by_threshold = ended_window;
    }
    let status = bench.end_command()?;
    match if ended_by_threshold { None } else { status } {
        None => Ok(exit),
        Some(status) => {
            console::warn(&format!("the command ended before the loops did ({status})"));
            let code = u8::try_from(shell_status(status)).unwrap_or(1);
            Ok(if code == 0 { exit } else { ExitCode::from(code) })
        }
    }
}

/// Measures in a simulated machine, or prints the plan with `--dry-run`.
fn run_simulated(args: &NoiseArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let vcpus = args.simulated.vcpus.unwrap_or(1);
    check_simulated(args, model, vcpus)?;
    let cpus = args.cpus.as_deref().map(|list| guest_cpus(list, vcpus)).transpose()?;
    let cache = Cache::from_environment()?;
    let model = args.simulated.model(&cache, model)?;
    let user = args.user_mode.choose(model.as_ref(), UserMode::Detailed)?;
    if user == User::Sampled && args.loops() != [Loop::Detour] {
        bail!(Usage(
            "--user-mode sampled estimates the time of user mode, and the drift of the estimate would look like noise of \
             the loops fwq and ftq; give --loop detour"
                .to_owned()
        ));
    }
    let open = OpenRun::new("noise", &args.results)?;
    let until = args.until().map(|rule| until(args, rule));
    let quanta_window_ns_max = args.quanta_window_ns_max(model.as_ref().map(|model| model.detail));
    let watch = Watch {
        transitions: true,
        reschedules: true,
        senders: args.senders,
        user,
        until,
        ..args.simulated.watch(model)
    };
    let guest = &args.simulated.guest;
    let stop = stop_on_signals()?;
    let mut prepared = Simulated::prepare(cache, guest, vcpus, watch, stop, |_| Ok(()))?;
    prepared.guest.limits = limits(args);
    let mut settings = args.settings();
    if let Some(rule) = until_of_quanta(args, quanta_window_ns_max) {
        settings.insert("until_of_quanta".to_owned(), json!(rule));
    }
    let context = prepared.machine_facts()?.context(&open, settings);
    let memory_mib = prepared.guest.machine.memory_mib;
    let jobs = args.simulated.jobs.choose_for_unequal(args.loops().len(), memory_mib);
    let mut bench = SimNoise::new(SimNoiseSettings {
        guest: prepared.guest,
        jobs,
        request: guest_request(args, cpus),
        keep: args.keep(vcpus as usize),
        on_host: Map::from_iter([("out".to_owned(), json!(open.directory()))]),
        tick_hz: prepared.facts.hz,
        symbols: prepared.facts.symbols,
        quanta_window_ns_max,
    });
    if args.simulated.dry_run {
        return print_plan(open.format(), jobs.count, &bench.planned()?);
    }
    measure(args, &open, context, &mut bench)
}

/// The end of the windows of `fwq` and `ftq`, in words for the notes of their tables. `None`: only their length ends them.
fn until_of_quanta(args: &NoiseArgs, quanta_window_ns_max: Option<u64>) -> Option<String> {
    let rule = args.until()?;
    Some(match quanta_window_ns_max {
        Some(max_ns) => format!("{} ms, whatever the interrupts", max_ns as f64 / 1e6),
        None => format!("{rule} of the interrupts' self times, which these columns do not show"),
    })
}

/// How the plugin ends the window of a loop early. The guest's window begins after the loop's warm-up. At the guest's time
/// limit, the window ends with the results so far, so its clock must not jump past the limit.
fn until(args: &NoiseArgs, rule: StopRule) -> Until {
    let vcpus = args.simulated.vcpus.unwrap_or(1);
    let warm_up = args.warm_up() + LOOPS_START_WITHIN_PER_CPU * vcpus;
    let window = warm_up + Duration::from_nanos(args.window_ns());
    let window = window.min(Duration::from_secs(limits(args).guest_s.into()));
    Until { enough: rule, window_ns: ns(window), warm_up_ns: ns(warm_up) }
}

/// Refuses options that a simulated machine cannot measure.
fn check_simulated(args: &NoiseArgs, model: Option<&str>, vcpus: u32) -> Result<(), Usage> {
    args.simulated.guest.refuse_free_running()?;
    let quanta = match args.length() {
        Length::Repetitions(number) => number,
        Length::Time(time) => ns(time) / ns(args.quantum).max(1),
    };
    if quanta > RECORDS_MAX as u64 {
        let reason = "the guest keeps all records until the end, and has room for";
        return Err(Usage(format!("the loops have {quanta} quanta; {reason} {RECORDS_MAX}")));
    }
    if vcpus > 1 && model.is_none() {
        return Err(Usage(format!(
            "--vcpus {vcpus}: without a model, virtual CPUs share one clock and disturb each other; name \
             a model (--on sim:r4400-1994)"
        )));
    }
    Ok(())
}

/// The time limits of each loop's machine. Without `--guest-limit`, warm-up and window are added to the default limit.
fn limits(args: &NoiseArgs) -> Limits {
    let guest = &args.simulated.guest;
    let mut limits = guest.limits();
    if guest.guest_limit.is_none() {
        let measurement_s = (args.warm_up() + Duration::from_nanos(args.window_ns())).as_secs();
        let measurement_s = u32::try_from(measurement_s).unwrap_or(u32::MAX);
        limits.guest_s = limits.guest_s.saturating_add(measurement_s);
    }
    limits
}

/// The request to the irqlab in the guest. Without `cpus`, the guest measures all its CPUs.
fn guest_request(args: &NoiseArgs, cpus: Option<Vec<u32>>) -> NoiseRequest {
    NoiseRequest {
        loops: args.loops(),
        cpus,
        body: args.body,
        quantum_ns: ns(args.quantum),
        repetitions: match args.length() {
            Length::Repetitions(number) => Some(number),
            Length::Time(_) => None,
        },
        duration_ns: args.window_ns(),
        warm_up_ns: ns(args.warm_up()),
        threshold_ns: args.threshold.map(ns),
        fifo: args.fifo,
        inject: args.inject,
        housekeeping_cpu: None,
        command: (!args.command.is_empty()).then(|| shell_line(&args.command)),
    }
}

/// Parses the value of `--inject`: `TIMERS:TIME`, as in `4:1.7ms`.
fn inject(text: &str) -> Result<Inject, String> {
    let allowed = || format!("allowed: TIMERS:TIME, as in 4:1.7ms; 1 to {TIMERS_MAX} timers");
    let (timers, distance) = text.split_once(':').ok_or_else(allowed)?;
    let timers = timers.parse().ok().filter(|timers| (1..=TIMERS_MAX).contains(timers));
    match (timers, ns(any_duration(distance)?)) {
        (Some(timers), every_ns @ 1..=10_000_000_000) => Ok(Inject { timers, every_ns }),
        _ => Err(allowed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_and_their_distance() {
        assert_eq!(inject("4:1ms"), Ok(Inject { timers: 4, every_ns: 1_000_000 }));
        for nonsense in ["", "4", "0:1ms", "65:1ms", "4:", "4:0ns", "x:1ms", "4:11s"] {
            assert!(inject(nonsense).is_err(), "{nonsense}");
        }
    }
}
