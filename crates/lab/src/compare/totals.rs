//! The answer of a comparison of `handlers`: how the CPU time per interrupt of each context changed. The table `totals`
//! comes first, and each of its rows has a sentence.

use std::collections::BTreeMap;

use record::{Columns, Format, Table, TableDisplay, column};

use super::{Comparison, Difference};

/// Maximum number of rows that the terminal shows by default.
const ROWS_SHOWN: u64 = 10;
/// The table whose rows are contexts, and its columns.
const CONTEXTS: &str = "handlers";
const MEAN: &str = "self_mean_ns";
const CPU_RATIO: &str = "self_cpu_ratio";

/// How a figure of a context changed, over all conditions of the run.
struct Total {
    kind: String,
    number: String,
    name: String,
    base_ns: f64,
    new_ns: f64,
    /// Change of the share of CPU time, in the mean over the conditions.
    effect_ratio: Option<f64>,
}

impl Total {
    fn change_ratio(&self) -> f64 {
        self.new_ns / self.base_ns - 1.0
    }

    /// The change as a sentence: `NET_RX: 48.7 % less CPU time per interrupt`.
    fn finding(&self) -> String {
        let change = self.change_ratio();
        let direction = if change < 0.0 { "less" } else { "more" };
        format!(
            "{}: {} {direction} CPU time per {}",
            self.name,
            percent(change.abs()),
            self.span_word()
        )
    }

    /// The word for a span of the context in its sentence, by the labels of `attribution::ContextKind`.
    fn span_word(&self) -> &'static str {
        match self.kind.as_str() {
            "napi" => "poll",
            "exception" => "exception",
            _ => "interrupt",
        }
    }
}

/// A ratio as a percentage with three significant digits.
fn percent(ratio: f64) -> String {
    let percent = 100.0 * ratio;
    let decimals = match percent {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{percent:.decimals$} %")
}

/// The value of a key column of a difference's row. Empty if the table has no such column.
fn key<'d>(difference: &'d Difference<'_>, name: &str) -> &'d str {
    let values = difference.pair.row.iter();
    values.clone().find(|(key, _)| *key == name).map_or("", |(_, value)| value.as_str())
}

/// The contexts whose mean self time is known to have changed in a condition, with enough spans.
fn totals(comparison: &Comparison<'_>) -> Vec<Total> {
    let mut by_context: BTreeMap<[&str; 3], Vec<&Difference<'_>>> = BTreeMap::new();
    let mut effects: BTreeMap<[&str; 3], Vec<f64>> = BTreeMap::new();
    let in_contexts = |difference: &&Difference<'_>| {
        difference.pair.table.name == CONTEXTS && ["all", ""].contains(&key(difference, "cpu"))
    };
    for difference in comparison.differences.iter().filter(in_contexts) {
        let context = ["kind", "number", "name"].map(|name| key(difference, name));
        match (difference.pair.column.name.as_str(), difference.change) {
            (MEAN, Some(_)) if !difference.has_few_spans() => {
                by_context.entry(context).or_default().push(difference);
            }
            (CPU_RATIO, Some(change)) => effects.entry(context).or_default().push(change),
            _ => {}
        }
    }
    let total = |(context, differences): (&[&str; 3], &Vec<&Difference<'_>>)| {
        // The sum of all conditions says less or more. A known change in one condition must not name the opposite.
        let mut known = differences.iter().filter(|difference| difference.verdict.is_difference());
        let is_more =
            |difference: &&&Difference<'_>| difference.change.is_some_and(|change| change > 0.0);
        let directions: Vec<bool> = known.by_ref().map(|difference| is_more(&difference)).collect();
        // A condition weighs as much as the run with the fewest spans has of it: a change of rates changes nothing.
        let weight = |difference: &Difference<'_>| difference.pair.span_count.unwrap_or(1) as f64;
        let sum = |value: fn(&Difference<'_>) -> f64| -> f64 {
            differences.iter().map(|difference| weight(difference) * value(difference)).sum()
        };
        let weights = differences.iter().map(|difference| weight(difference)).sum::<f64>();
        fn first(difference: &Difference<'_>) -> f64 {
            difference.pair.base.map_or(0.0, |base| base.value)
        }
        let base_ns = sum(first) / weights;
        let new_ns =
            sum(|difference| first(difference) + difference.change.unwrap_or(0.0)) / weights;
        let effects = effects.get(context).map(Vec::as_slice).unwrap_or_default();
        let effect_ratio =
            (!effects.is_empty()).then(|| effects.iter().sum::<f64>() / effects.len() as f64);
        let [kind, number, name] = context.map(str::to_owned);
        let agrees = directions.iter().all(|is_more| *is_more == (new_ns > base_ns));
        (!directions.is_empty()
            && agrees
            && base_ns > 0.0
            && new_ns > 0.0
            && base_ns.to_bits() != new_ns.to_bits())
        .then_some(Total { kind, number, name, base_ns, new_ns, effect_ratio })
    };
    let mut totals: Vec<Total> = by_context.iter().filter_map(total).collect();
    let effect = |total: &Total| total.effect_ratio.unwrap_or(0.0).abs();
    totals.sort_by(|earlier, later| effect(later).total_cmp(&effect(earlier)));
    totals
}

/// Table `totals`. `None` if no context is known to have changed.
pub(super) fn table(comparison: &Comparison<'_>) -> Option<Table> {
    let totals = totals(comparison);
    if totals.is_empty() {
        return None;
    }
    let columns = Columns::all([
        column("finding", "The change in words.")
            .priority(100)
            .uncut()
            .text(|total: &Total| total.finding()),
        column("kind", "Kind of the context.").priority(60).key().text(|total: &Total| total.kind.clone()),
        column("number", "Number of the context.").detail().key().text(|total: &Total| total.number.clone()),
        column("name", "Name of the context.").detail().key().text(|total: &Total| total.name.clone()),
        column("base_ns", "Mean self time of a span in the first run.")
            .format(Format::Microseconds)
            .shown_as("base", 80)
            .real(|total: &Total| total.base_ns),
        column("new_ns", "The second run's, with the same weights of the conditions.")
            .format(Format::Microseconds)
            .shown_as("new", 80)
            .real(|total: &Total| total.new_ns),
        column("change_ratio", "Second less first, as a part of the first.")
            .detail()
            .real(|total: &Total| total.change_ratio()),
        column(
            "effect_cpu_ratio",
            "Change of the context's share of CPU time, in the mean over the conditions. Includes the change of its rate.",
        )
        .shown_as("CPU", 90)
        .real(|total: &Total| total.effect_ratio),
    ]);
    let display = TableDisplay {
        title: "CPU time of interrupts, by effect".to_owned(),
        headline: "{finding}".to_owned(),
        rows_max: Some(ROWS_SHOWN),
        ..TableDisplay::default()
    };
    let doc = "Contexts whose mean self time is known to have changed, the largest effect on CPU time first.";
    Some(columns.table("totals", doc, totals.iter()).displayed(display))
}
