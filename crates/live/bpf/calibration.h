/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Programs that measure the probes themselves; never loaded together with a measurement.
 *
 * open_now and close_now both sit on sys_enter, attached in that order: a span with no work in it.
 * Its length is what a pair adds inside its own interval; what the syscall gets slower by is the
 * whole of what a pair adds.
 */
#ifndef IRQLAB_CALIBRATION_H
#define IRQLAB_CALIBRATION_H

TRACEPOINT("sys_enter") int open_now(void *ctx)
{
	enter(KEY_BENCH);
	return 0;
}

TRACEPOINT("sys_enter") int close_now(void *ctx)
{
	leave(KEY_BENCH);
	return 0;
}

TRACEPOINT("sys_exit") int close_at_exit(void *ctx)
{
	leave(KEY_BENCH);
	return 0;
}

TRACEPOINT("sys_enter") int empty_at_entry(void *ctx)
{
	return 0;
}

TRACEPOINT("sys_exit") int empty_at_exit(void *ctx)
{
	return 0;
}

/*
 * The same zero-work span where it matters: at the entry of an interrupt handler, with the caches as
 * interrupts find them, and no hotter. And again behind it, where the first has warmed them.
 */
#define EMPTY_SPAN(place, tracepoint, key)                                                         \
	TRACEPOINT(tracepoint) int open_##place(u64 *ctx)                                          \
	{                                                                                          \
		enter(key);                                                                        \
		return 0;                                                                          \
	}                                                                                          \
	TRACEPOINT(tracepoint) int close_##place(u64 *ctx)                                         \
	{                                                                                          \
		leave(key);                                                                        \
		return 0;                                                                          \
	}

#define AT_ENTRY(place, tracepoint, key)                                                           \
	EMPTY_SPAN(at_##place, tracepoint, key)                                                    \
	EMPTY_SPAN(again_at_##place, tracepoint, KEY_AGAIN + (key))

#define AT_VECTOR(position, vector) AT_ENTRY(vector, #vector "_entry", KEY_VECTOR + position)

AT_ENTRY(irq, "irq_handler_entry", KEY_IRQ + (u32)ctx[0])
AT_ENTRY(softirq, "softirq_entry", KEY_SOFTIRQ + ((u32)ctx[0] & 15))
VECTORS(AT_VECTOR)

/* The least that probes must do to time a span: two clock readings, and a place for the first. */
TRACEPOINT("sys_enter") int clock_at_entry(void *ctx)
{
	u32 zero = 0;
	struct cpu_state *cpu = bpf_map_lookup_elem(&cpu_states, &zero);

	if (cpu)
		cpu->frames[0].start_ns = bpf_ktime_get_ns();
	return 0;
}

TRACEPOINT("sys_exit") int clock_at_exit(void *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	u32 zero = 0;
	struct cpu_state *cpu = bpf_map_lookup_elem(&cpu_states, &zero);

	if (cpu)
		cpu->frames[0].nested_ns += now_ns - cpu->frames[0].start_ns;
	return 0;
}

/*
 * Feeds the stack from outside, for the test that compares it with its model: ctx is operation
 * (1 enter, 2 exit, 3 a program that ran since the time in place of the key), key, time in ns.
 * Returns 0, or 1 for an exit without its entry.
 */
SEC("?raw_tp") int drive(u64 *ctx)
{
	u32 key = ctx[1];
	u64 now_ns = ctx[2];
	struct cpu_state *cpu = armed_cpu();
	struct events events = {};
	struct ended ended;
	struct row *row;

	if (cpu && ctx[0] == 3) {
		struct own own;

		begin_own(cpu, &own, ctx[1]);
		if (own.frame)
			charge_own(&own, 0, now_ns);
		return 0;
	}
	if (!cpu || key >= KEYS)
		return 2;
	if (ctx[0] == 1) {
		open_span(cpu, key, now_ns);
		return 0;
	}
	if (!close_span(cpu, key, now_ns, &ended, &events))
		return 1;
	row = row_of(cpu, key);
	if (row)
		count_span(cpu, row, &ended, now_ns, &events);
	return 0;
}

#endif
