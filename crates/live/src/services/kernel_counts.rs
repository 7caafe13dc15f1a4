//! Compares the interrupts and softirqs that the probes counted with the kernel's own counters, which the gate reads
//! when a CPU's window opens and closes. The kernel does not call BPF programs for all of them (docs/handlers.md,
//! "Undelivered and lost events").

use attribution::context::{SOFTIRQS, SYSTEM_VECTORS};
use lab::services::{Agreement, Class, Undelivered};

use super::sums::CpuTime;
use crate::bpf::kernel_counters::VECTOR_COUNTERS;
use crate::bpf::layout::{
    COUNTER_ABSENT, COUNTER_DEVICES, COUNTER_VECTORS, SERVICE_IRQ, SERVICE_SOFTIRQ, SERVICE_VECTOR,
};
use crate::handlers::agreement::{
    Files, LINES_OF_VECTORS, SOFTIRQ_EDGE_MAX, counters_agree_with_files,
};

/// A counter of the kernel, and the services whose requests it counts.
struct Line {
    /// Index of the counter among those that the gate reads.
    counter: usize,
    /// The counted events, as a table names them.
    what: String,
    /// Number, class and name of each service.
    services: Vec<(usize, Class, String)>,
    /// Largest difference of the counts on one CPU that the edges of a window can cause.
    edge_max: u64,
}

/// All counters that are compared: device interrupts, vectors, softirqs. Their order is the order of the table's rows.
fn lines() -> Vec<Line> {
    let devices = Line {
        counter: COUNTER_DEVICES,
        what: "device interrupts".to_owned(),
        services: vec![(SERVICE_IRQ, Class::Irq, super::bench::ALL_DEVICES.to_owned())],
        edge_max: 0,
    };
    let softirq = |(number, name): (usize, &&str)| Line {
        counter: number,
        what: format!("softirqs {name}"),
        services: vec![(SERVICE_SOFTIRQ + number, Class::Softirq, (*name).to_owned())],
        edge_max: SOFTIRQ_EDGE_MAX,
    };
    let vectors = |(label, names): &(&str, &[&str])| {
        let number = VECTOR_COUNTERS.iter().position(|(_, line)| line == label)?;
        let service = |name: &&str| {
            let position = SYSTEM_VECTORS.iter().position(|vector| vector.name == *name)?;
            Some((SERVICE_VECTOR + position, Class::Interrupt, (*name).to_owned()))
        };
        Some(Line {
            counter: COUNTER_VECTORS + number,
            what: format!("interrupts {}", names.join(", ")),
            services: names.iter().map(service).collect::<Option<Vec<_>>>()?,
            edge_max: 0,
        })
    };
    let softirqs = SOFTIRQS.iter().enumerate().map(softirq);
    let vectors = LINES_OF_VECTORS.iter().filter_map(vectors);
    std::iter::once(devices).chain(vectors).chain(softirqs).collect()
}

/// The increase of a kernel counter on a CPU while the CPU's window was open. `None` if the gate could not read the
/// counter. The kernel's counter of device interrupts has 64 bits, all others have 32 bits.
fn exact(cpu: &CpuTime, counter: usize) -> Option<u64> {
    let [first, last] = [0, 1]
        .map(|edge: usize| cpu.kernel[edge].get(counter).filter(|value| **value != COUNTER_ABSENT));
    let (first, last) = (*first?, *last?);
    match counter {
        COUNTER_DEVICES => Some(last.wrapping_sub(first)),
        _ => Some(u64::from((last as u32).wrapping_sub(first as u32))),
    }
}

/// The conditions of a comparison.
#[derive(Clone, Copy)]
pub(super) struct ComparisonConditions<'a> {
    /// Readings before the first window opened, and after the last one closed.
    pub files: [&'a Files; 2],
    /// Whether this kernel has the tracepoints whose names start with this text.
    pub is_probed: &'a dyn Fn(&str) -> bool,
    /// Events that the probes did not count.
    pub lost: u64,
    /// Upper bound of the device interrupts that the kernel counts and that have no tracepoint. `None` if it is unknown.
    pub nested_threaded_max: Option<u64>,
}

/// Compares all counters. Returns the comparisons, and for each service an upper bound of the requests that the kernel
/// did not deliver to the probes. Both are empty if the gate's counters are not valid.
///
/// Device interrupts are not compared if a line has several handlers: one interrupt is then several requests. They are not
/// compared either if an unknown number of them has no tracepoint.
pub(super) fn compare(
    cpus: &[CpuTime],
    conditions: ComparisonConditions<'_>,
) -> (Vec<Agreement>, Vec<Undelivered>) {
    let (mut agreement, mut undelivered) = (Vec::new(), Vec::new());
    let are_valid = |cpu: &CpuTime| {
        counters_agree_with_files(cpu.cpu, [&cpu.kernel[0], &cpu.kernel[1]], conditions.files)
    };
    if !cpus.iter().all(are_valid) {
        return (agreement, undelivered);
    }
    for line in lines() {
        let is_devices = line.counter == COUNTER_DEVICES;
        let is_probed = |(_, class, name): &(usize, Class, String)| {
            (conditions.is_probed)(tracepoint(*class, name))
        };
        if !line.services.iter().all(is_probed)
            || (is_devices && conditions.files[1].has_shared_actions())
        {
            continue;
        }
        let kernel: Option<u64> = cpus.iter().map(|cpu| exact(cpu, line.counter)).sum();
        let Some(kernel) = kernel else { continue };
        let started = cpus.iter().flat_map(|cpu| &cpu.started);
        let is_counted =
            |service: usize| line.services.iter().any(|(number, ..)| *number == service);
        let counted: u64 =
            started.filter(|(service, _)| is_counted(*service)).map(|(_, count)| count).sum();
        let unseen = if is_devices { conditions.nested_threaded_max } else { Some(0) };
        let Some(unseen) = unseen else { continue };
        // Each CPU that goes offline closes its window with interrupts on, which can miss one interrupt.
        let offline = cpus.iter().filter(|cpu| cpu.went_offline).count() as u64;
        let edge_max = line.edge_max * cpus.len() as u64 + offline + conditions.lost + unseen;
        let missing = kernel.saturating_sub(counted);
        undelivered.extend(line.services.into_iter().map(|(_, class, service)| Undelivered {
            class,
            service,
            max: missing,
            is_beyond_edges: missing > edge_max,
        }));
        if kernel > 0 || counted > 0 {
            agreement.push(Agreement {
                what: line.what,
                counted,
                kernel: Some(kernel),
                source: "the counters of /proc/interrupts and /proc/softirqs, read as each CPU's window opened and closed"
                    .to_owned(),
                edge_max,
            });
        }
    }
    (agreement, undelivered)
}

/// The tracepoint at the entry of a service.
fn tracepoint(class: Class, name: &str) -> &str {
    match class {
        Class::Irq => "irq_handler",
        Class::Softirq => "softirq",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::layout::KERNEL_COUNTERS;

    /// A CPU on which the kernel counted `kernel` interrupts of counter `counter`, and the probes `counted`.
    fn cpu(counter: usize, kernel: u64, (service, counted): (usize, u64)) -> CpuTime {
        let mut counters =
            [vec![COUNTER_ABSENT; KERNEL_COUNTERS], vec![COUNTER_ABSENT; KERNEL_COUNTERS]];
        counters[0][counter] = 1000;
        counters[1][counter] = 1000 + kernel;
        CpuTime { kernel: counters, started: vec![(service, counted)], ..CpuTime::default() }
    }

    fn compared(cpus: &[CpuTime], lost: u64) -> (Vec<Agreement>, Vec<Undelivered>) {
        let files = Files::default();
        let files = [&files, &files];
        compare(
            cpus,
            ComparisonConditions {
                files,
                is_probed: &|_| true,
                lost,
                nested_threaded_max: Some(0),
            },
        )
    }

    #[test]
    fn rows_have_what_the_kernel_counted_beyond_the_probes() {
        let cpus = [
            cpu(COUNTER_DEVICES, 100, (SERVICE_IRQ, 100)),
            cpu(COUNTER_DEVICES, 50, (SERVICE_IRQ, 46)),
        ];
        let (agreement, undelivered) = compared(&cpus, 0);
        assert_eq!((agreement[0].counted, agreement[0].kernel), (146, Some(150)));
        assert_eq!((undelivered[0].max, undelivered[0].is_beyond_edges), (4, true));
        assert!(!compared(&cpus, 4).1[0].is_beyond_edges, "as many were lost");
    }

    #[test]
    fn a_softirq_may_be_on_the_edge_and_both_function_calls_lack_what_is_missing() {
        let (_, undelivered) = compared(&[cpu(3, 9, (SERVICE_SOFTIRQ + 3, 8))], 0);
        let net = &undelivered[0];
        assert_eq!((net.service.as_str(), net.max, net.is_beyond_edges), ("NET_RX", 1, false));
        let calls = VECTOR_COUNTERS.iter().position(|(_, label)| *label == "CAL").unwrap();
        let single =
            SYSTEM_VECTORS.iter().position(|one| one.name == "call_function_single").unwrap();
        let cpus = [cpu(COUNTER_VECTORS + calls, 5, (SERVICE_VECTOR + single, 3))];
        let (_, undelivered) = compared(&cpus, 0);
        let lacks: Vec<(&str, u64)> =
            undelivered.iter().map(|one| (one.service.as_str(), one.max)).collect();
        assert_eq!(lacks, [("call_function", 2), ("call_function_single", 2)]);
    }

    #[test]
    fn counters_wrap_and_absent_ones_are_not_compared() {
        let timer = VECTOR_COUNTERS.iter().position(|(_, label)| *label == "LOC").unwrap();
        let mut wraps = cpu(COUNTER_VECTORS + timer, 0, (SERVICE_VECTOR, 7));
        wraps.kernel[0][COUNTER_VECTORS + timer] = u64::from(u32::MAX);
        wraps.kernel[1][COUNTER_VECTORS + timer] = 6;
        assert_eq!(compared(&[wraps], 0).0[0].kernel, Some(7));
        let mut absent = cpu(COUNTER_DEVICES, 0, (SERVICE_IRQ, 7));
        absent.kernel[1][COUNTER_DEVICES] = COUNTER_ABSENT;
        assert_eq!(compared(&[absent], 0), (Vec::new(), Vec::new()));
    }
}
