//! Table `cpu_times`: the time of each CPU in the window by parts, and how each part is measured. Users' programs read
//! the columns: names and order must not change.

use record::{Columns, Format, RowFilter, Table, TableDisplay, column};

use super::super::sample::{CpuTimes, ServicesSample};
use super::ratio;

/// Name of the row with the sum of the parts.
const SUM: &str = "sum";
/// Name of the row with the length of the window.
const WINDOW: &str = "window";

/// A part of the window of a CPU, or of all CPUs together.
struct Row<'a> {
    cpu: String,
    part: &'a str,
    method: &'a str,
    ticks: u64,
    window_ticks: u64,
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    Columns::all([
        column("cpu", "The CPU's number, or all.")
            .priority(99)
            .key()
            .text(|row: &Row<'_>| row.cpu.clone()),
        column(
            "part",
            "What the CPU did. sum: all parts added up. window: how long the window was open.",
        )
        .priority(100)
        .key()
        .text(|row: &Row<'_>| row.part.to_owned()),
        column("time_ratio", "Share of the window.")
            .shown_as("% time", 98)
            .real(|row: &Row<'_>| ratio(Some(row.ticks), Some(row.window_ticks))),
        column("self_total_ns", "Time; the parts add up exactly to the window.")
            .title("time")
            .format(Format::Milliseconds)
            .priority(95)
            .uint(|row: &Row<'_>| row.ticks),
        column("method", "How the part is measured.")
            .priority(90)
            .text(|row: &Row<'_>| row.method.to_owned()),
    ])
}

/// A row for each part: first the parts of all CPUs together, then the parts of each CPU. Returns `None` if the
/// bench does not divide a CPU's time into parts.
pub(in super::super) fn cpu_times(sample: &ServicesSample) -> Option<Table> {
    let parts = &sample.cpu_times.first()?.parts;
    let doc = "What the CPUs did in the window. The parts add up to the window, on each CPU and \
               on all together.";
    let display =
        TableDisplay { filter: Some(RowFilter::sums_over_cpus()), ..TableDisplay::default() };
    let part_sum = |position: usize| {
        let ticks = |cpu: &CpuTimes| cpu.parts.get(position).map_or(0, |part| part.ticks);
        sample.cpu_times.iter().map(ticks).sum()
    };
    let summed_parts: Vec<(&str, &str, u64)> = parts
        .iter()
        .enumerate()
        .map(|(position, part)| (part.name.as_str(), part.method.as_str(), part_sum(position)))
        .collect();
    let window_ticks = sample.cpu_times.iter().map(|cpu| cpu.window_ticks).sum();
    let mut rows = cpu_rows("all", window_ticks, &summed_parts);
    for cpu in &sample.cpu_times {
        let parts: Vec<_> = cpu
            .parts
            .iter()
            .map(|part| (part.name.as_str(), part.method.as_str(), part.ticks))
            .collect();
        rows.extend(cpu_rows(&cpu.cpu.to_string(), cpu.window_ticks, &parts));
    }
    Some(columns().table("cpu_times", doc, rows).displayed(display))
}

/// The rows of one CPU: its parts, their sum, and the length of its window. `parts`: name, method and ticks.
fn cpu_rows<'a>(cpu: &str, window_ticks: u64, parts: &[(&'a str, &'a str, u64)]) -> Vec<Row<'a>> {
    let sum_ticks = parts.iter().map(|(_, _, ticks)| ticks).sum();
    let sum = (SUM, "the rows above, added up", sum_ticks);
    let window = (WINDOW, "from opening to closing, read from the clock on the CPU", window_ticks);
    let rows = parts.iter().copied().chain([sum, window]);
    rows.map(|(part, method, ticks)| {
        let cpu = cpu.to_owned();
        Row { cpu, part, method, ticks, window_ticks }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::super::tests::sample;
    use super::*;
    use crate::services::TimePart;

    #[test]
    fn parts_are_listed_for_all_cpus_and_for_each_with_sum_and_window() {
        let part = |name: &str, ticks| TimePart {
            name: name.to_owned(),
            ticks,
            method: format!("method of {name}"),
        };
        let cpu = |cpu, user, idle| CpuTimes {
            cpu,
            window_ticks: 1_000,
            parts: vec![part("user", user), part("idle", idle)],
        };
        let sample =
            ServicesSample { cpu_times: vec![cpu(0, 650, 350), cpu(3, 1, 999)], ..sample() };
        let table = cpu_times(&sample).unwrap();
        let rows: Vec<(String, String, f64)> = table
            .rows()
            .iter()
            .map(|row| {
                let text = |name| match table.get(row, name) {
                    Some(Value::Text(text)) => text.to_string(),
                    other => panic!("{name}: {other:?}"),
                };
                let ns = table.get(row, "self_total_ns").and_then(Value::number).unwrap();
                (text("cpu"), text("part"), ns)
            })
            .collect();
        let expected = [
            ("all", [651.0, 1_349.0, 2_000.0, 2_000.0]),
            ("0", [650.0, 350.0, 1_000.0, 1_000.0]),
            ("3", [1.0, 999.0, 1_000.0, 1_000.0]),
        ];
        let parts = ["user", "idle", SUM, WINDOW];
        let expected: Vec<_> = expected
            .iter()
            .flat_map(|(cpu, ns)| {
                parts.iter().zip(ns).map(|(part, ns)| (cpu.to_string(), part.to_string(), *ns))
            })
            .collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_bench_that_does_not_divide_a_cpus_time_has_no_such_table() {
        assert!(cpu_times(&sample()).is_none());
    }
}
