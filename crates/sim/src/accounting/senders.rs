//! Function calls and interrupts that the CPUs of a machine have sent in a region, with the runs of the calls.

use attribution::KernelContext;
use simrecord::record::{QueuedRun, RUN_WITHOUT_END, Sent, SentKind};

use super::{Accounting, bad, context_of, task_name};
use crate::Result;

/// What the CPUs have sent in a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendersUse {
    /// In the order in which it was sent.
    pub sent: Vec<SentUse>,
    /// Runs of queued functions whose call is not in `sent`.
    pub unjoined_runs: Vec<QueuedRunUse>,
}

/// A function call that a CPU has queued for another CPU, or an interrupt that it has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentUse {
    pub kind: SentKind,
    /// The CPU that sends.
    pub cpu: u32,
    /// The CPU that calls the function or takes the interrupt.
    pub target: u32,
    /// The address of the called function. 0 for interrupts and wake-ups.
    pub function: u64,
    /// An address in the function that sends. 0 if it is not known.
    pub call_site: u64,
    /// The task, interrupt or softirq that sends.
    pub sender: KernelContext,
    /// The name of the task that sends. Empty for interrupts and softirqs, and if it is not known.
    pub task: String,
    /// Number of the sending task's process. 0: the process is not known, or the sender is an interrupt, a softirq or the idle
    /// task; no name shows it.
    pub process: u32,
    /// Number of the sending task's 64-bit system call. `None` outside of 64-bit system calls.
    pub system_call: Option<u16>,
    /// The time-stamp counter of the CPU that sends.
    pub tsc: u64,
    /// The run of a call, or the start of a reschedule interrupt, which has no `cycles`. `None` for other interrupts, and if
    /// none came in the region.
    pub run: Option<QueuedRunUse>,
}

/// A run of a queued function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRunUse {
    /// The CPU that called the function.
    pub cpu: u32,
    /// The address of the called function. 0 for wake-ups.
    pub function: u64,
    /// From the queueing or sending to the start. 0 without a call.
    pub delay_cycles: u64,
    /// The start, in cycles on the time axis of the CPU.
    pub at_cycles: u64,
    /// The time of the function. `None` if its end was not seen, and for interrupts.
    pub cycles: Option<u64>,
    /// The time-stamp counter of the CPU at the start.
    pub tsc: u64,
}

impl Accounting {
    /// Adds what was sent to the regions. Fails if a record belongs to no region, or a run to no call of its region.
    pub(super) fn add_senders(&mut self, sent: &[Sent], runs: &[QueuedRun]) -> Result<()> {
        // The region of each record, and its position there.
        let mut places = Vec::with_capacity(sent.len());
        for record in sent {
            let senders = self.senders_mut(record.region, [record.cpu, record.target])?;
            places.push((record.region, senders.sent.len()));
            senders.sent.push(SentUse {
                kind: record.kind,
                cpu: record.cpu,
                target: record.target,
                function: record.function,
                call_site: record.call_site,
                sender: context_of(record.code)?,
                task: task_name(&record.comm),
                process: record.process,
                system_call: record.system_call,
                tsc: record.tsc,
                run: None,
            });
        }
        for record in runs {
            let run = QueuedRunUse {
                cpu: record.cpu,
                function: record.function,
                delay_cycles: record.delay,
                at_cycles: record.at,
                cycles: (record.cycles != RUN_WITHOUT_END).then_some(record.cycles),
                tsc: record.tsc,
            };
            let senders = self.senders_mut(record.region, [record.cpu, record.cpu])?;
            let Some(position) = (record.sent as usize).checked_sub(1) else {
                senders.unjoined_runs.push(run);
                continue;
            };
            let place = places.get(position).filter(|place| place.0 == record.region);
            let call = place.and_then(|place| senders.sent.get_mut(place.1));
            let call = call.filter(|call| call.kind.is_joined() && call.target == run.cpu);
            call.ok_or_else(|| bad("a run belongs to no call"))?.run = Some(run);
        }
        Ok(())
    }

    /// The senders of a region that has these CPUs.
    fn senders_mut(&mut self, region: u32, cpus: [u32; 2]) -> Result<&mut SendersUse> {
        let region = self.regions.get_mut((region as usize).wrapping_sub(1));
        let region =
            region.filter(|region| cpus.iter().all(|cpu| (*cpu as usize) < region.cpus.len()));
        region.map(|region| &mut region.senders).ok_or_else(|| bad("a record belongs to no region"))
    }
}
