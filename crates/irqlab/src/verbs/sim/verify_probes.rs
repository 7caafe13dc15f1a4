//! `irqlab sim verify-probes`: runs the live bench of `handlers` or of `wakeup` inside a simulated machine. Compares its
//! results with the exact results of the simulator, context by context; of `wakeup`, part by part of each wake-up.

mod wakeups;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::experiment::{Bench, BenchError, BenchFacts, missing_warning};
use lab::handlers::in_guest::HandlersRequest;
use lab::handlers::probe_check::{
    CheckedContext, CheckedDelays, CheckedSender, ProbeCost, probe_costs, probe_delays,
    probe_senders, probes,
};
use lab::handlers::{Condition, HandlersBench, Load, Rate, Stimulus};
use lab::wakeup::probe_check::ConditionCheck;
use record::{Absence, Run, SCHEMA, Table, Timestamp, keys};
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::handlers::{SimBench, SimSettings, Verified};
use sim::models::Model;
use sim::watch::Watch;

use crate::console::{ProgressLine, Redraw};
use crate::options::{On, ResultArgs, Usage, duration, duration_between, ns};
use crate::run::{OpenRun, STOPPED, made_by, stop_on_signals};
use crate::simulated::{
    FINISHED_WINDOWS_GUEST_LIMIT, FINISHED_WINDOWS_LIMIT, GuestArgs, JobsArgs, LevelArgs,
    Simulated, shell_line,
};

/// Conditions to verify, and the machine.
#[derive(Debug, clap::Args)]
#[command(mut_arg("limit", |arg| arg.help(FINISHED_WINDOWS_LIMIT)))]
#[command(mut_arg("guest_limit", |arg| arg.help(FINISHED_WINDOWS_GUEST_LIMIT)))]
#[command(after_help = "Examples:
  irqlab sim verify-probes --stimulus timer -d 300ms
  irqlab sim verify-probes --stimulus disk --disk nvme --rate low
  irqlab sim verify-probes --senders --vcpus 2 --stimulus ipi
  irqlab sim verify-probes --experiment wakeup --hog")]
pub struct VerifyArgs {
    /// Whose live bench to verify: handlers or wakeup
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Experiment::Handlers, hide_possible_values = true)]
    experiment: Experiment,
    /// Where the live bench runs: sim:MODEL
    #[arg(long, value_name = "BENCH", default_value = "sim:r4400-1994")]
    on: On,
    /// CPUs of the simulated machine, 1 to 16
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    vcpus: u32,
    /// idle, busy
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "idle")]
    load: Vec<Load>,
    /// low, high
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "high")]
    rate: Vec<Rate>,
    /// disk, net, timer, ipi, none [default: timer; for wakeup, none]
    #[arg(long, alias = "source", value_delimiter = ',', value_name = "LIST")]
    stimulus: Vec<Stimulus>,
    /// For wakeup: time between two due times of a thread; 10us to 10s [default: 1ms]
    #[arg(short, long, value_parser = duration_between("10us", "10s"), value_name = "TIME")]
    period: Option<Duration>,
    /// For wakeup: inject delays. A SCHED_FIFO thread of a higher priority takes each CPU for 100 to 500 us about every 5.5 ms
    #[arg(long)]
    hog: bool,
    /// For wakeup: inject delays. The simulated host withholds CPU 0 for 100 to 500 us about every 5.5 ms
    #[arg(long)]
    withhold: bool,
    /// How long to measure each condition, in guest time
    #[arg(short = 'd', long, value_parser = duration, default_value = "1s", value_name = "TIME")]
    duration: Duration,
    /// How long a condition runs before it is measured, in guest time
    #[arg(long, value_parser = duration, default_value = "200ms", value_name = "TIME")]
    warm_up: Duration,
    #[command(flatten)]
    level: LevelArgs,
    #[command(flatten)]
    jobs: JobsArgs,
    /// Also read cycles and instructions from the guest's performance counters
    #[arg(long)]
    events: bool,
    /// Also compare the senders of function calls and interrupts (table probe_senders)
    #[arg(long)]
    senders: bool,
    /// Also compare how long threads of interrupts and timers wait for their run (`handlers --delays`)
    #[arg(long)]
    delays: bool,
    #[command(flatten)]
    results: ResultArgs,
    /// Measure while this command runs in the guest's shell
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
    #[command(flatten, next_help_heading = "Simulated machine")]
    guest: GuestArgs,
}

/// The experiment whose live bench is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Experiment {
    Handlers,
    Wakeup,
}

impl Experiment {
    fn word(self) -> &'static str {
        match self {
            Experiment::Handlers => "handlers",
            Experiment::Wakeup => "wakeup",
        }
    }
}

impl VerifyArgs {
    fn conditions(&self) -> Vec<Condition> {
        let default = match self.experiment {
            Experiment::Handlers => &[Stimulus::Timer][..],
            Experiment::Wakeup => &[Stimulus::None],
        };
        if !self.command.is_empty() {
            return vec![Condition::Command];
        }
        let stimuli = if self.stimulus.is_empty() { default } else { &self.stimulus };
        Condition::combinations(&self.load, &self.rate, stimuli)
    }

    /// Refuses options that the experiment does not have.
    fn check(&self) -> Result<(), Usage> {
        let refused = |reason: &str| Err(Usage(reason.to_owned()));
        match self.experiment {
            Experiment::Handlers if self.period.is_some() || self.hog || self.withhold => {
                refused("--period, --hog and --withhold work only with --experiment wakeup")
            }
            Experiment::Wakeup if self.events => {
                refused("--events works only with --experiment handlers: wakeup reads no counters")
            }
            Experiment::Wakeup if self.senders || !self.command.is_empty() => {
                refused("--senders and a command work only with --experiment handlers")
            }
            _ if !self.command.is_empty() && !self.stimulus.is_empty() => {
                refused("--stimulus and a command cannot be combined: leave out one of them")
            }
            Experiment::Wakeup if self.delays => {
                refused("--delays works only with --experiment handlers")
            }
            Experiment::Handlers | Experiment::Wakeup => Ok(()),
        }
    }
}

/// The results of a condition, of the bench of `handlers` or of `wakeup`.
trait ConditionResult {
    fn warnings(&self) -> &[String];

    /// The probes' own costs, for the run's block `observer`.
    fn costs_json(&self) -> Json;

    /// Adds the rows of the tables.
    fn add_rows_to(self, all: &mut AllResults);
}

impl ConditionResult for Verified {
    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn costs_json(&self) -> Json {
        json!({
            "inside_ns": self.probed.in_span_ns,
            "added_ns": self.probed.total_ns,
            "lost": self.probed.lost,
        })
    }

    fn add_rows_to(self, all: &mut AllResults) {
        all.contexts.extend(self.sources);
        all.senders.extend(self.senders);
        all.delays.extend(self.delays);
        all.costs.extend(self.costs);
    }
}

/// The results of all conditions.
#[derive(Default)]
struct AllResults {
    contexts: Vec<CheckedContext>,
    senders: Vec<CheckedSender>,
    delays: Vec<CheckedDelays>,
    wakeups: Vec<ConditionCheck>,
    /// Rows of table `probe_costs`.
    costs: Vec<ProbeCost>,
    absent: Vec<Absence>,
    warnings: Vec<String>,
    /// The probes' own costs, for the run's block `observer`. Each condition with results has an entry.
    costs_by_condition: Map<String, Json>,
    /// Conditions that a request to stop or a limit left out or cut short.
    missing: Vec<String>,
    /// The first limit that was reached, with the condition that it cut short.
    time_limit: Option<String>,
}

impl AllResults {
    /// Adds the outcome of a condition. `None`: the user asked to stop before its end. A condition that this machine
    /// cannot measure becomes an absence.
    ///
    /// Fails with [`BenchError::Failed`] only.
    fn add<T: ConditionResult>(
        &mut self,
        label: String,
        outcome: Result<Option<T>, BenchError>,
    ) -> anyhow::Result<()> {
        match outcome {
            Ok(None) => self.missing.push(label),
            Ok(Some(verified)) => {
                let warnings = verified.warnings().iter().map(|text| format!("{label}: {text}"));
                self.warnings.extend(warnings);
                self.costs_by_condition.insert(label, verified.costs_json());
                verified.add_rows_to(self);
            }
            Err(BenchError::TimeLimit(reason)) => {
                self.time_limit.get_or_insert_with(|| format!("{label}: {reason}"));
                self.missing.push(label);
            }
            Err(BenchError::Failed(reason)) => bail!("{label}: {reason}"),
            Err(error) => self.absent.push(error.absence("probes", label)),
        }
        Ok(())
    }

    /// Whether a request to stop or a limit ended the run before any condition was measured.
    fn ended_before_results(&self) -> bool {
        !self.missing.is_empty() && self.costs_by_condition.is_empty()
    }

    fn is_complete(&self) -> bool {
        self.absent.is_empty() && self.missing.is_empty()
    }
}

/// Measures all conditions, prints and records the run.
pub fn run(cache: Cache, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    if args.experiment == Experiment::Wakeup {
        return wakeups::run(cache, args);
    }
    let open = OpenRun::new("verify-probes", &args.results)?;
    let (mut bench, host) = bench(cache, args)?;
    let conditions = args.conditions();
    let mut progress = ProgressLine::new(Redraw::EverySecond);
    let mut all = AllResults::default();
    bench.measure_ahead(&conditions);
    for (index, condition) in conditions.iter().enumerate() {
        let label = condition.label();
        progress.step(index + 1, conditions.len(), &label);
        // After a request to stop, no further machine starts. Conditions that were measured ahead are kept.
        let is_left_out = bench.stop_requested() && !bench.is_measured(*condition);
        all.add(label, if is_left_out { Ok(None) } else { bench.verify(*condition) })?;
    }
    drop(progress);
    if !all.missing.is_empty() {
        all.time_limit = all.time_limit.or_else(|| bench.limit_reached());
    }
    if all.ended_before_results() {
        match all.time_limit {
            Some(limit) => bail!(BenchError::TimeLimit(limit)),
            None => bail!(STOPPED),
        }
    }
    let mut tables = vec![probes(&all.contexts)];
    if args.senders {
        tables.push(probe_senders(&all.senders));
    }
    if args.delays {
        tables.push(probe_delays(&all.delays));
    }
    tables.push(probe_costs(&all.costs));
    open.finish(&assemble(args, open.started(), host, bench.facts(), all, tables), &[])
}

/// The model of `--on`, at a level that records every event.
fn model(cache: &Cache, args: &VerifyArgs) -> anyhow::Result<Option<Model>> {
    let name = args.on.simulated_model("the live bench to verify")?;
    let name = name
        .ok_or_else(|| Usage("--on sim has no clock to verify: use --on sim:MODEL".to_owned()))?;
    args.level.model_of_all_events(cache, Some(name))
}

/// Prepares the bench. Also returns the block `host` of the run.
fn bench(cache: Cache, args: &VerifyArgs) -> anyhow::Result<(SimBench, Map<String, Json>)> {
    args.guest.refuse_free_running()?;
    let model = model(&cache, args)?;
    let watch = Watch {
        spans: true,
        senders: args.senders,
        transitions: args.senders,
        delays: args.delays,
        ..args.level.watch(model)
    };
    let stop = stop_on_signals()?;
    let prepared = Simulated::prepare(cache, &args.guest, args.vcpus, watch, stop, |machine| {
        machine.pmu = args.events;
        Ok(())
    })?;
    let events: &[&str] = if args.events { &["cycles", "instructions"] } else { &[] };
    let host = prepared.host();
    let bench = SimBench::new(SimSettings {
        kernel: (prepared.facts.symbols.clone(), None),
        senders: args.senders,
        victims: None,
        trace_bytes_max: None,
        jobs: args.jobs.choose(args.conditions().len(), prepared.guest.machine.memory_mib),
        guest: prepared.guest,
        low_rate_warm_up_ns: ns(args.warm_up),
        request: HandlersRequest {
            condition: Condition::Ambient,
            warm_up_ns: ns(args.warm_up),
            warms_in_samples: false,
            duration_ns: ns(args.duration),
            command: (!args.command.is_empty()).then(|| shell_line(&args.command)),
            low_interval_ns: 50_000_000,
            housekeeping: Vec::new(),
            disk_file: None,
            probed: true,
            senders: args.senders,
            events: events.iter().map(|name| (*name).to_owned()).collect(),
            delays: args.delays,
        },
        events: vec!["none".to_owned()],
        on_host: Map::new(),
    });
    Ok((bench, host))
}

/// Makes the run from the results of all stimuli and rates.
fn assemble(
    args: &VerifyArgs,
    started: Timestamp,
    host: Map<String, Json>,
    facts: BenchFacts,
    all: AllResults,
    tables: Vec<Table>,
) -> Run {
    let mut settings = facts.settings;
    settings.extend(made_by());
    settings.insert("experiment".into(), json!(args.experiment.word()));
    settings.insert("duration_ns".into(), json!(args.duration.as_nanos() as u64));
    settings.insert("warm_up_ns".into(), json!(args.warm_up.as_nanos() as u64));
    let complete = all.is_complete();
    let mut observer = facts.observer;
    observer.insert("probes".into(), Json::Object(all.costs_by_condition));
    if let Some(limit) = &all.time_limit {
        settings.insert(keys::TIME_LIMIT.to_owned(), json!(limit));
    }
    let mut warnings: Vec<String> = missing_warning(&all.missing).into_iter().collect();
    warnings.extend(facts.warnings);
    warnings.extend(all.warnings);
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "verify-probes".to_owned(),
        bench: "sim".to_owned(),
        started_utc: started.to_string(),
        complete,
        host,
        settings,
        observer,
        warnings,
        absent: all.absent,
        tables,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_without_results_make_the_run_incomplete() {
        let mut all = AllResults::default();
        all.add::<Verified>("idle/high/timer".to_owned(), Ok(None)).unwrap();
        assert!(!all.is_complete() && all.ended_before_results());
        all.add("idle/low/timer".to_owned(), Ok(Some(Verified::default()))).unwrap();
        let limit = || BenchError::TimeLimit("1m is over".to_owned());
        all.add::<Verified>("idle/low/disk".to_owned(), Err(limit())).unwrap();
        all.add::<Verified>("idle/high/disk".to_owned(), Err(limit())).unwrap();
        assert!(!all.is_complete() && !all.ended_before_results());
        assert_eq!(all.missing, ["idle/high/timer", "idle/low/disk", "idle/high/disk"]);
        assert_eq!(all.time_limit.as_deref(), Some("idle/low/disk: 1m is over"));
        let failed = Err(BenchError::Failed("x".into()));
        assert!(all.add::<Verified>("idle/low/net".to_owned(), failed).is_err());
    }

    #[test]
    fn a_run_of_all_conditions_is_complete() {
        let mut all = AllResults::default();
        all.add("idle/high/timer".to_owned(), Ok(Some(Verified::default()))).unwrap();
        assert!(all.is_complete());
        let unavailable = BenchError::unavailable("no card");
        all.add::<Verified>("idle/high/net".to_owned(), Err(unavailable)).unwrap();
        assert!(!all.is_complete() && all.missing.is_empty());
    }
}
