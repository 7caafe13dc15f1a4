//! The experiment `signal` on mock benches: tables, fit, crossovers, absences.

use lab::experiment::{Bench, BenchError, BenchFacts, Outcome, RunContext, run};
use lab::signal::{
    Activity, Leftover, Load, Part, Plan, RatePoint, RateWindow, Rig, RoundTripPoint,
    RoundTripWindow, SignalBench, TransferPoint, TransferWindow,
};
use record::{Run, Table, Value};
use signalling::{Costs, Scheme, Workload, predict};
use stats::Distribution;

const WINDOW_NS: u64 = 1_000_000_000;
const CONTROL_ITERATIONS: u64 = 1_000_000;

/// A machine that follows the model exactly. It has no coalescing and no round trips.
struct Ideal {
    costs: Costs,
    seeds: Vec<u64>,
    /// Whether the CPU time of threads leaves out interrupts.
    excludes_interrupts: bool,
}

impl Bench for Ideal {
    fn facts(&self) -> BenchFacts {
        BenchFacts { bench: "mock".to_owned(), ..BenchFacts::default() }
    }

    fn stop_requested(&self) -> bool {
        false
    }
}

fn distribution(value: u64, count: u64) -> Distribution {
    let mut distribution = Distribution::default();
    (0..count).for_each(|number| distribution.record(value, number));
    distribution
}

fn unavailable() -> BenchError {
    BenchError::Unavailable { reason: "it has none".to_owned(), remedy: None }
}

impl SignalBench for Ideal {
    fn thread_clocks_exclude_interrupts(&self) -> bool {
        self.excludes_interrupts
    }

    fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError> {
        self.seeds.push(seed);
        if matches!(point.scheme, Scheme::Coalesced { .. }) {
            return Err(unavailable());
        }
        let workload = Workload { rate_hz: point.rate_hz, ring: 4096, user_slice_ns: None };
        let prediction = predict(point.scheme, &self.costs, &workload).unwrap();
        let iterations = (CONTROL_ITERATIONS as f64 * prediction.leftover_ratio).round() as u64;
        let leftover = Leftover {
            iterations,
            job_ns: WINDOW_NS,
            control_iterations: CONTROL_ITERATIONS,
            control_ns: WINDOW_NS,
            control_job_ns: WINDOW_NS,
        };
        let latency = prediction.latency_mean_ns.unwrap().round() as u64;
        Ok(RateWindow {
            point: *point,
            offered: point.rate_hz,
            delivered: point.rate_hz,
            dropped: 0,
            latency: distribution(latency, 2000),
            lateness: distribution(100, 2000),
            activity: Activity {
                window_ns: WINDOW_NS,
                signals: Some(prediction.interrupts_hz.round() as u64),
                leftover: (point.load != Load::Idle).then_some(leftover),
                ..Activity::default()
            },
        })
    }

    fn transfer_window(
        &mut self,
        point: &TransferPoint,
        _: u64,
    ) -> Result<TransferWindow, BenchError> {
        let activity = Activity { window_ns: WINDOW_NS / 2, ..Activity::default() };
        Ok(TransferWindow { point: *point, bytes: point.socket_buffer_bytes * 10, activity })
    }

    fn round_trip_window(
        &mut self,
        _: &RoundTripPoint,
        _: u64,
    ) -> Result<RoundTripWindow, BenchError> {
        Err(unavailable())
    }
}

fn plan(schemes: &str, parts: &[Part]) -> Plan {
    Plan {
        rig: Rig::Threads,
        parts: parts.to_vec(),
        schemes: Scheme::list(schemes).unwrap(),
        loads: vec![Load::Background, Load::Idle],
        rates_hz: vec![500, 2_000, 10_000, 50_000],
        request_rate_hz: 1000,
        socket_buffers_bytes: vec![1024, 4096],
        repetitions: 3,
        seed: 5,
    }
}

fn measured(plan: &Plan) -> (Box<Run>, Vec<u64>) {
    let costs = Costs { wake_ns: 3_000, ..Costs::constant(4_000, 1_000) };
    let mut bench = Ideal { costs, seeds: Vec::new(), excludes_interrupts: false };
    let outcome = run(plan, RunContext::default(), &mut bench, &mut |_: &_| {});
    let Ok(Outcome::Run { run, .. }) = outcome else { panic!("no run") };
    (run, bench.seeds)
}

#[test]
fn cpu_use_is_absent_if_clocks_of_threads_leave_out_interrupts() {
    let costs = Costs { wake_ns: 3_000, ..Costs::constant(4_000, 1_000) };
    let mut bench = Ideal { costs, seeds: Vec::new(), excludes_interrupts: true };
    let plan = plan("drain,clocked:1ms", &[Part::Rates]);
    let outcome = run(&plan, RunContext::default(), &mut bench, &mut |_: &_| {});
    let Ok(Outcome::Run { run, .. }) = outcome else { panic!("no run") };
    let rates = run.table("rates").unwrap();
    for row in rates.rows() {
        for column in ["cpu_ratio", "leftover_ratio"] {
            assert_eq!(number(rates, row, column), None, "{column}");
        }
        assert!(number(rates, row, "latency_mean_ns").is_some());
    }
    let absence = run.absent.iter().find(|absence| absence.what.starts_with("cpu_ratio")).unwrap();
    assert!(absence.reason.contains("CONFIG_IRQ_TIME_ACCOUNTING"), "{absence:?}");
}

fn number(table: &Table, row: &[Value], column: &str) -> Option<f64> {
    match table.get(row, column).unwrap_or_else(|| panic!("no column {column}")) {
        Value::Uint(number) => Some(*number as f64),
        Value::Real(number) => Some(*number),
        _ => None,
    }
}

fn text<'r>(table: &Table, row: &'r [Value], column: &str) -> &'r str {
    let position = table.column(column).unwrap();
    match &row[position] {
        Value::Text(text) => text,
        other => panic!("{column}: {other:?}"),
    }
}

#[test]
fn the_fit_finds_the_costs_and_the_crossover_of_a_machine_that_follows_the_model() {
    let (run, seeds) = measured(&plan("interrupt,drain,clocked:1ms,spin", &[Part::Rates]));
    let costs = run.table("costs").unwrap();
    let cost = |name: &str| {
        let row = costs.rows().iter().find(|row| text(costs, row, "cost") == name).expect(name);
        number(costs, row, "value_ns").unwrap()
    };
    assert!((cost("interrupt") - 4_000.0).abs() < 40.0, "{}", cost("interrupt"));
    assert!((cost("event") - 1_000.0).abs() < 10.0, "{}", cost("event"));
    let crossovers = run.table("crossovers").unwrap();
    let crossing = crossovers
        .rows()
        .iter()
        .find(|row| {
            text(crossovers, row, "scheme") == "interrupt"
                && text(crossovers, row, "other_scheme") == "clocked:1ms"
        })
        .expect("they cross");
    // C lambda = C beta at the clock's own rate, 1,000 per second.
    let predicted = number(crossovers, crossing, "predicted_hz").unwrap();
    assert!((predicted - 1_000.0).abs() < 1.0, "{predicted}");
    let rates = run.table("rates").unwrap();
    for row in rates.rows() {
        let is_background = text(rates, row, "load") == "background";
        let cpu = number(rates, row, "cpu_ratio");
        assert_eq!(cpu.is_some(), is_background);
        if is_background && text(rates, row, "scheme") != "spin" {
            assert!(number(rates, row, "cpu_error_ratio").unwrap().abs() < 0.02);
            assert!(number(rates, row, "latency_error_ratio").unwrap().abs() < 0.02);
        }
        assert_eq!(number(rates, row, "repetitions"), Some(3.0));
        assert_eq!(number(rates, row, "cpu_ci95_ratio"), is_background.then_some(0.0));
    }
    // Each window has a different seed.
    let mut different = seeds.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!((different.len(), seeds.len()), (4 * 4 * 2 * 3, 4 * 4 * 2 * 3));
}

#[test]
fn curves_and_regions_are_of_the_fitted_model() {
    let (run, _) = measured(&plan("interrupt,drain,clocked:1ms,spin", &[Part::Rates]));
    let (curves, rates) = (run.table("curves").unwrap(), run.table("rates").unwrap());
    // Curves and points agree at common rates: the curve goes through the predictions of the points.
    let mut compared = 0;
    for row in rates.rows().iter().filter(|row| text(rates, row, "load") == "background") {
        let found = curves.rows().iter().find(|curve| {
            text(curves, curve, "scheme") == text(rates, row, "scheme")
                && number(curves, curve, "rate_hz") == number(rates, row, "rate_hz")
        });
        let Some(curve) = found else { continue };
        let [cpu, predicted] =
            [number(curves, curve, "cpu_ratio"), number(rates, row, "predicted_cpu_ratio")];
        assert!((cpu.unwrap() / predicted.unwrap() - 1.0).abs() < 1e-3, "{cpu:?} {predicted:?}");
        compared += 1;
    }
    assert!(compared >= 8, "the ends of each of four curves: {compared}");
    // Without a bound, draining is cheapest up to the clock's own rate, and the clock above it.
    let regions = run.table("regions").unwrap();
    let mut winners: Vec<&str> = Vec::new();
    for row in regions.rows() {
        let rate_hz = number(regions, row, "rate_hz").unwrap();
        if number(regions, row, "bound_to_ns").is_none() {
            let scheme = text(regions, row, "scheme");
            let cheapest = if rate_hz < 990.0 { "drain" } else { "clocked:1ms" };
            assert!(
                (990.0..1_020.0).contains(&rate_hz) || scheme == cheapest,
                "{rate_hz}: {scheme}"
            );
            winners.push(scheme);
        }
        assert_eq!(text(regions, row, "statistic"), "mean");
    }
    winners.dedup();
    assert_eq!(winners, ["drain", "clocked:1ms"]);
}

#[test]
fn what_a_rig_lacks_is_absent_once_and_the_rest_is_measured() {
    let (run, seeds) = measured(&plan("drain,coalesced:8,50us", &Part::ALL));
    let absent: Vec<(&str, &str)> =
        run.absent.iter().map(|absence| (absence.table.as_str(), absence.what.as_str())).collect();
    assert!(absent.contains(&("rates", "coalesced:8,50us, background")), "{absent:?}");
    assert!(absent.contains(&("round_trips", "drain, idle")), "{absent:?}");
    assert!(run.complete);
    // The unavailable scheme was tried once for each load, not at each rate and in each repetition.
    assert_eq!(seeds.len(), 4 * 2 * 3 + 2);
    let throughput = run.table("throughput").unwrap();
    assert_eq!(throughput.rows().len(), 2 * 2 * 2);
    let row = &throughput.rows()[0];
    let bytes = number(throughput, row, "socket_buffer_bytes").unwrap();
    assert_eq!(number(throughput, row, "throughput_bytes_per_second"), Some(bytes * 20.0));
    assert!(run.table("round_trips").is_none());
    for table in &run.tables {
        table.check_display().unwrap();
    }
}

#[test]
fn contaminated_windows_are_repeated_and_warned_of() {
    struct Disturbed(Ideal);
    impl Bench for Disturbed {
        fn facts(&self) -> BenchFacts {
            self.0.facts()
        }
        fn stop_requested(&self) -> bool {
            false
        }
    }
    impl SignalBench for Disturbed {
        fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError> {
            let mut window = self.0.rate_window(point, seed)?;
            window.lateness = distribution(1_000_000, 2000);
            if let Some(leftover) = &mut window.activity.leftover {
                leftover.control_job_ns /= 2;
            }
            Ok(window)
        }
        fn transfer_window(
            &mut self,
            _: &TransferPoint,
            _: u64,
        ) -> Result<TransferWindow, BenchError> {
            Err(unavailable())
        }
        fn round_trip_window(
            &mut self,
            _: &RoundTripPoint,
            _: u64,
        ) -> Result<RoundTripWindow, BenchError> {
            Err(unavailable())
        }
    }
    let ideal = Ideal {
        costs: Costs::constant(4_000, 1_000),
        seeds: Vec::new(),
        excludes_interrupts: false,
    };
    let plan = plan("drain", &[Part::Rates]);
    let outcome = run(&plan, RunContext::default(), &mut Disturbed(ideal), &mut |_: &_| {});
    let Ok(Outcome::Run { run, .. }) = outcome else { panic!("no run") };
    let warnings = run.warnings.join("\n");
    assert!(
        warnings.contains("8 of 8 rows of table rates have only contaminated windows"),
        "{warnings}"
    );
    // Each point was measured again, as often as there are repetitions, and then no more.
    let rates = run.table("rates").unwrap();
    for row in rates.rows() {
        assert_eq!(number(rates, row, "contaminated_count"), Some(6.0));
        assert_eq!(number(rates, row, "repetitions"), Some(6.0));
    }
}

/// A machine whose windows are all contaminated, with a request to stop that comes in a window.
struct StoppedIn {
    ideal: Ideal,
    /// Number of the window in which the request comes, from 1.
    window: usize,
    /// Whether the request ends the window.
    ends_window: bool,
}

impl Bench for StoppedIn {
    fn facts(&self) -> BenchFacts {
        self.ideal.facts()
    }

    fn stop_requested(&self) -> bool {
        self.ideal.seeds.len() >= self.window
    }
}

impl SignalBench for StoppedIn {
    fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError> {
        let mut window = self.ideal.rate_window(point, seed)?;
        if self.stop_requested() && self.ends_window {
            return Err(BenchError::Failed("stopped".to_owned()));
        }
        window.lateness = distribution(1_000_000, 2000);
        Ok(window)
    }

    fn transfer_window(&mut self, _: &TransferPoint, _: u64) -> Result<TransferWindow, BenchError> {
        Err(unavailable())
    }

    fn round_trip_window(
        &mut self,
        _: &RoundTripPoint,
        _: u64,
    ) -> Result<RoundTripWindow, BenchError> {
        Err(unavailable())
    }
}

#[test]
fn a_stop_names_the_windows_that_are_missing() {
    // 4 rates, one load and 3 repetitions: 12 windows, and 12 more because all are contaminated.
    let plan = Plan { loads: vec![Load::Idle], ..plan("drain", &[Part::Rates]) };
    let stopped_in = |window: usize, ends_window: bool| {
        let ideal = Ideal {
            costs: Costs::constant(4_000, 1_000),
            seeds: Vec::new(),
            excludes_interrupts: false,
        };
        let mut bench = StoppedIn { ideal, window, ends_window };
        let outcome = run(&plan, RunContext::default(), &mut bench, &mut |_: &_| {});
        let Ok(Outcome::Run { run, .. }) = outcome else { panic!("no run") };
        let missing = run.warnings.iter().find_map(|warning| warning.strip_prefix("missing, "));
        (run.complete, missing.map(str::to_owned))
    };
    let missing = |what: &str| (false, Some(format!("because the run ended early: {what}")));
    assert_eq!(stopped_in(10, false), missing("2 of 12 windows"));
    assert_eq!(stopped_in(10, true), missing("3 of 12 windows"));
    assert_eq!(stopped_in(12, false), missing("further windows of 4 contaminated points"));
    // The windows that measure contaminated points again are no part of the 12.
    assert_eq!(stopped_in(14, true), missing("further windows of 4 contaminated points"));
    assert_eq!(stopped_in(23, false), missing("further windows of 1 contaminated points"));
    assert_eq!(stopped_in(24, false), (true, None));
}
