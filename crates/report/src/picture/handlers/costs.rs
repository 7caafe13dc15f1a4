//! The picture `costs` of `handlers`: the CPU time of each context, a panel of bars for each condition. If the run
//! counted stalled cycles, each bar is divided by what its cycles were.

use plotters::style::RGBColor;
use record::{Run, Table};

use super::{all_conditions, conditions, context, largest, left_out, panel_title, text};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::bars::{Bar, draw_panels};
use crate::picture::causes::{self, CAUSES, Cause};
use crate::picture::palette::{BLUE, GREY, ORANGE, SKY, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::{Entry, Heading, Sheet, Undrawn};
use crate::row::Row;

/// Maximum number of contexts of a condition.
const CONTEXTS_MAX: usize = 14;

/// The row of a context, and the causes of its cycles if they are known.
type ContextCauses<'r> = (Row<'r>, Option<Vec<(f64, Cause)>>);

/// Name and colour of a context without counted stalls, in a picture where other contexts have them.
const NOT_COUNTED: (&str, RGBColor) = ("cause not counted", GREY);
/// Colours of the kinds of contexts, for a run without counted stalls.
const KINDS: [(&str, RGBColor); 4] =
    [("vector", BLUE), ("irq", VERMILION), ("softirq", SKY), ("nmi", ORANGE)];

/// The causes of a context's cycles with their shares, in the order of [`CAUSES`]. `None` if stalls were not counted, or
/// if they add up to more than all cycles.
fn causes(events: Option<&Table>, context_row: &Row<'_>) -> Option<Vec<(f64, Cause)>> {
    let keys = ["condition", "kind", "name"];
    let is_same_context = |row: &Row<'_>| {
        keys.iter().all(|key| text(row, key) == text(context_row, key))
            && row.get("number") == context_row.get("number")
    };
    let count = |event: &str| {
        let is_counted = |row: &Row<'_>| is_same_context(row) && text(row, "event") == event;
        rows(events?).find(is_counted)?.number("self_total")
    };
    let cycles = count("cycles").filter(|cycles| *cycles > 0.0)?;
    let share = |event: &str| Some(count(event)? / cycles);
    let (instructions, data) =
        (share("stalled-cycles-frontend")?, share("stalled-cycles-backend")?);
    let pipeline = share("pipeline_stall_cycles").zip(share("branch_stall_cycles"));
    causes::divided([instructions, data], pipeline.map(|(stalls, branches)| [stalls, branches]))
}

/// The bar of a context, divided by cause if its causes are known. Otherwise the bar has one colour: grey if other
/// bars are divided (`is_divided`), else the colour of the context's kind.
fn bar(row: &Row<'_>, causes: Option<&[(f64, Cause)]>, is_divided: bool) -> Bar {
    let share = row.number("self_cpu_ratio").unwrap_or(0.0);
    let parts = match causes {
        Some(causes) => causes.iter().map(|(part, cause)| (share * part, cause.1)).collect(),
        None if is_divided => vec![(share, NOT_COUNTED.1)],
        None => vec![(share, colour(&text(row, "kind")))],
    };
    let bound = row.bound_below_limit("self_mean_ns");
    let mean = row.number("self_mean_ns").filter(|mean| *mean > 0.0 && bound.is_none());
    let rate = row.number("rate_hz").map(human::rate).unwrap_or_default();
    let label = human::percent(share);
    let detail = match (mean, bound) {
        // The rate is that of all CPUs together, and the share that of one on average.
        (Some(mean), _) => format!(": {} × {rate}", human::ns(mean)),
        // A product with a mean below the detection limit would mean nothing.
        (None, Some(bound)) if bound > 0.0 => format!(" at {rate}, < {} each", human::ns(bound)),
        (None, _) => format!(" at {rate}"),
    };
    // Runs of older versions have no interval of the share. The mean's interval lacks the error of the number of
    // spans.
    let half_width = row.number("self_cpu_ci95_ratio");
    let interval = half_width.map(|half| ((share - half).max(0.0), share + half));
    Bar { name: context(row), parts, interval, label, detail }
}

/// The title, with the largest share of all conditions, drawn or not. `None` if no context took CPU time.
fn title(table: &Table) -> Option<String> {
    let conditions = all_conditions(table);
    let share = |row: &Row<'_>| row.number("self_cpu_ratio").unwrap_or(0.0);
    let costliest = conditions
        .iter()
        .flat_map(|condition| largest(table, condition, "self_cpu_ratio"))
        .reduce(
            |costliest, other| if share(&other) > share(&costliest) { other } else { costliest },
        )?;
    let condition = match conditions.len() {
        1 => String::new(),
        _ => format!(" ({})", panel_title(&text(&costliest, "condition"))),
    };
    let (name, share) = (context(&costliest), human::percent(share(&costliest)));
    Some(format!("CPU time of each interrupt context: {name} takes {share}{condition}"))
}

fn colour(kind: &str) -> RGBColor {
    KINDS.iter().find(|(known, _)| *known == kind).map_or(GREY, |(_, colour)| *colour)
}

/// The picture of table `handlers`: CPU time of each context. `None` for a run without contexts.
pub fn costs(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("handlers") else { return Ok(None) };
    let events = run.table("events").filter(|table| table.column("self_total").is_some());
    let (conditions, further_conditions) = conditions(table);
    let (mut titled_rows, mut dropped) = (Vec::new(), 0);
    for condition in &conditions {
        let mut rows = largest(table, condition, "self_cpu_ratio");
        dropped += rows.len().saturating_sub(CONTEXTS_MAX);
        rows.truncate(CONTEXTS_MAX);
        let rows: Vec<_> = rows.into_iter().map(|row| (row, causes(events, &row))).collect();
        titled_rows.extend((!rows.is_empty()).then(|| (panel_title(condition), rows)));
    }
    let all_rows = || titled_rows.iter().flat_map(|(_, rows)| rows);
    let is_divided = all_rows().any(|(_, causes)| causes.is_some());
    let is_all_divided = all_rows().all(|(_, causes)| causes.is_some());
    let mut kinds: Vec<String> = Vec::new();
    for (row, _) in all_rows() {
        let kind = text(row, "kind");
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let bars = |rows: &Vec<ContextCauses<'_>>| -> Vec<Bar> {
        rows.iter().map(|(row, causes)| bar(row, causes.as_deref(), is_divided)).collect()
    };
    let panels: Vec<(String, Vec<Bar>)> =
        titled_rows.iter().map(|(title, rows)| (title.clone(), bars(rows))).collect();
    let Some(title) = title(table) else { return Ok(None) };
    let entry = |name: &str, colour| Entry { name: name.to_owned(), colour };
    let mut legend = Vec::new();
    if is_divided {
        let has = |cause: &Cause| {
            all_rows()
                .filter_map(|(_, causes)| causes.as_ref())
                .flatten()
                .any(|(_, one)| one == cause)
        };
        let drawn = CAUSES.iter().filter(|cause| has(cause));
        legend.extend(drawn.map(|(name, colour)| entry(name, *colour)));
        legend.extend((!is_all_divided).then(|| entry(NOT_COUNTED.0, NOT_COUNTED.1)));
    } else {
        legend.extend(kinds.iter().map(|kind| entry(kind, colour(kind))));
    }
    let self_time = if is_divided {
        "Self time, divided by what its cycles were: executing, lost after mispredicted branches \
         (branch_stall_cycles) or otherwise in the pipeline (pipeline_stall_cycles) where a simulated \
         core counts these, waiting for instructions (stalled-cycles-frontend) or for data \
         (stalled-cycles-backend)."
    } else {
        "Self time: without the contexts nested within. This run has no counts of stalled \
         cycles, so that it is not divided by cause."
    };
    let has_intervals = all_rows().any(|(row, _)| row.number("self_cpu_ci95_ratio").is_some());
    let whiskers = if has_intervals { " Whiskers: 95 % intervals of the share." } else { "" };
    let mut notes = vec![format!("{self_time}{whiskers}")];
    notes.extend(left_out(further_conditions, dropped, "handlers"));
    let heading = Heading {
        title,
        notes,
        legend,
        description:
            "A bar for each context, as long as its share of CPU time. The numbers are in table \
                      handlers of the run."
                .to_owned(),
    };
    let axis = |longest| Axis::linear("share of CPU time", Quantity::Share, 0.0, longest);
    draw_panels(&heading, width, &panels, axis).map(Some)
}
