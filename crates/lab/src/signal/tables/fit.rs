//! The model that is fitted to a run of `signal run`, and its tables: `costs`, `crossovers`, `curves` and `regions`.
//! The crate `signalling` fits and predicts. `signal fit` uses [`cost_table`], too.

use record::{Absence, Columns, Format, IntervalColumns, Table, TableDisplay, column};
use signalling::{
    Fit, Method, Observation, Offer, RateRange, Residual, Scheme, Start, Statistic, regions_at,
};
use stats::interval::t_quantile;

use super::super::observations::negative_cpu_warning;
use super::super::sample::Load;
use super::RATES;
use super::columns::Median;
use super::point::Point;
use super::regions::region_table;

/// A difference is known if it exceeds its half width times this factor: many pairs of schemes are compared at many rates.
const SAFE_HALF_WIDTHS: f64 = 2.0;
/// The figures that are absent without a fit.
const MODEL_FIGURES: &str = "the model's costs and predictions";

/// The model that is fitted to the points with measured CPU use. All predictions come from closed forms.
pub(super) struct Model {
    /// The fitted costs. `None` if no point can be fitted, or the fit failed.
    fit: Option<Fit>,
    /// The residual of each point, in the order of the points. `None` if the point is not part of the fit.
    residuals: Vec<Option<Residual>>,
    /// Number of points with load `background` that the fit leaves out.
    left_out: usize,
}

/// The observation that the fit uses for a point. `None` unless the load is `background`, which shows CPU use, and for
/// points without a window that is neither overloaded nor contaminated.
fn observation(point: &Point<'_>) -> Option<Observation> {
    if point.key.load != Load::Background || point.is_overloaded() || point.is_contaminated() {
        return None;
    }
    let (cpu, latency) = (point.cpu_ratio(), point.latency_mean_ns());
    Some(Observation {
        // A small CPU use can be negative by chance. The fit cannot use it: it has no relative error.
        cpu_ratio: cpu.map(|cpu| cpu.value).filter(|ratio| *ratio > 0.0),
        cpu_standard_error_ratio: cpu.and_then(|cpu| cpu.error),
        latency_mean_ns: latency.map(|latency| latency.value),
        latency_standard_error_ns: latency.and_then(|latency| latency.error),
        // Without a throughput, the fit does not judge again whether the scheme keeps up: events of a slow clock that
        // wait at the end of a window are no overload.
        throughput_hz: None,
        ..Observation::new(point.key.scheme, point.offered_hz()?)
    })
}

/// A warning if the fit leaves out the CPU use of points, because it is negative by chance.
pub(super) fn warning(points: &[Point<'_>]) -> Option<String> {
    let fitted = points.iter().filter_map(|point| Some((point, observation(point)?)));
    let (mut without_cpu, mut all) = (0, 0);
    for (point, observation) in fitted {
        all += 1;
        without_cpu += usize::from(observation.cpu_ratio.is_none() && point.cpu_ratio().is_some());
    }
    negative_cpu_warning(without_cpu, all)
}

impl Model {
    /// Fits nothing, because the events are requests to a device. The absence has the reason.
    pub fn of_a_device(points: &[Point<'_>]) -> (Model, Vec<Absence>) {
        let model = Model { fit: None, residuals: vec![None; points.len()], left_out: 0 };
        let reason = "the cost model has no time of a device";
        let absence = Absence::new(RATES, MODEL_FIGURES, reason);
        (model, if points.is_empty() { Vec::new() } else { vec![absence] })
    }

    /// Fits the costs. If the fit fails, the model predicts nothing, and the absences have the reason.
    pub fn fitted(points: &[Point<'_>]) -> (Model, Vec<Absence>) {
        let observations: Vec<Option<Observation>> = points.iter().map(observation).collect();
        let used: Vec<Observation> = observations.iter().flatten().copied().collect();
        let background_count =
            points.iter().filter(|point| point.key.load == Load::Background).count();
        let left_out = background_count - used.len();
        let without_fit = || Model { fit: None, residuals: vec![None; points.len()], left_out };
        if used.is_empty() {
            let reason =
                "all rows with load background are overloaded or have only contaminated windows";
            let absence = (left_out > 0).then(|| Absence::new(RATES, MODEL_FIGURES, reason));
            return (without_fit(), Vec::from_iter(absence));
        }
        match signalling::fit(&used, &Start::default()) {
            Ok(fit) => {
                let mut fitted = fit.residuals.iter().cloned();
                let residuals = observations
                    .iter()
                    .map(|observation| if observation.is_some() { fitted.next() } else { None });
                (Model { residuals: residuals.collect(), fit: Some(fit), left_out }, Vec::new())
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
        let left_out = match self.left_out {
            0 => String::new(),
            1 => " It leaves out 1 row with overload or only contaminated windows.".to_owned(),
            count => {
                format!(" It leaves out {count} rows with overload or only contaminated windows.")
            }
        };
        vec![format!("By the fit, {} (table costs).{left_out}", costs.join(", "))]
    }

    /// Mean latency, ns, and CPU use of a scheme at a rate. Each is `None` if no closed form holds.
    fn predict(&self, scheme: Scheme, rate_hz: f64) -> (Option<f64>, Option<f64>) {
        let row = Observation::new(scheme, rate_hz);
        let predicted = self.fit.as_ref().map(|fit| fit.predict(&[row]));
        let predicted = predicted.and_then(|rows| rows.into_iter().next());
        predicted.map_or((None, None), |row| (row.latency_mean_ns, row.cpu_ratio))
    }

    /// The event rate at which two schemes take equal CPU time, by the model. `None` if their difference has the same sign at both ends of `range`, or the model has no CPU time of one of them.
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

/// Table `costs`: one row for each fitted or given cost.
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
    measured: Crossover,
    /// The rate of the crossover by the model. `None` if the model has no crossover in the measured range.
    predicted_hz: Option<f64>,
}

impl CrossoverRow {
    fn error_ratio(&self) -> Option<f64> {
        let measured_hz = self.measured.rate_hz?;
        Some((self.predicted_hz? - measured_hz) / measured_hz)
    }
}

/// The columns of table `crossovers`: at which rates two schemes take equal CPU time, measured and by the model.
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
             the rate join the measured points. Absent if these lines cross more than once \
             between measured_low_hz and measured_high_hz.",
        )
        .priority(98)
        .real(|row: &CrossoverRow| row.measured.rate_hz),
        rate(
            "measured_low_hz",
            "measured between",
            "Highest measured rate below the crossover at which the difference of the CPU shares \
             exceeds twice its 95 % error.",
        )
        .up_to("measured_high_hz")
        .priority(96)
        .real(|row: &CrossoverRow| row.measured.low_hz),
        rate(
            "measured_high_hz",
            "and",
            "Lowest measured rate above the crossover at which the difference of the CPU shares \
             exceeds twice its 95 % error.",
        )
        .detail()
        .real(|row: &CrossoverRow| row.measured.high_hz),
        rate(
            "predicted_hz",
            "by the model",
            "Event rate at which both take equal CPU time, by the fitted model.",
        )
        .priority(97)
        .real(|row: &CrossoverRow| row.predicted_hz),
        column("error_ratio", "Relative error: (predicted_hz - measured_hz) / measured_hz.")
            .shown_as("error", 95)
            .real(|row: &CrossoverRow| row.error_ratio()),
    ])
}

/// Table `crossovers`: rates at which the measured curves of two schemes cross, and the model's predictions of these
/// rates. The absences name the pairs of schemes whose medians cross, but whose crossover is not measured.
pub(super) fn crossovers(points: &[Point<'_>], model: &Model) -> (Table, Vec<Absence>) {
    let doc = "Event rates at which two schemes take the same CPU time, measured and by the model.";
    let mut rows = Vec::new();
    let mut undecided: Vec<(Undecided, Vec<String>)> = Vec::new();
    let mut schemes: Vec<Scheme> = points.iter().map(|point| point.key.scheme).collect();
    schemes.sort_unstable();
    schemes.dedup();
    for (position, &first) in schemes.iter().enumerate() {
        for &second in &schemes[position + 1..] {
            let differences = cpu_differences(points, first, second);
            match crossover(&differences) {
                Ok(None) => {}
                Ok(Some(measured)) => {
                    let range =
                        (differences[0].rate_hz, differences[differences.len() - 1].rate_hz);
                    let predicted_hz = model.crossover_hz(first, second, range);
                    let (lower, upper) =
                        if measured.is_first_lower { (first, second) } else { (second, first) };
                    rows.push(CrossoverRow { lower, upper, measured, predicted_hz });
                }
                Err(reason) => {
                    let pair = format!("{first} and {second}");
                    match undecided.iter_mut().find(|(other_reason, _)| *other_reason == reason) {
                        Some((_, pairs)) => pairs.push(pair),
                        None => undecided.push((reason, vec![pair])),
                    }
                }
            }
        }
    }
    let absences = undecided.into_iter().map(|(undecided, pairs)| {
        let what = format!("crossover of {}", pairs.join("; "));
        Absence::new("crossovers", what, undecided.reason()).with_remedy(undecided.remedy())
    });
    (crossover_columns().table("crossovers", doc, rows), absences.collect())
}

/// The CPU use of a first scheme minus the CPU use of a second scheme, at one rate.
struct CpuDifference {
    rate_hz: f64,
    /// Difference of the medians over the windows.
    ratio: f64,
    /// Half width of the difference's 95 % interval. `None` if a scheme has only one window.
    half_width: Option<f64>,
    /// Whether a scheme has only contaminated windows, or does not keep up.
    is_disturbed: bool,
}

impl CpuDifference {
    /// Whether the difference shows which scheme takes less CPU time.
    fn is_decided(&self) -> bool {
        !self.is_disturbed
            && self
                .half_width
                .is_some_and(|half_width| self.ratio.abs() > SAFE_HALF_WIDTHS * half_width)
    }
}

/// Half width of the 95 % interval of the difference of two medians, with Welch's degrees of freedom. The counts are
/// the numbers of windows. `None` if a median has no error, or comes from a single window.
fn half_width_of_difference(medians: [(Median, usize); 2]) -> Option<f64> {
    let (mut variance, mut denominator) = (0.0, 0.0);
    for (median, window_count) in medians {
        let squared_error = median.error?.powi(2);
        variance += squared_error;
        denominator += squared_error.powi(2) / window_count.checked_sub(1)? as f64;
    }
    if variance == 0.0 {
        return Some(0.0);
    }
    let t = t_quantile(variance.powi(2) / denominator, 0.025)?;
    Some(t * variance.sqrt())
}

/// The differences of two schemes by ascending rate. Only rates that were measured with both schemes count.
fn cpu_differences(points: &[Point<'_>], first: Scheme, second: Scheme) -> Vec<CpuDifference> {
    let points_of = |scheme: Scheme| {
        points
            .iter()
            .filter(move |point| point.key.scheme == scheme && point.key.load == Load::Background)
    };
    let is_disturbed = |point: &Point<'_>| point.is_contaminated() || point.is_overloaded();
    let mut differences: Vec<CpuDifference> = points_of(first)
        .filter_map(|point| {
            let partner =
                points_of(second).find(|candidate| candidate.key.rate_hz == point.key.rate_hz)?;
            let (cpu, partner_cpu) = (point.cpu_ratio()?, partner.cpu_ratio()?);
            let medians = [(cpu, point.windows.len()), (partner_cpu, partner.windows.len())];
            Some(CpuDifference {
                rate_hz: point.key.rate_hz as f64,
                ratio: cpu.value - partner_cpu.value,
                half_width: half_width_of_difference(medians),
                is_disturbed: is_disturbed(point) || is_disturbed(partner),
            })
        })
        .collect();
    differences.sort_by(|difference, other| difference.rate_hz.total_cmp(&other.rate_hz));
    differences
}

/// A measured crossover of two schemes.
#[derive(Debug, PartialEq)]
struct Crossover {
    /// Neighbouring rates with decided differences of opposite signs.
    low_hz: f64,
    high_hz: f64,
    /// The rate of equal CPU use. `None` if the medians cross several times between the two rates.
    rate_hz: Option<f64>,
    /// Whether the first scheme takes less CPU time at the lower rates.
    is_first_lower: bool,
}

/// Why no crossover is measured, although the medians cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undecided {
    Disturbed,
    SingleWindows,
    WithinErrors,
    SeveralCrossovers,
}

impl Undecided {
    fn reason(self) -> &'static str {
        match self {
            Undecided::Disturbed => {
                "the CPU shares cross only at rates with contaminated windows or overload"
            }
            Undecided::SingleWindows => "the CPU shares of single windows have no errors",
            Undecided::WithinErrors => "the CPU shares do not differ by more than their errors",
            Undecided::SeveralCrossovers => "the CPU shares cross at several rates",
        }
    }

    fn remedy(self) -> Option<&'static str> {
        match self {
            Undecided::SingleWindows => Some("--repetitions 3"),
            Undecided::WithinErrors | Undecided::Disturbed | Undecided::SeveralCrossovers => None,
        }
    }
}

/// The neighbours whose differences have opposite signs.
fn sign_changes<'d>(
    differences: &[&'d CpuDifference],
) -> Vec<(&'d CpuDifference, &'d CpuDifference)> {
    let neighbours = differences.windows(2).map(|pair| (pair[0], pair[1]));
    neighbours.filter(|(before, after)| before.ratio * after.ratio < 0.0).collect()
}

/// The crossover that the decided differences show. `Ok(None)` if the medians do not cross.
fn crossover(differences: &[CpuDifference]) -> Result<Option<Crossover>, Undecided> {
    if sign_changes(&differences.iter().collect::<Vec<_>>()).is_empty() {
        return Ok(None);
    }
    let undisturbed: Vec<&CpuDifference> =
        differences.iter().filter(|difference| !difference.is_disturbed).collect();
    if sign_changes(&undisturbed).is_empty() {
        return Err(Undecided::Disturbed);
    }
    let decided: Vec<&CpuDifference> =
        differences.iter().filter(|difference| difference.is_decided()).collect();
    let (low, high) = match sign_changes(&decided)[..] {
        [change] => change,
        [_, _, ..] => return Err(Undecided::SeveralCrossovers),
        [] if undisturbed.iter().any(|difference| difference.half_width.is_none()) => {
            return Err(Undecided::SingleWindows);
        }
        [] => return Err(Undecided::WithinErrors),
    };
    let between: Vec<&CpuDifference> = undisturbed
        .into_iter()
        .filter(|difference| (low.rate_hz..=high.rate_hz).contains(&difference.rate_hz))
        .collect();
    let rate_hz = match sign_changes(&between)[..] {
        [(before, after)] => Some(interpolated_zero_hz(before, after)),
        _ => None,
    };
    let is_first_lower = low.ratio < 0.0;
    Ok(Some(Crossover { low_hz: low.rate_hz, high_hz: high.rate_hz, rate_hz, is_first_lower }))
}

/// The rate at which the difference is 0, by linear interpolation over the logarithm of the rate.
fn interpolated_zero_hz(before: &CpuDifference, after: &CpuDifference) -> f64 {
    let fraction = before.ratio / (before.ratio - after.ratio);
    let (low, high) = (before.rate_hz.ln(), after.rate_hz.ln());
    (low + fraction * (high - low)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A difference at a rate, with its half width.
    fn difference(rate_hz: f64, ratio: f64, half_width: Option<f64>) -> CpuDifference {
        CpuDifference { rate_hz, ratio, half_width, is_disturbed: false }
    }

    #[test]
    fn a_crossover_within_the_errors_is_not_measured() {
        // The medians cross, but the errors exceed the differences.
        let noise = [(1_000.0, -0.005), (2_000.0, 0.004)]
            .map(|(rate_hz, ratio)| difference(rate_hz, ratio, Some(0.024)));
        assert_eq!(crossover(&noise), Err(Undecided::WithinErrors));
        let single = [(1_000.0, -0.1), (2_000.0, 0.1)]
            .map(|(rate_hz, ratio)| difference(rate_hz, ratio, None));
        assert_eq!(crossover(&single), Err(Undecided::SingleWindows));
        let alike = [(1_000.0, -0.1), (2_000.0, -0.2)]
            .map(|(rate_hz, ratio)| difference(rate_hz, ratio, None));
        assert_eq!(crossover(&alike), Ok(None));
    }

    #[test]
    fn a_crossover_lies_between_decided_differences() {
        let differences = |middle: f64| {
            [(1_000.0, -0.10), (2_000.0, middle), (4_000.0, 0.10)]
                .map(|(rate_hz, ratio)| difference(rate_hz, ratio, Some(0.02)))
        };
        let measured = crossover(&differences(-0.01)).unwrap().unwrap();
        assert_eq!((measured.low_hz, measured.high_hz), (1_000.0, 4_000.0));
        assert!(measured.rate_hz.is_some_and(|rate_hz| (2_000.0..2_300.0).contains(&rate_hz)));
        assert!(measured.is_first_lower);
        let measured = crossover(&differences(-0.05)).unwrap().unwrap();
        assert_eq!((measured.low_hz, measured.high_hz), (2_000.0, 4_000.0));
        // A disturbed rate neither bounds nor shows a crossover.
        let mut disturbed = differences(-0.05);
        disturbed[2].is_disturbed = true;
        assert_eq!(crossover(&disturbed), Err(Undecided::Disturbed));
        let mut several = differences(0.05);
        several[2].ratio = -0.1;
        assert_eq!(crossover(&several), Err(Undecided::SeveralCrossovers));
    }

    #[test]
    fn the_error_of_a_difference_has_the_errors_of_both_medians() {
        let median = |error| Median { value: 0.5, error };
        let half_width =
            |first, second| half_width_of_difference([(median(first), 3), (median(second), 3)]);
        // Two equal errors, 4 degrees of freedom: t is 2.776.
        let equal = half_width(Some(0.01), Some(0.01)).unwrap();
        assert!((equal - 2.776 * 0.01 * 2.0_f64.sqrt()).abs() < 1e-5, "{equal}");
        // A single error, 2 degrees of freedom: t is 4.303.
        let single = half_width(Some(0.01), Some(0.0)).unwrap();
        assert!((single - 4.303 * 0.01).abs() < 1e-5, "{single}");
        assert_eq!(half_width(Some(0.0), Some(0.0)), Some(0.0));
        assert_eq!(half_width(Some(0.01), None), None);
    }
}
