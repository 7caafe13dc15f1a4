//! Several runs on each side, compared in pairs. `compare_series` in the parent module calls [`matched_series`].
//!
//! Goal: a verdict that allows for the differences between runs: memory layout, clock frequency, other work.
//! Problem: one run shows how much the values in its window vary, and not how much the next run will differ.
//! Rule: the first run of one side is compared with the first run of the other, and so on, in the order of their start.
//! The interval is Student's t of the differences of these pairs. If runs were taken alternately, slow changes of the
//! machine cancel. Repeatable runs that are equal on each side are one run: they do not show how much runs differ.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use record::Run;
use stats::interval::t_quantile;

use super::CompareError;
use super::bounds::{Bound, OpenSides};
use super::cells::{Figure, LeftOutTable, Matched, Pair, PairCounts};
use super::decision::Distances;
use super::judge::Exactness;
use super::windows::WindowLengths;

/// Fewest pairs of runs from which an interval is computed.
pub const PAIRS_MIN: usize = 3;

/// The differences of one figure between pairs of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeats {
    /// The difference of each pair: of logarithms if `is_logarithmic`, else in the unit of the column.
    differences: Vec<f64>,
    /// Whether `differences` are differences of logarithms. True if all figures are above 0.
    is_logarithmic: bool,
    /// Distances from the mean difference down and up that the buckets of a histogram add to its interval, on the
    /// scale of `differences`: the mean over the pairs. Runs of one kind may all have the same bucket, so their
    /// spread does not contain it.
    bucket_distances: (f64, f64),
    /// On which sides the bounds of any pair leave the mean difference open.
    open_sides: OpenSides,
}

impl Repeats {
    /// Takes the figures of each pair of runs: first side, second side.
    fn from_pairs(figures: &[(Figure, Figure)]) -> Repeats {
        let is_logarithmic = figures.iter().all(|(base, new)| base.value > 0.0 && new.value > 0.0);
        // The logarithm of a quotient would not be the negative one of the inverse quotient.
        let difference =
            |base: f64, new: f64| if is_logarithmic { new.ln() - base.ln() } else { new - base };
        let differences: Vec<f64> =
            figures.iter().map(|(base, new)| difference(base.value, new.value)).collect();
        let count = figures.len().max(1) as f64;
        let (mut down, mut up) = (0.0, 0.0);
        for ((base, new), middle) in figures.iter().zip(&differences) {
            let ((base_low, base_high), (new_low, new_high)) =
                (base.bucket_ends(), new.bucket_ends());
            down += middle - difference(base_high, new_low);
            up += difference(base_low, new_high) - middle;
        }
        let open_sides = figures
            .iter()
            .map(|(base, new)| OpenSides::of_difference(base, new))
            .fold(OpenSides::default(), OpenSides::or);
        let bucket_distances = (down / count, up / count);
        Repeats { differences, is_logarithmic, bucket_distances, open_sides }
    }

    /// These differences if each second figure had also changed by the part `by_ratio` of itself. `added`: the
    /// resulting change of the second side's mean, in the unit of the column.
    pub(super) fn changed_by(&self, by_ratio: f64, added: f64) -> Repeats {
        let shift = if self.is_logarithmic { by_ratio.ln_1p() } else { added };
        let differences = self.differences.iter().map(|difference| difference + shift).collect();
        Repeats { differences, ..*self }
    }

    pub(super) fn has_interval(&self) -> bool {
        self.differences.len() >= PAIRS_MIN
    }

    pub(super) fn open_sides(&self) -> OpenSides {
        self.open_sides
    }

    /// Distances from the mean difference down and up to the ends of its interval. `tail`: the probability beyond one end.
    /// `with_buckets`: whether the interval includes the buckets of a histogram. `None` with fewer than [`PAIRS_MIN`] pairs.
    pub(super) fn distances(&self, tail: f64, with_buckets: bool) -> Option<Distances> {
        if !self.has_interval() {
            return None;
        }
        let count = self.differences.len() as f64;
        let mean = self.differences.iter().sum::<f64>() / count;
        let squares: f64 = self.differences.iter().map(|value| (value - mean).powi(2)).sum();
        let half_width = t_quantile(count - 1.0, tail)? * (squares / (count - 1.0) / count).sqrt();
        let (bucket_down, bucket_up) =
            if with_buckets { self.bucket_distances } else { (0.0, 0.0) };
        let (down, up) = (half_width + bucket_down, half_width + bucket_up);
        Some(if self.is_logarithmic {
            Distances::Logarithmic { down, up }
        } else {
            Distances::Linear { down, up }
        })
    }
}

/// The mean of a figure over the runs of one side, with its 95 % interval. `is_logarithmic`: whether it is the
/// geometric mean, as in [`Repeats`]. Both sides must have the same kind of mean: their difference is then the middle
/// of the interval of the change. The mean of bounds is a bound.
fn mean_figure(figures: &[Figure], is_logarithmic: bool) -> Figure {
    let values: Vec<f64> = figures.iter().map(|figure| figure.value).collect();
    let bound = Bound::of_mean(figures.iter().map(|figure| figure.bound));
    let count = values.len() as f64;
    let scaled: Vec<f64> =
        values.iter().map(|value| if is_logarithmic { value.ln() } else { *value }).collect();
    let mean = scaled.iter().sum::<f64>() / count;
    let squares: f64 = scaled.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
    let unscaled = |value: f64| if is_logarithmic { value.exp() } else { value };
    let half_width = t_quantile(count - 1.0, 0.025).map(|quantile| quantile * error);
    let are_equal = values.windows(2).all(|pair| pair[0] == pair[1]);
    // The exponential of a logarithm has rounding errors; equal values must give exactly their value, and an interval that
    // contains it.
    let value = if are_equal { values[0] } else { unscaled(mean) };
    let ends = |half: f64| (unscaled(mean - half).min(value), unscaled(mean + half).max(value));
    let interval = half_width.map(|half| if are_equal { (value, value) } else { ends(half) });
    let interval = match (interval, bound) {
        (Some((low, high)), Some(bound)) => bound.interval(Some(low), Some(high)),
        (interval, _) => interval,
    };
    Figure {
        value,
        above_measured: 0.0,
        interval,
        degrees_of_freedom: count - 1.0,
        drift: 0.0,
        wide: None,
        bucket: None,
        bound,
    }
}

/// A figure's name: table, values of the key columns, column.
type FigureName = (String, Vec<String>, String);

fn figure_name(pair: &Pair<'_>) -> FigureName {
    let keys = pair.row.iter().map(|(_, value)| value.clone()).collect();
    (pair.table.name.clone(), keys, pair.column.name.clone())
}

/// A figure of the pairs of runs.
struct Collected<'a> {
    /// The first cells of the figure in any run, the largest shares of CPU time, and the smallest number of spans.
    pair: Pair<'a>,
    /// The figures of the first and the second run of each pair. A pair in which a run lacks the figure is left out.
    figures: Vec<(Figure, Figure)>,
    /// The figures of all runs of the first side that have the figure.
    base_figures: Vec<Figure>,
    /// The figures of all runs of the second side that have the figure.
    new_figures: Vec<Figure>,
}

impl<'a> Collected<'a> {
    fn new(pair: Pair<'a>) -> Collected<'a> {
        let figures = both_figures(&pair).into_iter().collect();
        let (base_figures, new_figures) =
            (pair.base.into_iter().collect(), pair.new.into_iter().collect());
        Collected { pair, figures, base_figures, new_figures }
    }

    /// Adds the same figure of another pair of runs.
    fn add(&mut self, other: &Pair<'a>) {
        let larger = |first: Option<f64>, second: Option<f64>| {
            first.into_iter().chain(second).reduce(f64::max)
        };
        let pair = &mut self.pair;
        pair.base = pair.base.or(other.base);
        pair.new = pair.new.or(other.new);
        pair.cpu_share = larger(pair.cpu_share, other.cpu_share);
        pair.context_share = larger(pair.context_share, other.context_share);
        pair.span_count = pair.span_count.into_iter().chain(other.span_count).min();
        pair.is_estimate |= other.is_estimate;
        pair.assumes_independence |= other.assumes_independence;
        pair.waits_for_the_scheduler |= other.waits_for_the_scheduler;
        pair.has_equal_rows &= other.has_equal_rows;
        pair.windows =
            pair.windows.into_iter().chain(other.windows).reduce(WindowLengths::more_different);
        self.figures.extend(both_figures(other));
        self.base_figures.extend(other.base);
        self.new_figures.extend(other.new);
    }

    /// Sets the figures of the pair to the means over all runs that have them. The means are geometric if all figures
    /// are above 0, as in [`Repeats`].
    fn set_means_of_all_runs(&mut self) {
        let is_logarithmic =
            self.base_figures.iter().chain(&self.new_figures).all(|figure| figure.value > 0.0);
        let mean = |figures: &[Figure]| {
            (!figures.is_empty()).then(|| mean_figure(figures, is_logarithmic))
        };
        self.pair.base = mean(&self.base_figures);
        self.pair.new = mean(&self.new_figures);
    }
}

/// Both figures of a pair. `None` if one of the runs lacks its figure.
fn both_figures(pair: &Pair<'_>) -> Option<(Figure, Figure)> {
    pair.base.zip(pair.new)
}

/// The figures and the tables left out of all pairs of runs, in the order of their first pair.
#[derive(Default)]
struct AllPairs<'a> {
    collected: Vec<Collected<'a>>,
    positions: BTreeMap<FigureName, usize>,
    left_out: Vec<LeftOutTable>,
}

impl<'a> AllPairs<'a> {
    fn add(&mut self, matched: Matched<'a>) {
        for pair in matched.pairs {
            match self.positions.entry(figure_name(&pair)) {
                Entry::Occupied(position) => self.collected[*position.get()].add(&pair),
                Entry::Vacant(vacant) => {
                    vacant.insert(self.collected.len());
                    self.collected.push(Collected::new(pair));
                }
            }
        }
        for table in matched.left_out {
            if self.left_out.iter().all(|known| known.name != table.name) {
                self.left_out.push(table);
            }
        }
    }

    /// The tables that no pair of runs compares.
    fn left_out(&self) -> Vec<LeftOutTable> {
        let is_compared = |table: &LeftOutTable| {
            self.collected.iter().any(|collected| {
                collected.pair.table.name == table.name && !collected.figures.is_empty()
            })
        };
        self.left_out.iter().filter(|table| !is_compared(table)).cloned().collect()
    }
}

/// Whether all pairs of runs have the same two figures.
fn are_repetitions(figures: &[(Figure, Figure)]) -> bool {
    let values = |(base, new): (Figure, Figure)| (base.value, new.value);
    figures.windows(2).all(|pairs| values(pairs[0]) == values(pairs[1]))
}

/// Whether the seeds of the runs differ: that of the experiment, or that of a sample of the instructions.
fn have_different_seeds(runs: &[Run]) -> bool {
    let seeds = |run: &Run| {
        let sample = run.settings.get("sampling").and_then(|sampling| sampling.get("seed"));
        [run.settings.get("seed").cloned(), sample.cloned()]
    };
    runs.windows(2).any(|pair| seeds(&pair[0]) != seeds(&pair[1]))
}

/// Matches the runs of both sides in pairs, each pair by `matched`. A figure is compared in those pairs in which both
/// runs have it, and [`Pair::pair_counts`] says in how many if some pairs lack it.
///
/// If repeatable runs have the same figure in each pair, the pair of figures stays that of the first runs: exact figures
/// are exact, and equal estimates show nothing of their error. They show it if the runs have different seeds.
///
/// Fails if the sides have different numbers of runs, or fewer than [`PAIRS_MIN`].
pub(super) fn matched_series<'a>(
    base: &'a [Run],
    new: &'a [Run],
    exactness: Exactness,
    matched: impl Fn(&'a Run, &'a Run) -> Matched<'a>,
) -> Result<Matched<'a>, CompareError> {
    if base.len() != new.len() {
        return Err(CompareError::RunCounts(base.len(), new.len()));
    }
    if base.len() < PAIRS_MIN {
        return Err(CompareError::FewRuns(base.len()));
    }
    let mut all = AllPairs::default();
    base.iter().zip(new).for_each(|(base, new)| all.add(matched(base, new)));
    let left_out = all.left_out();
    let have_different_seeds = have_different_seeds(base) && have_different_seeds(new);
    let pair_of_runs = |mut collected: Collected<'a>| {
        let is_one_run = exactness == Exactness::Repeatable
            && collected.figures.len() == base.len()
            && are_repetitions(&collected.figures)
            && !(collected.pair.is_estimate && have_different_seeds);
        if is_one_run {
            return collected.pair;
        }
        // Without a pair of runs that both have the figure, the means over all runs describe the sides.
        if collected.figures.is_empty() {
            collected.set_means_of_all_runs();
        }
        let Collected { mut pair, figures, .. } = collected;
        if pair.base.is_none() || pair.new.is_none() {
            return pair;
        }
        pair.pair_counts = (figures.len() < base.len())
            .then_some(PairCounts { compared: figures.len(), all: base.len() });
        let repeats = Repeats::from_pairs(&figures);
        if !figures.is_empty() {
            let (base_figures, new_figures): (Vec<Figure>, Vec<Figure>) =
                figures.iter().copied().unzip();
            pair.base = Some(mean_figure(&base_figures, repeats.is_logarithmic));
            pair.new = Some(mean_figure(&new_figures, repeats.is_logarithmic));
        }
        pair.repeats = Some(repeats);
        pair
    };
    let pairs = all.collected.into_iter().map(pair_of_runs).collect();
    Ok(Matched { pairs, left_out })
}

/// Whether all runs of one side started before all runs of the other. The difference then contains slow changes of the
/// machine. Start times are compared as text (RFC 3339 in UTC).
pub(super) fn is_one_side_first(base: &[Run], new: &[Run]) -> bool {
    let is_before = |earlier: &[Run], later: &[Run]| {
        let last = earlier.iter().map(|run| &run.started_utc).max();
        let first = later.iter().map(|run| &run.started_utc).min();
        last < first
    };
    base.len() > 1 && (is_before(base, new) || is_before(new, base))
}
