//! The results of annotations: how often places of the kernel were reached, and the recorded values.

use std::collections::BTreeMap;

use simrecord::parsed::ParsedRecord;
use simrecord::record::{Value, ValuesKind};

use super::bad;
use crate::Result;

/// The results of an annotation in a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationUse {
    /// How often each CPU reached the annotation, by CPU number.
    pub hits: Vec<u64>,
    /// Spans that could not be opened or closed.
    pub refused: u64,
    pub values: Vec<RecordedValues>,
}

/// Values that an action recorded together, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedValues {
    /// The position of the recording action in the annotation's list of actions.
    pub action: u32,
    /// `None`: this row sums up all values that have no row of their own.
    pub values: Option<Vec<Value>>,
    /// How often these values were recorded.
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Counts from 1.
    pub region: u32,
    /// The annotation's position in the list.
    pub annotation: u32,
    /// The position of the recording action in the annotation's list of actions.
    pub action: u32,
    pub cpu: u32,
    /// Time of the hit by the guest's time-stamp counter, in ns. Readings of two CPUs differ by up to two time slices.
    pub at_ns: u64,
    pub values: Vec<Value>,
}

/// How often values were recorded, by the position of the recording action and by the values.
type ValueCounts = BTreeMap<(u32, Option<Vec<Value>>), u64>;

/// The results of annotations, by region and number of the annotation.
pub(super) type Annotations = BTreeMap<(u32, u32), AnnotationUse>;

/// Collects the results of annotations, and the hits sorted by region and time. Fails if an annotation lacks a CPU, or if
/// values belong to no annotation.
pub(super) fn annotations(parsed: &ParsedRecord) -> Result<(Annotations, Vec<Hit>)> {
    let (mut results, mut hits) = (Annotations::new(), Vec::new());
    for row in &parsed.annotations {
        let annotation_use = results.entry((row.region, row.annotation)).or_default();
        // CPU 0 comes first in a snapshot. The rows of a later snapshot replace the rows of an earlier one.
        if row.cpu == 0 {
            *annotation_use = AnnotationUse { refused: row.refused, ..AnnotationUse::default() };
        }
        if annotation_use.hits.len() != row.cpu as usize {
            return Err(bad("an annotation lacks a CPU"));
        }
        annotation_use.hits.push(row.hits);
    }
    let mut value_counts: BTreeMap<(u32, u32), ValueCounts> = BTreeMap::new();
    for row in &parsed.values {
        let (row_header, values) = (row.values, row.recorded.clone());
        let key = (row_header.region, row_header.annotation);
        let values = match row_header.kind {
            ValuesKind::Count => Some(values),
            ValuesKind::Others => None,
            ValuesKind::Hit => {
                hits.push(Hit {
                    region: row_header.region,
                    annotation: row_header.annotation,
                    action: row_header.action,
                    cpu: row_header.cpu,
                    at_ns: row_header.number,
                    values,
                });
                continue;
            }
        };
        // Counts never decrease, so the last one is current.
        value_counts.entry(key).or_default().insert((row_header.action, values), row_header.number);
    }
    for (key, values) in value_counts {
        let annotation_use = results.get_mut(&key).ok_or_else(|| bad("values of no annotation"))?;
        let row = |((action, values), count)| RecordedValues { action, values, count };
        annotation_use.values = values.into_iter().map(row).collect();
        // Frequent values first in each action; the sum of the other values last.
        annotation_use
            .values
            .sort_by_key(|row| (row.action, row.values.is_none(), u64::MAX - row.count));
    }
    // The record has all hits of a CPU's time slice before the hits of the next CPU.
    hits.sort_by_key(|hit: &Hit| (hit.region, hit.at_ns));
    Ok((results, hits))
}
