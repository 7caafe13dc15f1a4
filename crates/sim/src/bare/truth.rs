//! Accuracy of the methods of `footprint`. A handler touches a known number of lines, and the estimates from
//! user-level measurements are compared with the number of lines that it displaced. `irqlab sim bare` prints the
//! result.

use std::collections::HashMap;

use lab::footprint::Curve;
use lab::footprint::estimate::{self, Mean};

use super::footprint::{
    By, FootprintSettings, Footprints, Geometry, Level, Method, Own, Repetition, footprint,
};
use crate::qemu::Qemu;
use crate::{Cache, Result, SimError};

/// The parameters of an accuracy measurement.
#[derive(Clone, Debug)]
pub struct TruthSettings {
    /// Model, level, repetitions, slice and limits. [`Truth`] overwrites the other settings.
    pub of: FootprintSettings,
    /// Points of the calibration curve, in addition to zero lines; above 0.
    pub curve_points: u64,
}

/// The number of displaced lines: the truth, and the number that counters of user mode found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Lines of the program that were displaced, also by the handler's own code and data. The number depends
    /// on the address of the handler's stack, and so on the method.
    pub truth: u64,
    /// Misses of the program minus the misses of the control.
    pub found: i64,
}

impl Counted {
    /// Returns found minus true lines.
    #[must_use]
    pub fn error(&self) -> i64 {
        self.found - self.truth as i64
    }

    /// Returns whether the error is within 2 lines or 1 %.
    #[must_use]
    pub fn holds(&self) -> bool {
        let error = self.error().unsigned_abs();
        error <= 2 || error * 100 <= self.truth
    }
}

/// The results for a handler that touches a known number of lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Lines that the handler was configured to touch.
    pub handler_lines: u64,
    /// Displaced lines, counted with the refined method.
    pub refined: Counted,
    /// Displaced lines, counted with the basic method.
    pub basic: Counted,
    /// Displaced lines, estimated from time with the basic method. Absent below the detection limit, or if the
    /// time is longer than for all lines of the cache.
    pub timed: Option<f64>,
    /// The detection limit of the estimate from time, lines. `None` if it is above the cache's number of lines: then no
    /// number of lines is distinguishable from none.
    pub limit: Option<f64>,
}

impl Point {
    /// Returns the relative error of the estimate from time; `None` without an estimate, or if no line was
    /// displaced.
    #[must_use]
    pub fn timed_error_ratio(&self) -> Option<f64> {
        let truth = self.basic.truth as f64;
        let timed = self.timed?;
        (truth > 0.0).then(|| (timed - truth) / truth)
    }

    /// Returns whether the estimate from time is within 10 %, or within one line, of the truth. An absent
    /// estimate passes if the truth is below the detection limit.
    #[must_use]
    pub fn time_holds(&self) -> bool {
        let truth = self.basic.truth as f64;
        match self.timed {
            Some(timed) => (timed - truth).abs() <= (0.1 * truth).max(1.0),
            // The limit itself may have an error of 10 %.
            None => self.limit.is_none_or(|limit| truth <= 1.1 * limit),
        }
    }
}

/// Bytes on the stack: registers that the handler saves, and the interrupt's frame.
const SAVED_BYTES: u64 = 72 + 40;
/// Bytes of its table that the handler uses.
const WORK_BYTES: u64 = 48;
/// Bytes of the gate that a processor reads at the entry of a handler (Intel SDM, volume 3, 6.14).
const GATE_BYTES: u64 = 16;
const DESCRIPTOR_BYTES: u64 = 8;
/// Addresses of the handler's first data line and first instruction line. `crates/bare` has the same addresses.
const HANDLER_DATA_AT: u64 = (16 << 20) + (256 << 10);
const HANDLER_CODE_AT: u64 = (32 << 20) + (384 << 10);
/// Number of passes over all lines in the refined method.
const PASSES: u64 = 8;

/// Returns how many lines a handler displaces from a full cache. In each set it displaces one line for each
/// line that it touches, at most all ways. The `handler_lines` are consecutive, so they fill the sets evenly.
/// `handler` has the addresses of the handler's own code and data.
#[must_use]
pub fn displaced(cache: Geometry, level: Level, handler_lines: u64, handler: Own) -> u64 {
    let data = [
        (handler.stack, SAVED_BYTES),
        (handler.work, WORK_BYTES),
        (handler.gate, GATE_BYTES),
        (handler.descriptor, DESCRIPTOR_BYTES),
    ];
    let code = [(handler.code, handler.code_end.saturating_sub(handler.code))];
    let (first_address, ranges) = match level {
        Level::L1d => (HANDLER_DATA_AT, data.to_vec()),
        Level::L1i => (HANDLER_CODE_AT, code.to_vec()),
        Level::L2 => (HANDLER_DATA_AT, [&data[..], &code[..]].concat()),
    };
    let line_bytes = cache.line_bytes;
    let first_line = first_address / line_bytes;
    let mut lines: Vec<u64> = (first_line..first_line + handler_lines).collect();
    for (address, bytes) in ranges.into_iter().filter(|(_, bytes)| *bytes > 0) {
        lines.extend(address / line_bytes..=(address + bytes - 1) / line_bytes);
    }
    lines.sort_unstable();
    lines.dedup();
    let mut lines_by_set: HashMap<u64, u64> = HashMap::new();
    for line in lines {
        *lines_by_set.entry(line % cache.sets()).or_default() += 1;
    }
    lines_by_set.values().map(|touched_lines| (*touched_lines).min(cache.ways)).sum()
}

/// Measures handlers that touch a known number of lines.
#[derive(Debug)]
pub struct Truth<'a> {
    cache: &'a Cache,
    qemu: &'a Qemu,
    settings: TruthSettings,
    curve: Curve,
}

impl<'a> Truth<'a> {
    /// Chooses when interrupts arrive, and measures the cost of displaced lines. Runs the machine once to choose, once
    /// without displaced lines, and once for each point of the curve; the first run must come first, because it sets the
    /// delay of the others. Returns `None` if `stop` returned true.
    ///
    /// Fails as [`footprint`] does.
    pub fn new(
        cache: &'a Cache,
        qemu: &'a Qemu,
        settings: TruthSettings,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Self>> {
        let mut truth = Truth { cache, qemu, settings, curve: Curve::default() };
        let settings = &mut truth.settings.of;
        settings.events = vec![event(settings.level)];
        (settings.passes, settings.delay_ns, settings.wait_ns) = (PASSES, 1, 1);
        let Some(first_run) = truth.measure(Method::Basic, By::Program, 0, stop)? else {
            return Ok(None);
        };
        // The interrupt arrives in the fourth of eight passes, or in the middle of the waiting time.
        let pass_ns = first_run
            .repetitions
            .iter()
            .map(|repetition| repetition.touch)
            .max()
            .unwrap_or(0)
            .max(1);
        let settings = &mut truth.settings.of;
        (settings.delay_ns, settings.wait_ns) = (7 * pass_ns / 2, 7 * pass_ns);
        let (line_count, step_count) =
            (settings.geometry().lines(), truth.settings.curve_points.max(1));
        let mut points = Vec::new();
        for step in 0..=step_count {
            let handler_lines = line_count * step / step_count;
            let run = truth.measure(Method::Basic, By::Program, handler_lines, stop)?;
            let Some(run) = run else { return Ok(None) };
            points.push((handler_lines, excesses(&run.repetitions)));
        }
        truth.curve = Curve::new(points);
        Ok(Some(truth))
    }

    /// Returns the calibration curve.
    #[must_use]
    pub fn curve(&self) -> &Curve {
        &self.curve
    }

    /// Measures a handler that touches `handler_lines` lines. Returns `None` if `stop` returned true.
    ///
    /// Fails as [`footprint`] does, and when an interrupt did not arrive in its phase.
    pub fn point(&self, handler_lines: u64, stop: &dyn Fn() -> bool) -> Result<Option<Point>> {
        let basic = self.measure(Method::Basic, By::Interrupt, handler_lines, stop)?;
        let refined = self.measure(Method::Refined, By::Interrupt, handler_lines, stop)?;
        let Some((basic, refined)) = basic.zip(refined) else { return Ok(None) };
        let settings = &self.settings.of;
        let count_misses = |run: &Footprints| -> Result<Counted> {
            let (misses, _) = excess(&run.repetitions, |repetition| repetition.read[0])?;
            let truth = displaced(settings.geometry(), settings.level, handler_lines, run.own);
            Ok(Counted { truth, found: misses.mean.round() as i64 })
        };
        let (mut extra_time, _) = excess(&basic.repetitions, touch)?;
        // The clock advances in slices, so a difference of two times has an error of up to two slices.
        let slice_ns =
            settings.vcpu_slice as f64 * 1e9 / settings.model.model.clock_hz.max(1) as f64;
        extra_time.half_width = extra_time.half_width.hypot(2.0 * slice_ns);
        let lines =
            estimate::estimate_displaced_lines(extra_time, &self.curve).ok_or_else(|| {
                SimError::data(
                    "the curve",
                    "displaced lines take no longer than others (choose more repetitions)",
                )
            })?;
        Ok(Some(Point {
            handler_lines,
            refined: count_misses(&refined)?,
            basic: count_misses(&basic)?,
            timed: lines.count,
            limit: lines.limit_in_level(),
        }))
    }

    /// Runs the machine with these settings. Returns `None` if `stop` returned true. Fails if an interrupt
    /// did not arrive in its phase.
    fn measure(
        &self,
        method: Method,
        by: By,
        handler_lines: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Footprints>> {
        let mut settings = FootprintSettings { method, by, ..self.settings.of.clone() };
        (settings.data_lines, settings.code_lines) = match settings.level {
            Level::L1i => (0, handler_lines),
            Level::L1d | Level::L2 => (handler_lines, 0),
        };
        let run = footprint(self.cache, self.qemu, &settings, stop)?;
        let Some(run) = run else { return Ok(None) };
        let has_expected_runs = |repetition: &Repetition| {
            repetition.ran == u64::from(repetition.irq && by == By::Interrupt)
        };
        if !run.repetitions.iter().all(has_expected_runs) {
            let reason = "an interrupt did not arrive while all lines were touched";
            return Err(SimError::data("the bare machine", reason));
        }
        Ok(Some(run))
    }
}

/// Returns the event select for misses of a cache in user mode (docs/guest-pmu.md).
fn event(level: Level) -> u64 {
    const USER: u64 = 1 << 16 | 1 << 22;
    match level {
        Level::L1d => USER | 0xc860,
        Level::L1i => USER | 0x81,
        Level::L2 => USER | 0xf << 32 | 0x05,
    }
}

/// The time of the last pass over the lines, ns.
fn touch(repetition: &Repetition) -> u64 {
    repetition.touch
}

/// Returns the mean of a value with an interrupt minus its mean without an interrupt; and the mean without an
/// interrupt.
fn excess(repetitions: &[Repetition], value: fn(&Repetition) -> u64) -> Result<(Mean, Mean)> {
    let mean_of = |irq: bool| {
        let selected = repetitions.iter().filter(|repetition| repetition.irq == irq);
        estimate::mean(&selected.map(|repetition| value(repetition) as f64).collect::<Vec<_>>())
    };
    let both = mean_of(true).zip(mean_of(false));
    let found = both.and_then(|(irq, idle)| Some((estimate::difference(irq, idle)?, idle)));
    found.ok_or_else(|| SimError::data("the bare machine", "fewer than two repetitions"))
}

/// Returns the extra time of the last pass, for each repetition with an interrupt that follows a repetition
/// without one.
fn excesses(repetitions: &[Repetition]) -> Vec<i64> {
    let pairs = repetitions.windows(2).filter(|pair| !pair[0].irq && pair[1].irq);
    pairs.map(|pair| pair[1].touch.cast_signed() - pair[0].touch.cast_signed()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CACHE: Geometry = Geometry { bytes: 16 << 10, line_bytes: 16, ways: 2 };

    #[test]
    fn lines_of_a_set_are_displaced_once_each() {
        let (gate, descriptor) = ((3 << 30) + 100 * 16, (3 << 30) + 101 * 16);
        let nothing = Own { stack: 1 << 30, code: 0, code_end: 0, work: 2 << 30, gate, descriptor };
        let by_handler_alone = displaced(CACHE, Level::L1d, 0, nothing);
        assert_eq!(by_handler_alone, 7 + 3 + 2);
        assert_eq!(displaced(CACHE, Level::L1d, 1024, nothing), 1024);
        assert_eq!(displaced(CACHE, Level::L1i, 100, nothing), 100);
        // One in each set, and the handler's own; then no more room in the first sets.
        assert_eq!(displaced(CACHE, Level::L1d, 512, nothing), 512 + 7 + 2);
        let direct = Geometry { ways: 1, ..CACHE };
        assert_eq!(displaced(direct, Level::L1d, 1024, nothing), 1024);
    }

    #[test]
    fn inaccurate_results_do_not_pass() {
        let counted = Counted { truth: 100, found: 102 };
        assert!(counted.holds() && !Counted { found: 103, ..counted }.holds());
        let point = Point {
            handler_lines: 90,
            refined: counted,
            basic: counted,
            timed: None,
            limit: Some(9.0),
        };
        assert!(!point.time_holds());
        assert!(Point { timed: Some(91.0), ..point }.time_holds());
        assert!(!Point { timed: Some(111.0), ..point }.time_holds());
        let few_lines = Point { basic: Counted { truth: 9, found: 9 }, ..point };
        assert!(few_lines.time_holds() && !Point { timed: Some(20.0), ..few_lines }.time_holds());
    }

    proptest! {
        #[test]
        fn at_most_all_lines_are_displaced_and_never_fewer_by_more(handler_lines in 0..3000_u64, more in 0..99_u64,
            stack: u32, work: u32, gate: u32, descriptor: u32) {
            let (gate, descriptor) = (gate.into(), descriptor.into());
            let handler = Own { stack: stack.into(), code: 0, code_end: 0, work: work.into(), gate, descriptor };
            let found = displaced(CACHE, Level::L1d, handler_lines, handler);
            prop_assert!(found <= CACHE.lines() && found >= handler_lines.min(CACHE.lines()));
            prop_assert!(found <= displaced(CACHE, Level::L1d, handler_lines + more, handler));
        }
    }
}
