//! The picture `callbacks` of `handlers --callbacks`: the time of the timer interrupt and of softirqs, divided among the
//! functions that they call. A panel has a bar for each function of a context, and a bar for the context itself.

use std::cmp::Ordering;

use plotters::style::RGBColor;
use record::{Run, Table};

use super::{all_conditions, largest, not_drawn, panel_title, text};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::bars::{Bar, draw_panels};
use crate::picture::palette::{BLUE, GREY, PALE};
use crate::picture::sheet::{Entry, Heading, Sheet, Undrawn};
use crate::row::Row;

/// Maximum number of panels.
const PANELS_MAX: usize = 12;
/// Maximum number of functions of a panel. Further functions share a bar.
const FUNCTIONS_MAX: usize = 8;
/// The largest share of the functions' time that may be missing in the time that is nested in their parents: both are
/// known only to the probes' overhead.
const MISSING_RATIO_MAX: f64 = 0.1;

const TIME: &str = "self_total_ns";
const MEAN: &str = "self_mean_ns";

/// The functions of one kind, and the contexts that may call them.
struct Family {
    /// Value of column `kind` of the functions.
    kind: &'static str,
    /// Kind and name of each context that calls such functions.
    parents: &'static [(&'static str, &'static str)],
    /// Name of the functions if no parent is known.
    name_without_parent: &'static str,
}

const FAMILIES: [Family; 3] = [
    Family {
        kind: "hrtimer",
        parents: &[("vector", "local_timer"), ("softirq", "HRTIMER")],
        name_without_parent: "high-resolution timers",
    },
    Family { kind: "timer", parents: &[("softirq", "TIMER")], name_without_parent: "timers" },
    Family {
        kind: "tasklet",
        parents: &[("softirq", "TASKLET"), ("softirq", "HI")],
        name_without_parent: "tasklets",
    },
];

/// A part of a parent's time.
struct Part {
    name: String,
    colour: RGBColor,
    time_ns: f64,
    /// Spans and their mean time, in words.
    detail: String,
}

/// The time of a family's parents in a condition, and its parts.
struct Division {
    condition: String,
    /// The parents' names; without a parent, the functions' name.
    divided_name: String,
    certainty: Certainty,
    /// The largest first; then the parents' self time.
    parts: Vec<Part>,
    /// Functions and parents whose mean is below the detection limit.
    below_limit: usize,
}

/// Whether the table says which context calls the functions of a family.
#[derive(Clone, Copy, PartialEq)]
enum Certainty {
    /// Only one context can call them.
    OneParent,
    /// Several contexts ran that can call them.
    SeveralParents,
    /// No context is known to have called them all.
    NoParent,
}

impl Division {
    fn time_ns(&self) -> f64 {
        self.parts.iter().map(|part| part.time_ns).sum()
    }

    /// The largest function, or `None` if all functions share a bar.
    fn largest_function(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.colour == BLUE)
    }
}

fn is_below_limit(row: &Row<'_>) -> bool {
    row.bound_below_limit(MEAN).is_some()
}

/// The part of a parent's time that the row is. `None` below the detection limit.
fn part(row: &Row<'_>, name: String, colour: RGBColor) -> Option<Part> {
    let time_ns = row.number(TIME).filter(|time| *time > 0.0 && !is_below_limit(row))?;
    let count = human::count(row.number("count").unwrap_or(0.0) as u64);
    let mean = human::ns(row.number(MEAN).unwrap_or(0.0));
    Some(Part { name, colour, time_ns, detail: format!(": {count} × {mean}") })
}

/// The time that is nested in the spans of a context, ns. `None` if the row lacks a mean or the count.
fn nested_ns(row: &Row<'_>) -> Option<f64> {
    let nested_mean = row.number("inclusive_mean_ns")? - row.number(MEAN)?;
    Some(nested_mean * row.number("count")?)
}

/// The functions, the largest first. The functions beyond [`FUNCTIONS_MAX`] are one part.
fn function_parts(mut functions: Vec<Part>) -> Vec<Part> {
    if functions.len() <= FUNCTIONS_MAX {
        return functions;
    }
    let others = functions.split_off(FUNCTIONS_MAX);
    let time_ns = others.iter().map(|part| part.time_ns).sum();
    let name = format!("{} others", others.len());
    functions.push(Part { name, colour: PALE, time_ns, detail: String::new() });
    functions
}

/// The division of a family in a condition. `None` if the family has no function above the detection limit.
fn division(table: &Table, condition: &str, family: &Family) -> Option<Division> {
    let spans = largest(table, condition, "count");
    let of_kind = |row: &&Row<'_>| text(row, "kind") == family.kind;
    let functions: Vec<&Row<'_>> = spans.iter().filter(of_kind).collect();
    let is_parent = |row: &&Row<'_>| {
        family
            .parents
            .iter()
            .any(|(kind, name)| row.has_text("kind", kind) && row.has_text("name", name))
    };
    let parents: Vec<&Row<'_>> = spans.iter().filter(is_parent).collect();
    let mut parts: Vec<Part> =
        functions.iter().filter_map(|row| part(row, text(row, "name"), BLUE)).collect();
    parts.sort_by(|first, second| second.time_ns.total_cmp(&first.time_ns));
    let functions_ns: f64 = parts.iter().map(|part| part.time_ns).sum();
    let nested_ns: Option<f64> = parents.iter().map(|row| nested_ns(row)).sum();
    let fits = nested_ns.is_none_or(|nested| nested >= functions_ns * (1.0 - MISSING_RATIO_MAX));
    let certainty = match parents.len() {
        0 => Certainty::NoParent,
        _ if !fits => Certainty::NoParent,
        1 => Certainty::OneParent,
        _ => Certainty::SeveralParents,
    };
    let mut below_limit = functions.iter().filter(|row| is_below_limit(row)).count();
    let mut parts = function_parts(parts);
    if parts.is_empty() {
        return None;
    }
    let mut divided_name = family.name_without_parent.to_owned();
    if certainty != Certainty::NoParent {
        let names: Vec<String> = parents.iter().map(|row| text(row, "name")).collect();
        divided_name = names.join(" and ");
        below_limit += parents.iter().filter(|row| is_below_limit(row)).count();
        let itself = |row: &&Row<'_>| part(row, format!("{} itself", text(row, "name")), GREY);
        parts.extend(parents.iter().filter_map(itself));
    }
    Some(Division { condition: condition.to_owned(), divided_name, certainty, parts, below_limit })
}

/// The bars of a division: each part's share of the divided time.
fn bars(division: &Division) -> Vec<Bar> {
    let whole_ns = division.time_ns();
    let bar = |part: &Part| {
        let share = part.time_ns / whole_ns;
        Bar {
            name: part.name.clone(),
            parts: vec![(share, part.colour)],
            interval: None,
            label: human::percent(share),
            detail: part.detail.clone(),
        }
    };
    division.parts.iter().map(bar).collect()
}

/// The share of the largest function in the time of its parents and their functions, in words. `None` without a function.
fn finding(division: &Division) -> Option<String> {
    let function = division.largest_function()?;
    let functions =
        if division.certainty == Certainty::NoParent { "" } else { " and its functions" };
    let share = human::percent(function.time_ns / division.time_ns());
    Some(format!(
        "{} takes {share} of the time of {}{functions}",
        function.name, division.divided_name
    ))
}

/// The largest function's share of the time of a context and its functions, in words. `None` if the table does not say
/// which functions the context calls.
pub fn largest_function_of(table: &Table, context: &Row<'_>) -> Option<String> {
    let (kind, name) = (text(context, "kind"), text(context, "name"));
    let is_parent = |family: &&Family| family.parents.contains(&(kind.as_str(), name.as_str()));
    let family = FAMILIES.iter().find(is_parent)?;
    let division = division(table, &text(context, "condition"), family)?;
    if division.certainty == Certainty::OneParent { finding(&division) } else { None }
}

/// The finding of the division with the largest function. `None` if no division has a function.
fn title(divisions: &[Division]) -> Option<String> {
    let time_ns = |division: &&Division| division.largest_function().map(|part| part.time_ns);
    let division = divisions.iter().max_by(|first, second| {
        time_ns(first).partial_cmp(&time_ns(second)).unwrap_or(Ordering::Equal)
    })?;
    Some(format!("{} ({})", finding(division)?, panel_title(&division.condition)))
}

fn notes(divisions: &[Division], drawn_count: usize) -> Vec<String> {
    let mut notes = vec![
        "Self times: without interrupts that came in the middle. The parts of each panel add up to 100 %.".to_owned(),
    ];
    let has = |certainty| divisions.iter().any(|division| division.certainty == certainty);
    if has(Certainty::SeveralParents) {
        notes.push(
            "Where a panel has two contexts, the table does not say which of them called a function.".to_owned(),
        );
    }
    if has(Certainty::NoParent) {
        notes.push(
            "Where a panel has functions only, the table does not say which context called them all."
                .to_owned(),
        );
    }
    let below_limit = divisions.iter().map(|division| division.below_limit).sum();
    notes.extend(not_drawn(
        &[
            (divisions.len() - drawn_count, "panels with the least time"),
            (
                below_limit,
                "functions or contexts below the detection limit, whose time is in no share",
            ),
        ],
        "handlers",
    ));
    notes
}

/// The picture of the functions in table `handlers`. `None` for a run without functions.
pub fn callbacks(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("handlers") else { return Ok(None) };
    let mut divisions: Vec<Division> = all_conditions(table)
        .iter()
        .flat_map(|condition| FAMILIES.iter().map(move |family| (condition, family)))
        .filter_map(|(condition, family)| division(table, condition, family))
        .collect();
    divisions.sort_by(|first, second| second.time_ns().total_cmp(&first.time_ns()));
    let Some(title) = title(&divisions) else { return Ok(None) };
    let drawn = &divisions[..divisions.len().min(PANELS_MAX)];
    let legend = [("function", BLUE), ("further functions", PALE), ("the context itself", GREY)]
        .into_iter()
        .filter(|(_, colour)| {
            drawn.iter().flat_map(|division| &division.parts).any(|part| part.colour == *colour)
        })
        .map(|(name, colour)| Entry { name: name.to_owned(), colour });
    let heading = Heading {
        title,
        notes: notes(&divisions, drawn.len()),
        legend: legend.collect(),
        description: "A panel for each context that calls functions, with a bar for each function: its share of the \
                      time. The numbers are in table handlers of the run."
            .to_owned(),
    };
    let panels: Vec<(String, Vec<Bar>)> = drawn
        .iter()
        .map(|division| {
            let title = format!(
                "{}: {}, {}",
                division.divided_name,
                human::ns(division.time_ns()),
                panel_title(&division.condition)
            );
            (title, bars(division))
        })
        .collect();
    let axis = |longest| Axis::linear("share of the panel's time", Quantity::Share, 0.0, longest);
    draw_panels(&heading, width, &panels, axis).map(Some)
}

#[cfg(test)]
mod tests {
    use record::{Columns, column};

    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{golden, run_of};

    /// A context or function with its number of spans, its mean self time, and the mean time nested in it, ns.
    #[derive(Clone, Copy)]
    struct Spans {
        kind: &'static str,
        name: &'static str,
        count: u64,
        mean_ns: f64,
        nested_mean_ns: f64,
        is_below_limit: bool,
    }

    fn spans(kind: &'static str, name: &'static str, count: u64, mean_ns: f64) -> Spans {
        Spans { kind, name, count, mean_ns, nested_mean_ns: 0.0, is_below_limit: false }
    }

    fn around(parent: Spans, nested_mean_ns: f64) -> Spans {
        Spans { nested_mean_ns, ..parent }
    }

    fn run(spans: &[Spans]) -> Run {
        let columns: Columns<'_, Spans> = Columns::all([
            column("condition", "").key().text(|_: &Spans| "ambient"),
            column("kind", "").key().text(|spans: &Spans| spans.kind),
            column("name", "").key().text(|spans: &Spans| spans.name),
            column("count", "").uint(|spans: &Spans| spans.count),
            column(MEAN, "")
                .plus_minus("self_mean_ci95_ns")
                .below_limit("self_mean_below_limit")
                .real(|spans: &Spans| spans.mean_ns),
            column("self_mean_ci95_ns", "").real(|_: &Spans| 10.0),
            column("self_mean_below_limit", "").bool(|spans: &Spans| spans.is_below_limit),
            column(TIME, "").uint(|spans: &Spans| (spans.count as f64 * spans.mean_ns) as u64),
            column("inclusive_mean_ns", "")
                .real(|spans: &Spans| spans.mean_ns + spans.nested_mean_ns),
        ]);
        run_of(vec![columns.table("handlers", "", spans.iter().copied())])
    }

    fn drawn(spans: &[Spans]) -> Sheet {
        callbacks(&run(spans), WIDTH).unwrap().expect("a picture")
    }

    /// 1,000 timer interrupts: 1 ms themselves, 3 ms in the tick and 1 ms in other functions.
    fn timer_interrupts() -> Vec<Spans> {
        let mut all = vec![
            around(spans("vector", "local_timer", 1_000, 1_000.0), 4_000.0),
            spans("hrtimer", "tick_sched_timer", 600, 5_000.0),
            spans("hrtimer", "hrtimer_wakeup", 100, 6_000.0),
        ];
        let names = ["a<b>", "b", "c", "d", "e", "f", "g", "h"];
        all.extend(names.map(|name| spans("hrtimer", name, 10, 5_000.0)));
        all
    }

    #[test]
    fn the_title_names_the_function_with_the_largest_share_of_its_parent() {
        let mut all = timer_interrupts();
        all.push(around(spans("softirq", "TIMER", 50, 400.0), 600.0));
        all.push(spans("timer", "process_timeout", 50, 600.0));
        golden("callbacks", callbacks(&run(&all), WIDTH));
        golden("callbacks_narrow", callbacks(&run(&all), NARROW));
        let title = drawn(&all).heading.title;
        assert!(
            title.starts_with("tick_sched_timer takes 60.0 % of the time of local_timer"),
            "{title}"
        );
        let without_functions = run(&[spans("vector", "local_timer", 9, 9.0)]);
        assert_eq!(callbacks(&without_functions, WIDTH).unwrap(), None);
    }

    #[test]
    fn functions_that_two_contexts_may_have_called_are_divided_among_both_together() {
        let mut all = timer_interrupts();
        all.push(around(spans("softirq", "HRTIMER", 10, 1_000.0), 100.0));
        let heading = drawn(&all).heading;
        assert!(heading.title.contains("local_timer and HRTIMER"), "{}", heading.title);
        assert!(heading.notes.iter().any(|note| note.contains("which of them called")));
    }

    #[test]
    fn functions_without_a_certain_parent_are_divided_among_themselves() {
        let certain = drawn(&timer_interrupts()).heading.title;
        let mut all = timer_interrupts();
        // The functions take 4 ms, and only 2 ms are nested in the interrupt.
        all[0].nested_mean_ns = 2_000.0;
        let uncertain = drawn(&all).heading;
        assert_ne!(uncertain.title, certain);
        assert!(uncertain.title.contains("75.0 % of the time of high-resolution timers"));
        assert!(uncertain.notes.iter().any(|note| note.contains("which context called")));
        let without_parent = drawn(&all[1..]).heading;
        assert_eq!(without_parent, uncertain);
    }

    #[test]
    fn a_row_below_the_detection_limit_has_no_share_and_is_counted() {
        let mut all = timer_interrupts();
        all[0].is_below_limit = true;
        let heading = drawn(&all).heading;
        assert!(heading.title.starts_with("tick_sched_timer takes 75.0 % "), "{}", heading.title);
        assert!(heading.notes.iter().any(|note| note.contains("1 functions or contexts below")));
    }
}
