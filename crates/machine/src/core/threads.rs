//! A core whose threads share its pipeline cycle by cycle, as those of the UltraSPARC T1: in each
//! cycle one of the threads that are ready issues, one after the other.
//!
//! Threads are handed in one after the other, and yet run at once: what a thread executes is queued,
//! and [`Threads::settle`] has all of them issue what is queued.

use std::collections::VecDeque;

use super::counts::CoreCounts;
use super::execution::{Accesses, Executed, Latencies};
use super::graduation::{Graduation, Waits};
use super::in_order::Until;
use super::instruction::{Instruction, REGISTERS, Special, UNITS, Unit, place};
use super::memory::{Access, Memory};
use super::model::CoreModel;
use super::stores::Stores;
use super::template::Template;
use crate::predict::{Branch, Foreseen, Predictor};

/// An instruction that is to issue, and what is known of it before.
#[derive(Clone, Copy, Debug)]
struct Pending {
    one: Instruction,
    /// Cycles that its line of instructions is waited for.
    fetch_wait: u64,
    /// Cycles that its loads wait beyond a hit.
    load_wait: u64,
    /// The same of its stores.
    store_wait: u64,
    /// Whether it comes behind an interrupt.
    interrupted: bool,
    /// If it is a branch: what the predictor made of it.
    foreseen: Foreseen,
}

/// When the first in a thread's queue can issue.
#[derive(Clone, Copy, Debug)]
struct Ready {
    cycle: u64,
    waits: Waits,
}

#[derive(Clone, Debug)]
struct Thread {
    queue: VecDeque<Pending>,
    /// Of the first in the queue.
    head: Ready,
    registers: Box<[Until; REGISTERS]>,
    /// Nothing issues before.
    earliest: Until,
    all_done: Until,
    stores: Stores,
    predictor: Predictor,
    last_line: Option<(u64, u64)>,
    interrupted: bool,
    graduation: Graduation,
}

/// A core of several threads.
#[derive(Clone, Debug)]
pub struct Threads {
    threads: Vec<Thread>,
    blocking: bool,
    latencies: Latencies,
    mispredict_cycles: u64,
    late_target_cycles: u64,
    intervals: [u64; UNITS],
    /// When units, which all threads share, are free.
    free: [u64; UNITS],
    /// The next cycle in which something can issue.
    now: u64,
    /// The thread that issued last.
    last: usize,
}

impl Thread {
    fn new(model: &CoreModel) -> Thread {
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
            graduation: Graduation::new(1),
        }
    }

    /// Waits for the lines of an instruction that are other than the last.
    fn fetch<M: Memory>(
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

    fn access<M: Memory>(&mut self, accesses: &[Access], memory: &mut M, now: u64) -> (u64, u64) {
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
    fn look_ahead(&mut self, latencies: &Latencies) {
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

impl Threads {
    /// A core that has executed nothing, of a model that [`CoreModel::check`] has accepted. Absent if
    /// the model has no threads.
    #[must_use]
    pub fn new(model: &CoreModel) -> Option<Threads> {
        let threads = model.threads?;
        Some(Threads {
            threads: (0..threads).map(|_| Thread::new(model)).collect(),
            blocking: model.data.blocking,
            latencies: Latencies::new(model),
            mispredict_cycles: model.front.mispredict_cycles.into(),
            late_target_cycles: model.front.late_target_cycles.into(),
            intervals: model.units.all().map(|(_, unit)| unit.interval_cycles.into()),
            free: [0; UNITS],
            now: 0,
            last: threads as usize - 1,
        })
    }

    /// How many threads it has.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Queues a block that `thread` executes, or as much of it as was executed. The memory is asked
    /// now.
    pub fn run<M: Memory>(
        &mut self,
        thread: usize,
        block: &Template,
        executed: &Executed,
        memory: &mut M,
    ) {
        let now = self.now;
        let thread = &mut self.threads[thread];
        let mut accesses = Accesses::new(executed.accesses);
        let number = block.len().min(executed.instructions as usize);
        let whole = number == block.len();
        let empty = thread.queue.is_empty();
        for (index, one) in block.instructions[..number].iter().enumerate() {
            let of_it = accesses.next(index);
            let fetch_wait = thread.fetch(block, one, memory, now);
            let (load_wait, store_wait) = thread.access(of_it, memory, now);
            let mut foreseen = Foreseen::Right;
            if let Some(kind) = one.branch.filter(|_| whole && index + 1 == number) {
                let (address, behind, target) = (block.address_of(one), block.behind, block.target);
                let branch = Branch { address, kind, behind, target, next: executed.next };
                foreseen = thread.predictor.step(&branch);
                let counts = &mut thread.graduation.counts;
                counts.branches += 1;
                counts.late_branches += u64::from(foreseen == Foreseen::Late);
                counts.mispredicted_branches += u64::from(foreseen == Foreseen::Wrong);
            }
            let interrupted = std::mem::take(&mut thread.interrupted);
            let one = *one;
            let pending = Pending { one, fetch_wait, load_wait, store_wait, interrupted, foreseen };
            thread.queue.push_back(pending);
        }
        if empty {
            thread.look_ahead(&self.latencies);
        }
    }

    /// An interrupt or exception comes behind what `thread` has queued last.
    pub fn interrupt(&mut self, thread: usize) {
        let thread = &mut self.threads[thread];
        thread.graduation.counts.interrupts += 1;
        thread.interrupted = true;
        thread.last_line = None;
    }

    /// `thread`, which has nothing queued, was halted until `cycle`: those cycles are not its.
    pub fn halt_until(&mut self, thread: usize, cycle: u64) {
        self.threads[thread].graduation.skip_to(cycle);
    }

    /// All threads issue what is queued.
    pub fn settle(&mut self) {
        while let Some((cycle, thread)) = self.next() {
            self.issue(thread, cycle);
            self.now = cycle + 1;
            self.last = thread;
        }
    }

    /// Which thread issues next, and when: of those that are ready in the first cycle in which any
    /// is, the first behind the one that issued last.
    fn next(&self) -> Option<(u64, usize)> {
        let number = self.threads.len();
        let mut first: Option<(u64, usize)> = None;
        for behind in 1..=number {
            let thread = (self.last + behind) % number;
            let Some(pending) = self.threads[thread].queue.front() else { continue };
            let free = pending.one.unit.map_or(0, |unit| self.free[unit as usize]);
            let cycle = self.threads[thread].head.cycle.max(free).max(self.now);
            if cycle == self.now {
                return Some((cycle, thread));
            }
            if first.is_none_or(|(earliest, _)| cycle < earliest) {
                first = Some((cycle, thread));
            }
        }
        first
    }

    fn issue(&mut self, number: usize, cycle: u64) {
        let thread = &mut self.threads[number];
        let Some(pending) = thread.queue.pop_front() else { return };
        let own = thread.head.cycle;
        let shared = (own + 1, cycle + 1);
        thread.graduation.graduate(cycle + 1, &Waits { shared, ..thread.head.waits });
        let one = &pending.one;
        if let Some(unit) = one.unit {
            self.free[unit as usize] = cycle + self.intervals[unit as usize];
        }
        let missed = pending.load_wait > 0;
        let load = if one.loads() { self.latencies.of(Unit::Load) + pending.load_wait } else { 0 };
        let unit = one.unit.map_or(0, |unit| self.latencies.of(unit));
        let latency = (load + unit + self.latencies.special(one.special)).max(1);
        let done = Until::new(cycle + latency, missed);
        for register in one.writes {
            thread.registers[place(register)] = done;
        }
        for register in one.moves {
            thread.registers[place(register)] = Until::new(cycle + 1, false);
        }
        thread.all_done = thread.all_done.max(done);
        if one.stores() {
            thread.stores.leave(done.cycle() + pending.store_wait, pending.store_wait > 0);
        }
        self.hold_back(number, &pending, cycle, done);
        self.threads[number].look_ahead(&self.latencies);
    }

    /// What an instruction that has issued keeps its thread from.
    fn hold_back(&mut self, number: usize, pending: &Pending, cycle: u64, done: Until) {
        let special = pending.one.special;
        let mut until = Until::default();
        match pending.foreseen {
            Foreseen::Right => {}
            Foreseen::Late => until = Until::new(cycle + 1 + self.late_target_cycles, false),
            Foreseen::Wrong => until = Until::new(done.cycle() + self.mispredict_cycles, false),
        }
        if special.drains() || special.orders_memory() {
            until = until.at_least(done.cycle());
        }
        if special == Special::Pause {
            until = until.at_least(cycle + self.latencies.special(special));
        }
        let waited = pending.load_wait + pending.store_wait;
        if self.blocking && waited > 0 {
            until = until.max(Until::new(cycle + 1 + waited, true));
        }
        let earliest = &mut self.threads[number].earliest;
        *earliest = (*earliest).max(until);
    }

    /// The cycle up to which all has issued that was queued.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// What a thread has counted so far, of what has issued.
    #[must_use]
    pub fn counts(&self, thread: usize) -> CoreCounts {
        self.threads[thread].graduation.counts()
    }
}
