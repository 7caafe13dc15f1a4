//! The context stack of a simulated CPU: which context each instruction belongs to. At each event
//! of the guest's kernel, the plugin's tracker (`plugin/src/guest/tracker.rs`) calls a method.
//! Spans, rows of counts and requests come out.
//!
//! At the bottom of the stack is the task (user mode, kernel thread, idle). Above it are the system call, exceptions,
//! interrupts and softirqs that the task is in. The stack belongs to the *task*, like the task's kernel stack. A task
//! that is switched out in the middle of a page fault is still in that fault when any CPU switches it in again.
//!
//! ```text
//! user 7       |====|                                  |====|     self = the "="
//! syscall 0         |===|                          |===|
//! softirq NET_RX                                                  inclusive = from entry to exit,
//! interrupt 0xec        |==|    |=|                               without other tasks
//! idle                     |====|  (7 waits; 0xec wakes it)
//! ```
//!
//! A value of the processor identifies the frame that an event closes. For an interrupt or exception, this is the stack
//! pointer at the start of the handler, from which the `iret` returns. For a followed function, such as a softirq's
//! handler, it is the return address with the stack pointer.
//!
//! Invariant: each count of the CPU is charged to exactly one context. Every method that changes the stack
//! therefore calls `advance` first.

use crate::fault::FaultKind;
use crate::kernel_context::{KernelContext, SYSCALL_32};
use crate::ledger::{Counts, Ledger, add};
use crate::profile::{Mode, Profile};
use crate::services::{BlockedSpan, Completed, OffCpu, RequestPart};
use crate::stack::DEPTH_MAX;

/// Size of the error code that the processor pushes after the return address for some exceptions.
const ERROR_CODE_BYTES: u64 = 8;
/// Size of the range of stack pointers at which an `iret` can match its handler: see [`KernelStack::return_to_kernel`].
const RETURN_WINDOW: u64 = ERROR_CODE_BYTES + 6 * 8;
/// The vector of a page fault.
const PAGE_FAULT: u8 = 14;
/// The numbers of the system calls that end their task: `exit` and `exit_group`, of 64-bit and of 32-bit programs.
const EXIT_CALLS: [u32; 4] = [60, 231, SYSCALL_32 | 1, SYSCALL_32 | 252];
/// Maximum number of nested waiting functions of a task that are followed.
const WAITS_MAX: usize = 8;

/// The kind of event that opened a frame. It determines the event that closes the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// The task at the bottom of the stack; another task replaces it.
    Bottom,
    /// `syscall`: closed by the return to user mode.
    Syscall,
    /// Interrupt or exception: closed by an `iret` at this stack pointer.
    Hardware { stack_pointer: u64 },
    /// A section of the context below: closed by [`KernelStack::leave_section`].
    Section,
    /// A function: closed when the CPU is at its return address and has popped this address from the stack.
    Call { return_to: u64, stack_pointer: u64 },
}

/// A context that a task is in, with the counts that are charged to it so far.
#[derive(Clone, Copy, Debug)]
struct Frame<const N: usize> {
    context: KernelContext,
    entry: Entry,
    self_counts: Counts<N>,
    /// Counts of the contexts that were nested in this one and have ended.
    nested: Counts<N>,
    /// Inclusive counts that the ledger has of recursive calls: of spans of the same function nested in this one.
    recursive: Counts<N>,
    /// The first count of the CPU when the span started.
    start: u64,
    /// The region of interest at the start of the span, or 0 if no region was open.
    region: u32,
    /// The most specific known kind of a page fault.
    fault: FaultKind,
    /// Whether a page fault has found its page, and reads the next pages ahead.
    reads_ahead: bool,
    /// Whether the kernel's memory management has started to handle a page fault. It may have to start again.
    is_handled: bool,
    /// Total time that the task had been off the CPUs when the span started.
    off: OffCpu,
    /// Whether a part of the span ran on a CPU after it went offline in the region. That part is not counted.
    is_partial: bool,
    /// Whether an interrupt's return path has called the scheduler. The handler's work is over then.
    gives_way: bool,
}

impl<const N: usize> Frame<N> {
    fn new(context: KernelContext, entry: Entry) -> Self {
        let (fault, off) = (FaultKind::default(), OffCpu::default());
        let (self_counts, nested, recursive) = ([0; N], [0; N], [0; N]);
        Frame {
            context,
            entry,
            self_counts,
            nested,
            recursive,
            start: 0,
            region: 0,
            fault,
            reads_ahead: false,
            is_handled: false,
            off,
            is_partial: false,
            gives_way: false,
        }
    }

    /// The service that is charged with the frame's counts.
    fn service(&self) -> KernelContext {
        match self.context {
            KernelContext::Exception(PAGE_FAULT) => KernelContext::Fault(self.fault),
            KernelContext::KernelFault(_) => KernelContext::KernelFault(self.fault),
            other => other,
        }
    }

    /// Whether the frame counts if its task ends inside it: functions, sections, and the calls `exit` and `exit_group`, which
    /// never return. Other frames are dropped, see [`KernelStack::end_task`].
    fn is_complete_at_task_end(&self) -> bool {
        match self.entry {
            Entry::Call { .. } | Entry::Section => true,
            Entry::Syscall => {
                matches!(self.context, KernelContext::Syscall(number) if EXIT_CALLS.contains(&number))
            }
            Entry::Bottom | Entry::Hardware { .. } => false,
        }
    }

    fn is_fault(&self) -> bool {
        matches!(self.context, KernelContext::Exception(PAGE_FAULT) | KernelContext::KernelFault(_))
    }

    /// The counts of the frame and of the contexts that were nested in it and have ended.
    fn inclusive(&self) -> Counts<N> {
        let mut sum = self.self_counts;
        add(&mut sum, &self.nested);
        sum
    }
}

/// The time that a task was off the CPUs, and the functions in which it waits.
#[derive(Clone, Debug, Default)]
struct TaskTime {
    /// Total time off the CPUs, without the time in progress.
    off: OffCpu,
    /// The time off the CPUs in progress. `None` while the task runs.
    away: Option<Away>,
    /// Functions that wait for an event, outermost first.
    waits: Vec<Wait>,
}

/// A function that waits for an event and has not returned.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The caller's number of the function.
    number: u32,
    /// The address to which the function returns.
    return_to: u64,
    /// The stack pointer at entry, which points at the return address.
    stack_pointer: u64,
    /// How many frames the task had at entry. It never has fewer while the function is open.
    depth: usize,
}

/// The time off the CPUs in progress, of a task that does not run.
#[derive(Clone, Copy, Debug)]
struct Away {
    /// When the task left the CPU.
    since: u64,
    /// Whether the task left to wait. If not, it was preempted.
    blocks: bool,
    /// When a wake-up made the task ready to run. `None`: it still waits, or was preempted.
    woken_at: Option<u64>,
    /// The caller's number of the innermost waiting function, or 0 if it is not known.
    wait: u32,
    /// The region when the task left the CPU, or 0 if no region was open.
    region: u32,
}

impl Away {
    /// The time from when the task left the CPU until `now`, divided at the wake-up. The clocks of CPUs may differ by a
    /// time slice, so that a difference could be negative; it is then 0.
    fn off_cpu_until(&self, now: u64) -> OffCpu {
        let off_cpu = now.saturating_sub(self.since);
        let until_woken =
            self.woken_at.map_or(off_cpu, |woken_at| woken_at.saturating_sub(self.since));
        let blocked = if self.blocks { until_woken.min(off_cpu) } else { 0 };
        OffCpu { blocked, descheduled: off_cpu - blocked }
    }
}

/// The stack of a task that is not running. [`crate::TaskStacks`] keeps it until the task is switched in.
#[derive(Clone, Debug)]
pub struct Frames<const N: usize = 1> {
    frames: Vec<Frame<N>>,
    time: TaskTime,
}

impl<const N: usize> Frames<N> {
    /// A stack whose only context is `task`.
    #[must_use]
    pub fn new(task: KernelContext) -> Frames<N> {
        let mut frames = Vec::with_capacity(4);
        frames.push(Frame::new(task, Entry::Bottom));
        Frames { frames, time: TaskTime::default() }
    }

    /// The task was woken at `now`, if it was blocked.
    pub(crate) fn wake(&mut self, now: u64) {
        if let Some(away) = self.time.away.as_mut().filter(|away| away.blocks) {
            away.woken_at.get_or_insert(now);
        }
    }

    /// A region opens: counts from before it are dropped.
    pub(crate) fn reset_counts(&mut self) {
        reset_counts(&mut self.frames);
    }

    /// The counts of the open frames in the region with this number.
    pub(crate) fn open_parts(&self, region: u32) -> impl Iterator<Item = RequestPart<N>> + '_ {
        open_parts(&self.frames, region)
    }
}

/// Drops the counts of frames.
fn reset_counts<const N: usize>(frames: &mut [Frame<N>]) {
    for frame in frames {
        (frame.self_counts, frame.nested) = ([0; N], [0; N]);
    }
}

/// The counts of open frames. A request is new if it started in the region with the number `region`.
fn open_parts<const N: usize>(
    frames: &[Frame<N>],
    region: u32,
) -> impl Iterator<Item = RequestPart<N>> + '_ {
    frames.iter().enumerate().map(move |(depth, frame)| RequestPart {
        depth,
        service: frame.service(),
        self_counts: frame.self_counts,
        is_new: frame.entry != Entry::Bottom && frame.region == region,
        completed: None,
    })
}

/// A span that started and ended in the region of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSpan<const N: usize = 1> {
    pub context: KernelContext,
    /// Start of the span: the first count of the CPU on which the span started.
    pub start: u64,
    /// End of the span: the first count of the CPU on which the span ended. A span whose task was off the CPUs is longer
    /// than its inclusive counts. The counts of two CPUs may differ, so that the end may even be before the start.
    pub end: u64,
    /// Counts of the context itself.
    pub self_counts: Counts<N>,
    /// Counts including nested contexts.
    pub inclusive: Counts<N>,
}

/// A transition: another context is on top of the stack from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextTransition<const N: usize = 1> {
    /// The context that is now on top. [`KernelContext::Scheduler`] for an interrupt after [`KernelStack::give_way`].
    pub context: KernelContext,
    /// The task at the bottom. Without contexts above it, this is `context`, too.
    pub task: KernelContext,
    /// The CPU's counts at the transition.
    pub at: Counts<N>,
}

/// Numbers of events that contradicted the stack, since the stack was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelStackFaults {
    /// Returns from an interrupt inside the kernel that match no frame: the kernel's own use of
    /// `iret` to serialise, or a frame from before tracking.
    pub unmatched_returns: u64,
    /// Frames dropped because a frame below them ended, or because the task was found in user mode or at its start.
    pub abandoned: u64,
    /// Entries refused because [`DEPTH_MAX`] frames were open.
    pub overflows: u64,
    /// Events with a count below the count of the previous event. If there are any, the sums are wrong.
    pub backward: u64,
}

/// A kernel thread's run between two task switches, in progress. It has the thread's counts at the start of the run;
/// their differences at its end are the counts of the run.
#[derive(Clone, Copy, Debug)]
struct ThreadRun<const N: usize> {
    /// When the run started, by the clock of the events.
    start: u64,
    /// The region at the start of the run, or 0 if no region was open.
    region: u32,
    self_counts: Counts<N>,
    inclusive: Counts<N>,
}

/// The context stack of one CPU. The argument `counts` of its methods is the CPU's counts so far.
#[derive(Clone, Debug)]
pub struct KernelStack<const N: usize = 1> {
    /// The contexts of the current task, the task itself first. Never empty.
    frames: Vec<Frame<N>>,
    time: TaskTime,
    /// The CPU's counts at the last event. All earlier counts are charged.
    charged_to: Counts<N>,
    /// Number of the last opened region of interest; 0 before the first.
    region: u32,
    /// Whether the CPU counts: a region is open, and the CPU has not gone offline in it.
    counting: bool,
    /// Whether the CPU has gone offline in the open region. It counts no more. The counts that its tasks have from any
    /// CPU are still charged when the tasks' contexts end.
    has_left: bool,
    keeps_spans: bool,
    keeps_transitions: bool,
    keeps_requests: bool,
    ledger: Ledger<N>,
    /// Position in the ledger of the row of the context on top.
    top_row: usize,
    spans: Vec<KernelSpan<N>>,
    transitions: Vec<ContextTransition<N>>,
    requests: Vec<RequestPart<N>>,
    blocked: Vec<BlockedSpan>,
    faults: KernelStackFaults,
    /// The profile of the region, and the time at which the region opened. `None` if no profile is kept.
    profile: Option<(Profile<N>, u64)>,
    /// The run of the current task, if this is a kernel thread.
    thread_run: Option<ThreadRun<N>>,
}

impl<const N: usize> Default for KernelStack<N> {
    fn default() -> Self {
        KernelStack {
            frames: Frames::new(KernelContext::Unknown).frames,
            time: TaskTime::default(),
            charged_to: [0; N],
            region: 0,
            counting: false,
            has_left: false,
            keeps_spans: false,
            keeps_transitions: false,
            keeps_requests: false,
            ledger: Ledger::default(),
            top_row: 0,
            spans: Vec::new(),
            transitions: Vec::new(),
            requests: Vec::new(),
            blocked: Vec::new(),
            faults: KernelStackFaults::default(),
            profile: None,
            thread_run: None,
        }
    }
}

/// Index of the counter that is the time axis of a profile.
const TIME: usize = 0;

impl<const N: usize> KernelStack<N> {
    /// Keeps a profile of each region from now on. The first counter is the profile's time axis.
    pub fn keep_profile(&mut self) {
        self.profile.get_or_insert_default();
    }

    /// The profile of the region so far, or `None` if no profile is kept.
    pub fn profile(&mut self, counts: Counts<N>) -> Option<&Profile<N>> {
        self.advance(counts);
        self.profile.as_ref().map(|(profile, _)| profile)
    }

    /// Keeps spans for [`KernelStack::take_spans`], which must be called after each event from now on.
    pub fn keep_spans(&mut self) {
        self.keeps_spans = true;
    }

    /// Takes the spans that ended since spans were last taken: of all contexts except tasks and system
    /// calls, and the runs of threads ([`KernelStack::complete_run`]). None without
    /// [`KernelStack::keep_spans`], and none outside a region.
    pub fn take_spans(&mut self) -> impl Iterator<Item = KernelSpan<N>> + '_ {
        self.spans.drain(..)
    }

    /// Keeps transitions for [`KernelStack::take_transitions`], which must be called after each event from now on.
    pub fn keep_transitions(&mut self) {
        self.keeps_transitions = true;
    }

    /// Takes the transitions since transitions were last taken, in order. None without
    /// [`KernelStack::keep_transitions`], and none outside a region.
    pub fn take_transitions(&mut self) -> impl Iterator<Item = ContextTransition<N>> + '_ {
        self.transitions.drain(..)
    }

    /// Keeps ended requests and blocked spans for [`KernelStack::take_requests`] and [`KernelStack::take_blocked`].
    /// Both must be called after each event from now on.
    pub fn keep_requests(&mut self) {
        self.keeps_requests = true;
    }

    /// Takes the requests that ended since requests were last taken, and the counts of tasks that ended or changed
    /// their kind. None without [`KernelStack::keep_requests`], and none outside a region.
    pub fn take_requests(&mut self) -> impl Iterator<Item = RequestPart<N>> + '_ {
        self.requests.drain(..)
    }

    /// Takes the blocked time of the task that was switched in since blocked spans were last taken: one span for each
    /// service that the task is in. None without [`KernelStack::keep_requests`], and none outside a region.
    pub fn take_blocked(&mut self) -> impl Iterator<Item = BlockedSpan> + '_ {
        self.blocked.drain(..)
    }

    /// The counts in the region of each frame that is open.
    pub fn open_parts(&mut self, counts: Counts<N>) -> impl Iterator<Item = RequestPart<N>> + '_ {
        self.advance(counts);
        open_parts(&self.frames, self.region)
    }

    /// Starts a region of interest: rows start at zero.
    pub fn open_region(&mut self, counts: Counts<N>) {
        self.advance(counts);
        self.region += 1;
        (self.counting, self.has_left) = (true, false);
        self.ledger = Ledger::default();
        if let Some(profile) = &mut self.profile {
            *profile = (Profile::default(), counts[TIME]);
        }
        if self.keeps_requests {
            reset_counts(&mut self.frames);
        }
        self.note_top();
    }

    /// The rows of the region so far.
    pub fn rows(&mut self, counts: Counts<N>) -> &Ledger<N> {
        self.advance(counts);
        &self.ledger
    }

    /// Ends the region of interest for this CPU, because the CPU goes offline. Its rows stay until the region closes.
    pub fn leave_region(&mut self, counts: Counts<N>) {
        self.advance(counts);
        self.has_left |= self.counting;
        self.counting = false;
    }

    /// Adds a transition to the context that is on top already: without it, the transitions of a region do not tell
    /// when the region closed.
    pub fn repeat_transition(&mut self, counts: Counts<N>) {
        self.advance(counts);
        self.note_top();
    }

    /// Ends the region of interest and returns its rows.
    pub fn close_region(&mut self, counts: Counts<N>) -> Ledger<N> {
        self.advance(counts);
        (self.counting, self.has_left) = (false, false);
        std::mem::take(&mut self.ledger)
    }

    /// Whether the CPU is in `context`, on top or below.
    #[must_use]
    pub fn is_inside(&self, context: KernelContext) -> bool {
        self.is_inside_any(|inside| inside == context)
    }

    /// Whether `is_wanted` is true for any context of the CPU, on top or below.
    pub fn is_inside_any(&self, is_wanted: impl Fn(KernelContext) -> bool) -> bool {
        self.frames.iter().any(|frame| is_wanted(frame.context))
    }

    /// The innermost context that `is_wanted` accepts. `None` if no context of the CPU is accepted.
    pub fn innermost(&self, is_wanted: impl Fn(KernelContext) -> bool) -> Option<KernelContext> {
        self.frames.iter().rev().map(|frame| frame.context).find(|context| is_wanted(*context))
    }

    /// The return address of the innermost open function: one that is followed as a context, or one that waits. `None` if
    /// no such function is open.
    #[must_use]
    pub fn awaits(&self) -> Option<u64> {
        let mut frames = self.frames.iter().enumerate().rev();
        let innermost_call = frames.find_map(|(position, frame)| match frame.entry {
            Entry::Call { return_to, .. } => Some((position, return_to)),
            _ => None,
        });
        match (innermost_call, self.time.waits.last()) {
            // The frame was opened after the wait had started.
            (Some((position, return_to)), Some(wait)) if position >= wait.depth => Some(return_to),
            (_, Some(wait)) => Some(wait.return_to),
            (call, None) => call.map(|(_, return_to)| return_to),
        }
    }

    /// The context on top.
    #[must_use]
    pub fn context(&self) -> KernelContext {
        self.top().context
    }

    /// The service that the context on top is charged to. For a page fault: its most specific known kind.
    #[must_use]
    pub fn service(&self) -> KernelContext {
        self.top().service()
    }

    /// The service that takes a lock: the topmost context that is not itself a wait for a lock. The kind of a page
    /// fault is known only at its end: for a page fault, the result also has the number of frames below it.
    #[must_use]
    pub fn client(&self) -> (KernelContext, Option<usize>) {
        let mut frames = self.frames.iter().enumerate().rev();
        let client = frames.find(|(_, frame)| !matches!(frame.context, KernelContext::LockWait(_)));
        let (depth, frame) = client.unwrap_or((0, &self.frames[0]));
        (frame.service(), frame.is_fault().then_some(depth))
    }

    /// How many frames are open, including the task's.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Numbers of events that contradicted the stack so far.
    #[must_use]
    pub fn faults(&self) -> KernelStackFaults {
        self.faults
    }

    /// Opens the context of a system call of task `pid`, which was in user mode.
    pub fn enter_syscall(&mut self, number: u32, pid: u32, counts: Counts<N>) {
        self.advance(counts);
        self.leave_user_mode(pid);
        self.push(KernelContext::Syscall(number), Entry::Syscall);
    }

    /// Opens the context of an interrupt, exception or NMI whose handler starts with `stack_pointer`. `user`: the task that
    /// was in user mode, or `None` if the CPU was in the kernel.
    pub fn enter_hardware(
        &mut self,
        context: KernelContext,
        stack_pointer: u64,
        user: Option<u32>,
        counts: Counts<N>,
    ) {
        self.advance(counts);
        if let Some(pid) = user {
            self.leave_user_mode(pid);
        }
        self.push(context, Entry::Hardware { stack_pointer });
    }

    /// Opens the context of a called function. Examples are the handler of a softirq or of an IRQ, and a function that an
    /// annotation names. `stack_pointer` points at the return address.
    pub fn enter_call(
        &mut self,
        context: KernelContext,
        return_to: u64,
        stack_pointer: u64,
        counts: Counts<N>,
    ) {
        self.advance(counts);
        self.push(context, Entry::Call { return_to, stack_pointer });
    }

    /// Notes that the scheduler starts. If the context on top is an interrupt, its return path has called the scheduler, because its
    /// handler never does. From here to its `iret`, transitions show [`KernelContext::Scheduler`] in place of the interrupt,
    /// also after its task was switched out. Counts and spans do not change. Does nothing in other contexts.
    pub fn give_way(&mut self, counts: Counts<N>) {
        self.advance(counts);
        let top = self.frames.last_mut();
        let interrupt = top.filter(|top| matches!(top.context, KernelContext::Interrupt(_)));
        if let Some(interrupt) = interrupt.filter(|interrupt| !interrupt.gives_way) {
            interrupt.gives_way = true;
            self.note_top();
        }
    }

    /// Starts a section of the context on top; [`KernelStack::leave_section`] ends it.
    pub fn enter_section(&mut self, context: KernelContext, counts: Counts<N>) {
        self.advance(counts);
        self.push(context, Entry::Section);
    }

    /// Ends the section on top; returns whether there is one.
    pub fn leave_section(&mut self, counts: Counts<N>) -> bool {
        let is_section = self.top().entry == Entry::Section;
        if is_section {
            self.advance(counts);
            self.close_down_to(self.frames.len() - 1);
        }
        is_section
    }

    /// Ends the innermost section of `context`, if nothing but functions and sections is nested in
    /// it; returns whether there is one.
    pub fn leave_section_of(&mut self, context: KernelContext, counts: Counts<N>) -> bool {
        let is_followed =
            |frame: &&Frame<N>| matches!(frame.entry, Entry::Section | Entry::Call { .. });
        let above = self.frames.iter().rev().take_while(is_followed);
        let section = above
            .enumerate()
            .find(|(_, frame)| frame.context == context && frame.entry == Entry::Section);
        let Some((frames_above, _)) = section else { return false };
        self.advance(counts);
        self.close_down_to(self.frames.len() - 1 - frames_above);
        true
    }

    /// Ends the followed functions and the waiting functions whose return address is `address`, the CPU's current address.
    /// There may be several, because a function can end with a jump to another function (tail call). The return has popped
    /// the return address: `stack_pointer` is above it.
    pub fn at_return_address(&mut self, address: u64, stack_pointer: u64, counts: Counts<N>) {
        // The return has popped the return address.
        let called_from = stack_pointer.wrapping_sub(8);
        let returns = |wait: &Wait| (wait.return_to, wait.stack_pointer) == (address, called_from);
        if let Some(first) = self.time.waits.iter().position(returns) {
            // The functions that the waiting function called have returned, too.
            self.time.waits.truncate(first);
        }
        let entry = Entry::Call { return_to: address, stack_pointer: called_from };
        while let Some(position) = self.frames.iter().rposition(|frame| frame.entry == entry) {
            self.advance(counts);
            self.close_down_to(position);
        }
    }

    /// Ends the handler that returns to the kernel by `iret`, with the return address at `stack_pointer`.
    ///
    /// The handler started with this stack pointer. If the processor pushed an error code, the handler started one word
    /// lower. If the handler moved its frame to make room for a call that it emulates (`int3`), it started up to six words
    /// higher. Nested handlers start at lower addresses, below the saved registers, so the range excludes them.
    pub fn return_to_kernel(&mut self, stack_pointer: u64, counts: Counts<N>) {
        self.advance(counts);
        let may_return = |frame: &Frame<N>| match frame.entry {
            Entry::Hardware { stack_pointer: entry_pointer } => {
                entry_pointer.wrapping_add(ERROR_CODE_BYTES).wrapping_sub(stack_pointer)
                    <= RETURN_WINDOW
            }
            _ => false,
        };
        let position = self.frames.iter().rposition(may_return).or_else(|| {
            // The NMI's handler copies its frame to survive a nested NMI: its `iret` is at another stack pointer.
            let is_nmi = |frame: &Frame<N>| frame.context == KernelContext::Nmi;
            self.frames.last().is_some_and(is_nmi).then(|| self.frames.len() - 1)
        });
        match position {
            Some(position) => self.close_down_to(position),
            None => self.faults.unmatched_returns += 1,
        }
    }

    /// Ends all contexts above the task, because the CPU returns to user mode of task `pid`.
    pub fn return_to_user(&mut self, pid: u32, counts: Counts<N>) {
        self.advance(counts);
        if self.frames.len() > 1 {
            self.close_down_to(1);
        }
        self.time.waits.clear();
        self.set_task(KernelContext::User(pid));
    }

    /// Whether the context on top is a page fault. If not, a kernel function that brings in a page is not part of a
    /// fault: the caller follows it as a context.
    pub fn is_in_fault(&self) -> bool {
        self.top().is_fault()
    }

    /// Raises the kind of the page fault on top to `kind`, unless its kind is more specific. Does nothing
    /// without a page fault on top.
    pub fn classify_fault(&mut self, kind: FaultKind) {
        if let Some(top) = self.frames.last_mut().filter(|top| top.is_fault()) {
            top.fault = top.fault.max(kind);
        }
    }

    /// The kernel's memory management handles the page fault on top. Returns whether it does so for the first time: if it
    /// has to wait for the page, it starts again later. True without a page fault on top.
    pub fn handle_fault(&mut self) -> bool {
        let fault = self.frames.last_mut().filter(|top| top.is_fault());
        fault.is_none_or(|fault| !std::mem::replace(&mut fault.is_handled, true))
    }

    /// Notes whether the page fault on top now reads pages ahead; no task waits for such pages.
    /// If not, it looks for its page.
    pub fn read_ahead(&mut self, reads_ahead: bool) {
        if let Some(top) = self.frames.last_mut() {
            top.reads_ahead = reads_ahead;
        }
    }

    /// Whether the page fault on top reads pages ahead. No task waits for such pages.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        self.top().reads_ahead
    }

    /// The most specific kind that is known so far of the page fault on top. `None`
    /// if the context on top is not a page fault.
    #[must_use]
    pub fn fault(&self) -> Option<FaultKind> {
        let top = self.top();
        top.is_fault().then_some(top.fault)
    }

    /// Notes that the task has called a function that waits for an event. `wait`: the caller's number for the function, not 0.
    /// `stack_pointer` points at the return address. [`KernelStack::at_return_address`] ends the wait.
    pub fn enter_wait(&mut self, wait: u32, return_to: u64, stack_pointer: u64) {
        self.leave_waits(stack_pointer);
        if self.time.waits.len() < WAITS_MAX {
            let depth = self.frames.len();
            self.time.waits.push(Wait { number: wait, return_to, stack_pointer, depth });
        }
    }

    /// Whether the task is in a function that waits. Forgets the functions that have returned by `stack_pointer`.
    pub fn is_in_wait(&mut self, stack_pointer: u64) -> bool {
        self.leave_waits(stack_pointer);
        !self.time.waits.is_empty()
    }

    /// Forgets waiting functions whose return was not seen. The stack grows downwards: a function can be open only if its
    /// stack pointer at entry is above the current one.
    fn leave_waits(&mut self, stack_pointer: u64) {
        let is_open = |wait: &&Wait| wait.stack_pointer > stack_pointer;
        let open_waits = self.time.waits.iter().take_while(is_open).count();
        self.time.waits.truncate(open_waits);
    }

    /// Removes all frames from `position` on, which is not 0, and forgets the waiting functions that they called.
    fn remove_frames(&mut self, position: usize) {
        for removed in (position..self.frames.len()).rev() {
            self.pass_recursive_counts(removed);
        }
        self.frames.truncate(position);
        while self.time.waits.last().is_some_and(|wait| wait.depth > position) {
            self.time.waits.pop();
        }
    }

    /// Notes that the task leaves the CPU at `now`, by the clock that [`KernelStack::arrive`] uses, too. `blocks`: whether
    /// the task waits for an event; otherwise it could have continued (preemption). `stack_pointer`: functions whose
    /// entry is below it have returned.
    pub fn leave(&mut self, blocks: bool, stack_pointer: u64, now: u64) {
        self.leave_waits(stack_pointer);
        let wait = self.time.waits.last().map_or(0, |wait| wait.number);
        let region = if self.counting { self.region } else { 0 };
        self.time.away = Some(Away { since: now, blocks, woken_at: None, wait, region });
    }

    /// Adds the current task's time off the CPUs, which ends at `now`. If the task was blocked within the region, the blocked
    /// time also becomes a span for each service that the task is in.
    pub fn arrive(&mut self, now: u64) {
        let Some(away) = self.time.away.take() else { return };
        let off = away.off_cpu_until(now);
        self.time.off.blocked += off.blocked;
        self.time.off.descheduled += off.descheduled;
        if !(self.keeps_requests && self.counting && away.blocks && away.region == self.region) {
            return;
        }
        for frame in &self.frames[1..] {
            // Every task that leaves the CPU is in the scheduler.
            if frame.context != KernelContext::Scheduler {
                let (service, wait, blocked) = (frame.service(), away.wait, off.blocked);
                self.blocked.push(BlockedSpan { service, wait, blocked });
            }
        }
    }

    /// Notes that the current task starts to exit. If a signal ends the task inside another context than the system call
    /// that asks for the exit, the exit becomes a context of its own, until [`KernelStack::end_task`].
    pub fn start_exit(&mut self, counts: Counts<N>) {
        let top = self.top();
        let is_exit_call = top.entry == Entry::Syscall && top.is_complete_at_task_end();
        if self.frames.len() > 1 && !is_exit_call {
            self.enter_section(KernelContext::Exit, counts);
        }
    }

    /// Ends the task and all contexts above it. The call that asked for the end and the functions that the task was in
    /// are complete. A signal can also end the task inside any other system call, interrupt or exception.
    /// That context executed the task's exit and does not complete: its time would be longer than its own work.
    pub fn end_task(&mut self, counts: Counts<N>) {
        self.advance(counts);
        while self.frames.len() > 1 {
            let position = self.frames.len() - 1;
            if self.frames[position].is_complete_at_task_end() {
                self.close_down_to(position);
            } else {
                self.drop_top();
            }
        }
        self.retire_bottom();
    }

    /// Drops the context on top, which does not complete. The context below takes over its counts as nested.
    fn drop_top(&mut self) {
        let position = self.frames.len() - 1;
        self.end_request(position, None);
        let inclusive = self.frames[position].inclusive();
        self.remove_frames(position);
        if let Some(parent) = self.frames.last_mut() {
            add(&mut parent.nested, &inclusive);
        }
        self.note_top();
    }

    /// Replaces the task at the bottom by `task` if it was unknown. The contexts above it stay.
    pub fn identify(&mut self, task: KernelContext, counts: Counts<N>) {
        self.advance(counts);
        if self.frames[0].context == KernelContext::Unknown {
            self.set_task(task);
        }
    }

    /// Drops all contexts above the task, and replaces the task by `task`.
    pub fn restart(&mut self, task: KernelContext, counts: Counts<N>) {
        self.advance(counts);
        self.abandon_all();
        self.set_task(task);
    }

    /// Switches to the stack of another task. Returns the stack of the previous task.
    pub fn switch_to(&mut self, next: Frames<N>, counts: Counts<N>) -> Frames<N> {
        self.advance(counts);
        let frames = std::mem::replace(&mut self.frames, next.frames);
        let time = std::mem::replace(&mut self.time, next.time);
        if let Some(task) = self.frames.first()
            && self.counting
        {
            self.ledger.enter(task.context);
        }
        self.note_top();
        self.thread_run = self.start_thread_run();
        Frames { frames, time }
    }

    /// The run that starts now, if the current task is a kernel thread. `None` for other tasks, and without frames.
    fn start_thread_run(&self) -> Option<ThreadRun<N>> {
        let bottom = self.frames.first()?;
        let is_thread = matches!(bottom.context, KernelContext::KernelThread(_));
        is_thread.then(|| ThreadRun {
            start: self.charged_to[0],
            region: if self.counting { self.region } else { 0 },
            self_counts: bottom.self_counts,
            inclusive: self.sum_of_frames(),
        })
    }

    /// The sum of the counts of all frames of the current task. No count is in two frames: a frame has the counts of
    /// nested contexts only after these have ended.
    fn sum_of_frames(&self) -> Counts<N> {
        let mut sum = [0; N];
        for frame in &self.frames {
            add(&mut sum, &frame.inclusive());
        }
        sum
    }

    /// Turns the run of the current kernel thread, which is about to leave the CPU, into a span. A run that started before
    /// the region gives no span. Call this only for threads whose runs are spans, such as the threads of IRQ lines.
    pub fn complete_run(&mut self, counts: Counts<N>) {
        self.advance(counts);
        let Some(run) = self.thread_run.take() else { return };
        if !(self.counting && run.region == self.region) {
            return;
        }
        let Some(bottom) = self.frames.first() else { return };
        let difference = |counts_after: Counts<N>, counts_before: Counts<N>| {
            std::array::from_fn(|index| counts_after[index].saturating_sub(counts_before[index]))
        };
        let context = bottom.context;
        let self_counts = difference(bottom.self_counts, run.self_counts);
        let inclusive = difference(self.sum_of_frames(), run.inclusive);
        self.ledger.complete(context, &inclusive);
        if self.keeps_spans {
            let (start, end) = (run.start, self.charged_to[0]);
            self.spans.push(KernelSpan { context, start, end, self_counts, inclusive });
        }
    }

    /// Adds the inclusive counts that the ledger has from the frame at `position` and from recursive calls in it to the
    /// frame of the same function below it, if there is one.
    fn pass_recursive_counts(&mut self, position: usize) {
        let Frame { context, recursive, .. } = self.frames[position];
        if !matches!(context, KernelContext::Function(_)) {
            return;
        }
        let mut below = self.frames[..position].iter_mut().rev();
        if let Some(caller) = below.find(|frame| frame.context == context) {
            add(&mut caller.recursive, &recursive);
        }
    }

    fn top(&self) -> &Frame<N> {
        &self.frames[self.frames.len() - 1]
    }

    /// Charges the counts since the last event to the context on top, and to the profile. Call it before each change of the
    /// stack. If a count has decreased, charges nothing and counts the fault.
    fn advance(&mut self, counts: Counts<N>) {
        let mut amounts = [0; N];
        for (index, amount) in amounts.iter_mut().enumerate() {
            let Some(used) = counts[index].checked_sub(self.charged_to[index]) else {
                self.faults.backward += 1;
                return;
            };
            *amount = used;
        }
        let counts_at_start = std::mem::replace(&mut self.charged_to, counts);
        if !self.counting {
            if self.has_left {
                self.frames.iter_mut().for_each(|frame| frame.is_partial = true);
            }
            return;
        }
        if let Some(top) = self.frames.last_mut() {
            add(&mut top.self_counts, &amounts);
            self.ledger.charge_at(self.top_row, &amounts);
            if let Some((profile, opened_at)) = &mut self.profile {
                let start_time = counts_at_start[TIME].saturating_sub(*opened_at);
                profile.charge(Mode::of_context(top.context), start_time, amounts[TIME], &amounts);
            }
        }
    }

    /// Finds the row of the context on top, and keeps the transition to it. Must follow each change of the top.
    fn note_top(&mut self) {
        if !self.counting {
            return;
        }
        let (context, task) = (self.top().context, self.frames[0].context);
        self.top_row = self.ledger.row_position(context);
        if self.keeps_transitions {
            let context = if self.top().gives_way { KernelContext::Scheduler } else { context };
            self.transitions.push(ContextTransition { context, task, at: self.charged_to });
        }
    }

    /// Abandons all contexts above the task, because the CPU enters the kernel from user mode of task `pid`.
    fn leave_user_mode(&mut self, pid: u32) {
        self.abandon_all();
        if self.frames[0].context != KernelContext::User(pid) {
            self.set_task(KernelContext::User(pid));
        }
    }

    /// Drops all contexts above the task.
    fn abandon_all(&mut self) {
        self.faults.abandoned += self.frames.len() as u64 - 1;
        for position in (1..self.frames.len()).rev() {
            self.end_request(position, None);
        }
        self.frames.truncate(1);
        self.time.waits.clear();
        self.note_top();
    }

    /// The task at the bottom ends or changes its context: charges its counts to the previous context.
    fn retire_bottom(&mut self) {
        self.end_request(0, None);
        self.frames[0].self_counts = [0; N];
    }

    /// The frame at `position` ends: charges its self counts to its service. `inclusive`: its counts with nested
    /// contexts, or `None` if it did not end by its own exit. Does nothing unless requests are kept in an open region.
    fn end_request(&mut self, position: usize, inclusive: Option<Counts<N>>) {
        if !(self.keeps_requests && (self.counting || self.has_left)) {
            return;
        }
        let frame = &self.frames[position];
        let is_new = frame.entry != Entry::Bottom && frame.region == self.region;
        let off = self.time.off.since(frame.off);
        let is_counted_completely = is_new && self.counting && !frame.is_partial;
        let completed = if is_counted_completely {
            inclusive.map(|inclusive| Completed { inclusive, off })
        } else {
            None
        };
        let (service, self_counts) = (frame.service(), frame.self_counts);
        let depth = position;
        self.requests.push(RequestPart { service, self_counts, depth, is_new, completed });
    }

    /// Makes `task` the task at the bottom, and charges the counts of the previous task. Does
    /// nothing if `task` is there already.
    fn set_task(&mut self, task: KernelContext) {
        if self.frames[0].context != task {
            self.retire_bottom();
            self.frames[0].context = task;
            if self.counting {
                self.ledger.enter(task);
            }
            self.note_top();
        }
    }

    /// Opens a frame on top, unless the stack is full.
    fn push(&mut self, context: KernelContext, entry: Entry) {
        if self.frames.len() == DEPTH_MAX {
            self.faults.overflows += 1;
            return;
        }
        let mut frame = Frame::new(context, entry);
        frame.start = self.charged_to[0];
        frame.off = self.time.off;
        if entry == Entry::Syscall {
            // A system call starts at the top of the kernel stack: no function is open.
            self.time.waits.clear();
        }
        frame.region = if self.counting { self.region } else { 0 };
        self.frames.push(frame);
        if self.counting {
            self.ledger.enter(context);
        }
        self.note_top();
    }

    /// Closes the frame at `position`, which is not 0, and drops the frames above it. The closed
    /// frame takes over their counts as nested.
    fn close_down_to(&mut self, position: usize) {
        self.faults.abandoned += (self.frames.len() - position - 1) as u64;
        let mut frame = self.frames[position];
        for above in &self.frames[position + 1..] {
            add(&mut frame.nested, &above.self_counts);
            add(&mut frame.nested, &above.nested);
        }
        let inclusive = frame.inclusive();
        for above in (position + 1..self.frames.len()).rev() {
            self.end_request(above, None);
        }
        self.end_request(position, Some(inclusive));
        // Abandoned recursive calls pass their counts to this frame first.
        self.remove_frames(position + 1);
        let recursive = self.frames[position].recursive;
        let is_counted = self.counting && frame.region == self.region && !frame.is_partial;
        if is_counted {
            self.frames[position].recursive = inclusive;
        }
        self.remove_frames(position);
        if let Some(parent) = self.frames.last_mut() {
            add(&mut parent.nested, &inclusive);
        }
        if is_counted {
            let not_counted_yet =
                std::array::from_fn(|index| inclusive[index].saturating_sub(recursive[index]));
            self.ledger.complete(frame.context, &not_counted_yet);
            self.keep_span(&frame, inclusive);
        }
        self.note_top();
    }

    /// Keeps the span of a frame that has ended, if spans are kept.
    fn keep_span(&mut self, frame: &Frame<N>, inclusive: Counts<N>) {
        // System calls are in the ledger only: there are many, and some never end.
        let is_kept = !matches!(frame.entry, Entry::Bottom | Entry::Syscall);
        if self.keeps_spans && is_kept {
            let Frame { context, start, self_counts, .. } = *frame;
            let end = self.charged_to[0];
            self.spans.push(KernelSpan { context, start, end, self_counts, inclusive });
        }
    }
}
