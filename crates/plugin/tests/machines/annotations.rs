//! Annotations of a guest: they change nothing, and agree with the counts of contexts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::machine::Machine;
use attribution::KernelContext;
use simrecord::counters::{COUNTERS, INSTRUCTIONS};
use simrecord::marker;
use simrecord::parsed::{self, CpuRegion, ParsedRecord};
use simrecord::reader::{self, Stream};
use simrecord::record::{Record, Value, ValuesKind};

/// Some are at addresses that the plugin watches itself; two are at the same address.
const COUNTED: &str = "\
memory 536870912 0
annotation address {entry_SYSCALL_64}
record reg:rax bits:0+32
annotation address {entry_SYSCALL_64}
annotation address {__switch_to_asm}
record reg:rsi ; reg:rdi load:8
annotation interrupt
annotation interrupt 236
annotation exception 14
record reg:cr2
annotation marker 16
";

const SPANS: &str = "\
memory 536870912 0
annotation address {softirqs}
span 7
annotation address {entry_SYSCALL_64}
open 8
annotation address {__switch_to_asm}
close 8
";

struct Bench {
    machine: Machine,
    symbols: String,
    list: String,
}

fn bench() -> Option<Bench> {
    let machine = Machine::find("tests/guests/boot.rs", &[])?;
    let path = machine.symbols();
    let list = fs::read_to_string(&path).unwrap();
    Some(Bench { machine, symbols: path.display().to_string(), list })
}

impl Bench {
    /// The record of the guest, from where it asks for everything, with these annotations.
    fn record(&self, cpus: u32, name: &str, annotations: Option<&str>) -> Stream {
        let out = self.machine.path(name);
        let out_and_symbols = format!("out={},symbols={}", out.display(), self.symbols);
        let mut options = format!("roi=always,start=fast,{out_and_symbols}");
        if let Some(annotations) = annotations {
            let path = self.machine.path(&format!("{name}.annotations"));
            fs::write(&path, self.placed(annotations)).unwrap();
            options += &format!(",annotate={}", path.display());
        }
        self.machine.continue_saved(cpus, "measure", &options);
        read(&out)
    }

    /// The list with addresses in place of names.
    fn placed(&self, annotations: &str) -> String {
        let address = |names: &[&str]| {
            let mut lines = self.list.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(_, name)| names.contains(name)).unwrap().0.to_owned()
        };
        let softirqs = ["handle_softirqs", "__do_softirq"];
        annotations
            .replace("{entry_SYSCALL_64}", &address(&["entry_SYSCALL_64"]))
            .replace("{__switch_to_asm}", &address(&["__switch_to_asm"]))
            .replace("{softirqs}", &address(&softirqs))
    }
}

fn read(path: &Path) -> Stream {
    reader::read(fs::File::open(path).map(std::io::BufReader::new).unwrap()).unwrap()
}

fn is_of_annotations(record: &Record) -> bool {
    matches!(record, Record::Annotation(_) | Record::Values(_) | Record::Value(_))
}

/// The rows of the last snapshot or the end.
fn last(parsed: &ParsedRecord, cpus: u32) -> &[CpuRegion] {
    &parsed.regions[parsed.regions.len() - cpus as usize..]
}

fn entries(regions: &[CpuRegion], wanted: impl Fn(KernelContext) -> bool) -> u64 {
    let rows = regions.iter().flat_map(|region| &region.contexts);
    rows.filter(|row| wanted(row.context)).map(|row| row.row.entries).sum()
}

/// Hits of an annotation up to the end, on all CPUs.
fn hits(parsed: &ParsedRecord, annotation: u32, cpus: u32) -> u64 {
    let rows: Vec<u64> = parsed
        .annotations
        .iter()
        .filter(|row| row.annotation == annotation)
        .map(|row| row.hits)
        .collect();
    rows[rows.len() - cpus as usize..].iter().sum()
}

/// The values of an annotation's first action at the end, with how often each was recorded.
fn values(parsed: &ParsedRecord, annotation: u32) -> (BTreeMap<Vec<Value>, u64>, u64) {
    let mut counted = BTreeMap::new();
    let mut others = 0;
    for row in parsed.values.iter().filter(|row| row.values.annotation == annotation) {
        match row.values.kind {
            // Recorded again at each snapshot, and never less.
            ValuesKind::Count => drop(counted.insert(row.recorded.clone(), row.values.number)),
            ValuesKind::Others => others = row.values.number,
            ValuesKind::Hit => panic!("{row:?}"),
        }
    }
    (counted, others)
}

#[test]
fn annotations_change_nothing_and_count_what_contexts_count() {
    let Some(bench) = bench() else { return };
    for cpus in [1, 2] {
        let plain = bench.record(cpus, "plain", None);
        let annotated = bench.record(cpus, "annotated", Some(COUNTED));
        let without_annotations: Vec<&Record> =
            annotated.records.iter().filter(|record| !is_of_annotations(record)).collect();
        assert!(
            plain.records.iter().eq(without_annotations),
            "{cpus} CPUs: the rest of the record differs"
        );
        assert_eq!(plain.end.instructions, annotated.end.instructions);
        let parsed = parsed::parse(&annotated).unwrap();
        let regions = last(&parsed, cpus);
        let hits = |annotation| hits(&parsed, annotation, cpus);
        let is_syscall = |context| matches!(context, KernelContext::Syscall(_));
        let syscalls = entries(regions, is_syscall);
        assert!(syscalls > 100);
        assert_eq!((hits(0), hits(1)), (syscalls, syscalls));
        let (numbers, others) = values(&parsed, 0);
        assert_eq!(others, 0);
        for (values, count) in &numbers {
            let [Value::Number(number)] = values[..] else { panic!("{values:?}") };
            let context = KernelContext::Syscall(number as u32);
            assert_eq!(*count, entries(regions, |entered| entered == context), "{context}");
        }
        let (switches, others) = values(&parsed, 2);
        assert_eq!(switches.values().sum::<u64>() + others, hits(2));
        assert!(switches.keys().all(|pair| !pair.contains(&Value::Absent) && pair.len() == 2));
        let is_interrupt =
            |context| matches!(context, KernelContext::Interrupt(_) | KernelContext::Nmi);
        assert!(hits(3) >= entries(regions, is_interrupt), "firmware has some, too");
        assert_eq!(hits(4), entries(regions, |entered| entered == KernelContext::Interrupt(0xec)));
        assert_eq!(hits(5), entries(regions, |entered| entered == KernelContext::Exception(14)));
        let (faults, others) = values(&parsed, 5);
        assert_eq!(faults.values().sum::<u64>() + others, hits(5));
        let annotations = plain.records.iter().filter(
            |record| matches!(record, Record::Marker(one) if one.number == marker::USER_FIRST),
        );
        assert_eq!(hits(6), annotations.count() as u64);
    }
}

#[test]
fn spans_are_contexts_and_the_guest_does_not_notice() {
    let Some(bench) = bench() else { return };
    let (plain, spans) = (bench.record(1, "plain", None), bench.record(1, "spans", Some(SPANS)));
    assert_eq!(plain.end.instructions, spans.end.instructions);
    let [plain, parsed] = [&plain, &spans].map(|stream| parsed::parse(stream).unwrap());
    assert_eq!(plain.markers, parsed.markers);
    let (before, regions) = (last(&plain, 1), last(&parsed, 1));
    assert_eq!(before[0].used, regions[0].used);
    assert_eq!(regions[0].region.broken, 0);
    for row in &before[0].contexts {
        let with_spans =
            regions[0].contexts.iter().find(|counts| counts.context == row.context).unwrap();
        let counts_of = |counts: &parsed::ContextCounts| {
            (counts.row.entries, counts.row.completed, counts.inclusive)
        };
        assert_eq!(counts_of(row), counts_of(with_spans), "{}", row.context);
    }
    let span = |number| {
        let context = KernelContext::Function(number);
        regions[0].contexts.iter().find(|row| row.context == context).unwrap()
    };
    // The last one may still be open.
    let softirqs = span(7).row;
    assert!(softirqs.completed > 5 && softirqs.entries - softirqs.completed <= 1, "{softirqs:?}");
    assert_eq!(softirqs.entries, hits(&parsed, 0, 1));
    let closed = span(8).row;
    assert!(closed.completed > 5 && closed.completed <= hits(&parsed, 2, 1), "{closed:?}");
}

#[test]
fn an_annotation_ends_the_record_where_it_is() {
    let Some(bench) = bench() else { return };
    let stop = "memory 536870912 0\nannotation marker 116\nstop\n";
    let (first, again) =
        (bench.record(1, "stopped", Some(stop)), bench.record(1, "again", Some(stop)));
    assert_eq!(first, again);
    assert!(first.end.by_annotation && !first.end.by_marker);
    let parsed = parsed::parse(&first).unwrap();
    let last = parsed.markers.last().unwrap();
    assert_eq!(last.marker.number, 116);
    assert_eq!(last.counts[INSTRUCTIONS], first.end.instructions.unwrap());
}

/// The instructions of user mode up to each snapshot, and to the end.
fn user_instructions(parsed: &ParsedRecord) -> Vec<u64> {
    let is_user = |row: &&parsed::ContextCounts| matches!(row.context, KernelContext::User(_));
    let user = |region: &CpuRegion| {
        region.contexts.iter().filter(is_user).map(|row| row.self_counts[INSTRUCTIONS]).sum()
    };
    parsed.regions.iter().map(user).collect()
}

#[test]
fn an_annotation_switches_the_level() {
    let Some(bench) = bench() else { return };
    let annotations = "memory 536870912 0\nannotation marker 16\ndetail fast\nannotation marker 116\ndetail full\n";
    let parsed = parsed::parse(&bench.record(1, "part", Some(annotations))).unwrap();
    let region = &last(&parsed, 1)[0];
    let mut sum = [0; COUNTERS];
    for row in &region.contexts {
        sum.iter_mut().zip(row.self_counts).for_each(|(sum, own)| *sum += own);
    }
    assert_eq!(sum, region.used);
    let user = user_instructions(&parsed);
    // Nothing is counted between the first snapshots.
    let [first, second, ..] = user[..] else { panic!("{user:?}") };
    assert_eq!(first, second);
    // The second loop, with the few instructions around it. At the level `fast`, guest time is the host's: on a busy host,
    // the tick that reveals the task comes in the second loop. Instructions before the tick count for no task.
    let [.., before, after, _] = user[..] else { panic!("{user:?}") };
    assert!((1..6_001_000).contains(&(after - before)), "{user:?}");
    let all: Vec<u64> = parsed.regions.iter().map(|region| region.used[INSTRUCTIONS]).collect();
    let [.., before, after, _] = all[..] else { panic!("{all:?}") };
    // Less than two loops: handlers of ticks are a small part, and nothing is counted twice.
    assert!((6_000_000..12_000_000).contains(&(after - before)), "{all:?}");
}
