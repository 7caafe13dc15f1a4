/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Delays: the time from the raise of a softirq to its run, and from the queueing of a work item to its
 * execution. A delay is counted on the CPU of its end, in a row of its own. Each function of a work item or timer has
 * such a row; if few rows are left, further functions share one.
 *
 * Both events of a delay have programs of their own, with few and small frames. In a row of a delay,
 * `special` counts ends without a begin, and `abandoned` counts begins without an end.
 *
 * An event may not come to the programs. So a begin is joined to an end only if no other event can lie
 * between them: see attribution::delays, which has the same rules for softirqs and a test of them.
 */
#ifndef IRQLAB_DELAYS_H
#define IRQLAB_DELAYS_H

#ifndef IRQLAB_NO_BTF

/* The raises of a softirq on this CPU that wait for their runs; as attribution::delays::RaisedSoftirq. */
struct raised_softirq {
	u64 first_ns; /* the raise that the next run serves; 0: none was seen */
	u64 next_ns; /* the first raise after the kernel took that one from its mask; 0: none */
	u32 runs_before; /* the kernel's count of runs before the run that first_ns awaits */
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NR_SOFTIRQS);
	__type(key, u32);
	__type(value, struct raised_softirq);
} raised_softirqs SEC(".maps");

/* A work item that waits. */
struct waiting_work {
	u64 queued_ns;
	u64 function;
};

/* The work items that wait, by their addresses. The kernel does not queue a work item that waits. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WORK_ITEMS_MAX);
	__type(key, u64);
	__type(value, struct waiting_work);
} queued_work SEC(".maps");

/* The bits of a mask of pending softirqs on this CPU. None are set if the kernel lacks the mask. */
static __always_inline bool read_pending(u64 area, s32 offset, u16 *pending)
{
	u16 mask = 0;

	if (offset >= 0 && bpf_probe_read_kernel(&mask, sizeof(mask), (void *)(area + offset)))
		return false;
	*pending |= mask;
	return true;
}

/*
 * The kernel's own state of a softirq on this CPU. Returns false if it cannot be read. A kernel with a thread of timers
 * raises timer softirqs in a mask of its own. The thread moves them to the other mask just before they run.
 */
static __always_inline bool read_softirq_state(u32 number, u32 *runs, bool *is_pending)
{
	u64 area = percpu_area();
	const struct kernel_stat *stat = (void *)(area + cfg.percpu_offsets[OFFSET_KSTAT]);
	u64 counts = (u64)__builtin_preserve_access_index(&stat->softirqs);
	u16 pending = 0;

	if (!area || cfg.percpu_offsets[OFFSET_KSTAT] < 0 || cfg.percpu_offsets[OFFSET_PENDING] < 0)
		return false;
	if (bpf_probe_read_kernel(runs, sizeof(*runs), (void *)(counts + number * sizeof(*runs))) ||
	    !read_pending(area, cfg.percpu_offsets[OFFSET_PENDING], &pending) ||
	    !read_pending(area, cfg.percpu_offsets[OFFSET_PENDING_TIMERS], &pending))
		return false;
	*is_pending = pending >> number & 1;
	return true;
}

/* `function`: 0 for a softirq, whose key is its own. As in the next two functions. */
static __always_inline void count_delay(struct cpu_state *cpu, u32 key, u64 function, u64 delay_ns,
					u64 now_ns)
{
	struct row *row = row_of_function(cpu, key, function);

	if (!row)
		return;
	add_value(row, delay_ns, now_ns, cpu->armed_ns);
	count_in_histogram(row, delay_ns);
}

static __always_inline void count_unjoined_end(struct cpu_state *cpu, u32 key, u64 function)
{
	struct row *row = row_of_function(cpu, key, function);

	if (row)
		row->special++;
}

static __always_inline void count_unjoined_begins(struct cpu_state *cpu, u32 key, u64 function,
						  u32 begins)
{
	struct row *row = begins ? row_of_function(cpu, key, function) : 0;

	if (row)
		row->abandoned += begins;
}

/*
 * Drops the raises whose run is among the first `runs` runs: no event of that run came. Returns their number.
 * Raises of an earlier window are dropped, too, and are not in the number.
 */
static __always_inline u32 drop_served(struct raised_softirq *softirq, u32 runs, u64 armed_ns)
{
	u64 next_ns = softirq->next_ns;
	bool is_next_waiting;

	if (softirq->first_ns < armed_ns) {
		softirq->first_ns = 0;
		softirq->next_ns = 0;
		return 0;
	}
	if (softirq->runs_before == runs)
		return 0;
	is_next_waiting = softirq->runs_before + 1 == runs;
	softirq->next_ns = 0;
	softirq->first_ns = is_next_waiting ? next_ns : 0;
	softirq->runs_before = runs;
	return next_ns && !is_next_waiting ? 2 : 1;
}

/* The tracepoint comes before the kernel sets the bit in its mask, with interrupts off. */
TRACEPOINT("softirq_raise") int softirq_raised(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	u32 number = ctx[0], runs = 0, dropped;
	struct raised_softirq *softirq;
	struct events events;
	struct probe_run run;
	bool is_pending;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	softirq = bpf_map_lookup_elem(&raised_softirqs, &number);
	if (softirq && number < NR_SOFTIRQS && read_softirq_state(number, &runs, &is_pending)) {
		dropped = drop_served(softirq, runs, cpu->armed_ns);
		/* Where the bit is set, an earlier raise set it, perhaps one that was not seen. */
		if (!is_pending && !softirq->first_ns) {
			softirq->first_ns = now_ns;
			softirq->runs_before = runs;
		} else if (!is_pending && !softirq->next_ns) {
			softirq->next_ns = now_ns;
		}
		count_unjoined_begins(cpu, KEY_DELAY_SOFTIRQ + number, 0, dropped);
	}
	end_probe_run(cpu, &run, &events);
	return 0;
}

/* The kernel has counted the run before this tracepoint. */
TRACEPOINT("softirq_entry") int softirq_delay_ends(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns(), first_ns, next_ns;
	struct cpu_state *cpu = armed_cpu();
	u32 number = ctx[0], runs = 0, dropped = 0;
	struct raised_softirq *softirq;
	bool is_pending, is_joined = false;
	struct events events;
	struct probe_run run;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	softirq = bpf_map_lookup_elem(&raised_softirqs, &number);
	if (softirq && number < NR_SOFTIRQS) {
		if (read_softirq_state(number, &runs, &is_pending)) {
			dropped = drop_served(softirq, runs - 1, cpu->armed_ns);
			first_ns = softirq->first_ns;
			next_ns = softirq->next_ns;
			/* A pending softirq without a second raise: a raise was not seen, or `first` is that second raise. */
			is_joined = first_ns && first_ns <= now_ns && (next_ns || !is_pending);
			dropped += first_ns && !is_joined;
			softirq->first_ns = next_ns;
			softirq->next_ns = 0;
			softirq->runs_before = runs;
		}
#ifdef IRQLAB_TRACE
		if (is_joined)
			write_trace(trace_what(TRACE_RAISE, number), first_ns, now_ns, 0, 0);
#endif
		if (is_joined)
			count_delay(cpu, KEY_DELAY_SOFTIRQ + number, 0, now_ns - first_ns, now_ns);
		else
			count_unjoined_end(cpu, KEY_DELAY_SOFTIRQ + number, 0);
		count_unjoined_begins(cpu, KEY_DELAY_SOFTIRQ + number, 0, dropped);
	}
	end_probe_run(cpu, &run, &events);
	return 0;
}

/* Whether a begin is in the window of the CPU that looks at it. Windows open on one CPU after the other. */
static __always_inline bool is_in_window(struct cpu_state *cpu, u64 *begin_ns)
{
	return begin_ns && *begin_ns >= cpu->armed_ns;
}

TRACEPOINT("workqueue_queue_work") int work_queued(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns(), work = ctx[2], abandoned = 0;
	struct waiting_work queued = { .queued_ns = now_ns }, *earlier;
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct probe_run run;

	if (!cpu) {
		/* The item is queued anew: an earlier begin must not be joined to its execution. */
		bpf_map_delete_elem(&queued_work, &work);
		return 0;
	}
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	queued.function = (u64)BPF_CORE_READ((struct work_struct *)work, func);
	earlier = bpf_map_lookup_elem(&queued_work, &work);
	if (earlier) {
		/* Only an item that does not wait is queued: the earlier one was cancelled, its execution not seen, or it is about to execute. */
		if (is_in_window(cpu, &earlier->queued_ns))
			abandoned = earlier->function;
		*earlier = queued;
	} else if (bpf_map_update_elem(&queued_work, &work, &queued, BPF_NOEXIST)) {
		abandoned = queued.function;
	}
	count_unjoined_begins(cpu, KEY_DELAY_WORK, abandoned, abandoned != 0);
	end_probe_run(cpu, &run, &events);
	return 0;
}

TRACEPOINT("workqueue_execute_start") int work_delay_ends(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns(), work = ctx[0], begin_ns = 0, data = 0, function;
	struct cpu_state *cpu = armed_cpu();
	struct waiting_work *queued;
	bool is_queued_again = false;
	struct events events;
	struct probe_run run;

	/* On a CPU that is not measured, too: the next execution must not be joined to this begin. */
	queued = bpf_map_lookup_elem(&queued_work, &work);
	if (queued) {
		begin_ns = queued->queued_ns;
		bpf_map_delete_elem(&queued_work, &work);
		/*
		 * The kernel clears bit 0 of work_struct.data (pending) shortly before this event. If it is set, the item
		 * was queued again, and the begin may be the later one.
		 */
		is_queued_again = bpf_probe_read_kernel(&data, sizeof(data), (void *)work) || data & 1;
	}
	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	function = (u64)BPF_CORE_READ((struct work_struct *)work, func);
	if (!is_queued_again && is_in_window(cpu, &begin_ns) && begin_ns <= now_ns) {
		count_delay(cpu, KEY_DELAY_WORK, function, now_ns - begin_ns, now_ns);
	} else {
		count_unjoined_end(cpu, KEY_DELAY_WORK, function);
		count_unjoined_begins(cpu, KEY_DELAY_WORK, function,
				      is_queued_again && is_in_window(cpu, &begin_ns));
	}
	end_probe_run(cpu, &run, &events);
	return 0;
}

#endif
#endif
