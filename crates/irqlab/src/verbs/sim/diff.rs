//! `irqlab sim diff`: where the plugin's records of two runs start to differ. `sim::divergence` compares the records;
//! this file prints the first difference with the events around it.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value as Json, json};
use sim::divergence::{self, Divergence, RecordedEvent};

use crate::console;
use crate::run::DIFFERS;

/// Two records
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sim diff a.record b.record
  irqlab sim diff a.record b.record --json

Exit codes: 0 the records are equal; 1 failed; 2 the command line is wrong; 3 they differ.")]
pub struct DiffArgs {
    /// Record of a run
    a: PathBuf,
    /// Record of another run of the same machine
    b: PathBuf,
    /// How many events are shown before and after the difference
    #[arg(long, default_value_t = 8, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    around: u16,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Compares the records and prints their first difference.
pub fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let difference = divergence::find([&args.a, &args.b], args.around.into())?;
    let text = match (&difference, args.json) {
        (_, true) => as_json(difference.as_ref()),
        (Some(difference), false) => as_text(difference),
        (None, false) => "the records are equal\n".to_owned(),
    };
    console::print(&text)?;
    Ok(if difference.is_some() { ExitCode::from(DIFFERS) } else { ExitCode::SUCCESS })
}

/// The first difference of two records as a JSON document, or that they are equal.
fn as_json(difference: Option<&Divergence>) -> String {
    let events = |events: &[RecordedEvent]| -> Vec<Json> {
        let event = |recorded: &RecordedEvent| {
            json!({
                "record": recorded.position, "cpu": recorded.cpu, "at_cycles": recorded.at_cycles,
                "event": recorded.kind, "context": recorded.context, "detail": recorded.detail,
            })
        };
        events.iter().map(event).collect()
    };
    let document = json!({
        "equal": difference.is_none(),
        "first_difference_record": difference.map(|difference| difference.at),
        "before": difference.map(|difference| events(&difference.before)),
        "a": difference.map(|difference| events(&difference.after[0])),
        "b": difference.map(|difference| events(&difference.after[1])),
    });
    format!("{document:#}\n")
}

/// The first difference of two records as a table: equal events before it, then the events of both records.
fn as_text(difference: &Divergence) -> String {
    let text = format!("the first difference is at record {}\n\n", difference.at);
    let columns = ["", "record", "cpu", "at_cycles", "event", "context", ""];
    let mut rows = vec![columns.map(str::to_owned)];
    rows.extend(difference.before.iter().map(|event| row("both", event)));
    for (side, events) in ["A", "B"].into_iter().zip(&difference.after) {
        rows.extend(events.iter().map(|event| row(side, event)));
        if events.is_empty() {
            rows.push([side, "", "", "", "the record ends here", "", ""].map(str::to_owned));
        }
    }
    text + &aligned(&rows)
}

fn row(side: &str, event: &RecordedEvent) -> [String; 7] {
    let number = |number: Option<u64>| number.map_or_else(String::new, |value| value.to_string());
    [
        side.to_owned(),
        event.position.to_string(),
        number(event.cpu.map(u64::from)),
        number(event.at_cycles),
        event.kind.to_owned(),
        report::escape::plain(event.context.as_deref().unwrap_or_default()),
        report::escape::plain(&event.detail),
    ]
}

/// The rows as lines with aligned columns: numbers to the right, texts to the left.
fn aligned(rows: &[[String; 7]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..7).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if (1..=3).contains(&column) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(position: u64, context: &str) -> RecordedEvent {
        RecordedEvent {
            position,
            cpu: Some(1),
            at_cycles: None,
            kind: "transition",
            context: Some(context.to_owned()),
            detail: "task <\"x\">".to_owned(),
        }
    }

    #[test]
    fn the_document_has_both_sides() {
        let equal: Json = serde_json::from_str(&as_json(None)).unwrap();
        assert_eq!(equal["equal"], true);
        assert!(equal["first_difference_record"].is_null() && equal["a"].is_null(), "{equal}");

        let found = Divergence {
            at: 2,
            before: vec![event(1, "idle")],
            after: [vec![event(2, "softirq TIMER")], Vec::new()],
        };
        let differs: Json = serde_json::from_str(&as_json(Some(&found))).unwrap();
        assert_eq!(
            (&differs["equal"], &differs["first_difference_record"]),
            (&json!(false), &json!(2))
        );
        assert_eq!(differs["before"][0]["record"], 1);
        let expected = json!({
            "record": 2, "cpu": 1, "at_cycles": null, "event": "transition",
            "context": "softirq TIMER", "detail": "task <\"x\">",
        });
        assert_eq!((&differs["a"], &differs["b"]), (&json!([expected]), &json!([])));
    }
}
