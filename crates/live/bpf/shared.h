/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Structures in the maps of handlers.bpf.c. The build script generates their Rust types from the
 * compiled object's BTF. Constants are in constants.h, generated from src/bpf/constants.rs.
 */
#ifndef IRQLAB_SHARED_H
#define IRQLAB_SHARED_H

#include "parties.h"

/* The configuration, which the loader sets once, before it loads the programs. */
struct config {
	__u32 set; /* number of this object among those that share the maps; not 0 */
	__u32 events; /* PMU events read at entry and exit; 0: none */
	__u32 cpus; /* stride of the map `pmu_events` */
	__u32 times_exits; /* exit programs are timed */
	__u32 empty_spans_only; /* a span with another span inside is not counted */
	__u32 cookies; /* links have cookies: one program is attached to both tracepoints of a context */
	__u32 victims; /* VICTIMS_BY_TASK or VICTIMS_BY_CGROUP: times are summed by victim and cause; 0: they are not */
	__s32 cgroup_subsystem; /* the controller whose hierarchy of groups counts; negative: version 2 */
	__u32 victim_cells_max; /* entries of the map `victim_cells`, without one for each context */
	__u32 jiffy_ns; /* length of a jiffy */
	__s32 percpu_offsets[PERCPU_OFFSETS]; /* see gate.h; negative: not known */
};

/* An open span. */
struct frame {
	__u32 key;
	__u32 descendants; /* number of spans that closed inside it */
	__u64 start_ns;
	__u64 nested_ns; /* raw time of the spans inside it, and the probes' overhead around them */
	__u64 probes_ns; /* time of the probes inside it, and inside the spans in it */
	__u64 interrupted_ns; /* when the last span inside it was opened; may belong to an older span */
};

/* The open spans of one CPU, and the events that it could not attribute. */
struct cpu_state {
	__u32 armed; /* the window is open, for the programs of this set; 0: closed */
	__u32 depth; /* number of open spans */
	__u32 row_base; /* row 1 of this CPU is at row_base + 1 of the map `rows` */
	__u32 rows_max; /* number of rows of this CPU */
	__u32 rows_used; /* number of rows claimed, and of claims refused meanwhile */
	__u32 nested_base; /* like row_base, in the map `nested_times` */
	__u32 nested_max;
	__u32 nested_used;
	__u32 closed; /* number of closed spans, modulo 2^32 */
	/*
	 * A pair's overhead inside a span is inside_fixed (2^-OVERHEAD_UNIT_SHIFT ns) plus
	 * inside_ratio of the time of its exit program. With ratio 0 nothing is learned.
	 */
	__u32 inside_fixed;
	__u32 inside_ratio;
	__u32 outside_ratio; /* a pair's overhead before and after a span, over that inside */
	__u32 overhead_max_ns; /* larger overheads are not learned, because caches do not explain them */
	__u32 went_offline; /* the window closed because the kernel took the CPU offline */
	__u64 armed_ns; /* when the window opened */
	__u64 disarmed_ns; /* when it closed; while it is open, 0 or the time of an earlier window */
	__u64 unmatched_exits; /* exits without an entry */
	__u64 abandoned; /* entries whose exit was not seen */
	__u64 overflows; /* entries that found the stack full */
	__u64 unattributed; /* spans without a row, a histogram or a key */
	struct frame frames[DEPTH_MAX];
	__u64 kernel_armed[KERNEL_COUNTERS]; /* the kernel's own counters when the window opened */
	__u64 kernel_disarmed[KERNEL_COUNTERS]; /* the same counters when it closed */
	/*
	 * A word for each key that is an index. There is one word, because each word costs a cache
	 * line. It contains the key's row (ROW_BITS, 0: none yet), and a probe pair's overhead
	 * inside the key's spans (the other bits, in 2^-OVERHEAD_UNIT_SHIFT ns). The loader sets
	 * the overhead, and timed exit programs correct it. KEY_NONE represents all other keys.
	 */
	__u32 key_words[KEYS_DENSE];
};

struct batch {
	__u64 count;
	__u64 sum;
};

/* One context on one CPU. Sums are of self time; for a NAPI instance, of packets. */
struct row {
	__u32 key;
	__u32 batch_shift; /* a batch is 2^this ns long */
	__u64 object; /* the kernel's action or napi_struct, as an opaque number */
	__u64 count; /* number of spans, polls or faults */
	__u64 sum;
	__u64 squares_low;
	__u64 squares_high;
	__u64 max;
	__u64 max_at_ns;
	__u64 nested_count; /* number of spans with spans inside */
	/*
	 * Inclusive minus self time of the spans with spans inside, plus their missing self time, modulo
	 * 2^64: a span with a shorter one than its probe overhead inside has less than 0.
	 */
	__u64 nested_extra;
	__u64 nested_max; /* largest inclusive time of the spans with spans inside */
	__u64 nested_max_at_ns;
	__u64 clamped; /* number of spans shorter than the probe overhead, which count as 0 ns */
	__u64 clamped_ns; /* the missing time of these spans */
	__u64 overhead_ns; /* overhead that was subtracted for probes inside spans */
	__u64 timed_exits; /* number of exit programs that were timed */
	__u64 timed_exits_ns; /* their time, from the clock reading that ends the span */
	__u64 special; /* irq: IRQ_NONE returned; napi: budget used up */
	__u64 abandoned;
	__u32 number; /* napi: its id */
	__u16 shared; /* an action after the first on its line */
	__u16 nested; /* its entry in the CPU's `nested_times`; 0: none yet */
	__u32 section_base; /* the slot of the histogram that a section's slot 0 counts */
	__u32 unused;
	char name[NAME_BYTES]; /* NUL-terminated; empty if it was not read */
	__u64 event_self[EVENTS_MAX];
	__u64 event_inclusive[EVENTS_MAX];
	__u64 event_spans; /* number of spans whose events were read at both ends */
	struct batch batches[BATCHES]; /* in a pass with events: the spans of event_spans, without a sum */
	/*
	 * The histogram of spans with nothing inside, whose self time equals their inclusive time.
	 * In a pass with events there is no table of times. There the slots contain the sums of
	 * event_self by batch: event E in batch B at B * EVENTS_MAX + E.
	 */
	__u64 slots[HISTOGRAM_SLOTS];
	/*
	 * Histograms of self times in sections of the window, each of BATCHES_IN_SECTION batches.
	 * Slot S of section N is at N * SECTION_SLOTS + S, and counts the values of the
	 * histogram's slot section_base + S. A section's first and last slot also count all
	 * values below and above.
	 */
	__u32 sections[SECTIONS * SECTION_SLOTS];
};

/* What a sender sent, over all CPUs. */
struct sender_row {
	__u64 count; /* calls or interrupts to measured CPUs, one for each target */
	__u64 runs; /* runs of the function with both events; of a call, those that are joined to it */
	__u64 unfinished; /* runs whose end was not seen */
	__u64 run_ns; /* from the entry program's last clock reading to the exit program's first one */
	__u64 run_max_ns;
	__u64 delay_ns; /* from queueing to the start of the run */
	__u64 delay_max_ns;
	__u64 completion_ns; /* from queueing to the end of the run */
	__u64 completion_max_ns;
	__u64 sender_cpus[SENDER_CPU_WORDS]; /* a bit for each CPU that sent */
	__u64 target_cpus[SENDER_CPU_WORDS];
};

/* A cell of the matrix of victims and causes, for each context. */
struct victim_key {
	struct party victim;
	struct party cause;
	__u32 context; /* its key; of PARTY_OTHERS, KEY_NONE: all contexts without such a cell */
	__u32 unused;
};

/* The spans of a cell, over all CPUs. */
struct victim_cell {
	__u64 count; /* a span with several causes counts in the cell of each */
	__u64 self_ns;
};

/* The single events of one CPU. */
struct trace_cpu {
	__u64 written; /* number of events since the window opened */
	__u32 base; /* the CPU's first entry of the map `trace_events` */
	__u32 events_max; /* its number of entries; 0: the CPU is not measured */
	__u64 task_since_ns; /* when the current task got the CPU, or the window opened */
	__u64 timed; /* number of events whose writing was timed */
	__u64 timed_ns; /* their time */
	__u32 runnable; /* tasks that could run here at task_since_ns, or TRACE_RUNNABLE_UNKNOWN */
	__u32 unused;
};

/*
 * A single event. The words of a span are its self time and the object of its row; of a task, its name; of a call, the
 * function.
 */
struct trace_event {
	__u64 start_ns; /* of a request: when it was made */
	__u64 end_ns; /* of a request: when it was served; TRACE_SEND: when it was made */
	__u64 words[2];
	__u32 key; /* of a span: its key; of a task: its number; of a raise: the softirq; of a call: the CPU of the sender; of a send: the target */
	__u32 event; /* TRACE_SPAN and so on; of a task, from bit TRACE_TYPE_BITS on the number of tasks that could run */
};

#define BATCHES_IN_SECTION (BATCHES / SECTIONS)

_Static_assert(BATCHES * EVENTS_MAX <= HISTOGRAM_SLOTS, "the sums of events have no place");

/*
 * Histograms of a row's spans with spans inside. Few contexts, such as softirqs, have such spans.
 */
struct nested_times {
	__u64 self_time[HISTOGRAM_SLOTS];
	__u64 inclusive_time[HISTOGRAM_SLOTS];
};

#endif
