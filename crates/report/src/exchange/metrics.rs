//! A run's tables as metrics: OpenMetrics, or the older text format of Prometheus. `irqlab export --format openmetrics`
//! and `--format prometheus` write them.
//!
//! A column of numbers is a family of metrics, a row is a sample, and the key columns of the row are its labels.
//! Times are in seconds. Whole numbers whose column ends in `count` or `total` before its unit are counters, except
//! sizes; all other figures are gauges. A table of buckets becomes histograms. Absent values have no sample, nor have
//! bounds and values below the detection limit. A sum over CPUs has a sample, and its parts have none. The parts of a CPU's
//! time have samples, and their sum has none. So a query that adds up a family counts nothing twice, except in tables
//! whose help text says so.
//!
//! Users' queries name metrics and labels: a change of these names breaks the queries.

use std::collections::BTreeSet;

use record::{Column, Kind, Role, Run, Table, Value};

use super::Unexported;
use super::bucketed::{self, Bucketed, Histogram, label};
use super::openmetrics::{Buckets, Exposition, MetricKind, Metrics};
use crate::bound::sources;
use crate::escape;
use crate::export::is_sum;
use crate::row::Row;

/// Columns of whole numbers that end in `_count` and count no events of the window: sizes of the machine, settings, and
/// extremes. Their numbers do not grow with the window.
const SIZES: [&str; 16] = [
    "cpu_count",
    "node_count",
    "unit_count",
    "kernel_min_count",
    "kernel_max_count",
    "undelivered_max_count",
    "edge_tolerance_count",
    "edge_max_count",
    "timer_count",
    "part_count",
    "outcome_count",
    "row_count",
    "repetition_count",
    "run_count",
    "round_count",
    "cell_count",
];

/// Rows that add up other rows of their table: table, key column, and values of this column.
const SUMS_OF_ROWS: [(&str, &str, &[&str]); 2] =
    [("cpu_times", "part", &["sum", "window"]), ("sampled_cycles", "context", &["all"])];

/// Tables with several rows of one event: a query must not add up these rows. The help text of each family says so.
const OVERLAPPING_ROWS: [(&str, &str); 2] = [
    (
        "senders",
        "A call and the interrupt for it are two rows: add up rows of one kind only (label kind).",
    ),
    (
        "victims",
        "An event with several causes is in the row of each cause: spans of several causes do not add up.",
    ),
];

/// Whether a row adds up other rows of its table.
fn is_sum_of_rows(table: &Table, cells: &[Value]) -> bool {
    SUMS_OF_ROWS.iter().any(|(name, column, values)| {
        *name == table.name
            && matches!(table.get(cells, column), Some(Value::Text(text)) if values.contains(&text.as_str()))
    })
}

/// The help text of a column's family.
fn help(table: &Table, column: &Column) -> String {
    let overlap = OVERLAPPING_ROWS.iter().find(|(name, _)| *name == table.name);
    overlap.map_or(column.doc.clone(), |(_, overlap)| format!("{} {overlap}", column.doc))
}

/// A run as metrics, and the tables that have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMetrics {
    pub text: String,
    /// Tables whose rows cannot be distinguished by labels, such as single events or samples of a signal.
    pub left_out: Vec<String>,
}

/// The run as metrics. All samples get the time `timestamp_seconds` (Unix), if there is one.
///
/// Fails when no table of the run has a metric.
pub fn metrics(
    run: &Run,
    format: Exposition,
    timestamp_seconds: Option<f64>,
) -> Result<RunMetrics, Unexported> {
    let mut metrics = Metrics::new(format).with_timestamp(timestamp_seconds);
    let complete = if run.complete { "true" } else { "false" };
    let labels = [
        ("experiment", run.experiment.as_str()),
        ("bench", &run.bench),
        ("started_utc", &run.started_utc),
        ("complete", complete),
    ];
    // A gauge and no `info`, which parsers of the older format refuse, such as node_exporter's.
    let help = "The run whose figures these are.";
    metrics.family("irqlab_run_info", MetricKind::Gauge, None, help).sample(&labels, 1.0);
    let (mut left_out, mut families) = (Vec::new(), 0);
    for table in run.tables.iter().filter(|table| !table.rows().is_empty()) {
        if let Some(bucketed) = bucketed::histograms_of(table) {
            families += add_histograms(&mut metrics, &bucketed);
        } else if let Some(labels) = label_columns(table) {
            families += add_figures(&mut metrics, table, &labels);
        } else {
            left_out.push(escape::plain(&table.name));
        }
    }
    match families {
        0 => Err(Unexported(
            "no table of this run has figures with labels that identify a row".to_owned(),
        )),
        _ => Ok(RunMetrics { text: metrics.finish(), left_out }),
    }
}

/// The columns whose values are the labels of a row. These are the key columns, or if two rows have equal keys, all
/// columns of names. `None` if two rows have equal labels even then.
fn label_columns(table: &Table) -> Option<Vec<&Column>> {
    let is_key = |column: &&Column| column.role == Role::Key;
    let is_name = |column: &&Column| {
        is_key(column)
            || matches!(column.kind, Kind::Text | Kind::Bool)
            || ["cpu", "region", "number"].contains(&column.name.as_str())
    };
    let keys: Vec<&Column> = table.columns.iter().filter(is_key).collect();
    let names: Vec<&Column> = table.columns.iter().filter(is_name).collect();
    [keys, names].into_iter().find(|columns| {
        let rows: BTreeSet<Vec<String>> =
            table.rows().iter().map(|values| labels(&Row::new(table, values), columns)).collect();
        rows.len() == table.rows().len()
    })
}

/// The values of a row's labels. Empty where a value is absent.
fn labels(row: &Row<'_>, columns: &[&Column]) -> Vec<String> {
    columns.iter().map(|column| label(row.get(&column.name))).collect()
}

/// Name, kind and unit of the family of a column.
#[derive(Debug, PartialEq)]
struct Naming {
    name: String,
    kind: MetricKind,
    unit: Option<&'static str>,
    /// A value of the column divided by this number is in `unit`.
    divisor: f64,
}

/// Makes the family's name from the names of table and column, by the conventions of Prometheus.
fn naming(table: &str, column: &Column) -> Naming {
    let (stem, unit, divisor) = base_unit(&column.name);
    let stem = if stem == "count" { "spans_count" } else { stem };
    let stem = format!("irqlab_{}_{}", valid(table), valid(stem));
    let grows = column.kind == Kind::Uint
        && unit != Some("ratio")
        && !SIZES.contains(&column.name.as_str());
    // A counter gets its suffix from the format, and nothing else may have a suffix of counters.
    let stem_without_suffix =
        ["_total", "_count"].into_iter().find_map(|suffix| stem.strip_suffix(suffix));
    let kind = match stem_without_suffix {
        Some(_) if grows => MetricKind::Counter,
        _ => MetricKind::Gauge,
    };
    let stem = without_reserved_suffix(stem_without_suffix.unwrap_or(&stem));
    let unit_suffix = unit.map(|unit| format!("_{unit}")).unwrap_or_default();
    Naming { name: format!("{stem}{unit_suffix}"), kind, unit, divisor }
}

/// The name without a suffix that belongs to samples of counters, histograms or summaries: `a_sum` is `a_sums`.
fn without_reserved_suffix(name: &str) -> String {
    let is_reserved = ["_total", "_count", "_sum", "_bucket", "_info"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    if is_reserved { format!("{name}s") } else { name.to_owned() }
}

/// A column's name without its unit, the base unit of metrics, and how many of the column's units make a base unit.
fn base_unit(column: &str) -> (&str, Option<&'static str>, f64) {
    let units = [
        ("_ns", "seconds", 1e9),
        ("_hz", "hertz", 1.0),
        ("_bytes", "bytes", 1.0),
        ("_ratio", "ratio", 1.0),
        ("_cycles", "cycles", 1.0),
    ];
    units
        .into_iter()
        .find_map(|(suffix, unit, divisor)| {
            Some((column.strip_suffix(suffix)?, Some(unit), divisor))
        })
        .unwrap_or((column, None, 1.0))
}

/// A valid part of a metric's or label's name. A run of another version may have any column names.
fn valid(name: &str) -> String {
    let valid_character = |character: char| {
        if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '_' }
    };
    name.chars().map(valid_character).collect()
}

/// Adds a family for each column of numbers that is no label, and a sample for each row that is no part of another row.
/// `label_columns`: the columns whose values tell the rows apart, from [`label_columns`]. Returns the number of families.
fn add_figures(metrics: &mut Metrics, table: &Table, label_columns: &[&Column]) -> usize {
    let label_names: Vec<String> =
        label_columns.iter().map(|column| label_name(&column.name)).collect();
    let is_label = |column: &Column| label_columns.iter().any(|label| label.name == column.name);
    let has_sums = table.rows().iter().any(|cells| is_sum(table, cells));
    let mut used_names = BTreeSet::new();
    for column in table.columns.iter().filter(|column| !is_label(column)) {
        if matches!(column.kind, Kind::Text | Kind::Bool) {
            continue;
        }
        let Naming { name, kind, unit, divisor } = naming(&table.name, column);
        // Two columns can lead to one name, such as `x` and `x_total`. Only the first becomes a family.
        if !used_names.insert(name.clone()) {
            continue;
        }
        let sources = sources(table, column);
        let mut family = metrics.family(&name, kind, unit, &help(table, column));
        let has_sample = |cells: &&Vec<Value>| {
            (!has_sums || is_sum(table, cells)) && !is_sum_of_rows(table, cells)
        };
        for cells in table.rows().iter().filter(has_sample) {
            let row = Row::new(table, cells);
            // A program that reads metrics cannot tell a bound from a measurement.
            if sources.iter().any(|source| row.is_bound(source)) {
                continue;
            }
            let label_values = labels(&row, label_columns);
            let pairs = label_names.iter().zip(&label_values);
            // A row has no label for an absent cell.
            let pairs: Vec<(&str, &str)> = pairs
                .map(|(label, value)| (label.as_str(), value.as_str()))
                .filter(|(_, value)| !value.is_empty())
                .collect();
            if let Some(number) = row.number(&column.name) {
                family.sample(&pairs, number / divisor);
            }
        }
    }
    used_names.len()
}

/// The name of a label: the column's name, with a prefix if it has a special meaning in metrics, such as `le`.
fn label_name(column: &str) -> String {
    let name = valid(column);
    let is_reserved = name == "le"
        || name == "quantile"
        || name.starts_with(['_', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    if is_reserved { format!("column_{name}") } else { name }
}

/// Adds a family for each quantity of a table of histograms. Returns the number of families.
fn add_histograms(metrics: &mut Metrics, bucketed: &Bucketed<'_>) -> usize {
    let mut quantities: Vec<&str> =
        bucketed.histograms.iter().map(|histogram| histogram.quantity.as_str()).collect();
    quantities.sort_unstable();
    quantities.dedup();
    for quantity in &quantities {
        let is_time = bucketed::is_time(bucketed.table, quantity);
        // The type of the family already says that it is a histogram.
        let table = bucketed.table.name.trim_end_matches("_histogram");
        let stem = [table, quantity].join("_");
        let stem = valid(stem.trim_end_matches('_'));
        let (name, unit, divisor) = if is_time {
            (format!("irqlab_{stem}_seconds"), Some("seconds"), 1e9)
        } else {
            (format!("irqlab_{stem}"), None, 1.0)
        };
        let help = &bucketed.table.doc;
        let mut family = metrics.family(&name, MetricKind::Histogram, unit, help);
        let histograms: Vec<&Histogram> = bucketed
            .histograms
            .iter()
            .filter(|histogram| histogram.quantity == **quantity)
            .collect();
        let bounds = common_bounds(&histograms);
        for histogram in histograms {
            let names: Vec<(String, &str)> = histogram
                .labels
                .iter()
                .map(|(name, value)| (label_name(name), value.as_str()))
                .collect();
            let pairs: Vec<(&str, &str)> =
                names.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let (mut count, mut buckets) = (0_u64, histogram.buckets.iter().peekable());
            let mut up_to = Vec::with_capacity(bounds.len());
            for bound in &bounds {
                while let Some(bucket) = buckets.next_if(|bucket| bucket.max <= *bound) {
                    count = count.saturating_add(bucket.count);
                }
                up_to.push((*bound as f64 / divisor, count));
            }
            family.histogram(&pairs, &Buckets { up_to, count, sum: None });
        }
    }
    quantities.len()
}

/// The upper bounds at which each of the histograms has an exact count, ascending: the largest values of all their buckets,
/// without those inside a bucket of another histogram. All series of a family need the same bounds, because Prometheus adds
/// only buckets with equal bounds, and a sum that lacks some series gives wrong quantiles.
fn common_bounds(histograms: &[&Histogram]) -> Vec<u64> {
    let buckets = || histograms.iter().flat_map(|histogram| &histogram.buckets);
    let bounds: BTreeSet<u64> = buckets().map(|bucket| bucket.max).collect();
    // The last bucket of a histogram may end at its largest value, inside the bucket of another one.
    let inside: BTreeSet<u64> =
        buckets().flat_map(|bucket| bounds.range(bucket.min..bucket.max)).copied().collect();
    bounds.difference(&inside).copied().collect()
}

#[cfg(test)]
mod tests {
    use record::{IntervalColumns, RowFilter, Value};

    use super::*;
    use crate::picture::tests::{run_of, table};

    #[test]
    fn counters_alone_have_the_suffixes_of_counters() {
        let named = |table: &str, column: &str, kind: Kind| {
            let Naming { name, kind, .. } = naming(table, &Column::new(column, kind, ""));
            (name, kind)
        };
        let (uint, real) = (Kind::Uint, Kind::Real);
        let (counter, gauge) = (MetricKind::Counter, MetricKind::Gauge);
        for (column, kind, name, family) in [
            ("count", uint, "irqlab_events_spans", counter),
            ("self_total_ns", uint, "irqlab_events_self_seconds", counter),
            ("total", uint, "irqlab_events", counter),
            ("total", real, "irqlab_events", gauge),
            ("self_total", real, "irqlab_events_self", gauge),
            ("self_mean_ns", real, "irqlab_events_self_mean_seconds", gauge),
            ("lines_sum", uint, "irqlab_events_lines_sums", gauge),
            // Totals whose name has more words after it. Queries name these families.
            ("self_total_tsc_cycles", real, "irqlab_events_self_total_tsc_cycles", gauge),
            ("lost_ns", uint, "irqlab_events_lost_seconds", gauge),
            // A machine's CPUs are no events.
            ("cpu_count", uint, "irqlab_events_cpu", gauge),
        ] {
            assert_eq!(named("events", column, kind), (name.to_owned(), family), "{column}");
        }
    }

    #[test]
    fn a_bound_has_no_sample() {
        let columns = vec![
            Column::new("name", Kind::Text, ""),
            Column::new("self_mean_ns", Kind::Real, "")
                .plus_minus("self_mean_ci95_ns")
                .below_limit("self_mean_below_limit"),
            Column::new("self_mean_ci95_ns", Kind::Real, ""),
            Column::new("self_mean_below_limit", Kind::Bool, ""),
            Column::new("self_total_ns", Kind::Uint, "").below_limit("self_mean_below_limit"),
            Column::new("self_cpu_ratio", Kind::Real, "")
                .below_limit("self_mean_below_limit")
                .interval(IntervalColumns::half_width("self_cpu_ci95_ratio")),
            Column::new("self_cpu_ci95_ratio", Kind::Real, ""),
            Column::new("displaced_lines", Kind::Real, "").bound("is_upper_bound", "≤"),
            Column::new("displaced_ratio", Kind::Real, ""),
            Column::new("is_upper_bound", Kind::Bool, ""),
        ];
        let mut table = Table::new("t", "", columns);
        for (name, is_bound) in [("measured", false), ("bound", true)] {
            let (number, flag) = (Value::real(5.0), Value::from(is_bound));
            let [one, two, three, four] = [(); 4].map(|()| number.clone());
            let (total, share) = (354_294.into(), || Value::real(2.95e-5));
            let totals = [total, share(), share()];
            let means = [name.into(), one, two, flag.clone()];
            let lines = [three, four, flag];
            table.push(means.into_iter().chain(totals).chain(lines).collect());
        }
        let text = metrics(&run_of(vec![table]), Exposition::OpenMetrics, None).unwrap().text;
        let samples = |name: &str| {
            text.lines().filter(|line| line.starts_with("irqlab_t_") && line.contains(name)).count()
        };
        assert_eq!(samples("name=\"measured\""), 7, "{text}");
        assert_eq!(samples("name=\"bound\""), 0, "{text}");
    }

    /// Rows of CPUs next to their sum: `sum()` over the family is the sum, not twice the sum.
    #[test]
    fn parts_have_no_sample_next_to_their_sum() {
        let columns = [("cpu", Kind::Text), ("name", Kind::Text), ("count", Kind::Uint)];
        let row = |cpu: &str, count: u64| vec![cpu.into(), "RCU".into(), count.into()];
        let rows = || vec![row("all", 7), row("0", 3), row("1", 4)];
        let samples = |table: Table| {
            let text = metrics(&run_of(vec![table]), Exposition::OpenMetrics, None).unwrap().text;
            let samples = text.lines().filter(|line| line.starts_with("irqlab_handlers_spans"));
            samples.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut with_sum = table("handlers", &columns, rows());
        with_sum.display.filter = Some(RowFilter::sums_over_cpus());
        assert_eq!(
            samples(with_sum),
            ["irqlab_handlers_spans_total{cpu=\"all\",name=\"RCU\"} 7.0"]
        );
        // Without a sum, each part has its sample.
        let mut parts = table("handlers", &columns, rows().split_off(1));
        parts.display.filter = Some(RowFilter::sums_over_cpus());
        assert_eq!(samples(parts).len(), 2);
    }

    #[test]
    fn the_parts_of_a_time_add_up_to_it_once() {
        let columns = [("cpu", Kind::Text), ("part", Kind::Text), ("self_total_ns", Kind::Uint)];
        let row = |part: &str, ns: u64| vec!["all".into(), part.into(), ns.into()];
        let rows = vec![
            row("user mode", 700_000_000),
            row("idle", 300_000_000),
            row("sum", 1_000_000_000),
            row("window", 1_000_000_000),
        ];
        let text = |name: &str| {
            let run = run_of(vec![table(name, &columns, rows.clone())]);
            metrics(&run, Exposition::OpenMetrics, None).unwrap().text
        };
        let sum = |text: &str| -> f64 {
            let samples = text.lines().filter(|line| line.contains("_seconds_total{"));
            samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
        };
        assert_eq!(sum(&text("cpu_times")), 1.0);
        // Another table may have a part of that name.
        assert_eq!(sum(&text("others")), 3.0);
    }

    #[test]
    fn the_help_of_rows_that_overlap_says_so() {
        let columns = [("kind", Kind::Text), ("count", Kind::Uint)];
        let rows = || vec![vec!["call".into(), 3_u64.into()]];
        let help = |name: &str| {
            let run = run_of(vec![table(name, &columns, rows())]);
            let text = metrics(&run, Exposition::OpenMetrics, None).unwrap().text;
            let name = format!("# HELP irqlab_{name}_spans");
            text.lines().find(|line| line.starts_with(&name)).unwrap().to_owned()
        };
        assert!(help("senders").contains("add up rows of one kind only"), "{}", help("senders"));
        assert!(help("victims").contains("do not add up"), "{}", help("victims"));
        assert!(!help("handlers").contains("add up"), "{}", help("handlers"));
    }

    /// Prometheus adds up the series of a family by `le`. Three CPUs with values at 1 µs, 10 µs and 1 ms.
    #[test]
    fn buckets_of_several_series_add_up() {
        let columns = [
            ("cpu", Kind::Text),
            ("bucket_min_ns", Kind::Uint),
            ("bucket_max_ns", Kind::Uint),
            ("count", Kind::Uint),
        ];
        let row = |cpu: &str, min: u64, max: u64, count: u64| {
            vec![cpu.into(), min.into(), max.into(), count.into()]
        };
        // The bucket of CPU 2 ends at its largest value, inside a bucket of CPU 1.
        let rows = vec![
            row("0", 992, 1_023, 100),
            row("1", 9_728, 10_239, 60),
            row("1", 983_040, 1_015_807, 40),
            row("2", 983_040, 1_000_000, 100),
        ];
        let text = metrics(
            &run_of(vec![table("detour_histogram", &columns, rows)]),
            Exposition::Prometheus,
            None,
        )
        .unwrap()
        .text;
        let counts = |cpu: &str| -> Vec<(String, u64)> {
            let start = format!("irqlab_detour_seconds_bucket{{cpu=\"{cpu}\",le=\"");
            let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
            let pairs = lines.map(|rest| rest.split_once("\"} ").expect("a bound and a count"));
            pairs.map(|(bound, count)| (bound.to_owned(), count.parse().unwrap())).collect()
        };
        let bounds = ["1.023e-06", "1.0239e-05", "0.001015807", "+Inf"];
        let expected = |counts: [u64; 4]| -> Vec<(String, u64)> {
            bounds.iter().map(|bound| (*bound).to_owned()).zip(counts).collect()
        };
        assert_eq!(counts("0"), expected([100, 100, 100, 100]), "{text}");
        assert_eq!(counts("1"), expected([0, 60, 100, 100]), "{text}");
        assert_eq!(counts("2"), expected([0, 0, 100, 100]), "{text}");
    }
}
