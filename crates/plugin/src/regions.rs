//! Regions of interest: opening them, and writing what was used in them.

use std::collections::BTreeSet;

use attribution::{ContextTransition, KernelContext, KernelSpan};

use crate::cpu;
use crate::sampling::UnitPart;
use crate::session::Session;
use crate::writer::Writer;
use simrecord::counters::{COUNTERS, CYCLES, Counts, INSTRUCTIONS, TIME};
use simrecord::record::{
    COUNTERS_PER_RECORD, ContextRow, Counters, CountersOf, Detail, IrqName, KernelCount, Record,
    Region, SampledPart, Span, Task, Transition,
};

/// Writes counters, some a record.
pub(crate) fn write_counters(writer: &mut Writer, cpu: u32, of: CountersOf, counts: &Counts) {
    for (part, some) in counts.chunks(COUNTERS_PER_RECORD).enumerate() {
        let mut values = [0; COUNTERS_PER_RECORD];
        values[..some.len()].copy_from_slice(some);
        let first = (part * COUNTERS_PER_RECORD) as u32;
        writer.write(&Record::Counters(Counters { cpu, of, first, values }));
    }
}

/// Writes the counters of a span itself, without records of zeros.
pub(crate) fn write_span_counters(writer: &mut Writer, cpu: u32, counts: &Counts) {
    write_without_zeros(writer, cpu, CountersOf::Span, counts);
}

fn write_without_zeros(writer: &mut Writer, cpu: u32, of: CountersOf, counts: &Counts) {
    for (part, some) in counts.chunks(COUNTERS_PER_RECORD).enumerate() {
        let mut values = [0; COUNTERS_PER_RECORD];
        values[..some.len()].copy_from_slice(some);
        let first = (part * COUNTERS_PER_RECORD) as u32;
        if part == 0 || values.iter().any(|value| *value > 0) {
            writer.write(&Record::Counters(Counters { cpu, of, first, values }));
        }
    }
}

/// The record of a span that ended.
pub(crate) fn span(cpu: u32, region: u32, span: &KernelSpan<COUNTERS>) -> Record {
    Record::Span(Span {
        cpu,
        region,
        code: span.context.code(),
        start: span.start,
        self_cycles: span.self_counts[CYCLES],
        inclusive_cycles: span.inclusive[CYCLES],
        self_instructions: span.self_counts[INSTRUCTIONS],
        inclusive_instructions: span.inclusive[INSTRUCTIONS],
    })
}

/// The record of a transition to another context.
pub(crate) fn transition(
    cpu: u32,
    region: u32,
    to: &ContextTransition<COUNTERS>,
    tsc: u64,
) -> Record {
    let (code, task) = (to.context.code(), to.task.code());
    let (at, cycles) = (to.at[TIME], to.at[CYCLES]);
    Record::Transition(Transition { cpu, region, code, task, at, cycles, tsc })
}

impl Session {
    /// Opens the region of interest.
    pub(crate) fn open_region(&mut self, counted: &[Counts]) {
        if self.open {
            return;
        }
        self.open = true;
        self.region += 1;
        self.opened_at = counted.to_vec();
        self.annotations.open_region();
        // SAFETY: null, or alive as long as the process; no use is nested in another.
        if let Some(shadow_caches) = unsafe { self.shadow_caches.as_mut() } {
            shadow_caches.open_region();
        }
        if let Some(processors) = self.processors.as_mut().filter(|_| self.options.misses) {
            processors.watch_misses(self.options.services);
        }
        for (tracked, now) in self.tracker.cpus.iter_mut().zip(counted) {
            tracked.stack.open_region(*now);
        }
        self.tracker.open_services();
        self.set_sampled_region(Some(self.region));
        // What each is in the middle of.
        (0..self.cpus).for_each(|vcpu| self.tracked(vcpu));
    }

    /// Writes the region, and closes it.
    pub(crate) fn close_region(&mut self, counted: &[Counts]) {
        self.write_region(counted);
        self.open = false;
        self.set_sampled_region(None);
        self.write_sampled();
        for (tracked, now) in self.tracker.cpus.iter_mut().zip(counted) {
            tracked.stack.close_region(*now);
        }
    }

    /// Writes the rows of the region that is open, and the names of tasks and IRQ lines.
    pub(crate) fn write_region(&mut self, counted: &[Counts]) {
        if !self.open {
            return;
        }
        let mut pids = BTreeSet::new();
        for (index, now) in counted.iter().enumerate() {
            pids.extend(self.write_cpu(index, now));
        }
        for pid in pids {
            if let Some(comm) = self.tracker.name(pid) {
                self.writer.write(&Record::Task(Task { pid, comm }));
            }
        }
        for (irq, name) in self.tracker.irqs.names() {
            self.writer.write(&Record::IrqName(IrqName { irq, name }));
        }
        self.write_services(counted);
        self.annotations.write_region(&mut self.writer, self.region, self.cpus);
        self.write_shadow_caches();
        self.writer.flush();
    }

    /// Tells the samplers of all vCPUs which region is open.
    fn set_sampled_region(&self, region: Option<u32>) {
        for vcpu in 0..self.cpus {
            cpu::with(vcpu, |cpu| cpu.set_sampled_region(region));
        }
    }

    /// Writes the parts of sampled units that have ended.
    fn write_sampled(&mut self) {
        for cpu in 0..self.cpus {
            for UnitPart { region, unit, code, counts } in cpu::with(cpu, |cpu| cpu.take_sampled())
            {
                self.writer.write(&Record::SampledPart(SampledPart { cpu, region, code, unit }));
                write_without_zeros(&mut self.writer, cpu, CountersOf::SampledPart, &counts);
            }
        }
    }

    /// Writes the counts of shadow caches, and the classes of the model's own misses.
    fn write_shadow_caches(&mut self) {
        self.miss_rows().iter().for_each(|row| self.writer.write(row));
        let names: Vec<Record> = self.tracker.structures.names().collect();
        names.iter().for_each(|name| self.writer.write(name));
        // SAFETY: as above.
        let Some(shadow_caches) = (unsafe { self.shadow_caches.as_mut() }) else { return };
        for (row, counts) in shadow_caches.rows(self.region) {
            self.writer.write(&Record::ShadowCaches(row));
            write_counters(&mut self.writer, 0, CountersOf::ShadowCaches, &counts);
        }
        for point in shadow_caches.points(self.region) {
            self.writer.write(&Record::MissCurvePoint(point));
        }
    }

    /// Writes the rows of one CPU; the tasks in them.
    fn write_cpu(&mut self, index: usize, now: &Counts) -> Vec<u32> {
        let (cpu, region) = (index as u32, self.region);
        let lost = self.tracker.tasks_dropped() + self.misplaced + self.uncorrected;
        let tracked = &mut self.tracker.cpus[index];
        let (faults, unknown_gates) = (tracked.faults(), tracked.unknown_gates);
        let used: Counts =
            std::array::from_fn(|position| now[position] - self.opened_at[index][position]);
        let ledger = tracked.stack.rows(*now);
        let open_sums = u64::from(ledger.total() != used);
        self.writer.write(&Record::Region(Region {
            cpu,
            region,
            unknown_gates,
            unmatched_returns: faults.unmatched_returns,
            abandoned: faults.abandoned,
            overflows: faults.overflows,
            broken: faults.backward + ledger.refused() + lost + open_sums,
            opened_at: self.opened_at[index][TIME],
        }));
        write_counters(&mut self.writer, cpu, CountersOf::Region, &used);
        let mut pids = Vec::new();
        for (context, row) in ledger.rows() {
            pids.extend(pid_of(context));
            let (entries, completed) = (row.entries, row.completed);
            let code = context.code();
            let row_of = ContextRow { cpu, region, code, entries, completed };
            self.writer.write(&Record::Context(row_of));
            write_counters(&mut self.writer, cpu, CountersOf::SelfCounts, &row.self_counts);
            write_counters(&mut self.writer, cpu, CountersOf::Inclusive, &row.inclusive);
        }
        pids
    }

    /// Writes what the guest's kernel has counted itself, where a marker opened the region or is
    /// about to close it. Elsewhere no vCPU runs, and the guest's memory can't be read.
    pub(crate) fn write_kernel_counts(&mut self, at_close: bool) {
        // Without regions of our own there is nothing to compare them with.
        let compares = self.options.detail != Detail::Fast;
        let symbols = self.tracker.symbols.kernel_counts.filter(|_| compares);
        let Some(symbols) = symbols else { return };
        let (tracker, region) = (&self.tracker, self.region);
        for (cpu, tracked) in (0..).zip(&tracker.cpus) {
            let counts =
                tracker.irqs.kernel_counts(cpu, &symbols, &tracker.offsets, &mut self.qemu);
            for (context, value) in counts {
                let (code, value) = (context.code(), u64::from(value));
                let inside = tracked.stack.is_inside(context);
                let count = KernelCount { cpu, region, at_close, code, value, inside };
                self.writer.write(&Record::KernelCount(count));
            }
        }
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
