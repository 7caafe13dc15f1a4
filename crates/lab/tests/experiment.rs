//! In any experiment, a part that fails does not affect the results of other parts.

use std::time::Duration;

use lab::experiment::{Bench, BenchError, BenchFacts, Outcome, RunContext, Step, run};
use lab::footprint::{
    Geometry, Level, Method, Ready, Repetition, Samples, SeriesBench, Stimulus, Verdict,
    measure_series,
};
use lab::noise::{
    AttributionParameters, CpuNoise, Gap, GapLedger, KeepDetours, Loop, LoopResult, NoiseBench,
    NoiseSample, Part, Visibility,
};
use record::Run;

/// A bench whose measurements fail in some parts.
struct Failing;

impl Bench for Failing {
    fn facts(&self) -> BenchFacts {
        BenchFacts { bench: "mock".to_owned(), ..BenchFacts::default() }
    }

    fn stop_requested(&self) -> bool {
        false
    }
}

fn broken() -> BenchError {
    BenchError::Failed("the cable is loose".to_owned())
}

/// The run of `outcome`. It must be incomplete, and name the failed part.
fn incomplete<S>(outcome: Result<Outcome<S>, BenchError>, part: &str) -> Box<Run> {
    let Ok(Outcome::Run { run, .. }) = outcome else { panic!("no run") };
    assert!(!run.complete && run.bench == "mock");
    let absent = run.absent.iter().find(|absence| absence.what == part).expect(part);
    assert_eq!(absent.reason, "the cable is loose");
    run
}

fn unbalanced() -> GapLedger {
    let mut ledger =
        GapLedger::new(AttributionParameters { entry_latency_ns: 0 }, KeepDetours::with_seed(1));
    let gap = Gap { start_ns: 100, end_ns: 300 };
    ledger.add_split(gap, &mut vec![(Part::Fault, 200)]);
    ledger.add_split(gap, &mut vec![(Part::Fault, 7)]);
    ledger
}

impl NoiseBench for Failing {
    fn visibility(&self) -> Visibility {
        Visibility::EveryCycle
    }

    fn measure(&mut self, looping: Loop, _: bool) -> Result<NoiseSample, BenchError> {
        if looping == Loop::Fwq {
            return Err(broken());
        }
        let cpu = CpuNoise::new(0, 0, 1000, LoopResult::Gaps(Box::new(unbalanced())));
        Ok(NoiseSample {
            traced: Some(lab::noise::Traced::default()),
            ..NoiseSample::in_exact_clock(looping, vec![cpu])
        })
    }
}

#[test]
fn noise_keeps_the_loops_before_and_after_one_that_fails() {
    let plan = lab::noise::Plan { loops: vec![Loop::Detour, Loop::Fwq], trace: true, seed: 1 };
    let mut steps = Vec::new();
    let mut progress = |step: &Step| steps.push((step.number, step.count));
    let outcome = run(&plan, RunContext::default(), &mut Failing, &mut progress);
    let run = incomplete(outcome, "loop fwq");
    assert!(run.table("noise").is_some_and(|table| table.rows().len() == 1));
    assert_eq!(steps, [(1, 2), (2, 2)]);
    let only = lab::noise::Plan { loops: vec![Loop::Fwq], trace: true, seed: 1 };
    let outcome =
        lab::experiment::run(&only, RunContext::default(), &mut Failing, &mut |_: &Step| {});
    assert!(outcome.is_err_and(|error| error.to_string() == "loop fwq: the cable is loose"));
}

#[test]
fn a_ledger_that_does_not_balance_is_a_marked_result() {
    let ledger = unbalanced();
    assert_eq!((ledger.unbalanced, ledger.gaps.count, ledger.gaps.sum), (1, 2, 400));
    assert_eq!(ledger.parts[&Part::Fault].sum, 200);
    assert_eq!(ledger.parts[&Part::Unknown].sum, 200);
    let plan = lab::noise::Plan { loops: vec![Loop::Detour], trace: true, seed: 1 };
    let outcome = run(&plan, RunContext::default(), &mut Failing, &mut |_: &Step| {});
    let Ok(Outcome::Run { run, .. }) = outcome else { panic!("no run") };
    assert!(run.warnings.iter().any(|warning| warning.starts_with("broken: detour: CPU 0")));
}

#[test]
fn the_time_of_a_measurement_has_all_its_parts() {
    let seconds = |plan: &lab::noise::Plan| {
        let time = plan.expected_time(&Probing::default()).expect("the bench knows it");
        (
            time.windows,
            time.window_time.as_secs(),
            time.comparison.as_secs(),
            time.total().as_secs(),
        )
    };
    let all = vec![Loop::Detour, Loop::Fwq, Loop::Ftq];
    let all = lab::noise::Plan { loops: all, trace: true, seed: 1 };
    assert_eq!(seconds(&all), (3, 61, 32, 3 * 61 + 32));
    let without_probes = lab::noise::Plan { trace: false, ..all };
    assert_eq!(seconds(&without_probes), (3, 61, 0, 3 * 61));
    // A simulated machine does not know it.
    assert_eq!(without_probes.expected_time(&Failing), None);
}

/// A bench that records the requested windows. Other work takes more of each window than of the previous window. The
/// probes take 2 of 1,000 ns.
#[derive(Default)]
struct Probing {
    parts: Vec<bool>,
    full_windows: Vec<bool>,
}

impl Bench for Probing {
    fn facts(&self) -> BenchFacts {
        Failing.facts()
    }

    fn expected_step(&self) -> Option<Duration> {
        Some(Duration::from_secs(61))
    }

    fn stop_requested(&self) -> bool {
        false
    }
}

impl NoiseBench for Probing {
    fn visibility(&self) -> Visibility {
        Visibility::KernelEvents
    }

    fn expected_part(&self, parts: u32) -> Option<Duration> {
        Some(Duration::from_secs(32) / parts)
    }

    fn measure(&mut self, _: Loop, traced: bool) -> Result<NoiseSample, BenchError> {
        self.full_windows.push(traced);
        Failing.measure(Loop::Detour, traced)
    }

    fn measure_part(&mut self, traced: bool, parts: u32) -> Result<NoiseSample, BenchError> {
        assert_eq!(parts, 32);
        self.parts.push(traced);
        let lost_ns = 10 * self.parts.len() as u64 + if traced { 2 } else { 0 };
        let mut ledger = GapLedger::new(
            AttributionParameters { entry_latency_ns: 0 },
            KeepDetours::with_seed(1),
        );
        ledger.add_bare(Gap { start_ns: 100, end_ns: 100 + lost_ns });
        let mut sample = Failing.measure(Loop::Detour, traced)?;
        sample.cpus[0].result = LoopResult::Gaps(Box::new(ledger));
        Ok(sample)
    }
}

#[test]
fn probes_are_compared_with_none_in_pairs_of_windows() {
    let plan = lab::noise::Plan { loops: vec![Loop::Detour], trace: true, seed: 1 };
    let mut bench = Probing::default();
    let outcome = run(&plan, RunContext::default(), &mut bench, &mut |_: &Step| {});
    let Ok(Outcome::Run { run, .. }) = outcome else { panic!("no run") };
    assert_eq!((bench.parts.len(), bench.full_windows), (32, vec![true]));
    assert!(bench.parts.chunks(2).all(|pair| pair[0] != pair[1]), "{:?}", bench.parts);
    assert_eq!(bench.parts.chunks(2).filter(|pair| pair[0]).count(), 8);
    // The drift adds 10 ns to the difference in half of the pairs, and subtracts 10 ns in the others.
    assert_eq!(run.observer["compared_pairs"], 16);
    let added = run.observer["added_lost_ratio"].as_f64().unwrap();
    assert!((added - 0.002).abs() < 1e-12, "{added}");
}

impl SeriesBench for Failing {
    fn clock_hz(&self) -> f64 {
        1e9
    }

    fn ready(&mut self, _: Level, _: Stimulus) -> Result<Ready, BenchError> {
        Ok(Ready {
            geometry: Geometry { size_bytes: 8192, line_bytes: 32, ways: 2 },
            pages: "4 KiB".to_owned(),
            raised_by: "a test".to_owned(),
            curve: None,
            pass_cycles: 500,
            chunk_lines: 1,
            start_misses: Some(7),
        })
    }

    fn repeat(
        &mut self,
        method: Method,
        treatment: bool,
        number: usize,
    ) -> Result<Vec<Repetition>, BenchError> {
        if method == Method::Basic && !treatment {
            return Err(broken());
        }
        let repetition = Repetition {
            verdict: Verdict::Accepted,
            excess_cycles: None,
            stalled_cycles: None,
            user_misses: Some(if treatment { 300 } else { 200 }),
            kernel_misses: None,
            window: None,
        };
        Ok(vec![repetition; number])
    }

    fn trace(
        &mut self,
        _: Stimulus,
        _: Method,
    ) -> Result<lab::footprint::trace::Trace, BenchError> {
        Err(broken())
    }

    fn forget(&mut self) {}
}

#[test]
fn footprint_keeps_the_series_before_and_after_one_that_fails() {
    let plan = lab::footprint::Plan {
        levels: vec![Level::L1d],
        stimuli: vec![Stimulus::Timer, Stimulus::Disk],
        methods: vec![Method::Refined, Method::Basic],
        repetitions_max: 16,
        trace: true,
        rounds: 1,
        seed: 1,
    };
    let measured = measure_series(&plan, &mut Failing, &mut |_: &Step| {}).expect("series");
    let Samples { series, .. } = &measured.samples;
    assert_eq!(series.len(), 2);
    let facts = Failing.facts();
    let outcome = lab::experiment::finish(&plan, RunContext::default(), facts, measured);
    let run = incomplete(outcome, "l1d, disk, basic");
    assert!(run.absent.iter().any(|absence| absence.what == "trace of l1d, timer"));
    assert!(run.table("footprint").is_some_and(|table| table.rows().len() == 2));
}
