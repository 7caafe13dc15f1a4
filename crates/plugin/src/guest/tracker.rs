//! Follows the task and the contexts of each CPU. Turns interrupts, calls and task switches into events of the stacks
//! of contexts (crate `attribution`), which charge counts to contexts.
//!
//! `qemu/callbacks.rs` calls it at interrupts and at annotated instructions, `qemu/before_block.rs` at returns. It runs
//! in the vCPUs' thread, with the session locked. After each event the session calls `Session::pass_on_tracked_event`,
//! which writes ended spans.

use std::collections::BTreeMap;

use attribution::{
    KernelContext, KernelStack, KernelStackFaults, PID_UNKNOWN, TaskStacks, WaitEnd,
};

use crate::cpu;
use crate::guest::delays::Delays;
use crate::guest::delays_of_guest::callback_context;
use crate::guest::first_context::{RunningTask, first_context};
use crate::guest::groups::{EventTime, Groups};
use crate::guest::irq::IrqLines;
use crate::guest::requests::Requests;
use crate::guest::senders::Senders;
use crate::guest::service_misses::{EndedFault, Executing};
use crate::guest::service_sums::ServiceSums;
use crate::guest::structures::{Guest, Structures};
use crate::guest::task::bottom_context;
use crate::qemu::qemu_internals::Activity;
use crate::qemu::{Qemu, Registers};
use crate::time::clock::Clock;
use plugin_interface::symbols::{
    Action, BODY_FIRST, ENTRY_LOOP, KernelSymbols, Offsets, PROBE_FIRST, QUEUE_PROBE, WAKE_FIRST,
    WAKE_PROBE,
};
use simrecord::counters::{COUNTERS, Counts, TIME};

type Stack = KernelStack<COUNTERS>;

/// The most tasks whose names are remembered.
const NAMES_MAX: usize = 65_536;
/// The bits of a code selector with the privilege. Both are set in user mode.
const USER_MODE: u64 = 3;

/// Prefix of the names of the threads that run IRQ handlers (kernel/irq/manage.c).
pub(super) const IRQ_THREAD: &[u8] = b"irq/";

const NMI_VECTOR: u8 = 2;
/// The position in [`plugin_interface::symbols::probe_name`] of the probes at entry and exit of interrupt vectors.
const VECTOR_PROBE: u32 = 3;

/// A return from the kernel or from an interrupt that a CPU executes. The return belongs to the context that it leaves,
/// with all its accesses. So the context ends once the next block starts, or the next handler is entered.
#[derive(Clone, Copy, Debug)]
struct ExecutingReturn {
    /// The address of the instruction.
    address: u64,
    target: ReturnTarget,
}

#[derive(Clone, Copy, Debug)]
enum ReturnTarget {
    /// User mode of the task with this process id.
    User { pid: u32 },
    /// The kernel, with this stack pointer at the return.
    Kernel { stack_pointer: u64 },
}

/// The state of one CPU.
#[derive(Default)]
pub(crate) struct TrackedCpu {
    pub(crate) stack: Stack,
    /// The address of the running task's `task_struct`, or 0 if it is not known.
    pub(crate) task: u64,
    /// The process id of the running task.
    pid: Option<u32>,
    /// The number of the running task's process, which all its threads have.
    pub(super) process: Option<u32>,
    /// Whether the running task has ended. It still runs until its last switch.
    is_dying: bool,
    /// The IRQ line whose handlers the kernel is about to call.
    irq: Option<u32>,
    /// When the last handler of an IRQ line returned, if it requested its thread, and the kernel has not yet woken the
    /// thread. In cycles on the clock of all vCPUs. Only where delays are counted.
    pub(super) thread_requested: Option<u64>,
    /// The return that the CPU executes. `None` before the instruction, and once the contexts that it leaves have ended.
    executing_return: Option<ExecutingReturn>,
    /// Whether the last interrupt has entered its body: the part between the vector's probes at entry and exit.
    has_entered_body: bool,
    /// How many interrupts the CPU has taken.
    pub(crate) interrupts: u64,
    /// How many exceptions the CPU has taken.
    pub(crate) exceptions: u64,
    /// How many interrupts and exceptions had a handler without a symbol.
    pub(crate) unknown_gates: u64,
}

impl TrackedCpu {
    fn pid_or_unknown(&self) -> u32 {
        self.pid.unwrap_or(PID_UNKNOWN)
    }

    /// The process id of the running task, if it is known.
    pub(super) fn known_pid(&self) -> Option<u32> {
        self.pid
    }

    /// The process id of the running task. 0 for the idle task, and if the process id is not known.
    pub(crate) fn pid_or_zero(&self) -> u32 {
        self.pid.unwrap_or(0)
    }

    /// How many events did not match the stack of contexts.
    pub(crate) fn faults(&self) -> KernelStackFaults {
        self.stack.faults()
    }
}

/// All CPUs, and the tasks that run on them.
pub(crate) struct Tracker {
    pub(crate) cpus: Vec<TrackedCpu>,
    pub(crate) symbols: KernelSymbols,
    pub(crate) offsets: Offsets,
    pub(crate) irqs: IrqLines,
    /// The stacks of tasks that do not run.
    pub(crate) tasks: TaskStacks<COUNTERS>,
    /// The counts of services. `None`: services are not recorded.
    pub(crate) services: Option<ServiceSums>,
    /// The known structures of the guest.
    pub(crate) structures: Structures,
    /// Delays from raise or queueing to run.
    pub(crate) delays: Delays,
    /// Function calls to other CPUs, and interrupts that CPUs send.
    pub(crate) senders: Senders,
    /// Control groups of the tasks that run.
    pub(crate) groups: Groups,
    /// Block requests, from their submission to their completion.
    pub(crate) requests: Requests,
    /// Whether the functions that the kernel calls back have contexts.
    pub(crate) has_callback_contexts: bool,
    /// The offsets, in a CPU's area, of the masks of pending softirqs in which a softirq has been raised.
    pub(super) softirq_masks: Vec<u64>,
    /// Names of tasks by process id.
    names: BTreeMap<u32, [u8; 16]>,
    /// Interrupts on another vCPU than the one that was assumed to run. There must be none.
    misplaced_interrupts: u64,
}

/// The guest at an event on a vCPU: access to its state, and the vCPU's counts at that moment.
pub(crate) struct Moment<'a> {
    pub(crate) qemu: &'a mut Qemu,
    pub(crate) clock: &'a Clock,
    pub(crate) vcpu: u32,
    pub(crate) registers: Registers,
    /// The counts of the vCPU.
    pub(crate) now: Counts,
}

impl Moment<'_> {
    pub(crate) fn rsp(&mut self) -> u64 {
        self.qemu.register_value(self.registers.rsp)
    }

    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        self.qemu.memory(address).map(u64::from_le_bytes)
    }

    pub(crate) fn half_word(&mut self, address: u64) -> Option<u32> {
        self.qemu.memory(address).map(u32::from_le_bytes)
    }

    /// The time on the clock that all vCPUs share, in cycles.
    pub(crate) fn common_cycles(&self) -> u64 {
        self.clock.common_cycles_at(self.vcpu, &self.now)
    }
}

/// Whether an address is in the kernel's half of the address space.
pub(crate) fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}

/// A jump to a handler that no instruction makes: an interrupt or exception.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Discontinuity {
    /// The address where the vCPU would have continued.
    pub(crate) interrupted: u64,
    /// The address of the handler.
    pub(crate) handler: u64,
    pub(crate) is_exception: bool,
}

impl Tracker {
    /// Without `symbols`, all contexts are unknown.
    pub(crate) fn new(cpus: usize, symbols: KernelSymbols, offsets: Offsets) -> Tracker {
        let cpus = (0..cpus).map(|_| TrackedCpu::default()).collect();
        let (tasks, names) = (TaskStacks::default(), BTreeMap::new());
        let (irqs, services, structures) = (IrqLines::default(), None, Structures::default());
        Tracker {
            cpus,
            symbols,
            offsets,
            irqs,
            tasks,
            services,
            structures,
            delays: Delays::default(),
            senders: Senders::default(),
            groups: Groups::default(),
            requests: Requests::default(),
            has_callback_contexts: false,
            softirq_masks: Vec::new(),
            names,
            misplaced_interrupts: 0,
        }
    }

    /// Forgets the contexts of a CPU and the stacks of all tasks, because the CPU was not followed for a while.
    pub(crate) fn forget(&mut self, cpu: usize) {
        self.tasks = TaskStacks::default();
        self.restart(cpu, KernelContext::Unknown);
    }

    /// Starts to follow a CPU whose contexts are not known, at its current context. `activity`: what it does, if QEMU
    /// shows this. Without symbols, there would be no events to follow, so its context stays unknown.
    pub(crate) fn start(&mut self, cpu: usize, activity: Option<Activity>, qemu: &mut Qemu) {
        if !self.symbols.are_known() {
            return;
        }
        let task = RunningTask::on_cpu(cpu, &self.symbols, &self.offsets, qemu);
        let context = first_context(activity, task);
        if context == KernelContext::Unknown {
            return;
        }
        self.restart(cpu, context);
        if let Some(task) = task {
            self.set_task(cpu, task.address, task.pid, qemu);
        }
    }

    /// Makes `context` the only context of a CPU.
    fn restart(&mut self, cpu: usize, context: KernelContext) {
        let tracked = &mut self.cpus[cpu];
        let now = cpu::with_vcpu(cpu as u32, |cpu| cpu.counts());
        tracked.stack.restart(context, now);
        (tracked.task, tracked.pid, tracked.process) = (0, None, None);
        (tracked.is_dying, tracked.irq) = (false, None);
        tracked.executing_return = None;
        self.senders.take_call(cpu);
    }

    /// The context and the service that a CPU executes, the page faults that the last event has ended, and access to
    /// the guest's structures. The memory system needs all of them at once.
    pub(crate) fn executing<'a>(
        &'a mut self,
        cpu: usize,
        qemu: &'a mut Qemu,
    ) -> ((KernelContext, Executing), impl Iterator<Item = EndedFault> + 'a, Guest<'a>) {
        let Tracker { cpus, symbols, offsets, services, structures, .. } = self;
        let tracked = &cpus[cpu];
        let service = tracked.stack.service();
        let is_fault = tracked.stack.fault().is_some();
        let by_service = Executing {
            code: service.of_all_tasks().code(),
            fault: is_fault.then(|| (tracked.task, tracked.stack.depth() - 1)),
            pid: tracked.pid_or_zero(),
            process: tracked.process,
            task: tracked.task,
        };
        // The context that evicts lines: a service if services are recorded, otherwise as the tables of contexts have
        // it.
        let context = if services.is_some() { service } else { tracked.stack.context() };
        let area_array = symbols.kernel_counts.map(|counts| counts.areas);
        let guest = Guest { qemu, offsets, structures, area_array, cpus: cpus.len() };
        let ended = services.iter_mut().flat_map(|services| services.take_ended_faults());
        ((context, by_service), ended, guest)
    }

    /// Access to the guest's structures.
    pub(crate) fn guest<'a>(&'a mut self, qemu: &'a mut Qemu) -> Guest<'a> {
        let area_array = self.symbols.kernel_counts.map(|counts| counts.areas);
        let (offsets, structures) = (&self.offsets, &mut self.structures);
        Guest { qemu, offsets, structures, area_array, cpus: self.cpus.len() }
    }

    /// The name of a task, padded with zeros. `None` if it was not read.
    pub(crate) fn name(&self, pid: u32) -> Option<[u8; 16]> {
        self.names.get(&pid).copied()
    }

    /// How many events could not be followed: tasks whose stacks had no room, and interrupts on another vCPU than the
    /// one that was assumed to run. The second number must be 0.
    pub(crate) fn lost_events(&self) -> u64 {
        self.tasks.dropped() + self.misplaced_interrupts
    }

    /// Counts an interrupt on another vCPU than the one that was assumed to run.
    pub(crate) fn count_misplaced_interrupt(&mut self) {
        self.misplaced_interrupts += 1;
    }

    /// Handles that a vCPU enters the handler of an interrupt or exception. Returns the vector if it is known.
    pub(crate) fn enter_handler(
        &mut self,
        cpu: usize,
        Discontinuity { interrupted, handler, is_exception }: Discontinuity,
        mut moment: Moment<'_>,
    ) -> Option<u8> {
        let tracked = &mut self.cpus[cpu];
        let count = if is_exception { &mut tracked.exceptions } else { &mut tracked.interrupts };
        *count += 1;
        if !is_kernel(handler) {
            return None; // firmware
        }
        let Some(context) = self.symbols.gate(handler) else {
            // The entry of 32-bit system calls is no gate: it is a followed instruction (`Action::SyscallEntry`).
            if self.symbols.action_at(handler).is_none() {
                self.cpus[cpu].unknown_gates += 1;
            }
            return None;
        };
        if let KernelContext::Interrupt(vector) = context {
            self.cpus[cpu].has_entered_body = false;
            self.take_interrupt(cpu, vector, &moment);
        }
        let user = (!is_kernel(interrupted)).then(|| self.current_pid(cpu, &mut moment));
        self.note_group(cpu, &mut moment);
        let stack_pointer = moment.rsp();
        self.cpus[cpu].stack.enter_hardware(context, stack_pointer, user, moment.now);
        match context {
            KernelContext::Exception(vector) | KernelContext::Interrupt(vector) => Some(vector),
            KernelContext::Nmi => Some(NMI_VECTOR),
            _ => None,
        }
    }

    /// Handles the followed instruction at `address`, before it executes: updates the CPU's stack of contexts, and
    /// the delays if they are counted.
    pub(crate) fn handle_action(
        &mut self,
        cpu: usize,
        action: Action,
        address: u64,
        mut moment: Moment<'_>,
    ) {
        let now = moment.now;
        match action {
            // Other parts of the plugin handle these actions.
            Action::Marker
            | Action::Halt
            | Action::Pause
            | Action::ReadClock
            | Action::WriteLocalApic
            | Action::Cpuid
            | Action::CpuDead => {}
            Action::SyscallEntry { flags } => {
                let number = moment.qemu.register_value(moment.registers.rax) as u32 | flags;
                let pid = self.current_pid(cpu, &mut moment);
                self.cpus[cpu].stack.enter_syscall(number, pid, now);
            }
            Action::SoftirqEntry(number) => self.enter_softirq(cpu, number, moment),
            Action::RaiseSoftirqs { raised, mask } => {
                if !self.softirq_masks.contains(&mask) {
                    self.softirq_masks.push(mask);
                }
                if self.delays.is_counting() {
                    self.raise_softirqs(cpu, raised, &mut moment);
                }
            }
            Action::QueueWork => {
                if self.delays.is_counting() {
                    self.begin_delay_of_work(&mut moment);
                }
            }
            Action::RequestIrqThread => {
                if self.delays.is_counting() {
                    self.request_irq_thread(cpu, &mut moment);
                }
            }
            Action::StartSending
            | Action::AddToQueue
            | Action::SendInterrupt(_)
            | Action::CallQueued { .. }
            | Action::RunIrqWork
            | Action::WakeQueuedTasks => {
                if self.senders.is_counting() {
                    self.handle_sender(cpu, action, address, moment);
                }
            }
            Action::SubmitBio
            | Action::ChainBio
            | Action::EndBio
            | Action::CompleteRequest
            | Action::CompleteRequests => {
                if self.requests.are_recorded() {
                    self.handle_request(cpu, action, moment);
                }
            }
            Action::IrqLine => {
                let description = moment.qemu.register_value(moment.registers.rdi);
                self.cpus[cpu].irq = self.irqs.line_number(description, &self.offsets, moment.qemu);
            }
            Action::IrqCall { bytes } => {
                self.cpus[cpu].thread_requested = None;
                if let Some(irq) = self.cpus[cpu].irq {
                    self.enter_called(cpu, KernelContext::Irq(irq), address, bytes, moment);
                }
            }
            Action::CallbackCall { kind, register, bytes } => {
                let register = moment.registers.named[usize::from(register)];
                let function = register.map_or(0, |register| moment.qemu.register_value(register));
                let context = callback_context(kind, function);
                if self.delays.is_counting() {
                    self.end_delay_of_callback(context, &mut moment);
                }
                if self.has_callback_contexts {
                    self.enter_called(cpu, context, address, bytes, moment);
                }
            }
            Action::Probe(position) => {
                if u32::from(position) == QUEUE_PROBE {
                    self.senders.note_queue_event(cpu, moment.common_cycles());
                }
                self.enter_probe(cpu, position, moment);
            }
            Action::Switch => self.switch_task(cpu, moment),
            Action::TaskExit => self.cpus[cpu].stack.start_exit(now),
            Action::TaskDead => self.cpus[cpu].is_dying = true,
            Action::IdleLoop => self.cpus[cpu].stack.restart(KernelContext::Idle, now),
            Action::InterruptReturn => {
                let stack_pointer = moment.rsp();
                let selector = moment.word(stack_pointer.wrapping_add(8)).unwrap_or(0);
                let target = if selector & USER_MODE == USER_MODE {
                    ReturnTarget::User { pid: self.current_pid(cpu, &mut moment) }
                } else {
                    ReturnTarget::Kernel { stack_pointer }
                };
                self.cpus[cpu].executing_return = Some(ExecutingReturn { address, target });
            }
            Action::SyscallReturn => {
                let target = ReturnTarget::User { pid: self.current_pid(cpu, &mut moment) };
                self.cpus[cpu].executing_return = Some(ExecutingReturn { address, target });
            }
            // Services have a context for the scheduler.
            Action::Schedule if self.services.is_none() => self.cpus[cpu].stack.give_way(now),
            Action::Schedule
            | Action::WakeUp
            | Action::Fault(_)
            | Action::Wait { .. }
            | Action::TakeLock(_)
            | Action::ContendLock { .. }
            | Action::ReleaseLock => self.handle_service_point(cpu, action, address, moment),
        }
    }

    /// Enters `context`: a function that the call instruction of `bytes` bytes at `address` is about to call.
    fn enter_called(
        &mut self,
        cpu: usize,
        context: KernelContext,
        address: u64,
        bytes: u8,
        mut moment: Moment<'_>,
    ) {
        // The call pushes the return address.
        let stack_pointer = moment.rsp().wrapping_sub(8);
        let return_to = address.wrapping_add(u64::from(bytes));
        self.cpus[cpu].stack.enter_call(context, return_to, stack_pointer, moment.now);
    }

    /// Handles the first instruction of a softirq's handler.
    fn enter_softirq(&mut self, cpu: usize, number: u8, mut moment: Moment<'_>) {
        let stack_pointer = moment.rsp();
        let Some(return_to) = moment.word(stack_pointer) else { return };
        // A handler that the softirq loop did not call is an ordinary function.
        if !self.symbols.calls_softirqs(return_to) {
            return;
        }
        self.note_group(cpu, &mut moment);
        let context = KernelContext::Softirq(number);
        self.cpus[cpu].stack.enter_call(context, return_to, stack_pointer, moment.now);
        if self.delays.is_counting() {
            let pending = self.pending_softirqs(&mut moment);
            self.delays.run_softirq(cpu, moment.now[TIME], number, pending);
        }
    }

    /// Handles that a followed function, or one that waits, returns to `address`, where a block is about to start: ends its
    /// context, its wait for a lock, or the fault that it resolved, and starts the body of an interrupt after its probes.
    pub(crate) fn handle_return(&mut self, cpu: usize, address: u64, mut moment: Moment<'_>) {
        let stack_pointer = moment.rsp();
        let stack = &mut self.cpus[cpu].stack;
        let (context_before, depth_before) = (stack.context(), stack.depth());
        stack.at_return_address(address, stack_pointer, moment.now);
        // If not, only a function has returned that waits in the context.
        let has_context_ended = stack.depth() < depth_before;
        match context_before {
            KernelContext::LockWait(kind) if has_context_ended => {
                if let Some(services) = &mut self.services {
                    let rax = moment.qemu.register_value(moment.registers.rax);
                    let (task, end) = (self.cpus[cpu].task, WaitEnd::of_return_value(kind, rax));
                    services.locks.end_wait(task, kind.sleeps(), end, moment.common_cycles());
                }
            }
            KernelContext::Irq(_) if has_context_ended && self.delays.is_counting() => {
                self.note_handler_return(cpu, &mut moment);
            }
            KernelContext::KernelFault(_) if has_context_ended => {
                let result = moment.qemu.register_value(moment.registers.rax);
                self.count_kernel_fault(result);
            }
            _ => {}
        }
        let tracked = &mut self.cpus[cpu];
        // The live bench measures an interrupt from the end of the BPF programs at its entry. Several programs run in a
        // loop, and the body starts after the loop.
        let entry_probes = [VECTOR_PROBE, ENTRY_LOOP]
            .map(|position| KernelContext::Function(PROBE_FIRST + position));
        if entry_probes.contains(&context_before)
            && let KernelContext::Interrupt(vector) = tracked.stack.context()
            && !std::mem::replace(&mut tracked.has_entered_body, true)
        {
            let body = KernelContext::Function(BODY_FIRST + u32::from(vector));
            tracked.stack.enter_section(body, moment.now);
        }
    }

    /// Handles that the kernel is about to call BPF programs. The programs at a vector's exit end the body of the
    /// interrupt. The programs at a wake-up have a context for each woken task.
    fn enter_probe(&mut self, cpu: usize, position: u8, mut moment: Moment<'_>) {
        let stack_pointer = moment.rsp();
        let Some(return_to) = moment.word(stack_pointer) else { return };
        let stack = &mut self.cpus[cpu].stack;
        if u32::from(position) == VECTOR_PROBE {
            stack.leave_section(moment.now);
        }
        let context = KernelContext::Function(match u32::from(position) {
            WAKE_PROBE => {
                let woken = moment.qemu.register_value(moment.registers.rsi);
                self.read_pid(woken, moment.qemu)
                    .map_or(PROBE_FIRST + WAKE_PROBE, |pid| WAKE_FIRST.saturating_add(pid))
            }
            position => PROBE_FIRST + position,
        });
        self.cpus[cpu].stack.enter_call(context, return_to, stack_pointer, moment.now);
    }

    /// The return address of the function that ends next on `cpu`: a context, a wait, or a function that another CPU has
    /// queued. `None` if no such function runs.
    pub(crate) fn awaits(&self, cpu: usize) -> Option<u64> {
        let awaited = self.cpus[cpu].stack.awaits();
        self.senders.awaits(cpu, awaited).or(awaited)
    }

    /// Reads the name of the task that runs on `cpu`. Does nothing if the memory cannot be read in the current mode.
    pub(crate) fn name_current(&mut self, cpu: usize, qemu: &mut Qemu) {
        let (task, pid) = (self.cpus[cpu].task, self.cpus[cpu].pid);
        if let (true, Some(pid), Some(offset)) = (task != 0, pid, self.offsets.comm)
            && let Some(comm) = qemu.memory(task.wrapping_add(offset))
            && (self.names.len() < NAMES_MAX || self.names.contains_key(&pid))
        {
            self.names.insert(pid, comm);
        }
    }

    /// Whether a CPU executes a return, or a call of a queued function, that is handled at the end of the block.
    pub(crate) fn has_event_at_block_end(&self, cpu: usize) -> bool {
        self.executes_return(cpu) || self.senders.executes_call(cpu)
    }

    /// Whether a CPU executes a return that [`Tracker::complete_return`] has not handled yet.
    pub(crate) fn executes_return(&self, cpu: usize) -> bool {
        self.cpus[cpu].executing_return.is_some()
    }

    /// Handles that a CPU has executed the return of its last action, if there is one. The return and its accesses belong to the
    /// context that it leaves. `counts`: the CPU's counts after the return.
    pub(crate) fn complete_return(&mut self, cpu: usize, counts: Counts) {
        let tracked = &mut self.cpus[cpu];
        match tracked.executing_return.take().map(|executing| executing.target) {
            Some(ReturnTarget::User { pid }) => tracked.stack.return_to_user(pid, counts),
            Some(ReturnTarget::Kernel { stack_pointer }) => {
                tracked.stack.return_to_kernel(stack_pointer, counts);
            }
            None => {}
        }
    }

    /// Forgets the return or call that a CPU executes if it has raised the exception of `entry`: it has not executed.
    pub(crate) fn forget_failed_instruction(&mut self, cpu: usize, entry: Discontinuity) {
        if !entry.is_exception {
            return;
        }
        let executing_return = &mut self.cpus[cpu].executing_return;
        executing_return.take_if(|executing| executing.address == entry.interrupted);
        self.senders.forget_call_at(cpu, entry.interrupted);
    }

    /// Handles the switch from the task in `rdi` to the task in `rsi`. The steps before the stacks are switched belong to the
    /// previous task: its name, its run and its services. [`KernelStack::arrive`] belongs to the next task.
    fn switch_task(&mut self, cpu: usize, mut moment: Moment<'_>) {
        let previous = moment.qemu.register_value(moment.registers.rdi);
        let next = moment.qemu.register_value(moment.registers.rsi);
        if self.cpus[cpu].task != previous {
            // The task's entry into the kernel was not seen. Tracking starts here.
            let previous_pid = self.read_pid(previous, moment.qemu);
            self.set_task(cpu, previous, previous_pid, moment.qemu);
            let previous_bottom =
                bottom_context(previous, previous_pid, &self.offsets, moment.qemu);
            self.cpus[cpu].stack.identify(previous_bottom, moment.now);
        }
        self.name_current(cpu, moment.qemu);
        self.complete_run_of_irq_thread(cpu, moment.now);
        let next_pid = self.read_pid(next, moment.qemu);
        if self.delays.is_counting() {
            self.switch_irq_threads(cpu, previous, next_pid, &mut moment);
        }
        if self.services.is_some() {
            self.note_stack(next, next_pid, &mut moment);
        }
        let next_bottom = bottom_context(next, next_pid, &self.offsets, moment.qemu);
        let has_ended = std::mem::take(&mut self.cpus[cpu].is_dying);
        if self.services.is_some() {
            self.leave_task(cpu, previous, has_ended, &mut moment);
        }
        let tracked = &mut self.cpus[cpu];
        self.tasks.switch(
            &mut tracked.stack,
            (previous, has_ended),
            (next, next_bottom),
            moment.now,
        );
        self.set_task(cpu, next, next_pid, moment.qemu);
        self.note_group(cpu, &mut moment);
        if self.services.is_some() {
            self.cpus[cpu].stack.arrive(moment.common_cycles());
        }
    }

    /// Notes the control group of the task that runs on a CPU, if groups are recorded.
    pub(super) fn note_group(&mut self, cpu: usize, moment: &mut Moment<'_>) {
        if !self.groups.are_recorded() {
            return;
        }
        // Before the first switch that is seen, this finds the task.
        self.current_pid(cpu, moment);
        let time =
            EventTime { at: moment.now[TIME], tsc: moment.clock.tsc_at(moment.vcpu, &moment.now) };
        self.groups.note(cpu, self.cpus[cpu].task, time, &self.offsets, moment.qemu);
    }

    /// Completes a span of the running thread if it runs IRQ handlers. Such a thread has one span for each time it runs.
    fn complete_run_of_irq_thread(&mut self, cpu: usize, counts: Counts) {
        let name = self.cpus[cpu].pid.and_then(|pid| self.names.get(&pid));
        if name.is_some_and(|name| name.starts_with(IRQ_THREAD)) {
            self.cpus[cpu].stack.complete_run(counts);
        }
    }

    /// Remembers the address of a task's kernel stack.
    fn note_stack(&mut self, task: u64, pid: Option<u32>, moment: &mut Moment<'_>) {
        let base = self.offsets.stack.and_then(|stack| moment.word(task.wrapping_add(stack)));
        if let Some((base, pid)) = base.zip(pid) {
            self.structures.note_stack(base, pid);
        }
    }

    /// Notes the task that runs on a CPU, and its process. `task`: the address of its `task_struct`.
    fn set_task(&mut self, cpu: usize, task: u64, pid: Option<u32>, qemu: &mut Qemu) {
        let number = |offset| qemu.memory(task.wrapping_add(offset)).map(u32::from_le_bytes);
        let process = self.offsets.tgid.and_then(number);
        let tracked = &mut self.cpus[cpu];
        (tracked.task, tracked.pid, tracked.process) = (task, pid, process);
    }

    /// Reads the process id from the `task_struct` at `task`. `None` if the offset is not known, or the
    /// structure cannot be read.
    pub(super) fn read_pid(&self, task: u64, qemu: &mut Qemu) -> Option<u32> {
        let offset = self.offsets.pid?;
        qemu.memory(task.wrapping_add(offset)).map(u32::from_le_bytes)
    }

    /// The process id of the task that runs on a CPU, or [`PID_UNKNOWN`]. Before the first switch that is seen, it comes from
    /// the kernel's pointer to the current task, which this also notes.
    pub(super) fn current_pid(&mut self, cpu: usize, moment: &mut Moment<'_>) -> u32 {
        if self.cpus[cpu].task == 0
            && let Some(current_task_offset) = self.symbols.current_task
        {
            let gs_base = moment.qemu.register_value(moment.registers.gs_base);
            let k_gs_base =
                moment.registers.k_gs_base.map(|register| moment.qemu.register_value(register));
            let cpu_area =
                [Some(gs_base), k_gs_base].into_iter().flatten().find(|base| is_kernel(*base));
            let task = cpu_area
                .and_then(|cpu_area| moment.word(cpu_area.wrapping_add(current_task_offset)));
            if let Some(task) = task.filter(|task| is_kernel(*task)) {
                let pid = self.read_pid(task, moment.qemu);
                self.set_task(cpu, task, pid, moment.qemu);
            }
        }
        self.cpus[cpu].pid_or_unknown()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simrecord::counters::INSTRUCTIONS;

    const RETURN_AT: u64 = 0xffff_ffff_8100_0000;

    /// A CPU that has executed 100 instructions of an interrupt's handler in the idle task, and executes the return.
    fn returning() -> Tracker {
        let mut tracker = Tracker::new(1, KernelSymbols::default(), Offsets::default());
        let tracked = &mut tracker.cpus[0];
        tracked.stack.restart(KernelContext::Idle, [0; COUNTERS]);
        tracked.stack.open_region([0; COUNTERS]);
        let interrupt = KernelContext::Interrupt(0xec);
        tracked.stack.enter_hardware(interrupt, 0x1000, None, [0; COUNTERS]);
        let target = ReturnTarget::Kernel { stack_pointer: 0x1000 };
        tracked.executing_return = Some(ExecutingReturn { address: RETURN_AT, target });
        tracker
    }

    #[test]
    fn a_return_belongs_to_the_context_that_it_leaves() {
        let mut tracker = returning();
        assert!(tracker.has_event_at_block_end(0));
        assert_eq!(tracker.cpus[0].stack.context(), KernelContext::Interrupt(0xec));
        let mut now = [0; COUNTERS];
        now[INSTRUCTIONS] = 101;
        tracker.complete_return(0, now);
        assert!(!tracker.has_event_at_block_end(0));
        assert_eq!(tracker.cpus[0].stack.context(), KernelContext::Idle);
    }

    #[test]
    fn a_return_that_fails_leaves_no_context() {
        let entry = |interrupted, is_exception| Discontinuity {
            interrupted,
            handler: 0xffff_ffff_8200_0000,
            is_exception,
        };
        // The return has executed before an interrupt, and before an exception of another instruction.
        for executed in [entry(RETURN_AT, false), entry(0x40_0000, true)] {
            let mut tracker = returning();
            tracker.forget_failed_instruction(0, executed);
            assert!(tracker.has_event_at_block_end(0), "{executed:?}");
        }
        let mut tracker = returning();
        tracker.forget_failed_instruction(0, entry(RETURN_AT, true));
        tracker.complete_return(0, [0; COUNTERS]);
        assert_eq!(tracker.cpus[0].stack.context(), KernelContext::Interrupt(0xec));
    }
}
