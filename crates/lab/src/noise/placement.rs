//! The placement of loops and interrupt handlers on CPUs, and the activity of the CPUs over time (paper `noise-t1`,
//! section on placement). Benches build a [`CpuActivity`] for each CPU from its events. Table `placement` then
//! classifies each quantum of fixed work by the activity of all CPUs during the quantum.

use super::quantum::Quantum;
use super::split::{Mark, What};

/// Maximum number of busy intervals that are stored for a CPU.
pub const BUSY_INTERVALS_MAX: usize = 1 << 16;

/// The place of a CPU (a hardware thread) in the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub cpu: u32,
    /// Number of the CPU's core, unique within the socket.
    pub core: i32,
    pub socket: i32,
}

/// The hardware that two CPUs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// Both CPUs are the same hardware thread.
    SameThread,
    /// The CPUs share a core: its pipeline, and its first-level caches.
    SameCore,
    /// The CPUs share a socket, but not a core.
    OtherCore,
    /// The CPUs are in different sockets. They share at most memory.
    OtherSocket,
}

impl Relation {
    /// All relations, the closest first.
    pub const ALL: [Relation; 4] =
        [Relation::SameThread, Relation::SameCore, Relation::OtherCore, Relation::OtherSocket];

    /// The closest relation of two CPUs.
    #[must_use]
    pub fn of(first: Place, second: Place) -> Relation {
        if first.cpu == second.cpu {
            Relation::SameThread
        } else if first.socket != second.socket {
            Relation::OtherSocket
        } else if first.core != second.core {
            Relation::OtherCore
        } else {
            Relation::SameCore
        }
    }

    /// Name of the relation in tables.
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

/// An interval in which a CPU runs neither its loop nor the idle task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyInterval {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Whether only interrupt handlers ran in the interval.
    pub is_handlers: bool,
}

/// Activity of a CPU outside of its loop. A CPU without a loop has activity, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuActivity {
    pub place: Place,
    /// The intervals in the order of time. They do not overlap.
    pub intervals: Vec<BusyInterval>,
    /// Intervals that start from this time on were not stored, ns. `None` if all intervals were stored.
    pub until_ns: Option<u64>,
}

/// Activity of all CPUs outside of their loops during a quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcurrentActivity {
    /// There was no activity on any CPU.
    Nobody,
    /// Handlers ran on this CPU, and nothing else ran on any CPU.
    Handlers(u32),
    /// Handlers ran on this CPU, and other work ran on any CPU, or handlers on another CPU.
    More(u32),
    /// Other work ran, but no handlers.
    Others,
    /// The activity is unknown, because some intervals were not stored.
    Unknown,
}

impl CpuActivity {
    /// The stored intervals that overlap the quantum.
    fn during(&self, quantum: &Quantum) -> &[BusyInterval] {
        let end_ns = quantum.start_ns.saturating_add(quantum.time_ns);
        let first = self.intervals.partition_point(|busy| busy.end_ns <= quantum.start_ns);
        let later = &self.intervals[first..];
        &later[..later.partition_point(|busy| busy.start_ns < end_ns)]
    }
}

/// Classifies the activity of the CPUs during a quantum.
#[must_use]
pub fn concurrent_activity(quantum: &Quantum, cpus: &[CpuActivity]) -> ConcurrentActivity {
    let end_ns = quantum.start_ns.saturating_add(quantum.time_ns);
    if cpus.iter().filter_map(|cpu| cpu.until_ns).any(|until_ns| until_ns < end_ns) {
        return ConcurrentActivity::Unknown;
    }
    let (mut handler_cpu, mut has_others) = (None, false);
    for cpu in cpus {
        let intervals = cpu.during(quantum);
        has_others |= intervals.iter().any(|interval| !interval.is_handlers);
        if intervals.iter().any(|interval| interval.is_handlers) {
            has_others |= handler_cpu.is_some();
            handler_cpu.get_or_insert(cpu.place.cpu);
        }
    }
    match (handler_cpu, has_others) {
        (None, false) => ConcurrentActivity::Nobody,
        (None, true) => ConcurrentActivity::Others,
        (Some(cpu), false) => ConcurrentActivity::Handlers(cpu),
        (Some(cpu), true) => ConcurrentActivity::More(cpu),
    }
}

/// Builds the busy intervals of a CPU from its events, which must be in the order of time. Stores at most
/// [`BUSY_INTERVALS_MAX`] intervals. The live bench calls [`BusyIntervals::mark`]. The simulated bench knows the
/// contexts and calls [`BusyIntervals::transition`].
#[derive(Clone, Debug, Default)]
pub struct BusyIntervals {
    intervals: Vec<BusyInterval>,
    /// See [`CpuActivity::until_ns`].
    until_ns: Option<u64>,
    /// The interval that has not ended: its start, and whether only handlers run in it.
    open: Option<(u64, bool)>,
    /// Number of contexts that have started and not ended, by marks.
    depth: u32,
    /// Whether a task other than the loop and the idle task runs, by marks.
    is_in_task: bool,
}

impl BusyIntervals {
    /// Ends the open interval at `at_ns`, and starts the next one. `is_handlers`: whether only handlers run from then
    /// on. `None` starts no interval: the loop or the idle task runs.
    pub fn transition(&mut self, at_ns: u64, is_handlers: Option<bool>) {
        if self.open.map(|(_, is_handlers)| is_handlers) == is_handlers {
            return;
        }
        let ended = self.open.take().filter(|(start_ns, _)| *start_ns < at_ns);
        if let Some((start_ns, is_handlers)) = ended {
            if self.intervals.len() < BUSY_INTERVALS_MAX {
                self.intervals.push(BusyInterval { start_ns, end_ns: at_ns, is_handlers });
            } else {
                self.until_ns.get_or_insert(start_ns);
            }
        }
        self.open = is_handlers.map(|is_handlers| (at_ns, is_handlers));
    }

    /// Processes the next mark. Ignores page faults: their end has no mark, and they belong to the loop.
    pub fn mark(&mut self, mark: &Mark) {
        match mark.what {
            What::Enter(_) => self.depth += 1,
            What::Leave(_) => self.depth = self.depth.saturating_sub(1),
            // No context stays open over a task switch.
            What::SwitchTo(_) => (self.depth, self.is_in_task) = (0, true),
            What::SwitchBack => (self.depth, self.is_in_task) = (0, false),
            What::Fault | What::Wake(_) => return,
        }
        let is_busy = self.depth > 0 || self.is_in_task;
        let is_handlers = is_busy.then_some(!self.is_in_task);
        self.transition(mark.at_ns, is_handlers);
    }

    /// Whether a task other than the loop and the idle task runs, by the marks so far.
    #[must_use]
    pub fn is_in_task(&self) -> bool {
        self.is_in_task
    }

    /// Ends the open interval at `end_ns`, and returns the activity of the CPU at `place`.
    #[must_use]
    pub fn finish(mut self, place: Place, end_ns: u64) -> CpuActivity {
        let last_ns = self.open.map_or(end_ns, |(start_ns, _)| start_ns.max(end_ns));
        self.transition(last_ns, None);
        CpuActivity { place, intervals: self.intervals, until_ns: self.until_ns }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place_of(cpu: u32, core: i32, socket: i32) -> Place {
        Place { cpu, core, socket }
    }

    fn quantum(start_ns: u64, time_ns: u64) -> Quantum {
        Quantum::untraced(start_ns, time_ns)
    }

    fn activity(cpu: u32, intervals: &[(u64, u64, bool)]) -> CpuActivity {
        let interval =
            |&(start_ns, end_ns, is_handlers)| BusyInterval { start_ns, end_ns, is_handlers };
        let intervals = intervals.iter().map(interval).collect();
        CpuActivity { place: place_of(cpu, 0, 0), intervals, until_ns: None }
    }

    #[test]
    fn what_cpus_share() {
        let cpu_1 = place_of(1, 0, 0);
        assert_eq!(Relation::of(cpu_1, cpu_1), Relation::SameThread);
        assert_eq!(Relation::of(cpu_1, place_of(0, 0, 0)), Relation::SameCore);
        assert_eq!(Relation::of(cpu_1, place_of(4, 1, 0)), Relation::OtherCore);
        // Cores of two sockets can have the same number.
        assert_eq!(Relation::of(cpu_1, place_of(9, 0, 1)), Relation::OtherSocket);
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
        let found = intervals.finish(place_of(0, 0, 0), 100);
        let expected = [(10, 20, true), (40, 50, true), (50, 70, false), (90, 100, true)];
        assert_eq!(found, activity(0, &expected));
    }

    #[test]
    fn beyond_what_is_kept_nothing_is_known() {
        let mut intervals = BusyIntervals::default();
        let last = 10 * (BUSY_INTERVALS_MAX as u64 + 1);
        for start_ns in (0..=last).step_by(10) {
            intervals.transition(start_ns, Some(true));
            intervals.transition(start_ns + 1, None);
        }
        let all = [intervals.finish(place_of(0, 0, 0), last + 10)];
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
            let mut end = 0;
            let intervals: Vec<_> = steps.iter().map(|&(gap, length, is_handlers)| {
                let start = end + gap;
                end = start + length;
                (start, end, is_handlers)
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
