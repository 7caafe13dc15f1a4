//! The names of the kernel functions at which the plugin follows contexts, and their meanings. To support another
//! kernel, add the names of its functions.

use attribution::context::SYSTEM_VECTORS;
use attribution::{ContextKind, KernelContext, SYSCALL_32};

use super::{Action, SentInterrupt};

/// Functions at whose first instruction the plugin acts.
pub(super) const POINTS: [(&str, Action); 23] = [
    ("entry_SYSCALL_64", Action::SyscallEntry { flags: 0 }),
    ("entry_SYSCALL_compat", Action::SyscallEntry { flags: SYSCALL_32 }),
    ("entry_SYSENTER_compat", Action::SyscallEntry { flags: SYSCALL_32 }),
    ("entry_INT80_compat", Action::SyscallEntry { flags: SYSCALL_32 }),
    ("asm_int80_emulation", Action::SyscallEntry { flags: SYSCALL_32 }),
    ("__switch_to_asm", Action::Switch),
    ("do_exit", Action::TaskExit),
    ("do_task_dead", Action::TaskDead),
    ("cpu_startup_entry", Action::IdleLoop),
    ("cpuhp_report_idle_dead", Action::CpuDead),
    ("tasklet_hi_action", Action::SoftirqEntry(0)),
    ("run_timer_softirq", Action::SoftirqEntry(1)),
    ("net_tx_action", Action::SoftirqEntry(2)),
    ("net_rx_action", Action::SoftirqEntry(3)),
    ("blk_done_softirq", Action::SoftirqEntry(4)),
    ("irq_poll_softirq", Action::SoftirqEntry(5)),
    ("tasklet_action", Action::SoftirqEntry(6)),
    ("run_rebalance_domains", Action::SoftirqEntry(7)),
    ("sched_balance_softirq", Action::SoftirqEntry(7)),
    ("hrtimer_run_softirq", Action::SoftirqEntry(8)),
    ("rcu_core_si", Action::SoftirqEntry(9)),
    ("__handle_irq_event_percpu", Action::IrqLine),
    ("handle_irq_event_percpu", Action::IrqLine),
];

/// The kernel calls the BPF programs at the live bench's tracepoints through these functions, one per tracepoint class. A
/// program at a class that is not here counts as self time of what it interrupts. Records have the positions: append only.
pub(super) const PROBES: [&str; 28] = [
    "__bpf_trace_irq_handler_entry",
    "__bpf_trace_irq_handler_exit",
    "__bpf_trace_softirq",
    "__bpf_trace_x86_irq_vector",
    "__bpf_trace_x86_exceptions",
    "__bpf_trace_napi_poll",
    "__bpf_trace_nmi_handler",
    "__bpf_prog_test_run_raw_tp",
    "__bpf_trace_sched_wakeup_template",
    "__bpf_trace_sched_switch",
    "__bpf_trace_csd_queue_cpu",
    "__bpf_trace_csd_function",
    "__bpf_trace_ipi_send_cpu",
    "__bpf_trace_ipi_send_cpumask",
    "__bpf_trace_hrtimer_expire_entry",
    "__bpf_trace_timer_expire_entry",
    "__bpf_trace_workqueue_queue_work",
    "__bpf_trace_workqueue_execute_start",
    "__bpf_trace_hrtimer_class",
    "__bpf_trace_timer_class",
    "__bpf_trace_workqueue_execute_end",
    "__bpf_trace_tasklet",
    "__bpf_trace_rcu_invoke_callback",
    "__bpf_trace_block_rq_complete",
    // The class of the tracepoint block_rq_complete from Linux 5.18 on.
    "__bpf_trace_block_rq_completion",
    "__bpf_trace_sk_data_ready",
    "__bpf_trace_cpuhp_enter",
    // The name of x86_exceptions from Linux 6.16 on.
    "__bpf_trace_exceptions",
];

/// Functions that call all BPF programs at a vector's entry one after the other, if several are attached.
pub(super) const ENTRY_LOOPS: [&str; 11] = [
    "__traceiter_local_timer_entry",
    "__traceiter_spurious_apic_entry",
    "__traceiter_error_apic_entry",
    "__traceiter_x86_platform_ipi_entry",
    "__traceiter_irq_work_entry",
    "__traceiter_reschedule_entry",
    "__traceiter_call_function_entry",
    "__traceiter_call_function_single_entry",
    "__traceiter_threshold_apic_entry",
    "__traceiter_deferred_error_apic_entry",
    "__traceiter_thermal_apic_entry",
];

/// Entry points of exceptions, and of system vectors outside of [`attribution::context::SYSTEM_VECTORS`].
const OTHER_GATES: [(&str, KernelContext); 31] = [
    ("asm_exc_divide_error", KernelContext::Exception(0)),
    ("asm_exc_debug", KernelContext::Exception(1)),
    ("asm_exc_nmi", KernelContext::Nmi),
    ("asm_exc_nmi_noist", KernelContext::Nmi),
    ("asm_exc_int3", KernelContext::Exception(3)),
    ("asm_exc_overflow", KernelContext::Exception(4)),
    ("asm_exc_bounds", KernelContext::Exception(5)),
    ("asm_exc_invalid_op", KernelContext::Exception(6)),
    ("asm_exc_device_not_available", KernelContext::Exception(7)),
    ("asm_exc_double_fault", KernelContext::Exception(8)),
    ("asm_exc_coproc_segment_overrun", KernelContext::Exception(9)),
    ("asm_exc_invalid_tss", KernelContext::Exception(10)),
    ("asm_exc_segment_not_present", KernelContext::Exception(11)),
    ("asm_exc_stack_segment", KernelContext::Exception(12)),
    ("asm_exc_general_protection", KernelContext::Exception(13)),
    ("asm_exc_page_fault", KernelContext::Exception(14)),
    ("asm_exc_spurious_interrupt_bug", KernelContext::Exception(15)),
    ("asm_exc_coprocessor_error", KernelContext::Exception(16)),
    ("asm_exc_alignment_check", KernelContext::Exception(17)),
    ("asm_exc_machine_check", KernelContext::Exception(18)),
    ("asm_exc_simd_coprocessor_error", KernelContext::Exception(19)),
    ("asm_exc_virtualization_exception", KernelContext::Exception(20)),
    ("asm_exc_control_protection", KernelContext::Exception(21)),
    ("asm_exc_vmm_communication", KernelContext::Exception(29)),
    ("asm_sysvec_hyperv_stimer0", KernelContext::Interrupt(0xed)),
    ("asm_sysvec_hyperv_reenlightenment", KernelContext::Interrupt(0xee)),
    ("asm_sysvec_kvm_posted_intr_nested_ipi", KernelContext::Interrupt(0xf0)),
    ("asm_sysvec_kvm_posted_intr_wakeup_ipi", KernelContext::Interrupt(0xf1)),
    ("asm_sysvec_kvm_posted_intr_ipi", KernelContext::Interrupt(0xf2)),
    ("asm_sysvec_kvm_asyncpf_interrupt", KernelContext::Interrupt(0xf3)),
    ("asm_sysvec_reboot", KernelContext::Interrupt(0xf8)),
];

/// The kernel's entry points for interrupts and exceptions, and the contexts that start there.
pub(super) fn gates() -> impl Iterator<Item = (&'static str, KernelContext)> {
    let system = SYSTEM_VECTORS.iter();
    let system = system.map(|row| (row.entry_symbol, KernelContext::Interrupt(row.vector)));
    OTHER_GATES.into_iter().chain(system)
}

/// Functions that call the handlers of softirqs: `handle_softirqs` from Linux 6.11 on (and in stable 6.1), and
/// `__do_softirq` before. The compiler can inline `handle_softirqs` into the other functions.
pub(super) const SOFTIRQ_CALLERS: [&str; 4] =
    ["handle_softirqs", "__do_softirq", "run_ksoftirqd", "run_ktimerd"];

/// Functions that call the handlers of IRQ lines. The compiler can inline the first into the second.
pub(super) const IRQ_CALLERS: [&str; 2] = ["__handle_irq_event_percpu", "handle_irq_event_percpu"];

/// Functions that call the functions of timers, work items, tasklets and RCU through a pointer, and the kind of the
/// called functions. They call no other function through a pointer. The compiler can inline `call_timer_fn` and
/// `__run_hrtimer` into the functions after them.
pub(super) const CALLBACK_CALLERS: [(&str, ContextKind); 8] = [
    ("call_timer_fn", ContextKind::Timer),
    ("expire_timers", ContextKind::Timer),
    ("__run_timers", ContextKind::Timer),
    ("__run_hrtimer", ContextKind::Hrtimer),
    ("__hrtimer_run_queues", ContextKind::Hrtimer),
    ("process_one_work", ContextKind::Work),
    ("tasklet_action_common", ContextKind::Tasklet),
    ("rcu_do_batch", ContextKind::Rcu),
];

/// Functions that set a bit in one of the CPU's masks of pending softirqs. The compiler can inline the first into the two
/// after it. On PREEMPT_RT, the last three set bits in a mask of softirqs that the CPU's thread of timers runs.
pub(super) const SOFTIRQ_RAISERS: [&str; 6] = [
    "__raise_softirq_irqoff",
    "raise_softirq_irqoff",
    "raise_softirq",
    "raise_hrtimer_softirq",
    "raise_timer_softirq",
    "raise_ktimers_thread",
];

/// Further functions at whose first instruction a delay begins.
pub(super) const DELAY_POINTS: [(&str, Action); 2] =
    [("__queue_work", Action::QueueWork), ("__irq_wake_thread", Action::RequestIrqThread)];

/// Functions that queue function calls for other CPUs, and functions that send interrupts to them. All call
/// `llist_add_batch` to add a call to the queue of a CPU.
pub(super) const SENDER_POINTS: [(&str, Action); 10] = [
    ("generic_exec_single", Action::StartSending),
    ("__smp_call_single_queue", Action::StartSending),
    ("smp_call_function_many_cond", Action::StartSending),
    ("llist_add_batch", Action::AddToQueue),
    ("irq_work_single", Action::RunIrqWork),
    ("sched_ttwu_pending", Action::WakeQueuedTasks),
    ("native_smp_send_reschedule", Action::SendInterrupt(SentInterrupt::Reschedule)),
    ("native_send_call_func_single_ipi", Action::SendInterrupt(SentInterrupt::CallFunctionSingle)),
    ("native_send_call_func_ipi", Action::SendInterrupt(SentInterrupt::CallFunction)),
    ("arch_irq_work_raise", Action::SendInterrupt(SentInterrupt::IrqWork)),
];

/// Functions that submit, chain or end a bio, and functions that complete requests. An interrupt may only request the completion
/// of a request (`blk_mq_complete_request`), which its softirq then completes. The compiler can inline some of them into others.
pub(super) const REQUEST_POINTS: [(&str, Action); 8] = [
    ("submit_bio", Action::SubmitBio),
    ("submit_bio_noacct", Action::SubmitBio),
    ("bio_chain", Action::ChainBio),
    ("bio_endio", Action::EndBio),
    ("blk_mq_complete_request", Action::CompleteRequest),
    ("blk_mq_complete_request_remote", Action::CompleteRequest),
    ("blk_update_request", Action::CompleteRequest),
    ("blk_mq_end_request_batch", Action::CompleteRequests),
];

/// Functions that call the queued functions through a pointer. They call no other function through a register. The
/// compiler can inline the first into the second.
pub(super) const QUEUED_CALL_CALLERS: [&str; 2] =
    ["__flush_smp_call_function_queue", "flush_smp_call_function_queue"];

/// Registers of the processor, in the order of its encoding.
pub(super) const ENCODED_REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// Thunks through which a kernel with retpolines calls a function pointer.
pub(super) const THUNKS: [&str; 16] = [
    "__x86_indirect_thunk_array",
    "__x86_indirect_thunk_rbx",
    "__x86_indirect_thunk_rcx",
    "__x86_indirect_thunk_rdx",
    "__x86_indirect_thunk_rsi",
    "__x86_indirect_thunk_rdi",
    "__x86_indirect_thunk_rbp",
    "__x86_indirect_thunk_r8",
    "__x86_indirect_thunk_r9",
    "__x86_indirect_thunk_r10",
    "__x86_indirect_thunk_r11",
    "__x86_indirect_thunk_r12",
    "__x86_indirect_thunk_r13",
    "__x86_indirect_thunk_r14",
    "__x86_indirect_thunk_r15",
    // The first thunk in the array. Its address is that of the array.
    "__x86_indirect_thunk_rax",
];

/// Further symbols that the plugin uses: stubs of interrupts, and the kernel's data.
pub(super) const OTHERS: [&str; 16] = [
    "irq_entries_start",
    "spurious_entries_start",
    "current_task",
    "pcpu_hot",
    "irq_stat",
    "kstat",
    "__per_cpu_offset",
    "__preempt_count",
    CALL_QUEUE,
    "_text",
    "_etext",
    "__entry_text_start",
    "__entry_text_end",
    FAST_CLOCK,
    JIFFIES,
    JIFFIES_SOURCE,
];

/// The head of the queue of function calls in each CPU's per-CPU area.
pub(super) const CALL_QUEUE: &str = "call_single_queue";

/// The kernel's monotonic clock, for readers that take no lock.
pub(super) const FAST_CLOCK: &str = "tk_fast_mono";
/// The kernel's count of jiffies.
pub(super) const JIFFIES: &str = "jiffies_64";
/// The clock source that counts jiffies.
pub(super) const JIFFIES_SOURCE: &str = "clocksource_jiffies";
