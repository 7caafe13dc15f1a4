//! A run with a table like `handlers`, for tests of the output for people.

use record::{Absence, Column, Format, Kind, RowFilter, Run, SCHEMA, Table, TableDisplay, Value};
use serde_json::json;

fn columns() -> Vec<Column> {
    let column = |name: &str, kind| Column::new(name, kind, ".");
    let time = |name: &str, kind| column(name, kind).format(Format::Microseconds);
    let (text, uint, real) = (Kind::Text, Kind::Uint, Kind::Real);
    vec![
        column("condition", text),
        column("cpu", text).priority(95),
        column("kind", text).priority(75),
        column("number", uint).detail(),
        column("name", text).prefixed("number", "kind", "irq").priority(100),
        column("count", uint).priority(70),
        column("rate_hz", real).priority(40),
        time("self_mean_ns", real)
            .title("mean ± ci95")
            .plus_minus("self_mean_ci95_ns")
            .priority(99),
        column("self_mean_ci95_ns", real).detail(),
        column("self_mean_ci95_method", text).detail(),
        time("self_p50_ns", uint).title("p50").priority(50),
        time("self_p90_ns", uint).title("p90").priority(10),
        time("self_p99_ns", uint).title("p99").priority(80),
        column("self_p999_ns", uint).detail(),
        time("self_max_ns", uint).title("max").priority(90),
        column("self_max_at_ns", uint).detail(),
        column("self_total_ns", uint).title("total").format(Format::Milliseconds).priority(30),
        column("self_cpu_ratio", real).title("CPU").priority(65),
        column("self_mean_tsc_cycles", real).detail(),
        column("inclusive_mean_ns", real).detail(),
        column("inclusive_max_ns", uint).detail(),
    ]
}

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
    let display = TableDisplay {
        title: "what each interrupt handler costs".to_owned(),
        headline: "largest: {kind} {name}, {self_cpu_ratio} of CPU time, {self_mean_ns} × {count}"
            .to_owned(),
        group_by: vec!["condition".to_owned()],
        sort_by: Some("self_total_ns".to_owned()),
        filter: Some(RowFilter::sums_over_cpus()),
        rows_max: None,
        notes: [
            "{settings.attachment} probes at entry and exit",
            "CPUs {settings.cpus}",
            "loop on CPU {settings.cpu}",
            "{observer.probe_overhead_in_span_ns} subtracted from each span",
        ]
        .map(str::to_owned)
        .to_vec(),
    };
    let doc = "One row per context and CPU.";
    let mut table = Table::new("handlers", doc, columns()).displayed(display);
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
    let absence = |subject: &str, reason: &str, remedy: Option<&str>| Absence {
        table: "handlers".to_owned(),
        what: subject.to_owned(),
        reason: reason.to_owned(),
        remedy: remedy.map(str::to_owned),
    };
    let observer = json!({
        "probe_overhead_ns": 212.4, "probe_overhead_in_span_ns": 85.0, "events": 1_255_578,
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
            absence("self_mean_tsc_cycles", "no PMU in this machine", None),
            absence("net", "may not make a veth pair", Some("sudo setcap cap_net_admin+ep irqlab")),
            absence("instructions", "no PMU in this machine", None),
        ],
        tables,
    }
}
