//! All gaps of a CPU, summed up as they come: exact totals, and a bounded number of single ones.

use std::collections::BTreeMap;

use stats::{Distribution, Reservoir};

use super::split::{AttributionParameters, Class, Gap, Mark, Part, SplitFaults, split};

/// Maximum number of single gaps of a CPU in its even sample of all.
pub const SAMPLE_MAX: usize = 10_000;
/// Maximum number of first gaps of a CPU, in which periods are searched.
pub const FIRST_MAX: usize = 1 << 16;

/// One gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour {
    /// When and how long.
    pub gap: Gap,
    /// What the kernel named first in it; absent when it named nothing, or was not asked.
    pub trigger: Option<Part>,
    /// The largest part of it that has a name; [`Part::NoEvent`] when nothing has.
    pub main: Option<Part>,
    /// Time by class, ns, in the order of [`Class::ALL`].
    pub by_class_ns: [u64; Class::ALL.len()],
}

/// The gaps of one CPU.
#[derive(Clone, Debug)]
pub struct GapLedger {
    parameters: AttributionParameters,
    /// Lengths of all gaps.
    pub gaps: Distribution,
    /// For each part, its time in the gaps that have it.
    pub parts: BTreeMap<Part, Distribution>,
    /// Gaps without an interruption, on a bench that sees every cycle: the loop itself was slower, after
    /// a detour. They are in none of the other sums.
    pub own_gaps: Distribution,
    /// What did not fit together.
    pub faults: SplitFaults,
    /// Gaps whose parts did not add up to them.
    pub unbalanced: u64,
    /// An even sample of the gaps.
    pub sample: Reservoir<Detour>,
    pub first: Vec<Detour>,
    scratch: Vec<(Part, u64)>,
}

impl GapLedger {
    /// Without gaps.
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

    /// Adds a gap that nobody watched from the kernel's side.
    pub fn add_bare(&mut self, gap: Gap) {
        self.keep(Detour { gap, trigger: None, main: None, by_class_ns: Default::default() });
    }

    /// Adds a gap with the marks in it.
    pub fn add(&mut self, gap: Gap, marks: &[Mark]) {
        let mut parts = std::mem::take(&mut self.scratch);
        parts.clear();
        self.faults.add(split(gap, marks, self.parameters, &mut parts));
        self.add_split(gap, &mut parts);
        self.scratch = parts;
    }

    /// Adds a gap that was split into its parts, which are in the order of time. Parts that do not
    /// add up to the gap are an error of the program: the gap's time is then [`Part::Unknown`].
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

    /// Time of all gaps by class, ns, in the order of [`Class::ALL`]; absent when nobody watched.
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

/// Adds up the parts that occur more than once.
fn merge(parts: &mut Vec<(Part, u64)>) {
    parts.sort_unstable();
    parts.dedup_by(|next, previous| {
        let same = next.0 == previous.0;
        if same {
            previous.1 += next.1;
        }
        same
    });
}
