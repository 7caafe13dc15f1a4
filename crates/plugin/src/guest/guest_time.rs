//! The guest's own clocks at an instant, computed from its memory as its kernel computes them.

use plugin_interface::symbols::{Offsets, TimeSymbols};

use crate::guest::memory::GuestMemory;

/// The names of the kernel's clock sources that read the time-stamp counter.
const TSC_SOURCES: [&str; 2] = ["tsc", "tsc-early"];

/// The guest's `CLOCK_MONOTONIC` in ns when its time-stamp counter shows `tsc`: `tk_fast_mono`, as
/// `ktime_get_mono_fast_ns` reads it. `None` if the kernel's memory does not tell it, or another clock source is in use.
pub(crate) fn monotonic_ns(
    tsc: u64,
    symbols: &TimeSymbols,
    offsets: &Offsets,
    memory: &mut impl GuestMemory,
) -> Option<u64> {
    let fast_clock = symbols.fast_clock?;
    // Readers use the copy that the kernel does not change at this time.
    let sequence = memory.half_word_at(fast_clock.wrapping_add(offsets.fast_clock_sequence?))?;
    let copy = u64::from(sequence & 1).wrapping_mul(offsets.clock_copy_bytes?);
    let copy = fast_clock.wrapping_add(offsets.fast_clock_copies?).wrapping_add(copy);
    let source = memory.word_at(copy.wrapping_add(offsets.clock_source?))?;
    let name = memory.word_at(source.wrapping_add(offsets.clock_source_name?))?;
    let name = memory.text_at::<16>(name)?;
    let is_named = |known: &str| name.starts_with(known.as_bytes()) && name[known.len()] == 0;
    if !TSC_SOURCES.iter().any(|known| is_named(known)) {
        return None;
    }
    let last = memory.word_at(copy.wrapping_add(offsets.clock_last_cycles?))?;
    let mult = memory.half_word_at(copy.wrapping_add(offsets.clock_mult?))?;
    let shift = memory.half_word_at(copy.wrapping_add(offsets.clock_shift?))?;
    let fraction = memory.word_at(copy.wrapping_add(offsets.clock_fraction?))?;
    let base_ns = memory.word_at(copy.wrapping_add(offsets.clock_base?))?;
    // Another vCPU may have read a later value of the counter.
    let cycles = tsc.saturating_sub(last);
    let shifted_ns = u128::from(cycles) * u128::from(mult) + u128::from(fraction);
    Some(base_ns.wrapping_add((shifted_ns >> shift.min(63)) as u64))
}

/// How long ago the timer of the timer wheel at the address `timer` was due, ns: whole jiffies. `None` if the kernel's
/// memory does not tell it.
pub(crate) fn jiffies_late(
    timer: u64,
    symbols: &TimeSymbols,
    offsets: &Offsets,
    memory: &mut impl GuestMemory,
) -> Option<i64> {
    let jiffies = memory.word_at(symbols.jiffies?)?;
    let due = memory.word_at(timer.wrapping_add(offsets.timer_expiry?))?;
    // This clock source counts jiffies, so its factor is the length of one.
    let source = symbols.jiffies_source?;
    let mult = memory.half_word_at(source.wrapping_add(offsets.source_mult?))?;
    let shift = memory.half_word_at(source.wrapping_add(offsets.source_shift?))?;
    let jiffy_ns = i64::from(mult >> shift.min(31));
    Some((jiffies.wrapping_sub(due) as i64).saturating_mul(jiffy_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::memory::tests::TestMemory;

    const FAST: u64 = 0xffff_ffff_8200_0000;
    const SOURCE: u64 = 0xffff_ffff_8210_0000;
    const NAME: u64 = 0xffff_ffff_8220_0000;
    const OFFSETS: &str = "tk_fast.seq 0\ntk_fast.base 8\nsizeof tk_read_base 56\n\
        tk_read_base.clock 0\ntk_read_base.cycle_last 16\ntk_read_base.mult 24\n\
        tk_read_base.shift 28\ntk_read_base.xtime_nsec 32\ntk_read_base.base 40\n\
        clocksource.name 72\nclocksource.mult 24\nclocksource.shift 28\ntimer_list.expires 16\n";

    fn symbols() -> TimeSymbols {
        TimeSymbols { fast_clock: Some(FAST), jiffies: Some(FAST), jiffies_source: Some(SOURCE) }
    }

    /// A kernel whose clock stood at 1,000 ns when the counter showed 500, with 2.5 ns per cycle. `copy`: the copy of
    /// the clock that is in use.
    fn clock(copy: u64, source_name: &[u8]) -> TestMemory {
        let mut memory = TestMemory::default();
        let base = FAST + 8 + 56 * copy;
        memory.write(FAST, &(copy as u32).to_le_bytes());
        memory.write(base, &SOURCE.to_le_bytes());
        memory.write(base + 16, &500_u64.to_le_bytes());
        memory.write(base + 24, &10_u32.to_le_bytes());
        memory.write(base + 28, &2_u32.to_le_bytes());
        memory.write(base + 32, &3_u64.to_le_bytes());
        memory.write(base + 40, &1_000_u64.to_le_bytes());
        memory.write(SOURCE + 72, &NAME.to_le_bytes());
        memory.write(NAME, source_name);
        memory
    }

    #[test]
    fn the_clock_is_that_of_the_copy_in_use() {
        let offsets = Offsets::parse(OFFSETS).unwrap();
        for copy in [0, 1] {
            let mut memory = clock(copy, b"tsc\0");
            let mut now = |tsc| monotonic_ns(tsc, &symbols(), &offsets, &mut memory);
            // (7 cycles * 10 + 3) / 4
            assert_eq!((now(507), now(400)), (Some(1_018), Some(1_000)), "copy {copy}");
        }
    }

    #[test]
    fn another_clock_source_tells_no_time() {
        let offsets = Offsets::parse(OFFSETS).unwrap();
        for (name, is_tsc) in [(&b"tsc-early\0"[..], true), (b"tscx\0", false), (b"hpet\0", false)]
        {
            let now = monotonic_ns(507, &symbols(), &offsets, &mut clock(0, name));
            assert_eq!(now.is_some(), is_tsc, "{name:?}");
        }
        let now = monotonic_ns(507, &TimeSymbols::default(), &offsets, &mut clock(0, b"tsc\0"));
        assert_eq!(now, None, "the kernel's clock was not found");
    }

    #[test]
    fn timers_of_the_wheel_are_late_by_whole_jiffies() {
        let offsets = Offsets::parse(OFFSETS).unwrap();
        let timer = NAME;
        let mut memory = TestMemory::default();
        memory.write(FAST, &1_003_u64.to_le_bytes());
        memory.write(SOURCE + 24, &(4_000_000_u32 << 8).to_le_bytes());
        memory.write(SOURCE + 28, &8_u32.to_le_bytes());
        for (due, late) in [(1_000_u64, 12_000_000), (1_003, 0), (1_004, -4_000_000)] {
            memory.write(timer + 16, &due.to_le_bytes());
            assert_eq!(jiffies_late(timer, &symbols(), &offsets, &mut memory), Some(late));
        }
    }
}
