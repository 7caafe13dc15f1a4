//! Writes the execution of the first vCPU at the level `ooo` as a [`machine::block_trace`]. This is for developers of
//! the models, who execute the trace again without QEMU, by the example `replay` of `machine`.
//!
//! The environment variable `IRQLAB_BLOCK_TRACE=FILE:SKIP:NUMBER` asks for a trace of NUMBER instructions after the
//! first SKIP. The record does not depend on the trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;

use machine::VirtualAddress;
use machine::block_trace::{BlockCode, BlockRun, TraceEntry};
use machine::core::{Access, Template};

/// The buffer is written to the file when it has this many bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// A trace that is being written.
pub(crate) struct BlockTrace {
    file: File,
    buffer: Vec<u8>,
    /// How many instructions execute before the trace starts.
    skip: u64,
    /// How many further instructions the trace takes.
    remaining: u64,
    /// Blocks by the addresses of their templates: the block's number in the trace, or the code of a block that is not
    /// in the trace yet.
    blocks: BTreeMap<usize, Result<u32, BlockCode>>,
    /// The number of the next block that enters the trace.
    next_number: u32,
}

impl BlockTrace {
    /// Starts the trace that the environment variable asks for. `None` without the variable.
    ///
    /// Fails if the variable has another form, or the file exists or cannot be created.
    pub(crate) fn from_environment() -> Result<Option<BlockTrace>, String> {
        let Ok(text) = std::env::var("IRQLAB_BLOCK_TRACE") else { return Ok(None) };
        let wrong = || format!("IRQLAB_BLOCK_TRACE={text}: must be FILE:SKIP:NUMBER");
        let mut parts = text.rsplitn(3, ':');
        let mut next_number = || parts.next().and_then(|text| text.parse().ok()).ok_or_else(wrong);
        // `rsplitn` gives the last part first.
        let (number, skip) = (next_number()?, next_number()?);
        let path = parts.next().ok_or_else(wrong)?;
        let file = File::create_new(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Some(BlockTrace::new(file, skip, number)))
    }

    fn new(file: File, skip: u64, number: u64) -> BlockTrace {
        let (buffer, blocks) = (Vec::with_capacity(2 * BUFFER_BYTES), BTreeMap::new());
        BlockTrace { file, buffer, skip, remaining: number, blocks, next_number: 0 }
    }

    /// Keeps the code of a block that QEMU has translated, until the block executes.
    pub(crate) fn translated(&mut self, template: *const Template, code: BlockCode) {
        self.blocks.insert(template.addr(), Err(code));
    }

    /// Adds the execution of some instructions of a block, if the trace has started and is not full. `next`: the
    /// address of the next block.
    pub(crate) fn run(
        &mut self,
        template: &Template,
        instructions: Range<u32>,
        accesses: &[Access],
        next: VirtualAddress,
    ) {
        let Range { start: first, end } = instructions;
        let executed = u64::from(end - first);
        if self.skip >= executed || self.remaining == 0 {
            self.skip -= executed.min(self.skip);
            return;
        }
        self.skip = 0;
        let Some(entry) = self.blocks.get_mut(&std::ptr::from_ref(template).addr()) else { return };
        let block = match entry {
            Ok(block) => *block,
            Err(code) => {
                let instructions = std::mem::take(&mut code.instructions);
                let code = BlockCode { spans: code.spans, instructions };
                TraceEntry::Code(code).write(&mut self.buffer);
                *entry = Ok(self.next_number);
                self.next_number += 1;
                self.next_number - 1
            }
        };
        let accesses = accesses.iter().filter(|access| u32::from(access.instruction) < end);
        let accesses = accesses.copied().collect();
        self.add(&TraceEntry::Run(BlockRun { block, first, instructions: end, next, accesses }));
        self.remaining -= executed.min(self.remaining);
        if self.remaining == 0 {
            self.flush();
        }
    }

    /// Adds an entry to the trace, if the trace has started and is not full.
    pub(crate) fn add(&mut self, entry: &TraceEntry) {
        if self.skip > 0 || self.remaining == 0 {
            return;
        }
        entry.write(&mut self.buffer);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Writes the rest of the trace, because QEMU ends.
    pub(crate) fn finish(&mut self) {
        self.flush();
    }

    /// Writes the buffer to the file. An error ends the machine, because a part of a trace would look like a whole
    /// trace.
    fn flush(&mut self) {
        if let Err(error) = self.write_buffer() {
            eprintln!(
                "irqlab plugin: the block trace can't be written (IRQLAB_BLOCK_TRACE): {error}"
            );
            std::process::exit(1);
        }
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_ends_early_leaves_all_that_it_executed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace");
        let file = File::create_new(&path).expect("a file");
        let mut trace = BlockTrace::new(file, 0, 1_000_000);
        let run = BlockRun { instructions: 1, ..BlockRun::default() };
        trace.add(&TraceEntry::Run(run));
        let length = || std::fs::metadata(&path).expect("a file").len();
        assert_eq!(length(), 0, "less than a part");
        trace.finish();
        let written = length();
        assert!(written > 0);
        trace.finish();
        assert_eq!(length(), written, "nothing is written twice");
    }

    #[test]
    fn a_full_disk_is_an_error_of_the_trace() {
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let mut trace = BlockTrace::new(full, 0, 1);
        assert!(trace.write_buffer().is_ok(), "nothing to write");
        trace.buffer.extend([0; 64]);
        let error = trace.write_buffer().expect_err("no space");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(trace.buffer.len(), 64, "nothing is lost without a word");
    }
}
