//! The picture of a comparison (`irqlab compare`, and pages with several runs): a point with an interval for each
//! figure. Costs and benefits come first, what became worse before what became better; then other figures that changed.
//! Among equal verdicts the picture keeps the order of the table `differences`.

use plotters::style::RGBColor;
use record::Run;

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

/// The verdicts of a comparison: name, colour, and pattern of the mark.
const VERDICTS: [(&str, RGBColor, usize); 5] = [
    ("worse", VERMILION, 3),
    ("changed", ORANGE, 2),
    ("better", BLUE, 0),
    ("can't tell", GREY, 1),
    ("equal", GREY, 1),
];

/// The verdicts in the order in which figures are drawn.
const DRAWN_ORDER: [&str; 3] = ["worse", "better", "changed"];

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

fn change(row: &Row<'_>) -> Option<Change> {
    let name = format!("{} {}", row.alone("row"), row.alone("column"));
    let ends = row.number("change_low_ratio").zip(row.number("change_high_ratio"));
    let ratio = row.number("change_ratio")?;
    Some(Change { name: name.trim().to_owned(), verdict: row.alone("verdict"), ratio, ends })
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
    let shortest = word_lists.iter().map(Vec::len).min().unwrap_or(1);
    let shared = (0..shortest.saturating_sub(1))
        .take_while(|index| word_lists.iter().all(|list| list[*index] == word_lists[0][*index]))
        .count();
    word_lists.iter_mut().for_each(|list| drop(list.drain(..shared)));
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

/// The picture of table `differences`. `None` for a run that is no comparison.
pub fn changes(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("differences") else { return Ok(None) };
    let mut all: Vec<Change> = rows(table).filter_map(|row| change(&row)).collect();
    let rank = |change: &Change| {
        DRAWN_ORDER.iter().position(|verdict| *verdict == change.verdict).unwrap_or(usize::MAX)
    };
    all.sort_by_key(rank);
    let has_changed = |change: &&Change| !matches!(change.verdict.as_str(), "equal" | "can't tell");
    let changed_count = all.iter().filter(has_changed).count();
    let shown: Vec<&Change> = all.iter().take(FIGURES_MAX).collect();
    if shown.is_empty() {
        return Ok(None);
    }
    let largest_distance = |change: &&Change| {
        let (low, high) = change.ends.unwrap_or((change.ratio, change.ratio));
        change.ratio.abs().max(low.abs()).max(high.abs())
    };
    let distance_max = shown.iter().map(largest_distance).fold(0.0, f64::max).min(CHANGE_MAX);
    // The numbers of all figures of the comparison, as in its sentence: the table of a long one lists only some, and
    // not every figure has a change to draw.
    let setting = |name: &str| Some(run.settings.get(name)?.as_u64()? as usize);
    let figure_count = setting("figure_count").unwrap_or(all.len());
    let count = |verdict: &str| {
        let counted = rows(table).filter(|row| row.alone("verdict") == verdict).count();
        match verdict {
            "can't tell" => setting("undecided_count").unwrap_or(counted),
            _ => counted,
        }
    };
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
    if all.len() > shown.len() {
        notes.push(format!(
            "Drawn are {} of {} figures: worse, then better, then changed, then others; see table differences.",
            shown.len(),
            figure_count
        ));
    }
    if shown.iter().any(|change| largest_distance(change) > distance_max) {
        notes.push(format!(
            "Changes beyond ±{} are drawn at the edge.",
            human::percent(distance_max)
        ));
    }
    let drawn = VERDICTS
        .iter()
        .filter(|(verdict, ..)| shown.iter().any(|change| change.verdict == *verdict));
    let legend = drawn.map(|(name, colour, _)| Entry { name: (*name).to_owned(), colour: *colour });
    let heading = Heading {
        title: format!("{changed_count} of {figure_count} figures changed: {}", counts.join(", ")),
        notes,
        legend: legend.collect(),
        description: "A point with an interval for each figure: how much it changed. The numbers are in table \
                      differences."
            .to_owned(),
    };
    let names = names(&shown, if width < NARROW_BELOW { 32 } else { 56 });
    let height = 80.0 + LINE_HEIGHT * shown.len() as f64;
    let sheet = draw(&heading, width, height, |area| {
        let name_room = room_for_names(names.iter().map(String::as_str));
        let ends = |pick: fn(&(f64, f64)) -> f64| {
            let ends_of = |change: &&Change| change.ends.unwrap_or((change.ratio, change.ratio));
            shown.iter().map(ends_of).map(move |ends| pick(&ends)).collect::<Vec<f64>>()
        };
        let low = ends(|ends| ends.0).into_iter().fold(0.0, f64::min).max(-distance_max);
        let high = ends(|ends| ends.1).into_iter().fold(0.0, f64::max).min(distance_max);
        let x = Axis::changes("change from the first run", low, high);
        let y = Axis::names(&names);
        let part = area.part((0, 0), (units(width) as u32, units(height) as u32));
        let mut chart = Chart::with_room(&part, "", [&x, &y], [name_room, 34.0])?;
        let no_change = [(0.0, 0.0), (0.0, names.len() as f64)];
        chart.line(&no_change, Look { colour: INK, pattern: 0 }, 1.2)?;
        let (low, high) = x.ends();
        for (index, change) in shown.iter().enumerate() {
            let middle = names.len() as f64 - index as f64 - 0.5;
            let look = look(&change.verdict);
            if let Some(ends) = change.ends.filter(|ends| ends.0 < ends.1) {
                chart.bar_whisker(middle, ends, look)?;
            }
            let drawn = change.ratio.clamp(low, high);
            chart.mark((drawn, middle), look, false)?;
            // The mark at the edge does not say how far the change goes.
            if drawn != change.ratio {
                let sign = if change.ratio < 0.0 { "−" } else { "+" };
                let label = format!("{sign}{}", human::percent(change.ratio.abs()));
                let place = chart.moved_right(drawn, if change.ratio < 0.0 { 28.0 } else { -30.0 });
                chart.centered_text(&label, (place, middle), [0.0, 0.0], INK)?;
            }
        }
        Ok(())
    })?;
    Ok(Some(sheet))
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
