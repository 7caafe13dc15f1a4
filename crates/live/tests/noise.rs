//! The noise experiment on this machine. The assertions hold on any host, however busy: ledgers
//! close, and the loop finds a task that kept it off its CPU. Printed figures are for people.
//!
//! Tests that need rights say so, and end without them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lab::experiment::Bench;
use lab::noise::{
    Body, ContextName, CpuNoise, GapLedger, InterruptSender, KeepDetours, Loop, LoopResult,
    NoiseBench, NoiseSample, Part, Processes, Visibility,
};
use live::host::{Root, parse_cpu_list};
use live::marks::Senders;
use live::noise::{Length, LiveNoise, NoiseSettings};
use live::window::Stop;
use rustix::thread::{CpuSet, MembarrierCommand, membarrier, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn last_cpu() -> u32 {
    let online = Root::default().text("sys/devices/system/cpu/online").expect("online CPUs");
    *parse_cpu_list(online.trim()).expect("a CPU list").last().expect("a CPU")
}

fn settings(cpu: u32, millis: u64) -> NoiseSettings {
    NoiseSettings {
        cpus: vec![cpu],
        housekeeping: Vec::new(),
        body: Body::Add,
        quantum_ns: 100_000,
        length: Length::Time(Duration::from_millis(millis)),
        warm_up: Duration::from_millis(20),
        threshold_ns: None,
        fifo: None,
        trace: true,
        senders: Senders::NotNamed,
        cache_bytes: None,
        keep: KeepDetours::with_seed(1),
        command: Vec::new(),
        command_to_stderr: false,
        stop: Stop::new().expect("a pipe"),
    }
}

/// One CPU's part of a window.
fn only(sample: &NoiseSample) -> &CpuNoise {
    assert_eq!(sample.cpus.len(), 1);
    &sample.cpus[0]
}

fn ledger(cpu: &CpuNoise) -> &GapLedger {
    match &cpu.result {
        LoopResult::Gaps(ledger) => ledger,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_ledger_of_a_window_closes() {
    let _alone = alone();
    let mut bench = LiveNoise::new(settings(last_cpu(), 300)).expect("a bench");
    let traced = bench.visibility() == Visibility::KernelEvents;
    let sample = bench.measure(Loop::Detour, traced).expect("a window");
    let cpu = only(&sample);
    let ledger = ledger(cpu);
    assert!(ledger.gaps.count > 0, "300 ms without a tick");
    assert!(ledger.gaps.sum <= cpu.window_ns, "{} of {}", ledger.gaps.sum, cpu.window_ns);
    assert_eq!((cpu.lost_records, cpu.left), (0, false));
    if !traced {
        return needs::not_run(needs::Need::Bpf, format!("{:?}", bench.facts().absent));
    }
    assert_eq!(ledger.by_class_ns().expect("classes").iter().sum::<u64>(), ledger.gaps.sum);
    let marks = sample.traced.expect("marks");
    assert!(marks.marks > 0 && marks.lost == 0, "{marks:?}");
    let in_order = ledger.first.windows(2).all(|two| two[0].gap.end_ns <= two[1].gap.start_ns);
    assert!(in_order, "detours overlap");
}

/// A thread of this process that calls membarrier(2) on a CPU, again and again, until it is dropped. Each call interrupts the
/// CPUs that run other threads of the process.
struct Barriers {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Barriers {
    const NAME: &str = "planted";

    fn start(cpu: u32) -> Barriers {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).expect("a registration");
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let body = move || {
            let mut only = CpuSet::new();
            only.set(cpu as usize);
            sched_setaffinity(None, &only).expect("the CPU is usable");
            while !is_stopped.load(Ordering::Relaxed) {
                membarrier(MembarrierCommand::PrivateExpedited).expect("a barrier");
            }
        };
        let thread = std::thread::Builder::new().name(Self::NAME.to_owned()).spawn(body);
        Barriers { stop, thread: Some(thread.expect("a thread")) }
    }
}

impl Drop for Barriers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

/// The times of a window's causes add up whether senders are named or not.
#[test]
fn the_thread_that_interrupts_the_loop_is_named_with_its_system_call_and_its_cpu() {
    let _alone = alone();
    let (cpu, sending_cpu) = (last_cpu(), 0);
    if cpu == sending_cpu {
        return needs::not_run(needs::Need::Cpus, "one CPU interrupts no other");
    }
    let named = NoiseSettings { senders: Senders::Named, ..settings(cpu, 200) };
    let mut bench = LiveNoise::new(named).expect("a bench");
    if bench.visibility() != Visibility::KernelEvents {
        return needs::not_run(needs::Need::Bpf, format!("{:?}", bench.facts().absent));
    }
    let absent = bench.facts().absent;
    let why_unknown = absent.iter().find(|absence| absence.what == "senders of function calls");
    let _barriers = Barriers::start(sending_cpu);
    let mut found = None;
    // Other processes may take a CPU for the time of a window.
    for _ in 0..50 {
        let sample = bench.measure(Loop::Detour, true).expect("a window");
        let ledger = ledger(only(&sample));
        assert_eq!(ledger.parts.values().map(|times| times.sum).sum::<u64>(), ledger.gaps.sum);
        assert_eq!((ledger.unbalanced, sample.traced.expect("marks").lost), (0, 0));
        let sent = sample.names.iter().filter_map(|name| match name {
            ContextName::Sent(sent) => Some(sent.clone()),
            _ => None,
        });
        let sent: Vec<_> = sent.collect();
        let is_planted = |sent: &&lab::noise::SentInterrupt| matches!(&sent.sender, InterruptSender::Known { name, .. } if name == Barriers::NAME);
        if let Some(planted) = sent.iter().find(is_planted) {
            found = Some(planted.clone());
            break;
        }
        if why_unknown.is_some() {
            let is_call =
                |sent: &lab::noise::SentInterrupt| sent.context.name.starts_with("call_function");
            return assert!(!sent.iter().any(is_call), "{sent:?} although {why_unknown:?}");
        }
    }
    let found = found.expect("a call of membarrier while the loop runs");
    assert!(found.context.name.starts_with("call_function"), "{found:?}");
    let InterruptSender::Known { processes, reason, cpus, .. } = &found.sender else {
        panic!("{found:?}")
    };
    assert!(matches!(processes, Processes::One(_)), "{found:?}");
    assert_eq!(reason.as_deref(), Some("membarrier"));
    assert_eq!(cpus, &[sending_cpu]);
}

#[test]
fn senders_are_named_on_request_only() {
    let _alone = alone();
    let (cpu, sending_cpu) = (last_cpu(), 0);
    let mut bench = LiveNoise::new(settings(cpu, 100)).expect("a bench");
    if bench.visibility() != Visibility::KernelEvents {
        return needs::not_run(needs::Need::Bpf, format!("{:?}", bench.facts().absent));
    }
    let _barriers = Barriers::start(sending_cpu);
    let sample = bench.measure(Loop::Detour, true).expect("a window");
    assert!(!sample.names.iter().any(ContextName::is_sent), "{:?}", sample.names);
    assert!(!format!("{:?}", bench.facts().absent).contains("senders"));
}

#[test]
fn a_command_starts_when_the_first_loop_runs_and_not_before() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("started");
    let file = file.display();
    let command = ["sh", "-c", &format!("touch {file}; exec sleep 1000")].map(str::to_owned);
    let settings = NoiseSettings {
        command: command.to_vec(),
        command_to_stderr: true,
        ..settings(last_cpu(), 300)
    };
    let mut bench = LiveNoise::new(settings).expect("a bench");
    let traced = bench.visibility() == Visibility::KernelEvents;
    for traced in [false, traced] {
        let part = bench.measure_part(traced, 32).expect("a window");
        assert!(!part.facts.contains_key("command_ended"), "{:?}", part.facts);
    }
    assert!(!std::path::Path::new(&file.to_string()).exists(), "it waits for the loops");
    let sample = bench.measure(Loop::Detour, traced).expect("a window");
    let fact = |name: &str| sample.facts.get(name).cloned().unwrap_or_default();
    assert!(fact("command_started_after_ns").is_u64() && fact("command_ended").is_null());
    assert!(std::path::Path::new(&file.to_string()).exists(), "it ran with the loop");
    assert_eq!(bench.end_command().expect("a command"), None, "it is ended");
    assert_eq!(bench.facts().observer["compared_before_command"], true);
}

#[test]
fn a_command_that_cannot_be_executed_is_an_error_of_each_loop() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("lost");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("a mode");
    let command = vec![script.display().to_string()];
    let settings = NoiseSettings { command, trace: false, ..settings(last_cpu(), 60_000) };
    let mut bench = LiveNoise::new(settings).expect("a bench");
    for looping in [Loop::Fwq, Loop::Ftq] {
        let error = bench.measure(looping, false).expect_err("no program");
        assert!(error.to_string().contains("cannot run "), "{error}");
    }
    assert!(bench.end_command().is_err());
    let command = vec!["/no/such/program".to_owned()];
    let missing = NoiseSettings { command, trace: false, ..self::settings(last_cpu(), 1) };
    assert!(LiveNoise::new(missing).is_err(), "before anything is measured");
}

#[test]
fn fixed_work_and_fixed_time_fill_their_window() {
    let _alone = alone();
    let settings = NoiseSettings { length: Length::Repetitions(500), ..settings(last_cpu(), 0) };
    for body in Body::ALL {
        let settings = NoiseSettings { body: *body, ..settings.clone() };
        let mut bench = LiveNoise::new(settings).expect("a bench");
        let traced = bench.visibility() == Visibility::KernelEvents;
        let fwq = bench.measure(Loop::Fwq, traced).expect("a window");
        let LoopResult::Quanta(fixed) = &only(&fwq).result else { panic!("{fwq:?}") };
        assert_eq!(fixed.times.count, 500, "{body}");
        assert!(fixed.times.sum <= only(&fwq).window_ns, "{body}");
        assert_eq!(fixed.first.len(), 500);
        for quantum in &fixed.first {
            assert!(
                quantum.attributed_ns.is_none_or(|named| named <= quantum.time_ns),
                "{quantum:?}"
            );
        }
        let ftq = bench.measure(Loop::Ftq, false).expect("a window");
        let LoopResult::Slots(slots) = &only(&ftq).result else { panic!("{ftq:?}") };
        assert!(slots.count >= 500 && slots.work_sum > 0, "{body}: {slots:?}");
        assert_eq!(slots.first.iter().sum::<u64>(), slots.work_sum, "{body}");
        assert!(slots.empty < slots.count, "{body}");
        for sample in [&fwq, &ftq] {
            let error = sample.clock_rate_error.expect("Linux says how good its clock is");
            assert!((1e-9..1e-2).contains(&error), "{body}: {error}");
        }
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

const INJECTOR: &str = "irqlab-injector";

/// Takes the CPU from all other tasks at chosen times, until stopped. Returns these times, ns;
/// `None` without the right to do so.
fn inject(cpu: u32, stop: &AtomicBool) -> Option<Vec<(u64, u64)>> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).expect("a CPU that is online");
    let parameter = libc::sched_param { sched_priority: 10 };
    // SAFETY: the structure is valid for the call, which changes this thread's scheduling alone.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) } != 0 {
        return None;
    }
    let mut injected = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        // Lengths that recur seldom, at times that no tick has.
        let round = injected.len() as u64;
        std::thread::sleep(Duration::from_micros(3_700 + round * 37 % 1_000));
        let (started, length_ns) = (now_ns(), 20_000 + round * 7_919 % 300_000);
        let mut ended = started;
        while ended < started + length_ns {
            ended = now_ns();
        }
        injected.push((started, ended));
    }
    Some(injected)
}

/// Largest accepted error of the lines through the readings of two clocks. A single pair of
/// readings may be wrong by more, if the host stops this process between them.
const CLOCKS_NS: u64 = 2_000;

#[test]
fn every_injected_detour_is_found_and_named() {
    let _alone = alone();
    let cpu = last_cpu();
    let mut bench = LiveNoise::new(settings(cpu, 1_500)).expect("a bench");
    let traced = bench.visibility() == Visibility::KernelEvents;
    let stop = Arc::new(AtomicBool::new(false));
    let its_stop = Arc::clone(&stop);
    let injector = std::thread::Builder::new()
        .name(INJECTOR.to_owned())
        .spawn(move || inject(cpu, &its_stop))
        .expect("a thread");
    let sample = bench.measure(Loop::Detour, traced).expect("a window");
    stop.store(true, Ordering::Relaxed);
    let Some(injected) = injector.join().expect("the injector") else {
        return needs::not_run(needs::Need::Fifo, "no right to it");
    };
    let noise = only(&sample);
    let ledger = ledger(noise);
    let end_ns = noise.start_ns + noise.window_ns;
    let inside: Vec<_> = injected
        .iter()
        .filter(|(started, ended)| {
            *started > noise.start_ns + CLOCKS_NS && ended + CLOCKS_NS < end_ns
        })
        .collect();
    assert!(inside.len() > 20, "{} injected, {} inside", injected.len(), inside.len());
    let (mut longer, mut missed, all) = (Vec::new(), 0, inside.len());
    for (started, ended) in inside {
        let holds = |detour: &&lab::noise::ledger::Detour| {
            detour.gap.start_ns <= started + CLOCKS_NS && ended - CLOCKS_NS <= detour.gap.end_ns
        };
        let Some(detour) = ledger.first.iter().find(holds) else {
            missed += 1;
            continue;
        };
        longer.push(detour.gap.length_ns().saturating_sub(ended - started));
        if traced {
            assert!(detour.by_class_ns[0] + CLOCKS_NS >= ended - started, "{detour:?}");
        }
    }
    // If the host stops this process between the readings of the two clocks, times
    // around them are wrong.
    assert!(missed * 20 <= all, "{missed} of {all} not found");
    longer.sort_unstable();
    let (median, least) = (longer[longer.len() / 2], longer[0]);
    println!(
        "{} injected, {missed} more not found; {median} ns longer (median), {least} ns at least",
        longer.len()
    );
    if traced {
        let is_injector = |part: &&Part| match part {
            Part::Context(number) => {
                // The kernel keeps 15 characters of a name.
                let name = ContextName::Task(INJECTOR[..15].to_owned());
                sample.names.get(*number as usize) == Some(&name)
            }
            _ => false,
        };
        assert!(ledger.parts.keys().any(|part| is_injector(&part)), "{:?}", sample.names);
    }
}
