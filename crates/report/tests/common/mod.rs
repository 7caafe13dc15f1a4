//! A run of `handlers` as the lab writes it, for the tests of what people see.

use record::{Absence, Column, Kind, Run, SCHEMA, Table, Value};
use serde_json::json;

const COLUMNS: [(&str, Kind); 21] = [
    ("condition", Kind::Text),
    ("cpu", Kind::Text),
    ("kind", Kind::Text),
    ("number", Kind::Uint),
    ("name", Kind::Text),
    ("count", Kind::Uint),
    ("rate_hz", Kind::Real),
    ("self_mean_ns", Kind::Real),
    ("self_mean_ci95_ns", Kind::Real),
    ("interval_method", Kind::Text),
    ("self_p50_ns", Kind::Uint),
    ("self_p90_ns", Kind::Uint),
    ("self_p99_ns", Kind::Uint),
    ("self_p999_ns", Kind::Uint),
    ("self_max_ns", Kind::Uint),
    ("self_max_at_ns", Kind::Uint),
    ("self_total_ns", Kind::Uint),
    ("self_share_ratio", Kind::Real),
    ("self_mean_cycles", Kind::Real),
    ("incl_mean_ns", Kind::Real),
    ("incl_max_ns", Kind::Uint),
];

struct Source {
    condition: &'static str,
    cpu: &'static str,
    kind: &'static str,
    number: Option<u64>,
    name: &'static str,
    count: u64,
    mean_ns: f64,
    max_ns: u64,
}

fn row(source: &Source) -> Vec<Value> {
    let Source { condition, cpu, kind, number, name, count, mean_ns, max_ns } = *source;
    let mean = mean_ns as u64;
    let share = mean_ns * count as f64 / 60e9;
    vec![
        condition.into(),
        cpu.into(),
        kind.into(),
        number.into(),
        name.into(),
        count.into(),
        (count as f64 / 60.0).into(),
        mean_ns.into(),
        (mean_ns / 50.0).into(),
        "batch-means".into(),
        (mean * 9 / 10).into(),
        (mean * 3 / 2).into(),
        (mean * 2).into(),
        (mean * 4).into(),
        max_ns.into(),
        31_000_000_000.into(),
        (mean * count).into(),
        share.into(),
        Value::Absent,
        (mean_ns * 1.25).into(),
        (max_ns * 2).into(),
    ]
}

pub fn handlers() -> Table {
    let columns = COLUMNS.iter().map(|(name, kind)| Column::new(name, *kind, "."));
    let mut table = Table::new("handlers", "One row per source and CPU.", columns.collect());
    let source = |condition, cpu, kind, number, name, count, mean_ns, max_ns| {
        row(&Source { condition, cpu, kind, number, name, count, mean_ns, max_ns })
    };
    let (low, high) = ("idle/low/disk", "idle/high/disk");
    for row in [
        source(low, "all", "irq", Some(36), "virtio1-req.0", 6_000, 1_280.5, 14_200),
        source(low, "0", "irq", Some(36), "virtio1-req.0", 6_000, 1_280.5, 14_200),
        source(low, "all", "vector", Some(236), "LOC", 15_011, 920.4, 3_400_000),
        source(high, "all", "irq", Some(36), "virtio1-req.0", 1_234_567, 1_190.0, 28_000),
        source(high, "all", "softirq", Some(4), "BLOCK", 1_234_560, 2_345.0, 99_100),
    ] {
        table.push(row);
    }
    table
}

pub fn run(tables: Vec<Table>) -> Run {
    let absence = |what: &str, reason: &str, remedy: Option<&str>| Absence {
        table: "handlers".to_owned(),
        what: what.to_owned(),
        reason: reason.to_owned(),
        remedy: remedy.map(str::to_owned),
    };
    let observer = json!({
        "added_ns_per_span": 212.4, "inside_ns_per_span": 85.0, "events": 1_255_578,
        "events_per_second": 20_926.3, "cpu_share_ratio": 0.0044, "events_lost": 0,
    });
    let host = json!({
        "cpu_model": "Some CPU", "cpu_family": 26, "cpu_model_number": 2, "cpus_online": "0-1",
        "virtualized": true, "hypervisor": "KVM", "kernel": "6.12", "arch": "x86_64", "hz": 250,
        "pmu": false,
    });
    let settings = json!({
        "attachment": "tp_btf", "cpus": "0-1", "clock": "CLOCK_MONOTONIC",
        "histogram_error_max_ratio": 0.0625,
    });
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "handlers".to_owned(),
        bench: "live".to_owned(),
        started_utc: "2026-11-21T07:50:41Z".to_owned(),
        complete: true,
        host: host.as_object().cloned().unwrap(),
        settings: settings.as_object().cloned().unwrap(),
        observer: observer.as_object().cloned().unwrap(),
        warnings: vec!["the machine is virtual: the host can take its CPUs away".to_owned()],
        absent: vec![
            absence("self_mean_cycles", "no PMU in this machine", None),
            absence("net", "may not make a veth pair", Some("sudo setcap cap_net_admin+ep irqlab")),
            absence("instructions", "no PMU in this machine", None),
        ],
        tables,
    }
}
