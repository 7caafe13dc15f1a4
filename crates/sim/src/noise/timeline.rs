//! Who had a CPU between two readings of its time-stamp counter.
//!
//! The loop in the guest reads the counter; the simulator counts cycles. Both are the same clock as
//! long as the CPU executes, so a reading tells the cycle at which it was made, and what does not fit
//! is found out: it is nobody's, and the ledger does not close.

use attribution::KernelContext;

use crate::accounting::TurnUse;

const NS_PER_S: u128 = 1_000_000_000;
/// Why readings are refused that are not in order.
const BACK: &str = "a reading behind a later one";

/// A stretch of time in which a CPU executed for one context. Times are of the time-stamp counter, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) context: KernelContext,
    /// The task at the foot of the stack.
    pub(super) foot: KernelContext,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// Cycles that it executed.
    pub(super) cycles: u64,
    /// By how much the counter advanced otherwise than by cycles, though nobody was idle.
    pub(super) unaccounted_ns: u64,
}

impl Piece {
    pub(super) fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    /// Whether it is the loop's own.
    pub(super) fn is_of(&self, thread: u32) -> bool {
        self.context == KernelContext::User(thread)
    }
}

/// What one CPU executed for, in order.
pub(super) struct Timeline<'a> {
    turns: &'a [TurnUse],
    hz: u64,
}

impl<'a> Timeline<'a> {
    /// Of turns as they were recorded; `hz` are the CPU's cycles of a second.
    ///
    /// # Errors
    /// When there are none, or they go back in time.
    pub(super) fn new(turns: &'a [TurnUse], hz: u64) -> Result<Timeline<'a>, String> {
        let is_behind =
            |two: &[TurnUse]| two[0].tsc <= two[1].tsc && two[0].cycles <= two[1].cycles;
        if turns.is_empty() || hz == 0 {
            return Err("what the CPU executed for was not recorded".to_owned());
        }
        match turns.windows(2).position(|two| !is_behind(two)) {
            Some(at) => Err(format!("the CPU's time goes back: {:?}", &turns[at..at + 2])),
            None => Ok(Timeline { turns, hz }),
        }
    }

    /// Who had the CPU from one reading of its counter to another.
    ///
    /// # Errors
    /// When it was at no cycle when one of them was made, or the second is of before the first. Readings are
    /// the guest's: any number.
    pub(super) fn pieces(&self, from_ns: u64, to_ns: u64) -> Result<Vec<Piece>, String> {
        if to_ns < from_ns {
            return Err(BACK.to_owned());
        }
        let behind = self.turns.partition_point(|turn| turn.tsc <= from_ns);
        let first = behind.checked_sub(1).ok_or("a reading of before the window")?;
        let (mut at_ns, mut pieces) = (from_ns, Vec::new());
        let mut cycle = self.cycle_at(&self.turns[first], from_ns)?;
        for (place, turn) in self.turns.iter().enumerate().skip(first) {
            let next = self.turns.get(place + 1).filter(|next| next.tsc <= to_ns);
            let (end_ns, end_cycle) = match next {
                Some(next) => (next.tsc, next.cycles),
                None => (to_ns, self.cycle_at(turn, to_ns)?),
            };
            let cycles = end_cycle.checked_sub(cycle).ok_or(BACK)?;
            let executed_ns = self.ns_of(end_cycle) - self.ns_of(cycle);
            let jumped_ns = (end_ns - at_ns).abs_diff(executed_ns);
            // An idle CPU is halted, and executes nothing: that is what idle is.
            let is_idle = turn.context == KernelContext::Idle;
            if end_ns > at_ns || cycles > 0 {
                pieces.push(Piece {
                    context: turn.context,
                    foot: turn.foot,
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

    /// The cycle at which a CPU whose last turn was `turn` has read `tsc`.
    fn cycle_at(&self, turn: &TurnUse, tsc: u64) -> Result<u64, String> {
        let behind_ns = tsc.checked_sub(turn.tsc).ok_or(BACK)?;
        let at = || {
            let ns = self.ns_of(turn.cycles).checked_add(behind_ns)?;
            let cycle = (u128::from(ns) * u128::from(self.hz)).div_ceil(NS_PER_S);
            Some((ns, u64::try_from(cycle).ok()?))
        };
        let (ns, cycle) =
            at().ok_or_else(|| format!("the guest has read {tsc}, a time that never comes"))?;
        match self.ns_of(cycle) == ns {
            // Of the cycles of one ns, where there are several, none before the turn.
            true => Ok(cycle.max(turn.cycles)),
            false => Err(format!("the guest has read {tsc}, a time between two cycles")),
        }
    }

    /// Cycles in ns, rounded down, as the plugin does for the counter; at most what it can show.
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

    fn turn(context: KernelContext, cycles: u64, tsc: u64) -> TurnUse {
        TurnUse { context, foot: LOOP, cycles, tsc }
    }

    #[test]
    fn a_gap_is_cut_where_the_context_changes() {
        // 200 MHz: a cycle is 5 ns.
        let turns = [turn(LOOP, 10, 1050), turn(TIMER, 30, 1150), turn(LOOP, 90, 1450)];
        let timeline = Timeline::new(&turns, 200_000_000).unwrap();
        let pieces = timeline.pieces(1100, 1500).unwrap();
        let of = |one: &Piece| (one.context, one.length_ns(), one.cycles);
        let seen: Vec<_> = pieces.iter().map(of).collect();
        assert_eq!(seen, [(LOOP, 50, 10), (TIMER, 300, 60), (LOOP, 50, 10)]);
        assert!(pieces.iter().all(|one| one.unaccounted_ns == 0));
        assert!(timeline.pieces(1102, 1500).unwrap_err().contains("between two cycles"));
        assert!(timeline.pieces(1000, 1500).unwrap_err().contains("before the window"));
    }

    #[test]
    fn time_without_cycles_is_nobodys_unless_idle() {
        for (context, lost_ns) in [(TIMER, 100), (KernelContext::Idle, 0)] {
            let turns = [turn(context, 0, 0), turn(LOOP, 50, 150)];
            let timeline = Timeline::new(&turns, 1_000_000_000).unwrap();
            let pieces = timeline.pieces(0, 160).unwrap();
            assert_eq!(pieces.iter().map(|one| one.unaccounted_ns).sum::<u64>(), lost_ns);
        }
        assert!(Timeline::new(&[turn(LOOP, 5, 9), turn(LOOP, 6, 8)], 1).is_err());
        assert!(Timeline::new(&[], 1).is_err());
    }

    #[test]
    fn readings_that_no_clock_has_shown_are_refused() {
        let turns = [turn(LOOP, 10, 1_050), turn(TIMER, 30, 1_150)];
        let timeline = Timeline::new(&turns, 200_000_000).unwrap();
        assert_eq!(timeline.pieces(1_200, 1_100), Err(BACK.to_owned()));
        let fast = Timeline::new(&turns, 4_000_000_000).unwrap();
        let never = fast.pieces(1_200, u64::MAX).unwrap_err();
        assert!(never.contains("never comes"), "{never}");
        let late = [turn(LOOP, u64::MAX, 5)];
        let timeline = Timeline::new(&late, 1_000_000_000).unwrap();
        assert!(timeline.pieces(5, 6).unwrap_err().contains("never comes"));
    }

    proptest! {
        /// Whatever was read: an answer or a refusal, and pieces that fill what lies between.
        #[test]
        fn any_readings_have_an_answer(
            turns in prop::collection::vec((any::<u64>(), any::<u64>()), 1..6),
            hz in 1..5_000_000_000_u64,
            readings in (any::<u64>(), any::<u64>()),
        ) {
            let mut turns = turns;
            turns.iter_mut().for_each(|(cycles, tsc)| (*cycles, *tsc) = (*cycles >> 2, *tsc >> 2));
            turns.sort_unstable();
            let turns = turns.into_iter().map(|(cycles, tsc)| turn(LOOP, cycles, tsc));
            let turns: Vec<TurnUse> = turns.collect();
            if let Ok(timeline) = Timeline::new(&turns, hz)
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
            let turns: Vec<TurnUse> = steps.iter().map(|(step, kind)| {
                cycles += step;
                turn(KernelContext::Exception(*kind), cycles, 77 + ns_of(cycles))
            }).collect();
            let timeline = Timeline::new(&turns, hz).unwrap();
            let (from, to) = (cut.0.min(cut.1), cut.0.max(cut.1));
            let first = turns[0].cycles;
            let [from, to] = [from, to].map(|cut| 77 + ns_of(first + cut));
            let pieces = timeline.pieces(from, to).unwrap();
            let sum: u64 = pieces.iter().map(Piece::length_ns).sum();
            prop_assert_eq!(sum, to - from);
            prop_assert!(pieces.windows(2).all(|two| two[0].to_ns == two[1].from_ns));
            prop_assert!(pieces.iter().all(|one| one.unaccounted_ns == 0), "{:?}", pieces);
        }
    }
}
