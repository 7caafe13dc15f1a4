//! Invalid arguments: irqlab exits with 2 before it measures, and names the allowed values.

use std::process::{Child, Stdio};

use crate::support::{CommandOutput, Place, check_refused, names, signal, wait_until};

#[test]
fn invalid_cpus_are_refused() {
    check_refused(&["handlers", "-c", "9999"], "CPU 9999 is not online here; online: ");
    check_refused(&["handlers", "-c", "70000"], "the highest accepted is 65535");
    check_refused(&["handlers", "-c", "x"], "`x` is not a CPU number or a range such as 0-3");
    check_refused(&["handlers", "-c", "3-0"], "the range `3-0` ends before it starts");
    check_refused(&["handlers", "-c", "0,"], "is not a CPU number");
    check_refused(&["handlers", "-c", ""], "is empty; online: ");
    check_refused(&["handlers", "-H", "9999"], "CPU 9999 is not online here");
}

#[test]
fn invalid_times_are_refused() {
    check_refused(&["handlers", "-d", "0"], "allowed: 1us to 168h");
    check_refused(&["handlers", "-d", "-1s"], "a number and a unit (ns, us, ms, s, m, h)");
    check_refused(&["handlers", "-d", "1x"], "a number and a unit (ns, us, ms, s, m, h)");
    check_refused(&["handlers", "-d", "169h"], "allowed: 1us to 168h");
    check_refused(&["handlers", "--warm-up", ""], "a number and a unit");
    check_refused(&["handlers", "--low-interval", "1us"], "is not within 100µs to 60s");
}

#[test]
fn sizes_of_a_timeline_that_cannot_be_kept_are_refused() {
    check_refused(
        &["handlers", "--trace", "0"],
        "a number and a unit (B, KiB, MiB, GiB), as in 64MiB",
    );
    check_refused(&["handlers", "--trace", "0MiB"], "allowed: 64KiB to 80MiB");
    check_refused(&["handlers", "--trace", "1000GiB"], "allowed: 64KiB to 80MiB");
    check_refused(&["handlers", "--trace=-1MiB"], "a number and a unit (B, KiB, MiB, GiB)");
    check_refused(&["handlers", "--trace", "nanMiB"], "a number and a unit (B, KiB, MiB, GiB)");
    let both_rates = ["handlers", "--trace", "64MiB", "--stimulus", "ipi"];
    check_refused(&both_rates, "--trace 64MiB for each of 2 conditions is more than 80MiB in all");
    check_refused(
        &["handlers", "--trace", "1MiB", "--by", "task"],
        "--by and --trace cannot be combined on live",
    );
    check_refused(
        &["services", "--trace", "1MiB", "--", "true"],
        "--trace is for a simulated machine",
    );
    check_refused(&["noise", "--trace", "1MiB"], "unexpected argument '--trace'");
}

#[test]
fn unknown_values_are_refused() {
    check_refused(&["handlers", "--stimulus", "floppy"], "allowed: disk, net, timer, ipi, none");
    check_refused(&["handlers", "--stimulus", "disk,,net"], "allowed: disk, net, timer, ipi, none");
    check_refused(&["handlers", "--stimulus="], "allowed: disk, net, timer, ipi, none");
    check_refused(&["handlers", "--load", "heavy"], "allowed: idle, busy");
    check_refused(&["handlers", "--rate", "mid"], "allowed: low, high");
    check_refused(
        &["handlers", "--format", "xml"],
        "[possible values: table, json, csv, markdown]",
    );
    check_refused(&["handlers", "--attach", "kprobe"], "[possible values: auto, tp_btf, raw_tp]");
    check_refused(&["handlers", "--on", "moon"], "allowed: live, sim, sim:MODEL");
    check_refused(&["handlers", "--events="], "allowed: names as in perf list, or none");
    check_refused(&["handle"], "unrecognized subcommand");
    let misses = ["sim", "boot", "--detail", "count", "--misses", "--", "true"];
    check_refused(&misses, "--misses needs a model");
    let timed = ["sim", "boot", "--on", "sim:zen3", "--detail", "timed", "--misses", "--", "true"];
    check_refused(&timed, "--misses needs --detail ooo");
    check_refused(&["sim", "boot", "--model", "zen3"], "--model MODEL is --on sim:MODEL");
    check_refused(&["bench", "sim", "--quick"], "in irqlab's source: cargo xtask bench sim");
    check_refused(&["bench", "chase"], "in irqlab's source: cargo xtask bench chase");
    let hostile = ["bench", "sim-repeat", "--hostile", "--times", "3"];
    check_refused(&hostile, "in irqlab's source: cargo xtask bench hostile");
    let sampled = ["bench", "model", "--on", "sim:zen3", "--detail", "sampled"];
    check_refused(&sampled, "--detail sampled works only with sim boot");
    for (options, says) in [
        (&["--model", "zen3"][..], "--on sim:MODEL"),
        (&["--on", "live"], "a guest runs in a simulated machine"),
        (&["--on", "sim:zen3", "--detail", "count"], "have no model: use --on sim"),
        (&["--detail", "timed"], "need a model: use --on sim:MODEL"),
        (&["--set", "l2.size=4MiB"], "needs a model: use --on sim:MODEL"),
        (&["--on", "sim:z80"], "no model"),
        (&["--on", "sim:zen3", "--set", "l2.ways=0"], "--set l2.ways=0: "),
        (&["--on", "sim"], "watch a command: add -- COMMAND"),
        (&["--record", "x"], "required arguments"),
    ] {
        check_refused(&[&["sim", "boot"], options].concat(), says);
    }
}

#[test]
fn options_without_a_use_are_refused() {
    check_refused(
        &["handlers", "--peer", "host"],
        "--peer is for the net stimulus; add --stimulus net",
    );
    check_refused(&["handlers", "--disk-file", "/dev/vda"], "add --stimulus disk");
    check_refused(&["handlers", "--stimulus", "disk", "--", "true"], "leave out one or the other");
}

#[test]
fn options_of_the_other_bench_are_refused() {
    let sim = |arguments: &[&str], says: &str| {
        check_refused(&[&["handlers", "--on", "sim"], arguments].concat(), says)
    };
    check_refused(&["handlers", "--mem", "1G"], "--mem is for a simulated machine; add --on sim");
    check_refused(&["handlers", "--vcpu-slice", "9"], "--vcpu-slice is for a simulated machine");
    sim(&["--attach", "raw_tp"], "--attach is for --on live");
    sim(&["--stimulus", "net", "--peer", "host"], "--peer is for --on live");
    sim(&["-c", "0-3"], "no CPU 1 in the simulated machine: --vcpus is 1");
    sim(&["-c", "0", "--vcpus", "2"], "on sim, all CPUs of the machine are measured");
    sim(&["--vcpus", "17"], "17 is not in 1..=16");
    sim(&["-H", "1"], "no CPU 1 in the simulated machine: --vcpus is 1");
    sim(&["--vcpu-slice", "0"], "0 is not in 1..=");
    sim(&["--detail", "ooo"], "--detail and --set need a model: use --on sim:MODEL");
    sim(&["--detail", "fast"], "--detail fast works only with sim boot");
    for verb in ["handlers", "noise", "footprint"] {
        for option in ["vcpus=2", "detail=ooo", "set=l2.size=4MiB", "net=e1000", "disk=nvme"] {
            let says = option.split('=').next().unwrap();
            let says = format!("--{says} is for a simulated machine; add --on sim");
            check_refused(&[verb, &format!("--{option}")], &says);
        }
    }
    check_refused(&["handlers", "--on", "sim:z80"], "no model \"z80\"; there are: ");
}

#[test]
fn invalid_peers_are_refused() {
    for peer in ["", "host:", ":1", "host:0", "host:x", "host:70000"] {
        check_refused(
            &["handlers", "--stimulus", "net", "--peer", peer],
            "is not HOST or HOST:PORT",
        );
    }
    let long = "a".repeat(100_000);
    check_refused(
        &["handlers", "--stimulus", "net", "--peer", &long],
        "is not HOST or HOST:PORT: it has 100000 bytes",
    );
}

#[test]
fn a_run_directory_is_never_replaced() {
    let workspace = Place::new();
    std::fs::write(workspace.path().join("there"), "precious").unwrap();
    let ended = workspace.run(&["handlers", "--out", "there"]);
    ended.assert_code(2).assert_says("there exists already, and a run never replaces a directory");
    assert_eq!(std::fs::read(workspace.path().join("there")).unwrap(), b"precious");
    assert_eq!(workspace.names(), ["there"]);
}

/// A file system has a maximum length of names; Linux has 255 bytes.
#[test]
fn a_name_that_is_too_long_is_refused_before_measuring() {
    let workspace = Place::new();
    let long = "x".repeat(256);
    for verb in [&["handlers"][..], &["noise"], &["footprint"], &["bench", "storm"]] {
        let ended = workspace.run(&[verb, &["--out", &long]].concat());
        ended.assert_code(2).assert_says("File name too long");
        assert_eq!(ended.out, "");
    }
    assert!(workspace.names().is_empty());
}

#[test]
fn runs_that_start_in_the_same_second_have_a_directory_each() {
    let workspace = Place::new();
    let arguments = ["noise", "--loop", "fwq", "-d", "500ms", "-q"];
    let start = |_| workspace.irqlab(&arguments).stdout(Stdio::null()).spawn().unwrap();
    let children: Vec<Child> = (0..4).map(start).collect();
    for mut child in children {
        // 5: the kernel reported events too fast on a busy host.
        assert!(matches!(child.wait().unwrap().code(), Some(0 | 5)));
    }
    let runs = names(&workspace.path().join("irqlab-runs"));
    assert!(runs.len() == 4 && runs.iter().all(|run| run.contains("Z-noise")), "{runs:?}");
}

/// Whether a process has the address that reserves the name of a run.
fn holds_a_name(pid: u32) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let reservations = sockets.lines().filter(|line| line.contains("@irqlab-output-"));
    let inodes: Vec<&str> =
        reservations.filter_map(|line| line.split_whitespace().nth(6)).collect();
    let descriptors = names(format!("/proc/{pid}/fd").as_ref());
    descriptors.iter().any(|descriptor| {
        let link = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap_or_default();
        inodes.iter().any(|inode| link.to_string_lossy() == format!("socket:[{inode}]"))
    })
}

#[test]
fn a_directory_that_another_run_will_have_is_refused_before_measuring() {
    let workspace = Place::new();
    let mut first = workspace.irqlab(&["noise", "--loop", "fwq", "-d", "30s", "--out", "run"]);
    let mut first = first.stdout(Stdio::null()).spawn().unwrap();
    wait_until("the name is reserved", || holds_a_name(first.id()));
    let second = workspace.run(&["noise", "--loop", "fwq", "-d", "30s", "--out", "run"]);
    second.assert_code(2).assert_says("another irqlab is going to write run");
    signal(&first, rustix::process::Signal::TERM);
    first.wait().unwrap();
    assert!(workspace.names().iter().all(|name| name == "run"), "{:?}", workspace.names());
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_before_measuring() {
    let workspace = Place::new();
    std::fs::write(workspace.path().join("file"), "").unwrap();
    for verb in [&["handlers"][..], &["noise"], &["footprint"], &["bench", "storm"]] {
        let ended = workspace.run(&[verb, &["--out", "file/run"]].concat());
        ended.assert_code(2).assert_says("cannot write runs into file: ");
        assert_eq!(ended.out, "");
    }
    assert_eq!(workspace.names(), ["file"]);
}

#[test]
fn machines_that_cannot_be_built_are_refused() {
    let workspace = Place::new();
    let disks = ["--disk", "nvme"].repeat(5);
    let five = workspace.run(&[&["sim", "boot"][..], &disks].concat());
    if matches!(five.code, Some(1 | 4)) {
        return needs::not_run(needs::Need::Qemu, &five.err);
    }
    five.assert_code(2).assert_says("5 disks; at most 4");
    check_refused(&["sim", "checkpoint", "../x"], "\"../x\" is no name for a checkpoint");
    let long = "x".repeat(5000);
    check_refused(&["sim", "boot", "--append", &long], "command line is over");
}

#[test]
fn results_on_the_clock_of_the_host_are_refused() {
    for verb in [
        "handlers --on sim",
        "handlers --on sim:zen3 --until 5%",
        "services --on sim -- true",
        "services --on sim:zen3 --misses --rootfs x -- true",
        "noise --on sim",
        "wakeup --on sim:zen3",
        "footprint --on sim:zen3",
        "signal run --on sim:zen3",
        "sim verify-probes --on sim:zen3",
        "bench sim-repeat",
        "sim boot --on sim --annotate do_idle:count --annotate-log",
    ] {
        let words = format!("{verb} --free-running");
        let mut words: Vec<&str> = words.split_whitespace().collect();
        // The option comes before the command.
        if let Some(command) = words.iter().position(|word| *word == "--") {
            let option = words.pop().unwrap();
            words.insert(command, option);
        }
        check_refused(&words, "the simulated machine's clock, not the host's");
    }
}

#[test]
fn formats_that_contradict_each_other_are_refused() {
    for verb in [&["handlers"][..], &["noise"], &["footprint"], &["bench", "storm"], &["show", "x"]]
    {
        let arguments = [verb, &["--json", "--format", "csv"]].concat();
        check_refused(&arguments, "'--json' cannot be used with '--format <FORMAT>'");
    }
    check_refused(&["show", "x", "t", "--table", "u"], "cannot be used with");
}

#[test]
fn every_verb_has_the_options_of_the_console() {
    let workspace = Place::new();
    for color in ["auto", "always", "never"] {
        workspace.run(&["machines", "--color", color]).assert_code(0);
    }
    check_refused(&["doctor", "--color", "blue"], "[possible values: auto, always, never]");
    let colored = |arguments: &[&str], no_color: &str| {
        let mut command = workspace.irqlab(arguments);
        CommandOutput::of(command.env("NO_COLOR", no_color)).assert_code(0).out.contains('\x1b')
    };
    assert!(!colored(&["doctor"], ""), "stdout is no terminal");
    assert!(!colored(&["doctor"], "1"));
    assert!(colored(&["doctor", "--color", "always"], "1"), "the option overrides NO_COLOR");
    check_refused(&["doctor", "-q", "-v"], "cannot be used with");
}

/// Number of models in the repository.
fn models() -> usize {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    let is_model = |name: &String| name.ends_with(".toml");
    crate::support::names(std::path::Path::new(folder)).iter().filter(|name| is_model(name)).count()
}

#[test]
fn machines_have_json() {
    let workspace = Place::new();
    let list = workspace.run(&["machines", "--json"]).assert_code(0).json();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|model| &model["name"]).collect();
    assert!(names.len() == models() && names.contains(&&"zen3".into()), "{names:?}");
    let model = workspace.run(&["machines", "zen3", "--json", "--set", "l2.size=1MiB"]);
    assert_eq!(model.assert_code(0).json()["l2"]["size"], "1MiB");
}

#[test]
fn completions_and_manual_pages() {
    let workspace = Place::new();
    let ended = workspace.run(&["completions", "bash"]);
    assert!(ended.assert_code(0).out.contains("--low-interval"), "{}", ended.out);
    workspace.run(&["man", "man1"]).assert_code(0);
    let pages = crate::support::names(&workspace.path().join("man1"));
    assert!(pages.contains(&"irqlab-handlers.1".to_owned()), "{pages:?}");
    assert!(!pages.iter().any(|page| page.contains("stimulus")), "hidden: {pages:?}");
}

#[test]
fn machine_models() {
    check_refused(&["machines", "z80"], "no model \"z80\"; there are: cortex-a55, ");
    check_refused(&["machines", "zen3", "--set", "l2.size=5"], "l2.size: integer `5` is given");
    check_refused(&["machines", "zen3", "--set", "l2.size"], "is not FIELD=VALUE, as l2.size=4MiB");
    check_refused(&["machines", "--set", "l2.size=1MiB"], "required arguments were not provided");
    check_refused(&["machines", "./none.toml"], "none.toml");
    let workspace = Place::new();
    let text = workspace.run(&["machines", "zen3", "--toml"]).assert_code(0).out.clone();
    let broken = text.replacen("ways = 8", "ways = 0", 1);
    let line = broken.lines().position(|line| line == "ways = 0").unwrap() + 1;
    std::fs::write(workspace.path().join("mine.toml"), broken).unwrap();
    let says = format!("mine.toml: line {line}: l1i.ways: 0 is not in 1..=64");
    workspace.run(&["machines", "mine.toml"]).assert_code(2).assert_says(&says);
    let list = workspace.run(&["machines"]).assert_code(0).out.clone();
    assert_eq!(list.lines().count(), models(), "{list}");
    // Descriptions start in one column.
    let zen3 = list.lines().find_map(|line| line.starts_with("zen3 ").then(|| line.find("AMD")));
    assert!(list.lines().all(|line| line[zen3.unwrap().unwrap() - 1..].starts_with(' ')), "{list}");
    let drawn = workspace.run(&["machines", "r4400-1994", "--set", "l2.size=4MiB"]);
    assert!(drawn.assert_code(0).out.contains("└ L2          4 MiB, 1 way,"), "{}", drawn.out);
}

#[test]
fn a_list_is_printed_as_json_too() {
    let workspace = Place::new();
    for (arguments, key) in [
        (&["machines"][..], "name"),
        (&["sim", "workload"], "name"),
        (&["bench", "model", "--list"], "unit"),
    ] {
        let list = workspace.run(&[arguments, &["--json"]].concat()).assert_code(0).json();
        assert!(list[0][key].is_string(), "{arguments:?}: {list}");
    }
    let cache = workspace.run(&["sim", "cache", "--json"]).assert_code(0).json();
    assert!(cache["entries"].is_array(), "{cache}");
    check_refused(&["sim", "workload", "--format", "csv"], "printed as text or with --json");
}

#[test]
fn a_format_without_anything_to_print_is_refused() {
    check_refused(&["sim", "boot", "--json", "--", "true"], "need --on sim or --detail");
}
