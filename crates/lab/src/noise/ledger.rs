//! Sums up all gaps of a CPU: exact totals, and a bounded number of single gaps.
//!
//! A bench makes a [`GapLedger`] for each CPU and adds each gap of the detour loop, while the loop runs (`live`) or
//! afterwards (`sim`). The tables of `noise` read it. An invariant: the parts of each gap add up to the gap, to the
//! nanosecond.

use std::collections::BTreeMap;

use stats::{Distribution, Largest, LogLinear, Reservoir};

use super::lost_time::LostTime;
use super::split::{AttributionParameters, Class, Gap, Mark, Part, SplitFaults, split};
use crate::exceedances::Exceedances;

/// Maximum number of gaps in the even sample of a CPU ([`GapLedger::sample`]).
pub const SAMPLE_MAX: usize = 10_000;
/// Maximum number of first gaps of a CPU that are stored one by one, for the search for periods.
pub const FIRST_MAX: usize = 1 << 16;

/// One gap with the summary of its causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour {
    pub gap: Gap,
    /// The first part that a kernel event names. `None` if no event names a part, and without tracing.
    pub trigger: Option<Part>,
    /// The cause of most of the gap, by the sums of its times. If the host or the firmware took more than half of the gap,
    /// the largest part of [`Class::Unattributed`]. Otherwise the largest part that kernel events name, or, if they name
    /// none, the largest part of any class. `None` without tracing.
    pub main: Option<Part>,
    /// Time by class, ns, in the order of [`Class::ALL`].
    pub by_class_ns: [u64; Class::ALL.len()],
}

/// A detour with all its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeDetour {
    pub detour: Detour,
    /// The parts in the order of time, at most [`KeepDetours::parts_max`]. Empty without tracing.
    pub parts: Vec<(Part, u64)>,
    /// The sums of all later parts, by cause. Together with `parts` they add up to the detour.
    pub later: Vec<(Part, u64)>,
}

impl WholeDetour {
    /// The largest cause ([`Detour::main`]) and its time. `None` without tracing.
    #[must_use]
    pub fn main(&self) -> Option<(Part, u64)> {
        let main = self.detour.main?;
        let parts = self.parts.iter().chain(&self.later);
        let main_times = parts.filter(|(part, _)| *part == main).map(|(_, length_ns)| length_ns);
        Some((main, main_times.sum()))
    }
}

/// How many single gaps of a CPU are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepDetours {
    /// How many of the longest gaps are kept with their parts.
    pub longest: usize,
    /// Maximum number of parts of each longest gap that are kept in the order of time. Later parts are summed up by
    /// cause.
    pub parts_max: usize,
    /// Seed of the even sample of gaps.
    pub seed: u64,
}

/// How many of the longest gaps of a CPU are kept unless the user wants another number.
pub const LONGEST_DEFAULT: usize = 64;
/// Maximum number of the longest gaps of a CPU.
pub const LONGEST_MAX: usize = 1_000;
/// Maximum number of parts of one gap that are kept in the order of time.
const PARTS_MAX: usize = 4_096;
/// Maximum number of parts of all CPUs together. It leaves room in a run's table, which holds ten million rows.
const ALL_PARTS_MAX: usize = 2_000_000;

impl KeepDetours {
    /// Keeps the `longest` gaps of each of `cpus` CPUs. The limit for the parts of a gap is as high as memory and a
    /// run's table allow, and at least 16.
    #[must_use]
    pub fn new(longest: usize, cpus: usize, seed: u64) -> KeepDetours {
        let parts_max = (ALL_PARTS_MAX / (longest * cpus).max(1)).clamp(16, PARTS_MAX);
        KeepDetours { longest, parts_max, seed }
    }

    /// Keeps the default number of the longest gaps, with the limit for parts of a run with a single CPU.
    #[must_use]
    pub fn with_seed(seed: u64) -> KeepDetours {
        KeepDetours::new(LONGEST_DEFAULT, 1, seed)
    }

    /// These limits with another seed, which differs from CPU to CPU.
    #[must_use]
    pub fn on_cpu(self, cpu: u32) -> KeepDetours {
        KeepDetours { seed: self.seed ^ u64::from(cpu), ..self }
    }
}

/// The gaps of the detour loop on one CPU.
#[derive(Clone, Debug)]
pub struct GapLedger {
    parameters: AttributionParameters,
    /// Maximum number of parts of one of the longest gaps that are kept in the order of time.
    parts_max: usize,
    /// The lengths of all gaps, ns.
    pub gaps: Distribution,
    /// For each part: its times in the gaps that contain the part, ns.
    pub parts: BTreeMap<Part, Distribution>,
    /// Gaps without an interruption: the loop itself was slower after a detour. Only a bench that sees every cycle
    /// knows such gaps, and records them here. All other sums exclude them.
    pub own_gaps: Distribution,
    /// Inconsistencies among the marks of all gaps.
    pub faults: SplitFaults,
    /// Number of gaps whose parts do not add up to the gap.
    pub unbalanced: u64,
    /// The lengths of the gaps by the largest cause of each ([`Detour::main`]).
    pub lengths_by_main: BTreeMap<Option<Part>, LogLinear>,
    /// The time of all gaps in the course of the window. Without tracing, the cause is [`Part::Unknown`].
    pub lost_time: LostTime,
    /// An even sample of all gaps.
    pub sample: Reservoir<Detour>,
    /// The longest gaps.
    pub longest: Largest<WholeDetour>,
    /// The first gaps, at most [`FIRST_MAX`], in the order of time.
    pub first: Vec<Detour>,
    /// The gaps that reach the threshold of `--on-threshold`.
    pub over_threshold: Exceedances<Part>,
    /// Buffer for the parts of a gap in the order of time. Each gap reuses it, to allocate less.
    parts_buffer: Vec<(Part, u64)>,
    /// Buffer for the parts of a gap by cause.
    sums_buffer: Vec<(Part, u64)>,
}

impl GapLedger {
    #[must_use]
    pub fn new(parameters: AttributionParameters, keep: KeepDetours) -> Self {
        GapLedger {
            parameters,
            parts_max: keep.parts_max,
            gaps: Distribution::default(),
            parts: BTreeMap::new(),
            own_gaps: Distribution::default(),
            faults: SplitFaults::default(),
            unbalanced: 0,
            lengths_by_main: BTreeMap::new(),
            lost_time: LostTime::default(),
            sample: Reservoir::new(SAMPLE_MAX, keep.seed),
            longest: Largest::new(keep.longest),
            first: Vec::new(),
            over_threshold: Exceedances::new(None),
            parts_buffer: Vec::new(),
            sums_buffer: Vec::new(),
        }
    }

    /// This ledger, which also counts the gaps of at least `threshold_ns`. `None`: counts none.
    #[must_use]
    pub fn with_threshold(self, threshold_ns: Option<u64>) -> Self {
        GapLedger { over_threshold: Exceedances::new(threshold_ns), ..self }
    }

    /// Adds a gap without tracing.
    pub fn add_bare(&mut self, gap: Gap) {
        self.lost_time.add(gap, &[(Part::Unknown, gap.length_ns())]);
        self.keep(Detour { gap, trigger: None, main: None, by_class_ns: Default::default() }, &[]);
    }

    /// Adds a gap, and splits it by its marks, which must be in the order of time.
    pub fn add(&mut self, gap: Gap, marks: &[Mark]) {
        let mut parts = std::mem::take(&mut self.parts_buffer);
        parts.clear();
        self.faults.add(split(gap, marks, self.parameters, &mut parts));
        self.add_split(gap, &mut parts);
        self.parts_buffer = parts;
    }

    /// Adds a gap with its parts in the order of time. Parts that do not add up to the gap show a bug of irqlab: the
    /// gap then counts in `unbalanced`, and its time as [`Part::Unknown`].
    pub fn add_split(&mut self, gap: Gap, parts: &mut Vec<(Part, u64)>) {
        if parts.iter().map(|part| part.1).sum::<u64>() != gap.length_ns() {
            self.unbalanced += 1;
            *parts = vec![(Part::Unknown, gap.length_ns())];
        }
        let is_named = |part: &&(Part, u64)| part.0.class() == Class::Named;
        let trigger = parts.iter().find(is_named).map(|part| part.0);
        self.lost_time.add(gap, parts);
        let mut sums = std::mem::take(&mut self.sums_buffer);
        sums.clone_from(parts);
        merge_equal_parts(&mut sums);
        let mut by_class_ns = [0; Class::ALL.len()];
        for &(part, length_ns) in &sums {
            by_class_ns[part.class() as usize] += length_ns;
            self.parts.entry(part).or_default().record(length_ns, gap.start_ns);
        }
        let largest_of = |class: Class| {
            let parts = sums.iter().filter(|part| part.0.class() == class);
            parts.max_by_key(|part| part.1).map(|part| part.0)
        };
        let unattributed_ns = by_class_ns[Class::Unattributed as usize];
        let preferred_class =
            if unattributed_ns > gap.length_ns() / 2 { Class::Unattributed } else { Class::Named };
        let main = largest_of(preferred_class)
            .or_else(|| sums.iter().max_by_key(|part| part.1).map(|part| part.0));
        self.sums_buffer = sums;
        self.keep(Detour { gap, trigger, main, by_class_ns }, parts);
    }

    /// Adds a gap to the sums over lengths, and to the kept single gaps. `parts`: in the order of time; empty without
    /// tracing. The callers add the gap to the ledger's `lost_time` and `parts`.
    fn keep(&mut self, detour: Detour, parts: &[(Part, u64)]) {
        let length_ns = detour.gap.length_ns();
        self.gaps.record(length_ns, detour.gap.start_ns);
        self.lengths_by_main.entry(detour.main).or_default().record(length_ns);
        self.sample.offer(detour);
        self.over_threshold.offer(length_ns, detour.gap.end_ns, || {
            let main = detour.main?;
            let of_main = parts.iter().filter(|(part, _)| *part == main);
            Some((main, of_main.map(|(_, length_ns)| length_ns).sum()))
        });
        self.longest.offer(length_ns, || {
            let (parts, later_parts) = parts.split_at(parts.len().min(self.parts_max));
            let mut later = later_parts.to_vec();
            merge_equal_parts(&mut later);
            WholeDetour { detour, parts: parts.to_vec(), later }
        });
        if self.first.len() < FIRST_MAX {
            self.first.push(detour);
        }
    }

    /// Time of all gaps by class, ns, in the order of [`Class::ALL`]. `None` if there are gaps, but without tracing.
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

/// Merges equal parts: one entry for each cause, with the sum of its times.
pub(crate) fn merge_equal_parts<P: Copy + Ord>(parts: &mut Vec<(P, u64)>) {
    parts.sort_unstable();
    parts.dedup_by(|(next, next_ns), (part, sum_ns)| {
        let is_equal = next == part;
        if is_equal {
            *sum_ns += *next_ns;
        }
        is_equal
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(longest: usize) -> GapLedger {
        GapLedger::new(AttributionParameters::default(), KeepDetours::new(longest, 1, 1))
    }

    #[test]
    fn a_host_that_takes_most_of_a_gap_is_its_cause() {
        let mut ledger = ledger(1);
        // A task that ran for 7 of 44 ms is not the cause of the gap: the host took 36 ms.
        let mut parts = vec![(Part::Late, 36_000_000), (Part::Context(1), 7_000_000)];
        parts.push((Part::Context(2), 1_000_000));
        ledger.add_split(Gap { start_ns: 0, end_ns: 44_000_000 }, &mut parts);
        assert_eq!(ledger.longest.sorted()[0].main(), Some((Part::Late, 36_000_000)));
        // Where events name most of a longer gap, its largest part is named, even if a single other part is larger.
        let mut parts = vec![(Part::Late, 40_000_000), (Part::Context(1), 30_000_000)];
        parts.push((Part::Context(2), 20_000_000));
        ledger.add_split(Gap { start_ns: 0, end_ns: 90_000_000 }, &mut parts);
        assert_eq!(ledger.longest.sorted()[0].main(), Some((Part::Context(1), 30_000_000)));
    }

    #[test]
    fn the_longest_gap_is_whole_whenever_it_comes() {
        let mut ledger = ledger(2);
        let mut now_ns = 0;
        for number in 0..50_000 {
            let is_long = number == 31_007;
            let parts = if is_long {
                vec![
                    (Part::Late, 900),
                    (Part::Context(3), 70_000),
                    (Part::Context(4), 5),
                    (Part::Context(3), 8),
                ]
            } else {
                vec![(Part::Context(4), 100 + number % 7)]
            };
            let length_ns = parts.iter().map(|part| part.1).sum::<u64>();
            let gap = Gap { start_ns: now_ns, end_ns: now_ns + length_ns };
            ledger.add_split(gap, &mut parts.clone());
            now_ns = gap.end_ns + 1_000;
        }
        let longest = ledger.longest.sorted();
        assert_eq!(longest.len(), 2);
        let expected = [
            (Part::Late, 900),
            (Part::Context(3), 70_000),
            (Part::Context(4), 5),
            (Part::Context(3), 8),
        ];
        assert_eq!(longest[0].parts, expected);
        assert_eq!(longest[0].main(), Some((Part::Context(3), 70_008)));
        assert_eq!(longest[1].detour.gap.length_ns(), 106);
    }

    #[test]
    fn parts_beyond_the_limit_are_summed_up_and_nothing_is_missing() {
        let mut ledger = ledger(1);
        let mut parts: Vec<(Part, u64)> = (0..PARTS_MAX as u64 * 2 + 1)
            .map(|number| (Part::Context((number % 3) as u32), number + 1))
            .collect();
        let length_ns = parts.iter().map(|part| part.1).sum();
        ledger.add_split(Gap { start_ns: 9, end_ns: 9 + length_ns }, &mut parts);
        let longest = ledger.longest.sorted();
        assert_eq!((longest[0].parts.len(), longest[0].later.len()), (PARTS_MAX, 3));
        let kept = longest[0].parts.iter().chain(&longest[0].later).map(|part| part.1).sum::<u64>();
        assert_eq!((kept, ledger.unbalanced), (length_ns, 0));
    }

    #[test]
    fn many_cpus_keep_fewer_parts_than_a_table_has_rows() {
        for (longest, cpus) in [(1, 1), (64, 2), (1_000, 3), (64, 512), (1_000, 4_096)] {
            let keep = KeepDetours::new(longest, cpus, 1);
            assert!((16..=PARTS_MAX).contains(&keep.parts_max), "{keep:?}");
            let rows = keep.parts_max * longest * cpus;
            assert!(rows <= ALL_PARTS_MAX || keep.parts_max == 16, "{keep:?} {cpus}");
        }
        assert_eq!(KeepDetours::new(64, 2, 1).parts_max, PARTS_MAX);
    }

    #[test]
    fn a_detour_whose_events_name_no_cause_has_the_largest_part() {
        let mut ledger = ledger(1);
        let mark = Mark { at_ns: 40, what: super::super::split::What::SwitchBack };
        ledger.add(Gap { start_ns: 10, end_ns: 100 }, &[mark]);
        let longest = ledger.longest.sorted();
        assert_eq!(longest[0].main(), Some((Part::Tail, 60)));
        ledger.add(Gap { start_ns: 200, end_ns: 500 }, &[]);
        assert_eq!(ledger.longest.sorted()[0].main(), Some((Part::NoEvent, 300)));
    }

    #[test]
    fn lengths_by_cause_and_lost_time_have_all_gaps_though_the_sample_is_smaller() {
        let mut ledger = ledger(1);
        let count = 3 * SAMPLE_MAX as u64;
        for number in 0..count {
            let gap = Gap { start_ns: number * 1_000, end_ns: number * 1_000 + 10 };
            ledger.add_split(gap, &mut vec![(Part::Context((number % 2) as u32), 10)]);
        }
        let counts: Vec<u64> = ledger.lengths_by_main.values().map(LogLinear::total).collect();
        assert_eq!(counts, [count / 2, count / 2]);
        assert_eq!(ledger.lost_time.intervals().map(|lost| lost.lost_ns).sum::<u64>(), 10 * count);
        assert!(ledger.sample.items().len() < count as usize);
    }
}
