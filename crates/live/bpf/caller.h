/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The value in the map of caller.bpf.c. The build script generates its Rust side from the compiled object's
 * BTF.
 */
#ifndef IRQLAB_CALLER_H
#define IRQLAB_CALLER_H

struct caller {
	__u64 at_ns; /* the kernel's monotonic clock: that of the initial time namespace */
	__u32 thread; /* the calling thread's number in the initial PID namespace */
	__u32 process; /* its process's number there */
};

#endif
