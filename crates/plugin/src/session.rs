//! A recording. The session holds the parts that follow the machine (clock, models, tracker, spans, regions, record and
//! others) and passes the machine's events to them. Each part has its own state; what needs several parts is here.
//!
//! There is one session in a process, behind a lock. `qemu/callbacks.rs`, `qemu/before_block.rs`,
//! `guest/markers.rs` and `guest/annotations/actions.rs` call it, in the vCPUs' thread. The callbacks of each block
//! and access do not take the lock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use attribution::KernelContext;
use machine::VirtualAddress;
use machine::decode::Decoder;

use crate::check::CountCheck;
use crate::cpu::level::{Level, RequestedLevel};
use crate::cpu::{self, BlockPosition};
use crate::devices::dma;
use crate::guest::annotations::AnnotationCounters;
use crate::guest::executed_blocks::ExecutedBlocks;
use crate::guest::region_rows;
use crate::guest::regions::{RegionEdge, RegionState, Regions};
use crate::guest::service_sums::ServiceSums;
use crate::guest::spans::{SpanSource, Spans};
use crate::guest::tracker::{Moment, TrackedCpu, Tracker};
use crate::models::Models;
use crate::models::isolation::Isolation;
use crate::models::sampling::Scope;
use crate::pmu::machine::{Pmus, VcpuCounts};
use crate::qemu::block::{Arena, Block};
use crate::qemu::qemu_internals::Slices;
use crate::qemu::{Qemu, Registers};
use crate::time::clock::Clock;
use crate::time::progress::ProgressFile;
use crate::time::tsc::TscReadings;
use crate::time::withheld::Withholding;
use crate::writer::{Ending, Writer};
use plugin_interface::options::{Options, User};
use plugin_interface::symbols::Action;
use plugin_interface::until::StopRule;
use simrecord::counters::{Counts, INSTRUCTIONS, TIME};
use simrecord::marker;
use simrecord::record::{CountersOf, Hotplug, HotplugState, Marker, Notice, Record, Withheld};

/// The recording of this process. `None` before it starts.
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Locks the recording. Inside, `None` before it starts.
pub(crate) fn lock() -> MutexGuard<'static, Option<Session>> {
    // A panic aborts the process, so no code sees a poisoned lock.
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the recording, unless it is locked already.
pub(crate) fn try_lock() -> Option<MutexGuard<'static, Option<Session>>> {
    SESSION.try_lock().ok()
}

/// A marker that a vCPU has reached.
pub(crate) struct MarkerHit {
    pub(crate) vcpu: u32,
    /// See [`simrecord::marker`].
    pub(crate) number: u32,
    pub(crate) argument: u64,
}

/// The parts of a recording.
pub(crate) struct Session {
    pub(crate) qemu: Qemu,
    pub(crate) options: Options,
    /// The number of the guest's vCPUs.
    pub(crate) cpus: u32,
    /// The guest's registers. `None` until the first vCPU is created, or if QEMU does not show them.
    pub(crate) registers: Option<Registers>,
    /// The thread of all vCPUs. `None` until the first vCPU is created.
    pub(crate) thread: Option<ThreadId>,
    /// Whether a vCPU has executed, or taken an interrupt.
    pub(crate) has_started: bool,
    /// The current level of detail.
    pub(crate) level: Level,
    /// The descriptions that callbacks of translated code use.
    pub(crate) arena: Arena,
    pub(crate) decoder: Decoder,
    /// The models that count and time.
    pub(crate) models: Models,
    /// Whether the guest's kernel isolates its page tables.
    pub(crate) isolation: Isolation,
    pub(crate) clock: Clock,
    pub(crate) tsc: TscReadings,
    /// When the host withholds a vCPU. `None`: never.
    pub(crate) withholding: Option<Withholding>,
    /// The contexts of each vCPU.
    pub(crate) tracker: Tracker,
    pub(crate) spans: Spans,
    pub(crate) executed_blocks: ExecutedBlocks,
    pub(crate) annotations: AnnotationCounters,
    /// The guest's PMUs. `None`: the guest has no PMU.
    pub(crate) pmus: Option<Pmus>,
    pub(crate) regions: Regions,
    pub(crate) check: CountCheck,
    /// How far the guest's clock jumps ahead once the level has changed, in nanoseconds.
    pub(crate) clock_jump_ns: u64,
    pub(crate) writer: Writer,
    /// The file that tells the host the guest's progress.
    pub(crate) progress: Option<ProgressFile>,
}

// SAFETY: descriptions in the arena, models and handles of registers are used by the vCPUs' thread, and
// at exit, when it has stopped; the lock is held for all but reading descriptions.
unsafe impl Send for Session {}

impl Session {
    /// Whether a vCPU that executes a `pause` waits for the other running vCPUs: see [`Clock::pause`].
    pub(crate) fn pauses_wait(&self) -> bool {
        self.level.current().has_model() && self.clock.pauses_wait()
    }

    /// Starts guest time at the first call. Call it between blocks when a vCPU is about to execute or takes an interrupt.
    ///
    /// In a restored machine, QEMU's clock is not at zero at that time, and vCPUs may be halted
    /// although the plugin saw no halt.
    pub(crate) fn start(&mut self) {
        if !std::mem::replace(&mut self.has_started, true) && self.level.is_counting() {
            self.start_tracker();
            self.clock.restart(true);
        }
    }

    /// Starts to follow the contexts of all vCPUs, at their current contexts. Call it between blocks, in the vCPUs' thread,
    /// when the vCPUs were not followed before.
    fn start_tracker(&mut self) {
        for vcpu in 0..self.cpus {
            let activity = Slices::of_vcpu(vcpu).and_then(Slices::activity);
            self.tracker.start(vcpu as usize, activity, &mut self.qemu);
            self.pass_on_tracked_event(vcpu);
        }
    }

    /// Passes the writes of devices, and stores to pages with code, on to the caches.
    pub(crate) fn pass_device_writes(&mut self) {
        let (writes, lost) = dma::take_waiting_writes();
        self.models.pass_writes(&writes);
        if lost > 0 {
            self.writer.notice(Notice::DeviceWritesLost, 0, lost);
        }
    }

    /// Sets the level of detail from the next block on.
    pub(crate) fn set_level(&mut self, level: RequestedLevel) {
        if self.level.request(level) {
            self.qemu.reset();
        }
    }

    /// Drops the descriptions of blocks, because QEMU has emptied its cache of translated code.
    /// No vCPU is inside a block.
    pub(crate) fn flushed(&mut self) {
        for vcpu in 0..self.cpus {
            cpu::with_vcpu(vcpu, |cpu| cpu.forget_block());
        }
        self.arena.clear();
    }

    /// Changes to the requested level, because QEMU has dropped its translated code. Everything that was followed at
    /// the old level starts again.
    pub(crate) fn level_changed(&mut self) {
        self.flushed();
        self.level.apply_request();
        self.follow_writes();
        for vcpu in 0..self.cpus {
            cpu::with_vcpu(vcpu, |cpu| {
                cpu.set_level(self.level.current());
                cpu.forget_shadow_translations(vcpu);
            });
            self.tracker.forget(vcpu as usize);
            self.pass_on_tracked_event(vcpu);
        }
        if self.level.is_counting() {
            self.start_tracker();
        }
        if let Some(pmus) = &self.pmus {
            pmus.check_soon();
        }
        self.clock.jump_ahead(std::mem::take(&mut self.clock_jump_ns));
        self.clock.restart(self.level.is_counting());
    }

    /// Keeps devices' writes for the caches while instructions are counted and the level has caches.
    pub(crate) fn follow_writes(&self) {
        dma::set_follows_writes(self.level.is_counting() && self.models.has_caches());
    }

    /// Lets the host withhold `vcpu` if that is due in an open region, and writes for how long. Call it between two blocks,
    /// where a time slice ends or the vCPU takes an interrupt.
    pub(crate) fn withhold(&mut self, vcpu: u32) {
        let Some(withholding) = &mut self.withholding else { return };
        if !self.regions.contains_now(vcpu as usize) || self.writer.has_ended() {
            return;
        }
        cpu::with_vcpu(vcpu, |cpu| cpu.retire_pending(0));
        let now_ns = self.clock.now_ns(vcpu);
        if let Some(length_ns) = withholding.withheld_ns(vcpu, now_ns) {
            self.clock.withhold(vcpu, length_ns);
            let region = self.regions.number();
            // The time-stamp counter counts nanoseconds.
            let withheld = Withheld { cpu: vcpu, region, tsc: now_ns, length: length_ns };
            self.writer.write(&Record::Withheld(withheld));
        }
    }

    /// The tracker, and the guest at an event on a vCPU. `remaining`: how many counted instructions of the block have
    /// not executed yet. `None` if registers cannot be read.
    pub(crate) fn moment(
        &mut self,
        vcpu: u32,
        remaining: u32,
    ) -> Option<(&mut Tracker, Moment<'_>)> {
        let counts = cpu::with_vcpu(vcpu, |cpu| cpu.counts_before(remaining));
        self.moment_with(vcpu, counts)
    }

    /// The moment of an event that only observes, so no instruction retires for it: on a core of several threads,
    /// instructions would issue earlier. The counts include the retired instructions: all earlier blocks, on a
    /// core of one thread. `None`: as for [`Session::moment`].
    fn observed_moment(&mut self, vcpu: u32, remaining: u32) -> Option<(&mut Tracker, Moment<'_>)> {
        let counts = cpu::with_vcpu(vcpu, |cpu| cpu.retired_counts(remaining));
        self.moment_with(vcpu, counts)
    }

    fn moment_with(&mut self, vcpu: u32, counts: Counts) -> Option<(&mut Tracker, Moment<'_>)> {
        let registers = self.registers?;
        let (qemu, clock) = (&mut self.qemu, &self.clock);
        Some((&mut self.tracker, Moment { qemu, clock, vcpu, registers, now: counts }))
    }

    /// The counts of a vCPU that its PMU shows. `remaining`: how many instructions of the block have not executed yet.
    pub(crate) fn pmu_counts(&self, vcpu: u32, remaining: u32) -> VcpuCounts {
        let tracked = &self.tracker.cpus[vcpu as usize];
        VcpuCounts::of_vcpu(vcpu, remaining, &self.level, &self.clock, tracked)
    }

    /// Writes the file of the PMUs' state if the options name one. Call it when the vCPUs have stopped.
    pub(crate) fn save_pmus(&mut self) {
        if let Some(pmus) = self.pmus.as_mut().filter(|pmus| pmus.is_saved()) {
            pmus.save(&VcpuCounts::of_all(
                BlockPosition::default(),
                &self.level,
                &self.clock,
                &self.tracker.cpus,
            ));
        }
    }

    /// Handles the results of an event of a vCPU's tracker: writes ended spans and transitions, and updates everything
    /// that depends on the vCPU's context. Call it after each event of the tracker.
    pub(crate) fn pass_on_tracked_event(&mut self, vcpu: u32) {
        let source = SpanSource { vcpu, region: self.regions.number() };
        self.spans.write_ended(source, &mut self.tracker, &self.clock, &mut self.writer);
        let Tracker { cpus, services, .. } = &mut self.tracker;
        let TrackedCpu { stack, task, .. } = &mut cpus[vcpu as usize];
        if let Some(services) = services {
            services.collect(vcpu as usize, *task, stack);
        }
        let context = stack.context();
        let awaited_address = self.tracker.awaits(vcpu as usize);
        let has_event_at_block_end = self.tracker.has_event_at_block_end(vcpu as usize);
        if let Some(processors) = self.models.processors() {
            let (executing, ended, mut guest) =
                self.tracker.executing(vcpu as usize, &mut self.qemu);
            processors.set_context(vcpu, executing, ended, &mut guest);
        }
        cpu::with_vcpu(vcpu, |cpu| {
            cpu.set_awaited_address(awaited_address.map(VirtualAddress));
            cpu.set_has_event_at_block_end(has_event_at_block_end);
            cpu.set_runs_idle_task(context == KernelContext::Idle);
            cpu.set_sampled_context(context);
        });
    }

    /// Handles the event of the block that `vcpu` has executed, if there is one: a return from the kernel or from an interrupt,
    /// or a call of a queued function. Call it between two blocks, before the tracker gets another event.
    pub(crate) fn complete_block_event(&mut self, vcpu: u32) {
        if self.tracker.executes_return(vcpu as usize) {
            let now = cpu::with_vcpu(vcpu, |cpu| cpu.counts_before(0));
            self.tracker.complete_return(vcpu as usize, now);
        } else if self.tracker.senders.executes_call(vcpu as usize) {
            if let Some((tracker, moment)) = self.observed_moment(vcpu, 0) {
                tracker.start_called_run(vcpu as usize, moment);
            }
        } else {
            return;
        }
        self.pass_on_tracked_event(vcpu);
    }

    /// Handles an event that only observes at an instruction that `vcpu` is about to execute. `remaining`: as in [`Session::moment`].
    pub(crate) fn observe_event(
        &mut self,
        vcpu: u32,
        (action, address): (Action, VirtualAddress),
        remaining: u32,
    ) {
        if self.writer.has_ended() {
            return;
        }
        if let Some((tracker, moment)) = self.observed_moment(vcpu, remaining) {
            tracker.handle_action(vcpu as usize, action, address.0, moment);
            self.pass_on_tracked_event(vcpu);
        }
    }

    /// Handles that `vcpu` is about to start the block at `address`, where a followed function returns.
    pub(crate) fn handle_return(&mut self, vcpu: u32, address: VirtualAddress) {
        if self.tracker.awaits_end_of_run(vcpu as usize, address.0) {
            if let Some((tracker, moment)) = self.observed_moment(vcpu, 0) {
                tracker.end_run(vcpu as usize, address.0, moment);
            }
        } else if let Some((tracker, moment)) = self.moment(vcpu, 0) {
            tracker.handle_return(vcpu as usize, address.0, moment);
        }
        self.pass_on_tracked_event(vcpu);
    }

    /// `vcpu` starts `block` in the time in which its blocks are recorded.
    pub(crate) fn record_block(&mut self, vcpu: u32, block: &Block) {
        let counts = cpu::with_vcpu(vcpu, |cpu| cpu.counts());
        let moment = (self.clock.tsc_at(vcpu, &counts), &counts);
        let region = self.regions.number();
        let Session { executed_blocks, writer, .. } = self;
        if !self.regions.is_open() || executed_blocks.start(block, moment, region, writer) {
            cpu::with_vcpu(vcpu, |cpu| cpu.set_blocks_from(u64::MAX));
        }
    }

    /// Opens the next region of interest, unless one is open. `vcpu_counts`: the counts of each vCPU.
    ///
    /// All parts start from zero before the last step, which passes each vCPU's context to them.
    pub(crate) fn open_region(&mut self, vcpu_counts: &[Counts]) {
        if !self.regions.open(vcpu_counts) {
            return;
        }
        self.annotations.open_region();
        if let Some((vcpu, from_cycles)) = self.executed_blocks.awaited_cycles() {
            cpu::with_vcpu(vcpu, |cpu| cpu.set_blocks_from(from_cycles));
        }
        let warm_up_ns = self.options.until.map_or(0, |until| until.warm_up_ns);
        let warm_up_cycles = self.clock.cycles_of(warm_up_ns);
        let span_starts =
            vcpu_counts.iter().map(|counts| counts[TIME].saturating_add(warm_up_cycles));
        self.spans.open_region(span_starts.collect());
        self.models.open_region(self.options.misses, self.options.services);
        for (tracked, counts) in self.tracker.cpus.iter_mut().zip(vcpu_counts) {
            tracked.stack.open_region(*counts);
        }
        let times = (0..self.cpus).zip(vcpu_counts);
        let times = times.map(|(vcpu, counts)| self.clock.common_cycles_at(vcpu, counts));
        let opened = times.max().unwrap_or(0);
        self.tracker.delays.open_region(self.cpus as usize, opened);
        self.tracker.senders.open_region(self.regions.number(), self.cpus as usize);
        self.tracker.groups.open_region(self.regions.number());
        self.tracker.requests.open_region(self.regions.number());
        self.tracker.open_services();
        self.models.set_sampled_region(Some(self.regions.number()));
        (0..self.cpus).for_each(|vcpu| self.pass_on_tracked_event(vcpu));
    }

    /// Writes the rows of the open region, and closes it. `vcpu_counts`: the counts of each vCPU.
    pub(crate) fn close_region(&mut self, vcpu_counts: &[Counts]) {
        self.write_region(vcpu_counts);
        self.regions.close();
        self.tracker.delays.close_region();
        if self.tracker.delays.take_unknown_times() {
            self.writer.notice_without_value(Notice::TimersUnknown, 0);
        }
        self.tracker.senders.close_region();
        self.tracker.groups.close_region();
        self.tracker.requests.close_region();
        self.models.set_sampled_region(None);
        self.models.write_sampled(&mut self.writer);
        for (tracked, now) in self.tracker.cpus.iter_mut().zip(vcpu_counts) {
            tracked.stack.close_region(*now);
        }
    }

    /// Closes the open region early if it has measured enough by the rule of the options ([`Options::until`]). A rule for spans
    /// also waits for the time to close ([`CloseTime`](crate::guest::close_time::CloseTime)). Does nothing inside an interrupt
    /// or exception. Call it between two blocks of `vcpu`.
    ///
    /// The guest keeps its window open for a fixed time. The rest of the window is not recorded: the guest's clock
    /// jumps to the window's end when the level changes. Marker, counts and contexts are written before the region
    /// closes, as at a close by the guest.
    pub(crate) fn close_if_enough(&mut self, vcpu: u32) {
        let Some(stop_rule) = self.options.until else { return };
        if !self.regions.is_open() || self.writer.has_ended() {
            return;
        }
        let opening_cycle = self.regions.opening_cycle(vcpu as usize);
        let is_due = if let StopRule::Instructions(count) = stop_rule.enough {
            self.instructions_in_region() >= count
        } else {
            let now = cpu::with_vcpu(vcpu, |cpu| cpu.counts())[TIME];
            let open_ns = self.clock.ns_of(now.saturating_sub(opening_cycle));
            self.spans.end_region(open_ns)
        };
        if !is_due {
            return;
        }
        let is_inside_span =
            self.tracker.cpus.iter().any(|tracked| {
                tracked.stack.is_inside_any(KernelContext::is_interrupt_or_exception)
            });
        if is_inside_span {
            // The cut span would be in the counts of its context, but it would not be a span of the record.
            return;
        }
        self.clock.count_halts(vcpu);
        let vcpu_counts = self.level.counts_between_blocks();
        let length_cycles = vcpu_counts[vcpu as usize][TIME].saturating_sub(opening_cycle);
        let length_ns = self.clock.ns_of(length_cycles);
        self.close_early(vcpu, &vcpu_counts);
        self.clock_jump_ns = stop_rule.window_ns.saturating_sub(length_ns);
    }

    /// The instructions that all vCPUs together have executed in the open region. Call it between two blocks.
    fn instructions_in_region(&self) -> u64 {
        let counts = |vcpu| cpu::with_vcpu(vcpu, |cpu| cpu.counts());
        let instructions =
            |vcpu| self.regions.counts_in_region(vcpu as usize, &counts(vcpu))[INSTRUCTIONS];
        (0..self.cpus).map(instructions).sum()
    }

    /// Closes the region as at a close by the guest. `vcpu_counts`: the counts of each vCPU.
    fn close_early(&mut self, vcpu: u32, vcpu_counts: &[Counts]) {
        let region = self.regions.number().into();
        let hit = MarkerHit { vcpu, number: marker::ENOUGH, argument: region };
        self.write_marker(&hit, RegionState::Closed, vcpu_counts);
        self.write_kernel_counts(RegionEdge::Close);
        self.write_present_contexts(vcpu_counts);
        self.close_region(vcpu_counts);
        if let Some(progress) = &mut self.progress {
            progress.note_enough();
            progress.write_region(RegionState::Closed, vcpu, vcpu_counts);
        }
        self.set_level(RequestedLevel::MarkersOnly);
    }

    /// Writes a last transition of each vCPU, to the context that it executes. The guest does not know when the region
    /// closed, so the bench that joins transitions with the guest's records needs the time of the close.
    fn write_present_contexts(&mut self, vcpu_counts: &[Counts]) {
        for (tracked, counts) in self.tracker.cpus.iter_mut().zip(vcpu_counts) {
            tracked.stack.repeat_transition(*counts);
        }
        (0..self.cpus).for_each(|vcpu| self.pass_on_tracked_event(vcpu));
    }

    /// Writes the record of a marker. `state`: that of the region after the marker. `vcpu_counts`: the counts of each vCPU;
    /// if it is empty, the marker has no counts.
    pub(crate) fn write_marker(
        &mut self,
        hit: &MarkerHit,
        state: RegionState,
        vcpu_counts: &[Counts],
    ) {
        let MarkerHit { vcpu, number, argument } = *hit;
        let tracked = &self.tracker.cpus[vcpu as usize];
        let (interrupts, exceptions) = (tracked.interrupts, tracked.exceptions);
        let services = self.tracker.services.as_ref();
        let handled_faults = services.map_or(0, ServiceSums::handled_faults);
        let marker = Marker {
            cpu: vcpu,
            number,
            argument,
            open: state == RegionState::Open,
            interrupts,
            exceptions,
            handled_faults,
        };
        self.writer.write(&Record::Marker(marker));
        if let Some(counts) = vcpu_counts.get(vcpu as usize) {
            self.writer.counters(vcpu, CountersOf::Marker, counts);
        }
    }

    /// The instructions that cores execute in detail while a region is open, by the options.
    pub(crate) fn scope_of_regions(&self) -> Scope {
        match self.options.user {
            User::Sampled => Scope::Kernel,
            User::Detailed => Scope::Everything,
        }
    }

    /// Sets which instructions cores execute in detail from now on. Does nothing at other levels than `ooo`.
    pub(crate) fn set_scope(&mut self, scope: Scope) {
        if let Some(processors) = self.models.processors() {
            processors.set_scope(scope, self.cpus);
        }
    }

    /// Writes the rows of the open region so far. Does nothing if no region is open.
    pub(crate) fn write_region(&mut self, vcpu_counts: &[Counts]) {
        if !self.regions.is_open() {
            return;
        }
        let Session { regions, tracker, models, annotations, writer, .. } = self;
        let lost = tracker.lost_events() + self.tsc.uncorrected();
        region_rows::write_contexts(regions, vcpu_counts, lost, tracker, writer);
        tracker.write_services(regions, vcpu_counts, writer);
        let region = regions.number();
        annotations.write_region(writer, region, self.cpus);
        models.write_misses(region, &mut tracker.guest(&mut self.qemu), writer);
        models.write_shadow_caches(region, writer);
        writer.flush();
    }

    /// Writes the guest kernel's own counts, at an edge of a region. Does nothing in a
    /// recording without counts, because there is nothing to compare them with.
    pub(crate) fn write_kernel_counts(&mut self, edge: RegionEdge) {
        if self.level.can_count() {
            let Session { regions, tracker, qemu, writer, .. } = self;
            region_rows::write_kernel_counts(regions, edge, tracker, qemu, writer);
        }
    }

    /// Ends the open region for a vCPU that goes offline. `counts`: the counts of the vCPU.
    pub(crate) fn go_offline(&mut self, vcpu: u32, counts: &Counts) {
        if !self.regions.go_offline(vcpu as usize, counts) {
            return;
        }
        let Session { regions, tracker, annotations, qemu, writer, .. } = self;
        annotations.go_offline(vcpu);
        let edge = RegionEdge::Close;
        region_rows::write_kernel_counts_of(vcpu as usize, regions, edge, tracker, qemu, writer);
        tracker.cpus[vcpu as usize].stack.leave_region(*counts);
        cpu::with_vcpu(vcpu, |cpu| cpu.set_sampled_region(None));
        self.write_hotplug(vcpu, HotplugState::Offline, counts);
    }

    /// Writes that a vCPU is online again, if it went offline in the open region. `counts`: the counts of the vCPU.
    pub(crate) fn come_online(&mut self, vcpu: u32, counts: &Counts) {
        if self.regions.is_open() && self.regions.went_offline(vcpu as usize) {
            self.write_hotplug(vcpu, HotplugState::Online, counts);
        }
    }

    fn write_hotplug(&mut self, cpu: u32, state: HotplugState, counts: &Counts) {
        let hotplug = Hotplug { cpu, region: self.regions.number(), state, at: counts[TIME] };
        self.writer.write(&Record::Hotplug(hotplug));
    }

    /// Ends the record for an annotation, unless it has ended. `remaining`: how many instructions of the block of
    /// `vcpu` have not executed yet.
    pub(crate) fn stop(&mut self, vcpu: u32, remaining: u32) {
        if self.writer.has_ended() {
            return;
        }
        let vcpu_counts = self.level.counts_of_all_vcpus(vcpu, remaining);
        if self.regions.is_open() {
            self.write_kernel_counts(RegionEdge::Close);
            self.close_region(&vcpu_counts);
        }
        self.end(Ending::Annotation, &vcpu_counts);
    }

    /// Writes the rest of the record, because QEMU ends.
    pub(crate) fn exit(&mut self) {
        self.save_pmus();
        self.models.finish_trace();
        if self.writer.has_ended() {
            self.writer.flush();
            return;
        }
        let vcpu_counts = self.level.counts_between_blocks();
        self.close_region(&vcpu_counts);
        self.end(Ending::Exit, &vcpu_counts);
    }

    /// Writes the end record. `vcpu_counts`: the counts of each vCPU.
    pub(crate) fn end(&mut self, ending: Ending, vcpu_counts: &[Counts]) {
        let instructions = vcpu_counts.iter().map(|counts| counts[INSTRUCTIONS]).sum();
        self.writer.end(ending, self.level.can_count().then_some(instructions));
    }
}
