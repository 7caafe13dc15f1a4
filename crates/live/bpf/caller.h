/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The value in the map of caller.bpf.c. The build script generates its Rust type from
 * the compiled object's BTF.
 */
#ifndef IRQLAB_CALLER_H
#define IRQLAB_CALLER_H

struct caller {
	__u64 at_ns; /* the monotonic clock of the initial time namespace */
	__u32 thread; /* the calling thread's number in the initial PID namespace */
	__u32 process; /* the number of its process in that namespace */
};

#endif
