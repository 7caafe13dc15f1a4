//! Windows that the plugin closed because they had measured enough (`--until`).
//!
//! The guest does not see the close. Its clock jumps to the end of the window that it knows, and its loop ends there with
//! the jump in the last record. The results of the loop end where the window closed, so what comes later is cut off.
//!
//! The plugin closes a window at a time that does not depend on the loop's events. A gap or a quantum that was open then is
//! left out, and the loop's window ends before it: without its length, its time must not be in the window either.
//!
//! The clock jumps to the same time on all CPUs. A loop that began later than the plugin expects runs on after the jump,
//! at another speed, because the plugin records nothing any more. Its counts of iterations are then of no use.

use lab::experiment::BenchError;
use lab::noise::Loop;
use lab::noise::in_guest::{GuestLoop, LoopRun};

use crate::accounting::RegionUse;

/// A loop with what it measured before its window closed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CutLoop {
    pub(super) guest_loop: GuestLoop,
    /// Whether the loop ran on after the close, so that its numbers and times of iterations are not of the window.
    pub(super) ran_on: bool,
}

/// Returns the loop with the records that ended before the region closed on the loop's CPU. Records hold whole gaps,
/// quanta and slots of `quantum_ns`, so one that was open at the close is left out. The detour loop ends at its last
/// reading of the clock before the close, the loop of fixed work at the end of its last whole quantum.
///
/// Page faults and context switches are absent then: the guest's kernel counted on after the close. The number of
/// iterations may have one too many.
///
/// Fails if the region closed before the loop had measured anything, or the record has no transitions of this CPU.
pub(super) fn cut_at_close(
    guest_loop: &GuestLoop,
    region: &RegionUse,
    quantum_ns: u64,
) -> Result<CutLoop, BenchError> {
    let run = guest_loop.run;
    let cpu = region.cpus.iter().find(|cpu| cpu.cpu == run.cpu);
    // The plugin writes a last transition where it closes a region early.
    let last = cpu.and_then(|cpu| cpu.transitions.last()).ok_or_else(|| {
        BenchError::Failed(format!("the contexts of CPU {} were not recorded", run.cpu))
    })?;
    let close = last.tsc.min(run.end);
    let slots = close.saturating_sub(run.start) / quantum_ns.max(1);
    let is_before_close = |record: &&[u64; 3]| match run.looping {
        Loop::Ftq => record[0] < slots,
        Loop::Fwq | Loop::Detour => record[1] <= close,
    };
    let records: Vec<_> = guest_loop.records.iter().filter(is_before_close).copied().collect();
    let after_close = &guest_loop.records[records.len()..];
    let end = match run.looping {
        Loop::Ftq if slots == 0 => run.start,
        Loop::Ftq => close,
        Loop::Fwq => records.last().map_or(run.start, |quantum| quantum[1]),
        // The gap over the close, or over the jump, begins at the last reading.
        Loop::Detour => {
            after_close.first().map_or(close, |gap| gap[0].saturating_sub(gap[2]).min(close))
        }
    };
    if end <= run.start {
        return Err(BenchError::Failed(format!(
            "the window of loop {} closed before the loop had measured anything on CPU {} (give --until end)",
            run.looping, run.cpu
        )));
    }
    // A loop that ended with the jump has the jump in its last record, and no other record after the close. A jump that
    // is no longer than the threshold has no record.
    let ends_with_jump = match after_close {
        [] => run.end - close <= run.threshold_cycles,
        [jump] => jump[1] == run.end,
        _ => false,
    };
    let ran_on = run.looping == Loop::Detour && !ends_with_jump;
    let run = LoopRun { end, page_faults: None, switches: None, ..run };
    Ok(CutLoop { guest_loop: GuestLoop { run, records }, ran_on })
}

#[cfg(test)]
mod tests {
    use attribution::KernelContext;

    use super::*;
    use crate::accounting::{ContextTransition, CpuUse};

    /// A loop from 100 to 1,000, with these records.
    fn guest_loop(looping: Loop, records: &[[u64; 3]]) -> GuestLoop {
        let run = LoopRun {
            looping,
            cpu: 0,
            thread: 7,
            start: 100,
            end: 1_000,
            iterations: 9,
            recording_cycles: 0,
            iteration_cycles: 1,
            threshold_cycles: 2,
            body_iterations: 1,
            lost: 0,
            page_faults: Some(1),
            switches: Some(1),
            injected: None,
            interrupted: false,
        };
        GuestLoop { run, records: records.to_vec() }
    }

    /// A region that closed on CPU 0 at this time.
    fn closed_at(tsc: u64) -> RegionUse {
        let context = KernelContext::User(7);
        let transitions =
            vec![ContextTransition { context, task: context, at_cycles: tsc, cycles: tsc, tsc }];
        let cpu = CpuUse { cpu: 0, transitions, ..CpuUse::default() };
        RegionUse { cpus: vec![cpu], had_enough: true, ..RegionUse::default() }
    }

    #[test]
    fn what_was_open_at_the_close_is_left_out() {
        let quanta = [[100, 190, 0], [200, 290, 0], [300, 1_000, 0]];
        for looping in [Loop::Fwq, Loop::Detour] {
            let cut = cut_at_close(&guest_loop(looping, &quanta), &closed_at(290), 100).unwrap();
            let CutLoop { guest_loop: GuestLoop { run, records }, ran_on } = cut;
            assert_eq!((records.as_slice(), run.end), (&quanta[..2], 290), "{looping}");
            assert_eq!((run.page_faults, run.switches, ran_on), (None, None, false));
        }
        // Slots 0 and 1 ended at 200 and 300; the guest noted slot 2 when its clock had jumped.
        let slots = [[0, 9, 0], [1, 9, 0], [2, 3, 0]];
        for (close, count) in [(300, 2), (399, 2), (400, 3)] {
            let cut = cut_at_close(&guest_loop(Loop::Ftq, &slots), &closed_at(close), 100).unwrap();
            assert_eq!(cut.guest_loop.records.len(), count, "{close}");
        }
    }

    #[test]
    fn the_window_ends_before_what_was_open_at_the_close() {
        // The loop read the clock at 300, before an interrupt from 310 on, which is not over at 500.
        let gaps = [[110, 190, 10], [310, 1_000, 10]];
        let cut = cut_at_close(&guest_loop(Loop::Detour, &gaps), &closed_at(500), 100).unwrap();
        assert_eq!((cut.guest_loop.records.as_slice(), cut.guest_loop.run.end), (&gaps[..1], 300));
        let quanta = [[100, 190, 0], [200, 290, 0], [300, 1_000, 0]];
        let cut = cut_at_close(&guest_loop(Loop::Fwq, &quanta), &closed_at(500), 100).unwrap();
        assert_eq!(
            (cut.guest_loop.records.as_slice(), cut.guest_loop.run.end),
            (&quanta[..2], 290)
        );
        for looping in [Loop::Fwq, Loop::Ftq] {
            let error = cut_at_close(&guest_loop(looping, &quanta), &closed_at(150), 100);
            assert!(error.unwrap_err().to_string().contains("measured anything"), "{looping}");
        }
    }

    /// The clock jumped at 290, to a time before the end of the loop's window.
    #[test]
    fn a_loop_that_runs_on_after_the_close_is_told() {
        for after_close in [&[[280, 700, 1]][..], &[[280, 700, 1], [900, 1_000, 1]], &[]] {
            let records = [&[[200, 210, 1]], after_close].concat();
            let cut = cut_at_close(&guest_loop(Loop::Detour, &records), &closed_at(290), 100);
            let cut = cut.unwrap();
            assert_eq!((cut.guest_loop.records.as_slice(), cut.ran_on), (&records[..1], true));
        }
    }

    #[test]
    fn a_close_after_the_loop_cuts_nothing_and_one_before_it_is_an_error() {
        let gaps = [[500, 1_000, 1]];
        let whole = guest_loop(Loop::Detour, &gaps);
        let cut = cut_at_close(&whole, &closed_at(2_000), 100).unwrap();
        let CutLoop { guest_loop: GuestLoop { run, records }, ran_on } = cut;
        assert_eq!((records, run.end, ran_on), (whole.records.clone(), 1_000, false));
        let error = cut_at_close(&whole, &closed_at(100), 100).unwrap_err().to_string();
        assert!(error.contains("measured anything"), "{error}");
        assert!(cut_at_close(&whole, &RegionUse::default(), 100).is_err());
    }
}
