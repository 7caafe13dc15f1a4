//! Functional warming: instructions update caches, TLBs and predictors, but get no times. Between the sampled
//! units of an out-of-order core, nothing else is done (SMARTS, Wunderlich and others, ISCA 2003).

use super::instruction::{Instruction, Special};
use super::out_of_order::OutOfOrderCore;
use super::single_thread::SingleThreadCore;
use super::store_buffer::next_access;
use super::strings::Repetition;
use super::{Access, Accesses, ExecutedBlock, Memory, Template, load_as};

/// Counts of the instructions that got no times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Instructions that would have used an issue slot: all but the repetitions of string instructions that a
    /// wide access serves.
    pub slots: u32,
}

impl OutOfOrderCore {
    /// Takes the part of [`SingleThreadCore::run_from`] that outlives the block: fetches, loads and stores
    /// reach the memory, all at the core's own cycle, which does not advance; the cache of decoded
    /// instructions and the predictors learn. Fetches of the block come before its loads and stores, which
    /// keep the order of the program.
    #[inline]
    pub fn warm_from<M: Memory>(
        &mut self,
        first: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) -> Warmed {
        let now = self.cycles();
        let number = block.len().min(executed.instructions as usize);
        if block.warming.repeats && number == 1 {
            return self.warm_repetition(block, executed, memory);
        }
        if number <= first {
            return Warmed::default();
        }
        self.warm_lines(first, number, block, memory);
        match executed.accesses {
            [] => {}
            [only] => {
                if usize::from(only.instruction) < number {
                    self.warm_access(special_of(block, only), only, memory);
                }
            }
            several => {
                let mut accesses = Accesses::new(several);
                let mut index = several[0].instruction;
                while usize::from(index) < number {
                    let own_accesses = accesses.next(index.into());
                    if let Some(instruction) = own_accesses.first() {
                        self.warm_accesses(special_of(block, instruction), own_accesses, memory);
                    }
                    let Some(next) = accesses.peek() else { break };
                    index = next.instruction;
                }
            }
        }
        if number == block.len() {
            self.common.front.warm_branch(block, executed.next, &mut self.common.retirement.counts);
        }
        debug_assert_eq!(now, self.cycles());
        let slots = (number - first) as u32;
        self.warmed += u64::from(slots);
        Warmed { slots }
    }

    /// Fetches the lines of instructions from `first` to before `number`.
    #[inline]
    fn warm_lines<M: Memory>(
        &mut self,
        first: usize,
        number: usize,
        block: &Template,
        memory: &mut M,
    ) {
        let now = self.cycles();
        let of_block = &block.warming;
        let from_first = if first < 64 { u64::MAX << first } else { 0 };
        let to_last = if number < 64 { !(u64::MAX << number) } else { u64::MAX };
        let mut starts = of_block.starts & from_first & to_last;
        while starts != 0 {
            let instruction = &block.instructions[starts.trailing_zeros() as usize];
            self.common.front.warm(block, instruction, now, memory);
            starts &= starts - 1;
        }
        if of_block.starts_later && number > 64 {
            let later: &[Instruction] = &block.instructions[first.max(64)..number];
            later
                .iter()
                .for_each(|instruction| self.common.front.warm(block, instruction, now, memory));
        }
    }

    /// Makes the accesses of an instruction: adjacent ones are one, and loads come before stores.
    #[inline]
    fn warm_accesses<M: Memory>(&mut self, special: Special, accesses: &[Access], memory: &mut M) {
        if let [only] = accesses {
            return self.warm_access(special, only, memory);
        }
        for write in [false, true] {
            let mut remaining = accesses;
            while let Some(access) = next_access(&mut remaining, write, self.access_bytes) {
                self.warm_access(special, &access, memory);
            }
        }
    }

    #[inline]
    fn warm_access<M: Memory>(&mut self, special: Special, access: &Access, memory: &mut M) {
        let now = self.cycles();
        if access.write {
            memory.store(access, now)
        } else {
            load_as(special, access, now, memory)
        };
    }

    /// Functional warming of a block that is one repetition of a string instruction.
    fn warm_repetition<M: Memory>(
        &mut self,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) -> Warmed {
        let progress = self.progress();
        let accesses = Accesses::new(executed.accesses).next(0);
        let instruction = &block.instructions[0];
        let address = block.address_of(instruction).0;
        let which = match (&mut self.strings, instruction.repetition_of()) {
            (Some(strings), Some(operation)) if strings.executes(operation) => {
                strings.next(operation, address, accesses, progress)
            }
            _ => Repetition::Chunk,
        };
        if which != Repetition::Within {
            self.warm_lines(0, 1, block, memory);
            self.warm_accesses(Special::None, accesses, memory);
        }
        self.warmed += 1;
        let progress = self.progress();
        if let Some(strings) = &mut self.strings {
            strings.executed(progress);
        }
        Warmed { slots: u32::from(which != Repetition::Within) }
    }
}

/// The access's effect on memory, from its instruction.
#[inline]
fn special_of(block: &Template, access: &Access) -> Special {
    if !block.warming.has_locked {
        return Special::None;
    }
    let instruction = block.instructions.get(usize::from(access.instruction));
    instruction.map_or(Special::None, |instruction| instruction.special)
}
