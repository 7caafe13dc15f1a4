//! The clocks of a measurement:
//! - the time-stamp counter (TSC): [`now`], its resolution ([`ClockResolution`]), and its conversion to the kernel's
//!   monotonic clock ([`ClockMap`]);
//! - the core's own clock ([`CoreClock`]);
//! - the counter's frequency over a run ([`FrequencyMeasurement`]);
//! - the accuracy of the kernel's clock ([`ClockState`]).
//!
//! Users: the loops of `noise` and `footprint`, which read the TSC, and `handlers`, which reports its frequency.

mod core;
mod frequency;
mod kernel;
mod rate;
mod wall;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub use self::core::{CoreClock, core_cycle, dependent_additions};
pub use self::frequency::FrequencyMeasurement;
pub(crate) use self::frequency::{disagreement, suspended_ns, suspension};
pub use self::kernel::KernelClock;
pub use self::rate::ClockState;
pub use self::wall::WallReading;
pub use touch_loop::clock::{now, now_after_work};

/// Least time between the two readings of a frequency measurement.
const FREQUENCY_TIME_MIN: Duration = Duration::from_millis(50);

/// The time-stamp counter and CLOCK_MONOTONIC, read at almost the same instant.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    cycles: u64,
    ns: u64,
    /// Cycles between the two readings of the counter, between which CLOCK_MONOTONIC was read.
    width_cycles: u64,
}

/// `CLOCK_MONOTONIC` of this process, ns. It may differ from the clock that BPF programs read: see [`KernelClock`].
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

impl Reading {
    /// Reads CLOCK_MONOTONIC 16 times between two readings of the counter. Returns the reading whose two counter values
    /// are closest. `None` on a processor without a time-stamp counter.
    #[must_use]
    pub fn now() -> Option<Self> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let bracket = || {
            let before = now();
            let ns = monotonic_ns();
            let after = now();
            let width_cycles = after.wrapping_sub(before);
            Reading { cycles: before.midpoint(after), ns, width_cycles }
        };
        (0..16).map(|_| bracket()).min_by_key(|reading| reading.width_cycles)
    }

    /// The time-stamp counter when CLOCK_MONOTONIC was read: the middle of its two readings.
    #[must_use]
    pub fn cycles(self) -> u64 {
        self.cycles
    }

    /// `CLOCK_MONOTONIC` of this process, ns.
    #[must_use]
    pub fn ns(self) -> u64 {
        self.ns
    }

    /// The counter's mean frequency since this reading, Hz. It is wrong if the machine was suspended or paused meanwhile:
    /// for a long time see [`FrequencyMeasurement`]. Sleeps until 50 ms have passed since then. `None` without a
    /// counter, or if a clock went backwards.
    #[must_use]
    pub fn frequency_hz(self) -> Option<f64> {
        let age = Duration::from_nanos(monotonic_ns().saturating_sub(self.ns));
        std::thread::sleep(FREQUENCY_TIME_MIN.saturating_sub(age));
        let end = Reading::now()?;
        let cycles = end.cycles.checked_sub(self.cycles)?;
        let ns = end.ns.checked_sub(self.ns)?;
        (ns > 0).then(|| cycles as f64 * 1e9 / ns as f64)
    }

    /// Like [`Reading::frequency_hz`], and does not sleep. `None` also if less than 50 ms have passed.
    #[must_use]
    pub fn frequency_so_far_hz(self) -> Option<f64> {
        let age = Duration::from_nanos(monotonic_ns().saturating_sub(self.ns));
        if age < FREQUENCY_TIME_MIN { None } else { self.frequency_hz() }
    }
}

/// The smallest times that a loop which reads the counter can distinguish.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockResolution {
    /// Frequency of the counter, Hz.
    pub hz: f64,
    /// Least nonzero difference between two consecutive readings, ns: the counter's step, or the
    /// time that one reading takes.
    pub step_ns: f64,
    /// The counter advances by multiples of this, cycles: the greatest common divisor of the differences.
    pub unit_cycles: u64,
    /// Time of one iteration of a loop that reads the clock, cycles.
    pub iteration_cycles: u64,
}

/// Consecutive readings from which the resolution is computed.
const READINGS: usize = 20_000;

impl ClockResolution {
    /// Measures the resolution on this thread's CPU, with a loop that only reads the counter. `None` without a counter, or if it does not advance.
    #[must_use]
    pub fn measure() -> Option<Self> {
        let start = Reading::now()?;
        let mut readings = vec![0_u64; READINGS];
        for reading in &mut readings {
            *reading = now();
        }
        let mut steps: Vec<u64> =
            readings.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        steps.sort_unstable();
        let hz = start.frequency_hz()?;
        let step = steps.iter().copied().find(|step| *step > 0)?;
        let step_ns = step as f64 * 1e9 / hz;
        let iteration_cycles = steps[steps.len() / 2].max(1);
        let unit_cycles = common_divisor(&steps);
        Some(ClockResolution { hz, step_ns, unit_cycles, iteration_cycles })
    }

    /// Time of one iteration of the reading loop, ns, rounded up.
    #[must_use]
    pub fn iteration_ns(&self) -> u64 {
        (self.iteration_cycles as f64 * 1e9 / self.hz).ceil() as u64
    }

    /// The shortest threshold for detours, ns. At a shorter one, undisturbed iterations would count as detours.
    #[must_use]
    pub fn threshold_ns_min(&self) -> u64 {
        2 * self.iteration_ns() + self.step_ns.ceil() as u64
    }

    /// Converts ns to cycles, rounded to the nearest.
    #[must_use]
    pub fn cycles(&self, ns: u64) -> u64 {
        (ns as f64 * self.hz / 1e9).round() as u64
    }
}

/// The greatest common divisor; 0 if all numbers are 0.
fn common_divisor(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |mut divisor, number| {
        let mut remainder = *number;
        while remainder > 0 {
            (divisor, remainder) = (remainder, divisor % remainder);
        }
        divisor
    })
}

/// Converts the time-stamp counter to the kernel's clock. Collects readings of both clocks during a window, and
/// interpolates linearly between them. The default assumes that the process's clock equals the kernel's.
#[derive(Clone, Debug, Default)]
pub struct ClockMap {
    kernel: KernelClock,
    /// Readings: the counter, and the kernel's clock in ns. Both ascend strictly.
    points: Vec<(u64, u64)>,
}

impl ClockMap {
    /// A map without readings. `kernel` converts this process's clock to the kernel's.
    #[must_use]
    pub fn new(kernel: KernelClock) -> Self {
        ClockMap { kernel, points: Vec::new() }
    }

    /// Reads both clocks now.
    pub fn read(&mut self) {
        if let Some(reading) = Reading::now() {
            self.add(reading.cycles(), self.kernel.from_process_ns(reading.ns()));
        }
    }

    /// Adds a reading. Ignores it unless both clocks have advanced since the last reading.
    fn add(&mut self, cycles: u64, ns: u64) {
        let is_later = self.points.last().is_none_or(|last| cycles > last.0 && ns > last.1);
        if is_later {
            self.points.push((cycles, ns));
        }
    }

    /// Drops the readings that no time from `cycles` on needs: those before the last reading at or before `cycles`.
    /// Keeps at least two readings.
    pub fn forget_before(&mut self, cycles: u64) {
        let first_later = self.points.partition_point(|point| point.0 <= cycles);
        let dropped = first_later.saturating_sub(1).min(self.points.len().saturating_sub(2));
        self.points.drain(..dropped);
    }

    /// The kernel's clock when the counter was `cycles`, ns. Interpolates between the readings before and after, or
    /// extrapolates from the two nearest. `None` before there are two readings.
    #[must_use]
    pub fn ns_at(&self, cycles: u64) -> Option<u64> {
        let first_later = self.points.partition_point(|point| point.0 <= cycles);
        let right = first_later.clamp(1, self.points.len().checked_sub(1)?.max(1));
        let (start_cycles, start_ns) = *self.points.get(right - 1)?;
        let (end_cycles, end_ns) = *self.points.get(right)?;
        let elapsed_cycles = i128::from(cycles) - i128::from(start_cycles);
        let interval_ns = i128::from(end_ns - start_ns);
        let interval_cycles = i128::from(end_cycles - start_cycles);
        let elapsed_ns = (elapsed_cycles * interval_ns).div_euclid(interval_cycles);
        let ns = i128::from(start_ns) + elapsed_ns;
        u64::try_from(ns).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_counter_advances_by_the_divisor_of_its_differences() {
        assert_eq!(common_divisor(&[0, 140, 145, 28_840]), 5);
        assert_eq!(common_divisor(&[60, 60, 80]), 20);
        assert_eq!((common_divisor(&[]), common_divisor(&[0, 7])), (0, 7));
    }

    #[test]
    fn this_machines_clock_has_a_resolution() {
        let Some(clock) = ClockResolution::measure() else {
            return needs::not_run(needs::Need::Tsc, "it cannot be measured");
        };
        assert!(clock.hz > 1e8 && clock.step_ns > 0.0, "{clock:?}");
        assert!(clock.threshold_ns_min() > clock.iteration_ns());
    }

    proptest! {
        #[test]
        fn times_lie_between_the_readings_around_them(
            steps in prop::collection::vec((1u64..1 << 40, 1u64..1 << 40), 2..20), part in 0.0..1.0f64,
        ) {
            let mut clocks = ClockMap::default();
            let mut reading = (0, 0);
            for (cycles, ns) in steps {
                reading = (reading.0 + cycles, reading.1 + ns);
                clocks.add(reading.0, reading.1);
            }
            for pair in clocks.points.clone().windows(2) {
                let (a, b) = (pair[0], pair[1]);
                let cycles = a.0 + ((b.0 - a.0) as f64 * part) as u64;
                let ns = clocks.ns_at(cycles).unwrap();
                prop_assert!(a.1 <= ns && ns <= b.1, "{} {:?} {:?}", ns, a, b);
            }
            let end = clocks.ns_at(reading.0);
            clocks.forget_before(reading.0);
            prop_assert_eq!(clocks.ns_at(reading.0), end);
        }
    }
}
