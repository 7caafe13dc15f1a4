//! Converts the simulator's counters to misses in the windows of the guest's loop, by context and by cache or TLB. Each
//! region of the record is a window.

use lab::footprint::Level;
use lab::footprint::contexts::{ContextMisses, LevelMisses, Windows};
use simrecord::counters::{COUNTERS, Counts, name as counter_name};

use crate::accounting::ContextUse;
use crate::{Accounting, RegionUse};

/// Returns the names of the counters whose sum is the misses of a cache or TLB.
fn miss_counter_names(level: Level) -> &'static [&'static str] {
    match level {
        Level::L1d => &["l1d_load_misses", "l1d_store_misses"],
        Level::L1i => &["l1i_misses"],
        Level::L2 => &["l2_fetch_misses", "l2_data_misses"],
        Level::L3 => &["l3_misses"],
        Level::Dtlb => &["dtlb_misses"],
        Level::Itlb => &["itlb_misses"],
    }
}

/// Returns the positions of each level's counters. `None` for a level if this run did not count all of them.
fn counter_positions(account: &Accounting) -> Vec<Option<Vec<usize>>> {
    let position = |wanted: &&str| {
        let found = (0..COUNTERS).find(|counter| counter_name(*counter) == Some(*wanted));
        found.filter(|counter| account.counts(*counter))
    };
    Level::ALL
        .iter()
        .map(|level| miss_counter_names(*level).iter().map(position).collect())
        .collect()
}

/// Returns the misses by context on the CPU `cpu`, for each region in order.
pub(super) fn windows(account: &Accounting, cpu: u32) -> Windows {
    let positions = counter_positions(account);
    let misses = |counts: &Counts| -> LevelMisses {
        std::array::from_fn(|level| {
            let level_counters = positions.get(level)?.as_ref()?;
            Some(level_counters.iter().map(|counter| counts[*counter]).sum())
        })
    };
    let context_misses = |context_use: &ContextUse| ContextMisses {
        context: context_use.context,
        entries: context_use.entries,
        misses: misses(&context_use.self_counts),
    };
    let window = |region: &RegionUse| {
        let cpu_use = region.cpus.get(cpu as usize);
        cpu_use.map(|cpu| cpu.contexts.iter().map(context_misses).collect()).unwrap_or_default()
    };
    let mut windows =
        Windows { all: account.regions.iter().map(window).collect(), ..Windows::default() };
    for context in windows.all.iter().flatten().map(|row| row.context) {
        windows.names.entry(context).or_insert_with(|| account.name_of(context));
    }
    windows
}

#[cfg(test)]
mod tests {
    use attribution::KernelContext;

    use super::*;
    use crate::accounting::CpuUse;

    fn counter_named(wanted: &str) -> usize {
        (0..COUNTERS).find(|counter| counter_name(*counter) == Some(wanted)).unwrap()
    }

    #[test]
    fn each_level_has_counters_of_that_name() {
        for level in Level::ALL {
            miss_counter_names(*level)
                .iter()
                .for_each(|name| assert!(counter_named(name) > 0, "{level} {name}"));
        }
    }

    #[test]
    fn levels_that_are_not_counted_are_absent() {
        let mut counts = Counts::default();
        (
            counts[counter_named("l1d_load_misses")],
            counts[counter_named("l1d_store_misses")],
            counts[counter_named("l1i_misses")],
        ) = (3, 4, 5);
        let context = KernelContext::Interrupt(0x22);
        let used = ContextUse {
            context,
            self_counts: counts,
            inclusive: counts,
            entries: 1,
            completed: 1,
        };
        let cpu = |contexts| CpuUse { contexts, ..CpuUse::default() };
        let region =
            RegionUse { cpus: vec![cpu(Vec::new()), cpu(vec![used])], ..RegionUse::default() };
        let all = ["l1d_load_misses", "l1d_store_misses", "l1i_misses", "dtlb_misses"];
        let counters = all.iter().fold(0, |bits, name| bits | 1 << counter_named(name));
        let account = Accounting { counters, regions: vec![region], ..Accounting::default() };
        let windows_of_cpu_1 = windows(&account, 1);
        let expected = [Some(7), Some(5), None, None, Some(0), None];
        assert_eq!(
            (windows_of_cpu_1.all[0][0].misses, windows_of_cpu_1.all[0][0].entries),
            (expected, 1)
        );
        assert_eq!(windows_of_cpu_1.names[&context], context.to_string());
        assert!(windows(&account, 0).all[0].is_empty());
    }
}
