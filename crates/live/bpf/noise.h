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

struct noise_switch {
	struct noise_mark mark;
	char name[TASK_NAME_BYTES];
};

#endif
