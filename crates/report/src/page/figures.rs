//! Pictures of a page. The pictures of all runs of one kind are next to each other.

use maud::{Markup, PreEscaped, html};
use record::Run;

use super::{Changes, Entry, name_of, tables};
use crate::picture::{NARROW, Picture, Undrawn, pictures, pictures_at};
use crate::words;

/// Pictures of a run in two widths: for a usual screen and paper, and for a phone or next to another run.
struct OfRun {
    wide: Vec<Picture>,
    narrow: Vec<Picture>,
}

impl OfRun {
    fn new(run: &Run) -> Result<OfRun, Undrawn> {
        Ok(OfRun { wide: pictures(run)?, narrow: pictures_at(run, NARROW)? })
    }

    fn get(&self, name: &str) -> Option<(&Picture, &Picture)> {
        let find = |all: &[Picture]| all.iter().position(|picture| picture.name == name);
        Some((&self.wide[find(&self.wide)?], &self.narrow[find(&self.narrow)?]))
    }
}

/// Pictures of each run, and of each comparison.
pub struct Figures {
    runs: Vec<OfRun>,
    /// Pictures of comparisons with the first run, each with the index of the compared run.
    changes: Vec<(usize, OfRun)>,
}

pub fn of_all(runs: &[Entry<'_>], changes: &[Changes<'_>]) -> Result<Figures, Undrawn> {
    let of_runs = runs.iter().map(|entry| OfRun::new(entry.run)).collect::<Result<_, _>>()?;
    let of_changes =
        changes.iter().filter_map(|change| Some((change.new, change.comparison.ok()?)));
    let of_changes = of_changes.map(|(new, run)| Ok((new, OfRun::new(run)?)));
    Ok(Figures { runs: of_runs, changes: of_changes.collect::<Result<_, Undrawn>>()? })
}

impl Figures {
    /// Whether no run has a picture.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(|of_run| of_run.wide.is_empty())
    }

    /// Pictures of the comparison of run number `new` with the first run.
    pub fn of_changes(&self, new: usize) -> Markup {
        let of_run =
            self.changes.iter().find(|(compared, _)| *compared == new).map(|(_, of_run)| of_run);
        html! {
            @if let Some(of_run) = of_run {
                @for (wide, narrow) in of_run.wide.iter().zip(&of_run.narrow) {
                    (figure(&[(wide, "wide"), (narrow, "narrow")], &format!("change-{}", new + 1), None, html! {}))
                }
            }
        }
    }

    /// Pictures of all runs, by kind.
    pub fn all(&self, runs: &[Entry<'_>]) -> Markup {
        let mut names: Vec<&str> = Vec::new();
        for picture in self.runs.iter().flat_map(|of_run| &of_run.wide) {
            if !names.contains(&picture.name) {
                names.push(picture.name);
            }
        }
        html! {
            @for name in names {
                @let of_kind: Vec<(usize, (&Picture, &Picture))> = self.runs.iter().enumerate()
                    .filter_map(|(index, of_run)| Some((index, of_run.get(name)?)))
                    .collect();
                @let is_side = of_kind.len() > 1;
                div.kind.side[is_side] {
                    @for (at, (wide, narrow)) in &of_kind {
                        @let which = (runs.len() > 1).then(|| name_of(runs, *at));
                        @let id = format!("picture-{}", at + 1);
                        @let basis = basis(runs, *at, wide);
                        @if is_side {
                            (figure(&[(narrow, "only")], &id, which, basis))
                        } @else {
                            (figure(&[(wide, "wide"), (narrow, "narrow")], &id, which, basis))
                        }
                    }
                }
            }
        }
    }
}

/// The tables that a picture shows, how they were measured, and the commands that print them.
fn basis(runs: &[Entry<'_>], at: usize, picture: &Picture) -> Markup {
    let Entry { run, directory } = runs[at];
    let tables = || picture.tables.iter().filter_map(|name| run.table(name));
    html! {
        @for table in tables() {
            p.note {
                "Numbers: table " a href=(format!("#{}", tables::id(at, &table.name))) { (table.name) }
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

/// A figure that contains one picture in a version for each medium.
fn figure(
    media: &[(&Picture, &str)],
    prefix: &str,
    which: Option<String>,
    basis: Markup,
) -> Markup {
    let Some((picture, _)) = media.first() else { return html! {} };
    let heading = &picture.sheet.heading;
    let id = format!("{prefix}-{}", picture.name);
    html! {
        figure id=(id) {
            figcaption {
                @if let Some(which) = which { p.which { (which) } }
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
