/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Functions that the kernel calls back: of timers and tasklets, nested in a vector or a softirq, and of
 * work items, in worker threads. Each function has a row on each CPU.
 *
 * The object of a function (a timer, a work item) may be freed before the exit event. So the
 * function's address is read at the entry, and kept beside the span's frame.
 *
 * A work item may sleep, be preempted, and continue on another CPU. Its span is its time on CPUs: a
 * task switch closes the span's part on this CPU, and the switch back to the worker opens the next
 * part. The last part is counted, with the sums of the parts before it.
 */
#ifndef IRQLAB_CALLBACKS_H
#define IRQLAB_CALLBACKS_H

#ifndef IRQLAB_NO_BTF

/* The function of an open span. */
struct open_callback {
	u64 function;
	u64 has_parts; /* the map `work_parts` has earlier parts of the span */
};

/* The functions of the spans on this CPU's stack, by position. */
struct open_callbacks {
	struct open_callback at[DEPTH_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct open_callbacks);
} open_callbacks SEC(".maps");

/* The sums of the parts of a work item's span that have ended, of one worker thread. */
struct work_parts {
	u64 function;
	u64 self_ns;
	u64 inclusive_ns;
	u64 overhead_ns;
	u64 clamped_ns;
	u32 descendants;
	u32 is_waiting; /* the worker is off the CPUs in the middle of the work item */
};

/*
 * By the number of the worker thread. A worker's entry stays until the end of the window, because an
 * update of an entry takes no lock.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WORKERS_MAX);
	__type(key, u32);
	__type(value, struct work_parts);
} work_parts SEC(".maps");

static __always_inline struct open_callback *callback_at(u32 position)
{
	u32 zero = 0;
	struct open_callbacks *callbacks = bpf_map_lookup_elem(&open_callbacks, &zero);

	if (!callbacks)
		return 0;
	/* Opaque to the compiler, which would drop the bound that the verifier needs. */
	asm volatile("%0 &= %1" : "+r"(position) : "i"(DEPTH_MAX - 1));
	return &callbacks->at[position];
}

/* The row of a function. If few rows are left, the functions without a row share one. */
static __noinline struct row *row_of_function(struct cpu_state *cpu, u32 key, u64 function)
{
	struct object_key id = { .object = function, .key = key };

	if (!cpu)
		return 0;
	id.cpu = bpf_get_smp_processor_id();
	if (cpu->rows_used + ROWS_RESERVED >= cpu->rows_max &&
	    !bpf_map_lookup_elem(&slots_of_objects, &id))
		function = 0;
	return function ? row_of_object(cpu, key, function) : row_of(cpu, key);
}

/* Claims a frame for a call of `function`; 0 if the stack is full. */
static __always_inline struct frame *claim_callback(struct cpu_state *cpu, u32 key, u64 function,
						    u32 *position)
{
	struct frame *frame = claim_frame(cpu, key, position);
	struct open_callback *callback;

	if (!frame)
		return 0;
	callback = callback_at(*position);
	if (callback) {
		callback->function = function;
		callback->has_parts = 0;
	}
	return frame;
}

/*
 * Drops the span of a work item directly below a work item that starts: its exit was not seen, because a
 * work item starts another one only from a softirq in between.
 */
static __always_inline void drop_unended_work(struct cpu_state *cpu)
{
	struct frame *frame = innermost(cpu);
	u32 depth = cpu->depth;

	if (!frame || frame->key != KEY_WORK || !depth)
		return;
	abandon(cpu, depth - 1);
	cpu->abandoned++;
	cpu->depth = depth - 1;
}

static __always_inline void claim_call(u32 key, u64 function)
{
	struct cpu_state *cpu = armed_cpu();
	u32 position;

	if (!cpu)
		return;
	if (key == KEY_WORK)
		drop_unended_work(cpu);
	claim_callback(cpu, key, function, &position);
}

static __always_inline void enter_call(u32 key, u64 function)
{
	struct cpu_state *cpu = armed_cpu();
	struct frame *frame;
	u32 position;

	if (!cpu)
		return;
	if (key == KEY_WORK)
		drop_unended_work(cpu);
	frame = claim_callback(cpu, key, function, &position);
	if (frame)
		open_claimed(cpu, frame, position, 0, 0);
}

/* Adds the earlier parts of a work item's span to its last part. */
static __always_inline void add_parts(struct closed_span *span, struct events *events)
{
	u32 worker = bpf_get_current_pid_tgid();
	struct work_parts *parts = bpf_map_lookup_elem(&work_parts, &worker);
	u64 clamped_ns;

	/* Of the events, the frame has only the last part. */
	events->valid = false;
	if (!parts)
		return;
	span->self_ns += parts->self_ns;
	span->inclusive_ns += parts->inclusive_ns;
	span->overhead_ns += parts->overhead_ns;
	span->descendants += parts->descendants;
	/* A part may be shorter than the probes' overhead, although the span is not. */
	clamped_ns = span->clamped_ns + parts->clamped_ns;
	if (span->self_ns >= clamped_ns) {
		span->self_ns -= clamped_ns;
		span->clamped_ns = 0;
	} else {
		span->clamped_ns = clamped_ns - span->self_ns;
		span->self_ns = 0;
	}
	if (span->inclusive_ns < span->self_ns)
		span->inclusive_ns = span->self_ns;
}

/* The exit program of a call. `may_have_parts`: of a work item. */
static __always_inline void leave_call(u32 key, bool may_have_parts)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct open_callback *callback;
	struct events events;
	struct closed_span span;
	struct frame *frame;
	struct row *row;
	u64 function = 0;
	bool has_parts = false;

	if (!cpu || (!cfg.cookies && open_what_is_claimed(cpu, key, now_ns)))
		return;
	read_events_at_exit(cpu->depth, &events);
	frame = measure_span(cpu, key, now_ns, 0, &span);
	if (!frame)
		return;
	/* Read before the frame is released, because an interrupt may then use it. */
	callback = callback_at(span.position);
	if (callback) {
		function = callback->function;
		has_parts = callback->has_parts;
	}
	release_span(cpu, frame, &span, &events);
	if (may_have_parts && has_parts)
		add_parts(&span, &events);
	row = row_of_function(cpu, key, function);
	if (row)
		count_span(cpu, row, &span, &events);
	end_exit_probe(cpu, row, &span, &events);
}

#define CALLBACK(name, entry, exit, key, function, may_have_parts)                                 \
	TRACEPOINT(entry) int name##_in(u64 *ctx)                                                  \
	{                                                                                          \
		claim_call(key, (u64)function);                                                    \
		return 0;                                                                          \
	}                                                                                          \
	TRACEPOINTS(exit) int name##_out(u64 *ctx)                                                 \
	{                                                                                          \
		if (is_entry(ctx))                                                                 \
			enter_call(key, (u64)function);                                            \
		else                                                                               \
			leave_call(key, may_have_parts);                                           \
		return 0;                                                                          \
	}

#define FUNCTION_OF(type, field) BPF_CORE_READ((struct type *)ctx[0], field)

CALLBACK(hrtimer_expire, "hrtimer_expire_entry", "hrtimer_expire_exit", KEY_HRTIMER,
	 FUNCTION_OF(hrtimer, function), false)
CALLBACK(timer_expire, "timer_expire_entry", "timer_expire_exit", KEY_TIMER,
	 FUNCTION_OF(timer_list, function), false)
CALLBACK(tasklet, "tasklet_entry", "tasklet_exit", KEY_TASKLET, ctx[1], false)
CALLBACK(workqueue_execute, "workqueue_execute_start", "workqueue_execute_end", KEY_WORK,
	 FUNCTION_OF(work_struct, func), true)

/* There is no event at the end of an RCU callback, so it is only counted. */
TRACEPOINTS("rcu_invoke_callback") int rcu_invoked(u64 *ctx)
{
	u64 function = (u64)BPF_CORE_READ((struct callback_head *)ctx[1], func);
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct probe_run run;
	struct row *row;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	row = row_of_function(cpu, KEY_RCU, function);
	if (row)
		row->count++;
	end_probe_run(cpu, &run, &events);
	return 0;
}

/* The first value of an entry of `work_parts`. */
static const struct work_parts NO_PARTS = {};

/* The entry of a worker thread; 0 if the map is full. */
static __noinline struct work_parts *parts_of(u32 worker)
{
	struct work_parts *parts = bpf_map_lookup_elem(&work_parts, &worker);

	if (parts)
		return parts;
	bpf_map_update_elem(&work_parts, &worker, &NO_PARTS, BPF_NOEXIST);
	return bpf_map_lookup_elem(&work_parts, &worker);
}

/* Whether a span of a work item is open. Not static: see unwind_to. */
__noinline int is_work_open(struct cpu_state *cpu)
{
	u32 depth, step;

	if (!cpu)
		return 0;
	depth = cpu->depth;
	for (step = 0; step < DEPTH_MAX; step++) {
		if (step >= depth)
			break;
		if (cpu->frames[step & (DEPTH_MAX - 1)].key == KEY_WORK)
			return 1;
	}
	return 0;
}

/*
 * Ends the part of a work item's span on this CPU, because its worker is switched out. Spans still open inside it
 * have lost their exit: no interrupt lasts over a task switch.
 */
static __always_inline void suspend_work(struct cpu_state *cpu, u32 worker, u64 now_ns)
{
	struct open_callback *callback;
	struct work_parts *parts;
	struct events events;
	struct closed_span span;
	struct frame *frame;

	if (!is_work_open(cpu))
		return;
	read_events_at_exit(cpu->depth, &events);
	frame = measure_span(cpu, KEY_WORK, now_ns, 0, &span);
	if (!frame)
		return;
	callback = callback_at(span.position);
	parts = parts_of(worker);
	if (callback && parts && !callback->has_parts) {
		parts->function = callback->function;
		parts->self_ns = 0;
		parts->inclusive_ns = 0;
		parts->overhead_ns = 0;
		parts->clamped_ns = 0;
		parts->descendants = 0;
	}
	release_span(cpu, frame, &span, &events);
	if (parts) {
		parts->self_ns += span.self_ns;
		parts->inclusive_ns += span.inclusive_ns;
		parts->overhead_ns += span.overhead_ns;
		parts->clamped_ns += span.clamped_ns;
		parts->descendants += span.descendants;
		parts->is_waiting = 1;
#ifdef IRQLAB_TRACE
		write_trace(trace_what(TRACE_PART, KEY_WORK), span.end_ns - span.raw_ns, span.end_ns, 0,
			    parts->function);
#endif
	} else {
		cpu->unattributed++;
	}
	end_exit_probe(cpu, 0, &span, &events);
}

/* Opens the next part of a work item's span, because its worker is switched in. */
static __always_inline void resume_work(struct cpu_state *cpu, u32 worker)
{
	struct work_parts *parts = bpf_map_lookup_elem(&work_parts, &worker);
	struct open_callback *callback;
	struct frame *frame;
	u32 position;

	if (!parts || !parts->is_waiting)
		return;
	parts->is_waiting = 0;
	/* On a CPU that is not measured, a part of the span is lost, so the whole span is not counted. */
	if (!cpu)
		return;
	frame = claim_callback(cpu, KEY_WORK, parts->function, &position);
	if (!frame)
		return;
	callback = callback_at(position);
	if (callback)
		callback->has_parts = 1;
	open_claimed(cpu, frame, position, 0, 0);
}

/*
 * Two programs at the task switch, because that of the IRQ threads (`switched`) runs between them: the
 * spans of the old task must end before those of the new task begin.
 */
TRACEPOINT("sched_switch") int work_suspended(u64 *ctx)
{
	struct task_struct *from = (void *)ctx[1];
	struct cpu_state *cpu;

	if (!(from->flags & PF_WQ_WORKER))
		return 0;
	cpu = armed_cpu();
	if (cpu)
		suspend_work(cpu, from->pid, bpf_ktime_get_ns());
	return 0;
}

TRACEPOINT("sched_switch") int work_resumed(u64 *ctx)
{
	struct task_struct *to = (void *)ctx[2];

	if (to->flags & PF_WQ_WORKER)
		resume_work(armed_cpu(), to->pid);
	return 0;
}

#endif
#endif
