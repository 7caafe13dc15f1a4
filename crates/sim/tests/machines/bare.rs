//! The machine without a kernel.

use std::time::Duration;

use lab::noise::{Body, KeepDetours, Loop, LoopResult, NoiseBench, NoiseSample};
use sim::bare::{
    BareNoise, BareNoiseSettings, By, FootprintSettings, Level, Method, Repetition, Truth,
    TruthSettings, footprint,
};
use sim::boot::Limits;
use sim::watch::Detail;
use sim::{counters, models};

use crate::parts::{Bench, bench};

const LIMITS: Limits = Limits { wall: Duration::from_secs(300), guest_s: 60 };

fn noise(
    bench: &Bench,
    model: Option<&str>,
    looping: Loop,
    iterations: Option<u64>,
) -> NoiseSample {
    let settings = BareNoiseSettings {
        body: Body::Add,
        quantum_ns: 50_000,
        iterations,
        repetitions: 40,
        threshold_ns: if model.is_some() { 20_000 } else { 100 },
        model: model
            .map(|name| models::find(&bench.cache, name, &[], Some(Detail::Timed)).unwrap()),
        limits: LIMITS,
        keep: KeepDetours::with_seed(1),
    };
    let mut bare =
        BareNoise::new(bench.cache.clone(), bench.qemu.clone(), settings, Box::new(|| false));
    bare.measure(looping, false).unwrap()
}

#[test]
fn nobody_takes_anything_from_the_loops() {
    let Some(bench) = bench() else { return };
    for model in [None, Some("r4400-1994")] {
        let sample = noise(bench, model, Loop::Detour, None);
        let LoopResult::Gaps(gaps) = &sample.cpus[0].result else { panic!("{sample:?}") };
        assert_eq!((gaps.gaps.count, sample.cpus[0].lost_records), (0, 0));
        assert!(sample.cpus[0].window_ns >= 40 * 50_000 - 1000);
        let sample = noise(bench, model, Loop::Ftq, None);
        let LoopResult::Slots(slots) = &sample.cpus[0].result else { panic!("{sample:?}") };
        assert_eq!((slots.count, slots.empty), (40, 0));
        assert!(slots.work_max * 40 < slots.work_sum + 3 * 40, "{slots:?}");
    }
}

#[test]
fn the_same_iterations_take_the_same_time_in_every_run() {
    let Some(bench) = bench() else { return };
    let run = || {
        let sample = noise(bench, None, Loop::Fwq, Some(1000));
        let LoopResult::Quanta(fixed) = &sample.cpus[0].result else { panic!("{sample:?}") };
        assert_eq!(sample.facts["iterations_on_cpu_0"], 1000);
        (fixed.times.clone(), fixed.first.clone(), sample.facts["instructions"].clone())
    };
    let (times, first, instructions) = run();
    assert_eq!((times.clone(), first, instructions.clone()), run());
    // An instruction is a ns, and the clock is read between the quanta only.
    let per_quantum = instructions.as_u64().unwrap() / 40;
    assert!(times.peak.value.abs_diff(per_quantum) < 200, "{times:?} {instructions}");
}

/// Compares the footprint that a program at user level finds with the lines that `handler_lines` displaced, on a
/// model.
fn held_against_the_truth(
    bench: &Bench,
    model: &str,
    detail: Detail,
    level: Level,
    handler_lines: &[u64],
) {
    let settings = FootprintSettings {
        model: models::find(&bench.cache, model, &[], Some(detail)).unwrap(),
        level,
        method: Method::Basic,
        by: By::Interrupt,
        data_lines: 0,
        code_lines: 0,
        repetitions: 2,
        passes: 8,
        delay_ns: 1,
        wait_ns: 1,
        events: Vec::new(),
        vcpu_slice: 100,
        limits: LIMITS,
    };
    let settings = TruthSettings { of: settings, curve_points: 4 };
    let truth = Truth::new(&bench.cache, &bench.qemu, settings, &|| false).unwrap().unwrap();
    for handler_lines in handler_lines {
        let point = truth.point(*handler_lines, &|| false).unwrap().unwrap();
        assert!(point.refined.truth >= *handler_lines, "{model}: {point:?}");
        assert!(point.refined.holds() && point.time_holds(), "{model}: {point:?}");
        // In L1I the basic method's wait has lines of its own, which idle repetitions take off.
        assert!(point.basic.holds() || level == Level::L1i, "{model}: {point:?}");
        assert!(point.basic.error().abs() <= 12, "{model}: {point:?}");
        // Displaced lines above the detection limit are detected.
        assert!(
            point.timed.is_some()
                || point.limit.is_none_or(|limit| (*handler_lines as f64) < limit),
            "{model}: {point:?}"
        );
    }
}

#[test]
fn counters_and_time_find_what_the_handler_displaced() {
    let Some(bench) = bench() else { return };
    let r4400 = |level, handler_lines: &[u64]| {
        held_against_the_truth(bench, "r4400-1994", Detail::Timed, level, handler_lines);
    };
    r4400(Level::L1d, &[0, 16, 256, 1024]);
    r4400(Level::L1i, &[0, 256, 640]);
    held_against_the_truth(bench, "origin-200", Detail::Ooo, Level::L1d, &[0, 256]);
}

/// Returns the last repetition with an interrupt, and how much its counts exceed those without an interrupt.
fn added(
    bench: &Bench,
    level: Level,
    (data_lines, code_lines): (u64, u64),
) -> (Repetition, [u64; 4]) {
    let settings = FootprintSettings {
        model: models::find(&bench.cache, "r4400-1994", &[], Some(Detail::Timed)).unwrap(),
        level,
        method: Method::Basic,
        by: By::Interrupt,
        data_lines,
        code_lines,
        repetitions: 2,
        passes: 4,
        delay_ns: 100_000,
        wait_ns: 400_000,
        // L1D misses and L1I misses, in the kernel and in user mode (docs/guest-pmu.md).
        events: vec![0x43_c860, 0x43_0081],
        vcpu_slice: 100,
        limits: LIMITS,
    };
    let all = footprint(&bench.cache, &bench.qemu, &settings, &|| false).unwrap().unwrap();
    let all = all.repetitions;
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|repetition| repetition.ran == u64::from(repetition.irq)), "{all:?}");
    let (idle, irq) = (all[2], all[3]);
    let exact = |repetition: &Repetition, names: &[&str]| -> u64 {
        let is_in =
            |counter: &usize| counters::name(*counter).is_some_and(|name| names.contains(&name));
        (0..counters::COUNTERS).filter(is_in).map(|counter| repetition.exact[counter]).sum()
    };
    let data = ["l1d_load_misses", "l1d_store_misses"];
    let difference = [
        irq.read[0] - idle.read[0],
        irq.read[1] - idle.read[1],
        exact(&irq, &data) - exact(&idle, &data),
        exact(&irq, &["l1i_misses"]) - exact(&idle, &["l1i_misses"]),
    ];
    (irq, difference)
}

#[test]
fn a_handler_misses_and_displaces_the_lines_that_it_is_told_to_touch() {
    let Some(bench) = bench() else { return };
    // Half of a cache of two ways, and none: the handler misses each of its lines, and displaces as many.
    // Some of its own lines lie in the same sets.
    let (_, none) = added(bench, Level::L1d, (0, 0));
    let (_, data) = added(bench, Level::L1d, (128, 0));
    for counter in [0, 2] {
        let more = data[counter] - none[counter];
        assert!((2 * 128 - 8..=2 * 128).contains(&more), "{none:?} {data:?}");
    }
    assert_eq!(data[3], none[3], "no more instructions are fetched from anywhere else");
    let (_, none_of_code) = added(bench, Level::L1i, (0, 0));
    let (_, code) = added(bench, Level::L1i, (0, 128));
    for counter in [1, 3] {
        let more = code[counter] - none_of_code[counter];
        assert!((2 * 128 - 8..=2 * 128).contains(&more), "{none_of_code:?} {code:?}");
    }
    // The program's counters agree with the simulator's, but for the reading itself: lines of code, of 16 bytes each, that a
    // loop over the instruction cache displaces. How many these are depends on the build.
    let reading = |[_, pmu_code, _, exact_code]: [u64; 4]| pmu_code.abs_diff(exact_code);
    for (counts, without) in [(data, none), (none, none), (code, none_of_code)] {
        let [pmu_data, _, exact_data, _] = counts;
        let is_close = pmu_data.abs_diff(exact_data) <= 4
            && reading(counts).abs_diff(reading(without)) <= 4
            && reading(counts) <= 16;
        assert!(is_close, "{counts:?}, without a handler's accesses {without:?}");
    }
}
