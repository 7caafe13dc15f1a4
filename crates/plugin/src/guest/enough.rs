//! Decides when a window has measured enough: [`Until`].
//!
//! The decision depends on the spans of the window alone, so the same machine ends its window at the same instruction
//! each time.

use std::collections::BTreeMap;

use attribution::KernelSpan;
use plugin_interface::until::StopRule;
use simrecord::counters::{COUNTERS, CYCLES};

/// The contexts that are measured well enough must take at least this share of the time of all, in percent.
const SHARE_PERCENT_MIN: u128 = 90;
/// Confidence intervals are from this many batches of spans, or more, up to one less than twice as many.
const BATCHES_MIN: usize = 16;
/// 97.5 % quantile of Student's t for 15 degrees of freedom. More batches need a smaller one.
const T_QUANTILE: f64 = 2.131;

/// Some successive spans of a context.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    spans: u64,
    cycles: u64,
}

/// The self times of a context's spans, in batches of successive spans: spans that follow each other depend on each
/// other, and batches much less.
#[derive(Clone, Debug)]
struct ContextTimes {
    spans: u64,
    cycles: u64,
    /// How many spans a batch has.
    batch_spans: u64,
    /// The cycles of full batches.
    batches: Vec<u64>,
    /// The batch that is not full.
    partial: Batch,
}

impl Default for ContextTimes {
    fn default() -> ContextTimes {
        let batches = Vec::with_capacity(2 * BATCHES_MIN);
        ContextTimes { spans: 0, cycles: 0, batch_spans: 1, batches, partial: Batch::default() }
    }
}

impl ContextTimes {
    fn add(&mut self, cycles: u64) {
        self.spans += 1;
        self.cycles += cycles;
        self.partial.spans += 1;
        self.partial.cycles += cycles;
        if self.partial.spans < self.batch_spans {
            return;
        }
        self.batches.push(std::mem::take(&mut self.partial).cycles);
        if self.batches.len() == 2 * BATCHES_MIN {
            self.batches = self.batches.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.batch_spans *= 2;
        }
    }

    /// Half of the 95 % confidence interval of the mean, as a ratio to the mean. `None`: there are too few batches.
    fn half_interval_ratio(&self) -> Option<f64> {
        let count = self.batches.len();
        if count < BATCHES_MIN {
            return None;
        }
        let mean = self.batches.iter().sum::<u64>() as f64 / count as f64;
        let squares = self.batches.iter().map(|batch| (*batch as f64 - mean).powi(2)).sum::<f64>();
        let error = (squares / (count - 1) as f64 / count as f64).sqrt();
        (mean > 0.0).then(|| T_QUANTILE * error / mean)
    }

    fn are_enough(&self, enough: StopRule) -> bool {
        match enough {
            StopRule::Spans(spans) => self.spans >= u64::from(spans),
            StopRule::Interval { half_ppm } => {
                self.half_interval_ratio().is_some_and(|ratio| ratio * 1e6 <= f64::from(half_ppm))
            }
        }
    }
}

/// What the open window has measured so far.
#[derive(Debug)]
pub(crate) struct WindowProgress {
    enough: StopRule,
    /// The times of each context, by the context's code.
    contexts: BTreeMap<u64, ContextTimes>,
    cycles: u64,
    is_enough: bool,
}

impl WindowProgress {
    pub(crate) fn new(enough: StopRule) -> WindowProgress {
        WindowProgress { enough, contexts: BTreeMap::new(), cycles: 0, is_enough: false }
    }

    /// A window opens.
    pub(crate) fn restart(&mut self) {
        *self = WindowProgress::new(self.enough);
    }

    /// A span has ended in the window.
    pub(crate) fn add(&mut self, span: &KernelSpan<COUNTERS>) {
        if span.context.is_interrupt_or_exception() {
            self.add_time(span.context.code(), span.self_counts[CYCLES]);
        }
    }

    fn add_time(&mut self, code: u64, cycles: u64) {
        self.cycles += cycles;
        self.contexts.entry(code).or_default().add(cycles);
        self.is_enough = self.decide();
    }

    /// Whether the window has measured enough.
    pub(crate) fn is_enough(&self) -> bool {
        self.is_enough
    }

    fn decide(&self) -> bool {
        let mut enough_cycles = 0_u128;
        let enough = self.contexts.values().filter(|times| times.are_enough(self.enough));
        enough.for_each(|times| enough_cycles += u128::from(times.cycles));
        enough_cycles * 100 >= u128::from(self.cycles) * SHARE_PERCENT_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context's code, and the cycles of its span in a round.
    type SpanOfRound = (u64, fn(u64) -> u64);

    /// How many rounds of spans are enough, where each round has these contexts and cycles.
    fn rounds(enough: StopRule, spans: &[SpanOfRound]) -> Option<u64> {
        let mut measured = WindowProgress::new(enough);
        (1..=10_000).find(|round| {
            spans.iter().for_each(|(code, cycles)| measured.add_time(*code, cycles(*round)));
            measured.is_enough()
        })
    }

    #[test]
    fn contexts_with_nine_tenths_of_the_time_need_their_spans() {
        assert_eq!(rounds(StopRule::Spans(200), &[(1, |_| 1000)]), Some(200));
        // A context with a fiftieth of the spans of the other, and as much time for each.
        let mut measured = WindowProgress::new(StopRule::Spans(200));
        for round in 1..=200_u64 {
            measured.add_time(1, 1000);
            if round.is_multiple_of(50) {
                measured.add_time(2, 1000);
            }
            assert_eq!(measured.is_enough(), round == 200, "{round}");
        }
        // The second context ends a span in each round, and has a third of the time.
        assert_eq!(rounds(StopRule::Spans(20), &[(1, |_| 1000), (2, |_| 500)]), Some(20));
    }

    #[test]
    fn a_rare_context_with_much_of_the_time_is_waited_for() {
        let mut measured = WindowProgress::new(StopRule::Spans(10));
        for _ in 0..1_000 {
            measured.add_time(1, 10);
        }
        assert!(measured.is_enough());
        measured.restart();
        for span in 0..10 {
            measured.add_time(2, 10_000);
            (0..100).for_each(|_| measured.add_time(1, 10));
            assert_eq!(measured.is_enough(), span == 9, "{span}");
        }
    }

    #[test]
    fn enough_is_no_longer_enough_when_another_context_takes_the_time() {
        let mut measured = WindowProgress::new(StopRule::Spans(10));
        (0..10).for_each(|_| measured.add_time(1, 10));
        assert!(measured.is_enough());
        measured.add_time(2, 1_000);
        assert!(!measured.is_enough());
        (0..9).for_each(|_| measured.add_time(2, 1_000));
        assert!(measured.is_enough());
    }

    #[test]
    fn an_interval_needs_batches_and_shrinks_with_them() {
        let narrow = StopRule::Interval { half_ppm: 50_000 };
        assert_eq!(rounds(narrow, &[(1, |_| 1000)]), Some(BATCHES_MIN as u64));
        let varies = |round: u64| {
            if round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 { 500 } else { 1500 }
        };
        let found = rounds(narrow, &[(1, varies)]).unwrap();
        // Half of 95 % of a mean of n such spans: 1.96 * 500 / sqrt(n), which is 50 at n = 384.
        assert!((100..=800).contains(&found), "{found}");
    }
}
