//! Tables `modes` and `by_context`: what a simulator counted in each window, by the context that
//! missed; user, kernel, and entry and return separately, next to the guest's own counters.

use std::collections::{BTreeMap, BTreeSet};

use attribution::KernelContext;
use record::{Column, Kind, Table, Value};

use super::columns::{all_rows, column, key, key_columns};
use super::estimate::{
    Mean, REPETITIONS_MIN, beyond_control, difference, kernel_misses, mean, user_misses,
};
use super::sample::{Repetition, Verdict};
use super::series::Series;
use super::what::Level;

/// Misses of each level, in the order of [`Level::ALL`]; absent where the machine has no such level.
pub type LevelMisses = [Option<u64>; Level::ALL.len()];

/// What one context did in one window, on the CPU of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextMisses {
    pub context: KernelContext,
    /// How often it was entered.
    pub entries: u64,
    /// What it missed itself.
    pub misses: LevelMisses,
}

/// What was seen from outside of the windows of a bench, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The contexts of each.
    pub all: Vec<Vec<ContextMisses>>,
    /// Names of contexts that have more than a number.
    pub names: BTreeMap<KernelContext, String>,
}

/// The mode of a miss, as in the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// The loop.
    User,
    /// Handlers of devices, softirqs, system calls, other tasks.
    Kernel,
    /// From the processor's entry into the kernel to its return, without contexts in between: saving
    /// registers, finding the interrupt's line, acknowledging it, the exit.
    Exception,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::User, Mode::Kernel, Mode::Exception];

    #[must_use]
    pub fn of(context: KernelContext) -> Mode {
        match context {
            KernelContext::User(_) => Mode::User,
            KernelContext::Interrupt(_) | KernelContext::Exception(_) | KernelContext::Nmi => {
                Mode::Exception
            }
            _ => Mode::Kernel,
        }
    }

    /// As tables have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Mode::User => "user",
            Mode::Kernel => "kernel",
            Mode::Exception => "exception",
        }
    }
}

/// Misses of a level in each window of the repetitions that count, of contexts that `wanted` accepts.
fn misses(
    windows: &Windows,
    repetitions: &[Repetition],
    level: Level,
    wanted: impl Fn(KernelContext) -> bool,
) -> Vec<f64> {
    let accepted = repetitions.iter().filter(|one| one.verdict == Verdict::Accepted);
    let window = accepted.filter_map(|one| windows.all.get(one.window? as usize));
    let sum = |contexts: &Vec<ContextMisses>| {
        let some = contexts.iter().filter(|one| wanted(one.context));
        some.map(|one| one.misses[level as usize]).sum::<Option<u64>>().map(|sum| sum as f64)
    };
    window.filter_map(sum).collect()
}

/// With the interrupt, without it, and the difference; `None` with too few of either.
fn beyond(
    windows: &Windows,
    series: &Series,
    wanted: impl Fn(KernelContext) -> bool,
) -> Option<[Mean; 3]> {
    let of = |repetitions| misses(windows, repetitions, series.level, &wanted);
    let (treatment, control) = (of(&series.treatment), of(&series.control));
    if treatment.len() < REPETITIONS_MIN || control.len() < REPETITIONS_MIN {
        return None;
    }
    let (treatment, control) = (mean(&treatment)?, mean(&control)?);
    Some([treatment, control, difference(treatment, control)?])
}

/// Misses of a mode that the interrupt makes, as the simulator counts them.
#[must_use]
pub fn of_mode(windows: &Windows, series: &Series, mode: Mode) -> Option<Mean> {
    beyond(windows, series, |context| Mode::of(context) == mode).map(|[_, _, beyond]| beyond)
}

fn misses_column(doc: &str) -> Column {
    let misses = column("misses", Kind::Real, doc).title("misses ± ci95").digits(4).priority(99);
    misses.plus_minus("misses_ci95")
}

fn misses_ci95_column() -> Column {
    let doc = "Half width of the 95 % confidence interval of misses.";
    column("misses_ci95", Kind::Real, doc).detail()
}

/// Misses by mode, next to the guest's own counters.
pub(super) fn modes(all: &[Series], windows: &Windows) -> Table {
    use Kind::{Real, Text};
    let mut columns = key_columns();
    columns.extend([
        column("mode", Text, "user, kernel, exception (entry and return), or kernel + exception."),
        misses_column("Misses per interrupt, by the simulator: treatment minus control."),
        misses_ci95_column(),
        column("treatment_misses", Real, "Misses per window with the interrupt, mean.").digits(4),
        column("control_misses", Real, "Misses per window without the interrupt, mean.").digits(4),
        column("guest_counter_misses", Real, "Same as misses, by the guest's own counters.")
            .digits(4),
    ]);
    let doc = "Misses per interrupt by processor mode, as the simulator counts them within the guest's \
               windows.";
    let mut table = Table::new("modes", doc, columns).displayed(all_rows());
    let kinds: [(&str, &[Mode]); 4] = [
        ("user", &[Mode::User]),
        ("kernel", &[Mode::Kernel]),
        ("exception", &[Mode::Exception]),
        ("kernel + exception", &[Mode::Kernel, Mode::Exception]),
    ];
    for series in all {
        let guest =
            |value| beyond_control(&series.treatment, &series.control, value).map(|mean| mean.mean);
        for (name, modes) in kinds {
            let Some([treatment, control, beyond]) =
                beyond(windows, series, |context| modes.contains(&Mode::of(context)))
            else {
                continue;
            };
            let guest = match modes {
                [Mode::User] => guest(user_misses),
                [_, _] => guest(kernel_misses),
                _ => None,
            };
            let mut row = key(series);
            row.push(name.into());
            row.extend(
                [beyond.mean, beyond.half_width, treatment.mean, control.mean].map(Value::real),
            );
            row.push(guest.map_or(Value::Absent, Value::real));
            table.push(row);
        }
    }
    table
}

/// Misses by context.
pub(super) fn by_context(all: &[Series], windows: &Windows) -> Table {
    use Kind::{Real, Text};
    let mut columns = key_columns();
    columns.extend([
        column("mode", Text, "user, kernel, or exception (entry and return)."),
        column("context", Text, "What the loop's CPU executed for.").priority(95),
        misses_column("Misses of this context per interrupt: treatment minus control."),
        misses_ci95_column(),
        column("treatment_misses", Real, "Misses per window with the interrupt, mean.").digits(4),
        column("control_misses", Real, "Misses per window without the interrupt, mean.").digits(4),
        column("mean_entries", Real, "Entries into it per window with the interrupt, mean."),
    ]);
    let doc =
        "Misses per interrupt of each context on the loop's CPU, as the simulator counts them.";
    let mut table = Table::new("by_context", doc, columns).displayed(all_rows());
    for series in all {
        for context in contexts(windows, series) {
            let Some([treatment, control, beyond]) = beyond(windows, series, |one| one == context)
            else {
                continue;
            };
            if treatment.mean == 0.0 && control.mean == 0.0 {
                continue;
            }
            let name = windows.names.get(&context).cloned();
            let mut row = key(series);
            row.push(Mode::of(context).word().into());
            row.push(Value::Text(name.unwrap_or_else(|| context.to_string())));
            row.extend(
                [beyond.mean, beyond.half_width, treatment.mean, control.mean].map(Value::real),
            );
            row.push(
                entries(windows, &series.treatment, context).map_or(Value::Absent, Value::real),
            );
            table.push(row);
        }
    }
    table
}

/// All contexts that the windows of a series have.
fn contexts(windows: &Windows, series: &Series) -> BTreeSet<KernelContext> {
    let both = series.treatment.iter().chain(&series.control);
    let window = both.filter_map(|one| windows.all.get(one.window? as usize));
    window.flatten().map(|one| one.context).collect()
}

fn entries(windows: &Windows, treatment: &[Repetition], context: KernelContext) -> Option<f64> {
    let accepted = treatment.iter().filter(|one| one.verdict == Verdict::Accepted);
    let window = accepted.filter_map(|one| windows.all.get(one.window? as usize));
    let entries: Vec<f64> = window
        .map(|contexts| {
            let found = contexts.iter().find(|one| one.context == context);
            found.map_or(0.0, |one| one.entries as f64)
        })
        .collect();
    mean(&entries).map(|mean| mean.mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::tests::{repetition, series};

    fn window(user: u64, entry: u64, softirq: Option<u64>) -> Vec<ContextMisses> {
        let misses = |count| LevelMisses::from([Some(count), None, None, None, None, None]);
        let one = |context, count| ContextMisses { context, entries: 1, misses: misses(count) };
        let mut all =
            vec![one(KernelContext::User(7), user), one(KernelContext::Interrupt(0xec), entry)];
        all.extend(softirq.map(|count| one(KernelContext::Softirq(3), count)));
        all
    }

    /// 20 windows with 30, 11 and 5 misses; 20 without an interrupt, with 10 and 1.
    fn seen() -> (Series, Windows) {
        let mut series = series(Vec::new(), Vec::new());
        let mut windows = Windows::default();
        for number in 0..40_u32 {
            let treatment = number % 2 == 0;
            let one = Repetition { window: Some(number), ..repetition(Some(30), Some(16)) };
            if treatment { &mut series.treatment } else { &mut series.control }.push(one);
            windows.all.push(if treatment { window(30, 11, Some(5)) } else { window(10, 1, None) });
        }
        (series, windows)
    }

    #[test]
    fn modes_are_apart_and_idle_ones_are_off() {
        let (series, windows) = seen();
        let of = |mode| of_mode(&windows, &series, mode).unwrap().mean;
        assert_eq!(Mode::ALL.map(of), [20.0, 5.0, 10.0]);
        let table = modes(&[series], &windows);
        let sums: Vec<&Value> = table.rows().iter().map(|row| &row[4]).collect();
        assert_eq!(sums, [20.0, 5.0, 10.0, 15.0].map(Value::Real).iter().collect::<Vec<_>>());
    }

    #[test]
    fn what_does_not_count_is_left_out_and_a_missing_window_is_no_zero() {
        let (mut series, windows) = seen();
        for one in &mut series.treatment[..4] {
            one.verdict = Verdict::Contaminated;
        }
        assert!(of_mode(&windows, &series, Mode::User).is_some());
        for one in &mut series.treatment[4..] {
            one.window = Some(1000);
        }
        assert!(of_mode(&windows, &series, Mode::User).is_none());
        assert!(modes(&[series], &windows).rows().is_empty());
    }

    #[test]
    fn contexts_have_rows_of_their_own() {
        let (series, mut windows) = seen();
        windows.names.insert(KernelContext::Softirq(3), "softirq NAMED".to_owned());
        let table = by_context(&[series], &windows);
        let names: Vec<String> =
            table.rows().iter().map(|row| row[4].to_json().as_str().unwrap().to_owned()).collect();
        assert_eq!(names, ["user 7", "interrupt 0xec", "softirq NAMED"]);
        // It is not there without an interrupt: no misses then.
        assert_eq!(table.rows()[2][8], Value::Real(0.0));
    }
}
