/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Senders of inter-processor interrupts (IPIs): which task or interrupt asks another CPU to call a function, or sends
 * it an interrupt, from which place in the kernel, and what the function costs on the CPU that calls it.
 *
 * sent_calls.h joins each call to its run.
 *
 * All programs have small frames, because they run in the middle of the kernel's own work.
 */
#ifndef IRQLAB_SENDERS_H
#define IRQLAB_SENDERS_H

#ifndef IRQLAB_NO_BTF

#include "interrupt_state.h"
#include "sent_calls.h"

/* How many of the innermost spans are searched for the interrupt that sends. */
#define SENDER_SPANS_MAX 4

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SENDER_ROWS_MAX);
	__type(key, struct sender_key);
	__type(value, struct sender_row);
} sender_rows SEC(".maps");

/* The function that this CPU calls. Functions of csds are called with interrupts off, so there is only one. */
struct running_call {
	u64 csd; /* 0: none */
	u64 function;
	u64 entered_ns; /* first clock reading of the program at the entry */
	u64 start_ns; /* its last clock reading */
	u64 queued_ns; /* 0: the run is not joined */
	u64 probes_ns; /* time of programs in the span around the run, when it started */
	u64 last_wakeup_ns; /* when the last function that wakes queued tasks started */
	struct sender_key sender;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct running_call);
} running_calls SEC(".maps");

static const struct sender_row NO_SENDER_ROW = {};

/* The row of a sender. If all rows are in use, its kind of event has a row for all further senders. */
static __noinline struct sender_row *sender_row_of(struct sender_key *key)
{
	struct sender_key others = { .context = SENDER_OTHERS };
	struct sender_row *row;

	if (!key)
		return 0;
	row = bpf_map_lookup_elem(&sender_rows, key);
	if (row)
		return row;
	bpf_map_update_elem(&sender_rows, key, &NO_SENDER_ROW, BPF_NOEXIST);
	row = bpf_map_lookup_elem(&sender_rows, key);
	if (row)
		return row;
	others.event = key->event;
	return bpf_map_lookup_elem(&sender_rows, &others);
}

static __always_inline void add_atomically(u64 *sum, u64 value)
{
	__sync_fetch_and_add(sum, value);
}

/* Raises a maximum that several CPUs raise. */
static __always_inline void raise_atomically(u64 *max, u64 value)
{
	u32 attempt;
	u64 seen;

	for (attempt = 0; attempt < 8; attempt++) {
		seen = *(volatile u64 *)max;
		if (value <= seen || __sync_val_compare_and_swap(max, seen, value) == seen)
			break;
	}
}

static __always_inline void note_cpu(u64 *words, u32 cpu)
{
	u64 bit = 1ULL << (cpu & 63), index = cpu >> 6;

	/* Opaque to the compiler, which would drop the bound that the verifier needs. */
	asm volatile("%0 &= %1" : "+r"(index) : "i"(SENDER_CPU_WORDS - 1));
	if (!(words[index] & bit))
		__sync_fetch_and_or(&words[index], bit);
}

static __always_inline bool is_window_open(u32 cpu)
{
	struct open_windows *open = open_windows_of_all();
	u64 index = cpu >> 6;

	if (!open || index >= SENDER_CPU_WORDS)
		return false;
	asm volatile("%0 &= %1" : "+r"(index) : "i"(SENDER_CPU_WORDS - 1));
	return open->words[index] >> (cpu & 63) & 1;
}

/*
 * The key of the interrupt or softirq that this CPU handles now; KEY_NONE in a task. The kernel's own count says which
 * of the three it is. The span stack says which interrupt it is, if its entry came to a program.
 */
static __noinline u32 interrupt_that_sends(struct cpu_state *cpu)
{
	u64 area = percpu_area();
	bool is_hardirq, is_softirq;
	u32 count = 0, step, depth, key;

	if (!area || bpf_probe_read_kernel(&count, sizeof(count),
					   (void *)(area + cfg.percpu_offsets[OFFSET_PREEMPT])))
		return SENDER_UNKNOWN;
	is_hardirq = count & (PREEMPT_HARDIRQ | PREEMPT_NMI);
	is_softirq = count & PREEMPT_SOFTIRQ;
	if (!is_hardirq && !is_softirq)
		return KEY_NONE;
	depth = cpu ? cpu->depth : 0;
	for (step = 1; step <= SENDER_SPANS_MAX; step++) {
		if (!cpu || step > depth || count & PREEMPT_NMI)
			break;
		key = cpu->frames[(depth - step) & (DEPTH_MAX - 1)].key;
		/* A softirq around this interrupt, whose own entry did not come to a program, is not the sender. */
		if (is_softirq_key(key))
			return is_hardirq ? SENDER_HARDIRQ : key;
		if (is_hardirq_key(key))
			return is_hardirq ? key : SENDER_SOFTIRQ;
	}
	return is_hardirq ? SENDER_HARDIRQ : SENDER_SOFTIRQ;
}

/* The sender as a cause for its victims. An interrupt that sends is not the cause of the task that it interrupts. */
static __always_inline void name_sending_party(struct party *party, struct sender_key *key)
{
	if (SUMS_VICTIMS && key->context == KEY_NONE)
		name_current(party);
	else
		name_cgroup(party, 0);
}

/* A program of a sender, whose CPU may not be measured. */
static __always_inline void start_sender_run(struct cpu_state *cpu, struct probe_run *run,
					     struct events *events, u64 now_ns)
{
	run->frame = 0;
	events->valid = false;
	if (!cpu)
		return;
	start_probe_run(cpu, run, now_ns);
	read_events_at_exit(cpu->depth, events);
}

static __always_inline void end_sender_run(struct cpu_state *cpu, struct probe_run *run,
					   struct events *events)
{
	if (cpu)
		end_probe_run(cpu, run, events);
}

/* Counts `targets` events of the sender `key`. `target`: the only target. */
static __always_inline void count_sent(struct cpu_state *cpu, struct sender_key *key, u32 targets,
				       u32 target)
{
	struct sender_row *row = sender_row_of(key);

	if (!row) {
		if (cpu)
			cpu->unattributed++;
		return;
	}
	add_atomically(&row->count, targets);
	note_cpu(row->sender_cpus, bpf_get_smp_processor_id());
	if (targets == 1)
		note_cpu(row->target_cpus, target);
}

/* Notes the call, whose run comes, and its sender for the victims. The kernel executes queued irq_work without an event. */
static __always_inline void note_call(struct call_id *id, struct sender_key *key, u64 now_ns)
{
	struct queued_call call = { .queued_ns = now_ns };

	call.sender = *key;
#ifdef IRQLAB_TRACE
	call.sender_cpu = bpf_get_smp_processor_id();
#endif
	name_sending_party(&call.party, key);
	if (SUMS_VICTIMS && key->event == SENDER_CALL + CSD_WAKEUP)
		note_wakeup(id->target, &call.party);
	note_queued(id, &call);
}

/*
 * The verifier lets no typed program load an argument that points to a function, so the programs at csd_* are not typed.
 */
TRACEPOINTS("csd_queue_cpu") int call_queued(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct call_id id = { .csd = ctx[3], .target = (u32)ctx[0] };
	struct cpu_state *cpu = armed_cpu();
	struct sender_key key = {};
	struct events events;
	struct probe_run run;

	if (!is_window_open(id.target)) {
		forget_queued(&id);
		return 0;
	}
	start_sender_run(cpu, &run, &events, now_ns);
	name_sender(&key, interrupt_that_sends(cpu), SENDER_CALL + (csd_type(id.csd) & 3), ctx[2], ctx[1]);
	count_sent(cpu, &key, 1, id.target);
	if (key.event != SENDER_IRQ_WORK)
		note_call(&id, &key, now_ns);
	else if (SUMS_VICTIMS)
		note_irq_work(id.target, now_ns);
	end_sender_run(cpu, &run, &events);
	return 0;
}

#ifdef IRQLAB_TRACE
static __always_inline u32 sender_cpu_of(struct call_id *id)
{
	struct queued_call *call = bpf_map_lookup_elem(&queued_calls, id);

	return call ? call->sender_cpu : 0;
}
#endif

TRACEPOINTS("csd_function_entry") int call_starts(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns(), queued_ns;
	struct call_id id = { .csd = ctx[1], .target = bpf_get_smp_processor_id() };
	struct cpu_state *cpu = armed_cpu();
	struct sender_key key = {};
	struct party party = {};
	struct running_call *running;
	struct sender_row *row;
	struct events events;
	struct probe_run run;
	u32 zero = 0;
#ifdef IRQLAB_TRACE
	u32 sender_cpu;
#endif

	/* Without a csd, the kernel calls the function for its own CPU. */
	if (!id.csd)
		return 0;
	running = bpf_map_lookup_elem(&running_calls, &zero);
	if (!running)
		return 0;
#ifdef IRQLAB_TRACE
	sender_cpu = sender_cpu_of(&id);
#endif
	/* On a CPU that is not measured, too: a later run must not be joined to this call. */
	queued_ns = take_queued(&id, ctx[0], running->last_wakeup_ns, &key, &party);
	if (csd_type(id.csd) == CSD_WAKEUP) {
		running->last_wakeup_ns = now_ns;
		/* The wake-ups that follow in this run have no event. */
		if (SUMS_VICTIMS && !is_only_waker(id.target, &party))
			name_cgroup(&party, 0);
	}
	if (!cpu) {
		running->csd = 0;
		return 0;
	}
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	if (queued_ns < cpu->armed_ns || queued_ns > now_ns) {
		queued_ns = 0;
		key.function = ctx[0];
		key.call_site = 0;
		key.event = SENDER_RUN;
		key.context = SENDER_UNKNOWN;
		__builtin_memset(key.task, 0, sizeof(key.task));
		name_cgroup(&party, 0);
	}
#ifdef IRQLAB_TRACE
	if (queued_ns)
		write_trace(trace_what(TRACE_CALL, sender_cpu), queued_ns, now_ns, ctx[0], 0);
#endif
	if (SUMS_VICTIMS)
		add_cause(causes_of_innermost(cpu, KEY_OF_call_function, KEY_OF_call_function_single),
			  &party);
	/* The end of the run before this one did not come to a program. */
	if (running->csd && running->entered_ns >= cpu->armed_ns) {
		row = sender_row_of(&running->sender);
		if (row)
			add_atomically(&row->unfinished, 1);
	}
	running->csd = id.csd;
	running->function = ctx[0];
	running->entered_ns = now_ns;
	running->queued_ns = queued_ns;
	running->sender = key;
	end_probe_run(cpu, &run, &events);
	running->probes_ns = run.frame ? run.frame->probes_ns : 0;
	barrier();
	running->start_ns = bpf_ktime_get_ns();
	return 0;
}

TRACEPOINTS("csd_function_exit") int call_ends(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns(), csd = ctx[1], run_ns, probes_ns;
	struct cpu_state *cpu = armed_cpu();
	struct running_call *running;
	struct sender_row *row;
	struct events events;
	struct probe_run run;
	u32 zero = 0;

	running = csd ? bpf_map_lookup_elem(&running_calls, &zero) : 0;
	if (!running || running->csd != csd)
		return 0;
	running->csd = 0;
	if (!cpu || running->function != ctx[0] || running->entered_ns < cpu->armed_ns)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	row = sender_row_of(&running->sender);
	if (row) {
		run_ns = now_ns - running->start_ns;
		/* Programs within the function are no part of its time. Outside of a span, their time is not known. */
		if (run.frame && running->probes_ns) {
			probes_ns = run.frame->probes_ns - running->probes_ns;
			if (probes_ns < run_ns)
				run_ns -= probes_ns;
		}
		add_atomically(&row->runs, 1);
		add_atomically(&row->run_ns, run_ns);
		raise_atomically(&row->run_max_ns, run_ns);
		if (running->queued_ns) {
			add_atomically(&row->delay_ns, running->entered_ns - running->queued_ns);
			raise_atomically(&row->delay_max_ns, running->entered_ns - running->queued_ns);
			add_atomically(&row->completion_ns, now_ns - running->queued_ns);
			raise_atomically(&row->completion_max_ns, now_ns - running->queued_ns);
		} else {
			note_cpu(row->target_cpus, bpf_get_smp_processor_id());
		}
	} else {
		cpu->unattributed++;
	}
	end_probe_run(cpu, &run, &events);
	return 0;
}

TRACEPOINT("ipi_send_cpu") int interrupt_sent(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct sender_key key = {};
	struct party party = {};
	struct events events;
	struct probe_run run;
	u32 target = ctx[0];

	if (!is_window_open(target))
		return 0;
	start_sender_run(cpu, &run, &events, now_ns);
	name_sender(&key, interrupt_that_sends(cpu), SENDER_IPI, ctx[2], ctx[1]);
	count_sent(cpu, &key, 1, target);
#ifdef IRQLAB_TRACE
	if (cpu && !key.function)
		write_trace(trace_what(TRACE_SEND, target), now_ns, now_ns, 0, 0);
#endif
	if (SUMS_VICTIMS && !key.function) {
		name_sending_party(&party, &key);
		note_reschedule(target, &party, now_ns);
	}
	end_sender_run(cpu, &run, &events);
	return 0;
}

/* The number of CPUs in a mask of CPUs whose window is open. Adds these CPUs to `cpus`. */
static __always_inline u32 count_open(u64 mask, u64 *cpus)
{
	struct open_windows *open = open_windows_of_all();
	u32 word, count = 0;
	u64 set;

	if (!open)
		return 0;
	for (word = 0; word < SENDER_CPU_WORDS; word++) {
		if (word * 64 >= cfg.cpus)
			break;
		if (bpf_probe_read_kernel(&set, sizeof(set), (void *)(mask + word * sizeof(set))))
			break;
		set &= open->words[word];
		if (cpus && set & ~cpus[word])
			__sync_fetch_and_or(&cpus[word], set);
		count += __builtin_popcountll(set);
	}
	return count;
}

TRACEPOINT("ipi_send_cpumask") int interrupts_sent(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct sender_key key = {};
	struct sender_row *row;
	struct events events;
	struct probe_run run;

	if (!count_open(ctx[0], 0))
		return 0;
	start_sender_run(cpu, &run, &events, now_ns);
	name_sender(&key, interrupt_that_sends(cpu), SENDER_IPI_TO_SEVERAL, ctx[2], ctx[1]);
	row = sender_row_of(&key);
	if (row) {
		add_atomically(&row->count, count_open(ctx[0], row->target_cpus));
		note_cpu(row->sender_cpus, bpf_get_smp_processor_id());
	} else if (cpu) {
		cpu->unattributed++;
	}
	end_sender_run(cpu, &run, &events);
	return 0;
}

#endif
#endif
