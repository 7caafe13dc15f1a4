//! Boots a guest with a PMU, and compares its counters with known instructions and with the record.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::machine::{AMD, INTEL, Machine, Processor};
use crate::monitor::{self, Monitor};
use crate::package;
use simrecord::counters::{self, COUNTERS};
use simrecord::marker;
use simrecord::reader::{self, Stream};
use simrecord::record::{CountersOf, FEATURE_PMU, Notice, Record};

const GUEST: &str = "tests/guests/pmu.rs";
const MODEL: &str = "r4400-1994.toml";
/// Without the kernel's watchdog, which uses a counter on each CPU, and without random addresses.
const LINE: &str = "nmi_watchdog=0 norandmaps";

fn run(machine: &Machine, cpus: u32, phase: &str, name: &str, more: &str) -> Vec<u8> {
    let out = machine.path(name);
    let options = format!("out={},pmu={},start=fast{more}", out.display(), machine.processor.pmu);
    machine.boot(cpus, phase, Some(&options));
    fs::read(out).unwrap()
}

/// Like [`run`], from a saved machine instead of a boot.
fn run_saved(machine: &Machine, cpus: u32, phase: &str, name: &str, more: &str) -> Vec<u8> {
    let out = machine.path(name);
    let options = format!("out={},pmu={}{more}", out.display(), machine.processor.pmu);
    machine.continue_saved(cpus, phase, &options);
    fs::read(out).unwrap()
}

/// A marker, with the counts of its CPU.
#[derive(Clone, Copy)]
struct MarkerCounts {
    argument: u64,
    counts: [u64; COUNTERS],
}

fn notes(stream: &Stream) -> BTreeMap<u32, Vec<MarkerCounts>> {
    let mut notes: BTreeMap<u32, Vec<MarkerCounts>> = BTreeMap::new();
    let mut last = None;
    for record in &stream.records {
        match record {
            Record::Marker(marker) => {
                last = marker.number.checked_sub(marker::USER_FIRST);
                if let Some(number) = last {
                    let note = MarkerCounts { argument: marker.argument, counts: [0; COUNTERS] };
                    notes.entry(number).or_default().push(note);
                }
            }
            Record::Counters(amounts) if amounts.of == CountersOf::Marker => {
                if let Some(note) = last.and_then(|number| notes.get_mut(&number)?.last_mut()) {
                    for (count, value) in
                        note.counts[amounts.first as usize..].iter_mut().zip(amounts.values)
                    {
                        *count = value;
                    }
                }
            }
            _ => {}
        }
    }
    notes
}

/// Checks pairs of a count and its expected value.
fn as_expected(notes: &[MarkerCounts], what: &str) {
    assert!(notes.len() >= 2 && notes.len().is_multiple_of(2), "{what}");
    for pair in notes.chunks(2) {
        assert_eq!(pair[0].argument, pair[1].argument, "{what}");
    }
}

/// Checks that the counts of `rdpmc` between two markers equal the record's counts. Counts that the level does not have
/// must be 0.
fn as_recorded(notes: &BTreeMap<u32, Vec<MarkerCounts>>, detail: &str) {
    let [from, to, counted, number] = [2, 3, 4, 14].map(|number| &notes[&number]);
    assert!([to, counted, number].iter().all(|notes| notes.len() == from.len()));
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, number) in number.iter().enumerate() {
        let name = match number.argument {
            0xc0 => "instructions",
            0x129 | 0x81d0 => "loads",
            0x229 | 0x82d0 => "stores",
            0xf_0000_0002 | 0xe124 => "l1d_load_misses",
            0xf_0000_0003 | 0x03fe => "l1d_store_misses",
            0xf_0000_0005 | 0x05fe => "l2_data_misses",
            0x187 | 0x0bfe => "data_stall_cycles",
            0xc2 | 0xc4 => "branches",
            other => panic!("{other:#x}"),
        };
        let position = (0..COUNTERS).find(|id| counters::name(*id) == Some(name)).unwrap();
        let recorded = to[at].counts[position] - from[at].counts[position];
        *sums.entry(name).or_default() += recorded;
        assert_eq!(counted[at].argument, recorded, "{name} in {detail}");
    }
    println!("{detail}: {sums:?}");
    for (name, sum) in sums {
        assert_eq!(sum > 0, detail == "timed" || name == "instructions", "{name} in {detail}");
    }
}

#[test]
fn counters_of_the_guest_count_each_instruction() {
    let machines = [(1, "count"), (2, "count"), (1, "timed"), (2, "timed")];
    each_instruction_is_counted(AMD, &machines);
}

/// Linux refuses a processor of Intel without the leaf of `cpuid` that describes its PMU.
#[test]
fn counters_of_intels_pmu_count_each_instruction() {
    each_instruction_is_counted(INTEL, &[(1, "count"), (2, "timed")]);
}

fn each_instruction_is_counted(processor: Processor, machines: &[(u32, &str)]) {
    let Some(mut machine) = Machine::find(GUEST, &[]) else { return };
    (machine.line, machine.processor) = (LINE, processor);
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(MODEL);
    for &(cpus, detail) in machines {
        let mut options = format!(",check=on,detail={detail}");
        if detail == "timed" {
            options += &format!(",model={}", model.display());
        }
        let bytes = run_saved(&machine, cpus, "counters", "record", &options);
        if (cpus, detail) == (1, "count") {
            assert!(bytes == run_saved(&machine, cpus, "counters", "again", &options), "{detail}");
        }
        let stream = reader::read(bytes.as_slice()).unwrap();
        assert!(stream.end.by_marker && stream.header.features & FEATURE_PMU != 0);
        let notes = notes(&stream);
        all_is_counted(&notes, detail);
        println!("{cpus} CPUs, {detail}: {} task switches", notes[&6][0].argument);
        clocks_agree(&stream);
    }
}

fn all_is_counted(notes: &BTreeMap<u32, Vec<MarkerCounts>>, detail: &str) {
    as_expected(&notes[&1], "rdpmc in user mode");
    as_expected(&notes[&5], "two tasks on a CPU");
    as_expected(&notes[&7], "from CPU to CPU");
    as_expected(&notes[&9], "signal of a task that may not read");
    as_expected(&notes[&10], "all but the kernel's");
    as_expected(&notes[&11], "flags after a rdpmc");
    as_expected(&notes[&15], "samples of a task");
    as_recorded(notes, detail);
    for number in [12, 13] {
        for pair in notes[&number].chunks(2) {
            let (cycles, instructions) = (pair[0].argument, pair[1].argument);
            assert!(cycles >= instructions, "{cycles} cycles of {instructions} instructions");
            // Without a model, one cycle per instruction.
            assert!(detail == "timed" || cycles == instructions);
        }
    }
    assert!(notes[&6][0].argument > 500);
}

/// The plugin's answers do not shift QEMU's clock.
fn clocks_agree(stream: &Stream) {
    let ahead = stream.records.iter().filter_map(|record| match record {
        Record::Check(check) => Some(check.counted.wrapping_sub(check.icount)),
        _ => None,
    });
    let ahead: Vec<u64> = ahead.collect();
    assert!(ahead.len() >= 5 && ahead.windows(2).all(|pair| pair[0] == pair[1]), "{ahead:?}");
}

#[test]
fn the_distributions_perf_counts_and_samples_in_the_guest() {
    let files = match package::perf() {
        Ok(files) => files,
        Err(missing) => return needs::not_run(needs::Need::Perf, missing),
    };
    let Some(mut machine) = Machine::find(GUEST, &files) else { return };
    machine.line = LINE;
    for cpus in [1, 2] {
        let (record, output) = run_perf(&machine, cpus);
        println!("{output}");
        exact_counts(&output);
        exact_samples(&output);
        uncounted_is_named(&output, &reader::read(record.as_slice()).unwrap());
        // A second run gives the same bytes, although counters interrupt the guest.
        assert!(cpus == 2 || (record, output) == run_perf(&machine, cpus));
    }
}

#[test]
fn a_counter_goes_on_in_a_restored_machine() {
    goes_on_in_a_restored_machine(AMD);
}

#[test]
fn a_counter_of_intels_pmu_goes_on_in_a_restored_machine() {
    goes_on_in_a_restored_machine(INTEL);
}

fn goes_on_in_a_restored_machine(processor: Processor) {
    let Some(mut machine) = Machine::find(GUEST, &[]) else { return };
    (machine.line, machine.processor) = (LINE, processor);
    let path = |name| machine.path(name).display().to_string();
    let (state, pmu) = (path("state"), path("pmu"));
    let vendor = processor.pmu;
    let options = format!("out={},pmu={vendor},start=fast,pmu_save={pmu}", path("first"));
    let mut first =
        Monitor::start(machine.command(1, "checkpoint", Some(&options)), machine.path("errors"));
    monitor::wait(|| {
        fs::read_to_string(path("checkpoint")).is_ok_and(|output| output.contains("counting"))
    });
    // The task still writes its line. It counts for seconds once it is back in user mode.
    std::thread::sleep(std::time::Duration::from_millis(200));
    first.save(&format!("file:{state}"));
    machine.finish(first.quit());
    let selects = fs::read_to_string(&pmu).unwrap();
    let selects = selects.lines().skip(1).map(|line| line.split(' ').nth(2).unwrap());
    let on = selects.filter(|select| u64::from_str_radix(select, 16).unwrap() & 1 << 22 != 0);
    assert_eq!(on.count(), 1, "the checkpoint is not of a machine that counts");

    let record = path("record");
    let options = format!("out={record},pmu={vendor},pmu_state={pmu}");
    let mut command = machine.command(1, "checkpoint", Some(&options));
    command.args(["-incoming", &format!("file:{state}")]);
    let mut second = Monitor::start(command, machine.path("errors"));
    second.go_on();
    machine.finish(second.let_go());
    let stream = reader::read(fs::read(record).unwrap().as_slice()).unwrap();
    let notes = notes(&stream);
    as_expected(&notes[&8], "counted before and after");
}

fn run_perf(machine: &Machine, cpus: u32) -> (Vec<u8>, String) {
    let record = run(machine, cpus, "perf", "record", "");
    (record, fs::read_to_string(machine.path("perf")).unwrap().replace('\r', ""))
}

/// The lines that the guest has sent under a title.
fn section<'a>(output: &'a str, title: &str) -> impl Iterator<Item = &'a str> {
    let title = format!("== {title}");
    let lines = output.lines().skip_while(move |line| *line != title).skip(1);
    lines.take_while(|line| !line.starts_with("== "))
}

/// The count of an event by `perf stat -x,`.
fn counted(output: &str, title: &str, event: &str) -> u64 {
    let fields = section(output, title).map(|line| line.split(',').collect::<Vec<_>>());
    let mut counts = fields.filter(|fields| fields.get(2) == Some(&event));
    counts.next().unwrap_or_else(|| panic!("no {event} in:\n{output}"))[0].parse().unwrap()
}

/// A loop with a number of further instructions takes exactly as many more.
fn exact_counts(output: &str) {
    for event in ["instructions:u", "cycles:u"] {
        let count = |iterations: &str| counted(output, &format!("stat {iterations}"), event);
        assert_eq!(count("4000000") - count("1000000"), 2 * 3_000_000, "{event}");
    }
}

/// One sample per 100,000 instructions, all of them in the loop.
fn exact_samples(output: &str) {
    let mut samples: Vec<&str> = section(output, "script").collect();
    assert_eq!(samples.len(), 2 * 10_000_000 / 100_000);
    samples.dedup();
    assert_eq!(samples.len(), 1, "{samples:?}");
    let everywhere = section(output, "record -a").find_map(|line| {
        line.split_once("/tmp/all (")?.1.strip_suffix(" samples) ]")?.parse::<u64>().ok()
    });
    assert!(everywhere.is_some_and(|samples| samples >= 2 * 1_000_000 / 50_000), "{output}");
}

/// The record names events that read zero because they are not counted.
fn uncounted_is_named(output: &str, stream: &Stream) {
    let named: Vec<u64> = stream
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Notice(Notice::EventNotCounted, _, event) => Some(*event),
            _ => None,
        })
        .collect();
    let [instructions, cycles] =
        ["instructions", "cycles"].map(|event| counted(output, "stat", event));
    assert!(instructions > 2_000_000 && cycles > 2_000_000);
    for (event, number) in [
        ("stalled-cycles-frontend", 0x287),
        ("stalled-cycles-backend", 0x187),
        ("branches", 0xc2),
        ("branch-misses", 0xc3),
    ] {
        let count = counted(output, "stat", event);
        assert_eq!(count == 0, named.contains(&number), "{event}: {count}, {named:x?}");
    }
    assert!(named.contains(&0xc3), "{named:x?}");
}
