//! The choice between schemes: at which rates a scheme becomes cheaper than another ([`crossovers`]), where it
//! keeps a latency bound ([`kept_ranges`]), and which is the cheapest that keeps a bound ([`regions`]). "Cheap" means
//! low CPU use. `verdict` has the verdicts on all requirements.
//!
//! The models in `lab::signal` (`irqlab signal model` and `advise`) call these functions. The argument `ask`
//! of several functions returns the figures of a scheme at a rate, events per second; it is
//! [`evaluate`](crate::evaluate()) with the caller's costs. An answer may cost a simulation.

use crate::evaluate::{Answer, Decision, IntervalEnds, Method};
use crate::predict::Prediction;
use crate::scheme::Scheme;

/// Steps of a curve from one end of a range of rates to the other. Bisection locates a change between two points.
const POINTS: u32 = 24;
/// Bisection steps between two points of a curve: to about 1 in 1,000 of a decade.
const HALVINGS: u32 = 8;
/// Two schemes cost the same if their CPU use differs by less.
pub(crate) const SAME_RATIO: f64 = 1e-9;
/// Simulated schemes cost the same if their CPU use differs by less than this number of half widths of the difference's
/// 95 % interval. It is above 1 because many pairs of schemes are compared at many rates.
const SAME_HALF_WIDTHS: f64 = 2.0;

/// The statistic of the latency that a bound limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    Mean,
    P50,
    P99,
    /// The 99.9th percentile.
    P999,
}

impl Statistic {
    /// All statistics, with their names on the command line and in tables.
    pub const ALL: [(Statistic, &'static str); 4] = [
        (Statistic::Mean, "mean"),
        (Statistic::P50, "p50"),
        (Statistic::P99, "p99"),
        (Statistic::P999, "p99.9"),
    ];

    /// The name on the command line and in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        Statistic::ALL
            .iter()
            .find(|(statistic, _)| *statistic == self)
            .map_or("", |(_, label)| label)
    }

    /// The 95 % interval of this statistic of an answer's latency, ns. Both ends are the figure itself for a closed form
    /// with exact costs.
    #[must_use]
    pub fn interval(self, answer: &Answer) -> IntervalEnds {
        answer.over_costs(|answer| self.interval_at_costs(answer))
    }

    /// [`Statistic::interval`] without the intervals of the costs.
    fn interval_at_costs(self, answer: &Answer) -> IntervalEnds {
        let figure_ns = self.value_in(&answer.prediction);
        match (self, answer.intervals) {
            (_, None) => figure_ns.map(IntervalEnds::exact).unwrap_or_default(),
            (Statistic::Mean, Some(_)) => {
                let ends = figure_ns.zip(answer.latency_half_width_ns);
                ends.map_or_else(IntervalEnds::default, |(mean_ns, half_width_ns)| IntervalEnds {
                    low: Some((mean_ns - half_width_ns).max(0.0)),
                    high: Some(mean_ns + half_width_ns),
                })
            }
            (Statistic::P50, Some(intervals)) => intervals.p50_ns,
            (Statistic::P99, Some(intervals)) => intervals.p99_ns,
            (Statistic::P999, Some(intervals)) => intervals.p999_ns,
        }
    }

    /// This statistic of a prediction's latency, ns. `None`: the prediction lacks it. Most closed forms have only the
    /// mean.
    #[must_use]
    pub fn value_in(self, prediction: &Prediction) -> Option<f64> {
        let to_float = |ns: Option<u64>| ns.map(|ns| ns as f64);
        match self {
            Statistic::Mean => prediction.latency_mean_ns,
            Statistic::P50 => to_float(prediction.latency.p50_ns),
            Statistic::P99 => to_float(prediction.latency.p99_ns),
            Statistic::P999 => to_float(prediction.latency.p999_ns),
        }
    }
}

/// Events per second, both ends included; `low_hz` is at least 1 and not above `high_hz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRange {
    pub low_hz: u64,
    pub high_hz: u64,
}

impl RateRange {
    /// The rates at which curves are computed: from the lowest to the highest, at equal ratios.
    #[must_use]
    pub fn points(self) -> Vec<u64> {
        self.steps(POINTS)
    }

    /// Rates from the lowest to the highest, at equal ratios: `count + 1` rates, or fewer where two of them round
    /// to the same whole number.
    #[must_use]
    pub fn steps(self, count: u32) -> Vec<u64> {
        let count = count.max(1);
        let ratio = (self.high_hz as f64 / self.low_hz as f64).powf(1.0 / f64::from(count));
        let point = |step: u32| (self.low_hz as f64 * ratio.powf(f64::from(step))).round() as u64;
        let mut points: Vec<u64> = (0..count).map(point).collect();
        points.push(self.high_hz);
        points.dedup();
        points
    }
}

/// A rate at which the CPU use of two schemes is equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossover {
    /// The rate, events per second; exact to about 1 in 1,000.
    pub rate_hz: u64,
    /// The scheme that is cheaper at lower rates.
    pub below: Scheme,
    /// The scheme that is cheaper at higher rates.
    pub above: Scheme,
    /// CPU use of both schemes at the rate.
    pub cpu_ratio: f64,
    /// [`Method::Simulation`] if the CPU use of either scheme was simulated.
    pub method: Method,
}

/// A scheme keeps a latency bound at all rates of this range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    pub scheme: Scheme,
    /// Lowest rate, events per second.
    pub from_hz: u64,
    /// Highest rate, events per second.
    pub to_hz: u64,
    /// [`Method::Simulation`] if any answer was simulated.
    pub method: Method,
}

/// The answers of one scheme at several rates.
#[derive(Clone, Debug)]
pub struct Curve {
    pub scheme: Scheme,
    /// Rate, events per second, and its answer; ascending by rate.
    pub points: Vec<(u64, Answer)>,
}

/// Computes the curve of each scheme at the points of a range.
///
/// Fails with the first error of `ask`.
pub fn curves<E>(
    schemes: &[Scheme],
    range: RateRange,
    ask: &mut dyn FnMut(Scheme, u64) -> Result<Answer, E>,
) -> Result<Vec<Curve>, E> {
    curves_at(schemes, &range.points(), ask)
}

/// Computes the curve of each scheme at these rates, which must be ascending.
///
/// Fails with the first error of `ask`.
pub fn curves_at<E>(
    schemes: &[Scheme],
    points: &[u64],
    ask: &mut dyn FnMut(Scheme, u64) -> Result<Answer, E>,
) -> Result<Vec<Curve>, E> {
    let mut curves = Vec::with_capacity(schemes.len());
    for &scheme in schemes {
        let answer = |&rate_hz| Ok((rate_hz, ask(scheme, rate_hz)?));
        curves.push(Curve { scheme, points: points.iter().map(answer).collect::<Result<_, E>>()? });
    }
    Ok(curves)
}

/// The rates at which the CPU use of two schemes crosses, ascending. Both schemes keep up at every crossover. A
/// difference within the error of the simulation counts as no difference.
///
/// Fails with the first error of `ask`.
pub fn crossovers<E>(
    curves: &[Curve],
    ask: &mut dyn FnMut(Scheme, u64) -> Result<Answer, E>,
) -> Result<Vec<Crossover>, E> {
    let mut crossovers = Vec::new();
    for (index, first_curve) in curves.iter().enumerate() {
        for second_curve in &curves[index + 1..] {
            let pairs_of_points: Vec<_> =
                first_curve.points.iter().zip(&second_curve.points).collect();
            // The last rate at which the two schemes differed, and their difference: CPU use may be equal at
            // several points in a row before it crosses.
            let mut last_difference_seen: Option<(u64, f64)> = None;
            for ((rate_hz, first_answer), (_, second_answer)) in pairs_of_points {
                if !keeps_up(first_answer) || !keeps_up(second_answer) {
                    last_difference_seen = None;
                    continue;
                }
                let difference = cpu(first_answer) - cpu(second_answer);
                if difference.abs()
                    <= same_cpu_difference(cpu_error(first_answer), cpu_error(second_answer))
                {
                    continue;
                }
                if let Some((low_hz, low_difference)) = last_difference_seen
                    && (low_difference < 0.0) != (difference < 0.0)
                {
                    crossovers.push(locate_crossover(
                        first_curve.scheme,
                        second_curve.scheme,
                        (low_hz, *rate_hz),
                        low_difference,
                        ask,
                    )?);
                }
                last_difference_seen = Some((*rate_hz, difference));
            }
        }
    }
    crossovers.sort_by_key(|crossover| crossover.rate_hz);
    Ok(crossovers)
}

pub(crate) fn cpu(answer: &Answer) -> f64 {
    answer.prediction.utilisation_ratio
}

/// The 95 % interval of the CPU use, with the intervals of the costs.
pub(crate) fn cpu_interval(answer: &Answer) -> IntervalEnds {
    answer.over_costs(|answer| {
        let (ratio, half_width) = (cpu(answer), cpu_error(answer));
        IntervalEnds { low: Some(ratio - half_width), high: Some(ratio + half_width) }
    })
}

/// Half the width of the 95 % interval of the simulated CPU use, without the intervals of the costs, which all schemes
/// share. 0 for a closed form, and a whole CPU if the simulation is too short to tell.
pub(crate) fn cpu_error(answer: &Answer) -> f64 {
    answer.intervals.map_or(0.0, |intervals| intervals.cpu_half_width_ratio.unwrap_or(1.0))
}

/// The largest difference in CPU use of two schemes that cost the same, from the half widths of their CPU use.
pub(crate) fn same_cpu_difference(first_half_width: f64, second_half_width: f64) -> f64 {
    (SAME_HALF_WIDTHS * first_half_width.hypot(second_half_width)).max(SAME_RATIO)
}

/// Locates the crossover of two schemes between the rates `low_hz` and `high_hz` by bisection. `low_difference` is the
/// CPU use of `first` minus that of `second` at `low_hz`; at `high_hz` the difference has the other sign.
///
/// Fails with the first error of `ask`.
fn locate_crossover<E>(
    first_scheme: Scheme,
    second_scheme: Scheme,
    (mut low_hz, mut high_hz): (u64, u64),
    low_difference: f64,
    ask: &mut dyn FnMut(Scheme, u64) -> Result<Answer, E>,
) -> Result<Crossover, E> {
    for _ in 0..HALVINGS {
        let middle_hz = geometric_mean(low_hz, high_hz);
        let difference = cpu(&ask(first_scheme, middle_hz)?) - cpu(&ask(second_scheme, middle_hz)?);
        if (difference < 0.0) == (low_difference < 0.0) {
            low_hz = middle_hz;
        } else {
            high_hz = middle_hz;
        }
    }
    let rate_hz = geometric_mean(low_hz, high_hz);
    let answers = [ask(first_scheme, rate_hz)?, ask(second_scheme, rate_hz)?];
    let (below, above) = if low_difference < 0.0 {
        (first_scheme, second_scheme)
    } else {
        (second_scheme, first_scheme)
    };
    let cpu_ratio = f64::midpoint(cpu(&answers[0]), cpu(&answers[1]));
    Ok(Crossover { rate_hz, below, above, cpu_ratio, method: method(&answers) })
}

/// The geometric mean of two rates, rounded.
fn geometric_mean(low_hz: u64, high_hz: u64) -> u64 {
    ((low_hz as f64 * high_hz as f64).sqrt().round() as u64).clamp(low_hz, high_hz)
}

/// [`Method::Simulation`] if any answer was simulated.
fn method(answers: &[Answer]) -> Method {
    let is_simulated = answers.iter().any(|answer| answer.method == Method::Simulation);
    if is_simulated { Method::Simulation } else { Method::ClosedForm }
}

/// For each scheme, the ranges of rates over which its latency statistic is within the bound. Where a simulation
/// decides, the whole 95 % interval of the statistic is within the bound. Bisection locates the end of a range between
/// two points of a curve.
///
/// Fails with the first error of `ask`.
pub fn kept_ranges<E>(
    curves: &[Curve],
    statistic: Statistic,
    bound_ns: u64,
    ask: &mut dyn FnMut(Scheme, u64) -> Result<Answer, E>,
) -> Result<Vec<Kept>, E> {
    let keeps = |answer: &Answer| is_within(answer, statistic, bound_ns);
    let mut ranges = Vec::new();
    for curve in curves {
        let mut open_range: Option<Kept> = None;
        let mut previous_point: Option<(u64, bool)> = None;
        for (rate_hz, answer) in &curve.points {
            let (rate_hz, keeps_bound) = (*rate_hz, keeps(answer));
            // Where the previous point differs, the kept rate next to the change; else this rate.
            let edge_hz = match previous_point {
                Some((low_hz, kept_before)) if kept_before != keeps_bound => {
                    let (mut low_hz, mut high_hz) = (low_hz, rate_hz);
                    for _ in 0..HALVINGS {
                        let middle_hz = geometric_mean(low_hz, high_hz);
                        if keeps(&ask(curve.scheme, middle_hz)?) == kept_before {
                            low_hz = middle_hz;
                        } else {
                            high_hz = middle_hz;
                        }
                    }
                    if keeps_bound { high_hz } else { low_hz }
                }
                _ => rate_hz,
            };
            previous_point = Some((rate_hz, keeps_bound));
            if keeps_bound {
                let (scheme, method) = (curve.scheme, answer.method);
                let range = open_range.get_or_insert(Kept {
                    scheme,
                    from_hz: edge_hz,
                    to_hz: rate_hz,
                    method,
                });
                range.to_hz = rate_hz;
                if answer.method == Method::Simulation {
                    range.method = Method::Simulation;
                }
            } else if let Some(range) = open_range.take() {
                ranges.push(Kept { to_hz: edge_hz, ..range });
            }
        }
        ranges.extend(open_range);
    }
    Ok(ranges)
}

/// Whether the scheme keeps up, and its latency statistic is certainly within the bound.
fn is_within(answer: &Answer, statistic: Statistic, bound_ns: u64) -> bool {
    keeps_up(answer) && statistic.interval(answer).is_at_most(bound_ns as f64) == Decision::Yes
}

/// A scheme that loses this part of the events or more does not keep up.
pub const LOST_RATIO_MAX: f64 = 1e-4;

/// Whether the scheme loses less than one event in 10,000, by the interval of the lost part. Undecided if the answers at
/// the ends of the costs differ in that.
pub(crate) fn decide_keeps_up(answer: &Answer) -> Decision {
    let decision = decide_keeps_up_at_costs(answer);
    let is_the_same = |end: &Answer| decide_keeps_up_at_costs(end) == decision;
    if answer.at_cost_ends.iter().all(is_the_same) { decision } else { Decision::Undecided }
}

/// [`decide_keeps_up`] without the intervals of the costs.
fn decide_keeps_up_at_costs(answer: &Answer) -> Decision {
    if answer.is_over_capacity {
        return Decision::No;
    }
    answer
        .intervals
        .map_or(Decision::Yes, |intervals| intervals.lost_ratio.is_at_most(LOST_RATIO_MAX))
}

/// Whether the scheme lost less than one simulated event in 10,000.
fn keeps_up(answer: &Answer) -> bool {
    !answer.is_over_capacity && answer.prediction.drops_ratio.unwrap_or(0.0) < LOST_RATIO_MAX
}

/// The latency and the CPU use of a scheme that keeps up with a rate: an input of [`regions_at`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    pub scheme: Scheme,
    /// The statistic of the latency that has the bound, ns.
    pub latency_ns: f64,
    pub cpu_ratio: f64,
    /// How latency and CPU use were computed.
    pub method: Method,
}

/// A range of latency bounds at a rate, and the scheme that keeps these bounds with the least CPU use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    /// The rate, events per second.
    pub rate_hz: u64,
    pub scheme: Scheme,
    /// Smallest bound of the range, ns: the scheme's latency. For a simulated latency, the upper end of its interval.
    pub from_ns: f64,
    /// End of the range, ns, not included: from this bound on another scheme is cheaper. `None`: no end.
    pub to_ns: Option<f64>,
    pub cpu_ratio: f64,
    /// How the scheme's figures were computed.
    pub method: Method,
}

/// The regions at a rate, by ascending latency bound: each next scheme is slower and cheaper. If two offers
/// cost the same, the faster one has the region.
#[must_use]
pub fn regions_at(rate_hz: u64, offers: &[Offer]) -> Vec<Region> {
    let without_errors: Vec<(Offer, f64)> = offers.iter().map(|offer| (*offer, 0.0)).collect();
    regions_with_errors(rate_hz, without_errors)
}

/// The regions at a rate, by ascending latency bound. `offers`: each offer, and half the width of the 95 % interval of its
/// CPU use. A scheme is cheaper only if the difference exceeds the error.
fn regions_with_errors(rate_hz: u64, mut offers: Vec<(Offer, f64)>) -> Vec<Region> {
    offers.sort_by(|(a, _), (b, _)| {
        a.latency_ns.total_cmp(&b.latency_ns).then(a.cpu_ratio.total_cmp(&b.cpu_ratio))
    });
    let mut regions: Vec<Region> = Vec::new();
    let mut last_cpu_half_width = 0.0;
    for (Offer { scheme, latency_ns: from_ns, cpu_ratio, method }, cpu_half_width) in offers {
        if let Some(last_region) = regions.last_mut() {
            if cpu_ratio
                > last_region.cpu_ratio - same_cpu_difference(last_cpu_half_width, cpu_half_width)
            {
                continue;
            }
            last_region.to_ns = Some(from_ns);
        }
        last_cpu_half_width = cpu_half_width;
        regions.push(Region { rate_hz, scheme, from_ns, to_ns: None, cpu_ratio, method });
    }
    regions
}

/// [`regions_at`] for each point of the curves. The points of all curves are at the same rates. A simulated scheme
/// keeps the bounds from the upper end of its latency's interval on, and none if the interval has no upper end. It is
/// cheaper than another scheme only by more than the error.
#[must_use]
pub fn regions(curves: &[Curve], statistic: Statistic) -> Vec<Region> {
    let Some(first_curve) = curves.first() else { return Vec::new() };
    let regions_of_point = |(index, (rate_hz, _)): (usize, &(u64, Answer))| {
        let offers = curves.iter().filter_map(|curve| {
            let (_, answer) = curve.points.get(index).filter(|(_, answer)| keeps_up(answer))?;
            let offer = Offer {
                scheme: curve.scheme,
                latency_ns: statistic.interval(answer).high?,
                cpu_ratio: cpu(answer),
                method: answer.method,
            };
            Some((offer, cpu_error(answer)))
        });
        regions_with_errors(*rate_hz, offers.collect())
    };
    first_curve.points.iter().enumerate().flat_map(regions_of_point).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::arrivals::Arrivals;
    use crate::costs::Costs;
    use crate::evaluate::evaluate;
    use crate::simulate::{Simulation, SimulationError};

    /// The figures of a scheme with constant costs, by a closed form where there is one.
    pub(crate) fn ask(scheme: Scheme, rate_hz: u64) -> Result<Answer, SimulationError> {
        let simulation = Simulation {
            scheme,
            costs: Costs::constant(4_000, 1_000),
            arrivals: Arrivals::Poisson,
            rate_hz,
            ring: 1_024,
            user_slice_ns: None,
            application: None,
            quota: None,
            events: 20_000,
            warm_up: 1_000,
            seed: 1,
        };
        evaluate(&simulation, false)
    }

    #[test]
    fn a_region_is_where_no_cheaper_scheme_keeps_the_bound() {
        let offer = |scheme: &str, latency_ns, cpu_ratio| Offer {
            scheme: scheme.parse().unwrap(),
            latency_ns,
            cpu_ratio,
            method: Method::ClosedForm,
        };
        let offers = [
            offer("clocked:1ms", 500e3, 0.05),
            offer("spin", 1e3, 1.0),
            offer("drain", 5e3, 0.3),
            offer("interrupt", 6e3, 0.4),
            offer("deferred:50us", 500e3, 0.04),
            offer("yield", 1e3, 1.0),
        ];
        let found: Vec<_> = regions_at(7, &offers)
            .iter()
            .map(|region| (region.scheme.name(), region.from_ns, region.to_ns))
            .collect();
        let expected =
            [("spin", 1e3, Some(5e3)), ("drain", 5e3, Some(500e3)), ("deferred", 500e3, None)];
        assert_eq!(found, expected);
        assert_eq!(regions_at(7, &[]), []);
    }

    /// The winner of a region is the cheapest scheme that keeps a bound in the region.
    #[test]
    fn regions_agree_with_bounds() {
        let schemes = Scheme::list("interrupt,drain,spin,clocked:1ms,deferred:50us").unwrap();
        let rates = RateRange { low_hz: 1_000, high_hz: 900_000 }.steps(8);
        let curves = curves_at(&schemes, &rates, &mut ask).unwrap();
        let regions = regions(&curves, Statistic::Mean);
        let mut tried = 0;
        for &rate_hz in &rates {
            for bound_ns in [500, 1_500, 6_000, 30_000, 80_000, 600_000, 10_000_000_u64] {
                let of_rate = regions.iter().filter(|region| region.rate_hz == rate_hz);
                let has = |region: &&Region| {
                    region.from_ns <= bound_ns as f64
                        && region.to_ns.is_none_or(|to| (bound_ns as f64) < to)
                };
                let won = of_rate.filter(has).map(|region| region.cpu_ratio).reduce(f64::max);
                let keepers = schemes.iter().filter_map(|&scheme| {
                    let answer = ask(scheme, rate_hz).unwrap();
                    is_within(&answer, Statistic::Mean, bound_ns).then(|| cpu(&answer))
                });
                let best = keepers.reduce(f64::min);
                tried += usize::from(best.is_some());
                let same = won.zip(best).is_none_or(|(won, best)| (won - best).abs() < 1e-6);
                assert!(
                    won.is_some() == best.is_some() && same,
                    "{rate_hz} {bound_ns}: {won:?} {best:?}"
                );
            }
        }
        assert!(tried > 30, "{tried}");
    }

    #[test]
    fn steps_are_as_many_as_asked_for() {
        assert_eq!(RANGE.steps(48).len(), 49);
        assert_eq!(RateRange { low_hz: 3, high_hz: 5 }.steps(48), [3, 4, 5]);
    }

    const RANGE: RateRange = RateRange { low_hz: 100, high_hz: 150_000 };

    #[test]
    fn points_go_from_end_to_end() {
        let points = RANGE.points();
        assert_eq!((points.len(), points[0], points[24]), (25, 100, 150_000));
        assert_eq!(RateRange { low_hz: 7, high_hz: 7 }.points(), [7]);
    }

    /// Ticks cost beta C and interrupts lambda C, so both cost the same at lambda = beta.
    #[test]
    fn a_clock_is_cheaper_from_its_own_rate_on() {
        let schemes = Scheme::list("interrupt,clocked:1ms,spin").unwrap();
        let curves = curves(&schemes, RANGE, &mut ask).unwrap();
        let crossovers = crossovers(&curves, &mut ask).unwrap();
        assert_eq!(crossovers.len(), 1, "{crossovers:?}");
        let crossover = crossovers[0];
        assert_eq!((crossover.below, crossover.above), (schemes[0], schemes[1]));
        assert!(crossover.rate_hz.abs_diff(1_000) <= 2, "{crossover:?}");
        assert!((crossover.cpu_ratio - 0.005).abs() < 1e-4);
    }

    #[test]
    fn a_bound_is_kept_up_to_the_rate_that_the_form_says() {
        let curves = curves(&[Scheme::Interrupt], RANGE, &mut ask).unwrap();
        let ranges = kept_ranges(&curves, Statistic::Mean, 7_500, &mut ask).unwrap();
        // 5 us + rate 25 us² / 2 (1 - 5 us rate) is 7.5 us at half load: 100,000 events/s.
        let [range] = ranges[..] else { panic!("{ranges:?}") };
        assert_eq!(range.from_hz, 100);
        assert!(range.to_hz.abs_diff(100_000) < 200, "{range:?}");
        assert_eq!(kept_ranges(&curves, Statistic::Mean, 1_000, &mut ask).unwrap(), []);
    }

    /// A simulation with constant costs of 4 and 1 us.
    pub(crate) fn simulated(
        scheme: &str,
        rate_hz: u64,
        events: u64,
        seed: u64,
    ) -> Simulation<'static> {
        Simulation {
            scheme: scheme.parse().unwrap(),
            costs: Costs::constant(4_000, 1_000),
            arrivals: Arrivals::Poisson,
            rate_hz,
            ring: 256,
            user_slice_ns: None,
            application: None,
            quota: None,
            events,
            warm_up: events / 20,
            seed,
        }
    }

    /// `hybrid:8,20us` polls after 8 events at once, and otherwise does what `drain` does. It never takes less CPU than
    /// `drain`. A simulation at 1,007 events/s in place of 1,000 once showed a crossover at 101,037 events/s.
    #[test]
    fn a_difference_within_the_error_is_no_crossover() {
        let schemes = Scheme::list("interrupt,drain,spin,hybrid:8,20us").unwrap();
        for seed in 1..=3 {
            let mut ask = |scheme: Scheme, rate_hz| {
                evaluate(&simulated(&scheme.to_string(), rate_hz, 50_000, seed), false)
            };
            let range = RateRange { low_hz: 1_000, high_hz: 150_000 };
            let curves = curves(&schemes, range, &mut ask).unwrap();
            let found = crossovers(&curves, &mut ask).unwrap();
            let of_drain =
                |crossover: &&Crossover| [crossover.below, crossover.above].contains(&schemes[1]);
            assert_eq!(found.iter().filter(of_drain).count(), 0, "seed {seed}: {found:?}");
            assert!(
                found.iter().all(|crossover| crossover.rate_hz > 20_000),
                "seed {seed}: {found:?}"
            );
        }
    }

    #[test]
    fn a_rare_loss_is_not_decided_by_few_events() {
        let decide = |rate_hz, ring| {
            let simulation = Simulation { ring, ..simulated("interrupt", rate_hz, 20_000, 1) };
            let answer = evaluate(&simulation, true).unwrap();
            decide_keeps_up(&answer)
        };
        assert_eq!(decide(150_000, 256), Decision::Yes);
        assert_eq!(decide(150_000, 4), Decision::No);
        assert_eq!(decide(150_000, 16), Decision::Undecided);
    }
}
