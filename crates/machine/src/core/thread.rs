//! A thread of a core: what it has executed and what of that is to issue.

use std::collections::VecDeque;

use super::execution::Latencies;
use super::graduation::{Graduation, Waits};
use super::in_order::Until;
use super::instruction::{Instruction, REGISTERS};
use super::memory::{Access, Memory};
use super::model::CoreModel;
use super::stores::Stores;
use super::template::Template;
use crate::predict::{Prediction, Predictor};

/// An instruction that is to issue, and what is known of it before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) one: Instruction,
    /// Cycles that its line of instructions is waited for.
    pub(super) fetch_wait: u64,
    /// Cycles that its loads wait beyond a hit.
    pub(super) load_wait: u64,
    /// The same of its stores.
    pub(super) store_wait: u64,
    /// Whether it comes behind an interrupt.
    pub(super) interrupted: bool,
    /// If it is a branch: what the predictor made of it.
    pub(super) foreseen: Prediction,
}

impl Pending {
    /// How long its thread takes for it at least.
    pub(super) fn least_cycles(&self, blocking: bool) -> u64 {
        1 + if blocking { self.load_wait + self.store_wait } else { 0 }
    }
}

/// When the first in a thread's queue can issue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) cycle: u64,
    pub(super) waits: Waits,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) queue: VecDeque<Pending>,
    /// Of the first in the queue.
    pub(super) head: Ready,
    pub(super) registers: Box<[Until; REGISTERS]>,
    /// Nothing issues before.
    pub(super) earliest: Until,
    pub(super) all_done: Until,
    pub(super) stores: Stores,
    pub(super) predictor: Predictor,
    pub(super) last_line: Option<(u64, u64)>,
    pub(super) interrupted: bool,
    /// Cycles that what is queued takes at least.
    pub(super) queued_cycles: u64,
    /// Whether nothing comes of it: the others don't wait for what it executes next.
    pub(super) halted: bool,
    pub(super) graduation: Graduation,
}

impl Thread {
    pub(super) fn new(model: &CoreModel) -> Thread {
        Thread {
            queue: VecDeque::new(),
            head: Ready { cycle: 0, waits: Waits::default() },
            registers: Box::new([Until::default(); REGISTERS]),
            earliest: Until::default(),
            all_done: Until::default(),
            stores: Stores::new(model.data.store_entries, model.units.store.count),
            predictor: Predictor::new(&model.predictor),
            last_line: None,
            interrupted: false,
            queued_cycles: 0,
            halted: false,
            graduation: Graduation::new(1),
        }
    }

    /// When all that is queued has issued, at the earliest. It never falls.
    pub(super) fn time(&self) -> u64 {
        self.graduation.cycle().max(self.earliest.cycle()) + self.queued_cycles
    }

    /// With nothing queued: cycles before `cycle` that are still to come are not its.
    pub(super) fn skip_to(&mut self, cycle: u64) {
        if cycle > self.time() {
            // What it waited for before is its own.
            self.graduation.wait_for_data(self.earliest.cycle());
            self.graduation.skip_to(cycle);
        }
    }

    /// Waits for the lines of an instruction that are other than the last.
    pub(super) fn fetch<M: Memory>(
        &mut self,
        block: &Template,
        one: &Instruction,
        memory: &mut M,
        now: u64,
    ) -> u64 {
        if !one.begins_line() {
            return 0;
        }
        let mut waited = 0;
        for line in block.lines_of(one) {
            if self.last_line != Some(line) {
                self.last_line = Some(line);
                waited += memory.fetch(line.0, line.1, now + waited);
            }
        }
        self.graduation.counts.fetch_misses += u64::from(waited > 0);
        waited
    }

    pub(super) fn access<M: Memory>(
        &mut self,
        accesses: &[Access],
        memory: &mut M,
        now: u64,
    ) -> (u64, u64) {
        let (mut load_wait, mut store_wait) = (0, 0);
        let counts = &mut self.graduation.counts;
        for access in accesses {
            let (number, misses, waited) = match access.write {
                true => (&mut counts.stores, &mut counts.store_misses, &mut store_wait),
                false => (&mut counts.loads, &mut counts.load_misses, &mut load_wait),
            };
            let wait = match access.write {
                true => memory.store(access, now),
                false => memory.load(access, now),
            };
            *number += 1;
            *misses += u64::from(wait > 0);
            *waited = wait.max(*waited);
        }
        (load_wait, store_wait)
    }

    /// Finds when the first in the queue can issue.
    pub(super) fn look_ahead(&mut self, latencies: &Latencies) {
        let Some(pending) = self.queue.front() else { return };
        // The cycle behind that of the instruction before.
        let next = self.graduation.cycle();
        let one = &pending.one;
        let addresses = Until::of(&one.addresses, &self.registers);
        let mut until = Until::of(&one.reads, &self.registers).max(addresses).max(self.earliest);
        if one.special.drains() {
            until = until.max(self.all_done);
        }
        if one.special.orders_memory() {
            until = until.at_least(self.stores.all_left());
        }
        if one.stores() {
            let (cycle, missed) = self.stores.place();
            until = until.max(Until::new(cycle, missed));
        }
        let mut starts = next;
        if pending.interrupted {
            starts += latencies.interrupt;
        }
        let fetched = starts + pending.fetch_wait;
        let data = if until.missed() { (0, until.cycle() + 1) } else { (0, 0) };
        let fetch = ((starts + 1).max(data.1), fetched + 1);
        let fetch = if pending.fetch_wait > 0 { fetch } else { (0, 0) };
        let waits = Waits { fetch, data, ..Waits::default() };
        self.head = Ready { cycle: fetched.max(until.cycle()), waits };
    }
}
