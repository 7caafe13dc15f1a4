//! `irqlab signal run --nic --peer`: over a veth to `irqlab echo` in another network namespace.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{
    CommandOutput, IRQLAB, Net, absence, alone, check_refused, rows, signal, wait_until,
};
use rustix::process::Signal;

const PEER: &str = "192.0.2.2:7007";

/// `irqlab echo` in the far namespace. Dropping this ends it.
struct Echo(Child);

impl Echo {
    /// Starts the echo, and waits until it listens.
    fn start(net: &Net) -> Echo {
        let mut command = net.far(IRQLAB, &["echo", "--listen", PEER]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("listening at {PEER}\n"));
        Echo(child)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Returns `None`, and prints the reason, if this machine has no two CPUs or no network namespaces.
fn net() -> Option<Net> {
    if !Path::new("/sys/devices/system/cpu/cpu1").exists() {
        needs::not_run(needs::Need::Cpus, "sender and receiver need a CPU each");
        return None;
    }
    Net::prepared()
}

/// Every setting of `v0` in sysfs that a run may change.
fn settings(net: &Net) -> BTreeMap<&'static str, String> {
    ["gro_flush_timeout", "napi_defer_hard_irqs", "threaded", "queues/rx-0/rps_cpus"]
        .map(|name| (name, net.read(&format!("/sys/class/net/v0/{name}"))))
        .into()
}

fn command(net: &Net, more: &str) -> Command {
    let line = format!("signal run --nic v0 --peer {PEER} --loads idle -c 1 --json {more}");
    net.near(IRQLAB, &line.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn a_card_and_a_peer_give_rates_and_round_trips_and_what_is_not_there_is_absent() {
    let _alone = alone();
    let Some(net) = net() else { return };
    let before = settings(&net);
    // Nobody listens.
    let arguments = "-d 50ms --repetitions 1 --rates 500 --schemes drain,coalesced:8,50us";
    let ended = CommandOutput::of(&mut command(&net, arguments));
    ended.assert_code(4).assert_says("no connection to the peer");
    ended.assert_says(&format!("irqlab echo --listen {PEER}"));
    assert_eq!(settings(&net), before);
    let echo = Echo::start(&net);
    let run = CommandOutput::of(&mut command(&net, arguments)).assert_code(0).json();
    assert_eq!((&run["settings"]["rig"], &run["settings"]["nic"]), (&"nic".into(), &"v0".into()));
    assert_eq!(run["settings"]["packets_placed_by"], "steering (RPS)");
    for table in ["rates", "round_trips"] {
        let rows = rows(&run, table);
        assert_eq!(rows.len(), 1, "{run}");
        assert_eq!(rows[0]["scheme"], "drain");
    }
    let why = absence(&run, "coalesced:8,50us, idle").unwrap();
    assert!(why.contains("v0: its driver does not coalesce interrupts"), "{why}");
    let why = absence(&run, "drain, idle, during a bulk transfer").unwrap();
    assert!(why.contains("no bulk data"), "{why}");
    assert_eq!(settings(&net), before);
    // The peer cannot be reached through another interface.
    let ended = net.run(&["signal", "run", "--nic", "tap0", "--peer", PEER, "--rates", "500"]);
    ended.assert_code(4).assert_says("by way of tap0");
    drop(echo);
    for (arguments, says) in [
        ("--nic irqlab-no --peer 127.0.0.1:1", "there is no such network interface"),
        ("--nic lo --peer 127.0.0.1", "HOST:PORT"),
        ("--nic lo --peer :", "HOST:PORT"),
        ("--nic lo", "--peer"),
        ("--peer 127.0.0.1:1", "--nic"),
        ("--nic lo --peer 127.0.0.1:1 --rig veth", "cannot be used with"),
        ("--nic lo --peer 127.0.0.1:1 -d 31s", "at most 30s"),
        ("--nic lo --peer 127.0.0.1:1 --napi threaded", "only with --rig veth"),
        ("--hybrid irq-suspension", "only with --rig veth"),
        ("--rig veth --napi thread", "softirq, threaded"),
    ] {
        let arguments: Vec<&str> =
            ["signal", "run"].into_iter().chain(arguments.split(' ')).collect();
        check_refused(&arguments, says);
    }
}

/// A run that takes long.
const LONG: &str = "-d 50ms --repetitions 1000 --parts rates --rates 2k --schemes drain";

fn start(net: &Net) -> Child {
    command(net, LONG).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits for more than 1,000 datagrams from the peer, which takes several windows.
fn wait_for_windows(net: &Net, already: u64) {
    let received = || net.read("/sys/class/net/v0/statistics/rx_packets").parse::<u64>().unwrap();
    wait_until("datagrams come back", || received() > already + 1_000);
}

fn received(net: &Net) -> u64 {
    net.read("/sys/class/net/v0/statistics/rx_packets").parse().unwrap()
}

#[test]
fn a_peer_that_goes_away_leaves_a_partial_result_that_is_marked() {
    let _alone = alone();
    let Some(net) = net() else { return };
    let before = settings(&net);
    let echo = Echo::start(&net);
    let child = start(&net);
    wait_for_windows(&net, received(&net));
    drop(echo);
    let ended = CommandOutput::of_output(&child.wait_with_output().unwrap());
    let run = ended.assert_code(0).json();
    assert_eq!(run["complete"], false);
    assert!(rows(&run, "rates")[0]["repetitions"].as_u64().unwrap() > 0);
    let why = absence(&run, "drain, idle").unwrap();
    assert_eq!(why, format!("the peer {PEER} has gone away"));
    assert_eq!(settings(&net), before);
}

#[test]
fn the_card_is_as_before_after_ctrl_c_and_after_a_kill() {
    let _alone = alone();
    let Some(net) = net() else { return };
    let before = settings(&net);
    let _echo = Echo::start(&net);
    for end in [Signal::INT, Signal::KILL] {
        let child = start(&net);
        wait_for_windows(&net, received(&net));
        assert_ne!(settings(&net), before);
        signal(&child, end);
        let ended = CommandOutput::of_output(&child.wait_with_output().unwrap());
        if end == Signal::INT {
            assert_eq!(ended.assert_code(0).json()["complete"], false);
        } else {
            assert_eq!(ended.code, None);
            assert_ne!(settings(&net), before, "nobody could restore it");
            net.run(&["machines"])
                .assert_code(0)
                .assert_says("restored queues/rx-0/rps_cpus of v0");
        }
        assert_eq!(settings(&net), before, "{end:?}");
        assert!(net.names("/run/irqlab").is_empty());
    }
}

/// Only one irqlab at a time may use a card. A second irqlab would record the first one's settings as those to
/// restore.
#[test]
fn a_card_in_use_is_refused_with_the_process_that_uses_it() {
    let _alone = alone();
    let Some(net) = net() else { return };
    let timeout = "/sys/class/net/v0/gro_flush_timeout";
    let set = |value: &str| {
        let line = format!("echo {value} > {timeout}");
        CommandOutput::of(&mut net.near("sh", &["-c", &line])).assert_code(0);
    };
    set("7000");
    let before = settings(&net);
    let apply =
        ["signal", "advise", "--rate", "10k", "--nic", "v0", "--schemes", "drain", "--apply"];
    net.run(&apply).assert_code(0);
    let applied = settings(&net);
    assert_ne!(applied, before);
    let _echo = Echo::start(&net);
    let run = start(&net);
    wait_for_windows(&net, received(&net));
    let in_force = settings(&net);
    assert_ne!(in_force, applied);
    let says = format!("v0 is being changed by irqlab process {}", run.id());
    let short = "-d 50ms --repetitions 1 --parts rates --rates 500 --schemes drain";
    let others =
        [command(&net, short), net.near(IRQLAB, &apply), net.near(IRQLAB, &["signal", "undo"])];
    let others: Vec<Child> = others
        .into_iter()
        .map(|mut command| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    for (other, code) in others.into_iter().zip([4, 4, 1]) {
        let ended = CommandOutput::of_output(&other.wait_with_output().unwrap());
        ended.assert_code(code).assert_says(&says);
    }
    assert_eq!(settings(&net), in_force, "nobody else has changed it");
    signal(&run, Signal::INT);
    CommandOutput::of_output(&run.wait_with_output().unwrap()).assert_code(0);
    assert_eq!(settings(&net), applied);
    net.run(&["signal", "undo"]).assert_code(0);
    assert_eq!(settings(&net), before);
    assert!(net.names("/run/irqlab").is_empty());
}
