//! A parsed record: the records of a stream by kind, each joined with the counters that follow it. `sim` makes its
//! tables from it.
//!
//! Counters, contexts and values belong to the last record before them. So the order of the stream matters, and
//! [`parse`] refuses a record that cannot follow the preceding records.

use std::collections::BTreeMap;

use attribution::KernelContext;

use crate::counters::{COUNTERS, Counts};
use crate::reader::Stream;
use crate::record::{
    AnnotationRow, Completion, ContextRow, Counters, CountersOf, Delay, ExecutedBlock, GroupPath,
    Hotplug, KernelCount, LockCounts, Marker, MissCount, MissCurvePoint, NAME_PART_BYTES,
    ProfileSlot, QueuedRun, Record, Region, SampledPart, Sent, ServiceBucket, ServiceMisses,
    ServiceRow, ServiceTotals, ServiceWait, ShadowCaches, SharedMisses, Span, StructureKind,
    StructureName, SyscallFunction, TaskGroup, Transition, UserFunction, Value, Values, Withheld,
};

/// A context of a region, with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextCounts {
    pub context: KernelContext,
    /// Number of entries and of completed spans.
    pub row: ContextRow,
    /// Counters of the context itself.
    pub self_counts: Counts,
    /// Counters of the context's completed spans, including nested contexts.
    pub inclusive: Counts,
}

/// A region of interest on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuRegion {
    pub region: Region,
    /// Counters of the CPU in the region.
    pub used: Counts,
    /// Contexts of the region, in the order of the record.
    pub contexts: Vec<ContextCounts>,
}

/// A marker with its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerCounts {
    pub marker: Marker,
    /// Counters of the marker's CPU. Zeros if nothing is counted.
    pub counts: Counts,
}

/// Values that an annotation recorded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedValues {
    pub values: Values,
    pub recorded: Vec<Value>,
}

/// Shadow caches with their counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowCacheCounts {
    pub caches: ShadowCaches,
    pub counts: Counts,
}

/// A service with its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceCounts {
    pub row: ServiceRow,
    pub service: KernelContext,
    /// Counters of the service itself.
    pub self_counts: Counts,
    /// Counters of completed requests, including nested contexts.
    pub inclusive: Counts,
}

/// The services of all regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedServices {
    pub rows: Vec<ServiceCounts>,
    /// Distributions of latency and of computation time.
    pub buckets: Vec<ServiceBucket>,
    /// Time that services were blocked, by cause.
    pub waits: Vec<ServiceWait>,
    /// The kernel function of each system call.
    pub functions: Vec<SyscallFunction>,
    /// Totals over all services, one row for each region.
    pub totals: Vec<ServiceTotals>,
    /// Call sites that take locks.
    pub locks: Vec<LockCounts>,
    /// Cycles in each mode over time.
    pub profile: Vec<ProfileSlot>,
    pub misses: Vec<ServiceMisses>,
    /// Misses of lines that other CPUs had written.
    pub shared: Vec<SharedMisses>,
    /// Kind and place of each structure, with its name and [`StructureName::shared_by`].
    pub structures: Vec<((StructureKind, u64), (String, u32))>,
}

/// The content of a stream, in the order of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedRecord {
    pub markers: Vec<MarkerCounts>,
    /// Regions, and their parts up to snapshots, each for one CPU. The CPUs of a region are adjacent.
    pub regions: Vec<CpuRegion>,
    pub spans: Vec<Span>,
    /// Self counters of the first spans. May be shorter than `spans`, or empty.
    pub span_counts: Vec<Counts>,
    pub delays: Vec<Delay>,
    /// Function calls and interrupts that CPUs have sent, in the order of the record.
    pub sent: Vec<Sent>,
    pub queued_runs: Vec<QueuedRun>,
    pub transitions: Vec<Transition>,
    /// The blocks that a CPU started, if they were requested.
    pub executed_blocks: Vec<ExecutedBlock>,
    /// Counters that the guest's kernel keeps.
    pub kernel_counts: Vec<KernelCount>,
    /// CPUs that went offline or came back.
    pub hotplug: Vec<Hotplug>,
    /// Withheld times of CPUs.
    pub withheld: Vec<Withheld>,
    /// How often each annotation was reached.
    pub annotations: Vec<AnnotationRow>,
    /// Values that annotations recorded.
    pub values: Vec<RecordedValues>,
    pub shadow_caches: Vec<ShadowCacheCounts>,
    pub miss_curves: Vec<MissCurvePoint>,
    pub misses: Vec<MissCount>,
    pub services: ParsedServices,
    /// Parts of sampled units, with their counters.
    pub sampled: Vec<(SampledPart, Counts)>,
    /// Process ids and names of tasks. If a task had several names, the last recorded name.
    pub tasks: Vec<(u32, String)>,
    /// Numbers and names of IRQ lines.
    pub irqs: Vec<(u32, String)>,
    /// Names of functions of user programs by number.
    pub user_functions: BTreeMap<u64, Vec<u8>>,
    /// The control groups of the tasks that CPUs run, in the order of the record.
    pub task_groups: Vec<TaskGroup>,
    /// Completions of block requests, in the order of the record.
    pub completions: Vec<Completion>,
    /// Paths of control groups by id.
    pub group_paths: BTreeMap<u64, Vec<u8>>,
}

/// The error is the position, from 1, of the first record that cannot follow the preceding records.
pub fn parse(stream: &Stream) -> Result<ParsedRecord, u64> {
    let mut parsed = ParsedRecord::default();
    for (position, record) in (1_u64..).zip(&stream.records) {
        parsed.add(record).ok_or(position)?;
    }
    Ok(parsed)
}

impl ParsedRecord {
    /// Adds a record. `None` if it cannot follow the preceding records.
    fn add(&mut self, record: &Record) -> Option<()> {
        match record {
            Record::Marker(marker) => {
                self.markers.push(MarkerCounts { marker: *marker, counts: [0; COUNTERS] });
            }
            Record::Region(region) => {
                let (region, used) = (*region, [0; COUNTERS]);
                self.regions.push(CpuRegion { region, used, contexts: Vec::new() });
            }
            Record::Context(row) => {
                let context = KernelContext::from_code(row.code)?;
                let region = self.regions.last_mut()?;
                if (region.region.cpu, region.region.region) != (row.cpu, row.region) {
                    return None;
                }
                let (self_counts, inclusive) = ([0; COUNTERS], [0; COUNTERS]);
                region.contexts.push(ContextCounts { context, row: *row, self_counts, inclusive });
            }
            Record::Counters(counters) => self.add_counters(counters)?,
            Record::Span(span) => self.spans.push(*span),
            Record::Delay(delay) => self.delays.push(*delay),
            Record::Sent(sent) => {
                KernelContext::from_code(sent.code)?;
                self.sent.push(*sent);
            }
            Record::QueuedRun(run) => {
                if run.sent as usize > self.sent.len() {
                    return None;
                }
                self.queued_runs.push(*run);
            }
            Record::Transition(transition) => self.transitions.push(*transition),
            Record::ExecutedBlock(block) => self.executed_blocks.push(*block),
            Record::KernelCount(count) => self.kernel_counts.push(*count),
            Record::Hotplug(hotplug) => self.hotplug.push(*hotplug),
            Record::Withheld(withheld) => self.withheld.push(*withheld),
            Record::Task(task) => set_name(&mut self.tasks, task.pid, &task.comm),
            Record::IrqName(name) => set_name(&mut self.irqs, name.irq, &name.name),
            Record::Annotation(row) => self.annotations.push(*row),
            Record::Values(values) => {
                self.values.push(RecordedValues { values: *values, recorded: Vec::new() });
            }
            Record::Value(value) => self.values.last_mut()?.recorded.push(*value),
            Record::ShadowCaches(caches) => {
                let counts = [0; COUNTERS];
                self.shadow_caches.push(ShadowCacheCounts { caches: *caches, counts });
            }
            Record::MissCurvePoint(point) => self.miss_curves.push(*point),
            Record::Misses(misses) => self.misses.push(*misses),
            Record::Service(row) => {
                let service = KernelContext::from_code(row.code)?;
                let (self_counts, inclusive) = ([0; COUNTERS], [0; COUNTERS]);
                let counts = ServiceCounts { row: *row, service, self_counts, inclusive };
                self.services.rows.push(counts);
            }
            Record::ServiceBucket(bucket) => self.services.buckets.push(*bucket),
            Record::ServiceWait(wait) => self.services.waits.push(*wait),
            Record::SyscallFunction(function) => self.services.functions.push(*function),
            Record::ServiceTotals(totals) => self.services.totals.push(*totals),
            Record::LockPlace(place) => self.services.locks.push(*place),
            Record::ProfileSlot(slot) => self.services.profile.push(*slot),
            Record::SampledPart(part) => self.sampled.push((*part, [0; COUNTERS])),
            Record::ServiceMisses(misses) => {
                KernelContext::from_code(misses.code)?;
                self.services.misses.push(*misses);
            }
            Record::SharedMisses(misses) => {
                KernelContext::from_code(misses.code)?;
                self.services.shared.push(*misses);
            }
            Record::StructureName(name) => {
                let StructureName { kind, place, shared_by, name } = name;
                self.services.structures.push(((*kind, *place), (unpadded_text(name), *shared_by)));
            }
            Record::UserFunction(UserFunction { number, part, text }) => {
                add_name_part(&mut self.user_functions, *number, *part, text)?;
            }
            Record::Completion(completion) => {
                KernelContext::from_code(completion.code)?;
                self.completions.push(*completion);
            }
            Record::TaskGroup(group) => self.task_groups.push(*group),
            Record::GroupPath(GroupPath { group, part, text }) => {
                add_name_part(&mut self.group_paths, *group, *part, text)?;
            }
            Record::Notice(..) | Record::Check(_) => {}
            Record::Header(_) | Record::End(_) => return None,
        }
        Some(())
    }

    /// Adds counters to the record that they follow. `None` if there is no such record.
    fn add_counters(&mut self, counters: &Counters) -> Option<()> {
        let counts = match counters.of {
            CountersOf::Marker => &mut self.markers.last_mut()?.counts,
            CountersOf::Region => &mut self.regions.last_mut()?.used,
            CountersOf::ShadowCaches => &mut self.shadow_caches.last_mut()?.counts,
            CountersOf::Span => {
                let last_span = self.spans.len().checked_sub(1)?;
                if last_span == self.span_counts.len() {
                    self.span_counts.push([0; COUNTERS]);
                }
                self.span_counts.get_mut(last_span)?
            }
            CountersOf::SelfCounts => {
                &mut self.regions.last_mut()?.contexts.last_mut()?.self_counts
            }
            CountersOf::SampledPart => &mut self.sampled.last_mut()?.1,
            CountersOf::Service => &mut self.services.rows.last_mut()?.self_counts,
            CountersOf::ServiceInclusive => &mut self.services.rows.last_mut()?.inclusive,
            CountersOf::Inclusive => &mut self.regions.last_mut()?.contexts.last_mut()?.inclusive,
        };
        let counts = counts.get_mut(counters.first as usize..)?;
        for (count, value) in counts.iter_mut().zip(counters.values) {
            *count = value;
        }
        Some(())
    }
}

/// Adds a part of the name of `number`. `None` if the part does not follow the parts so far. A name that is recorded
/// again replaces the earlier name.
fn add_name_part(
    names: &mut BTreeMap<u64, Vec<u8>>,
    number: u64,
    part: u32,
    text: &[u8; NAME_PART_BYTES],
) -> Option<()> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let name = names.entry(number).or_default();
    if part == 0 {
        name.clear();
    }
    if name.len() as u64 != u64::from(part) * NAME_PART_BYTES as u64 {
        return None;
    }
    name.extend(&text[..end]);
    Some(())
}

/// The text before the first zero.
fn unpadded_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Names `number`, or renames it if it already has a name.
fn set_name(names: &mut Vec<(u32, String)>, number: u32, bytes: &[u8]) {
    let name = unpadded_text(bytes);
    match names.iter_mut().find(|(known, _)| *known == number) {
        Some(known) => known.1 = name,
        None => names.push((number, name)),
    }
}
