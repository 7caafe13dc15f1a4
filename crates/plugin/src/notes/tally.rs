//! What came of the annotations: hits by CPU, and values with how often each was recorded.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use super::list::{Deed, Note, Notes, Place, VALUES_MAX};
use crate::cpu;
use crate::writer::Writer;
use simrecord::record::{AnnotationRow, CPUS_MAX, Record, Value, Values, ValuesKind};

/// The most different values that are told apart, for each list of them.
const DIFFERENT_MAX: usize = 256;
/// The most hits of all annotations that are recorded one by one.
const LOGGED_MAX: u64 = 100_000;

/// Values that were recorded together.
pub(crate) type Together = [Value; VALUES_MAX];

/// Hits of one note since the record began, by vCPU.
pub(crate) struct Hits(UnsafeCell<[u64; CPUS_MAX]>);

// SAFETY: used by the vCPUs' thread alone, and at exit, when it has stopped.
unsafe impl Sync for Hits {}

impl Hits {
    fn get(&self) -> [u64; CPUS_MAX] {
        // SAFETY: one thread runs all vCPUs, and no use is nested in another.
        unsafe { *self.0.get() }
    }

    fn add(&self, vcpu: u32) {
        // SAFETY: as above.
        unsafe { (*self.0.get())[vcpu as usize % CPUS_MAX] += 1 };
    }

    /// What [`on_hit`] is to be called with.
    pub(super) fn as_data(&'static self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }
}

/// An instruction is about to execute whose annotations only count.
pub(super) extern "C" fn on_hit(_: std::ffi::c_uint, hits: *mut c_void) {
    // SAFETY: made by `as_data`, of what lives as long as the process.
    unsafe { &*hits.cast_const().cast::<Hits>() }.add(cpu::running());
}

/// One list of values of a note.
#[derive(Default)]
struct Recorded {
    counts: BTreeMap<Together, u64>,
    others: u64,
}

/// One note, with what came of it in the region of interest.
struct Noted {
    hits: &'static Hits,
    /// Its hits where the region was opened.
    hits_before: [u64; CPUS_MAX],
    /// Spans that could not be opened or closed.
    refused: u64,
    /// Its deeds' values; of other deeds they stay empty.
    recorded: Vec<Recorded>,
}

/// All notes, with what came of them.
pub(crate) struct Tally {
    pub(crate) list: Arc<[Note]>,
    pub(crate) log: bool,
    pub(crate) memory_bytes: u64,
    /// Address and number of a note, ascending.
    by_address: Vec<(u64, u32)>,
    noted: Vec<Noted>,
    logged: u64,
}

impl Tally {
    pub(crate) fn new(notes: Notes) -> Tally {
        let noted = |note: &Note| Noted {
            hits: Box::leak(Box::new(Hits(UnsafeCell::new([0; CPUS_MAX])))),
            hits_before: [0; CPUS_MAX],
            refused: 0,
            recorded: note.deeds.iter().map(|_| Recorded::default()).collect(),
        };
        let address = |(note, number): (&Note, u32)| match note.place {
            Place::Address(address) => Some((address, number)),
            _ => None,
        };
        let mut by_address: Vec<_> = notes.list.iter().zip(0..).filter_map(address).collect();
        by_address.sort_unstable();
        Tally {
            noted: notes.list.iter().map(noted).collect(),
            list: notes.list.into(),
            log: notes.log,
            memory_bytes: notes.memory_bytes,
            by_address,
            logged: 0,
        }
    }

    /// Notes at an address, by number.
    pub(crate) fn at(&self, address: u64) -> impl Iterator<Item = u32> + '_ {
        let first = self.by_address.partition_point(|entry| entry.0 < address);
        let here = self.by_address[first..].iter().take_while(move |entry| entry.0 == address);
        here.map(|entry| entry.1)
    }

    pub(crate) fn hits(&self, number: u32) -> Option<&'static Hits> {
        self.noted.get(number as usize).map(|noted| noted.hits)
    }

    pub(crate) fn count(&self, number: u32, vcpu: u32) {
        if let Some(hits) = self.hits(number) {
            hits.add(vcpu);
        }
    }

    /// A span of a note could not be opened or closed.
    pub(crate) fn refuse(&mut self, number: u32) {
        if let Some(noted) = self.noted.get_mut(number as usize) {
            noted.refused += 1;
        }
    }

    /// Values of a note's deed were recorded.
    pub(crate) fn add(&mut self, number: u32, deed: usize, values: Together) {
        let noted = self.noted.get_mut(number as usize);
        let Some(recorded) = noted.and_then(|noted| noted.recorded.get_mut(deed)) else { return };
        let has_room = recorded.counts.len() < DIFFERENT_MAX;
        match recorded.counts.get_mut(&values) {
            Some(count) => *count += 1,
            None if has_room => drop(recorded.counts.insert(values, 1)),
            None => recorded.others += 1,
        }
    }

    /// Whether one hit more is to be recorded by itself.
    pub(crate) fn takes_log(&mut self) -> bool {
        let takes = self.log && self.logged < LOGGED_MAX;
        self.logged += u64::from(takes);
        takes
    }

    /// The region of interest begins.
    pub(crate) fn open_region(&mut self) {
        for noted in &mut self.noted {
            noted.hits_before = noted.hits.get();
            noted.refused = 0;
            noted.recorded.iter_mut().for_each(|recorded| *recorded = Recorded::default());
        }
    }

    /// Writes what came of the notes in the region.
    pub(crate) fn write_region(&self, writer: &mut Writer, region: u32, cpus: u32) {
        for (noted, note) in self.noted.iter().zip(0..) {
            let hits = noted.hits.get();
            for (cpu, at) in (0..cpus).zip(0..) {
                let hits = hits[at] - noted.hits_before[at];
                let refused = if cpu == 0 { noted.refused } else { 0 };
                writer.write(&Record::Annotation(AnnotationRow {
                    cpu,
                    region,
                    annotation: note,
                    hits,
                    refused,
                }));
            }
            for (recorded, deed) in noted.recorded.iter().zip(0..) {
                let deeds = self.list.get(note as usize).map(|note| &note.deeds);
                let size = deeds.map_or(0, |deeds| size(&deeds[deed as usize]));
                let head = |kind, number| Values {
                    cpu: 0,
                    region,
                    annotation: note,
                    action: deed,
                    kind,
                    number,
                };
                for (values, count) in &recorded.counts {
                    write_values(writer, head(ValuesKind::Count, *count), &values[..size]);
                }
                if recorded.others > 0 {
                    write_values(writer, head(ValuesKind::Others, recorded.others), &[]);
                }
            }
        }
    }
}

/// How many values a deed records.
pub(super) fn size(deed: &Deed) -> usize {
    if let Deed::Record(programs) = deed { programs.len().min(VALUES_MAX) } else { 0 }
}

/// Writes values with what they are.
pub(super) fn write_values(writer: &mut Writer, head: Values, values: &[Value]) {
    writer.write(&Record::Values(head));
    for value in values {
        writer.write(&Record::Value(*value));
    }
}
