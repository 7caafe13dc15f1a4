//! The picture of a comparison (`irqlab compare`, and pages with several runs): a point with an interval for each
//! figure. Costs and benefits come first, what became worse before what became better; then other figures that changed.
//! Among equal verdicts the picture keeps the order of the table `differences`.

use plotters::style::RGBColor;
use record::{Run, Table};

use super::axis::Axis;
use super::chart::{Chart, Look, room_for_names};
use super::palette::{BLUE, GREY, INK, ORANGE, VERMILION};
use super::rows;
use super::sheet::{
    Entry, Heading, NARROW_BELOW, Sheet, Undrawn, draw, units, without_shared_parts,
};
use crate::human;
use crate::row::Row;

/// Maximum number of figures of the picture.
const FIGURES_MAX: usize = 30;
/// Height of a line with one figure, pixels.
const LINE_HEIGHT: f64 = 22.0;
/// Largest change that is drawn at its place. Larger changes are drawn at the edge.
const CHANGE_MAX: f64 = 2.0;

/// Distance of the label from a mark at the left edge, to the right, pixels.
const LABEL_DISTANCE_AT_LEFT: f64 = 28.0;
/// Distance of the label from a mark at the right edge, to the right, pixels. The label is at the left of the mark.
const LABEL_DISTANCE_AT_RIGHT: f64 = -30.0;

/// The verdicts of a comparison, in the order of the title and the legend: name, colour, and pattern of the mark. Figures
/// that only one run has (`missing`, `added`) have no change to draw, and the title counts them.
const VERDICTS: [(&str, RGBColor, usize); 7] = [
    ("worse", VERMILION, 3),
    ("changed", ORANGE, 2),
    ("better", BLUE, 0),
    ("can't tell", GREY, 1),
    ("missing", GREY, 1),
    ("added", GREY, 1),
    ("equal", GREY, 1),
];

/// The verdicts of figures that changed, in the order in which figures are drawn. Other verdicts come after them.
const DRAWN_ORDER: [&str; 3] = ["worse", "better", "changed"];

/// Colour and pattern of a verdict's mark. An unknown verdict is grey.
fn look(verdict: &str) -> Look {
    let entry = VERDICTS.iter().find(|(known, ..)| *known == verdict);
    entry.map_or(Look { colour: GREY, pattern: 1 }, |(_, colour, pattern)| Look {
        colour: *colour,
        pattern: *pattern,
    })
}

/// A compared figure.
struct Change {
    name: String,
    verdict: String,
    /// The change as a part of the first run's figure.
    ratio: f64,
    /// Ends of the interval of `ratio`, or `None` if it has no interval.
    ends: Option<(f64, f64)>,
}

impl Change {
    /// The ends of the interval. Without an interval, both are the change itself.
    fn interval(&self) -> (f64, f64) {
        self.ends.unwrap_or((self.ratio, self.ratio))
    }

    /// The distance from 0 to the farthest end of the interval, or to the change itself if that is larger.
    fn largest_distance(&self) -> f64 {
        let (low, high) = self.interval();
        self.ratio.abs().max(low.abs()).max(high.abs())
    }
}

/// The change of a row of the table. `None` for a figure whose change has no ratio, such as from 0.
fn change(row: &Row<'_>) -> Option<Change> {
    let name = format!("{} {}", row.value_text("row"), row.value_text("column"));
    let ends = row.number("change_low_ratio").zip(row.number("change_high_ratio"));
    let ratio = row.number("change_ratio")?;
    Some(Change { name: name.trim().to_owned(), verdict: row.value_text("verdict"), ratio, ends })
}

/// The names of changes, without what all of them share: their first words, words `all`, and parts of the condition. A
/// name longer than `length_max` characters keeps its first word, such as the condition, and its end.
fn names(changes: &[&Change], length_max: usize) -> Vec<String> {
    let mut word_lists: Vec<Vec<String>> = changes
        .iter()
        .map(|change| {
            let words = change.name.split(' ').filter(|word| *word != "all");
            words.map(str::to_owned).collect()
        })
        .collect();
    let length_min = word_lists.iter().map(Vec::len).min().unwrap_or(1);
    let shared_count = (0..length_min.saturating_sub(1))
        .take_while(|index| word_lists.iter().all(|list| list[*index] == word_lists[0][*index]))
        .count();
    word_lists.iter_mut().for_each(|list| drop(list.drain(..shared_count)));
    let first_words: Vec<&str> =
        word_lists.iter().map(|list| list.first().map_or("", String::as_str)).collect();
    let conditions = without_shared_parts(&first_words);
    for (list, condition) in word_lists.iter_mut().zip(conditions) {
        list.splice(..list.len().min(1), [condition]);
    }
    word_lists.into_iter().map(|words| shortened_in_the_middle(&words, length_max)).collect()
}

/// The words as a text of at most `length_max` characters. A longer text loses its middle.
fn shortened_in_the_middle(words: &[String], length_max: usize) -> String {
    let text = words.join(" ");
    let count = text.chars().count();
    let first = words.first().map_or(0, |word| word.chars().count());
    if count <= length_max {
        return text;
    }
    // The first word, a space, the dots, and at least half of the text's room for the end.
    let beginning = if first + 2 <= length_max / 2 { first + 1 } else { 0 };
    let end = length_max.saturating_sub(beginning + 1);
    let kept: String = text.chars().take(beginning).collect();
    format!("{kept}…{}", text.chars().skip(count - end).collect::<String>())
}

/// The picture of table `differences`. `None` for a run that is no comparison, and for a comparison without a change to
/// draw.
pub fn changes(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("differences") else { return Ok(None) };
    let mut all_changes: Vec<Change> = rows(table).filter_map(|row| change(&row)).collect();
    let rank = |change: &Change| {
        DRAWN_ORDER.iter().position(|verdict| *verdict == change.verdict).unwrap_or(usize::MAX)
    };
    all_changes.sort_by_key(rank);
    let drawn: Vec<&Change> = all_changes.iter().take(FIGURES_MAX).collect();
    if drawn.is_empty() {
        return Ok(None);
    }
    let largest = drawn.iter().map(|change| change.largest_distance()).fold(0.0, f64::max);
    let distance_max = largest.min(CHANGE_MAX);
    let names = names(&drawn, if width < NARROW_BELOW { 32 } else { 56 });
    let height = 80.0 + LINE_HEIGHT * drawn.len() as f64;
    let heading = heading(run, table, &drawn, distance_max);
    let sheet = draw(&heading, width, height, |area| {
        let name_room = room_for_names(names.iter().map(String::as_str));
        let intervals = || drawn.iter().map(|change| change.interval());
        let low = intervals().map(|(low, _)| low).fold(0.0, f64::min).max(-distance_max);
        let high = intervals().map(|(_, high)| high).fold(0.0, f64::max).min(distance_max);
        let x = Axis::changes("change from the first run", low, high);
        let y = Axis::names(&names);
        let plot_area = area.part((0, 0), (units(width) as u32, units(height) as u32));
        let mut chart = Chart::with_room(&plot_area, "", [&x, &y], [name_room, 34.0])?;
        let no_change = [(0.0, 0.0), (0.0, names.len() as f64)];
        chart.line(&no_change, Look { colour: INK, pattern: 0 }, 1.2)?;
        for (index, change) in drawn.iter().enumerate() {
            let middle = names.len() as f64 - index as f64 - 0.5;
            draw_change(&mut chart, change, x.ends(), middle)?;
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// Title, notes and legend of the picture. `table`: the table `differences` of `run`. `drawn`: the drawn changes.
/// `distance_max`: the largest change that the axis shows, as a part of the first run's figure.
fn heading(run: &Run, table: &Table, drawn: &[&Change], distance_max: f64) -> Heading {
    // The title counts all figures of the comparison. The settings have these numbers, because the table of a long
    // comparison does not list every figure, and a figure without a ratio is not drawn.
    let setting = |name: &str| Some(run.settings.get(name)?.as_u64()? as usize);
    let figure_count = setting("figure_count").unwrap_or(table.row_count() as usize);
    let count = |verdict: &str| {
        let listed = rows(table).filter(|row| row.value_text("verdict") == verdict).count();
        match verdict {
            "can't tell" => setting("undecided_count").unwrap_or(listed),
            _ => listed,
        }
    };
    let changed_count: usize = DRAWN_ORDER.iter().map(|verdict| count(verdict)).sum();
    let counts: Vec<String> = VERDICTS
        .iter()
        .map(|(verdict, ..)| (count(verdict), *verdict))
        .filter(|(count, _)| *count > 0)
        .map(|(count, verdict)| format!("{count} {verdict}"))
        .collect();
    let mut notes = vec![
        "Points: change as a part of the first run's figure. Whiskers: 95 % intervals that hold together for \
         all figures; none where runs are exact, or where a figure has no interval."
            .to_owned(),
    ];
    if figure_count > drawn.len() {
        notes.push(format!(
            "Drawn are {} of {} figures: worse, then better, then changed, then others; see table differences.",
            drawn.len(),
            figure_count
        ));
    }
    if drawn.iter().any(|change| change.largest_distance() > distance_max) {
        notes.push(format!(
            "Changes beyond ±{} are drawn at the edge.",
            human::percent(distance_max)
        ));
    }
    let drawn_verdicts = VERDICTS
        .iter()
        .filter(|(verdict, ..)| drawn.iter().any(|change| change.verdict == *verdict));
    let legend =
        drawn_verdicts.map(|(name, colour, _)| Entry { name: (*name).to_owned(), colour: *colour });
    Heading {
        title: format!("{changed_count} of {figure_count} figures changed: {}", counts.join(", ")),
        notes,
        legend: legend.collect(),
        description: "A point with an interval for each figure: how much it changed. The numbers are in table \
                      differences."
            .to_owned(),
    }
}

/// Draws a change at the height `middle` of the vertical axis: its interval, its mark, and a label if the change is
/// beyond `axis_ends`, the ends of the horizontal axis.
fn draw_change(
    chart: &mut Chart<'_>,
    change: &Change,
    axis_ends: (f64, f64),
    middle: f64,
) -> Result<(), Undrawn> {
    let look = look(&change.verdict);
    if let Some(ends) = change.ends.filter(|(low, high)| low < high) {
        chart.bar_whisker(middle, ends, look)?;
    }
    let (axis_start, axis_end) = axis_ends;
    let drawn_ratio = change.ratio.clamp(axis_start, axis_end);
    let is_open = false;
    chart.mark((drawn_ratio, middle), look, is_open)?;
    // The mark at the edge does not say how far the change goes.
    if drawn_ratio != change.ratio {
        let distance =
            if change.ratio < 0.0 { LABEL_DISTANCE_AT_LEFT } else { LABEL_DISTANCE_AT_RIGHT };
        let label = human::signed_percent(change.ratio);
        let place = chart.moved_right(drawn_ratio, distance);
        chart.centered_text(&label, (place, middle), [0.0, 0.0], INK)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{golden, run_of, table};
    use record::{Kind, Value};

    /// Verdict, row, change and its interval.
    type Difference = (&'static str, &'static str, f64, Option<(f64, f64)>);

    fn differences(rows: &[Difference]) -> Run {
        let columns = [
            ("verdict", Kind::Text),
            ("row", Kind::Text),
            ("column", Kind::Text),
            ("change_ratio", Kind::Real),
            ("change_low_ratio", Kind::Real),
            ("change_high_ratio", Kind::Real),
        ];
        let row = |(verdict, row, change, ends): &Difference| {
            let (low, high) = ends.map_or((None, None), |(low, high)| (Some(low), Some(high)));
            let values: Vec<Value> = vec![
                (*verdict).into(),
                (*row).into(),
                "mean_ns".into(),
                (*change).into(),
                low.into(),
                high.into(),
            ];
            values
        };
        run_of(vec![table("differences", &columns, rows.iter().map(row).collect())])
    }

    #[test]
    fn the_title_counts_figures_without_a_ratio_and_the_note_says_that_they_are_not_drawn() {
        let mut run = differences(&[
            ("worse", "a", 0.5, None),
            ("equal", "b", 0.0, None),
            // A verdict of another version is drawn, but it is no known change.
            ("unknown", "c", 0.1, None),
        ]);
        for name in ["d", "e"] {
            let without_ratio = ["worse", name, "mean_ns"].map(Value::from).to_vec();
            run.tables[0].push([without_ratio, vec![Value::Absent; 3]].concat());
        }
        let heading = |run: &Run| changes(run, WIDTH).unwrap().unwrap().heading;
        assert_eq!(heading(&run).title, "3 of 5 figures changed: 3 worse, 1 equal");
        assert!(heading(&run).notes[1].starts_with("Drawn are 3 of 5 figures: "));
        run.settings.insert("figure_count".to_owned(), 9.into());
        run.settings.insert("undecided_count".to_owned(), 5.into());
        assert_eq!(heading(&run).title, "3 of 9 figures changed: 3 worse, 5 can't tell, 1 equal");
    }

    #[test]
    fn the_title_counts_figures_that_only_one_run_has() {
        let mut run = differences(&[("can't tell", "a", 0.5, Some((-1.0, 2.0)))]);
        for verdict in ["missing", "missing", "added"] {
            let of_one_run = [verdict, "b", "mean_ns"].map(Value::from).to_vec();
            run.tables[0].push([of_one_run, vec![Value::Absent; 3]].concat());
        }
        let sheet = changes(&run, WIDTH).unwrap().unwrap();
        let expected = "0 of 4 figures changed: 1 can't tell, 2 missing, 1 added";
        assert_eq!(sheet.heading.title, expected);
    }

    #[test]
    fn names_differ_where_rows_do_and_far_changes_are_at_the_edge() {
        let run = differences(&[
            ("worse", "idle all irq 36 disk", 0.5, Some((0.4, 0.6))),
            ("better", "idle all softirq 4 BLOCK", -0.2, Some((-0.3, -0.1))),
            ("changed", "idle all vector 1 timer", 90.0, None),
        ]);
        golden("changes", changes(&run, WIDTH));
        golden("changes_narrow", changes(&run, NARROW));
        assert_eq!(changes(&differences(&[]), WIDTH).unwrap(), None);
        let equal = differences(&[("equal", "a", 0.0, None)]);
        golden("changes_of_equal_runs", changes(&equal, WIDTH));
    }

    #[test]
    fn names_keep_what_tells_them_apart() {
        let change = |name: &str| Change {
            name: name.to_owned(),
            verdict: "worse".to_owned(),
            ratio: 0.1,
            ends: None,
        };
        let changes = ["idle", "busy"]
            .map(|load| change(&format!("{load}/low/timer all vector 0 local_timer self_p50_ns")));
        let shown: Vec<&Change> = changes.iter().collect();
        assert_eq!(
            names(&shown, 60),
            ["idle vector 0 local_timer self_p50_ns", "busy vector 0 local_timer self_p50_ns"]
        );
        assert_eq!(names(&shown, 25), ["idle …l_timer self_p50_ns", "busy …l_timer self_p50_ns"]);
        assert_eq!(names(&shown[..1], 60), ["self_p50_ns"]);
    }

    #[test]
    fn costs_and_benefits_are_drawn_before_other_figures() {
        let rows = [("equal", "e"), ("changed", "c"), ("better", "b"), ("worse", "w")];
        let rows = rows.map(|(verdict, name)| (verdict, name, 0.5, None));
        let svg = changes(&differences(&rows), WIDTH).unwrap().unwrap().file();
        let place = |name: &str| svg.find(&format!("{name} mean_ns")).expect(name);
        // The names are written from below.
        let from_below = ["e", "c", "b", "w"].map(place);
        assert!(from_below.is_sorted(), "{svg}");
    }
}
