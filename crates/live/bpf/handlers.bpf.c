/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Probes at the entry and exit of every interrupt context with tracepoints.
 *
 * Compiled four times: as tp_btf programs; with IRQLAB_VICTIMS as tp_btf programs that also sum times by victim and
 * cause (victims.h); with IRQLAB_TRACE as tp_btf programs that also keep single events (trace.h); and with IRQLAB_NO_BTF as raw_tp programs for a kernel without type information, in which names of
 * actions and NAPI devices cannot be read.
 *
 * Every program is optional ("?"): the loader selects the programs whose tracepoints the kernel
 * has.
 */
#include "kernel.h"
#include "shared.h"

const volatile struct config cfg SEC(".rodata.config") = {};

#include "span_stack.h"
#include "gate.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#ifdef IRQLAB_NO_BTF
#define TRACEPOINT(name) SEC("?raw_tp/" name)
#else
#define TRACEPOINT(name) SEC("?tp_btf/" name)
#endif

/* A program that may be attached to several tracepoints. A typed program belongs to one. */
#define TRACEPOINTS(name) SEC("?raw_tp/" name)

/*
 * One program is attached to both tracepoints of a context. Its return and its next call lie
 * inside the span, and find in the caches what the entry has used. A program of the exit alone
 * would find caches that have cooled since the last interrupt, and would take longer than short
 * handlers do.
 *
 * The program knows its tracepoint by the link's cookie. Before Linux 6.10 there are no
 * cookies. Instead, a first program at the entry claims a frame of the stack. The program of
 * both tracepoints then opens the span of a frame that was just claimed, and closes a span if
 * there is no such frame.
 */
static __always_inline bool is_entry(void *ctx)
{
	return cfg.cookies && bpf_get_attach_cookie(ctx) == COOKIE_ENTRY;
}

static __always_inline void enter(u32 key)
{
	struct cpu_state *cpu = armed_cpu();

	if (cpu)
		open_span(cpu, key, 0);
}

static __always_inline void claim(u32 key)
{
	struct cpu_state *cpu = armed_cpu();
	u32 position;

	if (cpu)
		claim_frame(cpu, key, &position);
}

static __always_inline void leave(u32 key)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct closed_span span;
	struct row *row;

	if (!cpu || (!cfg.cookies && open_what_is_claimed(cpu, key, now_ns)))
		return;
	read_events_at_exit(cpu->depth, &events);
	if (!close_span(cpu, key, now_ns, 0, &span, &events))
		return;
	row = row_of(cpu, key);
	if (row)
		count_span(cpu, row, &span, &events);
	end_exit_probe(cpu, row, &span, &events);
}

static __always_inline void open_or_close(void *ctx, u32 key)
{
	if (is_entry(ctx))
		enter(key);
	else
		leave(key);
}

#define VECTOR(position, vector)                                                                   \
	TRACEPOINT(#vector "_entry") int vector##_in(void *ctx)                                    \
	{                                                                                          \
		claim(KEY_VECTOR + position);                                                      \
		return 0;                                                                          \
	}                                                                                          \
	TRACEPOINTS(#vector "_exit") int vector##_out(void *ctx)                                   \
	{                                                                                          \
		open_or_close(ctx, KEY_VECTOR + position);                                         \
		return 0;                                                                          \
	}

VECTORS(VECTOR)

TRACEPOINT("softirq_entry") int softirq_in(u64 *ctx)
{
	claim(KEY_SOFTIRQ + ((u32)ctx[0] & 15));
	return 0;
}

TRACEPOINTS("softirq_exit") int softirq_out(u64 *ctx)
{
	open_or_close(ctx, KEY_SOFTIRQ + ((u32)ctx[0] & 15));
	return 0;
}

TRACEPOINT("irq_handler_entry") int irq_handler_in(u64 *ctx)
{
	claim(KEY_IRQ + (u32)ctx[0]);
	return 0;
}

static __always_inline int leave_irq(u64 *ctx, u32 key)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct closed_span span;
	struct row *row;
	u64 handled = 1;

	if (!cpu || (!cfg.cookies && open_what_is_claimed(cpu, key, now_ns)))
		return 0;
	read_events_at_exit(cpu->depth, &events);
	if (!close_span(cpu, key, now_ns, 0, &span, &events))
		return 0;
	row = row_of_action(cpu, key, ctx[1]);
	if (row) {
		count_span(cpu, row, &span, &events);
		/*
		 * The entry has no third argument, so the verifier allows no program of both to
		 * load it.
		 */
		bpf_probe_read_kernel(&handled, sizeof(handled), ctx + 2);
		if (!handled) /* IRQ_NONE: another action's device on this line interrupted */
			row->special++;
	}
	end_exit_probe(cpu, row, &span, &events);
	return 0;
}

TRACEPOINTS("irq_handler_exit") int irq_handler_out(u64 *ctx)
{
	u32 key = KEY_IRQ + (u32)ctx[0];

	if (!is_entry(ctx))
		return leave_irq(ctx, key);
	enter(key);
	return 0;
}

/* There is no entry event, so a poll counts once, with the number of its packets. */
TRACEPOINT("napi_poll") int napi_polled(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	u32 packets = ctx[1], budget = ctx[2];
	struct events events;
	struct row *row;
	struct probe_run run;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	row = row_of_napi(cpu, ctx[0]);
	if (row) {
		add_value(row, packets, now_ns, cpu->armed_ns);
		count_in_histogram(row, packets);
		/* netpoll, for instance of netconsole, polls with a budget of 0: nothing is used up. */
		if (budget && packets >= budget)
			row->special++;
	}
#ifndef IRQLAB_NO_BTF
	if (SUMS_VICTIMS)
		note_packets(cpu, packets);
#endif
	end_probe_run(cpu, &run, &events);
	return 0;
}

/* The kernel times each NMI handler and passes its duration. */
TRACEPOINT("nmi_handler") int nmi_handled(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	u64 spent_ns = ctx[1];
	struct events events;
	struct row *row;
	struct probe_run run;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	row = row_of(cpu, KEY_NMI);
	if ((s64)spent_ns < 0)
		spent_ns = 0;
	if (row) {
		add_value(row, spent_ns, now_ns, cpu->armed_ns);
		count_in_histogram(row, spent_ns);
#ifdef IRQLAB_TRACE
		write_trace(trace_what(TRACE_SPAN, KEY_NMI), now_ns - spent_ns, now_ns, spent_ns, 0);
#endif
	}
	end_probe_run(cpu, &run, &events);
	return 0;
}

static __always_inline int count_only(u32 key)
{
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct row *row;
	struct probe_run run;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, 0);
	if (run.frame) {
		run.since_ns = bpf_ktime_get_ns();
		read_events_at_exit(cpu->depth, &events);
	}
	row = row_of(cpu, key);
	if (row)
		row->count++;
	end_probe_run(cpu, &run, &events);
	return 0;
}

TRACEPOINT("page_fault_user") int page_fault_of_user(void *ctx)
{
	return count_only(KEY_FAULT_USER);
}

TRACEPOINT("page_fault_kernel") int page_fault_of_kernel(void *ctx)
{
	return count_only(KEY_FAULT_KERNEL);
}

#ifndef IRQLAB_NO_BTF
/*
 * Threads of IRQ lines, by their runs between two switches. A switch comes with interrupts off,
 * outside of hard IRQs. A run continues while a softirq is open that started in it. If softirqs can
 * be preempted, the switch lies in the softirq's span.
 */

/*
 * Returns the key of an IRQ line's thread, irq/NUMBER-ACTION (kernel/irq/manage.c), and
 * KEY_NONE for all other tasks.
 */
static __always_inline u32 key_of_thread(struct task_struct *task)
{
	if (task->comm[0] != 'i' || task->comm[1] != 'r' || task->comm[2] != 'q' ||
	    task->comm[3] != '/' || !(task->flags & PF_KTHREAD))
		return KEY_NONE;
	return KEY_IRQ_THREAD + task->pid;
}

static __noinline bool is_open(struct cpu_state *cpu, u32 key)
{
	u32 position;

	if (!cpu)
		return false;
	for (position = 0; position < DEPTH_MAX; position++) {
		if (position >= cpu->depth)
			break;
		if (cpu->frames[position].key == key)
			return true;
	}
	return false;
}

static __always_inline void leave_thread(u32 key, struct task_struct *thread)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct closed_span span;
	struct frame *frame;
	struct row *row;

	if (!cpu)
		return;
	frame = innermost(cpu);
	if (!frame || frame->key != key) {
		if (!is_open(cpu, key))
			cpu->unmatched_exits++;
		return;
	}
	read_events_at_exit(cpu->depth, &events);
	if (!close_span(cpu, key, now_ns, 0, &span, &events))
		return;
	row = row_of(cpu, key);
	if (row) {
		if (!row->name[0])
			bpf_probe_read_kernel_str(row->name, sizeof(thread->comm), &thread->comm);
		count_span(cpu, row, &span, &events);
	}
	end_exit_probe(cpu, row, &span, &events);
}

TRACEPOINT("sched_switch") int switched(u64 *ctx)
{
	struct task_struct *from = (void *)ctx[1], *to = (void *)ctx[2];
	struct cpu_state *cpu;
	u32 key = key_of_thread(from);

	if (key)
		leave_thread(key, from);
#ifdef IRQLAB_TRACE
	trace_switch(from);
#endif
	key = key_of_thread(to);
	cpu = key ? armed_cpu() : 0;
	if (cpu && !is_open(cpu, key))
		open_span(cpu, key, 0);
	return 0;
}
#endif

#include "callbacks.h"
#include "delays.h"
#include "irq_thread_delays.h"
#include "timer_delays.h"
#include "senders.h"
#include "causes.h"
#include "calibration.h"
