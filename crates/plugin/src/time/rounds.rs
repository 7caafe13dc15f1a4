//! How several vCPUs share guest time. The host runs vCPUs one after the other; the guest sees them run at the same
//! time. [`Clock`](super::clock::Clock) calls this module at the end of each time slice.
//!
//! In a *round* each vCPU that is not halted runs one time slice. A shorter slice ends the round early. A slice ends
//! with a block, so some slices are longer than planned. The excess counts as time of the next round, and the next
//! slice of that vCPU is planned shorter by the excess. So a vCPU's time follows its own cycles, and it waits for no
//! other.
//!
//! QEMU's clock advances with each instruction of any vCPU. Between the slices of a round it is set back to the start
//! of the round. After the last slice it is set to the end of the round.
//!
//! This module is pure: its arguments are times, and its result is the correction of QEMU's clock.

use machine::Instructions;

/// Guest time of all vCPUs, in nanoseconds since the recording started, without the jumps that QEMU
/// makes when all are halted.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// When the round started.
    start_ns: u64,
    /// Each vCPU's time from `start_ns` to the end of its last slice. It can exceed the length of the round. Negative
    /// if the round started after that end, in the middle of the vCPU's next slice.
    used_ns: Vec<i64>,
    /// Whether each vCPU is halted.
    is_halted: Vec<bool>,
    /// The vCPU whose slice ended last in this round.
    last_ended: Option<usize>,
    /// The last setting of QEMU's clock, in ns.
    shown_ns: u64,
    /// The instructions of all vCPUs at that setting.
    instructions: Instructions,
    /// An instruction takes `2^shift` ns of QEMU's clock.
    shift: u32,
    /// The planned length of a round.
    round_ns: u64,
    /// The number of successive rounds of length 0, because a vCPU did not run.
    empty_rounds: u32,
    /// Whether rounds do not wait for the vCPU until it runs again.
    is_ignored: Vec<bool>,
    /// Each vCPU's guest time after its last `pause`. `None`: it has executed none.
    paused_ns: Vec<Option<u64>>,
}

/// After this many successive rounds of length 0, rounds no longer wait for the vCPU that does not run. The guest may
/// have reset this vCPU, and then it never continues.
const EMPTY_ROUNDS_MAX: u32 = 1_000;

impl Rounds {
    pub(crate) fn new(cpus: usize, shift: u32, round_ns: u64) -> Rounds {
        Rounds {
            start_ns: 0,
            used_ns: vec![0; cpus],
            // All vCPUs but the first wait to be started.
            is_halted: (0..cpus).map(|cpu| cpu > 0).collect(),
            last_ended: None,
            shown_ns: 0,
            instructions: Instructions::default(),
            shift,
            round_ns,
            empty_rounds: 0,
            is_ignored: vec![false; cpus],
            paused_ns: vec![None; cpus],
        }
    }

    /// The guest time of vCPU `cpu`, whose cycles took `ns` since its last slice ended.
    pub(crate) fn now_ns(&self, cpu: usize, ns: u64) -> u64 {
        self.start_ns.wrapping_add_signed(self.used_in_round_ns(cpu, ns))
    }

    /// The time of vCPU `cpu` since the round started, in ns. Its cycles took `ns` since its last slice ended.
    fn used_in_round_ns(&self, cpu: usize, ns: u64) -> i64 {
        self.used_ns[cpu] + ns.cast_signed()
    }

    /// Ends the slice of `cpu`, which took `ns`. All vCPUs together have executed `instructions`. `since_slice_ns`
    /// gives the time of another vCPU since its last slice ended: QEMU may have left that vCPU in the middle of a
    /// slice. Returns the correction of QEMU's clock, in ns.
    pub(crate) fn end_slice(
        &mut self,
        cpu: usize,
        ns: u64,
        since_slice_ns: impl Fn(usize) -> u64,
        instructions: Instructions,
    ) -> i64 {
        let others_since_slice_ns = |number| if number == cpu { 0 } else { since_slice_ns(number) };
        self.used_ns[cpu] += ns.cast_signed();
        // The vCPU runs again before the other vCPUs of the round have run.
        let runs_again = self.last_ended.is_some_and(|last| cpu <= last);
        let others_follow = self.is_halted[cpu + 1..].iter().any(|halted| !halted);
        if runs_again || !others_follow {
            self.end_round(others_since_slice_ns);
        }
        self.last_ended = others_follow.then_some(cpu);
        self.is_ignored[cpu] = false;
        let executed = instructions - self.instructions;
        let shows_ns = self.shown_ns + (executed.0 << self.shift);
        self.shown_ns = self.start_ns;
        self.instructions = instructions;
        self.start_ns.wrapping_sub(shows_ns).cast_signed()
    }

    /// `cpu` executes a `pause`. `since_slice_ns` gives each vCPU's time since its last slice ended. Returns how many
    /// ns `cpu` must wait to catch up with the least advanced of the other running vCPUs. 0 if it does not lag.
    ///
    /// At a `pause` QEMU switches to the next vCPU. A vCPU that waits in a loop of `pause` executes only a few
    /// instructions each time it runs. Each other vCPU executes at least a block each time, however far it has
    /// advanced. Without the wait, the lag of the vCPU in the loop would grow without bound.
    ///
    /// A vCPU counts as waiting in a loop if it has not executed a whole slice since its last `pause`. Such vCPUs lag,
    /// so `cpu` does not wait for them, unless all others wait in a loop.
    pub(crate) fn pause(&mut self, cpu: usize, since_slice_ns: impl Fn(usize) -> u64) -> u64 {
        let now = |cpu: usize| self.now_ns(cpu, since_slice_ns(cpu));
        let waits_in_loop = |number: &usize| {
            self.paused_ns[*number]
                .is_some_and(|paused_ns| now(*number).saturating_sub(paused_ns) < self.round_ns)
        };
        let other_cpus =
            || (0..self.is_halted.len()).filter(|number| *number != cpu && self.runs(*number));
        let earliest_working_ns =
            other_cpus().filter(|number| !waits_in_loop(number)).map(now).min();
        let earliest_ns = earliest_working_ns.or_else(|| other_cpus().map(now).min());
        let now_ns = now(cpu);
        let lag_ns = earliest_ns.map_or(0, |earliest_ns| earliest_ns.saturating_sub(now_ns));
        self.paused_ns[cpu] = Some(now_ns + lag_ns);
        lag_ns
    }

    /// The planned length of the next slice of `cpu`, whose slice has just ended.
    pub(crate) fn next_slice_ns(&self, cpu: usize) -> u64 {
        // If another vCPU still runs in this round, the next slice of `cpu` is in the next round.
        let rounds = if self.last_ended.is_some() { 2 } else { 1 };
        (rounds * self.round_ns).saturating_add_signed(-self.used_ns[cpu])
    }

    /// Restarts the current round, because the level of detail has changed. `instructions`: what all
    /// vCPUs together have executed, as the new level counts.
    pub(crate) fn restart(&mut self, instructions: Instructions) {
        self.used_ns.fill(0);
        self.paused_ns.fill(None);
        (self.last_ended, self.instructions, self.shown_ns) = (None, instructions, self.start_ns);
    }

    /// Notes that the caller has advanced QEMU's clock by `ns` within a slice.
    pub(crate) fn advance_shown_clock(&mut self, ns: i64) {
        self.shown_ns = self.shown_ns.wrapping_add_signed(ns);
    }

    /// Starts the next round. The length of the ended round is the length of its shortest slice. If several vCPUs run,
    /// the planned length is an upper limit.
    fn end_round(&mut self, since_slice_ns: impl Fn(usize) -> u64) {
        let runs = |cpu: &usize| self.runs(*cpu);
        let cpus = 0..self.is_halted.len();
        let used_ns = |cpu: usize| self.used_in_round_ns(cpu, since_slice_ns(cpu));
        let running_used_ns = cpus.clone().filter(runs).map(|cpu| used_ns(cpu).max(0));
        let not_halted = self.is_halted.iter().filter(|halted| !**halted).count();
        let length_ns = match (running_used_ns.min(), not_halted) {
            // All vCPUs are halted: the round lasts until the last of them halted.
            (None, _) => cpus.clone().map(used_ns).max().unwrap_or(0).max(0),
            (Some(shortest), 1) => shortest,
            (Some(shortest), _) => shortest.min(self.round_ns.cast_signed()),
        };
        self.empty_rounds = if length_ns == 0 { self.empty_rounds + 1 } else { 0 };
        if self.empty_rounds == EMPTY_ROUNDS_MAX {
            for cpu in cpus {
                self.is_ignored[cpu] |= self.used_in_round_ns(cpu, since_slice_ns(cpu)) <= 0;
            }
        }
        self.start_ns += length_ns.cast_unsigned();
        for cpu in 0..self.used_ns.len() {
            // A vCPU that lags, or is halted, continues from the start of the new round.
            self.used_ns[cpu] =
                (self.used_ns[cpu] - length_ns).max(-since_slice_ns(cpu).cast_signed());
        }
    }

    /// Sets whether `cpu` is halted. A vCPU that was not started yet is halted.
    pub(crate) fn set_halted(&mut self, cpu: usize, halted: bool) {
        (self.is_halted[cpu], self.is_ignored[cpu]) = (halted, false);
    }

    /// Whether rounds wait for the slices of a vCPU.
    pub(crate) fn runs(&self, cpu: usize) -> bool {
        !self.is_halted[cpu] && !self.is_ignored[cpu]
    }

    pub(crate) fn is_halted(&self, cpu: usize) -> bool {
        self.is_halted[cpu]
    }

    /// The time that QEMU's clock shows, without its jumps, once all vCPUs together have executed `instructions`.
    pub(crate) fn qemu_clock_ns(&self, instructions: Instructions) -> u64 {
        self.shown_ns + ((instructions - self.instructions).0 << self.shift)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn running(cpus: usize) -> Rounds {
        let mut rounds = Rounds::new(cpus, 0, 1_000);
        (0..cpus).for_each(|cpu| rounds.set_halted(cpu, false));
        rounds
    }

    #[test]
    fn one_that_runs_no_slices_does_not_stop_time() {
        let mut rounds = running(2);
        for round in 0..5 {
            rounds.end_slice(0, 1_000, |_| 0, Instructions(1_000 * (round + 1)));
            assert_eq!(rounds.now_ns(0, 0), 1_000 * (round + 1));
        }
    }

    #[test]
    fn one_that_does_not_go_on_does_not_stop_time() {
        let mut rounds = running(2);
        for slice in 1..=2 * u64::from(EMPTY_ROUNDS_MAX) {
            rounds.end_slice(0, 10, |_| 700, Instructions(10 * slice));
            assert_eq!(rounds.now_ns(0, 0), 10 * slice);
        }
        assert!(rounds.start_ns > 5_000, "{rounds:?}");
    }

    #[test]
    fn one_cpu_takes_the_time_of_its_model() {
        let mut rounds = Rounds::new(1, 0, 1_000);
        assert_eq!(rounds.end_slice(0, 5_000, |_| 0, Instructions(1_000)), 4_000);
        assert_eq!(rounds.end_slice(0, 500, |_| 0, Instructions(2_000)), -500);
        assert_eq!(
            (rounds.now_ns(0, 7), rounds.qemu_clock_ns(Instructions(2_010))),
            (5_507, 5_510)
        );
    }

    #[test]
    fn two_cpus_run_at_once() {
        let mut rounds = running(2);
        // The second slice starts at the same guest time as the first.
        assert_eq!(rounds.end_slice(0, 1_300, |_| 0, Instructions(1_000)), -1_000);
        assert_eq!(rounds.end_slice(1, 1_200, |_| 0, Instructions(1_800)), 1_000 - 800);
        assert_eq!((rounds.now_ns(0, 0), rounds.now_ns(1, 0)), (1_300, 1_200));
        assert_eq!((rounds.next_slice_ns(0), rounds.next_slice_ns(1)), (700, 800));
        // A slice that was cut short ends the round.
        rounds.end_slice(0, 700, |_| 0, Instructions(2_500));
        assert_eq!(rounds.end_slice(1, 100, |_| 0, Instructions(2_600)), 1_300 - 1_100);
    }

    #[test]
    fn halted_ones_are_not_waited_for() {
        let mut rounds = running(2);
        rounds.set_halted(1, true);
        assert_eq!(rounds.end_slice(0, 3_000, |_| 0, Instructions(1_000)), 2_000);
        rounds.set_halted(1, false);
        assert_eq!(rounds.end_slice(0, 1_000, |_| 0, Instructions(2_000)), -1_000);
    }

    #[test]
    fn what_a_halted_one_ended_late_takes_none_of_the_time_behind() {
        let mut rounds = running(2);
        rounds.set_halted(0, true);
        rounds.end_slice(0, 500, |_| 0, Instructions(500));
        // 300 ns of what it executed become known only when the other has executed, too.
        let late = |cpu| if cpu == 0 { 300 } else { 0 };
        rounds.end_slice(1, 1_000, late, Instructions(1_500));
        assert_eq!((rounds.now_ns(0, late(0)), rounds.now_ns(1, 0)), (1_000, 1_000));
    }

    #[test]
    fn a_pause_lasts_until_one_is_as_far_as_those_that_execute() {
        let mut rounds = running(3);
        let since = [900, 20, 400];
        assert_eq!(rounds.pause(1, |cpu| since[cpu]), 380);
        // The least advanced waits, too.
        let since = [900, 400, 450];
        assert_eq!(rounds.pause(2, |cpu| since[cpu]), 450);
        // The vCPU has executed a slice since its last `pause`.
        let since = [2_900, 1_500, 950];
        assert_eq!(rounds.pause(2, |cpu| since[cpu]), 550);
        rounds.set_halted(0, true);
        assert_eq!(rounds.pause(1, |cpu| since[cpu]), 0);
        rounds.set_halted(1, true);
        assert_eq!(rounds.pause(2, |cpu| since[cpu]), 0);
    }

    proptest! {
        /// vCPUs that wait in a loop of `pause` keep up with the executing vCPU. They lag by at most a slice and its
        /// excess, for any length of a block and of an iteration of the loop.
        #[test]
        fn those_that_wait_in_a_loop_lag_by_a_slice_at_most(
            waiting in 1..4_usize,
            block in 1..400_u64,
            turns in prop::collection::vec(1..50_u64, 200..400),
        ) {
            let cpus = waiting + 1;
            let mut rounds = running(cpus);
            let (mut slices, mut since, mut instructions) = (vec![1_000; cpus], vec![0; cpus], 0);
            for (step, turn) in turns.into_iter().enumerate() {
                let cpu = step % cpus;
                instructions += 1;
                let mut ends = since[cpu] >= slices[cpu];
                if !ends && cpu == 0 {
                    while since[0] < slices[0] {
                        since[0] += block;
                    }
                    ends = true;
                } else if !ends {
                    since[cpu] += turn;
                    since[cpu] += rounds.pause(cpu, |cpu| since[cpu]);
                }
                if ends {
                    let ended = std::mem::take(&mut since[cpu]);
                    rounds.end_slice(cpu, ended, |cpu| since[cpu], Instructions(instructions));
                    slices[cpu] = rounds.next_slice_ns(cpu).max(1);
                }
                let times = || (0..cpus).map(|cpu| rounds.now_ns(cpu, since[cpu]));
                let lag = times().max().unwrap() - times().min().unwrap();
                prop_assert!(lag <= 3 * 1_400, "{step}: {:?}", times().collect::<Vec<_>>());
            }
        }

        /// QEMU's clock shows the start of the round, whatever it did meanwhile, and never goes
        /// back over a round.
        #[test]
        fn qemus_clock_shows_the_rounds(
            slices in prop::collection::vec((0..4_usize, 0..5_000_u64, 1..2_000_u64), 1..200),
        ) {
            let mut rounds = running(4);
            let (mut clock, mut instructions) = (0_i64, 0);
            for (cpu, ns, executed) in slices {
                instructions += executed;
                clock += executed as i64;
                prop_assert_eq!(clock, rounds.qemu_clock_ns(Instructions(instructions)) as i64);
                let before = rounds.start_ns;
                clock += rounds.end_slice(cpu, ns, |_| 0, Instructions(instructions));
                prop_assert!(rounds.start_ns >= before);
                prop_assert_eq!(clock, rounds.start_ns as i64);
            }
        }

        /// With slices as planned, each vCPU has the time of its own cycles, and none is ahead of
        /// another by more than a slice and what that was too long: also where QEMU goes on to the
        /// next one in the middle of a slice.
        #[test]
        fn time_is_that_of_ones_own_cycles(
            overruns in prop::collection::vec((0..400_u64, prop::option::of(1..1_000_u64)), 1..300),
        ) {
            let mut rounds = running(3);
            let (mut slices, mut used, mut since) = ([1_000; 3], [0; 3], [0; 3]);
            for (slice, (late, left_after)) in overruns.into_iter().enumerate() {
                let cpu = slice % 3;
                let remaining = slices[cpu] - since[cpu];
                let left_after = left_after.filter(|ns| *ns < remaining);
                let ns = left_after.unwrap_or(remaining + late);
                (used[cpu], since[cpu]) = (used[cpu] + ns, since[cpu] + ns);
                if left_after.is_none() {
                    let ended = std::mem::take(&mut since[cpu]);
                    rounds.end_slice(cpu, ended, |cpu| since[cpu], Instructions(used.iter().sum()));
                    slices[cpu] = rounds.next_slice_ns(cpu).max(1);
                }
                for cpu in 0..3 {
                    prop_assert_eq!(rounds.now_ns(cpu, since[cpu]), used[cpu]);
                }
                let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
                prop_assert!(most - least <= 3 * 1_400, "{:?}", used);
            }
        }
    }
}
