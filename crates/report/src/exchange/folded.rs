//! Folded stacks, the input of flame graphs: a line `frame;frame;frame weight` for each stack. `irqlab export
//! --format folded` writes them.
//!
//! The frames of a line go from the general to the particular: kind of context and handler, or cache and function.
//! Weights are *self* values, so the lines add up without counting anything twice.

use std::collections::{BTreeMap, BTreeSet};

use record::{Kind, Run, Table, Value};

use super::Unexported;
use crate::escape;
use crate::row::Row;

/// Folded stacks with one kind of weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The unit or event of the weights, such as `ns` or `l1d_misses`.
    pub weight: String,
    /// The lines, in order of their frames, with a line break at the end of each.
    pub text: String,
    /// Which stacks have no line, as a sentence. `None` if only stacks are missing whose weight rounds to 0.
    pub left_out: Option<String>,
}

/// The stacks of a weight.
#[derive(Default)]
struct Stacks {
    /// The sum of the values of each stack, by its frames from the root.
    values: BTreeMap<Vec<String>, f64>,
    /// The frames of values that are below their detection limit. These values are in no stack: with the positive ones
    /// alone, noise would add up.
    below_limit: BTreeSet<Vec<String>>,
}

/// What a row adds to its stack.
enum Weight {
    Measured(f64),
    /// The number is noise around 0.
    BelowLimit,
}

/// The weights for which the run has stacks. The first is the default of [`folded`].
#[must_use]
pub fn weights(run: &Run) -> Vec<String> {
    stacks_by_weight(run).into_iter().map(|(weight, _)| weight).collect()
}

/// The stacks with a weight, by default with the first of [`weights`]. Leaves out stacks whose weight is below its
/// detection limit, is negative, or rounds to zero. A weight can be negative, because the probe overhead is subtracted
/// from it.
///
/// Fails when the run has no stacks with this weight. The message lists the weights of the run.
pub fn folded(run: &Run, weight: Option<&str>) -> Result<Folded, Unexported> {
    let mut by_weight = stacks_by_weight(run);
    let names: Vec<&str> = by_weight.iter().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return Err(Unexported(format!(
            "a run of {} has no table with the self times or events of contexts; handlers, noise, \
             services and sim boot have one",
            escape::plain(&run.experiment)
        )));
    }
    let position = match weight {
        None => 0,
        Some(weight) => names.iter().position(|name| *name == weight).ok_or_else(|| {
            let weights = names.join(", ");
            Unexported(format!("this run has no stacks weighted by {weight:?}; it has: {weights}"))
        })?,
    };
    let (weight, stacks) = by_weight.swap_remove(position);
    let left_out = omission_note(&stacks);
    let lines = stacks.values.into_iter().filter(|(_, value)| value.round() >= 1.0);
    let text = lines.map(|(frames, value)| format!("{} {:.0}\n", frames.join(";"), value.round()));
    Ok(Folded { weight, text: text.collect(), left_out })
}

/// Says which stacks have no line. `None` if only stacks are missing whose weight rounds to 0.
fn omission_note(stacks: &Stacks) -> Option<String> {
    let is_negative = |value: &&f64| value.round() <= -1.0;
    let negative_count = stacks.values.values().filter(is_negative).count();
    // A stack with another value keeps its line, or is negative.
    let has_no_value =
        |frames: &&Vec<String>| stacks.values.get(*frames).is_none_or(|value| value.round() == 0.0);
    let below_limit = stacks.below_limit.iter().filter(has_no_value);
    let parts: Vec<String> = [
        (below_limit.count(), "below the detection limit"),
        (negative_count, "with a negative weight"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, reason)| format!("{count} {reason}"))
    .collect();
    (!parts.is_empty()).then(|| format!("stacks that are left out: {}", parts.join(", ")))
}

/// All stacks of the run's tables, by weight. Weights come in the order in which the tables mention them.
fn stacks_by_weight(run: &Run) -> Vec<(String, Stacks)> {
    let mut stacks = StacksByWeight::default();
    if let Some(table) = run.table("handlers") {
        for (row, root) in rows(table, "condition") {
            let frames = || stack(&root, &[text(&row, "kind"), numbered_name(&row)]);
            stacks.add("ns", frames(), weight_in(&row, "self_total_ns"));
            stacks.add("tsc_cycles", frames(), weight_in(&row, "self_total_tsc_cycles"));
        }
    }
    if let Some(table) = run.table("causes") {
        for (row, _) in rows(table, "") {
            let cpu = format!("CPU {}", text(&row, "cpu"));
            let frames = ["class", "kind", "name"].map(|column| text(&row, column));
            stacks.add("ns", stack(&[cpu], &frames), weight_in(&row, "total_ns"));
        }
    }
    if let Some(table) = run.table("events") {
        for (row, root) in rows(table, "condition") {
            let frames = stack(&root, &[text(&row, "kind"), numbered_name(&row)]);
            stacks.add(&text(&row, "event"), frames, weight_of_events(&row));
        }
    }
    if let Some(table) = run.table("services") {
        let counters = self_counters(table);
        for (row, _) in rows(table, "") {
            let frames = || stack(&[], &["class", "service"].map(|column| text(&row, column)));
            stacks.add("ns", frames(), weight_in(&row, "self_total_ns"));
            stacks.add_counters(&counters, &frames(), &row);
        }
    }
    if let Some(table) = run.table("contexts") {
        let counters = self_counters(table);
        for (row, root) in rows(table, "region") {
            let frames = stack(&root, &kind_and_name(&text(&row, "context")));
            stacks.add_counters(&counters, &frames, &row);
        }
    }
    if let Some(table) = run.table("miss_functions") {
        // In runs of experiments, misses are also divided by service.
        let group = if table.column("condition").is_some() { "condition" } else { "region" };
        for (row, root) in rows(table, group) {
            let frames = ["cache", "class", "service", "function"].map(|name| text(&row, name));
            let misses = weight_in(&row, "misses").or_else(|| weight_in(&row, "miss_count"));
            stacks.add("misses", stack(&root, &frames), misses);
        }
    }
    stacks.0
}

/// The events of all spans of a row of table `events`. `None` if the row has no mean.
fn weight_of_events(row: &Row<'_>) -> Option<Weight> {
    let Weight::Measured(mean) = weight_in(row, "self_mean")? else {
        return Some(Weight::BelowLimit);
    };
    let limit = row.number("read_overhead_mean_ci95");
    if limit.is_some_and(|limit| !is_above_limit(mean, limit)) {
        return Some(Weight::BelowLimit);
    }
    row.number("span_count").map(|span_count| Weight::Measured(mean * span_count))
}

/// Whether a mean of events is no noise. A mean within the error of the reads' overhead is noise, as a mean time within that
/// of the probes. Without such an error, 0 is exact: the context does not have the event.
fn is_above_limit(mean: f64, limit: f64) -> bool {
    mean > limit || (mean == 0.0 && limit == 0.0)
}

/// The counters with a column `self_COUNTER` in the table. `self_total_*` repeats a counter in another unit.
fn self_counters(table: &Table) -> Vec<&str> {
    let counters = table.columns.iter().filter(|column| column.kind == Kind::Uint);
    let names = counters.filter_map(|column| column.name.strip_prefix("self_"));
    names.filter(|name| !name.starts_with("total_")).collect()
}

/// Stacks by weight, in order of each weight's first appearance.
#[derive(Default)]
struct StacksByWeight(Vec<(String, Stacks)>);

impl StacksByWeight {
    /// Adds a value to the stack with these frames. `None` adds nothing.
    fn add(&mut self, weight: &str, frames: Vec<String>, value: Option<Weight>) {
        let Some(value) = value else { return };
        let position = self.0.iter().position(|(name, _)| name == weight);
        let index = position.unwrap_or_else(|| {
            self.0.push((weight.to_owned(), Stacks::default()));
            self.0.len() - 1
        });
        let (_, stacks) = &mut self.0[index];
        match value {
            Weight::Measured(value) => *stacks.values.entry(frames).or_default() += value,
            Weight::BelowLimit => {
                stacks.below_limit.insert(frames);
            }
        }
    }

    /// Adds the self counts of a row to the stack with these frames, each counter as a weight.
    fn add_counters(&mut self, counters: &[&str], frames: &[String], row: &Row<'_>) {
        for counter in counters {
            self.add(counter, frames.to_vec(), weight_in(row, &format!("self_{counter}")));
        }
    }
}

/// The number in a column as a weight. `None` if it is absent.
fn weight_in(row: &Row<'_>, column: &str) -> Option<Weight> {
    let number = row.number(column)?;
    let is_bound = row.column(column).is_some_and(|column| row.is_bound(column));
    Some(if is_bound { Weight::BelowLimit } else { Weight::Measured(number) })
}

/// The rows of a table that add up without counting anything twice: the sums over all CPUs, or all rows if there are no
/// sums. If the column `group` has several values, each row comes with its value as the root frame.
fn rows<'a>(table: &'a Table, group: &str) -> Vec<(Row<'a>, Vec<String>)> {
    let all: Vec<Row<'_>> = table.rows().iter().map(|values| Row::new(table, values)).collect();
    let is_sum = |row: &Row<'_>| *row.get("cpu") == Value::from("all");
    let has_sums = all.iter().any(is_sum);
    let groups: BTreeSet<String> = all.iter().map(|row| text(row, group)).collect();
    let root = |row: &Row<'_>| match groups.len() {
        0 | 1 => Vec::new(),
        _ if group == "region" => vec![format!("region {}", text(row, group))],
        _ => vec![text(row, group)],
    };
    let kept = all.into_iter().filter(|row| !has_sums || is_sum(row));
    kept.map(|row| (row, root(&row))).collect()
}

/// A stack: the frames of `root`, then `frames` without the empty ones.
fn stack(root: &[String], frames: &[String]) -> Vec<String> {
    let frames = frames.iter().filter(|frame| !frame.is_empty());
    root.iter().chain(frames).map(|frame| frame_of(frame)).collect()
}

/// A name as a frame, without semicolons, which would start another frame.
fn frame_of(name: &str) -> String {
    escape::plain(name).replace(';', ":")
}

fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        Value::Text(text) => text.clone(),
        Value::Uint(number) => number.to_string(),
        _ => String::new(),
    }
}

/// The name of a context, such as `TIMER`. The name of an IRQ includes its number, because several IRQs can have the
/// same name: `36 virtio1-req.0`.
fn numbered_name(row: &Row<'_>) -> String {
    let (kind, number, name) = (text(row, "kind"), text(row, "number"), text(row, "name"));
    match (kind.starts_with("irq"), name.is_empty()) {
        (false, _) => name,
        (true, true) => number,
        (true, false) => format!("{number} {name}"),
    }
}

/// Splits `kernel thread 7 kworker/0:0` into its kind and its name, which starts with the number. Without a number, the
/// whole text is the kind.
fn kind_and_name(context: &str) -> [String; 2] {
    let precedes_number = |(space, _): &(usize, &str)| {
        context[space + 1..].starts_with(|character: char| character.is_ascii_digit())
    };
    match context.match_indices(' ').find(precedes_number) {
        Some((space, _)) => [context[..space].to_owned(), context[space + 1..].to_owned()],
        None => [context.to_owned(), String::new()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{Bool, Real, Text, Uint};
    use record::Column;

    use crate::picture::tests::{run_of, table};

    fn handlers(rows: &[(&str, &str, &str, u64, &str, u64)]) -> Table {
        let columns = [
            ("condition", Text),
            ("cpu", Text),
            ("kind", Text),
            ("number", Uint),
            ("name", Text),
            ("self_total_ns", Uint),
        ];
        let row =
            |(condition, cpu, kind, number, name, total): &(&str, &str, &str, u64, &str, u64)| {
                let names = [*condition, *cpu, *kind].map(Value::from);
                let number_name_and_total = [(*number).into(), (*name).into(), (*total).into()];
                names.into_iter().chain(number_name_and_total).collect()
            };
        table("handlers", &columns, rows.iter().map(row).collect())
    }

    #[test]
    fn a_line_is_context_handler_and_weight_and_cpus_are_summed_once() {
        let rows = [
            ("ambient", "all", "softirq", 4, "BLOCK", 300),
            ("ambient", "0", "softirq", 4, "BLOCK", 100),
            ("ambient", "1", "softirq", 4, "BLOCK", 200),
            ("ambient", "all", "irq", 36, "a;b\n", 7),
            ("ambient", "all", "irq", 37, "none", 0),
        ];
        let folded = folded(&run_of(vec![handlers(&rows)]), None).unwrap();
        assert_eq!(folded.weight, "ns");
        assert_eq!(folded.text, "irq;36 a:b\\n 7\nsoftirq;BLOCK 300\n");
        assert_eq!(folded.left_out, None);
    }

    /// A flame graph with only the positive values of noise around 0 would show their sum.
    #[test]
    fn a_value_below_its_limit_has_no_line_whatever_its_sign() {
        let columns = vec![
            Column::new("kind", Text, ""),
            Column::new("name", Text, ""),
            Column::new("event", Text, ""),
            Column::new("span_count", Uint, ""),
            Column::new("self_mean", Real, "").plus_minus("self_mean_ci95").below_limit("is_below"),
            Column::new("self_mean_ci95", Real, ""),
            Column::new("is_below", Bool, ""),
            Column::new("read_overhead_mean_ci95", Real, ""),
        ];
        let mut events = Table::new("events", "", columns);
        let mut push = |name: &str, mean: f64, is_below: Value, limit: Value| {
            let names = ["softirq", name, "l1d_misses"].map(Value::from);
            let numbers = [1000.into(), mean.into(), 5.0.into(), is_below, limit];
            events.push(names.into_iter().chain(numbers).collect());
        };
        push("A", 3.0, true.into(), Value::Absent);
        push("B", -3.0, true.into(), Value::Absent);
        push("C", 50.0, false.into(), 5.0.into());
        // Runs of irqlab have no flag: the limit is the error of the overhead.
        push("D", 3.0, Value::Absent, 5.0.into());
        push("E", -3.0, Value::Absent, 5.0.into());
        push("F", -3.0, Value::Absent, Value::Absent);
        push("G", 0.0, Value::Absent, 0.0.into());
        // Two rows of one stack: one count. A stack with a line is not left out.
        push("A", 2.0, true.into(), Value::Absent);
        push("C", 2.0, true.into(), Value::Absent);
        let folded = folded(&run_of(vec![events]), None).unwrap();
        assert_eq!(folded.text, "softirq;C 50000\n");
        let left_out = folded.left_out.unwrap();
        let expected =
            "stacks that are left out: 4 below the detection limit, 1 with a negative weight";
        assert_eq!(left_out, expected);
    }

    #[test]
    fn a_total_whose_mean_is_below_the_limit_has_no_line() {
        let mut table = handlers(&[
            ("idle", "all", "softirq", 4, "BLOCK", 300),
            ("idle", "all", "softirq", 1, "TIMER", 354),
        ]);
        let total = table.columns.iter_mut().find(|column| column.name == "self_total_ns").unwrap();
        *total = total.clone().below_limit("is_below");
        table.columns.push(Column::new("is_below", Bool, ""));
        let rows: Vec<Vec<Value>> = table.rows().to_vec();
        let mut marked = Table::new("handlers", "", table.columns.clone());
        for (row, is_below) in rows.into_iter().zip([false, true]) {
            marked.push(row.into_iter().chain([is_below.into()]).collect());
        }
        let folded = folded(&run_of(vec![marked]), None).unwrap();
        assert_eq!(folded.text, "softirq;BLOCK 300\n");
        assert!(folded.left_out.unwrap().ends_with("1 below the detection limit"));
    }

    #[test]
    fn several_conditions_are_frames_of_their_own() {
        let rows = [("idle", "all", "nmi", 2, "nmi", 1), ("busy", "all", "nmi", 2, "nmi", 2)];
        let folded = folded(&run_of(vec![handlers(&rows)]), Some("ns")).unwrap();
        assert_eq!(folded.text, "busy;nmi;nmi 2\nidle;nmi;nmi 1\n");
    }

    #[test]
    fn services_have_a_class_a_name_and_their_counters() {
        let columns = [
            ("class", Text),
            ("service", Text),
            ("self_total_ns", Real),
            ("self_total_cycles", Uint),
            ("self_cycles", Uint),
        ];
        let row = vec!["syscall".into(), "read".into(), 2.5.into(), 10.into(), 10.into()];
        let run = run_of(vec![table("services", &columns, vec![row])]);
        assert_eq!(weights(&run), ["ns", "cycles"]);
        assert_eq!(folded(&run, Some("cycles")).unwrap().text, "syscall;read 10\n");
    }

    #[test]
    fn misses_by_service_have_its_class_and_name() {
        let columns =
            ["condition", "class", "service", "cache", "function"].map(|name| (name, Text));
        let columns = [&columns[..], &[("miss_count", Uint)]].concat();
        let row = |condition: &str, misses: u64| {
            let names = [condition, "softirq", "NET_RX", "L2", "__napi_poll"];
            names.into_iter().map(Value::from).chain([misses.into()]).collect()
        };
        let run =
            run_of(vec![table("miss_functions", &columns, vec![row("idle", 3), row("busy", 4)])]);
        assert_eq!(weights(&run), ["misses"]);
        let text = folded(&run, Some("misses")).unwrap().text;
        assert_eq!(
            text,
            "busy;L2;softirq;NET_RX;__napi_poll 4\nidle;L2;softirq;NET_RX;__napi_poll 3\n"
        );
    }

    #[test]
    fn a_weight_that_the_run_does_not_have_is_refused_with_those_that_it_has() {
        let contexts = table(
            "contexts",
            &[
                ("region", Uint),
                ("cpu", Text),
                ("context", Text),
                ("self_instructions", Uint),
                ("self_instructions_ratio", Real),
                ("self_l1d_misses", Uint),
            ],
            vec![
                vec![
                    1.into(),
                    "all".into(),
                    "kernel thread 7 kworker/0:0".into(),
                    50.into(),
                    0.5.into(),
                    3.into(),
                ],
                vec![1.into(), "0".into(), "unknown".into(), 50.into(), 0.5.into(), Value::Absent],
            ],
        );
        let run = run_of(vec![contexts]);
        assert_eq!(weights(&run), ["instructions", "l1d_misses"]);
        let text = |weight| folded(&run, Some(weight)).map(|folded| folded.text);
        assert_eq!(text("l1d_misses").unwrap(), "kernel thread;7 kworker/0:0 3\n");
        let refused = text("misses").unwrap_err().to_string();
        assert!(refused.ends_with("it has: instructions, l1d_misses"), "{refused}");
        assert!(folded(&run_of(vec![]), None).unwrap_err().to_string().contains("sim boot"));
    }
}
