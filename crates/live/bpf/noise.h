/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Records of noise.bpf.c. The build script generates their Rust types from the compiled object's
 * BTF.
 */
#ifndef IRQLAB_NOISE_H
#define IRQLAB_NOISE_H

#include "parties.h"

/* The loop of a CPU. */
struct noise_cpu {
	__u32 thread; /* 0: no loop runs on this CPU, and no mark is made */
};

struct noise_mark {
	__u64 at_ns;
	__u16 cpu;
	__u16 what; /* MARK_... */
	__u32 key; /* the context's key; the task's id at a switch; the waker's id at a wake-up; a sender's number */
	/*
	 * An NMI's duration, ns; the task's process at a switch; the waker's CPU; at the entry of an interrupt that another
	 * CPU sent, the number of its sender, or 0.
	 */
	__u64 value;
};

/* The constants of the programs. */
struct noise_config {
	__s32 percpu_offsets[PERCPU_OFFSETS];
	__u32 follows_wakers; /* whether the chains of wakers of measured threads are recorded */
	__u32 follows_senders; /* whether marks name the senders of interrupts */
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

/* Who sends interrupts to a measured CPU. All bytes count: each unused byte is 0. */
struct noise_sender {
	struct sender_key key; /* without a call site */
	__u32 process; /* of the task; 0: the idle task, or an interrupt sends */
	__u32 cpu;
	__u32 system_call; /* 1 plus its position (SERVICE_SYSCALLS); 0: the task is in none, or it is not known */
	__u32 unused;
};

struct noise_sender_record {
	struct noise_mark mark; /* its key is the sender's number */
	struct noise_sender sender;
};

struct noise_switch {
	struct noise_mark mark;
	char name[TASK_NAME_BYTES];
};

#endif
