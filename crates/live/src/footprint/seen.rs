//! What the kernel counted around a window: interrupts of this CPU, switches, page faults.

use lab::footprint::sample::Verdict;

use super::sources::Counted as Kind;
use super::window::Window;
use crate::host::Root;
use crate::host::interrupts::{Interrupts, read_interrupts};
use crate::threads::ThreadCounts;

/// The local timer's line in /proc/interrupts.
pub const TICK: &str = "LOC";

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
    /// Other interrupts, but for the local timer's.
    pub others: u64,
    /// The local timer's, where that is not the source's kind.
    pub ticks: u64,
    /// Switches and page faults of the loop.
    pub switches: u64,
}

impl Seen {
    /// Now, of this thread. `None` where the kernel does not say.
    #[must_use]
    pub fn now(root: &Root) -> Option<Seen> {
        Some(Seen { interrupts: read_interrupts(root)?, task: ThreadCounts::now() })
    }

    /// Switches and page faults count from now on only: what comes before is in no window.
    pub fn task_anew(&mut self) {
        self.task = ThreadCounts::now();
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
                _ if line.label == TICK => added.ticks += more,
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

/// How an interrupt was to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How the kernel counts it.
    pub kind: Kind,
    /// Whether the first gap came when it was to come, or, where that is not known, not when a tick was due.
    pub on_time: bool,
}

/// Whether a repetition counts. Counts say which interrupts came between the reading before and the
/// one behind, gaps how many of them came while lines were touched. A tick may come while the
/// counts are read, which takes a while; touching begins directly behind one.
#[must_use]
pub fn verdict(added: Added, window: &Window, wanted: Option<Wanted>) -> Verdict {
    let ticks = added.ticks > 0 || wanted.is_some_and(|wanted| wanted.kind == Kind::Line(TICK));
    let too_many = match wanted {
        Some(wanted) if wanted.kind == Kind::Line(TICK) => false,
        Some(_) => added.wanted > 1,
        None => false,
    };
    if added.switches > 0 {
        return Verdict::Switched;
    }
    if added.others > 0 || too_many {
        return Verdict::OthersToo;
    }
    let due = u32::from(wanted.is_some());
    if window.gaps > due {
        return if ticks { Verdict::OthersToo } else { Verdict::Paused };
    }
    match wanted {
        Some(_) if added.wanted == 0 || window.gaps == 0 => Verdict::NotInterrupted,
        Some(wanted) if !wanted.on_time => Verdict::NotInterrupted,
        _ => Verdict::Kept,
    }
}

/// The same where ticks may come in windows, of both sorts as many. That the interrupt came while lines
/// were touched is not known then: what raises it must be late enough.
#[must_use]
pub fn with_ticks(added: Added, wanted: Option<Wanted>) -> Verdict {
    let is_tick = wanted.is_some_and(|wanted| wanted.kind == Kind::Line(TICK));
    if added.switches > 0 {
        return Verdict::Switched;
    }
    if added.others > 0 || (added.wanted > 1 && !is_tick) {
        return Verdict::OthersToo;
    }
    if wanted.is_some() && added.wanted == 0 { Verdict::NotInterrupted } else { Verdict::Kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_counts_when_the_one_interrupt_came_and_nothing_else() {
        let timer = Some(Wanted { kind: Kind::Line(TICK), on_time: true });
        let disk = Some(Wanted { kind: Kind::Device, on_time: true });
        let late = Some(Wanted { kind: Kind::Line(TICK), on_time: false });
        let early = Some(Wanted { kind: Kind::Device, on_time: false });
        let check = |(wanted, others, ticks, switches), gaps, how, expect| {
            let added = Added { wanted, others, ticks, switches };
            let window = Window { gaps, ..Window::default() };
            assert_eq!(verdict(added, &window, how), expect, "{added:?} {gaps} {how:?}");
        };
        check((1, 0, 0, 0), 1, timer, Verdict::Kept);
        check((3, 0, 0, 0), 1, timer, Verdict::Kept); // ticks while the counts were read
        check((2, 0, 0, 0), 1, late, Verdict::NotInterrupted); // a tick, not the timer
        check((2, 0, 0, 0), 2, timer, Verdict::OthersToo);
        check((1, 0, 1, 0), 1, disk, Verdict::Kept);
        check((1, 0, 1, 0), 1, early, Verdict::NotInterrupted); // the gap is the tick's
        check((2, 0, 0, 0), 1, disk, Verdict::OthersToo);
        check((1, 0, 0, 0), 0, disk, Verdict::NotInterrupted);
        check((0, 0, 1, 0), 1, disk, Verdict::NotInterrupted);
        check((1, 1, 0, 0), 2, disk, Verdict::OthersToo);
        check((1, 0, 0, 1), 1, disk, Verdict::Switched);
        check((1, 0, 0, 0), 2, disk, Verdict::Paused);
        check((0, 0, 0, 0), 0, None, Verdict::Kept);
        check((0, 0, 2, 0), 0, None, Verdict::Kept);
        check((0, 0, 1, 0), 1, None, Verdict::OthersToo);
        check((0, 0, 0, 0), 1, None, Verdict::Paused);
        check((0, 1, 0, 0), 0, None, Verdict::OthersToo);
    }

    #[test]
    fn what_a_task_did_before_its_window_does_not_count() {
        let root = Root::default();
        let mut before = Seen::now(&root).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1)); // a switch
        let cpu = 0;
        assert!(before.until(&Seen::now(&root).unwrap(), cpu, None).switches > 0);
        // What runs beside may switch this thread out, too, but not each time.
        let undisturbed = (0..1000).any(|_| {
            before.task_anew();
            let after = Seen { interrupts: Interrupts::default(), task: ThreadCounts::now() };
            before.until(&after, cpu, None).switches == 0
        });
        assert!(undisturbed);
    }

    #[test]
    fn where_ticks_may_come_they_remove_nothing() {
        let disk = Some(Wanted { kind: Kind::Device, on_time: true });
        let check = |(wanted, others, ticks, switches), how, expect| {
            let added = Added { wanted, others, ticks, switches };
            assert_eq!(with_ticks(added, how), expect, "{added:?} {how:?}");
        };
        check((1, 0, 6, 0), disk, Verdict::Kept);
        check((0, 0, 6, 0), None, Verdict::Kept);
        check((0, 0, 6, 0), disk, Verdict::NotInterrupted);
        check((2, 0, 6, 0), disk, Verdict::OthersToo);
        check((0, 1, 6, 0), None, Verdict::OthersToo);
        check((1, 0, 6, 1), disk, Verdict::Switched);
    }
}
