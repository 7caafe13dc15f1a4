//! Finds the contexts that a CPU executed between two readings of its time-stamp counter.
//!
//! The loop in the guest reads the counter, and the simulator counts cycles. While the CPU executes, both are one
//! clock, so a reading determines the cycle at which the loop made it. An advance of the counter without cycles is
//! unaccounted time: the ledger then does not close. Readings come from the guest, and may be any number.

use attribution::KernelContext;

use crate::accounting::ContextTransition;

const NS_PER_S: u128 = 1_000_000_000;
/// Error for readings that are out of order.
const OUT_OF_ORDER: &str = "a reading is earlier than the one before it";

/// An interval of one context on a CPU. Times are values of the time-stamp counter, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) context: KernelContext,
    /// The task at the bottom of the stack.
    pub(super) task: KernelContext,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// Cycles that the CPU executed.
    pub(super) cycles: u64,
    /// Difference between the advance of the counter and the executed cycles, although the CPU was not idle. Normally
    /// 0.
    pub(super) unaccounted_ns: u64,
}

impl Piece {
    pub(super) fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    /// Returns whether the loop itself executed: `thread` in user mode.
    pub(super) fn is_of(&self, thread: u32) -> bool {
        self.context == KernelContext::User(thread)
    }
}

/// The contexts that a CPU executed, in order.
pub(super) struct Timeline<'a> {
    transitions: &'a [ContextTransition],
    hz: u64,
}

impl<'a> Timeline<'a> {
    /// Makes a timeline of recorded transitions; `hz` is the clock frequency of the CPU.
    ///
    /// Fails when there are none, or their times decrease.
    pub(super) fn new(
        transitions: &'a [ContextTransition],
        hz: u64,
    ) -> Result<Timeline<'a>, String> {
        let is_ordered =
            |two: &[ContextTransition]| two[0].tsc <= two[1].tsc && two[0].cycles <= two[1].cycles;
        if transitions.is_empty() || hz == 0 {
            return Err("the contexts of the CPU were not recorded".to_owned());
        }
        match transitions.windows(2).position(|two| !is_ordered(two)) {
            Some(at) => Err(format!("the CPU's time decreases: {:?}", &transitions[at..at + 2])),
            None => Ok(Timeline { transitions, hz }),
        }
    }

    /// Returns the contexts from one reading of the counter to another.
    ///
    /// Fails when a reading matches no cycle, or the second is earlier than the first. Readings
    /// come from the guest, and may be any number.
    pub(super) fn pieces(&self, from_ns: u64, to_ns: u64) -> Result<Vec<Piece>, String> {
        if to_ns < from_ns {
            return Err(OUT_OF_ORDER.to_owned());
        }
        let after = self.transitions.partition_point(|transition| transition.tsc <= from_ns);
        let first = after.checked_sub(1).ok_or("a reading is before the window")?;
        let (mut at_ns, mut pieces) = (from_ns, Vec::new());
        let mut cycle = self.cycle_at(&self.transitions[first], from_ns)?;
        for (place, transition) in self.transitions.iter().enumerate().skip(first) {
            let next = self.transitions.get(place + 1).filter(|next| next.tsc <= to_ns);
            let (end_ns, end_cycle) = match next {
                Some(next) => (next.tsc, next.cycles),
                None => (to_ns, self.cycle_at(transition, to_ns)?),
            };
            let cycles = end_cycle.checked_sub(cycle).ok_or(OUT_OF_ORDER)?;
            let executed_ns = self.ns_of(end_cycle) - self.ns_of(cycle);
            let jumped_ns = (end_ns - at_ns).abs_diff(executed_ns);
            // An idle CPU is halted and executes no cycles.
            let is_idle = transition.context == KernelContext::Idle;
            if end_ns > at_ns || cycles > 0 {
                pieces.push(Piece {
                    context: transition.context,
                    task: transition.task,
                    from_ns: at_ns,
                    to_ns: end_ns,
                    cycles,
                    unaccounted_ns: if is_idle { 0 } else { jumped_ns },
                });
            }
            (at_ns, cycle) = (end_ns, end_cycle);
            if next.is_none() {
                break;
            }
        }
        Ok(pieces)
    }

    /// Returns the cycle at which a CPU whose last transition was `transition` read `tsc`.
    fn cycle_at(&self, transition: &ContextTransition, tsc: u64) -> Result<u64, String> {
        let since_ns = tsc.checked_sub(transition.tsc).ok_or(OUT_OF_ORDER)?;
        let first_cycle = || {
            let ns = self.ns_of(transition.cycles).checked_add(since_ns)?;
            let cycle = (u128::from(ns) * u128::from(self.hz)).div_ceil(NS_PER_S);
            Some((ns, u64::try_from(cycle).ok()?))
        };
        let (ns, cycle) = first_cycle()
            .ok_or_else(|| format!("the guest has read {tsc}, a time that never comes"))?;
        if self.ns_of(cycle) != ns {
            return Err(format!("the guest has read {tsc}, a time between two cycles"));
        }
        // Several cycles may fall into one ns: takes the first one that is not before the transition.
        Ok(cycle.max(transition.cycles))
    }

    /// Converts cycles to ns, rounded down and saturated, as the plugin does for the counter.
    fn ns_of(&self, cycles: u64) -> u64 {
        u64::try_from(u128::from(cycles) * NS_PER_S / u128::from(self.hz)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOOP: KernelContext = KernelContext::User(7);
    const TIMER: KernelContext = KernelContext::Interrupt(0xec);

    fn transition(context: KernelContext, cycles: u64, tsc: u64) -> ContextTransition {
        ContextTransition { context, task: LOOP, at_cycles: cycles, cycles, tsc }
    }

    #[test]
    fn a_gap_is_cut_where_the_context_changes() {
        // 200 MHz: a cycle is 5 ns.
        let transitions =
            [transition(LOOP, 10, 1050), transition(TIMER, 30, 1150), transition(LOOP, 90, 1450)];
        let timeline = Timeline::new(&transitions, 200_000_000).unwrap();
        let pieces = timeline.pieces(1100, 1500).unwrap();
        let summary = |piece: &Piece| (piece.context, piece.length_ns(), piece.cycles);
        let seen: Vec<_> = pieces.iter().map(summary).collect();
        assert_eq!(seen, [(LOOP, 50, 10), (TIMER, 300, 60), (LOOP, 50, 10)]);
        assert!(pieces.iter().all(|piece| piece.unaccounted_ns == 0));
        assert!(timeline.pieces(1102, 1500).unwrap_err().contains("between two cycles"));
        assert!(timeline.pieces(1000, 1500).unwrap_err().contains("before the window"));
    }

    #[test]
    fn time_without_cycles_is_unaccounted_unless_idle() {
        for (context, lost_ns) in [(TIMER, 100), (KernelContext::Idle, 0)] {
            let transitions = [transition(context, 0, 0), transition(LOOP, 50, 150)];
            let timeline = Timeline::new(&transitions, 1_000_000_000).unwrap();
            let pieces = timeline.pieces(0, 160).unwrap();
            assert_eq!(pieces.iter().map(|piece| piece.unaccounted_ns).sum::<u64>(), lost_ns);
        }
        assert!(Timeline::new(&[transition(LOOP, 5, 9), transition(LOOP, 6, 8)], 1).is_err());
        assert!(Timeline::new(&[], 1).is_err());
    }

    #[test]
    fn readings_that_the_clock_never_had_are_refused() {
        let transitions = [transition(LOOP, 10, 1_050), transition(TIMER, 30, 1_150)];
        let timeline = Timeline::new(&transitions, 200_000_000).unwrap();
        assert_eq!(timeline.pieces(1_200, 1_100), Err(OUT_OF_ORDER.to_owned()));
        let fast = Timeline::new(&transitions, 4_000_000_000).unwrap();
        let never = fast.pieces(1_200, u64::MAX).unwrap_err();
        assert!(never.contains("never comes"), "{never}");
        let late = [transition(LOOP, u64::MAX, 5)];
        let timeline = Timeline::new(&late, 1_000_000_000).unwrap();
        assert!(timeline.pieces(5, 6).unwrap_err().contains("never comes"));
    }

    proptest! {
        /// Whatever was read: an answer or a refusal, and pieces that fill what lies between.
        #[test]
        fn any_readings_have_an_answer(
            transitions in prop::collection::vec((any::<u64>(), any::<u64>()), 1..6),
            hz in 1..5_000_000_000_u64,
            readings in (any::<u64>(), any::<u64>()),
        ) {
            let mut transitions = transitions;
            transitions.iter_mut().for_each(|(cycles, tsc)| (*cycles, *tsc) = (*cycles >> 2, *tsc >> 2));
            transitions.sort_unstable();
            let transitions = transitions.into_iter().map(|(cycles, tsc)| transition(LOOP, cycles, tsc));
            let transitions: Vec<ContextTransition> = transitions.collect();
            if let Ok(timeline) = Timeline::new(&transitions, hz)
                && let Ok(pieces) = timeline.pieces(readings.0, readings.1)
            {
                let sum: u64 = pieces.iter().map(Piece::length_ns).sum();
                prop_assert_eq!(sum, readings.1 - readings.0);
            }
        }

        /// Whatever the contexts: the pieces lie end to end, and have all cycles between.
        #[test]
        fn pieces_fill_what_lies_between(
            steps in prop::collection::vec((0..50_u64, 0..3_u8), 1..40),
            hz in prop::sample::select(vec![143_000_000_u64, 200_000_000, 1_000_000_000, 4_700_000_000]),
            cut in (0..1000_u64, 0..1000_u64),
        ) {
            let ns_of = |cycles: u64| (u128::from(cycles) * NS_PER_S / u128::from(hz)) as u64;
            let mut cycles = 100;
            let transitions: Vec<ContextTransition> = steps.iter().map(|(step, kind)| {
                cycles += step;
                transition(KernelContext::Exception(*kind), cycles, 77 + ns_of(cycles))
            }).collect();
            let timeline = Timeline::new(&transitions, hz).unwrap();
            let (from, to) = (cut.0.min(cut.1), cut.0.max(cut.1));
            let first = transitions[0].cycles;
            let [from, to] = [from, to].map(|cut| 77 + ns_of(first + cut));
            let pieces = timeline.pieces(from, to).unwrap();
            let sum: u64 = pieces.iter().map(Piece::length_ns).sum();
            prop_assert_eq!(sum, to - from);
            prop_assert!(pieces.windows(2).all(|two| two[0].to_ns == two[1].from_ns));
            prop_assert!(pieces.iter().all(|piece| piece.unaccounted_ns == 0), "{:?}", pieces);
        }
    }
}
