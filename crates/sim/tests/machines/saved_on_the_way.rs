//! Machines that are saved at an annotation, continue, and are restored.

use std::fs;

use crate::parts::{Bench, LIMITS, bench, keep_stdout};
use sim::annotate::Annotations;
use sim::checkpoint::{self, RESUME, Start};
use sim::watch::{self, Recording, Roi, Watch};
use sim::{Machine, boot, guest_facts};

/// The annotation is hit at the first `cat`.
const ORDER: &str = "run:cat /proc/uptime; sleep 0.02; cat /proc/uptime /proc/interrupts; exit 7";
const PLACE: &str = "uptime_proc_show";

/// A checkpoint that is removed in the end.
struct Checkpoint<'a> {
    bench: &'a Bench,
    name: String,
}

impl<'a> Checkpoint<'a> {
    fn new(bench: &'a Bench, kind: &str) -> Checkpoint<'a> {
        Checkpoint { bench, name: format!("test-way-{kind}-{}", std::process::id()) }
    }
}

impl Drop for Checkpoint<'_> {
    fn drop(&mut self) {
        let path = self.bench.cache.path(&format!("checkpoint-{}", self.name));
        let _ = fs::remove_dir_all(&path);
        let _ = fs::remove_file(path.with_extension("lock"));
    }
}

/// The outcome of a machine.
#[derive(Debug, PartialEq)]
struct Outcome {
    record: String,
    stdout: String,
    /// `None` if an annotation ended it.
    status: Option<u8>,
}

/// A machine that was ready for a request or saved on its way, and how often it was saved.
fn run(
    bench: &Bench,
    machine: &Machine,
    annotation: &str,
    (from, request): (Option<&str>, &str),
) -> (Outcome, u32) {
    let (cache, qemu) = (&bench.cache, &bench.qemu);
    let kernel_files = watch::kernel_files(cache, qemu, &bench.kernel, &|_| {}).unwrap();
    let facts = guest_facts(cache, qemu, &bench.kernel, &|_| {}).unwrap();
    let annotations = Annotations::read(&[annotation.to_owned()], false, &facts).unwrap();
    let roi = if from.is_some() { Roi::Always } else { Roi::Marker };
    let start = from.map_or_else(|| bench.ready(machine), |name| Start::Named(name.to_owned()));
    let watch = Watch { annotations, roi, ..Watch::default() };
    let recording = Recording::new(cache, qemu, machine, &kernel_files, &watch, None).unwrap();
    let more = recording.instrumentation();
    let mut vm = checkpoint::start(cache, qemu, machine, &start, request, LIMITS, more).unwrap();
    let (mut stdout, mut saved) = (Vec::new(), 0);
    let saver = checkpoint::Saver::new(cache, qemu, machine, &recording);
    let ending = boot::follow_to_end(
        &mut vm,
        LIMITS,
        &|| boot::EarlyEnd::Kill,
        &mut keep_stdout(&mut stdout),
        &|| recording.was_stopped(),
        &mut |vm, held| {
            saved += 1;
            saver.save(vm, held, &|_| {})
        },
    );
    let status = ending.unwrap().exit.map(|exit| exit.status);
    drop(vm);
    let record = recording.sha256().unwrap();
    assert_eq!(recording.accounting().unwrap().broken, Vec::<String>::new());
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    (Outcome { record, stdout, status }, saved)
}

#[test]
fn a_machine_that_is_saved_goes_on_as_if_it_were_not() {
    let Some(bench) = bench() else { return };
    for (cpus, pmu) in [(1, true), (2, false)] {
        let saved = Checkpoint::new(bench, &format!("{cpus}"));
        let machine = Machine { cpus, pmu, ..bench.machine() };
        let (plain, _) = run(bench, &machine, PLACE, (None, ORDER));
        let annotation = format!("{PLACE}: checkpoint {}", saved.name);
        let (held, times) = run(bench, &machine, &annotation, (None, ORDER));
        assert_eq!((times, plain.status), (1, Some(7)), "it comes there twice, and is saved once");
        assert_eq!(held, plain, "{cpus} CPUs");
        let mid_run = checkpoint::open(&bench.cache, &saved.name).unwrap().mid_run.unwrap();
        assert!(mid_run.in_region);
        let restored = || run(bench, &machine, PLACE, (Some(&saved.name), RESUME)).0;
        let (first, again) = (restored(), restored());
        assert_eq!(first, again);
        assert_eq!(first.status, plain.status);
        // Times and interrupts among them, to the last.
        assert!(first.stdout.contains("LOC:") && plain.stdout.ends_with(&first.stdout));
    }
}

#[test]
fn requests_of_a_disk_are_waited_for() {
    let Some(bench) = bench() else { return };
    let saved = Checkpoint::new(bench, "disk");
    let mut machine = bench.machine();
    machine.disks = vec!["virtio-blk,latency=200us".parse().unwrap()];
    let request = "run:dd if=/dev/vda of=/dev/null bs=4k count=20; cat /proc/uptime";
    // A task that waits for a page from a disk reaches it.
    let (plain, _) = run(bench, &machine, "io_schedule", (None, request));
    let annotation = format!("io_schedule: checkpoint {}", saved.name);
    let (held, times) = run(bench, &machine, &annotation, (None, request));
    assert_eq!(times, 1);
    assert_eq!(held, plain);
}

#[test]
fn a_record_can_end_where_the_machine_is_saved() {
    let Some(bench) = bench() else { return };
    let saved = Checkpoint::new(bench, "stop");
    let machine = bench.machine();
    let annotation = format!("{PLACE}: checkpoint {}, stop", saved.name);
    let (held, times) = run(bench, &machine, &annotation, (None, ORDER));
    assert_eq!((times, held.status), (1, None));
    let refused = checkpoint::start(
        &bench.cache,
        &bench.qemu,
        &machine,
        &Start::Named(saved.name.clone()),
        "run:true",
        LIMITS,
        sim::Instrumentation::default(),
    );
    assert!(refused.unwrap_err().to_string().contains("without a command"));
    let modules = |start: &Start| start.modules(&bench.cache).unwrap();
    let found = modules(&Start::Named(saved.name.clone()));
    assert_eq!(
        found,
        modules(&bench.ready(&machine)),
        "what a restored guest does not report again"
    );
    assert!(!found.is_empty());
    let (restored, _) = run(bench, &machine, PLACE, (Some(&saved.name), RESUME));
    assert_eq!(restored.status, Some(7));
}
