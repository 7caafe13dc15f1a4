//! Functional warming: instructions update caches, TLBs and predictors, but get no times. In a sampled simulation, an
//! out-of-order core does nothing else between the units that it executes in detail (SMARTS, Wunderlich and others,
//! ISCA 2003). Most instructions of a sampled run pass here, so speed matters.
//!
//! Invariant: caches, TLBs and predictors end in the state that executing the block in detail would leave.

use std::ops::Range;

use super::OutOfOrderCore;
use crate::core::instruction::{Instruction, Template};
use crate::core::store_buffer::next_access;
use crate::core::{Access, AccessMode, Accesses, ExecutedBlock, Memory};
use crate::counts::Instructions;

/// Counts of instructions that were warmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Instructions that would have used an issue slot. Two kinds would not: repetitions of string instructions that an
    /// earlier wide access includes, and operations that are fused with a branch.
    pub slots: u32,
}

impl OutOfOrderCore {
    /// Warms a block from instruction `first` on: updates state as
    /// [`SingleThreadCore::run_from`](crate::core::SingleThreadCore::run_from) would, in equal order. Fetches, loads
    /// and stores are looked up; the cache of decoded instructions and the predictors learn. No time passes. The branch
    /// is predicted only if the block was executed to its end.
    #[inline]
    pub fn warm_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) -> Warmed {
        let end = block.len().min(executed.instructions as usize);
        if end <= first {
            return Warmed::default();
        }
        let mut slots = if block.summary.is_simple {
            self.warm_simple(first..end, block, executed.accesses, memory);
            let slots = (end - first) as u32;
            self.warmed += Instructions::from(slots);
            slots
        } else {
            self.warm_each(first..end, block, executed.accesses, memory)
        };
        let fused = block.summary.fused.map(usize::from);
        if fused.is_some_and(|fused| (first..end).contains(&fused)) {
            slots -= 1;
        }
        if let Some(branch) = block.summary.branch
            && end == block.len()
        {
            let counts = &mut self.common.retirement.counts;
            self.common.code.predict(block, branch, executed.next, counts);
        }
        Warmed { slots }
    }

    /// Warms the instructions in `range` of a block of at most 64 instructions without repetitions. Visits only
    /// instructions that start a line, or have accesses.
    #[inline]
    fn warm_simple<M: Memory>(
        &mut self,
        range: Range<usize>,
        block: &Template,
        accesses: &[Access],
        memory: &mut M,
    ) {
        let Range { start: first, end } = range;
        let mut starts = block.summary.starts & u64::MAX << first;
        if end < 64 {
            starts &= !(u64::MAX << end);
        }
        let mut remaining = accesses;
        while let [access, later @ ..] = remaining {
            let index = usize::from(access.instruction);
            if index >= end {
                break;
            }
            while starts.trailing_zeros() as usize <= index {
                let instruction = &block.instructions[starts.trailing_zeros() as usize];
                self.warm_code(block, instruction, memory);
                starts &= starts - 1;
            }
            if index < first {
                remaining = later;
                continue;
            }
            let instruction = &block.instructions[index];
            if later.first().is_some_and(|next| next.instruction == access.instruction) {
                let mut accesses = Accesses::new(remaining);
                self.warm_accesses(instruction, accesses.next(index), memory);
                remaining = accesses.remaining();
            } else {
                warm_access(instruction, access, memory);
                remaining = later;
            }
        }
        while starts != 0 {
            let instruction = &block.instructions[starts.trailing_zeros() as usize];
            self.warm_code(block, instruction, memory);
            starts &= starts - 1;
        }
    }

    /// Warms the instructions in `range` of any block, one by one. Returns how many issue slots they would have used.
    #[inline(never)]
    fn warm_each<M: Memory>(
        &mut self,
        range: Range<usize>,
        block: &Template,
        accesses: &[Access],
        memory: &mut M,
    ) -> u32 {
        let mut accesses = Accesses::new(accesses);
        let mut slots = 0;
        if range.start > 0 {
            accesses.next(range.start - 1);
        }
        for index in range {
            let instruction = &block.instructions[index];
            let own_accesses = accesses.next(index);
            let repetition = if instruction.repeats() {
                self.find_repetition(block, instruction, own_accesses)
            } else {
                None
            };
            if repetition.is_none_or(|repetition| !repetition.is_within) {
                if instruction.starts() {
                    self.warm_code(block, instruction, memory);
                }
                self.warm_accesses(instruction, own_accesses, memory);
                slots += 1;
            }
            self.warmed += Instructions(1);
            if repetition.is_some() {
                self.end_repetition();
            }
        }
        slots
    }

    /// Looks up the code of an instruction that starts a line.
    #[inline(always)]
    fn warm_code<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        memory: &mut M,
    ) {
        let found = self.common.code.look_up(block, instruction);
        if found.is_fetched() {
            memory.set_fetched_instruction(
                block.address_of(instruction),
                block.physical_of(instruction),
            );
            for line in found.lines(block, instruction) {
                memory.look_up_fetch(line.0, line.1);
            }
        }
    }

    /// Looks up all loads of an instruction, then all stores. Adjacent accesses of one kind are looked up as one, up to
    /// `access_bytes`, within a page.
    #[inline(never)]
    fn warm_accesses<M: Memory>(
        &mut self,
        instruction: &Instruction,
        accesses: &[Access],
        memory: &mut M,
    ) {
        for write in [false, true] {
            let mut remaining = accesses;
            while let Some(access) = next_access(&mut remaining, write, self.access_bytes) {
                warm_access(instruction, &access, memory);
            }
        }
    }
}

/// Looks up a load or store, if its instruction loads or stores.
#[inline(always)]
fn warm_access<M: Memory>(instruction: &Instruction, access: &Access, memory: &mut M) {
    let has_such_access = if access.write { instruction.stores() } else { instruction.loads() };
    if !has_such_access {
        return;
    }
    let mode = if access.write {
        AccessMode::store_of(instruction)
    } else {
        AccessMode::load_of(instruction.special)
    };
    memory.look_up(access, mode);
}
