//! The tables of `noise collective`. Names and order of the columns, and the words in their cells, are public.

use record::{Column, Columns, Format, IntervalColumns, Table, TableDisplay, column};
use stats::sorted_quantile;

use super::model::{Comparison, Estimate, VERDICT_METHOD};
use super::report::Job;
use super::sample::{Cause, Rank};
use super::steps::{RankTotals, Step, Steps};
use crate::noise::tables::{all_rows, no_rows};

/// How many of the longest steps the terminal shows.
const SHOWN: u64 = 10;
/// Table `collectives`: one row for the job.
pub fn collectives(ranks: &[Rank], steps: &Steps, job: &Job, measured: Estimate) -> Table {
    let mut lengths: Vec<u64> = steps.steps.iter().map(|step| step.length_ns).collect();
    lengths.sort_unstable();
    let mean_ns = lengths.iter().map(|length| *length as f64).sum::<f64>() / lengths.len() as f64;
    let decided = steps.steps.iter().filter(|step| step.is_certain).count();
    let granularity_ns = steps.granularity_ns();
    let us = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let lengths = &lengths;
    let percentile = |per_100k: u32| move |(): &()| sorted_quantile(lengths, per_100k);
    let columns = Columns::all([
        column("operation", "The collective operation: barrier or allreduce (of 8 bytes).")
            .key()
            .priority(100)
            .text(|(): &()| job.operation.word()),
        column("rank_count", "Number of ranks.").key().shown_as("ranks", 99).uint(|(): &()| ranks.len()),
        column("step_count", "Number of steps: a computation and the collective after it.")
            .shown_as("steps", 90)
            .uint(|(): &()| steps.steps.len()),
        us("granularity_ns", "Median time of a computation without detours, of the slowest rank.")
            .shown_as("computation", 80)
            .real(move |(): &()| granularity_ns),
        us(
            "bare_latency_ns",
            "Median time of the collective when ranks do nothing else, measured before the job by rank 0.",
        )
        .shown_as("bare", 85)
        .uint(|(): &()| ranks[0].sample.bare_latency_ns),
        us(
            "undisturbed_ns",
            "Median time of a step without the interruptions that have a cause: the time without noise. It contains interrupts and \
             softirqs that the messages cause, and no task.",
        )
        .shown_as("undisturbed", 88)
        .real(|(): &()| steps.undisturbed_ns),
        us("step_mean_ns", "Mean time of a step, from one last arrival to the next.")
            .cost()
            .shown_as("mean", 95)
            .real(move |(): &()| mean_ns),
        us("step_p50_ns", "Median time of a step.").shown_as("p50", 70).uint(percentile(50_000)),
        us("step_p90_ns", "90th percentile of the time of a step; absent with fewer than 10 steps.")
            .shown_as("p90", 60)
            .uint(percentile(90_000)),
        us("step_p99_ns", "99th percentile of the time of a step; absent with fewer than 100 steps.")
            .shown_as("p99", 75)
            .uint(percentile(99_000)),
        us("step_max_ns", "Longest time of a step.").shown_as("max", 76).uint(percentile(100_000)),
        slowdown_columns("slowdown", "step_mean_ns over undisturbed_ns, minus 1.", 98, |column| column)
            .of(move |(): &()| measured),
        column(
            "decided_count",
            "Steps whose last rank is certain: it arrived later than all others by more than the error of the clocks.",
        )
        .shown_as("last rank certain", 50)
        .uint(move |(): &()| decided),
    ]);
    let display = TableDisplay {
        title: "a parallel job with collectives".to_owned(),
        headline: "{operation} of {rank_count} ranks: steps of {step_mean_ns}, undisturbed {undisturbed_ns}: slowdown {slowdown_ratio}"
            .to_owned(),
        ..all_rows()
    };
    let doc = "Steps of a parallel job: all ranks compute, then meet at a collective. A step lasts from the last arrival at \
               a collective to the last arrival at the next.";
    columns.table("collectives", doc, [()]).displayed(display)
}

/// The columns of a slowdown with its 95 % interval. `name`: without its unit. `marked` adds marks to the slowdown's column.
fn slowdown_columns<'a>(
    name: &str,
    doc: &str,
    priority: u8,
    marked: impl Fn(Column) -> Column,
) -> Columns<'a, Estimate> {
    let [low, high] = ["low", "high"].map(|end| format!("{name}_ci95_{end}_ratio"));
    let end = |end: &str| format!("{end} end of the 95 % interval; absent if it is unknown.");
    Columns::all([
        marked(column(&format!("{name}_ratio"), doc))
            .cost()
            .interval(IntervalColumns::bounds(&low, &high))
            .shown_as(name, priority)
            .real(|estimate: &Estimate| estimate.mean),
        column(&low, &end("Lower"))
            .title("ci95")
            .up_to(&high)
            .priority(priority - 1)
            .real(|estimate: &Estimate| estimate.interval.map(|(low, _)| low)),
        column(&high, &end("Upper"))
            .detail()
            .real(|estimate: &Estimate| estimate.interval.and_then(|(_, high)| high)),
    ])
}

/// One of the longest steps.
struct Longest<'a> {
    /// 1 for the longest.
    position: u64,
    step: &'a Step,
    rank: &'a Rank,
    undisturbed_ns: f64,
}

impl Longest<'_> {
    fn parts(&self) -> Vec<(&Cause, u64)> {
        self.step.parts(self.rank)
    }

    /// The largest cause that a kernel event names. Without such a cause, the largest cause.
    fn largest(&self) -> Option<(&Cause, u64)> {
        self.parts().into_iter().max_by_key(|(cause, length_ns)| (cause.is_named, *length_ns))
    }

    fn attributed_ns(&self) -> u64 {
        self.parts().iter().filter(|(cause, _)| cause.is_named).map(|(_, length)| length).sum()
    }

    /// Time above the undisturbed time that no kernel event explains, ns.
    fn remainder_ns(&self) -> i64 {
        let lost_ns = self.step.length_ns as f64 - self.undisturbed_ns;
        lost_ns.round() as i64 - self.attributed_ns() as i64
    }
}

fn longest_steps<'a>(ranks: &'a [Rank], steps: &'a Steps, count: usize) -> Vec<Longest<'a>> {
    let mut sorted: Vec<&Step> = steps.steps.iter().collect();
    sorted.sort_by_key(|step| (std::cmp::Reverse(step.length_ns), step.number));
    let longest = sorted.into_iter().take(count).zip(1..);
    longest
        .map(|(step, position)| Longest {
            position,
            step,
            rank: &ranks[step.rank],
            undisturbed_ns: steps.undisturbed_ns,
        })
        .collect()
}

fn position_column<'a>() -> Columns<'a, u64> {
    column("position", "1: the longest step, 2: the next.")
        .key()
        .shown_as("#", 90)
        .uint(|position: &u64| *position)
}

/// Table `collective_longest`: the longest steps, each with the rank that arrived last and the cause.
pub fn longest(ranks: &[Rank], steps: &Steps, count: usize) -> Table {
    let us = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let columns = Columns::all([
        position_column().of(|longest: &Longest<'_>| longest.position),
        column("step", "Number of the step in the job.").priority(60).uint(|longest: &Longest<'_>| longest.step.number),
        us("length_ns", "Time of the step.").shown_as("length", 98).uint(|longest: &Longest<'_>| longest.step.length_ns),
        column("slowdown_ratio", "length_ns over the undisturbed time of a step, minus 1.")
            .shown_as("slowdown", 55)
            .real(|longest: &Longest<'_>| longest.step.length_ns as f64 / longest.undisturbed_ns - 1.0),
        column("rank", "Rank that arrived last.").priority(100).uint(|longest: &Longest<'_>| longest.step.rank),
        column("is_certain", "Whether the rank arrived later than all others by more than the error of the clocks.")
            .shown_as("certain", 45)
            .bool(|longest: &Longest<'_>| longest.step.is_certain),
        column("host", "Host of the rank.").priority(50).text(|longest: &Longest<'_>| longest.rank.sample.host.clone()),
        column("cpu", "CPU of the rank.").priority(95).uint(|longest: &Longest<'_>| longest.rank.sample.cpu),
        us("lateness_ns", "How much later than the next rank it arrived.")
            .shown_as("lateness", 70)
            .uint(|longest: &Longest<'_>| longest.step.lateness_ns),
        column("largest_kind", "Kind of the rank's largest cause in the step, as in table causes of noise.")
            .shown_as("kind", 65)
            .text(|longest: &Longest<'_>| longest.largest().map(|(cause, _)| cause.kind.clone())),
        column("largest_name", "Name of the rank's largest cause: a kernel event, if there is one. Absent without any interruption.")
            .shown_as("largest cause", 97)
            .text(|longest: &Longest<'_>| longest.largest().map(|(cause, _)| cause.name.clone())),
        us("largest_ns", "Time of that cause in the step.")
            .shown_as("largest part", 96)
            .uint(|longest: &Longest<'_>| longest.largest().map(|(_, length_ns)| length_ns)),
        us("attributed_ns", "Time of the step that kernel events name.")
            .shown_as("attributed", 75)
            .uint(Longest::attributed_ns),
        us("remainder_ns", "Time above the undisturbed time that no kernel event names: a host, firmware, messages, or slower work.")
            .shown_as("remainder", 74)
            .int(Longest::remainder_ns),
        us("error_max_ns", "Largest error of length_ns because the clocks of two ranks were compared.")
            .detail()
            .uint(|longest: &Longest<'_>| longest.step.error_ns),
    ]);
    let display = TableDisplay {
        title: "the longest steps".to_owned(),
        headline: "longest: {length_ns}, rank {rank} on CPU {cpu} of {host}: {largest_ns} of {largest_kind} {largest_name}"
            .to_owned(),
        rows_max: Some(SHOWN),
        ..TableDisplay::default()
    };
    let doc = "The longest steps (--longest), each with the rank that arrived last, and what interrupted it.";
    columns.table("collective_longest", doc, longest_steps(ranks, steps, count)).displayed(display)
}

/// Table `collective_longest_parts`: all causes of the steps in table `collective_longest`.
pub fn longest_parts(ranks: &[Rank], steps: &Steps, count: usize) -> Table {
    struct PartRow {
        position: u64,
        cause: Cause,
        length_ns: u64,
    }
    let parts = |longest: Longest<'_>| {
        let part = |(cause, length_ns): (&Cause, u64)| PartRow {
            position: longest.position,
            cause: cause.clone(),
            length_ns,
        };
        longest.parts().into_iter().map(part).collect::<Vec<_>>()
    };
    let columns = Columns::all([
        position_column().of(|row: &PartRow| row.position),
        column("kind", "Kind of the cause, as in table causes of noise.")
            .key()
            .text(|row: &PartRow| row.cause.kind.clone()),
        column("name", "Name of the cause.").key().text(|row: &PartRow| row.cause.name.clone()),
        column("is_named", "Whether a kernel event names the cause.")
            .bool(|row: &PartRow| row.cause.is_named),
        column("length_ns", "Time of the cause on the rank that arrived last.")
            .uint(|row: &PartRow| row.length_ns),
    ]);
    let rows = longest_steps(ranks, steps, count).into_iter().flat_map(parts);
    let doc = "What interrupted the last rank in the steps of table collective_longest, by cause.";
    columns.table("collective_longest_parts", doc, rows).displayed(no_rows())
}

/// Table `collective_ranks`: each rank's place, lateness, detours and clock.
pub fn ranks(ranks: &[Rank], steps: &Steps) -> Table {
    struct RankRow<'a> {
        number: usize,
        rank: &'a Rank,
        totals: &'a RankTotals,
    }
    let us = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let signed = |time_ns: i128| i64::try_from(time_ns).ok();
    let columns = Columns::all([
        column("rank", "Number of the rank.")
            .key()
            .priority(100)
            .uint(|row: &RankRow<'_>| row.number),
        column("host", "Host of the rank.")
            .key()
            .priority(60)
            .text(|row: &RankRow<'_>| row.rank.sample.host.clone()),
        column("cpu", "CPU of the rank.")
            .key()
            .priority(99)
            .uint(|row: &RankRow<'_>| row.rank.sample.cpu),
        column("late_count", "Steps in which the rank certainly arrived last.")
            .shown_as("last in steps", 95)
            .uint(|row: &RankRow<'_>| row.totals.late_count),
        column(
            "late_total_ns",
            "Sum of its lateness in these steps: how much later than the next rank it arrived.",
        )
        .format(Format::Milliseconds)
        .shown_as("lateness", 94)
        .uint(|row: &RankRow<'_>| row.totals.late_ns),
        us("late_max_ns", "Its largest lateness.")
            .shown_as("max", 70)
            .uint(|row: &RankRow<'_>| row.totals.late_max_ns),
        us("work_p50_ns", "Median time of its computation without detours.")
            .shown_as("computation", 65)
            .real(|row: &RankRow<'_>| row.totals.work_p50_ns),
        column("detour_count", "Detours of its computations.")
            .shown_as("detours", 80)
            .uint(|row: &RankRow<'_>| row.totals.detour_count),
        column("detour_ratio", "Share of its computations that detours took.")
            .shown_as("lost", 85)
            .cpu_share()
            .real(|row: &RankRow<'_>| {
                let computation_ns = row.totals.computation_ns;
                (computation_ns > 0).then(|| row.totals.detours_ns as f64 / computation_ns as f64)
            }),
        us("clock_offset_ns", "Its clock minus that of rank 0, before the job.")
            .shown_as("clock", 50)
            .int(move |row: &RankRow<'_>| signed(row.rank.clock.offset_ns())),
        us(
            "clock_bound_ns",
            "Largest error of clock_offset_ns: half of the shortest round trip of a message. At most 500 ns is assumed for ranks on one kernel, which have one clock.",
        )
        .shown_as("±", 49)
        .uint(|row: &RankRow<'_>| row.rank.clock.bound_ns()),
        us("clock_drift_ns", "How much the offset changed until the end of the job.")
            .detail()
            .int(move |row: &RankRow<'_>| signed(row.rank.clock.drift_ns())),
        us(
            "bare_latency_ns",
            "Median time of the collective when ranks do nothing else, measured by this rank.",
        )
        .detail()
        .uint(|row: &RankRow<'_>| row.rank.sample.bare_latency_ns),
        column("traced", "Whether kernel events were recorded, so that detours have causes.")
            .detail()
            .bool(|row: &RankRow<'_>| row.rank.sample.untraced.is_none()),
    ]);
    let display = TableDisplay { title: "the ranks".to_owned(), ..all_rows() };
    let rows = ranks.iter().zip(&steps.ranks).enumerate().map(|(number, (rank, totals))| RankRow {
        number,
        rank,
        totals,
    });
    columns.table("collective_ranks", "One row for each rank.", rows).displayed(display)
}

/// Table `collective_model`: the slowdown that `noise scale` predicts from the detours of this run, next to the measured one.
pub fn model(comparisons: &[Comparison]) -> Table {
    let columns = Columns::all([
        column("detour_times", "What the model assumes. independent: each rank has its detours at its own times; coscheduled: all ranks at the same times.")
            .key()
            .shown_as("model", 100)
            .text(|row: &Comparison| if row.coscheduled { "coscheduled" } else { "independent" }),
        slowdown_columns(
            "predicted",
            "Mean slowdown that noise scale predicts from the detours of the ranks, over undisturbed_ns of table collectives.",
            99,
            |column| column.bound("is_lower_bound", "≥"),
        )
        .of(|row: &Comparison| row.predicted),
        slowdown_columns("measured", "Measured mean slowdown, as in table collectives.", 97, |column| column)
            .of(|row: &Comparison| row.measured),
        column(
            "verdict",
            "Where the measured mean is. within: the 95 % interval of its difference from the prediction contains 0; below, above: the whole interval is. not judged: the interval lacks the end that decides.",
        )
        .shown_as("the measured mean is", 98)
        .text(|row: &Comparison| row.verdict()),
        column("is_lower_bound", "Whether the prediction is a lower bound: detours longer than all measured ones would matter, or detours were lost.")
            .detail()
            .bool(|row: &Comparison| row.is_lower_bound),
        column("difference_ratio", "measured_ratio minus predicted_ratio. An upper bound where is_lower_bound holds.")
            .detail()
            .bound("is_lower_bound", "≤")
            .interval(IntervalColumns::bounds("difference_ci95_low_ratio", "difference_ci95_high_ratio"))
            .real(Comparison::difference),
        column("difference_ci95_low_ratio", "Lower end of the 95 % interval of difference_ratio, from the intervals of both slowdowns; absent if one of them has no upper end.")
            .detail()
            .real(|row: &Comparison| row.difference_interval().0),
        column("difference_ci95_high_ratio", "Upper end of the 95 % interval of difference_ratio.")
            .detail()
            .real(|row: &Comparison| row.difference_interval().1),
        column("verdict_method", "How verdict judges.").detail().text(|_: &Comparison| VERDICT_METHOD),
    ]);
    let display = TableDisplay {
        title: "noise scale, applied to these ranks".to_owned(),
        headline: "model ({detour_times}): {predicted_ratio}, measured {measured_ratio}: {verdict}"
            .to_owned(),
        ..all_rows()
    };
    let doc = "The mean slowdown that the model of noise scale predicts from the detours of the ranks' computations, next to \
               the measured one.";
    columns.table("collective_model", doc, comparisons).displayed(display)
}

#[cfg(test)]
mod tests {
    use super::super::sample::Operation;
    use super::super::steps::{find, tests::two_ranks};
    use super::*;
    use record::{Combine, Value};

    fn job() -> Job {
        Job { operation: Operation::Barrier, transport: String::new(), longest: 3 }
    }

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let samples = two_ranks();
        let steps = find(&samples).unwrap();
        let measured = Estimate { mean: 0.1, interval: None };
        for table in [
            collectives(&samples, &steps, &job(), measured),
            longest(&samples, &steps, 3),
            longest_parts(&samples, &steps, 3),
            ranks(&samples, &steps),
            model(&[]),
        ] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }

    /// `--steps` may be 10: a 99th percentile of few steps would repeat the longest.
    #[test]
    fn quantiles_of_few_steps_are_absent() {
        let samples = two_ranks();
        let steps = find(&samples).unwrap();
        let table = collectives(&samples, &steps, &job(), Estimate { mean: 0.1, interval: None });
        let number = |column: &str| table.get(&table.rows()[0], column).and_then(Value::number);
        // The steps take 1,110, 1,150 and 1,410 ns.
        let quantiles = ["p50", "p90", "p99", "max"].map(|name| number(&format!("step_{name}_ns")));
        assert_eq!(quantiles, [Some(1_150.0), None, None, Some(1_410.0)]);
    }

    #[test]
    fn a_prediction_without_an_upper_end_is_marked_as_a_lower_bound() {
        let comparison = Comparison {
            coscheduled: false,
            predicted: Estimate { mean: 1.19, interval: Some((0.9, None)) },
            is_lower_bound: true,
            measured: Estimate { mean: 1.33, interval: None },
        };
        let table = model(&[comparison]);
        let mark = |name: &str| {
            let column = table.columns.iter().find(|column| column.name == name).unwrap();
            column.display.combine.clone()
        };
        let bound = |sign: &str| {
            let (flag, sign) = ("is_lower_bound".to_owned(), sign.to_owned());
            Some(Combine::Bound { flag, sign })
        };
        assert_eq!(mark("predicted_ratio"), bound("≥"));
        assert_eq!(mark("difference_ratio"), bound("≤"));
        assert_eq!(mark("measured_ratio"), None);
    }
}
