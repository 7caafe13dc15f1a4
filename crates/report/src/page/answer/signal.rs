//! Schemes of signalling: which costs least, and which delays least.

use record::Run;

use super::{Answer, reason_without_winner, rows};
use crate::human::{self, Quantity};
use crate::row::{Row, possible_extremes};
use crate::schemes::{self, comparable_rows, figure, is_contaminated};
use crate::winner::Extreme;

/// The schemes with the least CPU time and the least delay, at the highest rate at which at least two schemes keep up.
/// If intervals overlap, names all schemes that may have the least. Names the schemes that were not measured there.
/// `None` if no scheme has a cost.
pub(super) fn signal(run: &Run) -> Option<Answer> {
    let table_name = if run.table("rates").is_some() { "rates" } else { "model" };
    let source = run.table(table_name)?;
    let cost_column = ["cpu_ratio", "receiver_ratio"]
        .into_iter()
        .find(|column| rows(source).any(|row| row.number(column).is_some()))?;
    let comparable = comparable_rows(source, "rate_hz", cost_column);
    let first_row = comparable.first()?;
    let rate = first_row.number("rate_hz")?;
    let cost_name = if cost_column == "cpu_ratio" { "CPU time" } else { "the receiver's CPU time" };
    let load = match schemes::load(first_row) {
        load if load.is_empty() => load,
        load => format!(" under load {load}"),
    };
    let condition = format!("At {} events a second{load}", Quantity::Count.round_text(rate));
    let table = Some(table_name.to_owned());
    let contaminated: Vec<String> = comparable
        .iter()
        .filter(|row| is_contaminated(row))
        .map(|row| row.value_text("scheme"))
        .collect();
    if !contaminated.is_empty() {
        let fact = format!(
            "{condition}, no scheme can be said to cost least: something else had a CPU in the windows of {}.",
            contaminated.join(", ")
        );
        let remedy = match run.bench.as_str() {
            "sim" => "Measure longer or more windows (-d, --repetitions).",
            _ => "Keep other work off both CPUs, or measure more windows (--repetitions).",
        };
        let lever = Some(remedy.to_owned());
        return Some(Answer { fact, lever, table });
    }
    let comparison = |column: &'static str| Comparison {
        candidates: possible_extremes(comparable.iter().copied(), Extreme::Smallest, |row| {
            figure(row, column)
        }),
        measured: comparable.iter().copied().filter(|row| row.number(column).is_some()).collect(),
        unmeasured: schemes::unmeasured(source, "rate_hz", column, &comparable),
    };
    let cost = comparison(cost_column);
    let share = |row: &Row<'_>| row.number(cost_column).map(human::percent).unwrap_or_default();
    let others_fail = rows(source).any(|row| {
        ["load", "rate_hz"].iter().all(|column| row.get(column) == first_row.get(column))
            && !schemes::keeps_up_with_rate(&row)
    });
    let only_reason = if others_fail { "keeps up" } else { "was measured" };
    let cost_sentence = match &cost.candidates[..] {
        [only] if !schemes::has_two_schemes(&cost.measured) => format!(
            "{condition}, only {} {only_reason}: {} of {cost_name}.",
            only.value_text("scheme"),
            share(only)
        ),
        [winner] if cost.unmeasured.is_empty() => format!(
            "{condition}, {} costs least: {} of {cost_name}.",
            winner.value_text("scheme"),
            share(winner)
        ),
        [cheapest_measured] => format!(
            "{condition}, {} costs less than the other measured schemes: {} of {cost_name}.",
            cheapest_measured.value_text("scheme"),
            share(cheapest_measured)
        ),
        candidates => {
            let name_and_share =
                |row: &Row<'_>| format!("{} ({})", row.value_text("scheme"), share(row));
            let names: Vec<String> = candidates.iter().map(name_and_share).collect();
            let reason = reason_without_winner(candidates, |row| figure(row, cost_column));
            format!(
                "{condition}, which scheme costs least of {cost_name} is not known, {reason}: {}.",
                names.join(", ")
            )
        }
    };
    let fact = cost_sentence + &cost.note("Not measured");
    let latency = comparison("latency_mean_ns");
    let lever = latency_sentences(&latency, &cost, share);
    Some(Answer { fact, lever, table })
}

/// The rows of `signal` that are compared by a figure.
struct Comparison<'r> {
    /// The rows that may have the smallest figure, within the errors. The first has the smallest.
    candidates: Vec<Row<'r>>,
    /// The rows with a figure.
    measured: Vec<Row<'r>>,
    /// The schemes that were not measured here.
    unmeasured: Vec<String>,
}

impl<'r> Comparison<'r> {
    /// The row with the smallest figure of all schemes. `None` if another may have it, or if there is no other.
    fn winner(&self) -> Option<&Row<'r>> {
        let [winner] = &self.candidates[..] else { return None };
        let is_winner = self.unmeasured.is_empty() && schemes::has_two_schemes(&self.measured);
        is_winner.then_some(winner)
    }

    /// A sentence with a leading space that names the schemes without a figure. Empty if there are none.
    fn note(&self, heading: &str) -> String {
        if self.unmeasured.is_empty() {
            return String::new();
        }
        format!(" {heading}: {}.", self.unmeasured.join(", "))
    }
}

/// Sentences about the scheme that delays least. `None` if no latency was measured. `share`: the text of a row's cost.
fn latency_sentences(
    latency: &Comparison<'_>,
    cost: &Comparison<'_>,
    share: impl Fn(&Row<'_>) -> String,
) -> Option<String> {
    let delay = |row: &Row<'_>| row.number("latency_mean_ns").map(human::ns).unwrap_or_default();
    let fastest = latency.candidates.first()?;
    let (scheme, mean) = (fastest.value_text("scheme"), delay(fastest));
    let text = match (&latency.candidates[..], latency.winner(), cost.winner()) {
        (_, Some(_), Some(cheapest)) if scheme == cheapest.value_text("scheme") => {
            format!("It also delays least ({mean} on average).")
        }
        (_, Some(_), Some(cheapest)) => format!(
            "{scheme} delays least ({mean} on average, not {}), for {}.",
            delay(cheapest),
            share(fastest)
        ),
        (_, Some(_), None) => format!("{scheme} delays least ({mean} on average)."),
        ([_], None, _) if !schemes::has_two_schemes(&latency.measured) => {
            format!("The mean latency of {scheme} is {mean}.")
        }
        ([_], None, _) => {
            format!("{scheme} delays less than the other measured schemes ({mean} on average).")
        }
        (several, None, _) => {
            let name = |row: &Row<'_>| format!("{} ({})", row.value_text("scheme"), delay(row));
            let names: Vec<String> = several.iter().map(name).collect();
            let reason = reason_without_winner(several, |row| figure(row, "latency_mean_ns"));
            format!("Which one delays least is not known, {reason}: {}.", names.join(", "))
        }
    };
    Some(text + &latency.note("Latency not measured"))
}
