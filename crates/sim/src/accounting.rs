//! Checks the plugin's record and sums it up: how much a machine executed, by CPU and context.
//!
//! Every simulated bench gets its [`Accounting`] from [`crate::watch::Recording::accounting`] after its machine has
//! ended. Only this module and [`crate::divergence`] read records.
//! A record may be damaged: each CPU number, region and context is checked before it is used.
//! [`Accounting::broken`] says why the numbers of a record cannot be trusted. Callers must not use them then.

mod sampled;
mod senders;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use attribution::{KernelContext, SYSCALL_32};
use lab::cpu_warnings::{CpuWarning, CpuWarnings};
use lab::services::syscall_name;
use simrecord::counters::{COUNTERS, CYCLES, Counts, is_of_memory};
use simrecord::marker;
use simrecord::parsed::{
    ContextCounts, CpuRegion, MarkerCounts, ParsedRecord, ShadowCacheCounts, parse,
};
use simrecord::reader::{self, Stream};
use simrecord::record::{
    self, DelayEvents, ExecutedBlock, FEATURE_CONTEXTS, FEATURE_MODEL_TIME, FEATURE_SAMPLED,
    FEATURE_TASKS, Group, Hotplug, HotplugState, KernelCount, MissCount, MissCurvePoint, MissKind,
    Notice, Record, SampledPart, Span, Transition, USER_MODE, Value, ValuesKind, Withheld,
};

use crate::text::printable;
use crate::{Result, SimError};
pub use sampled::{SampledCycles, WARMING_ERROR};
pub use senders::{QueuedRunUse, SendersUse, SentUse};
pub use services::{ServiceUse, ServiceWaitUse, ServicesUse};

/// Why a record without all rows is not used.
const RECORD_FULL: &str =
    "there are more spans or markers than a record has room for (choose a shorter window)";

/// The label of a CPU's warnings. It is empty because these warnings do not name a region.
const ALL_REGIONS: &str = "";

/// The counters and events of a machine in its regions of interest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    /// vCPUs of the machine.
    pub cpus: u32,
    /// Whether contexts are known.
    pub has_contexts: bool,
    /// Whether tasks have process ids and names.
    pub has_tasks: bool,
    /// Whether guest time followed the model's cycles.
    pub has_model_time: bool,
    /// Whether the core was simulated in detail for sampled units only. The cycles of contexts are then
    /// estimates by the plugin's clock; [`Accounting::sampled_cycles`] has better estimates.
    pub is_sampled: bool,
    /// Bit N is set if counter N of [`simrecord::counters`] was counted.
    pub counters: u32,
    /// Instructions of the whole run on all CPUs, if they were counted.
    pub instructions: Option<u64>,
    /// Whether the guest ended the record, rather than the end of QEMU.
    pub ended_by_guest: bool,
    /// Whether an annotation ended the record.
    pub stopped: bool,
    /// Regions of interest. Region N of the record is at index N - 1.
    pub regions: Vec<RegionUse>,
    /// Names of tasks by process id, as the kernel has them.
    pub tasks: BTreeMap<u32, String>,
    /// Names of the first actions of IRQ lines.
    pub irqs: BTreeMap<u32, String>,
    /// Names of functions of user programs, by number, as `FUNCTION [FILE]` or `[FILE]`.
    pub user_functions: BTreeMap<u64, String>,
    /// Names of spans that annotations open, by number.
    pub spans: Vec<String>,
    /// Results of annotations, by region (from 1) and number of the annotation (from 0).
    pub annotations: BTreeMap<(u32, u32), AnnotationUse>,
    /// Hits of annotations that recorded values, if they were requested. Sorted by region and time.
    pub hits: Vec<Hit>,
    /// Counts of shadow caches: caches of other models that see the same accesses.
    pub shadow_caches: Vec<ShadowCacheUse>,
    /// Misses of caches of all sizes.
    pub miss_curves: Vec<MissCurvePoint>,
    /// Misses by class, by the context that evicted the line, and by place.
    pub misses: Vec<MissCount>,
    /// Services of the kernel by region, if they were requested.
    pub services: BTreeMap<u32, ServicesUse>,
    /// Warnings of the plugin.
    pub notices: Vec<String>,
    /// Why the numbers cannot be trusted; empty if they can.
    pub broken: Vec<String>,
}

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
    /// Blocks that this CPU started, in order, if they were requested.
    pub blocks: Vec<BlockStart>,
    /// Counters that the guest's kernel keeps itself.
    pub kernel: Vec<KernelUse>,
}

/// Names of caches, by [`MissCount::cache`].
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
    fn unknown() -> ContextUse {
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

/// The results of an annotation in a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationUse {
    /// How often each CPU reached the annotation, by CPU number.
    pub hits: Vec<u64>,
    /// Spans that could not be opened or closed.
    pub refused: u64,
    pub values: Vec<RecordedValues>,
}

/// Values that an action recorded together, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedValues {
    /// The position of the recording action in the annotation's list of actions.
    pub action: u32,
    /// `None`: this row sums up all values that have no row of their own.
    pub values: Option<Vec<Value>>,
    /// How often these values were recorded.
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Counts from 1.
    pub region: u32,
    /// The annotation's position in the list.
    pub annotation: u32,
    /// The position of the recording action in the annotation's list of actions.
    pub action: u32,
    pub cpu: u32,
    /// Time of the hit by the guest's time-stamp counter, in ns. Readings of two CPUs differ by up to two time slices.
    pub at_ns: u64,
    pub values: Vec<Value>,
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

impl Accounting {
    /// Checks and sums up a record. Numbers that cannot be trusted are an error here only if they cannot be stored; else the
    /// reason is in [`Accounting::broken`].
    ///
    /// Fails when records contradict each other: rows of a region that was not opened, CPUs that the machine does not have,
    /// contexts that do not exist. Fails with [`RECORD_FULL`] if they only seem to, because the record had no room for the
    /// rows of regions, which come last.
    pub(crate) fn of_record(stream: &Stream) -> Result<Accounting> {
        match Accounting::of_consistent_record(stream) {
            Err(_) if stream.end.truncated => Err(bad(RECORD_FULL)),
            result => result,
        }
    }

    fn of_consistent_record(stream: &Stream) -> Result<Accounting> {
        let has_feature = |feature: u32| stream.header.features & feature != 0;
        let parsed =
            parse(stream).map_err(|position| bad(&format!("record {position} does not fit")))?;
        let printable_names = |names: &[(u32, String)]| -> BTreeMap<u32, String> {
            names.iter().map(|(number, name)| (*number, printable(name))).collect()
        };
        let mut accounting = Accounting {
            cpus: stream.header.cpus,
            has_contexts: has_feature(FEATURE_CONTEXTS),
            has_tasks: has_feature(FEATURE_TASKS),
            has_model_time: has_feature(FEATURE_MODEL_TIME),
            is_sampled: has_feature(FEATURE_SAMPLED),
            counters: stream.header.counters,
            instructions: stream.end.instructions,
            ended_by_guest: stream.end.by_marker,
            stopped: stream.end.by_annotation,
            tasks: printable_names(&parsed.tasks),
            irqs: printable_names(&parsed.irqs),
            user_functions: parsed.user_functions.iter().map(user_function).collect(),
            notices: notices(stream),
            ..Accounting::default()
        };
        if stream.end.truncated {
            accounting.broken.push(RECORD_FULL.to_owned());
        }
        (accounting.shadow_caches, accounting.miss_curves) = shadow_caches(&parsed);
        accounting.misses = misses(&parsed);
        (accounting.annotations, accounting.hits) = annotations(&parsed)?;
        let mut broken_cpus = CpuWarnings::default();
        accounting.add_regions(&parsed.regions, &mut broken_cpus)?;
        accounting.note_early_closes(&parsed.markers);
        if !accounting.has_contexts {
            accounting.forget_contexts();
        }
        accounting.add_sampled(&parsed.sampled)?;
        accounting.add_spans(&parsed.spans, &parsed.span_counts, &mut broken_cpus)?;
        for delay in &parsed.delays {
            let delay_use = DelayUse {
                context: context_of(delay.code)?,
                events: delay.events,
                at_cycles: delay.at,
                cycles: delay.cycles,
            };
            accounting.cpu_mut(delay.region, delay.cpu)?.delays.push(delay_use);
        }
        accounting.add_senders(&parsed.sent, &parsed.queued_runs)?;
        accounting.add_transitions(&parsed.transitions)?;
        accounting.add_blocks(&parsed.executed_blocks)?;
        accounting.add_withheld(&parsed.withheld)?;
        accounting.add_kernel_counts(&parsed.kernel_counts)?;
        accounting.add_hotplug(&parsed.hotplug)?;
        let Accounting { regions, broken, .. } = &mut accounting;
        accounting.services =
            services::services(&parsed.services, &parsed.markers, regions, broken)?;
        accounting.check(&mut broken_cpus);
        accounting.broken.extend(broken_cpus.lines());
        Ok(accounting)
    }

    /// Adds the CPUs of each region. Fails unless the record has regions from 1 without a gap, and all CPUs in each region.
    fn add_regions(&mut self, regions: &[CpuRegion], broken_cpus: &mut CpuWarnings) -> Result<()> {
        // A snapshot writes the rows of its region so far; later rows replace them.
        let mut last_rows: BTreeMap<(u32, u32), &CpuRegion> = BTreeMap::new();
        for region in regions {
            last_rows.insert((region.region.region, region.region.cpu), region);
        }
        for ((region, cpu), cpu_region) in last_rows {
            if self.regions.len() + 1 == region as usize && cpu == 0 {
                self.regions.push(RegionUse::default());
            }
            let region_use = self.regions.get_mut((region as usize).wrapping_sub(1));
            let region_use = region_use.filter(|found| found.cpus.len() == cpu as usize);
            region_use.ok_or_else(|| bad("a region lacks a CPU"))?.cpus.push(cpu_use(cpu_region));
            let broken_events = cpu_region.region.broken;
            if broken_events > 0 {
                let warning =
                    CpuWarning::new(cpu, "events were out of order or beyond a table's limit");
                broken_cpus.add(ALL_REGIONS, warning.with_count(broken_events, "events"));
            }
        }
        let is_complete = |region: &RegionUse| region.cpus.len() == self.cpus as usize;
        if self.regions.iter().all(is_complete) {
            return Ok(());
        }
        Err(bad("a region has other CPUs than the machine"))
    }

    /// Notes the regions that the plugin closed because they had measured enough.
    fn note_early_closes(&mut self, markers: &[MarkerCounts]) {
        let closes = |row: &&MarkerCounts| row.marker.number == marker::ENOUGH && !row.marker.open;
        for MarkerCounts { marker, .. } in markers.iter().filter(closes) {
            let region = usize::try_from(marker.argument.wrapping_sub(1)).unwrap_or(usize::MAX);
            if let Some(region) = self.regions.get_mut(region) {
                region.had_enough = true;
            }
        }
    }

    /// Returns a warning if misses of a region are in no row, because the plugin had no room to keep them. `None` if all
    /// misses are in rows. `region` counts from 1.
    pub(crate) fn lost_misses_warning(&self, region: u32) -> Option<String> {
        let is_lost = |row: &&MissCount| {
            row.region == region && row.kind == MissKind::NotKept && row.count > 0
        };
        let lost_counts = self.misses.iter().filter(is_lost).map(|row| row.count);
        let count = lost_counts.reduce(u64::saturating_add)?;
        Some(format!(
            "{count} cache misses are in no row of the misses: there were too many between two events of the \
             kernel"
        ))
    }

    /// Replaces the contexts of each CPU by one unknown context with their sum. Without symbols the plugin does not
    /// detect kernel entries, so the row of a task would include them.
    fn forget_contexts(&mut self) {
        for cpu in self.regions.iter_mut().flat_map(|region| &mut region.cpus) {
            let mut unknown = ContextUse::unknown();
            for context_use in cpu.contexts.drain(..) {
                add(&mut unknown.self_counts, &context_use.self_counts);
            }
            cpu.contexts.push(unknown);
        }
    }

    /// Returns a CPU in a region. `region` counts from 1, `cpu` from 0.
    fn cpu_mut(&mut self, region: u32, cpu: u32) -> Result<&mut CpuUse> {
        let region = self.regions.get_mut((region as usize).wrapping_sub(1));
        let cpu_use = region.and_then(|region| region.cpus.get_mut(cpu as usize));
        cpu_use.ok_or_else(|| bad("a record belongs to no region"))
    }

    /// Adds the counters of sampled units to their regions.
    fn add_sampled(&mut self, parts: &[(SampledPart, Counts)]) -> Result<()> {
        for (part, counts) in parts {
            let context =
                if self.has_contexts { context_of(part.code)? } else { KernelContext::Unknown };
            let part_use =
                SampledPartUse { cpu: part.cpu, unit: part.unit, context, counts: *counts };
            let region = self.regions.get_mut((part.region as usize).wrapping_sub(1));
            region
                .ok_or_else(|| bad("a sampled unit belongs to no region"))?
                .sampled
                .push(part_use);
        }
        Ok(())
    }

    /// Adds the spans to their CPUs. `counts` has the counters of the first spans, in the same order.
    fn add_spans(
        &mut self,
        spans: &[Span],
        counts: &[Counts],
        broken_cpus: &mut CpuWarnings,
    ) -> Result<()> {
        let mut broken_spans: BTreeMap<u32, u64> = BTreeMap::new();
        let counts = counts.iter().map(Some).chain(std::iter::repeat(None));
        for (span, counts) in spans.iter().zip(counts) {
            let span_use = SpanUse {
                context: context_of(span.code)?,
                ended_at_cycles: span.ended_at(),
                self_cycles: span.self_cycles,
                inclusive_cycles: span.inclusive_cycles,
                self_instructions: span.self_instructions,
            };
            let cpu = self.cpu_mut(span.region, span.cpu)?;
            cpu.spans.push(span_use);
            cpu.span_counts.extend(counts);
            if counts.is_some_and(|counts| counts[CYCLES] != span.self_cycles) {
                *broken_spans.entry(span.cpu).or_default() += 1;
            }
        }
        for (cpu, count) in broken_spans {
            let warning =
                CpuWarning::new(cpu, "the counters of spans contradict the cycles of the spans");
            broken_cpus.add(ALL_REGIONS, warning.with_count(count, "spans"));
        }
        Ok(())
    }

    /// Adds the context transitions to their CPUs, in the order of the record.
    fn add_transitions(&mut self, transitions: &[Transition]) -> Result<()> {
        for row in transitions {
            let (context, task) = (context_of(row.code)?, context_of(row.task)?);
            let (at_cycles, cycles, tsc) = (row.at, row.cycles, row.tsc);
            let transition = ContextTransition { context, task, at_cycles, cycles, tsc };
            self.cpu_mut(row.region, row.cpu)?.transitions.push(transition);
        }
        Ok(())
    }

    /// Adds the executed blocks to their CPUs, in the order of the record. Fails if they are not in the order of time.
    fn add_blocks(&mut self, blocks: &[ExecutedBlock]) -> Result<()> {
        for row in blocks {
            let start = BlockStart {
                address: (row.address != USER_MODE).then_some(row.address),
                tsc: row.tsc,
                instructions: row.instructions,
                l1_misses: row.l1_misses,
                l2_misses: row.l2_misses,
            };
            let starts = &mut self.cpu_mut(row.region, row.cpu)?.blocks;
            if starts.last().is_some_and(|last| last.tsc > start.tsc) {
                return Err(bad("executed blocks are out of order"));
            }
            starts.push(start);
        }
        Ok(())
    }

    /// Adds withheld times to their CPUs, in the order of the record. Fails if they are not in the order of time.
    fn add_withheld(&mut self, rows: &[Withheld]) -> Result<()> {
        for row in rows {
            let times = &mut self.cpu_mut(row.region, row.cpu)?.withheld;
            if times.last().is_some_and(|last| last.end > row.tsc) {
                return Err(bad("times of a withheld CPU are out of order"));
            }
            times.push(row.tsc..row.tsc.saturating_add(row.length));
        }
        Ok(())
    }

    /// Stores how far each of the kernel's counters advanced between the edges of a region. Skips a counter
    /// without a reading at both edges.
    fn add_kernel_counts(&mut self, counts: &[KernelCount]) -> Result<()> {
        let mut counts_at_open: BTreeMap<(u32, u32, u64), &KernelCount> = BTreeMap::new();
        for count in counts {
            let key = (count.region, count.cpu, count.code);
            if !count.at_close {
                counts_at_open.insert(key, count);
            } else if let Some(count_at_open) = counts_at_open.remove(&key) {
                // The kernel's counters have 32 bits.
                let advance = (count.value as u32).wrapping_sub(count_at_open.value as u32);
                let kernel_use = KernelUse {
                    context: context_of(count.code)?,
                    count: u64::from(advance),
                    edge_max: u64::from(count_at_open.inside) + u64::from(count.inside),
                };
                self.cpu_mut(count.region, count.cpu)?.kernel.push(kernel_use);
            }
        }
        Ok(())
    }

    /// Notes the CPUs that went offline or came online in a region.
    fn add_hotplug(&mut self, events: &[Hotplug]) -> Result<()> {
        for event in events {
            let cpu = self.cpu_mut(event.region, event.cpu)?;
            match event.state {
                HotplugState::Offline if event.at < cpu.opened_at_cycles => {
                    return Err(bad("a CPU went offline before the region opened"));
                }
                HotplugState::Offline => cpu.offline_at_cycles = Some(event.at),
                HotplugState::Online => cpu.came_online = true,
            }
        }
        Ok(())
    }

    /// Adds a warning to `broken_cpus` for each CPU whose contexts do not add up to the CPU. If spans were recorded, also for
    /// each interrupt or exception whose number of spans differs from its completed entries.
    fn check(&self, broken_cpus: &mut CpuWarnings) {
        let mut cpus = self.regions.iter().flat_map(|region| &region.cpus);
        let has_spans = cpus.any(|cpu| !cpu.spans.is_empty());
        for cpu in self.regions.iter().flat_map(|region| &region.cpus) {
            let mut context_sums = Counts::default();
            for row in &cpu.contexts {
                add(&mut context_sums, &row.self_counts);
            }
            if context_sums != cpu.used {
                let reason = "the counters of contexts do not add up to those of the CPU";
                broken_cpus.add(ALL_REGIONS, CpuWarning::new(cpu.cpu, reason));
            }
            for row in cpu
                .contexts
                .iter()
                .filter(|row| has_spans && row.context.is_interrupt_or_exception())
            {
                let spans = cpu.spans.iter().filter(|span| span.context == row.context).count();
                let (spans, completed) = (spans as u64, row.completed);
                if spans != completed {
                    let reason =
                        format!("{}: number of spans differs from completed entries", row.context);
                    let extent = format!("{spans} spans, {completed} completed");
                    let size = spans.abs_diff(completed) as f64;
                    let warning = CpuWarning::new(cpu.cpu, &reason).with_extent(size, extent);
                    broken_cpus.add(ALL_REGIONS, warning);
                }
            }
        }
    }

    /// Returns whether a CPU went offline in any region. The region ends early for such a CPU.
    #[must_use]
    pub fn lacks_cpus(&self) -> bool {
        let mut cpus = self.regions.iter().flat_map(|region| &region.cpus);
        cpus.any(|cpu| cpu.offline_at_cycles.is_some())
    }

    /// Returns whether a counter was counted.
    #[must_use]
    pub fn counts(&self, counter: usize) -> bool {
        self.counters.checked_shr(counter as u32).is_some_and(|bits| bits & 1 != 0)
    }

    /// Returns whether a timing model counted; without one a cycle is an instruction.
    #[must_use]
    pub fn has_model(&self) -> bool {
        self.counts(simrecord::counters::BRANCHES)
    }

    /// Returns the name of a context, followed by the name of its task or IRQ line if it is known. A system call of 64 bits
    /// has its name instead of its number.
    #[must_use]
    pub fn name_of(&self, context: KernelContext) -> String {
        if let KernelContext::Function(span) = context
            && let Some(name) = self.spans.get(span as usize)
        {
            return format!("span {name}");
        }
        if let KernelContext::Syscall(number) = context
            && number & SYSCALL_32 == 0
        {
            return format!("syscall {}", syscall_name(number as usize));
        }
        let name = match context {
            KernelContext::User(pid)
            | KernelContext::KernelThread(pid)
            | KernelContext::Task(pid) => self.tasks.get(&pid),
            KernelContext::Irq(line) => self.irqs.get(&line),
            _ => None,
        };
        name.filter(|name| !name.is_empty())
            .map_or_else(|| context.to_string(), |name| format!("{context} {name}"))
    }

    /// Returns the name of a function of a user program; `[unknown]` for user code whose file is not known.
    #[must_use]
    pub fn user_function(&self, number: u64) -> &str {
        self.user_functions.get(&number).map_or("[unknown]", String::as_str)
    }
}

/// Reads the records of a machine that has ended.
///
/// Fails with [`SimError::Data`] when it is incomplete or damaged.
pub(crate) fn read(mut file: &File) -> Result<Stream> {
    file.seek(SeekFrom::Start(0)).map_err(SimError::system("reading the record"))?;
    reader::read(BufReader::new(file)).map_err(|error| {
        let cause = match error {
            reader::ReadError::Incomplete(_) => " (QEMU was killed, or the disk was full)",
            _ => "",
        };
        bad(&format!("{error}{cause}"))
    })
}

/// Checks that a file starts as a record does.
///
/// The error says why the file is not a record.
pub(crate) fn check_is_record(file: &File) -> std::result::Result<(), String> {
    let mut first_record = [0; record::BYTES];
    file.read_exact_at(&mut first_record, 0)
        .map_err(|error| format!("it is no record: {error}"))?;
    match Record::decode(&first_record) {
        Ok(Record::Header(_)) => Ok(()),
        Ok(_) => Err("it is no record: it does not start with a header".to_owned()),
        Err(error) => Err(format!("it is no record: {error}")),
    }
}

/// Whether an annotation has ended a record that QEMU may still have open. `false` if the record cannot be read.
pub(crate) fn is_stopped(file: &File) -> bool {
    let mut last_record = [0; record::BYTES];
    // QEMU may be writing the last record: only complete records are read.
    let bytes = file.metadata().map_or(0, |data| data.len());
    let complete_bytes = bytes - bytes % last_record.len() as u64;
    let offset = complete_bytes.checked_sub(last_record.len() as u64);
    let is_read = offset.is_some_and(|offset| file.read_exact_at(&mut last_record, offset).is_ok());
    is_read && matches!(Record::decode(&last_record), Ok(Record::End(end)) if end.by_annotation)
}

/// A function of a user program: its number, and its name without characters that a terminal would interpret.
fn user_function((number, name): (&u64, &Vec<u8>)) -> (u64, String) {
    (*number, printable(&String::from_utf8_lossy(name)))
}

fn add(sum: &mut Counts, counts: &Counts) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

/// The error of a record that contradicts itself.
fn bad(reason: &str) -> SimError {
    SimError::data("the record of the machine", reason)
}

fn context_of(code: u64) -> Result<KernelContext> {
    KernelContext::from_code(code).ok_or_else(|| bad(&format!("no context has the code {code:#x}")))
}

/// Returns the plugin's warnings. All notices of lost writes become one warning with the total number, and all notices of
/// events of the guest's PMU one warning with the events.
fn notices(stream: &Stream) -> Vec<String> {
    let mut notices = Vec::new();
    let mut lost_count: Option<u64> = None;
    let mut uncounted_events = BTreeSet::new();
    for record in &stream.records {
        match record {
            Record::Notice(Notice::DeviceWritesLost, _, lost) => {
                lost_count = Some(lost_count.unwrap_or(0).saturating_add(*lost));
            }
            Record::Notice(Notice::EventNotCounted, _, event) => {
                uncounted_events.insert(*event);
            }
            Record::Notice(notice, ..) => notices.push(notice.to_string()),
            _ => {}
        }
    }
    if !uncounted_events.is_empty() {
        let events: Vec<String> =
            uncounted_events.iter().map(|event| format!("{event:#x}")).collect();
        notices.push(format!("{} (event {})", Notice::EventNotCounted, events.join(", ")));
    }
    if let Some(lost) = lost_count {
        notices.push(format!("{} ({lost} writes)", Notice::DeviceWritesLost));
    }
    notices
}

/// Converts a CPU of the record. Spans, transitions, counters of the kernel and hotplug events are added later.
fn cpu_use(region: &CpuRegion) -> CpuUse {
    let context_use = |counts: &ContextCounts| ContextUse {
        context: counts.context,
        self_counts: counts.self_counts,
        inclusive: counts.inclusive,
        entries: counts.row.entries,
        completed: counts.row.completed,
    };
    CpuUse {
        cpu: region.region.cpu,
        opened_at_cycles: region.region.opened_at,
        offline_at_cycles: None,
        came_online: false,
        used: region.used,
        unknown_gates: region.region.unknown_gates,
        abandoned: region.region.abandoned,
        overflows: region.region.overflows,
        contexts: region.contexts.iter().map(context_use).collect(),
        spans: Vec::new(),
        span_counts: Vec::new(),
        delays: Vec::new(),
        transitions: Vec::new(),
        withheld: Vec::new(),
        blocks: Vec::new(),
        kernel: Vec::new(),
    }
}

/// How often values were recorded, by the position of the recording action and by the values.
type ValueCounts = BTreeMap<(u32, Option<Vec<Value>>), u64>;

/// The results of annotations, by region and number of the annotation.
type Annotations = BTreeMap<(u32, u32), AnnotationUse>;

/// Collects the results of annotations, and the hits sorted by region and time. Fails if an annotation lacks a CPU, or if
/// values belong to no annotation.
fn annotations(parsed: &ParsedRecord) -> Result<(Annotations, Vec<Hit>)> {
    let (mut results, mut hits) = (Annotations::new(), Vec::new());
    for row in &parsed.annotations {
        let annotation_use = results.entry((row.region, row.annotation)).or_default();
        // CPU 0 comes first in a snapshot. The rows of a later snapshot replace the rows of an earlier one.
        if row.cpu == 0 {
            *annotation_use = AnnotationUse { refused: row.refused, ..AnnotationUse::default() };
        }
        if annotation_use.hits.len() != row.cpu as usize {
            return Err(bad("an annotation lacks a CPU"));
        }
        annotation_use.hits.push(row.hits);
    }
    let mut value_counts: BTreeMap<(u32, u32), ValueCounts> = BTreeMap::new();
    for row in &parsed.values {
        let (row_header, values) = (row.values, row.recorded.clone());
        let key = (row_header.region, row_header.annotation);
        let values = match row_header.kind {
            ValuesKind::Count => Some(values),
            ValuesKind::Others => None,
            ValuesKind::Hit => {
                hits.push(Hit {
                    region: row_header.region,
                    annotation: row_header.annotation,
                    action: row_header.action,
                    cpu: row_header.cpu,
                    at_ns: row_header.number,
                    values,
                });
                continue;
            }
        };
        // Counts never decrease, so the last one is current.
        value_counts.entry(key).or_default().insert((row_header.action, values), row_header.number);
    }
    for (key, values) in value_counts {
        let annotation_use = results.get_mut(&key).ok_or_else(|| bad("values of no annotation"))?;
        let row = |((action, values), count)| RecordedValues { action, values, count };
        annotation_use.values = values.into_iter().map(row).collect();
        // Frequent values first in each action; the sum of the other values last.
        annotation_use
            .values
            .sort_by_key(|row| (row.action, row.values.is_none(), u64::MAX - row.count));
    }
    // The record has all hits of a CPU's time slice before the hits of the next CPU.
    hits.sort_by_key(|hit: &Hit| (hit.region, hit.at_ns));
    Ok((results, hits))
}

/// Returns the counts of misses. The records of a later snapshot replace the records of an earlier snapshot.
fn misses(parsed: &ParsedRecord) -> Vec<MissCount> {
    let key = |count: &MissCount| (count.region, count.cache, count.kind, count.key);
    let last_counts: BTreeMap<_, _> =
        parsed.misses.iter().map(|count| (key(count), *count)).collect();
    last_counts.into_values().collect()
}

/// Returns the counts of shadow caches and the miss curves. The records of a later snapshot replace the
/// records of an earlier snapshot.
fn shadow_caches(parsed: &ParsedRecord) -> (Vec<ShadowCacheUse>, Vec<MissCurvePoint>) {
    let uses = parsed.shadow_caches.iter().map(shadow_cache_use);
    let caches_key = |caches: &ShadowCacheUse| (caches.region, caches.model, caches.group as u32);
    let last_uses = last_of_each(uses, caches_key);
    let point_key = |point: &MissCurvePoint| {
        let group_and_stream = (point.group as u32) << 8 | point.stream as u32;
        (point.region, group_and_stream, point.size_bytes.checked_ilog2().unwrap_or(0))
    };
    (last_uses, last_of_each(parsed.miss_curves.iter().copied(), point_key))
}

/// Returns the last row of each key, sorted by key.
fn last_of_each<T>(rows: impl Iterator<Item = T>, key: fn(&T) -> (u32, u32, u32)) -> Vec<T> {
    rows.map(|row| (key(&row), row)).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// Converts a row of the record. Counters that these caches do not have become `None`.
fn shadow_cache_use(row: &ShadowCacheCounts) -> ShadowCacheUse {
    let has_counter =
        |counter: usize| row.caches.counters >> counter & 1 == 1 && is_of_memory(counter);
    ShadowCacheUse {
        region: row.caches.region,
        model: row.caches.model,
        group: row.caches.group,
        counts: std::array::from_fn(|counter| has_counter(counter).then_some(row.counts[counter])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simrecord::counters::{COUNTERS, CYCLES, INSTRUCTIONS, MASK_PLAIN};
    use simrecord::record::{
        AnnotationRow, ContextRow, Counters, CountersOf, Detail, End, Header, IrqName, Region, Roi,
        Task, Values,
    };

    fn stream(cpus: u32, records: Vec<Record>) -> Stream {
        let header = Header {
            cpus,
            api: 7,
            detail: Detail::Count,
            roi: Roi::Marker,
            vcpu_slice: 1000,
            qemu: [0; 16],
            features: FEATURE_CONTEXTS,
            counters: MASK_PLAIN,
        };
        let end = End {
            by_marker: true,
            by_annotation: false,
            truncated: false,
            instructions: Some(9),
            records: 0,
        };
        Stream { header, records, end }
    }

    fn amounts(cpu: u32, of: CountersOf, instructions: u64) -> Record {
        let mut values = [0; 6];
        values[INSTRUCTIONS] = instructions;
        Record::Counters(Counters { cpu, of, first: 0, values })
    }

    #[test]
    fn writes_of_devices_that_were_lost_are_a_warning_with_their_number() {
        let notice = |notice, value| Record::Notice(notice, 0, value);
        let records = vec![
            notice(Notice::DeviceWritesLost, 7),
            notice(Notice::NoIcount, 0),
            notice(Notice::DeviceWritesLost, 5),
        ];
        let notices = notices(&stream(1, records));
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert_eq!(notices[0], Notice::NoIcount.to_string());
        assert!(notices[1].ends_with("stale lines of the others (12 writes)"), "{notices:?}");
    }

    #[test]
    fn events_that_are_not_counted_are_one_warning_that_names_them() {
        let notice = |event| Record::Notice(Notice::EventNotCounted, 0, event);
        let notices = notices(&stream(1, vec![notice(0x287), notice(0xc3), notice(0xc3)]));
        let [warning] = &notices[..] else { panic!("{notices:?}") };
        assert!(warning.ends_with("(event 0xc3, 0x287)"), "{warning}");
    }

    #[test]
    fn hits_of_all_cpus_are_in_the_order_of_their_times() {
        let hit = |cpu, number| {
            let (annotation, action, kind) = (0, 0, ValuesKind::Hit);
            Record::Values(Values { cpu, region: 1, annotation, action, kind, number })
        };
        let hits = |cpu| {
            let (region, annotation, refused) = (1, 0, 0);
            Record::Annotation(AnnotationRow { cpu, region, annotation, hits: 2, refused })
        };
        let logged = vec![hit(0, 100), hit(0, 400), hit(1, 50), hit(1, 300)];
        let records = [logged, region(0, 5, 0), region(1, 5, 0), vec![hits(0), hits(1)]];
        let accounting = Accounting::of_record(&stream(2, records.concat())).unwrap();
        let times: Vec<(u32, u64)> =
            accounting.hits.iter().map(|hit| (hit.cpu, hit.at_ns)).collect();
        assert_eq!(times, [(1, 50), (0, 100), (1, 300), (0, 400)]);
    }

    fn region(cpu: u32, instructions: u64, broken: u64) -> Vec<Record> {
        let region = Region {
            cpu,
            region: 1,
            unknown_gates: 0,
            unmatched_returns: 0,
            abandoned: 0,
            overflows: 0,
            broken,
            opened_at: 40 + u64::from(cpu),
        };
        vec![Record::Region(region), amounts(cpu, CountersOf::Region, instructions)]
    }

    fn row(cpu: u32, code: u64, own: u64) -> Vec<Record> {
        let row = ContextRow { cpu, region: 1, code, entries: 1, completed: 1 };
        vec![Record::Context(row), amounts(cpu, CountersOf::SelfCounts, own)]
    }

    fn span(cpu: u32, context: KernelContext) -> Record {
        Record::Span(Span {
            cpu,
            region: 1,
            code: context.code(),
            start: 100,
            self_cycles: 7,
            inclusive_cycles: 9,
            self_instructions: 7,
            inclusive_instructions: 9,
        })
    }

    fn kernel(context: KernelContext, at_close: bool, value: u64) -> Record {
        let code = context.code();
        let inside = at_close;
        Record::KernelCount(KernelCount { cpu: 0, region: 1, at_close, code, value, inside })
    }

    #[test]
    fn a_record_without_room_for_the_rows_of_its_regions_is_full_and_not_contradictory() {
        let mut stream = stream(1, vec![span(0, KernelContext::Idle)]);
        let reason = |stream: &Stream| Accounting::of_record(stream).unwrap_err().to_string();
        assert!(reason(&stream).ends_with("belongs to no region"), "{}", reason(&stream));
        stream.end.truncated = true;
        assert!(reason(&stream).ends_with(RECORD_FULL), "{}", reason(&stream));
    }

    #[test]
    fn later_rows_of_a_region_replace_earlier_ones() {
        let user = KernelContext::User(7);
        let records = [
            region(0, 3, 0),
            row(0, user.code(), 3),
            region(1, 0, 0),
            region(0, 5, 0),
            row(0, KernelContext::Idle.code(), 1),
            row(0, user.code(), 4),
            region(1, 2, 0),
            row(1, user.code(), 2),
            vec![Record::Task(Task { pid: 7, comm: *b"a\x1bb\0junk\0\0\0\0\0\0\0\0" })],
        ];
        let accounting = Accounting::of_record(&stream(2, records.concat())).unwrap();
        assert_eq!(accounting.broken, Vec::<String>::new());
        let rows = &accounting.regions[0].cpus[0].contexts;
        let owns: Vec<u64> = rows.iter().map(|row| row.self_counts[INSTRUCTIONS]).collect();
        assert_eq!((accounting.regions.len(), owns), (1, vec![1, 4]));
        assert_eq!(accounting.name_of(user), "user 7 a?b");
        assert_eq!(accounting.name_of(KernelContext::User(8)), "user 8");
        assert!(
            accounting.counts(INSTRUCTIONS)
                && accounting.counts(CYCLES)
                && !accounting.counts(COUNTERS - 1)
        );
    }

    #[test]
    fn spans_and_kernel_counts_belong_to_their_cpu() {
        let timer = KernelContext::Interrupt(0xec);
        let line = KernelContext::Irq(24);
        let mut name = [0; 32];
        name[..4].copy_from_slice(b"nvme");
        let records = [
            region(0, 7, 0),
            row(0, timer.code(), 7),
            vec![
                kernel(timer, false, u64::from(u32::MAX)),
                span(0, timer),
                kernel(timer, true, 1),
                kernel(line, true, 5),
                Record::IrqName(IrqName { irq: 24, name }),
            ],
        ];
        let accounting = Accounting::of_record(&stream(1, records.concat())).unwrap();
        assert_eq!(accounting.broken, Vec::<String>::new());
        let cpu = &accounting.regions[0].cpus[0];
        assert_eq!((cpu.spans[0].ended_at_cycles, cpu.spans[0].self_cycles), (109, 7));
        assert_eq!(cpu.kernel, [KernelUse { context: timer, count: 2, edge_max: 1 }]);
        assert_eq!(accounting.name_of(line), "irq 24 nvme");
    }

    #[test]
    fn sums_that_do_not_add_up_are_reported() {
        let timer = KernelContext::Interrupt(0xec).code();
        let broken = |records: &[Vec<Record>]| {
            Accounting::of_record(&stream(1, records.concat())).unwrap().broken
        };
        let short = broken(&[region(0, 5, 0), row(0, timer, 4)]);
        assert!(short[0].contains("CPU 0: the counters of contexts"), "{short:?}");
        let events = "CPU 0: events were out of order or beyond a table's limit (2 events)";
        assert_eq!(broken(&[region(0, 0, 2)]), [events]);
        let softirq = KernelContext::Softirq(1);
        let spans = vec![span(0, softirq), span(0, softirq)];
        let many = broken(&[region(0, 5, 0), row(0, softirq.code(), 5), spans]);
        let line = "CPU 0: softirq TIMER: number of spans differs from completed entries (2 spans, 1 completed)";
        assert_eq!(many, [line]);
        // A kind is one line, on however many CPUs.
        let all = [region(0, 0, 2), region(1, 0, 9), region(2, 0, 5)].concat();
        let broken = Accounting::of_record(&stream(3, all)).unwrap().broken;
        let events = "CPUs 0-2: events were out of order or beyond a table's limit (least: 2 events, CPU 0; most: 9 \
                      events, CPU 1)";
        assert_eq!(broken, [events]);
    }

    #[test]
    fn each_cpu_has_the_opening_of_the_region_on_its_own_clock() {
        let records = [region(0, 0, 0), region(1, 0, 0)].concat();
        let accounting = Accounting::of_record(&stream(2, records)).unwrap();
        let opened = accounting.regions[0].cpus.iter().map(|cpu| cpu.opened_at_cycles);
        assert_eq!(opened.collect::<Vec<_>>(), [40, 41]);
    }

    #[test]
    fn a_cpu_that_goes_offline_is_named_with_its_time() {
        let hotplug = |state, at| vec![Record::Hotplug(Hotplug { cpu: 1, region: 1, state, at })];
        let rows = [region(0, 0, 0), region(1, 0, 0)].concat();
        let went = hotplug(HotplugState::Offline, 291);
        let account =
            Accounting::of_record(&stream(2, [went.clone(), rows.clone()].concat())).unwrap();
        let lines = |account: &Accounting| {
            let mut warnings = CpuWarnings::default();
            let of_region = account.regions[0].hotplug_warnings(1_000);
            of_region.into_iter().for_each(|warning| warnings.add("", warning));
            warnings.lines()
        };
        let [line] = &lines(&account)[..] else { panic!("{:?}", lines(&account)) };
        assert!(line.starts_with("CPU 1: went offline in the window"), "{line}");
        // The region opened for CPU 1 at 41.
        assert!(line.ends_with("(after 0.250 s)") && account.lacks_cpus(), "{line}");
        let came = hotplug(HotplugState::Online, 400);
        let records = [went, came, rows.clone()].concat();
        assert_eq!(lines(&Accounting::of_record(&stream(2, records)).unwrap()).len(), 2);
        let early = hotplug(HotplugState::Offline, 40);
        assert!(Accounting::of_record(&stream(2, [early, rows].concat())).is_err());
    }

    #[test]
    fn times_of_a_withheld_cpu_are_in_the_order_of_time() {
        let withheld = |tsc| Record::Withheld(Withheld { cpu: 1, region: 1, tsc, length: 30 });
        let account = |times: [u64; 2]| {
            let rows = [region(0, 0, 0), region(1, 0, 0)].concat();
            Accounting::of_record(&stream(2, [times.map(withheld).to_vec(), rows].concat()))
        };
        let cpus = &account([500, 530]).unwrap().regions[0].cpus;
        assert_eq!(
            (&cpus[0].withheld[..], &cpus[1].withheld[..]),
            (&[][..], &[500..530, 530..560][..])
        );
        assert!(account([500, 529]).is_err());
    }

    #[test]
    fn records_that_contradict_each_other_are_refused() {
        let idle = || row(0, KernelContext::Idle.code(), 1);
        let timer = KernelContext::Interrupt(0xec);
        for (cpus, records) in [
            (1, idle()),
            (1, region(1, 0, 0)),
            (2, region(0, 0, 0)),
            (2, region(1, 0, 0)),
            (1, [region(0, 0, 0), row(0, u64::MAX, 0)].concat()),
            (1, vec![span(0, timer)]),
            (1, [region(0, 0, 0), vec![span(1, timer)]].concat()),
            (1, vec![kernel(timer, false, 1), kernel(timer, true, 1)]),
        ] {
            assert!(Accounting::of_record(&stream(cpus, records.clone())).is_err(), "{records:?}");
        }
        let empty = Accounting::of_record(&stream(1, Vec::new())).unwrap();
        assert!(empty.regions.is_empty() && empty.ended_by_guest);
    }

    #[test]
    fn without_symbols_all_contexts_are_unknown() {
        let user = KernelContext::User(0).code();
        let rows = [region(0, 9, 0), row(0, user, 5), row(0, KernelContext::Unknown.code(), 4)];
        let mut stream = stream(1, rows.concat());
        stream.header.features = 0;
        let accounting = Accounting::of_record(&stream).unwrap();
        let rows = &accounting.regions[0].cpus[0].contexts;
        let [only] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((only.context, only.self_counts[INSTRUCTIONS]), (KernelContext::Unknown, 9));
        assert_eq!(accounting.broken, Vec::<String>::new());
    }
}
