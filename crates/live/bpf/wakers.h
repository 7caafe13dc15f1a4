/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Chains of wakers: who woke a task, who woke that waker, and so on. Each wake-up of a task copies the chain of the task
 * that wakes it, so the chain is that of the time of the wake-up, whatever its tasks do later.
 *
 * An interrupt ends a chain. A softirq ends it, too, unless it runs in a thread whose work is softirqs: elsewhere, no event
 * shows whether the running task has raised the softirq or was interrupted for it.
 */
#ifndef IRQLAB_WAKERS_H
#define IRQLAB_WAKERS_H

#include "interrupt_state.h"

/* include/linux/sched.h */
#define TASK_WAKING 0x0200

/* Deepest nesting of contexts that is followed. A power of two. */
#define CONTEXTS_MAX 8

struct waker_chain {
	u64 count; /* number of steps; 0 for a task that sleeps */
	struct waker steps[WAKERS_MAX]; /* the latest first */
};

/* The chains of woken tasks, by the task. The map drops the task that has not been woken for the longest time. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* the loader sets it */
	__type(key, u32);
	__type(value, struct waker_chain);
} wakings SEC(".maps");

/* The open contexts of a CPU, the innermost last. */
struct open_contexts {
	u32 depth;
	u32 keys[CONTEXTS_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct open_contexts);
} contexts SEC(".maps");

struct task_struct___of_wakers {
	int pid;
	unsigned int __state; /* Linux 5.14 */
} RELOCATED;

struct task_struct___before_5_14 {
	long state;
} RELOCATED;

/* Kernels with PREEMPT_RT do not count softirqs in the CPU's preemption count, but in each task. */
struct task_struct___of_rt {
	int softirq_disable_cnt;
} RELOCATED;

static __always_inline struct open_contexts *contexts_here(void)
{
	u32 zero = 0;

	return cfg.follows_wakers || cfg.follows_senders ? bpf_map_lookup_elem(&contexts, &zero) : 0;
}

static __always_inline void note_entry(u32 key)
{
	struct open_contexts *here = contexts_here();
	u32 depth;

	if (!here)
		return;
	depth = here->depth;
	if (depth >= CONTEXTS_MAX)
		return;
	here->keys[depth & (CONTEXTS_MAX - 1)] = key;
	here->depth = depth + 1;
}

/* Also ends the contexts within this one, whose exits did not come. */
static __always_inline void note_exit(u32 key)
{
	struct open_contexts *here = contexts_here();
	u32 place;

	if (!here)
		return;
	for (place = 0; place < CONTEXTS_MAX; place++) {
		if (place >= here->depth)
			break;
		if (here->keys[place] == key) {
			here->depth = place;
			break;
		}
	}
}

static __always_inline u32 state_of(struct task_struct___of_wakers *task)
{
	struct task_struct___before_5_14 *before = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state);
	return (u32)BPF_CORE_READ(before, state);
}

/*
 * A task switch ends all contexts. On PREEMPT_RT, it may interrupt a softirq, which then counts for its thread.
 *
 * A task that goes to sleep has no waker any more: if no program sees its next wake-up, its chain must not be the last one.
 * A task that is woken before this event has its new chain already.
 */
static __always_inline void note_switch(struct task_struct___of_wakers *previous, bool preempted)
{
	struct open_contexts *here = contexts_here();
	u32 state, pid;
	struct waker_chain *chain;

	if (!here)
		return;
	here->depth = 0;
	if (!cfg.follows_wakers)
		return;
	state = state_of(previous);
	if (preempted || !state || state & TASK_WAKING)
		return;
	pid = BPF_CORE_READ(previous, pid);
	chain = bpf_map_lookup_elem(&wakings, &pid);
	if (chain)
		chain->count = 0;
}

/*
 * The key of the interrupt or softirq that this CPU handles now; KEY_NONE in a task; SENDER_UNKNOWN if the kernel does not
 * say. The kernel's own count says which of the three it is: interrupts without an event exist.
 */
static __always_inline u32 context_now(void)
{
	struct task_struct___of_rt *task = (void *)bpf_get_current_task();
	struct open_contexts *here = contexts_here();
	u32 innermost = KEY_NONE, count = 0, depth;
	u64 area = percpu_area();

	if (!area || !here ||
	    bpf_probe_read_kernel(&count, sizeof(count),
				  (void *)(area + cfg.percpu_offsets[OFFSET_PREEMPT])))
		return SENDER_UNKNOWN;
	depth = here->depth;
	if (depth)
		innermost = here->keys[(depth - 1) & (CONTEXTS_MAX - 1)];
	if (count & (PREEMPT_HARDIRQ | PREEMPT_NMI))
		return is_hardirq_key(innermost) && !(count & PREEMPT_NMI) ? innermost : SENDER_HARDIRQ;
	if (bpf_core_field_exists(task->softirq_disable_cnt))
		return is_softirq_key(innermost) ? innermost : KEY_NONE;
	if (!(count & PREEMPT_SOFTIRQ))
		return KEY_NONE;
	return is_softirq_key(innermost) ? innermost : SENDER_SOFTIRQ;
}

/* Whether a name starts with a literal text. A macro, because the loop has a constant length only here. */
#define STARTS_WITH(name, start)                                                                   \
	({                                                                                         \
		bool is_equal = true;                                                              \
		u32 place;                                                                         \
		for (place = 0; place < sizeof(start) - 1; place++)                                \
			if ((name)[place] != (start)[place])                                       \
				is_equal = false;                                                  \
		is_equal;                                                                          \
	})

/* Whether the running task is a kernel thread that executes softirqs as its own work, after a wake-up of its own. */
static __always_inline bool is_softirq_thread(const char *name)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, flags) & PF_KTHREAD &&
	       (STARTS_WITH(name, "ksoftirqd/") || STARTS_WITH(name, "ktimers/") ||
		STARTS_WITH(name, "irq/"));
}

/* The chain of the wake-up that happens now. It stays empty if the kernel does not say what runs. */
static __always_inline void find_wakers(struct waker_chain *chain, u64 at_ns)
{
	struct waker *waker = &chain->steps[0];
	struct waker_chain *earlier;
	u32 step;

	waker->key = context_now();
	if (waker->key == SENDER_UNKNOWN)
		return;
	waker->at_ns = at_ns;
	waker->pid = (u32)bpf_get_current_pid_tgid();
	waker->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(waker->name, sizeof(waker->name));
	chain->count = 1;
	if (waker->key != KEY_NONE && !(is_softirq_key(waker->key) && is_softirq_thread(waker->name)))
		return;
	earlier = bpf_map_lookup_elem(&wakings, &waker->pid);
	if (!earlier)
		return;
	for (step = 0; step < WAKERS_MAX - 1; step++)
		chain->steps[step + 1] = earlier->steps[step];
	chain->count = earlier->count < WAKERS_MAX ? earlier->count + 1 : WAKERS_MAX;
}

#endif
