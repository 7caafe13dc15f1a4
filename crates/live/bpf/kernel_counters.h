/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The counters of this CPU that /proc/interrupts and /proc/softirqs print. Read where a window opens and closes, with
 * interrupts off, they can be compared exactly with what the programs counted in it.
 */
#ifndef IRQLAB_KERNEL_COUNTERS_H
#define IRQLAB_KERNEL_COUNTERS_H

/*
 * cfg.percpu_offsets contains the counters' offsets in a CPU's area, including the offsets of
 * fields. The loader takes them from the kernel's BTF (section .data..percpu). A kernel may hide
 * the addresses of its variables (no KALLSYMS_ALL). Therefore the area is found by its run
 * queue, to which a pointer leads from the current task. The loader compares the counters with
 * /proc before it uses them.
 */
#define VECTOR_COUNTERS (PERCPU_OFFSETS - OFFSET_VECTORS)

static __always_inline u64 percpu_area(void)
{
#ifndef IRQLAB_NO_BTF
	struct task_struct *task = (void *)bpf_get_current_task();

	if (bpf_core_field_exists(task->se.cfs_rq) && cfg.percpu_offsets[OFFSET_RUNQUEUES] >= 0) {
		u64 rq = (u64)BPF_CORE_READ(task, se.cfs_rq, rq);

		return rq ? rq - cfg.percpu_offsets[OFFSET_RUNQUEUES] : 0;
	}
#endif
	return 0;
}

static __always_inline void read_kernel_counters(u64 *out)
{
	u64 area = percpu_area();
	u32 i, value;

	for (i = 0; i < KERNEL_COUNTERS; i++)
		out[i] = COUNTER_ABSENT;
	if (!area)
		return;
#ifndef IRQLAB_NO_BTF
	if (cfg.percpu_offsets[OFFSET_KSTAT] >= 0) {
		const struct kernel_stat *stat = (void *)(area + cfg.percpu_offsets[OFFSET_KSTAT]);
		u32 softirqs[NR_SOFTIRQS];

		if (!bpf_core_read(&softirqs, sizeof(softirqs), &stat->softirqs))
			for (i = 0; i < NR_SOFTIRQS; i++)
				out[i] = softirqs[i];
		bpf_core_read(&out[COUNTER_DEVICES], sizeof(u64), &stat->irqs_sum);
	}
#endif
	for (i = 0; i < VECTOR_COUNTERS; i++) {
		s32 offset = cfg.percpu_offsets[OFFSET_VECTORS + i];

		if (offset >= 0 && !bpf_probe_read_kernel(&value, sizeof(value), (void *)(area + offset)))
			out[COUNTER_VECTORS + i] = value;
	}
}

#endif
