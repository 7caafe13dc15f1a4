/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Records of noise.bpf.c. The build script generates their Rust types from the compiled object's
 * BTF.
 */
#ifndef IRQLAB_NOISE_H
#define IRQLAB_NOISE_H

#include "constants.h"

/* The loop of a CPU. */
struct noise_cpu {
	__u32 thread; /* 0: no loop runs on this CPU, and no mark is made */
};

struct noise_mark {
	__u64 at_ns;
	__u16 cpu;
	__u16 what; /* MARK_... */
	__u32 key; /* the context's key; the task's id at a switch; the waker's id at a wake-up */
	__u64 value; /* an NMI's duration, ns; the task's process at a switch; the waker's CPU */
};

/* The constants of the programs. */
struct noise_config {
	__s32 percpu_offsets[PERCPU_OFFSETS];
	__u32 follows_wakers; /* whether the chains of wakers of measured threads are recorded */
};

/* A step of a chain of wakers: who woke a task. */
struct waker {
	__u64 at_ns; /* when it woke the task */
	__u32 key; /* the interrupt or softirq that woke it; KEY_NONE: the running task did */
	__u32 pid; /* the task that ran */
	__u32 cpu; /* its CPU */
	__u32 unused;
	char name[TASK_NAME_BYTES]; /* its name */
};

struct noise_waker {
	struct noise_mark mark; /* its value is the position in the chain */
	struct waker waker;
};

struct noise_switch {
	struct noise_mark mark;
	char name[TASK_NAME_BYTES];
};

#endif
