//! The view of table `handlers`: one line per source of interrupts, per condition.

use record::{Table, Value};

use crate::human;
use crate::view::{Align, Cell, Filter, Row, View, ViewColumn};

/// Whether a table of that name has what the view cannot do without.
pub(crate) fn fits(table: &Table) -> bool {
    ["condition", "cpu", "kind", "name"].iter().all(|column| table.column(column).is_some())
}

/// The view. At 80 columns: kind, source, count, mean, p99, max and share; the rest comes with
/// width.
pub(crate) fn view() -> View {
    let source = Cell::Made { from: &["kind", "number", "name"], make: source };
    let mean = Cell::Made { from: &["self_mean_ns"], make: mean };
    let cpu = ViewColumn { all_rows_only: true, ..column("cpu", Align::Left, "cpu", 95) };
    let columns = vec![
        column("kind", Align::Left, "kind", 75),
        ViewColumn { cell: source, ..column("source", Align::Left, "", 100) },
        cpu,
        column("count", Align::Right, "count", 70),
        column("rate", Align::Right, "rate_hz", 40),
        ViewColumn { cell: mean, ..column("mean ± ci95", Align::Right, "", 99) },
        column("p50", Align::Right, "self_p50_ns", 50),
        column("p90", Align::Right, "self_p90_ns", 10),
        column("p99", Align::Right, "self_p99_ns", 80),
        column("p99.9", Align::Right, "self_p999_ns", 15),
        column("max", Align::Right, "self_max_ns", 90),
        column("total", Align::Right, "self_total_ns", 30),
        column("share", Align::Right, "self_share_ratio", 65),
        column("incl mean", Align::Right, "incl_mean_ns", 20),
    ];
    View {
        group_by: vec!["condition"],
        filter: Some(Filter { column: "cpu", equals: "all", others: "per CPU" }),
        rows_max: usize::MAX,
        columns,
    }
}

fn column(heading: &str, align: Align, name: &str, keep: u8) -> ViewColumn {
    let cell = Cell::Column(name.to_owned());
    ViewColumn { heading: heading.to_owned(), align, cell, keep, all_rows_only: false }
}

/// `36 virtio1-req.0` for a line of an interrupt controller, `TIMER` for all others.
fn source(row: &Row<'_>) -> String {
    let is_irq = matches!(row.get("kind"), Value::Text(kind) if kind == "irq");
    match (row.get("number"), row.get("name")) {
        (Value::Absent, _) => row.cell("name"),
        (_, Value::Absent) => row.cell("number"),
        _ if is_irq => format!("{} {}", row.cell("number"), row.cell("name")),
        _ => row.cell("name"),
    }
}

fn mean(row: &Row<'_>) -> String {
    let half_width = row.number("self_mean_ci95_ns");
    row.number("self_mean_ns")
        .map_or(human::ABSENT.to_owned(), |mean| human::ns_with_half_width(mean, half_width))
}
