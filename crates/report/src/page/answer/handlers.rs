//! The context of a CPU, such as an interrupt or a softirq, that costs most, and its largest part.

use record::Run;

use super::{Answer, largest, rivals, rows};
use crate::human;
use crate::picture::{largest_function_of, wait_of};
use crate::row::{Row, possible_extremes};
use crate::winner::{Extreme, Figure};

/// The context that takes most CPU time, and the gain from a shorter mean or a lower rate. `None` if no context
/// has a share of CPU time.
pub(super) fn handlers(run: &Run) -> Option<Answer> {
    let table = run.table("handlers")?;
    let sums = rows(table).filter(|row| row.has_text("cpu", "all"));
    let row = largest(sums, "self_cpu_ratio")?;
    let share = row.number("self_cpu_ratio")?;
    let (mean_ns, rate_hz) = (row.number("self_mean_ns")?, row.number("rate_hz")?);
    let name = context(&row);
    let rows_of_condition = rows(table).filter(|candidate| {
        candidate.has_text("cpu", "all") && candidate.get("condition") == row.get("condition")
    });
    // A share without an interval is no more than ten times as large: even a single span says that much.
    let lowest = share - row.number("self_cpu_ci95_ratio").unwrap_or(share);
    let may_be_larger = |candidate: &Row<'_>| {
        candidate.number("self_cpu_ci95_ratio").is_some()
            || candidate.number("self_cpu_ratio").is_some_and(|share| share * 10.0 >= lowest)
    };
    let candidates = rows_of_condition.filter(may_be_larger);
    let possible_maxima = possible_extremes(candidates, Extreme::Largest, share_of_cpu);
    let rivals_sentence = rivals(&possible_maxima, share_of_cpu, context);
    let predicate = if rivals_sentence.is_some() { "has the largest share" } else { "costs most" };
    let rivals_sentence = rivals_sentence.unwrap_or_default();
    let function =
        largest_function_of(table, &row).map_or(String::new(), |text| format!(" {text}."));
    let wait = run.table("delays").and_then(|delays| wait_of(delays, &row));
    let wait = wait.map_or(String::new(), |text| {
        format!(" Half of all runs of {} wait {text}.", row.text_with_prefix("name"))
    });
    let fact = format!(
        "{name} {predicate}: {} of CPU time, because it runs {} times a second for {} each (condition {}).\
         {rivals_sentence}{function}{wait}",
        human::percent(share),
        human::number(rate_hz),
        row.value_text("self_mean_ns"),
        row.value_text("condition"),
    );
    let is_above_limit = mean_ns > 0.0 && row.bound_below_limit("self_mean_ns").is_none();
    let lever = is_above_limit.then(|| {
        // Nobody can take a µs off a mean that is hardly longer.
        let (step, step_ratio) =
            if mean_ns >= 2e3 { ("µs", 1e3 / mean_ns) } else { ("tenth", 0.1) };
        format!(
            "At this rate, each {step} off its mean would give back {} of the CPUs; half the rate, {}.",
            human::percent(share * step_ratio),
            human::percent(share / 2.0)
        )
    });
    Some(Answer { fact, lever, table: Some("handlers".to_owned()) })
}

/// Kind and name of a context.
fn context(row: &Row<'_>) -> String {
    format!("{} {}", row.value_text("kind"), row.text_with_prefix("name"))
}

/// A context's share of CPU time. Runs of older versions have no interval of the share, and a context with few spans has
/// none. `None` for a context without spans.
fn share_of_cpu(row: &Row<'_>) -> Option<Figure> {
    row.number("self_mean_ns")?;
    Some(Figure::with_interval(row.number("self_cpu_ratio")?, row.number("self_cpu_ci95_ratio")))
}
