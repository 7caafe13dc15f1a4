//! The lines of `footprint.rs`: the lines that fill the cache ([`Fill`]), and the lines that the program itself touches
//! to displace others ([`DisplacingLines`]).
//!
//! Invariant: the loops and their lines are at low addresses, which the guest's PMU counts as user mode. Their misses
//! are therefore counted separately from the handler's misses.

use core::arch::{asm, global_asm};

use crate::addresses::HIGH;
use crate::command::{Footprint, Side};
use crate::ring::{Place, two_passes};
use crate::routine;

/// Address of the lines that fill the cache. In a second-level cache of 512 KiB or more, lines that fill a first-level
/// cache are in other sets than the program and the handler's lines.
const FILL_ADDRESS: u64 = (64 << 20) + (192 << 10);
/// Address of the lines with which the program displaces others.
const DISPLACING_ADDRESS: u64 = (130 << 20) + (128 << 10);
/// Address of the order of the sets, which is needed while the lines are written.
const ORDER_ADDRESS: u64 = 192 << 20;

global_asm!(
    ".section .boot, \"ax\"",
    ".balign 256",
    ".globl low_walk, low_calls",
    // Follows rsi links from rdi.
    "low_walk:",
    "2: mov rdi, [rdi]",
    "dec rsi",
    "jnz 2b",
    "ret",
    // Calls rdi and rdx alternately, rsi times together.
    ".balign 64",
    "low_calls:",
    "3: call rdi",
    "xchg rdi, rdx",
    "dec rsi",
    "jnz 3b",
    "ret",
    ".text",
);

/// Follows `steps` links, at least one. `link`: address of the first link. Returns the target of the last link.
fn walk(mut link: u64, steps: u64) -> u64 {
    // SAFETY: this module wrote the links, which lead to each other. The loop changes the named registers,
    // and uses the stack as a call does.
    unsafe {
        asm!("movabs {loop_at}, offset low_walk", "call {loop_at}", loop_at = out(reg) _,
            inout("rdi") link, inout("rsi") steps => _);
    }
    link
}

/// Calls two routines alternately, `times` times together, at least once. Returns them in the order of the next calls.
fn calls(mut entries: [u64; 2], times: u64) -> [u64; 2] {
    // SAFETY: this module wrote the routines, which are jumps and a return. The loop changes the named registers, and
    // uses the stack as a call does.
    unsafe {
        asm!("movabs {loop_at}, offset low_calls", "call {loop_at}", loop_at = out(reg) _,
            inout("rdi") entries[0], inout("rdx") entries[1], inout("rsi") times => _);
    }
    entries
}

/// The lines that fill the cache.
pub enum Fill {
    /// Address of the next link, and number of links of a pass.
    Data(u64, u64),
    /// Address of the routine of the next pass, and of the routine of the pass after it.
    Code([u64; 2]),
}

impl Fill {
    /// Writes the lines: for data a ring of links over two passes, for code a routine for each of two passes.
    pub fn new(parameters: &Footprint) -> Fill {
        let lines = parameters.cache / parameters.line;
        let sets = (lines / parameters.ways) as usize;
        // SAFETY: nothing else uses the memory, up to the maximum number of sets.
        let set_order = unsafe { core::slice::from_raw_parts_mut(ORDER_ADDRESS as *mut u32, sets) };
        let mut entries = [0; 2];
        let (mut previous_slot, mut number) = (0, 0);
        two_passes(set_order, parameters.ways as usize, |position: Place| {
            let line = u64::from(position.way) * sets as u64 + u64::from(position.set);
            // A line has two slots of 8 bytes, one for each pass.
            let slot = FILL_ADDRESS + line * parameters.line + number / lines * 8;
            let is_first_of_pass = number % lines == 0;
            if is_first_of_pass {
                entries[(number / lines) as usize] = slot;
            }
            // SAFETY: within CACHE_BYTES_MAX of memory that nothing else uses.
            unsafe {
                match parameters.side {
                    Side::Data if number > 0 => (previous_slot as *mut u64).write_volatile(slot),
                    Side::Data => {}
                    Side::Code if is_first_of_pass => {}
                    Side::Code => routine::jump(previous_slot, slot),
                }
                if parameters.side == Side::Code && (number + 1) % lines == 0 {
                    routine::end(slot);
                }
            }
            (previous_slot, number) = (slot, number + 1);
        });
        match parameters.side {
            Side::Data => {
                // SAFETY: within CACHE_BYTES_MAX of memory that nothing else uses.
                unsafe { (previous_slot as *mut u64).write_volatile(entries[0]) };
                Fill::Data(entries[0], lines)
            }
            Side::Code => Fill::Code(entries),
        }
    }

    /// Touches all lines `passes` times, at least once.
    pub fn touch(&mut self, passes: u64) {
        match self {
            Fill::Data(link, lines) => *link = walk(*link, *lines * passes),
            Fill::Code(entries) => *entries = calls(*entries, passes),
        }
    }
}

/// Consecutive lines that the program touches to displace others.
pub struct DisplacingLines {
    side: Side,
    lines: u64,
}

impl DisplacingLines {
    /// Writes `lines` lines of `line` bytes.
    pub fn new(side: Side, lines: u64, line: u64) -> DisplacingLines {
        for number in 0..lines {
            let address = DISPLACING_ADDRESS + number * line;
            // SAFETY: within LINES_MAX lines of 256 bytes, of memory that nothing else uses.
            unsafe { (address as *mut u64).write_volatile(address + line) };
        }
        if side == Side::Code {
            // SAFETY: within LINES_MAX lines of 256 bytes, of memory that nothing else uses.
            unsafe { routine::write(DISPLACING_ADDRESS, lines, line) };
        }
        DisplacingLines { side, lines }
    }

    /// Touches each line once.
    pub fn touch(&self) {
        match self.side {
            _ if self.lines == 0 => {}
            Side::Data => _ = walk(DISPLACING_ADDRESS, self.lines),
            Side::Code => _ = calls([DISPLACING_ADDRESS; 2], 1),
        }
    }
}

/// The physical address of an address of the program. The caches use physical addresses.
pub fn physical(address: u64) -> u64 {
    if address >= HIGH { address - HIGH } else { address }
}
