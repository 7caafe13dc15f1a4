//! The wait for the slowest of many nodes, against closed forms and against counting.

use proptest::prelude::*;
use stats::barrier::{Delays, Piece, Slowest};

fn step(low: u64, weight: u64) -> Piece {
    Piece { low, weight, is_in_detour: false, block: 0 }
}

fn slowest(pieces: &[Piece], nodes: u64, barrier_ns: u64) -> Slowest {
    Delays::new(&[pieces.to_vec()]).expect("some work").of_a_node().slowest(nodes, barrier_ns)
}

#[test]
fn the_largest_of_exponential_delays_grows_with_the_harmonic_numbers() {
    // Quantiles in the middle of 10^6 equal parts of an exponential of mean 10^6.
    let count = 1_000_000_u32;
    let value = |index: u32| -1e6 * ((f64::from(index) + 0.5) / f64::from(count)).ln();
    let pieces: Vec<Piece> = (0..count).map(|index| step(value(index) as u64, 1)).collect();
    for nodes in [1_u64, 10, 1000] {
        let harmonic: f64 = (1..=nodes).map(|k| 1.0 / k as f64).sum();
        let mean = slowest(&pieces, nodes, 0).mean();
        assert!((mean / 1e6 - harmonic).abs() < 0.005 * harmonic, "{nodes}: {mean}");
    }
}

/// Detours of `length` that are `apart` on average, and phases of `work`. No phase has two detours.
fn rare(length: u64, apart: u64, work: u64) -> [Piece; 3] {
    let detour = Piece { low: 0, weight: length, is_in_detour: true, block: 0 };
    [step(0, apart - work), step(length, work), detour]
}

#[test]
fn with_short_phases_the_job_runs_while_all_nodes_are_at_work() {
    // Phases are so short that a job stands exactly while any of its nodes is in a detour.
    let (length, apart, work) = (50_000_000, 950_000_000, 1_000);
    // With more nodes, phases overlap so often that the job also runs while nodes are in detours.
    for (nodes, tolerance) in [(1_u64, 0.01), (2, 0.03), (4, 0.03), (16, 0.04), (64, 0.1)] {
        let slowdown = slowest(&rare(length, apart, work), nodes, 0).mean() / work as f64;
        // A node is at work for this share of the time.
        let share = apart as f64 / (apart + length) as f64;
        let expected = share.powf(-(nodes as f64)) - 1.0;
        assert!((slowdown / expected - 1.0).abs() < tolerance, "{nodes}: {slowdown}, {expected}");
    }
}

#[test]
fn after_a_long_barrier_nodes_start_at_any_time() {
    // The barrier takes longer than detours. So each node starts at work or at any time of a detour.
    let (length, apart, work) = (10_000, 990_000, 100_000);
    for nodes in [1_u64, 2, 9, 1_000, 1_000_000_000] {
        let slowest = slowest(&rare(length, apart, work), nodes, 2 * length);
        // P(delay <= x) = (at work without a detour + the first x of the rests of detours) / all
        let below = |x: f64| ((apart - work) as f64 + x) / (apart + length) as f64;
        let n = nodes as f64;
        let integral = (below(length as f64).powf(n + 1.0) - below(0.0).powf(n + 1.0)) / (n + 1.0);
        let mean = length as f64 - integral * (apart + length) as f64;
        assert!((slowest.mean() - mean).abs() < 1e-3 * mean, "{nodes}: {} {mean}", slowest.mean());
        let median = 0.5_f64.powf(1.0 / n) * (apart + length) as f64 - (apart - work) as f64;
        let median = median.clamp(0.0, length as f64);
        assert!((slowest.quantile(0.5) - median).abs() < 1e-3 * length as f64, "{nodes}");
    }
}

#[test]
fn each_cpu_has_the_same_share_however_long_it_was_measured() {
    let quiet = vec![step(0, 1_000_000)];
    let noisy = vec![step(0, 10), step(1_000, 10)];
    let delays = Delays::new(&[quiet, noisy]).expect("work");
    // The noisy CPU has the delay in half of its phases.
    assert!((delays.of_a_node().slowest(1, 0).mean() - 250.0).abs() < 1e-9);
}

#[test]
fn any_number_of_equal_cpus_is_as_one() {
    // Each phase of each CPU has a detour.
    let cpu = || vec![step(10, 900), Piece { low: 10, weight: 100, is_in_detour: true, block: 0 }];
    let one = slowest(&cpu(), 1_000, 5).mean();
    for cpus in [9, 20, 48, 96] {
        let delays = Delays::new(&vec![cpu(); cpus]).expect("work");
        let mean = delays.of_a_node().slowest(1_000, 5).mean();
        assert!((mean / one - 1.0).abs() < 1e-9, "{cpus}: {mean}, {one}");
    }
}

#[test]
fn few_blocks_of_one_cpu_have_no_interval() {
    let cpu =
        |blocks: u32| (0..blocks).map(|block| Piece { block, ..step(block.into(), 9) }).collect();
    let resamples = |cpus: &[u32]| {
        let cpus: Vec<Vec<Piece>> = cpus.iter().map(|blocks| cpu(*blocks)).collect();
        Delays::new(&cpus).expect("work").resamples(1)
    };
    assert!(resamples(&[16]).is_some() && resamples(&[8, 8]).is_some());
    assert!(
        resamples(&[15]).is_none()
            && resamples(&[1; 16]).is_none()
            && resamples(&[30, 3]).is_none()
    );
}

#[test]
fn one_very_long_detour_leaves_the_others_as_they_are() {
    let short = |low: u64| step(low, 100);
    let mut pieces: Vec<Piece> = (900..1_100).map(short).collect();
    pieces.push(step(1_000_000_000, 1));
    let median = slowest(&pieces, 1, 0).quantile(0.5);
    assert!((median / 1_000.0 - 1.0).abs() < 0.03, "{median}");
}

#[test]
fn without_work_there_is_nothing() {
    assert!(Delays::new(&[vec![]]).is_none());
    assert!(Delays::new(&[vec![step(5, 0)]]).is_none());
    assert!(
        Delays::new(&[vec![Piece { low: 0, weight: 9, is_in_detour: true, block: 0 }]]).is_none()
    );
    assert!(
        Delays::new(&[vec![step(5, 1)]]).expect("work").resamples(1).is_none(),
        "one block only"
    );
}

proptest! {
    #[test]
    fn without_detours_the_largest_is_what_counting_all_draws_gives(
        values in prop::collection::vec(0_u64..50, 1..6), nodes in 1_u32..4,
    ) {
        // All tuples of draws, one by one.
        let tuples = values.len().pow(nodes);
        let largest = |tuple: usize| {
            (0..nodes).map(|k| values[tuple / values.len().pow(k) % values.len()]).max()
        };
        let sum: u64 = (0..tuples).filter_map(largest).sum();
        let pieces: Vec<Piece> = values.iter().map(|value| step(*value, 1)).collect();
        let mean = slowest(&pieces, nodes.into(), 0).mean();
        prop_assert!((mean - sum as f64 / tuples as f64).abs() < 1e-9);
    }

    #[test]
    fn figures_lie_in_order_and_within_the_delays(
        pieces in prop::collection::vec((0_u64..1000, 1_u64..500, any::<bool>(), 0_u32..20), 1..40),
        barrier_ns in 0_u64..1000, seed: u64,
    ) {
        let piece = |&(low, weight, is_in_detour, block)| Piece { low, weight, is_in_detour, block };
        let pieces: Vec<Piece> = pieces.iter().map(piece).collect();
        let Some(delays) = Delays::new(&[pieces]) else { return Ok(()) };
        let largest = 1500.0 + 1e-6;
        for nodes in [1, 2, 64, 4096, 1 << 20, 1 << 40] {
            let slowest = delays.of_a_node().slowest(nodes, barrier_ns);
            prop_assert!((0.0..=largest).contains(&slowest.mean()), "{}", slowest.mean());
            let (p10, p90) = (slowest.quantile(0.1), slowest.quantile(0.9));
            prop_assert!(p10 <= p90 && (0.0..=largest).contains(&p90));
        }
        if let Some(resamples) = delays.resamples(seed) {
            let mean = delays.of_a_node().slowest(64, barrier_ns).mean();
            let (low, high) = resamples.interval(64, barrier_ns, mean).expect("resamples");
            prop_assert!(0.0 <= low && low <= mean && mean <= high);
        }
    }
}
