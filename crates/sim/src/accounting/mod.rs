//! What a machine executed, and for whom: the plugin's record, checked and summed up.
//!
//! The one place that knows the plugin's records. What must not be believed in them is said in
//! [`Accounting::broken`]; the numbers must not be used then.

mod annotations;
mod beside;

use std::collections::BTreeMap;

use annotations::outcome;
pub use annotations::{HitUse, NoteUse, ValuesUse};
use attribution::KernelContext;
pub use beside::BesideUse;
use simrecord::counters::Counts;
use simrecord::parsed::{ContextCounts, CpuRegion, parse};
use simrecord::reader::Stream;
use simrecord::record::{
    FEATURE_CONTEXTS, FEATURE_MODEL_TIME, FEATURE_TASKS, KernelCount, MissCount, MissCurvePoint,
    Record, Span, Transition,
};

use crate::text::printable;
use crate::{Result, SimError};

/// What was executed in the regions of interest of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    /// vCPUs of the machine.
    pub cpus: u32,
    /// Whether contexts are told apart.
    pub has_contexts: bool,
    /// Whether tasks have process ids and names.
    pub has_tasks: bool,
    /// Whether guest time followed the model's cycles.
    pub has_model_time: bool,
    /// Bit N is set if counter N of [`simrecord::counters`] was counted.
    pub counters: u32,
    /// Instructions of the whole run on all CPUs, where they were counted.
    pub instructions: Option<u64>,
    /// Whether the guest ended the record, and not QEMU's end.
    pub ended_by_guest: bool,
    /// Whether an annotation ended the record.
    pub stopped: bool,
    /// The regions, in order.
    pub regions: Vec<RegionUse>,
    /// Names of tasks by process id, as the kernel has them.
    pub tasks: BTreeMap<u32, String>,
    /// Names of the first actions of IRQ lines.
    pub irqs: BTreeMap<u32, String>,
    /// Names of spans that annotations open, by number.
    pub spans: Vec<String>,
    /// What came of annotations, by region and by number of the annotation.
    pub notes: BTreeMap<(u32, u32), NoteUse>,
    /// Hits of annotations that recorded values, where they were asked for.
    pub hits: Vec<HitUse>,
    /// What caches of other models have counted beside; of a region that was open to the end.
    pub beside: Vec<BesideUse>,
    /// What caches of all sizes have missed.
    pub curves: Vec<MissCurvePoint>,
    /// Why lines were missed, for whom they had left, and where.
    pub misses: Vec<MissCount>,
    /// What the plugin had to say.
    pub notices: Vec<String>,
    /// Why the numbers can't be trusted; empty when they can.
    pub broken: Vec<String>,
}

/// A region of interest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionUse {
    /// Each CPU, by number.
    pub cpus: Vec<CpuUse>,
}

/// What one CPU executed in a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// The CPU.
    pub cpu: u32,
    /// When the region opened, in cycles on the CPU's time axis.
    pub opened_at_cycles: u64,
    /// What it used in all.
    pub used: Counts,
    /// Entries of handlers to which no symbol belongs, since the record began.
    pub unknown_gates: u64,
    /// Contexts that ended otherwise than by their own return, since the record began.
    pub abandoned: u64,
    /// Entries that were not followed because too many were nested, since the record began.
    pub overflows: u64,
    /// By context, in the order of contexts.
    pub contexts: Vec<ContextUse>,
    /// Spans that ended on this CPU, in the order in which they did; none unless asked for.
    pub spans: Vec<SpanUse>,
    /// What came to be on top of its stack, in order; none unless asked for.
    pub turns: Vec<TurnUse>,
    /// What the guest's kernel has counted itself.
    pub kernel: Vec<KernelUse>,
}

/// What one context used on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextUse {
    /// The context.
    pub context: KernelContext,
    /// Used by the context itself.
    pub own: Counts,
    /// Used from its entries to its exits, over spans that did both in the region.
    pub inclusive: Counts,
    /// Times it was entered.
    pub entries: u64,
    /// Spans in `inclusive`.
    pub completed: u64,
}

impl ContextUse {
    /// What has no known context, of nothing yet.
    fn unknown() -> ContextUse {
        let (own, inclusive) = (Counts::default(), Counts::default());
        ContextUse { context: KernelContext::Unknown, own, inclusive, entries: 0, completed: 0 }
    }
}

/// A span that began and ended in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanUse {
    /// The context.
    pub context: KernelContext,
    /// When it ended, in cycles on the time axis of the CPU.
    pub ended_at_cycles: u64,
    /// Used by the span itself.
    pub own_cycles: u64,
    /// Used from its entry to its exit.
    pub inclusive_cycles: u64,
    /// Instructions that it executed itself.
    pub own_instructions: u64,
}

/// A CPU executes for another context from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnUse {
    /// For which.
    pub context: KernelContext,
    /// The task at the foot of the stack.
    pub foot: KernelContext,
    /// When, in cycles that the CPU had executed: without those it was halted.
    pub cycles: u64,
    /// What the CPU would have read of its time-stamp counter then.
    pub tsc: u64,
}

/// What the guest's kernel has counted itself on one CPU, from the opening of the region to its
/// close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelUse {
    /// Of what.
    pub context: KernelContext,
    /// Its count.
    pub count: u64,
    /// By how much the edges may set it apart: 1 for each at which the CPU was inside.
    pub edge_max: u64,
}

impl Accounting {
    /// Sums up a record.
    ///
    /// # Errors
    /// When records contradict each other: rows of a region that was not opened, CPUs that the
    /// machine does not have, contexts that there are not.
    pub(crate) fn of(stream: &Stream) -> Result<Accounting> {
        let has = |feature: u32| stream.header.features & feature != 0;
        let parsed = parse(stream).map_err(|at| bad(&format!("record {at} does not fit")))?;
        let named = |names: &[(u32, String)]| -> BTreeMap<u32, String> {
            names.iter().map(|(number, name)| (*number, printable(name))).collect()
        };
        let mut account = Accounting {
            cpus: stream.header.cpus,
            has_contexts: has(FEATURE_CONTEXTS),
            has_tasks: has(FEATURE_TASKS),
            has_model_time: has(FEATURE_MODEL_TIME),
            counters: stream.header.counters,
            instructions: stream.end.instructions,
            ended_by_guest: stream.end.by_marker,
            stopped: stream.end.by_annotation,
            tasks: named(&parsed.tasks),
            irqs: named(&parsed.irqs),
            notices: notices(stream),
            ..Accounting::default()
        };
        if stream.end.truncated {
            let most = "more spans or markers than a record has room for: take a shorter window";
            account.broken.push(most.to_owned());
        }
        (account.beside, account.curves) = beside::of(&parsed);
        account.misses = beside::misses(&parsed);
        (account.notes, account.hits) = outcome(&parsed)?;
        account.add_regions(&parsed.regions)?;
        if !account.has_contexts {
            account.forget_contexts();
        }
        account.add_spans(&parsed.spans)?;
        account.add_turns(&parsed.transitions)?;
        account.add_kernel_counts(&parsed.kernel_counts)?;
        account.check();
        Ok(account)
    }

    fn add_regions(&mut self, regions: &[CpuRegion]) -> Result<()> {
        // A snapshot writes the rows of its region so far; those that come later replace them.
        let mut last: BTreeMap<(u32, u32), &CpuRegion> = BTreeMap::new();
        for region in regions {
            last.insert((region.region.region, region.region.cpu), region);
        }
        for ((region, cpu), used) in last {
            if self.regions.len() + 1 == region as usize && cpu == 0 {
                self.regions.push(RegionUse::default());
            }
            let place = self.regions.get_mut((region as usize).wrapping_sub(1));
            let place = place.filter(|place| place.cpus.len() == cpu as usize);
            place.ok_or_else(|| bad("a region lacks a CPU"))?.cpus.push(cpu_use(used));
            let broken = used.region.broken;
            if broken > 0 {
                let words = format!("CPU {cpu}: {broken} events out of order or without a place");
                self.broken.push(words);
            }
        }
        let is_whole = |region: &RegionUse| region.cpus.len() == self.cpus as usize;
        if self.regions.iter().all(is_whole) {
            return Ok(());
        }
        Err(bad("a region has other CPUs than the machine"))
    }

    /// Without symbols the entries to the kernel are not seen: a row of a task would hold all of it.
    fn forget_contexts(&mut self) {
        for cpu in self.regions.iter_mut().flat_map(|region| &mut region.cpus) {
            let mut all = ContextUse::unknown();
            for used in cpu.contexts.drain(..) {
                all.own.iter_mut().zip(used.own).for_each(|(sum, own)| *sum += own);
            }
            cpu.contexts.push(all);
        }
    }

    fn cpu_mut(&mut self, region: u32, cpu: u32) -> Result<&mut CpuUse> {
        let region = self.regions.get_mut((region as usize).wrapping_sub(1));
        let found = region.and_then(|region| region.cpus.get_mut(cpu as usize));
        found.ok_or_else(|| bad("something of no region"))
    }

    fn add_spans(&mut self, spans: &[Span]) -> Result<()> {
        for span in spans {
            let used = SpanUse {
                context: context_of(span.code)?,
                ended_at_cycles: span.start.saturating_add(span.inclusive_cycles),
                own_cycles: span.self_cycles,
                inclusive_cycles: span.inclusive_cycles,
                own_instructions: span.self_instructions,
            };
            self.cpu_mut(span.region, span.cpu)?.spans.push(used);
        }
        Ok(())
    }

    fn add_turns(&mut self, turns: &[Transition]) -> Result<()> {
        for turn in turns {
            let (context, foot) = (context_of(turn.code)?, context_of(turn.task)?);
            let used = TurnUse { context, foot, cycles: turn.cycles, tsc: turn.tsc };
            self.cpu_mut(turn.region, turn.cpu)?.turns.push(used);
        }
        Ok(())
    }

    /// Pairs the kernel's counts at both edges; one that was not known at both tells nothing.
    fn add_kernel_counts(&mut self, counts: &[KernelCount]) -> Result<()> {
        let mut opened: BTreeMap<(u32, u32, u64), &KernelCount> = BTreeMap::new();
        for count in counts {
            let key = (count.region, count.cpu, count.code);
            if !count.at_close {
                opened.insert(key, count);
            } else if let Some(first) = opened.remove(&key) {
                // The kernel's counters have 32 bits.
                let passed = (count.value as u32).wrapping_sub(first.value as u32);
                let used = KernelUse {
                    context: context_of(count.code)?,
                    count: u64::from(passed),
                    edge_max: u64::from(first.inside) + u64::from(count.inside),
                };
                self.cpu_mut(count.region, count.cpu)?.kernel.push(used);
            }
        }
        Ok(())
    }

    /// That all sums close.
    fn check(&mut self) {
        let has_spans = self.regions.iter().flat_map(|region| &region.cpus);
        let has_spans = has_spans.clone().any(|cpu| !cpu.spans.is_empty());
        for used in self.regions.iter().flat_map(|region| &region.cpus) {
            let mut sums = Counts::default();
            for row in &used.contexts {
                sums.iter_mut().zip(row.own).for_each(|(sum, own)| *sum += own);
            }
            if sums != used.used {
                let words = "what contexts used is not what the CPU used";
                self.broken.push(format!("CPU {}: {words}", used.cpu));
            }
            for row in used.contexts.iter().filter(|row| has_spans && is_interrupt(row.context)) {
                let spans = used.spans.iter().filter(|span| span.context == row.context).count();
                if spans as u64 != row.completed {
                    let (cpu, context, completed) = (used.cpu, row.context, row.completed);
                    let words = format!("{spans} spans of {context}, and {completed} ended");
                    self.broken.push(format!("CPU {cpu}: {words}"));
                }
            }
        }
    }

    /// Whether this counter was counted.
    #[must_use]
    pub fn counts(&self, counter: usize) -> bool {
        self.counters.checked_shr(counter as u32).is_some_and(|bits| bits & 1 != 0)
    }

    /// Whether a model counted: without one a cycle is an instruction.
    #[must_use]
    pub fn has_model(&self) -> bool {
        self.counts(simrecord::counters::BRANCHES)
    }

    /// The name of a context, with that of its task or line where it has one.
    #[must_use]
    pub fn name_of(&self, context: KernelContext) -> String {
        if let KernelContext::Function(span) = context
            && let Some(name) = self.spans.get(span as usize)
        {
            return format!("span {name}");
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
}

fn bad(reason: &str) -> SimError {
    SimError::data("the record of the machine", reason)
}

fn context_of(code: u64) -> Result<KernelContext> {
    KernelContext::from_code(code).ok_or_else(|| bad(&format!("no context has the code {code:#x}")))
}

/// Whether it is entered by the hardware, or a softirq: what has spans.
fn is_interrupt(context: KernelContext) -> bool {
    matches!(
        context,
        KernelContext::Interrupt(_)
            | KernelContext::Irq(_)
            | KernelContext::Softirq(_)
            | KernelContext::Exception(_)
            | KernelContext::Nmi
    )
}

fn notices(stream: &Stream) -> Vec<String> {
    let notice = |record: &Record| match record {
        Record::Notice(notice, ..) => Some(notice.to_string()),
        _ => None,
    };
    stream.records.iter().filter_map(notice).collect()
}

fn cpu_use(region: &CpuRegion) -> CpuUse {
    let of = |one: &ContextCounts| ContextUse {
        context: one.context,
        own: one.self_counts,
        inclusive: one.inclusive,
        entries: one.row.entries,
        completed: one.row.completed,
    };
    CpuUse {
        cpu: region.region.cpu,
        opened_at_cycles: region.region.opened_at,
        used: region.used,
        unknown_gates: region.region.unknown_gates,
        abandoned: region.region.abandoned,
        overflows: region.region.overflows,
        contexts: region.contexts.iter().map(of).collect(),
        spans: Vec::new(),
        turns: Vec::new(),
        kernel: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
