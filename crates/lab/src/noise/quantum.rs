//! A quantum of fixed work: one repetition of the loop `fwq`. Both benches record quanta, and the tables of single
//! quanta and of ticks are made from them.

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
    /// Time that kernel events name in the quantum, ns. `None` without tracing, and on the live bench with a page fault.
    pub named_ns: Option<u64>,
    /// The largest part that kernel events name in the quantum. `None` if they name none, and if `named_ns` is unknown.
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
        Quantum { start_ns, time_ns, named_ns: None, main: None, entered: None, faulted: None }
    }

    /// Whether nothing interrupted the quantum, by the kernel's events or the simulator. `false` without tracing.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        self.named_ns == Some(0) && self.faulted != Some(true)
    }

    /// Sets what kernel events tell of the quantum. `parts`: the named parts; they are sorted here. `entered`: the contexts
    /// that started, in the order of time; `None` if another task ran.
    pub fn set_named(
        &mut self,
        parts: &mut [(Part, u64)],
        entered: Option<impl Iterator<Item = u32>>,
    ) {
        self.named_ns = Some(parts.iter().map(|part| part.1).sum());
        parts.sort_unstable();
        let sums = parts.chunk_by(|a, b| a.0 == b.0);
        let sums = sums.map(|equal| (equal.iter().map(|part| part.1).sum::<u64>(), equal[0].0));
        self.main = sums.max().map(|(_, part)| part);
        let first = entered.map(|entered| entered.take(ENTERED_MAX + 1).collect::<Vec<u32>>());
        self.entered = first.filter(|entered| entered.len() <= ENTERED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_part_has_the_largest_sum() {
        let mut quantum = Quantum::untraced(0, 500);
        assert_eq!((quantum.named_ns, quantum.main), (None, None));
        let mut parts = [(Part::Context(1), 30), (Part::Context(2), 40), (Part::Context(1), 30)];
        quantum.set_named(&mut parts, Some([1, 2].into_iter()));
        assert_eq!((quantum.named_ns, quantum.main), (Some(100), Some(Part::Context(1))));
        assert_eq!(quantum.entered, Some(vec![1, 2]));
        quantum.set_named(&mut [], Some(0..9));
        assert_eq!((quantum.named_ns, quantum.main, quantum.entered), (Some(0), None, None));
    }
}
