//! A window: lines are touched, an interrupt comes, and the touching is timed around it.

use crate::clock::{now, now_after_work};
use crate::lines::Touch;

/// Limits that classify the time of a chunk, cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkLimits {
    /// A longer chunk was interrupted.
    pub gap: u64,
    /// A longer chunk had a line from beyond the next level.
    pub far: u64,
    /// Additional time of a chunk whose lines are all in the next level, median.
    pub displaced: u64,
}

impl ChunkLimits {
    /// The limits of a loop that spends this many more cycles after each chunk.
    #[must_use]
    pub fn of_slower_loop(self, cycles: u64) -> ChunkLimits {
        let gap = self.gap.saturating_add(cycles);
        ChunkLimits { gap, far: self.far.saturating_add(cycles), ..self }
    }
}

/// Configuration of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowConfig {
    /// Limits of a chunk's time.
    pub limits: ChunkLimits,
    /// Length of the window.
    pub window_cycles: u64,
    /// In a control window: time of the sham interrupt.
    pub sham_cycles: Option<u64>,
    /// Untimed passes at the start.
    pub warm_passes: u64,
    /// Passes after the timed one; absent: until the end of the window.
    pub rest_passes: Option<u64>,
}

/// The times of a window, cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Chunks before the interrupt.
    pub before: ChunkTotals,
    /// The pass after the interrupt.
    pub after: ChunkTotals,
    pub gaps: u32,
    pub gap_cycles: u64,
    /// All gaps together.
    pub stalled_cycles: u64,
    /// When the first gap ended, by the clock.
    pub gap_at: u64,
}

/// A number of chunks and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTotals {
    pub chunks: u64,
    /// Chunks with a line from beyond the next level.
    pub far: u64,
    /// Total time of the others, cycles.
    pub cycles: u64,
}

impl ChunkTotals {
    #[inline(always)]
    fn add(&mut self, took: u64, limits: ChunkLimits) {
        self.chunks += 1;
        if took > limits.far {
            self.far += 1;
        } else {
            self.cycles += took;
        }
    }

    /// The sum of both totals, field by field.
    #[must_use]
    pub fn and(self, other: ChunkTotals) -> ChunkTotals {
        ChunkTotals {
            chunks: self.chunks + other.chunks,
            far: self.far + other.far,
            cycles: self.cycles + other.cycles,
        }
    }

    /// Mean time of a chunk, cycles; `None` if all had lines from beyond the next level.
    #[must_use]
    pub fn chunk_cycles(self) -> Option<f64> {
        let near = self.chunks.checked_sub(self.far).filter(|near| *near > 0)?;
        Some(self.cycles as f64 / near as f64)
    }

    /// Excess of these chunks over the same number of usual ones, cycles. A chunk with a line from beyond the
    /// next level counts like a chunk with lines from the next level: the usual time in the same loop plus the
    /// cost of such lines. Its time in another loop has no effect here.
    #[must_use]
    pub fn excess_cycles(self, usual: ChunkTotals, limits: ChunkLimits) -> Option<f64> {
        let chunk = usual.chunk_cycles()?;
        let far = |sum: ChunkTotals| sum.far as f64 * (chunk + limits.displaced as f64);
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
        self.stalled_cycles += cycles;
        self.gap_cycles = self.gap_cycles.max(cycles);
    }

    /// Excess of a pass of `chunks` after the interrupt over the passes before it. `None` without a
    /// complete pass, or without chunks before.
    ///
    /// The part of the interrupted chunk that was touched after the interrupt is missing, half a chunk on
    /// average; the result is extrapolated for it.
    #[must_use]
    pub fn excess_cycles(
        &self,
        chunks: u64,
        interrupted: bool,
        limits: ChunkLimits,
    ) -> Option<i64> {
        if self.before.chunks == 0 || self.after.chunks != chunks {
            return None;
        }
        let excess = self.after.excess_cycles(self.before, limits)?;
        let kernel_counts = if interrupted { chunks as f64 / (chunks as f64 - 0.5) } else { 1.0 };
        Some((excess * kernel_counts).round() as i64)
    }
}

/// Phases of a window. The work after a chunk is the same in each, so that chunks before and after the
/// interrupt take the same time.
const WARM: usize = 0;
const BEFORE: usize = 1;
const AFTER: usize = 2;
const REST: usize = 3;

/// Touches all lines repeatedly until the pass after the interrupt is complete, or the window ends (the
/// paper's refined method).
#[inline(never)]
pub fn refined<T: Touch>(touch: &mut T, config: WindowConfig) -> Window {
    let chunks = touch.chunks();
    let mut window = Window::default();
    let mut sums = [ChunkTotals::default(); 4];
    let rest_chunks = config.rest_passes.map_or(u64::MAX, |passes| passes * chunks);
    let ends = [config.warm_passes * chunks, u64::MAX, chunks, rest_chunks];
    let start = now_after_work();
    let (mut last, mut place) = (start, if ends[WARM] > 0 { WARM } else { BEFORE });
    let mut sham = config.sham_cycles.map_or(u64::MAX, |after| start + after);
    loop {
        touch.chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        if took > config.limits.gap {
            window.gap(took, time);
            // An interrupt before the first timed chunk has no baseline.
            place = match place {
                WARM => REST,
                BEFORE => AFTER,
                other => other,
            };
        } else {
            sums[place].add(took, config.limits);
            if place < REST && sums[place].chunks == ends[place] {
                place += 1;
            }
        }
        // Not before the first timed chunk, which is the baseline.
        if time >= sham && sums[BEFORE].chunks > 0 {
            sham = u64::MAX;
            place = if place == BEFORE { AFTER } else { place };
        }
        let is_done = place == REST && sums[REST].chunks >= rest_chunks;
        // Treatment and control have the same time for touching.
        let over = time.wrapping_sub(start) > config.window_cycles + window.stalled_cycles;
        if is_done || over {
            (window.before, window.after) = (sums[BEFORE], sums[AFTER]);
            return window;
        }
    }
}

/// Fills, waits without touching anything, then touches all lines once (the paper's basic method). Later
/// passes miss no line, and serve as the baseline.
#[inline(never)]
pub fn basic<T: Touch>(touch: &mut T, config: WindowConfig) -> Window {
    let chunks = touch.chunks();
    let mut window = Window::default();
    let idle_cycles = idle_cycles();
    let start = now();
    let (mut last, mut filling) = (start, config.warm_passes * chunks);
    while last.wrapping_sub(start) <= config.window_cycles {
        let idled = if filling > 0 {
            touch.chunk();
            filling -= 1;
            0
        } else {
            idle();
            idle_cycles
        };
        let time = now();
        let took = time.wrapping_sub(last).saturating_sub(idled);
        last = time;
        if took > config.limits.gap {
            window.gap(took, time);
        }
    }
    let mut sums = [ChunkTotals::default(); 5];
    last = now_after_work();
    for sum in &mut sums {
        for _ in 0..chunks {
            touch.chunk();
            let time = now_after_work();
            let took = time.wrapping_sub(last);
            last = time;
            if took > config.limits.gap {
                window.gaps += 1;
            } else {
                sum.add(took, config.limits);
            }
        }
    }
    (window.after, window.before) = (sums[0], sums[3].and(sums[4]));
    window
}

/// Waits until this CPU is interrupted, so that the next tick is a whole period away; at most
/// `most_cycles`, because a CPU may have no tick.
#[inline(never)]
pub fn wait_for_interrupt(gap_cycles: u64, most_cycles: u64) {
    let gap_cycles = gap_cycles + idle_cycles();
    let start = now();
    let mut last = start;
    while last.wrapping_sub(start) < most_cycles {
        idle();
        let time = now();
        if time.wrapping_sub(last) > gap_cycles {
            return;
        }
        last = time;
    }
}

/// Lets tens to hundreds of cycles pass without a memory access, in four divisions. A loop that only reads
/// the clock executes more instructions in that time, and a simulated machine takes host time for each.
#[inline(always)]
fn idle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the quotient is the dividend and the remainder 0, so no division overflows; each depends on
    // the one before. Registers and flags alone change.
    unsafe {
        std::arch::asm!(
            "div {one}",
            "div {one}",
            "div {one}",
            "div {one}",
            one = in(reg) 1_u64,
            inout("rax") u64::MAX => _,
            inout("rdx") 0_u64 => _,
            options(nomem, nostack),
        );
    }
}

/// Returns the time of [`idle`] with a reading of the clock, cycles: the least of some.
fn idle_cycles() -> u64 {
    let idle_once = |_| {
        let start = now();
        idle();
        now().wrapping_sub(start)
    };
    (0..8).map(idle_once).min().unwrap_or(0)
}

/// Two untimed passes. After them all lines are present, and the replacement state is that of a loop.
#[inline(never)]
pub fn fill<T: Touch>(touch: &mut T) {
    for _ in 0..2 * touch.chunks() {
        touch.chunk();
    }
}

/// One pass as a window counts it; `None` when it was interrupted. It stores nothing per chunk, which would
/// displace lines.
#[inline(never)]
pub fn pass<T: Touch>(touch: &mut T, limits: ChunkLimits) -> Option<ChunkTotals> {
    let (mut sum, mut whole) = (ChunkTotals::default(), true);
    let mut last = now_after_work();
    for _ in 0..touch.chunks() {
        touch.chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        whole &= took <= limits.gap;
        sum.add(took, limits);
    }
    whole.then_some(sum)
}

/// The time of each chunk of one pass, cycles, in `times`. Storing them displaces lines itself.
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

    const LIMITS: ChunkLimits = ChunkLimits { gap: 5000, far: 400, displaced: 50 };

    fn sum(times: &[u64]) -> ChunkTotals {
        let mut sum = ChunkTotals::default();
        times.iter().for_each(|took| sum.add(*took, LIMITS));
        sum
    }

    /// The loop's own time after a chunk is in no excess.
    #[test]
    fn a_line_from_beyond_the_next_level_counts_as_one_from_it() {
        for usual in [140, 190, 265] {
            let before = sum(&[usual; 100]);
            let near = sum(&[[usual; 7].as_slice(), &[usual + 50; 3]].concat());
            let far = sum(&[[usual; 7].as_slice(), &[usual + 50; 2], &[usual + 500]].concat());
            assert_eq!(near.excess_cycles(before, LIMITS), Some(150.0));
            assert_eq!(far.excess_cycles(before, LIMITS), Some(150.0));
            assert_eq!(far.and(near).excess_cycles(before, LIMITS), Some(300.0));
        }
        assert_eq!(sum(&[10]).excess_cycles(sum(&[900]), LIMITS), None);
        assert_eq!(sum(&[10]).excess_cycles(ChunkTotals::default(), LIMITS), None);
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

    /// Also when the host interrupts: a slow first pass is followed by others.
    #[test]
    fn an_early_sham_interrupt_waits_for_a_baseline() {
        let limits = ChunkLimits { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let (window_cycles, rest_passes) = (u64::MAX / 2, Some(0));
        let (sham_cycles, warm_passes) = (Some(0), 1);
        let config = WindowConfig { limits, window_cycles, sham_cycles, warm_passes, rest_passes };
        let window = refined(&mut Nothing(0), config);
        assert_eq!((window.before.chunks, window.after.chunks), (1, 10));
    }

    #[test]
    fn a_control_window_has_a_pass_after_the_sham_interrupt() {
        let limits = ChunkLimits { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let (window_cycles, rest_passes) = (u64::MAX / 2, Some(2));
        let (sham_cycles, warm_passes) = (Some(100_000), 1);
        let config = WindowConfig { limits, window_cycles, sham_cycles, warm_passes, rest_passes };
        let mut touch = Nothing(0);
        let window = refined(&mut touch, config);
        assert_eq!((window.after.chunks, window.gaps), (10, 0));
        assert_eq!(window.before.chunks + 40, touch.0); // one to warm up, the timed one, two after it
        assert!(window.excess_cycles(10, false, limits).is_some());
        assert_eq!(window.excess_cycles(11, false, limits), None);
        let basic = basic(&mut touch, WindowConfig { window_cycles: 1000, ..config });
        assert_eq!((basic.after.chunks, basic.before.chunks), (10, 20));
    }
}
