//! A core whose threads share its pipeline cycle by cycle, as those of the UltraSPARC T1: in each
//! cycle one of the threads that are ready issues, one after the other.
//!
//! Threads are handed in one after the other, and yet run at once. What a thread executes is queued, and
//! all threads have one axis of time. A cycle is given away once it is known of each thread whether it is
//! ready then: what a thread has in its queue says so, one without any says so up to its own time, and
//! one that is halted never is. So who has a cycle does not depend on the pieces in which threads were
//! handed in, and a thread that is ready waits for one instruction of each other thread at most. One that
//! wakes goes on where the others are, and what they had meanwhile is not charged to it.

use super::counts::CoreCounts;
use super::execution::{Accesses, ExecutedBlock, Latencies};
use super::graduation::Waits;
use super::in_order::Until;
use super::instruction::{Special, UNITS, Unit, place};
use super::memory::Memory;
use super::model::CoreModel;
use super::template::Template;
use super::thread::{Pending, Thread};
use crate::predict::{Branch, Prediction};

/// Most instructions that are queued while another thread's are waited for.
const QUEUED_MAX: usize = 1 << 16;

/// A core of several threads.
#[derive(Clone, Debug)]
pub struct MultithreadedCore {
    threads: Vec<Thread>,
    blocking: bool,
    latencies: Latencies,
    mispredict_cycles: u64,
    btb_miss_cycles: u64,
    intervals: [u64; UNITS],
    /// When units, which all threads share, are free.
    free: [u64; UNITS],
    /// The next cycle in which something can issue.
    now: u64,
    /// The thread that issued last.
    last: usize,
}

impl MultithreadedCore {
    /// A core that has executed nothing, of a model that [`CoreModel::check`] has accepted. Absent if
    /// the model has no threads.
    #[must_use]
    pub fn new(model: &CoreModel) -> Option<MultithreadedCore> {
        let threads = model.threads?;
        Some(MultithreadedCore {
            threads: (0..threads).map(|_| Thread::new(model)).collect(),
            blocking: model.data.blocking,
            latencies: Latencies::new(model),
            mispredict_cycles: model.front.mispredict_cycles.into(),
            btb_miss_cycles: model.front.btb_miss_cycles.into(),
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
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        self.run_from(thread, (0, block), executed, memory);
    }

    /// Queues a block from instruction `first` on, behind those before it; see
    /// [`OutOfOrderCore::run_from`](super::OutOfOrderCore::run_from).
    pub fn run_from<M: Memory>(
        &mut self,
        number: usize,
        (first, block): (usize, &Template),
        executed: &ExecutedBlock,
        memory: &mut M,
    ) {
        // Who executes is not halted, whatever was said of it.
        self.set_halted(number, false);
        let thread = &mut self.threads[number];
        let mut accesses = Accesses::new(executed.accesses);
        let until = block.len().min(executed.instructions as usize);
        let whole = until == block.len();
        let empty = thread.queue.is_empty();
        for (index, one) in block.instructions[..until].iter().enumerate().skip(first) {
            let of_it = accesses.next(index);
            let now = thread.time();
            let fetch_wait = thread.fetch(block, one, memory, now);
            let (load_wait, store_wait) = thread.access(of_it, memory, now);
            let mut foreseen = Prediction::Predicted;
            if let Some(kind) = one.branch.filter(|_| whole && index + 1 == until) {
                let (address, fall_through, target) =
                    (block.address_of(one), block.fall_through, block.target);
                let branch = Branch { address, kind, fall_through, target, next: executed.next };
                foreseen = thread.predictor.step(&branch);
                let counts = &mut thread.graduation.counts;
                counts.branches += 1;
                counts.btb_misses += u64::from(foreseen == Prediction::BtbMiss);
                counts.mispredicted_branches += u64::from(foreseen == Prediction::Mispredicted);
            }
            let interrupted = std::mem::take(&mut thread.interrupted);
            let one = *one;
            let pending = Pending { one, fetch_wait, load_wait, store_wait, interrupted, foreseen };
            thread.queued_cycles += pending.least_cycles(self.blocking);
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

    /// Translations of a thread's addresses are no longer what they were.
    pub fn flush_translations(&mut self, thread: usize) {
        self.threads[thread].last_line = None;
    }

    /// `thread`, which has nothing queued, was halted until `cycle`: those cycles are not its.
    pub fn halt_until(&mut self, thread: usize, cycle: u64) {
        self.threads[thread].skip_to(cycle);
    }

    /// `thread` is halted behind what it has queued, or no longer is: it goes on where the others are.
    pub fn set_halted(&mut self, thread: usize, halted: bool) {
        let of_it = &mut self.threads[thread];
        let was = std::mem::replace(&mut of_it.halted, halted);
        if was && !halted && of_it.queue.is_empty() {
            of_it.skip_to(self.now);
        }
    }

    /// Threads issue what is queued, up to the first cycle in which one might be ready of which more has
    /// to be known. If one has very much, all is issued.
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

    /// Before this cycle nothing issues but what is queued.
    fn known_until(&self) -> u64 {
        let running = self.threads.iter().filter(|thread| !thread.halted);
        let empty = running.filter(|thread| thread.queue.is_empty());
        empty.map(Thread::time).min().unwrap_or(u64::MAX)
    }

    /// Cycles that a thread takes for all that it has executed: at least so many, as long as some of
    /// it is queued. They never fall.
    #[must_use]
    pub fn cycles(&self, thread: usize) -> u64 {
        let thread = &self.threads[thread];
        thread.time() - thread.graduation.skipped()
    }

    /// All threads issue what is queued. Those whose own is issued before that of others were not there
    /// from then on, and go on where the others are.
    pub fn drain(&mut self) {
        while let Some((cycle, thread)) = self.next() {
            self.issue(thread, cycle);
        }
        for thread in &mut self.threads {
            thread.skip_to(self.now);
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
        (self.now, self.last) = (cycle + 1, number);
        thread.queued_cycles -= pending.least_cycles(self.blocking);
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
            Prediction::Predicted => {}
            Prediction::BtbMiss => until = Until::new(cycle + 1 + self.btb_miss_cycles, false),
            Prediction::Mispredicted => {
                until = Until::new(done.cycle() + self.mispredict_cycles, false)
            }
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

    /// When a thread goes on at the earliest behind all that it has executed, on the axis of all threads,
    /// which has the cycles in which it was not there, too. It never falls.
    #[must_use]
    pub fn time(&self, thread: usize) -> u64 {
        self.threads[thread].time()
    }

    /// The cycle behind the last in which something has issued.
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
