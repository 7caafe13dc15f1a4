//! The parts of gaps add up, whatever the kernel reports and however few reports arrive.

use lab::experiment::Experiment;
use lab::noise::{
    AttributionParameters, Class, CpuNoise, Gap, GapLedger, KeepDetours, Loop, LoopResult, Mark,
    NoiseSample, Part, Plan, Traced, What, split,
};
use proptest::prelude::*;
use record::Table;

/// A window of the detour loop on one CPU. `clock_rate_error` bounds the relative error of the clock's rate.
fn sample(ledger: GapLedger, window_ns: u64, clock_rate_error: Option<f64>) -> NoiseSample {
    let cpu = CpuNoise::new(0, 0, window_ns, LoopResult::Gaps(Box::new(ledger)));
    NoiseSample {
        traced: Some(Traced::default()),
        clock_rate_error,
        ..NoiseSample::in_exact_clock(Loop::Detour, vec![cpu])
    }
}

/// A number of a table's first row, or `None` if it is absent.
fn number(table: &Table, column: &str) -> Option<f64> {
    let position =
        table.columns.iter().position(|candidate| candidate.name == column).expect(column);
    match table.rows().first().expect("a row")[position] {
        record::Value::Uint(number) => Some(number as f64),
        record::Value::Real(number) => Some(number),
        _ => None,
    }
}

fn table(sample: NoiseSample, name: &str) -> Table {
    let report = Plan::default().report(&vec![sample]);
    report.tables.into_iter().find(|table| table.name == name).expect(name)
}

/// Time without a name is not explained, on virtual machines or on bare metal. The kernel names 300 of 1,700 ns, and
/// 20 ns lie within the measured latencies of entry and exit.
#[test]
fn what_only_elimination_gives_to_the_host_is_not_explained() {
    for (entry_latency_ns, entry_exit_ns, unattributed_ns, remainder_ns) in
        // Without a measured latency, nothing counts as entry or exit.
        [(10, Some(20.0), 1_200.0, 180.0), (0, None, 1_210.0, 190.0)]
    {
        let mut ledger =
            GapLedger::new(AttributionParameters { entry_latency_ns }, KeepDetours::with_seed(1));
        ledger.add(Gap { start_ns: 0, end_ns: 1_000 }, &[]);
        let mark = |at_ns, what| Mark { at_ns, what };
        let tick = [
            mark(5_210, What::Enter(1)),
            mark(5_410, What::Leave(1)),
            mark(5_500, What::Enter(2)),
            mark(5_600, What::Leave(2)),
        ];
        ledger.add(Gap { start_ns: 5_000, end_ns: 5_700 }, &tick);
        let noise = table(sample(ledger, 10_000, None), "noise");
        assert_eq!(number(&noise, "lost_ns"), Some(1_700.0));
        assert_eq!(number(&noise, "attributed_ns"), Some(300.0));
        assert_eq!(number(&noise, "entry_exit_ns"), entry_exit_ns);
        assert_eq!(number(&noise, "unattributed_ns"), Some(unattributed_ns));
        assert_eq!(number(&noise, "remainder_ns"), Some(remainder_ns));
        let explained = (300.0 + entry_exit_ns.unwrap_or(0.0)) / 1_700.0;
        let found = number(&noise, "explained_ratio").expect("it was watched");
        assert!((found - explained).abs() < 1e-12, "{found}, expected {explained}");
    }
}

/// A clock that is 300 ppm fast makes a period of 4 ms appear 1.2 us too long, however many events are seen. The
/// statistical interval alone does not cover this error.
#[test]
fn the_uncertainty_of_a_period_has_the_clocks_part() {
    let (true_ns, fast) = (4e6, 3e-4);
    let ledger = || {
        let mut ledger = GapLedger::new(
            AttributionParameters { entry_latency_ns: 10 },
            KeepDetours::with_seed(1),
        );
        let mut random = stats::Random::new(3);
        for tick in 1..1_000_u32 {
            let late_ns = random.unit() * 500.0;
            let start_ns = (f64::from(tick) * true_ns * (1.0 + fast) + late_ns) as u64;
            let marks = [
                Mark { at_ns: start_ns + 5, what: What::Enter(1) },
                Mark { at_ns: start_ns + 900, what: What::Leave(1) },
            ];
            ledger.add(Gap { start_ns, end_ns: start_ns + 905 }, &marks);
        }
        ledger
    };
    let window_ns = 4_000_000_000;
    let periods = table(sample(ledger(), window_ns, Some(5e-4)), "periods");
    let [period, uncertainty, ci95, clock] =
        ["period_ns", "period_uncertainty_ns", "period_ci95_ns", "period_clock_error_ns"]
            .map(|column| number(&periods, column).expect(column));
    let error = (period - true_ns).abs();
    assert!(error > 10.0 * ci95, "the events' interval has the clock's error: {error}, {ci95}");
    assert!(error <= uncertainty, "{error} of {uncertainty}");
    assert!((clock - 5e-4 * period).abs() < 1e-6 && (uncertainty - ci95 - clock).abs() < 1e-6);
    // If the clock's error is unknown, the period's error is unknown, too.
    let periods = table(sample(ledger(), window_ns, None), "periods");
    assert_eq!(number(&periods, "period_uncertainty_ns"), None);
    assert!(number(&periods, "period_ci95_ns").is_some());
}

fn any_event() -> impl Strategy<Value = What> {
    prop_oneof![
        (0u32..6).prop_map(What::Enter),
        (0u32..6).prop_map(What::Leave),
        (6u32..9).prop_map(What::SwitchTo),
        Just(What::SwitchBack),
        Just(What::Fault),
    ]
}

/// Arbitrary marks in the order of time. Some lie outside of the gap.
fn marks() -> impl Strategy<Value = Vec<Mark>> {
    prop::collection::vec((0u64..3000, any_event()), 0..40).prop_map(|mut list| {
        list.sort_by_key(|(at_ns, _)| *at_ns);
        list.into_iter().map(|(at_ns, what)| Mark { at_ns, what }).collect()
    })
}

proptest! {
    #[test]
    fn the_parts_of_any_gap_add_up_to_it(
        start_ns in 0u64..2000, length_ns in 0u64..2000, marks in marks(), entry_latency_ns in 0u64..500,
    ) {
        let gap = Gap { start_ns, end_ns: start_ns + length_ns };
        let mut parts = Vec::new();
        split(gap, &marks, AttributionParameters { entry_latency_ns }, &mut parts);
        prop_assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), length_ns);
        prop_assert!(parts.iter().all(|part| part.1 > 0));
        let time_of = |wanted: Part| {
            parts.iter().filter(|(part, _)| *part == wanted).map(|(_, ns)| ns).sum::<u64>()
        };
        prop_assert!(time_of(Part::Entry) <= entry_latency_ns);
        prop_assert!(time_of(Part::Exit) <= entry_latency_ns);
        prop_assert_eq!(time_of(Part::NoEvent) > 0, marks.is_empty() && length_ns > 0);
    }

    /// Consecutive and nested contexts get exactly their self times if every event arrives.
    #[test]
    fn contexts_get_their_own_time(
        lengths in prop::collection::vec((1u64..500, 0u64..300, 1u64..500, 0u64..50), 1..10),
        entry_ns in 0u64..200, exit_ns in 0u64..200,
    ) {
        let (mut now_ns, mut marks, mut self_ns) = (entry_ns, Vec::new(), [0; 4]);
        let mut add_mark = |now_ns: &mut u64, after_ns: u64, what| {
            *now_ns += after_ns;
            marks.push(Mark { at_ns: *now_ns, what });
        };
        for (position, (before, nested, after, pause)) in lengths.iter().enumerate() {
            let outer = (position % 2) as u32;
            add_mark(&mut now_ns, 0, What::Enter(outer));
            add_mark(&mut now_ns, *before, What::Enter(2 + outer));
            add_mark(&mut now_ns, *nested, What::Leave(2 + outer));
            add_mark(&mut now_ns, *after, What::Leave(outer));
            self_ns[outer as usize] += before + after;
            self_ns[2 + outer as usize] += nested;
            now_ns += pause;
        }
        let end_ns = now_ns + exit_ns;
        let mut ledger = GapLedger::new(AttributionParameters { entry_latency_ns: u64::MAX }, KeepDetours::with_seed(1));
        ledger.add(Gap { start_ns: 0, end_ns }, &marks);
        for (context, expected_ns) in (0u32..).zip(self_ns) {
            let found = ledger.parts.get(&Part::Context(context)).map_or(0, |times| times.sum);
            prop_assert_eq!(found, expected_ns, "context {}", context);
        }
        let pauses: u64 = lengths[..lengths.len() - 1].iter().map(|(_, _, _, pause)| pause).sum();
        let sums = ledger.by_class_ns().unwrap_or_default();
        prop_assert_eq!(sums[Class::Remainder as usize], pauses);
        prop_assert_eq!(sums.iter().sum::<u64>(), end_ns);
        prop_assert_eq!((ledger.faults.cut, ledger.faults.unmatched), (0, 0));
    }
}
