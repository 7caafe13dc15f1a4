//! Finds where the records of two runs of a machine start to differ, for `irqlab sim diff`.
//!
//! Records are written in the order of guest time, so the first difference shows the first event that differs
//! between the runs. With a record of all context transitions ([`crate::watch::Watch::transitions`]), the
//! event is the first task, system call or interrupt that differs.

use std::io::BufReader;
use std::path::Path;

use attribution::KernelContext;
use simrecord::difference::{self, Block};
use simrecord::record::Record;

use crate::regular_file::open_regular;
use crate::{Accounting, Result, SimError, accounting};

/// The first difference of two records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The position of the first record that differs, from 0.
    pub at: u64,
    /// The last events before the difference, which both records share.
    pub before: Vec<RecordedEvent>,
    /// The events of each record from the difference on; empty if the record has ended.
    pub after: [Vec<RecordedEvent>; 2],
}

/// A record as text for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Its position, from 0.
    pub position: u64,
    pub cpu: Option<u32>,
    /// When, in cycles on the time axis of the CPU, where that is known.
    pub at_cycles: Option<u64>,
    /// The kind of record: `transition`, `span`, `marker`, ...
    pub kind: &'static str,
    pub context: Option<String>,
    /// Its other fields, as text.
    pub detail: String,
}

/// Compares two files of records, which `--record` kept. Returns `None` if the files are equal. `around`: the
/// number of events to return before and after the difference.
///
/// Fails when a file cannot be read, or does not start with the header of a record.
pub fn find(paths: [&Path; 2], around: usize) -> Result<Option<Divergence>> {
    let files = [open_regular(paths[0])?, open_regular(paths[1])?];
    for (file, path) in files.iter().zip(paths) {
        accounting::check_is_record(file)
            .map_err(|reason| SimError::data(path.display().to_string(), reason))?;
    }
    let [mut first_reader, mut second_reader] = files.each_ref().map(BufReader::new);
    let found = difference::first_difference([&mut first_reader, &mut second_reader], around)
        .map_err(|(index, error)| SimError::file(paths[index])(error))?;
    let Some(found) = found else { return Ok(None) };
    // The names of tasks come late in a record. A damaged record therefore has events without names.
    let names =
        files.iter().find_map(|file| Accounting::of_record(&accounting::read(file).ok()?).ok());
    let names = names.unwrap_or_default();
    let start = found.at - found.before.len() as u64;
    let events = |blocks: &[Block], start: u64| {
        let blocks = blocks.iter().zip(start..);
        blocks.map(|(block, position)| event(block.as_ref(), position, &names)).collect()
    };
    Ok(Some(Divergence {
        at: found.at,
        before: events(&found.before, start),
        after: found.after.each_ref().map(|blocks| events(blocks, found.at)),
    }))
}

/// Describes a record; `block` is `None` if the bytes are no record.
fn event(block: Option<&Record>, position: u64, names: &Accounting) -> RecordedEvent {
    let name = |code: u64| KernelContext::from_code(code).map(|context| names.name_of(context));
    let (cpu, at_cycles, kind, context, detail) = match block {
        None => (None, None, "no record", None, String::new()),
        Some(Record::Transition(transition)) => {
            let task = name(transition.task).unwrap_or_default();
            let detail = format!(
                "task {task}, {} cycles executed, tsc {}",
                transition.cycles, transition.tsc
            );
            (Some(transition.cpu), Some(transition.at), "transition", name(transition.code), detail)
        }
        Some(Record::Span(span)) => {
            let detail = format!(
                "{} cycles, {} of them self; {} instructions, {} self",
                span.inclusive_cycles,
                span.self_cycles,
                span.inclusive_instructions,
                span.self_instructions
            );
            (Some(span.cpu), Some(span.ended_at()), "span", name(span.code), detail)
        }
        Some(Record::Marker(marker)) => {
            let counts =
                format!("{} interrupts, {} exceptions", marker.interrupts, marker.exceptions);
            let detail =
                format!("number {}, argument {}, {counts}", marker.number, marker.argument);
            (Some(marker.cpu), None, "marker", None, detail)
        }
        Some(Record::Region(region)) => {
            let detail = format!("number {}", region.region);
            (Some(region.cpu), Some(region.opened_at), "region", None, detail)
        }
        Some(Record::Context(row)) => {
            let detail = format!("{} entries, {} completed", row.entries, row.completed);
            (Some(row.cpu), None, "context", name(row.code), detail)
        }
        Some(Record::Counters(counters)) => {
            let detail =
                format!("{:?} from {}: {:?}", counters.of, counters.first, counters.values);
            (Some(counters.cpu), None, "counters", None, detail)
        }
        Some(other) => (None, None, "other", None, format!("{other:?}")),
    };
    RecordedEvent { position, cpu, at_cycles, kind, context, detail }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use simrecord::record::{BYTES, Detail, Header, Roi, Transition};

    use super::*;

    /// Returns a stream of a header and these records, without an end record.
    fn stream(records: &[Record]) -> Vec<u8> {
        let header = Record::Header(Header {
            cpus: 2,
            api: 7,
            detail: Detail::Count,
            roi: Roi::Marker,
            vcpu_slice: 1000,
            qemu: [0; 16],
            features: 0,
            counters: 0,
        });
        [header].iter().chain(records).flat_map(Record::encode).collect()
    }

    fn transition(at: u64, code: KernelContext) -> Record {
        let (task, cpu) = (KernelContext::User(7).code(), 1);
        let code = code.code();
        Record::Transition(Transition { cpu, region: 1, code, task, at, cycles: at, tsc: at })
    }

    #[test]
    fn a_planted_difference_is_found_at_its_place() {
        let scratch = tempfile::tempdir().unwrap();
        let events: Vec<Record> = (0..50)
            .map(|number| transition(number * 100, KernelContext::Syscall(number as u32)))
            .collect();
        let mut bytes = stream(&events);
        let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
        fs::write(&one, &bytes).unwrap();
        fs::write(&other, &bytes).unwrap();
        assert_eq!(find([&one, &other], 3).unwrap(), None);
        // The header is record 0, so event 20 is record 21.
        let late = transition(2_021, KernelContext::Interrupt(0x21));
        bytes[21 * BYTES..22 * BYTES].copy_from_slice(&late.encode());
        fs::write(&other, &bytes).unwrap();
        let found = find([&one, &other], 3).unwrap().unwrap();
        assert_eq!((found.at, found.before.len()), (21, 3));
        assert_eq!(found.before[2].at_cycles, Some(1_900));
        let [one_after, other_after] = &found.after;
        assert_eq!((one_after[0].at_cycles, other_after[0].at_cycles), (Some(2_000), Some(2_021)));
        assert_eq!(one_after[0].context.as_deref(), Some("syscall writev"));
        assert_eq!((other_after[0].cpu, other_after[0].position), (Some(1), 21));
        assert!(other_after[0].context.as_deref().unwrap().contains("0x21"));
        assert_eq!(one_after[1], other_after[1]);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("text");
        fs::write(&path, "x".repeat(BYTES)).unwrap();
        let error = find([&path, &path], 3).unwrap_err().to_string();
        assert!(error.contains("text"), "{error}");
        assert!(find([&scratch.path().join("none"), &path], 3).is_err());
    }
}
