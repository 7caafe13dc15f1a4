//! `irqlab signal advise`: the scheme that keeps a latency bound and a CPU budget, and the shell lines that set it.
//!
//! `lab::signal` judges the schemes by closed forms and simulations. With `--nic`, each scheme is judged as Linux
//! runs it on the interface; `nic` makes the shell lines. With `--apply`, `apply` changes the settings.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use lab::signal::{
    AdvicePlan, Computed, FittedCosts, candidates, cost_settings, costs_of_run, setting_line_table,
    undecided_remedy,
};
use live::nic::scheme::{Abilities, Equivalent, equivalent};
use record::{Absence, keys, read_run};
use serde_json::json;
use signalling::{Decision, Demand, RateRange, Scheme, Statistic, Verdict, parse_time_ns};

use super::costs::CostArgs;
use super::model::{LoadArgs, Schemes, schemes, statistic, usage};
use super::rates::rate_range;
use super::{apply, fit, nic, run_of, with_leading_settings};
use crate::console;
use crate::options::{Format, ResultArgs, Usage};
use crate::pictures::PictureArgs;
use crate::run::{NothingSet, OpenRun};

/// Default number of events in each simulation: 500 of them are above the 99th percentile.
const EVENTS: u64 = 50_000;

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

/// Parses a percentage above 0 % and up to 100 %, as a ratio.
fn per_cent(text: &str) -> Result<f64, String> {
    let wrong = || "allowed: above 0% and up to 100%, as in 20%".to_owned();
    let number = text.strip_suffix('%').ok_or_else(wrong)?.parse::<f64>().map_err(|_| wrong())?;
    if number > 0.0 && number <= 100.0 { Ok(number / 100.0) } else { Err(wrong()) }
}

/// The costs of `--fit`: read from a run of `signal fit`, or fitted to measured rows.
fn fitted_costs(path: &Path) -> anyhow::Result<FittedCosts> {
    if path.is_dir() {
        let run = read_run(path)?;
        if run.table("costs").is_some() {
            return Ok(costs_of_run(&run).map_err(Usage)?);
        }
    }
    fit::fitted(path)
}

pub fn run(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    let interface = args.nic.as_deref().map(nic::interface).transpose()?;
    let abilities = interface.as_ref().map(Abilities::query);
    let FittedCosts { costs, ends: cost_ends, warnings: cost_warnings } = match &args.fit {
        Some(path) => fitted_costs(path)?,
        None => FittedCosts {
            costs: args.costs.costs()?,
            ends: Vec::new(),
            warnings: Vec::from_iter(args.costs.assumed()),
        },
    };
    args.load.no_trace()?;
    let simulation =
        |scheme: Scheme, rate_hz: u64| args.load.simulation(&[], &costs, scheme, rate_hz, EVENTS);
    let named = args.schemes.as_ref().map(|schemes| schemes.0.clone());
    let are_schemes_named = named.is_some();
    let mut candidate_schemes = named.unwrap_or_else(|| candidates(args.latency_bound));
    let mut computed = Computed::default();
    computed.warnings.extend(cost_warnings);
    if let Some(abilities) = &abilities {
        replace_by_linux_schemes(&mut candidate_schemes, are_schemes_named, &mut computed);
        if !are_schemes_named {
            let low_hz = args.rate.low_hz;
            computed.absent.extend(remove_impossible(&mut candidate_schemes, abilities, low_hz));
        }
    }
    // Refuses wrong values before the run's directory is created.
    simulation(candidate_schemes[0], args.rate.low_hz).check().map_err(usage)?;
    let open = OpenRun::new("signal-advise", &args.results)?;
    let plan = AdvicePlan {
        schemes: candidate_schemes,
        are_schemes_named,
        rate: args.rate,
        demand: Demand {
            statistic: args.statistic,
            latency_bound_ns: args.latency_bound,
            cpu_budget_ratio: args.cpu_budget,
        },
        simulation: &simulation,
        cost_ends: &cost_ends,
        in_force: if abilities.is_some() { &in_linux } else { &std::convert::identity::<Scheme> },
    };
    let advice = plan.advise().map_err(usage)?;
    let verdicts = &advice.verdicts;
    computed = with_leading_settings([cost_settings(&costs), args.load.settings(EVENTS)], computed);
    for (key, value) in [
        ("rate_low_hz", json!(args.rate.low_hz)),
        (keys::RATE_HIGH_HZ, json!(args.rate.high_hz)),
        (keys::LATENCY_BOUND_NS, json!(args.latency_bound)),
        ("statistic", json!(args.statistic.label())),
        ("cpu_budget_ratio", json!(args.cpu_budget)),
        ("nic", json!(args.nic)),
    ] {
        computed.settings.insert(key.to_owned(), value);
    }
    let reported = plan.report(&advice).map_err(usage)?;
    computed.warnings.extend(reported.warnings);
    computed.tables.extend(reported.tables);
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
        refuse_undecided(&verdicts[0], !cost_ends.is_empty())?;
        let is_kept = verdicts[0].keeps_all() == Decision::Yes;
        let set = apply::apply(interface, scheme, &setting_lines, is_kept)?;
        let in_force = set.scheme(scheme);
        if in_force != scheme {
            check_rounded(&name, scheme, &plan.verdict(in_force).map_err(usage)?)?;
        }
        applied = Some(set);
    }
    computed.warnings.extend(setting_lines.warnings);
    computed.absent.extend(setting_lines.absent);
    let lines = setting_lines.lines;
    if !lines.is_empty() {
        computed.tables.push(setting_line_table(&lines));
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
        // Keeps the settings only now that the run is recorded. An earlier end of irqlab restores them.
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

/// Replaces each scheme by the scheme that Linux runs with its settings, because that scheme will be in force. If the
/// two differ, tells the user: by a warning if the user named the schemes, else by an absence.
fn replace_by_linux_schemes(
    schemes: &mut Vec<Scheme>,
    are_schemes_named: bool,
    computed: &mut Computed,
) {
    let mut judged: Vec<Scheme> = Vec::new();
    for scheme in schemes.drain(..) {
        let linux_scheme = equivalent(scheme);
        let what = format!("{} schemes", scheme.name());
        match &linux_scheme {
            Some(Equivalent { scheme: other, reason }) if are_schemes_named => {
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
    *schemes = judged;
}

/// The scheme that Linux runs with the settings of `scheme`.
fn in_linux(scheme: Scheme) -> Scheme {
    equivalent(scheme).map_or(scheme, |equivalent| equivalent.scheme)
}

/// Fails with [`NothingSet`] if the model cannot tell whether the scheme keeps all requested limits. A scheme that breaks a
/// limit passes: the user may set it. `has_cost_intervals` chooses the remedy: more windows, or a fit.
fn refuse_undecided(verdict: &Verdict, has_cost_intervals: bool) -> anyhow::Result<()> {
    if verdict.keeps_all() != Decision::Undecided {
        return Ok(());
    }
    let reason = format!(
        "no scheme is known to keep all requested limits: the model does not decide the {} of {}",
        verdict.undecided_requirements().join(" and the "),
        verdict.scheme
    );
    let remedy = Some(undecided_remedy(has_cost_intervals).to_owned());
    bail!(NothingSet { reason, remedy })
}

/// Checks that a scheme still keeps all requested limits after a device rounded its values.
///
/// Fails with [`NothingSet`] if the rounded scheme does not, or if this is undecided. The caller then drops its
/// [`apply::Applied`], which restores the settings.
fn check_rounded(name: &str, scheme: Scheme, verdict: &Verdict) -> anyhow::Result<()> {
    let problem = match verdict.keeps_all() {
        Decision::Yes => return Ok(()),
        Decision::Undecided => "is not known to keep",
        Decision::No => "does not keep",
    };
    let reason = format!(
        "{name} set {} instead of {scheme}, and that {problem} all requested limits",
        verdict.scheme
    );
    let remedy = Some("choose schemes that the device supports (--schemes)".to_owned());
    bail!(NothingSet { reason, remedy })
}

/// Removes the schemes that the interface cannot run. Returns an absence for each kind of removed scheme.
fn remove_impossible(
    schemes: &mut Vec<Scheme>,
    abilities: &Abilities,
    low_hz: u64,
) -> Vec<Absence> {
    let mut absent: Vec<Absence> = Vec::new();
    schemes.retain(|scheme| match abilities.required_settings(*scheme, Some(low_hz)) {
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

    /// A clocked scheme is no advice for a card: Linux has no clock and defers instead, with a higher latency.
    #[test]
    fn schemes_are_judged_as_linux_runs_them() {
        let schemes = Scheme::list("clocked:100us,deferred:100us,interrupt,hybrid:8,20us").unwrap();
        let judged = |are_schemes_named: bool| {
            let (mut list, mut computed) = (schemes.clone(), Computed::default());
            replace_by_linux_schemes(&mut list, are_schemes_named, &mut computed);
            let text: Vec<String> = list.iter().map(ToString::to_string).collect();
            (text, computed)
        };
        let (list, computed) = judged(true);
        assert_eq!(list, ["deferred:100us", "drain", "hybrid:1,20us"]);
        assert_eq!(computed.warnings.len(), 3, "{:?}", computed.warnings);
        let says = "deferred:100us is judged instead of clocked:100us: Linux restarts the timer";
        assert!(computed.warnings[0].starts_with(says), "{:?}", computed.warnings);
        let (same, computed) = judged(false);
        let absent: Vec<&str> = computed.absent.iter().map(|absence| &*absence.what).collect();
        assert_eq!((same, absent), (list, vec!["clocked schemes", "interrupt schemes"]));
        assert!(computed.warnings.is_empty());
    }

    fn verdict(keeps_latency: Decision) -> Verdict {
        Verdict {
            scheme: "coalesced:64,64us".parse().unwrap(),
            cpu_max_ratio: 0.1,
            cpu_max_half_width_ratio: None,
            cpu_max_over_costs_ratio: None,
            cpu_ends_ratio: (0.1, 0.1),
            latency_max_ns: Some(1e5),
            latency_max_interval_ns: signalling::IntervalEnds::exact(1e5),
            drops_max_ratio: None,
            keeps_up: Decision::Yes,
            keeps_latency: Some(keeps_latency),
            keeps_cpu: None,
            method: signalling::Method::Simulation,
        }
    }

    #[test]
    fn a_scheme_that_a_device_rounded_out_of_its_bound_is_refused() {
        let scheme = "coalesced:200,51us".parse().unwrap();
        assert!(check_rounded("eth0", scheme, &verdict(Decision::Yes)).is_ok());
        let error = check_rounded("eth0", scheme, &verdict(Decision::No)).unwrap_err().to_string();
        assert!(
            error.contains("eth0 set coalesced:64,64us instead of coalesced:200,51us"),
            "{error}"
        );
    }

    /// `--apply` acts on no verdict that more events could turn around.
    #[test]
    fn an_undecided_scheme_is_not_set() {
        assert!(refuse_undecided(&verdict(Decision::Yes), false).is_ok());
        let undecided = verdict(Decision::Undecided);
        let error = refuse_undecided(&undecided, false).unwrap_err().to_string();
        assert!(error.contains("the latency bound of coalesced:64,64us"), "{error}");
        let scheme = "coalesced:200,51us".parse().unwrap();
        assert!(check_rounded("eth0", scheme, &undecided).is_err());
    }
}
