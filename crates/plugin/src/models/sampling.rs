//! Sampling: chooses the instructions that a core executes in detail, and estimates the cycles of all others. A
//! pipeline has a [`Sampler`] if the options ask for sampling, or while a [`Scope`] other than everything is set.
//!
//! A vCPU's instructions are divided into periods of equal length. In each period, from a position that a seed chooses,
//! the core executes some instructions in detail. The first `warming` of them fill the core's queues and are not
//! counted; the rest is a counted *unit*. All other instructions only keep caches, TLBs and predictors warm. Their
//! estimated cycles follow from the last units.
//!
//! This is SMARTS (Wunderlich and others, ISCA 2003), with a random position within the period. A fixed position could
//! coincide with a period of the program.

use attribution::KernelContext;
use machine::{Instructions, VirtualAddress};
use plugin_interface::sampling::Sampling;
use simrecord::counters::{BRANCHES, COUNTERS, CYCLES, Counts, INSTRUCTIONS};

/// Fraction bits of a rate. A rate is a fixed-point number of cycles per used issue slot.
const RATE_SHIFT: u32 = 16;
/// A rate follows from the issue slots of about `2^RATE_WEIGHT_SHIFT` units, the latest with the largest weight.
const RATE_WEIGHT_SHIFT: u32 = 3;
/// Between units, the clock takes `1 / 2^OVERLAP_SHIFT` of the latencies of memory accesses, because accesses overlap.
/// The estimated rate absorbs the error of this constant. Without it, no time would pass while a program waits.
const OVERLAP_SHIFT: u32 = 2;
/// The least rate: no core has more than 16 issue slots per cycle.
const RATE_MIN: u64 = 1 << (RATE_SHIFT - 4);
/// The weight of the rate that a mode has before its first unit, in issue slots.
const FIRST_RATE_SLOTS: u64 = 500;

/// The instruction of a vCPU, by its count, from which on a unit and its warming execute in detail.
fn start_of_unit(sampling: &Sampling, vcpu: u32, unit: u64) -> Instructions {
    let positions = sampling.period - sampling.warming - sampling.unit + 1;
    let chosen = scrambled(scrambled(sampling.seed ^ u64::from(vcpu) << 48) ^ unit);
    let in_period = ((u128::from(chosen) * u128::from(positions)) >> 64) as u64;
    Instructions(unit * sampling.period + in_period)
}

/// A pseudo-random number that depends on all bits of `number`: SplitMix64 (Steele and others, OOPSLA 2014).
pub(crate) fn scrambled(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The index of kernel mode in arrays by mode. User mode has index 0.
const KERNEL: usize = 1;

/// The index of the mode that executes code at an address. The kernel has the upper half of all addresses.
#[inline(always)]
fn mode_of(address: VirtualAddress) -> usize {
    address.block_number(63) as usize
}

/// The phase of sampling that a vCPU is in. The phases follow one another in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Instructions keep caches and predictors warm.
    FunctionalWarming,
    /// Instructions fill the queues of the core, and are not counted.
    DetailedWarming,
    /// Instructions are measured.
    Unit,
}

/// The result of [`Sampler::phase_end`] when a phase has ended. It obliges the caller to call
/// [`Sampler::start_next_phase`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseEnd;

/// The part of a unit that one context executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitPart {
    pub(crate) region: u32,
    /// The number of the unit.
    pub(crate) unit: u64,
    /// [`KernelContext::code`].
    pub(crate) code: u64,
    pub(crate) counts: Counts,
}

/// The counts of a core at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) counts: Counts,
    /// Issue slots that the core has used so far.
    pub(crate) slots: u64,
}

/// The part of the measured unit that one context has executed so far.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// [`KernelContext::code`].
    code: u64,
    counts: Counts,
    /// Issue slots that the core used in the part.
    slots: u64,
    waited_cycles: u64,
}

/// In [`Scope::Kernel`], how many user instructions after kernel mode are executed in detail. They wait for code and
/// data that the kernel has evicted, so the rate of user mode does not describe them.
const AFTER_KERNEL: Instructions = Instructions(500);

/// The instructions that a core executes in detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Everything,
    /// Kernel mode, the first user instructions after kernel mode, and units of user mode.
    Kernel,
    /// Units of kernel mode and of user mode.
    Units,
}

/// Chooses the instructions that the core of a vCPU executes in detail, and keeps the counts of units.
pub(crate) struct Sampler {
    sampling: Sampling,
    vcpu: u32,
    phase: Phase,
    /// Whether kernel mode is executed in detail.
    kernel_is_in_detail: bool,
    /// User mode is executed in detail until this count of instructions, because kernel mode came before.
    user_in_detail_until: Instructions,
    /// Executed instructions, in detail or not.
    executed: Instructions,
    branches: u64,
    /// The count of executed instructions at which the next phase starts.
    next_phase_start: Instructions,
    /// The number of the unit that is measured now, or of the next unit.
    unit: u64,
    /// The context that executes: [`KernelContext::code`].
    code: u64,
    /// The region of interest, while one is open.
    region: Option<u32>,
    /// The parts of the measured unit, up to `last_charge`.
    parts: Vec<Part>,
    /// The counts when counts were charged to a part last.
    last_charge: Moment,
    /// The sum of the latencies of memory accesses since `last_charge`, in cycles.
    waited_cycles: u64,
    /// The parts of units that have ended.
    ended_parts: Vec<UnitPart>,
    /// Cycles per used issue slot by mode, without the time of overlapping waits. Fixed point: see [`RATE_SHIFT`].
    rates: [u64; 2],
    /// The weight of each rate, in issue slots.
    rate_slots: [u64; 2],
    /// Whether no unit has set the rate of each mode yet. A mode is executed in detail until a unit sets its rate.
    lacks_rate: [bool; 2],
    /// The fraction of a cycle that the last estimate has left over, as fixed point.
    cycle_fraction: u64,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling, vcpu: u32) -> Sampler {
        Sampler {
            sampling,
            vcpu,
            phase: Phase::FunctionalWarming,
            kernel_is_in_detail: false,
            user_in_detail_until: Instructions::default(),
            executed: Instructions::default(),
            branches: 0,
            next_phase_start: start_of_unit(&sampling, vcpu, 0),
            unit: 0,
            code: KernelContext::Unknown.code(),
            region: None,
            parts: Vec::new(),
            last_charge: Moment { counts: [0; COUNTERS], slots: 0 },
            waited_cycles: 0,
            ended_parts: Vec::new(),
            rates: [1 << RATE_SHIFT; 2],
            rate_slots: [FIRST_RATE_SLOTS; 2],
            lacks_rate: [false; 2],
            cycle_fraction: 0,
        }
    }

    /// A sampler whose first unit starts at once. It estimates the time of a mode only after it has measured its rate.
    pub(crate) fn starting_with_unit(sampling: Sampling, vcpu: u32) -> Sampler {
        let next_phase_start = Instructions(sampling.warming);
        let phase = Phase::DetailedWarming;
        Sampler { phase, next_phase_start, lacks_rate: [true; 2], ..Sampler::new(sampling, vcpu) }
    }

    /// Sets whether all of kernel mode is executed in detail from now on. Otherwise only its units are.
    pub(crate) fn set_kernel_in_detail(&mut self, is_in_detail: bool) {
        self.kernel_is_in_detail = is_in_detail;
    }

    /// Returns whether the core must execute the next `instructions`, from `address` on, in detail.
    #[inline(always)]
    pub(crate) fn choose_detail(
        &mut self,
        address: VirtualAddress,
        instructions: Instructions,
    ) -> bool {
        let mode = mode_of(address);
        if self.kernel_is_in_detail && mode == KERNEL {
            self.user_in_detail_until = self.executed + instructions + AFTER_KERNEL;
        }
        self.phase != Phase::FunctionalWarming
            || self.executed < self.user_in_detail_until
            || self.lacks_rate[mode]
    }

    /// Whether the next instructions only keep caches and predictors warm, unless their mode is executed in detail.
    #[inline(always)]
    pub(crate) fn warms_functionally(&self) -> bool {
        self.phase == Phase::FunctionalWarming
    }

    /// Adds the latencies of the memory accesses of instructions that were executed in detail.
    #[inline]
    pub(crate) fn add_wait(&mut self, cycles: u64) {
        self.waited_cycles += cycles;
    }

    /// Estimates the cycles of instructions that use `slots` issue slots. `waited_cycles`: the latencies of their
    /// memory accesses. `address`: the address of one of the instructions, which tells the mode.
    #[inline]
    pub(crate) fn estimate(
        &mut self,
        slots: u32,
        waited_cycles: u64,
        address: VirtualAddress,
    ) -> u64 {
        let cycles = u64::from(slots) * self.rates[mode_of(address)]
            + (waited_cycles << (RATE_SHIFT - OVERLAP_SHIFT))
            + self.cycle_fraction;
        self.cycle_fraction = cycles & ((1 << RATE_SHIFT) - 1);
        cycles >> RATE_SHIFT
    }

    /// Counts executed instructions. `is_branch_last`: whether the last instruction is a branch.
    #[inline]
    pub(crate) fn count_executed(&mut self, instructions: Instructions, is_branch_last: bool) {
        self.executed += instructions;
        self.branches += u64::from(is_branch_last);
    }

    /// Whether the phase has ended; `None`: it goes on. Call it at the end of a block only. The units then do not depend on
    /// events inside of blocks, for which a block executes in two parts.
    #[inline]
    pub(crate) fn phase_end(&self) -> Option<PhaseEnd> {
        (self.executed >= self.next_phase_start).then_some(PhaseEnd)
    }

    /// Sets the counters of instructions and branches, which the sampler counts in detail and between units.
    pub(crate) fn put_counts(&self, counts: &mut Counts) {
        counts[INSTRUCTIONS] = self.executed.0;
        counts[BRANCHES] = self.branches;
    }

    /// Starts the next phase. `now`: the current counts.
    pub(crate) fn start_next_phase(&mut self, _: PhaseEnd, now: &Moment) {
        match self.phase {
            Phase::FunctionalWarming => {
                self.phase = Phase::DetailedWarming;
                self.next_phase_start += Instructions(self.sampling.warming);
            }
            Phase::DetailedWarming => {
                self.phase = Phase::Unit;
                self.next_phase_start += Instructions(self.sampling.unit);
                self.parts.clear();
                (self.last_charge, self.waited_cycles) = (*now, 0);
            }
            Phase::Unit => {
                self.charge(now);
                let unit_start = self.next_phase_start - Instructions(self.sampling.unit);
                let follows_kernel =
                    self.kernel_is_in_detail && self.user_in_detail_until > unit_start;
                self.adapt_rates(follows_kernel);
                self.end_unit();
                self.phase = Phase::FunctionalWarming;
                self.unit += 1;
                self.next_phase_start = start_of_unit(&self.sampling, self.vcpu, self.unit);
            }
        }
        if self.executed >= self.next_phase_start {
            // A block can be longer than the rest of a phase.
            self.start_next_phase(PhaseEnd, now);
        }
    }

    /// Whether a unit is measured, and another context than `code` executes.
    pub(crate) fn measures_other_than(&self, code: u64) -> bool {
        self.phase == Phase::Unit && self.code != code
    }

    /// Sets the context of the following instructions. The caller has charged the counts of the previous context.
    pub(crate) fn set_context(&mut self, code: u64) {
        self.code = code;
    }

    /// Sets the open region of interest. `None`: no region is open. The measured part of a unit
    /// counts for the previous region.
    pub(crate) fn set_region(&mut self, region: Option<u32>, now: &Moment) {
        if self.kernel_is_in_detail {
            // Units only give rates. The counts of regions come from all instructions.
            return;
        }
        if self.phase == Phase::Unit {
            self.charge(now);
            self.end_unit();
        }
        self.region = region;
    }

    /// Takes the parts of the units that have ended since the last call.
    pub(crate) fn take_ended_parts(&mut self) -> Vec<UnitPart> {
        std::mem::take(&mut self.ended_parts)
    }

    /// Charges the counts since the last charge to the context that executes.
    pub(crate) fn charge(&mut self, now: &Moment) {
        let last = self.last_charge.counts;
        let counts: Counts = std::array::from_fn(|id| now.counts[id].wrapping_sub(last[id]));
        let slots = now.slots - self.last_charge.slots;
        self.last_charge = *now;
        let waited_cycles = std::mem::take(&mut self.waited_cycles);
        if counts.iter().all(|count| *count == 0) {
            return;
        }
        let code = self.code;
        match self.parts.iter_mut().find(|part| part.code == code) {
            Some(part) => {
                part.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                part.slots += slots;
                part.waited_cycles += waited_cycles;
            }
            None => self.parts.push(Part { code, counts, slots, waited_cycles }),
        }
    }

    /// Ends the unit: keeps its parts for the open region, or drops them if no region is open.
    fn end_unit(&mut self) {
        let unit = self.unit;
        if let Some(region) = self.region {
            let part =
                |part: &Part| UnitPart { region, unit, code: part.code, counts: part.counts };
            self.ended_parts.extend(self.parts.iter().map(part));
        }
        self.parts.clear();
    }

    /// Adapts the rates to the measured unit. `follows_kernel`: the unit has user instructions that directly follow
    /// kernel mode. Such instructions are never estimated, so the user rate ignores the unit.
    ///
    /// A unit counts by the slots that it has of a mode. Short pieces of kernel mode are often the first instructions
    /// after an entry, which find cold caches: with the weight of long pieces, they would make the rate too high.
    fn adapt_rates(&mut self, follows_kernel: bool) {
        let unit_slots: u64 = self.parts.iter().map(|part| part.slots).sum();
        // The edge of a region can cut a unit.
        let rate_slots_max = unit_slots.max(self.sampling.unit) << RATE_WEIGHT_SHIFT;
        for mode in usize::from(follows_kernel)..self.rates.len() {
            let (cycles, slots) = self.measured_in(mode);
            if self.lacks_rate[mode] {
                if slots < FIRST_RATE_SLOTS {
                    continue;
                }
                self.lacks_rate[mode] = false;
                self.rate_slots[mode] = 0;
            }
            let rate_slots = (self.rate_slots[mode] + slots).min(rate_slots_max);
            if slots > 0 {
                let rate = self.rates[mode];
                let excess = (cycles << RATE_SHIFT).cast_signed() - (rate * slots).cast_signed();
                let step = excess / rate_slots.cast_signed();
                self.rates[mode] = rate.saturating_add_signed(step).max(RATE_MIN);
                self.rate_slots[mode] = rate_slots;
            }
        }
    }

    /// The cycles of the measured unit in a mode, without the time of overlapping waits, and its issue slots.
    fn measured_in(&self, mode: usize) -> (u64, u64) {
        let is_user =
            |code: u64| matches!(KernelContext::from_code(code), Some(KernelContext::User(_)));
        let parts = self.parts.iter().filter(|part| is_user(part.code) == (mode != KERNEL));
        parts.fold((0, 0), |(cycles, slots), part| {
            let waited = part.waited_cycles >> OVERLAP_SHIFT;
            (cycles + part.counts[CYCLES].saturating_sub(waited), slots + part.slots)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLING: Sampling = Sampling { period: 1_000, warming: 100, unit: 50, seed: 7 };

    /// Runs blocks of five kernel instructions. Each instruction takes `cycles`. Returns the cycles executed in detail.
    fn run(sampler: &mut Sampler, blocks: u64, cycles: u64) -> u64 {
        let (mut now, mut in_detail) = (0, 0);
        for _ in 0..blocks {
            if sampler.choose_detail(VirtualAddress(u64::MAX), Instructions(5)) {
                (now, in_detail) = (now + 5 * cycles, in_detail + 5 * cycles);
            } else {
                now += sampler.estimate(5, 0, VirtualAddress(u64::MAX));
            }
            sampler.count_executed(Instructions(5), true);
            if let Some(phase_end) = sampler.phase_end() {
                let mut counts = [0; COUNTERS];
                sampler.put_counts(&mut counts);
                counts[CYCLES] = now;
                sampler.start_next_phase(phase_end, &Moment { counts, slots: sampler.executed.0 });
            }
        }
        in_detail
    }

    #[test]
    fn kernel_mode_is_in_detail_and_so_are_the_first_user_instructions_after_it() {
        let sampling = Sampling { period: 1 << 30, ..SAMPLING };
        const BLOCK: Instructions = Instructions(60);
        let (user, kernel) = (VirtualAddress(0x1000), VirtualAddress(u64::MAX));
        let mut sampler = Sampler::new(sampling, 0);
        assert!(!sampler.choose_detail(user, BLOCK) && !sampler.choose_detail(kernel, BLOCK));
        sampler.set_kernel_in_detail(true);
        assert!(!sampler.choose_detail(user, BLOCK) && sampler.choose_detail(kernel, BLOCK));
        sampler.count_executed(BLOCK, true);
        for executed in (0..AFTER_KERNEL.0).step_by(100) {
            assert!(sampler.choose_detail(user, BLOCK), "{executed}");
            sampler.count_executed(Instructions(100), false);
        }
        assert!(!sampler.choose_detail(user, BLOCK) && sampler.choose_detail(kernel, BLOCK));
    }

    /// An event inside of a block makes it execute in two parts.
    #[test]
    fn a_phase_ends_with_a_block_and_not_inside_of_one() {
        let mut sampler = Sampler::new(SAMPLING, 0);
        sampler.count_executed(sampler.next_phase_start, false);
        assert_eq!(sampler.phase, Phase::FunctionalWarming, "the block goes on");
        sampler.count_executed(Instructions(3), true);
        let phase_end = sampler.phase_end().expect("the phase has ended");
        sampler.start_next_phase(phase_end, &Moment { counts: [0; COUNTERS], slots: 0 });
        assert_eq!(sampler.phase, Phase::DetailedWarming);
    }

    #[test]
    fn the_first_unit_sets_the_rate_and_later_ones_change_it() {
        let sampling = Sampling { period: 10_000, warming: 100, unit: 600, seed: 7 };
        let mut sampler = Sampler::starting_with_unit(sampling, 0);
        sampler.set_context(KernelContext::Interrupt(0xec).code());
        assert!(sampler.choose_detail(VirtualAddress(u64::MAX), Instructions(5)));
        let in_detail = run(&mut sampler, 140, 3);
        assert_eq!(in_detail, 140 * 5 * 3);
        assert!(!sampler.choose_detail(VirtualAddress(u64::MAX), Instructions(5)));
        assert_eq!(sampler.estimate(100, 0, VirtualAddress(u64::MAX)), 300);
    }

    /// Measures a unit of `parts`: code of the context, issue slots, cycles.
    fn measure_unit(sampler: &mut Sampler, parts: &[(u64, u64, u64)]) {
        for &(code, slots, cycles) in parts {
            let mut counts = [0; COUNTERS];
            counts[CYCLES] = cycles;
            sampler.parts.push(Part { code, counts, slots, waited_cycles: 0 });
        }
        sampler.adapt_rates(false);
        sampler.parts.clear();
    }

    #[test]
    fn a_rate_is_the_ratio_of_all_cycles_and_slots_and_not_the_mean_of_the_units_ratios() {
        let sampling = Sampling { period: 10_000, unit: 1_000, ..SAMPLING };
        let mut sampler = Sampler::new(sampling, 0);
        let (user, kernel) = (KernelContext::User(7).code(), KernelContext::Syscall(1).code());
        let mut mean_rate = 0.0;
        for unit in 0..400 {
            // Short pieces of kernel mode take 6 cycles per slot, and long ones 2.
            measure_unit(&mut sampler, &[(kernel, 100, 600), (user, 900, 900)]);
            measure_unit(&mut sampler, &[(kernel, 900, 1_800), (user, 100, 100)]);
            if unit >= 300 {
                mean_rate += sampler.rates[KERNEL] as f64 / f64::from(1 << RATE_SHIFT) / 100.0;
            }
        }
        let ratio_of_sums = f64::from(600 + 1_800) / f64::from(100 + 900);
        assert!((mean_rate / ratio_of_sums - 1.0).abs() < 0.05, "{mean_rate}");
    }

    #[test]
    fn the_rate_before_the_first_unit_weighs_less_than_a_unit() {
        let sampling = Sampling { period: 10_000, unit: 1_000, ..SAMPLING };
        let mut sampler = Sampler::new(sampling, 0);
        let kernel = KernelContext::Syscall(1).code();
        measure_unit(&mut sampler, &[(kernel, 1_500, 6_000)]);
        // 500 slots of 1 cycle, and 1,500 of 4.
        assert_eq!(sampler.estimate(100, 0, VirtualAddress(u64::MAX)), 325);
    }

    #[test]
    fn a_unit_of_each_period_is_measured() {
        let sampling = Sampling { unit: 150, ..SAMPLING };
        let mut sampler = Sampler::new(sampling, 0);
        sampler.set_region(Some(1), &Moment { counts: [0; COUNTERS], slots: 0 });
        let in_detail = run(&mut sampler, 20_000, 3);
        let parts = sampler.take_ended_parts();
        assert_eq!(parts.len(), 100);
        assert!((0..).zip(&parts).all(|(unit, part)| part.unit == unit));
        let instructions: u64 = parts.iter().map(|part| part.counts[INSTRUCTIONS]).sum();
        let cycles: u64 = parts.iter().map(|part| part.counts[CYCLES]).sum();
        assert_eq!(cycles, 3 * instructions);
        // Phases end with a block.
        assert!((100 * 145..=100 * 155).contains(&instructions), "{instructions}");
        assert!((3 * 100 * 245..=3 * 100 * 260).contains(&in_detail), "{in_detail}");
        // The rate of the measured instructions is used for all others.
        let rate = sampler.rates[1] as f64 / f64::from(1 << RATE_SHIFT);
        assert!((rate - 3.0).abs() < 0.001, "{rate}");
    }

    #[test]
    fn places_depend_on_the_seed_and_stay_within_their_period() {
        let other_seed = Sampling { seed: 8, ..SAMPLING };
        let starts =
            |sampling: Sampling| (0..500).map(move |unit| start_of_unit(&sampling, 0, unit));
        for (unit, start) in starts(SAMPLING).enumerate() {
            let within = start.0 - unit as u64 * SAMPLING.period;
            assert!(within <= SAMPLING.period - SAMPLING.warming - SAMPLING.unit);
        }
        assert!(starts(SAMPLING).eq(starts(SAMPLING)) && !starts(SAMPLING).eq(starts(other_seed)));
        // All of a period is reached.
        let within = |unit: u64| start_of_unit(&SAMPLING, 0, unit).0 - unit * SAMPLING.period;
        assert!((0..500).any(|unit| within(unit) < 50) && (0..500).any(|unit| within(unit) > 800));
    }

    #[test]
    fn a_unit_is_divided_among_contexts_and_cut_at_the_edges_of_a_region() {
        let sampling = Sampling { period: 10, warming: 0, unit: 10, seed: 1 };
        let mut sampler = Sampler::new(sampling, 0);
        let moment = |instructions: u64| {
            let mut counts = [0; COUNTERS];
            (counts[INSTRUCTIONS], counts[CYCLES]) = (instructions, 2 * instructions);
            Moment { counts, slots: instructions }
        };
        let enter = |sampler: &mut Sampler, code, now| {
            assert!(sampler.measures_other_than(code));
            sampler.charge(&now);
            sampler.set_context(code);
        };
        sampler.start_next_phase(PhaseEnd, &moment(0)); // detailed warming of no length, then the unit
        assert_eq!(sampler.phase, Phase::Unit);
        // No region was open before.
        sampler.set_region(Some(4), &moment(3));
        enter(&mut sampler, 77, moment(5));
        enter(&mut sampler, 78, moment(9));
        sampler.set_region(None, &moment(10));
        let unknown = KernelContext::Unknown.code();
        let found = sampler.take_ended_parts();
        let found = found.iter().map(|part| (part.region, part.code, part.counts[CYCLES]));
        assert_eq!(found.collect::<Vec<_>>(), [(4, unknown, 4), (4, 77, 8), (4, 78, 2)]);
    }
}
