//! A guest is booted, twice, and its record compared with itself and with what the guest's kernel
//! has counted. Where there is no QEMU or no kernel, says so and passes.

#[path = "boot/machine.rs"]
mod machine;

use std::collections::BTreeMap;
use std::fs;

use attribution::KernelContext;
use machine::Machine;
use plugin::marker;
use plugin::reader::{self, Stream};
use plugin::record::{Check, ContextRow, Marker, Record, Region};

/// A region up to a snapshot, on all CPUs.
#[derive(Default)]
struct Snapshot {
    regions: Vec<Region>,
    rows: Vec<ContextRow>,
}

impl Snapshot {
    fn row(&self, cpu: u32, context: KernelContext) -> Option<ContextRow> {
        let is_it = |row: &&ContextRow| row.cpu == cpu && row.code == context.code();
        self.rows.iter().find(is_it).copied()
    }

    fn entries(&self, cpu: u32, context: KernelContext) -> u64 {
        self.row(cpu, context).map_or(0, |row| row.entries)
    }

    fn user(&self) -> u64 {
        let is_user = |code| matches!(KernelContext::from_code(code), Some(KernelContext::User(_)));
        self.rows.iter().filter(|row| is_user(row.code)).map(|row| row.own).sum()
    }
}

/// What the record says, in order: snapshots, and notes behind the snapshot they follow.
#[derive(Default)]
struct Story {
    snapshots: Vec<Snapshot>,
    notes: Vec<(usize, Marker)>,
    checks: Vec<Check>,
}

fn story(stream: &Stream) -> Story {
    let mut story = Story::default();
    for record in &stream.records {
        match record {
            Record::Marker(marker) if marker.number >= marker::NOTE_FIRST => {
                story.notes.push((story.snapshots.len(), *marker));
            }
            Record::Marker(_) => story.snapshots.push(Snapshot::default()),
            Record::Region(region) => story.snapshots.last_mut().unwrap().regions.push(*region),
            Record::Context(row) => story.snapshots.last_mut().unwrap().rows.push(*row),
            Record::Check(check) => story.checks.push(*check),
            other => assert!(matches!(other, Record::Task(_)), "{other:?}"),
        }
    }
    story
}

fn record(machine: &Machine, cpus: u32, run: u32, symbols: &str) -> Vec<u8> {
    let out = machine.path(&format!("record-{cpus}-{run}"));
    let options = format!("out={},roi=always,check=on,symbols={symbols}", out.display());
    machine.boot(cpus, "measure", Some(&options));
    fs::read(out).unwrap()
}

/// Every instruction belongs to one context, and nothing was lost.
fn sums_close(story: &Story) {
    for snapshot in &story.snapshots {
        for region in &snapshot.regions {
            let rows = snapshot.rows.iter().filter(|row| row.cpu == region.cpu);
            let sum: u64 = rows.map(|row| row.own).sum();
            assert_eq!(sum, region.instructions, "cpu {}", region.cpu);
            assert_eq!((region.broken, region.overflows, region.abandoned), (0, 0, 0));
        }
    }
}

/// Interrupts and softirqs equal the guest's own counts wherever none came between the snapshots
/// around the reading. Returns how many counts were compared, by what they count.
fn counts_agree(story: &Story) -> BTreeMap<u32, usize> {
    let mut compared = BTreeMap::new();
    for (position, note) in &story.notes {
        let (number, cpu) = (note.number - marker::NOTE_FIRST, (note.argument >> 32) as u32);
        let context = match number {
            1 => KernelContext::Interrupt(0xec),
            2..12 => KernelContext::Softirq((number - 2) as u8),
            _ => continue,
        };
        let around = [position - 1, *position];
        let [Some(before), Some(after)] = around.map(|at| story.snapshots.get(at)) else {
            continue;
        };
        let (before, after) = (before.entries(cpu, context), after.entries(cpu, context));
        if before == after {
            assert_eq!(note.argument & 0xffff_ffff, after, "{context} on cpu {cpu}");
            *compared.entry(number).or_default() += 1;
        }
    }
    compared
}

/// A loop of so many instructions more takes so many instructions more.
fn loops_count_exactly(story: &Story) {
    let loops: Vec<u64> = story
        .notes
        .iter()
        .filter(|(_, note)| note.number == marker::NOTE_FIRST + 100)
        .map(|(at, _)| story.snapshots[at + 1].user() - story.snapshots[*at].user())
        .collect();
    assert_eq!(loops.len(), 2);
    assert_eq!(loops[1] - loops[0], 2 * 2_000_000);
}

#[test]
fn the_same_guest_gives_the_same_record_and_its_counts_are_the_kernels_own() {
    let machine = match Machine::find() {
        Ok(machine) => machine,
        Err(missing) => {
            eprintln!("not tested: {missing}");
            return;
        }
    };
    let symbols = machine.symbols().display().to_string();
    for cpus in [1, 2] {
        let bytes = record(&machine, cpus, 1, &symbols);
        assert!(bytes == record(&machine, cpus, 2, &symbols), "records of {cpus} CPUs differ");
        let stream = reader::read(bytes.as_slice()).unwrap();
        assert!(stream.end.by_marker && stream.header.cpus == cpus);
        let story = story(&stream);
        sums_close(&story);
        let compared = counts_agree(&story);
        println!("{cpus} CPUs: counts compared, by kind: {compared:?}");
        assert!(compared[&1] >= 5 && compared[&3] >= 5, "{compared:?}");
        loops_count_exactly(&story);
        // Starting another CPU makes QEMU's clock jump, once; from then on, the counts agree.
        let ahead = |check: &Check| check.counted.wrapping_sub(check.icount);
        assert!(story.checks.len() >= 2);
        assert!(story.checks.windows(2).all(|pair| ahead(&pair[0]) == ahead(&pair[1])));
    }
}
