//! The causes of the time that the job lost, and table `collective_causes`.

use std::collections::BTreeMap;

use record::{Columns, Format, Table, TableDisplay, column};

use super::sample::Rank;
use super::steps::Steps;

/// How many causes the terminal shows.
const SHOWN: u64 = 20;
/// Kind and name of time that no interruption explains.
const IN_COLLECTIVE: (&str, &str) = ("remainder", "in the collective");
const IN_COMPUTATION: (&str, &str) = ("remainder", "in the computation");

/// The time of a cause on the ranks that arrived last.
#[derive(Clone, Copy, Default)]
struct CauseTimes {
    step_count: u64,
    total_ns: i64,
}

/// A row of table `collective_causes`.
struct CauseRow<'a> {
    /// `None`: the last rank was not certain.
    rank: Option<usize>,
    kind: &'a str,
    name: &'a str,
    times: CauseTimes,
}

/// The time that the job lost, divided among its causes.
pub struct LostTime<'a> {
    ranks: &'a [Rank],
    /// The longest time first.
    rows: Vec<CauseRow<'a>>,
    /// Time of all steps above the undisturbed time, ns. The rows add up to it.
    total_ns: f64,
}

impl<'a> LostTime<'a> {
    #[must_use]
    pub fn find(ranks: &'a [Rank], steps: &Steps) -> LostTime<'a> {
        let mut sums: BTreeMap<(Option<usize>, &str, &str), CauseTimes> = BTreeMap::new();
        let undisturbed_work_ns = steps.undisturbed_ns - steps.transport_ns;
        for step in &steps.steps {
            let rank = step.is_certain.then_some(step.rank);
            let mut add = |(kind, name), length_ns: i64| {
                let times = sums.entry((rank, kind, name)).or_default();
                times.step_count += u64::from(length_ns != 0);
                times.total_ns = times.total_ns.saturating_add(length_ns);
            };
            for (cause, length_ns) in step.parts(&ranks[step.rank]) {
                add((&cause.kind, &cause.name), length_ns as i64);
            }
            add(IN_COLLECTIVE, (step.transport_ns() as f64 - steps.transport_ns).round() as i64);
            add(IN_COMPUTATION, (step.work_ns() as f64 - undisturbed_work_ns).round() as i64);
        }
        let mut rows: Vec<CauseRow<'_>> = sums
            .into_iter()
            .map(|((rank, kind, name), times)| CauseRow { rank, kind, name, times })
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.times.total_ns));
        let lost_ns = |length_ns: u64| length_ns as f64 - steps.undisturbed_ns;
        let total_ns = steps.steps.iter().map(|step| lost_ns(step.length_ns)).sum();
        LostTime { ranks, rows, total_ns }
    }

    /// Why the causes have no shares of the lost time, or `None` if they have shares. The lost time must exceed the sum of the
    /// remainders below 0. Otherwise the shares are large numbers with both signs.
    #[must_use]
    pub fn reason_without_shares(&self) -> Option<&'static str> {
        if self.total_ns <= 0.0 {
            return Some("the steps took no longer than undisturbed ones");
        }
        let below_0 = self.rows.iter().map(|row| row.times.total_ns.min(0) as f64);
        (-below_0.sum::<f64>() > self.total_ns).then_some(
            "remainders below 0 cancel more than half of the time of the causes: the steps took hardly longer than undisturbed \
             ones",
        )
    }

    /// Table `collective_causes`.
    #[must_use]
    pub fn table(&self) -> Table {
        let doc = "Causes of the time that the job lost: the interruptions of the rank that arrived last, in each step.";
        let display = TableDisplay {
            title: "what delayed the steps".to_owned(),
            headline: "largest: {kind} {name} on rank {rank}, {lost_ratio} of the lost time"
                .to_owned(),
            sort_by: Some("total_ns".to_owned()),
            rows_max: Some(SHOWN),
            ..TableDisplay::default()
        };
        self.columns().table("collective_causes", doc, &self.rows).displayed(display)
    }

    fn columns(&self) -> Columns<'_, CauseRow<'a>> {
        let has_shares = self.reason_without_shares().is_none();
        Columns::all([
            column("rank", "Rank that arrived last in these steps. Absent: the last rank was not certain.")
                .key()
                .priority(100)
                .uint(|row: &CauseRow<'_>| row.rank),
            column("host", "Host of the rank.")
                .priority(40)
                .text(|row: &CauseRow<'_>| row.rank.map(|rank| self.ranks[rank].sample.host.clone())),
            column("cpu", "CPU of the rank.")
                .priority(90)
                .uint(|row: &CauseRow<'_>| row.rank.map(|rank| self.ranks[rank].sample.cpu)),
            column("kind", "Kind of the cause, as in table causes of noise; remainder: no interruption explains it.")
                .key()
                .priority(80)
                .text(|row: &CauseRow<'_>| row.kind),
            column(
                "name",
                "Name of the cause. `in the collective`: messages took longer or shorter than the median. `in the computation`: \
                 the work did.",
            )
            .key()
            .shown_as("cause", 99)
            .text(|row: &CauseRow<'_>| row.name),
            column("step_count", "Steps in which the cause took time of the rank that arrived last.")
                .shown_as("steps", 70)
                .uint(|row: &CauseRow<'_>| row.times.step_count),
            column("total_ns", "Time of the cause in these steps; below 0 if a remainder was shorter than the median.")
                .format(Format::Milliseconds)
                .shown_as("total", 85)
                .int(|row: &CauseRow<'_>| row.times.total_ns),
            column(
                "lost_ratio",
                "total_ns over the time that all steps took above the undisturbed time. The rows add up to 1. Absent if the \
                 steps took no longer than undisturbed ones, or hardly longer.",
            )
            .shown_as("of lost time", 98)
            .real(move |row: &CauseRow<'_>| {
                has_shares.then(|| row.times.total_ns as f64 / self.total_ns)
            }),
        ])
    }
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::super::sample::{Interruption, RankSample, StepTimes};
    use super::super::steps::{
        find,
        tests::{cause, rank_ahead, two_ranks},
    };
    use super::*;

    fn numbers(table: &Table, column: &str) -> Vec<Option<f64>> {
        let number = |row: &Vec<Value>| table.get(row, column).and_then(Value::number);
        table.rows().iter().map(number).collect()
    }

    /// Two ranks with steps of these lengths; the collective takes no time. Task x interrupts rank 1 in step 1 for `task_ns`.
    fn job(lengths_ns: impl Iterator<Item = u64>, task_ns: u64) -> Vec<Rank> {
        let mut samples = [(); 2].map(|()| RankSample::default());
        let mut start_ns = 0;
        for (number, length_ns) in [1_000].into_iter().chain(lengths_ns).enumerate() {
            let leave_ns = start_ns + length_ns;
            for (rank, sample) in samples.iter_mut().enumerate() {
                let arrival_ns = leave_ns - if rank == 0 { 10 } else { 0 };
                sample.times.push(StepTimes { start_ns, arrival_ns, leave_ns });
            }
            if number == 1 {
                let parts = vec![(0, task_ns)];
                let in_collective = false;
                let interruption = Interruption { start_ns, in_collective, parts };
                samples[1].interruptions.push(interruption);
            }
            start_ns = leave_ns;
        }
        samples[1].causes.push(cause(true, "task", "x"));
        samples.into_iter().map(|sample| rank_ahead(0, 0, sample)).collect()
    }

    /// The clock rose in the middle of the job: 60 steps of 1,000 ns, and 40 of 700 ns. The task takes 2,000 ns.
    #[test]
    fn steps_that_took_no_longer_than_undisturbed_have_no_shares_of_lost_time() {
        let length_ns = |number: u64| match number {
            0 => 3_000,
            1..60 => 1_000,
            _ => 700,
        };
        let ranks = job((0..100).map(length_ns), 2_000);
        let steps = find(&ranks).unwrap();
        let lost = LostTime::find(&ranks, &steps);
        assert_eq!((steps.undisturbed_ns, lost.total_ns), (1_000.0, -10_000.0));
        let table = lost.table();
        assert_eq!(table.check_display(), Ok(()));
        let totals: f64 = numbers(&table, "total_ns").into_iter().flatten().sum();
        assert_eq!(totals, -10_000.0);
        assert!(numbers(&table, "lost_ratio").iter().all(Option::is_none));
        assert_eq!(
            lost.reason_without_shares(),
            Some("the steps took no longer than undisturbed ones")
        );
    }

    /// The task takes 12,100 ns, and the faster steps save 12,000 ns: the task would have 12,100 % of the lost time.
    #[test]
    fn a_lost_time_near_0_has_no_shares() {
        let length_ns = |number: u64| match number {
            0 => 13_100,
            1..60 => 1_000,
            _ => 700,
        };
        let ranks = job((0..100).map(length_ns), 12_100);
        let steps = find(&ranks).unwrap();
        let lost = LostTime::find(&ranks, &steps);
        assert_eq!(lost.total_ns, 100.0);
        assert!(numbers(&lost.table(), "lost_ratio").iter().all(Option::is_none));
        assert!(lost.reason_without_shares().unwrap().contains("hardly longer"));
    }

    /// Task make takes part of the computation and part of the collective of one step.
    #[test]
    fn a_cause_in_computation_and_collective_is_one_cause_of_the_step() {
        let mut ranks = two_ranks();
        ranks[1].sample.interruptions.push(Interruption {
            start_ns: 10_000_004_000,
            in_collective: false,
            parts: vec![(0, 100)],
        });
        let steps = find(&ranks).unwrap();
        let table = LostTime::find(&ranks, &steps).table();
        let row = table.rows().iter().find(|row| {
            table.get(row, "name") == Some(&Value::from("make"))
                && table.get(row, "rank").and_then(Value::number) == Some(1.0)
        });
        let number = |column: &str| table.get(row.unwrap(), column).and_then(Value::number);
        // 250 ns in step 2; 40 ns in the collective and 100 ns in the computation of step 3.
        assert_eq!((number("step_count"), number("total_ns")), (Some(2.0), Some(390.0)));
    }
}
