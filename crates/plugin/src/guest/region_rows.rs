//! Writes the rows of contexts in a region, and the guest kernel's own counts, with which `sim` compares them. The
//! session calls it where a marker opens, snapshots or closes a region.

use std::collections::BTreeSet;

use attribution::KernelContext;

use crate::guest::regions::{RegionEdge, Regions};
use crate::guest::tracker::Tracker;
use crate::qemu::Qemu;
use crate::writer::Writer;
use simrecord::counters::Counts;
use simrecord::record::{
    ContextRow, CountersOf, IrqName, KernelCount, Record, Region as RegionRow, Task,
};

/// Writes the rows of all CPUs in the open region, and the names of tasks and IRQ lines. `counted`: the current counts
/// of each CPU. `lost`: how many events of any CPU could not be followed.
pub(crate) fn write_contexts(
    regions: &Regions,
    counted: &[Counts],
    lost: u64,
    tracker: &mut Tracker,
    writer: &mut Writer,
) {
    let mut pids = BTreeSet::new();
    for (index, now) in counted.iter().enumerate() {
        pids.extend(write_cpu(regions, (index, now), lost, tracker, writer));
    }
    for pid in pids {
        if let Some(comm) = tracker.name(pid) {
            writer.write(&Record::Task(Task { pid, comm }));
        }
    }
    for (irq, name) in tracker.irqs.names() {
        writer.write(&Record::IrqName(IrqName { irq, name }));
    }
}

/// Writes the rows of one CPU. Returns the process ids of the tasks in them.
fn write_cpu(
    regions: &Regions,
    (index, counts): (usize, &Counts),
    lost: u64,
    tracker: &mut Tracker,
    writer: &mut Writer,
) -> Vec<u32> {
    let (cpu, region) = (index as u32, regions.number());
    let tracked = &mut tracker.cpus[index];
    let (faults, unknown_gates) = (tracked.faults(), tracked.unknown_gates);
    let used_counts = regions.counts_in_region(index, counts);
    let ledger = tracked.stack.rows(*counts);
    let open_sums = u64::from(ledger.total() != used_counts);
    writer.write(&Record::Region(RegionRow {
        cpu,
        region,
        unknown_gates,
        unmatched_returns: faults.unmatched_returns,
        abandoned: faults.abandoned,
        overflows: faults.overflows,
        broken: faults.backward + ledger.refused() + lost + open_sums,
        opened_at: regions.opening_cycle(index),
    }));
    writer.counters(cpu, CountersOf::Region, &used_counts);
    let mut pids = Vec::new();
    for (context, row) in ledger.rows() {
        pids.extend(pid_of(context));
        let (entries, completed) = (row.entries, row.completed);
        let code = context.code();
        writer.write(&Record::Context(ContextRow { cpu, region, code, entries, completed }));
        writer.counters(cpu, CountersOf::SelfCounts, &row.self_counts);
        writer.counters(cpu, CountersOf::Inclusive, &row.inclusive);
    }
    pids
}

/// Writes the kernel's own counts of all CPUs. Call it where a vCPU has opened the region or is about to close it:
/// the guest's memory can only be read while a vCPU runs.
///
/// At the close, CPUs that went offline are left out. Their counts were written at that time.
pub(crate) fn write_kernel_counts(
    regions: &Regions,
    edge: RegionEdge,
    tracker: &Tracker,
    qemu: &mut Qemu,
    writer: &mut Writer,
) {
    let is_left_out = |cpu: &usize| edge == RegionEdge::Close && regions.went_offline(*cpu);
    let cpus = (0..tracker.cpus.len()).filter(|cpu| !is_left_out(cpu));
    cpus.for_each(|cpu| write_kernel_counts_of(cpu, regions, edge, tracker, qemu, writer));
}

/// Writes the kernel's own counts of one CPU. The running vCPU must be in the kernel, whose memory is read.
pub(crate) fn write_kernel_counts_of(
    cpu: usize,
    regions: &Regions,
    edge: RegionEdge,
    tracker: &Tracker,
    qemu: &mut Qemu,
    writer: &mut Writer,
) {
    let Some(symbols) = tracker.symbols.kernel_counts else { return };
    let (stack, cpu) = (&tracker.cpus[cpu].stack, cpu as u32);
    let counts = tracker.irqs.kernel_counts(cpu, &symbols, &tracker.offsets, qemu);
    for (context, value) in counts {
        let (code, value) = (context.code(), u64::from(value));
        let inside = stack.is_inside(context);
        let region = regions.number();
        let at_close = edge == RegionEdge::Close;
        let count = KernelCount { cpu, region, at_close, code, value, inside };
        writer.write(&Record::KernelCount(count));
    }
}

/// The process id in a context, if the context has one.
fn pid_of(context: KernelContext) -> Option<u32> {
    match context {
        KernelContext::User(pid) | KernelContext::KernelThread(pid) | KernelContext::Task(pid) => {
            Some(pid)
        }
        _ => None,
    }
}
