//! A core whose threads share its pipeline cycle by cycle, such as the cores of the UltraSPARC T1: in each
//! cycle one of the ready threads issues an instruction, round robin. A thread waits for each of its misses. Each
//! thread is a vCPU of the plugin.
//!
//! QEMU executes the vCPUs one after the other, but the threads have a common time axis. So a thread's blocks are
//! queued. A cycle is given to a thread only once it is known for every thread whether it is ready in that cycle:
//! a queue shows when its thread is ready; a thread with an empty queue is not ready before its own time; a halted
//! thread is never ready.
//!
//! Invariant: the result does not depend on QEMU's time slices. A ready thread waits for at most one instruction of
//! each other thread. A thread that wakes continues at the time of the others, and is not charged for the cycles in
//! between.

use std::collections::VecDeque;
use std::ops::Range;

use super::code_tags::last_line_after_change;
use super::instruction::{Instruction, REGISTERS, Register, Template, UNITS, Unit, register_index};
use super::model::CoreModel;
use super::ready_time::ReadyTime;
use super::retirement::{CycleRange, Retirement, StallCauses};
use super::store_buffer::StoreBuffer;
use super::{Access, AccessMode, Accesses, CoreCounts, ExecutedBlock, Latencies, Memory};
use crate::address::{PhysicalAddress, VirtualAddress};
use crate::cycle::Cycle;
use crate::predict::{Branch, Prediction, Predictor};

/// Maximum number of instructions in a thread's queue while it waits to know another thread's instructions.
const QUEUED_MAX: usize = 1 << 16;

/// A core whose threads share its pipeline.
#[derive(Clone, Debug)]
pub struct MultithreadedCore {
    threads: Vec<Thread>,
    latencies: Latencies,
    mispredict_cycles: u64,
    btb_miss_cycles: u64,
    interval_cycles: [u64; UNITS],
    /// When each kind of unit is free. All threads share the units.
    unit_free_at: [Cycle; UNITS],
    /// The next cycle that can issue an instruction.
    now: Cycle,
    /// The thread that issued last.
    last_issuer: usize,
}

impl MultithreadedCore {
    /// Returns a core that has executed nothing, of a model that [`CoreModel::check`] has accepted,
    /// or `None` if the model has no threads.
    #[must_use]
    pub fn new(model: &CoreModel) -> Option<MultithreadedCore> {
        let threads = model.threads?;
        Some(MultithreadedCore {
            threads: (0..threads).map(|_| Thread::new(model)).collect(),
            latencies: Latencies::new(model),
            mispredict_cycles: model.front.mispredict_cycles.into(),
            btb_miss_cycles: model.front.btb_miss_cycles.into(),
            interval_cycles: model.units.named_units().map(|(_, unit)| unit.interval_cycles.into()),
            unit_free_at: [Cycle::START; UNITS],
            now: Cycle::START,
            last_issuer: threads as usize - 1,
        })
    }

    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Queues a block that `thread` executes, or the part that the guest executed. Memory serves the block's accesses
    /// now, not when the instructions issue.
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
        let was_empty = thread.queue.is_empty();
        for (index, instruction) in (first..).zip(instructions) {
            let own_accesses = accesses.next(index);
            let now = thread.time();
            let fetch_wait = thread.fetch(block, instruction, memory, now);
            // The instruction executes once its lines have arrived.
            let fetched = now + fetch_wait;
            let waits = thread.access((instruction, own_accesses), memory, fetched);
            let mut prediction = Prediction::Predicted;
            if index + 1 == block.len()
                && let Some(kind) = branch
            {
                let (address, fall_through, target) =
                    (block.address_of(instruction), block.fall_through, block.target);
                let branch = Branch { address, kind, fall_through, target, next: executed.next };
                prediction = thread.predictor.step(&branch);
                let counts = &mut thread.retirement.counts;
                counts.branches += 1;
                counts.btb_misses += u64::from(prediction == Prediction::BtbMiss);
                counts.mispredicted_branches += u64::from(prediction == Prediction::Mispredicted);
            }
            let entry_cycles = std::mem::take(&mut thread.entry_cycles);
            let instruction = *instruction;
            let flags_at_end = (index + 1 == block.len()).then_some(block.flags_but_carry);
            let pending =
                Pending { instruction, fetch_wait, waits, entry_cycles, prediction, flags_at_end };
            thread.queued_cycles += pending.cycles_min();
            thread.held_cycles += entry_cycles.unwrap_or(0);
            thread.queue.push_back(pending);
        }
        if was_empty {
            thread.look_ahead();
        }
    }

    /// Delays the next instruction of `thread` by `cycles`.
    pub fn wait(&mut self, thread: usize, cycles: u64) {
        *self.threads[thread].entry_cycles.get_or_insert(0) += cycles;
    }

    /// Lets an interrupt or exception follow the last queued instruction of `thread`.
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

    /// Notes that translations of a thread's addresses have changed: the next line is fetched in any case.
    pub fn flush_translations(&mut self, thread: usize) {
        self.threads[thread].last_line = None;
    }

    /// Notes that the code at these physical addresses has changed, or has left all caches: a thread that fetched last
    /// from one of its lines fetches the line again.
    pub fn forget_code(&mut self, physical: Range<PhysicalAddress>) {
        for thread in &mut self.threads {
            thread.last_line = last_line_after_change(thread.last_line, &physical);
        }
    }

    /// Notes that `thread`, whose queue is empty, was halted until `cycle`. The halted cycles are not charged to it.
    pub fn halt_until(&mut self, thread: usize, cycle: Cycle) {
        self.threads[thread].skip_to(cycle);
    }

    /// Sets whether `thread` halts once its queued instructions have executed. A thread that wakes continues at the
    /// other threads' time.
    pub fn set_halted(&mut self, thread: usize, halted: bool) {
        let state = &mut self.threads[thread];
        let was_halted = std::mem::replace(&mut state.is_halted, halted);
        if was_halted && !halted && state.queue.is_empty() {
            state.skip_to(self.now);
        }
    }

    /// Issues queued instructions until a thread with an empty queue might be ready in a cycle. If a queue is very
    /// long, drains all queues instead: threads with an empty queue then count as halted.
    pub fn advance(&mut self) {
        if self.threads.iter().any(|thread| thread.queue.len() > QUEUED_MAX) {
            return self.drain();
        }
        let mut known_until = self.known_until();
        while let Some((cycle, thread)) =
            self.next_issue().filter(|(cycle, _)| *cycle < known_until)
        {
            self.issue(thread, cycle);
            if self.threads[thread].queue.is_empty() {
                known_until = self.known_until();
            }
        }
    }

    /// Before this cycle only queued instructions can issue: no running thread with an empty queue is ready earlier.
    fn known_until(&self) -> Cycle {
        let running = self.threads.iter().filter(|thread| !thread.is_halted);
        let empty = running.filter(|thread| thread.queue.is_empty());
        empty.map(Thread::time).min().unwrap_or(Cycle::NEVER)
    }

    /// The cycles of all instructions of a thread so far. A lower bound while some are queued. Never decreases.
    #[must_use]
    pub fn cycles(&self, thread: usize) -> u64 {
        let thread = &self.threads[thread];
        thread.time() - Cycle::START - thread.retirement.skipped_cycles()
    }

    /// Issues all queued instructions. A thread whose queue drains earlier than others counts as halted until the end,
    /// and then continues at the common time.
    pub fn drain(&mut self) {
        while let Some((cycle, thread)) = self.next_issue() {
            self.issue(thread, cycle);
        }
        for thread in &mut self.threads {
            thread.skip_to(self.now);
        }
    }

    /// The next cycle with an issue, and its thread. `None`: all queues are empty. If several threads are ready in that
    /// cycle, the first one after the last issuing thread issues (round robin).
    fn next_issue(&self) -> Option<(Cycle, usize)> {
        let thread_count = self.threads.len();
        let mut earliest: Option<(Cycle, usize)> = None;
        for distance in 1..=thread_count {
            let thread = (self.last_issuer + distance) % thread_count;
            let Some(pending) = self.threads[thread].queue.front() else { continue };
            let unit = pending.instruction.unit;
            let unit_free_at = unit.map_or(Cycle::START, |unit| self.unit_free_at[unit as usize]);
            let cycle = self.threads[thread].head.cycle.max(unit_free_at).max(self.now);
            if cycle == self.now {
                return Some((cycle, thread));
            }
            if earliest.is_none_or(|(earliest_cycle, _)| cycle < earliest_cycle) {
                earliest = Some((cycle, thread));
            }
        }
        earliest
    }

    /// Issues the first queued instruction of thread `number` in `cycle`, and gives it its times.
    fn issue(&mut self, number: usize, cycle: Cycle) {
        let thread = &mut self.threads[number];
        let Some(pending) = thread.queue.pop_front() else { return };
        (self.now, self.last_issuer) = (cycle.next(), number);
        thread.queued_cycles -= pending.cycles_min();
        thread.held_cycles -= pending.entry_cycles.unwrap_or(0);
        let ready_cycle = thread.head.cycle;
        let shared = CycleRange::new(ready_cycle.next(), cycle.next());
        let waits = || StallCauses { shared, ..thread.head.waits };
        thread.retirement.retire(cycle.next(), waits);
        let instruction = &pending.instruction;
        if let Some(unit) = instruction.unit {
            self.unit_free_at[unit as usize] = cycle + self.interval_cycles[unit as usize];
        }
        let PendingWaits { load_cycles, store_cycles } = pending.waits;
        let missed = load_cycles > 0;
        let operation_cycles = pending.operation_start_cycles(&self.latencies);
        let result_cycles = match instruction.unit {
            Some(_) => operation_cycles + self.latencies.of_instruction(instruction),
            None if instruction.loads() => load_cycles + self.latencies.of_unit(Unit::Load),
            None => 0,
        };
        let latency = (result_cycles + self.latencies.extra_latency(instruction.special)).max(1);
        let done = ReadyTime::new(cycle + latency, missed);
        for register in instruction.writes {
            thread.registers[register_index(register)] = done;
        }
        for register in instruction.moves {
            thread.registers[register_index(register)] = ReadyTime::without_miss(cycle.next());
        }
        if let Some(flags) = pending.flags_at_end {
            thread.registers[register_index(Register::EARLIER_FLAGS.number())] =
                thread.registers[register_index(flags.number())];
        }
        thread.all_done = thread.all_done.max(done);
        if instruction.loads() {
            let loaded = cycle + load_cycles + self.latencies.of_unit(Unit::Load);
            thread.all_loaded = thread.all_loaded.max(ReadyTime::new(loaded, missed));
        }
        if instruction.stores() {
            let filled = cycle + store_cycles;
            thread.stores.leave(done.cycle().max(filled), store_cycles > 0);
        }
        self.hold_back(number, &pending, cycle, done);
        self.threads[number].look_ahead();
    }

    /// Delays the next instruction of a thread, if the instruction that issued in `cycle` and is done at `done`
    /// requires that.
    fn hold_back(&mut self, number: usize, pending: &Pending, cycle: Cycle, done: ReadyTime) {
        let special = pending.instruction.special;
        let mut resume = ReadyTime::default();
        match pending.prediction {
            Prediction::Predicted | Prediction::PredictedLate | Prediction::Overruled => {}
            Prediction::BtbMiss => {
                resume = ReadyTime::without_miss(cycle + 1 + self.btb_miss_cycles)
            }
            Prediction::Mispredicted => {
                resume = ReadyTime::without_miss(done.cycle() + self.mispredict_cycles);
                self.threads[number].retirement.mispredicted(resume.cycle());
            }
        }
        if special.drains() || special.orders_memory() {
            resume = resume.at_least(done.cycle());
        }
        if special.stops_fetch() {
            resume = resume.at_least(cycle + self.latencies.special(special));
        }
        // A later instruction of the thread issues no earlier than the operation on the loaded data.
        let operation_start = cycle + pending.operation_start_cycles(&self.latencies);
        resume = resume.max(ReadyTime::new(operation_start, pending.waits.load_cycles > 0));
        let waited = pending.waits.cycles();
        if waited > 0 {
            resume = resume.max(ReadyTime::after_miss(cycle + 1 + waited));
        }
        let earliest = &mut self.threads[number].earliest;
        *earliest = (*earliest).max(resume);
    }

    /// The earliest time at which a thread continues, on the common time axis, which includes halted cycles.
    /// Never decreases.
    #[must_use]
    pub fn time(&self, thread: usize) -> Cycle {
        self.threads[thread].time()
    }

    /// The cycle after the last issue.
    #[must_use]
    pub fn now(&self) -> Cycle {
        self.now
    }

    /// The counts of a thread's issued instructions so far.
    #[must_use]
    pub fn counts(&self, thread: usize) -> CoreCounts {
        self.threads[thread].retirement.counts()
    }
}

/// Cycles from the issue of an instruction until the lines that its loads, or its stores, missed are filled. 0 without
/// such misses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingWaits {
    pub(super) load_cycles: u64,
    pub(super) store_cycles: u64,
}

impl PendingWaits {
    /// The stall of the thread, which waits for each miss.
    fn cycles(self) -> u64 {
        self.load_cycles.max(self.store_cycles)
    }
}

/// A queued instruction with everything that is known before it issues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) instruction: Instruction,
    /// Cycles that it waits for its instruction line.
    pub(super) fetch_wait: u64,
    pub(super) waits: PendingWaits,
    /// Cycles that pass before it: the entry of an interrupt, and waits of the thread.
    pub(super) entry_cycles: Option<u64>,
    /// How the branch was predicted. [`Prediction::Predicted`] for other instructions.
    pub(super) prediction: Prediction,
    /// The register with the condition flags but the carry, if the instruction is the last of its block.
    pub(super) flags_at_end: Option<Register>,
}

impl Pending {
    /// Minimum number of cycles that the instruction takes of its thread, without `entry_cycles`.
    pub(super) fn cycles_min(&self) -> u64 {
        1 + self.fetch_wait + self.waits.cycles()
    }

    /// Cycles from the issue of the instruction until it starts to use its loaded data: in its unit, or as the value
    /// that it stores. 0 if the instruction only loads or loads nothing.
    fn operation_start_cycles(&self, latencies: &Latencies) -> u64 {
        if self.instruction.uses_loaded_data() {
            self.waits.load_cycles + latencies.load_to_own_operation()
        } else {
            0
        }
    }
}

/// When the first instruction in a thread's queue can issue, and what it waits for until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) cycle: Cycle,
    pub(super) waits: StallCauses,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) queue: VecDeque<Pending>,
    /// For the first instruction in the queue. Stale while the queue is empty.
    pub(super) head: Ready,
    /// When the value of each register is ready.
    pub(super) registers: Box<[ReadyTime; REGISTERS]>,
    /// Nothing issues before this time.
    pub(super) earliest: ReadyTime,
    /// When all issued instructions are done.
    pub(super) all_done: ReadyTime,
    /// When the data of all issued loads has arrived.
    pub(super) all_loaded: ReadyTime,
    pub(super) stores: StoreBuffer,
    pub(super) predictor: Predictor,
    /// The line of the last fetch. `None`: the next line is fetched in any case.
    pub(super) last_line: Option<(VirtualAddress, PhysicalAddress)>,
    /// Cycles that pass before the next instruction to be queued: the entry of an interrupt, and waits of the thread.
    pub(super) entry_cycles: Option<u64>,
    /// Sum of [`Pending::cycles_min`] of the queued instructions.
    pub(super) queued_cycles: u64,
    /// Sum of the `entry_cycles` of the queued instructions.
    pub(super) held_cycles: u64,
    /// Whether the thread executes nothing until it wakes: other threads do not wait to know its instructions.
    pub(super) is_halted: bool,
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
            all_loaded: ReadyTime::default(),
            stores: StoreBuffer::new(model.data.store_entries, model.units.store.count),
            predictor: Predictor::new(&model.predictor),
            last_line: None,
            entry_cycles: None,
            queued_cycles: 0,
            held_cycles: 0,
            is_halted: false,
            retirement: Retirement::new(1),
        }
    }

    /// A lower bound of the time at which the next instruction to be queued can issue. Never decreases.
    pub(super) fn time(&self) -> Cycle {
        let held = self.held_cycles + self.entry_cycles.unwrap_or(0);
        self.continues() + held + self.queued_cycles
    }

    /// When the instruction after the last issued one can start.
    fn continues(&self) -> Cycle {
        self.retirement.cycle().max(self.earliest.cycle())
    }

    /// With an empty queue: does not charge the cycles until `cycle` to this thread.
    pub(super) fn skip_to(&mut self, cycle: Cycle) {
        // Waits before the next instruction (`entry_cycles`) come after the skipped cycles.
        if cycle > self.continues() {
            // The thread is still charged for its wait before the skipped cycles.
            self.retirement.wait_for_data(self.earliest.cycle());
            self.retirement.skip_to(cycle);
        }
    }

    /// Fetches the lines of an instruction, except the line of the last fetch. Returns the wait, in cycles.
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
        for line in block.lines_of(&block.code_start(0, instruction)) {
            if self.last_line != Some(line) {
                self.last_line = Some(line);
                waited += memory.fetch(line.0, line.1, now + waited);
            }
        }
        self.retirement.counts.fetch_misses += u64::from(waited > 0);
        waited
    }

    /// Executes and counts the accesses of an instruction, which issues at `now`. Each access starts when the lines that
    /// the earlier accesses missed are filled.
    pub(super) fn access<M: Memory>(
        &mut self,
        (instruction, accesses): (&Instruction, &[Access]),
        memory: &mut M,
        now: Cycle,
    ) -> PendingWaits {
        let mut waits = PendingWaits::default();
        let counts = &mut self.retirement.counts;
        for access in accesses {
            let start_cycles = waits.cycles();
            let (number, misses, waited) = if access.write {
                (&mut counts.stores, &mut counts.store_misses, &mut waits.store_cycles)
            } else {
                (&mut counts.loads, &mut counts.load_misses, &mut waits.load_cycles)
            };
            let mode = if access.write {
                AccessMode::store_of(instruction)
            } else {
                AccessMode::load_of(instruction.special)
            };
            let wait = memory.access(access, mode, now + start_cycles);
            *number += 1;
            if wait > 0 {
                *misses += u64::from(mode != AccessMode::StoreAround);
                *waited = (start_cycles + wait).max(*waited);
            }
        }
        waits
    }

    /// Computes when the first instruction in the queue can issue.
    pub(super) fn look_ahead(&mut self) {
        let Some(pending) = self.queue.front() else { return };
        // The cycle after the previous issue.
        let next = self.retirement.cycle();
        let instruction = &pending.instruction;
        let addresses = ReadyTime::latest_of(&instruction.addresses, &self.registers);
        let mut ready = ReadyTime::latest_of(&instruction.reads, &self.registers)
            .max(addresses)
            .max(self.earliest);
        if instruction.special.drains() {
            ready = ready.max(self.all_done);
        }
        if instruction.special.orders_memory() {
            // A locked instruction and a barrier also wait for all earlier loads (Intel's manual, volume 3, 8.2.5).
            ready = ready.max(self.all_loaded);
        }
        if instruction.special.orders_memory() || instruction.special.drains_stores() {
            ready = ready.at_least(self.stores.all_left());
        }
        if instruction.stores() {
            ready = ready.max(self.stores.next_entry());
        }
        // An interrupt, a wait or a fetch that misses starts when the previous instruction no longer delays its thread.
        let starts = if pending.entry_cycles.is_some() || pending.fetch_wait > 0 {
            self.continues() + pending.entry_cycles.unwrap_or(0)
        } else {
            next
        };
        let fetched = starts + pending.fetch_wait;
        let data = CycleRange::new(Cycle::START, ready.cycle().next());
        let data = if ready.missed() { data } else { CycleRange::EMPTY };
        let fetch = CycleRange::new(starts.next().max(data.end), fetched.next());
        let fetch = if pending.fetch_wait > 0 { fetch } else { CycleRange::EMPTY };
        let waits = StallCauses { fetch, load_data: data, ..StallCauses::default() };
        self.head = Ready { cycle: fetched.max(ready.cycle()), waits };
    }
}
