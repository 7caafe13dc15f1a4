//! What a live bench does at detours or wake-ups that reach a threshold (`--on-threshold`): it counts them, ends the
//! window, has actions performed, and keeps what the flight recorder (`--flight-record`) has seen. `noise` and `wakeup`
//! share this module.

use lab::exceedances::Exceedance;
use lab::flight_recorder::FlightRecorder;
use lab::noise::Mark;

/// The actions are performed for at most this number of detours or wake-ups of a window that goes on.
pub const ACTIONS_MAX: u32 = 10;

/// The lengths of detours, or the lateness of wake-ups, from which on the bench does something, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The shortest length that is counted.
    pub counted_ns: u64,
    /// The shortest length that ends the window. `None`: no length ends it.
    pub stop_ns: Option<u64>,
    /// The shortest length that has actions while the window goes on. `None`: the actions come after the window.
    pub act_within_ns: Option<u64>,
    /// In a window that goes on: the shortest length at whose end the flight record ends. `None`: it ends with the window,
    /// or with the detour or wake-up that ended the window.
    pub keep_record_ns: Option<u64>,
}

/// A detour, or a wake-up, that reached the threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverThreshold {
    pub cpu: u32,
    /// Length of the detour, or lateness of the wake-up, ns.
    pub length_ns: u64,
    /// Its largest cause. `None` without tracing.
    pub cause: Option<LargestCause>,
}

/// What took the largest part of a detour, or of the lateness of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargestCause {
    /// In words, such as `softirq NET_RX`.
    pub text: String,
    /// Time of this part, ns.
    pub length_ns: u64,
}

/// Performs the actions of a detour or a wake-up. In a window that goes on, it must return at once.
pub type OnThreshold = Box<dyn FnMut(&OverThreshold)>;

/// Watches the window of a bench for lengths that reach the thresholds, and records its last seconds. The default does
/// neither.
#[derive(Default)]
pub struct ThresholdWatch {
    thresholds: Option<Thresholds>,
    on_threshold: Option<OnThreshold>,
    /// How often actions were performed while the window went on.
    acted: u32,
    worst: Option<OverThreshold>,
    ends_window: bool,
    /// Whether the window is over, so that no length can end it any more.
    is_window_over: bool,
    recorder: Option<FlightRecorder>,
}

impl ThresholdWatch {
    #[must_use]
    pub fn new(thresholds: Thresholds, on_threshold: OnThreshold) -> Self {
        ThresholdWatch {
            thresholds: Some(thresholds),
            on_threshold: Some(on_threshold),
            ..ThresholdWatch::default()
        }
    }

    /// Sets the recorder of the next window.
    pub fn set_recorder(&mut self, recorder: FlightRecorder) {
        self.recorder = Some(recorder);
    }

    /// Adds new marks, each with its CPU, to the flight record.
    pub fn record(&mut self, marks: &[(u32, Mark)]) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(marks);
        }
    }

    /// The flight record of a window that ended at `end_ns`, by the marks' clock. `None` without one.
    pub fn take_recorder(&mut self, end_ns: u64) -> Option<FlightRecorder> {
        let mut recorder = self.recorder.take()?;
        recorder.end_at(end_ns);
        Some(recorder)
    }

    /// The shortest length that is counted, ns. `None` without thresholds.
    #[must_use]
    pub fn counted_ns(&self) -> Option<u64> {
        self.thresholds.map(|thresholds| thresholds.counted_ns)
    }

    /// Takes the longest of the new detours or wake-ups of a CPU. `name_cause` returns a cause in words.
    pub fn take<P>(
        &mut self,
        cpu: u32,
        longest: &Exceedance<P>,
        name_cause: impl FnOnce(&P) -> Option<String>,
    ) {
        let Some(thresholds) = self.thresholds else { return };
        let length_ns = longest.length_ns;
        let reaches = |threshold: Option<u64>| threshold.is_some_and(|ns| length_ns >= ns);
        let ends_window = !self.is_window_over && reaches(thresholds.stop_ns);
        self.ends_window |= ends_window;
        if (reaches(thresholds.keep_record_ns) || ends_window)
            && let Some(recorder) = &mut self.recorder
        {
            recorder.freeze_at(longest.end_ns);
        }
        let is_worst = self.worst.as_ref().is_none_or(|worst| worst.length_ns < length_ns);
        let acts = thresholds.act_within_ns.is_some_and(|act_ns| length_ns >= act_ns)
            && self.acted < ACTIONS_MAX;
        if !is_worst && !acts {
            return;
        }
        let cause = longest.cause.as_ref().and_then(|(part, length_ns)| {
            Some(LargestCause { text: name_cause(part)?, length_ns: *length_ns })
        });
        let over = OverThreshold { cpu, length_ns, cause };
        if acts {
            self.acted += 1;
            self.act(&over);
        }
        if is_worst {
            self.worst = Some(over);
        }
    }

    fn act(&mut self, over: &OverThreshold) {
        if let Some(on_threshold) = &mut self.on_threshold {
            on_threshold(over);
        }
    }

    /// The window is over, or is about to end for another reason. Lengths that are taken later do not end it.
    pub fn note_end_of_window(&mut self) {
        self.is_window_over = true;
    }

    /// Whether a length was long enough to end the window.
    #[must_use]
    pub fn ends_window(&self) -> bool {
        self.ends_window
    }

    /// The worst of all lengths. `None`: no length reached a threshold.
    #[must_use]
    pub fn worst_length(&self) -> Option<&OverThreshold> {
        self.worst.as_ref()
    }

    /// Performs the actions that come after the window, for the worst of all lengths.
    pub fn act_after_window(&mut self) {
        let acted_within =
            self.thresholds.is_some_and(|thresholds| thresholds.act_within_ns.is_some());
        if let Some(worst) = self.worst.clone().filter(|_| !acted_within) {
            self.act(&worst);
        }
    }
}

/// Kind and name of a cause as one text.
#[must_use]
pub fn cause_text((kind, name): (&str, String)) -> String {
    format!("{kind} {name}")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use lab::noise::What;

    /// A watch, and the lengths and causes for which it performed actions.
    fn watch(thresholds: Thresholds) -> (ThresholdWatch, Rc<RefCell<Vec<OverThreshold>>>) {
        let performed = Rc::new(RefCell::new(Vec::new()));
        let actions = Rc::clone(&performed);
        let on_threshold = move |over: &OverThreshold| actions.borrow_mut().push(over.clone());
        (ThresholdWatch::new(thresholds, Box::new(on_threshold)), performed)
    }

    fn take(watch: &mut ThresholdWatch, length_ns: u64) {
        take_at(watch, length_ns, 0);
    }

    fn take_at(watch: &mut ThresholdWatch, length_ns: u64, end_ns: u64) {
        let longest = Exceedance { length_ns, end_ns, cause: Some((length_ns, length_ns / 2)) };
        watch.take(3, &longest, |cause| Some(format!("task {cause}")));
    }

    #[test]
    fn a_window_that_ends_has_the_actions_of_the_worst_afterwards() {
        let thresholds = Thresholds {
            counted_ns: 100,
            stop_ns: Some(100),
            act_within_ns: None,
            keep_record_ns: None,
        };
        let (mut watch, performed) = watch(thresholds);
        assert!(!watch.ends_window());
        for length_ns in [150, 900, 200] {
            take(&mut watch, length_ns);
        }
        assert!(watch.ends_window() && performed.borrow().is_empty());
        watch.act_after_window();
        let cause = LargestCause { text: "task 900".to_owned(), length_ns: 450 };
        let worst = OverThreshold { cpu: 3, length_ns: 900, cause: Some(cause) };
        assert_eq!(*performed.borrow(), [worst]);
    }

    #[test]
    fn a_window_that_goes_on_has_a_bounded_number_of_actions_at_once() {
        let thresholds = Thresholds {
            counted_ns: 100,
            stop_ns: Some(5_000),
            act_within_ns: Some(200),
            keep_record_ns: Some(290),
        };
        let (mut watch, performed) = watch(thresholds);
        watch.set_recorder(FlightRecorder::new(1_000, &[3]));
        let mark = |at_ns| [(3, Mark { at_ns, what: What::Fault })];
        for number in 0..100 {
            watch.record(&mark(number));
            take_at(&mut watch, 150, number);
            take_at(&mut watch, 300 - number, number);
        }
        assert!(!watch.ends_window());
        let lengths: Vec<u64> = performed.borrow().iter().map(|over| over.length_ns).collect();
        assert_eq!(lengths, (291..=300).rev().collect::<Vec<_>>());
        take(&mut watch, 5_000);
        assert!(watch.ends_window());
        watch.act_after_window();
        assert_eq!(performed.borrow().len(), ACTIONS_MAX as usize);
        assert_eq!(watch.worst_length().map(|over| over.length_ns), Some(5_000));
        // The record has the marks until the end of the first length of 290 ns or more.
        let recorder = watch.take_recorder(5_000).unwrap();
        assert_eq!((recorder.mark_count(), recorder.span_ns(0)), (1, (0, 0)));
    }

    #[test]
    fn the_record_of_a_window_that_a_threshold_ends_has_what_ended_it() {
        let stop = Thresholds {
            counted_ns: 100,
            stop_ns: Some(100),
            act_within_ns: None,
            keep_record_ns: None,
        };
        // A detour of 100 ns ends at 1,200 ns. The bench reads it at 1,300 ns, and the loop ends at 1,600 ns.
        let record_of = |length_ns| {
            let (mut watch, _) = watch(stop);
            watch.set_recorder(FlightRecorder::new(150, &[3]));
            let mark = |at_ns| (3, Mark { at_ns, what: What::Fault });
            watch.record(&[1_000, 1_120, 1_150, 1_300].map(mark));
            take_at(&mut watch, length_ns, 1_200);
            watch.record(&[1_550, 1_700].map(mark));
            let recorder = watch.take_recorder(1_600).unwrap();
            (recorder.span_ns(0), recorder.mark_count(), recorder.is_frozen())
        };
        assert_eq!(record_of(100), ((1_050, 1_200), 2, true));
        assert_eq!(record_of(99), ((1_450, 1_600), 1, false));
    }

    #[test]
    fn a_length_that_is_taken_after_the_window_does_not_end_it() {
        let stop = Thresholds {
            counted_ns: 100,
            stop_ns: Some(100),
            act_within_ns: None,
            keep_record_ns: None,
        };
        let (mut watch, _) = watch(stop);
        watch.set_recorder(FlightRecorder::new(150, &[3]));
        watch.note_end_of_window();
        take_at(&mut watch, 300, 1_200);
        assert!(!watch.ends_window());
        assert_eq!(watch.worst_length().map(|over| over.length_ns), Some(300));
        assert!(!watch.take_recorder(1_600).unwrap().is_frozen());
    }
}
