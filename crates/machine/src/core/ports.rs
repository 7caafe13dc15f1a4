//! Issue ports: which units are free in which cycle.
//!
//! Operations get their cycles in program order: a later one may issue long before an earlier one.
//! So the scheduler does not keep when a unit is free next, but how many operations of each unit
//! issue in each of the coming cycles.

use super::instruction::{UNITS, Unit};
use super::model::CoreModel;

/// Cycles ahead of the present that are tracked. An operation that waits longer for its operands
/// finds the units free; operations that wait longer for a unit issue one after the other.
const AHEAD: usize = 1024;
const MASK: u64 = AHEAD as u64 - 1;

/// The operations of a cycle: a count of five bits for all of them and for each unit. Each count
/// starts at 15 less its limit, so that its fifth bit says that the limit is exceeded.
type Word = u64;
const BITS: usize = 5;

const fn overflow() -> Word {
    let (mut word, mut field) = (0, 0);
    while field <= UNITS {
        word |= 16 << (BITS * field);
        field += 1;
    }
    word
}

const OVERFLOW: Word = overflow();

/// How many operations can issue in one cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    empty: Word,
}

/// One more operation of a unit, and of all.
fn one(unit: usize) -> Word {
    1 | 1 << (BITS * (unit + 1))
}

impl Limits {
    /// Up to `width` in all, and of each unit as many as there are.
    pub(super) fn new(model: &CoreModel, width: u32) -> Limits {
        let mut empty = u64::from(15 - width);
        for (unit, (_, of)) in model.units.all().iter().enumerate() {
            empty |= u64::from(15 - of.count) << (BITS * (unit + 1));
        }
        Limits { empty }
    }

    /// A cycle ahead in which nothing has issued.
    #[inline(always)]
    fn free(self) -> Ahead {
        Ahead { issued: self.empty, leaving: 0, wide_loads: 0 }
    }

    /// A cycle in which nothing has issued.
    pub(super) fn cycle(self, cycle: u64) -> Cycle {
        Cycle { cycle, issued: self.empty }
    }
}

/// Adds an operation to a cycle if its limits permit.
#[inline]
pub(super) fn fits(word: &mut Word, unit: Unit) -> bool {
    let more = *word + one(unit as usize);
    let fits = more & OVERFLOW == 0;
    if fits {
        *word = more;
    }
    fits
}

/// One cycle of an in-order core, and what issues in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    pub(super) cycle: u64,
    issued: Word,
}

impl Cycle {
    /// Issues an instruction in this cycle if all units that it needs are free. An instruction that
    /// needs no unit takes an issue slot, too.
    pub(super) fn try_issue(&mut self, units: [Option<Unit>; 3]) -> bool {
        let mut more = self.issued;
        for unit in units.into_iter().flatten() {
            more += one(unit as usize) - 1;
            if more & OVERFLOW != 0 {
                return false;
            }
        }
        more += 1;
        let fits = more & OVERFLOW == 0;
        if fits {
            self.issued = more;
        }
        fits
    }
}

/// A cycle from the present on.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// What issues in it.
    issued: Word,
    /// How many instructions leave the scheduler in it.
    leaving: u16,
    /// Its wide loads.
    wide_loads: u8,
}

#[derive(Clone, Debug)]
pub(super) struct PortScheduler {
    limits: Limits,
    /// The cycles from `now` on.
    ahead: Box<[Ahead; AHEAD]>,
    /// When further instructions leave it, later than that.
    leaving_late: Vec<u64>,
    /// The present: nothing issues before this cycle any more.
    now: u64,
    /// Instructions in the scheduler.
    waiting: u32,
    /// For each unit: it is taken in all cycles from the present to before this one.
    full_until: [u64; UNITS],
    intervals: [u32; UNITS],
    /// The most wide loads of a cycle.
    wide_most: u8,
}

/// Cycles in which nothing has issued.
fn free_cycles(limits: Limits) -> Box<[Ahead; AHEAD]> {
    let Ok(array) = vec![limits.free(); AHEAD].into_boxed_slice().try_into() else {
        unreachable!("the length is that of the array")
    };
    array
}

impl PortScheduler {
    pub(super) fn new(model: &CoreModel) -> PortScheduler {
        let limits = Limits::new(model, model.issue_width);
        PortScheduler {
            limits,
            ahead: free_cycles(limits),
            leaving_late: Vec::new(),
            now: 0,
            waiting: 0,
            full_until: [0; UNITS],
            intervals: model.units.all().map(|(_, unit)| unit.interval_cycles),
            wide_most: model.data.wide_loads.unwrap_or(0) as u8,
        }
    }

    /// Reserves a unit in the first cycle from `earliest` on in which it is free. Returns the
    /// cycle. `earliest` is not before the present.
    #[inline]
    pub(super) fn reserve(&mut self, earliest: u64, unit: Unit) -> u64 {
        let full_until = self.full_until[unit as usize];
        let mut cycle = earliest.max(full_until);
        let interval = self.intervals[unit as usize];
        if interval > 1 {
            cycle = self.reserve_interval(cycle, unit, interval);
        } else {
            while cycle - self.now < AHEAD as u64 {
                if fits(&mut self.ahead[(cycle & MASK) as usize].issued, unit) {
                    break;
                }
                cycle += 1;
            }
        }
        if earliest <= full_until {
            // Beyond the cycles that are tracked: one after the other.
            let beyond = cycle + u64::from(interval) > self.now + AHEAD as u64;
            self.full_until[unit as usize] = cycle + if beyond { u64::from(interval) } else { 0 };
        }
        cycle
    }

    /// Reserves a unit for another number of cycles than its other operations.
    #[inline(never)]
    pub(super) fn reserve_for(&mut self, earliest: u64, unit: Unit, interval: u32) -> u64 {
        let own = std::mem::replace(&mut self.intervals[unit as usize], interval);
        let cycle = self.reserve(earliest, unit);
        self.intervals[unit as usize] = own;
        cycle
    }

    /// Reserves a load unit; a wide load can only use some of them.
    #[inline]
    pub(super) fn reserve_load(&mut self, earliest: u64, wide: bool) -> u64 {
        if !wide {
            return self.reserve(earliest, Unit::Load);
        }
        let mut cycle = earliest.max(self.full_until[Unit::Load as usize]);
        while cycle - self.now < AHEAD as u64 {
            let at = &mut self.ahead[(cycle & MASK) as usize];
            if at.wide_loads < self.wide_most && fits(&mut at.issued, Unit::Load) {
                at.wide_loads += 1;
                break;
            }
            cycle += 1;
        }
        cycle
    }

    /// Reserves a unit that an operation occupies for several cycles: it must be free in all of
    /// them.
    fn reserve_interval(&mut self, earliest: u64, unit: Unit, interval: u32) -> u64 {
        let interval = u64::from(interval);
        let taken = one(unit as usize) & !15;
        let end = self.now + AHEAD as u64;
        let mut cycle = earliest;
        while cycle < end {
            let word = |cycle: u64| self.ahead[(cycle & MASK) as usize].issued;
            let issued = (word(cycle) + one(unit as usize)) & OVERFLOW == 0;
            let stays = |cycle| (word(cycle) + taken) & OVERFLOW == 0;
            let until = end.min(cycle + interval);
            if issued && (cycle + 1..until).all(stays) {
                self.ahead[(cycle & MASK) as usize].issued += 1;
                (cycle..until)
                    .for_each(|cycle| self.ahead[(cycle & MASK) as usize].issued += taken);
                break;
            }
            cycle += 1;
        }
        cycle
    }

    /// An instruction is in the scheduler until `cycle`.
    #[inline]
    pub(super) fn wait_until(&mut self, cycle: u64) {
        if cycle <= self.now {
            return;
        }
        self.waiting += 1;
        if cycle - self.now < AHEAD as u64 {
            self.ahead[(cycle & MASK) as usize].leaving += 1;
        } else {
            self.leaving_late.push(cycle);
        }
    }

    /// The present: nothing issues before this cycle any more.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Advances the present to `cycle`, unless it is later already.
    #[inline]
    pub(super) fn advance(&mut self, cycle: u64) {
        if cycle > self.now {
            self.advance_to(cycle);
        }
    }

    fn advance_to(&mut self, cycle: u64) {
        if cycle - self.now >= AHEAD as u64 {
            self.ahead.fill(self.limits.free());
            self.waiting = self.leaving_late.len() as u32;
            self.now = cycle;
        }
        while self.now < cycle {
            self.ahead[(self.now & MASK) as usize] = self.limits.free();
            self.now += 1;
            let leaving = &mut self.ahead[(self.now & MASK) as usize].leaving;
            self.waiting -= u32::from(*leaving);
            *leaving = 0;
        }
        if !self.leaving_late.is_empty() {
            let before = self.leaving_late.len();
            self.leaving_late.retain(|leaves| *leaves > cycle);
            self.waiting -= (before - self.leaving_late.len()) as u32;
        }
    }

    /// Whether a scheduler of `entries` is full.
    #[inline]
    pub(super) fn is_full(&self, entries: u32) -> bool {
        self.waiting >= entries
    }

    /// Advances to the first cycle in which a scheduler of `entries` has room. Returns the cycle.
    pub(super) fn until_room(&mut self, entries: u32) -> u64 {
        while self.waiting >= entries {
            self.advance_to(self.now + 1);
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn ports(issue: u32, counts: &[u32; UNITS], intervals: &[u32; UNITS]) -> PortScheduler {
        let mut empty = u64::from(15 - issue);
        for (unit, count) in counts.iter().enumerate() {
            empty |= u64::from(15 - count) << (BITS * (unit + 1));
        }
        PortScheduler {
            limits: Limits { empty },
            ahead: free_cycles(Limits { empty }),
            leaving_late: Vec::new(),
            now: 0,
            waiting: 0,
            full_until: [0; UNITS],
            intervals: *intervals,
            wide_most: 0,
        }
    }

    const EACH: [Unit; 3] = [Unit::Integer, Unit::Divide, Unit::Store];

    proptest! {
        /// Compared with counts in a map.
        #[test]
        fn units_are_free_when_they_are(
            issue in 1u32..5,
            counts in [1u32..4, 1..4, 1..4],
            interval in 1u32..5,
            asked in prop::collection::vec((0usize..3, 0u64..40, 0u64..4), 1..300),
        ) {
            let (mut limits, mut intervals) = ([1; UNITS], [1; UNITS]);
            for (at, unit) in EACH.iter().enumerate() {
                limits[*unit as usize] = counts[at];
            }
            intervals[Unit::Divide as usize] = interval;
            let mut ports = ports(issue, &limits, &intervals);
            let (mut all, mut taken) = (HashMap::new(), HashMap::new());
            let mut now = 0;
            for (at, ahead, passes) in asked {
                now += passes;
                ports.advance(now);
                let length = if at == 1 { u64::from(interval) } else { 1 };
                let mut cycle = now + ahead;
                while all.get(&cycle).is_some_and(|number| *number >= issue)
                    || (cycle..cycle + length)
                        .any(|cycle| taken.get(&(at, cycle)).is_some_and(|n| *n >= counts[at]))
                {
                    cycle += 1;
                }
                *all.entry(cycle).or_insert(0) += 1;
                (cycle..cycle + length)
                    .for_each(|cycle| *taken.entry((at, cycle)).or_insert(0) += 1);
                prop_assert_eq!(ports.reserve(now + ahead, EACH[at]), cycle);
            }
        }

        /// Compared with a list of the instructions in the scheduler.
        #[test]
        fn the_scheduler_has_room_when_it_has(
            entries in 1u32..6,
            asked in prop::collection::vec((0u64..6, prop_oneof![4 => 0u64..30, 1 => 0u64..9_000]), 1..200),
        ) {
            let mut ports = ports(4, &[1; UNITS], &[1; UNITS]);
            let mut waiting: Vec<u64> = Vec::new();
            let mut now = 0;
            for (passes, ahead) in asked {
                now += passes;
                ports.advance(now);
                // Time advances to the first that leaves.
                waiting.retain(|leaves| *leaves > now);
                while waiting.len() >= entries as usize {
                    now = *waiting.iter().min().expect("some wait");
                    waiting.retain(|leaves| *leaves > now);
                }
                prop_assert_eq!(ports.until_room(entries), now);
                ports.wait_until(now + ahead);
                waiting.push(now + ahead);
            }
        }
    }
}
