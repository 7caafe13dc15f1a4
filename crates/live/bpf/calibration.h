/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Programs that measure the probes themselves; never loaded together with a measurement.
 *
 * open_now and close_now both sit on sys_enter, attached in that order: an empty span. Its length
 * is what a pair adds inside its own interval; the slowdown of the system call is everything that a
 * pair adds.
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
 * Empty spans in situ: at the entry of an interrupt handler, with the caches as the interrupt finds
 * them. The second follows the first, which has warmed the caches for it.
 */
#define EMPTY_SPAN(name, tracepoint, key)                                                          \
	TRACEPOINT(tracepoint) int open_##name(u64 *ctx)                                           \
	{                                                                                          \
		enter(key);                                                                        \
		return 0;                                                                          \
	}                                                                                          \
	TRACEPOINT(tracepoint) int close_##name(u64 *ctx)                                          \
	{                                                                                          \
		leave(key);                                                                        \
		return 0;                                                                          \
	}

#define AT_ENTRY(name, tracepoint, key)                                                            \
	EMPTY_SPAN(first_at_##name, tracepoint, key)                                               \
	EMPTY_SPAN(second_at_##name, tracepoint, KEY_SECOND + (key))

#define AT_VECTOR(position, vector) AT_ENTRY(vector, #vector "_entry", KEY_VECTOR + position)

AT_ENTRY(irq, "irq_handler_entry", KEY_IRQ + (u32)ctx[0])
AT_ENTRY(softirq, "softirq_entry", KEY_SOFTIRQ + ((u32)ctx[0] & 15))
VECTORS(AT_VECTOR)

/* The minimum that probes need to time a span: two clock readings, and a place for the first. */
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
 * Drives the stack from user space, for the test that compares it with its model: ctx is the
 * operation (1 enter, 2 exit, 3 a program that has run since the time given in place of the key),
 * key, time in ns. Returns 0, or 1 for an exit without its entry.
 */
SEC("?raw_tp") int drive(u64 *ctx)
{
	u32 key = ctx[1];
	u64 now_ns = ctx[2];
	struct cpu_state *cpu = armed_cpu();
	struct events events = {};
	struct closed_span span;
	struct row *row;

	if (cpu && ctx[0] == 3) {
		struct probe_run run;

		start_probe_run(cpu, &run, ctx[1]);
		if (run.frame)
			charge_probe_run(&run, 0, now_ns);
		return 0;
	}
	if (!cpu || key >= KEYS)
		return 2;
	if (ctx[0] == 1) {
		open_span(cpu, key, now_ns);
		return 0;
	}
	if (!close_span(cpu, key, now_ns, &span, &events))
		return 1;
	row = row_of(cpu, key);
	if (row)
		count_span(cpu, row, &span, now_ns, &events);
	return 0;
}

#endif
