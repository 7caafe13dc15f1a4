//! Tables `fwq` and `ftq`: quanta of fixed work, and quanta of fixed time. Tables of single quanta are in `single.rs`.

use record::{Columns, Format, Table, column};

use super::super::sample::{CpuNoise, LoopResult, NoiseSample};
use super::super::work::{Fixed, Slots};
use super::{cpu_column, ended_by, ended_by_column, quanta_rows};
use crate::quantiles::{interval_columns, interval_link};

/// A row of table `fwq`: the quanta of fixed work on one CPU.
struct Quanta<'a> {
    sample: &'a NoiseSample,
    cpu: &'a CpuNoise,
    fixed: &'a Fixed,
}

impl Quanta<'_> {
    /// The mean time of a quantum over the shortest time, minus 1. `None` without quanta, or if the shortest time is 0.
    fn slowdown_ratio(&self) -> Option<f64> {
        let min_ns = self.fixed.min_ns().filter(|min_ns| *min_ns > 0)?;
        Some(self.fixed.times.mean()? / min_ns as f64 - 1.0)
    }
}

/// Table `fwq`: one row per CPU and window of the loop `fwq`.
pub fn fwq(samples: &[NoiseSample]) -> Table {
    let us_column = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let exactness =
        "exact if table fwq_quanta has all quanta of the CPU, and otherwise within 1/16";
    let columns = Columns::all([
        cpu_column(100).of(|row: &Quanta<'_>| row.cpu.cpu),
        column("traced", "Whether irqlab traced the kernel's events in the window.")
            .priority(99)
            .bool(|row: &Quanta<'_>| row.sample.traced.is_some()),
        column("window_ns", "How long the loop ran.")
            .format(Format::Seconds)
            .uint(|row: &Quanta<'_>| row.cpu.window_ns),
        ended_by_column().of(|row: &Quanta<'_>| ended_by(row.sample, row.cpu)),
        column("quantum_count", "Completed quanta of work.")
            .title("quanta")
            .uint(|row: &Quanta<'_>| row.fixed.times.count),
        us_column(
            "min_ns",
            "Shortest duration of a quantum; exact. It is the time without interference, or an upper bound of this time \
             where is_lower_bound holds.",
        )
        .bound("is_lower_bound", "≤")
        .priority(80)
            .uint(|row: &Quanta<'_>| row.fixed.min_ns()),
        us_column("mean_ns", "Mean duration of a quantum.")
            .title("mean ± ci95")
            .plus_minus("mean_ci95_ns")
            .priority(90)
            .real(|row: &Quanta<'_>| row.fixed.times.mean()),
        us_column(
            "mean_ci95_ns",
            "Half width of the mean's 95 % confidence interval, from the sample variance.",
        )
        .detail()
        .real(|row: &Quanta<'_>| row.fixed.times.interval().map(|interval| interval.half_width)),
        us_column("p50_ns", &format!("Median duration; {exactness}."))
            .interval(interval_link("p50_ns"))
            .uint(|row: &Quanta<'_>| row.fixed.quantile(50_000)),
        us_column("p99_ns", &format!("99th percentile of the durations; {exactness}."))
            .interval(interval_link("p99_ns"))
            .uint(|row: &Quanta<'_>| row.fixed.quantile(99_000)),
        us_column("max_ns", "Longest duration; exact.").priority(85).uint(|row: &Quanta<'_>| {
            (row.fixed.times.count > 0).then_some(row.fixed.times.peak.value)
        }),
        column("slowdown_ratio", "mean_ns over min_ns, minus 1.")
            .bound("is_lower_bound", "≥")
            .priority(95)
            .real(|row: &Quanta<'_>| row.slowdown_ratio()),
        column(
            "is_lower_bound",
            "Whether slowdown_ratio is a lower bound, because the shortest quantum has interference: something interrupted \
             it. Without tracing, the shortest quantum is judged by its time, which is then not within 5 % of --quantum.",
        )
        .detail()
        .bool(|row: &Quanta<'_>| row.fixed.has_disturbed_min()),
        column("page_fault_count", "Page faults of the loop that the kernel counted.")
            .detail()
            .uint(|row: &Quanta<'_>| row.cpu.page_faults),
        column(
            "migration_count",
            "1 if the kernel moved the loop to another CPU, for example because the loop's CPU \
             went offline. The window ended then.",
        )
        .detail()
        .uint(|row: &Quanta<'_>| u64::from(row.cpu.left)),
        column("lost_record_count", "Quanta that were dropped because the buffer was full.")
            .detail()
            .uint(|row: &Quanta<'_>| row.cpu.lost_records),
        interval_columns("p50_ns").of(|row: &Quanta<'_>| row.fixed.quantile_interval(50_000)),
        interval_columns("p99_ns").of(|row: &Quanta<'_>| row.fixed.quantile_interval(99_000)),
    ]);
    let rows = samples.iter().flat_map(|sample| {
        sample.cpus.iter().filter_map(move |cpu| match &cpu.result {
            LoopResult::Quanta(fixed) => Some(Quanta { sample, cpu, fixed }),
            LoopResult::Gaps(_) | LoopResult::Slots(_) => None,
        })
    });
    let doc = "Fixed work quanta (FWQ): the duration of the same work, repeated.";
    columns.table("fwq", doc, rows).displayed(quanta_rows())
}

/// A row of table `ftq`: the quanta of fixed time on one CPU.
struct TimeSlots<'a> {
    sample: &'a NoiseSample,
    cpu: &'a CpuNoise,
    slots: &'a Slots,
}

impl TimeSlots<'_> {
    /// Share of the work that was not done, if each quantum could have had the work of an undisturbed one. A quantum counts
    /// whole units of work, so undisturbed quanta have the maximum or one unit less. `None` if less than one unit of each
    /// quantum is missing: then the share is at most its resolution.
    fn lost_work_ratio(&self) -> Option<f64> {
        let Slots { work_max, count, work_sum, ref first, .. } = *self.slots;
        let is_resolved = work_max.saturating_mul(count).saturating_sub(work_sum) > count;
        let undisturbed = || first.iter().filter(|work| **work + 1 >= work_max);
        let undisturbed_mean =
            undisturbed().sum::<u64>() as f64 / (undisturbed().count() as f64).max(1.0);
        // The quanta that are stored one by one may all be disturbed.
        let possible_work = undisturbed_mean.max((work_max.max(1) - 1) as f64) * count as f64;
        let lost_ratio = (1.0 - work_sum as f64 / possible_work).max(0.0);
        (is_resolved && possible_work > 0.0).then_some(lost_ratio)
    }
}

/// Table `ftq`: one row per CPU and window of the loop `ftq`.
pub fn ftq(samples: &[NoiseSample]) -> Table {
    let columns = Columns::all([
        cpu_column(100).of(|row: &TimeSlots<'_>| row.cpu.cpu),
        column("traced", "Whether irqlab traced the kernel's events in the window.")
            .bool(|row: &TimeSlots<'_>| row.sample.traced.is_some()),
        ended_by_column().of(|row: &TimeSlots<'_>| ended_by(row.sample, row.cpu)),
        column("quantum_ns", "Length of a quantum, rounded to ns.")
            .format(Format::Microseconds)
            .uint(|row: &TimeSlots<'_>| row.slots.start_ns(1)),
        column("quantum_count", "Quanta that passed.")
            .title("quanta")
            .uint(|row: &TimeSlots<'_>| row.slots.count),
        column(
            "work_max_iterations",
            "Maximum work done in a quantum, in units of work. A unit is iterations_on_cpu_N (in the settings) \
             iterations of the loop body on CPU N: without --iterations, 1/64 of a quantum without interference.",
        )
        .uint(|row: &TimeSlots<'_>| row.slots.work_max),
        column("work_mean_iterations", "Mean work done in a quantum, in units of work.").real(
            |row: &TimeSlots<'_>| {
                (row.slots.count > 0).then(|| row.slots.work_sum as f64 / row.slots.count as f64)
            },
        ),
        column(
            "lost_work_ratio",
            "Share of the work that was not done: 1 minus work_mean_iterations over the mean of the \
             undisturbed quanta, which have work_max_iterations or one less, because a whole unit of \
             work counts in the quantum in which it ends. Absent if it is at most its resolution, 1 \
             over work_max_iterations.",
        )
        .bound("is_lower_bound", "≥")
        .real(|row: &TimeSlots<'_>| row.lost_work_ratio()),
        column(
            "is_lower_bound",
            "Whether lost_work_ratio is a lower bound, because the quantum with the most work may have interference: its \
             work is not within 5 % of the 64 units for which the loop was calibrated.",
        )
        .detail()
        .bool(|row: &TimeSlots<'_>| row.slots.has_disturbed_max()),
        column("empty_quantum_count", "Quanta without any work.")
            .title("empty quanta")
            .uint(|row: &TimeSlots<'_>| row.slots.empty),
        column(
            "lost_record_count",
            "Quanta that were dropped because the buffer was full; they count as empty.",
        )
        .detail()
        .uint(|row: &TimeSlots<'_>| row.cpu.lost_records),
    ]);
    let rows = samples.iter().flat_map(|sample| {
        sample.cpus.iter().filter_map(move |cpu| match &cpu.result {
            LoopResult::Slots(slots) => Some(TimeSlots { sample, cpu, slots }),
            LoopResult::Gaps(_) | LoopResult::Quanta(_) => None,
        })
    });
    let doc = "Fixed time quanta (FTQ): the work done in the same time, repeated.";
    columns.table("ftq", doc, rows).displayed(quanta_rows())
}

#[cfg(test)]
mod tests {
    use super::super::super::loops::Loop;
    use super::super::super::quantum::Quantum;
    use super::super::super::split::Part;
    use super::*;
    use record::{Combine, Value};

    #[test]
    fn lost_work_below_one_unit_of_a_quantum_is_not_known() {
        let lost_ratio = |work: &[u64]| {
            let mut slots = Slots::default();
            (0_u64..).zip(work).for_each(|(slot, work)| slots.add(slot, *work));
            let cpu = CpuNoise::new(0, 0, 1_000, LoopResult::Slots(Box::new(slots)));
            let table = ftq(&[NoiseSample::in_exact_clock(Loop::Ftq, vec![cpu])]);
            table.get(&table.rows()[0], "lost_work_ratio").cloned()
        };
        assert_eq!(lost_ratio(&[64, 63, 63, 64]), Some(Value::Absent));
        assert_eq!(lost_ratio(&[64, 0]), Some(Value::Real(0.5)));
        // Undisturbed quanta have 63.5 units on average.
        assert_eq!(lost_ratio(&[64, 63, 0, 0]), Some(Value::Real(0.5)));
    }

    /// Sign and flag of a column in the only row.
    fn bound<'t>(table: &'t Table, column: &str) -> (&'t str, Value) {
        let definition = table.columns.iter().find(|known| known.name == column).unwrap();
        let Some(Combine::Bound { flag, sign }) = &definition.display.combine else {
            panic!("{column} has no mark for bounds")
        };
        (sign, table.get(&table.rows()[0], flag).unwrap().clone())
    }

    #[test]
    fn what_interrupts_every_quantum_makes_the_slowdown_a_lower_bound() {
        let table_of = |taken_ns: u64| {
            let mut fixed = Fixed { calibrated_ns: Some(100_000), ..Fixed::default() };
            let mut quantum =
                Quantum { faulted: Some(false), ..Quantum::untraced(0, 100_000 + taken_ns) };
            let parts = &mut [(Part::Context(0), taken_ns)];
            quantum.attribute(if taken_ns > 0 { parts } else { &mut [] }, Some([0].into_iter()));
            fixed.add(quantum, 10);
            let cpu = CpuNoise::new(0, 0, 1_000, LoopResult::Quanta(Box::new(fixed)));
            fwq(&[NoiseSample::in_exact_clock(Loop::Fwq, vec![cpu])])
        };
        for (taken_ns, is_bound) in [(100_000, true), (0, false)] {
            let table = table_of(taken_ns);
            assert_eq!(bound(&table, "slowdown_ratio"), ("≥", is_bound.into()), "{taken_ns}");
            assert_eq!(bound(&table, "min_ns"), ("≤", is_bound.into()), "{taken_ns}");
        }
    }

    #[test]
    fn slots_without_their_whole_work_make_the_lost_work_a_lower_bound() {
        for (work_max, is_bound) in [(33, true), (64, false), (102, true)] {
            let mut slots = Slots::default();
            [work_max, 1, work_max].iter().enumerate().for_each(|(slot, work)| {
                slots.add(slot as u64, *work);
            });
            let cpu = CpuNoise::new(0, 0, 1_000, LoopResult::Slots(Box::new(slots)));
            let table = ftq(&[NoiseSample::in_exact_clock(Loop::Ftq, vec![cpu])]);
            assert_eq!(bound(&table, "lost_work_ratio"), ("≥", is_bound.into()), "{work_max}");
        }
    }
}
