//! Table `totals` of a comparison of `handlers`, the first one: for each context, how its mean self time changed, as a
//! sentence and as numbers.

use std::collections::BTreeMap;

use record::{Columns, Format, Table, TableDisplay, column};

use super::{Comparison, Difference};

/// Maximum number of rows that the terminal shows by default.
const ROWS_SHOWN: u64 = 10;
/// The table whose rows are contexts, and its columns.
const CONTEXTS: &str = "handlers";
const MEAN: &str = "self_mean_ns";
const CPU_RATIO: &str = "self_cpu_ratio";
const CONDITION: &str = "condition";

/// The change of a context's mean self time, over the conditions with a known change.
struct Total {
    kind: String,
    number: String,
    name: String,
    base_ns: f64,
    new_ns: f64,
    /// Mean change of the share of CPU time over the conditions with a known change. `None` if no share is known.
    effect_ratio: Option<f64>,
    /// The number of conditions with a known change, and of all conditions with the context.
    condition_counts: (usize, usize),
}

impl Total {
    fn change_ratio(&self) -> f64 {
        self.new_ns / self.base_ns - 1.0
    }

    /// The change as a sentence: `NET_RX: 48.7 % less CPU time per interrupt`. If some conditions have no known change, the
    /// sentence ends with the number of conditions.
    fn finding(&self) -> String {
        let change = self.change_ratio();
        let direction = if change < 0.0 { "less" } else { "more" };
        let (known, compared) = self.condition_counts;
        let conditions = if known < compared {
            format!(" in {known} of {compared} conditions")
        } else {
            String::new()
        };
        format!(
            "{}: {} {direction} CPU time per {}{conditions}",
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

/// A ratio as a percentage with three significant digits and at most three decimals. A change that rounds to nothing is
/// below a limit: `<0.001 %`. The ratio is not negative.
fn percent(ratio: f64) -> String {
    let percent = 100.0 * ratio;
    if percent > 0.0 && percent < 0.000_5 {
        return "<0.001 %".to_owned();
    }
    let decimals = match percent {
        ..0.999_5 => 3,
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

/// A context's conditions whose mean self times were compared.
#[derive(Default)]
struct Conditions<'d, 'a> {
    /// The differences of the means that are known to differ.
    known: Vec<&'d Difference<'a>>,
    /// All conditions with enough spans, also those with an equal or undecided mean.
    compared: usize,
}

/// The contexts whose mean self time is known to have changed in a condition, with enough spans, the largest effect on CPU
/// time first. Only such conditions are in the figures: the difference of another condition may be chance. A context with
/// changes in both directions is left out, and so is one without a mean above 0 in both runs.
fn changed_contexts(comparison: &Comparison<'_>) -> Vec<Total> {
    let mut by_context: BTreeMap<[&str; 3], Conditions<'_, '_>> = BTreeMap::new();
    let mut effects: BTreeMap<([&str; 3], &str), f64> = BTreeMap::new();
    let in_contexts = |difference: &&Difference<'_>| {
        difference.pair.table.name == CONTEXTS && ["all", ""].contains(&key(difference, "cpu"))
    };
    for difference in comparison.differences.iter().filter(in_contexts) {
        let context = ["kind", "number", "name"].map(|name| key(difference, name));
        match (difference.pair.column.name.as_str(), difference.change) {
            (MEAN, Some(_)) if !difference.has_few_spans() => {
                let conditions = by_context.entry(context).or_default();
                conditions.compared += 1;
                // How much a context's mean changed is not known from a bound.
                let is_known = difference.verdict.is_difference() && !difference.has_bound();
                conditions.known.extend(is_known.then_some(difference));
            }
            (CPU_RATIO, Some(change)) if !difference.has_bound() => {
                effects.insert((context, key(difference, CONDITION)), change);
            }
            _ => {}
        }
    }
    let total = |(context, Conditions { known, compared }): (&[&str; 3], &Conditions<'_, '_>)| {
        // A condition weighs as much as the run with the fewest spans has of it: a change of rates changes nothing.
        let weight = |difference: &Difference<'_>| difference.pair.span_count.unwrap_or(1) as f64;
        let sum = |value: fn(&Difference<'_>) -> f64| -> f64 {
            known.iter().map(|difference| weight(difference) * value(difference)).sum()
        };
        let weights = known.iter().map(|difference| weight(difference)).sum::<f64>();
        fn first(difference: &Difference<'_>) -> f64 {
            difference.pair.base.map_or(0.0, |base| base.value)
        }
        let base_ns = sum(first) / weights;
        let new_ns =
            sum(|difference| first(difference) + difference.change.unwrap_or(0.0)) / weights;
        let effect = |difference: &&Difference<'_>| {
            effects.get(&(*context, key(difference, CONDITION))).copied()
        };
        let effects: Vec<f64> = known.iter().filter_map(effect).collect();
        let effect_ratio =
            (!effects.is_empty()).then(|| effects.iter().sum::<f64>() / effects.len() as f64);
        let [kind, number, name] = context.map(str::to_owned);
        // The mean of known changes in both directions must not name one of them.
        let agrees = known.iter().all(|difference| {
            difference.change.is_some_and(|change| (change > 0.0) == (new_ns > base_ns))
        });
        let condition_counts = (known.len(), *compared);
        (!known.is_empty()
            && agrees
            && base_ns > 0.0
            && new_ns > 0.0
            && base_ns.to_bits() != new_ns.to_bits())
        .then_some(Total { kind, number, name, base_ns, new_ns, effect_ratio, condition_counts })
    };
    let mut totals: Vec<Total> = by_context.iter().filter_map(total).collect();
    let effect = |total: &Total| total.effect_ratio.unwrap_or(0.0).abs();
    totals.sort_by(|earlier, later| effect(later).total_cmp(&effect(earlier)));
    totals
}

/// Table `totals`. `None` if no context is known to have changed.
pub(super) fn table(comparison: &Comparison<'_>) -> Option<Table> {
    let totals = changed_contexts(comparison);
    if totals.is_empty() {
        return None;
    }
    let columns = Columns::all([
        column("finding", "The change as a sentence.")
            .priority(100)
            .uncut()
            .text(|total: &Total| total.finding()),
        column("kind", "Kind of the context.")
            .priority(60)
            .key()
            .text(|total: &Total| total.kind.clone()),
        column("number", "Number of the context.")
            .detail()
            .key()
            .text(|total: &Total| total.number.clone()),
        column("name", "Name of the context.")
            .detail()
            .key()
            .text(|total: &Total| total.name.clone()),
        column(
            "base_ns",
            "Mean self time of a span in the first run, over the conditions with a known change. A condition weighs as \
             much as it has spans in the run that has fewer of them.",
        )
        .format(Format::Microseconds)
        .shown_as("base", 80)
        .real(|total: &Total| total.base_ns),
        column(
            "new_ns",
            "Mean self time of a span in the second run. Each condition weighs as much as in base_ns.",
        )
        .format(Format::Microseconds)
        .shown_as("new", 80)
        .real(|total: &Total| total.new_ns),
        column("change_ratio", "(new_ns - base_ns) / base_ns.")
            .detail()
            .real(|total: &Total| total.change_ratio()),
        column(
            "effect_cpu_ratio",
            "Mean change of the context's share of CPU time over the conditions with a known change. Includes the change \
             of its rate.",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_never_shown_as_nothing() {
        let texts = [1e-6, 3e-5, 0.0048, 0.0321, 0.487, 1.5].map(percent);
        assert_eq!(texts, ["<0.001 %", "0.003 %", "0.480 %", "3.21 %", "48.7 %", "150 %"]);
    }
}
