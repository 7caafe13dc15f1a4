//! Splits a gap of the detour loop into its causes, by the kernel's marks. The ledger (`ledger.rs`) calls [`split`] for
//! each traced gap, and the live bench for each traced quantum. An invariant: the parts add up to the gap, to the
//! nanosecond.
//!
//! ```text
//!  loop ... |<----------------------------- gap ----------------------------->| ... loop
//!           |  entry  | local_timer | between |  SCHED  | task make |  exit   |
//! marks:              E             L         E         L/S         S
//! ```
//!
//! The marks are E: enter a context, L: leave a context, S: switch the task. Each nanosecond goes to the innermost
//! context that is open at that time.

/// A gap in the progress of the loop, on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last reading of the clock before the gap, ns.
    pub start_ns: u64,
    /// The first reading of the clock after the gap, ns. Not before `start_ns`.
    pub end_ns: u64,
}

impl Gap {
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// An event that the kernel reported on the loop's CPU. Its time is by the loop's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub at_ns: u64,
    pub what: What,
}

/// The event at a mark. A number identifies a context or a task. The bench gives the names in
/// [`super::NoiseSample::names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The numbered context starts.
    Enter(u32),
    /// The numbered context ends.
    Leave(u32),
    /// The numbered task runs from this time on.
    SwitchTo(u32),
    /// The loop's task runs from this time on.
    SwitchBack,
    /// The measured thread is woken, by the CPU with this number. The loops of `noise` never sleep; only `wakeup` asks for
    /// these marks.
    Wake(u32),
    /// The loop has a page fault. The kernel does not report the end: the fault ends when the loop resumes.
    Fault,
}

/// The cause of a part of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The context or the task with this number, which the kernel named.
    Context(u32),
    /// A page fault of the loop.
    Fault,
    /// Kernel entry before the first event, at most as long as the measured entry latency.
    Entry,
    /// Kernel exit after the last event, at most as long as the measured exit latency.
    Exit,
    /// A gap without kernel events. A host or the firmware took the CPU.
    NoEvent,
    /// Time before the kernel's first event, in excess of the entry latency. In this time, the host had not yet
    /// injected the interrupt, or the firmware ran.
    Late,
    /// Time in the kernel between two events, outside of all contexts.
    Between,
    /// Time after the kernel's last event, in excess of the exit latency.
    Tail,
    /// The loop's own time, in excess of an undisturbed iteration. Only a bench that sees every cycle knows this time.
    Own,
    /// Time that a bench that sees every cycle cannot name.
    Unknown,
}

/// How well a part is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The kernel named the cause.
    Named,
    /// Kernel entry and exit. No event shows them, but the measured latency bounds them.
    Path,
    /// The kernel reports no event in this time. By elimination, the host or the firmware took it. This does not
    /// count as explained, because no observation shows it.
    Unattributed,
    /// Time that is not explained, and in which the kernel may have run.
    Remainder,
    /// The loop itself ran slower, because its caches were colder.
    Aftermath,
}

impl Class {
    /// All classes, in the order of the tables.
    pub const ALL: [Class; 5] =
        [Class::Named, Class::Path, Class::Unattributed, Class::Remainder, Class::Aftermath];

    /// Name of the class in tables. Users' programs read it: it must not change.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Class::Named => "attributed",
            Class::Path => "entry/exit",
            Class::Unattributed => "unattributed (host or firmware)",
            Class::Remainder => "remainder",
            Class::Aftermath => "indirect",
        }
    }

    /// Whether time of the class counts as explained. Explained time is named by an event, or bounded by the measured
    /// latency of kernel entry and exit, or observed cycle by cycle.
    #[must_use]
    pub fn is_explained(self) -> bool {
        match self {
            Class::Named | Class::Path | Class::Aftermath => true,
            Class::Unattributed | Class::Remainder => false,
        }
    }
}

impl Part {
    /// The class of the part. The class does not depend on whether the machine is virtual: firmware that interrupts the
    /// kernel (SMM) looks like a host.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Part::Context(_) | Part::Fault => Class::Named,
            Part::Entry | Part::Exit => Class::Path,
            Part::NoEvent | Part::Late => Class::Unattributed,
            Part::Between | Part::Tail | Part::Unknown => Class::Remainder,
            Part::Own => Class::Aftermath,
        }
    }
}

/// Parameters of the attribution of a gap's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributionParameters {
    /// Upper bound on the kernel's entry latency and on its exit latency, measured without a host, ns. If it is 0,
    /// nothing was measured, and no time counts as kernel entry or exit.
    pub entry_latency_ns: u64,
}

/// Counts of inconsistencies among the marks of a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitFaults {
    /// Number of contexts that ended without a start in the gap.
    pub unmatched: u64,
    /// Number of contexts and tasks without a reported end. The end of an outer context, a task switch or the gap's end
    /// ends them.
    pub cut: u64,
}

impl SplitFaults {
    /// Adds the faults of another gap.
    pub fn add(&mut self, other: SplitFaults) {
        self.unmatched += other.unmatched;
        self.cut += other.cut;
    }
}

/// Maximum depth of nested contexts. The time of deeper contexts counts for their outer context.
const DEPTH_MAX: usize = 32;

/// Splits `gap` by `marks`, which must be in the order of time, and appends its parts to `out` in the order of time.
/// Leaves out parts of length 0. The parts add up to the gap's length.
pub fn split(
    gap: Gap,
    marks: &[Mark],
    parameters: AttributionParameters,
    out: &mut Vec<(Part, u64)>,
) -> SplitFaults {
    let mut open_contexts = OpenContexts::default();
    let mut now_ns = gap.start_ns;
    for mark in marks {
        let at_ns = mark.at_ns.clamp(now_ns, gap.end_ns.max(now_ns));
        let passed_ns = at_ns - now_ns;
        // Attributes the time since the previous mark.
        match open_contexts.innermost() {
            Some(part) => push_part(out, part, passed_ns),
            None if open_contexts.has_marks => push_part(out, Part::Between, passed_ns),
            None => {
                let entry_ns = passed_ns.min(parameters.entry_latency_ns);
                push_part(out, Part::Late, passed_ns - entry_ns);
                push_part(out, Part::Entry, entry_ns);
            }
        }
        now_ns = at_ns;
        open_contexts.apply(mark.what);
    }
    let passed_ns = gap.end_ns.saturating_sub(now_ns);
    match open_contexts.innermost() {
        Some(part) => push_part(out, part, passed_ns),
        None if open_contexts.has_marks => {
            let exit_ns = passed_ns.min(parameters.entry_latency_ns);
            push_part(out, Part::Exit, exit_ns);
            push_part(out, Part::Tail, passed_ns - exit_ns);
        }
        None => push_part(out, Part::NoEvent, passed_ns),
    }
    open_contexts.faults.cut +=
        open_contexts.stack.iter().filter(|part| **part != Part::Fault).count() as u64;
    open_contexts.faults.cut += u64::from(open_contexts.task.is_some());
    open_contexts.faults
}

/// Appends a part, unless its length is 0.
fn push_part(out: &mut Vec<(Part, u64)>, part: Part, length_ns: u64) {
    if length_ns > 0 {
        out.push((part, length_ns));
    }
}

/// The contexts that have started and not ended, at a point of the gap.
#[derive(Default)]
struct OpenContexts {
    /// The task that runs instead of the loop.
    task: Option<u32>,
    /// The open contexts, the innermost last.
    stack: Vec<Part>,
    /// Whether the loop was in a page fault when it was switched out.
    has_suspended_fault: bool,
    /// Whether a mark has come in the gap.
    has_marks: bool,
    faults: SplitFaults,
}

impl OpenContexts {
    /// The context or task that runs. `None` if the loop runs, or the kernel outside of all contexts.
    fn innermost(&self) -> Option<Part> {
        self.stack.last().copied().or(self.task.map(Part::Context))
    }

    fn apply(&mut self, what: What) {
        self.has_marks = true;
        match what {
            What::Enter(context) => self.open(Part::Context(context)),
            What::Fault => self.open(Part::Fault),
            What::Leave(context) => self.close(Part::Context(context)),
            What::SwitchTo(task) => self.switch(Some(task)),
            What::SwitchBack => self.switch(None),
            What::Wake(_) => {}
        }
    }

    fn open(&mut self, part: Part) {
        if self.stack.len() < DEPTH_MAX {
            self.stack.push(part);
        }
    }

    /// Closes the innermost open context that equals `part`, and all contexts within it.
    fn close(&mut self, part: Part) {
        match self.stack.iter().rposition(|open| *open == part) {
            Some(position) => {
                self.faults.cut += (self.stack.len() - position - 1) as u64;
                self.stack.truncate(position);
            }
            None => self.faults.unmatched += 1,
        }
    }

    /// Switches to a task, or back to the loop (`None`). No interrupt lasts across a task switch. A page fault of the
    /// loop can: it continues when the loop resumes.
    fn switch(&mut self, task: Option<u32>) {
        let open_count = self.stack.len() as u64;
        if self.stack.contains(&Part::Fault) {
            self.has_suspended_fault = true;
            self.faults.cut += open_count - 1;
        } else {
            self.faults.cut += open_count;
        }
        self.stack.clear();
        if self.has_suspended_fault && task.is_none() {
            self.stack.push(Part::Fault);
            self.has_suspended_fault = false;
        }
        self.task = task;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMER: u32 = 1;
    const SCHED: u32 = 2;
    const MAKE: u32 = 9;

    fn marks(list: &[(u64, What)]) -> Vec<Mark> {
        list.iter().map(|&(at_ns, what)| Mark { at_ns, what }).collect()
    }

    #[track_caller]
    fn check(length_ns: u64, list: &[(u64, What)], parts: &[(Part, u64)], faults: (u64, u64)) {
        let mut out = Vec::new();
        let gap = Gap { start_ns: 0, end_ns: length_ns };
        let found =
            split(gap, &marks(list), AttributionParameters { entry_latency_ns: 10 }, &mut out);
        assert_eq!(out, parts);
        assert_eq!((found.unmatched, found.cut), faults);
    }

    #[test]
    fn a_tick_that_ends_in_a_softirq() {
        use What::{Enter, Leave};
        check(
            100,
            &[(30, Enter(TIMER)), (50, Leave(TIMER)), (55, Enter(SCHED)), (75, Leave(SCHED))],
            &[
                (Part::Late, 20),
                (Part::Entry, 10),
                (Part::Context(TIMER), 20),
                (Part::Between, 5),
                (Part::Context(SCHED), 20),
                (Part::Exit, 10),
                (Part::Tail, 15),
            ],
            (0, 0),
        );
    }

    #[test]
    fn a_task_loses_the_interrupts_in_it() {
        use What::{Enter, Leave, SwitchBack, SwitchTo};
        check(
            100,
            &[(5, SwitchTo(MAKE)), (20, Enter(TIMER)), (30, Leave(TIMER)), (95, SwitchBack)],
            &[
                (Part::Entry, 5),
                (Part::Context(MAKE), 15),
                (Part::Context(TIMER), 10),
                (Part::Context(MAKE), 65),
                (Part::Exit, 5),
            ],
            (0, 0),
        );
    }

    #[test]
    fn what_has_no_end_ends_with_the_gap() {
        check(100, &[], &[(Part::NoEvent, 100)], (0, 0));
        let task = [(Part::Entry, 10), (Part::Context(MAKE), 90)];
        check(100, &[(10, What::SwitchTo(MAKE))], &task, (0, 1));
        check(100, &[(10, What::Fault)], &[(Part::Entry, 10), (Part::Fault, 90)], (0, 0));
        let end = [(Part::Entry, 10), (Part::Exit, 10), (Part::Tail, 80)];
        check(100, &[(10, What::Leave(SCHED))], &end, (1, 0));
    }

    #[test]
    fn a_fault_that_waits_goes_on_when_the_loop_does() {
        check(
            100,
            &[(10, What::Fault), (20, What::SwitchTo(MAKE)), (60, What::SwitchBack)],
            &[(Part::Entry, 10), (Part::Fault, 10), (Part::Context(MAKE), 40), (Part::Fault, 40)],
            (0, 0),
        );
    }
}
