/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Waits for contended locks, by the tracepoints contention_begin and contention_end (Linux 5.19). Loaded only if locks are
 * measured.
 *
 * A CPU that spins for a lock cannot switch tasks, so its waits are a stack of the CPU: an interrupt may spin, too. A task
 * that sleeps may end its wait on another CPU, so its waits are a stack of the task.
 *
 * The tracepoints fire inside the kernel's lock functions, also inside those of BPF's own maps. Since Linux 6.15 a program
 * that takes a map's lock there may wait for itself. So waits that spin use per-CPU arrays only. Waits that sleep
 * use a hash map, and `active` keeps the programs that its locks start from using it.
 */
#ifndef IRQLAB_LOCKS_H
#define IRQLAB_LOCKS_H

/* include/trace/events/lock.h */
#define LCB_F_SPIN 1
#define LCB_F_MUTEX 32

/* Values of `lock_cpu.active`. */
#define STARTS_WAIT 1
#define ENDS_WAIT 2

/* Attempts to store a new maximum. An attempt fails if an interrupt's program has just stored one. */
#define MAX_ATTEMPTS 4

/* Lowest address of the kernel's image and of its modules. Locks above it are variables with a symbol. */
#define IMAGE_START 0xffffffff80000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOCK_ROWS);
	__type(key, u32);
	__type(value, struct lock_row);
} lock_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct lock_cpu);
} lock_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOCK_TASKS);
	__type(key, u32);
	__type(value, struct lock_waits);
} lock_tasks SEC(".maps");

static __always_inline struct lock_cpu *this_lock_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&lock_cpus, &zero);
}

static __always_inline void lose_waits(u32 waits)
{
	u32 zero = 0;
	struct service_rows *table = bpf_map_lookup_elem(&row_table, &zero);

	if (table)
		table->lost += waits;
}

/* Whether a return address is in a function that takes locks. Not static, so that the verifier checks it only once. */
__noinline int is_in_lock_function(u64 address)
{
	u32 range;

	for (range = 0; range < LOCK_FUNCTIONS; range++) {
		if (address > cfg.lock_functions[2 * range] && address <= cfg.lock_functions[2 * range + 1])
			return 1;
	}
	return 0;
}

/*
 * Returns the address to which the outermost function that takes the lock returns: the kernel's stack, from inside, has
 * the tracepoint's functions, the functions that take locks, and their caller. Returns 0 if the stack shows no caller.
 */
static __always_inline u64 caller_of_lock(void *ctx, struct lock_cpu *locks)
{
	long bytes = bpf_get_stack(ctx, locks->frames, sizeof(locks->frames), 0);
	bool has_lock_function = false;
	u32 frame;

	for (frame = 0; frame < LOCK_FRAMES; frame++) {
		u64 address = locks->frames[frame];

		if (bytes < (long)((frame + 1) * sizeof(address)))
			break;
		if (is_in_lock_function(address))
			has_lock_function = true;
		else if (has_lock_function)
			return address;
	}
	return 0;
}

/* Returns the id of the current task's group in the configured hierarchy; 0 if it is not known. */
static __always_inline u64 id_of_current_cgroup(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct css_set *groups = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *state = 0;
	u64 states;

	if (cfg.cgroup_subsystem < 0)
		return BPF_CORE_READ(groups, dfl_cgrp, kn, id);
	states = (u64)groups + bpf_core_field_offset(struct css_set, subsys);
	states += cfg.cgroup_subsystem * sizeof(state);
	bpf_probe_read_kernel(&state, sizeof(state), (void *)states);
	return state ? BPF_CORE_READ(state, cgroup, kn, id) : 0;
}

static __always_inline u32 slot_of_key(struct lock_key *key)
{
	u64 mixed = key->lock ^ key->place * 0x9e3779b97f4a7c15ULL ^
		    ((u64)key->service << 40) ^ ((u64)key->flags << 56) ^ key->cgroup << 16;

	return (mixed * 0x9e3779b97f4a7c15ULL) >> 48;
}

/* Returns this CPU's row of a key. Counts an event as lost and returns 0 if no row is free. Takes no lock. */
static __noinline struct lock_row *lock_row_of(struct lock_wait *wait)
{
	struct lock_key *key;
	struct lock_row *row;
	u32 first, probe;

	if (!wait)
		return 0;
	key = &wait->key;
	first = slot_of_key(key);
	for (probe = 0; probe < LOCK_PROBES; probe++) {
		u32 slot = (first + probe) % LOCK_ROWS;

		row = bpf_map_lookup_elem(&lock_rows, &slot);
		if (!row)
			return 0;
		/* An interrupt may claim the row for another key in between, or write to it while its key is not complete. */
		if (!row->used && !__sync_val_compare_and_swap(&row->used, 0, 1)) {
			row->key = *key;
			return row;
		}
		if (row->key.lock == key->lock && row->key.place == key->place &&
		    row->key.service == key->service && row->key.flags == key->flags &&
		    row->key.cgroup == key->cgroup)
			return row;
	}
	lose_waits(1);
	return 0;
}

/* Returns 1 + the position of the innermost wait for a lock; 0 if the stack has none. */
static __always_inline u32 position_of_wait(struct lock_waits *waits, u64 lock)
{
	u32 position = 0, entry;

#pragma unroll
	for (entry = 0; entry < LOCK_DEPTH; entry++) {
		if (entry < waits->depth && waits->waits[entry].lock == lock)
			position = entry + 1;
	}
	return position;
}

/* Returns a place on the stack. Opaque to the compiler, which would drop the bound that the verifier needs. */
static __always_inline struct lock_wait *wait_at(struct lock_waits *waits, u64 position)
{
	asm volatile("%0 &= %1" : "+r"(position) : "i"(LOCK_DEPTH - 1));
	return &waits->waits[position];
}

/* Ends the part of a wait in which the kernel either spins or does not. */
static __always_inline void end_phase(struct lock_wait *wait, u64 now_ns)
{
	if (wait->spins && now_ns > wait->phase_ns)
		wait->spun_ns += now_ns - wait->phase_ns;
	wait->phase_ns = now_ns;
}

static __always_inline void start_wait(struct lock_waits *waits, struct lock_cpu *locks, struct service_cpu *cpu,
				       u64 *ctx, u64 now_ns)
{
	u64 lock = ctx[0];
	u32 flags = ctx[1], position = position_of_wait(waits, lock);
	struct lock_wait *wait;

	if (position && flags & LCB_F_MUTEX) {
		/* The wait goes on: it spins and sleeps in turn. If it spins twice in a row, its end was not seen. */
		wait = wait_at(waits, position - 1);
		if (!wait->spins || !(flags & LCB_F_SPIN)) {
			end_phase(wait, now_ns);
			wait->spins = flags & LCB_F_SPIN;
			return;
		}
	}
	if (position) {
		/* The end of an earlier wait was not seen, nor those of the waits inside it. */
		lose_waits(waits->depth - position + 1);
		waits->depth = position - 1;
	}
	if (waits->depth >= LOCK_DEPTH) {
		lose_waits(waits->depth);
		waits->depth = 0;
	}
	wait = wait_at(waits, waits->depth);
	waits->depth++;
	wait->lock = lock;
	wait->start_ns = now_ns;
	wait->phase_ns = now_ns;
	wait->spun_ns = 0;
	wait->spins = flags & LCB_F_SPIN;
	wait->key.lock = lock >= IMAGE_START ? lock : 0;
	wait->key.flags = flags & LCB_F_MUTEX ? LCB_F_MUTEX : flags;
	wait->key.service = service_of(cpu);
	/* The task that an interrupt has interrupted does not wait. */
	wait->key.cgroup = cpu->depth ? 0 : id_of_current_cgroup();
	wait->key.place = caller_of_lock(ctx, locks);
}

/* Counts the wait at a position of a stack, and removes it. */
static __always_inline void end_wait(struct lock_waits *waits, u32 position, s32 result, u64 now_ns)
{
	struct lock_wait *wait = wait_at(waits, position - 1);
	u64 waited_ns = now_ns - wait->start_ns, max_ns;
	struct lock_row *row;
	u32 attempt;

	end_phase(wait, now_ns);
	/* The ends of waits inside this one were not seen. */
	if (waits->depth > position)
		lose_waits(waits->depth - position);
	waits->depth = position - 1;
	row = lock_row_of(wait);
	if (!row)
		return;
	__sync_fetch_and_add(&row->ended, 1);
	if (result)
		__sync_fetch_and_add(&row->interrupted, 1);
	__sync_fetch_and_add(&row->waited_ns, waited_ns);
	__sync_fetch_and_add(&row->spun_ns, wait->spun_ns);
	for (attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		max_ns = *(volatile u64 *)&row->waited_max_ns;
		if (max_ns >= waited_ns ||
		    __sync_val_compare_and_swap(&row->waited_max_ns, max_ns, waited_ns) == max_ns)
			break;
	}
}

/* Whether a CPU that waits for a lock with these flags spins until it has the lock. */
static __always_inline bool spins_to_the_end(u32 flags)
{
	return (flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN;
}

TRACEPOINT("contention_begin") int lock_wait_in(u64 *ctx)
{
	static const struct lock_waits empty;
	struct service_cpu *cpu = armed_cpu();
	struct lock_cpu *locks = this_lock_cpu();
	struct lock_waits *waits;
	u64 now_ns, interrupted, *nested = 0;
	u32 pid;

	if (!cpu || !locks)
		return 0;
	if (locks->active) {
		/* The wait's end is counted by the other program, unless that is the active one. */
		locks->skipped += locks->active == ENDS_WAIT;
		return 0;
	}
	locks->active = STARTS_WAIT;
	barrier();
	now_ns = program_starts(cpu, &interrupted);
	if (spins_to_the_end((u32)ctx[1])) {
		start_wait(&locks->spinning, locks, cpu, ctx, now_ns);
	} else {
		pid = (u32)bpf_get_current_pid_tgid();
		waits = bpf_map_lookup_elem(&lock_tasks, &pid);
		if (!waits) {
			bpf_map_update_elem(&lock_tasks, &pid, &empty, BPF_NOEXIST);
			waits = bpf_map_lookup_elem(&lock_tasks, &pid);
		}
		if (waits)
			start_wait(waits, locks, cpu, ctx, now_ns);
		else
			lose_waits(1);
	}
	if (!interrupted)
		nested = nested_sum(cpu, cpu->depth);
	charge_program(nested, now_ns, program_ends(cpu, interrupted));
	barrier();
	locks->active = 0;
	return 0;
}

TRACEPOINT("contention_end") int lock_wait_out(u64 *ctx)
{
	struct service_cpu *cpu = armed_cpu();
	struct lock_cpu *locks = this_lock_cpu();
	u32 pid = (u32)bpf_get_current_pid_tgid(), position;
	struct lock_waits *waits;
	bool is_of_task = false;
	u64 now_ns = 0, interrupted = 0, *nested = 0;

	if (!locks)
		return 0;
	if (locks->active) {
		locks->skipped += locks->active == STARTS_WAIT;
		return 0;
	}
	locks->active = ENDS_WAIT;
	barrier();
	if (cpu)
		now_ns = program_starts(cpu, &interrupted);
	/* A CPU that spins cannot end a wait that sleeps. The spin lock of a semaphore may have the semaphore's address. */
	waits = &locks->spinning;
	position = position_of_wait(waits, ctx[0]);
	if (!position) {
		waits = bpf_map_lookup_elem(&lock_tasks, &pid);
		position = waits ? position_of_wait(waits, ctx[0]) : 0;
		is_of_task = true;
	}
	if (waits && position && cpu) {
		end_wait(waits, position, (s32)ctx[1], now_ns);
		if (is_of_task && !waits->depth)
			bpf_map_delete_elem(&lock_tasks, &pid);
	} else if (waits && position) {
		/* The window of this CPU is not open. The wait stays on the stack, as not ended. */
		wait_at(waits, position - 1)->lock = 0;
	} else if (cpu) {
		locks->unmatched++;
	}
	if (cpu && !interrupted)
		nested = nested_sum(cpu, cpu->depth);
	if (cpu)
		charge_program(nested, now_ns, program_ends(cpu, interrupted));
	barrier();
	locks->active = 0;
	return 0;
}

#endif
