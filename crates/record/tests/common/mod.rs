//! Runs to write and read, shared by the tests of the run directory.

use record::{
    Absence, Column, Format, Keep, Kind, RowFilter, Run, SCHEMA, Table, TableDisplay, Value,
};
use serde_json::{Map, json};

/// A run with every kind of column and value, including the extremes. The golden file holds it.
pub fn sample() -> Run {
    let columns = vec![
        Column::new("name", Kind::Text, "Name of the context.").prefixed(
            "difference_ns",
            "name",
            "x",
        ),
        Column::new("count", Kind::Uint, "Number of spans.").detail(),
        Column::new("difference_ns", Kind::Int, "Difference."),
        Column::new("mean_ns", Kind::Real, "Mean of the self times.")
            .title("mean")
            .plus_minus("difference_ns")
            .format(Format::Microseconds)
            .digits(4),
        Column::new("shared", Kind::Bool, "Whether the line is shared."),
    ];
    let display = TableDisplay {
        title: "what each interrupt costs".to_owned(),
        headline: "largest: {name}".to_owned(),
        group_by: vec!["name".to_owned()],
        sort_by: Some("mean_ns".to_owned()),
        filter: Some(RowFilter {
            column: "mean_ns".to_owned(),
            keep: Keep::AtLeast(0.5),
            others: "of little time".to_owned(),
        }),
        rows_max: Some(10),
        notes: vec!["seed {settings.seed}".to_owned()],
    };
    let mut table = Table::new("handlers", "One row per context.", columns).displayed(display);
    for (name, count, difference, mean, shared) in [
        ("virtio1-req.0", 0, i64::MIN, 0.1, true),
        ("", u64::MAX, i64::MAX, f64::MIN_POSITIVE, false),
        ("µs — \u{1b}[31m\n|", 1 << 63, -1, -1e300, true),
    ] {
        let row = [name.into(), count.into(), Value::Int(difference), mean.into(), shared.into()];
        table.push(row.to_vec());
    }
    table.push(vec![Value::Absent; 5]);
    let empty = Table::new("empty", "No rows.", vec![Column::new("x", Kind::Bool, "")]);
    let host = json!({"kernel": "6.12.0", "cpus": 2, "tsc_hz": 2_899_999_999_u64, "ratio": 0.1});
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "handlers".to_owned(),
        bench: "live".to_owned(),
        started_utc: "2026-11-21T07:50:41Z".to_owned(),
        complete: true,
        host: host.as_object().cloned().unwrap_or_default(),
        settings: Map::from_iter([("seed".to_owned(), json!(1)), ("cpus".to_owned(), json!([0]))]),
        observer: Map::from_iter([("probe_overhead_ns".to_owned(), json!(212.5))]),
        warnings: vec!["the clock is the TSC of a virtual machine".to_owned()],
        absent: vec![Absence {
            table: "handlers".to_owned(),
            what: "instructions".to_owned(),
            reason: "no PMU".to_owned(),
            remedy: Some("sysctl kernel.perf_event_paranoid=1".to_owned()),
        }],
        tables: vec![table, empty],
    }
}
