//! The picture `distribution` of `handlers`: the share of spans that are longer than a time, a curve for each
//! context, on logarithmic axes. The curves come from the run's histograms or, without histograms, from its
//! quantiles.

use std::collections::BTreeMap;

use record::{Run, Table};

use super::{conditions, context, is_sum, largest, not_drawn, panel_title, text};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, Label, Look, PATTERNS, room_for};
use crate::picture::palette::SERIES;
use crate::picture::rows;
use crate::picture::sheet::{Heading, Sheet, Undrawn, draw, units};
use crate::row::Row;

/// Maximum number of contexts of a panel.
const CONTEXTS_MAX: usize = 6;
/// Height of a panel, pixels.
const PANEL_HEIGHT: f64 = 340.0;
/// Columns of quantiles in table `handlers`, each with the share of spans that are longer.
const QUANTILES: [(&str, f64); 4] =
    [("self_p50_ns", 0.5), ("self_p90_ns", 0.1), ("self_p99_ns", 0.01), ("self_p999_ns", 0.001)];

/// The distribution of a context.
struct Curve {
    name: String,
    /// Times in ns, ascending, and the share of spans that are longer.
    points: Vec<(f64, f64)>,
    /// Whether each point gets a mark, because the curve comes from a few quantiles and not from a histogram.
    has_marks: bool,
}

/// The curve of a context: from its histogram, else from its quantiles. `None` if fewer than two points are known.
fn curve_of(row: &Row<'_>, histograms: Option<&Table>) -> Option<Curve> {
    let name = context(row);
    let from_histogram =
        histograms.map(|table| points_of_histogram(table, row)).unwrap_or_default();
    if from_histogram.len() > 1 {
        return Some(Curve { name, points: from_histogram, has_marks: false });
    }
    let count = row.number("count").filter(|count| *count > 1.0)?;
    let mut points: Vec<(f64, f64)> = QUANTILES
        .iter()
        .filter_map(|(column, share)| Some((row.number(column)?, *share)))
        .collect();
    points.extend(row.number("self_max_ns").map(|longest| (longest, 1.0 / count)));
    points.retain(|(time, _)| *time > 0.0);
    points.sort_by(|(time, share), (other_time, other_share)| {
        time.total_cmp(other_time).then(other_share.total_cmp(share))
    });
    // A curve must fall: keeps only points with a smaller share than all shorter times.
    let mut lowest_share = f64::INFINITY;
    points.retain(|(_, share)| {
        let falls = *share < lowest_share;
        lowest_share = lowest_share.min(*share);
        falls
    });
    (points.len() > 1).then_some(Curve { name, points, has_marks: true })
}

/// The end of each bucket in a context's histogram of self times, and the share of spans beyond this end.
fn points_of_histogram(table: &Table, context_row: &Row<'_>) -> Vec<(f64, f64)> {
    let keys = ["condition", "kind", "name"];
    let is_of_context = |row: &Row<'_>| {
        keys.iter().all(|key| text(row, key) == text(context_row, key))
            && row.get("number") == context_row.get("number")
            && text(row, "quantity") == "self"
    };
    let bucket = |row: Row<'_>| {
        Some((row.number("bucket_min")?, row.number("bucket_max")?, row.number("count")?))
    };
    let mut buckets: Vec<(f64, f64, f64)> =
        rows(table).filter(is_of_context).filter_map(bucket).collect();
    buckets.sort_by(|(low, ..), (other_low, ..)| low.total_cmp(other_low));
    let span_count: f64 = buckets.iter().map(|(.., count)| count).sum();
    let (mut later_count, mut points) = (span_count, Vec::new());
    for (low, high, count) in buckets {
        if points.is_empty() {
            points.push((low.max(1.0), 1.0));
        }
        later_count -= count;
        // No span is longer than the last bucket. A logarithmic axis has no zero, so the share of half a span is drawn.
        let share = if later_count > 0.0 { later_count / span_count } else { 0.5 / span_count };
        points.push((high.max(1.0), share));
    }
    points
}

/// The looks of contexts by name, the same in all panels. `panels`: the names in each panel. As far as the colours
/// suffice, contexts of one panel differ in colour.
fn looks_of(panels: &[Vec<&str>]) -> BTreeMap<String, Look> {
    let mut colours: BTreeMap<&str, usize> = BTreeMap::new();
    let mut looks = BTreeMap::new();
    for name in panels.iter().flatten() {
        if colours.contains_key(name) {
            continue;
        }
        let shares_a_panel = |context: &str| {
            panels.iter().any(|panel| panel.contains(name) && panel.contains(&context))
        };
        // How many contexts have a colour: in the same panels, and in all.
        let uses = |colour: usize| {
            let users = || colours.iter().filter(move |(_, used)| **used == colour);
            (users().filter(|(context, _)| shares_a_panel(context)).count(), users().count())
        };
        let colour = (0..SERIES.len()).min_by_key(|colour| uses(*colour)).unwrap_or(0);
        // Contexts of one colour differ in the pattern.
        let (_, use_count) = uses(colour);
        let pattern = (colour + use_count) % PATTERNS;
        colours.insert(name, colour);
        looks.insert((*name).to_owned(), Look { colour: SERIES[colour], pattern });
    }
    looks
}

/// The curves of a condition in a panel.
struct Panel {
    title: String,
    curves: Vec<Curve>,
}

/// The range of all points of the picture: times in ns, and shares.
struct Extent {
    time_low: f64,
    time_high: f64,
    share_low: f64,
}

/// The extent of the curves. Without points, the low ends are infinite.
fn extent(panels: &[Panel]) -> Extent {
    let mut extent = Extent { time_low: f64::INFINITY, time_high: 0.0, share_low: f64::INFINITY };
    for (time, share) in
        panels.iter().flat_map(|panel| &panel.curves).flat_map(|curve| &curve.points)
    {
        extent.time_low = extent.time_low.min(*time);
        extent.time_high = extent.time_high.max(*time);
        extent.share_low = extent.share_low.min(*share);
    }
    extent
}

/// The title, with the longest span of all contexts, drawn or not. A histogram has only the end of the last bucket.
fn title(table: &Table) -> String {
    let longest = rows(table)
        .filter(|row| is_sum(table, row))
        .filter_map(|row| Some((context(&row), row.number("self_max_ns")?)))
        .filter(|(_, time)| *time > 0.0)
        .reduce(|longest, other| if other.1 > longest.1 { other } else { longest });
    let end = longest.map_or(String::new(), |(name, time)| {
        format!(": {name} has the longest span ({})", Quantity::Time.text(time))
    });
    format!("How long each context takes{end}")
}

/// The picture of self times. `None` for a run without self times.
pub fn distribution(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("handlers") else { return Ok(None) };
    let histograms = run.table("histograms").filter(|table| !table.rows().is_empty());
    let (conditions, further_conditions) = conditions(table);
    let (mut panels, mut undrawn_contexts) = (Vec::new(), 0);
    for condition in &conditions {
        let contexts = largest(table, condition, "self_total_ns");
        let curves: Vec<Curve> = contexts
            .iter()
            .filter_map(|row| curve_of(row, histograms))
            .take(CONTEXTS_MAX)
            .collect();
        // Contexts beyond the panel's maximum, and contexts with too few spans for a curve.
        undrawn_contexts += contexts.len() - curves.len();
        if !curves.is_empty() {
            panels.push(Panel { title: panel_title(condition), curves });
        }
    }
    if panels.is_empty() {
        return Ok(None);
    }
    let extent = extent(&panels);
    let has_marks = panels.iter().flat_map(|panel| &panel.curves).any(|curve| curve.has_marks);
    let source = if has_marks {
        "Points: p50, p90, p99, p99.9 and the longest span, joined by lines. With --histograms, a run \
         has the whole distribution."
    } else {
        "From the histograms: 16 buckets per doubling."
    };
    let mut notes = vec![source.to_owned()];
    notes.extend(not_drawn(
        &[(further_conditions, "conditions"), (undrawn_contexts, "contexts")],
        "handlers",
    ));
    let heading = Heading {
        title: title(table),
        notes,
        description:
            "A falling curve for each context: the share of its spans that are longer than a self \
                      time. The numbers are in table handlers of the run."
                .to_owned(),
        ..Heading::default()
    };
    let x =
        Axis::logarithmic("self time of a span", Quantity::Time, extent.time_low, extent.time_high);
    let share_title = "share of spans that are longer";
    let y = Axis::logarithmic(share_title, Quantity::Share, extent.share_low, 1.0);
    let names_of = |panel: &Panel| -> Vec<String> {
        panel.curves.iter().map(|curve| curve.name.clone()).collect()
    };
    let owned_names: Vec<Vec<String>> = panels.iter().map(names_of).collect();
    let names_of_panels: Vec<Vec<&str>> =
        owned_names.iter().map(|names| names.iter().map(String::as_str).collect()).collect();
    let looks = looks_of(&names_of_panels);
    // All plots are equally wide.
    let right = room_for(looks.keys().map(String::as_str));
    let sheet = draw(&heading, width, PANEL_HEIGHT * panels.len() as f64, |area| {
        for (index, Panel { title, curves }) in panels.iter().enumerate() {
            let panel_area = area.part(
                (0, units(PANEL_HEIGHT) * index as i32),
                (units(width) as u32, units(PANEL_HEIGHT) as u32),
            );
            let mut chart = Chart::new(&panel_area, title, [&x, &y], right)?;
            let mut labels = Vec::new();
            for curve in curves {
                let Some(look) = looks.get(&curve.name).copied() else { continue };
                chart.line(&curve.points, look, 1.8)?;
                if curve.has_marks {
                    for point in &curve.points {
                        chart.mark(*point, look, false)?;
                    }
                }
                let end = curve.points[curve.points.len() - 1];
                labels.push(Label { name: curve.name.clone(), colour: look.colour, end });
            }
            chart.label_ends(&labels)?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_has_one_look_in_all_panels() {
        let all = looks_of(&[vec!["RCU", "SCHED", "timer"], vec!["SCHED", "disk", "net"]]);
        assert_eq!(all["SCHED"], Look { colour: SERIES[1], pattern: 1 });
        let colours: Vec<_> =
            ["RCU", "SCHED", "timer", "disk", "net"].map(|name| all[name].colour).into();
        assert_eq!(colours, SERIES[..5]);
        // The seventh context takes the colour of a context that is not in its panel.
        let first: Vec<&str> = "a b c d e f".split(' ').collect();
        let all = looks_of(&[first, vec!["a", "b", "g"]]);
        assert_eq!(all["g"], Look { colour: SERIES[2], pattern: 3 });
        assert_eq!(all["c"], Look { colour: SERIES[2], pattern: 2 });
    }
}
