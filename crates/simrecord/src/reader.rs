//! Reads a stream of records, which may come from a damaged file: each record and the order of header and end are
//! checked, and the length is bounded.

use std::fmt;
use std::io::{self, Read};

use crate::record::{BYTES, End, Header, RECORDS_MAX, Record, RecordError};

/// Why a stream cannot be read. Positions count records; the header has position 0.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// The record at this position is invalid.
    Record(u64, RecordError),
    /// The stream does not start with a header, or has a second header.
    Header(u64),
    /// The stream stops without an end record, or in the middle of a record: QEMU was killed, or the disk was full.
    Incomplete(u64),
    /// A record follows the end record, or the end record counts the records wrongly.
    End(u64),
    /// The stream has more than [`RECORDS_MAX`] records.
    TooLong,
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => write!(out, "{error}"),
            ReadError::Record(position, error) => write!(out, "record {position}: {error}"),
            ReadError::Header(position) => {
                write!(out, "record {position}: only the first record must be a header")
            }
            ReadError::Incomplete(position) => {
                write!(out, "incomplete: only {position} records")
            }
            ReadError::End(position) => {
                write!(
                    out,
                    "record {position}: the end record is not the last, or has a wrong count"
                )
            }
            ReadError::TooLong => write!(out, "more than {RECORDS_MAX} records"),
        }
    }
}

impl std::error::Error for ReadError {}

/// A complete stream of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    pub header: Header,
    /// The records between header and end.
    pub records: Vec<Record>,
    pub end: End,
}

/// Reads a stream from its header to its end record.
///
/// Fails at the first problem. A stream without an end record is [`ReadError::Incomplete`].
pub fn read(mut input: impl Read) -> Result<Stream, ReadError> {
    let header = match next_record(&mut input, 0)? {
        Some(Record::Header(header)) => header,
        Some(_) => return Err(ReadError::Header(0)),
        None => return Err(ReadError::Incomplete(0)),
    };
    let mut records = Vec::new();
    for position in 1..=RECORDS_MAX {
        match next_record(&mut input, position)? {
            None => return Err(ReadError::Incomplete(position)),
            Some(Record::Header(_)) => return Err(ReadError::Header(position)),
            Some(Record::End(end)) => {
                let has_more = next_record(&mut input, position + 1)?.is_some();
                if has_more || end.records != position {
                    return Err(ReadError::End(position));
                }
                return Ok(Stream { header, records, end });
            }
            Some(record) => records.push(record),
        }
    }
    Err(ReadError::TooLong)
}

/// The record at `position`, which is the next one, or `None` at the end of the file.
fn next_record(input: &mut impl Read, position: u64) -> Result<Option<Record>, ReadError> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        match input.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(ReadError::Incomplete(position)),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReadError::Io(error)),
        }
    }
    Record::decode(&bytes).map(Some).map_err(|error| ReadError::Record(position, error))
}
