//! A window: lines are touched, an interrupt comes, and the touching is timed around it.

use super::touch::Touch;
use crate::noise::clock::{now, now_after_work};

/// What the time of a chunk says, cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// One that takes longer was interrupted.
    pub gap: u64,
    /// One that takes longer had a line from farther than the next level.
    pub far: u64,
    /// What one takes whose lines are all in the next level, median.
    pub next: u64,
}

impl Scale {
    /// The time that a chunk counts for: a line from farther is one displaced line, too.
    #[inline(always)]
    #[must_use]
    pub fn clipped(self, took: u64) -> u64 {
        if took > self.far { self.next } else { took }
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
    /// Touch for the whole window, also behind the interrupt: what is counted meanwhile can then be
    /// compared.
    pub whole: bool,
}

/// What a window was like, cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Chunks, and their time, before the interrupt.
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
    /// How long they took, cycles.
    pub cycles: u64,
}

impl Sum {
    #[inline(always)]
    fn add(&mut self, cycles: u64) {
        self.chunks += 1;
        self.cycles += cycles;
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
    pub fn excess_cycles(&self, chunks: u64, interrupted: bool) -> Option<i64> {
        if self.before.chunks == 0 || self.after.chunks != chunks {
            return None;
        }
        let usual = self.before.cycles as f64 / self.before.chunks as f64 * chunks as f64;
        let seen = if interrupted { chunks as f64 / (chunks as f64 - 0.5) } else { 1.0 };
        Some(((self.after.cycles as f64 - usual) * seen).round() as i64)
    }
}

/// Touches all lines again and again, until a pass behind the interrupt is done, or the window is
/// over (the paper's refined method).
#[inline(never)]
pub fn refined<T: Touch>(touch: &mut T, watch: Watch) -> Window {
    let chunks = touch.chunks();
    let mut window = Window::default();
    let begin = now_after_work();
    let (mut last, mut left, mut warm) = (begin, None, watch.warm_passes * chunks);
    let mut pretend = watch.pretend_cycles.map_or(u64::MAX, |after| begin + after);
    loop {
        touch.chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        if took > watch.scale.gap {
            window.gap(took, time);
            left = left.or(Some(chunks));
        } else if warm > 0 {
            warm -= 1;
        } else if time >= pretend {
            pretend = u64::MAX;
            left = left.or(Some(chunks));
        } else if let Some(some) = left.filter(|some| *some > 0) {
            window.after.add(watch.scale.clipped(took));
            left = Some(some - 1);
        } else if left.is_none() {
            window.before.add(watch.scale.clipped(took));
        }
        let is_done = left == Some(0) && !watch.whole;
        // As much touching with an interrupt as without.
        let over = time.wrapping_sub(begin) > watch.window_cycles + window.stopped_cycles;
        if is_done || over {
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
    last = now_after_work();
    for turn in 0..5 * chunks {
        touch.chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        if took > watch.scale.gap {
            window.gaps += 1;
        } else if turn < chunks {
            window.after.add(watch.scale.clipped(took));
        } else if turn >= 3 * chunks {
            window.before.add(watch.scale.clipped(took));
        }
    }
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

/// The time of one pass as a window counts it, cycles; `None` when it was interrupted. It writes nothing
/// meanwhile: that would displace lines.
#[inline(never)]
pub fn pass<T: Touch>(touch: &mut T, scale: Scale) -> Option<u64> {
    let (mut sum, mut whole) = (0, true);
    let mut last = now_after_work();
    for _ in 0..touch.chunks() {
        touch.chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        whole &= took <= scale.gap;
        sum += scale.clipped(took);
    }
    whole.then_some(sum)
}

/// The chunks of one pass, each with its time, cycles. Noting them displaces lines itself.
pub fn pass_times<T: Touch>(touch: &mut T) -> Vec<u64> {
    let mut times = vec![0; touch.chunks() as usize];
    let mut last = now_after_work();
    for time in &mut times {
        touch.chunk();
        let now = now_after_work();
        *time = now.wrapping_sub(last);
        last = now;
    }
    times
}
