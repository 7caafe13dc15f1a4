//! Compares the delays of a parallel job with closed forms.

use lab::noise::scale::{Arrivals, Job, Row, ScaleError, Trace, delays, run, scale, traces};
use proptest::prelude::*;
use record::{Column, Kind, Run, Table, Value};
use serde_json::Map;
use stats::Random;
use stats::barrier::Piece;

fn trace(own_ns: u64, detours: Vec<(u64, u64)>) -> Trace {
    let count = detours.len() as u64;
    let max_ns = detours.iter().map(|(_, length)| *length).max().unwrap_or(0);
    Trace { cpu: 0, own_ns, detours, arrivals: Arrivals::Measured, count, lost: 0, max_ns }
}

fn job(nodes: &[u64], granularity_ns: u64) -> Job {
    Job {
        nodes: nodes.to_vec(),
        granularities_ns: vec![granularity_ns],
        latency_ns: 0,
        without: vec![],
        seed: 1,
    }
}

/// A trace with a detour of `length_ns` every `period_ns`, `times` times.
fn periodic(period_ns: u64, length_ns: u64, times: u64) -> Trace {
    let own_ns = period_ns - length_ns;
    trace(
        own_ns * times,
        (0..times).map(|number| (number * own_ns + own_ns / 3, length_ns)).collect(),
    )
}

/// A trace of `count` detours at random times, `apart_ns` apart on average. `length_ns` draws a length.
fn random(count: u64, apart_ns: f64, mut length_ns: impl FnMut(&mut Random) -> u64) -> Trace {
    let mut random = Random::new(11);
    let (mut at, mut detours) = (0.0, Vec::new());
    for _ in 0..count {
        at += random.exponential() * apart_ns;
        detours.push((at as u64, length_ns(&mut random)));
    }
    trace((at + random.exponential() * apart_ns) as u64, detours)
}

/// Executes the job step by step on nodes that go through the trace at times of their own.
struct Replay {
    /// The node's own time at the start of each detour, and the sum of all detours before.
    starts: Vec<(u64, u64)>,
    own_ns: u64,
    window_ns: u64,
}

impl Replay {
    fn of(trace: &Trace) -> Replay {
        let mut lost_ns = 0;
        let start = |&(start_ns, length_ns): &(u64, u64)| {
            lost_ns += length_ns;
            (start_ns, lost_ns - length_ns)
        };
        let starts = trace.detours.iter().map(start).collect();
        Replay { starts, own_ns: trace.own_ns, window_ns: trace.own_ns + lost_ns }
    }

    /// The time in the window at which a node has done `own_ns` of work since the window's start.
    fn time_at(&self, own_ns: u64) -> u64 {
        let (rounds, own_ns) = (own_ns / self.own_ns, own_ns % self.own_ns);
        let before = self.starts.partition_point(|(start_ns, _)| *start_ns < own_ns);
        let lost_ns = match self.starts.get(before) {
            Some((_, lost_ns)) => *lost_ns,
            None => self.window_ns - self.own_ns,
        };
        rounds * self.window_ns + own_ns + lost_ns
    }

    /// The work that a node has done at a time in the window.
    fn own_at(&self, time_ns: u64) -> u64 {
        let before =
            self.starts.partition_point(|(start_ns, lost_ns)| start_ns + lost_ns <= time_ns);
        if before == 0 {
            return time_ns;
        }
        let (start_ns, _) = self.starts[before - 1];
        let lost_ns = match self.starts.get(before) {
            Some((_, lost_ns)) => *lost_ns,
            None => self.window_ns - self.own_ns,
        };
        start_ns.max(time_ns.saturating_sub(lost_ns))
    }

    /// The mean delay of the slowest of `nodes` in jobs of `phases`.
    fn mean_delay_ns(&self, nodes: u64, granularity_ns: u64, barrier_ns: u64, phases: u64) -> f64 {
        let mut random = Random::new(5);
        let mut sum_ns = 0;
        const JOBS: u64 = 20;
        for _ in 0..JOBS {
            let offsets: Vec<u64> = (0..nodes).map(|_| random.below(self.window_ns)).collect();
            let mut now_ns = 0;
            for _ in 0..phases / JOBS {
                let done = |offset: &u64| {
                    let start_ns = (offset + now_ns) % self.window_ns;
                    self.time_at(self.own_at(start_ns) + granularity_ns) - start_ns
                };
                let slowest_ns = offsets.iter().map(done).max().unwrap();
                sum_ns += slowest_ns - granularity_ns;
                now_ns += slowest_ns + barrier_ns;
            }
        }
        sum_ns as f64 / (phases / JOBS * JOBS) as f64
    }
}

/// Compares rows with a replay: numbers of nodes with the allowed deviation.
fn assert_replayed(trace: &Trace, granularity_ns: u64, latency_ns: u64, cases: &[(u64, f64)]) {
    let replay = Replay::of(trace);
    for &(nodes, tolerance) in cases {
        let job = Job { latency_ns, ..job(&[nodes], granularity_ns) };
        let row = &scale(std::slice::from_ref(trace), &job).unwrap()[0];
        let phases = 1_000_000 / nodes;
        let mean = replay.mean_delay_ns(nodes, granularity_ns, row.barrier_ns, phases);
        assert!((row.delay_ns / mean - 1.0).abs() < tolerance, "{row:?}: {mean}");
        let (low, high) = row.interval.expect("blocks enough");
        assert!(low < row.slowdown_ratio && high.is_none_or(|high| high > row.slowdown_ratio));
    }
}

#[test]
fn detours_much_longer_than_phases_are_waited_for_once() {
    // As when the kernel throttles real-time tasks.
    let throttled = random(2_000, 950e6, |_| 50_000_000);
    let cases = [(1, 0.05), (2, 0.05), (4, 0.05), (16, 0.05), (64, 0.1), (128, 0.1)];
    assert_replayed(&throttled, 1_000_000, 0, &cases);

    assert_replayed(&throttled, 1_000_000, 1_000, &[(16, 0.1)]);
}

#[test]
fn short_detours_are_as_in_a_replay() {
    let tick = random(60_000, 4e6, |_| 15_000);
    assert_replayed(&tick, 100_000, 0, &[(1, 0.05), (16, 0.05), (256, 0.05), (4096, 0.05)]);
    let mixed = random(60_000, 1e6, |random| (random.exponential() * 10_000.0) as u64);
    assert_replayed(&mixed, 500_000, 1_000, &[(1, 0.05), (16, 0.05), (256, 0.05)]);
}

#[test]
fn dense_detours_are_nearly_as_in_a_replay() {
    let dense = random(60_000, 30_000.0, |random| (random.exponential() * 10_000.0) as u64);
    assert_replayed(&dense, 100_000, 0, &[(1, 0.05), (2, 0.1), (16, 0.1), (256, 0.1)]);
}

#[test]
fn ticks_at_a_fixed_rate_are_as_in_a_replay() {
    let tick = periodic(4_000_000, 15_000, 1000);
    assert_replayed(&tick, 1_000_000, 0, &[(1, 0.05), (2, 0.05), (16, 0.05), (64, 0.05)]);
}

#[test]
fn noise_at_the_same_times_costs_its_share_whatever_the_number() {
    let rows = scale(&[periodic(1_000_000, 10_000, 5000)], &job(&[1, 1 << 30], 990_000)).unwrap();
    let same: Vec<&Row> = rows.iter().filter(|row| row.coscheduled).collect();
    assert_eq!(same[0].delay_ns, same[1].delay_ns);
    assert!((same[0].delay_ns - 10_000.0).abs() < 100.0, "{same:?}");
    assert!(same.iter().all(|row| !row.is_lower_bound));
}

#[test]
fn beyond_what_was_measured_there_is_no_upper_end() {
    let rows = scale(&[periodic(1_000_000, 10_000, 1000)], &job(&[1, 900, 1100], 100_000)).unwrap();
    let independent: Vec<&Row> = rows.iter().filter(|row| !row.coscheduled).collect();
    assert_eq!(
        independent.iter().map(|row| row.is_lower_bound).collect::<Vec<_>>(),
        [false, false, true]
    );
    assert!(independent[1].interval.unwrap().1.is_some());
    assert!(independent[2].interval.unwrap().1.is_none());
    // The 99th percentile of the largest of 9 delays is exceeded by about 11 of 9,900 measured delays.
    let rows = scale(&[periodic(1_000_000, 10_000, 1000)], &job(&[9, 10], 100_000)).unwrap();
    let has_p99 = |row: &Row| row.delay_p99_ns.is_some();
    assert_eq!(rows.iter().map(has_p99).collect::<Vec<_>>(), [true, false, true, true]);
}

#[test]
fn a_barrier_makes_slowdowns_smaller_and_takes_its_rounds() {
    let tick = [periodic(1_000_000, 10_000, 1000)];
    let with = Job { latency_ns: 2000, ..job(&[1024], 100_000) };
    let (without, with) =
        (scale(&tick, &job(&[1024], 100_000)).unwrap(), scale(&tick, &with).unwrap());
    assert_eq!((with[0].barrier_ns, without[0].barrier_ns), (20_000, 0));
    // The delay is the same but for the last node, which can start in a detour after the barrier.
    assert!((with[0].slowdown_ratio * 1.2 / without[0].slowdown_ratio - 1.0).abs() < 1e-3);
}

#[test]
fn granularities_that_the_window_is_too_short_for_are_refused() {
    let tick = [periodic(1_000_000, 10_000, 100)];
    for granularity_ns in [999, 9_900_001] {
        let refused = scale(&tick, &job(&[1], granularity_ns)).unwrap_err();
        assert_eq!(refused, ScaleError::Granularity { granularity_ns, max_ns: 9_900_000 });
    }
    assert!(scale(&tick, &job(&[1], 9_900_000)).is_ok());
}

/// A run without losses, with the columns that `traces` reads.
fn measured(window_ns: u64, detours: &[(u64, u64)], count: u64) -> Run {
    measured_with_losses(window_ns, detours, count, 0)
}

/// A run that lost `lost` detours.
fn measured_with_losses(window_ns: u64, detours: &[(u64, u64)], count: u64, lost: u64) -> Run {
    let uint = |name: &str| Column::new(name, Kind::Uint, "For a test.");
    let traced = Column::new("traced", Kind::Bool, "For a test.");
    let [cpu, window, detour_count] = ["cpu", "window_ns", "detour_count"].map(uint);
    let columns = vec![cpu, traced, window, detour_count, uint("lost_record_count")];
    let mut noise = Table::new("noise", "For a test.", columns);
    noise.push(vec![2_u64.into(), true.into(), window_ns.into(), count.into(), lost.into()]);
    noise.push(vec![2_u64.into(), false.into(), 5_u64.into(), 77_u64.into(), 0_u64.into()]);
    let columns = ["cpu", "start_ns", "length_ns"].map(uint).to_vec();
    let mut singles = Table::new("detours", "For a test.", columns);
    let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "detour_count"].map(uint).to_vec();
    let mut sizes = Table::new("detour_histogram", "For a test.", columns);
    for &(start_ns, length_ns) in detours {
        singles.push(vec![2_u64.into(), start_ns.into(), length_ns.into()]);
    }
    sizes.push(vec![2_u64.into(), 1000_u64.into(), 1063_u64.into(), count.into()]);
    Run {
        schema: record::SCHEMA.to_owned(),
        experiment: "noise".to_owned(),
        bench: "live".to_owned(),
        started_utc: String::new(),
        complete: true,
        host: Map::new(),
        settings: Map::new(),
        observer: Map::new(),
        warnings: vec![],
        absent: vec![],
        tables: vec![noise, singles, sizes],
    }
}

#[test]
fn a_run_is_read_and_one_that_contradicts_itself_is_refused() {
    let good = measured(100_000, &[(50_000, 1000), (10_000, 2000)], 2);
    let trace = &traces(&good, None, None, 1).unwrap()[0];
    assert_eq!(trace.detours, [(10_000, 2000), (48_000, 1000)]);
    assert_eq!((trace.own_ns, trace.cpu, trace.max_ns), (97_000, 2, 2000));
    for detours in [&[(99_000, 2000)][..], &[(10_000, 5000), (12_000, 10)], &[(u64::MAX, u64::MAX)]]
    {
        let bad = measured(100_000, detours, detours.len() as u64);
        let refused = traces(&bad, None, None, 1).unwrap_err();
        assert!(matches!(refused, ScaleError::Damaged { table: "detours", .. }), "{refused}");
    }
    let nothing = Run { tables: vec![], ..good };
    assert_eq!(traces(&nothing, None, None, 1), Err(ScaleError::Missing("noise")));
}

#[test]
fn a_loop_that_started_late_has_its_detours_in_its_own_window() {
    let mut run = measured(100_000, &[(150_000, 1000), (110_000, 2000)], 2);
    let columns = ["cpu", "window_ns", "window_start_ns", "detour_count"];
    let columns = columns.map(|name| Column::new(name, Kind::Uint, "For a test.")).to_vec();
    let mut noise = Table::new("noise", "For a test.", columns);
    noise.push([2_u64, 100_000, 100_000, 2].map(Value::from).to_vec());
    run.tables[0] = noise;
    assert_eq!(traces(&run, None, None, 1).unwrap()[0].detours, [(10_000, 2000), (48_000, 1000)]);
}

#[test]
fn where_there_is_a_sample_times_are_random_and_the_rate_is_right() {
    let thin = measured(1_000_000_000, &[(50_000, 1000)], 3_000);
    let asked = traces(&thin, Some(Arrivals::Measured), None, 1).unwrap_err();
    assert_eq!(asked, ScaleError::Thinned { cpu: 2, recorded: 1, count: 3000 });
    let trace = &traces(&thin, None, None, 1).unwrap()[0];
    assert_eq!((trace.arrivals, trace.detours.len()), (Arrivals::Random, 3000));
    assert!(trace.detours.iter().all(|(_, length)| (1000..=1063).contains(length)));
    assert!(trace.detours.is_sorted_by_key(|(start_ns, _)| *start_ns));
    // Above the maximum number of detours, a trace has a sample in correspondingly less time.
    let many = measured(10_000_000_000, &[(50_000, 1000)], 3_000_000);
    let trace = &traces(&many, None, None, 1).unwrap()[0];
    assert_eq!((trace.detours.len(), trace.count), (200_000, 3_000_000));
    assert_eq!(trace.own_ns, (10_000_000_000 - 3_000_000 * 1031) / 15);
}

#[test]
fn at_random_times_the_longest_detour_and_the_lost_time_are_exact() {
    let mut run = measured(1_000_000_000, &[(50_000, 1000)], 3_000);
    let names =
        ["cpu", "window_ns", "detour_count", "lost_record_count", "detour_max_ns", "lost_ns"];
    let columns = names.map(|name| Column::new(name, Kind::Uint, "For a test.")).to_vec();
    let mut noise = Table::new("noise", "For a test.", columns);
    noise.push([2_u64, 1_000_000_000, 3_000, 0, 1_010, 3_010_000].map(Value::from).to_vec());
    run.tables[0] = noise;
    let trace = &traces(&run, None, None, 1).unwrap()[0];
    assert_eq!((trace.max_ns, trace.own_ns), (1_010, 1_000_000_000 - 3_010_000));
    let lengths = || trace.detours.iter().map(|(_, length_ns)| *length_ns);
    assert_eq!((lengths().min(), lengths().max()), (Some(1_000), Some(1_010)));
}

/// A bucket with one detour does not shorten it to the bucket's lower end.
#[test]
fn at_random_times_a_single_detour_in_the_last_bucket_has_its_length() {
    let mut run = measured(1_000_000_000, &[(50_000, 1000)], 3_000);
    let names = ["cpu", "window_ns", "detour_count", "detour_max_ns", "lost_ns"];
    let columns = names.map(|name| Column::new(name, Kind::Uint, "For a test.")).to_vec();
    let mut noise = Table::new("noise", "For a test.", columns);
    noise.push([2_u64, 1_000_000_000, 3_002, 41_468, 3_120_000].map(Value::from).to_vec());
    run.tables[0] = noise;
    let sizes = run.tables.iter_mut().find(|table| table.name == "detour_histogram").unwrap();
    for (low_ns, high_ns) in [(32_768, 34_815), (40_960, 43_007)] {
        sizes.push([2_u64, low_ns, high_ns, 1].map(Value::from).to_vec());
    }
    let trace = &traces(&run, None, None, 1).unwrap()[0];
    let mut lengths: Vec<u64> = trace.detours.iter().map(|(_, length_ns)| *length_ns).collect();
    lengths.sort_unstable();
    assert_eq!(lengths[3_000..], [32_768 + 2_047 / 2, 41_468]);
}

#[test]
fn a_run_that_lost_detours_has_lower_bounds_only() {
    let detours: Vec<(u64, u64)> =
        (0..1_000).map(|number| (number * 1_000_000 + 5_000, 1_000)).collect();
    let scaled = |lost| {
        let run_with_losses = measured_with_losses(1_000_000_000, &detours, 1_000, lost);
        run(&run_with_losses, &job(&[1], 100_000), None, String::new(), Map::new()).unwrap()
    };
    let bounds = |run: &Run| -> Vec<Value> {
        let table = &run.tables[0];
        table.rows().iter().filter_map(|row| table.get(row, "is_lower_bound").cloned()).collect()
    };
    let (whole, with_losses) = (scaled(0), scaled(3));
    assert_eq!((bounds(&whole), whole.warnings.len()), (vec![false.into(); 2], 0));
    assert_eq!(bounds(&with_losses), vec![true.into(); 2]);
    assert!(with_losses.warnings[0].contains("lost"), "{:?}", with_losses.warnings);
}

#[test]
fn without_a_context_its_detours_are_work() {
    let mut run = measured(100_000, &[(10_000, 2_000), (50_000, 1_000), (60_000, 500)], 3);
    let mut singles = Table::new(
        "detours",
        "For a test.",
        [("cpu", Kind::Uint), ("start_ns", Kind::Uint), ("length_ns", Kind::Uint)]
            .into_iter()
            .chain([("trigger_kind", Kind::Text), ("trigger_name", Kind::Text)])
            .map(|(name, kind)| Column::new(name, kind, "For a test."))
            .collect(),
    );
    for (start_ns, length_ns, name) in
        [(10_000_u64, 2_000_u64, "local_timer"), (50_000, 1_000, "reschedule"), (60_000, 500, "")]
    {
        let trigger = if name.is_empty() {
            [Value::Absent, Value::Absent]
        } else {
            ["vector".into(), name.into()]
        };
        let numbers = [2_u64.into(), start_ns.into(), length_ns.into()];
        singles.push(numbers.into_iter().chain(trigger).collect());
    }
    run.tables[1] = singles;
    for cause in ["local_timer", "vector local_timer"] {
        let trace = &traces(&run, None, Some(cause), 1).unwrap()[0];
        assert_eq!(trace.detours, [(50_000, 1_000), (59_000, 500)]);
        assert_eq!((trace.own_ns, trace.arrivals), (98_500, Arrivals::Measured));
    }
    let at_random = &traces(&run, Some(Arrivals::Random), Some("local_timer"), 1).unwrap()[0];
    let lengths: u64 = at_random.detours.iter().map(|(_, length_ns)| length_ns).sum();
    assert_eq!((at_random.detours.len(), lengths, at_random.own_ns), (2, 1_500, 98_500));
    let known = ["vector local_timer", "vector reschedule"].map(str::to_owned).to_vec();
    let cause = "timer".to_owned();
    let refused = traces(&run, None, Some("timer"), 1);
    assert_eq!(refused, Err(ScaleError::NoSuchCause { cause, known }));
    let thin = measured(1_000_000_000, &[(50_000, 1000)], 3_000);
    let refused = traces(&thin, None, Some("local_timer"), 1);
    assert_eq!(refused, Err(ScaleError::Sampled { cpu: 2, recorded: 1, count: 3_000 }));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let thin = measured(1_000_000_000, &[(50_000, 1000)], 3_000);
    let job = job(&[1, 64], 100_000);
    let table = |seed| {
        let job = Job { seed, ..job.clone() };
        run(&thin, &job, None, String::new(), Map::new()).unwrap().tables
    };
    assert_eq!(table(1)[0].check_display(), Ok(()));
    assert_eq!(table(1), table(1));
    assert_ne!(table(1), table(2));
}

proptest! {
    #[test]
    fn delays_are_those_of_walking_through_the_trace(
        gaps in prop::collection::vec((0_u64..400, 1_u64..300), 1..12), more in 1_u64..50, phase in 1_u64..100,
    ) {
        let (mut last_ns, mut detours) = (0, Vec::new());
        for (gap, length) in gaps {
            last_ns += gap;
            detours.push((last_ns, length));
        }
        let own_ns = last_ns + more;
        let granularity_ns = phase.min(own_ns - 1).max(1);
        prop_assume!(granularity_ns < own_ns);
        let trace = trace(own_ns, detours.clone());
        let pieces = delays(&trace, granularity_ns, 1);
        let window: u64 = own_ns + detours.iter().map(|(_, length)| length).sum::<u64>();
        prop_assert_eq!(pieces.iter().map(|piece| piece.weight).sum::<u64>(), window);
        // The mean over starts in the middle of each ns of the window.
        let mut sum = 0.0;
        for start in 0..own_ns {
            let end = start + granularity_ns;
            // The start is half a ns after a detour at `start`. The end is half a ns after a detour at `end`.
            let is_in_phase =
                |detour: u64| (start < detour && detour <= end) || detour + own_ns <= end;
            let delay_ns: u64 = detours
                .iter()
                .filter(|(detour, _)| is_in_phase(*detour))
                .map(|(_, length)| length)
                .sum();
            sum += delay_ns as f64;
            }
        for (i, &(start, length)) in detours.iter().enumerate() {
            let later_ns: u64 = detours.iter().enumerate().filter(|(j, (detour, _))| {
                let is_later = *detour > start || (*detour == start && *j > i);
                let wraps = *detour + own_ns < start + granularity_ns;
                (is_later && *detour < start + granularity_ns) || wraps
            }).map(|(_, (_, length))| length).sum();
            sum += length as f64 * (later_ns as f64 + length as f64 / 2.0);
        }
        let mean_delay = |piece: &Piece| piece.low as f64 + if piece.is_in_detour { piece.weight as f64 / 2.0 } else { 0.0 };
        let weighted = pieces.iter().map(|piece| mean_delay(piece) * piece.weight as f64);
        let mean = weighted.sum::<f64>() / window as f64;
        prop_assert!((mean - sum / window as f64).abs() < 1e-6 * (1.0 + mean), "{mean} {}", sum / window as f64);
    }
}
