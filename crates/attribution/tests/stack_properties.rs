//! Properties of the span stack on random event sequences, well nested and not.

use attribution::stack::DEPTH_MAX;
use attribution::{SpanStack, StackFaults};
use proptest::prelude::*;

/// One event: enter or exit of a key, some time after the event before.
#[derive(Clone, Copy, Debug)]
struct Event {
    enter: bool,
    key: u8,
    gap: u64,
}

fn any_event() -> impl Strategy<Value = Event> {
    (any::<bool>(), 0u8..6, 0u64..1_000_000).prop_map(|(enter, key, gap)| Event { enter, key, gap })
}

proptest! {
    /// On well-nested input the self times add up to exactly the time that was covered by spans.
    #[test]
    fn self_times_sum_to_the_covered_time(events in prop::collection::vec(any_event(), 0..400)) {
        let mut stack = SpanStack::default();
        let mut open: Vec<u8> = Vec::new();
        let (mut now, mut covered, mut self_sum) = (0u64, 0u64, 0u64);
        for event in events {
            now += event.gap;
            covered += if open.is_empty() { 0 } else { event.gap };
            if event.enter && open.len() < DEPTH_MAX {
                open.push(event.key);
                stack.enter(event.key, now);
            } else if let Some(key) = open.pop() {
                let span = stack.exit(key, now).expect("well nested");
                self_sum += span.self_time;
                prop_assert!(span.self_time <= span.inclusive_time);
            }
        }
        while let Some(key) = open.pop() {
            self_sum += stack.exit(key, now).expect("well nested").self_time;
        }
        prop_assert_eq!(self_sum, covered);
        prop_assert_eq!(stack.faults(), StackFaults::default());
    }

    /// On any input nothing underflows, and every event is accounted for: entries are closed,
    /// abandoned, refused or still open; exits close a span or are counted as unmatched.
    #[test]
    fn every_event_is_accounted_for(events in prop::collection::vec(any_event(), 0..400)) {
        let mut stack = SpanStack::default();
        let (mut now, mut entries, mut exits, mut closed, mut self_sum) = (0u64, 0u64, 0u64, 0u64, 0u64);
        for event in events {
            now += event.gap;
            if event.enter {
                entries += 1;
                stack.enter(event.key, now);
            } else {
                exits += 1;
                if let Some(span) = stack.exit(event.key, now) {
                    closed += 1;
                    self_sum += span.self_time;
                    prop_assert!(span.self_time <= span.inclusive_time);
                }
            }
        }
        let faults = stack.faults();
        prop_assert_eq!(exits, closed + faults.unmatched_exits);
        let still_open = stack.depth() as u64;
        prop_assert_eq!(entries, closed + faults.abandoned + faults.overflows + still_open);
        prop_assert!(self_sum <= now);
    }
}
