//! Reads from the guest what `delays` needs: softirqs that are pending, work items, threads of IRQ lines, and timers.

use attribution::{ContextKind, KernelContext};
use plugin_interface::symbols::RaisedSoftirqs;
use simrecord::counters::TIME;

use crate::guest::guest_time::{jiffies_late, monotonic_ns};
use crate::guest::memory::GuestMemory;
use crate::guest::task::is_blocked;
use crate::guest::tracker::{IRQ_THREAD, Moment, Tracker};

/// The bit of `irqaction.thread_flags` that is set from a request until the thread starts to serve it
/// (`IRQTF_RUNTHREAD` in kernel/irq/internals.h).
const RUN_THREAD: u64 = 1;
/// The bit of a handler's result that requests its thread (include/linux/irqreturn.h).
const WAKE_THREAD: u64 = 2;

/// The context of a function of a timer, work item, tasklet or RCU callback. All code of the kernel and its modules is in the
/// upper 2 GiB of the addresses, so the lower half of an address tells it.
pub(super) fn callback_context(kind: ContextKind, function: u64) -> KernelContext {
    KernelContext::Callback(kind, function as u32)
}

impl Tracker {
    /// Notes when the handler of an IRQ line returns, if it requests its thread.
    pub(super) fn note_handler_return(&mut self, cpu: usize, moment: &mut Moment<'_>) {
        let result = moment.qemu.register_value(moment.registers.rax);
        self.cpus[cpu].thread_requested =
            (result & WAKE_THREAD != 0).then(|| moment.common_cycles());
    }

    /// Handles the request for the thread of the action at the address in `rsi`. The kernel wakes the thread after it.
    pub(super) fn request_irq_thread(&mut self, cpu: usize, moment: &mut Moment<'_>) {
        // A driver can also request the thread without a handler that returns.
        let handler_returned = self.cpus[cpu].thread_requested.take();
        let requested = handler_returned.unwrap_or_else(|| moment.common_cycles());
        let action = moment.qemu.register_value(moment.registers.rsi);
        let member = |offset: Option<u64>| offset.map(|offset| action.wrapping_add(offset));
        let (thread, flags) = (self.offsets.action_thread, self.offsets.action_thread_flags);
        let thread = member(thread).and_then(|address| moment.word(address));
        let flags = member(flags).and_then(|address| moment.word(address));
        let Some((thread, flags)) = thread.zip(flags).filter(|(thread, _)| *thread != 0) else {
            return;
        };
        // The thread has not started to serve an earlier request.
        if flags & RUN_THREAD != 0 {
            return;
        }
        let Some(pid) = self.read_pid(thread, moment.qemu) else { return };
        let sleeps = is_blocked(thread, &self.offsets, moment.qemu);
        self.delays.request_thread(pid, sleeps, moment.now[TIME], requested);
    }

    /// Handles a switch from the running task, at the address `previous`, to the task with the id `next_pid`.
    pub(super) fn switch_irq_threads(
        &mut self,
        cpu: usize,
        previous: u64,
        next_pid: Option<u32>,
        moment: &mut Moment<'_>,
    ) {
        if let Some(pid) = self.cpus[cpu].known_pid()
            && self.name(pid).is_some_and(|name| name.starts_with(IRQ_THREAD))
            && is_blocked(previous, &self.offsets, moment.qemu)
        {
            self.delays.let_thread_sleep(pid);
        }
        if let Some(pid) = next_pid {
            self.delays.run_thread(pid, moment.now[TIME], moment.common_cycles());
        }
    }

    /// Begins the delay of the work item in `rdx`, which the kernel queues.
    pub(super) fn begin_delay_of_work(&mut self, moment: &mut Moment<'_>) {
        let work = moment.qemu.register_value(moment.registers.rdx);
        // Without type information, a work item that never runs has no function.
        let function = self.offsets.work_function;
        let function = function.and_then(|offset| moment.word(work.wrapping_add(offset)));
        let context = callback_context(ContextKind::Work, function.unwrap_or(0));
        self.delays.queue_work(work, context, moment.now[TIME], moment.common_cycles());
    }

    /// Ends the delay of the work item or timer in `rdi`, whose function the kernel is about to call. `context`: that function.
    pub(super) fn end_delay_of_callback(
        &mut self,
        context: KernelContext,
        moment: &mut Moment<'_>,
    ) {
        match context {
            KernelContext::Callback(ContextKind::Work, _) => {
                self.end_delay_of_work(context, moment)
            }
            KernelContext::Callback(ContextKind::Hrtimer, _) => {
                let delay_ns = self.hrtimer_delay_ns(moment);
                self.end_delay_of_timer(context, delay_ns, moment);
            }
            KernelContext::Callback(ContextKind::Timer, _) => {
                let timer = moment.qemu.register_value(moment.registers.rdi);
                let delay_ns = jiffies_late(timer, &self.symbols.time, &self.offsets, moment.qemu);
                self.end_delay_of_timer(context, delay_ns, moment);
            }
            _ => {}
        }
    }

    /// Ends the delay of the work item in `rdi`.
    fn end_delay_of_work(&mut self, context: KernelContext, moment: &mut Moment<'_>) {
        let work = moment.qemu.register_value(moment.registers.rdi);
        // The kernel clears bit 0 of work_struct.data (pending) before the call.
        let data = moment.qemu.memory(work).map_or(0, u64::from_le_bytes);
        let (now, common_now) = (moment.now[TIME], moment.common_cycles());
        self.delays.run_work(work, context, now, common_now, data & 1 != 0);
    }

    /// How long ago the high-resolution timer in `rdi` was due, ns: the time on the timer's clock since its soft expiry.
    /// `None` if the guest's memory does not tell it.
    fn hrtimer_delay_ns(&self, moment: &mut Moment<'_>) -> Option<i64> {
        let offsets = &self.offsets;
        let timer = moment.qemu.register_value(moment.registers.rdi);
        let tsc = moment.clock.tsc_at(moment.vcpu, &moment.now);
        let now_ns = monotonic_ns(tsc, &self.symbols.time, offsets, moment.qemu)?;
        let memory = &mut *moment.qemu;
        let due_ns = memory.word_at(timer.wrapping_add(offsets.hrtimer_soft_expiry?))?;
        let base = memory.word_at(timer.wrapping_add(offsets.hrtimer_base?))?;
        let base_offset_ns = memory.word_at(base.wrapping_add(offsets.hrtimer_base_offset?))?;
        Some(now_ns.wrapping_add(base_offset_ns).wrapping_sub(due_ns) as i64)
    }

    /// Ends the delay of a timer that was due `delay_ns` ago. `None`: that is not known.
    fn end_delay_of_timer(
        &mut self,
        context: KernelContext,
        delay_ns: Option<i64>,
        moment: &Moment<'_>,
    ) {
        let Some(delay_ns) = delay_ns else {
            self.delays.note_unknown_time();
            return;
        };
        let cycles = u64::try_from(delay_ns).ok().map(|delay_ns| moment.clock.cycles_of(delay_ns));
        self.delays.run_timer(context, cycles, moment.now[TIME], moment.common_cycles());
    }

    /// Handles the instruction that sets the bits `raised` in a mask of pending softirqs.
    pub(super) fn raise_softirqs(
        &mut self,
        cpu: usize,
        raised: RaisedSoftirqs,
        moment: &mut Moment<'_>,
    ) {
        let raised = match raised {
            RaisedSoftirqs::These(bits) => bits,
            RaisedSoftirqs::InRegister(position) => {
                let register = moment.registers.named[usize::from(position)];
                register.map_or(0, |register| moment.qemu.register_value(register)) as u16
            }
        };
        let pending = self.pending_softirqs(moment);
        self.delays.raise(cpu, moment.now[TIME], raised, pending);
    }

    /// The pending softirqs of the running vCPU, by all known masks.
    pub(super) fn pending_softirqs(&self, moment: &mut Moment<'_>) -> u16 {
        let area = moment.qemu.register_value(moment.registers.gs_base);
        let masks = self.softirq_masks.iter();
        let masks = masks.filter_map(|mask| moment.qemu.memory(area.wrapping_add(*mask)));
        masks.map(u16::from_le_bytes).fold(0, |pending, mask| pending | mask)
    }
}
