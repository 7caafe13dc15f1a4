//! The work of the loops: the quanta of fixed work (FWQ) and the slots of fixed time (FTQ) on one CPU, and what they say
//! about the loop without interference.

use stats::Distribution;
use stats::interval::quantile_ranks_95;

use super::quantum::Quantum;
use super::split::Part;

/// Quanta of fixed work.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// The times of all quanta, ns.
    pub times: Distribution,
    /// The first quanta, at most 10,000.
    pub first: Vec<Quantum>,
    /// The quanta of each tenth of the window.
    pub blocks: Vec<Block>,
    /// How long a quantum without interference takes by the loop's calibration, ns. `None` if the loop has none.
    pub calibrated_ns: Option<u64>,
    /// How the cycles of each quantum were used. Empty unless the bench sees every cycle.
    pub cycles: Vec<QuantumCycles>,
}

/// The quanta of a block of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    pub all: Shortest,
    /// Quanta that nothing interrupted, by the kernel's events or the simulator. None without tracing.
    pub undisturbed: Shortest,
}

/// The shortest of some quanta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortest {
    /// The shortest time, ns. `None` without quanta.
    pub min_ns: Option<u64>,
    /// Number of the quanta.
    pub count: u64,
}

impl Shortest {
    fn add(&mut self, time_ns: u64) {
        self.min_ns = Some(self.min_ns.map_or(time_ns, |min_ns| min_ns.min(time_ns)));
        self.count += 1;
    }
}

/// How the cycles of a quantum were used, and how often other contexts interrupted the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantumCycles {
    /// Cycles of the loop itself.
    pub own: u64,
    /// Cycles of other contexts in the quantum.
    pub taken: u64,
    /// How often other contexts took the CPU in the quantum.
    pub departures: u64,
    /// How often other contexts took the CPU between the previous quantum and this quantum.
    pub departures_before: u64,
    /// The first context that took the CPU in the quantum. `None` if no context did.
    pub first: Option<Part>,
    /// Whether another task ran in the quantum.
    pub switched: bool,
}

/// The work in slots of fixed time.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Length of a slot, ns: a whole number of cycles of the loop's clock.
    pub slot_length_ns: f64,
    /// Number of slots that passed.
    pub count: u64,
    /// Total work of all slots, in units of work. By the loop's calibration, a slot without interference has
    /// [`PARTS_PER_SLOT`] units.
    pub work_sum: u64,
    /// Maximum work of a slot.
    pub work_max: u64,
    /// Number of slots without any work.
    pub empty: u64,
    /// The work of each of the first slots, at most 65,536.
    pub first: Vec<u64>,
    /// Whether nothing can interrupt the loop, because there is no kernel.
    pub is_alone: bool,
}

/// Number of units of work in a slot of fixed time without interference, by the loop's calibration.
pub const PARTS_PER_SLOT: u64 = 64;
/// Maximum number of quanta that are stored one by one.
const QUANTA_MAX: usize = 10_000;
/// Maximum number of slots that are stored one by one.
const SLOTS_MAX: usize = 1 << 16;
/// Number of blocks in a window.
const BLOCKS: usize = 10;

impl Fixed {
    /// Number of quanta of a block, if a window has `expected` quanta.
    #[must_use]
    pub fn quanta_per_block(expected: u64) -> u64 {
        expected.div_ceil(BLOCKS as u64).max(1)
    }

    /// Adds the next quantum. `quanta_per_block`: see [`Fixed::quanta_per_block`]. Quanta beyond the expected number
    /// belong to the last block.
    pub fn add(&mut self, quantum: Quantum, quanta_per_block: u64) {
        let block = (self.times.count / quanta_per_block.max(1)).min(BLOCKS as u64 - 1) as usize;
        if block >= self.blocks.len() {
            self.blocks.resize(block + 1, Block::default());
        }
        let block = &mut self.blocks[block];
        block.all.add(quantum.time_ns);
        if quantum.is_undisturbed() {
            block.undisturbed.add(quantum.time_ns);
        }
        self.times.record(quantum.time_ns, quantum.start_ns);
        if self.first.len() < QUANTA_MAX {
            self.first.push(quantum);
        }
    }

    /// The minimum time of a quantum, ns. `None` without quanta.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        self.blocks.iter().filter_map(|block| block.all.min_ns).min()
    }

    /// The quantile of the times at `per_100k` of 100,000, ns. Exact if all quanta are stored one by one. Otherwise it is
    /// within 1/32, and neither below the shortest nor above the longest time. `None` with too few quanta.
    #[must_use]
    pub fn quantile(&self, per_100k: u32) -> Option<u64> {
        let rank = self.times.histogram.quantile_rank(per_100k)?;
        match self.sorted_times_ns() {
            Some(times_ns) => time_of_rank(&times_ns, rank),
            None => self.times.quantile(per_100k).map(|ns| self.at_least_min(ns)),
        }
    }

    /// The 95 % interval of [`Fixed::quantile`], from the order of the times alone. An end that the
    /// times do not bound is `None`.
    #[must_use]
    pub fn quantile_interval(&self, per_100k: u32) -> (Option<u64>, Option<u64>) {
        let Some(times_ns) = self.sorted_times_ns() else {
            let (low_ns, high_ns) = self.times.quantile_interval(per_100k);
            return (low_ns.map(|ns| self.at_least_min(ns)), high_ns);
        };
        if self.times.histogram.quantile_rank(per_100k).is_none() {
            return (None, None);
        }
        let (low, high) = quantile_ranks_95(self.times.count, per_100k);
        let time_ns = |rank: Option<u64>| time_of_rank(&times_ns, rank?);
        (time_ns(low), time_ns(high))
    }

    /// The times of all quanta in ascending order, ns. `None` if some quanta are not stored one by one.
    fn sorted_times_ns(&self) -> Option<Vec<u64>> {
        if self.first.len() as u64 != self.times.count {
            return None;
        }
        let mut times_ns: Vec<u64> = self.first.iter().map(|quantum| quantum.time_ns).collect();
        times_ns.sort_unstable();
        Some(times_ns)
    }

    /// A time from the histogram, or the minimum time if the histogram's bucket reaches below it.
    fn at_least_min(&self, time_ns: u64) -> u64 {
        time_ns.max(self.min_ns().unwrap_or(0))
    }
}

/// The time of a rank, from 1, among sorted times.
fn time_of_rank(times_ns: &[u64], rank: u64) -> Option<u64> {
    times_ns.get(usize::try_from(rank).ok()?.checked_sub(1)?).copied()
}

impl Slots {
    /// Adds the slot with this number, from 0. Skipped slots since the last added slot had no work. Ignores a slot that
    /// is not after the last one.
    pub fn add(&mut self, slot: u64, work: u64) {
        if slot < self.count {
            return;
        }
        self.empty += slot - self.count + u64::from(work == 0);
        let position = usize::try_from(slot).unwrap_or(usize::MAX);
        // Skipped slots become slots without work.
        if position < SLOTS_MAX {
            self.first.resize(position, 0);
            self.first.push(work);
        }
        self.work_sum = self.work_sum.saturating_add(work);
        self.work_max = self.work_max.max(work);
        self.count = slot.saturating_add(1);
    }

    /// Ends a window in which `passed` whole slots of `slot_length_ns` passed. Slots since the
    /// last added slot had no work.
    pub fn finish(&mut self, passed: u64, slot_length_ns: f64) {
        let passed = passed.max(self.count);
        self.slot_length_ns = slot_length_ns;
        self.empty += passed - self.count;
        self.count = passed;
        let stored = usize::try_from(passed).unwrap_or(usize::MAX).min(SLOTS_MAX);
        self.first.resize(stored, 0);
    }

    /// Start of a slot, ns since the opening of the window.
    #[must_use]
    pub fn start_ns(&self, slot: u64) -> u64 {
        (slot as f64 * self.slot_length_ns).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_quantum_counts_also_beyond_the_expected_number() {
        let mut fixed = Fixed::default();
        let quanta_per_block = Fixed::quanta_per_block(10);
        for time_ns in (0..10).map(|_| 100).chain([90, 80, 95]) {
            fixed.add(Quantum::untraced(0, time_ns), quanta_per_block);
        }
        assert_eq!((fixed.blocks.len(), fixed.min_ns()), (BLOCKS, Some(80)));
        let counts: Vec<u64> = fixed.blocks.iter().map(|block| block.all.count).collect();
        assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 1, 1, 4]);
    }

    fn fixed_of(times_ns: impl IntoIterator<Item = u64>) -> Fixed {
        let mut fixed = Fixed::default();
        for (start_ns, time_ns) in (0..).zip(times_ns) {
            fixed.add(Quantum::untraced(start_ns, time_ns), 100);
        }
        fixed
    }

    #[test]
    fn quantiles_of_quanta_that_are_stored_one_by_one_are_exact() {
        // The buckets of these times are 4,096 ns wide.
        let slow_ns = [100_000, 100_004, 101_217, 104_373];
        let fixed = fixed_of((99_997..100_000).cycle().take(76).chain(slow_ns));
        assert_eq!((fixed.quantile(50_000), fixed.quantile(99_000)), (Some(99_998), None));
        assert_eq!(fixed.quantile(90_000), Some(99_999));
        assert_eq!(fixed.quantile(98_000), Some(101_217));
        assert_eq!(fixed.quantile_interval(50_000), (Some(99_998), Some(99_998)));
        assert_eq!(fixed.quantile_interval(99_000), (None, None));
    }

    #[test]
    fn quantiles_from_the_histogram_are_not_below_the_shortest_quantum() {
        let fixed = fixed_of(std::iter::repeat_n(101_000, QUANTA_MAX + 1));
        assert_eq!(fixed.quantile(50_000), Some(101_000));
        assert_eq!(fixed.quantile_interval(50_000), (Some(101_000), Some(101_000)));
    }

    #[test]
    fn slots_without_work_are_counted() {
        let mut slots = Slots::default();
        for (slot, work) in [(0, 9), (1, 10), (4, 3)] {
            slots.add(slot, work);
        }
        assert_eq!(slots.first, [9, 10, 0, 0, 3]);
        assert_eq!((slots.empty, slots.work_sum, slots.work_max, slots.count), (2, 22, 10, 5));
        slots.finish(7, 100.4);
        assert_eq!((slots.empty, slots.count, slots.start_ns(5)), (4, 7, 502));
        assert_eq!(slots.first, [9, 10, 0, 0, 3, 0, 0], "the last slots had no work either");
    }
}
