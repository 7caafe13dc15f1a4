/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Values in the maps of services.bpf.c. The build script generates their Rust side from the compiled
 * object's BTF.
 */
#ifndef IRQLAB_SERVICES_H
#define IRQLAB_SERVICES_H

#include "constants.h"

/* A service on one CPU: the CPU on which its requests ended. Times in ns. */
struct service_row {
	__u64 started; /* requests */
	__u64 completed; /* requests that started and ended in the window */
	__u64 latency_ns;
	__u64 blocked_ns;
	__u64 descheduled_ns;
	__u64 nested_ns; /* interrupts and softirqs on the same task */
	__u32 latencies[HISTOGRAM_SLOTS]; /* completed requests by latency */
};

/* Which row a service has on one CPU; 0 is none. */
struct service_rows {
	__u32 used;
	__u32 lost; /* events without a row, a task or a place on the stack */
	__u16 row_of[SERVICES];
};

/* An interrupt or softirq that is under way. */
struct service_span {
	__u64 start_ns;
	__u64 nested_ns;
};

struct service_stack {
	__u32 depth;
	__u32 unused;
	struct service_span spans[DEPTH_MAX];
};

/* A task that is in a system call, or was. */
struct service_task {
	__u64 entered_ns;
	__u64 left_ns; /* the CPU; 0 while it runs */
	__u64 woken_ns;
	__u64 blocked_ns;
	__u64 descheduled_ns;
	__u64 nested_ns;
	__u32 service; /* 1 and its position; 0: in none */
	__u32 blocks; /* it left the CPU to wait */
};

#endif
