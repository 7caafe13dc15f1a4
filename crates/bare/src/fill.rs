//! What fills the cache, and what the program displaces by itself.
//!
//! The loops are linked, and the lines are used, at low addresses: what runs there the guest's PMU counts
//! as user mode, so that misses of these loops stand apart from those of the handler.

use core::arch::{asm, global_asm};

use crate::boot::HIGH;
use crate::command::{Footprint, Side};
use crate::ring::{Place, two_passes};
use crate::routine;

/// What fills the cache; what the program displaces by itself; the order of the sets, until the lines are laid.
/// In a second level of 512 KiB or more, as many lines as a first level has lie in other sets than the
/// program and the handler's lines do.
const FILL_AT: u64 = (64 << 20) + (192 << 10);
const OWN_AT: u64 = (130 << 20) + (128 << 10);
const ORDER_AT: u64 = 192 << 20;

global_asm!(
    ".section .boot, \"ax\"",
    ".balign 256",
    ".globl low_walk, low_calls",
    // Goes rsi times from rdi to where rdi leads.
    "low_walk:",
    "2: mov rdi, [rdi]",
    "dec rsi",
    "jnz 2b",
    "ret",
    // Calls rdi and rdx in turns, rsi times in all.
    ".balign 64",
    "low_calls:",
    "3: call rdi",
    "xchg rdi, rdx",
    "dec rsi",
    "jnz 3b",
    "ret",
    ".text",
);

/// Goes `steps` links on from `at`; where that leads. At least one.
fn walk(mut at: u64, steps: u64) -> u64 {
    // SAFETY: the links were laid by this module and lead to each other. The loop changes what is named,
    // and uses the stack as a call does.
    unsafe {
        asm!("movabs {loop_at}, offset low_walk", "call {loop_at}", loop_at = out(reg) _,
            inout("rdi") at, inout("rsi") steps => _);
    }
    at
}

/// Calls two routines in turns; which is next.
fn calls(mut entries: [u64; 2], times: u64) -> [u64; 2] {
    // SAFETY: the routines were written by this module: jumps and a return. As above.
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
    /// The routine of the next pass, and that of the one behind it.
    Code([u64; 2]),
}

impl Fill {
    /// Lays as many lines as the cache has.
    pub fn new(order: &Footprint) -> Fill {
        let lines = order.cache / order.line;
        let sets = (lines / order.ways) as usize;
        // SAFETY: the memory is nobody else's, as far as the most sets that a command may ask for.
        let shuffled = unsafe { core::slice::from_raw_parts_mut(ORDER_AT as *mut u32, sets) };
        let mut entries = [0; 2];
        let (mut before, mut number) = (0, 0);
        two_passes(shuffled, order.ways as usize, |place: Place| {
            let line = u64::from(place.way) * sets as u64 + u64::from(place.set);
            // Each pass has its own slot in each line.
            let slot = FILL_AT + line * order.line + number / lines * 8;
            let is_first = number % lines == 0;
            if is_first {
                entries[(number / lines) as usize] = slot;
            }
            // SAFETY: within CACHE_BYTES_MAX of memory that is nobody else's.
            unsafe {
                match order.side {
                    Side::Data if number > 0 => (before as *mut u64).write_volatile(slot),
                    Side::Data => {}
                    Side::Code if is_first => {}
                    Side::Code => routine::jump(before, slot),
                }
                if order.side == Side::Code && (number + 1) % lines == 0 {
                    routine::end(slot);
                }
            }
            (before, number) = (slot, number + 1);
        });
        match order.side {
            Side::Data => {
                // SAFETY: as above.
                unsafe { (before as *mut u64).write_volatile(entries[0]) };
                Fill::Data(entries[0], lines)
            }
            Side::Code => Fill::Code(entries),
        }
    }

    /// Touches all lines so many times; at least once.
    pub fn touch(&mut self, passes: u64) {
        match self {
            Fill::Data(at, lines) => *at = walk(*at, *lines * passes),
            Fill::Code(entries) => *entries = calls(*entries, passes),
        }
    }
}

/// Lines that the program displaces the others with: consecutive ones.
pub struct Own {
    side: Side,
    lines: u64,
}

impl Own {
    /// Lays them; of none, nothing.
    pub fn new(side: Side, lines: u64, line: u64) -> Own {
        for number in 0..lines {
            let at = OWN_AT + number * line;
            // SAFETY: within LINES_MAX lines of 256 bytes, of memory that is nobody else's.
            unsafe { (at as *mut u64).write_volatile(at + line) };
        }
        if side == Side::Code {
            // SAFETY: as above.
            unsafe { routine::write(OWN_AT, lines, line) };
        }
        Own { side, lines }
    }

    /// Touches each once.
    pub fn touch(&self) {
        match self.side {
            _ if self.lines == 0 => {}
            Side::Data => _ = walk(OWN_AT, self.lines),
            Side::Code => _ = calls([OWN_AT; 2], 1),
        }
    }
}

/// The place of something as the caches have it: without what the program adds to see it.
pub fn physical(address: u64) -> u64 {
    if address >= HIGH { address - HIGH } else { address }
}
