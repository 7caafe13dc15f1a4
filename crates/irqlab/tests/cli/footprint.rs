//! `irqlab footprint` as a user runs it. No assertion is on a time.

use crate::support::{Place, alone, loop_stalled_by, rows};
use serde_json::Value as Json;

fn refused(arguments: &[&str], says: &str) {
    let workspace = Place::new();
    let ended = workspace.run(arguments);
    ended.assert_code(2).assert_says(says);
    assert!(workspace.names().is_empty(), "{arguments:?} left {:?}", workspace.names());
}

#[test]
fn invalid_options_are_named() {
    refused(&["footprint", "-c", "9999"], "CPU 9999 is not online here; online: ");
    refused(&["footprint", "--level", "l9"], "allowed: l1d, l1i, l2, l3, dtlb, itlb");
    refused(&["footprint", "--stimulus", "moon"], "allowed: timer, ipi, disk");
    refused(&["footprint", "--method", "best"], "allowed: basic, refined");
    refused(
        &["footprint", "--geometry", "l1d=48KiB:7:64"],
        "768 lines are not whole sets of 7 ways",
    );
    refused(&["footprint", "--geometry", "l1d=48"], "expected LEVEL=SIZE:WAYS:LINE");
    refused(&["footprint", "--window", "2s"], "allowed: 1us to 1s");
    refused(&["footprint", "--repetitions", "15"], "16..=100000");
    refused(&["footprint", "--rounds", "0"], "1..=100");
    refused(&["footprint", "--peer", "127.0.0.1:9"], "add --stimulus net");
    refused(&["footprint", "--on", "sim:zen3", "--rounds", "2"], "--rounds is for --on live");
    refused(&["footprint", "-c", "0-1", "--on", "sim:zen3"], "--cpus takes exactly one CPU");
    refused(&["echo", "--listen", "here"], "invalid socket address");
}

fn uint(row: &Json, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
}

#[test]
fn each_repetition_counts_or_was_removed_for_a_reason() {
    let _alone = alone();
    let workspace = Place::new();
    // The results must have these sizes, not the sizes that the machine detects.
    let sizes = ["--geometry", "l1d=16KiB:4:64", "--geometry", "dtlb=32:32"];
    let arguments = ["footprint", "-q", "--json", "--stimulus", "timer", "--repetitions", "32"];
    let options = ["--level", "l1d,l1i,dtlb", "--method", "basic,refined", "--rounds", "1"];
    let ended = workspace.run(&[&arguments[..], &sizes, &options].concat());
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    let run = ended.assert_code(0).json();
    assert_eq!((&run["experiment"], &run["bench"]), (&"footprint".into(), &"live".into()));
    let table = rows(&run, "footprint");
    for row in table {
        let removed = [
            "not_interrupted_count",
            "unseen_count",
            "contaminated_count",
            "switched_or_faulted_count",
            "stalled_count",
        ];
        let removed: u64 = removed.iter().map(|column| uint(row, column)).sum();
        let all =
            uint(row, "accepted_treatment_count") + uint(row, "accepted_control_count") + removed;
        assert!(all.is_multiple_of(16) && (16..=64).contains(&all), "{all}: {row}");
        match row["level"].as_str() {
            Some("l1d") => {
                assert_eq!((uint(row, "level_lines"), uint(row, "line_bytes")), (256, 64))
            }
            Some("dtlb") => assert_eq!(uint(row, "level_lines"), 32),
            _ => {}
        }
        if let Some(lines) = row["displaced_lines"].as_f64() {
            assert!(lines >= row["detection_limit_lines"].as_f64().unwrap(), "{row}");
            assert!(lines <= uint(row, "level_lines") as f64, "{row}");
        } else {
            let key = ["level", "stimulus", "method"].map(|column| row[column].as_str().unwrap());
            let absent = run["absent"].as_array().unwrap();
            let entry = absent.iter().find(|entry| entry["what"] == key.join(", "));
            assert!(entry.is_some_and(|entry| entry["reason"].is_string()), "{row}");
        }
    }
    let methods: Vec<&Json> = table.iter().map(|row| &row["method"]).collect();
    assert!(methods.contains(&&"basic".into()) && methods.contains(&&"refined".into()));
    assert!(!rows(&run, "calibration").is_empty());
}

#[test]
fn an_interrupt_from_another_cpu_has_a_row_or_a_reason() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments =
        ["footprint", "-q", "--json", "--stimulus", "ipi,timer", "--level", "l1d", "-c", "0"];
    let ended =
        workspace.run(&[&arguments[..], &["--repetitions", "16", "--rounds", "1"]].concat());
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    let run = ended.assert_code(0).json();
    let has_row = rows(&run, "footprint").iter().any(|row| row["stimulus"] == "ipi");
    let absent = run["absent"].as_array().unwrap();
    let has_reason = absent.iter().any(|entry| entry["what"] == "l1d, ipi");
    assert!(has_row != has_reason, "{run}");
}

/// The file of the trace equals the output of `export`.
fn check_trace_file(workspace: &Place) {
    let file = std::fs::read(workspace.path().join("run/trace.pftrace")).unwrap();
    let arguments = ["export", "run", "--format", "perfetto", "-o", "again"];
    workspace.run(&arguments).assert_code(0);
    assert_eq!(std::fs::read(workspace.path().join("again")).unwrap(), file);
}

#[test]
fn a_trace_has_the_interrupt_where_the_loop_was_stalled() {
    let _alone = alone();
    let workspace = Place::new();
    let arguments =
        ["footprint", "-q", "--json", "--stimulus", "timer", "--level", "l1d", "--trace"];
    let options = ["--repetitions", "16", "--rounds", "1", "--out", "run"];
    let ended = workspace.run(&[&arguments[..], &options].concat());
    if ended.code == Some(4) {
        return needs::not_run(needs::Need::Tsc, &ended.err);
    }
    let run = ended.assert_code(0).json();
    let absent = run["absent"].as_array().unwrap();
    let file = workspace.path().join("run/trace.pftrace");
    for (what, is_written, need) in [
        ("trace of l1d, timer", false, needs::Need::Bpf),
        ("trace of l1d, timer, undisturbed", true, needs::Need::Cpus),
    ] {
        if let Some(why) = absent.iter().find(|entry| entry["what"] == what) {
            assert_eq!(file.exists(), is_written);
            return needs::not_run(need, why);
        }
    }
    let inside = loop_stalled_by(&run, "timer");
    check_trace_file(&workspace);
    let is_timer =
        |(name, kind): &(String, String)| kind == "vector" && name.contains("local_timer");
    assert!(inside.iter().any(is_timer), "{inside:?}");
    // The run can still be read.
    workspace.run(&["show", "run"]).assert_code(0);
}

/// Over loopback, usually nothing interrupts the loop's CPU. Then the error says that the peer echoed.
#[test]
fn a_peer_is_asked_and_echoes() {
    use std::io::{BufRead, BufReader};
    let _alone = alone();
    let workspace = Place::new();
    let mut echo = workspace.irqlab(&["echo", "--listen", "127.0.0.1:0"]);
    let mut echo = echo.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(echo.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening at ").unwrap().to_owned();
    let arguments =
        ["footprint", "-q", "--json", "--stimulus", "net", "--level", "l1d", "--rounds", "1"];
    let options = ["--repetitions", "16", "--peer", &address];
    let ended = workspace.run(&[&arguments[..], &options].concat());
    echo.kill().unwrap();
    echo.wait().unwrap();
    match ended.code {
        // No interrupt came, or only traffic of others came, to another CPU.
        Some(4) => {
            let expected = [format!("echoed by {address}"), "interrupts CPU".to_owned()];
            assert!(expected.iter().any(|text| ended.err.contains(text)), "{}", ended.err);
        }
        _ => {
            let run = ended.assert_code(0).json();
            let how = rows(&run, "footprint")[0]["raised_by"].as_str().unwrap().to_owned();
            assert!(how.contains(&format!("echoed by {address}")), "{how}");
        }
    }
    let gone = workspace.run(&[&arguments[..], &options].concat());
    gone.assert_code(4).assert_says("irqlab echo --listen");
}
