//! Runs a guest at the level `ooo`: known loops take the cycles of the core's contracts, sums
//! close, and the same guest gives the same record.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::Machine;
use crate::sums::contexts_add_up;
use attribution::KernelContext;
use simrecord::counters::{
    BRANCH_MISSES, BRANCHES, CACHE_TO_CACHE, COUNTERS, CYCLES, Counts, INSTRUCTIONS, L3_MISSES,
    PIPELINE_STALL_CYCLES, STLB_MISSES, TIME, UPGRADES, is_of_memory, name,
};
use simrecord::marker;
use simrecord::parsed::{self, CpuRegion};
use simrecord::reader::{self, Stream};
use simrecord::record::{Group, MissCurvePoint, MissKind, Record};

/// The size of a loop, and the counts of all CPUs between the snapshots around it: in user mode, and in the kernel
/// without its idle task.
#[derive(Debug)]
pub(super) struct Used {
    pub(super) size: u64,
    pub(super) counts: Counts,
    pub(super) kernel: Counts,
}

impl Used {
    fn each(&self, counter: usize) -> f64 {
        self.counts[counter] as f64 / self.size as f64
    }
}

pub(super) fn model(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    root.join(format!("machines/{name}.toml"))
}

fn record(machine: &Machine, cpus: u32, model: &Path, name: &str) -> Vec<u8> {
    record_with(machine, cpus, &format!("detail=ooo,spans=on,model={}", model.display()), name)
}

fn record_with(machine: &Machine, cpus: u32, options: &str, name: &str) -> Vec<u8> {
    record_of("measure", machine, cpus, options, name)
}

/// `request`: the guest's phase, and words for it.
pub(super) fn record_of(
    request: &str,
    machine: &Machine,
    cpus: u32,
    options: &str,
    name: &str,
) -> Vec<u8> {
    let out = machine.path(&format!("record-{cpus}-{name}"));
    let symbols = machine.path("symbol-list");
    let (path, symbols) = (out.display(), symbols.display());
    let options = format!("out={path},roi=always,start=fast,symbols={symbols},{options}");
    machine.continue_saved(cpus, request, &options);
    fs::read(out).unwrap()
}

fn sums(snapshot: &[CpuRegion], are: impl Fn(KernelContext) -> bool) -> Counts {
    let mut sums = [0; COUNTERS];
    for row in snapshot.iter().flat_map(|region| &region.contexts) {
        if are(row.context) {
            (0..COUNTERS).for_each(|counter| sums[counter] += row.self_counts[counter]);
        }
    }
    sums
}

pub(super) fn is_user(context: KernelContext) -> bool {
    matches!(context, KernelContext::User(_))
}

pub(super) fn is_kernel(context: KernelContext) -> bool {
    !is_user(context) && context != KernelContext::Idle
}

/// The counts of each loop, by its number from 1, after a check that all sums close.
pub(super) fn loops(stream: &Stream) -> Vec<Used> {
    let cpus = stream.header.cpus as usize;
    let regions = parsed::parse(stream).unwrap().regions;
    regions.iter().for_each(contexts_add_up);
    let snapshots: Vec<&[CpuRegion]> = regions.chunks(cpus).collect();
    let (mut snapshot, mut loops) = (0, Vec::new());
    for record in &stream.records {
        match record {
            Record::Marker(note) if note.number > marker::USER_FIRST => {
                let counts_of = |is_wanted: fn(KernelContext) -> bool| {
                    let before = sums(snapshots[snapshot], is_wanted);
                    let after = sums(snapshots[snapshot + 1], is_wanted);
                    std::array::from_fn(|counter| after[counter] - before[counter])
                };
                let (counts, kernel) = (counts_of(is_user), counts_of(is_kernel));
                loops.push(Used { size: note.argument, counts, kernel });
            }
            Record::Marker(marker) if marker.number == marker::SNAPSHOT => snapshot += 1,
            Record::Notice(..) => panic!("{record:?}"),
            _ => {}
        }
    }
    loops
}

pub(super) fn near(what: &str, measured: f64, expected: f64, ratio: f64) {
    let fits = (measured / expected - 1.0).abs() <= ratio;
    assert!(fits, "{what}: {measured}, expected {expected} within {ratio}");
}

/// A machine with the kernel's symbols, or `None` if QEMU or its kernel is missing.
pub(super) fn find() -> Option<Machine> {
    let machine = Machine::find("tests/guests/ooo.rs", &[])?;
    machine.symbols();
    Some(machine)
}

fn counted(stream: &Stream, counter: usize) -> bool {
    stream.header.counters >> counter & 1 == 1
}

/// The cycles of loops on an out-of-order core; docs/cores.md has the rules.
#[test]
fn a_guest_takes_what_the_contracts_of_zen3_say() {
    let Some(machine) = find() else { return };
    let bytes = record(&machine, 1, &model("zen3"), "zen3");
    assert!(bytes == record(&machine, 1, &model("zen3"), "zen3-again"), "records differ");
    let stream = reader::read(bytes.as_slice()).unwrap();
    let loops = loops(&stream);
    for used in &loops {
        let named =
            (0..COUNTERS).filter_map(|counter| Some((name(counter)?, used.counts[counter])));
        println!("{}: {:?}", used.size, named.collect::<Vec<_>>());
        let stalls = ["fetch_stall_cycles", "data_stall_cycles"];
        let stalls: u64 = (0..COUNTERS)
            .filter(|counter| name(*counter).is_some_and(|name| stalls.contains(&name)))
            .map(|counter| used.counts[counter])
            .sum();
        assert!(stalls + used.counts[PIPELINE_STALL_CYCLES] <= used.counts[CYCLES] + 64);
        assert!(used.counts[TIME] >= used.counts[CYCLES]);
    }
    let [dependent, independent, l1, l2, predicted, random, ..] = &loops[..] else {
        panic!("{} loops", loops.len())
    };
    // One addition per cycle in a chain; four without a chain, on four units.
    near("dependent", dependent.each(CYCLES), 64.0, 0.02);
    near("independent", independent.each(CYCLES), 66.0 / 4.0, 0.1);
    assert_eq!(dependent.counts[INSTRUCTIONS] / dependent.size, 66);
    near("chase in L1", l1.each(CYCLES), 4.0, 0.05);
    near("chase in L2", l2.each(CYCLES), 12.0, 0.1);
    // Half of the random branches are mispredicted. Each costs the penalty of 13 cycles, the time
    // until the branch is executed, and the instructions that could have issued in that time.
    assert!(predicted.counts[BRANCH_MISSES] < predicted.size / 50, "{predicted:?}");
    near("missed", random.each(BRANCH_MISSES), 0.5, 0.2);
    let lost = random.counts[CYCLES] as f64 - predicted.counts[CYCLES] as f64;
    let of_each = lost / random.counts[BRANCH_MISSES] as f64;
    assert!((12.0..22.0).contains(&of_each), "{of_each} cycles");
    assert!(random.counts[BRANCHES] >= 2 * random.size);
    for (counter, there) in [(L3_MISSES, true), (STLB_MISSES, true), (UPGRADES, false)] {
        assert_eq!(counted(&stream, counter), there);
    }
}

#[test]
fn several_cpus_share_one_memory_and_repeat() {
    let Some(machine) = find() else { return };
    let bytes = record(&machine, 2, &model("zen3"), "two");
    assert!(bytes == record(&machine, 2, &model("zen3"), "two-again"), "records differ");
    let stream = reader::read(bytes.as_slice()).unwrap();
    let loops = loops(&stream);
    near("dependent", loops[0].each(CYCLES), 64.0, 0.02);
    // Two threads write the same line: it moves back and forth.
    let together = &loops[6].counts;
    assert!(counted(&stream, CACHE_TO_CACHE) && counted(&stream, UPGRADES));
    assert!(together[CACHE_TO_CACHE] > 20, "{together:?}");
}

#[test]
fn a_core_in_order_and_one_of_four_threads_run_the_guest() {
    let Some(machine) = find() else { return };
    let bytes = record(&machine, 1, &model("cortex-a55"), "a55");
    let stream = reader::read(bytes.as_slice()).unwrap();
    let loops_of = loops(&stream);
    near("dependent", loops_of[0].each(CYCLES), 64.0, 0.03);
    // Two vCPUs.
    near("independent", loops_of[1].each(CYCLES), 66.0 / 2.0, 0.1);
    let bytes = record(&machine, 4, &model("t1"), "t1");
    assert!(bytes == record(&machine, 4, &model("t1"), "t1-again"), "records differ");
    let stream = reader::read(bytes.as_slice()).unwrap();
    let loops_of = loops(&stream);
    // One pipeline has the core almost alone: one instruction per cycle, and three cycles for a
    // taken branch.
    near("dependent on a pipeline", loops_of[0].each(CYCLES), 69.0, 0.1);
    assert!(!counted(&stream, UPGRADES));
    // Four pipelines with 66 instructions each: each has a fourth of the cycles, except where one
    // starts or ends.
    let at_once = loops_of[7].each(CYCLES);
    assert!((4.0 * 4.0 * 66.0 * 0.7..4.0 * 4.0 * 66.0 * 1.1).contains(&at_once), "{at_once}");
    next_to_a_sleeper(&loops_of);
}

/// The work of another pipeline is charged neither to one that sleeps nor to one that runs.
fn next_to_a_sleeper(loops_of: &[Used]) {
    let [.., shared] = loops_of else { panic!("no loops") };
    near("next to a sleeper", shared.each(CYCLES), 69.0, 0.1);
    let (cycles, instructions) = (shared.kernel[CYCLES], shared.kernel[INSTRUCTIONS]);
    assert!(instructions > 10_000 && cycles < 20 * instructions, "{cycles} for {instructions}");
}

/// The time of a thread that spins with `pause` advances with that of the other threads of its core. When it
/// lagged, the kernel's part took up to 300 cycles an instruction, in six of fourteen such starts.
#[test]
fn one_of_four_threads_that_waits_in_a_loop_keeps_up() {
    let Some(machine) = find() else { return };
    let options = format!("detail=ooo,spans=on,model={}", model("t1").display());
    for delay in [2, 6, 9] {
        let request = format!("measure delay={delay}");
        let bytes = record_of(&request, &machine, 4, &options, "delayed");
        next_to_a_sleeper(&loops(&reader::read(bytes.as_slice()).unwrap()));
    }
}

/// Time passes on a vCPU that waits in a loop of `pause` as on the one that it waits for, whatever the core.
#[test]
fn time_passes_on_a_vcpu_that_spins() {
    let Some(machine) = find() else { return };
    let machines = [("zen3", "ooo", 2, 1), ("r4400-smp8", "ooo", 4, 2), ("t1", "ooo", 4, 3)];
    let timed = ("r4400-1994", "timed", 4, 3);
    for (name, level, cpus, spinners) in machines.into_iter().chain([timed]) {
        let options = format!("detail={level},model={}", model(name).display());
        let request = format!("measure spinners={spinners}");
        let bytes =
            record_of(&request, &machine, cpus, &options, &format!("spin-{name}-{spinners}"));
        let regions = parsed::parse(&reader::read(bytes.as_slice()).unwrap()).unwrap().regions;
        let count = cpus as usize;
        let times: Vec<u64> = (0..count)
            .map(|cpu| regions[count + cpu].used[TIME] - regions[cpu].used[TIME])
            .collect();
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        println!("{name}, {level}: {times:?}");
        assert!(*least > 100_000 && most - least < 10_000, "{name}, {level}: {times:?}");
    }
}

/// Shadow caches have the misses of a run with the model, if time advances by instructions in that run, too.
#[test]
fn caches_beside_miss_what_those_of_a_run_of_their_own_miss() {
    let Some(machine) = find() else { return };
    let path = model("r4400-1994").display().to_string();
    let alone = format!("detail=timed,time=uniform,model={path}");
    let alone = record_with(&machine, 1, &alone, "alone");
    let shadow = format!("detail=count,curves=on,also={path},also={}", model("zen3").display());
    let bytes = record_with(&machine, 1, &shadow, "shadow");
    let [alone, shadow] = [&alone, &bytes].map(|bytes| {
        let stream = reader::read(bytes.as_slice()).unwrap();
        loops(&stream);
        parsed::parse(&stream).unwrap()
    });
    let last = alone.regions.last().unwrap();
    let region = last.region.region;
    let counts_of = |model: u32| {
        let rows = shadow.shadow_caches.iter().rev().take(2 * Group::ALL.len());
        let rows = rows.filter(|row| row.caches.model == model && row.caches.region == region);
        let mut sums = [0; COUNTERS];
        for row in rows {
            (0..COUNTERS).for_each(|counter| sums[counter] += row.counts[counter]);
        }
        sums
    };
    let (first, second) = (counts_of(0), counts_of(1));
    for counter in (0..COUNTERS).filter(|counter| is_of_memory(*counter) && *counter < BRANCHES) {
        assert_eq!(first[counter], last.used[counter], "{:?}", name(counter));
        println!("{:?}: {} and {}", name(counter), first[counter], second[counter]);
    }
    // All caches have the same accesses; a larger one misses less.
    let points: Vec<&MissCurvePoint> = shadow.miss_curves.iter().rev().take(6 * 21).collect();
    for pair in points.windows(2).filter(|pair| pair[0].size_bytes == 2 * pair[1].size_bytes) {
        assert!(pair[0].misses <= pair[1].misses && pair[0].accesses == pair[1].accesses);
    }
    assert!(points.iter().any(|point| point.misses > 1_000), "{points:?}");
}

/// Each miss has one class and one location in the code, and a data miss one location in the data;
/// classification changes nothing.
#[test]
fn misses_are_told_apart_to_the_last_one() {
    let Some(machine) = find() else { return };
    let options = format!("detail=ooo,model={}", model("zen3").display());
    let [plain, classified] = ["off", "on"].map(|misses| {
        let options = format!("{options},misses={misses}");
        let bytes = record_with(&machine, 2, &options, &format!("misses-{misses}"));
        parsed::parse(&reader::read(bytes.as_slice()).unwrap()).unwrap()
    });
    assert_eq!(plain.regions, classified.regions, "the guest was disturbed");
    assert!(plain.misses.is_empty());
    let region = classified.regions.last().unwrap().region.region;
    let of_cpus = classified.regions.iter().rev().take(2);
    let mut used = [0; COUNTERS];
    for cpu in of_cpus {
        (0..COUNTERS).for_each(|counter| used[counter] += cpu.used[counter]);
    }
    let counted = |names: &[&str]| -> u64 {
        let number_of =
            |wanted: &&str| (0..COUNTERS).find(|id| name(*id) == Some(*wanted)).unwrap();
        names.iter().map(|name| used[number_of(name)]).sum()
    };
    let caches: [&[&str]; 4] = [
        &["l1i_misses"],
        &["l1d_load_misses", "l1d_store_misses"],
        &["l2_fetch_misses", "l2_data_misses"],
        &["l3_misses"],
    ];
    // Rows count from the start of the region. The rows of the last snapshot replace all earlier rows.
    let last: BTreeMap<_, _> = classified
        .misses
        .iter()
        .map(|row| ((row.region, row.cache, row.kind, row.key), row.count))
        .collect();
    for (cache, counters) in (0..).zip(caches) {
        let sum = |sort: MissKind| -> u64 {
            let is_wanted =
                |key: &(u32, u32, MissKind, u64)| (key.0, key.1, key.2) == (region, cache, sort);
            last.iter().filter(|(key, _)| is_wanted(key)).map(|(_, count)| count).sum()
        };
        let all = counted(counters);
        assert!(all > 100, "{counters:?}: {all}");
        assert_eq!((sum(MissKind::Class), sum(MissKind::Code)), (all, all), "{counters:?}");
        println!("{counters:?}: {all}, {} by evictors", sum(MissKind::Evictor));
    }
}
