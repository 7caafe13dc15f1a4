//! Cycles of contexts from sampled units: what a core executed in detail of them, and what is known of all
//! that they executed.

use std::collections::BTreeMap;

use attribution::KernelContext;
use simrecord::counters::{
    BRANCH_MISSES, BRANCHES, COUNTERS, CYCLES, Counts, INSTRUCTIONS, L3_MISSES, STLB_MISSES, name,
};
use stats::regression::{
    Population, SampledUnit, TotalEstimate, difference_total, dispersion, non_negative,
};

use super::{Accounting, RegionUse, SampledPartUse, add};

/// By what the cycles of a part are predicted: counters that are known of everything that was executed, and
/// mean the same in detail and in between. Missing stores do not: in detail each store to a line that is on
/// its way is one, in between only the first.
const PREDICTORS: usize = 10;

/// The error of warming that an interval allows for, over the cycles: what caches and predictors hold after
/// functional warming is not quite what they would hold. It does not shrink with more units. Measured: the
/// mean over several seeds differs from full detail by up to half a hundredth where units are many
/// (docs/validation.md).
pub const WARMING_ERROR: f64 = 0.005;

/// How much wider an interval is than its sample says: coefficients are fitted to the same units, and differences of
/// few units are skewed. Chosen so that 95 % of the rows of five programs with three seeds were inside, and tried
/// with three other seeds and a sixth program (docs/validation.md).
const WIDENING: f64 = 1.2;

/// The cycles of a context in a region, on all CPUs, from a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledCycles {
    /// The context; none for all of them together.
    pub context: Option<KernelContext>,
    /// Its instructions: counted, not sampled.
    pub instructions: u64,
    /// How often it was entered.
    pub entries: u64,
    /// Its cycles, and half the width of their 95 % confidence interval.
    pub cycles: TotalEstimate,
    /// Units that it executed in, or in a part of.
    pub units: u64,
    /// Its instructions in them.
    pub sampled_instructions: u64,
}

impl SampledCycles {
    /// Half the width of the interval over the cycles; none without an interval.
    #[must_use]
    pub fn relative(&self) -> Option<f64> {
        let half_width = self.cycles.half_width?;
        (self.cycles.total > 0.0).then(|| half_width / self.cycles.total)
    }
}

/// What was measured of a context: by CPU and unit.
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

    /// Its units with instructions.
    fn units(&self, coefficients: &[f64; PREDICTORS]) -> Vec<SampledUnit> {
        let of = |counts: &Counts| SampledUnit {
            measured: counts[CYCLES] as f64,
            predicted: predicted(counts, coefficients),
            size: counts[INSTRUCTIONS] as f64,
        };
        self.units.values().map(of).filter(|unit| unit.size > 0.0).collect()
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
        self.regions.iter().map(of_region).collect()
    }
}

fn of_region(region: &RegionUse) -> Vec<SampledCycles> {
    let (mut all_used, mut used) = ((Counts::default(), 0), BTreeMap::new());
    for context in region.cpus.iter().flat_map(|cpu| &cpu.contexts) {
        let own: &mut (Counts, u64) = used.entry(context.context).or_default();
        for sum in [&mut all_used, own] {
            add(&mut sum.0, &context.self_counts);
            sum.1 += context.entries;
        }
    }
    let (mut all, mut samples) = (Sample::default(), BTreeMap::<KernelContext, Sample>::new());
    let mut of_mode = [Sample::default(), Sample::default()];
    for part in &region.sampled {
        all.add(part);
        of_mode[usize::from(is_user(part.context))].add(part);
        samples.entry(part.context).or_default().add(part);
    }
    let row = |part: &SampledPartUse| (part.counts[CYCLES] as f64, predictors(&part.counts));
    let rows: Vec<_> = region.sampled.iter().map(row).collect();
    let coefficients = non_negative(&rows);
    let units: BTreeMap<_, _> =
        samples.iter().map(|(context, sample)| (*context, sample.units(&coefficients))).collect();
    let dispersion = dispersion(units.values().map(Vec::as_slice));
    let all_units = all.units(&coefficients);
    let estimate = |units: &[SampledUnit], used: &Counts| {
        let predicted = predicted(used, &coefficients);
        let population = Population { predicted, size: used[INSTRUCTIONS] as f64 };
        let TotalEstimate { total, half_width } = difference_total(units, population, dispersion)?;
        let half_width =
            half_width.map(|half_width| (half_width * WIDENING).hypot(WARMING_ERROR * total));
        Some(TotalEstimate { total, half_width })
    };
    // What was never sampled is as the rest of its mode.
    let as_others = |context: Option<KernelContext>, used: &Counts| {
        let mode = context.map_or(&all, |context| &of_mode[usize::from(is_user(context))]);
        let ratio = |units: &[SampledUnit]| {
            let measured: f64 = units.iter().map(|unit| unit.measured).sum();
            let predicted: f64 = units.iter().map(|unit| unit.predicted).sum();
            (predicted > 0.0).then(|| measured / predicted)
        };
        let ratio = ratio(&mode.units(&coefficients)).or_else(|| ratio(&all_units))?;
        Some(TotalEstimate { total: ratio * predicted(used, &coefficients), half_width: None })
    };
    let none = Sample::default();
    let contexts = used.into_iter().map(|(context, used)| (Some(context), used));
    let mut rows = Vec::new();
    for (context, (used, entries)) in std::iter::once((None, all_used)).chain(contexts) {
        let sample = context.map_or(&all, |context| samples.get(&context).unwrap_or(&none));
        let units = match context {
            Some(context) => units.get(&context).map_or(&[][..], Vec::as_slice),
            None => &all_units,
        };
        let cycles = estimate(units, &used).or_else(|| as_others(context, &used));
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

fn predicted(counts: &Counts, coefficients: &[f64; PREDICTORS]) -> f64 {
    predictors(counts).iter().zip(coefficients).map(|(one, by)| one * by).sum()
}

fn predictors(counts: &Counts) -> [f64; PREDICTORS] {
    let named = |wanted: &str| {
        let at = (0..COUNTERS).find(|at| name(*at) == Some(wanted));
        at.map_or(0, |at| counts[at])
    };
    [
        counts[INSTRUCTIONS],
        counts[BRANCHES],
        named("loads"),
        named("stores"),
        counts[BRANCH_MISSES],
        named("l1i_misses"),
        named("l1d_load_misses"),
        named("l2_fetch_misses") + named("l2_data_misses"),
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

    /// Cycles are twice the instructions and 20 for each misprediction, in user mode half as much again.
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
        let rows = of_region(&RegionUse { cpus: vec![cpu], sampled });
        let of = |context| *rows.iter().find(|row| row.context == context).unwrap();
        let about =
            |row: SampledCycles, cycles: f64| (row.cycles.total / cycles - 1.0).abs() < 0.01;
        assert!(about(of(Some(user)), 1.5 * (2_000_000.0 + 20.0 * 3_000.0)), "{rows:?}");
        assert!(about(of(Some(system_call)), 1_000_000.0 + 20.0 * 500.0), "{rows:?}");
        assert!(of(Some(user)).relative().is_some_and(|relative| relative < 0.02));
        // Never sampled: as the kernel, without an interval.
        assert!(about(of(Some(idle)), 2_000.0 + 200.0), "{rows:?}");
        assert_eq!((of(Some(idle)).relative(), of(Some(idle)).units), (None, 0));
        assert_eq!((of(None).units, of(None).sampled_instructions), (40, 80_000));
    }
}
