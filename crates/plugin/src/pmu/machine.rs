//! The PMUs of all vCPUs, and the counts that their counters show. The session has one [`Pmus`] if the options ask for
//! a PMU. `msr.rs` reads and writes registers, and `qemu/before_block.rs` checks for overflows.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use machine::VirtualAddress;

use super::core::{EventCounts, Pmu, PrivilegeRings};
use super::events::Event;
use super::layout::{PmuRegister, RegisterLayout};
use super::state;
use crate::cpu::level::Level;
use crate::cpu::{self, BlockPosition};
use crate::guest::tracker::TrackedCpu;
use crate::models::counters;
use crate::qemu::qemu_internals::{MiddleOfBlock, NonMaskable};
use crate::time::clock::{Clock, ns_of};
use crate::writer::Writer;
use plugin_interface::options::Options;
use simrecord::counters::{BRANCH_MISSES, BRANCHES, CYCLES, Counts, INSTRUCTIONS, L3_MISSES};
use simrecord::record::{Detail, Notice, Record};

/// The most events that are reported as not counted.
const REPORTED_MAX: usize = 64;
/// The most instructions that a core of the level `ooo` executes in a cycle: repetitions of a repeated string
/// instruction. QEMU counts each repetition. Other code has at most 15 issue slots and fused pairs, and between sampled
/// units at most 16 estimated slots.
const CORE_INSTRUCTIONS_PER_CYCLE_MAX: u64 = 64;
/// The most bytes that are read of a file of the PMUs' state. A line for each counter of 16 vCPUs needs far less.
const STATE_BYTES_MAX: u64 = 1 << 16;

/// The result of `rdmsr` or `cpuid` that the plugin puts into registers before the next instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The value that `rdmsr` reads.
    Register(u64),
    /// `cpuid` must report that there are six counters.
    SixCounters,
}

/// The PMU of one vCPU, and the instruction that it has not answered yet.
pub(crate) struct VcpuPmu {
    pmu: Pmu,
    /// The result that the next instruction must see.
    pub(crate) answer: Option<Answer>,
    /// The address of a `cpuid` that was at the end of its block and is executed again.
    pub(crate) retried_at: Option<VirtualAddress>,
}

/// The PMUs of a machine.
pub(crate) struct Pmus {
    layout: RegisterLayout,
    vcpus: Vec<VcpuPmu>,
    /// The events that were reported as not counted.
    reported: Vec<u64>,
    /// The file for the state of the PMUs when QEMU ends.
    save_to: Option<PathBuf>,
}

/// The counts of a vCPU at one moment.
#[derive(Default)]
pub(crate) struct VcpuCounts {
    /// `None` in a value without counts.
    level: Option<Detail>,
    /// See [`EventCounts::is_paused`].
    is_paused: bool,
    /// The counts of both modes.
    all: Counts,
    /// The counts of user mode.
    user: Counts,
    interrupts: u64,
    exceptions: u64,
    /// Whether the model has a second level of TLBs. Its hits are counted for instructions and data together.
    has_second_tlb: bool,
    /// How many levels of caches the model has below L1.
    outer_caches: usize,
    /// Cycles of the vCPU per second of guest time.
    hz: u64,
}

impl VcpuCounts {
    /// The counts at an instruction of a vCPU. `remaining`: how many instructions of its block are still to
    /// execute, this one included.
    pub(crate) fn of_vcpu(
        vcpu: u32,
        remaining: u32,
        level: &Level,
        clock: &Clock,
        tracked: &TrackedCpu,
    ) -> VcpuCounts {
        cpu::with_vcpu(vcpu, |cpu| {
            let all = cpu.counts_before(level.counted_part_of(remaining));
            let user = cpu.user_counts(&all);
            VcpuCounts {
                level: Some(level.current()),
                is_paused: level.can_count() && !level.is_counting(),
                all,
                user,
                interrupts: tracked.interrupts,
                exceptions: tracked.exceptions,
                has_second_tlb: cpu.has_second_tlb(),
                outer_caches: cpu.outer_caches(),
                hz: clock.hz(),
            }
        })
    }

    /// The counts of all vCPUs when one of them is at an instruction of its block.
    pub(crate) fn of_all(
        position: BlockPosition,
        level: &Level,
        clock: &Clock,
        tracked: &[TrackedCpu],
    ) -> Vec<VcpuCounts> {
        let now = |(number, tracked): (u32, _)| {
            let remaining = if number == position.vcpu { position.remaining } else { 0 };
            VcpuCounts::of_vcpu(number, remaining, level, clock, tracked)
        };
        (0..).zip(tracked).map(now).collect()
    }

    /// The counts of the given rings.
    fn in_rings(&self, rings: PrivilegeRings) -> Counts {
        std::array::from_fn(|position| match (rings.user, rings.kernel) {
            (true, true) => self.all[position],
            (true, false) => self.user[position],
            (false, true) => self.all[position] - self.user[position],
            (false, false) => 0,
        })
    }

    /// How many levels of caches below L1 are counted. At other levels of detail than `ooo`, a model has an L2 and no L3.
    fn outer_caches_at(&self, level: Detail) -> usize {
        if level == Detail::Ooo { self.outer_caches } else { 1 }
    }

    /// Accesses and misses of the last level of caches.
    fn last_level(&self, counts: &Counts, level: Detail) -> (u64, u64) {
        let model = counters::model_counts(counts);
        let l1_misses = model.l1d_load_misses + model.l1d_store_misses + model.l1i_misses;
        let l2_misses = model.l2_fetch_misses + model.l2_data_misses;
        match self.outer_caches_at(level) {
            0 => (l1_misses, l1_misses),
            1 => (l1_misses, l2_misses),
            _ => (l2_misses, counts[L3_MISSES]),
        }
    }
}

impl EventCounts for VcpuCounts {
    fn count(&self, event: Event, rings: PrivilegeRings) -> Option<u64> {
        let level = self.level.filter(|level| *level != Detail::Fast)?;
        let counts = self.in_rings(rings);
        match event {
            // Without a model, an instruction takes a cycle.
            Event::Instructions => Some(counts[INSTRUCTIONS]),
            Event::Cycles => Some(counts[CYCLES]),
            // The guest's TSC has a cycle per nanosecond.
            Event::ReferenceCycles => Some(ns_of(counts[CYCLES], self.hz)),
            // Interrupts and exceptions count in the kernel, which handles them.
            Event::Interrupts => Some(if rings.kernel { self.interrupts } else { 0 }),
            Event::Exceptions => Some(if rings.kernel { self.exceptions } else { 0 }),
            Event::Branches if level.has_model() => Some(counts[BRANCHES]),
            Event::BranchMisses if level == Detail::Ooo => Some(counts[BRANCH_MISSES]),
            // Hits of the second level cannot be subtracted from the misses of one of the first TLBs.
            Event::DtlbMisses | Event::ItlbMisses if self.has_second_tlb => None,
            // A cache that the model does not have is not counted.
            Event::L2Accesses
            | Event::L2Misses
            | Event::L2FetchMisses
            | Event::L2DataMisses
            | Event::L2Writebacks
                if self.outer_caches_at(level) == 0 =>
            {
                None
            }
            Event::LastLevelAccesses if level.has_model() => {
                Some(self.last_level(&counts, level).0)
            }
            Event::LastLevelMisses if level.has_model() => Some(self.last_level(&counts, level).1),
            _ if level.has_model() => model_event_count(event, &counters::model_counts(&counts)),
            _ => None,
        }
    }

    fn is_paused(&self) -> bool {
        self.is_paused
    }

    fn instructions_per_cycle_max(&self) -> u64 {
        // At other levels an instruction takes at least a cycle.
        if self.level == Some(Detail::Ooo) { CORE_INSTRUCTIONS_PER_CYCLE_MAX } else { 1 }
    }
}

/// The count of an event that only models count, of a model with one level of TLBs. `None` if models do not count it.
fn model_event_count(event: Event, counts: &machine::Counts) -> Option<u64> {
    let l1d_misses = counts.l1d_load_misses + counts.l1d_store_misses;
    Some(match event {
        Event::FetchStallCycles => counts.fetch_stall_cycles,
        Event::DataStallCycles => counts.data_stall_cycles,
        Event::L1dAccesses => counts.loads + counts.stores,
        Event::L1dMisses => l1d_misses,
        Event::L1iAccesses => counts.fetches,
        Event::L1iMisses => counts.l1i_misses,
        Event::L2Accesses => l1d_misses + counts.l1i_misses,
        Event::L2Misses => counts.l2_fetch_misses + counts.l2_data_misses,
        // With one level of TLBs, each miss is a walk of the page table.
        Event::DtlbL1Misses | Event::DtlbMisses => counts.dtlb_misses,
        Event::ItlbMisses => counts.itlb_misses,
        Event::Loads => counts.loads,
        Event::Stores => counts.stores,
        Event::L1dLoadMisses => counts.l1d_load_misses,
        Event::L1dStoreMisses => counts.l1d_store_misses,
        Event::L2FetchMisses => counts.l2_fetch_misses,
        Event::L2DataMisses => counts.l2_data_misses,
        Event::L2Writebacks => counts.l2_writebacks,
        Event::DeviceAccesses => counts.device_accesses,
        _ => return None,
    })
}

impl Pmus {
    /// PMUs with all counters off.
    fn new(layout: RegisterLayout, vcpus: usize, save_to: Option<PathBuf>) -> Pmus {
        let vcpu = |_| VcpuPmu { pmu: Pmu::new(layout), answer: None, retried_at: None };
        let vcpus = (0..vcpus).map(vcpu).collect();
        Pmus { layout, vcpus, reported: Vec::new(), save_to }
    }

    /// Makes the PMUs that the options ask for. `None` if they ask for none. If the options name a file with the state
    /// at a checkpoint, the PMUs start with that state.
    ///
    /// Fails if this QEMU lacks a function that a PMU needs, or the file does not have the state of `vcpus` PMUs.
    pub(crate) fn requested(options: &Options, vcpus: usize) -> Result<Option<Pmus>, String> {
        let Some(vendor) = options.pmu else { return Ok(None) };
        if !MiddleOfBlock::is_exported() {
            return Err("this QEMU has no cpu_restore_state, which pmu= needs".to_owned());
        }
        let layout = RegisterLayout::of_vendor(vendor);
        let mut pmus = Pmus::new(layout, vcpus, options.pmu_save.clone());
        if let Some(path) = &options.pmu_state {
            pmus.load(path)?;
            pmus.check_soon();
        }
        Ok(Some(pmus))
    }

    /// Restores the state of the PMUs from a file.
    fn load(&mut self, path: &Path) -> Result<(), String> {
        let in_file = |error: String| format!("{}: {error}", path.display());
        let mut text = String::new();
        let file = File::open(path).map_err(|error| in_file(error.to_string()))?;
        let read = file.take(STATE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| in_file(error.to_string()))?;
        let contents = state::read(self.layout, &text, self.vcpus.len()).map_err(in_file)?;
        for (vcpu, content) in self.vcpus.iter_mut().zip(contents) {
            vcpu.pmu = Pmu::restored(self.layout, &content);
        }
        Ok(())
    }

    pub(crate) fn layout(&self) -> RegisterLayout {
        self.layout
    }

    pub(crate) fn of_vcpu(&mut self, vcpu: u32) -> Option<&mut VcpuPmu> {
        self.vcpus.get_mut(vcpu as usize)
    }

    /// Reads a register of a vCPU's PMU. `counts`: the vCPU's current counts. `None` if the vCPU has no PMU, or
    /// the PMU no such register.
    pub(crate) fn read(
        &mut self,
        vcpu: u32,
        register: PmuRegister,
        counts: &VcpuCounts,
    ) -> Option<u64> {
        Some(self.of_vcpu(vcpu)?.pmu.read(register, counts))
    }

    /// Writes a register of a vCPU's PMU, and checks the vCPU.
    pub(crate) fn write(
        &mut self,
        vcpu: u32,
        (register, value): (PmuRegister, u64),
        counts: &VcpuCounts,
        writer: &mut Writer,
    ) {
        let Some(VcpuPmu { pmu, .. }) = self.of_vcpu(vcpu) else { return };
        pmu.write(register, value, counts);
        self.check(vcpu, counts, writer);
    }

    /// Interrupts a vCPU if one of its counters has overflowed, and sets when to check it again. Reports the events of
    /// counters that are on but cannot count.
    pub(crate) fn check(&mut self, vcpu: u32, counts: &VcpuCounts, writer: &mut Writer) {
        let Some(VcpuPmu { pmu, .. }) = self.of_vcpu(vcpu) else { return };
        if pmu.take_overflows(counts)
            && let Some(interrupt) = NonMaskable::of_vcpu(vcpu)
        {
            interrupt.request();
        }
        let next = pmu.next_overflow(counts);
        let next = next.map_or(u64::MAX, |cycles| counts.all[CYCLES].saturating_add(cycles));
        cpu::with_vcpu(vcpu, |cpu| cpu.set_pmu_deadline(next));
        for event in pmu.uncounted(counts) {
            self.report_uncounted(vcpu, event, writer);
        }
    }

    /// Makes all vCPUs check their counters before the next block. Needed where counting stops or starts.
    pub(crate) fn check_soon(&self) {
        let vcpus = 0..self.vcpus.len() as u32;
        vcpus.for_each(|vcpu| cpu::with_vcpu(vcpu, |cpu| cpu.set_pmu_deadline(0)));
    }

    /// Adds the events until now to all counters.
    pub(crate) fn synchronise(&mut self, counts_by_vcpu: &[VcpuCounts]) {
        self.vcpus
            .iter_mut()
            .zip(counts_by_vcpu)
            .for_each(|(vcpu, counts)| vcpu.pmu.synchronise(counts));
    }

    /// Reports that the guest uses an event that cannot be counted, once for each event.
    fn report_uncounted(&mut self, vcpu: u32, event: u64, writer: &mut Writer) {
        if self.reported.contains(&event) || self.reported.len() == REPORTED_MAX {
            return;
        }
        self.reported.push(event);
        eprintln!("irqlab plugin: event {event:#x}: {}", Notice::EventNotCounted);
        writer.write(&Record::Notice(Notice::EventNotCounted, vcpu, event));
    }

    /// Whether the options name a file for the state of the PMUs.
    pub(crate) fn is_saved(&self) -> bool {
        self.save_to.is_some()
    }

    /// Writes the state of the PMUs to the file that the options name, if any. Call it when the vCPUs have stopped.
    pub(crate) fn save(&mut self, counts_by_vcpu: &[VcpuCounts]) {
        let Some(path) = &self.save_to else { return };
        let vcpus = self.vcpus.iter_mut().zip(counts_by_vcpu);
        let contents: Vec<_> = vcpus.map(|(vcpu, counts)| vcpu.pmu.content(counts)).collect();
        if let Err(error) = fs::write(path, state::write(self.layout, &contents)) {
            eprintln!("irqlab plugin: {}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_are_not_counted_where_a_second_level_serves_misses() {
        let rings = PrivilegeRings { user: true, kernel: true };
        let mut all = Counts::default();
        let model = machine::Counts { dtlb_misses: 7, itlb_misses: 3, ..Default::default() };
        counters::put_model_counts(&model, &mut all);
        for has_second_tlb in [false, true] {
            let level = Some(Detail::Ooo);
            let now = VcpuCounts { level, all, has_second_tlb, ..VcpuCounts::default() };
            assert_eq!(now.count(Event::DtlbL1Misses, rings), Some(7));
            for (event, walks) in [(Event::DtlbMisses, 7), (Event::ItlbMisses, 3)] {
                let expected = if has_second_tlb { None } else { Some(walks) };
                assert_eq!(now.count(event, rings), expected, "{event:?}");
            }
        }
    }

    #[test]
    fn the_last_level_is_the_last_that_the_model_has() {
        let rings = PrivilegeRings { user: true, kernel: true };
        let mut all = Counts::default();
        let model = machine::Counts {
            l1d_load_misses: 50,
            l1i_misses: 7,
            l2_fetch_misses: 2,
            l2_data_misses: 9,
            ..Default::default()
        };
        counters::put_model_counts(&model, &mut all);
        all[L3_MISSES] = 4;
        for (outer_caches, level, expected) in [
            // Memory supplies all misses of L1.
            (0, Detail::Ooo, (57, 57)),
            (1, Detail::Ooo, (57, 11)),
            (2, Detail::Ooo, (11, 4)),
            // Caches of this level of detail have two levels.
            (2, Detail::Timed, (57, 11)),
        ] {
            let now = VcpuCounts { level: Some(level), all, outer_caches, ..VcpuCounts::default() };
            let events = [Event::LastLevelAccesses, Event::LastLevelMisses];
            let counted = events.map(|event| now.count(event, rings));
            assert_eq!(counted, [Some(expected.0), Some(expected.1)]);
        }
    }

    #[test]
    fn a_model_without_an_l2_has_no_counts_of_an_l2() {
        let rings = PrivilegeRings { user: true, kernel: true };
        let events = [
            Event::L2Accesses,
            Event::L2Misses,
            Event::L2FetchMisses,
            Event::L2DataMisses,
            Event::L2Writebacks,
        ];
        for (outer_caches, level, expected) in [
            (0, Detail::Ooo, [None; 5]),
            (1, Detail::Ooo, [Some(0); 5]),
            // The machine of this level of detail has an L2 in any case.
            (0, Detail::Timed, [Some(0); 5]),
        ] {
            let now = VcpuCounts { level: Some(level), outer_caches, ..VcpuCounts::default() };
            assert_eq!(events.map(|event| now.count(event, rings)), expected);
        }
    }

    #[test]
    fn reference_cycles_have_the_rate_of_the_guests_tsc() {
        let (mut all, mut user) = (Counts::default(), Counts::default());
        (all[CYCLES], user[CYCLES]) = (90, 60);
        let (level, hz) = (Some(Detail::Count), 3_000_000_000);
        let now = VcpuCounts { level, all, user, hz, ..VcpuCounts::default() };
        for (user, kernel, expected) in
            [(true, true, 30), (true, false, 20), (false, true, 10), (false, false, 0)]
        {
            let rings = PrivilegeRings { user, kernel };
            assert_eq!(now.count(Event::ReferenceCycles, rings), Some(expected));
        }
    }
}
