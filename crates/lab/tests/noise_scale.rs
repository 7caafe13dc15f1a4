//! Compares the delays of a parallel job with closed forms.

use lab::noise::scale::{Arrivals, Job, Row, ScaleError, Trace, delays, run, scale, traces};
use proptest::prelude::*;
use record::{Column, Kind, Run, Table, Value};
use serde_json::Map;
use stats::{Extremes, Random};

fn trace(own_ns: u64, detours: Vec<(u64, u64)>) -> Trace {
    let count = detours.len() as u64;
    let max_ns = detours.iter().map(|(_, length)| *length).max().unwrap_or(0);
    Trace { cpu: 0, own_ns, detours, arrivals: Arrivals::Measured, count, lost: 0, max_ns }
}

fn job(nodes: &[u64], granularity_ns: u64) -> Job {
    Job { nodes: nodes.to_vec(), granularities_ns: vec![granularity_ns], latency_ns: 0, seed: 1 }
}

/// A trace with a detour of `length_ns` every `period_ns`, `times` times.
fn periodic(period_ns: u64, length_ns: u64, times: u64) -> Trace {
    let own_ns = period_ns - length_ns;
    trace(
        own_ns * times,
        (0..times).map(|number| (number * own_ns + own_ns / 3, length_ns)).collect(),
    )
}

/// The mean of the largest delay. The period is P = c + d, with a detour of length d. The granularity is q c + r.
///
/// The last node starts between detours. It loses q d, and d more if it starts within r before a detour. The other nodes
/// start at any time. With probability d / P they start in a detour, and lose the rest of this detour, too.
fn largest_of_periodic(c: f64, d: f64, granularity: f64, nodes: f64) -> f64 {
    let (period, quotient, rest) = (c + d, (granularity / c).floor(), granularity % c);
    let below = |x: f64| (c - rest + x) / period;
    let mean = |x: f64| period / nodes * below(x).powf(nodes);
    quotient * d + d - (c - rest) / c * (mean(d) - mean(0.0))
}

#[test]
fn periodic_noise_is_its_closed_form() {
    let (period, length) = (4_000_000, 15_000);
    let tick = periodic(period, length, 1000);
    for granularity_ns in [100_000, 1_000_000, 3_984_000, 5_000_000, 10_000_000] {
        let rows =
            scale(std::slice::from_ref(&tick), &job(&[1, 64, 4096, 1 << 20], granularity_ns))
                .unwrap();
        for row in rows.iter().filter(|row| !row.coscheduled) {
            let (c, d) = ((period - length) as f64, length as f64);
            let mean = largest_of_periodic(c, d, granularity_ns as f64, row.nodes as f64);
            assert!((row.delay_ns - mean).abs() < 1e-3 + mean * 1e-6, "{row:?}: {mean}");
        }
    }
}

/// Probability that the detours in a phase add up to at most `x`. Their number has a Poisson distribution, and their
/// lengths are exponential.
fn compound(mean_number: f64, x: f64) -> f64 {
    let (mut number_probability, mut sum) = ((-mean_number).exp(), 0.0);
    // Gamma(k, 1) at x: 1 - e^-x (1 + x + ... + x^(k-1) / (k-1)!)
    let (mut term, mut tail) = ((-x).exp(), 0.0);
    for k in 0..60 {
        sum += number_probability * if k == 0 { 1.0 } else { 1.0 - tail };
        tail += term;
        term *= x / f64::from(k + 1);
        number_probability *= mean_number / f64::from(k + 1);
    }
    sum
}

#[test]
fn exponential_noise_is_its_closed_form() {
    // 60,000 detours with a mean length of 10 us, 1 ms apart on average.
    let (mean_ns, apart_ns, granularity_ns) = (10_000.0, 1_000_000.0, 500_000);
    let mut random = Random::new(11);
    let (mut at, mut detours) = (0.0, Vec::new());
    for _ in 0..60_000 {
        at += random.exponential() * apart_ns;
        detours.push((at as u64, (random.exponential() * mean_ns) as u64));
    }
    let own_ns = (at + random.exponential() * apart_ns) as u64;
    let noise = trace(own_ns, detours);
    let rows = scale(&[noise], &job(&[1, 16, 256, 1024], granularity_ns)).unwrap();
    // With this probability, a node starts in a detour. The rest of the detour is exponential.
    let in_detour = mean_ns / (mean_ns + apart_ns);
    let number = granularity_ns as f64 / apart_ns;
    for row in rows.iter().filter(|row| !row.coscheduled) {
        let step = 0.01;
        let mean: f64 = (0..4000)
            .map(|bin| {
                let x = (f64::from(bin) + 0.5) * step;
                let outside = compound(number, x);
                let inside = compound(number, x) - decrease_by_exponential(number, x);
                let below = (1.0 - in_detour) * outside + in_detour * inside;
                step * (1.0 - outside * below.powf(row.nodes as f64 - 1.0))
            })
            .sum();
        let difference = (row.delay_ns / mean_ns - mean).abs() / mean;
        assert!(difference < 0.03, "{row:?}: {mean}");
        let (low, high) = row.interval.expect("blocks enough");
        assert!(low < row.slowdown_ratio && high.is_none_or(|high| high > row.slowdown_ratio));
    }
}

/// The decrease of [`compound`] by an additional exponential: P(sum <= x) minus P(sum + exponential <= x). Each number
/// of terms k becomes k + 1. The probabilities differ by the density term of the gamma distribution.
fn decrease_by_exponential(mean_number: f64, x: f64) -> f64 {
    let (mut number_probability, mut term, mut sum) = ((-mean_number).exp(), (-x).exp(), 0.0);
    for k in 0..60 {
        sum += number_probability * term;
        number_probability *= mean_number / f64::from(k + 1);
        term *= x / f64::from(k + 1);
    }
    sum
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
    assert!((with[0].slowdown_ratio * 1.2 - without[0].slowdown_ratio).abs() < 1e-9);
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
    let trace = &traces(&good, None, 1).unwrap()[0];
    assert_eq!(trace.detours, [(10_000, 2000), (48_000, 1000)]);
    assert_eq!((trace.own_ns, trace.cpu, trace.max_ns), (97_000, 2, 2000));
    for detours in [&[(99_000, 2000)][..], &[(10_000, 5000), (12_000, 10)], &[(u64::MAX, u64::MAX)]]
    {
        let bad = measured(100_000, detours, detours.len() as u64);
        let refused = traces(&bad, None, 1).unwrap_err();
        assert!(matches!(refused, ScaleError::Damaged { table: "detours", .. }), "{refused}");
    }
    let nothing = Run { tables: vec![], ..good };
    assert_eq!(traces(&nothing, None, 1), Err(ScaleError::Missing("noise")));
}

#[test]
fn a_loop_that_started_late_has_its_detours_in_its_own_window() {
    let mut run = measured(100_000, &[(150_000, 1000), (110_000, 2000)], 2);
    let columns = ["cpu", "window_ns", "window_start_ns", "detour_count"];
    let columns = columns.map(|name| Column::new(name, Kind::Uint, "For a test.")).to_vec();
    let mut noise = Table::new("noise", "For a test.", columns);
    noise.push([2_u64, 100_000, 100_000, 2].map(Value::from).to_vec());
    run.tables[0] = noise;
    assert_eq!(traces(&run, None, 1).unwrap()[0].detours, [(10_000, 2000), (48_000, 1000)]);
}

#[test]
fn where_there_is_a_sample_times_are_random_and_the_rate_is_right() {
    let thin = measured(1_000_000_000, &[(50_000, 1000)], 3_000);
    let asked = traces(&thin, Some(Arrivals::Measured), 1).unwrap_err();
    assert_eq!(asked, ScaleError::Thinned { cpu: 2, recorded: 1, count: 3000 });
    let trace = &traces(&thin, None, 1).unwrap()[0];
    assert_eq!((trace.arrivals, trace.detours.len()), (Arrivals::Random, 3000));
    assert!(trace.detours.iter().all(|(_, length)| (1000..=1063).contains(length)));
    assert!(trace.detours.is_sorted_by_key(|(start_ns, _)| *start_ns));
    // Above the maximum number of detours, a trace has a sample in correspondingly less time.
    let many = measured(10_000_000_000, &[(50_000, 1000)], 3_000_000);
    let trace = &traces(&many, None, 1).unwrap()[0];
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
    let trace = &traces(&run, None, 1).unwrap()[0];
    assert_eq!((trace.max_ns, trace.own_ns), (1_010, 1_000_000_000 - 3_010_000));
    assert!(trace.detours.iter().all(|(_, length)| (1000..=1010).contains(length)));
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
        let pieces = delays(&trace, granularity_ns, 0);
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
        let extremes = Extremes::new(&pieces).unwrap();
        let mean = extremes.mean_of_largest(1);
        prop_assert!((mean - sum / window as f64).abs() < 1e-6 * (1.0 + mean), "{mean} {}", sum / window as f64);
    }
}
