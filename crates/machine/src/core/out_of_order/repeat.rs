//! Instructions that are parts of others: repetitions of string instructions, and operations that are fused with a
//! branch.

use super::OutOfOrderCore;
use super::parts::AllParts;
use crate::core::instruction::{Instruction, Register, Template, register_index};
use crate::core::strings::Repetition;
use crate::core::{Access, Memory};

impl OutOfOrderCore {
    /// A repetition of a string instruction.
    #[inline]
    pub(super) fn repeat<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> (u64, u64) {
        let operation = instruction.repetition_of();
        let (Some(mut strings), Some(operation)) = (self.strings, operation) else {
            return self.step::<AllParts, M>(block, instruction, accesses, memory);
        };
        if !strings.executes(operation) {
            return self.step::<AllParts, M>(block, instruction, accesses, memory);
        }
        let address = block.address_of(instruction).0;
        let which = strings.next(operation, address, accesses, self.progress());
        let mut times = (self.common.retirement.cycle(), self.common.retirement.cycle());
        if which == Repetition::Within {
            self.common.retirement.counts.slotless_instructions += 1;
        } else {
            times = self.step::<AllParts, M>(block, instruction, accesses, memory);
            if strings.ends_cycle() {
                self.entering.end_cycle();
            }
        }
        if let Some(wait) = strings.wait_cycles(operation, which) {
            self.common.front.resume_at(self.entering.cycle() + wait);
        }
        strings.executed(self.progress());
        self.strings = Some(strings);
        times
    }

    /// An operation on registers that is fused with the branch after it: it takes no place of the width, of
    /// the reorder buffer and of retirement, and the branch does not wait for its flags.
    #[inline(never)]
    pub(super) fn fused<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        memory: &mut M,
    ) -> (u64, u64) {
        let fetched = self.common.fetch(block, instruction, memory);
        let earliest = fetched.cycle.max(self.reorder.oldest());
        let entered = self.entering.next(earliest).max(self.ports.now());
        let ready = instruction.reads.iter().map(|register| self.ready[register_index(*register)]);
        let operands = ready.fold(entered, u64::max);
        for register in instruction.writes {
            let latency = if register == Register::FLAGS.number() { 0 } else { 1 };
            self.ready[register_index(register)] = operands + latency;
        }
        self.common.retirement.counts.slotless_instructions += 1;
        (fetched.cycle, operands)
    }
}
