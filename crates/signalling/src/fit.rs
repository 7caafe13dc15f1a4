//! Fits [`Costs`] to measured CPU use and latency. `irqlab signal fit` and the `signal` experiment's
//! tables use it.
//!
//! Method: weighted least squares of the relative errors of the closed forms (`predict.rs`), by
//! Levenberg and Marquardt, with all costs at or above 0.
//!
//! Weights: an error's variance is the sum of two parts. One is the squared standard error of the
//! measured figure, where it is known. The other is the model's own spread, one for CPU use and one for
//! latency, estimated from the residuals of the previous fit (feasible generalised least squares).
//!
//! Intervals: Student's t in the linear model around the best costs. They assume a correct model and
//! independent errors of the rows.

use stats::Random;
use stats::interval::t_95;

use crate::costs::{COST_MAX_NS, Costs, Times};
use crate::predict::{Form, Means, capacity, closed_form};
use crate::scheme::Scheme;

/// Most observations of a fit.
pub const OBSERVATIONS_MAX: usize = 10_000;
/// A row is overloaded if its throughput is below this part of its offered rate. Closed forms do not hold then.
pub const KEEPS_UP_RATIO: f64 = 0.98;
/// How often the weights are recomputed. They change little after the fourth time.
const REWEIGHTING_COUNT: u32 = 6;
/// Most steps of the search; a dozen is usual.
const STEPS_MAX: usize = 200;
/// Smallest spread of relative errors that weights assume, so that a perfect fit has finite weights.
const SPREAD_MIN: f64 = 1e-6;
/// A cost is undetermined if the other costs' derivatives explain its own derivative except for less than this part.
const CONDITION_MIN: f64 = 1e-9;

/// A measured row: what a scheme did at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    pub scheme: Scheme,
    /// Events offered per second; above 0.
    pub rate_hz: f64,
    /// CPU time that signalling and handling took, divided by elapsed time: 1 is one CPU. The CPU use
    /// without events is already subtracted.
    pub cpu_ratio: Option<f64>,
    /// Standard error of `cpu_ratio`, where it is known.
    pub cpu_standard_error_ratio: Option<f64>,
    pub latency_mean_ns: Option<f64>,
    /// Standard error of `latency_mean_ns`, ns, where it is known.
    pub latency_standard_error_ns: Option<f64>,
    /// Events handled per second. `None`: the offered rate.
    pub throughput_hz: Option<f64>,
    /// Counted interrupts or clock ticks per second. The predicted CPU time then uses this count instead of
    /// the closed form's. `None`: they were not counted.
    pub interrupts_hz: Option<f64>,
}

impl Observation {
    /// An observation without measured figures.
    #[must_use]
    pub fn new(scheme: Scheme, rate_hz: f64) -> Observation {
        Observation {
            scheme,
            rate_hz,
            cpu_ratio: None,
            cpu_standard_error_ratio: None,
            latency_mean_ns: None,
            latency_standard_error_ns: None,
            throughput_hz: None,
            interrupts_hz: None,
        }
    }
}

/// Values that a fit cannot learn from the observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// CPU time of an empty poll, ns; from 1. A spinning CPU is fully busy at any value, so no row determines it.
    pub poll_ns: u64,
}

impl Default for Start {
    fn default() -> Start {
        Start { poll_ns: 100 }
    }
}

/// A cost with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Name of the field in [`Costs`]: `interrupt_ns`, `tick_ns`, `event_ns`, `wake_ns`, `yield_ns` or `fixed_ns`.
    pub name: &'static str,
    pub value_ns: f64,
    /// The 95 % interval, ns. `None` if the value is at its limit of 0, or if the fit has no more rows than costs.
    pub interval_ns: Option<(f64, f64)>,
}

/// A row's measured and predicted figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Residual {
    /// Index of the observation.
    pub row: usize,
    /// Predicted CPU time per time; absent where no form holds.
    pub cpu_ratio: Option<f64>,
    /// Predicted mean latency, ns; absent where no form holds.
    pub latency_mean_ns: Option<f64>,
    /// Relative error of the predicted CPU time, where both are known.
    pub cpu_error_ratio: Option<f64>,
    /// Relative error of the predicted latency, where both are known.
    pub latency_error_ratio: Option<f64>,
    /// Why the row, or its latency, has no part in the fit.
    pub left_out: Option<&'static str>,
}

/// The costs that explain the observations best.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// C and alpha, then the other costs that the observations determine.
    pub estimates: Vec<Estimate>,
    /// A residual for each observation, in their order.
    pub residuals: Vec<Residual>,
    /// Number of measured figures that were fitted.
    pub figures: usize,
    /// The fitted costs, unrounded.
    means: Means,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    #[error(
        "cannot fit {costs} costs to {figures} measured figures: there must be more figures than costs \
         (measure more rates or schemes)"
    )]
    TooFew {
        /// Number of figures that can be used.
        figures: usize,
        costs: usize,
    },
    /// The rows determine only a combination of the named costs. The names are separated by commas.
    #[error(
        "cannot tell {0} apart: the rows determine only a combination of them (add rows of a clocked \
         or draining scheme at several rates)"
    )]
    Undetermined(String),
    /// No point of the start grid keeps up with the rates of all rows.
    #[error(
        "cannot fit: no costs keep up with the rates of all rows (check the units of rate and \
         throughput)"
    )]
    NoCosts,
    /// A value is out of its range.
    #[error("cannot use observation {row}: {reason} (correct or remove it)")]
    Invalid {
        /// Index of the observation, from 0.
        row: usize,
        reason: &'static str,
    },
}

impl Fit {
    #[must_use]
    pub fn estimate(&self, name: &str) -> Option<Estimate> {
        self.estimates.iter().find(|estimate| estimate.name == name).copied()
    }

    /// The costs as constants, rounded to ns. A cost that was not fitted is the one in [`Start`], or 0.
    #[must_use]
    pub fn costs(&self) -> Costs {
        let rounded = |ns: f64| (ns.round() as u64).min(COST_MAX_NS);
        Costs {
            interrupt: Times::Constant(rounded(self.means.interrupt_ns)),
            tick: self.means.tick.map(|(ns, _)| Times::Constant(rounded(ns))),
            event: Times::Constant(rounded(self.means.event_ns).max(1)),
            poll_ns: rounded(self.means.poll_ns),
            yield_ns: rounded(self.means.yield_ns),
            wake_ns: rounded(self.means.wake_ns),
            fixed_ns: rounded(self.means.fixed_ns),
        }
    }

    /// The fit's prediction for other rows, such as held-out rows.
    #[must_use]
    pub fn predict(&self, observations: &[Observation]) -> Vec<Residual> {
        residuals(observations, &self.means)
    }
}

/// A cost that the fit varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    Interrupt,
    Tick,
    Event,
    Wake,
    Yield,
    Fixed,
}

impl Cost {
    fn name(self) -> &'static str {
        match self {
            Cost::Interrupt => "interrupt_ns",
            Cost::Tick => "tick_ns",
            Cost::Event => "event_ns",
            Cost::Wake => "wake_ns",
            Cost::Yield => "yield_ns",
            Cost::Fixed => "fixed_ns",
        }
    }

    fn mean_in(self, means: &mut Means) -> &mut f64 {
        match self {
            Cost::Interrupt => &mut means.interrupt_ns,
            Cost::Tick => {
                let Means { tick, interrupt_ns, .. } = means;
                &mut tick.get_or_insert((*interrupt_ns, 0.0)).0
            }
            Cost::Event => &mut means.event_ns,
            Cost::Wake => &mut means.wake_ns,
            Cost::Yield => &mut means.yield_ns,
            Cost::Fixed => &mut means.fixed_ns,
        }
    }
}

/// Whether a tick has a cost of its own in the fit, or the cost of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TickCost {
    Separate,
    SameAsInterrupt,
}

/// The costs that the rows can determine.
///
/// The cost of an interrupt and of an event are always fitted. The latency of a scheme that waits for a
/// wake-up determines the wake-up latency, and the latency of `yield` determines the yield. The latency of
/// a scheme that does neither determines the fixed latency.
fn determinable_costs(observations: &[Observation], tick_cost: TickCost) -> Vec<Cost> {
    let has_latency_of = |is_wanted: fn(Scheme) -> bool| {
        observations.iter().any(|row| row.latency_mean_ns.is_some() && is_wanted(row.scheme))
    };
    let wakes = has_latency_of(|scheme| {
        !scheme.is_by_polling() && !matches!(scheme, Scheme::Clocked { .. })
    });
    let yields = has_latency_of(|scheme| scheme == Scheme::SpinYield);
    let does_neither =
        has_latency_of(|scheme| matches!(scheme, Scheme::Spin | Scheme::Clocked { .. }));
    let mut costs = vec![Cost::Interrupt];
    costs.extend((tick_cost == TickCost::Separate).then_some(Cost::Tick));
    costs.push(Cost::Event);
    costs.extend(wakes.then_some(Cost::Wake));
    costs.extend(yields.then_some(Cost::Yield));
    costs.extend(does_neither.then_some(Cost::Fixed));
    costs
}

/// A measured figure that the fit uses: the prediction's error, relative to the figure.
struct Figure {
    /// A latency; otherwise a CPU time.
    is_latency: bool,
    error: f64,
    /// Square of the relative standard error of the measured figure.
    variance: f64,
}

/// The relative error of a fitted figure at costs where no closed form holds. It is large, so that costs
/// without a form are never an improvement.
const NO_FORM_ERROR: f64 = 1.0;

/// The closed form of a row, with the counted interrupts instead of the form's where they are known; or the
/// reason why no form holds.
fn predict_row(row: &Observation, means: &Means) -> Result<Form, &'static str> {
    if row.throughput_hz.is_some_and(|throughput| throughput < KEEPS_UP_RATIO * row.rate_hz) {
        return Err("overloaded: fewer events were handled than offered");
    }
    if row.rate_hz >= capacity(row.scheme, means, None) {
        return Err(OVER_CAPACITY);
    }
    let mut form = closed_form(row.scheme, means, row.rate_hz / 1e9, None, None)?;
    // The CPU time of `interrupt` has C in each event's service already, not per counted interrupt.
    if let Some(interrupts_hz) = row.interrupts_hz
        && row.scheme != Scheme::Interrupt
    {
        form.utilisation_ratio += (interrupts_hz / 1e9 - form.interrupts_per_ns)
            * means.for_scheme(row.scheme).interrupt_ns;
    }
    Ok(form)
}

/// Reason of a row whose rate is above the capacity at these costs, although the measured system kept up.
const OVER_CAPACITY: &str = "the fitted costs would not keep up with it";

/// The errors of all figures that are not excluded, at these costs. `None`: the costs are impossible, because a row
/// that kept up would not keep up at them.
fn figures_at(
    observations: &[Observation],
    excluded: &[Excluded],
    means: &Means,
) -> Option<Vec<Figure>> {
    let mut figures = Vec::with_capacity(2 * observations.len());
    for (row, excluded) in observations.iter().zip(excluded) {
        let form = predict_row(row, means);
        if form.is_err_and(|reason| reason == OVER_CAPACITY) {
            return None;
        }
        let mut add = |is_latency,
                       (measured, standard_error): (Option<f64>, Option<f64>),
                       predicted: Result<f64, _>| {
            if let Some(measured) = measured {
                let variance = (standard_error.unwrap_or(0.0) / measured).powi(2);
                let error = predicted.map_or(NO_FORM_ERROR, |predicted| predicted / measured - 1.0);
                figures.push(Figure { is_latency, error, variance });
            }
        };
        if !excluded.cpu {
            let measured = (row.cpu_ratio, row.cpu_standard_error_ratio);
            add(false, measured, form.map(|form| form.utilisation_ratio));
        }
        if !excluded.latency {
            let measured = (row.latency_mean_ns, row.latency_standard_error_ns);
            add(true, measured, form.and_then(|form| form.latency_ns));
        }
    }
    Some(figures)
}

/// The figures of a row that the fit ignores.
#[derive(Clone, Copy, Debug, Default)]
struct Excluded {
    cpu: bool,
    latency: bool,
}

/// For each row, the figures without a closed form at these costs.
fn figures_without_form(observations: &[Observation], means: &Means) -> Vec<Excluded> {
    let excluded_from = |row: &Observation| {
        let form = predict_row(row, means);
        Excluded { cpu: form.is_err(), latency: form.and_then(|form| form.latency_ns).is_err() }
    };
    observations.iter().map(excluded_from).collect()
}

/// The errors of the predictions for all rows, in their order. A row without a closed form has the reason in `left_out`.
fn residuals(observations: &[Observation], means: &Means) -> Vec<Residual> {
    let residual_of = |(row, observation): (usize, &Observation)| {
        let form = predict_row(observation, means);
        let cpu_ratio = form.ok().map(|form| form.utilisation_ratio);
        let latency = form.and_then(|form| form.latency_ns);
        let relative_error =
            |predicted: Option<f64>, measured: Option<f64>| Some(predicted? / measured? - 1.0);
        Residual {
            row,
            cpu_ratio,
            latency_mean_ns: latency.ok(),
            cpu_error_ratio: relative_error(cpu_ratio, observation.cpu_ratio),
            latency_error_ratio: relative_error(latency.ok(), observation.latency_mean_ns),
            left_out: latency.err(),
        }
    };
    observations.iter().enumerate().map(residual_of).collect()
}

/// Fits the costs to measurements.
///
/// Fails with a [`FitError`], in particular when the rows cannot separate C and alpha. Rows of `interrupt`
/// alone cannot: their CPU time depends only on C + alpha.
pub fn fit(observations: &[Observation], start: &Start) -> Result<Fit, FitError> {
    check(observations)?;
    let has_cpu_time_of = |is_wanted: fn(Scheme) -> bool| {
        observations.iter().any(|row| row.cpu_ratio.is_some() && is_wanted(row.scheme))
    };
    let has_interrupts = |scheme: Scheme| !scheme.is_by_clock() && !scheme.is_by_polling();
    if has_cpu_time_of(Scheme::is_by_clock) && has_cpu_time_of(has_interrupts) {
        match fit_costs(observations, start, TickCost::Separate) {
            // The rows cannot separate ticks from interrupts: fit one cost for both.
            Err(FitError::TooFew { .. } | FitError::Undetermined(_)) => {}
            fitted => return fitted,
        }
    }
    fit_costs(observations, start, TickCost::SameAsInterrupt)
}

/// Fits the costs that the observations determine. Starts at the best point of a grid, and re-weights the rows
/// [`REWEIGHTING_COUNT`] times. Each time, the figures without a closed form at the current costs are excluded first,
/// because the search compares errors of equal numbers of figures.
///
/// Fails if there are no more figures than costs, or if no costs fit.
fn fit_costs(
    observations: &[Observation],
    start: &Start,
    tick_cost: TickCost,
) -> Result<Fit, FitError> {
    let costs = determinable_costs(observations, tick_cost);
    let rows_that_kept_up = observations.iter().filter(|row| {
        row.throughput_hz.is_none_or(|throughput| throughput >= KEEPS_UP_RATIO * row.rate_hz)
    });
    let figure_count = rows_that_kept_up
        .map(|row| {
            usize::from(row.cpu_ratio.is_some()) + usize::from(row.latency_mean_ns.is_some())
        })
        .sum();
    if figure_count <= costs.len() {
        return Err(FitError::TooFew { figures: figure_count, costs: costs.len() });
    }
    let exclude_overloaded = |row: &Observation| {
        let is_overloaded = predict_row(row, &Means::FREE).is_err();
        Excluded { cpu: is_overloaded, latency: is_overloaded }
    };
    let excluded = observations.iter().map(exclude_overloaded).collect();
    let mut problem = Problem { observations, costs, excluded, spreads: [1.0; 2] };
    let mut means = problem.best_grid_point(start).ok_or(FitError::NoCosts)?;
    for _ in 0..REWEIGHTING_COUNT {
        problem.exclude_without_form(&means);
        means = problem.search(means);
        problem.update_spreads(&means);
    }
    problem.exclude_without_form(&means);
    means = problem.search(means);
    problem.fit_at(means)
}

/// Fails with [`FitError::Invalid`] at the first row that has a value out of its range.
fn check(observations: &[Observation]) -> Result<(), FitError> {
    let is_positive = |value: Option<f64>| value.is_none_or(|value| value > 0.0 && value < 1e18);
    let is_rate = |rate: Option<f64>| rate.is_none_or(|rate| (0.0..1e18).contains(&rate));
    let is_error = is_rate;
    for (row, observation) in observations.iter().enumerate() {
        let reason = if !(observation.rate_hz > 0.0 && observation.rate_hz <= 1e9) {
            "the rate must be above 0, at most 1000000000 events/s"
        } else if !is_positive(observation.cpu_ratio) {
            "the CPU time must be above 0"
        } else if !is_positive(observation.latency_mean_ns) {
            "the latency must be above 0"
        } else if !(is_error(observation.cpu_standard_error_ratio)
            && is_error(observation.latency_standard_error_ns))
        {
            "a standard error must be a number, 0 or more"
        } else if !(is_rate(observation.throughput_hz) && is_rate(observation.interrupts_hz)) {
            "the throughput and the interrupt rate must be numbers, 0 or more"
        } else if row >= OBSERVATIONS_MAX {
            "there are more than 10000 observations"
        } else {
            continue;
        };
        return Err(FitError::Invalid { row, reason });
    }
    Ok(())
}

/// The least-squares problem at the current weights.
struct Problem<'a> {
    observations: &'a [Observation],
    /// The costs that the search varies.
    costs: Vec<Cost>,
    /// One value per observation.
    excluded: Vec<Excluded>,
    /// The model's own spread of relative errors, without the measurement's error. Index 0: of CPU time; 1: of latency.
    spreads: [f64; 2],
}

/// The model's own spread s of relative errors. It makes the mean square of error / sqrt(s² + `variance`)
/// equal to 1 (Paule and Mandel, Consensus values and weighting factors, J. Res. NBS 87, 1982).
/// [`SPREAD_MIN`] where the measurement's variance alone explains the errors.
fn spread(figures: &[&Figure]) -> f64 {
    let excess = |square: f64| {
        let terms =
            figures.iter().map(|figure| figure.error * figure.error / (square + figure.variance));
        terms.sum::<f64>() - figures.len() as f64
    };
    let largest = figures.iter().map(|figure| figure.error * figure.error).fold(0.0, f64::max);
    let (mut low, mut high) = (SPREAD_MIN * SPREAD_MIN, largest);
    if high <= low || excess(low) <= 0.0 {
        return SPREAD_MIN;
    }
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if excess(middle) > 0.0 { low = middle } else { high = middle }
    }
    (low * high).sqrt().sqrt()
}

impl Problem<'_> {
    /// The weighted errors of all figures that are not excluded. `None`: the costs are impossible.
    fn errors(&self, means: &Means) -> Option<Vec<f64>> {
        let weighted = |Figure { is_latency, error, variance }: Figure| {
            error / (self.spreads[usize::from(is_latency)].powi(2) + variance).sqrt()
        };
        Some(
            figures_at(self.observations, &self.excluded, means)?
                .into_iter()
                .map(weighted)
                .collect(),
        )
    }

    /// The sum of the squared errors, which the search minimises. Infinite where the costs are impossible.
    fn badness(&self, means: &Means) -> f64 {
        self.errors(means)
            .map_or(f64::INFINITY, |errors| errors.iter().map(|error| error * error).sum())
    }

    /// Start of the search: the best point of a grid over C and alpha (1 ns to 10 ms, 4 points per decade),
    /// with all other fitted costs at 0. `None`: no point of the grid is possible.
    fn best_grid_point(&self, start: &Start) -> Option<Means> {
        let grid = |max: i32| (0..=max).map(|step| 10.0_f64.powf(f64::from(step) / 4.0));
        let mut best: Option<(f64, Means)> = None;
        for event_ns in grid(28) {
            for interrupt_ns in grid(28) {
                let poll_ns = start.poll_ns.max(1) as f64;
                let means = Means { interrupt_ns, event_ns, poll_ns, ..Means::FREE };
                let badness = self.badness(&means);
                if badness.is_finite() && best.is_none_or(|(lowest, _)| badness < lowest) {
                    best = Some((badness, means));
                }
            }
        }
        best.map(|(_, means)| means)
    }

    /// Derivatives of the errors: a column for each cost. A column of zeros where neither direction has an
    /// error for each figure.
    fn derivatives(&self, means: &Means, errors: &[f64]) -> Vec<Vec<f64>> {
        let column = |cost: &Cost| {
            let value = *cost.mean_in(&mut means.clone());
            let step_width = (value * 1e-5).max(1e-3);
            let moved_costs = [step_width, -step_width].map(|step| {
                let mut moved_means = *means;
                *cost.mean_in(&mut moved_means) += step;
                (step, moved_means)
            });
            // A larger cost may be impossible. Then the derivative comes from a smaller one.
            let slopes = moved_costs.iter().find_map(|(step, moved_costs)| {
                let moved_errors = self.errors(moved_costs)?;
                let slope = |(moved_error, error): (&f64, &f64)| (moved_error - error) / step;
                (moved_errors.len() == errors.len())
                    .then(|| moved_errors.iter().zip(errors).map(slope).collect())
            });
            slopes.unwrap_or_else(|| vec![0.0; errors.len()])
        };
        self.costs.iter().map(column).collect()
    }

    /// The best costs near `means` at the current weights (Levenberg and Marquardt). All costs stay at 0 or more.
    /// `damping` falls after each step that improves the fit, and rises after each that does not.
    fn search(&self, mut means: Means) -> Means {
        let mut damping = 1e-3;
        let mut badness = self.badness(&means);
        for _ in 0..STEPS_MAX {
            let Some(errors) = self.errors(&means) else { break };
            let derivatives = self.derivatives(&means, &errors);
            let gradient: Vec<f64> =
                derivatives.iter().map(|column| dot(column, &errors)).collect();
            // A cost at 0 whose slope leads below 0 is not free: it stays at 0.
            let values: Vec<f64> =
                self.costs.iter().map(|cost| *cost.mean_in(&mut means.clone())).collect();
            let free_costs: Vec<usize> = (0..values.len())
                .filter(|&cost| values[cost] > 0.0 || gradient[cost] < 0.0)
                .collect();
            let mut has_improved = false;
            while damping < 1e12 {
                let mut matrix = normal_matrix(&derivatives, &free_costs);
                for (cost, row) in matrix.iter_mut().enumerate() {
                    row[cost] += damping * row[cost].max(1e-30);
                }
                let Some(inverse) = invert(&matrix) else {
                    damping *= 10.0;
                    continue;
                };
                let mut moved_means = means;
                for (cost, row) in free_costs.iter().zip(&inverse) {
                    let step: f64 = free_costs
                        .iter()
                        .zip(row)
                        .map(|(other_cost, x)| x * gradient[*other_cost])
                        .sum();
                    let value = self.costs[*cost].mean_in(&mut moved_means);
                    *value = (*value - step).max(0.0);
                }
                moved_means.event_ns = moved_means.event_ns.max(1e-3);
                let moved_badness = self.badness(&moved_means);
                if moved_badness < badness {
                    has_improved = badness - moved_badness > 1e-12 * badness;
                    (means, badness) = (moved_means, moved_badness);
                    damping = (damping / 10.0).max(1e-12);
                    break;
                }
                damping *= 10.0;
            }
            if !has_improved {
                break;
            }
            damping = damping.min(1e6);
        }
        means
    }

    /// Excludes the figures without a closed form at `means`.
    fn exclude_without_form(&mut self, means: &Means) {
        self.excluded = figures_without_form(self.observations, means);
    }

    /// Sets the spreads from the errors of CPU time and of latency at `means`.
    fn update_spreads(&mut self, means: &Means) {
        let Some(figures) = figures_at(self.observations, &self.excluded, means) else { return };
        for (kind, kind_spread) in self.spreads.iter_mut().enumerate() {
            let figures_of_kind: Vec<&Figure> =
                figures.iter().filter(|figure| usize::from(figure.is_latency) == kind).collect();
            if !figures_of_kind.is_empty() {
                *kind_spread = spread(&figures_of_kind);
            }
        }
    }

    /// The fit with these costs: their intervals, and the residuals of all rows. Fails
    /// if the figures leave costs undetermined.
    fn fit_at(&self, means: Means) -> Result<Fit, FitError> {
        let errors = self.errors(&means).ok_or(FitError::NoCosts)?;
        let derivatives = self.derivatives(&means, &errors);
        let value = |cost: &Cost| *cost.mean_in(&mut means.clone());
        let free_costs: Vec<usize> =
            (0..self.costs.len()).filter(|&cost| value(&self.costs[cost]) > 0.0).collect();
        let inverse = invert(&normal_matrix(&derivatives, &free_costs))
            .ok_or_else(|| self.undetermined_error(&free_costs))?;
        let matrix = normal_matrix(&derivatives, &free_costs);
        // 1 / (matrix * inverse) on the diagonal is the part of a cost's derivative that the derivatives of
        // the other costs do not explain.
        let is_undetermined =
            |index: usize| 1.0 / (matrix[index][index] * inverse[index][index]) < CONDITION_MIN;
        let undetermined_costs: Vec<usize> = (0..free_costs.len())
            .filter(|&index| is_undetermined(index))
            .map(|index| free_costs[index])
            .collect();
        if !undetermined_costs.is_empty() {
            return Err(self.undetermined_error(&undetermined_costs));
        }
        let degrees_of_freedom = errors.len().saturating_sub(free_costs.len());
        let variance = dot(&errors, &errors) / degrees_of_freedom.max(1) as f64;
        let estimate = |(index, cost): (usize, &Cost)| {
            let position = free_costs.iter().position(|cost| *cost == index);
            let half_width_ns = position
                .zip(t_95(degrees_of_freedom as u64))
                .map(|(position, t)| t * (variance * inverse[position][position]).sqrt());
            let value_ns = value(cost);
            let interval_ns =
                half_width_ns.map(|half_ns| ((value_ns - half_ns).max(0.0), value_ns + half_ns));
            Estimate { name: cost.name(), value_ns, interval_ns }
        };
        Ok(Fit {
            estimates: self.costs.iter().enumerate().map(estimate).collect(),
            residuals: residuals(self.observations, &means),
            figures: errors.len(),
            means,
        })
    }

    /// The error for costs that the figures leave undetermined, given as indices into `self.costs`.
    fn undetermined_error(&self, costs: &[usize]) -> FitError {
        let names: Vec<&str> = costs.iter().map(|cost| self.costs[*cost].name()).collect();
        FitError::Undetermined(names.join(", "))
    }
}

/// The dot product of two vectors of equal length.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The normal matrix: the dot products of the selected columns with each other.
fn normal_matrix(columns: &[Vec<f64>], selected: &[usize]) -> Vec<Vec<f64>> {
    let row = |column: &usize| {
        selected
            .iter()
            .map(|other_column| dot(&columns[*column], &columns[*other_column]))
            .collect()
    };
    selected.iter().map(row).collect()
}

/// The inverse of a symmetric matrix with a positive diagonal: Gauss and Jordan, with the matrix scaled to a diagonal
/// of 1. `None` if the matrix has no inverse.
fn invert(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    let scale: Vec<f64> = (0..size).map(|index| matrix[index][index].sqrt()).collect();
    if scale.iter().any(|scale| !scale.is_normal()) {
        return None;
    }
    let mut reduced: Vec<Vec<f64>> = (0..size)
        .map(|i| (0..size).map(|j| matrix[i][j] / (scale[i] * scale[j])).collect())
        .collect();
    let mut inverse: Vec<Vec<f64>> =
        (0..size).map(|i| (0..size).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for column in 0..size {
        let pivot = (column..size)
            .max_by(|&a, &b| reduced[a][column].abs().total_cmp(&reduced[b][column].abs()))?;
        if reduced[pivot][column].abs() < 1e-14 {
            return None;
        }
        reduced.swap(column, pivot);
        inverse.swap(column, pivot);
        let divisor = reduced[column][column];
        for entry in 0..size {
            reduced[column][entry] /= divisor;
            inverse[column][entry] /= divisor;
        }
        for row in (0..size).filter(|row| *row != column) {
            let factor = reduced[row][column];
            for entry in 0..size {
                reduced[row][entry] -= factor * reduced[column][entry];
                inverse[row][entry] -= factor * inverse[column][entry];
            }
        }
    }
    for (i, row) in inverse.iter_mut().enumerate() {
        row.iter_mut().enumerate().for_each(|(j, value)| *value /= scale[i] * scale[j]);
    }
    Some(inverse)
}

/// Chooses rows to fit and rows to hold out. Returns the indices of both, in this order, each ascending. The part
/// `ratio` of all `count` rows, rounded, is held out; `seed` chooses which.
#[must_use]
pub fn hold_out(count: usize, ratio: f64, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let mut rows: Vec<usize> = (0..count).collect();
    Random::new(seed).shuffle(&mut rows);
    let held_out_count = ((count as f64 * ratio.clamp(0.0, 1.0)).round() as usize).min(count);
    let mut fitted_rows = rows.split_off(held_out_count);
    let mut held_out_rows = rows;
    fitted_rows.sort_unstable();
    held_out_rows.sort_unstable();
    (fitted_rows, held_out_rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{Workload, predict};

    fn costs() -> Costs {
        let tick = Some(Times::Constant(9_100));
        Costs { tick, wake_ns: 6_000, fixed_ns: 9_000, ..Costs::constant(4_200, 730) }
    }

    /// Observations with the predicted figures, each times a factor from `noise`.
    fn rows(mut noise: impl FnMut() -> f64) -> Vec<Observation> {
        let mut rows = Vec::new();
        for scheme in
            Scheme::list("interrupt,drain,spin,yield,clocked:1ms,clocked:250us,deferred:50us")
                .unwrap()
        {
            for rate_hz in [5_000, 10_000, 20_000, 50_000, 100_000] {
                let workload = Workload { rate_hz, ring: 4_096, user_slice_ns: None };
                let form = predict(scheme, &costs(), &workload).unwrap();
                rows.push(Observation {
                    cpu_ratio: Some(form.utilisation_ratio * noise()),
                    latency_mean_ns: form.latency_mean_ns.map(|ns| ns * noise()),
                    ..Observation::new(scheme, rate_hz as f64)
                });
            }
        }
        rows
    }

    #[test]
    fn exact_figures_give_the_costs_back() {
        let fit = fit(&rows(|| 1.0), &Start::default()).unwrap();
        assert_eq!(fit.costs(), costs());
        assert!(fit.residuals.iter().all(|row| row.latency_error_ratio.unwrap().abs() < 1e-6));
        assert_eq!(fit.figures, 70);
    }

    /// 19 of 20 intervals hold the cost, for errors that are independent.
    #[test]
    fn intervals_hold_the_costs_as_often_as_they_say() {
        let mut random = Random::new(11);
        let (mut inside, mut all) = (0, 0);
        for _ in 0..40 {
            let rows = rows(|| 1.0 + 0.05 * (random.unit() + random.unit() - 1.0));
            let fit = fit(&rows, &Start::default()).unwrap();
            for (name, truth) in [
                ("interrupt_ns", 4_200.0),
                ("tick_ns", 9_100.0),
                ("event_ns", 730.0),
                ("wake_ns", 6_000.0),
                ("fixed_ns", 9_000.0),
            ] {
                let (low, high) = fit.estimate(name).unwrap().interval_ns.unwrap();
                inside += u32::from(low <= truth && truth <= high);
                all += 1;
            }
        }
        assert!(inside * 100 >= all * 88 && inside < all, "{inside} of {all}");
    }

    #[test]
    fn interrupts_alone_leave_c_and_alpha_open() {
        let row = |rate_hz: f64| Observation {
            cpu_ratio: Some(rate_hz * 5e-6),
            ..Observation::new(Scheme::Interrupt, rate_hz)
        };
        let rows: Vec<Observation> = [1e3, 2e3, 5e3, 1e4].map(row).to_vec();
        let error = fit(&rows, &Start::default()).unwrap_err();
        assert!(error.to_string().contains("interrupt_ns, event_ns"), "{error}");
        assert_eq!(
            fit(&rows[..2], &Start::default()).unwrap_err(),
            FitError::TooFew { figures: 2, costs: 2 }
        );
        for spoil in [
            (|row| row.cpu_ratio = Some(0.0)) as fn(&mut Observation),
            |row| row.latency_mean_ns = Some(f64::NAN),
            |row| row.rate_hz = 0.0,
            |row| (row.throughput_hz, row.interrupts_hz) = (Some(1e3), Some(f64::INFINITY)),
            |row| row.throughput_hz = Some(-1.0),
        ] {
            let mut bad = rows.clone();
            spoil(&mut bad[1]);
            assert!(matches!(fit(&bad, &Start::default()), Err(FitError::Invalid { row: 1, .. })));
        }
    }

    #[test]
    fn one_scheme_that_drains_determines_all_but_what_is_fixed() {
        let fit_to = |scheme: &str, cpu: bool| {
            let mut rows = rows(|| 1.0);
            rows.retain(|row| row.scheme.name() == scheme);
            for row in &mut rows {
                // No row shows the fixed latency alone, so the fit cannot separate it from the wake-up latency.
                row.latency_mean_ns = row.latency_mean_ns.map(|ns| ns - 9_000.0);
                if !cpu {
                    row.cpu_ratio = None;
                }
            }
            fit(&rows, &Start::default()).map(|fit| fit.costs())
        };
        // One scheme has one cost of what makes it look: an interrupt's or a tick's.
        let expected = Costs { fixed_ns: 0, yield_ns: 0, tick: None, ..costs() };
        assert_eq!(fit_to("drain", true), Ok(expected.clone()));
        let ticks = Costs { interrupt: costs().tick.unwrap(), ..expected };
        assert_eq!(fit_to("deferred", true), Ok(ticks));
        // An interrupt and a wake-up delay alike; only CPU time tells them apart.
        let open = FitError::Undetermined("interrupt_ns, wake_ns".to_owned());
        assert_eq!(fit_to("drain", false), Err(open));
    }

    /// Counted interrupts or ticks replace the predicted number: here a third more are counted.
    #[test]
    fn counted_interrupts_have_their_cost() {
        let mut rows = rows(|| 1.0);
        for row in rows.iter_mut().filter(|row| row.scheme.name() == "deferred") {
            let workload =
                Workload { rate_hz: row.rate_hz as u64, ring: 4_096, user_slice_ns: None };
            let form = predict(row.scheme, &costs(), &workload).unwrap();
            let more_hz = form.interrupts_hz / 3.0;
            row.interrupts_hz = Some(form.interrupts_hz + more_hz);
            row.cpu_ratio = row.cpu_ratio.map(|ratio| ratio + more_hz * 9_100e-9);
        }
        // CPU time alone, of schemes whose CPU time does not depend on the wake-up latency otherwise.
        rows.retain(|row| matches!(row.scheme.name(), "deferred" | "clocked" | "interrupt"));
        rows.iter_mut().for_each(|row| row.latency_mean_ns = None);
        let (interrupt, event) = (costs().interrupt, costs().event);
        let costs_of = |fit: Fit| (fit.costs().interrupt, fit.costs().event);
        assert_eq!(
            fit(&rows, &Start::default()).map(costs_of),
            Ok((interrupt.clone(), event.clone()))
        );
        rows.iter_mut().for_each(|row| row.interrupts_hz = None);
        assert_ne!(fit(&rows, &Start::default()).map(costs_of), Ok((interrupt, event)));
    }

    /// A noisy row that says so does not move the costs; one that does not, does.
    #[test]
    fn rows_weigh_by_what_was_measured_of_their_error() {
        let fitted = |error: Option<f64>| {
            let mut random = Random::new(5);
            let mut rows = rows(|| 1.0 + 0.02 * (random.unit() - 0.5));
            for row in rows.iter_mut().filter(|row| row.scheme.name() == "clocked") {
                row.cpu_ratio = row.cpu_ratio.map(|ratio| ratio / 2.0);
                row.cpu_standard_error_ratio =
                    row.cpu_ratio.zip(error).map(|(ratio, part)| ratio * part);
            }
            fit(&rows, &Start::default()).unwrap().estimate("tick_ns").unwrap().value_ns
        };
        assert!((fitted(Some(1.0)) / 9_100.0 - 1.0).abs() < 0.02, "{}", fitted(Some(1.0)));
        assert!(fitted(None) < 0.9 * 9_100.0, "{}", fitted(None));
    }

    #[test]
    fn spreads_are_what_the_measurement_does_not_explain() {
        let figure = |error: f64, variance: f64| Figure { is_latency: false, error, variance };
        let figures = [figure(0.05, 9e-4), figure(-0.05, 9e-4), figure(0.05, 9e-4)];
        let list: Vec<&Figure> = figures.iter().collect();
        assert!((spread(&list) - 0.04).abs() < 1e-6, "{}", spread(&list));
        assert_eq!(spread(&[&figure(0.01, 1.0)]), SPREAD_MIN);
        assert_eq!(spread(&[&figure(0.0, 0.0)]), SPREAD_MIN);
    }

    #[test]
    fn overloaded_rows_have_no_part() {
        let mut rows = rows(|| 1.0);
        let overloaded = Observation {
            rate_hz: 900_000.0,
            throughput_hz: Some(200_000.0),
            cpu_ratio: Some(1.0),
            latency_mean_ns: Some(1e9),
            ..rows[0]
        };
        rows.push(overloaded);
        let fit = fit(&rows, &Start::default()).unwrap();
        assert_eq!(fit.costs(), costs());
        assert!(fit.residuals.last().unwrap().left_out.unwrap().contains("overloaded"));
    }

    #[test]
    fn rows_are_held_out_by_seed() {
        let (kept, held) = hold_out(50, 0.3, 7);
        assert_eq!((kept.len(), held.len()), (35, 15));
        let mut all = [kept, held.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<_>>());
        assert_eq!(held, hold_out(50, 0.3, 7).1);
        assert_ne!(held, hold_out(50, 0.3, 8).1);
    }
}
