//! The live bench on this machine, with real interrupts. The kernel's own counts, and relations
//! between numbers of one window, judge it. No assertion is on a time alone.
//!
//! Needs the rights to load BPF programs. Without them each test says so and ends.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attribution::ContextKind;
use lab::experiment::{Absence, Bench, BenchError};
use lab::handlers::{
    CallType, Condition, ContextStats, DELAYS, DelayStats, HandlersBench, Load, Rate, SENDERS,
    Sender, SenderEvent, SenderMethod, SenderStats, Stimulus, Timing, WindowSample,
    unmeasured_of_senders,
};
use live::bpf::Flavour;
use live::bpf::layout::EVENTS_MAX;
use live::handlers::{LiveBench, LiveSettings};
use live::host::{CoreType, Root, irq_threads, parse_cpu_list};
use live::window::{Stop, WindowEnd};
use stats::{JointBatch, Term};

#[path = "handlers/victims.rs"]
mod victims;

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
        // A span around one that is shorter than the probes' overhead can have less inclusive time than self time.
        let overhead_ns = sample.contexts.iter().map(|context| context.probe_overhead_total_ns);
        assert!(own.sum <= inclusive.sum + overhead_ns.sum::<u64>(), "{:?}", source.context);
        let window_ns: u64 = sample.windows.iter().map(|window| window.length_ns).sum();
        assert!(inclusive.sum <= window_ns, "{:?}", source.context);
        assert!(own.peak.value <= own.sum.max(own.peak.value), "{:?}", source.context);
    }
    for source in sample.contexts.iter().filter(|source| source.timing == Timing::Probes) {
        // Each span loses some time for its probes, and at most what caches explain. A row whose only span is open at the end of
        // the window has none.
        let (subtracted, count) = (source.probe_overhead_total_ns, source.count);
        assert!(
            count == 0 || subtracted > count,
            "{subtracted} ns from {count} spans of {:?}",
            source.context
        );
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
    assert!(off <= sample.undelivered_min() + 2 * sample.windows.len() as u64, "{off}");
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
        undelivered += sample.undelivered_min();
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

/// Counts the events of a tracepoint on every CPU by perf_event_open(2), without BPF.
struct TracepointCounter {
    events: Vec<std::fs::File>,
}

impl TracepointCounter {
    /// Counts from now on. `None` if the kernel lacks the tracepoint or does not allow it.
    fn open(name: &str, cpus: &[u32]) -> Option<TracepointCounter> {
        use perf_event_open_sys::{bindings, perf_event_open};
        use std::os::fd::FromRawFd;
        let id = Root::default().number::<u64>(format!("sys/kernel/tracing/events/{name}/id"))?;
        let open_on = |cpu: &u32| {
            let mut attributes = bindings::perf_event_attr {
                size: size_of::<bindings::perf_event_attr>() as u32,
                type_: bindings::PERF_TYPE_TRACEPOINT,
                config: id,
                ..bindings::perf_event_attr::default()
            };
            // SAFETY: `attributes` is complete with its size set, and outlives the call.
            let fd = unsafe { perf_event_open(&mut attributes, -1, *cpu as i32, -1, 0) };
            // SAFETY: the kernel has just returned this descriptor, which nobody else owns.
            (fd >= 0).then(|| unsafe { std::fs::File::from_raw_fd(fd) })
        };
        let events = cpus.iter().map(open_on).collect::<Option<_>>()?;
        Some(TracepointCounter { events })
    }

    fn read(&self) -> u64 {
        let read_one = |mut event: &std::fs::File| {
            let mut bytes = [0; 8];
            std::io::Read::read_exact(&mut event, &mut bytes).expect("a count");
            u64::from_ne_bytes(bytes)
        };
        self.events.iter().map(read_one).sum()
    }
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Readings of several counters: the time before and after each reading, and the counts.
type Readings = Vec<(u64, u64, Vec<u64>)>;

/// Reads the counters until `is_over`, while `measure` runs.
fn read_during<T>(counters: &[TracepointCounter], measure: impl FnOnce() -> T) -> (T, Readings) {
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let read = || {
        let before_ns = monotonic_ns();
        let counts = counters.iter().map(TracepointCounter::read).collect();
        (before_ns, monotonic_ns(), counts)
    };
    std::thread::scope(|scope| {
        let first = read();
        let reader = scope.spawn(|| {
            let mut readings = vec![first];
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                readings.push(read());
                std::thread::sleep(Duration::from_millis(5));
            }
            readings.push(read());
            readings
        });
        let measured = measure();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        (measured, reader.join().expect("the reader"))
    })
}

/// The counts of functions lie between the counts that perf_event_open(2) has inside and outside of the window. The
/// self time of the vectors and softirqs around them excludes them.
#[test]
fn callbacks_are_those_that_perf_counts() {
    let _alone = alone();
    let settings = LiveSettings { callbacks: true, ..settings(1_000) };
    let cpus = settings.cpus.clone();
    let Some(mut bench) = bench(settings) else { return };
    let kinds = [
        (ContextKind::Hrtimer, "timer/hrtimer_expire_entry", "timer/hrtimer_expire_exit"),
        (ContextKind::Timer, "timer/timer_expire_entry", "timer/timer_expire_exit"),
        (ContextKind::Work, "workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end"),
    ];
    let names = kinds.iter().flat_map(|(_, entry, exit)| [entry, exit]);
    let counters: Option<Vec<_>> = names.map(|name| TracepointCounter::open(name, &cpus)).collect();
    let Some(counters) = counters else {
        needs::not_run(needs::Need::Other, "perf_event_open cannot count the tracepoints");
        return;
    };
    let (sample, readings) =
        read_during(&counters, || measured(&mut bench, made(Stimulus::Disk), 0));
    let Some(sample) = sample else { return };
    check_spans(&sample);
    assert_eq!(sample.lost(), 0);
    let starts = || sample.windows.iter().filter_map(|window| window.start_ns);
    let ends = || sample.windows.iter().filter_map(|w| Some(w.start_ns? + w.length_ns));
    let (first_start, last_start) = (starts().min().unwrap(), starts().max().unwrap());
    let (first_end, last_end) = (ends().min().unwrap(), ends().max().unwrap());
    let before = readings.iter().rfind(|reading| reading.1 < first_start).expect("a reading");
    let after = readings.iter().find(|reading| reading.0 > last_end).expect("a reading");
    // If the host stopped the reader for all of the window, `opened` is after `closing`, and no count is too small.
    let opened = readings.iter().find(|reading| reading.0 > last_start).expect("a reading");
    let closing = readings.iter().rfind(|reading| reading.1 < first_end).expect("a reading");
    let unpaired: u64 = sample
        .windows
        .iter()
        .map(|window| window.unmatched_exits.unwrap_or(0) + window.abandoned.unwrap_or(0))
        .sum();
    // An interrupt that the kernel does not hand to BPF may expire several timers.
    let missing_max = unpaired + 8 * sample.undelivered_min();
    for (position, (kind, ..)) in kinds.iter().enumerate() {
        let counted = total(&sample, |source| source.context.kind == *kind);
        let (entries, exits) = (2 * position, 2 * position + 1);
        let entries_max = after.2[entries] - before.2[entries];
        let exits_min = closing.2[exits].saturating_sub(opened.2[exits]);
        assert!(counted <= entries_max, "{kind:?}: {counted}, perf counts {entries_max} entries");
        assert!(
            counted + missing_max >= exits_min,
            "{kind:?}: {counted}, perf counts {exits_min} exits, {missing_max} may be missing"
        );
    }
    assert!(total(&sample, |source| source.context.kind == ContextKind::Hrtimer) > 0);
    let is_named = |source: &ContextStats| !source.context.name.starts_with("0x");
    let callbacks = || {
        sample
            .contexts
            .iter()
            .filter(|source| ContextKind::CALLBACKS.contains(&source.context.kind))
    };
    assert!(callbacks().all(is_named), "{:?}", sample.warnings);
    let inclusive = |kind: ContextKind| -> u64 {
        let of_kind = sample.contexts.iter().filter(|source| source.context.kind == kind);
        of_kind.map(|source| source.inclusive.sum).sum()
    };
    let nested_in = |kind: ContextKind| -> u64 {
        let of_kind = sample.contexts.iter().filter(|source| source.context.kind == kind);
        of_kind.map(|source| source.inclusive.sum.saturating_sub(source.own.sum)).sum()
    };
    // High-resolution timers expire in vectors and softirqs.
    let around = nested_in(ContextKind::Vector) + nested_in(ContextKind::Softirq);
    assert!(inclusive(ContextKind::Hrtimer) <= around);
}

/// Without the option, there are no rows of functions.
#[test]
fn callbacks_are_measured_on_request_only() {
    let _alone = alone();
    let Some(mut bench) = bench(settings(100)) else { return };
    let Some(sample) = measured(&mut bench, Condition::Ambient, 0) else { return };
    let is_callback = |source: &ContextStats| ContextKind::CALLBACKS.contains(&source.context.kind);
    assert_eq!(total(&sample, is_callback), 0);
}

/// A kernel without type information has no rows of functions, and says why.
#[test]
fn callbacks_without_btf_are_absent_with_the_reason() {
    let _alone = alone();
    let settings = LiveSettings { callbacks: true, flavour: Some(Flavour::Raw), ..settings(50) };
    let Some(bench) = bench(settings) else { return };
    let absent = bench.facts().absent;
    for kind in ContextKind::CALLBACKS {
        let subject = format!("{} rows", kind.label());
        let absence = absent.iter().find(|absence| absence.what == subject);
        let reason = &absence.expect("an absence").reason;
        assert!(reason.contains("no type information"), "{subject}: {reason}");
    }
}

/// Each run of a softirq, a work item or a timer has a delay or is counted as not joined, and perf counts as many runs.
#[test]
fn delays_and_what_is_not_joined_are_the_runs_that_perf_counts() {
    let _alone = alone();
    let settings = LiveSettings { delays: true, ..settings(1_000) };
    let cpus = settings.cpus.clone();
    let Some(mut bench) = bench(settings) else { return };
    let kinds = [
        (ContextKind::Softirq, "irq/softirq_entry"),
        (ContextKind::Work, "workqueue/workqueue_execute_start"),
        (ContextKind::Hrtimer, "timer/hrtimer_expire_entry"),
        (ContextKind::Timer, "timer/timer_expire_entry"),
    ];
    let counters: Option<Vec<_>> =
        kinds.iter().map(|(_, name)| TracepointCounter::open(name, &cpus)).collect();
    let Some(counters) = counters else {
        needs::not_run(needs::Need::Other, "perf_event_open cannot count the tracepoints");
        return;
    };
    let (sample, readings) =
        read_during(&counters, || measured(&mut bench, made(Stimulus::Disk), 0));
    let Some(sample) = sample else { return };
    let absent = absent_delays(&bench);
    let subjects: Vec<&str> = absent.iter().map(|absence| &*absence.what).collect();
    let mut expected = vec!["delays of threads of device IRQs"];
    if !irq_threads(&Root::default()).is_empty() {
        expected.clear();
    }
    assert_eq!(subjects, expected, "{absent:?}");
    check_spans(&sample);
    // An interrupt in the middle of the program at softirq_raise or workqueue_queue_work may do the same: missed.
    assert_eq!(sample.lost(), sample.missed);
    let delays = sample.delays.as_ref().expect("delays");
    let runs = |stats: &DelayStats| stats.delays.count + stats.unjoined_end_count;
    for stats in delays {
        // The batches and the histogram have the same delays as the sums, and no delay is longer than the window.
        let batches: u64 = stats.delays.batches.cells.iter().map(|cell| cell.count).sum();
        assert_eq!(batches, stats.delays.count, "{stats:?}");
        let window = sample.windows.iter().find(|window| window.cpu == stats.cpu).unwrap();
        assert!(stats.delays.peak.value <= window.length_ns, "{stats:?}");
    }
    // The spans of a softirq end at other events: at each edge of the window, one of the two may be outside.
    for span in sample.contexts.iter().filter(|span| span.context.kind == ContextKind::Softirq) {
        let found =
            delays.iter().find(|stats| (stats.cpu, &stats.context) == (span.cpu, &span.context));
        let counted = found.map_or(0, runs);
        assert!(
            counted.abs_diff(span.count) <= 2 + span.abandoned_count,
            "{:?}: {counted} runs, {} spans",
            span.context,
            span.count
        );
    }
    let starts = || sample.windows.iter().filter_map(|window| window.start_ns);
    let ends = || sample.windows.iter().filter_map(|w| Some(w.start_ns? + w.length_ns));
    let (first_start, last_start) = (starts().min().unwrap(), starts().max().unwrap());
    let (first_end, last_end) = (ends().min().unwrap(), ends().max().unwrap());
    let before = readings.iter().rfind(|reading| reading.1 < first_start).expect("a reading");
    let after = readings.iter().find(|reading| reading.0 > last_end).expect("a reading");
    let opened = readings.iter().find(|reading| reading.0 > last_start).expect("a reading");
    let closing = readings.iter().rfind(|reading| reading.1 < first_end).expect("a reading");
    for (position, (kind, name)) in kinds.iter().enumerate() {
        let of_kind = || delays.iter().filter(|stats| stats.context.kind == *kind);
        let counted: u64 = of_kind().map(runs).sum();
        let joined: u64 = of_kind().map(|stats| stats.delays.count).sum();
        let unjoined_max = sample.undelivered_min() + sample.missed + cpus.len() as u64 * 10;
        let runs_max = after.2[position] - before.2[position];
        let runs_min = closing.2[position].saturating_sub(opened.2[position]);
        eprintln!("{name}: {joined} of {counted} joined; perf counts {runs_min} to {runs_max}");
        assert!(counted <= runs_max, "{name}: {counted}, perf counts {runs_max}");
        assert!(
            counted + unjoined_max >= runs_min,
            "{name}: {counted}, perf counts {runs_min}, {unjoined_max} may be missing"
        );
    }
    // The stimulus waits for its disk, and the kernel's tick goes on: timers run, and nearly all were due in the window.
    let ticks = delays.iter().filter(|stats| stats.context.kind == ContextKind::Hrtimer);
    let (joined, all) =
        ticks.fold((0, 0), |sum, stats| (sum.0 + stats.delays.count, sum.1 + runs(stats)));
    assert!(joined > 10 && joined * 10 > all * 9, "{joined} of {all} timers have a delay");
    let of_block = delays.iter().filter(|stats| stats.context.name == "BLOCK");
    let (joined, all) =
        of_block.fold((0, 0), |sum, stats| (sum.0 + stats.delays.count, sum.1 + runs(stats)));
    assert!(joined > 100 && joined * 10 > all * 9, "{joined} of {all} runs of BLOCK are joined");
}

/// Functions that find no row share a row of their kind, and a warning says how many delays are in it. No run is lost.
#[test]
fn delays_of_functions_without_a_row_share_one() {
    let _alone = alone();
    // Functions leave 16 rows to other contexts, so none gets a row of its own.
    let settings = LiveSettings { delays: true, rows_max: 16, ..settings(500) };
    let Some(mut bench) = bench(settings) else { return };
    let Some(sample) = measured(&mut bench, made(Stimulus::Timer), 0) else { return };
    let delays = sample.delays.as_ref().expect("delays");
    let functions = delays.iter().filter(|stats| stats.context.kind != ContextKind::Softirq);
    let names: Vec<&str> = functions.clone().map(|stats| &*stats.context.name).collect();
    assert!(names.iter().all(|name| *name == "(other functions)"), "{names:?}");
    let runs: u64 = functions.map(|stats| stats.delays.count + stats.unjoined_end_count).sum();
    assert!(runs > 0, "the stimulus sets timers");
    let warning = format!("the delays of {runs} function runs are in the rows (other functions)");
    let is_stated = |stated: &String| stated.starts_with(&warning);
    assert!(sample.warnings.iter().any(is_stated), "{warning}: {:?}", sample.warnings);
}

/// Without the option, no delays are measured. A kernel without type information has no rows, and says why.
#[test]
fn delays_are_measured_on_request_only_and_need_btf() {
    let _alone = alone();
    let Some(mut bench_without) = bench(settings(100)) else { return };
    let Some(sample) = measured(&mut bench_without, Condition::Ambient, 0) else { return };
    assert!(sample.delays.is_none());
    let settings = LiveSettings { delays: true, flavour: Some(Flavour::Raw), ..settings(50) };
    let Some(bench) = bench(settings) else { return };
    let absent = absent_delays(&bench);
    let subjects: Vec<&str> = absent.iter().map(|absence| &*absence.what).collect();
    let expected = [
        "delays of softirqs",
        "delays of work items",
        "delays of threads of device IRQs",
        "delays of high-resolution timers",
        "delays of timers",
    ];
    assert_eq!(subjects, expected);
    assert!(absent.iter().all(|absence| absence.reason.contains("no type information")));
}

fn absent_delays(bench: &LiveBench) -> Vec<Absence> {
    let absent = bench.facts().absent.into_iter();
    absent.filter(|absence| absence.table == DELAYS).collect()
}

/// The calls, runs and interrupts of all senders are those that perf counts. The membarrier stimulus is the sender of its
/// calls, and nearly all of them are joined to their runs.
#[test]
fn senders_are_those_that_perf_counts() {
    let _alone = alone();
    let settings = LiveSettings { senders: true, ..settings(1_000) };
    let cpus = settings.cpus.clone();
    let Some(mut bench) = bench(settings) else { return };
    let absent = absent_senders(&bench);
    if absent.iter().any(|absence| absence.reason.contains("no tracepoint")) {
        needs::not_run(needs::Need::Other, "this kernel has no tracepoints of function calls");
        return;
    }
    assert_eq!(absent, unmeasured_of_senders(SenderMethod::Probes));
    let names = ["csd/csd_queue_cpu", "ipi/ipi_send_cpu", "csd/csd_function_exit"];
    let counters: Option<Vec<_>> =
        names.iter().map(|name| TracepointCounter::open(name, &cpus)).collect();
    let Some(counters) = counters else {
        needs::not_run(needs::Need::Other, "perf_event_open cannot count the tracepoints");
        return;
    };
    let (sample, readings) =
        read_during(&counters, || measured(&mut bench, made(Stimulus::Ipi), 0));
    let Some(sample) = sample else { return };
    check_spans(&sample);
    // An interrupt in the middle of a sender's program may send, too: the kernel does not start the program again, and
    // counts it as missed.
    assert_eq!(sample.lost(), sample.missed);
    let senders = sample.senders.as_ref().expect("senders");
    let starts = || sample.windows.iter().filter_map(|window| window.start_ns);
    let ends = || sample.windows.iter().filter_map(|w| Some(w.start_ns? + w.length_ns));
    let (first_start, last_start) = (starts().min().unwrap(), starts().max().unwrap());
    let (first_end, last_end) = (ends().min().unwrap(), ends().max().unwrap());
    let before = readings.iter().rfind(|reading| reading.1 < first_start).expect("a reading");
    let after = readings.iter().find(|reading| reading.0 > last_end).expect("a reading");
    let opened = readings.iter().find(|reading| reading.0 > last_start).expect("a reading");
    let closing = readings.iter().rfind(|reading| reading.1 < first_end).expect("a reading");
    let sum = |is: fn(&SenderEvent) -> bool, number: fn(&SenderStats) -> u64| -> u64 {
        senders.iter().filter(|stats| is(&stats.key.event)).map(number).sum()
    };
    let is_call = |event: &SenderEvent| matches!(event, SenderEvent::Call(_));
    let is_interrupt = |event: &SenderEvent| matches!(event, SenderEvent::Interrupt(_));
    let runs = |stats: &SenderStats| stats.counts.run_count;
    let counted = [
        sum(is_call, |stats| stats.counts.count),
        sum(is_interrupt, |stats| stats.counts.count),
        sum(|_| true, runs),
    ];
    // Some kernels call no BPF programs while threads of PID 1 run.
    let missing_max = sample.undelivered_min() * 2 + sample.missed + cpus.len() as u64 * 10;
    for (position, (name, counted)) in names.iter().zip(counted).enumerate() {
        let counted_max = after.2[position] - before.2[position];
        let counted_min = closing.2[position].saturating_sub(opened.2[position]);
        eprintln!("{name}: {counted}; perf counts {counted_min} to {counted_max}");
        assert!(counted <= counted_max, "{name}: {counted}, perf counts {counted_max}");
        // perf also counts functions that a CPU calls for itself, without a csd.
        if !name.ends_with("exit") {
            assert!(
                counted + missing_max >= counted_min,
                "{name}: {counted}, perf counts {counted_min}, {missing_max} may be missing"
            );
        }
    }
    let is_planted = |stats: &&SenderStats| {
        stats.key.event == SenderEvent::Call(CallType::Synchronous)
            && stats.key.sender == Sender::Task("irqlab-ipi-call".to_owned())
    };
    let planted: Vec<&SenderStats> = senders.iter().filter(is_planted).collect();
    let (sent, joined) = planted.iter().fold((0, 0), |(sent, joined), stats| {
        (sent + stats.counts.count, joined + stats.counts.run_count)
    });
    assert!(sent > 100 && joined + missing_max >= sent, "{joined} of {sent} calls are joined");
    for stats in senders {
        let counts = &stats.counts;
        assert!(counts.delay_max_ns <= counts.completion_max_ns, "{stats:?}");
        assert!(counts.completion_max_ns <= sample.length_ns(), "{stats:?}");
        let is_joined_once = counts.run_count <= counts.count || !is_call(&stats.key.event);
        assert!(is_joined_once, "{stats:?}");
    }
    // A reschedule interrupt is sent before it comes.
    let sent: u64 = senders
        .iter()
        .filter(|stats| stats.key.event == SenderEvent::Interrupt(Some("reschedule")))
        .map(|stats| stats.counts.count)
        .sum();
    let received = total(&sample, |source| source.context.name == "reschedule");
    assert!(received <= sent + missing_max, "{received} of {sent} reschedule interrupts came");
}

/// Without the option, no senders are measured. A kernel without type information has no table, and says why.
#[test]
fn senders_are_measured_on_request_only_and_need_btf() {
    let _alone = alone();
    let Some(mut bench_without) = bench(settings(100)) else { return };
    let Some(sample) = measured(&mut bench_without, Condition::Ambient, 0) else { return };
    assert!(sample.senders.is_none());
    let settings = LiveSettings { senders: true, flavour: Some(Flavour::Raw), ..settings(50) };
    let Some(mut bench) = bench(settings) else { return };
    let absent = absent_senders(&bench);
    let subjects: Vec<&str> = absent.iter().map(|absence| &*absence.what).collect();
    assert_eq!(subjects, ["senders of function calls", "senders of interrupts"]);
    assert!(absent.iter().all(|absence| absence.reason.contains("no type information")));
    let Some(sample) = measured(&mut bench, Condition::Ambient, 0) else { return };
    assert!(sample.senders.is_none());
}

fn absent_senders(bench: &LiveBench) -> Vec<Absence> {
    let absent = bench.facts().absent.into_iter();
    absent.filter(|absence| absence.table == SENDERS).collect()
}
