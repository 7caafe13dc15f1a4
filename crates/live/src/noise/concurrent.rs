//! The concurrent activity of the CPUs, from their marks, and the position of
//! each CPU in the machine.

use lab::noise::{BusyIntervals, CpuActivity, Place};

use crate::host::{CpuFacts, Root, cpu_facts};

/// The activity of each CPU, from its busy intervals and the end of its loop, ns. Empty if the
/// kernel does not report the position of one of the CPUs.
pub(super) fn concurrent_activity(
    root: &Root,
    of_cpus: Vec<(u32, BusyIntervals, u64)>,
) -> Vec<CpuActivity> {
    let facts = cpu_facts(root);
    let of_cpu = |(cpu, intervals, end_ns): (u32, BusyIntervals, u64)| {
        let mut activity = intervals.finish(position(&facts, cpu)?, end_ns);
        // Marks after the loop's last record were not used.
        activity.until_ns = Some(activity.until_ns.map_or(end_ns, |until| until.min(end_ns)));
        Some(activity)
    };
    of_cpus.into_iter().map(of_cpu).collect::<Option<_>>().unwrap_or_default()
}

fn position(facts: &CpuFacts, cpu: u32) -> Option<Place> {
    let topology = facts.topology.iter().find(|topology| topology.cpu == cpu)?;
    Some(Place { cpu, core: topology.core?, socket: topology.package? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::CpuTopology;

    #[test]
    fn a_cpu_is_where_the_kernel_says_it_is() {
        let on_core =
            |cpu, core| CpuTopology { cpu, core, package: Some(1), ..CpuTopology::default() };
        let topology = vec![on_core(0, Some(4)), on_core(1, None)];
        let facts = CpuFacts { topology, ..CpuFacts::default() };
        assert_eq!(position(&facts, 0), Some(Place { cpu: 0, core: 4, socket: 1 }));
        assert_eq!(position(&facts, 1), None);
        assert_eq!(position(&facts, 2), None);
    }

    #[test]
    fn without_the_place_of_every_cpu_there_is_no_activity() {
        let nowhere = Root::new("/nonexistent");
        assert!(concurrent_activity(&nowhere, vec![(0, BusyIntervals::default(), 5)]).is_empty());
    }
}
