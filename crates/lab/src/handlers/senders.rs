//! Senders of inter-processor interrupts in one window, as a bench reports them: who asked another CPU to call a
//! function, or sent it an interrupt, and what the function cost there.

use attribution::Context;
use serde::{Deserialize, Serialize};

use crate::experiment::Absence;

/// The name of the vector of reschedule interrupts.
const RESCHEDULE: &str = "reschedule";

/// The name of the table.
pub const SENDERS: &str = "senders";

/// Facts about senders that a bench does not measure, each with the reason.
#[must_use]
pub fn unmeasured_of_senders(method: SenderMethod) -> Vec<Absence> {
    let wait = (
        "the wait of a sender for all targets of a call together",
        "no event says which queued calls belong to one call of several CPUs; completion_mean_ns is for each target",
    );
    let irq_work =
        ("runs of irq_work that is queued to another CPU", "the kernel has no event for them");
    let unmeasured = match method {
        SenderMethod::Probes => vec![wait, irq_work],
        SenderMethod::Simulator => vec![wait],
    };
    let absence = |(subject, reason)| Absence::new(SENDERS, subject, reason);
    unmeasured.into_iter().map(absence).collect()
}

/// How a bench measures senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderMethod {
    /// By programs at the kernel's tracepoints. Their overhead is subtracted from the runs.
    Probes,
    /// By a simulator that sees the kernel's functions. Nothing is subtracted.
    Simulator,
}

/// The action of a sender; the action of the target if the sender is not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SenderEvent {
    /// Queues a call of a function for another CPU.
    Call(CallType),
    /// Sends an interrupt. The name of its vector; `None` if it is not known.
    Interrupt(Option<&'static str>),
    /// A function was called, and no queued call can be joined to the run.
    UnjoinedRun,
}

impl SenderEvent {
    /// The event's name in results.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            SenderEvent::Call(_) => "call",
            SenderEvent::Interrupt(_) => "interrupt",
            SenderEvent::UnjoinedRun => "run",
        }
    }

    /// The number of calls, interrupts or runs of this event.
    #[must_use]
    pub(super) fn count_of(&self, counts: &SenderCounts) -> u64 {
        match self {
            SenderEvent::UnjoinedRun => counts.run_count,
            SenderEvent::Call(_) | SenderEvent::Interrupt(_) => counts.count,
        }
    }

    /// How many calls or interrupts are joined to their run or start on the target. `None` for events that are never joined.
    #[must_use]
    pub(super) fn joined_count_of(
        &self,
        counts: &SenderCounts,
        method: SenderMethod,
    ) -> Option<u64> {
        match self {
            SenderEvent::Call(_) => Some(counts.run_count),
            SenderEvent::Interrupt(Some(RESCHEDULE)) if method == SenderMethod::Simulator => {
                Some(counts.handled_count)
            }
            _ => None,
        }
    }

    /// How the row is measured, in words for the table.
    #[must_use]
    pub fn method(&self, method: SenderMethod) -> &'static str {
        match method {
            SenderMethod::Probes => self.events_of_probes(),
            SenderMethod::Simulator => self.events_of_simulator(),
        }
    }

    fn events_of_probes(&self) -> &'static str {
        match self {
            SenderEvent::Call(CallType::IrqWork) => {
                "csd_queue_cpu; the kernel has no event for the run"
            }
            SenderEvent::Call(CallType::WakeUp) => {
                "csd_queue_cpu, joined to csd_function_entry and csd_function_exit by csd, target and function; a run \
                 wakes all tasks that are queued then, and has events for the first only"
            }
            SenderEvent::Call(_) => {
                "csd_queue_cpu, joined to csd_function_entry and csd_function_exit by csd, target and function"
            }
            SenderEvent::Interrupt(_) => "ipi_send_cpu or ipi_send_cpumask; no run is joined",
            SenderEvent::UnjoinedRun => {
                "csd_function_entry and csd_function_exit without a csd_queue_cpu that can be joined"
            }
        }
    }

    fn events_of_simulator(&self) -> &'static str {
        match self {
            SenderEvent::Call(CallType::IrqWork) => {
                "the simulator sees llist_add_batch add the call to the target's call_single_queue, and irq_work_single \
                 there run it, joined by address"
            }
            SenderEvent::Call(CallType::WakeUp) => {
                "the simulator sees llist_add_batch add the call to the target's call_single_queue, and \
                 sched_ttwu_pending there wake the task, joined by address; the tasks that a run wakes share its time \
                 equally"
            }
            SenderEvent::Call(_) => {
                "the simulator sees llist_add_batch add the call to the target's call_single_queue, and \
                 __flush_smp_call_function_queue there call the function until it returns, joined by function, argument \
                 and order"
            }
            SenderEvent::Interrupt(Some(RESCHEDULE)) => {
                "the simulator sees native_smp_send_reschedule, joined to the next reschedule interrupt that the target \
                 takes"
            }
            SenderEvent::Interrupt(_) => {
                "the simulator sees the function that sends the interrupt (native_send_call_func_single_ipi, native_send_call_func_ipi, arch_irq_work_raise); no run is joined"
            }
            SenderEvent::UnjoinedRun => {
                "the simulator sees a run without a call that was queued in the window"
            }
        }
    }
}

/// How the kernel makes a call on another CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallType {
    /// The sender does not wait.
    Asynchronous,
    /// The sender waits until the function has returned on the target.
    Synchronous,
    /// The call runs queued irq_work.
    IrqWork,
    /// The call wakes tasks on the target.
    WakeUp,
}

impl CallType {
    /// Whether the sender waits for the end of the function.
    #[must_use]
    pub fn is_synchronous(self) -> bool {
        self == CallType::Synchronous
    }
}

/// The sender of a call or of an interrupt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// All tasks that have this name.
    Task(String),
    /// An interrupt or a softirq.
    Interrupt(Context),
    /// An interrupt or a softirq whose entry was not seen.
    UnknownInterrupt(&'static str),
    /// All senders that found no free row.
    Others,
    /// The event does not say who sends.
    Unknown,
}

impl Sender {
    /// Where the sender's code runs: `task`, `irq`, `vector`, `softirq`; `None` if it is not known.
    #[must_use]
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            Sender::Task(_) => Some("task"),
            Sender::Interrupt(context) => Some(context.kind.label()),
            Sender::UnknownInterrupt(kind) => Some(kind),
            Sender::Others | Sender::Unknown => None,
        }
    }

    /// The name of the task, interrupt or softirq.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Sender::Task(name) => name,
            Sender::Interrupt(context) => &context.name,
            Sender::UnknownInterrupt(_) | Sender::Unknown => "(not known)",
            Sender::Others => "(other senders)",
        }
    }
}

/// The key of a row of senders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SenderKey {
    pub event: SenderEvent,
    /// The called function. For an interrupt, the callback that the kernel names. `None`: none.
    pub function: Option<String>,
    pub sender: Sender,
    /// The function that sends; `None` if it is not known.
    pub call_site: Option<String>,
}

/// Counts and times of one sender over all CPUs. Times in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Calls or interrupts to measured CPUs, one for each target.
    pub count: u64,
    /// Runs with both events. For a call: the runs that are joined to it.
    pub run_count: u64,
    /// Runs whose end was not seen. `run_count` does not include them.
    pub unfinished_count: u64,
    /// Interrupts that are joined to the interrupt that the target took.
    pub handled_count: u64,
    /// Time of the runs. The probes' overhead is subtracted, so the time may be negative.
    pub run_total_ns: i64,
    /// The subtracted overhead of a run, and its error.
    pub overhead_mean_ns: u64,
    pub overhead_error_ns: u64,
    pub run_max_ns: u64,
    /// Time from queueing to the start of the joined runs; of interrupts, from sending to the entry on the target.
    pub delay_total_ns: u64,
    pub delay_max_ns: u64,
    /// Time from queueing to the end of the joined runs.
    pub completion_total_ns: u64,
    pub completion_max_ns: u64,
    /// CPUs that sent, in ascending order.
    pub sender_cpus: Vec<u32>,
    /// CPUs that the calls or interrupts were sent to, in ascending order.
    pub target_cpus: Vec<u32>,
}

/// A row of table `senders` as numbers, for a comparison of two benches. Both benches give it the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderRow {
    /// As the columns of table `senders`.
    pub kind: String,
    pub name: Option<String>,
    pub waits: Option<bool>,
    pub sender_kind: Option<String>,
    pub sender: String,
    pub call_site: Option<String>,
    pub count: u64,
    pub joined_count: Option<u64>,
    /// Sum of the times of the joined runs, ns. Can be negative.
    pub run_total_ns: i64,
    /// Error of the subtracted overhead of a run, ns.
    pub run_error_ns: u64,
    /// Time from queueing to the end of the joined runs, ns.
    pub completion_total_ns: u64,
}

impl From<&SenderStats> for SenderRow {
    fn from(stats: &SenderStats) -> SenderRow {
        let SenderStats { key, counts, method } = stats;
        let (name, waits) = match &key.event {
            SenderEvent::Interrupt(vector) => (vector.map(str::to_owned), None),
            SenderEvent::Call(call) => (key.function.clone(), Some(call.is_synchronous())),
            SenderEvent::UnjoinedRun => (key.function.clone(), None),
        };
        SenderRow {
            kind: key.event.label().to_owned(),
            name,
            waits,
            sender_kind: key.sender.kind().map(str::to_owned),
            sender: key.sender.name().to_owned(),
            call_site: key.call_site.clone(),
            count: key.event.count_of(counts),
            joined_count: key.event.joined_count_of(counts, *method),
            run_total_ns: counts.run_total_ns,
            run_error_ns: counts.overhead_error_ns,
            completion_total_ns: counts.completion_total_ns,
        }
    }
}

impl SenderCounts {
    /// Adds the counts and times of `other`.
    pub fn add(&mut self, other: &SenderCounts) {
        self.count += other.count;
        self.run_count += other.run_count;
        self.unfinished_count += other.unfinished_count;
        self.handled_count += other.handled_count;
        self.run_total_ns += other.run_total_ns;
        self.delay_total_ns += other.delay_total_ns;
        self.completion_total_ns += other.completion_total_ns;
        self.overhead_mean_ns = self.overhead_mean_ns.max(other.overhead_mean_ns);
        self.overhead_error_ns = self.overhead_error_ns.max(other.overhead_error_ns);
        self.run_max_ns = self.run_max_ns.max(other.run_max_ns);
        self.delay_max_ns = self.delay_max_ns.max(other.delay_max_ns);
        self.completion_max_ns = self.completion_max_ns.max(other.completion_max_ns);
        for (cpus, others) in [
            (&mut self.sender_cpus, &other.sender_cpus),
            (&mut self.target_cpus, &other.target_cpus),
        ] {
            cpus.extend(others);
            cpus.sort_unstable();
            cpus.dedup();
        }
    }
}

/// A sender with its counts and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderStats {
    pub key: SenderKey,
    pub counts: SenderCounts,
    pub method: SenderMethod,
}
