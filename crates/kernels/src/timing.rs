//! Time in cycles of the core. Chains of dependent additions, a cycle each, run before and after the timed code
//! and calibrate the time-stamp counter, which has a constant rate.
//!
//! A chain adds a register to itself: Golden Cove and later cores of Intel execute an addition of a small
//! constant while renaming it, several of a chain per cycle.

use std::arch::asm;

/// Additions of a chain. The counter of some processors advances in steps of 25 ticks, so that a
/// chain must be long.
const CHAIN_ADDITIONS: u64 = 20_000;
/// Additions, in four chains, and NOPs of the probe of the sibling.
const PROBE_ADDITIONS: u64 = 6_000;
const PROBE_NOPS: u64 = 6_000;
/// Maximum relative change of the core's rate from before to after the timed code.
pub(crate) const RATE_CHANGE_MAX: f64 = 0.01;
/// A chain that takes longer than this multiple of the shortest one was disturbed. Measured with a busy sibling: chains
/// before and after a window took 2.2 and 2.6 times as long, the window and the probes did not. The limit also rejects
/// windows of a core whose rate fell by a third or more.
const SLOW_CHAIN_RATIO: f64 = 1.5;
/// Number of readings whose shortest distance is the cost of one reading.
const READINGS: usize = 64;
/// Windows at the start that only calibrate.
const WARM_UP_WINDOWS: usize = 16;
/// The shortest probes that are kept; the longest of them is taken for that of a quiet core. The very shortest may
/// be an error: in a few of a million windows both chains were interrupted for the same time.
const QUIETEST: usize = 8;

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
            ".p2align 6", "2:", ".rept 100", "add {sum}, {sum}", ".endr", "dec {count}", "jnz 2b",
            sum = inout(reg) 1_u64 => _,
            count = inout(reg) CHAIN_ADDITIONS / 100 => _,
            options(nomem, nostack),
        );
    }
    ticks() - start
}

/// Ticks of [`PROBE_ADDITIONS`] in four chains, which need four units that a busy sibling would share.
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

/// Ticks of [`PROBE_NOPS`], which need the front end that a busy sibling would share.
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

/// Both probes of the sibling, in ticks or cycles.
#[derive(Clone, Copy, Debug)]
struct Probe<T> {
    additions: T,
    nops: T,
}

impl<T> Probe<T> {
    fn map<U>(self, of: impl Fn(T) -> U) -> Probe<U> {
        Probe { additions: of(self.additions), nops: of(self.nops) }
    }

    fn with(self, other: Probe<T>, of: impl Fn(T, T) -> T) -> Probe<T> {
        Probe { additions: of(self.additions, other.additions), nops: of(self.nops, other.nops) }
    }
}

impl Probe<f64> {
    /// How much longer it took than another, by the worse of both.
    fn over(self, other: Probe<f64>) -> f64 {
        (self.additions / other.additions).max(self.nops / other.nops)
    }
}

fn probe() -> Probe<u64> {
    Probe { additions: additions(), nops: nops() }
}

/// The shortest times of a kind, in order.
#[derive(Clone, Copy, Debug)]
struct Shortest([f64; QUIETEST]);

impl Shortest {
    const NONE: Shortest = Shortest([f64::INFINITY; QUIETEST]);

    fn note(&mut self, cycles: f64) {
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
    reading_ticks: u64,
    /// The shortest probes, in cycles.
    shortest: Probe<Shortest>,
    /// Ticks of the shortest chain.
    chain_ticks_min: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) cycles: f64,
    /// Relative change of the core's rate from before to after.
    pub(crate) rate_change: f64,
    /// The worse probe of the sibling over that of a quiet core, or the inverse if it is shorter.
    pub(crate) probe_ratio: f64,
}

impl Clock {
    /// Calibrates the clock against chains of additions.
    ///
    /// Fails when the counter does not count.
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

    /// Ticks without the cost of a reading.
    fn net(&self, ticks: u64) -> u64 {
        ticks.saturating_sub(self.reading_ticks)
    }

    /// Keeps the shortest probes, and returns the relative change of the core's rate. The change is infinite if
    /// a chain was disturbed: the core would seem slower, and the probes too short.
    fn note(&mut self, (before, after): (u64, u64), probe: Probe<u64>) -> f64 {
        self.chain_ticks_min = self.chain_ticks_min.min(before).min(after);
        let rate_change = (after as f64 / before.max(1) as f64 - 1.0).abs();
        if before.max(after) as f64 > SLOW_CHAIN_RATIO * self.chain_ticks_min as f64 {
            return f64::INFINITY;
        }
        if rate_change <= RATE_CHANGE_MAX {
            let chain = (before + after) as f64 / 2.0;
            self.shortest.additions.note(cycles_of(probe.additions, chain));
            self.shortest.nops.note(cycles_of(probe.nops, chain));
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

    /// A measure of the quietness of the core: the time of four chains of additions at once, relative to the
    /// time of four free units; or the time of NOPs relative to a front end of four per cycle, whichever is
    /// more. It is about 1 on a core that shares nothing, and 1.17 on a Golden Cove, where four chains
    /// sometimes meet at one of five units. It is more if a sibling was busy throughout, or if the core has
    /// fewer units. `None` if the rate changed all the time.
    #[must_use]
    pub fn quietest_ratio(&self) -> Option<f64> {
        const FOUR_A_CYCLE: Probe<f64> =
            Probe { additions: PROBE_ADDITIONS as f64 / 4.0, nops: PROBE_NOPS as f64 / 4.0 };
        let ratio = self.quietest().over(FOUR_A_CYCLE).max(1.0);
        ratio.is_finite().then_some(ratio)
    }

    /// Times something, which may itself measure its ticks, between chains and probes.
    pub(crate) fn time<T>(&mut self, run: impl FnOnce() -> (T, Option<u64>)) -> (T, Timed) {
        let chain_before = self.net(chain());
        let probe_before = probe().map(|ticks| self.net(ticks));
        let start = ticks();
        let (value, own_ticks) = run();
        let total = self.net(ticks() - start);
        let probe_after = probe().map(|ticks| self.net(ticks));
        let chain_after = self.net(chain());
        let mean = (chain_before + chain_after) as f64 / 2.0;
        let rate_change =
            self.note((chain_before, chain_after), probe_before.with(probe_after, u64::min));
        let worse = probe_before.with(probe_after, u64::max).map(|ticks| cycles_of(ticks, mean));
        let cycles = cycles_of(own_ticks.unwrap_or(total), mean);
        let quietest = self.quietest();
        let probe_ratio = worse.over(quietest).max(quietest.over(worse));
        (value, Timed { cycles, rate_change, probe_ratio })
    }
}

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
        assert!(clock.quietest_ratio().is_none_or(|ratio| ratio >= 1.0));
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
            clock.note((chain, chain), probe(8));
        }
        assert_eq!(clock.quietest_ratio(), Some(8.0));
        // Chains that were interrupted: one or each, or for the same time.
        for _ in 0..QUIETEST {
            assert!(clock.note((3 * chain, chain), probe(2)) > RATE_CHANGE_MAX);
            assert!(clock.note((chain, 2 * chain), probe(2)) > RATE_CHANGE_MAX);
        }
        for _ in 0..QUIETEST {
            assert!(clock.note((3 * chain, 3 * chain), probe(2)) > RATE_CHANGE_MAX);
        }
        clock.note((chain, chain), probe(2));
        assert_eq!(clock.quietest_ratio(), Some(8.0));
        let busy_front_end = Probe { nops: probe(3).nops, ..probe(2) };
        for _ in 0..QUIETEST {
            clock.note((chain, chain), busy_front_end);
        }
        assert_eq!(clock.quietest_ratio(), Some(3.0));
        let quietest = clock.quietest();
        assert_eq!(Probe { nops: 2.0 * quietest.nops, ..quietest }.over(quietest), 2.0);
    }
}
