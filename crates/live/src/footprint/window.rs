//! A window: lines are touched, an interrupt comes, and the touching is timed around it.

use super::touch::Touch;
use crate::clock::{now, now_after_work};

/// What the time of a chunk says, cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// One that takes longer was interrupted.
    pub gap: u64,
    /// One that takes longer had a line from farther than the next level.
    pub far: u64,
    /// What one takes longer whose lines are all in the next level, median.
    pub displaced: u64,
}

impl Scale {
    /// That of a loop that does more behind each chunk, and takes so many cycles longer for it.
    #[must_use]
    pub fn of_slower_loop(self, cycles: u64) -> Scale {
        let gap = self.gap.saturating_add(cycles);
        Scale { gap, far: self.far.saturating_add(cycles), ..self }
    }
}

/// When a window ends, and what a gap is.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// What a chunk's time says.
    pub scale: Scale,
    /// The window ends after so many cycles.
    pub window_cycles: u64,
    /// In an idle window: after so many cycles an interrupt is pretended.
    pub pretend_cycles: Option<u64>,
    /// Passes before the first that is timed.
    pub warm_passes: u64,
    /// Passes behind the one that is timed; absent: as many as the window has room for.
    pub rest_passes: Option<u64>,
}

/// What a window was like, cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Chunks before the interrupt.
    pub before: Sum,
    /// The pass behind it.
    pub after: Sum,
    /// Real gaps.
    pub gaps: u32,
    /// The longest of them.
    pub gap_cycles: u64,
    /// All of them together.
    pub stopped_cycles: u64,
    /// When the first of them ended, by the clock.
    pub gap_at: u64,
}

/// Chunks, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub chunks: u64,
    /// How many of them had a line from farther than the next level.
    pub far: u64,
    /// How long the others took, cycles.
    pub cycles: u64,
}

impl Sum {
    #[inline(always)]
    fn add(&mut self, took: u64, scale: Scale) {
        self.chunks += 1;
        if took > scale.far {
            self.far += 1;
        } else {
            self.cycles += took;
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Sum) -> Sum {
        Sum {
            chunks: self.chunks + other.chunks,
            far: self.far + other.far,
            cycles: self.cycles + other.cycles,
        }
    }

    /// What a chunk takes, cycles; none where all had lines from farther.
    #[must_use]
    pub fn chunk_cycles(self) -> Option<f64> {
        let near = self.chunks.checked_sub(self.far).filter(|near| *near > 0)?;
        Some(self.cycles as f64 / near as f64)
    }

    /// How much longer these chunks took than as many usual ones, cycles. A chunk with a line from
    /// farther counts as one whose lines came from the next level: as a usual one of the same loop, and
    /// what those cost. What it would take in another loop tells nothing here.
    #[must_use]
    pub fn excess_cycles(self, usual: Sum, scale: Scale) -> Option<f64> {
        let chunk = usual.chunk_cycles()?;
        let far = |sum: Sum| sum.far as f64 * (chunk + scale.displaced as f64);
        let usual_far = far(usual) + usual.cycles as f64;
        let pass = usual_far / usual.chunks as f64 * self.chunks as f64;
        Some(self.cycles as f64 + far(self) - pass)
    }
}

impl Window {
    #[inline(always)]
    fn gap(&mut self, cycles: u64, at: u64) {
        if self.gaps == 0 {
            self.gap_at = at;
        }
        self.gaps += 1;
        self.stopped_cycles += cycles;
        self.gap_cycles = self.gap_cycles.max(cycles);
    }

    /// How much longer a pass of `chunks` took behind the interrupt than before it. `None` when
    /// there was no pass, or nothing before.
    ///
    /// Of the chunk that was interrupted, what was touched after the interrupt is not in it: half of
    /// a chunk on average, for which the rest stands.
    #[must_use]
    pub fn excess_cycles(&self, chunks: u64, interrupted: bool, scale: Scale) -> Option<i64> {
        if self.before.chunks == 0 || self.after.chunks != chunks {
            return None;
        }
        let excess = self.after.excess_cycles(self.before, scale)?;
        let seen = if interrupted { chunks as f64 / (chunks as f64 - 0.5) } else { 1.0 };
        Some((excess * seen).round() as i64)
    }
}

/// Where a window is. What is done behind a chunk is the same everywhere, so that what is counted before
/// the interrupt and behind it takes the same time.
const WARM: usize = 0;
const BEFORE: usize = 1;
const AFTER: usize = 2;
const REST: usize = 3;

/// Touches all lines again and again, until a pass behind the interrupt is done, or the window is
/// over (the paper's refined method).
#[inline(never)]
pub fn refined<T: Touch>(touch: &mut T, watch: Watch) -> Window {
    let chunks = touch.chunks();
    let mut window = Window::default();
    let mut sums = [Sum::default(); 4];
    let rest = watch.rest_passes.map_or(u64::MAX, |passes| passes * chunks);
    let ends = [watch.warm_passes * chunks, u64::MAX, chunks, rest];
    let begin = now_after_work();
    let (mut last, mut place) = (begin, if ends[WARM] > 0 { WARM } else { BEFORE });
    let mut pretend = watch.pretend_cycles.map_or(u64::MAX, |after| begin + after);
    loop {
        touch.chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        if took > watch.scale.gap {
            window.gap(took, time);
            // One that comes before there is anything to compare with serves nothing.
            place = match place {
                WARM => REST,
                BEFORE => AFTER,
                other => other,
            };
        } else {
            sums[place].add(took, watch.scale);
            if place < REST && sums[place].chunks == ends[place] {
                place += 1;
            }
        }
        // Not before there is anything to compare with.
        if time >= pretend && sums[BEFORE].chunks > 0 {
            pretend = u64::MAX;
            place = if place == BEFORE { AFTER } else { place };
        }
        let is_done = place == REST && sums[REST].chunks >= rest;
        // As much touching with an interrupt as without.
        let over = time.wrapping_sub(begin) > watch.window_cycles + window.stopped_cycles;
        if is_done || over {
            (window.before, window.after) = (sums[BEFORE], sums[AFTER]);
            return window;
        }
    }
}

/// Fills, waits without touching anything, then touches all lines once (the paper's basic method). The
/// passes behind that one, in which nothing is missing any more, stand for those before.
#[inline(never)]
pub fn basic<T: Touch>(touch: &mut T, watch: Watch) -> Window {
    let chunks = touch.chunks();
    let mut window = Window::default();
    let begin = now();
    let (mut last, mut filling) = (begin, watch.warm_passes * chunks);
    while last.wrapping_sub(begin) <= watch.window_cycles {
        if filling > 0 {
            touch.chunk();
            filling -= 1;
        }
        let time = now();
        let took = time.wrapping_sub(last);
        last = time;
        if took > watch.scale.gap {
            window.gap(took, time);
        }
    }
    let mut sums = [Sum::default(); 5];
    last = now_after_work();
    for sum in &mut sums {
        for _ in 0..chunks {
            touch.chunk();
            let time = now_after_work();
            let took = time.wrapping_sub(last);
            last = time;
            if took > watch.scale.gap {
                window.gaps += 1;
            } else {
                sum.add(took, watch.scale);
            }
        }
    }
    (window.after, window.before) = (sums[0], sums[3].and(sums[4]));
    window
}

/// Waits until this CPU was interrupted, so that the next tick is a whole period away; at most
/// `most_cycles`: a CPU may have no tick.
#[inline(never)]
pub fn wait_for_interrupt(gap_cycles: u64, most_cycles: u64) {
    let begin = now();
    let mut last = begin;
    while last.wrapping_sub(begin) < most_cycles {
        let time = now();
        if time.wrapping_sub(last) > gap_cycles {
            return;
        }
        last = time;
    }
}

/// Two passes, untimed: all lines are there behind them, and the state of the sets is that of a
/// loop.
#[inline(never)]
pub fn fill<T: Touch>(touch: &mut T) {
    for _ in 0..2 * touch.chunks() {
        touch.chunk();
    }
}

/// One pass as a window counts it; `None` when it was interrupted. It writes nothing meanwhile: that would
/// displace lines.
#[inline(never)]
pub fn pass<T: Touch>(touch: &mut T, scale: Scale) -> Option<Sum> {
    let (mut sum, mut whole) = (Sum::default(), true);
    let mut last = now_after_work();
    for _ in 0..touch.chunks() {
        touch.chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        whole &= took <= scale.gap;
        sum.add(took, scale);
    }
    whole.then_some(sum)
}

/// The chunks of one pass, each with its time, cycles, in `times`. Noting them displaces lines itself.
pub fn pass_times<T: Touch>(touch: &mut T, times: &mut [u64]) {
    let mut last = now_after_work();
    for time in times {
        touch.chunk();
        let now = now_after_work();
        *time = now.wrapping_sub(last);
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { gap: 5000, far: 400, displaced: 50 };

    fn sum(times: &[u64]) -> Sum {
        let mut sum = Sum::default();
        times.iter().for_each(|took| sum.add(*took, SCALE));
        sum
    }

    /// In whatever loop: what the loop itself takes behind a chunk is in no excess.
    #[test]
    fn a_line_from_farther_counts_as_one_from_the_next_level() {
        for usual in [140, 190, 265] {
            let before = sum(&[usual; 100]);
            let near = sum(&[[usual; 7].as_slice(), &[usual + 50; 3]].concat());
            let far = sum(&[[usual; 7].as_slice(), &[usual + 50; 2], &[usual + 500]].concat());
            assert_eq!(near.excess_cycles(before, SCALE), Some(150.0));
            assert_eq!(far.excess_cycles(before, SCALE), Some(150.0));
            assert_eq!(far.and(near).excess_cycles(before, SCALE), Some(300.0));
        }
        assert_eq!(sum(&[10]).excess_cycles(sum(&[900]), SCALE), None);
        assert_eq!(sum(&[10]).excess_cycles(Sum::default(), SCALE), None);
    }

    /// Chunks that do nothing.
    struct Nothing(u64);

    impl Touch for Nothing {
        fn chunk(&mut self) {
            self.0 += 1;
        }
        fn chunks(&self) -> u64 {
            10
        }
        fn chunk_lines(&self) -> u64 {
            1
        }
        fn rewind(&mut self) {}
    }

    /// Whatever the host does meanwhile: a first pass that takes longer than that is followed by others.
    #[test]
    fn what_is_pretended_early_comes_when_there_is_something_to_compare_with() {
        let scale = Scale { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let (window_cycles, rest_passes) = (u64::MAX / 2, Some(0));
        let (pretend_cycles, warm_passes) = (Some(0), 1);
        let watch = Watch { scale, window_cycles, pretend_cycles, warm_passes, rest_passes };
        let window = refined(&mut Nothing(0), watch);
        assert_eq!((window.before.chunks, window.after.chunks), (1, 10));
    }

    #[test]
    fn a_window_has_a_pass_behind_what_is_pretended() {
        let scale = Scale { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let (window_cycles, rest_passes) = (u64::MAX / 2, Some(2));
        let (pretend_cycles, warm_passes) = (Some(100_000), 1);
        let watch = Watch { scale, window_cycles, pretend_cycles, warm_passes, rest_passes };
        let mut touch = Nothing(0);
        let window = refined(&mut touch, watch);
        assert_eq!((window.after.chunks, window.gaps), (10, 0));
        assert_eq!(window.before.chunks + 40, touch.0); // one to warm up, the timed one, two behind
        assert!(window.excess_cycles(10, false, scale).is_some());
        assert_eq!(window.excess_cycles(11, false, scale), None);
        let basic = basic(&mut touch, Watch { window_cycles: 1000, ..watch });
        assert_eq!((basic.after.chunks, basic.before.chunks), (10, 20));
    }
}
