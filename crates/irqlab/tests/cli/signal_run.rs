//! `irqlab signal run`: its results, and that the machine's settings are restored however the run ends.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::support::{
    CommandOutput, Place, absence, alone, check_refused, lives, rows, signal, wait_until,
};
use rustix::process::Signal;

/// Every setting of this network namespace's interfaces that a scheme may change.
fn settings() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
        for attribute in
            ["napi_defer_hard_irqs", "gro_flush_timeout", "threaded", "queues/rx-0/rps_cpus"]
        {
            let path = entry.path().join(attribute);
            // The loopback interface has no threads. A setting that cannot be read cannot be set either.
            if let Ok(value) = std::fs::read_to_string(&path) {
                all.insert(path.display().to_string(), value);
            }
        }
    }
    all
}

fn can_measure(arguments: &[&str]) -> bool {
    let workspace = Place::new();
    let mut command =
        workspace.irqlab(&["signal", "run", "-q", "-d", "10ms", "--repetitions", "1"]);
    let ended =
        CommandOutput::of(command.args(["--rates", "100", "--loads", "idle"]).args(arguments));
    if !Path::new("/sys/devices/system/cpu/cpu1").exists() {
        needs::not_run(needs::Need::Cpus, "sender and receiver need a CPU each");
        return false;
    }
    if arguments.contains(&"veth") && ended.err.contains("namespace") {
        needs::not_run(needs::Need::Namespaces, "a network namespace is refused");
        return false;
    }
    ended.assert_code(0);
    true
}

#[test]
fn between_threads_a_table_of_each_load_and_scheme() {
    let _alone = alone();
    if !can_measure(&[]) {
        return;
    }
    let workspace = Place::new();
    let arguments = "signal run --json -d 50ms --repetitions 2 --rates 1k,5k --schemes \
                 drain,coalesced:8,1ms,spin --parts rates,throughput --pictures --out measured";
    let ended = workspace.run(&arguments.split_whitespace().collect::<Vec<_>>());
    ended.assert_code(0);
    let run = ended.json();
    assert_eq!((&run["experiment"], &run["bench"]), (&"signal".into(), &"live".into()));
    assert_eq!(run["settings"]["rig"], "threads");
    let rates = rows(&run, "rates");
    assert_eq!(rates.len(), 2 * 2 * 3);
    for row in rates {
        let is_idle = row["load"] == "idle";
        // The background job may get no CPU time if others use the CPU.
        assert!(!is_idle || row["cpu_ratio"].is_null(), "{row}");
        // Contaminated windows are repeated, so there are up to twice the windows asked for. If none is accepted, all
        // windows count.
        assert!(row["repetitions"].as_u64().is_some_and(|count| (1..=4).contains(&count)), "{row}");
        // A row has no latency if the receiver did not keep up, as on a busy host.
        if row["is_over_capacity"] == true {
            assert!(row["latency_p50_ns"].is_null() && row["latency_mean_ns"].is_null(), "{row}");
            continue;
        }
        assert!(row["latency_p50_ns"].as_u64().is_some_and(|median| median > 0), "{row}");
        // A row has a mean if each of its windows has a mean. On a busy host, a window may handle nothing: it has
        // no mean, and is contaminated.
        let is_contaminated = row["contaminated_count"] == row["repetitions"];
        let mean = row["latency_mean_ns"].as_f64();
        assert!(mean.map_or(is_contaminated, |mean| mean > 0.0), "{row}");
    }
    // On a busy host, no scheme keeps up with a background job, or one scheme at no rate; then there is no latency to draw.
    let has_latency = |key: &str, value: &str| {
        rates.iter().any(|row| row[key] == value && !row["latency_p50_ns"].is_null())
    };
    let latency = std::fs::read_to_string(workspace.path().join("measured/latency.svg"));
    let latency = latency.expect("a picture");
    let panels = [("idle", "p99, load idle"), ("background", "p50, load background")];
    let drawn =
        panels.iter().filter(|(load, _)| has_latency("load", load)).map(|(_, panel)| *panel);
    let schemes = ["coalesced:8,1ms", "drain", "spin"];
    let schemes = schemes.into_iter().filter(|scheme| has_latency("scheme", scheme));
    for word in schemes.chain(drawn) {
        assert!(latency.lines().any(|line| line == word), "{word}: {latency}");
    }
    let why = absence(&run, "drain, background").expect("two threads have no sockets");
    assert!(why.contains("two threads have no sockets"), "{why}");
}

#[test]
fn invalid_arguments_are_refused_with_the_allowed_values() {
    for (arguments, says) in [
        ("signal run --rig tap", "threads, veth, virtio-net, e1000"),
        ("signal run --rig e1000", "--on sim:MODEL"),
        ("signal run --vcpus 2", "--vcpus is for a simulated machine; add --on sim"),
        ("signal run --schemes iopoll", "there is no such scheme"),
        ("signal run --loads full", "idle, background, busy"),
        ("signal run --parts all", "rates, throughput, round-trips"),
        ("signal run --rates 0", "is not a rate"),
        ("signal run -d 1ms", "10ms to 1h"),
        ("signal run --socket-buffers 0", "1..=65536"),
        ("signal run --on sim", "without a model"),
        ("signal run --on sim:z80", "no model \"z80\""),
        ("signal run --on sim:zen3 --vcpus 1", "a CPU each"),
        ("signal run --on sim:zen3 -c 2", "no CPU 2 in the simulated machine"),
        ("signal run --on sim:zen3 --sender-cpu 1", "another CPU than the receiver's"),
        ("signal run --on sim:zen3 --net rtl8139", "--rig virtio-net determines the cards"),
        ("signal run --on sim:zen3 --free-running", "--free-running"),
        ("signal run --on sim:zen3 --nic lo --peer 127.0.0.1:1", "a card of this machine"),
        (
            "signal run --on sim:zen3 --rig veth --napi threaded",
            "only with --on live and --rig veth",
        ),
        ("signal run --on sim:zen3 --hybrid irq-suspension", "only with --on live and --rig veth"),
        ("signal run --request-rate 0", "1..=1000000"),
        ("signal run --sender-cpu 99999", "is offline"),
    ] {
        check_refused(&arguments.split_whitespace().collect::<Vec<_>>(), says);
    }
}

#[test]
fn a_rig_that_has_none_of_the_schemes_is_refused_before_a_machine_starts() {
    for (rig, schemes, says) in [
        ("e1000", "coalesced:8,1ms", "counts no packets"),
        ("e1000", "clocked:1us,interrupt", "128 us to 10 ms"),
        ("virtio-net", "interrupt", "drains after each interrupt"),
        ("nvme", "drain,hybrid:1,20us", "takes all completions at each interrupt"),
        ("nvme", "coalesced:8,26ms", "at most 256 completions, for at most 25.5 ms"),
        ("threads", "poll", "events come without a request"),
    ] {
        let line = format!("signal run --on sim:zen3 --rig {rig} --schemes {schemes}");
        let ended = Place::new().run(&line.split_whitespace().collect::<Vec<_>>());
        ended.assert_code(4).assert_says(says).assert_says("irqlab signal run --rig");
    }
}

fn start(workspace: &Place, arguments: &str) -> Child {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    workspace.irqlab(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Number of network namespaces that the threads of a process are in.
fn namespaces(pid: u32) -> usize {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let namespace = |thread: std::fs::DirEntry| std::fs::read_link(thread.path().join("ns/net"));
    let mut found: Vec<_> = threads.flatten().filter_map(|thread| namespace(thread).ok()).collect();
    found.sort_unstable();
    found.dedup();
    found.len()
}

#[test]
fn the_machine_is_as_before_however_a_run_on_a_veth_ends() {
    let _alone = alone();
    if !can_measure(&["--rig", "veth", "--schemes", "drain", "--parts", "rates"]) {
        return;
    }
    let before = settings();
    let workspace = Place::new();
    let clocked =
        "signal run --rig veth --parts rates --schemes clocked:1ms --rates 1k --loads idle";
    // A run that succeeds, and a run that can measure nothing.
    let arguments = format!("{clocked} -d 50ms --repetitions 1");
    workspace.run(&arguments.split_whitespace().collect::<Vec<_>>()).assert_code(0);
    assert_eq!(settings(), before);
    let arguments = "signal run --rig veth --parts rates --schemes coalesced:8,1ms";
    workspace.run(&arguments.split_whitespace().collect::<Vec<_>>()).assert_code(4);
    assert_eq!(settings(), before);
    // Ctrl-C and SIGKILL while the namespaces exist.
    for end in [Signal::INT, Signal::KILL] {
        let mut child = start(&workspace, &format!("{clocked} -d 200ms --repetitions 1000"));
        wait_until("sender and receiver are in namespaces of their own", || {
            namespaces(child.id()) >= 3
        });
        assert_eq!(settings(), before, "only the namespace has other settings");
        signal(&child, end);
        let status = child.wait().unwrap();
        // A run that ends before its first window has no results, and fails.
        let is_as_expected = match end {
            Signal::INT => matches!(status.code(), Some(0 | 1)),
            _ => status.code().is_none(),
        };
        assert!(is_as_expected, "{end:?}: {status}");
        assert!(!lives(child.id()));
        assert_eq!(settings(), before);
    }
}

#[test]
fn a_disk_that_cannot_be_read_is_refused_with_what_to_do() {
    let on_sim = ["signal", "run", "--rig", "nvme", "--on", "sim:zen3"];
    for disks in [&["--disk", "virtio-blk"][..], &["--disk", "nvme", "--disk", "nvme"]] {
        check_refused(&[&on_sim, disks].concat(), "give --disk nvme,latency=20us");
    }
    let ended = Place::new().run(&["signal", "run", "--schemes", "poll"]);
    ended.assert_code(4).assert_says("without a request").assert_says("--schemes spin");
    let has_disk = std::fs::read_dir("/sys/block").is_ok_and(|disks| {
        disks.flatten().any(|disk| disk.file_name().to_string_lossy().starts_with("nvme"))
    });
    if !has_disk {
        let ended = Place::new().run(&["signal", "run", "--rig", "nvme"]);
        ended.assert_code(4).assert_says("this machine has no NVMe disk").assert_says("--on sim:");
    }
}
