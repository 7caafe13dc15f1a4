//! Advice: the scheme that keeps a bound of the latency and a CPU budget with the least CPU use. The verb
//! `signal advise` makes an [`AdvicePlan`] from the command line. Nothing is measured: the crate `signalling` computes
//! the answers from given costs.

use record::{Columns, IntervalColumns, Table, TableDisplay, column};
use signalling::{
    Answer, Costs, Curve, Decision, Demand, RateRange, Scheme, Simulation, SimulationError,
    Statistic, Verdict, crossovers, curves, evaluate, evaluate_over_costs, judge, regions,
};

use super::computed::{Computed, titled};
use super::model::crossover_table;
use super::tables::region_table;

/// Periods to try first, ns. If the best scheme has a period, its multiples by [`NEAR_PERIODS_PERCENT`] are tried next.
const PERIODS_NS: [u64; 8] =
    [10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000];
/// Factors on the best period, percent.
const NEAR_PERIODS_PERCENT: [u64; 4] = [125, 150, 175, 220];
/// Number of events in the coalescing schemes to try.
const COALESCED_EVENTS: u32 = 64;
/// Maximum number of schemes between which crossovers are computed.
const CROSSOVER_SCHEMES_MAX: usize = 8;

/// The schemes, rates and limits of a piece of advice.
pub struct AdvicePlan<'a> {
    /// The schemes to choose from; at least one.
    pub schemes: Vec<Scheme>,
    /// Whether the user named the schemes. Otherwise, periods near the period of the best scheme are tried, too.
    pub are_schemes_named: bool,
    pub rate: RateRange,
    pub demand: Demand,
    /// Returns the events and the costs of a scheme at a rate, Hz.
    pub simulation: &'a dyn Fn(Scheme, u64) -> Simulation<'a>,
    /// All costs at the lower ends of their intervals, and all at the upper ends. Empty for exact costs.
    pub cost_ends: &'a [Costs],
    /// Returns the scheme that the interface runs if a scheme is requested, because drivers round. Without an
    /// interface, the requested scheme.
    pub in_force: &'a dyn Fn(Scheme) -> Scheme,
}

/// The result of [`AdvicePlan::advise`].
pub struct Advice {
    /// A verdict for each scheme, the best scheme first.
    pub verdicts: Vec<Verdict>,
    /// The answers that the verdicts are based on.
    curves: Vec<Curve>,
}

impl AdvicePlan<'_> {
    /// The answer for a scheme at a rate. Statistics other than the mean are simulated, because closed forms give only
    /// the mean of the latency. A simulation that does not decide the demand is repeated with more events.
    fn answer(&self, scheme: Scheme, rate_hz: u64) -> Result<Answer, SimulationError> {
        let simulates_all = self.demand.statistic != Statistic::Mean;
        let simulation = (self.simulation)(scheme, rate_hz);
        evaluate_over_costs(&simulation, self.cost_ends, simulates_all, &self.demand)
    }

    fn curves(&self, schemes: &[Scheme]) -> Result<Vec<Curve>, SimulationError> {
        curves(schemes, self.rate, &mut |scheme, rate_hz| self.answer(scheme, rate_hz))
    }

    /// Judges the schemes of the plan, and then schemes with periods near the best period.
    ///
    /// Fails if a value of a simulation is out of range.
    pub fn advise(&self) -> Result<Advice, SimulationError> {
        let mut curves = self.curves(&self.schemes)?;
        let mut verdicts = judge(&curves, &self.demand);
        if !self.are_schemes_named && verdicts[0].keeps_all() == Decision::Yes {
            let near_schemes = schemes_with_near_periods(verdicts[0].scheme);
            let in_force: Vec<Scheme> = near_schemes.into_iter().map(self.in_force).collect();
            curves.extend(self.curves(&in_force)?);
            verdicts = judge(&curves, &self.demand);
        }
        Ok(Advice { verdicts, curves })
    }

    /// Judges one scheme alone.
    ///
    /// Fails if a value of a simulation is out of range.
    pub fn verdict(&self, scheme: Scheme) -> Result<Verdict, SimulationError> {
        Ok(judge(&self.curves(&[scheme])?, &self.demand).swap_remove(0))
    }

    /// Makes the tables `advice`, `crossovers` and `regions`.
    ///
    /// Fails if a value of a simulation is out of range.
    pub fn report(&self, advice: &Advice) -> Result<Computed, SimulationError> {
        let Advice { verdicts, curves } = advice;
        let mut computed = Computed::default();
        computed.warnings.extend(verdict_warning(verdicts, !self.cost_ends.is_empty()));
        computed.tables.push(advice_table(verdicts));
        if self.rate.low_hz < self.rate.high_hz {
            computed.tables.push(self.crossovers(verdicts)?);
            let statistic = self.demand.statistic;
            computed.tables.push(region_table(&regions(curves, statistic), statistic));
        }
        Ok(computed)
    }

    /// Table `crossovers` of the best schemes: the best of each kind, or all schemes that the user named. Only CPU use
    /// matters, so closed forms are allowed even if the demand limits a quantile.
    fn crossovers(&self, verdicts: &[Verdict]) -> Result<Table, SimulationError> {
        let mut best: Vec<Scheme> = Vec::new();
        for Verdict { scheme, .. } in verdicts {
            let is_new = best.iter().all(|known| known.name() != scheme.name());
            if best.len() < CROSSOVER_SCHEMES_MAX && (is_new || self.are_schemes_named) {
                best.push(*scheme);
            }
        }
        let mut ask = |scheme, rate_hz| evaluate(&(self.simulation)(scheme, rate_hz), false);
        let curves = curves(&best, self.rate, &mut ask)?;
        Ok(crossover_table(&crossovers(&curves, &mut ask)?))
    }
}

/// The remedy for an undecided limit. `has_cost_intervals`: fitted costs have intervals.
#[must_use]
pub fn undecided_remedy(has_cost_intervals: bool) -> &'static str {
    if has_cost_intervals {
        "fit the costs to more rows, simulate more events (--events), or change the limit"
    } else {
        "simulate more events (--events), or change the limit"
    }
}

/// A warning if no scheme is known to keep all limits, or if a cheaper scheme than the best may keep them. `None` if
/// the best scheme is known to keep all limits and no cheaper one may, and without schemes.
fn verdict_warning(verdicts: &[Verdict], has_cost_intervals: bool) -> Option<String> {
    let remedy = undecided_remedy(has_cost_intervals);
    let best = verdicts.first()?;
    let scheme = best.scheme;
    match best.keeps_all() {
        Decision::Yes => {
            let may_be_better = |verdict: &&Verdict| {
                verdict.keeps_all() == Decision::Undecided
                    && verdict.cpu_max_ratio < best.cpu_max_ratio
            };
            let cheaper: Vec<String> = verdicts
                .iter()
                .filter(may_be_better)
                .map(|verdict| verdict.scheme.to_string())
                .collect();
            (!cheaper.is_empty()).then(|| {
                format!(
                    "undecided: {} may keep all requested limits with less CPU than {scheme} \
                     ({remedy})",
                    cheaper.join(", ")
                )
            })
        }
        Decision::Undecided => Some(format!(
            "undecided: no scheme is known to keep all requested limits; {scheme} may keep them, but {} does not \
             decide its {} ({remedy})",
            if has_cost_intervals {
                "the model, with the intervals of the costs,"
            } else {
                "the simulation"
            },
            best.undecided_requirements().join(" and its ")
        )),
        Decision::No => Some(format!(
            "no scheme keeps all requested limits; {scheme} comes nearest (raise the bound or the budget, or \
             lower the costs)"
        )),
    }
}

/// The cell of a decision. `None` if it is undecided: column `undecided` names the requirement.
fn decided(decision: Decision) -> Option<bool> {
    match decision {
        Decision::Yes => Some(true),
        Decision::No => Some(false),
        Decision::Undecided => None,
    }
}

/// The schemes to compare if the user names none; never empty. Leaves out periods that are too long for the latency
/// bound `bound_ns`. `None`: there is no bound.
#[must_use]
pub fn candidates(bound_ns: Option<u64>) -> Vec<Scheme> {
    let mut schemes = vec![
        Scheme::Interrupt,
        Scheme::Drain { budget: signalling::BUDGET_DEFAULT },
        Scheme::Spin,
        Scheme::Hybrid { threshold: 1, suspend_ns: 20_000 },
        Scheme::Hybrid { threshold: 8, suspend_ns: 20_000 },
    ];
    // With a timer, the mean latency is at least half of the period, and high quantiles are larger. So a period above twice
    // the bound cannot keep it.
    let can_keep_bound =
        |period_ns: &u64| bound_ns.is_none_or(|bound_ns| *period_ns <= bound_ns.saturating_mul(2));
    for period_ns in PERIODS_NS.into_iter().filter(can_keep_bound) {
        schemes.push(Scheme::Clocked { period_ns });
        schemes.push(Scheme::Deferred { delay_ns: period_ns });
        schemes.push(Scheme::Coalesced { count: COALESCED_EVENTS, delay_ns: period_ns });
    }
    schemes
}

/// The scheme with other periods near its period. Empty for a scheme without a period.
fn schemes_with_near_periods(scheme: Scheme) -> Vec<Scheme> {
    let with_period = |period_ns: u64| match scheme {
        Scheme::Clocked { .. } => Some(Scheme::Clocked { period_ns }),
        Scheme::Deferred { .. } => Some(Scheme::Deferred { delay_ns: period_ns }),
        Scheme::Coalesced { count, .. } => Some(Scheme::Coalesced { count, delay_ns: period_ns }),
        _ => None,
    };
    let own_period_ns = match scheme {
        Scheme::Clocked { period_ns: own_period_ns }
        | Scheme::Deferred { delay_ns: own_period_ns }
        | Scheme::Coalesced { delay_ns: own_period_ns, .. } => own_period_ns,
        _ => return Vec::new(),
    };
    let periods_ns = NEAR_PERIODS_PERCENT.iter().map(|percent| own_period_ns * percent / 100);
    periods_ns.filter_map(with_period).collect()
}

/// A row of the table `advice`.
struct Ranked<'v> {
    /// 1 for the best scheme.
    rank: u64,
    verdict: &'v Verdict,
}

/// The columns of table `advice`. Users' programs read them: their names and order must not change.
fn advice_columns<'a>() -> Columns<'a, Ranked<'a>> {
    Columns::all([
        column("rank", "1 is the scheme to use, if it keeps all limits.")
            .priority(90)
            .uint(|row: &Ranked| row.rank),
        column("scheme", "Scheme of signalling.")
            .priority(100)
            .text(|row: &Ranked| row.verdict.scheme.to_string()),
        column(
            "keeps_all",
            "Whether the scheme keeps up, within the latency bound and the CPU budget; absent if undecided.",
        )
        .title("keeps all")
        .priority(99)
        .bool(|row: &Ranked| decided(row.verdict.keeps_all())),
        column(
            "undecided",
            "The requirements that are not decided, because the limit lies in the 95 % interval of the figure: loss, \
             latency bound, CPU budget. The interval has the error of the simulation, and the intervals of fitted \
             costs. Absent if all are decided.",
        )
        .priority(98)
        .text(|row: &Ranked| {
            let requirements = row.verdict.undecided_requirements();
            (!requirements.is_empty()).then(|| requirements.join(", "))
        }),
        column("cpu_max_ratio", "Largest part of the CPU over the range of rates.")
        .title("cpu")
        .priority(98)
        .interval(IntervalColumns::half_width("cpu_max_half_width_ratio"))
        .real(|row: &Ranked| row.verdict.cpu_max_ratio),
        column(
            "cpu_max_half_width_ratio",
            "Half the width of the 95 % interval of cpu_max_ratio, by the error of the simulation alone; absent for \
             closed forms, and if the simulation is too short to tell.",
        )
        .detail()
        .real(|row: &Ranked| row.verdict.cpu_max_half_width_ratio),
        column("cpu_low_ratio", "Part of the CPU at the lowest rate.")
            .title("at the lowest rate")
            .priority(60)
            .real(|row: &Ranked| row.verdict.cpu_ends_ratio.0),
        column("cpu_high_ratio", "Part of the CPU at the highest rate.")
            .title("at the highest rate")
            .priority(60)
            .real(|row: &Ranked| row.verdict.cpu_ends_ratio.1),
        column(
            "latency_max_ns",
            "Largest latency over the range of rates, as the figure of the setting `statistic`.",
        )
        .title("latency")
        .priority(97)
        .interval(IntervalColumns::bounds("latency_max_ci95_low_ns", "latency_max_ci95_high_ns"))
        .real(|row: &Ranked| row.verdict.latency_max_ns),
        column(
            "latency_max_ci95_low_ns",
            "Lower end of the 95 % interval of latency_max_ns. The interval of a simulated quantile includes the error \
             of the histogram, up to 1/16. Both ends are the latency itself for a closed form with stated costs. With \
             fitted costs, the interval reaches from the lower ends of all costs to the upper ends.",
        )
        .title("latency ci95")
        .up_to("latency_max_ci95_high_ns")
        .priority(96)
        .real(|row: &Ranked| row.verdict.latency_max_interval_ns.low),
        column(
            "latency_max_ci95_high_ns",
            "Upper end of the 95 % interval of latency_max_ns: the latency is within a bound if this end is. Absent if \
             the simulation is too short to bound the latency.",
        )
        .detail()
        .real(|row: &Ranked| row.verdict.latency_max_interval_ns.high),
        column(
            "keeps_up",
            "Whether fewer than one event in 10,000 is lost at each rate; absent if undecided.",
        )
        .title("keeps up")
        .priority(70)
        .bool(|row: &Ranked| decided(row.verdict.keeps_up)),
        column(
            "keeps_latency",
            "Whether the latency is within its bound; absent without a bound, or if undecided.",
        )
        .title("in bound")
        .priority(80)
        .bool(|row: &Ranked| row.verdict.keeps_latency.and_then(decided)),
        column(
            "keeps_cpu",
            "Whether the CPU use is within its budget; absent without a budget, or if undecided.",
        )
        .title("in budget")
        .priority(80)
        .bool(|row: &Ranked| row.verdict.keeps_cpu.and_then(decided)),
        column(
            "drops_max_ratio",
            "Largest part of the events that is lost; absent if no rate was simulated.",
        )
        .title("drops")
        .priority(50)
        .real(|row: &Ranked| row.verdict.drops_max_ratio),
        column("method", "closed-form, or simulation if any rate was simulated.")
            .priority(40)
            .text(|row: &Ranked| row.verdict.method.label()),
        column(
            "cpu_max_ci95_low_ratio",
            "Lower end of the 95 % interval of cpu_max_ratio, with the intervals of fitted costs: the largest CPU use \
             with all costs at the lower ends of their intervals. Absent for stated costs, which have no interval.",
        )
        .title("cpu ci95")
        .up_to("cpu_max_ci95_high_ratio")
        .priority(97)
        .real(|row: &Ranked| row.verdict.cpu_max_over_costs_ratio.map(|(low, _)| low)),
        column(
            "cpu_max_ci95_high_ratio",
            "Upper end of the 95 % interval of cpu_max_ratio, with all costs at the upper ends of their intervals.",
        )
        .detail()
        .real(|row: &Ranked| row.verdict.cpu_max_over_costs_ratio.map(|(_, high)| high)),
    ])
}

fn advice_table(verdicts: &[Verdict]) -> Table {
    let display = TableDisplay {
        // If no scheme is known to keep all limits, the first scheme is no recommendation: it only comes nearest.
        headline: if verdicts.first().is_some_and(|best| best.keeps_all() == Decision::Yes) {
            "use {scheme}".to_owned()
        } else {
            String::new()
        },
        rows_max: Some(12),
        notes: vec![
            "rates {settings.rate_low_hz} to {settings.rate_high_hz}; figure of the latency: \
             {settings.statistic}; costs: {settings.interrupt_cost} an interrupt, \
             {settings.event_cost} an event"
                .to_owned(),
        ],
        ..titled("schemes, the best first")
    };
    let doc = "How each scheme does over the range of rates. The schemes that keep all limits are first, and \
               among them the one that uses least CPU.";
    let ranked = (1..).zip(verdicts).map(|(rank, verdict)| Ranked { rank, verdict });
    advice_columns().table("advice", doc, ranked).displayed(display)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finer_period_is_tried_where_there_is_one() {
        let text: Vec<String> = schemes_with_near_periods("deferred:20us".parse().unwrap())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(text, ["deferred:25us", "deferred:30us", "deferred:35us", "deferred:44us"]);
        assert!(schemes_with_near_periods(Scheme::Spin).is_empty());
        assert!(candidates(None).len() > candidates(Some(10_000)).len());
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
    fn a_scheme_that_does_not_keep_everything_is_not_recommended() {
        let headline = |decision| advice_table(&[verdict(decision)]).display.headline;
        assert_eq!(headline(Decision::Yes), "use {scheme}");
        assert_eq!(headline(Decision::No), "");
        assert_eq!(headline(Decision::Undecided), "");
    }

    #[test]
    fn an_undecided_scheme_has_a_warning_and_the_undecided_limit() {
        let undecided = verdict(Decision::Undecided);
        let warning = verdict_warning(std::slice::from_ref(&undecided), false).unwrap();
        assert!(warning.contains("does not decide its latency bound"), "{warning}");
        let table = advice_table(std::slice::from_ref(&undecided));
        let cell = |column| table.get(&table.rows()[0], column);
        assert_eq!(cell("undecided"), Some(&record::Value::from("latency bound")));
        assert_eq!(cell("keeps_all"), Some(&record::Value::Absent));
        let dearer = Verdict { cpu_max_ratio: 0.2, ..verdict(Decision::Yes) };
        let warning = verdict_warning(&[dearer, undecided.clone()], false).unwrap();
        assert!(warning.contains("coalesced:64,64us may keep all"), "{warning}");
        assert_eq!(verdict_warning(&[verdict(Decision::Yes)], true), None);
        let warning = verdict_warning(&[undecided], true).unwrap();
        assert!(warning.contains("(fit the costs to more rows"), "{warning}");
    }

    #[test]
    fn tables_can_be_shown() {
        assert_eq!(advice_table(&[]).check_display(), Ok(()));
    }
}
