//! The picture `services`: each service's share of the kernel's time, a bar divided by the causes of its cycles.

use record::Run;

use super::{LegendPart, legend, panel_title, panel_titles, text};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::bars::{Bar, draw_panels};
use crate::picture::causes::{self, CAUSES};
use crate::picture::palette::GREY;
use crate::picture::rows;
use crate::picture::sheet::{Heading, Sheet, Undrawn};
use crate::row::Row;

/// Maximum number of services of a machine.
const SERVICES_MAX: usize = 12;
/// The legend's entry for a service whose cycles are not known.
const NOT_DIVIDED: LegendPart = ("time, not divided", GREY);

/// The bar of a service. It is divided if the cycles and stalls of its instructions are known.
fn bar(row: &Row<'_>) -> Bar {
    let share = row.number("kernel_ratio").unwrap_or(0.0);
    let cycles_per_instruction = row.number("cpi_ratio").filter(|cycles| *cycles > 0.0);
    let share_of_cycles =
        |column: &str| Some((row.number(column)? / cycles_per_instruction?).clamp(0.0, 1.0));
    let waits = share_of_cycles("fetch_mcpi_ratio").zip(share_of_cycles("data_mcpi_ratio"));
    let self_cycles = row.number("self_cycles").filter(|cycles| *cycles > 0.0);
    let share_of_self = |column: &str| Some(row.number(column)? / self_cycles?);
    let pipeline = share_of_self("self_pipeline_stall_cycles")
        .zip(share_of_self("self_branch_stall_cycles"))
        .map(|(stalls, branches)| [stalls, branches]);
    let causes = waits.and_then(|(fetch, data)| causes::divided([fetch, data], pipeline));
    let (_, not_divided_colour) = NOT_DIVIDED;
    let parts = match causes {
        Some(causes) => causes.iter().map(|(part, (_, colour))| (share * part, *colour)).collect(),
        None => vec![(share, not_divided_colour)],
    };
    let label = human::percent(share);
    let mean = row.number("computation_mean_ns").zip(row.number("request_rate_hz"));
    let detail = mean
        .map(|(mean, rate)| format!(": {} × {}", human::ns(mean), human::rate(rate)))
        .unwrap_or_default();
    // A system call is known by its name alone. Other services, such as `minor`, also need their class.
    let name = match text(row, "class").as_str() {
        "" | "syscall" => text(row, "service"),
        class => format!("{class} {}", text(row, "service")),
    };
    Bar { name, parts, interval: None, label, detail }
}

/// The picture of table `services`, `width` pixels wide. `None` for a run without shares of the kernel's time above 0.
pub fn services(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("services").filter(|table| table.column("kernel_ratio").is_some())
    else {
        return Ok(None);
    };
    let (titles, not_drawn) = panel_titles(table);
    let mut panels = Vec::new();
    for title in titles {
        let size = |row: &Row<'_>| row.number("kernel_ratio").unwrap_or(0.0);
        let mut services: Vec<Row<'_>> =
            rows(table).filter(|row| panel_title(row) == title && size(row) > 0.0).collect();
        services.sort_by(|a, b| size(b).total_cmp(&size(a)));
        services.truncate(SERVICES_MAX);
        let bars: Vec<Bar> = services.iter().map(bar).collect();
        if !bars.is_empty() {
            panels.push((title, bars));
        }
    }
    let Some((first_title, bars)) = panels.first() else { return Ok(None) };
    let Some(longest_bar) = bars.first() else { return Ok(None) };
    // The title is about the first panel only. Panels of several machines have names.
    let machine = if panels.len() > 1 { format!(" ({first_title})") } else { String::new() };
    let mut notes = vec![format!(
        "Time of a service itself, without what interrupted it or was nested in it; the largest {SERVICES_MAX} \
         of each."
    )];
    notes.extend(not_drawn);
    let heading = Heading {
        title: format!(
            "The kernel's services{machine}: {} takes {} of its time",
            longest_bar.name, longest_bar.label
        ),
        notes,
        legend: legend(&[&CAUSES[..], &[NOT_DIVIDED]].concat(), &panels),
        description: "A bar for each service, as long as its share of the kernel's time. The numbers are in table \
                      services of the run."
            .to_owned(),
    };
    draw_panels(&heading, width, &panels, |longest| {
        Axis::linear("share of the kernel's time", Quantity::Share, 0.0, longest)
    })
    .map(Some)
}
