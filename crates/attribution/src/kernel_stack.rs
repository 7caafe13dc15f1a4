//! The context stack of a simulated CPU: which context each instruction belongs to.
//!
//! At the foot of the stack is the task (user mode, kernel thread, idle); above it are the system
//! call, exceptions, interrupts and softirqs it is inside of. The stack belongs to the *task*, as
//! its kernel stack does: a task that is switched away in the middle of a page fault is in that
//! fault still when it comes back, on whichever CPU.
//!
//! ```text
//! user 7       |====|                                  |====|     own = the "="
//! syscall 0         |===|                          |===|
//! softirq NET_RX                                                  inclusive = from entry to exit,
//! interrupt 0xec        |==|    |=|                               without other tasks
//! idle                     |====|  (7 waits; 0xec wakes it)
//! ```
//!
//! Frames are told apart by what the processor does: a frame of an interrupt or exception by the
//! stack pointer with which its handler starts, which is where its `iret` returns from; a softirq by
//! the return address of its handler.

use crate::frames::{Entry, Frame, Frames, KernelSpan, KernelTurn};
use crate::kernel_context::KernelContext;
use crate::ledger::{Counts, Ledger, add};
use crate::stack::DEPTH_MAX;

/// What the processor may push below the return address.
const ERROR_CODE_BYTES: u64 = 8;
/// From where a handler starts, with an error code, down to where it may return from.
const RETURN_WINDOW: u64 = ERROR_CODE_BYTES + 6 * 8;

/// Events that did not fit, since the stack was made.
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
    /// Events whose count was lower than that of the event before. Sums are broken then.
    pub backward: u64,
}

/// The context stack of one CPU. `now` is what the CPU has counted so far.
#[derive(Clone, Debug)]
pub struct KernelStack<const N: usize = 1> {
    frames: Vec<Frame<N>>,
    charged_to: Counts<N>,
    region: u32,
    counting: bool,
    keeps_spans: bool,
    keeps_turns: bool,
    ledger: Ledger<N>,
    /// Where in the ledger the row of the context on top is.
    place: usize,
    spans: Vec<KernelSpan<N>>,
    turns: Vec<KernelTurn<N>>,
    faults: KernelStackFaults,
}

impl<const N: usize> Default for KernelStack<N> {
    fn default() -> Self {
        KernelStack {
            frames: Frames::new(KernelContext::Unknown).0,
            charged_to: [0; N],
            region: 0,
            counting: false,
            keeps_spans: false,
            keeps_turns: false,
            ledger: Ledger::default(),
            place: 0,
            spans: Vec::new(),
            turns: Vec::new(),
            faults: KernelStackFaults::default(),
        }
    }
}

impl<const N: usize> KernelStack<N> {
    /// Has spans kept for [`KernelStack::take_spans`], which is to be called after each event then.
    pub fn keep_spans(&mut self) {
        self.keeps_spans = true;
    }

    /// The spans that ended since the last call: those of hardware and of calls.
    pub fn take_spans(&mut self) -> impl Iterator<Item = KernelSpan<N>> + '_ {
        self.spans.drain(..)
    }

    /// Has turns kept for [`KernelStack::take_turns`], which is to be called after each event then.
    pub fn keep_turns(&mut self) {
        self.keeps_turns = true;
    }

    /// What came to be on top since the last call, in order; while a region is open.
    pub fn take_turns(&mut self) -> impl Iterator<Item = KernelTurn<N>> + '_ {
        self.turns.drain(..)
    }

    /// Begins a region of interest: rows start at zero.
    pub fn open_region(&mut self, now: Counts<N>) {
        self.advance(now);
        self.region += 1;
        self.counting = true;
        self.ledger = Ledger::default();
        self.top_changed();
    }

    /// The rows of the region so far.
    pub fn rows(&mut self, now: Counts<N>) -> &Ledger<N> {
        self.advance(now);
        &self.ledger
    }

    /// Ends the region of interest and hands its rows over.
    pub fn close_region(&mut self, now: Counts<N>) -> Ledger<N> {
        self.advance(now);
        self.counting = false;
        std::mem::take(&mut self.ledger)
    }

    /// Whether the CPU is inside of `context`, on top or below.
    #[must_use]
    pub fn is_inside(&self, context: KernelContext) -> bool {
        self.frames.iter().any(|frame| frame.context == context)
    }

    /// Where the function that was called last, of those that are followed, returns to; none if
    /// none is open.
    #[must_use]
    pub fn awaits(&self) -> Option<u64> {
        self.frames.iter().rev().find_map(|frame| match frame.entry {
            Entry::Call { return_to, .. } => Some(return_to),
            _ => None,
        })
    }

    /// What the CPU executes for now.
    #[must_use]
    pub fn context(&self) -> KernelContext {
        self.top().context
    }

    /// How many frames are open, with the foot.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// What did not fit, so far.
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

    /// A function is called that is followed as `context`: the handler of a softirq or of an IRQ, or
    /// one that was asked for. `stack_pointer` points at the return address.
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

    /// A part of what the CPU executes for begins; it ends by [`KernelStack::leave_part`].
    pub fn enter_part(&mut self, context: KernelContext, now: Counts<N>) {
        self.advance(now);
        self.push(context, Entry::Part);
    }

    /// The part on top ends; whether there is one.
    pub fn leave_part(&mut self, now: Counts<N>) -> bool {
        let is_part = self.top().entry == Entry::Part;
        if is_part {
            self.advance(now);
            self.close_down_to(self.frames.len() - 1);
        }
        is_part
    }

    /// The innermost part that is `context` ends, if nothing but functions and parts is nested in it;
    /// whether there is one.
    pub fn leave_part_of(&mut self, context: KernelContext, now: Counts<N>) -> bool {
        let is_of_ours =
            |frame: &&Frame<N>| matches!(frame.entry, Entry::Part | Entry::Call { .. });
        let above = self.frames.iter().rev().take_while(is_of_ours);
        let found = above
            .enumerate()
            .find(|(_, frame)| frame.context == context && frame.entry == Entry::Part);
        let Some(depth) = found.map(|(depth, _)| depth) else { return false };
        self.advance(now);
        self.close_down_to(self.frames.len() - 1 - depth);
        true
    }

    /// The CPU is at `address` with `stack_pointer`, to where a function that is followed may have
    /// returned; so may one that it ended with a jump to.
    pub fn at_return_address(&mut self, address: u64, stack_pointer: u64, now: Counts<N>) {
        let called_from = stack_pointer.wrapping_sub(8);
        let entry = Entry::Call { return_to: address, stack_pointer: called_from };
        while let Some(position) = self.frames.iter().rposition(|frame| frame.entry == entry) {
            self.advance(now);
            self.close_down_to(position);
        }
    }

    /// An `iret` to the kernel, with the return address at `stack_pointer`. The handler started
    /// there, or one word lower if the processor had pushed an error code, or up to six words higher
    /// if it moved its frame to make room for a call it emulates (`int3`). Nested handlers start
    /// deeper, below the registers that this one saved.
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

    /// The CPU goes to user mode of task `pid`; all the task was inside of ends.
    pub fn return_to_user(&mut self, pid: u32, now: Counts<N>) {
        self.advance(now);
        if self.frames.len() > 1 {
            self.close_down_to(1);
        }
        self.set_foot(KernelContext::User(pid));
    }

    /// The task at the foot, if nothing was known of it, is `foot`; what it is inside of stays.
    pub fn identify(&mut self, foot: KernelContext, now: Counts<N>) {
        self.advance(now);
        if self.frames[0].context == KernelContext::Unknown {
            self.set_foot(foot);
        }
    }

    /// The task starts anew as `foot`, inside of nothing.
    pub fn restart(&mut self, foot: KernelContext, now: Counts<N>) {
        self.advance(now);
        self.abandon_all();
        self.set_foot(foot);
    }

    /// Another task runs from here on. Returns the stack of the one that ran.
    pub fn switch_to(&mut self, next: Frames<N>, now: Counts<N>) -> Frames<N> {
        self.advance(now);
        let previous = std::mem::replace(&mut self.frames, next.0);
        if let Some(foot) = self.frames.first()
            && self.counting
        {
            self.ledger.enter(foot.context);
        }
        self.top_changed();
        Frames(previous)
    }

    fn top(&self) -> &Frame<N> {
        &self.frames[self.frames.len() - 1]
    }

    /// Charges what was used since the last event to the context that was on top.
    fn advance(&mut self, now: Counts<N>) {
        let mut amount = [0; N];
        for (index, amount) in amount.iter_mut().enumerate() {
            let Some(used) = now[index].checked_sub(self.charged_to[index]) else {
                self.faults.backward += 1;
                return;
            };
            *amount = used;
        }
        self.charged_to = now;
        if !self.counting {
            return;
        }
        if let Some(top) = self.frames.last_mut() {
            add(&mut top.own, &amount);
            self.ledger.charge_at(self.place, &amount);
        }
    }

    /// Another context is on top: finds the row that it is charged to.
    fn top_changed(&mut self) {
        if !self.counting {
            return;
        }
        let (context, foot) = (self.top().context, self.frames[0].context);
        self.place = self.ledger.place(context);
        if self.keeps_turns {
            self.turns.push(KernelTurn { context, foot, at: self.charged_to });
        }
    }

    fn leave_user_mode(&mut self, pid: u32) {
        self.abandon_all();
        if self.frames[0].context != KernelContext::User(pid) {
            self.set_foot(KernelContext::User(pid));
        }
    }

    fn abandon_all(&mut self) {
        self.faults.abandoned += self.frames.len() as u64 - 1;
        self.frames.truncate(1);
        self.top_changed();
    }

    fn set_foot(&mut self, foot: KernelContext) {
        if self.frames[0].context != foot {
            self.frames[0].context = foot;
            if self.counting {
                self.ledger.enter(foot);
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
        frame.began = self.charged_to[0];
        frame.region = if self.counting { self.region } else { 0 };
        self.frames.push(frame);
        if self.counting {
            self.ledger.enter(context);
        }
        self.top_changed();
    }

    /// Ends the frame at `position` and drops those above it. `position` is not the foot's.
    fn close_down_to(&mut self, position: usize) {
        self.faults.abandoned += (self.frames.len() - position - 1) as u64;
        let mut frame = self.frames[position];
        for above in &self.frames[position + 1..] {
            add(&mut frame.nested, &above.own);
            add(&mut frame.nested, &above.nested);
        }
        let inclusive = frame.inclusive();
        self.frames.truncate(position);
        if let Some(parent) = self.frames.last_mut() {
            add(&mut parent.nested, &inclusive);
        }
        if self.counting && frame.region == self.region {
            self.ledger.complete(frame.context, &inclusive);
            self.keep_span(&frame, inclusive);
        }
        self.top_changed();
    }

    fn keep_span(&mut self, frame: &Frame<N>, inclusive: Counts<N>) {
        // System calls are told from the ledger: there are too many, and they may never end.
        let is_kept = !matches!(frame.entry, Entry::Foot | Entry::Syscall);
        if self.keeps_spans && is_kept {
            let Frame { context, began, own, .. } = *frame;
            self.spans.push(KernelSpan { context, began, own, inclusive });
        }
    }
}
