/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The span stack of a CPU, as in crates/attribution/src/stack.rs, which a test drives beside it.
 *
 * Softirq probes run with interrupts on, so a hard IRQ may come at any instruction of theirs. Its
 * own probes leave the stack as they found it, so it is enough that a frame is claimed (depth)
 * before it is filled, and computed from before it is given back.
 */
#ifndef IRQLAB_SPAN_STACK_H
#define IRQLAB_SPAN_STACK_H

#include "distribution.h"
#include "pmu.h"

#define BATCH_SHIFT_FIRST 20 /* 1.05 ms; doubles as the run gets longer */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* the loader sets it to cfg.slots */
	__type(key, u32);
	__type(value, struct row);
} rows SEC(".maps");

static __always_inline struct cpu_state *armed_cpu(void)
{
	u32 zero = 0;
	struct cpu_state *cpu = bpf_map_lookup_elem(&cpu_states, &zero);

	return cpu && cpu->armed ? cpu : 0;
}

static __always_inline struct row *row_at(u32 slot)
{
	return bpf_map_lookup_elem(&rows, &slot);
}

/* A new row on this CPU, or 0 when all are taken. Slot 0 stands for none. */
static __always_inline u32 claim_slot(struct cpu_state *cpu)
{
	/* Atomic, as an NMI may claim one in between. */
	u32 slot = __sync_fetch_and_add(&cpu->slots_used, 1) + 1;

	return slot < cfg.slots ? slot : 0;
}

static __noinline struct row *first_row(struct cpu_state *cpu, u32 key)
{
	struct row *row;
	u32 slot;

	if (!cpu || key >= KEYS)
		return 0;
	slot = claim_slot(cpu);
	row = row_at(slot);
	if (!slot || !row) {
		cpu->unattributed++;
		return 0;
	}
	row->key = key;
	row->batch_shift = BATCH_SHIFT_FIRST;
	cpu->slot_of[key] = slot;
	return row;
}

static __always_inline struct row *row_of(struct cpu_state *cpu, u32 key)
{
	u64 index = key;
	u32 slot;

	/* Opaque to the compiler, so that the verifier sees this check on the index that is used. */
	asm volatile("" : "+r"(index));
	if (index >= KEYS)
		return 0;
	slot = cpu->slot_of[index];
	return slot ? row_at(slot) : first_row(cpu, key);
}

/* Opens a span. The clock is read last, so that little of this is inside; `fixed_ns` replaces it. */
static __always_inline void open_span(struct cpu_state *cpu, u32 key, u64 fixed_ns)
{
	u32 depth = cpu->depth;
	struct frame *frame;

	if (depth >= DEPTH_MAX) {
		cpu->overflows++;
		return;
	}
	cpu->depth = depth + 1;
	barrier();
	frame = &cpu->frames[depth & (DEPTH_MAX - 1)];
	frame->key = key;
	read_events_at_entry(depth);
	frame->start_ns = fixed_ns ? fixed_ns : bpf_ktime_get_ns();
	frame->nested_ns = 0;
	frame->descendants = 0;
}

/*
 * Finds the open span of `key` under the top, drops those above it, and returns its position + 1;
 * 0 when there is none. What closed inside a dropped one was charged already: it is carried down.
 */
static __noinline u32 unwind_to(struct cpu_state *cpu, u32 key)
{
	u32 depth, step, position, found = 0;
	u64 nested_ns = 0;
	u32 descendants = 0, dropped = 0;

	if (!cpu)
		return 0;
	depth = cpu->depth;
	for (step = 0; step < DEPTH_MAX; step++) {
		if (step >= depth)
			break;
		position = (depth - 1 - step) & (DEPTH_MAX - 1);
		if (cpu->frames[position].key == key) {
			found = position + 1;
			break;
		}
		nested_ns += cpu->frames[position].nested_ns;
		descendants += cpu->frames[position].descendants;
		dropped++;
	}
	if (!found) {
		cpu->unmatched_exits++;
		return 0;
	}
	for (step = 0; step < DEPTH_MAX; step++) {
		struct row *row;

		if (step >= dropped)
			break;
		row = row_of(cpu, cpu->frames[(found + step) & (DEPTH_MAX - 1)].key);
		if (row)
			row->abandoned++;
	}
	position = (found - 1) & (DEPTH_MAX - 1);
	cpu->abandoned += dropped;
	cpu->frames[position].nested_ns += nested_ns;
	cpu->frames[position].descendants += descendants;
	cpu->depth = found;
	return found;
}

/* A span that has just ended, not yet counted. */
struct ended {
	u64 self_ns;
	u64 inclusive_ns;
	u32 descendants;
	u32 position;
	bool clamped;
};

static __always_inline u32 inside_of(struct cpu_state *cpu, u32 key)
{
	return cpu->inside_ns[key >= KEY_IRQ ? CLASS_IRQ : key >= KEY_SOFTIRQ ? CLASS_SOFTIRQ : CLASS_VECTOR];
}

/* Takes the innermost open span of `key` off the stack and charges it to the one around it. */
static __always_inline bool close_span(struct cpu_state *cpu, u32 key, u64 now_ns, struct ended *ended)
{
	u32 depth = cpu->depth, position;
	u64 raw_ns, probes_ns, nested_ns, inside_ns;
	struct frame *frame;

	if (!depth || cpu->frames[(depth - 1) & (DEPTH_MAX - 1)].key != key) {
		depth = unwind_to(cpu, key);
		if (!depth)
			return false;
	}
	position = (depth - 1) & (DEPTH_MAX - 1);
	frame = &cpu->frames[position];
	raw_ns = now_ns - frame->start_ns;
	if ((s64)raw_ns < 0)
		raw_ns = 0;
	ended->position = position;
	ended->descendants = frame->descendants;
	inside_ns = inside_of(cpu, key);
	probes_ns = inside_ns + frame->descendants * (cfg.inside_ns + cfg.outside_ns);
	nested_ns = frame->nested_ns + inside_ns;
	ended->inclusive_ns = raw_ns > probes_ns ? raw_ns - probes_ns : 0;
	ended->self_ns = raw_ns > nested_ns ? raw_ns - nested_ns : 0;
	ended->clamped = raw_ns < nested_ns;
	if (position > 0) {
		struct frame *around = &cpu->frames[(position - 1) & (DEPTH_MAX - 1)];

		around->nested_ns += raw_ns + cfg.outside_ns;
		around->descendants += ended->descendants + 1;
	}
	barrier();
	cpu->depth = position;
	return true;
}

/* Counts a span that has ended. */
static __always_inline void count_span(struct cpu_state *cpu, struct row *row, struct ended *ended,
				       u64 now_ns, struct events *events)
{
	add_value(row, ended->self_ns, now_ns, cpu->armed_ns);
	if (ended->clamped)
		row->clamped++;
	if (!ended->descendants) {
		row->flat[slot_of_value(ended->self_ns)]++;
	} else {
		row->nested_count++;
		row->nested_extra += ended->inclusive_ns - ended->self_ns;
		if (ended->inclusive_ns >= row->nested_max) {
			row->nested_max = ended->inclusive_ns;
			row->nested_max_at_ns = now_ns;
		}
		row->nested_self[slot_of_value(ended->self_ns)]++;
		row->nested_inclusive[slot_of_value(ended->inclusive_ns)]++;
	}
	count_events(row, ended->position, events);
}

#endif
