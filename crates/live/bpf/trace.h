/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Single events of a window: each counted span, the tasks below them, and the requests that led to them. Only the object
 * that is compiled with IRQLAB_TRACE has this code: Linux 6.1 has no stack for more in the programs of the default one.
 *
 * Each measured CPU has a range of the map `trace_events`. When it is full, the oldest event is replaced.
 */
#ifndef IRQLAB_TRACE_H
#define IRQLAB_TRACE_H

#ifdef IRQLAB_TRACE

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct trace_cpu);
} trace_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets the number of events */
	__type(key, u32);
	__type(value, struct trace_event);
} trace_events SEC(".maps");

static __always_inline struct trace_cpu *trace_of_this_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&trace_cpus, &zero);
}

/* Writes an event. `what`: its type in the upper half, and its key in the lower half. */
static __noinline int write_trace(u64 what, u64 start_ns, u64 end_ns, u64 first, u64 second)
{
	struct trace_cpu *cpu = trace_of_this_cpu();
	struct trace_event *event;
	u32 index;

	if (!cpu || !cpu->events_max)
		return 0;
	/* Atomic, because an interrupt's program may write in between. */
	index = cpu->base + __sync_fetch_and_add(&cpu->written, 1) % cpu->events_max;
	event = bpf_map_lookup_elem(&trace_events, &index);
	if (!event)
		return 0;
	event->start_ns = start_ns;
	event->end_ns = end_ns;
	event->words[0] = first;
	event->words[1] = second;
	event->key = what;
	event->event = what >> 32;
	return 0;
}

static __always_inline u64 trace_what(u32 type, u32 key)
{
	return (u64)type << 32 | key;
}

/* Sums the time of writing an event that began at since_ns. Returns the time of its end. */
static __always_inline u64 sum_trace_cost(struct cpu_state *state, u64 since_ns, u32 closed)
{
	struct trace_cpu *cpu = trace_of_this_cpu();
	u64 now_ns = bpf_ktime_get_ns();

	/* Not if an interrupt came in between. */
	if (cpu && state->closed == closed) {
		cpu->timed++;
		cpu->timed_ns += now_ns - since_ns;
	}
	return now_ns;
}

/*
 * Writes a span that was counted in `row`. The time that this takes is charged to the parent span. Inlined: with a pointer to
 * `span` as an argument of a subprogram, the frame of irq_handler_out grows from 392 to 496 bytes. With those of unwind_to and
 * abandon it already takes all 512 bytes that the verifier allows.
 */
static __always_inline void trace_span(struct cpu_state *cpu, struct row *row,
				       struct closed_span *span)
{
	u64 now_ns = bpf_ktime_get_ns();
	u32 closed = cpu->closed;

	start_probe_run(cpu, &span->run, now_ns);
	write_trace(trace_what(TRACE_SPAN, row->key), span->end_ns - span->raw_ns, span->end_ns,
		    span->self_ns, row->object);
	now_ns = sum_trace_cost(cpu, now_ns, closed);
	if (span->run.frame)
		charge_probe_run(&span->run, 0, now_ns);
}

/* The number of tasks that can run on this CPU; TRACE_RUNNABLE_UNKNOWN if the kernel's type information does not tell. */
static __always_inline u32 runnable_tasks(struct task_struct *task)
{
	struct rq *rq = 0;

	if (!bpf_core_field_exists(task->se.cfs_rq) || !bpf_core_field_exists(rq->nr_running))
		return TRACE_RUNNABLE_UNKNOWN;
	rq = BPF_CORE_READ(task, se.cfs_rq, rq);
	return rq ? BPF_CORE_READ(rq, nr_running) : TRACE_RUNNABLE_UNKNOWN;
}

/* Writes that a task had this CPU until now_ns. */
static __always_inline void trace_task(struct trace_cpu *cpu, u32 pid, u64 *name, u64 now_ns)
{
	u32 runnable = cpu->runnable < TRACE_RUNNABLE_UNKNOWN ? cpu->runnable
							      : TRACE_RUNNABLE_UNKNOWN;

	write_trace(trace_what(TRACE_TASK | runnable << TRACE_TYPE_BITS, pid), cpu->task_since_ns,
		    now_ns, name[0], name[1]);
}

static __always_inline void trace_switch(struct task_struct *from)
{
	struct cpu_state *state = armed_cpu();
	struct trace_cpu *cpu = trace_of_this_cpu();
	u64 name[2] = {}, now_ns;
	struct probe_run run;

	if (!state || !cpu)
		return;
	now_ns = bpf_ktime_get_ns();
	start_probe_run(state, &run, now_ns);
	bpf_probe_read_kernel(name, sizeof(name), from->comm);
	trace_task(cpu, from->pid, name, now_ns);
	cpu->task_since_ns = now_ns;
	cpu->runnable = runnable_tasks(from);
	now_ns = sum_trace_cost(state, now_ns, state->closed);
	if (run.frame)
		charge_probe_run(&run, 0, now_ns);
}

static __always_inline void start_trace(u64 armed_ns)
{
	struct trace_cpu *cpu = trace_of_this_cpu();

	if (!cpu)
		return;
	cpu->task_since_ns = armed_ns;
	cpu->runnable = TRACE_RUNNABLE_UNKNOWN;
}

/* Writes that the current task had this CPU until the window closed. */
static __always_inline void end_trace(u64 disarmed_ns)
{
	struct trace_cpu *cpu = trace_of_this_cpu();
	u64 name[2] = {};

	if (!cpu)
		return;
	bpf_get_current_comm(name, sizeof(name));
	trace_task(cpu, bpf_get_current_pid_tgid(), name, disarmed_ns);
}

#endif
#endif
