//! One cache's touch loop, of data or of code, and the loop that displaces known lines of it.

use std::io;

use lab::footprint::sample::Curve;
use lab::footprint::{Geometry, Level, Method};

use super::counters::Counters;
use crate::memory::Pages;
use super::touch::{CodeLines, DataLines, Shape, Touch};
use super::window::{Scale, Sum, Watch, Window, basic, fill, pass, pass_times, refined};

/// Turns for each point of the curve.
const CURVE_TURNS: usize = 48;
/// Passes from which the usual time of a chunk is taken.
const USUAL_PASSES: usize = 32;
/// Chunks of a pass, at most about: else reading the clock takes longer than the rest.
const CHUNKS_MAX: usize = 1024;
/// Lines of a chunk where fewer of them don't show in the clock.
const MANY_LINES: usize = 32;
/// What a displaced line must cost, cycles of the clock, for single ones to be told.
const LINE_CYCLES_MIN: f64 = 3.0;
/// Where refilling takes longer than so many interrupts at least take, devices don't wait for it.
const RENEW_INTERRUPTS: u64 = 40;
/// What was interrupted took longer than so many displaced lines, if that is as long as an interrupt takes at
/// least.
const GAP_LINES: f64 = 128.0;

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
    fn new(level: Level, shape: Shape, seed: u64, chunk_lines: usize) -> io::Result<Self> {
        if level.is_code() {
            CodeLines::new(shape, seed, chunk_lines).map(Lines::Code)
        } else {
            DataLines::new(shape, seed, chunk_lines).map(Lines::Data)
        }
    }
}

/// The loop of a level, and what its clock says.
pub struct Loop {
    lines: Lines,
    foreign: Lines,
    shape: Shape,
    /// What the time of a chunk says in a pass.
    scale: Scale,
    /// The same in a window, which does more behind each.
    pub in_window: Scale,
    /// Median time of a pass with nothing displaced, cycles.
    pub pass_cycles: u64,
    /// The same with all of it displaced.
    displaced_cycles: u64,
    /// Longer ones are too long between asking for an interrupt and its coming.
    quick_cycles: u64,
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
        from_bytes: 0,
    }
}

impl Loop {
    /// Lays both out and measures them. No interrupt stops the loop for less than `interrupt_cycles`.
    ///
    /// # Errors
    /// When there is no memory for it, or none that can be executed.
    pub fn new(
        level: Level,
        geometry: Geometry,
        seed: u64,
        interrupt_cycles: u64,
    ) -> io::Result<Self> {
        let shape = shape(level, geometry);
        let few = (shape.lines() as usize / CHUNKS_MAX).max(1);
        let looping = Self::in_chunks(level, shape, geometry, seed, (few, interrupt_cycles))?;
        if looping.line_cycles() >= LINE_CYCLES_MIN {
            return Ok(looping);
        }
        let many = (MANY_LINES.max(few), interrupt_cycles);
        Self::in_chunks(level, shape, geometry, seed, many)
    }

    fn in_chunks(
        level: Level,
        shape: Shape,
        geometry: Geometry,
        seed: u64,
        (chunk_lines, interrupt_cycles): (usize, u64),
    ) -> io::Result<Self> {
        let lines = Lines::new(level, shape, seed, chunk_lines)?;
        // One line after the other, in no order of sets: as a handler's are.
        let behind =
            Shape { ways: shape.lines(), sets: 1, from_bytes: geometry.size_bytes, ..shape };
        let foreign = Lines::new(level, behind, !seed, MANY_LINES)?;
        let mut looping = Loop {
            lines,
            foreign,
            shape,
            scale: Scale::default(),
            in_window: Scale::default(),
            pass_cycles: 0,
            displaced_cycles: 0,
            quick_cycles: RENEW_INTERRUPTS * interrupt_cycles,
        };
        looping.measure_chunks(interrupt_cycles);
        looping.measure_window();
        Ok(looping)
    }

    /// What a displaced line costs, cycles.
    fn line_cycles(&self) -> f64 {
        (self.displaced_cycles as f64 - self.pass_cycles as f64) / self.lines() as f64
    }

    /// Lines that are touched between two readings of the clock.
    #[must_use]
    pub fn chunk_lines(&self) -> u64 {
        with_lines!(&self.lines, touch => touch.chunk_lines())
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
        with_lines!(&mut self.foreign, touch => {
            touch.rewind(); // each line once
            (0..chunks).for_each(|_| touch.chunk());
        });
    }

    /// A window without an interrupt, so that its code is in the caches.
    pub fn warm_up(&mut self) -> Window {
        let pass = self.pass_cycles.max(1);
        let watch = Watch {
            scale: self.in_window,
            window_cycles: 4 * pass,
            pretend_cycles: Some(2 * pass),
            warm_passes: 1,
            rest_passes: Some(0),
        };
        with_lines!(&mut self.lines, touch => refined(touch, watch))
    }

    /// Displaces all lines, and touches them from the first on: in what order they came into a set decides
    /// whether each displaced line is one miss there ([`lab::footprint::order`]).
    pub fn renew(&mut self) {
        let all = with_lines!(&self.foreign, touch => touch.chunks());
        self.displace(all);
        with_lines!(&mut self.lines, touch => {
            touch.rewind();
            fill(touch);
        });
    }

    /// Two untimed passes; where that is quick, of lines that are renewed.
    pub fn fill(&mut self) {
        if self.displaced_cycles <= self.quick_cycles {
            self.renew();
        } else {
            with_lines!(&mut self.lines, touch => fill(touch));
        }
    }

    /// A window by that method.
    pub fn window(&mut self, method: Method, watch: Watch) -> Window {
        with_lines!(&mut self.lines, touch => match method {
            Method::Basic => basic(touch, watch),
            Method::Refined => refined(touch, watch),
        })
    }

    fn pass_times(&mut self, times: &mut [u64]) {
        with_lines!(&mut self.lines, touch => pass_times(touch, times));
    }

    fn clipped_pass(&mut self) -> Option<Sum> {
        let scale = self.scale;
        with_lines!(&mut self.lines, touch => pass(touch, scale))
    }

    /// The median time of passes behind that, with nothing clipped.
    fn median_pass(&mut self, prepare: impl Fn(&mut Self)) -> u64 {
        self.scale = Scale { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let mut passes: Vec<u64> = Vec::new();
        for _ in 0..USUAL_PASSES {
            prepare(self);
            passes.extend(self.clipped_pass().map(|sum| sum.cycles));
        }
        passes.sort_unstable();
        passes[passes.len() / 2]
    }

    fn measure_chunks(&mut self, interrupt_cycles: u64) {
        let all = with_lines!(&self.foreign, touch => touch.chunks());
        self.pass_cycles = self.median_pass(Self::fill);
        self.displaced_cycles = self.median_pass(|one| {
            one.fill();
            one.displace(all);
        });
        let usual = self.chunk_times(Self::fill);
        let dearest = self.chunk_times(|one| {
            one.fill();
            one.displace(all);
        });
        // Not the dearest of all: that one may have been interrupted.
        let (next, most) = (dearest[dearest.len() / 2], dearest[dearest.len() * 99 / 100]);
        let stopped = next + (self.line_cycles().max(0.0) * GAP_LINES) as u64;
        // Means, as a clock in steps has no medians between them.
        let near = |times: &[u64]| {
            let near = &times[..times.partition_point(|time| *time <= most)];
            near.iter().sum::<u64>() as f64 / near.len() as f64
        };
        let displaced = (near(&dearest) - near(&usual)).max(0.0) as u64;
        let noted =
            Scale { gap: stopped.max(interrupt_cycles), far: most + displaced / 2, displaced };
        // Where times are noted, a chunk does not take what it takes in a pass.
        let longer = self.pass_cycles as f64 / self.chunks() as f64 - near(&usual);
        self.scale = noted.of_slower_loop(longer.max(0.0) as u64);
    }

    /// The times of chunks behind that, in order.
    fn chunk_times(&mut self, prepare: impl Fn(&mut Self)) -> Vec<u64> {
        let mut all = Vec::new();
        // One memory for all: what is new comes from farther than the next level.
        let mut times = vec![0; self.chunks() as usize];
        self.pass_times(&mut times);
        for _ in 0..USUAL_PASSES {
            prepare(self);
            self.pass_times(&mut times);
            all.extend_from_slice(&times);
        }
        all.sort_unstable();
        all
    }

    /// How much longer a chunk takes in a window.
    fn measure_window(&mut self) {
        let usual = self.pass_cycles as f64 / self.chunks() as f64;
        self.in_window = Scale { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let chunk = |one: &mut Self| one.warm_up().before.chunk_cycles();
        let mut chunks: Vec<f64> = (0..USUAL_PASSES).filter_map(|_| chunk(self)).collect();
        chunks.sort_unstable_by(f64::total_cmp);
        let longer = chunks.get(chunks.len() / 2).map_or(0.0, |chunk| chunk - usual);
        self.in_window = self.scale.of_slower_loop(longer.max(0.0) as u64);
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
        let all = with_lines!(&self.foreign, touch => touch.chunks());
        let per_chunk = self.lines() / all.max(1);
        let mut steps: Vec<u64> = (0..=16).map(|part| all * part / 16).collect();
        steps.dedup();
        let mut points = Vec::new();
        for step in steps {
            let mut excess: Vec<i64> = Vec::new();
            for _ in 0..CURVE_TURNS {
                self.fill();
                let usual = self.clipped_pass().zip(self.clipped_pass());
                self.displace(step);
                let after = self.clipped_pass();
                let found = usual.zip(after).and_then(|((one, other), after)| {
                    after.excess_cycles(one.and(other), self.scale)
                });
                excess.extend(found.map(|cycles| cycles.round() as i64));
            }
            excess.sort_unstable();
            if let Some(median) = excess.get(excess.len() / 2) {
                points.push((step * per_chunk, *median as f64));
            }
        }
        Curve { points }
    }
}
