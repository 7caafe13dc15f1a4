//! Machines that are booted once: a run does not depend on whether the cache had its machine.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use crate::parts::{Bench, LIMITS, bench};
use sim::checkpoint::{self, Start};
use sim::watch::{self, Recording, Watch};
use sim::{Cache, EntryKind, Machine, SimError, boot};

/// Processes, interrupts and a sleep.
const ORDER: &str = "run:ls / >/dev/null; sleep 0.05; cat /proc/interrupts";

/// A machine that is ready, and the lines of progress about it.
fn ready(bench: &Bench, cache: &Cache, machine: &Machine) -> (Start, Vec<String>) {
    let messages = Mutex::new(Vec::new());
    let say = |line: &str| messages.lock().unwrap().push(line.to_owned());
    let start = checkpoint::ready(cache, &bench.qemu, machine, &say, &|| false).unwrap();
    (start, messages.into_inner().unwrap())
}

/// The SHA-256 of the record of a run.
fn record(bench: &Bench, machine: &Machine, start: &Start) -> String {
    let (cache, qemu) = (&bench.cache, &bench.qemu);
    let files = watch::kernel_files(cache, qemu, &bench.kernel, &|_| {}).unwrap();
    let recording = Recording::new(cache, qemu, machine, &files, &Watch::default(), None).unwrap();
    let more = recording.instrumentation();
    let mut vm = checkpoint::start(cache, qemu, machine, start, ORDER, LIMITS, more).unwrap();
    assert_eq!(boot::follow(&mut vm, LIMITS, &mut |_| {}).unwrap().status, 0);
    drop(vm);
    let sha256 = recording.sha256().unwrap();
    let accounting = recording.accounting().unwrap();
    assert_eq!(accounting.broken, Vec::<String>::new());
    assert!(accounting.ended_by_guest && accounting.instructions > Some(100_000));
    sha256
}

fn boots(messages: &[String]) -> usize {
    messages.iter().filter(|line| line.contains("booting the machine once")).count()
}

#[test]
fn a_run_does_not_depend_on_whether_its_machine_was_in_the_cache() {
    let Some(bench) = bench() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path()).unwrap();
    let mut machine = bench.machine();
    machine.cpus = 2;

    // Two that need it at the same time boot it once.
    let both: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..2).map(|_| scope.spawn(|| ready(bench, &cache, &machine))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let messages = [both[0].1.as_slice(), &both[1].1].concat();
    assert_eq!(boots(&messages), 1, "{messages:?}");
    let first = record(bench, &machine, &both[0].0);
    assert_eq!(record(bench, &machine, &both[1].0), first);

    // The entry stays while it is in use. After a changed byte it is made again, equal to the first.
    let entries = cache.entries();
    let entry = entries.iter().find(|entry| entry.name.starts_with("ready-")).unwrap();
    assert_eq!(entry.kind, EntryKind::Derived);
    assert_eq!(cache.prune(), Vec::<String>::new());
    drop(both);
    let state = cache.path(&entry.name).join("state");
    let file = File::options().read(true).write(true).open(&state).unwrap();
    let offset = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
    let (start, messages) = ready(bench, &cache, &machine);
    assert!(
        messages.iter().any(|line| line.contains("damaged") && line.contains("state")),
        "{messages:?}"
    );
    assert_eq!(boots(&messages), 1, "{messages:?}");
    assert_eq!(record(bench, &machine, &start), first);
    // Unharmed, it is found without a word.
    let (_, messages) = ready(bench, &cache, &machine);
    assert_eq!(messages, Vec::<String>::new());
}

#[test]
fn a_cache_that_cannot_keep_a_machine_does_not_stop_a_run() {
    let Some(bench) = bench() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path()).unwrap();
    let machine = bench.machine();
    // A name that is taken by something else stands for a full disk: the state has no place.
    let stop = checkpoint::ready(&cache, &bench.qemu, &machine, &|_| {}, &|| true).unwrap_err();
    assert!(matches!(stop, SimError::Stopped), "{stop}");
    let lock = fs::read_dir(scratch.path()).unwrap().flatten().find_map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name.strip_suffix(".lock").filter(|name| name.starts_with("ready-")).map(str::to_owned)
    });
    fs::write(cache.path(&lock.unwrap()), "in the way").unwrap();
    let (start, messages) = ready(bench, &cache, &machine);
    assert!(messages.iter().any(|line| line.contains("cannot keep the machine")), "{messages:?}");
    let Start::Ready(_) = &start else { panic!("{start:?}") };
    assert!(!record(bench, &machine, &start).is_empty());
}

#[test]
fn a_machine_on_the_hosts_clock_boots_each_time() {
    let Some(bench) = bench() else { return };
    let mut machine = bench.machine();
    machine.timing = sim::Timing::HostClock;
    let (start, messages) = ready(bench, &bench.cache, &machine);
    assert!(matches!(start, Start::Boot), "{start:?}");
    assert_eq!(messages, Vec::<String>::new());
}
