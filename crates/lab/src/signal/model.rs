//! The model without a measurement: CPU use and latency of each scheme at each rate, by closed forms or by simulation.
//! The verb `signal model` makes a [`ModelPlan`] from the command line. The crate `signalling` computes the answers.

use record::{Absence, Columns, IntervalColumns, Kind, Table, TableDisplay, column, keys};
use serde_json::json;
use signalling::{
    Answer, Arrivals, Crossover, Demand, IntervalEnds, Kept, LOST_RATIO_MAX, Method, Quantiles,
    RateRange, Scheme, SimulatedIntervals, Simulation, SimulationError, Statistic, crossovers,
    curves, curves_at, evaluate, evaluate_for_demand, kept_ranges, regions, simulate,
};

use super::computed::{Computed, titled};
use super::tables::region_table;

/// Number of steps of the rate in table `regions`.
const REGION_STEPS: u32 = 48;

/// The schemes to compare, and the rates at which they are compared.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    pub schemes: Vec<Scheme>,
    /// Events per second, in ascending order; at least one.
    pub rates_hz: Vec<u64>,
    /// Whether to simulate everything, even if there is a closed form.
    pub simulate: bool,
    /// Bound of the latency for table `bounds`, ns. `None` leaves the table out.
    pub latency_bound_ns: Option<u64>,
    /// The statistic of the latency that the bound limits, such as the mean.
    pub statistic: Statistic,
}

/// Computes the answer for a scheme at a rate, Hz.
type Ask<'a> = dyn FnMut(Scheme, u64) -> Result<Answer, SimulationError> + 'a;

impl ModelPlan {
    /// Whether everything is simulated. A bound of another statistic than the mean needs this, because closed forms
    /// give only the mean.
    fn simulates_all(&self) -> bool {
        self.simulate || (self.latency_bound_ns.is_some() && self.statistic != Statistic::Mean)
    }

    /// Computes the tables `model`, `crossovers`, `regions` and `bounds`. `simulation` returns the events and the costs
    /// of a scheme at a rate, Hz.
    ///
    /// Fails if a value of a simulation is out of range.
    pub fn compute<'a>(
        &self,
        simulation: &dyn Fn(Scheme, u64) -> Simulation<'a>,
    ) -> Result<Computed, SimulationError> {
        let simulates_all = self.simulates_all();
        let ask =
            |scheme: Scheme, rate_hz: u64| evaluate(&simulation(scheme, rate_hz), simulates_all);
        let mut rows = Vec::new();
        let mut is_trace = false;
        for &rate_hz in &self.rates_hz {
            for &scheme in &self.schemes {
                let simulation = simulation(scheme, rate_hz);
                is_trace |= matches!(simulation.arrivals, Arrivals::Trace(_));
                rows.push(Row::new(&simulation, ask(scheme, rate_hz)?)?);
            }
        }
        let mut computed = Computed::default();
        computed.settings.insert("simulate".into(), json!(simulates_all));
        computed.warnings = over_capacity(&rows);
        computed.tables.push(model_table(&rows, if is_trace { Kind::Real } else { Kind::Uint }));
        let demand = Demand {
            statistic: self.statistic,
            latency_bound_ns: self.latency_bound_ns,
            cpu_budget_ratio: None,
        };
        // Without a bound, there is nothing to decide, so no simulation is repeated.
        let mut ask_for_bound = |scheme: Scheme, rate_hz: u64| {
            let simulation = simulation(scheme, rate_hz);
            match self.latency_bound_ns {
                Some(_) => evaluate_for_demand(&simulation, simulates_all, &demand),
                None => evaluate(&simulation, simulates_all),
            }
        };
        self.add_choices(&mut ask_for_bound, &mut computed)?;
        Ok(computed)
    }

    /// Adds the tables `crossovers`, `regions` and `bounds`. With a single rate, an absence says that they have no
    /// range.
    fn add_choices(&self, ask: &mut Ask, computed: &mut Computed) -> Result<(), SimulationError> {
        let (Some(&low_hz), Some(&high_hz)) = (self.rates_hz.first(), self.rates_hz.last()) else {
            return Ok(());
        };
        if low_hz == high_hz {
            let absence = Absence::new("crossovers", "crossovers", "there is only one rate");
            computed.absent.push(absence.with_remedy(Some("--rates 1k..1M, without a trace")));
            return Ok(());
        }
        let curves = curves(&self.schemes, RateRange { low_hz, high_hz }, ask)?;
        computed.tables.push(crossover_table(&crossovers(&curves, ask)?));
        let steps = RateRange { low_hz, high_hz }.steps(REGION_STEPS);
        let fine_curves = curves_at(&self.schemes, &steps, ask)?;
        let regions = regions(&fine_curves, self.statistic);
        computed.tables.push(region_table(&regions, self.statistic));
        let Some(bound_ns) = self.latency_bound_ns else { return Ok(()) };
        let ranges = kept_ranges(&curves, self.statistic, bound_ns, ask)?;
        computed.settings.insert(keys::LATENCY_BOUND_NS.into(), json!(bound_ns));
        computed.settings.insert("statistic".into(), json!(self.statistic.label()));
        computed.tables.push(bound_table(&ranges));
        Ok(())
    }
}

/// A row of the table `model`.
struct Row {
    scheme: Scheme,
    /// Events per second. A trace has its own rate, which can be below 1.
    rate_hz: f64,
    answer: Answer,
    quantiles: Quantiles,
    /// The intervals of the simulated quantiles. `None` for quantiles of a closed form.
    quantile_intervals: Option<SimulatedIntervals>,
    quantiles_method: Method,
}

impl Row {
    /// The row of an answer. Its quantiles are simulated if the closed form has none.
    fn new(simulation: &Simulation, answer: Answer) -> Result<Row, SimulationError> {
        let mut quantiles = answer.prediction.latency;
        let mut quantile_intervals = answer.intervals;
        let mut quantiles_method = answer.method;
        if quantiles == Quantiles::default() && answer.method == Method::ClosedForm {
            let simulated = simulate(simulation)?;
            quantiles = simulated.prediction().latency;
            quantile_intervals = Some(simulated.intervals());
            quantiles_method = Method::Simulation;
        }
        let Simulation { scheme, arrivals, rate_hz, .. } = *simulation;
        let rate_hz = arrivals.exact_trace_rate_hz()?.unwrap_or(rate_hz as f64);
        Ok(Row { scheme, rate_hz, answer, quantiles, quantile_intervals, quantiles_method })
    }

    /// The interval of a quantile; without ends if a closed form gave the quantile.
    fn quantile_interval(&self, ends: fn(&SimulatedIntervals) -> IntervalEnds) -> IntervalEnds {
        self.quantile_intervals.as_ref().map(ends).unwrap_or_default()
    }
}

/// A warning for each scheme that does not keep up at some rate, or loses events. It names the first such rate.
fn over_capacity(rows: &[Row]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut named = Vec::new();
    for row in rows {
        let Row { scheme, answer, .. } = row;
        // Rounded to thousandths: a trace's rate can have many digits.
        let rate_hz = (row.rate_hz * 1e3).round() / 1e3;
        let lost_ratio = answer.prediction.drops_ratio.unwrap_or(0.0);
        let keeps_up = !answer.is_over_capacity && lost_ratio < LOST_RATIO_MAX;
        if keeps_up || named.contains(scheme) {
            continue;
        }
        named.push(*scheme);
        let limit_hz = answer.prediction.capacity_hz.filter(|limit_hz| *limit_hz <= row.rate_hz);
        warnings.push(match limit_hz {
            Some(limit_hz) => format!(
                "{scheme} keeps up with less than {limit_hz:.0} events/s: from {rate_hz} events/s on, the \
                 ring is full; the latency counts only events that are not lost, and grows with the ring"
            ),
            None if lost_ratio >= LOST_RATIO_MAX => format!(
                "{scheme} loses {:.2} % of {rate_hz} events/s: CPU use and latency are those of the other events",
                lost_ratio * 100.0
            ),
            None => format!(
                "{scheme} does not keep up with {rate_hz} events/s: events wait longer and longer, so the latency \
                 grows with the number of simulated events"
            ),
        });
    }
    warnings
}

/// A quantile of the latency, and the ends of its 95 % interval. `shown_as`: title and priority of the quantile.
fn quantile_columns<'a>(
    stem: &str,
    doc: &str,
    (title, priority): (&str, u8),
    quantile: fn(&Row) -> Option<u64>,
    interval: fn(&SimulatedIntervals) -> IntervalEnds,
) -> Columns<'a, Row> {
    let [figure, low, high] =
        ["ns", "ci95_low_ns", "ci95_high_ns"].map(|suffix| format!("{stem}_{suffix}"));
    let low_doc = format!(
        "Lower end of the 95 % interval of {figure}, with the error of the histogram (1/16); absent for closed forms."
    );
    let high_doc = format!(
        "Upper end of the 95 % interval of {figure}; absent for closed forms, and if the simulation is too short to \
         bound it."
    );
    Columns::all([
        column(&figure, doc)
            .title(title)
            .priority(priority)
            .interval(IntervalColumns::bounds(&low, &high))
            .uint(quantile),
        column(&low, &low_doc).detail().real(move |row: &Row| row.quantile_interval(interval).low),
        column(&high, &high_doc)
            .detail()
            .real(move |row: &Row| row.quantile_interval(interval).high),
    ])
}

/// `rates_kind`: real for a trace, whose rate need not be an integer; otherwise uint.
fn model_columns<'a>(rates_kind: Kind) -> Columns<'a, Row> {
    let rate = column(
        "rate_hz",
        "Events that arrive per second; of a trace, from its first to its last event.",
    )
    .priority(100)
    .key();
    Columns::all([
        match rates_kind {
            Kind::Real => rate.real(|row: &Row| row.rate_hz),
            _ => rate.uint(|row: &Row| row.rate_hz.round() as u64),
        },
        column("scheme", "Scheme of signalling.")
            .priority(100)
            .key()
            .text(|row: &Row| row.scheme.to_string()),
        column(
            "method",
            "How the row was computed: closed-form (a formula) or simulation (event by \
             event).",
        )
        .priority(90)
        .text(|row: &Row| row.answer.method.label()),
        column(
            "cpu_ratio",
            "Part of the CPU's time that signalling and handling take, including polls that \
             find nothing.",
        )
        .title("cpu")
        .priority(99)
        .cpu_share()
        .interval(IntervalColumns::half_width("cpu_half_width_ratio"))
        .real(|row: &Row| row.answer.prediction.utilisation_ratio),
        column(
            "cpu_half_width_ratio",
            "Half the width of the 95 % interval of cpu_ratio; absent for closed forms.",
        )
        .detail()
        .real(|row: &Row| row.answer.intervals.and_then(|ends| ends.cpu_half_width_ratio)),
        column("throughput_hz", "Events handled per second.")
            .priority(60)
            .real(|row: &Row| row.answer.prediction.throughput_hz),
        column("interrupts_hz", "Interrupts or clock ticks per second.")
            .priority(70)
            .real(|row: &Row| row.answer.prediction.interrupts_hz),
        column(
            "events_per_interrupt",
            "Events handled per interrupt or tick; absent if there is none.",
        )
        .title("events/interrupt")
        .priority(65)
        .real(|row: &Row| row.answer.prediction.events_per_interrupt),
        column(
            "latency_mean_ns",
            "Mean time from an event's arrival to the end of its handling; over capacity, of \
             the events that found a free slot in the ring.",
        )
        .title("latency")
        .priority(98)
        .interval(IntervalColumns::half_width("latency_half_width_ns"))
        .cost()
        .real(|row: &Row| row.answer.prediction.latency_mean_ns),
        column(
            "latency_half_width_ns",
            "Half the width of the mean's 95 % interval; absent for closed forms.",
        )
        .detail()
        .real(|row: &Row| row.answer.latency_half_width_ns),
        quantile_columns(
            "latency_p50",
            "Median latency; quantiles_method says how it was computed.",
            ("p50", 50),
            |row| row.quantiles.p50_ns,
            |intervals| intervals.p50_ns,
        ),
        quantile_columns(
            "latency_p99",
            "99th percentile of the latency.",
            ("p99", 80),
            |row| row.quantiles.p99_ns,
            |intervals| intervals.p99_ns,
        ),
        quantile_columns(
            "latency_p999",
            "99.9th percentile of the latency.",
            ("p99.9", 45),
            |row| row.quantiles.p999_ns,
            |intervals| intervals.p999_ns,
        ),
        column("leftover_ratio", "Part of the CPU's time that is left for other work.")
            .title("left")
            .priority(75)
            .real(|row: &Row| row.answer.prediction.leftover_ratio),
        column(
            "drops_ratio",
            "Part of the events that found the ring or the queue full; absent for closed \
             forms, which are used only if fewer than about one event in a million is lost.",
        )
        .title("drops")
        .priority(72)
        .real(|row: &Row| row.answer.prediction.drops_ratio),
        column(
            "quantiles_method",
            "How the quantiles were computed; mostly by simulation, because few closed forms \
             are known.",
        )
        .detail()
        .text(|row: &Row| row.quantiles_method.label()),
        column("empty_polls_hz", "Polls per second that found nothing.")
            .detail()
            .real(|row: &Row| row.answer.prediction.empty_polls_hz),
        column(
            "capacity_hz",
            "Rate above which the scheme no longer keeps up, events per second. Absent with an application or a quota, \
             for which no formula is known.",
        )
            .title("capacity")
            .priority(40)
            .real(|row: &Row| row.answer.prediction.capacity_hz),
        column("is_over_capacity", "Whether more events arrive than the scheme can handle.")
            .detail()
            .bool(|row: &Row| row.answer.is_over_capacity),
        column(
            "no_form_reason",
            "Why there is no closed form for the row; absent if there is one.",
        )
        .detail()
        .text(|row: &Row| row.answer.reason.clone()),
    ])
}

fn model_table(rows: &[Row], rates_kind: Kind) -> Table {
    let display = TableDisplay {
        group_by: vec!["rate_hz".to_owned()],
        ..titled("CPU use and latency of each scheme")
    };
    let doc = "CPU use and latency of each scheme at each rate of events.";
    model_columns(rates_kind).table("model", doc, rows).displayed(display)
}

fn crossover_columns<'a>() -> Columns<'a, Crossover> {
    Columns::all([
        column("rate_hz", "Rate at which both schemes use the same part of the CPU.")
            .priority(100)
            .uint(|row: &Crossover| row.rate_hz),
        column("scheme_below", "The scheme that uses less CPU at lower rates.")
            .title("cheaper below")
            .priority(99)
            .text(|row: &Crossover| row.below.to_string()),
        column("scheme_above", "The scheme that uses less CPU at higher rates.")
            .title("cheaper above")
            .priority(99)
            .text(|row: &Crossover| row.above.to_string()),
        column("cpu_ratio", "Part of the CPU that both use at this rate.")
            .title("cpu")
            .priority(90)
            .real(|row: &Crossover| row.cpu_ratio),
        column("method", "closed-form, or simulation if one of the two was simulated.")
            .text(|row: &Crossover| row.method.label()),
    ])
}

/// Table `crossovers`: rates at which the CPU use of two schemes crosses.
pub(super) fn crossover_table(crossovers: &[Crossover]) -> Table {
    let doc = "Rates at which the CPU use of two schemes crosses, below the capacity of both. A difference within the \
               error of the simulation is no crossover.";
    let table = crossover_columns().table("crossovers", doc, crossovers);
    table.displayed(titled("crossovers of CPU use"))
}

fn bound_columns<'a>() -> Columns<'a, Kept> {
    Columns::all([
        column("scheme", "Scheme of signalling.")
            .priority(100)
            .text(|row: &Kept| row.scheme.to_string()),
        column(
            "rate_from_hz",
            "Lowest rate of a range that keeps the latency within its bound, by the whole 95 % interval of a simulated \
             latency.",
        )
            .title("rate")
            .up_to("rate_to_hz")
            .priority(99)
            .uint(|row: &Kept| row.from_hz),
        column("rate_to_hz", "Highest rate of the range.").detail().uint(|row: &Kept| row.to_hz),
        column("method", "closed-form, or simulation if any rate was simulated.")
            .text(|row: &Kept| row.method.label()),
    ])
}

fn bound_table(ranges: &[Kept]) -> Table {
    let title = "rates at which the latency's {settings.statistic} is within its bound";
    let doc = "Ranges of rates in which a scheme's latency is within its bound. A scheme without a row exceeds \
               the bound at every rate, or the simulation does not decide it.";
    let display = TableDisplay {
        notes: vec![format!("{title}: {{settings.latency_bound_ns}}")],
        ..titled("rates with a latency within its bound")
    };
    bound_columns().table("bounds", doc, ranges).displayed(display)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_can_be_shown() {
        for table in [
            model_table(&[], Kind::Uint),
            model_table(&[], Kind::Real),
            crossover_table(&[]),
            bound_table(&[]),
        ] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }

    #[test]
    fn a_slow_trace_is_shown_with_its_own_rate() {
        let trace: Vec<u64> = (0..10).map(|number| number * 10_000_000_000).collect();
        let plan = ModelPlan {
            schemes: vec![Scheme::Interrupt],
            rates_hz: vec![1],
            simulate: false,
            latency_bound_ns: None,
            statistic: Statistic::Mean,
        };
        let computed = plan
            .compute(&|scheme, rate_hz| Simulation {
                scheme,
                costs: signalling::Costs::constant(4_000, 1_000),
                arrivals: Arrivals::Trace(&trace),
                rate_hz,
                ring: 64,
                user_slice_ns: None,
                application: None,
                quota: None,
                events: 10,
                warm_up: 0,
                seed: 1,
            })
            .unwrap();
        let table = computed.tables.iter().find(|table| table.name == "model").unwrap();
        assert_eq!(table.get(&table.rows()[0], "rate_hz"), Some(&record::Value::Real(0.1)));
    }
}
