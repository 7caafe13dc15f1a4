//! The picture `timeline` of `noise`, with two panels for each CPU. The upper panel has the share of lost time by cause
//! over the whole window. The lower panel has single detours around the longest one.
//!
//! The shares are exact sums. Single detours come from a sample, which always has the longest.

use std::collections::BTreeSet;

use plotters::style::Color;
use record::{Run, Table};

use super::causes::{Causes, KINDS, NO_CAUSE, OTHER_CAUSES, colour, cpus, name_in};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::bars::{OWN_SCALES, shared_maximum};
use crate::picture::chart::{Chart, room_for, room_for_names};
use crate::picture::rows;
use crate::picture::sheet::{Area, Heading, Sheet, Undrawn, draw, shortened, units};

/// Maximum number of CPUs of the picture.
const CPUS_MAX: usize = 8;
/// Number of bars of the upper panel, which shows the whole window.
const BARS: usize = 200;
/// Height of the upper panel, pixels.
const OVERVIEW_HEIGHT: f64 = 230.0;
/// Height of a line of the lower panel, pixels.
const LINE_HEIGHT: f64 = 22.0;
/// Height of the parts of the lower panel above and below its lines, pixels.
const FRAME_HEIGHT: f64 = 84.0;
/// The lower panel covers this multiple of the longest detour's length, and at least [`CLOSE_UP_MIN_NS`].
const CLOSE_UP_LENGTHS: f64 = 8.0;
/// Minimum time that the lower panel covers, ns.
const CLOSE_UP_MIN_NS: f64 = 20e6;
/// Number of cells along a line of the lower panel. Detours closer than half a cell are drawn as one block.
const CELLS: usize = 700;

/// A single detour, with the cause that took most of it.
struct Detour {
    from_ns: f64,
    to_ns: f64,
    cause: Option<String>,
}

/// The time that a cause took in an interval of the window.
struct LostTime {
    from_ns: f64,
    to_ns: f64,
    cause: Option<String>,
    lost_ns: f64,
}

/// The drawn detours and lost times of a CPU.
struct CpuTimeline {
    name: String,
    detours: Vec<Detour>,
    lost: Vec<LostTime>,
}

impl CpuTimeline {
    fn new(run: &Run, cpu: String) -> CpuTimeline {
        let detours = detours(run, &cpu);
        let lost = match run.table("lost_time") {
            Some(table) => lost_times(table, &cpu),
            // A run of an older version has only single detours.
            None => detours.iter().map(LostTime::from_detour).collect(),
        };
        CpuTimeline { name: cpu, detours, lost }
    }
}

impl LostTime {
    fn from_detour(detour: &Detour) -> LostTime {
        let &Detour { from_ns, to_ns, ref cause } = detour;
        LostTime { from_ns, to_ns, cause: cause.clone(), lost_ns: to_ns - from_ns }
    }
}

/// The recorded single detours of a CPU: the random sample, and the longest detours if the sample lacks them. A detour of both
/// tables is taken once.
fn detours(run: &Run, cpu: &str) -> Vec<Detour> {
    let mut cpu_detours: Vec<Detour> = Vec::new();
    let mut seen_starts = BTreeSet::new();
    for table in [run.table("detours"), run.table("longest")].into_iter().flatten() {
        for row in rows(table).filter(|row| row.value_text("cpu") == cpu) {
            let times = row.number("start_ns").zip(row.number("length_ns"));
            if let Some((from_ns, length_ns)) = times
                && seen_starts.insert(from_ns.to_bits())
            {
                let cause = name_in(&row, "largest_name");
                cpu_detours.push(Detour { from_ns, to_ns: from_ns + length_ns, cause });
            }
        }
    }
    cpu_detours
}

/// The rows of table `lost_time` for a CPU.
fn lost_times(table: &Table, cpu: &str) -> Vec<LostTime> {
    let cpu_rows = rows(table).filter(|row| row.value_text("cpu") == cpu);
    let lost = cpu_rows.filter_map(|row| {
        Some(LostTime {
            from_ns: row.number("start_ns")?,
            to_ns: row.number("end_ns")?,
            cause: name_in(&row, "name"),
            lost_ns: row.number("lost_ns")?,
        })
    });
    lost.collect()
}

/// The longest detour of all CPUs, drawn or not.
struct LongestDetour {
    cpu: String,
    length_ns: f64,
    /// The cause of the largest part of the detour. `None` if the run names none.
    cause: Option<String>,
}

impl LongestDetour {
    /// Table `noise` has the exact maximum of each CPU. The tables of single detours have the causes, but a run of an older
    /// version recorded only a sample. `None` for a run without detours.
    fn of_run(run: &Run) -> Option<LongestDetour> {
        let sources =
            [("longest", "length_ns"), ("detours", "length_ns"), ("noise", "detour_max_ns")];
        let detours_of_sources = sources.into_iter().flat_map(|(table, length)| {
            let table_rows = run.table(table).into_iter().flat_map(rows);
            table_rows.filter_map(move |row| {
                let cause = name_in(&row, "largest_name");
                Some(LongestDetour {
                    cpu: row.value_text("cpu"),
                    length_ns: row.number(length)?,
                    cause,
                })
            })
        });
        // Of equally long detours, the first source has the cause.
        detours_of_sources.reduce(
            |longest, other| if other.length_ns > longest.length_ns { other } else { longest },
        )
    }

    /// The end of the title, such as "the longest detour took 2 ms, largest cause tick". Names the CPU if it is not drawn.
    fn in_words(&self, is_drawn: bool) -> String {
        let length = Quantity::Time.text(self.length_ns);
        let cause =
            self.cause.as_ref().map_or(String::new(), |cause| format!(", largest cause {cause}"));
        let cpu =
            if is_drawn { String::new() } else { format!(", on CPU {} (not drawn)", self.cpu) };
        format!("the longest detour took {length}{cause}{cpu}")
    }
}

/// The kinds of causes that a picture has, by kind.
fn used_kinds(timelines: &[CpuTimeline], causes: &Causes) -> [bool; KINDS] {
    let mut is_used = [false; KINDS];
    for timeline in timelines {
        let detour_causes = timeline.detours.iter().map(|detour| detour.cause.as_deref());
        let lost_causes = timeline.lost.iter().map(|lost| lost.cause.as_deref());
        for cause in detour_causes.chain(lost_causes) {
            is_used[causes.kind(cause)] = true;
        }
    }
    is_used
}

/// The note that only some detours were recorded singly. `None` if all were.
fn recorded_note(run: &Run, timelines: &[CpuTimeline]) -> Option<String> {
    let recorded_count = timelines.iter().map(|timeline| timeline.detours.len()).sum::<usize>();
    let is_drawn = |cpu: &str| timelines.iter().any(|timeline| timeline.name == cpu);
    let detour_count: f64 = run
        .table("noise")
        .into_iter()
        .flat_map(rows)
        .filter(|row| is_drawn(&row.value_text("cpu")))
        .filter_map(|row| row.number("detour_count"))
        .sum();
    if detour_count <= recorded_count as f64 {
        return None;
    }
    let has_lost_time = run.table("lost_time").is_some();
    let panels = if has_lost_time { "the lower panels draw" } else { "both panels draw" };
    let with_longest = if run.table("longest").is_some() { ", the longest among them" } else { "" };
    Some(format!(
        "Of {} detours, {} were recorded singly{with_longest}; {panels} only these.",
        crate::human::count(detour_count as u64),
        crate::human::count(recorded_count as u64),
    ))
}

/// The picture of the tables `detours`, `longest` and `lost_time`. `None` for a run without table `detours`, and if the length
/// of its window or its longest detour is not known.
pub fn timeline(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("detours").filter(|table| !table.rows().is_empty()) else {
        return Ok(None);
    };
    let mut cpus = cpus(table);
    let further_cpus = cpus.len().saturating_sub(CPUS_MAX);
    cpus.truncate(CPUS_MAX);
    let timelines: Vec<CpuTimeline> =
        cpus.into_iter().map(|cpu| CpuTimeline::new(run, cpu)).collect();
    let causes = Causes::of_run(run);
    let lost_times = timelines.iter().flat_map(|timeline| &timeline.lost);
    let window_ns = lost_times.map(|lost| lost.to_ns).fold(0.0, f64::max);
    let Some(longest) = LongestDetour::of_run(run) else { return Ok(None) };
    if window_ns == 0.0 {
        return Ok(None);
    }
    let mut notes = vec![
        "Upper panels: the share of time that detours took, in 200 parts of the window. Lower panels: single \
         detours around the longest of each CPU."
            .to_owned(),
    ];
    notes.extend(recorded_note(run, &timelines));
    if further_cpus > 0 {
        notes.push(format!("{further_cpus} more CPUs are not drawn: see table detours."));
    }
    let overviews: Vec<Overview> =
        timelines.iter().map(|cpu| overview_of(cpu, window_ns, &causes)).collect();
    let shared_max = shared_maximum(overviews.iter().map(|overview| overview.lost_max));
    notes.extend(shared_max.is_none().then(|| OWN_SCALES.to_owned()));
    let mut legend = causes.legend("", &used_kinds(&timelines, &causes));
    // The first entry is for time that no cause took, which this picture does not draw.
    legend.remove(0);
    let is_longest_drawn = timelines.iter().any(|timeline| timeline.name == longest.cpu);
    let heading = Heading {
        title: format!("Time line of each CPU: {}", longest.in_words(is_longest_drawn)),
        notes,
        legend,
        description:
            "Two panels for each CPU: the share of lost time by cause over the window, and single \
                      detours around the longest. The numbers are in tables lost_time, longest and detours of the run."
                .to_owned(),
    };
    let lines_of_cpus: Vec<Vec<CauseLine>> = timelines
        .iter()
        .map(|cpu| close_up_lines(close_up_range(&cpu.detours, window_ns), &cpu.detours, &causes))
        .collect();
    let close_up_height = |lines: &Vec<CauseLine>| FRAME_HEIGHT + LINE_HEIGHT * lines.len() as f64;
    let total_height: f64 =
        lines_of_cpus.iter().map(|lines| OVERVIEW_HEIGHT + close_up_height(lines)).sum();
    let sheet = draw(&heading, width, total_height, |area| {
        let mut top = 0.0;
        for ((cpu, lines), overview) in timelines.iter().zip(&lines_of_cpus).zip(&overviews) {
            let mut next_panel = |height: f64| {
                let size = (units(width) as u32, units(height) as u32);
                let panel = area.part((0, units(top)), size);
                top += height;
                panel
            };
            let axis_max = shared_max.unwrap_or(overview.lost_max);
            draw_overview(&next_panel(OVERVIEW_HEIGHT), &cpu.name, overview, window_ns, axis_max)?;
            draw_close_up(&next_panel(close_up_height(lines)), cpu, window_ns, lines, &causes)?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// The share of time that each kind of cause took, in [`BARS`] parts of the window.
struct Overview {
    bars: Vec<[f64; KINDS]>,
    /// The largest share of lost time in a part, at most 1.
    lost_max: f64,
}

/// Computes the upper panel of a CPU.
fn overview_of(cpu: &CpuTimeline, window_ns: f64, causes: &Causes) -> Overview {
    let bar_ns = window_ns / BARS as f64;
    let mut bars = vec![[0.0_f64; KINDS]; BARS];
    for lost in &cpu.lost {
        let kind = causes.kind(lost.cause.as_deref());
        // The lost time is spread evenly over its interval, which may cover several bars.
        let lost_share = lost.lost_ns / (lost.to_ns - lost.from_ns).max(1.0);
        let first_bar = ((lost.from_ns / bar_ns) as usize).min(BARS - 1);
        let last_bar = ((lost.to_ns / bar_ns) as usize).min(BARS - 1);
        for (bar, shares) in bars.iter_mut().enumerate().take(last_bar + 1).skip(first_bar) {
            let (bar_start, bar_end) = (bar as f64 * bar_ns, (bar + 1) as f64 * bar_ns);
            let overlap_ns = (lost.to_ns.min(bar_end) - lost.from_ns.max(bar_start)).max(0.0);
            shares[kind] += lost_share * overlap_ns / bar_ns;
        }
    }
    let lost_max = bars.iter().map(|shares| shares.iter().sum::<f64>()).fold(0.0, f64::max);
    Overview { bars, lost_max: lost_max.min(1.0) }
}

/// Draws the upper panel, with a vertical axis up to `axis_max`.
fn draw_overview(
    area: &Area<'_>,
    cpu_name: &str,
    overview: &Overview,
    window_ns: f64,
    axis_max: f64,
) -> Result<(), Undrawn> {
    let bar_ns = window_ns / BARS as f64;
    let x = Axis::linear_to("time since the window opened", Quantity::Time, window_ns);
    let y = Axis::linear("time lost", Quantity::Share, 0.0, axis_max);
    let title = format!("CPU {cpu_name}: lost time by cause");
    let mut chart = Chart::new(area, &title, [&x, &y], room_for(std::iter::empty()))?;
    let (_, axis_top) = y.ends();
    for (bar, shares) in overview.bars.iter().enumerate() {
        let mut bottom = 0.0_f64;
        for (kind, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let top = (bottom + share).min(axis_top);
            let corners = [(bar as f64 * bar_ns, bottom), ((bar + 1) as f64 * bar_ns, top)];
            chart.block(corners, colour(kind).filled())?;
            bottom = top;
        }
    }
    Ok(())
}

/// Start and end of the lower panel, ns: the surroundings of the longest detour within the window.
fn close_up_range(detours: &[Detour], window_ns: f64) -> (f64, f64) {
    let longest =
        detours.iter().max_by(|a, b| (a.to_ns - a.from_ns).total_cmp(&(b.to_ns - b.from_ns)));
    let Some(Detour { from_ns, to_ns, .. }) = longest else { return (0.0, 1.0) };
    let length_ns = ((to_ns - from_ns) * CLOSE_UP_LENGTHS).max(CLOSE_UP_MIN_NS);
    let start = (from_ns.midpoint(*to_ns) - length_ns / 2.0).max(0.0);
    (start, (start + length_ns).min(window_ns.max(*to_ns)))
}

/// A line of the lower panel.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CauseLine {
    /// The kind of the cause: see [`Causes::kind`].
    kind: usize,
    name: String,
}

/// The lines of the lower panel for the causes of detours between two times, in the order of kinds.
fn close_up_lines(
    (start_ns, end_ns): (f64, f64),
    detours: &[Detour],
    causes: &Causes,
) -> Vec<CauseLine> {
    let mut lines: Vec<CauseLine> = Vec::new();
    let overlaps = |detour: &&Detour| detour.to_ns > start_ns && detour.from_ns < end_ns;
    for detour in detours.iter().filter(overlaps) {
        let kind = causes.kind(detour.cause.as_deref());
        if lines.iter().all(|line| line.kind != kind) {
            let name = match kind {
                NO_CAUSE => "no named cause".to_owned(),
                OTHER_CAUSES => "other causes".to_owned(),
                _ => detour.cause.clone().unwrap_or_default(),
            };
            lines.push(CauseLine { kind, name });
        }
    }
    lines.sort();
    lines
}

/// Draws the lower panel: a line for each cause, with a block for each detour or for several close ones.
fn draw_close_up(
    area: &Area<'_>,
    cpu: &CpuTimeline,
    window_ns: f64,
    lines: &[CauseLine],
    causes: &Causes,
) -> Result<(), Undrawn> {
    let (start_ns, end_ns) = close_up_range(&cpu.detours, window_ns);
    let names: Vec<String> = lines.iter().map(|line| shortened(&line.name)).collect();
    let x = Axis::linear_between("time since the window opened", Quantity::Time, start_ns, end_ns);
    let y = Axis::names(&names);
    let name_room = room_for_names(names.iter().map(String::as_str));
    let title = format!("CPU {}: around its longest detour", cpu.name);
    let mut chart =
        Chart::with_room(area, &title, [&x, &y], [name_room, room_for(std::iter::empty())])?;
    let cell_ns = (end_ns - start_ns) / CELLS as f64;
    for (index, line) in lines.iter().enumerate() {
        let middle = lines.len() as f64 - index as f64 - 0.5;
        let line_detours = cpu.detours.iter().filter(|detour| {
            detour.to_ns > start_ns
                && detour.from_ns < end_ns
                && causes.kind(detour.cause.as_deref()) == line.kind
        });
        // A block is at least a cell wide, so that a short detour can be seen.
        let mut blocks: Vec<(f64, f64)> = line_detours
            .map(|detour| {
                let block_end = detour.to_ns.min(end_ns).max(detour.from_ns + cell_ns).min(end_ns);
                (detour.from_ns.max(start_ns), block_end)
            })
            .collect();
        blocks.sort_by(|(from, _), (other_from, _)| from.total_cmp(other_from));
        // Blocks closer than half a cell become one.
        let mut joined_blocks: Vec<(f64, f64)> = Vec::new();
        for (from, to) in blocks {
            match joined_blocks.last_mut() {
                Some((_, last_end)) if from <= *last_end + cell_ns / 2.0 => {
                    *last_end = last_end.max(to);
                }
                _ => joined_blocks.push((from, to)),
            }
        }
        for (from, to) in joined_blocks {
            let corners = [(from, middle - 0.34), (to, middle + 0.34)];
            chart.block(corners, colour(line.kind).filled())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{checked, golden, run_of, table};
    use record::{Kind, Value};

    fn run(detours: impl Iterator<Item = (u64, u64, u64, Option<String>)>) -> Run {
        let columns = [
            ("cpu", Kind::Uint),
            ("start_ns", Kind::Uint),
            ("length_ns", Kind::Uint),
            ("largest_name", Kind::Text),
        ];
        let row = |(cpu, start, length, cause): (u64, u64, u64, Option<String>)| -> Vec<Value> {
            vec![cpu.into(), start.into(), length.into(), cause.into()]
        };
        run_of(vec![table("detours", &columns, detours.map(row).collect())])
    }

    #[test]
    fn the_longest_detour_is_in_the_title_and_in_the_lower_panel() {
        let tick = |index: u64| (3, index * 4_000_000, 10_000, Some("tick".to_owned()));
        let longest = (3, 51_000_000, 2_000_000, Some("a<b>".to_owned()));
        let run = run((0..25).map(tick).chain([longest]));
        golden("timeline", timeline(&run, WIDTH));
        golden("timeline_narrow", timeline(&run, NARROW));
        assert_eq!(timeline(&run_of(vec![]), WIDTH).unwrap(), None);
    }

    #[test]
    fn the_longest_detour_is_that_of_all_cpus() {
        let tick = |cpu: u64| (cpu, 4_000_000, 10_000, Some("tick".to_owned()));
        let cpu_count = CPUS_MAX as u64 + 1;
        let stall = (cpu_count, 51_000_000, 2_000_000, Some("stall".to_owned()));
        let mut run = run((0..cpu_count).map(tick).chain([stall]));
        let title = |run: &Run| timeline(run, WIDTH).unwrap().unwrap().heading.title;
        let says = ": the longest detour took 2.00 ms, largest cause stall, on CPU 9 (not drawn)";
        assert!(title(&run).ends_with(says), "{}", title(&run));
        // The detours were a sample: table `noise` has a longer one.
        let columns = ["cpu", "detour_max_ns"].map(|name| (name, Kind::Uint));
        let row = vec![1_u64.into(), 3_000_000_u64.into()];
        run.tables.push(table("noise", &columns, vec![row]));
        let says = ": the longest detour took 3.00 ms";
        assert!(title(&run).ends_with(says), "{}", title(&run));
    }

    #[test]
    fn shares_are_the_exact_sums_though_few_detours_were_recorded_singly() {
        let columns = ["cpu", "start_ns", "length_ns"].map(|name| (name, Kind::Uint));
        let columns = [&columns[..], &[("largest_name", Kind::Text)]].concat();
        let row = |start: u64, length: u64, cause: &str| -> Vec<Value> {
            vec![0_u64.into(), start.into(), length.into(), cause.into()]
        };
        let sampled = table("detours", &columns, vec![row(10_000, 1_000, "tick")]);
        let longest = table("longest", &columns, vec![row(50_000_000, 7_000_000, "stall")]);
        let lost_columns = ["cpu", "start_ns", "end_ns", "lost_ns"].map(|name| (name, Kind::Uint));
        let lost_columns = [&lost_columns[..], &[("name", Kind::Text)]].concat();
        let lost_row: Vec<Value> = vec![
            0_u64.into(),
            0_u64.into(),
            100_000_000_u64.into(),
            91_500_000_u64.into(),
            "tick".into(),
        ];
        let lost = table("lost_time", &lost_columns, vec![lost_row]);
        let cpu = CpuTimeline::new(
            &run_of(vec![sampled.clone(), longest.clone(), lost.clone()]),
            "0".to_owned(),
        );
        assert_eq!(cpu.detours.len(), 2);
        assert_eq!(cpu.lost.iter().map(|lost| lost.lost_ns).sum::<f64>(), 91_500_000.0);
        golden("timeline_exact", timeline(&run_of(vec![sampled, longest, lost]), WIDTH));
    }

    #[test]
    fn the_lower_panel_ends_with_the_window() {
        let detour = |from_ns: f64, to_ns: f64| Detour { from_ns, to_ns, cause: None };
        let detours = [detour(1e6, 2e6), detour(90e6, 98e6)];
        assert_eq!(close_up_range(&detours, 100e6), (62e6, 100e6));
        assert_eq!(close_up_range(&detours, 200e6), (62e6, 126e6));
        let ticks = (0..25).map(|index| (3, index * 4_000_000, 10_000, Some("tick".to_owned())));
        let run = run(ticks.chain([(3, 90_000_000, 8_000_000, None)]));
        let sheet = timeline(&run, WIDTH).unwrap().unwrap();
        let ends: Vec<f64> = sheet.plots().iter().map(|plot| plot.axis.ends().1).collect();
        assert_eq!(ends, [98e6, 98e6]);
    }

    #[test]
    fn the_upper_panels_have_one_scale() {
        let detour =
            |cpu, index: u64, length| (cpu, index * 4_000_000, length, Some("tick".to_owned()));
        let detours =
            (0..25).flat_map(|index| [detour(0, index, 100_000), detour(1, index, 300_000)]);
        let svg = timeline(&run(detours), WIDTH).unwrap().unwrap().file();
        assert_eq!(svg.matches(">\n60 %\n<").count(), 2, "at both vertical axes");
        assert!(!svg.contains("own scale"));
        let detours =
            (0..25).flat_map(|index| [detour(0, index, 1_000), detour(1, index, 300_000)]);
        let sheet = timeline(&run(detours), WIDTH).unwrap().unwrap();
        assert!(sheet.heading.notes.contains(&OWN_SCALES.to_owned()));
    }

    #[test]
    fn it_does_not_grow_with_the_number_of_detours() {
        let detour = |index: u64| {
            (0, index * 50_000, 7_000 + index % 977, Some(format!("cause {}", index % 9)))
        };
        let drawn = timeline(&run((0..200_000).map(detour)), WIDTH).unwrap().expect("a picture");
        let svg = drawn.file();
        assert!(svg.len() < 500_000, "{}", svg.len());
        checked(&svg);
    }
}
