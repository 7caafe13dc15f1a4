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

/// A context that is drawn.
struct ContextCosts<'r> {
    /// Its row of table `handlers`.
    row: Row<'r>,
    /// The causes of its cycles with their shares. `None` if unknown.
    causes: Option<Vec<(f64, Cause)>>,
}

/// A condition's panel: its costliest contexts.
struct CostPanel<'r> {
    title: String,
    contexts: Vec<ContextCosts<'r>>,
}

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
fn bar(context_costs: &ContextCosts<'_>, is_divided: bool) -> Bar {
    let row = &context_costs.row;
    let share = row.number("self_cpu_ratio").unwrap_or(0.0);
    let (_, not_counted_colour) = NOT_COUNTED;
    let parts = match &context_costs.causes {
        Some(causes) => causes.iter().map(|(part, (_, colour))| (share * part, *colour)).collect(),
        None if is_divided => vec![(share, not_counted_colour)],
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

/// Name and colour of each part of a bar that is in the picture. `panels`: the contexts of each. `is_divided`: whether
/// a bar is divided by cause.
fn legend(panels: &[CostPanel<'_>], is_divided: bool) -> Vec<Entry> {
    let all_contexts = || panels.iter().flat_map(|panel| &panel.contexts);
    let entry = |name: &str, colour| Entry { name: name.to_owned(), colour };
    if !is_divided {
        let mut kinds: Vec<String> = Vec::new();
        for context in all_contexts() {
            let kind = text(&context.row, "kind");
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        return kinds.iter().map(|kind| entry(kind, colour(kind))).collect();
    }
    let is_drawn = |cause: &Cause| {
        let mut drawn_causes =
            all_contexts().filter_map(|context| context.causes.as_ref()).flatten();
        drawn_causes.any(|(_, drawn_cause)| drawn_cause == cause)
    };
    let drawn_causes = CAUSES.iter().filter(|cause| is_drawn(cause));
    let mut legend: Vec<Entry> = drawn_causes.map(|(name, colour)| entry(name, *colour)).collect();
    if all_contexts().any(|context| context.causes.is_none()) {
        let (name, colour) = NOT_COUNTED;
        legend.push(entry(name, colour));
    }
    legend
}

/// The picture of table `handlers`: CPU time of each context. `None` for a run without contexts.
pub fn costs(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("handlers") else { return Ok(None) };
    let events = run.table("events").filter(|table| table.column("self_total").is_some());
    let (conditions, further_conditions) = conditions(table);
    let (mut panels, mut undrawn_count) = (Vec::new(), 0);
    for condition in &conditions {
        let mut rows = largest(table, condition, "self_cpu_ratio");
        undrawn_count += rows.len().saturating_sub(CONTEXTS_MAX);
        rows.truncate(CONTEXTS_MAX);
        let contexts: Vec<ContextCosts<'_>> = rows
            .into_iter()
            .map(|row| ContextCosts { row, causes: causes(events, &row) })
            .collect();
        if !contexts.is_empty() {
            panels.push(CostPanel { title: panel_title(condition), contexts });
        }
    }
    let all_contexts = || panels.iter().flat_map(|panel| &panel.contexts);
    let is_divided = all_contexts().any(|context| context.causes.is_some());
    let Some(title) = title(table) else { return Ok(None) };
    let self_time = if is_divided {
        "Self time, divided by what its cycles were: executing, lost after mispredicted branches \
         (branch_stall_cycles) or otherwise in the pipeline (pipeline_stall_cycles) where a simulated \
         core counts these, waiting for instructions (stalled-cycles-frontend) or for data \
         (stalled-cycles-backend)."
    } else {
        "Self time: without the contexts nested within. This run has no counts of stalled \
         cycles, so that it is not divided by cause."
    };
    let has_intervals =
        all_contexts().any(|context| context.row.number("self_cpu_ci95_ratio").is_some());
    let whiskers = if has_intervals { " Whiskers: 95 % intervals of the share." } else { "" };
    let mut notes = vec![format!("{self_time}{whiskers}")];
    notes.extend(left_out(further_conditions, undrawn_count, "handlers"));
    let heading = Heading {
        title,
        notes,
        legend: legend(&panels, is_divided),
        description:
            "A bar for each context, as long as its share of CPU time. The numbers are in table \
                      handlers of the run."
                .to_owned(),
    };
    let panels: Vec<(String, Vec<Bar>)> = panels
        .into_iter()
        .map(|panel| {
            (panel.title, panel.contexts.iter().map(|context| bar(context, is_divided)).collect())
        })
        .collect();
    let axis = |longest| Axis::linear("share of CPU time", Quantity::Share, 0.0, longest);
    draw_panels(&heading, width, &panels, axis).map(Some)
}
