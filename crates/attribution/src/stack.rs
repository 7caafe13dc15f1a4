//! The span stack of one CPU: entries push and exits pop. Each span's time is split into self time and the time of the
//! spans nested in it. It is the reference model of the BPF programs' stack (`live/bpf/span_stack.h`): tests compare
//! both, so a change here needs the same change there.
//!
//! ```text
//! softirq NET_RX   |=======|         |========|      inclusive = entry to exit, self = the "="
//! hard IRQ 36              |=========|               inclusive = self
//! ```

/// Maximum number of open spans on a CPU. Linux nests at most task, softirq, hard IRQ and NMI, with exceptions in
/// between. The other places are a margin for lost exits.
pub const DEPTH_MAX: usize = 16;

/// A span that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedSpan<K> {
    pub key: K,
    /// Time of the span without the time of the spans nested in it, in the unit of the caller's clock.
    pub self_time: u64,
    /// Time from entry to exit.
    pub inclusive_time: u64,
    /// Number of spans that were opened and closed inside this span, at any depth.
    pub descendants: u32,
}

/// Numbers of events that did not fit a well-nested sequence, since the stack was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackFaults {
    /// Exits without an open span of the same key: the entry came before the measurement, or was lost.
    pub unmatched_exits: u64,
    /// Entries dropped because an exit closed a span below them: their exits were lost.
    pub abandoned: u64,
    /// Entries refused because [`DEPTH_MAX`] spans were open.
    pub overflows: u64,
}

/// An open span. Times are in the unit of the caller's clock.
#[derive(Clone, Copy, Debug)]
struct Frame<K> {
    key: K,
    start: u64,
    /// Time of the spans directly inside this one that have ended.
    nested_time: u64,
    /// See [`ClosedSpan::descendants`].
    descendants: u32,
}

/// The open spans of one CPU, outermost first.
#[derive(Clone, Debug)]
pub struct SpanStack<K> {
    frames: Vec<Frame<K>>,
    faults: StackFaults,
}

impl<K> Default for SpanStack<K> {
    fn default() -> Self {
        SpanStack { frames: Vec::with_capacity(DEPTH_MAX), faults: StackFaults::default() }
    }
}

impl<K: Copy + PartialEq> SpanStack<K> {
    /// Opens a span of `key` at time `now`. Times must not decrease from call to call.
    pub fn enter(&mut self, key: K, now: u64) {
        if self.frames.len() == DEPTH_MAX {
            self.faults.overflows += 1;
            return;
        }
        self.frames.push(Frame { key, start: now, nested_time: 0, descendants: 0 });
    }

    /// Closes the innermost open span of `key` at time `now`.
    ///
    /// Spans above it are abandoned, and their time goes to the closed span. Without an open span of `key`, nothing
    /// changes, and the result is `None`.
    pub fn exit(&mut self, key: K, now: u64) -> Option<ClosedSpan<K>> {
        let Some(position) = self.frames.iter().rposition(|frame| frame.key == key) else {
            self.faults.unmatched_exits += 1;
            return None;
        };
        self.faults.abandoned += (self.frames.len() - position - 1) as u64;
        let mut frame = self.frames[position];
        // Spans that closed inside an abandoned span have their time already: it stays nested time.
        for above in self.frames.drain(position..).skip(1) {
            frame.nested_time += above.nested_time;
            frame.descendants += above.descendants;
        }
        let inclusive_time = now.saturating_sub(frame.start);
        if let Some(parent) = self.frames.last_mut() {
            parent.nested_time += inclusive_time;
            parent.descendants += frame.descendants + 1;
        }
        Some(ClosedSpan {
            key,
            self_time: inclusive_time.saturating_sub(frame.nested_time),
            inclusive_time,
            descendants: frame.descendants,
        })
    }

    /// How many spans are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The keys of the open spans, outermost first.
    pub fn open(&self) -> impl Iterator<Item = K> + '_ {
        self.frames.iter().map(|frame| frame.key)
    }

    /// Numbers of events that did not fit so far.
    #[must_use]
    pub fn faults(&self) -> StackFaults {
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hard_irq_inside_a_softirq_is_not_charged_to_the_softirq() {
        let mut stack = SpanStack::default();
        stack.enter("NET_RX", 100);
        stack.enter("irq36", 130);
        let irq = stack.exit("irq36", 150).unwrap();
        let softirq = stack.exit("NET_RX", 200).unwrap();
        assert_eq!((irq.self_time, irq.inclusive_time), (20, 20));
        assert_eq!((softirq.self_time, softirq.inclusive_time), (80, 100));
        assert_eq!(softirq.descendants, 1);
        assert_eq!(stack.faults(), StackFaults::default());
    }

    #[test]
    fn an_exit_without_its_entry_is_counted_and_changes_nothing() {
        let mut stack = SpanStack::default();
        stack.enter(1, 10);
        assert_eq!(stack.exit(2, 20), None);
        assert_eq!(stack.faults().unmatched_exits, 1);
        assert_eq!(stack.exit(1, 30).unwrap().self_time, 20);
    }

    #[test]
    fn a_lost_exit_is_abandoned_and_its_time_stays_with_the_span_below() {
        let mut stack = SpanStack::default();
        stack.enter(1, 0);
        stack.enter(2, 10);
        let closed = stack.exit(1, 100).unwrap();
        assert_eq!(closed.self_time, 100);
        assert_eq!(stack.faults().abandoned, 1);
        assert_eq!(stack.depth(), 0);
    }

    #[test]
    fn the_seventeenth_entry_is_refused_and_counted() {
        let mut stack = SpanStack::default();
        for level in 0..=DEPTH_MAX as u64 {
            stack.enter(level, level);
        }
        assert_eq!(stack.depth(), DEPTH_MAX);
        assert_eq!(stack.faults().overflows, 1);
    }
}
