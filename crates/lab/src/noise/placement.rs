//! Where a loop runs, and what runs on the other CPUs at the same time: the effect of a handler on a loop
//! (paper `noise-t1`, section on placement).

use super::quantum::Quantum;
use super::split::{Mark, What};

/// Maximum number of busy intervals of a CPU that are stored.
pub const BUSY_INTERVALS_MAX: usize = 1 << 16;

/// Where a CPU (a hardware thread) is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub cpu: u32,
    /// Its core, by a number that no other core of its socket has.
    pub core: i32,
    pub socket: i32,
}

/// What two CPUs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// They are the same one.
    SameThread,
    /// A core: its pipeline, and its first-level caches.
    SameCore,
    /// A socket.
    OtherCore,
    /// At most memory.
    OtherSocket,
}

impl Relation {
    /// All, from the closest on.
    pub const ALL: [Relation; 4] =
        [Relation::SameThread, Relation::SameCore, Relation::OtherCore, Relation::OtherSocket];

    /// The relation of two CPUs.
    #[must_use]
    pub fn of(one: Place, other: Place) -> Relation {
        if one.cpu == other.cpu {
            Relation::SameThread
        } else if one.socket != other.socket {
            Relation::OtherSocket
        } else if one.core != other.core {
            Relation::OtherCore
        } else {
            Relation::SameCore
        }
    }

    /// As tables have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Relation::SameThread => "same thread",
            Relation::SameCore => "same core",
            Relation::OtherCore => "other core",
            Relation::OtherSocket => "other socket",
        }
    }
}

/// An interval in which a CPU executed neither its loop nor the idle task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyInterval {
    /// When it started, ns.
    pub start_ns: u64,
    /// When it ended, ns.
    pub end_ns: u64,
    /// Whether handlers of interrupts alone had the CPU.
    pub is_handlers: bool,
}

/// What one CPU did apart from its loop, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuActivity {
    pub place: Place,
    /// In the order of time; they do not overlap.
    pub intervals: Vec<BusyInterval>,
    /// Later ones were not stored; absent when all were.
    pub until_ns: Option<u64>,
}

/// What ran on the CPUs, apart from the loops, during a quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcurrentActivity {
    /// Nobody ran anywhere.
    Nobody,
    /// Handlers ran on this CPU alone, and nothing else anywhere.
    Handlers(u32),
    /// Handlers ran on this CPU, and something else there or elsewhere.
    More(u32),
    /// Something else ran.
    Others,
    /// It is not known.
    Unknown,
}

impl CpuActivity {
    /// Intervals that overlap the quantum.
    fn during(&self, quantum: &Quantum) -> &[BusyInterval] {
        let end_ns = quantum.start_ns.saturating_add(quantum.time_ns);
        let first = self.intervals.partition_point(|one| one.end_ns <= quantum.start_ns);
        let later = &self.intervals[first..];
        &later[..later.partition_point(|one| one.start_ns < end_ns)]
    }
}

/// What the CPUs did during a quantum.
#[must_use]
pub fn concurrent_activity(quantum: &Quantum, all: &[CpuActivity]) -> ConcurrentActivity {
    let end_ns = quantum.start_ns.saturating_add(quantum.time_ns);
    if all.iter().filter_map(|one| one.until_ns).any(|until| until < end_ns) {
        return ConcurrentActivity::Unknown;
    }
    let (mut handlers, mut others) = (None, false);
    for one in all {
        let intervals = one.during(quantum);
        others |= intervals.iter().any(|interval| !interval.is_handlers);
        if intervals.iter().any(|interval| interval.is_handlers) {
            others |= handlers.is_some();
            handlers.get_or_insert(one.place.cpu);
        }
    }
    match (handlers, others) {
        (None, false) => ConcurrentActivity::Nobody,
        (None, true) => ConcurrentActivity::Others,
        (Some(cpu), false) => ConcurrentActivity::Handlers(cpu),
        (Some(cpu), true) => ConcurrentActivity::More(cpu),
    }
}

/// Builds busy intervals from events in the order of time, no more than [`BUSY_INTERVALS_MAX`].
#[derive(Clone, Debug, Default)]
pub struct BusyIntervals {
    intervals: Vec<BusyInterval>,
    until_ns: Option<u64>,
    /// The interval that has not ended: its start and whether it is of handlers.
    open: Option<(u64, bool)>,
    /// Contexts that are open, by marks.
    depth: u32,
    /// Whether another task runs, by marks.
    task: bool,
}

impl BusyIntervals {
    /// From `at_ns` on it is the loop or nobody (none), handlers, or something else.
    pub fn transition(&mut self, at_ns: u64, is_handlers: Option<bool>) {
        if self.open.map(|open| open.1) == is_handlers {
            return;
        }
        if let Some((start_ns, is_handlers)) = self.open.take().filter(|open| open.0 < at_ns) {
            match self.intervals.len() < BUSY_INTERVALS_MAX {
                true => self.intervals.push(BusyInterval { start_ns, end_ns: at_ns, is_handlers }),
                false => {
                    self.until_ns.get_or_insert(start_ns);
                }
            }
        }
        self.open = is_handlers.map(|is_handlers| (at_ns, is_handlers));
    }

    /// The next mark. A page fault has no end, and is the loop's own.
    pub fn mark(&mut self, mark: &Mark) {
        match mark.what {
            What::Enter(_) => self.depth += 1,
            What::Leave(_) => self.depth = self.depth.saturating_sub(1),
            What::SwitchTo(_) => (self.depth, self.task) = (0, true),
            What::SwitchBack => (self.depth, self.task) = (0, false),
            What::Fault => return,
        }
        let is_handlers = (self.depth > 0 || self.task).then_some(!self.task);
        self.transition(mark.at_ns, is_handlers);
    }

    /// What a CPU did until `end_ns`.
    #[must_use]
    pub fn finish(mut self, place: Place, end_ns: u64) -> CpuActivity {
        self.transition(self.open.map_or(end_ns, |open| open.0.max(end_ns)), None);
        CpuActivity { place, intervals: self.intervals, until_ns: self.until_ns }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(cpu: u32, core: i32, socket: i32) -> Place {
        Place { cpu, core, socket }
    }

    fn quantum(start_ns: u64, time_ns: u64) -> Quantum {
        Quantum { start_ns, time_ns, named_ns: None, main: None, faulted: None, migrated: false }
    }

    fn activity(cpu: u32, intervals: &[(u64, u64, bool)]) -> CpuActivity {
        let interval =
            |&(start_ns, end_ns, is_handlers)| BusyInterval { start_ns, end_ns, is_handlers };
        let intervals = intervals.iter().map(interval).collect();
        CpuActivity { place: place(cpu, 0, 0), intervals, until_ns: None }
    }

    #[test]
    fn what_cpus_share() {
        let one = place(1, 0, 0);
        assert_eq!(Relation::of(one, one), Relation::SameThread);
        assert_eq!(Relation::of(one, place(0, 0, 0)), Relation::SameCore);
        assert_eq!(Relation::of(one, place(4, 1, 0)), Relation::OtherCore);
        // Numbers of cores are those of a socket.
        assert_eq!(Relation::of(one, place(9, 0, 1)), Relation::OtherSocket);
    }

    #[test]
    fn a_quantum_is_of_the_handlers_in_it_if_they_were_alone() {
        let all = [
            activity(0, &[(10, 20, true), (50, 60, true), (80, 90, false)]),
            activity(1, &[(55, 58, true), (100, 110, true), (110, 120, false)]),
        ];
        for (start_ns, time_ns, expected) in [
            (0, 10, ConcurrentActivity::Nobody),
            (20, 30, ConcurrentActivity::Nobody),
            (0, 11, ConcurrentActivity::Handlers(0)),
            (12, 2, ConcurrentActivity::Handlers(0)),
            (50, 5, ConcurrentActivity::Handlers(0)),
            (50, 6, ConcurrentActivity::More(0)),
            (15, 70, ConcurrentActivity::More(0)),
            (85, 1, ConcurrentActivity::Others),
            (95, 10, ConcurrentActivity::Handlers(1)),
            (95, 20, ConcurrentActivity::More(1)),
        ] {
            let found = concurrent_activity(&quantum(start_ns, time_ns), &all);
            assert_eq!(found, expected, "{start_ns} {time_ns}");
        }
    }

    #[test]
    fn marks_become_busy_intervals() {
        use What::{Enter, Fault, Leave, SwitchBack, SwitchTo};
        let mut intervals = BusyIntervals::default();
        let marks = [
            (10, Enter(1)),
            (12, Enter(2)),
            (14, Leave(2)),
            (20, Leave(1)),
            (30, Fault),
            (40, Enter(1)),
            (50, SwitchTo(7)),
            (60, Enter(1)),
            (65, Leave(1)),
            (70, SwitchBack),
            (80, Leave(9)),
            (90, Enter(1)),
        ];
        marks.iter().for_each(|&(at_ns, what)| intervals.mark(&Mark { at_ns, what }));
        let found = intervals.finish(place(0, 0, 0), 100);
        let expected = [(10, 20, true), (40, 50, true), (50, 70, false), (90, 100, true)];
        assert_eq!(found, activity(0, &expected));
    }

    #[test]
    fn beyond_what_is_kept_nothing_is_known() {
        let mut intervals = BusyIntervals::default();
        let last = 10 * (BUSY_INTERVALS_MAX as u64 + 1);
        for at in (0..=last).step_by(10) {
            intervals.transition(at, Some(true));
            intervals.transition(at + 1, None);
        }
        let all = [intervals.finish(place(0, 0, 0), last + 10)];
        let first_lost = 10 * BUSY_INTERVALS_MAX as u64;
        assert_eq!(all[0].intervals.len(), BUSY_INTERVALS_MAX);
        assert_eq!(
            concurrent_activity(&quantum(first_lost - 5, 5), &all),
            ConcurrentActivity::Nobody
        );
        assert_eq!(
            concurrent_activity(&quantum(first_lost - 5, 6), &all),
            ConcurrentActivity::Unknown
        );
        assert_eq!(concurrent_activity(&quantum(last + 5, 1), &all), ConcurrentActivity::Unknown);
    }

    proptest! {
        /// A binary search finds the same intervals as a search through all of them.
        #[test]
        fn nothing_that_overlaps_is_missed(
            steps in prop::collection::vec((0..9_u64, 1..9_u64, any::<bool>()), 0..40),
            start_ns in 0..300_u64,
            time_ns in 1..50_u64,
        ) {
            let mut at = 0;
            let intervals: Vec<_> = steps.iter().map(|&(gap, length, is_handlers)| {
                let start = at + gap;
                at = start + length;
                (start, at, is_handlers)
            }).collect();
            let hit = |wanted: bool| intervals.iter().any(|&(start, end, is_handlers)| {
                is_handlers == wanted && start < start_ns + time_ns && start_ns < end
            });
            let expected = match (hit(true), hit(false)) {
                (false, false) => ConcurrentActivity::Nobody,
                (false, true) => ConcurrentActivity::Others,
                (true, false) => ConcurrentActivity::Handlers(3),
                (true, true) => ConcurrentActivity::More(3),
            };
            prop_assert_eq!(concurrent_activity(&quantum(start_ns, time_ns), &[activity(3, &intervals)]), expected);
        }
    }
}
