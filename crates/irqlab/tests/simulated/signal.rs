//! `irqlab signal run` on a simulated machine. Without QEMU the tests say so and pass.

use serde_json::Value as Json;
use sim::Cache;

use crate::support::{Place, absence, can_simulate, names, rows};

/// An old machine needs few simulated cycles.
const ON: &str = "--on sim:r4400-1994 --loads background";
const WINDOW_S: f64 = 0.04;
/// A window has no CPU use if the kernel had work of its own in the control. One of three has.
const THREE_WINDOWS: &str = "--repetitions 3";

fn measured(workspace: &Place, arguments: &str) -> Json {
    let line = format!("signal run -q --json -d 40ms {ON} {arguments}");
    let run = workspace.run(&line.split_whitespace().collect::<Vec<_>>()).assert_code(0).json();
    assert_eq!((&run["bench"], &run["complete"]), (&"sim".into(), &true.into()));
    run
}

fn number(row: &Json, column: &str) -> f64 {
    row[column].as_f64().unwrap_or_else(|| panic!("{column}: {row}"))
}

fn scheme_row<'a>(run: &'a Json, scheme: &str) -> &'a Json {
    let found = rows(run, "rates").iter().find(|row| row["scheme"] == scheme);
    found.unwrap_or_else(|| panic!("{scheme}: {run}"))
}

/// How often something happened in the window.
fn count(run: &Json, scheme: &str, column: &str) -> f64 {
    number(scheme_row(run, scheme), column) * WINDOW_S
}

#[test]
fn schemes_between_two_cards_are_counted() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = "--parts rates --rates 1k --schemes drain,deferred:5ms,spin,interrupt";
    let run = measured(&workspace, &format!("{arguments} {THREE_WINDOWS}"));
    assert_eq!(run["settings"]["rig"], "virtio-net");
    // A NET_RX softirq comes from NAPI's timer or from an interrupt of the card.
    let expirations = WINDOW_S / 0.005 + 1.0;
    let deferred = |column| count(&run, "deferred:5ms", column);
    let from_timer = deferred("net_rx_hz") - deferred("card_interrupts_hz");
    assert!(from_timer <= expirations, "{run}");
    let drain = count(&run, "drain", "card_interrupts_hz");
    assert!(4.0 * deferred("card_interrupts_hz") < drain && expirations < drain, "{run}");
    // Handling many packets at once takes less CPU time, and increases their latency.
    let [drain, deferred, spin] = ["drain", "deferred:5ms", "spin"]
        .map(|scheme| number(scheme_row(&run, scheme), "cpu_ratio"));
    assert!(0.0 < deferred && deferred < drain && drain < spin && spin <= 1.0, "{run}");
    let latency = |scheme| number(scheme_row(&run, scheme), "latency_mean_ns");
    assert!(latency("drain") < latency("deferred:5ms"), "{run}");
    let why = absence(&run, "interrupt, background").expect("the kernel drains");
    assert!(why.contains("drains after each interrupt"), "{why}");
}

#[test]
fn all_parts_are_repeatable_to_the_byte() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = "--parts rates,throughput,round-trips --rates 1k --request-rate 100 \
                 --socket-buffers 8 --schemes drain --seed 7 --repetitions 1";
    let run = measured(&workspace, &format!("{arguments} -j 2 --out first"));
    measured(&workspace, &format!("{arguments} -j 1 --out second"));
    let tables = names(&workspace.path().join("first/tables"));
    assert!(tables.len() >= 3, "{tables:?}");
    for table in tables {
        let bytes = |run: &str| {
            std::fs::read(workspace.path().join(run).join("tables").join(&table)).unwrap()
        };
        assert!(bytes("first") == bytes("second"), "{table}");
    }
    let [transfer] = rows(&run, "throughput") else { panic!("{run}") };
    assert!(number(transfer, "throughput_bytes_per_second") > 0.0, "{transfer}");
    let trips = rows(&run, "round_trips");
    assert_eq!(trips.len(), 2, "{run}");
    assert!(trips.iter().all(|row| row["answered_count"].as_u64() > Some(0)), "{run}");
    // The window has only four requests. They take less time than the background loop's speed varies.
    let [alone, bulk] = [false, true].map(|is_bulk| {
        let row = trips.iter().find(|row| row["bulk"] == is_bulk).expect("a row of each");
        number(row, "cpu_ratio")
    });
    assert!(bulk > 0.0 && bulk > alone, "{run}");
}

#[test]
fn a_throttled_card_interrupts_no_more_often_than_it_may() {
    let workspace = Place::new();
    // The kernel with the driver of the card is a separate download.
    let has_kernel =
        Cache::from_environment().is_ok_and(|cache| cache.path("kernel-full.latest").exists());
    if !has_kernel {
        needs::not_run(needs::Need::Other, "no full kernel (irqlab sim setup --flavour full)");
        return;
    }
    if !can_simulate(&workspace) {
        return;
    }
    let arguments =
        "--rig e1000 --parts rates --rates 2k --schemes drain,clocked:2ms,spin,coalesced:8,1ms";
    let run = measured(&workspace, &format!("{arguments} {THREE_WINDOWS}"));
    let throttled = count(&run, "clocked:2ms", "card_interrupts_hz");
    // One more interrupt may be due at the start of the window.
    assert!(throttled <= WINDOW_S / 0.002 + 1.0, "{run}");
    assert!(throttled < count(&run, "drain", "card_interrupts_hz"), "{run}");
    assert!(count(&run, "spin", "card_interrupts_hz") <= 1.0, "{run}");
    let cpu_ratio = |scheme| number(scheme_row(&run, scheme), "cpu_ratio");
    assert!(cpu_ratio("clocked:2ms") < cpu_ratio("drain"));
    let why = absence(&run, "coalesced:8,1ms, background").expect("it counts no packets");
    assert!(why.contains("counts no packets"), "{why}");
}

#[test]
fn a_disk_interrupts_for_each_read_unless_it_is_polled_or_coalesced() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments = "--rig nvme --disk nvme,size=64M,latency=1ms --rates 200 -j 2 --repetitions 1 \
                 --schemes interrupt,poll,coalesced:2,20ms,hybrid:1,20us";
    let run = measured(&workspace, &format!("{arguments} --out first"));
    assert_eq!(
        (&run["settings"]["rig"], &run["settings"]["disk"]),
        (&"nvme".into(), &"/dev/nvme0n1".into())
    );
    assert_eq!(run["settings"]["disk_has_poll_queue"], true);
    // One interrupt for each read, except that reads which complete at nearly the same time share one.
    let per_read = |scheme| number(scheme_row(&run, scheme), "disk_interrupts_per_event");
    assert!((0.7..=1.2).contains(&per_read("interrupt")), "{run}");
    assert_eq!(per_read("poll"), 0.0, "{run}");
    assert!(per_read("coalesced:2,20ms") <= 0.7, "{run}");
    // No read takes less time than the disk, and reads that wait for another one take more.
    let latency = |scheme| number(scheme_row(&run, scheme), "latency_mean_ns");
    assert!(1e6 < latency("poll") && latency("poll") < latency("coalesced:2,20ms"), "{run}");
    assert!(1e6 < latency("interrupt"), "{run}");
    for scheme in ["interrupt", "poll", "coalesced:2,20ms"] {
        let row = scheme_row(&run, scheme);
        assert_eq!((&row["dropped_ratio"], &row["card_interrupts_hz"]), (&0.0.into(), &Json::Null));
        assert!(row["lateness_p99_ns"].is_null(), "{row}");
    }
    let why = absence(&run, "hybrid:1,20us, background").expect("Linux has none");
    assert!(why.contains("ignores io_poll_delay"), "{why}");
    // A second run of the command gives the same counts.
    let again = measured(&workspace, &format!("{arguments} --out second"));
    assert_eq!(rows(&run, "rates"), rows(&again, "rates"));
}
