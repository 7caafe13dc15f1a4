//! Output and records of `handlers`: formats, commands, and files that cannot be written or read.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{
    CommandOutput, IRQLAB, Place, alone, can_measure, can_measure_as_root, can_simulate, names,
    only_run, rows,
};
use serde_json::Value as Json;

const SHORT: [&str; 6] = ["handlers", "-d", "200ms", "--events", "none", "-q"];

fn short<'a>(extra: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], extra].concat()
}

#[test]
fn json_is_one_document_with_everything_and_show_gives_the_same() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let run = workspace.run(&short(&["--json", "--histograms"])).assert_code(0).json();
    assert_eq!(run["schema"], "irqlab.run/2");
    assert_eq!(run["experiment"], "handlers");
    assert_eq!(run["complete"], true);
    for block in ["host", "settings", "observer", "tables"] {
        assert!(run[block].is_object(), "{block}");
    }
    for table in ["handlers", "napi", "agreement", "conditions", "histograms"] {
        assert!(run["tables"][table].is_array(), "{table}");
    }
    for method in ["clock", "attachment", "cpus", "version", "histogram_error_max_ratio"] {
        assert!(!run["settings"][method].is_null(), "{method}");
    }
    for cost in
        ["probe_overhead_ns", "probe_overhead_in_span_ns", "events_per_second", "events_lost"]
    {
        assert!(run["observer"][cost].is_number(), "{cost}");
    }
    let timer = rows(&run, "handlers").iter().find(|row| row["name"] == "local_timer");
    let timer = timer.expect("a CPU that waits takes timer interrupts");
    for column in ["rate_hz", "self_mean_ns", "self_p50_ns", "self_max_at_ns", "inclusive_total_ns"]
    {
        assert!(timer[column].is_number(), "{column}: {timer}");
    }
    // Fewer than 1,000 spans have no p99.9.
    let count = timer["count"].as_u64().unwrap();
    assert_eq!(timer["self_p999_ns"].is_number(), count >= 1_000, "{timer}");
    let dir = only_run(&workspace).display().to_string();
    let shown = workspace.run(&["show", &dir, "--json"]).assert_code(0).json();
    assert_eq!(shown, run);
    let shown = workspace.run(&["show", &dir, "conditions", "--format", "json"]);
    let shown = shown.assert_code(0).json();
    assert_eq!(shown["tables"].as_object().map(serde_json::Map::len), Some(1));
    assert_eq!(shown["tables"]["conditions"], run["tables"]["conditions"]);
}

#[test]
fn tables_csv_and_markdown() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let table = workspace.run(&short(&["--out", "a"]));
    table.assert_code(0);
    assert!(table.out.starts_with("handlers on live, "), "{}", table.out);
    assert!(table.out.contains("\nhost: ") && table.out.contains("\nmethod: live bench; "));
    assert!(table.out.contains("; see irqlab show a handlers"), "{}", table.out);
    assert_eq!(table.err, "", "quiet");
    assert!(table.out.lines().all(|line| line.starts_with("    ") || line.chars().count() <= 120));

    let main = workspace.run(&["show", "a", "--format", "csv"]);
    main.assert_code(0).assert_says("csv: table handlers; left out: ");
    main.assert_says(" rows per CPU (--all prints them); tables ");
    let all_rows =
        workspace.run(&["show", "a", "--format", "csv", "--all"]).assert_code(0).out.clone();
    let named = workspace.run(&["show", "a", "--format", "csv", "--table", "handlers"]);
    let csv = main.out.clone();
    assert_eq!(named.assert_code(0).out, csv);
    assert!(csv.lines().count() < all_rows.lines().count(), "rows of single CPUs are left out");
    let header = csv.lines().next().unwrap_or_default();
    let first = "condition,cpu,kind,number,name,timed_by,count,undelivered_max_count,\
                 undelivered_max_ratio,rate_hz,self_mean_ns";
    assert!(header.starts_with(first), "{header}");
    let columns = header.split(',').count();
    assert!(csv.lines().skip(1).all(|line| line.split(',').count() >= columns), "{csv}");

    let markdown = workspace.run(&["show", "a", "--format", "markdown"]);
    assert!(markdown.assert_code(0).out.contains("\n| kind | name | count |"));
    let agreement = workspace.run(&["show", "a", "agreement"]);
    assert!(agreement.assert_code(0).out.contains("agrees"), "{}", agreement.out);
    let columns = workspace.run(&["show", "a", "--columns"]);
    assert!(columns.assert_code(0).out.contains("  self_mean_ns (real): "));
    let columns = workspace.run(&["show", "a", "--columns", "--json"]).assert_code(0).json();
    assert_eq!(columns["tables"][0]["name"], "handlers");
    assert!(columns["tables"][0]["columns"][0]["doc"].is_string());
}

#[test]
fn a_command_has_its_own_output_and_its_status_is_the_exit_code() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let run = workspace.run(&["handlers", "-q", "--json", "--", "echo", "hi there"]);
    let document = run.assert_code(0).assert_says("hi there").json();
    assert_eq!(document["settings"]["command"], serde_json::json!(["echo", "hi there"]));
    assert_eq!(document["settings"]["duration_ns"], Json::Null);
    assert_eq!(
        document["warnings"].as_array().map(|warnings| has(warnings, "failed")),
        Some(false)
    );

    for (script, says, code) in [
        ("exit 3", "command: the command failed: exit status: 3", 3),
        ("kill -9 $$", "command: the command failed: signal: 9 (SIGKILL)", 137),
    ] {
        let run = workspace.run(&["handlers", "-q", "--json", "--", "sh", "-c", script]);
        let document = run.assert_code(code).json();
        let warnings = document["warnings"].as_array().cloned().unwrap_or_default();
        assert!(has(&warnings, says), "{warnings:?}");
        assert_eq!(document["complete"], true);
    }
    let ended = workspace.run(&["handlers", "-d", "60s", "--", "sleep", "0.1"]);
    // How long a sleep takes depends on the host.
    let ended = ended.assert_code(0).assert_says("the command ended the window after ");
    ended.assert_says(" s (exit status: 0)");
    let before = names(&workspace.path().join("irqlab-runs"));
    let run = workspace.run(&["handlers", "-q", "--", "/no/such/program"]);
    run.assert_code(1).assert_says("command: cannot run \"/no/such/program\": No such file");
    assert_eq!(run.out, "");
    assert_eq!(names(&workspace.path().join("irqlab-runs")), before);
}

fn has(warnings: &[Json], text: &str) -> bool {
    warnings.iter().filter_map(Json::as_str).any(|warning| warning.contains(text))
}

#[test]
fn a_full_stdout_is_an_error_and_the_run_is_recorded() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child =
        workspace.irqlab(&short(&[])).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(err.contains("cannot write to standard output: No space left on device"), "{err}");
    let dir = only_run(&workspace).display().to_string();
    workspace.run(&["show", &dir]).assert_code(0);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let mut child = workspace
        .irqlab(&short(&["--json"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    only_run(&workspace);
}

/// Runs the command in the directory `there`, in its own mount namespace. The shell command `mount` mounts a file
/// system on `there` first.
fn with_mount(workspace: &Place, mount: &str) -> CommandOutput {
    let there = workspace.path().join("there");
    std::fs::create_dir(&there).unwrap();
    // The directory vanishes with the namespace. So the script lists it on stderr.
    let script = format!(
        "{mount} && cd there && {{ \"$@\"; code=$?; ls -A . irqlab-runs >&2; exit $code; }}"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", IRQLAB]).args(SHORT);
    CommandOutput::of(command.current_dir(workspace.path()))
}

#[test]
fn a_read_only_directory_is_refused_before_measuring() {
    if !can_measure_as_root() {
        return;
    }
    let workspace = Place::new();
    let mount = "mount --bind there there && mount -o remount,bind,ro there";
    let ended = with_mount(&workspace, mount);
    ended.assert_code(2).assert_says("cannot write runs into irqlab-runs: Read-only file system");
    assert_eq!(ended.out, "");
}

#[test]
fn a_full_disk_leaves_the_results_on_the_terminal_and_no_half_run() {
    if !can_measure_as_root() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let ended = with_mount(&workspace, "mount -t tmpfs -o size=16k none there");
    ended.assert_code(1).assert_says("irqlab: the results above are not recorded");
    ended.assert_says("No space left on device (os error 28)\n");
    assert_eq!(ended.err.matches("No space left").count(), 1, "{}", ended.err);
    assert!(ended.out.contains("\nmethod: live bench; "), "printed before: {}", ended.out);
    let listed = ended.err.lines().filter(|line| !line.starts_with("irqlab: "));
    assert!(!listed.into_iter().any(|line| line.contains("partial")), "{}", ended.err);
}

/// Copies a run that is part of the repository, to damage it. Measuring a run would need rights.
fn golden(workspace: &Place) -> std::path::PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/tests/golden");
    let run = names(&golden).into_iter().next().expect("a golden run");
    let copy = workspace.path().join("copy");
    let status = Command::new("cp").arg("-r").arg(golden.join(run)).arg(&copy).status().unwrap();
    assert!(status.success());
    copy
}

#[test]
fn a_damaged_run_names_file_and_field() {
    let workspace = Place::new();
    let copy = golden(&workspace);
    workspace.run(&["show", "copy"]).assert_code(0);
    workspace
        .run(&["show", "copy", "nix"])
        .assert_code(2)
        .assert_says("no table \"nix\" in this run; it has: ");
    let ended = workspace.run(&["show", "nowhere"]);
    ended.assert_code(1).assert_says("cannot read nowhere/manifest.json: No such file");
    assert_eq!(ended.err.matches("No such file").count(), 1, "{}", ended.err);

    let manifest = std::fs::read_to_string(copy.join("manifest.json")).unwrap();
    let table = names(&copy.join("tables")).into_iter().next().unwrap();
    let bytes = std::fs::read(copy.join("tables").join(&table)).unwrap();
    std::fs::write(copy.join("tables").join(&table), &bytes[..bytes.len() - 1]).unwrap();
    let ended = workspace.run(&["show", "copy"]);
    ended.assert_code(1).assert_says(&format!("copy/tables/{table}: fewer bytes than"));

    for (from, to, says) in [
        ("\"complete\"", "\"complet\"", "copy/manifest.json: missing field `complete`"),
        ("irqlab.run/2", "irqlab.run/99", "copy/manifest.json: schema \"irqlab.run/99\""),
        ("{", "", "copy/manifest.json: "),
    ] {
        std::fs::write(copy.join("manifest.json"), manifest.replacen(from, to, 1)).unwrap();
        workspace.run(&["show", "copy"]).assert_code(1).assert_says(says);
    }
}

#[test]
fn a_full_stderr_changes_no_exit_code() {
    let workspace = Place::new();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut missing = workspace.irqlab(&["show", "/no/such/run"]);
    assert_eq!(missing.stderr(full()).status().unwrap().code(), Some(1));
    let mut wrong = workspace.irqlab(&["handlers", "--no-such-option"]);
    assert_eq!(wrong.stderr(full()).status().unwrap().code(), Some(2));
}

/// irqlab ends a guest if the guest's console cannot be written to stdout, as the kernel ends a process that
/// writes to a closed pipe.
#[test]
fn a_guest_whose_console_goes_nowhere_is_ended() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments =
        ["sim", "boot", "-q", "--limit", "300s", "--", "while true; do echo again; done"];
    let mut boot = workspace.irqlab(&arguments);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ended =
        CommandOutput::of_output(&boot.stdout(full).stderr(Stdio::piped()).output().unwrap());
    ended.assert_code(1).assert_says("cannot write to standard output: No space left on device");
    let mut boot = workspace.irqlab(&arguments);
    let mut child = boot.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0), "a closed pipe is no error");
}
