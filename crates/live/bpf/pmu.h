/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * PMU events, read at entry and exit of a span. With cfg.events == 0 (the timing pass) the verifier
 * sees a constant and removes all of this code.
 *
 * At entry the events are read before the clock, and at exit after it. The span's time therefore
 * contains none of their cost, as in the paper (handlers-ia32, section 4.1). An event's own count
 * contains the later reads at entry and the earlier reads at exit. Calibration measures these
 * reads, and user space subtracts them.
 */
#ifndef IRQLAB_PMU_H
#define IRQLAB_PMU_H

struct pmu_frame {
	__u64 start[EVENTS_MAX];
	__u64 nested[EVENTS_MAX];
	__u64 idle[EVENTS_MAX]; /* time enabled and not counting; must not grow inside a span */
	__u32 valid;
	__u32 charges; /* number of times that `nested` has grown */
};

struct pmu_frames {
	struct pmu_frame frames[DEPTH_MAX];
	__u64 overhead_in_span[EVENTS_MAX]; /* a pair's addition to each event inside its own span */
	__u64 failed_reads; /* several in a span: one for each event, at entry and exit */
	__u64 last_error;
	__u64 multiplexed; /* spans in which an event did not count all the time */
	__u64 disturbed; /* spans with an interrupt while a program read their events */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pmu_frames);
} pmu_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1); /* the loader sets it to cfg.events * cfg.cpus */
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} pmu_events SEC(".maps");

static __always_inline bool read_event(struct pmu_frames *pmu, u32 event, u64 *value, u64 *idle)
{
	struct bpf_perf_event_value read = {};
	u64 index = event * cfg.cpus + bpf_get_smp_processor_id();
	long error = bpf_perf_event_read_value(&pmu_events, index, &read, sizeof(read));

	if (error) {
		pmu->failed_reads++;
		pmu->last_error = -error;
		return false;
	}
	*value = read.counter;
	*idle = read.enabled - read.running;
	return true;
}

static __always_inline void read_events_at_entry(u32 depth)
{
	u32 zero = 0, event;
	struct pmu_frames *pmu;
	struct pmu_frame *frame;

	if (!cfg.events)
		return;
	pmu = bpf_map_lookup_elem(&pmu_states, &zero);
	if (!pmu)
		return;
	frame = &pmu->frames[depth & (DEPTH_MAX - 1)];
	frame->valid = 1;
	frame->charges = 0;
	for (event = 0; event < EVENTS_MAX; event++) {
		if (event >= cfg.events)
			break;
		frame->nested[event] = 0;
		if (!read_event(pmu, event, &frame->start[event], &frame->idle[event]))
			frame->valid = 0;
	}
	if (frame->charges) /* an interrupt came between the reads */
		frame->valid = 0;
}

struct events {
	u64 values[EVENTS_MAX];
	u64 idle[EVENTS_MAX]; /* after take_events: the inclusive counts of the span */
	u64 self[EVENTS_MAX]; /* after take_events: the span's self counts */
	u32 charges; /* the span's `charges` before the reads */
	bool valid;
};

static __always_inline struct pmu_frame *pmu_frame_at(struct pmu_frames *pmu, u32 position)
{
	/*
	 * In C the compiler drops the mask if it knows the range of `position`, but the
	 * verifier needs the mask.
	 */
	asm volatile("%0 &= %1" : "+r"(position) : "i"(DEPTH_MAX - 1));
	return &pmu->frames[position];
}

/* Reads the events at the exit of the innermost of `depth` open spans. */
static __always_inline void read_events_at_exit(u32 depth, struct events *now)
{
	u32 zero = 0, event;
	struct pmu_frames *pmu;

	now->valid = false;
	now->charges = 0;
	if (!cfg.events)
		return;
	pmu = bpf_map_lookup_elem(&pmu_states, &zero);
	if (!pmu)
		return;
	now->valid = true;
	now->charges = pmu_frame_at(pmu, depth - 1)->charges;
	barrier();
	for (event = 0; event < EVENTS_MAX; event++) {
		if (event >= cfg.events)
			break;
		if (!read_event(pmu, event, &now->values[event], &now->idle[event]))
			now->valid = false;
	}
}

/* Marks the events of an open span as unknown. */
static __always_inline void spoil_events(u32 position)
{
	u32 zero = 0;
	struct pmu_frames *pmu;

	if (!cfg.events)
		return;
	pmu = bpf_map_lookup_elem(&pmu_states, &zero);
	if (pmu)
		pmu_frame_at(pmu, position)->valid = 0;
}

/*
 * Computes the events of the span at `position`, and charges them to its parent. The span is still
 * on the stack, because an interrupt may reuse its frame after that.
 */
static __always_inline void take_events(u32 position, struct events *now)
{
	struct pmu_frame *frame, *parent;
	u32 zero = 0, event;
	struct pmu_frames *pmu;

	if (!cfg.events)
		return;
	pmu = bpf_map_lookup_elem(&pmu_states, &zero);
	if (!pmu) {
		now->valid = false;
		return;
	}
	frame = pmu_frame_at(pmu, position);
	/* Without a parent this is the last frame, which is not in use at that time. */
	parent = pmu_frame_at(pmu, position - 1);
	if (!frame->valid)
		now->valid = false;
	for (event = 0; event < EVENTS_MAX; event++) {
		u64 delta;

		if (event >= cfg.events || !now->valid)
			break;
		if (now->idle[event] != frame->idle[event]) {
			pmu->multiplexed++;
			now->valid = false;
			break;
		}
		delta = now->values[event] - frame->start[event];
		now->idle[event] = delta;
		now->self[event] = delta - frame->nested[event];
		parent->nested[event] += delta;
	}
	barrier();
	/*
	 * Some values contain an interrupt between the reads. An interrupt after the reads is
	 * in `nested`, and not in the values. Therefore this check comes after the last of
	 * `nested` has been read.
	 */
	if (now->valid && now->charges != frame->charges) {
		pmu->disturbed++;
		now->valid = false;
	}
	parent->charges++;
	if (!now->valid)
		parent->valid = 0;
	now->charges = parent->charges;
}

/* Counts the events of a span that ended at `end_ns`, in the sums and in the sums of its batch. */
static __always_inline void count_events(struct row *row, struct events *now, u64 end_ns,
					 u64 armed_ns)
{
	u64 batch;
	u32 event;

	if (!cfg.events || !now->valid)
		return;
	row->event_spans++;
	batch = batch_at(row, end_ns, armed_ns);
	row->batches[batch].count++;
	for (event = 0; event < EVENTS_MAX; event++) {
		u64 at;

		if (event >= cfg.events)
			break;
		row->event_inclusive[event] += now->idle[event];
		row->event_self[event] += now->self[event];
		at = batch * EVENTS_MAX + event;
		/* Opaque to the compiler, as in slot_of_value. */
		asm volatile("%0 &= %1" : "+r"(at) : "i"(HISTOGRAM_SLOTS - 1));
		row->slots[at] += now->self[event];
	}
}

/*
 * A program that runs in a span charges its own additions to the events: the additions since it
 * read them, and the additions of entering and leaving the program. An interrupt in between has
 * charged itself, which makes the events of the span unknown.
 */
static __always_inline void charge_events(u32 position, struct events *since)
{
	u32 zero = 0, event;
	struct pmu_frames *pmu;
	struct pmu_frame *frame;
	u64 value, idle;

	if (!cfg.events)
		return;
	pmu = bpf_map_lookup_elem(&pmu_states, &zero);
	if (!pmu)
		return;
	frame = pmu_frame_at(pmu, position);
	if (!since->valid) {
		frame->valid = 0;
		return;
	}
	for (event = 0; event < EVENTS_MAX; event++) {
		if (event >= cfg.events)
			break;
		if (!read_event(pmu, event, &value, &idle))
			frame->valid = 0;
		else
			frame->nested[event] += value - since->values[event] + pmu->overhead_in_span[event];
	}
	if (frame->valid && since->charges != frame->charges) {
		pmu->disturbed++;
		frame->valid = 0;
	}
	frame->charges++;
}

#endif
