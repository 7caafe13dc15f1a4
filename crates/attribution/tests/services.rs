//! Services: requests that block, are preempted, move between CPUs and end with their task; and the sums.

use attribution::{
    FaultKind, Frames, KernelContext, KernelStack, OffCpu, PID_UNKNOWN, ServiceRow, Services,
    TaskStacks,
};
use proptest::prelude::*;

const READ: KernelContext = KernelContext::Syscall(0);
const IDLE: KernelContext = KernelContext::Idle;

/// Two CPUs with one task each and a common clock. The first task is idle.
struct Machine {
    cpus: [KernelStack; 2],
    running: [u64; 2],
    /// The time that each CPU has counted.
    now: [u64; 2],
    /// What it had counted when it first went offline.
    left_at: [Option<u64>; 2],
    tasks: TaskStacks,
    services: Services,
}

impl Machine {
    fn new() -> Machine {
        let mut machine = Machine {
            cpus: [KernelStack::default(), KernelStack::default()],
            running: [100, 101],
            now: [0; 2],
            left_at: [None; 2],
            tasks: TaskStacks::default(),
            services: Services::default(),
        };
        for cpu in &mut machine.cpus {
            cpu.keep_requests();
            cpu.restart(IDLE, [0]);
            cpu.open_region([0]);
        }
        machine
    }

    fn collect(&mut self) {
        for cpu in &mut self.cpus {
            cpu.take_requests().for_each(|part| self.services.add(&part));
            cpu.take_blocked().for_each(|span| self.services.add_blocked(&span));
        }
    }

    /// A CPU switches to another task at `at` on the common clock.
    fn switch(&mut self, cpu: usize, next: u64, blocks: bool, at: u64) {
        let now = [self.now[cpu]];
        let context = KernelContext::Task(next as u32);
        self.cpus[cpu].leave(blocks, 0x100, at);
        self.tasks.switch(&mut self.cpus[cpu], (self.running[cpu], false), (next, context), now);
        self.running[cpu] = next;
        self.cpus[cpu].arrive(at);
        self.collect();
    }

    /// All services, including frames that are still open.
    fn close(&mut self) -> Services {
        self.collect();
        let mut services = self.services.clone();
        for (cpu, now) in self.cpus.iter_mut().zip(self.now) {
            cpu.open_parts([now]).for_each(|part| services.add(&part));
        }
        self.tasks.open_parts(1).for_each(|part| services.add(&part));
        services
    }

    fn run(&mut self, cpu: usize, amount: u64) {
        self.now[cpu] += amount;
    }

    /// A CPU goes offline, and comes back at once.
    fn go_offline(&mut self, cpu: usize) {
        self.cpus[cpu].leave_region([self.now[cpu]]);
        self.left_at[cpu].get_or_insert(self.now[cpu]);
    }

    /// What both CPUs have counted while they were in the region.
    fn in_region(&self) -> u64 {
        self.now.iter().zip(self.left_at).map(|(now, left_at)| left_at.unwrap_or(*now)).sum()
    }
}

/// On request, each run of a kernel thread between two switches is a span. The span excludes interrupts, and lies
/// in the region.
#[test]
fn a_run_of_a_kernel_thread_is_a_span() {
    let thread = KernelContext::KernelThread(7);
    let (mut tasks, mut cpu) = (TaskStacks::<1>::default(), KernelStack::<1>::default());
    cpu.keep_spans();
    let mut switch = |cpu: &mut KernelStack<1>, (from, to), context, at| {
        cpu.complete_run([at]);
        tasks.switch(cpu, (from, false), (to, context), [at]);
    };
    switch(&mut cpu, (1, 7), thread, 10);
    cpu.open_region([15]);
    switch(&mut cpu, (7, 1), KernelContext::Task(1), 20);
    assert_eq!(cpu.take_spans().count(), 0, "it ran before the region");
    switch(&mut cpu, (1, 7), thread, 30);
    cpu.enter_hardware(KernelContext::Interrupt(0xec), 0x80, None, [40]);
    cpu.return_to_kernel(0x80, [45]);
    switch(&mut cpu, (7, 1), KernelContext::Task(1), 60);
    let spans: Vec<_> = cpu
        .take_spans()
        .map(|span| (span.context, span.start, span.end, span.self_counts, span.inclusive))
        .collect();
    let interrupt = (KernelContext::Interrupt(0xec), 40, 45, [5], [5]);
    assert_eq!(spans, [interrupt, (thread, 30, 60, [25], [30])]);
    // A task that is no kernel thread has no run.
    switch(&mut cpu, (1, 1), KernelContext::Task(1), 70);
    assert_eq!(cpu.take_spans().count(), 0);
}

/// Another task runs during the span: its end is later than its start plus its inclusive time.
#[test]
fn a_span_that_was_switched_out_ends_where_it_returns() {
    let (mut tasks, mut cpu) = (TaskStacks::<1>::default(), KernelStack::<1>::default());
    cpu.keep_spans();
    cpu.open_region([0]);
    cpu.enter_hardware(KernelContext::Exception(14), 0x80, None, [10]);
    tasks.switch(&mut cpu, (1, false), (7, KernelContext::Task(7)), [15]);
    tasks.switch(&mut cpu, (7, false), (1, KernelContext::Task(1)), [90]);
    cpu.return_to_kernel(0x80, [97]);
    let [span] = cpu.take_spans().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((span.start, span.end, span.inclusive), (10, 97, [5 + 7]));
}

fn row(services: &Services, service: KernelContext) -> ServiceRow {
    services.rows().find(|row| row.0 == service).map(|row| row.1).unwrap_or_default()
}

#[test]
fn a_system_call_that_blocks_and_resumes_on_another_cpu_is_one_request() {
    let mut machine = Machine::new();
    machine.run(0, 10);
    machine.switch(0, 7, false, 10);
    machine.cpus[0].return_to_user(7, [10]);
    machine.run(0, 20); // user
    machine.cpus[0].enter_syscall(0, 7, [30]);
    machine.run(0, 5); // read
    machine.cpus[0].enter_wait(3, 0x10, 0x200);
    machine.switch(0, 100, true, 35);
    machine.tasks.wake(7, 60);
    machine.tasks.wake(7, 65); // awake already
    machine.run(1, 70);
    machine.switch(1, 7, false, 70);
    machine.run(1, 4); // read, on the other CPU
    machine.cpus[1].enter_hardware(KernelContext::Interrupt(0xec), 0x80, None, [74]);
    machine.run(1, 6); // interrupt
    machine.cpus[1].return_to_kernel(0x80, [80]);
    machine.run(1, 1); // read
    machine.cpus[1].return_to_user(7, [81]);
    let services = machine.close();
    let read = row(&services, READ);
    assert_eq!((read.counts.entries, read.counts.completed), (1, 1));
    assert_eq!(read.counts.self_counts, [5 + 4 + 1]);
    assert_eq!((read.computation, read.counts.inclusive), (10, [16]));
    assert_eq!(read.off, OffCpu { blocked: 60 - 35, descheduled: 70 - 60 });
    // From the entry at 30 to the exit at 81.
    assert_eq!(read.latency(), 81 - 30);
    assert_eq!(read.latencies.into_iter().collect::<Vec<_>>(), [(50, 1)]);
    assert_eq!(services.waits().collect::<Vec<_>>(), [(READ, 3, 1, 25)]);
    assert_eq!(row(&services, KernelContext::User(PID_UNKNOWN)).counts.self_counts, [20]);
    assert_eq!(services.total(), [35 + 81]);
}

/// A call that ends on a CPU which went offline and came back has the time that it took before, and no latency.
#[test]
fn a_system_call_that_ends_on_a_cpu_that_was_offline_keeps_its_time() {
    let mut machine = Machine::new();
    machine.switch(0, 7, false, 0);
    machine.cpus[0].return_to_user(7, [0]);
    machine.cpus[0].enter_syscall(0, 7, [0]);
    machine.run(0, 5);
    machine.run(1, 3);
    machine.go_offline(1);
    machine.switch(0, 100, true, 5);
    machine.run(1, 50);
    machine.switch(1, 7, false, 53);
    machine.run(1, 9);
    machine.cpus[1].return_to_user(7, [62]);
    machine.cpus[1].enter_syscall(1, 7, [62]);
    machine.run(1, 9);
    machine.cpus[1].return_to_user(7, [71]);
    let services = machine.close();
    let read = row(&services, READ).counts;
    assert_eq!((read.entries, read.completed, read.self_counts), (1, 0, [5]));
    assert_eq!(row(&services, KernelContext::Syscall(1)).counts.entries, 0);
    assert_eq!(services.total(), [5 + 3]);
}

#[test]
fn a_preempted_request_is_descheduled_and_not_blocked() {
    let mut machine = Machine::new();
    machine.switch(0, 7, false, 0);
    machine.cpus[0].return_to_user(7, [0]);
    machine.cpus[0].enter_syscall(0, 7, [0]);
    machine.switch(0, 8, false, 0);
    machine.run(0, 9);
    machine.switch(0, 7, true, 9);
    machine.cpus[0].return_to_user(7, [9]);
    let read = row(&machine.close(), READ);
    assert_eq!(read.off, OffCpu { blocked: 0, descheduled: 9 });
    assert_eq!(machine.services.waits().count(), 0);
}

#[test]
fn a_fault_gets_the_most_specific_name_and_all_its_time_goes_there() {
    let mut machine = Machine::new();
    let fault = KernelContext::Exception(14);
    machine.cpus[0].enter_hardware(fault, 0x80, Some(7), [0]);
    machine.run(0, 5);
    machine.cpus[0].classify_fault(FaultKind::CopyOnWrite);
    machine.cpus[0].classify_fault(FaultKind::Minor);
    machine.run(0, 2);
    machine.cpus[0].return_to_user(7, [7]);
    // One that the kernel causes is followed as a function, and there is none without a fault.
    machine.cpus[0].classify_fault(FaultKind::Swap);
    let by_kernel = KernelContext::KernelFault(FaultKind::Unclassified);
    machine.cpus[0].enter_syscall(0, 7, [7]);
    machine.cpus[0].enter_call(by_kernel, 0x10, 0x90, [7]);
    machine.cpus[0].classify_fault(FaultKind::DemandZero);
    machine.run(0, 3);
    machine.cpus[0].at_return_address(0x10, 0x98, [10]);
    let services = machine.close();
    let counts_of = |service| row(&services, service).counts;
    assert_eq!(counts_of(KernelContext::Fault(FaultKind::CopyOnWrite)).self_counts, [7]);
    assert_eq!(counts_of(KernelContext::KernelFault(FaultKind::DemandZero)).completed, 1);
    assert_eq!(services.total(), [10]);
}

#[test]
fn a_fault_that_the_kernel_handles_again_is_one_fault() {
    let mut stack = KernelStack::<1>::default();
    stack.enter_hardware(KernelContext::Exception(14), 0x80, Some(7), [0]);
    assert_eq!([stack.handle_fault(), stack.handle_fault()], [true, false]);
    stack.return_to_user(7, [1]);
    stack.enter_hardware(KernelContext::Exception(14), 0x80, Some(7), [2]);
    assert!(stack.handle_fault());
    stack.return_to_user(7, [3]);
    assert_eq!([stack.handle_fault(), stack.handle_fault()], [true, true], "without a fault");
}

#[test]
fn the_last_request_of_a_task_completes_when_the_task_ends() {
    let mut machine = Machine::new();
    machine.cpus[0].enter_syscall(60, 100, [0]);
    machine.run(0, 8);
    machine.cpus[0].end_task([8]);
    let exit = row(&machine.close(), KernelContext::Syscall(60));
    assert_eq!((exit.counts.entries, exit.counts.completed, exit.latency()), (1, 1, 8));
}

/// A signal ends a task where the task is: in a system call that waits, or in an interrupt that returns to user mode. The
/// exit then runs in that context, which must not get the exit as its latency.
#[test]
fn a_request_in_which_a_signal_ends_its_task_does_not_complete() {
    let timer = KernelContext::Interrupt(0xec);
    let mut machine = Machine::new();
    machine.cpus[0].keep_spans();
    machine.cpus[0].enter_syscall(0, 100, [0]);
    machine.run(0, 8);
    machine.cpus[0].end_task([8]);
    machine.cpus[0].enter_hardware(timer, 0x80, Some(100), [8]);
    machine.run(0, 3);
    machine.cpus[0].enter_call(KernelContext::Scheduler, 0x10, 0x60, [11]);
    machine.run(0, 1);
    machine.cpus[0].end_task([12]);
    let spans: Vec<_> = machine.cpus[0].take_spans().map(|span| span.context).collect();
    assert_eq!(spans, [KernelContext::Scheduler]);
    let services = machine.close();
    for (service, own) in [(READ, 8), (timer, 3)] {
        let counts = row(&services, service).counts;
        assert_eq!((counts.entries, counts.completed, counts.self_counts), (1, 0, [own]));
    }
    assert_eq!(row(&services, KernelContext::Scheduler).counts.completed, 1);
    assert_eq!(services.total(), [12]);
    assert_eq!(machine.cpus[0].faults().abandoned, 0);
}

#[test]
fn the_exit_of_a_killed_task_is_not_time_of_the_interrupt_in_which_it_is_killed() {
    let timer = KernelContext::Interrupt(0xec);
    let mut machine = Machine::new();
    machine.cpus[0].enter_hardware(timer, 0x80, Some(100), [0]);
    machine.run(0, 3);
    machine.cpus[0].start_exit([3]);
    machine.run(0, 50);
    machine.cpus[0].end_task([53]);
    // A task that asks for its exit.
    machine.cpus[0].enter_syscall(231, 100, [53]);
    machine.run(0, 2);
    machine.cpus[0].start_exit([55]);
    machine.run(0, 20);
    machine.cpus[0].end_task([75]);
    // A kernel thread.
    machine.cpus[0].start_exit([75]);
    assert_eq!(machine.cpus[0].depth(), 1);
    let services = machine.close();
    let counts = |service| {
        let counts = row(&services, service).counts;
        (counts.entries, counts.completed, counts.self_counts[0])
    };
    assert_eq!(counts(timer), (1, 0, 3));
    assert_eq!(counts(KernelContext::Exit), (1, 1, 50));
    assert_eq!(counts(KernelContext::Syscall(231)), (1, 1, 22));
    assert_eq!(services.total(), [75]);
}

#[test]
fn what_was_under_way_when_the_region_opened_is_counted_and_is_no_request() {
    let mut machine = Machine::new();
    machine.cpus[0].enter_syscall(0, 100, [0]);
    machine.run(0, 8);
    machine.cpus[0].open_region([8]);
    machine.run(0, 4);
    machine.cpus[0].return_to_user(100, [12]);
    machine.run(0, 1);
    let read = row(&machine.close(), READ);
    assert_eq!((read.counts.entries, read.counts.completed), (0, 0));
    assert_eq!(read.counts.self_counts, [4]);
}

#[test]
fn a_task_waits_in_the_innermost_function_that_it_has_not_left() {
    let mut stack = KernelStack::<1>::default();
    stack.enter_wait(1, 0x10, 0x300);
    stack.enter_wait(2, 0x20, 0x200);
    assert!(stack.is_in_wait(0x100));
    // Deeper in another function than the second one, which has returned.
    stack.enter_wait(3, 0x30, 0x280);
    assert!(!stack.is_in_wait(0x400));
    let mut machine = Machine::new();
    machine.cpus[0].enter_syscall(0, 100, [0]);
    machine.cpus[0].enter_wait(1, 0x10, 0x300);
    machine.cpus[0].enter_wait(2, 0x20, 0x50); // has returned: the switch is at 0x100
    machine.switch(0, 7, true, 0);
    machine.switch(0, 100, true, 3);
    assert_eq!(machine.services.waits().collect::<Vec<_>>(), [(READ, 1, 1, 3)]);
}

/// `pipe_read` takes a mutex without having to sleep, and then waits with its stack pointer below that of `__mutex_lock`.
#[test]
fn a_wait_ends_where_its_function_returns() {
    let (pipe_read, mutex_lock) = (1, 2);
    let mut machine = Machine::new();
    machine.cpus[0].enter_syscall(0, 100, [0]);
    machine.cpus[0].enter_wait(pipe_read, 0x10, 0x1000);
    machine.cpus[0].enter_wait(mutex_lock, 0x20, 0xfd8);
    assert_eq!(machine.cpus[0].awaits(), Some(0x20));
    // Another call returns to the same instruction, with another stack pointer.
    machine.cpus[0].at_return_address(0x20, 0xf00, [0]);
    assert_eq!(machine.cpus[0].awaits(), Some(0x20));
    machine.cpus[0].at_return_address(0x20, 0xfe0, [0]);
    assert_eq!(machine.cpus[0].awaits(), Some(0x10));
    machine.cpus[0].enter_call(KernelContext::Scheduler, 0x30, 0xf00, [0]);
    assert_eq!(machine.cpus[0].awaits(), Some(0x30), "the innermost");
    machine.cpus[0].leave(true, 0xf00, 0);
    machine.cpus[0].arrive(3);
    machine.cpus[0].at_return_address(0x30, 0xf08, [0]);
    machine.cpus[0].at_return_address(0x10, 0x1008, [0]);
    assert_eq!(machine.cpus[0].awaits(), None);
    let services = machine.close();
    assert_eq!(services.waits().collect::<Vec<_>>(), [(READ, pipe_read, 1, 3)]);
}

/// The return of a waiting function is not seen if the context that called it is dropped.
#[test]
fn a_wait_ends_with_the_context_that_called_it() {
    let mut stack = KernelStack::<1>::default();
    stack.enter_hardware(KernelContext::Exception(14), 0x1000, None, [0]);
    stack.enter_wait(1, 0x10, 0xf00);
    stack.return_to_kernel(0x1000, [1]);
    assert_eq!(stack.awaits(), None);
    assert!(!stack.is_in_wait(0x800));
}

/// A random event of a CPU.
#[derive(Clone, Debug)]
enum Event {
    Syscall(u32),
    Fault(u64),
    Kind(u8),
    Iret(u64),
    ToUser,
    Idle,
    Switch(u64, bool),
    Wake(u64),
    Die(u64),
    GoOffline,
}

fn event() -> impl Strategy<Value = Event> {
    let stack_pointer = (0..4_u64).prop_map(|slot| 0x1000 + 8 * slot);
    prop_oneof![
        (0..4_u32).prop_map(Event::Syscall),
        stack_pointer.clone().prop_map(Event::Fault),
        (0..9_u8).prop_map(Event::Kind),
        stack_pointer.prop_map(Event::Iret),
        Just(Event::ToUser),
        Just(Event::Idle),
        (0..4_u64, any::<bool>()).prop_map(|(task, blocks)| Event::Switch(task, blocks)),
        (0..4_u64).prop_map(Event::Wake),
        (0..4_u64).prop_map(Event::Die),
        Just(Event::GoOffline),
    ]
}

proptest! {
    /// Whatever happens, services, user mode and idle add up to what the CPUs counted until they went offline, and
    /// no latency is shorter than its computation.
    #[test]
    fn all_that_was_counted_belongs_to_a_service(
        events in prop::collection::vec((0..2_usize, 0..100_u64, event()), 0..300),
    ) {
        let mut machine = Machine::new();
        for (cpu, amount, event) in events {
            machine.run(cpu, amount);
            let (now, at) = ([machine.now[cpu]], machine.now[0].max(machine.now[1]));
            let pid = machine.running[cpu] as u32;
            let stack = &mut machine.cpus[cpu];
            match event {
                Event::Syscall(number) => stack.enter_syscall(number, pid, now),
                Event::Fault(place) => {
                    stack.enter_hardware(KernelContext::Exception(14), place, None, now);
                }
                Event::Kind(kind) => stack.classify_fault(FaultKind::ALL[usize::from(kind)]),
                Event::Iret(place) => stack.return_to_kernel(place, now),
                Event::ToUser => stack.return_to_user(pid, now),
                Event::Idle => stack.restart(IDLE, now),
                Event::Wake(task) => machine.tasks.wake(task, at),
                Event::GoOffline => machine.go_offline(cpu),
                // A task runs on one CPU at a time.
                Event::Switch(task, _) | Event::Die(task) if machine.running.contains(&task) => {}
                Event::Switch(task, blocks) => machine.switch(cpu, task, blocks, at),
                Event::Die(task) => {
                    stack.end_task(now);
                    let context = KernelContext::Task(task as u32);
                    let died = (machine.running[cpu], true);
                    machine.tasks.switch(stack, died, (task, context), now);
                    machine.running[cpu] = task;
                    stack.arrive(at);
                }
            }
            machine.collect();
            let services = machine.close();
            prop_assert_eq!(services.total(), [machine.in_region()]);
        }
        for (service, row) in machine.close().rows() {
            prop_assert!(row.counts.completed <= row.counts.entries, "{}", service);
            prop_assert!(row.computation <= row.latency(), "{}", service);
            prop_assert_eq!(row.latencies.values().sum::<u64>(), row.counts.completed);
        }
    }
}

#[test]
fn a_stack_that_was_never_switched_away_has_no_time_off() {
    let frames = Frames::<1>::new(IDLE);
    let mut stack = KernelStack::<1>::default();
    stack.keep_requests();
    let _ = stack.switch_to(frames, [0]);
    stack.open_region([0]);
    stack.arrive(1_000);
    stack.enter_hardware(KernelContext::Interrupt(1), 0x80, None, [0]);
    stack.return_to_kernel(0x80, [4]);
    let [part] = stack.take_requests().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(part.completed.map(|completed| completed.off), Some(OffCpu::default()));
}
