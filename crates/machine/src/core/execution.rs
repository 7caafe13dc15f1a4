//! What all cores have in common.

use super::instruction::{SPECIALS, Special, UNITS, Unit};
use super::memory::Access;
use super::model::CoreModel;

/// What was executed of a block.
#[derive(Clone, Copy, Debug)]
pub struct ExecutedBlock<'a> {
    /// How many of its instructions, from the first: fewer than all where an exception ended it.
    pub instructions: u32,
    /// What they loaded and stored, in that order.
    pub accesses: &'a [Access],
    /// The address that was executed behind it; if an interrupt came there, where that returns to.
    pub next: u64,
}

/// The accesses of a block, instruction by instruction.
#[derive(Debug)]
pub(super) struct Accesses<'a>(&'a [Access]);

impl<'a> Accesses<'a> {
    pub(super) fn new(accesses: &'a [Access]) -> Accesses<'a> {
        Accesses(accesses)
    }

    /// Those of instruction `index`, where those before it were asked for.
    #[inline]
    pub(super) fn next(&mut self, index: usize) -> &'a [Access] {
        let of_it = |access: &&Access| usize::from(access.instruction) <= index;
        let (of_it, rest) = self.0.split_at(self.0.iter().take_while(of_it).count());
        self.0 = rest;
        of_it
    }
}

/// How long operations take, cycles.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    units: [u64; UNITS],
    specials: [u64; SPECIALS],
    pub(super) forward: u64,
    pub(super) interrupt: u64,
}

impl Latencies {
    pub(super) fn new(model: &CoreModel) -> Latencies {
        let events = &model.events;
        let mut specials = [0; SPECIALS];
        let all = [
            (Special::Microcode, events.microcode_cycles),
            (Special::Atomic, events.atomic_cycles),
            (Special::Barrier, events.atomic_cycles),
            (Special::Pause, events.pause_cycles),
            (Special::Serialise, events.serialise_cycles),
            (Special::SystemCall, events.system_call_cycles),
            (Special::SystemReturn, events.system_return_cycles),
            (Special::InterruptReturn, events.interrupt_return_cycles),
        ];
        for (special, cycles) in all {
            specials[special as usize] = cycles.into();
        }
        Latencies {
            units: model.units.all().map(|(_, unit)| unit.latency_cycles.into()),
            specials,
            forward: model.data.forward_cycles.into(),
            interrupt: events.interrupt_cycles.into(),
        }
    }

    #[inline]
    pub(super) fn of(&self, unit: Unit) -> u64 {
        self.units[unit as usize]
    }

    #[inline]
    pub(super) fn special(&self, special: Special) -> u64 {
        self.specials[special as usize]
    }
}
