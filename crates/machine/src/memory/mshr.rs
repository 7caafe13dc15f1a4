//! Resources that misses wait for: miss status holding registers (MSHRs), page walkers, and the memory bus.
//! Only `times` uses them. Accesses come in program order, but their start cycles may go back in time: out of order,
//! and because processors are simulated one after the other. So each resource remembers intervals or ready times.

use super::translation::ThreadPage;
use crate::address::LineAddress;
use crate::cycle::Cycle;

/// No line has this number.
const NO_LINE: LineAddress = LineAddress(u64::MAX);

/// This number of MSHRs means: no limit.
pub(super) const UNLIMITED: u32 = u32::MAX;
/// Entries for outstanding lines of a cache without a limit, by the low bits of the line number. A line that replaces
/// another under way makes that line count as filled.
const LINES: usize = 1 << 10;

/// Number of lines of page walks that are remembered.
const WALK_LINES: usize = 16;

/// A line, and when it is filled.
#[derive(Clone, Copy, Debug)]
struct LineFill {
    line: LineAddress,
    ready: Cycle,
}

const NO_FILL: LineFill = LineFill { line: NO_LINE, ready: Cycle::START };

/// The outstanding fills of an L1D: misses, at most one for each MSHR, and prefetches and page walks, which take no
/// MSHR.
#[derive(Clone, Debug)]
pub(super) struct MshrFile {
    /// The last line of each MSHR. Empty without a limit.
    misses: Vec<LineFill>,
    /// Without a limit, all lines by their low bits; this replaces the lists and their search. Else empty.
    lines: Box<[LineFill]>,
    prefetches: Vec<LineFill>,
    /// The last lines that were filled for page walks, as a ring.
    walks: [LineFill; WALK_LINES],
    /// Index in `walks` of the entry that the next page walk replaces.
    next_walk: usize,
    /// When all lines are filled.
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

    /// Whether a line that hits has certainly arrived at `now`. `false` may also mean that this needs a search.
    #[inline(always)]
    pub(super) fn is_filled(&self, line: LineAddress, now: Cycle) -> bool {
        now >= self.latest
            || match self.lines.get(line_index(line)) {
                Some(fill) => fill.ready <= now || fill.line != line,
                None => false,
            }
    }

    /// When a line that hits is ready: at `now`, or when its fill is complete.
    #[inline(always)]
    pub(super) fn ready_at(&self, line: LineAddress, now: Cycle) -> Cycle {
        if now >= self.latest {
            return now;
        }
        if self.is_unlimited() {
            let fill = self.lines[line_index(line)];
            return if fill.line == line { now.max(fill.ready) } else { now };
        }
        self.search(line, now)
    }

    /// [`MshrFile::ready_at`] with a limit on MSHRs.
    #[inline(never)]
    fn search(&self, line: LineAddress, now: Cycle) -> Cycle {
        let all = self.misses.iter().chain(&self.prefetches).chain(&self.walks);
        let fills = all.filter(|fill| fill.line == line).map(|fill| fill.ready);
        fills.fold(now, Cycle::max)
    }

    /// When an MSHR is free for a new miss: `now` or later.
    pub(super) fn free_at(&self, now: Cycle) -> Cycle {
        if self.is_unlimited() { now } else { self.misses[self.first_free()].ready.max(now) }
    }

    /// Allocates an MSHR for a line that is filled at `ready`. The fill starts at [`MshrFile::free_at`] or later.
    pub(super) fn allocate(&mut self, line: LineAddress, ready: Cycle) {
        if self.is_unlimited() {
            self.lines[line_index(line)] = LineFill { line, ready };
        } else {
            let mshr = self.first_free();
            self.misses[mshr] = LineFill { line, ready };
        }
        self.latest = self.latest.max(ready);
    }

    fn is_unlimited(&self) -> bool {
        self.misses.is_empty()
    }

    /// The MSHR that is free first.
    fn first_free(&self) -> usize {
        let mshrs = self.misses.iter().enumerate();
        mshrs.min_by_key(|(_, fill)| fill.ready).map_or(0, |(mshr, _)| mshr)
    }

    /// Notes a line that a page walk fills; a walk takes no MSHR.
    pub(super) fn note_walk(&mut self, line: LineAddress, ready: Cycle) {
        if self.is_unlimited() {
            self.lines[line_index(line)] = LineFill { line, ready };
        } else {
            let index = self.next_walk;
            self.walks[index] = LineFill { line, ready };
            self.next_walk = (index + 1) % WALK_LINES;
        }
        self.latest = self.latest.max(ready);
    }

    /// Notes a prefetched line; a prefetch takes no MSHR. The access that caused the prefetch started at `now`: forgets
    /// prefetches that arrived by then.
    pub(super) fn allocate_prefetch(&mut self, line: LineAddress, now: Cycle, ready: Cycle) {
        if self.is_unlimited() {
            self.lines[line_index(line)] = LineFill { line, ready };
        } else {
            self.prefetches.retain(|fill| fill.ready > now);
            self.prefetches.push(LineFill { line, ready });
        }
        self.latest = self.latest.max(ready);
    }
}

/// The index of a line in [`MshrFile::lines`].
#[inline(always)]
fn line_index(line: LineAddress) -> usize {
    line.0 as usize % LINES
}

/// Number of arrivals that are remembered, by the low bits of their numbers.
const ARRIVALS: usize = 1 << 8;

/// Something that arrives at a cycle: a line, or the translation of a page.
pub(super) trait Arriving: Copy + PartialEq {
    /// Equals no line and no page.
    const NONE: Self;

    /// The low bits choose an entry of [`Arrivals`].
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

/// When lines or translations arrive. For each value of the low bits, remembers the last arrival; a replaced entry
/// counts as arrived. So a line that is requested again while it is under way is not requested a second time.
#[derive(Clone, Debug)]
pub(super) struct Arrivals<T> {
    arrivals: Box<[Arrival<T>]>,
    /// When everything has arrived.
    latest: Cycle,
}

impl<T: Arriving> Arrivals<T> {
    pub(super) fn new() -> Self {
        let none = Arrival { arriving: T::NONE, ready: Cycle::START };
        Arrivals { arrivals: vec![none; ARRIVALS].into(), latest: Cycle::START }
    }

    /// When a line or translation is ready that has arrived, or is under way, at `now`.
    #[inline]
    pub(super) fn ready_at(&self, arriving: T, now: Cycle) -> Cycle {
        if now >= self.latest {
            return now;
        }
        let last = self.arrivals[arriving.number() as usize % ARRIVALS];
        if last.arriving == arriving { now.max(last.ready) } else { now }
    }

    /// Notes that a line or translation arrives at `ready`.
    pub(super) fn note(&mut self, arriving: T, ready: Cycle) {
        self.arrivals[arriving.number() as usize % ARRIVALS] = Arrival { arriving, ready };
        self.latest = self.latest.max(ready);
    }
}

/// The smallest page of a TLB, as a power of two: [`ThreadPage`] is a page of this size.
const SMALLEST_PAGE_SHIFT: u32 = 12;

/// When the translations that are under way arrive in a TLB. A translation serves its whole entry, which may be larger
/// than the page that was accessed.
#[derive(Clone, Debug)]
pub(super) struct Translations {
    small: Arrivals<ThreadPage>,
    /// Translations in entries that are larger than 4 KiB, for each size: the logarithm of the size, and the arrivals.
    large: Vec<(u32, Arrivals<ThreadPage>)>,
    /// When everything has arrived.
    latest: Cycle,
}

impl Translations {
    pub(super) fn new() -> Self {
        Translations { small: Arrivals::new(), large: Vec::new(), latest: Cycle::START }
    }

    /// From this cycle on, nothing is under way.
    #[inline(always)]
    pub(super) fn all_arrived_at(&self) -> Cycle {
        self.latest
    }

    /// When a translation is ready that the TLB holds, or that is under way, at `now`.
    #[inline]
    pub(super) fn ready_at(&self, page: ThreadPage, now: Cycle) -> Cycle {
        if now >= self.latest {
            return now;
        }
        let small = self.small.ready_at(page, now);
        self.large.iter().fold(small, |ready, (shift, arrivals)| {
            ready.max(arrivals.ready_at(page.in_larger_page(*shift), now))
        })
    }

    /// Notes that the translation of a page arrives at `ready`, in an entry for a page of `1 << held_shift` bytes.
    pub(super) fn note(&mut self, page: ThreadPage, held_shift: u8, ready: Cycle) {
        self.latest = self.latest.max(ready);
        let held_shift = u32::from(held_shift);
        if held_shift <= SMALLEST_PAGE_SHIFT {
            return self.small.note(page, ready);
        }
        let known = self.large.iter().position(|(shift, _)| *shift == held_shift);
        let index = known.unwrap_or(self.large.len());
        if known.is_none() {
            self.large.push((held_shift, Arrivals::new()));
        }
        self.large[index].1.note(page.in_larger_page(held_shift), ready);
    }
}

/// Page walks that are remembered per walker. Earlier walks count as over.
const WALKS_PER_WALKER: usize = 4;

/// A page walk under way.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    start: Cycle,
    end: Cycle,
}

/// The page walkers of a core: each serves one walk at a time.
#[derive(Clone, Debug)]
pub(super) struct Walkers {
    /// The last walks, as a ring. Empty without a limit.
    walks: Vec<Walk>,
    /// The entry that the next walk replaces.
    next: usize,
    /// When all walks are over.
    latest: Cycle,
}

impl Walkers {
    /// Returns `walkers` page walkers. 0: no limit.
    pub(super) fn new(walkers: u32) -> Self {
        Walkers {
            walks: vec![Walk::default(); walkers as usize * WALKS_PER_WALKER],
            next: 0,
            latest: Cycle::START,
        }
    }

    /// When a walk that is requested at `now` can start. `now` may be earlier than in the last call.
    pub(super) fn free_at(&self, now: Cycle) -> Cycle {
        let walkers = self.walks.len() / WALKS_PER_WALKER;
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

    /// Notes a walk that lasts from `start` to `end`.
    pub(super) fn walk(&mut self, start: Cycle, end: Cycle) {
        if let Some(walk) = self.walks.get_mut(self.next) {
            *walk = Walk { start, end };
            self.latest = self.latest.max(end);
            self.next = (self.next + 1) % self.walks.len();
        }
    }
}

/// Number of slots that the memory bus remembers; a power of two.
pub(super) const BUS_SLOTS: usize = 4096;
/// Number of slots that the path from a cache to the level above remembers: its queue is shorter.
pub(super) const PATH_SLOTS: usize = 512;

/// The memory bus, or the path between two levels. A transfer of a line takes a fixed number of cycles. Time is
/// divided into slots of that length, and a line reserves the first free slot from its arrival on. So the order in
/// which processors are simulated does not matter, although each has its own time.
#[derive(Clone, Debug)]
pub(super) struct MemoryBus {
    line_cycles: u64,
    /// The logarithm of `line_cycles` if that is a power of two: a shift is faster than a division.
    line_shift: Option<u32>,
    /// Entry `slot % slots` holds the last reserved slot with that remainder, plus one. 0: none.
    reserved: Box<[u64]>,
}

impl MemoryBus {
    /// Returns a bus that a line occupies for `line_cycles`. 0: no limit. The bus remembers `slots` slots, a power of
    /// two.
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
