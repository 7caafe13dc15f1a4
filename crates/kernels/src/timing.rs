//! Time in cycles of the core: the time-stamp counter, which has a constant rate, is calibrated by
//! chains of dependent additions, a cycle each, before and after what is timed.

use std::arch::asm;

/// Additions of a chain. The counter of some processors advances in steps of 25 ticks, so that a
/// chain must be long.
const CHAIN_ADDITIONS: u64 = 20_000;
/// Additions of the probe of the sibling, in four chains.
const PROBE_ADDITIONS: u64 = 10_000;
/// Readings of which the shortest distance is the cost of one.
const READINGS: usize = 64;
/// Chains and probes of which the shortest counts at the start.
const WARM_UP_CHAINS: usize = 8;

/// Why there is no time in cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClockError {
    /// The time-stamp counter does not count.
    NoCounter,
}

/// Reads the counter when all earlier instructions have completed, and before later ones start.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter; irqlab's benches refuse a processor without one.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", out("eax") low, out("edx") high, options(nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Ticks of a chain of [`CHAIN_ADDITIONS`].
fn chain() -> u64 {
    let start = ticks();
    // SAFETY: changes two registers that are declared.
    unsafe {
        asm!(
            ".p2align 6", "2:", ".rept 100", "add {sum}, 1", ".endr", "dec {count}", "jnz 2b",
            sum = inout(reg) 0_u64 => _,
            count = inout(reg) CHAIN_ADDITIONS / 100 => _,
            options(nomem, nostack),
        );
    }
    ticks() - start
}

/// Ticks of [`PROBE_ADDITIONS`] in four chains, which need four units that a busy sibling would share.
fn probe() -> u64 {
    let start = ticks();
    // SAFETY: changes registers that are declared.
    unsafe {
        asm!(
            ".p2align 6", "2:", ".rept 25",
            "add {a}, 1", "add {b}, 1", "add {c}, 1", "add {d}, 1",
            ".endr", "dec {count}", "jnz 2b",
            a = inout(reg) 0_u64 => _,
            b = inout(reg) 0_u64 => _,
            c = inout(reg) 0_u64 => _,
            d = inout(reg) 0_u64 => _,
            count = inout(reg) PROBE_ADDITIONS / 100 => _,
            options(nomem, nostack),
        );
    }
    ticks() - start
}

/// The clock of this thread's core.
#[derive(Clone, Debug)]
pub struct Clock {
    reading_ticks: u64,
    /// The shortest probe, in cycles.
    probe_cycles_min: f64,
    /// Ticks of the shortest chain.
    chain_ticks_min: u64,
}

/// What was timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    /// Cycles of the core.
    pub(crate) cycles: f64,
    /// Relative change of the core's rate from before to after.
    pub(crate) rate_change: f64,
    /// The worse probe of the sibling over the shortest one.
    pub(crate) probe_ratio: f64,
}

impl Clock {
    /// Calibrates.
    ///
    /// # Errors
    /// When the counter does not count.
    pub fn new() -> Result<Clock, ClockError> {
        let reading = (0..READINGS).map(|_| {
            let start = ticks();
            ticks() - start
        });
        let reading_ticks = reading.min().unwrap_or(0);
        let mut clock =
            Clock { reading_ticks, probe_cycles_min: f64::INFINITY, chain_ticks_min: u64::MAX };
        for _ in 0..WARM_UP_CHAINS {
            let (chain, probe) = (clock.net(chain()), clock.net(probe()));
            clock.chain_ticks_min = clock.chain_ticks_min.min(chain);
            clock.note(chain, probe);
        }
        match clock.chain_ticks_min {
            0 | u64::MAX => Err(ClockError::NoCounter),
            _ => Ok(clock),
        }
    }

    /// Ticks without the cost of a reading.
    fn net(&self, ticks: u64) -> u64 {
        ticks.saturating_sub(self.reading_ticks)
    }

    fn note(&mut self, chain: u64, probe: u64) {
        // Four chains are never shorter than their additions: what seems so is a chain that was
        // interrupted, or a rate that changed.
        let probe_cycles = cycles_of(probe, chain as f64).max(PROBE_ADDITIONS as f64 / 4.0);
        self.probe_cycles_min = self.probe_cycles_min.min(probe_cycles);
    }

    /// Cycles of the core per tick of the counter, at the highest rate seen.
    #[must_use]
    pub fn cycles_per_tick(&self) -> f64 {
        CHAIN_ADDITIONS as f64 / self.chain_ticks_min as f64
    }

    /// The shortest time of four chains of additions at once so far, over what four units need that
    /// nothing else uses: 1 unless a sibling was busy throughout, or the core has fewer units.
    #[must_use]
    pub fn quietest_ratio(&self) -> f64 {
        self.probe_cycles_min / (PROBE_ADDITIONS as f64 / 4.0)
    }

    /// Times something, which may itself measure its ticks, between chains and probes.
    pub(crate) fn time<T>(&mut self, run: impl FnOnce() -> (T, Option<u64>)) -> (T, Timed) {
        let chain_before = self.net(chain());
        let probe_before = self.net(probe());
        let start = ticks();
        let (value, own_ticks) = run();
        let whole = self.net(ticks() - start);
        let probe_after = self.net(probe());
        let chain_after = self.net(chain());
        let mean = (chain_before + chain_after) as f64 / 2.0;
        let worse = probe_before.max(probe_after);
        self.chain_ticks_min = self.chain_ticks_min.min(chain_before).min(chain_after);
        self.note(chain_before.max(chain_after), probe_before.min(probe_after));
        let timed = Timed {
            cycles: cycles_of(own_ticks.unwrap_or(whole), mean),
            rate_change: (chain_after as f64 / chain_before.max(1) as f64 - 1.0).abs(),
            probe_ratio: cycles_of(worse, mean) / self.probe_cycles_min,
        };
        (value, timed)
    }
}

/// Ticks in cycles, by the ticks of a chain.
fn cycles_of(ticks: u64, chain_ticks: f64) -> f64 {
    ticks as f64 * CHAIN_ADDITIONS as f64 / chain_ticks.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_takes_a_cycle_an_addition() {
        for ticks in [100, 8_192, 1 << 40] {
            assert_eq!(cycles_of(ticks, ticks as f64), CHAIN_ADDITIONS as f64);
            assert_eq!(cycles_of(ticks / 2, ticks as f64), CHAIN_ADDITIONS as f64 / 2.0);
        }
        // A clock that did not advance gives no infinity.
        assert!(cycles_of(1, 0.0).is_finite());
        let mut clock = Clock::new().unwrap();
        let (_, timed) = clock.time(|| (chain(), None));
        assert!(timed.cycles > 0.0 && clock.cycles_per_tick() > 0.0);
        assert!(clock.quietest_ratio() >= 1.0);
        // A sibling that was busy throughout.
        let mut busy = Clock { probe_cycles_min: f64::INFINITY, ..clock };
        (0..3).for_each(|_| busy.note(4_000, 20_000 * 4_000 / CHAIN_ADDITIONS));
        assert_eq!(busy.quietest_ratio(), 8.0);
    }
}
