//! The kernel's counts around a window: interrupts of this CPU, context switches, page faults.

use lab::footprint::sample::Verdict;
use touch_loop::Window;

use super::interrupt_line::{CountedAs, TICK};
use crate::host::Root;
use crate::host::interrupts::{Interrupts, read_interrupts};
use crate::threads::ThreadCounts;

/// The counts at one instant.
#[derive(Debug)]
pub struct KernelCounts {
    interrupts: Interrupts,
    task: Option<ThreadCounts>,
}

/// The increase between two instants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountDelta {
    /// Interrupts of the stimulus.
    pub expected: u64,
    /// Other interrupts, without the local timer's.
    pub others: u64,
    /// Interrupts of the local timer, unless it is the stimulus.
    pub ticks: u64,
    /// Context switches and page faults of the loop's thread.
    pub switches: u64,
}

impl KernelCounts {
    /// Reads the counts; task counts belong to this thread. `None` if the kernel
    /// does not report them.
    #[must_use]
    pub fn now(root: &Root) -> Option<KernelCounts> {
        Some(KernelCounts { interrupts: read_interrupts(root)?, task: ThreadCounts::now() })
    }

    /// Counts switches and page faults only from now on: earlier ones are in no window.
    pub fn restart_task_counts(&mut self) {
        self.task = ThreadCounts::now();
    }

    /// The increase on `cpu` until `after`; without a stimulus all interrupts are others.
    #[must_use]
    pub fn until(&self, after: &KernelCounts, cpu: u32, kind: Option<CountedAs>) -> CountDelta {
        let mut delta = CountDelta::default();
        for line in &after.interrupts.lines {
            let now = after.interrupts.count(&line.label, cpu).unwrap_or(0);
            let before = self.interrupts.count(&line.label, cpu).unwrap_or(0);
            let more = now.wrapping_sub(before);
            match kind {
                Some(kind) if kind.is(&line.label) => delta.expected += more,
                _ if line.label == TICK => delta.ticks += more,
                _ => delta.others += more,
            }
        }
        if let (Some(before), Some(after)) = (self.task, after.task) {
            let more = after.since(before);
            delta.switches = more.switches + more.page_faults;
        }
        delta
    }
}

/// The interrupt that a treatment window expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// How the kernel counts it.
    pub kind: CountedAs,
    /// Whether the first gap came at the expected time. If that time is unknown: whether the gap
    /// came at another time than the next tick.
    pub on_time: bool,
    /// Whether it came while the window was open, if it came at all.
    pub in_window: bool,
}

/// Whether a repetition is accepted. The counts show which interrupts came between the
/// readings before and after the window. The gaps show how many of them came while lines were
/// touched. Reading the counts takes some time, so a tick may come meanwhile; touching starts
/// directly after a tick.
#[must_use]
pub fn verdict(delta: CountDelta, window: &Window, expected: Option<Expected>) -> Verdict {
    let ticks =
        delta.ticks > 0 || expected.is_some_and(|expected| expected.kind == CountedAs::Line(TICK));
    let too_many = match expected {
        Some(expected) if expected.kind == CountedAs::Line(TICK) => false,
        Some(_) => delta.expected > 1,
        None => false,
    };
    if delta.switches > 0 {
        return Verdict::Switched;
    }
    if delta.others > 0 || too_many {
        return Verdict::Contaminated;
    }
    let due = u32::from(expected.is_some());
    if window.gaps > due {
        return if ticks { Verdict::Contaminated } else { Verdict::Paused };
    }
    match expected {
        Some(_) if delta.expected == 0 => Verdict::NotInterrupted,
        Some(expected) if window.gaps == 0 && expected.in_window => Verdict::Unseen,
        Some(_) if window.gaps == 0 => Verdict::NotInterrupted,
        Some(expected) if !expected.on_time => Verdict::NotInterrupted,
        _ => Verdict::Accepted,
    }
}

/// Like [`verdict`], where ticks may come in windows, equally many in treatment and
/// control. Nothing shows then whether the interrupt came while lines were touched, so its
/// delay must be long enough.
#[must_use]
pub fn with_ticks(delta: CountDelta, expected: Option<Expected>) -> Verdict {
    let is_tick = expected.is_some_and(|expected| expected.kind == CountedAs::Line(TICK));
    if delta.switches > 0 {
        return Verdict::Switched;
    }
    if delta.others > 0 || (delta.expected > 1 && !is_tick) {
        return Verdict::Contaminated;
    }
    if expected.is_some() && delta.expected == 0 {
        Verdict::NotInterrupted
    } else {
        Verdict::Accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_counts_when_the_one_interrupt_came_and_nothing_else() {
        let tick = CountedAs::Line(TICK);
        let timer = Some(Expected { kind: tick, on_time: true, in_window: true });
        let disk = Some(Expected { kind: CountedAs::Device, on_time: true, in_window: false });
        let late = Some(Expected { kind: tick, on_time: false, in_window: true });
        let before = Some(Expected { kind: tick, on_time: true, in_window: false });
        let early = Some(Expected { kind: CountedAs::Device, on_time: false, in_window: false });
        let check = |(expected, others, ticks, switches), gaps, how, expect| {
            let delta = CountDelta { expected, others, ticks, switches };
            let window = Window { gaps, ..Window::default() };
            assert_eq!(verdict(delta, &window, how), expect, "{delta:?} {gaps} {how:?}");
        };
        check((1, 0, 0, 0), 1, timer, Verdict::Accepted);
        check((3, 0, 0, 0), 1, timer, Verdict::Accepted); // ticks while the counts were read
        check((2, 0, 0, 0), 1, late, Verdict::NotInterrupted); // a tick, not the timer
        check((2, 0, 0, 0), 2, timer, Verdict::Contaminated);
        check((1, 0, 0, 0), 0, timer, Verdict::Unseen);
        check((1, 0, 0, 0), 0, before, Verdict::NotInterrupted); // before the window opened
        check((0, 0, 0, 0), 0, timer, Verdict::NotInterrupted);
        check((1, 0, 0, 1), 0, timer, Verdict::Switched);
        check((1, 0, 1, 0), 1, disk, Verdict::Accepted);
        check((1, 0, 1, 0), 1, early, Verdict::NotInterrupted); // the gap is the tick's
        check((2, 0, 0, 0), 1, disk, Verdict::Contaminated);
        check((1, 0, 0, 0), 0, disk, Verdict::NotInterrupted);
        check((0, 0, 1, 0), 1, disk, Verdict::NotInterrupted);
        check((1, 1, 0, 0), 2, disk, Verdict::Contaminated);
        check((1, 0, 0, 1), 1, disk, Verdict::Switched);
        check((1, 0, 0, 0), 2, disk, Verdict::Paused);
        check((0, 0, 0, 0), 0, None, Verdict::Accepted);
        check((0, 0, 2, 0), 0, None, Verdict::Accepted);
        check((0, 0, 1, 0), 1, None, Verdict::Contaminated);
        check((0, 0, 0, 0), 1, None, Verdict::Paused);
        check((0, 1, 0, 0), 0, None, Verdict::Contaminated);
    }

    #[test]
    fn what_a_task_did_before_its_window_does_not_count() {
        let root = Root::default();
        let mut before = KernelCounts::now(&root).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1)); // a switch
        let cpu = 0;
        assert!(before.until(&KernelCounts::now(&root).unwrap(), cpu, None).switches > 0);
        // Other tasks may switch this thread out, too, but not each time.
        let undisturbed = (0..1000).any(|_| {
            before.restart_task_counts();
            let after =
                KernelCounts { interrupts: Interrupts::default(), task: ThreadCounts::now() };
            before.until(&after, cpu, None).switches == 0
        });
        assert!(undisturbed);
    }

    #[test]
    fn where_ticks_may_come_they_remove_nothing() {
        let disk = Some(Expected { kind: CountedAs::Device, on_time: true, in_window: false });
        let check = |(expected, others, ticks, switches), how, expect| {
            let delta = CountDelta { expected, others, ticks, switches };
            assert_eq!(with_ticks(delta, how), expect, "{delta:?} {how:?}");
        };
        check((1, 0, 6, 0), disk, Verdict::Accepted);
        check((0, 0, 6, 0), None, Verdict::Accepted);
        check((0, 0, 6, 0), disk, Verdict::NotInterrupted);
        check((2, 0, 6, 0), disk, Verdict::Contaminated);
        check((0, 1, 6, 0), None, Verdict::Contaminated);
        check((1, 0, 6, 1), disk, Verdict::Switched);
    }
}
