/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Who sends interrupts to other CPUs. These structures are parts of keys and of values of maps, of handlers.bpf.c and of
 * noise.bpf.c.
 */
#ifndef IRQLAB_PARTIES_H
#define IRQLAB_PARTIES_H

#include "constants.h"

/* Who sends, what, and from where. All bytes count: each unused byte is 0. */
struct sender_key {
	__u64 function; /* the called function; of an interrupt, the kernel's callback for it; 0: none */
	__u64 call_site; /* the return address in the function that sends */
	__u32 event; /* SENDER_CALL plus the csd's type, or another SENDER_ event */
	__u32 context; /* key of the interrupt that sends; KEY_NONE: a task; or SENDER_OTHERS and so on */
	char task[TASK_NAME_BYTES]; /* name of the task that sends; empty in an interrupt */
};

/* A task or a control group that pays for interrupts or causes them. All bytes count: each unused byte is 0. */
struct party {
	__u64 id[2]; /* PARTY_TASK: the bytes of the name; PARTY_CGROUP: the group's id, and 0 */
	__u32 kind;
	__u32 unused;
};

#endif
