//! A page: one HTML file with the pictures and tables of several runs, the changes between them, and the method of
//! each number. `irqlab report` writes it.
//!
//! The file needs only a browser and no network. Its pictures are SVG that is drawn here, so the page reads equally
//! without JavaScript and on paper. A small script sorts and filters tables, zooms into pictures and changes the
//! colours. The content security policy admits only this script, by its digest.
//!
//! The HTML ids and class names below are also in `page.css` and `page.js`.

mod answer;
mod figures;
mod fleet;
mod policy;
mod sweep;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use record::{Run, keys};

use crate::escape::plain;
use crate::picture::{Undrawn, colours_css};
use crate::words;

pub use fleet::{FleetPage, fleet_page};
pub use sweep::{SweepPage, sweep_page};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A run that a page shows.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub run: &'a Run,
    /// The run's directory, as the page's commands name it.
    pub directory: &'a str,
}

/// A comparison of the first run of a page with another run.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// Index of the other run on the page, from 0.
    pub other: usize,
    /// The result as a run of experiment `compare`, or the reason why the two runs could not be compared.
    pub result: Result<&'a Run, &'a str>,
}

/// The head of a page: its title, its style, and the policy that lets it load nothing.
fn head(title: &str) -> Markup {
    let style = format!("{STYLE}\n{}", colours_css());
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta http-equiv="Content-Security-Policy" content=(policy::policy(SCRIPT));
            meta name="color-scheme" content="light dark";
            meta name="generator" content="irqlab";
            title { (title) }
            style { (PreEscaped(&style)) }
        }
    }
}

/// The choice of colours. The script makes it visible. Without the script, the page has the colours of the system.
fn theme() -> Markup {
    html! {
        label.theme hidden {
            "Colours "
            select id="theme" {
                option value="auto" { "as the system" }
                option value="light" { "light" }
                option value="dark" { "dark" }
            }
        }
    }
}

/// The runs as one HTML document. `comparisons`: of the first run with other runs.
///
/// Fails when a picture cannot be drawn.
pub fn page(runs: &[Entry<'_>], comparisons: &[Comparison<'_>]) -> Result<String, Undrawn> {
    let figures = figures::draw_all(runs, comparisons)?;
    let has_changes = comparisons.iter().any(|comparison| comparison.result.is_ok());
    let title = title(runs);
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&title))
            body class=[(runs.len() > 1).then_some("several")] {
                a.skip href="#answers" { "Skip to the answers" }
                header {
                    p.product { "irqlab report" }
                    h1 { (title) }
                    (contents(runs, has_changes, &figures))
                }
                main {
                    (answers(runs, comparisons))
                    @if has_changes { (changes_section(runs, comparisons, &figures)) }
                    (pictures(runs, &figures))
                    @for (index, entry) in runs.iter().enumerate() { (run_section(runs, index, *entry)) }
                }
                footer {
                    p {
                        "Made by " code { (command_of(runs)) } " from the tables of the "
                        @if runs.len() == 1 { "run" } @else { "runs" }
                        " alone. A dash (–) is a number that was not measured; it is never zero."
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    // HTML does not allow these two characters, but a file name may contain them.
    Ok(document.into_string().replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}"))
}

/// The command that makes the page again.
fn command_of(runs: &[Entry<'_>]) -> String {
    let names = runs.iter().map(|entry| words::shell_word(entry.directory));
    format!("irqlab report {} -o report.html", names.collect::<Vec<_>>().join(" "))
}

/// The title of the page: that of its run, or the experiments of its runs.
fn title(runs: &[Entry<'_>]) -> String {
    match runs {
        [entry] => words::title(entry.run),
        _ => {
            let mut names: Vec<String> = Vec::new();
            for entry in runs {
                let name = plain(&entry.run.experiment);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            format!("{} runs of {}", runs.len(), names.join(", "))
        }
    }
}

/// A run's name on the page: its directory, after its number if the page has several runs.
fn name_of(runs: &[Entry<'_>], index: usize) -> String {
    let directory = plain(runs[index].directory);
    match (runs.len(), index) {
        (1, _) => directory,
        (_, 0) => format!("Run 1 (base): {directory}"),
        _ => format!("Run {}: {directory}", index + 1),
    }
}

/// The table of contents, and the choice of colours. `has_changes`: whether the page has a [`changes_section`].
fn contents(runs: &[Entry<'_>], has_changes: bool, figures: &figures::Figures) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                li { a href="#answers" { "Answers" } }
                @if has_changes { li { a href="#changes" { "What changed" } } }
                @if !figures.is_empty() { li { a href="#pictures" { "Pictures" } } }
                @for index in 0..runs.len() {
                    li { a href=(format!("#run-{}", index + 1)) {
                        @if runs.len() == 1 { "Tables and method" } @else { (format!("Run {}", index + 1)) }
                    } }
                }
            }
            (theme())
        }
    }
}

/// The section with the answer and the warnings of each run, and the result of each comparison, or the reason why there
/// is no result.
fn answers(runs: &[Entry<'_>], comparisons: &[Comparison<'_>]) -> Markup {
    html! {
        section id="answers" aria-labelledby="answers-title" tabindex="-1" {
            h2 id="answers-title" { "Answers" }
            @for (index, entry) in runs.iter().enumerate() {
                div.answer {
                    @if runs.len() > 1 { p.which { (name_of(runs, index)) } }
                    @let answer = answer::summarize(entry.run);
                    p.sentence { strong { (answer.fact) } @if let Some(lever) = &answer.lever { " " (lever) } }
                    p.basis {
                        @let host = words::host(entry.run);
                        (words::title(entry.run)) "." @if !host.is_empty() { " " (host) "." }
                        @if let Some(table) = &answer.table {
                            " From table " a href=(format!("#{}", tables::id(index, table))) { (table) } "."
                        }
                    }
                    @let warnings = words::warnings(entry.run);
                    @if !warnings.is_empty() {
                        ul.warnings { @for warning in &warnings { li { strong { "Warning: " } (warning) } } }
                    }
                }
            }
            @for comparison in comparisons {
                div.answer {
                    p.which { (format!("Run {} compared with run 1", comparison.other + 1)) }
                    p.sentence {
                        @match comparison.result {
                            Ok(run) => strong { (answer::summarize_comparison(run)) },
                            Err(reason) => { "Not compared: " (plain(reason)) "." },
                        }
                    }
                }
            }
        }
    }
}

/// The section with the pictures and tables of each comparison with the first run. Comparisons without a result are not
/// here: [`answers`] has the reasons.
fn changes_section(
    runs: &[Entry<'_>],
    comparisons: &[Comparison<'_>],
    figures: &figures::Figures,
) -> Markup {
    html! {
        section id="changes" aria-labelledby="changes-title" {
            h2 id="changes-title" { "What changed" }
            @for comparison in comparisons {
                @if let Ok(run) = comparison.result {
                    @let number = comparison.other + 1;
                    h3 { (format!("From run 1 to run {number}")) }
                    @let command = format!(
                        "irqlab compare {} {}",
                        words::shell_word(runs[0].directory),
                        words::shell_word(runs[comparison.other].directory)
                    );
                    (figures.changes(comparison.other))
                    @for warning in words::warnings(run) { p.warning { strong { "Warning: " } (warning) } }
                    @for table in run.tables.iter().filter(|table| table.row_count() > 0) {
                        (tables::table(run, table, &format!("change-{number}"), &command))
                    }
                }
            }
        }
    }
}

/// The section with the pictures of all runs.
fn pictures(runs: &[Entry<'_>], figures: &figures::Figures) -> Markup {
    if figures.is_empty() {
        return html! {};
    }
    html! {
        section id="pictures" aria-labelledby="pictures-title" {
            h2 id="pictures-title" { "Pictures" }
            (figures.of_all_runs(runs))
        }
    }
}

/// The section of a run: its facts, absences, tables and settings.
fn run_section(runs: &[Entry<'_>], index: usize, entry: Entry<'_>) -> Markup {
    let (run, number) = (entry.run, index + 1);
    let directory = words::shell_word(entry.directory);
    let (for_people, for_programs): (Vec<_>, Vec<_>) = run
        .tables
        .iter()
        .filter(|table| table.row_count() > 0)
        .partition(|table| table.display.rows_max != Some(0));
    let empty: Vec<_> = run.tables.iter().filter(|table| table.row_count() == 0).collect();
    html! {
        section id=(format!("run-{number}")) aria-labelledby=(format!("run-{number}-title")) {
            h2 id=(format!("run-{number}-title")) {
                @if runs.len() == 1 { "Tables and method" } @else { (name_of(runs, index)) }
            }
            dl.facts {
                dt { "Run" } dd { code { (plain(entry.directory)) } ": " (words::title(run)) }
                @let host = words::host(run);
                @if !host.is_empty() { dt { "Machine" } dd { (host) } }
                dt { "Made by" }
                dd {
                    @match run.settings.get(keys::COMMAND_LINE).and_then(|line| line.as_str()) {
                        Some(line) => code { (plain(line)) },
                        None => "a version that did not record its command line",
                    }
                }
                @let observer = words::observer(run);
                @if !observer.is_empty() { dt { "Observer" } dd { (observer) } }
            }
            @let missing = words::grouped_absences(run);
            @if !missing.is_empty() {
                details {
                    summary { h3 { "Not measured" } }
                    ul.missing {
                        @for absence in &missing {
                            li {
                                (absence.what) ": " (absence.reason)
                                @if let Some(remedy) = &absence.remedy { br; code { (remedy) } }
                            }
                        }
                    }
                }
            }
            @for table in &for_people {
                @let command = format!("irqlab show {directory} {}", plain(&table.name));
                (tables::table(run, table, &format!("run-{number}"), &command))
            }
            @if !for_programs.is_empty() {
                h3 { "Tables for programs" }
                p.note { "Tables with many rows: pictures show them, and the commands print them." }
                @for table in &for_programs {
                    @let command = format!("irqlab show {directory} {} --format csv", plain(&table.name));
                    (tables::outline(table, &format!("run-{number}"), &command))
                }
            }
            @if !empty.is_empty() {
                p {
                    "Tables without rows: "
                    (empty.iter().map(|table| plain(&table.name)).collect::<Vec<_>>().join(", ")) "."
                }
            }
            @if for_people.is_empty() && for_programs.is_empty() { p { "This run has no rows." } }
            details {
                summary { h3 { "Settings and machine in full" } }
                (tables::facts("settings", &run.settings))
                (tables::facts("machine", &run.host))
                (tables::facts("observer", &run.observer))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::run_of;

    #[test]
    fn a_page_without_a_successful_comparison_has_the_reason_but_no_section_of_changes() {
        let run = run_of(vec![]);
        let runs = ["a", "b", "c"].map(|directory| Entry { run: &run, directory });
        let failed = Comparison { other: 1, result: Err("other settings") };
        let links_and_sections = |comparisons: &[Comparison<'_>]| {
            let page = page(&runs, comparisons).unwrap();
            assert!(page.contains("Not compared: other settings."));
            ["href=\"#changes\"", "section id=\"changes\""].map(|text| page.matches(text).count())
        };
        assert_eq!(links_and_sections(&[failed]), [0, 0]);
        assert_eq!(
            links_and_sections(&[failed, Comparison { other: 2, result: Ok(&run) }]),
            [1, 1]
        );
    }
}
