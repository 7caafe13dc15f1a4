//! The page of a sweep: its answers, pictures over its axes, and the table of its combinations.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use record::Run;

use super::figures::figure;
use super::{SCRIPT, head, tables, theme};
use crate::escape::plain;
use crate::picture::{
    Drawn, NARROW, Picture, SweepFigures, SweepPoint, Undrawn, WIDTH, heat_map, over_axis,
};
use crate::words;

/// Maximum number of axes with a picture.
const AXES_MAX: usize = 6;
/// Prefix of the HTML ids.
const PREFIX: &str = "sweep";

/// What the page of a sweep shows.
#[derive(Clone, Copy, Debug)]
pub struct SweepPage<'a> {
    pub figures: &'a SweepFigures<'a>,
    /// The report as a run: its first table has a row for each combination.
    pub report: &'a Run,
    /// Sentences with the main results.
    pub answers: &'a [String],
    /// The command that prints the table.
    pub print_command: &'a str,
    /// The command that makes the page again.
    pub command: &'a str,
}

/// A picture in two widths.
struct BothWidths {
    id: String,
    wide: Picture,
    narrow: Picture,
}

/// The page of a sweep as one HTML document: the heat map first, then a picture over each axis, then the table.
///
/// Fails when a picture cannot be drawn.
pub fn sweep_page(page: SweepPage<'_>) -> Result<String, Undrawn> {
    let drawn = Drawn::new(page.figures);
    let mut pictures = Vec::new();
    // Returns whether the picture can be drawn.
    let mut add_picture = |id: String, draw: &dyn Fn(f64) -> Result<Option<_>, Undrawn>| {
        if let (Some(wide), Some(narrow)) = (draw(WIDTH)?, draw(NARROW)?) {
            let picture = |sheet| Picture { name: "picture", tables: &["combinations"], sheet };
            pictures.push(BothWidths { id, wide: picture(wide), narrow: picture(narrow) });
            return Ok::<bool, Undrawn>(true);
        }
        Ok(false)
    };
    add_picture(format!("{PREFIX}-map"), &|width| heat_map(&drawn, width))?;
    let mut undrawn_axes = Vec::new();
    for axis in drawn.varying.iter().take(AXES_MAX) {
        if !add_picture(format!("{PREFIX}-axis-{axis}"), &|width| over_axis(&drawn, *axis, width))?
        {
            undrawn_axes.push(plain(&page.figures.axes[*axis].name));
        }
    }
    let undrawn_axis_count = drawn.varying.len().saturating_sub(AXES_MAX);
    Ok(document(page, &pictures, undrawn_axis_count, &undrawn_note(page.figures, &undrawn_axes)))
}

/// Says why the axes with these names have no picture. Empty without such axes.
fn undrawn_note(figures: &SweepFigures<'_>, axes: &[String]) -> String {
    if axes.is_empty() {
        return String::new();
    }
    let is_negative = |point: &SweepPoint| point.figure.is_some_and(|figure| figure < 0.0);
    let reason = if figures.points.iter().any(is_negative) {
        "a figure is negative"
    } else {
        "no figure there is a measurement (bounds are no points)"
    };
    format!("Not drawn, because {reason}: pictures over {}.", axes.join(", "))
}

/// The HTML document. `undrawn`: number of axes beyond [`AXES_MAX`]. `undrawn_note`: why other axes have
/// no picture; can be empty.
fn document(
    page: SweepPage<'_>,
    pictures: &[BothWidths],
    undrawn: usize,
    undrawn_note: &str,
) -> String {
    let has_pictures = !pictures.is_empty() || !undrawn_note.is_empty();
    let SweepPage { figures, report, answers, print_command, command } = page;
    let title = format!("{}: {}", plain(&report.experiment), plain(&figures.name));
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&title))
            body {
                a.skip href="#answers" { "Skip to the answers" }
                header {
                    p.product { "irqlab sweep report" }
                    h1 { (title) }
                    (contents(has_pictures))
                }
                main {
                    (answers_section(report, answers))
                    @if has_pictures {
                        section id="pictures" aria-labelledby="pictures-title" {
                            h2 id="pictures-title" { "Pictures" }
                            @for BothWidths { id, wide, narrow } in pictures {
                                div.kind { (figure(&[(wide, "wide"), (narrow, "narrow")], id, None, html! {})) }
                            }
                            @if !undrawn_note.is_empty() {
                                p.note { (undrawn_note) }
                            }
                            @if undrawn > 0 {
                                p.note { "Not drawn: " (undrawn) " more axes with a smaller effect." }
                            }
                        }
                    }
                    section id="combinations" aria-labelledby="combinations-title" {
                        h2 id="combinations-title" { "Combinations" }
                        @for table in &report.tables {
                            (tables::table(report, table, PREFIX, &format!("{} --all", plain(print_command))))
                        }
                        (absences(report))
                    }
                }
                (footer(command, "sweep"))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    text_of(markup)
}

/// How the page was made. `source`: what has the runs, `sweep` or `fleet`.
pub(super) fn footer(command: &str, source: &str) -> Markup {
    html! {
        footer {
            p {
                "Made by " code { (plain(command)) } " from the runs of the " (source) " alone. "
                "A dash (–) is a number that was not measured; it is never zero."
            }
        }
    }
}

/// The text of a page, with a replacement for two characters that HTML does not allow, but names may contain.
pub(super) fn text_of(page: Markup) -> String {
    page.into_string().replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

/// The links to the sections, and the choice of colours.
fn contents(has_pictures: bool) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                li { a href="#answers" { "Answers" } }
                @if has_pictures { li { a href="#pictures" { "Pictures" } } }
                li { a href="#combinations" { "Combinations" } }
            }
            (theme())
        }
    }
}

/// The section with the main results, and the warnings of the report.
pub(super) fn answers_section(report: &Run, answers: &[String]) -> Markup {
    html! {
        section id="answers" aria-labelledby="answers-title" tabindex="-1" {
            h2 id="answers-title" { "Answers" }
            div.answer {
                @for (index, answer) in answers.iter().enumerate() {
                    p.sentence { @if index == 0 { strong { (plain(answer)) } } @else { (plain(answer)) } }
                }
                p.basis { (words::title(report)) "." }
                @let warnings = words::warnings(report);
                @if !warnings.is_empty() {
                    ul.warnings { @for warning in &warnings { li { strong { "Warning: " } (warning) } } }
                }
            }
        }
    }
}

/// Combinations or hosts without a figure, with the reasons.
pub(super) fn absences(report: &Run) -> Markup {
    let absences = words::grouped_absences(report);
    html! {
        @if !absences.is_empty() {
            h3 { "Without a figure" }
            ul.missing {
                @for absence in &absences {
                    li {
                        (absence.what) ": " (absence.reason)
                        @if let Some(remedy) = &absence.remedy { br; code { (remedy) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use record::{Column, Kind};

    use super::*;

    #[test]
    fn axes_without_a_picture_have_the_reason() {
        let column = Column::new("self_mean_ns", Kind::Real, "");
        let note = |figures: [Option<f64>; 2], axes: &[String]| {
            let point = |figure: Option<f64>| SweepPoint {
                values: vec![0],
                figure,
                interval: None,
                change: None,
                remark: String::new(),
            };
            let figures = SweepFigures {
                column: &column,
                name: String::new(),
                axes: Vec::new(),
                points: figures.into_iter().map(point).collect(),
                compared_with: String::new(),
            };
            undrawn_note(&figures, axes)
        };
        let axes = ["-d".to_owned(), "--on".to_owned()];
        let bounds = note([None, None], &axes);
        let negative = note([Some(-1.0), None], &axes);
        assert_eq!(
            [bounds.as_str(), negative.as_str()],
            [
                "Not drawn, because no figure there is a measurement (bounds are no points): pictures over -d, --on.",
                "Not drawn, because a figure is negative: pictures over -d, --on."
            ]
        );
        assert_eq!(note([None, None], &[]), "");
    }
}
