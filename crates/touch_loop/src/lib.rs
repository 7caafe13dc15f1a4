//! The loop that the experiment `footprint` measures. It touches all lines of a cache level (data or code) in passes,
//! a *chunk* of lines at a time, and reads the clock after each chunk. A second loop displaces known numbers of lines,
//! for calibration: the *curve* of excess time over displaced lines.
//!
//! `live::footprint` uses [`Loop`], on one pinned thread. This is a crate of its own so that each build has the same
//! instructions: the workspace optimises it in tests, too.
//!
//! Invariant: the timed code stores nothing per chunk and touches no other memory, because that displaces lines.

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
pub use self::window::{
    ChunkLimits, ChunkTotals, TimedPass, Window, WindowConfig, wait_for_interrupt,
};
use self::window::{basic, fill, pass, pass_times, refined};

/// Points of the curve, without the point at which no lines are displaced.
const CURVE_STEPS: u64 = 16;
/// Passes from which the usual time of a chunk is computed.
const USUAL_PASSES: usize = 32;
/// Approximate maximum of chunks in a pass. With more chunks, the readings of the clock take most of the time.
const CHUNKS_MAX: usize = 1024;
/// Lines of a chunk where the clock does not resolve single lines.
const MANY_LINES: usize = 32;
/// Smallest cost of a displaced line at which the clock resolves single lines, cycles of the clock.
const LINE_CYCLES_MIN: f64 = 3.0;

/// Counts the calling thread's misses in user mode.
pub trait MissCounter {
    /// Starts counting from 0.
    ///
    /// Fails when the counter can't be started.
    fn start(&mut self) -> io::Result<()>;

    /// Stops, and returns the number of misses.
    ///
    /// Fails when the counter can't be stopped or read.
    fn stop(&mut self) -> io::Result<u64>;
}

/// Limits of the times of interrupts, from which the loop derives [`ChunkLimits`].
#[derive(Clone, Copy, Debug)]
pub struct InterruptTimes {
    /// Duration of the shortest interrupt. Only a longer chunk may have been interrupted.
    pub shortest_cycles: u64,
    /// Only a chunk that took longer than this many displaced lines may have been interrupted.
    pub gap_lines: f64,
    /// Shortest time from the request of an interrupt to its arrival. A longer refill does not fit in between.
    pub delay_cycles: u64,
}

enum Lines {
    Data(DataLines),
    Code(CodeLines),
}

/// Evaluates `$do` with the lines as `$touch`, a [`Touch`], for either kind of lines. A match instead of a trait object
/// keeps the calls inlined.
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
    /// The touched lines. They fill the level.
    lines: Lines,
    /// Other lines, which displace the touched lines.
    conflicting: Lines,
    shape: Shape,
    /// Chooses the order of the curve's points.
    seed: u64,
    /// Limits of a chunk's time in a pass.
    limits: ChunkLimits,
    /// Limits of a chunk's time in a window, which does more work after each chunk.
    pub in_window: ChunkLimits,
    /// Median time of a pass with nothing displaced, cycles.
    pub pass_cycles: u64,
    /// Median time of a pass with all lines displaced, cycles.
    displaced_cycles: u64,
    /// See [`InterruptTimes::delay_cycles`].
    refill_cycles_max: u64,
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
    /// Allocates both loops and calibrates them, with chunks of few lines where the clock resolves single lines.
    ///
    /// Fails when there is no memory, or no executable memory.
    pub fn new(
        level: Level,
        geometry: Geometry,
        seed: u64,
        interrupts: InterruptTimes,
    ) -> io::Result<Self> {
        let shape = shape(level, geometry);
        let chunk_lines_min = (shape.lines() as usize / CHUNKS_MAX).max(1);
        let level_loop =
            Self::in_chunks(level, shape, geometry, seed, (chunk_lines_min, interrupts))?;
        if level_loop.line_cycles() >= LINE_CYCLES_MIN {
            return Ok(level_loop);
        }
        let long_chunks = (MANY_LINES.max(chunk_lines_min), interrupts);
        Self::in_chunks(level, shape, geometry, seed, long_chunks)
    }

    fn in_chunks(
        level: Level,
        shape: Shape,
        geometry: Geometry,
        seed: u64,
        (chunk_lines, interrupts): (usize, InterruptTimes),
    ) -> io::Result<Self> {
        let lines = Lines::new(level, shape, seed, chunk_lines)?;
        // Consecutive lines, not ordered by set, like the lines of an interrupt handler.
        let conflicting_shape =
            Shape { ways: shape.lines(), sets: 1, from_bytes: geometry.size_bytes, ..shape };
        let conflicting = Lines::new(level, conflicting_shape, !seed, MANY_LINES)?;
        let mut level_loop = Loop {
            lines,
            conflicting,
            shape,
            seed,
            limits: ChunkLimits::default(),
            in_window: ChunkLimits::default(),
            pass_cycles: 0,
            displaced_cycles: 0,
            refill_cycles_max: interrupts.delay_cycles,
        };
        level_loop.measure_chunks(interrupts);
        level_loop.measure_window();
        Ok(level_loop)
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
    pub fn chunk_count(&self) -> u64 {
        with_lines!(&self.lines, touch => touch.chunk_count())
    }

    #[must_use]
    pub fn lines(&self) -> u64 {
        u64::from(self.shape.lines())
    }

    /// The kind of pages that contain the lines.
    #[must_use]
    pub fn pages(&self) -> Pages {
        with_lines!(&self.lines, touch => touch.pages())
    }

    /// Touches this number of chunks of conflicting lines, each line once.
    fn displace(&mut self, chunks: u64) {
        with_lines!(&mut self.conflicting, touch => {
            touch.rewind();
            (0..chunks).for_each(|_| touch.touch_next_chunk());
        });
    }

    /// Runs a control window, which brings a window's code into the caches.
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

    /// Displaces all lines, then touches them in two untimed passes from the first line on. A defined
    /// order in each set is necessary: it decides whether each displaced line costs one miss ([`lab::footprint::order`]).
    pub fn displace_and_fill(&mut self) {
        let conflicting_chunks = with_lines!(&self.conflicting, touch => touch.chunk_count());
        self.displace(conflicting_chunks);
        with_lines!(&mut self.lines, touch => {
            touch.rewind();
            fill(touch);
        });
    }

    /// Brings all lines into the level, in two untimed passes. Displaces all lines first, as
    /// [`Loop::displace_and_fill`] does, unless a pass over displaced lines takes longer than an interrupt may be delayed.
    pub fn fill(&mut self) {
        if self.displaced_cycles <= self.refill_cycles_max {
            self.displace_and_fill();
        } else {
            with_lines!(&mut self.lines, touch => fill(touch));
        }
    }

    /// Runs a window by this method.
    pub fn window(&mut self, method: Method, config: WindowConfig) -> Window {
        with_lines!(&mut self.lines, touch => match method {
            Method::Basic => basic(touch, config),
            Method::Refined => refined(touch, config),
        })
    }

    fn pass_times(&mut self, times: &mut [u64]) {
        with_lines!(&mut self.lines, touch => pass_times(touch, times));
    }

    /// The times of one pass; `None` if it was interrupted.
    fn timed_pass(&mut self) -> Option<ChunkTotals> {
        let limits = self.limits;
        with_lines!(&mut self.lines, touch => pass(touch, limits))
    }

    /// The median time of a pass after `prepare`, cycles. Every pass counts, also an interrupted one.
    fn median_pass(&mut self, prepare: impl Fn(&mut Self)) -> u64 {
        self.limits = ChunkLimits { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let mut passes: Vec<u64> = Vec::new();
        for _ in 0..USUAL_PASSES {
            prepare(self);
            passes.extend(self.timed_pass().map(|sum| sum.cycles));
        }
        passes.sort_unstable();
        passes[passes.len() / 2]
    }

    /// Measures the times of passes and chunks with no line and with all lines displaced, and derives the limits of a
    /// chunk's time from them.
    fn measure_chunks(&mut self, interrupts: InterruptTimes) {
        let all = with_lines!(&self.conflicting, touch => touch.chunk_count());
        self.pass_cycles = self.median_pass(Self::fill);
        self.displaced_cycles = self.median_pass(|level_loop| {
            level_loop.fill();
            level_loop.displace(all);
        });
        let usual = self.chunk_times(Self::fill);
        let displaced = self.chunk_times(|level_loop| {
            level_loop.fill();
            level_loop.displace(all);
        });
        // The 99th percentile instead of the maximum: that chunk may have been interrupted.
        let (displaced_median, displaced_p99) =
            (displaced[displaced.len() / 2], displaced[displaced.len() * 99 / 100]);
        let interrupted =
            displaced_median + (self.line_cycles().max(0.0) * interrupts.gap_lines) as u64;
        // Means of the undisturbed chunks. Medians would be whole steps of a clock with coarse steps.
        let mean = |times: &[u64]| {
            let near = &times[..times.partition_point(|time| *time <= displaced_p99)];
            near.iter().sum::<u64>() as f64 / near.len() as f64
        };
        let displaced = (mean(&displaced) - mean(&usual)).max(0.0) as u64;
        let limits = ChunkLimits {
            gap: interrupted.max(interrupts.shortest_cycles),
            far: displaced_p99 + displaced / 2,
            displaced,
        };
        // A pass that does not store the time of each chunk has another time per chunk.
        let additional = self.pass_cycles as f64 / self.chunk_count() as f64 - mean(&usual);
        self.limits = limits.of_slower_loop(additional.max(0.0) as u64);
    }

    /// The times of all chunks of [`USUAL_PASSES`] passes, each after `prepare`; sorted.
    fn chunk_times(&mut self, prepare: impl Fn(&mut Self)) -> Vec<u64> {
        let mut all = Vec::new();
        // One buffer for all passes: writing new memory would miss the next level, too.
        let mut times = vec![0; self.chunk_count() as usize];
        self.pass_times(&mut times);
        for _ in 0..USUAL_PASSES {
            prepare(self);
            self.pass_times(&mut times);
            all.extend_from_slice(&times);
        }
        all.sort_unstable();
        all
    }

    /// Measures the additional time of a chunk in a window, and derives the limits in a window.
    fn measure_window(&mut self) {
        let usual = self.pass_cycles as f64 / self.chunk_count() as f64;
        self.in_window = ChunkLimits { gap: u64::MAX, far: u64::MAX, displaced: 0 };
        let chunk = |level_loop: &mut Self| level_loop.warm_up().before.chunk_cycles();
        let mut chunks: Vec<f64> = (0..USUAL_PASSES).filter_map(|_| chunk(self)).collect();
        chunks.sort_unstable_by(f64::total_cmp);
        let additional = chunks.get(chunks.len() / 2).map_or(0.0, |chunk| chunk - usual);
        self.in_window = self.limits.of_slower_loop(additional.max(0.0) as u64);
    }

    /// The median number of user-mode misses in a pass directly after the counters were started. These are the lines
    /// that starting the counters displaces (the paper's Table 2).
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
            with_lines!(&mut self.lines, touch => (0..touch.chunk_count()).for_each(|_| touch.touch_next_chunk()));
            misses.push(counter.stop()?);
        }
        misses.sort_unstable();
        Ok(misses[misses.len() / 2])
    }

    /// Measures the calibration curve: the excess time of a pass over the number of lines displaced before it, 0 to 16
    /// sixteenths of the lines. `step_cycles`: the step of the clock, which limits the resolution of a pass.
    ///
    /// Each repetition measures all points, in random order. A drift during the measurement then widens the spread of
    /// every point, and does not change the slope.
    pub fn curve(&mut self, step_cycles: u64, repetitions: usize) -> Curve {
        let all = with_lines!(&self.conflicting, touch => touch.chunk_count());
        let per_chunk = self.lines() / all.max(1);
        let mut steps: Vec<u64> = (0..=CURVE_STEPS).map(|part| all * part / CURVE_STEPS).collect();
        steps.dedup();
        let mut points: Vec<(u64, Vec<i64>)> =
            steps.iter().map(|step| (step * per_chunk, Vec::with_capacity(repetitions))).collect();
        let mut order: Vec<usize> = (0..steps.len()).collect();
        let mut random = Random::new(self.seed);
        for _ in 0..repetitions {
            random.shuffle(&mut order);
            for &index in &order {
                let excess = self.excess_after(steps[index]);
                points[index].1.extend(excess.map(|cycles| cycles.round() as i64));
            }
        }
        Curve::new(points).by_clock(step_cycles)
    }

    /// The excess time of a pass after `chunks` chunks of conflicting lines, cycles. `None`: a pass was interrupted.
    fn excess_after(&mut self, chunks: u64) -> Option<f64> {
        self.fill();
        let usual = self.timed_pass().zip(self.timed_pass());
        self.displace(chunks);
        let after = self.timed_pass();
        let ((first, second), after) = usual.zip(after)?;
        after.excess_cycles(first.and(second), self.limits)
    }
}
