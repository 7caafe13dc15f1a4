//! Finds out whether the shortest quantum of a loop, or the slot with the most work, is free of interference. Only then do they
//! show how the loop runs undisturbed.
//!
//! Goal: the slowdown and the lost work of a loop are relative to the loop without interference.
//! Problem: on a busy CPU, and with quanta longer than the period of the tick, something interrupts every quantum. The
//! shortest quantum and the slot with the most work then contain interference, too.
//! Rule: the kernel's events, or the simulator, show which quanta are undisturbed. Without them, the calibration decides: the
//! shortest quantum is undisturbed if it takes the calibrated time, and the slot with the most work if it has the calibrated
//! units. Otherwise the figures are bounds.

use super::work::{Block, Fixed, PARTS_PER_SLOT, Shortest, Slots};
use crate::cpu_warnings::CpuWarning;

/// A quantum or a slot without interference differs from the calibration by at most this part, and so do the shortest times
/// of two parts of the window at constant speed.
const SPEED_CHANGE_MAX: f64 = 0.05;
/// Minimum number of quanta of a block whose shortest time is compared. Without tracing, interrupts and other work may
/// lengthen all quanta of a shorter block.
const COMPARED_QUANTA_MIN: u64 = 10;

/// Kinds of warnings.
const SHORTEST_DISTURBED: &str = "the shortest quantum has interference, so min_ns is an upper bound of a quantum's time without \
                                  interference, and slowdown_ratio a lower bound (try a shorter --quantum)";
const LONGER_THAN_CALIBRATED: &str = "the shortest quantum takes longer than --quantum: all quanta have interference, or the core is \
                                      slower than at the calibration. So min_ns is an upper bound of a quantum's time without \
                                      interference, and slowdown_ratio a lower bound";
const BADLY_CALIBRATED: &str = "without interference, a quantum does not take --quantum: other work disturbed the calibration, \
                                or the core changed its speed since. Quanta of other runs may have other work: compare \
                                iterations_on_cpu_N in settings.windows";
const LESS_WORK_THAN_CALIBRATED: &str = "the slot with the most work has less than the 64 units of a slot without interference: all slots \
                                         have interference, or the core is slower than at the calibration. So lost_work_ratio is a \
                                         lower bound";
const MORE_WORK_THAN_CALIBRATED: &str = "slots have more than the 64 units of work of a slot without interference: other work disturbed \
                                         the calibration, or the core is faster than then. So lost_work_ratio is a lower bound";
const SPEED_CHANGED: &str = "the processor changed its speed, or shares its core: the best time of the same work \
                             differs between parts of the window";
const SPEED_CHANGED_OR_DISTURBED: &str = "the processor changed its speed, shares its core, or other work interrupted all quanta of a \
                                          part of the window: the best time of the same work differs between parts of the window";

impl Fixed {
    /// Whether the kernel's events, or the simulator, show what interrupted the quanta.
    fn is_traced(&self) -> bool {
        self.first.first().is_some_and(|quantum| quantum.faulted.is_some())
    }

    /// The shortest time of the undisturbed quanta, ns. `None` without tracing, and if every quantum was interrupted.
    #[must_use]
    pub fn undisturbed_min_ns(&self) -> Option<u64> {
        self.blocks.iter().filter_map(|block| block.undisturbed.min_ns).min()
    }

    /// Whether the shortest quantum has interference, or may have some: [`Fixed::min_ns`] is then an upper bound of the
    /// time without interference. `false` without quanta.
    #[must_use]
    pub fn has_disturbed_min(&self) -> bool {
        let Some(min_ns) = self.min_ns() else { return false };
        if self.is_traced() {
            return self.undisturbed_min_ns() != Some(min_ns);
        }
        self.calibrated_ns.is_none_or(|calibrated_ns| differs(min_ns, calibrated_ns))
    }
}

impl Slots {
    /// Whether the slot with the most work has interference, or may have some: [`Slots::work_max`] is then less than the
    /// work without interference. `false` without any work.
    #[must_use]
    pub fn has_disturbed_max(&self) -> bool {
        self.has_less_than_calibrated() || self.has_more_than_calibrated()
    }

    fn has_less_than_calibrated(&self) -> bool {
        let limit = PARTS_PER_SLOT as f64 * (1.0 - SPEED_CHANGE_MAX);
        !self.is_alone && self.work_max > 0 && (self.work_max as f64) < limit
    }

    /// A slot can end with a unit that mostly ran in the slot before it.
    fn has_more_than_calibrated(&self) -> bool {
        let limit = PARTS_PER_SLOT as f64 * (1.0 + SPEED_CHANGE_MAX) + 1.0;
        !self.is_alone && self.work_max as f64 > limit
    }

    /// The most work that a slot can have without interference: that of the best slot, and at least the calibrated
    /// units.
    #[must_use]
    pub fn possible_work(&self) -> u64 {
        if self.is_alone { self.work_max } else { self.work_max.max(PARTS_PER_SLOT) }
    }
}

/// Whether a time differs from the calibrated one by more than [`SPEED_CHANGE_MAX`].
fn differs(time_ns: u64, calibrated_ns: u64) -> bool {
    time_ns.abs_diff(calibrated_ns) as f64 > calibrated_ns as f64 * SPEED_CHANGE_MAX
}

/// Warnings about the quanta of fixed work on a CPU.
pub(super) fn warnings_of_quanta(cpu: u32, fixed: &Fixed) -> Vec<CpuWarning> {
    warning_of_reference(cpu, fixed).into_iter().chain(changed_speed(cpu, fixed)).collect()
}

/// A warning if the time of an undisturbed quantum is not known, or differs from the calibrated time. `None` if it equals that
/// time, and without quanta.
fn warning_of_reference(cpu: u32, fixed: &Fixed) -> Option<CpuWarning> {
    let (min_ns, calibrated_ns) = (fixed.min_ns()?, fixed.calibrated_ns);
    let differs = calibrated_ns.is_some_and(|calibrated_ns| differs(min_ns, calibrated_ns));
    let is_longer = calibrated_ns.is_none_or(|calibrated_ns| min_ns > calibrated_ns);
    let problem = match (fixed.has_disturbed_min(), fixed.is_traced()) {
        (true, true) => SHORTEST_DISTURBED,
        (true, false) if is_longer => LONGER_THAN_CALIBRATED,
        _ if differs => BADLY_CALIBRATED,
        _ => return None,
    };
    let calibrated =
        calibrated_ns.map_or(String::new(), |calibrated_ns| format!(" for {calibrated_ns} ns"));
    let size = min_ns as f64 / calibrated_ns.unwrap_or(min_ns).max(1) as f64;
    Some(CpuWarning::new(cpu, problem).with_extent(size, format!("{min_ns} ns{calibrated}")))
}

/// A warning about the slots of fixed time on a CPU if the work of a slot without interference is not known. `None` if it is.
pub(super) fn warning_of_slots(cpu: u32, slots: &Slots) -> Option<CpuWarning> {
    let problem = match () {
        () if slots.has_less_than_calibrated() => LESS_WORK_THAN_CALIBRATED,
        () if slots.has_more_than_calibrated() => MORE_WORK_THAN_CALIBRATED,
        () => return None,
    };
    Some(CpuWarning::new(cpu, problem).with_count(slots.work_max, "units"))
}

/// A warning if the minimum time of an undisturbed quantum differs between blocks of the window; without tracing, of any
/// quantum. `None` if it does not, if all blocks are short, and on a bench that sees every cycle: the bench knows what took
/// them.
fn changed_speed(cpu: u32, fixed: &Fixed) -> Option<CpuWarning> {
    if !fixed.cycles.is_empty() {
        return None;
    }
    let is_traced = fixed.is_traced();
    let shortest = |block: &Block| if is_traced { block.undisturbed } else { block.all };
    let compared = fixed.blocks.iter().map(shortest);
    let compared = compared.filter(|Shortest { count, .. }| *count >= COMPARED_QUANTA_MIN);
    let compared_ns: Vec<u64> = compared.filter_map(|shortest| shortest.min_ns).collect();
    let (min_ns, max_ns) = (*compared_ns.iter().min()?, *compared_ns.iter().max()?);
    let ratio = max_ns as f64 / min_ns as f64;
    if ratio <= 1.0 + SPEED_CHANGE_MAX {
        return None;
    }
    let problem = if is_traced { SPEED_CHANGED } else { SPEED_CHANGED_OR_DISTURBED };
    Some(CpuWarning::new(cpu, problem).with_extent(ratio, format!("{min_ns} and {max_ns} ns")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::quantum::Quantum;
    use super::super::split::Part;
    use super::super::work::QuantumCycles;
    use super::*;

    /// Untraced quanta in blocks of `block_count`, whose shortest times are `minima_ns`. The first one is undisturbed.
    pub(in super::super) fn fixed_with_minima(minima_ns: &[u64], block_count: u64) -> Fixed {
        let all = |min_ns: &u64| Shortest { min_ns: Some(*min_ns), count: block_count };
        let block = |min_ns: &u64| Block { all: all(min_ns), ..Block::default() };
        let blocks = minima_ns.iter().map(block).collect();
        Fixed { blocks, calibrated_ns: minima_ns.first().copied(), ..Fixed::default() }
    }

    /// Traced quanta of 200 µs of calibrated work, each with its time, and the part of it that a context took.
    fn traced(quanta: &[(u64, u64)]) -> Fixed {
        let mut fixed = Fixed { calibrated_ns: Some(200_000), ..Fixed::default() };
        for &(time_ns, taken_ns) in quanta {
            let mut quantum = Quantum { faulted: Some(false), ..Quantum::untraced(0, time_ns) };
            let parts = &mut [(Part::Context(1), taken_ns)];
            quantum.attribute(if taken_ns > 0 { parts } else { &mut [] }, Some([].into_iter()));
            fixed.add(quantum, 1_000);
        }
        fixed
    }

    fn untraced(time_ns: u64, calibrated_ns: Option<u64>) -> Fixed {
        let mut fixed = Fixed { calibrated_ns, ..Fixed::default() };
        fixed.add(Quantum::untraced(0, time_ns), 10);
        fixed
    }

    fn slots_with(work_max: u64, is_alone: bool) -> Slots {
        let mut slots = Slots { is_alone, ..Slots::default() };
        slots.add(0, work_max);
        slots
    }

    fn words(warnings: impl IntoIterator<Item = CpuWarning>) -> Vec<String> {
        let mut lines = crate::cpu_warnings::CpuWarnings::default();
        warnings.into_iter().for_each(|warning| lines.add("", warning));
        lines.lines()
    }

    #[test]
    fn a_shortest_quantum_with_interference_is_only_a_bound() {
        let all_disturbed = traced(&[(265_000, 97_000), (700_000, 500_000)]);
        assert!(all_disturbed.has_disturbed_min());
        let lines = words(warnings_of_quanta(1, &all_disturbed));
        let expected = [format!("CPU 1: {SHORTEST_DISTURBED} (265000 ns for 200000 ns)")];
        assert_eq!(lines, expected);
        let undisturbed = traced(&[(700_000, 500_000), (200_100, 0)]);
        assert!(!undisturbed.has_disturbed_min());
        assert_eq!(words(warnings_of_quanta(1, &undisturbed)), [""; 0]);
        // The core was faster in the disturbed quantum.
        assert!(traced(&[(195_000, 1_000), (200_100, 0)]).has_disturbed_min());
        assert!(!Fixed::default().has_disturbed_min());
    }

    #[test]
    fn untraced_quanta_are_judged_by_the_calibration() {
        let warning = |fixed: &Fixed| words(warning_of_reference(0, fixed)).join("");
        for (time_ns, is_disturbed, problem) in [
            (104_000, false, ""),
            (106_000, true, LONGER_THAN_CALIBRATED),
            (94_000, true, BADLY_CALIBRATED),
        ] {
            let fixed = untraced(time_ns, Some(100_000));
            assert_eq!(fixed.has_disturbed_min(), is_disturbed, "{time_ns}");
            assert!(warning(&fixed).contains(problem), "{time_ns}: {}", warning(&fixed));
            assert_eq!(warning(&fixed).is_empty(), problem.is_empty(), "{time_ns}");
        }
        assert!(untraced(100_000, None).has_disturbed_min(), "nothing is known");
    }

    #[test]
    fn a_quantum_that_nothing_interrupts_and_that_does_not_take_its_time_is_named() {
        let lines = words(warnings_of_quanta(0, &traced(&[(66_000, 0), (90_000, 20_000)])));
        assert_eq!(lines, [format!("CPU 0: {BADLY_CALIBRATED} (66000 ns for 200000 ns)")]);
    }

    #[test]
    fn slots_are_judged_by_the_units_of_the_calibration() {
        for (work_max, problem) in [
            (33, LESS_WORK_THAN_CALIBRATED),
            (60, LESS_WORK_THAN_CALIBRATED),
            (61, ""),
            (68, ""),
            (69, MORE_WORK_THAN_CALIBRATED),
        ] {
            let slots = slots_with(work_max, false);
            assert_eq!(slots.has_disturbed_max(), !problem.is_empty(), "{work_max}");
            assert!(words(warning_of_slots(0, &slots)).join("").contains(problem), "{work_max}");
        }
        assert!(!slots_with(33, true).has_disturbed_max(), "nothing can interrupt the loop");
        assert_eq!([33, 70].map(|work| slots_with(work, false).possible_work()), [64, 70]);
        assert_eq!(slots_with(33, true).possible_work(), 33);
        assert!(!Slots::default().has_disturbed_max());
    }

    #[test]
    fn a_change_of_speed_is_one_beyond_a_twentieth() {
        let fixed = fixed_with_minima;
        assert_eq!(changed_speed(0, &fixed(&[], 10)), None);
        assert_eq!(changed_speed(0, &fixed(&[100_000, 104_000], 10)), None);
        assert!(changed_speed(0, &fixed(&[100_000, 106_000], 10)).is_some());
        // An interrupt in each of a block's few quanta is no change of speed.
        assert_eq!(changed_speed(0, &fixed(&[100_000, 106_000], 9)), None);
        // A simulated clock has one speed.
        let cycles = QuantumCycles {
            own: 100_000,
            taken: 6_000,
            departures: 1,
            departures_before: 0,
            first: None,
            switched: false,
        };
        let simulated = Fixed { cycles: vec![cycles], ..fixed(&[100_000, 106_000], 10) };
        assert_eq!(changed_speed(0, &simulated), None);
    }

    #[test]
    fn tasks_in_all_quanta_of_a_part_of_the_window_are_no_change_of_speed() {
        let quanta: Vec<(u64, u64)> = (0..2_000)
            .map(|number| if number < 1_000 { (200_000, 0) } else { (900_000, 700_000) })
            .collect();
        assert_eq!(changed_speed(0, &traced(&quanta)), None);
        let slower: Vec<(u64, u64)> =
            (0..2_000).map(|number| (if number < 1_000 { 200_000 } else { 250_000 }, 0)).collect();
        assert!(changed_speed(0, &traced(&slower)).is_some());
    }
}
