/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Who pays for interrupts, and who causes them: the time of each span of an interrupt or softirq, by its victim and by
 * its cause. The victim is the task, or the control group of the task, that the CPU ran when the span ended. Causes are
 * the senders of function calls (senders.h) and of reschedule interrupts, and the groups of completed requests and of
 * sockets (causes.h). A span without a known cause has the cause PARTY_UNKNOWN.
 *
 * The times of all victims and causes of a context add up to the sum of the context's rows (rows.h).
 */
#ifndef IRQLAB_VICTIMS_H
#define IRQLAB_VICTIMS_H

/*
 * Whether times are summed by victim and cause. Otherwise another object is loaded, whose programs have no code for it:
 * Linux 6.1 counts the stack of functions that a constant turns off.
 */
#ifdef IRQLAB_VICTIMS
#define SUMS_VICTIMS (cfg.victims != 0)
#else
#define SUMS_VICTIMS 0
#endif

#ifndef IRQLAB_NO_BTF

/* Largest number of causes of one span that are told apart. */
#define CAUSES_MAX 4

#include "unseen_calls.h"

#define KEY_NET_RX (KEY_SOFTIRQ + 3)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* the loader sets the number of cells */
	__type(key, struct victim_key);
	__type(value, struct victim_cell);
} victim_cells SEC(".maps");

/* The causes of an open span. They belong to the span that started at span_ns, and not to an older one of its frame. */
struct span_causes {
	u64 span_ns;
	u32 events; /* calls, completions and deliveries in the span, also of unknown causes */
	u32 packets; /* received in the span */
	u32 used; /* number of parties */
	u32 counts[CAUSES_MAX]; /* events of each party */
	struct party parties[CAUSES_MAX];
};

/* By the position of the span in the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DEPTH_MAX);
	__type(key, u32);
	__type(value, struct span_causes);
} span_causes SEC(".maps");

static __always_inline u64 id_of_cgroup(struct cgroup *cgroup)
{
	return cgroup ? BPF_CORE_READ(cgroup, kn, id) : 0;
}

/* Replaces a pointer to a structure by one of its fields. Such a chain needs no stack beyond the one pointer. */
#define FOLLOW(pointer, type, field)                                                               \
	bpf_core_read(&(pointer), sizeof(pointer), &((struct type *)(pointer))->field)

/* The id of the current task's group in the hierarchy of the configuration; 0 if it cannot be read. */
static __always_inline u64 current_cgroup_id(void)
{
	u64 pointer = bpf_get_current_task();

	FOLLOW(pointer, task_struct, cgroups);
	if (cfg.cgroup_subsystem < 0) {
		FOLLOW(pointer, css_set, dfl_cgrp);
	} else {
		pointer += bpf_core_field_offset(struct css_set, subsys);
		pointer += cfg.cgroup_subsystem * sizeof(pointer);
		bpf_probe_read_kernel(&pointer, sizeof(pointer), (void *)pointer);
		FOLLOW(pointer, cgroup_subsys_state, cgroup);
	}
	FOLLOW(pointer, cgroup, kn);
	return FOLLOW(pointer, kernfs_node, id) ? 0 : pointer;
}

static __always_inline void name_cgroup(struct party *party, u64 id)
{
	party->id[0] = id;
	party->id[1] = 0;
	party->kind = id ? PARTY_CGROUP : PARTY_UNKNOWN;
	party->unused = 0;
}

/* The current task or its group. Sets all bytes, because a party is part of keys. */
static __noinline int name_current(struct party *party)
{
	if (!party)
		return 0;
	name_cgroup(party, 0);
	if (!(u32)bpf_get_current_pid_tgid()) {
		party->kind = PARTY_IDLE;
	} else if (cfg.victims == VICTIMS_BY_TASK) {
		party->kind = PARTY_TASK;
		bpf_get_current_comm(party->id, sizeof(party->id));
	} else {
		name_cgroup(party, current_cgroup_id());
	}
	return 0;
}

static __always_inline struct span_causes *causes_at(u32 position)
{
	return bpf_map_lookup_elem(&span_causes, &position);
}

/* The causes of the innermost span, empty if the span is new; 0 outside of spans of the keys first to last. */
static __always_inline struct span_causes *causes_of_innermost(struct cpu_state *cpu, u32 first,
							       u32 last)
{
	struct frame *frame = innermost(cpu);
	struct span_causes *causes;

	if (!frame || frame->key < first || frame->key > last)
		return 0;
	causes = causes_at(cpu->depth - 1);
	if (causes && causes->span_ns != frame->start_ns) {
		causes->span_ns = frame->start_ns;
		causes->events = 0;
		causes->packets = 0;
		causes->used = 0;
	}
	return causes;
}

/* Adds an event to the causes of a span. `party`: of the kind PARTY_UNKNOWN if it is not known. */
static __noinline int add_cause(struct span_causes *causes, struct party *party)
{
	u32 index;

	if (!causes || !party)
		return 0;
	causes->events++;
	if (party->kind == PARTY_UNKNOWN)
		return 0;
	for (index = 0; index < CAUSES_MAX; index++) {
		if (index >= causes->used) {
			causes->parties[index] = *party;
			causes->counts[index] = 1;
			causes->used = index + 1;
			break;
		}
		if (is_same_party(&causes->parties[index], party)) {
			causes->counts[index]++;
			break;
		}
	}
	return 0;
}

/* Notes packets that a poll in the softirq NET_RX has received. */
static __always_inline void note_packets(struct cpu_state *cpu, u32 packets)
{
	struct span_causes *causes = causes_of_innermost(cpu, KEY_NET_RX, KEY_NET_RX);

	if (causes)
		causes->packets += packets;
}

static const struct victim_cell NO_CELL = {};

/* Adds a time to a cell. If the map is full, the time goes to the cell of all other victims of the context. */
static __noinline int add_to_cell(struct cpu_state *cpu, struct victim_key *key, u64 ns)
{
	struct victim_cell *cell;

	if (!cpu || !key)
		return 0;
	cell = bpf_map_lookup_elem(&victim_cells, key);
	if (!cell) {
		bpf_map_update_elem(&victim_cells, key, &NO_CELL, BPF_NOEXIST);
		cell = bpf_map_lookup_elem(&victim_cells, key);
	}
	if (!cell) {
		name_cgroup(&key->victim, 0);
		name_cgroup(&key->cause, 0);
		key->victim.kind = PARTY_OTHERS;
		cell = bpf_map_lookup_elem(&victim_cells, key);
	}
	if (!cell) {
		key->context = KEY_NONE;
		cell = bpf_map_lookup_elem(&victim_cells, key);
	}
	if (!cell) {
		cpu->unattributed++;
		return 0;
	}
	__sync_fetch_and_add(&cell->count, 1);
	__sync_fetch_and_add(&cell->self_ns, ns);
	return 0;
}

/* Whether spans of this key interrupt a task. Threads of IRQ lines and work items are tasks themselves. */
static __always_inline bool interrupts_a_task(u32 key)
{
	return key < KEY_NMI || key == KEY_HRTIMER || key == KEY_TIMER || key == KEY_TASKLET ||
	       (key >= KEY_IRQ && key < KEY_DELAY_SOFTIRQ);
}

/*
 * The keys that programs on this CPU make. An interrupt's program may run in the middle of that of a softirq, so each
 * level has a key. They are no local variables, because Linux 6.1 has no more stack for them.
 */
#define VICTIM_LEVELS 4

struct victim_keys {
	u32 levels; /* in use */
	u32 unused;
	struct victim_key at[VICTIM_LEVELS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct victim_keys);
} victim_keys SEC(".maps");

/* Takes a key, and sets its context and its victim; 0 if there is none. */
static __noinline struct victim_key *take_victim_key(u32 context)
{
	u32 zero = 0, level;
	struct victim_keys *keys = bpf_map_lookup_elem(&victim_keys, &zero);
	struct victim_key *key;

	if (!keys)
		return 0;
	level = keys->levels;
	if (level >= VICTIM_LEVELS)
		return 0;
	keys->levels = level + 1;
	barrier();
	key = &keys->at[level & (VICTIM_LEVELS - 1)];
	key->context = context;
	key->unused = 0;
	name_current(&key->victim);
	name_cgroup(&key->cause, 0);
	return key;
}

static __always_inline void return_victim_key(void)
{
	u32 zero = 0;
	struct victim_keys *keys = bpf_map_lookup_elem(&victim_keys, &zero);

	barrier();
	if (keys)
		keys->levels--;
}

/* Adds the self time of a span to its victim. Several causes share the time by the number of their events. */
static __noinline int add_by_cause(struct cpu_state *cpu, struct victim_key *key, u32 position,
				   u64 start_ns, u64 self_ns)
{
	struct span_causes *causes;
	u32 index, events = 0, used = 0;
	u64 part_ns;

	if (!cpu || !key)
		return 0;
	if (key->context == KEY_OF_reschedule) {
		take_reschedule(cpu->armed_ns, start_ns, &key->cause);
		return add_to_cell(cpu, key, self_ns);
	}
	/* The time that irq_work took is not known: the causes at this position, which does not exist, are none. */
	if (key->context >= KEY_OF_call_function && key->context <= KEY_OF_call_function_single &&
	    may_contain_irq_work(start_ns))
		position = DEPTH_MAX;
	causes = causes_at(position);
	if (causes && causes->span_ns == start_ns) {
		events = causes->events > causes->packets ? causes->events : causes->packets;
		used = causes->used;
	}
	for (index = 0; index < CAUSES_MAX && index < used && causes; index++) {
		u32 count = causes->counts[index];

		key->cause = causes->parties[index];
		barrier();
		/* The frame is free: an interrupt may have put its own causes here. */
		if (causes->span_ns != start_ns || count > events)
			break;
		part_ns = self_ns * count / events;
		self_ns -= part_ns;
		events -= count;
		add_to_cell(cpu, key, part_ns);
	}
	if (events || self_ns || !used) {
		name_cgroup(&key->cause, 0);
		add_to_cell(cpu, key, self_ns);
	}
	return 0;
}

/* Adds the self time of a counted span to its victim and its causes. */
static __always_inline void charge_victim(struct cpu_state *cpu, u32 context, u32 position,
					  u64 start_ns, u64 self_ns)
{
	struct victim_key *key;

	if (!interrupts_a_task(context))
		return;
	key = take_victim_key(context);
	if (!key) {
		cpu->unattributed++;
		return;
	}
	add_by_cause(cpu, key, position, start_ns, self_ns);
	return_victim_key();
}

#endif
#endif
