//! The ledger closes, whatever the kernel says and however little of it arrives.

use lab::noise::{AttributionParameters, Class, Gap, GapLedger, Mark, Part, What, split};
use proptest::prelude::*;

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        (0u32..6).prop_map(What::Enter),
        (0u32..6).prop_map(What::Leave),
        (6u32..9).prop_map(What::SwitchTo),
        Just(What::SwitchBack),
        Just(What::Fault),
    ]
}

/// Any marks, in the order of time, some outside of the gap.
fn marks() -> impl Strategy<Value = Vec<Mark>> {
    prop::collection::vec((0u64..3000, what()), 0..40).prop_map(|mut list| {
        list.sort_by_key(|(at_ns, _)| *at_ns);
        list.into_iter().map(|(at_ns, what)| Mark { at_ns, what }).collect()
    })
}

proptest! {
    #[test]
    fn the_parts_of_any_gap_add_up_to_it(
        start_ns in 0u64..2000, length_ns in 0u64..2000, marks in marks(), entry_latency_ns in 0u64..500,
    ) {
        let gap = Gap { start_ns, end_ns: start_ns + length_ns };
        let mut parts = Vec::new();
        split(gap, &marks, AttributionParameters { entry_latency_ns }, &mut parts);
        prop_assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), length_ns);
        prop_assert!(parts.iter().all(|part| part.1 > 0));
        let of = |wanted: Part| parts.iter().filter(|p| p.0 == wanted).map(|p| p.1).sum::<u64>();
        prop_assert!(of(Part::Entry) <= entry_latency_ns && of(Part::Exit) <= entry_latency_ns);
        prop_assert_eq!(of(Part::NoEvent) > 0, marks.is_empty() && length_ns > 0);
    }

    /// Contexts laid end to end and inside one another, every event delivered: each gets its own
    /// time and no other's.
    #[test]
    fn contexts_get_their_own_time(
        lengths in prop::collection::vec((1u64..500, 0u64..300, 1u64..500, 0u64..50), 1..10),
        way_in_ns in 0u64..200, way_out_ns in 0u64..200,
    ) {
        let (mut at_ns, mut marks, mut own) = (way_in_ns, Vec::new(), [0; 4]);
        let mut say = |at_ns: &mut u64, after_ns: u64, what| {
            *at_ns += after_ns;
            marks.push(Mark { at_ns: *at_ns, what });
        };
        for (at, (before, nested, after, pause)) in lengths.iter().enumerate() {
            let outer = (at % 2) as u32;
            say(&mut at_ns, 0, What::Enter(outer));
            say(&mut at_ns, *before, What::Enter(2 + outer));
            say(&mut at_ns, *nested, What::Leave(2 + outer));
            say(&mut at_ns, *after, What::Leave(outer));
            own[outer as usize] += before + after;
            own[2 + outer as usize] += nested;
            at_ns += pause;
        }
        let end_ns = at_ns + way_out_ns;
        let mut ledger = GapLedger::new(AttributionParameters { entry_latency_ns: u64::MAX }, true, 1);
        ledger.add(Gap { start_ns: 0, end_ns }, &marks);
        for (source, own_ns) in (0u32..).zip(own) {
            let found = ledger.parts.get(&Part::Context(source)).map_or(0, |times| times.sum);
            prop_assert_eq!(found, own_ns, "source {}", source);
        }
        let pauses: u64 = lengths[..lengths.len() - 1].iter().map(|one| one.3).sum();
        let sums = ledger.by_class_ns().unwrap_or_default();
        prop_assert_eq!(sums[Class::Remainder as usize], pauses);
        prop_assert_eq!(sums.iter().sum::<u64>(), end_ns);
        prop_assert_eq!((ledger.faults.cut, ledger.faults.unmatched), (0, 0));
    }
}
