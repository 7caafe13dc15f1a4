/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Control groups as causes of interrupts (victims.h): the groups whose requests an interrupt completes, and whose
 * sockets receive its packets. The kernel names both in the hierarchy of version 2.
 */
#ifndef IRQLAB_CAUSES_H
#define IRQLAB_CAUSES_H

#ifndef IRQLAB_NO_BTF

#define ROOT_CGROUP 1

static __always_inline void add_group_as_cause(struct cpu_state *cpu, struct span_causes *causes,
					       u64 group, u64 now_ns)
{
	struct party party = {};
	struct events events;
	struct probe_run run;

	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	name_cgroup(&party, group);
	add_cause(causes, &party);
	end_probe_run(cpu, &run, &events);
}

/*
 * A request names the nearest group above its task's group that has the controller io. So the root group may stand for
 * any group, and is not known.
 */
TRACEPOINT("block_rq_complete") int request_completed(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns(), group;
	struct cpu_state *cpu = armed_cpu();
	struct span_causes *causes;
	struct bio *bio;

	causes = cpu ? causes_of_innermost(cpu, KEY_VECTOR, KEY_DELAY_SOFTIRQ - 1) : 0;
	if (!causes)
		return 0;
	bio = BPF_CORE_READ((struct request *)ctx[0], bio);
	group = bio ? id_of_cgroup(BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup)) : 0;
	add_group_as_cause(cpu, causes, group == ROOT_CGROUP ? 0 : group, now_ns);
	return 0;
}

/*
 * The group of a socket is that of the task that made it. A delivery counts as one packet, although it may contain several
 * that the kernel merged (GRO), and a socket that its reader has locked gets its packets later, outside of the softirq. So the
 * group's part of the span's packets is at least this one.
 */
TRACEPOINT("sk_data_ready") int socket_received(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct span_causes *causes;

	causes = cpu ? causes_of_innermost(cpu, KEY_NET_RX, KEY_NET_RX) : 0;
	if (!causes)
		return 0;
	add_group_as_cause(cpu, causes,
			   id_of_cgroup(BPF_CORE_READ((struct sock *)ctx[0], sk_cgrp_data.cgroup)),
			   now_ns);
	return 0;
}

#endif
#endif
