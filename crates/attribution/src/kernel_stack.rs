//! The context stack of a simulated CPU: which context each instruction belongs to.
//!
//! At the bottom of the stack is the task (user mode, kernel thread, idle); above it are the system
//! call, exceptions, interrupts and softirqs that it is in. The stack belongs to the *task*, as
//! its kernel stack does: a task that is switched out in the middle of a page fault is still in that
//! fault when it is switched in again, on whichever CPU.
//!
//! ```text
//! user 7       |====|                                  |====|     self = the "="
//! syscall 0         |===|                          |===|
//! softirq NET_RX                                                  inclusive = from entry to exit,
//! interrupt 0xec        |==|    |=|                               without other tasks
//! idle                     |====|  (7 waits; 0xec wakes it)
//! ```
//!
//! A frame is identified by a value of the processor. For an interrupt or exception, this is the stack
//! pointer at the start of its handler, where its `iret` returns from. For a softirq, it is the return
//! address of its handler.

use crate::fault::FaultKind;
use crate::kernel_context::KernelContext;
use crate::ledger::{Counts, Ledger, add};
use crate::profile::{Mode, Profile};
use crate::services::{BlockedSpan, Completed, OffCpu, RequestPart};
use crate::stack::DEPTH_MAX;

/// An error code, which the processor may push below the return address.
const ERROR_CODE_BYTES: u64 = 8;
/// The farthest that an `iret` can be above where its handler started, without the error code.
const RETURN_WINDOW: u64 = ERROR_CODE_BYTES + 6 * 8;
/// The vector of a page fault.
const PAGE_FAULT: u8 = 14;
/// Maximum number of functions that a task waits in, one called by the other.
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
    /// A function: closed at its return address, with the stack pointer above it.
    Call { return_to: u64, stack_pointer: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Frame<const N: usize> {
    context: KernelContext,
    entry: Entry,
    self_counts: Counts<N>,
    nested: Counts<N>,
    /// The first count of the CPU when the span started.
    start: u64,
    /// The region of interest at the start of the span, or 0 if no region was open.
    region: u32,
    /// The most specific known kind of a page fault.
    fault: FaultKind,
    /// Whether a page fault has found its page, and reads the next pages ahead.
    reads_ahead: bool,
    /// How long the task had been off the CPUs when the span started.
    off: OffCpu,
    /// Whether a part of it ran on a CPU that had gone offline in the region, and is not counted.
    is_partial: bool,
}

impl<const N: usize> Frame<N> {
    fn new(context: KernelContext, entry: Entry) -> Self {
        let (fault, off) = (FaultKind::default(), OffCpu::default());
        let (self_counts, nested) = ([0; N], [0; N]);
        Frame {
            context,
            entry,
            self_counts,
            nested,
            start: 0,
            region: 0,
            fault,
            reads_ahead: false,
            off,
            is_partial: false,
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

    fn is_fault(&self) -> bool {
        matches!(self.context, KernelContext::Exception(PAGE_FAULT) | KernelContext::KernelFault(_))
    }

    fn inclusive(&self) -> Counts<N> {
        let mut sum = self.self_counts;
        add(&mut sum, &self.nested);
        sum
    }
}

/// How long a task was off the CPUs, and for what it waits.
#[derive(Clone, Debug, Default)]
struct TaskTime {
    off: OffCpu,
    away: Option<Away>,
    /// Functions that wait for an event, outermost first: the stack pointer at entry, and the caller's number.
    waits: Vec<(u64, u32)>,
}

/// A task is off the CPUs.
#[derive(Clone, Copy, Debug)]
struct Away {
    since: u64,
    blocks: bool,
    woken_at: Option<u64>,
    wait: u32,
    /// The region when the task left the CPU, or 0 if no region was open.
    region: u32,
}

impl Away {
    /// How long it was away until `now`. Clocks of CPUs may differ by a time slice: no part is negative.
    fn off(&self, now: u64) -> OffCpu {
        let off_cpu = now.saturating_sub(self.since);
        let until_woken =
            self.woken_at.map_or(off_cpu, |woken_at| woken_at.saturating_sub(self.since));
        let blocked = if self.blocks { until_woken.min(off_cpu) } else { 0 };
        OffCpu { blocked, descheduled: off_cpu - blocked }
    }
}

/// The stack of a task that is not running.
#[derive(Clone, Debug)]
pub struct Frames<const N: usize = 1> {
    frames: Vec<Frame<N>>,
    time: TaskTime,
}

impl<const N: usize> Frames<N> {
    /// A stack with nothing but `task`.
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

    /// A region opens: what frames hold belongs to none.
    pub(crate) fn reset_counts(&mut self) {
        reset_counts(&mut self.frames);
    }

    /// The counts of open frames in the region.
    pub(crate) fn open_parts(&self, region: u32) -> impl Iterator<Item = RequestPart<N>> + '_ {
        open_parts(&self.frames, region)
    }
}

fn reset_counts<const N: usize>(frames: &mut [Frame<N>]) {
    for frame in frames {
        (frame.self_counts, frame.nested) = ([0; N], [0; N]);
    }
}

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
    /// When it started: the first count of the CPU on which it started.
    pub start: u64,
    /// Counts of the context itself.
    pub self_counts: Counts<N>,
    /// Counts including nested contexts.
    pub inclusive: Counts<N>,
}

/// A transition: another context is on top of the stack from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextTransition<const N: usize = 1> {
    /// The context on top.
    pub context: KernelContext,
    /// The task at the bottom, which may be the same.
    pub task: KernelContext,
    /// The CPU's counts at that moment.
    pub at: Counts<N>,
}

/// Events that did not fit, since the stack was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelStackFaults {
    /// Returns from an interrupt inside the kernel that match no frame: the kernel's own use of
    /// `iret` to serialise, or a frame from before tracking.
    pub unmatched_returns: u64,
    /// Frames dropped because a frame below them ended, or because the task was found elsewhere: in
    /// user mode or at its start.
    pub abandoned: u64,
    /// Entries refused because [`DEPTH_MAX`] frames were open.
    pub overflows: u64,
    /// Events with a count below the count of the previous event. Sums are broken if there are any.
    pub backward: u64,
}

/// The run of a kernel thread between two task switches, in progress: what its frames had used before.
#[derive(Clone, Copy, Debug)]
struct Run<const N: usize> {
    start: u64,
    /// The region at the start of the request, or 0 if no region was open.
    region: u32,
    self_counts: Counts<N>,
    inclusive: Counts<N>,
}

/// The context stack of one CPU. `now` is what the CPU has counted so far.
#[derive(Clone, Debug)]
pub struct KernelStack<const N: usize = 1> {
    frames: Vec<Frame<N>>,
    time: TaskTime,
    charged_to: Counts<N>,
    region: u32,
    counting: bool,
    /// Whether the CPU has gone offline in the open region. It counts no more, and what its tasks used before, on any
    /// CPU, is still charged when they end.
    has_left: bool,
    keeps_spans: bool,
    keeps_transitions: bool,
    keeps_requests: bool,
    ledger: Ledger<N>,
    /// Position in the ledger of the row of the context on top.
    place: usize,
    spans: Vec<KernelSpan<N>>,
    transitions: Vec<ContextTransition<N>>,
    requests: Vec<RequestPart<N>>,
    blocked: Vec<BlockedSpan>,
    faults: KernelStackFaults,
    /// If it is kept: that of the region, and when the region opened.
    profile: Option<(Profile<N>, u64)>,
    /// That of the task that runs, if it is a kernel thread.
    run: Option<Run<N>>,
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
            place: 0,
            spans: Vec::new(),
            transitions: Vec::new(),
            requests: Vec::new(),
            blocked: Vec::new(),
            faults: KernelStackFaults::default(),
            profile: None,
            run: None,
        }
    }
}

/// The counter that is the time axis of a profile.
const TIME: usize = 0;

impl<const N: usize> KernelStack<N> {
    /// Keeps a profile of each region from now on; the first counter is its time.
    pub fn keep_profile(&mut self) {
        self.profile.get_or_insert_default();
    }

    /// The profile of the region up to `now`; none if it is not kept.
    pub fn profile(&mut self, now: Counts<N>) -> Option<&Profile<N>> {
        self.advance(now);
        self.profile.as_ref().map(|(profile, _)| profile)
    }

    /// Keeps spans for [`KernelStack::take_spans`], which must be called after each event from now
    /// on.
    pub fn keep_spans(&mut self) {
        self.keeps_spans = true;
    }

    /// The spans that ended since the last call, without system calls.
    pub fn take_spans(&mut self) -> impl Iterator<Item = KernelSpan<N>> + '_ {
        self.spans.drain(..)
    }

    /// Keeps transitions for [`KernelStack::take_transitions`], which must be called after each
    /// event from now on.
    pub fn keep_transitions(&mut self) {
        self.keeps_transitions = true;
    }

    /// The transitions since the last call, in order, while a region is open.
    pub fn take_transitions(&mut self) -> impl Iterator<Item = ContextTransition<N>> + '_ {
        self.transitions.drain(..)
    }

    /// Keeps what ends for [`KernelStack::take_requests`] and [`KernelStack::take_blocked`], which must
    /// be called after each event from now on.
    pub fn keep_requests(&mut self) {
        self.keeps_requests = true;
    }

    /// The requests that ended since the last call, and what tasks had used that are no more, while a
    /// region is open.
    pub fn take_requests(&mut self) -> impl Iterator<Item = RequestPart<N>> + '_ {
        self.requests.drain(..)
    }

    /// For what the task was blocked that came back since the last call, for each service that it is in.
    pub fn take_blocked(&mut self) -> impl Iterator<Item = BlockedSpan> + '_ {
        self.blocked.drain(..)
    }

    /// The counts in the region of the frames that are open at `now`.
    pub fn open_parts(&mut self, now: Counts<N>) -> impl Iterator<Item = RequestPart<N>> + '_ {
        self.advance(now);
        open_parts(&self.frames, self.region)
    }

    /// Starts a region of interest: rows start at zero.
    pub fn open_region(&mut self, now: Counts<N>) {
        self.advance(now);
        self.region += 1;
        (self.counting, self.has_left) = (true, false);
        self.ledger = Ledger::default();
        if let Some(profile) = &mut self.profile {
            *profile = (Profile::default(), now[TIME]);
        }
        if self.keeps_requests {
            reset_counts(&mut self.frames);
        }
        self.top_changed();
    }

    /// The rows of the region so far.
    pub fn rows(&mut self, now: Counts<N>) -> &Ledger<N> {
        self.advance(now);
        &self.ledger
    }

    /// The CPU goes offline, which ends the region of interest for it. Its rows stay until the region closes.
    pub fn leave_region(&mut self, now: Counts<N>) {
        self.advance(now);
        self.has_left |= self.counting;
        self.counting = false;
    }

    /// Adds a transition to the context that is on top already: without it, the transitions of a region do not tell
    /// when the region closed.
    pub fn repeat_transition(&mut self, now: Counts<N>) {
        self.advance(now);
        self.top_changed();
    }

    /// Ends the region of interest and returns its rows.
    pub fn close_region(&mut self, now: Counts<N>) -> Ledger<N> {
        self.advance(now);
        (self.counting, self.has_left) = (false, false);
        std::mem::take(&mut self.ledger)
    }

    /// Whether the CPU is in `context`, on top or below.
    #[must_use]
    pub fn is_inside(&self, context: KernelContext) -> bool {
        self.is_inside_any(|inside| inside == context)
    }

    /// Whether the CPU is in any of the contexts for which `is_one` is true, on top or below.
    pub fn is_inside_any(&self, is_one: impl Fn(KernelContext) -> bool) -> bool {
        self.frames.iter().any(|frame| is_one(frame.context))
    }

    /// The return address of the innermost followed function; none if none is open.
    #[must_use]
    pub fn awaits(&self) -> Option<u64> {
        self.frames.iter().rev().find_map(|frame| match frame.entry {
            Entry::Call { return_to, .. } => Some(return_to),
            _ => None,
        })
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

    /// The service that takes a lock: the service on top, or the service below if the top service itself waits for
    /// a lock. The kind of a page fault is known only at its end, so a page fault also gives the number of
    /// frames below it.
    #[must_use]
    pub fn client(&self) -> (KernelContext, Option<usize>) {
        let mut frames = self.frames.iter().enumerate().rev();
        let client = frames.find(|(_, frame)| !matches!(frame.context, KernelContext::LockWait(_)));
        let (depth, frame) = client.unwrap_or((0, &self.frames[0]));
        (frame.service(), frame.is_fault().then_some(depth))
    }

    /// How many frames are open, with the task's.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Events that did not fit so far.
    #[must_use]
    pub fn faults(&self) -> KernelStackFaults {
        self.faults
    }

    /// A system call of task `pid`, which was in user mode.
    pub fn enter_syscall(&mut self, number: u32, pid: u32, now: Counts<N>) {
        self.advance(now);
        self.leave_user_mode(pid);
        self.push(KernelContext::Syscall(number), Entry::Syscall);
    }

    /// An interrupt, exception or NMI whose handler starts with `stack_pointer`. `user` is the task
    /// that was in user mode, if the CPU was.
    pub fn enter_hardware(
        &mut self,
        context: KernelContext,
        stack_pointer: u64,
        user: Option<u32>,
        now: Counts<N>,
    ) {
        self.advance(now);
        if let Some(pid) = user {
            self.leave_user_mode(pid);
        }
        self.push(context, Entry::Hardware { stack_pointer });
    }

    /// A function is called that is followed as `context`: the handler of a softirq or of an IRQ,
    /// or one that an annotation names. `stack_pointer` points at the return address.
    pub fn enter_call(
        &mut self,
        context: KernelContext,
        return_to: u64,
        stack_pointer: u64,
        now: Counts<N>,
    ) {
        self.advance(now);
        self.push(context, Entry::Call { return_to, stack_pointer });
    }

    /// A section of the context on top starts; [`KernelStack::leave_section`] ends it.
    pub fn enter_section(&mut self, context: KernelContext, now: Counts<N>) {
        self.advance(now);
        self.push(context, Entry::Section);
    }

    /// Ends the section on top; returns whether there is one.
    pub fn leave_section(&mut self, now: Counts<N>) -> bool {
        let is_section = self.top().entry == Entry::Section;
        if is_section {
            self.advance(now);
            self.close_down_to(self.frames.len() - 1);
        }
        is_section
    }

    /// Ends the innermost section of `context`, if nothing but functions and sections is nested in
    /// it; returns whether there is one.
    pub fn leave_section_of(&mut self, context: KernelContext, now: Counts<N>) -> bool {
        let is_followed =
            |frame: &&Frame<N>| matches!(frame.entry, Entry::Section | Entry::Call { .. });
        let above = self.frames.iter().rev().take_while(is_followed);
        let found = above
            .enumerate()
            .find(|(_, frame)| frame.context == context && frame.entry == Entry::Section);
        let Some(depth) = found.map(|(depth, _)| depth) else { return false };
        self.advance(now);
        self.close_down_to(self.frames.len() - 1 - depth);
        true
    }

    /// The CPU is at `address` with `stack_pointer`: the followed functions that return there have
    /// returned. There may be several, as a function can end with a jump to another one.
    pub fn at_return_address(&mut self, address: u64, stack_pointer: u64, now: Counts<N>) {
        let called_from = stack_pointer.wrapping_sub(8);
        let entry = Entry::Call { return_to: address, stack_pointer: called_from };
        while let Some(position) = self.frames.iter().rposition(|frame| frame.entry == entry) {
            self.advance(now);
            self.close_down_to(position);
        }
    }

    /// An `iret` to the kernel, with the return address at `stack_pointer`. The handler started
    /// there, or one word lower if the processor had pushed an error code, or up to six words
    /// higher if it moved its frame to make room for a call it emulates (`int3`). Nested handlers
    /// start deeper, below the registers that this one saved.
    pub fn return_to_kernel(&mut self, stack_pointer: u64, now: Counts<N>) {
        self.advance(now);
        let returns = |frame: &Frame<N>| match frame.entry {
            Entry::Hardware { stack_pointer: started } => {
                started.wrapping_add(ERROR_CODE_BYTES).wrapping_sub(stack_pointer) <= RETURN_WINDOW
            }
            _ => false,
        };
        let position = self.frames.iter().rposition(returns).or_else(|| {
            // The handler of the NMI copies its frame, to survive another NMI.
            let is_nmi = |frame: &Frame<N>| frame.context == KernelContext::Nmi;
            self.frames.last().is_some_and(is_nmi).then(|| self.frames.len() - 1)
        });
        match position {
            Some(position) => self.close_down_to(position),
            None => self.faults.unmatched_returns += 1,
        }
    }

    /// The CPU returns to user mode of task `pid`: all contexts above the task end.
    pub fn return_to_user(&mut self, pid: u32, now: Counts<N>) {
        self.advance(now);
        if self.frames.len() > 1 {
            self.close_down_to(1);
        }
        self.set_task(KernelContext::User(pid));
    }

    /// The kernel brings in a page. Returns whether that is part of a fault that is open; if not, it is
    /// to be followed as a function.
    pub fn is_in_fault(&self) -> bool {
        self.top().is_fault()
    }

    /// The page fault on top turns out to be of this kind, or of a more specific one.
    pub fn classify_fault(&mut self, kind: FaultKind) {
        if let Some(top) = self.frames.last_mut().filter(|top| top.is_fault()) {
            top.fault = top.fault.max(kind);
        }
    }

    /// The page fault on top starts to read pages ahead which nobody waits for, or looks for its page
    /// again.
    pub fn read_ahead(&mut self, reads_ahead: bool) {
        if let Some(top) = self.frames.last_mut() {
            top.reads_ahead = reads_ahead;
        }
    }

    /// Whether the page fault on top reads pages ahead which nobody waits for.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        self.top().reads_ahead
    }

    /// The kind of the page fault on top, so far.
    #[must_use]
    pub fn fault(&self) -> Option<FaultKind> {
        Some(self.top()).filter(|top| top.is_fault()).map(|top| top.fault)
    }

    /// The task has called a function that waits. `wait` is the caller's number for the function; not 0.
    pub fn enter_wait(&mut self, wait: u32, stack_pointer: u64) {
        self.leave_waits(stack_pointer);
        if self.time.waits.len() < WAITS_MAX {
            self.time.waits.push((stack_pointer, wait));
        }
    }

    /// Whether the task is in a function that waits.
    pub fn is_in_wait(&mut self, stack_pointer: u64) -> bool {
        self.leave_waits(stack_pointer);
        !self.time.waits.is_empty()
    }

    /// Forgets functions that have returned: the stack grows downwards.
    fn leave_waits(&mut self, stack_pointer: u64) {
        let is_open = |wait: &(u64, u32)| wait.0 > stack_pointer;
        let open = self.time.waits.iter().take_while(|wait| is_open(wait)).count();
        self.time.waits.truncate(open);
    }

    /// The task leaves the CPU at `now` on the clock of [`KernelStack::arrive`]: to wait, or although it
    /// could run.
    pub fn leave(&mut self, blocks: bool, stack_pointer: u64, now: u64) {
        self.leave_waits(stack_pointer);
        let wait = self.time.waits.last().map_or(0, |wait| wait.1);
        let region = if self.counting { self.region } else { 0 };
        self.time.away = Some(Away { since: now, blocks, woken_at: None, wait, region });
    }

    /// The task that runs from now on came back at `now`.
    pub fn arrive(&mut self, now: u64) {
        let Some(away) = self.time.away.take() else { return };
        let off = away.off(now);
        self.time.off.blocked += off.blocked;
        self.time.off.descheduled += off.descheduled;
        if !(self.keeps_requests && self.counting && away.blocks && away.region == self.region) {
            return;
        }
        for frame in &self.frames[1..] {
            if frame.context != KernelContext::Scheduler {
                let (service, wait, blocked) = (frame.service(), away.wait, off.blocked);
                self.blocked.push(BlockedSpan { service, wait, blocked });
            }
        }
    }

    /// The task has ended, and so have all contexts above it.
    pub fn end_task(&mut self, now: Counts<N>) {
        self.advance(now);
        while self.frames.len() > 1 {
            self.close_down_to(self.frames.len() - 1);
        }
        self.retire_bottom();
    }

    /// The task at the bottom, if it was unknown, is `task`; the contexts above it stay.
    pub fn identify(&mut self, task: KernelContext, now: Counts<N>) {
        self.advance(now);
        if self.frames[0].context == KernelContext::Unknown {
            self.set_task(task);
        }
    }

    /// The task starts again as `task`, with no context above it.
    pub fn restart(&mut self, task: KernelContext, now: Counts<N>) {
        self.advance(now);
        self.abandon_all();
        self.set_task(task);
    }

    /// Switches to the stack of another task. Returns the stack of the task that ran until now.
    pub fn switch_to(&mut self, next: Frames<N>, now: Counts<N>) -> Frames<N> {
        self.advance(now);
        let frames = std::mem::replace(&mut self.frames, next.frames);
        let time = std::mem::replace(&mut self.time, next.time);
        if let Some(task) = self.frames.first()
            && self.counting
        {
            self.ledger.enter(task.context);
        }
        self.top_changed();
        self.run = self.run_of_thread();
        Frames { frames, time }
    }

    /// The run that starts when the current task comes back to the CPU, if it is a kernel thread.
    fn run_of_thread(&self) -> Option<Run<N>> {
        let bottom = self.frames.first()?;
        let is_thread = matches!(bottom.context, KernelContext::KernelThread(_));
        is_thread.then(|| Run {
            start: self.charged_to[0],
            region: if self.counting { self.region } else { 0 },
            self_counts: bottom.self_counts,
            inclusive: self.used_by_all(),
        })
    }

    /// The sum of the counts of all frames of the current task.
    fn used_by_all(&self) -> Counts<N> {
        let mut sum = [0; N];
        for frame in &self.frames {
            add(&mut sum, &frame.inclusive());
        }
        sum
    }

    /// The kernel thread that runs is about to leave the CPU, and its runs count as spans. One that started
    /// before the region is in none.
    pub fn complete_run(&mut self, now: Counts<N>) {
        self.advance(now);
        let Some(run) = self.run.take().filter(|run| self.counting && run.region == self.region)
        else {
            return;
        };
        let Some(bottom) = self.frames.first() else { return };
        let less = |all: Counts<N>, before: Counts<N>| {
            std::array::from_fn(|index| all[index].saturating_sub(before[index]))
        };
        let context = bottom.context;
        let self_counts = less(bottom.self_counts, run.self_counts);
        let inclusive = less(self.used_by_all(), run.inclusive);
        self.ledger.complete(context, &inclusive);
        if self.keeps_spans {
            self.spans.push(KernelSpan { context, start: run.start, self_counts, inclusive });
        }
    }

    fn top(&self) -> &Frame<N> {
        &self.frames[self.frames.len() - 1]
    }

    /// Charges the counts since the last event to the context on top.
    fn advance(&mut self, now: Counts<N>) {
        let mut amount = [0; N];
        for (index, amount) in amount.iter_mut().enumerate() {
            let Some(used) = now[index].checked_sub(self.charged_to[index]) else {
                self.faults.backward += 1;
                return;
            };
            *amount = used;
        }
        let from = std::mem::replace(&mut self.charged_to, now);
        if !self.counting {
            if self.has_left {
                self.frames.iter_mut().for_each(|frame| frame.is_partial = true);
            }
            return;
        }
        if let Some(top) = self.frames.last_mut() {
            add(&mut top.self_counts, &amount);
            self.ledger.charge_at(self.place, &amount);
            if let Some((profile, opened_at)) = &mut self.profile {
                let from = from[TIME].saturating_sub(*opened_at);
                profile.charge(Mode::of(top.context), from, amount[TIME], &amount);
            }
        }
    }

    /// Another context is on top: finds its row.
    fn top_changed(&mut self) {
        if !self.counting {
            return;
        }
        let (context, task) = (self.top().context, self.frames[0].context);
        self.place = self.ledger.row_position(context);
        if self.keeps_transitions {
            self.transitions.push(ContextTransition { context, task, at: self.charged_to });
        }
    }

    fn leave_user_mode(&mut self, pid: u32) {
        self.abandon_all();
        if self.frames[0].context != KernelContext::User(pid) {
            self.set_task(KernelContext::User(pid));
        }
    }

    fn abandon_all(&mut self) {
        self.faults.abandoned += self.frames.len() as u64 - 1;
        for position in (1..self.frames.len()).rev() {
            self.end_request(position, None);
        }
        self.frames.truncate(1);
        self.time.waits.clear();
        self.top_changed();
    }

    /// The task at the bottom is no more what it was, or is no more: charges what it used.
    fn retire_bottom(&mut self) {
        self.end_request(0, None);
        self.frames[0].self_counts = [0; N];
    }

    /// Charges the frame at `position`, which ends, to its service.
    fn end_request(&mut self, position: usize, inclusive: Option<Counts<N>>) {
        if !(self.keeps_requests && (self.counting || self.has_left)) {
            return;
        }
        let frame = &self.frames[position];
        let is_new = frame.entry != Entry::Bottom && frame.region == self.region;
        let off = self.time.off.since(frame.off);
        let is_whole = is_new && self.counting && !frame.is_partial;
        let completed =
            if is_whole { inclusive.map(|inclusive| Completed { inclusive, off }) } else { None };
        let (service, self_counts) = (frame.service(), frame.self_counts);
        let depth = position;
        self.requests.push(RequestPart { service, self_counts, depth, is_new, completed });
    }

    fn set_task(&mut self, task: KernelContext) {
        if self.frames[0].context != task {
            self.retire_bottom();
            self.frames[0].context = task;
            if self.counting {
                self.ledger.enter(task);
            }
            self.top_changed();
        }
    }

    fn push(&mut self, context: KernelContext, entry: Entry) {
        if self.frames.len() == DEPTH_MAX {
            self.faults.overflows += 1;
            return;
        }
        let mut frame = Frame::new(context, entry);
        frame.start = self.charged_to[0];
        frame.off = self.time.off;
        if entry == Entry::Syscall {
            self.time.waits.clear();
        }
        frame.region = if self.counting { self.region } else { 0 };
        self.frames.push(frame);
        if self.counting {
            self.ledger.enter(context);
        }
        self.top_changed();
    }

    /// Closes the frame at `position` and drops those above it. `position` is not 0.
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
        self.frames.truncate(position);
        if let Some(parent) = self.frames.last_mut() {
            add(&mut parent.nested, &inclusive);
        }
        if self.counting && frame.region == self.region && !frame.is_partial {
            self.ledger.complete(frame.context, &inclusive);
            self.keep_span(&frame, inclusive);
        }
        self.top_changed();
    }

    fn keep_span(&mut self, frame: &Frame<N>, inclusive: Counts<N>) {
        // System calls are in the ledger only: there are many, and some never end.
        let is_kept = !matches!(frame.entry, Entry::Bottom | Entry::Syscall);
        if self.keeps_spans && is_kept {
            let Frame { context, start, self_counts, .. } = *frame;
            self.spans.push(KernelSpan { context, start, self_counts, inclusive });
        }
    }
}
