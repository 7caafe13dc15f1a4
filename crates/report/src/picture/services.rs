//! Pictures of `services`: what each service of the kernel costs, and what a request of it spends its time on.

use plotters::style::RGBColor;
use record::{Run, Table, Value};

use super::axis::Axis;
use super::bars::{Bar, draw_bars, height};
use super::palette::{BLUE, ORANGE, SKY, VERMILION};
use super::rows;
use super::sheet::{Entry, Heading, Sheet, Undrawn, draw, units};
use crate::escape::plain;
use crate::human::{self, Quantity};
use crate::row::Row;

/// Most services of a picture.
const SERVICES_MAX: usize = 16;
/// Rows that complete the sum and are no services.
const OUTSIDE: [&str; 2] = ["user", "idle"];

/// Cycles of a service by what the processor does in them: the column per instruction, what it means.
const STALLS: [(&str, &str, RGBColor); 2] = [
    ("fetch_mcpi_ratio", "waits for instructions", VERMILION),
    ("data_mcpi_ratio", "waits for data", ORANGE),
];
const EXECUTES: (&str, RGBColor) = ("executes", BLUE);
const NOT_COUNTED: (&str, RGBColor) = ("time", BLUE);

/// The parts of a request's latency.
const PARTS: [(&str, &str, RGBColor); 4] = [
    ("computation_mean_ns", "computation", BLUE),
    ("nested_mean_ns", "nested", SKY),
    ("blocked_mean_ns", "blocked", ORANGE),
    ("descheduled_mean_ns", "descheduled", VERMILION),
];

fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        Value::Text(text) => plain(text),
        _ => String::new(),
    }
}

/// `write syscall`: the name first, as in other pictures.
fn name(row: &Row<'_>) -> String {
    format!("{} {}", text(row, "service"), text(row, "class"))
}

/// The kernel's services by their time, the largest first; and how many are not drawn.
fn largest(table: &Table) -> (Vec<Row<'_>>, usize) {
    let size = |row: &Row<'_>| row.number("self_total_ns").unwrap_or(0.0);
    let is_service =
        |row: &Row<'_>| !OUTSIDE.contains(&text(row, "class").as_str()) && size(row) > 0.0;
    let mut found: Vec<Row<'_>> = rows(table).filter(is_service).collect();
    found.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let more = found.len().saturating_sub(SERVICES_MAX);
    found.truncate(SERVICES_MAX);
    (found, more)
}

/// Shares of a service's cycles that wait for memory, in the order of [`STALLS`]; none without cycles.
fn stalls(row: &Row<'_>) -> Option<[f64; 2]> {
    let cpi = row.number("cpi_ratio").filter(|cpi| *cpi > 0.0)?;
    let shares = [row.number(STALLS[0].0)? / cpi, row.number(STALLS[1].0)? / cpi];
    (shares[0] + shares[1] <= 1.0).then_some(shares)
}

fn cost(row: &Row<'_>) -> Bar {
    let share = row.number("time_ratio").unwrap_or(0.0);
    let parts = match stalls(row) {
        Some([fetch, data]) => vec![
            (share * (1.0 - fetch - data), EXECUTES.1),
            (share * fetch, STALLS[0].2),
            (share * data, STALLS[1].2),
        ],
        None => vec![(share, NOT_COUNTED.1)],
    };
    let detail = row.number("request_count").zip(row.number("computation_mean_ns"));
    let detail = detail.map_or(String::new(), |(count, mean)| {
        format!(" = {} × {}", human::ns(mean), human::count(count as u64))
    });
    Bar { name: name(row), parts, interval: None, label: human::percent(share), detail }
}

/// A request's latency in its parts, each as a share of it.
fn request(row: &Row<'_>) -> Option<Bar> {
    let latency = row.number("latency_mean_ns").filter(|latency| *latency > 0.0)?;
    row.number(PARTS[0].0)?;
    let share = |column: &str| row.number(column).unwrap_or(0.0).max(0.0) / latency;
    let parts = PARTS.map(|(column, _, colour)| (share(column), colour)).to_vec();
    let detail = row
        .number("request_count")
        .map_or(String::new(), |count| format!(" × {}", human::count(count as u64)));
    Some(Bar { name: name(row), parts, interval: None, label: human::ns(latency), detail })
}

fn note(more: usize) -> Option<String> {
    let rest = "services that take less time; see table services.";
    (more > 0).then(|| format!("Not drawn: {more} {rest}"))
}

fn entry(name: &str, colour: RGBColor) -> Entry {
    Entry { name: name.to_owned(), colour }
}

fn sheet(
    heading: &Heading,
    width: f64,
    panel: &str,
    bars: &[Bar],
    axis: &str,
) -> Result<Sheet, Undrawn> {
    let whole = height(bars.len());
    draw(heading, width, whole, |area| {
        let area = area.part((0, 0), (units(width) as u32, units(whole) as u32));
        draw_bars(&area, panel, bars, |most| Axis::linear(axis, Quantity::Share, 0.0, most))
    })
}

/// The time of each service, divided by what the processor does in it; none for a run without any.
///
/// # Errors
/// When plotters fails.
pub fn costs(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("services") else { return Ok(None) };
    let (services, more) = largest(table);
    let Some(first) = services.first() else { return Ok(None) };
    let divided = services.iter().any(|row| stalls(row).is_some());
    let outside: Vec<String> = OUTSIDE
        .iter()
        .filter_map(|class| {
            let row = rows(table).find(|row| text(row, "class") == *class)?;
            Some(format!("{class} {}", human::percent(row.number("time_ratio")?)))
        })
        .collect();
    let mut notes = vec![match divided {
        true => {
            "Time of the service itself, divided by what its cycles are: executing, or waiting for \
                 memory, of the model."
                .to_owned()
        }
        false => {
            "Time of the service itself: without interrupts, faults and other services. The bench \
                  counts no cycles."
                .to_owned()
        }
    }];
    if !outside.is_empty() {
        notes.push(format!("Not drawn: {}.", outside.join(", ")));
    }
    notes.extend(note(more));
    let mut legend = Vec::new();
    if divided {
        legend.push(entry(EXECUTES.0, EXECUTES.1));
        legend.extend(STALLS.iter().map(|(_, name, colour)| entry(name, *colour)));
    }
    let share = human::percent(first.number("time_ratio").unwrap_or(0.0));
    let heading = Heading {
        title: format!("Time of each service: {} takes {share}", name(first)),
        notes,
        legend,
        description:
            "A bar for each service of the kernel, as long as its share of the time of all CPUs. \
                      The numbers are in table services of the run."
                .to_owned(),
    };
    let bars: Vec<Bar> = services.iter().map(cost).collect();
    sheet(&heading, width, "", &bars, "share of the time of all CPUs").map(Some)
}

/// What a request of each service spends its time on; none where no parts of latencies are known.
///
/// # Errors
/// When plotters fails.
pub fn requests(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("services") else { return Ok(None) };
    let (services, more) = largest(table);
    let off = |row: &Row<'_>| {
        let of = |column: &str| {
            row.number(column).unwrap_or(0.0) * row.number("request_count").unwrap_or(0.0)
        };
        of(PARTS[2].0) + of(PARTS[3].0)
    };
    // A pass through the scheduler is off the CPU by its nature.
    let services: Vec<Row<'_>> =
        services.into_iter().filter(|row| text(row, "class") != "scheduler").collect();
    let bars: Vec<Bar> = services.iter().filter_map(request).collect();
    if bars.is_empty() {
        return Ok(None);
    }
    let waits =
        services.iter().max_by(|a, b| off(a).total_cmp(&off(b))).filter(|row| off(row) > 0.0);
    let title = match waits {
        Some(row) => {
            format!("Where a request's time goes: most is lost off the CPU in {}", name(row))
        }
        None => "Where a request's time goes: no request leaves the CPU".to_owned(),
    };
    let used = |colour: RGBColor| {
        bars.iter().flat_map(|bar| &bar.parts).any(|(length, one)| *one == colour && *length > 0.0)
    };
    let legend = PARTS.iter().filter(|(.., colour)| used(*colour));
    let legend: Vec<Entry> = legend.map(|(_, name, colour)| entry(name, *colour)).collect();
    let mut notes = vec![
        "Shares of the mean latency, which is written after each bar with the number of \
                          requests. Nested are interrupts, faults and other services meanwhile. The services are \
                          those that take most time."
            .to_owned(),
    ];
    notes.extend(note(more));
    let heading = Heading {
        title,
        notes,
        legend,
        description: "A bar for each service: how the mean latency of its requests divides into \
                      computation, nested, blocked and descheduled. The numbers are in table services of \
                      the run."
            .to_owned(),
    };
    sheet(&heading, width, "", &bars, "share of the mean latency").map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::palette::hex;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{checked, run_of, table, texts};
    use record::Kind;

    /// `read` takes 20 % of the time, a quarter of it in waits for data, and is blocked for half of its latency;
    /// `fork` takes 5 %; user mode 60 %.
    fn run(has_cycles: bool) -> Run {
        let columns = [
            ("class", Kind::Text),
            ("service", Kind::Text),
            ("time_ratio", Kind::Real),
            ("self_total_ns", Kind::Real),
            ("request_count", Kind::Uint),
            ("computation_mean_ns", Kind::Real),
            ("latency_mean_ns", Kind::Real),
            ("nested_mean_ns", Kind::Real),
            ("blocked_mean_ns", Kind::Real),
            ("descheduled_mean_ns", Kind::Real),
            ("cpi_ratio", Kind::Real),
            ("fetch_mcpi_ratio", Kind::Real),
            ("data_mcpi_ratio", Kind::Real),
        ];
        let row = |class: &str, name: &str, share: f64, blocked: f64| -> Vec<Value> {
            let cycles = |number: f64| Value::from(has_cycles.then_some(number));
            vec![
                class.into(),
                name.into(),
                share.into(),
                (share * 1e9).into(),
                100_u64.into(),
                400.0.into(),
                (400.0 + blocked).into(),
                0.0.into(),
                blocked.into(),
                0.0.into(),
                cycles(2.0),
                cycles(0.0),
                cycles(0.5),
            ]
        };
        let rows = vec![
            row("syscall", "fork", 0.05, 0.0),
            row("user", "user", 0.6, 0.0),
            row("syscall", "read", 0.2, 400.0),
        ];
        run_of(vec![table("services", &columns, rows)])
    }

    /// Widths of the blocks of a colour.
    fn widths(sheet: &Sheet, colour: RGBColor) -> Vec<f64> {
        let svg = sheet.file();
        let blocks = checked(&svg).into_iter().filter(|one| {
            one.tag == "rect"
                && one.attribute("fill") == Some(&hex(colour))
                // Entries of the legend are squares.
                && one.attribute("width") != one.attribute("height")
        });
        blocks.map(|one| one.attribute("width").unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn a_bar_is_divided_by_the_cycles_of_its_service() {
        for width in [WIDTH, NARROW] {
            let sheet = costs(&run(true), width).unwrap().unwrap();
            let (executes, data) = (widths(&sheet, BLUE), widths(&sheet, ORANGE));
            assert!((executes[0] / data[0] - 3.0).abs() < 0.1, "{executes:?} {data:?}");
            // Twice as much for `read` is four times as long as for `fork`.
            assert!((executes[0] / executes[1] - 4.0).abs() < 0.1, "{executes:?}");
            let words = texts(&sheet.file()).join(" ");
            assert!(words.contains("read syscall takes 20.0 %"), "{words}");
            assert!(words.contains("user 60.0 %"), "{words}");
        }
    }

    #[test]
    fn without_cycles_a_bar_has_one_part() {
        let sheet = costs(&run(false), WIDTH).unwrap().unwrap();
        assert_eq!((widths(&sheet, BLUE).len(), widths(&sheet, ORANGE).len()), (2, 0));
    }

    #[test]
    fn a_request_is_divided_by_where_it_waits() {
        let sheet = requests(&run(true), WIDTH).unwrap().unwrap();
        let (computation, blocked) = (widths(&sheet, BLUE), widths(&sheet, ORANGE));
        assert!((computation[0] / blocked[0] - 1.0).abs() < 0.02, "{computation:?} {blocked:?}");
        let words = texts(&sheet.file()).join("\n");
        assert!(words.contains("most is lost off the CPU in read syscall"), "{words}");
        assert!(!words.contains("descheduled"), "nothing is: {words}");
    }

    #[test]
    fn other_runs_have_neither() {
        assert_eq!(costs(&run_of(vec![]), WIDTH).unwrap(), None);
        assert_eq!(requests(&run_of(vec![]), WIDTH).unwrap(), None);
    }
}
