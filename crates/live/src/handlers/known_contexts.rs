//! How many contexts each CPU is known to have: for so many there are rows.

use std::collections::BTreeMap;

use attribution::context::{SOFTIRQS, VECTORS};

use crate::host::{IrqAffinity, Root, irq_affinities};

/// NMI handlers, and page faults from user and kernel mode.
const OTHERS: u32 = 3;

/// For each of `cpus`: the rows that a window needs, or its calibration if that is more, as this machine's
/// IRQ lines are routed now.
pub(super) fn known_contexts(root: &Root, cpus: &[u32]) -> BTreeMap<u32, u32> {
    of_lines(&irq_affinities(root).unwrap_or_default(), cpus)
}

fn of_lines(irqs: &[IrqAffinity], cpus: &[u32]) -> BTreeMap<u32, u32> {
    let everywhere: Vec<u32> = cpus.to_vec();
    let mut on_cpu: BTreeMap<u32, (u32, u32)> = cpus.iter().map(|cpu| (*cpu, (0, 0))).collect();
    for irq in irqs.iter().filter(|irq| !irq.actions.is_empty()) {
        let goes_to = irq.effective.as_ref().or(irq.allowed.as_ref()).unwrap_or(&everywhere);
        for cpu in goes_to {
            let Some((lines, actions)) = on_cpu.get_mut(cpu) else { continue };
            *lines += 1;
            *actions += irq.actions.len() as u32;
        }
    }
    let (vectors, softirqs) = (VECTORS.len() as u32, SOFTIRQS.len() as u32);
    let rows = |(lines, actions): (u32, u32)| {
        // A line may have a NAPI instance. Calibration has two rows for each context.
        let window = vectors + softirqs + OTHERS + actions + lines;
        window.max(2 * (vectors + softirqs + lines))
    };
    on_cpu.into_iter().map(|(cpu, counts)| (cpu, rows(counts))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::RowLayout;

    fn line(number: u32, actions: usize, effective: Option<Vec<u32>>) -> IrqAffinity {
        let actions = vec!["nvme".to_owned(); actions];
        IrqAffinity { number, actions, allowed: Some((0..512).collect()), effective }
    }

    #[test]
    fn a_cpu_has_the_lines_that_go_to_it() {
        let irqs = [
            line(1, 1, Some(vec![0])),
            line(2, 0, Some(vec![0])), // no handler
            line(3, 9, Some(vec![1, 7])),
            line(4, 1, None),
        ];
        let known = of_lines(&irqs, &[0, 1, 2]);
        let fixed = 2 * (VECTORS.len() + SOFTIRQS.len()) as u32;
        assert_eq!(known[&0], fixed + 4);
        assert_eq!(known[&1], fixed + 4);
        assert_eq!(known[&2], fixed + 2);
    }

    /// A server of 512 CPUs with 16 NVMe controllers that have a queue for each CPU, and two network cards
    /// of 256 queues: 8,704 lines.
    #[test]
    fn a_large_server_needs_bounded_memory() {
        let cpus: Vec<u32> = (0..512).collect();
        let nvme = (0..16 * 512).map(|at| line(at, 1, Some(vec![at % 512])));
        let cards = (0..512).map(|at| line(10_000 + at, 1, Some(vec![at])));
        let irqs: Vec<IrqAffinity> = nvme.chain(cards).collect();
        let layout = RowLayout::for_contexts(&of_lines(&irqs, &cpus));
        assert!(layout.on(511).rows >= 2 * (21 + 17));
        assert!(layout.bytes() < 320 << 20, "{}", layout.bytes());
    }
}
