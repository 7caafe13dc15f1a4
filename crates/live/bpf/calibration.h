/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Programs that measure the probes themselves. They are never loaded together with a measurement.
 *
 * start_now and close_now are attached to sys_enter, in that order: an empty span. If links have no
 * cookies, open_now comes before them. The length of the span is the programs' overhead inside
 * their own interval; the slowdown of the system call is their whole overhead. In the hot loop all
 * caches are warm, so a third program closes the span as well as the second would.
 */
#ifndef IRQLAB_CALIBRATION_H
#define IRQLAB_CALIBRATION_H

TRACEPOINT("sys_enter") int open_now(void *ctx)
{
	claim(KEY_BENCH);
	return 0;
}

TRACEPOINTS("sys_enter") int start_now(void *ctx)
{
	open_or_close(ctx, KEY_BENCH);
	return 0;
}

TRACEPOINTS("sys_enter") int close_now(void *ctx)
{
	open_or_close(ctx, KEY_BENCH);
	return 0;
}

/* The programs of a context, at a system call. */
TRACEPOINT("sys_enter") int syscall_in(void *ctx)
{
	claim(KEY_BENCH);
	return 0;
}

TRACEPOINTS("sys_exit") int syscall_out(void *ctx)
{
	open_or_close(ctx, KEY_BENCH);
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
 * Empty spans in situ: at the entry of an interrupt handler, with the caches in the state that the
 * interrupt finds. The second span follows the first, which has warmed the caches for it.
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

/* The minimum that probes need to time a span: two clock readings, and memory for the first. */
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
 * Drives the stack from user space, for the test that compares it with its model. ctx contains
 * the operation, the key and the time in ns. If an IRQ comes during the operation, ctx also
 * contains the IRQ's key, start and end, and the next clock reading. Returns 0, or 1 for an
 * exit without its entry.
 */
#define DRIVE_ENTER 1
#define DRIVE_EXIT 2
#define DRIVE_RAN_SINCE 3 /* a program has run since the time in the key's position */
#define DRIVE_ENTER_INTERRUPTED 4 /* after the clock was read */
#define DRIVE_EXIT_INTERRUPTED 5 /* after the clock was read, before the sums */
#define DRIVE_EXIT_LATE 6 /* after the sums, before the frame is released */

static __always_inline void drive_exit(struct cpu_state *cpu, u32 key, u64 now_ns)
{
	struct events events = {};
	struct closed_span span;
	struct row *row;

	if (!close_span(cpu, key, now_ns, now_ns, &span, &events))
		return;
	row = row_of(cpu, key);
	if (row)
		count_span(cpu, row, &span, &events);
}

/* The IRQ during an operation. Not static, so that the verifier checks it once. */
__noinline int drive_irq(struct cpu_state *cpu, u32 key, u64 start_ns, u64 end_ns)
{
	if (!cpu)
		return 0;
	open_span(cpu, key, start_ns);
	drive_exit(cpu, key, end_ns);
	return 0;
}

SEC("?raw_tp") int drive(u64 *ctx)
{
	u32 key = ctx[1], irq = ctx[3], position;
	u64 now_ns = ctx[2], from_ns = ctx[4], to_ns = ctx[5], again_ns = ctx[6];
	struct cpu_state *cpu = armed_cpu();
	struct events events = {};
	struct closed_span span;
	struct frame *frame;
	struct row *row;

	if (cpu && ctx[0] == DRIVE_RAN_SINCE) {
		struct probe_run run;

		start_probe_run(cpu, &run, ctx[1]);
		if (run.frame)
			charge_probe_run(&run, 0, now_ns);
		return 0;
	}
	if (!cpu)
		return 2;
	if (ctx[0] == DRIVE_ENTER) {
		open_span(cpu, key, now_ns);
		return 0;
	}
	if (ctx[0] == DRIVE_ENTER_INTERRUPTED) {
		frame = claim_frame(cpu, key, &position);
		if (!frame)
			return 0;
		start_span(cpu, frame, position, now_ns);
		drive_irq(cpu, irq, from_ns, to_ns);
		if (was_interrupted(frame))
			start_span(cpu, frame, position, again_ns);
		note_interruption(cpu, position, frame->start_ns);
		return 0;
	}
	if (ctx[0] == DRIVE_EXIT_INTERRUPTED)
		drive_irq(cpu, irq, from_ns, to_ns);
	frame = measure_span(cpu, key, now_ns, again_ns, &span);
	if (!frame)
		return 1;
	if (ctx[0] == DRIVE_EXIT_LATE)
		drive_irq(cpu, irq, from_ns, to_ns);
	release_span(cpu, frame, &span, &events);
	row = row_of(cpu, key);
	if (row)
		count_span(cpu, row, &span, &events);
	return 0;
}

#ifdef IRQLAB_TRACE
/* Writes an event, for the test of the map's limits. ctx: type and key of a span, start, end, two words. */
SEC("?raw_tp") int drive_trace(u64 *ctx)
{
	return write_trace(trace_what(TRACE_SPAN, ctx[0]), ctx[1], ctx[2], ctx[3], ctx[4]);
}
#endif

#ifndef IRQLAB_NO_BTF
/* Ends a delay of a high-resolution timer, for the test of its rows. ctx: function, delay in ns. */
SEC("?raw_tp") int drive_delay(u64 *ctx)
{
	return end_timer_delay(KEY_DELAY_HRTIMER, ctx[0], ctx[1], bpf_ktime_get_ns());
}

/* Drives the notes of victims.h about calls without an event, for their test. ctx: operation, group that wakes, time in ns. */
#define DRIVE_NOTE_WAKEUP 1
#define DRIVE_IS_ONLY_WAKER 2
#define DRIVE_NOTE_IRQ_WORK 3
#define DRIVE_MAY_CONTAIN_IRQ_WORK 4

SEC("?raw_tp") int drive_unseen_calls(u64 *ctx)
{
	u32 target = bpf_get_smp_processor_id();
	struct party waker;

	name_cgroup(&waker, ctx[1]);
	if (ctx[0] == DRIVE_NOTE_WAKEUP)
		return note_wakeup(target, &waker);
	if (ctx[0] == DRIVE_IS_ONLY_WAKER)
		return is_only_waker(target, &waker);
	if (ctx[0] == DRIVE_NOTE_IRQ_WORK)
		return note_irq_work(target, ctx[2]);
	return may_contain_irq_work(ctx[2]);
}
#endif

#endif
