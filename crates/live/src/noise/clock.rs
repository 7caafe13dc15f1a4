//! The loops' clock: the time-stamp counter, and its way to the kernel's clock.

use super::loops::turn_of_detour;
use super::place::pin;
use crate::handlers::tsc::Reading;

/// The counter. 0 on a processor without one: the bench refuses such a machine before.
#[inline]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC has no effect but its result; it is part of every x86-64 processor.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The counter, after everything before it is done.
#[inline]
pub fn now_after_work() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: LFENCE has no effect but order; SSE2 is part of every x86-64 processor.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    now()
}

/// What the clock can tell apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grain {
    /// Frequency of the counter, Hz.
    pub hz: f64,
    /// Least difference of two readings, one after the other, that differ, ns: the counter's step,
    /// or the time that a reading takes.
    pub step_ns: f64,
    /// Time of a turn of the detour loop, cycles: that of [`grain_on`], or of readings alone.
    pub turn_cycles: u64,
}

impl Grain {
    /// Time of a turn of the detour loop, ns, rounded up.
    #[must_use]
    pub fn turn_ns(&self) -> u64 {
        (self.turn_cycles as f64 * 1e9 / self.hz).ceil() as u64
    }

    /// The shortest threshold at which a turn of the loop itself is no detour, ns.
    #[must_use]
    pub fn threshold_ns_min(&self) -> u64 {
        2 * self.turn_ns() + self.step_ns.ceil() as u64
    }

    /// ns in cycles, rounded to the nearest.
    #[must_use]
    pub fn cycles(&self, ns: u64) -> u64 {
        (ns as f64 * self.hz / 1e9).round() as u64
    }
}

/// Readings from which the grain is taken.
const READINGS: usize = 20_000;

/// Measures the grain on this thread's CPU; `None` without a counter.
#[must_use]
pub fn grain() -> Option<Grain> {
    let begun = Reading::now()?;
    let mut readings = vec![0_u64; READINGS];
    for reading in &mut readings {
        *reading = now();
    }
    let mut turns: Vec<u64> =
        readings.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    turns.sort_unstable();
    let hz = begun.frequency_hz()?;
    let step = turns.iter().copied().find(|turn| *turn > 0)?;
    let step_ns = step as f64 * 1e9 / hz;
    Some(Grain { hz, step_ns, turn_cycles: turns[turns.len() / 2].max(1) })
}

/// The grain of a CPU's clock, measured there.
#[must_use]
pub fn grain_on(cpu: u32) -> Option<Grain> {
    let measure = move || {
        pin(cpu).ok()?;
        Some(Grain { turn_cycles: turn_of_detour(cpu), ..grain()? })
    };
    std::thread::spawn(measure).join().ok().flatten()
}

/// Readings of both clocks during a window: a line between each two of them.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    points: Vec<(u64, u64)>,
}

impl Clocks {
    /// Reads both clocks now.
    pub fn read(&mut self) {
        if let Some(reading) = Reading::now() {
            self.add(reading.cycles(), reading.ns());
        }
    }

    fn add(&mut self, cycles: u64, ns: u64) {
        let later = self.points.last().is_none_or(|last| cycles > last.0 && ns > last.1);
        if later {
            self.points.push((cycles, ns));
        }
    }

    /// Forgets all readings but the last two that are not after `cycles`.
    pub fn forget_before(&mut self, cycles: u64) {
        let after = self.points.partition_point(|point| point.0 <= cycles);
        let drop = after.saturating_sub(1).min(self.points.len().saturating_sub(2));
        self.points.drain(..drop);
    }

    /// The kernel's clock at that count, ns: on the line between the readings around it, or on the
    /// last one. `None` before there are two readings.
    #[must_use]
    pub fn ns_at(&self, cycles: u64) -> Option<u64> {
        let after = self.points.partition_point(|point| point.0 <= cycles);
        let right = after.clamp(1, self.points.len().checked_sub(1)?.max(1));
        let (a, b) = (*self.points.get(right - 1)?, *self.points.get(right)?);
        let past = i128::from(cycles) - i128::from(a.0);
        let rise = i128::from(b.1 - a.1);
        let ns = i128::from(a.1) + (past * rise).div_euclid(i128::from(b.0 - a.0));
        u64::try_from(ns).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn this_machines_clock_has_a_grain() {
        let Some(grain) = grain() else { return println!("not run: no time-stamp counter") };
        assert!(grain.hz > 1e8 && grain.step_ns > 0.0, "{grain:?}");
        assert!(grain.threshold_ns_min() > grain.turn_ns());
    }

    proptest! {
        #[test]
        fn times_lie_between_the_readings_around_them(
            steps in prop::collection::vec((1u64..1 << 40, 1u64..1 << 40), 2..20), part in 0.0..1.0f64,
        ) {
            let mut clocks = Clocks::default();
            let mut at = (0, 0);
            for (cycles, ns) in steps {
                at = (at.0 + cycles, at.1 + ns);
                clocks.add(at.0, at.1);
            }
            for pair in clocks.points.clone().windows(2) {
                let (a, b) = (pair[0], pair[1]);
                let cycles = a.0 + ((b.0 - a.0) as f64 * part) as u64;
                let ns = clocks.ns_at(cycles).unwrap();
                prop_assert!(a.1 <= ns && ns <= b.1, "{} {:?} {:?}", ns, a, b);
            }
            let end = clocks.ns_at(at.0);
            clocks.forget_before(at.0);
            prop_assert_eq!(clocks.ns_at(at.0), end);
        }
    }
}
