//! `irqlab fleet`: hosts that are scripts, behind a program `ssh` of the test. What hosts send is refused or kept as the
//! manual says; the report finds the outliers, groups and clocks that the scripts made.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fleet::conversation::{Ended, HostSide};
use record::{Columns, Run, column};
use serde_json::{Value as Json, json};

use crate::support::{
    CommandOutput, IRQLAB, Place, can_mount_in_namespaces, check_refused, lives, names, rows,
    signal, wait_until,
};

/// A program that executes the script of a host instead of a connection. It demands the option that keeps ssh from forwarding ports.
const SSH: &str = "#!/bin/sh\ncase \"$*\" in *'-O exit'*) exit 0 ;; *ClearAllForwardings=yes*) ;; *) exit 98 ;; esac\nwhile [ \"$1\" != -- ]; do shift; done\n\
    exec sh \"$FLEET/$2.sh\" \"$3\"\n";
/// The command that the hosts measure.
const MEASURED: [&str; 4] = ["--", "noise", "-d", "1s"];

/// A directory with hosts that are scripts.
struct Hosts {
    place: Place,
    names: Vec<String>,
}

impl Hosts {
    fn new() -> Hosts {
        let place = Place::new();
        for directory in ["bin", "scripts"] {
            fs::create_dir(place.path().join(directory)).expect("a directory");
        }
        let ssh = place.path().join("bin/ssh");
        fs::write(&ssh, SSH).expect("a file");
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("a mode");
        Hosts { place, names: Vec::new() }
    }

    fn scripts(&self) -> PathBuf {
        self.place.path().join("scripts")
    }

    /// Adds a host that executes this script. Its first argument is the command for the host.
    fn add(&mut self, name: &str, script: &str) {
        fs::write(self.scripts().join(format!("{name}.sh")), script).expect("a file");
        self.names.push(name.to_owned());
    }

    /// Adds a host that answers as irqlab does, with a clock that is ahead, and then sends these bytes.
    fn add_answering(&mut self, name: &str, ahead_ns: i64, answer: &[u8]) {
        fs::write(self.scripts().join(format!("{name}.answer")), answer).expect("a file");
        let version = version();
        self.add(
            name,
            &format!(
                "echo 'irqlab-fleet/1 {{\"version\": \"{version}\", \"address\": \"192.0.2.7\"}}'\n\
                 while read -r line; do case $line in\n\
                 clock) echo \"clock $(($(date +%s%N) + {ahead_ns}))\" ;;\n\
                 *) cat \"$FLEET/{name}.answer\"; exit ;;\nesac; done\n"
            ),
        );
    }

    /// Adds a host that is done, with this run.
    fn add_run(&mut self, name: &str, ahead_ns: i64, run: &Run) {
        let answer = answer(run);
        self.add_answering(name, ahead_ns, &answer);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.irqlab(arguments);
        let path = format!("{}:/usr/bin:/bin", self.place.path().join("bin").display());
        command.env("PATH", path).env("FLEET", self.scripts());
        command
    }

    /// Collects from all hosts into `out`.
    fn collect(&self, options: &[&str]) -> CommandOutput {
        let list = self.names.join("\n");
        fs::write(self.place.path().join("hosts.txt"), list).expect("a file");
        let start = ["fleet", "collect", "hosts.txt", "-o", "out"];
        let arguments: Vec<&str> = start.iter().chain(options).chain(&MEASURED).copied().collect();
        CommandOutput::of(&mut self.command(&arguments))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join("out").join(name)
    }

    /// The record of a host in the list of all hosts.
    fn record(&self, host: &str) -> Json {
        let text = fs::read_to_string(self.path("hosts.json")).expect("a list");
        let list: Json = serde_json::from_str(&text).expect("JSON");
        let mut records = list.as_array().expect("a list").iter();
        records.find(|record| record["host"] == host).expect("a record").clone()
    }
}

fn version() -> String {
    let ended = CommandOutput::of(Command::new(IRQLAB).arg("--version"));
    ended.out.trim().strip_prefix("irqlab ").expect("a version").to_owned()
}

/// A run of `noise` on a machine with this kernel parameter.
fn noise_run(lost_ratio: f64, nohz_full: &str, more: &[(&str, &str)]) -> Run {
    let columns = Columns::all([
        column("cpu", "CPU.").key().uint(|_: &f64| 0_u32),
        column("lost_ratio", "Lost share.").cost().real(|lost: &f64| *lost),
        column("detour_max_ns", "Longest.").cost().uint(|lost: &f64| (*lost * 1e9) as u64),
    ]);
    let mut host = serde_json::Map::new();
    host.insert("kernel".to_owned(), "6.12.1".into());
    host.insert("nohz_full".to_owned(), nohz_full.into());
    for (name, value) in more {
        host.insert((*name).to_owned(), (*value).into());
    }
    Run {
        schema: record::SCHEMA.to_owned(),
        experiment: "noise".to_owned(),
        bench: "live".to_owned(),
        started_utc: "2026-11-30T02:00:00Z".to_owned(),
        complete: true,
        host,
        settings: serde_json::Map::new(),
        observer: serde_json::Map::new(),
        warnings: Vec::new(),
        absent: Vec::new(),
        tables: vec![columns.table("noise", "Noise.", [lost_ratio])],
    }
}

/// The bytes that a host sends after the request: its end, the run, and the checksum.
fn answer(run: &Run) -> Vec<u8> {
    let place = Place::new();
    let path = place.path().join("run");
    record::write_run(run, &[], &path).expect("a run");
    let mut side = HostSide { reader: std::io::empty(), writer: Vec::new() };
    let ended =
        Ended { exit_code: Some(0), reason: None, log_end: String::new(), archive_bytes: None };
    side.finish(ended, Some(&path)).expect("an archive");
    side.writer
}

#[test]
fn outliers_groups_extremes_and_hosts_that_are_not_done_are_named() {
    let mut hosts = Hosts::new();
    for number in 0..24_u32 {
        let is_isolated = number % 2 == 0;
        let (base, nohz_full) = if is_isolated { (0.0002, "1-7") } else { (0.0031, "") };
        let lost = if number == 5 { 0.4 } else { base + 1e-6 * f64::from(number) };
        let more: &[_] =
            if number == 5 { &[("microcode", "<script>alert(1)</script>")] } else { &[] };
        hosts.add_run(&format!("n{number}"), 0, &noise_run(lost, nohz_full, more));
    }
    hosts.add("gone", "echo 'ssh: connect to host gone: No route to host' >&2; exit 255\n");
    hosts.add(
        "older",
        "case $1 in *--version*) echo 'irqlab 0.0.9' ;; *) echo 'error: no fleet' >&2; exit 2 ;; esac\n",
    );
    hosts.add("bare", "echo 'sh: irqlab: not found' >&2; exit 127\n");
    let ended = hosts.collect(&["--jobs", "8"]);
    ended
        .assert_code(1)
        .assert_says("done: 24 of 27 hosts; 1 unreachable; 1 refused-version; 1 failed");
    assert_eq!(hosts.record("gone")["state"], "unreachable");
    assert_eq!(hosts.record("gone")["reason"], "ssh: connect to host gone: No route to host");
    assert_eq!(hosts.record("older")["state"], "refused-version");
    assert_eq!(hosts.record("older")["version"], "0.0.9");
    assert_eq!(hosts.record("bare")["state"], "failed");
    assert_eq!(hosts.record("n3")["address"], "192.0.2.7");
    assert!(hosts.record("n3")["clock"]["offset_error_max_ns"].is_u64());

    let arguments = ["fleet", "report", "out", "--metric", "noise.lost_ratio", "--json"];
    let report = hosts.place.run(&arguments).assert_code(0).json();
    let outliers: Vec<&str> = rows(&report, "noise_lost_ratio")
        .iter()
        .filter(|row| row["is_outlier"] == true)
        .map(|row| row["host"].as_str().expect("a name"))
        .collect();
    assert_eq!(outliers, ["n5"]);
    let groups = rows(&report, "noise_lost_ratio_groups");
    assert!(groups[0]["facts"].as_str().expect("text").starts_with("nohz_full="), "{groups:?}");
    assert_eq!((&groups[0]["verdict"], &groups[0]["host_count"]), (&json!("differ"), &json!(12)));
    let [microcode] = &groups[1..] else { panic!("{groups:?}") };
    assert_eq!(microcode["verdict"], "too few hosts");
    let extremes = rows(&report, "noise_lost_ratio_extremes");
    let facts: Vec<&Json> = extremes.iter().map(|row| &row["fact"]).collect();
    assert_eq!(facts, ["microcode", "nohz_full"]);
    let answers = report["answers"].to_string();
    assert!(answers.contains("24 of 27 hosts are done; 1 unreachable: gone"), "{answers}");
    assert!(answers.contains("1 of 24 hosts are outliers: n5 (40.0 %"), "{answers}");

    let page = ["fleet", "report", "out", "-o", "page.html"];
    let printed = hosts.place.run(&page);
    printed.assert_code(0);
    assert!(printed.out.contains("mean:noise.lost_ratio: 1 of 24 hosts"), "{}", printed.out);
    let page = fs::read_to_string(hosts.place.path().join("page.html")).expect("a page");
    assert!(page.contains("&lt;script&gt;alert") && !page.contains("<script>alert"));
    assert!(page.contains("1 refused-version: older"));
}

#[test]
fn the_second_collection_takes_only_what_is_missing() {
    let mut hosts = Hosts::new();
    hosts.add_run("a", 0, &noise_run(0.1, "", &[]));
    hosts.add("b", "exit 255\n");
    hosts.collect(&[]).assert_code(1);
    assert_eq!(names(&hosts.path("failed")), ["b.json"]);
    // The host that is done is not asked again.
    hosts.add("a", "exit 255\n");
    hosts.names.pop();
    let answer = answer(&noise_run(0.1, "", &[]));
    hosts.add_answering("b", 0, &answer);
    hosts.names.pop();
    hosts.collect(&[]).assert_code(0).assert_says("1 of 2 hosts are done already");
    assert_eq!(names(&hosts.path("")), ["a", "b", "failed", "fleet.json", "hosts.json"]);
    assert!(names(&hosts.path("failed")).is_empty());
    hosts.collect(&[]).assert_code(0).assert_says("2 of 2 hosts are done already");
}

/// An answer with another name for a file of its archive, and with the right checksum of the file's header.
fn renamed(answer: &[u8], name: &[u8], new_name: &[u8]) -> Vec<u8> {
    let start = answer.windows(name.len()).position(|part| part == name).expect("the name");
    let mut bytes = answer.to_vec();
    bytes[start..start + name.len()].copy_from_slice(new_name);
    // Bytes 148 to 155 of a header are its checksum: the sum of its bytes, with spaces instead of the checksum.
    bytes[start + 148..start + 156].fill(b' ');
    let sum: u32 = bytes[start..start + 512].iter().map(|byte| u32::from(*byte)).sum();
    bytes[start + 148..start + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    bytes
}

#[test]
fn streams_that_are_not_a_run_leave_none() {
    let mut hosts = Hosts::new();
    let good = answer(&noise_run(0.1, "", &[]));
    hosts.add_answering("cut", 0, &good[..good.len() / 2]);
    hosts.add_answering("changed", 0, &{
        let mut bytes = good.clone();
        let last = bytes.len() - 80;
        bytes[last] ^= 1;
        bytes
    });
    hosts.add_answering("name", 0, &renamed(&good, b"manifest.json", b"../escape.txt"));
    hosts.add_answering("unsigned", 0, &good[..good.len() - 72]);
    hosts.add_answering(
        "announced",
        0,
        b"end {\"exit_code\":0,\"reason\":null,\"log_end\":\"\",\"archive_bytes\":9000000000000}\n",
    );
    hosts.add_answering("empty", 0, b"");
    hosts.add_answering("failing", 0, b"end {\"exit_code\":4,\"reason\":null,\"log_end\":\"irqlab: no rights\\u001b[31m\\nremedy\\n\",\"archive_bytes\":null}\n");
    hosts.add("endless", "while :; do echo welcome; done\n");
    hosts.add("silent", "exec sleep 60\n");
    let incomplete = Run { complete: false, ..noise_run(0.1, "", &[]) };
    hosts.add_run("incomplete", 0, &incomplete);
    hosts.add_run("good", 0, &noise_run(0.1, "", &[]));
    let ended = hosts.collect(&["--connect-limit", "10s"]);
    ended.assert_code(1).assert_says("done: 1 of 11 hosts; 1 unreachable; 9 failed");
    for (host, reason) in [
        ("cut", "the archive of the run is cut"),
        ("changed", "its checksum differs"),
        ("name", "no file of a run"),
        ("unsigned", "no checksum"),
        ("announced", "more than 1073741824 (--size-max allows more)"),
        ("empty", "the host closed the connection"),
        ("failing", "exit code 4 there: no rights"),
        ("endless", "something else than irqlab"),
        ("silent", "no answer within 10 s"),
        ("incomplete", "its run is incomplete"),
    ] {
        let record = hosts.record(host);
        let found = record["reason"].as_str().unwrap_or_default();
        assert!(found.contains(reason), "{host}: {record}");
        assert!(!hosts.path(host).exists(), "{host}");
    }
    assert_eq!(names(&hosts.path("")), ["failed", "fleet.json", "good", "hosts.json"]);
    assert_eq!(hosts.place.names(), ["bin", "hosts.txt", "out", "scripts"], "nothing has escaped");
    assert!(!ended.err.contains('\u{1b}'));
}

#[test]
fn clocks_that_are_apart_are_stated() {
    let mut hosts = Hosts::new();
    hosts.add_run("now", 0, &noise_run(0.1, "", &[]));
    hosts.add_run("ahead", 10_000_000_000, &noise_run(0.1, "", &[]));
    hosts.add_run("behind", -10_000_000_000, &noise_run(0.1, "", &[]));
    let ended = hosts.collect(&[]);
    ended.assert_code(0);
    for (host, sign) in [("ahead", 1), ("behind", -1)] {
        let clock = &hosts.record(host)["clock"];
        let offset_ns = clock["offset_ns"].as_i64().expect("a number") * sign;
        let error_max_ns = clock["offset_error_max_ns"].as_i64().expect("a number");
        // The interval of the offset has the difference that the script makes.
        assert!((offset_ns - 10_000_000_000).abs() <= error_max_ns, "{clock}");
    }
    let report = hosts.place.run(&["fleet", "report", "out", "--json"]).assert_code(0).json();
    for row in rows(&report, "hosts") {
        let is_apart = row["host"] != "now";
        assert!(row["clock_differs"] == is_apart || row["host"] == "now", "{row}");
    }
    ended.assert_says("hosts differ from this machine's");
}

/// A program `kubectl` of the test executes the script of a pod.
#[test]
fn a_list_comes_from_standard_input_and_names_pods() {
    let mut hosts = Hosts::new();
    hosts.add_run("pod-1", 0, &noise_run(0.1, "", &[]));
    let kubectl = hosts.place.path().join("bin/kubectl");
    let script = "#!/bin/sh\n[ \"$1 $2 $4 $6 $7\" = 'exec --stdin -- fleet host' ] || exit 9\n\
        exec sh \"$FLEET/$3.sh\"\n";
    fs::write(&kubectl, script).expect("a file");
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).expect("a mode");
    let start = ["fleet", "collect", "--stdin", "--via", "kubectl", "-o", "out"];
    let arguments: Vec<&str> = start.iter().chain(&MEASURED).copied().collect();
    let mut command = hosts.command(&arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut collection = command.spawn().expect("it starts");
    let mut input = collection.stdin.take().expect("a pipe");
    input.write_all(b"pod-1\n").expect("a write");
    drop(input);
    let ended = CommandOutput::of_output(&collection.wait_with_output().expect("it ends"));
    ended.assert_code(0).assert_says("done: 1 of 1 hosts");
    assert!(hosts.path("pod-1/run/manifest.json").is_file());
}

#[test]
fn lists_of_hosts_that_are_wrong_are_refused() {
    let refused = |list: &[u8], says: &str| {
        let place = Place::new();
        fs::write(place.path().join("hosts.txt"), list).expect("a file");
        let start = ["fleet", "collect", "hosts.txt", "-o", "out"];
        let arguments: Vec<&str> = start.iter().chain(&MEASURED).copied().collect();
        place.run(&arguments).assert_code(2).assert_says(says);
        assert_eq!(place.names(), ["hosts.txt"]);
    };
    refused(b"a\nb\na\n", "line 3: a is listed already in line 1");
    refused(b"\n# nobody\n", "no host is listed");
    refused(b"-oProxyCommand=touch\n", "ssh would take it for an option");
    refused(b"a\x1b[31mb\n", "\\u{1b}");
    let million: String = (0..1_000_000).map(|number| format!("n{number}\n")).collect();
    refused(million.as_bytes(), "1000000 hosts, and at most 100000 are allowed");
    let missing = ["fleet", "collect", "nowhere.txt", "-o", "out", "--", "noise"];
    check_refused(&missing, "cannot read nowhere.txt");
}

#[test]
fn commands_that_measure_no_host_are_refused() {
    let place = Place::new();
    fs::write(place.path().join("hosts.txt"), "a\n").expect("a file");
    let refused = |command: &[&str], says: &str| {
        let start = ["fleet", "collect", "hosts.txt", "-o", "out", "--"];
        let arguments: Vec<&str> = start.iter().chain(command).copied().collect();
        place.run(&arguments).assert_code(2).assert_says(says);
        assert_eq!(place.names(), ["hosts.txt"]);
    };
    refused(&["noise", "--on", "sim"], "measures no host");
    refused(&["irqlab", "noise"], "is no verb of irqlab");
    refused(&["doctor"], "records no run");
    refused(&["fleet", "collect"], "records no run");
    refused(&["noise", "--out", "x"], "cannot be used multiple times");
    refused(&["noise", "--nonsense"], "--nonsense");
}

#[test]
fn a_directory_belongs_to_one_command() {
    let mut hosts = Hosts::new();
    hosts.add_run("a", 0, &noise_run(0.1, "", &[]));
    hosts.collect(&[]).assert_code(0);
    let other = ["fleet", "collect", "hosts.txt", "-o", "out", "--", "noise", "-d", "2s"];
    let ended = CommandOutput::of(&mut hosts.command(&other));
    ended.assert_code(2).assert_says("out holds runs of `irqlab noise -d 1s`");
    let here = ["fleet", "collect", "hosts.txt", "-o", ".", "--", "noise"];
    let ended = CommandOutput::of(&mut hosts.command(&here));
    ended.assert_code(2).assert_says("is not the directory of a fleet");
}

#[test]
fn of_two_collections_at_once_one_is_refused_and_a_stop_leaves_nothing() {
    let mut hosts = Hosts::new();
    hosts.add("slow", "echo $$ >\"$FLEET/started\"; exec sleep 60\n");
    fs::write(hosts.place.path().join("hosts.txt"), "slow\n").expect("a file");
    let start = ["fleet", "collect", "hosts.txt", "-o", "out"];
    let arguments: Vec<&str> = start.iter().chain(&MEASURED).copied().collect();
    let mut command = hosts.command(&arguments);
    let first = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().expect("it starts");
    let started = hosts.scripts().join("started");
    let pid = || fs::read_to_string(&started).ok()?.trim().parse::<u32>().ok();
    wait_until("the host is asked", || pid().is_some());
    hosts.collect(&[]).assert_code(2).assert_says("another irqlab collects into out now");
    signal(&first, rustix::process::Signal::TERM);
    let ended = CommandOutput::of_output(&first.wait_with_output().expect("it ends"));
    ended.assert_code(1).assert_says("stopped; 1 are open");
    wait_until("the connection ends", || !lives(pid().expect("a number")));
    assert_eq!(names(&hosts.path("")), ["failed", "fleet.json", "hosts.json"]);
    assert!(names(&hosts.path("failed")).is_empty());
}

#[test]
fn a_full_disk_ends_the_collection_and_keeps_what_is_whole() {
    if !can_mount_in_namespaces(&[]) {
        return;
    }
    let mut hosts = Hosts::new();
    let long = "x".repeat(200);
    for number in 0..8 {
        hosts.add_run(&format!("n{number}"), 0, &noise_run(0.1, &long, &[]));
    }
    fs::write(hosts.place.path().join("hosts.txt"), hosts.names.join("\n")).expect("a file");
    fs::create_dir(hosts.place.path().join("there")).expect("a directory");
    let script = "mount -t tmpfs -o size=80k none there || exit 99\n\
        collect() { \"$1\" fleet collect hosts.txt --jobs 1 -o there/out -- noise -d 1s; }\n\
        collect \"$1\" 2> full.txt && exit 98\n\
        ls -A there/out > names.txt\n\
        mount -o remount,size=20m there || exit 97\n\
        collect \"$1\" 2> again.txt || exit 96\n\
        ls -A there/out > all.txt\n";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", IRQLAB]).current_dir(hosts.place.path());
    let path = format!("{}:/usr/bin:/bin", hosts.place.path().join("bin").display());
    command.env("PATH", path).env("FLEET", hosts.scripts());
    CommandOutput::of(&mut command).assert_code(0);
    let read = |name: &str| fs::read_to_string(hosts.place.path().join(name)).expect("text");
    assert!(read("full.txt").contains("No space left on device"), "{}", read("full.txt"));
    let is_hidden = |name: &str| name.starts_with('.');
    assert!(!read("names.txt").lines().any(is_hidden), "{}", read("names.txt"));
    assert!(!read("names.txt").contains("n7"), "{}", read("names.txt"));
    assert!(read("names.txt").contains("n0"), "{}", read("names.txt"));
    assert_eq!(read("all.txt").lines().filter(|name| name.starts_with('n')).count(), 8);
}

/// The end on a host, with a command that measures nothing and needs no rights.
#[test]
fn the_end_on_a_host_executes_the_command_and_leaves_nothing() {
    let place = Place::new();
    let scratch = place.path().join("scratch");
    fs::create_dir(&scratch).expect("a directory");
    let start = || {
        let mut command = place.irqlab(&["fleet", "host"]);
        command.env("TMPDIR", &scratch).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let model = |events: &str| {
        let words = ["signal", "model", "--schemes", "interrupt", "--rates", "100k", "--simulate"];
        let words: Vec<&str> = words.into_iter().chain(["--events", events]).collect();
        format!("run {}\n", json!({"arguments": words, "limit_ns": 300_000_000_000_u64}))
    };
    let mut host = start();
    let mut input = host.stdin.take().expect("a pipe");
    let mut output = BufReader::new(host.stdout.take().expect("a pipe"));
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        line
    };
    assert!(line().starts_with("irqlab-fleet/1 {\"version\""));
    input.write_all(b"clock\n").expect("a write");
    assert!(line().strip_prefix("clock ").expect("an answer").trim().parse::<i64>().is_ok());
    input.write_all(model("1000").as_bytes()).expect("a write");
    let end: Json =
        serde_json::from_str(line().strip_prefix("end ").expect("an end")).expect("JSON");
    assert_eq!(end["exit_code"], 0, "{end}");
    let mut archive = Vec::new();
    output.read_to_end(&mut archive).expect("an archive");
    let bytes = end["archive_bytes"].as_u64().expect("a number");
    assert_eq!(archive.len() as u64, bytes + 7 + 64 + 1, "the archive and its checksum");
    assert_eq!(host.wait().expect("it ends").code(), Some(0));
    assert!(names(&scratch).is_empty());

    // When the connection ends, the measurement ends, too.
    let mut host = start();
    let mut input = host.stdin.take().expect("a pipe");
    input.write_all(model("60000000").as_bytes()).expect("a write");
    wait_until("the command starts", || has_log(&scratch));
    drop(input);
    wait_until("the host ends", || host.try_wait().expect("a state").is_some());
    assert!(names(&scratch).is_empty());
}

/// Whether an irqlab has started its command in this scratch directory.
fn has_log(scratch: &Path) -> bool {
    names(scratch).iter().any(|name| scratch.join(name).join("log.txt").exists())
}
