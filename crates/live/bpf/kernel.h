/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The few kernel types that the probes read, with only the fields that they use. The loader
 * relocates field offsets against the running kernel's BTF (CO-RE), so no vmlinux.h is generated,
 * and the programs build on a machine whose kernel has no BTF.
 */
#ifndef IRQLAB_KERNEL_H
#define IRQLAB_KERNEL_H

/* Replaces <linux/types.h>, whose includes are in a path that differs by distribution. */
#define _LINUX_TYPES_H
typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __le16;
typedef __u32 __le32;
typedef __u64 __le64;
typedef __u32 __wsum;
typedef __u16 __sum16;
#define __aligned_u64 __u64 __attribute__((aligned(8)))
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
typedef __s32 s32;
#define bool _Bool
#define true 1
#define false 0

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define RELOCATED __attribute__((preserve_access_index))

struct task_struct;

struct irqaction { /* include/linux/interrupt.h */
	const char *name;
	struct task_struct *thread;
	unsigned long thread_flags;
} RELOCATED;

struct net_device { /* include/linux/netdevice.h */
	char name[16];
} RELOCATED;

struct napi_struct { /* include/linux/netdevice.h */
	struct net_device *dev;
	unsigned int napi_id;
} RELOCATED;

#define NR_SOFTIRQS 10

struct kernel_stat { /* include/linux/kernel_stat.h: what /proc/softirqs prints */
	unsigned long irqs_sum;
	unsigned int softirqs[NR_SOFTIRQS];
} RELOCATED;

/* kernel/sched/sched.h: the pointers from the current task to its CPU's run queue */
#ifdef IRQLAB_TRACE
struct rq {
	unsigned int nr_running;
} RELOCATED;
#else
struct rq;
#endif

struct cfs_rq {
	struct rq *rq;
} RELOCATED;

struct sched_entity {
	struct cfs_rq *cfs_rq;
	unsigned char sched_delayed; /* from Linux 6.12 on */
} RELOCATED;

/* include/linux/sched.h */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD 0x00200000

struct hrtimer_clock_base { /* include/linux/hrtimer_defs.h */
	s64 offset;
} RELOCATED;

struct hrtimer { /* include/linux/hrtimer_types.h */
	void *function;
	s64 _softexpires;
	struct hrtimer_clock_base *base;
} RELOCATED;

struct timer_list { /* include/linux/timer_types.h */
	void *function;
	unsigned long expires;
} RELOCATED;

struct work_struct { /* include/linux/workqueue_types.h */
	void *func;
} RELOCATED;

struct callback_head { /* include/linux/types.h */
	void *func;
} RELOCATED;

struct __call_single_node { /* include/linux/smp_types.h */
	unsigned int u_flags;
} RELOCATED;

struct kernfs_node { /* include/linux/kernfs.h */
	u64 id;
} RELOCATED;

struct cgroup { /* include/linux/cgroup-defs.h, as the next two */
	struct kernfs_node *kn;
} RELOCATED;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} RELOCATED;

struct css_set {
	struct cgroup_subsys_state *subsys[1]; /* by controller */
	struct cgroup *dfl_cgrp; /* in the hierarchy of version 2 */
} RELOCATED;

struct blkcg { /* block/blk-cgroup.h, as the next one */
	struct cgroup_subsys_state css;
} RELOCATED;

struct blkcg_gq {
	struct blkcg *blkcg;
} RELOCATED;

struct bio { /* include/linux/blk_types.h */
	struct blkcg_gq *bi_blkg;
} RELOCATED;

struct request { /* include/linux/blk-mq.h */
	struct bio *bio;
} RELOCATED;

struct sock_cgroup_data { /* include/linux/cgroup-defs.h */
	struct cgroup *cgroup;
} RELOCATED;

struct sock { /* include/net/sock.h */
	struct sock_cgroup_data sk_cgrp_data;
} RELOCATED;

struct task_struct {
	unsigned int flags;
	int on_rq;
	int pid;
	char comm[16];
	struct css_set *cgroups;
	struct sched_entity se;
} RELOCATED;

#endif
