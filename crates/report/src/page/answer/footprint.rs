//! Lines of caches that interrupts displace.

use record::Run;

use super::{Answer, rivals};
use crate::displaced::{AT_MOST, displaced, displaced_bound, displaced_share, most_displaced};
use crate::human;

/// The stimulus that displaces most lines, and the cost of the displaced lines. `None` if no stimulus displaces any.
pub(super) fn footprint(run: &Run) -> Option<Answer> {
    let table = run.table("footprint")?;
    let possible_maxima = most_displaced(table);
    let row = *possible_maxima.first()?;
    let lines = displaced(&row)?.value;
    let level = row.value_text("level").to_uppercase();
    let share = displaced_share(&row)
        .map_or(String::new(), |ratio| format!(" ({} of it)", human::percent(ratio)));
    let bound = displaced_bound(&row);
    let stimulus = row.value_text("stimulus");
    let rivals_sentence = rivals(&possible_maxima, displaced, |row| row.value_text("stimulus"));
    let is_most = rivals_sentence.is_none() && bound != AT_MOST;
    let predicate = if is_most { "displaces most:" } else { "displaces" };
    let rivals_sentence = rivals_sentence.unwrap_or_default();
    let lever = row.number("indirect_mean_ns").filter(|time| *time > 0.0).map(|indirect_ns| {
        let stall = row.number("stalled_p50_ns");
        let stall = stall.map_or(String::new(), |stall_ns| {
            format!(", in addition to a stall of {}", human::ns(stall_ns))
        });
        format!(
            "Fetching them again costs the program {} per interrupt{stall}.",
            human::ns(indirect_ns)
        )
    });
    Some(Answer {
        fact: format!(
            "A {stimulus} interrupt {predicate} {bound}{} lines of {level}{share}.{rivals_sentence}",
            human::number(lines.max(0.0))
        ),
        lever,
        table: Some("footprint".to_owned()),
    })
}
