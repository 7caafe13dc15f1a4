//! Selects the BPF programs that this kernel can attach, and lists the contexts that cannot be measured without the
//! others. `handlers`, `marks` and the calibration of events use the selection.
//!
//! The names of programs must be the same as in `bpf/handlers.bpf.c` and `bpf/noise.bpf.c`.

use attribution::context::VECTORS;
use libbpf_rs::Btf;

use super::kernel_counters::has_member;
use super::layout::{
    OFFSET_KSTAT, OFFSET_PENDING, OFFSET_PREEMPT, OFFSET_RUNQUEUES, PERCPU_OFFSETS,
    SENDER_CPU_WORDS,
};
use super::{Flavour, known_tracepoints};

/// A context, and the programs that measure it.
struct ContextPrograms {
    /// The context, as results name it.
    context: String,
    /// Tracepoint and program, in the order of attachment. Exits come first, so no program sees an
    /// entry without its exit.
    programs: Vec<(String, String)>,
}

impl ContextPrograms {
    fn single(context: &str, tracepoint: &str, program: &str) -> ContextPrograms {
        let programs = vec![(tracepoint.to_owned(), program.to_owned())];
        ContextPrograms { context: context.to_owned(), programs }
    }
}

/// The program that closes the window of a CPU when the kernel takes that CPU offline.
pub const CPU_LEAVES: &str = "cpu_leaves";
/// The tracepoint of [`CPU_LEAVES`].
pub const HOTPLUG_TRACEPOINT: &str = "cpuhp_enter";

/// The program at task switches, which measures threads of device IRQs.
const SWITCH_PROGRAM: &str = "switched";

/// The delays that need the kernel's own state of softirqs.
const SOFTIRQ_DELAYS: &str = "delays of softirqs";
/// The program that notes when a work item is queued.
pub const WORK_QUEUE_PROGRAM: &str = "work_queued";
/// The program that measures the delays of high-resolution timers.
const HRTIMER_PROGRAM: &str = "hrtimer_delay_ends";
/// The program that measures the delays of timers of the timer wheel.
const TIMER_PROGRAM: &str = "timer_delay_ends";
/// The delays that only a machine with threads of IRQ lines has.
const IRQ_THREAD_DELAYS: &str = "delays of threads of device IRQs";
/// The program that notes when a handler requests its thread.
pub const THREAD_REQUEST_PROGRAM: &str = "thread_requested";

/// The program at task switches that ends a part of a work item's span.
const WORK_SUSPEND_PROGRAM: &str = "work_suspended";
/// The program at task switches that opens the next part of a work item's span.
pub const WORK_RESUME_PROGRAM: &str = "work_resumed";

/// The program that notes when a function call is queued.
pub const CALL_QUEUE_PROGRAM: &str = "call_queued";
/// The program that notes when a function that was queued starts.
pub const CALL_START_PROGRAM: &str = "call_starts";
/// The program that notes an interrupt to one CPU.
pub const INTERRUPT_PROGRAM: &str = "interrupt_sent";
/// The program that notes the groups of completed requests.
pub const REQUEST_PROGRAM: &str = "request_completed";
/// The program that notes the groups of sockets that receive.
pub const SOCKET_PROGRAM: &str = "socket_received";

#[derive(Debug, Default)]
pub struct Chosen {
    /// Program names, in the order of attachment.
    pub programs: Vec<String>,
    /// Contexts that cannot be measured, each with the reason.
    pub absent: Vec<(String, String)>,
}

/// All contexts with their programs, in the order of attachment.
fn all_contexts() -> Vec<ContextPrograms> {
    let pair = |context: &str, tracepoint: &str| ContextPrograms {
        context: context.to_owned(),
        programs: vec![
            (format!("{tracepoint}_exit"), format!("{tracepoint}_out")),
            (format!("{tracepoint}_entry"), format!("{tracepoint}_in")),
        ],
    };
    let single = ContextPrograms::single;
    let mut contexts = vec![pair("device IRQs", "irq_handler"), pair("softirqs", "softirq")];
    contexts.extend(VECTORS.iter().map(|vector| pair(&format!("vector {vector}"), vector)));
    contexts.extend([
        single("threads of device IRQs", "sched_switch", SWITCH_PROGRAM),
        single("napi", "napi_poll", "napi_polled"),
        single("nmi", "nmi_handler", "nmi_handled"),
        single("page_fault_user", "page_fault_user", "page_fault_of_user"),
        single("page_fault_kernel", "page_fault_kernel", "page_fault_of_kernel"),
    ]);
    contexts
}

/// Selects the programs whose tracepoints the kernel has. Without BTF the tracepoints are unknown. Then all programs
/// are selected, and programs without a tracepoint fail when they are attached.
///
/// Task switches are frequent, so their program is selected only if IRQ lines of this machine have threads.
#[must_use]
pub fn choose(flavour: Flavour, has_irq_threads: bool) -> Chosen {
    let contexts = all_contexts();
    let all_programs = contexts.iter().flat_map(|context| &context.programs);
    let tracepoints: Vec<&str> = all_programs.map(|(tracepoint, _)| tracepoint.as_str()).collect();
    let known = match flavour {
        Flavour::Btf => known_tracepoints(&tracepoints),
        Flavour::Raw => None,
    };
    let mut chosen = Chosen::default();
    for ContextPrograms { context, programs } in &contexts {
        let is_missing = |tracepoint: &str| {
            known.as_ref().is_some_and(|known| known.get(tracepoint) == Some(&false))
        };
        let needs_switches = programs.iter().any(|(_, program)| program == SWITCH_PROGRAM);
        if needs_switches && let Some(reason) = why_no_switches(flavour, has_irq_threads) {
            chosen.absent.push((context.clone(), reason.to_owned()));
            continue;
        }
        match programs.iter().find(|(tracepoint, _)| is_missing(tracepoint)) {
            Some(_) => {
                let reason = "this kernel has no tracepoints for them".to_owned();
                chosen.absent.push((context.clone(), reason));
            }
            None => chosen.programs.extend(programs.iter().map(|(_, program)| program.clone())),
        }
    }
    chosen
}

/// The contexts of functions that the kernel calls back, with their programs, in the order of attachment.
fn callback_contexts() -> Vec<ContextPrograms> {
    let pair = |context: &str, entry: &str, exit: &str, program: &str| ContextPrograms {
        context: format!("{context} rows"),
        programs: vec![
            (exit.to_owned(), format!("{program}_out")),
            (entry.to_owned(), format!("{program}_in")),
        ],
    };
    let by_name = |context, name: &str| {
        pair(context, &format!("{name}_entry"), &format!("{name}_exit"), name)
    };
    let (work_entry, work_exit) = ("workqueue_execute_start", "workqueue_execute_end");
    let mut work = pair("work", work_entry, work_exit, "workqueue_execute");
    let at_switch = |program: &str| ("sched_switch".to_owned(), program.to_owned());
    work.programs.extend([WORK_SUSPEND_PROGRAM, WORK_RESUME_PROGRAM].map(at_switch));
    vec![
        by_name("hrtimer", "hrtimer_expire"),
        by_name("timer", "timer_expire"),
        by_name("tasklet", "tasklet"),
        work,
        ContextPrograms::single("rcu rows", "rcu_invoke_callback", "rcu_invoked"),
    ]
}

/// Chooses the programs of the contexts whose tracepoints this kernel has, in the order of attachment. `reason_of`: why the
/// context of this name cannot be measured although it has its tracepoints.
fn choose_where_known<Reason: Into<String>>(
    contexts: &[ContextPrograms],
    flavour: Flavour,
    reason_of: impl Fn(&str) -> Option<Reason>,
) -> Chosen {
    let all_programs = contexts.iter().flat_map(|context| &context.programs);
    let tracepoints: Vec<&str> = all_programs.map(|(tracepoint, _)| tracepoint.as_str()).collect();
    let known = match flavour {
        Flavour::Btf => known_tracepoints(&tracepoints),
        Flavour::Raw => None,
    };
    let mut chosen = Chosen::default();
    for ContextPrograms { context, programs } in contexts {
        let missing = known.as_ref().and_then(|known| {
            let mut tracepoints = programs.iter().map(|(tracepoint, _)| tracepoint);
            tracepoints.find(|name| known.get(name.as_str()) == Some(&false))
        });
        let reason = match (&known, reason_of(context), missing) {
            (None, _, _) => Some("this kernel has no type information".to_owned()),
            (Some(_), Some(reason), _) => Some(reason.into()),
            (Some(_), None, Some(missing)) => {
                Some(format!("this kernel has no tracepoint {missing}"))
            }
            (Some(_), None, None) => None,
        };
        match reason {
            Some(reason) => chosen.absent.push((context.clone(), reason)),
            None => chosen.programs.extend(programs.iter().map(|(_, program)| program.clone())),
        }
    }
    chosen
}

/// Like [`choose`], for the functions that timers, tasklets, work items and RCU call. `is_realtime`: whether the kernel
/// is a PREEMPT_RT kernel.
#[must_use]
pub fn choose_callbacks(flavour: Flavour, is_realtime: bool) -> Chosen {
    choose_where_known(&callback_contexts(), flavour, |_| {
        is_realtime.then_some("on PREEMPT_RT, other tasks may run in the middle of a softirq")
    })
}

/// The delays with their programs, in the order of attachment.
fn delay_contexts() -> Vec<ContextPrograms> {
    let delays = |context: &str, end: (&str, &str), begin: (&str, &str)| ContextPrograms {
        context: context.to_owned(),
        programs: [end, begin].map(|(point, name)| (point.to_owned(), name.to_owned())).to_vec(),
    };
    vec![
        delays(
            SOFTIRQ_DELAYS,
            ("softirq_entry", "softirq_delay_ends"),
            ("softirq_raise", "softirq_raised"),
        ),
        delays(
            "delays of work items",
            ("workqueue_execute_start", "work_delay_ends"),
            ("workqueue_queue_work", WORK_QUEUE_PROGRAM),
        ),
        ContextPrograms {
            context: IRQ_THREAD_DELAYS.to_owned(),
            programs: [
                ("sched_switch", "threads_switch"),
                ("irq_handler_exit", THREAD_REQUEST_PROGRAM),
            ]
            .map(|(point, name)| (point.to_owned(), name.to_owned()))
            .to_vec(),
        },
        ContextPrograms::single(
            "delays of high-resolution timers",
            "hrtimer_expire_entry",
            HRTIMER_PROGRAM,
        ),
        ContextPrograms::single("delays of timers", "timer_expire_entry", TIMER_PROGRAM),
    ]
}

/// Whether a program measures delays. Only the timing pass has these programs.
#[must_use]
pub fn is_of_delays(program: &str) -> bool {
    let delays = delay_contexts();
    delays.iter().any(|context| context.programs.iter().any(|(_, name)| name == program))
}

/// Chooses the programs for delays. `offsets`:
/// [`offsets_in_percpu_area`](super::kernel_counters::offsets_in_percpu_area).
#[must_use]
pub fn choose_delays(
    flavour: Flavour,
    offsets: &[i32; PERCPU_OFFSETS],
    has_irq_threads: bool,
) -> Chosen {
    let has_softirq_state =
        [OFFSET_RUNQUEUES, OFFSET_KSTAT, OFFSET_PENDING].iter().all(|index| offsets[*index] >= 0);
    let contexts = delay_contexts();
    choose_where_known(&contexts, flavour, |context| match context {
        SOFTIRQ_DELAYS if !has_softirq_state => Some(
            "this kernel's type information does not locate its count of softirqs and its mask of \
             pending softirqs"
                .to_owned(),
        ),
        IRQ_THREAD_DELAYS => why_no_switches(flavour, has_irq_threads).map(str::to_owned),
        _ => {
            let found = contexts.iter().find(|delays| delays.context == context)?;
            let mut programs = found.programs.iter().map(|(_, program)| program);
            programs.find_map(|program| missing_field(program))
        }
    })
}

/// The programs of senders, in the order of attachment.
fn sender_contexts() -> Vec<ContextPrograms> {
    let senders = |context: &str, programs: &[(&str, &str)]| ContextPrograms {
        context: context.to_owned(),
        programs: programs
            .iter()
            .map(|&(point, name)| (point.to_owned(), name.to_owned()))
            .collect(),
    };
    vec![
        senders(
            "senders of function calls",
            &[
                ("csd_function_exit", "call_ends"),
                ("csd_function_entry", CALL_START_PROGRAM),
                ("csd_queue_cpu", CALL_QUEUE_PROGRAM),
            ],
        ),
        senders(
            "senders of interrupts",
            &[("ipi_send_cpu", INTERRUPT_PROGRAM), ("ipi_send_cpumask", "interrupts_sent")],
        ),
    ]
}

/// Whether a program measures senders of interrupts. Only the timing pass has these programs.
#[must_use]
pub fn is_of_senders(program: &str) -> bool {
    let senders = sender_contexts();
    senders.iter().any(|context| context.programs.iter().any(|(_, name)| name == program))
}

/// Chooses the programs for senders. `cpus`: how many CPUs this machine may have. `offsets`:
/// [`offsets_in_percpu_area`](super::kernel_counters::offsets_in_percpu_area).
#[must_use]
pub fn choose_senders(flavour: Flavour, offsets: &[i32; PERCPU_OFFSETS], cpus: usize) -> Chosen {
    let has_interrupt_state =
        [OFFSET_RUNQUEUES, OFFSET_PREEMPT].iter().all(|index| offsets[*index] >= 0);
    choose_where_known(&sender_contexts(), flavour, |_| {
        if cpus > SENDER_CPU_WORDS * 64 {
            return Some("irqlab follows senders on machines with at most 1,024 CPUs");
        }
        (!has_interrupt_state).then_some(
            "this kernel's type information does not locate the count that tells interrupts from tasks",
        )
    })
}

/// The programs that find the control groups that cause interrupts, in the order of attachment.
fn cause_contexts() -> Vec<ContextPrograms> {
    let single = ContextPrograms::single;
    vec![
        single("causes of completed requests", "block_rq_complete", REQUEST_PROGRAM),
        single("causes of received packets", "sk_data_ready", SOCKET_PROGRAM),
    ]
}

/// The fields that a program reads and that a kernel may lack: the program, the structure and the field's name.
const FIELDS: [(&str, &str, &str); 14] = [
    (REQUEST_PROGRAM, "bio", "bi_blkg"),
    (REQUEST_PROGRAM, "blkcg_gq", "blkcg"),
    (SOCKET_PROGRAM, "sock", "sk_cgrp_data"),
    (SOCKET_PROGRAM, "sock_cgroup_data", "cgroup"),
    (THREAD_REQUEST_PROGRAM, "irqaction", "thread"),
    (THREAD_REQUEST_PROGRAM, "irqaction", "thread_flags"),
    (THREAD_REQUEST_PROGRAM, "task_struct", "on_rq"),
    (WORK_QUEUE_PROGRAM, "work_struct", "func"),
    (HRTIMER_PROGRAM, "hrtimer", "function"),
    (HRTIMER_PROGRAM, "hrtimer", "_softexpires"),
    (HRTIMER_PROGRAM, "hrtimer", "base"),
    (HRTIMER_PROGRAM, "hrtimer_clock_base", "offset"),
    (TIMER_PROGRAM, "timer_list", "function"),
    (TIMER_PROGRAM, "timer_list", "expires"),
];

/// Why a program cannot run: the first of its [`FIELDS`] that the kernel's type information lacks. `None` if it has all, and
/// without type information.
fn missing_field(program: &str) -> Option<String> {
    let btf = Btf::from_vmlinux().ok()?;
    let mut fields = FIELDS.iter().filter(|(user, ..)| *user == program);
    let (_, structure, field) =
        fields.find(|(_, structure, field)| !has_member(&btf, structure, field))?;
    Some(format!("this kernel's structure {structure} has no field {field}"))
}

/// Whether a program finds causes of interrupts. Only the timing pass has these programs.
#[must_use]
pub fn is_of_causes(program: &str) -> bool {
    let causes = cause_contexts();
    causes.iter().any(|context| context.programs.iter().any(|(_, name)| name == program))
}

/// Like [`choose`], for causes of interrupts. `why_unknown`: by the program, why the kernel does not name the causes
/// as the victims are named.
#[must_use]
pub fn choose_causes(
    flavour: Flavour,
    why_unknown: impl Fn(&str) -> Option<&'static str>,
) -> Chosen {
    choose_where_known(&cause_contexts(), flavour, |context| {
        let contexts = cause_contexts();
        let found = contexts.iter().find(|cause| cause.context == context)?;
        let (_, program) = found.programs.first()?;
        why_unknown(program).map(str::to_owned).or_else(|| missing_field(program))
    })
}

impl Chosen {
    /// Adds the programs for senders. Returns what cannot be measured, each with the reason.
    pub fn add_senders(&mut self, senders: Chosen) -> Vec<(String, String)> {
        self.programs.extend(senders.programs);
        senders.absent
    }

    /// Adds the programs for delays. They run before the programs that open spans at the same tracepoints, so no span has
    /// them inside. Returns the delays that cannot be measured, each with the reason.
    pub fn add_delays(&mut self, delays: Chosen) -> Vec<(String, String)> {
        self.programs.splice(0..0, delays.programs);
        delays.absent
    }

    /// Adds the programs for functions. At a task switch, the parts of work items end before the program of IRQ threads
    /// runs, and begin after it: so the spans of the old task end before those of the new task begin.
    pub fn add_callbacks(&mut self, callbacks: Chosen) {
        let ends_parts = |program: &String| program == WORK_SUSPEND_PROGRAM;
        let (first, last): (Vec<_>, Vec<_>) = callbacks.programs.into_iter().partition(ends_parts);
        self.programs.splice(0..0, first);
        self.programs.extend(last);
        self.absent.extend(callbacks.absent);
    }
}

/// Why the program at task switches is not selected; `None` if it is.
fn why_no_switches(flavour: Flavour, has_irq_threads: bool) -> Option<&'static str> {
    match (has_irq_threads, flavour) {
        (false, _) => Some("no IRQ line of this machine has a thread"),
        (true, Flavour::Raw) => Some("this kernel has no type information"),
        (true, Flavour::Btf) => None,
    }
}

/// If the program handles an entry: the program that handles both entry and exit of that context, and the tracepoint
/// of the entry. `None` for any other program.
///
/// Without cookies, the entry program runs first and claims a frame for the span, and then the other program opens the
/// span. With cookies, the other program runs alone (bpf/handlers.bpf.c).
#[must_use]
pub fn follower(entry: &str) -> Option<(String, String)> {
    match entry {
        "open_now" => Some(("start_now".to_owned(), "sys_enter".to_owned())),
        "syscall_in" => Some(("syscall_out".to_owned(), "sys_enter".to_owned())),
        "workqueue_execute_in" => {
            Some(("workqueue_execute_out".to_owned(), "workqueue_execute_start".to_owned()))
        }
        _ => {
            let context = entry.strip_suffix("_in")?;
            Some((format!("{context}_out"), format!("{context}_entry")))
        }
    }
}

/// The context that cannot be measured without `program`; the program's name if no context needs it.
#[must_use]
pub fn context_of_program(program: &str) -> String {
    all_contexts()
        .into_iter()
        .chain(callback_contexts())
        .chain(delay_contexts())
        .chain(sender_contexts())
        .chain(cause_contexts())
        .find(|context| context.programs.iter().any(|(_, name)| name == program))
        .map_or_else(|| program.to_owned(), |found| found.context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_task_switch_the_old_tasks_spans_end_before_the_new_tasks_begin() {
        let programs = |names: &[&str]| Chosen {
            programs: names.iter().map(|name| (*name).to_owned()).collect(),
            absent: Vec::new(),
        };
        let mut chosen = programs(&["irq_handler_out", SWITCH_PROGRAM]);
        chosen.add_callbacks(programs(&["tasklet_out", WORK_SUSPEND_PROGRAM, WORK_RESUME_PROGRAM]));
        let expected = [
            WORK_SUSPEND_PROGRAM,
            "irq_handler_out",
            SWITCH_PROGRAM,
            "tasklet_out",
            WORK_RESUME_PROGRAM,
        ];
        assert_eq!(chosen.programs, expected);
    }

    #[test]
    fn delays_are_absent_without_type_information_or_the_kernels_own_state() {
        let known = [8; PERCPU_OFFSETS];
        let raw = choose_delays(Flavour::Raw, &known, true);
        assert_eq!((raw.programs.len(), raw.absent.len()), (0, 5));
        let mut offsets = known;
        offsets[OFFSET_PENDING] = -1;
        let chosen = choose_delays(Flavour::Btf, &offsets, false);
        assert!(chosen.absent.iter().any(|(context, _)| context == "delays of softirqs"));
        assert!(!chosen.programs.iter().any(|program| program == "softirq_raised"));
        let reason = chosen.absent.iter().find(|(context, _)| context == IRQ_THREAD_DELAYS);
        assert!(
            reason.is_some_and(|(_, reason)| reason == "no IRQ line of this machine has a thread")
        );
        assert!(is_of_delays("softirq_delay_ends") && !is_of_delays("softirq_in"));
    }

    #[test]
    fn senders_are_absent_without_type_information_or_on_a_machine_with_too_many_cpus() {
        let known = [8; PERCPU_OFFSETS];
        let absent = |flavour, offsets: &[i32; PERCPU_OFFSETS], cpus| {
            let chosen = choose_senders(flavour, offsets, cpus);
            assert!(chosen.programs.is_empty());
            chosen.absent.iter().map(|(_, reason)| reason.clone()).collect::<Vec<_>>()
        };
        let reasons = absent(Flavour::Raw, &known, 2);
        assert!(reasons.len() == 2 && reasons[0].contains("no type information"), "{reasons:?}");
        let mut offsets = known;
        offsets[OFFSET_PREEMPT] = -1;
        for (offsets, cpus) in [(&offsets, 2), (&known, 1_025)] {
            assert_eq!(absent(Flavour::Btf, offsets, cpus).len(), 2);
        }
        assert!(is_of_senders("call_queued") && !is_of_senders("work_queued"));
        assert_eq!(context_of_program("interrupts_sent"), "senders of interrupts");
    }

    #[test]
    fn a_cause_that_the_kernel_does_not_name_is_absent_alone() {
        let reason = |program: &str| (program == REQUEST_PROGRAM).then_some("other groups");
        let chosen = choose_causes(Flavour::Raw, reason);
        assert_eq!((chosen.programs.len(), chosen.absent.len()), (0, 2));
        let chosen = choose_causes(Flavour::Btf, reason);
        assert!(!chosen.programs.iter().any(|program| program == REQUEST_PROGRAM));
        let requests = &chosen.absent[0];
        assert_eq!(requests.0, "causes of completed requests");
        let Ok(btf) = Btf::from_vmlinux() else {
            assert_eq!(requests.1, "this kernel has no type information");
            return needs::not_run(needs::Need::Bpf, "this kernel has no type information");
        };
        assert_eq!(requests.1, "other groups");
        assert!(has_member(&btf, "task_struct", "comm"));
        assert!(!has_member(&btf, "task_struct", "irqlab") && !has_member(&btf, "irqlab", "comm"));
    }

    #[test]
    fn functions_are_absent_on_preempt_rt_and_without_type_information() {
        for (flavour, is_realtime) in [(Flavour::Raw, false), (Flavour::Raw, true)] {
            let chosen = choose_callbacks(flavour, is_realtime);
            assert_eq!((chosen.programs.len(), chosen.absent.len()), (0, 5));
        }
        let on_rt = choose_callbacks(Flavour::Btf, true);
        assert_eq!((on_rt.programs.len(), on_rt.absent.len()), (0, 5), "{:?}", on_rt.programs);
    }
}
