//! A core whose threads share its pipeline cycle by cycle, such as the cores of the UltraSPARC T1: in each
//! cycle one of the ready threads issues an instruction, round robin.
//!
//! The simulator executes threads one after the other, but their time axis is common. Blocks of a thread are
//! queued. A cycle is given to a thread once each thread is known to be ready or not ready then. A thread's
//! queue shows that; a thread with an empty queue is not ready before its own time; a halted thread is never
//! ready. The result does not depend on the simulation's time slices, and a ready thread
//! waits for at most one instruction of each other thread. A thread that wakes continues at the time of the
//! others, and is not charged for their instructions meanwhile.

use std::collections::VecDeque;

use super::instruction::{Instruction, REGISTERS, Special, Template, UNITS, Unit, register_index};
use super::model::CoreModel;
use super::ready_time::ReadyTime;
use super::retirement::{CycleRange, Retirement, StallCauses};
use super::store_buffer::StoreBuffer;
use super::{Access, AccessMode, Accesses, CoreCounts, ExecutedBlock, Latencies, Memory};
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::cycle::Cycle;
use crate::predict::{Branch, Prediction, Predictor};

/// The most instructions that a thread queues while another thread's are not known.
const QUEUED_MAX: usize = 1 << 16;

/// A core whose threads share its pipeline.
#[derive(Clone, Debug)]
pub struct MultithreadedCore {
    threads: Vec<Thread>,
    blocking: bool,
    latencies: Latencies,
    mispredict_cycles: u64,
    btb_miss_cycles: u64,
    interval_cycles: [u64; UNITS],
    /// When units, which all threads share, are free.
    free: [Cycle; UNITS],
    /// The next cycle that can issue an instruction.
    now: Cycle,
    /// The thread that issued last.
    last: usize,
}

impl MultithreadedCore {
    /// Returns a core that has executed nothing, of a model that [`CoreModel::check`] has accepted,
    /// or none if the model has no threads.
    #[must_use]
    pub fn new(model: &CoreModel) -> Option<MultithreadedCore> {
        let threads = model.threads?;
        Some(MultithreadedCore {
            threads: (0..threads).map(|_| Thread::new(model)).collect(),
            blocking: model.data.blocking,
            latencies: Latencies::new(model),
            mispredict_cycles: model.front.mispredict_cycles.into(),
            btb_miss_cycles: model.front.btb_miss_cycles.into(),
            interval_cycles: model.units.all().map(|(_, unit)| unit.interval_cycles.into()),
            free: [Cycle::START; UNITS],
            now: Cycle::START,
            last: threads as usize - 1,
        })
    }

    /// The number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Queues a block that `thread` executes, or the part that the guest executed. The block's memory
    /// accesses are made now.
    pub fn run<M: Memory>(
        &mut self,
        thread: usize,
        block: &Template,
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        self.run_from(thread, (0, block), executed, memory);
    }

    /// Queues the rest of a block from instruction `first` on; see
    /// [`SingleThreadCore::run_from`](super::SingleThreadCore::run_from).
    pub fn run_from<M: Memory>(
        &mut self,
        number: usize,
        (first, block): (usize, &Template),
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        // A thread that executes is not halted.
        self.set_halted(number, false);
        let thread = &mut self.threads[number];
        let mut accesses = Accesses::new(executed.accesses);
        let (instructions, branch) = block.executed_from(first, executed);
        let empty = thread.queue.is_empty();
        for (index, instruction) in (first..).zip(instructions) {
            let own_accesses = accesses.next(index);
            let now = thread.time();
            let fetch_wait = thread.fetch(block, instruction, memory, now);
            let waits = thread.access((instruction.special, own_accesses), memory, now);
            let mut prediction = Prediction::Predicted;
            if index + 1 == block.len()
                && let Some(kind) = branch
            {
                let (address, fall_through, target) =
                    (block.address_of(instruction).0, block.fall_through, block.target);
                let branch = Branch { address, kind, fall_through, target, next: executed.next };
                prediction = thread.predictor.step(&branch);
                let counts = &mut thread.retirement.counts;
                counts.branches += 1;
                counts.btb_misses += u64::from(prediction == Prediction::BtbMiss);
                counts.mispredicted_branches += u64::from(prediction == Prediction::Mispredicted);
            }
            let entry_cycles = std::mem::take(&mut thread.entry_cycles);
            let instruction = *instruction;
            let pending = Pending { instruction, fetch_wait, waits, entry_cycles, prediction };
            thread.queued_cycles += pending.least_cycles(self.blocking);
            thread.held_cycles += entry_cycles.unwrap_or(0);
            thread.queue.push_back(pending);
        }
        if empty {
            thread.look_ahead();
        }
    }

    /// Delays the next instruction of `thread` by `cycles`.
    pub fn wait(&mut self, thread: usize, cycles: u64) {
        *self.threads[thread].entry_cycles.get_or_insert(0) += cycles;
    }

    /// An interrupt or exception comes after the last queued instruction of `thread`.
    pub fn interrupt(&mut self, thread: usize) {
        let thread = &mut self.threads[thread];
        thread.retirement.counts.interrupts += 1;
        *thread.entry_cycles.get_or_insert(0) += self.latencies.interrupt;
        thread.last_line = None;
    }

    /// Delays the first instruction of an interrupt handler by `cycles`: the processor itself reads memory at
    /// the entry. Call it after [`MultithreadedCore::interrupt`].
    pub fn delay_entry(&mut self, thread: usize, cycles: u64) {
        if let Some(entry_cycles) = &mut self.threads[thread].entry_cycles {
            *entry_cycles += cycles;
        }
    }

    /// Translations of a thread's addresses have changed.
    pub fn flush_translations(&mut self, thread: usize) {
        self.threads[thread].last_line = None;
    }

    /// `thread`, whose queue is empty, was halted until `cycle`: those cycles are not charged to
    /// it.
    pub fn halt_until(&mut self, thread: usize, cycle: Cycle) {
        self.threads[thread].skip_to(cycle);
    }

    /// `thread` is halted after its queued instructions, or no longer halted: then it continues at
    /// the time of the others.
    pub fn set_halted(&mut self, thread: usize, halted: bool) {
        let state = &mut self.threads[thread];
        let was = std::mem::replace(&mut state.halted, halted);
        if was && !halted && state.queue.is_empty() {
            state.skip_to(self.now);
        }
    }

    /// Issues queued instructions up to the first cycle that finds a thread with an empty queue possibly ready. A
    /// very long queue drains all queues.
    pub fn advance(&mut self) {
        if self.threads.iter().any(|thread| thread.queue.len() > QUEUED_MAX) {
            return self.drain();
        }
        let mut known_until = self.known_until();
        while let Some((cycle, thread)) = self.next().filter(|next| next.0 < known_until) {
            self.issue(thread, cycle);
            if self.threads[thread].queue.is_empty() {
                known_until = self.known_until();
            }
        }
    }

    /// Before this cycle only queued instructions issue.
    fn known_until(&self) -> Cycle {
        let running = self.threads.iter().filter(|thread| !thread.halted);
        let empty = running.filter(|thread| thread.queue.is_empty());
        empty.map(Thread::time).min().unwrap_or(Cycle::NEVER)
    }

    /// The cycles of all instructions of a thread; a lower bound while some are queued. The value never
    /// decreases.
    #[must_use]
    pub fn cycles(&self, thread: usize) -> u64 {
        let thread = &self.threads[thread];
        thread.time() - Cycle::START - thread.retirement.skipped_cycles()
    }

    /// Drains the queues of all threads. A thread whose queue drains first counts as halted from
    /// then on, and continues at the time of the others.
    pub fn drain(&mut self) {
        while let Some((cycle, thread)) = self.next() {
            self.issue(thread, cycle);
        }
        for thread in &mut self.threads {
            thread.skip_to(self.now);
        }
    }

    /// The next cycle with an issue, and its thread. Of the threads that are ready in that cycle, it is the
    /// first one after the thread that issued last.
    fn next(&self) -> Option<(Cycle, usize)> {
        let number = self.threads.len();
        let mut first: Option<(Cycle, usize)> = None;
        for after in 1..=number {
            let thread = (self.last + after) % number;
            let Some(pending) = self.threads[thread].queue.front() else { continue };
            let free =
                pending.instruction.unit.map_or(Cycle::START, |unit| self.free[unit as usize]);
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

    fn issue(&mut self, number: usize, cycle: Cycle) {
        let thread = &mut self.threads[number];
        let Some(pending) = thread.queue.pop_front() else { return };
        (self.now, self.last) = (cycle.next(), number);
        thread.queued_cycles -= pending.least_cycles(self.blocking);
        thread.held_cycles -= pending.entry_cycles.unwrap_or(0);
        let ready_cycle = thread.head.cycle;
        let shared = CycleRange::new(ready_cycle.next(), cycle.next());
        let waits = || StallCauses { shared, ..thread.head.waits };
        thread.retirement.retire(cycle.next(), waits);
        let instruction = &pending.instruction;
        if let Some(unit) = instruction.unit {
            self.free[unit as usize] = cycle + self.interval_cycles[unit as usize];
        }
        let PendingWaits { load_cycles, store_cycles } = pending.waits;
        let missed = load_cycles > 0;
        let load =
            if instruction.loads() { self.latencies.of_unit(Unit::Load) + load_cycles } else { 0 };
        let unit = instruction.unit.map_or(0, |_| self.latencies.executed(instruction));
        let latency = (load + unit + self.latencies.executing(instruction.special)).max(1);
        let done = ReadyTime::new(cycle + latency, missed);
        for register in instruction.writes {
            thread.registers[register_index(register)] = done;
        }
        for register in instruction.moves {
            thread.registers[register_index(register)] = ReadyTime::new(cycle.next(), false);
        }
        thread.all_done = thread.all_done.max(done);
        if instruction.stores() {
            thread.stores.leave(done.cycle() + store_cycles, store_cycles > 0);
        }
        self.hold_back(number, &pending, cycle, done);
        self.threads[number].look_ahead();
    }

    /// Delays the thread of an instruction that has issued, if it has to.
    fn hold_back(&mut self, number: usize, pending: &Pending, cycle: Cycle, done: ReadyTime) {
        let special = pending.instruction.special;
        let mut until = ReadyTime::default();
        match pending.prediction {
            Prediction::Predicted | Prediction::PredictedLate | Prediction::Overruled => {}
            Prediction::BtbMiss => until = ReadyTime::new(cycle + 1 + self.btb_miss_cycles, false),
            Prediction::Mispredicted => {
                until = ReadyTime::new(done.cycle() + self.mispredict_cycles, false)
            }
        }
        if special.drains() || special.orders_memory() {
            until = until.at_least(done.cycle());
        }
        if special.stops_fetch() {
            until = until.at_least(cycle + self.latencies.special(special));
        }
        let waited = pending.waits.cycles();
        if self.blocking && waited > 0 {
            until = until.max(ReadyTime::new(cycle + 1 + waited, true));
        }
        let earliest = &mut self.threads[number].earliest;
        *earliest = (*earliest).max(until);
    }

    /// The earliest time at which a thread continues, on the common time axis, which includes halted cycles.
    /// The value never decreases.
    #[must_use]
    pub fn time(&self, thread: usize) -> Cycle {
        self.threads[thread].time()
    }

    /// The cycle after the last issue.
    #[must_use]
    pub fn now(&self) -> Cycle {
        self.now
    }

    /// The counts of a thread so far, of instructions that have issued.
    #[must_use]
    pub fn counts(&self, thread: usize) -> CoreCounts {
        self.threads[thread].retirement.counts()
    }
}

/// Cycles that an instruction's accesses wait beyond a hit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingWaits {
    pub(super) load_cycles: u64,
    pub(super) store_cycles: u64,
}

impl PendingWaits {
    /// The wait of a core that stalls at each miss.
    fn cycles(self) -> u64 {
        self.load_cycles + self.store_cycles
    }
}

/// A queued instruction with everything that is known before it issues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) instruction: Instruction,
    /// Cycles that it waits for its instruction line.
    pub(super) fetch_wait: u64,
    pub(super) waits: PendingWaits,
    /// Cycles that pass before it: an interrupt's entry, or what the thread is held.
    pub(super) entry_cycles: Option<u64>,
    /// How it was predicted, if it is a branch.
    pub(super) prediction: Prediction,
}

impl Pending {
    /// Minimum number of cycles of the instruction for its thread, without the cycles before it.
    pub(super) fn least_cycles(&self, blocking: bool) -> u64 {
        1 + if blocking { self.waits.cycles() } else { 0 }
    }
}

/// When the first in a thread's queue can issue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) cycle: Cycle,
    pub(super) waits: StallCauses,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) queue: VecDeque<Pending>,
    /// For the first in the queue.
    pub(super) head: Ready,
    pub(super) registers: Box<[ReadyTime; REGISTERS]>,
    /// Nothing issues before.
    pub(super) earliest: ReadyTime,
    pub(super) all_done: ReadyTime,
    pub(super) stores: StoreBuffer,
    pub(super) predictor: Predictor,
    pub(super) last_line: Option<(VirtualAddress, PhysicalAddress)>,
    /// Cycles that pass before the next instruction: the entry of an interrupt that has come, or what the
    /// thread is held.
    pub(super) entry_cycles: Option<u64>,
    /// The least number of cycles that the queued instructions take.
    pub(super) queued_cycles: u64,
    /// The cycles that pass before some of them.
    pub(super) held_cycles: u64,
    /// Whether the other threads do not wait to know what it executes next.
    pub(super) halted: bool,
    pub(super) retirement: Retirement,
}

impl Thread {
    pub(super) fn new(model: &CoreModel) -> Thread {
        Thread {
            queue: VecDeque::new(),
            head: Ready { cycle: Cycle::START, waits: StallCauses::default() },
            registers: Box::new([ReadyTime::default(); REGISTERS]),
            earliest: ReadyTime::default(),
            all_done: ReadyTime::default(),
            stores: StoreBuffer::new(model.data.store_entries, model.units.store.count),
            predictor: Predictor::new(&model.predictor),
            last_line: None,
            entry_cycles: None,
            queued_cycles: 0,
            held_cycles: 0,
            halted: false,
            retirement: Retirement::new(1),
        }
    }

    /// When its next instruction can issue, at the earliest. It never decreases.
    pub(super) fn time(&self) -> Cycle {
        let held = self.held_cycles + self.entry_cycles.unwrap_or(0);
        self.continues() + held + self.queued_cycles
    }

    /// When what follows the last instruction that has issued can start.
    fn continues(&self) -> Cycle {
        self.retirement.cycle().max(self.earliest.cycle())
    }

    /// With an empty queue: does not charge the cycles until `cycle` to this thread.
    pub(super) fn skip_to(&mut self, cycle: Cycle) {
        // Before what it is held for a next instruction.
        if cycle > self.continues() {
            // It is charged for what it waits for before that.
            self.retirement.wait_for_data(self.earliest.cycle());
            self.retirement.skip_to(cycle);
        }
    }

    /// Fetches the lines of an instruction, except the last one fetched. Returns the wait.
    pub(super) fn fetch<M: Memory>(
        &mut self,
        block: &Template,
        instruction: &Instruction,
        memory: &mut M,
        now: Cycle,
    ) -> u64 {
        if !instruction.starts_line() {
            return 0;
        }
        let mut waited = 0;
        memory
            .set_fetched_instruction(block.address_of(instruction), block.physical_of(instruction));
        for line in block.lines_of(instruction) {
            if self.last_line != Some(line) {
                self.last_line = Some(line);
                waited += memory.fetch(line.0, line.1, now + waited);
            }
        }
        self.retirement.counts.fetch_misses += u64::from(waited > 0);
        waited
    }

    pub(super) fn access<M: Memory>(
        &mut self,
        (special, accesses): (Special, &[Access]),
        memory: &mut M,
        now: Cycle,
    ) -> PendingWaits {
        let mut waits = PendingWaits::default();
        let counts = &mut self.retirement.counts;
        for access in accesses {
            let (number, misses, waited) = if access.write {
                (&mut counts.stores, &mut counts.store_misses, &mut waits.store_cycles)
            } else {
                (&mut counts.loads, &mut counts.load_misses, &mut waits.load_cycles)
            };
            let how = if access.write { AccessMode::Store } else { AccessMode::load_of(special) };
            let wait = memory.access(access, how, now);
            *number += 1;
            *misses += u64::from(wait > 0);
            *waited = wait.max(*waited);
        }
        waits
    }

    /// Finds when the first in the queue can issue.
    pub(super) fn look_ahead(&mut self) {
        let Some(pending) = self.queue.front() else { return };
        // The cycle after that of the previous instruction.
        let next = self.retirement.cycle();
        let instruction = &pending.instruction;
        let addresses = ReadyTime::latest_of(&instruction.addresses, &self.registers);
        let mut until = ReadyTime::latest_of(&instruction.reads, &self.registers)
            .max(addresses)
            .max(self.earliest);
        if instruction.special.drains() {
            until = until.max(self.all_done);
        }
        if instruction.special.orders_memory() || instruction.special.drains_stores() {
            until = until.at_least(self.stores.all_left());
        }
        if instruction.stores() {
            until = until.max(self.stores.next_entry());
        }
        // An interrupt is taken, and a thread is held, when the instruction before has had its effect.
        let starts = pending.entry_cycles.map_or(next, |cycles| self.continues() + cycles);
        let fetched = starts + pending.fetch_wait;
        let data = CycleRange::new(Cycle::START, until.cycle().next());
        let data = if until.missed() { data } else { CycleRange::EMPTY };
        let fetch = CycleRange::new(starts.next().max(data.end), fetched.next());
        let fetch = if pending.fetch_wait > 0 { fetch } else { CycleRange::EMPTY };
        let waits = StallCauses { fetch, data, ..StallCauses::default() };
        self.head = Ready { cycle: fetched.max(until.cycle()), waits };
    }
}
