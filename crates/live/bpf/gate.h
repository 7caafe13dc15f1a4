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

static __always_inline void close_window(struct cpu_state *cpu)
{
	cpu->disarmed_ns = bpf_ktime_get_ns();
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
		cpu->armed = cfg.set;
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
