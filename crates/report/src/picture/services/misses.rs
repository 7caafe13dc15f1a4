//! The picture `cache-misses` of `reproduce simos-1995`: misses per 1,000 instructions, by size of the cache, mode and
//! class. A panel of bars for each workload and cache.

use record::{Run, Table};

use super::{LegendPart, distinct, legend, sum_text, text};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::bars::{Bar, draw_panels};
use crate::picture::palette::{BLACK, BLUE, GREEN, GREY, ORANGE, PALE, PURPLE, SKY, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::{Heading, Sheet, Undrawn};
use crate::row::Row;

/// The parts of a bar: legend, mode (empty: any mode), and the classes of misses that the part adds up.
const PARTS: [(LegendPart, &str, &[&str]); 9] = [
    (("user: own lines", BLUE), "user", &["self"]),
    (("user: evicted by others", SKY), "user", &["other"]),
    (("kernel: own lines", VERMILION), "kernel", &["self"]),
    (("kernel: evicted by others", ORANGE), "kernel", &["other"]),
    (("kernel: coherence", PURPLE), "kernel", &["true sharing", "false sharing"]),
    (("user: coherence", GREEN), "user", &["true sharing", "false sharing"]),
    (("upgrades", BLACK), "", &["upgrade"]),
    (("cold", PALE), "", &["cold"]),
    (("devices, unknown", GREY), "", &["device", "untracked"]),
];

/// The sizes of caches in a table, each with a text. Different sizes have different texts, because a bar adds up the rows
/// with its name.
fn sizes(table: &Table) -> Vec<(f64, String)> {
    let mut sizes: Vec<f64> = Vec::new();
    for size in rows(table).filter_map(|row| row.number("cache_bytes")) {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    let texts = Quantity::Size.distinct_texts(&sizes);
    sizes.into_iter().zip(texts).collect()
}

/// The bar of a size of the cache: the misses per 1,000 instructions of each of [`PARTS`] that has any. `rows`: its misses by
/// mode and class.
fn bar(name: String, rows: &[&Row<'_>]) -> Bar {
    let rate = |row: &&Row<'_>| row.number("misses_per_kinstruction");
    let part = |((_, colour), mode, classes): &(LegendPart, &str, &[&str])| {
        let is_in_part = |row: &&&Row<'_>| {
            (mode.is_empty() || text(row, "mode") == *mode)
                && classes.contains(&text(row, "class").as_str())
        };
        let rates = rows.iter().filter(is_in_part).filter_map(rate);
        Some((rates.reduce(|sum, rate| sum + rate)?, *colour))
    };
    let parts: Vec<_> = PARTS.iter().filter_map(part).collect();
    let is_known = rows.iter().all(|row| rate(row).is_some());
    let label = sum_text(&parts, is_known);
    Bar { name, parts, interval: None, label, detail: String::new() }
}

/// The picture of table `cache_misses`. `None` for a run without this table.
pub fn cache_misses(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("cache_misses") else { return Ok(None) };
    let title = |row: &Row<'_>| format!("{}, {}", text(row, "workload"), text(row, "cache"));
    let sizes = sizes(table);
    let name = |row: &Row<'_>| {
        let cpus = row.number("cpus").unwrap_or(1.0);
        let bytes = row.number("cache_bytes");
        let known_size = sizes.iter().find(|(size, _)| Some(*size) == bytes);
        let size = known_size.map_or(human::ABSENT, |(_, text)| text);
        if cpus > 1.0 { format!("{size}, {cpus:.0} CPUs") } else { size.to_owned() }
    };
    let panel = |panel_title: String| {
        let panel_rows: Vec<Row<'_>> =
            rows(table).filter(|row| title(row) == panel_title).collect();
        let bar_names = distinct(panel_rows.iter().map(name));
        let bars = bar_names.into_iter().map(|bar_name| {
            let bar_rows: Vec<&Row<'_>> =
                panel_rows.iter().filter(|row| name(row) == bar_name).collect();
            bar(bar_name, &bar_rows)
        });
        (panel_title, bars.collect())
    };
    let titles = distinct(rows(table).map(|row| title(&row)));
    let panels: Vec<(String, Vec<Bar>)> = titles.into_iter().map(panel).collect();
    if panels.is_empty() {
        return Ok(None);
    }
    let parts = PARTS.map(|(part, ..)| part);
    let heading = Heading {
        title: "Misses by size of the cache and by why the line was absent".to_owned(),
        notes: vec![
            "Per 1,000 instructions, idle time left out. Own lines: the same program, or the kernel itself, had \
             evicted them."
                .to_owned(),
        ],
        legend: legend(&parts, &panels),
        description: "A bar for each size of a cache, divided by mode and class. The numbers are in table \
                      cache_misses of the run."
            .to_owned(),
    };
    draw_panels(&heading, width, &panels, |longest| {
        Axis::linear("misses per 1,000 instructions", Quantity::Count, 0.0, longest)
    })
    .map(Some)
}
