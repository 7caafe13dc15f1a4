//! Services of the kernel: system calls, page faults, the scheduler and others. This part of the [`Tracker`] follows
//! them at the points that `plugin_interface::symbols` lists, and writes their counts where a region closes.
//!
//! Only recordings with the option `services` use it. It runs in the vCPUs' thread, with the session locked.

use attribution::{FaultKind, KernelContext, LockClient, LockPlace, Profile, RequestPart};

use crate::guest::regions::Regions;
use crate::guest::service_sums::ServiceSums;
use crate::guest::structures::Guest;
use crate::guest::task::is_blocked;
use crate::guest::tracker::{Moment, Tracker};
use crate::writer::Writer;
use plugin_interface::symbols::{Action, FaultStep};
use simrecord::counters::{
    COUNTERS, Counts, DATA_STALL_CYCLES, FETCH_STALL_CYCLES, PIPELINE_STALL_CYCLES, TIME,
};
use simrecord::record::{
    CountersOf, LockCounts, ProfileSlot, Record, ServiceBucket, ServiceRow, ServiceTime,
    ServiceTotals, ServiceWait, SyscallFunction,
};

/// The most system calls whose functions are read.
const SYSCALLS_MAX: u64 = 512;
/// Bit of a page fault's flags: the access is a write.
const FAULT_FLAG_WRITE: u32 = 1;
/// Flag of an area of user memory that other processes share.
const VM_SHARED: u64 = 8;

impl ServiceSums {
    /// Reads the addresses of the functions of system calls from the kernel's `table`, once. The running vCPU must be
    /// in the kernel.
    fn read_functions(&mut self, table: Option<u64>, moment: &mut Moment<'_>) {
        if !self.functions.is_empty() {
            return;
        }
        let Some(table) = table else { return };
        let read =
            (0..SYSCALLS_MAX).map_while(|number| moment.word(table.wrapping_add(8 * number)));
        self.functions = read.collect();
    }
}

/// When the kernel adds a page fault to its count `pgfault`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedAt {
    /// Each time that it starts to handle the fault, also when it starts again after it has waited.
    Start,
    /// Once the fault is handled.
    Completion,
}

/// The first release that counts page faults at their completion.
const COUNTS_COMPLETED_FAULTS_SINCE: u64 = 6_004;

/// When a kernel counts page faults. `release`: see [`plugin_interface::symbols::release_number`].
fn counted_at(release: Option<u64>) -> CountedAt {
    match release {
        Some(release) if release >= COUNTS_COMPLETED_FAULTS_SINCE => CountedAt::Completion,
        _ => CountedAt::Start,
    }
}

/// Whether the handling of a page fault with this result of `handle_mm_fault` is not complete: the kernel starts again.
fn is_retried(result: u64) -> bool {
    /// VM_FAULT_RETRY in include/linux/mm_types.h.
    const RETRY: u64 = 0x400;
    result & RETRY != 0
}

/// A vCPU at the first instruction of a followed function.
struct CallPoint {
    /// The address of the function.
    address: u64,
    /// The stack pointer, which points to the return address.
    stack_pointer: u64,
}

impl Tracker {
    /// Records services from now on.
    pub(crate) fn keep_services(&mut self) {
        self.services = Some(ServiceSums::default());
        for cpu in &mut self.cpus {
            cpu.stack.keep_requests();
            cpu.stack.keep_profile();
        }
    }

    /// Sets the sums of services to zero, because a region opens.
    pub(crate) fn open_services(&mut self) {
        if let Some(services) = &mut self.services {
            let functions = std::mem::take(&mut services.functions);
            let (last_tasks, handled_faults) = (services.last_tasks, services.handled_faults);
            let faults_before = handled_faults;
            *services = ServiceSums {
                functions,
                last_tasks,
                handled_faults,
                faults_before,
                ..ServiceSums::default()
            };
            self.tasks.reset_counts();
            for cpu in &mut self.cpus {
                // These requests have ended before the region.
                cpu.stack.take_requests().for_each(drop);
                cpu.stack.take_blocked().for_each(drop);
            }
        }
    }

    /// Handles an instruction at `address` that starts, ends or classifies a service, before the instruction executes.
    pub(crate) fn handle_service_point(
        &mut self,
        cpu: usize,
        action: Action,
        address: u64,
        mut moment: Moment<'_>,
    ) {
        let stack_pointer = moment.rsp();
        match action {
            Action::Schedule => {
                if let Some(services) = &mut self.services {
                    services.read_functions(self.symbols.syscall_table, &mut moment);
                }
                let Some(return_to) = moment.word(stack_pointer) else { return };
                let stack = &mut self.cpus[cpu].stack;
                stack.enter_call(KernelContext::Scheduler, return_to, stack_pointer, moment.now);
            }
            Action::WakeUp => self.wake_task(&mut moment),
            Action::Fault(step) => self.handle_fault_step(cpu, step, stack_pointer, &mut moment),
            Action::Wait { number, is_general } => {
                let Some(return_to) = moment.word(stack_pointer) else { return };
                let stack = &mut self.cpus[cpu].stack;
                if !(is_general && stack.is_in_wait(stack_pointer)) {
                    stack.enter_wait(number.into(), return_to, stack_pointer);
                }
            }
            Action::TakeLock(_) | Action::ContendLock { .. } | Action::ReleaseLock => {
                let point = CallPoint { address, stack_pointer };
                self.handle_lock_point(cpu, action, point, &mut moment);
            }
            _ => {}
        }
    }

    /// Handles the call of a function that takes, waits for or releases the lock in `rdi`. Does nothing if the lock's function
    /// has no readable return address.
    fn handle_lock_point(
        &mut self,
        cpu: usize,
        action: Action,
        CallPoint { address, stack_pointer }: CallPoint,
        moment: &mut Moment<'_>,
    ) {
        let pid = self.cpus[cpu].pid_or_zero();
        let area_array = self.symbols.kernel_counts.map(|counts| counts.areas);
        let Some(services) = &mut self.services else { return };
        let (task, now_cycles) = (self.cpus[cpu].task, moment.common_cycles());
        let lock_address = moment.qemu.register_value(moment.registers.rdi);
        match action {
            Action::TakeLock(kind) => {
                let Some(return_to) = moment.word(stack_pointer) else { return };
                let (offsets, structures) = (&self.offsets, &mut self.structures);
                let (qemu, cpus) = (&mut *moment.qemu, self.cpus.len());
                let mut guest = Guest { qemu, offsets, structures, area_array, cpus };
                let locate = |address| guest.locate(address, None, pid);
                let name = services.lock_names.number_of(return_to, lock_address, locate);
                let client = match self.cpus[cpu].stack.client() {
                    (_, Some(depth)) => LockClient::Fault { task, depth },
                    (service, None) => LockClient::Service(service.of_all_tasks()),
                };
                let lock_place = LockPlace { kind, return_to, name };
                services.locks.take(lock_place, client, task, lock_address, now_cycles);
            }
            Action::ContendLock { sleeps } => {
                let Some(return_to) = moment.word(stack_pointer) else { return };
                let stack = &mut self.cpus[cpu].stack;
                if let Some(Action::Wait { number, .. }) = self.symbols.wait_at(address) {
                    stack.enter_wait(number.into(), return_to, stack_pointer);
                }
                if let Some(kind) = services.locks.contend(task, sleeps, lock_address, now_cycles) {
                    let context = KernelContext::LockWait(kind);
                    stack.enter_call(context, return_to, stack_pointer, moment.now);
                }
            }
            // A release: the caller passes no other actions.
            _ => {
                let is_running = |task| self.cpus.iter().any(|tracked| tracked.task == task);
                services.locks.release(task, lock_address, now_cycles, is_running);
            }
        }
    }

    /// Handles `try_to_wake_up`: wakes the task in `rdi` if its state is among the states in `rsi`.
    fn wake_task(&mut self, moment: &mut Moment<'_>) {
        let task = moment.qemu.register_value(moment.registers.rdi);
        let states = moment.qemu.register_value(moment.registers.rsi) as u32;
        let Some(state) = self.offsets.state else { return };
        let state = moment.half_word(task.wrapping_add(state));
        if state.is_some_and(|state| state & states != 0) {
            self.tasks.wake(task, moment.common_cycles());
        }
    }

    /// Handles a function that tells the kind of a page fault. If the kernel resolves a page without a fault, this
    /// counts as a fault of the kernel.
    fn handle_fault_step(
        &mut self,
        cpu: usize,
        step: FaultStep,
        stack_pointer: u64,
        moment: &mut Moment<'_>,
    ) {
        let argument = moment.qemu.register_value(moment.registers.rdi);
        let kind = match step {
            FaultStep::Handle => {
                let stack = &mut self.cpus[cpu].stack;
                stack.read_ahead(false);
                let is_exception = stack.is_in_fault();
                if !is_exception {
                    let Some(return_to) = moment.word(stack_pointer) else { return };
                    let context = KernelContext::KernelFault(FaultKind::Unclassified);
                    stack.enter_call(context, return_to, stack_pointer, moment.now);
                }
                let is_first = stack.handle_fault();
                let is_counted = match counted_at(self.offsets.release) {
                    CountedAt::Start => true,
                    // Without an exception, the function counts at its return.
                    CountedAt::Completion => is_exception && is_first,
                };
                if let Some(services) = &mut self.services {
                    services.handled_faults += u64::from(is_counted);
                }
                let operations = self.offsets.vm_ops.map(|offset| argument.wrapping_add(offset));
                let has_file = operations.and_then(|address| moment.word(address)) != Some(0);
                if has_file { FaultKind::Unclassified } else { FaultKind::DemandZero }
            }
            FaultStep::FilePage if self.is_copied(argument, moment) => FaultKind::CopyOnWrite,
            FaultStep::FilePage => FaultKind::Minor,
            FaultStep::ReadAhead => return self.cpus[cpu].stack.read_ahead(true),
            FaultStep::Read if self.cpus[cpu].stack.reads_ahead() => return,
            FaultStep::Read => FaultKind::File,
            FaultStep::Is(kind) => kind,
        };
        self.cpus[cpu].stack.classify_fault(kind);
    }

    /// Counts a page fault that the kernel has handled itself, without an exception. `result`: the result of
    /// `handle_mm_fault`, which returns.
    pub(crate) fn count_kernel_fault(&mut self, result: u64) {
        let counts = counted_at(self.offsets.release) == CountedAt::Completion;
        if let Some(services) = &mut self.services
            && counts
            && !is_retried(result)
        {
            services.handled_faults += 1;
        }
    }

    /// Whether a page fault on a file writes to memory that is not shared, so the task gets its own copy of the page.
    /// `fault`: the address of the kernel's `vm_fault`. False if that cannot be read.
    fn is_copied(&self, fault: u64, moment: &mut Moment<'_>) -> bool {
        let mut read = || {
            let (flags, area) = (self.offsets.fault_flags?, self.offsets.fault_area?);
            let writes = moment.half_word(fault.wrapping_add(flags))? & FAULT_FLAG_WRITE != 0;
            let area = moment.word(fault.wrapping_add(area))?;
            let shared = moment.word(area.wrapping_add(self.offsets.vm_flags?))? & VM_SHARED != 0;
            Some(writes && !shared)
        };
        read().unwrap_or(false)
    }

    /// Handles that the running task is about to leave `cpu`. `has_ended`: whether the task has ended; else it may have
    /// blocked, and waits for a wake-up.
    pub(crate) fn leave_task(
        &mut self,
        cpu: usize,
        task: u64,
        has_ended: bool,
        moment: &mut Moment<'_>,
    ) {
        let stack_pointer = moment.rsp();
        let will_block = is_blocked(task, &self.offsets, moment.qemu);
        let now = moment.common_cycles();
        let stack = &mut self.cpus[cpu].stack;
        if has_ended {
            stack.end_task(moment.now);
        }
        stack.leave(will_block, stack_pointer, now);
    }
}

/// Writes the row of a service, its counters, and the distributions of its times.
fn write_service(
    writer: &mut Writer,
    region: u32,
    service: KernelContext,
    row: &attribution::ServiceRow<COUNTERS>,
) {
    let code = service.code();
    writer.write(&Record::Service(ServiceRow {
        region,
        code,
        requests: row.counts.entries,
        completed: row.counts.completed,
        computation: row.computation,
        blocked: row.off.blocked,
        descheduled: row.off.descheduled,
    }));
    writer.counters(0, CountersOf::Service, &row.counts.self_counts);
    writer.counters(0, CountersOf::ServiceInclusive, &row.counts.inclusive);
    let times =
        [(ServiceTime::Latency, &row.latencies), (ServiceTime::Computation, &row.computations)];
    for (time, buckets) in times {
        for (&lowest, &count) in buckets {
            let bucket = ServiceBucket { region, code, time, lowest, count };
            writer.write(&Record::ServiceBucket(bucket));
        }
    }
}

/// Writes the cycles of all CPUs together by mode, over the time of the region.
fn write_profile(writer: &mut Writer, region: u32, profile: &Profile<COUNTERS>) {
    let slot_length = profile.length();
    for (slot_number, slot) in (0_u64..).zip(profile.slots()) {
        for (mode, counts) in (0_u32..).zip(slot) {
            if counts[TIME] > 0 {
                writer.write(&Record::ProfileSlot(ProfileSlot {
                    region,
                    mode,
                    start: slot_number * slot_length,
                    length: slot_length,
                    time: counts[TIME],
                    fetch_stall: counts[FETCH_STALL_CYCLES],
                    data_stall: counts[DATA_STALL_CYCLES],
                    pipeline_stall: counts[PIPELINE_STALL_CYCLES],
                }));
            }
        }
    }
}

/// Writes the row of each service of a region, and the addresses of the functions of system calls.
fn write_service_rows(
    writer: &mut Writer,
    region: u32,
    sums: &attribution::Services<COUNTERS>,
    functions: &[u64],
) {
    for (service, row) in sums.rows() {
        write_service(writer, region, service, &row);
        if let KernelContext::Syscall(number) = service
            && let Some(&address) = functions.get(number as usize)
        {
            writer.write(&Record::SyscallFunction(SyscallFunction { number, address }));
        }
    }
}

/// Writes the row of each lock of a region.
fn write_lock_rows(writer: &mut Writer, region: u32, services: &ServiceSums) {
    for ((service, place), row) in services.locks.rows() {
        let name = services.lock_names.name(place.name);
        writer.write(&Record::LockPlace(LockCounts {
            region,
            code: service.code(),
            kind: place.kind as u32,
            return_to: place.return_to,
            structure: name.structure.kind,
            place: name.structure.place,
            offset: name.offset,
            acquires: row.acquires,
            contended: row.contended,
            releases: row.releases,
            waited: row.waited,
            held: row.held,
        }));
    }
}

impl Tracker {
    /// Writes the rows of services, locks, waits and the profile of the open region, and then its totals. `counts_of_cpus`:
    /// the current counts of each CPU, with which the sums must agree; if they do not, the totals say so.
    pub(crate) fn write_services(
        &mut self,
        regions: &Regions,
        counts_of_cpus: &[Counts],
        writer: &mut Writer,
    ) {
        let Some(services) = &mut self.services else { return };
        let region = regions.number();
        // The sums so far do not include the requests that have not ended.
        let mut sums = services.sums.clone();
        let mut used_counts = [0; COUNTERS];
        for (index, counts) in counts_of_cpus.iter().enumerate() {
            let stack = &mut self.cpus[index].stack;
            stack.open_parts(*counts).for_each(|part| sums.add(&part));
            let cpu_counts = regions.counts_in_region(index, counts);
            (0..COUNTERS).for_each(|counter| used_counts[counter] += cpu_counts[counter]);
        }
        let parked = self.tasks.open_parts(region);
        parked.for_each(|part: RequestPart<COUNTERS>| sums.add(&part));
        write_service_rows(writer, region, &sums, &services.functions);
        write_lock_rows(writer, region, services);
        for (service, wait, count, blocked) in sums.waits() {
            let wait = ServiceWait { region, code: service.code(), wait, count, blocked };
            writer.write(&Record::ServiceWait(wait));
        }
        let cpus = self.cpus.iter_mut().zip(counts_of_cpus);
        let profiles = cpus.filter_map(|(cpu, counts)| cpu.stack.profile(*counts));
        write_profile(writer, region, &Profile::joined(profiles));
        let handled_faults = services.handled_faults - services.faults_before;
        let refused = sums.refused() + services.locks.refused();
        let broken = refused + u64::from(sums.total() != used_counts);
        writer.write(&Record::ServiceTotals(ServiceTotals { region, handled_faults, broken }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_counted_as_the_kernel_counts_them() {
        let releases = [None, Some(5_010), Some(6_001), Some(6_003), Some(6_004), Some(7_000)];
        let completion = releases.map(|release| counted_at(release) == CountedAt::Completion);
        assert_eq!(completion, [false, false, false, false, true, true]);
        // A retry, also with VM_FAULT_MAJOR; no fault, and VM_FAULT_COMPLETED.
        assert_eq!([0x400, 0x404, 0, 0x4000].map(is_retried), [true, true, false, false]);
    }
}
