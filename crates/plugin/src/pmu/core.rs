//! The PMU of one vCPU: event selects and counters, as AMD's manual defines them (APM volume 2, 13.2).
//!
//! A counter has no clock of its own. Its value is synchronised with the plugin's counts of the vCPU ([`EventCounts`])
//! whenever the guest or the plugin reads it. This file is pure: `machine.rs` provides the counts.

use super::events::{Event, event_of};
use super::state::{Content, CounterContent};

/// Number of counters of a vCPU: the counters of AMD's core performance counter extensions.
pub(crate) const COUNTERS: usize = 6;
/// The width of a counter in bits.
const WIDTH: u32 = 48;
const VALUE_MASK: u64 = (1 << WIDTH) - 1;

/// Bits of an event select.
const USER: u64 = 1 << 16;
const SYSTEM: u64 = 1 << 17;
const EDGE: u64 = 1 << 18;
const INTERRUPT: u64 = 1 << 20;
const ENABLE: u64 = 1 << 22;
const INVERT: u64 = 1 << 23;
const COUNTER_MASK: u64 = 0xff << 24;
const GUEST_ONLY: u64 = 1 << 40;
const HOST_ONLY: u64 = 1 << 41;
/// The bits of an event select that identify the event, its unit mask and the conditions on it.
const EVENT_BITS: u64 = 0xf << 32 | COUNTER_MASK | INVERT | EDGE | 0xffff;

/// The privilege levels whose events a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrivilegeRings {
    pub(crate) user: bool,
    pub(crate) kernel: bool,
}

/// The counts of a vCPU at one moment.
pub(crate) trait EventCounts {
    /// How often `event` has happened in these rings since an arbitrary start. It does not decrease. `None`: the event
    /// is not counted now.
    fn count(&self, event: Event, rings: PrivilegeRings) -> Option<u64>;

    /// The most instructions that the vCPU executes in a cycle.
    fn instructions_per_cycle_max(&self) -> u64;
}

/// A counter and its event select.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// The event select register.
    select: u64,
    /// The value at the last synchronisation.
    value: u64,
    /// The count of the event at the last synchronisation. `None` if the counter is off or the event is not counted.
    synchronised_count: Option<u64>,
    /// Whether the counter has overflowed with its interrupt enabled since [`Pmu::take_overflows`] was called last.
    has_overflowed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pmu {
    counters: [Counter; COUNTERS],
}

impl Counter {
    /// The privilege rings whose events are counted, or `None` if the counter is off.
    fn rings(&self) -> Option<PrivilegeRings> {
        let (user, kernel) = (self.select & USER != 0, self.select & SYSTEM != 0);
        // The guest runs no guests, so a counter for guests only counts nothing.
        let guests_only = self.select & (GUEST_ONLY | HOST_ONLY) == GUEST_ONLY;
        let is_on = self.select & ENABLE != 0 && (user || kernel) && !guests_only;
        is_on.then_some(PrivilegeRings { user, kernel })
    }

    /// The selected event, or `None` if the plugin does not know it.
    fn event(&self) -> Option<Event> {
        // Conditions on the number of events per cycle are not emulated.
        if self.select & (COUNTER_MASK | INVERT | EDGE) != 0 {
            return None;
        }
        let number = (self.select & 0xff) as u16 | (self.select >> 24) as u16 & 0xf00;
        event_of(number, (self.select >> 8) as u8)
    }

    /// The count of the selected event in the selected rings.
    fn count(&self, counts: &impl EventCounts) -> Option<u64> {
        counts.count(self.event()?, self.rings()?)
    }

    /// Adds the events since the last synchronisation to the value.
    fn synchronise(&mut self, counts: &impl EventCounts) {
        let now = self.count(counts);
        if let (Some(now), Some(last)) = (now, self.synchronised_count) {
            let value = self.value + now.saturating_sub(last);
            self.has_overflowed |= value > VALUE_MASK && self.select & INTERRUPT != 0;
            self.value = value & VALUE_MASK;
        }
        // While an event is not counted, nothing is added. Counting starts again from the next count.
        self.synchronised_count = now;
    }

    /// Counts from now on, without the events since the last synchronisation.
    fn restart(&mut self, counts: &impl EventCounts) {
        self.synchronised_count = self.count(counts);
    }
}

impl Pmu {
    /// The event select of a counter.
    pub(crate) fn select(&self, index: usize) -> u64 {
        self.counters[index].select
    }

    /// The current value of a counter.
    pub(crate) fn value(&mut self, index: usize, counts: &impl EventCounts) -> u64 {
        self.counters[index].synchronise(counts);
        self.counters[index].value
    }

    /// Writes an event select. The counter keeps its value.
    pub(crate) fn write_select(&mut self, index: usize, select: u64, counts: &impl EventCounts) {
        let counter = &mut self.counters[index];
        counter.synchronise(counts);
        counter.select = select;
        counter.restart(counts);
    }

    /// Writes a counter. An overflow that was not reported is forgotten.
    pub(crate) fn write_value(&mut self, index: usize, value: u64, counts: &impl EventCounts) {
        let counter = &mut self.counters[index];
        counter.value = value & VALUE_MASK;
        counter.has_overflowed = false;
        counter.restart(counts);
    }

    /// The event of a counter that is on but cannot count, as the event's bits of the event select. `None` if it counts
    /// or is off.
    pub(crate) fn uncounted(&self, index: usize, counts: &impl EventCounts) -> Option<u64> {
        let counter = &self.counters[index];
        let is_on = counter.rings().is_some();
        (is_on && counter.count(counts).is_none()).then_some(counter.select & EVENT_BITS)
    }

    /// Synchronises all counters with the counts.
    pub(crate) fn synchronise(&mut self, counts: &impl EventCounts) {
        self.counters.iter_mut().for_each(|counter| counter.synchronise(counts));
    }

    /// Returns whether a counter with an enabled interrupt has overflowed since the last call.
    pub(crate) fn take_overflows(&mut self, counts: &impl EventCounts) -> bool {
        let mut any_overflow = false;
        for counter in &mut self.counters {
            counter.synchronise(counts);
            any_overflow |= std::mem::take(&mut counter.has_overflowed);
        }
        any_overflow
    }

    /// The least number of cycles, at least 1, after which a counter with an enabled interrupt can overflow. `None` if
    /// none can. Relies on [`Event::per_cycle_max`].
    pub(crate) fn next_overflow(&self, counts: &impl EventCounts) -> Option<u64> {
        let due = |counter: &Counter| {
            if counter.select & INTERRUPT == 0 {
                return None;
            }
            let event = counter.event()?;
            let pending = counter.count(counts)?.saturating_sub(counter.synchronised_count?);
            let events_to_overflow = (VALUE_MASK + 1).saturating_sub(counter.value + pending);
            let per_cycle_max = event.per_cycle_max(counts.instructions_per_cycle_max());
            Some((events_to_overflow / per_cycle_max).max(1))
        };
        self.counters.iter().filter_map(due).min()
    }

    /// All event selects and current values.
    pub(crate) fn content(&mut self, counts: &impl EventCounts) -> Content {
        std::array::from_fn(|index| CounterContent {
            select: self.select(index),
            value: self.value(index, counts),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INSTRUCTIONS: u64 = 0xc0;
    const BRANCH_MISSES: u64 = 0xc3;
    const ON: u64 = ENABLE | USER | SYSTEM;

    /// Instructions by ring. Each takes two cycles, or a quarter if the vCPU is `wide`. No other event is counted, and no
    /// event at all while `paused`.
    #[derive(Clone, Copy, Debug, Default)]
    struct Executed {
        user: u64,
        kernel: u64,
        paused: bool,
        wide: bool,
    }

    impl EventCounts for Executed {
        fn count(&self, event: Event, rings: PrivilegeRings) -> Option<u64> {
            let count_if = |wanted: bool, count: u64| if wanted { count } else { 0 };
            let instructions =
                count_if(rings.user, self.user) + count_if(rings.kernel, self.kernel);
            match event {
                _ if self.paused => None,
                Event::Instructions => Some(instructions),
                Event::Cycles if self.wide => Some(instructions / 4),
                Event::Cycles => Some(2 * instructions),
                _ => None,
            }
        }

        fn instructions_per_cycle_max(&self) -> u64 {
            if self.wide { 4 } else { 1 }
        }
    }

    fn executed(user: u64, kernel: u64) -> Executed {
        Executed { user, kernel, ..Executed::default() }
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
        for (wants, interrupts) in [(INTERRUPT, true), (0, false)] {
            let mut pmu = Pmu::default();
            pmu.write_value(2, VALUE_MASK - 9, &executed(0, 0));
            pmu.write_select(2, INSTRUCTIONS | ON | wants, &executed(0, 0));
            assert!(!pmu.take_overflows(&executed(9, 0)));
            assert_eq!(pmu.take_overflows(&executed(10, 0)), interrupts);
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

    /// A guest's use of counter 0, or the instructions that it executes.
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
        /// At each read, a counter shows the events since the last write, in 48 bits. Each overflow is reported.
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
                        let count_if = |bit: u64, count: u16| if select & bit != 0 { count.into() } else { 0 };
                        let rings: u64 = count_if(USER, user) + count_if(SYSTEM, kernel);
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

        /// A counter does not overflow before the predicted count.
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

        /// A counter that is checked at the predicted cycles is seen to overflow in the cycle of the overflow, also if
        /// each cycle has several instructions.
        #[test]
        fn an_overflow_is_noticed_in_its_cycle(
            remaining in 1..10_000_u64,
            rings in prop::sample::select(vec![USER, USER | SYSTEM]),
            event in prop::sample::select(vec![INSTRUCTIONS, 0x76]),
            wide: bool,
        ) {
            let at_cycle = |cycle: u64| {
                let user = if wide { cycle * 4 } else { cycle / 2 };
                Executed { user, wide, ..Executed::default() }
            };
            let mut pmu = Pmu::default();
            pmu.write_value(3, VALUE_MASK + 1 - remaining, &at_cycle(0));
            pmu.write_select(3, event | rings | ENABLE | INTERRUPT, &at_cycle(0));
            let mut cycle = 0;
            while !pmu.take_overflows(&at_cycle(cycle)) {
                cycle += pmu.next_overflow(&at_cycle(cycle)).unwrap();
            }
            let overflow_at = match (event, wide) {
                (INSTRUCTIONS, true) => remaining.div_ceil(4),
                (INSTRUCTIONS, false) => 2 * remaining,
                (_, true) => remaining,
                (_, false) => remaining.next_multiple_of(2),
            };
            prop_assert_eq!(cycle, overflow_at);
        }
    }
}
