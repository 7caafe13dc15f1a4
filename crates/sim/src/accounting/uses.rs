//! What a machine executed, as the benches read it: by region, CPU and context.

use std::ops::Range;

use attribution::KernelContext;
use lab::cpu_warnings::CpuWarning;
use simrecord::counters::{COUNTERS, Counts};
use simrecord::record::{self, DelayEvents, Group};

use super::SendersUse;

/// A region of interest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionUse {
    /// All CPUs of the machine, sorted by number.
    pub cpus: Vec<CpuUse>,
    /// Whether the plugin closed the region because it had measured enough.
    pub had_enough: bool,
    /// Counters of each context in each sampled unit. Empty if nothing was sampled.
    pub sampled: Vec<SampledPartUse>,
    /// Function calls and interrupts that CPUs have sent, and runs of queued functions, if they were requested.
    pub senders: SendersUse,
}

impl RegionUse {
    /// Returns a warning for each CPU that went offline or came online in the region. `clock_hz`: cycles per
    /// second.
    #[must_use]
    pub fn hotplug_warnings(&self, clock_hz: u64) -> Vec<CpuWarning> {
        let offline = self.cpus.iter().filter_map(|cpu| {
            let after_s = cpu.offline_after_cycles()? as f64 / clock_hz.max(1) as f64;
            Some(lab::cpus::went_offline(cpu.cpu, after_s))
        });
        let online = self.cpus.iter().filter(|cpu| cpu.came_online);
        offline.chain(online.map(|cpu| lab::cpus::came_online(cpu.cpu))).collect()
    }
}

impl CpuUse {
    /// Returns the control group of the task that the CPU ran at a time on its time axis. `None`: it is not known.
    #[must_use]
    pub fn group_at_cycles(&self, at_cycles: u64) -> Option<u64> {
        let after = self.groups.partition_point(|change| change.at_cycles <= at_cycles);
        self.group_before(after)
    }

    /// Returns the control group of the task that the CPU ran at a time of its time-stamp counter. `None`: it is not known.
    #[must_use]
    pub fn group_at_tsc(&self, tsc: u64) -> Option<u64> {
        self.group_before(self.groups.partition_point(|change| change.tsc <= tsc))
    }

    fn group_before(&self, position: usize) -> Option<u64> {
        let change = position.checked_sub(1).and_then(|last| self.groups.get(last))?;
        (change.group != 0).then_some(change.group)
    }

    /// Returns how long the CPU had been in the region when it went offline, in cycles; `None` if it did not.
    #[must_use]
    pub fn offline_after_cycles(&self) -> Option<u64> {
        Some(self.offline_at_cycles?.saturating_sub(self.opened_at_cycles))
    }
}

/// Counters of one context in one sampled unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledPartUse {
    pub cpu: u32,
    /// Number of the unit among the units of this CPU.
    pub unit: u64,
    pub context: KernelContext,
    pub counts: Counts,
}

/// Counters and events of a CPU in a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    pub cpu: u32,
    /// When the region opened, in cycles on the CPU's time axis.
    pub opened_at_cycles: u64,
    /// When the CPU went offline in the region, in cycles on its time axis: the region ended there for it.
    pub offline_at_cycles: Option<u64>,
    /// Whether the CPU came online in the region. Its counters do not include what it executed afterwards.
    pub came_online: bool,
    pub used: Counts,
    /// Entries of handlers without a symbol, since the record started.
    pub unknown_gates: u64,
    /// Contexts that ended without their own return, since the record started.
    pub abandoned: u64,
    /// Entries that were not followed because too many were nested, since the record started.
    pub overflows: u64,
    /// Counters by context, sorted by context.
    pub contexts: Vec<ContextUse>,
    /// Spans that ended on this CPU, in the order of their ends, if they were requested.
    pub spans: Vec<SpanUse>,
    /// Self counters of the spans, in the same order, if they were requested. The record may have them for the
    /// first spans only.
    pub span_counts: Vec<Counts>,
    /// Delays that ended on this CPU, and events of delays that were not joined, if they were requested.
    pub delays: Vec<DelayUse>,
    /// Changes of the context on top of its stack, in order, if they were requested.
    pub transitions: Vec<ContextTransition>,
    /// Withheld times of this CPU, by the time-stamp counter, in order: the simulated host did not run it.
    pub withheld: Vec<Range<u64>>,
    /// Control groups of the tasks that the CPU ran, in order, if they were requested.
    pub groups: Vec<GroupChange>,
    /// Block requests that this CPU completed, in order, if they were requested.
    pub completions: Vec<CompletionUse>,
    /// Blocks that this CPU started, in order, if they were requested.
    pub blocks: Vec<BlockStart>,
    /// Counters that the guest's kernel keeps itself.
    pub kernel: Vec<KernelUse>,
}

/// Names of caches, by [`cache`](record::MissCount::cache) of a count of misses.
pub const CACHE_NAMES: [&str; record::CACHES] = ["L1I", "L1D", "L2", "L3"];

/// Counters of a context on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextUse {
    pub context: KernelContext,
    /// Counters of the context itself.
    pub self_counts: Counts,
    /// Counters from entry to exit, summed over the spans that have both in the region.
    pub inclusive: Counts,
    /// How often it was entered.
    pub entries: u64,
    /// Number of spans in `inclusive`.
    pub completed: u64,
}

impl ContextUse {
    /// Adds the counters of the same context on another CPU.
    pub fn add(&mut self, other: &ContextUse) {
        self.self_counts.iter_mut().zip(other.self_counts).for_each(|(sum, count)| *sum += count);
        self.inclusive.iter_mut().zip(other.inclusive).for_each(|(sum, count)| *sum += count);
        self.entries += other.entries;
        self.completed += other.completed;
    }

    /// Returns the unknown context with counters of zero.
    pub(super) fn unknown() -> ContextUse {
        ContextUse {
            context: KernelContext::Unknown,
            self_counts: Counts::default(),
            inclusive: Counts::default(),
            entries: 0,
            completed: 0,
        }
    }
}

/// A span that started and ended in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanUse {
    pub context: KernelContext,
    /// When it ended, in cycles on the time axis of the CPU.
    pub ended_at_cycles: u64,
    /// Cycles of the span itself.
    pub self_cycles: u64,
    /// Cycles from its entry to its exit.
    pub inclusive_cycles: u64,
    /// Instructions of the span itself.
    pub self_instructions: u64,
}

/// A delay that ended in the region, or an event of a delay that could not be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayUse {
    /// The delayed softirq or kind of function.
    pub context: KernelContext,
    pub events: DelayEvents,
    /// Time of the event that ends the delay or drops its begin, in cycles on the time axis of the CPU.
    pub at_cycles: u64,
    /// Length of the delay; 0 unless both events were joined.
    pub cycles: u64,
}

/// A CPU starts to execute for another context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextTransition {
    pub context: KernelContext,
    /// The task at the bottom of the stack.
    pub task: KernelContext,
    /// The time of the transition, in cycles on the time axis of the CPU, as [`SpanUse::ended_at_cycles`].
    pub at_cycles: u64,
    /// Cycles that the CPU had executed before the transition. Halted cycles do not count.
    pub cycles: u64,
    /// The value of the CPU's time-stamp counter at the transition.
    pub tsc: u64,
}

/// A CPU completes a block request, or asks for its completion in a softirq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionUse {
    /// The address of the request in the kernel.
    pub request: u64,
    /// Time, in cycles on the time axis of the CPU.
    pub at_cycles: u64,
    /// The task that submitted the request. [`KernelContext::Unknown`]: it is not known, or several tasks did.
    pub submitter: KernelContext,
    /// The name of the task. Empty if it is not known.
    pub task: String,
    /// The kernel's id of the task's control group at the submission. 0 if it is not known.
    pub group: u64,
}

/// From this time on, the task that a CPU runs is in a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupChange {
    /// In cycles on the time axis of the CPU.
    pub at_cycles: u64,
    /// The CPU's time-stamp counter at this time.
    pub tsc: u64,
    /// The kernel's id of the group. 0 if it is not known.
    pub group: u64,
}

/// A CPU starts a translated block of the kernel, or enters user mode. The counters are the CPU's at this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStart {
    /// Address of the block's first instruction. `None`: user mode.
    pub address: Option<u64>,
    /// The CPU's time-stamp counter.
    pub tsc: u64,
    pub instructions: u64,
    /// Misses of L1I and L1D. 0 without a model.
    pub l1_misses: u64,
    /// Misses of L2. 0 without a model with an L2.
    pub l2_misses: u64,
}

/// How much one of the guest kernel's own counters of a CPU advances in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelUse {
    /// The context whose entries the kernel counts.
    pub context: KernelContext,
    /// How much it advanced.
    pub count: u64,
    /// Tolerance at the edges: 1 for each edge at which the CPU was inside the context.
    pub edge_max: u64,
}

/// Counts of the shadow caches of a model in a region, of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowCacheUse {
    /// Counts from 1.
    pub region: u32,
    /// The position of the model in the user's list of models, from 0.
    pub model: u32,
    /// Context of the accesses.
    pub group: Group,
    /// The counters; absent if these caches do not have them.
    pub counts: [Option<u64>; COUNTERS],
}
