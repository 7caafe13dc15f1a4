//! The page of a fleet: its answers, and the tables of its hosts and groups.

use maud::{DOCTYPE, PreEscaped, html};
use record::Run;

use super::sweep::{absences, answers_section, footer, text_of};
use super::{SCRIPT, head, tables, theme};
use crate::escape::plain;

/// Prefix of the HTML ids.
const PREFIX: &str = "fleet";

/// The content of the page of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct FleetPage<'a> {
    /// The report as a run: tables of each metric, and a table of all hosts.
    pub report: &'a Run,
    /// Sentences with the main results.
    pub answers: &'a [String],
    /// The command that prints the tables.
    pub print_command: &'a str,
    /// The command that makes the page again.
    pub command: &'a str,
}

/// The page of a fleet as one HTML document.
#[must_use]
pub fn fleet_page(page: FleetPage<'_>) -> String {
    let FleetPage { report, answers, print_command, command } = page;
    let title = plain(&report.experiment);
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&title))
            body {
                a.skip href="#answers" { "Skip to the answers" }
                header {
                    p.product { "irqlab fleet report" }
                    h1 { (title) }
                    nav aria-label="Contents" {
                        ul {
                            li { a href="#answers" { "Answers" } }
                            @for table in &report.tables {
                                li { a href=(format!("#{PREFIX}-{}", plain(&table.name))) { (plain(&table.name)) } }
                            }
                        }
                        (theme())
                    }
                }
                main {
                    (answers_section(report, answers))
                    section id="hosts" aria-labelledby="hosts-title" {
                        h2 id="hosts-title" { "Hosts" }
                        @for table in &report.tables {
                            (tables::table(report, table, PREFIX, &format!("{} --all", plain(print_command))))
                        }
                        (absences(report))
                    }
                }
                (footer(command, "fleet"))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    text_of(document)
}
