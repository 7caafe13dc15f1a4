//! The picture `worst` of `wakeup`: the worst wake-ups as bars. The parts of a bar are in the order of time, coloured
//! by what delayed the thread.

use plotters::style::RGBColor;
use record::{Run, Table, Value};

use crate::human::{self, Quantity};
use crate::late_cause::{Class, LargestPart, is_woken_by_disk, time_ns};
use crate::picture::axis::Axis;
use crate::picture::bars::{Bar, draw_panels};
use crate::picture::palette::{BLUE, GREEN, GREY, ORANGE, PALE, SKY, VERMILION};
use crate::picture::rows;
use crate::picture::sheet::{Entry, Heading, Sheet, Undrawn, shortened};
use crate::row::Row;

/// Maximum number of bars.
const WAKEUPS_MAX: usize = 10;
/// A bar with more parts is drawn in sections. In each section, a class has one part.
const PARTS_MAX: usize = 120;
/// Number of sections of a bar with very many parts.
const SECTIONS: usize = PARTS_MAX / Class::ALL.len();
/// Colour of a wake-up without known parts.
const UNDIVIDED: RGBColor = PALE;

fn colour(class: Class) -> RGBColor {
    match class {
        // No run has both.
        Class::LateTimer | Class::Waking => VERMILION,
        Class::Interrupts => BLUE,
        Class::Tasks => ORANGE,
        Class::Switch => SKY,
        Class::Return => GREEN,
        Class::Other => GREY,
    }
}

/// The name of a class in the legend.
fn legend_name(class: Class, is_by_disk: bool) -> &'static str {
    match class {
        Class::LateTimer => "late timer (no interrupt yet)",
        Class::Waking if is_by_disk => "waking (after the disk's interrupt)",
        Class::Waking => "waking (on the waker's CPU)",
        Class::Interrupts => "interrupts",
        Class::Tasks => "other tasks",
        Class::Switch => "switch (leaving idle)",
        Class::Return => "return (to user mode)",
        Class::Other => "other",
    }
}

/// One of the worst wake-ups.
struct LateWakeup<'a> {
    row: Row<'a>,
    late_ns: f64,
    /// Classes and lengths of the parts in the order of time. Neighbours have different classes.
    parts: Vec<(Class, f64)>,
}

impl<'a> LateWakeup<'a> {
    /// The worst wake-ups in a table, the worst first. Their parts are not known yet.
    fn worst_of_table(table: &'a Table) -> Vec<LateWakeup<'a>> {
        let wakeups = rows(table).filter_map(|row| {
            let late_ns = time_ns(&row, "late_ns").filter(|late_ns| *late_ns > 0.0)?;
            Some(LateWakeup { row, late_ns, parts: Vec::new() })
        });
        let mut wakeups: Vec<LateWakeup<'_>> = wakeups.collect();
        wakeups.sort_by(|a, b| b.late_ns.total_cmp(&a.late_ns));
        wakeups.truncate(WAKEUPS_MAX);
        wakeups
    }

    /// Whether a row of table `worst_parts` is about this wake-up.
    fn has_part(&self, part: &Row<'_>) -> bool {
        ["cpu", "rank"].iter().all(|key| part.get(key) == self.row.get(key))
    }

    fn add_part(&mut self, part: &Row<'_>) {
        let Some(length_ns) = time_ns(part, "length_ns").filter(|length_ns| *length_ns > 0.0)
        else {
            return;
        };
        let class = match part.get("class") {
            Value::Text(label) => Class::from_label(label),
            _ => Class::Other,
        };
        match self.parts.last_mut() {
            Some((last_class, last_ns)) if *last_class == class => *last_ns += length_ns,
            _ => self.parts.push((class, length_ns)),
        }
    }

    /// Whether the bar has too many parts to draw each one.
    fn has_sections(&self) -> bool {
        self.parts.len() > PARTS_MAX
    }

    /// Classes and lengths of the drawn parts, at most [`PARTS_MAX`].
    fn drawn_parts(&self) -> Vec<(Class, f64)> {
        if !self.has_sections() {
            return self.parts.clone();
        }
        let sections = self.parts.chunks(self.parts.len().div_ceil(SECTIONS));
        let drawn = sections.flat_map(|section| {
            Class::ALL.map(|class| {
                let of_class = section.iter().filter(|(other, _)| *other == class);
                (class, of_class.map(|(_, length_ns)| length_ns).sum::<f64>())
            })
        });
        drawn.filter(|(_, length_ns)| *length_ns > 0.0).collect()
    }

    /// The bar of the wake-up: its parts, how late it was, and its largest part in words.
    fn bar(&self, run: &Run) -> Bar {
        let parts: Vec<(f64, RGBColor)> = match &self.drawn_parts()[..] {
            [] => vec![(self.late_ns, UNDIVIDED)],
            parts => parts.iter().map(|(class, length)| (*length, colour(*class))).collect(),
        };
        let cpu = self.row.value_text("cpu");
        let due_text = time_ns(&self.row, "due_ns")
            .map_or(String::new(), |due_ns| format!(" at {} ms", human::number(due_ns / 1e6)));
        let (mut label, mut detail) = (human::ns(self.late_ns), String::new());
        if let Some(largest_part) = LargestPart::from_row(run, &self.row) {
            label += &format!(": {}", shortened(&largest_part.brief()));
            detail = format!(" took {}", human::ns(largest_part.length_ns));
            if matches!(largest_part.class, Class::LateTimer | Class::Waking) {
                detail += &format!(" while {} ran", shortened(&largest_part.name));
            }
        }
        Bar { name: format!("CPU {cpu}{due_text}"), parts, interval: None, label, detail }
    }
}

/// The picture of the tables `worst` and `worst_parts`. `None` for a run without late wake-ups.
pub fn worst(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("worst") else { return Ok(None) };
    let mut wakeups = LateWakeup::worst_of_table(table);
    let Some(worst_row) = wakeups.first().map(|wakeup| wakeup.row) else { return Ok(None) };
    for part in run.table("worst_parts").into_iter().flat_map(rows) {
        if let Some(wakeup) = wakeups.iter_mut().find(|wakeup| wakeup.has_part(&part)) {
            wakeup.add_part(&part);
        }
    }
    let mut notes = vec![
        "A bar starts when the thread was due (at its left: CPU, and time since the window opened), and ends when the \
         thread ran. Its colours are in the order of time."
            .to_owned(),
    ];
    let is_drawn = |class: &Class| {
        wakeups.iter().any(|wakeup| wakeup.parts.iter().any(|(other, _)| other == class))
    };
    let classes: Vec<Class> = Class::ALL.into_iter().filter(is_drawn).collect();
    let has_undivided = wakeups.iter().any(|wakeup| wakeup.parts.is_empty());
    if has_undivided {
        notes
            .push("Kernel events divide a wake-up; the run has none for the pale bars.".to_owned());
    }
    if wakeups.iter().any(LateWakeup::has_sections) {
        notes.push(format!(
            "A bar of more than {PARTS_MAX} parts is drawn in {SECTIONS} sections; each has the parts of a class \
             together."
        ));
    }
    let is_by_disk = is_woken_by_disk(run);
    let mut legend: Vec<Entry> = classes
        .iter()
        .map(|class| Entry {
            name: legend_name(*class, is_by_disk).to_owned(),
            colour: colour(*class),
        })
        .collect();
    if has_undivided {
        legend.push(Entry { name: "cause unknown".to_owned(), colour: UNDIVIDED });
    }
    let largest_loss = LargestPart::from_row(run, &worst_row).map_or(String::new(), |largest| {
        format!(": the worst lost {} {}", human::ns(largest.length_ns), largest.circumstance())
    });
    let heading = Heading {
        title: match wakeups.len() {
            1 => format!("What delayed the worst wake-up{largest_loss}"),
            count => format!("What delayed the {count} worst wake-ups{largest_loss}"),
        },
        notes,
        legend,
        description: "A bar for each of the worst wake-ups, as long as it was late, divided by what delayed the \
                      thread. The numbers are in tables worst and worst_parts of the run."
            .to_owned(),
    };
    let bars: Vec<Bar> = wakeups.iter().map(|wakeup| wakeup.bar(run)).collect();
    let axis =
        |longest| Axis::linear("time since the thread was due", Quantity::Time, 0.0, longest);
    draw_panels(&heading, width, &[(String::new(), bars)], axis).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{checked, golden, run_of, table};
    use record::Kind;

    const TEXT: Kind = Kind::Text;
    const UINT: Kind = Kind::Uint;

    /// A row of table `worst`: CPU, rank, lateness, due time, and the largest part with its class, kind and name.
    type WorstRow = (u64, u64, u64, u64, Option<(u64, &'static str, &'static str, &'static str)>);

    fn worst_table(wakeups: &[WorstRow]) -> Table {
        let columns = [
            ("cpu", UINT),
            ("rank", UINT),
            ("late_ns", UINT),
            ("due_ns", UINT),
            ("largest_ns", UINT),
            ("largest_class", TEXT),
            ("largest_kind", TEXT),
            ("largest_name", TEXT),
        ];
        let row = |(cpu, rank, late, due, largest): &WorstRow| -> Vec<Value> {
            let (length, class, kind, name) = match *largest {
                Some((length, class, kind, name)) => {
                    (Some(length), Some(class), Some(kind), Some(name))
                }
                None => (None, None, None, None),
            };
            let numbers = [*cpu, *rank, *late, *due].map(Value::from);
            let texts = [class, kind, name].map(Value::from);
            numbers.into_iter().chain([length.into()]).chain(texts).collect()
        };
        table("worst", &columns, wakeups.iter().map(row).collect())
    }

    fn parts_table(parts: impl Iterator<Item = (u64, u64, u64, &'static str)>) -> Table {
        let columns = [("cpu", UINT), ("rank", UINT), ("length_ns", UINT), ("class", TEXT)];
        let row = |(cpu, rank, length, class): (u64, u64, u64, &str)| -> Vec<Value> {
            vec![cpu.into(), rank.into(), length.into(), class.into()]
        };
        table("worst_parts", &columns, parts.map(row).collect())
    }

    /// Four wake-ups: two were late for a known reason, one for a hostile name, and one for an unknown reason.
    fn run() -> Run {
        let wakeups = worst_table(&[
            (0, 1, 312_000, 4_326_123_456, Some((290_000, "interrupts", "softirq", "NET_RX"))),
            (0, 2, 90_000, 7_000_000, Some((70_000, "tasks", "task", "a<b>&\u{1b}"))),
            (1, 1, 205_000, 12_000_000, Some((180_000, "late timer", "task", "idle"))),
            (1, 2, 40_000, 0, None),
        ]);
        let parts = [
            (0, 1, 4_000, "late timer"),
            (0, 1, 6_000, "interrupts"),
            (0, 1, 290_000, "interrupts"),
            (0, 1, 9_000, "switch"),
            (0, 1, 3_000, "return"),
            (0, 2, 12_000, "late timer"),
            (0, 2, 70_000, "tasks"),
            (0, 2, 8_000, "a class of the future"),
            (1, 1, 180_000, "late timer"),
            (1, 1, 25_000, "interrupts"),
            (7, 1, 999_999, "not drawn"),
        ];
        run_of(vec![wakeups, parts_table(parts.into_iter())])
    }

    #[test]
    fn a_bar_shows_what_delayed_a_wakeup() {
        golden("worst", worst(&run(), WIDTH));
        golden("worst_narrow", worst(&run(), NARROW));
        assert_eq!(worst(&run_of(vec![]), WIDTH).unwrap(), None);
        assert_eq!(worst(&run_of(vec![worst_table(&[])]), WIDTH).unwrap(), None);
    }

    #[test]
    fn without_probes_bars_are_undivided() {
        let run = run_of(vec![worst_table(&[(3, 1, 50_000, 1_000_000, None)])]);
        golden("worst_without_causes", worst(&run, WIDTH));
    }

    #[test]
    fn a_bar_of_very_many_parts_keeps_the_time_of_each_class() {
        let wakeups = worst_table(&[(0, 1, 60_000_000, 0, None)]);
        let classes = ["interrupts", "tasks", "late timer"];
        let part = |index: usize| (0, 1, 1_000 + index as u64 % 7, classes[index % 3]);
        let run = run_of(vec![wakeups, parts_table((0..50_000).map(part))]);
        let table = run.table("worst").unwrap();
        let mut wakeup = LateWakeup::worst_of_table(table).remove(0);
        rows(run.table("worst_parts").unwrap()).for_each(|part| wakeup.add_part(&part));
        let drawn = wakeup.drawn_parts();
        assert!(drawn.len() <= PARTS_MAX, "{}", drawn.len());
        for class in Class::ALL {
            let sum = |parts: &[(Class, f64)]| -> f64 {
                parts.iter().filter(|(other, _)| *other == class).map(|(_, time)| time).sum()
            };
            assert_eq!(sum(&drawn), sum(&wakeup.parts), "{}", class.label());
        }
        let svg = worst(&run, WIDTH).unwrap().unwrap().file();
        checked(&svg);
        assert!(svg.len() < 30_000, "{}", svg.len());
    }

    #[test]
    fn any_numbers_make_a_picture() {
        let columns = ["cpu", "rank", "late_ns", "due_ns", "length_ns", "largest_ns"];
        let columns = columns.map(|name| (name, Kind::Real));
        let strange = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 1.8e19, 1e300];
        let rows: Vec<Vec<Value>> =
            strange.iter().map(|number| vec![Value::Real(*number); 6]).collect();
        let run = run_of(vec![
            table("worst", &columns, rows.clone()),
            table("worst_parts", &columns, [rows.clone(), rows].concat()),
        ]);
        for width in [WIDTH, NARROW] {
            checked(&worst(&run, width).unwrap().unwrap().file());
        }
    }
}
