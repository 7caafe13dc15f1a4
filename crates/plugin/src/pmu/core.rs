//! The PMU of one vCPU: event selects and counters, as AMD's manual has them (APM volume 2, 13.2).

use super::events::{Event, event_of};

/// Counters of a vCPU: those of the core performance counter extensions.
pub(crate) const COUNTERS: usize = 6;
/// Bits of a counter.
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
/// What belongs to the event: number, unit mask, and how they are to be counted.
const EVENT_BITS: u64 = 0xf << 32 | COUNTER_MASK | INVERT | EDGE | 0xffff;

/// Whose events a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rings {
    pub(crate) user: bool,
    pub(crate) kernel: bool,
}

/// The counts of a vCPU at one moment.
pub(crate) trait Counts {
    /// How often `event` has happened in these rings since some beginning; `None` if it is not
    /// counted. It doesn't decrease.
    fn count(&self, event: Event, rings: Rings) -> Option<u64>;
}

/// A counter and its event select.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    select: u64,
    /// Its value when it was looked at last.
    value: u64,
    /// The count at that time; `None` if it is off or not counted.
    since: Option<u64>,
    /// It ran over with an interrupt wanted, and nobody was told yet.
    ran_over: bool,
}

/// The PMU of one vCPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pmu {
    counters: [Counter; COUNTERS],
}

impl Counter {
    /// Whose events it counts; `None` if it is off.
    fn rings(&self) -> Option<Rings> {
        let (user, kernel) = (self.select & USER != 0, self.select & SYSTEM != 0);
        // The guest is no host of guests.
        let guests = self.select & (GUEST_ONLY | HOST_ONLY) == GUEST_ONLY;
        let on = self.select & ENABLE != 0 && (user || kernel) && !guests;
        on.then_some(Rings { user, kernel })
    }

    /// What it is asked to count, if that has a meaning here.
    fn event(&self) -> Option<Event> {
        // Cycles in which something happened so and so often are not known.
        if self.select & (COUNTER_MASK | INVERT | EDGE) != 0 {
            return None;
        }
        let number = (self.select & 0xff) as u16 | (self.select >> 24) as u16 & 0xf00;
        event_of(number, (self.select >> 8) as u8)
    }

    fn count(&self, counts: &impl Counts) -> Option<u64> {
        counts.count(self.event()?, self.rings()?)
    }

    /// Brings the value up to now.
    fn settle(&mut self, counts: &impl Counts) {
        let now = self.count(counts);
        if let (Some(now), Some(since)) = (now, self.since) {
            let value = self.value + now.saturating_sub(since);
            self.ran_over |= value > VALUE_MASK && self.select & INTERRUPT != 0;
            self.value = value & VALUE_MASK;
        }
        // What is counted only sometimes begins anew each time.
        self.since = now;
    }

    /// Counts from now on.
    fn restart(&mut self, counts: &impl Counts) {
        self.since = self.count(counts);
    }
}

impl Pmu {
    /// The event select of a counter.
    pub(crate) fn select(&self, index: usize) -> u64 {
        self.counters[index].select
    }

    /// The value of a counter.
    pub(crate) fn value(&mut self, index: usize, counts: &impl Counts) -> u64 {
        self.counters[index].settle(counts);
        self.counters[index].value
    }

    /// Writes an event select. What was counted stays.
    pub(crate) fn write_select(&mut self, index: usize, select: u64, counts: &impl Counts) {
        let counter = &mut self.counters[index];
        counter.settle(counts);
        counter.select = select;
        counter.restart(counts);
    }

    /// Writes a counter.
    pub(crate) fn write_value(&mut self, index: usize, value: u64, counts: &impl Counts) {
        let counter = &mut self.counters[index];
        counter.value = value & VALUE_MASK;
        counter.ran_over = false;
        counter.restart(counts);
    }

    /// The event of a counter that is on and stands still, as it can't be counted.
    pub(crate) fn uncounted(&self, index: usize, counts: &impl Counts) -> Option<u64> {
        let counter = &self.counters[index];
        let on = counter.rings().is_some();
        (on && counter.count(counts).is_none()).then_some(counter.select & EVENT_BITS)
    }

    /// Brings all counters up to now.
    pub(crate) fn settle(&mut self, counts: &impl Counts) {
        self.counters.iter_mut().for_each(|counter| counter.settle(counts));
    }

    /// Whether a counter has run over that is to interrupt, since this was asked last.
    pub(crate) fn take_overflows(&mut self, counts: &impl Counts) -> bool {
        let mut any = false;
        for counter in &mut self.counters {
            counter.settle(counts);
            any |= std::mem::take(&mut counter.ran_over);
        }
        any
    }

    /// In how many cycles a counter can have run over that is to interrupt, at the earliest.
    pub(crate) fn next_overflow(&self, counts: &impl Counts) -> Option<u64> {
        let due = |counter: &Counter| {
            let interrupts = counter.select & INTERRUPT != 0;
            let event = counter.event().filter(|_| interrupts)?;
            let ahead = counter.count(counts)?.saturating_sub(counter.since?);
            let left = (VALUE_MASK + 1).saturating_sub(counter.value + ahead);
            Some((left / event.per_cycle_max()).max(1))
        };
        self.counters.iter().filter_map(due).min()
    }

    /// All event selects and values, to be kept.
    pub(crate) fn content(&mut self, counts: &impl Counts) -> [(u64, u64); COUNTERS] {
        std::array::from_fn(|index| (self.select(index), self.value(index, counts)))
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
