//! The PMU of a vCPU against a plain model of one.

use proptest::prelude::*;

use super::*;

const INSTRUCTIONS: u64 = 0xc0;
const BRANCH_MISSES: u64 = 0xc3;
const ON: u64 = ENABLE | USER | SYSTEM;

/// Instructions by ring; an instruction takes two cycles; nothing else is counted, and at times not
/// even that.
#[derive(Clone, Copy, Debug, Default)]
struct Executed {
    user: u64,
    kernel: u64,
    paused: bool,
}

impl Counts for Executed {
    fn count(&self, event: Event, rings: Rings) -> Option<u64> {
        let of = |wanted: bool, count: u64| if wanted { count } else { 0 };
        let instructions = of(rings.user, self.user) + of(rings.kernel, self.kernel);
        match event {
            _ if self.paused => None,
            Event::Instructions => Some(instructions),
            Event::Cycles => Some(2 * instructions),
            _ => None,
        }
    }
}

fn executed(user: u64, kernel: u64) -> Executed {
    Executed { user, kernel, paused: false }
}

#[test]
fn a_counter_counts_in_the_rings_that_it_is_told() {
    for (rings, expected) in [(USER, 10), (SYSTEM, 300), (USER | SYSTEM, 310), (0, 0)] {
        let mut pmu = Pmu::default();
        pmu.write_select(0, INSTRUCTIONS | ENABLE | rings, &executed(5, 7));
        assert_eq!(pmu.value(0, &executed(15, 307)), expected);
    }
}

#[test]
fn a_counter_that_is_off_keeps_its_value() {
    let mut pmu = Pmu::default();
    pmu.write_value(1, 100, &executed(0, 0));
    pmu.write_select(1, INSTRUCTIONS | ON, &executed(50, 0));
    pmu.write_select(1, INSTRUCTIONS | USER | SYSTEM, &executed(53, 0));
    assert_eq!(pmu.value(1, &executed(1_000, 0)), 103);
    pmu.write_select(1, INSTRUCTIONS | ON, &executed(2_000, 0));
    assert_eq!(pmu.value(1, &executed(2_001, 0)), 104);
}

#[test]
fn counters_for_guests_of_the_guest_count_nothing() {
    let mut pmu = Pmu::default();
    pmu.write_select(0, INSTRUCTIONS | ON | GUEST_ONLY, &executed(0, 0));
    assert_eq!(pmu.value(0, &executed(9, 9)), 0);
    assert_eq!(pmu.uncounted(0, &executed(9, 9)), None);
    pmu.write_select(0, INSTRUCTIONS | ON | GUEST_ONLY | HOST_ONLY, &executed(9, 9));
    assert_eq!(pmu.value(0, &executed(10, 9)), 1);
}

#[test]
fn a_counter_has_48_bits() {
    let mut pmu = Pmu::default();
    pmu.write_value(0, u64::MAX, &executed(0, 0));
    assert_eq!(pmu.value(0, &executed(0, 0)), (1 << 48) - 1);
    pmu.write_select(0, INSTRUCTIONS | ON, &executed(0, 0));
    assert_eq!(pmu.value(0, &executed(3, 0)), 2);
}

#[test]
fn an_overflow_is_told_once_and_only_to_whom_wants_it() {
    for (wants, told) in [(INTERRUPT, true), (0, false)] {
        let mut pmu = Pmu::default();
        pmu.write_value(2, VALUE_MASK - 9, &executed(0, 0));
        pmu.write_select(2, INSTRUCTIONS | ON | wants, &executed(0, 0));
        assert!(!pmu.take_overflows(&executed(9, 0)));
        assert_eq!(pmu.take_overflows(&executed(10, 0)), told);
        assert!(!pmu.take_overflows(&executed(11, 0)));
    }
}

#[test]
fn an_overflow_that_a_write_covers_is_not_told() {
    let mut pmu = Pmu::default();
    pmu.write_value(0, VALUE_MASK, &executed(0, 0));
    pmu.write_select(0, INSTRUCTIONS | ON | INTERRUPT, &executed(0, 0));
    pmu.write_select(0, 0, &executed(5, 0)); // ran over before it was switched off
    pmu.write_value(0, 0, &executed(5, 0));
    assert!(!pmu.take_overflows(&executed(6, 0)));
}

#[test]
fn an_event_that_is_not_counted_is_named_and_stands_still() {
    let mut pmu = Pmu::default();
    pmu.write_value(0, 77, &executed(0, 0));
    pmu.write_select(0, BRANCH_MISSES | ON | INTERRUPT, &executed(0, 0));
    assert_eq!(pmu.value(0, &executed(1 << 40, 0)), 77);
    assert_eq!(pmu.uncounted(0, &executed(0, 0)), Some(BRANCH_MISSES));
    assert_eq!(pmu.next_overflow(&executed(0, 0)), None);
    // Cycles with at least one instruction are not instructions.
    pmu.write_select(1, INSTRUCTIONS | ON | 1 << 24, &executed(0, 0));
    assert_eq!(pmu.uncounted(1, &executed(0, 0)), Some(INSTRUCTIONS | 1 << 24));
    pmu.write_select(1, INSTRUCTIONS | ON, &executed(0, 0));
    assert_eq!(pmu.uncounted(1, &executed(0, 0)), None);
}

#[test]
fn what_is_counted_at_times_only_adds_up_those_times() {
    let paused = |user| Executed { paused: true, ..executed(user, 0) };
    let mut pmu = Pmu::default();
    pmu.write_select(0, INSTRUCTIONS | ON, &paused(100));
    assert_eq!(pmu.value(0, &paused(200)), 0);
    assert_eq!(pmu.value(0, &executed(300, 0)), 0); // from here on
    assert_eq!(pmu.value(0, &executed(350, 0)), 50);
    assert_eq!(pmu.value(0, &paused(400)), 50);
    assert_eq!(pmu.value(0, &executed(1_000, 0)), 50);
    assert_eq!(pmu.value(0, &executed(1_001, 0)), 51);
}

/// What a guest does to counter 0, or executes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Execute { user: u16, kernel: u16 },
    Select(u64),
    Value(u64),
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    let rings = prop::sample::select(vec![0, USER, SYSTEM, USER | SYSTEM]);
    let on = prop::sample::select(vec![0, ENABLE, ENABLE | INTERRUPT]);
    let event = prop::sample::select(vec![INSTRUCTIONS, 0x76, BRANCH_MISSES]);
    prop_oneof![
        (any::<u16>(), any::<u16>()).prop_map(|(user, kernel)| Step::Execute { user, kernel }),
        (rings, on, event).prop_map(|(rings, on, event)| Step::Select(rings | on | event)),
        prop_oneof![0..100_u64, VALUE_MASK - 100_000..=VALUE_MASK].prop_map(Step::Value),
        Just(Step::Read),
    ]
}

proptest! {
    /// Read at whatever times, a counter shows what it has counted since it was written, in 48 bits,
    /// and every time that it passes the end is told.
    #[test]
    fn a_counter_is_the_sum_of_what_was_executed_while_it_was_on(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let (mut pmu, mut now) = (Pmu::default(), Executed::default());
        let (mut select, mut expected, mut over) = (0_u64, 0_u64, false);
        for step in steps {
            match step {
                Step::Execute { user, kernel } => {
                    now.user += u64::from(user);
                    now.kernel += u64::from(kernel);
                    let of = |bit: u64, count: u16| if select & bit != 0 { count.into() } else { 0 };
                    let rings: u64 = of(USER, user) + of(SYSTEM, kernel);
                    let each = match select & 0xff { INSTRUCTIONS => 1, 0x76 => 2, _ => 0 };
                    if select & ENABLE != 0 {
                        expected += rings * each;
                        over |= expected > VALUE_MASK && select & INTERRUPT != 0;
                        expected &= VALUE_MASK;
                    }
                }
                Step::Select(wanted) => {
                    select = wanted;
                    pmu.write_select(0, wanted, &now);
                    prop_assert_eq!(pmu.select(0), wanted);
                }
                Step::Value(value) => {
                    (expected, over) = (value, false);
                    pmu.write_value(0, value, &now);
                }
                Step::Read => {
                    prop_assert_eq!(pmu.value(0, &now), expected);
                    prop_assert_eq!(pmu.take_overflows(&now), std::mem::take(&mut over));
                }
            }
        }
        prop_assert_eq!(pmu.value(0, &now), expected);
    }

    /// A counter does not run over before it is said that it can.
    #[test]
    fn no_overflow_comes_before_the_earliest_one(
        value in VALUE_MASK - 10_000..=VALUE_MASK,
        rings in prop::sample::select(vec![USER, SYSTEM, USER | SYSTEM]),
        event in prop::sample::select(vec![INSTRUCTIONS, 0x76]),
        user in 0..20_000_u64,
    ) {
        let mut pmu = Pmu::default();
        pmu.write_value(3, value, &executed(0, 0));
        pmu.write_select(3, event | rings | ENABLE | INTERRUPT, &executed(0, 0));
        let earliest = pmu.next_overflow(&executed(0, 0)).unwrap();
        // In cycles; an instruction takes two.
        let instructions = (earliest - 1) / 2;
        let user = user.min(instructions);
        prop_assert!(!pmu.take_overflows(&executed(user, instructions - user)));
    }
}
