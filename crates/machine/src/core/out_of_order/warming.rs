//! Functional warming: instructions update caches, TLBs and predictors, but get no times. In a sampled simulation, an
//! out-of-order core does nothing else between the units that it executes in detail (SMARTS, Wunderlich and others,
//! ISCA 2003). Most instructions of a sampled run pass here, so speed matters.
//!
//! Most blocks need only their summary: see `core/summary.rs`. Memory completes most loads and stores of a block in one
//! call, [`Memory::filter`], up to the first that is more than a hit.
//!
//! Invariant: caches, TLBs and predictors end in the state that executing the block in detail would leave.

use std::ops::Range;

use super::OutOfOrderCore;
use crate::core::code_tags::FoundCode;
use crate::core::instruction::{Instruction, StringOperation, Template};
use crate::core::store_buffer::next_access;
use crate::core::strings::Repetition;
use crate::core::summary::{BlockKind, CodeStart};
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
        let summary = &block.summary;
        let mut slots = match summary.kind {
            BlockKind::Simple => {
                self.warm_simple(first..end, block, executed.accesses, memory);
                let slots = (end - first) as u32;
                self.warmed += Instructions::from(slots);
                slots
            }
            BlockKind::Repetition(operation) => {
                return self.warm_repetition(operation, block, executed.accesses, memory);
            }
            BlockKind::Any => self.warm_each(first..end, block, executed.accesses, memory),
        };
        let fused = summary.fused.map(usize::from);
        if fused.is_some_and(|fused| (first..end).contains(&fused)) {
            slots -= 1;
        }
        if let Some(branch) = summary.branch
            && end == block.len()
        {
            let counts = &mut self.common.retirement.counts;
            self.common.code.predict(block, branch, executed.next, counts);
        }
        Warmed { slots }
    }

    /// Warms the instructions in `range` of a block of the kind [`BlockKind::Simple`]. Visits only places where code is
    /// looked up, and accesses.
    #[inline(always)]
    fn warm_simple<M: Memory>(
        &mut self,
        range: Range<usize>,
        block: &Template,
        accesses: &[Access],
        memory: &mut M,
    ) {
        let mut remaining = accesses_from(range.start, accesses);
        for start in &block.summary.starts {
            let number = usize::from(start.number);
            if !range.contains(&number) {
                continue;
            }
            let found = self.common.code.look_up(block, start);
            if found.is_fetched() {
                // Earlier instructions access memory before the fetch. The cache of decoded instructions has no part in
                // memory.
                remaining = self.warm_data(number, block, remaining, memory);
                fetch_found(found, block, start, memory);
            }
        }
        if !remaining.is_empty() {
            self.warm_data(range.end, block, remaining, memory);
        }
    }

    /// Warms the accesses of instructions before number `end` of a block of the kind [`BlockKind::Simple`]. Returns the
    /// remaining accesses.
    #[inline(always)]
    fn warm_data<'a, M: Memory>(
        &mut self,
        end: usize,
        block: &Template,
        accesses: &'a [Access],
        memory: &mut M,
    ) -> &'a [Access] {
        let later = match accesses {
            [.., last] if usize::from(last.instruction) >= end => accesses_from(end, accesses),
            _ => &[],
        };
        let mut remaining = &accesses[..accesses.len() - later.len()];
        while !remaining.is_empty() {
            let passed = memory.filter(remaining, &block.summary.plain);
            remaining = remaining.get(passed..).unwrap_or_default();
            if !remaining.is_empty() {
                remaining = self.warm_next(block, remaining, memory);
            }
        }
        later
    }

    /// Warms the accesses of the instruction that makes the first of `accesses`. Returns the remaining accesses.
    #[inline(never)]
    fn warm_next<'a, M: Memory>(
        &mut self,
        block: &Template,
        accesses: &'a [Access],
        memory: &mut M,
    ) -> &'a [Access] {
        let [access, later @ ..] = accesses else { return accesses };
        let number = usize::from(access.instruction);
        let is_only = later.first().is_none_or(|next| next.instruction != access.instruction);
        if is_only && block.summary.plain.contains(number, access.write) {
            let mode = if access.write { AccessMode::Store } else { AccessMode::Load };
            memory.look_up(access, mode);
            return later;
        }
        let mut accesses = Accesses::new(accesses);
        self.warm_accesses(&block.instructions[number], accesses.next(number), memory);
        accesses.remaining()
    }

    /// Warms a block of the kind [`BlockKind::Repetition`]. Most repetitions belong to an earlier access, and touch
    /// nothing but the state of the string.
    #[inline(never)]
    fn warm_repetition<M: Memory>(
        &mut self,
        operation: StringOperation,
        block: &Template,
        accesses: &[Access],
        memory: &mut M,
    ) -> Warmed {
        let accesses = Accesses::new(accesses).next(0);
        let now = self.progress();
        self.warmed += Instructions(1);
        if let Some(strings) = &mut self.strings
            && strings.executes(operation)
        {
            let repetition = strings.next(operation, block.address(), accesses, now);
            strings.executed(now.after_instruction());
            if repetition == Repetition::Within {
                return Warmed { slots: 0 };
            }
            strings.enter_chunk();
        }
        for start in &block.summary.starts {
            self.warm_code(block, start, memory);
        }
        self.warm_accesses(&block.instructions[0], accesses, memory);
        Warmed { slots: 1 }
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
                    self.warm_code(block, &block.code_start(index as u16, instruction), memory);
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
    fn warm_code<M: Memory>(&mut self, block: &Template, start: &CodeStart, memory: &mut M) {
        let found = self.common.code.look_up(block, start);
        if found.is_fetched() {
            fetch_found(found, block, start, memory);
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

/// The accesses of instructions from number `first` on.
#[inline(always)]
fn accesses_from(first: usize, accesses: &[Access]) -> &[Access] {
    let is_earlier = |access: &&Access| usize::from(access.instruction) < first;
    let earlier = if first == 0 { 0 } else { accesses.iter().take_while(is_earlier).count() };
    &accesses[earlier..]
}

/// Looks up the lines of code that must be fetched for an instruction.
#[inline(never)]
fn fetch_found<M: Memory>(found: FoundCode, block: &Template, start: &CodeStart, memory: &mut M) {
    let (virtual_address, physical) = block.addresses_at(start.first_byte);
    memory.set_fetched_instruction(virtual_address, physical);
    for line in found.lines(block, start) {
        memory.look_up_fetch(line.0, line.1);
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
