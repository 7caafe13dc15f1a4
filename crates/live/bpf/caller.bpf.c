/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The numbers and times that the other programs see. User space runs this program by
 * BPF_PROG_TEST_RUN in the thread whose numbers it needs: gettid(2) and clock_gettime(2) answer in
 * the process's own namespaces, and BPF programs in the initial ones.
 */
#include "kernel.h"
#include "caller.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct caller);
} callers SEC(".maps");

SEC("raw_tp") int see_caller(u64 *ctx)
{
	u32 zero = 0;
	struct caller *seen = bpf_map_lookup_elem(&callers, &zero);
	u64 numbers;

	if (!seen)
		return 1;
	seen->at_ns = bpf_ktime_get_ns();
	numbers = bpf_get_current_pid_tgid();
	seen->thread = (u32)numbers;
	seen->process = numbers >> 32;
	return 0;
}
