//! Boots a guest twice, and compares its records with each other and with the counts of the guest's
//! kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::machine::Machine;
use crate::sums::contexts_add_up;
use attribution::KernelContext;
use simrecord::counters::{CYCLES, INSTRUCTIONS, TIME};
use simrecord::marker;
use simrecord::parsed::{self, ContextCounts, CpuRegion};
use simrecord::reader::{self, Stream};
use simrecord::record::{Check, Marker, Record};

/// A region up to a snapshot, on all CPUs.
type Snapshot = Vec<CpuRegion>;

/// The content of the record, in order: snapshots, and each note with the snapshot before it.
#[derive(Default)]
struct Booted {
    snapshots: Vec<Snapshot>,
    notes: Vec<(usize, Marker)>,
    checks: Vec<Check>,
}

fn row(snapshot: &Snapshot, cpu: u32, context: KernelContext) -> Option<&ContextCounts> {
    let on_cpu = snapshot.iter().find(|region| region.region.cpu == cpu)?;
    on_cpu.contexts.iter().find(|row| row.context == context)
}

fn entries(snapshot: &Snapshot, cpu: u32, context: KernelContext) -> u64 {
    row(snapshot, cpu, context).map_or(0, |row| row.row.entries)
}

/// The counts of user mode, on all CPUs.
fn user(snapshot: &Snapshot, counter: usize) -> u64 {
    let rows = snapshot.iter().flat_map(|region| &region.contexts);
    let rows = rows.filter(|row| matches!(row.context, KernelContext::User(_)));
    rows.map(|row| row.self_counts[counter]).sum()
}

fn booted(stream: &Stream) -> Booted {
    let cpus = stream.header.cpus as usize;
    let mut booted = Booted::default();
    for record in &stream.records {
        match record {
            Record::Marker(marker) if marker.number >= marker::USER_FIRST => {
                booted.notes.push((booted.snapshots.len(), *marker));
            }
            Record::Marker(marker) if marker.number == marker::FULL => {}
            Record::Marker(_) => booted.snapshots.push(Snapshot::new()),
            Record::Check(check) => booted.checks.push(*check),
            Record::Notice(..) => panic!("{record:?}"),
            _ => {}
        }
    }
    let regions = parsed::parse(stream).unwrap().regions;
    assert_eq!(regions.len(), cpus * booted.snapshots.len());
    booted.snapshots = regions.chunks(cpus).map(<[CpuRegion]>::to_vec).collect();
    booted
}

fn record(machine: &Machine, cpus: u32, name: &str, options: &str) -> Vec<u8> {
    let out = machine.path(&format!("record-{cpus}-{name}"));
    let options = format!("out={},roi=always,{options}", out.display());
    machine.boot(cpus, "measure", Some(&options));
    fs::read(out).unwrap()
}

/// The record of a guest from a saved machine, without its boot.
fn record_from_saved(machine: &Machine, cpus: u32, name: &str, options: &str) -> Vec<u8> {
    let out = machine.path(&format!("record-{cpus}-{name}"));
    let options = format!("out={},roi=always,{options}", out.display());
    machine.continue_saved(cpus, "measure", &options);
    fs::read(out).unwrap()
}

/// [`contexts_add_up`] for all snapshots.
fn sums_close(booted: &Booted) {
    booted.snapshots.iter().flatten().for_each(contexts_add_up);
}

/// Checks that interrupts and softirqs equal the guest's own counts if none came between the
/// snapshots around the reading. What came before the level counted is missing in all snapshots
/// alike. Returns how many counts were compared, by context.
fn counts_agree(booted: &Booted, counted_from_start: bool) -> BTreeMap<u32, usize> {
    let mut compared = BTreeMap::new();
    let mut uncounted = BTreeMap::new();
    for (position, note) in &booted.notes {
        let (number, cpu) = (note.number - marker::USER_FIRST, (note.argument >> 32) as u32);
        let context = match number {
            1 => KernelContext::Interrupt(0xec),
            2..12 => KernelContext::Softirq((number - 2) as u8),
            _ => continue,
        };
        let around = [position - 1, *position];
        let [Some(before), Some(after)] = around.map(|snapshot| booted.snapshots.get(snapshot))
        else {
            continue;
        };
        let (before, after) = (entries(before, cpu, context), entries(after, cpu, context));
        if before == after {
            let missing = (note.argument & 0xffff_ffff).checked_sub(after);
            assert_ne!(missing, None, "more than the kernel's, {context} on cpu {cpu}");
            let before_start = *uncounted.entry((number, cpu)).or_insert(missing);
            assert_eq!(missing, before_start, "{context} on cpu {cpu}");
            assert!(!counted_from_start || missing == Some(0), "{context} on cpu {cpu}");
            *compared.entry(number).or_default() += 1;
        }
    }
    compared
}

/// A loop with a number of further instructions takes exactly as many more.
fn loops_count_exactly(booted: &Booted) {
    let loops: Vec<u64> = booted
        .notes
        .iter()
        .filter(|(_, note)| note.number == marker::USER_FIRST + 100)
        .map(|(snapshot, _)| {
            let user_instructions =
                |snapshot: usize| user(&booted.snapshots[snapshot], INSTRUCTIONS);
            user_instructions(snapshot + 1) - user_instructions(*snapshot)
        })
        .collect();
    assert_eq!(loops.len(), 2);
    assert_eq!(loops[1] - loops[0], 2 * 2_000_000);
}

/// The machine of these tests, or `None` if QEMU or its kernel is missing.
fn find() -> Option<Machine> {
    Machine::find("tests/guests/boot.rs", &[])
}

#[test]
fn the_same_guest_gives_the_same_record_and_its_counts_are_the_kernels_own() {
    let Some(machine) = find() else { return };
    let options = format!("check=on,spans=on,symbols={}", machine.symbols().display());
    for cpus in [1, 2] {
        let bytes = record(&machine, cpus, "first", &options);
        let again = record(&machine, cpus, "second", &options);
        assert!(bytes == again, "records of {cpus} CPUs differ");
        let stream = reader::read(bytes.as_slice()).unwrap();
        assert!(stream.end.by_marker && stream.header.cpus == cpus);
        let booted = booted(&stream);
        sums_close(&booted);
        let compared = counts_agree(&booted, true);
        println!("{cpus} CPUs: counts compared, by kind: {compared:?}");
        assert!(compared[&1] >= 5 && compared[&3] >= 5, "{compared:?}");
        loops_count_exactly(&booted);
        // Starting another CPU makes QEMU's clock jump, once; from then on, the counts agree.
        let ahead = |check: &Check| check.counted.wrapping_sub(check.icount);
        assert!(booted.checks.len() >= 2);
        assert!(booted.checks.windows(2).all(|pair| ahead(&pair[0]) == ahead(&pair[1])));
    }
}

#[test]
fn a_level_that_is_switched_at_a_marker_counts_the_same_from_there_on() {
    let Some(machine) = find() else { return };
    let symbols = machine.symbols().display().to_string();
    let loops = |name: &str, options: &str| {
        let options = format!("symbols={symbols},{options}");
        let bytes = record(&machine, 1, name, &options);
        let stream = reader::read(bytes.as_slice()).unwrap();
        let booted = booted(&stream);
        sums_close(&booted);
        loops_count_exactly(&booted);
        (bytes, stream.end.instructions.unwrap())
    };
    // The guest of this test requests the full level after its boot.
    let (bytes, switched) = loops("switched", "start=fast");
    assert!(bytes == loops("switched-again", "start=fast").0, "records differ");
    let (whole_bytes, whole) = loops("whole", "");
    assert!(switched > 0 && switched < whole / 2, "{switched} of {whole}");
    // 1,000 `pause`, before the level is switched: 250 ns more each at `fast` than their nanosecond.
    let [fast, full] = [&bytes, &whole_bytes].map(|bytes| pauses_ns(bytes));
    assert_eq!(fast, full + 1_000 * 250);
    assert!((1_000..10_000).contains(&full), "{full} ns");
}

/// Guest time of the 1,000 pauses.
fn pauses_ns(bytes: &[u8]) -> u64 {
    let stream = reader::read(bytes).unwrap();
    let notes = booted(&stream).notes;
    notes.iter().find(|(_, note)| note.number == marker::USER_FIRST + 101).unwrap().1.argument
}

/// A model with this latency of memory.
fn model(machine: &Machine, memory_cycles: u32) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let text = fs::read_to_string(root.join("machines/r4400-1994.toml")).unwrap();
    let slower = text.replace("memory_cycles = 100", &format!("memory_cycles = {memory_cycles}"));
    let path = machine.path(&format!("model-{memory_cycles}"));
    fs::write(&path, slower).unwrap();
    path.display().to_string()
}

#[test]
fn with_a_model_guest_time_follows_its_cycles() {
    let Some(machine) = find() else { return };
    let symbols = machine.symbols().display().to_string();
    let mut ticks = Vec::new();
    for memory_cycles in [100, 300] {
        let model = model(&machine, memory_cycles);
        let options = format!("start=fast,detail=timed,model={model},symbols={symbols}");
        let bytes = record_from_saved(&machine, 1, &format!("{memory_cycles}"), &options);
        if memory_cycles == 100 {
            let exits = format!("{options},exits=all");
            assert!(
                bytes == record_from_saved(&machine, 1, "exits", &exits),
                "exits change the record"
            );
        }
        let stream = reader::read(bytes.as_slice()).unwrap();
        let booted = booted(&stream);
        sums_close(&booted);
        assert!(counts_agree(&booted, false)[&1] >= 5);
        loops_count_exactly(&booted);
        let edges = [&booted.snapshots[0], booted.snapshots.last().unwrap()];
        let timer = KernelContext::Interrupt(0xec);
        let [before, after] = edges.map(|edge| (entries(edge, 0, timer), edge[0].used));
        assert!(after.1[CYCLES] > after.1[INSTRUCTIONS] && after.1[TIME] > after.1[CYCLES]);
        ticks.push((after.0 - before.0, after.1[TIME] - before.1[TIME]));
    }
    println!("ticks, cycles at 200 MHz: {ticks:?}");
    // The tick's period is 4 ms, 800,000 cycles; one may be missing at each end.
    for (ticks, cycles) in ticks {
        assert!(ticks.abs_diff(cycles / 800_000) <= 1, "{ticks} ticks in {cycles} cycles");
    }
}

#[test]
fn with_a_model_two_cpus_run_at_once_and_repeat() {
    let Some(machine) = find() else { return };
    let symbols = machine.symbols().display().to_string();
    let model = model(&machine, 100);
    let options = format!("start=fast,detail=timed,model={model},symbols={symbols}");
    let bytes = record_from_saved(&machine, 2, "timed", &options);
    assert!(bytes == record_from_saved(&machine, 2, "timed-again", &options), "records differ");
    sums_close(&booted(&reader::read(bytes.as_slice()).unwrap()));
}

/// How a test runs the guest: [`record`] or [`record_from_saved`].
type Run = fn(&Machine, u32, &str, &str) -> Vec<u8>;

/// The record is the same whether QEMU leaves its loop after each slice, or only where it has something to do.
fn exits_do_not_matter(run: Run, cpus: u32, name: &str, options: &str) {
    let Some(machine) = find() else { return };
    let options = format!("{options},symbols={}", machine.symbols().display());
    let needed = run(&machine, cpus, name, &options);
    let all = run(&machine, cpus, &format!("{name}-exits"), &format!("{options},exits=all"));
    assert!(needed == all, "exits change the record of {cpus} CPUs, {name}");
    sums_close(&booted(&reader::read(needed.as_slice()).unwrap()));
}

/// Like [`exits_do_not_matter`], at a level of detail with the model of this name.
fn exits_do_not_matter_with_a_model(run: Run, cpus: u32, level: &str, model: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let model = root.join(format!("machines/{model}.toml"));
    let options = format!("start=fast,detail={level},model={}", model.display());
    exits_do_not_matter(run, cpus, level, &options);
}

/// vCPUs that are started, and interrupt each other from the last block of a slice.
#[test]
fn exits_do_not_matter_while_two_cpus_are_booted() {
    exits_do_not_matter(record, 2, "count", "transitions=on");
}

#[test]
fn exits_do_not_matter_while_eight_cpus_are_booted() {
    let model = "r4400-1994";
    exits_do_not_matter_with_a_model(record, 8, "timed", model);
}

#[test]
fn exits_do_not_matter_with_several_cpus_at_count() {
    for cpus in [2, 8] {
        exits_do_not_matter(record_from_saved, cpus, "count", "spans=on");
    }
}

#[test]
fn exits_do_not_matter_with_several_cpus_at_timed() {
    for cpus in [2, 8] {
        exits_do_not_matter_with_a_model(record_from_saved, cpus, "timed", "r4400-1994");
    }
}

#[test]
fn exits_do_not_matter_with_several_cpus_at_ooo() {
    for cpus in [2, 8] {
        exits_do_not_matter_with_a_model(record_from_saved, cpus, "ooo", "r10000-1996");
    }
}

/// A machine is saved where one vCPU waits for a request, and the others are halted.
#[test]
fn a_vcpu_that_was_saved_halted_has_the_time_of_the_others() {
    /// Cycles of a slice, as the plugin has it where no option says otherwise, and of the block that ends it.
    const SLICE: u64 = 2 * 1_000;
    let Some(machine) = find() else { return };
    let symbols = machine.symbols().display().to_string();
    let model = model(&machine, 100);
    for start in ["full", "fast"] {
        let options = format!("start={start},detail=timed,model={model},symbols={symbols}");
        let bytes = record_from_saved(&machine, 2, &format!("counted-from-{start}"), &options);
        let booted = booted(&reader::read(bytes.as_slice()).unwrap());
        sums_close(&booted);
        let [first, second] = [0, 1].map(|cpu| booted.snapshots.last().unwrap()[cpu].used[TIME]);
        println!("start={start}: {first} and {second} cycles");
        assert!(first.abs_diff(second) <= SLICE, "start={start}: {first} and {second} cycles");
    }
}
