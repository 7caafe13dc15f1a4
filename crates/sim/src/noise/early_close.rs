//! Windows that the plugin closed because they had measured enough (`--until`).
//!
//! The guest does not see the close. Its clock jumps to the end of the window that it knows, and its loop ends there with
//! the jump in the last record. The results of the loop end where the window closed, so what comes later is cut off.

use lab::experiment::BenchError;
use lab::noise::Loop;
use lab::noise::in_guest::{GuestLoop, LoopRun};

use crate::accounting::RegionUse;

/// Returns the loop with the records that ended before the region closed on the loop's CPU. Records hold whole gaps,
/// quanta and slots of `quantum_ns`, so one that was open at the close is left out.
///
/// Page faults and context switches are absent then: the guest's kernel counted on after the close. The number of
/// iterations may have one too many.
///
/// Fails if the region closed before the loop began, or the record has no transitions of this CPU.
pub(super) fn cut_at_close(
    guest_loop: &GuestLoop,
    region: &RegionUse,
    quantum_ns: u64,
) -> Result<GuestLoop, BenchError> {
    let run = guest_loop.run;
    let cpu = region.cpus.iter().find(|cpu| cpu.cpu == run.cpu);
    // The plugin writes a last transition where it closes a region early.
    let last = cpu.and_then(|cpu| cpu.transitions.last()).ok_or_else(|| {
        BenchError::Failed(format!("the contexts of CPU {} were not recorded", run.cpu))
    })?;
    let end = last.tsc.min(run.end);
    if end <= run.start {
        return Err(BenchError::Failed(format!(
            "the window of loop {} closed before the loop began on CPU {} (give --until end)",
            run.looping, run.cpu
        )));
    }
    let is_before_close = |record: &&[u64; 3]| match run.looping {
        Loop::Ftq => record[0] < (end - run.start) / quantum_ns.max(1),
        Loop::Fwq | Loop::Detour => record[1] <= end,
    };
    let records = guest_loop.records.iter().filter(is_before_close).copied().collect();
    Ok(GuestLoop { run: LoopRun { end, page_faults: None, switches: None, ..run }, records })
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
        let transitions = vec![ContextTransition { context, task: context, cycles: tsc, tsc }];
        let cpu = CpuUse { cpu: 0, transitions, ..CpuUse::default() };
        RegionUse { cpus: vec![cpu], had_enough: true, ..RegionUse::default() }
    }

    #[test]
    fn what_was_open_at_the_close_is_left_out() {
        let quanta = [[100, 190, 0], [200, 290, 0], [300, 1_000, 0]];
        for looping in [Loop::Fwq, Loop::Detour] {
            let cut = cut_at_close(&guest_loop(looping, &quanta), &closed_at(290), 100).unwrap();
            assert_eq!((cut.records.as_slice(), cut.run.end), (&quanta[..2], 290), "{looping}");
            assert_eq!((cut.run.page_faults, cut.run.switches), (None, None));
        }
        // Slots 0 and 1 ended at 200 and 300; the guest noted slot 2 when its clock had jumped.
        let slots = [[0, 9, 0], [1, 9, 0], [2, 3, 0]];
        for (close, count) in [(300, 2), (399, 2), (400, 3)] {
            let cut = cut_at_close(&guest_loop(Loop::Ftq, &slots), &closed_at(close), 100).unwrap();
            assert_eq!(cut.records.len(), count, "{close}");
        }
    }

    #[test]
    fn a_close_after_the_loop_cuts_nothing_and_one_before_it_is_an_error() {
        let gaps = [[500, 1_000, 1]];
        let whole = guest_loop(Loop::Detour, &gaps);
        let cut = cut_at_close(&whole, &closed_at(2_000), 100).unwrap();
        assert_eq!((cut.records, cut.run.end), (whole.records.clone(), 1_000));
        let error = cut_at_close(&whole, &closed_at(100), 100).unwrap_err().to_string();
        assert!(error.contains("before the loop began"), "{error}");
        assert!(cut_at_close(&whole, &RegionUse::default(), 100).is_err());
    }
}
