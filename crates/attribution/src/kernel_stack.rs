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

use crate::kernel_context::KernelContext;
use crate::ledger::Ledger;
use crate::stack::DEPTH_MAX;

/// What the processor may push below the return address.
const ERROR_CODE_BYTES: u64 = 8;
/// From where a handler starts, with an error code, down to where it may return from.
const RETURN_WINDOW: u64 = ERROR_CODE_BYTES + 6 * 8;

/// How a frame came to be, and so how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// The foot of the stack; it ends by becoming another.
    Foot,
    /// `syscall`: ends with the return to user mode.
    Syscall,
    /// Interrupt or exception: ends with an `iret` at this stack pointer.
    Hardware { stack_pointer: u64 },
    /// A function: ends at its return address with the stack pointer above it.
    Call { return_to: u64, stack_pointer: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    context: KernelContext,
    entry: Entry,
    own: u64,
    nested: u64,
    /// The region of interest in which the span began; 0 for none.
    region: u32,
}

/// The stack of a task that is not running.
#[derive(Clone, Debug)]
pub struct Frames(Vec<Frame>);

impl Frames {
    /// A stack with nothing but its foot.
    #[must_use]
    pub fn new(foot: KernelContext) -> Frames {
        let mut frames = Vec::with_capacity(4);
        frames.push(Frame { context: foot, entry: Entry::Foot, own: 0, nested: 0, region: 0 });
        Frames(frames)
    }
}

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

/// The context stack of one CPU. `now` is the CPU's count of instructions (or cycles); it must not
/// decrease from call to call.
#[derive(Clone, Debug)]
pub struct KernelStack {
    frames: Vec<Frame>,
    charged_to: u64,
    region: u32,
    counting: bool,
    ledger: Ledger,
    faults: KernelStackFaults,
}

impl Default for KernelStack {
    fn default() -> Self {
        KernelStack {
            frames: Frames::new(KernelContext::Unknown).0,
            charged_to: 0,
            region: 0,
            counting: false,
            ledger: Ledger::default(),
            faults: KernelStackFaults::default(),
        }
    }
}

impl KernelStack {
    /// Begins a region of interest: rows start at zero.
    pub fn open_region(&mut self, now: u64) {
        self.advance(now);
        self.region += 1;
        self.counting = true;
        self.ledger = Ledger::default();
    }

    /// The rows of the region so far.
    pub fn rows(&mut self, now: u64) -> &Ledger {
        self.advance(now);
        &self.ledger
    }

    /// Ends the region of interest and hands its rows over.
    pub fn close_region(&mut self, now: u64) -> Ledger {
        self.advance(now);
        self.counting = false;
        std::mem::take(&mut self.ledger)
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
    pub fn enter_syscall(&mut self, number: u32, pid: u32, now: u64) {
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
        now: u64,
    ) {
        self.advance(now);
        if let Some(pid) = user {
            self.leave_user_mode(pid);
        }
        self.push(context, Entry::Hardware { stack_pointer });
    }

    /// The handler of a softirq is called; `stack_pointer` points at the return address.
    pub fn enter_softirq(&mut self, number: u8, return_to: u64, stack_pointer: u64, now: u64) {
        self.advance(now);
        self.push(KernelContext::Softirq(number), Entry::Call { return_to, stack_pointer });
    }

    /// The CPU is at `address` with `stack_pointer`, to where a softirq's handler may have returned.
    pub fn at_return_address(&mut self, address: u64, stack_pointer: u64, now: u64) {
        let called_from = stack_pointer.wrapping_sub(8);
        let entry = Entry::Call { return_to: address, stack_pointer: called_from };
        if let Some(position) = self.frames.iter().rposition(|frame| frame.entry == entry) {
            self.advance(now);
            self.close_down_to(position);
        }
    }

    /// An `iret` to the kernel, with the return address at `stack_pointer`. The handler started
    /// there, or one word lower if the processor had pushed an error code, or up to six words higher
    /// if it moved its frame to make room for a call it emulates (`int3`). Nested handlers start
    /// deeper, below the registers that this one saved.
    pub fn return_to_kernel(&mut self, stack_pointer: u64, now: u64) {
        self.advance(now);
        let returns = |frame: &Frame| match frame.entry {
            Entry::Hardware { stack_pointer: started } => {
                started.wrapping_add(ERROR_CODE_BYTES).wrapping_sub(stack_pointer) <= RETURN_WINDOW
            }
            _ => false,
        };
        let position = self.frames.iter().rposition(returns).or_else(|| {
            // The handler of the NMI copies its frame, to survive another NMI.
            let is_nmi = |frame: &Frame| frame.context == KernelContext::Nmi;
            self.frames.last().is_some_and(is_nmi).then(|| self.frames.len() - 1)
        });
        match position {
            Some(position) => self.close_down_to(position),
            None => self.faults.unmatched_returns += 1,
        }
    }

    /// The CPU goes to user mode of task `pid`; all the task was inside of ends.
    pub fn return_to_user(&mut self, pid: u32, now: u64) {
        self.advance(now);
        if self.frames.len() > 1 {
            self.close_down_to(1);
        }
        self.set_foot(KernelContext::User(pid));
    }

    /// The task at the foot, if nothing was known of it, is `foot`; what it is inside of stays.
    pub fn identify(&mut self, foot: KernelContext, now: u64) {
        self.advance(now);
        if self.frames[0].context == KernelContext::Unknown {
            self.set_foot(foot);
        }
    }

    /// The task starts anew as `foot`, inside of nothing.
    pub fn restart(&mut self, foot: KernelContext, now: u64) {
        self.advance(now);
        self.abandon_all();
        self.set_foot(foot);
    }

    /// Another task runs from here on. Returns the stack of the one that ran.
    pub fn switch_to(&mut self, next: Frames, now: u64) -> Frames {
        self.advance(now);
        let previous = std::mem::replace(&mut self.frames, next.0);
        if let Some(foot) = self.frames.first()
            && self.counting
        {
            self.ledger.enter(foot.context);
        }
        Frames(previous)
    }

    fn top(&self) -> &Frame {
        &self.frames[self.frames.len() - 1]
    }

    /// Charges what was executed since the last event to the context that was on top.
    fn advance(&mut self, now: u64) {
        let Some(amount) = now.checked_sub(self.charged_to) else {
            self.faults.backward += 1;
            return;
        };
        self.charged_to = now;
        if !self.counting {
            return;
        }
        if let Some(top) = self.frames.last_mut() {
            top.own += amount;
            self.ledger.charge(top.context, amount);
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
    }

    fn set_foot(&mut self, foot: KernelContext) {
        if self.frames[0].context != foot {
            self.frames[0].context = foot;
            if self.counting {
                self.ledger.enter(foot);
            }
        }
    }

    fn push(&mut self, context: KernelContext, entry: Entry) {
        if self.frames.len() == DEPTH_MAX {
            self.faults.overflows += 1;
            return;
        }
        let region = if self.counting { self.region } else { 0 };
        self.frames.push(Frame { context, entry, own: 0, nested: 0, region });
        if self.counting {
            self.ledger.enter(context);
        }
    }

    /// Ends the frame at `position` and drops those above it. `position` is not the foot's.
    fn close_down_to(&mut self, position: usize) {
        self.faults.abandoned += (self.frames.len() - position - 1) as u64;
        let nested_above = self.frames[position + 1..].iter().map(|above| above.own + above.nested);
        let nested_above: u64 = nested_above.sum();
        let frame = self.frames[position];
        let inclusive = frame.own + frame.nested + nested_above;
        self.frames.truncate(position);
        if let Some(parent) = self.frames.last_mut() {
            parent.nested += inclusive;
        }
        if self.counting && frame.region == self.region {
            self.ledger.complete(frame.context, inclusive);
        }
    }
}
