//! The clock of the core itself, which the time-stamp counter does not show.

use serde_json::{Map, Value as Json, json};

use super::clock::now_after_work;

/// Additions of a burst: some microseconds.
const ADDITIONS: u64 = 16_384;
/// Bursts, of which the shortest counts: nobody interfered with it.
const BURSTS: usize = 16;
/// By which part the clock may differ between the ends of a window: less than a step of any
/// processor's frequencies, more than what readings are off.
const CHANGE_MAX: f64 = 0.01;

/// Executes so many additions, rounded down to a multiple of 64, each of which depends on the one before:
/// a cycle of the core each. False where none are written for this processor.
#[inline(never)]
pub fn add(number: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut sum = 1_u64;
        for _ in 0..number / 64 {
            // SAFETY: adds to a register. It is added to itself: no processor foresees the sum, as some
            // do of constants.
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

/// What a cycle of this thread's core takes, in cycles of the time-stamp counter; absent on a processor for
/// which no additions are written.
#[must_use]
pub fn core_cycle() -> Option<f64> {
    let burst = || {
        let begun = now_after_work();
        add(ADDITIONS).then(|| now_after_work().saturating_sub(begun))
    };
    let least = (0..BURSTS).filter_map(|_| burst()).min()?;
    (least > 0).then_some(least as f64 / ADDITIONS as f64)
}

/// Frequencies of a core at the beginning and at the end of a window, Hz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreClock {
    /// Before the loop.
    pub before_hz: u64,
    /// Behind it.
    pub after_hz: u64,
}

impl CoreClock {
    /// From what a cycle took at both ends, by a counter of `tsc_hz`.
    #[must_use]
    pub fn new((before, after): (Option<f64>, Option<f64>), tsc_hz: f64) -> Option<CoreClock> {
        let hz = |cycle: Option<f64>| Some((tsc_hz / cycle?).round() as u64);
        Some(CoreClock { before_hz: hz(before)?, after_hz: hz(after)? })
    }

    /// Whether the core was another one at the end than at the beginning, as far as fixed work goes.
    #[must_use]
    pub fn changed(self) -> bool {
        let (before, after) = (self.before_hz as f64, self.after_hz as f64);
        (before - after).abs() > CHANGE_MAX * before.max(after)
    }

    /// Adds both to the facts of a window, whether they differ, and then a warning.
    pub fn tell(self, cpu: u32, facts: &mut Map<String, Json>, warnings: &mut Vec<String>) {
        facts.insert(format!("core_hz_before_on_cpu_{cpu}"), json!(self.before_hz));
        facts.insert(format!("core_hz_after_on_cpu_{cpu}"), json!(self.after_hz));
        facts.insert(format!("frequency_changed_on_cpu_{cpu}"), json!(self.changed()));
        warnings.extend(self.warning(cpu));
    }

    /// What a reader must know of it.
    #[must_use]
    pub fn warning(self, cpu: u32) -> Option<String> {
        let mhz = |hz: u64| (hz + 500_000) / 1_000_000;
        self.changed().then(|| {
            format!(
                "CPU {cpu} changed its frequency during the window, from {} to {} MHz: what the loop itself \
                 takes is not the same throughout",
                mhz(self.before_hz),
                mhz(self.after_hz)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_and_a_wobble_is_not() {
        let clock = |before, after| CoreClock::new((Some(before), Some(after)), 2_600e6).unwrap();
        assert_eq!(
            clock(0.65, 0.65),
            CoreClock { before_hz: 4_000_000_000, after_hz: 4_000_000_000 }
        );
        assert_eq!(clock(0.65, 0.652).warning(3), None);
        let slower = clock(0.65, 0.8).warning(3).unwrap();
        assert!(slower.contains("CPU 3") && slower.contains("from 4000 to 3250 MHz"), "{slower}");
        assert!(clock(0.8, 0.65).changed());
        assert_eq!(CoreClock::new((Some(0.65), None), 2_600e6), None, "absent is no change");
    }

    #[test]
    fn the_core_of_this_thread_has_a_clock() {
        let Some(cycle) = core_cycle() else { return println!("not run: no additions for it") };
        assert!(cycle > 0.05 && cycle < 50.0, "{cycle} cycles of the counter");
    }
}
