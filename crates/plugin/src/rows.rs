//! A stream put together: regions with their contexts, markers with their counters.

use attribution::KernelContext;

use crate::counters::{COUNTERS, Counts};
use crate::notes::Value;
use crate::reader::Stream;
use crate::record::{
    Amounts, AmountsOf, Beside, ContextRow, Curve, KernelCount, Marker, MissCount, NoteRow, Record,
    Region, Span, Turn, Values,
};

/// A context of a region, with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextCounts {
    /// The context.
    pub context: KernelContext,
    /// How often it was entered, and how many spans completed.
    pub row: ContextRow,
    /// What it used itself.
    pub own: Counts,
    /// What its completed spans used, with what was nested inside.
    pub inclusive: Counts,
}

/// A region of interest on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuRegion {
    /// Its record.
    pub region: Region,
    /// What the CPU used in it.
    pub used: Counts,
    /// Its contexts, in their order.
    pub contexts: Vec<ContextCounts>,
}

/// A marker with its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerCounts {
    /// Its record.
    pub marker: Marker,
    /// What its CPU had counted; zeros if nothing is counted.
    pub counts: Counts,
}

/// Values that an annotation has recorded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValuesRecorded {
    /// Their record.
    pub values: Values,
    /// The values.
    pub recorded: Vec<Value>,
}

/// What the caches of a model have counted beside, for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BesideCounts {
    /// Its record.
    pub beside: Beside,
    /// What they counted.
    pub counts: Counts,
}

/// What a stream tells, in the order of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// Markers.
    pub markers: Vec<MarkerCounts>,
    /// Regions, and parts of them up to snapshots; CPUs of one stand side by side.
    pub regions: Vec<CpuRegion>,
    /// Spans.
    pub spans: Vec<Span>,
    /// Turns.
    pub turns: Vec<Turn>,
    /// The kernel's counts.
    pub kernel_counts: Vec<KernelCount>,
    /// What came of annotations.
    pub notes: Vec<NoteRow>,
    /// Values that they recorded.
    pub values: Vec<ValuesRecorded>,
    /// What caches of models have counted beside.
    pub beside: Vec<BesideCounts>,
    /// What caches of all sizes have missed.
    pub curves: Vec<Curve>,
    /// Misses: why, for whom, where.
    pub misses: Vec<MissCount>,
    /// Names of tasks by process id, the last one that was seen.
    pub tasks: Vec<(u32, String)>,
    /// Names of IRQ lines.
    pub irqs: Vec<(u32, String)>,
}

/// Puts a stream together.
///
/// # Errors
/// The position of the first record that does not fit to what is before it, from 1.
pub fn story(stream: &Stream) -> Result<Story, u64> {
    let mut story = Story::default();
    for (at, record) in (1_u64..).zip(&stream.records) {
        add(&mut story, record).ok_or(at)?;
    }
    Ok(story)
}

fn add(story: &mut Story, record: &Record) -> Option<()> {
    match record {
        Record::Marker(marker) => {
            story.markers.push(MarkerCounts { marker: *marker, counts: [0; COUNTERS] });
        }
        Record::Region(region) => {
            let (region, used) = (*region, [0; COUNTERS]);
            story.regions.push(CpuRegion { region, used, contexts: Vec::new() });
        }
        Record::Context(row) => {
            let context = KernelContext::from_code(row.code)?;
            let region = story.regions.last_mut()?;
            if (region.region.cpu, region.region.region) != (row.cpu, row.region) {
                return None;
            }
            let (own, inclusive) = ([0; COUNTERS], [0; COUNTERS]);
            region.contexts.push(ContextCounts { context, row: *row, own, inclusive });
        }
        Record::Amounts(amounts) => add_amounts(story, amounts)?,
        Record::Span(span) => story.spans.push(*span),
        Record::Turn(turn) => story.turns.push(*turn),
        Record::KernelCount(count) => story.kernel_counts.push(*count),
        Record::Task(task) => put(&mut story.tasks, task.pid, &task.comm),
        Record::IrqName(name) => put(&mut story.irqs, name.irq, &name.name),
        Record::Note(row) => story.notes.push(*row),
        Record::Values(values) => {
            story.values.push(ValuesRecorded { values: *values, recorded: Vec::new() });
        }
        Record::Value(value) => story.values.last_mut()?.recorded.push(*value),
        Record::Beside(beside) => {
            story.beside.push(BesideCounts { beside: *beside, counts: [0; COUNTERS] });
        }
        Record::Curve(curve) => story.curves.push(*curve),
        Record::Misses(misses) => story.misses.push(*misses),
        Record::Notice(..) | Record::Check(_) => {}
        Record::Header(_) | Record::End(_) => return None,
    }
    Some(())
}

fn add_amounts(story: &mut Story, amounts: &Amounts) -> Option<()> {
    let to = match amounts.of {
        AmountsOf::Marker => &mut story.markers.last_mut()?.counts,
        AmountsOf::Region => &mut story.regions.last_mut()?.used,
        AmountsOf::Beside => &mut story.beside.last_mut()?.counts,
        AmountsOf::Own => &mut story.regions.last_mut()?.contexts.last_mut()?.own,
        AmountsOf::Inclusive => &mut story.regions.last_mut()?.contexts.last_mut()?.inclusive,
    };
    for (to, value) in to.get_mut(amounts.first as usize..)?.iter_mut().zip(amounts.values) {
        *to = value;
    }
    Some(())
}

fn put(names: &mut Vec<(u32, String)>, number: u32, text: &[u8]) {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let name = String::from_utf8_lossy(&text[..end]).into_owned();
    match names.iter_mut().find(|(known, _)| *known == number) {
        Some(known) => known.1 = name,
        None => names.push((number, name)),
    }
}
