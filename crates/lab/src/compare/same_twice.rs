//! Runs of the same thing, compared: how often a difference is reported where there is none, and how often one
//! that was planted is found. The spans of a context depend on one another, as those of interrupts do.

use attribution::{Context, ContextKind};
use record::Run;
use stats::histogram::slot_of;
use stats::interval::Batch;
use stats::{Batches, Distribution, Random, Sections};

use super::*;
use crate::handlers::{
    Condition, ConditionSamples, ContextStats, CpuWindow, ProbeOverhead, Timing, WindowSample,
    table_of_contexts,
};

/// Pairs of runs.
const PAIRS: u64 = 60;
/// Contexts of a run.
const CONTEXTS: u32 = 10;
/// Length of a window, ns.
const WINDOW_NS: u64 = 1 << 30;

/// How the spans of a context depend on one another.
#[derive(Clone, Copy, Debug)]
enum Stream {
    /// At random times; costs are independent.
    Independent,
    /// At random times; the logarithms of costs are autoregressive.
    Autoregressive,
    /// In bursts of 5 ms on average, in which spans are ten times as frequent and cost a half.
    Bursts,
    /// As a clock; one span in 20 takes four times as long.
    Clock,
    /// At random times; what slows spans down changes within milliseconds and within the length of a window.
    Drift,
}

const STREAMS: [Stream; 5] =
    [Stream::Independent, Stream::Autoregressive, Stream::Bursts, Stream::Clock, Stream::Drift];

/// Flicker noise: a sum of autoregressive processes that forget within a part of a window, and within a whole one.
struct Flicker([f64; 4]);

impl Flicker {
    fn new(random: &mut Random) -> Flicker {
        Flicker(std::array::from_fn(|_| normal(random)))
    }

    /// The level after this part of a window.
    fn after(&mut self, windows: f64, random: &mut Random) -> f64 {
        let mut lifetime = 1.0 / 64.0;
        for level in &mut self.0 {
            let kept = f64::exp(-windows / lifetime);
            *level = kept * *level + (1.0 - kept * kept).sqrt() * normal(random);
            lifetime *= 4.0;
        }
        self.0.iter().sum()
    }
}

fn normal(random: &mut Random) -> f64 {
    let angle = std::f64::consts::TAU * random.unit();
    (2.0 * random.exponential()).sqrt() * angle.cos()
}

/// What a window counts of a stream with `rate` spans on average, whose costs are `scale` times what they are.
fn counted_spans(
    random: &mut Random,
    stream: Stream,
    (rate, scale): (f64, f64),
    flicker: &mut Flicker,
) -> Distribution {
    let mut own = Distribution {
        batches: Batches::covering(WINDOW_NS - 1, 64),
        sections: Sections::covering(WINDOW_NS - 1, 16),
        ..Distribution::default()
    };
    let gap = WINDOW_NS as f64 / rate;
    let (mut at, mut deviation, mut burst_end, mut is_burst) =
        (gap * random.unit(), 0.0, 0.0, false);
    flicker.after(1.0, random); // since the window before
    let (mut level, mut level_end) = (0.0, 0.0);
    while at < WINDOW_NS as f64 {
        let noise = (0.3 * normal(random)).exp();
        deviation = 0.95 * deviation + 0.31 * normal(random);
        if at >= level_end {
            level = flicker.after(1.0 / 64.0, random);
            level_end = at + WINDOW_NS as f64 / 64.0;
        }
        let cost = match stream {
            Stream::Independent => noise,
            Stream::Autoregressive => f64::exp(0.3 * deviation),
            Stream::Bursts if is_burst => 0.5 * noise,
            Stream::Bursts => noise,
            Stream::Clock if random.below(20) == 0 => 4.0 * noise,
            Stream::Clock => noise,
            Stream::Drift => noise * f64::exp(0.02 * level),
        };
        // So long that each context takes 1 % of CPU time and more.
        let value = (40_000.0 * scale * cost) as u64;
        own.record(value, at as u64);
        own.batches.add_at(at as u64, &Batch { count: 1, sum: value });
        let section = (at as u64 >> own.sections.shift) as usize;
        own.sections.cells[section].record(slot_of(value));
        if at > burst_end {
            is_burst = !is_burst;
            burst_end = at + 5e6 * random.exponential();
        }
        at += match stream {
            Stream::Clock => gap,
            Stream::Bursts if is_burst => 0.55 * gap * random.exponential(),
            Stream::Bursts => 5.5 * gap * random.exponential(),
            _ => gap * random.exponential(),
        };
    }
    own
}

/// A run; the costs of its first context are `scale` times what they are.
fn run(random: &mut Random, scale: f64, flicker: &mut Flicker) -> Run {
    let mut context = |number: u32| {
        let stream = STREAMS[number as usize % STREAMS.len()];
        // The noise of few spans would hide the drift from the window: see docs/compare.md.
        let rate = match (stream, number as usize) {
            (Stream::Independent, 0) | (Stream::Drift, _) => 10_000.0,
            (_, number) if number < STREAMS.len() => 1_500.0,
            _ => 300.0,
        };
        let scale = if number == 0 { scale } else { 1.0 };
        let own = counted_spans(random, stream, (rate, scale), flicker);
        let context = Context { kind: ContextKind::Softirq, number, name: format!("{stream:?}") };
        let count = own.count;
        let inclusive = own.clone();
        ContextStats { own, inclusive, ..ContextStats::new(0, context, Timing::Simulator, count) }
    };
    let window = CpuWindow { cpu: 0, length_ns: WINDOW_NS, ..CpuWindow::default() };
    let sample = WindowSample {
        contexts: (0..CONTEXTS).map(&mut context).collect(),
        windows: vec![window],
        ..WindowSample::default()
    };
    let measured =
        ConditionSamples { condition: Condition::Ambient, timing: sample, events: Vec::new() };
    let table = table_of_contexts(&[measured], &ProbeOverhead::default());
    super::tests::run_of_table("live", table)
}

fn plan() -> Plan {
    Plan { all_rows: false, margin_ratio: 0.02, rules: Vec::new() }
}

/// The figures that a comparison reports as different: row and column.
fn reported(base: &Run, new: &Run) -> Vec<String> {
    let found = compare(base, new, &plan()).expect("comparable");
    let differs = |difference: &&Difference<'_>| difference.verdict.is_difference();
    let name = |difference: &Difference<'_>| {
        format!("{} {}", row_name(&difference.pair), difference.pair.column.name)
    };
    found.differences.iter().filter(differs).map(name).collect()
}

#[test]
fn runs_of_the_same_thing_rarely_differ_and_a_planted_change_of_a_mean_is_found() {
    let mut random = Random::new(23);
    let (mut false_pairs, mut found, mut figures) = (Vec::new(), 0, 0);
    for _ in 0..PAIRS {
        let mut flicker = Flicker::new(&mut random);
        let base = run(&mut random, 1.0, &mut flicker);
        let same = run(&mut random, 1.0, &mut flicker);
        let comparison = compare(&base, &same, &plan()).expect("comparable");
        figures = comparison
            .differences
            .iter()
            .filter(|difference| difference.interval.is_some())
            .count();
        let reported_same = reported(&base, &same);
        if !reported_same.is_empty() {
            false_pairs.push(reported_same);
        }
        let slower = run(&mut random, 1.05, &mut flicker);
        let is_found = |name: &String| name.contains("0 Independent self_mean_ns");
        found += u64::from(reported(&base, &slower).iter().any(is_found));
    }
    assert!(figures >= 40, "means, quantiles and amounts are judged: {figures}");
    assert!(
        false_pairs.len() as u64 * 20 <= PAIRS,
        "{} of {PAIRS} pairs: {false_pairs:?}",
        false_pairs.len()
    );
    assert!(found * 10 >= PAIRS * 9, "a change of 5 % was found in {found} of {PAIRS} pairs");
}
