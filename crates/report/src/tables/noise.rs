//! The views of the tables of experiment `noise`.

use super::{plain, source};
use crate::human;
use crate::view::{Filter, Row, View, ViewColumn};

/// What the views cannot do without.
pub(super) const NEEDS: [&str; 2] = ["cpu", "lost_ns"];
pub(super) const NEEDS_OF_CAUSES: [&str; 3] = ["cpu", "class", "total_ns"];
pub(super) const NEEDS_OF_AFTERMATH: [&str; 3] =
    ["cpu", "direct_mean_cycles", "indirect_mean_cycles"];
pub(super) const NEEDS_OF_PLACEMENT: [&str; 3] = ["relation", "cpu", "slowdown_ratio"];
pub(super) const NEEDS_OF_PERIODS: [&str; 3] = ["cpu", "method", "period_ns"];
pub(super) const NEEDS_OF_SINGLES: [&str; 1] = ["cpu"];

pub(super) fn view() -> View {
    plain(
        usize::MAX,
        vec![
            ViewColumn::text("cpu", "cpu", 100),
            ViewColumn::text("traced", "traced", 99),
            ViewColumn::number("window", "window_ns", 60),
            ViewColumn::number("detours", "detour_count", 90),
            ViewColumn::number("rate", "rate_hz", 50),
            ViewColumn::number("lost", "lost_ratio", 98),
            ViewColumn::number("p50", "p50_ns", 70),
            ViewColumn::number("p99", "p99_ns", 75),
            ViewColumn::number("max", "max_ns", 85),
            ViewColumn::number("named", "named_ns", 64),
            ViewColumn::number("path", "path_ns", 63),
            ViewColumn::number("host", "host_ns", 62),
            ViewColumn::number("remainder", "remainder_ns", 80),
            ViewColumn::number("aftermath", "aftermath_ns", 79),
            ViewColumn::number("own gaps", "own_gap_count", 25),
            ViewColumn::number("explained", "explained_ratio", 95),
            ViewColumn::number("steal", "steal_ns", 30),
            ViewColumn::number("SMIs", "smi_count", 31),
            ViewColumn::number("switches", "switch_count", 40),
            ViewColumn::number("faults", "page_fault_count", 20),
            ViewColumn::number("cut", "cut_count", 10),
        ],
    )
}

pub(super) fn view_of_causes() -> View {
    View {
        group_by: vec!["cpu"],
        filter: Some(Filter { keeps: is_much, others: "below a thousandth of what was lost" }),
        ..plain(
            usize::MAX,
            vec![
                ViewColumn::text("class", "class", 95),
                ViewColumn::text("kind", "kind", 80),
                ViewColumn::text("cause", "name", 100),
                ViewColumn::number("detours", "detour_count", 70),
                ViewColumn::number("rate", "rate_hz", 40),
                ViewColumn::number("total", "total_ns", 60),
                ViewColumn::number("of CPU", "cpu_ratio", 85),
                ViewColumn::number("of lost", "lost_ratio", 98),
                ViewColumn::number("p50", "p50_ns", 50),
                ViewColumn::number("p99", "p99_ns", 65),
                ViewColumn::number("max", "max_ns", 75),
            ],
        )
    }
}

pub(super) fn view_of_aftermath() -> View {
    plain(
        usize::MAX,
        vec![
            ViewColumn::text("cpu", "cpu", 90),
            ViewColumn::text("kind", "kind", 70),
            ViewColumn::text("cause", "name", 100),
            ViewColumn::text("switched", "switched", 40),
            ViewColumn::number("quanta", "quantum_count", 80),
            ViewColumn::number("direct", "direct_mean_cycles", 98),
            ViewColumn::number("± ci95", "direct_ci95_cycles", 60),
            ViewColumn::number("p50", "direct_p50_cycles", 50),
            ViewColumn::number("indirect", "indirect_mean_cycles", 99),
            ViewColumn::number("± ci95", "indirect_ci95_cycles", 85),
            ViewColumn::number("p50", "indirect_p50_cycles", 55),
            ViewColumn::number("of direct", "indirect_ratio", 45),
            ViewColumn::number("next", "next_mean_cycles", 48),
            ViewColumn::number("± ci95", "next_ci95_cycles", 30),
            ViewColumn::number("undisturbed", "undisturbed_cycles", 58),
            ViewColumn::number("quanta", "undisturbed_count", 20),
        ],
    )
}

pub(super) fn view_of_placement() -> View {
    plain(
        usize::MAX,
        vec![
            ViewColumn::text("relation", "relation", 100),
            ViewColumn::text("handler on", "handler_cpu", 95),
            ViewColumn::text("loop on", "cpu", 96),
            ViewColumn::number("quanta", "quantum_count", 80),
            ViewColumn::number("slowdown", "slowdown_ratio", 99),
            ViewColumn::number("± ci95", "slowdown_ci95_ratio", 90),
            ViewColumn::number("max", "slowdown_max_ratio", 85),
            ViewColumn::number("left out", "left_out_count", 40),
            ViewColumn::number("undisturbed", "undisturbed_ns", 60),
            ViewColumn::number("± ci95", "undisturbed_ci95_ns", 30),
            ViewColumn::number("quanta", "undisturbed_count", 50),
        ],
    )
}

pub(super) fn view_of_periods() -> View {
    plain(
        usize::MAX,
        vec![
            ViewColumn::text("cpu", "cpu", 90),
            ViewColumn::text("method", "method", 60),
            ViewColumn::text("set off by", "", 100).made(&["kind", "name"], source),
            ViewColumn::number("frequency", "frequency_hz", 95).made(&["frequency_hz"], frequency),
            ViewColumn::number("period ± ci95", "", 99).made(&["period_ns"], period),
            ViewColumn::number("R", "concentration_ratio", 85).made(&["concentration_ratio"], r),
            ViewColumn::number("of CPU", "locked_cpu_ratio", 80),
            ViewColumn::number("locked", "locked_count", 50),
            ViewColumn::number("events", "event_count", 40),
        ],
    )
}

/// Tasks that had next to nothing are many on a busy machine; the rows without a name are always
/// shown.
fn is_much(row: &Row<'_>) -> bool {
    row.cell("class") != "named" || row.number("lost_ratio").is_none_or(|share| share >= 0.001)
}

/// Single events are for pictures and programs.
pub(super) fn view_of_singles() -> View {
    plain(0, vec![ViewColumn::text("cpu", "cpu", 100)])
}

fn number(row: &Row<'_>, column: &str, show: impl Fn(f64) -> String) -> String {
    row.number(column).map_or(human::ABSENT.to_owned(), show)
}

fn frequency(row: &Row<'_>) -> String {
    number(row, "frequency_hz", |hz| format!("{} Hz", human::number(hz)))
}

/// With a digit more than times of events: a clock is known better than they are.
fn period(row: &Row<'_>) -> String {
    let half_width = row.number("period_ci95_ns").map_or(human::ABSENT.to_owned(), human::ns);
    number(row, "period_ns", |ns| format!("{:.4} ms ± {half_width}", ns / 1e6))
}

fn r(row: &Row<'_>) -> String {
    number(row, "concentration_ratio", |r| format!("{r:.2}"))
}
