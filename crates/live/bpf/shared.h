/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Structures that the probes and src/bpf/layout.rs share: change both together. The loader refuses
 * an object whose map values have another size than its Rust side.
 */
#ifndef IRQLAB_SHARED_H
#define IRQLAB_SHARED_H

#define HISTOGRAM_SLOTS 512
#define BATCHES 64
#define DEPTH_MAX 16
#define EVENTS_MAX 8
#define NAME_BYTES 32
#define KERNEL_COUNTERS 32
#define PERCPU_OFFSETS 16

/* Keys: what a span is for. The user side turns them into contexts. */
#define KEY_NONE 0
#define KEY_VECTOR 1 /* + position in attribution::VECTORS, below 31 */
#define KEY_SOFTIRQ 32 /* + softirq number, below 16 */
#define KEY_NMI 48
#define KEY_FAULT_USER 49
#define KEY_FAULT_KERNEL 50
#define KEY_BENCH 51 /* the syscall span of calibration and benches */
#define KEY_NAPI 52
#define KEY_IRQ 64 /* + IRQ number */
#define IRQS_MAX 4096
#define KEYS (KEY_IRQ + IRQS_MAX)
#define KEY_AGAIN (KEYS / 2) /* + key: spans without work behind those of a key, in place */

/* Set once, before load. */
struct config {
	__u64 inside_events[EVENTS_MAX]; /* what a pair adds to each event inside its own span */
	__u32 slots; /* entries of the map `rows` */
	__u32 events; /* PMU events read at entry and exit; 0: none */
	__u32 cpus; /* stride of the map `pmu_events` */
	__u32 unused;
	__s32 percpu_offsets[PERCPU_OFFSETS]; /* see gate.h; negative: not known */
};

/* What is known of a key beforehand and while it counts, in one word: each costs a cache line. */
#define SLOT_BITS 7 /* its row, 0: none yet */
#define INSIDE_BITS 14 /* what a probe pair adds inside a span of it, ns */
#define WAY_IN_SHIFT 2 /* and above that, in 4 ns, what a cold way into the exit's program adds */
#define WAY_IN_SHARE 3 /* at most 2^-3 of the span: a short one has cooled nothing */

/* An open span. */
struct frame {
	__u32 key;
	__u32 descendants;
	__u64 start_ns;
	__u64 nested_ns; /* raw time of the spans in it, and what our programs added beside them */
	__u64 probes_ns; /* what our programs took in it, those of the spans in it among them */
};

/* What one CPU is in the middle of, and what it could not attribute. */
struct cpu_state {
	__u32 armed;
	__u32 depth;
	__u32 slots_used;
	__u32 unused;
	__u64 armed_ns;
	__u64 disarmed_ns;
	__u64 unmatched_exits;
	__u64 abandoned;
	__u64 overflows;
	__u64 unattributed; /* spans for which there was no row left, or no key */
	struct frame frames[DEPTH_MAX];
	__u64 kernel_armed[KERNEL_COUNTERS];
	__u64 kernel_disarmed[KERNEL_COUNTERS];
	__u32 places[KEYS]; /* SLOT_BITS of the row; what is above the loader sets */
};

struct batch {
	__u64 count;
	__u64 sum;
};

/* One source on one CPU. Sums are of self time; for a NAPI instance, of packets. */
struct row {
	__u32 key;
	__u32 batch_shift; /* a batch is 2^this ns long */
	__u64 object; /* the kernel's action or napi_struct, as an opaque number */
	__u64 count;
	__u64 sum;
	__u64 squares_low;
	__u64 squares_high;
	__u64 max;
	__u64 max_at_ns;
	__u64 nested_count; /* spans with spans inside */
	__u64 nested_extra; /* inclusive less self time of those */
	__u64 nested_max;
	__u64 nested_max_at_ns;
	__u64 clamped; /* spans shorter than what the probes add: counted as 0 ns */
	__u64 special; /* irq: IRQ_NONE returned; napi: budget used up */
	__u64 abandoned;
	__u32 number; /* napi: its id */
	__u32 shared; /* an action after the first on its line */
	char name[NAME_BYTES];
	__u64 event_self[EVENTS_MAX];
	__u64 event_inclusive[EVENTS_MAX];
	__u64 event_spans; /* spans whose events were read at both ends */
	struct batch batches[BATCHES];
	__u64 flat[HISTOGRAM_SLOTS]; /* spans with nothing inside: self is inclusive */
	__u64 nested_self[HISTOGRAM_SLOTS];
	__u64 nested_inclusive[HISTOGRAM_SLOTS];
};

#endif
