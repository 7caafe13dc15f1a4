/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* What noise.bpf.c and src/noise/marks.rs share: change both together. */
#ifndef IRQLAB_NOISE_H
#define IRQLAB_NOISE_H

#define NOISE_NAME_BYTES 16 /* TASK_COMM_LEN */

/* Keys of contexts, as in shared.h. */
#define NOISE_KEY_VECTOR 1
#define NOISE_KEY_SOFTIRQ 32
#define NOISE_KEY_NMI 48
#define NOISE_KEY_IRQ 64

enum {
	NOISE_ENTER = 1,
	NOISE_LEAVE,
	NOISE_NMI,
	NOISE_FAULT,
	NOISE_SWITCH_TO,
	NOISE_SWITCH_BACK,
};

/* The loop of a CPU. */
struct noise_cpu {
	__u32 thread; /* 0: no loop runs there, and no mark is made */
};

struct noise_mark {
	__u64 at_ns;
	__u16 cpu;
	__u16 what;
	__u32 key; /* of the context; the task's id at a switch */
	__u64 value; /* of an NMI its time, ns; at a switch the task's process */
};

struct noise_switch {
	struct noise_mark mark;
	char name[NOISE_NAME_BYTES];
};

#endif
