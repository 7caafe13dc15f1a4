//! One gap, split into its causes.
//!
//! ```text
//!  loop ... |<----------------------------- gap ----------------------------->| ... loop
//!           |  entry  | local_timer | between |  SCHED  | task make |  exit   |
//! marks:              E             L         E         L/S         S
//! ```
//!
//! Each nanosecond goes to the innermost context that is open then. The sum of the parts is the
//! gap, by construction.

/// A gap in the progress of the loop, on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When the loop was last seen, ns.
    pub start_ns: u64,
    /// When it was seen again; not before `start_ns`.
    pub end_ns: u64,
}

impl Gap {
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// What the kernel reported at one instant, on the loop's CPU, in the same clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub at_ns: u64,
    pub what: What,
}

/// What happened at a mark. A number names a context or a task; the bench has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A context starts.
    Enter(u32),
    /// It ends.
    Leave(u32),
    /// Another task runs from here on.
    SwitchTo(u32),
    /// The loop runs again.
    SwitchBack,
    /// The loop took a page fault. There is no event at its end: it ends where the loop resumes.
    Fault,
}

/// A part of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A context or a task that the kernel named, by its number.
    Context(u32),
    /// A page fault of the loop.
    Fault,
    /// Kernel entry before the first event, at most as long as the entry latency.
    Entry,
    /// Kernel exit after the last event.
    Exit,
    /// A gap in which the kernel did nothing that it reports: the host, where there is one, or the
    /// firmware.
    NoEvent,
    /// Time before the kernel's first event beyond the entry latency: the host had not yet injected
    /// the interrupt, or the firmware ran.
    Late,
    /// In the kernel between two of its events.
    Between,
    /// Time after its last event beyond the exit latency.
    Tail,
    /// The loop's own time, beyond what it takes undisturbed. Only a bench that sees every cycle knows it.
    Own,
    /// What such a bench cannot name.
    Unknown,
}

/// What kind of an explanation a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The kernel named it.
    Named,
    /// Kernel entry and exit: not seen, but bounded by measurement.
    Path,
    /// By elimination the host's or the firmware's: the kernel reports nothing in this time. It is not
    /// explained, for nothing that was seen says so.
    Unattributed,
    Remainder,
    /// The loop's own, which went slower: colder caches.
    Aftermath,
}

impl Class {
    /// All of them, in table order.
    pub const ALL: [Class; 5] =
        [Class::Named, Class::Path, Class::Unattributed, Class::Remainder, Class::Aftermath];

    /// The word for it in tables.
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

    /// Whether its time counts as explained: an event named it, it lies within the measured latency of kernel
    /// entry or exit, or the bench saw every cycle of it.
    #[must_use]
    pub fn is_explained(self) -> bool {
        match self {
            Class::Named | Class::Path | Class::Aftermath => true,
            Class::Unattributed | Class::Remainder => false,
        }
    }
}

impl Part {
    /// What kind of an explanation it is. The same on virtual machines and on bare metal: firmware that
    /// interrupts the kernel (SMM) leaves what a host leaves.
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

/// What the attribution of a gap's time depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributionParameters {
    /// The measured kernel entry latency without a host, ns, at most; the exit latency has the same bound.
    /// 0 where none was measured: then nothing counts as kernel entry or exit.
    pub entry_latency_ns: u64,
}

/// What did not fit together in a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitFaults {
    /// Contexts that ended without a start in this gap.
    pub unmatched: u64,
    /// Contexts and tasks whose end was not seen: the next event around them, or the end of the
    /// gap, ends them.
    pub cut: u64,
}

impl SplitFaults {
    /// Adds those of another gap.
    pub fn add(&mut self, other: SplitFaults) {
        self.unmatched += other.unmatched;
        self.cut += other.cut;
    }
}

/// Deepest nesting that is followed; what is deeper counts as the context around it.
const DEPTH_MAX: usize = 32;

/// Splits `gap` by the marks in it, which are in the order of time; appends its parts in that order
/// to `out`. Parts of no length are left out; the others' sum is the gap's length.
pub fn split(
    gap: Gap,
    marks: &[Mark],
    parameters: AttributionParameters,
    out: &mut Vec<(Part, u64)>,
) -> SplitFaults {
    let mut state = State::default();
    let mut now_ns = gap.start_ns;
    for mark in marks {
        let at_ns = mark.at_ns.clamp(now_ns, gap.end_ns.max(now_ns));
        let passed_ns = at_ns - now_ns;
        match state.innermost() {
            Some(part) => push(out, part, passed_ns),
            None if state.seen => push(out, Part::Between, passed_ns),
            None => path(out, passed_ns, parameters, Part::Entry, Part::Late),
        }
        now_ns = at_ns;
        state.apply(mark.what);
    }
    let passed_ns = gap.end_ns.saturating_sub(now_ns);
    match state.innermost() {
        Some(part) => push(out, part, passed_ns),
        None if state.seen => path(out, passed_ns, parameters, Part::Exit, Part::Tail),
        None => push(out, Part::NoEvent, passed_ns),
    }
    state.faults.cut += state.stack.iter().filter(|part| **part != Part::Fault).count() as u64;
    state.faults.cut += u64::from(state.task.is_some());
    state.faults
}

fn push(out: &mut Vec<(Part, u64)>, part: Part, length_ns: u64) {
    if length_ns > 0 {
        out.push((part, length_ns));
    }
}

/// Entry or exit up to its latency, and the rest. At an entry the rest comes first; in the sums the
/// order does not matter.
fn path(
    out: &mut Vec<(Part, u64)>,
    length_ns: u64,
    parameters: AttributionParameters,
    path_part: Part,
    rest: Part,
) {
    let entry_latency_ns = length_ns.min(parameters.entry_latency_ns);
    push(out, path_part, entry_latency_ns);
    push(out, rest, length_ns - entry_latency_ns);
}

/// What is open at a point of the gap.
#[derive(Default)]
struct State {
    /// The task that runs in place of the loop.
    task: Option<u32>,
    stack: Vec<Part>,
    /// The loop was in a page fault when it was switched out.
    in_fault: bool,
    seen: bool,
    faults: SplitFaults,
}

impl State {
    fn innermost(&self) -> Option<Part> {
        self.stack.last().copied().or(self.task.map(Part::Context))
    }

    fn apply(&mut self, what: What) {
        self.seen = true;
        match what {
            What::Enter(source) => self.open(Part::Context(source)),
            What::Fault => self.open(Part::Fault),
            What::Leave(source) => self.close(Part::Context(source)),
            What::SwitchTo(task) => self.switch(Some(task)),
            What::SwitchBack => self.switch(None),
        }
    }

    fn open(&mut self, part: Part) {
        if self.stack.len() < DEPTH_MAX {
            self.stack.push(part);
        }
    }

    fn close(&mut self, part: Part) {
        match self.stack.iter().rposition(|open| *open == part) {
            Some(at) => {
                self.faults.cut += (self.stack.len() - at - 1) as u64;
                self.stack.truncate(at);
            }
            None => self.faults.unmatched += 1,
        }
    }

    /// A switch is made with no interrupt open; a fault of the loop resumes with the loop.
    fn switch(&mut self, task: Option<u32>) {
        let open = self.stack.len() as u64;
        if self.stack.contains(&Part::Fault) {
            self.in_fault = true;
            self.faults.cut += open - 1;
        } else {
            self.faults.cut += open;
        }
        self.stack.clear();
        if self.in_fault && task.is_none() {
            self.stack.push(Part::Fault);
            self.in_fault = false;
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
                (Part::Entry, 10),
                (Part::Late, 20),
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
