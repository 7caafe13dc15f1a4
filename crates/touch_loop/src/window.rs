//! A window: a loop touches lines, an interrupt comes, and the times of chunks before and after it show how many lines
//! it displaced. A *gap* is a chunk that took so long that it was interrupted.
//!
//! The functions marked `inline(never)` are the measured code. They must treat chunks before and after the interrupt
//! alike, and must store nothing per chunk.

use lab::footprint::Method;

use crate::clock::{now, now_after_work};
use crate::lines::Touch;

/// Limits that classify the time of a chunk, cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkLimits {
    /// A longer chunk was interrupted.
    pub gap: u64,
    /// A longer chunk had a line that missed the next level, too (a *far* chunk).
    pub far: u64,
    /// Additional time of a chunk whose lines are all in the next level, mean.
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
    /// In a control window: time from the start to the sham interrupt. `None`: a treatment window.
    pub sham_cycles: Option<u64>,
    /// Untimed passes at the start.
    pub warm_passes: u64,
    /// Passes after the timed pass. `None`: until the end of the window.
    pub rest_passes: Option<u64>,
}

/// The times of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Timed chunks before the interrupt.
    pub before: ChunkTotals,
    /// Chunks of the pass after the interrupt.
    pub after: ChunkTotals,
    /// Number of gaps: chunks that took so long that something interrupted them.
    pub gaps: u32,
    /// Duration of the longest gap, with the interrupted chunk in `refined`.
    pub gap_cycles: u64,
    /// Duration of all gaps together.
    pub stalled_cycles: u64,
    /// When the first gap ended, by the clock.
    pub gap_at: u64,
}

/// Whether the timed pass after the interrupt touches all displaced lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedPass {
    Complete,
    /// The lines that the interrupted chunk touched after the interrupt are missing, because the chunk's time also
    /// contains the interrupt.
    AfterInterruptedChunk,
}

impl TimedPass {
    /// The timed pass that a method has after its interrupt. In `basic` the loop idles when the interrupt comes. A sham
    /// interrupt comes after a complete chunk.
    #[must_use]
    pub fn after_interrupt(method: Method, is_treatment: bool) -> TimedPass {
        match method {
            Method::Refined if is_treatment => TimedPass::AfterInterruptedChunk,
            Method::Refined | Method::Basic => TimedPass::Complete,
        }
    }
}

/// A number of chunks and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTotals {
    /// Number of chunks, near and far.
    pub chunks: u64,
    /// Far chunks, see [`ChunkLimits::far`].
    pub far: u64,
    /// Total time of the chunks that are not far, cycles.
    pub cycles: u64,
}

impl ChunkTotals {
    /// Adds a chunk that took this number of cycles.
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

    /// Mean time of a chunk that is not far, cycles. `None` if all are far.
    #[must_use]
    pub fn chunk_cycles(self) -> Option<f64> {
        let near = self.chunks.checked_sub(self.far).filter(|near| *near > 0)?;
        Some(self.cycles as f64 / near as f64)
    }

    /// Excess time of these chunks over equally many usual chunks, cycles. `None` if all usual chunks are far.
    ///
    /// A far chunk counts as if its lines came from the next level: with the mean time of a usual chunk plus
    /// [`ChunkLimits::displaced`]. The measured time of a far chunk has no effect.
    #[must_use]
    pub fn excess_cycles(self, usual: ChunkTotals, limits: ChunkLimits) -> Option<f64> {
        let chunk_cycles = usual.chunk_cycles()?;
        let far_cycles =
            |totals: ChunkTotals| totals.far as f64 * (chunk_cycles + limits.displaced as f64);
        let usual_cycles = far_cycles(usual) + usual.cycles as f64;
        let expected_cycles = usual_cycles / usual.chunks as f64 * self.chunks as f64;
        Some(self.cycles as f64 + far_cycles(self) - expected_cycles)
    }
}

impl Window {
    /// Records a gap that took this number of cycles and ended at `end` of the clock.
    #[inline(always)]
    fn record_gap(&mut self, cycles: u64, end: u64) {
        if self.gaps == 0 {
            self.gap_at = end;
        }
        self.gaps += 1;
        self.stalled_cycles += cycles;
        self.gap_cycles = self.gap_cycles.max(cycles);
    }

    /// How long the interrupt stalled the loop, cycles: the longest gap without the usual time of the interrupted chunk. The
    /// gaps of `basic` are already without idle time. Misses of the interrupted chunk itself remain.
    #[must_use]
    pub fn stall_cycles(&self, method: Method) -> u64 {
        let chunk_cycles = match method {
            Method::Refined => self.before.chunk_cycles().unwrap_or(0.0),
            Method::Basic => 0.0,
        };
        self.gap_cycles.saturating_sub(chunk_cycles.round() as u64)
    }

    /// Excess time of the pass after the interrupt over the passes before it, cycles. `chunks`: the chunks of a
    /// complete pass. `None` if the pass after the interrupt is incomplete, or no chunk before it was timed.
    ///
    /// In a pass after an interrupted chunk, half a chunk is missing on average. The result is extrapolated by that.
    #[must_use]
    pub fn excess_cycles(&self, chunks: u64, pass: TimedPass, limits: ChunkLimits) -> Option<i64> {
        if self.before.chunks == 0 || self.after.chunks != chunks {
            return None;
        }
        let excess = self.after.excess_cycles(self.before, limits)?;
        let extrapolation = match pass {
            TimedPass::Complete => 1.0,
            TimedPass::AfterInterruptedChunk => chunks as f64 / (chunks as f64 - 0.5),
        };
        Some((excess * extrapolation).round() as i64)
    }
}

/// Phases of a window: indices of totals, because equal code after each chunk makes chunks before and after the
/// interrupt take the same time.
const WARM: usize = 0;
const BEFORE: usize = 1;
const AFTER: usize = 2;
const REST: usize = 3;

/// Number of chunks at the start of a window, and after a gap, that never count as gaps. They fetch the window's own
/// code and data, which the handler of an interrupt displaced. Such a fetch can take the time of an interrupt. The time
/// of a chunk ends before the code that classifies the chunk, so this code is fetched in the second chunk.
///
/// An interrupt in these chunks has little effect on a result. At the start of a window, no gap is seen in a treatment,
/// and the kernel's counts show it in a control: neither repetition counts. After a gap, a chunk that the host or another
/// interrupt stalled counts as a far chunk, with the time of one displaced chunk.
const COLD_CHUNKS: u64 = 2;

/// Touches all lines repeatedly until the pass after the interrupt is complete, or the window ends (the
/// paper's refined method).
#[inline(never)]
pub fn refined<T: Touch>(touch: &mut T, config: WindowConfig) -> Window {
    let chunks = touch.chunk_count();
    let mut window = Window::default();
    let mut sums = [ChunkTotals::default(); 4];
    let rest_chunks = config.rest_passes.map_or(u64::MAX, |passes| passes * chunks);
    let ends = [config.warm_passes * chunks, u64::MAX, chunks, rest_chunks];
    let start = now_after_work();
    let (mut last, mut phase) = (start, if ends[WARM] > 0 { WARM } else { BEFORE });
    let mut cold_chunks = COLD_CHUNKS;
    let mut sham = config.sham_cycles.map_or(u64::MAX, |after| start + after);
    loop {
        touch.touch_next_chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        if took > config.limits.gap && cold_chunks == 0 {
            window.record_gap(took, time);
            cold_chunks = COLD_CHUNKS;
            // An interrupt during warm-up has no timed chunk before it as a baseline, so no pass is timed.
            phase = match phase {
                WARM => REST,
                BEFORE => AFTER,
                unchanged => unchanged,
            };
        } else {
            cold_chunks = cold_chunks.saturating_sub(1);
            sums[phase].add(took, config.limits);
            if phase < REST && sums[phase].chunks == ends[phase] {
                phase += 1;
            }
        }
        // The sham interrupt waits for the first timed chunk, which is the baseline.
        if time >= sham && sums[BEFORE].chunks > 0 {
            sham = u64::MAX;
            phase = if phase == BEFORE { AFTER } else { phase };
        }
        let is_done = phase == REST && sums[REST].chunks >= rest_chunks;
        // The time of gaps does not count, so treatment and control have the same time for touching.
        let is_over = time.wrapping_sub(start) > config.window_cycles + window.stalled_cycles;
        if is_done || is_over {
            (window.before, window.after) = (sums[BEFORE], sums[AFTER]);
            return window;
        }
    }
}

/// Fills the level, idles until the window is over, then times five passes (the paper's basic
/// method). The first pass shows the displaced lines. The last two passes miss no line, and are the baseline.
#[inline(never)]
pub fn basic<T: Touch>(touch: &mut T, config: WindowConfig) -> Window {
    let chunks = touch.chunk_count();
    let mut window = Window::default();
    let idle_cycles = idle_cycles();
    let start = now();
    let (mut last, mut filling) = (start, config.warm_passes * chunks);
    let mut cold_chunks = COLD_CHUNKS;
    while last.wrapping_sub(start) <= config.window_cycles {
        let idled = if filling > 0 {
            touch.touch_next_chunk();
            filling -= 1;
            if filling == 0 {
                // The code that idles comes next.
                cold_chunks = COLD_CHUNKS;
            }
            0
        } else {
            idle();
            idle_cycles
        };
        let time = now();
        let took = time.wrapping_sub(last).saturating_sub(idled);
        last = time;
        if took > config.limits.gap && cold_chunks == 0 {
            window.record_gap(took, time);
            cold_chunks = COLD_CHUNKS;
        } else {
            cold_chunks = cold_chunks.saturating_sub(1);
        }
    }
    let mut sums = [ChunkTotals::default(); 5];
    last = now_after_work();
    for sum in &mut sums {
        for _ in 0..chunks {
            touch.touch_next_chunk();
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

/// Waits until this CPU is interrupted: until an iteration takes longer than `gap_cycles`. Waits at most
/// `cycles_max`, because a CPU may have no tick.
#[inline(never)]
pub fn wait_for_interrupt(gap_cycles: u64, cycles_max: u64) {
    let gap_cycles = gap_cycles + idle_cycles();
    let start = now();
    let (mut last, mut short_iterations) = (start, 0);
    while last.wrapping_sub(start) < cycles_max {
        idle();
        let time = now();
        if time.wrapping_sub(last) <= gap_cycles {
            short_iterations += 1;
        } else if short_iterations >= SETTLED_ITERATIONS {
            return;
        }
        last = time;
    }
}

/// A wait counts a long iteration as an interrupt after this many short ones. The first iterations fetch the loop's code
/// and translations, which can take as long as an interrupt.
const SETTLED_ITERATIONS: u32 = 8;

/// Lets tens to hundreds of cycles pass without a memory access, in four divisions. A loop that only reads the clock
/// would execute more instructions in that time, and a simulator needs host time for each instruction.
#[inline(always)]
fn idle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the quotient is the dividend and the remainder 0, so no division overflows. Each division depends on the
    // previous one. Only registers and flags change.
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

/// The shortest of eight measured times of [`idle`] plus a reading of the clock, cycles.
fn idle_cycles() -> u64 {
    let idle_once = |_| {
        let start = now();
        idle();
        now().wrapping_sub(start)
    };
    (0..8).map(idle_once).min().unwrap_or(0)
}

/// Two untimed passes. After them all lines are present, and the replacement state is the one that passes leave.
#[inline(never)]
pub fn fill<T: Touch>(touch: &mut T) {
    for _ in 0..2 * touch.chunk_count() {
        touch.touch_next_chunk();
    }
}

/// Times one pass like a window does. `None` if the pass was interrupted.
#[inline(never)]
pub fn pass<T: Touch>(touch: &mut T, limits: ChunkLimits) -> Option<ChunkTotals> {
    let (mut totals, mut is_uninterrupted) = (ChunkTotals::default(), true);
    let mut last = now_after_work();
    for _ in 0..touch.chunk_count() {
        touch.touch_next_chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        is_uninterrupted &= took <= limits.gap;
        totals.add(took, limits);
    }
    is_uninterrupted.then_some(totals)
}

/// Writes the time of each chunk of one pass to `times`, cycles. Storing the times displaces lines, too.
pub fn pass_times<T: Touch>(touch: &mut T, times: &mut [u64]) {
    let mut last = now_after_work();
    for time in times {
        touch.touch_next_chunk();
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
        fn touch_next_chunk(&mut self) {
            self.0 += 1;
        }
        fn chunk_count(&self) -> u64 {
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

    /// Ten chunks in a pass. Those in `slow` take `cycles` each.
    struct Slow {
        slow: &'static [u64],
        cycles: u64,
        done: u64,
    }

    impl Touch for Slow {
        fn touch_next_chunk(&mut self) {
            let start = now();
            while self.slow.contains(&self.done) && now().wrapping_sub(start) <= self.cycles {}
            self.done += 1;
        }
        fn chunk_count(&self) -> u64 {
            10
        }
        fn chunk_lines(&self) -> u64 {
            1
        }
        fn rewind(&mut self) {}
    }

    /// The limit of a gap is 10^9 cycles, so pauses of the host are no gaps.
    #[test]
    fn first_chunks_and_those_after_an_interrupt_are_no_interrupt() {
        let gap = 1_000_000_000;
        let limits = ChunkLimits { gap, far: u64::MAX, displaced: 0 };
        let config = WindowConfig {
            limits,
            window_cycles: 10 * gap,
            sham_cycles: None,
            warm_passes: 1,
            rest_passes: Some(0),
        };
        let slow = |slow: &'static [u64]| Slow { slow, cycles: gap + gap / 4, done: 0 };
        let window = refined(&mut slow(&[0, 1, 13, 14, 15]), config);
        assert_eq!((window.gaps, window.before.chunks, window.after.chunks), (1, 3, 10));
        assert_eq!(refined(&mut slow(&[13, 16]), config).gaps, 2);
        let in_warm_up = refined(&mut slow(&[2]), config);
        assert_eq!((in_warm_up.gaps, in_warm_up.after.chunks), (1, 0));
        let config = WindowConfig { window_cycles: 4 * gap, ..config };
        assert_eq!(basic(&mut slow(&[0, 1]), config).gaps, 0);
        assert_eq!(basic(&mut slow(&[2]), config).gaps, 1);
    }

    #[test]
    fn only_a_pass_after_an_interrupted_chunk_is_extrapolated() {
        let limits = ChunkLimits { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let totals = |chunks, cycles| ChunkTotals { chunks, far: 0, cycles };
        let window = Window { before: totals(4, 400), after: totals(2, 260), ..Window::default() };
        let excess = |method, is_treatment| {
            window.excess_cycles(2, TimedPass::after_interrupt(method, is_treatment), limits)
        };
        assert_eq!(excess(Method::Basic, true), Some(60));
        assert_eq!(excess(Method::Basic, false), Some(60));
        assert_eq!(excess(Method::Refined, false), Some(60));
        assert_eq!(excess(Method::Refined, true), Some(80), "three halves of two chunks");
    }

    #[test]
    fn a_stall_is_without_the_interrupted_chunk() {
        let before = ChunkTotals { chunks: 10, far: 0, cycles: 200 };
        let window = Window { before, gaps: 1, gap_cycles: 100, ..Window::default() };
        assert_eq!(window.stall_cycles(Method::Refined), 80);
        assert_eq!(window.stall_cycles(Method::Basic), 100, "the loop idled");
        let untimed = Window { before: ChunkTotals::default(), ..window };
        assert_eq!(untimed.stall_cycles(Method::Refined), 100);
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
        assert!(window.excess_cycles(10, TimedPass::Complete, limits).is_some());
        assert_eq!(window.excess_cycles(11, TimedPass::Complete, limits), None);
        let basic = basic(&mut touch, WindowConfig { window_cycles: 1000, ..config });
        assert_eq!((basic.after.chunks, basic.before.chunks), (10, 20));
    }
}
