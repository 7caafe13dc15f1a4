//! The flight recorder of `noise` and `wakeup` (`--flight-record`): keeps the kernel's events of the last seconds of each
//! measured CPU, in bounded memory.
//!
//! A live bench passes all marks to a [`FlightRecorder`] while the window is open, and returns it in its sample.
//! `flight_table` makes a table of the intervals in it.

use std::collections::{BTreeMap, VecDeque};

use crate::noise::split::{Mark, What};

/// Maximum number of marks that are kept of all CPUs together.
pub const MARKS_MAX: usize = 1 << 21;
/// Marks are kept for this time longer than the record's length. The end of the record is known only after the marks that
/// follow it: a bench that shares its CPU with the loops reads them up to 2 s later.
const KEPT_LONGER_NS: u64 = 3_000_000_000;
/// Maximum depth of nested contexts. Deeper contexts have no interval.
const DEPTH_MAX: usize = 32;

/// What an interval of a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// The measured thread or loop had the CPU.
    Thread,
    /// The task with this number had the CPU.
    Task(u32),
    /// The context with this number was open.
    Context(u32),
    /// The measured thread had a page fault. The interval has no length, because the kernel does not report the end.
    Fault,
    /// The measured thread of this CPU was woken. The interval has no length.
    Wakes(u32),
}

/// An interval on one CPU. Intervals of a CPU are one after the other, or one contains the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub cpu: u32,
    /// ns of the marks' clock.
    pub start_ns: u64,
    /// Not before `start_ns`.
    pub end_ns: u64,
    pub activity: Activity,
}

/// A function call or a reschedule interrupt from one CPU to another. Times are in ns of the marks' clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The CPU that sends. It may be a CPU without a record.
    pub cpu: u32,
    pub at_ns: u64,
    /// The name of the task, interrupt or softirq that sends.
    pub sender: String,
    pub target_cpu: u32,
    /// When the target calls the function, or enters the interrupt.
    pub served_ns: u64,
}

/// Keeps the latest marks of each CPU.
#[derive(Clone, Debug)]
pub struct FlightRecorder {
    length_ns: u64,
    /// Maximum number of marks of a CPU.
    marks_max: usize,
    cpus: BTreeMap<u32, CpuRecord>,
    /// The end of the record. `None`: the record ends with its latest mark.
    end_ns: Option<u64>,
    is_frozen: bool,
    sent: Vec<Sent>,
}

/// The marks of one CPU.
#[derive(Clone, Debug, Default)]
struct CpuRecord {
    /// The context that ran on the CPU when its oldest kept mark came.
    before: OpenActivities,
    marks: VecDeque<Mark>,
    /// Time of the latest mark, ns.
    newest_ns: u64,
    /// Number of marks that were forgotten before their time, because there were too many.
    dropped: u64,
    /// Time of the latest of them, ns.
    dropped_ns: u64,
}

impl FlightRecorder {
    /// Keeps the last `length_ns` of each of `cpus`, at most [`MARKS_MAX`] marks in all.
    #[must_use]
    pub fn new(length_ns: u64, cpus: &[u32]) -> Self {
        let records = cpus.iter().map(|cpu| (*cpu, CpuRecord::default()));
        let marks_max = MARKS_MAX / cpus.len().max(1);
        let cpus = records.collect();
        FlightRecorder {
            length_ns,
            marks_max,
            cpus,
            end_ns: None,
            is_frozen: false,
            sent: Vec::new(),
        }
    }

    /// Maximum number of bytes of all marks. A queue that grows has room for a power of two of them.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        (self.marks_max.next_power_of_two() * self.cpus.len() * size_of::<Mark>()) as u64
    }

    /// Adds new marks, each with its CPU. Leaves out the marks after the end of the record.
    pub fn record(&mut self, marks: &[(u32, Mark)]) {
        for (cpu, mark) in marks {
            if self.end_ns.is_none_or(|end_ns| mark.at_ns <= end_ns)
                && let Some(record) = self.cpus.get_mut(cpu)
            {
                record.add(*mark, self.length_ns, self.marks_max);
            }
        }
    }

    /// Adds what CPUs have sent to measured CPUs, if the bench knows when.
    pub fn add_sent(&mut self, sent: impl IntoIterator<Item = Sent>) {
        self.sent.extend(sent);
    }

    /// The calls and interrupts that were sent and served in the recorded time, but not before `start_ns`.
    pub(crate) fn sent(&self, start_ns: u64) -> impl Iterator<Item = &Sent> {
        let (from_ns, end_ns) = self.span_ns(start_ns);
        let sent = self.sent.iter();
        sent.filter(move |sent| sent.at_ns >= from_ns && sent.served_ns <= end_ns)
    }

    /// Ends the record at this time: the end of the window. Later marks have no part in it. Does nothing if the end is
    /// known.
    pub fn end_at(&mut self, end_ns: u64) {
        if self.end_ns.is_none() {
            self.end_ns = Some(end_ns);
            self.cpus.values_mut().for_each(|record| record.forget_after(end_ns));
        }
    }

    /// Ends the record at the end of a detour or a wake-up that reached a threshold, although the window may go on.
    pub fn freeze_at(&mut self, end_ns: u64) {
        self.is_frozen = true;
        self.end_at(end_ns);
    }

    /// Whether [`FlightRecorder::freeze_at`] was called.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Number of marks in the recorded time.
    #[must_use]
    pub fn mark_count(&self) -> usize {
        let (start_ns, _) = self.span_ns(0);
        let marks = self.cpus.values().flat_map(|record| &record.marks);
        marks.filter(|mark| mark.at_ns >= start_ns).count()
    }

    /// The CPUs that have too many marks for the length: each with the number of marks that were forgotten before their
    /// time, and the length of the kept marks, ns.
    pub fn shortened(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let (start_ns, end_ns) = self.span_ns(0);
        let is_shortened =
            move |record: &CpuRecord| record.dropped > 0 && record.dropped_ns >= start_ns;
        let shortened = self.cpus.iter().filter(move |(_, record)| is_shortened(record));
        shortened.map(move |(cpu, record)| {
            let oldest_ns = record.marks.front().map_or(end_ns, |mark| mark.at_ns);
            (*cpu, record.dropped, end_ns.saturating_sub(oldest_ns))
        })
    }

    /// The end of the record: that of [`FlightRecorder::end_at`], or the time of the latest mark of all CPUs, ns.
    fn end_ns(&self) -> u64 {
        let newest_ns = self.cpus.values().map(|record| record.newest_ns).max().unwrap_or(0);
        self.end_ns.unwrap_or(newest_ns)
    }

    /// The recorded time that is not before `start_ns`: from the oldest of the last `length_ns` to the end, ns.
    #[must_use]
    pub fn span_ns(&self, start_ns: u64) -> (u64, u64) {
        let end_ns = self.end_ns();
        (end_ns.saturating_sub(self.length_ns).max(start_ns).min(end_ns), end_ns)
    }

    /// The intervals of all CPUs from `start_ns` on. An interval that began earlier is cut, as is an interval whose start
    /// was forgotten. An interval that has not ended ends with the record.
    #[must_use]
    pub fn intervals(&self, start_ns: u64) -> Vec<Interval> {
        let (span_start_ns, end_ns) = self.span_ns(start_ns);
        let mut all = Vec::new();
        if end_ns <= start_ns {
            // The run ended before its window opened.
            return all;
        }
        for (cpu, record) in &self.cpus {
            let mut marks: Vec<Mark> = record.marks.iter().copied().collect();
            // The marks arrive almost in order; noise.bpf.c has the reason.
            marks.sort_by_key(|mark| mark.at_ns);
            let oldest_ns = match marks.first() {
                Some(mark) if record.dropped > 0 => mark.at_ns,
                _ => 0,
            };
            let from_ns = span_start_ns.max(oldest_ns);
            let mut emit = |interval: Interval| {
                if interval.start_ns >= from_ns || interval.end_ns > from_ns {
                    let start_ns = interval.start_ns.max(from_ns).min(interval.end_ns);
                    all.push(Interval { start_ns, ..interval });
                }
            };
            let mut open = record.before.clone();
            marks.iter().for_each(|mark| open.apply(*cpu, mark, &mut emit));
            open.close_all(*cpu, end_ns, &mut emit);
        }
        // An outer interval comes before the intervals in it.
        all.sort_by_key(|interval| (interval.cpu, interval.start_ns, u64::MAX - interval.end_ns));
        all
    }
}

impl CpuRecord {
    fn add(&mut self, mark: Mark, length_ns: u64, marks_max: usize) {
        self.newest_ns = self.newest_ns.max(mark.at_ns);
        let kept_ns = length_ns.saturating_add(KEPT_LONGER_NS);
        let oldest_ns = self.newest_ns.saturating_sub(kept_ns);
        while let Some(front) = self.marks.front() {
            let is_old = front.at_ns < oldest_ns;
            if !is_old && self.marks.len() < marks_max {
                break;
            }
            if !is_old {
                self.dropped += 1;
                self.dropped_ns = self.dropped_ns.max(front.at_ns);
            }
            if let Some(forgotten) = self.marks.pop_front() {
                self.before.apply(0, &forgotten, &mut |_| {});
            }
        }
        self.marks.push_back(mark);
    }

    /// Forgets the marks after this time.
    fn forget_after(&mut self, end_ns: u64) {
        self.marks.retain(|mark| mark.at_ns <= end_ns);
        self.newest_ns = self.newest_ns.min(end_ns);
    }
}

/// The task that has a CPU and the contexts that are open on it, each with its start, ns.
#[derive(Clone, Debug, Default)]
struct OpenActivities {
    /// `None` before the first task switch.
    task: Option<(Activity, u64)>,
    /// The innermost context is the last.
    contexts: Vec<(Activity, u64)>,
}

impl OpenActivities {
    /// Applies a mark of `cpu`. Calls `emit` with each interval that ends.
    fn apply(&mut self, cpu: u32, mark: &Mark, emit: &mut impl FnMut(Interval)) {
        let at_ns = mark.at_ns;
        let moment =
            |cpu: u32, activity| Interval { cpu, start_ns: at_ns, end_ns: at_ns, activity };
        match mark.what {
            What::Enter(context) if self.contexts.len() < DEPTH_MAX => {
                self.contexts.push((Activity::Context(context), at_ns));
            }
            What::Enter(_) => {}
            What::Leave(context) => {
                let is_it = |(open, _): &(Activity, u64)| *open == Activity::Context(context);
                if let Some(position) = self.contexts.iter().rposition(is_it) {
                    self.close_contexts(position, cpu, at_ns, emit);
                }
            }
            What::SwitchTo(task) => self.switch(Activity::Task(task), cpu, at_ns, emit),
            What::SwitchBack => self.switch(Activity::Thread, cpu, at_ns, emit),
            What::Fault => emit(moment(cpu, Activity::Fault)),
            What::Wake(waking_cpu) => emit(moment(waking_cpu, Activity::Wakes(cpu))),
        }
    }

    /// Ends the contexts from this position on.
    fn close_contexts(
        &mut self,
        position: usize,
        cpu: u32,
        end_ns: u64,
        emit: &mut impl FnMut(Interval),
    ) {
        for (activity, start_ns) in self.contexts.drain(position..).rev() {
            emit(Interval { cpu, start_ns, end_ns, activity });
        }
    }

    fn close_all(&mut self, cpu: u32, end_ns: u64, emit: &mut impl FnMut(Interval)) {
        self.close_contexts(0, cpu, end_ns, emit);
        if let Some((activity, start_ns)) = self.task.take() {
            emit(Interval { cpu, start_ns, end_ns, activity });
        }
    }

    /// No interrupt lasts across a task switch.
    fn switch(&mut self, task: Activity, cpu: u32, at_ns: u64, emit: &mut impl FnMut(Interval)) {
        self.close_all(cpu, at_ns, emit);
        self.task = Some((task, at_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on_cpu(cpu: u32, marks: &[(u64, What)]) -> Vec<(u32, Mark)> {
        marks.iter().map(|&(at_ns, what)| (cpu, Mark { at_ns, what })).collect()
    }

    fn intervals(recorder: &FlightRecorder, start_ns: u64) -> Vec<(u64, u64, Activity)> {
        let all = recorder.intervals(start_ns).into_iter();
        all.map(|interval| (interval.start_ns, interval.end_ns, interval.activity)).collect()
    }

    #[test]
    fn contexts_nest_in_tasks_and_what_is_open_ends_with_the_record() {
        use What::{Enter, Fault, Leave, SwitchBack, SwitchTo, Wake};
        let mut recorder = FlightRecorder::new(1_000, &[1]);
        let marks = [
            (100, SwitchTo(7)),
            (200, Enter(3)),
            (220, Wake(1)),
            (210, Enter(4)),
            (230, Leave(4)),
            (240, Leave(3)),
            (245, Leave(9)),
            (250, SwitchBack),
            (260, Fault),
            (270, Enter(3)),
        ];
        recorder.record(&on_cpu(1, &marks));
        recorder.record(&on_cpu(2, &[(300, SwitchTo(7))])); // This CPU is not recorded.
        let expected = [
            (150, 250, Activity::Task(7)),
            (200, 240, Activity::Context(3)),
            (210, 230, Activity::Context(4)),
            (220, 220, Activity::Wakes(1)),
            (250, 270, Activity::Thread),
            (260, 260, Activity::Fault),
            (270, 270, Activity::Context(3)),
        ];
        assert_eq!(intervals(&recorder, 150), expected);
        assert_eq!((recorder.span_ns(150), recorder.shortened().count()), ((150, 270), 0));
    }

    #[test]
    fn old_marks_are_forgotten_and_the_task_that_still_runs_is_not() {
        let mut recorder = FlightRecorder::new(100, &[0]);
        recorder.record(&on_cpu(0, &[(10, What::SwitchTo(7)), (20, What::Enter(3))]));
        recorder.record(&on_cpu(0, &[(30, What::Leave(3)), (500, What::Enter(3))]));
        assert_eq!(recorder.mark_count(), 1);
        let expected = [(400, 500, Activity::Task(7)), (500, 500, Activity::Context(3))];
        assert_eq!(intervals(&recorder, 0), expected);
        recorder.freeze_at(500);
        recorder.record(&on_cpu(0, &[(900, What::Leave(3))]));
        assert_eq!(intervals(&recorder, 0), expected);
        assert!(recorder.is_frozen());
    }

    #[test]
    fn the_record_ends_with_the_window_and_not_with_what_came_after() {
        let mut recorder = FlightRecorder::new(100, &[0]);
        let task = What::SwitchTo;
        recorder.record(&on_cpu(0, &[(1_000, task(1)), (1_100, task(2)), (1_150, task(3))]));
        // The window ended at 1,200. irqlab's own end has marks, too, before that is known and after.
        recorder.record(&on_cpu(0, &[(1_500, task(4))]));
        recorder.end_at(1_200);
        recorder.record(&on_cpu(0, &[(1_190, What::Fault), (1_600, task(5))]));
        let expected = [
            (1_100, 1_150, Activity::Task(2)),
            (1_150, 1_200, Activity::Task(3)),
            (1_190, 1_190, Activity::Fault),
        ];
        assert_eq!(intervals(&recorder, 0), expected);
        assert_eq!((recorder.span_ns(0), recorder.mark_count()), ((1_100, 1_200), 3));
        // An end that a threshold has set stays.
        recorder.end_at(1_150);
        assert_eq!((recorder.span_ns(0), recorder.is_frozen()), ((1_100, 1_200), false));
    }

    #[test]
    fn memory_is_bounded_and_the_loss_is_counted() {
        let mut recorder = FlightRecorder::new(u64::MAX, &[0, 1, 2, 3]);
        assert_eq!(recorder.bytes_max(), (MARKS_MAX * 16) as u64);
        // Three queues have room for a power of two of marks each.
        let three = FlightRecorder::new(1, &[0, 1, 2]);
        assert_eq!(three.bytes_max(), 3 * (1 << 20) * 16);
        let marks = MARKS_MAX as u64 / 4 + 1_000;
        for at_ns in 0..marks {
            recorder.record(&on_cpu(0, &[(at_ns, What::SwitchTo(at_ns as u32))]));
        }
        assert_eq!(recorder.mark_count(), MARKS_MAX / 4);
        let shortened: Vec<_> = recorder.shortened().collect();
        assert_eq!(shortened, [(0, 1_000, MARKS_MAX as u64 / 4 - 1)]);
        let kept = intervals(&recorder, 0);
        assert_eq!(kept[0], (1_000, 1_001, Activity::Task(1_000)));
    }

    fn any_what() -> impl Strategy<Value = What> {
        prop_oneof![
            (0..4_u32).prop_map(What::Enter),
            (0..4_u32).prop_map(What::Leave),
            (0..4_u32).prop_map(What::SwitchTo),
            Just(What::SwitchBack),
            Just(What::Fault),
            Just(What::Wake(0)),
        ]
    }

    proptest! {
        #[test]
        fn any_marks_are_nested_intervals_within_the_record(
            marks in prop::collection::vec((0..1_000_u64, any_what()), 0..200),
            length_ns in 0..1_000_u64,
            start_ns in 0..1_000_u64,
        ) {
            let mut recorder = FlightRecorder::new(length_ns, &[0]);
            recorder.record(&on_cpu(0, &marks));
            let (span_start_ns, end_ns) = recorder.span_ns(start_ns);
            let mut open: Vec<Interval> = Vec::new();
            for interval in recorder.intervals(start_ns) {
                prop_assert!(interval.start_ns <= interval.end_ns);
                prop_assert!(span_start_ns <= interval.start_ns && interval.end_ns <= end_ns);
                open.retain(|outer| outer.end_ns > interval.start_ns);
                prop_assert!(open.iter().all(|outer| interval.end_ns <= outer.end_ns));
                open.push(interval);
            }
        }
    }
}
