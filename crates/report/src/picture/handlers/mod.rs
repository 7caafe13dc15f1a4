//! Pictures of `handlers`: what each interrupt context costs, how long it takes, and how well it runs.

mod callbacks;
mod costs;
mod delays;
mod distribution;
mod efficiency;
mod victims;

use record::{Table, Value};

pub use callbacks::{callbacks, largest_function_of};
pub use costs::costs;
pub use delays::{delays, wait_of};
pub use distribution::distribution;
pub use efficiency::efficiency;
pub use victims::victims;

use crate::escape::plain;
use crate::picture::rows;
use crate::row::Row;

/// Maximum number of conditions of a picture.
const CONDITIONS_MAX: usize = 8;

/// The text in a column, escaped. Empty if the value is no text.
fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        Value::Text(text) => plain(text),
        _ => String::new(),
    }
}

/// A context by name and kind, the name first: `BLOCK softirq`, `virtio1-req.0 irq 36`.
fn context(row: &Row<'_>) -> String {
    match text(row, "kind").as_str() {
        kind @ ("irq" | "irq_thread") => {
            format!("{} {kind} {}", text(row, "name"), row.value_text("number"))
        }
        kind => format!("{} {kind}", text(row, "name")),
    }
}

/// All conditions of a table, in order of their first rows.
fn all_conditions(table: &Table) -> Vec<String> {
    let mut conditions: Vec<String> = Vec::new();
    for row in rows(table) {
        let condition = text(&row, "condition");
        if !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    conditions
}

/// The first [`CONDITIONS_MAX`] conditions of a table, and the number of further conditions.
fn conditions(table: &Table) -> (Vec<String>, usize) {
    let mut conditions = all_conditions(table);
    let further = conditions.len().saturating_sub(CONDITIONS_MAX);
    conditions.truncate(CONDITIONS_MAX);
    (conditions, further)
}

/// Whether the row is a sum over all CPUs.
fn is_sum(table: &Table, row: &Row<'_>) -> bool {
    table.column("cpu").is_none() || text(row, "cpu") == "all"
}

/// The rows of a condition that are sums over all CPUs, sorted by `column`, the largest first. Leaves out rows
/// without a positive number there.
fn largest<'t>(table: &'t Table, condition: &str, column: &str) -> Vec<Row<'t>> {
    let is_wanted = |row: &Row<'_>| {
        text(row, "condition") == condition
            && is_sum(table, row)
            && row.number(column).is_some_and(|number| number > 0.0)
    };
    let mut sums: Vec<Row<'t>> = rows(table).filter(is_wanted).collect();
    let size = |row: &Row<'_>| row.number(column).unwrap_or(0.0);
    sums.sort_by(|a, b| size(b).total_cmp(&size(a)));
    sums
}

fn panel_title(condition: &str) -> String {
    format!("condition {condition}")
}

/// A note that says how many conditions and contexts the picture leaves out for lack of space. `None` if it draws all.
fn left_out(conditions: usize, contexts: usize, table: &str) -> Option<String> {
    not_drawn(&[(conditions, "conditions"), (contexts, "contexts of the least cost")], table)
}

/// A note that says what the picture leaves out: each a number and what it counts. `None` if all numbers are 0.
fn not_drawn(parts: &[(usize, &str)], table: &str) -> Option<String> {
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, subject)| format!("{number} {subject}"))
        .collect();
    (!parts.is_empty()).then(|| format!("Not drawn: {}; see table {table}.", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::sheet::{Heading, NARROW, WIDTH};
    use crate::picture::tests::{golden, run_of, table};
    use record::{Column, Kind};

    const TEXT: Kind = Kind::Text;
    const UINT: Kind = Kind::Uint;
    const REAL: Kind = Kind::Real;

    /// BLOCK takes 4 % of the CPU, a disk's handler 1 %; a row of one CPU is no sum.
    fn handlers() -> Table {
        let columns = [
            ("condition", TEXT),
            ("cpu", TEXT),
            ("kind", TEXT),
            ("number", UINT),
            ("name", TEXT),
            ("count", UINT),
            ("rate_hz", REAL),
            ("self_mean_ns", REAL),
            ("self_mean_ci95_ns", REAL),
            ("self_cpu_ratio", REAL),
            ("self_total_ns", UINT),
            ("self_p50_ns", UINT),
            ("self_p99_ns", UINT),
            ("self_max_ns", UINT),
            ("self_cpu_ci95_ratio", REAL),
        ];
        let row = |cpu: &str, kind: &str, number: u64, name: &str, share: f64| -> Vec<Value> {
            vec![
                "idle".into(),
                cpu.into(),
                kind.into(),
                number.into(),
                name.into(),
                1000.into(),
                1000.0.into(),
                (share * 1e6).into(),
                (share * 1e5).into(),
                share.into(),
                ((share * 1e9) as u64).into(),
                9_000.into(),
                20_000.into(),
                90_000.into(),
                (share * 0.1).into(),
            ]
        };
        let rows = vec![
            row("all", "irq", 36, "a<b>&", 0.01),
            row("all", "softirq", 4, "BLOCK", 0.04),
            row("0", "softirq", 4, "BLOCK", 0.5),
        ];
        table("handlers", &columns, rows)
    }

    /// The counted events of a context, whose further stalls are `pipeline`.
    fn events(pipeline: &[(&str, u64)]) -> Table {
        let columns = [
            ("condition", TEXT),
            ("kind", TEXT),
            ("number", UINT),
            ("name", TEXT),
            ("event", TEXT),
            ("self_total", UINT),
        ];
        let row = |event: &str, total: u64| -> Vec<Value> {
            let keys: [Value; 4] = ["idle".into(), "softirq".into(), 4.into(), "BLOCK".into()];
            [&keys[..], &[event.into(), total.into()]].concat()
        };
        let counts =
            [("cycles", 1000), ("stalled-cycles-frontend", 400), ("stalled-cycles-backend", 200)];
        let rows = counts.iter().chain(pipeline).map(|(event, total)| row(event, *total));
        table("events", &columns, rows.collect())
    }

    #[test]
    fn a_bar_is_as_long_as_its_share_and_divided_by_cause() {
        let run = run_of(vec![handlers()]);
        golden("costs", costs(&run, WIDTH));
        let run = run_of(vec![handlers(), events(&[])]);
        golden("costs_by_cause", costs(&run, WIDTH));
        golden("costs_narrow", costs(&run, NARROW));
        let pipeline = [("pipeline_stall_cycles", 300), ("branch_stall_cycles", 200)];
        let run = run_of(vec![handlers(), events(&pipeline)]);
        golden("costs_by_cause_of_a_core", costs(&run, WIDTH));
        let more_than_all = [("pipeline_stall_cycles", 500), ("branch_stall_cycles", 200)];
        let divided = costs(&run_of(vec![handlers(), events(&more_than_all)]), WIDTH);
        let svg = divided.unwrap().unwrap().file();
        assert!(!svg.contains("mispredicted branches"), "{svg}");
        assert_eq!(costs(&run_of(vec![]), WIDTH).unwrap(), None);
    }

    #[test]
    fn the_costliest_context_is_that_of_all_conditions() {
        let one = handlers();
        let column = |name: &str| one.column(name).unwrap();
        let mut many = Table::new("handlers", "", one.columns.clone());
        for number in 0..=CONDITIONS_MAX {
            let mut row = one.rows()[1].clone();
            row[column("condition")] = format!("busy{number}").into();
            row[column("self_cpu_ratio")] = (0.01 * (number + 1) as f64).into();
            many.push(row);
        }
        let title = costs(&run_of(vec![many]), WIDTH).unwrap().unwrap().heading.title;
        assert!(title.ends_with(": BLOCK softirq takes 9.00 % (condition busy8)"), "{title}");
    }

    #[test]
    fn a_share_without_an_interval_has_no_whisker() {
        let new = handlers();
        let columns = new.columns[..new.columns.len() - 1].to_vec();
        let mut old = Table::new("handlers", "", columns);
        for row in new.rows() {
            old.push(row[..row.len() - 1].to_vec());
        }
        let notes =
            |table: Table| costs(&run_of(vec![table]), WIDTH).unwrap().unwrap().heading.notes;
        assert!(notes(new)[0].ends_with("Whiskers: 95 % intervals of the share."));
        assert!(!notes(old)[0].contains("Whiskers"));
    }

    #[test]
    fn a_mean_below_the_detection_limit_is_a_bound() {
        let mut handlers = handlers();
        let below = Column::new("self_mean_below_limit", Kind::Bool, "");
        let mut columns = [&handlers.columns[..], &[below]].concat();
        let mean = columns.iter_mut().find(|column| column.name == "self_mean_ns").unwrap();
        let hinted = mean.clone().plus_minus("self_mean_ci95_ns");
        *mean = hinted.below_limit("self_mean_below_limit");
        let rows = handlers.rows().iter().map(|row| [&row[..], &[true.into()]].concat());
        let rows: Vec<Vec<Value>> = rows.collect();
        handlers = Table::new("handlers", "", columns);
        rows.into_iter().for_each(|row| handlers.push(row));
        let sheet = costs(&run_of(vec![handlers]), WIDTH).unwrap().unwrap();
        let svg = sheet.file();
        assert!(svg.contains("at 1.00 k/s, &lt; 44.0 µs each"), "{svg}");
    }

    #[test]
    fn the_thread_of_an_interrupt_has_the_number_of_the_line() {
        let columns = [("kind", TEXT), ("number", UINT), ("name", TEXT)];
        let rows = vec![vec!["irq_thread".into(), 36.into(), "nvme0q1".into()]];
        let table = table("handlers", &columns, rows);
        let row = Row::new(&table, &table.rows()[0]);
        assert_eq!(context(&row), "nvme0q1 irq_thread 36");
    }

    #[test]
    fn a_distribution_is_of_quantiles_or_of_histograms() {
        let mut run = run_of(vec![handlers()]);
        golden("distribution_of_quantiles", distribution(&run, WIDTH));
        let columns = [
            ("condition", TEXT),
            ("kind", TEXT),
            ("number", UINT),
            ("name", TEXT),
            ("quantity", TEXT),
            ("bucket_min", UINT),
            ("bucket_max", UINT),
            ("count", UINT),
        ];
        let bucket = |kind: &str, number: u64, name: &str, low: u64, count: u64| -> Vec<Value> {
            let keys: [Value; 5] =
                ["idle".into(), kind.into(), number.into(), name.into(), "self".into()];
            [&keys[..], &[low.into(), (2 * low - 1).into(), count.into()]].concat()
        };
        let rows = [1_000, 2_000, 4_000].iter().flat_map(|low| {
            [bucket("softirq", 4, "BLOCK", *low, 10), bucket("irq", 36, "a<b>&", *low, 20)]
        });
        run.tables.push(table("histograms", &columns, rows.collect()));
        golden("distribution_of_histograms", distribution(&run, WIDTH));
        golden("distribution_narrow", distribution(&run, NARROW));
    }

    #[test]
    fn the_longest_span_is_that_of_all_contexts_and_the_note_counts_those_without_a_curve() {
        let handlers = handlers();
        let column = |name: &str| handlers.column(name).unwrap();
        let mut table = Table::new("handlers", "", handlers.columns.clone());
        // Eight contexts with a curve, and the cheapest of them has the longest span. A ninth has one span.
        for number in 0..9_u64 {
            let mut row = handlers.rows()[1].clone();
            row[column("name")] = format!("context{number}").into();
            row[column("number")] = number.into();
            row[column("self_total_ns")] = (1_000_000 - number).into();
            row[column("self_max_ns")] = (90_000 + 1_000 * number).into();
            if number == 8 {
                row[column("count")] = 1.into();
                row[column("self_max_ns")] = 5_000.into();
            }
            table.push(row);
        }
        let sheet = distribution(&run_of(vec![table]), WIDTH).unwrap().unwrap();
        let Heading { title, notes, .. } = sheet.heading;
        assert!(title.ends_with(": context7 softirq has the longest span (97.0 µs)"), "{title}");
        assert_eq!(notes[1], "Not drawn: 3 contexts; see table handlers.");
    }

    #[test]
    fn the_lowest_ipc_is_that_of_all_contexts() {
        let columns = [
            ("kind", TEXT),
            ("name", TEXT),
            ("instructions_per_cycle", REAL),
            ("instructions_per_cycle_ci95", REAL),
        ];
        let heading = |half_width: Option<f64>| {
            let row = |number: u32| -> Vec<Value> {
                let ipc = 2.0 - 0.1 * f64::from(number);
                let name = format!("context{number}");
                vec!["softirq".into(), name.into(), ipc.into(), half_width.into()]
            };
            let run = run_of(vec![table("ratios", &columns, (0..10).map(row).collect())]);
            efficiency(&run, WIDTH).unwrap().unwrap().heading
        };
        // Where intervals overlap or are not known, the lowest may be due to chance.
        let says = "How well each context runs: instructions per cycle and miss ratios";
        assert_eq!([None, Some(0.06)].map(|half_width| heading(half_width).title), [says, says]);
        let heading = heading(Some(0.01));
        let says = ": context9 softirq has the lowest IPC (1.10)";
        assert!(heading.title.ends_with(says), "{}", heading.title);
        assert_eq!(heading.notes[1], "Not drawn: 2 contexts of the least cost; see table ratios.");
        let row = |name: &str, ipc: Option<f64>| -> Vec<Value> {
            vec!["softirq".into(), name.into(), ipc.into(), ipc.map(|_| 0.01).into()]
        };
        let rows = vec![row("BLOCK", Some(1.2)), row("TIMER", Some(1.8)), row("RCU", None)];
        let run = run_of(vec![table("ratios", &columns, rows)]);
        let title = efficiency(&run, WIDTH).unwrap().unwrap().heading.title;
        assert!(!title.contains("lowest IPC"), "the IPC of RCU may be lower: {title}");
    }

    #[test]
    fn the_plots_of_all_conditions_are_equally_wide() {
        let mut handlers = handlers();
        let mut other = handlers.rows()[1].clone();
        (other[0], other[4]) = ("busy".into(), "a name that is longer".into());
        handlers.push(other);
        let sheet = distribution(&run_of(vec![handlers]), WIDTH).unwrap().unwrap();
        let [idle, busy] = sheet.plots() else { panic!("two conditions") };
        assert_eq!(idle.x, busy.x);
    }

    #[test]
    fn shares_of_misses_have_one_scale() {
        let columns = [
            ("condition", TEXT),
            ("kind", TEXT),
            ("name", TEXT),
            ("instructions_per_cycle", REAL),
            ("l1i_miss_ratio", REAL),
            ("branch_miss_ratio", REAL),
        ];
        let row = |instructions: f64, branches: f64| -> Vec<Value> {
            let names: [Value; 3] = ["idle".into(), "softirq".into(), "BLOCK".into()];
            [&names[..], &[1.5.into(), instructions.into(), branches.into()]].concat()
        };
        let drawn = |row: Vec<Value>| {
            let run = run_of(vec![table("ratios", &columns, vec![row])]);
            efficiency(&run, WIDTH).unwrap().unwrap()
        };
        let sheet = drawn(row(0.6, 0.13));
        let [cycles, instructions, branches] = sheet.plots() else { panic!("three panels") };
        assert_eq!(instructions.axis, branches.axis);
        assert_ne!(cycles.axis.ends(), branches.axis.ends());
        let sheet = drawn(row(0.6, 0.01));
        assert_ne!(sheet.plots()[1].axis, sheet.plots()[2].axis);
        assert_eq!(sheet.heading.notes.len(), 2);
    }

    #[test]
    fn efficiency_has_a_panel_for_each_ratio_that_was_measured() {
        let columns = [
            ("condition", TEXT),
            ("kind", TEXT),
            ("number", UINT),
            ("name", TEXT),
            ("instructions_per_cycle", REAL),
            ("instructions_per_cycle_ci95", REAL),
            ("l1i_miss_ratio", REAL),
            ("l1d_miss_ratio", REAL),
        ];
        let row: Vec<Value> = vec![
            "idle".into(),
            "softirq".into(),
            4.into(),
            "BLOCK".into(),
            0.5.into(),
            0.1.into(),
            0.25.into(),
            Value::Absent,
        ];
        let run = run_of(vec![handlers(), table("ratios", &columns, vec![row])]);
        golden("efficiency", efficiency(&run, WIDTH));
        golden("efficiency_narrow", efficiency(&run, NARROW));
    }
}
