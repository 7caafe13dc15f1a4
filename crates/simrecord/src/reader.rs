//! Reads a stream of records. The stream's length is bounded.

use std::fmt;
use std::io::{self, Read};

use crate::record::{BYTES, End, Header, RECORDS_MAX, Record, RecordError};

/// Why a stream cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// The record at this position is invalid.
    Record(u64, RecordError),
    /// The stream does not start with a header, or has a second header.
    Header(u64),
    /// The stream stops without an end record, or in the middle of a record: QEMU was killed, or
    /// the disk was full.
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
            ReadError::Record(at, error) => write!(out, "record {at}: {error}"),
            ReadError::Header(at) => {
                write!(out, "record {at}: only the first record must be a header")
            }
            ReadError::Incomplete(at) => write!(out, "incomplete: it stops after record {at}"),
            ReadError::End(at) => {
                write!(out, "record {at}: the end record is not the last, or has a wrong count")
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

/// Reads a stream to its end.
///
/// The error is the problem of the stream. A stream without an end is [`ReadError::Incomplete`].
pub fn read(mut from: impl Read) -> Result<Stream, ReadError> {
    let header = match next(&mut from, 0)? {
        Some(Record::Header(header)) => header,
        Some(_) => return Err(ReadError::Header(0)),
        None => return Err(ReadError::Incomplete(0)),
    };
    let mut records = Vec::new();
    for at in 1..=RECORDS_MAX {
        match next(&mut from, at)? {
            None => return Err(ReadError::Incomplete(at)),
            Some(Record::Header(_)) => return Err(ReadError::Header(at)),
            Some(Record::End(end)) => {
                let follows = next(&mut from, at + 1)?.is_some();
                if follows || end.records != at {
                    return Err(ReadError::End(at));
                }
                return Ok(Stream { header, records, end });
            }
            Some(record) => records.push(record),
        }
    }
    Err(ReadError::TooLong)
}

/// The next record, or `None` at the end of the file.
fn next(from: &mut impl Read, at: u64) -> Result<Option<Record>, ReadError> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        match from.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(ReadError::Incomplete(at)),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReadError::Io(error)),
        }
    }
    Record::decode(&bytes).map(Some).map_err(|error| ReadError::Record(at, error))
}
