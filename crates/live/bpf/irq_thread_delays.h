/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Delays of threads of IRQ lines: the time from a handler that wakes its thread to the switch to that thread.
 * Rows are as in delays.h. In such a row, `clamped` counts the requests that found a thread awake: the thread runs or
 * is ready to run, so it does not wait for this request.
 *
 * The kernel's flag IRQTF_RUNTHREAD of the action is set from a request until the thread starts to serve it. A request
 * that finds the flag set wakes nothing: the first request begins the delay.
 */
#ifndef IRQLAB_IRQ_THREAD_DELAYS_H
#define IRQLAB_IRQ_THREAD_DELAYS_H

#ifndef IRQLAB_NO_BTF

#define IRQ_WAKE_THREAD 2 /* include/linux/irqreturn.h */
#define IRQTF_RUNTHREAD 1 /* kernel/irq/internals.h: bit 0 of irqaction.thread_flags */

/* The request that a sleeping thread waits for, by the thread's number. 0: the thread sleeps, and no request was seen. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, IRQ_THREADS_MAX);
	__type(key, u32);
	__type(value, u64);
} sleeping_threads SEC(".maps");

/* Whether the task waits for an event. From Linux 6.12 on, such a task may stay in the queue of tasks that can run. */
static __always_inline bool is_asleep(struct task_struct *task)
{
	if (!task->on_rq)
		return true;
	return bpf_core_field_exists(task->se.sched_delayed) && task->se.sched_delayed;
}

static __noinline struct row *row_of_thread_delays(struct cpu_state *cpu, struct task_struct *thread)
{
	struct row *row;

	if (!cpu || !thread)
		return 0;
	row = row_of_object(cpu, KEY_DELAY_IRQ_THREAD + thread->pid, 0);
	if (row && !row->name[0])
		bpf_probe_read_kernel_str(row->name, sizeof(thread->comm), &thread->comm);
	return row;
}

/* A handler requests its thread. The tracepoint comes before the kernel sets the flag and wakes the thread. */
static __always_inline void request_thread(struct cpu_state *cpu, struct irqaction *action, u64 now_ns)
{
	struct task_struct *thread = action->thread;
	u64 *requested_ns;
	bool is_unjoined;
	struct row *row;
	u32 pid;

	if (!thread || action->thread_flags & IRQTF_RUNTHREAD)
		return;
	pid = thread->pid;
	if (!is_asleep(thread)) {
		row = row_of_thread_delays(cpu, thread);
		if (row)
			row->clamped++;
		return;
	}
	requested_ns = bpf_map_lookup_elem(&sleeping_threads, &pid);
	/* An earlier request: the thread has slept again, and its run was not seen. */
	is_unjoined = requested_ns && is_in_window(cpu, requested_ns);
	if (requested_ns)
		*requested_ns = now_ns;
	else
		is_unjoined = bpf_map_update_elem(&sleeping_threads, &pid, &now_ns, BPF_NOEXIST);
	row = is_unjoined ? row_of_thread_delays(cpu, thread) : 0;
	if (row)
		row->abandoned++;
}

TRACEPOINT("irq_handler_exit") int thread_requested(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct probe_run run;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	if ((u32)ctx[2] & IRQ_WAKE_THREAD)
		request_thread(cpu, (struct irqaction *)ctx[1], now_ns);
	end_probe_run(cpu, &run, &events);
	return 0;
}

/*
 * Ends the wait of a thread that gets this CPU. Returns false without an entry in the map: the thread was preempted, or
 * slept before it was first seen. The entry is removed on a CPU that is not measured, too: the next run must not be joined
 * to this request.
 */
static __always_inline bool take_request(struct task_struct *thread, u64 *requested_ns)
{
	u32 pid = thread->pid;
	u64 *waiting = bpf_map_lookup_elem(&sleeping_threads, &pid);

	if (!waiting)
		return false;
	*requested_ns = *waiting;
	bpf_map_delete_elem(&sleeping_threads, &pid);
	return true;
}

/* The thread `from` leaves this CPU. If it sleeps, its next run ends a delay. The thread `to` gets the CPU. */
TRACEPOINT("sched_switch") int threads_switch(u64 *ctx)
{
	struct task_struct *from = (void *)ctx[1], *to = (void *)ctx[2];
	bool is_run = key_of_thread(to), is_sleep = key_of_thread(from) && is_asleep(from);
	u64 now_ns, requested_ns = 0, not_requested = 0;
	struct cpu_state *cpu;
	struct events events;
	struct probe_run run;
	struct row *row;
	u32 pid;

	if (!is_run && !is_sleep)
		return 0;
	now_ns = bpf_ktime_get_ns();
	cpu = armed_cpu();
	if (cpu) {
		start_probe_run(cpu, &run, now_ns);
		read_events_at_exit(cpu->depth, &events);
	}
	if (is_sleep) {
		pid = from->pid;
		bpf_map_update_elem(&sleeping_threads, &pid, &not_requested, BPF_ANY);
	}
	is_run = is_run && take_request(to, &requested_ns);
	if (!cpu)
		return 0;
	row = is_run ? row_of_thread_delays(cpu, to) : 0;
	if (row && is_in_window(cpu, &requested_ns) && requested_ns <= now_ns) {
		add_value(row, now_ns - requested_ns, now_ns, cpu->armed_ns);
		count_in_histogram(row, now_ns - requested_ns);
	} else if (row) {
		row->special++;
	}
	end_probe_run(cpu, &run, &events);
	return 0;
}

#endif
#endif
