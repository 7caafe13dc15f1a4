//! Follows the task and the contexts of each CPU. Turns interrupts, calls and task switches into events of the context
//! stacks.

use std::collections::BTreeMap;

use attribution::{KernelContext, KernelStack, KernelStackFaults, PID_UNKNOWN, TaskStacks};

use crate::cpu;
use crate::guest::irq::IrqLines;
use crate::guest::service_misses::{EndedFault, Executing};
use crate::guest::service_sums::ServiceSums;
use crate::guest::structures::{Guest, Structures};
use crate::qemu::{Qemu, Registers};
use crate::time::clock::Clock;
use plugin_interface::symbols::{
    Action, BODY_FIRST, ENTRY_LOOP, KernelSymbols, Offsets, PROBE_FIRST,
};
use simrecord::counters::{COUNTERS, Counts};

type Stack = KernelStack<COUNTERS>;

/// The most tasks whose names are remembered.
const NAMES_MAX: usize = 65_536;
/// The bits of a code selector that tell the privilege; both are set in user mode.
const USER_MODE: u64 = 3;

/// How the names of the threads of IRQ lines start (kernel/irq/manage.c).
const IRQ_THREAD: &[u8] = b"irq/";

const NMI_VECTOR: u8 = 2;
/// The position of the vectors' probes among the probes.
const VECTOR_PROBE: u32 = 3;

/// The state of one CPU.
#[derive(Default)]
pub(crate) struct TrackedCpu {
    pub(crate) stack: Stack,
    /// Address of the task that runs; 0 if not known.
    pub(crate) task: u64,
    pid: Option<u32>,
    /// Whether the task has ended and only runs until its last switch.
    dying: bool,
    /// The IRQ line whose handlers are about to be called.
    irq: Option<u32>,
    /// Whether the last interrupt has reached the part between the vector's probes.
    body_begun: bool,
    /// Interrupts taken.
    pub(crate) interrupts: u64,
    /// Exceptions taken.
    pub(crate) exceptions: u64,
    /// Interrupts and exceptions whose handler has no symbol.
    pub(crate) unknown_gates: u64,
}

impl TrackedCpu {
    fn pid(&self) -> u32 {
        self.pid.unwrap_or(PID_UNKNOWN)
    }

    /// The process id of the running task. 0 for the idle task, and if it is not known.
    pub(crate) fn pid_or_zero(&self) -> u32 {
        self.pid.unwrap_or(0)
    }

    /// The events that did not fit.
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
    pub(crate) tasks: TaskStacks<COUNTERS>,
    /// The counts of services. `None`: services are not recorded.
    pub(crate) services: Option<ServiceSums>,
    /// The known structures of the guest.
    pub(crate) structures: Structures,
    names: BTreeMap<u32, [u8; 16]>,
    misplaced: u64,
}

/// The guest at an event: a reader of its state, and the CPU's counts.
pub(crate) struct Moment<'a> {
    pub(crate) qemu: &'a mut Qemu,
    pub(crate) clock: &'a Clock,
    pub(crate) vcpu: u32,
    pub(crate) registers: Registers,
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

    /// The time on the clock that all vCPUs have in common, in cycles.
    pub(crate) fn common_cycles(&self) -> u64 {
        self.clock.common_cycles_at(self.vcpu, &self.now)
    }
}

/// Whether an address is in the kernel's half of the address space.
pub(crate) fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}

/// A change of the program counter to a handler, which no instruction makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Discontinuity {
    /// The address where the vCPU would have continued.
    pub(crate) from: u64,
    /// The address of the handler.
    pub(crate) to: u64,
}

impl Tracker {
    /// `symbols` may be empty. All contexts are then unknown.
    pub(crate) fn new(cpus: usize, symbols: KernelSymbols, offsets: Offsets) -> Tracker {
        let cpus = (0..cpus).map(|_| TrackedCpu::default()).collect();
        let (tasks, names) = (TaskStacks::default(), BTreeMap::new());
        let (irqs, services, structures) = (IrqLines::default(), None, Structures::default());
        Tracker { cpus, symbols, offsets, irqs, tasks, services, structures, names, misplaced: 0 }
    }

    /// Forgets the contexts of a CPU, because it was not followed for a while.
    pub(crate) fn forget(&mut self, cpu: usize) {
        self.tasks = TaskStacks::default();
        let tracked = &mut self.cpus[cpu];
        let now = cpu::with(cpu as u32, |cpu| cpu.counts());
        tracked.stack.restart(KernelContext::Unknown, now);
        (tracked.task, tracked.pid, tracked.dying, tracked.irq) = (0, None, false, None);
    }

    /// The context and service of a CPU, the page faults that the last event ended, and a reader of the guest's
    /// structures.
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
            task: tracked.task,
        };
        // Without services evictors are contexts, as the tables of contexts have them.
        let context = if services.is_some() { service } else { tracked.stack.context() };
        let area_array = symbols.kernel_counts.map(|counts| counts.areas);
        let guest = Guest { qemu, offsets, structures, area_array, cpus: cpus.len() };
        let ended = services.iter_mut().flat_map(|services| services.take_ended_faults());
        ((context, by_service), ended, guest)
    }

    /// A reader of the guest's structures.
    pub(crate) fn guest<'a>(&'a mut self, qemu: &'a mut Qemu) -> Guest<'a> {
        let area_array = self.symbols.kernel_counts.map(|counts| counts.areas);
        let (offsets, structures) = (&self.offsets, &mut self.structures);
        Guest { qemu, offsets, structures, area_array, cpus: self.cpus.len() }
    }

    /// The name of a task, if it was seen.
    pub(crate) fn name(&self, pid: u32) -> Option<[u8; 16]> {
        self.names.get(&pid).copied()
    }

    /// How many events could not be followed: tasks whose stacks did not fit, and interrupts on another vCPU than the
    /// assumed one. The second must be 0.
    pub(crate) fn lost(&self) -> u64 {
        self.tasks.dropped() + self.misplaced
    }

    /// Counts an interrupt on another vCPU than the one that was assumed to run.
    pub(crate) fn note_misplaced(&mut self) {
        self.misplaced += 1;
    }

    /// The processor enters a handler. Returns the vector, if it is
    /// known.
    pub(crate) fn discontinuity(
        &mut self,
        cpu: usize,
        exception: bool,
        Discontinuity { from, to }: Discontinuity,
        mut at: Moment<'_>,
    ) -> Option<u8> {
        let tracked = &mut self.cpus[cpu];
        let count = if exception { &mut tracked.exceptions } else { &mut tracked.interrupts };
        *count += 1;
        if !is_kernel(to) {
            return None; // firmware
        }
        let Some(context) = self.symbols.gate(to) else {
            // The entry of 32-bit system calls is no gate, but annotated as a system call.
            if self.symbols.action_at(to).is_none() {
                self.cpus[cpu].unknown_gates += 1;
            }
            return None;
        };
        if let KernelContext::Interrupt(_) = context {
            self.cpus[cpu].body_begun = false;
        }
        let user = (!is_kernel(from)).then(|| self.pid(cpu, &mut at));
        let stack_pointer = at.rsp();
        self.cpus[cpu].stack.enter_hardware(context, stack_pointer, user, at.now);
        match context {
            KernelContext::Exception(vector) | KernelContext::Interrupt(vector) => Some(vector),
            KernelContext::Nmi => Some(NMI_VECTOR),
            _ => None,
        }
    }

    /// An annotated instruction is about to execute at `address`.
    pub(crate) fn point(&mut self, cpu: usize, action: Action, address: u64, mut at: Moment<'_>) {
        let now = at.now;
        match action {
            // Not for the tracker: other parts of the plugin handle these actions.
            Action::Marker
            | Action::Halt
            | Action::Pause
            | Action::ReadClock
            | Action::WriteLocalApic
            | Action::CpuDead => {}
            Action::SyscallEntry { flags } => {
                let number = at.qemu.register_value(at.registers.rax) as u32 | flags;
                let pid = self.pid(cpu, &mut at);
                self.cpus[cpu].stack.enter_syscall(number, pid, now);
            }
            Action::SoftirqEntry(number) => {
                let stack_pointer = at.rsp();
                let Some(return_to) = at.word(stack_pointer) else { return };
                // If another function than the softirq loop calls the handler, it is an ordinary function.
                if self.symbols.calls_softirqs(return_to) {
                    let context = KernelContext::Softirq(number);
                    let stack = &mut self.cpus[cpu].stack;
                    stack.enter_call(context, return_to, stack_pointer, now);
                }
            }
            Action::IrqLine => {
                let description = at.qemu.register_value(at.registers.rdi);
                self.cpus[cpu].irq = self.irqs.look(description, &self.offsets, at.qemu);
            }
            Action::IrqCall { bytes } => {
                if let Some(irq) = self.cpus[cpu].irq {
                    let stack_pointer = at.rsp().wrapping_sub(8);
                    let return_to = address.wrapping_add(u64::from(bytes));
                    let stack = &mut self.cpus[cpu].stack;
                    stack.enter_call(KernelContext::Irq(irq), return_to, stack_pointer, now);
                }
            }
            Action::Probe(position) => self.probe(cpu, position, at),
            Action::Switch => self.switch(cpu, at),
            Action::TaskDead => self.cpus[cpu].dying = true,
            Action::IdleLoop => self.cpus[cpu].stack.restart(KernelContext::Idle, now),
            Action::InterruptReturn => {
                let stack_pointer = at.rsp();
                let selector = at.word(stack_pointer.wrapping_add(8)).unwrap_or(0);
                if selector & USER_MODE == USER_MODE {
                    self.return_to_user(cpu, at);
                } else {
                    self.cpus[cpu].stack.return_to_kernel(stack_pointer, now);
                }
            }
            Action::SyscallReturn => self.return_to_user(cpu, at),
            Action::Schedule
            | Action::WakeUp
            | Action::Fault(_)
            | Action::Wait { .. }
            | Action::TakeLock(_)
            | Action::ContendLock { .. }
            | Action::ReleaseLock => self.service_point(cpu, action, address, at),
        }
    }

    /// A followed function returns to a block that starts at `address`.
    pub(crate) fn returned(&mut self, cpu: usize, address: u64, mut at: Moment<'_>) {
        let stack_pointer = at.rsp();
        let tracked = &mut self.cpus[cpu];
        let was = tracked.stack.context();
        if let (KernelContext::LockWait(kind), Some(services)) = (was, &mut self.services) {
            services.locks.obtain(tracked.task, kind.sleeps(), at.common_cycles());
        }
        tracked.stack.at_return_address(address, stack_pointer, at.now);
        // The live bench measures from the end of the programs at a vector's entry. If there are several, this is the
        // end of the loop that calls them.
        let programs = [VECTOR_PROBE, ENTRY_LOOP];
        let programs = programs.map(|position| KernelContext::Function(PROBE_FIRST + position));
        if programs.contains(&was)
            && let KernelContext::Interrupt(vector) = tracked.stack.context()
            && !std::mem::replace(&mut tracked.body_begun, true)
        {
            let body = KernelContext::Function(BODY_FIRST + u32::from(vector));
            tracked.stack.enter_section(body, at.now);
        }
    }

    /// BPF programs are about to be called. The programs at a vector's exit end the measured part of the
    /// vector.
    fn probe(&mut self, cpu: usize, position: u8, mut at: Moment<'_>) {
        let stack_pointer = at.rsp();
        let Some(return_to) = at.word(stack_pointer) else { return };
        let stack = &mut self.cpus[cpu].stack;
        if u32::from(position) == VECTOR_PROBE {
            stack.leave_section(at.now);
        }
        let context = KernelContext::Function(PROBE_FIRST + u32::from(position));
        stack.enter_call(context, return_to, stack_pointer, at.now);
    }

    /// Reads the name of the task that runs on `cpu`, if its memory can be read in the current mode.
    pub(crate) fn name_current(&mut self, cpu: usize, qemu: &mut Qemu) {
        let (task, pid) = (self.cpus[cpu].task, self.cpus[cpu].pid);
        if let (true, Some(pid), Some(offset)) = (task != 0, pid, self.offsets.comm)
            && let Some(comm) = qemu.memory(task.wrapping_add(offset))
            && (self.names.len() < NAMES_MAX || self.names.contains_key(&pid))
        {
            self.names.insert(pid, comm);
        }
    }

    fn return_to_user(&mut self, cpu: usize, mut at: Moment<'_>) {
        let pid = self.pid(cpu, &mut at);
        self.cpus[cpu].stack.return_to_user(pid, at.now);
    }

    fn switch(&mut self, cpu: usize, mut at: Moment<'_>) {
        let previous = at.qemu.register_value(at.registers.rdi);
        let next = at.qemu.register_value(at.registers.rsi);
        if self.cpus[cpu].task != previous {
            // The task's entry into the kernel was not seen. Tracking starts here.
            self.cpus[cpu].task = previous;
            self.cpus[cpu].pid = self.pid_of(previous, at.qemu);
            let foot = self.foot_of(previous, self.cpus[cpu].pid, at.qemu);
            self.cpus[cpu].stack.identify(foot, at.now);
        }
        self.name_current(cpu, at.qemu);
        self.complete_run_of_irq_thread(cpu, at.now);
        let pid = self.pid_of(next, at.qemu);
        if self.services.is_some() {
            self.note_stack(next, pid, &mut at);
        }
        let foot = self.foot_of(next, pid, at.qemu);
        let tracked = &mut self.cpus[cpu];
        let died = std::mem::take(&mut tracked.dying);
        if self.services.is_some() {
            self.leave(cpu, previous, died, &mut at);
        }
        let tracked = &mut self.cpus[cpu];
        self.tasks.switch(&mut tracked.stack, (previous, died), (next, foot), at.now);
        tracked.task = next;
        tracked.pid = pid;
        if self.services.is_some() {
            tracked.stack.arrive(at.common_cycles());
        }
    }

    /// Completes a span of an IRQ line's thread, which runs the threaded part of the line's handlers.
    fn complete_run_of_irq_thread(&mut self, cpu: usize, now: Counts) {
        let name = self.cpus[cpu].pid.and_then(|pid| self.names.get(&pid));
        if name.is_some_and(|name| name.starts_with(IRQ_THREAD)) {
            self.cpus[cpu].stack.complete_run(now);
        }
    }

    /// Remembers the address of a task's stack.
    fn note_stack(&mut self, task: u64, pid: Option<u32>, at: &mut Moment<'_>) {
        let base = self.offsets.stack.and_then(|stack| at.word(task.wrapping_add(stack)));
        if let Some((base, pid)) = base.zip(pid) {
            self.structures.note_stack(base, pid);
        }
    }

    /// The context of a task whose entry into the kernel was not seen.
    fn foot_of(&self, task: u64, pid: Option<u32>, qemu: &mut Qemu) -> KernelContext {
        let (Some(pid), Some(mm)) = (pid, self.offsets.mm) else {
            return if pid == Some(0) {
                KernelContext::Idle
            } else {
                KernelContext::Task(pid.unwrap_or(PID_UNKNOWN))
            };
        };
        match qemu.memory(task.wrapping_add(mm)).map(u64::from_le_bytes) {
            _ if pid == 0 => KernelContext::Idle,
            // A task without user memory of its own is a kernel thread.
            Some(0) => KernelContext::KernelThread(pid),
            _ => KernelContext::Task(pid),
        }
    }

    fn pid_of(&self, task: u64, qemu: &mut Qemu) -> Option<u32> {
        let offset = self.offsets.pid?;
        qemu.memory(task.wrapping_add(offset)).map(u32::from_le_bytes)
    }

    /// The task that runs on a CPU. Before the first switch, it comes from the kernel's pointer to the current task.
    fn pid(&mut self, cpu: usize, at: &mut Moment<'_>) -> u32 {
        if self.cpus[cpu].task == 0
            && let Some(current) = self.symbols.current_task
        {
            let gs_base = at.qemu.register_value(at.registers.gs_base);
            let k_gs_base = at.registers.k_gs_base.map(|register| at.qemu.register_value(register));
            let area =
                [Some(gs_base), k_gs_base].into_iter().flatten().find(|base| is_kernel(*base));
            let task = area.and_then(|area| at.word(area.wrapping_add(current)));
            if let Some(task) = task.filter(|task| is_kernel(*task)) {
                self.cpus[cpu].task = task;
                self.cpus[cpu].pid = self.pid_of(task, at.qemu);
            }
        }
        self.cpus[cpu].pid()
    }
}
