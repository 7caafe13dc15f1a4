//! The clock of a machine: plans the time slices of vCPUs, sets QEMU's clock to the model's time, and adds up how long
//! vCPUs are halted.
//!
//! The session has one [`Clock`]. `qemu/before_block.rs` calls it at the end of each slice; `qemu/callbacks.rs` calls
//! it when a vCPU halts, wakes, pauses or reads its clock. Everything runs in the vCPUs' thread, between two blocks
//! unless a function says otherwise.
//!
//! QEMU's own clock (`-icount`) advances by `2^shift` ns for each instruction. The plugin corrects it by [`Bias`] so
//! that it shows the model's time.

use machine::Instructions;

use crate::cpu::{self, Cpu, Slice};
use crate::qemu::block::Block;
use crate::qemu::qemu_internals::deadline::{Deadlines, NextTimer};
use crate::qemu::qemu_internals::idle::IdleVcpus;
use crate::qemu::qemu_internals::{Bias, GuestClock, Slices};
use crate::time::rounds::Rounds;
use simrecord::counters::{CYCLES, Counts, INSTRUCTIONS};

const NS_PER_S: u128 = 1_000_000_000;

/// The parameters of a clock, which do not change.
pub(crate) struct ClockParameters {
    pub(crate) cpus: u32,
    /// An instruction takes `2^shift` ns of QEMU's clock.
    pub(crate) shift: u32,
    /// Cycles of a vCPU per second of guest time.
    pub(crate) hz: u64,
    /// The planned length of a time slice, in cycles.
    pub(crate) vcpu_slice: u64,
    /// Whether QEMU leaves its loop at the end of each slice.
    pub(crate) exits_all: bool,
    /// Corrects QEMU's clock. `None`: guest time does not follow the model.
    pub(crate) bias: Option<Bias>,
    /// QEMU's clock. `None`: it cannot be read.
    pub(crate) guest_clock: Option<GuestClock>,
}

/// A halt of a vCPU, or the part of the halt that is not added up yet.
#[derive(Clone, Copy)]
struct Halt {
    /// Guest time at the start.
    since_ns: u64,
    /// The time of the vCPU's executed cycles, as known at the start.
    cycles_ns: u64,
}

/// QEMU's last exit from its loop of translated blocks. Outside of the loop QEMU runs timers, and plans how many
/// instructions it executes before the next exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LoopExit {
    /// The executed instructions of all vCPUs at the exit or earlier.
    instructions: Instructions,
    /// When the next timer was due, as known at the end of the last slice.
    due_ns: Option<u64>,
}

impl LoopExit {
    /// Whether the next slice may follow without another exit. Since the exit, instructions have advanced QEMU's clock
    /// by `executed_ns`. In a slice they advance it by at most `slice_ns`.
    ///
    /// QEMU counts instructions at each exit, or more often. So its clock shows at most `executed_ns` more than
    /// `next.counted_ns`. At the exit, QEMU had planned to execute until the next timer, and divided these instructions
    /// equally among `cpus` vCPUs.
    /// It has executed at most `executed_ns` of the plan. The rest of the plan must suffice for a slice, because QEMU
    /// divides the last block of the plan. The factor of two covers instructions that QEMU and the plugin count
    /// differently.
    fn allows_slice(&self, next: NextTimer, cpus: u32, executed_ns: u64, slice_ns: u64) -> bool {
        let now_ns = next.counted_ns.saturating_add(executed_ns);
        let remaining_ns = next.due_ns.map_or(u64::MAX, |due| due.saturating_sub(now_ns));
        let planned_ns = remaining_ns.min(PLANNED_NS_MAX) / u64::from(cpus);
        let needed_ns = executed_ns.saturating_mul(2).saturating_add(slice_ns);
        self.due_ns == next.due_ns && planned_ns > needed_ns
    }
}

/// The longest plan of QEMU, in ns of its clock.
const PLANNED_NS_MAX: u64 = i32::MAX as u64;
/// The most instructions that a time slice may have for each planned cycle.
const WIDTH_MAX: u64 = 16;
/// The shortest slice before a timer. It bounds how late a timer can be by the model's time, in cycles, and how early by QEMU's
/// clock, in instructions; one block may add to either.
const TIMER_SLICE: Slice = Slice { cycles: 16, instructions: 16 };
/// A slice without an end.
const ENDLESS: Slice = Slice { cycles: u64::MAX, instructions: u64::MAX };
/// The most instructions of a translated block (QEMU's `TCG_MAX_INSNS`).
const BLOCK_MAX: u64 = 512;

pub(crate) struct Clock {
    parameters: ClockParameters,
    rounds: Rounds,
    /// Ends each vCPU's slices in QEMU. `None` until the vCPU is created.
    slices: Vec<Option<Slices>>,
    /// The time of each vCPU's executed cycles at the end of its last slice.
    counted_ns: Vec<u64>,
    /// Whether each vCPU took interrupts when it halted last: see [`Clock::is_alone`].
    takes_interrupts: Vec<bool>,
    /// The halt of each vCPU that is halted.
    halts: Vec<Option<Halt>>,
    /// The part of QEMU's clock that instructions do not explain: its start value, and its jumps
    /// while all vCPUs were halted.
    jumps_ns: u64,
    /// Finds QEMU's next timer. `None`: this QEMU does not show it.
    deadlines: Option<Deadlines>,
    /// Finds out which vCPUs have nothing to do. `None`: this QEMU does not show it.
    idle_vcpus: Option<IdleVcpus>,
    last_exit: LoopExit,
    /// Instructions that the plugin executed instead of QEMU. QEMU's clock has not counted them.
    pub(crate) unclocked: Instructions,
}

impl Clock {
    pub(crate) fn new(parameters: ClockParameters) -> Clock {
        let cpus = parameters.cpus as usize;
        Clock {
            rounds: Rounds::new(
                cpus,
                parameters.shift,
                ns_of(parameters.vcpu_slice, parameters.hz),
            ),
            slices: vec![None; cpus],
            counted_ns: vec![0; cpus],
            takes_interrupts: vec![false; cpus],
            halts: vec![None; cpus],
            jumps_ns: 0,
            deadlines: None,
            idle_vcpus: None,
            last_exit: LoopExit::default(),
            unclocked: Instructions::default(),
            parameters,
        }
    }

    /// Advances the guest's clock by `ns`, where guest time follows a model. The caller must then call
    /// [`Clock::restart`].
    pub(crate) fn jump_ahead(&self, ns: u64) {
        if let Some(bias) = self.parameters.bias {
            bias.add(i64::try_from(ns).unwrap_or(i64::MAX));
        }
    }

    /// Restarts the clock when the level of detail has changed. `is_counting`: whether vCPUs count instructions from
    /// now on.
    pub(crate) fn restart(&mut self, is_counting: bool) {
        (0..self.parameters.cpus).for_each(|vcpu| cpu::with_vcpu(vcpu, Cpu::issue_all_threads));
        self.rounds.restart(self.instructions());
        self.last_exit = LoopExit { instructions: self.executed(), due_ns: None };
        if let Some(guest) = self.parameters.guest_clock {
            // QEMU's clock has advanced while instructions were not counted. This advance must not count as part of the
            // first halt.
            let shown_ns = self.rounds.qemu_clock_ns(self.instructions());
            self.jumps_ns = guest.get_ns().wrapping_sub(shown_ns);
        }
        for vcpu in 0..self.parameters.cpus {
            cpu::with_vcpu(vcpu, |cpu| cpu.set_slice(self.planned_slice()));
            let cycles = cpu::with_vcpu(vcpu, |cpu| cpu.counts()[CYCLES]);
            self.counted_ns[vcpu as usize] = self.ns_of(cycles);
            self.halts[vcpu as usize] = None;
            // After a checkpoint, vCPUs may be halted although no halt was seen.
            match self.slices[vcpu as usize].and_then(Slices::is_halted) {
                Some(true) => self.note_halted(vcpu),
                Some(false) => self.note_running(vcpu),
                None => {}
            }
            let takes_interrupts = self.slices[vcpu as usize].and_then(Slices::takes_interrupts);
            self.set_takes_interrupts(vcpu, takes_interrupts == Some(true));
            if is_counting && self.rounds.is_halted(vcpu as usize) {
                self.halts[vcpu as usize] = Some(self.halt_from_now(vcpu));
            }
            // vCPUs share a memory, and the memory has one time. Without the common time, a vCPU would start at
            // time 0. At the first line that another vCPU has just used, it would wait for all earlier guest time.
            self.publish_time(vcpu);
        }
    }

    /// The host withholds a vCPU: it executes nothing for `ns`, and its time goes on.
    pub(crate) fn withhold(&mut self, vcpu: u32, ns: u64) {
        cpu::with_vcpu(vcpu, |cpu| cpu.wait(cycles_of(ns, self.parameters.hz)));
        self.publish_time(vcpu);
    }

    /// Handles that a vCPU is about to halt while no instructions are counted.
    pub(crate) fn halt_uncounted(&mut self, vcpu: u32) {
        self.note_halted(vcpu);
    }

    /// Whether vCPUs run in slices.
    pub(crate) fn has_slices(&self) -> bool {
        self.parameters.cpus > 1 || self.parameters.bias.is_some()
    }

    /// Starts the time slices of a new vCPU. Called in the vCPUs' thread when QEMU creates the vCPU.
    pub(crate) fn begin_slices(&mut self, vcpu: u32, slices: Slices) {
        self.slices[vcpu as usize] = Some(slices);
        self.deadlines = Deadlines::of_this_thread();
        self.idle_vcpus = IdleVcpus::find();
        cpu::with_vcpu(vcpu, |cpu| {
            cpu.set_handle(slices.handle());
            cpu.set_slice(self.planned_slice());
        });
    }

    /// A vCPU's slice is over; `block` is its last block, which is about to run. Sets QEMU's clock, plans the next
    /// slice, and makes QEMU leave its loop unless the next slice may follow at once.
    pub(crate) fn end_slice(&mut self, vcpu: u32, block: &Block) {
        cpu::with_vcpu(vcpu, |cpu| cpu.retire_pending(0));
        // A vCPU that another vCPU has started runs although it took no interrupt.
        self.note_running(vcpu);
        self.advance(vcpu);
        self.plan_slice(vcpu);
        if !self.next_slice_can_follow(vcpu, block) {
            self.leave_loop(vcpu);
        } else if self.parameters.cpus > 1 {
            cpu::with_vcpu(vcpu, |cpu| cpu.enter_last_block());
        }
    }

    /// Makes QEMU leave its loop after the running block, the last of a slice. [`Clock::end_slice`] had decided to
    /// stay.
    pub(crate) fn leave_after_slice(&mut self, vcpu: u32) {
        cpu::with_vcpu(vcpu, |cpu| cpu.leave_last_block());
        self.leave_loop(vcpu);
    }

    /// Makes QEMU leave its loop when the running block has ended.
    fn leave_loop(&mut self, vcpu: u32) {
        if let Some(slices) = self.slices[vcpu as usize] {
            self.last_exit.instructions = self.executed();
            slices.end();
        }
    }

    /// Whether the next slice of a vCPU may follow `block` at once: no timer is due soon and no other vCPU has anything
    /// to do. An exit from QEMU's loop would then change nothing, but would cost the time of hundreds of instructions.
    fn next_slice_can_follow(&mut self, vcpu: u32, block: &Block) -> bool {
        let may_stay = self.parameters.guest_clock.is_some()
            && !self.parameters.exits_all
            && self.is_alone(vcpu, block);
        let deadlines = if may_stay { self.deadlines } else { None };
        let Some(deadlines) = deadlines else {
            self.last_exit.due_ns = None;
            return false;
        };
        let next = deadlines.next_timer();
        let shift = self.parameters.shift;
        let executed_ns = self.executed().0.wrapping_sub(self.last_exit.instructions.0) << shift;
        let slice_ns = (self.planned_slice().instructions + BLOCK_MAX) << shift;
        let allowed =
            self.last_exit.allows_slice(next, self.parameters.cpus, executed_ns, slice_ns);
        self.last_exit.due_ns = next.due_ns;
        allowed
    }

    /// Whether all other vCPUs are halted and take interrupts, and `block` can wake them only by a store.
    ///
    /// A vCPU that has not run yet, or is halted and takes no interrupts, waits for its start (INIT). At the start,
    /// QEMU's clock jumps ahead by the unused rest of the running vCPU's plan. So QEMU must make a new plan for each
    /// slice then.
    fn is_alone(&self, vcpu: u32, block: &Block) -> bool {
        if self.parameters.cpus == 1 {
            return true;
        }
        if block.acts_outside {
            return false;
        }
        let Some(idle_vcpus) = self.idle_vcpus else { return false };
        let mut other_vcpus = (0..self.parameters.cpus).filter(|number| *number != vcpu);
        other_vcpus.all(|number| {
            let index = number as usize;
            self.rounds.is_halted(index)
                && self.takes_interrupts[index]
                && self.slices[index].is_some_and(|slices| idle_vcpus.is_idle(slices))
        })
    }

    /// Ends the slice of a vCPU that is about to halt.
    pub(crate) fn halt(&mut self, vcpu: u32) {
        self.halts[vcpu as usize] = Some(self.halt_from_now(vcpu));
        self.note_halted(vcpu);
        self.advance(vcpu);
        self.last_exit.instructions = self.executed();
        if self.slices[vcpu as usize].is_some() {
            self.plan_slice(vcpu);
        }
    }

    /// The halt of a vCPU that starts now.
    fn halt_from_now(&self, vcpu: u32) -> Halt {
        Halt { since_ns: self.now_ns(vcpu), cycles_ns: self.cycles_ns(vcpu) }
    }

    /// Sets whether a vCPU that is about to halt takes interrupts.
    pub(crate) fn set_takes_interrupts(&mut self, vcpu: u32, takes_interrupts: bool) {
        self.takes_interrupts[vcpu as usize] = takes_interrupts;
    }

    /// Tells the rounds and the core that a vCPU is halted.
    fn note_halted(&mut self, vcpu: u32) {
        self.rounds.set_halted(vcpu as usize, true);
        cpu::with_vcpu(vcpu, |cpu| cpu.set_halted(true));
    }

    /// Tells the rounds and the core that a vCPU runs.
    fn note_running(&mut self, vcpu: u32) {
        self.rounds.set_halted(vcpu as usize, false);
        cpu::with_vcpu(vcpu, |cpu| cpu.set_halted(false));
    }

    /// A slice of the planned length.
    fn planned_slice(&self) -> Slice {
        let cycles = self.parameters.vcpu_slice;
        Slice { cycles, instructions: cycles.saturating_mul(WIDTH_MAX).saturating_add(BLOCK_MAX) }
    }

    /// Plans the next slice of a vCPU. If the ended slice was too long, the next slice is shorter by the excess. Where
    /// guest time follows the model, it also ends before the next timer.
    fn plan_slice(&self, vcpu: u32) {
        let planned_ns = self.rounds.next_slice_ns(vcpu as usize);
        let planned = self.planned_slice();
        let slice = if self.parameters.bias.is_some() {
            let cycles = cycles_of(planned_ns, self.parameters.hz);
            let to_timer = self.slice_to_timer(vcpu).unwrap_or(ENDLESS);
            Slice {
                cycles: cycles.min(to_timer.cycles).max(1),
                instructions: planned.instructions.min(to_timer.instructions),
            }
        } else {
            planned
        };
        cpu::with_vcpu(vcpu, |cpu| cpu.set_slice(slice));
    }

    /// The slice before QEMU's clock or the model's time reaches QEMU's next timer, whichever is earlier, but at least
    /// [`TIMER_SLICE`]. `None` if no timer limits the slice.
    ///
    /// QEMU runs a timer when executed instructions have moved its clock to the timer. On a model that executes several
    /// instructions a nanosecond, a timer would run early, by almost a slice. The kernel would find that nothing has expired,
    /// and take a second interrupt. On a slow model a timer would wait for the end of the slice.
    fn slice_to_timer(&self, vcpu: u32) -> Option<Slice> {
        // Where the model does not count, QEMU's clock is not set to the model's time, so no timer limits the slice.
        let model_counts = cpu::with_vcpu(vcpu, |cpu| cpu.model_counts_cycles());
        let deadlines = if model_counts { self.deadlines } else { None };
        let due_ns = deadlines?.next_timer().due_ns?;
        let remaining_ns = due_ns.saturating_sub(self.now_ns(vcpu));
        let ClockParameters { hz, shift, cpus, .. } = self.parameters;
        Some(slice_before_timer(remaining_ns, hz, shift, cpus))
    }

    /// A vCPU takes an interrupt. If the vCPU is halted, this ends the halt, and adds its length to the vCPU's halted time
    /// (unless the plugin does not count the halt). QEMU's clock may have jumped during the halt; [`Clock::now_ns`] needs
    /// the new distance of the clocks, so that is read first.
    pub(crate) fn wake(&mut self, vcpu: u32) {
        let halt = self.halts[vcpu as usize].take();
        if halt.is_none() && !self.rounds.is_halted(vcpu as usize) {
            return;
        }
        self.note_running(vcpu);
        let Some(guest) = self.parameters.guest_clock else { return };
        let shown_ns = self.rounds.qemu_clock_ns(self.instructions());
        self.jumps_ns = guest.get_ns().wrapping_sub(shown_ns);
        if let Some(halt) = halt {
            self.end_halt(vcpu, halt, self.now_ns(vcpu));
        }
        self.publish_time(vcpu);
    }

    /// Whether a vCPU waits for other vCPUs at a `pause`. It does where there are several and guest time follows the
    /// model.
    pub(crate) fn pauses_wait(&self) -> bool {
        self.parameters.cpus > 1 && self.parameters.bias.is_some()
    }

    /// Handles a `pause` of a vCPU where guest time follows the model: see [`Rounds::pause`].
    pub(crate) fn pause(&mut self, vcpu: u32) {
        let (hz, counted_ns) = (self.parameters.hz, &self.counted_ns);
        let lag_ns = self.rounds.pause(vcpu as usize, |cpu| since_ns(hz, counted_ns, cpu as u32));
        let cycles = cycles_of(lag_ns, hz);
        if cycles > 0 {
            cpu::with_vcpu(vcpu, |cpu| cpu.wait(cycles));
            self.publish_time(vcpu);
        }
    }

    /// Adds the halted time of a vCPU up to `now_ns`. Returns the rest of the halt, in case the vCPU stays halted.
    ///
    /// Instructions before the halt may have retired later than was known at its start. The halt then starts later.
    fn end_halt(&self, vcpu: u32, halt: Halt, now_ns: u64) -> Halt {
        let cycles_ns = self.cycles_ns(vcpu);
        let start_ns = halt.since_ns + (cycles_ns - halt.cycles_ns);
        self.add_halted(vcpu, now_ns.saturating_sub(start_ns));
        Halt { since_ns: now_ns.max(start_ns), cycles_ns }
    }

    /// Whether guest time follows a model.
    pub(crate) fn follows_model(&self) -> bool {
        self.parameters.bias.is_some()
    }

    /// Adds the halted time until now to each halted vCPU. `running`: the running vCPU, whose time is the current time.
    pub(crate) fn count_halts(&mut self, running: u32) {
        let now = self.now_ns(running);
        for vcpu in 0..self.parameters.cpus {
            if self.parameters.guest_clock.is_some()
                && let Some(halt) = self.halts[vcpu as usize]
            {
                self.halts[vcpu as usize] = Some(self.end_halt(vcpu, halt, now));
            }
        }
    }

    fn add_halted(&self, vcpu: u32, ns: u64) {
        cpu::with_vcpu(vcpu, |cpu| cpu.add_halted(cycles_of(ns, self.parameters.hz)));
    }

    /// The model's time of an executing vCPU minus the time of QEMU's clock, in ns. QEMU's
    /// clock is set to the model's time only at the end of the slice.
    pub(crate) fn ahead_ns(&self, vcpu: u32) -> i64 {
        let model = self.rounds.now_ns(vcpu as usize, self.since_slice_ns(vcpu));
        model.wrapping_sub(self.rounds.qemu_clock_ns(self.instructions())).cast_signed()
    }

    /// Sets QEMU's clock to the model's time, and ends the slice with the running block. Called when a vCPU is about to
    /// store to its local APIC. If the store sets the APIC's timer, the timer counts from the model's time, and the
    /// next slice ends before the timer is due.
    pub(crate) fn set_before_timer(&mut self, vcpu: u32) {
        if let Some(bias) = self.parameters.bias {
            let ahead_ns = self.ahead_ns(vcpu);
            self.rounds.advance_shown_clock(ahead_ns);
            bias.add(ahead_ns);
            let ended = Slice { cycles: 0, ..self.planned_slice() };
            cpu::with_vcpu(vcpu, |cpu| cpu.set_slice(ended));
        }
    }

    /// The guest time at which a vCPU had these counts, in ns, as its time-stamp counter shows it. It must have had
    /// them after the last slice of any vCPU ended.
    pub(crate) fn tsc_at(&self, vcpu: u32, counts: &Counts) -> u64 {
        let now = if self.parameters.bias.is_some() {
            let since_slice_ns =
                self.ns_of(counts[CYCLES]).wrapping_sub(self.counted_ns[vcpu as usize]);
            self.rounds.now_ns(vcpu as usize, since_slice_ns)
        } else {
            let ahead =
                cpu::with_vcpu(vcpu, |cpu| cpu.instructions()) - Instructions(counts[INSTRUCTIONS]);
            self.rounds.qemu_clock_ns(self.instructions() - ahead)
        };
        now.wrapping_add(self.jumps_ns)
    }

    /// [`Clock::tsc_at`] in cycles. All vCPUs share this clock; their readings differ by at most two time slices, or by
    /// an exit to a hypervisor that is longer.
    pub(crate) fn common_cycles_at(&self, vcpu: u32, counts: &Counts) -> u64 {
        cycles_of(self.tsc_at(vcpu, counts), self.parameters.hz)
    }

    /// Guest time as the vCPU sees it, in ns.
    pub(crate) fn now_ns(&self, vcpu: u32) -> u64 {
        let now = if self.parameters.bias.is_some() {
            self.rounds.now_ns(vcpu as usize, self.since_slice_ns(vcpu))
        } else {
            self.rounds.qemu_clock_ns(self.instructions())
        };
        now.wrapping_add(self.jumps_ns)
    }

    /// Sets QEMU's clock to the model's time, where guest time follows a model and the model counts now.
    fn advance(&mut self, vcpu: u32) {
        let model_counts = cpu::with_vcpu(vcpu, |cpu| cpu.model_counts_cycles());
        if !model_counts {
            return;
        }
        let Some(bias) = self.parameters.bias else { return };
        let since_slice_ns = self.since_slice_ns(vcpu);
        self.counted_ns[vcpu as usize] += since_slice_ns;
        let instructions = self.instructions();
        let hz = self.parameters.hz;
        let counted = &self.counted_ns;
        let others_since_slice_ns = |cpu: usize| since_ns(hz, counted, cpu as u32);
        bias.add(self.rounds.end_slice(
            vcpu as usize,
            since_slice_ns,
            others_since_slice_ns,
            instructions,
        ));
        self.publish_time(vcpu);
    }

    /// If several vCPUs share a model's time, passes their common time to the memory model of this vCPU.
    fn publish_time(&self, vcpu: u32) {
        if self.parameters.cpus > 1 && self.parameters.bias.is_some() {
            let now = cycles_of(self.now_ns(vcpu), self.parameters.hz);
            cpu::with_vcpu(vcpu, |cpu| cpu.set_time(now));
        }
    }

    /// The time of all executed cycles of a vCPU, in ns.
    fn cycles_ns(&self, vcpu: u32) -> u64 {
        self.ns_of(cpu::with_vcpu(vcpu, |cpu| cpu.cycles()))
    }

    /// The time of a vCPU since its last slice ended, in ns.
    fn since_slice_ns(&self, vcpu: u32) -> u64 {
        since_ns(self.parameters.hz, &self.counted_ns, vcpu)
    }

    /// Cycles of a vCPU per second of guest time.
    pub(crate) fn hz(&self) -> u64 {
        self.parameters.hz
    }

    /// The guest time of some cycles, in ns.
    pub(crate) fn ns_of(&self, cycles: u64) -> u64 {
        ns_of(cycles, self.parameters.hz)
    }

    /// The cycles of some guest time, rounded down.
    pub(crate) fn cycles_of(&self, ns: u64) -> u64 {
        cycles_of(ns, self.parameters.hz)
    }

    /// The executed instructions of all vCPUs, as the current level counts them. QEMU has not counted more since the
    /// level changed.
    fn executed(&self) -> Instructions {
        (0..self.parameters.cpus).map(|vcpu| cpu::with_vcpu(vcpu, |cpu| cpu.executed())).sum()
    }

    /// The instructions of all vCPUs that QEMU's clock has counted or will count.
    fn instructions(&self) -> Instructions {
        let instructions_of = |vcpu| cpu::with_vcpu(vcpu, |cpu| cpu.instructions());
        (0..self.parameters.cpus).map(instructions_of).sum::<Instructions>() - self.unclocked
    }
}

fn cycles_of(ns: u64, hz: u64) -> u64 {
    u64::try_from(u128::from(ns) * u128::from(hz) / NS_PER_S).unwrap_or(u64::MAX)
}

pub(crate) fn ns_of(cycles: u64, hz: u64) -> u64 {
    (u128::from(cycles) * NS_PER_S / u128::from(hz)) as u64
}

/// The slice before the model's time or QEMU's clock has advanced by `remaining_ns`, whichever is earlier, but at least
/// [`TIMER_SLICE`]. The instructions of all `cpus` vCPUs move QEMU's clock, by `2^shift` ns each.
fn slice_before_timer(remaining_ns: u64, hz: u64, shift: u32, cpus: u32) -> Slice {
    Slice {
        cycles: cycles_of(remaining_ns, hz).max(TIMER_SLICE.cycles),
        instructions: ((remaining_ns >> shift) / u64::from(cpus)).max(TIMER_SLICE.instructions),
    }
}

/// The time of a vCPU since its last slice ended, in ns. `counted_ns`: the time of each vCPU's cycles at that end.
fn since_ns(hz: u64, counted_ns: &[u64], vcpu: u32) -> u64 {
    ns_of(cpu::with_vcpu(vcpu, |cpu| cpu.cycles()), hz) - counted_ns[vcpu as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXIT: LoopExit = LoopExit { instructions: Instructions(0), due_ns: Some(1_000_000) };

    fn next(counted_ns: u64) -> NextTimer {
        NextTimer { counted_ns, due_ns: EXIT.due_ns }
    }

    #[test]
    fn slices_follow_until_a_timer_is_near() {
        assert!(EXIT.allows_slice(next(0), 1, 1_000, 16_000));
        assert!(EXIT.allows_slice(next(980_000), 1, 1_000, 16_000));
        assert!(!EXIT.allows_slice(next(982_000), 1, 1_000, 16_000));
        assert!(!EXIT.allows_slice(next(1_000_000), 1, 0, 0));
    }

    #[test]
    fn the_plan_of_the_last_exit_is_not_exceeded() {
        // QEMU planned a million ns, and two thirds of the plan remain.
        assert!(EXIT.allows_slice(next(0), 1, 327_000, 16_000));
        assert!(!EXIT.allows_slice(next(0), 1, 328_000, 16_000));
        let never = LoopExit { due_ns: None, ..EXIT };
        let no_timer = NextTimer { counted_ns: 0, due_ns: None };
        assert!(never.allows_slice(no_timer, 1, PLANNED_NS_MAX / 4, 16_000));
        assert!(!never.allows_slice(no_timer, 1, PLANNED_NS_MAX / 2, 16_000));
    }

    #[test]
    fn with_several_vcpus_each_has_a_part_of_the_plan() {
        assert!(EXIT.allows_slice(next(0), 8, 41_000, 16_000));
        assert!(!EXIT.allows_slice(next(0), 8, 55_000, 16_000));
        assert!(EXIT.allows_slice(next(860_000), 8, 0, 16_000));
        assert!(!EXIT.allows_slice(next(880_000), 8, 0, 16_000));
    }

    #[test]
    fn a_slice_ends_before_the_timer() {
        // At 4.5 GHz, QEMU's clock is faster than the model's; at 50 MHz a cycle takes 20 ns.
        let slice = |cycles, instructions| Slice { cycles, instructions };
        assert_eq!(slice_before_timer(8_000, 4_500_000_000, 0, 1), slice(36_000, 8_000));
        assert_eq!(slice_before_timer(8_000, 4_500_000_000, 0, 4), slice(36_000, 2_000));
        assert_eq!(slice_before_timer(8_000, 50_000_000, 3, 1), slice(400, 1_000));
        assert_eq!(slice_before_timer(5, 50_000_000, 0, 1), TIMER_SLICE);
    }

    #[test]
    fn another_timer_than_before_needs_an_exit() {
        let earlier = NextTimer { due_ns: Some(900_000), ..next(0) };
        let none = NextTimer { due_ns: None, ..next(0) };
        assert!(![earlier, none].into_iter().any(|next| EXIT.allows_slice(next, 1, 0, 16_000)));
    }
}
