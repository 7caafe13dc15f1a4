//! `irqlab bench kernel`: both benches in one command. Without QEMU or the rights to trace, the test says so and passes.

use crate::support::{Place, can_measure, can_simulate, names, rows};

/// A model of this processor, whatever it is: the test compares no figures.
fn model_of_this_processor(workspace: &Place) -> String {
    let options = ["bench", "model", "--on", "live", "--only", "getppid", "--windows", "6"];
    let run = workspace.run(&[&options[..], &["-q", "--json"]].concat()).assert_code(0).json();
    let processor = run["settings"]["cpuid"].as_str().expect("a processor");
    let text = workspace.run(&["machines", "zen3", "--toml"]).assert_code(0).out.clone();
    let of_zen3 = text.lines().find(|line| line.starts_with("cpuid = ")).expect("processors");
    let path = workspace.path().join("this.toml");
    let text = text.replace(of_zen3, &format!("cpuid = [\"{processor}\"]"));
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn services_of_one_program_are_compared_on_both_benches() {
    let workspace = Place::new();
    if !can_measure() || !can_simulate(&workspace) {
        return;
    }
    let on = format!("sim:{}", model_of_this_processor(&workspace));
    let options = ["bench", "kernel", "--on", &on, "--only", "services", "--runs", "2"];
    let output = workspace.run(&[&options[..], &["--out", "run", "-q", "--json"]].concat());
    let run = output.assert_code(0).json();
    let parts = rows(&run, "kernel_parts");
    assert!(parts[0]["part"].as_str().unwrap().starts_with("services"), "{parts:?}");
    let costs = rows(&run, "kernel_costs");
    let row = |path: &str| {
        let row = costs.iter().find(|row| row["path"] == path);
        row.unwrap_or_else(|| panic!("no row {path}: {costs:?}"))
    };
    // Ten windows of a hundred calls in each run, and few of other programs.
    let getppid = row("syscall getppid");
    let [host, model] = ["host_count", "model_count"].map(|side| getppid[side].as_u64().unwrap());
    assert!(host >= 2_000 && (1_000..1_050).contains(&model), "{getppid}");
    let [host, low, high, model] = ["host_cost", "host_low_cost", "host_high_cost", "model_cost"]
        .map(|column| getppid[column].as_f64().unwrap());
    assert!(low <= host && host <= high, "{getppid}");
    // Other programs of this machine may have used a service, too.
    let is_judged = |row: &serde_json::Value| match row["ratio"].as_f64() {
        Some(ratio) => {
            (row["model_cost"].as_f64().unwrap() / row["host_cost"].as_f64().unwrap() - ratio).abs()
                < 1e-9
        }
        None => row["not_compared"] == "other programs on this machine used it, too",
    };
    assert!(is_judged(getppid) && model > 0.0, "{getppid}");
    assert!(is_judged(row("fault in user mode")), "{costs:?}");
    let never_compared = costs.iter().filter(|row| row["ratio"].is_null());
    assert!(never_compared.clone().count() > 0);
    assert!(never_compared.clone().all(|row| row["not_compared"].is_string()), "{costs:?}");
    assert_eq!(run["settings"]["commands"].as_array().unwrap().len(), 3);
    let directories = names(workspace.path());
    for part in ["run-services-live-1", "run-services-live-2", "run-services-sim"] {
        assert!(directories.contains(&part.to_owned()), "{directories:?}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let workspace = Place::new();
    workspace
        .run(&["bench", "kernel", "--on", "live"])
        .assert_code(2)
        .assert_says("--on sim:MODEL");
    workspace.run(&["bench", "kernel", "--only", "all"]).assert_code(2).assert_says("services");
    let wrong = workspace.run(&["bench", "kernel", "--on", "sim:r4400-1994"]);
    wrong.assert_code(4).assert_says("machines fit");
}
