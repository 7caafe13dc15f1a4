//! The PMUs of all vCPUs, and the counts that they show.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::core::{Counts as CountsOfVcpu, Pmu, PrivilegeRings};
use super::events::Event;
use super::state;
use crate::counters;
use crate::cpu;
use crate::qemu_internals::NonMaskable;
use crate::session::Session;
use simrecord::counters::{BRANCH_MISSES, BRANCHES, CYCLES, Counts, INSTRUCTIONS};
use simrecord::record::{Detail, Notice, Record};

/// The most events that are named as not counted.
const REPORTED_MAX: usize = 64;
/// The longest file of a state: a line of at most 40 bytes for each counter of 16 vCPUs, and more.
const STATE_BYTES_MAX: u64 = 1 << 16;

/// A register of a PMU, by the number of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PmuRegister {
    Select(usize),
    Value(usize),
}

/// An answer that waits for the instruction after the one that requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// What a `rdmsr` reads.
    Register(u64),
    /// A `cpuid` is to say that there are six counters.
    SixCounters,
}

/// The PMU of one vCPU, with what is under way there.
#[derive(Default)]
pub(crate) struct VcpuPmu {
    pmu: Pmu,
    pub(crate) answer: Option<Answer>,
    /// Address of a `cpuid` that is tried again.
    pub(crate) again_at: Option<u64>,
}

/// The PMUs of a machine.
pub(crate) struct Pmus {
    pub(crate) vcpus: Vec<VcpuPmu>,
    /// Events named as not counted.
    reported: Vec<u64>,
}

/// The counts of a vCPU at a moment.
#[derive(Default)]
struct Now {
    level: Option<Detail>,
    all: Counts,
    user: Counts,
    interrupts: u64,
    exceptions: u64,
}

impl Now {
    /// The counts of these privilege rings.
    fn of(&self, rings: PrivilegeRings) -> Counts {
        std::array::from_fn(|position| match (rings.user, rings.kernel) {
            (true, true) => self.all[position],
            (true, false) => self.user[position],
            (false, true) => self.all[position] - self.user[position],
            (false, false) => 0,
        })
    }
}

impl CountsOfVcpu for Now {
    fn count(&self, event: Event, rings: PrivilegeRings) -> Option<u64> {
        let level = self.level.filter(|level| *level != Detail::Fast)?;
        let counts = self.of(rings);
        match event {
            // Without a model, an instruction takes a cycle.
            Event::Instructions => Some(counts[INSTRUCTIONS]),
            Event::Cycles => Some(counts[CYCLES]),
            // The kernel takes them.
            Event::Interrupts => Some(if rings.kernel { self.interrupts } else { 0 }),
            Event::Exceptions => Some(if rings.kernel { self.exceptions } else { 0 }),
            Event::Branches if level.has_model() => Some(counts[BRANCHES]),
            Event::BranchMisses if level == Detail::Ooo => Some(counts[BRANCH_MISSES]),
            _ if level.has_model() => of_model(event, &counters::of_model(&counts)),
            _ => None,
        }
    }
}

/// An event that only a model counts; `None` if it has nothing of the kind.
fn of_model(event: Event, counts: &machine::Counts) -> Option<u64> {
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
        // There is one level of TLBs: what misses it is looked up in the page table.
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
    pub(crate) fn new(vcpus: usize) -> Pmus {
        Pmus { vcpus: (0..vcpus).map(|_| VcpuPmu::default()).collect(), reported: Vec::new() }
    }

    /// PMUs as they were when a checkpoint was made.
    pub(crate) fn load(path: &Path, vcpus: usize) -> Result<Pmus, String> {
        let in_file = |error: String| format!("{}: {error}", path.display());
        let mut text = String::new();
        let file = File::open(path).map_err(|error| in_file(error.to_string()))?;
        let read = file.take(STATE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| in_file(error.to_string()))?;
        let mut pmus = Pmus::new(vcpus);
        let nothing = Now::default();
        let contents = state::read(&text, vcpus).map_err(in_file)?;
        for (vcpu, content) in pmus.vcpus.iter_mut().zip(contents) {
            for (index, (select, value)) in content.into_iter().enumerate() {
                vcpu.pmu.write_select(index, select, &nothing);
                vcpu.pmu.write_value(index, value, &nothing);
            }
        }
        Ok(pmus)
    }
}

impl Session {
    /// Reads a register of a vCPU's PMU, at an instruction with `remaining` more to execute in its
    /// block, itself among them.
    pub(crate) fn read_pmu(
        &mut self,
        vcpu: u32,
        register: PmuRegister,
        remaining: u32,
    ) -> Option<u64> {
        let now = self.now(vcpu, remaining);
        let pmu = &mut self.pmus.as_mut()?.vcpus.get_mut(vcpu as usize)?.pmu;
        Some(match register {
            PmuRegister::Select(index) => pmu.select(index),
            PmuRegister::Value(index) => pmu.value(index, &now),
        })
    }

    /// Writes a register of a vCPU's PMU.
    pub(crate) fn write_pmu(
        &mut self,
        vcpu: u32,
        register: PmuRegister,
        value: u64,
        remaining: u32,
    ) {
        let now = self.now(vcpu, remaining);
        let Some(pmus) = self.pmus.as_mut() else { return };
        let Some(pmu) = pmus.vcpus.get_mut(vcpu as usize).map(|vcpu| &mut vcpu.pmu) else { return };
        let uncounted = match register {
            PmuRegister::Select(index) => {
                pmu.write_select(index, value, &now);
                pmu.uncounted(index, &now)
            }
            PmuRegister::Value(index) => {
                pmu.write_value(index, value, &now);
                None
            }
        };
        self.interrupt_if_due(vcpu, &now);
        if let Some(event) = uncounted {
            self.name_uncounted(vcpu, event);
        }
    }

    /// Interrupts a vCPU whose counters have run over, and says when to look again.
    fn interrupt_if_due(&mut self, vcpu: u32, now: &Now) {
        let Some(pmus) = self.pmus.as_mut() else { return };
        let Some(pmu) = pmus.vcpus.get_mut(vcpu as usize).map(|vcpu| &mut vcpu.pmu) else { return };
        if pmu.take_overflows(now)
            && let Some(interrupt) = NonMaskable::of(vcpu)
        {
            interrupt.request();
        }
        let next = pmu.next_overflow(now);
        let next = next.map_or(u64::MAX, |cycles| now.all[CYCLES].saturating_add(cycles));
        cpu::with(vcpu, |cpu| cpu.set_pmu_deadline(next));
    }

    /// A counter of a vCPU may have run over; between two blocks.
    pub(crate) fn check_pmu(&mut self, vcpu: u32) {
        let now = self.now(vcpu, 0);
        self.interrupt_if_due(vcpu, &now);
    }

    /// Counters stop here, or count again from the next block on.
    pub(crate) fn check_pmus(&mut self) {
        if self.pmus.is_some() {
            (0..self.cpus).for_each(|vcpu| cpu::with(vcpu, |cpu| cpu.set_pmu_deadline(0)));
        }
    }

    /// Has all counters hold what was counted so far, with `remaining` instructions of the block of
    /// `vcpu` still to execute.
    pub(crate) fn synchronise_pmus(&mut self, vcpu: u32, remaining: u32) {
        let now_of = |one| self.now(one, if one == vcpu { remaining } else { 0 });
        let now: Vec<Now> = (0..self.cpus).map(now_of).collect();
        let pmus = self.pmus.iter_mut().flat_map(|pmus| &mut pmus.vcpus);
        pmus.zip(&now).for_each(|(vcpu, now)| vcpu.pmu.synchronise(now));
    }

    /// Says once that the guest counts something that can't be counted.
    fn name_uncounted(&mut self, vcpu: u32, event: u64) {
        let Some(pmus) = self.pmus.as_mut() else { return };
        if pmus.reported.contains(&event) || pmus.reported.len() == REPORTED_MAX {
            return;
        }
        pmus.reported.push(event);
        eprintln!("irqlab plugin: event {event:#x}: {}", Notice::EventNotCounted);
        self.writer.write(&Record::Notice(Notice::EventNotCounted, vcpu, event));
    }

    /// The PMUs as text, once the vCPUs have stopped.
    fn pmu_state(&mut self) -> Option<String> {
        let now: Vec<Now> = (0..self.cpus).map(|vcpu| self.now(vcpu, 0)).collect();
        let vcpus = self.pmus.as_mut()?.vcpus.iter_mut();
        let contents: Vec<_> = vcpus.zip(&now).map(|(vcpu, now)| vcpu.pmu.content(now)).collect();
        Some(state::write(&contents))
    }

    /// Writes the file of the PMUs' state, if one is wanted.
    pub(crate) fn save_pmus(&mut self) {
        if let Some(path) = self.options.pmu_save.clone()
            && let Some(text) = self.pmu_state()
            && let Err(error) = fs::write(&path, text)
        {
            eprintln!("irqlab plugin: {}: {error}", path.display());
        }
    }

    fn now(&self, vcpu: u32, remaining: u32) -> Now {
        // While only markers are recorded, blocks are not counted.
        let remaining = if self.counts() { remaining } else { 0 };
        let (all, user) = cpu::with(vcpu, |cpu| {
            let all = cpu.counts_before(remaining);
            (all, cpu.user_counts(&all))
        });
        let tracked = &self.tracker.cpus[vcpu as usize];
        let (interrupts, exceptions) = (tracked.interrupts, tracked.exceptions);
        Now { level: Some(self.level), all, user, interrupts, exceptions }
    }
}
