//! A comparison of runs.

use record::Run;

use super::{by_headline, rows};
use crate::human;
use crate::row::Row;

/// The result of a comparison in a sentence: the number of figures with each verdict, some with an example.
pub fn summarize_comparison(run: &Run) -> String {
    let Some(table) = run.table("differences") else { return by_headline(run).fact };
    let totals_sentence = run.table("totals").and_then(|totals| {
        let first = rows(totals).next()?;
        Some(format!("{}. ", first.value_text("finding")))
    });
    let totals_sentence = totals_sentence.unwrap_or_default();
    let has_verdict = |row: &Row<'_>, verdict: &str| row.has_text("verdict", verdict);
    let count = |verdict: &str| rows(table).filter(|row| has_verdict(row, verdict)).count();
    // The table of a long comparison has no rows for equal figures, but the settings count them.
    let setting = |name: &str| run.settings.get(name).and_then(serde_json::Value::as_u64);
    let figure_count = setting("figure_count").unwrap_or(table.row_count());
    let undecided = setting("undecided_count").unwrap_or(count("can't tell") as u64);
    let (worse, better) = (count("worse"), count("better"));
    let example = |verdict: &str| {
        let row = rows(table)
            .find(|row| has_verdict(row, verdict) && row.number("change_ratio").is_some())?;
        let change = row.number("change_ratio")?;
        let (row_name, column) = (row.value_text("row"), row.value_text("column"));
        Some(format!(" ({row_name} {column}: {})", human::signed_percent(change)))
    };
    let verdicts = [
        (worse, "worse", example("worse")),
        (better, "better", example("better")),
        (count("changed"), "changed", example("changed")),
        (count("missing"), "missing", None),
        (count("added"), "added", None),
    ];
    let verdict_texts: Vec<String> = verdicts
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, verdict, example)| {
            format!("{count} {verdict}{}", example.unwrap_or_default())
        })
        .collect();
    if !verdict_texts.is_empty() {
        format!(
            "{totals_sentence}Of {figure_count} figures: {}; {undecided} cannot be decided.",
            verdict_texts.join(", ")
        )
    } else if undecided == 0 {
        format!("Nothing changed: all {figure_count} figures are equal.")
    } else {
        format!(
            "No figure is known to have changed: of {figure_count}, {undecided} cannot be decided."
        )
    }
}
