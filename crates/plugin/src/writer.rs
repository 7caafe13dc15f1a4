//! Writes the record stream.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use simrecord::record::{End, RECORDS_MAX, Record};

/// What ends a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// QEMU's end.
    Exit,
    /// The guest's marker.
    Marker,
    /// An annotation.
    Annotation,
}

/// A record stream that is being written. When the disk is full it is left without an end, and so
/// incomplete.
pub(crate) struct Writer {
    to: BufWriter<File>,
    records: u64,
    truncated: bool,
    failed: bool,
}

impl Writer {
    /// Begins a stream in a new file, or over an old one.
    pub(crate) fn create(path: &Path) -> Result<Writer, String> {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Writer { to: BufWriter::new(file), records: 0, truncated: false, failed: false })
    }

    /// Writes a record.
    pub(crate) fn write(&mut self, record: &Record) {
        if self.records == RECORDS_MAX {
            self.truncated = true;
        } else {
            self.put(record);
        }
    }

    /// Writes the last record.
    pub(crate) fn end(&mut self, by: Ending, instructions: Option<u64>) {
        let (truncated, records) = (self.truncated, self.records);
        let (by_marker, by_annotation) = (by == Ending::Marker, by == Ending::Annotation);
        self.put(&Record::End(End { by_marker, by_annotation, truncated, instructions, records }));
        self.flush();
    }

    /// Hands to the kernel what is still here.
    pub(crate) fn flush(&mut self) {
        let flushed = self.to.flush();
        self.note(flushed);
    }

    fn put(&mut self, record: &Record) {
        if !self.failed {
            self.records += 1;
            let written = self.to.write_all(&record.encode());
            self.note(written);
        }
    }

    fn note(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result
            && !self.failed
        {
            self.failed = true;
            eprintln!("irqlab plugin: the record can't be written: {error}");
        }
    }
}
