//! The view of table `agreement`: in words how far our counts are the kernel's, and the rows that
//! are not.

use record::{Table, Value};

use crate::human;
use crate::view::{Filter, Row, View, ViewColumn};

/// What the view cannot do without.
pub(super) const NEEDS: [&str; 7] =
    ["condition", "counted", "kernel_exact", "kernel_min", "kernel_max", "edge_max", "agrees"];

pub(super) fn view() -> View {
    View {
        title: Some(|table| Agreement::of(table).in_words()),
        group_by: Vec::new(),
        filter: Some(Filter { keeps: differs, others: "in agreement or without a probe" }),
        rows_max: 10,
        columns: vec![
            ViewColumn::text("condition", "condition", 90),
            ViewColumn::number("cpu", "cpu", 80),
            ViewColumn::text("line", "line", 100),
            ViewColumn::text("name", "name", 30),
            ViewColumn::number("counted", "counted", 95),
            ViewColumn::number("kernel", "", 94)
                .made(&["kernel_exact", "kernel_min", "kernel_max"], kernel),
            ViewColumn::number("difference", "", 93)
                .made(&["counted", "kernel_exact", "kernel_min", "kernel_max"], difference),
            ViewColumn::number("edges allow", "edge_max", 40),
            ViewColumn { all_rows_only: true, ..ViewColumn::text("agrees", "agrees", 85) },
        ],
    }
}

/// How many rows agree, and how well.
#[derive(Default)]
struct Agreement {
    /// Equal to the kernel's counter.
    equal: u64,
    /// Within what the window's edges, or the files read around them, leave open.
    within: u64,
    differing: u64,
    /// Sum of the kernel's own counters that were compared, and of what ours lack or exceed.
    kernel: u64,
    apart: u64,
}

impl Agreement {
    fn of(table: &Table) -> Agreement {
        let mut agreement = Agreement::default();
        for row in table.rows().iter().map(|values| Row::new(table, values)) {
            let is_equal = *row.get("kernel_exact") != Value::Absent
                && row.get("counted") == row.get("kernel_exact");
            if let (Value::Uint(ours), Value::Uint(kernel)) =
                (row.get("counted"), row.get("kernel_exact"))
            {
                agreement.kernel = agreement.kernel.saturating_add(*kernel);
                agreement.apart = agreement.apart.saturating_add(ours.abs_diff(*kernel));
            }
            match row.get("agrees") {
                Value::Bool(true) if is_equal => agreement.equal += 1,
                Value::Bool(true) => agreement.within += 1,
                Value::Bool(false) => agreement.differing += 1,
                _ => {}
            }
        }
        agreement
    }

    fn in_words(&self) -> String {
        let Agreement { equal, within, differing, kernel, apart } = *self;
        let compared = equal + within + differing;
        let of = match (compared, differing) {
            (0, _) => {
                return "none of the kernel's counters could be compared with ours".to_owned();
            }
            (1, 0) => "the one counter that moved agrees".to_owned(),
            (_, 0) => format!("all {} counters agree", human::count(compared)),
            _ => format!(
                "{} of {} counters agree",
                human::count(equal + within),
                human::count(compared)
            ),
        };
        let within = match within {
            0 => String::new(),
            _ => format!(", {} within what the window's edges leave open", human::count(within)),
        };
        let differing = match differing {
            0 => String::new(),
            _ => {
                let verb = if differing == 1 { "differs" } else { "differ" };
                let share = (kernel > 0).then(|| human::percent(apart as f64 / kernel as f64));
                let share = share.map(|share| format!(" (in all, {share} of what it counted)"));
                format!("; {} {verb}{}:", human::count(differing), share.unwrap_or_default())
            }
        };
        format!(
            "{of} with the kernel's own: {} to the last one{within}{differing}",
            human::count(equal)
        )
    }
}

fn differs(row: &Row<'_>) -> bool {
    *row.get("agrees") == Value::Bool(false)
}

/// The kernel's count, or the least and the most that it can have been.
fn kernel(row: &Row<'_>) -> String {
    if *row.get("kernel_exact") != Value::Absent {
        return row.cell("kernel_exact");
    }
    match (row.get("kernel_min"), row.get("kernel_max")) {
        (Value::Absent, _) | (_, Value::Absent) => human::ABSENT.to_owned(),
        (least, most) if least == most => row.cell("kernel_max"),
        _ => format!("{} to {}", row.cell("kernel_min"), row.cell("kernel_max")),
    }
}

/// By how much ours is more than the kernel's, or less: at least, where the files leave it open.
fn difference(row: &Row<'_>) -> String {
    let number = |column: &str| match row.get(column) {
        Value::Uint(number) => i64::try_from(*number).ok(),
        _ => None,
    };
    let Some(counted) = number("counted") else { return human::ABSENT.to_owned() };
    let exact = number("kernel_exact");
    let least = exact.or_else(|| number("kernel_min"));
    let most = exact.or_else(|| number("kernel_max"));
    match (least, most) {
        (Some(least), _) if counted < least => {
            human::cell("difference", &Value::Int(counted - least))
        }
        (_, Some(most)) if counted > most => {
            format!("+{}", human::cell("difference", &Value::Int(counted - most)))
        }
        (Some(_), Some(_)) => "0".to_owned(),
        _ => human::ABSENT.to_owned(),
    }
}
