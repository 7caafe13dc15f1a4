//! What came of annotations, from the record.

use std::collections::BTreeMap;

use simrecord::parsed::ParsedRecord;
use simrecord::record::{Value, ValuesKind};

use crate::{Result, SimError};

/// What came of an annotation in a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoteUse {
    /// How often each CPU came to it.
    pub hits: Vec<u64>,
    /// Spans that could not be opened or closed.
    pub refused: u64,
    /// What it recorded.
    pub values: Vec<ValuesUse>,
}

/// Values that were recorded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValuesUse {
    /// The position of what the annotation does.
    pub deed: u32,
    /// The values; `None` stands for all others than those that are told.
    pub values: Option<Vec<Value>>,
    /// How often.
    pub count: u64,
}

/// One hit that recorded values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitUse {
    /// The region, from 1.
    pub region: u32,
    /// The annotation's position in the list.
    pub note: u32,
    /// The position of what it does.
    pub deed: u32,
    /// The CPU.
    pub cpu: u32,
    /// When, in cycles on the time axis of the CPU.
    pub at_cycles: u64,
    /// The values.
    pub values: Vec<Value>,
}

/// By region and number of the annotation; and the hits, in the order of the record.
pub(crate) type Outcome = (BTreeMap<(u32, u32), NoteUse>, Vec<HitUse>);

/// Counts of values, by position of what the annotation does.
type Told = BTreeMap<(u32, Option<Vec<Value>>), u64>;

/// Puts together what the record has of annotations.
///
/// # Errors
/// When records contradict each other.
pub(crate) fn outcome(parsed: &ParsedRecord) -> Result<Outcome> {
    let bad = |reason: &str| SimError::data("the record of the machine", reason);
    let (mut notes, mut hits) = (BTreeMap::new(), Vec::new());
    for row in &parsed.annotations {
        let used: &mut NoteUse = notes.entry((row.region, row.annotation)).or_default();
        // A snapshot tells all; what comes later replaces it.
        if row.cpu == 0 {
            *used = NoteUse { refused: row.refused, ..NoteUse::default() };
        }
        if used.hits.len() != row.cpu as usize {
            return Err(bad("an annotation lacks a CPU"));
        }
        used.hits.push(row.hits);
    }
    let mut told: BTreeMap<(u32, u32), Told> = BTreeMap::new();
    for one in &parsed.values {
        let (head, values) = (one.values, one.recorded.clone());
        let key = (head.region, head.annotation);
        let values = match head.kind {
            ValuesKind::Count => Some(values),
            ValuesKind::Others => None,
            ValuesKind::Hit => {
                let (region, note, deed, cpu) =
                    (head.region, head.annotation, head.action, head.cpu);
                hits.push(HitUse { region, note, deed, cpu, at_cycles: head.number, values });
                continue;
            }
        };
        // Counts never decrease, so the last is right.
        told.entry(key).or_default().insert((head.action, values), head.number);
    }
    for (key, told) in told {
        let used = notes.get_mut(&key).ok_or_else(|| bad("values of no annotation"))?;
        let row = |((deed, values), count)| ValuesUse { deed, values, count };
        used.values = told.into_iter().map(row).collect();
        used.values.sort_by_key(|one| (one.deed, one.values.is_none(), u64::MAX - one.count));
    }
    Ok((notes, hits))
}
