//! Tables `annotations`, `annotation_values` and `annotation_hits`: what annotations counted and recorded.
//! `irqlab sim boot` shows them. Column names and their order are public: a recorded run has them.

use record::{Columns, RowFilter, Table, TableDisplay, column};
use sim::annotate::{self, Annotation, Annotations};
use sim::counters::{CYCLES, INSTRUCTIONS};
use sim::{Accounting, AnnotationUse, ContextUse, CpuUse, Hit, KernelContext};

use crate::REPETITIONS_COUNT;
use crate::regions::{by_region, cpu_column, region_column};

/// Returns the tables; none without annotations.
#[must_use]
pub fn tables(annotations: &Annotations, accounting: &Accounting) -> Vec<Table> {
    if annotations.is_empty() {
        return Vec::new();
    }
    let mut tables = vec![hits(annotations, accounting), values(annotations, accounting)];
    if annotations.log {
        tables.push(log(annotations, accounting));
    }
    tables
}

/// An annotation in a region: its results, and the CPUs of the region.
#[derive(Clone, Copy)]
struct RegionAnnotation<'a> {
    region: u32,
    annotation: &'a Annotation,
    used: &'a AnnotationUse,
    cpus: &'a [CpuUse],
}

/// Returns the results of each annotation in each region.
fn annotation_uses<'a>(
    annotations: &'a Annotations,
    accounting: &'a Accounting,
) -> impl Iterator<Item = RegionAnnotation<'a>> {
    accounting.annotations.iter().filter_map(|((region, number), used)| {
        let annotation = annotations.list.get(*number as usize)?;
        let region_use = accounting.regions.get((*region as usize).checked_sub(1)?)?;
        Some(RegionAnnotation { region: *region, annotation, used, cpus: &region_use.cpus })
    })
}

/// Returns the columns that name an annotation in a region.
fn key_columns<'a>() -> Columns<'a, RegionAnnotation<'a>> {
    Columns::all([
        region_column().of_ref(|used: &RegionAnnotation<'_>| &used.region),
        column("annotation", "Name of the annotation.")
            .key()
            .text(|used: &RegionAnnotation<'_>| used.annotation.name.clone()),
        column("place", "Symbol or event that it matched.")
            .key()
            .text(|used: &RegionAnnotation<'_>| used.annotation.place.clone()),
    ])
}

/// Returns the table `annotations`: a row for all CPUs and a row for each CPU.
fn hits(annotations: &Annotations, accounting: &Accounting) -> Table {
    /// The hits of an annotation on a CPU or on all CPUs.
    struct Row<'a> {
        in_region: RegionAnnotation<'a>,
        cpu: String,
        hits: u64,
        /// Instructions and misses of the spans that the annotation opens.
        span: Option<ContextUse>,
        refused: Option<u64>,
    }
    impl Row<'_> {
        /// Returns the name of the span that the annotation opens.
        fn span_name(&self, annotations: &Annotations) -> Option<String> {
            annotations.spans.get(*self.in_region.annotation.spans.first()? as usize).cloned()
        }

        /// Returns a count of the spans. `None` if the annotation opens no span.
        fn count(&self, count: fn(&ContextUse) -> u64) -> Option<u64> {
            let zero_if_span = || self.in_region.annotation.spans.first().map(|_| 0);
            self.span.as_ref().map(count).or_else(zero_if_span)
        }
    }
    // Without a model a cycle is an instruction.
    let has_model = accounting.has_model();
    let cycles = move |row: &Row<'_>, cycles: fn(&ContextUse) -> u64| {
        row.span.as_ref().filter(|_| has_model).map(cycles)
    };
    let columns = key_columns().of(|row: &Row<'_>| row.in_region).and([
        column("address", "Its address, where there is one.").text(|row: &Row<'_>| {
            row.in_region.annotation.address.map(|address| format!("{address:#x}"))
        }),
        cpu_column().of_ref(|row: &Row<'_>| &row.cpu),
        column("hit_count", "How often the CPU reached it.").uint(|row: &Row<'_>| row.hits),
        column("span", "Name of the span that it opens.")
            .text(|row: &Row<'_>| row.span_name(annotations)),
        column("span_count", "Spans of this name that started and ended in the region.")
            .uint(|row: &Row<'_>| row.count(|used| used.completed)),
        column(
            "self_instructions",
            &format!("Instructions of the spans, without contexts and spans nested in them. {REPETITIONS_COUNT}"),
        )
        .uint(|row: &Row<'_>| row.count(|used| used.self_counts[INSTRUCTIONS])),
        column(
            "inclusive_instructions",
            "Instructions of the spans from start to end, without other tasks; counted as self_instructions are.",
        )
        .uint(|row: &Row<'_>| row.count(|used| used.inclusive[INSTRUCTIONS])),
        column("self_cycles", "Cycles of the model; as self_instructions.")
            .uint(move |row: &Row<'_>| cycles(row, |used| used.self_counts[CYCLES])),
        column("inclusive_cycles", "Cycles of the model; as inclusive_instructions.")
            .uint(move |row: &Row<'_>| cycles(row, |used| used.inclusive[CYCLES])),
        column("refused_span_count", "Spans that could not be opened or closed there.")
            .uint(|row: &Row<'_>| row.refused),
    ]);
    let mut rows = Vec::new();
    for in_region in annotation_uses(annotations, accounting) {
        let RegionAnnotation { annotation, used, cpus, .. } = in_region;
        let mut push = |cpu: &str, hits, span, refused| {
            rows.push(Row { in_region, cpu: cpu.to_owned(), hits, span, refused });
        };
        let span = annotation.spans.first().copied();
        let refused = (used.refused > 0 || span.is_some()).then_some(used.refused);
        push("all", used.hits.iter().sum(), sum(cpus, span), refused);
        for (cpu, hits) in cpus.iter().zip(&used.hits) {
            push(&cpu.cpu.to_string(), *hits, sum(std::slice::from_ref(cpu), span), None);
        }
    }
    let doc = "Annotations: how often the guest reached each, and what their spans executed.";
    let display = TableDisplay { filter: Some(RowFilter::sums_over_cpus()), ..by_region() };
    columns.table("annotations", doc, rows).displayed(display)
}

/// Sums the counts of the spans with number `span` over `cpus`; `None` if no CPU has any.
fn sum(cpus: &[CpuUse], span: Option<u32>) -> Option<ContextUse> {
    let context = KernelContext::Function(span?);
    let rows = cpus.iter().flat_map(|cpu| &cpu.contexts).filter(|row| row.context == context);
    rows.copied().reduce(|mut sum, row| {
        sum.add(&row);
        sum
    })
}

/// Returns the expressions that an action records together, and their values as text. Without `values` the text is
/// "others". `None` if the annotation has no such action.
fn record_cells(
    annotation: &Annotation,
    action: u32,
    values: Option<&[annotate::Value]>,
) -> Option<[String; 2]> {
    let records = annotation.records.get(action as usize)?;
    let expressions: Vec<&str> =
        records.iter().map(|recorded| recorded.expression.as_str()).collect();
    let values = values.map(|values| {
        let pairs = records.iter().zip(values);
        pairs.map(|(recorded, value)| recorded.shown(*value)).collect::<Vec<_>>().join(", ")
    });
    let values = values.unwrap_or_else(|| "others".to_owned());
    Some([expressions.join(", "), values])
}

/// Returns the table `annotation_values`.
fn values(annotations: &Annotations, accounting: &Accounting) -> Table {
    struct Row<'a> {
        in_region: RegionAnnotation<'a>,
        recorded: String,
        values: String,
        count: u64,
    }
    let columns = key_columns().of(|row: &Row<'_>| row.in_region).and([
        column("recorded", "Expressions that were recorded together.")
            .key()
            .text(|row: &Row<'_>| row.recorded.clone()),
        column("values", "Their values, in that order; `others` stands for all further values.")
            .key()
            .text(|row: &Row<'_>| row.values.clone()),
        column("hit_count", "How often these values were recorded, on all CPUs.")
            .uint(|row: &Row<'_>| row.count),
    ]);
    let rows = annotation_uses(annotations, accounting).flat_map(|in_region| {
        in_region.used.values.iter().filter_map(move |entry| {
            let values = entry.values.as_deref();
            let [recorded, values] = record_cells(in_region.annotation, entry.action, values)?;
            Some(Row { in_region, recorded, values, count: entry.count })
        })
    });
    let doc = "Values that annotations recorded, and how often each was recorded.";
    let display =
        TableDisplay { sort_by: Some("hit_count".to_owned()), rows_max: None, ..by_region() };
    columns.table("annotation_values", doc, rows).displayed(display)
}

/// Returns the table `annotation_hits`.
fn log(annotations: &Annotations, accounting: &Accounting) -> Table {
    struct Row<'a> {
        hit: &'a Hit,
        annotation: &'a Annotation,
        recorded: String,
        values: String,
    }
    let columns = Columns::all([
        region_column().of_ref(|row: &Row<'_>| &row.hit.region),
        column("at_cycles", "Time of the hit, in cycles of the CPU since the record started.")
            .uint(|row: &Row<'_>| row.hit.at_cycles),
        column("cpu", "CPU.").uint(|row: &Row<'_>| row.hit.cpu),
        column("annotation", "Name of the annotation.")
            .text(|row: &Row<'_>| row.annotation.name.clone()),
        column("recorded", "Expressions that were recorded together.")
            .text(|row: &Row<'_>| row.recorded.clone()),
        column("values", "Their values, in that order.").text(|row: &Row<'_>| row.values.clone()),
    ]);
    let rows = accounting.hits.iter().filter_map(|hit| {
        let annotation = annotations.list.get(hit.annotation as usize)?;
        let [recorded, values] = record_cells(annotation, hit.action, Some(&hit.values))?;
        Some(Row { hit, annotation, recorded, values })
    });
    columns.table("annotation_hits", "Each hit that recorded values, in order of time.", rows)
}

#[cfg(test)]
mod tests {
    use record::Value;
    use sim::annotate::{Recorded, Show};
    use sim::{RecordedValues, RegionUse};

    use super::*;

    #[test]
    fn hits_and_values_of_an_annotation_have_rows() {
        let register = Recorded { expression: "rdi".to_owned(), show: Show::Hex };
        let mut annotations = Annotations::default();
        annotations.list.push(Annotation {
            name: "tick".to_owned(),
            place: "tick_sched_timer".to_owned(),
            address: Some(0x1000),
            records: vec![vec![register]],
            spans: Vec::new(),
        });
        let seven = vec![annotate::Value::Number(7)];
        let recorded = |values, count| RecordedValues { action: 0, values, count };
        let used = AnnotationUse {
            hits: vec![3, 2],
            values: vec![recorded(Some(seven), 4), recorded(None, 1)],
            ..AnnotationUse::default()
        };
        let cpus = [0, 1].map(|cpu| CpuUse { cpu, ..CpuUse::default() }).to_vec();
        let accounting = Accounting {
            regions: vec![RegionUse { cpus, ..RegionUse::default() }],
            annotations: [((1, 0), used)].into(),
            ..Accounting::default()
        };
        let tables = tables(&annotations, &accounting);
        let cells = |table: usize, name: &str| -> Vec<Value> {
            let table = &tables[table];
            table.rows().iter().filter_map(|row| table.get(row, name).cloned()).collect()
        };
        assert_eq!(cells(0, "cpu"), ["all", "0", "1"].map(Value::from));
        assert_eq!(cells(0, "hit_count"), [5, 3, 2].map(Value::Uint));
        assert_eq!(cells(1, "values"), ["0x7", "others"].map(Value::from));
        assert_eq!(cells(1, "hit_count"), [4, 1].map(Value::Uint));
    }

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let (annotations, accounting) = (Annotations::default(), Accounting::default());
        for table in [hits(&annotations, &accounting), values(&annotations, &accounting)] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
