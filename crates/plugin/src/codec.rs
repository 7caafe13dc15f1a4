//! Records to bytes and back.

use crate::options::{CPUS_MAX, Detail, Roi};
use crate::record::{
    BYTES, Check, ContextRow, End, FORMAT_VERSION, Header, MAGIC, Marker, MarkerCounts, Notice,
    Record, RecordError, Region, Task,
};

const HEADER: u32 = 1;
const MARKER: u32 = 2;
const REGION: u32 = 3;
const CONTEXT: u32 = 4;
const TASK: u32 = 5;
const NOTICE: u32 = 6;
const CHECK: u32 = 7;
const END: u32 = 8;

/// A marker with counters.
const COUNTED: u64 = 1;
/// A marker with the region open behind it.
const OPEN: u64 = 2;
/// An end by a marker.
const BY_MARKER: u64 = 1;
/// An end after records were left out.
const TRUNCATED: u64 = 2;
/// An end with a count.
const TOTAL: u64 = 4;

impl Record {
    /// The bytes of the record.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        let (kind, cpu, words) = match self {
            Record::Header(header) => header_words(header),
            Record::Marker(marker) => marker_words(marker),
            Record::Region(region) => (
                REGION,
                region.cpu,
                [
                    u64::from(region.region),
                    region.instructions,
                    region.unknown_gates,
                    region.unmatched_returns,
                    region.abandoned,
                    region.overflows,
                    region.broken,
                ],
            ),
            Record::Context(row) => (
                CONTEXT,
                row.cpu,
                [
                    u64::from(row.region),
                    row.code,
                    row.own,
                    row.inclusive,
                    row.entries,
                    row.completed,
                    0,
                ],
            ),
            Record::Task(task) => {
                let (low, high) = halves(&task.comm);
                (TASK, 0, [u64::from(task.pid), low, high, 0, 0, 0, 0])
            }
            Record::Notice(notice, cpu, value) => {
                (NOTICE, *cpu, [*notice as u64, *value, 0, 0, 0, 0, 0])
            }
            Record::Check(check) => (CHECK, 0, [check.counted, check.icount, 0, 0, 0, 0, 0]),
            Record::End(end) => {
                let flags = bit(end.by_marker, BY_MARKER)
                    | bit(end.truncated, TRUNCATED)
                    | bit(end.instructions.is_some(), TOTAL);
                (END, 0, [flags, end.instructions.unwrap_or(0), end.records, 0, 0, 0, 0])
            }
        };
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&cpu.to_le_bytes());
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The record of these bytes.
    ///
    /// # Errors
    /// What in them no version of this program writes.
    pub fn decode(bytes: &[u8; BYTES]) -> Result<Record, RecordError> {
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let word =
            |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 + 8 * at + byte]));
        let words: [u64; 7] = std::array::from_fn(word);
        let (kind, cpu) = (half(0), half(4));
        let record = decode_words(kind, cpu, &words)?;
        // What is not written must be zero, so that it can mean something one day.
        if record.encode() == *bytes { Ok(record) } else { Err(RecordError::Field(kind)) }
    }
}

type Words = (u32, u32, [u64; 7]);

fn header_words(header: &Header) -> Words {
    let (low, high) = halves(&header.qemu);
    let detail = match header.detail {
        Detail::Fast => 0,
        Detail::Count => 1,
    };
    let roi = match header.roi {
        Roi::Marker => 0,
        Roi::Always => 1,
    };
    let versions = u64::from(header.api) << 32 | u64::from(FORMAT_VERSION);
    let how = roi << 8 | detail;
    (HEADER, header.cpus, [MAGIC, versions, how, header.quantum, low, high, header.features])
}

fn marker_words(marker: &Marker) -> Words {
    let flags = bit(marker.counts.is_some(), COUNTED) | bit(marker.open, OPEN);
    let number = u64::from(marker.number) | flags << 32;
    let counts = match marker.counts {
        Some(counts) => {
            [counts.instructions, counts.instructions_total, counts.interrupts, counts.exceptions]
        }
        None => [0; 4],
    };
    let [own, total, interrupts, exceptions] = counts;
    (MARKER, marker.cpu, [number, marker.argument, own, total, interrupts, exceptions, 0])
}

fn decode_words(kind: u32, cpu: u32, words: &[u64; 7]) -> Result<Record, RecordError> {
    let small = |word: u64| u32::try_from(word).map_err(|_| RecordError::Field(kind));
    if kind != HEADER && cpu as usize >= CPUS_MAX {
        return Err(RecordError::Field(kind));
    }
    Ok(match kind {
        HEADER => Record::Header(decode_header(cpu, words)?),
        MARKER => Record::Marker(Marker {
            cpu,
            number: words[0] as u32,
            argument: words[1],
            open: words[0] >> 32 & OPEN != 0,
            counts: (words[0] >> 32 & COUNTED != 0).then_some(MarkerCounts {
                instructions: words[2],
                instructions_total: words[3],
                interrupts: words[4],
                exceptions: words[5],
            }),
        }),
        REGION => Record::Region(Region {
            cpu,
            region: small(words[0])?,
            instructions: words[1],
            unknown_gates: words[2],
            unmatched_returns: words[3],
            abandoned: words[4],
            overflows: words[5],
            broken: words[6],
        }),
        CONTEXT => Record::Context(ContextRow {
            cpu,
            region: small(words[0])?,
            code: words[1],
            own: words[2],
            inclusive: words[3],
            entries: words[4],
            completed: words[5],
        }),
        TASK => Record::Task(Task { pid: small(words[0])?, comm: joined(words[1], words[2]) }),
        NOTICE => {
            let notice = Notice::of(words[0]).ok_or(RecordError::Field(kind))?;
            Record::Notice(notice, cpu, words[1])
        }
        CHECK => Record::Check(Check { counted: words[0], icount: words[1] }),
        END => Record::End(End {
            by_marker: words[0] & BY_MARKER != 0,
            truncated: words[0] & TRUNCATED != 0,
            instructions: (words[0] & TOTAL != 0).then_some(words[1]),
            records: words[2],
        }),
        _ => return Err(RecordError::Kind(kind)),
    })
}

fn decode_header(cpus: u32, words: &[u64; 7]) -> Result<Header, RecordError> {
    if words[0] != MAGIC {
        return Err(RecordError::Magic);
    }
    let version = words[1] as u32;
    if version != FORMAT_VERSION {
        return Err(RecordError::Version(version));
    }
    let wrong = RecordError::Field(HEADER);
    if cpus == 0 || cpus as usize > CPUS_MAX {
        return Err(wrong);
    }
    Ok(Header {
        cpus,
        api: (words[1] >> 32) as u32,
        detail: if words[2] & 0xff == 0 { Detail::Fast } else { Detail::Count },
        roi: if words[2] >> 8 == 0 { Roi::Marker } else { Roi::Always },
        quantum: words[3],
        qemu: joined(words[4], words[5]),
        features: words[6],
    })
}

fn bit(set: bool, bit: u64) -> u64 {
    if set { bit } else { 0 }
}

fn halves(bytes: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*bytes);
    (both as u64, (both >> 64) as u64)
}

fn joined(low: u64, high: u64) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}
