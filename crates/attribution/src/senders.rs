//! Senders of function calls to other CPUs: joins a call that was queued for a CPU to its run there.
//!
//! The live bench has the same rules in a BPF program (`crates/live/bpf/senders.h`).

/// A function, as an opaque number.
type Function = u64;

/// How the kernel uses the record (`call_single_data`) of a queued call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordUse {
    /// The kernel releases the record just before it calls the function. The record can be queued again before the
    /// event of the run.
    ReleasedBeforeRun,
    /// The kernel releases the record after the function has returned.
    ReleasedAfterRun,
    /// One run serves all records that are queued then, and has an event for the first one only.
    ServedTogether,
}

/// The calls of one record to one CPU that wait for their run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    since: u64,
    function: Function,
    record_use: RecordUse,
    /// How many calls were seen without a run. The kernel has at most two.
    calls: u32,
}

/// The calls of one record to one CPU. Joins each call to its run.
///
/// Events may be missing. A run is joined only if the last call that was seen must be its call:
/// - A record that is released after its run cannot be queued before it. An earlier call without a run is dropped.
/// - A record that is released before its run may be queued once more before the event of the run. Then the record is
///   locked at that event, and the last call is not that of the run. Otherwise the last call is that of the run.
/// - A run that serves several records has one event. A call that was queued before the last such run is done.
/// - The functions of the call and of the run must be the same.
///
/// One case is not detected: the run of a call is missing, and then the queueing of the next call with the same record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuedCall {
    waiting: Option<Waiting>,
}

impl QueuedCall {
    /// The record is queued at time `now`.
    pub fn queue(&mut self, now: u64, function: Function, record_use: RecordUse) {
        let is_queued_again = self.waiting.is_some() && record_use == RecordUse::ReleasedBeforeRun;
        let calls = if is_queued_again { 2 } else { 1 };
        self.waiting = Some(Waiting { since: now, function, record_use, calls });
    }

    /// A run of `function` with this record starts. `is_locked`: whether the record is locked at that time.
    /// `last_shared_run`: when the last run before this one that served several records started on this CPU. Returns when
    /// the run's call was queued; `None` if that is not certain.
    pub fn run(
        &mut self,
        function: Function,
        is_locked: bool,
        last_shared_run: u64,
    ) -> Option<u64> {
        let waiting = self.waiting.as_mut()?;
        let is_queued_again = waiting.record_use == RecordUse::ReleasedBeforeRun && is_locked;
        if is_queued_again && waiting.calls > 1 {
            waiting.calls = 1;
            return None;
        }
        let waiting = self.waiting.take()?;
        let is_done =
            waiting.record_use == RecordUse::ServedTogether && waiting.since <= last_shared_run;
        let is_certain = waiting.function == function && !is_queued_again && !is_done;
        is_certain.then_some(waiting.since)
    }
}

#[cfg(test)]
mod tests {
    use super::RecordUse::{ReleasedAfterRun, ReleasedBeforeRun, ServedTogether};
    use stats::Random;

    use super::*;

    #[test]
    fn a_run_is_joined_to_the_call_of_its_record_and_function() {
        let mut call = QueuedCall::default();
        assert_eq!(call.run(7, true, 0), None, "no call was seen");
        call.queue(10, 7, ReleasedAfterRun);
        assert_eq!(call.run(7, true, 0), Some(10));
        call.queue(20, 7, ReleasedAfterRun);
        assert_eq!(call.run(8, true, 0), None, "another function");
        assert_eq!(call.run(7, true, 0), None, "the other run has used up the record");
    }

    #[test]
    fn a_record_that_is_queued_again_before_its_run_is_joined_to_the_second_run() {
        let mut call = QueuedCall::default();
        call.queue(10, 7, ReleasedBeforeRun);
        call.queue(20, 7, ReleasedBeforeRun);
        assert_eq!((call.run(7, true, 0), call.run(7, false, 0)), (None, Some(20)));
        call.queue(30, 7, ReleasedBeforeRun);
        assert_eq!(call.run(7, true, 0), None, "it was queued again without an event");
        assert_eq!(call.run(7, false, 0), None, "this is the run of that call");
    }

    #[test]
    fn the_run_of_an_earlier_call_that_was_not_seen_spoils_no_later_call() {
        for record_use in [ReleasedAfterRun, ReleasedBeforeRun] {
            let mut call = QueuedCall::default();
            call.queue(10, 7, record_use);
            call.queue(20, 7, record_use);
            assert_eq!(call.run(7, record_use == ReleasedAfterRun, 0), Some(20));
        }
    }

    #[test]
    fn a_wake_up_that_an_earlier_run_has_served_is_not_joined() {
        let mut call = QueuedCall::default();
        call.queue(10, 7, ServedTogether);
        assert_eq!(call.run(7, false, 15), None, "a run at 15 has served it");
        call.queue(20, 7, ServedTogether);
        assert_eq!(call.run(7, false, 15), Some(20));
    }

    /// The events that are not seen.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Missing {
        Nothing,
        Calls,
        Runs,
    }

    /// In random series of calls and runs of one record, each joined run has its own call, if events of one kind are
    /// missing.
    #[test]
    fn each_joined_run_has_its_own_call_whatever_is_not_seen() {
        for record_use in [ReleasedBeforeRun, ReleasedAfterRun] {
            for missing in [Missing::Nothing, Missing::Calls, Missing::Runs] {
                for seed in 1..200 {
                    follow_record(record_use, missing, seed);
                }
            }
        }
    }

    fn follow_record(record_use: RecordUse, missing: Missing, seed: u64) {
        let mut random = Random::new(seed);
        let mut call = QueuedCall::default();
        // The calls that the kernel has not run yet. It has released the record of the first one, if there are two.
        let mut true_calls: Vec<u64> = Vec::new();
        let (mut runs, mut joined) = (0, 0);
        let calls_max = if record_use == ReleasedBeforeRun { 2 } else { 1 };
        for now in 1..300 {
            let is_missing = random.below(8) == 0;
            if random.below(2) == 0 && true_calls.len() < calls_max {
                true_calls.push(now);
                if !(is_missing && missing == Missing::Calls) {
                    call.queue(now, 7, record_use);
                }
            } else if !true_calls.is_empty() {
                let true_call = true_calls.remove(0);
                runs += 1;
                if is_missing && missing == Missing::Runs {
                    continue;
                }
                let is_locked = record_use == ReleasedAfterRun || !true_calls.is_empty();
                let found = call.run(7, is_locked, 0);
                joined += u32::from(found.is_some());
                assert!(
                    found.is_none_or(|found| found == true_call),
                    "{record_use:?}, {missing:?} missing, seed {seed}, time {now}: {found:?}, not {true_call}"
                );
            }
        }
        if missing == Missing::Nothing && record_use == ReleasedAfterRun {
            assert_eq!(joined, runs);
        }
        assert!(
            joined > 20,
            "{record_use:?}, {missing:?} missing, seed {seed}: {joined} of {runs}"
        );
    }

    /// Runs that serve all waiting records: each joined run has its own call, even if queue events are missing.
    #[test]
    fn each_joined_wake_up_is_that_of_its_run() {
        for seed in 1..300 {
            let mut random = Random::new(seed);
            let mut calls = [QueuedCall::default(); 3];
            let mut waiting: Vec<(usize, u64)> = Vec::new();
            let (mut last_run, mut joined) = (0, 0);
            for now in 1..300 {
                let record = random.below(3) as usize;
                if random.below(3) > 0 {
                    if waiting.iter().all(|(waiting_record, _)| *waiting_record != record) {
                        waiting.push((record, now));
                        if random.below(8) > 0 {
                            calls[record].queue(now, 7, ServedTogether);
                        }
                    }
                } else if let Some(&(first, true_call)) = waiting.first() {
                    let found = calls[first].run(7, false, last_run);
                    assert!(
                        found.is_none_or(|found| found == true_call),
                        "seed {seed}, time {now}"
                    );
                    joined += u32::from(found.is_some());
                    last_run = now;
                    waiting.clear();
                }
            }
            assert!(joined > 20, "seed {seed}: {joined}");
        }
    }
}
