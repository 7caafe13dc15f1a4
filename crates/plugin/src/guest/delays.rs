//! Joins the events of delays: raises of softirqs with their runs, queueing of work items with their calls, and requests for
//! threads of IRQ lines with their runs. `delays_of_guest.rs` reports the events; `spans.rs` writes the joined delays.

use std::collections::HashMap;

use attribution::KernelContext;
use attribution::context::SOFTIRQS;
use attribution::delays::{JoinResult, RaisedSoftirq, SoftirqState};

use simrecord::record::DelayEvents;

/// The most work items that wait at the same time. The delays of further work items are not joined.
const WORK_ITEMS_MAX: usize = 65_536;

/// A delay that ended, or an event that could not be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DelayEnd {
    pub(crate) context: KernelContext,
    pub(crate) events: DelayEvents,
    /// Time of the event, in cycles of its vCPU's time.
    pub(crate) at: u64,
    /// Length of the delay in cycles. 0 unless both events were joined.
    pub(crate) cycles: u64,
}

/// A work item that waits.
#[derive(Clone, Copy, Debug)]
struct QueuedWork {
    /// The function of the work item.
    context: KernelContext,
    /// When it was queued, in cycles on the clock of all vCPUs.
    at: u64,
}

/// The softirqs of one vCPU.
#[derive(Clone, Debug, Default)]
struct Softirqs {
    raised: [RaisedSoftirq; SOFTIRQS.len()],
    runs: [u32; SOFTIRQS.len()],
}

/// The begins of delays that wait for their ends. Nothing is kept while no region is open.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    are_recorded: bool,
    is_region_open: bool,
    /// The softirqs of each vCPU.
    softirqs: Vec<Softirqs>,
    /// The waiting work items, by their addresses.
    queued: HashMap<u64, QueuedWork>,
    /// The threads of IRQ lines that sleep, by process id: when a handler requested the thread, in cycles on the clock of
    /// all vCPUs, or `None` before that.
    sleeping_threads: HashMap<u32, Option<u64>>,
    /// When the region opened, in cycles on the clock of all vCPUs.
    opened: u64,
    /// Whether a timer ran whose delay is not known.
    has_unknown_times: bool,
    /// Ends that are not written yet.
    ended: Vec<DelayEnd>,
}

impl Delays {
    /// Records delays in regions that open from now on.
    pub(crate) fn record(&mut self) {
        self.are_recorded = true;
    }

    /// Starts a region, which counts no earlier event. `common_now`: the time of all vCPUs.
    pub(crate) fn open_region(&mut self, vcpus: usize, common_now: u64) {
        self.is_region_open = self.are_recorded;
        self.softirqs = vec![Softirqs::default(); vcpus];
        self.queued.clear();
        self.sleeping_threads.clear();
        self.opened = common_now;
        self.ended.clear();
    }

    pub(crate) fn close_region(&mut self) {
        self.is_region_open = false;
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.is_region_open
    }

    /// A vCPU sets `raised` in its mask of pending softirqs, which was `pending`.
    pub(crate) fn raise(&mut self, vcpu: usize, now: u64, raised: u16, pending: u16) {
        for number in (0..SOFTIRQS.len()).filter(|number| raised >> number & 1 != 0) {
            let softirqs = &mut self.softirqs[vcpu];
            let is_pending = pending >> number & 1 != 0;
            let state = SoftirqState { runs: softirqs.runs[number], is_pending };
            let result = softirqs.raised[number].raise(now, state);
            self.note(KernelContext::Softirq(number as u8), now, result);
        }
    }

    /// A vCPU begins to run a softirq. `pending`: its mask of pending softirqs.
    pub(crate) fn run_softirq(&mut self, vcpu: usize, now: u64, number: u8, pending: u16) {
        let Softirqs { raised, runs } = &mut self.softirqs[vcpu];
        let Some(runs) = runs.get_mut(usize::from(number)) else { return };
        *runs = runs.wrapping_add(1);
        let state = SoftirqState { runs: *runs, is_pending: pending >> number & 1 != 0 };
        let result = raised[usize::from(number)].run(now, state);
        let context = KernelContext::Softirq(number);
        self.note(context, now, result);
        if result.delay.is_none() {
            self.ended.push(unjoined_end(context, DelayEvents::EndAlone, now));
        }
    }

    /// Notes the delay that `result` ends, and the begins that it drops.
    fn note(&mut self, context: KernelContext, now: u64, result: JoinResult) {
        for _ in 0..result.dropped_raises {
            self.ended.push(unjoined_end(context, DelayEvents::BeginAlone, now));
        }
        if let Some(cycles) = result.delay {
            self.ended.push(DelayEnd { context, events: DelayEvents::Joined, at: now, cycles });
        }
    }

    /// A vCPU queues the work item at `address`, whose function is `context`. A work item that waits is not queued again, so
    /// an earlier begin belongs to a work item that was cancelled. `now`: the vCPU's time. `common_now`: the time of all vCPUs.
    pub(crate) fn queue_work(
        &mut self,
        address: u64,
        context: KernelContext,
        now: u64,
        common_now: u64,
    ) {
        if self.queued.len() >= WORK_ITEMS_MAX && !self.queued.contains_key(&address) {
            self.ended.push(unjoined_end(context, DelayEvents::BeginAlone, now));
            return;
        }
        let queued = QueuedWork { context, at: common_now };
        if let Some(cancelled) = self.queued.insert(address, queued) {
            self.ended.push(unjoined_end(cancelled.context, DelayEvents::BeginAlone, now));
        }
    }

    /// A vCPU calls the function `context` of the work item at `address`. `is_queued_again`: whether the item is queued at this
    /// time, after the kernel took it from its queue. Which of its begins is known is then uncertain.
    pub(crate) fn run_work(
        &mut self,
        address: u64,
        context: KernelContext,
        now: u64,
        common_now: u64,
        is_queued_again: bool,
    ) {
        let end = match self.queued.remove(&address) {
            Some(_) if is_queued_again => {
                self.ended.push(unjoined_end(context, DelayEvents::BeginAlone, now));
                unjoined_end(context, DelayEvents::EndAlone, now)
            }
            Some(queued) => DelayEnd {
                context,
                events: DelayEvents::Joined,
                at: now,
                cycles: common_now.saturating_sub(queued.at),
            },
            None => unjoined_end(context, DelayEvents::EndAlone, now),
        };
        self.ended.push(end);
    }

    /// A handler has requested its thread, and no earlier request waits. `sleeps`: whether the thread waits for an event;
    /// if not, it does not wait for this request. `requested`: when the handler returned, on the clock of all vCPUs.
    pub(crate) fn request_thread(&mut self, pid: u32, sleeps: bool, now: u64, requested: u64) {
        let context = KernelContext::KernelThread(pid);
        if !sleeps {
            self.ended.push(unjoined_end(context, DelayEvents::Awake, now));
            return;
        }
        let before = self.sleeping_threads.insert(pid, Some(requested));
        if before.flatten().is_some() {
            // The thread has slept again, and its run was not seen.
            self.ended.push(unjoined_end(context, DelayEvents::BeginAlone, now));
        }
    }

    /// The thread of an IRQ line leaves its CPU to wait for the next request.
    pub(crate) fn let_thread_sleep(&mut self, pid: u32) {
        self.sleeping_threads.insert(pid, None);
    }

    /// A vCPU switches to a task. Does nothing unless the task is the thread of an IRQ line that has slept.
    pub(crate) fn run_thread(&mut self, pid: u32, now: u64, common_now: u64) {
        let context = KernelContext::KernelThread(pid);
        let end = match self.sleeping_threads.remove(&pid) {
            None => return,
            Some(None) => unjoined_end(context, DelayEvents::EndAlone, now),
            Some(Some(requested)) => DelayEnd {
                context,
                events: DelayEvents::Joined,
                at: now,
                cycles: common_now.saturating_sub(requested),
            },
        };
        self.ended.push(end);
    }

    /// A vCPU calls the function `context` of a timer that was due `cycles` ago. `None`: it is due later, because another vCPU has set
    /// it again after the kernel took it from its queue. A timer that was due before the region opened has no delay, either.
    pub(crate) fn run_timer(
        &mut self,
        context: KernelContext,
        cycles: Option<u64>,
        now: u64,
        common_now: u64,
    ) {
        let open_cycles = common_now.saturating_sub(self.opened);
        let end = match cycles.filter(|cycles| *cycles <= open_cycles) {
            Some(cycles) => DelayEnd { context, events: DelayEvents::Joined, at: now, cycles },
            None => unjoined_end(context, DelayEvents::EndAlone, now),
        };
        self.ended.push(end);
    }

    /// A vCPU calls the function of a timer, and the guest does not tell when it was due.
    pub(crate) fn note_unknown_time(&mut self) {
        self.has_unknown_times = true;
    }

    /// Whether a timer ran whose delay is not known, since the last call.
    pub(crate) fn take_unknown_times(&mut self) -> bool {
        std::mem::take(&mut self.has_unknown_times)
    }

    /// Removes and returns the ends that are not written yet.
    pub(crate) fn take_ended(&mut self) -> Vec<DelayEnd> {
        std::mem::take(&mut self.ended)
    }
}

/// An event that could not be joined.
fn unjoined_end(context: KernelContext, events: DelayEvents, at: u64) -> DelayEnd {
    DelayEnd { context, events, at, cycles: 0 }
}

#[cfg(test)]
mod tests {
    use attribution::ContextKind;

    use super::*;

    const WORK: KernelContext = KernelContext::Callback(ContextKind::Work, 0x8114_5820);

    fn delays() -> Delays {
        let mut delays = Delays::default();
        delays.record();
        delays.open_region(2, 0);
        delays
    }

    fn summary(delays: &mut Delays) -> Vec<(KernelContext, DelayEvents, u64)> {
        delays.take_ended().into_iter().map(|end| (end.context, end.events, end.cycles)).collect()
    }

    #[test]
    fn softirqs_are_joined_by_number_and_vcpu() {
        let mut delays = delays();
        let (timer, block) = (KernelContext::Softirq(1), KernelContext::Softirq(4));
        delays.raise(0, 10, 0b1_0010, 0);
        delays.raise(1, 12, 0b10, 0);
        delays.run_softirq(0, 20, 1, 0);
        delays.run_softirq(0, 25, 4, 0);
        delays.run_softirq(0, 40, 4, 0);
        delays.run_softirq(1, 50, 1, 0);
        let joined = DelayEvents::Joined;
        let expected = [
            (timer, joined, 10),
            (block, joined, 15),
            (block, DelayEvents::EndAlone, 0),
            (timer, joined, 38),
        ];
        assert_eq!(summary(&mut delays), expected);
    }

    #[test]
    fn a_work_item_that_is_queued_again_without_a_call_was_cancelled() {
        let mut delays = delays();
        delays.queue_work(0x1000, WORK, 10, 10);
        delays.queue_work(0x1000, WORK, 30, 30);
        delays.run_work(0x1000, WORK, 45, 45, false);
        delays.run_work(0x1000, WORK, 60, 60, false);
        let expected = [
            (WORK, DelayEvents::BeginAlone, 0),
            (WORK, DelayEvents::Joined, 15),
            (WORK, DelayEvents::EndAlone, 0),
        ];
        assert_eq!(summary(&mut delays), expected);
    }

    #[test]
    fn a_cancelled_work_item_counts_for_its_own_function() {
        let mut delays = delays();
        let other = KernelContext::Callback(ContextKind::Work, 0x8114_9000);
        delays.queue_work(0x1000, WORK, 10, 10);
        delays.queue_work(0x1000, other, 30, 30);
        delays.run_work(0x1000, other, 45, 45, false);
        let expected = [(WORK, DelayEvents::BeginAlone, 0), (other, DelayEvents::Joined, 15)];
        assert_eq!(summary(&mut delays), expected);
    }

    #[test]
    fn a_work_item_that_is_queued_again_before_its_call_has_no_delay() {
        let mut delays = delays();
        delays.queue_work(0x1000, WORK, 10, 10);
        delays.queue_work(0x1000, WORK, 30, 30);
        delays.run_work(0x1000, WORK, 31, 31, true);
        let (begin, end) = (DelayEvents::BeginAlone, DelayEvents::EndAlone);
        assert_eq!(summary(&mut delays), [(WORK, begin, 0), (WORK, begin, 0), (WORK, end, 0)]);
    }

    #[test]
    fn a_region_does_not_count_what_began_before_it() {
        let mut delays = delays();
        delays.raise(0, 10, 0b10, 0);
        delays.queue_work(0x1000, WORK, 10, 10);
        delays.open_region(2, 0);
        delays.run_softirq(0, 20, 1, 0);
        delays.run_work(0x1000, WORK, 20, 20, false);
        let alone = DelayEvents::EndAlone;
        assert_eq!(summary(&mut delays), [(KernelContext::Softirq(1), alone, 0), (WORK, alone, 0)]);
    }

    #[test]
    fn a_thread_waits_for_the_first_request_of_its_sleep() {
        let mut delays = delays();
        let thread = KernelContext::KernelThread(7);
        delays.run_thread(7, 1, 1); // It is not known whether it slept.
        delays.request_thread(7, true, 10, 8);
        delays.run_thread(7, 30, 30);
        delays.request_thread(7, false, 35, 34);
        delays.let_thread_sleep(7);
        delays.run_thread(7, 50, 50);
        delays.run_thread(7, 60, 60); // It was preempted.
        delays.request_thread(7, true, 70, 70);
        delays.request_thread(7, true, 80, 80);
        delays.run_thread(7, 90, 90);
        let expected = [
            (thread, DelayEvents::Joined, 22),
            (thread, DelayEvents::Awake, 0),
            (thread, DelayEvents::EndAlone, 0),
            (thread, DelayEvents::BeginAlone, 0),
            (thread, DelayEvents::Joined, 10),
        ];
        assert_eq!(summary(&mut delays), expected);
    }

    #[test]
    fn a_timer_has_a_delay_if_it_was_due_in_the_region() {
        let mut delays = Delays::default();
        delays.record();
        delays.open_region(1, 100);
        let timer = KernelContext::Callback(ContextKind::Hrtimer, 0x8114_5820);
        for cycles in [Some(0), Some(50), Some(51), None] {
            delays.run_timer(timer, cycles, 40, 150);
        }
        let (joined, alone) = (DelayEvents::Joined, DelayEvents::EndAlone);
        let expected =
            [(timer, joined, 0), (timer, joined, 50), (timer, alone, 0), (timer, alone, 0)];
        assert_eq!(summary(&mut delays), expected);
        delays.note_unknown_time();
        assert!(delays.take_unknown_times() && !delays.take_unknown_times());
    }
}
