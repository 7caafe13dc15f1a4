//! A recording: the machine that is watched, and what is written of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use attribution::KernelContext;
use machine::BlockingModel;
use machine::decode::Decoder;

use crate::annotations::AnnotationCounters;
use crate::block::Arena;
use crate::callbacks;
use crate::clock::Clock;
use crate::cores::Processors;
use crate::cpu;
use crate::dma::{self, Write};
use crate::entry::Entries;
use crate::held;
use crate::idle;
use crate::options::Options;
use crate::pmu::machine::Pmus;
use crate::progress::ProgressFile;
use crate::qemu::{Qemu, Registers};
use crate::qemu_internals::Icount;
use crate::regions;
use crate::service_misses::Executing;
use crate::shadow_caches::ShadowCacheModels;
use crate::structures::Guest;
use crate::tracker::{Moment, TrackedCpu, Tracker, is_kernel};
use crate::writer::{Ending, Writer};
use simrecord::counters::{Counts, INSTRUCTIONS, TIME};
use simrecord::marker;
use simrecord::record::{Check, CountersOf, Detail, Marker, Notice, Record, SPAN_COUNTS_MAX};

/// The recording of this process. Blocks don't take the lock; what is rarer does.
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// The recording, locked. `None` before it starts.
pub(crate) fn lock() -> MutexGuard<'static, Option<Session>> {
    // A panic aborts, so the lock is never poisoned in fact.
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The recording, locked, unless it is locked already.
pub(crate) fn try_lock() -> Option<MutexGuard<'static, Option<Session>>> {
    SESSION.try_lock().ok()
}

/// All that belongs to a recording.
pub(crate) struct Session {
    pub(crate) qemu: Qemu,
    pub(crate) options: Options,
    /// How much is recorded now: what the options say, or [`Detail::Fast`] until then.
    pub(crate) level: Detail,
    pub(crate) cpus: u32,
    pub(crate) arena: Arena,
    pub(crate) tracker: Tracker,
    pub(crate) writer: Writer,
    pub(crate) clock: Clock,
    /// That of the model, if there is one.
    pub(crate) fetch_line_shift: Option<u32>,
    pub(crate) model: Option<BlockingModel>,
    /// Those of the level `ooo`.
    pub(crate) processors: Option<Processors>,
    pub(crate) decoder: Decoder,
    /// What vCPUs read and write themselves when they enter handlers.
    pub(crate) entries: Entries,
    /// Shadow caches, null without any. They live as long as the process.
    pub(crate) shadow_caches: *mut ShadowCacheModels,
    /// Found when the first vCPU is made.
    pub(crate) registers: Option<Registers>,
    /// The thread of all vCPUs.
    pub(crate) thread: Option<ThreadId>,
    pub(crate) icount: Option<Icount>,
    /// Whether the next discontinuity compares counts.
    pub(crate) check_due: bool,
    /// The annotations and their results.
    pub(crate) annotations: AnnotationCounters,
    /// What the level will be as soon as QEMU has forgotten its code.
    pub(crate) next_level: Option<Detail>,
    /// Counts regions from 1; 0 before the first.
    pub(crate) region: u32,
    pub(crate) open: bool,
    /// Spans whose counters were written.
    pub(crate) span_counts: u32,
    /// What each CPU had counted when the region was opened.
    pub(crate) opened_at: Vec<Counts>,
    pub(crate) ended: bool,
    /// Interrupts on another vCPU than the one that was assumed to run. There must be none.
    pub(crate) misplaced: u64,
    /// Readings of the clock that could not be corrected. There must be none.
    pub(crate) uncorrected: u64,
    /// The guest's PMUs, if it is to have any.
    pub(crate) pmus: Option<Pmus>,
    /// Where the host reads how far the guest is.
    pub(crate) progress: Option<ProgressFile>,
}

// SAFETY: descriptions in the arena and handles of registers are used by the vCPUs' thread, and at
// exit, when it has stopped; the lock is held for all but reading descriptions.
unsafe impl Send for Session {}

impl Session {
    /// Whether instructions are counted.
    pub(crate) fn counts(&self) -> bool {
        self.level != Detail::Fast
    }

    /// Whether the options ask for a level of detail that has caches.
    pub(crate) fn has_caches(&self) -> bool {
        self.options.detail.has_model() || !self.shadow_caches.is_null()
    }

    /// Whether a vCPU that executes a `pause` waits for those that run: see [`Clock::pause`].
    pub(crate) fn pauses_wait(&self) -> bool {
        self.level.has_model() && self.clock.pauses_wait()
    }

    /// Memory was written: the caches that all vCPUs have in common see it.
    pub(crate) fn written(&mut self, writes: &[Write]) {
        let vcpu = cpu::running();
        // SAFETY: null, or alive as long as the process; no use is nested in another.
        let mut shadow_caches = unsafe { self.shadow_caches.as_mut() };
        for write in writes {
            if let Some(processors) = &mut self.processors {
                processors.written(vcpu, *write);
            }
            if let Some(shadow_caches) = &mut shadow_caches {
                shadow_caches.written(vcpu as usize, *write);
            }
        }
    }

    /// Records as much as the options say from the next block on, or only markers.
    pub(crate) fn set_level(&mut self, full: bool) {
        let level = if full { self.options.detail } else { Detail::Fast };
        if level != self.next_level.unwrap_or(self.level) {
            self.next_level = Some(level);
            self.qemu.reset(callbacks::on_reset);
        }
    }

    /// The code cache is empty; no vCPU is inside a block.
    pub(crate) fn flushed(&mut self) {
        for vcpu in 0..self.cpus {
            cpu::with(vcpu, |cpu| cpu.forget_block());
        }
        self.arena.clear();
    }

    /// The level has changed, and the code cache is empty.
    pub(crate) fn level_changed(&mut self) {
        self.flushed();
        self.level = self.next_level.take().unwrap_or(self.level);
        dma::follow(self.counts() && self.has_caches());
        for vcpu in 0..self.cpus {
            cpu::with(vcpu, |cpu| {
                cpu.set_level(self.level);
                cpu.forget_shadow_translations(vcpu);
            });
            self.tracker.forget(vcpu as usize);
            self.tracked(vcpu);
        }
        self.check_pmus();
        self.clock.restart();
        self.qemu.register(&callbacks::Callbacks::of(self));
    }

    /// A vCPU is made: it counts with the model, if there is one.
    pub(crate) fn give_model(&self, vcpu: u32) {
        cpu::with(vcpu, |cpu| {
            if let Some(model) = &self.model {
                cpu.set_model(model);
            }
            if let Some(pipeline) = self.processors.as_ref().and_then(|of| of.pipeline(vcpu)) {
                cpu.set_pipeline(pipeline);
                // Others wait to be started.
                cpu.set_halted(vcpu > 0);
            }
            cpu.set_shadow_caches(self.shadow_caches);
            cpu.set_level(self.level);
        });
    }

    /// The guest at an event on a vCPU, when `remaining` instructions of the block that was counted
    /// are still to execute, and the tracker that follows it.
    pub(crate) fn moment(
        &mut self,
        vcpu: u32,
        remaining: u32,
    ) -> Option<(&mut Tracker, Moment<'_>)> {
        let now = cpu::with(vcpu, |cpu| cpu.counts_before(remaining));
        let registers = self.registers?;
        let (qemu, clock) = (&mut self.qemu, &self.clock);
        Some((&mut self.tracker, Moment { qemu, clock, vcpu, registers, now }))
    }

    /// A vCPU enters a handler, and its context is known: caches see what it reads and writes for
    /// that.
    pub(crate) fn enter_handler(&mut self, vcpu: u32, (from, to): (u64, u64)) {
        if self.has_caches() {
            let accesses = self.entries.enter(vcpu, (from, to), &mut self.qemu);
            cpu::with(vcpu, |cpu| cpu.enter_handler(vcpu, &accesses, is_kernel(to)));
        }
    }

    /// A vCPU is about to halt.
    pub(crate) fn halt(&mut self, vcpu: u32) {
        held::ask();
        idle::before_halt(self.cpus);
        if self.counts() {
            self.clock.halt(vcpu);
        } else {
            self.clock.halt_uncounted(vcpu);
        }
    }

    /// A vCPU is about to read the time-stamp counter, which shows QEMU's clock.
    pub(crate) fn read_clock(&mut self, vcpu: u32) {
        let ahead_ns = self.clock.ahead_ns(vcpu);
        cpu::with(vcpu, |cpu| cpu.read_clock(ahead_ns));
    }

    /// A vCPU has read the time-stamp counter, as the last instruction of its block: what it got
    /// becomes the model's time.
    pub(crate) fn correct_clock(&mut self, vcpu: u32) {
        let ahead_ns = cpu::with(vcpu, |cpu| cpu.take_clock_ahead());
        if let Some((ahead_ns, registers)) = ahead_ns.zip(self.registers) {
            let read = self.qemu.taken_value(registers);
            if self.qemu.put_value(registers, read.wrapping_add_signed(ahead_ns)).is_none() {
                self.uncorrected += 1;
            }
        }
    }

    /// Writes the spans and transitions that an event of a vCPU's tracker has ended, and updates
    /// the state that depends on its context.
    pub(crate) fn tracked(&mut self, vcpu: u32) {
        let region = self.region;
        let TrackedCpu { stack, task, .. } = &mut self.tracker.cpus[vcpu as usize];
        for span in stack.take_spans() {
            self.writer.write(&regions::span(vcpu, region, &span));
            if self.options.span_counts && self.span_counts < SPAN_COUNTS_MAX {
                self.span_counts += 1;
                regions::write_span_counters(&mut self.writer, vcpu, &span.self_counts);
            }
        }
        for transition in stack.take_transitions() {
            let tsc = self.clock.tsc_at(vcpu, &transition.at);
            self.writer.write(&regions::transition(vcpu, region, &transition, tsc));
        }
        if let Some(services) = &mut self.tracker.services {
            services.collect(vcpu as usize, *task, stack);
        }
        let (awaited, context) = (stack.awaits(), stack.context());
        self.set_context(vcpu);
        cpu::with(vcpu, |cpu| {
            cpu.await_at(awaited);
            cpu.set_idles(context == KernelContext::Idle);
            cpu.set_sampled_context(context);
        });
    }

    /// Tells the model what a vCPU executes from now on.
    fn set_context(&mut self, vcpu: u32) {
        let Some(processors) = &mut self.processors else { return };
        let Tracker { cpus, symbols, offsets, services, structures, .. } = &mut self.tracker;
        let tracked = &cpus[vcpu as usize];
        let service = tracked.stack.service();
        let is_fault = tracked.stack.fault().is_some();
        let executing = Executing {
            code: service.of_all_tasks().code(),
            fault: is_fault.then(|| (tracked.task, tracked.stack.depth() - 1)),
            pid: tracked.pid_or_zero(),
            task: tracked.task,
        };
        let area_array = symbols.kernel_counts.map(|counts| counts.areas);
        let (qemu, cpus) = (&mut self.qemu, self.cpus as usize);
        let mut guest = Guest { qemu, offsets, structures, area_array, cpus };
        let ended = services.iter_mut().flat_map(|services| services.take_ended_faults());
        // Without services evictors are contexts, as the tables of contexts have them.
        let context = if self.options.services { service } else { tracked.stack.context() };
        processors.set_context(vcpu, (context, executing), ended, &mut guest);
    }

    /// The misses of the region that is open, as records.
    pub(crate) fn miss_rows(&mut self) -> Vec<Record> {
        let Some(processors) = &mut self.processors else { return Vec::new() };
        let Tracker { symbols, offsets, structures, .. } = &mut self.tracker;
        let area_array = symbols.kernel_counts.map(|counts| counts.areas);
        let (qemu, cpus) = (&mut self.qemu, self.cpus as usize);
        let mut guest = Guest { qemu, offsets, structures, area_array, cpus };
        processors.miss_rows(self.region, &mut guest)
    }

    /// Writes a notice to the record and to the standard error output.
    pub(crate) fn notice(&mut self, notice: Notice, cpu: u32, value: u64) {
        eprintln!("irqlab plugin: {notice}");
        self.writer.write(&Record::Notice(notice, cpu, value));
    }

    /// The guest executes a marker on vCPU `vcpu`.
    pub(crate) fn marker(&mut self, vcpu: u32, remaining: u32) {
        let Some(registers) = self.registers else { return };
        let number = self.qemu.register_value(registers.rax) as u32;
        let argument = self.qemu.register_value(registers.rdx);
        if self.counts() {
            self.clock.count_halts(vcpu);
        }
        let (closes, ends) = (matches!(number, marker::CLOSE | marker::END), number == marker::END);
        if closes {
            self.hit_marker(vcpu, number, remaining);
            if self.ended {
                return;
            }
        }
        let counted = self.counted(vcpu, remaining);
        let was_open = self.open;
        let open = match number {
            marker::OPEN => true,
            marker::CLOSE | marker::END => false,
            _ => was_open,
        };
        let tracked = &self.tracker.cpus[vcpu as usize];
        let (interrupts, exceptions) = (tracked.interrupts, tracked.exceptions);
        let marker = Marker { cpu: vcpu, number, argument, open, interrupts, exceptions };
        self.writer.write(&Record::Marker(marker));
        if let Some(counts) = counted.get(vcpu as usize) {
            regions::write_counters(&mut self.writer, vcpu, CountersOf::Marker, counts);
        }
        self.tracker.name_current(vcpu as usize, &mut self.qemu);
        self.synchronise_pmus(vcpu, remaining);
        match number {
            marker::OPEN | marker::FULL => self.set_level(true),
            marker::FAST => self.set_level(false),
            _ => {}
        }
        match number {
            marker::OPEN if !was_open => {
                self.open_region(&counted);
                self.write_kernel_counts(false);
            }
            marker::CLOSE | marker::END if was_open => {
                self.write_kernel_counts(true);
                self.close_region(&counted);
            }
            marker::SNAPSHOT => self.write_region(&counted),
            _ => {}
        }
        if let Some(progress) = self.progress.as_mut().filter(|_| self.open != was_open) {
            progress.region(self.open, counted.get(vcpu as usize).map_or(0, |counts| counts[TIME]));
        }
        if ends {
            self.end(Ending::Marker, &counted);
        } else if !closes {
            self.hit_marker(vcpu, number, remaining);
        }
        self.check_due = self.options.check;
    }

    /// QEMU ends.
    pub(crate) fn exit(&mut self) {
        self.save_pmus();
        if self.ended {
            self.writer.flush();
            return;
        }
        let counted = self.counted(0, 0);
        self.close_region(&counted);
        self.end(Ending::Exit, &counted);
    }

    /// Compares counts with QEMU's own; between two blocks.
    pub(crate) fn check(&mut self) {
        self.check_due = false;
        if let Some(icount) = self.icount
            && !self.ended
        {
            let counted = self.counted(0, 0);
            let counted = counted.iter().map(|counts| counts[INSTRUCTIONS]).sum::<u64>();
            let counted = counted - self.clock.unclocked;
            self.writer.write(&Record::Check(Check { counted, icount: icount.get() }));
        }
    }

    pub(crate) fn end(&mut self, by: Ending, counted: &[Counts]) {
        let instructions = counted.iter().map(|counts| counts[INSTRUCTIONS]).sum();
        let counts = self.options.detail != Detail::Fast;
        self.writer.end(by, counts.then_some(instructions));
        self.ended = true;
    }

    /// What each vCPU has counted, when `remaining` instructions of the block of `vcpu` are still
    /// to execute; nothing if nothing is ever counted.
    pub(crate) fn counted(&self, vcpu: u32, remaining: u32) -> Vec<Counts> {
        // While only markers are recorded, blocks are not counted.
        let remaining = |cpu| if cpu == vcpu && self.counts() { remaining } else { 0 };
        let count = |cpu| cpu::with(cpu, |state| state.counts_before(remaining(cpu)));
        let counts = self.options.detail != Detail::Fast;
        if counts { (0..self.cpus).map(count).collect() } else { Vec::new() }
    }
}
