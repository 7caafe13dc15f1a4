//! The data of the HTML page of a sweep's report. `report` draws it.

use anyhow::Context;
use record::Run;
use report::{SweepAxis, SweepFigures, SweepPage, SweepPoint, sweep_page};
use sweep::Plan;

use super::tables::state_text;
use super::{Combination, Facts};

/// The page as HTML. `combinations`: sorted as in the report's table. The commands print the
/// table, and make the page again.
pub fn page(
    plan: &Plan,
    facts: &Facts,
    combinations: &[Combination<'_>],
    report: &Run,
    answers: &[String],
    (print_command, command): (&str, &str),
) -> anyhow::Result<String> {
    let column = facts.column.clone().without_half_width();
    let figures = SweepFigures {
        column: &column,
        name: facts.figure_name(),
        axes: axes(plan, combinations),
        points: combinations.iter().map(point).collect(),
        compared_with: facts.compared_with().to_owned(),
    };
    let page = SweepPage { figures: &figures, report, answers, print_command, command };
    sweep_page(page).context("cannot make the page")
}

/// The axes, each held at the value of the baseline, or else at the value of the first task with a figure.
fn axes(plan: &Plan, combinations: &[Combination<'_>]) -> Vec<SweepAxis> {
    let with_figure = combinations.iter().filter(|combination| combination.reading().is_some());
    let by_order =
        with_figure.min_by_key(|combination| (!combination.is_baseline, combination.index));
    let held = |index: usize| {
        by_order.and_then(|combination| combination.task.values.get(index)).copied().unwrap_or(0)
    };
    let axis = |(index, axis): (usize, &sweep::PlannedAxis)| SweepAxis {
        name: axis.name.clone(),
        values: axis.values.clone(),
        held: held(index),
    };
    plan.axes.iter().enumerate().map(axis).collect()
}

fn point(combination: &Combination<'_>) -> SweepPoint {
    let change = combination.change;
    let bound = combination.reading().and_then(lab::compare::Reading::bound);
    // A bound drawn as a point would look like a measurement.
    let reading = if bound.is_some() { None } else { combination.reading() };
    SweepPoint {
        values: combination.task.values.clone(),
        figure: reading.map(lab::compare::Reading::value),
        interval: reading.filter(|reading| !reading.is_exact()).and_then(|r| r.interval()),
        change: change.and_then(|change| change.ratio(change.difference?)),
        remark: match (bound, change) {
            (Some(bound), _) => format!("only a bound ({})", bound.sign()),
            (None, Some(change)) => change.verdict.word().to_owned(),
            (None, None) => state_text(combination),
        },
    }
}
