//! What the kernel counted around a window: interrupts of this CPU, switches, page faults.

use lab::footprint::sample::Verdict;

use super::sources::Counted as Kind;
use super::window::Window;
use crate::host::Root;
use crate::host::interrupts::{Interrupts, read_interrupts};
use crate::noise::place::Counted;

/// Counts at one moment.
#[derive(Debug)]
pub struct Seen {
    interrupts: Interrupts,
    task: Option<Counted>,
}

/// What was added between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Interrupts of the source's kind.
    pub wanted: u64,
    /// Other interrupts.
    pub others: u64,
    /// Switches and page faults of the loop.
    pub switches: u64,
}

impl Seen {
    /// Now, of this thread. `None` where the kernel does not say.
    #[must_use]
    pub fn now(root: &Root) -> Option<Seen> {
        Some(Seen { interrupts: read_interrupts(root)?, task: Counted::now() })
    }

    /// What was added on `cpu` until `after`; without a source all interrupts are others.
    #[must_use]
    pub fn until(&self, after: &Seen, cpu: u32, kind: Option<Kind>) -> Added {
        let mut added = Added::default();
        for line in &after.interrupts.lines {
            let now = after.interrupts.count(&line.label, cpu).unwrap_or(0);
            let before = self.interrupts.count(&line.label, cpu).unwrap_or(0);
            let more = now.wrapping_sub(before);
            match kind {
                Some(kind) if kind.is(&line.label) => added.wanted += more,
                _ => added.others += more,
            }
        }
        if let (Some(before), Some(after)) = (self.task, after.task) {
            let more = after.since(before);
            added.switches = more.switches + more.page_faults;
        }
        added
    }
}

/// Whether a repetition counts. `raised`: an interrupt was asked for.
#[must_use]
pub fn verdict(added: Added, window: &Window, raised: bool) -> Verdict {
    let wanted = u64::from(raised);
    if added.switches > 0 {
        Verdict::Switched
    } else if added.others > 0 || added.wanted > wanted {
        Verdict::OthersToo
    } else if added.wanted < wanted || window.gaps < u32::from(raised) {
        Verdict::NotInterrupted
    } else if window.gaps > u32::from(raised) {
        Verdict::Paused
    } else {
        Verdict::Kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_counts_when_the_one_interrupt_came_and_nothing_else() {
        let added = |wanted, others, switches| Added { wanted, others, switches };
        let gaps = |gaps| Window { gaps, ..Window::default() };
        let check = |a, w, raised, expect| assert_eq!(verdict(a, &w, raised), expect);
        check(added(1, 0, 0), gaps(1), true, Verdict::Kept);
        check(added(0, 0, 0), gaps(0), false, Verdict::Kept);
        check(added(0, 0, 0), gaps(0), true, Verdict::NotInterrupted);
        check(added(1, 0, 0), gaps(0), true, Verdict::NotInterrupted);
        check(added(2, 0, 0), gaps(1), true, Verdict::OthersToo);
        check(added(1, 1, 0), gaps(2), true, Verdict::OthersToo);
        check(added(1, 0, 1), gaps(1), true, Verdict::Switched);
        check(added(1, 0, 0), gaps(2), true, Verdict::Paused);
        check(added(0, 0, 0), gaps(1), false, Verdict::Paused);
    }
}
