/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Rows that are looked up: those of kernel objects (the actions of an IRQ line, NAPI instances), and,
 * with object 0, those of keys that are no index.
 */
#ifndef IRQLAB_SHARED_LINES_H
#define IRQLAB_SHARED_LINES_H

struct object_key {
	__u64 object;
	__u32 key;
	__u32 cpu;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
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

static __noinline struct row *row_of_object(struct cpu_state *cpu, u32 key, u64 object)
{
	struct object_key id = { .object = object, .key = key };
	struct row *row;
	u32 slot, *known;

	if (!cpu)
		return 0;
	id.cpu = bpf_get_smp_processor_id();
	known = bpf_map_lookup_elem(&slots_of_objects, &id);
	if (known)
		return row_at(*known);
	slot = claim_slot(cpu);
	row = row_at(slot);
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

/*
 * Each action of a shared line has its own row. The line number alone finds the row of the first
 * action seen; only the others need a hash look-up.
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

static __always_inline struct row *row_of_napi(struct cpu_state *cpu, u64 napi)
{
	struct row *row = row_of_object(cpu, KEY_NAPI, napi);

	if (row && !row->name[0])
		name_napi(row, napi);
	return row;
}

#endif
