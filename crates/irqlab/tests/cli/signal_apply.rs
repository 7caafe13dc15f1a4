//! `irqlab signal advise --apply` and `signal undo`. Advice is applied completely or not at all. It stays until
//! `undo` restores the settings.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};

use crate::support::{CommandOutput, IRQLAB, Net, absence, alone, check_refused, names, rows};

use signalling::Scheme;

const ATTRIBUTES: [&str; 3] = ["gro_flush_timeout", "napi_defer_hard_irqs", "threaded"];

/// All settings that advice may change. The veth has a NAPI instance, and the tap device coalesces.
fn settings(net: &Net) -> BTreeMap<String, String> {
    let attribute = |nic: &str, name: &str| {
        (format!("{nic} {name}"), net.read(&format!("/sys/class/net/{nic}/{name}")))
    };
    let attributes = |nic: &'static str| ATTRIBUTES.map(|name| attribute(nic, name));
    let mut all: BTreeMap<String, String> =
        attributes("v0").into_iter().chain(attributes("tap0")).collect();
    let run = advise(net, TAP, "--schemes drain").assert_code(0).json();
    let coalescing = rows(&run, "lines").iter().find(|row| row["setting"] == "coalescing");
    all.insert("coalescing".to_owned(), coalescing.unwrap()["now"].as_str().unwrap().to_owned());
    all
}

const TAP: &str = "tap0";
const VETH: &str = "v0";
/// Keys of [`settings`] for [`VETH`].
const FLUSH_TIMEOUT: &str = "v0 gro_flush_timeout";
const DEFER: &str = "v0 napi_defer_hard_irqs";

/// Environment variable that makes a process of this program switch NAPI on.
const CHILD: &str = "IRQLAB_TEST_NAPI_ON";

/// Not a test: [`net`] starts this function in the near namespace.
#[test]
fn child_that_gives_the_veth_a_napi_instance() {
    if std::env::var_os(CHILD).is_some() {
        let veth = live::nic::Interface::find(VETH).unwrap();
        live::nic::Setting::Gro.write(&veth, "on").unwrap();
    }
}

/// A network whose veth has a NAPI instance.
pub fn net() -> Option<Net> {
    let net = Net::prepared()?;
    let this_program = std::env::current_exe().unwrap();
    let test = "signal_apply::child_that_gives_the_veth_a_napi_instance";
    let mut child = net.near(this_program.to_str().unwrap(), &[test, "--exact"]);
    CommandOutput::of(child.env(CHILD, "1")).assert_code(0);
    Some(net)
}

fn advise_arguments(nic: &str, more: &str) -> Vec<String> {
    let line = format!("signal advise --rate 10k --json --nic {nic} {more}");
    line.split_whitespace().map(str::to_owned).collect()
}

fn advise(net: &Net, nic: &str, more: &str) -> CommandOutput {
    let arguments = advise_arguments(nic, more);
    net.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

const DEFERRED: &str = "--schemes deferred:50us --apply";

#[test]
fn a_scheme_that_is_applied_stays_and_is_undone_to_what_was_before_the_first() {
    let _alone = alone();
    let Some(net) = net() else { return };
    let before = settings(&net);
    let run = advise(&net, VETH, DEFERRED).assert_code(0).json();
    let applied = rows(&run, "applied");
    let setting = |name: &str| applied.iter().find(|row| row["setting"] == name).unwrap();
    assert_eq!(setting("gro_flush_timeout")["in_force"], "50000");
    assert_eq!(setting("napi_defer_hard_irqs")["before"], before[DEFER]);
    advise(&net, TAP, "--schemes drain --apply").assert_code(0);
    let after = settings(&net);
    assert_eq!(after[FLUSH_TIMEOUT], "50000");
    assert_eq!(after[DEFER], "2147483647");
    assert_eq!((&*before["coalescing"], &*after["coalescing"]), ("rx-frames 0", "rx-frames 1"));
    // The next start of a verb does not undo the settings.
    net.run(&["machines"]).assert_code(0);
    assert_eq!(settings(&net), after);
    advise(&net, VETH, "--schemes deferred:80us --apply").assert_code(0);
    assert_eq!(settings(&net)[FLUSH_TIMEOUT], "80000");
    // The undo of another interface restores nothing here. An undo in another network refuses, and says how to
    // enter the right network.
    let undone = net.run(&["signal", "undo", "--nic", "lo"]);
    assert!(undone.assert_code(0).out.contains("there is nothing to restore"), "{}", undone.out);
    let refusal = "tap0 is in network namespace";
    for (arguments, code) in
        [(&["signal", "undo"][..], 1), (&["signal", "undo", "--nic", "tap0"], 4)]
    {
        let elsewhere = CommandOutput::of(&mut net.near_mounts(IRQLAB, arguments));
        elsewhere.assert_code(code).assert_says(refusal).assert_says(": nsenter -t ");
    }
    // An undo in another network with its own `tap0` refuses as well. With `-npf` it cannot see processes of the
    // right network.
    let script = format!(
        "mount -t sysfs sysfs /sys && ip tuntap add dev tap0 mode tap && {IRQLAB} signal undo --nic tap0; \
         echo ended: $?; {IRQLAB} signal undo; echo ended: $?"
    );
    for (options, how) in [("-n", ": nsenter -t "), ("-npf", "; if the namespace has ended, ")] {
        let arguments = [options, "--mount", "--mount-proc", "sh", "-c", &script];
        let near = CommandOutput::of(&mut net.near_mounts("unshare", &arguments));
        near.assert_code(0).assert_says(refusal).assert_says(how);
        assert_eq!(near.out, "ended: 4\nended: 1\n", "{}", near.err);
    }
    assert_eq!(settings(&net)[FLUSH_TIMEOUT], "80000");
    let undone = net.run(&["signal", "undo", "--nic", "tap0"]);
    assert!(undone.assert_code(0).out.contains("restored coalescing of tap0"), "{}", undone.out);
    assert_eq!(settings(&net)[FLUSH_TIMEOUT], "80000", "the setting of the other interface");
    net.run(&["signal", "undo"]).assert_code(0);
    assert_eq!(settings(&net), before);
    assert!(net.names("/run/irqlab").is_empty());
    assert!(
        net.run(&["signal", "undo"]).assert_code(0).out.contains("there is nothing to restore")
    );
}

#[test]
fn schemes_that_are_applied_concurrently_are_all_undone() {
    let _alone = alone();
    let Some(net) = net() else { return };
    let timeout = "/sys/class/net/tap0/gro_flush_timeout";
    let set = format!("echo 7000 > {timeout}");
    CommandOutput::of(&mut net.near("sh", &["-c", &set])).assert_code(0);
    let before = settings(&net);
    let arguments = advise_arguments(TAP, "--schemes drain --apply");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let start = |_| net.near(IRQLAB, &arguments).stdout(Stdio::null()).spawn().unwrap();
    let children: Vec<Child> = (0..6).map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(net.read(timeout), "0");
    // Each has a run, although all started in the same second.
    assert_eq!(names(&net.place().path().join("irqlab-runs")).len(), 7);
    net.run(&["signal", "undo"]).assert_code(0);
    assert_eq!(settings(&net), before);
    assert!(net.names("/run/irqlab").is_empty());
}

#[test]
fn a_refused_setting_leaves_no_setting_changed() {
    let _alone = alone();
    let Some(net) = net() else { return };
    let before = settings(&net);
    let check = |nic: &str, more: &str, code: i32, says: &str| {
        advise(&net, nic, more).assert_code(code).assert_says(says);
        assert_eq!(settings(&net), before, "{more}");
        assert!(net.names("/run/irqlab").is_empty(), "{more}");
    };
    // The driver has no NAPI that a thread could poll. It refuses after the other settings were written.
    check(TAP, "--schemes drain --quota 16 --apply", 1, "tap0 refuses threaded = 1");
    // The kernel would accept these settings, but they would have no effect.
    check(TAP, DEFERRED, 4, "it has no NAPI instance");
    check(TAP, "--schemes coalesced:8,50us --apply", 4, "its driver has no rx-usecs");
    check(TAP, "--schemes yield --apply", 4, "a program that polls must");
    // These sysctls belong to the machine. A network namespace does not have them.
    check(VETH, "--schemes spin --apply", 4, "net.core.busy_read: it cannot be read");
    check(TAP, "--schemes hybrid:1,20us --apply", 4, "it has no NAPI instance");
    check(TAP, "--latency-bound 1us --cpu-budget 1% --apply", 4, "no scheme keeps all");
    // A clock with this period keeps the bound. Linux has no such clock, and its substitute is slower.
    let clock = "--schemes clocked:100us --latency-bound 100us --apply";
    check(VETH, clock, 4, "no scheme keeps all requested limits (deferred:100us comes nearest)");
    // A veth does not coalesce. So no coalescing scheme is advised or applied.
    let veth = ["signal", "advise", "--rate", "10k", "--nic", "v0", "--json"];
    let run = net.run(&veth).assert_code(0).json();
    let why = absence(&run, "coalesced schemes");
    assert_eq!(why, Some("its driver does not coalesce interrupts"));
    let is_coalesced =
        |row: &serde_json::Value| row["scheme"].as_str().unwrap().starts_with("coalesced");
    assert!(!rows(&run, "advice").iter().any(is_coalesced));
    let refused = net.run(&[&veth[..], &["--apply", "--schemes", "coalesced:8,50us"]].concat());
    refused.assert_code(4).assert_says("its driver does not coalesce interrupts");
    // Without the right to set, the first write fails.
    let arguments = advise_arguments(VETH, DEFERRED);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let unprivileged = [&["--bounding-set", "-net_admin", IRQLAB], &arguments[..]].concat();
    let refused = CommandOutput::of(&mut net.near("setpriv", &unprivileged));
    refused
        .assert_code(4)
        .assert_says("no setting was changed: gro_flush_timeout of v0 cannot be set");
    refused.assert_says("run it as root (CAP_NET_ADMIN");
    assert_eq!(settings(&net), before);
    check_refused(&["signal", "advise", "--rate", "1k", "--apply"], "--nic <NAME>");
    check_refused(&["signal", "undo", "--nic", "irqlab-no"], "there is no such network interface");
}

/// irqlab applies the scheme that it recommends, and this scheme keeps the bound.
#[test]
fn the_recommended_scheme_is_applied() {
    let _alone = alone();
    let Some(net) = net() else { return };
    let run = advise(&net, VETH, "--latency-bound 100us --apply").assert_code(0).json();
    let advice = rows(&run, "advice");
    assert_eq!((&advice[0]["rank"], &advice[0]["keeps_all"]), (&1.into(), &true.into()));
    let is_missing_in_linux = |row: &serde_json::Value| {
        let scheme = row["scheme"].as_str().unwrap();
        scheme.starts_with("clocked") || scheme == "interrupt"
    };
    assert!(!advice.iter().any(is_missing_in_linux), "{advice:?}");
    let why = absence(&run, "clocked schemes");
    assert_eq!(why, Some("Linux restarts the timer after each handling, as deferred does"));
    let in_force = net.read("/sys/class/net/v0/gro_flush_timeout");
    let scheme = advice[0]["scheme"].as_str().unwrap();
    let timeout_ns = match scheme.parse().unwrap() {
        Scheme::Deferred { delay_ns } => delay_ns,
        Scheme::Drain { .. } => 0,
        other => panic!("{other} is set in another way"),
    };
    assert_eq!(in_force, timeout_ns.to_string(), "{scheme}");
    net.run(&["signal", "undo"]).assert_code(0);
}

/// Runs irqlab, and sends `signal` to it at system call number `when` with the name `calls`.
fn signalled(net: &Net, signal: &str, calls: &str, when: u32, arguments: &[&str]) -> CommandOutput {
    let trace = match calls {
        "openat" => vec!["-P", "/sys/class/net/v0/napi_defer_hard_irqs"],
        _ => Vec::new(),
    };
    let (trace_of, inject) =
        (format!("trace={calls}"), format!("inject={calls}:signal={signal}:when={when}"));
    let options = ["-f", "-qq", "-o", "/dev/null", "-e", &trace_of, "-e", &inject];
    CommandOutput::of(
        &mut net.near("strace", &[&trace[..], &options, &[IRQLAB], arguments].concat()),
    )
}

/// Maximum number of steps before the signal comes after the last system call.
const STEPS_MAX: u32 = 60;

#[test]
fn a_signal_at_any_step_leaves_all_or_nothing_set() {
    let _alone = alone();
    let Some(net) = net() else { return };
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        return needs::not_run(needs::Need::Strace, "there is no strace");
    }
    let before = settings(&net);
    let apply = advise_arguments(VETH, DEFERRED);
    let apply: Vec<&str> = apply.iter().map(String::as_str).collect();
    let mut found_half_set = 0;
    for (signal, calls) in [
        ("SIGKILL", "openat"),
        ("SIGKILL", "rename"),
        ("SIGKILL", "renameat2"),
        ("SIGKILL", "unlink"),
        ("SIGINT", "openat"),
    ] {
        for when in 1..=STEPS_MAX {
            assert!(when < STEPS_MAX, "{signal}, {calls}");
            let ended = signalled(&net, signal, calls, when, &apply);
            let step = format!("{signal} at {calls} {when}: {}", ended.err);
            if ended.code == Some(0) {
                assert_eq!(net.read("/sys/class/net/v0/gro_flush_timeout"), "50000", "{step}");
                net.run(&["signal", "undo"]).assert_code(0);
            }
            let is_changed = net.read("/sys/class/net/v0/gro_flush_timeout") != "0";
            if signal == "SIGINT" {
                assert!(!is_changed, "{step}");
                assert!(net.names("/run/irqlab").is_empty(), "{step}");
            }
            found_half_set += u32::from(is_changed);
            // Before the deciding rename, the next start restores the settings. After it, `undo` restores them.
            let next = net.run(&["machines"]);
            let is_kept = net.names("/run/irqlab").iter().any(|name| name.starts_with("kept"));
            if is_kept {
                assert!(!next.err.contains("restored"), "{step}: {}", next.err);
                net.run(&["signal", "undo"]).assert_code(0);
            }
            assert_eq!(settings(&net), before, "{step}");
            assert!(net.names("/run/irqlab").is_empty(), "{step}");
            if ended.code == Some(0) {
                break;
            }
        }
    }
    println!("{found_half_set} kills left settings changed");
    assert!(found_half_set >= 4, "{found_half_set}");
    // The next undo finishes a killed undo.
    let mut found_half_undone = 0;
    for when in 1..=STEPS_MAX {
        assert!(when < STEPS_MAX);
        advise(&net, VETH, DEFERRED).assert_code(0);
        let ended = signalled(&net, "SIGKILL", "openat", when, &["signal", "undo"]);
        let is_changed = net.read("/sys/class/net/v0/gro_flush_timeout") != "0";
        found_half_undone += u32::from(is_changed);
        net.run(&["signal", "undo"]).assert_code(0);
        assert_eq!(settings(&net), before, "SIGKILL at step {when} of undo");
        if ended.code == Some(0) {
            break;
        }
    }
    assert!(found_half_undone >= 1);
}
