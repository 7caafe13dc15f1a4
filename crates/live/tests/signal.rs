//! Checks by counts, never by times, that each scheme does what its name says.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lab::experiment::{Bench, BenchError};
use lab::signal::{Load, RatePoint, RateWindow, Rig, RoundTripPoint, SignalBench, TransferPoint};
use live::signal::{LiveSignal, SignalSettings, VethPolling};
use live::window::Stop;
use signalling::Scheme;

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bench; `None`, with a line on stderr, if this machine does not have the rig.
fn bench(rig: Rig) -> Option<LiveSignal> {
    bench_that_polls(rig, VethPolling::default())
}

/// Like `bench`, with a veth that polls as `polling` says.
fn bench_that_polls(rig: Rig, polling: VethPolling) -> Option<LiveSignal> {
    let second = Path::new("/sys/devices/system/cpu/cpu1");
    if !second.exists() {
        needs::not_run(needs::Need::Cpus, "sender and receiver need a CPU each");
        return None;
    }
    let settings = SignalSettings {
        rig,
        polling,
        card: None,
        sender_cpu: 0,
        receiver_cpu: 1,
        length: Duration::from_millis(200),
        work_additions: 0,
        stop: Stop::new().unwrap(),
        observer: None,
    };
    match LiveSignal::new(settings) {
        Ok(bench) => Some(bench),
        Err(BenchError::Unavailable { reason, .. }) => {
            needs::not_run(needs::Need::Namespaces, reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn window(bench: &mut LiveSignal, scheme: &str, load: Load, rate_hz: u64) -> RateWindow {
    let point = RatePoint { scheme: scheme.parse().unwrap(), load, rate_hz };
    bench.rate_window(&point, 7).unwrap_or_else(|error| panic!("{scheme}: {error}"))
}

/// No event is lost or counted twice. Events of the warm-up, which is a tenth of the
/// window, have no latency.
fn check_balance(window: &RateWindow) {
    let RateWindow { offered, delivered, dropped, latency, lateness, .. } = window;
    assert!(*offered > 0 && delivered + dropped <= *offered, "{window:?}");
    assert!(latency.count + dropped <= *offered);
    assert!(latency.count + dropped + offered / 4 >= *offered, "{} of {offered}", latency.count);
    // An event has a latency unless it was dropped or due in the warm-up, which has no lateness
    // either.
    assert_eq!(latency.count, lateness.count - dropped.min(&lateness.count));
}

#[test]
fn between_threads_every_event_is_handled_and_signalled_as_the_scheme_says() {
    let _alone = alone();
    let Some(mut bench) = bench(Rig::Threads) else { return };
    for load in Load::ALL {
        for scheme in [
            "interrupt",
            "drain",
            "spin",
            "yield",
            "clocked:1ms",
            "deferred:1ms",
            "coalesced:16,2ms",
            "hybrid:4,100us",
        ] {
            let window = window(&mut bench, scheme, load, 2_000);
            assert_eq!(window.dropped, 0, "{scheme}");
            check_balance(&window);
            let activity = &window.activity;
            assert_eq!(activity.leftover.is_some(), load != Load::Idle);
            let signals = activity.signals.unwrap_or(0);
            let ticks = activity.window_ns / 1_000_000 + 2;
            match scheme {
                // The window's last event may be signalled in the window and handled after it.
                "interrupt" => assert!(signals.abs_diff(window.delivered) <= 1, "{window:?}"),
                "drain" | "hybrid:4,100us" => assert!((1..=window.offered).contains(&signals)),
                "spin" | "yield" => assert_eq!(activity.signals, None),
                "clocked:1ms" | "deferred:1ms" => assert!((1..=ticks).contains(&signals)),
                // Signals by count, or after 2 ms.
                _ => assert!(signals <= window.offered / 16 + activity.window_ns / 2_000_000 + 2),
            }
        }
    }
}

#[test]
fn a_full_ring_drops_events_and_counts_them() {
    let _alone = alone();
    let Some(mut bench) = bench(Rig::Threads) else { return };
    // 4,096 slots, and one look each second. A second is longer than the window.
    let window = window(&mut bench, "deferred:1s", Load::Idle, 200_000);
    assert_eq!((window.delivered, window.dropped), (0, window.offered - 4_096));
}

#[test]
fn the_same_seed_offers_the_same_events() {
    let _alone = alone();
    let Some(mut bench) = bench(Rig::Threads) else { return };
    let counts = [1, 1, 2].map(|seed| {
        let point = RatePoint { scheme: Scheme::Spin, load: Load::Idle, rate_hz: 50_000 };
        bench.rate_window(&point, seed).unwrap().offered
    });
    // The window's length depends on the machine, and with it the number of the last
    // events. The rate does not.
    assert!(counts[0].abs_diff(counts[1]) * 20 < counts[0], "{counts:?}");
}

#[test]
fn on_a_veth_napi_is_signalled_as_the_scheme_says() {
    let _alone = alone();
    let Some(mut bench) = bench(Rig::Veth) else { return };
    let counted = bench.facts().absent.is_empty();
    for scheme in ["drain", "clocked:1ms", "deferred:5ms", "spin", "yield", "hybrid:1,50us"] {
        let window = window(&mut bench, scheme, Load::Idle, 2_000);
        check_balance(&window);
        assert_eq!(window.dropped, 0, "{scheme}");
        let activity = &window.activity;
        if !counted {
            needs::not_run(needs::Need::Tracefs, "napi_poll cannot be counted");
            continue;
        }
        let signals = activity.signals.unwrap();
        assert!(signals > 0, "{scheme}: {activity:?}");
        // NAPI's timer restarts after each poll, so polls are at least its interval apart.
        match scheme {
            "clocked:1ms" => assert!(signals <= activity.window_ns / 1_000_000 + 2),
            "deferred:5ms" => assert!(signals <= activity.window_ns / 5_000_000 + 2),
            "drain" => assert!(activity.net_rx.unwrap() > 0),
            // Most polls of a spinning receiver find nothing.
            "spin" | "yield" => assert!(activity.polls.unwrap() > signals),
            _ => {}
        }
    }
    for (scheme, remedy) in [
        ("interrupt", "--schemes drain"),
        ("coalesced:16,1ms", "--rig threads"),
        ("hybrid:4,50us", "hybrid:1,50000ns"),
    ] {
        let point = RatePoint { scheme: scheme.parse().unwrap(), load: Load::Idle, rate_hz: 1_000 };
        let error = bench.rate_window(&point, 1).unwrap_err();
        assert!(error.remedy().is_some_and(|text| text.contains(remedy)), "{scheme}: {error:?}");
    }
}

#[test]
fn on_a_veth_a_thread_of_the_kernel_polls_where_that_is_asked_for() {
    let _alone = alone();
    let polling = VethPolling { is_threaded: true, ..VethPolling::default() };
    let Some(mut bench) = bench_that_polls(Rig::Veth, polling) else { return };
    assert_eq!(bench.facts().settings["napi"], "threaded");
    for scheme in ["drain", "clocked:1ms", "spin", "hybrid:1,50us"] {
        let window = window(&mut bench, scheme, Load::Background, 2_000);
        // On a busy machine the thread may wait for longer than the end of a window lasts.
        assert!(window.delivered > 0, "{scheme}: {window:?}");
        let thread_ns = window.activity.softirq_thread_ns.unwrap();
        // A spinning receiver polls by itself, and so leaves nothing to the thread.
        assert!(thread_ns > 0 || scheme == "spin", "{scheme}: {window:?}");
    }
}

#[test]
fn on_a_veth_a_hybrid_suspends_interrupts_where_that_is_asked_for() {
    let _alone = alone();
    let polling = VethPolling { suspends: true, ..VethPolling::default() };
    let Some(mut bench) = bench_that_polls(Rig::Veth, polling) else { return };
    assert_eq!(bench.facts().settings["hybrid"], "irq-suspension");
    for scheme in ["hybrid:1,50us", "hybrid:1,1ms", "drain"] {
        let window = window(&mut bench, scheme, Load::Idle, 2_000);
        assert!(window.delivered > 0, "{scheme}: {window:?}");
    }
    let scheme: Scheme = "hybrid:1,50us".parse().unwrap();
    let point = RoundTripPoint { scheme, load: Load::Idle, rate_hz: 1000, bulk: false };
    let error = bench.round_trip_window(&point, 3).unwrap_err();
    assert!(error.remedy().is_some_and(|text| text.contains("--hybrid busy-poll")), "{error:?}");
}

#[test]
fn on_a_veth_bulk_data_and_round_trips_go_through() {
    let _alone = alone();
    let Some(mut bench) = bench(Rig::Veth) else { return };
    for scheme in ["drain", "clocked:1ms", "spin"].map(|text| text.parse::<Scheme>().unwrap()) {
        let point = TransferPoint { scheme, load: Load::Idle, socket_buffer_bytes: 65_536 };
        let window = bench.transfer_window(&point, 1).unwrap();
        assert!(window.bytes >= 65_536, "{scheme}: {} bytes", window.bytes);
        for bulk in [false, true] {
            let point = RoundTripPoint { scheme, load: Load::Background, rate_hz: 1000, bulk };
            let window = bench.round_trip_window(&point, 3).unwrap();
            assert!(window.sent > 0 && window.round_trip.count > 0, "{scheme}: {window:?}");
            assert!(window.round_trip.count <= window.sent);
        }
    }
}
