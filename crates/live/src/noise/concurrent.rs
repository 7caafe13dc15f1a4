//! The concurrent activity of the CPUs, from their marks, and the place of each CPU.

use lab::noise::{BusyIntervals, CpuActivity, Place};

use crate::host::{CpuFacts, Root, cpu_facts};

/// The activity of each CPU, from its busy intervals and the end of its loop, ns. Empty when the kernel
/// does not report the place of one of them.
pub(super) fn concurrent_activity(
    root: &Root,
    of_cpus: Vec<(u32, BusyIntervals, u64)>,
) -> Vec<CpuActivity> {
    let facts = cpu_facts(root);
    let of_cpu = |(cpu, intervals, end_ns): (u32, BusyIntervals, u64)| {
        let mut activity = intervals.finish(place(&facts, cpu)?, end_ns);
        // After the loop's last record no marks were used.
        activity.until_ns = Some(activity.until_ns.map_or(end_ns, |until| until.min(end_ns)));
        Some(activity)
    };
    of_cpus.into_iter().map(of_cpu).collect::<Option<_>>().unwrap_or_default()
}

fn place(facts: &CpuFacts, cpu: u32) -> Option<Place> {
    let of = facts.topology.iter().find(|one| one.cpu == cpu)?;
    Some(Place { cpu, core: of.core?, socket: of.package? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::CpuTopology;

    #[test]
    fn a_cpu_is_where_the_kernel_says_it_is() {
        let of = |cpu, core| CpuTopology { cpu, core, package: Some(1), ..CpuTopology::default() };
        let topology = vec![of(0, Some(4)), of(1, None)];
        let facts = CpuFacts { topology, ..CpuFacts::default() };
        assert_eq!(place(&facts, 0), Some(Place { cpu: 0, core: 4, socket: 1 }));
        assert_eq!(place(&facts, 1), None);
        assert_eq!(place(&facts, 2), None);
    }

    #[test]
    fn without_the_place_of_every_cpu_there_is_no_activity() {
        let nowhere = Root::new("/nonexistent");
        assert!(concurrent_activity(&nowhere, vec![(0, BusyIntervals::default(), 5)]).is_empty());
    }
}
