//! What reading the PMU events adds to the events of a span, by context, from empty spans in situ.
//!
//! As with times ([`super::in_situ`]): the first of two empty spans finds the caches as the interrupt
//! does, and the difference between its counts and those of the second is the cost of entering the exit
//! program with cold caches. Of the latter, at most an eighth of the rest of the span is subtracted.

use std::collections::BTreeMap;
use std::ops::Range;

use super::in_situ::{SPANS_MIN, keys_of_kind};
use crate::bpf::layout::{COLD_EXIT_SHIFT, EVENTS_MAX, KEY_SECOND, Row};

/// Sums over spans.
#[derive(Clone, Copy, Debug, Default)]
struct EventTotals {
    spans: u64,
    sums: [u64; EVENTS_MAX],
}

impl EventTotals {
    fn add(&mut self, spans: u64, sums: &[u64; EVENTS_MAX]) {
        self.spans += spans;
        for (sum, more) in self.sums.iter_mut().zip(sums) {
            *sum = sum.saturating_add(*more);
        }
    }

    fn mean(&self, event: usize) -> f64 {
        self.sums[event] as f64 / self.spans.max(1) as f64
    }
}

/// What reading the events adds to a span.
#[derive(Clone, Debug, Default)]
pub struct EventOverheads {
    /// Events of the pass.
    events: usize,
    /// By the warm loop, for each event of the pass.
    warm: Vec<f64>,
    /// Empty spans by key.
    by_key: BTreeMap<u32, EventTotals>,
}

impl EventOverheads {
    /// For that many events, from the warm loop's means and the rows of empty spans.
    pub fn new<'a>(events: usize, warm: &[f64], rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut by_key: BTreeMap<u32, EventTotals> = BTreeMap::new();
        for row in rows {
            by_key.entry(row.key).or_default().add(row.event_spans, &row.event_self);
        }
        EventOverheads { events, warm: warm.to_vec(), by_key }
    }

    /// The number of events of the pass.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events
    }

    fn sum(&self, keys: Range<u32>) -> EventTotals {
        let mut all = EventTotals::default();
        self.by_key.range(keys).for_each(|(_, one)| all.add(one.spans, &one.sums));
        all
    }

    /// What reading added to the self events of all of a row's spans, for each event of the pass.
    #[must_use]
    pub fn added(&self, row: &Row) -> Vec<u64> {
        let enough = |keys: &Range<u32>| self.sum(keys.clone()).spans >= SPANS_MIN;
        let keys = [row.key..row.key + 1, keys_of_kind(row.key)].into_iter().find(enough);
        let spans = row.event_spans as f64;
        let Some(keys) = keys else {
            return self.warm.iter().map(|warm| (warm.max(0.0) * spans).round() as u64).collect();
        };
        let (first, second) =
            (self.sum(keys.clone()), self.sum(keys.start + KEY_SECOND..keys.end + KEY_SECOND));
        let overhead = |event: usize| {
            let base = first.mean(event);
            let colder = if second.spans > 0 { base - second.mean(event) } else { 0.0 };
            let rest = row.event_self[event] as f64 / spans.max(1.0) - base;
            let most = rest / f64::from(1u32 << COLD_EXIT_SHIFT);
            base + colder.min(most).max(0.0)
        };
        (0..self.events).map(|event| (overhead(event) * spans).round() as u64).collect()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::bpf::layout::{KEY_IRQ, KEY_SOFTIRQ, KEY_VECTOR};

    fn row(key: u32, spans: u64, mean: u64) -> Box<Row> {
        let mut row = Box::new(Row::new_zeroed());
        (row.key, row.event_spans, row.event_self[0]) = (key, spans, mean * spans);
        row
    }

    fn added(rows: &[Box<Row>], of: &Row) -> Vec<u64> {
        EventOverheads::new(1, &[7.0], rows.iter().map(|row| &**row)).added(of)
    }

    #[test]
    fn a_context_has_its_own_overhead_or_that_of_its_kind_or_the_warm_loops() {
        let rows = [row(KEY_VECTOR, 8, 100), row(KEY_SOFTIRQ, 7, 50), row(KEY_SOFTIRQ + 1, 1, 58)];
        assert_eq!(added(&rows, &row(KEY_VECTOR, 3, 1_000)), [300]);
        assert_eq!(added(&rows, &row(KEY_VECTOR + 1, 3, 1_000)), [300]);
        assert_eq!(added(&rows, &row(KEY_SOFTIRQ, 2, 1_000)), [102]);
        assert_eq!(added(&rows, &row(KEY_IRQ, 2, 1_000)), [14]);
    }

    #[test]
    fn the_cold_exit_is_subtracted_as_far_as_the_span_can_have_cooled_it() {
        let rows = [row(KEY_IRQ, 9, 100), row(KEY_IRQ + KEY_SECOND, 9, 60)];
        assert_eq!(added(&rows, &row(KEY_IRQ, 1, 1_000)), [140]);
        assert_eq!(added(&rows, &row(KEY_IRQ, 1, 180)), [110]);
        assert_eq!(added(&rows, &row(KEY_IRQ, 1, 90)), [100]);
    }
}
