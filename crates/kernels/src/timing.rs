//! The clock of `measure`: it times a run in cycles of the core.
//!
//! The time-stamp counter has a constant rate, but the core's rate changes. Each run is therefore between two
//! calibrations: chains of dependent additions, which take one cycle per addition. Between chain and run, probes
//! check whether the sibling (the core's other hardware thread) is busy.
//!
//! A chain adds a register to itself. It adds no small constant, because Intel cores from Golden Cove on execute such
//! additions while they rename registers, several of a chain per cycle.

use std::arch::asm;

/// Additions of a chain. A chain must be long because the counter of some processors advances in steps of 25 ticks.
const CHAIN_ADDITIONS: u64 = 20_000;
/// Additions, in four chains, of a probe of the sibling.
const PROBE_ADDITIONS: u64 = 6_000;
/// NOPs of a probe of the sibling.
const PROBE_NOPS: u64 = 6_000;
/// Maximum relative change of the core's rate from before to after the timed code.
pub(crate) const RATE_CHANGE_MAX: f64 = 0.01;
/// A chain that takes longer than this multiple of the shortest chain was disturbed. With a busy sibling, the chains
/// before and after a window once took 2.2 and 2.6 times as long, but window and probes did not. The limit also rejects
/// windows of a core whose rate fell by a third or more.
const SLOW_CHAIN_RATIO: f64 = 1.5;
/// Pairs of readings of the counter. The shortest distance of a pair is the cost of one reading.
const READINGS: usize = 64;
/// Windows at the start that only calibrate.
const WARM_UP_WINDOWS: usize = 16;
/// This number of shortest probes is kept. The longest of them counts as the probe of a quiet core. The very shortest
/// can be wrong: in a few of a million windows, both chains were interrupted for equal times.
const QUIETEST: usize = 8;

/// Why the clock cannot be used.
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
            ".p2align 6", "2:", ".rept 100", "add {sum}, {sum}", ".endr", "dec {count}", "jnz 2b",
            sum = inout(reg) 1_u64 => _,
            count = inout(reg) CHAIN_ADDITIONS / 100 => _,
            options(nomem, nostack),
        );
    }
    ticks() - start
}

/// Ticks of [`PROBE_ADDITIONS`] in four chains. They use four execution units, which a busy sibling would use too.
fn additions() -> u64 {
    let start = ticks();
    // SAFETY: changes registers that are declared.
    unsafe {
        asm!(
            ".p2align 6", "2:", ".rept 25",
            "add {a}, {a}", "add {b}, {b}", "add {c}, {c}", "add {d}, {d}",
            ".endr", "dec {count}", "jnz 2b",
            a = inout(reg) 1_u64 => _,
            b = inout(reg) 1_u64 => _,
            c = inout(reg) 1_u64 => _,
            d = inout(reg) 1_u64 => _,
            count = inout(reg) PROBE_ADDITIONS / 100 => _,
            options(nomem, nostack),
        );
    }
    ticks() - start
}

/// Ticks of [`PROBE_NOPS`]. They use the front end, which a busy sibling would use too.
fn nops() -> u64 {
    let start = ticks();
    // SAFETY: changes a register that is declared.
    unsafe {
        asm!(
            ".p2align 6", "2:", ".rept 100", ".byte 0x0f, 0x1f, 0x00", ".endr", "dec {count}", "jnz 2b",
            count = inout(reg) PROBE_NOPS / 100 => _,
            options(nomem, nostack),
        );
    }
    ticks() - start
}

/// The times of both probes of the sibling, in ticks or cycles.
#[derive(Clone, Copy, Debug)]
struct Probe<T> {
    additions: T,
    nops: T,
}

impl<T> Probe<T> {
    fn map<U>(self, convert: impl Fn(T) -> U) -> Probe<U> {
        Probe { additions: convert(self.additions), nops: convert(self.nops) }
    }

    /// Combines each time with that of another probe.
    fn combine(self, other: Probe<T>, pick: impl Fn(T, T) -> T) -> Probe<T> {
        Probe {
            additions: pick(self.additions, other.additions),
            nops: pick(self.nops, other.nops),
        }
    }
}

impl Probe<f64> {
    /// This probe's time divided by the time of `other`, for additions or for NOPs, whichever ratio is larger.
    fn ratio_to(self, other: Probe<f64>) -> f64 {
        (self.additions / other.additions).max(self.nops / other.nops)
    }
}

/// Executes both probes.
fn probe() -> Probe<u64> {
    Probe { additions: additions(), nops: nops() }
}

/// The [`QUIETEST`] shortest times of a probe, in cycles and in order.
#[derive(Clone, Copy, Debug)]
struct Shortest([f64; QUIETEST]);

impl Shortest {
    const NONE: Shortest = Shortest([f64::INFINITY; QUIETEST]);

    /// Keeps a time if it is shorter than the longest kept one.
    fn add(&mut self, cycles: f64) {
        let [.., last] = &mut self.0;
        *last = last.min(cycles);
        self.0.sort_by(f64::total_cmp);
    }

    fn longest(self) -> f64 {
        self.0[QUIETEST - 1]
    }
}

/// The clock of this thread's core.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The cost of one reading of the counter.
    reading_ticks: u64,
    /// The shortest probes, in cycles.
    shortest: Probe<Shortest>,
    /// Ticks of the shortest chain.
    chain_ticks_min: u64,
}

/// A timed run, and how much the core was disturbed around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) cycles: f64,
    /// Relative change of the core's rate from before to after the run. Infinite if a chain was disturbed.
    pub(crate) rate_change: f64,
    /// The time of the longer probes divided by that of a quiet core's probes, or the inverse if it is larger.
    pub(crate) probe_ratio: f64,
}

impl Clock {
    /// Makes a clock, and calibrates it with some windows that execute nothing.
    ///
    /// Fails if the counter does not count.
    pub fn new() -> Result<Clock, ClockError> {
        let reading = (0..READINGS).map(|_| {
            let start = ticks();
            ticks() - start
        });
        let reading_ticks = reading.min().unwrap_or(0);
        let shortest = Probe { additions: Shortest::NONE, nops: Shortest::NONE };
        let mut clock = Clock { reading_ticks, shortest, chain_ticks_min: u64::MAX };
        for _ in 0..WARM_UP_WINDOWS {
            clock.time(|| ((), None));
        }
        match clock.chain_ticks_min {
            0 | u64::MAX => Err(ClockError::NoCounter),
            _ => Ok(clock),
        }
    }

    /// `ticks` without the cost of a reading.
    fn net(&self, ticks: u64) -> u64 {
        ticks.saturating_sub(self.reading_ticks)
    }

    /// Keeps the shortest probes, and returns the relative change of the core's rate. `before` and `after` are the
    /// ticks of the two chains. The change is infinite if a chain was disturbed: the core would seem slower, and the
    /// probes too short.
    fn add_calibration(&mut self, (before, after): (u64, u64), probe: Probe<u64>) -> f64 {
        self.chain_ticks_min = self.chain_ticks_min.min(before).min(after);
        let rate_change = (after as f64 / before.max(1) as f64 - 1.0).abs();
        if before.max(after) as f64 > SLOW_CHAIN_RATIO * self.chain_ticks_min as f64 {
            return f64::INFINITY;
        }
        if rate_change <= RATE_CHANGE_MAX {
            let chain = (before + after) as f64 / 2.0;
            self.shortest.additions.add(cycles_of(probe.additions, chain));
            self.shortest.nops.add(cycles_of(probe.nops, chain));
        }
        rate_change
    }

    /// The probes of a quiet core, in cycles.
    fn quietest(&self) -> Probe<f64> {
        self.shortest.map(Shortest::longest)
    }

    /// Cycles of the core per tick of the counter, at the highest rate seen.
    #[must_use]
    pub fn cycles_per_tick(&self) -> f64 {
        CHAIN_ADDITIONS as f64 / self.chain_ticks_min as f64
    }

    /// How much slower the quietest probe was than on a core that shares nothing, at least 1. Such a core executes
    /// four additions or four NOPs per cycle; the slower of both probes counts. A quiet Golden Cove has 1.17, because
    /// its four chains sometimes compete for one of five units. A higher ratio means that a sibling was always busy,
    /// or that the core has fewer units. `None` if the rate changed all the time.
    #[must_use]
    pub fn quietest_duration_ratio(&self) -> Option<f64> {
        const FOUR_A_CYCLE: Probe<f64> =
            Probe { additions: PROBE_ADDITIONS as f64 / 4.0, nops: PROBE_NOPS as f64 / 4.0 };
        let ratio = self.quietest().ratio_to(FOUR_A_CYCLE).max(1.0);
        ratio.is_finite().then_some(ratio)
    }

    /// Times `run`, between two chains and two pairs of probes. Returns its value too. `run` may return the ticks
    /// that it measured itself; otherwise the whole run counts.
    pub(crate) fn time<T>(&mut self, run: impl FnOnce() -> (T, Option<u64>)) -> (T, Timed) {
        let chain_before = self.net(chain());
        let probe_before = probe().map(|ticks| self.net(ticks));
        let start = ticks();
        let (value, ticks_by_run) = run();
        let total = self.net(ticks() - start);
        let probe_after = probe().map(|ticks| self.net(ticks));
        let chain_after = self.net(chain());
        let mean_chain = (chain_before + chain_after) as f64 / 2.0;
        let rate_change = self.add_calibration(
            (chain_before, chain_after),
            probe_before.combine(probe_after, u64::min),
        );
        let longer_probe =
            probe_before.combine(probe_after, u64::max).map(|ticks| cycles_of(ticks, mean_chain));
        let cycles = cycles_of(ticks_by_run.unwrap_or(total), mean_chain);
        let quietest = self.quietest();
        let probe_ratio = longer_probe.ratio_to(quietest).max(quietest.ratio_to(longer_probe));
        (value, Timed { cycles, rate_change, probe_ratio })
    }
}

/// Converts ticks to cycles, with the ticks of a chain at the time.
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
        assert!(clock.quietest_duration_ratio().is_none_or(|ratio| ratio >= 1.0));
    }

    #[test]
    fn the_quietest_probe_is_of_an_undisturbed_core() {
        let shortest = Probe { additions: Shortest::NONE, nops: Shortest::NONE };
        let mut clock = Clock { reading_ticks: 0, shortest, chain_ticks_min: u64::MAX };
        let chain = CHAIN_ADDITIONS / 5;
        let probe = |ratio: u64| Probe {
            additions: ratio * PROBE_ADDITIONS / 4 / 5,
            nops: ratio * PROBE_NOPS / 4 / 5,
        };
        // A sibling that was busy throughout.
        for _ in 0..QUIETEST {
            clock.add_calibration((chain, chain), probe(8));
        }
        assert_eq!(clock.quietest_duration_ratio(), Some(8.0));
        // Chains that were interrupted: one or each, or for the same time.
        for _ in 0..QUIETEST {
            assert!(clock.add_calibration((3 * chain, chain), probe(2)) > RATE_CHANGE_MAX);
            assert!(clock.add_calibration((chain, 2 * chain), probe(2)) > RATE_CHANGE_MAX);
        }
        for _ in 0..QUIETEST {
            assert!(clock.add_calibration((3 * chain, 3 * chain), probe(2)) > RATE_CHANGE_MAX);
        }
        clock.add_calibration((chain, chain), probe(2));
        assert_eq!(clock.quietest_duration_ratio(), Some(8.0));
        let busy_front_end = Probe { nops: probe(3).nops, ..probe(2) };
        for _ in 0..QUIETEST {
            clock.add_calibration((chain, chain), busy_front_end);
        }
        assert_eq!(clock.quietest_duration_ratio(), Some(3.0));
        let quietest = clock.quietest();
        assert_eq!(Probe { nops: 2.0 * quietest.nops, ..quietest }.ratio_to(quietest), 2.0);
    }
}
