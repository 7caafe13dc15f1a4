//! The kernel's counts around a window (interrupts of the loop's CPU, context switches, page faults), and the verdict:
//! whether a repetition had the one interrupt that it should have, and nothing else.

use lab::footprint::sample::Verdict;
use touch_loop::Window;

use super::interrupt_line::{StimulusLines, TICK};
use crate::host::Root;
use crate::host::interrupts::{Interrupts, increase, read_interrupts};
use crate::threads::ThreadCounts;

/// A reading of the counts.
#[derive(Debug)]
pub struct KernelCounts {
    interrupts: Interrupts,
    task: Option<ThreadCounts>,
}

/// The increase of the counts between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountDelta {
    /// Interrupts in the lines that count the stimulus.
    pub stimulus_interrupts: u64,
    /// Interrupts in all other lines except that of the local timer.
    pub other_interrupts: u64,
    /// Interrupts of the local timer; 0 if the timer is the stimulus.
    pub ticks: u64,
    /// Context switches plus page faults of the loop's thread.
    pub switches_and_faults: u64,
}

impl KernelCounts {
    /// Reads the counts, for the calling thread. `None` if the kernel does not report interrupts.
    #[must_use]
    pub fn now(root: &Root) -> Option<KernelCounts> {
        Some(KernelCounts { interrupts: read_interrupts(root)?, task: ThreadCounts::now() })
    }

    /// Forgets the context switches and page faults until now, because they were before the window.
    pub fn restart_task_counts(&mut self) {
        self.task = ThreadCounts::now();
    }

    /// The increase on `cpu` until the later reading `after`. `lines`: the lines that count the stimulus; `None`
    /// without a stimulus. Interrupts of other devices are others, whatever the stimulus.
    #[must_use]
    pub fn until(
        &self,
        after: &KernelCounts,
        cpu: u32,
        lines: Option<&StimulusLines>,
    ) -> CountDelta {
        let mut delta = CountDelta::default();
        for line in &after.interrupts.lines {
            let now = after.interrupts.count(&line.label, cpu).unwrap_or(0);
            let before = self.interrupts.count(&line.label, cpu).unwrap_or(0);
            // A line whose counter the kernel has made again had an unknown number of interrupts, at least one.
            let increase = increase(before, now).unwrap_or_else(|| now.max(1));
            match lines {
                Some(lines) if lines.contain(&line.label) => delta.stimulus_interrupts += increase,
                _ if line.label == TICK => delta.ticks += increase,
                _ => delta.other_interrupts += increase,
            }
        }
        if let (Some(before), Some(after)) = (self.task, after.task) {
            let increase = after.since(before);
            delta.switches_and_faults = increase.switches + increase.page_faults;
        }
        delta
    }
}

/// The interrupt that a treatment window expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedInterrupt {
    /// Whether the kernel counts it in the local timer's line, which also counts ticks.
    pub is_in_tick_line: bool,
    /// Whether the first gap began when the interrupt was due. If its time is not known: whether the first gap began apart
    /// from ticks.
    pub came_when_due: bool,
    /// Whether the interrupt must have come while the window was open, if it came at all.
    pub was_due_in_window: bool,
}

/// The verdict on a repetition. The first of these that applies: a switch or fault; an interrupt of another line, or a second one
/// of the stimulus; more gaps than expected; no interrupt of the stimulus while lines were touched; accepted.
///
/// Counts cover the time between the two readings, which is longer than the window. A gap is a chunk of touched lines that took
/// so long that something interrupted the loop. A tick between the readings is allowed, because touching starts directly after
/// a tick.
#[must_use]
pub fn verdict(delta: CountDelta, window: &Window, expected: Option<ExpectedInterrupt>) -> Verdict {
    let may_be_tick = delta.ticks > 0 || expected.is_some_and(|expected| expected.is_in_tick_line);
    let has_too_many = match expected {
        // The timer's line also counts ticks, so its count shows nothing.
        Some(expected) if expected.is_in_tick_line => false,
        Some(_) => delta.stimulus_interrupts > 1,
        None => false,
    };
    if delta.switches_and_faults > 0 {
        return Verdict::Switched;
    }
    if delta.other_interrupts > 0 || has_too_many {
        return Verdict::Contaminated;
    }
    let expected_gaps = u32::from(expected.is_some());
    if window.gaps > expected_gaps {
        // Without an interrupt of this kernel, only the host or the firmware can have stalled the loop.
        return if may_be_tick { Verdict::Contaminated } else { Verdict::Paused };
    }
    match expected {
        Some(_) if delta.stimulus_interrupts == 0 => Verdict::NotInterrupted,
        // The kernel counted the interrupt, and it was due in the window, but it was too short for a gap.
        Some(expected) if window.gaps == 0 && expected.was_due_in_window => Verdict::Unseen,
        Some(_) if window.gaps == 0 => Verdict::NotInterrupted,
        Some(expected) if !expected.came_when_due => Verdict::NotInterrupted,
        _ => Verdict::Accepted,
    }
}

/// Like [`verdict`], for windows that may contain ticks, as many in treatment as in control. Gaps then do not show
/// whether the interrupt came while lines were touched. The delay of the interrupt must ensure that.
#[must_use]
pub fn verdict_with_ticks(delta: CountDelta, expected: Option<ExpectedInterrupt>) -> Verdict {
    let is_tick = expected.is_some_and(|expected| expected.is_in_tick_line);
    if delta.switches_and_faults > 0 {
        return Verdict::Switched;
    }
    if delta.other_interrupts > 0 || (delta.stimulus_interrupts > 1 && !is_tick) {
        return Verdict::Contaminated;
    }
    if expected.is_some() && delta.stimulus_interrupts == 0 {
        Verdict::NotInterrupted
    } else {
        Verdict::Accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::interrupts::parse_interrupts;

    #[test]
    fn a_repetition_counts_when_the_one_interrupt_came_and_nothing_else() {
        let timer = Some(ExpectedInterrupt {
            is_in_tick_line: true,
            came_when_due: true,
            was_due_in_window: true,
        });
        let disk = Some(ExpectedInterrupt {
            is_in_tick_line: false,
            came_when_due: true,
            was_due_in_window: false,
        });
        let late = Some(ExpectedInterrupt {
            is_in_tick_line: true,
            came_when_due: false,
            was_due_in_window: true,
        });
        let before = Some(ExpectedInterrupt {
            is_in_tick_line: true,
            came_when_due: true,
            was_due_in_window: false,
        });
        let early = Some(ExpectedInterrupt {
            is_in_tick_line: false,
            came_when_due: false,
            was_due_in_window: false,
        });
        let check = |(expected, others, ticks, switches), gaps, how, expect| {
            let delta = CountDelta {
                stimulus_interrupts: expected,
                other_interrupts: others,
                ticks,
                switches_and_faults: switches,
            };
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
    fn an_interrupt_of_another_device_contaminates_a_window() {
        let counts = |generator: u64, disk: u64| {
            let text = format!(
                "  CPU0\n 34: {generator} PCI-MSIX 0-edge  virtio4-input\n 36: {disk} PCI-MSIX 1-edge  virtio1-req.0\n"
            );
            KernelCounts { interrupts: parse_interrupts(&text), task: None }
        };
        let disk_lines = StimulusLines::new(["36".to_owned()]);
        let expected = ExpectedInterrupt {
            is_in_tick_line: false,
            came_when_due: true,
            was_due_in_window: false,
        };
        let verdict_with = |generator: u64, disk: u64| {
            let delta =
                counts(4, 7).until(&counts(4 + generator, 7 + disk), 0, disk_lines.as_ref());
            verdict(delta, &Window { gaps: 1, ..Window::default() }, Some(expected))
        };
        assert_eq!(verdict_with(0, 1), Verdict::Accepted);
        assert_eq!(verdict_with(1, 0), Verdict::Contaminated);
        assert_eq!(verdict_with(1, 1), Verdict::Contaminated);
    }

    #[test]
    fn a_counter_that_wraps_or_is_made_again_is_no_large_number() {
        let counts = |timer: u64, card: u64| {
            let text =
                format!("  CPU0\nLOC: {timer} Local timer\n 24: {card} PCI-MSIX 0-edge eth0\n");
            KernelCounts { interrupts: parse_interrupts(&text), task: None }
        };
        let (before, after) = (counts(4_294_967_290, 1_000_000), counts(4, 0));
        let delta = before.until(&after, 0, None);
        assert_eq!((delta.ticks, delta.other_interrupts), (10, 1));
    }

    #[test]
    fn what_a_task_did_before_its_window_does_not_count() {
        let root = Root::default();
        let mut before = KernelCounts::now(&root).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1)); // a switch
        let cpu = 0;
        assert!(
            before.until(&KernelCounts::now(&root).unwrap(), cpu, None).switches_and_faults > 0
        );
        // Other tasks may switch this thread out, too, but not each time.
        let undisturbed = (0..1000).any(|_| {
            before.restart_task_counts();
            let after =
                KernelCounts { interrupts: Interrupts::default(), task: ThreadCounts::now() };
            before.until(&after, cpu, None).switches_and_faults == 0
        });
        assert!(undisturbed);
    }

    #[test]
    fn where_ticks_may_come_they_remove_nothing() {
        let disk = Some(ExpectedInterrupt {
            is_in_tick_line: false,
            came_when_due: true,
            was_due_in_window: false,
        });
        let check = |(expected, others, ticks, switches), how, expect| {
            let delta = CountDelta {
                stimulus_interrupts: expected,
                other_interrupts: others,
                ticks,
                switches_and_faults: switches,
            };
            assert_eq!(verdict_with_ticks(delta, how), expect, "{delta:?} {how:?}");
        };
        check((1, 0, 6, 0), disk, Verdict::Accepted);
        check((0, 0, 6, 0), None, Verdict::Accepted);
        check((0, 0, 6, 0), disk, Verdict::NotInterrupted);
        check((2, 0, 6, 0), disk, Verdict::Contaminated);
        check((0, 1, 6, 0), None, Verdict::Contaminated);
        check((1, 0, 6, 1), disk, Verdict::Switched);
    }
}
