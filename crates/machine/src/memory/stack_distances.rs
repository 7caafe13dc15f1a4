//! Stack distances: the misses of LRU caches of all sizes in one pass (Mattson et al., "Evaluation
//! techniques for storage hierarchies", IBM Systems Journal 9(2), 1970). The plugin's miss curves use them, at the
//! level of detail `count`.
//!
//! The stack distance of an access is the number of other lines that were used since the last use of
//! its line. An LRU cache of `n` lines holds the line if the distance is less than `n`. So distances
//! over all lines give the misses of fully associative LRU caches of all sizes. Distances within sets
//! give the misses for all numbers of ways. Both are exact if all misses fill the line and only
//! replacement removes lines.

use rustc_hash::FxHashMap;

use crate::address::{LineAddress, PhysicalAddress};

/// The number of distances that are counted separately. Distances from this value on are counted together.
const DISTANCES_MAX: usize = 1 << 24;
/// Initial number of times in the Fenwick tree. A full tree is renumbered, and grows if most of its times are in use.
const TIMES_MIN: usize = 1 << 16;

/// Stack distances over all lines, for fully associative LRU caches of any size. Needs about 40 bytes of memory
/// for each line that was ever used, and 8 bytes for each distance up to the largest.
#[derive(Clone, Debug)]
pub struct StackDistances {
    line_shift: u32,
    /// The time of each line's last use: an index into `marks`.
    last_uses: FxHashMap<LineAddress, usize>,
    /// A Fenwick tree with a mark at the time of each last use. Times start at 1.
    marks: Vec<u32>,
    /// The time of the last access.
    now: usize,
    /// Accesses by stack distance.
    accesses_by_distance: Vec<u64>,
    /// Accesses with a distance from [`DISTANCES_MAX`] on.
    far_accesses: u64,
    /// First accesses to a line.
    first_accesses: u64,
}

impl StackDistances {
    /// Creates stack distances without any access. `line_bytes`: the size of a line, a power of two.
    #[must_use]
    pub fn new(line_bytes: u64) -> Self {
        StackDistances {
            line_shift: line_bytes.ilog2(),
            last_uses: FxHashMap::default(),
            marks: vec![0; TIMES_MIN],
            now: 0,
            accesses_by_distance: Vec::new(),
            far_accesses: 0,
            first_accesses: 0,
        }
    }

    /// Counts an access to the line of an address. Returns its stack distance, or `None` at the first use of the line.
    pub fn access(&mut self, physical: PhysicalAddress) -> Option<u64> {
        let line = physical.line(self.line_shift);
        let mut distance = None;
        if self.now + 1 == self.marks.len() {
            self.renumber();
        }
        self.now += 1;
        match self.last_uses.insert(line, self.now) {
            None => self.first_accesses += 1,
            Some(last_use) => {
                // Each mark after the line's last use is another line that was used since.
                let stack_distance = self.last_uses.len() - self.marks_to(last_use) as usize;
                distance = Some(stack_distance as u64);
                self.mark(last_use, -1);
                match stack_distance {
                    DISTANCES_MAX.. => self.far_accesses += 1,
                    _ => {
                        if self.accesses_by_distance.len() <= stack_distance {
                            self.accesses_by_distance.resize(stack_distance + 1, 0);
                        }
                        self.accesses_by_distance[stack_distance] += 1;
                    }
                }
            }
        }
        self.mark(self.now, 1);
        distance
    }

    /// The misses of a fully associative LRU cache of `lines` lines. `None` if `lines` exceeds 2^24,
    /// because longer distances are counted together.
    #[must_use]
    pub fn misses(&self, lines: usize) -> Option<u64> {
        let farther: u64 = self.accesses_by_distance.iter().skip(lines).sum();
        (lines <= DISTANCES_MAX).then_some(self.first_accesses + self.far_accesses + farther)
    }

    /// Accesses to lines that were never used before.
    #[must_use]
    pub fn first_accesses(&self) -> u64 {
        self.first_accesses
    }

    /// Renumbers the times of last uses from 1, in their order, and leaves room for further times.
    fn renumber(&mut self) {
        let mut uses: Vec<_> = self.last_uses.iter().map(|(line, when)| (*when, *line)).collect();
        uses.sort_unstable();
        self.marks = vec![0; (2 * uses.len() + 2).next_power_of_two().max(TIMES_MIN)];
        for (time, (_, line)) in (1..).zip(&uses) {
            self.last_uses.insert(*line, time);
            self.mark(time, 1);
        }
        self.now = uses.len();
    }

    /// Adds `change` to the marks at a time, from 1.
    fn mark(&mut self, time: usize, change: i32) {
        let mut node = time;
        while node < self.marks.len() {
            self.marks[node] = self.marks[node].wrapping_add_signed(change);
            node += node & node.wrapping_neg();
        }
    }

    /// The number of marks up to and including a time.
    fn marks_to(&self, time: usize) -> u32 {
        let mut node = time;
        let mut sum = 0;
        while node > 0 {
            sum += self.marks[node];
            node -= node & node.wrapping_neg();
        }
        sum
    }
}

/// Stack distances within sets, for LRU caches with a fixed number of sets and up to a maximum
/// number of ways.
#[derive(Clone, Debug)]
pub struct SetStackDistances {
    line_shift: u32,
    set_mask: u64,
    ways: usize,
    /// For each set, the last lines, the most recently used first: the line's number plus one, or 0 for no line.
    stacks: Vec<u64>,
    /// Accesses by stack distance within their set.
    accesses_by_distance: Vec<u64>,
    accesses: u64,
}

impl SetStackDistances {
    /// Creates stack distances within sets, without any access. `line_bytes` and `sets` are powers of two. `ways`: the
    /// largest number of ways to answer for, at least 1.
    #[must_use]
    pub fn new(line_bytes: u64, sets: u64, ways: usize) -> Self {
        SetStackDistances {
            line_shift: line_bytes.ilog2(),
            set_mask: sets - 1,
            ways,
            stacks: vec![0; sets as usize * ways],
            accesses_by_distance: vec![0; ways],
            accesses: 0,
        }
    }

    /// Counts an access to the line of an address.
    pub fn access(&mut self, physical: PhysicalAddress) {
        self.accesses += 1;
        let LineAddress(line) = physical.line(self.line_shift);
        let first = (line & self.set_mask) as usize * self.ways;
        let stack = &mut self.stacks[first..first + self.ways];
        let depth = stack.iter().position(|held| *held == line + 1);
        if let Some(depth) = depth {
            self.accesses_by_distance[depth] += 1;
        }
        stack[..=depth.unwrap_or(self.ways - 1)].rotate_right(1);
        stack[0] = line + 1;
    }

    /// The misses of a cache with `ways` ways. `None` if `ways` exceeds the maximum.
    #[must_use]
    pub fn misses(&self, ways: usize) -> Option<u64> {
        let hits: u64 = self.accesses_by_distance.iter().take(ways).sum();
        (ways <= self.ways).then_some(self.accesses - hits)
    }
}
