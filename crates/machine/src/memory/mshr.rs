//! Resources that misses wait for: miss status holding registers (MSHRs), page walkers, and the memory bus.

use super::translation::ThreadPage;
use crate::address::LineAddress;

/// No line has this number.
const NO_LINE: LineAddress = LineAddress(u64::MAX);

/// The number of MSHRs of a cache that waits for any number of lines.
pub(super) const UNLIMITED: u32 = u32::MAX;
/// Lines under way that such a cache distinguishes, by the low bits of their numbers.
const LINES: usize = 1 << 10;

/// Lines of page walks that are remembered.
const WALK_LINES: usize = 16;

/// A line that is filled.
#[derive(Clone, Copy, Debug)]
struct LineFill {
    line: LineAddress,
    ready_cycles: u64,
}

const NO_FILL: LineFill = LineFill { line: NO_LINE, ready_cycles: 0 };

/// The outstanding fills of a cache: at most one for each MSHR.
#[derive(Clone, Debug)]
pub(super) struct MshrFile {
    /// The last line of each MSHR.
    misses: Vec<LineFill>,
    /// Without a limit: lines by their low bits, in place of MSHRs and of a search.
    lines: Box<[LineFill]>,
    prefetches: Vec<LineFill>,
    /// The last lines that came for page walks.
    walks: [LineFill; WALK_LINES],
    next_walk: usize,
    /// When the last of all lines is filled.
    latest_cycles: u64,
}

impl MshrFile {
    pub(super) fn new(mshrs: u32) -> Self {
        MshrFile {
            misses: match mshrs {
                UNLIMITED => Vec::new(),
                mshrs => vec![NO_FILL; mshrs.max(1) as usize],
            },
            lines: vec![NO_FILL; if mshrs == UNLIMITED { LINES } else { 0 }].into(),
            prefetches: Vec::new(),
            walks: [NO_FILL; WALK_LINES],
            next_walk: 0,
            latest_cycles: 0,
        }
    }

    /// Whether a line that hits is there at `now_cycles`.
    #[inline(always)]
    pub(super) fn is_filled(&self, line: LineAddress, now_cycles: u64) -> bool {
        now_cycles >= self.latest_cycles
            || match self.lines.get(place_of(line)) {
                Some(fill) => fill.ready_cycles <= now_cycles || fill.line != line,
                None => false,
            }
    }

    /// When a line that hits is ready: at once, or when it is filled.
    #[inline(always)]
    pub(super) fn ready_cycles(&self, line: LineAddress, now_cycles: u64) -> u64 {
        if now_cycles >= self.latest_cycles {
            return now_cycles;
        }
        if self.is_unlimited() {
            let fill = self.lines[place_of(line)];
            return if fill.line == line { now_cycles.max(fill.ready_cycles) } else { now_cycles };
        }
        self.search(line, now_cycles)
    }

    #[inline(never)]
    fn search(&self, line: LineAddress, now_cycles: u64) -> u64 {
        let all = self.misses.iter().chain(&self.prefetches).chain(&self.walks);
        let fills = all.filter(|fill| fill.line == line).map(|fill| fill.ready_cycles);
        fills.fold(now_cycles, u64::max)
    }

    /// When an MSHR is free for a new miss.
    pub(super) fn free_cycles(&self, now_cycles: u64) -> u64 {
        if self.is_unlimited() {
            now_cycles
        } else {
            self.misses[self.first_free()].ready_cycles.max(now_cycles)
        }
    }

    /// Allocates an MSHR, which is free, for a line that is filled at `ready_cycles`.
    pub(super) fn allocate(&mut self, line: LineAddress, ready_cycles: u64) {
        if self.is_unlimited() {
            self.lines[place_of(line)] = LineFill { line, ready_cycles };
        } else {
            let mshr = self.first_free();
            self.misses[mshr] = LineFill { line, ready_cycles };
        }
        self.latest_cycles = self.latest_cycles.max(ready_cycles);
    }

    fn is_unlimited(&self) -> bool {
        self.misses.is_empty()
    }

    fn first_free(&self) -> usize {
        let mshrs = self.misses.iter().enumerate();
        mshrs.min_by_key(|(_, fill)| fill.ready_cycles).map_or(0, |(mshr, _)| mshr)
    }

    /// A line comes for a page walk, which takes no MSHR.
    pub(super) fn note_walk(&mut self, line: LineAddress, ready_cycles: u64) {
        if self.is_unlimited() {
            self.lines[place_of(line)] = LineFill { line, ready_cycles };
        } else {
            let index = self.next_walk;
            self.walks[index] = LineFill { line, ready_cycles };
            self.next_walk = (index + 1) % WALK_LINES;
        }
        self.latest_cycles = self.latest_cycles.max(ready_cycles);
    }

    /// A line is prefetched, which takes no MSHR. The access that predicted it started at `now_cycles`.
    pub(super) fn allocate_prefetch(
        &mut self,
        line: LineAddress,
        now_cycles: u64,
        ready_cycles: u64,
    ) {
        if self.is_unlimited() {
            self.lines[place_of(line)] = LineFill { line, ready_cycles };
        } else {
            self.prefetches.retain(|fill| fill.ready_cycles > now_cycles);
            self.prefetches.push(LineFill { line, ready_cycles });
        }
        self.latest_cycles = self.latest_cycles.max(ready_cycles);
    }
}

/// Where a cache without a limit keeps a line.
#[inline(always)]
fn place_of(line: LineAddress) -> usize {
    line.0 as usize % LINES
}

/// Arrivals that are distinguished, by the low bits of their numbers.
const ARRIVALS: usize = 1 << 8;

/// A line, or a page whose translation arrives.
pub(super) trait Arriving: Copy + PartialEq {
    /// A number that nothing has.
    const NONE: Self;

    fn number(self) -> u64;
}

impl Arriving for LineAddress {
    const NONE: Self = NO_LINE;

    #[inline(always)]
    fn number(self) -> u64 {
        self.0
    }
}

impl Arriving for ThreadPage {
    const NONE: Self = ThreadPage::NONE;

    #[inline(always)]
    fn number(self) -> u64 {
        self.low_bits()
    }
}

#[derive(Clone, Copy, Debug)]
struct Arrival<T> {
    arriving: T,
    ready_cycles: u64,
}

/// When lines or translations arrive. It remembers the last arrival for each value of the low bits; an entry
/// that was replaced counts as arrived. A line under way that is requested again is waited for, and not requested a
/// second time.
#[derive(Clone, Debug)]
pub(super) struct Arrivals<T> {
    arrivals: Box<[Arrival<T>]>,
    latest_cycles: u64,
}

impl<T: Arriving> Arrivals<T> {
    pub(super) fn new() -> Self {
        let none = Arrival { arriving: T::NONE, ready_cycles: 0 };
        Arrivals { arrivals: vec![none; ARRIVALS].into(), latest_cycles: 0 }
    }

    /// From when on nothing is under way.
    #[inline(always)]
    pub(super) fn all_arrived_cycles(&self) -> u64 {
        self.latest_cycles
    }

    /// Ready time of a line or translation that is there, or in flight, at `now_cycles`.
    #[inline]
    pub(super) fn ready_cycles(&self, arriving: T, now_cycles: u64) -> u64 {
        if now_cycles >= self.latest_cycles {
            return now_cycles;
        }
        let last = self.arrivals[arriving.number() as usize % ARRIVALS];
        if last.arriving == arriving { now_cycles.max(last.ready_cycles) } else { now_cycles }
    }

    /// A line or translation arrives at `ready_cycles`.
    pub(super) fn note(&mut self, arriving: T, ready_cycles: u64) {
        self.arrivals[arriving.number() as usize % ARRIVALS] = Arrival { arriving, ready_cycles };
        self.latest_cycles = self.latest_cycles.max(ready_cycles);
    }
}

/// Page walks that are remembered for each walker: earlier ones are over.
const WALKS_EACH: usize = 4;

/// The page walkers of a core: each serves one walk at a time.
#[derive(Clone, Debug)]
pub(super) struct Walkers {
    /// When the last walks started and ended; empty without a limit.
    walks: Vec<(u64, u64)>,
    next: usize,
    /// When the last of them ends.
    latest_cycles: u64,
}

impl Walkers {
    /// Returns `walkers` page walkers. 0: no limit.
    pub(super) fn new(walkers: u32) -> Self {
        Walkers { walks: vec![(0, 0); walkers as usize * WALKS_EACH], next: 0, latest_cycles: 0 }
    }

    /// When a walk can start that is asked for at `now_cycles`. Walks are asked for in any order of
    /// time.
    pub(super) fn free_cycles(&self, now_cycles: u64) -> u64 {
        let walkers = self.walks.len() / WALKS_EACH;
        let mut start = now_cycles;
        if walkers == 0 || now_cycles >= self.latest_cycles {
            return start;
        }
        loop {
            let under_way = self.walks.iter().filter(|(from, to)| *from <= start && start < *to);
            if under_way.clone().count() < walkers {
                return start;
            }
            start = under_way.map(|(_, to)| *to).min().unwrap_or(start);
        }
    }

    /// A walk goes on from `start` to `end`.
    pub(super) fn walk(&mut self, start: u64, end: u64) {
        if let Some(walk) = self.walks.get_mut(self.next) {
            *walk = (start, end);
            self.latest_cycles = self.latest_cycles.max(end);
            self.next = (self.next + 1) % self.walks.len();
        }
    }
}

/// Slots that the memory bus remembers.
pub(super) const BUS_SLOTS: usize = 4096;
/// Slots that the way from a cache remembers: its queue is shorter.
pub(super) const WAY_SLOTS: usize = 512;

/// The memory bus: it transfers one line at a time, each for a fixed number of cycles. Time is
/// divided into slots of that length, and a line reserves the first free slot from its arrival on.
/// The result does not depend on the order that simulates processors, each with its own time.
#[derive(Clone, Debug)]
pub(super) struct MemoryBus {
    line_cycles: u64,
    /// The logarithm of `line_cycles`, if it is a power of two: a shift is faster than a division.
    line_shift: Option<u32>,
    /// For each slot modulo their number, a power of two, the last one that was reserved, plus one.
    reserved: Box<[u64]>,
}

impl MemoryBus {
    /// Returns a bus that a line occupies for `line_cycles`, 0 for no limit, and that remembers so
    /// many slots, a power of two.
    pub(super) fn new(line_cycles: u64, slots: usize) -> Self {
        let slots = if line_cycles == 0 { 0 } else { slots };
        let line_shift = line_cycles.is_power_of_two().then(|| line_cycles.ilog2());
        MemoryBus { line_cycles, line_shift, reserved: vec![0; slots].into() }
    }

    /// Reserves a slot for a line that arrives at `now_cycles`. Returns when the transfer starts.
    pub(super) fn reserve(&mut self, now_cycles: u64) -> u64 {
        if self.line_cycles == 0 {
            return now_cycles;
        }
        let first = match self.line_shift {
            Some(shift) => now_cycles >> shift,
            None => now_cycles / self.line_cycles,
        };
        let slots = self.reserved.len();
        for slot in first..first + slots as u64 {
            let reserved = &mut self.reserved[slot as usize & (slots - 1)];
            if *reserved != slot + 1 {
                *reserved = slot + 1;
                return now_cycles.max(slot * self.line_cycles);
            }
        }
        // Later slots are not remembered.
        now_cycles + slots as u64 * self.line_cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_slots_do_not_depend_on_the_order_of_simulation() {
        let mut bus = MemoryBus::new(10, BUS_SLOTS);
        assert_eq!([0, 0, 0].map(|now| bus.reserve(now)), [0, 10, 20]);
        assert_eq!(bus.reserve(100), 100);
        // A processor that is simulated later may be earlier in time.
        assert_eq!(bus.reserve(40), 40);
        assert_eq!(bus.reserve(103), 110);
        assert_eq!(MemoryBus::new(0, BUS_SLOTS).reserve(7), 7);
    }

    #[test]
    fn mshrs_limit_misses() {
        let mut mshrs = MshrFile::new(2);
        for (line, start) in [(1, 0), (2, 0), (3, 100), (4, 100), (5, 200)] {
            assert_eq!(mshrs.free_cycles(0), start, "{line}");
            mshrs.allocate(LineAddress(line), start + 100);
        }
        let ready = [5, 9].map(|line| mshrs.ready_cycles(LineAddress(line), 250));
        assert_eq!(ready, [300, 250]);
    }

    #[test]
    fn without_a_limit_only_lines_are_waited_for() {
        let mut mshrs = MshrFile::new(UNLIMITED);
        for line in 0..500 {
            assert_eq!(mshrs.free_cycles(line), line);
            mshrs.allocate(LineAddress(line), line + 1_000);
        }
        mshrs.allocate_prefetch(LineAddress(700), 0, 3_000);
        let ready = |line, now| mshrs.ready_cycles(LineAddress(line), now);
        assert_eq!([3, 499].map(|line| ready(line, 10)), [1_003, 1_499]);
        assert_eq!([700, 600].map(|line| ready(line, 10)), [3_000, 10]);
        assert_eq!(ready(3, 2_000), 2_000);
    }
}
