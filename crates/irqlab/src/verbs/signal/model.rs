//! `irqlab signal model`: what each scheme costs and delays at each rate, by closed forms or by
//! simulation.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::signal::region_table;
use record::{Absence, Column, Kind, Table, TableDisplay, Value};
use serde_json::json;
use signalling::{
    Answer, Application, Arrivals, Crossover, Kept, Method, Quantiles, RateRange, Scheme,
    Simulation, SimulationError, Statistic, crossovers, curves, curves_at, evaluate, kept,
    parse_time_ns, regions, simulate,
};

use super::costs::{self, CostArgs};
use super::rates::{Rates, rates};
use super::{Computed, run_of, titled};
use crate::options::{ResultArgs, Usage, help_with_exit_codes};
use crate::pictures::PictureArgs;
use crate::run::OpenRun;

/// Largest file of a trace.
const TRACE_BYTES_MAX: u64 = 256 << 20;
/// Events that a simulation may have: a minute or so.
const EVENTS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000;
/// Events of each simulation of `model`.
const EVENTS_DEFAULT: u64 = 200_000;
/// Steps of the rate in table `regions`.
const REGION_STEPS: u32 = 48;
/// Part of the simulated events before those that count.
const WARM_UP_PART: u64 = 20;

/// What interrupts, polling and a clock cost and delay, computed from the costs of each step
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes("Schemes:
  interrupt              an interrupt for each event
  drain, drain:BUDGET    an interrupt, then events are handled until there are none (NAPI)
  spin, yield            polling all the time; with a yield after each poll that finds nothing
  clocked:PERIOD         a periodic clock interrupt; also as a frequency, clocked:1khz
  deferred:TIME          the same, restarted after each handling (gro_flush_timeout)
  coalesced:COUNT,TIME   an interrupt after COUNT events, or TIME after the first (ethtool -C)
  hybrid:COUNT,TIME      interrupts; from COUNT events at once on polling, until TIME without events

Examples:
  irqlab signal model
  irqlab signal model --interrupt-cost 2us --event-cost 300ns --rates 10k..2M --latency-bound 100us
  irqlab signal model --schemes interrupt,clocked:1ms --application 20us,128 --quota 16 --rates 1k..50k
  irqlab signal model --arrivals bursty:1ms,9ms --ring 1024"))]
pub struct ModelArgs {
    /// Schemes to compare
    #[arg(
        long,
        value_parser = schemes,
        default_value = "interrupt,drain,spin,clocked:1ms,deferred:50us,coalesced:32,50us,hybrid:8,20us",
        value_name = "LIST"
    )]
    schemes: Schemes,
    /// Events per second, a list; A..B stands for A, 1, 2 and 5 of each decade, and B [default: 1k..1M]
    #[arg(long, value_parser = rates, value_name = "LIST")]
    rates: Option<Rates>,
    #[command(flatten)]
    costs: CostArgs,
    #[command(flatten)]
    load: LoadArgs,
    /// Simulate also where a closed form holds
    #[arg(long)]
    simulate: bool,
    /// Bound of the latency: table `bounds` has the rates at which each scheme keeps it
    #[arg(long, value_parser = parse_time_ns, value_name = "TIME")]
    latency_bound: Option<u64>,
    /// Figure of the latency that the bound is for: mean, p50, p99 or p99.9; with any but the
    /// mean, all is simulated
    #[arg(long, value_parser = statistic, default_value = "mean", value_name = "FIGURE")]
    statistic: Statistic,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
}

/// When events arrive, and which handler takes them.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Events")]
pub struct LoadArgs {
    /// When events come: poisson, periodic, bursty:ON,OFF (mean times), or trace:FILE (a time in ns on
    /// each line)
    #[arg(long, value_parser = arrival_kind, default_value = "poisson", value_name = "KIND")]
    arrivals: ArrivalKind,
    /// Slots of the ring in which events wait
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 24),
          value_name = "N")]
    ring: u32,
    /// Users' work always wants the CPU; time slice that it has next to a polling thread
    #[arg(long, value_parser = parse_time_ns, value_name = "TIME")]
    user_slice: Option<u64>,
    /// An application at user priority takes events from the handler: its CPU time for each, and the
    /// length of its queue
    #[arg(long, value_parser = application, value_name = "COST,QUEUE")]
    application: Option<Application>,
    /// Events after which the handler lets others have the CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    quota: Option<u32>,
    /// Events of each simulation [default: 200000 for model, 50000 for advise]
    #[arg(long, value_parser = clap::value_parser!(u64).range(EVENTS),
          value_name = "N")]
    events: Option<u64>,
    /// Chooses all that is random in simulations
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

/// Schemes of the command line.
#[derive(Clone, Debug)]
pub struct Schemes(pub Vec<Scheme>);

/// Most schemes of a list.
const SCHEMES_MAX: usize = 64;

/// A list of schemes.
pub fn schemes(text: &str) -> Result<Schemes, String> {
    let list = Scheme::list(text).map_err(|error| error.to_string())?;
    if list.len() > SCHEMES_MAX {
        return Err(format!("at most {SCHEMES_MAX} schemes"));
    }
    Ok(Schemes(crate::options::unique(&list)))
}

/// The figure of a latency.
pub fn statistic(text: &str) -> Result<Statistic, String> {
    let found = Statistic::ALL.iter().find(|(_, label)| *label == text);
    found
        .map(|(statistic, _)| *statistic)
        .ok_or_else(|| "allowed: mean, p50, p99, p99.9".to_owned())
}

/// `--arrivals`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ArrivalKind {
    Poisson,
    Periodic,
    Bursty { on_ns: u64, off_ns: u64 },
    Trace(String),
}

fn arrival_kind(text: &str) -> Result<ArrivalKind, String> {
    let wrong =
        || "allowed: poisson, periodic, bursty:ON,OFF as in bursty:1ms,9ms, trace:FILE".to_owned();
    match text.split_once(':').unwrap_or((text, "")) {
        ("poisson", "") => Ok(ArrivalKind::Poisson),
        ("periodic", "") => Ok(ArrivalKind::Periodic),
        ("bursty", times) => {
            let (on, off) = times.split_once(',').ok_or_else(wrong)?;
            Ok(ArrivalKind::Bursty { on_ns: parse_time_ns(on)?, off_ns: parse_time_ns(off)? })
        }
        ("trace", file) if !file.is_empty() => Ok(ArrivalKind::Trace(file.to_owned())),
        _ => Err(wrong()),
    }
}

fn application(text: &str) -> Result<Application, String> {
    let wrong = || "a cost and the length of the queue, as in 20us,128".to_owned();
    let (cost, queue) = text.split_once(',').ok_or_else(wrong)?;
    let event = costs::times(cost).map_err(|error| format!("{error:#}"))?;
    Ok(Application { event, queue: queue.parse().map_err(|_| wrong())? })
}

/// Times of a trace, ns: a whole number on each line; lines that start with # do not count.
fn read_trace(path: &Path) -> anyhow::Result<Vec<u64>> {
    let cannot = || format!("cannot read the trace {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    if file.metadata().with_context(cannot)?.len() > TRACE_BYTES_MAX {
        bail!(Usage(format!("{}: more than {TRACE_BYTES_MAX} bytes", cannot())));
    }
    let mut times = Vec::new();
    let lines = BufReader::new(file.take(TRACE_BYTES_MAX)).lines();
    for (at, line) in lines.enumerate() {
        let line = line.with_context(cannot)?;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || Usage(format!("{}: line {}: no time in whole ns", cannot(), at + 1));
        times.push(line.parse().map_err(|_| wrong())?);
    }
    Ok(times)
}

impl LoadArgs {
    /// The times of a trace; empty for other arrivals.
    ///
    /// # Errors
    /// When the file is none.
    pub fn trace(&self) -> anyhow::Result<Vec<u64>> {
        match &self.arrivals {
            ArrivalKind::Trace(file) => read_trace(Path::new(file)),
            _ => Ok(Vec::new()),
        }
    }

    /// Refuses a trace.
    ///
    /// # Errors
    /// When there is one.
    pub fn no_trace(&self) -> Result<(), Usage> {
        match self.arrivals {
            ArrivalKind::Trace(_) => {
                Err(Usage("--arrivals: a trace has one rate; use it with signal model".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the handler lets others have the CPU.
    pub fn has_quota(&self) -> bool {
        self.quota.is_some()
    }

    /// What to simulate for one scheme and rate: `events`, unless another number is asked for.
    pub fn simulation<'a>(
        &self,
        trace: &'a [u64],
        costs: &signalling::Costs,
        scheme: Scheme,
        rate_hz: u64,
        events: u64,
    ) -> Simulation<'a> {
        let events = self.events.unwrap_or(events);
        let arrivals = match self.arrivals {
            ArrivalKind::Poisson => Arrivals::Poisson,
            ArrivalKind::Periodic => Arrivals::Periodic,
            ArrivalKind::Bursty { on_ns, off_ns } => Arrivals::Bursty { on_ns, off_ns },
            ArrivalKind::Trace(_) => Arrivals::Trace(trace),
        };
        // All of a trace counts: it may be short, and start with what matters.
        let (events, warm_up) = match trace.len() as u64 {
            0 => (events, events / WARM_UP_PART),
            events => (events, 0),
        };
        Simulation {
            scheme,
            costs: costs.clone(),
            arrivals,
            rate_hz,
            ring: self.ring,
            user_slice_ns: self.user_slice,
            application: self.application.clone(),
            quota: self.quota,
            events,
            warm_up,
            seed: self.seed,
        }
    }

    /// As settings of a run.
    pub fn settings(&self, events: u64) -> serde_json::Map<String, serde_json::Value> {
        let arrivals = match &self.arrivals {
            ArrivalKind::Poisson => "poisson".to_owned(),
            ArrivalKind::Periodic => "periodic".to_owned(),
            ArrivalKind::Bursty { on_ns, off_ns } => format!("bursty:{on_ns}ns,{off_ns}ns"),
            ArrivalKind::Trace(file) => format!("trace:{file}"),
        };
        let application = self.application.as_ref();
        let pairs = [
            ("arrivals", json!(arrivals)),
            ("ring", json!(self.ring)),
            ("user_slice_ns", json!(self.user_slice)),
            ("application_event_mean_ns", json!(application.map(|one| one.event.mean_ns()))),
            ("application_queue", json!(application.map(|one| one.queue))),
            ("quota", json!(self.quota)),
            ("events", json!(self.events.unwrap_or(events))),
            ("seed", json!(self.seed)),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// A usage error of what cannot be simulated.
pub fn usage(error: SimulationError) -> anyhow::Error {
    Usage(error.to_string()).into()
}

/// Computes, prints and records.
pub fn run(args: &ModelArgs) -> anyhow::Result<ExitCode> {
    let costs = args.costs.costs()?;
    let trace = args.load.trace()?;
    let of_trace = match &args.load.arrivals {
        ArrivalKind::Trace(_) => Arrivals::Trace(&trace).trace_rate_hz(),
        _ => Ok(None),
    };
    let of_trace = of_trace.map_err(|error| usage(error.into()))?;
    let rates = match (of_trace, &args.rates) {
        (Some(_), Some(_)) => {
            bail!(Usage("--rates: a trace has its own rate; leave one out".to_owned()))
        }
        (Some(rate_hz), None) => vec![rate_hz],
        (None, Some(rates)) => rates.0.clone(),
        (None, None) => super::rates::rates("1k..1M").map_err(Usage)?.0,
    };
    // A closed form has the mean alone.
    let simulate =
        args.simulate || (args.latency_bound.is_some() && args.statistic != Statistic::Mean);
    let mut answer = |scheme: Scheme, rate_hz: u64| {
        evaluate(&args.load.simulation(&trace, &costs, scheme, rate_hz, EVENTS_DEFAULT), simulate)
    };
    let schemes = &args.schemes.0;
    // Wrong values are refused before a directory is made.
    for scheme in schemes {
        args.load
            .simulation(&trace, &costs, *scheme, rates[0], EVENTS_DEFAULT)
            .check()
            .map_err(usage)?;
    }
    let open = OpenRun::new("signal-model", &args.results)?;
    let mut rows = Vec::new();
    for &rate_hz in &rates {
        for &scheme in schemes {
            let simulation = args.load.simulation(&trace, &costs, scheme, rate_hz, EVENTS_DEFAULT);
            rows.push(Row::new(&simulation, answer(scheme, rate_hz).map_err(usage)?)?);
        }
    }
    let mut computed = Computed { settings: costs::settings(&costs), ..Computed::default() };
    computed.settings.extend(args.load.settings(EVENTS_DEFAULT));
    computed.settings.insert("simulate".into(), json!(simulate));
    computed.warnings = over_capacity(&rows);
    computed.tables.push(model_table(&rows));
    choices(args, &rates, &mut answer, &mut computed)?;
    let run = run_of("signal-model", &open, computed);
    open.finish(&run, &args.pictures.of(&run))
}

/// A row of the table `model`.
struct Row {
    scheme: Scheme,
    rate_hz: u64,
    answer: Answer,
    quantiles: Quantiles,
    quantiles_method: Method,
}

impl Row {
    /// The row of an answer, with quantiles by simulation where the form has none.
    fn new(simulation: &Simulation, answer: Answer) -> anyhow::Result<Row> {
        let mut quantiles = answer.prediction.latency;
        let mut quantiles_method = answer.method;
        if quantiles == Quantiles::default() && answer.method == Method::ClosedForm {
            quantiles = simulate(simulation).map_err(usage)?.prediction().latency;
            quantiles_method = Method::Simulation;
        }
        let Simulation { scheme, rate_hz, .. } = *simulation;
        Ok(Row { scheme, rate_hz, answer, quantiles, quantiles_method })
    }
}

/// What to know of the schemes that do not keep up: a sentence for each.
fn over_capacity(rows: &[Row]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut named = Vec::new();
    for row in rows.iter().filter(|row| row.answer.is_over_capacity) {
        if !named.contains(&row.scheme) {
            named.push(row.scheme);
            let Row { scheme, rate_hz, answer, .. } = row;
            let limit_hz = answer.prediction.capacity_hz;
            warnings.push(format!(
                "{scheme} keeps up with less than {limit_hz:.0} events/s: from {rate_hz} events/s on, its \
                 latency is that of the events which found a place in the ring, and grows with the ring"
            ));
        }
    }
    warnings
}

type Ask<'a> = dyn FnMut(Scheme, u64) -> Result<Answer, SimulationError> + 'a;

/// The tables of crossovers and of bounds.
fn choices(
    args: &ModelArgs,
    rates: &[u64],
    ask: &mut Ask,
    computed: &mut Computed,
) -> anyhow::Result<()> {
    let (Some(&low_hz), Some(&high_hz)) = (rates.first(), rates.last()) else { return Ok(()) };
    if low_hz == high_hz {
        computed.absent.push(Absence {
            table: "crossovers".to_owned(),
            what: "crossovers".to_owned(),
            reason: "there is one rate only".to_owned(),
            remedy: Some("--rates 1k..1M, without a trace".to_owned()),
        });
        return Ok(());
    }
    let curves = curves(&args.schemes.0, RateRange { low_hz, high_hz }, ask).map_err(usage)?;
    computed.tables.push(crossover_table(&crossovers(&curves, ask).map_err(usage)?));
    let steps = RateRange { low_hz, high_hz }.steps(REGION_STEPS);
    let fine = curves_at(&args.schemes.0, &steps, ask).map_err(usage)?;
    computed.tables.push(region_table(&regions(&fine, args.statistic), args.statistic));
    let Some(bound_ns) = args.latency_bound else { return Ok(()) };
    let ranges = kept(&curves, args.statistic, bound_ns, ask).map_err(usage)?;
    computed.settings.insert("latency_bound_ns".into(), json!(bound_ns));
    computed.settings.insert("statistic".into(), json!(args.statistic.label()));
    computed.tables.push(bound_table(&ranges));
    Ok(())
}

fn model_table(rows: &[Row]) -> Table {
    use Kind::{Bool, Real, Text, Uint};
    let column = Column::new;
    let columns = vec![
        column("rate_hz", Uint, "Events that come per second.").priority(100).key(),
        column("scheme", Text, "How the CPU learns of events.").priority(100).key(),
        column(
            "method",
            Text,
            "How the row was computed: closed-form, a formula; simulation, event by event.",
        )
        .priority(90),
        column(
            "cpu_ratio",
            Real,
            "Part of the CPU's time that signalling and handling take, with polls that find nothing.",
        )
        .title("cpu")
        .priority(99)
        .cost(),
        column("throughput_hz", Real, "Events done per second.").priority(60),
        column("interrupts_hz", Real, "Interrupts or clock ticks per second.").priority(70),
        column("events_per_interrupt", Real, "Events handled per interrupt or tick; absent without any.")
            .title("events/interrupt")
            .priority(65),
        column(
            "latency_mean_ns",
            Real,
            "Mean time from an event's arrival until it is done; over capacity, of those events that found \
             a place in the ring.",
        )
        .title("latency")
        .priority(98)
        .cost(),
        column(
            "latency_half_width_ns",
            Real,
            "Half the width of the mean's 95 % interval, of a simulation; absent for closed forms.",
        )
        .detail(),
        column("latency_p50_ns", Uint, "Median of that time; quantiles_method says how it was computed.")
        .title("p50")
        .priority(50),
        column("latency_p99_ns", Uint, "99th percentile of that time, likewise.").title("p99").priority(80),
        column("latency_p999_ns", Uint, "99.9th percentile of that time, likewise.")
            .title("p99.9")
            .priority(45),
        column("leftover_ratio", Real, "Part of the CPU's time that is left for other work.")
            .title("left")
            .priority(75),
        column(
            "drops_ratio",
            Real,
            "Part of the events that found ring or queue full; absent from closed forms, which are given \
             only where fewer than about one in a million would be.",
        )
        .title("drops")
        .priority(72),
        column(
            "quantiles_method",
            Text,
            "How the quantiles were computed; few closed forms are known, so mostly by simulation.",
        )
        .detail(),
        column("empty_polls_hz", Real, "Polls per second that found nothing.").detail(),
        column("capacity_hz", Real, "Events per second from which on the scheme keeps up no more.")
            .title("capacity")
            .priority(40),
        column("is_over_capacity", Bool, "Whether more events come than the scheme can handle.").detail(),
        column("no_form_reason", Text, "Why the row is no closed form; absent where it is one.").detail(),
    ];
    let display = TableDisplay {
        group_by: vec!["rate_hz".to_owned()],
        ..titled("what each scheme costs and delays")
    };
    let doc = "What a scheme of signalling costs and delays at a rate of events.";
    let mut table = Table::new("model", doc, columns).displayed(display);
    for Row { scheme, rate_hz, answer, quantiles, quantiles_method } in rows {
        let prediction = &answer.prediction;
        table.push(vec![
            (*rate_hz).into(),
            scheme.to_string().into(),
            answer.method.label().into(),
            prediction.utilisation_ratio.into(),
            prediction.throughput_hz.into(),
            prediction.interrupts_hz.into(),
            prediction.events_per_interrupt.into(),
            prediction.latency_mean_ns.into(),
            answer.latency_half_width_ns.into(),
            quantiles.p50_ns.into(),
            quantiles.p99_ns.into(),
            quantiles.p999_ns.into(),
            prediction.leftover_ratio.into(),
            prediction.drops_ratio.into(),
            quantiles_method.label().into(),
            prediction.empty_polls_hz.into(),
            prediction.capacity_hz.into(),
            answer.is_over_capacity.into(),
            answer.reason.clone().map_or(Value::Absent, Value::from),
        ]);
    }
    table
}

/// Table `crossovers`.
pub fn crossover_table(crossovers: &[Crossover]) -> Table {
    let column = Column::new;
    let columns = vec![
        column("rate_hz", Kind::Uint, "Rate at which both schemes take the same part of the CPU.")
            .priority(100),
        column("scheme_below", Kind::Text, "The scheme that takes less CPU at lower rates.")
            .title("cheaper below")
            .priority(99),
        column("scheme_above", Kind::Text, "The scheme that takes less CPU at higher rates.")
            .title("cheaper above")
            .priority(99),
        column("cpu_ratio", Kind::Real, "Part of the CPU that both take there.")
            .title("cpu")
            .priority(90),
        column("method", Kind::Text, "closed-form, or simulation where one of both was simulated."),
    ];
    let doc = "Rates at which the CPU use of two schemes crosses, below the capacity of both.";
    let mut table =
        Table::new("crossovers", doc, columns).displayed(titled("crossovers of CPU use"));
    for one in crossovers {
        table.push(vec![
            one.rate_hz.into(),
            one.below.to_string().into(),
            one.above.to_string().into(),
            one.cpu_ratio.into(),
            one.method.label().into(),
        ]);
    }
    table
}

fn bound_table(ranges: &[Kept]) -> Table {
    let column = Column::new;
    let columns = vec![
        column("scheme", Kind::Text, "How the CPU learns of events.").priority(100),
        column("rate_from_hz", Kind::Uint, "Lowest rate of a range in which the bound is kept.")
            .title("rate")
            .up_to("rate_to_hz")
            .priority(99),
        column("rate_to_hz", Kind::Uint, "Highest rate of that range.").detail(),
        column("method", Kind::Text, "closed-form, or simulation where any of it was simulated."),
    ];
    let title = "rates at which the latency's {settings.statistic} is within its bound";
    let doc = "Ranges of rates in which a scheme keeps the bound of the latency; a scheme without a row \
               keeps it at no rate.";
    let display = TableDisplay {
        notes: vec![format!("{title}: {{settings.latency_bound_ns}}")],
        ..titled("rates that keep the latency's bound")
    };
    let mut table = Table::new("bounds", doc, columns).displayed(display);
    for one in ranges {
        table.push(vec![
            one.scheme.to_string().into(),
            one.from_hz.into(),
            one.to_hz.into(),
            one.method.label().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_named() {
        assert_eq!(arrival_kind("poisson"), Ok(ArrivalKind::Poisson));
        assert_eq!(
            arrival_kind("bursty:1ms,9ms"),
            Ok(ArrivalKind::Bursty { on_ns: 1_000_000, off_ns: 9_000_000 })
        );
        assert_eq!(arrival_kind("trace:a:b"), Ok(ArrivalKind::Trace("a:b".to_owned())));
        for nonsense in ["", "poisson:1", "bursty", "bursty:1ms", "bursty:1,2", "trace:", "trace"] {
            assert!(arrival_kind(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn tables_can_be_shown() {
        let tables = [model_table(&[]), crossover_table(&[]), bound_table(&[])];
        for table in tables {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
