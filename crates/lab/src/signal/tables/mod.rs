//! The tables of `signal run`, computed from the samples. `experiment.rs` puts them into the report.

mod columns;
mod fit;
mod point;
mod rates;
mod regions;
mod round_trips;
mod throughput;

use record::{Absence, Table};

use super::plan::Plan;
use super::rig::Rig;
use super::sample::Samples;

pub(super) use fit::cost_table;
pub(super) use regions::region_table;

/// Name of the table of the sweep over event rates.
pub(super) const RATES: &str = "rates";
/// Name of the table of the sweep over socket buffers.
pub(super) const THROUGHPUT: &str = "throughput";
/// Name of the table of round trips.
pub(super) const ROUND_TRIPS: &str = "round_trips";

/// All tables, the most important first, and the absences: columns that the tables lack.
pub(super) fn all(plan: &Plan, samples: &Samples) -> (Vec<Table>, Vec<Absence>) {
    let points = point::points(&samples.rates);
    let (model, mut absent) = match plan.rig {
        Rig::Nvme => fit::Model::of_a_device(&points),
        _ => fit::Model::fitted(&points),
    };
    absent.extend(rates::absences(&points));
    absent.extend(round_trips::absences(&samples.round_trips));
    absent.extend(unknown_cpu_use(samples));
    let mut tables = vec![
        rates::rates(&points, &model),
        throughput::throughput(plan, &samples.transfers),
        round_trips::round_trips(&samples.round_trips),
    ];
    if plan.rig != Rig::Nvme {
        let (crossovers, undecided) = fit::crossovers(&points, &model);
        absent.extend(undecided);
        tables.extend([
            fit::costs(&model),
            crossovers,
            fit::curves(&points, &model),
            fit::regions(&points, &model),
        ]);
    }
    (tables, absent)
}

/// The absent CPU use of a kernel whose clocks of threads leave out interrupts, for each table with windows.
fn unknown_cpu_use(samples: &Samples) -> Vec<Absence> {
    if !samples.thread_clocks_exclude_interrupts {
        return Vec::new();
    }
    let tables = [
        (RATES, samples.rates.is_empty()),
        (THROUGHPUT, samples.transfers.is_empty()),
        (ROUND_TRIPS, samples.round_trips.is_empty()),
    ];
    let absence = |(table, _)| {
        let reason =
            "the kernel's CPU time of threads leaves out interrupts (CONFIG_IRQ_TIME_ACCOUNTING)";
        let absence = Absence::new(table, "cpu_ratio and leftover_ratio", reason);
        absence.with_remedy(Some("start the kernel with tsc=noirqtime"))
    };
    tables.into_iter().filter(|(_, is_empty)| !is_empty).map(absence).collect()
}

/// A warning about the rows that the cost model is fitted to. `None` without a reason, or without a fit.
pub(super) fn fit_warning(plan: &Plan, samples: &Samples) -> Option<String> {
    let is_fitted = plan.rig != Rig::Nvme;
    is_fitted.then(|| fit::warning(&point::points(&samples.rates))).flatten()
}

/// Warnings for the reader of the numbers.
pub(super) fn warnings(samples: &Samples) -> Vec<String> {
    let mut warnings = rates::warnings(&samples.rates);
    warnings.extend(round_trips::warnings(&samples.round_trips));
    warnings
}

#[cfg(test)]
mod tests {
    use signalling::Scheme;
    use stats::Distribution;

    use super::super::sample::{
        Activity, Leftover, Load, RatePoint, RateWindow, RoundTripPoint, RoundTripWindow,
    };
    use super::*;

    /// Windows of two schemes at three rates, with measured CPU use. Each point has two equal windows.
    fn windows() -> Vec<RateWindow> {
        let mut latency = Distribution::default();
        latency.record(90_000, 1);
        let window = |scheme: &str, rate_hz: u64, iterations: u64| RateWindow {
            point: RatePoint {
                scheme: scheme.parse::<Scheme>().unwrap(),
                load: Load::Background,
                rate_hz,
            },
            offered: rate_hz,
            delivered: rate_hz,
            dropped: 0,
            latency: latency.clone(),
            lateness: Distribution::default(),
            activity: Activity {
                window_ns: 1_000_000_000,
                leftover: Some(Leftover {
                    iterations,
                    control_iterations: 1_000,
                    control_ns: 1_000_000_000,
                    control_job_ns: 1_000_000_000,
                    job_ns: 1_000_000_000,
                }),
                ..Activity::default()
            },
        };
        let rows = [(1_000, 990, 980), (5_000, 950, 940), (20_000, 800, 900)];
        let windows = |(rate_hz, interrupt, spin)| {
            [window("interrupt", rate_hz, interrupt), window("coalesced:8,100us", rate_hz, spin)]
        };
        rows.into_iter().chain(rows).flat_map(windows).collect()
    }

    fn plan(rig: Rig) -> Plan {
        Plan {
            rig,
            parts: Vec::new(),
            schemes: Vec::new(),
            loads: Vec::new(),
            rates_hz: Vec::new(),
            request_rate_hz: 0,
            socket_buffers_bytes: Vec::new(),
            repetitions: 1,
            seed: 0,
        }
    }

    /// All tables of a run between threads, and its absences.
    fn tables_and_absences(rates: Vec<RateWindow>) -> (Vec<Table>, Vec<Absence>) {
        all(&plan(Rig::Threads), &Samples { rates, ..Samples::default() })
    }

    fn table<'t>(tables: &'t [Table], name: &str) -> &'t Table {
        tables.iter().find(|table| table.name == name).expect(name)
    }

    #[test]
    fn an_overloaded_scheme_has_a_backlog_and_a_warning_but_no_latency() {
        let mut windows = windows();
        let is_overloaded = |window: &RateWindow| {
            (window.point.scheme, window.point.rate_hz) == (Scheme::Interrupt, 20_000)
        };
        for window in windows.iter_mut().filter(|window| is_overloaded(window)) {
            (window.delivered, window.dropped) = (10_600, 200);
        }
        let warnings = warnings(&Samples { rates: windows.clone(), ..Samples::default() });
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        for words in [
            "interrupt, load background, 20000 events/s: overloaded.",
            "handled 53.0 %",
            "1.0 %",
            "46.0 %",
        ] {
            assert!(warning.contains(words), "{warning}");
        }
        let (tables, absent) = tables_and_absences(windows);
        let what: Vec<&str> = absent.iter().map(|absence| absence.what.as_str()).collect();
        assert!(
            what.contains(&"latency of interrupt, load background, at 20000 events/s"),
            "{what:?}"
        );
        let rates = table(&tables, RATES);
        let mut overloaded_count = 0;
        for row in rates.rows() {
            let get = |column: &str| rates.get(row, column).expect(column);
            let is_overloaded = *get("is_over_capacity") == record::Value::Bool(true);
            overloaded_count += usize::from(is_overloaded);
            let backlog_ratio = if is_overloaded { 0.46 } else { 0.0 };
            assert_eq!(*get("backlog_ratio"), record::Value::Real(backlog_ratio));
            for column in
                ["latency_mean_ns", "latency_p50_ns", "latency_max_ns", "latency_mean_median_ns"]
            {
                assert_eq!(*get(column) == record::Value::Absent, is_overloaded, "{column}");
            }
        }
        assert_eq!(overloaded_count, 1);
    }

    /// A window of 400 ms with the round trips of the answered requests.
    fn round_trip_window(scheme: &str, sent: u64, answered: u64) -> RoundTripWindow {
        let mut round_trip = Distribution::default();
        (0..answered).for_each(|number| round_trip.record(50_000, number));
        let scheme = scheme.parse().unwrap();
        RoundTripWindow {
            point: RoundTripPoint { scheme, load: Load::Idle, rate_hz: 1_000, bulk: false },
            sent,
            round_trip,
            activity: Activity { window_ns: 400_000_000, ..Activity::default() },
        }
    }

    #[test]
    fn requests_without_answers_leave_no_mean_and_no_quantiles() {
        let round_trips = vec![
            round_trip_window("drain", 400, 200),
            round_trip_window("drain", 400, 400),
            // Of three windows, a pause of the host in one leaves the figures of the others.
            round_trip_window("spin", 400, 200),
            round_trip_window("spin", 400, 400),
            round_trip_window("spin", 400, 399),
            // A request per tick of 20 ms is under way at the end.
            round_trip_window("clocked:20ms", 400, 380),
        ];
        let samples = Samples { round_trips, ..Samples::default() };
        let warnings = warnings(&samples);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.starts_with("round trips of drain, load idle: 25.0 %"), "{warning}");
        let (tables, absent) = all(&plan(Rig::Threads), &samples);
        let [absence] = &absent[..] else { panic!("{absent:?}") };
        assert_eq!(absence.what, "round trips of drain, load idle");
        let trips = table(&tables, ROUND_TRIPS);
        assert_eq!(trips.check_display(), Ok(()));
        let mut overloaded_count = 0;
        for row in trips.rows() {
            let get = |column: &str| trips.get(row, column).expect(column);
            let is_overloaded = *get("scheme") == record::Value::Text("drain".to_owned());
            overloaded_count += usize::from(is_overloaded);
            assert_eq!(*get("is_over_capacity"), record::Value::Bool(is_overloaded));
            for column in ["round_trip_mean_ns", "round_trip_p50_ns", "round_trip_p99_ns"] {
                assert_eq!(*get(column) == record::Value::Absent, is_overloaded, "{column}");
            }
        }
        assert_eq!((overloaded_count, trips.rows().len()), (1, 3));
    }

    /// The number in a cell, and `None` if the cell is absent.
    fn number(table: &Table, row: &[record::Value], column: &str) -> Option<f64> {
        table.get(row, column).expect(column).number()
    }

    /// The receiver dropped 1.9 % of the events, so the handled events do not determine the 99th percentile.
    #[test]
    fn lost_events_count_as_later_than_all_others() {
        let mut latency = Distribution::default();
        (1..=98_100).for_each(|number| latency.record(number, number));
        let mut window = windows().remove(0);
        (window.offered, window.delivered, window.dropped) = (100_000, 98_100, 1_900);
        window.latency = latency;
        let mut few_lost = window.clone();
        few_lost.point.rate_hz = 7_000;
        (few_lost.delivered, few_lost.dropped) = (99_950, 50);
        let mut none_lost = few_lost.clone();
        none_lost.point.rate_hz = 9_000;
        (none_lost.delivered, none_lost.dropped) = (100_000, 0);
        let rates = vec![window, few_lost, none_lost];
        let warnings = warnings(&Samples { rates: rates.clone(), ..Samples::default() });
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        let start = "interrupt, load background, 1000 events/s (also at 1 higher rate): 1.90 % of the events were dropped";
        assert!(warning.starts_with(start), "{warning}");
        let (tables, _) = tables_and_absences(rates);
        let rates = table(&tables, RATES);
        let figures = |row: &[record::Value]| {
            ["p50", "p99", "p999", "max"]
                .map(|figure| number(rates, row, &format!("latency_{figure}_ns")).is_some())
        };
        let rows: Vec<[bool; 4]> = rates.rows().iter().map(|row| figures(row)).collect();
        let [many, few, none] = rows[..] else { panic!("{rows:?}") };
        assert_eq!(many, [true, false, false, false]);
        assert_eq!(few, [true, true, true, false]);
        assert_eq!(none, [true; 4]);
        // The median of all events is the 50.97th percentile of the handled events.
        let median = number(rates, &rates.rows()[0], "latency_p50_ns").unwrap();
        assert!((median / 50_000.0 - 1.0).abs() < 1.0 / 16.0, "{median}");
    }

    #[test]
    fn lost_requests_count_as_later_than_all_others() {
        let round_trips = vec![
            round_trip_window("drain", 10_000, 9_810),
            round_trip_window("spin", 10_000, 10_000),
        ];
        let samples = Samples { round_trips, ..Samples::default() };
        let warnings = warnings(&samples);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.starts_with("round trips of drain, load idle: 1."), "{warning}");
        let (tables, _) = all(&plan(Rig::Threads), &samples);
        let trips = table(&tables, ROUND_TRIPS);
        for row in trips.rows() {
            let has_losses =
                trips.get(row, "scheme") == Some(&record::Value::Text("drain".to_owned()));
            assert!(number(trips, row, "round_trip_p50_ns").is_some());
            for column in ["round_trip_p99_ns", "round_trip_max_ns"] {
                assert_eq!(number(trips, row, column).is_none(), has_losses, "{column}");
            }
        }
    }

    /// The sender was late by 50 us in these windows, and the CPU seemed to be busy.
    #[test]
    fn the_fit_leaves_out_rows_with_only_contaminated_windows() {
        let contaminate = |windows: &mut [RateWindow], rate_hz: u64| {
            let at_rate = windows.iter_mut().filter(|window| window.point.rate_hz == rate_hz);
            for window in at_rate {
                window.lateness.record(50_000, 1);
                window.activity.leftover.as_mut().unwrap().iterations = 100;
            }
        };
        let costs = |rates: Vec<RateWindow>| {
            let (tables, absent) = tables_and_absences(rates);
            (table(&tables, "costs").rows().to_vec(), absent, tables)
        };
        let mut without_rate = windows();
        without_rate.retain(|window| window.point.rate_hz != 20_000);
        let mut disturbed = windows();
        contaminate(&mut disturbed, 20_000);
        let (expected, ..) = costs(without_rate);
        let (fitted, _, tables) = costs(disturbed.clone());
        assert!(!fitted.is_empty());
        assert_eq!(fitted, expected);
        let rates = table(&tables, RATES);
        let left_out = "It leaves out 2 rows with overload or only contaminated windows";
        assert!(rates.display.notes[0].contains(left_out), "{:?}", rates.display.notes);
        for row in rates.rows() {
            let is_contaminated = number(rates, row, "rate_hz") == Some(20_000.0);
            assert_eq!(
                rates.get(row, "is_contaminated"),
                Some(&record::Value::Bool(is_contaminated))
            );
        }
        for rate_hz in [1_000, 5_000] {
            contaminate(&mut disturbed, rate_hz);
        }
        let (fitted, absent, _) = costs(disturbed);
        assert!(fitted.is_empty());
        let absence = absent.iter().find(|absence| absence.what.contains("costs")).unwrap();
        assert!(absence.reason.contains("only contaminated windows"), "{absence:?}");
    }

    #[test]
    fn cpu_use_is_absent_with_its_reason_if_clocks_of_threads_leave_out_interrupts() {
        let mut rates = windows();
        rates.iter_mut().for_each(|window| window.activity.leftover = None);
        let thread_clocks_exclude_interrupts = true;
        let samples = Samples { rates, thread_clocks_exclude_interrupts, ..Samples::default() };
        let (tables, absent) = all(&plan(Rig::Threads), &samples);
        let absence = absent.iter().find(|absence| absence.what.starts_with("cpu_ratio")).unwrap();
        assert!(absence.reason.contains("CONFIG_IRQ_TIME_ACCOUNTING"), "{absence:?}");
        let rates = table(&tables, RATES);
        for row in rates.rows() {
            assert_eq!(rates.get(row, "cpu_ratio"), Some(&record::Value::Absent));
        }
    }

    #[test]
    fn rows_whose_cpu_use_is_negative_by_chance_have_a_warning() {
        let mut rates = windows();
        let warning = |rates: &[RateWindow], rig: Rig| {
            fit_warning(&plan(rig), &Samples { rates: rates.to_vec(), ..Samples::default() })
        };
        assert_eq!(warning(&rates, Rig::Threads), None);
        let slow = |window: &&mut RateWindow| {
            (window.point.scheme, window.point.rate_hz) == (Scheme::Interrupt, 1_000)
        };
        for window in rates.iter_mut().filter(slow) {
            // More iterations than in the control window, without any event.
            window.activity.leftover.as_mut().unwrap().iterations = 1_002;
        }
        let found = warning(&rates, Rig::Threads).unwrap();
        assert!(
            found.starts_with("1 of 6 rows have a CPU use of 0 or less, by chance:"),
            "{found}"
        );
        assert_eq!(warning(&rates, Rig::Nvme), None);
    }

    #[test]
    fn events_that_wait_for_a_slow_clock_leave_its_row_in_the_fit() {
        let mut rates = windows();
        let slow = Scheme::Clocked { period_ns: 20_000_000 };
        for window in rates.iter_mut().filter(|window| window.point.scheme != Scheme::Interrupt) {
            // 2.5 % of the events wait when the window of 400 ms ends.
            window.point.scheme = slow;
            window.activity.window_ns = 400_000_000;
            window.delivered -= window.offered / 40;
        }
        let (tables, _) = tables_and_absences(rates);
        let rates = table(&tables, RATES);
        let mut slow_rows = 0;
        for row in rates.rows() {
            let get = |column: &str| rates.get(row, column).expect(column);
            if *get("scheme") == record::Value::Text(slow.to_string()) {
                slow_rows += 1;
                assert_eq!(*get("is_over_capacity"), record::Value::Bool(false));
                assert!(*get("predicted_cpu_ratio") != record::Value::Absent, "{row:?}");
            }
        }
        assert_eq!(slow_rows, 3);
    }

    #[test]
    fn a_crossover_is_measured_only_if_the_differences_exceed_their_errors() {
        let (tables, absent) = tables_and_absences(windows());
        let crossovers = table(&tables, "crossovers");
        for shown in [crossovers, table(&tables, RATES)] {
            assert_eq!(shown.check_display(), Ok(()), "{}", shown.name);
        }
        let [row] = crossovers.rows() else { panic!("one pair of schemes") };
        let number = |column: &str| match crossovers.get(row, column) {
            Some(record::Value::Real(number)) => *number,
            other => panic!("{column}: {other:?}"),
        };
        assert_eq!((number("measured_low_hz"), number("measured_high_hz")), (5_000.0, 20_000.0));
        assert!((5_000.0..20_000.0).contains(&number("measured_hz")));
        assert!(absent.is_empty(), "{absent:?}");
        // The medians stay, but the windows of a point differ by 20 % of the CPU's time.
        let mut noisy = windows();
        let count = noisy.len();
        for (position, window) in noisy.iter_mut().enumerate() {
            let leftover = window.activity.leftover.as_mut().unwrap();
            let is_first = position < count / 2;
            leftover.iterations =
                leftover.iterations.saturating_add_signed(if is_first { 100 } else { -100 });
        }
        let (tables, absent) = tables_and_absences(noisy);
        assert_eq!(table(&tables, "crossovers").rows().len(), 0);
        let undecided = absent.iter().find(|absence| absence.table == "crossovers").unwrap();
        assert_eq!(undecided.what, "crossover of interrupt and coalesced:8,100us");
        assert_eq!(undecided.reason, "the CPU shares do not differ by more than their errors");
    }

    #[test]
    fn the_cost_model_is_not_fitted_to_reads_of_a_disk() {
        let samples = Samples { rates: windows(), ..Samples::default() };
        let rows = |tables: &[Table], name: &str| {
            tables.iter().find(|table| table.name == name).map_or(0, |table| table.rows().len())
        };
        let (threads, absent) = all(&plan(Rig::Threads), &samples);
        assert_eq!(absent.len(), 0);
        assert!(rows(&threads, "costs") > 0 && rows(&threads, "crossovers") > 0);
        let (nvme, absent) = all(&plan(Rig::Nvme), &samples);
        assert_eq!(absent.len(), 1);
        assert_eq!(absent[0].reason, "the cost model has no time of a device");
        for name in ["costs", "crossovers", "curves", "regions"] {
            assert_eq!(rows(&nvme, name), 0, "{name}");
        }
        let rates = nvme.iter().find(|table| table.name == RATES).unwrap();
        assert_eq!(rates.rows().len(), 6);
        for row in rates.rows() {
            let predicted = rates.get(row, "predicted_cpu_ratio");
            assert!(matches!(predicted, None | Some(record::Value::Absent)), "{predicted:?}");
        }
    }
}
