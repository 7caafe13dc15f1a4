//! Two panels for each CPU: the share of lost time by cause over the whole window, and single detours around the
//! longest one. The shares are exact sums; only single detours come from a sample, which always has the longest.

use std::collections::BTreeSet;

use plotters::style::Color;
use record::{Run, Table};

use super::causes::{Causes, KINDS, colour, cpus, name_of};
use crate::human::Quantity;
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, room_for, room_for_names};
use crate::picture::rows;
use crate::picture::sheet::{Area, Heading, Sheet, Undrawn, draw, short, units};

/// Maximum number of CPUs of the picture.
const CPUS_MAX: usize = 8;
/// Bars of the whole window.
const BARS: usize = 200;
/// Height of the panel of the whole window, pixels.
const OVERVIEW: f64 = 230.0;
/// Height of a line of the lower panel, and of this panel without lines.
const LINE: f64 = 22.0;
const AROUND: f64 = 84.0;
/// The lower panel covers this multiple of the longest detour's length, and at least `CLOSE_MIN_NS`.
const LENGTHS: f64 = 8.0;
const CLOSE_MIN_NS: f64 = 20e6;
/// Number of cells along a line. Detours that are closer than half a cell are drawn as one block.
const CELLS: usize = 700;

/// A detour: start and end in ns, and its largest cause.
struct Detour {
    from: f64,
    to: f64,
    cause: Option<String>,
}

/// A cause's share of an interval of the window.
struct Lost {
    from: f64,
    to: f64,
    cause: Option<String>,
    lost_ns: f64,
}

/// The drawn detours and lost time of a CPU.
struct OneCpu {
    name: String,
    detours: Vec<Detour>,
    lost: Vec<Lost>,
}

impl OneCpu {
    fn new(run: &Run, cpu: String) -> OneCpu {
        let detours = detours(run, &cpu);
        let lost = match run.table("lost_time") {
            Some(table) => lost(table, &cpu),
            // A run of an older version has single detours alone.
            None => detours.iter().map(Lost::from_detour).collect(),
        };
        OneCpu { name: cpu, detours, lost }
    }
}

impl Lost {
    fn from_detour(detour: &Detour) -> Lost {
        let &Detour { from, to, ref cause } = detour;
        Lost { from, to, cause: cause.clone(), lost_ns: to - from }
    }
}

/// The recorded single detours of a CPU: the sample, and the longest ones that it lacks.
fn detours(run: &Run, cpu: &str) -> Vec<Detour> {
    let mut found: Vec<Detour> = Vec::new();
    let mut starts = BTreeSet::new();
    for table in [run.table("detours"), run.table("longest")].into_iter().flatten() {
        for row in rows(table).filter(|row| row.alone("cpu") == cpu) {
            let times = row.number("start_ns").zip(row.number("length_ns"));
            if let Some((from, length)) = times
                && starts.insert(from.to_bits())
            {
                let cause = name_of(&row, "largest_name");
                found.push(Detour { from, to: from + length, cause });
            }
        }
    }
    found
}

/// The rows of table `lost_time` of a CPU.
fn lost(table: &Table, cpu: &str) -> Vec<Lost> {
    let of_cpu = rows(table).filter(|row| row.alone("cpu") == cpu);
    let lost = of_cpu.filter_map(|row| {
        Some(Lost {
            from: row.number("start_ns")?,
            to: row.number("end_ns")?,
            cause: name_of(&row, "name"),
            lost_ns: row.number("lost_ns")?,
        })
    });
    lost.collect()
}

/// The time line of table `detours`. `None` for a run without detours.
pub fn timeline(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("detours").filter(|table| !table.rows().is_empty()) else {
        return Ok(None);
    };
    let mut found = cpus(table);
    let more = found.len().saturating_sub(CPUS_MAX);
    found.truncate(CPUS_MAX);
    let of_cpus: Vec<OneCpu> = found.into_iter().map(|cpu| OneCpu::new(run, cpu)).collect();
    let all = || of_cpus.iter().flat_map(|cpu| &cpu.detours);
    let all_lost = || of_cpus.iter().flat_map(|cpu| &cpu.lost);
    let causes =
        Causes::largest(all_lost().filter_map(|lost| Some((lost.cause.clone()?, lost.lost_ns))));
    let mut used = [false; KINDS];
    all().for_each(|detour| used[causes.kind(detour.cause.as_deref())] = true);
    all_lost().for_each(|lost| used[causes.kind(lost.cause.as_deref())] = true);
    let last = all_lost().map(|lost| lost.to).fold(0.0, f64::max);
    let longest = all().max_by(|a, b| (a.to - a.from).total_cmp(&(b.to - b.from)));
    let Some(longest) = longest else { return Ok(None) };
    if last == 0.0 {
        return Ok(None);
    }
    let recorded = all().count();
    let is_drawn = |cpu: &str| of_cpus.iter().any(|drawn| drawn.name == cpu);
    let counted: f64 = run
        .table("noise")
        .into_iter()
        .flat_map(rows)
        .filter(|row| is_drawn(&row.alone("cpu")))
        .filter_map(|row| row.number("detour_count"))
        .sum();
    let mut notes = vec![
        "Upper panels: the share of time that detours took, in 200 parts of the window. Lower panels: single \
         detours around the longest of each CPU."
            .to_owned(),
    ];
    if counted > recorded as f64 {
        let drawn = if run.table("lost_time").is_some() {
            "the lower panels draw"
        } else {
            "both panels draw"
        };
        let longest = if run.table("longest").is_some() { ", the longest among them" } else { "" };
        notes.push(format!(
            "Of {} detours, {} were recorded singly{longest}; {drawn} only these.",
            crate::human::count(counted as u64),
            crate::human::count(recorded as u64),
        ));
    }
    if more > 0 {
        notes.push(format!("{more} more CPUs are not drawn: see table detours."));
    }
    let mut legend = causes.legend("", &used);
    legend.remove(0);
    let heading = Heading {
        title: format!(
            "Time line of each CPU: the longest detour took {}{}",
            Quantity::Time.text(longest.to - longest.from),
            longest.cause.as_ref().map_or(String::new(), |cause| format!(", mostly {cause}"))
        ),
        notes,
        legend,
        description:
            "Two panels for each CPU: the share of lost time by cause over the window, and single \
                      detours around the longest. The numbers are in tables lost_time, longest and detours of the run."
                .to_owned(),
    };
    let lines: Vec<Vec<(usize, String)>> =
        of_cpus.iter().map(|cpu| lines(close(&cpu.detours), &cpu.detours, &causes)).collect();
    let close_height = |lines: &Vec<(usize, String)>| AROUND + LINE * lines.len() as f64;
    let total_height: f64 = lines.iter().map(|lines| OVERVIEW + close_height(lines)).sum();
    let sheet = draw(&heading, width, total_height, |area| {
        let mut top = 0.0;
        for (cpu, lines) in of_cpus.iter().zip(&lines) {
            let mut part = |high: f64| {
                let part = area.part((0, units(top)), (units(width) as u32, units(high) as u32));
                top += high;
                part
            };
            overview(&part(OVERVIEW), cpu, last, &causes)?;
            close_up(&part(close_height(lines)), cpu, lines, &causes)?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

fn overview(area: &Area<'_>, cpu: &OneCpu, last: f64, causes: &Causes) -> Result<(), Undrawn> {
    let wide = last / BARS as f64;
    let mut bars = vec![[0.0_f64; KINDS]; BARS];
    for lost in &cpu.lost {
        let kind = causes.kind(lost.cause.as_deref());
        let rate = lost.lost_ns / (lost.to - lost.from).max(1.0);
        let first = ((lost.from / wide) as usize).min(BARS - 1);
        let end = ((lost.to / wide) as usize).min(BARS - 1);
        for (bar, times) in bars.iter_mut().enumerate().take(end + 1).skip(first) {
            let (from, to) = (bar as f64 * wide, (bar + 1) as f64 * wide);
            times[kind] += rate * (lost.to.min(to) - lost.from.max(from)).max(0.0) / wide;
        }
    }
    let lost_max = bars.iter().map(|times| times.iter().sum::<f64>()).fold(0.0, f64::max);
    let x = Axis::linear_to("time since the loop started", Quantity::Time, last);
    let y = Axis::linear("time lost", Quantity::Share, 0.0, lost_max.min(1.0));
    let title = format!("CPU {}: lost time by cause", cpu.name);
    let mut chart = Chart::new(area, &title, [&x, &y], room_for(std::iter::empty()))?;
    let (_, high) = y.ends();
    for (bar, times) in bars.iter().enumerate() {
        let mut from = 0.0_f64;
        for (kind, time) in times.iter().enumerate().filter(|(_, time)| **time > 0.0) {
            let to = (from + time).min(high);
            let corners = [(bar as f64 * wide, from), ((bar + 1) as f64 * wide, to)];
            chart.block(corners, colour(kind).filled())?;
            from = to;
        }
    }
    Ok(())
}

/// Start and end of the lower panel in ns: the surroundings of the longest detour.
fn close(all: &[Detour]) -> (f64, f64) {
    let longest = all.iter().max_by(|a, b| (a.to - a.from).total_cmp(&(b.to - b.from)));
    let Some(Detour { from, to, .. }) = longest else { return (0.0, 1.0) };
    let wide = ((to - from) * LENGTHS).max(CLOSE_MIN_NS);
    let start = (from.midpoint(*to) - wide / 2.0).max(0.0);
    (start, start + wide)
}

/// Kinds and names of the causes of detours between two times, in the order of kinds.
fn lines((from, to): (f64, f64), all: &[Detour], causes: &Causes) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for detour in all.iter().filter(|detour| detour.to > from && detour.from < to) {
        let kind = causes.kind(detour.cause.as_deref());
        if found.iter().all(|(known, _)| *known != kind) {
            let name = match kind {
                _ if kind == KINDS - 1 => "no named cause".to_owned(),
                _ if kind == KINDS - 2 => "other causes".to_owned(),
                _ => detour.cause.clone().unwrap_or_default(),
            };
            found.push((kind, name));
        }
    }
    found.sort();
    found
}

fn close_up(
    area: &Area<'_>,
    cpu: &OneCpu,
    lines: &[(usize, String)],
    causes: &Causes,
) -> Result<(), Undrawn> {
    let all = &cpu.detours;
    let (start, end) = close(all);
    let names: Vec<String> = lines.iter().map(|(_, name)| short(name)).collect();
    let x = Axis::between("time since the loop started", Quantity::Time, start, end);
    let y = Axis::names(&names);
    let name_room = room_for_names(names.iter().map(String::as_str));
    let title = format!("CPU {}: around its longest detour", cpu.name);
    let mut chart =
        Chart::with_room(area, &title, [&x, &y], [name_room, room_for(std::iter::empty())])?;
    for (line, (kind, _)) in lines.iter().enumerate() {
        let middle = lines.len() as f64 - line as f64 - 0.5;
        let cell = (end - start) / CELLS as f64;
        let line_detours = all.iter().filter(|detour| {
            detour.to > start && detour.from < end && causes.kind(detour.cause.as_deref()) == *kind
        });
        let mut blocks: Vec<(f64, f64)> = line_detours
            .map(|detour| {
                (detour.from.max(start), detour.to.min(end).max(detour.from + cell).min(end))
            })
            .collect();
        blocks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut joined: Vec<(f64, f64)> = Vec::new();
        for (from, to) in blocks {
            match joined.last_mut() {
                Some(last) if from <= last.1 + cell / 2.0 => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        for (from, to) in joined {
            chart.block([(from, middle - 0.34), (to, middle + 0.34)], colour(*kind).filled())?;
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
        let cpu = OneCpu::new(
            &run_of(vec![sampled.clone(), longest.clone(), lost.clone()]),
            "0".to_owned(),
        );
        assert_eq!(cpu.detours.len(), 2);
        assert_eq!(cpu.lost.iter().map(|lost| lost.lost_ns).sum::<f64>(), 91_500_000.0);
        golden("timeline_exact", timeline(&run_of(vec![sampled, longest, lost]), WIDTH));
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
