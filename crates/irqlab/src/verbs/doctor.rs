//! `irqlab doctor`: what can be measured on this machine, and the commands that unlock the rest.
//! `live::host::diagnosis` makes the findings; this file prints them.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use live::host::diagnosis::verdict;
use live::host::{Finding, HostFacts, Root, Status, diagnose, host_facts};
use report::escape;
use serde_json::json;

use crate::console;

/// The schema of `--json`.
const SCHEMA: &str = "irqlab.doctor/1";

/// Width of a printed line in columns. Lines that a user copies may be longer.
const WIDTH: usize = 100;

/// Width of the columns before the text of a finding: status and subject.
const INDENT: usize = 29;

/// Show what can be measured on this machine, and the exact command that unlocks the rest
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab doctor                          findings, with the commands that unlock the rest
  irqlab doctor --json                   all facts and findings, for a script")]
pub struct DoctorArgs {
    /// Print one JSON document: all facts and findings
    #[arg(long)]
    pub json: bool,
}

/// Diagnoses the machine and prints the findings.
///
/// Fails only when the findings cannot be printed.
pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let facts = host_facts(&Root::default());
    let findings = diagnose(&facts);
    console::print(&if args.json {
        document(&facts, &findings)?
    } else {
        render(&findings, console::has_color())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// All facts and findings as a JSON document.
fn document(facts: &HostFacts, findings: &[Finding]) -> anyhow::Result<String> {
    let document = json!({ "schema": SCHEMA, "facts": facts, "findings": findings });
    let mut text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
    text.push('\n');
    Ok(text)
}

/// The findings as text, and their number by status.
fn render(findings: &[Finding], is_colored: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        render_finding(&mut text, finding, is_colored);
    }
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let (ok, limited, missing) =
        (count(Status::Ok), count(Status::Limited), count(Status::Missing));
    let summary = escape::plain(&verdict(findings));
    // Writing to a String never fails.
    let _ = writeln!(text, "\n{ok} ok, {limited} limited, {missing} missing. {summary}");
    text
}

fn render_finding(text: &mut String, finding: &Finding, is_colored: bool) {
    let (mark, color) = match finding.status {
        Status::Ok => ("ok", "32"),
        Status::Limited => ("limited", "33"),
        Status::Missing => ("missing", "31"),
    };
    // Padded before it is coloured, because escape sequences would count as width.
    let mark = format!("{mark:<8}");
    let mark = if is_colored { format!("\x1b[{color}m{mark}\x1b[0m") } else { mark };
    let subject = escape::plain(&finding.subject);
    let fact = wrapped(&escape::plain(&finding.says));
    let _ = writeln!(text, "{mark} {subject:<19} {}", fact.trim_start());
    if let Some(consequence) = &finding.consequence {
        let _ = writeln!(text, "{}", wrapped(&format!("so: {}", escape::plain(consequence))));
    }
    if let Some(unlock) = &finding.unlock {
        // A command stays on one line, so that it can be copied.
        let _ = writeln!(text, "{:INDENT$}unlock: {}", "", escape::plain(unlock));
    }
}

/// Breaks the text between words into indented lines of at most [`WIDTH`] columns. A word that is too long stays whole.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH - INDENT => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let indented: Vec<String> =
        lines.into_iter().map(|line| format!("{:INDENT$}{line}", "")).collect();
    indented.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Finding {
        Finding {
            subject: "PMU".to_owned(),
            status: Status::Missing,
            says: "none\x1b[2J".to_owned(),
            consequence: Some("word ".repeat(40).trim().to_owned()),
            unlock: Some("sudo ".repeat(40).trim().to_owned()),
        }
    }

    #[test]
    fn control_characters_are_shown_and_commands_stay_whole() {
        let text = render(&[missing()], false);
        assert!(!text.contains('\x1b') && text.contains("none\\u{1b}[2J"), "{text}");
        for line in text.lines().filter(|line| line.contains("word")) {
            assert!(line.len() <= WIDTH, "{line}");
        }
        assert!(text.lines().any(|line| line.contains(&missing().unlock.unwrap())));
        assert!(text.contains("0 ok, 0 limited, 1 missing."));
    }

    #[test]
    fn color_only_when_asked_for() {
        assert!(render(&[missing()], true).contains("\x1b[31mmissing \x1b[0m PMU"));
    }

    #[test]
    fn the_document_has_schema_facts_and_findings() {
        let text = document(&HostFacts::default(), &[missing()]).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["schema"], SCHEMA);
        assert_eq!(parsed["findings"][0]["status"], "missing");
        assert!(parsed["facts"]["kernel"].is_object());
    }
}
