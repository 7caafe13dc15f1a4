//! The meaning of code addresses in the guest's kernel, from a list of the kernel's symbols.
//!
//! `sim` asks [`wanted_symbols`] for the names, finds them in the kernel, and writes the list. The plugin parses the
//! list to [`KernelSymbols`], and asks it at each block that QEMU translates and at each interrupt.
//!
//! - `names`: the functions for contexts. `services`: the functions for services and locks.
//! - `needs`: the content of tables that a kernel without certain functions lacks.
//! - `offsets`: offsets of members in structures of the kernel.

use std::ops::Range;

use attribution::{ContextKind, KernelContext, LockKind};
use machine::decode::{Decoded, OrOperand};

mod names;
mod needs;
mod offsets;
mod services;

use crate::annotations::REGISTERS;
use names::{
    CALL_QUEUE, CALLBACK_CALLERS, DELAY_POINTS, ENCODED_REGISTERS, ENTRY_LOOPS, FAST_CLOCK,
    IRQ_CALLERS, JIFFIES, JIFFIES_SOURCE, OTHERS, POINTS, PROBES, QUEUED_CALL_CALLERS,
    REQUEST_POINTS, SENDER_POINTS, SOFTIRQ_CALLERS, SOFTIRQ_RAISERS, THUNKS, gates,
};
pub use needs::{Part, unmet_content};
pub use offsets::{Offsets, RELEASE, release_number, wanted_members};
pub use services::{FaultStep, wait_name};

/// The largest file of symbols or offsets.
pub const FILE_BYTES_MAX: u64 = 32 << 20;

/// The assumed length in bytes of a function whose end the list does not tell.
const FUNCTION_BYTES_MAX: u64 = 4_096;
/// The first vector of device interrupts.
const FIRST_EXTERNAL_VECTOR: u64 = 0x20;
/// The first vector that Linux uses for itself, for example for timers and IPIs.
const FIRST_SYSTEM_VECTOR: u64 = 0xec;
const VECTORS: u64 = 256;

/// This number plus a vector is the [`KernelContext::Function`] of the body of an interrupt: the part between the live
/// bench's probes at entry and exit of the vector.
pub const BODY_FIRST: u32 = 0x1_0000;
/// This number plus a position in [`probe_name`] is the [`KernelContext::Function`] of a tracepoint class's BPF programs.
pub const PROBE_FIRST: u32 = 0x2_0000;
/// The position in [`probe_name`] of the function that opens and closes the live bench's window on a
/// CPU (net/bpf/test_run.c).
pub const GATE_PROBE: u32 = 7;
/// The position in [`probe_name`] of the function that calls the programs when the kernel wakes a task. The task is its
/// second argument, in `rsi`.
pub const WAKE_PROBE: u32 = 8;
/// The position in [`probe_name`] of the function that calls the programs at a task switch.
pub const SWITCH_PROBE: u32 = 9;
/// The position in [`probe_name`] of the function that calls the programs when a CPU queues a call for another CPU.
pub const QUEUE_PROBE: u32 = 10;
/// The position in [`probe_name`] of the function that calls the programs when a high-resolution timer expires.
pub const HRTIMER_PROBE: u32 = 14;
/// This number plus a task's id is the [`KernelContext::Function`] of the programs that the kernel
/// calls when it wakes this task.
pub const WAKE_FIRST: u32 = 0x1000_0000;
/// The position of the functions that call several BPF programs at a vector's entry. [`probe_name`] does not name them.
pub const ENTRY_LOOP: u32 = PROBES.len() as u32;

/// The name of the function that calls the BPF programs of a class of tracepoints. `None` for unknown positions.
#[must_use]
pub fn probe_name(position: u32) -> Option<&'static str> {
    PROBES.get(position as usize).copied()
}

/// An interrupt that a CPU sends to other CPUs or to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentInterrupt {
    /// To the CPU in `edi`.
    Reschedule,
    /// To the CPU in `edi`.
    CallFunctionSingle,
    /// To the CPUs of the mask at the address in `rdi`.
    CallFunction,
    /// To the CPU itself.
    IrqWork,
}

/// The plugin's action at an instruction, before the instruction executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The instruction of a marker, see [`simrecord::marker`].
    Marker,
    /// First instruction of the kernel for a system call.
    SyscallEntry {
        /// Is added to the number of the system call: 0, or [`attribution::SYSCALL_32`].
        flags: u32,
    },
    /// First instruction of the handler of the softirq with this number.
    SoftirqEntry(u8),
    /// First instruction of the function that calls the handlers of an IRQ line, whose description is in `rdi`.
    IrqLine,
    /// The instruction that calls a handler of the IRQ line.
    IrqCall {
        /// The length of the instruction.
        bytes: u8,
    },
    /// The instruction that calls a function of a timer, a work item, a tasklet or RCU.
    CallbackCall {
        /// One of [`ContextKind::CALLBACKS`].
        kind: ContextKind,
        /// The register with the function's address, by its position in [`REGISTERS`].
        register: u8,
        /// The length of the instruction.
        bytes: u8,
    },
    /// The instruction that sets bits in a mask of pending softirqs.
    RaiseSoftirqs {
        raised: RaisedSoftirqs,
        /// The offset of the mask in a CPU's area.
        mask: u64,
    },
    /// First instruction of the function that queues the work item in `rdx`.
    QueueWork,
    /// First instruction of the function that sets the flag of the action in `rsi` for its thread, and wakes the thread.
    RequestIrqThread,
    /// First instruction of a function that queues calls for other CPUs. Needs [`KernelSymbols::follow_senders`].
    StartSending,
    /// First instruction of the function that adds the element in `rdi` to the lock-free list with the head in `rdx`.
    /// Needs [`KernelSymbols::follow_senders`].
    AddToQueue,
    /// First instruction of a function that sends an interrupt. Needs [`KernelSymbols::follow_senders`].
    SendInterrupt(SentInterrupt),
    /// The instruction that calls a function which another CPU has queued. The function's argument is in `rdi`.
    /// Needs [`KernelSymbols::follow_senders`].
    CallQueued {
        /// The register with the function's address, by its position in [`REGISTERS`].
        register: u8,
        /// The length of the instruction.
        bytes: u8,
    },
    /// First instruction of the function that executes the `irq_work` in `rdi`. Needs [`KernelSymbols::follow_senders`].
    RunIrqWork,
    /// First instruction of the function that wakes the tasks of the list in `rdi`. Needs [`KernelSymbols::follow_senders`].
    WakeQueuedTasks,
    /// First instruction of a function that submits the bio in `rdi`. Needs [`KernelSymbols::follow_requests`].
    SubmitBio,
    /// First instruction of the function that makes the end of the bio in `rsi` wait for that of the bio in `rdi`.
    /// Needs [`KernelSymbols::follow_requests`].
    ChainBio,
    /// First instruction of the function that ends the bio in `rdi`. Needs [`KernelSymbols::follow_requests`].
    EndBio,
    /// First instruction of a function that completes the block request in `rdi`. Needs [`KernelSymbols::follow_requests`].
    CompleteRequest,
    /// First instruction of the function that completes the block requests of the `io_comp_batch` in `rdi`.
    /// Needs [`KernelSymbols::follow_requests`].
    CompleteRequests,
    /// First instruction of a function that calls BPF programs, by its position in [`probe_name`].
    Probe(u8),
    /// `rdtsc` or `rdtscp`: reads the time-stamp counter.
    ReadClock,
    /// A store to the local APIC, which may set its timer.
    WriteLocalApic,
    Cpuid,
    /// `hlt`: waits for an interrupt.
    Halt,
    Pause,
    /// First instruction of the switch from the task in `rdi` to the task in `rsi`.
    Switch,
    /// First instruction of the function with which the current task exits, until [`Action::TaskDead`].
    TaskExit,
    /// First instruction of the function that ends the current task.
    TaskDead,
    /// First instruction of the idle loop, which a CPU enters when it comes online.
    IdleLoop,
    /// First instruction of the function that the idle task calls once its CPU is offline.
    CpuDead,
    /// First instruction of the scheduler's `__schedule`. Needs [`KernelSymbols::add_services`] or
    /// [`KernelSymbols::follow_reschedules`].
    Schedule,
    /// First instruction of the function that wakes the task in `rdi`, if its state is among the states in `esi`.
    /// Needs [`KernelSymbols::add_services`].
    WakeUp,
    /// First instruction of a function that tells the kind of a page fault. Needs [`KernelSymbols::add_services`].
    Fault(FaultStep),
    /// First instruction of a function that waits. Needs [`KernelSymbols::add_services`].
    Wait {
        /// The argument of [`wait_name`].
        number: u8,
        /// Whether the wait does not count inside a more specific wait.
        is_general: bool,
    },
    /// First instruction of a function that takes the lock in `rdi`.
    TakeLock(LockKind),
    /// First instruction of the slow path of the lock in `rdi`, which another task or CPU holds. The function may also
    /// be a wait: see [`KernelSymbols::wait_at`].
    ContendLock {
        /// Whether the slow path can sleep.
        sleeps: bool,
    },
    /// First instruction of a function that releases the lock in `rdi`, or downgrades it from writing to reading.
    ReleaseLock,
    /// `iret`: to user mode or to the kernel.
    InterruptReturn,
    /// `sysret`, `sysexit`: to user mode.
    SyscallReturn,
}

impl Action {
    /// Whether the action only observes: it changes no context. Only [`KernelSymbols::follow_senders`] and
    /// [`KernelSymbols::follow_requests`] need such actions.
    #[must_use]
    pub fn only_observes(self) -> bool {
        matches!(
            self,
            Action::StartSending
                | Action::AddToQueue
                | Action::SendInterrupt(_)
                | Action::CallQueued { .. }
                | Action::RunIrqWork
                | Action::WakeQueuedTasks
                | Action::SubmitBio
                | Action::ChainBio
                | Action::EndBio
                | Action::CompleteRequest
                | Action::CompleteRequests
        )
    }

    /// How many arguments of the function the plugin reads from registers at its first instruction.
    fn arguments(self) -> u8 {
        match self {
            Action::QueueWork | Action::AddToQueue => 3,
            // `WakeUp` reads the task and the states, `Switch` the two tasks, `RequestIrqThread` the second argument.
            Action::WakeUp | Action::Switch | Action::RequestIrqThread | Action::ChainBio => 2,
            Action::SendInterrupt(SentInterrupt::IrqWork) => 0,
            Action::IrqLine
            | Action::SendInterrupt(_)
            | Action::RunIrqWork
            | Action::WakeQueuedTasks
            | Action::SubmitBio
            | Action::EndBio
            | Action::CompleteRequest
            | Action::CompleteRequests
            | Action::Fault(FaultStep::Handle | FaultStep::FilePage)
            | Action::TakeLock(_)
            | Action::ContendLock { .. }
            | Action::ReleaseLock => 1,
            _ => 0,
        }
    }
}

/// The bits that an instruction sets in a mask of pending softirqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaisedSoftirqs {
    /// The bits in a register, by the register's position in [`REGISTERS`].
    InRegister(u8),
    These(u16),
}

/// A symbol that the plugin uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The symbol's name in the kernel's source.
    pub name: &'static str,
    /// How many arguments of the function the plugin reads at its start. This decides which copies of the function can
    /// be used: see [`attribution::kernel_function`]. `None`: the symbol is no function.
    pub arguments: Option<u8>,
}

/// The symbols that the plugin uses. `sim` passes further symbols only to show where functions end. A compiler may have
/// made copies of a function; `sim` passes a copy under the function's name in the source.
pub fn wanted_symbols() -> impl Iterator<Item = Wanted> {
    let points = POINTS.iter().map(|point| point.0);
    let callback_callers = CALLBACK_CALLERS.map(|caller| caller.0);
    let callers = SOFTIRQ_CALLERS.into_iter().chain(THUNKS).chain(PROBES).chain(ENTRY_LOOPS);
    let callers = callers.chain(callback_callers).chain(SOFTIRQ_RAISERS);
    let callers = callers.chain(DELAY_POINTS.map(|point| point.0));
    let callers = callers.chain(SENDER_POINTS.map(|point| point.0)).chain(QUEUED_CALL_CALLERS);
    let callers = callers.chain(REQUEST_POINTS.map(|point| point.0));
    let functions = points.chain(gates().map(|gate| gate.0)).chain(callers);
    let functions = functions.chain(services::wanted_functions()).chain(needs::UNFOLLOWED);
    let function = |name| Wanted { name, arguments: Some(arguments_of(name)) };
    let object = |name| Wanted { name, arguments: None };
    functions.map(function).chain(OTHERS.into_iter().chain([services::SYSCALL_TABLE]).map(object))
}

/// How many arguments of a function the plugin reads at its start.
fn arguments_of(name: &str) -> u8 {
    if probe_name(WAKE_PROBE) == Some(name) {
        return 2;
    }
    let points = POINTS.iter().chain(&DELAY_POINTS);
    let mut points = points.chain(&SENDER_POINTS).chain(&REQUEST_POINTS);
    let point = points.find(|point| point.0 == name).map(|point| point.1);
    let actions = [point, services::action_of(name), services::lock_action_of(name)];
    actions.into_iter().flatten().map(Action::arguments).max().unwrap_or(0)
}

/// The addresses of a kernel at which the plugin acts, and the addresses of the kernel's data that it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSymbols {
    /// Actions by address, ascending. No two have the same address.
    points: Vec<(u64, Action)>,
    /// Further actions, for services only. [`KernelSymbols::add_services`] moves them to `points`.
    service_points: Vec<(u64, Action)>,
    /// Further actions, for locks only. [`KernelSymbols::add_services`] moves them to `points`.
    lock_points: Vec<(u64, Action)>,
    /// The waits of functions that are also slow paths of locks, by address, ascending.
    waits: Vec<(u64, Action)>,
    /// The contexts of entry points of interrupts and exceptions, by address, ascending.
    gates: Vec<(u64, KernelContext)>,
    /// The functions that call the handlers of softirqs: start, and end (exclusive).
    softirq_callers: Vec<(u64, u64)>,
    /// The functions that call the handlers of IRQ lines: start, and end (exclusive).
    irq_callers: Vec<(u64, u64)>,
    /// The functions that call functions of timers, work items, tasklets and RCU: start, end (exclusive), and kind.
    callback_callers: Vec<(u64, u64, ContextKind)>,
    /// Whether the calls of `callback_callers` are followed ([`KernelSymbols::follow_callbacks`]).
    follows_callbacks: bool,
    /// Further actions, for delays only. [`KernelSymbols::follow_delays`] moves them to `points`.
    delay_points: Vec<(u64, Action)>,
    /// Further actions, for senders only. [`KernelSymbols::follow_senders`] moves them to `points`.
    sender_points: Vec<(u64, Action)>,
    /// Further actions, for block requests only. [`KernelSymbols::follow_requests`] moves them to `points`.
    request_points: Vec<(u64, Action)>,
    /// The functions that call queued functions: start, and end (exclusive).
    queued_call_callers: Vec<(u64, u64)>,
    /// Whether the calls of `queued_call_callers` are followed ([`KernelSymbols::follow_senders`]).
    follows_senders: bool,
    /// The functions that raise softirqs: start, and end (exclusive).
    softirq_raisers: Vec<(u64, u64)>,
    /// Whether the raises of `softirq_raisers` are followed ([`KernelSymbols::follow_delays`]).
    follows_raises: bool,
    /// Thunks that call through a pointer: address and name.
    thunks: Vec<(u64, &'static str)>,
    /// Where the kernel's code lies.
    pub code: Option<KernelCode>,
    /// The addresses of the kernel's own counts.
    pub kernel_counts: Option<KernelCountSymbols>,
    /// The offset of the pointer to the current task, in each CPU's per-CPU area.
    pub current_task: Option<u64>,
    /// The offset of the count of nested interrupts, in each CPU's per-CPU area: kernels before 6.2 and from 6.15 on.
    pub preempt_count: Option<u64>,
    /// The offset of `pcpu_hot` in each CPU's per-CPU area, which has that count in the kernels in between.
    pub hot_area: Option<u64>,
    /// The offset of the head of the queue of function calls, in each CPU's per-CPU area.
    pub call_queue: Option<u64>,
    /// The address of the table of the functions of system calls.
    pub syscall_table: Option<u64>,
    /// The addresses of the kernel's clocks.
    pub time: TimeSymbols,
}

impl KernelSymbols {
    /// Parses lines `HEXADDRESS NAME`. Symbols that [`wanted_symbols`] does not list only show where functions end.
    ///
    /// Fails at the first line of another form, and if the list has no known function.
    pub fn parse(text: &str) -> Result<KernelSymbols, String> {
        let mut symbols = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let mut columns = line.split_ascii_whitespace();
            let (Some(address), Some(name)) = (columns.next(), columns.next()) else {
                return Err(format!("line {}: not an address and a name", number + 1));
            };
            let Ok(address) = u64::from_str_radix(address, 16) else {
                return Err(format!("line {}: {address:.20} is not hexadecimal", number + 1));
            };
            symbols.push((address, name));
        }
        symbols.sort_unstable();
        let kernel = KernelSymbols::from_sorted(&symbols);
        if !kernel.are_known() {
            return Err("the list has no known kernel function".to_owned());
        }
        Ok(kernel)
    }

    /// Whether there are symbols, so that contexts can be followed.
    #[must_use]
    pub fn are_known(&self) -> bool {
        !self.points.is_empty() || !self.gates.is_empty()
    }

    /// Makes the tables from symbols that are sorted by address.
    fn from_sorted(symbols: &[(u64, &str)]) -> KernelSymbols {
        let mut kernel = KernelSymbols::default();
        for (address, name) in symbols {
            let ends = || {
                let after = symbols.partition_point(|symbol| symbol.0 <= *address);
                let bound = address.saturating_add(FUNCTION_BYTES_MAX);
                symbols.get(after).map_or(bound, |next| next.0.min(bound))
            };
            if let Some((_, action)) = POINTS.iter().find(|point| point.0 == *name) {
                kernel.points.push((*address, *action));
            }
            if let Some(position) = PROBES.iter().position(|probe| probe == name) {
                kernel.points.push((*address, Action::Probe(position as u8)));
            }
            if ENTRY_LOOPS.contains(name) {
                kernel.points.push((*address, Action::Probe(ENTRY_LOOP as u8)));
            }
            if let Some(action) = services::action_of(name) {
                kernel.service_points.push((*address, action));
            }
            if let Some(action) = services::lock_action_of(name) {
                kernel.lock_points.push((*address, action));
            }
            if let Some((_, action)) = DELAY_POINTS.iter().find(|point| point.0 == *name) {
                kernel.delay_points.push((*address, *action));
            }
            if let Some((_, action)) = SENDER_POINTS.iter().find(|point| point.0 == *name) {
                kernel.sender_points.push((*address, *action));
            }
            if let Some((_, action)) = REQUEST_POINTS.iter().find(|point| point.0 == *name) {
                kernel.request_points.push((*address, *action));
            }
            if QUEUED_CALL_CALLERS.contains(name) {
                kernel.queued_call_callers.push((*address, ends()));
            }
            if SOFTIRQ_RAISERS.contains(name) {
                kernel.softirq_raisers.push((*address, ends()));
            }
            if SOFTIRQ_CALLERS.contains(name) {
                kernel.softirq_callers.push((*address, ends()));
            }
            if IRQ_CALLERS.contains(name) {
                kernel.irq_callers.push((*address, ends()));
            }
            if let Some((_, kind)) = CALLBACK_CALLERS.iter().find(|caller| caller.0 == *name) {
                kernel.callback_callers.push((*address, ends(), *kind));
            }
            if let Some(thunk) = THUNKS.into_iter().find(|thunk| thunk == name) {
                kernel.thunks.push((*address, thunk));
            }
            if let Some((_, context)) = gates().find(|gate| gate.0 == *name) {
                kernel.gates.push((*address, context));
            }
        }
        let find = |wanted_name| {
            symbols.iter().find(|symbol| symbol.1 == wanted_name).map(|symbol| symbol.0)
        };
        let range = |start, end| Some(find(start)?..find(end)?);
        kernel.code = range("_text", "_etext")
            .zip(range("__entry_text_start", "__entry_text_end"))
            .map(|(all, entry)| KernelCode { all, entry });
        kernel.current_task = find("current_task").or(find("pcpu_hot"));
        kernel.preempt_count = find("__preempt_count");
        kernel.hot_area = find("pcpu_hot");
        kernel.call_queue = find(CALL_QUEUE);
        kernel.syscall_table = find(services::SYSCALL_TABLE);
        kernel.time = TimeSymbols {
            fast_clock: find(FAST_CLOCK),
            jiffies: find(JIFFIES),
            jiffies_source: find(JIFFIES_SOURCE),
        };
        kernel.kernel_counts = find("__per_cpu_offset").map(|areas| KernelCountSymbols {
            areas,
            irq_stat: find("irq_stat"),
            kstat: find("kstat"),
        });
        kernel.add_stubs(find("irq_entries_start"), find("spurious_entries_start"));
        kernel.points.dedup_by_key(|point| point.0);
        kernel.gates.sort_unstable();
        kernel.gates.dedup_by_key(|gate| gate.0);
        kernel
    }

    /// The wait at `address`, if the function there is also the slow path of a lock.
    pub fn wait_at(&self, address: u64) -> Option<Action> {
        let index = self.waits.binary_search_by_key(&address, |wait| wait.0).ok()?;
        Some(self.waits[index].1)
    }

    /// Adds the actions for services, and for locks if `with_locks`. A function can be both a lock's slow path and a
    /// wait: then its action is that of the lock, and [`KernelSymbols::wait_at`] has the wait.
    pub fn add_services(&mut self, with_locks: bool) {
        if with_locks {
            let is_lock = |address: u64| self.lock_points.iter().any(|point| point.0 == address);
            let waits = self.service_points.iter().filter(|point| is_lock(point.0));
            self.waits = waits.copied().collect();
            self.waits.sort_by_key(|wait| wait.0);
            self.points.append(&mut self.lock_points);
        }
        self.points.append(&mut self.service_points);
        // A stable sort, so that of several actions at an address the first added is kept.
        self.points.sort_by_key(|point| point.0);
        self.points.dedup_by_key(|point| point.0);
    }

    /// Adds the entry points of vectors without symbols of their own. From `irq_entries` on there is a stub
    /// for each vector of device interrupts; from `spurious_entries` on there is a stub for each system
    /// vector. All stubs are equally long.
    fn add_stubs(&mut self, irq_entries: Option<u64>, spurious_entries: Option<u64>) {
        let (Some(first), Some(spurious)) = (irq_entries, spurious_entries) else { return };
        let count = FIRST_SYSTEM_VECTOR - FIRST_EXTERNAL_VECTOR;
        let length = spurious.saturating_sub(first) / count;
        // Another length means that the stubs are not adjacent.
        if length == 0 || length > 32 {
            return;
        }
        let device = (0..count).map(|stub| (first + stub * length, FIRST_EXTERNAL_VECTOR + stub));
        let system = (0..VECTORS - FIRST_SYSTEM_VECTOR)
            .map(|stub| (spurious + stub * length, FIRST_SYSTEM_VECTOR + stub));
        let gates = device.chain(system);
        let gates =
            gates.map(|(address, vector)| (address, KernelContext::Interrupt(vector as u8)));
        self.gates.extend(gates);
    }

    /// The action at the instruction at `address`.
    pub fn action_at(&self, address: u64) -> Option<Action> {
        let index = self.points.binary_search_by_key(&address, |point| point.0).ok()?;
        Some(self.points[index].1)
    }

    /// Whether the instruction at `address` calls the handler of an IRQ line.
    pub fn calls_irq_handler(&self, address: u64, decoded: &Decoded) -> bool {
        is_in_ranges(&self.irq_callers, address)
            && (decoded.calls_register() || self.called_thunk(decoded).is_some())
    }

    /// The name of the thunk that the instruction calls.
    fn called_thunk(&self, decoded: &Decoded) -> Option<&'static str> {
        let called = decoded.called_function()?;
        let thunks = self.thunks.iter().filter(|(address, _)| *address == called.0);
        // The array of thunks has the address of its first thunk.
        thunks.map(|(_, name)| *name).find(|name| !name.ends_with("_array"))
    }

    /// Follows the calls of functions of timers, work items, tasklets and RCU.
    pub fn follow_callbacks(&mut self) {
        self.follows_callbacks = true;
    }

    /// Follows the events that begin and end delays: raises of softirqs, queueing and calls of work items, requests for
    /// threads of IRQ lines, and calls of timers.
    pub fn follow_delays(&mut self) {
        self.follow_callbacks();
        self.follows_raises = true;
        self.points.append(&mut self.delay_points);
        self.points.sort_by_key(|point| point.0);
        self.points.dedup_by_key(|point| point.0);
    }

    /// Follows calls of functions on other CPUs, from their queueing to their run, and the interrupts that CPUs send.
    pub fn follow_senders(&mut self) {
        self.follows_senders = true;
        self.points.append(&mut self.sender_points);
        self.points.sort_by_key(|point| point.0);
        self.points.dedup_by_key(|point| point.0);
    }

    /// Follows block requests from the submission of their bios to their completion.
    pub fn follow_requests(&mut self) {
        self.points.append(&mut self.request_points);
        self.points.sort_by_key(|point| point.0);
        self.points.dedup_by_key(|point| point.0);
    }

    /// Follows calls of the scheduler, which show where an interrupt's handler ends whose return path gives way to a task.
    pub fn follow_reschedules(&mut self) {
        let schedules = self.service_points.iter().filter(|point| point.1 == Action::Schedule);
        self.points.extend(schedules);
        self.points.sort_by_key(|point| point.0);
        self.points.dedup_by_key(|point| point.0);
    }

    /// Returns [`Action::CallQueued`] for an indirect call in a function that calls queued functions, and `None` for any
    /// other instruction. `bytes`: the length of the instruction at `address`. Needs [`KernelSymbols::follow_senders`].
    pub fn queued_call_action(&self, address: u64, decoded: &Decoded, bytes: u8) -> Option<Action> {
        if !self.follows_senders || !self.is_queued_call_caller(address) {
            return None;
        }
        let register = self.called_register(decoded)?;
        Some(Action::CallQueued { register, bytes })
    }

    /// Whether `address` is in a function that calls queued functions.
    pub fn is_queued_call_caller(&self, address: u64) -> bool {
        is_in_ranges(&self.queued_call_callers, address)
    }

    /// The position in [`REGISTERS`] of the register with the address of the called function. `None` for other calls.
    fn called_register(&self, decoded: &Decoded) -> Option<u8> {
        let register = match decoded.called_register() {
            Some(number) => ENCODED_REGISTERS.get(usize::from(number)).copied(),
            None => self.called_thunk(decoded)?.rsplit('_').next(),
        }?;
        REGISTERS.iter().position(|name| *name == register).map(|position| position as u8)
    }

    /// Returns [`Action::RaiseSoftirqs`] for an `or` to the per-CPU area in a function that raises softirqs, and `None` for
    /// any other instruction. Needs [`KernelSymbols::follow_delays`].
    pub fn softirq_raise_action(&self, address: u64, decoded: &Decoded) -> Option<Action> {
        if !self.follows_raises || !is_in_ranges(&self.softirq_raisers, address) {
            return None;
        }
        let (bits, mask) = decoded.or_to_gs_segment()?;
        let raised = match bits {
            OrOperand::Constant(bits) => RaisedSoftirqs::These(bits as u16),
            OrOperand::Register(number) => {
                let register = ENCODED_REGISTERS.get(usize::from(number))?;
                let position = REGISTERS.iter().position(|name| name == register)?;
                RaisedSoftirqs::InRegister(position as u8)
            }
        };
        Some(Action::RaiseSoftirqs { raised, mask })
    }

    /// Returns the kind of the callback that an indirect call at `address` calls, and the position in [`REGISTERS`] of the
    /// register with the callback's address. `None` for any other instruction. Needs
    /// [`KernelSymbols::follow_callbacks`].
    pub fn callback_call(&self, address: u64, decoded: &Decoded) -> Option<(ContextKind, u8)> {
        if !self.follows_callbacks {
            return None;
        }
        let holds_address =
            |(start, end, _): &&(u64, u64, ContextKind)| (*start..*end).contains(&address);
        let (_, _, kind) = self.callback_callers.iter().find(holds_address)?;
        Some((*kind, self.called_register(decoded)?))
    }

    /// Whether `address` is in a function that calls the handlers of softirqs.
    pub fn calls_softirqs(&self, address: u64) -> bool {
        is_in_ranges(&self.softirq_callers, address)
    }

    /// The context that starts when an interrupt or exception enters its handler at `address`.
    pub fn gate(&self, address: u64) -> Option<KernelContext> {
        let index = self.gates.binary_search_by_key(&address, |gate| gate.0).ok()?;
        Some(self.gates[index].1)
    }
}

fn is_in_ranges(ranges: &[(u64, u64)], address: u64) -> bool {
    ranges.iter().any(|&(start, end)| start <= address && address < end)
}

/// The addresses of the kernel's clocks. `None`: the kernel's symbols lack it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSymbols {
    /// The monotonic clock for readers that take no lock: two copies of its parameters.
    pub fast_clock: Option<u64>,
    /// The count of jiffies.
    pub jiffies: Option<u64>,
    /// The clock source that counts jiffies.
    pub jiffies_source: Option<u64>,
}

/// The addresses of the kernel's own counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCountSymbols {
    /// The address of the array `__per_cpu_offset`, with the address of each CPU's per-CPU area.
    pub areas: u64,
    /// The offset of the counts of system vectors in a per-CPU area.
    pub irq_stat: Option<u64>,
    /// The offset of the counts of softirqs in a per-CPU area.
    pub kstat: Option<u64>,
}

/// The addresses of the kernel's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCode {
    /// All code of the image.
    pub all: Range<u64>,
    /// The code with which a CPU enters the kernel and leaves it. Isolated page tables map it in user mode, too.
    pub entry: Range<u64>,
}

#[cfg(test)]
mod tests {
    use machine::VirtualAddress;
    use machine::decode::Decoder;

    use super::*;

    const KERNEL: &str = "\
ffffffff81003270 __switch_to_asm
ffffffff8109c4c0 handle_softirqs
ffffffff8109c900 irq_exit_rcu
ffffffff810f1000 __handle_irq_event_percpu
ffffffff810f1200 handle_irq_event_percpu_end
ffffffff817b0e00 net_rx_action
ffffffff81c00080 entry_SYSCALL_64
ffffffff81c00290 irq_entries_start
ffffffff81c008f0 spurious_entries_start
ffffffff81c00be0 asm_exc_page_fault
ffffffff81c00e90 asm_sysvec_spurious_apic_interrupt
ffffffff81c00eb0 asm_sysvec_apic_timer_interrupt
ffffffff81e00020 __x86_indirect_thunk_rax
000000000001fb80 current_task
";

    #[test]
    fn points_and_gates_are_found_by_address() {
        let kernel = KernelSymbols::parse(KERNEL).unwrap();
        let action = |address| kernel.action_at(address);
        assert_eq!(action(0xffff_ffff_8100_3270), Some(Action::Switch));
        assert_eq!(action(0xffff_ffff_817b_0e00), Some(Action::SoftirqEntry(3)));
        assert_eq!(action(0xffff_ffff_81c0_0080), Some(Action::SyscallEntry { flags: 0 }));
        assert_eq!(action(0xffff_ffff_8100_3271), None);
        let gate = |address| kernel.gate(address);
        assert_eq!(gate(0xffff_ffff_81c0_0be0), Some(KernelContext::Exception(14)));
        assert_eq!(gate(0xffff_ffff_81c0_0eb0), Some(KernelContext::Interrupt(0xec)));
        assert_eq!(gate(0xffff_ffff_81c0_0e90), Some(KernelContext::Interrupt(0xff)));
        assert_eq!(kernel.current_task, Some(0x1_fb80));
        assert_eq!(kernel.code, None);
    }

    #[test]
    fn the_kernels_code_has_an_entry() {
        let bounds = "ffffffff81000000 _text\nffffffff81c00010 __entry_text_start\n\
                      ffffffff81c01ad7 __entry_text_end\nffffffff81e01cf2 _etext\n";
        let kernel = KernelSymbols::parse(&format!("{KERNEL}{bounds}")).unwrap();
        let all = 0xffff_ffff_8100_0000..0xffff_ffff_81e0_1cf2;
        let entry = 0xffff_ffff_81c0_0010..0xffff_ffff_81c0_1ad7;
        assert_eq!(kernel.code, Some(KernelCode { all, entry }));
    }

    #[test]
    fn stubs_of_interrupts_are_told_apart_by_their_distance() {
        let kernel = KernelSymbols::parse(KERNEL).unwrap();
        let first = 0xffff_ffff_81c0_0290;
        assert_eq!(kernel.gate(first), Some(KernelContext::Interrupt(0x20)));
        assert_eq!(kernel.gate(first + 8 * 2), Some(KernelContext::Interrupt(0x22)));
        assert_eq!(kernel.gate(first + 9), None);
        let spurious = 0xffff_ffff_81c0_08f0;
        assert_eq!(kernel.gate(spurious), Some(KernelContext::Interrupt(0xec)));
        assert_eq!(kernel.gate(spurious + 8 * 19), Some(KernelContext::Interrupt(0xff)));
    }

    #[test]
    fn callers_of_softirqs_and_of_irq_handlers_are_told_by_their_addresses() {
        let kernel = KernelSymbols::parse(KERNEL).unwrap();
        assert!(kernel.calls_softirqs(0xffff_ffff_8109_c6aa));
        assert!(!kernel.calls_softirqs(0xffff_ffff_8109_c900));
        let inside = 0xffff_ffff_810f_1020;
        let calls = |address, bytes: &[u8]| {
            let decoded = Decoder::default().decode(bytes, VirtualAddress(address));
            kernel.calls_irq_handler(address, &decoded)
        };
        assert!(calls(inside, &[0xff, 0xd0]));
        assert!(calls(inside, &[0x41, 0xff, 0xd3]));
        assert!(!calls(inside, &[0xff, 0xe0])); // jmp
        assert!(!calls(0xffff_ffff_810f_1200, &[0xff, 0xd0]));
        let to = |target: u64| {
            let distance = target.wrapping_sub(inside + 5) as u32;
            [&[0xe8][..], &distance.to_le_bytes()].concat()
        };
        assert!(calls(inside, &to(0xffff_ffff_81e0_0020)));
        assert!(!calls(inside, &to(0xffff_ffff_8100_3270)));
    }

    #[test]
    fn callbacks_are_told_by_their_callers_and_the_called_register() {
        let list =
            format!("{KERNEL}ffffffff81144150 call_timer_fn\nffffffff81144280 __run_timers\n");
        let mut kernel = KernelSymbols::parse(&list).unwrap();
        let inside = 0xffff_ffff_8114_4180;
        let called = |kernel: &KernelSymbols, address, bytes: &[u8]| {
            let decoded = Decoder::default().decode(bytes, VirtualAddress(address));
            kernel.callback_call(address, &decoded)
        };
        let call_r11 = [0x41, 0xff, 0xd3];
        assert_eq!(called(&kernel, inside, &call_r11), None, "not requested");
        kernel.follow_callbacks();
        let position =
            |name: &str| REGISTERS.iter().position(|known| *known == name).unwrap() as u8;
        let timer = |name| Some((ContextKind::Timer, position(name)));
        assert_eq!(called(&kernel, inside, &call_r11), timer("r11"));
        assert_eq!(called(&kernel, inside, &[0xff, 0xd1]), timer("rcx"));
        let distance = 0xffff_ffff_81e0_0020_u64.wrapping_sub(inside + 5) as u32;
        let thunk = [&[0xe8][..], &distance.to_le_bytes()].concat();
        assert_eq!(called(&kernel, inside, &thunk), timer("rax"));
        assert_eq!(called(&kernel, 0xffff_ffff_8100_3280, &call_r11), None, "another function");
    }

    /// The class of a tracepoint of the live bench, as the kernel's source has it. A tracepoint that is not here is
    /// the only one of its class.
    fn class_of(tracepoint: &str) -> &str {
        match tracepoint {
            "softirq_entry" | "softirq_exit" | "softirq_raise" => "softirq",
            "page_fault_user" | "page_fault_kernel" => "x86_exceptions",
            "sched_waking" | "sched_wakeup_new" => "sched_wakeup_template",
            "csd_function_entry" | "csd_function_exit" => "csd_function",
            "hrtimer_expire_exit" => "hrtimer_class",
            "timer_expire_exit" => "timer_class",
            "tasklet_entry" | "tasklet_exit" => "tasklet",
            "block_rq_complete" => "block_rq_completion",
            other => other,
        }
    }

    /// The live bench's programs at tracepoints that are not in [`PROBES`] would count as self time of the guest's kernel.
    #[test]
    fn the_plugin_follows_the_programs_at_each_tracepoint_of_the_live_bench() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../live/bpf");
        let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let mut sources = vec![text("handlers.bpf.c"), text("noise.bpf.c")];
        let headers: Vec<&str> = sources
            .iter()
            .flat_map(|source| source.lines())
            .filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'))
            .filter(|name| directory.join(name).is_file())
            .collect();
        let headers: Vec<String> = headers.into_iter().map(text).collect();
        sources.extend(headers);
        let attaches = ["TRACEPOINT(", "TRACEPOINTS(", "CALLBACK(", "AT_ENTRY(", "SEC(\"?raw_tp/"];
        let mut tracepoints = std::collections::BTreeSet::new();
        for line in sources.iter().flat_map(|source| source.lines()) {
            if !line.starts_with("#define")
                && attaches.iter().any(|macro_name| line.contains(macro_name))
            {
                let texts = line.split('"').skip(1).step_by(2);
                tracepoints.extend(texts.map(|text| text.trim_start_matches("?raw_tp/")));
            }
        }
        // The probes of the calibration, before the window opens.
        tracepoints.retain(|name| !["sys_enter", "sys_exit"].contains(name));
        assert!(tracepoints.contains("timer_expire_entry") && tracepoints.len() > 20);
        for tracepoint in tracepoints {
            let class = match tracepoint {
                "_entry" | "_exit" => "x86_irq_vector",
                tracepoint => class_of(tracepoint),
            };
            let function = format!("__bpf_trace_{class}");
            assert!(PROBES.contains(&&function[..]), "{tracepoint}: {function} is not followed");
        }
    }

    #[test]
    fn raises_set_bits_of_a_register_or_constant_bits() {
        let list = format!(
            "{KERNEL}ffffffff810ac5a0 raise_hrtimer_softirq\nffffffff810ac630 irq_exit_rcu\n"
        );
        let mut kernel = KernelSymbols::parse(&list).unwrap();
        let inside = 0xffff_ffff_810a_c5a7;
        let raised = |kernel: &KernelSymbols, address, bytes: &[u8]| {
            let decoded = Decoder::default().decode(bytes, VirtualAddress(address));
            match kernel.softirq_raise_action(address, &decoded)? {
                Action::RaiseSoftirqs { raised, mask } => Some((raised, mask)),
                other => panic!("{other:?}"),
            }
        };
        // orq $0x100,%gs:0x20210 relative to rip, as in Debian's kernel with PREEMPT_RT.
        let wide = [0x65, 0x48, 0x81, 0x0d, 0x5d, 0x3c, 0xf7, 0x7e, 0, 1, 0, 0];
        assert_eq!(raised(&kernel, inside, &wide), None, "not requested");
        kernel.follow_delays();
        assert_eq!(raised(&kernel, inside, &wide), Some((RaisedSoftirqs::These(0x100), 0x2_0210)));
        // orq $0x2,%gs:0x20210
        let short = [0x65, 0x48, 0x83, 0x0c, 0x25, 0x10, 0x02, 0x02, 0, 2];
        assert_eq!(raised(&kernel, inside, &short), Some((RaisedSoftirqs::These(2), 0x2_0210)));
        // or %ax,%gs:0x32380
        let register = [0x65, 0x66, 0x09, 0x04, 0x25, 0x80, 0x23, 0x03, 0];
        let rax = REGISTERS.iter().position(|known| *known == "rax").unwrap() as u8;
        let in_rax = (RaisedSoftirqs::InRegister(rax), 0x3_2380);
        assert_eq!(raised(&kernel, inside, &register), Some(in_rax));
        // and $0x2,%gs:0x20210
        let and = [0x65, 0x48, 0x83, 0x24, 0x25, 0x10, 0x02, 0x02, 0, 2];
        assert_eq!(raised(&kernel, inside, &and), None);
        assert_eq!(raised(&kernel, 0xffff_ffff_8100_3280, &wide), None, "another function");
    }

    #[test]
    fn the_vectors_probe_is_where_the_tracker_expects_it() {
        assert_eq!(probe_name(3), Some("__bpf_trace_x86_irq_vector"));
        assert_eq!(probe_name(GATE_PROBE), Some("__bpf_prog_test_run_raw_tp"));
        assert_eq!(probe_name(QUEUE_PROBE), Some("__bpf_trace_csd_queue_cpu"));
        assert_eq!((probe_name(ENTRY_LOOP), probe_name(99)), (None, None));
    }

    #[test]
    fn all_that_is_used_is_wanted_once() {
        let mut names: Vec<&str> = wanted_symbols().map(|wanted| wanted.name).collect();
        let ends = |line: &&str| line.ends_with("irq_exit_rcu") || line.ends_with("_end");
        for line in KERNEL.lines().filter(|line| !ends(line)) {
            assert!(names.contains(&line.split_once(' ').unwrap().1), "{line}");
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn arguments_are_those_that_the_action_reads() {
        let arguments =
            |name| wanted_symbols().find(|wanted| wanted.name == name).unwrap().arguments;
        assert_eq!(arguments("handle_softirqs"), Some(0));
        assert_eq!(arguments("try_to_wake_up"), Some(2));
        assert_eq!(arguments("do_fault"), Some(1));
        // Tasks wait in this function, and it is also a lock's slow path.
        assert_eq!(arguments("__mutex_lock"), Some(1));
        assert_eq!(arguments("sys_call_table"), None);
    }

    #[test]
    fn wrong_symbol_lists_are_refused_with_the_reason() {
        let error = |text| KernelSymbols::parse(text).unwrap_err();
        assert!(error("ffffffff81003270\n").contains("line 1"));
        assert!(error("zz __switch_to_asm\n").contains("not hexadecimal"));
        assert!(error("ffffffff81000000 _text\n").contains("no known kernel function"));
    }
}
