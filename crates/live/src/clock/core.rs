//! The frequency of the core's own clock. The time-stamp counter does not show it, because the counter has a constant
//! frequency. `noise` measures it at both ends of a window, and warns if it changed.

use lab::cpu_warnings::CpuWarning;
use serde_json::{Map, Value as Json, json};

use super::now_after_work;

/// Additions of a burst. A burst takes some microseconds.
const ADDITIONS: u64 = 16_384;
/// Number of bursts. The shortest one counts, because nothing interrupted it.
const BURSTS: usize = 16;
/// A larger relative difference between both ends of a window is a change of frequency. The value is less than one step
/// of any processor's frequency, and more than the error of the readings.
const SAME_FREQUENCY_TOLERANCE: f64 = 0.01;

/// Executes `number` additions, rounded down to a multiple of 64. Each depends on the previous one, so it takes one
/// cycle of the core. Returns false on processors other than x86-64, which have no such loop here.
#[inline(never)]
pub fn dependent_additions(number: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut sum = 1_u64;
        for _ in 0..number / 64 {
            // SAFETY: adds a register to itself. The register is added to itself and not to a
            // constant, because some processors add constants without taking a cycle.
            unsafe {
                std::arch::asm!(
                    ".rept 64",
                    "add {0}, {0}",
                    ".endr",
                    inout(reg) sum,
                    options(nomem, nostack),
                );
            }
        }
        std::hint::black_box(sum);
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = number;
        false
    }
}

/// Duration of one cycle of this thread's core, in cycles of the time-stamp counter. `None`
/// on processors other than x86-64.
#[must_use]
pub fn core_cycle() -> Option<f64> {
    let burst = || {
        let start = now_after_work();
        dependent_additions(ADDITIONS).then(|| now_after_work().saturating_sub(start))
    };
    let shortest = (0..BURSTS).filter_map(|_| burst()).min()?;
    (shortest > 0).then_some(shortest as f64 / ADDITIONS as f64)
}

/// Frequencies of a core at both ends of a window, Hz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreClock {
    pub before_hz: u64,
    pub after_hz: u64,
}

impl CoreClock {
    /// Computes both frequencies from the results of [`core_cycle`] at both ends, with a counter of `tsc_hz`. `None` if
    /// one of them is absent.
    #[must_use]
    pub fn new((before, after): (Option<f64>, Option<f64>), tsc_hz: f64) -> Option<CoreClock> {
        let hz = |cycle: Option<f64>| Some((tsc_hz / cycle?).round() as u64);
        Some(CoreClock { before_hz: hz(before)?, after_hz: hz(after)? })
    }

    /// Whether the frequency changed by more than measurement error.
    #[must_use]
    pub fn has_changed(self) -> bool {
        let (before, after) = (self.before_hz as f64, self.after_hz as f64);
        (before - after).abs() > SAME_FREQUENCY_TOLERANCE * before.max(after)
    }

    /// Adds both frequencies to the facts of a window, and a warning if the frequency changed.
    pub fn describe(self, cpu: u32, facts: &mut Map<String, Json>, warnings: &mut Vec<CpuWarning>) {
        facts.insert(format!("core_hz_before_on_cpu_{cpu}"), json!(self.before_hz));
        facts.insert(format!("core_hz_after_on_cpu_{cpu}"), json!(self.after_hz));
        facts.insert(format!("frequency_changed_on_cpu_{cpu}"), json!(self.has_changed()));
        warnings.extend(self.warning(cpu));
    }

    /// A warning if the frequency changed. `None` if it did not, within 1 %.
    #[must_use]
    pub fn warning(self, cpu: u32) -> Option<CpuWarning> {
        let mhz = |hz: u64| (hz + 500_000) / 1_000_000;
        let warning = "the core changed its frequency during the window, so the time of the loop's own work \
                    varies within it";
        let (before, after) = (self.before_hz as f64, self.after_hz as f64);
        self.has_changed().then(|| {
            CpuWarning::new(cpu, warning).with_extent(
                (before - after).abs() / before.max(after),
                format!("from {} to {} MHz", mhz(self.before_hz), mhz(self.after_hz)),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use lab::cpu_warnings::CpuWarnings;

    use super::*;

    #[test]
    fn a_change_is_reported_and_measurement_error_is_not() {
        let clock = |before, after| CoreClock::new((Some(before), Some(after)), 2_600e6).unwrap();
        assert_eq!(
            clock(0.65, 0.65),
            CoreClock { before_hz: 4_000_000_000, after_hz: 4_000_000_000 }
        );
        assert_eq!(clock(0.65, 0.652).warning(3), None);
        let mut warnings = CpuWarnings::default();
        warnings.add("", clock(0.65, 0.8).warning(3).unwrap());
        let [slower] = &warnings.lines()[..] else { panic!("{warnings:?}") };
        assert!(slower.contains("CPU 3") && slower.contains("from 4000 to 3250 MHz"), "{slower}");
        assert!(clock(0.8, 0.65).has_changed());
        assert_eq!(CoreClock::new((Some(0.65), None), 2_600e6), None, "absent is no change");
    }

    #[test]
    fn the_core_of_this_thread_has_a_clock() {
        let Some(cycle) = core_cycle() else {
            return needs::not_run(needs::Need::Tsc, "the loop of additions is for x86-64");
        };
        assert!(cycle > 0.05 && cycle < 50.0, "{cycle} cycles of the counter");
    }
}
