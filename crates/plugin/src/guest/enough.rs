//! Decides when an open region has measured enough, by the rule of the option `until`
//! ([`plugin_interface::until::StopRule`]). [`CloseTime`](super::close_time::CloseTime) says when it is asked, and when the
//! session closes the region.
//!
//! The decision depends only on the spans of the region. So a machine that runs again ends its region at the same
//! instruction.

use std::collections::BTreeMap;

use attribution::KernelSpan;
use plugin_interface::until::StopRule;
use simrecord::counters::{COUNTERS, CYCLES};

/// The region has measured enough when contexts with enough spans take this percentage of the time of all contexts.
const SHARE_PERCENT_MIN: u128 = 90;
/// The least number of batches for a confidence interval. The most is one less than twice this number.
const BATCHES_MIN: usize = 16;
/// The least number of spans for a confidence interval. Fewer spans are too often without any of the context's long spans,
/// and then agree by chance.
const INTERVAL_SPANS_MIN: u64 = 40;
/// 97.5 % quantile of Student's t for 15 degrees of freedom. With more batches the exact quantile would be smaller, so
/// intervals are never too narrow.
const T_QUANTILE: f64 = 2.131;

/// A batch of successive spans of a context.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    spans: u64,
    cycles: u64,
}

/// The self times of a context's spans, in batches. Successive spans depend on each other; batches depend on each other
/// much less, as a confidence interval needs.
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
    /// Adds a span with this self time. When there are too many batches, joins them in pairs.
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

    /// Half of the width of the mean's 95 % confidence interval, as a ratio to the mean. `None`: there are too few
    /// spans or batches, or the mean is 0.
    fn half_interval_ratio(&self) -> Option<f64> {
        let count = self.batches.len();
        if self.spans < INTERVAL_SPANS_MIN || count < BATCHES_MIN {
            return None;
        }
        let mean = self.batches.iter().sum::<u64>() as f64 / count as f64;
        let squares = self.batches.iter().map(|batch| (*batch as f64 - mean).powi(2)).sum::<f64>();
        let error = (squares / (count - 1) as f64 / count as f64).sqrt();
        (mean > 0.0).then(|| T_QUANTILE * error / mean)
    }

    /// Whether the context has enough spans by the rule.
    fn are_enough(&self, rule: StopRule) -> bool {
        match rule {
            StopRule::Spans(spans) => self.spans >= u64::from(spans),
            StopRule::Interval { half_ppm } => {
                self.half_interval_ratio().is_some_and(|ratio| ratio * 1e6 <= f64::from(half_ppm))
            }
            StopRule::Instructions(_) => false,
        }
    }
}

/// The spans of the open region, and whether they are enough.
#[derive(Debug)]
pub(crate) struct WindowProgress {
    rule: StopRule,
    /// The times of each context, by the context's code.
    contexts: BTreeMap<u64, ContextTimes>,
    /// The self time of all spans.
    cycles: u64,
}

impl WindowProgress {
    pub(crate) fn new(rule: StopRule) -> WindowProgress {
        WindowProgress { rule, contexts: BTreeMap::new(), cycles: 0 }
    }

    /// Starts from zero, because a region opens.
    pub(crate) fn restart(&mut self) {
        *self = WindowProgress::new(self.rule);
    }

    /// Adds a span that has ended in the open region. Only interrupts and exceptions count.
    pub(crate) fn add(&mut self, span: &KernelSpan<COUNTERS>) {
        if span.context.is_interrupt_or_exception() {
            self.add_time(span.context.code(), span.self_counts[CYCLES]);
        }
    }

    /// Adds a span of the context with this code, with this self time.
    pub(crate) fn add_time(&mut self, code: u64, cycles: u64) {
        self.cycles += cycles;
        self.contexts.entry(code).or_default().add(cycles);
    }

    /// Whether the open region has measured enough: the contexts with enough spans take a large enough share of the time.
    /// Spans without any time are not enough: a multithreaded core counts cycles some time after the instructions.
    pub(crate) fn is_enough(&self) -> bool {
        if self.cycles == 0 {
            return false;
        }
        let mut enough_cycles = 0_u128;
        let enough = self.contexts.values().filter(|times| times.are_enough(self.rule));
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
    fn rounds(rule: StopRule, spans: &[SpanOfRound]) -> Option<u64> {
        let mut measured = WindowProgress::new(rule);
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
    fn a_span_without_time_is_not_enough() {
        let mut measured = WindowProgress::new(StopRule::Spans(200));
        measured.add_time(1, 0);
        assert!(!measured.is_enough());
        (0..199).for_each(|_| measured.add_time(1, 10));
        assert!(measured.is_enough());
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
        assert_eq!(rounds(narrow, &[(1, |_| 1000)]), Some(INTERVAL_SPANS_MIN));
        let varies = |round: u64| {
            if round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 { 500 } else { 1500 }
        };
        let found = rounds(narrow, &[(1, varies)]).unwrap();
        // Half of 95 % of a mean of n such spans: 1.96 * 500 / sqrt(n), which is 50 at n = 384.
        assert!((100..=800).contains(&found), "{found}");
    }
}
