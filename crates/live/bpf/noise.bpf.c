/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Marks for the experiments that need each event: one record at each entry and exit of an interrupt
 * context, at each task switch and at each page fault of the loop, on the CPUs with a loop. The
 * programs compute no sums. A mark is a time and a number, which user space interprets.
 *
 * Each program reads the clock first: the time until the reading is an error of every part of a gap
 * or a wake-up that the mark starts or ends. Softirq probes run with interrupts on. Marks of a hard
 * IRQ may therefore come between the reading and the record, so the reader sorts the marks of a CPU by
 * time.
 */
#include "kernel.h"
#include "noise.h"

const volatile struct noise_config cfg SEC(".rodata.config") = {};

#include "kernel_counters.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/*
 * Keeps the types of the records in the BTF, because the build script generates their Rust types from there.
 */
const struct noise_switch *switch_record __attribute__((unused));
const struct noise_waker *waker_record __attribute__((unused));
const struct noise_sender_record *sender_record __attribute__((unused));

/* CO-RE ignores ___ and the rest of the name. */
struct task_struct___of_noise {
	int pid;
	int tgid;
	char comm[TASK_NAME_BYTES];
} RELOCATED;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* the loader sets it */
} marks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets it to the possible CPUs */
	__type(key, u32);
	__type(value, struct noise_cpu);
} loops SEC(".maps");

/* The measured threads that sleep, with their CPUs. Wake-ups come from any CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* the loader sets it to the possible CPUs */
	__type(key, u32);
	__type(value, u32);
} sleepers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

#include "wakers.h"

static __always_inline struct noise_cpu *loop_here(u32 cpu)
{
	struct noise_cpu *here = bpf_map_lookup_elem(&loops, &cpu);

	return here && here->thread ? here : 0;
}

static __always_inline void *reserve(u32 bytes)
{
	void *record = bpf_ringbuf_reserve(&marks, bytes, 0);
	u32 zero = 0;
	u64 *count;

	if (record)
		return record;
	count = bpf_map_lookup_elem(&lost, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

/* Does not wake the reader, which polls: a wake-up would be noise. */
static __always_inline int mark_of(u64 at_ns, u32 cpu, u32 what, u32 key, u64 value)
{
	struct noise_mark *record = reserve(sizeof(*record));

	if (!record)
		return 0;
	record->cpu = cpu;
	record->what = what;
	record->key = key;
	record->value = value;
	record->at_ns = at_ns;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int mark(u32 what, u32 key, u64 value)
{
	u64 at_ns = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	return loop_here(cpu) ? mark_of(at_ns, cpu, what, key, value) : 0;
}

static __always_inline int enter(u32 key)
{
	mark(MARK_ENTER, key, 0);
	note_entry(key);
	return 0;
}

static __always_inline int leave(u32 key)
{
	mark(MARK_LEAVE, key, 0);
	note_exit(key);
	return 0;
}

#define TRACEPOINT(name) SEC("?tp_btf/" name)

#include "noise_senders.h"

#define VECTOR(position, vector)                                                                   \
	TRACEPOINT(#vector "_entry") int vector##_in(void *ctx)                                    \
	{                                                                                          \
		return enter_vector(KEY_VECTOR + position);                                        \
	}                                                                                          \
	TRACEPOINT(#vector "_exit") int vector##_out(void *ctx)                                    \
	{                                                                                          \
		return leave_vector(KEY_VECTOR + position);                                        \
	}

VECTORS(VECTOR)

TRACEPOINT("softirq_entry") int softirq_in(u64 *ctx)
{
	return enter(KEY_SOFTIRQ + ((u32)ctx[0] & 15));
}

TRACEPOINT("softirq_exit") int softirq_out(u64 *ctx)
{
	return leave(KEY_SOFTIRQ + ((u32)ctx[0] & 15));
}

TRACEPOINT("irq_handler_entry") int irq_handler_in(u64 *ctx)
{
	return enter(KEY_IRQ + (u32)ctx[0]);
}

TRACEPOINT("irq_handler_exit") int irq_handler_out(u64 *ctx)
{
	return leave(KEY_IRQ + (u32)ctx[0]);
}

/* The kernel times each NMI handler and passes its duration. */
TRACEPOINT("nmi_handler") int nmi_handled(u64 *ctx)
{
	return mark(MARK_NMI, KEY_NMI, ctx[1]);
}

static __always_inline int fault(void)
{
	u64 at_ns = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	struct noise_cpu *here = loop_here(cpu);

	if (!here || (u32)bpf_get_current_pid_tgid() != here->thread)
		return 0;
	return mark_of(at_ns, cpu, MARK_FAULT, 0, 0);
}

TRACEPOINT("page_fault_user") int page_fault_of_user(void *ctx)
{
	return fault();
}

TRACEPOINT("page_fault_kernel") int page_fault_of_kernel(void *ctx)
{
	return fault();
}

TRACEPOINT("sched_switch") int switched(u64 *ctx)
{
	u64 at_ns = bpf_ktime_get_ns();
	struct task_struct___of_noise *next = (void *)ctx[2];
	u32 cpu = bpf_get_smp_processor_id();
	struct noise_cpu *here = loop_here(cpu);
	struct noise_switch *record;
	u32 pid;

	note_switch((void *)ctx[1], (bool)ctx[0]);
	if (!here)
		return 0;
	pid = BPF_CORE_READ(next, pid);
	if (pid == here->thread)
		return mark_of(at_ns, cpu, MARK_SWITCH_BACK, 0, 0);
	record = reserve(sizeof(*record));
	if (!record)
		return 0;
	record->mark.cpu = cpu;
	record->mark.what = MARK_SWITCH_TO;
	record->mark.key = pid;
	record->mark.value = BPF_CORE_READ(next, tgid);
	bpf_core_read(&record->name, sizeof(record->name), &next->comm);
	record->mark.at_ns = at_ns;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/*
 * One record for each step of a chain, each with the time of the thread's own wake-up: it shows which steps belong
 * together. The first step is this wake-up.
 */
static __always_inline void mark_wakers(u32 cpu, struct waker_chain *chain)
{
	struct noise_waker *record;
	u32 step;

	for (step = 0; step < WAKERS_MAX; step++) {
		if (step >= chain->count)
			break;
		record = reserve(sizeof(*record));
		if (!record)
			break;
		record->waker = chain->steps[step];
		record->mark.at_ns = chain->steps[0].at_ns;
		record->mark.cpu = cpu;
		record->mark.what = MARK_WAKER;
		record->mark.key = record->waker.key;
		record->mark.value = step;
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
}

/*
 * Called at the wake-up of any task. The chain of a measured thread goes to user space, and that of another task into the
 * map: the task may wake a measured thread later.
 */
static __always_inline int woken(struct task_struct___of_noise *task)
{
	u64 at_ns = bpf_ktime_get_ns();
	u32 thread = BPF_CORE_READ(task, pid);
	u32 *cpu = bpf_map_lookup_elem(&sleepers, &thread);
	struct waker_chain chain = {};

	if (cpu)
		mark_of(at_ns, *cpu, MARK_WAKE, (u32)bpf_get_current_pid_tgid(),
			bpf_get_smp_processor_id());
	if (!cfg.follows_wakers)
		return 0;
	find_wakers(&chain, at_ns);
	if (cpu)
		mark_wakers(*cpu, &chain);
	else
		bpf_map_update_elem(&wakings, &thread, &chain, BPF_ANY);
	return 0;
}

TRACEPOINT("sched_waking") int waking(u64 *ctx)
{
	return woken((void *)ctx[0]);
}

/* A new task's first wake-up. Its creator wakes it. It replaces the entry of an earlier task with this number. */
TRACEPOINT("sched_wakeup_new") int waking_new(u64 *ctx)
{
	return woken((void *)ctx[0]);
}
