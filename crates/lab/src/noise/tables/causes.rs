//! Table `causes`: the causes of the lost time.

use record::{Format, Keep, Kind, RowFilter, Table, TableDisplay};

use super::super::sample::NoiseSample;
use super::{all_rows, column, cpu_column, kind_and_name, ledgers, rate_hz, ratio};
use crate::quantiles::{interval_link, p50_p99_interval_columns, p50_p99_interval_values};

/// One row per CPU and cause; the largest first within a CPU.
pub fn causes(samples: &[NoiseSample]) -> Table {
    use Kind::{Real, Text, Uint};
    let mut columns = vec![
        cpu_column(),
        column(
            "class",
            Text,
            "Class of the time: attributed, entry/exit, unattributed (host or firmware), \
             remainder or indirect (see table noise).",
        )
        .priority(95)
        .key(),
        column(
            "kind",
            Text,
            "Kind of the cause: irq, vector, softirq, nmi, exception or task; on sim also syscall \
             and idle. Without a kernel event: the class.",
        )
        .priority(80)
        .key(),
        column("name", Text, "Name of the context, as the kernel gives it, or of the task.")
            .title("cause")
            .priority(100)
            .key(),
        column("detour_count", Uint, "Detours with time of this cause.")
            .title("detours")
            .priority(70),
        column("rate_hz", Real, "Detours with time of this cause, per second of the window.")
            .priority(40),
        column(
            "total_ns",
            Uint,
            "Self time of the cause in all detours (without nested causes). Exact.",
        )
        .format(Format::Milliseconds)
        .priority(60),
        column("cpu_ratio", Real, "Share of the CPU: total_ns over the length of the window.")
            .title("CPU")
            .priority(85)
            .cpu_share(),
        column(
            "lost_ratio",
            Real,
            "Share of the lost time: total_ns over the time in all detours. The rows of a CPU add \
             up to 1.",
        )
        .title("of lost time")
        .priority(98),
        column("p50_ns", Uint, "Median time of the cause in a detour; exact within 1/16.")
            .interval(interval_link("p50_ns"))
            .format(Format::Microseconds)
            .priority(50),
        column(
            "p99_ns",
            Uint,
            "99th percentile of the cause's time in a detour; exact within 1/16.",
        )
        .interval(interval_link("p99_ns"))
        .format(Format::Microseconds)
        .priority(65),
        column("max_ns", Uint, "Longest time of the cause in one detour; exact.")
            .format(Format::Microseconds)
            .priority(75),
    ];
    columns.extend(p50_p99_interval_columns(["p50_ns", "p99_ns"]));
    let doc =
        "The causes of the lost time: the rows of all detours' causes add up to lost_ns exactly.";
    let filter = RowFilter {
        column: "lost_ratio".to_owned(),
        keep: Keep::AtLeast(0.001),
        others: "below a thousandth of the lost time".to_owned(),
    };
    let display = TableDisplay {
        headline:
            "largest: {kind} {name}, {cpu_ratio} of CPU time, {lost_ratio} of the lost time, \
                   {detour_count} detours"
                .to_owned(),
        group_by: vec!["cpu".to_owned()],
        sort_by: Some("total_ns".to_owned()),
        filter: Some(filter),
        ..all_rows()
    };
    let mut table = Table::new("causes", doc, columns).displayed(display);
    for (sample, cpu, ledger) in ledgers(samples) {
        let mut parts: Vec<_> = ledger.parts.iter().collect();
        parts.sort_by_key(|(_, times)| std::cmp::Reverse(times.sum));
        for (part, times) in parts {
            let [kind, name] = kind_and_name(*part, &sample.names);
            let mut row = vec![
                u64::from(cpu.cpu).into(),
                part.class().label().into(),
                kind,
                name,
                times.count.into(),
                rate_hz(times.count, cpu.window_ns),
                times.sum.into(),
                ratio(times.sum, cpu.window_ns),
                ratio(times.sum, ledger.gaps.sum),
                times.quantile(50_000).into(),
                times.quantile(99_000).into(),
                times.peak.value.into(),
            ];
            row.extend(p50_p99_interval_values(times));
            table.push(row);
        }
    }
    table
}
