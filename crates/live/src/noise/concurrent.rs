//! The concurrent activity of the measured CPUs: when each was busy, and the CPU's core and socket. `lab::noise` looks
//! in it for simultaneous activity on neighbouring CPUs.

use lab::noise::{BusyIntervals, CpuActivity, Place};

use crate::host::{CpuFacts, Root, cpu_facts};

/// The activity of each CPU. Input: CPU, busy intervals, and the end of the CPU's loop, ns. Empty if the kernel does
/// not report core and socket of one of the CPUs.
pub(super) fn concurrent_activity(
    root: &Root,
    busy_cpus: Vec<(u32, BusyIntervals, u64)>,
) -> Vec<CpuActivity> {
    let facts = cpu_facts(root);
    let activity_of = |(cpu, intervals, end_ns): (u32, BusyIntervals, u64)| {
        let mut activity = intervals.finish(position(&facts, cpu)?, end_ns);
        // The activity is known only until the loop's last record: later marks were not used.
        activity.until_ns = Some(activity.until_ns.map_or(end_ns, |until| until.min(end_ns)));
        Some(activity)
    };
    busy_cpus.into_iter().map(activity_of).collect::<Option<_>>().unwrap_or_default()
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
