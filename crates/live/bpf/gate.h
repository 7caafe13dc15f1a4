/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The gate opens and closes the window on one CPU. It runs there with interrupts off (test
 * run of a raw_tp program on a given CPU: net/bpf/test_run.c). It also reads the counters
 * that /proc/interrupts and /proc/softirqs print, so the window's counts can be compared
 * exactly with the kernel's.
 */
#ifndef IRQLAB_GATE_H
#define IRQLAB_GATE_H

#include "kernel_counters.h"

/* The CPUs whose windows are open. The programs of senders (senders.h) look at the window of another CPU. */
struct open_windows {
	u64 words[SENDER_CPU_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct open_windows);
} open_windows SEC(".maps");

static __always_inline struct open_windows *open_windows_of_all(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&open_windows, &zero);
}

/* Notes for other CPUs whether the window of this CPU is open. */
static __always_inline void show_window(bool is_open)
{
	struct open_windows *open = open_windows_of_all();
	u32 cpu = bpf_get_smp_processor_id();
	u64 bit = 1ULL << (cpu & 63), index = cpu >> 6;

	if (!open || index >= SENDER_CPU_WORDS)
		return;
	/* Opaque to the compiler, which would drop the bound that the verifier needs. */
	asm volatile("%0 &= %1" : "+r"(index) : "i"(SENDER_CPU_WORDS - 1));
	if (is_open)
		__sync_fetch_and_or(&open->words[index], bit);
	else
		__sync_fetch_and_and(&open->words[index], ~bit);
}

static __always_inline void close_window(struct cpu_state *cpu)
{
	show_window(false);
	cpu->disarmed_ns = bpf_ktime_get_ns();
#ifdef IRQLAB_TRACE
	end_trace(cpu->disarmed_ns);
#endif
	cpu->armed = 0;
	read_kernel_counters(cpu->kernel_disarmed);
}

SEC("raw_tp") int gate(u64 *ctx)
{
	u32 zero = 0;
	struct cpu_state *cpu = bpf_map_lookup_elem(&cpu_states, &zero);

	if (!cpu)
		return 1;
	if (ctx[0] == GATE_OPEN) {
		cpu->depth = 0;
		read_kernel_counters(cpu->kernel_armed);
		cpu->armed_ns = bpf_ktime_get_ns();
#ifdef IRQLAB_TRACE
		start_trace(cpu->armed_ns);
#endif
		cpu->armed = cfg.set;
		show_window(true);
	} else if (cpu->armed == cfg.set) {
		close_window(cpu);
	}
	return 0;
}

/*
 * Closes the window of a CPU that leaves. The kernel tears a CPU down in steps, and a thread
 * on that CPU runs the first steps (kernel/cpu.c, cpuhp_thread_fun). No program can run on
 * the CPU later, because tracepoints are silent once the CPU is no longer in the mask of
 * online CPUs. Steps of a teardown lead to a lower state than their own; steps that a driver
 * adds or removes later do not.
 *
 * Interrupts are on here, so one may come between `armed` and the counters.
 */
SEC("?raw_tp/cpuhp_enter") int cpu_leaves(u64 *ctx)
{
	u32 leaving = ctx[0];
	s32 target = ctx[1], state = ctx[2];
	struct cpu_state *cpu = armed_cpu();

	if (!cpu || leaving != bpf_get_smp_processor_id() || target >= state)
		return 0;
	close_window(cpu);
	cpu->went_offline = 1;
	return 0;
}

#endif
