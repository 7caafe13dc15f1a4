/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The system call that a task is within, by its registers. services.bpf.c and noise_senders.h use it.
 */
#ifndef IRQLAB_SYSTEM_CALLS_H
#define IRQLAB_SYSTEM_CALLS_H

#include "constants.h"

/* CO-RE ignores ___ and the rest of the name. */
struct thread_info___of_calls { /* arch/x86/include/asm/thread_info.h */
	u32 status;
} RELOCATED;

struct task_struct___of_calls {
	struct thread_info___of_calls thread_info;
} RELOCATED;

struct pt_regs___of_calls { /* arch/x86/include/asm/ptrace.h */
	long orig_ax;
} RELOCATED;

#define TS_COMPAT 0x0002 /* arch/x86/include/asm/thread_info.h: within a system call of 32-bit code */
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000 /* Linux 6.4: threads of vhost */
/* Flags of tasks that never are in user mode. */
#define KERNEL_THREADS (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)

/*
 * Returns the position of the system call with this number in the table of 64-bit calls, which `task` is within. The
 * numbers of 32-bit code mean other calls: these have one position.
 */
static __always_inline u32 call_position(struct task_struct *task, u64 number)
{
	struct task_struct___of_calls *relocated = (void *)task;

	if (bpf_core_field_exists(relocated->thread_info.status) &&
	    (BPF_CORE_READ(relocated, thread_info.status) & TS_COMPAT))
		return SERVICE_SYSCALL_32;
	return number < SERVICE_SYSCALL_32 ? number : SERVICE_SYSCALLS - 1;
}

/*
 * Finds the system call of a task by the registers with which the task entered the kernel. Returns
 * its position + 1, or 0. Every other entry from user mode sets orig_ax to -1.
 */
static __always_inline u32 call_by_registers(struct task_struct *task)
{
	struct pt_regs___of_calls *registers;
	long number;

	/* Linux 5.15 */
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return SERVICE_UNKNOWN + 1;
	registers = (void *)bpf_task_pt_regs(task);
	number = BPF_CORE_READ(registers, orig_ax);
	if (number < 0)
		return 0;
	return call_position(task, number) + 1;
}

#endif
