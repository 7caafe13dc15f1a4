//! Writes the record stream, in the format of [`simrecord::record`]. The session has one [`Writer`].

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use simrecord::counters::Counts;
use simrecord::record::{
    COUNTERS_PER_RECORD, Counters, CountersOf, End, Notice, RECORDS_MAX, Record,
};

/// The event that ends the record stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// QEMU has ended.
    Exit,
    /// The guest has executed the marker that ends the record.
    Marker,
    Annotation,
}

/// A record stream that is being written. After an error, for example on a full disk, nothing more is written. The
/// stream then has no end record, and readers find it incomplete.
pub(crate) struct Writer {
    file: BufWriter<File>,
    /// The number of records written.
    records: u64,
    /// Whether a record was left out because the stream has [`RECORDS_MAX`] records.
    is_truncated: bool,
    has_failed: bool,
    has_ended: bool,
}

impl Writer {
    /// Starts a stream in a file. An existing file is overwritten.
    pub(crate) fn create(path: &Path) -> Result<Writer, String> {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = BufWriter::new(file);
        Ok(Writer { file, records: 0, is_truncated: false, has_failed: false, has_ended: false })
    }

    /// Writes a record, or leaves it out if the stream is full.
    pub(crate) fn write(&mut self, record: &Record) {
        if self.records == RECORDS_MAX {
            self.is_truncated = true;
        } else {
            self.put(record);
        }
    }

    /// Writes a notice to the stream and to the standard error output.
    pub(crate) fn notice(&mut self, notice: Notice, cpu: u32, value: u64) {
        eprintln!("irqlab plugin: {notice}");
        self.write(&Record::Notice(notice, cpu, value));
    }

    /// Writes a notice that needs no value.
    pub(crate) fn notice_without_value(&mut self, notice: Notice, cpu: u32) {
        self.notice(notice, cpu, 0);
    }

    /// Writes the counters of the preceding record, [`COUNTERS_PER_RECORD`] in each record of counters.
    pub(crate) fn counters(&mut self, cpu: u32, owner: CountersOf, counts: &Counts) {
        self.counters_if(cpu, owner, counts, |_, _| true);
    }

    /// Writes the counters of the preceding record, without records that hold only zeros. Always writes the first record.
    pub(crate) fn counters_without_zeros(&mut self, cpu: u32, owner: CountersOf, counts: &Counts) {
        self.counters_if(cpu, owner, counts, |part, values| {
            part == 0 || values.iter().any(|value| *value > 0)
        });
    }

    /// Writes the wanted records of counters. `is_wanted` gets the number of a record, from 0, and its counters.
    fn counters_if(
        &mut self,
        cpu: u32,
        owner: CountersOf,
        counts: &Counts,
        is_wanted: impl Fn(usize, &[u64]) -> bool,
    ) {
        for (part, chunk) in counts.chunks(COUNTERS_PER_RECORD).enumerate() {
            if is_wanted(part, chunk) {
                let mut values = [0; COUNTERS_PER_RECORD];
                values[..chunk.len()].copy_from_slice(chunk);
                let first = (part * COUNTERS_PER_RECORD) as u32;
                self.write(&Record::Counters(Counters { cpu, of: owner, first, values }));
            }
        }
    }

    /// Whether the end record is written. Nothing may be written after it.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Writes the end record. `instructions`: of all vCPUs, or `None` if they were not counted.
    pub(crate) fn end(&mut self, ending: Ending, instructions: Option<u64>) {
        let (truncated, records) = (self.is_truncated, self.records);
        let (by_marker, by_annotation) = (ending == Ending::Marker, ending == Ending::Annotation);
        self.put(&Record::End(End { by_marker, by_annotation, truncated, instructions, records }));
        self.flush();
        self.has_ended = true;
    }

    /// Hands the buffered records to the kernel.
    pub(crate) fn flush(&mut self) {
        let flushed = self.file.flush();
        self.note_failure(flushed);
    }

    /// Writes a record, unless an earlier record could not be written.
    fn put(&mut self, record: &Record) {
        if !self.has_failed {
            self.records += 1;
            let written = self.file.write_all(&record.encode());
            self.note_failure(written);
        }
    }

    /// Reports the first error.
    fn note_failure(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result
            && !self.has_failed
        {
            self.has_failed = true;
            eprintln!("irqlab plugin: the record can't be written: {error}");
        }
    }
}
