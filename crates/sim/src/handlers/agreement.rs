//! Compares the plugin's counts with the counters of the guest's kernel, for the table `agreement` of `handlers`, and
//! for a warning of `services`. The plugin read the kernel's counters from its memory when the window opened and
//! closed.

use std::collections::BTreeMap;

use attribution::KernelContext;
use attribution::context::SOFTIRQS;
use lab::handlers::Agreement;

use crate::accounting::{CpuUse, KernelUse};

/// Lines of /proc/interrupts whose counters the plugin records. Each entry has the vector of the counter, the name of
/// the line, and the names of what the line counts; and a second vector, if the line counts two.
const LINES: [(u8, &str, &str, Option<u8>); 4] = [
    (0xec, "LOC", "local_timer", None),
    (0xfd, "RES", "reschedule", None),
    (0xfb, "CAL", "call_function, call_function_single", Some(0xfc)),
    (0xf6, "IWI", "irq_work", None),
];

/// Returns the comparison of every counter of the kernel on a CPU.
pub(crate) fn lines_of(used: &CpuUse, irqs: &BTreeMap<u32, String>) -> Vec<Agreement> {
    used.kernel.iter().filter_map(|kernel| line_of(used, kernel, irqs)).collect()
}

/// Compares a counter of the kernel; `None` for a counter that no table shows.
fn line_of(used: &CpuUse, kernel: &KernelUse, irqs: &BTreeMap<u32, String>) -> Option<Agreement> {
    let entries = |context| {
        let rows = used.contexts.iter().filter(|row| row.context == context);
        rows.map(|row| row.entries).sum::<u64>()
    };
    let mut counted = entries(kernel.context);
    let (line, name) = match kernel.context {
        KernelContext::Interrupt(vector) => {
            let (_, line, name, second_vector) =
                LINES.iter().find(|(known, ..)| *known == vector)?;
            counted += second_vector.map_or(0, |vector| entries(KernelContext::Interrupt(vector)));
            ((*line).to_owned(), (*name).to_owned())
        }
        KernelContext::Softirq(number) => {
            let line = SOFTIRQS.get(usize::from(number))?;
            ((*line).to_owned(), "softirq".to_owned())
        }
        KernelContext::Irq(number) => {
            (number.to_string(), irqs.get(&number).cloned().unwrap_or_default())
        }
        _ => return None,
    };
    Some(Agreement {
        cpu: used.cpu,
        line,
        name,
        counted: Some(counted),
        kernel_exact: Some(kernel.count),
        kernel_min: None,
        kernel_max: None,
        edge_max: kernel.edge_max,
    })
}

#[cfg(test)]
mod tests {
    use simrecord::counters::Counts;

    use super::*;
    use crate::accounting::ContextUse;

    #[test]
    fn lines_carry_the_names_of_the_live_bench() {
        let row = |context, entries| {
            let (self_counts, inclusive) = (Counts::default(), Counts::default());
            ContextUse { context, self_counts, inclusive, entries, completed: entries }
        };
        let kernel = |context, count| KernelUse { context, count, edge_max: 0 };
        let call = KernelContext::Interrupt(0xfb);
        let used = CpuUse {
            cpu: 1,
            contexts: vec![row(call, 2), row(KernelContext::Interrupt(0xfc), 3)],
            kernel: vec![
                kernel(call, 5),
                kernel(KernelContext::Softirq(9), 4),
                kernel(KernelContext::Irq(24), 1),
                kernel(KernelContext::Interrupt(0x20), 1),
            ],
            ..CpuUse::default()
        };
        let irqs = BTreeMap::from([(24, "nvme0q0".to_owned())]);
        let lines = lines_of(&used, &irqs);
        let seen: Vec<(&str, &str, Option<u64>, Option<u64>)> = lines
            .iter()
            .map(|line| (&*line.line, &*line.name, line.counted, line.kernel_exact))
            .collect();
        let call = "call_function, call_function_single";
        assert_eq!(
            seen,
            [
                ("CAL", call, Some(5), Some(5)),
                ("RCU", "softirq", Some(0), Some(4)),
                ("24", "nvme0q0", Some(0), Some(1)),
            ]
        );
    }
}
