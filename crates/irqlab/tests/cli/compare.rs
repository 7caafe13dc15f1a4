//! `irqlab compare`: a gate passes, fails, or is refused because it would check nothing.

use crate::support::{Place, can_simulate, check_refused, rows};
use serde_json::Value as Json;

/// Two computed runs, `base` and `new`. They are exact. In `new`, an event costs 10 % more.
fn two_runs() -> Place {
    let workspace = Place::new();
    for (name, cost) in [("base", "1000ns"), ("new", "1100ns")] {
        let line = "signal model --schemes interrupt,spin --rates 10k,100k --event-cost";
        let mut arguments: Vec<&str> = line.split_whitespace().collect();
        arguments.extend([cost, "--out", name]);
        workspace.run(&arguments).assert_code(0);
    }
    workspace
}

fn difference<'a>(run: &'a Json, row: &str, column: &str) -> &'a Json {
    let is_wanted = |difference: &&Json| difference["row"] == row && difference["column"] == column;
    rows(run, "differences").iter().find(is_wanted).unwrap_or_else(|| panic!("no {row} {column}"))
}

#[test]
fn differences_of_exact_runs_are_exact() {
    let workspace = two_runs();
    let ended = workspace.run(&["compare", "base", "new", "--json"]);
    ended.assert_code(0);
    let run = ended.json();
    assert_eq!((&run["experiment"], &run["bench"]), (&"compare".into(), &"model".into()));
    // 10,000 events of 4 us and 1 us take 5 % of the CPU; 100 ns more each are 2 % of that.
    let cpu = difference(&run, "10000 interrupt", "cpu_ratio");
    assert_eq!((&cpu["verdict"], &cpu["method"]), (&"worse".into(), &"exact".into()));
    assert!((cpu["change_ratio"].as_f64().unwrap() - 0.02).abs() < 1e-9, "{cpu}");
    assert_eq!(cpu["change_low_ratio"], cpu["change_high_ratio"]);
    // A spinning CPU is busy in any case.
    assert_eq!(difference(&run, "10000 spin", "cpu_ratio")["verdict"], "equal");
    let itself = workspace.run(&["compare", "base", "base", "--json"]).json();
    assert!(rows(&itself, "differences").iter().all(|row| row["verdict"] == "equal"));
    let markdown = workspace.run(&["compare", "base", "new", "--format", "markdown"]);
    markdown.assert_code(0);
    assert!(
        markdown.out.contains("| worse | model | 10000 interrupt | cpu_ratio"),
        "{}",
        markdown.out
    );
    assert_eq!(workspace.names(), ["base", "new"], "a comparison is recorded on request alone");
    workspace.run(&["compare", "base", "new", "--out", "compared"]).assert_code(0);
    let shown = workspace.run(&["show", "compared", "--json"]).json();
    assert_eq!(rows(&shown, "differences").len(), rows(&run, "differences").len());
}

#[test]
fn two_boots_are_compared_and_their_runs_say_how_they_were_made() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for (name, seconds) in [("base", "0.01"), ("new", "0.02")] {
        let boot = ["sim", "boot", "--on", "sim", "-q", "--out", name, "--", "sleep", seconds];
        workspace.run(&boot).assert_code(0);
    }
    let run = workspace.run(&["show", "base", "--json"]).json();
    let settings = &run["settings"];
    for (key, value) in [
        ("command", "sleep 0.01"),
        ("command_line", "irqlab sim boot --on sim -- sleep 0.01"),
        ("detail", "count"),
        ("start", "boot"),
    ] {
        assert_eq!(settings[key], value, "{settings}");
    }
    assert_eq!(settings["machine"]["seed"], 1);
    assert!(run["host"]["kernel"].is_string(), "{}", run["host"]);
    let ended = workspace.run(&["compare", "base", "new", "--json"]);
    let compared = ended.assert_code(0).json();
    let instructions =
        rows(&compared, "differences").iter().filter(|row| row["column"] == "self_instructions");
    assert!(instructions.count() > 3, "{compared}");
    let warnings = compared["warnings"].to_string();
    assert!(warnings.contains("setting command differs"), "{warnings}");
}

#[test]
fn a_broken_rule_ends_in_3_and_one_that_holds_in_0() {
    let workspace = two_runs();
    let gate = |rule: &str| workspace.run(&["compare", "base", "new", "--json", "--fail-on", rule]);
    let broken = gate("model.cpu_ratio>+1%");
    broken.assert_code(3);
    assert_eq!(rows(&broken.json(), "rules")[0]["ruling"], "broken");
    let holds = gate("model[rate_hz=10000].cpu_ratio>+3%");
    holds.assert_code(0);
    assert_eq!(rows(&holds.json(), "rules")[0]["ruling"], "holds");
    gate("model[scheme=spin].cpu_ratio>+0%").assert_code(0);
    gate("model[scheme=interrupt,rate_hz=100000].latency_mean_ns>+1").assert_code(3);
    // Compared in reverse, the growth by 2 % is a shrinkage.
    let back = ["compare", "new", "base", "--fail-on", "model.cpu_ratio>+0%"];
    workspace.run(&back).assert_code(0);
}

#[test]
fn the_self_test_proves_that_a_rule_can_be_broken() {
    let workspace = two_runs();
    let arguments = ["compare", "base", "--self-test", "--json", "--fail-on"];
    let ended = workspace.run(&[&arguments[..], &["model.cpu_ratio>+1%"]].concat());
    ended.assert_code(0);
    let run = ended.json();
    let test = &rows(&run, "self_test")[0];
    assert_eq!(test["holds_for_itself"], true);
    assert!((test["breaks_from_ratio"].as_f64().unwrap() - 0.01).abs() < 1e-6, "{test}");
    let never = workspace.run(&[&arguments[..], &["model.cpu_ratio<-100%"]].concat());
    never.assert_code(3);
    assert_eq!(rows(&never.json(), "self_test")[0]["breaks_from_ratio"], Json::Null);
}

#[test]
fn incomparable_runs_and_rules_are_refused() {
    let workspace = two_runs();
    let gate = |rule: &str| workspace.run(&["compare", "base", "new", "--fail-on", rule]);
    gate("model.cpu_cycles>+1%").assert_code(2).assert_says("is about no figure");
    gate("model[scheme=poll].cpu_ratio>+1%")
        .assert_code(2)
        .assert_says("no row of model has these keys");
    // A gate without rows in the second run checks nothing.
    let line = "signal model --schemes spin --rates 10k,100k --event-cost 1us --out fewer";
    workspace.run(&line.split_whitespace().collect::<Vec<_>>()).assert_code(0);
    let gone = ["compare", "base", "fewer", "--fail-on", "model[scheme=interrupt].cpu_ratio>+1%"];
    workspace.run(&gone).assert_code(2).assert_says("the second run has none of its figures");
    workspace.run(&["compare", "base", "nowhere"]).assert_code(1).assert_says("nowhere");
    let line = "signal advise --rate 1k..10k --event-cost 1us --interrupt-cost 4us --out advice";
    workspace.run(&line.split_whitespace().collect::<Vec<_>>()).assert_code(0);
    workspace
        .run(&["compare", "base", "advice"])
        .assert_code(2)
        .assert_says("compare runs of one experiment");
    check_refused(&["compare", "base"], "<NEW>");
    check_refused(&["compare", "base", "new", "--fail-on", "model.cpu_ratio"], "neither > nor <");
    check_refused(&["compare", "base", "--self-test"], "--fail-on");
    check_refused(&["compare", "base", "new", "--margin", "-1%"], "allowed: 0% to 1000%");
}

/// Directories with several runs are compared in pairs, in the order of their start.
#[test]
fn several_runs_on_each_side_are_compared_in_pairs() {
    let workspace = Place::new();
    let costs = [("base", ["1000ns", "1010ns", "1020ns"]), ("new", ["1100ns", "1111ns", "1122ns"])];
    for number in 0..3 {
        for (side, costs) in costs {
            std::fs::create_dir_all(workspace.path().join(side)).expect("a directory");
            let out = format!("{side}/{number}");
            let line = "signal model --schemes interrupt --rates 10k --event-cost";
            let mut arguments: Vec<&str> = line.split_whitespace().collect();
            arguments.extend([costs[number], "--out", &out]);
            workspace.run(&arguments).assert_code(0);
        }
    }
    let run = workspace.run(&["compare", "base", "new", "--json"]).assert_code(0).json();
    assert_eq!(run["settings"]["runs_on_each_side"], 3);
    let cpu = difference(&run, "10000 interrupt", "cpu_ratio");
    assert_eq!((&cpu["verdict"], &cpu["method"]), (&"worse".into(), &"runs".into()));
    workspace
        .run(&["compare", "base", "new/1"])
        .assert_code(2)
        .assert_says("3 runs and the second 1");
    workspace
        .run(&["compare", "base", "--self-test", "--fail-on", "model.cpu_ratio>+1%"])
        .assert_code(2);
}
