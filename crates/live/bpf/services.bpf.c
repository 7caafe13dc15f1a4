/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Services of the kernel: how long system calls last, and for how long of that their tasks are blocked,
 * descheduled or interrupted; how often pages fault; what interrupts and softirqs take.
 *
 * A system call belongs to its task, which may continue on another CPU: its state is in a map of tasks. Sums
 * are in rows of the CPU on which the request ends, which that CPU alone writes.
 */
#include "kernel.h"
#include "services.h"
#include "distribution_slots.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* CO-RE ignores ___ and what follows it. */
struct task_struct___of_services {
	int pid;
	unsigned int __state; /* Linux 5.14 */
} RELOCATED;

struct task_struct___before_5_14 {
	long state;
} RELOCATED;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SERVICE_ROWS);
	__type(key, u32);
	__type(value, struct service_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct service_rows);
} row_table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct service_stack);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVICE_TASKS);
	__type(key, u32);
	__type(value, struct service_task);
} tasks SEC(".maps");

/* 1 while the window is open. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} armed SEC(".maps");

static __always_inline bool is_armed(void)
{
	u32 zero = 0, *on = bpf_map_lookup_elem(&armed, &zero);

	return on && *on;
}

static __always_inline void lose(void)
{
	u32 zero = 0;
	struct service_rows *table = bpf_map_lookup_elem(&row_table, &zero);

	if (table)
		table->lost++;
}

static __noinline struct service_row *row_of(u32 service)
{
	u32 zero = 0, row;
	struct service_rows *table = bpf_map_lookup_elem(&row_table, &zero);

	if (!table || service >= SERVICES)
		return 0;
	row = table->row_of[service];
	if (!row) {
		/* Atomic: an interrupt's probe may claim a row in between. */
		row = __sync_fetch_and_add(&table->used, 1) + 1;
		if (row >= SERVICE_ROWS) {
			table->lost++;
			return 0;
		}
		table->row_of[service] = row;
	}
	return bpf_map_lookup_elem(&rows, &row);
}

static __always_inline struct service_task *task_of(u32 pid)
{
	return bpf_map_lookup_elem(&tasks, &pid);
}

static __always_inline void add_latency(struct service_row *row, u64 latency)
{
	row->completed++;
	row->latency_ns += latency;
	row->latencies[slot_of_value(latency)]++;
}

#define TRACEPOINT(name) SEC("?tp_btf/" name)

TRACEPOINT("sys_enter") int syscall_in(u64 *ctx)
{
	static const struct service_task empty;
	u32 pid = (u32)bpf_get_current_pid_tgid();
	u64 number = ctx[1];
	struct service_task *task;
	struct service_row *row;

	if (!is_armed())
		return 0;
	if (number >= SERVICE_SYSCALLS)
		number = SERVICE_SYSCALLS - 1;
	row = row_of((u32)number);
	if (row)
		row->started++;
	task = task_of(pid);
	if (!task) {
		if (bpf_map_update_elem(&tasks, &pid, &empty, BPF_NOEXIST))
			lose();
		task = task_of(pid);
	}
	if (!task)
		return 0;
	task->left_ns = 0;
	task->blocked_ns = 0;
	task->descheduled_ns = 0;
	task->nested_ns = 0;
	task->service = (u32)number + 1;
	task->entered_ns = bpf_ktime_get_ns();
	return 0;
}

TRACEPOINT("sys_exit") int syscall_out(void *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct service_task *task;
	struct service_row *row;

	if (!is_armed())
		return 0;
	task = task_of((u32)bpf_get_current_pid_tgid());
	if (!task || !task->service)
		return 0;
	row = row_of(task->service - 1);
	if (row) {
		row->blocked_ns += task->blocked_ns;
		row->descheduled_ns += task->descheduled_ns;
		row->nested_ns += task->nested_ns;
		add_latency(row, now - task->entered_ns);
	}
	task->service = 0;
	return 0;
}

TRACEPOINT("sched_process_exit") int task_ended(void *ctx)
{
	u32 pid = (u32)bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&tasks, &pid);
	return 0;
}

static __always_inline bool is_running(struct task_struct___of_services *task)
{
	struct task_struct___before_5_14 *before = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state) == 0;
	return BPF_CORE_READ(before, state) == 0;
}

TRACEPOINT("sched_switch") int switched(u64 *ctx)
{
	bool preempted = (bool)ctx[0];
	struct task_struct___of_services *previous = (void *)ctx[1], *next = (void *)ctx[2];
	struct service_task *task;
	struct service_row *row;
	u64 now, off;

	if (!is_armed())
		return 0;
	row = row_of(SERVICE_SCHEDULER);
	if (row)
		row->started++;
	now = bpf_ktime_get_ns();
	task = task_of(BPF_CORE_READ(previous, pid));
	if (task && task->service) {
		task->left_ns = now;
		task->woken_ns = 0;
		task->blocks = !preempted && !is_running(previous);
	}
	task = task_of(BPF_CORE_READ(next, pid));
	if (!task || !task->service || !task->left_ns)
		return 0;
	off = now - task->left_ns;
	if (task->blocks) {
		u64 blocked = task->woken_ns ? task->woken_ns - task->left_ns : off;

		task->blocked_ns += blocked;
		off -= blocked;
	}
	task->descheduled_ns += off;
	task->left_ns = 0;
	return 0;
}

TRACEPOINT("sched_waking") int waking(u64 *ctx)
{
	struct task_struct___of_services *woken = (void *)ctx[0];
	struct service_task *task;

	if (!is_armed())
		return 0;
	task = task_of(BPF_CORE_READ(woken, pid));
	if (task && task->left_ns && task->blocks && !task->woken_ns)
		task->woken_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int count(u32 service)
{
	struct service_row *row = is_armed() ? row_of(service) : 0;

	if (row)
		row->started++;
	return 0;
}

TRACEPOINT("page_fault_user") int fault_of_user(void *ctx)
{
	return count(SERVICE_FAULT_USER);
}

TRACEPOINT("page_fault_kernel") int fault_of_kernel(void *ctx)
{
	return count(SERVICE_FAULT_KERNEL);
}

/* A place on the stack. Opaque to the compiler, which would drop the bound that the verifier needs. */
static __always_inline struct service_span *span_at(struct service_stack *stack, u64 depth)
{
	asm volatile("%0 &= %1" : "+r"(depth) : "i"(DEPTH_MAX - 1));
	return &stack->spans[depth];
}

/* The stack of a CPU. An NMI between two instructions of these has no probe here. */
static __noinline int span_in(u32 service)
{
	u32 zero = 0, depth;
	struct service_stack *stack = bpf_map_lookup_elem(&stacks, &zero);
	struct service_span *span;

	if (!stack || !is_armed())
		return 0;
	depth = stack->depth;
	if (depth >= DEPTH_MAX) {
		lose();
		return 0;
	}
	span = span_at(stack, depth);
	span->nested_ns = 0;
	stack->depth = depth + 1;
	count(service);
	span->start_ns = bpf_ktime_get_ns();
	return 0;
}

static __noinline int span_out(u32 service)
{
	u64 now = bpf_ktime_get_ns(), inclusive, nested;
	u32 zero = 0, depth;
	struct service_stack *stack = bpf_map_lookup_elem(&stacks, &zero);
	struct service_span *span;
	struct service_task *task;
	struct service_row *row;

	if (!stack || !stack->depth)
		return 0;
	depth = stack->depth - 1;
	stack->depth = depth;
	if (depth >= DEPTH_MAX || !is_armed())
		return 0;
	span = span_at(stack, depth);
	inclusive = now - span->start_ns;
	nested = span->nested_ns;
	row = row_of(service);
	if (row) {
		row->nested_ns += nested;
		add_latency(row, inclusive);
	}
	if (depth > 0) {
		span_at(stack, depth - 1)->nested_ns += inclusive;
		return 0;
	}
	/* The outermost one interrupted the task. */
	task = task_of((u32)bpf_get_current_pid_tgid());
	if (task && task->service)
		task->nested_ns += inclusive;
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
