//! A trace of executed blocks, with their code and their accesses, as bytes. A core and its memory can execute it again
//! without QEMU. Developers of models measure with it the speed of a model, and compare fast paths with the slow path.
//!
//! The plugin writes the trace of a guest at the level `ooo`; [`RecordedBlocks`] reads it, and [`ReplayMachine`]
//! executes it (example `replay`). Code is kept as its bytes and decoded again, so a trace outlives changes of
//! templates. A change of the format makes older traces unreadable: there is no version.
//!
//! # Layout
//! A trace is a sequence of entries, without a header. The first byte of an entry is its kind. Numbers are little-endian;
//! an address has 64 bits. `n * (...)` is a list whose number of elements is `n`.
//!
//! | kind | fields after the kind |
//! |---|---|
//! | 1, code | has second page u8, for each page (virtual address, physical address, bytes u32), n u32, n * (length u8, bytes) |
//! | 2, run | block u32, first u16, instructions u16, next address, n u16, n * access |
//! | 3, interrupt | |
//! | 4, flush | kind u8, global u8, PCID u16, address; fields that the kind does not have are 0 |
//! | 5, address space | PCID u16, address of the page tables |
//! | 6, global pages | is isolated u8, start, end (exclusive); 0 if not isolated |
//!
//! An access has a virtual address, a physical address (all bits set: a device), instruction u16, bytes u8, is write u8.

mod replay;

pub use replay::{RecordedBlocks, ReplayMachine, TraceSizes, Way};

use crate::CodeSpan;
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::core::Access;
use crate::memory::{GlobalPages, TlbFlush};

/// An entry of a trace, in the order of execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEntry {
    /// The code of a block. The n-th such entry has block number n, from 0.
    Code(BlockCode),
    /// A block has executed, at least in part.
    Run(BlockRun),
    /// An interrupt or exception was taken.
    Interrupt,
    /// Translations were dropped.
    Flush(TlbFlush),
    /// The kernel isolates its page tables: these pages are global from now on.
    GlobalPages(GlobalPages),
    /// The address space changed.
    Space {
        pcid: u16,
        /// An address that identifies the page tables.
        page_tables: PhysicalAddress,
    },
}

/// The code of a block, as the guest's memory contained it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCode {
    /// The parts of the block in its one or two pages.
    pub spans: (CodeSpan, Option<CodeSpan>),
    /// The bytes of each instruction.
    pub instructions: Vec<Vec<u8>>,
}

/// An execution of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRun {
    /// The number of the block, as in [`TraceEntry::Code`].
    pub block: u32,
    /// The index of the first executed instruction in the block, from 0. The trace has 16 bits for it.
    pub first: u32,
    /// The number of instructions from the block's start to the last executed one. The trace has 16 bits for it.
    pub instructions: u32,
    /// The address that executed next.
    pub next: VirtualAddress,
    /// The loads and stores of the executed instructions, at most `u16::MAX`.
    pub accesses: Vec<Access>,
}

// The kinds of entries.
const CODE: u8 = 1;
const RUN: u8 = 2;
const INTERRUPT: u8 = 3;
const FLUSH: u8 = 4;
const SPACE: u8 = 5;
const GLOBAL_PAGES: u8 = 6;
// The kinds of a flush.
const FLUSH_ALL: u8 = 0;
const FLUSH_NON_GLOBAL: u8 = 1;
const FLUSH_SPACE: u8 = 2;
const FLUSH_PAGE: u8 = 3;
/// Stands for the missing physical address of an access to a device.
const DEVICE: PhysicalAddress = PhysicalAddress(u64::MAX);

impl TraceEntry {
    /// Appends the entry to a trace.
    pub fn write(&self, trace: &mut Vec<u8>) {
        match self {
            TraceEntry::Code(code) => write_code(code, trace),
            TraceEntry::Run(run) => write_run(run, trace),
            TraceEntry::Interrupt => trace.push(INTERRUPT),
            TraceEntry::Flush(flush) => write_flush(flush, trace),
            TraceEntry::GlobalPages(pages) => {
                let (start, end) = match *pages {
                    GlobalPages::KernelHalf => Default::default(),
                    GlobalPages::Isolated { start, end } => (start, end),
                };
                trace.extend([GLOBAL_PAGES, u8::from(*pages != GlobalPages::KernelHalf)]);
                trace.extend(start.0.to_le_bytes());
                trace.extend(end.0.to_le_bytes());
            }
            TraceEntry::Space { pcid, page_tables } => {
                trace.push(SPACE);
                trace.extend(pcid.to_le_bytes());
                trace.extend(page_tables.0.to_le_bytes());
            }
        }
    }

    /// Reads the next entry, and advances `trace` to the following one. `None` at the end of the trace, and where it is
    /// cut or has an unknown entry.
    pub fn read(trace: &mut &[u8]) -> Option<TraceEntry> {
        match byte(trace)? {
            CODE => read_code(trace).map(TraceEntry::Code),
            RUN => read_run(trace).map(TraceEntry::Run),
            INTERRUPT => Some(TraceEntry::Interrupt),
            FLUSH => read_flush(trace).map(TraceEntry::Flush),
            GLOBAL_PAGES => {
                let is_isolated = byte(trace)? != 0;
                let (start, end) = (VirtualAddress(word(trace)?), VirtualAddress(word(trace)?));
                Some(TraceEntry::GlobalPages(if is_isolated {
                    GlobalPages::Isolated { start, end }
                } else {
                    GlobalPages::KernelHalf
                }))
            }
            SPACE => {
                let pcid = u16::from_le_bytes(take(trace)?);
                Some(TraceEntry::Space { pcid, page_tables: PhysicalAddress(word(trace)?) })
            }
            _ => None,
        }
    }
}

/// Appends the entry that [`read_code`] reads. The casts lose nothing: an instruction has at most 15 bytes, and QEMU puts at
/// most 512 instructions into a block.
fn write_code(code: &BlockCode, trace: &mut Vec<u8>) {
    trace.push(CODE);
    let (first, second) = &code.spans;
    trace.push(u8::from(second.is_some()));
    for span in [Some(first), second.as_ref()].into_iter().flatten() {
        trace.extend(span.virtual_address.0.to_le_bytes());
        trace.extend(span.physical.0.to_le_bytes());
        trace.extend(span.bytes.to_le_bytes());
    }
    trace.extend((code.instructions.len() as u32).to_le_bytes());
    for bytes in &code.instructions {
        trace.push(bytes.len() as u8);
        trace.extend(bytes);
    }
}

/// Reads the entry that [`write_code`] appends, after its first byte. `None` if the trace ends within the entry.
fn read_code(trace: &mut &[u8]) -> Option<BlockCode> {
    let has_second = byte(trace)? != 0;
    let mut span = || {
        let (virtual_address, physical) = addresses(trace)?;
        let bytes = u32::from_le_bytes(take(trace)?);
        Some(CodeSpan { virtual_address, physical, bytes })
    };
    let first = span()?;
    let second = if has_second { Some(span()?) } else { None };
    let instruction_count = u32::from_le_bytes(take(trace)?);
    let mut instructions = Vec::new();
    for _ in 0..instruction_count {
        let length = usize::from(byte(trace)?);
        instructions.push(trace.split_off(..length)?.to_vec());
    }
    Some(BlockCode { spans: (first, second), instructions })
}

/// Appends the entry that [`read_flush`] reads.
fn write_flush(flush: &TlbFlush, trace: &mut Vec<u8>) {
    let (kind, address, pcid, global) = match *flush {
        TlbFlush::All => (FLUSH_ALL, 0, 0, false),
        TlbFlush::NonGlobal => (FLUSH_NON_GLOBAL, 0, 0, false),
        TlbFlush::Space(pcid) => (FLUSH_SPACE, 0, pcid, false),
        TlbFlush::Page { virtual_address, space, global } => {
            (FLUSH_PAGE, virtual_address.0, space, global)
        }
    };
    trace.extend([FLUSH, kind, u8::from(global)]);
    trace.extend(pcid.to_le_bytes());
    trace.extend(address.to_le_bytes());
}

/// Reads the entry that [`write_flush`] appends, after its first byte. `None` if the trace ends within the entry, or the
/// kind of flush is unknown.
fn read_flush(trace: &mut &[u8]) -> Option<TlbFlush> {
    let [kind, global] = take(trace)?;
    let pcid = u16::from_le_bytes(take(trace)?);
    let virtual_address = VirtualAddress(word(trace)?);
    match kind {
        FLUSH_ALL => Some(TlbFlush::All),
        FLUSH_NON_GLOBAL => Some(TlbFlush::NonGlobal),
        FLUSH_SPACE => Some(TlbFlush::Space(pcid)),
        FLUSH_PAGE => Some(TlbFlush::Page { virtual_address, space: pcid, global: global != 0 }),
        _ => None,
    }
}

/// Appends the entry that [`read_run`] reads. The casts lose nothing: QEMU puts at most 512 instructions into a block.
fn write_run(run: &BlockRun, trace: &mut Vec<u8>) {
    trace.push(RUN);
    trace.extend(run.block.to_le_bytes());
    trace.extend((run.first as u16).to_le_bytes());
    trace.extend((run.instructions as u16).to_le_bytes());
    trace.extend(run.next.0.to_le_bytes());
    trace.extend((run.accesses.len() as u16).to_le_bytes());
    for access in &run.accesses {
        trace.extend(access.virtual_address.0.to_le_bytes());
        trace.extend(access.physical.unwrap_or(DEVICE).0.to_le_bytes());
        trace.extend(access.instruction.to_le_bytes());
        trace.extend([access.bytes, u8::from(access.write)]);
    }
}

/// Reads the entry that [`write_run`] appends, after its first byte. `None` if the trace ends within the entry.
fn read_run(trace: &mut &[u8]) -> Option<BlockRun> {
    let block = u32::from_le_bytes(take(trace)?);
    let first = u16::from_le_bytes(take(trace)?).into();
    let instructions = u16::from_le_bytes(take(trace)?).into();
    let next = VirtualAddress(word(trace)?);
    let access_count = u16::from_le_bytes(take(trace)?);
    let mut access = || {
        let (virtual_address, physical) = addresses(trace)?;
        let instruction = u16::from_le_bytes(take(trace)?);
        let [bytes, write] = take(trace)?;
        let physical = (physical != DEVICE).then_some(physical);
        Some(Access { virtual_address, physical, instruction, bytes, write: write != 0 })
    };
    let accesses = (0..access_count).map(|_| access()).collect::<Option<_>>()?;
    Some(BlockRun { block, first, instructions, next, accesses })
}

/// Takes the next `BYTES` bytes. `None`: fewer are left.
fn take<const BYTES: usize>(trace: &mut &[u8]) -> Option<[u8; BYTES]> {
    trace.split_off(..BYTES)?.try_into().ok()
}

fn byte(trace: &mut &[u8]) -> Option<u8> {
    take(trace).map(|[byte]| byte)
}

fn word(trace: &mut &[u8]) -> Option<u64> {
    take(trace).map(u64::from_le_bytes)
}

/// Takes a virtual address and the physical address after it. `None` if the trace ends before.
fn addresses(trace: &mut &[u8]) -> Option<(VirtualAddress, PhysicalAddress)> {
    Some((VirtualAddress(word(trace)?), PhysicalAddress(word(trace)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let span = |address| CodeSpan {
            virtual_address: VirtualAddress(address),
            physical: PhysicalAddress(0x5ff0),
            bytes: 3,
        };
        let access = |physical| Access {
            virtual_address: VirtualAddress(0x7000),
            physical,
            instruction: 2,
            bytes: 8,
            write: true,
        };
        let entries = [
            TraceEntry::Code(BlockCode {
                spans: (span(0x1ffd), None),
                instructions: vec![vec![0x90]],
            }),
            TraceEntry::Code(BlockCode {
                spans: (span(0x1ffd), Some(span(0x2000))),
                instructions: vec![vec![0x48, 0x01, 0xd8], vec![0x75, 0xf9]],
            }),
            TraceEntry::Run(BlockRun {
                block: 1,
                first: 1,
                instructions: 2,
                next: VirtualAddress(0x2002),
                accesses: vec![access(Some(PhysicalAddress(0x9000))), access(None)],
            }),
            TraceEntry::Interrupt,
            TraceEntry::Flush(TlbFlush::NonGlobal),
            TraceEntry::Flush(TlbFlush::Page {
                virtual_address: VirtualAddress(0x3000),
                space: 7,
                global: true,
            }),
            TraceEntry::GlobalPages(GlobalPages::isolated(
                0xffff_ffff_8100_0000..0xffff_ffff_8100_1000,
            )),
            TraceEntry::Space { pcid: 3, page_tables: PhysicalAddress(0x1234_5000) },
        ];
        let mut trace = Vec::new();
        entries.iter().for_each(|entry| entry.write(&mut trace));
        let mut unread = &trace[..];
        let read: Vec<TraceEntry> = std::iter::from_fn(|| TraceEntry::read(&mut unread)).collect();
        assert_eq!(read, entries);
        // A truncated trace ends before its incomplete entry.
        let mut unread = &trace[..trace.len() - 1];
        let read_count = std::iter::from_fn(|| TraceEntry::read(&mut unread)).count();
        assert_eq!(read_count, entries.len() - 1);
        // An unknown kind of flush is no flush of a page.
        let mut unread = &[FLUSH, FLUSH_PAGE + 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..];
        assert_eq!(TraceEntry::read(&mut unread), None);
    }
}
