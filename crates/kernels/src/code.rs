//! Generated machine code for kernels of group `front-end`, whose code must have a given size. Each kernel executes
//! the whole code a number of times per window.

use stats::Random;

use crate::memory::{Kind, Pages};
use crate::{Body, Executed, Made, Rounds};

/// About how many instructions a window executes.
const WINDOW_INSTRUCTIONS: u64 = 60_000;
const RET: u8 = 0xc3;
const LINE_BYTES: usize = 64;
/// Seed of the random order of jumps.
const SEED: u64 = 1;

/// The instructions of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// NOPs of 1 byte.
    Nops1,
    /// NOPs of 4 bytes.
    Nops4,
    /// NOPs of 8 bytes.
    Nops8,
    /// Additions of 4 bytes, in four chains.
    Additions,
    /// A jump in each line to the next one.
    JumpsInOrder,
    /// A jump in each line to another one, in no order.
    JumpsInNoOrder,
    /// A conditional jump that is not taken, and a NOP, every 8 bytes.
    NotTaken,
}

/// Code that ends with a return, and the body of its kernel.
pub(crate) struct Code {
    memory: Pages,
    /// Length of the code without the return.
    bytes: usize,
    instructions: u64,
    /// Whether each window executes the code once, after [`Code::flush`].
    is_flushed: bool,
}

impl Code {
    /// Code of a number of bytes, without the return.
    ///
    /// Fails if the system gives no executable memory.
    pub(crate) fn new(bytes: usize, filling: Filling) -> Result<Code, String> {
        let mut memory = Pages::new(bytes + LINE_BYTES, Kind::Code)?;
        let text = memory.bytes_mut();
        let instructions = match filling {
            Filling::Nops1 => repeat(&mut text[..bytes], &[&[0x90]]),
            Filling::Nops4 => repeat(&mut text[..bytes], &[&[0x0f, 0x1f, 0x40, 0]]),
            Filling::Nops8 => repeat(&mut text[..bytes], &[&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]]),
            // add r8, 1; add r9, 1; add r10, 1; add r11, 1.
            Filling::Additions => repeat(
                &mut text[..bytes],
                &[
                    &[0x49, 0x83, 0xc0, 1],
                    &[0x49, 0x83, 0xc1, 1],
                    &[0x49, 0x83, 0xc2, 1],
                    &[0x49, 0x83, 0xc3, 1],
                ],
            ),
            // jc to the next instruction, and a NOP of 6 bytes. `execute` clears the carry flag before each call.
            Filling::NotTaken => {
                repeat(&mut text[..bytes], &[&[0x72, 0x00], &[0x66, 0x0f, 0x1f, 0x44, 0, 0]])
            }
            Filling::JumpsInOrder => jumps(text, (0..bytes / LINE_BYTES).collect()),
            Filling::JumpsInNoOrder => {
                let mut order: Vec<usize> = (1..bytes / LINE_BYTES).collect();
                Random::new(SEED).shuffle(&mut order);
                order.insert(0, 0);
                jumps(text, order)
            }
        };
        if !matches!(filling, Filling::JumpsInOrder | Filling::JumpsInNoOrder) {
            text[bytes] = RET;
        }
        Ok(Code { memory, bytes, instructions, is_flushed: false })
    }

    /// Makes each window flush the code from all caches and execute it once.
    pub(crate) fn flushed(self) -> Code {
        Code { is_flushed: true, ..self }
    }

    /// The code as the body of a kernel.
    pub(crate) fn body(self) -> Made {
        Ok(Box::new(self))
    }

    /// Calls the code `times` times, at least once.
    fn execute(&self, times: u64) {
        // SAFETY: the memory is executable and holds the instructions that `new` wrote, which end with a return. They
        // change r8 to r11 and flags, which are declared.
        unsafe {
            std::arch::asm!(
                ".p2align 6", "2:", "clc", "call {code}", "dec {times}", "jnz 2b",
                code = in(reg) self.memory.base().as_ptr(),
                times = inout(reg) times.max(1) => _,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
    }

    /// Removes the code from all caches. The line of the return stays if the return alone is in it, because `bytes` is a
    /// multiple of a line. Measured data that irqlab keeps depend on this: flushing that line, too, would add a miss to
    /// each window.
    fn flush(&self) {
        for line in (0..self.bytes).step_by(LINE_BYTES) {
            // SAFETY: the line is within the memory; flushing it changes no content.
            unsafe { std::arch::x86_64::_mm_clflush(self.memory.base().as_ptr().add(line)) };
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// Fills `text` with the instructions in turn. Returns the number of instructions, without the NOPs that fill the rest.
fn repeat(text: &mut [u8], instructions: &[&[u8]]) -> u64 {
    let (mut offset, mut count) = (0, 0);
    for instruction in instructions.iter().cycle() {
        let Some(space) = text.get_mut(offset..offset + instruction.len()) else { break };
        space.copy_from_slice(instruction);
        (offset, count) = (offset + instruction.len(), count + 1);
    }
    // The remaining bytes are too short for the next instruction. One-byte NOPs fill them.
    text[offset..].fill(0x90);
    count
}

/// Writes into each cache line a jump to the line that follows in `order`, and a return into the last line. Returns the
/// number of instructions.
fn jumps(text: &mut [u8], order: Vec<usize>) -> u64 {
    for pair in order.windows(2) {
        let [start, target] = [pair[0] * LINE_BYTES, pair[1] * LINE_BYTES];
        // jmp rel32: the distance counts from the end of its 5 bytes.
        let distance = target as i32 - start as i32 - 5;
        text[start] = 0xe9;
        text[start + 1..start + 5].copy_from_slice(&distance.to_le_bytes());
    }
    if let Some(last) = order.last() {
        text[last * LINE_BYTES] = RET;
    }
    order.len() as u64
}

impl Body for Code {
    fn prepare(&mut self) {
        // A flushed kernel has one round per window: later rounds would find the code in the caches.
        if self.is_flushed {
            self.flush();
        }
    }

    fn run(&mut self, rounds: u64) -> Executed {
        self.execute(rounds);
        Executed::whole(rounds.max(1) * self.instructions)
    }

    fn rounds(&self) -> Rounds {
        let times =
            if self.is_flushed { 1 } else { (WINDOW_INSTRUCTIONS / self.instructions).max(1) };
        Rounds::Fixed(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_as_many_instructions_as_fit_and_returns() {
        for (filling, bytes, instructions) in [
            (Filling::Nops1, 100, 100),
            (Filling::Nops4, 4096, 1024),
            (Filling::Nops8, 4096, 512),
            (Filling::Additions, 4096, 1024),
            (Filling::NotTaken, 4096, 1024),
            (Filling::JumpsInOrder, 4096, 64),
            (Filling::JumpsInNoOrder, 4096, 64),
        ] {
            let mut code = Code::new(bytes, filling).unwrap();
            assert_eq!(code.run(3).units, 3.0 * instructions as f64, "{filling:?}");
        }
    }
}
