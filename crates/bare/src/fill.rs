//! The lines that fill the cache, and the lines that the program itself touches to displace others.
//!
//! The loops and their lines are at low addresses, which the guest's PMU counts as user mode. Their misses
//! are therefore counted separately from the handler's misses.

use core::arch::{asm, global_asm};

use crate::addresses::HIGH;
use crate::command::{Footprint, Side};
use crate::ring::{Place, two_passes};
use crate::routine;

/// Addresses of the lines that fill the cache, of the lines that the program displaces others with, and of the
/// order of the sets while the lines are written. In a second-level cache of 512 KiB or more, the lines that fill
/// a first-level cache are in other sets than the program and the handler's lines.
const FILL_AT: u64 = (64 << 20) + (192 << 10);
const OWN_AT: u64 = (130 << 20) + (128 << 10);
const ORDER_AT: u64 = 192 << 20;

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
    // Calls rdi and rdx alternately, rsi times in all.
    ".balign 64",
    "low_calls:",
    "3: call rdi",
    "xchg rdi, rdx",
    "dec rsi",
    "jnz 3b",
    "ret",
    ".text",
);

/// Follows `steps` links from `at`, at least one; returns where the last leads.
fn walk(mut at: u64, steps: u64) -> u64 {
    // SAFETY: this module wrote the links, which lead to each other. The loop changes the named registers,
    // and uses the stack as a call does.
    unsafe {
        asm!("movabs {loop_at}, offset low_walk", "call {loop_at}", loop_at = out(reg) _,
            inout("rdi") at, inout("rsi") steps => _);
    }
    at
}

/// Calls two routines alternately; returns them in the order of the next calls.
fn calls(mut entries: [u64; 2], times: u64) -> [u64; 2] {
    // SAFETY: this module wrote the routines: jumps and a return. Registers as above.
    unsafe {
        asm!("movabs {loop_at}, offset low_calls", "call {loop_at}", loop_at = out(reg) _,
            inout("rdi") entries[0], inout("rdx") entries[1], inout("rsi") times => _);
    }
    entries
}

/// Lines that are touched.
pub enum Fill {
    /// The next link, and the links of a pass.
    Data(u64, u64),
    /// The routine of the next pass, and the routine of the pass after it.
    Code([u64; 2]),
}

impl Fill {
    /// Writes a ring of lines that fills the cache.
    pub fn new(parameters: &Footprint) -> Fill {
        let lines = parameters.cache / parameters.line;
        let sets = (lines / parameters.ways) as usize;
        // SAFETY: nothing else uses the memory, up to the maximum number of sets.
        let shuffled = unsafe { core::slice::from_raw_parts_mut(ORDER_AT as *mut u32, sets) };
        let mut entries = [0; 2];
        let (mut before, mut number) = (0, 0);
        two_passes(shuffled, parameters.ways as usize, |position: Place| {
            let line = u64::from(position.way) * sets as u64 + u64::from(position.set);
            // Each pass has its own slot in each line.
            let slot = FILL_AT + line * parameters.line + number / lines * 8;
            let is_first = number % lines == 0;
            if is_first {
                entries[(number / lines) as usize] = slot;
            }
            // SAFETY: within CACHE_BYTES_MAX of memory that nothing else uses.
            unsafe {
                match parameters.side {
                    Side::Data if number > 0 => (before as *mut u64).write_volatile(slot),
                    Side::Data => {}
                    Side::Code if is_first => {}
                    Side::Code => routine::jump(before, slot),
                }
                if parameters.side == Side::Code && (number + 1) % lines == 0 {
                    routine::end(slot);
                }
            }
            (before, number) = (slot, number + 1);
        });
        match parameters.side {
            Side::Data => {
                // SAFETY: as above.
                unsafe { (before as *mut u64).write_volatile(entries[0]) };
                Fill::Data(entries[0], lines)
            }
            Side::Code => Fill::Code(entries),
        }
    }

    /// Touches all lines `passes` times, at least once.
    pub fn touch(&mut self, passes: u64) {
        match self {
            Fill::Data(at, lines) => *at = walk(*at, *lines * passes),
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
    /// Writes the lines, if there are any.
    pub fn new(side: Side, lines: u64, line: u64) -> DisplacingLines {
        for number in 0..lines {
            let address = OWN_AT + number * line;
            // SAFETY: within LINES_MAX lines of 256 bytes, of memory that nothing else uses.
            unsafe { (address as *mut u64).write_volatile(address + line) };
        }
        if side == Side::Code {
            // SAFETY: as above.
            unsafe { routine::write(OWN_AT, lines, line) };
        }
        DisplacingLines { side, lines }
    }

    /// Touches each line once.
    pub fn touch(&self) {
        match self.side {
            _ if self.lines == 0 => {}
            Side::Data => _ = walk(OWN_AT, self.lines),
            Side::Code => _ = calls([OWN_AT; 2], 1),
        }
    }
}

/// Returns the physical address, which the caches use, of an address of the program.
pub fn physical(address: u64) -> u64 {
    if address >= HIGH { address - HIGH } else { address }
}
