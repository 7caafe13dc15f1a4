//! The live bench on this machine, with real interrupts. The kernel's own counts, and relations
//! between numbers of one window, judge it. No assertion is on a time alone.
//!
//! Needs the rights to load BPF programs. Without them each test says so and ends.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attribution::ContextKind;
use lab::experiment::{Bench, BenchError};
use lab::handlers::{
    Condition, ContextStats, HandlersBench, Load, Rate, Stimulus, Timing, WindowSample,
};
use live::bpf::Flavour;
use live::bpf::layout::EVENTS_MAX;
use live::handlers::{LiveBench, LiveSettings};
use live::host::{CoreType, Root, irq_threads, parse_cpu_list};
use live::window::{Stop, WindowEnd};
use stats::{JointBatch, Term};

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(millis: u64) -> LiveSettings {
    let online = Root::default().text("sys/devices/system/cpu/online").expect("online CPUs");
    let cpus = parse_cpu_list(online.trim()).expect("a CPU list");
    let until = WindowEnd::Elapsed(Duration::from_millis(millis));
    let mut settings = LiveSettings::new(cpus, until, Stop::new().expect("a pipe"));
    let program: PathBuf = std::env::current_exe().expect("this test's path");
    let program = program.ancestors().nth(2).expect("target directory").join("examples/stimulus");
    assert!(program.exists(), "run: cargo build -p live --examples");
    settings.helper = Some(program);
    settings.warm_up = Duration::from_millis(50);
    settings
}

/// The bench; `None`, with the reason printed, if it is not permitted.
fn bench(settings: LiveSettings) -> Option<LiveBench> {
    match LiveBench::new(settings) {
        Ok(bench) => Some(bench),
        Err(BenchError::NothingMeasurable { reason, .. }) => {
            needs::not_run(needs::Need::Bpf, reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn made(stimulus: Stimulus) -> Condition {
    Condition::Made { load: Load::Idle, rate: Rate::High, stimulus }
}

/// The need that a machine lacks if it cannot create a condition.
fn need_of(condition: Condition) -> needs::Need {
    match condition {
        Condition::Made { stimulus: Stimulus::Disk, .. } => needs::Need::Disk,
        Condition::Made { stimulus: Stimulus::Net, .. } => needs::Need::Namespaces,
        Condition::Made { stimulus: Stimulus::Ipi, .. } => needs::Need::Cpus,
        _ => needs::Need::Other,
    }
}

/// The window; `None`, with the reason printed, if this machine does not have the stimulus.
fn measured(bench: &mut LiveBench, condition: Condition, pass: usize) -> Option<WindowSample> {
    match bench.measure(condition, pass) {
        Ok(sample) => Some(sample),
        Err(BenchError::Unavailable { reason, .. }) => {
            needs::not_run(need_of(condition), reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn total(sample: &WindowSample, is: impl Fn(&ContextStats) -> bool) -> u64 {
    sample.contexts.iter().filter(|source| is(source)).map(|source| source.count).sum()
}

/// Counts equal the kernel's, except for undelivered interrupts, and never exceed them.
fn check_counts(sample: &WindowSample) {
    let is_compared = |line: &&lab::handlers::Agreement| {
        line.counted.is_some() && (line.kernel_exact.is_some() || line.kernel_max.is_some())
    };
    let compared = sample.agreement.iter().filter(is_compared).count();
    assert!(compared > 0, "nothing is compared: {:?}", sample.agreement);
    for line in &sample.agreement {
        let Some(counted) = line.counted else { continue };
        if let Some(exact) = line.kernel_exact {
            assert!(counted <= exact + line.edge_max, "{line:?}");
        }
        if let Some(most) = line.kernel_max {
            assert!(counted <= most, "{line:?}");
        }
    }
    assert_eq!(sample.lost(), 0);
}

/// Checks relations that hold in any window.
fn check_spans(sample: &WindowSample) {
    assert!(
        sample.contexts.iter().any(|source| source.timing == Timing::Probes),
        "no row is timed"
    );
    assert!(!sample.windows.is_empty());
    for source in sample.contexts.iter().filter(|source| source.timing == Timing::Probes) {
        let (own, inclusive) = (&source.own, &source.inclusive);
        assert_eq!(own.count, source.count, "{source:?}");
        assert_eq!(own.histogram.total(), source.count, "{:?}", source.context);
        assert_eq!(inclusive.histogram.total(), source.count, "{:?}", source.context);
        let in_batches: u64 = own.batches.cells.iter().map(|cell| cell.sum).sum();
        assert_eq!(in_batches, own.sum, "{:?}", source.context);
        assert!(own.sum <= inclusive.sum, "{:?}", source.context);
        assert!(own.peak.value <= own.sum.max(own.peak.value), "{:?}", source.context);
    }
    for source in sample.contexts.iter().filter(|source| source.timing == Timing::Probes) {
        // Each span loses some time for its probes, and at most what caches explain.
        let (subtracted, count) = (source.probe_overhead_total_ns, source.count);
        assert!(subtracted > count, "{subtracted} ns from {count} spans of {:?}", source.context);
        assert!(source.clamped_count > 0 || source.clamped_total_ns == 0, "{source:?}");
        assert!(i128::from(source.self_total_ns()) <= i128::from(source.own.sum), "{source:?}");
    }
    // Self times never overlap, so on one CPU they fit into the window.
    for window in &sample.windows {
        let on_cpu =
            |source: &&ContextStats| source.cpu == window.cpu && source.timing == Timing::Probes;
        let self_ns: u64 = sample.contexts.iter().filter(on_cpu).map(|source| source.own.sum).sum();
        assert!(
            self_ns <= window.length_ns,
            "CPU {}: {self_ns} of {}",
            window.cpu,
            window.length_ns
        );
    }
}

#[test]
fn disk_interrupts_are_those_of_proc_interrupts() {
    let _alone = alone();
    let Some(mut bench) = bench(settings(500)) else { return };
    let Some(sample) = measured(&mut bench, made(Stimulus::Disk), 0) else { return };
    check_counts(&sample);
    check_spans(&sample);
    let work = sample.stimulus_work.expect("the stimulus reports");
    let irqs = total(&sample, |source| source.context.kind == ContextKind::HardIrq);
    // On a busy host one interrupt may report several reads, and some do not reach probes.
    assert!(irqs > 0 && work.operations > 0, "{irqs} interrupts, {} reads", work.operations);
    let disagrees = |line: &&lab::handlers::Agreement| {
        line.counted.is_some_and(|n| line.kernel_min.is_some_and(|min| n < min))
    };
    let off: u64 = sample
        .agreement
        .iter()
        .filter(disagrees)
        .map(|line| line.kernel_min.unwrap_or(0) - line.counted.unwrap_or(0))
        .sum();
    // The exact counters lack the same interrupts, so the kernel did not deliver them.
    assert!(off <= sample.undelivered() + 2 * sample.windows.len() as u64, "{off}");
}

#[test]
fn softirqs_nest_and_napi_polls_carry_packets() {
    let _alone = alone();
    let Some(mut bench) = bench(settings(500)) else { return };
    let Some(sample) = measured(&mut bench, made(Stimulus::Net), 0) else { return };
    check_counts(&sample);
    check_spans(&sample);
    let polls: Vec<_> =
        sample.contexts.iter().filter(|source| source.timing == Timing::Packets).collect();
    assert!(polls.iter().any(|poll| poll.context.name.starts_with("irqlab")), "{polls:?}");
    assert!(polls.iter().map(|poll| poll.own.sum).sum::<u64>() > 100);
    let nested: u64 = sample.contexts.iter().map(|source| source.nested_count).sum();
    assert!(nested > 0, "no interrupt came inside a softirq in half a second of bulk traffic");
}

#[test]
fn without_btf_the_same_is_counted() {
    let _alone = alone();
    let settings = LiveSettings { flavour: Some(Flavour::Raw), ..settings(300) };
    let Some(mut bench) = bench(settings) else { return };
    let Some(sample) = measured(&mut bench, made(Stimulus::Disk), 0) else { return };
    check_counts(&sample);
    check_spans(&sample);
    let named = |source: &ContextStats| {
        source.context.kind == ContextKind::HardIrq && !source.context.name.is_empty()
    };
    assert!(total(&sample, named) > 100);
    assert!(total(&sample, |source| source.context.kind == ContextKind::Softirq) > 0);
}

/// Each event's batches add up to its sum, however often their length was doubled, and a
/// context has an interval.
fn check_batches(sample: &WindowSample) {
    let (mut intervals, mut doubled) = (0, 0);
    for source in sample.contexts.iter().filter(|source| source.events.spans > 0) {
        let (events, name) = (&source.events, &source.context.name);
        let cells = &events.batches.cells;
        assert_eq!(cells.iter().map(|cell| cell.count).sum::<u64>(), events.spans, "{name}");
        for (at, own) in events.own.iter().enumerate() {
            let sums = cells.iter().filter_map(|cell| cell.sums.get(at));
            assert_eq!(sums.sum::<i64>(), *own as i64, "{name}");
        }
        // The time-stamp counter advances in each span.
        let advances = |cell: &JointBatch| cell.sums.first().is_some_and(|sum| *sum > 0);
        assert!(cells.iter().all(|cell| (cell.count > 0) == advances(cell)), "{name}");
        doubled += usize::from(events.batches.shift > 20);
        let Some(interval) = events.batches.mean(Term { at: 0, less: 0.0 }) else { continue };
        let mean = events.own[0] as f64 / events.spans as f64;
        assert!((interval.mean / mean - 1.0).abs() < 1e-9, "{name}: {interval:?}, {mean}");
        assert!(interval.half_width > 0.0 && events.added_mean_ci95.len() == 2, "{name}");
        intervals += 1;
    }
    assert!(intervals > 0 && doubled > 0, "{intervals} have enough batches, {doubled} longer ones");
}

#[test]
fn events_are_read_at_entry_and_exit_of_every_span() {
    let _alone = alone();
    let events = ["msr/tsc/", "cpu-clock", "no-such-event"].map(str::to_owned).to_vec();
    let Some(mut bench) = bench(LiveSettings { events, ..settings(400) }) else { return };
    let overhead = bench.probe_overhead();
    let facts = bench.facts();
    assert!(facts.absent.iter().any(|absence| absence.what.contains("no-such-event")), "{facts:?}");
    let Some(pass) = bench.passes().iter().position(|pass| pass.events.len() == 2) else {
        return needs::not_run(needs::Need::Other, "msr/tsc/ and cpu-clock do not count together");
    };
    let Some(sample) = measured(&mut bench, made(Stimulus::Timer), pass) else { return };
    check_counts(&sample);
    let timer = sample.contexts.iter().filter(|source| source.context.name == "local_timer");
    let (mut spans, mut cycles, mut clock_ns, mut own_ns) = (0, 0, 0, 0);
    for source in timer {
        assert_eq!(source.events.spans, source.count, "no read failed, nothing was multiplexed");
        spans += source.events.spans;
        cycles += source.events.own[0];
        clock_ns += source.events.own[1];
        own_ns += source.own.sum;
    }
    assert!(spans > 20, "{spans}");
    check_batches(&sample);
    // The events are read outside of the clock readings, so their interval contains the clock's.
    let cycles_ns = cycles as f64 * 1e9 / overhead.tsc_hz.expect("a time-stamp counter");
    assert!(cycles_ns > own_ns as f64, "{cycles_ns} ns of cycles, {own_ns} ns of clock");
    // The second event is read inside of the first.
    assert!(clock_ns as f64 <= cycles_ns * 1.01, "{clock_ns} ns in {cycles_ns} ns");
}

#[test]
fn a_stop_ends_the_window_and_keeps_what_was_measured() {
    let _alone = alone();
    let settings = settings(60_000);
    let stop = settings.stop.clone();
    let Some(mut bench) = bench(settings) else { return };
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stop.request();
    });
    let sample = measured(&mut bench, Condition::Ambient, 0).expect("ambient is always there");
    stopper.join().expect("the stopper ends");
    assert!(sample.interrupted);
    assert!(sample.length_ns() < 60_000_000_000);
    check_counts(&sample);
}

#[test]
fn a_command_is_measured_until_it_ends() {
    let _alone = alone();
    let command = ["sh", "-c", "sleep 0.3; exit 3"].map(str::to_owned).to_vec();
    let until = WindowEnd::CommandEnds { words: command, to_stderr: true };
    let Some(mut bench) = bench(LiveSettings { until, ..settings(1) }) else { return };
    let sample = measured(&mut bench, Condition::Command, 0).expect("sh is everywhere");
    assert!(sample.length_ns() >= 300_000_000, "the command slept inside the window");
    let ended = sample.facts["command_ended"].as_str().unwrap_or_default();
    assert!(ended.contains('3'), "{ended}");
}

/// Number of reads in each run of a command that does little else.
const READS: u64 = 20;
/// Number of the command's runs.
const RUNS: u64 = 5;

#[test]
fn a_commands_first_interrupts_are_counted() {
    let _alone = alone();
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    std::fs::write(file.path(), vec![1; 4096 * READS as usize]).expect("a file with data");
    file.as_file().sync_all().expect("data on the disk");
    let input = format!("if={}", file.path().display());
    let count = format!("count={READS}");
    let arguments =
        ["dd", &input, "of=/dev/null", "bs=4096", &count, "iflag=direct", "status=none"];
    let direct = std::process::Command::new(arguments[0]).args(&arguments[1..]).output();
    if !direct.is_ok_and(|output| output.status.success()) {
        return needs::not_run(needs::Need::Disk, "the disk refuses direct reads");
    }
    let command = arguments.map(str::to_owned).to_vec();
    let until = WindowEnd::CommandEnds { words: command, to_stderr: true };
    let Some(mut bench) = bench(LiveSettings { until, ..settings(1) }) else { return };
    let (mut counted, mut undelivered, mut by_kernel) = (0, 0, 0);
    for _ in 0..RUNS {
        let sample = measured(&mut bench, Condition::Command, 0).expect("dd is everywhere");
        counted += total(&sample, |source| source.context.kind == ContextKind::HardIrq);
        undelivered += sample.undelivered();
        by_kernel += sample.agreement.iter().filter_map(|line| line.kernel_max).sum::<u64>();
    }
    if by_kernel < READS * RUNS {
        return needs::not_run(needs::Need::Disk, "reads of this disk raise no interrupts");
    }
    // Each read waits for the previous one. Occasionally an interrupt reports two of them.
    let all = READS * RUNS;
    assert!(counted + undelivered >= all * 9 / 10, "{counted} and {undelivered} of {all}");
}

/// The kernel memory of a bench, bytes, and the number of its passes.
fn kernel_memory(events: Vec<String>) -> Option<(u64, usize)> {
    let bench = bench(LiveSettings { events, calibration_calls: 1_000, ..settings(100) })?;
    let observer = bench.facts().observer;
    let bytes = observer["kernel_memory_bytes"].as_u64().expect("this kernel states it");
    Some((bytes, bench.passes().len()))
}

/// The maps have the rows once, and not once for each pass: a pass adds only its programs.
#[test]
fn more_passes_need_hardly_more_kernel_memory() {
    let _alone = alone();
    let Some((one_pass, 1)) = kernel_memory(Vec::new()) else { return };
    // Events for three full passes.
    let events = vec!["cpu-clock".to_owned(); 3 * EVENTS_MAX];
    let (all_passes, passes) = kernel_memory(events).expect("as before");
    assert_eq!(passes, 4);
    println!("{one_pass} bytes with one pass, {all_passes} with {passes}");
    assert!(
        all_passes < 2 * one_pass,
        "{one_pass} bytes with one pass, {all_passes} with {passes}"
    );
}

/// Cores of two types are calibrated separately, and each CPU's spans lose the
/// overhead of its own type.
#[test]
fn each_type_of_cores_is_calibrated() {
    let _alone = alone();
    let mut settings = settings(300);
    let [first, .., last] = settings.cpus[..] else {
        return needs::not_run(needs::Need::Other, "a single CPU has one type of core");
    };
    let core = |name: &str, cpu| CoreType { name: name.to_owned(), cpus: vec![cpu] };
    settings.core_types = Some(vec![core("large", first), core("small", last)]);
    settings.cpus = vec![first, last];
    let Some(mut bench) = bench(settings) else { return };
    let observer = bench.facts().observer;
    let types = observer["core_types"].as_array().expect("a list");
    let calibrated: Vec<_> =
        types.iter().map(|core_type| core_type["calibrated_on_cpu"].as_u64()).collect();
    assert_eq!(calibrated, [Some(u64::from(first)), Some(u64::from(last))]);
    assert!(
        types.iter().all(|core_type| core_type["probe_overhead_in_span_ns"].as_u64() > Some(0))
    );
    let Some(sample) = measured(&mut bench, made(Stimulus::Timer), 0) else { return };
    check_spans(&sample);
    for cpu in [first, last] {
        let is_timer =
            |source: &&ContextStats| source.cpu == cpu && source.context.name == "local_timer";
        let timer = sample.contexts.iter().find(is_timer).expect("the stimulus raises it");
        assert!(timer.probe_overhead_total_ns > 0, "{timer:?}");
    }
}

/// Task switches have a program if an IRQ line has a thread, and the thread's runs have rows.
#[test]
fn threads_of_irq_lines_are_measured_where_there_are_any() {
    let _alone = alone();
    let threads = irq_threads(&Root::default());
    let Some(mut bench) = bench(settings(500)) else { return };
    let absent = bench.facts().absent;
    let is_absent = absent.iter().any(|absence| absence.what == "threads of device IRQs");
    assert_eq!(is_absent, threads.is_empty(), "{absent:?}");
    let Some(sample) = measured(&mut bench, made(Stimulus::Disk), 0) else { return };
    check_spans(&sample);
    let runs = total(&sample, |source| source.context.kind == ContextKind::IrqThread);
    let lines: Vec<u32> = threads.iter().map(|thread| thread.irq).collect();
    let handled = total(&sample, |source| {
        source.context.kind == ContextKind::HardIrq && lines.contains(&source.context.number)
    });
    // An interrupt wakes its thread. One run may serve several interrupts, and the last may
    // come after the window.
    assert!(runs > 0 || handled < 2, "{handled} interrupts, {runs} runs of their threads");
}
