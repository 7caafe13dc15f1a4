//! Table `delays`: how long softirqs and functions wait from the event that asks for them to their run. Users' programs
//! read the columns: names and order must not change.

use attribution::Context;
use record::{Columns, Format, RowFilter, Table, TableDisplay, column};
use stats::Distribution;

use super::super::delays::{DELAYS, DelayMethod, DelayStats};
use super::super::samples::ConditionSamples;
use super::{condition_column, cpu_column, display};
use crate::amounts::{interval_columns, mean_link, method_column};
use crate::quantiles::{p50_p99_section_columns, section_link};

/// The delays of one kind of work in a condition, on one CPU or on all CPUs.
struct Row<'a> {
    condition: String,
    /// `None`: all measured CPUs.
    cpu: Option<u32>,
    context: &'a Context,
    method: DelayMethod,
    delays: Distribution,
    unjoined_end_count: u64,
    unjoined_begin_count: u64,
    awake_count: Option<u64>,
}

impl<'a> Row<'a> {
    /// The sum of these statistics of one context; `None` if there are none.
    fn of(condition: String, cpu: Option<u32>, stats: &[&'a DelayStats]) -> Option<Row<'a>> {
        let first = stats.first()?;
        let mut delays = Distribution::default();
        stats.iter().for_each(|stats| delays.merge(&stats.delays));
        Some(Row {
            condition,
            cpu,
            context: &first.context,
            method: first.method,
            delays,
            unjoined_end_count: stats.iter().map(|stats| stats.unjoined_end_count).sum(),
            unjoined_begin_count: stats.iter().map(|stats| stats.unjoined_begin_count).sum(),
            awake_count: stats.iter().map(|stats| stats.awake_count).sum(),
        })
    }
}

fn key_columns<'a>() -> Columns<'a, Row<'a>> {
    Columns::all([
        condition_column(50).of_ref(|row: &Row<'_>| &row.condition),
        cpu_column().of(|row: &Row<'_>| row.cpu),
        column("kind", "Kind of the delayed work: softirq, work, irq_thread, hrtimer or timer.")
            .priority(75)
            .key()
            .text(|row: &Row<'_>| row.context.kind.label()),
        column("number", "Softirq number; number of the thread's IRQ line; 0 for work items and timers.")
            .detail()
            .key()
            .uint(|row: &Row<'_>| row.context.number),
        column("name", "Name of the softirq, of the thread's handler, or of the function of work items or timers.")
            .priority(100)
            .key()
            .text(|row: &Row<'_>| row.context.name.clone()),
    ])
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    Columns::all([
        key_columns(),
        column("count", "Delays that ended in the window, on the row's CPU.")
            .priority(70)
            .uint(|row: &Row<'_>| row.delays.count),
        column("delay_mean_ns", "Mean delay. Nothing is subtracted for probes.")
            .shown_as("mean ± ci95", 99)
            .format(Format::Microseconds)
            .cost()
            .interval(mean_link("delay_mean_ns"))
            .plus_minus("delay_mean_ci95_ns")
            .real(|row: &Row<'_>| row.delays.mean()),
        column("delay_p50_ns", "Median of the delays; within 1/16.")
            .shown_as("p50", 50)
            .format(Format::Microseconds)
            .cost()
            .interval(section_link("delay_p50_ns"))
            .uint(|row: &Row<'_>| row.delays.quantile(50_000)),
        column(
            "delay_p99_ns",
            "99th percentile of the delays; within 1/16; absent below 100 delays.",
        )
        .shown_as("p99", 80)
        .format(Format::Microseconds)
        .cost()
        .interval(section_link("delay_p99_ns"))
        .uint(|row: &Row<'_>| row.delays.quantile(99_000)),
        column("delay_max_ns", "The longest delay.")
            .shown_as("max", 90)
            .format(Format::Microseconds)
            .cost()
            .uint(|row: &Row<'_>| (row.delays.count > 0).then_some(row.delays.peak.value)),
        column(
            "unjoined_end_count",
            "Runs without a delay: no event in the window that can be joined to the run began it. No other column \
             includes them.",
        )
        .shown_as("unjoined", 60)
        .uint(|row: &Row<'_>| row.unjoined_end_count),
        column(
            "unjoined_begin_count",
            "Begins without a delay: no run in the window can be joined to them. Begins that wait when the window \
             closes do not count.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.unjoined_begin_count),
        column("begins", "The event that begins the delay.")
            .detail()
            .text(|row: &Row<'_>| row.method.begins),
        column("ends", "The event that ends the delay.")
            .detail()
            .text(|row: &Row<'_>| row.method.ends),
        column("not_seen", "Delays that this bench does not see.")
            .detail()
            .text(|row: &Row<'_>| row.method.not_seen),
        p50_p99_section_columns(["delay_p50_ns", "delay_p99_ns"])
            .of_ref(|row: &Row<'_>| &row.delays),
        interval_columns("delay_mean_ns")
            .and([method_column("delay_mean_ns")])
            .of(|row: &Row<'_>| row.delays.interval()),
        awake_column().of(|row: &Row<'_>| row.awake_count),
    ])
}

/// The requests that found a thread awake.
pub(super) fn awake_column<'a>() -> Columns<'a, Option<u64>> {
    column(
        "awake_count",
        "Requests that found the thread awake: it ran or was ready to run, so it did not wait for them, and they have no delay. \
         Absent for work other than threads of device interrupts.",
    )
    .detail()
    .uint(|count: &Option<u64>| *count)
}

/// The rows of a window: for each context, all CPUs together and then each CPU.
fn rows_of(condition: &ConditionSamples) -> Vec<Row<'_>> {
    let label = condition.condition.label();
    let measured: Vec<&DelayStats> = condition.timing.delays.iter().flatten().collect();
    let mut contexts: Vec<&Context> = measured.iter().map(|stats| &stats.context).collect();
    contexts.sort_unstable();
    contexts.dedup();
    let mut rows = Vec::new();
    for context in contexts {
        let mut stats: Vec<&DelayStats> =
            measured.iter().filter(|stats| stats.context == *context).copied().collect();
        stats.sort_by_key(|stats| stats.cpu);
        rows.extend(Row::of(label.clone(), None, &stats));
        rows.extend(stats.chunk_by(|first, second| first.cpu == second.cpu).filter_map(|on_cpu| {
            Row::of(label.clone(), on_cpu.first().map(|stats| stats.cpu), on_cpu)
        }));
    }
    rows
}

/// Table `delays`: one row per kind of work and CPU, and one per kind over all CPUs.
pub fn delays(measured: &[ConditionSamples]) -> Table {
    let doc = "One row per softirq, thread or function and CPU, and one for the sum over the CPUs (`all`). The CPU \
               is the one that runs the work.";
    let unjoined = "unjoined: runs whose begin was not seen, or cannot be joined to them for certain; they are in no \
                    other column";
    let display = TableDisplay {
        sort_by: Some("count".to_owned()),
        filter: Some(RowFilter::sums_over_cpus()),
        notes: vec![unjoined.to_owned()],
        ..display(
            "time that softirqs, work items, timers and threads of interrupts wait for their run",
        )
    };
    columns().table(DELAYS, doc, measured.iter().flat_map(rows_of)).displayed(display)
}

#[cfg(test)]
mod tests {
    use attribution::ContextKind;
    use record::Value;

    use super::super::super::condition::Condition;
    use super::super::super::sample::WindowSample;
    use super::*;

    #[test]
    fn rows_add_up_over_the_cpus_and_keep_what_was_not_joined() {
        let context = Context { kind: ContextKind::Softirq, number: 1, name: "TIMER".to_owned() };
        let method = DelayMethod { begins: "raise", ends: "run", not_seen: "nothing" };
        let stats = |cpu, values: &[u64]| {
            let mut delays = Distribution::default();
            values.iter().for_each(|value| delays.record(*value, 0));
            DelayStats {
                cpu,
                context: context.clone(),
                method,
                delays,
                unjoined_end_count: 2,
                unjoined_begin_count: u64::from(cpu),
                awake_count: Some(3),
            }
        };
        let delays = Some(vec![stats(1, &[]), stats(0, &[100, 300])]);
        let timing = WindowSample { delays, ..WindowSample::default() };
        let condition = Condition::Ambient;
        let table = delays_of(&[ConditionSamples { condition, timing, events: Vec::new() }]);
        let cells = |column: &str| -> Vec<Option<f64>> {
            let cell = |row: &Vec<Value>| table.get(row, column).and_then(Value::number);
            table.rows().iter().map(cell).collect()
        };
        // The rows are: all CPUs, CPU 0, CPU 1.
        assert_eq!(cells("count"), [Some(2.0), Some(2.0), Some(0.0)]);
        assert_eq!(cells("delay_mean_ns"), [Some(200.0), Some(200.0), None]);
        assert_eq!(cells("delay_max_ns"), [Some(300.0), Some(300.0), None]);
        assert_eq!(cells("unjoined_end_count"), [Some(4.0), Some(2.0), Some(2.0)]);
        assert_eq!(cells("unjoined_begin_count"), [Some(1.0), Some(0.0), Some(1.0)]);
        assert_eq!(cells("awake_count"), [Some(6.0), Some(3.0), Some(3.0)]);
        // Without batches, the interval assumes independent values, and `compare` finds the column that says so.
        let method = table.get(&table.rows()[0], "delay_mean_ci95_method");
        assert_eq!(method, Some(&Value::from("independent")));
        let mean = &table.columns[table.column("delay_mean_ns").unwrap()];
        let links = mean.interval.as_ref().unwrap();
        assert_eq!(links.method.as_deref(), Some("delay_mean_ci95_method"));
    }

    fn delays_of(measured: &[ConditionSamples]) -> Table {
        delays(measured)
    }
}
