//! The table of a sweep's report: a row for each combination, the largest change first.

use std::cmp::Ordering;

use record::{Absence, Column, Format, Kind, Role, Run, SCHEMA, Table, TableDisplay, Value};
use serde_json::Map;
use sweep::{Plan, SweepDirectory};

use super::selection::ChosenColumn;
use super::{Combination, Facts, State, path_text, windows_warning};

/// Name of the table.
const COMBINATIONS: &str = "combinations";
/// Name of the column that marks figures which are only bounds.
const IS_BOUND: &str = "is_bound";
/// Number of combinations without a figure that are named, for each reason.
const NAMED_MAX: usize = 20;
/// Endings of column names that are units, the longest first.
const UNITS: [&str; 6] = ["_bytes_per_second", "_cycles", "_bytes", "_ratio", "_ns", "_hz"];

/// The report as a run with one table. Sorts the combinations.
pub fn report(
    sweep: &SweepDirectory,
    chosen: &ChosenColumn,
    facts: &Facts,
    combinations: &mut [Combination<'_>],
) -> Run {
    let plan = sweep.plan();
    sort(facts.column.role, combinations);
    let table = table(plan, facts, combinations);
    let bench = match &facts.benches[..] {
        [only] => only.clone(),
        several => several.join(" and "),
    };
    Run {
        schema: SCHEMA.to_owned(),
        experiment: format!("sweep of {}", facts.experiment),
        bench,
        started_utc: facts.started_utc.clone(),
        complete: true,
        host: Map::new(),
        settings: Map::new(),
        observer: Map::new(),
        warnings: warnings(plan, chosen, facts, combinations),
        absent: absences(sweep, combinations),
        tables: vec![table],
    }
}

/// Known differences first, the largest first; then other changes; then figures without a change; then combinations
/// without a figure, in the order of the plan.
fn sort(role: Role, combinations: &mut [Combination<'_>]) {
    let rank = |combination: &Combination<'_>| match (&combination.change, combination.reading()) {
        (Some(change), _) if change.verdict.is_difference() => 0,
        (Some(_), _) => 1,
        (None, Some(_)) if combination.is_baseline => 2,
        (None, Some(_)) => 3,
        (None, None) => 4,
    };
    let effect = |combination: &Combination<'_>| {
        let change = combination.change?;
        // A change from 0 is the largest. A change that bounds leave open is the smallest.
        let Some(difference) = change.least_difference() else { return Some(0.0) };
        Some(change.ratio(difference).map_or(f64::INFINITY, f64::abs))
    };
    let value = |combination: &Combination<'_>| combination.reading().map(super::Reading::value);
    let by_value = |first: &Combination<'_>, second: &Combination<'_>| {
        let order = match (value(first), value(second)) {
            (Some(first), Some(second)) => first.total_cmp(&second),
            _ => Ordering::Equal,
        };
        if role == Role::Benefit { order.reverse() } else { order }
    };
    combinations.sort_by(|first, second| {
        let by_effect = match (effect(first), effect(second)) {
            (Some(first), Some(second)) => second.total_cmp(&first),
            _ => Ordering::Equal,
        };
        let by_rank = rank(first).cmp(&rank(second));
        by_rank.then(by_effect).then(by_value(first, second)).then(first.index.cmp(&second.index))
    });
}

/// The name of a column with the unit of another column.
fn with_unit_of(name: &str, column: &str) -> String {
    let unit = UNITS.into_iter().find(|unit| column.ends_with(unit)).unwrap_or("");
    format!("{name}{unit}")
}

/// The name of an axis as a heading: without dashes.
pub fn heading(axis: &str) -> String {
    axis.trim_start_matches('-').to_owned()
}

/// The column of the reported figures. `figure`: that of the runs. The interval has columns of its own.
fn figure_column(figure: &Column) -> Column {
    let mut value = Column::new(&figure.name, Kind::Real, &figure.doc).priority(100);
    (value.role, value.display.format, value.display.digits) =
        (figure.role, figure.display.format, figure.display.digits);
    value.display.title = figure.clone().without_half_width().display.title;
    value
}

fn columns(plan: &Plan, facts: &Facts, combinations: &[Combination<'_>]) -> Vec<Column> {
    let figure = &facts.column;
    let has_interval = combinations
        .iter()
        .filter_map(Combination::reading)
        .any(|reading| !reading.is_exact() && reading.interval().is_some());
    let has_changes = combinations.iter().any(|combination| combination.change.is_some());
    let are_all_done = combinations.iter().all(|combination| combination.reading().is_some());
    let shown = |is_shown: bool, priority: u8| if is_shown { priority } else { 0 };
    let mut columns: Vec<Column> = plan
        .axes
        .iter()
        .map(|axis| {
            let doc = format!("Value of the axis {}.", axis.name);
            let column = Column::new(&axis.column, Kind::Text, &doc).key();
            column.shown_as(&heading(&axis.name), 95).uncut()
        })
        .collect();
    let mut value = figure_column(figure);
    if let Some(bound) = combinations.iter().find_map(|combination| combination.reading()?.bound())
    {
        value = value.bound(IS_BOUND, bound.sign());
    }
    let ends = ["interval_low", "interval_high"].map(|name| with_unit_of(name, &figure.name));
    let end = |name: &str, doc: &str| {
        let format = figure.display.format;
        Column::new(name, Kind::Real, doc).format(format).digits(figure.display.digits)
    };
    let low = end(
        &ends[0],
        "Lower end of the figure's 95 % interval. Absent if the figure is exact, or its uncertainty is not known.",
    );
    columns.extend([
        value,
        low.up_to(&ends[1]).shown_as("95 % interval", shown(has_interval, 85)),
        end(&ends[1], "Upper end of the figure's 95 % interval.").detail(),
    ]);
    let ratio = |name: &str, doc: &str| Column::new(name, Kind::Real, doc).format(Format::Auto);
    let change_doc = "The figure less the one that it is compared with, as a part of that figure.";
    let base = with_unit_of("base", &figure.name);
    columns.extend([
        Column::new(&base, Kind::Real, "The figure that this one is compared with: the baseline's, or that of --against.")
            .format(figure.display.format)
            .digits(figure.display.digits)
            .shown_as("base", shown(facts.against.is_some() && has_changes, 91)),
        ratio("change_ratio", change_doc).shown_as("change", shown(has_changes, 90)),
        ratio("change_low_ratio", "Lower end of the interval of the change. All intervals hold together in 95 % of reports.")
            .up_to("change_high_ratio")
            .shown_as("its interval", shown(has_changes && has_interval, 80)),
        ratio("change_high_ratio", "Upper end of the interval of the change.").detail(),
        Column::new("verdict", Kind::Text, "What the change means, as irqlab compare judges it.")
            .priority(shown(has_changes, 88)),
        Column::new("judged_by", Kind::Text, "How the change was judged.").detail(),
        Column::new("state", Kind::Text, "Why the figure is absent; done if it is not.")
            .wrapped()
            .priority(shown(!are_all_done, 92)),
        Column::new("task_index", Kind::Uint, "Position of the task in the plan.").detail(),
        Column::new("task_id", Kind::Text, "Id of the task: its result is in tasks/ID.").detail(),
        Column::new(IS_BOUND, Kind::Bool, "Whether the figure is only an upper or a lower bound.").detail(),
    ]);
    columns
}

/// An end of an interval. `None` if it is infinite, because a bound leaves the interval open.
fn known(end: f64) -> Option<f64> {
    end.is_finite().then_some(end)
}

/// The state of a combination in a word, and why its figure is absent.
pub fn state_text(combination: &Combination<'_>) -> String {
    match (&combination.state, &combination.why_absent) {
        (State::Done, None) => "done".to_owned(),
        (State::Done, Some(reason)) => reason.clone(),
        (State::Failed(_), _) => "failed".to_owned(),
        (State::Running, _) => "running".to_owned(),
        (State::Missing, _) => "missing".to_owned(),
    }
}

/// The table with one row for each combination, in the order of `combinations`. A combination without a figure has an
/// empty row, and a change is empty where the baseline has no figure. The cells follow the order of [`columns`].
fn table(plan: &Plan, facts: &Facts, combinations: &[Combination<'_>]) -> Table {
    let has_changes = combinations.iter().any(|combination| combination.change.is_some());
    let order = if has_changes {
        &format!("the largest change against {} first", facts.compared_with())
    } else {
        "the best figure first"
    };
    let display = TableDisplay {
        title: format!("{} (table {}), {order}", facts.figure_name(), facts.table.name),
        notes: vec![
            "a row for each combination; changes are judged as irqlab compare judges them, all rows as one family"
                .to_owned(),
        ],
        ..TableDisplay::default()
    };
    let doc = "One figure of each combination of a sweep, and its change against the baseline.";
    let mut table =
        Table::new(COMBINATIONS, doc, columns(plan, facts, combinations)).displayed(display);
    for combination in combinations {
        let mut row: Vec<Value> =
            plan.named_values(combination.task).map(|(_, value)| Value::from(value)).collect();
        let reading = combination.reading();
        let interval = reading.filter(|reading| !reading.is_exact()).and_then(|r| r.interval());
        row.push(reading.map(super::Reading::value).into());
        row.push(interval.and_then(|(low, _)| known(low)).into());
        row.push(interval.and_then(|(_, high)| known(high)).into());
        row.push(combination.base.into());
        let change = combination.change.as_ref();
        let ratio = |difference: Option<f64>| -> Value {
            change.zip(difference).and_then(|(change, end)| change.ratio(end)).into()
        };
        let ends = change.and_then(|change| change.interval).filter(|(low, high)| low < high);
        row.push(ratio(change.and_then(|change| change.difference)));
        row.push(ratio(ends.and_then(|(low, _)| known(low))));
        row.push(ratio(ends.and_then(|(_, high)| known(high))));
        row.push(match change {
            Some(change) => change.verdict.word().into(),
            None if facts.against.is_none() && combination.is_baseline && reading.is_some() => {
                "baseline".into()
            }
            None => Value::Absent,
        });
        row.push(change.map(|change| change.method.word().to_owned()).into());
        row.push(state_text(combination).into());
        row.push((combination.index as u64).into());
        row.push(combination.task.id.as_str().into());
        row.push(reading.map(|reading| reading.bound().is_some()).into());
        table.push(row);
    }
    table
}

/// What a reader must know before using a number.
fn warnings(
    plan: &Plan,
    chosen: &ChosenColumn,
    facts: &Facts,
    combinations: &[Combination<'_>],
) -> Vec<String> {
    let mut warnings = Vec::new();
    let all = combinations.len();
    let present = combinations.iter().filter(|c| c.reading().is_some()).count();
    if present < all {
        let count = |is_state: fn(&State) -> bool| {
            combinations.iter().filter(|c| c.reading().is_none() && is_state(&c.state)).count()
        };
        let parts = [
            (count(|state| matches!(state, State::Failed(_))), "failed"),
            (count(|state| *state == State::Running), "running"),
            (count(|state| *state == State::Missing), "missing"),
            (count(|state| *state == State::Done), "without the figure in its run"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        warnings.push(format!(
            "{present} of {all} combinations have the figure; {}: their figures are absent, not zero",
            parts.join(", ")
        ));
    }
    if chosen.is_default {
        warnings.push(format!(
            "no column was named: this is {}.{}, the headline column of {}",
            chosen.table, chosen.column, facts.experiment
        ));
    }
    warnings.extend(match &facts.against {
        Some(path) => against_warning(path, combinations),
        None => baseline_warning(plan, combinations),
    });
    warnings.extend(windows_warning(facts, &facts.column, 0, combinations));
    let is_bound = |combination: &&Combination<'_>| {
        combination.reading().is_some_and(|reading| reading.bound().is_some())
    };
    let bounds = combinations.iter().filter(is_bound).count();
    if bounds > 0 {
        warnings.push(format!(
            "{bounds} of {present} figures are only bounds (column is_bound): two upper bounds do not tell which is larger"
        ));
    }
    if facts.live_machines.len() > 1 {
        let machines: Vec<&str> = facts.live_machines.iter().map(String::as_str).collect();
        warnings.push(format!(
            "live runs of several machines, which may differ for that alone: {}",
            machines.join("; ")
        ));
    }
    warnings.extend(facts.notes_of_runs(""));
    warnings.extend(facts.base_notes.iter().cloned());
    warnings
}

/// Says how many figures the other sweep lacks. `None` if it lacks none.
fn against_warning(path: &str, combinations: &[Combination<'_>]) -> Option<String> {
    let is_unjudged = |combination: &&Combination<'_>| {
        combination.reading().is_some() && combination.change.is_none()
    };
    let unjudged = combinations.iter().filter(is_unjudged).count();
    (unjudged > 0).then(|| {
        format!("{path} does not have the figure of {unjudged} combinations: they have no change")
    })
}

/// Says why figures have no change, or with which of several values of the baseline they are compared.
/// `None` if neither is the case.
fn baseline_warning(plan: &Plan, combinations: &[Combination<'_>]) -> Option<String> {
    let Some(baseline) = &plan.baseline else {
        return Some("the specification has no [baseline]: figures have no change".to_owned());
    };
    let is_unjudged = |combination: &&Combination<'_>| {
        let is_own_baseline =
            plan.baseline_values(combination.task).as_ref() == Some(&combination.task.values);
        combination.reading().is_some() && combination.change.is_none() && !is_own_baseline
    };
    let unjudged = combinations.iter().filter(is_unjudged).count();
    if unjudged > 0 {
        return Some(format!(
            "{unjudged} combinations have a figure, but their baseline has none: they have no change"
        ));
    }
    let has_several = baseline.iter().any(|(_, values)| values.len() > 1);
    has_several.then(|| {
        "the baseline names several values of an axis: changes are against the first of them"
            .to_owned()
    })
}

/// Why a combination has no figure.
struct NoFigure {
    /// The task's state in a word. Absences are counted by it.
    state: &'static str,
    reason: String,
    /// A command that may give the figure.
    remedy: Option<String>,
}

impl NoFigure {
    /// `path`: the directory of the sweep, as a word of a shell.
    fn new(combination: &Combination<'_>, path: &str) -> NoFigure {
        let (state, reason, remedy) = match &combination.state {
            State::Failed(reason) => (
                "failed",
                format!("failed: {reason}"),
                Some(format!("irqlab sweep retry {path} && irqlab sweep run {path}")),
            ),
            State::Running => ("running", "is running now".to_owned(), None),
            State::Missing => (
                "missing",
                "has no result yet".to_owned(),
                Some(format!("irqlab sweep run {path}")),
            ),
            State::Done => ("absent", state_text(combination), None),
        };
        NoFigure { state, reason, remedy }
    }
}

/// An absence for each combination without a figure, at most [`NAMED_MAX`] for each state of tasks. One more absence then
/// has the number of the others.
fn absences(sweep: &SweepDirectory, combinations: &[Combination<'_>]) -> Vec<Absence> {
    let path = report::shell_word(&path_text(sweep.path()));
    let plan = sweep.plan();
    let mut absences: Vec<Absence> = Vec::new();
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for combination in combinations.iter().filter(|combination| combination.reading().is_none()) {
        let NoFigure { state, reason, remedy } = NoFigure::new(combination, &path);
        let position = counts.iter().position(|(known, _)| *known == state);
        let position = position.unwrap_or(counts.len());
        if position == counts.len() {
            counts.push((state, 0));
        }
        let (_, count) = &mut counts[position];
        *count += 1;
        if *count > NAMED_MAX {
            continue;
        }
        let what =
            format!("task {} ({})", combination.index, super::values_text(plan, combination.task));
        absences.push(Absence::new(COMBINATIONS, what, reason).with_remedy(remedy));
    }
    for (state, count) in counts.iter().filter(|(_, count)| *count > NAMED_MAX) {
        let reason = format!("{state}; irqlab sweep status {path} --json lists all");
        let what = format!("{} more combinations", count - NAMED_MAX);
        absences.push(Absence::new(COMBINATIONS, what, reason));
    }
    absences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heading_of_the_figures_names_no_half_width() {
        let title = |column: Column| figure_column(&column).display.title;
        let mean = Column::new("self_mean_ns", Kind::Real, "").plus_minus("self_mean_ci95_ns");
        assert_eq!(title(mean.title("mean ± ci95")), "mean");
        assert_eq!(title(Column::new("period_ns", Kind::Real, "").title("period ±")), "period");
        assert_eq!(title(Column::new("self_max_ns", Kind::Real, "").title("max")), "max");
    }
}
