//! The frequency of the time-stamp counter over a whole run, and the check that both clocks ran all the time.
//!
//! CLOCK_MONOTONIC stands still while the machine is suspended, and jumps or stands still when a hypervisor pauses a
//! virtual machine. The counter usually goes on. Their ratio over such a run is not the counter's frequency.

use rustix::time::{ClockId, clock_gettime};

use super::{Reading, monotonic_ns};

/// Largest relative difference between frequencies that were measured at different times of a run. NTP may change the
/// clock's rate by 0.05 %. A shorter stop of a clock changes a whole run's frequency by less than this ratio.
const DIFFERENCE_MAX: f64 = 1e-3;
/// Shortest suspension that counts, ns. Reading two clocks one after the other takes less.
const SUSPENSION_NS_MIN: u64 = 1_000_000;

/// Time since boot during which the machine was suspended, ns: CLOCK_BOOTTIME minus CLOCK_MONOTONIC, up to a constant
/// that the time namespace adds. Exact to the time between two readings of clocks.
pub(crate) fn suspended_ns() -> i128 {
    let reading = || {
        let before_ns = monotonic_ns();
        let boot = clock_gettime(ClockId::Boottime);
        let after_ns = monotonic_ns();
        let boot_ns = i128::from(boot.tv_sec) * 1_000_000_000 + i128::from(boot.tv_nsec);
        (after_ns.saturating_sub(before_ns), boot_ns - i128::from(before_ns.midpoint(after_ns)))
    };
    let narrowest = (0..16).map(|_| reading()).min_by_key(|(width_ns, _)| *width_ns);
    narrowest.unwrap_or_else(reading).1
}

/// Why times of the counter and of CLOCK_MONOTONIC do not compare, if the machine was suspended between two values of
/// [`suspended_ns`]. `None` if it was not suspended for [`SUSPENSION_NS_MIN`].
pub(crate) fn suspension(before_ns: i128, after_ns: i128) -> Option<String> {
    let ns = u64::try_from(after_ns - before_ns).unwrap_or(0);
    (ns >= SUSPENSION_NS_MIN)
        .then(|| format!("the machine was suspended for {:.3} s", ns as f64 / 1e9))
}

/// Why two frequencies of the counter, Hz, do not agree. `None` if they agree within [`DIFFERENCE_MAX`].
pub(crate) fn disagreement(first_hz: f64, second_hz: f64) -> Option<String> {
    let is_equal = (second_hz / first_hz - 1.0).abs() <= DIFFERENCE_MAX;
    (!is_equal).then(|| {
        let (first, second) = (first_hz / 1e9, second_hz / 1e9);
        format!(
            "the time-stamp counter had {first:.4} GHz at the start and {second:.4} GHz later, by the kernel's \
             clock (was the virtual machine paused or moved?)"
        )
    })
}

/// Measures the counter's frequency over a run.
#[derive(Clone, Copy, Debug)]
pub struct FrequencyMeasurement {
    start: Reading,
    /// The frequency at the start, Hz.
    start_hz: f64,
    suspended_ns: i128,
}

impl FrequencyMeasurement {
    /// Starts the measurement, in 50 ms. `None` without a counter, or if a clock went backwards.
    #[must_use]
    pub fn start() -> Option<Self> {
        let start = Reading::now()?;
        let suspended_ns = suspended_ns();
        Some(FrequencyMeasurement { start, start_hz: start.frequency_hz()?, suspended_ns })
    }

    /// The counter's mean frequency since the start, Hz. Takes 50 ms, for a short measurement now.
    ///
    /// The error is the reason why the mean is no frequency: the machine was suspended, or the frequencies at the start,
    /// now, and in the mean differ by more than 0.1 %.
    pub fn hz(&self) -> Result<f64, String> {
        let backwards = || "a clock went backwards".to_owned();
        let now_hz = Reading::now().and_then(Reading::frequency_hz).ok_or_else(backwards)?;
        let mean_hz = self.start.frequency_hz().ok_or_else(backwards)?;
        judge(self.start_hz, now_hz, mean_hz, suspension(self.suspended_ns, suspended_ns()))
    }
}

/// The mean frequency, if it agrees with those at the start and at the end, and the machine was not suspended.
fn judge(
    start_hz: f64,
    end_hz: f64,
    mean_hz: f64,
    suspension: Option<String>,
) -> Result<f64, String> {
    let flaw = suspension
        .or_else(|| disagreement(start_hz, end_hz))
        .or_else(|| disagreement(start_hz, mean_hz));
    flaw.map_or(Ok(mean_hz), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_over_a_suspension_or_a_pause_is_no_frequency() {
        let good = judge(2.5e9, 2.5e9 + 1e6, 2.5e9, None);
        assert_eq!(good, Ok(2.5e9));
        // 20 s of a run of 30 s were suspended: the counter went on, CLOCK_MONOTONIC did not.
        assert!(judge(2.5e9, 2.5e9, 7.5e9, None).is_err());
        assert!(judge(2.5e9, 2.0e9, 2.5e9, None).is_err(), "moved to another machine");
        let suspended = suspension(5, 20_000_000_005);
        let reason = judge(2.5e9, 2.5e9, 2.5e9, suspended).unwrap_err();
        assert!(reason.contains("suspended for 20.000 s"), "{reason}");
        assert_eq!(suspension(5, 900_005), None, "the clocks are not read at the same instant");
    }

    #[test]
    fn this_machines_counter_keeps_its_frequency() {
        let Some(measurement) = FrequencyMeasurement::start() else {
            return needs::not_run(needs::Need::Tsc, "no frequency");
        };
        assert!(suspension(measurement.suspended_ns, suspended_ns()).is_none());
        match measurement.hz() {
            Ok(hz) => assert!(hz > 1e8, "{hz}"),
            Err(reason) => needs::not_run(needs::Need::Tsc, reason),
        }
    }
}
