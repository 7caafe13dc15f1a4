//! Generated code for a kernel, with the length and the instructions that the kernel needs.

use stats::Random;

use crate::memory::{Kind, Pages};
use crate::{Body, Executed, Made, Rounds};

/// Instructions that a window executes, about.
const WINDOW_INSTRUCTIONS: u64 = 60_000;
const RET: u8 = 0xc3;
const LINE_BYTES: usize = 64;
/// Seed of all orders.
const SEED: u64 = 1;

/// The instructions of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// NOPs of 1, 4 or 8 bytes.
    Nops(usize),
    /// Additions of 4 bytes, in four chains.
    Additions,
    /// A jump in each line to the next one.
    JumpsInOrder,
    /// A jump in each line to another one, in no order.
    JumpsInNoOrder,
    /// A conditional jump that is not taken, every 8 bytes.
    NotTaken,
}

/// Code that ends with a return.
pub(crate) struct Code {
    memory: Pages,
    bytes: usize,
    instructions: u64,
    flushed: bool,
}

impl Code {
    /// Code of a number of bytes, without the return.
    ///
    /// Fails when there is no memory that can be executed.
    pub(crate) fn new(bytes: usize, of: Filling) -> Result<Code, String> {
        let mut memory = Pages::new(bytes + LINE_BYTES, Kind::Code)?;
        let text = memory.bytes_mut();
        let instructions = match of {
            Filling::Nops(1) => repeat(&mut text[..bytes], &[&[0x90]]),
            Filling::Nops(4) => repeat(&mut text[..bytes], &[&[0x0f, 0x1f, 0x40, 0]]),
            Filling::Nops(_) => repeat(&mut text[..bytes], &[&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]]),
            // add r8, 1 and so on to r11.
            Filling::Additions => repeat(
                &mut text[..bytes],
                &[
                    &[0x49, 0x83, 0xc0, 1],
                    &[0x49, 0x83, 0xc1, 1],
                    &[0x49, 0x83, 0xc2, 1],
                    &[0x49, 0x83, 0xc3, 1],
                ],
            ),
            // jc with the flags of the call's loop, whose counter never borrows, and a NOP of 6 bytes.
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
        if !matches!(of, Filling::JumpsInOrder | Filling::JumpsInNoOrder) {
            text[bytes] = RET;
        }
        Ok(Code { memory, bytes, instructions, flushed: false })
    }

    /// Marks the code: each window flushes it from all caches and executes it once.
    pub(crate) fn flushed(self) -> Code {
        Code { flushed: true, ..self }
    }

    /// The body of a kernel.
    pub(crate) fn body(self) -> Made {
        Ok(Box::new(self))
    }

    fn execute(&self, times: u64) {
        // SAFETY: the memory is executable and holds the instructions that `new` wrote: they change
        // r8 to r11 and flags, which are declared, and end with a return.
        unsafe {
            std::arch::asm!(
                ".p2align 6", "2:", "clc", "call {code}", "dec {times}", "jnz 2b",
                code = in(reg) self.memory.base().as_ptr(),
                times = inout(reg) times.max(1) => _,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
    }

    fn flush(&self) {
        for line in (0..self.bytes).step_by(LINE_BYTES) {
            // SAFETY: the line is within the memory; flushing it changes no content.
            unsafe { std::arch::x86_64::_mm_clflush(self.memory.base().as_ptr().add(line)) };
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// Fills text with instructions in turn; returns how many there are.
fn repeat(text: &mut [u8], instructions: &[&[u8]]) -> u64 {
    let (mut at, mut number) = (0, 0);
    for instruction in instructions.iter().cycle() {
        let Some(place) = text.get_mut(at..at + instruction.len()) else { break };
        place.copy_from_slice(instruction);
        (at, number) = (at + instruction.len(), number + 1);
    }
    // The remaining bytes are too short for the next instruction. One-byte NOPs fill them.
    text[at..].fill(0x90);
    number
}

/// Writes a jump into each line to the next one of the order, and a return into the last; returns how
/// many there are.
fn jumps(text: &mut [u8], order: Vec<usize>) -> u64 {
    for two in order.windows(2) {
        let [from, to] = [two[0] * LINE_BYTES, two[1] * LINE_BYTES];
        // jmp rel32, from its end.
        let distance = to as i32 - from as i32 - 5;
        text[from] = 0xe9;
        text[from + 1..from + 5].copy_from_slice(&distance.to_le_bytes());
    }
    if let Some(last) = order.last() {
        text[last * LINE_BYTES] = RET;
    }
    order.len() as u64
}

impl Body for Code {
    fn prepare(&mut self) {
        if self.flushed {
            self.flush();
        }
    }

    fn run(&mut self, rounds: u64) -> Executed {
        self.execute(rounds);
        Executed::whole(rounds.max(1) * self.instructions)
    }

    fn rounds(&self) -> Rounds {
        let times = if self.flushed { 1 } else { (WINDOW_INSTRUCTIONS / self.instructions).max(1) };
        Rounds::Fixed(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_as_many_instructions_as_fit_and_returns() {
        for (of, bytes, instructions) in [
            (Filling::Nops(1), 100, 100),
            (Filling::Nops(4), 4096, 1024),
            (Filling::Nops(8), 4096, 512),
            (Filling::Additions, 4096, 1024),
            (Filling::NotTaken, 4096, 1024),
            (Filling::JumpsInOrder, 4096, 64),
            (Filling::JumpsInNoOrder, 4096, 64),
        ] {
            let mut code = Code::new(bytes, of).unwrap();
            assert_eq!(code.run(3).units, 3.0 * instructions as f64, "{of:?}");
        }
    }
}
