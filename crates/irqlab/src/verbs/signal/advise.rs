//! `irqlab signal advise`: which scheme to use, and the shell lines that set it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use lab::signal::region_table;
use live::nic::scheme::{Abilities, Equivalent, equivalent};
use record::{Absence, Column, Kind, Run, Table, TableDisplay, Value, read_run};
use serde_json::json;
use signalling::{
    Costs, Demand, RateRange, Scheme, SimulationError, Statistic, Times, Verdict, crossovers,
    curves, evaluate, judge, parse_time_ns, regions,
};

use super::costs::{self, CostArgs};
use super::model::{LoadArgs, Schemes, crossover_table, schemes, statistic, usage};
use super::rates::rate_range;
use super::{Computed, apply, fit, nic, run_of, titled};
use crate::console;
use crate::options::{Format, ResultArgs, Usage};
use crate::pictures::PictureArgs;
use crate::run::{NothingSet, OpenRun};

/// Default number of events in each simulation: 500 of them are above the 99th percentile.
const EVENTS: u64 = 50_000;
/// Periods to try first, ns. Then multiples of the best period by [`FINER`] are tried.
const PERIODS_NS: [u64; 8] =
    [10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000];
/// Factors on the best period, in percent.
const FINER: [u64; 4] = [125, 150, 175, 220];
/// Number of events in the coalescing schemes that are tried.
const COALESCED: u32 = 64;
/// Largest number of schemes between which crossovers are computed.
const CROSSING: usize = 8;

/// Find the scheme that keeps a latency bound and a CPU budget, and the shell lines that set it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab signal advise --interrupt-cost 4us --event-cost 500ns --rate 1k..200k --latency-bound 200us
  irqlab signal advise --fit measured.csv --rate 50k --latency-bound 1ms --cpu-budget 20% --nic eth0
  sudo irqlab signal advise --rate 50k --latency-bound 200us --nic eth0 --apply

Without --apply, no setting is changed: irqlab prints the lines to set the scheme, and the lines to undo it.

Exit codes: 0 done; 1 failed; 2 the command line is wrong; 4 no setting can be changed here.")]
pub struct AdviseArgs {
    #[command(flatten)]
    costs: CostArgs,
    /// Take the costs from a run of `signal fit`, or fit them to the measured rows of a CSV file or a run
    #[arg(
        long,
        conflicts_with_all = ["interrupt_cost", "tick_cost", "event_cost", "poll_cost", "yield_cost", "wake_latency", "fixed_latency"],
        value_name = "RUN|FILE",
        help_heading = "Costs"
    )]
    fit: Option<PathBuf>,
    /// Events per second that the scheme must handle, as in 1k..200k or 50k
    #[arg(long, value_parser = rate_range, value_name = "LO..HI")]
    rate: RateRange,
    /// Largest latency that is allowed
    #[arg(long, value_parser = parse_time_ns, value_name = "TIME")]
    latency_bound: Option<u64>,
    /// Figure of the latency for the bound: mean, p50, p99 or p99.9
    #[arg(long, value_parser = statistic, default_value = "p99", value_name = "FIGURE")]
    statistic: Statistic,
    /// Largest part of the CPU that signalling and handling may take, as in 20%
    #[arg(long, value_parser = per_cent, value_name = "PERCENT")]
    cpu_budget: Option<f64>,
    /// Schemes to choose from [default: interrupt, drain, spin, two hybrid schemes, and clocked, deferred and
    /// coalesced schemes with many periods]
    #[arg(long, value_parser = schemes, value_name = "LIST")]
    schemes: Option<Schemes>,
    /// Print the shell lines that make this network interface use the scheme, and the lines that undo it
    #[arg(long, value_name = "NAME")]
    nic: Option<String>,
    /// Set the best scheme on the interface, as root. It stays in force until irqlab signal undo or a reboot
    #[arg(long, requires = "nic")]
    apply: bool,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
}

fn per_cent(text: &str) -> Result<f64, String> {
    let wrong = || "allowed: above 0% and up to 100%, as in 20%".to_owned();
    let number = text.strip_suffix('%').ok_or_else(wrong)?.parse::<f64>().map_err(|_| wrong())?;
    if number > 0.0 && number <= 100.0 { Ok(number / 100.0) } else { Err(wrong()) }
}

/// Default schemes to choose from.
fn candidates(bound_ns: Option<u64>) -> Vec<Scheme> {
    let mut list = vec![
        Scheme::Interrupt,
        Scheme::Drain { budget: signalling::BUDGET_DEFAULT },
        Scheme::Spin,
        Scheme::Hybrid { threshold: 1, suspend_ns: 20_000 },
        Scheme::Hybrid { threshold: 8, suspend_ns: 20_000 },
    ];
    // The mean latency is half of the period, so periods up to twice the bound can keep it.
    let useful = |period_ns: &u64| bound_ns.is_none_or(|bound_ns| *period_ns <= 2 * bound_ns);
    for period_ns in PERIODS_NS.into_iter().filter(useful) {
        list.push(Scheme::Clocked { period_ns });
        list.push(Scheme::Deferred { delay_ns: period_ns });
        list.push(Scheme::Coalesced { count: COALESCED, delay_ns: period_ns });
    }
    list
}

/// The scheme with periods near its own; empty for a scheme without a period.
fn finer(scheme: Scheme) -> Vec<Scheme> {
    let with_period = |period_ns: u64| match scheme {
        Scheme::Clocked { .. } => Some(Scheme::Clocked { period_ns }),
        Scheme::Deferred { .. } => Some(Scheme::Deferred { delay_ns: period_ns }),
        Scheme::Coalesced { count, .. } => Some(Scheme::Coalesced { count, delay_ns: period_ns }),
        _ => None,
    };
    let own_ns = match scheme {
        Scheme::Clocked { period_ns: own_ns }
        | Scheme::Deferred { delay_ns: own_ns }
        | Scheme::Coalesced { delay_ns: own_ns, .. } => own_ns,
        _ => return Vec::new(),
    };
    FINER.iter().filter_map(|per_cent| with_period(own_ns * per_cent / 100)).collect()
}

/// Reads the costs from a run of `signal fit`, or fits them to measured rows.
fn fitted(path: &Path) -> anyhow::Result<Costs> {
    if path.is_dir() {
        let run = read_run(path)?;
        if run.table("costs").is_some() {
            return costs_of(&run);
        }
    }
    fit::fitted(path)
}

fn costs_of(run: &Run) -> anyhow::Result<Costs> {
    let table = run.table("costs");
    let value = |cost: &str| -> Option<u64> {
        let table = table?;
        let has_cost =
            |row: &&Vec<Value>| table.get(row, "cost") == Some(&Value::Text(cost.to_owned()));
        match table.get(table.rows().iter().find(has_cost)?, "value_ns")? {
            Value::Real(ns) if *ns >= 0.0 => Some(ns.round() as u64),
            _ => None,
        }
    };
    let needed = |cost: &str| {
        let missing =
            || Usage(format!("the run's table costs has no {cost} (give a run of signal fit)"));
        value(cost).ok_or_else(missing)
    };
    let costs = Costs {
        interrupt: Times::Constant(needed("interrupt")?),
        tick: value("tick").map(Times::Constant),
        event: Times::Constant(needed("event")?.max(1)),
        poll_ns: value("poll").unwrap_or(100).max(1),
        yield_ns: value("yield").unwrap_or(0),
        wake_ns: value("wake").unwrap_or(0),
        fixed_ns: value("fixed").unwrap_or(0),
    };
    costs.check().map_err(|error| Usage(error.to_string()))?;
    Ok(costs)
}

pub fn run(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    let interface = args.nic.as_deref().map(nic::interface).transpose()?;
    let abilities = interface.as_ref().map(Abilities::of);
    let costs = match &args.fit {
        Some(path) => fitted(path)?,
        None => args.costs.costs()?,
    };
    args.load.no_trace()?;
    let simulation =
        |scheme: Scheme, rate_hz: u64| args.load.simulation(&[], &costs, scheme, rate_hz, EVENTS);
    let list = args.schemes.as_ref().map(|schemes| schemes.0.clone());
    let mut list = list.unwrap_or_else(|| candidates(args.latency_bound));
    let mut computed = Computed::default();
    let is_chosen = args.schemes.is_none();
    if let Some(abilities) = &abilities {
        as_linux_does(&mut list, is_chosen, &mut computed);
        if is_chosen {
            computed.absent.extend(only_possible(&mut list, abilities, args.rate.low_hz));
        }
    }
    simulation(list[0], args.rate.low_hz).check().map_err(usage)?;
    let open = OpenRun::new("signal-advise", &args.results)?;
    // Closed forms give only the mean.
    let simulates_all = args.statistic != Statistic::Mean;
    let mut ask =
        |scheme: Scheme, rate_hz: u64| evaluate(&simulation(scheme, rate_hz), simulates_all);
    let demand = Demand {
        statistic: args.statistic,
        latency_bound_ns: args.latency_bound,
        cpu_budget_ratio: args.cpu_budget,
    };
    let mut all = curves(&list, args.rate, &mut ask).map_err(usage)?;
    let mut verdicts = judge(&all, &demand);
    if is_chosen && verdicts[0].keeps_all() {
        let mut finer = finer(verdicts[0].scheme);
        if abilities.is_some() {
            finer.iter_mut().for_each(|scheme| *scheme = in_linux(*scheme));
        }
        all.extend(curves(&finer, args.rate, &mut ask).map_err(usage)?);
        verdicts = judge(&all, &demand);
    }
    computed.settings = costs::settings(&costs);
    computed.settings.extend(args.load.settings(EVENTS));
    for (key, value) in [
        ("rate_low_hz", json!(args.rate.low_hz)),
        ("rate_high_hz", json!(args.rate.high_hz)),
        ("latency_bound_ns", json!(args.latency_bound)),
        ("statistic", json!(args.statistic.label())),
        ("cpu_budget_ratio", json!(args.cpu_budget)),
        ("nic", json!(args.nic)),
    ] {
        computed.settings.insert(key.to_owned(), value);
    }
    if !verdicts[0].keeps_all() {
        computed.warnings.push(format!(
            "no scheme keeps all requested limits; {} comes nearest (raise the bound or the budget, or \
             lower the costs)",
            verdicts[0].scheme
        ));
    }
    computed.tables.push(advice_table(&verdicts));
    if args.rate.low_hz < args.rate.high_hz {
        computed.tables.push(crossing(args, &verdicts, &simulation)?);
        computed.tables.push(region_table(&regions(&all, args.statistic), args.statistic));
    }
    let Some((interface, abilities)) = interface.zip(abilities) else {
        let run = run_of("signal-advise", &open, computed);
        return open.finish(&run, &args.pictures.draw(&run));
    };
    let (scheme, low_hz, name) =
        (verdicts[0].scheme, args.rate.low_hz, interface.name().to_owned());
    let read = |setting: live::nic::Setting| {
        setting.read(&interface).map_err(|error| format!("it cannot be read: {error}"))
    };
    let setting_lines = nic::lines(&name, &abilities, scheme, low_hz, args.load.has_quota(), &read);
    let mut applied = None;
    if args.apply {
        let is_kept = verdicts[0].keeps_all();
        let set = apply::apply(interface, scheme, &setting_lines, is_kept)?;
        let in_force = set.scheme(scheme);
        if in_force != scheme {
            let rounded = curves(&[in_force], args.rate, &mut ask).map_err(usage)?;
            check_rounded(&name, scheme, &judge(&rounded, &demand)[0])?;
        }
        applied = Some(set);
    }
    computed.warnings.extend(setting_lines.warnings);
    computed.absent.extend(setting_lines.absent);
    let lines = setting_lines.lines;
    if !lines.is_empty() {
        computed.tables.push(nic::table(&lines));
    }
    if let Some(applied) = &applied {
        computed.warnings.extend(applied.warnings());
        computed.tables.push(applied.table());
    }
    let scripts = if lines.is_empty() { Vec::new() } else { nic::scripts(&lines) };
    let run = run_of("signal-advise", &open, computed);
    let attachments = [scripts, args.pictures.draw(&run)].concat();
    let exit = open.finish(&run, &attachments)?;
    let is_for_people = args.results.printing.format() == Format::Table;
    match applied {
        // The run is recorded now. If irqlab had ended earlier, the settings would have been restored.
        Some(applied) => {
            let text = applied.text();
            applied.keep(scheme)?;
            if is_for_people {
                console::print(&text)?;
            }
        }
        None if is_for_people && !lines.is_empty() => console::print(&nic::text(&name, &lines))?,
        None => {}
    }
    Ok(exit)
}

/// Replaces each scheme by the scheme that Linux runs with its settings, because that one will be in force. If the
/// two differ, adds a warning, or an absence if `is_chosen`: the user named no schemes.
fn as_linux_does(list: &mut Vec<Scheme>, is_chosen: bool, computed: &mut Computed) {
    let mut judged: Vec<Scheme> = Vec::new();
    for scheme in list.drain(..) {
        let linux_scheme = equivalent(scheme);
        let what = format!("{} schemes", scheme.name());
        match &linux_scheme {
            Some(Equivalent { scheme: other, reason }) if !is_chosen => {
                computed.warnings.push(format!("{other} is judged instead of {scheme}: {reason}"))
            }
            Some(Equivalent { scheme: other, reason })
                if other.name() != scheme.name()
                    && computed.absent.iter().all(|absence| absence.what != what) =>
            {
                let reason = format!("{reason}, as {} does", other.name());
                computed.absent.push(Absence::new("advice", what, reason));
            }
            _ => {}
        }
        let scheme = linux_scheme.map_or(scheme, |equivalent| equivalent.scheme);
        if !judged.contains(&scheme) {
            judged.push(scheme);
        }
    }
    *list = judged;
}

/// The scheme that Linux runs with the settings of `scheme`.
fn in_linux(scheme: Scheme) -> Scheme {
    equivalent(scheme).map_or(scheme, |equivalent| equivalent.scheme)
}

/// Checks that a scheme still keeps all requested limits after a device rounded its values.
///
/// # Errors
/// [`NothingSet`] if it does not. The caller then drops the settings, which restores them.
fn check_rounded(name: &str, scheme: Scheme, verdict: &Verdict) -> anyhow::Result<()> {
    if verdict.keeps_all() {
        return Ok(());
    }
    let reason = format!(
        "{name} set {} instead of {scheme}, and that does not keep all requested limits",
        verdict.scheme
    );
    let remedy = Some("choose schemes that the device supports (--schemes)".to_owned());
    bail!(NothingSet { reason, remedy })
}

/// Removes the schemes that the interface cannot use. Returns an absence for each kind of removed scheme.
fn only_possible(list: &mut Vec<Scheme>, abilities: &Abilities, low_hz: u64) -> Vec<Absence> {
    let mut absent: Vec<Absence> = Vec::new();
    list.retain(|scheme| match abilities.required_settings(*scheme, Some(low_hz)) {
        Ok(_) => true,
        Err(impossible) => {
            let what = format!("{} schemes", scheme.name());
            if absent.iter().all(|absence| absence.what != what) {
                let absence = Absence::new("advice", what, impossible.reason);
                absent.push(absence.with_remedy(impossible.remedy));
            }
            false
        }
    });
    absent
}

/// The crossovers of CPU use between the best schemes of each kind. CPU use has more closed forms than quantiles have.
fn crossing<'a>(
    args: &AdviseArgs,
    verdicts: &[Verdict],
    simulation: &impl Fn(Scheme, u64) -> signalling::Simulation<'a>,
) -> anyhow::Result<Table> {
    let mut best: Vec<Scheme> = Vec::new();
    for Verdict { scheme, .. } in verdicts {
        let is_new = best.iter().all(|other| other.name() != scheme.name());
        if best.len() < CROSSING && (is_new || args.schemes.is_some()) {
            best.push(*scheme);
        }
    }
    let mut ask = |scheme, rate_hz| -> Result<_, SimulationError> {
        evaluate(&simulation(scheme, rate_hz), false)
    };
    let curves = curves(&best, args.rate, &mut ask).map_err(usage)?;
    Ok(crossover_table(&crossovers(&curves, &mut ask).map_err(usage)?))
}

fn advice_table(verdicts: &[Verdict]) -> Table {
    use Kind::{Bool, Real, Text, Uint};
    let column = Column::new;
    let columns = vec![
        column("rank", Uint, "1 is the scheme to use, if it keeps all limits.").priority(90),
        column("scheme", Text, "Scheme of signalling.").priority(100),
        column(
            "keeps_all",
            Bool,
            "Whether the scheme keeps up, within the latency bound and the CPU budget.",
        )
        .title("keeps all")
        .priority(99),
        column("cpu_max_ratio", Real, "Largest part of the CPU over the range of rates.")
            .title("cpu")
            .priority(98),
        column("cpu_low_ratio", Real, "Part of the CPU at the lowest rate.")
            .title("at the lowest rate")
            .priority(60),
        column("cpu_high_ratio", Real, "Part of the CPU at the highest rate.")
            .title("at the highest")
            .priority(60),
        column(
            "latency_max_ns",
            Real,
            "Largest latency over the range of rates, as the figure of the setting `statistic`.",
        )
        .title("latency")
        .priority(97),
        column("keeps_up", Bool, "Whether fewer than one event in 10,000 is lost at each rate.")
            .title("keeps up")
            .priority(70),
        column(
            "keeps_latency",
            Bool,
            "Whether the latency is within its bound; absent without a bound.",
        )
        .title("in bound")
        .priority(80),
        column(
            "keeps_cpu",
            Bool,
            "Whether the CPU use is within its budget; absent without a budget.",
        )
        .title("in budget")
        .priority(80),
        column(
            "drops_max_ratio",
            Real,
            "Largest part of the events that is lost; absent if no rate was simulated.",
        )
        .title("drops")
        .priority(50),
        column("method", Text, "closed-form, or simulation if any rate was simulated.")
            .priority(40),
    ];
    let display = TableDisplay {
        // If no scheme keeps all limits, the first comes only nearest.
        headline: if verdicts.first().is_some_and(Verdict::keeps_all) {
            "use {scheme}".to_owned()
        } else {
            String::new()
        },
        rows_max: Some(12),
        notes: vec![
            "rates {settings.rate_low_hz} to {settings.rate_high_hz}; figure of the latency: \
             {settings.statistic}"
                .to_owned(),
        ],
        ..titled("schemes, the best first")
    };
    let doc = "How each scheme does over the range of rates. The schemes that keep all limits are first, and \
               among them the one that uses least CPU.";
    let mut table = Table::new("advice", doc, columns).displayed(display);
    for (index, verdict) in verdicts.iter().enumerate() {
        table.push(vec![
            (index as u64 + 1).into(),
            verdict.scheme.to_string().into(),
            verdict.keeps_all().into(),
            verdict.cpu_max_ratio.into(),
            verdict.cpu_ends_ratio.0.into(),
            verdict.cpu_ends_ratio.1.into(),
            verdict.latency_max_ns.into(),
            verdict.keeps_up.into(),
            verdict.keeps_latency.into(),
            verdict.keeps_cpu.into(),
            verdict.drops_max_ratio.into(),
            verdict.method.label().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_in_per_cent() {
        assert_eq!(per_cent("20%"), Ok(0.2));
        for nonsense in ["", "20", "0%", "101%", "x%", "-5%", "nan%"] {
            assert!(per_cent(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_finer_period_is_tried_where_there_is_one() {
        let text: Vec<String> =
            finer("deferred:20us".parse().unwrap()).iter().map(ToString::to_string).collect();
        assert_eq!(text, ["deferred:25us", "deferred:30us", "deferred:35us", "deferred:44us"]);
        assert!(finer(Scheme::Spin).is_empty());
        assert!(candidates(None).len() > candidates(Some(10_000)).len());
    }

    /// A clocked scheme is no advice for a card: Linux has no clock and defers instead, with a higher latency.
    #[test]
    fn schemes_are_judged_as_linux_runs_them() {
        let schemes = Scheme::list("clocked:100us,deferred:100us,interrupt,hybrid:8,20us").unwrap();
        let judged = |is_chosen: bool| {
            let (mut list, mut computed) = (schemes.clone(), Computed::default());
            as_linux_does(&mut list, is_chosen, &mut computed);
            let text: Vec<String> = list.iter().map(ToString::to_string).collect();
            (text, computed)
        };
        let (list, computed) = judged(false);
        assert_eq!(list, ["deferred:100us", "drain", "hybrid:1,20us"]);
        assert_eq!(computed.warnings.len(), 3, "{:?}", computed.warnings);
        let says = "deferred:100us is judged instead of clocked:100us: Linux restarts the timer";
        assert!(computed.warnings[0].starts_with(says), "{:?}", computed.warnings);
        let (same, computed) = judged(true);
        let absent: Vec<&str> = computed.absent.iter().map(|absence| &*absence.what).collect();
        assert_eq!((same, absent), (list, vec!["clocked schemes", "interrupt schemes"]));
        assert!(computed.warnings.is_empty());
    }

    fn verdict(keeps_latency: bool) -> Verdict {
        Verdict {
            scheme: "coalesced:64,64us".parse().unwrap(),
            cpu_max_ratio: 0.1,
            cpu_ends_ratio: (0.1, 0.1),
            latency_max_ns: Some(1e5),
            drops_max_ratio: None,
            keeps_up: true,
            keeps_latency: Some(keeps_latency),
            keeps_cpu: None,
            method: signalling::Method::Simulation,
        }
    }

    #[test]
    fn a_scheme_that_a_device_rounded_out_of_its_bound_is_refused() {
        let scheme = "coalesced:200,51us".parse().unwrap();
        assert!(check_rounded("eth0", scheme, &verdict(true)).is_ok());
        let error = check_rounded("eth0", scheme, &verdict(false)).unwrap_err().to_string();
        assert!(
            error.contains("eth0 set coalesced:64,64us instead of coalesced:200,51us"),
            "{error}"
        );
    }

    #[test]
    fn a_scheme_that_does_not_keep_everything_is_not_recommended() {
        assert_eq!(advice_table(&[verdict(true)]).display.headline, "use {scheme}");
        assert_eq!(advice_table(&[verdict(false)]).display.headline, "");
    }

    #[test]
    fn tables_can_be_shown() {
        for table in [advice_table(&[]), nic::table(&[])] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
