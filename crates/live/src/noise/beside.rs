//! What CPUs did beside their loops, as the marks say, and where they are.

use lab::noise::{Beside, Place, Stretches};

use crate::host::{CpuFacts, Root, cpu_facts};

/// Of CPUs, what they did, and when their loop ended, ns; none of any when the kernel does not say where
/// one of them is.
pub(super) fn beside(root: &Root, of_cpus: Vec<(u32, Stretches, u64)>) -> Vec<Beside> {
    let facts = cpu_facts(root);
    let of_cpu = |(cpu, stretches, end_ns): (u32, Stretches, u64)| {
        let mut beside = stretches.finish(place(&facts, cpu)?, end_ns);
        // Behind its loop's last record nothing was joined.
        beside.until_ns = Some(beside.until_ns.map_or(end_ns, |until| until.min(end_ns)));
        Some(beside)
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
    fn without_a_place_of_all_there_is_nothing_to_tell() {
        let nowhere = Root::new("/nonexistent");
        assert!(beside(&nowhere, vec![(0, Stretches::default(), 5)]).is_empty());
    }
}
