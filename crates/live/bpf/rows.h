/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The rows of a CPU, and how the row of a context is found. All CPUs' rows are in one map, because
 * a per-CPU map would have rows for every possible CPU. The loader assigns a range of the map to
 * each measured CPU (cpu_state).
 *
 * Most keys are an index, and the key's word contains the row. The rows of kernel objects
 * (the actions of an IRQ line, NAPI instances) are looked up in a hash, and with object 0 the
 * rows of all other keys.
 */
#ifndef IRQLAB_ROWS_H
#define IRQLAB_ROWS_H

#define BATCH_SHIFT_FIRST 20 /* 1.05 ms; doubles in long runs */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets it to 1 plus the rows of all measured CPUs */
	__type(key, u32);
	__type(value, struct row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* as for rows */
	__type(key, u32);
	__type(value, struct nested_times);
} nested_times SEC(".maps");

static __always_inline struct row *row_at(struct cpu_state *cpu, u32 slot)
{
	u32 index = cpu->row_base + slot;

	return bpf_map_lookup_elem(&rows, &index);
}

/* Claims a row on this CPU. Returns 0, which means no row, if all are in use. */
static __always_inline u32 claim_slot(struct cpu_state *cpu)
{
	u32 slot;

	/* Refused claims are not added on, or the sum would wrap to slots in use. */
	if (cpu->rows_used >= cpu->rows_max)
		return 0;
	/* Atomic, because an NMI may claim a slot in between. */
	slot = __sync_fetch_and_add(&cpu->rows_used, 1) + 1;
	return slot <= cpu->rows_max && slot < 1 << ROW_BITS ? slot : 0;
}

/* The histograms of a row's spans with spans inside; 0 if all are in use. */
static __noinline struct nested_times *nested_times_of(struct cpu_state *cpu, struct row *row)
{
	u32 index;

	if (!cpu || !row)
		return 0;
	if (!row->nested) {
		u32 slot;

		/* As in claim_slot. */
		if (cpu->nested_used >= cpu->nested_max)
			return 0;
		slot = __sync_fetch_and_add(&cpu->nested_used, 1) + 1;
		if (slot > cpu->nested_max)
			return 0;
		row->nested = slot;
	}
	index = cpu->nested_base + row->nested;
	return bpf_map_lookup_elem(&nested_times, &index);
}

static __noinline struct row *first_row(struct cpu_state *cpu, u32 key)
{
	struct row *row;
	u32 slot;

	if (!cpu || key >= KEYS_DENSE)
		return 0;
	slot = claim_slot(cpu);
	row = row_at(cpu, slot);
	if (!slot || !row) {
		cpu->unattributed++;
		return 0;
	}
	row->key = key;
	row->batch_shift = BATCH_SHIFT_FIRST;
	cpu->key_words[key] |= slot;
	return row;
}

static __always_inline bool is_dense(u64 *key)
{
	/* Opaque to the compiler, so that the verifier sees this check on the index in use. */
	asm volatile("" : "+r"(*key));
	return *key < KEYS_DENSE;
}

static __always_inline u32 word_of(struct cpu_state *cpu, u32 key)
{
	u64 index = key;

	if (!is_dense(&index))
		index = KEY_NONE;
	/* Opaque again, so that the two cases remain one index, whose bound the verifier sees. */
	asm volatile("" : "+r"(index));
	return cpu->key_words[index];
}

struct object_key {
	__u64 object;
	__u32 key;
	__u32 cpu; /* and the generation, from bit 16 on */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* as for rows */
	__type(key, struct object_key);
	__type(value, u32);
} slots_of_objects SEC(".maps");

static __always_inline void name_action(struct row *row, u64 action)
{
#ifndef IRQLAB_NO_BTF
	struct irqaction *typed = (void *)action;

	bpf_probe_read_kernel_str(row->name, NAME_BYTES, BPF_CORE_READ(typed, name));
#endif
}

static __always_inline void name_napi(struct row *row, u64 napi)
{
#ifndef IRQLAB_NO_BTF
	struct napi_struct *typed = (void *)napi;
	struct net_device *device = BPF_CORE_READ(typed, dev);

	row->number = BPF_CORE_READ(typed, napi_id);
	if (device)
		bpf_probe_read_kernel_str(row->name, sizeof(device->name), &device->name);
#endif
}

/* From this bit on, the key of row_of_object has the generation of the object. */
#define GENERATION_SHIFT 32

/*
 * The generation, below 2^16, tells objects at the same address apart; it is 0 if they cannot be told apart. It has
 * no argument of its own: one more needs stack that Linux 6.1 does not have on the longest chain of calls.
 */
static __noinline struct row *row_of_object(struct cpu_state *cpu, u64 key, u64 object)
{
	struct object_key id = { .object = object, .key = key };
	struct row *row;
	u32 slot, *known;

	if (!cpu)
		return 0;
	id.cpu = bpf_get_smp_processor_id() | (u32)(key >> GENERATION_SHIFT) << 16;
	known = bpf_map_lookup_elem(&slots_of_objects, &id);
	if (known)
		return row_at(cpu, *known);
	slot = claim_slot(cpu);
	row = row_at(cpu, slot);
	if (!slot || !row || bpf_map_update_elem(&slots_of_objects, &id, &slot, BPF_ANY)) {
		cpu->unattributed++;
		return 0;
	}
	row->key = key;
	row->batch_shift = BATCH_SHIFT_FIRST;
	row->object = object;
	row->shared = object != 0;
	return row;
}

static __always_inline struct row *row_of(struct cpu_state *cpu, u32 key)
{
	u64 index = key;
	u32 slot;

	if (!is_dense(&index))
		return row_of_object(cpu, key, 0);
	slot = cpu->key_words[index] & ((1 << ROW_BITS) - 1);
	return slot ? row_at(cpu, slot) : first_row(cpu, key);
}

/*
 * Each action of a shared line has its own row. The row of the first action that was seen is found
 * by the line number alone. Only the others need a hash look-up.
 */
static __always_inline struct row *row_of_action(struct cpu_state *cpu, u32 key, u64 action)
{
	struct row *row = row_of(cpu, key);

	if (!row || row->object == action)
		return row;
	if (!row->object) {
		row->object = action;
		name_action(row, action);
		return row;
	}
	row = row_of_object(cpu, key, action);
	if (row && !row->name[0])
		name_action(row, action);
	return row;
}

/*
 * The key of a NAPI instance, with its id modulo 2^16 as generation. A later device's instance may have the address of
 * one that is gone, but has another id: the ids count up.
 */
static __always_inline u64 napi_key(u64 napi)
{
	u64 generation = 0;

#ifndef IRQLAB_NO_BTF
	struct napi_struct *typed = (void *)napi;

	generation = BPF_CORE_READ(typed, napi_id) & 0xffff;
#endif
	return KEY_NAPI | generation << GENERATION_SHIFT;
}

static __always_inline struct row *row_of_napi(struct cpu_state *cpu, u64 napi)
{
	struct row *row = row_of_object(cpu, napi_key(napi), napi);

	if (row && !row->name[0])
		name_napi(row, napi);
	return row;
}

#endif
