//! `irqlab watch`: the present interrupts of this machine, in a terminal, for scripts, or for Prometheus.
//!
//! One thread reads the BPF maps once per interval. Everything else uses its last reading, so a slow terminal or a
//! scrape cannot disturb the measurement.

mod alert;
mod columns;
mod commands;
mod figure;
mod metrics;
mod screen;
mod server;
mod state;
mod throttled;
mod view;

use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lab::cpu_warnings::CpuWarnings;
use lab::experiment::Bench;
use lab::handlers::{DELAYS, HandlersBench, Rates, WindowSample};
use live::handlers::{LiveBench, LiveSettings, OpenWindow};
use live::host::{Root, host_facts, run_host_block};
use live::window::{Stop, WaitOutcome, WindowEnd, wait};
use record::{Absence, Run, SCHEMA, Table, Timestamp, keys};
use report::{Exposition, escape};
use serde_json::{Map, Value as Json, json};

use self::alert::{Alerts, Change, Rule};
use self::commands::Commands;
use self::metrics::{AlertCounts, Constants, SeriesOfContexts, Snapshot};
use self::server::{Page, Server};
use self::throttled::Throttled;
use crate::console;
use crate::options::{
    Format, OptionalResultArgs, Usage, duration, duration_between, ns, usable_cpus,
};
use crate::run::{DIFFERS, OpenRun, STOPPED, made_by, stop_on_signals, with_remedy_for_rights};

/// Time between two attempts where the kernel refuses a call.
const RETRY: Duration = Duration::from_millis(100);

/// Watch interrupts live: rate, CPU time and longest span of each
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab watch                                    a live view; press ? for its keys
  irqlab watch --once --json                      one interval, for a script
  irqlab watch --json | jq -c .tables.rates       a line of JSON for each interval, until Ctrl-C
  irqlab watch --listen                           also metrics at http://127.0.0.1:9464/metrics
  irqlab watch --listen --alert 'irq[name=eth0].rate > 50k for 2s' --run 'logger {context} {value}'
  irqlab watch --once -i 5s --alert 'any.cpu > 20%'   exit code 3 if a context takes more

Number of metrics' series, at most: 6, 1 for each CPU, 17 for each interrupt, softirq and vector, 2 for each NAPI
instance, 1 for each kind of page fault, and 2 for each rule of --alert; with --delays also 17 for each softirq, interrupt
thread, and function of a timer or work item. With --per-cpu, each context has these on each CPU.

Exit codes: 0 ended by q, Ctrl-C, SIGTERM or --duration; 1 failed; 2 the command line is wrong; 4 nothing
can be measured here; with --once also 5: events were lost; with --once or --duration also 3: an alert
has fired.")]
pub struct WatchArgs {
    /// CPUs to measure, as in 0-3,8 [default: all]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// How often to read the counters
    #[arg(short, long, allow_hyphen_values = true,
          value_parser = duration_between("100ms", "1h"), default_value = "1s", value_name = "TIME")]
    interval: Duration,
    /// End after this time [default: run until stopped]
    #[arg(short, long, allow_hyphen_values = true, value_parser = duration, value_name = "TIME",
          conflicts_with = "once")]
    duration: Option<Duration>,
    /// Print the first interval, and end
    #[arg(long)]
    once: bool,
    /// Serve metrics for Prometheus at this address; with port 0, the system chooses a free port. Works without
    /// a terminal, too [default address: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, conflicts_with = "once",
          default_missing_value = "127.0.0.1:9464")]
    listen: Option<SocketAddr>,
    /// Also how long softirqs, work items, threads of interrupts and timers wait for their run
    #[arg(long)]
    delays: bool,
    /// Metrics of each context on each CPU [default: over all CPUs]
    #[arg(long, requires = "listen")]
    per_cpu: bool,
    /// Say so when a figure of a context is beyond a limit: KIND.FIGURE > LIMIT, as in 'irq.rate > 50k for 2s'. KIND:
    /// irq, softirq, vector and others, or any. FIGURE: rate, cpu, mean, p99 or max. May be given several times
    #[arg(long, value_name = "RULE")]
    alert: Vec<Rule>,
    /// Execute this command, without a shell, when an alert fires; {context}, {value} and {rule} are replaced
    #[arg(long, value_name = "COMMAND", requires = "alert")]
    run: Option<String>,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// How the readings are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// Prints one interval as a run.
    Once,
    /// Prints each interval as a line of JSON.
    Lines,
    /// Draws them on the screen of a terminal.
    Screen,
    /// Only serves them as metrics, and applies the rules of alerts.
    Metrics,
}

impl WatchArgs {
    fn series(&self) -> SeriesOfContexts {
        if self.per_cpu { SeriesOfContexts::PerCpu } else { SeriesOfContexts::OverAllCpus }
    }

    /// How the readings are shown, by the options and by whether there is a terminal.
    ///
    /// Fails when the options do not fit together.
    fn output(&self) -> Result<Output, Usage> {
        let printing = &self.results.printing;
        let refuse = |reason: &str| Err(Usage(reason.to_owned()));
        match (self.once, printing.format()) {
            (true, _) => Ok(Output::Once),
            (false, Format::Csv | Format::Markdown) => {
                refuse("--format csv and --format markdown print one interval: add --once")
            }
            (false, _) if self.results.out.is_some() => {
                refuse("--out records one interval: add --once")
            }
            (false, Format::Json) => Ok(Output::Lines),
            // Messages of a command would tear the screen.
            (false, Format::Table) if screen::is_possible() && self.run.is_none() => {
                Ok(Output::Screen)
            }
            (false, Format::Table) if self.listen.is_some() || !self.alert.is_empty() => {
                Ok(Output::Metrics)
            }
            (false, Format::Table) => {
                refuse("there is no terminal to draw on: add --once, --json, --listen or --alert")
            }
        }
    }
}

/// Loads the probes, and shows their readings until the user stops.
pub fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let output = args.output()?;
    let cpus = usable_cpus(args.cpus.as_deref())?;
    let commands = args.run.as_deref().map(Commands::new).transpose()?;
    let open = OpenRun::if_asked(&args.results)?;
    // Binds before the seconds of calibration, so that the user sees an error early.
    let cannot_listen = || {
        let address = args.listen.map(|address| address.to_string());
        format!("cannot listen at {}", address.unwrap_or_default())
    };
    let listener = args.listen.map(TcpListener::bind).transpose().with_context(cannot_listen)?;
    let stop = stop_on_signals()?;
    console::say_more("calibrating the probes");
    let until = WindowEnd::Elapsed(args.interval);
    let settings =
        LiveSettings { delays: args.delays, ..LiveSettings::new(cpus, until, stop.clone()) };
    let bench = LiveBench::new(settings).map_err(with_remedy_for_rights)?;
    if stop.is_requested() {
        bail!(STOPPED);
    }
    let host = run_host_block(&host_facts(&Root::default()));
    let constants = constants(&bench, &host, args.series());
    let window = OpenWindow::open(bench)?;
    let first = Snapshot::new(None, args.series(), Arc::new(window.read()?));
    let last = Mutex::new(Arc::new(first));
    let alerts = Alerts::new(&args.alert);
    let counts = Mutex::new(Arc::new(AlertCounts::from_alerts(&alerts)));
    let published = Arc::new(Published { constants, last, counts });
    let page = Arc::clone(&published);
    let server = listener
        .map(|listener| Server::start(listener, page))
        .transpose()
        .with_context(cannot_listen)?;
    let until = args.duration.and_then(|length| Instant::now().checked_add(length));
    let is_drawn = output == Output::Screen;
    let alarms = RefCell::new(Alarms { alerts, commands, is_drawn });
    let watch =
        Watch { host, interval: args.interval, until, window, published, server, stop, alarms };
    watch.announce();
    let ended = match output {
        Output::Once => watch.print_once(&open),
        Output::Lines => watch.print_lines(),
        Output::Screen => screen::run(&watch),
        Output::Metrics => watch.serve_metrics(),
    }?;
    if watch.stop.is_requested()
        && let Some(commands) = &watch.alarms.borrow().commands
    {
        commands.stop();
    }
    // A service that a signal ends has not failed because an alert fired once.
    let has_end = args.once || watch.is_over();
    let has_fired = watch.alarms.borrow().alerts.have_fired();
    let differs = ended == ExitCode::SUCCESS && has_end && has_fired;
    Ok(if differs { ExitCode::from(DIFFERS) } else { ended })
}

/// The facts that the metrics state and that do not change.
fn constants(bench: &LiveBench, host: &Map<String, Json>, series: SeriesOfContexts) -> Constants {
    let text = |value: Option<&Json>| value.and_then(Json::as_str).unwrap_or_default().to_owned();
    Constants {
        kernel: text(host.get(keys::KERNEL)),
        attachment: text(bench.facts().settings.get(keys::ATTACHMENT)),
        probe_overhead_ns: bench.probe_overhead().total_ns,
        series,
    }
}

/// The last reading, which scrapers get.
struct Published {
    constants: Constants,
    last: Mutex<Arc<Snapshot>>,
    /// State of the alerts at the end of the last interval.
    counts: Mutex<Arc<AlertCounts>>,
}

impl Published {
    fn publish(&self, reading: Arc<WindowSample>) {
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = Arc::clone(&last());
        // Only the reading thread publishes, so no other snapshot comes in between.
        let snapshot = Snapshot::new(Some(&before), self.constants.series, reading);
        *last() = Arc::new(snapshot);
    }
}

impl Page for Published {
    fn text(&self, format: Exposition) -> String {
        // Formats without the lock, so that the reading thread never waits for a scrape.
        let last = Arc::clone(&self.last.lock().unwrap_or_else(PoisonError::into_inner));
        let counts = Arc::clone(&self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        metrics::metrics(format, &self.constants, &last, &counts)
    }
}

/// The alerts, and what they start.
struct Alarms {
    alerts: Alerts,
    commands: Option<Commands>,
    /// Whether the screen shows the alerts. Otherwise they are messages.
    is_drawn: bool,
}

impl Alarms {
    /// Applies the rules to the rates of an interval: says what has changed, and starts commands.
    fn update(&mut self, rates: &Rates) {
        for change in self.alerts.update(rates) {
            let message = match &change {
                Change::Fired(breach) => {
                    let (context, value, rule) = (breach.context(), breach.value(), breach.rule());
                    if let Some(commands) = &mut self.commands {
                        commands.start(breach);
                    }
                    format!("alert: {context}: {value} ({rule})")
                }
                Change::Ended(breach) => {
                    format!("alert is over: {} ({})", breach.context(), breach.rule())
                }
            };
            if !self.is_drawn {
                console::say(&escape::plain(&message));
            }
        }
    }

    /// The alerts that fire, in words. Empty if none does.
    fn firing(&self) -> Vec<String> {
        let firing = self.alerts.breaches().filter(|breach| breach.is_firing);
        firing.map(|breach| format!("{}: {}", breach.context(), breach.value())).collect()
    }
}

/// The open window and its readers.
struct Watch {
    host: Map<String, Json>,
    interval: Duration,
    /// When `--duration` is over; `None` without it.
    until: Option<Instant>,
    // Declared before the window, so that the server ends before the measurement does.
    server: Option<Server>,
    published: Arc<Published>,
    window: OpenWindow,
    stop: Stop,
    alarms: RefCell<Alarms>,
}

impl Watch {
    /// The address at which metrics are served, or `None` without `--listen`.
    fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Prints the address of the metrics, with a warning if other machines can reach it.
    fn announce(&self) {
        let Some(address) = self.address() else { return };
        console::say(&format!("metrics: http://{address}/metrics"));
        if !address.ip().is_loopback() {
            console::say(
                "warning: anybody who can reach this address can read the metrics (names of devices, rates)",
            );
        }
    }

    /// Reads the maps, and publishes the reading if metrics are served.
    fn read(&self) -> anyhow::Result<Arc<WindowSample>> {
        let reading = Arc::new(self.window.read()?);
        if self.server.is_some() {
            self.published.publish(Arc::clone(&reading));
        }
        Ok(reading)
    }

    /// The rates between two readings. Applies the rules of the alerts to them.
    fn rates(&self, before: Option<&WindowSample>, reading: &WindowSample) -> Rates {
        let rates = Rates::between(before, reading, self.warm_overhead_ns());
        let mut alarms = self.alarms.borrow_mut();
        if !alarms.alerts.is_empty() {
            alarms.update(&rates);
            let counts = Arc::new(AlertCounts::from_alerts(&alarms.alerts));
            *self.published.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        }
        rates
    }

    /// The probe overhead within a span in warm caches.
    fn warm_overhead_ns(&self) -> u64 {
        self.window.bench().probe_overhead().in_span_ns
    }

    /// Whether the time of `--duration` is over.
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// Reads at the end of each interval, and calls `show` with the reading. Ends at a request to stop, after
    /// `--duration`, or when `show` returns `false`.
    fn each_interval(
        &self,
        mut show: impl FnMut(Arc<WindowSample>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<ExitCode> {
        let mut next = Instant::now();
        loop {
            next = (next + self.interval).max(Instant::now());
            let deadline = self.until.map_or(next, |until| until.min(next));
            if wait(Some(deadline), None, &self.stop) == WaitOutcome::Stopped {
                return Ok(ExitCode::SUCCESS);
            }
            if !show(self.read()?)? || self.is_over() {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    /// Reads at each interval, for the server and the alerts alone.
    fn serve_metrics(&self) -> anyhow::Result<ExitCode> {
        let mut before: Option<Arc<WindowSample>> = None;
        let has_rules = !self.alarms.borrow().alerts.is_empty();
        self.each_interval(|reading| {
            if has_rules {
                self.rates(before.as_deref(), &reading);
                before = Some(reading);
            }
            Ok(true)
        })
    }

    /// Prints the first interval as a run.
    fn print_once(&self, open: &OpenRun) -> anyhow::Result<ExitCode> {
        let deadline = Instant::now() + self.interval;
        let outcome = wait(Some(deadline), None, &self.stop);
        let reading = self.window.read()?;
        let rates = self.rates(None, &reading);
        let mut run = self.run(&rates, (None, &reading), open.started());
        run.complete = outcome == WaitOutcome::Completed && reading.has_all_cpus();
        if !run.complete && run.tables.iter().all(|table| table.rows().is_empty()) {
            bail!(STOPPED);
        }
        open.finish(&run, &[])
    }

    /// Prints each interval as a line of JSON.
    fn print_lines(&self) -> anyhow::Result<ExitCode> {
        let mut before: Option<Arc<WindowSample>> = None;
        let mut started = record::now();
        self.each_interval(|reading| {
            let ended = record::now();
            let rates = self.rates(before.as_deref(), &reading);
            let readings = (before.as_deref(), &*reading);
            let line = report::json_line(&self.run(&rates, readings, started));
            (before, started) = (Some(reading), ended);
            console::print_bytes(line.as_bytes())
        })
    }

    /// Table `alerts`, or `None` without rules.
    fn alert_table(&self) -> Option<Table> {
        let alarms = self.alarms.borrow();
        (!alarms.alerts.is_empty()).then(|| alarms.alerts.table())
    }

    /// Makes the run of an interval from the readings at its start and at its end. The first interval has no reading at
    /// its start. `started`: when the interval started.
    fn run(
        &self,
        rates: &Rates,
        (before, reading): (Option<&WindowSample>, &WindowSample),
        started: Timestamp,
    ) -> Run {
        let facts = self.window.bench().facts();
        let overhead = self.window.bench().probe_overhead();
        let mut settings = Map::new();
        settings.extend(made_by());
        settings.insert("interval_ns".into(), json!(ns(self.interval)));
        settings.extend(facts.settings);
        let throttled = Throttled::between(before, reading);
        settings.extend(throttled.iter().flat_map(Throttled::settings));
        let mut observer = facts.observer;
        for (key, value) in [
            ("probe_overhead_ns", json!(overhead.total_ns)),
            ("probe_overhead_in_span_ns", json!(overhead.in_span_ns)),
            ("cpu_share_ratio", json!(rates.probe_ratio)),
            ("process_cpu_ratio", json!(rates.process_ratio)),
            ("length_ns", json!(rates.length_ns)),
            ("events_lost", json!(rates.lost_count)),
        ] {
            observer.insert(key.to_owned(), value);
        }
        Run {
            schema: SCHEMA.to_owned(),
            experiment: "watch".to_owned(),
            bench: facts.bench,
            started_utc: started.to_string(),
            complete: reading.has_all_cpus(),
            host: self.host.clone(),
            settings,
            observer,
            warnings: facts
                .warnings
                .into_iter()
                .chain(hotplug_warnings(reading))
                .chain(throttled.and_then(|throttled| throttled.warning()))
                .collect(),
            absent: facts
                .absent
                .into_iter()
                .chain(reading.hotplug_absences())
                .map(in_table_rates)
                .collect(),
            tables: self
                .alert_table()
                .into_iter()
                .chain([rates.table()])
                .chain(rates.delay_table())
                .collect(),
        }
    }
}

/// Warnings about CPUs that went offline or came online since the start: a line for each of the two.
fn hotplug_warnings(reading: &WindowSample) -> Vec<String> {
    let mut warnings = CpuWarnings::default();
    reading.hotplug_warnings().into_iter().for_each(|warning| warnings.add("", warning));
    warnings.lines()
}

/// Attributes an absence of the bench to this verb's table, `rates`. Table `delays` has the bench's name.
fn in_table_rates(absence: Absence) -> Absence {
    if absence.table == DELAYS {
        return absence;
    }
    Absence { table: "rates".to_owned(), ..absence }
}
