//! A machine that is watched: what its record says, and that it says the same again.

use std::fs;

use crate::parts::{Bench, LIMITS, bench};
use attribution::KernelContext;
use sim::checkpoint::{self, Start};
use sim::counters::CYCLES;
use sim::watch::{self, Detail, Recording, Watch};
use sim::{Accounting, Machine, boot, models};

/// Work with a child, system calls, page faults and a sleep; its quotes and its comma have a way to
/// go to the guest.
const ORDER: &str = r#"run:test "$(echo one, two)" = 'one, two' && sleep 0.05"#;

fn recording(bench: &Bench, machine: &Machine, watch: &Watch) -> Recording {
    let (cache, qemu) = (&bench.cache, &bench.qemu);
    let kernel_files = watch::kernel_files(cache, qemu, &bench.kernel, &|_| {}).unwrap();
    assert_eq!(kernel_files.absences(watch, "contexts"), []);
    Recording::new(cache, qemu, machine, &kernel_files, watch, None).unwrap()
}

fn watched(bench: &Bench, machine: &Machine, from: &Start, watch: &Watch) -> Accounting {
    let recording = recording(bench, machine, watch);
    let (cache, qemu, more) = (&bench.cache, &bench.qemu, recording.instrumentation());
    let mut vm = checkpoint::start(cache, qemu, machine, from, ORDER, LIMITS, more).unwrap();
    let ending = boot::follow(&mut vm, LIMITS, &mut |_| {}).unwrap();
    assert_eq!(ending.status, 0);
    recording.accounting().unwrap()
}

/// Sums the entries of the wanted contexts over all CPUs of the only region.
fn entries(account: &Accounting, is_wanted: fn(KernelContext) -> bool) -> u64 {
    let [region] = account.regions.as_slice() else { panic!("{} regions", account.regions.len()) };
    let rows = region.cpus.iter().flat_map(|cpu| &cpu.contexts);
    rows.filter(|row| is_wanted(row.context)).map(|row| row.entries).sum()
}

#[test]
fn a_command_is_counted_by_context_and_the_same_again() {
    let Some(bench) = bench() else { return };
    let mut machine = bench.machine();
    machine.cpus = 2;
    let start = bench.ready(&machine);
    let first = watched(bench, &machine, &start, &Watch::default());
    assert_eq!(first, watched(bench, &machine, &start, &Watch::default()));
    assert_eq!(first.broken, Vec::<String>::new());
    assert!(first.ended_by_guest && first.has_contexts && first.has_tasks);
    assert_eq!((first.cpus, first.regions[0].cpus.len()), (2, 2));
    assert!(entries(&first, |context| context == KernelContext::Exception(14)) > 0);
    assert!(entries(&first, |context| matches!(context, KernelContext::Syscall(_))) > 10);
    // A wake-up from the sleep.
    assert!(entries(&first, |context| context == KernelContext::Interrupt(0xec)) > 0);
    assert!(first.tasks.values().any(|name| name == "sleep"), "{:?}", first.tasks);
}

#[test]
fn a_booted_machine_is_watched_as_a_restored_one_is() {
    let Some(bench) = bench() else { return };
    let machine = bench.machine();
    let first = watched(bench, &machine, &Start::Boot, &Watch::default());
    assert_eq!(first, watched(bench, &machine, &Start::Boot, &Watch::default()));
    assert_eq!((first.broken.len(), first.regions.len()), (0, 1));
    let fast = Watch { detail: Detail::Fast, ..Watch::default() };
    let fast = watched(bench, &machine, &bench.ready(&machine), &fast);
    assert!(fast.ended_by_guest && fast.instructions.is_none() && fast.regions.is_empty());
}

#[test]
fn a_machine_that_was_killed_leaves_an_incomplete_record() {
    let Some(bench) = bench() else { return };
    let recording = recording(bench, &bench.machine(), &Watch::default());
    let mut vm = boot::start_with(
        &bench.qemu,
        &bench.machine(),
        "idle",
        LIMITS,
        recording.instrumentation(),
    )
    .unwrap();
    let deadline = std::time::Instant::now() + LIMITS.wall;
    assert!(vm.next_event(deadline).unwrap().is_some());
    vm.kill();
    let error = recording.accounting().unwrap_err().to_string();
    assert!(error.contains("incomplete") && error.contains("QEMU was killed"), "{error}");
}

/// Timer interrupts of a command that fills memory, and the cycles it took.
fn ticks(bench: &Bench, machine: &Machine, from: &Start, model: &std::path::Path) -> (u64, u64) {
    let model =
        models::find(&bench.cache, &model.display().to_string(), &[], Some(Detail::Timed)).unwrap();
    let watch = Watch { detail: Detail::Timed, model: Some(model), ..Watch::default() };
    let request = "run:dd if=/dev/zero of=/tmp/filled bs=4M count=8";
    let recording = recording(bench, machine, &watch);
    let (cache, qemu, more) = (&bench.cache, &bench.qemu, recording.instrumentation());
    let mut vm = checkpoint::start(cache, qemu, machine, from, request, LIMITS, more).unwrap();
    assert_eq!(boot::follow(&mut vm, LIMITS, &mut |_| {}).unwrap().status, 0);
    let account = recording.accounting().unwrap();
    let ticks = entries(&account, |context| context == KernelContext::Interrupt(0xec));
    (ticks, account.regions[0].cpus[0].used[CYCLES])
}

#[test]
fn slower_memory_means_more_ticks_for_the_same_work_in_proportion() {
    let Some(bench) = bench() else { return };
    let machine = bench.machine();
    let start = bench.ready(&machine);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let text = fs::read_to_string(root.join("machines/r4400-1994.toml")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let [(fast, fast_cycles), (slow, slow_cycles)] = [100, 300].map(|memory_cycles| {
        let path = scratch.path().join("model.toml");
        let memory = format!("memory_cycles = {memory_cycles}");
        fs::write(&path, text.replace("memory_cycles = 100", &memory)).unwrap();
        ticks(bench, &machine, &start, &path)
    });
    println!("{fast} ticks in {fast_cycles} cycles, {slow} in {slow_cycles}");
    assert!(fast > 200 && slow * 2 > fast * 3, "{fast}, {slow}");
    // A tick is 4 ms: 800,000 cycles at 200 MHz.
    for (ticks, cycles) in [(fast, fast_cycles), (slow, slow_cycles)] {
        let wanted = cycles as f64 / 800_000.0;
        assert!((ticks as f64 / wanted - 1.0).abs() < 0.01, "{ticks} ticks in {cycles} cycles");
    }
}
