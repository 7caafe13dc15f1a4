//! Results of the annotations: hits by CPU, and how often each value was recorded.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use crate::cpu;
use crate::writer::Writer;
use plugin_interface::annotations::{Action, Annotation, AnnotationList, Place, VALUES_MAX};
use simrecord::record::{AnnotationRow, CPUS_MAX, Record, Value, Values, ValuesKind};

/// Maximum number of distinct values of an action; others are counted together.
const DIFFERENT_MAX: usize = 256;
/// Maximum number of hits, of all annotations, that are recorded individually.
const LOGGED_MAX: u64 = 100_000;

/// Values that were recorded together.
pub(crate) type Together = [Value; VALUES_MAX];

/// Hits of one annotation since the record started, by vCPU.
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

    /// The argument of [`on_hit`].
    pub(super) fn as_data(&'static self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }
}

/// Called before an instruction whose annotations only count.
pub(super) extern "C" fn on_hit(_: std::ffi::c_uint, hits: *mut c_void) {
    // SAFETY: the pointer comes from `as_data`, of a `Hits` that is never freed.
    unsafe { &*hits.cast_const().cast::<Hits>() }.add(cpu::running());
}

/// One list of values of an annotation.
#[derive(Default)]
struct Recorded {
    counts: BTreeMap<Together, u64>,
    others: u64,
}

/// One annotation, with its results in the region of interest.
struct HitState {
    hits: &'static Hits,
    /// The hits when the region was opened.
    hits_before: [u64; CPUS_MAX],
    /// Spans that could not be opened or closed.
    refused: u64,
    /// The recorded values of each action. Empty for an action that records none.
    recorded: Vec<Recorded>,
}

/// All annotations, with their results.
pub(crate) struct AnnotationCounters {
    pub(crate) list: Arc<[Annotation]>,
    pub(crate) log: bool,
    pub(crate) memory_bytes: u64,
    /// Address and number of an annotation, ascending.
    by_address: Vec<(u64, u32)>,
    state: Vec<HitState>,
    logged: u64,
}

impl AnnotationCounters {
    pub(crate) fn new(annotations: AnnotationList) -> AnnotationCounters {
        let state = |annotation: &Annotation| HitState {
            hits: Box::leak(Box::new(Hits(UnsafeCell::new([0; CPUS_MAX])))),
            hits_before: [0; CPUS_MAX],
            refused: 0,
            recorded: annotation.actions.iter().map(|_| Recorded::default()).collect(),
        };
        let address = |(annotation, number): (&Annotation, u32)| match annotation.place {
            Place::Address(address) => Some((address, number)),
            _ => None,
        };
        let mut by_address: Vec<_> = annotations.list.iter().zip(0..).filter_map(address).collect();
        by_address.sort_unstable();
        AnnotationCounters {
            state: annotations.list.iter().map(state).collect(),
            list: annotations.list.into(),
            log: annotations.log,
            memory_bytes: annotations.memory_bytes,
            by_address,
            logged: 0,
        }
    }

    /// The numbers of the annotations at an address.
    pub(crate) fn numbers_at(&self, address: u64) -> impl Iterator<Item = u32> + '_ {
        let first = self.by_address.partition_point(|entry| entry.0 < address);
        let here = self.by_address[first..].iter().take_while(move |entry| entry.0 == address);
        here.map(|entry| entry.1)
    }

    pub(crate) fn hits(&self, number: u32) -> Option<&'static Hits> {
        self.state.get(number as usize).map(|state| state.hits)
    }

    pub(crate) fn count(&self, number: u32, vcpu: u32) {
        if let Some(hits) = self.hits(number) {
            hits.add(vcpu);
        }
    }

    /// A span of an annotation could not be opened or closed.
    pub(crate) fn refuse(&mut self, number: u32) {
        if let Some(state) = self.state.get_mut(number as usize) {
            state.refused += 1;
        }
    }

    /// Annotations at an interrupt or exception. `vector`: its number, where it is known.
    pub(crate) fn at_event(&self, exception: bool, vector: Option<u8>) -> Vec<u32> {
        self.numbers_where(|position| match position {
            Place::Interrupt(wanted) => !exception && (wanted.is_none() || wanted == vector),
            Place::Exception(wanted) => exception && (wanted.is_none() || wanted == vector),
            Place::Address(_) | Place::Marker(_) => false,
        })
    }

    pub(crate) fn at_marker(&self, marker: u32) -> Vec<u32> {
        self.numbers_where(|position| position == Place::Marker(marker))
    }

    /// The numbers of the annotations whose place fulfils a condition.
    fn numbers_where(&self, is_wanted: impl Fn(Place) -> bool) -> Vec<u32> {
        let numbered = self.list.iter().zip(0..);
        numbered
            .filter(|(annotation, _)| is_wanted(annotation.place))
            .map(|(_, number)| number)
            .collect()
    }

    /// An action records values; `head` says when and where, if the hit is recorded individually.
    pub(super) fn record(
        &mut self,
        (annotation, action): (u32, usize),
        values: Together,
        head: impl FnOnce() -> Values,
        writer: &mut Writer,
    ) {
        self.add(annotation, action, values);
        if self.takes_log() {
            let size = size(&self.list[annotation as usize].actions[action]);
            write_values(writer, head(), &values[..size]);
        }
    }

    /// Values of an annotation's action were recorded.
    fn add(&mut self, number: u32, action: usize, values: Together) {
        let state = self.state.get_mut(number as usize);
        let Some(recorded) = state.and_then(|state| state.recorded.get_mut(action)) else { return };
        let has_room = recorded.counts.len() < DIFFERENT_MAX;
        match recorded.counts.get_mut(&values) {
            Some(count) => *count += 1,
            None if has_room => drop(recorded.counts.insert(values, 1)),
            None => recorded.others += 1,
        }
    }

    /// Returns whether one more hit is to be recorded individually.
    fn takes_log(&mut self) -> bool {
        let takes = self.log && self.logged < LOGGED_MAX;
        self.logged += u64::from(takes);
        takes
    }

    /// The region of interest is opened: results start at zero.
    pub(crate) fn open_region(&mut self) {
        for state in &mut self.state {
            state.hits_before = state.hits.get();
            state.refused = 0;
            state.recorded.iter_mut().for_each(|recorded| *recorded = Recorded::default());
        }
    }

    /// Writes the results of the annotations in the region.
    pub(crate) fn write_region(&self, writer: &mut Writer, region: u32, cpus: u32) {
        for (state, annotation) in self.state.iter().zip(0..) {
            let hits = state.hits.get();
            for (cpu, at) in (0..cpus).zip(0..) {
                let hits = hits[at] - state.hits_before[at];
                let refused = if cpu == 0 { state.refused } else { 0 };
                writer.write(&Record::Annotation(AnnotationRow {
                    cpu,
                    region,
                    annotation,
                    hits,
                    refused,
                }));
            }
            for (recorded, action) in state.recorded.iter().zip(0..) {
                let actions =
                    self.list.get(annotation as usize).map(|annotation| &annotation.actions);
                let size = actions.map_or(0, |actions| size(&actions[action as usize]));
                let head =
                    |kind, number| Values { cpu: 0, region, annotation, action, kind, number };
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

/// How many values an action records.
fn size(action: &Action) -> usize {
    if let Action::Record(programs) = action { programs.len().min(VALUES_MAX) } else { 0 }
}

/// Writes the record of values, and the values.
fn write_values(writer: &mut Writer, head: Values, values: &[Value]) {
    writer.write(&Record::Values(head));
    for value in values {
        writer.write(&Record::Value(*value));
    }
}
