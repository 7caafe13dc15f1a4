//! The parts of a CPU's time, for the table `cpu_times`: each has a name, and the method by which it is measured. Names
//! and methods are public; their order is the order of the rows.

use lab::services::{Agreement, CpuTimes, TimePart};

use super::sums::CpuTime;
use crate::bpf::layout::{
    SERVICE_FAULT_KERNEL, SERVICE_FAULT_USER, SERVICE_IDLE, SERVICE_IRQ, SERVICE_KERNEL_THREAD,
    SERVICE_SOFTIRQ, SERVICE_SYSCALLS, SERVICE_USER, SERVICE_VECTOR,
};

/// Name of the part with the time of irqlab's BPF programs; also the name of a service in the table `services`.
pub(super) const PROBES: &str = "irqlab's probes";
/// Name of the part whose service is unknown; also the name of a service in the table `services`.
pub(super) const NOT_KNOWN: &str = "not known";

/// Names and methods of the parts, in the order of [`part_of`].
const PARTS: [(&str, &str); 10] = [
    (
        "user mode",
        "from the end of a system call, a page fault, an interrupt or a switch of tasks to the next of these; with \
         kernel entry and exit without a tracepoint, exceptions other than page faults, and NMIs",
    ),
    ("system calls", "from sys_enter to sys_exit, while the task runs, without what interrupts it"),
    (
        "page faults",
        "from page_fault_user or page_fault_kernel to the software event page-faults-min or -maj, while the task \
         runs; until the next system call or signal if the fault fails",
    ),
    ("interrupts", "from entry to exit of the vector's tracepoints, without nested interrupts"),
    ("device handlers", "from irq_handler_entry to irq_handler_exit, without nested interrupts"),
    ("softirqs", "from softirq_entry to softirq_exit, without nested interrupts"),
    ("kernel threads", "from sched_switch to sched_switch, without interrupts"),
    ("idle", "from sched_switch to the idle task to the next switch, without interrupts"),
    (
        PROBES,
        "inside of the BPF programs that divide this time, by their own readings of the clock; entry into a \
         program and exit from it are in the other parts",
    ),
    (
        NOT_KNOWN,
        "the task's state is not known, or there are more services than rows: from a switch to a thread of process 1 to \
         the next event of another task (some kernels call no BPF program while such a thread runs), and tasks before \
         their first system call where the kernel does not give BPF their registers (before Linux 5.15)",
    ),
];
/// Indices in [`PARTS`].
const PROBES_INDEX: usize = 8;
const NOT_KNOWN_INDEX: usize = 9;

/// Index in [`PARTS`] of the part that contains a service.
fn part_of(service: usize) -> usize {
    match service {
        SERVICE_USER => 0,
        number if number < SERVICE_SYSCALLS => 1,
        SERVICE_FAULT_USER | SERVICE_FAULT_KERNEL => 2,
        number if (SERVICE_VECTOR..SERVICE_IRQ).contains(&number) => 3,
        SERVICE_IRQ => 4,
        number if (SERVICE_SOFTIRQ..SERVICE_VECTOR).contains(&number) => 5,
        SERVICE_KERNEL_THREAD => 6,
        SERVICE_IDLE => 7,
        _ => NOT_KNOWN_INDEX,
    }
}

/// The parts of a CPU's time. They add up to the window.
pub(super) fn parts_of_cpu(time: &CpuTime) -> CpuTimes {
    let part = |(name, method): &(&str, &str)| TimePart {
        name: (*name).to_owned(),
        ticks: 0,
        method: (*method).to_owned(),
    };
    let mut parts: Vec<TimePart> = PARTS.iter().map(part).collect();
    for (service, ns) in &time.services {
        parts[part_of(*service)].ticks += ns;
    }
    parts[PROBES_INDEX].ticks += time.probes_ns;
    parts[NOT_KNOWN_INDEX].ticks += time.unplaced_ns;
    CpuTimes { cpu: time.cpu, window_ticks: time.window_ns, parts }
}

/// Compares the sum of all parts of all CPUs with the sum of the CPUs' windows. The sums must be equal in every run.
pub(super) fn closure(times: &[CpuTime]) -> Agreement {
    Agreement {
        what: "time of all CPUs, ns".to_owned(),
        counted: times.iter().map(CpuTime::sum_ns).sum(),
        kernel: Some(times.iter().map(|time| time.window_ns).sum()),
        source: "the clock when each CPU's window opened and closed".to_owned(),
        edge_max: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_is_in_one_part_and_the_parts_add_up() {
        let services = vec![
            (SERVICE_USER, 1),
            (0, 2),
            (SERVICE_SYSCALLS - 1, 4),
            (SERVICE_FAULT_KERNEL, 8),
            (SERVICE_VECTOR, 16),
            (SERVICE_IRQ, 32),
            (SERVICE_SOFTIRQ + 9, 64),
            (SERVICE_KERNEL_THREAD, 128),
            (SERVICE_IDLE, 256),
            (crate::bpf::layout::SERVICE_UNKNOWN, 512),
        ];
        let (window_ns, probes_ns, unplaced_ns) = (7_167, 2_048, 4_096);
        let time =
            CpuTime { cpu: 3, window_ns, services, probes_ns, unplaced_ns, ..CpuTime::default() };
        let parts = parts_of_cpu(&time);
        let ticks: Vec<u64> = parts.parts.iter().map(|part| part.ticks).collect();
        assert_eq!(ticks, [1, 6, 8, 16, 32, 64, 128, 256, 2_048, 4_608]);
        assert_eq!(ticks.iter().sum::<u64>(), time.sum_ns());
        let closure = closure(&[time.clone(), time]);
        assert_eq!((closure.counted, closure.kernel), (14_334, Some(14_334)));
    }
}
