//! The windows of the guest's loop as the simulator counted them: by context, level by level.

use lab::footprint::Level;
use lab::footprint::contexts::{ContextMisses, LevelMisses, Windows};
use simrecord::counters::{COUNTERS, Counts, name};

use crate::accounting::ContextUse;
use crate::{Accounting, RegionUse};

/// Names of the counters whose sum is what a level missed.
fn counters(level: Level) -> &'static [&'static str] {
    match level {
        Level::L1d => &["l1d_load_misses", "l1d_store_misses"],
        Level::L1i => &["l1i_misses"],
        Level::L2 => &["l2_fetch_misses", "l2_data_misses"],
        Level::L3 => &["l3_misses"],
        Level::Dtlb => &["dtlb_misses"],
        Level::Itlb => &["itlb_misses"],
    }
}

/// Positions of the counters of each level that this account has.
fn positions(account: &Accounting) -> Vec<Option<Vec<usize>>> {
    let position = |wanted: &&str| {
        let found = (0..COUNTERS).find(|at| name(*at) == Some(*wanted));
        found.filter(|at| account.counts(*at))
    };
    Level::ALL.iter().map(|level| counters(*level).iter().map(position).collect()).collect()
}

/// What the loop's CPU did in each region, in order.
pub(super) fn windows(account: &Accounting, cpu: u32) -> Windows {
    let positions = positions(account);
    let misses = |own: &Counts| -> LevelMisses {
        std::array::from_fn(|level| {
            let some = positions.get(level)?.as_ref()?;
            Some(some.iter().map(|at| own[*at]).sum())
        })
    };
    let one = |used: &ContextUse| ContextMisses {
        context: used.context,
        entries: used.entries,
        misses: misses(&used.self_counts),
    };
    let window = |region: &RegionUse| {
        let used = region.cpus.get(cpu as usize);
        used.map(|used| used.contexts.iter().map(one).collect()).unwrap_or_default()
    };
    let mut seen =
        Windows { all: account.regions.iter().map(window).collect(), ..Windows::default() };
    for context in seen.all.iter().flatten().map(|one| one.context) {
        seen.names.entry(context).or_insert_with(|| account.name_of(context));
    }
    seen
}

#[cfg(test)]
mod tests {
    use attribution::KernelContext;

    use super::*;
    use crate::accounting::CpuUse;

    fn at(wanted: &str) -> usize {
        (0..COUNTERS).find(|at| name(*at) == Some(wanted)).unwrap()
    }

    #[test]
    fn each_level_has_counters_of_that_name() {
        for level in Level::ALL {
            counters(*level).iter().for_each(|name| assert!(at(name) > 0, "{level} {name}"));
        }
    }

    #[test]
    fn levels_that_are_not_counted_are_absent() {
        let mut own = Counts::default();
        (own[at("l1d_load_misses")], own[at("l1d_store_misses")], own[at("l1i_misses")]) =
            (3, 4, 5);
        let context = KernelContext::Interrupt(0x22);
        let used =
            ContextUse { context, self_counts: own, inclusive: own, entries: 1, completed: 1 };
        let cpu = |contexts| CpuUse { contexts, ..CpuUse::default() };
        let region =
            RegionUse { cpus: vec![cpu(Vec::new()), cpu(vec![used])], ..RegionUse::default() };
        let all = ["l1d_load_misses", "l1d_store_misses", "l1i_misses", "dtlb_misses"];
        let counters = all.iter().fold(0, |bits, name| bits | 1 << at(name));
        let account = Accounting { counters, regions: vec![region], ..Accounting::default() };
        let seen = windows(&account, 1);
        let expected = [Some(7), Some(5), None, None, Some(0), None];
        assert_eq!((seen.all[0][0].misses, seen.all[0][0].entries), (expected, 1));
        assert_eq!(seen.names[&context], context.to_string());
        assert!(windows(&account, 0).all[0].is_empty());
    }
}
