//! Checks the rules of a gate on the judged differences.

use record::Run;

use super::bounds::bound_text;
use super::cells::{LeftOutTable, Pair, keys};
use super::difference::row_name;
use super::{CompareError, Difference, Limit, Method, Rule, Verdict};

/// Whether a rule holds. The worst ruling is first: `outcome` takes the minimum over the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ruling {
    /// The whole interval of a cell is beyond the limit.
    Broken,
    /// A cell is beyond the limit but its interval is not, or only one of the runs has a cell, or a cell cannot be judged.
    InDoubt,
    /// All cells are within the limit.
    Holds,
}

impl Ruling {
    /// The ruling in the table `rules`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Ruling::Broken => "broken",
            Ruling::InDoubt => "in doubt",
            Ruling::Holds => "holds",
        }
    }
}

/// The result of checking a rule on all cells that it covers.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub rule: Rule,
    /// Cells that were compared.
    pub cells: usize,
    /// Cells that the second run lacks.
    pub missing: usize,
    /// Cells that the first run lacks.
    pub added: usize,
    /// Cells that are totals over windows of different lengths, and an example of them in words.
    other_windows: Option<(usize, String)>,
    /// Cells whose bounds do not tell whether the rule holds, and an example of them in words.
    open_bounds: Option<(usize, String)>,
    pub ruling: Ruling,
    /// The cell that is farthest from holding: its row's name, and its change as a part of the first figure. The change is
    /// `None` for a cell with a bound.
    pub worst: Option<(String, Option<f64>)>,
}

impl Outcome {
    /// A warning if the rule could not be checked on all of its figures, because only one of the runs has them.
    pub(super) fn unchecked_warning(&self) -> Option<String> {
        let Outcome { rule, cells, missing, added, .. } = self;
        let unchecked = missing + added;
        (unchecked > 0).then(|| {
            format!(
                "rule {:?} is not checked on {unchecked} of its {} figures: the second run lacks {missing}, the first run \
                 lacks {added}",
                rule.text,
                cells + unchecked
            )
        })
    }

    /// A warning if the rule could not be checked on some of its figures, because they are totals over
    /// windows of different lengths.
    pub(super) fn windows_warning(&self) -> Option<String> {
        let (count, example) = self.other_windows.as_ref()?;
        Some(format!(
            "rule {:?} is not checked on {count} of its {} figures: they are totals over windows of different lengths \
             ({example}) (name a rate, a share of CPU time or a mean)",
            self.rule.text, self.cells
        ))
    }

    /// The number of cells that are totals over windows of different lengths.
    #[must_use]
    pub fn other_windows(&self) -> usize {
        self.other_windows.as_ref().map_or(0, |(count, _)| *count)
    }

    /// The number of cells whose bounds do not tell whether the rule holds.
    #[must_use]
    pub fn open_bounds(&self) -> usize {
        self.open_bounds.as_ref().map_or(0, |(count, _)| *count)
    }

    /// A warning if the rule could not be checked on some of its figures, because they are only bounds.
    pub(super) fn bounds_warning(&self) -> Option<String> {
        let (count, example) = self.open_bounds.as_ref()?;
        Some(format!(
            "rule {:?} is not checked on {count} of its {} figures: they are only bounds ({example})",
            self.rule.text, self.cells
        ))
    }
}

/// The error for a rule that covers no cell of `base`: says which part of the rule matches nothing, or why the
/// rule's tables are left out.
pub(super) fn no_cell(rule: &Rule, base: &Run, left_out: &[LeftOutTable]) -> CompareError {
    let tables = base.tables.iter().filter(|table| {
        rule.table.as_ref().is_none_or(|name| *name == table.name)
            && table.column(&rule.column).is_some()
    });
    let names: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
    let reason = |name: &&str| left_out.iter().find(|table| table.name == **name);
    let not_compared: Vec<String> = names
        .iter()
        .filter_map(reason)
        .map(|table| format!("table {} is not compared: {}", table.name, table.reason))
        .collect();
    let why = match (names.is_empty(), rule.filter.is_empty()) {
        (true, _) => format!("{} (see irqlab show RUN --columns)", similar_columns(rule, base)),
        _ if !not_compared.is_empty() && not_compared.len() == names.len() => format!(
            ": {} (name a table that is compared; irqlab compare BASE NEW without --fail-on lists them)",
            not_compared.join(", ")
        ),
        (false, false) => {
            let mut keys: Vec<&str> =
                names.iter().filter_map(|name| base.table(name)).flat_map(keys).collect();
            keys.sort_unstable();
            keys.dedup();
            let (names, keys) = (names.join(", "), keys.join(", "));
            format!(
                ": no row of {names} has these keys (its keys are {keys}; irqlab show RUN lists their values)"
            )
        }
        (false, true) => format!(": {} has no such row", names.join(", ")),
    };
    CompareError::NoCell(rule.text.clone(), why)
}

/// Columns of the rule's table, or of all tables, whose names contain the column of a rule that does not exist: for
/// `self_mean`, `: is it self_mean_ns?`. Empty if there are none.
fn similar_columns(rule: &Rule, base: &Run) -> String {
    let is_named =
        |table: &&record::Table| rule.table.as_ref().is_none_or(|name| *name == table.name);
    let columns = base.tables.iter().filter(is_named).flat_map(|table| &table.columns);
    let mut names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    names.retain(|name| !rule.column.is_empty() && name.contains(&rule.column));
    names.sort_unstable_by_key(|name| (name.len(), *name));
    names.dedup();
    names.truncate(3);
    if names.is_empty() { String::new() } else { format!(": is it {}?", names.join(", ")) }
}

/// The ruling on one cell that the rule covers.
fn cell_ruling(rule: &Rule, difference: &Difference<'_>) -> Ruling {
    let first_figure = difference.pair.base.map_or(0.0, |base| base.value);
    let is_beyond = |change: f64| rule.is_beyond(change, first_figure);
    // A row that only one of the runs has may be the reason for the gate.
    let Some(change) = difference.change else { return Ruling::InDoubt };
    // The change that is certain, and the change that is possible, in the direction of the rule.
    let ends = difference
        .interval
        .map(|(low, high)| if rule.is_upper { (low, high) } else { (high, low) });
    if ends.is_some_and(|(certain, _)| certain.is_finite() && is_beyond(certain)) {
        return Ruling::Broken;
    }
    let may_be_beyond = match difference.method {
        // The change of a total says nothing if the windows differ.
        Method::Windows => true,
        // The change of a bound says nothing: only the interval does.
        _ if difference.has_bound() => {
            ends.is_none_or(|(_, possible)| possible.is_infinite() || is_beyond(possible))
        }
        _ => is_beyond(change),
    };
    if may_be_beyond { Ruling::InDoubt } else { Ruling::Holds }
}

/// Checks one rule on all judged cells. Fails if the rule covers no cell that can be judged.
pub(super) fn outcome(
    rule: &Rule,
    differences: &[Difference<'_>],
    base: &Run,
    left_out: &[LeftOutTable],
) -> Result<Outcome, CompareError> {
    let covered: Vec<&Difference<'_>> =
        differences.iter().filter(|difference| rule.covers(&difference.pair)).collect();
    if covered.is_empty() {
        return Err(no_cell(rule, base, left_out));
    }
    let count = |verdict: Verdict| {
        covered.iter().filter(|difference| difference.verdict == verdict).count()
    };
    let (missing, added) = (count(Verdict::Missing), count(Verdict::Added));
    if added == covered.len() {
        let why = ": only the second run has them (compare the runs in the other order, or make the first run again)";
        return Err(CompareError::NoCell(rule.text.clone(), why.to_owned()));
    }
    if missing + added == covered.len() {
        return Err(CompareError::AllMissing(rule.text.clone()));
    }
    let has_interval =
        |difference: &&Difference<'_>| difference.change.is_some() && difference.interval.is_some();
    let with_other_windows = || covered.iter().filter(|found| found.method == Method::Windows);
    let window_example = with_other_windows().next().map(|first| window_example(first));
    if !covered.iter().any(has_interval) {
        let text = rule.text.clone();
        let bound = covered.iter().find(|found| found.method == Method::Bound);
        return Err(match (window_example, bound) {
            (Some(example), _) => CompareError::Windows(text, example),
            (None, Some(bound)) => CompareError::Bounds(text, bound_example(bound)),
            (None, None) => CompareError::NoInterval(text),
        });
    }
    let cell_ruling = |difference: &Difference<'_>| cell_ruling(rule, difference);
    // The change in the unit of the limit. The smallest value is the change farthest in the direction that the rule
    // forbids. A cell that only one of the runs has precedes all cells of its ruling.
    let signed_change = |difference: &&Difference<'_>| {
        let Some(change) = difference.change else { return f64::NEG_INFINITY };
        let change = match rule.limit {
            Limit::Absolute(_) => change,
            // A change from 0 is larger than any part of the first figure.
            Limit::Ratio(_) if change == 0.0 => 0.0,
            Limit::Ratio(_) => difference.ratio(change).unwrap_or(f64::INFINITY.copysign(change)),
        };
        if rule.is_upper { -change } else { change }
    };
    let worst = covered.iter().copied().min_by(|first, second| {
        let by_change = signed_change(first).total_cmp(&signed_change(second));
        cell_ruling(first).cmp(&cell_ruling(second)).then(by_change)
    });
    let name_and_ratio = |difference: &Difference<'_>| {
        let change = difference.measured_change();
        (row_name(&difference.pair), change.and_then(|change| difference.ratio(change)))
    };
    let with_open_bounds = || {
        covered
            .iter()
            .filter(|found| found.method == Method::Bound && cell_ruling(found) == Ruling::InDoubt)
    };
    let bound_example = with_open_bounds().next().map(|first| bound_example(first));
    Ok(Outcome {
        rule: rule.clone(),
        cells: covered.len() - missing - added,
        missing,
        added,
        other_windows: window_example.map(|example| (with_other_windows().count(), example)),
        open_bounds: bound_example.map(|example| (with_open_bounds().count(), example)),
        ruling: worst.map_or(Ruling::Holds, cell_ruling),
        worst: worst.map(name_and_ratio),
    })
}

/// A warning if `rule` names no table, and is about a column of tables that are not compared.
pub(super) fn uncovered_tables(
    rule: &Rule,
    base: &[Run],
    new: &[Run],
    left_out: &[LeftOutTable],
) -> Option<String> {
    let has_column = |run: &Run, table: &LeftOutTable| {
        run.table(&table.name).is_some_and(|table| table.column(&rule.column).is_some())
    };
    let is_in_both = |table: &&LeftOutTable| {
        has_column(&base[0], table) && has_column(&new[0], table) && rule.table.is_none()
    };
    let reasons: Vec<String> = left_out
        .iter()
        .filter(is_in_both)
        .map(|table| format!("table {} is not compared: {}", table.name, table.reason))
        .collect();
    (!reasons.is_empty()).then(|| {
        format!(
            "rule {:?} does not check all tables with {}: {}",
            rule.text,
            rule.column,
            reasons.join("; ")
        )
    })
}

/// A total over windows of different lengths, in words: its table and column, its row, and the lengths.
pub(super) fn window_example(difference: &Difference<'_>) -> String {
    let Pair { table, column, windows, .. } = &difference.pair;
    let lengths = windows.map_or(String::new(), |windows| windows.text());
    format!("{}.{} of {}: {lengths}", table.name, column.name, difference.row_name())
}

/// A figure that is only a bound, in words: its table and column, its row, and which side is a bound.
pub(super) fn bound_example(difference: &Difference<'_>) -> String {
    let Pair { table, column, base, new, .. } = &difference.pair;
    let text = bound_text(*base, *new).unwrap_or_default();
    format!("{}.{} of {}: {text}", table.name, column.name, difference.row_name())
}
