//! Results of the annotations: how often each CPU has hit them, and how often each list of values was recorded. The
//! session has one [`AnnotationCounters`], and writes the results where a region closes.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use crate::cpu;
use crate::writer::Writer;
use plugin_interface::annotations::{
    Action, Annotation, AnnotationList, MachineMemory, Place, VALUES_MAX,
};
use simrecord::record::{AnnotationRow, CPUS_MAX, Record, Value, Values, ValuesKind};

/// The most distinct lists of values of an action that are counted separately. Further lists are counted together.
const DISTINCT_VALUES_MAX: usize = 256;
/// The most hits of all annotations together that are recorded individually.
const LOGGED_HITS_MAX: u64 = 100_000;

/// The values that an action records at a hit. [`Value::Absent`] beyond the action's number of values.
pub(crate) type RecordedList = [Value; VALUES_MAX];

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
        // SAFETY: one thread runs all vCPUs, and no use is nested in another.
        unsafe { (*self.0.get())[vcpu as usize % CPUS_MAX] += 1 };
    }

    /// This value as the argument of [`on_hit`].
    pub(super) fn as_data(&'static self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }
}

/// Called before an instruction whose annotations only count.
pub(super) extern "C" fn on_hit(_: std::ffi::c_uint, hits: *mut c_void) {
    // SAFETY: the pointer comes from `as_data`, of a `Hits` that is never freed.
    unsafe { &*hits.cast_const().cast::<Hits>() }.add(cpu::running_vcpu());
}

/// The values that an action has recorded in the region of interest.
#[derive(Default)]
struct Recorded {
    /// How often each list of values was recorded.
    counts: BTreeMap<RecordedList, u64>,
    /// How often lists were recorded that had no room in `counts`.
    others: u64,
}

/// The results of an annotation in the region of interest.
struct HitState {
    hits: &'static Hits,
    /// The value of `hits` when the region was opened.
    hits_before: [u64; CPUS_MAX],
    /// The value of `hits` of each CPU that went offline in the region, which ended the region for the CPU.
    hits_at_offline: [Option<u64>; CPUS_MAX],
    /// Spans that could not be opened or closed.
    refused: u64,
    /// The recorded values of each action. Empty for an action that records none.
    recorded: Vec<Recorded>,
}

impl HitState {
    /// The hits of a CPU in the region, up to now or to the time when the CPU went offline.
    fn hits_in_region(&self, cpu: usize) -> u64 {
        let end = self.hits_at_offline[cpu].unwrap_or_else(|| self.hits.get()[cpu]);
        end - self.hits_before[cpu]
    }
}

/// All annotations, with their results.
pub(crate) struct AnnotationCounters {
    pub(crate) list: Arc<[Annotation]>,
    /// See [`AnnotationList::log`].
    pub(crate) log: bool,
    pub(crate) memory: MachineMemory,
    /// Addresses with the numbers of their annotations, ascending.
    by_address: Vec<(u64, u32)>,
    /// The results of each annotation, by its number.
    state: Vec<HitState>,
    /// How many hits were recorded individually.
    logged: u64,
}

impl AnnotationCounters {
    pub(crate) fn new(annotations: AnnotationList) -> AnnotationCounters {
        let state = |annotation: &Annotation| HitState {
            hits: Box::leak(Box::new(Hits(UnsafeCell::new([0; CPUS_MAX])))),
            hits_before: [0; CPUS_MAX],
            hits_at_offline: [None; CPUS_MAX],
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
            memory: annotations.memory,
            by_address,
            logged: 0,
        }
    }

    /// The numbers of the annotations at an address.
    pub(crate) fn numbers_at(&self, address: u64) -> impl Iterator<Item = u32> + '_ {
        let first = self.by_address.partition_point(|entry| entry.0 < address);
        let entries = self.by_address[first..].iter().take_while(move |entry| entry.0 == address);
        entries.map(|entry| entry.1)
    }

    pub(crate) fn hits(&self, number: u32) -> Option<&'static Hits> {
        self.state.get(number as usize).map(|state| state.hits)
    }

    /// Counts a hit of an annotation.
    pub(crate) fn count(&self, number: u32, vcpu: u32) {
        if let Some(hits) = self.hits(number) {
            hits.add(vcpu);
        }
    }

    /// Counts a span of an annotation that could not be opened or closed.
    pub(crate) fn refuse(&mut self, number: u32) {
        if let Some(state) = self.state.get_mut(number as usize) {
            state.refused += 1;
        }
    }

    /// The numbers of the annotations at an interrupt or exception. `vector`: `None` if it is not known.
    pub(crate) fn at_event(&self, is_exception: bool, vector: Option<u8>) -> Vec<u32> {
        self.numbers_where(|place| match place {
            Place::Interrupt(wanted_vector) => {
                !is_exception && (wanted_vector.is_none() || wanted_vector == vector)
            }
            Place::Exception(wanted_vector) => {
                is_exception && (wanted_vector.is_none() || wanted_vector == vector)
            }
            Place::Address(_) | Place::Marker(_) => false,
        })
    }

    /// The numbers of the annotations at a marker.
    pub(crate) fn at_marker(&self, marker: u32) -> Vec<u32> {
        self.numbers_where(|place| place == Place::Marker(marker))
    }

    /// The numbers of the annotations whose place is wanted.
    fn numbers_where(&self, is_wanted: impl Fn(Place) -> bool) -> Vec<u32> {
        let numbered = self.list.iter().zip(0..);
        numbered
            .filter(|(annotation, _)| is_wanted(annotation.place))
            .map(|(_, number)| number)
            .collect()
    }

    /// Counts the values that an action has recorded. Also writes them, after the record `head`, if hits are recorded
    /// individually.
    pub(super) fn record(
        &mut self,
        (annotation, action): (u32, usize),
        values: RecordedList,
        head: impl FnOnce() -> Values,
        writer: &mut Writer,
    ) {
        self.add(annotation, action, values);
        if self.takes_log_entry() {
            let value_count = value_count(&self.list[annotation as usize].actions[action]);
            write_values(writer, head(), &values[..value_count]);
        }
    }

    /// Counts the values that an action of annotation `number` has recorded.
    fn add(&mut self, number: u32, action: usize, values: RecordedList) {
        let state = self.state.get_mut(number as usize);
        let Some(recorded) = state.and_then(|state| state.recorded.get_mut(action)) else { return };
        let has_room = recorded.counts.len() < DISTINCT_VALUES_MAX;
        match recorded.counts.get_mut(&values) {
            Some(count) => *count += 1,
            None if has_room => drop(recorded.counts.insert(values, 1)),
            None => recorded.others += 1,
        }
    }

    /// Returns whether the current list of values is recorded individually, and counts it if so. A hit has a list for each
    /// action that records.
    fn takes_log_entry(&mut self) -> bool {
        let is_logged = self.log && self.logged < LOGGED_HITS_MAX;
        self.logged += u64::from(is_logged);
        is_logged
    }

    /// Sets all results to zero, because a region opens.
    pub(crate) fn open_region(&mut self) {
        for state in &mut self.state {
            state.hits_before = state.hits.get();
            state.hits_at_offline = [None; CPUS_MAX];
            state.refused = 0;
            state.recorded.iter_mut().for_each(|recorded| *recorded = Recorded::default());
        }
    }

    /// Ends the region for a CPU that goes offline. Later hits of the CPU do not count.
    pub(crate) fn go_offline(&mut self, cpu: u32) {
        for state in &mut self.state {
            let hits = state.hits.get()[cpu as usize];
            state.hits_at_offline[cpu as usize].get_or_insert(hits);
        }
    }

    /// Writes the results of the annotations in the region.
    pub(crate) fn write_region(&self, writer: &mut Writer, region: u32, cpus: u32) {
        for (state, annotation) in self.state.iter().zip(0..) {
            for cpu in 0..cpus {
                let hits = state.hits_in_region(cpu as usize);
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
                let value_count =
                    actions.map_or(0, |actions| value_count(&actions[action as usize]));
                let head =
                    |kind, number| Values { cpu: 0, region, annotation, action, kind, number };
                for (values, count) in &recorded.counts {
                    write_values(writer, head(ValuesKind::Count, *count), &values[..value_count]);
                }
                if recorded.others > 0 {
                    write_values(writer, head(ValuesKind::Others, recorded.others), &[]);
                }
            }
        }
    }
}

/// How many values an action records.
fn value_count(action: &Action) -> usize {
    if let Action::Record(programs) = action { programs.len().min(VALUES_MAX) } else { 0 }
}

/// Writes the record `head`, and then the values.
fn write_values(writer: &mut Writer, head: Values, values: &[Value]) {
    writer.write(&Record::Values(head));
    for value in values {
        writer.write(&Record::Value(*value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_of_a_cpu_end_when_it_goes_offline() {
        let list = vec![Annotation { place: Place::Address(0x1000), actions: Vec::new() }];
        let mut counters =
            AnnotationCounters::new(AnnotationList { list, ..AnnotationList::default() });
        let in_region =
            |counters: &AnnotationCounters| [0, 1].map(|cpu| counters.state[0].hits_in_region(cpu));
        counters.count(0, 1);
        counters.open_region();
        counters.count(0, 1);
        counters.go_offline(1);
        // The CPU comes back, and goes offline again.
        counters.count(0, 1);
        counters.go_offline(1);
        counters.count(0, 0);
        assert_eq!(in_region(&counters), [1, 1]);
        counters.open_region();
        counters.count(0, 1);
        assert_eq!(in_region(&counters), [0, 1]);
    }
}
