//! Matches the events of the three trace instances to handler runs. `mod.rs` has the method and the names G, H and I.

use super::TraceSums;
use super::buffer::Event;

/// A run of a handler, with the times that all three instances recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub irq: u32,
    /// The interrupted thread.
    pub thread: u32,
    /// Times in ns: entries in the order G, H, I; exits in the order H, I, G.
    pub ns: [u64; 6],
}

impl Run {
    /// Whether the run lies within the window.
    pub fn is_within(&self, opened_ns: u64, closed_ns: u64) -> bool {
        self.ns[0] >= opened_ns && self.ns[5] <= closed_ns
    }

    /// Adds the run to the sums.
    pub fn add_to(&self, sums: &mut TraceSums) {
        let [g_entry, h_entry, i_entry, h_exit, i_exit, g_exit] = self.ns;
        sums.count += 1;
        sums.span += h_exit - h_entry;
        sums.between += h_exit - i_entry;
        sums.gaps += (i_entry - h_entry) + (i_exit - h_exit);
        sums.brackets += (h_entry - g_entry) + (g_exit - i_exit);
    }
}

/// A handler run as one instance recorded it. Runs on a CPU do not nest, because interrupts are off
/// while a handler runs.
#[derive(Clone, Copy)]
struct Span {
    irq: u32,
    /// The interrupted thread.
    thread: u32,
    /// Time of the entry, ns.
    entry: u64,
    /// Time of the exit, ns.
    exit: u64,
}

/// The complete runs in the events of one CPU, in order: an entry directly followed by its exit.
fn spans(events: &[Event]) -> impl Iterator<Item = Span> {
    events.windows(2).filter_map(|pair| {
        let [entry, exit] = pair else { return None };
        let is_pair = entry.is_entry && !exit.is_entry && entry.irq == exit.irq;
        is_pair.then_some(Span {
            irq: entry.irq,
            thread: entry.thread,
            entry: entry.ns,
            exit: exit.ns,
        })
    })
}

/// The handler runs on one CPU that all three instances recorded completely. `instances`: the events of G, H and I.
pub(super) fn matched(instances: [&[Event]; 3]) -> Vec<Run> {
    let [around, first, second] = instances;
    let (mut first, mut second) = (spans(first).peekable(), spans(second).peekable());
    let mut runs = Vec::new();
    for g in spans(around) {
        while first.next_if(|h| h.entry < g.entry).is_some() {}
        while second.next_if(|i| i.entry < g.entry).is_some() {}
        let is_same = |span: &Span| span.irq == g.irq && span.exit <= g.exit;
        let (Some(h), Some(i)) = (first.next_if(is_same), second.next_if(is_same)) else {
            continue;
        };
        let ns = [g.entry, h.entry, i.entry, h.exit, i.exit, g.exit];
        if ns.is_sorted() {
            runs.push(Run { irq: g.irq, thread: g.thread, ns });
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(of: &[(u64, bool, u32)]) -> Vec<Event> {
        of.iter().map(|&(ns, is_entry, irq)| Event { ns, is_entry, irq, thread: 7 }).collect()
    }

    #[test]
    fn runs_are_matched_by_time_and_line() {
        // G misses the entry of the first run, H the third run, and I the fourth run.
        let g = [
            (5, false, 1),
            (10, true, 1),
            (25, false, 1),
            (30, true, 2),
            (45, false, 2),
            (50, true, 2),
            (65, false, 2),
        ];
        let h = [
            (1, true, 1),
            (3, false, 1),
            (11, true, 1),
            (20, false, 1),
            (51, true, 2),
            (60, false, 2),
        ];
        let i = [
            (2, true, 1),
            (4, false, 1),
            (12, true, 1),
            (21, false, 1),
            (32, true, 2),
            (41, false, 2),
        ];
        let runs = matched([&events(&g), &events(&h), &events(&i)]);
        assert_eq!(runs, [Run { irq: 1, thread: 7, ns: [10, 11, 12, 20, 21, 25] }]);
        assert!(runs[0].is_within(10, 25) && !runs[0].is_within(11, 25));
        let mut sums = TraceSums::default();
        runs[0].add_to(&mut sums);
        assert_eq!(sums, TraceSums { count: 1, span: 9, between: 8, gaps: 2, brackets: 5 });
    }
}
