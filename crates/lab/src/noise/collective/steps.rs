//! Finds the rank that delayed each step, and splits the step's time: the collective's own time, the computation, and
//! the interruptions with their causes.

use stats::median;

use super::messages::{MessageActivity, UsualActivity};
use super::sample::{Cause, Rank, StepTimes};

/// Times by cause: the position in [`super::RankSample::causes`], and the time, ns.
pub type Parts = Vec<(u16, u64)>;

/// A computation and the collective after it: from the last arrival at the collective before to the last arrival at this
/// one. All other fields are about the rank that arrived last.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Number of the step, from 1: the computation before the first collective starts at no collective.
    pub number: usize,
    pub length_ns: u64,
    /// The rank that arrived last.
    pub rank: usize,
    /// How much later than the next rank it arrived, ns.
    pub lateness_ns: u64,
    /// Whether its lateness exceeds the error of the clocks, so that it certainly was the last.
    pub is_certain: bool,
    /// Largest error of `length_ns` because of the clocks.
    pub error_ns: u64,
    /// From the last arrival at the collective before to the start of the computation, ns. Below 0 only
    /// because of the clocks' error.
    pub release_ns: i64,
    pub computation_ns: u64,
    /// Time in detours of the computation by cause, ns.
    pub detours: Parts,
    /// Time of kernel events in `release_ns` by cause, ns, without the activity of the messages.
    pub activity: Parts,
}

impl Step {
    #[must_use]
    pub fn detours_ns(&self) -> u64 {
        self.detours.iter().map(|(_, length_ns)| length_ns).sum()
    }

    /// Time of the collective itself, without the kernel events in it, ns.
    #[must_use]
    pub fn transport_ns(&self) -> i64 {
        self.release_ns - sum(&self.activity) as i64
    }

    /// Time of the computation without its detours, ns.
    #[must_use]
    pub fn work_ns(&self) -> i64 {
        self.computation_ns as i64 - self.detours_ns() as i64
    }

    /// Time of each cause in the computation and in the collective before it, ns. `rank` is the rank of the step. Causes with
    /// one kind and one name are one cause.
    #[must_use]
    pub fn parts<'a>(&self, rank: &'a Rank) -> Vec<(&'a Cause, u64)> {
        let mut parts: Vec<(&Cause, u64)> = Vec::new();
        for (cause, length_ns) in self.detours.iter().chain(&self.activity) {
            let cause = &rank.sample.causes[usize::from(*cause)];
            let is_equal = |other: &Cause| other.kind == cause.kind && other.name == cause.name;
            match parts.iter_mut().find(|(other, _)| is_equal(other)) {
                Some((_, sum_ns)) => *sum_ns = sum_ns.saturating_add(*length_ns),
                None => parts.push((cause, *length_ns)),
            }
        }
        parts
    }

    /// Time of the step without interruptions that have a cause, ns.
    #[must_use]
    pub fn without_causes_ns(&self) -> i64 {
        self.transport_ns() + self.work_ns()
    }
}

fn sum(parts: &[(u16, u64)]) -> u64 {
    parts.iter().map(|(_, length_ns)| length_ns).sum()
}

/// Sums over all steps of a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankTotals {
    /// How often the rank certainly arrived last.
    pub late_count: u64,
    /// Sum of its lateness in these steps, ns.
    pub late_ns: u64,
    pub late_max_ns: u64,
    pub detour_count: u64,
    /// Time of all its computations, ns.
    pub computation_ns: u64,
    /// Time in detours of its computations, ns.
    pub detours_ns: u64,
    /// Median time of a computation without its detours, ns.
    pub work_p50_ns: f64,
}

/// All steps of a job.
#[derive(Clone, Debug)]
pub struct Steps {
    pub steps: Vec<Step>,
    pub ranks: Vec<RankTotals>,
    /// Median time of a step without interruptions that have a cause, ns.
    pub undisturbed_ns: f64,
    /// Median time of the collective itself, ns.
    pub transport_ns: f64,
    /// Number of collectives that a rank seems to have left before the last rank arrived, beyond the clocks' error. Above
    /// 0, a clock jumped or did not drift at a constant rate.
    pub impossible_count: u64,
}

impl Steps {
    /// Median time of a computation without detours, of the slowest rank, ns.
    #[must_use]
    pub fn granularity_ns(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.work_p50_ns).fold(0.0, f64::max)
    }
}

/// Finds the steps. `None` with fewer than two ranks or two steps, or if ranks have different numbers of steps.
#[must_use]
pub fn find(ranks: &[Rank]) -> Option<Steps> {
    let count = ranks.first()?.sample.times.len();
    let is_equal = ranks.iter().all(|rank| rank.sample.times.len() == count);
    if ranks.len() < 2 || count < 2 || !is_equal {
        return None;
    }
    let mut cursors: Vec<Cursor<'_>> = ranks.iter().map(Cursor::new).collect();
    let (mut steps, mut impossible_count) = (Vec::with_capacity(count - 1), 0);
    let mut before: Option<Arrival> = None;
    for number in 0..count {
        let last = Arrival::last(ranks, number);
        impossible_count += u64::from(is_impossible(ranks, number, &last));
        for (position, cursor) in cursors.iter_mut().enumerate() {
            let released_ns = before.as_ref().map(|before| before.at_ns);
            let (detours, activity) = cursor.advance(number, released_ns);
            if let (Some(before), true) = (&before, position == last.rank) {
                steps.push(step(&ranks[position], number, before, &last, detours, activity));
            }
        }
        before = Some(last);
    }
    let (mut totals, usual): (Vec<RankTotals>, Vec<UsualActivity>) =
        cursors.into_iter().map(Cursor::finish).unzip();
    for step in steps.iter().filter(|step| step.is_certain) {
        let total = &mut totals[step.rank];
        total.late_count += 1;
        total.late_ns = total.late_ns.saturating_add(step.lateness_ns);
        total.late_max_ns = total.late_max_ns.max(step.lateness_ns);
    }
    for step in &mut steps {
        usual[step.rank].take_out(&mut step.activity);
    }
    let undisturbed_ns = median_of(steps.iter().map(Step::without_causes_ns))?;
    let transport_ns = median_of(steps.iter().map(Step::transport_ns))?;
    Some(Steps { steps, ranks: totals, undisturbed_ns, transport_ns, impossible_count })
}

fn median_of(times_ns: impl Iterator<Item = i64>) -> Option<f64> {
    let mut sorted: Vec<f64> = times_ns.map(|time_ns| time_ns as f64).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    median(&sorted)
}

/// The last arrival at a collective.
struct Arrival {
    /// On the clock of rank 0, ns.
    at_ns: i128,
    rank: usize,
    /// How much earlier the next rank arrived, ns.
    lateness_ns: u64,
    /// The clocks' error of `lateness_ns`.
    lateness_error_ns: u64,
    /// The clock's error of `at_ns`.
    error_ns: u64,
}

impl Arrival {
    fn last(ranks: &[Rank], number: usize) -> Arrival {
        let arrivals = ranks.iter().enumerate().map(|(position, rank)| {
            let at_ns = rank.clock.to_root_ns(rank.sample.times[number].arrival_ns);
            (at_ns, position)
        });
        let mut arrivals: Vec<(i128, usize)> = arrivals.collect();
        arrivals.sort_unstable();
        let (at_ns, rank) = arrivals[arrivals.len() - 1];
        let (next_ns, _) = arrivals[arrivals.len() - 2];
        let error_ns = ranks[rank].clock.bound_ns();
        let others = ranks.iter().enumerate().filter(|(position, _)| *position != rank);
        let others_error_ns = others.map(|(_, rank)| rank.clock.bound_ns()).max().unwrap_or(0);
        Arrival {
            at_ns,
            rank,
            lateness_ns: u64::try_from(at_ns - next_ns).unwrap_or(u64::MAX),
            lateness_error_ns: error_ns.saturating_add(others_error_ns),
            error_ns,
        }
    }
}

/// Whether a rank seems to have left the collective before the last rank arrived.
fn is_impossible(ranks: &[Rank], number: usize, last: &Arrival) -> bool {
    ranks.iter().any(|rank| {
        let leave_ns = rank.clock.to_root_ns(rank.sample.times[number].leave_ns);
        let error_ns = i128::from(rank.clock.bound_ns()) + i128::from(last.error_ns);
        leave_ns + error_ns < last.at_ns
    })
}

fn step(
    rank: &Rank,
    number: usize,
    before: &Arrival,
    last: &Arrival,
    detours: Parts,
    activity: Parts,
) -> Step {
    let times = rank.sample.times[number];
    let computation_ns = times.arrival_ns - times.start_ns;
    let length_ns = last.at_ns - before.at_ns;
    // On one clock, the error of the offset cancels out.
    let error_ns =
        if before.rank == last.rank { 0 } else { last.error_ns.saturating_add(before.error_ns) };
    Step {
        number,
        length_ns: u64::try_from(length_ns.max(0)).unwrap_or(u64::MAX),
        rank: last.rank,
        lateness_ns: last.lateness_ns,
        is_certain: last.lateness_ns > last.lateness_error_ns,
        error_ns,
        release_ns: i64::try_from(length_ns.max(0) - i128::from(computation_ns)).unwrap_or(0),
        computation_ns,
        detours,
        activity,
    }
}

/// Reads the interruptions of a rank step by step, and sums them up.
struct Cursor<'a> {
    rank: &'a Rank,
    /// Position of the next interruption.
    next: usize,
    totals: RankTotals,
    work_ns: Vec<i64>,
    messages: MessageActivity,
}

impl<'a> Cursor<'a> {
    fn new(rank: &'a Rank) -> Cursor<'a> {
        Cursor {
            rank,
            next: 0,
            totals: RankTotals::default(),
            work_ns: Vec::new(),
            messages: MessageActivity::default(),
        }
    }

    /// Reads the interruptions until the rank arrives at the collective of this step. Returns the detours of the
    /// computation by cause, and the kernel's activity between `released_ns` on the clock of rank 0 and the start of the
    /// computation. `released_ns` is `None` for the first computation, which follows no collective.
    fn advance(&mut self, number: usize, released_ns: Option<i128>) -> (Parts, Parts) {
        let rank = self.rank;
        let times = rank.sample.times[number];
        let (mut detours, mut activity, mut detours_ns) = (Vec::new(), Vec::new(), 0_u64);
        while let Some(interruption) = rank.sample.interruptions.get(self.next)
            && interruption.start_ns < times.arrival_ns
        {
            self.next += 1;
            if interruption.in_collective {
                if let Some(released_ns) = released_ns {
                    self.add_activity(interruption, released_ns, times, &mut activity);
                }
                continue;
            }
            self.totals.detour_count += 1;
            detours_ns = detours_ns.saturating_add(interruption.length_ns());
            interruption.parts.iter().for_each(|part| add_part(&mut detours, *part));
        }
        if released_ns.is_some() {
            self.messages.add(&rank.sample, &activity);
        }
        let computation_ns = times.arrival_ns - times.start_ns;
        self.totals.computation_ns = self.totals.computation_ns.saturating_add(computation_ns);
        self.totals.detours_ns = self.totals.detours_ns.saturating_add(detours_ns);
        self.work_ns.push(computation_ns as i64 - detours_ns.min(1 << 62) as i64);
        (detours, activity)
    }

    /// Adds the named parts of an interruption that lie between the last arrival and the start of the computation.
    fn add_activity(
        &self,
        interruption: &super::sample::Interruption,
        released_ns: i128,
        times: StepTimes,
        activity: &mut Parts,
    ) {
        let mut at_ns = interruption.start_ns;
        for &(cause, length_ns) in &interruption.parts {
            let end_ns = at_ns.saturating_add(length_ns);
            let start_ns = self.rank.clock.to_root_ns(at_ns).max(released_ns);
            let stop_ns = self.rank.clock.to_root_ns(end_ns.min(times.start_ns));
            if stop_ns > start_ns && self.cause(cause).is_named {
                let inside_ns = u64::try_from(stop_ns - start_ns).unwrap_or(u64::MAX);
                add_part(activity, (cause, inside_ns.min(length_ns)));
            }
            at_ns = end_ns;
        }
    }

    fn cause(&self, cause: u16) -> &Cause {
        &self.rank.sample.causes[usize::from(cause)]
    }

    /// The sums over all steps, and the activity of the rank's messages.
    fn finish(self) -> (RankTotals, UsualActivity) {
        let work_p50_ns = median_of(self.work_ns.into_iter()).unwrap_or(0.0);
        let totals = RankTotals { work_p50_ns, ..self.totals };
        (totals, self.messages.usual(&self.rank.sample))
    }
}

/// Adds the time of a cause to the sums of causes.
fn add_part(sums: &mut Parts, (cause, length_ns): (u16, u64)) {
    match sums.iter_mut().find(|(other, _)| *other == cause) {
        Some((_, sum_ns)) => *sum_ns = sum_ns.saturating_add(length_ns),
        None => sums.push((cause, length_ns)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::clock::{ClockOfRank, Offset};
    use super::super::sample::{Interruption, RankSample};
    use super::*;

    /// A rank whose clock is ahead of rank 0's by `ahead_ns`, with an error of up to `bound_ns`.
    pub fn rank_ahead(ahead_ns: u64, bound_ns: u64, sample: RankSample) -> Rank {
        let offset = |root_ns| Offset { root_ns, remote_ns: root_ns + ahead_ns, bound_ns };
        let clock = if ahead_ns == 0 {
            ClockOfRank::ROOT
        } else {
            ClockOfRank::new(offset(0), offset(1_000_000)).unwrap()
        };
        Rank { sample, clock }
    }

    pub fn cause(is_named: bool, kind: &str, name: &str) -> Cause {
        Cause { is_named, kind: kind.to_owned(), name: name.to_owned() }
    }

    /// Two ranks with four steps of 1,000 ns of work and a collective of 100 ns. Rank 1 has a detour of 300 ns in step 2,
    /// and 40 ns of an interrupt while it leaves the collective before step 3. Its clock is 10 s ahead.
    pub fn two_ranks() -> Vec<Rank> {
        let times = |times: [[u64; 3]; 4], ahead_ns: u64| {
            let step = |[start_ns, arrival_ns, leave_ns]: [u64; 3]| StepTimes {
                start_ns: start_ns + ahead_ns,
                arrival_ns: arrival_ns + ahead_ns,
                leave_ns: leave_ns + ahead_ns,
            };
            times.map(step).to_vec()
        };
        const AHEAD_NS: u64 = 10_000_000_000;
        let zero = RankSample {
            host: "a".to_owned(),
            times: times(
                [
                    [0, 1_000, 1_110],
                    [1_110, 2_110, 2_220],
                    [2_220, 3_220, 3_630],
                    [3_630, 4_630, 4_790],
                ],
                0,
            ),
            bare_latency_ns: 90,
            ..RankSample::default()
        };
        let one = RankSample {
            host: "b".to_owned(),
            cpu: 1,
            times: times(
                [
                    [0, 1_010, 1_110],
                    [1_110, 2_120, 2_220],
                    [2_220, 3_530, 3_670],
                    [3_670, 4_680, 4_780],
                ],
                AHEAD_NS,
            ),
            causes: vec![cause(true, "task", "make"), cause(false, "remainder", "between")],
            interruptions: vec![
                Interruption {
                    start_ns: AHEAD_NS + 2_500,
                    in_collective: false,
                    parts: vec![(0, 250), (1, 50)],
                },
                Interruption {
                    start_ns: AHEAD_NS + 3_530,
                    in_collective: true,
                    parts: vec![(0, 40), (1, 20)],
                },
            ],
            bare_latency_ns: 90,
            ..RankSample::default()
        };
        vec![rank_ahead(0, 0, zero), rank_ahead(AHEAD_NS, 5, one)]
    }

    #[test]
    fn the_last_rank_and_its_causes_explain_a_step() {
        let steps = find(&two_ranks()).unwrap();
        let lengths: Vec<u64> = steps.steps.iter().map(|step| step.length_ns).collect();
        assert_eq!(lengths, [1_110, 1_410, 1_150]);
        let slow = &steps.steps[1];
        assert_eq!((slow.rank, slow.number, slow.lateness_ns), (1, 2, 310));
        assert_eq!(slow.detours, [(0, 250), (1, 50)]);
        assert_eq!((slow.release_ns, slow.work_ns(), slow.transport_ns()), (100, 1_010, 100));
        let after = &steps.steps[2];
        assert_eq!((after.activity.clone(), after.transport_ns()), (vec![(0, 40)], 100));
        assert_eq!(steps.undisturbed_ns, 1_110.0);
        assert_eq!(steps.ranks[1].late_count, 3);
        assert_eq!((steps.ranks[1].late_ns, steps.ranks[1].late_max_ns), (370, 310));
        assert_eq!((steps.ranks[1].detour_count, steps.ranks[1].detours_ns), (1, 300));
        assert_eq!((steps.ranks[0].late_count, steps.impossible_count), (0, 0));
    }

    #[test]
    fn activity_while_others_work_delays_nobody() {
        let mut ranks = two_ranks();
        // Rank 0 arrives last, while rank 1 is in its interrupt, which lasts until 3,570.
        ranks[0].sample.times[2].arrival_ns = 3_560;
        let steps = find(&ranks).unwrap();
        assert_eq!((steps.steps[1].rank, steps.steps[2].rank), (0, 1));
        assert_eq!(steps.steps[2].activity, [(0, 10)]);
        assert_eq!(steps.steps[2].transport_ns(), 100);
    }

    #[test]
    fn activity_that_most_steps_have_belongs_to_the_collective() {
        let mut ranks = two_ranks();
        let message = |at_ns: u64| Interruption {
            start_ns: 10_000_000_000 + at_ns,
            in_collective: true,
            parts: vec![(0, 40), (1, 20)],
        };
        ranks[1].sample.causes[0] = cause(true, "softirq", "NET_RX");
        ranks[1].sample.interruptions.splice(0..0, [message(1_010), message(2_120)]);
        // The last one takes 10 ns more than the others.
        ranks[1].sample.interruptions[3].parts[0].1 = 50;
        let steps = find(&ranks).unwrap();
        assert_eq!((steps.undisturbed_ns, steps.transport_ns), (1_110.0, 100.0));
        let activity: Vec<Parts> = steps.steps.iter().map(|step| step.activity.clone()).collect();
        assert_eq!(activity, [vec![], vec![], vec![(0, 10)]]);
    }

    #[test]
    fn arrivals_within_the_error_of_the_clocks_blame_nobody() {
        let mut ranks = two_ranks();
        let sample = ranks.remove(1).sample;
        ranks.push(rank_ahead(10_000_000_000, 20, sample));
        let steps = find(&ranks).unwrap();
        let certain: Vec<bool> = steps.steps.iter().map(|step| step.is_certain).collect();
        assert_eq!(certain, [false, true, true]);
        assert_eq!(steps.ranks[1].late_count, 2);
    }

    #[test]
    fn a_clock_that_jumped_is_noticed() {
        let mut ranks = two_ranks();
        for times in &mut ranks[1].sample.times[2..] {
            times.start_ns += 500;
            times.arrival_ns += 500;
            times.leave_ns += 500;
        }
        assert_eq!(find(&ranks).unwrap().impossible_count, 2);
    }

    #[test]
    fn too_little_is_no_job() {
        let ranks = two_ranks();
        assert!(find(&ranks[..1]).is_none() && find(&[]).is_none());
        let mut uneven = ranks;
        uneven[0].sample.times.pop();
        assert!(find(&uneven).is_none());
    }
}
