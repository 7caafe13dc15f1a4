//! Pictures of `footprint`: the lines that an interrupt displaces, and the additional misses of each context. A panel
//! of bars for each level of cache or TLB.

use record::{Run, Table};

use super::axis::Axis;
use super::bars::{Bar, draw_panels};
use super::palette::{BLUE, GREEN, ORANGE, VERMILION};
use super::rows;
use super::sheet::{Entry, Heading, Sheet, Undrawn};
use crate::displaced::{
    AT_LEAST, AT_MOST, displaced as displaced_lines, displaced_bound, displaced_share,
    most_displaced,
};
use crate::human::{self, Quantity};
use crate::row::Row;

/// Maximum number of bars of a panel.
const BARS_MAX: usize = 16;
/// Maximum number of rows that a note names.
const ABSENT_MAX: usize = 4;

/// The levels of a table, in order of their first rows.
fn levels(table: &Table) -> Vec<String> {
    let mut levels: Vec<String> = Vec::new();
    for row in rows(table) {
        let level = row.value_text("level");
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    levels
}

/// A picture with a panel for each level of the table. `bar` makes the bar of a row, or `None` to leave the row out.
/// The longest bar is first. `axis_title`: title of the horizontal axis. `None` without any bar.
fn draw_levels(
    mut heading: Heading,
    table: &Table,
    axis_title: &str,
    width: f64,
    bar: impl Fn(&Row<'_>) -> Option<Bar>,
) -> Result<Option<Sheet>, Undrawn> {
    let (mut panels, mut dropped) = (Vec::new(), 0);
    for level in levels(table) {
        let level_rows = rows(table).filter(|row| row.value_text("level") == level);
        let mut bars: Vec<Bar> = level_rows.filter_map(|row| bar(&row)).collect();
        bars.sort_by(|a, b| b.length().total_cmp(&a.length()));
        dropped += bars.len().saturating_sub(BARS_MAX);
        bars.truncate(BARS_MAX);
        if !bars.is_empty() {
            panels.push((level.to_uppercase(), bars));
        }
    }
    if panels.is_empty() {
        return Ok(None);
    }
    if dropped > 0 {
        heading.notes.push(format!("Not drawn: {dropped} smaller ones; see table {}.", table.name));
    }
    heading.description += &format!(" The numbers are in table {} of the run.", table.name);
    let axis = |longest| Axis::linear(axis_title, Quantity::Count, 0.0, longest);
    draw_panels(&heading, width, &panels, axis).map(Some)
}

/// A note about the rows without a number of lines, which have no bar. `None` without such rows.
fn absent_note(table: &Table) -> Option<String> {
    let absent = rows(table).filter(|row| row.number("displaced_lines").is_none());
    let name = |row: Row<'_>| {
        let level = row.value_text("level").to_uppercase();
        format!("{}, {} ({level})", row.value_text("stimulus"), row.value_text("method"))
    };
    let names: Vec<String> = absent.map(name).collect();
    match &names[..] {
        [] => None,
        [..] if names.len() <= ABSENT_MAX => {
            Some(format!("Without a number, so not drawn: {}.", names.join("; ")))
        }
        _ => Some(format!(
            "Without a number, so not drawn: {} rows; see table {}.",
            names.len(),
            table.name
        )),
    }
}

/// The picture of table `footprint`: the lines that each stimulus displaces. `None` for a run without displaced lines.
pub fn displaced(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("footprint") else { return Ok(None) };
    let most = most_displaced(table);
    let Some((row, figure)) = most.first().and_then(|row| Some((row, displaced_lines(row)?)))
    else {
        return Ok(None);
    };
    let mut notes = vec!["Whiskers: 95 % intervals. Orange: a bound.".to_owned()];
    notes.extend(absent_note(table));
    let heading = Heading {
        title: format!(
            "Cache lines that an interrupt displaces: {} takes {}{} of {}",
            row.value_text("stimulus"),
            displaced_bound(row),
            human::number(figure.value.max(0.0)),
            row.value_text("level").to_uppercase()
        ),
        notes,
        description: "Bars of displaced lines, by cache level, stimulus and method.".to_owned(),
        ..Heading::default()
    };
    draw_levels(heading, table, "displaced cache lines", width, |row| {
        row.number("displaced_lines")?;
        let figure = displaced_lines(row)?;
        let value = figure.value.max(0.0);
        let share = displaced_share(row)
            .map_or(String::new(), |share| format!(", {} of it", human::percent(share)));
        let sign = match displaced_bound(row) {
            AT_MOST => "≤ ",
            AT_LEAST => "≥ ",
            _ => "",
        };
        Some(Bar {
            name: format!("{}, {}", row.value_text("stimulus"), row.value_text("method")),
            parts: vec![(value, if sign.is_empty() { BLUE } else { ORANGE })],
            // An upper bound has no lower end.
            interval: figure.has_upper_end().then_some((figure.low.max(0.0), figure.high.max(0.0))),
            label: format!("{sign}{}", human::number(value)),
            detail: format!(" lines{share}"),
        })
    })
}

/// The picture of table `by_context`: additional misses of each context. `None` for a run without this table.
pub fn evictors(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("by_context") else { return Ok(None) };
    let modes = [("user", BLUE), ("kernel", VERMILION), ("exception", ORANGE)];
    let colour = |mode: &str| {
        modes.iter().find(|(known, _)| *known == mode).map_or(GREEN, |(_, colour)| *colour)
    };
    let legend =
        modes.iter().map(|(name, colour)| Entry { name: (*name).to_owned(), colour: *colour });
    let heading = Heading {
        title: "Additional misses of one interrupt, by the context that has them".to_owned(),
        notes: vec![
            "Misses with the interrupt less those without (treatment less control). Those in user mode are \
             lines that the program must fetch again. Whiskers: 95 % intervals."
                .to_owned(),
        ],
        legend: legend.collect(),
        description: "Bars of misses, by cache level, stimulus and context.".to_owned(),
    };
    draw_levels(heading, table, "additional misses", width, |row| {
        let value = row.number("misses").filter(|misses| *misses > 0.0)?;
        let half_width = row.number("misses_ci95");
        Some(Bar {
            name: format!("{}: {}", row.value_text("stimulus"), row.value_text("context")),
            parts: vec![(value, colour(&row.value_text("mode")))],
            interval: half_width.map(|half| ((value - half).max(0.0), value + half)),
            label: human::number(value),
            detail: String::new(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{golden, run_of, table};
    use record::{Kind, Value};

    #[test]
    fn levels_have_one_scale() {
        let columns = [
            ("level", Kind::Text),
            ("stimulus", Kind::Text),
            ("method", Kind::Text),
            ("displaced_lines", Kind::Real),
        ];
        let row = |level: &str, method: &str, lines: f64| -> Vec<Value> {
            vec![level.into(), "timer".into(), method.into(), lines.into()]
        };
        let rows = vec![row("l1d", "a method with a long name", 100.0), row("l1i", "short", 230.0)];
        let run = run_of(vec![table("footprint", &columns, rows)]);
        let sheet = displaced(&run, WIDTH).unwrap().unwrap();
        let [data, instructions] = sheet.plots() else { panic!("two levels") };
        assert_eq!((data.x, data.axis.ends()), (instructions.x, instructions.axis.ends()));
        assert!(sheet.heading.title.ends_with(": timer takes 230 of L1I"));
    }

    #[test]
    fn an_upper_bound_says_so() {
        let columns = [
            ("level", Kind::Text),
            ("stimulus", Kind::Text),
            ("method", Kind::Text),
            ("displaced_lines", Kind::Real),
            ("displaced_ci95_low_lines", Kind::Real),
            ("displaced_ci95_high_lines", Kind::Real),
            ("is_upper_bound", Kind::Bool),
            ("user_misses", Kind::Real),
        ];
        let row = |stimulus: &str, lines: f64, is_bound: bool| -> Vec<Value> {
            vec![
                "l1d".into(),
                stimulus.into(),
                "refined".into(),
                lines.into(),
                (lines - 5.0).into(),
                (lines + 5.0).into(),
                is_bound.into(),
                Value::Absent,
            ]
        };
        let rows =
            vec![row("disk", 266.0, false), row("timer", 300.0, true), row("ipi", -1.0, false)];
        let run = run_of(vec![table("footprint", &columns, rows)]);
        let title = displaced(&run, WIDTH).unwrap().unwrap().heading.title;
        assert!(title.ends_with(": timer takes at most 305 of L1D"), "{title}");
        let all_lines = |misses: Value| {
            let names = ["l1d", "net", "refined"].map(Value::from);
            let interval = [768.0, 768.0].map(Value::from);
            let cells = names.into_iter().chain([Value::Absent]).chain(interval);
            cells.chain([Value::Absent, misses]).collect::<Vec<_>>()
        };
        let heading = |misses: Value| {
            let rows_with_all = vec![row("disk", 266.0, false), all_lines(misses)];
            let saturated = run_of(vec![table("footprint", &columns, rows_with_all)]);
            displaced(&saturated, WIDTH).unwrap().unwrap().heading
        };
        let uncounted = heading(Value::Absent);
        assert!(uncounted.title.ends_with(": disk takes 266 of L1D"), "{}", uncounted.title);
        let heading = heading(800.0.into());
        assert!(heading.title.ends_with(": net takes at least 768 of L1D"), "{}", heading.title);
        assert_eq!(heading.notes[1], "Without a number, so not drawn: net, refined (L1D).");
        golden("displaced", displaced(&run, WIDTH));
        golden("displaced_narrow", displaced(&run, NARROW));
        assert_eq!(displaced(&run_of(vec![]), WIDTH).unwrap(), None);
    }
}
