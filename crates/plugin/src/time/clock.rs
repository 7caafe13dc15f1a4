//! The clock of a machine: plans the time slices of vCPUs, sets QEMU's clock to the model's time, and adds up how long
//! vCPUs were halted.

use machine::Instructions;

use crate::cpu::{self, Cpu};
use crate::qemu::block::Block;
use crate::qemu::qemu_internals::deadline::{Deadlines, NextTimer};
use crate::qemu::qemu_internals::idle::IdleVcpus;
use crate::qemu::qemu_internals::{Bias, GuestClock, Slices};
use crate::time::rounds::Rounds;
use simrecord::counters::{CYCLES, Counts, INSTRUCTIONS};

const NS_PER_S: u128 = 1_000_000_000;

/// The parameters of a clock.
pub(crate) struct Parts {
    pub(crate) cpus: u32,
    /// An instruction takes `2^shift` ns of QEMU's clock.
    pub(crate) shift: u32,
    /// Cycles of a vCPU per second.
    pub(crate) hz: u64,
    /// Cycles of a slice.
    pub(crate) vcpu_slice: u64,
    /// Whether QEMU leaves its loop at the end of each slice.
    pub(crate) exits_all: bool,
    /// QEMU's offset from instructions to its clock. `None`: guest time does not follow the model.
    pub(crate) bias: Option<Bias>,
    /// QEMU's clock. `None`: it cannot be read.
    pub(crate) guest: Option<GuestClock>,
}

/// When a vCPU was halted, and its cycles at that time, in ns.
#[derive(Clone, Copy)]
struct Halt {
    since_ns: u64,
    counted_ns: u64,
}

/// QEMU's last exit from its loop of translated blocks. Outside of the loop it runs timers,
/// and plans how many instructions it executes before the next exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LoopExit {
    /// Instructions at that time, or earlier.
    instructions: Instructions,
    /// When the next timer was due, as known at the end of the last slice.
    due_ns: Option<u64>,
}

impl LoopExit {
    /// Whether the next slice may follow without another exit. QEMU's clock has advanced by `executed_ns` since
    /// the exit, and advances by at most `slice_ns` in a slice, both by instructions.
    ///
    /// QEMU counts instructions at each exit at least. So its clock shows at most `executed_ns` more than it has
    /// counted. At the exit, QEMU planned the time to the next timer, in equal parts for `cpus` vCPUs. It has
    /// executed at most `executed_ns` of the plan. The rest of the plan must suffice for a slice, because QEMU
    /// divides the block in which the plan ends. The factor of two covers instructions that QEMU and the plugin count
    /// differently.
    fn allows(&self, next: NextTimer, cpus: u32, executed_ns: u64, slice_ns: u64) -> bool {
        let now_ns = next.counted_ns.saturating_add(executed_ns);
        let remaining_ns = next.due_ns.map_or(u64::MAX, |due| due.saturating_sub(now_ns));
        let planned_ns = remaining_ns.min(PLANNED_NS_MAX) / u64::from(cpus);
        let needed_ns = executed_ns.saturating_mul(2).saturating_add(slice_ns);
        self.due_ns == next.due_ns && planned_ns > needed_ns
    }
}

/// QEMU plans no more instructions at once.
const PLANNED_NS_MAX: u64 = i32::MAX as u64;
/// No model executes more instructions a cycle.
const WIDTH_MAX: u64 = 16;
/// No model executes more instructions a cycle for a whole slice.
const INSTRUCTIONS_PER_CYCLE: u64 = 8;
/// The shortest slice before a timer, cycles. So a timer is at most this early or late, or the instructions that are
/// executed in that time.
const TIMER_SLICE_CYCLES: u64 = 16;
/// No translated block has more instructions (QEMU's `TCG_MAX_INSNS`).
const BLOCK_MAX: u64 = 512;

/// The clock of a machine.
pub(crate) struct Clock {
    parts: Parts,
    rounds: Rounds,
    slices: Vec<Option<Slices>>,
    /// Each vCPU's time at the end of its last slice, by its cycles.
    counted_ns: Vec<u64>,
    /// Whether each vCPU took interrupts when it halted last: see [`Clock::is_alone`].
    takes_interrupts: Vec<bool>,
    /// Since when each vCPU is halted.
    halts: Vec<Option<Halt>>,
    /// The part of QEMU's clock that instructions do not explain: its start value, and its jumps
    /// while all vCPUs were halted.
    jumps_ns: u64,
    /// Finds QEMU's next timer. `None`: this QEMU does not show it.
    deadlines: Option<Deadlines>,
    /// Finds out which vCPUs have nothing to do. `None`: this QEMU does not show it.
    idle: Option<IdleVcpus>,
    last_exit: LoopExit,
    /// Instructions that the plugin executed in QEMU's place, and that QEMU's clock has not
    /// counted.
    pub(crate) unclocked: Instructions,
}

impl Clock {
    pub(crate) fn new(parts: Parts) -> Clock {
        let cpus = parts.cpus as usize;
        Clock {
            rounds: Rounds::new(cpus, parts.shift, ns_of(parts.vcpu_slice, parts.hz)),
            slices: vec![None; cpus],
            counted_ns: vec![0; cpus],
            takes_interrupts: vec![false; cpus],
            halts: vec![None; cpus],
            jumps_ns: 0,
            deadlines: None,
            idle: None,
            last_exit: LoopExit::default(),
            unclocked: Instructions::default(),
            parts,
        }
    }

    /// The guest's clock jumps ahead, where it follows a model. [`Clock::restart`] must follow.
    pub(crate) fn skip(&self, ns: u64) {
        if let Some(bias) = self.parts.bias {
            bias.add(i64::try_from(ns).unwrap_or(i64::MAX));
        }
    }

    /// Restarts the clock when the level of detail changes. `counts`: whether vCPUs count instructions from here on.
    /// Called between blocks.
    pub(crate) fn restart(&mut self, counts: bool) {
        (0..self.parts.cpus).for_each(|vcpu| cpu::with(vcpu, Cpu::issue_all_threads));
        self.rounds.restart(self.instructions());
        self.last_exit = LoopExit { instructions: self.executed(), due_ns: None };
        if let Some(guest) = self.parts.guest {
            // QEMU's clock advanced while instructions were not counted. Without this, the first halt would seem to
            // have lasted for all that time.
            let shows = self.rounds.shows_ns(self.instructions());
            self.jumps_ns = guest.get_ns().wrapping_sub(shows);
        }
        for vcpu in 0..self.parts.cpus {
            cpu::with(vcpu, |cpu| cpu.set_slice(self.parts.vcpu_slice));
            let cycles = cpu::with(vcpu, |cpu| cpu.counts()[CYCLES]);
            self.counted_ns[vcpu as usize] = self.ns_of(cycles);
            self.halts[vcpu as usize] = None;
            // After a checkpoint, vCPUs may be halted although no halt was seen.
            if let Some(halted) = self.slices[vcpu as usize].and_then(Slices::is_halted) {
                self.set_halted(vcpu, halted);
            }
            let takes_interrupts = self.slices[vcpu as usize].and_then(Slices::takes_interrupts);
            self.set_takes_interrupts(vcpu, takes_interrupts == Some(true));
            if counts && self.rounds.is_halted(vcpu as usize) {
                let (since_ns, counted_ns) = (self.now_ns(vcpu), self.cycles_ns(vcpu));
                self.halts[vcpu as usize] = Some(Halt { since_ns, counted_ns });
            }
            // vCPUs share a memory, and the memory has one time. Without this, a vCPU that executes for the first time
            // would wait for all earlier guest time, at the first line that another vCPU has just used.
            self.publish_time(vcpu);
        }
    }

    /// A vCPU is about to halt while nothing is counted.
    pub(crate) fn halt_uncounted(&mut self, vcpu: u32) {
        self.set_halted(vcpu, true);
    }

    /// Whether vCPUs run in slices.
    pub(crate) fn has_slices(&self) -> bool {
        self.parts.cpus > 1 || self.parts.bias.is_some()
    }

    /// Sets up the slices of a vCPU.
    pub(crate) fn begin_slices(&mut self, vcpu: u32, slices: Slices) {
        self.slices[vcpu as usize] = Some(slices);
        self.deadlines = Deadlines::of_this_thread();
        self.idle = IdleVcpus::find();
        cpu::with(vcpu, |cpu| {
            cpu.set_handle(slices.handle());
            cpu.set_slice(self.parts.vcpu_slice);
        });
    }

    /// The slice of a vCPU is over, whose last block is `block`.
    pub(crate) fn end_slice(&mut self, vcpu: u32, block: &Block) {
        cpu::with(vcpu, |cpu| cpu.retire_pending(0));
        // A vCPU that was started runs without having taken an interrupt.
        self.set_halted(vcpu, false);
        self.advance(vcpu);
        self.plan_slice(vcpu);
        if !self.continues(vcpu, block) {
            self.leave_loop(vcpu);
        } else if self.parts.cpus > 1 {
            cpu::with(vcpu, |cpu| cpu.set_in_last_block(true));
        }
    }

    /// Makes QEMU leave its loop after the running block, the last of a slice, although it was to stay.
    pub(crate) fn leave_after_slice(&mut self, vcpu: u32) {
        cpu::with(vcpu, |cpu| cpu.set_in_last_block(false));
        self.leave_loop(vcpu);
    }

    /// Makes QEMU leave its loop when the running block has ended.
    fn leave_loop(&mut self, vcpu: u32) {
        if let Some(slices) = self.slices[vcpu as usize] {
            self.last_exit.instructions = self.executed();
            slices.end();
        }
    }

    /// Whether the next slice of a vCPU may follow at once after `block`: no timer is due soon, and no other vCPU has
    /// anything to do. An exit from QEMU's loop would then change nothing, and costs the time of hundreds of
    /// instructions.
    fn continues(&mut self, vcpu: u32, block: &Block) -> bool {
        let may_stay =
            self.parts.guest.is_some() && !self.parts.exits_all && self.is_alone(vcpu, block);
        let deadlines = if may_stay { self.deadlines } else { None };
        let Some(deadlines) = deadlines else {
            self.last_exit.due_ns = None;
            return false;
        };
        let next = deadlines.next_timer();
        let shift = self.parts.shift;
        let executed_ns = self.executed().0.wrapping_sub(self.last_exit.instructions.0) << shift;
        let slice = self.parts.vcpu_slice.saturating_mul(WIDTH_MAX).saturating_add(BLOCK_MAX);
        let allowed = self.last_exit.allows(next, self.parts.cpus, executed_ns, slice << shift);
        self.last_exit.due_ns = next.due_ns;
        allowed
    }

    /// Whether all other vCPUs wait for interrupts, and `block` can wake them only by a store.
    ///
    /// A vCPU that has not run yet, or halts without taking interrupts, waits to be started. When it is started (INIT),
    /// QEMU's clock jumps ahead by the unused rest of the running vCPU's plan. So the plan must be the plan of the last
    /// slice.
    fn is_alone(&self, vcpu: u32, block: &Block) -> bool {
        if self.parts.cpus == 1 {
            return true;
        }
        if block.acts_outside {
            return false;
        }
        let Some(idle) = self.idle else { return false };
        let mut other_vcpus = (0..self.parts.cpus).filter(|number| *number != vcpu);
        other_vcpus.all(|number| {
            let index = number as usize;
            self.rounds.is_halted(index)
                && self.takes_interrupts[index]
                && self.slices[index].is_some_and(|slices| idle.is_idle(slices))
        })
    }

    /// A vCPU is about to halt.
    pub(crate) fn halt(&mut self, vcpu: u32) {
        let (since_ns, counted_ns) = (self.now_ns(vcpu), self.cycles_ns(vcpu));
        self.halts[vcpu as usize] = Some(Halt { since_ns, counted_ns });
        self.set_halted(vcpu, true);
        self.advance(vcpu);
        self.last_exit.instructions = self.executed();
        if self.slices[vcpu as usize].is_some() {
            self.plan_slice(vcpu);
        }
    }

    /// Sets whether a vCPU that is about to halt takes interrupts.
    pub(crate) fn set_takes_interrupts(&mut self, vcpu: u32, takes_interrupts: bool) {
        self.takes_interrupts[vcpu as usize] = takes_interrupts;
    }

    fn set_halted(&mut self, vcpu: u32, halted: bool) {
        self.rounds.set_halted(vcpu as usize, halted);
        cpu::with(vcpu, |cpu| cpu.set_halted(halted));
    }

    /// Sets the next slice of a vCPU. If the ended slice was too long, the next one is shorter by the excess. It ends
    /// before QEMU's clock reaches the next timer.
    fn plan_slice(&self, vcpu: u32) {
        let planned = self.rounds.next_slice_ns(vcpu as usize);
        let cycles = match self.parts.bias {
            Some(_) => cycles_of(planned, self.parts.hz).min(self.cycles_to_timer(vcpu)).max(1),
            None => self.parts.vcpu_slice,
        };
        cpu::with(vcpu, |cpu| cpu.set_slice(cycles));
    }

    /// The longest slice that ends before both QEMU's clock and the model's time have reached QEMU's next timer; at
    /// least [`TIMER_SLICE_CYCLES`].
    ///
    /// QEMU executes a timer when its clock has reached it by instructions. On a model that executes several of them a
    /// nanosecond, that is up to most of a slice too early: the kernel finds that nothing has expired, and takes a
    /// second interrupt. On a slow model a timer would wait for the end of the slice.
    fn cycles_to_timer(&self, vcpu: u32) -> u64 {
        // Where the model does not count, QEMU's clock is not set to its time.
        let counts = cpu::with(vcpu, |cpu| cpu.counts_with_model());
        let deadlines = if counts { self.deadlines } else { None };
        let due_ns = deadlines.and_then(|deadlines| deadlines.next_timer().due_ns);
        let Some(due_ns) = due_ns else { return u64::MAX };
        let left_ns = due_ns.saturating_sub(self.now_ns(vcpu));
        let instructions_ns =
            (INSTRUCTIONS_PER_CYCLE << self.parts.shift) * u64::from(self.parts.cpus);
        slice_before_timer(left_ns, self.parts.hz, instructions_ns)
    }

    /// A vCPU takes an interrupt, which ends a halt.
    pub(crate) fn wake(&mut self, vcpu: u32) {
        let halt = self.halts[vcpu as usize].take();
        if halt.is_none() && !self.rounds.is_halted(vcpu as usize) {
            return;
        }
        self.set_halted(vcpu, false);
        let Some(guest) = self.parts.guest else { return };
        let shows = self.rounds.shows_ns(self.instructions());
        self.jumps_ns = guest.get_ns().wrapping_sub(shows);
        if let Some(halt) = halt {
            self.end_halt(vcpu, halt, self.now_ns(vcpu));
        }
        self.publish_time(vcpu);
    }

    /// Whether a vCPU waits at a `pause`: with others, and where guest time follows the model.
    pub(crate) fn pauses_wait(&self) -> bool {
        self.parts.cpus > 1 && self.parts.bias.is_some()
    }

    /// A vCPU executes `pause` where guest time follows the model: see [`Rounds::pause`].
    pub(crate) fn pause(&mut self, vcpu: u32) {
        let (hz, counted_ns) = (self.parts.hz, &self.counted_ns);
        let lag_ns = self.rounds.pause(vcpu as usize, |cpu| since_ns(hz, counted_ns, cpu as u32));
        let cycles = cycles_of(lag_ns, hz);
        if cycles > 0 {
            cpu::with(vcpu, |cpu| cpu.wait(cycles));
            self.publish_time(vcpu);
        }
    }

    /// Adds the halted time of a vCPU up to `now_ns`. Returns the halt from `now_ns` on, in case it lasts longer. The
    /// instructions before the halt may have retired later than was known at the halt.
    fn end_halt(&self, vcpu: u32, halt: Halt, now_ns: u64) -> Halt {
        let counted_ns = self.cycles_ns(vcpu);
        let start_ns = halt.since_ns + (counted_ns - halt.counted_ns);
        self.add_halted(vcpu, now_ns.saturating_sub(start_ns));
        Halt { since_ns: now_ns.max(start_ns), counted_ns }
    }

    /// Whether guest time follows a model.
    pub(crate) fn follows_model(&self) -> bool {
        self.parts.bias.is_some()
    }

    /// Adds the halted time so far to each halted vCPU. `running` is the running vCPU.
    pub(crate) fn count_halts(&mut self, running: u32) {
        let now = self.now_ns(running);
        for vcpu in 0..self.parts.cpus {
            if self.parts.guest.is_some()
                && let Some(halt) = self.halts[vcpu as usize]
            {
                self.halts[vcpu as usize] = Some(self.end_halt(vcpu, halt, now));
            }
        }
    }

    fn add_halted(&self, vcpu: u32, ns: u64) {
        cpu::with(vcpu, |cpu| cpu.add_halted(cycles_of(ns, self.parts.hz)));
    }

    /// The lead of the model's time of an executing vCPU over QEMU's clock, in ns. QEMU's clock is set to the
    /// model's time at the end of the slice.
    pub(crate) fn ahead_ns(&self, vcpu: u32) -> i64 {
        let model = self.rounds.now_ns(vcpu as usize, self.since_slice_ns(vcpu));
        model.wrapping_sub(self.rounds.shows_ns(self.instructions())).cast_signed()
    }

    /// Sets QEMU's clock to the model's time, and ends the slice with the running block: a vCPU is about to store to its
    /// local APIC. If it sets the APIC's timer, the timer counts from now on, and the next slice ends before it is due.
    pub(crate) fn set_before_timer(&mut self, vcpu: u32) {
        if let Some(bias) = self.parts.bias {
            let ahead_ns = self.ahead_ns(vcpu);
            self.rounds.set_ahead(ahead_ns);
            bias.add(ahead_ns);
            cpu::with(vcpu, |cpu| cpu.set_slice(0));
        }
    }

    /// The value of the time-stamp counter that a vCPU would have read at the counts `at`, which it
    /// had after the last slice of any vCPU ended.
    pub(crate) fn tsc_at(&self, vcpu: u32, at: &Counts) -> u64 {
        let now = if self.parts.bias.is_some() {
            let since = self.ns_of(at[CYCLES]).wrapping_sub(self.counted_ns[vcpu as usize]);
            self.rounds.now_ns(vcpu as usize, since)
        } else {
            let ahead = cpu::with(vcpu, |cpu| cpu.instructions()) - Instructions(at[INSTRUCTIONS]);
            self.rounds.shows_ns(self.instructions() - ahead)
        };
        now.wrapping_add(self.jumps_ns)
    }

    /// [`Clock::tsc_at`] in cycles: a clock that all vCPUs share, with a difference of at most two time slices.
    pub(crate) fn common_cycles_at(&self, vcpu: u32, at: &Counts) -> u64 {
        cycles_of(self.tsc_at(vcpu, at), self.parts.hz)
    }

    /// Guest time as the vCPU sees it.
    fn now_ns(&self, vcpu: u32) -> u64 {
        let now = if self.parts.bias.is_some() {
            self.rounds.now_ns(vcpu as usize, self.since_slice_ns(vcpu))
        } else {
            self.rounds.shows_ns(self.instructions())
        };
        now.wrapping_add(self.jumps_ns)
    }

    /// Sets QEMU's clock to the model's time, where guest time follows a model and the model counts now.
    fn advance(&mut self, vcpu: u32) {
        let counts = cpu::with(vcpu, |cpu| cpu.counts_with_model());
        if !counts {
            return;
        }
        let Some(bias) = self.parts.bias else { return };
        let since = self.since_slice_ns(vcpu);
        self.counted_ns[vcpu as usize] += since;
        let instructions = self.instructions();
        let hz = self.parts.hz;
        let counted = &self.counted_ns;
        let since_slice = |cpu: usize| since_ns(hz, counted, cpu as u32);
        bias.add(self.rounds.end_slice(vcpu as usize, since, since_slice, instructions));
        self.publish_time(vcpu);
    }

    /// Passes the common time to the memory side of a vCPU, where time follows a model.
    fn publish_time(&self, vcpu: u32) {
        if self.parts.cpus > 1 && self.parts.bias.is_some() {
            let now = cycles_of(self.now_ns(vcpu), self.parts.hz);
            cpu::with(vcpu, |cpu| cpu.set_time(now));
        }
    }

    /// The time of all cycles of a vCPU, ns.
    fn cycles_ns(&self, vcpu: u32) -> u64 {
        self.ns_of(cpu::with(vcpu, |cpu| cpu.cycles()))
    }

    /// The time of a vCPU since its last slice ended, ns.
    fn since_slice_ns(&self, vcpu: u32) -> u64 {
        since_ns(self.parts.hz, &self.counted_ns, vcpu)
    }

    /// The time of this many cycles, ns.
    pub(crate) fn ns_of(&self, cycles: u64) -> u64 {
        ns_of(cycles, self.parts.hz)
    }

    pub(crate) fn cycles_of(&self, ns: u64) -> u64 {
        cycles_of(ns, self.parts.hz)
    }

    /// Instructions that QEMU may have counted since the level changed, or more.
    fn executed(&self) -> Instructions {
        (0..self.parts.cpus).map(|vcpu| cpu::with(vcpu, |cpu| cpu.executed())).sum()
    }

    fn instructions(&self) -> Instructions {
        let instructions_of = |vcpu| cpu::with(vcpu, |cpu| cpu.instructions());
        (0..self.parts.cpus).map(instructions_of).sum::<Instructions>() - self.unclocked
    }
}

fn cycles_of(ns: u64, hz: u64) -> u64 {
    u64::try_from(u128::from(ns) * u128::from(hz) / NS_PER_S).unwrap_or(u64::MAX)
}

fn ns_of(cycles: u64, hz: u64) -> u64 {
    (u128::from(cycles) * NS_PER_S / u128::from(hz)) as u64
}

/// The cycles in which neither the model nor QEMU comes further than `left_ns`: QEMU's clock advances by at most
/// `instructions_ns` a cycle. At least [`TIMER_SLICE_CYCLES`].
fn slice_before_timer(left_ns: u64, hz: u64, instructions_ns: u64) -> u64 {
    let cycle_ns = (NS_PER_S as u64).div_ceil(hz).max(instructions_ns);
    (left_ns / cycle_ns).max(TIMER_SLICE_CYCLES)
}

/// The time of a vCPU since its last slice ended, ns. `counted_ns`: the time of its cycles at that end.
fn since_ns(hz: u64, counted_ns: &[u64], vcpu: u32) -> u64 {
    ns_of(cpu::with(vcpu, |cpu| cpu.cycles()), hz) - counted_ns[vcpu as usize]
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
        assert!(EXIT.allows(next(0), 1, 1_000, 16_000));
        assert!(EXIT.allows(next(980_000), 1, 1_000, 16_000));
        assert!(!EXIT.allows(next(982_000), 1, 1_000, 16_000));
        assert!(!EXIT.allows(next(1_000_000), 1, 0, 0));
    }

    #[test]
    fn the_plan_of_the_last_exit_is_not_exceeded() {
        // QEMU planned a million ns, and two thirds of the plan remain.
        assert!(EXIT.allows(next(0), 1, 327_000, 16_000));
        assert!(!EXIT.allows(next(0), 1, 328_000, 16_000));
        let never = LoopExit { due_ns: None, ..EXIT };
        let no_timer = NextTimer { counted_ns: 0, due_ns: None };
        assert!(never.allows(no_timer, 1, PLANNED_NS_MAX / 4, 16_000));
        assert!(!never.allows(no_timer, 1, PLANNED_NS_MAX / 2, 16_000));
    }

    #[test]
    fn with_several_vcpus_each_has_a_part_of_the_plan() {
        assert!(EXIT.allows(next(0), 8, 41_000, 16_000));
        assert!(!EXIT.allows(next(0), 8, 55_000, 16_000));
        assert!(EXIT.allows(next(860_000), 8, 0, 16_000));
        assert!(!EXIT.allows(next(880_000), 8, 0, 16_000));
    }

    #[test]
    fn a_slice_ends_before_the_timer() {
        // At 4.7 GHz, QEMU's clock is faster than the model's; at 50 MHz a cycle takes 20 ns.
        assert_eq!(slice_before_timer(8_000, 4_700_000_000, 8), 1_000);
        assert_eq!(slice_before_timer(8_000, 4_700_000_000, 8 * 4), 250);
        assert_eq!(slice_before_timer(8_000, 50_000_000, 8), 400);
        assert_eq!(slice_before_timer(5, 50_000_000, 8), TIMER_SLICE_CYCLES);
    }

    #[test]
    fn another_timer_than_before_needs_an_exit() {
        let earlier = NextTimer { due_ns: Some(900_000), ..next(0) };
        let none = NextTimer { due_ns: None, ..next(0) };
        assert!(![earlier, none].into_iter().any(|next| EXIT.allows(next, 1, 0, 16_000)));
    }
}
