//! Reads from the guest what `senders` needs: the calls that CPUs queue and run, who sends, and from where.

use attribution::{KernelContext, KernelStack};
use plugin_interface::symbols::{Action, SentInterrupt};
use simrecord::counters::TIME;
use simrecord::record::{CPUS_MAX, Sent, SentKind};

use crate::guest::senders::{CALL_LOCKED, CallFrame, Instant, Queued, RunOf, call_kind};
use crate::guest::tracker::{Moment, Tracker};

/// Bits of the kernel's count of nested interrupts (include/linux/preempt.h). The other bits of the field of softirqs
/// count how often they are prohibited.
const IN_SOFTIRQ: u32 = 1 << 8;
const IN_INTERRUPT: u32 = 0xff << 16;

/// The vector of the reschedule interrupt (arch/x86/include/asm/irq_vectors.h).
const RESCHEDULE_VECTOR: u8 = 0xfd;

/// The most tasks that a run wakes. The wake-ups of further tasks are not joined.
const WAKE_UPS_MAX: usize = 4_096;

/// The largest number of a process in a record. Linux gives processes numbers of up to 22 bits.
const PROCESS_MAX: u32 = (1 << 24) - 1;

impl Tracker {
    /// Handles an event of a sender, or of the CPU that runs its call.
    pub(super) fn handle_sender(
        &mut self,
        cpu: usize,
        action: Action,
        address: u64,
        mut moment: Moment<'_>,
    ) {
        match action {
            Action::StartSending => {
                let stack_pointer = moment.rsp();
                if let Some(return_to) = moment.word(stack_pointer) {
                    self.senders.start_sending(cpu, stack_pointer, return_to);
                }
            }
            Action::AddToQueue => self.queue_call(cpu, &mut moment),
            Action::SendInterrupt(interrupt) => self.send_interrupt(cpu, interrupt, &mut moment),
            Action::CallQueued { register, bytes } => {
                let function = moment.registers.named[usize::from(register)]
                    .map_or(0, |register| moment.qemu.register_value(register));
                let info = moment.qemu.register_value(moment.registers.rdi);
                let frame = CallFrame {
                    return_to: address.wrapping_add(u64::from(bytes)),
                    stack_pointer: moment.rsp(),
                    awaited_before: self.cpus[cpu].stack.awaits(),
                };
                self.senders.note_call(cpu, address, RunOf::Function { function, info }, frame);
            }
            Action::RunIrqWork => {
                let Some(frame) = self.frame_at_start(cpu, &mut moment) else { return };
                // Other callers execute the work that its own CPU has queued.
                if self.symbols.is_queued_call_caller(frame.return_to) {
                    let address = moment.qemu.register_value(moment.registers.rdi);
                    let offset = self.offsets.call_function;
                    let function =
                        offset.and_then(|offset| moment.word(address.wrapping_add(offset)));
                    let Some(function) = function else { return };
                    self.start_run(cpu, &RunOf::IrqWork { address, function }, frame, &mut moment);
                }
            }
            Action::WakeQueuedTasks => {
                let Some(frame) = self.frame_at_start(cpu, &mut moment) else { return };
                let wake_ups = queued_wake_ups(&mut moment);
                self.start_run(cpu, &RunOf::WakeUps(wake_ups), frame, &mut moment);
            }
            _ => {}
        }
    }

    /// A CPU has executed the call of a queued function: its run starts.
    pub(crate) fn start_called_run(&mut self, cpu: usize, mut moment: Moment<'_>) {
        if let Some((run, frame)) = self.senders.take_call(cpu) {
            self.start_run(cpu, &run, frame, &mut moment);
        }
    }

    /// Whether the queued function that a CPU runs, or one that it calls, returns to `address`.
    pub(crate) fn awaits_end_of_run(&self, cpu: usize, address: u64) -> bool {
        self.senders.awaits(cpu, self.cpus[cpu].stack.awaits()) == Some(address)
    }

    /// A CPU returns to `address`, where the queued function that it runs returns to.
    pub(crate) fn end_run(&mut self, cpu: usize, address: u64, mut moment: Moment<'_>) {
        let stack_pointer = moment.rsp();
        self.senders.end_run(cpu, address, stack_pointer, moment.now[TIME]);
    }

    /// A CPU adds an element to a list. If the list is the queue of calls of a CPU, the element is a call.
    fn queue_call(&mut self, cpu: usize, moment: &mut Moment<'_>) {
        let head = moment.qemu.register_value(moment.registers.rdx);
        let Some(target) = self.target_of_queue(head, moment) else { return };
        let call = moment.qemu.register_value(moment.registers.rdi);
        let member = |offset: Option<u64>| offset.map(|offset| call.wrapping_add(offset));
        let flags = member(self.offsets.call_flags).and_then(|flags| moment.half_word(flags));
        let Some(kind) = flags.map(call_kind) else { return };
        let (function, info) = match kind {
            SentKind::WakeUpCall => (0, 0),
            _ => {
                let function = member(self.offsets.call_function);
                let info = member(self.offsets.call_info);
                let mut word = |address: Option<u64>| address.and_then(|at| moment.word(at));
                let Some(function) = word(function) else { return };
                (function, word(info).unwrap_or(0))
            }
        };
        let call_site = self.senders.call_site(cpu, moment.rsp());
        let sent = self.sent_by(cpu, kind, target, moment);
        let sent = Sent { function, call_site: call_site.unwrap_or(0), ..sent };
        // The live bench in the guest measures from its own event on.
        let queue_event_at = self.senders.take_queue_event(cpu);
        let queued_at = queue_event_at.unwrap_or_else(|| moment.common_cycles());
        self.senders.send(sent, queued_at, Some(Queued { address: call, info }));
    }

    /// The CPU whose queue of calls has its head at this address. `None` if the list is no such queue.
    fn target_of_queue(&self, head: u64, moment: &mut Moment<'_>) -> Option<u32> {
        let area = head.wrapping_sub(self.symbols.call_queue?);
        let areas = self.symbols.kernel_counts?.areas;
        // Areas are aligned to pages, and most other lists are not at the offset of the queue.
        if area % 4_096 != 0 {
            return None;
        }
        (0..self.cpus.len() as u32)
            .find(|cpu| moment.word(areas.wrapping_add(8 * u64::from(*cpu))) == Some(area))
    }

    /// A CPU takes an interrupt.
    pub(super) fn take_interrupt(&mut self, cpu: usize, vector: u8, moment: &Moment<'_>) {
        if vector == RESCHEDULE_VECTOR && self.senders.is_counting() {
            self.senders.take_reschedule(cpu, instant_of(moment));
        }
    }

    fn send_interrupt(&mut self, cpu: usize, interrupt: SentInterrupt, moment: &mut Moment<'_>) {
        let argument = moment.qemu.register_value(moment.registers.rdi);
        let (kind, targets) = match interrupt {
            SentInterrupt::Reschedule => (SentKind::Reschedule, 1 << (argument % 64)),
            SentInterrupt::CallFunctionSingle => {
                (SentKind::CallFunctionSingle, 1 << (argument % 64))
            }
            SentInterrupt::CallFunction => {
                (SentKind::CallFunction, moment.word(argument).unwrap_or(0))
            }
            SentInterrupt::IrqWork => (SentKind::IrqWork, 1 << cpu),
        };
        let stack_pointer = moment.rsp();
        // Only the interrupts for calls are sent by functions that queue calls.
        let call_site = match interrupt {
            SentInterrupt::Reschedule | SentInterrupt::IrqWork => None,
            _ => self.senders.call_site(cpu, stack_pointer),
        };
        let call_site = call_site.or_else(|| moment.word(stack_pointer)).unwrap_or(0);
        let targets: u64 = targets;
        let is_target = |target: &u32| targets >> target & 1 != 0;
        for target in (0..self.cpus.len().min(CPUS_MAX) as u32).filter(is_target) {
            let sent = self.sent_by(cpu, kind, target, moment);
            self.senders.send(Sent { call_site, ..sent }, moment.common_cycles(), None);
        }
    }

    /// The record of what `cpu` sends now, without function and call site.
    fn sent_by(
        &mut self,
        cpu: usize,
        kind: SentKind,
        target: u32,
        moment: &mut Moment<'_>,
    ) -> Sent {
        self.note_group(cpu, moment);
        let sender = self
            .interrupt_that_sends(cpu, moment)
            .unwrap_or_else(|| KernelContext::Task(self.current_pid(cpu, moment)));
        let sends_as_task = matches!(sender, KernelContext::Task(_));
        let tracked = &self.cpus[cpu];
        let task = Some(tracked.task).filter(|task| sends_as_task && *task != 0);
        let comm = task.zip(self.offsets.comm);
        let comm = comm.and_then(|(task, comm)| moment.qemu.memory(task.wrapping_add(comm)));
        let process = tracked.process.filter(|process| sends_as_task && *process <= PROCESS_MAX);
        let system_call = if sends_as_task { system_call_of(&tracked.stack) } else { None };
        Sent {
            cpu: cpu as u32,
            region: 0,
            kind,
            target,
            function: 0,
            call_site: 0,
            code: sender.code(),
            comm: comm.unwrap_or([0; 16]),
            process: process.unwrap_or(0),
            system_call,
            tsc: moment.clock.tsc_at(moment.vcpu, &moment.now),
        }
    }

    /// The interrupt or softirq that a CPU handles now; `None` in a task. The kernel's own count says which of the three
    /// it is: a task may continue before an interrupt has returned. The stack of contexts says which interrupt it is.
    pub(super) fn interrupt_that_sends(
        &self,
        cpu: usize,
        moment: &mut Moment<'_>,
    ) -> Option<KernelContext> {
        let hot_area = self.symbols.hot_area.zip(self.offsets.preempt_count);
        let offset =
            hot_area.map(|(area, offset)| area.wrapping_add(offset)).or(self.symbols.preempt_count);
        let area = moment.qemu.register_value(moment.registers.gs_base);
        let count = offset.and_then(|offset| moment.half_word(area.wrapping_add(offset)));
        let stack = &self.cpus[cpu].stack;
        let is_interrupt = |context| {
            matches!(
                context,
                KernelContext::Interrupt(_) | KernelContext::Irq(_) | KernelContext::Nmi
            )
        };
        let is_softirq = |context| matches!(context, KernelContext::Softirq(_));
        match count {
            Some(count) if count & IN_INTERRUPT != 0 => {
                Some(stack.innermost(is_interrupt).unwrap_or(KernelContext::Unknown))
            }
            Some(count) if count & IN_SOFTIRQ != 0 => {
                Some(stack.innermost(is_softirq).unwrap_or(KernelContext::Unknown))
            }
            Some(_) => None,
            None => stack.innermost(|context| is_interrupt(context) || is_softirq(context)),
        }
    }

    /// The frame of the function that starts now. `None` if the stack cannot be read.
    fn frame_at_start(&self, cpu: usize, moment: &mut Moment<'_>) -> Option<CallFrame> {
        let stack_pointer = moment.rsp();
        Some(CallFrame {
            return_to: moment.word(stack_pointer)?,
            // The return pops the return address.
            stack_pointer: stack_pointer.wrapping_add(8),
            awaited_before: self.cpus[cpu].stack.awaits(),
        })
    }

    pub(super) fn start_run(
        &mut self,
        cpu: usize,
        run: &RunOf,
        frame: CallFrame,
        moment: &mut Moment<'_>,
    ) {
        let start = instant_of(moment);
        let flags = self.offsets.call_flags.unwrap_or(0);
        let is_locked = |call: u64| {
            moment.half_word(call.wrapping_add(flags)).is_some_and(|flags| flags & CALL_LOCKED != 0)
        };
        self.senders.start_run(cpu, run, frame, start, is_locked);
    }
}

/// The 64-bit system call of the task at the bottom of a stack. An exception within the call is still in it.
fn system_call_of<const N: usize>(stack: &KernelStack<N>) -> Option<u16> {
    match stack.innermost(|context| matches!(context, KernelContext::Syscall(_)))? {
        KernelContext::Syscall(number) => {
            u16::try_from(number).ok().filter(|call| *call < u16::MAX)
        }
        _ => None,
    }
}

/// The time of an event.
fn instant_of(moment: &Moment<'_>) -> Instant {
    Instant {
        at: moment.now[TIME],
        common: moment.common_cycles(),
        tsc: moment.clock.tsc_at(moment.vcpu, &moment.now),
    }
}

/// The addresses of the wake-ups in the list in `rdi`.
fn queued_wake_ups(moment: &mut Moment<'_>) -> Vec<u64> {
    let mut addresses = Vec::new();
    let mut next = moment.qemu.register_value(moment.registers.rdi);
    while next != 0 && addresses.len() < WAKE_UPS_MAX {
        addresses.push(next);
        next = moment.word(next).unwrap_or(0);
    }
    addresses
}
