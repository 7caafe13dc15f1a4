//! The picture `delays` of `handlers --delays`: how long softirqs, work items, timers and threads wait for their run. Each has
//! a line from the median to the longest delay, with a mark for each figure, on a logarithmic axis.

use record::{Run, Table};

use super::{conditions, largest, not_drawn, panel_title, text};
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, Look, room_for_names};
use crate::picture::palette::{BLACK, BLUE, GREY, ORANGE, VERMILION};
use crate::picture::sheet::{Area, Entry, Heading, Sheet, Undrawn, draw, units};
use crate::row::Row;

/// Maximum number of lines of a panel. A machine has ten softirqs, and dozens of functions and threads of interrupts.
const LINES_MAX: usize = 16;
/// Height of a line, pixels.
const LINE_HEIGHT: f64 = 26.0;
/// Height of the parts of a panel above and below its lines, pixels.
const FRAME_HEIGHT: f64 = 80.0;

/// The figures of a line: column of table `delays`, name, and look of the mark. The last mark is drawn over the others.
const FIGURES: [(&str, &str, Look); 4] = [
    ("delay_max_ns", "longest", Look { colour: VERMILION, pattern: 3 }),
    ("delay_p99_ns", "p99", Look { colour: ORANGE, pattern: 1 }),
    ("delay_mean_ns", "mean", Look { colour: BLACK, pattern: 2 }),
    ("delay_p50_ns", "p50", Look { colour: BLUE, pattern: 0 }),
];

/// The delays of a softirq, thread or function.
struct Line {
    name: String,
    /// The figures that the row has, ns, with their looks.
    figures: Vec<(f64, Look)>,
    /// All figures in words.
    hover_text: String,
}

/// A condition with its lines, those with most delays first.
struct Panel {
    title: String,
    lines: Vec<Line>,
}

impl Panel {
    fn height(&self) -> f64 {
        FRAME_HEIGHT + LINE_HEIGHT * self.lines.len() as f64
    }
}

/// The number of the IRQ line of a thread.
fn line_number(row: &Row<'_>) -> u64 {
    row.number("number").unwrap_or(0.0) as u64
}

/// The name of the delayed work.
fn name(row: &Row<'_>) -> String {
    match text(row, "kind").as_str() {
        "irq_thread" => format!("irq {} {} thread", line_number(row), text(row, "name")),
        kind => format!("{} {kind}", text(row, "name")),
    }
}

/// A figure of a row, if a logarithmic axis has a place for it.
fn time(row: &Row<'_>, column: &str) -> Option<f64> {
    row.number(column).filter(|time| *time > 0.0)
}

/// The line of a row. `None` if the row has no figure that can be drawn.
fn line(row: &Row<'_>) -> Option<Line> {
    let known = || {
        FIGURES.iter().filter_map(|(column, figure, look)| Some((time(row, column)?, figure, look)))
    };
    let mut figure_texts: Vec<String> =
        known().map(|(time, figure, _)| format!("{figure} {}", human::ns(time))).collect();
    figure_texts.reverse();
    let figures: Vec<(f64, Look)> = known().map(|(time, _, look)| (time, *look)).collect();
    let count = human::count(row.number("count").unwrap_or(0.0) as u64);
    let name = name(row);
    let hover_text = format!("{name}: count {count}, {}", figure_texts.join(", "));
    (!figures.is_empty()).then_some(Line { name, figures, hover_text })
}

/// The finding: the delays of the work that was delayed most often. `None` if no row has a median.
fn title(table: &Table, conditions: &[String]) -> Option<String> {
    let count = |row: &Row<'_>| row.number("count").unwrap_or(0.0);
    let row = conditions
        .iter()
        .flat_map(|condition| largest(table, condition, "count"))
        .filter(|row| row.number("delay_p50_ns").is_some())
        .max_by(|first, second| count(first).total_cmp(&count(second)))?;
    let work = match text(&row, "kind").as_str() {
        "irq_thread" => format!("the thread of irq {}", line_number(&row)),
        _ => text(&row, "name"),
    };
    let condition = panel_title(&text(&row, "condition"));
    Some(format!("Half of all runs of {work} wait {} ({condition})", wait(&row)?))
}

/// The median and the p99 of the row's delays, or its longest delay, as the end of a sentence. `None` without a median.
fn wait(row: &Row<'_>) -> Option<String> {
    let half = human::ns(row.number("delay_p50_ns")?);
    let longest = row.number("delay_max_ns").map(|max| format!(", the longest {}", human::ns(max)));
    let tail = row
        .number("delay_p99_ns")
        .map(|p99| format!(", one in 100 more than {}", human::ns(p99)))
        .or(longest);
    Some(format!("{half} or less{}", tail.unwrap_or_default()))
}

/// How long the runs of a context wait, as the end of a sentence. `None` if table `delays` has no median of the context.
pub fn wait_of(delays: &Table, context: &Row<'_>) -> Option<String> {
    let keys = ["kind", "name"];
    let mut sums = largest(delays, &text(context, "condition"), "count").into_iter();
    let row = sums.find(|row| keys.iter().all(|key| text(row, key) == text(context, key)))?;
    wait(&row)
}

/// Draws the lines of a panel. `x`: the axis of times, the same for all panels.
fn draw_panel(area: &Area<'_>, panel: &Panel, x: &Axis, name_room: f64) -> Result<(), Undrawn> {
    let names: Vec<String> = panel.lines.iter().map(|line| line.name.clone()).collect();
    let y = Axis::names(&names);
    let mut chart = Chart::with_room(area, &panel.title, [x, &y], [name_room, 34.0])?;
    let (axis_low, axis_high) = x.ends();
    for (index, line) in panel.lines.iter().enumerate() {
        let middle = names.len() as f64 - index as f64 - 0.5;
        let times = || line.figures.iter().map(|(time, _)| *time);
        let ends = [times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max)];
        let stem = Look { colour: GREY, pattern: 0 };
        chart.line(&ends.map(|time| (time, middle)), stem, 1.2)?;
        for (time, look) in &line.figures {
            chart.mark((*time, middle), *look, false)?;
        }
        let corners = [(axis_low, middle - 0.5), (axis_high, middle + 0.5)];
        chart.hover(corners, line.hover_text.clone(), None);
    }
    Ok(())
}

/// The picture of table `delays`. `None` for a run without delays.
pub fn delays(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("delays") else { return Ok(None) };
    let (conditions, further_conditions) = conditions(table);
    let (mut panels, mut undrawn_lines, mut unjoined_runs) = (Vec::new(), 0, 0.0);
    for condition in &conditions {
        let delayed = largest(table, condition, "count");
        let lines: Vec<Line> = delayed.iter().filter_map(line).take(LINES_MAX).collect();
        undrawn_lines += delayed.len() - lines.len();
        let unjoined = largest(table, condition, "unjoined_end_count");
        unjoined_runs +=
            unjoined.iter().filter_map(|row| row.number("unjoined_end_count")).sum::<f64>();
        if !lines.is_empty() {
            panels.push(Panel { title: panel_title(condition), lines });
        }
    }
    let (Some(title), false) = (title(table, &conditions), panels.is_empty()) else {
        return Ok(None);
    };
    let mut notes = vec![
        "The time from the raise of a softirq, or from the request, queueing or due time of other work, to its run. p99 needs \
         100 delays."
            .to_owned(),
    ];
    if unjoined_runs > 0.0 {
        let unjoined_runs = human::count(unjoined_runs as u64);
        notes.push(format!(
            "Runs without a delay, because their begin was not seen or is uncertain: {unjoined_runs}."
        ));
    }
    notes.extend(not_drawn(
        &[(further_conditions, "conditions"), (undrawn_lines, "rows")],
        "delays",
    ));
    let is_drawn = |look: &Look| {
        panels
            .iter()
            .flat_map(|panel| &panel.lines)
            .any(|line| line.figures.iter().any(|(_, drawn)| drawn == look))
    };
    // The order of the legend is that of the marks on most lines.
    let legend = FIGURES.iter().rev().filter(|(.., look)| is_drawn(look));
    let heading = Heading {
        title,
        notes,
        legend: legend
            .map(|(_, name, look)| Entry { name: (*name).to_owned(), colour: look.colour })
            .collect(),
        description: "A line for each kind of work, with marks at its delays: p50, mean, p99 and the longest. The numbers \
                      are in table delays of the run."
            .to_owned(),
    };
    let all_times = || {
        let lines = panels.iter().flat_map(|panel| &panel.lines);
        lines.flat_map(|line| line.figures.iter().map(|(time, _)| *time))
    };
    let (low, high) = (all_times().fold(f64::INFINITY, f64::min), all_times().fold(0.0, f64::max));
    let x = Axis::logarithmic("delay", Quantity::Time, low, high);
    let names = panels.iter().flat_map(|panel| &panel.lines).map(|line| line.name.as_str());
    let name_room = room_for_names(names);
    let sheet = draw(&heading, width, panels.iter().map(Panel::height).sum(), |area| {
        let mut top = 0.0;
        for panel in &panels {
            let size = (units(width) as u32, units(panel.height()) as u32);
            draw_panel(&area.part((0, units(top)), size), panel, &x, name_room)?;
            top += panel.height();
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

#[cfg(test)]
mod tests {
    use record::{Columns, column};

    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{golden, run_of};

    /// A row for all CPUs.
    #[derive(Clone, Copy)]
    struct Delays {
        kind: &'static str,
        name: &'static str,
        count: u64,
        p50_ns: Option<u64>,
        p99_ns: Option<u64>,
        unjoined: u64,
    }

    const NET_RX: Delays = Delays {
        kind: "softirq",
        name: "NET_RX",
        count: 1_234,
        p50_ns: Some(3_100),
        p99_ns: Some(120_000),
        unjoined: 7,
    };
    const WORK: Delays = Delays {
        kind: "work",
        name: "vmstat_update",
        count: 12,
        p50_ns: Some(13_000),
        p99_ns: None,
        unjoined: 1,
    };
    const THREAD: Delays = Delays { kind: "irq_thread", name: "nvme0q1", ..NET_RX };
    const TIMERS: Delays = Delays { kind: "hrtimer", name: "tick_nohz_handler", ..WORK };
    const IDLE: Delays =
        Delays { kind: "softirq", name: "HI", count: 0, p50_ns: None, p99_ns: None, unjoined: 0 };

    fn run(delays: &[Delays]) -> Run {
        let columns: Columns<'_, Delays> = Columns::all([
            column("condition", "").key().text(|_: &Delays| "ambient"),
            column("cpu", "").key().text(|_: &Delays| "all"),
            column("kind", "").key().text(|delays: &Delays| delays.kind),
            column("number", "").key().uint(|_: &Delays| 36_u32),
            column("name", "").key().text(|delays: &Delays| delays.name),
            column("count", "").uint(|delays: &Delays| delays.count),
            column("delay_mean_ns", "")
                .real(|delays: &Delays| delays.p50_ns.map(|p50| 2.5 * p50 as f64)),
            column("delay_p50_ns", "").uint(|delays: &Delays| delays.p50_ns),
            column("delay_p99_ns", "").uint(|delays: &Delays| delays.p99_ns),
            column("delay_max_ns", "").uint(|delays: &Delays| Some(100 * delays.p50_ns?)),
            column("unjoined_end_count", "").uint(|delays: &Delays| delays.unjoined),
        ]);
        run_of(vec![columns.table("delays", "", delays.iter().copied())])
    }

    fn heading(rows: &[Delays]) -> Heading {
        delays(&run(rows), WIDTH).unwrap().expect("a picture").heading
    }

    #[test]
    fn the_title_tells_the_delays_of_the_most_frequent_work() {
        let rows = [WORK, NET_RX, IDLE];
        golden("delays", delays(&run(&rows), WIDTH));
        golden("delays_narrow", delays(&run(&rows), NARROW));
        let says = "Half of all runs of NET_RX wait 3.10 µs or less, one in 100 more than 120 µs \
                    (condition ambient)";
        assert_eq!(heading(&rows).title, says);
        let without_p99 = "Half of all runs of vmstat_update wait 13.0 µs or less, the longest 1.30 ms \
                           (condition ambient)";
        assert_eq!(heading(&[WORK]).title, without_p99);
        let starts = |rows: &[Delays], start: &str| heading(rows).title.starts_with(start);
        assert!(starts(&[TIMERS], "Half of all runs of tick_nohz_handler wait 13.0 µs or less"));
        assert!(starts(&[THREAD], "Half of all runs of the thread of irq 36 wait 3.10 µs or less"));
        assert_eq!(delays(&run(&[IDLE]), WIDTH).unwrap(), None, "no softirq ran");
    }

    #[test]
    fn threads_and_timers_have_lines() {
        let run = run(&[NET_RX, WORK, THREAD, TIMERS]);
        let table = run.table("delays").unwrap();
        let names: Vec<String> = largest(table, "ambient", "count").iter().map(name).collect();
        for expected in ["NET_RX softirq", "irq 36 nvme0q1 thread", "tick_nohz_handler hrtimer"] {
            assert!(names.iter().any(|name| name == expected), "{expected}: {names:?}");
        }
    }

    #[test]
    fn a_note_counts_the_runs_without_a_delay() {
        let note = "Runs without a delay, because their begin was not seen or is uncertain: 8.";
        assert!(heading(&[WORK, NET_RX]).notes.iter().any(|text| text == note));
        let all_joined = Delays { unjoined: 0, ..NET_RX };
        assert!(!heading(&[all_joined]).notes.iter().any(|text| text.contains("without a delay")));
    }
}
