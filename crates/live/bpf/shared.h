/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Structures in the maps of handlers.bpf.c. The build script generates their Rust side from the
 * compiled object's BTF. Constants are in constants.h, generated from src/bpf/constants.rs.
 */
#ifndef IRQLAB_SHARED_H
#define IRQLAB_SHARED_H

#include "constants.h"

/* Set once, before load. */
struct config {
	__u32 set; /* which of the objects that share the maps this one is; not 0 */
	__u32 events; /* PMU events read at entry and exit; 0: none */
	__u32 cpus; /* stride of the map `pmu_events` */
	__u32 times_exits; /* exit programs are timed */
	__u32 empty_spans_only; /* a span with another one inside is not counted */
	__u32 cookies; /* links have cookies: one program is attached to both tracepoints of a context */
	__s32 percpu_offsets[PERCPU_OFFSETS]; /* see gate.h; negative: not known */
};

/* An open span. */
struct frame {
	__u32 key;
	__u32 descendants; /* spans closed inside it */
	__u64 start_ns;
	__u64 nested_ns; /* raw time of the spans inside it, and what the probes added around them */
	__u64 probes_ns; /* what the probes took inside it, including those of the spans inside it */
	__u64 interrupted_ns; /* when the last span inside it was opened; may be of an older span */
};

/* The open spans of one CPU, and the events that it could not attribute. */
struct cpu_state {
	__u32 armed; /* the window is open, for the programs of this set; 0: closed */
	__u32 depth; /* open spans */
	__u32 row_base; /* row 1 of this CPU is at row_base + 1 of the map `rows` */
	__u32 rows_max; /* rows of this CPU */
	__u32 rows_used; /* rows claimed, or refused */
	__u32 nested_base; /* as for rows, in the map `nested_times` */
	__u32 nested_max;
	__u32 nested_used;
	__u32 closed; /* spans closed, modulo 2^32 */
	/*
	 * What a pair adds inside a span is inside_fixed (2^-OVERHEAD_UNIT_SHIFT ns), and inside_ratio of
	 * the time of its exit program. Ratio 0: nothing is learned.
	 */
	__u32 inside_fixed;
	__u32 inside_ratio;
	__u32 outside_ratio; /* what a pair adds before and after a span, over what it adds inside */
	__u32 overhead_max_ns; /* no more is learned: caches explain no more */
	__u32 went_offline; /* the window closed because the kernel took the CPU offline */
	__u64 armed_ns; /* when the window opened */
	__u64 disarmed_ns; /* when it closed; an earlier one's, or 0, while it is open */
	__u64 unmatched_exits; /* exits without an entry */
	__u64 abandoned; /* entries whose exit was not seen */
	__u64 overflows; /* entries that found the stack full */
	__u64 unattributed; /* spans for which there was no row or histogram left, or no key */
	struct frame frames[DEPTH_MAX];
	__u64 kernel_armed[KERNEL_COUNTERS]; /* the kernel's own counters when the window opened */
	__u64 kernel_disarmed[KERNEL_COUNTERS]; /* and when it closed */
	/*
	 * For each key that is an index, in one word because each word costs a cache line: its row
	 * (ROW_BITS, 0: none yet), and what a probe pair adds inside its spans (the rest, in
	 * 2^-OVERHEAD_UNIT_SHIFT ns), which the loader sets and timed exit programs correct. KEY_NONE
	 * stands for all other keys.
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
	__u64 count; /* spans, polls or faults */
	__u64 sum;
	__u64 squares_low;
	__u64 squares_high;
	__u64 max;
	__u64 max_at_ns;
	__u64 nested_count; /* spans with spans inside */
	__u64 nested_extra; /* inclusive minus self time of those */
	__u64 nested_max; /* largest inclusive time of those */
	__u64 nested_max_at_ns;
	__u64 clamped; /* spans shorter than the probe overhead: counted as 0 ns */
	__u64 clamped_ns; /* by how much they were shorter */
	__u64 overhead_ns; /* subtracted for probes inside spans */
	__u64 timed_exits; /* exit programs that were timed */
	__u64 timed_exits_ns; /* and their time, from the reading of the clock that ends the span */
	__u64 special; /* irq: IRQ_NONE returned; napi: budget used up */
	__u64 abandoned;
	__u32 number; /* napi: its id */
	__u16 shared; /* an action after the first on its line */
	__u16 nested; /* its entry among the CPU's `nested_times`; 0: none yet */
	__u32 section_base; /* the slot of the histogram that a section's slot 0 counts */
	__u32 unused;
	char name[NAME_BYTES]; /* NUL-terminated; empty when not read */
	__u64 event_self[EVENTS_MAX];
	__u64 event_inclusive[EVENTS_MAX];
	__u64 event_spans; /* spans whose events were read at both ends */
	struct batch batches[BATCHES]; /* in a pass with events: spans counted in event_spans, no sum */
	/*
	 * The histogram of spans with nothing inside: self time equals inclusive time. In a pass with
	 * events, of whose times no table is made, the sums of event_self by batch instead: of event E in
	 * batch B at B * EVENTS_MAX + E.
	 */
	__u64 slots[HISTOGRAM_SLOTS];
	/*
	 * Histograms of self times in sections of the window, BATCHES_IN_SECTION batches each: slot S of
	 * section N at N * SECTION_SLOTS + S. It counts what the histogram's slot section_base + S counts;
	 * the first and the last one also all below and above.
	 */
	__u32 sections[SECTIONS * SECTION_SLOTS];
};

#define BATCHES_IN_SECTION (BATCHES / SECTIONS)

_Static_assert(BATCHES * EVENTS_MAX <= HISTOGRAM_SLOTS, "the sums of events have no place");

/* Histograms of the spans of a row with spans inside. Few contexts have such spans: softirqs. */
struct nested_times {
	__u64 self_time[HISTOGRAM_SLOTS];
	__u64 inclusive_time[HISTOGRAM_SLOTS];
};

#endif
