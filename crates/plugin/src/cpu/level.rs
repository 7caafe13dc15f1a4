//! The current level of detail of the recording: the level of the options, or markers only (`fast`).
//!
//! The session holds one [`Level`] for all vCPUs. Markers and annotations request another level. The level changes only
//! once QEMU has dropped its translated code, because each level registers other callbacks.

use simrecord::counters::Counts;
use simrecord::record::Detail;

use crate::cpu;

/// A level that markers and annotations request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedLevel {
    /// The level of the options.
    Full,
    MarkersOnly,
}

#[derive(Debug)]
pub(crate) struct Level {
    /// The level of the options.
    wanted: Detail,
    /// The level in use: `wanted`, or [`Detail::Fast`].
    current: Detail,
    /// The level from the time on when QEMU has dropped its translated code. `None`: the level does not change.
    requested: Option<Detail>,
    cpus: u32,
}

impl Level {
    /// `wanted`: the level of the options. `starts_fast`: whether the recording starts at [`Detail::Fast`].
    pub(crate) fn new(wanted: Detail, starts_fast: bool, cpus: u32) -> Level {
        let current = if starts_fast { Detail::Fast } else { wanted };
        Level { wanted, current, requested: None, cpus }
    }

    pub(crate) fn current(&self) -> Detail {
        self.current
    }

    /// Whether instructions are counted now.
    pub(crate) fn is_counting(&self) -> bool {
        self.current != Detail::Fast
    }

    /// Whether instructions are counted now or may be counted later. False if the options ask for [`Detail::Fast`].
    pub(crate) fn can_count(&self) -> bool {
        self.wanted != Detail::Fast
    }

    /// Requests a level from the next block on. Returns whether the level changes: the caller must then make QEMU drop its
    /// translated code.
    pub(crate) fn request(&mut self, requested: RequestedLevel) -> bool {
        let level = match requested {
            RequestedLevel::Full => self.wanted,
            RequestedLevel::MarkersOnly => Detail::Fast,
        };
        let is_change = level != self.requested.unwrap_or(self.current);
        if is_change {
            self.requested = Some(level);
        }
        is_change
    }

    /// QEMU has dropped its translated code: the requested level is in use from now on.
    pub(crate) fn apply_request(&mut self) {
        self.current = self.requested.take().unwrap_or(self.current);
    }

    /// How many of the `remaining` instructions of a block its start has counted: all, or 0 while only markers are
    /// recorded.
    pub(crate) fn counted_part_of(&self, remaining: u32) -> u32 {
        if self.is_counting() { remaining } else { 0 }
    }

    /// The counts of each vCPU, by its number. The last `remaining` instructions of the block of `vcpu` have not
    /// executed yet. Empty if the recording never counts.
    pub(crate) fn counts_of_all_vcpus(&self, vcpu: u32, remaining: u32) -> Vec<Counts> {
        if !self.can_count() {
            return Vec::new();
        }
        let counts_of = |number: u32| {
            let remaining = if number == vcpu { self.counted_part_of(remaining) } else { 0 };
            cpu::with_vcpu(number, |cpu| cpu.counts_before(remaining))
        };
        (0..self.cpus).map(counts_of).collect()
    }

    /// The counts of each vCPU, by its number, when every block that has started has also executed. Empty if the recording
    /// never counts.
    pub(crate) fn counts_between_blocks(&self) -> Vec<Counts> {
        self.counts_of_all_vcpus(0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_changes_when_the_code_is_forgotten() {
        let mut level = Level::new(Detail::Timed, true, 1);
        assert!(level.request(RequestedLevel::Full) && !level.request(RequestedLevel::Full));
        assert_eq!((level.current(), level.counted_part_of(3)), (Detail::Fast, 0));
        level.apply_request();
        assert_eq!((level.current(), level.counted_part_of(3)), (Detail::Timed, 3));
        // Two changes before QEMU has dropped its code cancel each other.
        assert!(level.request(RequestedLevel::MarkersOnly) && level.request(RequestedLevel::Full));
        level.apply_request();
        assert_eq!(level.current(), Detail::Timed);
    }
}
