//! The model that is fitted to a run of `signal run`, and its tables: `costs`, `crossovers`, `curves` and `regions`.
//! The crate `signalling` fits and predicts. `signal fit` uses [`cost_table`], too.

use record::{Absence, Columns, Format, IntervalColumns, Table, TableDisplay, column};
use signalling::{
    Fit, Method, Observation, Offer, RateRange, Residual, Scheme, Start, Statistic, regions_at,
};

use super::super::sample::Load;
use super::RATES;
use super::point::Point;
use super::regions::region_table;

/// The figures that are absent without a fit.
const MODEL_FIGURES: &str = "the model's costs and predictions";

/// The model that is fitted to the points with measured CPU use. All predictions come from closed forms.
pub(super) struct Model {
    /// The fitted costs. `None` if no point can be fitted, or the fit failed.
    fit: Option<Fit>,
    /// The residual of each point, in the order of the points. `None` if the point is not part of the fit.
    residuals: Vec<Option<Residual>>,
}

/// The observation that the fit uses for a point. `None` unless the load is `background`, which shows CPU use.
fn observation(point: &Point<'_>) -> Option<Observation> {
    if point.key.load != Load::Background {
        return None;
    }
    let (cpu, latency) = (point.cpu_ratio(), point.latency_mean_ns());
    Some(Observation {
        // A small CPU use can be negative by chance. The fit cannot use it: it has no relative error.
        cpu_ratio: cpu.map(|cpu| cpu.value).filter(|ratio| *ratio > 0.0),
        cpu_standard_error_ratio: cpu.and_then(|cpu| cpu.error),
        latency_mean_ns: latency.map(|latency| latency.value),
        latency_standard_error_ns: latency.and_then(|latency| latency.error),
        throughput_hz: point.delivered_hz(),
        ..Observation::new(point.key.scheme, point.offered_hz()?)
    })
}

impl Model {
    /// Fits nothing, because the events are requests to a device. The absence has the reason.
    pub fn of_a_device(points: &[Point<'_>]) -> (Model, Vec<Absence>) {
        let model = Model { fit: None, residuals: vec![None; points.len()] };
        let reason = "the cost model has no time of a device";
        let absence = Absence::new(RATES, MODEL_FIGURES, reason);
        (model, if points.is_empty() { Vec::new() } else { vec![absence] })
    }

    /// Fits the costs. If the fit fails, the model predicts nothing, and the absences have the reason.
    pub fn fitted(points: &[Point<'_>]) -> (Model, Vec<Absence>) {
        let observations: Vec<Option<Observation>> = points.iter().map(observation).collect();
        let used: Vec<Observation> = observations.iter().flatten().copied().collect();
        let without_fit = || Model { fit: None, residuals: vec![None; points.len()] };
        if used.is_empty() {
            return (without_fit(), Vec::new());
        }
        match signalling::fit(&used, &Start::default()) {
            Ok(fit) => {
                let mut fitted = fit.residuals.iter().cloned();
                let residuals = observations
                    .iter()
                    .map(|observation| if observation.is_some() { fitted.next() } else { None });
                (Model { residuals: residuals.collect(), fit: Some(fit) }, Vec::new())
            }
            Err(error) => {
                (without_fit(), vec![Absence::new(RATES, MODEL_FIGURES, error.to_string())])
            }
        }
    }

    /// The residual of the point at position `number`.
    pub fn residual(&self, number: usize) -> Option<&Residual> {
        self.residuals.get(number)?.as_ref()
    }

    /// The fitted costs in words, as a note of table `rates`. Empty without a fit.
    pub fn notes(&self) -> Vec<String> {
        let Some(fit) = &self.fit else { return Vec::new() };
        let named = [("interrupt_ns", "C"), ("tick_ns", "C of a tick"), ("event_ns", "alpha")];
        let costs = named.iter().filter_map(|(name, symbol)| {
            let estimate = fit.estimate(name)?;
            Some(format!("{symbol} = {:.2} us", estimate.value_ns / 1e3))
        });
        let costs: Vec<String> = costs.collect();
        vec![format!("By the fit, {} (table costs).", costs.join(", "))]
    }

    /// Mean latency, ns, and CPU use of a scheme at a rate. Each is `None` if no closed form holds.
    fn predict(&self, scheme: Scheme, rate_hz: f64) -> (Option<f64>, Option<f64>) {
        let row = Observation::new(scheme, rate_hz);
        let predicted = self.fit.as_ref().map(|fit| fit.predict(&[row]));
        let predicted = predicted.and_then(|rows| rows.into_iter().next());
        predicted.map_or((None, None), |row| (row.latency_mean_ns, row.cpu_ratio))
    }

    /// The event rate at which two schemes take equal CPU time, by the model. `None` if their difference has the same
    /// sign at both ends of `range`.
    fn crossover_hz(&self, first: Scheme, second: Scheme, range: (f64, f64)) -> Option<f64> {
        let difference = |rate_hz: f64| {
            let cpu = |scheme| self.predict(scheme, rate_hz).1;
            Some(cpu(first)? - cpu(second)?)
        };
        let (mut low, mut high) = range;
        let sign = difference(low)?.signum();
        if sign == difference(high)?.signum() {
            return None;
        }
        // Bisects on a logarithmic scale. 60 halvings of the range exceed the precision of a double.
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            if difference(middle)?.signum() == sign { low = middle } else { high = middle }
        }
        Some((low * high).sqrt())
    }
}

/// Table `costs`: the fitted costs of the sweep. Without rows if there is no fit.
pub(super) fn costs(model: &Model) -> Table {
    let poll_ns = Start::default().poll_ns;
    model.fit.as_ref().map_or_else(|| cost_rows_table(&[]), |fit| cost_table(fit, poll_ns))
}

/// A row of table `costs`.
struct CostRow {
    name: &'static str,
    value_ns: f64,
    /// The 95 % interval, ns. `None` for a given cost, and for a cost at its limit of 0.
    interval_ns: Option<(f64, f64)>,
    /// `fitted` or `given`.
    origin: &'static str,
}

fn cost_rows_table(rows: &[CostRow]) -> Table {
    let columns = Columns::all([
        column(
            "cost",
            "interrupt: C, CPU time of an interrupt. tick: C of a clock tick, if it is fitted \
             separately. event: alpha, CPU time of handling an event. poll, yield: CPU time of an \
             empty poll and of a yield. wake: latency until the handler starts. fixed: latency \
             under every scheme.",
        )
        .priority(100)
        .text(|row: &CostRow| row.name),
        column("value_ns", "The value that explains the rows best.")
            .interval(IntervalColumns::bounds("ci95_low_ns", "ci95_high_ns"))
            .shown_as("value", 99)
            .real(|row: &CostRow| row.value_ns),
        column(
            "ci95_low_ns",
            "Lower end of the value's 95 % interval (linear model, Student's t); absent if the \
             value was not fitted, or is at its limit of 0.",
        )
        .title("ci95")
        .up_to("ci95_high_ns")
        .priority(98)
        .real(|row: &CostRow| row.interval_ns.map(|(low, _)| low)),
        column("ci95_high_ns", "Upper end of the value's 95 % interval.")
            .detail()
            .real(|row: &CostRow| row.interval_ns.map(|(_, high)| high)),
        column("how", "fitted, or given.").priority(60).text(|row: &CostRow| row.origin),
    ]);
    let doc = "The costs that explain the measured rows best (least squares of relative errors).";
    columns.table("costs", doc, rows)
}

/// Table `costs` of a fit. `poll_ns` is the cost of an empty poll, which is not fitted, but given.
#[must_use]
pub fn cost_table(fit: &Fit, poll_ns: u64) -> Table {
    let fitted = fit.estimates.iter().map(|estimate| CostRow {
        name: estimate.name.trim_end_matches("_ns"),
        value_ns: estimate.value_ns,
        interval_ns: estimate.interval_ns,
        origin: "fitted",
    });
    let poll =
        CostRow { name: "poll", value_ns: poll_ns as f64, interval_ns: None, origin: "given" };
    cost_rows_table(&fitted.chain([poll]).collect::<Vec<_>>())
}

/// Number of steps of the rate in tables `curves` and `regions`.
const STEPS: u32 = 48;

/// The schemes of the points, and [`STEPS`] steps of the rate, from the lowest to the highest rate of the points. No
/// rates if the points have only one rate.
fn schemes_and_rate_steps(points: &[Point<'_>]) -> (Vec<Scheme>, Vec<u64>) {
    let mut schemes: Vec<Scheme> = points.iter().map(|point| point.key.scheme).collect();
    schemes.sort_unstable();
    schemes.dedup();
    let rates = || points.iter().map(|point| point.key.rate_hz);
    let range = rates().min().zip(rates().max()).filter(|(low_hz, high_hz)| low_hz < high_hz);
    let steps = |(low_hz, high_hz)| RateRange { low_hz, high_hz }.steps(STEPS);
    (schemes, range.map_or(Vec::new(), steps))
}

/// Table `curves`: predictions of the fitted model at and between the measured rates, for pictures.
pub(super) fn curves(points: &[Point<'_>], model: &Model) -> Table {
    struct CurveRow {
        scheme: Scheme,
        rate_hz: u64,
        cpu_ratio: Option<f64>,
        latency_mean_ns: Option<f64>,
    }
    let columns = Columns::all([
        column("scheme", "How the receiver learns of events.")
            .priority(100)
            .text(|row: &CurveRow| row.scheme.to_string()),
        column("rate_hz", "Events per second.")
            .shown_as("rate", 99)
            .uint(|row: &CurveRow| row.rate_hz),
        column("cpu_ratio", "CPU use by the model; absent where no closed form holds.")
            .shown_as("CPU", 98)
            .real(|row: &CurveRow| row.cpu_ratio),
        column("latency_mean_ns", "Mean latency by the model; absent where no closed form holds.")
            .shown_as("latency mean", 97)
            .real(|row: &CurveRow| row.latency_mean_ns),
    ]);
    let (schemes, rates) = schemes_and_rate_steps(points);
    let rows = schemes.iter().flat_map(|&scheme| {
        rates.iter().map(move |&rate_hz| {
            let (latency_mean_ns, cpu_ratio) = model.predict(scheme, rate_hz as f64);
            CurveRow { scheme, rate_hz, cpu_ratio, latency_mean_ns }
        })
    });
    let rows = rows.filter(|row| row.latency_mean_ns.is_some() || row.cpu_ratio.is_some());
    let doc = "CPU use and mean latency by the closed forms with the costs of table costs: the \
               curves of the pictures.";
    let display = TableDisplay { rows_max: Some(0), ..TableDisplay::default() };
    columns.table("curves", doc, rows).displayed(display)
}

/// Table `regions`: the scheme that keeps a bound of the mean latency with the least CPU use, by rate and bound. The
/// fitted model predicts latency and CPU use.
pub(super) fn regions(points: &[Point<'_>], model: &Model) -> Table {
    let (schemes, rates) = schemes_and_rate_steps(points);
    let regions_of_rate = |rate_hz: &u64| {
        let offer = |&scheme: &Scheme| {
            let (latency_ns, cpu_ratio) = model.predict(scheme, *rate_hz as f64);
            let method = Method::ClosedForm;
            Some(Offer { scheme, latency_ns: latency_ns?, cpu_ratio: cpu_ratio?, method })
        };
        let offers: Vec<Offer> = schemes.iter().filter_map(offer).collect();
        regions_at(*rate_hz, &offers)
    };
    region_table(&rates.iter().flat_map(regions_of_rate).collect::<Vec<_>>(), Statistic::Mean)
}

/// A row of table `crossovers`: two schemes whose measured curves cross.
struct CrossoverRow {
    /// The scheme that takes less CPU time at the lower rates.
    lower: Scheme,
    /// The scheme that takes less CPU time at the higher rates.
    upper: Scheme,
    /// The rate of the crossover.
    measured_hz: f64,
    /// The rate of the crossover by the model. `None` if the model has no crossover in the measured range.
    predicted_hz: Option<f64>,
}

fn crossover_columns<'a>() -> Columns<'a, CrossoverRow> {
    let rate =
        |name: &str, title: &str, doc: &str| column(name, doc).title(title).format(Format::Auto);
    Columns::all([
        column("scheme", "The scheme that takes less CPU time at the lower rates.")
            .shown_as("cheaper below", 100)
            .text(|row: &CrossoverRow| row.lower.to_string()),
        column("other_scheme", "The scheme that takes less CPU time at the higher rates.")
            .shown_as("cheaper above", 99)
            .text(|row: &CrossoverRow| row.upper.to_string()),
        rate(
            "measured_hz",
            "measured at",
            "Event rate at which both take equal CPU time. Straight lines over the logarithm of \
             the rate join the measured points.",
        )
        .priority(98)
        .real(|row: &CrossoverRow| row.measured_hz),
        rate(
            "predicted_hz",
            "by the model",
            "Event rate at which both take equal CPU time, by the fitted model.",
        )
        .priority(97)
        .real(|row: &CrossoverRow| row.predicted_hz),
        column("error_ratio", "Relative error: (predicted_hz - measured_hz) / measured_hz.")
            .shown_as("error", 96)
            .real(|row: &CrossoverRow| {
                row.predicted_hz
                    .map(|predicted_hz| (predicted_hz - row.measured_hz) / row.measured_hz)
            }),
    ])
}

/// Table `crossovers`: rates at which the measured curves of two schemes cross, and the model's predictions of these
/// rates.
pub(super) fn crossovers(points: &[Point<'_>], model: &Model) -> Table {
    let doc = "Event rates at which two schemes take the same CPU time, measured and by the model.";
    let mut rows = Vec::new();
    let mut schemes: Vec<Scheme> = points.iter().map(|point| point.key.scheme).collect();
    schemes.sort_unstable();
    schemes.dedup();
    for (position, &first) in schemes.iter().enumerate() {
        for &second in &schemes[position + 1..] {
            let differences = cpu_differences(points, first, second);
            let Some((measured_hz, is_first_lower)) = single_sign_change(&differences) else {
                continue;
            };
            let range = (differences[0].0, differences[differences.len() - 1].0);
            let predicted_hz = model.crossover_hz(first, second, range);
            let (lower, upper) = if is_first_lower { (first, second) } else { (second, first) };
            rows.push(CrossoverRow { lower, upper, measured_hz, predicted_hz });
        }
    }
    crossover_columns().table("crossovers", doc, rows)
}

/// Event rates in ascending order, each with the CPU use of the first scheme minus the CPU use of the second. Only
/// rates that were measured with both schemes count.
fn cpu_differences(points: &[Point<'_>], first: Scheme, second: Scheme) -> Vec<(f64, f64)> {
    let points_of = |scheme: Scheme| {
        points
            .iter()
            .filter(move |point| point.key.scheme == scheme && point.key.load == Load::Background)
    };
    let mut differences: Vec<(f64, f64)> = points_of(first)
        .filter_map(|point| {
            let partner =
                points_of(second).find(|candidate| candidate.key.rate_hz == point.key.rate_hz)?;
            Some((point.key.rate_hz as f64, point.cpu_ratio()?.value - partner.cpu_ratio()?.value))
        })
        .collect();
    differences.sort_by(|a, b| a.0.total_cmp(&b.0));
    differences
}

/// The rate at which the differences change their sign, and whether they are negative below this rate. `None` without a
/// change, or with several changes, which are noise. Interpolates linearly over the logarithm of the rate.
fn single_sign_change(differences: &[(f64, f64)]) -> Option<(f64, bool)> {
    let has_sign_change = |pair: &&[(f64, f64)]| pair[0].1 * pair[1].1 < 0.0;
    let mut changes = differences.windows(2).filter(has_sign_change);
    let pair = changes.next()?;
    if changes.next().is_some() {
        return None;
    }
    let [(low, before), (high, after)] = [pair[0], pair[1]];
    let fraction = before / (before - after);
    Some(((low.ln() + fraction * (high.ln() - low.ln())).exp(), before < 0.0))
}
