//! Resources that misses wait for: miss status holding registers (MSHRs), page walkers, and the memory bus.

use super::translation::ThreadPage;
use crate::address::LineAddress;
use crate::cycle::Cycle;

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
    ready: Cycle,
}

const NO_FILL: LineFill = LineFill { line: NO_LINE, ready: Cycle::START };

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
    latest: Cycle,
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
            latest: Cycle::START,
        }
    }

    /// Whether a line that hits is there at `now`.
    #[inline(always)]
    pub(super) fn is_filled(&self, line: LineAddress, now: Cycle) -> bool {
        now >= self.latest
            || match self.lines.get(place_of(line)) {
                Some(fill) => fill.ready <= now || fill.line != line,
                None => false,
            }
    }

    /// When a line that hits is ready: at once, or when it is filled.
    #[inline(always)]
    pub(super) fn ready_at(&self, line: LineAddress, now: Cycle) -> Cycle {
        if now >= self.latest {
            return now;
        }
        if self.is_unlimited() {
            let fill = self.lines[place_of(line)];
            return if fill.line == line { now.max(fill.ready) } else { now };
        }
        self.search(line, now)
    }

    #[inline(never)]
    fn search(&self, line: LineAddress, now: Cycle) -> Cycle {
        let all = self.misses.iter().chain(&self.prefetches).chain(&self.walks);
        let fills = all.filter(|fill| fill.line == line).map(|fill| fill.ready);
        fills.fold(now, Cycle::max)
    }

    /// When an MSHR is free for a new miss.
    pub(super) fn free_at(&self, now: Cycle) -> Cycle {
        if self.is_unlimited() { now } else { self.misses[self.first_free()].ready.max(now) }
    }

    /// Allocates an MSHR, which is free, for a line that is filled at `ready`.
    pub(super) fn allocate(&mut self, line: LineAddress, ready: Cycle) {
        if self.is_unlimited() {
            self.lines[place_of(line)] = LineFill { line, ready };
        } else {
            let mshr = self.first_free();
            self.misses[mshr] = LineFill { line, ready };
        }
        self.latest = self.latest.max(ready);
    }

    fn is_unlimited(&self) -> bool {
        self.misses.is_empty()
    }

    fn first_free(&self) -> usize {
        let mshrs = self.misses.iter().enumerate();
        mshrs.min_by_key(|(_, fill)| fill.ready).map_or(0, |(mshr, _)| mshr)
    }

    /// A line comes for a page walk, which takes no MSHR.
    pub(super) fn note_walk(&mut self, line: LineAddress, ready: Cycle) {
        if self.is_unlimited() {
            self.lines[place_of(line)] = LineFill { line, ready };
        } else {
            let index = self.next_walk;
            self.walks[index] = LineFill { line, ready };
            self.next_walk = (index + 1) % WALK_LINES;
        }
        self.latest = self.latest.max(ready);
    }

    /// A line is prefetched, which takes no MSHR. The access that predicted it started at `now`.
    pub(super) fn allocate_prefetch(&mut self, line: LineAddress, now: Cycle, ready: Cycle) {
        if self.is_unlimited() {
            self.lines[place_of(line)] = LineFill { line, ready };
        } else {
            self.prefetches.retain(|fill| fill.ready > now);
            self.prefetches.push(LineFill { line, ready });
        }
        self.latest = self.latest.max(ready);
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
    ready: Cycle,
}

/// When lines or translations arrive. It remembers the last arrival for each value of the low bits; an entry
/// that was replaced counts as arrived. A line under way that is requested again is waited for, and not requested a
/// second time.
#[derive(Clone, Debug)]
pub(super) struct Arrivals<T> {
    arrivals: Box<[Arrival<T>]>,
    latest: Cycle,
}

impl<T: Arriving> Arrivals<T> {
    pub(super) fn new() -> Self {
        let none = Arrival { arriving: T::NONE, ready: Cycle::START };
        Arrivals { arrivals: vec![none; ARRIVALS].into(), latest: Cycle::START }
    }

    /// From when on nothing is under way.
    #[inline(always)]
    pub(super) fn all_arrived_at(&self) -> Cycle {
        self.latest
    }

    /// Ready time of a line or translation that is there, or in flight, at `now`.
    #[inline]
    pub(super) fn ready_at(&self, arriving: T, now: Cycle) -> Cycle {
        if now >= self.latest {
            return now;
        }
        let last = self.arrivals[arriving.number() as usize % ARRIVALS];
        if last.arriving == arriving { now.max(last.ready) } else { now }
    }

    /// A line or translation arrives at `ready`.
    pub(super) fn note(&mut self, arriving: T, ready: Cycle) {
        self.arrivals[arriving.number() as usize % ARRIVALS] = Arrival { arriving, ready };
        self.latest = self.latest.max(ready);
    }
}

/// Page walks that are remembered for each walker: earlier ones are over.
const WALKS_EACH: usize = 4;

/// A page walk under way.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    start: Cycle,
    end: Cycle,
}

/// The page walkers of a core: each serves one walk at a time.
#[derive(Clone, Debug)]
pub(super) struct Walkers {
    /// The last walks; empty without a limit.
    walks: Vec<Walk>,
    next: usize,
    /// When the last of them ends.
    latest: Cycle,
}

impl Walkers {
    /// Returns `walkers` page walkers. 0: no limit.
    pub(super) fn new(walkers: u32) -> Self {
        Walkers {
            walks: vec![Walk::default(); walkers as usize * WALKS_EACH],
            next: 0,
            latest: Cycle::START,
        }
    }

    /// When a walk can start that is asked for at `now`. Walks are asked for in any order of
    /// time.
    pub(super) fn free_at(&self, now: Cycle) -> Cycle {
        let walkers = self.walks.len() / WALKS_EACH;
        let mut start = now;
        if walkers == 0 || now >= self.latest {
            return start;
        }
        loop {
            let under_way =
                self.walks.iter().filter(|walk| walk.start <= start && start < walk.end);
            if under_way.clone().count() < walkers {
                return start;
            }
            start = under_way.map(|walk| walk.end).min().unwrap_or(start);
        }
    }

    /// A walk goes on from `start` to `end`.
    pub(super) fn walk(&mut self, start: Cycle, end: Cycle) {
        if let Some(walk) = self.walks.get_mut(self.next) {
            *walk = Walk { start, end };
            self.latest = self.latest.max(end);
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

    /// Reserves a slot for a line that arrives at `now`. Returns when the transfer starts.
    pub(super) fn reserve(&mut self, now: Cycle) -> Cycle {
        if self.line_cycles == 0 {
            return now;
        }
        let first = match self.line_shift {
            Some(shift) => now.0 >> shift,
            None => now.0 / self.line_cycles,
        };
        let slots = self.reserved.len();
        for slot in first..first + slots as u64 {
            let reserved = &mut self.reserved[slot as usize & (slots - 1)];
            if *reserved != slot + 1 {
                *reserved = slot + 1;
                return now.max(Cycle(slot * self.line_cycles));
            }
        }
        // Later slots are not remembered.
        now + slots as u64 * self.line_cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_slots_do_not_depend_on_the_order_of_simulation() {
        let mut bus = MemoryBus::new(10, BUS_SLOTS);
        assert_eq!([0, 0, 0].map(|now| bus.reserve(Cycle(now))), [0, 10, 20].map(Cycle));
        assert_eq!(bus.reserve(Cycle(100)), Cycle(100));
        // A processor that is simulated later may be earlier in time.
        assert_eq!(bus.reserve(Cycle(40)), Cycle(40));
        assert_eq!(bus.reserve(Cycle(103)), Cycle(110));
        assert_eq!(MemoryBus::new(0, BUS_SLOTS).reserve(Cycle(7)), Cycle(7));
    }

    #[test]
    fn mshrs_limit_misses() {
        let mut mshrs = MshrFile::new(2);
        for (line, start) in [(1, 0), (2, 0), (3, 100), (4, 100), (5, 200)] {
            let start = Cycle(start);
            assert_eq!(mshrs.free_at(Cycle::START), start, "{line}");
            mshrs.allocate(LineAddress(line), start + 100);
        }
        let ready = [5, 9].map(|line| mshrs.ready_at(LineAddress(line), Cycle(250)));
        assert_eq!(ready, [300, 250].map(Cycle));
    }

    #[test]
    fn without_a_limit_only_lines_are_waited_for() {
        let mut mshrs = MshrFile::new(UNLIMITED);
        for line in 0..500 {
            assert_eq!(mshrs.free_at(Cycle(line)), Cycle(line));
            mshrs.allocate(LineAddress(line), Cycle(line + 1_000));
        }
        mshrs.allocate_prefetch(LineAddress(700), Cycle::START, Cycle(3_000));
        let ready = |line, now| mshrs.ready_at(LineAddress(line), Cycle(now)).0;
        assert_eq!([3, 499].map(|line| ready(line, 10)), [1_003, 1_499]);
        assert_eq!([700, 600].map(|line| ready(line, 10)), [3_000, 10]);
        assert_eq!(ready(3, 2_000), 2_000);
    }
}
