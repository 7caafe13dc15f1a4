//! One cache's touch loop, of data or of code, and the loop that displaces known lines of it.

use std::io;

use lab::footprint::sample::Curve;
use lab::footprint::{Geometry, Level, Method};

use super::counters::Counters;
use super::memory::Pages;
use super::touch::{CodeLines, DataLines, Shape, Touch};
use super::window::{Watch, Window, basic, fill, pass_times, refined};

/// Turns for each point of the curve.
const CURVE_TURNS: usize = 48;
/// Passes from which the usual time of a chunk is taken.
const USUAL_PASSES: usize = 32;
/// A chunk that takes so many times the dearest of the displaced ones was interrupted.
const GAP_FACTOR: u64 = 3;

enum Lines {
    Data(DataLines),
    Code(CodeLines),
}

/// Runs the same words with either sort of lines.
macro_rules! with_lines {
    ($lines:expr, $touch:ident => $do:expr) => {
        match $lines {
            Lines::Data($touch) => $do,
            Lines::Code($touch) => $do,
        }
    };
}

impl Lines {
    fn new(level: Level, shape: Shape, seed: u64) -> io::Result<Self> {
        if level.is_code() {
            CodeLines::new(shape, seed).map(Lines::Code)
        } else {
            DataLines::new(shape, seed).map(Lines::Data)
        }
    }
}

/// The loop of a level, and what its clock says.
pub struct Loop {
    lines: Lines,
    foreign: Lines,
    shape: Shape,
    /// A chunk that takes longer was interrupted, cycles.
    pub gap_cycles: u64,
    /// Median time of a pass with nothing displaced, cycles.
    pub pass_cycles: u64,
}

/// How the lines of a level lie in memory.
#[must_use]
pub fn shape(level: Level, geometry: Geometry) -> Shape {
    let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Shape {
        sets: whole(geometry.sets()),
        ways: geometry.ways,
        line_bytes: geometry.line_bytes,
        skew_bytes: if level.is_tlb() { 64 } else { 0 },
    }
}

impl Loop {
    /// Lays both out and measures them.
    ///
    /// # Errors
    /// When there is no memory for it, or none that can be executed.
    pub fn new(level: Level, geometry: Geometry, seed: u64) -> io::Result<Self> {
        let shape = shape(level, geometry);
        let lines = Lines::new(level, shape, seed)?;
        // One line after the other, in no order of sets: as a handler's are.
        let foreign = Lines::new(level, Shape { ways: shape.lines(), sets: 1, ..shape }, !seed)?;
        let mut looping = Loop { lines, foreign, shape, gap_cycles: u64::MAX, pass_cycles: 0 };
        looping.measure_chunks();
        Ok(looping)
    }

    /// Chunks of a pass.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        with_lines!(&self.lines, touch => touch.chunks())
    }

    /// Lines of a pass.
    #[must_use]
    pub fn lines(&self) -> u64 {
        u64::from(self.shape.lines())
    }

    /// In what pages the lines are.
    #[must_use]
    pub fn pages(&self) -> Pages {
        with_lines!(&self.lines, touch => touch.pages())
    }

    fn displace(&mut self, chunks: u64) {
        with_lines!(&mut self.foreign, touch => (0..chunks).for_each(|_| touch.chunk()));
    }

    /// Two untimed passes.
    pub fn fill(&mut self) {
        with_lines!(&mut self.lines, touch => fill(touch));
    }

    /// A window by that method.
    pub fn window(&mut self, method: Method, watch: Watch) -> Window {
        with_lines!(&mut self.lines, touch => match method {
            Method::Basic => basic(touch, watch),
            Method::Refined => refined(touch, watch),
        })
    }

    fn pass_times(&mut self) -> Vec<u64> {
        with_lines!(&mut self.lines, touch => pass_times(touch))
    }

    fn measure_chunks(&mut self) {
        let all = with_lines!(&self.foreign, touch => touch.chunks());
        let mut dearest = Vec::new();
        for _ in 0..USUAL_PASSES {
            self.fill();
            self.displace(all);
            dearest.extend(self.pass_times());
        }
        // Not the dearest of all: that one may have been interrupted.
        dearest.sort_unstable();
        let dearest = dearest[dearest.len() * 9 / 10];
        self.gap_cycles = dearest.saturating_mul(GAP_FACTOR);
        self.fill();
        let mut passes: Vec<u64> =
            (0..USUAL_PASSES).map(|_| self.pass_times().iter().sum()).collect();
        passes.sort_unstable();
        self.pass_cycles = passes[passes.len() / 2];
    }

    /// Misses in user mode of a pass directly behind the start of the counters: what starting them
    /// displaces (the paper's Table 2); the median of many.
    ///
    /// # Errors
    /// When the counters can't be read.
    pub fn start_misses(&mut self, counters: &mut Counters) -> io::Result<u64> {
        let mut misses = Vec::new();
        for _ in 0..CURVE_TURNS {
            self.fill();
            counters.start()?;
            with_lines!(&mut self.lines, touch => (0..touch.chunks()).for_each(|_| touch.chunk()));
            misses.push(counters.stop()?.user);
        }
        misses.sort_unstable();
        Ok(misses[misses.len() / 2])
    }

    /// What a pass takes longer when so many of its lines were displaced before: none, and one to
    /// all sixteenths. `None` where the clock sees no difference.
    pub fn curve(&mut self) -> Curve {
        let (all, chunks) = (with_lines!(&self.foreign, touch => touch.chunks()), self.chunks());
        let per_chunk = self.lines() / all.max(1);
        let mut steps: Vec<u64> = (0..=16).map(|part| all * part / 16).collect();
        steps.dedup();
        let mut points = Vec::new();
        for step in steps {
            let mut excess: Vec<i64> = Vec::new();
            for _ in 0..CURVE_TURNS {
                self.fill();
                let before: u64 = self.pass_times().iter().sum();
                let second: u64 = self.pass_times().iter().sum();
                self.displace(step);
                let times = self.pass_times();
                if times.iter().all(|time| *time < self.gap_cycles) {
                    let after: u64 = times.iter().sum();
                    excess.push(after as i64 - ((before + second) / 2) as i64);
                }
            }
            excess.sort_unstable();
            if let Some(median) = excess.get(excess.len() / 2) {
                points.push((step * per_chunk, *median as f64));
            }
        }
        debug_assert!(chunks > 0);
        Curve { points }
    }
}
