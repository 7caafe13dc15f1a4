//! Services of the kernel: follows the scheduler, page faults and wake-ups, and writes the counts of each service in a
//! region.

use attribution::{FaultKind, KernelContext, LockClient, LockPlace, Profile, RequestPart};

use crate::guest::regions::Regions;
use crate::guest::service_sums::ServiceSums;
use crate::guest::structures::Guest;
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
/// Bit of a page fault's flags: it is a write.
const FAULT_FLAG_WRITE: u32 = 1;
/// Flag of an area of user memory that other processes share.
const VM_SHARED: u64 = 8;

impl ServiceSums {
    /// Reads the functions of system calls, where the CPU is in the kernel.
    fn read_functions(&mut self, table: Option<u64>, at: &mut Moment<'_>) {
        if !self.functions.is_empty() {
            return;
        }
        let Some(table) = table else { return };
        let read = (0..SYSCALLS_MAX).map_while(|number| at.word(table.wrapping_add(8 * number)));
        self.functions = read.collect();
    }
}

/// A call of a function that is followed.
struct CallPoint {
    /// The address of the function.
    address: u64,
    /// The stack pointer at its first instruction.
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

    /// A region opens, whose sums start at zero.
    pub(crate) fn open_services(&mut self) {
        if let Some(services) = &mut self.services {
            let functions = std::mem::take(&mut services.functions);
            let (ran, handled_faults) = (services.ran, services.handled_faults);
            let faults_before = handled_faults;
            *services = ServiceSums {
                functions,
                ran,
                handled_faults,
                faults_before,
                ..ServiceSums::default()
            };
            self.tasks.reset_counts();
            for cpu in &mut self.cpus {
                // Requests that ended before the region.
                cpu.stack.take_requests().for_each(drop);
                cpu.stack.take_blocked().for_each(drop);
            }
        }
    }

    /// An instruction that starts, ends or classifies a service is about to execute.
    pub(crate) fn service_point(
        &mut self,
        cpu: usize,
        action: Action,
        address: u64,
        mut at: Moment<'_>,
    ) {
        let stack_pointer = at.rsp();
        match action {
            Action::Schedule => {
                if let Some(services) = &mut self.services {
                    services.read_functions(self.symbols.syscall_table, &mut at);
                }
                let Some(return_to) = at.word(stack_pointer) else { return };
                let stack = &mut self.cpus[cpu].stack;
                stack.enter_call(KernelContext::Scheduler, return_to, stack_pointer, at.now);
            }
            Action::WakeUp => self.wake(&mut at),
            Action::Fault(step) => self.fault_step(cpu, step, stack_pointer, &mut at),
            Action::Wait { number, is_general } => {
                let stack = &mut self.cpus[cpu].stack;
                if !(is_general && stack.is_in_wait(stack_pointer)) {
                    stack.enter_wait(number.into(), stack_pointer);
                }
            }
            Action::TakeLock(_) | Action::ContendLock { .. } | Action::ReleaseLock => {
                let point = CallPoint { address, stack_pointer };
                self.lock_point(cpu, action, point, &mut at);
            }
            _ => {}
        }
    }

    /// A function is called that takes, waits for or releases a lock.
    fn lock_point(
        &mut self,
        cpu: usize,
        action: Action,
        CallPoint { address, stack_pointer }: CallPoint,
        at: &mut Moment<'_>,
    ) {
        let pid = self.cpus[cpu].pid_or_zero();
        let area_array = self.symbols.kernel_counts.map(|counts| counts.areas);
        let Some(services) = &mut self.services else { return };
        let (task, now) = (self.cpus[cpu].task, at.common_cycles());
        let lock = at.qemu.register_value(at.registers.rdi);
        match action {
            Action::TakeLock(kind) => {
                if let Some(return_to) = at.word(stack_pointer) {
                    let (offsets, structures) = (&self.offsets, &mut self.structures);
                    let (qemu, cpus) = (&mut *at.qemu, self.cpus.len());
                    let mut guest = Guest { qemu, offsets, structures, area_array, cpus };
                    let name = services
                        .lock_names
                        .number_of(return_to, lock, |lock| guest.locate(lock, None, pid));
                    let client = match self.cpus[cpu].stack.client() {
                        (_, Some(depth)) => LockClient::Fault { task, depth },
                        (service, None) => LockClient::Service(service.of_all_tasks()),
                    };
                    let lock_place = LockPlace { kind, return_to, name };
                    services.locks.take(lock_place, client, task, lock, now);
                }
            }
            Action::ContendLock { sleeps } => {
                let stack = &mut self.cpus[cpu].stack;
                if let Some(Action::Wait { number, .. }) = self.symbols.wait_at(address) {
                    stack.enter_wait(number.into(), stack_pointer);
                }
                let kind = services.locks.contend(task, sleeps, lock, now);
                if let Some((kind, return_to)) = kind.zip(at.word(stack_pointer)) {
                    let context = KernelContext::LockWait(kind);
                    stack.enter_call(context, return_to, stack_pointer, at.now);
                }
            }
            _ => services.locks.release(lock, now),
        }
    }

    /// A task is woken, if it is in one of the states that the caller names.
    fn wake(&mut self, at: &mut Moment<'_>) {
        let task = at.qemu.register_value(at.registers.rdi);
        let states = at.qemu.register_value(at.registers.rsi) as u32;
        let Some(state) = self.offsets.state else { return };
        let state = at.half_word(task.wrapping_add(state));
        if state.is_some_and(|state| state & states != 0) {
            self.tasks.wake(task, at.common_cycles());
        }
    }

    /// A page fault, or a kernel function that resolves a page itself, reaches a function that tells the fault's kind.
    fn fault_step(&mut self, cpu: usize, step: FaultStep, stack_pointer: u64, at: &mut Moment<'_>) {
        let argument = at.qemu.register_value(at.registers.rdi);
        let kind = match step {
            FaultStep::Handle => {
                if let Some(services) = &mut self.services {
                    services.handled_faults += 1;
                }
                let stack = &mut self.cpus[cpu].stack;
                stack.read_ahead(false);
                if !stack.is_in_fault() {
                    let Some(return_to) = at.word(stack_pointer) else { return };
                    let context = KernelContext::KernelFault(FaultKind::Unclassified);
                    stack.enter_call(context, return_to, stack_pointer, at.now);
                }
                let operations = self.offsets.vm_ops.map(|offset| argument.wrapping_add(offset));
                let has_file = operations.and_then(|address| at.word(address)) != Some(0);
                if has_file { FaultKind::Unclassified } else { FaultKind::DemandZero }
            }
            FaultStep::FilePage if self.copies(argument, at) => FaultKind::CopyOnWrite,
            FaultStep::FilePage => FaultKind::Minor,
            FaultStep::ReadAhead => return self.cpus[cpu].stack.read_ahead(true),
            FaultStep::Read if self.cpus[cpu].stack.reads_ahead() => return,
            FaultStep::Read => FaultKind::File,
            FaultStep::Is(kind) => kind,
        };
        self.cpus[cpu].stack.classify_fault(kind);
    }

    /// Whether a fault writes to a page of a file, so that the task gets its own copy.
    fn copies(&self, fault: u64, at: &mut Moment<'_>) -> bool {
        let mut read = || {
            let (flags, area) = (self.offsets.fault_flags?, self.offsets.fault_area?);
            let writes = at.half_word(fault.wrapping_add(flags))? & FAULT_FLAG_WRITE != 0;
            let area = at.word(fault.wrapping_add(area))?;
            let shared = at.word(area.wrapping_add(self.offsets.vm_flags?))? & VM_SHARED != 0;
            Some(writes && !shared)
        };
        read().unwrap_or(false)
    }

    /// The task that runs on `cpu` is about to leave it. `died`: whether the task has ended.
    pub(crate) fn leave(&mut self, cpu: usize, task: u64, died: bool, at: &mut Moment<'_>) {
        let stack_pointer = at.rsp();
        let on_rq = self.offsets.on_rq.and_then(|on_rq| at.half_word(task.wrapping_add(on_rq)));
        let now = at.common_cycles();
        let stack = &mut self.cpus[cpu].stack;
        if died {
            stack.end_task(at.now);
        }
        stack.leave(on_rq == Some(0), stack_pointer, now);
    }
}

/// Writes the profile of all CPUs together over time.
fn write_profile(writer: &mut Writer, region: u32, profile: &Profile<COUNTERS>) {
    let length = profile.length();
    for (number, slot) in (0_u64..).zip(profile.slots()) {
        for (mode, counts) in (0_u32..).zip(slot) {
            if counts[TIME] > 0 {
                writer.write(&Record::ProfileSlot(ProfileSlot {
                    region,
                    mode,
                    start: number * length,
                    length,
                    time: counts[TIME],
                    fetch_stall: counts[FETCH_STALL_CYCLES],
                    data_stall: counts[DATA_STALL_CYCLES],
                    pipeline_stall: counts[PIPELINE_STALL_CYCLES],
                }));
            }
        }
    }
}

impl Tracker {
    /// Writes the services of the region that is open.
    pub(crate) fn write_services(
        &mut self,
        regions: &Regions,
        counted: &[Counts],
        writer: &mut Writer,
    ) {
        let Some(services) = &mut self.services else { return };
        let region = regions.number();
        let mut sums = services.sums.clone();
        let mut used = [0; COUNTERS];
        for (index, now) in counted.iter().enumerate() {
            let stack = &mut self.cpus[index].stack;
            stack.open_parts(*now).for_each(|part| sums.add(&part));
            let of_cpu = regions.used(index, now);
            (0..COUNTERS).for_each(|counter| used[counter] += of_cpu[counter]);
        }
        let parked = self.tasks.open_parts(region);
        parked.for_each(|part: RequestPart<COUNTERS>| sums.add(&part));
        let handled_faults = services.handled_faults - services.faults_before;
        for (service, row) in sums.rows() {
            let code = service.code();
            let (requests, completed) = (row.counts.entries, row.counts.completed);
            let computation = row.computation;
            let (blocked, descheduled) = (row.off.blocked, row.off.descheduled);
            writer.write(&Record::Service(ServiceRow {
                region,
                code,
                requests,
                completed,
                computation,
                blocked,
                descheduled,
            }));
            writer.counters(0, CountersOf::Service, &row.counts.self_counts);
            writer.counters(0, CountersOf::ServiceInclusive, &row.counts.inclusive);
            let times = [
                (ServiceTime::Latency, &row.latencies),
                (ServiceTime::Computation, &row.computations),
            ];
            for (time, buckets) in times {
                for (&lowest, &count) in buckets {
                    let bucket = ServiceBucket { region, code, time, lowest, count };
                    writer.write(&Record::ServiceBucket(bucket));
                }
            }
            if let KernelContext::Syscall(number) = service
                && let Some(&address) = services.functions.get(number as usize)
            {
                writer.write(&Record::SyscallFunction(SyscallFunction { number, address }));
            }
        }
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
                waited: row.waited,
                held: row.held,
            }));
        }
        for (service, wait, count, blocked) in sums.waits() {
            let wait = ServiceWait { region, code: service.code(), wait, count, blocked };
            writer.write(&Record::ServiceWait(wait));
        }
        let stacks = self.cpus.iter_mut().zip(counted);
        let profiles = stacks.filter_map(|(cpu, now)| cpu.stack.profile(*now));
        write_profile(writer, region, &Profile::joined(profiles));
        let refused = sums.refused() + services.locks.refused();
        let broken = refused + u64::from(sums.total() != used);
        writer.write(&Record::ServiceTotals(ServiceTotals { region, handled_faults, broken }));
    }
}
