/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Marks for the noise experiment: one record at each entry and exit of an interrupt context, at each
 * switch of tasks and at each page fault of the loop, on the CPUs where a loop runs. No sums are
 * made here: a mark is the time and a number, and what it means for a gap is found out afterwards.
 *
 * The clock is read after the record has its place. Softirq probes run with interrupts on: marks of
 * a hard IRQ may come between the two, so a reader orders the marks of a CPU by their time.
 */
#include "kernel.h"
#include "noise.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The ___ and what follows are not part of the name for CO-RE. */
struct task_struct___of_noise {
	int pid;
	int tgid;
	char comm[NOISE_NAME_BYTES];
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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

static __always_inline struct noise_cpu *loop_here(u32 cpu)
{
	struct noise_cpu *here = bpf_map_lookup_elem(&loops, &cpu);

	return here && here->thread ? here : 0;
}

static __always_inline void *place_of(u32 bytes)
{
	void *place = bpf_ringbuf_reserve(&marks, bytes, 0);
	u32 zero = 0;
	u64 *count;

	if (place)
		return place;
	count = bpf_map_lookup_elem(&lost, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

/* The reader comes by on its own: a wake-up from here would be noise. */
static __always_inline int mark(u32 what, u32 key, u64 value)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct noise_mark *place;

	if (!loop_here(cpu))
		return 0;
	place = place_of(sizeof(*place));
	if (!place)
		return 0;
	place->cpu = cpu;
	place->what = what;
	place->key = key;
	place->value = value;
	place->at_ns = bpf_ktime_get_ns();
	bpf_ringbuf_submit(place, BPF_RB_NO_WAKEUP);
	return 0;
}

#define TRACEPOINT(name) SEC("?tp_btf/" name)

#define VECTOR(position, vector)                                                                   \
	TRACEPOINT(#vector "_entry") int vector##_in(void *ctx)                                    \
	{                                                                                          \
		return mark(NOISE_ENTER, NOISE_KEY_VECTOR + position, 0);                          \
	}                                                                                          \
	TRACEPOINT(#vector "_exit") int vector##_out(void *ctx)                                    \
	{                                                                                          \
		return mark(NOISE_LEAVE, NOISE_KEY_VECTOR + position, 0);                          \
	}

/* The order of attribution::VECTORS. */
VECTOR(0, local_timer)
VECTOR(1, reschedule)
VECTOR(2, call_function)
VECTOR(3, call_function_single)
VECTOR(4, irq_work)
VECTOR(5, x86_platform_ipi)
VECTOR(6, error_apic)
VECTOR(7, spurious_apic)
VECTOR(8, thermal_apic)
VECTOR(9, threshold_apic)
VECTOR(10, deferred_error_apic)

TRACEPOINT("softirq_entry") int softirq_in(u64 *ctx)
{
	return mark(NOISE_ENTER, NOISE_KEY_SOFTIRQ + ((u32)ctx[0] & 15), 0);
}

TRACEPOINT("softirq_exit") int softirq_out(u64 *ctx)
{
	return mark(NOISE_LEAVE, NOISE_KEY_SOFTIRQ + ((u32)ctx[0] & 15), 0);
}

TRACEPOINT("irq_handler_entry") int irq_handler_in(u64 *ctx)
{
	return mark(NOISE_ENTER, NOISE_KEY_IRQ + (u32)ctx[0], 0);
}

TRACEPOINT("irq_handler_exit") int irq_handler_out(u64 *ctx)
{
	return mark(NOISE_LEAVE, NOISE_KEY_IRQ + (u32)ctx[0], 0);
}

/* The kernel itself times each NMI handler and passes the result. */
TRACEPOINT("nmi_handler") int nmi_handled(u64 *ctx)
{
	return mark(NOISE_NMI, NOISE_KEY_NMI, ctx[1]);
}

static __always_inline int fault(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct noise_cpu *here = loop_here(cpu);

	if (!here || (u32)bpf_get_current_pid_tgid() != here->thread)
		return 0;
	return mark(NOISE_FAULT, 0, 0);
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
	struct task_struct___of_noise *next = (void *)ctx[2];
	u32 cpu = bpf_get_smp_processor_id();
	struct noise_cpu *here = loop_here(cpu);
	struct noise_switch *place;
	u32 pid;

	if (!here)
		return 0;
	pid = BPF_CORE_READ(next, pid);
	if (pid == here->thread)
		return mark(NOISE_SWITCH_BACK, 0, 0);
	place = place_of(sizeof(*place));
	if (!place)
		return 0;
	place->mark.cpu = cpu;
	place->mark.what = NOISE_SWITCH_TO;
	place->mark.key = pid;
	place->mark.value = BPF_CORE_READ(next, tgid);
	bpf_core_read(&place->name, sizeof(place->name), &next->comm);
	place->mark.at_ns = bpf_ktime_get_ns();
	bpf_ringbuf_submit(place, BPF_RB_NO_WAKEUP);
	return 0;
}
