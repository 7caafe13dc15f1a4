//! Sums up all gaps of a CPU: exact totals, and a bounded number of single gaps.

use std::collections::BTreeMap;

use stats::{Distribution, Reservoir};

use super::split::{AttributionParameters, Class, Gap, Mark, Part, SplitFaults, split};

/// Maximum number of gaps in the even sample of a CPU.
pub const SAMPLE_MAX: usize = 10_000;
/// Maximum number of first gaps of a CPU. The search for periods uses them.
pub const FIRST_MAX: usize = 1 << 16;

/// One gap with the summary of its causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour {
    pub gap: Gap,
    /// The first part that the kernel named. `None` if the kernel named no part, and without tracing.
    pub trigger: Option<Part>,
    /// The largest named part, or [`Part::NoEvent`] without a named part. `None` without tracing.
    pub main: Option<Part>,
    /// Time by class, ns, in the order of [`Class::ALL`].
    pub by_class_ns: [u64; Class::ALL.len()],
}

#[derive(Clone, Debug)]
pub struct GapLedger {
    parameters: AttributionParameters,
    pub gaps: Distribution,
    /// For each part: its times in the gaps that contain it.
    pub parts: BTreeMap<Part, Distribution>,
    /// Gaps without an interruption, on a bench that sees every cycle: the loop itself was slower after a detour.
    /// The other sums exclude them.
    pub own_gaps: Distribution,
    /// Inconsistencies among the marks of all gaps.
    pub faults: SplitFaults,
    /// Number of gaps whose parts do not add up to the gap.
    pub unbalanced: u64,
    /// An even sample of all gaps.
    pub sample: Reservoir<Detour>,
    pub first: Vec<Detour>,
    scratch: Vec<(Part, u64)>,
}

impl GapLedger {
    #[must_use]
    pub fn new(parameters: AttributionParameters, seed: u64) -> Self {
        GapLedger {
            parameters,
            gaps: Distribution::default(),
            parts: BTreeMap::new(),
            own_gaps: Distribution::default(),
            faults: SplitFaults::default(),
            unbalanced: 0,
            sample: Reservoir::new(SAMPLE_MAX, seed),
            first: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Adds a gap without tracing.
    pub fn add_bare(&mut self, gap: Gap) {
        self.keep(Detour { gap, trigger: None, main: None, by_class_ns: Default::default() });
    }

    /// Adds a gap with its marks.
    pub fn add(&mut self, gap: Gap, marks: &[Mark]) {
        let mut parts = std::mem::take(&mut self.scratch);
        parts.clear();
        self.faults.add(split(gap, marks, self.parameters, &mut parts));
        self.add_split(gap, &mut parts);
        self.scratch = parts;
    }

    /// Adds a gap with its parts in the order of time. If the parts do not add up to the gap, the program is wrong: the
    /// gap's time then counts as [`Part::Unknown`].
    pub fn add_split(&mut self, gap: Gap, parts: &mut Vec<(Part, u64)>) {
        if parts.iter().map(|part| part.1).sum::<u64>() != gap.length_ns() {
            self.unbalanced += 1;
            *parts = vec![(Part::Unknown, gap.length_ns())];
        }
        let is_named = |part: &&(Part, u64)| part.0.class() == Class::Named;
        let trigger = parts.iter().find(is_named).map(|part| part.0);
        merge(parts);
        let main = parts.iter().filter(is_named).max_by_key(|part| part.1).map(|part| part.0);
        let mut by_class_ns = [0; Class::ALL.len()];
        for &(part, length_ns) in parts.iter() {
            by_class_ns[part.class() as usize] += length_ns;
            self.parts.entry(part).or_default().record(length_ns, gap.start_ns);
        }
        self.keep(Detour { gap, trigger, main: main.or(Some(Part::NoEvent)), by_class_ns });
    }

    fn keep(&mut self, detour: Detour) {
        self.gaps.record(detour.gap.length_ns(), detour.gap.start_ns);
        self.sample.offer(detour);
        if self.first.len() < FIRST_MAX {
            self.first.push(detour);
        }
    }

    /// Time of all gaps by class, ns, in the order of [`Class::ALL`]. `None` without tracing.
    #[must_use]
    pub fn by_class_ns(&self) -> Option<[u64; Class::ALL.len()]> {
        let mut sums = [0; Class::ALL.len()];
        for (part, times) in &self.parts {
            sums[part.class() as usize] += times.sum;
        }
        (self.gaps.count == 0 || !self.parts.is_empty()).then_some(sums)
    }

    /// Whether the kernel entry and exit latency was measured.
    #[must_use]
    pub fn knows_entry_latency(&self) -> bool {
        self.parameters.entry_latency_ns > 0
    }
}

/// Merges parts that occur more than once.
fn merge(parts: &mut Vec<(Part, u64)>) {
    parts.sort_unstable();
    parts.dedup_by(|next, previous| {
        let is_same = next.0 == previous.0;
        if is_same {
            previous.1 += next.1;
        }
        is_same
    });
}
