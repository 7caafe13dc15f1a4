//! The views made for the tables that irqlab writes.

mod agreement;
mod annotations;
mod conditions;
mod contexts;
mod events;
mod footprint;
mod handlers;
mod napi;
mod noise;
mod paper;
mod probes;
mod scale;

use record::{Table, Value};

use crate::view::{Row, View, ViewColumn};

/// The view made for this table; none for a table that nobody knows, or that lacks what the view
/// of that name cannot do without.
pub(crate) fn view_of(table: &Table) -> Option<View> {
    let (needs, view): (&[&str], fn() -> View) = match table.name.as_str() {
        "handlers" => (&handlers::NEEDS, handlers::view),
        "napi" => (&napi::NEEDS, napi::view),
        "agreement" => (&agreement::NEEDS, agreement::view),
        "annotations" => (&annotations::NEEDS, annotations::view),
        "annotation_values" => (&annotations::NEEDS_OF_VALUES, annotations::view_of_values),
        "conditions" => (&conditions::NEEDS, conditions::view),
        "contexts" => (&contexts::NEEDS, contexts::view),
        "events" => (&events::NEEDS, events::view),
        "footprint" => (&footprint::NEEDS, footprint::view),
        "noise" => (&noise::NEEDS, noise::view),
        "causes" => (&noise::NEEDS_OF_CAUSES, noise::view_of_causes),
        "aftermath" => (&noise::NEEDS_OF_AFTERMATH, noise::view_of_aftermath),
        "placement" => (&noise::NEEDS_OF_PLACEMENT, noise::view_of_placement),
        "periods" => (&noise::NEEDS_OF_PERIODS, noise::view_of_periods),
        "detours" | "repetitions" | "slots" | "sizes" | "spectrum" | "injected" => {
            (&noise::NEEDS_OF_SINGLES, noise::view_of_singles)
        }
        "paper" => (&paper::NEEDS, paper::view),
        "statements" => (&paper::NEEDS_OF_STATEMENTS, paper::view_of_statements),
        "probes" => (&probes::NEEDS, probes::view),
        "probe_costs" => (&probes::NEEDS_OF_COSTS, probes::view_of_costs),
        "scale" => (&scale::NEEDS, scale::view),
        "ratios" => (&events::NEEDS_OF_RATIOS, events::view_of_ratios),
        _ => return None,
    };
    needs.iter().all(|column| table.column(column).is_some()).then(view)
}

/// A view of up to `rows_max` rows with neither groups nor filter.
fn plain(rows_max: usize, columns: Vec<ViewColumn>) -> View {
    View { title: None, group_by: Vec::new(), filter: None, rows_max, columns }
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

/// Whether the row is the sum over the CPUs.
fn is_sum(row: &Row<'_>) -> bool {
    matches!(row.get("cpu"), Value::Text(cpu) if cpu == "all")
}
