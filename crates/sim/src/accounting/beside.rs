//! What caches beside have counted: those of other models, and those of all sizes.

use std::collections::BTreeMap;

use simrecord::counters::{COUNTERS, is_of_memory};
use simrecord::parsed::{ParsedRecord, ShadowCacheCounts};
use simrecord::record::{Group, MissCount, MissCurvePoint};

/// What the caches of a model have counted beside in a region, for whom, on all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BesideUse {
    /// The region, from 1.
    pub region: u32,
    /// Which model, from 0 in the order in which they were asked for.
    pub model: u32,
    /// For whom.
    pub group: Group,
    /// What they counted; absent what they don't have.
    pub counts: [Option<u64>; COUNTERS],
}

/// The misses that a record tells apart; what a snapshot says is replaced by what comes later.
pub(crate) fn misses(parsed: &ParsedRecord) -> Vec<MissCount> {
    let key = |one: &MissCount| (one.region, one.cache, one.kind, one.key);
    let last: BTreeMap<_, _> = parsed.misses.iter().map(|one| (key(one), *one)).collect();
    last.into_values().collect()
}

/// What a record has of them; what a snapshot says is replaced by what comes later.
pub(crate) fn of(parsed: &ParsedRecord) -> (Vec<BesideUse>, Vec<MissCurvePoint>) {
    let uses = parsed.shadow_caches.iter().map(beside_use);
    let key = |one: &BesideUse| (one.region, one.model, one.group as u32);
    let beside = last_of_each(uses, key);
    let key = |one: &MissCurvePoint| {
        let of = (one.group as u32) << 8 | one.stream as u32;
        (one.region, of, one.size_bytes.checked_ilog2().unwrap_or(0))
    };
    (beside, last_of_each(parsed.miss_curves.iter().copied(), key))
}

fn last_of_each<T>(all: impl Iterator<Item = T>, key: fn(&T) -> (u32, u32, u32)) -> Vec<T> {
    all.map(|one| (key(&one), one)).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn beside_use(row: &ShadowCacheCounts) -> BesideUse {
    let has = |counter: usize| row.caches.counters >> counter & 1 == 1 && is_of_memory(counter);
    BesideUse {
        region: row.caches.region,
        model: row.caches.model,
        group: row.caches.group,
        counts: std::array::from_fn(|counter| has(counter).then_some(row.counts[counter])),
    }
}
