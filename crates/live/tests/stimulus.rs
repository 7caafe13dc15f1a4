//! Checks by the kernel's own counts, never by times, that each source raises its interrupts.
//!
//! The sources run in a helper program, `examples/stimulus.rs`, which `cargo test` builds. Before
//! `cargo test --test stimulus` alone, run `cargo build -p live --examples`. Every test takes a
//! lock, because the counts are the whole machine's.

#[path = "stimulus/kernel_counts.rs"]
mod kernel_counts;
#[path = "stimulus/lifetime.rs"]
mod lifetime;

use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernel_counts::{Counts, is_alive, network_namespaces};
use live::stimulus::{
    Helper, LoadSettings, Rate, Report, Running, Stimulus, StimulusError, StimulusSettings,
    default_scratch_dir, start, start_load,
};

/// Number of attempts for a stimulus that other processes may keep from the processor.
const ATTEMPTS: usize = 10;
const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn helper_program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/stimulus");
    assert!(program.exists(), "run: cargo build -p live --examples");
    program
}

fn helper() -> Helper {
    Helper::new(helper_program())
}

/// Settings of a test, which are quicker and smaller than the default ones.
fn settings(stimulus: Stimulus, rate: Rate) -> StimulusSettings {
    StimulusSettings {
        low_interval: Duration::from_millis(5),
        scratch_bytes: Some(8 * MIB),
        ..StimulusSettings::new(stimulus, rate, vec![0])
    }
}

/// The need that a machine lacks if it cannot give a stimulus.
fn need_of(stimulus: Stimulus) -> needs::Need {
    match stimulus {
        Stimulus::Disk => needs::Need::Disk,
        Stimulus::Net => needs::Need::Namespaces,
        Stimulus::Ipi => needs::Need::Cpus,
        _ => needs::Need::Other,
    }
}

/// Starts a stimulus, or prints why this machine cannot.
fn start_or_skip(settings: &StimulusSettings) -> Option<Running> {
    match start(settings, &helper()) {
        Ok(running) => Some(running),
        Err(StimulusError::Unavailable { reason, remedy }) => {
            assert!(!reason.is_empty() && !remedy.is_empty());
            let message = format!("{} {}: {reason}", settings.stimulus, settings.rate);
            needs::not_run(need_of(settings.stimulus), message);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Lets a source run. Returns its report, and the kernel's counts meanwhile.
fn run(running: Running, time: Duration) -> (Report, Counts) {
    let before = Counts::read();
    std::thread::sleep(time);
    let pid = running.pid().unwrap();
    let report = running.stop().unwrap();
    let after = Counts::read();
    assert!(!is_alive(pid), "the process is gone when stop returns");
    assert!(report.elapsed_ns > 0 && report.errors == 0, "{report:?}");
    (report, after.since(&before))
}

fn fact(running: &Running, key: &str) -> String {
    running.facts().get(key).map(ToString::to_string).unwrap_or_default()
}

fn expect_unavailable(settings: &StimulusSettings) -> (String, String) {
    match start(settings, &helper()) {
        Err(StimulusError::Unavailable { reason, remedy }) => {
            assert!(!reason.is_empty() && !remedy.is_empty());
            (reason, remedy)
        }
        other => panic!("{settings:?}: {other:?}"),
    }
}

#[test]
fn disk_high_raises_about_an_interrupt_per_read() {
    let _alone = alone();
    // At depth 1 each read has its own completion. Only if others use the disk heavily, the driver
    // may find it without an interrupt, so one of three attempts must succeed.
    for attempt in 1.. {
        let Some(running) = start_or_skip(&settings(Stimulus::Disk, Rate::High)) else { return };
        assert_eq!(fact(&running, "file_bytes"), (8 * MIB).to_string());
        let request: u64 = fact(&running, "request_bytes").parse().unwrap();
        assert!(request > 4096, "larger than a file system block");
        let (report, counts) = run(running, SECOND);
        assert!(report.operations > 100, "{report:?}");
        assert_eq!(report.bytes, report.operations * request, "every read is a whole request");
        let interrupts = counts.device_interrupts_max();
        if interrupts * 10 >= report.operations * 9 {
            break;
        }
        assert!(attempt < 3, "{interrupts} for {report:?}");
    }
}

#[test]
fn disk_low_reads_once_an_interval() {
    let _alone = alone();
    let Some(running) = start_or_skip(&settings(Stimulus::Disk, Rate::Low)) else { return };
    let (report, counts) = run(running, SECOND);
    assert!((2..=210).contains(&report.operations), "{report:?}");
    assert_eq!(report.bytes, report.operations * 4096);
    assert!(counts.device_interrupts_max() * 10 >= report.operations * 8, "{counts:?}");
}

#[test]
fn disk_reads_a_file_of_the_callers_choice() {
    let _alone = alone();
    let dir = tempfile::tempdir_in(default_scratch_dir()).unwrap();
    let file = dir.path().join("data");
    std::fs::write(&file, vec![7; 64 * 1024]).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    let settings =
        StimulusSettings { disk_file: Some(file.clone()), ..settings(Stimulus::Disk, Rate::High) };
    let Some(running) = start_or_skip(&settings) else { return };
    assert_eq!(fact(&running, "file_bytes"), "65536");
    let (report, _) = run(running, Duration::from_millis(200));
    assert!(report.operations > 0);
    assert_eq!(std::fs::read(&file).unwrap(), vec![7; 64 * 1024], "it is never written");
}

#[test]
fn disk_sources_that_cannot_be_are_unavailable() {
    let _alone = alone();
    let good = settings(Stimulus::Disk, Rate::High);
    let empty = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    for file in ["/dev/null", "/no/such/file", "/dev", empty.path().to_str().unwrap()] {
        expect_unavailable(&StimulusSettings { disk_file: Some(file.into()), ..good.clone() });
    }
    for dir in ["/dev/shm", "/proc", "/no/such/dir"] {
        expect_unavailable(&StimulusSettings { scratch_dir: dir.into(), ..good.clone() });
    }
    expect_unavailable(&StimulusSettings { scratch_bytes: Some(1 << 60), ..good });
}

#[test]
fn net_high_raises_receive_softirqs_through_napi() {
    let _alone = alone();
    let Some(running) = start_or_skip(&settings(Stimulus::Net, Rate::High)) else { return };
    let facts = serde_json::Value::from(running.facts().clone());
    for end in facts["interfaces"].as_array().unwrap() {
        assert_eq!(end["tso"], false, "{end}");
        assert_eq!(end["gro"], true, "{end}");
    }
    assert_ne!(facts["napi"], false, "NAPI is bypassed: {facts}");
    let (report, counts) = run(running, SECOND);
    assert!(report.bytes > MIB, "{report:?}");
    let softirqs = counts.softirq("NET_RX", 0);
    assert!(softirqs > 1000, "{softirqs} NET_RX on the measured CPU for {report:?}");
}

#[test]
fn net_low_is_a_ping_with_its_softirqs_on_the_measured_cpu() {
    let _alone = alone();
    let Some(running) = start_or_skip(&settings(Stimulus::Net, Rate::Low)) else { return };
    let (report, counts) = run(running, SECOND);
    assert!((2..=210).contains(&report.operations), "{report:?}");
    let softirqs = counts.softirq("NET_RX", 0);
    assert!(softirqs >= report.operations, "{softirqs} for {report:?}");
}

#[test]
fn net_leaves_no_interface_and_no_namespace() {
    let _alone = alone();
    let before = network_namespaces();
    let Some(running) = start_or_skip(&settings(Stimulus::Net, Rate::High)) else { return };
    let links = std::fs::read_dir("/sys/class/net").unwrap();
    let has_pair =
        links.flatten().any(|link| link.file_name().to_string_lossy().contains("irqlab"));
    assert!(!has_pair, "the pair is not in the measuring process's namespace");
    assert!(network_namespaces() > before);
    running.stop().unwrap();
    assert!(network_namespaces() <= before, "no process holds one any more");
}

#[test]
fn peers_are_pinged() {
    let _alone = alone();
    let peer = Some("127.0.0.1".to_owned());
    let settings = StimulusSettings { peer, ..settings(Stimulus::Net, Rate::Low) };
    let Some(running) = start_or_skip(&settings) else { return };
    let (report, _) = run(running, Duration::from_millis(200));
    assert!(report.operations > 0);
}

#[test]
fn peers_are_sent_to_if_they_listen() {
    let _alone = alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = Some(listener.local_addr().unwrap().to_string());
    let sink = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 18];
        let mut total = 0;
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            total += length as u64;
        }
        total
    });
    let settings = StimulusSettings { peer, ..settings(Stimulus::Net, Rate::High) };
    let running = start(&settings, &helper()).unwrap();
    let (report, _) = run(running, Duration::from_millis(200));
    assert!(report.bytes > 0 && sink.join().unwrap() >= report.bytes);
    // Nobody listens there any more.
    let (_, remedy) = expect_unavailable(&settings);
    assert!(remedy.contains("nc -lk"), "{remedy}");
    let nonsense = StimulusSettings { peer: Some("127.0.0.1:port".to_owned()), ..settings };
    assert!(matches!(start(&nonsense, &helper()), Err(StimulusError::Invalid(_))));
}

#[test]
fn timer_high_raises_timer_interrupts_on_the_measured_cpu() {
    let _alone = alone();
    let running = start_or_skip(&settings(Stimulus::Timer, Rate::High)).unwrap();
    println!("{}", fact(&running, "method"));
    let (report, counts) = run(running, SECOND);
    assert!(report.operations > 1000, "{report:?}");
    // Expirations that come late are merged, the more the busier the host.
    let interrupts = counts.interrupt("LOC", 0);
    assert!(interrupts * 4 >= report.operations, "{interrupts} for {report:?}");
}

#[test]
fn timer_low_sleeps_once_an_interval() {
    let _alone = alone();
    let running = start_or_skip(&settings(Stimulus::Timer, Rate::Low)).unwrap();
    let (report, counts) = run(running, SECOND);
    assert!((2..=210).contains(&report.operations), "{report:?}");
    assert!(counts.interrupt("LOC", 0) >= report.operations / 2, "{report:?}");
}

#[test]
fn ipi_raises_function_calls_on_the_measured_cpu() {
    let _alone = alone();
    for rate in [Rate::Low, Rate::High] {
        // A barrier skips, quickly, a target that is preempted at that moment: on a busy
        // machine there are many more barriers than interrupts, and the processor may not come
        // to either for seconds.
        let mut seen = Vec::new();
        let enough = (0..ATTEMPTS).any(|_| {
            let Some(running) = start_or_skip(&settings(Stimulus::Ipi, rate)) else { return true };
            let (report, counts) = run(running, SECOND);
            assert!(report.operations >= 2, "{report:?}");
            let interrupts = counts.interrupt("CAL", 0);
            let expected = if rate == Rate::High { 1000 } else { report.operations / 4 };
            seen.push((interrupts, report));
            interrupts >= expected
        });
        assert!(enough, "{rate}: {seen:?}");
    }
}

#[test]
fn the_busy_load_compresses_its_region() {
    let _alone = alone();
    let settings = LoadSettings {
        cpus: vec![0],
        region_bytes: Some(4 * MIB),
        last_level_cache_bytes: Some(MIB),
    };
    let running = start_load(&settings, &helper()).unwrap();
    assert_eq!(fact(&running, "region_bytes"), (4 * MIB).to_string());
    assert_eq!(fact(&running, "region_exceeds_cache"), "true");
    let (report, _) = run(running, SECOND);
    assert!(report.operations > 0);
    assert_eq!(report.bytes, report.operations * (256 << 10));
}

#[test]
fn a_load_larger_than_memory_is_unavailable() {
    let _alone = alone();
    let settings =
        LoadSettings { cpus: vec![0], region_bytes: Some(1 << 55), last_level_cache_bytes: None };
    let result = start_load(&settings, &helper());
    assert!(matches!(result, Err(StimulusError::Unavailable { .. })), "{result:?}");
}

#[test]
fn three_sources_run_at_once() {
    let _alone = alone();
    let timer_period = Duration::from_micros(20);
    let timer = StimulusSettings { timer_period, ..settings(Stimulus::Timer, Rate::High) };
    let all = [timer, settings(Stimulus::Ipi, Rate::High), settings(Stimulus::Disk, Rate::High)];
    let mut running: Vec<Running> = all.iter().filter_map(start_or_skip).collect();
    std::thread::sleep(Duration::from_millis(300));
    for source in &mut running {
        source.check().unwrap();
    }
    for source in running {
        assert!(source.stop().unwrap().operations > 0);
    }
}

#[test]
fn none_is_no_process() {
    let mut running = start(&settings(Stimulus::None, Rate::Low), &helper()).unwrap();
    assert_eq!(running.pid(), None);
    running.check().unwrap();
    assert_eq!(running.stop().unwrap(), Report::default());
}

#[test]
fn a_cpu_that_is_not_there_is_unavailable() {
    let _alone = alone();
    let settings = StimulusSettings { cpus: vec![1000], ..settings(Stimulus::Timer, Rate::Low) };
    let (reason, _) = expect_unavailable(&settings);
    assert!(reason.contains("1000"), "{reason}");
}
