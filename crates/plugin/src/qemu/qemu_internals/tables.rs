//! Reads the addresses of a vCPU's descriptor tables, which the plugin API does not show. `models/entry.rs` uses them.
//!
//! QEMU writes these addresses into the ELF notes of a memory dump, in a structure with a version and a length. It
//! exports the function that writes the notes.

use std::ffi::{c_int, c_void};

use super::GetCpu;
use crate::qemu::ffi;

type WriteNote = unsafe extern "C" fn(*const c_void, usize, *mut c_void) -> c_int;
type WriteState = unsafe extern "C" fn(WriteNote, *mut c_void, *mut c_void) -> c_int;

/// The bytes before the structure: the header of an ELF note, and the name `QEMU`, padded.
const HEADER_BYTES: usize = 12 + 8;
/// The size of `QEMUCPUState`, version 1: two words of 32 bits, 18 registers, ten segments of 24 bytes, five control
/// registers, and `kernel_gs_base`.
const STATE_BYTES: usize = 8 + 18 * 8 + 10 * 24 + 5 * 8 + 8;
/// The offset of the first segment.
const SEGMENTS: usize = 8 + 18 * 8;
const SEGMENT_BYTES: usize = 24;
/// The offset of a segment's base address in the segment.
const SEGMENT_BASE: usize = 16;
/// The positions among the segments of task register, GDT and IDT.
const POSITIONS: [usize; 3] = [7, 8, 9];
/// The offset of the stack pointer, the seventh register.
const STACK_POINTER: usize = 8 + 6 * 8;

/// The addresses of a vCPU's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorTables {
    /// The task state segment.
    pub(crate) tss: u64,
    /// The table of segments.
    pub(crate) gdt: u64,
    /// The interrupt descriptor table.
    pub(crate) idt: u64,
    /// The value of the stack pointer at the same time.
    pub(crate) stack_pointer: u64,
}

/// Reads [`DescriptorTables`] from QEMU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuStates {
    get_cpu: GetCpu,
    write: WriteState,
}

impl CpuStates {
    /// `None` if QEMU does not export the needed functions.
    pub(crate) fn find() -> Option<CpuStates> {
        Some(CpuStates {
            get_cpu: function!(c"qemu_get_cpu" as GetCpu)?,
            write: function!(c"x86_cpu_write_elf64_qemunote" as WriteState)?,
        })
    }

    /// The tables of a vCPU. `None` if this QEMU uses another structure. Call it in the vCPUs' thread, between two
    /// blocks.
    pub(crate) fn tables(self, vcpu: u32) -> Option<DescriptorTables> {
        let mut found: Option<DescriptorTables> = None;
        // SAFETY: vCPUs exist until the machine ends. QEMU calls `keep` with `found` only, before the function returns.
        unsafe {
            let cpu = (self.get_cpu)(c_int::try_from(vcpu).ok()?);
            if cpu.is_null() {
                return None;
            }
            (self.write)(keep, cpu, (&raw mut found).cast());
        }
        found
    }
}

/// QEMU calls this with the note of a vCPU. Parses the note into `found`.
unsafe extern "C" fn keep(note: *const c_void, bytes: usize, found: *mut c_void) -> c_int {
    // SAFETY: QEMU passes a note of `bytes` bytes, and the pointer that `tables` gave it.
    let (note, found) = unsafe {
        let note = std::slice::from_raw_parts(note.cast::<u8>(), bytes);
        (note, &mut *found.cast::<Option<DescriptorTables>>())
    };
    *found = note.get(HEADER_BYTES..).and_then(parse);
    0
}

/// Parses a `QEMUCPUState`. `None` if it has another version or size.
fn parse(state: &[u8]) -> Option<DescriptorTables> {
    let half =
        |offset: usize| Some(u32::from_le_bytes(state.get(offset..offset + 4)?.try_into().ok()?));
    let word =
        |offset: usize| Some(u64::from_le_bytes(state.get(offset..offset + 8)?.try_into().ok()?));
    let is_complete = state.len() >= STATE_BYTES;
    if !is_complete || half(0)? != 1 || half(4)? as usize != STATE_BYTES {
        return None;
    }
    let base = |position: usize| word(SEGMENTS + position * SEGMENT_BYTES + SEGMENT_BASE);
    let [tss, gdt, idt] = POSITIONS.map(base);
    Some(DescriptorTables { tss: tss?, gdt: gdt?, idt: idt?, stack_pointer: word(STACK_POINTER)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_from_a_state_of_the_known_version_alone() {
        let mut state = vec![0; STATE_BYTES];
        state[0] = 1;
        state[4..8].copy_from_slice(&(STATE_BYTES as u32).to_le_bytes());
        for (position, base) in [(7, 0xa), (8, 0xb), (9, 0xc)] {
            state[SEGMENTS + position * SEGMENT_BYTES + SEGMENT_BASE] = base;
        }
        state[STACK_POINTER] = 0xd;
        let tables = DescriptorTables { tss: 0xa, gdt: 0xb, idt: 0xc, stack_pointer: 0xd };
        assert_eq!(parse(&state), Some(tables));
        assert_eq!(parse(&state[..400]), None);
        state[0] = 2;
        assert_eq!(parse(&state), None);
    }
}
