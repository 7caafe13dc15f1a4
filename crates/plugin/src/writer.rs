//! Writes the record stream.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use simrecord::counters::Counts;
use simrecord::record::{
    COUNTERS_PER_RECORD, Counters, CountersOf, End, Notice, RECORDS_MAX, Record,
};

/// The event that ends a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// QEMU has ended.
    Exit,
    /// The guest has executed the marker that ends the record.
    Marker,
    Annotation,
}

/// A record stream that is being written. If the disk is full, the stream gets no end record, and is incomplete.
pub(crate) struct Writer {
    to: BufWriter<File>,
    records: u64,
    truncated: bool,
    failed: bool,
    has_ended: bool,
}

impl Writer {
    /// Begins a stream in a new file, or over an old one.
    pub(crate) fn create(path: &Path) -> Result<Writer, String> {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let to = BufWriter::new(file);
        Ok(Writer { to, records: 0, truncated: false, failed: false, has_ended: false })
    }

    pub(crate) fn write(&mut self, record: &Record) {
        if self.records == RECORDS_MAX {
            self.truncated = true;
        } else {
            self.put(record);
        }
    }

    /// Writes a notice, also to the standard error output.
    pub(crate) fn notice(&mut self, notice: Notice, cpu: u32, value: u64) {
        eprintln!("irqlab plugin: {notice}");
        self.write(&Record::Notice(notice, cpu, value));
    }

    /// Writes counters, [`COUNTERS_PER_RECORD`] in each record.
    pub(crate) fn counters(&mut self, cpu: u32, of: CountersOf, counts: &Counts) {
        self.counters_if(cpu, of, counts, |_, _| true);
    }

    /// Like [`Writer::counters`], without records that hold only zeros. The first record is always written.
    pub(crate) fn counters_without_zeros(&mut self, cpu: u32, of: CountersOf, counts: &Counts) {
        self.counters_if(cpu, of, counts, |part, values| {
            part == 0 || values.iter().any(|value| *value > 0)
        });
    }

    fn counters_if(
        &mut self,
        cpu: u32,
        of: CountersOf,
        counts: &Counts,
        is_wanted: impl Fn(usize, &[u64]) -> bool,
    ) {
        for (part, chunk) in counts.chunks(COUNTERS_PER_RECORD).enumerate() {
            if is_wanted(part, chunk) {
                let mut values = [0; COUNTERS_PER_RECORD];
                values[..chunk.len()].copy_from_slice(chunk);
                let first = (part * COUNTERS_PER_RECORD) as u32;
                self.write(&Record::Counters(Counters { cpu, of, first, values }));
            }
        }
    }

    /// Whether the last record is written.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Writes the last record.
    pub(crate) fn end(&mut self, by: Ending, instructions: Option<u64>) {
        let (truncated, records) = (self.truncated, self.records);
        let (by_marker, by_annotation) = (by == Ending::Marker, by == Ending::Annotation);
        self.put(&Record::End(End { by_marker, by_annotation, truncated, instructions, records }));
        self.flush();
        self.has_ended = true;
    }

    /// Hands the buffered records to the kernel.
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
