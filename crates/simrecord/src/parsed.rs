//! A parsed record: regions with their contexts, markers with their counters.

use attribution::KernelContext;

use crate::counters::{COUNTERS, Counts};
use crate::reader::Stream;
use crate::record::{
    AnnotationRow, ContextRow, Counters, CountersOf, KernelCount, LockCounts, Marker, MissCount,
    MissCurvePoint, ProfileSlot, Record, Region, SampledPart, ServiceBucket, ServiceMisses,
    ServiceRow, ServiceTotals, ServiceWait, ShadowCaches, SharedMisses, Span, StructureKind,
    StructureName, SyscallFunction, Transition, Value, Values,
};

/// A context of a region, with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextCounts {
    pub context: KernelContext,
    /// How often it was entered, and how many of its spans completed.
    pub row: ContextRow,
    /// Counters of the context itself.
    pub self_counts: Counts,
    /// Counters of completed spans, including nested contexts.
    pub inclusive: Counts,
}

/// A region of interest on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuRegion {
    /// Its record.
    pub region: Region,
    /// Counters of the CPU in it.
    pub used: Counts,
    /// Its contexts, in the order of the record.
    pub contexts: Vec<ContextCounts>,
}

/// A marker with its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerCounts {
    /// Its record.
    pub marker: Marker,
    /// Counters of its CPU; zeros if nothing is counted.
    pub counts: Counts,
}

/// Values that an annotation recorded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedValues {
    /// Their record.
    pub values: Values,
    pub recorded: Vec<Value>,
}

/// Shadow caches with their counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowCacheCounts {
    /// Their record.
    pub caches: ShadowCaches,
    /// Their counters.
    pub counts: Counts,
}

/// A service with its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Its record.
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
    /// Distributions of times.
    pub buckets: Vec<ServiceBucket>,
    /// For what they were blocked.
    pub waits: Vec<ServiceWait>,
    /// Functions of system calls.
    pub functions: Vec<SyscallFunction>,
    /// Totals of regions.
    pub totals: Vec<ServiceTotals>,
    /// Places that take locks.
    pub locks: Vec<LockCounts>,
    /// The modes of the CPUs over time.
    pub profile: Vec<ProfileSlot>,
    pub misses: Vec<ServiceMisses>,
    /// Misses of lines that other CPUs had written.
    pub shared: Vec<SharedMisses>,
    /// Names of structures, and how many caches of the kernel share each.
    pub structures: Vec<((StructureKind, u64), (String, u32))>,
}

/// The content of a stream, in the order of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedRecord {
    pub markers: Vec<MarkerCounts>,
    /// Regions, and parts of them up to snapshots; the CPUs of a region are adjacent.
    pub regions: Vec<CpuRegion>,
    pub spans: Vec<Span>,
    /// Counters of the spans themselves: of no span, or of the first spans.
    pub span_counts: Vec<Counts>,
    /// Transitions from context to context.
    pub transitions: Vec<Transition>,
    /// The kernel's own counters.
    pub kernel_counts: Vec<KernelCount>,
    /// How often annotations were reached.
    pub annotations: Vec<AnnotationRow>,
    /// Values that they recorded.
    pub values: Vec<RecordedValues>,
    pub shadow_caches: Vec<ShadowCacheCounts>,
    pub miss_curves: Vec<MissCurvePoint>,
    /// Classified misses.
    pub misses: Vec<MissCount>,
    /// Services of the kernel.
    pub services: ParsedServices,
    /// Parts of sampled units, with their counters.
    pub sampled: Vec<(SampledPart, Counts)>,
    /// Names of tasks by process id: the last one that was recorded.
    pub tasks: Vec<(u32, String)>,
    /// Names of IRQ lines.
    pub irqs: Vec<(u32, String)>,
}

/// Parses a stream.
///
/// # Errors
/// The position, from 1, of the first record that does not belong after those before it.
pub fn parse(stream: &Stream) -> Result<ParsedRecord, u64> {
    let mut parsed = ParsedRecord::default();
    for (at, record) in (1_u64..).zip(&stream.records) {
        parsed.add(record).ok_or(at)?;
    }
    Ok(parsed)
}

impl ParsedRecord {
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
            Record::Transition(transition) => self.transitions.push(*transition),
            Record::KernelCount(count) => self.kernel_counts.push(*count),
            Record::Task(task) => put(&mut self.tasks, task.pid, &task.comm),
            Record::IrqName(name) => put(&mut self.irqs, name.irq, &name.name),
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
                self.services.structures.push(((*kind, *place), (text(name), *shared_by)));
            }
            Record::Notice(..) | Record::Check(_) => {}
            Record::Header(_) | Record::End(_) => return None,
        }
        Some(())
    }

    fn add_counters(&mut self, counters: &Counters) -> Option<()> {
        let to = match counters.of {
            CountersOf::Marker => &mut self.markers.last_mut()?.counts,
            CountersOf::Region => &mut self.regions.last_mut()?.used,
            CountersOf::ShadowCaches => &mut self.shadow_caches.last_mut()?.counts,
            CountersOf::Span => {
                let at = self.spans.len().checked_sub(1)?;
                if at == self.span_counts.len() {
                    self.span_counts.push([0; COUNTERS]);
                }
                self.span_counts.get_mut(at)?
            }
            CountersOf::SelfCounts => {
                &mut self.regions.last_mut()?.contexts.last_mut()?.self_counts
            }
            CountersOf::SampledPart => &mut self.sampled.last_mut()?.1,
            CountersOf::Service => &mut self.services.rows.last_mut()?.self_counts,
            CountersOf::ServiceInclusive => &mut self.services.rows.last_mut()?.inclusive,
            CountersOf::Inclusive => &mut self.regions.last_mut()?.contexts.last_mut()?.inclusive,
        };
        for (to, value) in to.get_mut(counters.first as usize..)?.iter_mut().zip(counters.values) {
            *to = value;
        }
        Some(())
    }
}

/// A text that may be padded with zeros.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Sets the name of a number.
fn put(names: &mut Vec<(u32, String)>, number: u32, bytes: &[u8]) {
    let name = text(bytes);
    match names.iter_mut().find(|(known, _)| *known == number) {
        Some(known) => known.1 = name,
        None => names.push((number, name)),
    }
}
