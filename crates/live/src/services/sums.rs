//! The counts and times that the BPF programs recorded in a window: per service over all CPUs, and per CPU.

use crate::bpf::layout::{ServiceCpu, ServiceRow};

/// All counts of a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// The services that occurred: number and sums, ascending by number.
    pub(super) services: Vec<(usize, ServiceSums)>,
    /// The time of each CPU whose window has closed.
    pub(super) cpus: Vec<CpuTime>,
    /// Number of events that were not recorded: no free row, no state of the task, or the stack was full.
    pub(super) lost: u64,
}

/// The time of a CPU in its window, by part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTime {
    pub(super) cpu: u32,
    /// Length of the CPU's window.
    pub(super) window_ns: u64,
    /// Whether the window closed because the kernel took the CPU offline.
    pub(super) went_offline: bool,
    /// Number and time (ns) of each service.
    pub(super) services: Vec<(usize, u64)>,
    /// Time in the BPF programs.
    pub(super) probes_ns: u64,
    /// Time of services for which no row was free.
    pub(super) unplaced_ns: u64,
    /// Number of each service, and its requests that started.
    pub(super) started: Vec<(usize, u64)>,
    /// The kernel's counters when the window opened, and when it closed.
    pub(super) kernel: [Vec<u64>; 2],
}

impl CpuTime {
    /// The window of a CPU, without its services. `None` while the window is open, or if it was never opened.
    pub(super) fn from_state(cpu: u32, state: &ServiceCpu) -> Option<CpuTime> {
        let window_ns = state.closed_ns.checked_sub(state.opened_ns)?;
        (state.closed_ns > 0).then(|| CpuTime {
            cpu,
            window_ns,
            went_offline: state.went_offline != 0,
            services: Vec::new(),
            probes_ns: state.probes_ns,
            unplaced_ns: state.unplaced_ns,
            started: Vec::new(),
            kernel: [state.kernel_opened, state.kernel_closed].map(|counters| counters.to_vec()),
        })
    }

    /// The sum of all parts. Must equal `window_ns`.
    pub(super) fn sum_ns(&self) -> u64 {
        let services: u64 = self.services.iter().map(|(_, ns)| ns).sum();
        services + self.probes_ns + self.unplaced_ns
    }
}

/// The sums of a service over all CPUs.
#[derive(Clone, Debug)]
pub(super) struct ServiceSums {
    /// CPU time of the service, without what interrupted it.
    pub(super) self_ns: u64,
    // The next fields are sums of the fields of `ServiceRow` with these names.
    pub(super) started: u64,
    pub(super) completed: u64,
    pub(super) unseen: u64,
    pub(super) latency_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) descheduled_ns: u64,
    pub(super) nested_ns: u64,
    /// Completed requests by latency: a histogram with the slots of `stats::LogLinear`.
    pub(super) latencies: Vec<u64>,
}

impl Default for ServiceSums {
    fn default() -> Self {
        ServiceSums {
            self_ns: 0,
            started: 0,
            completed: 0,
            unseen: 0,
            latency_ns: 0,
            blocked_ns: 0,
            descheduled_ns: 0,
            nested_ns: 0,
            latencies: vec![0; stats::histogram::SLOTS],
        }
    }
}

impl ServiceSums {
    /// Adds the requests of a row, but not its CPU time: `ServiceProbes::read` adds the time if the CPU's window has
    /// closed.
    pub(super) fn add(&mut self, row: &ServiceRow) {
        self.started += row.started;
        self.completed += row.completed;
        self.unseen += row.unseen;
        self.latency_ns += row.latency_ns;
        self.blocked_ns += row.blocked_ns;
        self.descheduled_ns += row.descheduled_ns;
        self.nested_ns += row.nested_ns;
        for (sum, count) in self.latencies.iter_mut().zip(row.latencies) {
            *sum += u64::from(count);
        }
    }
}
