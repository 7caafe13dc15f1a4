//! What caches beside have counted: those of other models, and those of all sizes.

use std::collections::BTreeMap;

use plugin::counters::{COUNTERS, is_of_memory};
use plugin::record::{Curve, Group, MissCount};
use plugin::rows::{BesideCounts, Story};

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
pub(crate) fn misses(story: &Story) -> Vec<MissCount> {
    let key = |one: &MissCount| (one.region, one.cache, one.sort, one.key);
    let last: BTreeMap<_, _> = story.misses.iter().map(|one| (key(one), *one)).collect();
    last.into_values().collect()
}

/// What a record has of them; what a snapshot says is replaced by what comes later.
pub(crate) fn of(story: &Story) -> (Vec<BesideUse>, Vec<Curve>) {
    let uses = story.beside.iter().map(beside_use);
    let key = |one: &BesideUse| (one.region, one.model, one.group as u32);
    let beside = last_of_each(uses, key);
    let key = |one: &Curve| {
        let of = (one.group as u32) << 8 | one.stream as u32;
        (one.region, of, one.size_bytes.checked_ilog2().unwrap_or(0))
    };
    (beside, last_of_each(story.curves.iter().copied(), key))
}

fn last_of_each<T>(all: impl Iterator<Item = T>, key: fn(&T) -> (u32, u32, u32)) -> Vec<T> {
    all.map(|one| (key(&one), one)).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn beside_use(row: &BesideCounts) -> BesideUse {
    let has = |counter: usize| row.beside.counters >> counter & 1 == 1 && is_of_memory(counter);
    BesideUse {
        region: row.beside.region,
        model: row.beside.model,
        group: row.beside.group,
        counts: std::array::from_fn(|counter| has(counter).then_some(row.counts[counter])),
    }
}
