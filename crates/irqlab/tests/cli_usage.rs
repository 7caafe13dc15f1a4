//! What is typed wrong ends in 2 before anything is measured, and names what is allowed.

mod cli_support;

use cli_support::{Place, check_refused};

#[test]
fn cpus() {
    check_refused(&["handlers", "-c", "9999"], "CPU 9999 is not online here; online: ");
    check_refused(&["handlers", "-c", "70000"], "the highest accepted is 65535");
    check_refused(&["handlers", "-c", "x"], "`x` is not a CPU number or a range such as 0-3");
    check_refused(&["handlers", "-c", "3-0"], "the range `3-0` ends before it begins");
    check_refused(&["handlers", "-c", "0,"], "is not a CPU number");
    check_refused(&["handlers", "-c", ""], "is empty; online: ");
    check_refused(&["handlers", "-H", "9999"], "CPU 9999 is not online here");
}

#[test]
fn times() {
    check_refused(&["handlers", "-d", "0"], "allowed: 1us to 168h");
    check_refused(&["handlers", "-d", "-1s"], "a number and a unit, as in 30s");
    check_refused(&["handlers", "-d", "1x"], "allowed: us, ms, s, m, h");
    check_refused(&["handlers", "-d", "169h"], "allowed: 1us to 168h");
    check_refused(&["handlers", "--warm-up", ""], "a number and a unit");
    check_refused(&["handlers", "--low-interval", "1us"], "is not within 100µs to 60s");
}

#[test]
fn words() {
    check_refused(&["handlers", "--source", "floppy"], "allowed: disk, net, timer, ipi, none");
    check_refused(&["handlers", "--source", "disk,,net"], "allowed: disk, net, timer, ipi, none");
    check_refused(&["handlers", "--source="], "allowed: disk, net, timer, ipi, none");
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
    check_refused(&misses, "--misses is for --detail ooo");
}

#[test]
fn what_no_condition_would_use() {
    check_refused(
        &["handlers", "--peer", "host"],
        "--peer is for the net source; add --source net",
    );
    check_refused(&["handlers", "--disk-file", "/dev/vda"], "add --source disk");
    check_refused(&["handlers", "--source", "disk", "--", "true"], "leave out one or the other");
}

#[test]
fn what_only_one_of_the_benches_can() {
    let sim = |words: &[&str], says: &str| {
        check_refused(&[&["handlers", "--on", "sim"], words].concat(), says)
    };
    check_refused(&["handlers", "--mem", "1G"], "--mem is for a simulated machine; add --on sim");
    check_refused(&["handlers", "--quantum", "9"], "--quantum is for a simulated machine");
    sim(&["--attach", "raw_tp"], "--attach is for --on live");
    sim(&["--source", "net", "--peer", "host"], "--peer is for --on live");
    sim(&["-c", "0-3"], "how many CPUs the machine has: 1 to 16");
    sim(&["-c", "17"], "how many CPUs the machine has: 1 to 16");
    sim(&["-H", "1"], "the machine has no CPU 1; it has 1");
    sim(&["--quantum", "0"], "--quantum 0: allowed: 1 to");
    check_refused(&["handlers", "--on", "sim:z80"], "no model \"z80\"; there are: ");
}

#[test]
fn peers() {
    for peer in ["", "host:", ":1", "host:0", "host:x", "host:70000"] {
        check_refused(&["handlers", "--source", "net", "--peer", peer], "is not HOST or HOST:PORT");
    }
}

#[test]
fn a_run_directory_is_never_replaced() {
    let place = Place::new();
    std::fs::write(place.path().join("there"), "precious").unwrap();
    let ended = place.run(&["handlers", "--out", "there"]);
    ended.assert_code(2).assert_says("there exists already; a run never replaces one");
    assert_eq!(std::fs::read(place.path().join("there")).unwrap(), b"precious");
    assert_eq!(place.names(), ["there"]);
}

#[test]
fn completions_and_manual_pages() {
    let place = Place::new();
    let ended = place.run(&["completions", "bash"]);
    assert!(ended.assert_code(0).out.contains("--low-interval"), "{}", ended.out);
    place.run(&["man", "man1"]).assert_code(0);
    let pages = cli_support::names(&place.path().join("man1"));
    assert!(pages.contains(&"irqlab-handlers.1".to_owned()), "{pages:?}");
    assert!(!pages.iter().any(|page| page.contains("stimulus")), "hidden: {pages:?}");
}

#[test]
fn machine_models() {
    check_refused(&["machines", "z80"], "no model \"z80\"; there are: cortex-a55, ");
    check_refused(&["machines", "zen3", "--set", "l2.size=5"], "l2.size: integer is given");
    check_refused(&["machines", "zen3", "--set", "l2.size"], "is not FIELD=VALUE, as l2.size=4MiB");
    check_refused(&["machines", "--set", "l2.size=1MiB"], "required arguments were not provided");
    check_refused(&["machines", "./none.toml"], "none.toml");
    let place = Place::new();
    let text = place.run(&["machines", "zen3", "--toml"]).assert_code(0).out.clone();
    let broken = text.replacen("ways = 8", "ways = 0", 1);
    let line = broken.lines().position(|line| line == "ways = 0").unwrap() + 1;
    std::fs::write(place.path().join("mine.toml"), broken).unwrap();
    let says = format!("mine.toml: line {line}: l1i.ways: 0 is not in 1..=64");
    place.run(&["machines", "mine.toml"]).assert_code(2).assert_says(&says);
    let list = place.run(&["machines"]).assert_code(0).out.clone();
    assert_eq!(list.lines().count(), 17, "{list}");
    let drawn = place.run(&["machines", "r4400-1994", "--set", "l2.size=4MiB"]);
    assert!(drawn.assert_code(0).out.contains("└ L2          4 MiB, 1 way,"), "{}", drawn.out);
}
