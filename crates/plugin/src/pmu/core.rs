//! The PMU of one vCPU: its counters, and the registers that select, enable and read them. [`super::layout`] has the
//! registers of each vendor.
//!
//! A counter has no clock of its own. Its value is synchronised with the plugin's counts of the vCPU ([`EventCounts`])
//! whenever the guest or the plugin reads it. This file is pure: `machine.rs` provides the counts.
//!
//! A fixed counter is a counter whose event select always has the same event. The guest sees parts of that event select
//! in the control register of all fixed counters.

use super::events::Event;
use super::layout::{
    COUNTER_MASK, EDGE, ENABLE, GUEST_ONLY, HOST_ONLY, INTERRUPT, INVERT, PmuRegister,
    RegisterLayout, SLOTS, SYSTEM, USER, VALUE_MASK, control_of_fixed, select_of_fixed,
};
use super::state::{Content, CounterContent};

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

    /// Whether no event is counted now, and the level of detail will change to a level that counts events.
    fn is_paused(&self) -> bool;

    /// The most instructions that the vCPU executes in a cycle.
    fn instructions_per_cycle_max(&self) -> u64;
}

/// Where the interrupt for a counter's overflow is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OverflowInterrupt {
    /// The counter has not overflowed, or wants no interrupt.
    #[default]
    None,
    /// [`Pmu::take_overflows`] has not reported the overflow yet.
    Due,
    /// The vCPU was interrupted, and the guest has not cleared the counter's bit of the global status. While a counter
    /// is in this state, other overflows do not interrupt: Intel's local APIC masks its entry of the PMU, and the
    /// handler finds all overflows in the global status.
    Sent,
}

/// A counter and its event select.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// The event select register. Of a fixed counter: the event select that counts the same.
    select: u64,
    /// The event of `select`. `None` if the plugin does not know it.
    event: Option<Event>,
    /// Whether the global control enables the counter.
    is_enabled_globally: bool,
    /// The value at the last synchronisation.
    value: u64,
    /// The count of the event at the last synchronisation. `None` if the counter is off or the event is not counted.
    synchronised_count: Option<u64>,
    /// The counter's bit of the global status.
    has_overflowed: bool,
    interrupt: OverflowInterrupt,
}

#[derive(Clone, Debug)]
pub(crate) struct Pmu {
    layout: RegisterLayout,
    /// The general counters, and then the fixed counters.
    counters: Vec<Counter>,
    /// Whether the guest has enabled the fixed counter of slots, which this PMU lacks.
    enables_slots: bool,
}

impl Counter {
    /// The privilege rings whose events are counted, or `None` if the counter is off.
    fn rings(&self) -> Option<PrivilegeRings> {
        let (user, kernel) = (self.select & USER != 0, self.select & SYSTEM != 0);
        // The guest runs no guests, so a counter for guests only counts nothing.
        let guests_only = self.select & (GUEST_ONLY | HOST_ONLY) == GUEST_ONLY;
        let is_enabled = self.select & ENABLE != 0 && self.is_enabled_globally;
        let is_on = is_enabled && (user || kernel) && !guests_only;
        is_on.then_some(PrivilegeRings { user, kernel })
    }

    /// The count of the selected event in the selected rings. `None` if none is selected, or the machine does not count the event.
    fn count(&self, counts: &impl EventCounts) -> Option<u64> {
        counts.count(self.event?, self.rings()?)
    }

    /// Adds the events since the last synchronisation to the value.
    fn synchronise(&mut self, counts: &impl EventCounts) {
        let now = self.count(counts);
        if let (Some(now), Some(last)) = (now, self.synchronised_count) {
            let value = self.value + now.saturating_sub(last);
            if value > VALUE_MASK {
                self.has_overflowed = true;
                if self.select & INTERRUPT != 0 && self.interrupt == OverflowInterrupt::None {
                    self.interrupt = OverflowInterrupt::Due;
                }
            }
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
    /// A PMU after a reset, without selected events. A global control enables the general counters alone (SDM volume 3,
    /// 9.1.1).
    pub(crate) fn new(layout: RegisterLayout) -> Pmu {
        let general = (0..layout.general_counters()).map(|_| (0, true));
        let fixed = layout.fixed_events().iter().map(|event| (*event, false));
        let counters = general.chain(fixed).map(|(select, is_enabled_globally)| Counter {
            select,
            event: layout.event_of_select(select),
            is_enabled_globally,
            ..Counter::default()
        });
        Pmu { layout, counters: counters.collect(), enables_slots: false }
    }

    /// The value that the guest reads from a register.
    pub(crate) fn read(&mut self, register: PmuRegister, counts: &impl EventCounts) -> u64 {
        let layout = self.layout;
        let bits_of = |pmu: &Pmu, is_set: fn(&Counter) -> bool| {
            let counters = pmu.counters.iter().enumerate();
            let set = counters.filter(|(_, counter)| is_set(counter));
            set.map(|(index, _)| layout.global_bit(index)).sum()
        };
        match register {
            PmuRegister::Select(index) => self.counters[index].select,
            PmuRegister::Value(index) => {
                self.counters[index].synchronise(counts);
                self.counters[index].value
            }
            PmuRegister::FixedControl => {
                let fixed = self.counters[layout.general_counters()..].iter().enumerate();
                fixed.map(|(index, counter)| control_of_fixed(counter.select, index)).sum()
            }
            PmuRegister::GlobalStatus => {
                self.synchronise(counts);
                bits_of(self, |counter| counter.has_overflowed)
            }
            PmuRegister::GlobalControl => bits_of(self, |counter| counter.is_enabled_globally),
            // It can only be written.
            PmuRegister::GlobalReset => 0,
        }
    }

    /// Writes a register. A counter keeps its value while its event select changes.
    pub(crate) fn write(&mut self, register: PmuRegister, value: u64, counts: &impl EventCounts) {
        let layout = self.layout;
        match register {
            PmuRegister::Select(index) => self.write_select(index, value, counts),
            PmuRegister::Value(index) => {
                let counter = &mut self.counters[index];
                counter.value = layout.value_after_write(index, value);
                // Without a global status, a handler finds an overflow in the counter's value, which is now another.
                if !layout.has_global_registers() {
                    counter.interrupt = OverflowInterrupt::None;
                }
                counter.restart(counts);
            }
            PmuRegister::FixedControl => {
                self.enables_slots = layout.enables_slots(value);
                for (index, event) in layout.fixed_events().iter().enumerate() {
                    let select = select_of_fixed(*event, index, value);
                    self.write_select(layout.general_counters() + index, select, counts);
                }
            }
            PmuRegister::GlobalControl => {
                for (index, counter) in self.counters.iter_mut().enumerate() {
                    counter.synchronise(counts);
                    counter.is_enabled_globally = value & layout.global_bit(index) != 0;
                    counter.restart(counts);
                }
            }
            PmuRegister::GlobalReset => {
                for (index, counter) in self.counters.iter_mut().enumerate() {
                    if value & layout.global_bit(index) != 0 {
                        counter.synchronise(counts);
                        counter.has_overflowed = false;
                        counter.interrupt = OverflowInterrupt::None;
                    }
                }
            }
            // It can only be read.
            PmuRegister::GlobalStatus => {}
        }
    }

    /// Writes the event select of a general counter, or the one that a fixed counter has.
    fn write_select(&mut self, index: usize, select: u64, counts: &impl EventCounts) {
        let counter = &mut self.counters[index];
        counter.synchronise(counts);
        counter.select = select;
        counter.event = self.layout.event_of_select(select);
        counter.restart(counts);
    }

    /// The events of counters that are on but cannot count, each as the event's bits of an event select. Empty while
    /// [`EventCounts::is_paused`].
    pub(crate) fn uncounted(&self, counts: &impl EventCounts) -> Vec<u64> {
        if counts.is_paused() {
            return Vec::new();
        }
        let is_uncounted =
            |counter: &&Counter| counter.rings().is_some() && counter.count(counts).is_none();
        let uncounted = self.counters.iter().filter(is_uncounted);
        let events = uncounted.map(|counter| counter.select & EVENT_BITS);
        events.chain(self.enables_slots.then_some(SLOTS)).collect()
    }

    /// Synchronises all counters with the counts.
    pub(crate) fn synchronise(&mut self, counts: &impl EventCounts) {
        self.counters.iter_mut().for_each(|counter| counter.synchronise(counts));
    }

    /// Returns whether the vCPU must be interrupted because counters have overflowed since the last call.
    pub(crate) fn take_overflows(&mut self, counts: &impl EventCounts) -> bool {
        self.synchronise(counts);
        let is_waiting_for_guest =
            self.counters.iter().any(|counter| counter.interrupt == OverflowInterrupt::Sent);
        let reported = if self.layout.has_global_registers() {
            OverflowInterrupt::Sent
        } else {
            OverflowInterrupt::None
        };
        let mut any_overflow = false;
        for counter in &mut self.counters {
            if counter.interrupt == OverflowInterrupt::Due {
                any_overflow = true;
                counter.interrupt = reported;
            }
        }
        any_overflow && !is_waiting_for_guest
    }

    /// The least number of cycles, at least 1, after which a counter with an enabled interrupt can overflow. `None` if
    /// none can. Relies on [`Event::per_cycle_max`].
    pub(crate) fn next_overflow(&self, counts: &impl EventCounts) -> Option<u64> {
        let due = |counter: &Counter| {
            if counter.select & INTERRUPT == 0 {
                return None;
            }
            let pending = counter.count(counts)?.saturating_sub(counter.synchronised_count?);
            let events_to_overflow = (VALUE_MASK + 1).saturating_sub(counter.value + pending);
            let per_cycle_max = counter.event?.per_cycle_max(counts.instructions_per_cycle_max());
            Some((events_to_overflow / per_cycle_max).max(1))
        };
        self.counters.iter().filter_map(due).min()
    }

    /// The content of the PMU.
    pub(crate) fn content(&mut self, counts: &impl EventCounts) -> Content {
        self.synchronise(counts);
        let content = |counter: &Counter| CounterContent {
            select: counter.select,
            value: counter.value,
            is_enabled_globally: counter.is_enabled_globally,
            has_overflowed: counter.has_overflowed,
            interrupt: counter.interrupt,
        };
        Content {
            counters: self.counters.iter().map(content).collect(),
            enables_slots: self.enables_slots,
        }
    }

    /// A PMU with this content. Counting starts with the next synchronisation.
    pub(crate) fn restored(layout: RegisterLayout, content: &Content) -> Pmu {
        let counter = |content: &CounterContent| Counter {
            select: content.select,
            event: layout.event_of_select(content.select),
            is_enabled_globally: content.is_enabled_globally,
            value: content.value & VALUE_MASK,
            synchronised_count: None,
            has_overflowed: content.has_overflowed,
            interrupt: content.interrupt,
        };
        Pmu {
            layout,
            counters: content.counters.iter().map(counter).collect(),
            enables_slots: content.enables_slots,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::PmuRegister::{
        FixedControl, GlobalControl, GlobalReset, GlobalStatus, Select, Value,
    };
    use super::*;
    use machine::identity::Vendor;

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

        fn is_paused(&self) -> bool {
            self.paused
        }

        fn instructions_per_cycle_max(&self) -> u64 {
            if self.wide { 4 } else { 1 }
        }
    }

    fn executed(user: u64, kernel: u64) -> Executed {
        Executed { user, kernel, ..Executed::default() }
    }

    fn amd() -> Pmu {
        Pmu::new(RegisterLayout::of_vendor(Vendor::Amd))
    }

    fn intel() -> Pmu {
        Pmu::new(RegisterLayout::of_vendor(Vendor::Intel))
    }

    /// The events of counters that are on but are not counted.
    fn uncounted(pmu: &Pmu) -> Vec<u64> {
        pmu.uncounted(&executed(9, 9))
    }

    #[test]
    fn a_counter_counts_in_the_rings_that_it_is_told() {
        for (rings, expected) in [(USER, 10), (SYSTEM, 300), (USER | SYSTEM, 310), (0, 0)] {
            let mut pmu = amd();
            pmu.write(Select(0), INSTRUCTIONS | ENABLE | rings, &executed(5, 7));
            assert_eq!(pmu.read(Value(0), &executed(15, 307)), expected);
        }
    }

    #[test]
    fn a_counter_that_is_off_keeps_its_value() {
        let mut pmu = amd();
        pmu.write(Value(1), 100, &executed(0, 0));
        pmu.write(Select(1), INSTRUCTIONS | ON, &executed(50, 0));
        pmu.write(Select(1), INSTRUCTIONS | USER | SYSTEM, &executed(53, 0));
        assert_eq!(pmu.read(Value(1), &executed(1_000, 0)), 103);
        pmu.write(Select(1), INSTRUCTIONS | ON, &executed(2_000, 0));
        assert_eq!(pmu.read(Value(1), &executed(2_001, 0)), 104);
    }

    #[test]
    fn counters_for_guests_of_the_guest_count_nothing() {
        let mut pmu = amd();
        pmu.write(Select(0), INSTRUCTIONS | ON | GUEST_ONLY, &executed(0, 0));
        assert_eq!(pmu.read(Value(0), &executed(9, 9)), 0);
        assert_eq!(uncounted(&pmu), []);
        pmu.write(Select(0), INSTRUCTIONS | ON | GUEST_ONLY | HOST_ONLY, &executed(9, 9));
        assert_eq!(pmu.read(Value(0), &executed(10, 9)), 1);
    }

    #[test]
    fn a_counter_has_48_bits() {
        let mut pmu = amd();
        pmu.write(Value(0), u64::MAX, &executed(0, 0));
        assert_eq!(pmu.read(Value(0), &executed(0, 0)), (1 << 48) - 1);
        pmu.write(Select(0), INSTRUCTIONS | ON, &executed(0, 0));
        assert_eq!(pmu.read(Value(0), &executed(3, 0)), 2);
    }

    #[test]
    fn an_overflow_is_told_once_and_only_to_whom_wants_it() {
        for (wants, interrupts) in [(INTERRUPT, true), (0, false)] {
            let mut pmu = amd();
            pmu.write(Value(2), VALUE_MASK - 9, &executed(0, 0));
            pmu.write(Select(2), INSTRUCTIONS | ON | wants, &executed(0, 0));
            assert!(!pmu.take_overflows(&executed(9, 0)));
            assert_eq!(pmu.take_overflows(&executed(10, 0)), interrupts);
            assert!(!pmu.take_overflows(&executed(11, 0)));
        }
    }

    #[test]
    fn an_overflow_that_a_write_covers_is_not_told() {
        let mut pmu = amd();
        pmu.write(Value(0), VALUE_MASK, &executed(0, 0));
        pmu.write(Select(0), INSTRUCTIONS | ON | INTERRUPT, &executed(0, 0));
        pmu.write(Select(0), 0, &executed(5, 0)); // ran over before it was switched off
        pmu.write(Value(0), 0, &executed(5, 0));
        assert!(!pmu.take_overflows(&executed(6, 0)));
    }

    #[test]
    fn an_event_that_is_not_counted_is_named_and_stands_still() {
        let mut pmu = amd();
        pmu.write(Value(0), 77, &executed(0, 0));
        pmu.write(Select(0), BRANCH_MISSES | ON | INTERRUPT, &executed(0, 0));
        assert_eq!(pmu.read(Value(0), &executed(1 << 40, 0)), 77);
        assert_eq!(uncounted(&pmu), [BRANCH_MISSES]);
        assert_eq!(pmu.next_overflow(&executed(0, 0)), None);
        // Cycles with at least one instruction are not instructions.
        pmu.write(Select(1), INSTRUCTIONS | ON | 1 << 24, &executed(0, 0));
        assert_eq!(uncounted(&pmu), [BRANCH_MISSES, INSTRUCTIONS | 1 << 24]);
        pmu.write(Select(1), INSTRUCTIONS | ON, &executed(0, 0));
        assert_eq!(uncounted(&pmu), [BRANCH_MISSES]);
    }

    #[test]
    fn an_event_is_named_where_counting_starts_and_not_before() {
        let paused = Executed { paused: true, ..executed(0, 0) };
        let mut pmu = amd();
        pmu.write(Select(0), INSTRUCTIONS | ON, &paused);
        pmu.write(Select(1), BRANCH_MISSES | ON, &paused);
        assert_eq!(pmu.uncounted(&paused), []);
        assert_eq!(uncounted(&pmu), [BRANCH_MISSES]);
        let restored = Pmu::restored(pmu.layout, &pmu.content(&paused));
        assert_eq!(uncounted(&restored), [BRANCH_MISSES]);
        let mut pmu = intel();
        pmu.write(FixedControl, 0xb << 12, &paused);
        let restored = Pmu::restored(pmu.layout, &pmu.content(&paused));
        assert_eq!(restored.uncounted(&paused), []);
        assert_eq!(uncounted(&restored), [SLOTS]);
    }

    #[test]
    fn what_is_counted_at_times_only_adds_up_those_times() {
        let paused = |user| Executed { paused: true, ..executed(user, 0) };
        let mut pmu = amd();
        pmu.write(Select(0), INSTRUCTIONS | ON, &paused(100));
        assert_eq!(pmu.read(Value(0), &paused(200)), 0);
        assert_eq!(pmu.read(Value(0), &executed(300, 0)), 0); // from here on
        assert_eq!(pmu.read(Value(0), &executed(350, 0)), 50);
        assert_eq!(pmu.read(Value(0), &paused(400)), 50);
        assert_eq!(pmu.read(Value(0), &executed(1_000, 0)), 50);
        assert_eq!(pmu.read(Value(0), &executed(1_001, 0)), 51);
    }

    #[test]
    fn intels_fixed_counters_count_what_their_control_enables() {
        let mut pmu = intel();
        pmu.write(GlobalControl, 7 << 32, &executed(0, 0));
        pmu.write(FixedControl, 0x2 | 0x1 << 4 | 0x3 << 8, &executed(0, 0));
        assert_eq!(pmu.read(FixedControl, &executed(0, 0)), 0x312);
        let now = executed(10, 300);
        assert_eq!(pmu.read(Value(8), &now), 10); // instructions in user mode
        assert_eq!(pmu.read(Value(9), &now), 600); // cycles in the kernel
        assert_eq!(pmu.uncounted(&now), [0x013c]);
        pmu.write(FixedControl, 0x3312, &now);
        assert_eq!(pmu.uncounted(&now), [0x013c, 0x0400]);
        pmu.write(FixedControl, 0, &now);
        assert_eq!(pmu.uncounted(&now), []);
        assert_eq!(pmu.read(Value(8), &executed(99, 999)), 10);
    }

    #[test]
    fn intels_global_control_stops_and_starts_all_counters() {
        let mut pmu = intel();
        assert_eq!(pmu.read(GlobalControl, &executed(0, 0)), 0xff);
        pmu.write(Select(7), INSTRUCTIONS | ON, &executed(0, 0));
        pmu.write(FixedControl, 0x3, &executed(0, 0));
        assert_eq!(pmu.read(Value(8), &executed(5, 0)), 0);
        pmu.write(GlobalControl, 0, &executed(5, 0));
        assert_eq!(pmu.read(GlobalControl, &executed(5, 0)), 0);
        pmu.write(GlobalControl, 1 << 32 | 1 << 7, &executed(100, 0));
        assert_eq!(pmu.read(Value(7), &executed(107, 0)), 5 + 7);
        assert_eq!(pmu.read(Value(8), &executed(107, 0)), 7);
    }

    #[test]
    fn an_overflow_of_intel_stays_in_the_global_status_until_it_is_cleared() {
        let mut pmu = intel();
        pmu.write(GlobalControl, 1 << 32 | 1, &executed(0, 0));
        // A general counter without an interrupt, and a fixed one with it, which overflows later.
        pmu.write(Value(0), u64::from(u32::MAX), &executed(0, 0));
        pmu.write(Select(0), INSTRUCTIONS | ON, &executed(0, 0));
        pmu.write(Value(8), VALUE_MASK - 9, &executed(0, 0));
        pmu.write(FixedControl, 0xb, &executed(0, 0));
        assert!(!pmu.take_overflows(&executed(9, 0)));
        assert_eq!(pmu.read(GlobalStatus, &executed(9, 0)), 1);
        assert!(pmu.take_overflows(&executed(10, 0)));
        assert_eq!(pmu.read(GlobalStatus, &executed(10, 0)), 1 << 32 | 1);
        // A write of the counter does not clear the status. Until the guest clears it, nothing else interrupts.
        pmu.write(Value(8), VALUE_MASK, &executed(10, 0));
        assert!(!pmu.take_overflows(&executed(20, 0)));
        pmu.write(GlobalReset, 1 << 32, &executed(20, 0));
        assert_eq!(pmu.read(GlobalStatus, &executed(20, 0)), 1);
        pmu.write(Value(8), VALUE_MASK, &executed(20, 0));
        assert!(pmu.take_overflows(&executed(21, 0)));
    }

    #[test]
    fn an_overflow_that_the_guest_has_cleared_does_not_interrupt() {
        let mut pmu = intel();
        pmu.write(Value(0), u64::from(u32::MAX), &executed(0, 0));
        pmu.write(Select(0), INSTRUCTIONS | ON | INTERRUPT, &executed(0, 0));
        assert_eq!(pmu.read(GlobalStatus, &executed(5, 0)), 1);
        pmu.write(GlobalReset, 1, &executed(5, 0));
        assert!(!pmu.take_overflows(&executed(6, 0)));
    }

    #[test]
    fn a_restored_pmu_goes_on() {
        let layout = RegisterLayout::of_vendor(Vendor::Intel);
        let mut pmu = intel();
        pmu.write(GlobalControl, 3 << 32, &executed(0, 0));
        pmu.write(Value(9), VALUE_MASK, &executed(0, 0));
        pmu.write(FixedControl, 0xb2, &executed(0, 0));
        assert!(pmu.take_overflows(&executed(4, 0)));
        let content = pmu.content(&executed(5, 0));
        assert_eq!(content.counters.len(), 11);
        let mut restored = Pmu::restored(layout, &content);
        assert_eq!(restored.read(FixedControl, &executed(0, 0)), 0xb2);
        assert_eq!(restored.read(GlobalControl, &executed(0, 0)), 3 << 32);
        assert_eq!(restored.read(GlobalStatus, &executed(0, 0)), 2 << 32);
        assert_eq!(restored.read(Value(8), &executed(3, 0)), 5 + 3);
        assert_eq!(restored.read(Value(9), &executed(3, 0)), 9 + 6);
        assert!(!restored.take_overflows(&executed(3, 0)));
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
            let (mut pmu, mut now) = (amd(), Executed::default());
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
                        pmu.write(Select(0), wanted, &now);
                        prop_assert_eq!(pmu.read(Select(0), &now), wanted);
                    }
                    Step::Value(value) => {
                        (expected, over) = (value, false);
                        pmu.write(Value(0), value, &now);
                    }
                    Step::Read => {
                        prop_assert_eq!(pmu.read(Value(0), &now), expected);
                        prop_assert_eq!(pmu.take_overflows(&now), std::mem::take(&mut over));
                    }
                }
            }
            prop_assert_eq!(pmu.read(Value(0), &now), expected);
        }

        /// A counter does not overflow before the predicted count.
        #[test]
        fn no_overflow_comes_before_the_earliest_one(
            value in VALUE_MASK - 10_000..=VALUE_MASK,
            rings in prop::sample::select(vec![USER, SYSTEM, USER | SYSTEM]),
            event in prop::sample::select(vec![INSTRUCTIONS, 0x76]),
            user in 0..20_000_u64,
        ) {
            let mut pmu = amd();
            pmu.write(Value(3), value, &executed(0, 0));
            pmu.write(Select(3), event | rings | ENABLE | INTERRUPT, &executed(0, 0));
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
            let mut pmu = amd();
            pmu.write(Value(3), VALUE_MASK + 1 - remaining, &at_cycle(0));
            pmu.write(Select(3), event | rings | ENABLE | INTERRUPT, &at_cycle(0));
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
