//! Tables `modes` and `by_context`: misses that the simulator counts in each window, by processor mode and by context.
//! Table `modes` compares them with the guest's own counters. Only the simulated bench fills [`Windows`], so only its
//! runs have these tables.

use std::collections::{BTreeMap, BTreeSet};

use attribution::KernelContext;
use record::{Columns, Table, column};

use super::columns::{all_rows, key_columns};
use super::estimate::{
    Mean, REPETITIONS_MIN, beyond_control, difference, kernel_misses, mean, user_misses,
};
use super::sample::{Repetition, Verdict};
use super::series::Series;
use super::what::Level;

/// Misses of each level, in the order of [`Level::ALL`]. `None` if the simulator does not count the level's misses.
pub type LevelMisses = [Option<u64>; Level::ALL.len()];

/// Misses of one context in one window, on the loop's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextMisses {
    pub context: KernelContext,
    /// Number of entries into the context.
    pub entries: u64,
    /// Misses of the context itself, without the contexts that interrupted it.
    pub misses: LevelMisses,
}

/// Counts of the simulator for each window of a bench.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The contexts of each window. The position is the window's number, as in [`Repetition::window`].
    pub all: Vec<Vec<ContextMisses>>,
    /// Names of contexts. The tables show a context without a name by its number.
    pub names: BTreeMap<KernelContext, String>,
}

/// The mode of a miss, as in the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    User,
    /// Device handlers, softirqs, system calls and other tasks.
    Kernel,
    /// Kernel entry and exit around an interrupt: saving registers, finding the interrupt's line, acknowledging the
    /// interrupt, the return. The handlers in between are not included.
    Exception,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::User, Mode::Kernel, Mode::Exception];

    /// The mode in which a context runs.
    #[must_use]
    pub fn of_context(context: KernelContext) -> Mode {
        match context {
            KernelContext::User(_) => Mode::User,
            KernelContext::Interrupt(_) | KernelContext::Exception(_) | KernelContext::Nmi => {
                Mode::Exception
            }
            _ => Mode::Kernel,
        }
    }

    /// The mode's word in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Mode::User => "user",
            Mode::Kernel => "kernel",
            Mode::Exception => "exception",
        }
    }
}

/// Misses of a level in the window of each accepted repetition, summed over the contexts that `is_wanted` accepts.
/// Skips windows in which the level was not counted.
fn misses(
    windows: &Windows,
    repetitions: &[Repetition],
    level: Level,
    is_wanted: impl Fn(KernelContext) -> bool,
) -> Vec<f64> {
    let sum = |contexts: &Vec<ContextMisses>| {
        let wanted = contexts.iter().filter(|entry| is_wanted(entry.context));
        let misses = wanted.map(|entry| entry.misses[level as usize]).sum::<Option<u64>>();
        misses.map(|misses| misses as f64)
    };
    accepted_windows(windows, repetitions).filter_map(sum).collect()
}

/// Mean misses with the interrupt, without the interrupt, and their difference. `None` with fewer than
/// [`REPETITIONS_MIN`] windows of either kind.
fn misses_beyond_control(
    windows: &Windows,
    series: &Series,
    is_wanted: impl Fn(KernelContext) -> bool,
) -> Option<[Mean; 3]> {
    let [treatment, control] = [&series.treatment, &series.control]
        .map(|repetitions| misses(windows, repetitions, series.level, &is_wanted));
    if treatment.len() < REPETITIONS_MIN || control.len() < REPETITIONS_MIN {
        return None;
    }
    let (treatment, control) = (mean(&treatment)?, mean(&control)?);
    Some([treatment, control, difference(treatment, control)?])
}

/// Misses in a mode per interrupt, by the simulator: treatment minus control. `None` with too few windows.
#[must_use]
pub fn misses_of_mode(windows: &Windows, series: &Series, mode: Mode) -> Option<Mean> {
    let is_wanted = |context| Mode::of_context(context) == mode;
    misses_beyond_control(windows, series, is_wanted).map(|[_, _, beyond]| beyond)
}

/// Mean misses with the interrupt, without the interrupt, and their difference.
type BeyondControl = [Mean; 3];

/// The columns of the misses of a mode or context. `doc` describes the column `misses`.
fn misses_columns<'a>(doc: &str) -> Columns<'a, BeyondControl> {
    let interval_doc = "Half width of the 95 % confidence interval of misses.";
    Columns::all([
        column("misses", doc)
            .title("misses ± ci95")
            .digits(4)
            .priority(99)
            .plus_minus("misses_ci95")
            .real(|[.., beyond]: &BeyondControl| beyond.mean),
        column("misses_ci95", interval_doc)
            .detail()
            .real(|[.., beyond]: &BeyondControl| beyond.half_width),
        column("treatment_misses", "Misses per window with the interrupt, mean.")
            .digits(4)
            .real(|[treatment, ..]: &BeyondControl| treatment.mean),
        column("control_misses", "Misses per window without the interrupt, mean.")
            .digits(4)
            .real(|[_, control, _]: &BeyondControl| control.mean),
    ])
}

/// Table `modes`: misses by mode, compared with the guest's own counters. `all`: the series of the run.
pub(super) fn modes(all: &[Series], windows: &Windows) -> Table {
    struct Row<'a> {
        series: &'a Series,
        mode: &'static str,
        misses: BeyondControl,
        /// Misses by the guest's own counters. `None` for modes that the guest cannot count separately.
        guest: Option<Mean>,
    }
    let columns = key_columns().of(|row: &Row<'_>| row.series.key()).and([
        column("mode", "user, kernel, exception (entry and return), or kernel + exception.")
            .text(|row: &Row<'_>| row.mode),
        misses_columns("Misses per interrupt, by the simulator: treatment minus control.")
            .of_ref(|row: &Row<'_>| &row.misses),
        column("guest_counter_misses", "Misses per interrupt, by the guest's own counters.")
            .digits(4)
            .real(|row: &Row<'_>| row.guest.map(|mean| mean.mean)),
    ]);
    let kinds: [(&str, &[Mode]); 4] = [
        ("user", &[Mode::User]),
        ("kernel", &[Mode::Kernel]),
        ("exception", &[Mode::Exception]),
        ("kernel + exception", &[Mode::Kernel, Mode::Exception]),
    ];
    let mut rows = Vec::new();
    for series in all {
        let guest_misses = |value| beyond_control(&series.treatment, &series.control, value);
        for (mode, modes) in kinds {
            let is_wanted = |context| modes.contains(&Mode::of_context(context));
            let Some(misses) = misses_beyond_control(windows, series, is_wanted) else { continue };
            let guest = match modes {
                [Mode::User] => guest_misses(user_misses),
                // Kernel and exception mode together: the guest's counters cannot tell them apart.
                [_, _] => guest_misses(kernel_misses),
                _ => None,
            };
            rows.push(Row { series, mode, misses, guest });
        }
    }
    let doc = "Misses per interrupt by processor mode, as the simulator counts them within the guest's \
               windows.";
    columns.table("modes", doc, rows).displayed(all_rows())
}

/// Table `by_context`: misses of each context with misses.
pub(super) fn by_context(all: &[Series], windows: &Windows) -> Table {
    struct Row<'a> {
        series: &'a Series,
        context: KernelContext,
        name: String,
        misses: BeyondControl,
        mean_entries: Option<f64>,
    }
    let columns = key_columns().of(|row: &Row<'_>| row.series.key()).and([
        column("mode", "user, kernel, or exception (entry and return).")
            .text(|row: &Row<'_>| Mode::of_context(row.context).word()),
        column("context", "Context that the loop's CPU executed.")
            .priority(95)
            .text(|row: &Row<'_>| row.name.clone()),
        misses_columns("Misses of this context per interrupt: treatment minus control.")
            .of_ref(|row: &Row<'_>| &row.misses),
        column("mean_entries", "Entries into the context per window with the interrupt, mean.")
            .real(|row: &Row<'_>| row.mean_entries),
    ]);
    let mut rows = Vec::new();
    for series in all {
        for context in contexts(windows, series) {
            let is_wanted = |candidate| candidate == context;
            let Some(misses) = misses_beyond_control(windows, series, is_wanted) else { continue };
            let [treatment, control, _] = misses;
            if treatment.mean == 0.0 && control.mean == 0.0 {
                continue;
            }
            let name = windows.names.get(&context).cloned();
            let name = name.unwrap_or_else(|| context.to_string());
            let mean_entries = mean_entries(windows, &series.treatment, context);
            rows.push(Row { series, context, name, misses, mean_entries });
        }
    }
    let doc =
        "Misses per interrupt of each context on the loop's CPU, as the simulator counts them.";
    columns.table("by_context", doc, rows).displayed(all_rows())
}

/// All contexts that ran in a window of the series.
fn contexts(windows: &Windows, series: &Series) -> BTreeSet<KernelContext> {
    let repetitions = series.treatment.iter().chain(&series.control);
    let contexts =
        repetitions.filter_map(|repetition| windows.all.get(repetition.window? as usize));
    contexts.flatten().map(|entry| entry.context).collect()
}

/// Mean number of entries into a context per window of the accepted repetitions. `None` with fewer than two windows.
fn mean_entries(
    windows: &Windows,
    repetitions: &[Repetition],
    context: KernelContext,
) -> Option<f64> {
    let entries_in = |contexts: &Vec<ContextMisses>| {
        let found = contexts.iter().find(|entry| entry.context == context);
        found.map_or(0.0, |entry| entry.entries as f64)
    };
    let entries: Vec<f64> = accepted_windows(windows, repetitions).map(entries_in).collect();
    mean(&entries).map(|mean| mean.mean)
}

/// The contexts in the window of each accepted repetition. Skips a repetition without a window.
fn accepted_windows<'w>(
    windows: &'w Windows,
    repetitions: &'w [Repetition],
) -> impl Iterator<Item = &'w Vec<ContextMisses>> {
    let accepted = repetitions.iter().filter(|repetition| repetition.verdict == Verdict::Accepted);
    accepted.filter_map(|repetition| windows.all.get(repetition.window? as usize))
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::*;
    use crate::footprint::tests::{repetition, series};

    fn window(user: u64, entry: u64, softirq: Option<u64>) -> Vec<ContextMisses> {
        let of_context = |context, count| {
            let misses = [Some(count), None, None, None, None, None];
            ContextMisses { context, entries: 1, misses }
        };
        let mut contexts = vec![
            of_context(KernelContext::User(7), user),
            of_context(KernelContext::Interrupt(0xec), entry),
        ];
        contexts.extend(softirq.map(|count| of_context(KernelContext::Softirq(3), count)));
        contexts
    }

    /// Treatment and control windows alternate, 20 of each. The loop misses 30 times with the interrupt and 10 times
    /// without. Kernel entry and exit miss 11 times with the interrupt and once without. A softirq with 5 misses runs
    /// only in treatment windows.
    fn series_and_windows() -> (Series, Windows) {
        let mut series = series(Vec::new(), Vec::new());
        let mut windows = Windows::default();
        for number in 0..40_u32 {
            let repetition = Repetition { window: Some(number), ..repetition(Some(30), Some(16)) };
            if number % 2 == 0 {
                series.treatment.push(repetition);
                windows.all.push(window(30, 11, Some(5)));
            } else {
                series.control.push(repetition);
                windows.all.push(window(10, 1, None));
            }
        }
        (series, windows)
    }

    #[test]
    fn modes_are_separate_and_the_control_is_subtracted() {
        let (series, windows) = series_and_windows();
        let mean = |mode| misses_of_mode(&windows, &series, mode).unwrap().mean;
        assert_eq!(Mode::ALL.map(mean), [20.0, 5.0, 10.0]);
        let table = modes(&[series], &windows);
        let sums: Vec<&Value> = table.rows().iter().map(|row| &row[4]).collect();
        assert_eq!(sums, [20.0, 5.0, 10.0, 15.0].map(Value::Real).iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_contaminated_repetition_does_not_count_and_a_missing_window_is_not_zero() {
        let (mut series, windows) = series_and_windows();
        for repetition in &mut series.treatment[..4] {
            repetition.verdict = Verdict::Contaminated;
        }
        assert!(misses_of_mode(&windows, &series, Mode::User).is_some());
        for repetition in &mut series.treatment[4..] {
            repetition.window = Some(1000);
        }
        assert!(misses_of_mode(&windows, &series, Mode::User).is_none());
        assert!(modes(&[series], &windows).rows().is_empty());
    }

    #[test]
    fn each_context_has_a_row() {
        let (series, mut windows) = series_and_windows();
        windows.names.insert(KernelContext::Softirq(3), "softirq NAMED".to_owned());
        let table = by_context(&[series], &windows);
        let names: Vec<String> =
            table.rows().iter().map(|row| row[4].to_json().as_str().unwrap().to_owned()).collect();
        assert_eq!(names, ["user 7", "interrupt 0xec", "softirq NAMED"]);
        // The softirq does not run without the interrupt: its control misses are zero, not absent.
        assert_eq!(table.rows()[2][8], Value::Real(0.0));
    }
}
