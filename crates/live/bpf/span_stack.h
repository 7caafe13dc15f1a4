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

	return slot < cfg.slots && slot < 1 << SLOT_BITS ? slot : 0;
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
	cpu->places[key] |= slot;
	return row;
}

static __always_inline bool known_key(u64 *key)
{
	/* Opaque to the compiler, so that the verifier sees this check on the index that is used. */
	asm volatile("" : "+r"(*key));
	return *key < KEYS;
}

static __always_inline struct row *row_of(struct cpu_state *cpu, u32 key)
{
	u64 index = key;
	u32 slot;

	if (!known_key(&index))
		return 0;
	slot = cpu->places[index] & ((1 << SLOT_BITS) - 1);
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
	frame->probes_ns = 0;
	frame->descendants = 0;
}

/*
 * Finds the open span of `key` under the top, drops those above it, and returns its position + 1;
 * 0 when there is none. What closed inside a dropped one was charged already: it is carried down.
 */
static __noinline u32 unwind_to(struct cpu_state *cpu, u32 key)
{
	u32 depth, step, position, found = 0;
	u64 nested_ns = 0, probes_ns = 0;
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
		probes_ns += cpu->frames[position].probes_ns;
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
	cpu->frames[position].probes_ns += probes_ns;
	cpu->frames[position].descendants += descendants;
	if (dropped)
		spoil_events(position);
	cpu->depth = found;
	return found;
}

/* Our own program inside of a span: which one, when it began, and what was charged until then. */
struct own {
	struct frame *frame; /* 0: in none */
	u64 since_ns;
	u64 nested_ns;
};

/* A span that has just ended, not yet counted. */
struct ended {
	u64 self_ns;
	u64 inclusive_ns;
	u32 descendants;
	u32 position;
	bool clamped;
	struct own own; /* this program, in the span around */
};

/* What a probe pair adds inside a span of this key. */
static __always_inline u32 inside_of(struct cpu_state *cpu, u32 key)
{
	u64 index = key;

	if (!known_key(&index))
		return 0;
	return cpu->places[index] >> SLOT_BITS & ((1 << INSIDE_BITS) - 1);
}

/* What a way into the exit's program adds that the span has cooled, of so much that is left of it. */
static __always_inline u64 way_in_of(struct cpu_state *cpu, u32 key, u64 left_ns)
{
	u64 index = key, most_ns;

	if (!known_key(&index))
		return 0;
	most_ns = (u64)(cpu->places[index] >> (SLOT_BITS + INSIDE_BITS)) << WAY_IN_SHIFT;
	return left_ns >> WAY_IN_SHARE < most_ns ? left_ns >> WAY_IN_SHARE : most_ns;
}

/* Takes the innermost open span of `key` off the stack and charges it to the one around it. */
static __always_inline bool close_span(struct cpu_state *cpu, u32 key, u64 now_ns, struct ended *ended,
				       struct events *events)
{
	u32 depth = cpu->depth, position;
	u64 raw_ns, probes_ns, nested_ns, inside_ns, own_ns;
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
	own_ns = raw_ns - frame->nested_ns - inside_ns;
	if ((s64)own_ns > 0)
		inside_ns += way_in_of(cpu, key, own_ns);
	probes_ns = frame->probes_ns + inside_ns;
	nested_ns = frame->nested_ns + inside_ns;
	ended->inclusive_ns = raw_ns > probes_ns ? raw_ns - probes_ns : 0;
	ended->self_ns = raw_ns > nested_ns ? raw_ns - nested_ns : 0;
	ended->clamped = raw_ns < nested_ns;
	ended->own.frame = 0;
	take_events(position, events);
	if (position > 0) {
		struct frame *around = &cpu->frames[(position - 1) & (DEPTH_MAX - 1)];

		/*
		 * What is before the clock at entry and behind the last clock at exit is the same as
		 * what is inside, between the two: the way into a program, and the way out of one.
		 */
		around->nested_ns += raw_ns + inside_ns;
		around->probes_ns += probes_ns + inside_ns;
		around->descendants += ended->descendants + 1;
		ended->own.frame = around;
		ended->own.since_ns = now_ns;
		ended->own.nested_ns = around->nested_ns;
	}
	barrier();
	cpu->depth = position;
	return true;
}

static __always_inline struct frame *innermost(struct cpu_state *cpu)
{
	u32 depth = cpu->depth;
	struct frame *frame = depth ? &cpu->frames[(depth - 1) & (DEPTH_MAX - 1)] : 0;

	/* Opaque to the compiler, which would check `depth` again, where the verifier wants the pointer. */
	asm volatile("" : "+r"(frame));
	return frame;
}

/* This program, which opens and closes no span, begins. */
static __always_inline void begin_own(struct cpu_state *cpu, struct own *own, u64 now_ns)
{
	own->frame = innermost(cpu);
	own->since_ns = now_ns;
	own->nested_ns = own->frame ? own->frame->nested_ns : 0;
}

/*
 * Charges what this program took to the span in which it runs. What came in between has charged
 * itself. `fixed_ns` replaces the clock.
 */
static __always_inline void charge_own(struct own *own, u64 more_ns, u64 fixed_ns)
{
	u64 spent_ns = (fixed_ns ? fixed_ns : bpf_ktime_get_ns()) - own->since_ns;

	spent_ns -= own->frame->nested_ns - own->nested_ns;
	if ((s64)spent_ns < 0)
		return;
	own->frame->nested_ns += spent_ns + more_ns;
	own->frame->probes_ns += spent_ns + more_ns;
}

/* It ends. The ways into it and out of it take what is inside of a span without work. */
static __always_inline void end_own(struct cpu_state *cpu, struct own *own, struct events *since)
{
	if (!own->frame)
		return;
	charge_events(cpu->depth - 1, since);
	charge_own(own, inside_of(cpu, own->frame->key), 0);
}

/* The program at the exit of a nested span ends. */
static __always_inline void end_nested(struct ended *ended, struct events *since)
{
	if (!ended->own.frame)
		return;
	charge_events(ended->position - 1, since);
	charge_own(&ended->own, 0, 0);
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
	count_events(row, events);
}

#endif
