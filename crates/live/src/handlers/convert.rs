//! Converts the rows of the BPF maps (`bpf/rows.h`) to the samples of the experiment (`lab::handlers`),
//! and names their contexts.

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::key::ContextKey;
use attribution::{Context, ContextKind};
use lab::handlers::{Agreement, ContextStats, CpuWindow, EventSums, Timing};
use stats::{Batch, Batches, Distribution, LogLinear, Peak, SectionCounts, Sections};

use crate::bpf::CountedRow;
use crate::bpf::layout::{BATCHES, CpuState, HISTOGRAM_SLOTS, Row, SECTION_SLOTS, SECTIONS};
use crate::host::{KernelFunctions, Root, irq_of_thread};
use crate::probe_overhead::events::EventOverheads;

/// Longest name of an action or device.
const NAME_BYTES_MAX: usize = 64;

/// The context of a row, and how its time is measured. `None` for keys of the bench itself and of delays.
#[must_use]
pub fn context_of(
    row: &Row,
    root: &Root,
    functions: &KernelFunctions,
) -> Option<(Context, Timing)> {
    let context = |kind, number: u32, name: &str| Context { kind, number, name: name.to_owned() };
    match ContextKey::from_key(row.key)? {
        ContextKey::Bench
        | ContextKey::DelayOfSoftirq(_)
        | ContextKey::DelayOfFunctions(_)
        | ContextKey::DelayOfIrqThread(_) => None,
        ContextKey::Nmi => Some((context(ContextKind::Nmi, 2, "nmi_handler"), Timing::Kernel)),
        ContextKey::FaultUser => {
            Some((context(ContextKind::Exception, 14, "page_fault_user"), Timing::CountOnly))
        }
        ContextKey::FaultKernel => {
            Some((context(ContextKind::Exception, 14, "page_fault_kernel"), Timing::CountOnly))
        }
        ContextKey::Napi => {
            let name = read_name(row).unwrap_or_else(|| "(no device)".to_owned());
            Some((context(ContextKind::NapiPoll, row.number, &name), Timing::Packets))
        }
        ContextKey::Callback(kind) => {
            let timing = if kind == ContextKind::Rcu { Timing::CountOnly } else { Timing::Probes };
            Some((context(kind, 0, &functions.name(row.object)), timing))
        }
        ContextKey::Irq(irq) => {
            let name = read_name(row).unwrap_or_else(|| actions_of(root, irq));
            Some((context(ContextKind::HardIrq, irq, &name), Timing::Probes))
        }
        ContextKey::IrqThread(_) => Some((thread_of(row)?, Timing::Probes)),
        ContextKey::Softirq(number) => {
            let name = SOFTIRQS.get(number as usize)?;
            Some((context(ContextKind::Softirq, number, name), Timing::Probes))
        }
        ContextKey::Vector(number) => {
            let name = VECTORS.get(number as usize)?;
            Some((context(ContextKind::Vector, number, name), Timing::Probes))
        }
    }
}

/// The thread of an IRQ line, by the name that the BPF program stored.
pub(super) fn thread_of(row: &Row) -> Option<Context> {
    let comm = read_name(row)?;
    let (number, name) = irq_of_thread(&comm)?;
    Some(Context { kind: ContextKind::IrqThread, number, name: name.to_owned() })
}

/// The name that the BPF program stored; `None` if it stored none.
fn read_name(row: &Row) -> Option<String> {
    let end = row.name.iter().position(|byte| *byte == 0).unwrap_or(row.name.len());
    (end > 0).then(|| String::from_utf8_lossy(&row.name[..end]).into_owned())
}

/// The names of an IRQ line's actions, from sysfs, for a kernel without BTF.
pub(super) fn actions_of(root: &Root, irq: u32) -> String {
    let listed = root.word(format!("sys/kernel/irq/{irq}/actions"));
    let mut name = listed.unwrap_or_else(|| "(name not read)".to_owned());
    let end = name.char_indices().map(|(index, _)| index).find(|index| *index > NAME_BYTES_MAX);
    name.truncate(end.unwrap_or(name.len()));
    name
}

/// The sum of two histograms: of spans that no other span interrupted, and of interrupted spans (if there are any).
pub(crate) fn histogram(alone: &[u64], nested: Option<&[u64; HISTOGRAM_SLOTS]>) -> LogLinear {
    let mut sum = LogLinear::default();
    let parts = [Some(alone), nested.map(<[u64; _]>::as_slice)];
    for part in parts.into_iter().flatten().filter_map(|part| LogLinear::from_counts(part.to_vec()))
    {
        sum.merge(&part);
    }
    sum
}

/// The self times of a row. In a pass with events they have no histogram and no batches: the row's memory has the
/// batches of the events instead.
pub(super) fn self_times(row: &CountedRow, window_ns: u64, has_events: bool) -> Distribution {
    let sums = Distribution {
        count: row.count,
        sum: row.sum,
        sum_of_squares: u128::from(row.squares_high) << 64 | u128::from(row.squares_low),
        peak: Peak { value: row.max, at: row.max_at_ns },
        ..Distribution::default()
    };
    if has_events {
        return sums;
    }
    let cell = |cell: &crate::bpf::layout::Batch| Batch { count: cell.count, sum: cell.sum };
    let mut batches =
        Batches { shift: row.batch_shift, cells: row.batches.iter().map(cell).collect() };
    batches.cover(window_ns);
    let histogram = histogram(&row.slots, row.nested.as_ref().map(|nested| &nested.self_time));
    Distribution { histogram, batches, sections: sections(row, window_ns), ..sums }
}

/// The histograms of a row in each section of a window. Empty if the counts do not add up to the row's count,
/// because one has overflowed.
fn sections(row: &Row, window_ns: u64) -> Sections {
    let counted: u64 = row.sections.iter().map(|count| u64::from(*count)).sum();
    if counted != row.count {
        return Sections::default();
    }
    let section = |counts: &[u32]| {
        // The row stores only the slots from `section_base` on.
        let slots_below = std::iter::repeat_n(0, row.section_base as usize);
        let counts = counts.iter().map(|count| u64::from(*count));
        SectionCounts(slots_below.chain(counts).take(HISTOGRAM_SLOTS).collect())
    };
    let cells = row.sections.chunks_exact(SECTION_SLOTS).map(section).collect();
    let shift = row.batch_shift + (BATCHES / SECTIONS).ilog2();
    let mut sections = Sections { shift, cells };
    sections.cover(window_ns);
    sections
}

/// The inclusive times of a row: self times plus the spans that interrupted them. No histogram in a pass with events.
fn inclusive_times(row: &CountedRow, has_events: bool) -> Distribution {
    let uninterrupted_peak = Peak { value: row.max, at: row.max_at_ns };
    let interrupted_peak = Peak { value: row.nested_max, at: row.nested_max_at_ns };
    let times = row.nested.as_ref().map(|nested| &nested.inclusive_time);
    Distribution {
        count: row.count,
        sum: row.inclusive_sum_ns(),
        sum_of_squares: 0,
        peak: uninterrupted_peak.max(interrupted_peak),
        histogram: if has_events { LogLinear::default() } else { histogram(&row.slots, times) },
        batches: Batches::default(),
        sections: Sections::default(),
    }
}

/// The statistics of a row's context in a window. `None` for keys of the bench itself and of delays. Only contexts with probes at
/// entry and exit have inclusive times; the kernel's own times and packet counts have none.
#[must_use]
pub fn context_stats(
    row: &CountedRow,
    window: &CpuWindow,
    overheads: &EventOverheads,
    root: &Root,
    functions: &KernelFunctions,
) -> Option<ContextStats> {
    let (context, timing) = context_of(row, root, functions)?;
    let events = overheads.events();
    let has_events = events > 0;
    let event_overheads = overheads.added_by_probes(row);
    let is_timed = timing != Timing::CountOnly;
    Some(ContextStats {
        cpu: row.cpu,
        context,
        timing,
        count: row.count,
        own: if is_timed {
            self_times(row, window.length_ns, has_events)
        } else {
            Distribution::default()
        },
        inclusive: if timing == Timing::Probes {
            inclusive_times(row, has_events)
        } else {
            Distribution::default()
        },
        nested_count: row.nested_count,
        special_count: row.special,
        clamped_count: row.clamped,
        clamped_total_ns: row.clamped_ns,
        probe_overhead_total_ns: row.overhead_ns,
        abandoned_count: row.abandoned,
        shared: row.shared != 0,
        events: EventSums {
            spans: row.event_spans,
            own: row.event_self[..events].to_vec(),
            inclusive: row.event_inclusive[..events].to_vec(),
            added: event_overheads.iter().map(|overhead| overhead.total).collect(),
            added_mean_ci95: event_overheads
                .iter()
                .map(|overhead| overhead.mean_half_width)
                .collect(),
            batches: if has_events {
                row.event_batches(events, window.length_ns)
            } else {
                Batches::default()
            },
        },
    })
}

/// Vectors that the kernel counts but that have no tracepoint: label in /proc/interrupts, name, vector number
/// (arch/x86/include/asm/irq_vectors.h).
const COUNTED_BY_KERNEL: [(&str, &str, u32); 2] =
    [("HYP", "hypervisor_callback", 0xf3), ("PMI", "performance_monitoring", 0xee)];

/// The sample of a vector without probes, from the kernel's count. `None` for all other lines, and for a count of 0.
#[must_use]
pub fn sample_of_counter(line: &Agreement) -> Option<ContextStats> {
    let count = line.kernel_exact.or(line.kernel_min).filter(|count| *count > 0)?;
    let (_, name, number) = COUNTED_BY_KERNEL.iter().find(|(label, _, _)| *label == line.line)?;
    let context = Context { kind: ContextKind::Vector, number: *number, name: (*name).to_owned() };
    Some(ContextStats::new(line.cpu, context, Timing::CountOnly, count))
}

/// Converts the state of a CPU to its window.
#[must_use]
pub fn window_of(cpu: u32, state: &CpuState) -> CpuWindow {
    CpuWindow {
        cpu,
        start_ns: Some(state.armed_ns),
        length_ns: state.window_ns(),
        went_offline: state.went_offline != 0,
        unmatched_exits: Some(state.unmatched_exits),
        abandoned: Some(state.abandoned),
        overflows: state.overflows,
        unattributed: state.unattributed,
    }
}
