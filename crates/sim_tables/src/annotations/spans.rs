//! The rows of the table `annotations`. A span belongs to the row of the place that starts it. If several places start
//! the same span, a common row has the span's counts.

use std::collections::BTreeMap;

use sim::annotate::{Annotation, Annotations};
use sim::{Accounting, ContextUse, CpuUse, KernelContext};

use super::{Place, RegionAnnotation, annotation_uses};

/// The hits of a place, and a span that starts there, on a CPU or on all CPUs.
pub(super) struct Row {
    pub(super) place: Place,
    /// The number of the CPU, or `all`.
    pub(super) cpu: String,
    pub(super) hits: u64,
    /// The name of the span.
    pub(super) span: Option<String>,
    /// Instructions and misses of the span. `None` if it did not run.
    pub(super) used: Option<ContextUse>,
    pub(super) refused: Option<u64>,
}

impl Row {
    /// Returns a count of the span. `None` in a row without a span.
    pub(super) fn count(&self, count: fn(&ContextUse) -> u64) -> Option<u64> {
        let zero_if_span = || self.span.as_ref().map(|_| 0);
        self.used.as_ref().map(count).or_else(zero_if_span)
    }
}

/// Returns the rows: of each region the places with their spans, and then the spans that several places start.
pub(super) fn rows(annotations: &Annotations, accounting: &Accounting) -> Vec<Row> {
    let mut by_region: BTreeMap<u32, Vec<RegionAnnotation<'_>>> = BTreeMap::new();
    for in_region in annotation_uses(annotations, accounting) {
        by_region.entry(in_region.region).or_default().push(in_region);
    }
    by_region.values().flat_map(|region| rows_of_region(annotations, region)).collect()
}

fn rows_of_region(annotations: &Annotations, region: &[RegionAnnotation<'_>]) -> Vec<Row> {
    let starters = starters(region);
    let is_shared = |span: &u32| starters[span].len() > 1;
    let mut rows = Vec::new();
    for in_region in region {
        let spans = distinct_spans(in_region.annotation);
        let mut unshared = spans.iter().copied().filter(|span| !is_shared(span));
        let place = Place::of_annotation(in_region.region, in_region.annotation);
        let mut place_rows = PlaceRows {
            annotations,
            place,
            cpus: in_region.cpus,
            hits: in_region.used.hits.clone(),
            refused: Some(in_region.used.refused)
                .filter(|refused| *refused > 0 || !spans.is_empty()),
        };
        rows.extend(place_rows.with_span(unshared.next()));
        // The number of refused spans belongs to the place.
        place_rows.refused = None;
        rows.extend(unshared.flat_map(|span| place_rows.with_span(Some(span))));
    }
    for (span, places) in starters.iter().filter(|(span, _)| is_shared(span)) {
        rows.extend(PlaceRows::of_all(annotations, places).with_span(Some(*span)));
    }
    rows
}

/// Returns the places that start each span, by its number.
fn starters<'a>(region: &[RegionAnnotation<'a>]) -> BTreeMap<u32, Vec<RegionAnnotation<'a>>> {
    let mut starters: BTreeMap<u32, Vec<RegionAnnotation<'_>>> = BTreeMap::new();
    for in_region in region {
        for span in distinct_spans(in_region.annotation) {
            starters.entry(span).or_default().push(*in_region);
        }
    }
    starters
}

/// Returns the numbers of the spans that an annotation starts, in its order.
fn distinct_spans(annotation: &Annotation) -> Vec<u32> {
    let mut spans = Vec::new();
    for span in &annotation.spans {
        if !spans.contains(span) {
            spans.push(*span);
        }
    }
    spans
}

/// The parts that the rows of a place share.
struct PlaceRows<'a> {
    annotations: &'a Annotations,
    place: Place,
    cpus: &'a [CpuUse],
    /// Hits of each CPU.
    hits: Vec<u64>,
    /// Only the row of all CPUs has it.
    refused: Option<u64>,
}

impl<'a> PlaceRows<'a> {
    /// The common rows of places that start the same span.
    fn of_all(annotations: &'a Annotations, places: &[RegionAnnotation<'a>]) -> PlaceRows<'a> {
        let first = places[0];
        let mut names: Vec<&str> = Vec::new();
        let mut hits = vec![0; first.used.hits.len()];
        for in_region in places {
            if !names.contains(&in_region.annotation.name.as_str()) {
                names.push(&in_region.annotation.name);
            }
            hits.iter_mut().zip(&in_region.used.hits).for_each(|(sum, count)| *sum += count);
        }
        let place = Place {
            region: first.region,
            annotation: names.join(", "),
            place: format!("all {} places", places.len()),
            address: None,
        };
        PlaceRows { annotations, place, cpus: first.cpus, hits, refused: None }
    }

    /// The row of all CPUs and the row of each CPU. `span`: the number of the span in the rows.
    fn with_span(&self, span: Option<u32>) -> Vec<Row> {
        let name = span.and_then(|span| self.annotations.spans.get(span as usize));
        let row = |cpu: String, hits, cpus, refused| {
            let (place, span_name, used) = (self.place.clone(), name.cloned(), sum(cpus, span));
            Row { place, cpu, hits, span: span_name, used, refused }
        };
        let all = row("all".to_owned(), self.hits.iter().sum(), self.cpus, self.refused);
        let each =
            self.cpus.iter().zip(&self.hits).map(|(cpu, hits)| {
                row(cpu.cpu.to_string(), *hits, std::slice::from_ref(cpu), None)
            });
        std::iter::once(all).chain(each).collect()
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use record::Value;
    use sim::counters::Counts;
    use sim::{AnnotationUse, RegionUse};

    use super::*;
    use crate::annotations::hits;
    use crate::regions::key_names;

    fn annotation(name: &str, address: u64, spans: &[u32]) -> Annotation {
        Annotation {
            name: name.to_owned(),
            place: format!("f+{address:#x}"),
            address: Some(address),
            records: Vec::new(),
            spans: spans.to_vec(),
        }
    }

    /// The cells of the rows of all CPUs: address, hits, span, spans. The counts of span N are N + 7.
    fn cells(list: Vec<Annotation>, spans: &[&str]) -> Vec<[String; 4]> {
        let count = list.len() as u32;
        let context = |number: u32| ContextUse {
            context: KernelContext::Function(number),
            self_counts: Counts::default(),
            inclusive: Counts::default(),
            entries: 0,
            completed: u64::from(number) + 7,
        };
        let contexts = (0..spans.len() as u32).map(context).collect();
        let cpus = vec![CpuUse { contexts, ..CpuUse::default() }];
        let used = |number: u32| AnnotationUse {
            hits: vec![u64::from(number) + 1],
            ..AnnotationUse::default()
        };
        let accounting = Accounting {
            regions: vec![RegionUse { cpus, ..RegionUse::default() }],
            annotations: (0..count).map(|number| ((1, number), used(number))).collect(),
            ..Accounting::default()
        };
        let mut annotations = Annotations::default();
        annotations.list = list;
        annotations.spans = spans.iter().map(|name| (*name).to_owned()).collect();
        let table = hits(&annotations, &accounting);
        let text = |row: &[Value], name: &str| match table.get(row, name).unwrap() {
            Value::Absent => "absent".to_owned(),
            Value::Text(text) => text.clone(),
            Value::Uint(count) => count.to_string(),
            other => panic!("{other:?}"),
        };
        let keys = key_names(&table);
        let keys_of =
            |row: &[Value]| -> Vec<String> { keys.iter().map(|name| text(row, name)).collect() };
        let distinct: BTreeSet<_> = table.rows().iter().map(|row| keys_of(row)).collect();
        assert_eq!(distinct.len(), table.rows().len(), "rows of a table have keys of their own");
        let rows = table.rows().iter().filter(|row| text(row.as_slice(), "cpu") == "all");
        let shown = ["address", "hit_count", "span", "span_count"];
        rows.map(|row| shown.map(|name| text(row, name))).collect()
    }

    #[test]
    fn a_span_of_several_places_is_counted_once() {
        let list = vec![annotation("f", 0x10, &[0]), annotation("f", 0x20, &[0])];
        assert_eq!(
            cells(list, &["f"]),
            [
                ["0x10", "1", "absent", "absent"],
                ["0x20", "2", "absent", "absent"],
                ["absent", "3", "f", "7"]
            ]
        );
    }

    #[test]
    fn each_span_of_a_place_has_a_row() {
        let list = vec![annotation("two", 0x10, &[0, 1]), annotation("other", 0x20, &[])];
        assert_eq!(
            cells(list, &["A", "B"]),
            [["0x10", "1", "A", "7"], ["0x10", "1", "B", "8"], ["0x20", "2", "absent", "absent"]]
        );
    }
}
