//! Writes the rows of contexts in a region, and the counts of the guest's own kernel.

use std::collections::BTreeSet;

use attribution::KernelContext;

use crate::guest::regions::Regions;
use crate::guest::tracker::Tracker;
use crate::qemu::Qemu;
use crate::writer::Writer;
use simrecord::counters::Counts;
use simrecord::record::{
    ContextRow, CountersOf, IrqName, KernelCount, Record, Region as RegionRow, Task,
};

/// Writes the rows of all CPUs in the region that is open, and the names of tasks and IRQ lines. `lost`
/// events of any CPU could not be followed.
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

/// Writes the rows of one CPU. Returns the tasks in them.
fn write_cpu(
    regions: &Regions,
    (index, now): (usize, &Counts),
    lost: u64,
    tracker: &mut Tracker,
    writer: &mut Writer,
) -> Vec<u32> {
    let (cpu, region) = (index as u32, regions.number());
    let tracked = &mut tracker.cpus[index];
    let (faults, unknown_gates) = (tracked.faults(), tracked.unknown_gates);
    let used = regions.used(index, now);
    let ledger = tracked.stack.rows(*now);
    let open_sums = u64::from(ledger.total() != used);
    writer.write(&Record::Region(RegionRow {
        cpu,
        region,
        unknown_gates,
        unmatched_returns: faults.unmatched_returns,
        abandoned: faults.abandoned,
        overflows: faults.overflows,
        broken: faults.backward + ledger.refused() + lost + open_sums,
        opened_at: regions.opened_at(index),
    }));
    writer.counters(cpu, CountersOf::Region, &used);
    let mut pids = Vec::new();
    for (context, row) in ledger.rows() {
        pids.extend(pid_of(context));
        let (entries, completed) = (row.entries, row.completed);
        let code = context.code();
        let row_of = ContextRow { cpu, region, code, entries, completed };
        writer.write(&Record::Context(row_of));
        writer.counters(cpu, CountersOf::SelfCounts, &row.self_counts);
        writer.counters(cpu, CountersOf::Inclusive, &row.inclusive);
    }
    pids
}

/// Writes what the guest's kernel has counted itself, where a marker opened the region or is
/// about to close it. Elsewhere no vCPU runs, and the guest's memory can't be read. The counts of a CPU that has gone
/// offline were written then.
pub(crate) fn write_kernel_counts(
    regions: &Regions,
    at_close: bool,
    tracker: &Tracker,
    qemu: &mut Qemu,
    writer: &mut Writer,
) {
    let cpus = (0..tracker.cpus.len()).filter(|cpu| !(at_close && regions.has_left(*cpu)));
    cpus.for_each(|cpu| write_kernel_counts_of(cpu, regions, at_close, tracker, qemu, writer));
}

/// Writes what the guest's kernel has counted itself on one CPU. The vCPU that runs must be in the kernel.
pub(crate) fn write_kernel_counts_of(
    cpu: usize,
    regions: &Regions,
    at_close: bool,
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
        let count = KernelCount { cpu, region, at_close, code, value, inside };
        writer.write(&Record::KernelCount(count));
    }
}

fn pid_of(context: KernelContext) -> Option<u32> {
    match context {
        KernelContext::User(pid) | KernelContext::KernelThread(pid) | KernelContext::Task(pid) => {
            Some(pid)
        }
        _ => None,
    }
}
