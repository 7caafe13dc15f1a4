//! Checks the plugin's record and sums it up: how much a machine executed, by CPU and context.
//!
//! Every simulated bench gets its [`Accounting`] from [`crate::watch::Recording::accounting`] after its machine has
//! ended. Only this module and [`crate::divergence`] read records.
//! A record may be damaged: each CPU number, region and context is checked before it is used.
//! [`Accounting::broken`] says why the numbers of a record cannot be trusted. Callers must not use them then.

mod annotations;
mod sampled;
mod senders;
mod services;
#[cfg(test)]
mod tests;
mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use attribution::{KernelContext, SYSCALL_32};
use lab::cpu_warnings::{CpuWarning, CpuWarnings};
use lab::services::syscall_name;
use simrecord::counters::{CYCLES, Counts, is_of_memory};
use simrecord::marker;
use simrecord::parsed::{
    ContextCounts, CpuRegion, MarkerCounts, ParsedRecord, ShadowCacheCounts, parse,
};
use simrecord::reader::{self, Stream};
use simrecord::record::{
    self, Completion, ExecutedBlock, FEATURE_CONTEXTS, FEATURE_MODEL_TIME, FEATURE_SAMPLED,
    FEATURE_TASKS, Hotplug, HotplugState, KernelCount, MissCount, MissCurvePoint, MissKind, Notice,
    Record, SampledPart, Span, TaskGroup, Transition, USER_MODE, Withheld,
};

use crate::text::printable;
use crate::{Result, SimError};
pub use annotations::{AnnotationUse, Hit, RecordedValues};
pub use sampled::{SampledCycles, WARMING_ERROR};
pub use senders::{QueuedRunUse, SendersUse, SentUse};
pub use services::{ServiceUse, ServiceWaitUse, ServicesUse};
pub use uses::{
    BlockStart, CACHE_NAMES, CompletionUse, ContextTransition, ContextUse, CpuUse, DelayUse,
    GroupChange, KernelUse, RegionUse, SampledPartUse, ShadowCacheUse, SpanUse,
};

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
    /// Paths of control groups of version 2, by the kernel's id.
    pub group_paths: BTreeMap<u64, String>,
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
            user_functions: parsed.user_functions.iter().map(named_by_number).collect(),
            group_paths: parsed.group_paths.iter().map(named_by_number).collect(),
            notices: notices(stream),
            ..Accounting::default()
        };
        if stream.end.truncated {
            accounting.broken.push(RECORD_FULL.to_owned());
        }
        (accounting.shadow_caches, accounting.miss_curves) = shadow_caches(&parsed);
        accounting.misses = misses(&parsed);
        (accounting.annotations, accounting.hits) = annotations::annotations(&parsed)?;
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
        accounting.add_task_groups(&parsed.task_groups)?;
        accounting.add_completions(&parsed.completions)?;
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

    /// Adds the groups of tasks to their CPUs. Fails if they are not in the order of time.
    fn add_task_groups(&mut self, rows: &[TaskGroup]) -> Result<()> {
        for row in rows {
            let change = GroupChange { at_cycles: row.at, tsc: row.tsc, group: row.group };
            let groups = &mut self.cpu_mut(row.region, row.cpu)?.groups;
            if groups.last().is_some_and(|last| last.at_cycles > row.at || last.tsc > row.tsc) {
                return Err(bad("control groups of tasks are out of order"));
            }
            groups.push(change);
        }
        Ok(())
    }

    fn add_completions(&mut self, rows: &[Completion]) -> Result<()> {
        for row in rows {
            let completion = CompletionUse {
                request: row.request,
                at_cycles: row.at,
                submitter: context_of(row.code)?,
                task: task_name(&row.comm),
                group: row.group,
            };
            self.cpu_mut(row.region, row.cpu)?.completions.push(completion);
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
fn named_by_number((number, name): (&u64, &Vec<u8>)) -> (u64, String) {
    (*number, printable(&String::from_utf8_lossy(name)))
}

fn add(sum: &mut Counts, counts: &Counts) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

/// The name of a task in the kernel, which is padded with zeros.
fn task_name(comm: &[u8]) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    printable(&String::from_utf8_lossy(&comm[..end]))
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
        groups: Vec::new(),
        completions: Vec::new(),
        blocks: Vec::new(),
        kernel: Vec::new(),
    }
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
