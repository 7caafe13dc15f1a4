//! A window: lines are touched, an interrupt comes, and the touching is timed around it.

use super::touch::Touch;
use crate::noise::clock::{now, now_after_work};

/// When a window ends, and what a gap is.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// A chunk that takes longer was interrupted, cycles.
    pub gap_cycles: u64,
    /// The window ends after so many cycles.
    pub window_cycles: u64,
    /// In an idle window: after so many cycles an interrupt is pretended.
    pub pretend_cycles: Option<u64>,
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
    let (mut last, mut left) = (begin, None);
    let mut pretend = watch.pretend_cycles.map_or(u64::MAX, |after| begin + after);
    loop {
        touch.chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        if took > watch.gap_cycles {
            window.gaps += 1;
            window.gap_cycles = window.gap_cycles.max(took);
            left = left.or(Some(chunks));
        } else if time >= pretend {
            pretend = u64::MAX;
            left = left.or(Some(chunks));
        } else if let Some(some) = left.filter(|some| *some > 0) {
            window.after.add(took);
            left = Some(some - 1);
        } else if left.is_none() {
            window.before.add(took);
        }
        let is_done = left == Some(0) && !watch.whole;
        if is_done || time.wrapping_sub(begin) > watch.window_cycles {
            return window;
        }
    }
}

/// Waits without touching anything, then touches all lines once (the paper's basic method). The
/// passes behind that one, in which nothing is missing any more, stand for those before.
#[inline(never)]
pub fn basic<T: Touch>(touch: &mut T, watch: Watch) -> Window {
    let chunks = touch.chunks();
    let mut window = Window::default();
    let begin = now();
    let mut last = begin;
    while last.wrapping_sub(begin) <= watch.window_cycles {
        let time = now();
        let took = time.wrapping_sub(last);
        last = time;
        if took > watch.gap_cycles {
            window.gaps += 1;
            window.gap_cycles = window.gap_cycles.max(took);
        }
    }
    last = now_after_work();
    for turn in 0..5 * chunks {
        touch.chunk();
        let time = now_after_work();
        let took = time.wrapping_sub(last);
        last = time;
        if took > watch.gap_cycles {
            window.gaps += 1;
        } else if turn < chunks {
            window.after.add(took);
        } else if turn >= 3 * chunks {
            window.before.add(took);
        }
    }
    window
}

/// Two passes, untimed: all lines are there behind them, and the state of the sets is that of a
/// loop.
#[inline(never)]
pub fn fill<T: Touch>(touch: &mut T) {
    for _ in 0..2 * touch.chunks() {
        touch.chunk();
    }
}

/// The chunks of one pass, each with its time, cycles.
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
