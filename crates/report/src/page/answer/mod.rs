//! The main result of a run for the head of its page, in two sentences. The first names the largest cost and its
//! cause, the second a change that would reduce it. Each experiment has a file here, because only it knows which
//! column answers its question.

mod comparison;
mod footprint;
mod handlers;
mod noise;
mod services;
mod signal;
#[cfg(test)]
mod tests;
mod wakeup;

use record::{Run, Table, Value};

use crate::escape::plain;
use crate::grid::Grid;
use crate::row::Row;
use crate::winner::Figure;
pub use comparison::summarize_comparison;

/// The main result of a run.
pub struct Answer {
    /// A sentence with the largest cost and its cause.
    pub fact: String,
    /// A sentence about a change that would reduce this cost, computed from the run's numbers. `None` if none is known.
    pub lever: Option<String>,
    /// Name of the table with the numbers.
    pub table: Option<String>,
}

/// The main result of a run. For an unknown experiment, or without the needed columns, it is the first headline.
pub fn summarize(run: &Run) -> Answer {
    let answer = findings(run).or_else(|| match run.experiment.as_str() {
        "handlers" => handlers::handlers(run),
        "noise" => noise::noise(run),
        "footprint" => footprint::footprint(run),
        "services" => services::services(run),
        "wakeup" => wakeup::wakeup(run),
        "signal" | "signal-model" => signal::signal(run),
        "scale" => noise::scale(run),
        _ => None,
    });
    answer.unwrap_or_else(|| by_headline(run))
}

/// How many claims of a paper agree with it, and the first that disagrees. `None` for a run that reproduces no paper.
fn findings(run: &Run) -> Option<Answer> {
    let table = run.table("findings").filter(|table| table.column("agreement").is_some())?;
    let rows_with = |agreement: &'static str| {
        rows(table).filter(move |row| row.has_text("agreement", agreement))
    };
    let [agree, disagree, unknown] =
        ["agrees", "disagrees", "can't tell"].map(|agreement| rows_with(agreement).count());
    let claim_count = agree + disagree + unknown;
    if claim_count == 0 {
        return None;
    }
    let example = rows_with("disagrees").next().map(|row| {
        let evidence = row.value_text("evidence");
        format!(
            " (the first: {}, {}: {evidence})",
            row.value_text("finding"),
            row.value_text("claim")
        )
    });
    let verb = if disagree == 1 { "disagrees" } else { "disagree" };
    let fact = format!(
        "{agree} of {claim_count} claims agree with the paper, {disagree} {verb}{}, {unknown} cannot be decided.",
        example.unwrap_or_default()
    );
    let has_reason = |row: &Row<'_>| matches!(row.get("reason"), Value::Text(_));
    let reason = rows_with("can't tell").find(has_reason).map(|row| row.value_text("reason"));
    let lever = reason.map(|reason| {
        format!("The first reason why a claim cannot be decided: {}.", reason.trim_end_matches('.'))
    });
    Some(Answer { fact, lever, table: Some("findings".to_owned()) })
}

/// The headline of the first table that has one.
fn by_headline(run: &Run) -> Answer {
    let first_headline = run.tables.iter().find_map(|table| {
        let grid = Grid::new(table, false);
        let headline = grid.groups.into_iter().find_map(|group| group.headline)?;
        Some((headline, table.name.clone()))
    });
    match first_headline {
        Some((headline, table)) => {
            Answer { fact: sentence(&headline), lever: None, table: Some(plain(&table)) }
        }
        None => Answer {
            fact: "No single figure answers for this run; its tables are below.".to_owned(),
            lever: None,
            table: None,
        },
    }
}

/// The text with a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let capital =
        characters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{capital}{}.", characters.as_str())
}

fn rows(table: &Table) -> impl Iterator<Item = Row<'_>> {
    table.rows().iter().map(move |values| Row::new(table, values))
}

/// The row with the largest number in a column, or `None` if no row has a number there.
fn largest<'r>(rows: impl Iterator<Item = Row<'r>>, column: &str) -> Option<Row<'r>> {
    let rows_with_number = rows.filter_map(|row| Some((row.number(column)?, row)));
    rows_with_number
        .max_by(|(number, _), (other_number, _)| number.total_cmp(other_number))
        .map(|(_, row)| row)
}

/// The reason why no row is known to be the extreme one.
fn reason_without_winner<'r>(
    candidates: &[Row<'r>],
    figure: impl Fn(&Row<'r>) -> Option<Figure>,
) -> &'static str {
    if candidates.iter().filter_map(figure).all(Figure::has_interval) {
        "because the intervals overlap"
    } else {
        "because there are figures without an interval"
    }
}

/// A sentence with a leading space about the rows that may have a larger figure than the first row. `None` if there are
/// none. `possible_maxima`: the row with the largest figure, then the others.
fn rivals<'r>(
    possible_maxima: &[Row<'r>],
    figure: impl Fn(&Row<'r>) -> Option<Figure>,
    name: impl Fn(&Row<'r>) -> String,
) -> Option<String> {
    let [largest, rivals @ ..] = possible_maxima else { return None };
    let has_interval = |row: &Row<'r>| figure(row).is_some_and(Figure::has_upper_end);
    if rivals.is_empty() {
        return None;
    }
    if !has_interval(largest) {
        return Some(" The largest figure has no interval, so another may be larger.".to_owned());
    }
    let (measured, unknown): (Vec<Row<'r>>, Vec<Row<'r>>) =
        rivals.iter().partition(|row| has_interval(row));
    let mut sentences = String::new();
    if !measured.is_empty() {
        let names: Vec<String> = measured.iter().map(&name).collect();
        sentences += &format!(" Also within its interval: {}.", names.join(", "));
    }
    match &unknown[..] {
        [] => {}
        [row] => sentences += &format!(" Without an interval: {}.", name(row)),
        several => sentences += &format!(" Without an interval: {} others.", several.len()),
    }
    Some(sentences)
}
