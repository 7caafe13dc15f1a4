//! The current level of detail: the level of the options, or markers only.

use simrecord::counters::Counts;
use simrecord::record::Detail;

use crate::cpu;

/// The level of detail of a recording.
#[derive(Debug)]
pub(crate) struct Level {
    /// The level of the options.
    wanted: Detail,
    /// The level in use: `wanted`, or [`Detail::Fast`].
    now: Detail,
    /// The level after QEMU has dropped its translated code.
    next: Option<Detail>,
    cpus: u32,
}

impl Level {
    /// Starts at `wanted`, or at [`Detail::Fast`].
    pub(crate) fn new(wanted: Detail, starts_fast: bool, cpus: u32) -> Level {
        let now = if starts_fast { Detail::Fast } else { wanted };
        Level { wanted, now, next: None, cpus }
    }

    pub(crate) fn now(&self) -> Detail {
        self.now
    }

    /// Whether instructions are counted now.
    pub(crate) fn counts(&self) -> bool {
        self.now != Detail::Fast
    }

    /// Whether instructions are counted at any time.
    pub(crate) fn ever_counts(&self) -> bool {
        self.wanted != Detail::Fast
    }

    /// Requests the level of the options, or markers only, from the next block on. Returns whether the level
    /// changes: QEMU must then drop its translated code.
    pub(crate) fn request(&mut self, full: bool) -> bool {
        let level = if full { self.wanted } else { Detail::Fast };
        let changes = level != self.next.unwrap_or(self.now);
        if changes {
            self.next = Some(level);
        }
        changes
    }

    /// QEMU has dropped its translated code: the requested level is in use from now on.
    pub(crate) fn change(&mut self) {
        self.now = self.next.take().unwrap_or(self.now);
    }

    /// How many of the `remaining` instructions of a block were counted when it started: none while only
    /// markers are recorded.
    pub(crate) fn counted_of(&self, remaining: u32) -> u32 {
        if self.counts() { remaining } else { 0 }
    }

    /// The counts of each vCPU, where `remaining` instructions of the block of `vcpu` have not executed. Empty
    /// if nothing is ever counted.
    pub(crate) fn counted(&self, vcpu: u32, remaining: u32) -> Vec<Counts> {
        let remaining = |cpu| if cpu == vcpu { self.counted_of(remaining) } else { 0 };
        let count = |cpu| cpu::with(cpu, |state| state.counts_before(remaining(cpu)));
        if self.ever_counts() { (0..self.cpus).map(count).collect() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_changes_when_the_code_is_forgotten() {
        let mut level = Level::new(Detail::Timed, true, 1);
        assert!(level.request(true) && !level.request(true));
        assert_eq!((level.now(), level.counted_of(3)), (Detail::Fast, 0));
        level.change();
        assert_eq!((level.now(), level.counted_of(3)), (Detail::Timed, 3));
        // Two changes before QEMU has dropped its code cancel each other.
        assert!(level.request(false) && level.request(true));
        level.change();
        assert_eq!(level.now(), Detail::Timed);
    }
}
