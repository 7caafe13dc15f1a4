/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Values in the maps of services.bpf.c. The build script generates their Rust types from
 * the compiled object's BTF.
 */
#ifndef IRQLAB_SERVICES_H
#define IRQLAB_SERVICES_H

#include "constants.h"

/* A service on the CPU on which its requests ended. Times in ns. */
struct service_row {
	__u64 self_ns; /* this CPU's time for the service: see service_time.h */
	__u64 started; /* number of requests that started */
	__u64 completed; /* number of requests that started and ended in the window, whose times are known */
	__u64 unseen; /* number of other requests that did: a switch of their task was not seen */
	__u64 latency_ns;
	__u64 blocked_ns;
	__u64 descheduled_ns;
	__u64 nested_ns; /* time of interrupts, softirqs and faults on the same task, and of these programs at them */
	__u32 latencies[HISTOGRAM_SLOTS]; /* number of completed requests by latency */
};

/* The row of each service on one CPU; 0 is no row. */
struct service_rows {
	__u32 used;
	__u32 lost; /* number of events without a row, a task or a place on the stack */
	__u32 row_of[SERVICES];
};

/* An interrupt or softirq that is under way. */
struct service_span {
	__u64 entered_ns; /* the program at its entry started */
	__u64 start_ns; /* the program at its entry ended */
	__u64 nested_ns;
	__u32 service;
	__u32 interrupts_program; /* whether it interrupts one of these programs: IN_PROGRAM (service_time.h) or 0 */
};

/* Set by the loader. */
struct service_config {
	__s32 percpu_offsets[PERCPU_OFFSETS]; /* see kernel_counters.h; negative: not known */
	__s32 cgroup_subsystem; /* the controller whose hierarchy of groups counts; negative: version 2 */
	__u64 lock_functions[2 * LOCK_FUNCTIONS]; /* start and end of each range of functions that take locks */
};

/* The activity of a CPU, and its window. */
struct service_cpu {
	__u64 opened_ns;
	__u64 closed_ns; /* 0 while the window is open */
	__u64 since; /* all time until half of this (ns) is in the sums, see since_of; 0 while the window is closed */
	__u64 probes_ns; /* time inside these programs */
	__u64 unplaced_ns; /* time of services without a row */
	__u32 base; /* the service for which the task executes */
	__u32 depth; /* number of spans that interrupt the task */
	__u32 times_faults; /* whether the end of a page fault has a program */
	__u32 went_offline; /* whether the window closed because the kernel took the CPU offline */
	__u64 kernel_opened[KERNEL_COUNTERS]; /* the kernel's own counters when the window opened */
	__u64 kernel_closed[KERNEL_COUNTERS]; /* and when it closed */
	struct service_span spans[DEPTH_MAX];
};

/* A system call or page fault of a task. */
struct service_request {
	__u64 entered_ns; /* 0: it started before the window */
	__u64 blocked_ns;
	__u64 descheduled_ns;
	__u64 nested_ns;
	__u32 service; /* 1 plus the service's position; 0: no service */
	__u32 unseen; /* whether a switch of the task was not seen, so that the times are not known */
};

/* A task that runs, or ran. */
struct service_task {
	struct service_request call;
	struct service_request fault; /* a fault of user mode, or a fault within the call */
	__u64 left_ns; /* when it left the CPU; 0 while it runs */
	__u64 woken_ns;
	__u32 blocks; /* whether it left the CPU to wait */
	__u32 unused;
};

/* Waits with equal keys share a row. */
struct lock_key {
	__u64 lock; /* address of the lock if it is a variable of the kernel or a module; else 0 */
	__u64 place; /* return address of the outermost function that takes the lock; 0: not known */
	__u64 cgroup; /* id of the waiting task's group; 0: an interrupt waits, or the group is not known */
	__u32 service; /* the service's position */
	__u32 flags; /* of the tracepoint; without LCB_F_SPIN if the lock is a mutex */
};

/* The ended waits of a key on one CPU: see locks.h. Times in ns. */
struct lock_row {
	struct lock_key key;
	__u64 used;
	__u64 ended;
	__u64 interrupted; /* number of those that ended without the lock */
	__u64 waited_ns;
	__u64 waited_max_ns;
	__u64 spun_ns; /* time of those in which the kernel says that the CPU spins */
};

/* A wait that has not ended. */
struct lock_wait {
	struct lock_key key;
	__u64 lock; /* 0: it ended on a CPU whose window was not open */
	__u64 start_ns;
	__u64 phase_ns; /* when the kernel last said whether the CPU spins */
	__u64 spun_ns;
	__u32 spins;
	__u32 unused;
};

/* Waits inside each other, the outermost first. */
struct lock_waits {
	__u32 depth;
	__u32 unused;
	struct lock_wait waits[LOCK_DEPTH];
};

/* The programs of locks on one CPU. */
struct lock_cpu {
	__u64 skipped; /* number of waits whose start or end came while a program of locks ran */
	__u64 unmatched; /* number of ends of waits whose start was not seen */
	__u32 active; /* which program runs; 0: none */
	__u32 unused;
	__u64 frames[LOCK_FRAMES]; /* return addresses of the kernel's stack */
	struct lock_waits spinning;
};

#endif
