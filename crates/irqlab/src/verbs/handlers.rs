//! `irqlab handlers`: what does each interrupt handler cost, and why?
//!
//! Makes the plan of `lab::handlers` from the options, and measures it on the live bench (BPF programs), or in a
//! simulated machine (the plugin's spans).

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use lab::experiment::RunContext;
use lab::handlers::in_guest::HandlersRequest;
use lab::handlers::{Condition, HandlersBench, Load, Plan, Rate, Stimulus, VictimsBy};
use lab::timeline;
use live::bpf::Flavour;
use live::handlers::{LiveBench, LiveSettings};
use live::host::{HostFacts, Root, diagnose, diagnosis, host_facts, run_host_block};
use live::irq_lines::boot_id;
use live::perf::PAPER_EVENTS;
use live::stimulus::StimulusSettings;
use live::window::WindowEnd;
use record::{Run, keys};
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::boot::Limits;
use sim::handlers::{SimBench, SimSettings};
use sim::watch::{StopRule, Until, User, Watch};

use crate::console::{self, Redraw};
use crate::dry_run::print_plan;
use crate::options::{
    Format, LIVE, On, ResultArgs, SIMULATED, Usage, duration, guest_cpus, help_with_exit_codes, ns,
    size_between, size_text, usable_cpus,
};
use crate::pictures::PictureArgs;
use crate::run::{EVENTS_LOST, OpenRun, STATUS_LIMIT, stop_on_signals};
use crate::simulated::{Simulated, SimulatedArgs, UserMode, UserModeArgs, add_disk, shell_line};
use crate::until::{NEEDS_MODEL, UntilArg};

/// The disk that the disk stimulus reads without `--disk`. Its latency makes reads wait, as on real hardware.
const DISK: &str = "virtio-blk,latency=100us";

/// How long a condition runs before its window opens.
const WARM_UP: Duration = Duration::from_millis(500);
/// Like [`WARM_UP`], with a model: its frequency is constant, and its caches are warm after some million instructions.
const WARM_UP_WITH_SLOW_MODEL: Duration = Duration::from_millis(50);
/// Like [`WARM_UP_WITH_SLOW_MODEL`], with a clock of at least [`FAST_CLOCK_HZ_MIN`].
const WARM_UP_WITH_FAST_MODEL: Duration = Duration::from_millis(20);
const FAST_CLOCK_HZ_MIN: u64 = 1_000_000_000;
/// Number of operations of a stimulus at the low rate in a warm-up with a model. The first two may miss in all caches.
const WARM_UP_OPERATIONS: u32 = 3;
/// Default rule that ends a window with a model before its time.
const UNTIL: StopRule = StopRule::Spans(200);

/// How to attach the probes: the value of `--attach`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Attach {
    /// The best way that the kernel supports
    Auto,
    /// Typed tracepoint programs, which need BTF
    #[value(name = "tp_btf")]
    TpBtf,
    /// Raw tracepoint programs, without BTF
    #[value(name = "raw_tp")]
    RawTp,
}

/// What victims and causes are summed by: the value of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// The name of the task
    Task,
    /// The control group of the task; names of containers where its path has them
    Cgroup,
}

impl From<By> for VictimsBy {
    fn from(by: By) -> VictimsBy {
        match by {
            By::Task => VictimsBy::Task,
            By::Cgroup => VictimsBy::Cgroup,
        }
    }
}

/// What does each interrupt handler cost, and why?
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[EVENTS_LOST, STATUS_LIMIT], "Examples:
  irqlab handlers -d 30s                                   measure the system as it is
  irqlab handlers --load idle,busy --rate low,high --stimulus disk,net
  irqlab handlers -- make -j2                              while a command runs
  irqlab handlers --by cgroup -d 10s                       who pays for interrupts, and who causes them
  irqlab handlers --trace 64MiB --out run -d 2s            single spans, for irqlab export run --format perfetto
  irqlab handlers --on sim:zen3 -d 100ms --stimulus timer  in a simulated machine"))]
pub struct HandlersArgs {
    /// Where to measure: live, sim or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// CPUs to measure, as in 0-3,8 [default: all]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// CPUs for irqlab's own processes, such as the sender of the net stimulus
    #[arg(short = 'H', long, value_name = "LIST")]
    housekeeping: Option<String>,
    /// How long to measure each condition; with PMU events, half of this time is without them
    #[arg(short, long, allow_hyphen_values = true, value_parser = duration, default_value = "10s",
          value_name = "TIME")]
    duration: Duration,
    /// How long each condition runs before irqlab measures it [default: 500ms; with a model 20ms, 50ms if its
    /// clock is slower than 1 GHz, or three times --low-interval at the low rate]
    #[arg(long, allow_hyphen_values = true, value_parser = duration, value_name = "TIME")]
    warm_up: Option<Duration>,
    /// Load on every measured CPU: idle, or busy (zlib compression) [default: idle]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    load: Vec<Load>,
    /// How often the stimulus interrupts: low, high [default: low,high]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    rate: Vec<Rate>,
    /// Stimuli that cause interrupts: disk, net, timer, ipi, none [default: none]
    #[arg(long, alias = "source", value_delimiter = ',', value_name = "LIST")]
    stimulus: Vec<Stimulus>,
    /// Time between two operations at the low rate
    #[arg(long, allow_hyphen_values = true, value_parser = duration, default_value = "50ms",
          value_name = "TIME")]
    low_interval: Duration,
    /// File or block device that the disk stimulus reads [default: a scratch file; on sim, the guest's first disk]
    #[arg(long, value_name = "FILE")]
    disk_file: Option<PathBuf>,
    /// PMU events to count, as perf list names them, or `none` [default: the events of the paper]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    events: Vec<String>,
    /// Also measure each function that timers, tasklets and work items call, as a row of its own; the self time of
    /// the vector or softirq around it then excludes it. On live it costs a pair of probes for each call
    #[arg(long)]
    callbacks: bool,
    /// Also measure delays until softirqs, work items, threads of interrupts and timers run: from the raise, the
    /// queueing, the interrupt, and the time when a timer is due. On live it costs a probe at each of these events
    #[arg(long)]
    delays: bool,
    /// Also measure who sends function calls and interrupts to other CPUs, from where in the kernel, and what the
    /// functions cost there. On live it costs a probe at each of these events
    #[arg(long)]
    senders: bool,
    /// Also split interrupt and softirq time by victim (the interrupted task or control group) and cause (the task or
    /// group that triggered it). On live it counts no PMU events, and costs time at each span, the probes of --senders,
    /// and for cgroup probes at completed requests and received packets
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,
    /// Also keep single spans, the tasks below them and the arrows from raise to run and from sender to target, for table
    /// timeline and export --format perfetto. SIZE (64KiB to 80MiB, at most 80MiB for all conditions) holds the latest
    /// events, 40 bytes each. Also measures --delays and --senders. On live it costs time at each span and task switch, and
    /// cannot be combined with --by
    #[arg(long, value_parser = size_between(timeline::BYTES_MIN, timeline::BYTES_MAX), value_name = "SIZE")]
    trace: Option<u64>,
    /// Also record the histograms' buckets
    #[arg(long)]
    histograms: bool,
    /// End each window once contexts with nine tenths of the time of all interrupts are measured well: `200-spans` of
    /// each, or a 95 % interval of each mean of at most +-`5%`, but not before 20 ms; `end`: measure for the whole -d
    /// [default: with a model and without a command 200-spans, else end]
    #[arg(long, value_name = "WHEN", help_heading = SIMULATED)]
    until: Option<UntilArg>,
    /// Also record which lines handlers and other kernel services miss in the model's caches, who evicted
    /// them, and what they belong to; needs a model, and simulates it with --detail ooo
    #[arg(long, help_heading = SIMULATED)]
    misses: bool,
    /// Other machine for the net stimulus, over a real NIC [default: a veth pair on this machine]
    #[arg(long, value_name = "HOST[:PORT]", help_heading = LIVE)]
    peer: Option<String>,
    /// How to attach the probes
    #[arg(long, value_enum, default_value_t = Attach::Auto, help_heading = LIVE)]
    attach: Attach,
    /// Measure while this command runs; on sim, the guest's shell runs it
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

impl HandlersArgs {
    /// The conditions to measure: all combinations of the options, the command, or the system as it is.
    ///
    /// Fails when both a command and options of conditions are given.
    fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let has_options =
            !(self.load.is_empty() && self.rate.is_empty() && self.stimulus.is_empty());
        match (has_options, self.command.is_empty()) {
            (true, false) => bail!(Usage(
                "--load, --rate and --stimulus cannot be combined with a command: leave out one or \
                 the other"
                    .to_owned()
            )),
            (false, true) => Ok(vec![Condition::Ambient]),
            (false, false) => Ok(vec![Condition::Command]),
            (true, true) => Ok(Condition::combinations(
                or_default(&self.load, &[Load::Idle]),
                or_default(&self.rate, Rate::ALL),
                or_default(&self.stimulus, &[Stimulus::None]),
            )),
        }
    }

    /// Refuses options that no condition uses, and values that a stimulus does not accept.
    fn check(&self) -> anyhow::Result<()> {
        for (flag, is_given, stimulus) in [
            ("--peer", self.peer.is_some(), Stimulus::Net),
            ("--disk-file", self.disk_file.is_some(), Stimulus::Disk),
        ] {
            if is_given && !self.stimulus.contains(&stimulus) {
                bail!(Usage(format!(
                    "{flag} is for the {stimulus} stimulus; add --stimulus {stimulus}"
                )));
            }
        }
        if self.until.is_some_and(|UntilArg(rule)| rule.is_some()) {
            if !self.has_model() {
                bail!(Usage(NEEDS_MODEL.to_owned()));
            }
            if !self.command.is_empty() {
                bail!(Usage(
                    "--until cannot be combined with a command, which ends its window".to_owned()
                ));
            }
        }
        if let Some(bytes) = self.trace {
            let conditions = self.conditions()?.len() as u64;
            if bytes.saturating_mul(conditions) > timeline::BYTES_MAX {
                bail!(Usage(format!(
                    "--trace {} for each of {conditions} conditions is more than {} in all: a run would have too many \
                     rows (take fewer conditions, or less memory for each)",
                    size_text(bytes),
                    size_text(timeline::BYTES_MAX)
                )));
            }
        }
        if self.callbacks && self.misses {
            let reason = "with --misses, services have the time of the functions in them";
            bail!(Usage(format!("--callbacks and --misses cannot be combined: {reason}")));
        }
        if self.events.iter().any(String::is_empty) {
            let allowed = "names as in perf list, or none";
            bail!(Usage(format!("--events has an empty name; allowed: {allowed}")));
        }
        let mut stimulus = StimulusSettings::new(Stimulus::Net, Rate::Low, vec![0]);
        stimulus.peer.clone_from(&self.peer);
        stimulus.low_interval = self.low_interval;
        stimulus.validate().map_err(|error| Usage(error.to_string()))?;
        Ok(())
    }

    /// The options of the command, for the settings of the run.
    fn settings(&self, warm_ups: WarmUps) -> Map<String, Json> {
        // The command determines the length of its window.
        let has_window_of_time = self.command.is_empty();
        let duration_ns = has_window_of_time.then(|| ns(self.duration));
        let trace = self.trace.map(|bytes| ("trace_bytes", json!(bytes)));
        let settings = [
            ("version", json!(crate::VERSION)),
            ("duration_ns", json!(duration_ns)),
            // A command has none: its window opens at once.
            ("warm_up_ns", json!(has_window_of_time.then(|| ns(warm_ups.usual)))),
            ("low_rate_warm_up_ns", json!(has_window_of_time.then(|| ns(warm_ups.at_low_rate)))),
            ("until", json!(self.until().map(|rule| rule.to_string()))),
            ("low_interval_ns", json!(ns(self.low_interval))),
            ("housekeeping", json!(self.housekeeping)),
            ("peer", json!(self.peer)),
            ("disk_file", json!(self.disk_file)),
            ("command", json!(self.command)),
            ("misses", json!(self.misses)),
            ("callbacks", json!(self.callbacks)),
            ("delays", json!(self.has_delays())),
            ("senders", json!(self.has_senders())),
            ("by", json!(self.by.map(|by| VictimsBy::from(by).label()))),
        ];
        let settings = settings.into_iter().chain(trace);
        settings.map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Whether delays are measured. The arrows of a timeline come from them.
    fn has_delays(&self) -> bool {
        self.delays || self.trace.is_some()
    }

    /// Whether senders are measured. The arrows of a timeline come from them.
    fn has_senders(&self) -> bool {
        self.senders || self.trace.is_some()
    }

    /// Whether a model decides how guest time advances: `--on sim:MODEL`.
    fn has_model(&self) -> bool {
        matches!(&self.on, On::Sim(Some(_)))
    }

    /// How long conditions run before their windows. `clock_hz`: the model's clock; `None` without a model.
    fn warm_ups(&self, clock_hz: Option<u64>) -> WarmUps {
        if let Some(time) = self.warm_up {
            return WarmUps { usual: time, at_low_rate: time };
        }
        let usual = match clock_hz {
            None => WARM_UP,
            Some(FAST_CLOCK_HZ_MIN..) => WARM_UP_WITH_FAST_MODEL,
            Some(_) => WARM_UP_WITH_SLOW_MODEL,
        };
        let operations = self.low_interval * WARM_UP_OPERATIONS;
        let at_low_rate = if clock_hz.is_some() { operations.max(usual) } else { usual };
        WarmUps { usual, at_low_rate }
    }

    /// The rule that ends each window before its time. `None`: windows last their whole time.
    fn until(&self) -> Option<StopRule> {
        match self.until {
            Some(UntilArg(rule)) => rule,
            None => (self.has_model() && self.command.is_empty()).then_some(UNTIL),
        }
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        Ok(Plan { conditions: self.conditions()?, histograms: self.histograms })
    }
}

/// How long conditions run before their windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WarmUps {
    /// At the high rate, and without a stimulus.
    usual: Duration,
    at_low_rate: Duration,
}

fn or_default<'a, T>(values: &'a [T], default: &'a [T]) -> &'a [T] {
    if values.is_empty() { default } else { values }
}

pub fn run(args: &HandlersArgs) -> anyhow::Result<ExitCode> {
    args.conditions()?;
    args.check()?;
    match &args.on {
        On::Live => run_live(args),
        On::Sim(model) => run_simulated(args, model.as_deref()),
    }
}

/// Measures the plan, prints and records the run.
fn measure(
    args: &HandlersArgs,
    open: &OpenRun,
    context: RunContext,
    bench: &mut (dyn HandlersBench + 'static),
) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    let measured =
        open.measure(&plan, context, bench, Redraw::EverySecond, |run, _| args.pictures.draw(run));
    let (exit, run) = measured?;
    say_how_the_command_ended(args, &run);
    Ok(exit)
}

/// Prints how long the command ran and how it ended. Its end closed the window, so `-d` had no effect.
fn say_how_the_command_ended(args: &HandlersArgs, run: &Run) {
    if args.command.is_empty() {
        return;
    }
    let Some(table) = run.table("conditions") else { return };
    let window = table.rows().iter().find_map(|row| match table.get(row, "window_ns") {
        Some(record::Value::Uint(ns)) => Some(Duration::from_nanos(*ns).as_secs_f64()),
        _ => None,
    });
    let status = run.settings[keys::CONDITIONS]["command"][keys::COMMAND_ENDED].as_str();
    if let (Some(seconds), Some(status)) = (window, status) {
        console::say(&format!("the command ended the window after {seconds:.1} s ({status})"));
    }
}

fn run_live(args: &HandlersArgs) -> anyhow::Result<ExitCode> {
    let host = host_facts(&Root::default());
    let settings = live_settings(args, &host)?;
    let open = OpenRun::new("handlers", &args.results)?;
    let mut context = open.context(run_host_block(&host), args.settings(args.warm_ups(None)));
    context.settings.insert("out".into(), json!(open.directory()));
    context.settings.insert(keys::BOOT_ID.into(), json!(boot_id(&Root::default())));
    console::say_more("calibrating the probes");
    let mut bench = LiveBench::new(settings)?;
    measure(args, &open, context, &mut bench)
}

/// The PMU events to count on this machine.
fn live_events(args: &HandlersArgs, host: &HostFacts) -> Vec<String> {
    if args.events.iter().any(|name| name == "none") {
        return Vec::new();
    }
    if !args.events.is_empty() {
        return args.events.clone();
    }
    // Linux 6.1 has no stack for programs that do both (bpf/victims.h).
    if args.by.is_some() {
        return Vec::new();
    }
    // The command would run several times to count events, so the user must ask for events.
    if !args.command.is_empty() && host.pmu.counts() == Some(true) {
        return Vec::new();
    }
    PAPER_EVENTS.map(str::to_owned).to_vec()
}

/// The settings of the live bench, from the options and the facts about this host.
fn live_settings(args: &HandlersArgs, host: &HostFacts) -> anyhow::Result<LiveSettings> {
    let cpus = usable_cpus(args.cpus.as_deref())?;
    let window_end = if args.command.is_empty() {
        WindowEnd::Elapsed(args.duration)
    } else {
        let to_stderr = args.results.printing.format() != Format::Table;
        WindowEnd::CommandEnds { words: args.command.clone(), to_stderr }
    };
    if args.by.is_some() && args.events.iter().any(|name| name != "none") {
        bail!(Usage(
            "--by and --events cannot be combined on live: measure one after the other".to_owned()
        ));
    }
    if args.by.is_some() && args.trace.is_some() {
        bail!(Usage(
            "--by and --trace cannot be combined on live: measure one after the other".to_owned()
        ));
    }
    let mut settings = LiveSettings::new(cpus, window_end, stop_on_signals()?);
    if let Some(list) = &args.housekeeping {
        settings.housekeeping = usable_cpus(Some(list))?;
    }
    settings.warm_up = args.warm_ups(None).usual;
    settings.events = live_events(args, host);
    settings.callbacks = args.callbacks;
    settings.delays = args.has_delays();
    settings.senders = args.has_senders();
    settings.trace_bytes_max = args.trace;
    settings.victims = args.by.map(VictimsBy::from);
    settings.peer.clone_from(&args.peer);
    settings.disk_file.clone_from(&args.disk_file);
    settings.low_interval = Some(args.low_interval);
    settings.flavour = match args.attach {
        Attach::Auto => None,
        Attach::TpBtf => Some(Flavour::Btf),
        Attach::RawTp => Some(Flavour::Raw),
    };
    let findings = diagnose(host);
    let pmu = findings.iter().find(|finding| finding.subject == diagnosis::PMU);
    settings.remedy_pmu = pmu.and_then(|finding| finding.unlock.clone());
    Ok(settings)
}

/// Measures in a simulated machine, or prints the plan with `--dry-run`.
fn run_simulated(args: &HandlersArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    args.simulated.guest.refuse_free_running()?;
    let vcpus = args.simulated.vcpus.unwrap_or(1);
    let housekeeping = housekeeping_cpus(args, vcpus)?;
    let cache = Cache::from_environment()?;
    let misses = args.misses;
    let model = if misses {
        Some(args.simulated.level.model_with_misses(&cache, model)?)
    } else {
        args.simulated.model(&cache, model)?
    };
    // Sampled execution does not show the causes of misses.
    let user_mode = if misses { UserMode::Detailed } else { UserMode::Sampled };
    let user = args.user_mode.choose(model.as_ref(), user_mode)?;
    if misses && user == User::Sampled {
        bail!(Usage("--misses and --user-mode sampled cannot be combined".to_owned()));
    }
    let clock_hz = model.as_ref().map(|model| model.model.clock_hz);
    let warm_ups = args.warm_ups(clock_hz);
    let request = HandlersRequest {
        warms_in_samples: user == User::Sampled,
        ..guest_request(args, warm_ups, housekeeping)
    };
    let limits = limits(args, warm_ups);
    let open = OpenRun::new("handlers", &args.results)?;
    let span_counts = !args.events.iter().any(|name| name == "none");
    // Misses are counted for each service, so services must be recorded, too.
    let services = misses;
    // At the guest's time limit, the window ends with the results so far. So its clock must not jump past the limit.
    let window = args.duration.min(Duration::from_secs(limits.guest_s.into()));
    let until =
        args.until().map(|rule| Until { enough: rule, window_ns: ns(window), warm_up_ns: 0 });
    let watch = Watch {
        spans: true,
        span_counts,
        services,
        misses,
        callbacks: args.callbacks,
        delays: args.has_delays(),
        senders: args.has_senders() || args.by.is_some(),
        groups: args.by == Some(By::Cgroup),
        requests: args.by.is_some(),
        transitions: args.by.is_some() || args.trace.is_some(),
        until,
        user,
        ..args.simulated.watch(model)
    };
    let stop = stop_on_signals()?;
    let guest = &args.simulated.guest;
    let mut prepared = Simulated::prepare(cache, guest, vcpus, watch, stop, |machine| {
        add_disk(machine, args.stimulus.contains(&Stimulus::Disk), DISK)
    })?;
    prepared.guest.limits = limits;
    let context = prepared.machine_facts()?.context(&open, args.settings(warm_ups));
    let conditions = args.conditions()?;
    let jobs = args.simulated.jobs.choose(conditions.len(), prepared.guest.machine.memory_mib);
    let mut bench = SimBench::new(SimSettings {
        guest: prepared.guest,
        jobs,
        request,
        low_rate_warm_up_ns: ns(warm_ups.at_low_rate),
        events: args.events.clone(),
        senders: args.has_senders(),
        victims: args.by.map(VictimsBy::from),
        trace_bytes_max: args.trace,
        kernel: (prepared.facts.symbols.clone(), prepared.facts.btf.clone()),
        on_host: Map::from_iter([("out".to_owned(), json!(open.directory()))]),
    });
    if args.simulated.dry_run {
        return print_plan(open.format(), jobs.count, &bench.planned(&conditions)?);
    }
    measure(args, &open, context, &mut bench)
}

/// The time limits of each machine. Without `--guest-limit`, warm-up and window are added to the default limit.
fn limits(args: &HandlersArgs, warm_ups: WarmUps) -> Limits {
    let guest = &args.simulated.guest;
    let mut limits = guest.limits();
    if guest.guest_limit.is_none() {
        let measurement_s = (warm_ups.at_low_rate + args.duration).as_secs();
        let measurement_s = u32::try_from(measurement_s).unwrap_or(u32::MAX);
        limits.guest_s = limits.guest_s.saturating_add(measurement_s);
    }
    limits
}

/// The guest's CPUs for irqlab's own processes. Refuses `--cpus` that leaves out CPUs of the machine.
fn housekeeping_cpus(args: &HandlersArgs, vcpus: u32) -> anyhow::Result<Vec<u32>> {
    if let Some(list) = &args.cpus
        && guest_cpus(list, vcpus)?.len() < vcpus as usize
    {
        bail!(Usage(format!(
            "--cpus {list}: on sim, all CPUs of the machine are measured; --vcpus N sets their number"
        )));
    }
    let housekeeping = args.housekeeping.as_deref().map(|list| guest_cpus(list, vcpus));
    Ok(housekeeping.transpose()?.unwrap_or_default())
}

/// The request to each guest. The bench sets its condition.
fn guest_request(
    args: &HandlersArgs,
    warm_ups: WarmUps,
    housekeeping: Vec<u32>,
) -> HandlersRequest {
    HandlersRequest {
        condition: Condition::Ambient,
        warm_up_ns: ns(warm_ups.usual),
        warms_in_samples: false,
        duration_ns: ns(args.duration),
        command: (!args.command.is_empty()).then(|| shell_line(&args.command)),
        low_interval_ns: ns(args.low_interval),
        housekeeping,
        disk_file: args.disk_file.clone(),
        probed: false,
        senders: false,
        events: Vec::new(),
        delays: false,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: HandlersArgs,
    }

    #[test]
    fn a_fast_model_is_warm_sooner_and_the_low_rate_needs_three_operations() {
        let warm_ups = |options: &str, clock_hz| {
            let line = format!("handlers {options}");
            let WarmUps { usual, at_low_rate } =
                Line::try_parse_from(line.split_whitespace()).unwrap().args.warm_ups(clock_hz);
            (usual.as_millis(), at_low_rate.as_millis())
        };
        assert_eq!(warm_ups("", None), (500, 500));
        assert_eq!(warm_ups("", Some(4_700_000_000)), (20, 150));
        assert_eq!(warm_ups("", Some(200_000_000)), (50, 150));
        assert_eq!(warm_ups("--low-interval 1ms", Some(1_000_000_000)), (20, 20));
        assert_eq!(warm_ups("--warm-up 7ms", Some(1_000_000_000)), (7, 7));
    }
}
