//! A quantum of fixed work: one repetition of the loop `fwq`. Both benches record quanta and attribute their time by kernel
//! events. `tables/single.rs` makes the table `fwq_quanta` from them, and `tables/tick.rs` the table `tick`.

use super::split::Part;

/// Maximum number of contexts of a quantum that are kept.
const ENTERED_MAX: usize = 8;

/// One quantum of fixed work on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantum {
    /// Start of the quantum, ns.
    pub start_ns: u64,
    /// Duration of the quantum, ns.
    pub time_ns: u64,
    /// Time of the quantum that kernel events attribute to a cause, ns. `None` without tracing, and on the live bench with
    /// a page fault.
    pub attributed_ns: Option<u64>,
    /// The cause with the most attributed time; of equal ones, the last in the order of [`Part`]. `None` if no time is
    /// attributed, and if `attributed_ns` is unknown.
    pub main: Option<Part>,
    /// The contexts that started in the quantum, by number, in the order of time. `None` without tracing, if another task
    /// ran, and if more than eight contexts started.
    pub entered: Option<Vec<u32>>,
    /// Whether the loop had a page fault in the quantum. `None` without tracing.
    pub faulted: Option<bool>,
}

impl Quantum {
    /// A quantum without tracing.
    #[must_use]
    pub fn untraced(start_ns: u64, time_ns: u64) -> Self {
        Quantum { start_ns, time_ns, attributed_ns: None, main: None, entered: None, faulted: None }
    }

    /// Whether nothing interrupted the quantum, by the kernel's events or the simulator. `false` without tracing.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        self.attributed_ns == Some(0) && self.faulted != Some(true)
    }

    /// Sets `attributed_ns`, `main` and `entered` from kernel events; the caller sets `faulted`. `parts`: the attributed
    /// times, each with its cause and its length in ns, in any order; sorted here. `entered`: the contexts that started, in
    /// the order of time; `None` if another task ran.
    pub fn attribute(
        &mut self,
        parts: &mut [(Part, u64)],
        entered: Option<impl Iterator<Item = u32>>,
    ) {
        self.attributed_ns = Some(total_ns(parts));
        parts.sort_unstable();
        let by_cause = parts.chunk_by(|(cause, _), (next_cause, _)| cause == next_cause);
        let sums = by_cause.map(|times| (total_ns(times), times[0].0));
        self.main = sums.max().map(|(_, cause)| cause);
        // One more than is kept tells whether there are too many.
        let entered = entered.map(|contexts| contexts.take(ENTERED_MAX + 1).collect::<Vec<u32>>());
        self.entered = entered.filter(|contexts| contexts.len() <= ENTERED_MAX);
    }
}

fn total_ns(parts: &[(Part, u64)]) -> u64 {
    parts.iter().map(|(_, length_ns)| length_ns).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_part_has_the_largest_sum() {
        let mut quantum = Quantum::untraced(0, 500);
        assert_eq!((quantum.attributed_ns, quantum.main), (None, None));
        let mut parts = [(Part::Context(1), 30), (Part::Context(2), 40), (Part::Context(1), 30)];
        quantum.attribute(&mut parts, Some([1, 2].into_iter()));
        assert_eq!((quantum.attributed_ns, quantum.main), (Some(100), Some(Part::Context(1))));
        assert_eq!(quantum.entered, Some(vec![1, 2]));
        quantum.attribute(&mut [], Some(0..9));
        assert_eq!((quantum.attributed_ns, quantum.main, quantum.entered), (Some(0), None, None));
    }
}
