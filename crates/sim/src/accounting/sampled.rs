//! Estimates the cycles of contexts in a run with `--detail sampled`, for the table `sampled_cycles`.
//!
//! The simulated core executes only short units in detail and has exact cycles for them alone. Its other counters
//! (instructions, misses, mispredictions) cover everything that a context executed. A regression over the units
//! predicts cycles from these counters.

use std::collections::BTreeMap;

use attribution::KernelContext;
use simrecord::counters::{
    BRANCH_MISSES, BRANCHES, COUNTERS, CYCLES, Counts, INSTRUCTIONS, L3_MISSES, STLB_MISSES, name,
};
use stats::regression::{
    Population, SampledUnit, TotalEstimate, difference_total, dispersion, non_negative,
};

use super::{Accounting, RegionUse, SampledPartUse, add};

/// Number of counters that predict the cycles of a part. Each counter covers everything that was executed, and
/// means the same in units and between them. Store misses are no predictor: in units every store to a line that is
/// being filled is a miss, between units only the first such store.
const PREDICTORS: usize = 10;

/// Error of functional warming that an interval allows for, as a fraction of the cycles. Warming leaves
/// slightly other content in caches and predictors than detailed execution. More units do not reduce this
/// error. Measured: with many units, the mean over several seeds differs from full detail by up to 0.5 %
/// (docs/validation.md).
pub const WARMING_ERROR: f64 = 0.005;

/// Factor that widens an interval: coefficients are fitted to the same units, and differences of few units are
/// skewed. Chosen so that 95 % of the rows of five programs with three seeds were inside; tested with three
/// other seeds and a sixth program (docs/validation.md).
const WIDENING: f64 = 1.2;

/// The cycles of a context in a region, on all CPUs, from a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledCycles {
    /// `None` for the sum of all contexts.
    pub context: Option<KernelContext>,
    /// Its instructions: counted, not sampled.
    pub instructions: u64,
    /// How often it was entered.
    pub entries: u64,
    /// Its cycles, and half the width of their 95 % confidence interval.
    pub cycles: TotalEstimate,
    /// Number of sampled units that the context executed, fully or in part.
    pub units: u64,
    /// Instructions of the context in these units.
    pub sampled_instructions: u64,
}

impl SampledCycles {
    /// Returns half the width of the interval as a fraction of the cycles; `None` without an interval or
    /// cycles.
    #[must_use]
    pub fn relative(&self) -> Option<f64> {
        let half_width = self.cycles.half_width?;
        (self.cycles.total > 0.0).then(|| half_width / self.cycles.total)
    }
}

/// The measured counters of a context, by CPU and unit.
#[derive(Default)]
struct Sample {
    units: BTreeMap<(u32, u64), Counts>,
}

impl Sample {
    fn add(&mut self, part: &SampledPartUse) {
        add(self.units.entry((part.cpu, part.unit)).or_default(), &part.counts);
    }

    fn instructions(&self) -> u64 {
        self.units.values().map(|counts| counts[INSTRUCTIONS]).sum()
    }

    /// Returns the units with at least one instruction of the context, in the order of CPUs and units, with the cycles that
    /// the regression predicts for them.
    fn units(&self, coefficients: &[f64; PREDICTORS]) -> Vec<SampledUnit> {
        let sampled_unit = |counts: &Counts| SampledUnit {
            measured: counts[CYCLES] as f64,
            predicted: predicted(counts, coefficients),
            size: counts[INSTRUCTIONS] as f64,
        };
        self.units.values().map(sampled_unit).filter(|unit| unit.size > 0.0).collect()
    }
}

impl Accounting {
    /// Returns the cycles of the contexts of each region, the sum of all first; empty unless the core
    /// executed sampled units only.
    #[must_use]
    pub fn sampled_cycles(&self) -> Vec<Vec<SampledCycles>> {
        if !self.is_sampled {
            return Vec::new();
        }
        self.regions.iter().map(cycles_of_region).collect()
    }
}

/// The counters of a context, or of all contexts together, in a region: counted, not sampled.
#[derive(Default)]
struct CountedUse {
    counts: Counts,
    entries: u64,
}

/// Returns the counters of all contexts of a region together, and those of each context.
fn counted_use(region: &RegionUse) -> (CountedUse, BTreeMap<KernelContext, CountedUse>) {
    let mut all_contexts = CountedUse::default();
    let mut by_context = BTreeMap::<KernelContext, CountedUse>::new();
    for context in region.cpus.iter().flat_map(|cpu| &cpu.contexts) {
        for sum in [&mut all_contexts, by_context.entry(context.context).or_default()] {
            add(&mut sum.counts, &context.self_counts);
            sum.entries += context.entries;
        }
    }
    (all_contexts, by_context)
}

/// The sampled units of a region, and the regression over them.
struct RegionSample {
    all_contexts: Sample,
    by_context: BTreeMap<KernelContext, Sample>,
    user: Sample,
    kernel: Sample,
    /// The coefficients that the regression fits to the parts of the units.
    coefficients: [f64; PREDICTORS],
    /// The [`dispersion`] of the units of all contexts.
    dispersion: f64,
}

impl RegionSample {
    fn new(region: &RegionUse) -> RegionSample {
        let mut by_context = BTreeMap::<KernelContext, Sample>::new();
        let [mut all_contexts, mut user, mut kernel] = std::array::from_fn(|_| Sample::default());
        for part in &region.sampled {
            all_contexts.add(part);
            if is_user(part.context) { &mut user } else { &mut kernel }.add(part);
            by_context.entry(part.context).or_default().add(part);
        }
        let row = |part: &SampledPartUse| (part.counts[CYCLES] as f64, predictors(&part.counts));
        let rows: Vec<_> = region.sampled.iter().map(row).collect();
        let coefficients = non_negative(&rows);
        let units: Vec<Vec<SampledUnit>> =
            by_context.values().map(|sample| sample.units(&coefficients)).collect();
        let dispersion = dispersion(units.iter().map(Vec::as_slice));
        RegionSample { all_contexts, by_context, user, kernel, coefficients, dispersion }
    }

    /// Estimates the cycles of a context (or of all together) that executed `counts`, from the units of its `sample`. `None`
    /// if no unit has a prediction.
    fn estimate(&self, sample: &Sample, counts: &Counts) -> Option<TotalEstimate> {
        let units = sample.units(&self.coefficients);
        let predicted = predicted(counts, &self.coefficients);
        let population = Population { predicted, size: counts[INSTRUCTIONS] as f64 };
        let TotalEstimate { total, half_width } =
            difference_total(&units, population, self.dispersion)?;
        let half_width =
            half_width.map(|half_width| (half_width * WIDENING).hypot(WARMING_ERROR * total));
        Some(TotalEstimate { total, half_width })
    }

    /// Estimates the cycles of a context without samples (`None`: of all together) that executed `counts`, from the ratio of
    /// measured to predicted cycles of its mode, else of all contexts. `None` if no unit has predicted cycles.
    fn estimate_by_ratio(
        &self,
        context: Option<KernelContext>,
        counts: &Counts,
    ) -> Option<TotalEstimate> {
        let same_mode = match context {
            None => &self.all_contexts,
            Some(context) if is_user(context) => &self.user,
            Some(_) => &self.kernel,
        };
        let measured_to_predicted = |sample: &Sample| {
            let units = sample.units(&self.coefficients);
            let measured: f64 = units.iter().map(|unit| unit.measured).sum();
            let predicted: f64 = units.iter().map(|unit| unit.predicted).sum();
            (predicted > 0.0).then(|| measured / predicted)
        };
        let ratio = measured_to_predicted(same_mode)
            .or_else(|| measured_to_predicted(&self.all_contexts))?;
        Some(TotalEstimate {
            total: ratio * predicted(counts, &self.coefficients),
            half_width: None,
        })
    }
}

/// Returns the cycles of the contexts of a region, the sum of all contexts first. Leaves out a context whose cycles
/// cannot be estimated: no unit of the region has predicted cycles.
fn cycles_of_region(region: &RegionUse) -> Vec<SampledCycles> {
    let (use_of_all, use_by_context) = counted_use(region);
    let region_sample = RegionSample::new(region);
    let no_units = Sample::default();
    let contexts = use_by_context.into_iter().map(|(context, counted)| (Some(context), counted));
    let mut rows = Vec::new();
    for (context, counted) in std::iter::once((None, use_of_all)).chain(contexts) {
        let sample = match context {
            Some(context) => region_sample.by_context.get(&context).unwrap_or(&no_units),
            None => &region_sample.all_contexts,
        };
        let cycles = region_sample
            .estimate(sample, &counted.counts)
            .or_else(|| region_sample.estimate_by_ratio(context, &counted.counts));
        rows.extend(cycles.map(|cycles| SampledCycles {
            context,
            instructions: counted.counts[INSTRUCTIONS],
            entries: counted.entries,
            cycles,
            units: sample.units.len() as u64,
            sampled_instructions: sample.instructions(),
        }));
    }
    rows
}

fn is_user(context: KernelContext) -> bool {
    matches!(context, KernelContext::User(_))
}

/// Returns the cycles that the regression predicts for these counts.
fn predicted(counts: &Counts, coefficients: &[f64; PREDICTORS]) -> f64 {
    predictors(counts)
        .iter()
        .zip(coefficients)
        .map(|(predictor, coefficient)| predictor * coefficient)
        .sum()
}

/// Returns the counters from which cycles are predicted. The order is free, but must be the same for all rows.
fn predictors(counts: &Counts) -> [f64; PREDICTORS] {
    let count_named = |wanted: &str| {
        let counter = (0..COUNTERS).find(|counter| name(*counter) == Some(wanted));
        counter.map_or(0, |counter| counts[counter])
    };
    [
        counts[INSTRUCTIONS],
        counts[BRANCHES],
        count_named("loads"),
        count_named("stores"),
        counts[BRANCH_MISSES],
        count_named("l1i_misses"),
        count_named("l1d_load_misses"),
        count_named("l2_fetch_misses") + count_named("l2_data_misses"),
        counts[L3_MISSES],
        counts[STLB_MISSES],
    ]
    .map(|count| count as f64)
}

#[cfg(test)]
mod tests {
    use super::super::{ContextUse, CpuUse};
    use super::*;

    fn counts(instructions: u64, branch_misses: u64, cycles: u64) -> Counts {
        let mut counts = Counts::default();
        (counts[INSTRUCTIONS], counts[BRANCH_MISSES], counts[CYCLES]) =
            (instructions, branch_misses, cycles);
        counts
    }

    fn used(context: KernelContext, self_counts: Counts) -> ContextUse {
        ContextUse { context, self_counts, inclusive: Counts::default(), entries: 2, completed: 2 }
    }

    /// Cycles are twice the instructions plus 20 for each misprediction, times 1.5 in user mode.
    #[test]
    fn what_was_executed_and_not_sampled_is_predicted() {
        let (user, idle) = (KernelContext::User(7), KernelContext::Idle);
        let system_call = KernelContext::Syscall(3);
        let part = |unit, context, counts| SampledPartUse { cpu: 0, unit, context, counts };
        let mut sampled = Vec::new();
        for unit in 0..40 {
            let misses = unit % 5;
            let cycles = 2_000 + 20 * misses;
            sampled.push(part(unit, user, counts(1_000, misses, cycles * 3 / 2)));
            sampled.push(part(unit, system_call, counts(1_000, misses, cycles)));
        }
        let contexts = vec![
            used(user, counts(1_000_000, 3_000, 0)),
            used(system_call, counts(500_000, 500, 0)),
            used(idle, counts(1_000, 10, 0)),
        ];
        let cpu = CpuUse { contexts, ..CpuUse::default() };
        let rows =
            cycles_of_region(&RegionUse { cpus: vec![cpu], sampled, ..RegionUse::default() });
        let row_of = |context| *rows.iter().find(|row| row.context == context).unwrap();
        let about =
            |row: SampledCycles, cycles: f64| (row.cycles.total / cycles - 1.0).abs() < 0.01;
        assert!(about(row_of(Some(user)), 1.5 * (2_000_000.0 + 20.0 * 3_000.0)), "{rows:?}");
        assert!(about(row_of(Some(system_call)), 1_000_000.0 + 20.0 * 500.0), "{rows:?}");
        assert!(row_of(Some(user)).relative().is_some_and(|relative| relative < 0.02));
        // The idle context was never sampled: it has the ratio of the kernel, without an interval.
        assert!(about(row_of(Some(idle)), 2_000.0 + 200.0), "{rows:?}");
        assert_eq!((row_of(Some(idle)).relative(), row_of(Some(idle)).units), (None, 0));
        assert_eq!((row_of(None).units, row_of(None).sampled_instructions), (40, 80_000));
    }
}
