/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * PMU events read at entry and exit of a span. With cfg.events == 0 (the timing pass) the verifier
 * sees a constant and removes all of this.
 *
 * Order: at entry the events are read before the clock, at exit after it, so the clock's interval
 * holds none of their cost, as in the paper (handlers-ia32, section 4.1). An event's own interval
 * holds the entry reads after it and the exit reads before it; calibration measures and the user
 * side subtracts that.
 */
#ifndef IRQLAB_PMU_H
#define IRQLAB_PMU_H

struct pmu_frame {
	__u64 start[EVENTS_MAX];
	__u64 nested[EVENTS_MAX];
	__u64 idle[EVENTS_MAX]; /* time enabled and not counting: must not grow inside a span */
	__u64 valid;
};

struct pmu_frames {
	struct pmu_frame frames[DEPTH_MAX];
	__u64 unreadable; /* reads that failed */
	__u64 last_error;
	__u64 multiplexed; /* spans in which an event did not count all the time */
	__u64 disturbed; /* spans whose exit program was interrupted between reading and this */
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
		pmu->unreadable++;
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
	for (event = 0; event < EVENTS_MAX; event++) {
		if (event >= cfg.events)
			break;
		frame->nested[event] = 0;
		if (!read_event(pmu, event, &frame->start[event], &frame->idle[event]))
			frame->valid = 0;
	}
}

struct events {
	u64 values[EVENTS_MAX];
	u64 idle[EVENTS_MAX];
	bool valid;
};

static __always_inline void read_events_at_exit(struct events *now)
{
	u32 zero = 0, event;
	struct pmu_frames *pmu;

	if (!cfg.events)
		return;
	now->valid = false;
	pmu = bpf_map_lookup_elem(&pmu_states, &zero);
	if (!pmu)
		return;
	now->valid = true;
	for (event = 0; event < EVENTS_MAX; event++) {
		if (event >= cfg.events)
			break;
		if (!read_event(pmu, event, &now->values[event], &now->idle[event]))
			now->valid = false;
	}
}

/* Charges the events of the span that ended to it and to the one around it. */
static __always_inline void count_events(struct row *row, u32 position, struct events *now)
{
	u32 zero = 0, event;
	struct pmu_frames *pmu;
	struct pmu_frame *frame;
	u64 delta;

	if (!cfg.events)
		return;
	pmu = bpf_map_lookup_elem(&pmu_states, &zero);
	if (!pmu)
		return;
	frame = &pmu->frames[position & (DEPTH_MAX - 1)];
	if (!now->valid || !frame->valid)
		return;
	for (event = 0; event < EVENTS_MAX; event++) {
		if (event >= cfg.events)
			break;
		if (now->idle[event] != frame->idle[event]) {
			pmu->multiplexed++;
			return;
		}
	}
	/*
	 * A span that was nested in the program at exit itself, behind the reads, would make this
	 * one's own events negative: by what it was charged, or as it began anew in this one's frame.
	 */
	for (event = 0; event < EVENTS_MAX; event++) {
		if (event >= cfg.events)
			break;
		delta = now->values[event] - frame->start[event] - frame->nested[event];
		if ((s64)delta < 0) {
			pmu->disturbed++;
			return;
		}
	}
	row->event_spans++;
	for (event = 0; event < EVENTS_MAX; event++) {
		if (event >= cfg.events)
			break;
		delta = now->values[event] - frame->start[event];
		row->event_inclusive[event] += delta;
		row->event_self[event] += delta - frame->nested[event];
		if (position > 0)
			pmu->frames[(position - 1) & (DEPTH_MAX - 1)].nested[event] += delta;
	}
}

/*
 * Charges what a program of ours added to the events since it read them, and on the ways into it and
 * out of it, to the span in which it runs.
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
	frame = &pmu->frames[position & (DEPTH_MAX - 1)];
	if (!since->valid)
		frame->valid = 0;
	for (event = 0; event < EVENTS_MAX; event++) {
		if (event >= cfg.events)
			break;
		if (!read_event(pmu, event, &value, &idle))
			frame->valid = 0;
		else
			frame->nested[event] += value - since->values[event] + cfg.inside_events[event];
	}
}

#endif
