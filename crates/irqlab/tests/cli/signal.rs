//! `irqlab signal model`, `fit` and `advise`: computed results, without a bench.

use crate::support::{Place, absence, check_refused, rows};
use serde_json::Value as Json;

fn row<'a>(run: &'a Json, table: &str, scheme: &str, rate_hz: u64) -> &'a Json {
    // The rate of a trace need not be whole.
    let has_rate = |row: &Json| row["rate_hz"].as_f64() == Some(rate_hz as f64);
    let is_wanted = |row: &&Json| row["scheme"] == scheme && has_rate(row);
    rows(run, table).iter().find(is_wanted).unwrap_or_else(|| panic!("no row {scheme} {rate_hz}"))
}

fn number(row: &Json, column: &str) -> f64 {
    row[column].as_f64().unwrap_or_else(|| panic!("{column} is absent in {row}"))
}

#[test]
fn model_has_the_papers_overheads_and_says_how_each_row_was_computed() {
    let workspace = Place::new();
    let arguments =
        ["signal", "model", "--json", "--rates", "500,10k,400k", "--latency-bound", "100us"];
    let ended = workspace.run(&arguments);
    ended.assert_code(0);
    let run = ended.json();
    assert_eq!((&run["experiment"], &run["bench"]), (&"signal-model".into(), &"model".into()));
    // lambda (C + alpha) = 10,000 * 5 us; beta C + lambda alpha = 1,000 * 4 us + 10,000 * 1 us.
    let interrupt = row(&run, "model", "interrupt", 10_000);
    assert!((number(interrupt, "cpu_ratio") - 0.05).abs() < 1e-9);
    assert_eq!(interrupt["method"], "closed-form");
    assert_eq!(interrupt["quantiles_method"], "simulation");
    let warnings = run["warnings"].to_string();
    let assumed = "assumed, not measured: --interrupt-cost 4us, --event-cost 1us";
    assert!(warnings.contains(assumed), "{warnings}");
    let costs = ["--interrupt-cost", "4us", "--event-cost", "1us"];
    let with_costs = workspace.run(&[&arguments[..], &costs].concat()).json();
    assert!(!with_costs["warnings"].to_string().contains("assumed"), "{with_costs}");
    assert_eq!(with_costs["tables"], run["tables"]);
    let clocked = row(&run, "model", "clocked:1ms", 10_000);
    assert!((number(clocked, "cpu_ratio") - 0.014).abs() < 1e-9);
    assert!(number(clocked, "latency_p99_ns") > 900_000.0);
    assert!(number(interrupt, "latency_p99_ns") < 100_000.0);
    // Both schemes cost the same at the rate of the clock.
    let crossing = rows(&run, "crossovers")
        .iter()
        .find(|row| row["scheme_below"] == "interrupt" && row["scheme_above"] == "clocked:1ms");
    assert!((number(crossing.expect("they cross"), "rate_hz") - 1_000.0).abs() < 5.0);
    let bounds: Vec<&Json> = rows(&run, "bounds").iter().map(|row| &row["scheme"]).collect();
    assert!(
        bounds.contains(&&"spin".into()) && !bounds.contains(&&"clocked:1ms".into()),
        "{bounds:?}"
    );
    // At twice the capacity, half of the events are lost.
    let over = row(&run, "model", "interrupt", 400_000);
    assert_eq!((&over["method"], &over["is_over_capacity"]), (&"simulation".into(), &true.into()));
    assert!((number(over, "drops_ratio") - 0.5).abs() < 0.02);
    assert!((number(over, "capacity_hz") - 200_000.0).abs() < 1e-3);
    let warnings = run["warnings"].to_string();
    assert!(warnings.contains("interrupt keeps up with less than 200000 events/s"), "{warnings}");
    // Equal seeds give equal digits.
    assert_eq!(rows(&workspace.run(&arguments).json(), "model"), rows(&run, "model"));
}

/// The pictures of a run, by file name.
fn pictures(workspace: &Place, run: &str) -> std::collections::BTreeMap<String, String> {
    let files = std::fs::read_dir(workspace.path().join(run)).expect("a run").flatten();
    let svg = |file: std::fs::DirEntry| {
        let name = file.file_name().into_string().ok().filter(|name| name.ends_with(".svg"))?;
        Some((name, std::fs::read_to_string(file.path()).expect("text")))
    };
    files.filter_map(svg).collect()
}

#[test]
fn pictures_show_each_scheme_and_are_the_same_for_the_same_run() {
    let workspace = Place::new();
    let schemes = "interrupt,drain,spin,clocked:1ms";
    let model =
        ["signal", "model", "-q", "--schemes", schemes, "--rates", "1k..100k", "--pictures"];
    for out in ["one", "two"] {
        workspace.run(&[&model[..], &["--out", out]].concat()).assert_code(0);
    }
    let drawn = pictures(&workspace, "one");
    let names: Vec<&str> = drawn.keys().map(String::as_str).collect();
    assert_eq!(names, ["cpu.svg", "latency.svg", "regions.svg"]);
    for (name, svg) in &drawn {
        for scheme in schemes.split(',') {
            // Interrupts have no region, because draining costs less at any rate.
            let is_there = svg.lines().any(|line| line == scheme);
            assert_eq!(
                is_there,
                name != "regions.svg" || scheme != "interrupt",
                "{name}: {scheme}"
            );
        }
    }
    assert!(drawn == pictures(&workspace, "two"), "the same, to the byte");
    let advise = ["signal", "advise", "-q", "--rate", "1k..50k", "--latency-bound", "100us"];
    workspace.run(&[&advise[..], &["--pictures", "--out", "advice"]].concat()).assert_code(0);
    let drawn = pictures(&workspace, "advice");
    assert!(drawn["regions.svg"].lines().any(|line| line == "asked for: 100 µs"), "{drawn:?}");
    workspace.run(&[&advise[..], &["--out", "plain"]].concat()).assert_code(0);
    assert!(pictures(&workspace, "plain").is_empty(), "not asked for");
    // A table has the drawn regions. Each latency bound belongs to one scheme.
    let run = workspace.run(&["show", "one", "--json"]).json();
    let has_rate = |row: &&Json| row["rate_hz"] == 1_000;
    let regions: Vec<&Json> = rows(&run, "regions").iter().filter(has_rate).collect();
    for pair in regions.windows(2) {
        assert_eq!(pair[0]["bound_to_ns"], pair[1]["bound_from_ns"], "{regions:?}");
        assert!(number(pair[0], "cpu_ratio") > number(pair[1], "cpu_ratio"), "{regions:?}");
    }
    let last = regions.last().expect("a region");
    assert_eq!((&last["scheme"], &last["bound_to_ns"]), (&"drain".into(), &Json::Null), "{last}");
}

#[test]
fn a_run_with_nothing_to_draw_says_so() {
    let workspace = Place::new();
    let one_rate = ["signal", "model", "-q", "--rates", "1k", "--pictures", "--out", "one"];
    workspace.run(&one_rate).assert_code(0).assert_says("this run has nothing to draw");
}

#[test]
fn interrupts_livelock_an_application_and_a_clock_with_a_quota_does_not() {
    let workspace = Place::new();
    let arguments = [
        "signal",
        "model",
        "--json",
        "--schemes",
        "interrupt,clocked:1ms",
        "--rates",
        "10k,30k",
        "--interrupt-cost",
        "30us",
        "--event-cost",
        "20us",
        "--application",
        "20us,128",
        "--quota",
        "16",
    ];
    let run = workspace.run(&arguments).json();
    let throughput = |scheme, rate_hz| number(row(&run, "model", scheme, rate_hz), "throughput_hz");
    assert!(throughput("interrupt", 10_000) > 9_500.0);
    assert!(throughput("interrupt", 30_000) < 100.0);
    assert!(throughput("clocked:1ms", 30_000) > 15_000.0);
}

#[test]
fn a_trace_has_its_own_rate() {
    let workspace = Place::new();
    let times: String =
        (0..5_000_u64).map(|event| format!("{}\n", 1_000 + event * 20_000)).collect();
    std::fs::write(workspace.path().join("trace"), format!("# ns\n{times}")).unwrap();
    let ended = workspace.run(&["signal", "model", "--json", "--arrivals", "trace:trace"]);
    let run = ended.assert_code(0).json();
    assert!(rows(&run, "model").iter().all(|row| number(row, "rate_hz") == 50_000.0));
    assert_eq!(absence(&run, "crossovers"), Some("there is only one rate"));
    assert_eq!(number(row(&run, "model", "interrupt", 50_000), "latency_mean_ns"), 5_000.0);
    std::fs::write(workspace.path().join("trace"), "5\n3\n").unwrap();
    let ended = workspace.run(&["signal", "model", "--arrivals", "trace:trace"]);
    ended.assert_code(2).assert_says("event 1 is earlier than its predecessor");
    std::fs::write(workspace.path().join("trace"), "5\nx\n").unwrap();
    let ended = workspace.run(&["signal", "model", "--arrivals", "trace:trace"]);
    ended.assert_code(2).assert_says("line 2 is not a time in whole ns");
}

#[test]
fn invalid_parameters_are_refused() {
    let refused = |arguments: &[&str], says: &str| {
        check_refused(&[&["signal", "model"], arguments].concat(), says);
    };
    refused(&["--schemes", "iopoll"], "there is no such scheme");
    refused(&["--schemes", "poll"], "cannot simulate poll");
    refused(&["--schemes", "clocked"], "its parameters are missing");
    refused(&["--rates", "0"], "is not a rate from 1 to 1G");
    refused(&["--rates", "5k..1k"], "the lower rate comes first");
    refused(&["--event-cost", "0ns"], "the cost of an event is 0 (give at least 1ns)");
    refused(&["--event-cost", "2s"], "give at most 1s");
    refused(&["--interrupt-cost", "4"], "is no time");
    refused(&["--ring", "0"], "not in 1..=16777216");
    refused(&["--arrivals", "sometimes"], "allowed: poisson, periodic");
    refused(&["--user-slice", "1ns"], "the time slice is 1 (give 1us to 10s)");
    refused(&["--application", "20us"], "the length of the queue");
    refused(&["--statistic", "max"], "allowed: mean, p50, p99, p99.9");
}

/// Writes a sweep as a user would measure it. The names of its columns state the units.
fn sweep(workspace: &Place) {
    let arguments = [
        "signal",
        "model",
        "--json",
        "--simulate",
        "--seed",
        "9",
        "--wake-latency",
        "5us",
        "--fixed-latency",
        "2us",
        "--interrupt-cost",
        "3500ns",
        "--event-cost",
        "900ns",
        "--rates",
        "5k,20k,40k,80k",
        "--events",
        "20000",
        "--schemes",
        "interrupt,drain,spin,clocked:1ms,deferred:50us,coalesced:32,50us,hybrid:8,20us",
    ];
    let run = workspace.run(&arguments).json();
    let mut csv = "mode,load_hz,cpu_percent,latency_mean_us,throughput_hz,note\n".to_owned();
    for row in rows(&run, "model") {
        let scheme = row["scheme"].as_str().unwrap();
        let (cpu, latency) =
            (number(row, "cpu_ratio") * 100.0, number(row, "latency_mean_ns") / 1e3);
        let rate = number(row, "rate_hz");
        csv += &format!("\"{scheme}\",{rate},{cpu},{latency},{rate},x\n");
    }
    std::fs::write(workspace.path().join("measured.csv"), csv).unwrap();
}

#[test]
fn fit_gives_the_costs_back_and_predicts_what_it_has_not_seen() {
    let workspace = Place::new();
    sweep(&workspace);
    let ended = workspace.run(&[
        "signal",
        "fit",
        "--json",
        "--data",
        "measured.csv",
        "--hold-out",
        "0.3",
        "--seed",
        "7",
        "--out",
        "f",
    ]);
    let run = ended.assert_code(0).json();
    for (cost, truth) in
        [("interrupt", 3_500.0), ("event", 900.0), ("wake", 5_000.0), ("fixed", 2_000.0)]
    {
        let row = rows(&run, "costs").iter().find(|row| row["cost"] == cost).expect(cost);
        assert!((number(row, "value_ns") / truth - 1.0).abs() < 0.05, "{row}");
        assert!(number(row, "ci95_low_ns") <= number(row, "ci95_high_ns"), "{row}");
    }
    let held = |figure: &str| {
        let is_wanted = |row: &&Json| row["rows"] == "held-out" && row["figure"] == figure;
        rows(&run, "errors").iter().find(is_wanted).expect("held-out rows")
    };
    assert!(number(held("cpu per event"), "error_max_ratio") < 0.15);
    assert!(number(held("mean latency"), "error_max_ratio") < 0.25);
    assert!(number(held("cpu per event"), "row_count") >= 8.0);
    assert_eq!(rows(&run, "residuals").len(), 28);
    let simulated = |row: &&Json| row["latency_method"] == "simulation";
    assert!(
        rows(&run, "residuals")
            .iter()
            .filter(simulated)
            .all(|row| row["scheme"] == "hybrid:8,20us")
    );
    assert!(run["warnings"].to_string().contains("ignored columns: note"));
    // `advise` continues with the fitted costs.
    let arguments =
        ["signal", "advise", "--json", "--fit", "f", "--rate", "50k", "--latency-bound", "1ms"];
    let advised = workspace.run(&arguments).assert_code(0).json();
    assert_eq!(advised["settings"]["poll_cost_ns"], 100);
    let c = advised["settings"]["interrupt_cost"].as_str().unwrap().to_owned();
    assert!(c.starts_with("3") && c.ends_with("ns"), "{c}");
}

#[test]
fn advise_names_the_cheapest_scheme_that_keeps_the_bound_and_its_lines() {
    let workspace = Place::new();
    let advise = |arguments: &[&str]| {
        let ended = workspace
            .run(&[&["signal", "advise", "--json", "--event-cost", "500ns"], arguments].concat());
        ended.assert_code(0).json()
    };
    let run = advise(&["--rate", "1k..200k", "--latency-bound", "200us"]);
    let first = &rows(&run, "advice")[0];
    assert_eq!((&first["rank"], &first["keeps_all"]), (&1.into(), &true.into()));
    assert!(number(first, "latency_max_ns") <= 200_000.0);
    for row in rows(&run, "advice").iter().filter(|row| row["keeps_all"] == true) {
        assert!(number(row, "cpu_max_ratio") >= number(first, "cpu_max_ratio"), "{row}");
    }
    assert!(!rows(&run, "crossovers").is_empty());
    // No scheme keeps these limits. `advise` names the nearest scheme, and warns that it does not keep them.
    let run = advise(&["--rate", "100k", "--latency-bound", "1us", "--cpu-budget", "1%"]);
    assert_eq!(rows(&run, "advice")[0]["keeps_all"], false);
    assert!(run["warnings"].to_string().contains("no scheme keeps all"));
    // `advise` prints lines for an interface that every machine has, but changes nothing.
    let path = "/sys/class/net/lo/gro_flush_timeout";
    let before = std::fs::read_to_string(path).unwrap();
    let run = advise(&["--rate", "10k", "--schemes", "drain", "--nic", "lo", "--out", "a"]);
    let line = &rows(&run, "lines")[0];
    assert_eq!(line["set_line"], format!("echo 0 > {path}"));
    assert_eq!(line["undo_line"], format!("echo {} > {path}", before.trim()));
    assert_eq!(std::fs::read_to_string(path).unwrap(), before);
    let script = std::fs::read_to_string(workspace.path().join("a/undo.sh")).unwrap();
    assert!(script.contains(line["undo_line"].as_str().unwrap()), "{script}");
    // The loopback interface cannot defer interrupts: it has no NAPI instance, or the kernel does not say.
    let run = advise(&["--rate", "10k", "--schemes", "deferred:50us", "--nic", "lo"]);
    assert!(rows(&run, "lines").is_empty() || run["warnings"].to_string().contains("NAPI"));
}

#[test]
fn invalid_data_and_requests_are_refused() {
    let workspace = Place::new();
    let fit = |text: &str| {
        std::fs::write(workspace.path().join("m.csv"), text).unwrap();
        workspace.run(&["signal", "fit", "--data", "m.csv"])
    };
    let head = "scheme,rate_hz,cpu_ratio,latency_mean_ns\n";
    fit("a,b\n1,2\n").assert_code(2).assert_says("columns scheme and rate_hz");
    fit(&format!("{head}iopoll,1,1,1\n")).assert_code(2).assert_says("line 2: cannot read scheme");
    fit(&format!("{head}interrupt,1000,0.1,\n"))
        .assert_code(2)
        .assert_says("more figures than costs");
    fit(&format!("{head}interrupt,1000,0,1\ndrain,1,1,1\n"))
        .assert_code(2)
        .assert_says("data row 1");
    let rows: String = (1..20)
        .map(|load| format!("interrupt,{},{},\n", load * 1_000, f64::from(load) / 200.0))
        .collect();
    fit(&format!("{head}{rows}"))
        .assert_code(2)
        .assert_says("cannot tell interrupt_ns, event_ns apart");
    check_refused(
        &["signal", "fit", "--data", "nowhere.csv", "--hold-out", "1"],
        "from 0 to below 0.9",
    );
    workspace
        .run(&["signal", "fit", "--data", "nowhere.csv"])
        .assert_code(1)
        .assert_says("cannot read nowhere.csv");
    let refused = |arguments: &[&str], says: &str| {
        check_refused(&[&["signal", "advise"], arguments].concat(), says);
    };
    refused(&[], "--rate");
    refused(
        &["--rate", "1k", "--nic", "nowhere0"],
        "there is no such network interface (there are: ",
    );
    refused(&["--rate", "1k", "--cpu-budget", "20"], "as in 20%");
    refused(&["--rate", "1k", "--fit", "x", "--event-cost", "1us"], "cannot be used with");
    refused(&["--rate", "1k", "--arrivals", "trace:x"], "a trace has one rate");
}
