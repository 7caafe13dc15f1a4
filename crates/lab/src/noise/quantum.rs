//! A quantum of fixed work: one repetition of the loop `fwq`.

use super::split::Part;

/// One quantum of fixed work on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantum {
    /// Start of the quantum, ns.
    pub start_ns: u64,
    /// Duration of the quantum, ns.
    pub time_ns: u64,
    /// The parts that kernel events name, in the order of time, with their lengths, ns. `None` without tracing.
    pub parts: Option<Vec<(Part, u64)>>,
    /// Whether the loop had a page fault in the quantum. `None` without tracing.
    pub faulted: Option<bool>,
}

impl Quantum {
    /// A quantum without tracing.
    #[must_use]
    pub fn untraced(start_ns: u64, time_ns: u64) -> Self {
        Quantum { start_ns, time_ns, parts: None, faulted: None }
    }

    /// Time that kernel events name in the quantum, ns. `None` without tracing.
    #[must_use]
    pub fn named_ns(&self) -> Option<u64> {
        Some(self.parts.as_ref()?.iter().map(|part| part.1).sum())
    }

    /// What took the most time of the quantum. `None` if kernel events name nothing, and without tracing.
    #[must_use]
    pub fn main(&self) -> Option<Part> {
        let mut parts = self.parts.clone()?;
        parts.sort_unstable();
        let sums = parts.chunk_by(|a, b| a.0 == b.0);
        let sums = sums.map(|equal| (equal.iter().map(|part| part.1).sum::<u64>(), equal[0].0));
        sums.max().map(|(_, part)| part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_part_has_the_largest_sum() {
        let parts = vec![(Part::Context(1), 30), (Part::Context(2), 40), (Part::Context(1), 30)];
        let quantum = Quantum { parts: Some(parts), ..Quantum::untraced(0, 500) };
        assert_eq!((quantum.named_ns(), quantum.main()), (Some(100), Some(Part::Context(1))));
        let undisturbed = Quantum { parts: Some(Vec::new()), ..Quantum::untraced(0, 400) };
        assert_eq!((undisturbed.named_ns(), undisturbed.main()), (Some(0), None));
        let untraced = Quantum::untraced(0, 400);
        assert_eq!((untraced.named_ns(), untraced.main()), (None, None));
    }
}
