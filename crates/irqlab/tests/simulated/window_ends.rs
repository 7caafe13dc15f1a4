//! Windows of simulated machines that end when they have measured enough, and user mode that is sampled. Without QEMU
//! the tests say so and pass.

use serde_json::Value as Json;

use crate::support::{Place, can_simulate, check_refused, rows};

/// Runs `handlers` with a short warm-up, with the rest of `line`. Returns the run.
fn handlers(workspace: &Place, line: &str) -> Json {
    let line = format!("handlers --warm-up 5ms -q --json {line}");
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let ended = workspace.run(&arguments);
    ended.assert_code(0);
    ended.json()
}

/// The row of the timer's vector, all CPUs together.
fn timer(run: &Json) -> &Json {
    let is_timer = |row: &&Json| row["name"] == "local_timer" && row["cpu"] == "all";
    rows(run, "handlers").iter().find(is_timer).unwrap()
}

#[test]
fn a_window_ends_when_it_has_enough_spans_at_the_same_instruction_each_time() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for (machine, spans) in
        [("sim:zen3", 500), ("sim:r4400-1994", 500), ("sim:zen3 --vcpus 2", 1_000)]
    {
        let line = format!(
            "--on {machine} -d 2s --stimulus timer --rate high --events none --until {spans}-spans"
        );
        let run = handlers(&workspace, &line);
        let condition = &rows(&run, "conditions")[0];
        assert_eq!(condition["ended_by"], "enough", "{machine}");
        let window_ns = condition["window_ns"].as_u64().unwrap();
        assert!((20_000_000..1_000_000_000).contains(&window_ns), "{machine}: {window_ns}");
        // The guest's clock has jumped: what the guest measured by it is absent.
        for absent in ["stimulus_operation_count", "stimulus_rate_hz", "observer_cpu_ns"] {
            assert!(condition[absent].is_null(), "{machine}: {absent}: {}", condition[absent]);
        }
        let count = timer(&run)["count"].as_u64().unwrap();
        assert!(count >= spans, "{machine}: {count}");
        assert_eq!(run["complete"], true, "{machine}");
        let agreement = rows(&run, "agreement");
        assert!(!agreement.is_empty());
        let agrees =
            |expected: bool| agreement.iter().filter(|row| row["agrees"] == expected).count();
        assert!(agrees(true) > 0 && agrees(false) == 0, "{machine}: {agreement:?}");
        assert_eq!(run["tables"], handlers(&workspace, &line)["tables"], "{machine}");
    }
}

#[test]
fn a_window_without_a_rule_or_without_enough_lasts_its_time() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for until in ["--until end", "--until 100000-spans", ""] {
        let line =
            format!("--on sim:zen3 -d 30ms --stimulus timer --rate low --events none {until}");
        let run = handlers(&workspace, &line);
        let condition = &rows(&run, "conditions")[0];
        assert_eq!(condition["ended_by"], "time", "{until}");
        let window_ns = condition["window_ns"].as_u64().unwrap();
        assert!((30_000_000..31_000_000).contains(&window_ns), "{until}: {window_ns}");
        assert!(condition["stimulus_operation_count"].as_u64().is_some(), "{until}");
    }
}

/// A window that ended inside a handler would count a part of this handler that is no span.
#[test]
fn the_events_of_a_window_that_ended_are_those_of_its_spans() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    // At the end of a vector's interrupt the kernel may switch to another task. The vector's span then goes on after the
    // window. A handler or a softirq has ended by then.
    let line = "--on sim:r4400-1994 -d 2s --stimulus disk --rate high --until 20-spans";
    let run = handlers(&workspace, line);
    assert_eq!(rows(&run, "conditions")[0]["ended_by"], "enough");
    let of_all = |row: &&Json| row["cpu"] == "all" && row["timed_by"] == "simulator";
    let mut compared = 0;
    for row in rows(&run, "handlers").iter().filter(of_all) {
        let is_it = |event: &&Json| {
            event["event"] == "cycles"
                && event["name"] == row["name"]
                && event["kind"] == row["kind"]
        };
        let Some(event) = rows(&run, "events").iter().find(is_it) else { continue };
        // This model's clock has 200 MHz: a cycle takes 5 ns.
        let events_ns = 5 * event["self_total"].as_u64().unwrap();
        let [spans_ns, longest_ns] =
            ["self_total_ns", "self_max_ns"].map(|column| row[column].as_u64().unwrap());
        if row["kind"] == "vector" {
            assert!((spans_ns..=spans_ns + longest_ns).contains(&events_ns), "{row} {event}");
        } else {
            assert_eq!(events_ns, spans_ns, "{row} {event}");
            compared += 1;
        }
    }
    assert!(compared >= 2, "{compared}");
}

#[test]
fn a_window_ends_when_its_intervals_are_narrow() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line = "--on sim:zen3 -d 2s --stimulus timer --rate high --events none --until 5%";
    let run = handlers(&workspace, line);
    assert_eq!(rows(&run, "conditions")[0]["ended_by"], "enough");
    let timer = timer(&run);
    let half_ns = timer["self_mean_ci95_ns"].as_f64().unwrap();
    let mean_ns = timer["self_mean_ns"].as_f64().unwrap();
    assert!(half_ns / mean_ns < 0.1, "{half_ns} of {mean_ns}");
}

/// Kernel mode is simulated in detail either way, so a handler costs the same but for what the caches hold, and user mode
/// takes a similar time.
#[test]
fn sampled_user_mode_leaves_the_cost_of_handlers() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = |mode: &str| {
        let condition = "--load busy --stimulus timer --rate high";
        let line = format!("--on sim:zen3 -d 10ms {condition} --events none --user-mode {mode}");
        handlers(&workspace, &line)
    };
    let (detailed, sampled) = (run("detailed"), run("sampled"));
    for column in ["self_mean_ns", "count"] {
        let value_in = |run: &Json| timer(run)[column].as_f64().unwrap();
        let ratio = value_in(&sampled) / value_in(&detailed);
        assert!((0.9..1.1).contains(&ratio), "{column}: {ratio}");
    }
    let clock = |run: &Json| run["settings"]["clock"].to_string();
    assert!(clock(&sampled).contains("user mode sampled"), "{}", clock(&sampled));
    assert!(!clock(&detailed).contains("sampled"), "{}", clock(&detailed));
}

#[test]
fn rules_for_windows_and_samples_that_cannot_hold_are_refused() {
    for (line, says) in [
        ("handlers --on sim --until 5%", "--until needs a model"),
        ("handlers --on sim:zen3 --until 5% -- true", "--until cannot be combined with a command"),
        ("handlers --on sim:zen3 --until 0-spans", "N-spans with N from 1 to 1000000"),
        ("handlers --on sim:zen3 --until soon", "or end"),
        ("handlers --on sim:r4400-1994 --user-mode sampled", "--user-mode sampled needs a model"),
        ("handlers --on sim:zen3 --misses --user-mode sampled", "cannot be combined"),
        ("noise --on sim --user-mode sampled", "--user-mode sampled needs a model"),
        ("noise --on sim:zen3 --user-mode sampled", "give --loop detour"),
        ("noise --on sim:zen3 --loop detour,fwq --user-mode sampled", "give --loop detour"),
        ("noise --on sim:zen3 --loop ftq --user-mode sampled", "give --loop detour"),
    ] {
        check_refused(&line.split_whitespace().collect::<Vec<_>>(), says);
    }
}
