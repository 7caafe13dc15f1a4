//! The event simulation against queueing theory, and each closed form against the simulation.

use signalling::{
    Application, Arrivals, Costs, Method, Observation, Scheme, Simulated, Simulation, Start, Times,
    Workload, evaluate, fit, hold_out, predict, simulate,
};

const EVENTS: u64 = 200_000;

fn simulation(scheme: Scheme, costs: &Costs, rate_hz: u64) -> Simulation<'static> {
    Simulation {
        scheme,
        costs: costs.clone(),
        arrivals: Arrivals::Poisson,
        rate_hz,
        ring: 4_096,
        user_slice_ns: None,
        application: None,
        quota: None,
        events: EVENTS,
        warm_up: EVENTS / 20,
        seed: rate_hz,
    }
}

fn simulated(scheme: &str, costs: &Costs, rate_hz: u64) -> Simulated {
    simulate(&simulation(scheme.parse().unwrap(), costs, rate_hz)).unwrap()
}

#[track_caller]
fn near(what: &str, value: f64, expected: f64, tolerance_ratio: f64) {
    let error = value / expected - 1.0;
    assert!(error.abs() < tolerance_ratio, "{what}: {value}, expected {expected}: {error:+.4}");
}

fn exponential(mean_ns: u64) -> Costs {
    Costs { event: Times::Exponential { mean_ns }, ..Costs::constant(0, 1) }
}

/// M/M/1: the time in the system is exponentially distributed with mean 1 / (mu - lambda) (Kleinrock,
/// Queueing Systems I, 3.2).
#[test]
fn mm1_has_its_mean_and_its_quantiles() {
    for (rate_hz, tolerance) in [(200_000, 0.01), (500_000, 0.02), (800_000, 0.05)] {
        let costs = exponential(1_000);
        let long =
            Simulation { events: 1_000_000, ..simulation(Scheme::Interrupt, &costs, rate_hz) };
        let run = simulate(&long).unwrap();
        let mean_ns = 1e9 / (1e6 - rate_hz as f64);
        near("mean", run.latency.mean().unwrap(), mean_ns, tolerance);
        let form = predict(Scheme::Interrupt, &costs, &workload(rate_hz)).unwrap().latency;
        // The histogram is within 1/32.
        let quantiles = run.prediction().latency;
        for (simulated, form, above) in [
            (quantiles.p50_ns, form.p50_ns, 0.5_f64),
            (quantiles.p99_ns, form.p99_ns, 0.01),
            (quantiles.p999_ns, form.p999_ns, 0.001),
        ] {
            near("form", form.unwrap() as f64, -mean_ns * above.ln(), 0.001);
            near("quantile", simulated.unwrap() as f64, form.unwrap() as f64, tolerance + 0.06);
        }
    }
}

/// M/D/1: the wait is half of that of M/M/1.
#[test]
fn md1_waits_half_as_long_as_mm1() {
    for rate_hz in [200_000, 500_000, 800_000] {
        let run = simulated("interrupt", &Costs::constant(0, 1_000), rate_hz);
        let load = rate_hz as f64 / 1e6;
        let wait_ns = run.latency.mean().unwrap() - 1_000.0;
        near("wait", wait_ns, 1_000.0 * load / 2.0 / (1.0 - load), 0.05);
    }
}

/// M/G/1 with multiple vacations and exhaustive service: half a vacation more than M/G/1, whatever the
/// load (Levy and Yechiali 1975).
#[test]
fn vacations_add_half_of_their_length() {
    for (rate_hz, tolerance) in [(10_000, 0.01), (200_000, 0.01), (700_000, 0.02)] {
        let run = simulated("deferred:20us", &exponential(1_000), rate_hz);
        let mm1_ns = 1e9 / (1e6 - rate_hz as f64);
        near("mean", run.latency.mean().unwrap(), mm1_ns + 10_000.0, tolerance);
    }
}

/// A clock whose handling is a small part of its period: the mean wait is half the period.
#[test]
fn a_clock_delays_by_half_of_its_period() {
    let run = simulated("clocked:1ms", &Costs::constant(0, 1), 50_000);
    near("mean", run.latency.mean().unwrap(), 500_000.0, 0.01);
    // The largest is a period and the handling of its arrivals.
    assert!(run.latency.peak.value <= 1_000_000 + 200);
}

/// The CPU time includes no more events than arrive in the measured time. Half a tick's events too many would be 0.2 %.
#[test]
fn the_ends_of_a_simulation_do_not_bias_its_cpu_use() {
    let costs = Costs::constant(4_000, 1_000);
    let scheme = "clocked:1ms".parse().unwrap();
    let form = predict(scheme, &costs, &workload(80_000)).unwrap().utilisation_ratio;
    let simulated_ratio = |seed| {
        let short = Simulation {
            events: 20_000,
            warm_up: 1_000,
            seed,
            ..simulation(scheme, &costs, 80_000)
        };
        simulate(&short).unwrap().prediction().utilisation_ratio
    };
    let mean = (1..=50).map(simulated_ratio).sum::<f64>() / 50.0;
    near("cpu", mean, form, 0.0007);
}

fn workload(rate_hz: u64) -> Workload {
    Workload { rate_hz, ring: 4_096, user_slice_ns: None }
}

/// Each closed form, wherever it is given, agrees with the simulation.
#[test]
fn closed_forms_agree_with_the_simulation() {
    let schemes = "interrupt,drain,spin,yield,clocked:1ms,clocked:250us,clocked:20us,deferred:50us,\
        coalesced:1,50us,coalesced:8,50us,coalesced:32,100us,hybrid:1,20us,hybrid:1,200us";
    let constant = Costs { wake_ns: 3_000, fixed_ns: 700, ..Costs::constant(4_000, 800) };
    let varying = Costs {
        interrupt: Times::Exponential { mean_ns: 3_000 },
        event: Times::Exponential { mean_ns: 1_200 },
        ..constant.clone()
    };
    let mut compared = 0;
    for scheme in Scheme::list(schemes).unwrap() {
        for costs in [&constant, &varying] {
            for rate_hz in [1_000, 10_000, 50_000, 100_000, 200_000, 300_000, 500_000, 700_000] {
                let Ok(form) = predict(scheme, costs, &workload(rate_hz)) else { continue };
                let run = simulate(&simulation(scheme, costs, rate_hz)).unwrap();
                let (of_run, at) = (run.prediction(), format!("{scheme} {rate_hz}/s {costs:?}"));
                let interval = run.latency.interval().unwrap();
                let tolerance = 0.015 + 2.0 * interval.half_width / interval.mean;
                near(&at, form.latency_mean_ns.unwrap(), interval.mean, tolerance);
                near(&at, form.utilisation_ratio, of_run.utilisation_ratio, 0.015);
                near(&at, form.leftover_ratio + 1.0, of_run.leftover_ratio + 1.0, 0.01);
                let seconds = run.duration_ns as f64 / 1e9;
                for (rate_hz, count) in
                    [(form.interrupts_hz, run.interrupts), (form.empty_polls_hz, run.empty_polls)]
                {
                    let allowed = 0.015 * count as f64 + 4.0 * (count as f64 + 1.0).sqrt();
                    assert!(
                        (rate_hz * seconds - count as f64).abs() < allowed,
                        "{at}: {form:?}, {run:?}"
                    );
                }
                near(&at, form.throughput_hz, of_run.throughput_hz, 0.02);
                assert!(of_run.drops_ratio.unwrap() < 1e-5, "{at}: {of_run:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 120, "{compared} forms");
}

/// The forms for users' work next to a thread that polls and yields.
#[test]
fn a_thread_that_yields_leaves_its_slices_to_others() {
    let costs = Costs::constant(4_000, 1_000);
    for rate_hz in [100, 1_000, 20_000] {
        let workload = Workload { user_slice_ns: Some(100_000), ..workload(rate_hz) };
        let form = predict(Scheme::SpinYield, &costs, &workload).unwrap();
        let run = simulate(&Simulation {
            user_slice_ns: workload.user_slice_ns,
            ..simulation(Scheme::SpinYield, &costs, rate_hz)
        });
        let run = run.unwrap().prediction();
        near("latency", form.latency_mean_ns.unwrap(), run.latency_mean_ns.unwrap(), 0.02);
        near("leftover", form.leftover_ratio, run.leftover_ratio, 0.01);
    }
}

fn livelocking<'a>(scheme: &str, rate_hz: u64) -> Simulation<'a> {
    let application = Application { event: Times::Constant(20_000), queue: 128 };
    Simulation {
        ring: 128,
        application: Some(application),
        quota: Some(16),
        events: 60_000,
        warm_up: 10_000,
        ..simulation(scheme.parse().unwrap(), &Costs::constant(30_000, 20_000), rate_hz)
    }
}

/// Receive livelock (Mogul and Ramakrishnan 1997, figures 6.1 and 6.3): interrupts have priority over
/// the application, so the throughput rises with the rate until the CPU is busy, then falls to nothing
/// at 1 / (C + alpha); with a quota, it stays.
#[test]
fn interrupts_livelock_and_quotas_do_not() {
    let delivered = |scheme: &str, rate_hz| {
        simulate(&livelocking(scheme, rate_hz)).unwrap().prediction().throughput_hz
    };
    // 1 / (C + alpha + application) is 14,286; up to there all is delivered.
    for rate_hz in [2_000, 8_000, 12_000] {
        near("before", delivered("interrupt", rate_hz), rate_hz as f64, 0.02);
    }
    // Above, the application has what interrupts leave: (1 - rate (C + alpha)) / application.
    for rate_hz in [16_000_u64, 18_000] {
        let remaining_rate = (1.0 - rate_hz as f64 * 50e-6) / 20e-6;
        near("falling", delivered("interrupt", rate_hz), remaining_rate, 0.08);
    }
    for rate_hz in [21_000, 50_000, 200_000] {
        let rate = delivered("interrupt", rate_hz);
        assert!(rate < 20.0, "livelock: {rate} at {rate_hz}");
    }
    // A clock: 16 events per tick, the others have the rest of the period.
    for scheme in ["clocked:1ms", "drain", "hybrid:4,100us", "deferred:200us"] {
        let peak = delivered(scheme, 14_000);
        for rate_hz in [21_000, 50_000, 200_000] {
            let rate = delivered(scheme, rate_hz);
            assert!(
                rate > 0.85 * peak && rate > 10_000.0,
                "{scheme}: {rate} at {rate_hz}, peak {peak}"
            );
        }
    }
    // It is the quota that helps: draining without one livelocks, too.
    let endless = Simulation { quota: None, ..livelocking("drain", 200_000) };
    assert!(simulate(&endless).unwrap().prediction().throughput_hz < 20.0);
}

/// The simulated times and events add up, to the ns and to the event.
#[test]
fn time_and_events_are_accounted_for() {
    let schemes =
        "interrupt,drain:8,spin,yield,clocked:100us,deferred:50us,coalesced:8,50us,hybrid:4,20us";
    let trace: Vec<u64> = (0..40_000).map(|event| event * event % 1_000 + event * 7_000).collect();
    for scheme in Scheme::list(schemes).unwrap() {
        for arrivals in [
            Arrivals::Poisson,
            Arrivals::Periodic,
            Arrivals::Bursty { on_ns: 500_000, off_ns: 2_000_000 },
            Arrivals::Trace(&trace),
        ] {
            for (rate_hz, user_slice_ns, quota) in
                [(20_000, None, None), (900_000, Some(50_000), Some(4))]
            {
                let application =
                    Some(Application { event: Times::Exponential { mean_ns: 900 }, queue: 32 });
                let all = Simulation {
                    arrivals,
                    ring: 64,
                    user_slice_ns,
                    application,
                    quota,
                    events: 40_000,
                    warm_up: 0,
                    ..simulation(scheme, &Costs::constant(2_000, 700), rate_hz)
                };
                let run = simulate(&all).unwrap();
                let case = format!("{scheme} {arrivals:.40?} {rate_hz}: {:?}", run.prediction());
                let parts = run.handler_ns + run.application_ns + run.leftover_ns;
                assert_eq!(parts, run.duration_ns, "{case}");
                assert_eq!(run.arrived, 40_000, "{case}");
                assert_eq!(run.handled + run.ring_drops, run.arrived, "{case}");
                let done = run.delivered + run.queue_drops;
                assert!(done <= run.handled && done + 32 >= run.handled, "{case}");
                assert_eq!(run.latency.count, run.delivered, "{case}");
                assert_eq!(simulate(&all).unwrap(), run, "the same again");
            }
        }
    }
}

/// Events that wait in the ring at the end of the warm-up are not among the arrivals that count, so their loss counts
/// neither. In a livelock, the application gets no event: at most all events are lost.
#[test]
fn no_more_events_are_lost_than_arrive() {
    for (rate_hz, events, ring) in
        [(50_000, 20_000, 256), (50_000, 5_000, 4_096), (21_000, 5_000, 64)]
    {
        let livelock = Simulation {
            events,
            warm_up: events / 20,
            ring,
            quota: Some(16),
            ..livelocking("interrupt", rate_hz)
        };
        let run = simulate(&livelock).unwrap();
        let drops_ratio = run.prediction().drops_ratio.unwrap();
        assert!(drops_ratio > 0.9 && drops_ratio <= 1.0, "{drops_ratio} at {rate_hz}, ring {ring}");
        // Each event of the count is lost, delivered, or waits for the application at the end.
        let done = run.delivered + run.ring_drops + run.queue_drops;
        let queue = u64::from(livelock.application.unwrap().queue);
        assert!(done <= run.arrived + queue && done + queue >= run.arrived, "{run:?}");
    }
}

/// Periodic arrivals that one interrupt each handles in time: all have the same latency.
#[test]
fn periodic_events_have_a_constant_latency() {
    let costs = Costs { wake_ns: 3_000, fixed_ns: 50, ..Costs::constant(4_000, 800) };
    let periodic = Simulation {
        arrivals: Arrivals::Periodic,
        ..simulation(Scheme::Interrupt, &costs, 100_000)
    };
    let run = simulate(&periodic).unwrap();
    assert_eq!((run.latency.peak.value, run.latency.mean()), (7_850, Some(7_850.0)));
}

#[test]
fn a_ring_that_is_too_small_for_a_tick_loses_what_comes_after() {
    let costs = Costs::constant(1_000, 100);
    let small = Simulation {
        arrivals: Arrivals::Periodic,
        ring: 64,
        ..simulation(Scheme::Clocked { period_ns: 1_000_000 }, &costs, 200_000)
    };
    let run = simulate(&small).unwrap();
    // The ring keeps 64 of the 200 events of a tick, and about one more that comes during handling.
    near("drops", run.prediction().drops_ratio.unwrap(), (200.0 - 65.5) / 200.0, 0.01);
}

/// A sweep as `irqlab signal run` measures it, from the simulation with known costs.
/// Each row has its own arrivals, as two measurements have.
fn sweep(costs: &Costs, seed: u64) -> Vec<Observation> {
    let schemes = "interrupt,drain,spin,clocked:1ms,clocked:250us,deferred:50us,coalesced:16,100us";
    let mut rows = Vec::new();
    for scheme in Scheme::list(schemes).unwrap() {
        for rate_hz in [5_000, 10_000, 20_000, 40_000, 80_000] {
            let run = Simulation {
                events: 20_000,
                warm_up: 1_000,
                seed: seed * 1_000 + rows.len() as u64,
                ..simulation(scheme, costs, rate_hz)
            };
            let run = simulate(&run).unwrap().prediction();
            rows.push(Observation {
                cpu_ratio: Some(run.utilisation_ratio),
                latency_mean_ns: run.latency_mean_ns,
                ..Observation::new(scheme, rate_hz as f64)
            });
        }
    }
    rows
}

#[test]
fn a_fit_gives_the_simulated_costs_back() {
    let costs = Costs { wake_ns: 5_000, fixed_ns: 2_000, ..Costs::constant(3_500, 900) };
    let rows = sweep(&costs, 3);
    let fitted = fit(&rows, &Start::default()).unwrap();
    for (name, truth) in [
        ("interrupt_ns", 3_500.0),
        ("event_ns", 900.0),
        ("wake_ns", 5_000.0),
        ("fixed_ns", 2_000.0),
    ] {
        let estimate = fitted.estimate(name).unwrap();
        let (low, high) = estimate.interval_ns.unwrap();
        assert!(low <= truth && truth <= high, "{estimate:?}, truth {truth}");
        assert!(name == "fixed_ns" || high - low < 0.2 * truth, "{estimate:?}");
    }
    let (kept, held) = hold_out(rows.len(), 0.3, 5);
    let rows_at =
        |positions: &[usize]| positions.iter().map(|position| rows[*position]).collect::<Vec<_>>();
    let kept = fit(&rows_at(&kept), &Start::default()).unwrap();
    let mut predicted = 0;
    for residual in kept.predict(&rows_at(&held)) {
        assert!(residual.cpu_error_ratio.unwrap().abs() < 0.15, "{residual:?}");
        assert!(residual.latency_error_ratio.unwrap().abs() < 0.25, "{residual:?}");
        predicted += 1;
    }
    assert!(predicted >= 10);
}

/// A fit with wrong costs does not predict held-out rows: the bounds above can fail.
#[test]
fn costs_that_are_wrong_have_errors() {
    let costs = Costs { wake_ns: 5_000, ..Costs::constant(3_500, 900) };
    let doubled = Costs { wake_ns: 5_000, ..Costs::constant(7_000, 1_800) };
    let fitted = fit(&sweep(&doubled, 3), &Start::default()).unwrap();
    let residuals = fitted.predict(&sweep(&costs, 3));
    assert!(residuals.iter().any(|row| row.cpu_error_ratio.unwrap().abs() > 0.15));
    assert!(residuals.iter().any(|row| row.latency_error_ratio.unwrap().abs() > 0.25));
}

#[test]
fn the_simulation_answers_where_no_form_holds() {
    let costs = Costs::constant(4_000, 1_000);
    let ask = |scheme: &str, rate_hz, always| {
        evaluate(&simulation(scheme.parse().unwrap(), &costs, rate_hz), always).unwrap()
    };
    assert_eq!(ask("interrupt", 20_000, false).method, Method::ClosedForm);
    assert_eq!(ask("interrupt", 20_000, true).method, Method::Simulation);
    let hybrid = ask("hybrid:8,20us", 20_000, false);
    assert_eq!(hybrid.method, Method::Simulation);
    assert!(hybrid.reason.unwrap().contains("threshold"));
    let over = ask("interrupt", 300_000, false);
    assert!(over.is_over_capacity && over.prediction.drops_ratio.unwrap() > 0.3, "{over:?}");
    let periodic = Simulation {
        arrivals: Arrivals::Periodic,
        ..simulation(Scheme::Interrupt, &costs, 20_000)
    };
    assert_eq!(evaluate(&periodic, false).unwrap().method, Method::Simulation);
}
