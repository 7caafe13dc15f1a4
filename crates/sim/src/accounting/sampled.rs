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

    /// Returns the units with at least one instruction of the context.
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

/// Returns the cycles of the contexts of a region, the sum of all contexts first. Leaves out a context whose cycles
/// cannot be estimated: no unit of the region has predicted cycles.
fn cycles_of_region(region: &RegionUse) -> Vec<SampledCycles> {
    let (mut all_used, mut used) = ((Counts::default(), 0), BTreeMap::new());
    for context in region.cpus.iter().flat_map(|cpu| &cpu.contexts) {
        let context_used: &mut (Counts, u64) = used.entry(context.context).or_default();
        for sum in [&mut all_used, context_used] {
            add(&mut sum.0, &context.self_counts);
            sum.1 += context.entries;
        }
    }
    let (mut all_contexts, mut samples) =
        (Sample::default(), BTreeMap::<KernelContext, Sample>::new());
    let mut samples_of_mode = [Sample::default(), Sample::default()];
    for part in &region.sampled {
        all_contexts.add(part);
        samples_of_mode[usize::from(is_user(part.context))].add(part);
        samples.entry(part.context).or_default().add(part);
    }
    let row = |part: &SampledPartUse| (part.counts[CYCLES] as f64, predictors(&part.counts));
    let rows: Vec<_> = region.sampled.iter().map(row).collect();
    let coefficients = non_negative(&rows);
    let units: BTreeMap<_, _> =
        samples.iter().map(|(context, sample)| (*context, sample.units(&coefficients))).collect();
    let dispersion = dispersion(units.values().map(Vec::as_slice));
    let all_units = all_contexts.units(&coefficients);
    let estimate = |units: &[SampledUnit], used: &Counts| {
        let predicted = predicted(used, &coefficients);
        let population = Population { predicted, size: used[INSTRUCTIONS] as f64 };
        let TotalEstimate { total, half_width } = difference_total(units, population, dispersion)?;
        let half_width =
            half_width.map(|half_width| (half_width * WIDENING).hypot(WARMING_ERROR * total));
        Some(TotalEstimate { total, half_width })
    };
    // For a context without samples: the ratio of measured to predicted cycles of its mode, user or kernel.
    let estimate_by_ratio = |context: Option<KernelContext>, used: &Counts| {
        let same_mode = context
            .map_or(&all_contexts, |context| &samples_of_mode[usize::from(is_user(context))]);
        let ratio = |units: &[SampledUnit]| {
            let measured: f64 = units.iter().map(|unit| unit.measured).sum();
            let predicted: f64 = units.iter().map(|unit| unit.predicted).sum();
            (predicted > 0.0).then(|| measured / predicted)
        };
        let ratio = ratio(&same_mode.units(&coefficients)).or_else(|| ratio(&all_units))?;
        Some(TotalEstimate { total: ratio * predicted(used, &coefficients), half_width: None })
    };
    let no_units = Sample::default();
    let contexts = used.into_iter().map(|(context, used)| (Some(context), used));
    let mut rows = Vec::new();
    for (context, (used, entries)) in std::iter::once((None, all_used)).chain(contexts) {
        let sample =
            context.map_or(&all_contexts, |context| samples.get(&context).unwrap_or(&no_units));
        let units = match context {
            Some(context) => units.get(&context).map_or(&[][..], Vec::as_slice),
            None => &all_units,
        };
        let cycles = estimate(units, &used).or_else(|| estimate_by_ratio(context, &used));
        rows.extend(cycles.map(|cycles| SampledCycles {
            context,
            instructions: used[INSTRUCTIONS],
            entries,
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
