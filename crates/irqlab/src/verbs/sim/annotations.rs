//! Tables `annotations`, `annotation_values` and `annotation_hits`: the results of annotations.

use attribution::KernelContext;
use record::{Column, Kind, RowFilter, Table, TableDisplay, Value};
use sim::AnnotationUse;
use sim::annotate::{self, Annotation, Annotations};
use sim::counters::{CYCLES, INSTRUCTIONS};
use sim::{Accounting, ContextUse, CpuUse};

use super::by_region::by_region;

/// The tables; none without annotations.
pub fn tables(annotations: &Annotations, account: &Accounting) -> Vec<Table> {
    if annotations.is_empty() {
        return Vec::new();
    }
    let mut tables = vec![hits(annotations, account), values(annotations, account)];
    if annotations.log {
        tables.push(log(annotations, account));
    }
    tables
}

fn columns(columns: &[(&str, Kind, &str)]) -> Vec<Column> {
    columns.iter().map(|(name, kind, doc)| Column::new(name, *kind, doc)).collect()
}

/// The results of each annotation in each region, with the CPUs of the region.
fn uses<'a>(
    annotations: &'a Annotations,
    account: &'a Accounting,
) -> impl Iterator<Item = (u64, &'a Annotation, &'a AnnotationUse, &'a [CpuUse])> {
    account.annotations.iter().filter_map(|((region, note), used)| {
        let annotation = annotations.list.get(*note as usize)?;
        let region_use = account.regions.get((*region as usize).checked_sub(1)?)?;
        Some((u64::from(*region), annotation, used, region_use.cpus.as_slice()))
    })
}

fn hits(annotations: &Annotations, account: &Accounting) -> Table {
    let columns = columns(&[
        ("region", Kind::Uint, "Region of interest, from 1."),
        ("annotation", Kind::Text, "Name of the annotation."),
        ("place", Kind::Text, "Symbol or event that it matched."),
        ("address", Kind::Text, "Its address, where there is one."),
        ("cpu", Kind::Text, "CPU number, or `all` for the sum over the CPUs."),
        ("hit_count", Kind::Uint, "How often the CPU reached it."),
        ("span", Kind::Text, "Name of the span that it opens."),
        ("span_count", Kind::Uint, "Spans of this name that started and ended in the region."),
        (
            "self_instructions",
            Kind::Uint,
            "Instructions of the spans, without contexts and spans nested in them.",
        ),
        (
            "inclusive_instructions",
            Kind::Uint,
            "Instructions of the spans from start to end, without other tasks.",
        ),
        ("self_cycles", Kind::Uint, "Cycles of the model; as self_instructions."),
        ("inclusive_cycles", Kind::Uint, "Cycles of the model; as inclusive_instructions."),
        ("refused_span_count", Kind::Uint, "Spans that could not be opened or closed there."),
    ]);
    let doc = "Annotations: how often the guest reached each, and what their spans executed.";
    let display = TableDisplay { filter: Some(RowFilter::sums_over_cpus()), ..by_region() };
    let mut table = Table::new("annotations", doc, columns).displayed(display);
    for (region, annotation, used, cpus) in uses(annotations, account) {
        let mut push = |cpu: &str, hits: u64, span: Option<&ContextUse>, refused: Option<u64>| {
            let address = annotation.address.map(|address| format!("{address:#x}"));
            let first: [Value; 6] = [
                region.into(),
                annotation.name.as_str().into(),
                annotation.place.as_str().into(),
                address.map_or(Value::Absent, Value::Text),
                cpu.into(),
                hits.into(),
            ];
            let span = span_cells(annotations, annotation, span, account);
            table.push(first.into_iter().chain(span).chain([refused.into()]).collect());
        };
        let span = annotation.spans.first().copied();
        let refused = (used.refused > 0 || span.is_some()).then_some(used.refused);
        push("all", used.hits.iter().sum(), sum(cpus, span).as_ref(), refused);
        for (cpu, hits) in cpus.iter().zip(&used.hits) {
            let this_cpu = std::slice::from_ref(cpu);
            push(&cpu.cpu.to_string(), *hits, sum(this_cpu, span).as_ref(), None);
        }
    }
    table
}

/// Sums the counts of the spans with number `span` over `cpus`; `None` if no CPU has any.
fn sum(cpus: &[CpuUse], span: Option<u32>) -> Option<ContextUse> {
    let context = KernelContext::Function(span?);
    let rows = cpus.iter().flat_map(|cpu| &cpu.contexts).filter(|row| row.context == context);
    rows.copied().reduce(|mut sum, row| {
        sum.self_counts.iter_mut().zip(row.self_counts).for_each(|(sum, count)| *sum += count);
        sum.inclusive.iter_mut().zip(row.inclusive).for_each(|(sum, count)| *sum += count);
        sum.completed += row.completed;
        sum
    })
}

fn span_cells(
    annotations: &Annotations,
    annotation: &Annotation,
    used: Option<&ContextUse>,
    account: &Accounting,
) -> [Value; 6] {
    let name = annotation.spans.first().and_then(|span| annotations.spans.get(*span as usize));
    let name = name.map_or(Value::Absent, |name| name.as_str().into());
    let Some(used) = used else {
        let none = annotation.spans.first().map(|_| 0_u64);
        let none = || none.into();
        return [name, none(), none(), none(), Value::Absent, Value::Absent];
    };
    // Without a model a cycle is an instruction.
    let has_model = account.has_model();
    let cycles = |cycles: u64| has_model.then_some(cycles).into();
    [
        name,
        used.completed.into(),
        used.self_counts[INSTRUCTIONS].into(),
        used.inclusive[INSTRUCTIONS].into(),
        cycles(used.self_counts[CYCLES]),
        cycles(used.inclusive[CYCLES]),
    ]
}

/// Returns the expressions that the annotation evaluates together, and their values as text. Without `values`
/// the text is "others".
fn record_cells(
    annotation: &Annotation,
    action: u32,
    values: Option<&[annotate::Value]>,
) -> Option<[Value; 2]> {
    let records = annotation.records.get(action as usize)?;
    let expressions: Vec<&str> =
        records.iter().map(|recorded| recorded.expression.as_str()).collect();
    let values = values.map(|values| {
        let pairs = records.iter().zip(values);
        pairs.map(|(recorded, value)| recorded.shown(*value)).collect::<Vec<_>>().join(", ")
    });
    let values = values.unwrap_or_else(|| "others".to_owned());
    Some([expressions.join(", ").into(), values.into()])
}

fn values(annotations: &Annotations, account: &Accounting) -> Table {
    let columns = columns(&[
        ("region", Kind::Uint, "Region of interest, from 1."),
        ("annotation", Kind::Text, "Name of the annotation."),
        ("place", Kind::Text, "Symbol or event that it matched."),
        ("recorded", Kind::Text, "Expressions that were recorded together."),
        (
            "values",
            Kind::Text,
            "Their values, in that order; `others` stands for all further values.",
        ),
        ("hit_count", Kind::Uint, "How often these values were recorded, on all CPUs."),
    ]);
    let doc = "Values that annotations recorded, and how often each was recorded.";
    let display = TableDisplay { sort_by: Some("hit_count".to_owned()), ..by_region() };
    let mut table = Table::new("annotation_values", doc, columns).displayed(display);
    table.display.rows_max = None;
    for (region, annotation, used, _) in uses(annotations, account) {
        for entry in &used.values {
            let shown = record_cells(annotation, entry.action, entry.values.as_deref());
            let Some([recorded, values]) = shown else { continue };
            table.push(vec![
                region.into(),
                annotation.name.as_str().into(),
                annotation.place.as_str().into(),
                recorded,
                values,
                entry.count.into(),
            ]);
        }
    }
    table
}

fn log(annotations: &Annotations, account: &Accounting) -> Table {
    let columns = columns(&[
        ("region", Kind::Uint, "Region of interest, from 1."),
        (
            "at_cycles",
            Kind::Uint,
            "Time of the hit, in cycles of the CPU since the record started.",
        ),
        ("cpu", Kind::Uint, "CPU."),
        ("annotation", Kind::Text, "Name of the annotation."),
        ("recorded", Kind::Text, "Expressions that were recorded together."),
        ("values", Kind::Text, "Their values, in that order."),
    ]);
    let doc = "Each hit that recorded values, in order of time.";
    let mut table = Table::new("annotation_hits", doc, columns);
    for hit in &account.hits {
        let Some(annotation) = annotations.list.get(hit.annotation as usize) else { continue };
        let shown = record_cells(annotation, hit.action, Some(&hit.values));
        let Some([recorded, values]) = shown else { continue };
        table.push(vec![
            u64::from(hit.region).into(),
            hit.at_cycles.into(),
            u64::from(hit.cpu).into(),
            annotation.name.as_str().into(),
            recorded,
            values,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let (annotations, account) = (Annotations::default(), Accounting::default());
        for table in [hits(&annotations, &account), values(&annotations, &account)] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
