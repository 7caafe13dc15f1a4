//! How several vCPUs share guest time: they run one after the other, and yet all at once.
//!
//! In a *round* each vCPU that is not halted runs a slice. All slices of a round begin at the same
//! guest time, and the round takes as long as its longest slice. QEMU's clock, which advances with
//! each instruction of any vCPU, is set back between the slices of a round, and to the end of the
//! round behind the last.
//!
//! Pure: what QEMU's clock says comes in, what is to be added to it goes out.

/// Guest time of all vCPUs, in nanoseconds since the recording began, without the jumps that QEMU
/// makes when all are halted.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// When the round began.
    began_ns: u64,
    /// What each vCPU has used of the round.
    used_ns: Vec<u64>,
    /// Which of them are halted.
    halted: Vec<bool>,
    /// Whose slice ended last in this round.
    last: Option<usize>,
    /// What QEMU's clock was set to last, and the count of instructions then.
    shown_ns: u64,
    instructions: u64,
    /// An instruction takes `2^shift` ns of QEMU's clock.
    shift: u32,
}

impl Rounds {
    pub(crate) fn new(cpus: usize, shift: u32) -> Rounds {
        Rounds {
            began_ns: 0,
            used_ns: vec![0; cpus],
            // All but the first wait to be started.
            halted: (0..cpus).map(|cpu| cpu > 0).collect(),
            last: None,
            shown_ns: 0,
            instructions: 0,
            shift,
        }
    }

    /// Guest time of a vCPU that has used `ns` since its last slice ended.
    pub(crate) fn now_ns(&self, cpu: usize, ns: u64) -> u64 {
        self.began_ns + self.used_ns[cpu] + ns
    }

    /// The slice of `cpu` ends, in which it has used `ns`; all together have executed `instructions`
    /// so far. Returns what is to be added to QEMU's clock.
    pub(crate) fn end_slice(&mut self, cpu: usize, ns: u64, instructions: u64) -> i64 {
        // It is its turn again: those that were to follow did not.
        if self.last.is_some_and(|last| cpu <= last) {
            self.end_round();
        }
        self.used_ns[cpu] += ns;
        self.last = Some(cpu);
        let others_follow = self.halted[cpu + 1..].iter().any(|halted| !halted);
        if !others_follow {
            self.end_round();
        }
        let executed = instructions - self.instructions;
        let shows_ns = self.shown_ns + (executed << self.shift);
        self.shown_ns = self.began_ns;
        self.instructions = instructions;
        self.began_ns.wrapping_sub(shows_ns).cast_signed()
    }

    /// Begins anew where all have executed `instructions`, by another way of counting than before.
    pub(crate) fn begin_again(&mut self, instructions: u64) {
        self.used_ns.fill(0);
        (self.last, self.instructions, self.shown_ns) = (None, instructions, self.began_ns);
    }

    fn end_round(&mut self) {
        self.began_ns += self.used_ns.iter().copied().max().unwrap_or(0);
        self.used_ns.fill(0);
        self.last = None;
    }

    /// `cpu` is halted, or no longer is. Those that were not started yet are halted.
    pub(crate) fn set_halted(&mut self, cpu: usize, halted: bool) {
        self.halted[cpu] = halted;
    }

    /// What QEMU's clock shows, without its jumps, when all have executed `instructions`.
    pub(crate) fn shows_ns(&self, instructions: u64) -> u64 {
        self.shown_ns + ((instructions - self.instructions) << self.shift)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn running(cpus: usize) -> Rounds {
        let mut rounds = Rounds::new(cpus, 0);
        (0..cpus).for_each(|cpu| rounds.set_halted(cpu, false));
        rounds
    }

    #[test]
    fn one_that_runs_no_slices_does_not_stop_time() {
        let mut rounds = running(2);
        for round in 0..5 {
            rounds.end_slice(0, 1_000, 1_000 * (round + 1));
            assert_eq!(rounds.now_ns(0, 0), 1_000 * (round + 1));
        }
    }

    #[test]
    fn one_cpu_takes_the_time_of_its_model() {
        let mut rounds = Rounds::new(1, 0);
        assert_eq!(rounds.end_slice(0, 5_000, 1_000), 4_000);
        assert_eq!(rounds.end_slice(0, 500, 2_000), -500);
        assert_eq!((rounds.now_ns(0, 7), rounds.shows_ns(2_010)), (5_507, 5_510));
    }

    #[test]
    fn two_cpus_run_at_once() {
        let mut rounds = running(2);
        // The second one's slice begins when the first one's did.
        assert_eq!(rounds.end_slice(0, 3_000, 1_000), -1_000);
        assert_eq!(rounds.end_slice(1, 2_000, 1_800), 3_000 - 800);
        assert_eq!(rounds.now_ns(0, 0), 3_000);
    }

    #[test]
    fn halted_ones_are_not_waited_for() {
        let mut rounds = running(2);
        rounds.set_halted(1, true);
        assert_eq!(rounds.end_slice(0, 3_000, 1_000), 2_000);
        rounds.set_halted(1, false);
        assert_eq!(rounds.end_slice(0, 1_000, 2_000), -1_000);
    }

    proptest! {
        /// Guest time is that of the longest slices, whatever the clock of QEMU did meanwhile.
        #[test]
        fn qemus_clock_shows_the_rounds(slices in prop::collection::vec((0..4_usize, 0..5_000_u64, 1..2_000_u64), 1..200)) {
            let mut rounds = running(4);
            let (mut clock, mut instructions) = (0_i64, 0);
            for (cpu, ns, executed) in slices {
                instructions += executed;
                clock += executed as i64;
                prop_assert_eq!(clock, rounds.shows_ns(instructions) as i64);
                let before = rounds.began_ns;
                clock += rounds.end_slice(cpu, ns, instructions);
                prop_assert!(rounds.began_ns >= before);
                prop_assert_eq!(clock, rounds.began_ns as i64);
            }
        }
    }
}
