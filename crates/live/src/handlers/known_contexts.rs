//! The number of contexts that each CPU can have, from the machine's IRQ lines and threads. `bench.rs` allocates the
//! rows of the BPF maps accordingly: each context needs a row.

use std::collections::BTreeMap;

use attribution::context::{SOFTIRQS, VECTORS};

use crate::bpf::KnownContexts;
use crate::host::{
    IrqAffinity, IrqThread, Root, irq_affinities, irq_threads, kernel_threads_are_visible,
};

/// Number of contexts that are neither interrupts nor softirqs: NMI handlers, page faults from user mode, and page
/// faults from kernel mode.
const OTHERS: u32 = 3;

/// For each of `cpus`: the rows that a window needs, or the rows that its calibration needs if they are more. Depends
/// on the present routing of the IRQ lines.
pub(super) fn known_contexts(root: &Root, cpus: &[u32]) -> BTreeMap<u32, KnownContexts> {
    let irqs = irq_affinities(root).unwrap_or_default();
    let threads = if kernel_threads_are_visible(root) {
        irq_threads(root)
    } else {
        one_thread_per_action(&irqs)
    };
    contexts_of_lines(&irqs, &threads, cpus)
}

/// The IRQ threads that lines can have at most, without secondary threads: for a machine whose /proc hides threads.
fn one_thread_per_action(irqs: &[IrqAffinity]) -> Vec<IrqThread> {
    let threads_of_line = |irq: &IrqAffinity| {
        let number = irq.number;
        irq.actions.clone().into_iter().map(move |action| IrqThread { irq: number, action })
    };
    irqs.iter().flat_map(threads_of_line).collect()
}

/// Numbers of IRQ lines, actions and IRQ threads on one CPU.
#[derive(Clone, Copy, Default)]
struct CpuLines {
    lines: u32,
    actions: u32,
    threads: u32,
}

/// Like [`known_contexts`], from the IRQ lines and the IRQ threads of the machine. A line counts on the CPUs to which
/// it is routed, or on all CPUs if that is unknown. A line without a handler does not count.
fn contexts_of_lines(
    irqs: &[IrqAffinity],
    irq_threads: &[IrqThread],
    cpus: &[u32],
) -> BTreeMap<u32, KnownContexts> {
    let all_cpus: Vec<u32> = cpus.to_vec();
    let mut lines_by_cpu: BTreeMap<u32, CpuLines> =
        cpus.iter().map(|cpu| (*cpu, CpuLines::default())).collect();
    let mut threads_of: BTreeMap<u32, u32> = BTreeMap::new();
    irq_threads.iter().for_each(|thread| *threads_of.entry(thread.irq).or_default() += 1);
    for irq in irqs.iter().filter(|irq| !irq.actions.is_empty()) {
        let target_cpus = irq.effective.as_ref().or(irq.allowed.as_ref()).unwrap_or(&all_cpus);
        for cpu in target_cpus {
            let Some(cpu_lines) = lines_by_cpu.get_mut(cpu) else { continue };
            cpu_lines.lines += 1;
            cpu_lines.actions += irq.actions.len() as u32;
            cpu_lines.threads += threads_of.get(&irq.number).copied().unwrap_or(0);
        }
    }
    let (vectors, softirqs) = (VECTORS.len() as u32, SOFTIRQS.len() as u32);
    let known = |CpuLines { lines, actions, threads }| {
        // A line may have a NAPI instance. Calibration needs two rows for each context.
        let window = vectors + softirqs + OTHERS + actions + lines + threads;
        let all = window.max(2 * (vectors + softirqs + lines));
        KnownContexts { all, nesting: softirqs + threads, irq_threads: threads }
    };
    lines_by_cpu.into_iter().map(|(cpu, cpu_lines)| (cpu, known(cpu_lines))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::RowLayout;
    use crate::bpf::rows::ROWS_MAX;

    /// A line that may interrupt every CPU, with `actions` handlers. `effective`: the CPUs to which it is routed; `None` if the
    /// kernel does not say.
    fn line(number: u32, actions: usize, effective: Option<Vec<u32>>) -> IrqAffinity {
        let actions = vec!["nvme".to_owned(); actions];
        IrqAffinity { number, actions, allowed: Some((0..512).collect()), effective }
    }

    #[test]
    fn a_cpu_has_the_lines_and_the_threads_of_the_lines_that_go_to_it() {
        let irqs = [
            line(1, 1, Some(vec![0])),
            line(2, 0, Some(vec![0])),    // no handler
            line(3, 9, Some(vec![1, 7])), // CPU 7 is not measured
            line(4, 1, None),
        ];
        let thread = IrqThread { irq: 3, action: "nvme".to_owned() };
        let known = contexts_of_lines(&irqs, &[thread], &[0, 1, 2]);
        // The calibration needs the most rows: two for each vector, softirq and line.
        let without_lines = 2 * (VECTORS.len() + SOFTIRQS.len()) as u32;
        let lines_by_cpu = [2, 2, 1]; // lines 1 and 4; 3 and 4; 4
        let rows_by_cpu = lines_by_cpu.map(|lines| without_lines + 2 * lines);
        assert_eq!([0, 1, 2].map(|cpu| known[&cpu].all), rows_by_cpu);
        let softirqs = SOFTIRQS.len() as u32;
        assert_eq!([0, 1, 2].map(|cpu| known[&cpu].nesting), [softirqs, softirqs + 1, softirqs]);
    }

    /// A server of 512 CPUs with 16 NVMe controllers that have a queue for each CPU, and two
    /// network cards of 256 queues: 8,704 lines.
    #[test]
    fn a_large_server_needs_bounded_memory() {
        let cpus: Vec<u32> = (0..512).collect();
        let nvme = (0..16 * 512).map(|number| line(number, 1, Some(vec![number % 512])));
        let cards = (0..512).map(|number| line(10_000 + number, 1, Some(vec![number])));
        let irqs: Vec<IrqAffinity> = nvme.chain(cards).collect();
        let layout = RowLayout::for_contexts(&contexts_of_lines(&irqs, &[], &cpus), ROWS_MAX);
        assert!(layout.on(511).rows >= 2 * (21 + 17));
        // 1.3 MB a CPU: a row has histograms of the sections of its window.
        assert!(layout.bytes() < 640 << 20, "{}", layout.bytes());
    }
}
