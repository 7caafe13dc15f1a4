//! A recording: the machine that is watched, and what is written of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use attribution::KernelContext;

use crate::block::Arena;
use crate::cpu;
use crate::marker;
use crate::options::{Detail, Options};
use crate::qemu::{Qemu, Registers};
use crate::qemu_internals::Icount;
use crate::record::{Check, ContextRow, Marker, MarkerCounts, Notice, Record, Region, Task};
use crate::tracker::{Moment, Tracker};
use crate::writer::Writer;

/// The recording of this process. Blocks don't take the lock; what is rarer does.
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// The recording, locked. `None` before it begins.
pub(crate) fn lock() -> MutexGuard<'static, Option<Session>> {
    // A panic aborts, so the lock is never poisoned in fact.
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The recording, locked, unless it is locked already.
pub(crate) fn try_lock() -> Option<MutexGuard<'static, Option<Session>>> {
    SESSION.try_lock().ok()
}

/// All that belongs to a recording.
pub(crate) struct Session {
    pub(crate) qemu: Qemu,
    pub(crate) options: Options,
    pub(crate) cpus: u32,
    pub(crate) arena: Arena,
    pub(crate) tracker: Tracker,
    pub(crate) writer: Writer,
    /// Found when the first vCPU is made.
    pub(crate) registers: Option<Registers>,
    /// The thread of all vCPUs.
    pub(crate) thread: Option<ThreadId>,
    pub(crate) icount: Option<Icount>,
    /// Whether the next discontinuity compares counts.
    pub(crate) check_due: bool,
    /// Counts regions from 1; 0 before the first.
    pub(crate) region: u32,
    pub(crate) open: bool,
    /// Instructions of each CPU when the region was opened.
    pub(crate) opened_at: Vec<u64>,
    pub(crate) ended: bool,
    /// Interrupts on another vCPU than the one that was thought to run. There must be none.
    pub(crate) misplaced: u64,
}

// SAFETY: descriptions in the arena and handles of registers are used by the vCPUs' thread, and at
// exit, when it has stopped; the lock is held for all but reading descriptions.
unsafe impl Send for Session {}

impl Session {
    /// Whether instructions are counted.
    pub(crate) fn counts(&self) -> bool {
        self.options.detail == Detail::Count
    }

    /// The guest at an event on a vCPU, when `remaining` instructions of the block that was counted
    /// are still to execute, and the tracker to tell of it.
    pub(crate) fn moment(
        &mut self,
        vcpu: u32,
        remaining: u32,
    ) -> Option<(&mut Tracker, Moment<'_>)> {
        let now = executed(vcpu) - u64::from(remaining);
        let registers = self.registers?;
        Some((&mut self.tracker, Moment { qemu: &mut self.qemu, registers, now }))
    }

    /// Writes a notice, and says it on the standard error output.
    pub(crate) fn notice(&mut self, notice: Notice, cpu: u32, value: u64) {
        eprintln!("irqlab plugin: {notice}");
        self.writer.write(&Record::Notice(notice, cpu, value));
    }

    /// The guest executes a marker on vCPU `vcpu`.
    pub(crate) fn marker(&mut self, vcpu: u32, remaining: u32) {
        let Some(registers) = self.registers else { return };
        let number = self.qemu.register_value(registers.rax) as u32;
        let argument = self.qemu.register_value(registers.rdx);
        let counted =
            if self.counts() { self.executed_by_all(vcpu, remaining) } else { Vec::new() };
        let counts = counted.get(vcpu as usize).map(|instructions| MarkerCounts {
            instructions: *instructions,
            instructions_total: counted.iter().sum(),
            interrupts: self.tracker.cpus[vcpu as usize].interrupts,
            exceptions: self.tracker.cpus[vcpu as usize].exceptions,
        });
        let open = match number {
            marker::OPEN => true,
            marker::CLOSE | marker::END => false,
            _ => self.open,
        };
        self.writer.write(&Record::Marker(Marker { cpu: vcpu, number, argument, open, counts }));
        self.tracker.name_current(vcpu as usize, &mut self.qemu);
        match number {
            marker::OPEN => self.open_region(&counted),
            marker::CLOSE => self.close_region(&counted),
            marker::SNAPSHOT => self.write_region(&counted),
            marker::END => {
                self.close_region(&counted);
                self.end(true, counts.map(|counts| counts.instructions_total));
            }
            _ => {}
        }
        self.check_due = self.options.check;
    }

    /// Opens the region of interest.
    pub(crate) fn open_region(&mut self, counted: &[u64]) {
        if self.open {
            return;
        }
        self.open = true;
        self.region += 1;
        self.opened_at = counted.to_vec();
        for (tracked, now) in self.tracker.cpus.iter_mut().zip(counted) {
            tracked.stack.open_region(*now);
        }
    }

    fn close_region(&mut self, counted: &[u64]) {
        self.write_region(counted);
        self.open = false;
        for (tracked, now) in self.tracker.cpus.iter_mut().zip(counted) {
            tracked.stack.close_region(*now);
        }
    }

    /// Writes the rows of the region that is open, and the names of the tasks in them.
    fn write_region(&mut self, counted: &[u64]) {
        if !self.open {
            return;
        }
        let (region, lost) = (self.region, self.tracker.tasks_dropped() + self.misplaced);
        let mut pids = std::collections::BTreeSet::new();
        for (index, now) in counted.iter().enumerate() {
            let cpu = index as u32;
            let tracked = &mut self.tracker.cpus[index];
            let faults = tracked.faults();
            let unknown_gates = tracked.unknown_gates;
            let ledger = tracked.stack.rows(*now);
            self.writer.write(&Record::Region(Region {
                cpu,
                region,
                instructions: now - self.opened_at[index],
                unknown_gates,
                unmatched_returns: faults.unmatched_returns,
                abandoned: faults.abandoned,
                overflows: faults.overflows,
                broken: faults.backward + ledger.refused() + lost,
            }));
            for (context, row) in ledger.rows() {
                pids.extend(pid_of(context));
                self.writer.write(&Record::Context(ContextRow {
                    cpu,
                    region,
                    code: context.code(),
                    own: row.own,
                    inclusive: row.inclusive,
                    entries: row.entries,
                    completed: row.completed,
                }));
            }
        }
        for pid in pids {
            if let Some(comm) = self.tracker.name(pid) {
                self.writer.write(&Record::Task(Task { pid, comm }));
            }
        }
        self.writer.flush();
    }

    /// QEMU ends.
    pub(crate) fn exit(&mut self) {
        if self.ended {
            self.writer.flush();
            return;
        }
        let counted: Vec<u64> =
            if self.counts() { (0..self.cpus).map(executed).collect() } else { Vec::new() };
        self.close_region(&counted);
        let instructions = self.counts().then(|| counted.iter().sum());
        self.end(false, instructions);
    }

    /// Compares counts with QEMU's own; between two blocks.
    pub(crate) fn check(&mut self) {
        self.check_due = false;
        if let Some(icount) = self.icount
            && !self.ended
        {
            let counted = (0..self.cpus).map(executed).sum();
            self.writer.write(&Record::Check(Check { counted, icount: icount.get() }));
        }
    }

    fn end(&mut self, by_marker: bool, instructions: Option<u64>) {
        self.writer.end(by_marker, instructions);
        self.ended = true;
    }

    fn executed_by_all(&self, vcpu: u32, remaining: u32) -> Vec<u64> {
        let remaining = |cpu| if cpu == vcpu { u64::from(remaining) } else { 0 };
        (0..self.cpus).map(|cpu| executed(cpu) - remaining(cpu)).collect()
    }
}

fn executed(vcpu: u32) -> u64 {
    cpu::with(vcpu, |cpu| cpu.instructions())
}

fn pid_of(context: KernelContext) -> Option<u32> {
    match context {
        KernelContext::User(pid) | KernelContext::KernelThread(pid) | KernelContext::Task(pid) => {
            Some(pid)
        }
        _ => None,
    }
}
