//! Records to bytes and back.

mod decode;
mod encode;

use crate::record::{BYTES, Record, RecordError};

const HEADER: u32 = 1;
const MARKER: u32 = 2;
const REGION: u32 = 3;
const CONTEXT: u32 = 4;
const TASK: u32 = 5;
const NOTICE: u32 = 6;
const CHECK: u32 = 7;
const END: u32 = 8;
const AMOUNTS_OF: u32 = 9;
const SPAN: u32 = 10;
const KERNEL_COUNT: u32 = 11;
const IRQ_NAME: u32 = 12;
const NOTE: u32 = 13;
const VALUES: u32 = 14;
const VALUE: u32 = 15;
const BESIDE: u32 = 16;
const CURVE: u32 = 17;
const TURN: u32 = 18;
const MISSES: u32 = 19;

/// A marker with the region open behind it.
const OPEN: u64 = 1;
/// A kernel's count where the region closed.
const AT_CLOSE: u64 = 1;
/// A kernel's count whose CPU was inside of what is counted.
const INSIDE: u64 = 2;
/// An end by a marker.
const BY_MARKER: u64 = 1;
/// An end after records were left out.
const TRUNCATED: u64 = 2;
/// An end with a count.
const TOTAL: u64 = 4;
/// An end by an annotation.
const BY_ANNOTATION: u64 = 8;
/// A value that could not be read, is a number, is a text.
const ABSENT: u64 = 0;
const NUMBER: u64 = 1;
const TEXT: u64 = 2;

impl Record {
    /// The bytes of the record.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        let (kind, cpu, words) = encode::words(self);
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
        let record = decode::record(kind, cpu, &words)?;
        // What is not written must be zero, so that it can mean something one day.
        if record.encode() == *bytes { Ok(record) } else { Err(RecordError::Field(kind)) }
    }
}

/// Text as numbers of 8 bytes.
fn words_of<const WORDS: usize>(text: &[u8]) -> [u64; WORDS] {
    std::array::from_fn(|at| {
        let byte = |index: usize| text.get(8 * at + index).copied().unwrap_or(0);
        u64::from_le_bytes(std::array::from_fn(byte))
    })
}

/// Numbers of 8 bytes as text.
fn text_of<const BYTES: usize>(words: &[u64]) -> [u8; BYTES] {
    std::array::from_fn(|index| {
        words.get(index / 8).map_or(0, |word| word.to_le_bytes()[index % 8])
    })
}
