//! Annotations of a machine by symbols and types of its kernel.

use std::collections::BTreeMap;

use crate::parts::{Bench, LIMITS, bench};
use attribution::KernelContext;
use sim::AnnotationUse;
use sim::annotate::{Annotations, Value};
use sim::parallel::Jobs;
use sim::watch::{self, Recording, Watch};
use sim::{Accounting, Machine, boot, checkpoint, guest_facts};

const ORDER: &str = r#"run:ls / > /dev/null; sleep 0.05"#;

fn annotations(bench: &Bench, arguments: &[&str], log: bool) -> Annotations {
    let facts = guest_facts(&bench.cache, &bench.qemu, &bench.kernel, &|_| {}).unwrap();
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    Annotations::read(&arguments, log, &facts).unwrap()
}

/// The outcome of a run with these annotations; `None` if one of them stopped it.
fn watched(bench: &Bench, cpus: u32, annotations: Annotations) -> (Accounting, Option<u8>) {
    watched_executing(ORDER, bench, cpus, annotations)
}

fn watched_executing(
    order: &str,
    bench: &Bench,
    cpus: u32,
    annotations: Annotations,
) -> (Accounting, Option<u8>) {
    let mut machine = bench.machine();
    machine.cpus = cpus;
    watched_on(&machine, order, bench, annotations)
}

fn watched_on(
    machine: &Machine,
    order: &str,
    bench: &Bench,
    annotations: Annotations,
) -> (Accounting, Option<u8>) {
    let (cache, qemu) = (&bench.cache, &bench.qemu);
    let kernel_files = watch::kernel_files(cache, qemu, &bench.kernel, &|_| {}).unwrap();
    let watch = Watch { annotations, ..Watch::default() };
    let recording = Recording::new(cache, qemu, machine, &kernel_files, &watch, None).unwrap();
    let (start, more) = (bench.ready(machine), recording.instrumentation());
    let mut vm = checkpoint::start(cache, qemu, machine, &start, order, LIMITS, more).unwrap();
    let stop = || recording.was_stopped();
    let exit = boot::follow_unless(&mut vm, LIMITS, &mut |_| {}, &stop).unwrap();
    drop(vm);
    (recording.accounting().unwrap(), exit.map(|exit| exit.status))
}

/// The account without the rows of annotations.
fn without_annotations(account: &Accounting) -> Accounting {
    let (annotations, hits, spans) = (BTreeMap::new(), Vec::new(), Vec::new());
    Accounting { annotations, hits, spans, ..account.clone() }
}

fn entries(account: &Accounting, is_wanted: fn(KernelContext) -> bool) -> u64 {
    let rows = account.regions[0].cpus.iter().flat_map(|cpu| &cpu.contexts);
    rows.filter(|row| is_wanted(row.context)).map(|row| row.entries).sum()
}

fn note(account: &Accounting, number: u32) -> (&AnnotationUse, u64) {
    let note = &account.annotations[&(1, number)];
    (note, note.hits.iter().sum())
}

/// Returns the texts at `position` among the values that were recorded together.
fn texts(note: &AnnotationUse, position: usize) -> Vec<String> {
    let text = |values: &Vec<Value>| {
        let Value::Text(text) = values[position] else { panic!("{values:?}") };
        let end = text.iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8(text[..end].to_vec()).unwrap()
    };
    note.values.iter().filter_map(|entry| entry.values.as_ref().map(text)).collect()
}

#[test]
fn values_are_what_the_guest_does_and_the_rest_is_as_without() {
    let Some(bench) = bench() else { return };
    let list = [
        "do_syscall_64",
        "do_sys_openat2: record current->comm str(filename) dfd how->flags",
        "__handle_irq_event_percpu: record ((struct irq_desc*)rdi)->irq_data.irq",
        "event:switch: record ((struct task_struct*)rsi)->pid",
        "event:exception:14: record current->pid",
    ];
    let (annotated, status) = watched(bench, 2, annotations(bench, &list, true));
    let (plain, _) = watched(bench, 2, Annotations::default());
    assert_eq!(without_annotations(&annotated), plain);
    assert_eq!((status, annotated.broken.len()), (Some(0), 0));
    let is_syscall = |context| matches!(context, KernelContext::Syscall(_));
    assert_eq!(note(&annotated, 0).1, entries(&annotated, is_syscall));
    let (opens, hits) = note(&annotated, 1);
    assert!(hits >= 2 && opens.values.iter().map(|entry| entry.count).sum::<u64>() == hits);
    let names = texts(opens, 0);
    assert!(names.iter().any(|name| name == "ls"), "{names:?}");
    // A task is named like the program that it was started from, until that renames it.
    let is_known = |name: &String| annotated.tasks.values().any(|task| task == name);
    assert!(names.iter().all(|name| name == "busybox" || is_known(name)), "{names:?}");
    let files = texts(opens, 1);
    assert!(
        files.contains(&"/".to_owned()) && files.contains(&"/dev/null".to_owned()),
        "{files:?}"
    );
    for values in opens.values.iter().filter_map(|entry| entry.values.as_ref()) {
        let at_fdcwd = (-100_i64).cast_unsigned();
        assert_eq!(values[2], Value::Number(at_fdcwd), "{values:?}");
    }
    let (lines, _) = note(&annotated, 2);
    for line in lines.values.iter().filter_map(|entry| entry.values.as_ref()) {
        let Value::Number(line) = line[0] else { panic!("{line:?}") };
        assert!(annotated.irqs.contains_key(&(line as u32)), "{line}");
    }
    let (switches, hits) = note(&annotated, 3);
    assert!(
        hits > 2
            && switches.values.iter().any(|entry| entry.values == Some(vec![Value::Number(0)]))
    );
    let is_fault = |context| context == KernelContext::Exception(14);
    assert_eq!(note(&annotated, 4).1, entries(&annotated, is_fault));
    let logged = annotated.hits.iter().filter(|hit| hit.annotation == 4).count();
    assert_eq!(logged as u64, note(&annotated, 4).1);
    assert!(annotated.hits.iter().map(|hit| hit.at_ns).is_sorted());
}

/// Memory that the host can give to a process now, MiB.
fn available_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let kib: u64 = available.trim().trim_end_matches(" kB").parse().unwrap();
    kib >> 10
}

/// The kernel takes its own memory from the end of the low memory. The larger machine has memory above 4 GiB, too.
#[test]
fn values_are_read_in_all_memory_of_a_large_machine() {
    let Some(bench) = bench() else { return };
    let list = ["do_sys_openat2: record current->comm"];
    for memory_mib in [3_072, 3_584] {
        let (needed, available) = (Jobs::needed_mib(memory_mib), available_mib());
        if available < needed {
            let reason =
                format!("{needed} MiB of memory are needed, and {available} are available");
            return needs::not_run(needs::Need::Other, reason);
        }
        let machine = Machine { memory_mib, ..bench.machine() };
        let (account, _) = watched_on(&machine, ORDER, bench, annotations(bench, &list, false));
        let (opens, hits) = note(&account, 0);
        assert!(hits > 0);
        let is_absent = |values: &Vec<Value>| values.contains(&Value::Absent);
        let absent = opens.values.iter().filter_map(|entry| entry.values.as_ref());
        assert_eq!(absent.filter(|values| is_absent(values)).count(), 0, "{memory_mib} MiB");
    }
}

#[test]
fn spans_tell_what_functions_use() {
    let Some(bench) = bench() else { return };
    let list = ["open=do_sys_openat2: span", "lookup=link_path_walk.part.0.constprop.0: span"];
    let list = if annotations_fit(bench, list[1]) { &list[..] } else { &list[..1] };
    let (account, _) = watched(bench, 1, annotations(bench, list, false));
    assert_eq!(account.broken, Vec::<String>::new());
    let rows = &account.regions[0].cpus[0].contexts;
    let open = rows.iter().find(|row| row.context == KernelContext::Function(0)).unwrap();
    assert_eq!((open.entries, open.completed), (note(&account, 0).1, note(&account, 0).1));
    let counts_of = |counts: sim::ContextUse| {
        let index = sim::counters::INSTRUCTIONS;
        (counts.self_counts[index], counts.inclusive[index])
    };
    assert!(counts_of(*open).0 > 100 * open.completed && counts_of(*open).1 >= counts_of(*open).0);
    assert_eq!(account.name_of(open.context), "span open");
    let syscalls = rows.iter().find(|row| row.context == KernelContext::Syscall(257)).unwrap();
    assert!(counts_of(*syscalls).1 > counts_of(*open).1);
}

fn annotations_fit(bench: &Bench, argument: &str) -> bool {
    let facts = guest_facts(&bench.cache, &bench.qemu, &bench.kernel, &|_| {}).unwrap();
    Annotations::read(&[argument.to_owned()], false, &facts).is_ok()
}

#[test]
fn an_annotation_ends_the_run() {
    let Some(bench) = bench() else { return };
    // The command never ends by itself: on a fast host a short one would end before the machine does.
    let order = format!("{ORDER}; while :; do :; done");
    let stopped =
        |list: &[&str]| watched_executing(&order, bench, 1, annotations(bench, list, false));
    let (first, status) = stopped(&["first=do_sys_openat2: count, stop"]);
    assert_eq!((status, first.stopped, first.regions.len()), (None, true, 1));
    // Also where nothing else is counted.
    let (at_fast, _) = stopped(&["marker:1: detail fast", "do_sys_openat2: stop"]);
    assert!(at_fast.stopped && at_fast.instructions < first.instructions);
}
