//! Instructions that a core executes as a part of another instruction: repetitions of string instructions, and
//! operations that are fused with a branch.

use super::OutOfOrderCore;
use super::parts::AllParts;
use crate::core::front_end::InstructionTimes;
use crate::core::instruction::{Instruction, Register, Template, register_index};
use crate::core::strings::{Progress, Repetition};
use crate::core::{Access, Memory};
use crate::counts::Instructions;
use crate::cycle::Cycle;

/// How a repetition of a string instruction is executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundRepetition {
    /// An earlier repetition has accessed its bytes, so it takes no slot.
    pub(super) is_within: bool,
    /// It is the last repetition that enters in its cycle.
    ends_cycle: bool,
    /// Cycles that the next instruction waits. `None`: no wait.
    wait_cycles: Option<u64>,
}

impl OutOfOrderCore {
    /// Gives a repetition of a string instruction its times.
    #[inline]
    pub(super) fn repeat<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) -> InstructionTimes {
        let Some(found) = self.find_repetition(block, instruction, accesses) else {
            return self.step::<AllParts, M>(block, instruction, accesses, memory);
        };
        let retired = self.common.retirement.cycle();
        let mut times = InstructionTimes { fetched: retired, done: retired };
        if found.is_within {
            self.common.retirement.counts.slotless_instructions += 1;
        } else {
            times = self.step::<AllParts, M>(block, instruction, accesses, memory);
            if found.ends_cycle {
                self.entering.end_cycle();
            }
        }
        if let Some(wait) = found.wait_cycles {
            self.common.front.resume_at(self.entering.cycle() + wait);
        }
        self.end_repetition();
        times
    }

    /// How the next repetition of a string instruction is executed. `None`: like an ordinary instruction. Otherwise
    /// [`OutOfOrderCore::end_repetition`] must follow.
    pub(super) fn find_repetition(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        accesses: &[Access],
    ) -> Option<FoundRepetition> {
        let progress = self.progress();
        let (strings, operation) = (self.strings.as_mut()?, instruction.repetition_of()?);
        if !strings.executes(operation) {
            return None;
        }
        let address = block.address_of(instruction);
        let repetition = strings.next(operation, address, accesses, progress);
        let is_within = repetition == Repetition::Within;
        Some(FoundRepetition {
            is_within,
            ends_cycle: !is_within && strings.enter_chunk(),
            wait_cycles: strings.wait_cycles(operation, repetition),
        })
    }

    /// Notes that the repetition that was found last has executed.
    pub(super) fn end_repetition(&mut self) {
        let progress = self.progress();
        if let Some(strings) = &mut self.strings {
            strings.executed(progress);
        }
    }

    /// Instructions and interrupts so far, with and without times.
    pub(super) fn progress(&self) -> Progress {
        let counts = &self.common.retirement.counts;
        let retired = Instructions(counts.instructions + counts.slotless_instructions);
        Progress { instructions: retired + self.warmed, interrupts: counts.interrupts }
    }

    /// Gives its times to an operation on registers that is fused with the branch after it. The operation takes no slot
    /// of the width, of the reorder buffer and of retirement. The branch does not wait for the flags: they are ready
    /// with the operands.
    #[inline(never)]
    pub(super) fn fused<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        memory: &mut M,
    ) -> InstructionTimes {
        let fetched = self.common.fetch(block, instruction, memory);
        let earliest = fetched.cycle.max(self.reorder.oldest());
        let entered = self.entering.next(earliest).max(self.ports.now());
        let ready = instruction.reads.iter().map(|register| self.ready[register_index(*register)]);
        let operands = ready.fold(entered, Cycle::max);
        for register in instruction.writes {
            let is_flags = [Register::FLAGS, Register::FLAGS_BUT_CARRY]
                .iter()
                .any(|flags| flags.number() == register);
            self.ready[register_index(register)] = operands + u64::from(!is_flags);
        }
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.overwritten(instruction);
        }
        self.common.retirement.counts.slotless_instructions += 1;
        InstructionTimes { fetched: fetched.cycle, done: operands }
    }
}
