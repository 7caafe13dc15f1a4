//! A cache level's touch loop, of data or of code, and the loop that displaces known numbers of its lines.
//!
//! `footprint` measures the time of these instructions. They have a crate of their own so that each build has
//! the same instructions: tests compile the rest of the live bench with less optimisation.

pub mod clock;
mod lines;
pub mod memory;
mod window;

use std::io;

use lab::footprint::{Curve, Geometry, Level, Method};
use stats::Random;

pub use self::lines::Shape;
use self::lines::{CodeLines, DataLines, Touch};
use self::memory::Pages;
pub use self::window::{ChunkLimits, ChunkTotals, Window, WindowConfig, wait_for_interrupt};
use self::window::{basic, fill, pass, pass_times, refined};

/// Points of the curve in addition to that of no lines.
const CURVE_STEPS: u64 = 16;
/// Passes from which the usual time of a chunk is computed.
const USUAL_PASSES: usize = 32;
/// Approximate maximum of chunks in a pass: with more, the clock readings dominate.
const CHUNKS_MAX: usize = 1024;
/// Lines of a chunk where the clock does not resolve fewer of them.
const MANY_LINES: usize = 32;
/// Least cost of a displaced line, cycles of the clock, at which single lines are distinguishable.
const LINE_CYCLES_MIN: f64 = 3.0;

/// Counts the misses of this thread in user mode.
pub trait MissCounter {
    /// Starts at zero.
    ///
    /// Fails when the counter can't be started.
    fn start(&mut self) -> io::Result<()>;

    /// Stops, and returns the number of misses.
    ///
    /// Fails when the counter can't be stopped or read.
    fn stop(&mut self) -> io::Result<u64>;
}

/// Limits of the times of interrupts, cycles.
#[derive(Clone, Copy, Debug)]
pub struct InterruptTimes {
    /// Duration of the shortest interrupt. A chunk may be interrupted only if it takes longer.
    pub shortest_cycles: u64,
    /// A chunk was interrupted if it also took longer than this many displaced lines.
    pub gap_lines: f64,
    /// Shortest time from the request of an interrupt to its arrival. A longer refill does not fit between them.
    pub delay_cycles: u64,
}

enum Lines {
    Data(DataLines),
    Code(CodeLines),
}

/// Runs the same code with either kind of lines.
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

/// The touch loop of a level, with its calibration.
pub struct Loop {
    lines: Lines,
    conflicting: Lines,
    shape: Shape,
    /// Chooses the order of the curve's points.
    seed: u64,
    /// Limits of a chunk's time in a pass.
    limits: ChunkLimits,
    /// Limits in a window, which does more after each chunk.
    pub in_window: ChunkLimits,
    /// Median time of a pass with nothing displaced, cycles.
    pub pass_cycles: u64,
    /// Median time of a pass with all lines displaced, cycles.
    displaced_cycles: u64,
    /// A longer refill does not fit between the request of an interrupt and its arrival.
    quick_cycles: u64,
}

/// The placement of a level's lines in memory.
#[must_use]
pub fn shape(level: Level, geometry: Geometry) -> Shape {
    let saturated = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Shape {
        sets: saturated(geometry.sets()),
        ways: geometry.ways,
        line_bytes: geometry.line_bytes,
        skew_bytes: if level.is_tlb() { 64 } else { 0 },
        from_bytes: 0,
    }
}

impl Loop {
    /// Allocates both loops and calibrates them.
    ///
    /// Fails when there is no memory, or no executable memory.
    pub fn new(
        level: Level,
        geometry: Geometry,
        seed: u64,
        interrupts: InterruptTimes,
    ) -> io::Result<Self> {
        let shape = shape(level, geometry);
        let lines_min = (shape.lines() as usize / CHUNKS_MAX).max(1);
        let looping = Self::in_chunks(level, shape, geometry, seed, (lines_min, interrupts))?;
        if looping.line_cycles() >= LINE_CYCLES_MIN {
            return Ok(looping);
        }
        let many = (MANY_LINES.max(lines_min), interrupts);
        Self::in_chunks(level, shape, geometry, seed, many)
    }

    fn in_chunks(
        level: Level,
        shape: Shape,
        geometry: Geometry,
        seed: u64,
        (chunk_lines, interrupts): (usize, InterruptTimes),
    ) -> io::Result<Self> {
        let lines = Lines::new(level, shape, seed, chunk_lines)?;
        // One line after the other, in no order of sets, as a handler's lines are.
        let conflicting_shape =
            Shape { ways: shape.lines(), sets: 1, from_bytes: geometry.size_bytes, ..shape };
        let conflicting = Lines::new(level, conflicting_shape, !seed, MANY_LINES)?;
        let mut looping = Loop {
            lines,
            conflicting,
            shape,
            seed,
            limits: ChunkLimits::default(),
            in_window: ChunkLimits::default(),
            pass_cycles: 0,
            displaced_cycles: 0,
            quick_cycles: interrupts.delay_cycles,
        };
        looping.measure_chunks(interrupts);
        looping.measure_window();
        Ok(looping)
    }

    /// The cost of a displaced line, cycles.
    fn line_cycles(&self) -> f64 {
        (self.displaced_cycles as f64 - self.pass_cycles as f64) / self.lines() as f64
    }

    /// Lines between two readings of the clock.
    #[must_use]
    pub fn chunk_lines(&self) -> u64 {
        with_lines!(&self.lines, touch => touch.chunk_lines())
    }

    #[must_use]
    pub fn chunks(&self) -> u64 {
        with_lines!(&self.lines, touch => touch.chunks())
    }

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
        with_lines!(&mut self.conflicting, touch => {
            touch.rewind(); // touches each line once
            (0..chunks).for_each(|_| touch.chunk());
        });
    }

    /// Runs a control window, which brings its code into the caches.
    pub fn warm_up(&mut self) -> Window {
        let pass = self.pass_cycles.max(1);
        let config = WindowConfig {
            limits: self.in_window,
            window_cycles: 4 * pass,
            sham_cycles: Some(2 * pass),
            warm_passes: 1,
            rest_passes: Some(0),
        };
        with_lines!(&mut self.lines, touch => refined(touch, config))
    }

    /// Displaces all lines, then touches them from the first one on. The order of lines that enter a set
    /// decides whether each displaced line costs one miss ([`lab::footprint::order`]).
    pub fn refill(&mut self) {
        let all = with_lines!(&self.conflicting, touch => touch.chunks());
        self.displace(all);
        with_lines!(&mut self.lines, touch => {
            touch.rewind();
            fill(touch);
        });
    }

    /// Two untimed passes, with a refill where that is fast enough.
    pub fn fill(&mut self) {
        if self.displaced_cycles <= self.quick_cycles {
            self.refill();
        } else {
            with_lines!(&mut self.lines, touch => fill(touch));
        }
    }

    /// Runs a window by that method.
    pub fn window(&mut self, method: Method, config: WindowConfig) -> Window {
        with_lines!(&mut self.lines, touch => match method {
            Method::Basic => basic(touch, config),
            Method::Refined => refined(touch, config),
        })
    }

    fn pass_times(&mut self, times: &mut [u64]) {
        with_lines!(&mut self.lines, touch => pass_times(touch, times));
    }

    fn clipped_pass(&mut self) -> Option<ChunkTotals> {
        let limits = self.limits;
        with_lines!(&mut self.lines, touch => pass(touch, limits))
    }

    /// The median time of a pass after `prepare`, without limits.
    fn median_pass(&mut self, prepare: impl Fn(&mut Self)) -> u64 {
        self.limits = ChunkLimits { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let mut passes: Vec<u64> = Vec::new();
        for _ in 0..USUAL_PASSES {
            prepare(self);
            passes.extend(self.clipped_pass().map(|sum| sum.cycles));
        }
        passes.sort_unstable();
        passes[passes.len() / 2]
    }

    fn measure_chunks(&mut self, interrupts: InterruptTimes) {
        let all = with_lines!(&self.conflicting, touch => touch.chunks());
        self.pass_cycles = self.median_pass(Self::fill);
        self.displaced_cycles = self.median_pass(|looping| {
            looping.fill();
            looping.displace(all);
        });
        let usual = self.chunk_times(Self::fill);
        let displaced = self.chunk_times(|looping| {
            looping.fill();
            looping.displace(all);
        });
        // Not the maximum: that chunk may have been interrupted.
        let (next, most) = (displaced[displaced.len() / 2], displaced[displaced.len() * 99 / 100]);
        let stopped = next + (self.line_cycles().max(0.0) * interrupts.gap_lines) as u64;
        // Means, because a clock with coarse steps has no medians between them.
        let near = |times: &[u64]| {
            let near = &times[..times.partition_point(|time| *time <= most)];
            near.iter().sum::<u64>() as f64 / near.len() as f64
        };
        let displaced = (near(&displaced) - near(&usual)).max(0.0) as u64;
        let limits = ChunkLimits {
            gap: stopped.max(interrupts.shortest_cycles),
            far: most + displaced / 2,
            displaced,
        };
        // Storing the times changes the time of a chunk.
        let longer = self.pass_cycles as f64 / self.chunks() as f64 - near(&usual);
        self.limits = limits.of_slower_loop(longer.max(0.0) as u64);
    }

    /// The sorted times of chunks after `prepare`.
    fn chunk_times(&mut self, prepare: impl Fn(&mut Self)) -> Vec<u64> {
        let mut all = Vec::new();
        // One buffer for all: new memory would come from beyond the next level.
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

    /// Measures the additional time of a chunk in a window.
    fn measure_window(&mut self) {
        let usual = self.pass_cycles as f64 / self.chunks() as f64;
        self.in_window = ChunkLimits { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let chunk = |looping: &mut Self| looping.warm_up().before.chunk_cycles();
        let mut chunks: Vec<f64> = (0..USUAL_PASSES).filter_map(|_| chunk(self)).collect();
        chunks.sort_unstable_by(f64::total_cmp);
        let longer = chunks.get(chunks.len() / 2).map_or(0.0, |chunk| chunk - usual);
        self.in_window = self.limits.of_slower_loop(longer.max(0.0) as u64);
    }

    /// User-mode misses of a pass directly after starting the counters, median: the lines that starting
    /// them displaces (the paper's Table 2).
    ///
    /// Fails when the counters can't be read.
    pub fn start_misses(
        &mut self,
        counter: &mut dyn MissCounter,
        repetitions: usize,
    ) -> io::Result<u64> {
        let mut misses = Vec::new();
        for _ in 0..repetitions {
            self.fill();
            counter.start()?;
            with_lines!(&mut self.lines, touch => (0..touch.chunks()).for_each(|_| touch.chunk()));
            misses.push(counter.stop()?);
        }
        misses.sort_unstable();
        Ok(misses[misses.len() / 2])
    }

    /// The excess time of a pass, for different numbers of lines displaced before it: none, and one to all
    /// sixteenths of the lines. Each repetition covers all numbers, in random order. So a drift during the
    /// curve is in the spread of every point, and not in the slope. `step_cycles`: the step of the clock, which
    /// limits the resolution of a pass.
    pub fn curve(&mut self, step_cycles: u64, repetitions: usize) -> Curve {
        let all = with_lines!(&self.conflicting, touch => touch.chunks());
        let per_chunk = self.lines() / all.max(1);
        let mut steps: Vec<u64> = (0..=CURVE_STEPS).map(|part| all * part / CURVE_STEPS).collect();
        steps.dedup();
        let mut points: Vec<(u64, Vec<i64>)> = steps
            .iter()
            .map(|step| (step * per_chunk, Vec::with_capacity(repetitions)))
            .collect();
        let mut order: Vec<usize> = (0..steps.len()).collect();
        let mut random = Random::new(self.seed);
        for _ in 0..repetitions {
            random.shuffle(&mut order);
            for &at in &order {
                let excess = self.excess_after(steps[at]);
                points[at].1.extend(excess.map(|cycles| cycles.round() as i64));
            }
        }
        Curve::new(points).by_clock(step_cycles)
    }

    /// The excess of a pass after a number of chunks of conflicting lines, cycles; `None` if it was interrupted.
    fn excess_after(&mut self, chunks: u64) -> Option<f64> {
        self.fill();
        let usual = self.clipped_pass().zip(self.clipped_pass());
        self.displace(chunks);
        let after = self.clipped_pass();
        let ((one, other), after) = usual.zip(after)?;
        after.excess_cycles(one.and(other), self.limits)
    }
}
