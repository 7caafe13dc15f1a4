//! What reading adds to the events of a span, by source, from spans without work in the same place.
//!
//! As with times ([`super::in_place`]): the first of two spans without work finds the caches as the
//! interrupt does, and by how much it counts more than the second stands for the cold way into the
//! program at exit, of which at most an eighth of what is left of the span is subtracted.

use std::collections::BTreeMap;
use std::ops::Range;

use super::in_place::SPANS_MIN;
use crate::bpf::layout::{
    EVENTS_MAX, KEY_AGAIN, KEY_IRQ, KEY_NMI, KEY_SOFTIRQ, KEY_VECTOR, Row, WAY_IN_SHARE,
};

/// Sums over spans.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    spans: u64,
    sums: [u64; EVENTS_MAX],
}

impl Counted {
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

/// What reading adds to a span.
#[derive(Clone, Debug, Default)]
pub struct EventCosts {
    /// Events of the pass.
    events: usize,
    /// By the hot loop, for each event of the pass.
    hot: Vec<f64>,
    /// Spans without work.
    of_keys: BTreeMap<u32, Counted>,
}

/// The keys of the same sort.
fn sort_of(key: u32) -> Range<u32> {
    match key {
        key if key >= KEY_IRQ => KEY_IRQ..KEY_AGAIN,
        key if key >= KEY_SOFTIRQ => KEY_SOFTIRQ..KEY_NMI,
        _ => KEY_VECTOR..KEY_SOFTIRQ,
    }
}

impl EventCosts {
    /// For so many events, from the hot loop's means and the rows of spans without work.
    pub fn new<'a>(events: usize, hot: &[f64], rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut of_keys: BTreeMap<u32, Counted> = BTreeMap::new();
        for row in rows {
            of_keys.entry(row.key).or_default().add(row.event_spans, &row.event_self);
        }
        EventCosts { events, hot: hot.to_vec(), of_keys }
    }

    /// How many events the pass has.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events
    }

    fn sum(&self, keys: Range<u32>) -> Counted {
        let mut all = Counted::default();
        self.of_keys.range(keys).for_each(|(_, one)| all.add(one.spans, &one.sums));
        all
    }

    /// What reading added to the own events of a row's spans in all, for each event of the pass.
    #[must_use]
    pub fn added(&self, row: &Row) -> Vec<u64> {
        let enough = |keys: &Range<u32>| self.sum(keys.clone()).spans >= SPANS_MIN;
        let keys = [row.key..row.key + 1, sort_of(row.key)].into_iter().find(enough);
        let spans = row.event_spans as f64;
        let Some(keys) = keys else {
            return self.hot.iter().map(|hot| (hot.max(0.0) * spans).round() as u64).collect();
        };
        let (first, again) =
            (self.sum(keys.clone()), self.sum(keys.start + KEY_AGAIN..keys.end + KEY_AGAIN));
        let cost = |event: usize| {
            let always = first.mean(event);
            let colder = if again.spans > 0 { always - again.mean(event) } else { 0.0 };
            let left = row.event_self[event] as f64 / spans.max(1.0) - always;
            let most = left / f64::from(1u32 << WAY_IN_SHARE);
            always + colder.min(most).max(0.0)
        };
        (0..self.events).map(|event| (cost(event) * spans).round() as u64).collect()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn row(key: u32, spans: u64, mean: u64) -> Box<Row> {
        let mut row = Box::new(Row::new_zeroed());
        (row.key, row.event_spans, row.event_self[0]) = (key, spans, mean * spans);
        row
    }

    fn added(rows: &[Box<Row>], of: &Row) -> Vec<u64> {
        EventCosts::new(1, &[7.0], rows.iter().map(|row| &**row)).added(of)
    }

    #[test]
    fn a_source_has_its_own_figure_or_that_of_its_sort_or_the_hot_loops() {
        let rows = [row(KEY_VECTOR, 8, 100), row(KEY_SOFTIRQ, 7, 50), row(KEY_SOFTIRQ + 1, 1, 58)];
        assert_eq!(added(&rows, &row(KEY_VECTOR, 3, 1_000)), [300]);
        assert_eq!(added(&rows, &row(KEY_VECTOR + 1, 3, 1_000)), [300]);
        assert_eq!(added(&rows, &row(KEY_SOFTIRQ, 2, 1_000)), [102]);
        assert_eq!(added(&rows, &row(KEY_IRQ, 2, 1_000)), [14]);
    }

    #[test]
    fn a_cold_way_in_is_allowed_for_as_far_as_the_span_can_have_cooled_it() {
        let rows = [row(KEY_IRQ, 9, 100), row(KEY_IRQ + KEY_AGAIN, 9, 60)];
        assert_eq!(added(&rows, &row(KEY_IRQ, 1, 1_000)), [140]);
        assert_eq!(added(&rows, &row(KEY_IRQ, 1, 180)), [110]);
        assert_eq!(added(&rows, &row(KEY_IRQ, 1, 90)), [100]);
    }
}
