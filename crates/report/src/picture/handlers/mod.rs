//! Pictures of `handlers`: what each interrupt context costs, how long it takes, and how well it runs.

mod costs;
mod distribution;
mod efficiency;

use record::{Table, Value};

pub use costs::costs;
pub use distribution::distribution;
pub use efficiency::efficiency;

use crate::escape::plain;
use crate::picture::rows;
use crate::row::Row;

/// Maximum number of conditions of a picture.
const CONDITIONS_MAX: usize = 8;

/// The text in a column; empty if the value is not text.
fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        Value::Text(text) => plain(text),
        _ => String::new(),
    }
}

/// A context by name and kind, the name first: `BLOCK softirq`, `virtio1-req.0 irq 36`.
fn context(row: &Row<'_>) -> String {
    match text(row, "kind").as_str() {
        "irq" => format!("{} irq {}", text(row, "name"), row.alone("number")),
        kind => format!("{} {kind}", text(row, "name")),
    }
}

/// The first [`CONDITIONS_MAX`] conditions of a table, and the number of further conditions.
fn conditions(table: &Table) -> (Vec<String>, usize) {
    let mut found: Vec<String> = Vec::new();
    for row in rows(table) {
        let condition = text(&row, "condition");
        if !found.contains(&condition) {
            found.push(condition);
        }
    }
    let more = found.len().saturating_sub(CONDITIONS_MAX);
    found.truncate(CONDITIONS_MAX);
    (found, more)
}

/// The rows of a condition that are sums over all CPUs, sorted by `column`, the largest first.
fn largest<'t>(table: &'t Table, condition: &str, column: &str) -> Vec<Row<'t>> {
    let is_wanted = |row: &Row<'_>| {
        text(row, "condition") == condition
            && (table.column("cpu").is_none() || text(row, "cpu") == "all")
            && row.number(column).is_some_and(|number| number > 0.0)
    };
    let mut found: Vec<Row<'t>> = rows(table).filter(is_wanted).collect();
    let size = |row: &Row<'_>| row.number(column).unwrap_or(0.0);
    found.sort_by(|a, b| size(b).total_cmp(&size(a)));
    found
}

fn panel_title(condition: &str) -> String {
    format!("condition {condition}")
}

/// The note on what a picture has no room for.
fn left_out(conditions: usize, contexts: usize, table: &str) -> Option<String> {
    let parts = [(conditions, "conditions"), (contexts, "contexts of the least cost")];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    (!parts.is_empty()).then(|| format!("Not drawn: {}; see table {table}.", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::palette::{BLUE, ORANGE, SKY, VERMILION, hex};
    use crate::picture::sheet::{NARROW, Sheet, WIDTH};
    use crate::picture::tests::{checked, run_of, table, texts};
    use plotters::style::RGBColor;
    use record::{Kind, Run};

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
            ]
        };
        let rows = vec![
            row("all", "irq", 36, "a<b>&", 0.01),
            row("all", "softirq", 4, "BLOCK", 0.04),
            row("0", "softirq", 4, "BLOCK", 0.5),
        ];
        table("handlers", &columns, rows)
    }

    fn events() -> Table {
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
        let rows = vec![
            row("cycles", 1000),
            row("stalled-cycles-frontend", 500),
            row("stalled-cycles-backend", 250),
        ];
        table("events", &columns, rows)
    }

    /// Widths of the rectangles of a colour; the last are bars, those before them the legend's.
    fn widths(sheet: &Sheet, colour: RGBColor) -> Vec<f64> {
        let all = checked(&sheet.file());
        let rectangles = all.iter().filter(|element| element.tag == "rect");
        let rectangles =
            rectangles.filter(|element| element.attribute("fill") == Some(&hex(colour)));
        rectangles.map(|element| element.attribute("width").unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn a_bar_is_as_long_as_its_share_and_divided_by_cause() {
        let run = run_of(vec![handlers()]);
        let sheet = costs(&run, WIDTH).unwrap().expect("a picture");
        let texts = texts(&sheet.file());
        for text in ["BLOCK softirq", "a&lt;b&gt;&amp; irq 36", "condition idle"] {
            assert!(texts.iter().any(|drawn| drawn == text), "{text}: {texts:?}");
        }
        assert!(texts.iter().any(|drawn| drawn.starts_with("4.00 % = 40.0 µs")), "{texts:?}");
        let (softirq, irq) = (widths(&sheet, SKY), widths(&sheet, VERMILION));
        assert!((softirq[1] / irq[1] - 4.0).abs() < 0.05, "{softirq:?} {irq:?}");
        let run = run_of(vec![handlers(), events()]);
        let sheet = costs(&run, WIDTH).unwrap().expect("a picture");
        let [runs, waits, data] = [BLUE, VERMILION, ORANGE].map(|colour| widths(&sheet, colour));
        assert_eq!([runs.len(), data.len()], [2, 2], "of the legend and of BLOCK");
        assert!((waits[1] / runs[1] - 2.0).abs() < 0.05 && (data[1] / runs[1] - 1.0).abs() < 0.05);
        checked(&costs(&run, NARROW).unwrap().expect("a picture").file());
        assert_eq!(costs(&run_of(vec![]), WIDTH).unwrap(), None);
    }

    #[test]
    fn a_distribution_is_of_quantiles_or_of_histograms() {
        let marks = |run: &Run| {
            let svg = distribution(run, WIDTH).unwrap().expect("a picture").file();
            let is_mark = |tag: &str| tag == "circle" || tag == "polygon";
            checked(&svg).iter().filter(|element| is_mark(&element.tag)).count()
        };
        let mut run = run_of(vec![handlers()]);
        // A filled mark and its outline; of polygons, the outline is a line.
        assert!(marks(&run) >= 2 * 3, "{}", marks(&run));
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
        assert_eq!(marks(&run), 0, "lines alone");
        checked(&distribution(&run, NARROW).unwrap().expect("a picture").file());
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
        for width in [WIDTH, NARROW] {
            let svg = efficiency(&run, width).unwrap().expect("a picture").file();
            let texts = texts(&svg);
            assert!(texts.iter().any(|drawn| drawn == "25.0 %"), "{texts:?}");
            assert!(texts.iter().any(|drawn| drawn.starts_with("L1I misses")));
            assert!(
                !texts.iter().any(|drawn| drawn.starts_with("L1D misses")),
                "absent is no panel"
            );
        }
    }
}
