//! Tests of the pictures of `signal`.

use super::*;
use crate::picture::chart::LINE_PATTERNS;
use crate::picture::palette::hex;
use crate::picture::tests::{checked, golden, run_of, table};
use crate::picture::{NARROW, WIDTH};
use record::{Column, Kind};
use serde_json::json;

const RATES: [u64; 4] = [1_000, 5_000, 20_000, 100_000];

/// A sweep as `signal run` measures it: CPU use under load `background`, latencies under both.
fn rates(schemes: &[&str]) -> Table {
    rates_within(schemes, 0.001)
}

/// As [`rates`], with intervals of this half width as a part of the figure.
fn rates_within(schemes: &[&str], interval: f64) -> Table {
    let columns = [
        ("load", Kind::Text),
        ("scheme", Kind::Text),
        ("rate_hz", Kind::Uint),
        ("cpu_ratio", Kind::Real),
        ("cpu_ci95_ratio", Kind::Real),
        ("latency_p50_ns", Kind::Uint),
        ("latency_p99_ns", Kind::Uint),
    ];
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for load in ["idle", "background"] {
        for (number, scheme) in schemes.iter().enumerate() {
            for rate_hz in RATES {
                let cpu = (load == "background")
                    .then(|| 0.001 * (number + 1) as f64 + rate_hz as f64 * 2e-6);
                let p50_ns = 5_000 * (number as u64 + 1);
                rows.push(vec![
                    load.into(),
                    (*scheme).into(),
                    rate_hz.into(),
                    cpu.into(),
                    cpu.map(|cpu| cpu * interval).into(),
                    p50_ns.into(),
                    (p50_ns * 9).into(),
                ]);
            }
        }
    }
    table("rates", &columns, rows)
}

/// The model's curves between those points.
fn curves(schemes: &[&str]) -> Table {
    let columns = [("scheme", Kind::Text), ("rate_hz", Kind::Uint), ("cpu_ratio", Kind::Real)];
    let point = |scheme: &str, step: u64| -> Vec<Value> {
        let rate_hz = 1_000 + step * 4_950;
        vec![scheme.into(), rate_hz.into(), (0.001 + rate_hz as f64 * 2e-6).into()]
    };
    let points_of = |scheme: &&str| (0..=20).map(|step| point(scheme, step)).collect::<Vec<_>>();
    table("curves", &columns, schemes.iter().flat_map(points_of).collect())
}

const SCHEMES: [&str; 3] = ["interrupt", "drain", "clocked:1ms"];

#[test]
fn cpu_use_has_a_curve_and_points_for_each_scheme() {
    let mut run = run_of(vec![rates(&SCHEMES), curves(&SCHEMES)]);
    run.warnings.push("3 of 9 rows have only contaminated windows (first row: x); more".into());
    golden("cpu", cpu(&run, WIDTH));
}

#[test]
fn a_title_names_no_best_scheme_where_intervals_overlap() {
    let overlapping = run_of(vec![rates_within(&SCHEMES, 0.1)]);
    let title = |sheet: Option<crate::picture::Sheet>| sheet.unwrap().heading.title;
    assert_eq!(title(cpu(&overlapping, WIDTH).unwrap()), "CPU use by event rate");
    // Quantiles of a measurement have no intervals.
    assert_eq!(title(latency(&overlapping, WIDTH).unwrap()), "Latency by event rate");
}

/// A sweep of cheap schemes with these loads. Scheme `number` takes 0.1 % more CPU time than the scheme before it.
/// Load `background` doubles the CPU use.
fn cheap_rates(loads: &[&str], scheme_count: u32) -> Table {
    let columns = [
        ("load", Kind::Text),
        ("scheme", Kind::Text),
        ("rate_hz", Kind::Uint),
        ("cpu_ratio", Kind::Real),
        ("cpu_ci95_ratio", Kind::Real),
    ];
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for load in loads {
        for number in 0..scheme_count {
            for rate_hz in RATES {
                let factor = if *load == "background" { 2.0 } else { 1.0 };
                let cpu = 0.001 * factor * f64::from(number + 1);
                let scheme = format!("clocked:{number}ms");
                let keys = [(*load).into(), scheme.into(), rate_hz.into()];
                let numbers = [cpu.into(), 0.000_1.into()];
                rows.push(keys.into_iter().chain(numbers).collect());
            }
        }
    }
    table("rates", &columns, rows)
}

/// The table with `change` made to each row.
fn changed(table: &Table, change: impl Fn(&mut Vec<Value>)) -> Table {
    let mut copy = Table::new(&table.name, "", table.columns.clone());
    for row in table.rows() {
        let mut row = row.clone();
        change(&mut row);
        copy.push(row);
    }
    copy
}

#[test]
fn cpu_use_has_a_panel_for_each_load() {
    let both = cheap_rates(&["idle", "background"], 2);
    let schemes = ["clocked:0ms", "clocked:1ms"];
    let run = run_of(vec![both, curves(&schemes)]);
    let sheet = cpu(&run, WIDTH).unwrap().unwrap();
    assert_eq!(sheet.plots().len(), 2);
    let says =
        "CPU use by event rate: least at 100 k/s with clocked:0ms (0.200 %, load background)";
    assert_eq!(sheet.heading.title, says);
    golden("cpu_of_two_loads", cpu(&run, WIDTH));
}

#[test]
fn a_title_compares_schemes_that_are_not_drawn() {
    let count = SCHEMES_MAX as u32 + 1;
    let last_scheme = format!("clocked:{SCHEMES_MAX}ms");
    let is_last = |row: &Vec<Value>| row[1] == Value::from(last_scheme.as_str());
    let all = cheap_rates(&["idle"], count);
    // The last scheme has no place in the picture, and a share below 0 has none on the axis.
    for share in [0.000_2, -0.000_2] {
        let rates = changed(&all, |row| {
            if is_last(row) {
                row[3] = share.into();
            }
        });
        let title = cpu(&run_of(vec![rates]), WIDTH).unwrap().unwrap().heading.title;
        assert!(title.contains(&format!("with {last_scheme} (")), "{title}");
    }
    let columns = [
        ("scheme", Kind::Text),
        ("socket_buffer_bytes", Kind::Uint),
        ("throughput_bytes_per_second", Kind::Real),
        ("throughput_ci95_bytes_per_second", Kind::Real),
    ];
    let rows = (0..count).flat_map(|number| {
        [1_024_u64, 2_048].map(|bytes| -> Vec<Value> {
            let rate = 1e6 * f64::from(number + 1);
            vec![format!("clocked:{number}ms").into(), bytes.into(), rate.into(), 1e3.into()]
        })
    });
    let run = run_of(vec![table("throughput", &columns, rows.collect())]);
    let title = throughput(&run, WIDTH).unwrap().unwrap().heading.title;
    assert!(title.contains(&format!("with {last_scheme} (")), "{title}");
}

#[test]
fn a_title_does_not_compare_schemes_that_drop_events() {
    let all = cheap_rates(&["background"], 3);
    let mut rates = Table::new(
        "rates",
        "",
        [&all.columns[..], &[Column::new("dropped_ratio", Kind::Real, "")]].concat(),
    );
    for row in all.rows() {
        let dropped = if row[1] == Value::from("clocked:0ms") { 0.02 } else { 0.0 };
        rates.push([&row[..], &[dropped.into()]].concat());
    }
    let title = cpu(&run_of(vec![rates]), WIDTH).unwrap().unwrap().heading.title;
    assert!(title.contains("with clocked:1ms ("), "{title}");
}

#[test]
fn without_a_fit_the_points_are_joined() {
    golden("cpu_without_a_fit", cpu(&run_of(vec![rates(&["spin"])]), WIDTH));
}

#[test]
fn what_has_no_place_on_a_logarithmic_axis_is_counted() {
    let mut table = rates(&["interrupt"]);
    let mut rows = table.rows().to_vec();
    rows[4][3] = Value::Real(-0.002);
    let columns = table.columns.clone();
    table = Table::new("rates", "For a test.", columns);
    rows.into_iter().for_each(|row| table.push(row));
    golden("cpu_below_zero", cpu(&run_of(vec![table]), WIDTH));
}

#[test]
fn latencies_have_two_panels_for_each_load() {
    golden("latency", latency(&run_of(vec![rates(&SCHEMES)]), WIDTH));
}

#[test]
fn names_are_text_and_many_are_left_out() {
    let names: Vec<String> = (0..40).map(|index| format!("clocked:<{index}>&\"'us")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let run = run_of(vec![rates(&names), curves(&names)]);
    golden("cpu_of_many_schemes", cpu(&run, WIDTH));
    golden("latency_of_many_schemes", latency(&run, WIDTH));
    checked(&latency(&run, WIDTH).unwrap().expect("a picture").file());
}

#[test]
fn computed_rows_show_how_they_were_computed() {
    let columns = [
        ("rate_hz", Kind::Uint),
        ("scheme", Kind::Text),
        ("method", Kind::Text),
        ("cpu_ratio", Kind::Real),
        ("is_over_capacity", Kind::Bool),
    ];
    let row = |rate_hz: u64, method: &str, cpu: f64, over: bool| -> Vec<Value> {
        vec![rate_hz.into(), "spin".into(), method.into(), cpu.into(), over.into()]
    };
    let rows = vec![
        row(1_000, "closed-form", 0.1, false),
        row(2_000, "simulation", 0.2, false),
        row(5_000, "simulation", 0.5, false),
        row(10_000, "simulation", 1.0, true),
    ];
    let mut run = run_of(vec![table("model", &columns, rows)]);
    run.settings.insert("interrupt_cost".into(), json!("4us"));
    golden("cpu_computed", cpu(&run, WIDTH));
}

#[test]
fn schemes_of_a_kind_have_looks_of_their_own() {
    let names: Vec<String> = (1..=9).map(|ms| format!("clocked:{ms}ms")).collect();
    let looks = looks_of(names.iter().chain(&["spin".to_owned()]).cloned().collect());
    let all: Vec<&Look> = looks.values().collect();
    for (index, look) in all.iter().enumerate() {
        let others = &all[..index];
        assert!(others.iter().all(|other| other.colour != look.colour), "{look:?}");
    }
}

#[test]
fn kinds_of_schemes_have_patterns_of_their_own() {
    let looks = looks_of(KIND_COLOURS.iter().map(|(kind, _)| (*kind).to_owned()).collect());
    let patterns: BTreeSet<usize> =
        looks.values().map(|look| look.pattern % LINE_PATTERNS).collect();
    assert_eq!(patterns.len(), KIND_COLOURS.len());
    assert_eq!(looks["interrupt"], Look { colour: VERMILION, pattern: 0 });
}

#[test]
fn a_scheme_has_one_look_in_all_pictures_of_a_run() {
    // The latency table leaves out schemes that the other tables have.
    let mut run = run_of(vec![rates(&["clocked:2ms", "hybrid"])]);
    let columns = [
        ("rate_hz", Kind::Uint),
        ("scheme", Kind::Text),
        ("bound_from_ns", Kind::Real),
        ("bound_to_ns", Kind::Real),
    ];
    let row = |rate_hz: u64, scheme: &str, from: f64, to: f64| -> Vec<Value> {
        vec![rate_hz.into(), scheme.into(), from.into(), to.into()]
    };
    let region_rows = [1_000, 9_000, 90_000].iter().flat_map(|rate_hz| {
        [
            row(*rate_hz, "hybrid", 1e3, 1e5),
            row(*rate_hz, "clocked:1ms", 1e5, 1e7),
            row(*rate_hz, "clocked:2ms", 1e7, 1e9),
        ]
    });
    run.tables.push(table("regions", &columns, region_rows.collect()));
    let schemes = Schemes::new(&run, ["clocked:2ms", "hybrid"].map(str::to_owned).into_iter());
    let second = Look { colour: shade(GREEN, 1), pattern: 5 };
    assert_eq!(schemes.look("clocked:2ms"), Some(second));
    for sheet in [cpu(&run, WIDTH), latency(&run, WIDTH), regions(&run, WIDTH)] {
        let svg = sheet.unwrap().unwrap().file();
        for colour in [BLACK, second.colour] {
            assert!(svg.contains(&hex(colour)), "{colour:?}");
        }
    }
}

#[test]
fn throughput_has_a_panel_for_each_load() {
    let columns = [
        ("load", Kind::Text),
        ("scheme", Kind::Text),
        ("socket_buffer_bytes", Kind::Uint),
        ("throughput_bytes_per_second", Kind::Real),
        ("throughput_ci95_bytes_per_second", Kind::Real),
    ];
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for load in ["idle", "busy"] {
        for scheme in SCHEMES {
            for kib in [1_u64, 16, 256] {
                let rate = kib as f64 * 1e6;
                rows.push(vec![
                    load.into(),
                    scheme.into(),
                    (kib * 1024).into(),
                    rate.into(),
                    (rate * 3.0).into(),
                ]);
            }
        }
    }
    let run = run_of(vec![table("throughput", &columns, rows)]);
    golden("throughput", throughput(&run, WIDTH));
    golden("throughput_narrow", throughput(&run, NARROW));
}

#[test]
fn a_papers_tables_are_next_to_the_measured_ones() {
    let columns = [
        ("table", Kind::Uint),
        ("load", Kind::Text),
        ("socket_buffer_bytes", Kind::Uint),
        ("scheme", Kind::Text),
        ("published_to_interrupt_ratio", Kind::Real),
        ("measured_to_interrupt_ratio", Kind::Real),
    ];
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for number in 1..=3_u64 {
        for kib in [1_u64, 16, 256] {
            for (scheme, factor) in [("drain", 1.0), ("clocked:1ms", 2.5)] {
                // Not measured for one size.
                let here = (kib != 16).then_some(factor * 0.8);
                rows.push(vec![
                    number.into(),
                    "idle".into(),
                    (kib * 1024).into(),
                    scheme.into(),
                    factor.into(),
                    here.into(),
                ]);
            }
        }
    }
    golden("paper", paper(&run_of(vec![table("paper", &columns, rows)]), WIDTH));
    assert_eq!(paper(&run_of(vec![]), WIDTH).unwrap(), None);
}

#[test]
fn regions_are_areas_with_names() {
    let columns = [
        ("rate_hz", Kind::Uint),
        ("scheme", Kind::Text),
        ("bound_from_ns", Kind::Real),
        ("bound_to_ns", Kind::Real),
        ("statistic", Kind::Text),
        ("method", Kind::Text),
    ];
    let row = |rate_hz: u64, scheme: &str, from: f64, to: Option<f64>| -> Vec<Value> {
        let labels = ["p99", "closed-form"].map(Value::from);
        let numbers = [rate_hz.into(), scheme.into(), from.into(), to.into()];
        numbers.into_iter().chain(labels).collect()
    };
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for step in 0..30_u32 {
        let rate_hz = 1_000 * u64::from(step + 1);
        rows.push(row(rate_hz, "spin", 1e3, Some(5e4)));
        // Another scheme wins at high rates.
        let slow = if step < 20 { "drain" } else { "clocked:1ms" };
        rows.push(row(rate_hz, slow, 5e4, None));
    }
    let mut run = run_of(vec![table("regions", &columns, rows)]);
    run.settings.insert("latency_bound_ns".into(), json!(200_000));
    golden("regions", regions(&run, WIDTH));
}

#[test]
fn one_rate_or_none_is_no_picture() {
    let mut single = rates(&["spin"]);
    let rows: Vec<Vec<Value>> =
        single.rows().iter().filter(|row| row[2] == 1_000.into()).cloned().collect();
    single = Table::new("rates", "For a test.", single.columns.clone());
    rows.into_iter().for_each(|row| single.push(row));
    for run in [run_of(vec![single]), run_of(vec![rates(&[])]), run_of(vec![])] {
        for svg in
            [cpu(&run, WIDTH), latency(&run, WIDTH), throughput(&run, WIDTH), regions(&run, WIDTH)]
        {
            assert_eq!(svg.unwrap(), None);
        }
    }
}
