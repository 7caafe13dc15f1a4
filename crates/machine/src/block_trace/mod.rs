//! A trace of executed blocks, with their code and their accesses, as bytes. A core and its memory can execute it again
//! without QEMU. For developers of models: it measures their speed, and compares fast paths with the slow path.
//!
//! The plugin writes the trace of a guest at the level `ooo`; [`RecordedBlocks`] reads it, and [`ReplayMachine`]
//! executes it (example `replay`). Code is kept as its bytes and decoded again, so a trace outlives changes of
//! templates. A change of the format makes older traces unreadable: there is no version.

mod replay;

pub use replay::{RecordedBlocks, ReplayMachine, TraceSizes, Way};

use crate::CodeSpan;
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::core::Access;
use crate::memory::{GlobalPages, TlbFlush};

/// An entry of a trace, in the order of execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
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
    /// The address space changed: its PCID, and an address that identifies its page tables.
    Space(u16, PhysicalAddress),
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
    /// The number of the block, as in [`Event::Code`].
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

// The first byte of an entry tells its kind. Numbers are little-endian.
const CODE: u8 = 1;
const RUN: u8 = 2;
const INTERRUPT: u8 = 3;
const FLUSH: u8 = 4;
const SPACE: u8 = 5;
const GLOBAL_PAGES: u8 = 6;
/// Stands for the missing physical address of an access to a device.
const DEVICE: PhysicalAddress = PhysicalAddress(u64::MAX);

impl Event {
    /// Appends the event to a trace.
    pub fn write(&self, trace: &mut Vec<u8>) {
        match self {
            Event::Code(code) => {
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
            Event::Run(run) => write_run(run, trace),
            Event::Interrupt => trace.push(INTERRUPT),
            Event::Flush(flush) => {
                let (kind, address, space, global) = match *flush {
                    TlbFlush::All => (0, 0, 0, false),
                    TlbFlush::NonGlobal => (1, 0, 0, false),
                    TlbFlush::Space(space) => (2, 0, space, false),
                    TlbFlush::Page { virtual_address, space, global } => {
                        (3, virtual_address.0, space, global)
                    }
                };
                trace.extend([FLUSH, kind, u8::from(global)]);
                trace.extend(space.to_le_bytes());
                trace.extend(address.to_le_bytes());
            }
            Event::GlobalPages(pages) => {
                let (start, end) = match *pages {
                    GlobalPages::KernelHalf => Default::default(),
                    GlobalPages::Isolated { start, end } => (start, end),
                };
                trace.extend([GLOBAL_PAGES, u8::from(*pages != GlobalPages::KernelHalf)]);
                trace.extend(start.0.to_le_bytes());
                trace.extend(end.0.to_le_bytes());
            }
            Event::Space(space, page_tables) => {
                trace.push(SPACE);
                trace.extend(space.to_le_bytes());
                trace.extend(page_tables.0.to_le_bytes());
            }
        }
    }

    /// Reads the next event, and advances `trace` to the following one. `None` at the end of the trace, and where it is
    /// cut or has an unknown entry.
    pub fn read(trace: &mut &[u8]) -> Option<Event> {
        match byte(trace)? {
            CODE => {
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
                Some(Event::Code(BlockCode { spans: (first, second), instructions }))
            }
            RUN => read_run(trace).map(Event::Run),
            INTERRUPT => Some(Event::Interrupt),
            FLUSH => {
                let [kind, global] = take(trace)?;
                let space = u16::from_le_bytes(take(trace)?);
                let virtual_address = VirtualAddress(word(trace)?);
                Some(Event::Flush(match kind {
                    0 => TlbFlush::All,
                    1 => TlbFlush::NonGlobal,
                    2 => TlbFlush::Space(space),
                    _ => TlbFlush::Page { virtual_address, space, global: global != 0 },
                }))
            }
            GLOBAL_PAGES => {
                let is_isolated = byte(trace)? != 0;
                let (start, end) = (VirtualAddress(word(trace)?), VirtualAddress(word(trace)?));
                Some(Event::GlobalPages(if is_isolated {
                    GlobalPages::Isolated { start, end }
                } else {
                    GlobalPages::KernelHalf
                }))
            }
            SPACE => {
                let space = u16::from_le_bytes(take(trace)?);
                Some(Event::Space(space, PhysicalAddress(word(trace)?)))
            }
            _ => None,
        }
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
        let events = [
            Event::Code(BlockCode { spans: (span(0x1ffd), None), instructions: vec![vec![0x90]] }),
            Event::Code(BlockCode {
                spans: (span(0x1ffd), Some(span(0x2000))),
                instructions: vec![vec![0x48, 0x01, 0xd8], vec![0x75, 0xf9]],
            }),
            Event::Run(BlockRun {
                block: 1,
                first: 1,
                instructions: 2,
                next: VirtualAddress(0x2002),
                accesses: vec![access(Some(PhysicalAddress(0x9000))), access(None)],
            }),
            Event::Interrupt,
            Event::Flush(TlbFlush::NonGlobal),
            Event::Flush(TlbFlush::Page {
                virtual_address: VirtualAddress(0x3000),
                space: 7,
                global: true,
            }),
            Event::GlobalPages(GlobalPages::isolated(0xffff_ffff_8100_0000..0xffff_ffff_8100_1000)),
            Event::Space(3, PhysicalAddress(0x1234_5000)),
        ];
        let mut trace = Vec::new();
        events.iter().for_each(|event| event.write(&mut trace));
        let mut unread = &trace[..];
        let read: Vec<Event> = std::iter::from_fn(|| Event::read(&mut unread)).collect();
        assert_eq!(read, events);
        // A truncated trace ends before its incomplete event.
        let mut unread = &trace[..trace.len() - 1];
        assert_eq!(std::iter::from_fn(|| Event::read(&mut unread)).count(), events.len() - 1);
    }
}
