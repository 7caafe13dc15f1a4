//! The kernel stack under any sequence of events, and under the sequences a kernel makes.

use std::collections::BTreeMap;

use attribution::{KernelContext, KernelStack, Ledger, TaskStacks};
use proptest::prelude::*;

/// An event of a CPU. Addresses come from few values, so that they often match.
#[derive(Clone, Debug)]
enum Event {
    Syscall(u32),
    Hardware(u8, u64, bool),
    Nmi(u64),
    Softirq(u8, u64, u64),
    ReturnAddress(u64, u64),
    Iret(u64),
    ToUser,
    Idle,
    Part(u32),
    LeavePart,
    LeavePartOf(u32),
    Switch(u64, bool),
    GiveWay,
}

fn event() -> impl Strategy<Value = Event> {
    let stack_pointer = (0..6_u64).prop_map(|slot| 0x1000 + 8 * slot);
    prop_oneof![
        (0..4_u32).prop_map(Event::Syscall),
        (0..3_u8, stack_pointer.clone(), any::<bool>())
            .prop_map(|(vector, at, user)| Event::Hardware(vector, at, user)),
        stack_pointer.clone().prop_map(Event::Nmi),
        (0..10_u8, 0..3_u64, stack_pointer.clone())
            .prop_map(|(number, to, at)| Event::Softirq(number, to, at)),
        (0..3_u64, stack_pointer.clone()).prop_map(|(to, at)| Event::ReturnAddress(to, at)),
        stack_pointer.prop_map(Event::Iret),
        Just(Event::ToUser),
        Just(Event::Idle),
        (0..3_u32).prop_map(Event::Part),
        Just(Event::LeavePart),
        (0..3_u32).prop_map(Event::LeavePartOf),
        (0..4_u64, any::<bool>()).prop_map(|(task, died)| Event::Switch(task, died)),
        Just(Event::GiveWay),
    ]
}

/// A CPU with the task that runs on it.
#[derive(Default)]
struct Cpu {
    stack: KernelStack,
    task: u64,
    now: u64,
}

fn apply(cpu: &mut Cpu, tasks: &mut TaskStacks, event: &Event) {
    let pid = cpu.task as u32;
    let now = [cpu.now];
    match *event {
        Event::Syscall(number) => cpu.stack.enter_syscall(number, pid, now),
        Event::Hardware(vector, at, user) => {
            let context = KernelContext::Interrupt(vector);
            cpu.stack.enter_hardware(context, at, user.then_some(pid), now);
        }
        Event::Nmi(at) => cpu.stack.enter_hardware(KernelContext::Nmi, at, None, now),
        Event::Softirq(number, to, at) => {
            let context = KernelContext::Softirq(number);
            cpu.stack.enter_call(context, to, at, now);
        }
        Event::ReturnAddress(to, at) => cpu.stack.at_return_address(to, at + 8, now),
        Event::Iret(at) => cpu.stack.return_to_kernel(at, now),
        Event::ToUser => cpu.stack.return_to_user(pid, now),
        Event::Part(number) => cpu.stack.enter_section(KernelContext::Function(number), now),
        Event::LeavePart => drop(cpu.stack.leave_section(now)),
        Event::LeavePartOf(number) => {
            let _ = cpu.stack.leave_section_of(KernelContext::Function(number), now);
        }
        Event::Idle => cpu.stack.restart(KernelContext::Idle, now),
        Event::GiveWay => cpu.stack.give_way(now),
        Event::Switch(task, died) => {
            let context = KernelContext::Task(task as u32);
            tasks.switch(&mut cpu.stack, (cpu.task, died), (task, context), now);
            cpu.task = task;
        }
    }
}

fn self_count(ledger: &Ledger, context: KernelContext) -> u64 {
    ledger.rows().find(|row| row.0 == context).map_or(0, |row| row.1.self_counts[0])
}

proptest! {
    /// Every instruction belongs to exactly one context. After each event, the context on top has the
    /// instructions executed since, and the rows sum up to all executed instructions.
    #[test]
    fn every_instruction_belongs_to_the_context_on_top(
        events in prop::collection::vec((0..2_usize, 0..100_u64, event()), 0..300),
        opens_after in 0..50_usize,
    ) {
        let mut cpus = [Cpu { task: 100, ..Cpu::default() }, Cpu { task: 101, ..Cpu::default() }];
        let mut tasks = TaskStacks::default();
        let mut opened = [None; 2];
        let mut of_spans = BTreeMap::new();
        cpus.iter_mut().for_each(|cpu| cpu.stack.keep_spans());
        for (position, (at, amount, event)) in events.iter().enumerate() {
            if position == opens_after {
                for (cpu, opened) in cpus.iter_mut().zip(&mut opened) {
                    cpu.stack.open_region([cpu.now]);
                    *opened = Some(cpu.now);
                }
            }
            let cpu = &mut cpus[*at];
            let context = cpu.stack.context();
            let now = [cpu.now];
            let before = self_count(cpu.stack.rows(now), context);
            cpu.now += amount;
            apply(cpu, &mut tasks, event);
            for span in cpu.stack.take_spans() {
                prop_assert!(span.self_counts[0] <= span.inclusive[0]);
                let (sum, longest) = of_spans.entry(span.context).or_insert((0, 0));
                *sum += span.inclusive[0];
                *longest = span.inclusive[0].max(*longest);
            }
            let now = [cpu.now];
            let after = self_count(cpu.stack.rows(now), context);
            prop_assert_eq!(after - before, if opened[*at].is_some() { *amount } else { 0 });
            prop_assert!(cpu.stack.depth() >= 1 && cpu.stack.depth() <= attribution::stack::DEPTH_MAX);
        }
        let (mut spans, mut inclusive) = (BTreeMap::new(), BTreeMap::new());
        for (cpu, opened) in cpus.iter_mut().zip(opened) {
            prop_assert_eq!(cpu.stack.faults().backward, 0);
            let now = [cpu.now];
            let ledger = cpu.stack.close_region(now);
            prop_assert_eq!(ledger.total()[0], opened.map_or(0, |opened| cpu.now - opened));
            for (context, row) in ledger.rows() {
                let sum = spans.entry(context).or_insert((0, 0));
                *sum = (sum.0 + row.entries, sum.1 + row.completed);
                if !matches!(context, KernelContext::Syscall(_)) {
                    *inclusive.entry(context).or_insert(0) += row.inclusive[0];
                }
            }
        }
        // The rows are the sums of the spans. Only counts of recursive calls of a function are in several spans.
        inclusive.retain(|_, sum| *sum > 0);
        of_spans.retain(|_, (sum, _)| *sum > 0);
        prop_assert!(of_spans.keys().eq(inclusive.keys()));
        let executed: u64 = cpus.iter().map(|cpu| cpu.now).sum();
        for (context, row) in inclusive {
            let (sum, longest) = of_spans[&context];
            if matches!(context, KernelContext::Function(_)) {
                prop_assert!(longest <= row && row <= sum && row <= executed, "{}: {}", context, row);
            } else {
                prop_assert_eq!(row, sum);
            }
        }
        // A span may end on another CPU than the one on which it started.
        for (context, (entries, completed)) in spans {
            prop_assert!(completed <= entries, "{}: {} of {}", context, completed, entries);
        }
    }

    /// Nested as a kernel nests, all spans complete, and inclusive costs are what lies between.
    #[test]
    fn well_nested_events_leave_no_fault(depths in prop::collection::vec(1..8_u64, 1..40)) {
        let mut stack = KernelStack::default();
        stack.return_to_user(1, [0]);
        stack.open_region([0]);
        let (mut now, mut inclusive) = (0, 0);
        for depth in depths {
            now += 5;
            let start = now;
            for level in 0..depth {
                let context = KernelContext::Exception(level as u8);
                stack.enter_hardware(context, 0x9000 - 64 * level, (level == 0).then_some(1), [now]);
                now += 10;
            }
            for level in (1..depth).rev() {
                stack.return_to_kernel(0x9000 - 64 * level, [now]);
                now += 1;
            }
            stack.return_to_user(1, [now]);
            inclusive += now - start;
        }
        prop_assert_eq!(stack.faults(), Default::default());
        prop_assert_eq!(stack.depth(), 1);
        let ledger = stack.close_region([now]);
        prop_assert_eq!(ledger.total(), [now]);
        let outer = ledger.rows().find(|row| row.0 == KernelContext::Exception(0)).unwrap().1;
        prop_assert_eq!(outer.inclusive, [inclusive]);
        prop_assert_eq!(outer.completed, outer.entries);
    }
}

#[test]
fn a_task_switched_away_in_a_fault_is_in_that_fault_when_it_comes_back_on_another_cpu() {
    let mut cpus = [KernelStack::default(), KernelStack::default()];
    let mut tasks = TaskStacks::default();
    for cpu in &mut cpus {
        cpu.restart(KernelContext::Idle, [0]);
        cpu.open_region([0]);
    }
    let context = KernelContext::Task(7);
    tasks.switch(&mut cpus[0], (1, false), (7, context), [10]); // idle for 10
    cpus[0].return_to_user(7, [20]); // task 7 on its way out for 10
    cpus[0].enter_hardware(KernelContext::Exception(14), 0x8000, Some(7), [50]); // user for 30
    tasks.switch(&mut cpus[0], (7, false), (1, KernelContext::Idle), [60]); // in the fault for 10
    tasks.switch(&mut cpus[1], (2, false), (7, context), [100]); // the other one idle for 100
    cpus[1].return_to_user(7, [105]); // in the fault for 5
    let (first, second) = (cpus[0].close_region([60]), cpus[1].close_region([105]));
    let fault = KernelContext::Exception(14);
    assert_eq!((self_count(&first, fault), self_count(&second, fault)), (10, 5));
    assert_eq!(self_count(&first, KernelContext::User(7)), 30);
    let row = second.rows().find(|row| row.0 == fault).unwrap().1;
    assert_eq!((row.inclusive, row.completed), ([15], 1));
    assert_eq!((first.total(), second.total()), ([60], [105]));
}

/// A timer's interrupt gives way to task 9. When task 7 comes back, an NMI interrupts the rest of the return path. The
/// counts stay with the interrupt.
#[test]
fn transitions_show_where_an_interrupt_gives_way() {
    let (user, scheduler) = (KernelContext::User(7), KernelContext::Scheduler);
    let timer = KernelContext::Interrupt(0xec);
    let (mut stack, mut tasks) = (KernelStack::default(), TaskStacks::default());
    stack.keep_transitions();
    stack.restart(user, [0]);
    stack.open_region([0]);
    stack.give_way([5]);
    stack.enter_hardware(timer, 0x1000, Some(7), [10]);
    stack.give_way([30]);
    let task = KernelContext::KernelThread(9);
    tasks.switch(&mut stack, (7, false), (9, task), [40]);
    stack.give_way([50]);
    tasks.switch(&mut stack, (9, false), (7, user), [60]);
    stack.enter_hardware(KernelContext::Nmi, 0x900, None, [70]);
    stack.return_to_kernel(0x900, [75]);
    stack.return_to_user(7, [80]);
    let transitions: Vec<_> = stack
        .take_transitions()
        .map(|transition| (transition.at[0], transition.context, transition.task))
        .skip_while(|transition| transition.0 == 0)
        .collect();
    let expected = [
        (10, user, user),
        (10, timer, user),
        (30, scheduler, user),
        (40, task, task),
        (60, scheduler, user),
        (70, KernelContext::Nmi, user),
        (75, scheduler, user),
        (80, user, user),
    ];
    assert_eq!(transitions, expected);
    assert_eq!(self_count(stack.rows([90]), timer), 45);
}

#[test]
fn an_iret_of_the_kernels_own_ends_nothing() {
    let mut stack = KernelStack::default();
    stack.enter_hardware(KernelContext::Interrupt(0xec), 0x7fd8, None, [0]);
    stack.return_to_kernel(0x7e00, [5]);
    assert_eq!(stack.context(), KernelContext::Interrupt(0xec));
    assert_eq!(stack.faults().unmatched_returns, 1);
    stack.return_to_kernel(0x7fd8, [9]);
    assert_eq!(stack.depth(), 1);
}

#[test]
fn a_breakpoint_in_the_kernel_returns_from_a_frame_that_was_moved() {
    let mut stack = KernelStack::default();
    stack.enter_hardware(KernelContext::Exception(3), 0x7fd8, None, [0]);
    stack.return_to_kernel(0x7fd8 - 48, [5]);
    assert_eq!((stack.depth(), stack.faults()), (1, Default::default()));
}

#[test]
fn a_task_is_identified_once_and_stays_inside_of_what_it_was() {
    let mut stack = KernelStack::default();
    stack.open_region([0]);
    stack.enter_hardware(KernelContext::Interrupt(0xec), 0x7fd8, None, [3]);
    stack.identify(KernelContext::Idle, [5]);
    stack.identify(KernelContext::Task(9), [6]);
    stack.return_to_kernel(0x7fd8, [7]);
    assert_eq!(stack.context(), KernelContext::Idle);
    let ledger = stack.close_region([9]);
    assert_eq!(self_count(&ledger, KernelContext::Unknown), 3);
    assert_eq!(self_count(&ledger, KernelContext::Idle), 2);
}

#[test]
fn the_idle_loop_is_inside_of_nothing() {
    let mut stack = KernelStack::default();
    stack.enter_hardware(KernelContext::Exception(3), 0x7fd8, None, [0]);
    stack.restart(KernelContext::Idle, [5]);
    assert_eq!((stack.context(), stack.faults().abandoned), (KernelContext::Idle, 1));
}

#[test]
fn an_error_code_is_popped_before_the_return() {
    let mut stack = KernelStack::default();
    stack.enter_hardware(KernelContext::Exception(14), 0x7fd0, None, [0]);
    stack.return_to_kernel(0x7fd8, [5]);
    assert_eq!((stack.depth(), stack.faults()), (1, Default::default()));
}

#[test]
fn a_part_ends_when_it_is_told_to_or_with_what_it_is_part_of() {
    let mut stack = KernelStack::default();
    stack.open_region([0]);
    let (timer, body) = (KernelContext::Interrupt(0xec), KernelContext::Function(1));
    stack.enter_hardware(timer, 0x7fd8, None, [10]);
    stack.enter_section(body, [12]);
    assert!(stack.leave_section([17]) && !stack.leave_section([17]));
    stack.return_to_kernel(0x7fd8, [18]);
    assert_eq!((stack.depth(), stack.faults().abandoned), (1, 0));
    stack.enter_hardware(timer, 0x7fd8, None, [20]);
    stack.enter_section(body, [21]);
    stack.return_to_kernel(0x7fd8, [25]);
    assert_eq!((stack.depth(), stack.faults().abandoned), (1, 1));
    let ledger = stack.close_region([30]);
    assert_eq!((self_count(&ledger, body), self_count(&ledger, timer)), (5 + 4, 2 + 1 + 1));
}

#[test]
fn a_part_is_found_below_functions_and_not_below_an_interrupt() {
    let mut stack = KernelStack::default();
    let [part, called] = [1, 2].map(KernelContext::Function);
    stack.enter_section(part, [0]);
    stack.enter_call(called, 0x10, 0x7000, [1]);
    stack.enter_hardware(KernelContext::Interrupt(0xec), 0x6000, None, [2]);
    assert!(!stack.leave_section_of(part, [3]));
    stack.return_to_kernel(0x6000, [4]);
    assert!(!stack.leave_section_of(called, [5]));
    assert!(stack.leave_section_of(part, [6]));
    assert_eq!((stack.depth(), stack.faults().abandoned), (1, 1));
}

#[test]
fn a_function_that_ends_with_a_jump_to_another_returns_with_it() {
    let mut stack = KernelStack::default();
    stack.open_region([0]);
    let [first, second] = [1, 2].map(KernelContext::Function);
    stack.enter_call(first, 0x10, 0x7000, [0]);
    stack.enter_call(second, 0x10, 0x7000, [4]);
    stack.at_return_address(0x10, 0x7008, [9]);
    assert_eq!((stack.depth(), stack.faults(), stack.awaits()), (1, Default::default(), None));
    let ledger = stack.close_region([9]);
    let inclusive = |context| ledger.rows().find(|row| row.0 == context).unwrap().1.inclusive;
    assert_eq!((inclusive(first), inclusive(second)), ([9], [5]));
}

#[test]
fn a_recursive_call_is_in_the_inclusive_counts_once() {
    const RETURN: u64 = 0x50;
    const FUNCTION: KernelContext = KernelContext::Function(1);
    let row_after = |calls: fn(&mut KernelStack)| {
        let mut stack = KernelStack::<1>::default();
        stack.enter_call(FUNCTION, RETURN, 0x3000, [0]);
        stack.open_region([100]);
        calls(&mut stack);
        let ledger = stack.close_region([200]);
        let row = ledger.rows().find(|(context, _)| *context == FUNCTION).unwrap().1;
        (row.completed, row.inclusive[0])
    };
    // The function calls itself through another function; 18 instructions are in it, and 2 in the other function.
    let recursion = |stack: &mut KernelStack| {
        stack.enter_call(FUNCTION, RETURN, 0x2000, [100]);
        stack.enter_call(KernelContext::Function(2), RETURN, 0x1800, [110]);
        stack.enter_call(FUNCTION, RETURN, 0x1000, [112]);
        stack.at_return_address(RETURN, 0x1008, [117]);
        stack.at_return_address(RETURN, 0x1808, [117]);
        stack.at_return_address(RETURN, 0x2008, [120]);
    };
    // The outermost call started before the region and does not count.
    assert_eq!(row_after(recursion), (2, 20));
    // The outer call does not end in the region: the inner call counts.
    let unfinished = |stack: &mut KernelStack| {
        stack.enter_call(FUNCTION, RETURN, 0x2000, [100]);
        stack.enter_call(FUNCTION, RETURN, 0x1000, [110]);
        stack.at_return_address(RETURN, 0x1008, [115]);
    };
    assert_eq!(row_after(unfinished), (1, 5));
    // A call that ends, inside a call whose end was not seen.
    let abandoned = |stack: &mut KernelStack| {
        stack.enter_call(FUNCTION, RETURN, 0x2000, [100]);
        stack.enter_call(FUNCTION, RETURN, 0x1000, [110]);
        stack.enter_call(FUNCTION, RETURN, 0x800, [112]);
        stack.at_return_address(RETURN, 0x808, [115]);
        stack.at_return_address(RETURN, 0x2008, [120]);
    };
    assert_eq!(row_after(abandoned), (2, 20));
}
