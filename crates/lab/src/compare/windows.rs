//! Totals over a window, and whether the windows of two runs allow them to be compared.
//!
//! Goal: a total is called worse only if the thing that it measures became more expensive.
//! Problem: a total grows with the length of its window. Windows end by time, when enough spans have come, or when the user
//! stops the run, so a change of any setting can change their length.
//! Rule: totals are judged if both windows are one piece of work (a command or a workload), or have one length. Rates, shares
//! and means are judged in any windows.

use std::collections::BTreeMap;

use record::{Column, Kind, Role, Run, Table, Value};

/// Windows whose lengths differ by at most this part have one length. A window that ends by time ends late by the time that
/// the kernel takes to wake irqlab.
pub(super) const WINDOW_TOLERANCE_RATIO: f64 = 0.01;

/// Ends of the names of totals, before the unit.
const TOTAL_SUFFIXES: [&str; 2] = ["count", "total"];

/// Ends of names that are units.
const UNIT_SUFFIXES: [&str; 4] = ["_tsc_cycles", "_cycles", "_bytes", "_ns"];

/// Counts that do not grow with the window.
const NO_TOTALS: [&str; 3] = ["cpu_count", "offline_cpu_count", "round_count"];

/// Totals whose names do not say so: table and column.
const NAMED_TOTALS: [(&str, &str); 12] = [
    ("noise", "lost_ns"),
    ("noise", "attributed_ns"),
    ("noise", "entry_exit_ns"),
    ("noise", "unattributed_ns"),
    ("noise", "remainder_ns"),
    ("noise", "indirect_ns"),
    ("noise", "uninterrupted_gap_ns"),
    ("noise", "external_ns"),
    ("noise", "steal_ns"),
    ("conditions", "observer_cpu_ns"),
    ("conditions", "stimulus_bytes"),
    ("conditions", "load_bytes"),
];

/// Whether the figures of a column are totals: in a window of twice the length, they are about twice as large.
pub(super) fn is_total(table: &Table, column: &Column) -> bool {
    let name = column.name.as_str();
    let is_number = matches!(column.kind, Kind::Uint | Kind::Int | Kind::Real);
    if !is_number || column.role == Role::Key || NO_TOTALS.contains(&name) {
        return false;
    }
    let stem = UNIT_SUFFIXES.iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name);
    let last_word = stem.rsplit('_').next().unwrap_or(stem);
    TOTAL_SUFFIXES.contains(&last_word) || NAMED_TOTALS.contains(&(table.name.as_str(), name))
}

/// The window in which a row's figures were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// `None`: the run does not say.
    length_ns: Option<f64>,
    /// Whether the window contains a whole command or workload: it then ends with the work.
    is_work: bool,
}

/// The lengths of the windows of a total, ns. `None`: the run does not say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowLengths {
    pub base_ns: Option<f64>,
    pub new_ns: Option<f64>,
}

impl WindowLengths {
    /// The lengths of a total's windows in both runs. `None` if they do not matter: each window is the run of one command or
    /// workload, or neither run has windows.
    pub(super) fn of_total(base: Option<Window>, new: Option<Window>) -> Option<WindowLengths> {
        let is_work = |window: Option<Window>| window.is_none_or(|window| window.is_work);
        let length_ns = |window: Option<Window>| window.and_then(|window| window.length_ns);
        let are_comparable = is_work(base) && is_work(new) && base.is_some() == new.is_some();
        let lengths = WindowLengths { base_ns: length_ns(base), new_ns: length_ns(new) };
        (!are_comparable).then_some(lengths)
    }

    /// The difference of the lengths: of their logarithms. Infinite if a length is not known.
    pub(super) fn difference(&self) -> f64 {
        match (self.base_ns, self.new_ns) {
            (Some(base), Some(new)) if base == new => 0.0,
            (Some(base), Some(new)) if base > 0.0 && new > 0.0 => (new.ln() - base.ln()).abs(),
            _ => f64::INFINITY,
        }
    }

    /// Whether the lengths differ by more than [`WINDOW_TOLERANCE_RATIO`].
    pub(super) fn differ(&self) -> bool {
        self.difference() > WINDOW_TOLERANCE_RATIO
    }

    /// Both lengths in words, such as `92.3 ms and 300 ms`.
    pub(super) fn text(&self) -> String {
        let text = |length_ns: Option<f64>| {
            length_ns.map_or("unknown".to_owned(), |ns| format!("{:.1} ms", ns / 1e6))
        };
        format!("{} and {}", text(self.base_ns), text(self.new_ns))
    }

    /// These lengths or `other`, whichever differ more.
    pub(super) fn more_different(self, other: WindowLengths) -> WindowLengths {
        if other.difference() > self.difference() { other } else { self }
    }
}

/// Whether the rows of a table describe windows: a reader of totals needs this table.
#[must_use]
pub fn has_windows(table: &Table) -> bool {
    table.column(LENGTH).is_some() && !has_passes(table)
}

/// Whether a pass of its own measured each row, in a window of its own.
fn has_passes(table: &Table) -> bool {
    table.column(PASS).is_some()
}

/// The windows of a run.
pub(super) struct RunWindows {
    /// The windows of conditions, by the condition's name.
    by_condition: BTreeMap<String, Window>,
    /// The windows of CPUs: each loop of `noise` has its own.
    by_cpu: BTreeMap<u64, Window>,
    /// The window of all rows of the run.
    whole: Option<Window>,
}

/// The column with a window's length.
const LENGTH: &str = "window_ns";

/// The column with the pass that measured a row: each pass of `handlers --events` has its own window.
const PASS: &str = "pass";

impl RunWindows {
    pub(super) fn of_run(run: &Run) -> RunWindows {
        let mut windows = RunWindows {
            by_condition: BTreeMap::new(),
            by_cpu: BTreeMap::new(),
            whole: whole_window(run),
        };
        for table in run.tables.iter().filter(|table| has_windows(table)) {
            for row in table.rows() {
                let Some(window) = window_of_row(table, row) else { continue };
                match (table.get(row, "condition"), table.get(row, "cpu")) {
                    (Some(Value::Text(condition)), _) => {
                        windows.by_condition.insert(condition.clone(), window);
                    }
                    // A loop with probes precedes the loops without.
                    (None, Some(Value::Uint(cpu))) => {
                        windows.by_cpu.entry(*cpu).or_insert(window);
                    }
                    _ => {}
                }
            }
        }
        windows
    }

    /// The window of a row. `None` if the run has no windows, such as a boot.
    pub(super) fn of_row(&self, table: &Table, row: &[Value]) -> Option<Window> {
        let by_condition = || match table.get(row, "condition") {
            Some(Value::Text(condition)) => self.by_condition.get(condition).copied(),
            _ => None,
        };
        let by_cpu = || match table.get(row, "cpu") {
            Some(Value::Uint(cpu)) => self.by_cpu.get(cpu).copied(),
            _ => None,
        };
        let own = window_of_row(table, row);
        if has_passes(table) {
            return window_of_pass(own, by_condition()).or(self.whole);
        }
        own.or_else(by_condition).or_else(by_cpu).or(self.whole)
    }
}

/// The window that the row itself describes.
fn window_of_row(table: &Table, row: &[Value]) -> Option<Window> {
    let length_ns = table.get(row, LENGTH)?.number()?;
    let is_work = table.get(row, "ended_by") == Some(&Value::from("command"));
    Some(Window { length_ns: Some(length_ns), is_work })
}

/// The window of a row that a pass of its own measured. Its length is in the row: the window of the condition is that of
/// another pass, and does not say it. Each pass of a command executes the whole command. `None` if there are no windows.
fn window_of_pass(own: Option<Window>, of_condition: Option<Window>) -> Option<Window> {
    let is_work = of_condition.is_some_and(|window| window.is_work);
    own.or(of_condition)?;
    Some(Window { length_ns: own.and_then(|window| window.length_ns), is_work })
}

/// The window of a run that has one for all rows, by its settings or its own measurement.
fn whole_window(run: &Run) -> Option<Window> {
    let setting = |name: &str| run.settings.get(name).and_then(serde_json::Value::as_f64);
    let observed = |name: &str| run.observer.get(name).and_then(serde_json::Value::as_f64);
    let length_ns = match run.experiment.as_str() {
        // The window is a command or a workload.
        "services" => return None,
        "signal" => setting(LENGTH)? * setting("repetitions").unwrap_or(1.0),
        // An interval that was stopped is shorter than the setting.
        "watch" => observed("length_ns")?,
        _ => setting("measured_window_ns")?,
    };
    Some(Window { length_ns: Some(length_ns), is_work: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_told_from_counts_that_do_not_grow_with_the_window() {
        let is_total = |table: &str, column: &str| {
            is_total(&Table::new(table, "", Vec::new()), &Column::new(column, Kind::Uint, ""))
        };
        let totals = [
            "count",
            "self_total_ns",
            "self_total",
            "self_total_tsc_cycles",
            "total_ns",
            "miss_count",
        ];
        assert!(totals.into_iter().all(|column| is_total("handlers", column)));
        let others =
            ["self_mean_ns", "rate_hz", "self_max_ns", "cpu_count", "self_instructions", "lost_ns"];
        assert!(others.into_iter().all(|column| !is_total("handlers", column)));
        assert!(is_total("noise", "lost_ns"));
        assert!(is_total("noise", "uninterrupted_gap_ns"));
        assert!(!is_total("longest", "indirect_ns"));
    }

    #[test]
    fn windows_of_work_are_comparable_and_others_by_their_lengths() {
        let window =
            |length_ns: f64, is_work: bool| Some(Window { length_ns: Some(length_ns), is_work });
        let difference =
            |base, new| WindowLengths::of_total(base, new).map(|both| both.difference());
        assert_eq!(difference(window(1.0, true), window(9.0, true)), None);
        assert_eq!(difference(None, None), None);
        assert_eq!(difference(window(2.0, false), window(2.0, true)), Some(0.0));
        assert_eq!(difference(window(2.0, false), None), Some(f64::INFINITY));
        let lengths = WindowLengths { base_ns: Some(92.3e6), new_ns: Some(300e6) };
        assert!(lengths.differ());
        assert_eq!(lengths.text(), "92.3 ms and 300.0 ms");
    }

    /// Two runs of `watch -i 30s --once`, of which Ctrl-C ended the second one after 2.6 s.
    #[test]
    fn an_interval_of_watch_is_as_long_as_it_was_measured() {
        let run = |length_ns: u64| {
            let mut run =
                super::super::tests::run_of_table("live", Table::new("rates", "", Vec::new()));
            run.experiment = "watch".to_owned();
            run.settings.insert("interval_ns".to_owned(), 30_000_000_000_u64.into());
            run.observer.insert("length_ns".to_owned(), length_ns.into());
            run
        };
        let window = |length_ns: u64| {
            let run = run(length_ns);
            RunWindows::of_run(&run).of_row(&run.tables[0], &[])
        };
        let lengths = WindowLengths::of_total(window(30_000_000_000), window(2_600_000_000));
        assert_eq!(lengths.unwrap().text(), "30000.0 ms and 2600.0 ms");
        assert!(lengths.unwrap().differ());
    }
}
