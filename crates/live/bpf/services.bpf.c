/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Services of the kernel. Measures how long system calls and page faults last, and how much of that
 * time their tasks are blocked, descheduled or interrupted. Also measures the time of interrupts
 * and softirqs, and each CPU's time by service (service_time.h).
 *
 * A system call belongs to its task, which may continue on another CPU, so its state is in a map of
 * tasks. Sums are in rows of the CPU on which the request ends. Only that CPU writes them.
 */
#include "kernel.h"
#include "services.h"
#include "distribution_slots.h"
#include "service_time.h"

const volatile struct service_config cfg SEC(".rodata.config") = {};

#include "kernel_counters.h"
#include "system_calls.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* CO-RE ignores ___ and the rest of the name. */
struct task_struct___of_services {
	int pid;
	int tgid;
	unsigned int flags;
	unsigned int __state; /* Linux 5.14 */
} RELOCATED;

struct task_struct___before_5_14 {
	long state;
} RELOCATED;

#define TASK_DEAD 0x80 /* include/linux/sched.h */
#define TASK_WAKING 0x200 /* since Linux 4.14 */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVICE_TASKS);
	__type(key, u32);
	__type(value, struct service_task);
} tasks SEC(".maps");

static __always_inline struct service_task *task_of(u32 pid)
{
	return bpf_map_lookup_elem(&tasks, &pid);
}

/*
 * Returns the state of a task, which is new if the task was not seen in this window; 0 if the map
 * is full.
 */
static __always_inline struct service_task *known_task(struct task_struct *task, u32 pid)
{
	static const struct service_task empty;
	struct service_task *known = task_of(pid);

	if (known)
		return known;
	if (bpf_map_update_elem(&tasks, &pid, &empty, BPF_NOEXIST))
		lose();
	known = task_of(pid);
	if (known)
		known->call.service = call_by_registers(task);
	return known;
}

static __always_inline struct service_task *current_task(void)
{
	return known_task(bpf_get_current_task_btf(), (u32)bpf_get_current_pid_tgid());
}

/* Returns the request that a task waits for, executes, or is interrupted in. */
static __always_inline struct service_request *request_of(struct service_task *task)
{
	return task->fault.service ? &task->fault : &task->call;
}

/*
 * Returns the sum of nested times of what the CPU does at a depth: of a span or of the task's request; 0 if there is
 * none. An IRQ may add to the sum at any time.
 */
static __always_inline u64 *nested_sum(struct service_cpu *cpu, u32 depth)
{
	struct service_task *task;

	if (depth)
		return &span_at(cpu, depth - 1)->nested_ns;
	task = task_of((u32)bpf_get_current_pid_tgid());
	return task ? &request_of(task)->nested_ns : 0;
}

/* Charges the time of one of these programs to what it interrupts: the program is no computation of it. */
static __always_inline void charge_program(u64 *nested, u64 start_ns, u64 end_ns)
{
	if (nested)
		__sync_fetch_and_add(nested, end_ns - start_ns);
}

/* Returns the service for which a program's task executes when nothing interrupts it. */
static __always_inline u32 service_of_task(struct service_task *task)
{
	u32 service = request_of(task)->service;

	return service ? service - 1 : SERVICE_USER;
}

/* The process whose threads some kernels hide: while they run, these kernels call no BPF program. */
#define HIDDEN_PROCESS 1

/*
 * Returns the service for which any task executes when nothing interrupts it. Not known for a hidden task: nothing would
 * tell that its system call ends, or that the CPU switches to another task.
 */
static __always_inline u32 service_of_any(struct task_struct *task, u32 pid, u32 tgid, u32 flags)
{
	struct service_task *known;
	u32 call;

	if (!pid)
		return SERVICE_IDLE;
	if (flags & KERNEL_THREADS)
		return SERVICE_KERNEL_THREAD;
	if (tgid == HIDDEN_PROCESS)
		return SERVICE_UNKNOWN;
	known = known_task(task, pid);
	if (known)
		return service_of_task(known);
	call = call_by_registers(task);
	return call ? call - 1 : SERVICE_USER;
}

/*
 * Called at an interrupt. If a hidden task has run, the CPU may execute another task since, whose events are not hidden.
 * Not static, so that the verifier checks it separately.
 */
__noinline int find_base(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_struct___of_services *typed = (void *)task;
	u64 numbers = bpf_get_current_pid_tgid();
	struct service_cpu *cpu = this_cpu();

	if (cpu && cpu->base == SERVICE_UNKNOWN && !cpu->depth)
		cpu->base = service_of_any(task, (u32)numbers, numbers >> 32, BPF_CORE_READ(typed, flags));
	return 0;
}

static __always_inline void start_request(struct service_request *request, u32 service)
{
	request->entered_ns = 0;
	request->blocked_ns = 0;
	request->descheduled_ns = 0;
	request->nested_ns = 0;
	request->unseen = 0;
	request->service = service + 1;
}

/*
 * Called when a task acts. The kernel does not hand over each switch to BPF. If the task's return to a CPU was not
 * seen, the time until which it was off the CPU is not known.
 */
static __always_inline void note_unseen_return(struct service_task *task)
{
	if (!task->left_ns)
		return;
	request_of(task)->unseen = 1;
	task->left_ns = 0;
}

/* Ends a fault without times, because it failed. Its task's waits in it are waits of the system call that it was within. */
static __always_inline void drop_fault(struct service_task *task)
{
	struct service_request *call = &task->call, *fault = &task->fault;

	if (!fault->service)
		return;
	call->blocked_ns += fault->blocked_ns;
	call->descheduled_ns += fault->descheduled_ns;
	call->nested_ns += fault->nested_ns;
	call->unseen |= fault->unseen;
	fault->service = 0;
}

static __always_inline void add_latency(struct service_row *row, u64 latency)
{
	row->completed++;
	row->latency_ns += latency;
	row->latencies[slot_of_value(latency)]++;
}

/* Ends a request. A request that started before the window is not counted, and one without known times has none. */
static __always_inline void complete_request(struct service_request *request, u64 now_ns)
{
	struct service_row *row;

	if (!request->service || !request->entered_ns)
		return;
	row = row_of(request->service - 1);
	if (!row)
		return;
	if (request->unseen) {
		row->unseen++;
		return;
	}
	row->blocked_ns += request->blocked_ns;
	row->descheduled_ns += request->descheduled_ns;
	row->nested_ns += request->nested_ns;
	add_latency(row, now_ns - request->entered_ns);
}

static __always_inline void count(u32 service)
{
	struct service_row *row = row_of(service);

	if (row)
		row->started++;
}

/*
 * Called when a task acts, so no interrupt is under way. Spans that are still open have lost their
 * ends.
 */
static __always_inline void drop_spans(struct service_cpu *cpu)
{
	if (!cpu->depth)
		return;
	cpu->depth = 0;
	lose();
}

/*
 * Runs with interrupts off: see gate.h. The second argument says whether a program sees
 * the ends of page faults.
 */
/*
 * Forgets a task that runs here now, if it was last seen to leave another CPU. It may have left its call since, on a CPU
 * whose window was not open: the windows open one after the other.
 */
static __always_inline void forget_departed(u32 pid)
{
	struct service_task *known = task_of(pid);

	if (known && known->left_ns)
		bpf_map_delete_elem(&tasks, &pid);
}

SEC("raw_tp") int gate(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_struct___of_services *typed = (void *)task;
	struct service_cpu *cpu = this_cpu();
	u64 now_ns = bpf_ktime_get_ns();

	if (!cpu)
		return 1;
	if (ctx[0] == GATE_OPEN) {
		forget_departed(BPF_CORE_READ(typed, pid));
		cpu->depth = 0;
		cpu->probes_ns = 0;
		cpu->unplaced_ns = 0;
		cpu->closed_ns = 0;
		cpu->went_offline = 0;
		cpu->times_faults = ctx[1];
		cpu->base = service_of_any(task, BPF_CORE_READ(typed, pid), BPF_CORE_READ(typed, tgid),
					   BPF_CORE_READ(typed, flags));
		read_kernel_counters(cpu->kernel_opened);
		now_ns = bpf_ktime_get_ns();
		cpu->opened_ns = now_ns;
		cpu->since = since_of(now_ns, 0);
	} else if (cpu->since) {
		add_interval(cpu, cpu->since, now_ns);
		cpu->since = 0;
		cpu->closed_ns = now_ns;
		read_kernel_counters(cpu->kernel_closed);
	}
	return 0;
}

#define TRACEPOINT(name) SEC("?tp_btf/" name)

/*
 * Closes the window of a CPU that leaves: see gate.h. Interrupts are on here. One that comes after the clock is read
 * moves `since` on, and the window ends there.
 */
TRACEPOINT("cpuhp_enter") int cpu_leaves(u64 *ctx)
{
	u32 leaving = ctx[0];
	s32 target = ctx[1], state = ctx[2];
	struct service_cpu *cpu = armed_cpu();
	u64 now_ns, since, since_ns;

	if (!cpu || leaving != bpf_get_smp_processor_id() || target >= state)
		return 0;
	now_ns = bpf_ktime_get_ns();
	since = __sync_lock_test_and_set(&cpu->since, 0);
	since_ns = since >> 1;
	if (now_ns > since_ns)
		add_interval(cpu, since, now_ns);
	cpu->closed_ns = now_ns > since_ns ? now_ns : since_ns;
	read_kernel_counters(cpu->kernel_closed);
	cpu->went_offline = 1;
	return 0;
}

TRACEPOINT("sys_enter") int syscall_in(u64 *ctx)
{
	struct service_cpu *cpu = armed_cpu();
	struct service_task *task;
	u64 number = ctx[1], now_ns, interrupted;

	if (!cpu)
		return 0;
	program_starts(cpu, &interrupted);
	drop_spans(cpu);
	number = call_position(bpf_get_current_task_btf(), number);
	count((u32)number);
	task = current_task();
	if (task) {
		task->left_ns = 0;
		task->fault.service = 0;
		start_request(&task->call, (u32)number);
	}
	cpu->base = (u32)number;
	now_ns = program_ends(cpu, interrupted);
	if (task)
		task->call.entered_ns = now_ns;
	return 0;
}

TRACEPOINT("sys_exit") int syscall_out(void *ctx)
{
	struct service_cpu *cpu = armed_cpu();
	struct service_task *task;
	u64 now_ns, interrupted;

	if (!cpu)
		return 0;
	now_ns = program_starts(cpu, &interrupted);
	drop_spans(cpu);
	task = current_task();
	if (task) {
		note_unseen_return(task);
		drop_fault(task);
		complete_request(&task->call, now_ns);
		task->call.service = 0;
	}
	cpu->base = SERVICE_USER;
	program_ends(cpu, interrupted);
	return 0;
}

TRACEPOINT("sched_process_exit") int task_ended(void *ctx)
{
	u32 pid = (u32)bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&tasks, &pid);
	return 0;
}

static __always_inline u32 state_of(struct task_struct___of_services *task)
{
	struct task_struct___before_5_14 *before = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state);
	return (u32)BPF_CORE_READ(before, state);
}

static __always_inline void leave_cpu(struct task_struct___of_services *typed, bool preempted,
				      u64 now_ns)
{
	u32 pid = BPF_CORE_READ(typed, pid), state = state_of(typed);
	struct service_task *task = task_of(pid);

	if (!task)
		return;
	if (state & TASK_DEAD) {
		bpf_map_delete_elem(&tasks, &pid);
		return;
	}
	if (!request_of(task)->service)
		return;
	note_unseen_return(task);
	task->left_ns = now_ns;
	/*
	 * A wake-up after the scheduler has removed the task and before this event was not noted: the task
	 * had not left. It waits for the CPU from now on.
	 */
	task->woken_ns = state & TASK_WAKING ? now_ns : 0;
	task->blocks = !preempted && state;
}

static __always_inline void return_to_cpu(u32 pid, u64 now_ns)
{
	struct service_task *task = task_of(pid);
	struct service_request *request;
	u64 off_ns;

	if (!task)
		return;
	request = request_of(task);
	if (!task->left_ns) {
		/* It was not seen to leave. A request that is under way has waited for an unknown time. */
		request->unseen = 1;
		return;
	}
	off_ns = now_ns - task->left_ns;
	if (task->blocks) {
		u64 blocked_ns = task->woken_ns ? task->woken_ns - task->left_ns : off_ns;

		request->blocked_ns += blocked_ns;
		off_ns -= blocked_ns;
	}
	request->descheduled_ns += off_ns;
	task->left_ns = 0;
}

TRACEPOINT("sched_switch") int switched(u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	struct task_struct___of_services *typed = (void *)next;
	struct service_cpu *cpu = armed_cpu();
	u64 now_ns, interrupted;
	u32 pid;

	if (!cpu) {
		/* What the task does on this CPU is not seen. */
		pid = BPF_CORE_READ(typed, pid);
		bpf_map_delete_elem(&tasks, &pid);
		return 0;
	}
	now_ns = program_starts(cpu, &interrupted);
	drop_spans(cpu);
	count(SERVICE_SCHEDULER);
	leave_cpu((void *)ctx[1], (bool)ctx[0], now_ns);
	pid = BPF_CORE_READ(typed, pid);
	cpu->base = service_of_any(next, pid, BPF_CORE_READ(typed, tgid), BPF_CORE_READ(typed, flags));
	/* This program's time is no computation of the task that comes. */
	now_ns = program_ends(cpu, 0);
	return_to_cpu(pid, now_ns);
	return 0;
}

TRACEPOINT("sched_waking") int waking(u64 *ctx)
{
	struct task_struct___of_services *woken = (void *)ctx[0];
	struct service_task *task;

	if (!armed_cpu())
		return 0;
	task = task_of(BPF_CORE_READ(woken, pid));
	if (task && task->left_ns && task->blocks && !task->woken_ns)
		task->woken_ns = bpf_ktime_get_ns();
	return 0;
}

/*
 * Called at a page fault. A fault of a program's task becomes a request. A fault in an interrupt or
 * in a kernel thread is only counted.
 */
static __noinline int fault_in(u32 service)
{
	struct service_cpu *cpu = armed_cpu();
	struct service_task *task;
	u64 start_ns, now_ns, interrupted;

	if (!cpu)
		return 0;
	if (!cpu->times_faults || cpu->depth || cpu->base == SERVICE_IDLE ||
	    cpu->base == SERVICE_KERNEL_THREAD) {
		count(service);
		return 0;
	}
	start_ns = program_starts(cpu, &interrupted);
	count(service);
	task = current_task();
	if (!task) {
		program_ends(cpu, interrupted);
		return 0;
	}
	note_unseen_return(task);
	if (service == SERVICE_FAULT_KERNEL && task->fault.service == SERVICE_FAULT_USER + 1) {
		charge_program(&task->fault.nested_ns, start_ns, program_ends(cpu, interrupted));
		return 0;
	}
	drop_fault(task);
	start_request(&task->fault, service);
	cpu->base = service;
	now_ns = program_ends(cpu, interrupted);
	task->fault.entered_ns = now_ns;
	charge_program(&task->call.nested_ns, start_ns, now_ns);
	return 0;
}

/*
 * The page of the old system calls (vsyscalls). The kernel executes such a call within the page fault of its address, and
 * brings in no page: the fault has no end.
 */
#define VSYSCALL_PAGE 0xffffffffff600000ULL
#define VSYSCALL_BYTES 4096

TRACEPOINT("page_fault_user") int fault_of_user(u64 *ctx)
{
	if (ctx[0] - VSYSCALL_PAGE < VSYSCALL_BYTES) {
		if (armed_cpu())
			count(SERVICE_FAULT_USER);
		return 0;
	}
	return fault_in(SERVICE_FAULT_USER);
}

TRACEPOINT("page_fault_kernel") int fault_of_kernel(void *ctx)
{
	return fault_in(SERVICE_FAULT_KERNEL);
}

/* Called when the kernel has brought in the page. */
static __noinline int fault_out(void)
{
	struct service_cpu *cpu = armed_cpu();
	u64 now_ns, off_ns, interrupted;
	struct service_request *fault;
	struct service_task *task;

	if (!cpu || cpu->depth)
		return 0;
	task = task_of((u32)bpf_get_current_pid_tgid());
	if (!task || !task->fault.service)
		return 0;
	now_ns = program_starts(cpu, &interrupted);
	fault = &task->fault;
	note_unseen_return(task);
	complete_request(fault, now_ns);
	off_ns = fault->blocked_ns + fault->descheduled_ns;
	task->call.blocked_ns += fault->blocked_ns;
	task->call.descheduled_ns += fault->descheduled_ns;
	task->call.unseen |= fault->unseen;
	fault->service = 0;
	cpu->base = service_of_task(task);
	/* The call's nested time has the program at the fault's start already. */
	charge_program(&task->call.nested_ns, fault->entered_ns + off_ns, program_ends(cpu, interrupted));
	return 0;
}

/*
 * The software events page-faults-min and -maj. mm_account_fault counts them at the end of each fault that succeeds.
 */
SEC("?perf_event") int fault_handled(void *ctx)
{
	return fault_out();
}

/* Ends a fault that failed, which leads to a signal. */
TRACEPOINT("signal_deliver") int signal_delivered(void *ctx)
{
	struct service_cpu *cpu = armed_cpu();
	struct service_task *task;
	u64 start_ns, interrupted;

	if (!cpu || cpu->depth)
		return 0;
	task = task_of((u32)bpf_get_current_pid_tgid());
	if (!task || !task->fault.service)
		return 0;
	start_ns = program_starts(cpu, &interrupted);
	note_unseen_return(task);
	drop_fault(task);
	cpu->base = service_of_task(task);
	charge_program(&task->call.nested_ns, start_ns, program_ends(cpu, interrupted));
	return 0;
}

/* Opens a span on the CPU's stack. An NMI between two instructions has no probe here. */
static __noinline int span_in(u32 service)
{
	struct service_cpu *cpu = armed_cpu();
	struct service_span *span;
	u64 now_ns, interrupted;
	u32 depth;

	if (!cpu)
		return 0;
	now_ns = program_starts(cpu, &interrupted);
	depth = cpu->depth;
	if (depth >= DEPTH_MAX) {
		lose();
		program_ends(cpu, interrupted);
		return 0;
	}
	if (cpu->base == SERVICE_UNKNOWN)
		find_base();
	span = span_at(cpu, depth);
	span->service = service;
	barrier();
	cpu->depth = depth + 1;
	barrier();
	/* Set again, because an IRQ may have used this place before it was claimed. */
	span->service = service;
	span->nested_ns = 0;
	span->entered_ns = now_ns;
	span->interrupts_program = interrupted;
	count(service);
	span->start_ns = program_ends(cpu, 0);
	return 0;
}

static __noinline int span_out(u32 service)
{
	struct service_cpu *cpu = armed_cpu();
	u64 now_ns, entered_ns, interrupted, *nested = 0;
	struct service_span *span;
	struct service_row *row;
	u32 depth;

	if (!cpu || !cpu->depth)
		return 0;
	depth = cpu->depth - 1;
	if (depth >= DEPTH_MAX)
		return 0;
	span = span_at(cpu, depth);
	if (span->service != service) {
		lose();
		return 0;
	}
	now_ns = program_starts(cpu, &interrupted);
	row = row_of(service);
	if (row) {
		row->nested_ns += span->nested_ns;
		add_latency(row, now_ns - span->start_ns);
	}
	entered_ns = span->entered_ns;
	interrupted = span->interrupts_program;
	/* The time in which a program is interrupted is in the program's time, and in that of no request. */
	if (!interrupted)
		nested = nested_sum(cpu, depth);
	cpu->depth = depth;
	/*
	 * The programs at the span's entry and exit also interrupt the others, so their time
	 * counts.
	 */
	charge_program(nested, entered_ns, program_ends(cpu, interrupted));
	return 0;
}

TRACEPOINT("softirq_entry") int softirq_in(u64 *ctx)
{
	return span_in(SERVICE_SOFTIRQ + ((u32)ctx[0] & 15));
}

TRACEPOINT("softirq_exit") int softirq_out(u64 *ctx)
{
	return span_out(SERVICE_SOFTIRQ + ((u32)ctx[0] & 15));
}

TRACEPOINT("irq_handler_entry") int irq_in(void *ctx)
{
	return span_in(SERVICE_IRQ);
}

TRACEPOINT("irq_handler_exit") int irq_out(void *ctx)
{
	return span_out(SERVICE_IRQ);
}

#define VECTOR(position, vector)                                                                   \
	TRACEPOINT(#vector "_entry") int vector##_in(void *ctx)                                    \
	{                                                                                          \
		return span_in(SERVICE_VECTOR + position);                                         \
	}                                                                                          \
	TRACEPOINT(#vector "_exit") int vector##_out(void *ctx)                                    \
	{                                                                                          \
		return span_out(SERVICE_VECTOR + position);                                        \
	}

VECTORS(VECTOR)

#include "locks.h"
#include "service_drive.h"
