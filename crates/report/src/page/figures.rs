//! Pictures of a page: those of one kind next to each other, run by run.

use maud::{Markup, PreEscaped, html};

use super::{Changes, Entry, name_of, tables};
use crate::picture::{Picture, Undrawn, pictures};
use crate::words;

/// Pictures of each run, and of each comparison.
pub struct Figures {
    /// Of each run.
    runs: Vec<Vec<Picture>>,
    /// Of comparisons: the place of the run that is compared with the first.
    changes: Vec<(usize, Vec<Picture>)>,
}

/// Draws all pictures.
///
/// # Errors
/// When one cannot be drawn.
pub fn of_all(runs: &[Entry<'_>], changes: &[Changes<'_>]) -> Result<Figures, Undrawn> {
    let of_runs = runs.iter().map(|entry| pictures(entry.run)).collect::<Result<_, _>>()?;
    let of_changes = changes.iter().filter_map(|one| Some((one.new, one.comparison.ok()?)));
    let of_changes = of_changes.map(|(new, run)| Ok((new, pictures(run)?)));
    Ok(Figures { runs: of_runs, changes: of_changes.collect::<Result<_, Undrawn>>()? })
}

impl Figures {
    /// Whether no run has a picture.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(Vec::is_empty)
    }

    /// Pictures of the comparison of the run at that place with the first.
    pub fn of_changes(&self, new: usize) -> Markup {
        let of_run = self.changes.iter().find(|(one, _)| *one == new);
        html! {
            @for picture in of_run.into_iter().flat_map(|(_, pictures)| pictures) {
                (figure(picture, &format!("change-{}-{}", new + 1, picture.name), None, html! {}))
            }
        }
    }

    /// Pictures of all runs, by kind.
    pub fn all(&self, runs: &[Entry<'_>]) -> Markup {
        let mut names: Vec<&str> = Vec::new();
        for picture in self.runs.iter().flatten() {
            if !names.contains(&picture.name) {
                names.push(picture.name);
            }
        }
        html! {
            @for name in names {
                @let of_kind: Vec<(usize, &Picture)> = self.runs.iter().enumerate()
                    .filter_map(|(at, all)| Some((at, all.iter().find(|one| one.name == name)?)))
                    .collect();
                div.kind.side[of_kind.len() > 1] {
                    @for (at, picture) in &of_kind {
                        @let which = (runs.len() > 1).then(|| name_of(runs, *at));
                        (figure(picture, &format!("picture-{}-{name}", at + 1), which, basis(runs, *at, picture)))
                    }
                }
            }
        }
    }
}

/// Which tables a picture shows, how they were measured, and what prints them.
fn basis(runs: &[Entry<'_>], at: usize, picture: &Picture) -> Markup {
    let Entry { run, directory } = runs[at];
    let tables = picture.tables.iter().filter_map(|name| run.table(name));
    html! {
        @for table in tables {
            p.note {
                "Numbers: table " a href=(format!("#{}", tables::id(at, &table.name))) { (table.name) }
                ", printed by " code { (format!("irqlab show {} {}", words::shell_word(directory), table.name)) }
                @let method = words::method(run, table);
                @if !method.is_empty() { ". " (method) } "."
            }
        }
    }
}

fn figure(picture: &Picture, id: &str, which: Option<String>, basis: Markup) -> Markup {
    let heading = &picture.sheet.heading;
    html! {
        figure id=(id) {
            figcaption {
                @if let Some(which) = which { p.which { (which) } }
                h3 { (heading.title) }
                @for note in &heading.notes { p { (note) } }
            }
            div.picture role="group" aria-label=(format!("{}, to scroll and zoom", heading.title)) tabindex="0" {
                (PreEscaped(picture.sheet.inline(id)))
            }
            (basis)
        }
    }
}
