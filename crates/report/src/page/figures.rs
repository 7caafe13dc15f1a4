//! The pictures of a page. Pictures of one kind, such as `costs`, stand next to each other for all runs that have
//! them. Each picture is drawn in two widths, and the style sheet shows the one that fits.

use maud::{Markup, PreEscaped, html};
use record::Run;

use super::{Comparison, Entry, name_of, tables};
use crate::picture::{NARROW, Picture, Undrawn, pictures, pictures_at};
use crate::words;

/// The pictures of a run in two widths. Both lists have the same kinds in the same order.
struct RunPictures {
    /// For a screen of usual size, and for paper.
    wide: Vec<Picture>,
    /// For a phone, and for a place next to the picture of another run.
    narrow: Vec<Picture>,
}

impl RunPictures {
    fn new(run: &Run) -> Result<RunPictures, Undrawn> {
        Ok(RunPictures { wide: pictures(run)?, narrow: pictures_at(run, NARROW)? })
    }

    /// The wide and the narrow picture with this name. `None` if the run does not have both.
    fn get(&self, name: &str) -> Option<(&Picture, &Picture)> {
        let index = |pictures: &[Picture]| pictures.iter().position(|picture| picture.name == name);
        Some((&self.wide[index(&self.wide)?], &self.narrow[index(&self.narrow)?]))
    }
}

/// Pictures of each run, and of each comparison.
pub struct Figures {
    runs: Vec<RunPictures>,
    /// Pictures of comparisons with the first run, each with the index of the other run.
    changes: Vec<(usize, RunPictures)>,
}

/// Draws the pictures of all runs, and of all comparisons that have a result.
pub fn draw_all(runs: &[Entry<'_>], comparisons: &[Comparison<'_>]) -> Result<Figures, Undrawn> {
    let run_pictures =
        runs.iter().map(|entry| RunPictures::new(entry.run)).collect::<Result<_, _>>()?;
    let results = comparisons
        .iter()
        .filter_map(|comparison| Some((comparison.other, comparison.result.ok()?)));
    let change_pictures = results.map(|(other, run)| Ok((other, RunPictures::new(run)?)));
    Ok(Figures { runs: run_pictures, changes: change_pictures.collect::<Result<_, Undrawn>>()? })
}

impl Figures {
    /// Whether no run has a picture.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(|pictures| pictures.wide.is_empty())
    }

    /// Pictures of the comparison of the first run with the run with index `other`.
    pub fn changes(&self, other: usize) -> Markup {
        let pictures =
            self.changes.iter().find(|(index, _)| *index == other).map(|(_, pictures)| pictures);
        html! {
            @if let Some(pictures) = pictures {
                @for (wide, narrow) in pictures.wide.iter().zip(&pictures.narrow) {
                    (figure(&[(wide, "wide"), (narrow, "narrow")], &format!("change-{}", other + 1), None, html! {}))
                }
            }
        }
    }

    /// Pictures of all runs, by kind.
    pub fn of_all_runs(&self, runs: &[Entry<'_>]) -> Markup {
        let mut names: Vec<&str> = Vec::new();
        for picture in self.runs.iter().flat_map(|pictures| &pictures.wide) {
            if !names.contains(&picture.name) {
                names.push(picture.name);
            }
        }
        html! {
            @for name in names {
                @let same_kind: Vec<(usize, (&Picture, &Picture))> = self.runs.iter().enumerate()
                    .filter_map(|(index, pictures)| Some((index, pictures.get(name)?)))
                    .collect();
                @let is_next_to_others = same_kind.len() > 1;
                div.kind.side[is_next_to_others] {
                    @for (run_index, (wide, narrow)) in &same_kind {
                        @let run_name = (runs.len() > 1).then(|| name_of(runs, *run_index));
                        @let id = format!("picture-{}", run_index + 1);
                        @let basis = basis(runs, *run_index, wide);
                        @if is_next_to_others {
                            (figure(&[(narrow, "only")], &id, run_name, basis))
                        } @else {
                            (figure(&[(wide, "wide"), (narrow, "narrow")], &id, run_name, basis))
                        }
                    }
                }
            }
        }
    }
}

/// The notes below a picture: the tables that it shows, the commands that print them, and how they were measured.
fn basis(runs: &[Entry<'_>], run_index: usize, picture: &Picture) -> Markup {
    let Entry { run, directory } = runs[run_index];
    let tables = || picture.tables.iter().filter_map(|name| run.table(name));
    html! {
        @for table in tables() {
            p.note {
                "Numbers: table " a href=(format!("#{}", tables::id(run_index, &table.name))) { (table.name) }
                ", printed by " code { (format!("irqlab show {} {}", words::shell_word(directory), table.name)) }
                "."
            }
        }
        @let methods: Vec<String> = tables().map(|table| words::method(run, table))
            .filter(|method| !method.is_empty()).collect();
        @if !methods.is_empty() {
            details.note {
                summary { "How it was measured" }
                @for method in methods { p { (tables::sentence(&method)) } }
            }
        }
    }
}

/// An HTML figure with a version of one picture for each medium. `prefix`: start of its HTML ids. `run_name`: name of
/// the run if the page has several.
pub(super) fn figure(
    media: &[(&Picture, &str)],
    prefix: &str,
    run_name: Option<String>,
    basis: Markup,
) -> Markup {
    let Some((picture, _)) = media.first() else { return html! {} };
    let heading = &picture.sheet.heading;
    let id = format!("{prefix}-{}", picture.name);
    html! {
        figure id=(id) {
            figcaption {
                @if let Some(run_name) = run_name { p.which { (run_name) } }
                h3 { (heading.title) }
                @for note in &heading.notes { p { (note) } }
            }
            @for (picture, medium) in media {
                div class=(format!("medium {medium}")) {
                    div.picture role="group" aria-label=(format!("{}, to scroll and zoom", heading.title)) tabindex="0" {
                        (PreEscaped(picture.sheet.inline(&format!("{id}-{medium}"))))
                    }
                }
            }
            (basis)
        }
    }
}
