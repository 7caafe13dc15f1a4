//! `irqlab signal run` on a simulated machine. Without QEMU the tests say so and pass.

use serde_json::Value as Json;
use sim::Cache;

use crate::support::{Place, absence, can_simulate, names, rows};

/// An old machine needs few simulated cycles.
const ON: &str = "--on sim:r4400-1994 --loads background --repetitions 1";
const WINDOW_S: f64 = 0.04;

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
    let run = measured(&workspace, arguments);
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
                 --socket-buffers 8 --schemes drain --seed 7";
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
    let run = measured(&workspace, arguments);
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
