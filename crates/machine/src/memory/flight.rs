//! Misses that wait for their lines, and the way to memory that they share.

/// No line has this number.
const NO_LINE: u64 = u64::MAX;
/// Prefetches that may be on their way to a cache; what would be one more is dropped.
const PREFETCHES_MAX: usize = 16;

/// Registers of a cache that waits for any number of lines.
pub(crate) const WITHOUT_LIMIT: u32 = u32::MAX;
/// Lines on their way that such a cache tells apart: one for each value of so many of their lowest bits.
const LINES: usize = 1 << 10;

/// The misses of a cache that are on their way: at most as many as it has miss status holding
/// registers.
#[derive(Clone, Debug)]
pub(crate) struct Flights {
    /// Of each register the line that it had last, and when that is there.
    misses: Vec<(u64, u64)>,
    /// Without a limit, in place of registers and of a search through prefetches.
    lines: Box<[(u64, u64)]>,
    prefetches: Vec<(u64, u64)>,
    /// When the last of all is there.
    latest_cycles: u64,
}

impl Flights {
    pub(crate) fn new(registers: u32) -> Self {
        Flights {
            misses: match registers {
                WITHOUT_LIMIT => Vec::new(),
                registers => vec![(NO_LINE, 0); registers.max(1) as usize],
            },
            lines: vec![(NO_LINE, 0); if registers == WITHOUT_LIMIT { LINES } else { 0 }].into(),
            prefetches: Vec::with_capacity(PREFETCHES_MAX),
            latest_cycles: 0,
        }
    }

    /// When a line that the cache has is really there.
    #[inline(always)]
    pub(crate) fn ready(&self, line: u64, now_cycles: u64) -> u64 {
        if now_cycles >= self.latest_cycles { now_cycles } else { self.arrival(line, now_cycles) }
    }

    #[inline(never)]
    fn arrival(&self, line: u64, now_cycles: u64) -> u64 {
        if self.has_no_limit() {
            let (other, ready) = self.lines[line as usize % LINES];
            return if other == line { now_cycles.max(ready) } else { now_cycles };
        }
        let all = self.misses.iter().chain(&self.prefetches);
        let arrivals = all.filter(|(other, _)| *other == line).map(|(_, ready)| *ready);
        arrivals.fold(now_cycles, u64::max)
    }

    /// When a new miss can set out: at once, or when a register gets free.
    pub(crate) fn admit(&self, now_cycles: u64) -> u64 {
        if self.has_no_limit() {
            return now_cycles;
        }
        self.misses[self.first_free()].1.max(now_cycles)
    }

    /// A miss that was admitted arrives at `ready_cycles`.
    pub(crate) fn miss(&mut self, line: u64, ready_cycles: u64) {
        if self.has_no_limit() {
            self.lines[line as usize % LINES] = (line, ready_cycles);
        } else {
            let register = self.first_free();
            self.misses[register] = (line, ready_cycles);
        }
        self.latest_cycles = self.latest_cycles.max(ready_cycles);
    }

    fn has_no_limit(&self) -> bool {
        self.misses.is_empty()
    }

    fn first_free(&self) -> usize {
        let registers = self.misses.iter().enumerate();
        registers.min_by_key(|(_, (_, ready))| *ready).map_or(0, |(register, _)| register)
    }

    /// Whether there is room for a prefetch.
    pub(crate) fn takes_prefetch(&mut self, now_cycles: u64) -> bool {
        self.prefetches.retain(|(_, ready)| *ready > now_cycles);
        self.prefetches.len() < PREFETCHES_MAX
    }

    pub(crate) fn prefetch(&mut self, line: u64, ready_cycles: u64) {
        self.prefetches.push((line, ready_cycles));
        if self.has_no_limit() {
            self.lines[line as usize % LINES] = (line, ready_cycles);
        }
        self.latest_cycles = self.latest_cycles.max(ready_cycles);
    }
}

/// Turns that the way to memory remembers.
const TURNS: usize = 4096;

/// The way to memory: one line at a time, each for some cycles. Time is cut into turns of that length,
/// and a line takes the first free turn from when it comes. So it does not matter in which order the
/// processors are simulated, each with its own time.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    line_cycles: u64,
    /// Which turn a place was taken for last, plus one.
    taken: Box<[u64]>,
}

impl Bus {
    /// One that a line occupies for `line_cycles`; 0 for no limit.
    pub(crate) fn new(line_cycles: u64) -> Self {
        let turns = if line_cycles == 0 { 0 } else { TURNS };
        Bus { line_cycles, taken: vec![0; turns].into() }
    }

    /// Takes a turn for a line that comes at `now_cycles`; returns when it begins.
    pub(crate) fn take(&mut self, now_cycles: u64) -> u64 {
        if self.line_cycles == 0 {
            return now_cycles;
        }
        let first = now_cycles / self.line_cycles;
        for turn in first..first + TURNS as u64 {
            let place = &mut self.taken[turn as usize % TURNS];
            if *place != turn + 1 {
                *place = turn + 1;
                return now_cycles.max(turn * self.line_cycles);
            }
        }
        // So far ahead nothing is remembered.
        now_cycles + TURNS as u64 * self.line_cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_take_turns_whoever_is_told_first() {
        let mut bus = Bus::new(10);
        assert_eq!([0, 0, 0].map(|now| bus.take(now)), [0, 10, 20]);
        assert_eq!(bus.take(100), 100);
        // A processor that is simulated later is not behind one that was simulated before.
        assert_eq!(bus.take(40), 40);
        assert_eq!(bus.take(103), 110);
        assert_eq!(Bus::new(0).take(7), 7);
    }

    #[test]
    fn registers_limit_misses() {
        let mut flights = Flights::new(2);
        for (line, admitted) in [(1, 0), (2, 0), (3, 100), (4, 100), (5, 200)] {
            assert_eq!(flights.admit(0), admitted, "{line}");
            flights.miss(line, admitted + 100);
        }
        assert_eq!((flights.ready(5, 250), flights.ready(9, 250)), (300, 250));
    }

    #[test]
    fn without_a_limit_each_line_is_waited_for_and_none_for_a_register() {
        let mut flights = Flights::new(WITHOUT_LIMIT);
        for line in 0..500 {
            assert_eq!(flights.admit(line), line);
            flights.miss(line, line + 1_000);
        }
        flights.prefetch(700, 3_000);
        assert_eq!((flights.ready(3, 10), flights.ready(499, 10)), (1_003, 1_499));
        assert_eq!((flights.ready(700, 10), flights.ready(600, 10)), (3_000, 10));
        assert_eq!(flights.ready(3, 2_000), 2_000);
    }
}
