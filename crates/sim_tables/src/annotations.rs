//! Tables `annotations`, `annotation_values` and `annotation_hits`: what annotations counted and recorded.
//! `irqlab sim boot` shows them. Column names and their order are public: a recorded run has them.

mod spans;

use record::{Columns, RowFilter, Table, TableDisplay, column};
use sim::annotate::{self, Annotation, Annotations};
use sim::counters::{CYCLES, INSTRUCTIONS};
use sim::{Accounting, AnnotationUse, ContextUse, CpuUse, Hit};

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

/// Returns a warning if `annotation_hits` lacks hits, because the plugin keeps a limited number.
#[must_use]
pub fn warning(annotations: &Annotations, accounting: &Accounting) -> Option<String> {
    let values = accounting.annotations.values().flat_map(|used| &used.values);
    let recorded = values.fold(0, |sum: u64, entry| sum.saturating_add(entry.count));
    let logged = accounting.hits.len() as u64;
    (annotations.log && logged < recorded).then(|| {
        format!(
            "annotation_hits has only the first {logged} of {recorded} hits that recorded values"
        )
    })
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

/// The name of a row: an annotation at a place, or all places that start a span.
#[derive(Clone)]
struct Place {
    region: u32,
    annotation: String,
    place: String,
    address: Option<u64>,
}

impl Place {
    fn of_annotation(region: u32, annotation: &Annotation) -> Place {
        Place {
            region,
            annotation: annotation.name.clone(),
            place: annotation.place.clone(),
            address: annotation.address,
        }
    }
}

/// Returns the columns that name an annotation at a place.
fn key_columns<'a>() -> Columns<'a, Place> {
    Columns::all([
        region_column().of_ref(|row: &Place| &row.region),
        column("annotation", "Name of the annotation.")
            .key()
            .text(|row: &Place| row.annotation.clone()),
        column("place", "Symbol or event that it matched.")
            .key()
            .text(|row: &Place| row.place.clone()),
    ])
}

/// Returns the column of the address of a place.
fn address_column<'a>() -> Columns<'a, Place> {
    column("address", "Its address, where there is one.")
        .text(|row: &Place| row.address.map(|address| format!("{address:#x}")))
}

/// Returns the table `annotations`: a row for all CPUs and a row for each CPU.
fn hits(annotations: &Annotations, accounting: &Accounting) -> Table {
    // Without a model a cycle is an instruction.
    let has_model = accounting.has_model();
    let cycles = move |row: &spans::Row, cycles: fn(&ContextUse) -> u64| {
        has_model.then_some(row.used.as_ref()?).map(cycles)
    };
    let columns = key_columns().of_ref(|row: &spans::Row| &row.place).and([
        address_column().of_ref(|row: &spans::Row| &row.place),
        cpu_column().of_ref(|row: &spans::Row| &row.cpu),
        column("hit_count", "How often the CPU reached the place.")
            .uint(|row: &spans::Row| row.hits),
        column(
            "span",
            "Name of a span that the annotation starts. If several places start it, only their common row has it.",
        )
        .key()
        .text(|row: &spans::Row| row.span.clone()),
        column("span_count", "Spans of this name that started and ended in the region.")
            .uint(|row: &spans::Row| row.count(|used| used.completed)),
        column(
            "self_instructions",
            &format!("Instructions of the spans, without contexts and spans nested in them. {REPETITIONS_COUNT}"),
        )
        .uint(|row: &spans::Row| row.count(|used| used.self_counts[INSTRUCTIONS])),
        column(
            "inclusive_instructions",
            "Instructions of the spans from start to end, without other tasks; counted as self_instructions are. A recursive call counts once.",
        )
        .uint(|row: &spans::Row| row.count(|used| used.inclusive[INSTRUCTIONS])),
        column("self_cycles", "Cycles of the model; as self_instructions.")
            .uint(move |row: &spans::Row| cycles(row, |used| used.self_counts[CYCLES])),
        column("inclusive_cycles", "Cycles of the model; as inclusive_instructions.")
            .uint(move |row: &spans::Row| cycles(row, |used| used.inclusive[CYCLES])),
        column("refused_span_count", "Spans that could not be opened or closed there.")
            .uint(|row: &spans::Row| row.refused),
    ]);
    let rows = spans::rows(annotations, accounting);
    let doc = "Annotations: how often the guest reached each, and what their spans executed.";
    let display = TableDisplay { filter: Some(RowFilter::sums_over_cpus()), ..by_region() };
    columns.table("annotations", doc, rows).displayed(display)
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
    struct Row {
        place: Place,
        recorded: String,
        values: String,
        count: u64,
    }
    let columns = key_columns().of_ref(|row: &Row| &row.place).and([
        column("recorded", "Expressions that were recorded together.")
            .key()
            .text(|row: &Row| row.recorded.clone()),
        column("values", "Their values, in that order; `others` stands for all further values.")
            .key()
            .text(|row: &Row| row.values.clone()),
        column("hit_count", "How often these values were recorded, on all CPUs.")
            .uint(|row: &Row| row.count),
        address_column().of_ref(|row: &Row| &row.place),
    ]);
    let rows = annotation_uses(annotations, accounting).flat_map(|in_region| {
        in_region.used.values.iter().filter_map(move |entry| {
            let values = entry.values.as_deref();
            let [recorded, values] = record_cells(in_region.annotation, entry.action, values)?;
            let named = Place::of_annotation(in_region.region, in_region.annotation);
            Some(Row { place: named, recorded, values, count: entry.count })
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
        place: Place,
        recorded: String,
        values: String,
    }
    let columns = Columns::all([
        region_column().of_ref(|row: &Row<'_>| &row.hit.region),
        column(
            "at_ns",
            "Time of the hit in the guest, by the time-stamp counter that all CPUs share, exact to two time slices.",
        )
        .uint(|row: &Row<'_>| row.hit.at_ns),
        column("cpu", "CPU.").uint(|row: &Row<'_>| row.hit.cpu),
        column("annotation", "Name of the annotation.")
            .text(|row: &Row<'_>| row.place.annotation.clone()),
        column("place", "Symbol or event that it matched.")
            .text(|row: &Row<'_>| row.place.place.clone()),
        column("recorded", "Expressions that were recorded together.")
            .text(|row: &Row<'_>| row.recorded.clone()),
        column("values", "Their values, in that order.").text(|row: &Row<'_>| row.values.clone()),
        address_column().of_ref(|row: &Row<'_>| &row.place),
    ]);
    let rows = accounting.hits.iter().filter_map(|hit| {
        let annotation = annotations.list.get(hit.annotation as usize)?;
        let [recorded, values] = record_cells(annotation, hit.action, Some(&hit.values))?;
        let place = Place::of_annotation(hit.region, annotation);
        Some(Row { hit, place, recorded, values })
    });
    let doc = "The first hits that recorded values, in order of time.";
    columns.table("annotation_hits", doc, rows)
}

#[cfg(test)]
mod tests {
    use record::Value;
    use sim::annotate::{PrintFormat, Recorded};
    use sim::{RecordedValues, RegionUse};

    use super::*;

    #[test]
    fn hits_and_values_of_an_annotation_have_rows() {
        let register = Recorded { expression: "rdi".to_owned(), show: PrintFormat::Hex };
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
        assert_eq!(cells(1, "address"), ["0x1000", "0x1000"].map(Value::from));
    }

    #[test]
    fn a_log_that_lacks_hits_is_a_warning() {
        let recorded = RecordedValues { action: 0, values: None, count: 3 };
        let used = AnnotationUse { values: vec![recorded], ..AnnotationUse::default() };
        let (region, annotation, action, cpu, at_ns) = (1, 0, 0, 0, 5);
        let hit = Hit { region, annotation, action, cpu, at_ns, values: Vec::new() };
        let mut accounting = Accounting {
            annotations: [((1, 0), used)].into(),
            hits: vec![hit.clone(), hit.clone()],
            ..Accounting::default()
        };
        let mut annotations = Annotations::default();
        annotations.log = true;
        let text = warning(&annotations, &accounting).unwrap();
        assert!(text.contains("the first 2 of 3 hits"), "{text}");
        assert_eq!(warning(&Annotations::default(), &accounting), None);
        accounting.hits.push(hit);
        assert_eq!(warning(&annotations, &accounting), None);
    }

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let (annotations, accounting) = (Annotations::default(), Accounting::default());
        for table in [hits(&annotations, &accounting), values(&annotations, &accounting)] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
