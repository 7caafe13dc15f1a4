//! Follows function calls from their queueing on one CPU to their run on another, and the interrupts that CPUs send:
//! reschedule interrupts to the interrupt that the target takes. The tracker reports the events; `spans.rs` writes the records.
//!
//! The kernel has a queue of calls for each CPU. This module has the same queues, so it needs no address of a call at the
//! call's run: a run belongs to the first waiting call with the function and the argument of the run. Two calls that
//! differ neither in function nor in argument run in the order of the queue; `pick` has the exceptions.

use simrecord::record::{QueuedRun, RUN_WITHOUT_END, Record, Sent, SentKind};

/// The most calls that wait for a CPU. The runs of further calls are not joined.
const WAITING_MAX: usize = 4_096;
/// How many of the last entries of functions that send are kept for each CPU.
const SITES: usize = 8;
/// The longest distance between the stack pointers of a function that sends and of the function that it
/// calls. Both have small frames.
const FRAME_BYTES_MAX: u64 = 1_024;

/// The first bit of the flags of a call: the call is in use (include/linux/smp_types.h).
pub(crate) const CALL_LOCKED: u32 = 1;

/// The kind of a call by its flags.
pub(crate) fn call_kind(flags: u32) -> SentKind {
    match flags >> 4 & 0xf {
        1 => SentKind::SynchronousCall,
        2 => SentKind::IrqWorkCall,
        3 => SentKind::WakeUpCall,
        _ => SentKind::AsynchronousCall,
    }
}

/// A call that waits for its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WaitingCall {
    /// The address of the call's description in the kernel (`call_single_data`).
    address: u64,
    kind: SentKind,
    function: u64,
    /// The argument of the function.
    info: u64,
    /// The position of its record, from 1.
    sent: u32,
    /// When it was queued, on the clock of all vCPUs.
    queued_at: u64,
}

/// An interrupt that its target has not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WaitingInterrupt {
    /// The position of its record, from 1.
    sent: u32,
    /// When it was sent, on the clock of all vCPUs.
    sent_at: u64,
}

/// A function that runs for another CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RunningCall {
    /// The records of the joined calls, with their delays. A run that wakes several tasks has several.
    calls: Vec<(u32, u64)>,
    function: u64,
    start: Instant,
    return_to: u64,
    /// The stack pointer after the return.
    stack_pointer: u64,
    /// The return address that the CPU's stack of contexts awaited at the start.
    awaited_before: Option<u64>,
}

/// A call instruction that a CPU executes. The function starts to run at the end of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExecutingCall {
    /// The address of the instruction.
    address: u64,
    run: RunOf,
    frame: CallFrame,
}

/// A time on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instant {
    /// The CPU's own time, in cycles.
    pub(crate) at: u64,
    /// The clock of all vCPUs, in cycles.
    pub(crate) common: u64,
    /// The time-stamp counter.
    pub(crate) tsc: u64,
}

/// Where a function that sends returns to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Site {
    stack_pointer: u64,
    return_to: u64,
}

#[derive(Clone, Debug, Default)]
struct SenderCpu {
    /// The last entries of functions that send, the latest first.
    sites: [Site; SITES],
    /// The calls that wait for this CPU, in the order in which they were queued.
    waiting: Vec<WaitingCall>,
    /// The reschedule interrupts on their way to this CPU, the earliest first.
    reschedules: Vec<WaitingInterrupt>,
    /// When the kernel called the BPF programs for the call that this CPU queues, on the clock of all vCPUs.
    queue_event_at: Option<u64>,
    executing_call: Option<ExecutingCall>,
    running: Option<RunningCall>,
}

/// How a run is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunOf {
    /// The function of a call with this argument.
    Function { function: u64, info: u64 },
    /// The `irq_work` at this address, with its function.
    IrqWork { address: u64, function: u64 },
    /// The wake-ups with these addresses.
    WakeUps(Vec<u64>),
}

/// A call of a function, as the CPU executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallFrame {
    pub(crate) return_to: u64,
    /// The stack pointer after the return.
    pub(crate) stack_pointer: u64,
    /// The return address that the CPU's stack of contexts awaits.
    pub(crate) awaited_before: Option<u64>,
}

/// A call that is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) address: u64,
    pub(crate) info: u64,
}

/// The queues of calls of all CPUs. Nothing is kept while no region is open.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    are_recorded: bool,
    /// The number of the open region. `None`: no region is open.
    region: Option<u32>,
    cpus: Vec<SenderCpu>,
    /// How many [`Sent`] records the stream has.
    sent_count: u32,
    /// Records that are not written yet.
    records: Vec<Record>,
}

impl Senders {
    /// Records senders in regions that open from now on.
    pub(crate) fn record(&mut self) {
        self.are_recorded = true;
    }

    /// Starts a region, which counts no earlier event.
    pub(crate) fn open_region(&mut self, region: u32, vcpus: usize) {
        self.region = self.are_recorded.then_some(region);
        self.cpus = vec![SenderCpu::default(); vcpus];
    }

    pub(crate) fn close_region(&mut self) {
        self.region = None;
        self.cpus.iter_mut().for_each(|cpu| (cpu.running, cpu.executing_call) = (None, None));
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.region.is_some()
    }

    /// A CPU enters a function that sends. `stack_pointer` points at the address to which the function returns.
    pub(crate) fn start_sending(&mut self, cpu: usize, stack_pointer: u64, return_to: u64) {
        let Some(SenderCpu { sites, .. }) = self.cpus.get_mut(cpu) else { return };
        sites.rotate_right(1);
        sites[0] = Site { stack_pointer, return_to };
    }

    /// The return address of the function that sends and has called the function which starts now, or has ended with a
    /// jump to it (tail call). `None`: no function that sends has called it.
    ///
    /// The latest entry on a stack is that of the caller, because functions that send call the function directly.
    pub(crate) fn call_site(&self, cpu: usize, stack_pointer: u64) -> Option<u64> {
        let is_caller = |site: &&Site| {
            let distance = site.stack_pointer.wrapping_sub(stack_pointer);
            distance <= FRAME_BYTES_MAX
        };
        self.cpus.get(cpu)?.sites.iter().find(is_caller).map(|site| site.return_to)
    }

    /// A CPU sends an interrupt, or queues the call `queued`, at the time `common` on the clock of all vCPUs.
    pub(crate) fn send(&mut self, sent: Sent, common: u64, queued: Option<Queued>) {
        let Some(region) = self.region else { return };
        self.sent_count += 1;
        self.records.push(Record::Sent(Sent { region, ..sent }));
        let Some(target) = self.cpus.get_mut(sent.target as usize) else { return };
        if sent.kind == SentKind::Reschedule && target.reschedules.len() < WAITING_MAX {
            target.reschedules.push(WaitingInterrupt { sent: self.sent_count, sent_at: common });
        }
        if let Some(Queued { address, info }) = queued
            && target.waiting.len() < WAITING_MAX
        {
            target.waiting.push(WaitingCall {
                address,
                kind: sent.kind,
                function: sent.function,
                info,
                sent: self.sent_count,
                queued_at: common,
            });
        }
    }

    /// The kernel calls BPF programs because a CPU is about to queue a call. The programs see the call queued now.
    pub(crate) fn note_queue_event(&mut self, cpu: usize, common: u64) {
        if let Some(cpu) = self.cpus.get_mut(cpu) {
            cpu.queue_event_at = Some(common);
        }
    }

    /// Removes and returns the time of [`Senders::note_queue_event`], if the kernel has called programs for the call.
    pub(crate) fn take_queue_event(&mut self, cpu: usize) -> Option<u64> {
        self.cpus.get_mut(cpu)?.queue_event_at.take()
    }

    /// A CPU takes a reschedule interrupt. Interrupts that are sent to a CPU before it takes one are one interrupt.
    pub(crate) fn take_reschedule(&mut self, cpu: usize, entry: Instant) {
        let (Some(region), Some(target)) = (self.region, self.cpus.get_mut(cpu)) else { return };
        for WaitingInterrupt { sent, sent_at } in target.reschedules.drain(..) {
            self.records.push(Record::QueuedRun(QueuedRun {
                cpu: cpu as u32,
                region,
                sent,
                function: 0,
                at: entry.at,
                delay: entry.common.saturating_sub(sent_at),
                // The record of the interrupt's span has its time.
                cycles: RUN_WITHOUT_END,
                tsc: entry.tsc,
            }));
        }
    }

    /// A CPU is about to execute the call instruction at `address`, which calls a queued function.
    pub(crate) fn note_call(&mut self, cpu: usize, address: u64, run: RunOf, frame: CallFrame) {
        if let Some(cpu) = self.cpus.get_mut(cpu) {
            cpu.executing_call = Some(ExecutingCall { address, run, frame });
        }
    }

    /// Whether a CPU executes a call that [`Senders::take_call`] has not returned yet.
    pub(crate) fn executes_call(&self, cpu: usize) -> bool {
        self.cpus.get(cpu).is_some_and(|cpu| cpu.executing_call.is_some())
    }

    /// Removes and returns the call that a CPU has executed, if there is one.
    pub(crate) fn take_call(&mut self, cpu: usize) -> Option<(RunOf, CallFrame)> {
        let call = self.cpus.get_mut(cpu)?.executing_call.take()?;
        Some((call.run, call.frame))
    }

    /// Forgets the call of a CPU if the call instruction at `address` has raised an exception.
    pub(crate) fn forget_call_at(&mut self, cpu: usize, address: u64) {
        if let Some(cpu) = self.cpus.get_mut(cpu) {
            cpu.executing_call.take_if(|call| call.address == address);
        }
    }

    /// A CPU starts to run a queued function. `is_locked` tells whether the call at an address is in use.
    pub(crate) fn start_run(
        &mut self,
        cpu: usize,
        run: &RunOf,
        frame: CallFrame,
        start: Instant,
        is_locked: impl FnMut(u64) -> bool,
    ) {
        if self.region.is_none() {
            return;
        }
        // The end of the run before this one was not seen.
        self.write_run(cpu, None);
        let waiting = &mut self.cpus[cpu].waiting;
        let (function, positions) = match run {
            RunOf::Function { function, info } => {
                (*function, pick(waiting, (*function, *info), is_locked).into_iter().collect())
            }
            RunOf::IrqWork { address, function } => {
                (*function, of_addresses(waiting, SentKind::IrqWorkCall, &[*address]))
            }
            RunOf::WakeUps(addresses) => {
                (0, of_addresses(waiting, SentKind::WakeUpCall, addresses))
            }
        };
        let mut calls = Vec::new();
        for position in positions.into_iter().rev() {
            let call = waiting.remove(position);
            calls.insert(0, (call.sent, start.common.saturating_sub(call.queued_at)));
        }
        if let RunOf::WakeUps(addresses) = run {
            // Wake-ups that were queued before the region have their share of the run.
            calls.resize(addresses.len().max(calls.len()), (0, 0));
        }
        let CallFrame { return_to, stack_pointer, awaited_before } = frame;
        let running =
            RunningCall { calls, function, start, return_to, stack_pointer, awaited_before };
        self.cpus[cpu].running = Some(running);
    }

    /// The return address that the CPU must await for the end of a run. `awaited`: the return address that the CPU's stack
    /// of contexts awaits. A function that has started since the run returns before the run.
    pub(crate) fn awaits(&self, cpu: usize, awaited: Option<u64>) -> Option<u64> {
        let running = self.cpus.get(cpu)?.running.as_ref()?;
        (running.awaited_before == awaited).then_some(running.return_to)
    }

    /// Ends the run of a CPU, if it returns to `address` with `stack_pointer`. Returns whether it does.
    pub(crate) fn end_run(
        &mut self,
        cpu: usize,
        address: u64,
        stack_pointer: u64,
        at: u64,
    ) -> bool {
        let running = self.cpus.get(cpu).and_then(|cpu| cpu.running.as_ref());
        let returns = running.is_some_and(|running| {
            (running.return_to, running.stack_pointer) == (address, stack_pointer)
        });
        if returns {
            self.write_run(cpu, Some(at));
        }
        returns
    }

    /// Writes the run of a CPU, if there is one. `ended_at`: its end, or `None` if that was not seen.
    fn write_run(&mut self, cpu: usize, ended_at: Option<u64>) {
        let (Some(region), Some(running)) = (self.region, self.cpus[cpu].running.take()) else {
            return;
        };
        let RunningCall { mut calls, function, start, .. } = running;
        if calls.is_empty() {
            calls.push((0, 0));
        }
        let sharers = calls.len() as u64;
        for (position, (sent, delay)) in (0..).zip(calls) {
            let share = |cycles: u64| cycles / sharers + u64::from(position < cycles % sharers);
            let cycles =
                ended_at.map_or(RUN_WITHOUT_END, |end| share(end.saturating_sub(start.at)));
            let Instant { at, tsc, .. } = start;
            let cpu = cpu as u32;
            self.records.push(Record::QueuedRun(QueuedRun {
                cpu,
                region,
                sent,
                function,
                at,
                delay,
                cycles,
                tsc,
            }));
        }
    }

    /// Removes and returns the records that are not written yet.
    pub(crate) fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }
}

/// The position of the call that runs, among the calls that wait for a CPU. `None` if it was not seen queued.
///
/// The kernel releases an asynchronous call just before its function runs, and a call with a waiting sender afterwards. So
/// an asynchronous call that is released, or is queued a second time, runs now. A call that is still in use does not.
fn pick(
    waiting: &[WaitingCall],
    run: (u64, u64),
    mut is_locked: impl FnMut(u64) -> bool,
) -> Option<usize> {
    let is_candidate =
        |call: &WaitingCall, kind: SentKind| call.kind == kind && (call.function, call.info) == run;
    let is_released = |(position, call): &(usize, &WaitingCall)| {
        is_candidate(call, SentKind::AsynchronousCall)
            && (waiting[position + 1..].iter().any(|later| later.address == call.address)
                || !is_locked(call.address))
    };
    let released = waiting.iter().enumerate().find(is_released);
    released
        .map(|(position, _)| position)
        .or_else(|| waiting.iter().position(|call| is_candidate(call, SentKind::SynchronousCall)))
}

/// The positions of the first waiting call of this kind at each address, ascending.
fn of_addresses(waiting: &[WaitingCall], kind: SentKind, addresses: &[u64]) -> Vec<usize> {
    let position = |address: &u64| {
        waiting.iter().position(|call| call.kind == kind && call.address == *address)
    };
    let mut positions: Vec<usize> = addresses.iter().filter_map(position).collect();
    positions.sort_unstable();
    positions.dedup();
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn senders() -> Senders {
        let mut senders = Senders::default();
        senders.record();
        senders.open_region(1, 2);
        senders
    }

    /// A record of CPU 0, which sends to CPU 1.
    fn sent(kind: SentKind, function: u64) -> Sent {
        Sent {
            cpu: 0,
            region: 0,
            kind,
            target: 1,
            function,
            call_site: 0,
            code: 0,
            comm: [0; 16],
            process: 0,
            system_call: None,
            tsc: 0,
        }
    }

    fn queue(senders: &mut Senders, kind: SentKind, address: u64, function: u64, common: u64) {
        senders.send(sent(kind, function), common, Some(Queued { address, info: 5 }));
    }

    const FRAME: CallFrame =
        CallFrame { return_to: 0x100, stack_pointer: 0x8000, awaited_before: None };

    fn run(senders: &mut Senders, run: &RunOf, from: u64, until: u64, locked: &[u64]) {
        let start = Instant { at: from, common: from + 1_000, tsc: from };
        senders.start_run(1, run, FRAME, start, |address| locked.contains(&address));
        assert_eq!(senders.awaits(1, None), Some(0x100));
        assert_eq!(senders.awaits(1, Some(7)), None, "a function runs within the run");
        assert!(!senders.end_run(1, 0x100, 0x7000, until), "another function returns there");
        assert!(senders.end_run(1, 0x100, 0x8000, until));
    }

    /// Position of the call's record, delay, cycles.
    fn runs(senders: &mut Senders) -> Vec<(u32, u64, u64)> {
        let row = |record: Record| match record {
            Record::QueuedRun(run) => Some((run.sent, run.delay, run.cycles)),
            _ => None,
        };
        senders.take_records().into_iter().filter_map(row).collect()
    }

    #[test]
    fn runs_are_joined_to_their_calls_in_the_order_of_the_queue() {
        let mut senders = senders();
        let function = |function| RunOf::Function { function, info: 5 };
        for (address, called, common) in [(0x10, 1, 1_001), (0x20, 2, 1_002), (0x30, 1, 1_003)] {
            queue(&mut senders, SentKind::SynchronousCall, address, called, common);
        }
        let locked = [0x10, 0x20, 0x30];
        run(&mut senders, &function(1), 10, 14, &locked);
        run(&mut senders, &function(2), 20, 25, &locked);
        run(&mut senders, &function(1), 30, 36, &locked);
        run(&mut senders, &function(1), 40, 41, &locked);
        assert_eq!(runs(&mut senders), [(1, 9, 4), (2, 18, 5), (3, 27, 6), (0, 0, 1)]);
    }

    #[test]
    fn a_released_call_runs_before_a_call_whose_sender_waits() {
        let mut senders = senders();
        let function = RunOf::Function { function: 1, info: 5 };
        queue(&mut senders, SentKind::AsynchronousCall, 0x10, 1, 1_000);
        queue(&mut senders, SentKind::SynchronousCall, 0x20, 1, 1_000);
        run(&mut senders, &function, 10, 11, &[0x10, 0x20]);
        // The first call was released, and is queued a second time before it runs.
        queue(&mut senders, SentKind::AsynchronousCall, 0x10, 1, 1_000);
        run(&mut senders, &function, 20, 21, &[0x10]);
        run(&mut senders, &function, 30, 31, &[]);
        let calls: Vec<u32> = runs(&mut senders).into_iter().map(|run| run.0).collect();
        assert_eq!(calls, [2, 1, 3]);
    }

    #[test]
    fn wake_ups_of_one_run_share_its_time() {
        let mut senders = senders();
        for address in [0x10, 0x20, 0x30] {
            queue(&mut senders, SentKind::WakeUpCall, address, 0, 1_000);
        }
        run(&mut senders, &RunOf::WakeUps(vec![0x30, 0x10]), 10, 17, &[]);
        run(&mut senders, &RunOf::WakeUps(vec![0x20]), 20, 22, &[]);
        assert_eq!(runs(&mut senders), [(1, 10, 4), (3, 10, 3), (2, 20, 2)]);
    }

    #[test]
    fn a_run_whose_end_is_not_seen_has_no_time() {
        let mut senders = senders();
        let function = RunOf::Function { function: 1, info: 5 };
        queue(&mut senders, SentKind::SynchronousCall, 0x10, 1, 1_000);
        senders.start_run(1, &function, FRAME, Instant::default(), |_| true);
        senders.start_run(1, &function, FRAME, Instant::default(), |_| true);
        assert_eq!(runs(&mut senders), [(1, 0, RUN_WITHOUT_END)]);
        senders.open_region(2, 2);
        run(&mut senders, &function, 1, 2, &[]);
        assert_eq!(runs(&mut senders), [(0, 0, 1)], "a region does not join earlier calls");
    }

    #[test]
    fn reschedule_interrupts_that_wait_at_the_same_time_are_one_interrupt() {
        let mut senders = senders();
        for common in [1_001, 1_004] {
            senders.send(sent(SentKind::Reschedule, 0), common, None);
        }
        let entry = |at| Instant { at, common: at + 1_000, tsc: at };
        senders.take_reschedule(0, entry(5));
        senders.take_reschedule(1, entry(9));
        // This one has no sender in the region.
        senders.take_reschedule(1, entry(20));
        assert_eq!(runs(&mut senders), [(1, 8, RUN_WITHOUT_END), (2, 5, RUN_WITHOUT_END)]);
    }

    #[test]
    fn the_call_site_is_that_of_the_function_on_the_same_stack() {
        let mut senders = senders();
        senders.start_sending(0, 0x8100, 0xa);
        senders.start_sending(0, 0x4100, 0xb);
        assert_eq!(senders.call_site(0, 0x80c0), Some(0xa));
        assert_eq!(senders.call_site(0, 0x40c0), Some(0xb));
        assert_eq!(senders.call_site(0, 0x4100), Some(0xb), "a tail call");
        assert_eq!(senders.call_site(0, 0x4108), None, "above the function");
        assert_eq!(senders.call_site(1, 0x40c0), None);
    }
}
